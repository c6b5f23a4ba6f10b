package main

import (
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	registry "github.com/tombolo-net/tombolo/pkg/reasons"
)

const root = "../.."

// least are numbers of rows that each page has at least.
var least = map[string]int{"README": 9, "charts": 100, "agent": 100, "controller": 20, "kinds": 500, "annotations": 50,
	"reasons": 180, "metrics": 50, "ports": 12, "commands": 100}

// TestReference compares each page with the text that the generator makes, and refuses entries without descriptions.
func TestReference(t *testing.T) {
	pages, err := generate(root)
	if err != nil {
		t.Error(err)
	}
	made := map[string]bool{}
	for _, p := range pages {
		if rows := strings.Count(p.String(), "\n| "); rows < least[p.name] {
			t.Errorf("%s has %d rows, want %d: the declarations are not found", p.path(), rows, least[p.name])
		}
		path := filepath.Join(root, p.path())
		made[filepath.Base(path)] = true
		have, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if string(have) != p.String() {
			t.Errorf("%s is not the page that the code makes: run `go run ./build/reference`", p.path())
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, pagesDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !made[e.Name()] {
			t.Errorf("%s/%s is not made by the generator: remove it", pagesDir, e.Name())
		}
	}
}

// TestReasonRows compares the rows of reasons with the code: no package declares rows that the page lacks, each row is
// used, and no reason is a text.
func TestReasonRows(t *testing.T) {
	all, err := packages(root)
	if err != nil {
		t.Fatal(err)
	}
	known, used, declared := map[string]bool{}, map[string]bool{}, 0
	for _, r := range registry.Rows() {
		known[r.Name] = true
	}
	for _, p := range all {
		for name := range uses(p) {
			used[p.dir+"."+name] = true
			if ast.IsExported(name) {
				used[name] = true
			}
		}
	}
	for _, p := range all {
		for _, d := range declarations(p) {
			declared++
			switch {
			case d.file != reasonsFile || d.ident == "":
				t.Errorf("%s/%s: a reason is declared outside of the variables of %s", p.dir, d.file, reasonsFile)
			case !used[p.dir+"."+d.ident] && !used[d.ident]:
				t.Errorf("%s: %s is not used: remove its row", p.dir, d.ident)
			}
		}
		for name := range reasonsOf(p) {
			switch {
			case strings.HasPrefix(p.dir, "pkg/apis/") || strings.HasPrefix(p.dir, "pkg/cli/"): // values of the API
			case p.dir != "pkg/diagnose": // it compares reasons of statuses
				t.Errorf("%s: reason %s is a text: declare it in %s", p.dir, name, reasonsFile)
			case !known[name]:
				t.Errorf("%s: no row has the reason %s", p.dir, name)
			}
		}
	}
	if n := len(registry.Rows()); n != declared {
		t.Errorf("the page has %d reasons, the code declares %d: import the other packages in reasons.go", n, declared)
	}
	for i, r := range registry.Rows() {
		if i > 0 && r.Name == registry.Rows()[i-1].Name && r.Objects == registry.Rows()[i-1].Objects {
			t.Errorf("two rows have reason %s of %s", r.Name, r.Objects)
		}
	}
}

// TestReasons finds reasons in each form of code.
func TestReasons(t *testing.T) {
	const text = `package p

const reasonOne = "One"

const other = "Other"

func f(l list) {
	report := func(field, reason, message string) {}
	report("spec", "ByClosure", "it is")
	l.Add("object", "spec", "ByList", "it is")
	_ = problem{Reason: "ByField", Kind: "NoReason"}
	c.Status, c.Reason = "NoStatus", "ByAssignment"
	for _, row := range []struct{ name, reason string }{{"NoName", "ByRow"}} {
		report("spec", row.reason, "it is")
	}
	_ = problem{Reason: "no reason but text"}
}
`
	p := parseText(t, text)
	have := slices.Sorted(maps.Keys(reasonsOf(p)))
	if want := []string{"ByAssignment", "ByClosure", "ByField", "ByList", "ByRow", "One"}; !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}

// parseText parses a package of one file.
func parseText(t *testing.T, text string) *goPackage {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := parsePackage(dir, "p")
	if err != nil {
		t.Fatal(err)
	}
	return p
}
