package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tombolo-net/tombolo/pkg/family"
)

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Server returns the URL of the cluster's API server, reachable from all Nodes of the lab
// and from the machine itself.
func (c *Cluster) Server() string {
	return serverAt(host(c.lab.plan().mgmt(c.index), controlPlaneHost))
}

// nodeServer returns the URL by which the cluster's own Nodes reach it: of the family of the cluster's Services.
func (c *Cluster) nodeServer() string { return serverAt(c.addresses()[0]) }

// ServerFor returns the URL by which Nodes of another cluster reach it. The address is of a family of that cluster.
func (c *Cluster) ServerFor(other *Cluster) string {
	for _, a := range c.addresses() {
		if other.Families().Serve(a) {
			return serverAt(a)
		}
	}
	return c.Server()
}

func serverAt(a netip.Addr) string { return "https://" + netip.AddrPortFrom(a, 6443).String() }

// addresses are the control plane's, of the family of the cluster's Services first.
func (c *Cluster) addresses() []netip.Addr { return hosts(c.mgmt(), controlPlaneHost) }

// Kubeconfig returns the path of the administrator's kubeconfig. Its context is named
// after the cluster.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir(), "kubeconfig") }

// RESTConfig returns the administrator's client configuration.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
}

// Nodes returns the cluster's Nodes, node-1 first.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns a Node by name. It panics if the Node does not exist.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	panic(fmt.Sprintf("cluster %s has no Node %s", c.name, name))
}

// DNS are the addresses of the DNS servers in the cluster's Pods. They do not answer until a DNS server is installed.
func (c *Cluster) DNS() []netip.Addr { return hosts(c.services(), 10) }

func (c *Cluster) dir() string  { return filepath.Join(c.lab.Dir(), c.name) }
func (c *Cluster) place() place { return place{fmt.Sprintf("%s-%s-control", c.lab.Name(), c.name)} }

func (c *Cluster) file(name string) string { return filepath.Join(c.dir(), name) }

// up brings the control plane, then the Nodes, and waits until all are registered and have
// a range of Pod addresses.
func (c *Cluster) up(ctx context.Context) error {
	if err := os.MkdirAll(c.dir(), 0o755); err != nil {
		return err
	}
	if err := c.pki(); err != nil {
		return err
	}
	if err := c.place().create(); err != nil {
		return err
	}
	if c.Families().Has6() {
		if err := c.place().enableIPv6(); err != nil {
			return err
		}
	}
	err := c.lab.router().plug(cable{bridge: mgmtBridge(c.index), port: fmt.Sprintf("m%d-control", c.index),
		to: c.place(), name: "eth0", addresses: hostsOn(c.mgmt(), controlPlaneHost), routes: defaults(c.mgmt())})
	if err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.component("kube-controller-manager", c.controllerManagerFlags()); err != nil {
		return err
	}
	if err := c.component("kube-scheduler", c.schedulerFlags()); err != nil {
		return err
	}
	c.lab.report("%s: control plane is up", c.name)
	g, gctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		g.Go(func() error {
			if err := n.PowerOn(gctx); err != nil {
				return fmt.Errorf("Node %s: %w", n.name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := c.registered(ctx); err != nil {
		return err
	}
	c.lab.report("%s: %d Nodes are registered", c.name, len(c.nodes))
	return nil
}

func (c *Cluster) component(name string, flags []string) error {
	cmd := exec.Command(filepath.Join(c.lab.bin.Kubernetes, name), flags...)
	return start(c.place(), c.file(name+".log"), cmd)
}

func (c *Cluster) apiServerFlags() []string {
	flags := []string{
		"--advertise-address=" + c.addresses()[0].String(),
		"--secure-port=6443",
		"--etcd-servers=http://" + c.lab.plan().etcd().String() + ":2379",
		"--etcd-prefix=/" + c.name,
		"--service-cluster-ip-range=" + joined(c.services()),
		"--allow-privileged",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-aggregator-routing", // no kube-proxy here: webhooks are called at their endpoints
		"--kubelet-preferred-address-types=InternalIP",
		"--client-ca-file=" + c.file("ca.crt"),
		"--tls-cert-file=" + c.file("apiserver.crt"),
		"--tls-private-key-file=" + c.file("apiserver.key"),
		"--kubelet-client-certificate=" + c.file("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + c.file("apiserver-kubelet-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.file("sa.pub"),
		"--service-account-signing-key-file=" + c.file("sa.key"),
		"--requestheader-client-ca-file=" + c.file("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.file("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.file("front-proxy-client.key"),
		"--endpoint-reconciler-type=lease",
	}
	if c.Families().Has6() {
		flags = append(flags, "--bind-address=::") // the default is IPv4 alone
	}
	return flags
}

func (c *Cluster) controllerManagerFlags() []string {
	config := c.file("controller-manager.kubeconfig")
	flags := []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + c.file("sa.key"),
		"--root-ca-file=" + c.file("ca.crt"),
		"--allocate-node-cidrs",
		"--cluster-cidr=" + joined(c.pods()),
		"--service-cluster-ip-range=" + joined(c.services()),
		"--flex-volume-plugin-dir=" + c.file("volumeplugins"), // the default is one of the machine's, and it makes it
		"--node-monitor-period=2s",
		"--node-monitor-grace-period=" + c.lab.record.NodeGrace.String(),
	}
	switch c.Families() {
	case family.IPv4:
		return append(flags, "--node-cidr-mask-size=24")
	case family.IPv6:
		return append(flags, "--node-cidr-mask-size=64")
	}
	return append(flags, "--node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size-ipv6=64")
}

func (c *Cluster) schedulerFlags() []string {
	config := c.file("scheduler.kubeconfig")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
	}
}

// StartAPIServer starts the API server and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.component("kube-apiserver", c.apiServerFlags()); err != nil {
		return err
	}
	config, err := c.RESTConfig()
	if err != nil {
		return err
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	err = eventually(ctx, bootLimit, func(ctx context.Context) error {
		if _, running, err := named(c.place(), "kube-apiserver"); err == nil && !running {
			return fmt.Errorf("it has ended:\n%s", tail(c.file("kube-apiserver.log")))
		}
		return healthy(ctx, c.Server()+"/readyz", tlsConfig)
	})
	if err != nil {
		return fmt.Errorf("API server of cluster %s is not ready: %w", c.name, err)
	}
	return nil
}

// APIServer returns the API server's process.
func (c *Cluster) APIServer() (Process, error) {
	p, running, err := named(c.place(), "kube-apiserver")
	if err == nil && !running {
		err = fmt.Errorf("the API server of cluster %s does not run", c.name)
	}
	return Process{p.pid, p.args}, err
}

// StopAPIServer stops the API server as a restart of its host would: it gets SIGKILL.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	return killInside(ctx, c.place(), func(p process) bool { return p.name() == "kube-apiserver" })
}

// healthy asks a URL and wants status 200.
func healthy(ctx context.Context, url string, tlsConfig *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// registered waits for the Nodes' objects and their ranges of Pod addresses. It gives the control plane routes
// to these, so that the API server reaches webhooks in Pods.
func (c *Cluster) registered(ctx context.Context) error {
	return eventually(ctx, bootLimit, func(ctx context.Context) error {
		ranges, err := c.podRanges(ctx)
		if err != nil {
			return err
		}
		for _, n := range c.nodes {
			for _, to := range ranges[n.name] {
				for _, via := range hosts(c.nodeMgmt(), firstMgmt+n.number) {
					if via.Is4() != to.Addr().Is4() {
						continue
					}
					if err := c.place().do(func() error { return addRoute("eth0", route{to, via}) }); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// podRanges returns the ranges of Pod addresses of all Nodes by name. It returns an error while a Node lacks them.
func (c *Cluster) podRanges(ctx context.Context) (map[string][]netip.Prefix, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	out := map[string][]netip.Prefix{}
	for _, n := range c.nodes {
		node, err := client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("%w; kubelet says:\n%s", err, tail(n.file("kubelet.log")))
		}
		if have, want := len(node.Spec.PodCIDRs), len(c.pods()); have != want {
			return nil, fmt.Errorf("Node %s has %d podCIDRs yet, want %d", n.name, have, want)
		}
		for _, cidr := range node.Spec.PodCIDRs {
			out[n.name] = append(out[n.name], prefix("%s", cidr))
		}
	}
	return out, nil
}

// Tool runs bin/tombolo, under its name or as antctl, as the cluster's administrator.
func (l *Lab) Tool(ctx context.Context, cluster, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(l.bin.Own, "tombolo"), args...)
	cmd.Args[0] = name
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Cluster(cluster).Kubeconfig())
	// As by Ctrl-C: what a command made is the command's to take away.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 90 * time.Second
	out, err := output(cmd)
	if err != nil {
		return out, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}
