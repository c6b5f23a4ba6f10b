// Command openvswitch downloads Open vSwitch of another suite of Debian, so that tests run with it. The machine's own
// packages stay as they are.
//
//	go run ./build/openvswitch [-sources FILE] SUITE FOLDER
//
// FOLDER gets a script for each program, in bin. A script starts the program with the dynamic linker and the libraries
// of its own suite. Tests take the scripts with FOLDER/bin first in PATH, and OVS_PKGDATADIR=FOLDER/share.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/build/debian"
)

// programs are these that tests start, by their paths in the packages.
var programs = []string{
	"/usr/lib/openvswitch-switch/ovs-vswitchd", "/usr/sbin/ovsdb-server", "/usr/bin/ovs-appctl", "/usr/bin/ovs-ofctl",
	"/usr/bin/ovs-vsctl", "/usr/bin/ovs-dpctl", "/usr/bin/ovsdb-client", "/usr/bin/ovsdb-tool",
}

func main() {
	sources := flag.String("sources", "", "a file that names an archive of the suite, in apt's format; by default the "+
		"machine's own archive")
	flag.Parse()
	if err := run(context.Background(), *sources, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "openvswitch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, sources string, args []string) error {
	if len(args) != 2 {
		return errors.New("give a suite of Debian, such as trixie, and a folder")
	}
	suite := args[0]
	folder, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	if sources == "" {
		if sources, err = archiveOf(suite, folder); err != nil {
			return err
		}
	}
	root, err := debian.Download(ctx, folder, runtime.GOARCH, sources, "openvswitch-switch")
	if err != nil {
		return err
	}
	if err := scripts(root, folder); err != nil {
		return err
	}
	at := slices.IndexFunc(root.Packages, func(p debian.Package) bool { return p.Name == "openvswitch-switch" })
	if at < 0 {
		return fmt.Errorf("suite %s has no package openvswitch-switch for %s", suite, runtime.GOARCH)
	}
	fmt.Println("Open vSwitch", root.Packages[at].Version, "in", folder)
	return nil
}

// archive finds the address of an archive in apt's sources.
var archive = regexp.MustCompile(`(?m)^URIs: (\S+/debian/?)$`)

// archiveOf writes a file that names the machine's archive with another suite.
func archiveOf(suite, folder string) (string, error) {
	own, err := debian.Sources("")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(own)
	if err != nil {
		return "", err
	}
	found := archive.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s names no archive: give one with -sources", own)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(folder, suite+".sources")
	return file, os.WriteFile(file, fmt.Appendf(nil, `Types: deb
URIs: %s
Suites: %s
Components: main
Check-Valid-Until: no
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`, found[1], suite), 0o644)
}

// scripts writes a script for each program, and the definitions of databases.
func scripts(root debian.Root, folder string) error {
	for _, dir := range []string{"bin", "share"} {
		if err := os.RemoveAll(filepath.Join(folder, dir)); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(folder, dir), 0o755); err != nil {
			return err
		}
	}
	for _, program := range programs {
		libraries, err := root.Libraries(program)
		if err != nil {
			return err
		}
		file, err := root.Resolve(program)
		if err != nil {
			return err
		}
		var linker string
		var dirs []string
		for at, library := range libraries {
			if strings.HasPrefix(path.Base(at), "ld-") {
				linker = library
			}
			if dir := filepath.Dir(library); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
		if linker == "" {
			return fmt.Errorf("%s has no dynamic linker", file)
		}
		slices.Sort(dirs)
		text := fmt.Sprintf("#!/bin/sh\nexec %s --library-path %s --argv0 %s %s \"$@\"\n", linker, strings.Join(dirs, ":"),
			path.Base(program), file)
		if err := os.WriteFile(filepath.Join(folder, "bin", path.Base(program)), []byte(text), 0o755); err != nil {
			return err
		}
	}
	schema, err := root.Resolve("/usr/share/openvswitch/vswitch.ovsschema")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the packages have no definition of the database: %w", err)
	} else if err != nil {
		return err
	}
	text, err := os.ReadFile(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "share", "vswitch.ovsschema"), text, 0o644)
}
