package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// format is how an answer is printed: table, json or yaml.
type format string

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }

func (f *format) Set(s string) error {
	switch s {
	case "table", "json", "yaml":
		*f = format(s)
		return nil
	}
	return fmt.Errorf("want table, json or yaml")
}

// flag adds -o to a command.
func (f *format) flag(cmd *cobra.Command) {
	*f = "table"
	cmd.Flags().VarP(f, "output", "o", "table, json or yaml")
}

// print writes v as JSON or YAML, or calls table.
func (f format) print(w io.Writer, v any, table func() error) error {
	switch f {
	case "json":
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, string(b))
		return err
	case "yaml":
		b, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	return table()
}

// rows is a table: the first is the heading.
type rows [][]string

func (r *rows) add(cells ...string) { *r = append(*r, cells) }

// write pads every column to its widest cell, with gap between columns. Trailing blanks
// are cut unless keep is set.
func (r rows) write(w io.Writer, gap string, keep bool) error {
	var width []int
	for _, row := range r {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range r {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString(gap)
			}
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)))
		}
		if keep {
			b.WriteString(line.String())
		} else {
			b.WriteString(strings.TrimRight(line.String(), " "))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// or returns a stand-in for an empty cell.
func or(s, empty string) string {
	if s == "" {
		return empty
	}
	return s
}
