package diagnose

import (
	"fmt"
	"strings"
)

// heading begins the part of docs/diagnose.md that is made from the table of checks.
const heading = "## Codes\n"

// Document returns the entries of docs/diagnose.md, one for each code.
func Document() string {
	var b strings.Builder
	b.WriteString(heading)
	for _, c := range checks {
		fmt.Fprintf(&b, "\n### %s\n\n", c.Code)
		b.WriteString(wrap(fmt.Sprintf("**%s** (%s). %s *Remedy*: %s", c.Name, c.Severity, c.Cause, c.Remedy)))
	}
	return b.String()
}

// wrap breaks a paragraph into lines of at most 120 columns.
func wrap(text string) string {
	const columns = 120
	var b strings.Builder
	line := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case line+1+len(word) > columns:
			b.WriteByte('\n')
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String() + "\n"
}
