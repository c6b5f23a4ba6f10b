// Command images makes Tombolo's container images without a registry or a container engine: archives that `ctr images
// import` and `docker load` read. Foreign programs come from the Debian packages of this machine, with the libraries
// that they link.
//
//	images [-tag TAG] BIN OUTPUT [NAME...]
//
// BIN holds our compiled programs. TAG is the tag of our images, dev by default. build/*/Dockerfile have the same for
// users of a registry. Images of other projects' suites are made only if they are named.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/build/imagetar"
)

func main() {
	tag := flag.String("tag", "dev", "tag of the images")
	flag.Parse()
	if err := run(*tag, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// tools are what agent and switch containers have in common: one layer, stored once.
var tools = []string{
	"/bin/sh", "/bin/cat", "/bin/ls", "/bin/mkdir", "/bin/rm", "/bin/mv", "/bin/cp", "/bin/sleep", "/bin/grep", "/bin/sed",
	"/usr/bin/id", "/usr/bin/head", "/usr/bin/tail",
	"/usr/bin/ovs-vsctl", "/usr/bin/ovs-ofctl", "/usr/bin/ovs-appctl", "/usr/bin/ovsdb-tool", "/usr/bin/ovsdb-client",
	"/usr/bin/ovs-dpctl", "/usr/sbin/nft", "/usr/sbin/conntrack", "/bin/ip",
}

// image lists the contents of an image: programs of this machine, our programs, and other files, by target.
type image struct {
	name     string
	suite    string            // reference by which a suite of others asks for it; made only when named
	base     bool              // begins with the layer of tools
	programs map[string]string // target: program of this machine, with its libraries
	own      map[string]string // target: name in BIN
	files    map[string]string // target: file of this machine or the repository
	links    map[string]string // symbolic links
	dirs     []string
	entry    []string
	cmd      []string // arguments of entry if a container has no others
	env      []string // NAME=VALUE
}

var images = []image{
	{name: "pause", own: map[string]string{"/pause": "pause"}, entry: []string{"/pause"}},
	{name: "echo", own: map[string]string{"/echo": "echo"}, entry: []string{"/echo"},
		env: []string{"ECHO_COMMANDS=/commands.sock"}},
	{
		name: "tombolo-agent", base: true, dirs: []string{"/tmp", "/run", "/var"},
		own: map[string]string{
			"/usr/local/bin/tombolo-agent": "tombolo-agent",
			"/usr/local/bin/tombolo":       "tombolo",
			"/usr/local/bin/tombolo-cni":   "tombolo-cni",
		},
		links: map[string]string{"/usr/local/bin/antctl": "tombolo"},
		entry: []string{"/usr/local/bin/tombolo-agent"},
	},
	{
		name: "tombolo-ovs", base: true, dirs: []string{"/tmp", "/run", "/var", "/etc/openvswitch"},
		programs: map[string]string{
			"/usr/sbin/ovsdb-server": "/usr/sbin/ovsdb-server",
			"/usr/sbin/ovs-vswitchd": "/usr/lib/openvswitch-switch/ovs-vswitchd",
		},
		files: map[string]string{
			"/usr/share/openvswitch/vswitch.ovsschema": "/usr/share/openvswitch/vswitch.ovsschema",
			"/usr/local/bin/tombolo-ovs":               "build/ovs/tombolo-ovs",
		},
		entry: []string{"/usr/local/bin/tombolo-ovs"},
	},
	{
		name: "tombolo-controller", own: map[string]string{"/tombolo-controller": "tombolo-controller"},
		dirs: []string{"/tmp"}, entry: []string{"/tombolo-controller"},
	},
	{name: "coredns", suite: "tombolo/coredns:dev", own: map[string]string{"/coredns": "coredns"}, dirs: []string{"/tmp"},
		entry: []string{"/coredns"}},
	{
		name: "agnhost", suite: "registry.k8s.io/e2e-test-images/agnhost:2.45",
		own: map[string]string{"/agnhost": "agnhost"}, programs: map[string]string{"/bin/bash": "/bin/bash"},
		dirs: []string{"/tmp", "/uploads"}, entry: []string{"/agnhost", "pause"},
	},
	{
		name: "agnhost-netpol", suite: "registry.k8s.io/e2e-test-images/agnhost:2.63.0", // what Kubernetes 1.36 asks for
		own: map[string]string{"/agnhost": "agnhost"}, dirs: []string{"/tmp", "/uploads"},
		entry: []string{"/agnhost", "pause"},
	},
	{
		name: "agnhost-network", suite: "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
		own: map[string]string{"/agnhost": "agnhost"}, dirs: []string{"/tmp", "/uploads"},
		programs: map[string]string{"/bin/busybox": "/bin/busybox", "/bin/sh": "/bin/dash", "/bin/nc": "/bin/nc.openbsd",
			"/bin/curl": "/usr/bin/curl", "/bin/dig": "/usr/bin/dig", "/bin/getent": "/usr/bin/getent"},
		files: map[string]string{"/bin/wget": "build/images/wget"},
		links: map[string]string{"/bin/sleep": "busybox", "/bin/cat": "busybox", "/bin/grep": "busybox",
			"/bin/seq": "busybox", "/bin/timeout": "busybox", "/bin/hostname": "busybox", "/bin/awk": "busybox",
			"/bin/sed": "busybox", "/bin/ls": "busybox", "/bin/date": "busybox",
			"/bin/dd": "busybox"},
		entry: []string{"/agnhost"}, cmd: []string{"pause"},
	},
	{
		// no entry: the cases of DNS give the whole command
		name: "glibc-dns-testing", suite: "registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0", dirs: []string{"/tmp"},
		programs: map[string]string{"/bin/busybox": "/bin/busybox", "/bin/sh": "/bin/dash", "/bin/dig": "/usr/bin/dig",
			"/bin/getent": "/usr/bin/getent"},
		links: map[string]string{"/bin/sleep": "busybox", "/bin/seq": "busybox", "/bin/hostname": "busybox"},
	},
	// Images for the suite of SIG Multicluster: a server that is a line of socat in a shell, and a client that is a
	// shell. The client's nc is OpenBSD's, as in the image of that name: the suite uses flags that busybox's lacks, and
	// busybox's shell prefers its own nc.
	{
		name: "socat", suite: "docker.io/alpine/socat:1.7.4.4", dirs: []string{"/tmp"}, entry: []string{"/usr/bin/socat"},
		programs: map[string]string{"/bin/busybox": "/bin/busybox", "/usr/bin/socat": "/usr/bin/socat"},
		links: map[string]string{"/bin/sh": "busybox", "/bin/grep": "busybox", "/bin/tr": "busybox",
			"/bin/awk": "busybox"},
	},
	{
		// no entry: the suite gives the whole command
		name: "netshoot", suite: "docker.io/nicolaka/netshoot:v0.15", dirs: []string{"/tmp"},
		programs: map[string]string{"/bin/busybox": "/bin/busybox", "/bin/sh": "/bin/dash", "/bin/nc": "/bin/nc.openbsd"},
		links: map[string]string{"/bin/sleep": "busybox", "/bin/nslookup": "busybox", "/bin/grep": "busybox",
			"/bin/tail": "busybox", "/bin/awk": "busybox"},
	},
}

func run(tag string, args []string) error {
	if len(args) < 2 {
		return errors.New("want [-tag TAG] BIN OUTPUT [NAME...]")
	}
	bin, out, names := args[0], args[1], args[2:]
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	base, err := withLibraries(nil, tools...)
	if err != nil {
		return err
	}
	for _, img := range images {
		if len(names) > 0 && !slices.Contains(names, img.name) || len(names) == 0 && img.suite != "" {
			continue
		}
		if err := write(img, tag, base, bin, out); err != nil {
			return fmt.Errorf("%s: %w", img.name, err)
		}
	}
	return nil
}

func write(img image, tag string, base []imagetar.File, bin, out string) error {
	var layers [][]imagetar.File
	if img.base {
		layers = append(layers, base)
	}
	var own []imagetar.File
	for _, dir := range img.dirs {
		own = append(own, imagetar.File{Path: dir})
	}
	for target, name := range img.own {
		own = append(own, imagetar.File{Path: target, Source: filepath.Join(bin, name)})
	}
	for target, to := range img.links {
		own = append(own, imagetar.File{Path: target, Link: to})
	}
	for target, path := range img.files {
		own = append(own, imagetar.File{Path: target, Source: path})
	}
	if len(img.programs) > 0 {
		files, err := withLibraries(img.programs)
		if err != nil {
			return err
		}
		layers = append(layers, files)
	}
	return imagetar.Write(filepath.Join(out, img.name+".tar"), imagetar.Image{
		Reference: cmp.Or(img.suite, "tombolo/"+img.name+":"+tag), Layers: append(layers, own),
		Entrypoint: img.entry, Cmd: img.cmd, Env: img.env,
	})
}

// withLibraries returns programs and the shared libraries they need. Programs of moved get another path than here,
// programs of same keep theirs.
func withLibraries(moved map[string]string, same ...string) ([]imagetar.File, error) {
	files := map[string]imagetar.File{}
	all := map[string]string{}
	for _, p := range same {
		all[p] = p
	}
	for target, p := range moved {
		all[target] = p
	}
	for target, program := range all {
		source, err := filepath.EvalSymlinks(program)
		if err != nil {
			return nil, fmt.Errorf("a Debian package is missing (`make packages` installs them): %w", err)
		}
		files[target] = imagetar.File{Path: target, Source: source}
		libraries, err := linked(source)
		if err != nil {
			return nil, err
		}
		for _, library := range libraries {
			source, err := filepath.EvalSymlinks(library)
			if err != nil {
				return nil, err
			}
			files[library] = imagetar.File{Path: library, Source: source}
		}
	}
	list := make([]imagetar.File, 0, len(files))
	for _, f := range files {
		list = append(list, f)
	}
	return list, nil
}

// linked asks the dynamic linker which files a program loads: lines such as
//
//	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f...)
//	/lib64/ld-linux-x86-64.so.2 (0x00007f...)
func linked(program string) ([]string, error) {
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "not a dynamic executable") {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}
	var paths []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("ldd %s: %s", program, strings.TrimSpace(line))
		}
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				paths = append(paths, word)
			}
		}
	}
	return paths, nil
}
