package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is how an answer is printed: table, wide, json or yaml. A table that has no further columns is the same wide.
type Format string

func (f *Format) String() string { return string(*f) }
func (f *Format) Type() string   { return "format" }

func (f *Format) Set(s string) error {
	switch s {
	case "table", "wide", "json", "yaml":
		*f = Format(s)
		return nil
	}
	return fmt.Errorf("want table, wide, json or yaml")
}

// Flag adds -o to a command.
func (f *Format) Flag(cmd *cobra.Command) {
	*f = "table"
	cmd.Flags().VarP(f, "output", "o", "table, wide, json or yaml")
}

// Print writes v as JSON or YAML, or calls table.
func (f Format) Print(w io.Writer, v any, table func() error) error {
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

// Rows is a table. The first row is the heading.
type Rows [][]string

// Add adds a row.
func (r *Rows) Add(cells ...string) { *r = append(*r, cells) }

// Write pads every column to its widest cell, with gap between columns. It cuts trailing blanks.
func (r Rows) Write(w io.Writer, gap string) error {
	var b strings.Builder
	for _, line := range r.lines(gap) {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WritePadded is Write with the trailing blanks, which documented tables have.
func (r Rows) WritePadded(w io.Writer, gap string) error {
	var b strings.Builder
	for _, line := range r.lines(gap) {
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lines pads every column to its widest cell.
func (r Rows) lines(gap string) []string {
	var width []int
	for _, row := range r {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var lines []string
	for _, row := range r {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString(gap)
			}
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)))
		}
		lines = append(lines, line.String())
	}
	return lines
}

// Or returns a stand-in for an empty cell.
func Or(s, empty string) string {
	if s == "" {
		return empty
	}
	return s
}
