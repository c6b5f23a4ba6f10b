package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Node is one machine of a cluster.
type Node struct {
	cluster *Cluster
	number  int // from 1
	name    string
}

// Link is one of a Node's two cables.
type Link string

// Every Node has these.
const (
	Mgmt      Link = "mgmt"      // eth0: to the API servers
	Transport Link = "transport" // eth1: to other Nodes and the world; the Node's InternalIP
)

// Name returns the Node's name in its cluster.
func (n *Node) Name() string { return n.name }

// String returns "cluster/node".
func (n *Node) String() string { return n.cluster.name + "/" + n.name }

// InternalIP returns the Node's address on the transport network, of the family of the cluster's Services.
func (n *Node) InternalIP() string { return n.InternalIPs()[0].String() }

// InternalIPs returns all of them, as the Node's status has them.
func (n *Node) InternalIPs() []netip.Addr {
	return hosts(n.transport(), firstTransport+n.number)
}

// Subnet is the number of the Node's subnet of eth1, from 0.
func (n *Node) Subnet() int { return (n.number - 1) % max(n.cluster.lab.record.Subnets, 1) }

func (n *Node) transport() []netip.Prefix { return n.cluster.nodeTransport(n.Subnet()) }

func (n *Node) place() place {
	return place{fmt.Sprintf("%s-%s-%s", n.cluster.lab.Name(), n.cluster.name, n.name)}
}

func (n *Node) dir() string { return n.cluster.file(n.name) }

func (n *Node) file(name string) string { return filepath.Join(n.dir(), name) }

// port is the router's end of one of the Node's cables.
func (n *Node) port(l Link) string {
	bridge := transportBridge(n.cluster.index, n.Subnet())
	if l == Mgmt {
		bridge = mgmtBridge(n.cluster.index)
	}
	return fmt.Sprintf("%s-%d", bridge, n.number)
}

// initArgs is the command line of the Node's first process, by which it is found.
func (n *Node) initArgs() []string {
	return []string{"nodeinit", n.cluster.lab.Name(), n.String(), n.dir()}
}

// nodeInits returns the first processes of a lab's Nodes by their command lines.
func nodeInits(lab string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !strings.HasPrefix(string(text), "nodeinit\x00"+lab+"\x00") {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+envLab+"="+lab+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// init returns the process ID of the Node's first process.
func (n *Node) init() (int, error) {
	all, err := inside(n.place())
	if err != nil {
		return 0, err
	}
	want := strings.Join(n.initArgs(), "\x00")
	for _, p := range all {
		if strings.Join(p.args, "\x00") == want {
			return p.pid, nil
		}
	}
	return 0, fmt.Errorf("Node %s is off", n)
}

// On reports whether the Node has power.
func (n *Node) On() bool {
	_, err := n.init()
	return err == nil
}

// PowerOn boots the Node: first its links, as a network administrator has configured them, then containerd and the
// kubelet. The files on its disk have survived.
func (n *Node) PowerOn(ctx context.Context) error {
	if n.On() {
		return nil
	}
	if err := n.wire(); err != nil {
		return err
	}
	if err := n.boot(ctx); err != nil {
		return err
	}
	if err := n.startContainerd(ctx); err != nil {
		return err
	}
	return n.StartKubelet()
}

// wire makes the Node's network namespace again and plugs its cables in.
func (n *Node) wire() error {
	c, l, p := n.cluster, n.cluster.lab, n.cluster.lab.plan()
	for _, link := range []Link{Mgmt, Transport} {
		if err := l.router().unplug(n.port(link)); err != nil {
			return err
		}
	}
	if err := n.place().remove(); err != nil {
		return err
	}
	if err := n.place().create(); err != nil {
		return err
	}
	if err := n.place().do(func() error { return sysctl("net/ipv4/ip_forward", "1") }); err != nil {
		return err
	}
	var routes []route
	if c.Families().Has4() {
		routes = append(routes, route{p.all(), host(p.mgmt(c.index), routerHost)})
	}
	if c.Families().Has6() {
		if err := n.place().enableIPv6(); err != nil {
			return err
		}
		routes = append(routes, route{p.all6(), host(p.mgmt6(c.index), routerHost)})
	}
	err := l.router().plug(cable{bridge: mgmtBridge(c.index), port: n.port(Mgmt), to: n.place(), name: "eth0",
		addresses: hostsOn(c.nodeMgmt(), firstMgmt+n.number), routes: routes})
	if err != nil {
		return err
	}
	return l.router().plug(cable{bridge: transportBridge(c.index, n.Subnet()), port: n.port(Transport), to: n.place(),
		name: "eth1", addresses: hostsOn(n.transport(), firstTransport+n.number), routes: defaults(n.transport())})
}

// boot starts the Node's first process in its namespaces and waits for its mounts.
func (n *Node) boot(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(n.dir(), "root/opt/cni/bin"), 0o755); err != nil {
		return err
	}
	for _, plugin := range []string{"loopback"} {
		err := copyFile(filepath.Join(n.cluster.lab.bin.Kubernetes, plugin), n.file("root/opt/cni/bin/"+plugin))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := n.writeConfigs(); err != nil {
		return err
	}
	ready := n.file("ready")
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := n.makeCgroups(); err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: filepath.Join(n.cluster.lab.bin.Own, "nodeinit"),
		Args: n.initArgs(),
		Env:  append(os.Environ(), "NODEINIT_CGROUP="+n.cgroup()),
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		},
	}
	log := n.file("init.log")
	if err := start(n.place(), log, cmd); err != nil {
		return err
	}
	return eventually(ctx, bootLimit, func(context.Context) error {
		if !n.On() {
			return fmt.Errorf("first process has ended: %s", tail(log))
		}
		_, err := os.Stat(ready)
		return err
	})
}

// command runs a program on the Node.
func (n *Node) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	pid, err := n.init()
	if err != nil {
		return nil, err
	}
	all := append([]string{"-t", strconv.Itoa(pid), "-m", "-n", "-p", "-u", "-i", "-C", "--"}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", all...)
	cmd.Env = append(os.Environ(), "PATH="+n.cluster.lab.bin.Kubernetes+
		":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"CONTAINERD_NAMESPACE=k8s.io")
	return cmd, nil
}

// Command returns a command that will run on the Node, for callers that want its streams.
func (n *Node) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	return n.command(ctx, args...)
}

// Exec runs a program on the Node, in its network, mount and PID namespaces, and returns the program's output.
func (n *Node) Exec(ctx context.Context, args ...string) (string, error) {
	cmd, err := n.command(ctx, args...)
	if err != nil {
		return "", err
	}
	out, err := output(cmd)
	if err != nil {
		return out, fmt.Errorf("%s on Node %s: %w", strings.Join(args, " "), n, err)
	}
	return out, nil
}

// Process is one that runs on a Node or in a control plane.
type Process struct {
	PID  int      // on this machine
	Args []string // its command line
}

// Name returns what the process was called as, without its folder.
func (p Process) Name() string { return process{args: p.Args}.name() }

// Processes returns all processes on the Node, including those in Pods. It leaves out processes that have been forked
// only to execute another program.
func (n *Node) Processes() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	parents, args := map[int]int{}, map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cgroups, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err != nil || !strings.Contains(strings.ReplaceAll(string(cgroups), "\n", "/"), n.cgroup()+"/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(text) == 0 { // gone, or a zombie
			continue
		}
		status, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if err != nil {
			continue
		}
		_, parent, _ := strings.Cut(string(status), "\nPPid:\t")
		parent, _, _ = strings.Cut(parent, "\n")
		if parents[pid], err = strconv.Atoi(parent); err != nil {
			return nil, fmt.Errorf("/proc/%d/status: the parent is %q: %w", pid, parent, err)
		}
		args[pid] = string(text)
		found = append(found, Process{pid, strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")})
	}
	return slices.DeleteFunc(found, func(p Process) bool { return args[p.PID] == args[parents[p.PID]] }), nil
}

// Signal sends a signal to all processes with a name on the Node itself, and in its host-network Pods. If there is no
// such process, that is an error.
func (n *Node) Signal(name string, signal syscall.Signal) error {
	all, err := inside(n.place())
	if err != nil {
		return err
	}
	found := false
	for _, p := range all {
		if p.name() != name {
			continue
		}
		found = true
		if err := unix.Kill(p.pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("signal %s (%d) on Node %s: %w", name, p.pid, n, err)
		}
	}
	if !found {
		return fmt.Errorf("no process %s runs on Node %s", name, n)
	}
	return nil
}

// KillAll cuts the Node's power: all its processes end at once, its links go down, and only the files on its disk stay.
// PowerOn boots it again.
func (n *Node) KillAll(ctx context.Context) error {
	for _, link := range []Link{Mgmt, Transport} {
		if err := n.cluster.lab.router().unplug(n.port(link)); err != nil {
			return err
		}
	}
	if err := killInside(ctx, n.place(), nil); err != nil {
		return err
	}
	return n.place().remove()
}

// Cut pulls the named cables, or all without names. Heal plugs them in again.
func (n *Node) Cut(links ...Link) error { return n.carrier(false, links) }

// Heal undoes Cut.
func (n *Node) Heal(links ...Link) error { return n.carrier(true, links) }

func (n *Node) carrier(up bool, links []Link) error {
	if len(links) == 0 {
		links = []Link{Mgmt, Transport}
	}
	for _, link := range links {
		if err := n.cluster.lab.router().carrier(n.port(link), up); err != nil {
			return fmt.Errorf("Node %s: %w", n, err)
		}
	}
	return nil
}

// LoadImage brings the images of a tar archive (as `docker save` writes it) to the Node.
func (n *Node) LoadImage(ctx context.Context, tar string) error {
	path, err := filepath.Abs(tar)
	if err != nil {
		return err
	}
	if _, err := n.Exec(ctx, "ctr", "images", "import", "--local", path); err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	// By rename: the old one may be running.
	if err := os.WriteFile(to+".new", data, 0o755); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}

// ContainerRoot returns the path by which the machine sees the file system of a container of the Node.
func (n *Node) ContainerRoot(id string) (string, error) {
	for _, form := range []string{"/sys/fs/cgroup/*%s/k8s.io/%s/cgroup.procs", "/sys/fs/cgroup%s/k8s.io/%s/cgroup.procs"} {
		files, err := filepath.Glob(fmt.Sprintf(form, n.cgroup(), id))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if pid, _, ok := strings.Cut(string(text), "\n"); err == nil && ok {
				return filepath.Join("/proc", pid, "root"), nil
			}
		}
	}
	return "", fmt.Errorf("Node %s has no process of container %s", n, id)
}
