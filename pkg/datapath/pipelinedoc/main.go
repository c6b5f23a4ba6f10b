// Command pipelinedoc writes docs/pipeline.md from the declarations of package datapath.
package main

import (
	"fmt"
	"os"

	"github.com/tombolo-net/tombolo/pkg/datapath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pipelinedoc FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(datapath.Markdown()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "write the pipeline's documentation:", err)
		os.Exit(1)
	}
}
