package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxLines is the most lines of a page that is not generated.
const maxLines = 300

var (
	// linked is the address of a link in Markdown, in the text or below it.
	linked = regexp.MustCompile(`(?:\]\(|^\[[^\]]+\]: )([^)\s]+)`)
	// named matches a page that a text names from the top of the repository, as messages and comments do.
	named = regexp.MustCompile(`(?:^|[^/\w.-])(docs/[\w/-]+\.md(?:#[\w-]*)?)`)
	// heading is the text of a heading.
	heading = regexp.MustCompile(`^#+ (.*)`)
	// unlinked matches a link in a heading, to keep only its text. unsigned matches the characters that an anchor lacks.
	unlinked = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	unsigned = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// pages checks documents and the places that name them.
type pages struct {
	root    string
	anchors map[string]map[string]bool // of the pages that were read
}

// check returns the links of a file that lead nowhere, and a fault if a page has too many lines. NEWS.md may have more:
// it grows with each change. Go tests are not checked: some name pages that do not exist.
func (p *pages) check(path string, text []byte) (faults []fault, err error) {
	if strings.HasSuffix(path, "_test.go") {
		return nil, nil
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	page := strings.HasSuffix(path, ".md")
	if page && path != "NEWS.md" && !generated.Match(text) && len(lines) > maxLines {
		faults = append(faults, fault{line: maxLines + 1,
			text: fmt.Sprintf("%d lines, at most %d: split the page", len(lines), maxLines)})
	}
	inCode := false
	for i, line := range lines {
		var targets []string
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			targets = append(targets, "/"+m[1])
		}
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
		}
		if page && !inCode {
			for _, m := range linked.FindAllStringSubmatch(line, -1) {
				targets = append(targets, m[1])
			}
		}
		for _, target := range targets {
			bad, err := p.broken(path, target)
			if err != nil {
				return nil, err
			}
			if bad != "" {
				faults = append(faults, fault{i + 1, bad})
			}
		}
	}
	return faults, nil
}

// broken returns the reason why a link of a file leads nowhere, or nothing.
func (p *pages) broken(from, target string) (string, error) {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return "", nil
	}
	path, anchor, hasAnchor := strings.Cut(target, "#")
	switch {
	case path == "":
		path = from
	case strings.HasPrefix(path, "/"):
		path = path[1:]
	default:
		path = filepath.Join(filepath.Dir(from), path)
	}
	if _, err := os.Stat(filepath.Join(p.root, path)); errors.Is(err, os.ErrNotExist) {
		return "there is no " + path, nil
	} else if err != nil {
		return "", err
	}
	if !hasAnchor || !strings.HasSuffix(path, ".md") {
		return "", nil
	}
	if p.anchors[path] == nil {
		text, err := os.ReadFile(filepath.Join(p.root, path))
		if err != nil {
			return "", err
		}
		p.anchors[path] = anchorsOf(string(text))
	}
	if !p.anchors[path][anchor] {
		return fmt.Sprintf("%s has no heading #%s", path, anchor), nil
	}
	return "", nil
}

// anchorsOf returns the anchors of a page's headings. A second heading of the same text has a number.
func anchorsOf(text string) map[string]bool {
	out := map[string]bool{}
	inCode := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inCode = !inCode
		}
		m := heading.FindStringSubmatch(line)
		if m == nil || inCode {
			continue
		}
		base := unsigned.ReplaceAllString(strings.ToLower(unlinked.ReplaceAllString(m[1], "$1")), "")
		base = strings.ReplaceAll(base, " ", "-")
		anchor := base
		for n := 1; out[anchor]; n++ {
			anchor = fmt.Sprintf("%s-%d", base, n)
		}
		out[anchor] = true
	}
	return out
}
