// Command language checks the columns and words of Go and Markdown files. Lines have at most 120 columns. Comments,
// declared names and documents avoid the listed words (build/words). A page has at most 300 lines unless it is
// generated. Its links lead to files and headings that exist, and so do the names of pages in Go and YAML files.
//
// Files that are older than the check have exceptions: build/language/exceptions has the number of long lines and the
// number of lines with such words that each of them may have. The numbers only fall: -shrink lowers them to what the
// files have.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// list is the file of exceptions. Each line has the number of long lines, the number of lines with words, and a path.
const list = "build/language/exceptions"

func main() {
	shrink := flag.Bool("shrink", false, "lower the numbers in "+list+" to what the files have")
	flag.Parse()
	ok, err := run(".", *shrink, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "language:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run checks the files of a Git repository. It returns false when a file has more faults than its exceptions allow.
func run(root string, shrink bool, out io.Writer) (bool, error) {
	allowed, err := readExceptions(filepath.Join(root, list))
	if err != nil {
		return false, err
	}
	paths, err := files(root)
	if err != nil {
		return false, err
	}
	good := true
	have := map[string]count{}
	documents := &pages{root: root, anchors: map[string]map[string]bool{}}
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path))
		if errors.Is(err, os.ErrNotExist) { // deleted, and not committed yet
			continue
		}
		if err != nil {
			return false, err
		}
		broken, err := documents.check(path, text)
		if err != nil {
			return false, err
		}
		for _, f := range broken {
			good = false
			fmt.Fprintf(out, "%s:%d: %s\n", path, f.line, f.text)
		}
		if isYAML(path) {
			continue
		}
		faults, err := check(path, text)
		if err != nil {
			return false, err
		}
		for _, kind := range []kind{columns, wording} {
			found := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return f.kind != kind })
			have[path] = have[path].with(kind, len(found))
			if most := allowed[path].of(kind); len(found) > most {
				good = false
				for _, f := range newest(root, path, found)[:len(found)-most] {
					fmt.Fprintf(out, "%s:%d: %s\n", path, f.line, f.text)
				}
			}
		}
	}
	lower := lowered(allowed, have)
	switch {
	case shrink:
		return good, writeExceptions(filepath.Join(root, list), lower)
	case !maps.Equal(lower, allowed):
		fmt.Fprintf(out, "files need fewer exceptions than %s has: run `go run ./build/language -shrink`\n", list)
	}
	return good, nil
}

// files lists the Go, Markdown and YAML files of a repository, also files that are not committed yet.
func files(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.go", "*.md", "*.yml",
		"*.yaml")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files: %w", err)
	}
	all := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(path string) bool {
		return path == "" || strings.Contains(path, "/testdata/")
	}), nil
}

func isYAML(path string) bool {
	return strings.HasSuffix(path, ".yml") || strings.HasSuffix(path, ".yaml")
}

// newest orders faults by the time of their lines, the newest first, so that the lines of the last change are printed.
// Faults of a file that Git does not have keep their order.
func newest(root, path string, faults []fault) []fault {
	cmd := exec.Command("git", "blame", "--line-porcelain", "--", path)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return faults
	}
	var times []int
	uncommitted := false
	for line := range bytes.Lines(out) {
		if text, is := bytes.CutPrefix(line, []byte("author-time ")); is {
			n, _ := strconv.Atoi(string(bytes.TrimSpace(text)))
			if uncommitted {
				n = math.MaxInt
			}
			times = append(times, n)
		} else if len(line) > 40 && line[40] == ' ' { // the commit of the next line
			uncommitted = len(bytes.Trim(line[:40], "0")) == 0
		}
	}
	at := func(f fault) int {
		if f.line > len(times) {
			return 0
		}
		return times[f.line-1]
	}
	sorted := slices.Clone(faults)
	slices.SortStableFunc(sorted, func(a, b fault) int { return cmp.Compare(at(b), at(a)) })
	return sorted
}
