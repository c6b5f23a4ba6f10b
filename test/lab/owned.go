package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A lab must remove only its own objects. Names prove nothing: another program may use the same names. So a lab records
// the objects that it makes, and compares before it kills or removes:
//
//   - directories hold a marker file with the lab's name;
//   - network namespaces are recorded by inode and cookie, one file each in namespaceRecords;
//   - the link to the host carries the lab's name as its alias.

const (
	// markerFile marks a directory as a lab's. It holds the lab's name.
	markerFile = ".tombolo-lab"

	// namespaceRecords has one file for each network namespace of a lab. It is in /run, since network namespaces do not
	// survive a reboot either. It is outside of the labs' directories, so that a lab can be removed although its directory
	// was deleted.
	namespaceRecords = "/run/tombolo-lab"
)

// makeOwnDir makes a directory for a lab and marks it. An existing directory has to be empty, or marked as the same
// lab's: then the files of an earlier lab of that name are removed.
func makeOwnDir(dir, lab string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		owner, err := markedBy(dir)
		switch {
		case err != nil:
			return err
		case owner == "":
			return fmt.Errorf(
				"directory %s is not empty (it holds %s) and is not a lab's: name one that is empty or does not exist", dir,
				entries[0].Name())
		case owner != lab:
			return fmt.Errorf("directory %s belongs to lab %s: name another one for lab %s", dir, owner, lab)
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, markerFile), []byte(lab+"\n"), 0o644)
}

// markedBy returns the name of the lab that a directory is marked with; "" for none.
func markedBy(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, markerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// removeOwnDir removes a lab's files from a directory, and then the directory if it is empty. It leaves out a directory
// that is not marked as the lab's, unless it is empty, and files that the lab did not make. Both cause an error that
// names the remaining files.
func removeOwnDir(dir, lab string, made []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return os.Remove(dir)
	}
	owner, err := markedBy(dir)
	if err != nil {
		return err
	}
	if owner != lab {
		return fmt.Errorf("directory %s is not marked as lab %s's (%s does not name it): it was left as it is", dir, lab,
			markerFile)
	}
	var foreign []string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == markerFile: // last, so that an interrupted removal can be repeated
		case slices.Contains(made, name):
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return err
			}
		default:
			foreign = append(foreign, name)
		}
	}
	if err := os.Remove(filepath.Join(dir, markerFile)); err != nil {
		return err
	}
	if len(foreign) > 0 {
		return fmt.Errorf("directory %s holds files that lab %s did not make: %s were left there", dir, lab,
			strings.Join(foreign, ", "))
	}
	return os.Remove(dir)
}

// namespaceID identifies one network namespace. The kernel reuses the inode of a namespace that is gone, but never its
// cookie until the next boot. Kernels before 5.14 have no cookies.
type namespaceID struct{ inode, cookie uint64 }

func (id namespaceID) String() string { return fmt.Sprintf("%d %d\n", id.inode, id.cookie) }

// currentNamespace identifies the network namespace of the current thread.
func currentNamespace() (namespaceID, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return namespaceID{}, fmt.Errorf("current network namespace: %w", err)
	}
	id := namespaceID{inode: st.Ino}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return id, err
	}
	defer unix.Close(fd)
	id.cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		err = nil
	}
	return id, err
}

// identify identifies the namespace that has the place's name now.
func (p place) identify() (id namespaceID, err error) {
	err = p.do(func() error {
		id, err = currentNamespace()
		return err
	})
	return id, err
}

func (p place) recordPath() string { return filepath.Join(namespaceRecords, p.name) }

// remember records that a namespace is the lab's.
func (p place) remember(id namespaceID) error {
	for {
		if err := os.MkdirAll(namespaceRecords, 0o755); err != nil {
			return err
		}
		err := os.WriteFile(p.recordPath(), []byte(id.String()), 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another lab has gone meanwhile, and removed the directory
		}
		return err
	}
}

// forget removes the record, and the directory of all records after the last one.
func (p place) forget() error {
	if err := os.Remove(p.recordPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Remove(namespaceRecords)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// errForeign is about a namespace that another program made.
var errForeign = errors.New("was not made by the lab")

// own returns nil if the namespace with the place's name is the lab's own. It returns fs.ErrNotExist if no namespace
// has that name, and errForeign if it is another program's.
func (p place) own() error {
	if _, err := os.Lstat(p.path()); err != nil {
		return err
	}
	text, err := os.ReadFile(p.recordPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	have, err := p.identify()
	if errors.Is(err, unix.EINVAL) { // a plain file
		if text != nil {
			return nil // ours: making it was interrupted before it was mounted
		}
		return fmt.Errorf("%s %w, and is no network namespace: it was left as it is", p.path(), errForeign)
	}
	if err != nil {
		return err
	}
	if string(text) != have.String() {
		return fmt.Errorf("network namespace %s %w: it was left as it is", p.name, errForeign)
	}
	return nil
}

// recorded returns the places of a lab that there are records of.
func recorded(lab string) ([]place, error) {
	entries, err := os.ReadDir(namespaceRecords)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []place
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), lab+"-") {
			found = append(found, place{e.Name()})
		}
	}
	return found, nil
}

// ownPlaces returns the lab's existing network namespaces: recorded ones, and ones with names that the lab uses. The
// error names foreign namespaces with such names.
func ownPlaces(lab string, expected []place) (own []place, foreign error) {
	all, err := recorded(lab)
	if err != nil {
		return nil, err
	}
	for _, p := range expected {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	var errs []error
	for _, p := range all {
		switch err := p.own(); {
		case err == nil:
			own = append(own, p)
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return own, errors.Join(errs...)
}
