package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// Format is how an answer is printed. The zero value is a table.
type Format struct {
	name      string // table, wide, json, yaml, name or jsonpath
	path      *jsonpath.JSONPath
	noHeaders bool
}

// Names of formats.
const (
	formatTable    = "table"
	formatWide     = "wide"
	formatJSON     = "json"
	formatYAML     = "yaml"
	formatName     = "name"
	formatJSONPath = "jsonpath"
)

const formats = "table, wide, json, yaml, name or jsonpath=TEMPLATE"

// String is for pflag.
func (f *Format) String() string { return Or(f.name, formatTable) }

// Type is for pflag.
func (f *Format) Type() string { return "format" }

// Set is for pflag.
func (f *Format) Set(s string) error {
	name, template, _ := strings.Cut(s, "=")
	switch {
	case s == "text": // the name of table where an answer is no table
		name = formatTable
	case name == formatJSONPath && template != "":
		if !strings.Contains(template, "{") { // kubectl takes .items as well
			template = "{." + strings.TrimPrefix(template, ".") + "}"
		}
		f.path = jsonpath.New("output").AllowMissingKeys(true)
		if err := f.path.Parse(template); err != nil {
			return fmt.Errorf("%w; a template is such as jsonpath={.items[*].metadata.name}", err)
		}
	case name == formatJSONPath:
		return errors.New("jsonpath needs a template, such as jsonpath={.items[*].metadata.name}")
	case name != s, !slices.Contains([]string{formatTable, formatWide, formatJSON, formatYAML, formatName}, name):
		return errors.New("want " + formats)
	}
	f.name = name
	return nil
}

// Flag adds -o and --no-headers to a command that prints tables.
func (f *Format) Flag(cmd *cobra.Command) {
	f.TextFlag(cmd)
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "print tables without the heading")
}

// TextFlag adds -o to a command that prints text without headings.
func (f *Format) TextFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", formats)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formatTable, formatWide, formatJSON,
		formatYAML, formatName, formatJSONPath + "="}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// YAML returns the format of commands that print no table by default.
func YAML() Format { return Format{name: formatYAML} }

// Wide reports whether a table has all columns.
func (f Format) Wide() bool { return f.name == formatWide }

// Table reports whether the answer is for people: a table, or text.
func (f Format) Table() bool { return f.name == "" || f.name == formatTable || f.name == formatWide }

// Rows writes a table, with or without its heading as the flags are.
func (f Format) Rows(w io.Writer, t Rows) error { return f.heading(t).Write(w, "  ") }

// Narrow writes a table with one blank between columns, as antctl's documents have it.
func (f Format) Narrow(w io.Writer, t Rows) error { return f.heading(t).Write(w, " ") }

// Padded writes a table in the form of antctl's documents, with a blank between columns and with trailing blanks.
func (f Format) Padded(w io.Writer, t Rows) error { return f.heading(t).writePadded(w, " ") }

// heading returns the table with or without its heading as the flags are.
func (f Format) heading(t Rows) Rows {
	if f.noHeaders && len(t) > 0 {
		return t[1:]
	}
	return t
}

// Print writes v as the format is. For a table and for text it calls table.
func (f Format) Print(w io.Writer, v any, table func() error) error {
	if f.Table() {
		return table()
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	switch f.name {
	case formatJSON:
		err = json.Indent(&b, text, "", "  ")
	case formatYAML:
		text, err = yaml.JSONToYAML(text)
		b.Write(text)
	default:
		var generic any
		if err := utiljson.Unmarshal(text, &generic); err != nil { // integers stay integers
			return err
		}
		if f.name == formatName {
			err = writeNames(&b, generic)
		} else {
			err = f.path.Execute(&b, generic)
		}
	}
	if err != nil {
		return fmt.Errorf("--output %s: %w", f.name, err)
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\n")) && (b.Len() > 0 || f.name == formatJSONPath) {
		b.WriteByte('\n')
	}
	_, err = w.Write(b.Bytes())
	return err
}

// APIVersion is the apiVersion of answers in JSON and YAML that are not objects of an API server.
const APIVersion = "cli.tombolo.net/v1"

// Object returns v with an apiVersion and a kind, for JSON and YAML. If v is a list, it becomes the object's items.
func Object(kind string, v any) any { return object{kind, v} }

type object struct {
	kind string
	v    any
}

// MarshalJSON puts apiVersion and kind before the other keys.
func (o object) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(o.v)
	if err != nil {
		return nil, err
	}
	head := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q`, APIVersion, o.kind)
	switch {
	case string(text) == "{}":
		return append(head, '}'), nil
	case text[0] == '{':
		return append(append(head, ','), text[1:]...), nil
	case string(text) == "null":
		text = []byte("[]")
	}
	return append(append(append(head, `,"items":`...), text...), '}'), nil
}

// writeNames writes the names of an answer's items, one a line. If the answer is one object, it writes that object's
// name.
func writeNames(b *bytes.Buffer, answer any) error {
	list, is := answer.([]any)
	whole, _ := answer.(map[string]any)
	if items, has := whole["items"].([]any); has {
		list, is = items, true
	}
	if !is && nameOf(whole) != "" {
		list, is = []any{whole}, true
	}
	if !is {
		for _, key := range slices.Sorted(maps.Keys(whole)) {
			items, isList := whole[key].([]any)
			if isList && (len(items) == 0 || nameOf(items[0]) != "") {
				list, is = items, true
				break
			}
		}
	}
	for _, item := range list {
		name := nameOf(item)
		if is = is && name != ""; !is {
			break
		}
		b.WriteString(name + "\n")
	}
	if !is {
		return errors.New("this answer has no names: want table, wide, json, yaml or jsonpath=TEMPLATE")
	}
	return nil
}

// nameOf returns the name of an item. For an object that is kind.group/name, as kubectl prints it. For other items it
// is the field that identifies them.
func nameOf(item any) string {
	m, _ := item.(map[string]any)
	text := func(key string) string {
		s, _ := m[key].(string)
		return s
	}
	kind := strings.ToLower(text("kind"))
	if meta, is := m["metadata"].(map[string]any); is && meta["name"] != nil {
		name, _ := meta["name"].(string)
		if group, _, grouped := strings.Cut(text("apiVersion"), "/"); grouped {
			kind += "." + group
		}
		return strings.TrimPrefix(kind+"/"+name, "/")
	}
	parts := []string{text("namespace"), text("name")}
	switch {
	case m["apiVersion"] != nil && parts[1] == "":
		return "" // the answer as a whole
	case parts[1] == "":
		parts = []string{text("cluster"), text("node")}
	case m["apiVersion"] == nil:
		parts = append([]string{kind}, parts...)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "/")
}

// Marks of empty cells of tables: usually, and where antctl's documents have another.
const (
	Empty           = "-"
	DocumentedEmpty = "<NONE>"
)

// HideShorthands removes the one-letter forms of flags from the help. Commands still accept them, and print a note.
func HideShorthands(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		flags.Lookup(name).ShorthandDeprecated = "use --" + name
	}
}

// Rows is a table. The first row is the heading.
type Rows [][]string

// Fill puts a mark into each empty cell below the heading.
func (r Rows) Fill(mark string) {
	for i := 1; i < len(r); i++ {
		for j := range r[i] {
			r[i][j] = Or(r[i][j], mark)
		}
	}
}

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

// writePadded is Write with the trailing blanks, which documented tables have.
func (r Rows) writePadded(w io.Writer, gap string) error {
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
