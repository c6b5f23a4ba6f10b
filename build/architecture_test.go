package build

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestArchitecture compares the picture of packages in docs/architecture.md with the code: every name is a package, and
// every arrow an import. Package names may lack their first elements.
func TestArchitecture(t *testing.T) {
	const module = "github.com/tombolo-net/tombolo/pkg/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "../pkg/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(strings.ReplaceAll(line, module, ""))
		imports[words[0]] = words[1:]
	}
	packages := func(name string) (found []string) {
		for path := range imports {
			if path == name || strings.HasSuffix(path, "/"+name) {
				found = append(found, path)
			}
			if parent, all := strings.CutSuffix(name, "/*"); all && strings.HasPrefix(path, parent+"/") {
				found = append(found, path)
			}
		}
		return found
	}
	text, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Packages, and who may import whom\n")
	_, picture, _ := strings.Cut(section, "\n```\n")
	picture, _, _ = strings.Cut(picture, "\n```\n")
	arrows := 0
	for line := range strings.Lines(picture) {
		line, _, is := strings.Cut(line, "   ") // the rest is a remark
		if !is {
			continue
		}
		var imported []string
		for part := range strings.SplitSeq(line, " ◄─ ") {
			names := strings.Split(strings.TrimSpace(part), ", ")
			for _, name := range names {
				from := packages(name)
				if len(from) == 0 {
					t.Errorf("%q: there is no package %s", line, name)
				}
				for _, to := range imported {
					arrows++
					if !slices.ContainsFunc(from, func(path string) bool {
						return slices.ContainsFunc(packages(to), func(p string) bool { return slices.Contains(imports[path], p) })
					}) {
						t.Errorf("%q: %s does not import %s", line, name, to)
					}
				}
			}
			imported = names
		}
	}
	if arrows < 30 {
		t.Errorf("the picture has %d arrows: it was not found", arrows)
	}
}

// TestFolders: docs/architecture.md names each folder below build, deploy and cmd/PROGRAM.
func TestFolders(t *testing.T) {
	text, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "-C", "..", "ls-files", "build/*/*", "deploy/*/*", "cmd/*/*/*").Output()
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for file := range strings.Lines(string(out)) {
		parts := strings.Split(file, "/")
		n := 2
		if parts[0] == "cmd" {
			n = 3
		}
		folders[strings.Join(parts[:n], "/")] = true
	}
	delete(folders, "build/testdata")
	for folder := range folders {
		if !strings.Contains(string(text), "`"+folder+"`") {
			t.Errorf("docs/architecture.md does not name %s", folder)
		}
	}
	if len(folders) < 20 {
		t.Errorf("there are %d folders", len(folders))
	}
}
