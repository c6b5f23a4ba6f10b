// Command reference writes docs/openflow-fields.md from the tables of packages ofp and flow.
package main

import (
	"fmt"
	"os"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(flow.Reference()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "write the reference of fields and actions:", err)
		os.Exit(1)
	}
}
