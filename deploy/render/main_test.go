package main

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/deploy/manifest"
)

// TestShipped compares every file that this program writes with the one in deploy/, in both directions.
func TestShipped(t *testing.T) {
	t.Chdir("../..")
	out := t.TempDir()
	if err := (manifest.Renderer{}).Write(out); err != nil {
		t.Fatal(err)
	}
	if err := derived(out); err != nil {
		t.Fatal(err)
	}
	rendered := readFiles(t, out, func(string) bool { return true })
	if len(rendered) < 14 {
		t.Errorf("%d files were rendered, want 14 or more: %q", len(rendered), slices.Sorted(maps.Keys(rendered)))
	}
	for _, problem := range compare(rendered, readFiles(t, "deploy", isRendered)) {
		t.Errorf("%s: run `make generate` and commit the result", problem)
	}
}

// isRendered reports whether a file at a path below deploy/ has to come from this program.
func isRendered(name string) bool {
	if name == "multicluster/coredns-clusterset.yml" { // written by hand
		return false
	}
	for _, pattern := range []string{"agent/*", "multicluster/*", "multicluster/v1.5/*", "charts/*/crds/*",
		"charts/*/values.schema.json", "charts/*/feature-gates.txt"} {
		if match, _ := path.Match(pattern, name); match {
			return true
		}
	}
	return false
}

// readFiles reads the files below a folder that a function chooses, by their paths in it.
func readFiles(t *testing.T, folder string, choose func(name string) bool) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !choose(name) {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, name))
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// compare names the fault with shipped files, in the order of their names.
func compare(rendered, shipped map[string]string) []string {
	var problems []string
	for _, name := range names(rendered, shipped) {
		want, isWanted := rendered[name]
		have, isThere := shipped[name]
		switch {
		case !isThere:
			problems = append(problems, "deploy/"+name+" is missing")
		case !isWanted:
			problems = append(problems, "deploy/"+name+" is rendered by nothing")
		case want != have:
			problems = append(problems, "deploy/"+name+" differs (-shipped +rendered):\n"+
				cmp.Diff(strings.Split(have, "\n"), strings.Split(want, "\n")))
		}
	}
	return problems
}

// names returns the names of two sets of files, each once, in order.
func names(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// TestCompare finds each kind of difference.
func TestCompare(t *testing.T) {
	rendered := map[string]string{"agent/a.yml": "1\n2\n", "agent/b.yml": "1\n"}
	for _, row := range []struct {
		name    string
		shipped map[string]string
		want    []string
	}{
		{"equal", map[string]string{"agent/a.yml": "1\n2\n", "agent/b.yml": "1\n"}, nil},
		{"missing", map[string]string{"agent/a.yml": "1\n2\n"}, []string{"deploy/agent/b.yml is missing"}},
		{"superfluous", map[string]string{"agent/a.yml": "1\n2\n", "agent/b.yml": "1\n", "agent/c.yml": ""},
			[]string{"deploy/agent/c.yml is rendered by nothing"}},
		{"different", map[string]string{"agent/a.yml": "1\n3\n", "agent/b.yml": "1\n"},
			[]string{"deploy/agent/a.yml differs"}},
	} {
		have := compare(rendered, row.shipped)
		if !slices.EqualFunc(have, row.want, strings.HasPrefix) {
			t.Errorf("%s: have %q, want %q", row.name, have, row.want)
		}
	}
}
