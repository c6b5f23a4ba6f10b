package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/test/lab/disk"
)

// shared is the state that all labs of one machine share: a directory with a folder for each, and the machine's
// directories over which all of them mount their Nodes' directories. A file lists the directories that did not exist
// before the first lab, and the last lab removes them when it goes. Before that, the kernel would remove a directory
// with mounts in other mount namespaces, together with these mounts.
//
// Labs also share the machine's inotify instances, of which Linux allows root 128 by default. A Node needs eight, a
// control plane seven, and a containerd without one serves no Pods. The first lab raises the limit, the last one
// restores it.
type shared struct {
	root        string
	mountPoints []string
	instances   string // the setting of the inotify instances
}

// enoughInstances is what labs need: kind and minikube ask their users for the same.
const enoughInstances = 1024

var machine = shared{stateRoot, disk.Dirs, "/proc/sys/fs/inotify/max_user_instances"}

func (s shared) lock() string  { return filepath.Join(s.root, ".lock") }
func (s shared) notes() string { return filepath.Join(s.root, ".directories") }
func (s shared) limit() string { return filepath.Join(s.root, ".inotify") } // what it was

// raiseLimit raises the limit of inotify instances. The caller holds the lock.
func (s shared) raiseLimit() error {
	text, err := os.ReadFile(s.instances)
	if err != nil {
		return err
	}
	have, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || have >= enoughInstances {
		return err
	}
	if _, err := os.Stat(s.limit()); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(s.limit(), text, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(s.instances, []byte(strconv.Itoa(enoughInstances)), 0o644)
}

// restoreLimit reverts raiseLimit, unless another program has set another value meanwhile.
func (s shared) restoreLimit() error {
	before, err := os.ReadFile(s.limit())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := os.ReadFile(s.instances)
	if err != nil || strings.TrimSpace(string(now)) != strconv.Itoa(enoughInstances) {
		return err
	}
	return os.WriteFile(s.instances, before, 0o644)
}

// locked runs f while no other lab of this machine comes or goes.
func (s shared) locked(f func() error) error {
	for {
		err := os.MkdirAll(s.root, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue // it was there for a moment: another lab has come and gone
		}
		if err != nil {
			return err
		}
		lock, err := os.OpenFile(s.lock(), os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the last lab has just gone, and its directory with it
		}
		if err != nil {
			return err
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			lock.Close()
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		if !is(lock, s.lock()) { // it was removed while we waited
			lock.Close()
			continue
		}
		err = f()
		lock.Close()
		return err
	}
}

// is reports whether a path still leads to a file that is open.
func is(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// makeMountPoints makes the directories over which Nodes mount their own ones. The caller holds the lock.
func (s shared) makeMountPoints() error {
	noted, err := s.noted()
	if err != nil {
		return err
	}
	missing := missingDirs(s.mountPoints)
	for _, dir := range missing {
		if !slices.Contains(noted, dir) {
			noted = append(noted, dir)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	// Noted first: what was made and not noted would stay for ever.
	if err := os.WriteFile(s.notes(), []byte(strings.Join(noted, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	for _, dir := range missing {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// missingDirs lists what has to be made so that dirs are there, parents first.
func missingDirs(dirs []string) []string {
	var missing []string
	for _, dir := range dirs {
		var above []string
		for d := dir; d != "/"; d = filepath.Dir(d) {
			if _, err := os.Lstat(d); err == nil || slices.Contains(missing, d) {
				break
			}
			above = append(above, d)
		}
		slices.Reverse(above)
		missing = append(missing, above...)
	}
	return missing
}

func (s shared) noted() ([]string, error) {
	text, err := os.ReadFile(s.notes())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

// tidy removes the shared directories when there is no lab any more. It leaves a directory that has files or a mount of
// another program.
func (s shared) tidy() error {
	if _, err := os.Stat(s.root); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.locked(func() error {
		labs, err := s.names()
		if err != nil || len(labs) > 0 {
			return err
		}
		noted, err := s.noted()
		if err != nil {
			return err
		}
		slices.Reverse(noted)
		for _, dir := range noted {
			err := syscall.Rmdir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) &&
				!errors.Is(err, syscall.EBUSY) {
				return fmt.Errorf("remove %s: %w", dir, err)
			}
		}
		if err := s.restoreLimit(); err != nil {
			return err
		}
		for _, path := range []string{s.notes(), s.limit(), s.lock(), s.root} {
			err := os.Remove(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
				return err
			}
		}
		return nil
	})
}

// removeMounted removes a file on which something is mounted. It is no error if the file does not exist.
func removeMounted(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	err := os.Remove(path)
	switch {
	case errors.Is(err, unix.EBUSY):
		return removeHidden(path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// removeHidden removes a file on which something is mounted that another mount hides. The first `ip netns add` of a
// machine mounts /run/netns over itself, with the namespaces in it. From then on the earlier mounts have no path, and
// the kernel refuses to remove their files. But the kernel does remove a file that has mounts only in other mount
// namespaces, together with these mounts. So removeHidden unmounts them in a mount namespace of its own.
func removeHidden(path string) error {
	dir, name := filepath.Split(path)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("remove %s: unshare: %w", path, err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("remove %s: make mounts private: %w", path, err)
		}
		for {
			err := unix.Unlinkat(fd, name, 0)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			// First the mounts on the file, then a mount that hides more of them.
			if unix.Unmount(path, unix.MNT_DETACH) != nil && unix.Unmount(filepath.Dir(path), unix.MNT_DETACH) != nil {
				return fmt.Errorf("remove %s: %w", path, err)
			}
		}
	})
}

// names returns the names of the labs.
func (s shared) names() ([]string, error) {
	entries, err := os.ReadDir(s.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
