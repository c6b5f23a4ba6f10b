package diagnose

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// Count returns the number of results with a status.
func Count(results []Result, status string) (n int) {
	for _, r := range results {
		if r.Status == status {
			n++
		}
	}
	return n
}

// Print writes results for people. It joins the passed results of one check into one line, and likewise the skipped
// ones.
func Print(w io.Writer, results []Result) {
	results = slices.Clone(results)
	for i := range results {
		r := &results[i]
		r.Cluster, r.Object, r.Detail, r.Remedy = clean(r.Cluster), clean(r.Object), clean(r.Detail), clean(r.Remedy)
		r.Evidence = slices.Clone(r.Evidence)
		for j, line := range r.Evidence {
			r.Evidence[j] = clean(line)
		}
	}
	for i := 0; i < len(results); {
		j := i
		for j < len(results) && results[j].Code == results[i].Code {
			j++
		}
		printCheck(w, results[i:j])
		i = j
	}
}

// most is the number of results of one check that are written for people.
const most = 20

// printCheck writes the results of one check.
func printCheck(w io.Writer, results []Result) {
	for _, status := range []string{Pass, Skip} {
		var parts []string
		for _, r := range results {
			if r.Status == status && len(r.Evidence) == 0 {
				parts = append(parts, strings.TrimSuffix(strings.TrimSpace(r.Cluster+" ("+r.Detail+")"), " ()"))
			}
		}
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "()" })
		if n := slices.ContainsFunc(results, func(r Result) bool { return r.Status == status && len(r.Evidence) == 0 }); n {
			fmt.Fprintf(w, "%-7s  %s  %s%s\n", status, results[0].Code, results[0].Check, after(": ", strings.Join(parts, ", ")))
		}
	}
	printed, more := 0, 0
	for _, r := range results {
		if r.Status != Fail && r.Status != Unknown && len(r.Evidence) == 0 {
			continue
		}
		if printed++; printed > most {
			more++
			continue
		}
		where := strings.Join(slices.DeleteFunc([]string{r.Cluster, r.Object}, func(s string) bool { return s == "" }), ": ")
		fmt.Fprintf(w, "%-7s  %s  %s%s%s\n", r.Status, r.Code, r.Check, after(": ", where), after(": ", r.Detail))
		for _, line := range r.Evidence {
			fmt.Fprintf(w, "                - %s\n", line)
		}
		if r.Remedy != "" {
			fmt.Fprintf(w, "                remedy: %s\n", r.Remedy)
		}
	}
	if more > 0 {
		fmt.Fprintf(w, "         %s  %s: %d more results, which -o json has\n", results[0].Code, results[0].Check, more)
	}
}

// clean replaces characters that change the terminal or break the line. Texts come from objects, of other clusters too.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// after returns a text with a prefix; nothing for an empty text.
func after(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
