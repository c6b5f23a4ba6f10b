package build

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPictures wants each picture of the documents to be drawn from its text as it is now, and shown by a document.
func TestPictures(t *testing.T) {
	texts, err := filepath.Glob("../docs/pictures/*.d2")
	if err != nil || len(texts) == 0 {
		t.Fatalf("found %d pictures, %v", len(texts), err)
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(text)
	}
	for _, path := range texts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".d2") + ".svg"
		picture, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(picture, fmt.Appendf(nil, "sha256 of the text: %x ", sha256.Sum256(text))) {
			t.Errorf("%s is of another text than %s: run `make generate`", name, path)
		}
		if !strings.Contains(shown.String(), "pictures/"+name+")") {
			t.Errorf("no document shows %s", name)
		}
	}
}
