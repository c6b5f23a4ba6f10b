// Package seeds has users' documents about multi-cluster set-up, as they are on the web, and
// finds the manifests in them: tests apply these unedited.
package seeds

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

var (
	//go:embed v15.md
	v15 string
	//go:embed userguide.md
	userGuide string
	//go:embed tanzuhispano.md
	tanzuhispano string
)

// Document is a text with manifests in it.
type Document struct {
	Name   string
	blocks []string
}

// V15 is the installation guide of v1.5: ClusterClaims and ClusterSet v1alpha1.
func V15() (Document, error) { return parse("v15.md", v15) }

// UserGuide is the user guide of v1.14: ClusterSet v1alpha2.
func UserGuide() (Document, error) { return parse("userguide.md", userGuide) }

// Tanzuhispano is a walk-through in Spanish with three clusters: ClusterClaims v1alpha2,
// ClusterSet v1alpha1, manifests as here-documents.
func Tanzuhispano() (Document, error) { return parse("tanzuhispano.md", tanzuhispano) }

// start is where a manifest begins, behind any indentation of a list item.
var start = regexp.MustCompile(`^(\s*)(apiVersion|kind): \S`)

// parse finds the manifests by their content, not by their fences: some of those are broken. A
// manifest begins with apiVersion or kind and ends at a fence, at a here-document's end, or
// at a line that is indented less.
func parse(name, text string) (Document, error) {
	d := Document{Name: name}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		m := start.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		indent := m[1]
		var block []string
		for ; i < len(lines); i++ {
			line := strings.TrimRight(lines[i], " \r")
			rest, ok := strings.CutPrefix(line, indent)
			if line == "" {
				rest, ok = "", true
			}
			if !ok || rest == "EOF" || strings.HasPrefix(rest, "```") || strings.HasPrefix(rest, "´´´") {
				break
			}
			block = append(block, rest)
		}
		manifest := strings.TrimSpace(strings.Join(block, "\n")) + "\n"
		if strings.Contains(manifest, "apiVersion:") && strings.Contains(manifest, "kind:") {
			d.blocks = append(d.blocks, manifest)
		}
	}
	if len(d.blocks) == 0 {
		return d, fmt.Errorf("%s: no manifest found", name)
	}
	return d, nil
}

// Manifests returns all manifests, each as it stands in one block of the document: it may hold
// several objects.
func (d Document) Manifests() []string { return d.blocks }

// Manifest returns the first manifest that contains all the given texts.
func (d Document) Manifest(contains ...string) (string, error) {
	for _, b := range d.blocks {
		all := true
		for _, c := range contains {
			all = all && strings.Contains(b, c)
		}
		if all {
			return b, nil
		}
	}
	return "", fmt.Errorf("%s: no manifest contains all of %q", d.Name, contains)
}
