package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/tombolo-net/tombolo/build/imagetar"
)

// TestExtract takes the files of the arm64 images of a release, and names what a release lacks.
func TestExtract(t *testing.T) {
	if err := extract(filepath.Join(t.TempDir(), "none"), t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "`make release` makes them") {
		t.Errorf("without a release: %v", err)
	}
	for _, row := range []struct {
		architectures []string
		want          string
	}{
		{[]string{"amd64", "arm64"}, ""},
		{[]string{"amd64"}, "image tombolo-agent is not for arm64: make the release with ARCHITECTURES that have it"},
	} {
		var index v1.ImageIndex = empty.Index
		for _, architecture := range row.architectures {
			program := filepath.Join(t.TempDir(), architecture)
			if err := os.WriteFile(program, []byte(architecture), 0o755); err != nil {
				t.Fatal(err)
			}
			img, err := imagetar.Build(imagetar.Image{Architecture: architecture, OCI: true,
				Layers: [][]imagetar.File{{{Path: "/program", Source: program}}}})
			if err != nil {
				t.Fatal(err)
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
		}
		from, to := t.TempDir(), t.TempDir()
		images, err := layout.Write(from, empty.Index)
		if err == nil {
			err = images.AppendIndex(index, layout.WithAnnotations(map[string]string{
				"org.opencontainers.image.ref.name": "tombolo-agent:v1.2.3"}))
		}
		if err != nil {
			t.Fatal(err)
		}
		err = extract(from, to)
		if row.want != "" {
			if err == nil || err.Error() != row.want {
				t.Errorf("%v: %v, want %s", row.architectures, err, row.want)
			}
			continue
		}
		if have, read := os.ReadFile(filepath.Join(to, "tombolo-agent", "program")); err != nil || string(have) != "arm64" {
			t.Errorf("%v: %v, %v, %q", row.architectures, err, read, have)
		}
	}
}
