package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/tombolo-net/tombolo/build/imagetar"
)

// TestPush publishes images to a registry on this machine and reads them from there.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/net/tombolo"
	from := t.TempDir()
	program := filepath.Join(from, "program")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	push := func(registry, tag string) (string, error) {
		var out strings.Builder
		err := push(t.Context(), &out, from, registry, tag, true)
		return out.String(), err
	}
	if _, err := push(to, "v1"); err == nil || !strings.Contains(err.Error(), "make it with `make images`") {
		t.Errorf("without images: %v", err)
	}
	for _, image := range images {
		if err := imagetar.Write(filepath.Join(from, image+".tar"), imagetar.Image{
			Reference: "tombolo/" + image + ":dev", Layers: [][]imagetar.File{{{Path: "/" + image, Source: program}}},
			Entrypoint: []string{"/" + image},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time all is there
		out, err := push(to, "v1")
		if err != nil || strings.Count(out, to+"/") != len(images) {
			t.Fatalf("%v; said:\n%s", err, out)
		}
	}
	for _, image := range images {
		ref, err := name.ParseReference(to+"/"+image+":v1", name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		img, err := remote.Image(ref)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil || len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/"+image {
			t.Errorf("%s: %v, %+v", ref, err, config)
		}
	}
	for _, row := range []struct{ registry, tag, want string }{
		{"", "v1", "want a registry and path: make push REGISTRY="},
		{to, "not a tag", "TAG not a tag"},
		{"registry.example/UPPER", "v1", "REGISTRY registry.example/UPPER"},
		{"127.0.0.1:1/net", "v1", "push 127.0.0.1:1/net/tombolo-agent:v1"},
	} {
		if _, err := push(row.registry, row.tag); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: have %v, want %q", row.registry, err, row.want)
		}
	}
}
