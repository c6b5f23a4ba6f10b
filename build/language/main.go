// Command language checks the columns and words of Go and Markdown files. Lines have at most 120 columns. Comments,
// declared names and documents avoid the listed words (build/words). A page has at most 300 lines unless it is
// generated. Its links lead to files and headings that exist, and so do the names of pages in Go and YAML files.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	ok, err := run(".", os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "language:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run checks the files of a Git repository. It returns false when it has printed faults.
func run(root string, out io.Writer) (bool, error) {
	paths, err := files(root)
	if err != nil {
		return false, err
	}
	good := true
	documents := &pages{root: root, anchors: map[string]map[string]bool{}}
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path))
		if errors.Is(err, os.ErrNotExist) { // deleted, and not committed yet
			continue
		}
		if err != nil {
			return false, err
		}
		faults, err := documents.check(path, text)
		if err == nil && !isYAML(path) {
			var more []fault
			more, err = check(path, text)
			faults = append(faults, more...)
		}
		if err != nil {
			return false, err
		}
		for _, f := range faults {
			good = false
			fmt.Fprintf(out, "%s:%d: %s\n", path, f.line, f.text)
		}
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
