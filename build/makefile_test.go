package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMakefile compares the targets that the Makefile declares phony with its rules. make has nothing to do for a phony
// target without a rule, and succeeds: a tier of the tests would be lost without a word.
func TestMakefile(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(text), "\n.PHONY: ")
	list, _, _ = strings.Cut(list, "\n")
	if !found || len(strings.Fields(list)) < 20 {
		t.Fatalf("phony targets of the Makefile: %q", list)
	}
	for _, target := range strings.Fields(list) {
		rule := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:.*\n\t.`)
		if !rule.Match(text) {
			t.Errorf("the phony target %s has no recipe", target)
		}
	}
}

// TestMinors: each further minor version of Kubernetes for the lab has one version of all its modules, and others are
// refused by name.
func TestMinors(t *testing.T) {
	files, err := filepath.Glob("../test/lab/kubernetes/go-1.*.mod")
	if err != nil || len(files) < 1 {
		t.Fatalf("files %v, %v, want further minor versions", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		minor := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "go-1."), ".mod")
		version := regexp.MustCompile(`\n\tk8s\.io/kubernetes v1\.(` + minor + `\.\d+)\n`).FindSubmatch(text)
		if version == nil {
			t.Errorf("%s requires no k8s.io/kubernetes v1.%s", file, minor)
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^\t(\S+) => \S+ v0\.(\S+)$`).FindAllSubmatch(text, -1) {
			if string(m[2]) != string(version[1]) {
				t.Errorf("%s replaces %s by v0.%s, and Kubernetes is v1.%s", file, m[1], m[2], version[1])
			}
		}
		if _, err := os.Stat(strings.TrimSuffix(file, ".mod") + ".sum"); err != nil {
			t.Error(err)
		}
	}
	refused := exec.CommandContext(t.Context(), "../build/lab-binaries", t.TempDir(), t.TempDir())
	refused.Env = append(os.Environ(), "KUBERNETES=1.2")
	out, err := refused.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "KUBERNETES=1.2: there is no test/lab/kubernetes/go-1.2.mod") {
		t.Errorf("a version that the lab lacks: %v\n%s", err, out)
	}
}

// TestMakeRelease: a release is made of a commit alone, with a version of a release, and checked if it is there. Errors
// come before programs are compiled.
func TestMakeRelease(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "Makefile"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for words, want := range map[string]string{
		"release":                "VERSION or REGISTRY is empty",
		"release VERSION=v1.2.3": "VERSION or REGISTRY is empty",
		"release VERSION=v1.2.3-test REGISTRY=registry.example": "VERSION v1.2.3-test: want a version such as v1.2.3 or " +
			"v1.2.3-rc.1",
		"release VERSION=1.2.3 REGISTRY=registry.example": "VERSION 1.2.3: want a version",
		"release-check":                "VERSION is empty: make release-check VERSION=v1.2.3",
		"release-check VERSION=v1.2.3": "bin/release has no release v1.2.3",
		"release VERSION=v1.2.3 REGISTRY=registry.example": "a release is made of a commit: commit or remove these " +
			"changes\n?? Makefile\n",
	} {
		make := exec.CommandContext(t.Context(), "make", append([]string{"-C", folder}, strings.Fields(words)...)...)
		make.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { // of a make that runs this test
			return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "GIT_")
		})
		if out, err := make.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("make %s: %v\n%s\nwant %q", words, err, out, want)
		}
	}
}
