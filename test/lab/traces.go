package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tombolo-net/tombolo/test/lab/disk"
)

// Traces are objects that a lab could leave on a machine: names and processes of the lab, and settings and directories
// that all labs share. Other programs and other labs may run at the same time, so only objects that no other program
// would make are included.
type Traces struct {
	lab    string
	found  map[string]bool
	shared map[string]bool // what all labs of the machine have together
	alone  bool            // no other lab was there
}

// Snapshot looks at the machine. Take one before Up, and Compare it after Down.
func Snapshot(lab string) (Traces, error) {
	t := Traces{lab: lab, found: map[string]bool{}, shared: map[string]bool{}}
	for _, look := range []func() error{
		t.files, t.mounts, t.processes, t.links, t.tables, t.settings, t.directories,
	} {
		if err := look(); err != nil {
			return t, fmt.Errorf("look for traces of lab %s: %w", lab, err)
		}
	}
	// Asked last: a lab that came meanwhile may have made what was found.
	names, err := Names()
	t.alone = !slices.ContainsFunc(names, func(other string) bool { return other != lab })
	return t, err
}

// Compare returns an error with the objects that did not exist before. A killed process may take some seconds to go, so
// Compare waits for it.
func (t Traces) Compare(ctx context.Context) error {
	return eventually(ctx, time.Minute, func(context.Context) error {
		now, err := Snapshot(t.lab)
		if err != nil {
			return err
		}
		if left := t.left(now); len(left) > 0 {
			return fmt.Errorf("lab %s has left on the machine:\n  %s", t.lab, strings.Join(left, "\n  "))
		}
		return nil
	})
}

// left is what a later look finds more.
func (t Traces) left(now Traces) []string {
	var left []string
	for what := range now.found {
		if !t.found[what] {
			left = append(left, what)
		}
	}
	for what := range now.shared {
		if now.alone && !t.shared[what] {
			left = append(left, what)
		}
	}
	slices.Sort(left)
	return left
}

func (t Traces) add(format string, args ...any) { t.found[fmt.Sprintf(format, args...)] = true }

// files are network namespaces, cgroups and directories under the lab's name.
func (t Traces) files() error {
	for _, pattern := range []string{
		filepath.Join(netnsDir, t.lab+"-*"), "/sys/fs/cgroup/*" + cgroupOf(t.lab), "/sys/fs/cgroup" + cgroupOf(t.lab),
		"/sys/fs/cgroup/*/k8s.io", memoryOf(t.lab), filepath.Join(stateRoot, t.lab),
		filepath.Join(namespaceRecords, t.lab+"-*"),
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range paths {
			t.add("%s", path)
		}
	}
	return nil
}

func (t Traces) mounts() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		for _, mark := range []string{" " + netnsDir + "/" + t.lab + "-", stateRoot + "/" + t.lab, "tombolo-lab-" + t.lab} {
			if strings.Contains(line, mark) {
				t.add("mount %s", strings.TrimSpace(line))
			}
		}
	}
	return nil
}

// processes finds processes with the lab's name in their command line, environment or cgroup, and children of this
// process: a program that started a lab has started no others.
func (t Traces) processes() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		read := func(file string) string { // "" for one that has gone
			text, _ := os.ReadFile(filepath.Join("/proc", e.Name(), file))
			return string(text)
		}
		args := read("cmdline")
		if t.runs(args, read("environ"), read("cgroup")) || parent(read("stat")) == os.Getpid() {
			t.add("process %s: %s", e.Name(), strings.TrimSpace(strings.ReplaceAll(args, "\x00", " ")))
		}
	}
	return nil
}

// runs reports whether a process with these is one of the lab's.
func (t Traces) runs(args, env, cgroup string) bool {
	return strings.Contains("\x00"+env, "\x00"+envLab+"="+t.lab+"\x00") ||
		strings.HasPrefix(args, "nodeinit\x00"+t.lab+"\x00") ||
		strings.Contains(args, stateRoot+"/"+t.lab+"/") || strings.Contains(args, "/dev/shm/tombolo-lab-"+t.lab+"/") ||
		strings.Contains(cgroup+"\n", cgroupOf(t.lab)+"/") || strings.Contains(cgroup+"\n", cgroupOf(t.lab)+"\n")
}

// parent returns the fourth field of /proc/PID/stat. The second field is a name in parentheses, which may contain any
// characters (proc(5)).
func parent(stat string) int {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 2 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[1])
	return pid
}

// links of other labs come and go; this lab's has an index that no link uses afterwards.
func (t Traces) links() error {
	others := map[string]bool{}
	names, err := Names()
	if err != nil {
		return err
	}
	for _, other := range names {
		if r, err := readRecord(other); err == nil && other != t.lab {
			others[plan{r.Index}.hostLink()] = true
		}
	}
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, link := range links {
		if name := link.Attrs().Name; strings.HasPrefix(name, "tombolo") && !others[name] {
			t.add("link %s", name)
		}
	}
	return nil
}

// tables finds nftables tables that an agent would make if it ran on the machine itself.
func (t Traces) tables() error {
	out, err := output(exec.Command("nft", "list", "tables"))
	if err != nil {
		return fmt.Errorf("list the tables of nftables: %w", err)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "tombolo") || strings.Contains(line, "antrea") {
			t.add("nftables: %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// settings finds settings of the whole machine that a kubelet or an agent would change.
func (t Traces) settings() error {
	for _, path := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"net/ipv4/ip_forward"} {
		value, err := os.ReadFile(filepath.Join("/proc/sys", path))
		if err != nil {
			return err
		}
		t.add("setting %s=%s", path, strings.TrimSpace(string(value)))
	}
	return nil
}

// directories are the mount points of Nodes with their contents, and the labs' own directories. The last lab removes
// them.
func (t Traces) directories() error {
	for _, dir := range disk.Dirs {
		for d := dir; d != "/"; d = filepath.Dir(d) {
			if _, err := os.Lstat(d); err == nil {
				t.shared[d] = true
			}
		}
		if filepath.Base(dir) == "openvswitch" {
			continue // the machine may have one of its own, which writes there
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			t.shared[filepath.Join(dir, e.Name())] = true
		}
	}
	for _, path := range []string{stateRoot, namespaceRecords, machine.notes(), machine.lock()} {
		if _, err := os.Lstat(path); err == nil {
			t.shared[path] = true
		}
	}
	return nil
}
