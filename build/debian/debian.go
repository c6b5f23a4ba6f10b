// Package debian reads files of Debian packages: the packages of this machine, or packages of any architecture that apt
// downloads to a folder. It runs no program of a package.
package debian

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Root is a tree of installed or unpacked packages.
type Root struct {
	Dir      string
	Packages []Package // unknown for this machine
}

// Package is a package that was unpacked.
type Package struct {
	Name         string   `json:"name"`
	Version      string   `json:"version"`
	Architecture string   `json:"architecture"`
	Source       string   `json:"source"` // the source package
	Files        []string `json:"files"`  // paths in the Root, without symbolic links to directories
}

// Host is the tree of this machine.
func Host() Root { return Root{Dir: "/"} }

// Open returns the tree that Download wrote to a folder.
func Open(folder string) (Root, error) {
	text, err := os.ReadFile(filepath.Join(folder, index))
	if err != nil {
		return Root{}, fmt.Errorf("packages of Debian: %w; `make release` downloads them", err)
	}
	r := Root{Dir: filepath.Join(folder, tree)}
	if err := json.Unmarshal(text, &r.Packages); err != nil {
		return Root{}, fmt.Errorf("%s: %w", filepath.Join(folder, index), err)
	}
	return r, nil
}

// Resolve returns the file on this machine for a path in the tree, without symbolic links.
func (r Root) Resolve(name string) (string, error) {
	file, err := securejoin.SecureJoin(r.Dir, name)
	if err == nil {
		_, err = os.Stat(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no Debian package in %s has %s: %w", r.Dir, name, err)
	}
	return file, err
}

// Of returns the package that has a file, or nil. The path is one that Resolve returned.
func (r Root) Of(file string) *Package {
	name, err := filepath.Rel(r.Dir, file)
	if err != nil {
		return nil
	}
	for i, p := range r.Packages {
		if _, found := slices.BinarySearch(p.Files, "/"+name); found {
			return &r.Packages[i]
		}
	}
	return nil
}

// folders are the directories of shared libraries, by the machine of a program.
var folders = map[elf.Machine][]string{
	elf.EM_X86_64:  {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib"},
	elf.EM_AARCH64: {"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib"},
}

// Libraries returns the files that the dynamic linker loads for a program of the tree: its own file, and the shared
// libraries. The keys are their paths in the tree, the values the files on this machine. There are
// no files for scripts and static programs.
func (r Root) Libraries(program string) (map[string]string, error) {
	found := map[string]string{}
	if err := r.libraries(program, found); err != nil {
		return nil, fmt.Errorf("libraries of %s: %w", program, err)
	}
	return found, nil
}

func (r Root) libraries(name string, found map[string]string) error {
	file, err := r.Resolve(name)
	if err != nil {
		return err
	}
	f, err := elf.Open(file)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) {
			return nil // a script
		}
		return err
	}
	defer func() { _ = f.Close() }()
	linker, err := interpreter(f)
	if err != nil {
		return err
	}
	if linker != "" {
		if found[linker], err = r.Resolve(linker); err != nil {
			return err
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	search, err := runPaths(f, name)
	if err != nil {
		return err
	}
	search = append(search, folders[f.Machine]...)
	for _, library := range libraries {
		if hasName(found, library) { // as the dynamic linker, which libraries name too
			continue
		}
		i := slices.IndexFunc(search, func(dir string) bool {
			_, err := r.Resolve(path.Join(dir, library))
			return err == nil
		})
		if i < 0 {
			return fmt.Errorf("%s needs %s, which is not in %s", name, library, strings.Join(search, ", "))
		}
		at := path.Join(search[i], library)
		if found[at], err = r.Resolve(at); err != nil {
			return err
		}
		if err := r.libraries(at, found); err != nil {
			return err
		}
	}
	return nil
}

// hasName reports whether a file of this name was found.
func hasName(found map[string]string, name string) bool {
	for at := range found {
		if path.Base(at) == name {
			return true
		}
	}
	return false
}

// interpreter returns the path of a program's dynamic linker.
func interpreter(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil {
			return "", err
		}
		return strings.TrimRight(string(text), "\x00"), nil
	}
	return "", nil
}

// runPaths returns the directories that a program at a path names for its libraries.
func runPaths(f *elf.File, name string) ([]string, error) {
	var all []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		lists, err := f.DynString(tag)
		if err != nil {
			return nil, err
		}
		for _, list := range lists {
			for dir := range strings.SplitSeq(list, ":") {
				all = append(all, path.Clean(strings.ReplaceAll(dir, "$ORIGIN", path.Dir(name))))
			}
		}
	}
	return all, nil
}
