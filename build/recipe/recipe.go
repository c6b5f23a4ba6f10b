// Package recipe has the contents of Tombolo's container images, and of images that tests run.
package recipe

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/build/debian"
	"github.com/tombolo-net/tombolo/build/imagetar"
)

// Packages are the Debian packages that the images of a cluster have programs of.
var Packages = []string{"openvswitch-switch", "nftables", "conntrack", "iproute2", "dash", "coreutils", "grep", "sed"}

// Published are the images that a cluster runs. The others are for tests.
var Published = []string{"tombolo-agent", "tombolo-controller", "tombolo-ovs"}

// Programs are our programs in the published images.
var Programs = []string{"tombolo", "tombolo-agent", "tombolo-cni", "tombolo-controller"}

// tools are what agent and switch containers have in common: one layer, stored once.
var tools = []string{
	"/bin/sh", "/bin/cat", "/bin/ls", "/bin/mkdir", "/bin/rm", "/bin/mv", "/bin/cp", "/bin/sleep", "/bin/grep", "/bin/sed",
	"/usr/bin/id", "/usr/bin/head", "/usr/bin/tail",
	"/usr/bin/ovs-vsctl", "/usr/bin/ovs-ofctl", "/usr/bin/ovs-appctl", "/usr/bin/ovsdb-tool", "/usr/bin/ovsdb-client",
	"/usr/bin/ovs-dpctl", "/usr/sbin/nft", "/usr/sbin/conntrack", "/bin/ip",
}

// Image lists the contents of an image: programs of Debian, our programs, and other files, by target.
type Image struct {
	Name     string
	Suite    string            // reference by which a suite of others asks for it; made only when named
	base     bool              // begins with the layer of tools
	programs map[string]string // target: program of Debian, with its libraries
	own      map[string]string // target: name in BIN
	files    map[string]string // target: file of Debian, or of the repository if the path is relative
	links    map[string]string // symbolic links
	dirs     []string
	entry    []string
	cmd      []string // arguments of entry if a container has no others
	env      []string // NAME=VALUE
}

// Images are all images.
var Images = []Image{
	{Name: "pause", own: map[string]string{"/pause": "pause"}, entry: []string{"/pause"}},
	{Name: "echo", own: map[string]string{"/echo": "echo"}, entry: []string{"/echo"},
		env: []string{"ECHO_COMMANDS=/commands.sock"}},
	{
		Name: "tombolo-agent", base: true, dirs: []string{"/tmp", "/run", "/var"},
		own: map[string]string{
			"/usr/local/bin/tombolo-agent": "tombolo-agent",
			"/usr/local/bin/tombolo":       "tombolo",
			"/usr/local/bin/tombolo-cni":   "tombolo-cni",
		},
		links: map[string]string{"/usr/local/bin/antctl": "tombolo"},
		entry: []string{"/usr/local/bin/tombolo-agent"},
	},
	{
		Name: "tombolo-ovs", base: true, dirs: []string{"/tmp", "/run", "/var", "/etc/openvswitch"},
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
		Name: "tombolo-controller", own: map[string]string{"/tombolo-controller": "tombolo-controller"},
		dirs: []string{"/tmp"}, entry: []string{"/tombolo-controller"},
	},
	{Name: "coredns", Suite: "tombolo/coredns:dev", own: map[string]string{"/coredns": "coredns"}, dirs: []string{"/tmp"},
		entry: []string{"/coredns"}},
	{
		Name: "agnhost", Suite: "registry.k8s.io/e2e-test-images/agnhost:2.45",
		own: map[string]string{"/agnhost": "agnhost"}, programs: map[string]string{"/bin/bash": "/bin/bash"},
		dirs: []string{"/tmp", "/uploads"}, entry: []string{"/agnhost"}, cmd: []string{"pause"},
	},
	{
		Name: "agnhost-netpol", Suite: "registry.k8s.io/e2e-test-images/agnhost:2.63.0", // what Kubernetes 1.36 asks for
		own: map[string]string{"/agnhost": "agnhost"}, dirs: []string{"/tmp", "/uploads"},
		entry: []string{"/agnhost"}, cmd: []string{"pause"},
	},
	{
		Name: "agnhost-network", Suite: "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
		own: map[string]string{"/agnhost": "agnhost", "/localhost.crt": "porter/localhost.crt",
			"/localhost.key": "porter/localhost.key"}, dirs: []string{"/tmp", "/uploads"},
		programs: map[string]string{"/bin/busybox": "/bin/busybox", "/bin/sh": "/bin/dash", "/bin/nc": "/bin/nc.openbsd",
			"/bin/curl": "/usr/bin/curl", "/bin/dig": "/usr/bin/dig", "/bin/getent": "/usr/bin/getent"},
		files: map[string]string{"/bin/wget": "build/images/wget"},
		links: map[string]string{"/bin/sleep": "busybox", "/bin/cat": "busybox", "/bin/grep": "busybox",
			"/bin/seq": "busybox", "/bin/timeout": "busybox", "/bin/hostname": "busybox", "/bin/awk": "busybox",
			"/bin/sed": "busybox", "/bin/ls": "busybox", "/bin/date": "busybox",
			"/bin/dd": "busybox", "/bin/nslookup": "busybox"},
		entry: []string{"/agnhost"}, cmd: []string{"pause"},
	},
	{
		Name: "pause-network", Suite: "registry.k8s.io/pause:3.10.2", own: map[string]string{"/pause": "pause"},
		entry: []string{"/pause"},
	},
	{
		Name: "busybox-network", Suite: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1", dirs: []string{"/tmp"},
		programs: map[string]string{"/bin/busybox": "/bin/busybox"},
		links:    map[string]string{"/bin/sh": "busybox", "/bin/sleep": "busybox", "/bin/nc": "busybox"},
	},
	{
		// a server that sends packets outside of its client's window
		Name: "regression-network", Suite: "registry.k8s.io/e2e-test-images/regression-issue-74839:1.4",
		own:   map[string]string{"/regression-issue-74839": "regression-issue-74839"},
		entry: []string{"/regression-issue-74839"},
	},
	{
		// the cases read the Pods' EndpointSlices, and nothing connects to the Pods
		Name: "nginx-network", Suite: "registry.k8s.io/e2e-test-images/nginx:1.15-4",
		own: map[string]string{"/pause": "pause"}, entry: []string{"/pause"},
	},
	{
		// no entry: the cases of DNS give the whole command
		Name: "glibc-dns-testing", Suite: "registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0", dirs: []string{"/tmp"},
		programs: map[string]string{"/bin/busybox": "/bin/busybox", "/bin/sh": "/bin/dash", "/bin/dig": "/usr/bin/dig",
			"/bin/getent": "/usr/bin/getent"},
		links: map[string]string{"/bin/sleep": "busybox", "/bin/seq": "busybox", "/bin/hostname": "busybox"},
	},
	// Images for the suite of SIG Multicluster: the server runs one line of socat, and the client is a shell. The client's
	// nc is OpenBSD's, as in the suite's own image. The suite uses flags that busybox's nc lacks, and busybox's shell
	// prefers its own nc.
	{
		Name: "socat", Suite: "docker.io/alpine/socat:1.7.4.4", dirs: []string{"/tmp"}, entry: []string{"/usr/bin/socat"},
		programs: map[string]string{"/bin/busybox": "/bin/busybox", "/usr/bin/socat": "/usr/bin/socat"},
		links: map[string]string{"/bin/sh": "busybox", "/bin/grep": "busybox", "/bin/tr": "busybox",
			"/bin/awk": "busybox"},
	},
	{
		// no entry: the suite gives the whole command
		Name: "netshoot", Suite: "docker.io/nicolaka/netshoot:v0.15", dirs: []string{"/tmp"},
		programs: map[string]string{"/bin/busybox": "/bin/busybox", "/bin/sh": "/bin/dash", "/bin/nc": "/bin/nc.openbsd"},
		links: map[string]string{"/bin/sleep": "busybox", "/bin/nslookup": "busybox", "/bin/grep": "busybox",
			"/bin/tail": "busybox", "/bin/awk": "busybox"},
	},
}

// Make returns the contents of an image of programs in a folder and of Debian's packages.
func (img Image) Make(bin string, from debian.Root, tag string) (imagetar.Image, error) {
	made := imagetar.Image{
		Reference: "tombolo/" + img.Name + ":" + tag, Entrypoint: img.entry, Cmd: img.cmd, Env: img.env,
	}
	if img.Suite != "" {
		made.Reference = img.Suite
	}
	if img.base {
		same := map[string]string{}
		for _, program := range tools {
			same[program] = program
		}
		files, err := withLibraries(from, same)
		if err != nil {
			return made, err
		}
		made.Layers = append(made.Layers, files)
	}
	if len(img.programs) > 0 {
		files, err := withLibraries(from, img.programs)
		if err != nil {
			return made, err
		}
		made.Layers = append(made.Layers, files)
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
	for target, file := range img.files {
		if strings.HasPrefix(file, "/") {
			var err error
			if file, err = from.Resolve(file); err != nil {
				return made, err
			}
		}
		own = append(own, imagetar.File{Path: target, Source: file})
	}
	made.Layers = append(made.Layers, own)
	return made, nil
}

// withLibraries returns programs of Debian at other paths, and the shared libraries that they need.
func withLibraries(from debian.Root, programs map[string]string) ([]imagetar.File, error) {
	files := map[string]imagetar.File{}
	for target, program := range programs {
		source, err := from.Resolve(program)
		if err != nil {
			return nil, fmt.Errorf("a Debian package is missing (`make packages` installs them): %w", err)
		}
		files[target] = imagetar.File{Path: target, Source: source}
		libraries, err := from.Libraries(program)
		if err != nil {
			return nil, err
		}
		for library, source := range libraries {
			files[library] = imagetar.File{Path: library, Source: source}
		}
	}
	return slices.Collect(maps.Values(files)), nil
}

// Files returns the paths of Debian's files that the published images have, without libraries.
func Files() []string {
	all := slices.Clone(tools)
	for _, img := range Images {
		if !slices.Contains(Published, img.Name) {
			continue
		}
		all = slices.AppendSeq(all, maps.Values(img.programs))
		for _, file := range img.files {
			if strings.HasPrefix(file, "/") {
				all = append(all, file)
			}
		}
	}
	return all
}
