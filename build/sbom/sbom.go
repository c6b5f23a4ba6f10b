// Package sbom lists the parts of programs and images as SPDX documents (version 2.3, JSON): Debian packages, and the
// Go modules in the build information of programs. The same contents give the same bytes.
package sbom

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/build/debian"
)

// Document is the list of one image or program.
type Document struct {
	Name    string // such as tombolo-agent-linux-arm64
	Version string
	Created time.Time

	parts map[string]part // by their package URLs
}

// part is a package of SPDX.
type part struct {
	ID        string      `json:"SPDXID"`
	Name      string      `json:"name"`
	Version   string      `json:"versionInfo,omitempty"`
	Location  string      `json:"downloadLocation"`
	Analyzed  bool        `json:"filesAnalyzed"`
	Concluded string      `json:"licenseConcluded"`
	Declared  string      `json:"licenseDeclared"`
	Copyright string      `json:"copyrightText"`
	Source    string      `json:"sourceInfo,omitempty"`
	Purpose   string      `json:"primaryPackagePurpose,omitempty"`
	Refs      []reference `json:"externalRefs,omitempty"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relation struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const unknown = "NOASSERTION"

// add adds a package, by its package URL.
func (d *Document) add(name, version, purl, source string) {
	if d.parts == nil {
		d.parts = map[string]part{}
	}
	id := fmt.Sprintf("SPDXRef-%x", sha256.Sum256([]byte(purl)))[:40]
	d.parts[purl] = part{
		ID: id, Name: name, Version: version, Location: unknown, Concluded: unknown, Declared: unknown, Copyright: unknown,
		Source: source, Refs: []reference{{"PACKAGE-MANAGER", "purl", purl}},
	}
}

// Debian adds a package of Debian.
func (d *Document) Debian(p debian.Package) {
	purl := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=%s", p.Name, url.QueryEscape(p.Version), p.Architecture,
		debian.Distribution)
	source := ""
	if p.Source != "" {
		source = "source package " + p.Source
	}
	d.add(p.Name, p.Version, purl, source)
}

// Program adds the modules that a program is compiled of.
func (d *Document) Program(file string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w", file, err)
	}
	golang := func(path, version string) {
		d.add(path, version, fmt.Sprintf("pkg:golang/%s@%s", path, url.PathEscape(version)), "")
	}
	golang("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	golang(info.Main.Path, d.Version)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		golang(m.Path, m.Version)
	}
	return nil
}

// JSON returns the document.
func (d *Document) JSON() ([]byte, error) {
	const whole = "SPDXRef-Whole"
	parts := []part{{ID: whole, Name: d.Name, Version: d.Version, Location: unknown, Concluded: unknown,
		Declared: "Apache-2.0", Copyright: unknown, Purpose: "APPLICATION"}}
	relations := []relation{{"SPDXRef-DOCUMENT", "DESCRIBES", whole}}
	for _, purl := range slices.Sorted(maps.Keys(d.parts)) {
		parts = append(parts, d.parts[purl])
		relations = append(relations, relation{whole, "CONTAINS", d.parts[purl].ID})
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return nil, err
	}
	text, err = json.MarshalIndent(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": d.Name,
		"documentNamespace": fmt.Sprintf("https://github.com/tombolo-net/tombolo/sbom/%s-%s-%x", d.Name, d.Version,
			sha256.Sum256(text)),
		"creationInfo": map[string]any{
			"created": d.Created.UTC().Format(time.RFC3339), "creators": []string{"Tool: tombolo-build-release"},
		},
		"packages": parts, "relationships": relations,
	}, "", "  ")
	return append(text, '\n'), err
}
