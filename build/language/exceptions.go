package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// count is how many lines of a file have faults.
type count struct{ columns, words int }

func (c count) of(k kind) int {
	if k == columns {
		return c.columns
	}
	return c.words
}

func (c count) with(k kind, n int) count {
	if k == columns {
		c.columns = n
	} else {
		c.words = n
	}
	return c
}

// readExceptions reads the list. A missing file allows nothing.
func readExceptions(path string) (map[string]count, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	out := map[string]count{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if strings.HasPrefix(line, "#") {
			continue
		}
		var c count
		var file string
		if _, err := fmt.Sscanf(line, "%d %d %s", &c.columns, &c.words, &file); err != nil {
			return nil, fmt.Errorf("%s, line %d: %q: want the number of long lines, the number of lines with words, and a path",
				path, number, strings.TrimSpace(line))
		}
		out[file] = c
	}
	return out, nil
}

// lowered returns the exceptions that files still need. No number is higher than before, and no file is added.
func lowered(allowed, have map[string]count) map[string]count {
	out := map[string]count{}
	for path, most := range allowed {
		now := have[path]
		c := count{min(most.columns, now.columns), min(most.words, now.words)}
		if c != (count{}) {
			out[path] = c
		}
	}
	return out
}

func writeExceptions(path string, list map[string]count) error {
	var b strings.Builder
	b.WriteString("# Lines that are longer than 120 columns, lines with words of the list (build/words), file.\n")
	b.WriteString("# The numbers only fall: go run ./build/language -shrink\n")
	for _, file := range slices.Sorted(maps.Keys(list)) {
		fmt.Fprintf(&b, "%d %d %s\n", list[file].columns, list[file].words, file)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
