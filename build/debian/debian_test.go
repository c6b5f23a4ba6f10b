package debian

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLibraries finds the libraries of a program as the dynamic linker of this machine does.
func TestLibraries(t *testing.T) {
	for _, program := range []string{"/usr/sbin/nft", "/usr/lib/openvswitch-switch/ovs-vswitchd", "/bin/ls"} {
		found, err := Host().Libraries(program)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for name, file := range found {
			have = append(have, name)
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
		}
		slices.Sort(have)
		out, err := exec.CommandContext(t.Context(), "ldd", program).Output()
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, word := range strings.Fields(string(out)) {
			if strings.HasPrefix(word, "/") {
				want = append(want, word)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, have); diff != "" || len(want) < 3 {
			t.Errorf("%s: -dynamic linker +have:\n%s", program, diff)
		}
	}
	if found, err := Host().Libraries("/usr/bin/ldd"); err != nil || len(found) > 0 {
		t.Errorf("a script: %v, %v", found, err)
	}
	if _, err := Host().Libraries("/usr/bin/nothing"); err == nil ||
		!strings.Contains(err.Error(), "no Debian package in /") {
		t.Errorf("no program: %v", err)
	}
}

// TestUnpack unpacks a package with the links that Debian's have, and finds its files again.
func TestUnpack(t *testing.T) {
	folder := t.TempDir()
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "`make release` downloads them") {
		t.Errorf("without packages: %v", err)
	}
	archives := filepath.Join(folder, "apt", "archives")
	if err := os.MkdirAll(archives, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(t.Context(), folder); err == nil || !strings.Contains(err.Error(), "no packages") {
		t.Errorf("without archives: %v", err)
	}
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, h := range []tar.Header{
		{Name: "./lib/", Typeflag: tar.TypeDir},
		{Name: "./lib/libx.so.1.0", Typeflag: tar.TypeReg, Size: 1},
		{Name: "./lib/libx.so.1", Typeflag: tar.TypeSymlink, Linkname: "libx.so.1.0"},
		{Name: "./usr/bin/", Typeflag: tar.TypeDir},
		{Name: "./usr/bin/x", Typeflag: tar.TypeReg, Size: 1},
		{Name: "./usr/bin/y", Typeflag: tar.TypeLink, Linkname: "./usr/bin/x"},
		{Name: "./sbin/z", Typeflag: tar.TypeSymlink, Linkname: "/usr/bin/y"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, architecture := range map[string]string{"x": "arm64", "documents": "all"} {
		build := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Join(build, "DEBIAN"), 0o755); err != nil {
			t.Fatal(err)
		}
		control := "Package: " + name + "\nVersion: 1:2-3\nArchitecture: " + architecture +
			"\nSource: s (2)\nMaintainer: x <x@example.org>\nDescription: x\n"
		if err := os.WriteFile(filepath.Join(build, "DEBIAN", "control"), []byte(control), 0o644); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "tar", "-x", "-C", build)
		c.Stdin = bytes.NewReader(data.Bytes())
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		c = exec.CommandContext(t.Context(), "dpkg-deb", "-Znone", "--root-owner-group", "--build", build, archives)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if _, err := unpack(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	r, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{{Name: "x", Version: "1:2-3", Architecture: "arm64", Source: "s",
		Files: []string{"/usr/bin/x", "/usr/bin/y", "/usr/lib/libx.so.1", "/usr/lib/libx.so.1.0", "/usr/sbin/z"}}}
	if diff := cmp.Diff(want, r.Packages); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	for name, want := range map[string]string{"/lib/libx.so.1": "usr/lib/libx.so.1.0", "/usr/sbin/z": "usr/bin/y",
		"/sbin/z": "usr/bin/y"} {
		file, err := r.Resolve(name)
		if err != nil || file != filepath.Join(r.Dir, want) {
			t.Errorf("%s is %s, %v, want %s", name, file, err, want)
		}
		if p := r.Of(file); p == nil || p.Name != "x" {
			t.Errorf("%s is of %v", file, p)
		}
	}
	if text, err := json.Marshal(r.Of(filepath.Join(r.Dir, "usr/bin/other"))); err != nil || string(text) != "null" {
		t.Errorf("a file of no package is of %s", text)
	}
}

// TestSources: packages come from the given archives, or from this machine's.
func TestSources(t *testing.T) {
	own, err := Sources("")
	if err != nil || !slices.Contains(ownSources, own) {
		t.Errorf("archives of this machine are in %q: %v", own, err)
	}
	given := filepath.Join(t.TempDir(), "given.sources")
	if _, err := Sources(given); err == nil {
		t.Error("a file that is not there is taken")
	}
	if err := os.WriteFile(given, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if file, err := Sources(given); err != nil || file != given {
		t.Errorf("the given file becomes %q: %v", file, err)
	}
}
