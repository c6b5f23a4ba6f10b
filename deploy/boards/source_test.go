package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	whole  = regexp.MustCompile(`"(tombolo_[a-z_]+)"`)
	prefix = regexp.MustCompile(`"(tombolo_[a-z]+_)"\+name`)
	part   = regexp.MustCompile(`describe\("([a-z_]+)"`)
)

// declared returns the names of the metrics that the programs declare.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(root+"pkg", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range whole.FindAllSubmatch(text, -1) {
			out[string(m[1])] = true
		}
		for _, p := range prefix.FindAllSubmatch(text, -1) {
			for _, m := range part.FindAllSubmatch(text, -1) {
				out[string(p[1])+string(m[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d metrics were found: the expressions are not those of the source", len(out))
	}
	return out
}
