// Command emulate starts the programs of a release's arm64 images under QEMU's user emulation, and Open vSwitch with a
// datapath that has no packets. It shows that the images are complete, not that the kernel's interfaces are right.
//
//	emulate IMAGES
//
// IMAGES is the OCI layout of a release.
package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const (
	emulator     = "qemu-aarch64-static"
	architecture = "arm64"
)

// commands are the programs that are started. If QEMU cannot serve a program, it fails and prints the text fails. Even
// then it has started with all of its libraries.
var commands = []struct {
	image string
	args  []string
	fails string
}{
	{image: "tombolo-agent", args: []string{"/usr/local/bin/tombolo", "version", "--client"}},
	{image: "tombolo-agent", args: []string{"/usr/local/bin/tombolo-agent", "--help"}},
	// These programs open a netfilter socket first. QEMU's user emulation has no such sockets.
	{image: "tombolo-agent", args: []string{"/usr/sbin/nft", "--version"}, fails: "Unable to initialize Netlink socket"},
	{image: "tombolo-agent", args: []string{"/usr/sbin/conntrack", "--version"}, fails: "Can't open handler"},
	{image: "tombolo-agent", args: []string{"/bin/ip", "-Version"}},
	{image: "tombolo-agent", args: []string{"/bin/sh", "-c", "echo a shell"}},
	{image: "tombolo-controller", args: []string{"/tombolo-controller", "--help"}},
	{image: "tombolo-ovs", args: []string{"/usr/sbin/ovs-vswitchd", "--version"}},
	{image: "tombolo-ovs", args: []string{"/usr/sbin/ovsdb-server", "--version"}},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "emulate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("want the folder of a release's images")
	}
	folder, err := os.MkdirTemp("", "emulate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := extract(args[0], folder); err != nil {
		return err
	}
	for _, c := range commands {
		out, err := emulated(ctx, filepath.Join(folder, c.image), c.args...).CombinedOutput()
		name := c.image + " " + strings.Join(c.args, " ")
		if err != nil && (c.fails == "" || !strings.Contains(string(out), c.fails)) {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}
		first, _, _ := strings.Cut(string(out), "\n")
		fmt.Printf("%s: %s\n", name, first)
	}
	return openVSwitch(ctx, filepath.Join(folder, "tombolo-ovs"))
}

// extract writes the files of each image of an architecture to a folder below another.
func extract(images, to string) error {
	index, err := layout.ImageIndexFromPath(images)
	if err != nil {
		return fmt.Errorf("read the images: %w; `make release` makes them", err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range list.Manifests {
		name, _, _ := strings.Cut(d.Annotations["org.opencontainers.image.ref.name"], ":")
		all, err := index.ImageIndex(d.Digest)
		if err != nil {
			return err
		}
		inner, err := all.IndexManifest()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(inner.Manifests, func(m v1.Descriptor) bool {
			return m.Platform != nil && m.Platform.Architecture == architecture
		})
		if i < 0 {
			return fmt.Errorf("image %s is not for %s: make the release with ARCHITECTURES that have it", name, architecture)
		}
		img, err := all.Image(inner.Manifests[i].Digest)
		if err == nil {
			err = unpack(img, filepath.Join(to, name))
		}
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	return nil
}

// unpack writes the files of an image to a folder.
func unpack(img v1.Image, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	files := mutate.Extract(img)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			err = root.Symlink(h.Linkname, name)
		default:
			if err = root.MkdirAll(filepath.Dir(name), 0o755); err == nil {
				err = write(root, name, r)
			}
		}
		if err != nil {
			return err
		}
	}
}

// write writes a program.
func write(root *os.Root, name string, from io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// emulated returns the command that runs a program of a folder under QEMU, with the libraries of the folder.
func emulated(ctx context.Context, root string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, emulator, append([]string{"-L", root, filepath.Join(root, args[0])}, args[1:]...)...)
	c.Env = append(os.Environ(), "OVS_RUNDIR="+root+"/run", "OVS_DBDIR="+root+"/run", "OVS_LOGDIR="+root+"/run",
		"OVS_SYSCONFDIR="+root+"/run")
	return c
}

// openVSwitch starts the database and the switch, makes a bridge, and asks the switch for it.
func openVSwitch(ctx context.Context, root string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	run, schema := filepath.Join(root, "run"), filepath.Join(root, "usr/share/openvswitch/vswitch.ovsschema")
	socket := "unix:" + run + "/db.sock"
	steps := []struct {
		daemon bool
		args   []string
	}{
		{false, []string{"/usr/bin/ovsdb-tool", "create", run + "/conf.db", schema}},
		{true, []string{"/usr/sbin/ovsdb-server", run + "/conf.db", "--remote=p" + socket, "-vfile:off"}},
		{true, []string{"/usr/sbin/ovs-vswitchd", socket, "--enable-dummy=override", "--disable-system", "-vfile:off",
			"--unixctl=" + run + "/vswitchd.ctl"}},
		{false, []string{"/usr/bin/ovs-vsctl", "--db=" + socket, "--retry", "--no-wait", "init"}},
		{false, []string{"/usr/bin/ovs-vsctl", "--db=" + socket, "--timeout=120", "add-br", "br0", "--", "set", "bridge",
			"br0", "datapath_type=dummy"}},
		{false, []string{"/usr/bin/ovs-appctl", "--target=" + run + "/vswitchd.ctl", "dpif/show"}},
	}
	for _, step := range steps {
		c := emulated(ctx, root, step.args...)
		if step.daemon {
			if err := c.Start(); err != nil {
				return err
			}
			defer func() {
				_ = c.Process.Kill()
				_ = c.Wait() // it was killed
			}()
			continue
		}
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(step.args, " "), err, out)
		}
		fmt.Printf("%s:\n%s", filepath.Base(step.args[0]), out)
	}
	return nil
}
