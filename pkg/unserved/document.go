package unserved

import (
	"fmt"
	"strings"
)

// The comments around the list in the document.
const (
	begin = "<!-- `make generate` writes the following from pkg/unserved -->\n"
	end   = "<!-- end of what pkg/unserved writes -->\n"
)

// Document returns a Markdown document with the list between its two comments.
func Document(text string) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", fmt.Errorf("it lacks the line %q", begin)
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("it lacks the line %q", end)
	}
	return before + begin + Markdown() + end + after, nil
}

// Markdown returns the list as a table.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| asked for | what happens | reported |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.Asked, r.Happens, r.Where())
	}
	return b.String()
}
