package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// envCgroup names the Node's cgroup, below the root of each hierarchy. The lab has made it. The variable is set until
// the process has moved there.
const envCgroup = "NODEINIT_CGROUP"

// enterCgroup moves this process to the Node's cgroup, and makes that the root of the cgroups that it sees. Then it
// executes the program again, since a namespace belongs to one thread until then.
func enterCgroup() error {
	cgroup := os.Getenv(envCgroup)
	if cgroup == "" {
		return nil
	}
	hierarchies, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*"+cgroup))
	if err != nil {
		return err
	}
	hierarchies = append(hierarchies, filepath.Join("/sys/fs/cgroup", cgroup)) // the unified one alone
	for _, h := range hierarchies {
		if err := enter(h); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	for _, h := range hierarchies {
		// In a unified hierarchy a group that has processes cannot divide what it has.
		if _, err := os.Stat(filepath.Join(h, "cgroup.controllers")); err != nil {
			continue
		}
		leaf := filepath.Join(h, "init")
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := enter(leaf); err != nil {
			return err
		}
	}
	return unix.Exec("/proc/self/exe", os.Args, []string{"PATH=" + os.Getenv("PATH")})
}

func enter(cgroup string) error {
	err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte("0"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// mountCgroups mounts each hierarchy again where it is, so that its root is the Node's.
func mountCgroups() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		// 31 27 0:26 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
		left, right, ok := strings.Cut(line, " - ")
		mount, super := strings.Fields(left), strings.Fields(right)
		if !ok || len(mount) < 5 || len(super) < 3 || (super[0] != "cgroup" && super[0] != "cgroup2") {
			continue
		}
		var options []string
		for _, o := range strings.Split(super[2], ",") {
			switch {
			case strings.HasPrefix(o, "name="):
				options = append(options, "none", o)
			case super[0] == "cgroup" && o != "rw" && o != "ro" && !strings.Contains(o, "=") && o != "xattr" &&
				o != "clone_children":
				options = append(options, o)
			}
		}
		if err := unix.Unmount(mount[4], unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", mount[4], err)
		}
		err := unix.Mount(super[0], mount[4], super[0], unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			strings.Join(options, ","))
		if err != nil {
			return fmt.Errorf("mount %s at %s with %v: %w", super[0], mount[4], options, err)
		}
	}
	return nil
}
