package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cgroupOf is the cgroup of a lab in each hierarchy.
func cgroupOf(lab string) string { return "/tombolo-lab-" + lab }

// cgroup returns the cgroup of one Node. Processes in it see it as the root.
func (n *Node) cgroup() string {
	return fmt.Sprintf("%s/%s-%s", cgroupOf(n.cluster.lab.Name()), n.cluster.name, n.name)
}

// makeCgroups makes the Node's cgroup in each hierarchy.
func (n *Node) makeCgroups() error {
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return err
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		hierarchies = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	for _, h := range hierarchies {
		if err := makeCgroup(filepath.Dir(h), n.cgroup()); err != nil {
			return err
		}
		if err := prefer(filepath.Join(filepath.Dir(h), cgroupOf(n.cluster.lab.Name()))); err != nil {
			return err
		}
	}
	return nil
}

// prefer gives a cgroup ten times the processor time of others if there is too little. A lab's Nodes represent separate
// machines, so compilers and tests on the same machine must not slow their switches down.
func prefer(cgroup string) error {
	for file, value := range map[string]string{"cpu.weight": "1000", "cpu.shares": "10240"} { // of cgroup v2, of v1
		err := os.WriteFile(filepath.Join(cgroup, file), []byte(value), 0)
		// not the hierarchy of processors
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("set %s of cgroup %s: %w", file, cgroup, err)
		}
	}
	return nil
}

// makeCgroup makes a cgroup in one hierarchy. It passes settings of the parent on: a cpuset is empty at first and must
// be filled before a process can enter, and in a unified hierarchy each level enables controllers for the next.
func makeCgroup(hierarchy, cgroup string) error {
	dir := hierarchy
	for part := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		parent := dir
		dir = filepath.Join(dir, part)
		if controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers")); err == nil {
			for _, c := range strings.Fields(string(controllers)) {
				// One that cannot be had is done without, as on any machine that lacks it.
				_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+c), 0)
			}
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make cgroup: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(parent, file))
			if err != nil || len(strings.TrimSpace(string(value))) == 0 {
				continue // not a cpuset, or one that need not be filled
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
				return fmt.Errorf("fill %s of cgroup %s: %w", file, dir, err)
			}
		}
	}
	return nil
}

// removeCgroups removes the lab's cgroups from every hierarchy, deepest first.
func removeCgroups(ctx context.Context, lab string) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*" + cgroupOf(lab))
	if err != nil {
		return err
	}
	roots = append(roots, "/sys/fs/cgroup"+cgroupOf(lab)) // the unified hierarchy alone
	return eventually(ctx, time.Minute, func(context.Context) error {
		for _, root := range roots {
			if err := removeCgroup(root); err != nil {
				return err
			}
		}
		return nil
	})
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return nil
}
