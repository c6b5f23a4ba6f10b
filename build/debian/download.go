package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	suite = "bookworm"
	index = "packages.json" // below the folder of Download: what was unpacked
	tree  = "root"          // and where
)

// Distribution names the release of Debian that packages are of.
const Distribution = "debian-12"

// merged are the directories that are symbolic links below /usr.
var merged = []string{"bin", "sbin", "lib", "lib64"}

// ownSources are the files in which a machine with Debian 12 names the archives of its packages.
var ownSources = []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"}

// Sources returns a file that names archives of packages: the given one, the value of SOURCES, or else this machine's
// own. apt reads only files with the extensions .list and .sources.
func Sources(file string) (string, error) { return sourcesOf(file, ownSources) }

func sourcesOf(file string, own []string) (string, error) {
	if file != "" {
		if _, err := os.Stat(file); err != nil {
			return "", fmt.Errorf("SOURCES: %w", err)
		}
		if end := filepath.Ext(file); end != ".list" && end != ".sources" {
			return "", fmt.Errorf("SOURCES=%s: apt reads no such file: rename it to end with .sources, or with .list if each "+
				"line names an archive", file)
		}
		return file, nil
	}
	for _, name := range own {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), suite) {
			return name, nil
		}
	}
	return "", fmt.Errorf("no archive of %s in %s: give a file that names one, as apt's sources: SOURCES=FILE", suite,
		strings.Join(own, " or "))
}

// Download downloads packages of an architecture, with all that they depend on, and unpacks them into a folder. apt
// keeps its state in the folder too, so this machine's packages stay as they are. It removes earlier downloads. It runs
// no script of a package. The file sources names archives (see Sources).
func Download(ctx context.Context, folder, architecture, sources string, names ...string) (Root, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return Root{}, err
	}
	if err := os.RemoveAll(filepath.Join(folder, "apt")); err != nil {
		return Root{}, err
	}
	for _, dir := range []string{"apt/lists/partial", "apt/archives/partial", "apt/etc", "apt/sources"} {
		if err := os.MkdirAll(filepath.Join(folder, dir), 0o755); err != nil {
			return Root{}, err
		}
	}
	list, err := os.ReadFile(sources)
	if err != nil {
		return Root{}, err
	}
	at := func(name string) string { return filepath.Join(folder, "apt", name) }
	for name, text := range map[string]string{
		"status":                            "",
		"sources/" + filepath.Base(sources): string(list),
		"apt.conf": fmt.Sprintf(`APT::Architecture "%[1]s";
APT::Architectures { "%[1]s"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::Etc::Parts "%[2]s/etc";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "%[2]s/sources";
Dir::State "%[2]s";
Dir::State::status "%[2]s/status";
Dir::State::Lists "%[2]s/lists";
Dir::Cache "%[2]s";
Dir::Cache::Archives "%[2]s/archives";
`, architecture, at("")),
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o644); err != nil {
			return Root{}, err
		}
	}
	apt := func(args ...string) ([]byte, error) {
		return run(ctx, []string{"APT_CONFIG=" + at("apt.conf"), "DEBIAN_FRONTEND=noninteractive"}, "apt-get", args...)
	}
	if _, err := apt("update", "-qq"); err != nil {
		return Root{}, err
	}
	if _, err := apt(append([]string{"install", "-y", "-qq", "--download-only"}, names...)...); err != nil {
		return Root{}, err
	}
	return unpack(ctx, folder)
}

// unpack unpacks the archives that apt has downloaded.
func unpack(ctx context.Context, folder string) (Root, error) {
	r := Root{Dir: filepath.Join(folder, tree)}
	if err := os.RemoveAll(r.Dir); err != nil {
		return Root{}, err
	}
	for _, dir := range merged {
		if err := os.MkdirAll(filepath.Join(r.Dir, "usr", dir), 0o755); err != nil {
			return Root{}, err
		}
		if err := os.Symlink("usr/"+dir, filepath.Join(r.Dir, dir)); err != nil {
			return Root{}, err
		}
	}
	archives, err := filepath.Glob(filepath.Join(folder, "apt", "archives", "*.deb"))
	if err != nil {
		return Root{}, err
	}
	if len(archives) == 0 {
		return Root{}, errors.New("apt has downloaded no packages")
	}
	to, err := os.OpenRoot(r.Dir)
	if err != nil {
		return Root{}, err
	}
	defer func() { _ = to.Close() }()
	for _, archive := range archives {
		p, err := unpackOne(ctx, archive, to)
		if err != nil {
			return Root{}, err
		}
		if len(p.Files) > 0 {
			r.Packages = append(r.Packages, p)
		}
	}
	slices.SortFunc(r.Packages, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(r.Packages, "", " ")
	if err != nil {
		return Root{}, err
	}
	return r, os.WriteFile(filepath.Join(folder, index), text, 0o644)
}

// unpackOne unpacks an archive into a tree. It leaves out packages of architecture "all", which have neither programs
// nor libraries.
func unpackOne(ctx context.Context, archive string, to *os.Root) (Package, error) {
	fields, err := run(ctx, nil, "dpkg-deb", "--show", "--showformat",
		"${Package}\n${Version}\n${Architecture}\n${source:Package}\n", archive)
	if err != nil {
		return Package{}, err
	}
	lines := strings.Split(string(fields), "\n")
	if len(lines) < 4 {
		return Package{}, fmt.Errorf("%s: dpkg-deb shows %q", archive, fields)
	}
	p := Package{Name: lines[0], Version: lines[1], Architecture: lines[2], Source: lines[3]}
	if p.Architecture == "all" {
		return p, nil
	}
	data, err := run(ctx, nil, "dpkg-deb", "--fsys-tarfile", archive)
	if err != nil {
		return Package{}, err
	}
	for files := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(p.Files)
			return p, nil
		}
		if err == nil {
			err = write(to, h, files)
		}
		if err != nil {
			return Package{}, fmt.Errorf("%s: %w", archive, err)
		}
		if h.Typeflag != tar.TypeDir {
			p.Files = append(p.Files, unmerged(path.Clean("/"+h.Name)))
		}
	}
}

// write writes one file of an archive into a tree.
func write(to *os.Root, h *tar.Header, from io.Reader) error {
	name := path.Clean(h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		return to.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return to.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return to.Link(path.Clean(h.Linkname), name)
	case tar.TypeReg:
		f, err := to.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, from)
		return errors.Join(err, f.Close())
	}
	return nil
}

// unmerged returns the path below /usr of a file in one of the merged directories.
func unmerged(name string) string {
	first, _, _ := strings.Cut(name[1:], "/")
	if slices.Contains(merged, first) {
		return "/usr" + name
	}
	return name
}

// run runs a command and returns its output. Its error has what the command wrote to stderr.
func run(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	c.Env, c.Stderr = append(os.Environ(), env...), &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}
