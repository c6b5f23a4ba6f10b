// Command nodeinit is process 1 of a Node in the lab. It gives the Node its own directories, reports that it is ready,
// and reaps orphans until it is killed. When it ends, the kernel kills all processes of the Node, as a power failure
// would.
//
//	nodeinit LAB CLUSTER/NODE DIRECTORY
//
// It runs in new mount, PID, UTS and IPC namespaces; DIRECTORY holds the files that survive a reboot, and gets a file
// "ready".
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/test/lab/disk"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nodeinit:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 || os.Getpid() != 1 {
		return errors.New("want LAB CLUSTER/NODE DIRECTORY as process 1 of a PID namespace")
	}
	runtime.LockOSThread()
	if err := enterCgroup(); err != nil {
		return err
	}
	name, dir := args[1][strings.Index(args[1], "/")+1:], args[2]
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set hostname %s: %w", name, err)
	}
	if err := mounts(dir); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o644); err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGTERM)
	for s := range signals {
		if s == unix.SIGTERM {
			return nil
		}
		reap()
	}
	return nil
}

// reap collects every child that has ended.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

// guarded are settings of the whole machine that a kubelet would change.
var guarded = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

func mounts(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The names of other Nodes' network namespaces would keep them alive.
	names, err := os.ReadDir("/run/netns")
	if err != nil {
		return err
	}
	for _, n := range names {
		// One that has gone meanwhile, or was never mounted, is as good.
		_ = unix.Unmount(filepath.Join("/run/netns", n.Name()), unix.MNT_DETACH)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := mountCgroups(); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	for _, target := range disk.Dirs { // they are there: the lab has made them
		source := filepath.Join(dir, "root", target)
		if err := os.MkdirAll(source, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	for _, path := range guarded {
		if err := guard(path); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	return nil
}

// guard covers a kernel setting with a file of the same content. A kubelet writes and reads the file, and the machine's
// setting does not change.
func guard(path string) error {
	target := filepath.Join("/proc/sys", path)
	value, err := os.ReadFile(target)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	source := filepath.Join("/run/nodeinit", path)
	if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(source, value, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover %s: %w", target, err)
	}
	return nil
}
