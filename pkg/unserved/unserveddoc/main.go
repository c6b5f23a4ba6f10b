// Command unserveddoc writes the list of requests that are not served into a Markdown document.
package main

import (
	"fmt"
	"os"

	"github.com/tombolo-net/tombolo/pkg/unserved"
)

func main() {
	if err := os.WriteFile(os.Args[1], []byte(unserved.Document()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "unserveddoc:", err)
		os.Exit(1)
	}
}
