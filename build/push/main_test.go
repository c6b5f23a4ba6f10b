package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/tombolo-net/tombolo/build/imagetar"
	"github.com/tombolo-net/tombolo/build/recipe"
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
	for _, image := range recipe.Published {
		if err := imagetar.Write(filepath.Join(from, image+".tar"), imagetar.Image{
			Reference: "tombolo/" + image + ":dev", Layers: [][]imagetar.File{{{Path: "/" + image, Source: program}}},
			Entrypoint: []string{"/" + image},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time all is there
		out, err := push(to, "v1")
		if err != nil || strings.Count(out, to+"/") != len(recipe.Published) {
			t.Fatalf("%v; said:\n%s", err, out)
		}
	}
	for _, image := range recipe.Published {
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

// TestPushRelease publishes an image of two architectures and a chart, as a release has them.
func TestPushRelease(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to, folder := strings.TrimPrefix(server.URL, "http://")+"/net/tombolo", t.TempDir()
	if err := pushRelease(t.Context(), io.Discard, folder, to, true); err == nil ||
		!strings.Contains(err.Error(), "make it with `make release`") {
		t.Errorf("without a release: %v", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range []string{"amd64", "arm64"} {
		img, err := imagetar.Build(imagetar.Image{Layers: [][]imagetar.File{{{Path: "/" + architecture}}},
			Architecture: architecture, OCI: true})
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	images, err := layout.Write(filepath.Join(folder, "images"), empty.Index)
	if err == nil {
		err = images.AppendIndex(index, layout.WithAnnotations(map[string]string{
			refName: "tombolo-agent:v1.2.3", containerdName: to + "/tombolo-agent:v1.2.3"}))
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.Load("../../deploy/charts/tombolo-multicluster")
	if err != nil {
		t.Fatal(err)
	}
	c.Metadata.Version = "1.2.3+build"
	file, err := chartutil.Save(c, filepath.Join(folder, "charts"))
	if err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, other := range []string{to + "/other", strings.TrimSuffix(to, "/tombolo"), "registry.example/net"} {
		err := pushRelease(t.Context(), &out, folder, other, true)
		if err == nil || !strings.Contains(err.Error(), "REGISTRY "+other+": release "+folder+" was made for "+to+",") {
			t.Errorf("to another registry: %v", err)
		}
	}
	for range 2 { // the second time all is there
		out.Reset()
		if err := pushRelease(t.Context(), &out, folder, to, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{to + "/tombolo-agent:v1.2.3@sha256:",
		to + "/charts/tombolo-multicluster:1.2.3_build@sha256:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	ref, err := name.ParseReference(to+"/tombolo-agent:v1.2.3", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: architecture}))
		if err != nil {
			t.Fatal(err)
		}
		if config, err := img.ConfigFile(); err != nil || config.Architecture != architecture {
			t.Errorf("%v: %+v, want %s", err, config, architecture)
		}
	}
	ref, err = name.ParseReference(to+"/charts/tombolo-multicluster:1.2.3_build", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	chart, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := chart.Manifest()
	if err != nil || manifest.Config.MediaType != chartConfig || len(manifest.Layers) != 1 ||
		manifest.Layers[0].MediaType != chartContent {
		t.Fatalf("%v: %+v", err, manifest)
	}
	layers, err := chart.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	if have, err := io.ReadAll(content); err != nil || !bytes.Equal(have, saved) {
		t.Errorf("%v: the registry has another chart", err)
	}
	config, err := chart.RawConfigFile()
	if err != nil || !strings.Contains(string(config), `"name":"tombolo-multicluster"`) {
		t.Errorf("%v: the configuration is %s", err, config)
	}
}
