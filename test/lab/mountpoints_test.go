package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// machineIn is a machine whose files are in a directory of the test; it has "/etc/there".
func machineIn(t *testing.T) (shared, string) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/there"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := shared{root: filepath.Join(root, "labs"), instances: filepath.Join(root, "max_user_instances")}
	if err := os.WriteFile(s.instances, []byte("128\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"etc/cni/net.d", "etc/there", "opt/cni/bin", "opt/containerd"} {
		s.mountPoints = append(s.mountPoints, filepath.Join(root, dir))
	}
	return s, root
}

// comes and goes are what Up and Remove do with what the labs share.
func (s shared) comes(name string) error {
	return s.locked(func() error {
		if err := errors.Join(s.makeMountPoints(), s.raiseLimit()); err != nil {
			return err
		}
		return os.Mkdir(filepath.Join(s.root, name), 0o755)
	})
}

func (s shared) goes(name string) error {
	if err := os.RemoveAll(filepath.Join(s.root, name)); err != nil {
		return err
	}
	return s.tidy()
}

// tree lists the directories below root.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if rel, relErr := filepath.Rel(root, path); relErr == nil && rel != "." {
			dirs = append(dirs, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestLastLabCleansUp(t *testing.T) {
	s, root := machineIn(t)
	before := tree(t, root)
	for _, name := range []string{"one", "two"} {
		if err := s.comes(name); err != nil {
			t.Fatal(err)
		}
	}
	if missing := missingDirs(s.mountPoints); len(missing) > 0 {
		t.Errorf("%v are missing", missing)
	}
	during := tree(t, root)
	if err := s.goes("one"); err != nil {
		t.Fatal(err)
	}
	if after := tree(t, root); len(after) != len(during)-1 {
		t.Errorf("the first lab that goes leaves %q of %q", after, during)
	}
	if err := s.goes("two"); err != nil {
		t.Fatal(err)
	}
	if after := tree(t, root); !slices.Equal(before, after) {
		t.Errorf("the last lab leaves %q, want %q", after, before)
	}
	if err := s.goes("two"); err != nil || len(tree(t, root)) != len(before) {
		t.Errorf("once more: %v, %q", err, tree(t, root))
	}
}

func TestForeignFilesKept(t *testing.T) {
	s, root := machineIn(t)
	if err := s.comes("one"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/cni/net.d/theirs"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.goes("one"); err != nil {
		t.Fatal(err)
	}
	want := []string{"etc", "etc/cni", "etc/cni/net.d", "etc/cni/net.d/theirs", "etc/there", "max_user_instances"}
	if after := tree(t, root); !slices.Equal(after, want) {
		t.Errorf("left is %q, want %q", after, want)
	}
}

// TestMountsHidden removes a network namespace's file after another program has run the machine's first `ip netns add`,
// which mounts the directory over itself. A shared directory stays while another program has a mount on it.
func TestMountsHidden(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "lab-router")
	if err := os.WriteFile(file, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	bind := func(from, to string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(from, to, "", unix.MS_BIND|flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
	}
	bind("/proc/self/ns/net", file, 0)
	bind(dir, dir, unix.MS_REC)
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := removeMounted(file); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), file) || !strings.Contains(string(mounts), dir) {
		t.Errorf("%v: want a mount of %s, and none of %s:\n%s", err, dir, file, mounts)
	}

	s, root := machineIn(t)
	if err := s.comes("one"); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(root, "etc/cni/net.d")
	bind(theirs, theirs, 0)
	if err := s.goes("one"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(theirs); err != nil {
		t.Error(err)
	}
}

// TestConcurrentLabs has the last lab go while others come: each finds its directories.
func TestConcurrentLabs(t *testing.T) {
	s, root := machineIn(t)
	before := tree(t, root)
	var all sync.WaitGroup
	for i := range 8 {
		name := fmt.Sprint("lab", i)
		all.Go(func() {
			for range 50 {
				if err := s.comes(name); err != nil {
					t.Errorf("%s comes: %v", name, err)
					return
				}
				if missing := missingDirs(s.mountPoints); len(missing) > 0 {
					t.Errorf("%s has come and misses %v", name, missing)
				}
				if err := s.goes(name); err != nil {
					t.Errorf("%s goes: %v", name, err)
					return
				}
			}
		})
	}
	all.Wait()
	if after := tree(t, root); !slices.Equal(before, after) {
		t.Errorf("left is %q, want %q", after, before)
	}
}

// TestInotifyLimit has labs come and go, and looks at the machine's limit of inotify instances.
func TestInotifyLimit(t *testing.T) {
	s, _ := machineIn(t)
	limit := func(want string) {
		t.Helper()
		text, err := os.ReadFile(s.instances)
		if err != nil || strings.TrimSpace(string(text)) != want {
			t.Errorf("the limit is %q (%v), want %s", text, err, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.comes("one"))
	limit("1024")
	must(s.comes("two"))
	must(s.goes("one"))
	limit("1024")
	must(s.goes("two"))
	limit("128")

	must(s.comes("one"))
	must(os.WriteFile(s.instances, []byte("512\n"), 0o644)) // by an administrator, meanwhile
	must(s.goes("one"))
	limit("512")
	must(os.WriteFile(s.instances, []byte("8192\n"), 0o644))
	must(s.comes("one"))
	limit("8192")
	must(s.goes("one"))
	limit("8192")
}
