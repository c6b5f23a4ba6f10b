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
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Lab is a set of clusters on this machine and the network between them.
type Lab struct {
	record   record
	bin      binaries
	clusters []*Cluster
	progress func(string)
}

// Cluster is one Kubernetes cluster of a lab.
type Cluster struct {
	lab   *Lab
	name  string
	index int
	nodes []*Node
}

func newLab(r record, progress func(string)) *Lab {
	l := &Lab{record: r, bin: r.Binaries, progress: progress}
	for i, name := range r.Clusters {
		c := &Cluster{lab: l, name: name, index: i}
		for n := range r.Nodes {
			c.nodes = append(c.nodes, &Node{cluster: c, number: n + 1, name: fmt.Sprintf("node-%d", n+1)})
		}
		l.clusters = append(l.clusters, c)
	}
	return l
}

func (l *Lab) plan() plan { return plan{l.record.Index} }

func (l *Lab) report(format string, args ...any) {
	if l.progress != nil {
		l.progress(fmt.Sprintf(format, args...))
	}
}

// Name returns the lab's name.
func (l *Lab) Name() string { return l.record.Name }

// Dir returns the directory that holds the lab's files: a folder per cluster with its
// kubeconfig and logs.
func (l *Lab) Dir() string { return l.record.Dir }

// Repo returns the repository that the lab was made from.
func (l *Lab) Repo() string { return l.record.Binaries.Repo }

// Clusters returns all clusters in the order of Config.Clusters.
func (l *Lab) Clusters() []*Cluster { return l.clusters }

// Cluster returns a cluster by name. It panics if the cluster does not exist, since the caller has named the clusters
// itself.
func (l *Lab) Cluster(name string) *Cluster {
	for _, c := range l.clusters {
		if c.name == name {
			return c
		}
	}
	panic(fmt.Sprintf("lab %s has no cluster %s", l.Name(), name))
}

// Outside returns the IPv4 address of a host that belongs to no cluster. It serves the echo program on port 8080. It
// can answer only Nodes, since it has no route to Pods.
func (l *Lab) Outside() string { return outsideAddress }

// Outside6 returns the host's IPv6 address. It has one if a cluster of the lab has IPv6.
func (l *Lab) Outside6() string { return outsideAddress6 }

// OutsideExec runs a program on that host, and returns what it printed.
func (l *Lab) OutsideExec(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out string
	err := l.outside().do(func() (err error) {
		out, err = output(cmd)
		return err
	})
	return out, err
}

// RouterExec runs a program on the router between the clusters, with text as its input, and returns what it printed.
func (l *Lab) RouterExec(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out string
	err := l.router().do(func() (err error) {
		out, err = output(cmd)
		return err
	})
	return out, err
}

// OutsideRun runs a command on that host.
func (l *Lab) OutsideRun(cmd *exec.Cmd) error { return l.outside().do(cmd.Run) }

// Places outside the clusters.
func (l *Lab) router() place  { return place{l.Name() + "-router"} }
func (l *Lab) etcd() place    { return place{l.Name() + "-etcd"} }
func (l *Lab) outside() place { return place{l.Name() + "-outside"} }

// memory is a directory in memory for etcd's data: etcd syncs each write, and a lab need not survive a power failure.
func (l *Lab) memory() string { return memoryOf(l.Name()) }

func memoryOf(lab string) string { return "/dev/shm/tombolo-lab-" + lab }

// etcdDir is etcd's directory in the lab's memory.
const etcdDir = "etcd"

// files are the names of what a lab puts into its directory.
func (r record) files() []string {
	return append([]string{"lab.json", "pause.tar", "etcd.log", "outside.log"}, r.Clusters...)
}

// places are all network namespaces that a lab uses.
func (l *Lab) places() []place {
	all := []place{l.router(), l.etcd(), l.outside()}
	for _, c := range l.clusters {
		all = append(all, c.place())
		for _, n := range c.nodes {
			all = append(all, n.place())
		}
	}
	return all
}

// Up makes a lab. Its Nodes are registered and NotReady, since no network is installed. If it fails, it returns the
// incomplete lab, so that the caller can examine it and call Down.
func Up(ctx context.Context, config Config) (*Lab, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	bin, err := findBinaries()
	if err != nil {
		return nil, err
	}
	r, err := claim(config, bin)
	if err != nil {
		return nil, err
	}
	l := newLab(r, config.Progress)
	if err := l.writePause(); err != nil {
		return l, err
	}
	if err := l.network(); err != nil {
		return l, fmt.Errorf("lab %s: network: %w", l.Name(), err)
	}
	l.report("network is there: %d clusters behind one router", len(l.clusters))
	if err := l.startShared(ctx); err != nil {
		return l, fmt.Errorf("lab %s: %w", l.Name(), err)
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, c := range l.clusters {
		g.Go(func() error {
			if err := c.up(gctx); err != nil {
				return fmt.Errorf("cluster %s: %w", c.name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return l, fmt.Errorf("lab %s: %w", l.Name(), err)
	}
	return l, nil
}

// Open returns a lab that exists.
func Open(name string) (*Lab, error) {
	r, err := readRecord(name)
	if err != nil {
		return nil, err
	}
	return newLab(r, nil), nil
}

// SetProgress sets the function that is called with each step; for a lab that was opened.
func (l *Lab) SetProgress(f func(string)) { l.progress = f }

// network makes the router with a subnet for the host, etcd, the outside, and two for each
// cluster.
func (l *Lab) network() error {
	p, router := l.plan(), l.router()
	for _, pl := range []place{router, l.etcd(), l.outside()} {
		if err := pl.create(); err != nil {
			return err
		}
	}
	err := router.do(func() error { return sysctl("net/ipv4/ip_forward", "1") })
	if err != nil {
		return err
	}
	outNets := []netip.Prefix{netip.MustParsePrefix(outsideRouter + "/24")}
	outAddresses := []netip.Prefix{netip.MustParsePrefix(outsideAddress + "/24")}
	if l.has6() {
		outNets = append(outNets, netip.MustParsePrefix(outsideRouter6+"/64"))
		outAddresses = append(outAddresses, netip.MustParsePrefix(outsideAddress6+"/64"))
		if err := errors.Join(router.enableIPv6(), l.outside().enableIPv6()); err != nil {
			return err
		}
		if err := router.do(func() error { return sysctl("net/ipv6/conf/all/forwarding", "1") }); err != nil {
			return err
		}
	}
	if err := p.connectHost(l.Name(), router); err != nil {
		return err
	}
	etcdRouter := host(p.etcdNet(), routerHost)
	if err := router.bridge("etcd", on(etcdRouter, p.etcdNet())); err != nil {
		return err
	}
	if err := router.bridge("outside", outNets...); err != nil {
		return err
	}
	if err := router.plug(cable{bridge: "etcd", port: "etcd-0", to: l.etcd(), name: "eth0",
		addresses: []netip.Prefix{on(p.etcd(), p.etcdNet())}, routes: []route{{everywhere, etcdRouter}}}); err != nil {
		return err
	}
	out := cable{bridge: "outside", port: "outside-0", to: l.outside(), name: "eth0",
		addresses: outAddresses}
	for _, c := range l.clusters {
		subnets := c.mgmt()
		for s := range l.record.Subnets {
			subnets = append(subnets, c.transport(s)...)
		}
		for _, subnet := range subnets {
			via := outNets[0]
			if !subnet.Addr().Is4() {
				via = outNets[1]
			}
			out.routes = append(out.routes, route{subnet, via.Addr()})
		}
	}
	if err := router.plug(out); err != nil {
		return err
	}
	for i, c := range l.clusters {
		if err := router.bridge(mgmtBridge(i), hostsOn(c.mgmt(), routerHost)...); err != nil {
			return err
		}
		for s := range l.record.Subnets {
			if err := router.bridge(transportBridge(i, s), hostsOn(c.transport(s), routerHost)...); err != nil {
				return err
			}
		}
	}
	return nil
}

func mgmtBridge(cluster int) string              { return fmt.Sprintf("m%d", cluster) }
func transportBridge(cluster, subnet int) string { return fmt.Sprintf("%c%d", "tu"[subnet], cluster) }

// startShared starts what all clusters share: etcd, and the host outside.
func (l *Lab) startShared(ctx context.Context) error {
	if err := makeOwnDir(l.memory(), l.Name()); err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s:2379", l.plan().etcd())
	log := filepath.Join(l.Dir(), "etcd.log")
	etcd := exec.Command("etcd", "--name", l.Name(), "--data-dir", filepath.Join(l.memory(), etcdDir),
		"--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "warn")
	if err := start(l.etcd(), log, etcd); err != nil {
		return err
	}
	echo := exec.Command(filepath.Join(l.bin.Own, "echo"), "serve")
	echo.Env = append(os.Environ(), "CLUSTER=outside", "NODE_NAME=outside", "POD_NAME=outside")
	if err := start(l.outside(), filepath.Join(l.Dir(), "outside.log"), echo); err != nil {
		return err
	}
	err := eventually(ctx, bootLimit, func(ctx context.Context) error { return healthy(ctx, url+"/health", nil) })
	if err != nil {
		return fmt.Errorf("etcd does not answer: %w\n%s", err, tail(log))
	}
	return nil
}

// Down removes all objects of the lab. It continues after an error, and may be called again.
func (l *Lab) Down(ctx context.Context) error {
	err := Remove(ctx, l.Name())
	if err == nil {
		l.report("lab %s is gone", l.Name())
	}
	return err
}

// Remove removes the lab with a name in whatever state it is, even if Open cannot read it. It is no error if the lab
// does not exist. If another program has made an object with a name of the lab's, the object stays as it is. The error
// names it, after everything else has been removed.
func Remove(ctx context.Context, name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("lab name %q: use up to 16 lower-case letters and digits, a letter first", name)
	}
	r, recordErr := readRecord(name)
	var expected []place
	if recordErr == nil {
		expected = newLab(r, nil).places()
	}
	own, foreign := ownPlaces(name, expected)
	endCalls()
	var errs []error
	g := new(errgroup.Group)
	for _, p := range own {
		g.Go(func() error { return killInside(ctx, p, nil) })
	}
	errs = append(errs, g.Wait(), killStrays(ctx, name))
	if recordErr == nil {
		errs = append(errs, plan{r.Index}.disconnectHost(name))
	}
	for _, p := range own {
		errs = append(errs, p.remove())
	}
	errs = append(errs, removeCgroups(ctx, name))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take down lab %s: %w", name, errors.Join(err, foreign)) // the record stays, for the next try
	}
	// From here on nothing of the lab runs, and what is left alone is not the lab's.
	left := []error{foreign, removeOwnDir(memoryOf(name), name, []string{etcdDir}), removeRecord(name, r)}
	all, err := recorded(name)
	left = append(left, err)
	for _, p := range all {
		left = append(left, p.forget())
	}
	left = append(left, machine.tidy())
	if err := errors.Join(left...); err != nil {
		return fmt.Errorf("lab %s is down, but: %w", name, err)
	}
	return nil
}

// removeRecord removes the lab's directory, and last its name among the labs.
func removeRecord(name string, r record) error {
	link := filepath.Join(stateRoot, name)
	dir, err := filepath.EvalSymlinks(link)
	if errors.Is(err, fs.ErrNotExist) { // no lab, or one whose directory was deleted
		err = os.Remove(link)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	if err != nil {
		return err
	}
	left := removeOwnDir(dir, name, r.files())
	if dir != link {
		if err := os.Remove(link); err != nil {
			return errors.Join(left, err)
		}
	}
	return left
}

// killStrays kills first processes of Nodes whose network namespace has lost its name, and with them all processes in
// their PID namespaces. It finds them by the lab's name in their environment.
func killStrays(ctx context.Context, name string) error {
	return eventually(ctx, time.Minute, func(context.Context) error {
		inits, err := nodeInits(name)
		for _, pid := range inits {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if err == nil && len(inits) > 0 {
			err = fmt.Errorf("%d Nodes still run", len(inits))
		}
		return err
	})
}
