package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/build/debian"
	"github.com/tombolo-net/tombolo/build/recipe"
	"github.com/tombolo-net/tombolo/deploy/charts"
)

const (
	registry  = "registry.example/net"
	downloads = "https://downloads.example/tombolo"
)

// platforms returns the platforms of the command line that the Makefile has.
func platforms(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\nPLATFORMS ?= ")
	list, _, _ = strings.Cut(list, "\n")
	return strings.Fields(list)
}

// inputs returns what a small release is made of: one small program under all names, and packages of small files.
func inputs(t *testing.T, folder string) Inputs {
	t.Helper()
	program := filepath.Join(folder, "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./build/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, data []byte) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := Inputs{
		Version: "v1.2.3", Registry: registry + "/", Time: time.Unix(1_700_000_000, 0), Out: filepath.Join(folder, "out"),
		Programs: filepath.Join(folder, "programs"), Debian: map[string]debian.Root{},
		Platforms: platforms(t), Downloads: downloads + "/",
	}
	for _, platform := range in.Platforms {
		name := "tombolo"
		if strings.HasPrefix(platform, "windows-") {
			name = "tombolo.exe"
		}
		put(filepath.Join("programs", platform, name), data)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		for _, name := range recipe.Programs {
			put(filepath.Join("programs", "linux-"+architecture, name), append(data, architecture+name...))
		}
		p := debian.Package{Name: "all", Version: "1:2-3", Architecture: architecture, Source: "source"}
		for _, name := range recipe.Files() {
			put(filepath.Join(architecture, name), []byte("#!/bin/sh\n# "+architecture+" "+name+"\n"))
			p.Files = append(p.Files, name)
		}
		slices.Sort(p.Files)
		in.Debian[architecture] = debian.Root{Dir: filepath.Join(folder, architecture), Packages: []debian.Package{p}}
	}
	return in
}

// sums returns the checksums of all files of a folder.
func sums(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(folder, name))
		all[name] = fmt.Sprintf("%x", sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRelease makes a small release twice: all files are the same. Its checksums are right, and OpenSSH takes their
// signature.
func TestRelease(t *testing.T) {
	t.Chdir("../..")
	folder := t.TempDir()
	in := inputs(t, folder)
	key := filepath.Join(folder, "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var err error
	if in.Key, err = signer(key); err != nil {
		t.Fatal(err)
	}
	if err := Make(in); err != nil {
		t.Fatal(err)
	}
	made := sums(t, in.Out)
	again := in
	again.Out = filepath.Join(folder, "again")
	if err := Make(again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, sums(t, again.Out)); diff != "" {
		t.Errorf("the second time other files were made:\n%s", diff)
	}

	list, err := os.ReadFile(filepath.Join(in.Out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		listed[name] = sum
	}
	want := maps.Clone(made)
	delete(want, "SHA256SUMS")
	delete(want, "SHA256SUMS.sig")
	if diff := cmp.Diff(want, listed); diff != "" || len(listed) < 30 {
		t.Errorf("%d files are listed; -files +list:\n%s", len(listed), diff)
	}
	signers := filepath.Join(folder, "signers")
	if err := os.WriteFile(signers, []byte(public(in.Key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	verify := func(data []byte) error {
		c := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "tombolo", "-n", "file",
			"-s", filepath.Join(in.Out, "SHA256SUMS.sig"))
		c.Stdin = bytes.NewReader(data)
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if err := verify(list); err != nil {
		t.Error(err)
	}
	if verify(append(list, 'x')) == nil {
		t.Error("another file has the same signature")
	}
	checkImages(t, in)
	checkCharts(t, in)
	checkCommands(t, in)
	for _, name := range []string{"sbom/tombolo-ovs-linux-arm64.spdx.json", "sbom/tombolo-agent-linux-amd64.spdx.json"} {
		text, err := os.ReadFile(filepath.Join(in.Out, name))
		if err != nil {
			t.Fatal(err)
		}
		architecture := strings.TrimSuffix(name[strings.LastIndex(name, "-")+1:], ".spdx.json")
		if !strings.Contains(string(text), "pkg:deb/debian/all@1%3A2-3?arch="+architecture) ||
			strings.Contains(name, "agent") != strings.Contains(string(text),
				"pkg:golang/github.com/tombolo-net/tombolo@v1.2.3") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// checkImages checks that each image is there for both architectures, and that the manifests name it by its digest.
func checkImages(t *testing.T, in Inputs) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(in.Out, "images"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil || len(list.Manifests) != len(recipe.Published) {
		t.Fatalf("%v, %d images, want %d", err, len(list.Manifests), len(recipe.Published))
	}
	agent, err := os.ReadFile(filepath.Join(in.Out, "manifests/agent/tombolo.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list.Manifests {
		name, version, _ := strings.Cut(d.Annotations["org.opencontainers.image.ref.name"], ":")
		if !slices.Contains(recipe.Published, name) || version != in.Version {
			t.Errorf("image %s:%s", name, version)
		}
		line := "image: " + registry + "/" + name + "@" + d.Digest.String() + "\n"
		if !strings.Contains(string(agent), line) {
			t.Errorf("the manifest lacks %q", line)
		}
		inner, err := index.ImageIndex(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		images, err := inner.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var architectures []string
		for _, m := range images.Manifests {
			architectures = append(architectures, m.Platform.Architecture)
			img, err := inner.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			checkImage(t, img, m.Platform.Architecture)
		}
		if diff := cmp.Diff([]string{"amd64", "arm64"}, architectures); diff != "" {
			t.Errorf("%s: -want +have:\n%s", name, diff)
		}
	}
}

// checkImage checks that the image of an architecture has nothing of another one.
func checkImage(t *testing.T, img v1.Image, architecture string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil || config.Architecture != architecture || config.OS != "linux" {
		t.Errorf("%v: %s/%s, want %s", err, config.OS, config.Architecture, architecture)
	}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[architecture]
	layers, err := img.Layers()
	if err != nil || len(layers) == 0 {
		t.Fatalf("%v, %d layers", err, len(layers))
	}
	for _, l := range layers {
		text, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(text)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("# "+other)) || bytes.Contains(data, []byte(other+"tombolo")) {
			t.Errorf("an image for %s has files of %s", architecture, other)
		}
	}
}

// checkCharts renders the packages of charts, with the values that name images by digest.
func checkCharts(t *testing.T, in Inputs) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(in.Out, "charts/images.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{charts.Agent, charts.Multicluster} {
		archive, err := os.Open(filepath.Join(in.Out, "charts", name+"-1.2.3.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		to := t.TempDir()
		files := extract(t, archive)
		for path, data := range files {
			path = filepath.Join(to, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, row := range []struct {
			values []byte
			want   string
		}{{nil, "image: " + registry + "/tombolo-controller:v1.2.3\n"},
			{text, "image: " + registry + "/tombolo-controller@sha256:"}} {
			values := map[string]any{}
			if err := yaml.Unmarshal(row.values, &values); err != nil {
				t.Fatal(err)
			}
			rendered, err := charts.Render(to, name, "kube-system", values)
			if err != nil {
				t.Fatal(err)
			}
			if m := charts.Manifest(rendered, func(string) bool { return true }); !strings.Contains(m, row.want) ||
				strings.Contains(m, ":dev") {
				t.Errorf("%s with %s: %q is not in it", name, row.values, row.want)
			}
		}
	}
}

// checkCommands checks the archives of the command line, and the plugin's manifest.
func checkCommands(t *testing.T, in Inputs) {
	t.Helper()
	made := sums(t, in.Out)
	archive, err := os.Open(filepath.Join(in.Out, "cli/tombolo-v1.2.3-darwin-arm64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	names := slices.Sorted(maps.Keys(extract(t, archive)))
	windows, err := zip.OpenReader(filepath.Join(in.Out, "cli/tombolo-v1.2.3-windows-amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer windows.Close()
	for _, f := range windows.File {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff([]string{"LICENSE", "tombolo", "LICENSE", "tombolo.exe"}, names); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	checkPlugin(t, in, made)
}

// checkPlugin checks that the plugin's manifest is as krew wants it, and names the archives of all platforms.
func checkPlugin(t *testing.T, in Inputs, made map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(in.Out, "krew/tombolo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type platform struct {
		Selector    metav1.LabelSelector `json:"selector"`
		URI, SHA256 string
		Bin         string `json:"bin"`
	}
	var have struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			Version, Homepage, ShortDescription, Description, Caveats string
			Platforms                                                 []platform `json:"platforms"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(text, &have); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if have.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || have.Kind != "Plugin" ||
		have.Metadata.Name != "tombolo" || have.Spec.Version != in.Version || have.Spec.ShortDescription == "" ||
		strings.Contains(have.Spec.ShortDescription, "\n") || strings.Contains(string(text), "{{") {
		t.Errorf("the plugin's manifest is\n%s", text)
	}
	var want []platform
	for _, name := range in.Platforms {
		system, architecture, _ := strings.Cut(name, "-")
		p := platform{Bin: "tombolo", URI: "tombolo-v1.2.3-" + name + ".tar.gz",
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"os": system, "arch": architecture}}}
		if system == "windows" {
			p.Bin, p.URI = "tombolo.exe", "tombolo-v1.2.3-"+name+".zip"
		}
		p.URI, p.SHA256 = downloads+"/"+p.URI, made["cli/"+p.URI]
		want = append(want, p)
	}
	if diff := cmp.Diff(want, have.Spec.Platforms); diff != "" || len(want) < 6 {
		t.Errorf("-want +have:\n%s", diff)
	}
}

// TestPartial: a release without some platforms, or without a URL of its archives, has no plugin manifest.
func TestPartial(t *testing.T) {
	t.Chdir("../..")
	all := map[string]string{}
	for _, platform := range platforms(t) {
		all[platform] = "sum"
	}
	for _, row := range []struct {
		name string
		in   Inputs
		sums map[string]string
		want bool
	}{
		{"complete", Inputs{Downloads: downloads}, all, true},
		{"some platforms", Inputs{Downloads: downloads}, map[string]string{"linux-amd64": "a", "darwin-arm64": "b"}, false},
		{"no URL", Inputs{}, all, false},
	} {
		r := &release{Inputs: row.in, work: t.TempDir(), sums: row.sums}
		if err := r.krew(); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if _, err := os.Stat(filepath.Join(r.work, "krew", "tombolo.yaml")); (err == nil) != row.want {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// extract returns the files of a compressed archive.
func extract(t *testing.T, archive io.Reader) map[string][]byte {
	t.Helper()
	plain, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFaults names what a release lacks. The folder of an earlier release stays.
func TestFaults(t *testing.T) {
	t.Chdir("../..")
	folder := t.TempDir()
	good := inputs(t, folder)
	if err := os.MkdirAll(good.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		change func(*Inputs)
		want   string
	}{
		{"version", func(in *Inputs) { in.Version = "1.2.3" }, `VERSION "1.2.3": want a version such as v1.2.3`},
		{"registry", func(in *Inputs) { in.Registry = "" }, "REGISTRY is empty"},
		{"program", func(in *Inputs) { in.Programs = folder }, "image tombolo-agent: amd64: "},
		{"platform", func(in *Inputs) { in.Platforms = []string{"plan9-amd64"} }, "the command line for plan9-amd64"},
		{"URL", func(in *Inputs) { in.Downloads = "downloads.example" }, `DOWNLOADS "downloads.example": want the URL`},
		{"package", func(in *Inputs) {
			in.Debian = map[string]debian.Root{"arm64": {Dir: filepath.Join(folder, "nothing")}}
		}, "image tombolo-agent: arm64: a Debian package is missing"},
		{"unknown file", func(in *Inputs) {
			in.Debian = map[string]debian.Root{"arm64": {Dir: in.Debian["arm64"].Dir}}
		}, "is of no Debian package"},
	} {
		in := good
		row.change(&in)
		if err := Make(in); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
		if _, err := os.Stat(good.Out); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
	}
	for name, args := range map[string][]string{
		"want ssh-ed25519":        {"-t", "ecdsa", "-N", ""},
		"has a passphrase":        {"-t", "ed25519", "-N", "secret"},
		"no such file":            nil,
		"`ssh-keygen -t ed25519`": nil,
	} {
		key := filepath.Join(t.TempDir(), "key")
		switch {
		case args != nil:
			args = append([]string{"-q", "-f", key}, args...)
			if out, err := exec.CommandContext(t.Context(), "ssh-keygen", args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		case name != "no such file":
			if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := signer(key); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
}
