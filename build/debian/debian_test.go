package debian

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
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
	folder := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		name = filepath.Join(folder, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	missing, other, own := filepath.Join(folder, "missing.list"), put("other", "trixie"), put("own", suite)
	sources, list, text := put("given.sources", ""), put("given.list", ""), put("given.txt", "")
	for _, row := range []struct {
		given     string
		own       []string
		want, err string
	}{
		{"", []string{missing, other, own}, own, ""},
		{"", []string{missing, other}, "", "no archive of bookworm in " + missing + " or " + other},
		{"", []string{other}, "", "SOURCES=FILE"},
		{sources, []string{own}, sources, ""},
		{list, nil, list, ""},
		{missing, []string{own}, "", "SOURCES: stat " + missing},
		{text, []string{own}, "", "SOURCES=" + text + ": apt reads no such file"},
	} {
		have, err := sourcesOf(row.given, row.own)
		if have != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("given %q, own %q: %q, %v, want %q", row.given, row.own, have, err, row.want)
		}
	}
}

// TestDownload downloads packages with apt from archives on this machine. Nothing of another archive, and of packages
// that are not named any more, is unpacked.
func TestDownload(t *testing.T) {
	folder := t.TempDir()
	archive := func(version string, names ...string) (sources string) {
		t.Helper()
		to, index := t.TempDir(), ""
		for _, name := range names {
			build := filepath.Join(t.TempDir(), name)
			control := "Package: " + name + "\nVersion: " + version +
				"\nArchitecture: arm64\nMaintainer: x <x@example.org>\nDescription: x\n"
			for file, text := range map[string]string{"DEBIAN/control": control, "usr/bin/" + name: "x"} {
				file = filepath.Join(build, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(to, name+".deb")
			if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "--build", build, file).
				CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			index += control + fmt.Sprintf("Filename: ./%s.deb\nSize: %d\nSHA256: %x\n\n", name, len(data), sha256.Sum256(data))
		}
		for file, text := range map[string]string{"Packages": index,
			"test-" + version + ".list": "deb [trusted=yes] copy:" + to + " ./\n"} {
			if err := os.WriteFile(filepath.Join(to, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Join(to, "test-"+version+".list")
	}
	newer, older := archive("2", "x", "y"), archive("1", "x", "y")
	for _, row := range []struct {
		sources string
		names   []string
		want    string
	}{
		{newer, []string{"x", "y"}, "x 2, y 2"},
		{newer, []string{"y"}, "y 2"},
		{older, []string{"x"}, "x 1"},
	} {
		r, err := Download(t.Context(), folder, "arm64", row.sources, row.names...)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, p := range r.Packages {
			have = append(have, p.Name+" "+p.Version)
		}
		if diff := cmp.Diff(row.want, strings.Join(have, ", ")); diff != "" {
			t.Errorf("%s: -want +have:\n%s", row.names, diff)
		}
	}
}
