// Command unserveddoc writes the list of what is not done into a Markdown document, between two comments.
package main

import (
	"fmt"
	"os"

	"github.com/tombolo-net/tombolo/pkg/unserved"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "unserveddoc:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := unserved.Document(string(b))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if text == string(b) {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
