// Package kernel boots Debian's kernel in QEMU and runs a script there, so that tests use the kernel's own Open vSwitch
// datapath on machines whose kernel lacks it. It does not use KVM: QEMU interprets the guest, which boots in a few
// seconds and is several times slower than the machine.
//
// The guest has the machine's own root file system, read-only over 9p, with a tmpfs on each directory that tests write
// to. It has no network devices except the tests' own.
package kernel

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/test/child"
)

//go:embed init.sh
var initScript []byte

//go:embed guest.sh
var guestScript []byte

// modules are what the initramfs has to load before it can mount the root file system.
var modules = []string{"virtio_pci", "9pnet_virtio", "9p"}

// Guest is a virtual machine that runs one script and ends.
type Guest struct {
	Kernel Kernel
	// Share is a directory of the machine that the guest sees as /run/share and can write to. The file "run" in it is the
	// script, which /bin/sh executes.
	Share string
	// Repository is mounted read-only in the guest as /run/repository, wherever it is on the machine, since the guest's
	// /tmp is another one.
	Repository string
	MemoryMiB  int
	CPUs       int
	Nice       int // of QEMU
}

// Run boots the guest and waits until it has powered off. If ctx ends first, or if the script has not finished, the
// error contains the end of the console's output.
func (g Guest) Run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "tombolo-kernel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	initramfs := filepath.Join(dir, "initramfs")
	if err := g.Kernel.writeInitramfs(ctx, dir, initramfs); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(g.Share, "guest"), guestScript, 0o755); err != nil {
		return err
	}
	finished := filepath.Join(g.Share, "finished")
	if err := os.Remove(finished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	args := []string{
		"-n", fmt.Sprint(g.Nice), "qemu-system-x86_64",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", fmt.Sprint(g.CPUs), "-m", fmt.Sprint(g.MemoryMiB),
		"-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot", "-net", "none",
		"-kernel", g.Kernel.Image(), "-initrd", initramfs,
		// With no_timer_check the kernel does not panic if its timer ticks late because QEMU gets no processor time.
		"-append", "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off no_timer_check kernel_modules=" +
			g.Kernel.Root + " kernel_path=" + os.Getenv("PATH"),
	}
	// Without remap, files of different mounts have the same inode number in the guest, which then confuses directories.
	for tag, path := range map[string]string{"root": "/", "repository": g.Repository} {
		args = append(args, "-fsdev", "local,readonly=on,security_model=none,multidevs=remap,id="+tag+",path="+path,
			"-device", "virtio-9p-pci,fsdev="+tag+",mount_tag="+tag)
	}
	args = append(args, "-fsdev", "local,security_model=none,multidevs=remap,id=share,path="+g.Share,
		"-device", "virtio-9p-pci,fsdev=share,mount_tag=share")
	var console tail
	cmd := exec.CommandContext(ctx, "nice", args...)
	cmd.Stdout, cmd.Stderr = &console, &console
	began := time.Now()
	err = child.Run(cmd)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the guest was still running after %v; end of its console:\n%s",
			time.Since(began).Round(time.Second), &console)
	case err != nil:
		return fmt.Errorf(
			"qemu-system-x86_64 (is qemu-system-x86 installed? build/packages does that): %w; end of its console:\n%s", err,
			&console)
	}
	if _, err := os.Stat(finished); err != nil {
		return fmt.Errorf("the guest stopped before its script had ended; end of its console:\n%s", &console)
	}
	return nil
}

// runTwice boots the guest once more if QEMU or the guest's kernel ended before the script had. The script continues
// where it was, from its records in Share. One such end may be the emulator's fault, and no test has failed. A second
// one is an error.
func (g Guest) runTwice(ctx context.Context, logf func(string, ...any)) error {
	return twice(ctx, g.Run, logf)
}

func twice(ctx context.Context, run func(context.Context) error, logf func(string, ...any)) error {
	err := run(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	logf("the guest is started once more: %v", err)
	return run(ctx)
}

// Kernel is Debian's kernel, unpacked but not installed.
type Kernel struct {
	Root    string // the unpacked package: boot/, lib/modules/
	Release string // "6.1.0-56-amd64"
}

// Image is the path of the bootable kernel.
func (k Kernel) Image() string { return filepath.Join(k.Root, "boot", "vmlinuz-"+k.Release) }

// Fetch downloads the kernel on which Debian's linux-image-amd64 depends, unless cache has that version already.
func Fetch(ctx context.Context, cache string) (Kernel, error) {
	release, version, err := current(ctx)
	if err != nil {
		return Kernel{}, err
	}
	k := Kernel{Root: filepath.Join(cache, "kernel", release+"_"+version), Release: release}
	if _, err := os.Stat(k.Root); err == nil {
		return k, nil
	}
	if err := os.MkdirAll(filepath.Dir(k.Root), 0o755); err != nil {
		return Kernel{}, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(k.Root), "unpack-")
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(dir)
	name := "linux-image-" + release
	for _, args := range [][]string{
		{"apt-get", "-q", "download", name + "=" + version},
		{"sh", "-c", "dpkg-deb -x linux-image-*.deb root && rm linux-image-*.deb"},
		{"depmod", "-b", filepath.Join(dir, "root"), release},
	} {
		if _, err := output(ctx, dir, args...); err != nil {
			return Kernel{}, err
		}
	}
	err = os.Rename(filepath.Join(dir, "root"), k.Root)
	if _, there := os.Stat(k.Root); err != nil && there == nil {
		err = nil // another process was faster
	}
	return k, err
}

var (
	dependency = regexp.MustCompile(`Depends: linux-image-(\S+-amd64)\b`)
	candidate  = regexp.MustCompile(`Candidate: ([0-9]\S*)`)
)

// current asks apt which kernel linux-image-amd64 depends on.
func current(ctx context.Context) (release, version string, err error) {
	find := func(r *regexp.Regexp, args ...string) (string, error) {
		text, err := output(ctx, "/", append([]string{"apt-cache"}, args...)...)
		if err != nil {
			return "", err
		}
		m := r.FindStringSubmatch(text)
		if m == nil {
			return "", fmt.Errorf("apt-cache %s does not say %q (apt-get update fetches the lists): %s", strings.Join(args, " "),
				r, text)
		}
		return m[1], nil
	}
	if release, err = find(dependency, "depends", "linux-image-amd64"); err != nil {
		return "", "", err
	}
	version, err = find(candidate, "policy", "linux-image-"+release)
	return release, version, err
}

// writeInitramfs packs busybox, init and what it loads.
func (k Kernel) writeInitramfs(ctx context.Context, dir, file string) error {
	root := filepath.Join(dir, "root")
	for _, d := range []string{"bin", "dev", "proc", "sys", "modules", "newroot"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	var order bytes.Buffer
	loaded := map[string]bool{}
	for _, module := range modules {
		text, err := output(ctx, "/", "modprobe", "-d", k.Root, "-S", k.Release, "--show-depends", module)
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			words := strings.Fields(line) // "insmod PATH [options]" or "builtin NAME"
			if len(words) < 2 || words[0] != "insmod" || loaded[words[1]] {
				continue
			}
			loaded[words[1]] = true
			name := filepath.Base(words[1])
			if err := copyFile(words[1], filepath.Join(root, "modules", name), 0o644); err != nil {
				return err
			}
			fmt.Fprintln(&order, name)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "modules", "order"), order.Bytes(), 0o644); err != nil {
		return err
	}
	if err := copyFile("/bin/busybox", filepath.Join(root, "bin", "busybox"), 0o755); err != nil {
		return fmt.Errorf("%w (is busybox-static installed? build/packages does that)", err)
	}
	if err := os.WriteFile(filepath.Join(root, "init"), initScript, 0o755); err != nil {
		return err
	}
	_, err := output(ctx, root, "sh", "-c", `find . | cpio --quiet -o -H newc >"$0"`, file)
	return err
}

func copyFile(from, to string, mode fs.FileMode) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, mode)
}

// output runs a command, which has to succeed.
func output(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// tail keeps the last 8 KiB of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-8<<10):]
	return len(b), nil
}

func (t *tail) String() string { return string(t.kept) }
