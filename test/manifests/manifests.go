// Package manifests has the manifests that users' documents about multi-ClusterSet-up apply: the same kinds, names and
// values, written again. The end-to-end tests and the demo apply them.
package manifests

import (
	_ "embed"
	"fmt"
	"strings"
)

var (
	//go:embed v1.5.yaml
	v15 string
	//go:embed v1.14.yaml
	v114 string
	//go:embed three-clusters.yaml
	threeClusters string
)

// Document has the manifests of one document, in parts. A part is the text that a user applies to a cluster at once.
type Document struct {
	Name  string
	parts []part
}

type part struct{ name, text string }

// V15 is the installation guide of v1.5: ClusterClaims and ClusterSet v1alpha1.
func V15() Document { return parse("v1.5", v15) }

// V114 is the user guide of v1.14: ClusterSet v1alpha2.
func V114() Document { return parse("v1.14", v114) }

// ThreeClusters is the document of a guide with three clusters: ClusterClaims v1alpha2, ClusterSet v1alpha1.
func ThreeClusters() Document { return parse("three-clusters", threeClusters) }

// parse splits a file at the lines "# part: NAME". Text before the first such line is a comment about the file.
func parse(name, text string) Document {
	d := Document{Name: name}
	for _, chunk := range strings.Split(text, "\n---\n# part: ")[1:] {
		title, body, _ := strings.Cut(chunk, "\n")
		d.parts = append(d.parts, part{name: title, text: strings.TrimSpace(body) + "\n"})
	}
	return d
}

// Part returns a part's YAML by name: one object or several.
func (d Document) Part(name string) (string, error) {
	for _, p := range d.parts {
		if p.name == name {
			return p.text, nil
		}
	}
	return "", fmt.Errorf("manifests %s have no part %q", d.Name, name)
}
