package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestTag makes the images of another version from other programs: only the named ones, under their tag, with one layer
// that differs.
func TestTag(t *testing.T) {
	out := t.TempDir()
	for _, version := range []string{"dev", "next"} {
		for _, program := range []string{"tombolo-agent", "tombolo", "tombolo-cni", "tombolo-controller"} {
			if err := os.MkdirAll(filepath.Join(out, version), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(out, version, program), []byte(program+" "+version), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		folder := filepath.Join(out, version)
		if err := run(version, []string{folder, folder, "tombolo-agent", "tombolo-controller"}); err != nil {
			t.Fatal(err)
		}
	}
	layers := func(version, image string) []string {
		tag, err := name.NewTag("tombolo/" + image + ":" + version)
		if err != nil {
			t.Fatal(err)
		}
		img, err := tarball.ImageFromPath(filepath.Join(out, version, image+".tar"), &tag)
		if err != nil {
			t.Fatal(err)
		}
		all, err := img.Layers()
		if err != nil {
			t.Fatal(err)
		}
		var digests []string
		for _, l := range all {
			digest, err := l.Digest()
			if err != nil {
				t.Fatal(err)
			}
			digests = append(digests, digest.String())
		}
		return digests
	}
	for image, shared := range map[string]int{"tombolo-agent": 1, "tombolo-controller": 0} {
		dev, next := layers("dev", image), layers("next", image)
		if len(dev) != shared+1 || len(next) != shared+1 {
			t.Fatalf("%s has %d and %d layers, want %d", image, len(dev), len(next), shared+1)
		}
		for i := range dev {
			if (dev[i] == next[i]) != (i < shared) {
				t.Errorf("%s, layer %d: %s and %s, want equal ones: %t", image, i, dev[i], next[i], i < shared)
			}
		}
	}
	if tars, err := filepath.Glob(filepath.Join(out, "next", "*.tar")); err != nil || len(tars) != 2 {
		t.Errorf("%v: %q, want two images", err, tars)
	}
}
