package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// TestReasons finds reasons in each form of code.
func TestReasons(t *testing.T) {
	dir := t.TempDir()
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
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := parsePackage(dir, "p")
	if err != nil {
		t.Fatal(err)
	}
	have := slices.Sorted(maps.Keys(reasonsOf(p)))
	if want := []string{"ByAssignment", "ByClosure", "ByField", "ByList", "ByRow", "One"}; !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}
