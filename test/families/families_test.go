// Package families tests clusters whose Pods and Services have IPv6, and joins them into a ClusterSet with tunnels over
// IPv6: one cluster of both families, and one of IPv6 alone. With -families.of=6 there are two of IPv6 alone.
package families

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// limit is how long a state may take to come, on a busy machine.
const limit = 2 * time.Minute

var (
	world    *scenario.Scenario
	clusters = []string{scenario.Leader, "east"}
	families []family.Families

	of = flag.String("families.of", "46,6", "IP families of the clusters "+strings.Join(clusters, " and ")+
		": 46 or 6, or one of them for each")
	mode      = flag.String("families.mode", config.Encap, "trafficEncapMode of the agents: encap, noEncap or hybrid")
	subnets   = flag.Int("families.subnets", 1, "subnets that the Nodes of a cluster are in: 1 or 2")
	encrypted = flag.Bool("families.encrypted", false, "encrypt between the clusters")
)

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if families, err = lab.ParseFamilies(*of); len(families) == 1 {
		families = slices.Repeat(families, len(clusters))
	}
	if err != nil || len(families) != len(clusters) || slices.Contains(families, family.IPv4) {
		fmt.Fprintf(os.Stderr, "-families.of=%s: want 46 or 6, or one of them for each of %d clusters with a comma between\n",
			*of, len(clusters))
		os.Exit(1)
	}
	setup := scenario.Setup{Name: "families", Clusters: clusters, Nodes: 2, Families: families, Encrypted: *encrypted,
		TrafficMode: *mode, Subnets: *subnets}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		world = s
		return m.Run()
	}))
}

// TestFamilies starts two servers, one on each Node, and a client on node-1. The servers are ready once the kubelet's
// probes are answered.
func TestFamilies(t *testing.T) {
	for i, name := range clusters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cluster{t: t, name: name, families: families[i]}
			c.start()
			t.Run("addresses", func(t *testing.T) { c.with(t).addresses() })
			t.Run("Pod to Pod", func(t *testing.T) { c.with(t).podToPod() })
			t.Run("ClusterIP", func(t *testing.T) { c.with(t).clusterIPs() })
			t.Run("names", func(t *testing.T) { c.with(t).names() })
			t.Run("outside", func(t *testing.T) { c.with(t).outside() })
			t.Run("host network", func(t *testing.T) { c.with(t).hostNetwork() })
			t.Run("policy", func(t *testing.T) { c.with(t).policy() })
		})
	}
}

// cluster is one of the two, and the test that looks at it.
type cluster struct {
	t        *testing.T
	name     string
	families family.Families
}

func (c *cluster) with(t *testing.T) *cluster { return &cluster{t, c.name, c.families} }

const workloads = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: echo
          image: tombolo/echo:dev
          imagePullPolicy: Never
          args: [serve]
          env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 5}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: default}
spec:
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  nodeName: node-1
  terminationGracePeriodSeconds: 1
  containers:
    - name: echo
      image: tombolo/echo:dev
      imagePullPolicy: Never
      args: [serve, --http, ":18080", --udp, ":18080"]
`

func (c *cluster) start() {
	c.t.Helper()
	ctx := c.t.Context()
	err := errors.Join(world.Apply(ctx, c.name, workloads), world.DNS(ctx, c.name),
		world.ClientPod(ctx, c.name, "client", "node-1"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.kubectl("rollout", "status", "daemonset/web", "--timeout=4m")
	c.kubectl("wait", "--for=condition=Ready", "pod/host", "--timeout=4m")
}

// addresses are of the cluster's families, IPv4 first: the kubelet's probes went to the first one.
func (c *cluster) addresses() {
	for _, what := range []string{"nodes {.items[*].spec.podCIDRs[*]}", "pods,-l,app=web {.items[*].status.podIPs[*].ip}",
		"service,web {.spec.clusterIPs[*]}"} {
		object, path, _ := strings.Cut(what, " ")
		have := c.list(append(strings.Split(object, ","), "-o", "jsonpath="+path)...)
		for i, a := range have {
			text, _, _ := strings.Cut(a, "/")
			want := c.families
			if want == family.Dual {
				want = []family.Families{family.IPv4, family.IPv6}[i%2]
			}
			if !want.Serve(netip.MustParseAddr(text)) {
				c.t.Errorf("%s: %v, want %s at %d", what, have, want, i)
			}
		}
	}
}

func (c *cluster) podToPod() {
	for _, ip := range c.list("pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.podIPs[*].ip}") {
		c.answers("client", ip, 8080, 4)
	}
}

// clusterIPs sends requests to the servers on both Nodes.
func (c *cluster) clusterIPs() {
	for _, ip := range c.serviceIPs() {
		out := c.answers("client", ip, 80, 24)
		for _, node := range []string{"node-1", "node-2"} {
			if !strings.Contains(out, "/"+node+"/") {
				c.t.Errorf("24 requests to %s, none answered on %s:\n%s", ip, node, out)
			}
		}
	}
}

// names asks the DNS server at each of its ClusterIPs.
func (c *cluster) names() {
	servers := c.list("service", "kube-dns", "-n", "kube-system", "-o", "jsonpath={.spec.clusterIPs[*]}")
	for _, ip := range c.serviceIPs() {
		var options []string
		if !netip.MustParseAddr(ip).Is4() {
			options = append(options, "--aaaa")
		}
		ask := func(options []string) {
			have, err := world.Resolve(c.t.Context(), c.name, "client", "web.default.svc.cluster.local", options...)
			if err != nil || !slices.Equal(have, []string{ip}) {
				c.t.Errorf("web has the addresses %v %v in DNS, asked with %v, want %s", have, err, options, ip)
			}
		}
		ask(options) // of the server in resolv.conf
		for _, server := range servers {
			ask(append(slices.Clone(options), "--server", server))
		}
	}
}

// outside reaches a host that knows Nodes only.
func (c *cluster) outside() {
	if c.families.Has4() {
		c.answers("client", world.Lab.Outside(), 8080, 4)
	}
	out := c.answers("client", world.Lab.Outside6(), 8080, 4, "--clients")
	var own string
	for _, a := range world.Lab.Cluster(c.name).Node("node-1").InternalIPs() {
		if !a.Is4() {
			own = a.String()
		}
	}
	if !strings.Contains(out, own) {
		c.t.Errorf("the host outside has seen other addresses than the Node's, %s:\n%s", own, out)
	}
}

// hostNetwork asks from a process of the Node, and such a process from a Pod.
func (c *cluster) hostNetwork() {
	for _, ip := range c.list("pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.podIPs[*].ip}") {
		c.answers("host", ip, 8080, 4)
	}
	for _, ip := range c.serviceIPs() {
		c.answers("host", ip, 80, 4)
	}
	for _, a := range world.Lab.Cluster(c.name).Node("node-1").InternalIPs() {
		if c.families.Serve(a) {
			c.answers("client", a.String(), 18080, 4)
		}
	}
}

// policy admits the client by its IPv6 address alone, then no client.
func (c *cluster) policy() {
	var allowed []string
	for _, ip := range c.list("pod", "client", "-o", "jsonpath={.status.podIPs[*].ip}") {
		if !netip.MustParseAddr(ip).Is4() {
			allowed = append(allowed, `{ipBlock: {cidr: "`+ip+`/128"}}`)
		}
	}
	const policy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [%s]}
`
	c.apply(fmt.Sprintf(policy, "{from: ["+strings.Join(allowed, ", ")+"]}"))
	ips := append(c.serviceIPs(), c.list("pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.podIPs[*].ip}")...)
	c.judged(ips, func(ip netip.Addr) bool { return !ip.Is4() })
	c.apply(fmt.Sprintf(policy, ""))
	c.judged(ips, func(netip.Addr) bool { return false })
	c.explained("denied")
	c.kubectl("delete", "networkpolicy", "web")
	c.judged(ips, func(netip.Addr) bool { return true })
	c.explained("allowed")
}

// explained asks node-1's agent about the client and the server there, in IPv6. The switch has to agree.
func (c *cluster) explained(want string) {
	c.t.Helper()
	var server string
	for _, pod := range c.list("pods", "-l", "app=web", "--field-selector", "spec.nodeName=node-1", "-o",
		"jsonpath={.items[*].metadata.name}") {
		server = "default/" + pod
	}
	node := world.Lab.Cluster(c.name).Node("node-1")
	out, err := node.Exec(c.t.Context(), filepath.Join(world.Lab.Repo(), "bin/tombolo"), "policy", "why", "--from",
		"default/client", "--to", server, "--port", "8080", "--family", "ipv6", "--trace")
	if err != nil || !strings.Contains(out, "/TCP: "+want) || strings.Count(out, "agrees") != 2 {
		c.t.Errorf("policy why: %v, want %q, and that the switch agrees twice:\n%s", err, want, out)
	}
}

// judged waits until the client reaches addresses as it should. A policy arrives at each Node at its own time.
func (c *cluster) judged(ips []string, allowed func(netip.Addr) bool) {
	c.t.Helper()
	services := c.serviceIPs()
	var all sync.WaitGroup
	for _, ip := range ips {
		port, want := uint16(8080), "0 answered, 3 failed"
		if slices.Contains(services, ip) {
			port = 80
		}
		if allowed(netip.MustParseAddr(ip)) {
			want = "3 answered, 0 failed"
		}
		all.Go(func() {
			err := scenario.Eventually(c.t.Context(), limit, func(ctx context.Context) error {
				out, _ := c.get(ctx, "client", ip, port, 3, "--timeout", "300ms")
				if !strings.Contains(out, want) {
					return fmt.Errorf("requests to %s, want %s:\n%s", ip, want, out)
				}
				return nil
			})
			if err != nil {
				c.t.Error(err)
			}
		})
	}
	all.Wait()
}

// answers wants all requests of a Pod answered, and returns what the client has printed.
func (c *cluster) answers(pod, ip string, port uint16, count int, options ...string) string {
	c.t.Helper()
	var out string
	err := scenario.Eventually(c.t.Context(), limit, func(ctx context.Context) (err error) {
		out, err = c.get(ctx, pod, ip, port, count, options...)
		return err
	})
	if err != nil {
		c.t.Errorf("from %s to %s port %d: %v\n%s", pod, ip, port, err, out)
	}
	return out
}

func (c *cluster) get(ctx context.Context, pod, ip string, port uint16, count int, options ...string) (string, error) {
	url := "http://" + netip.AddrPortFrom(netip.MustParseAddr(ip), port).String() + "/"
	return world.Exec(ctx, c.name, pod, append([]string{"/echo", "get", url, "--count", fmt.Sprint(count)}, options...)...)
}

func (c *cluster) serviceIPs() []string {
	return c.list("service", "web", "-o", "jsonpath={.spec.clusterIPs[*]}")
}

// list returns what kubectl get prints, word by word. It wants at least one.
func (c *cluster) list(args ...string) []string {
	c.t.Helper()
	words := strings.Fields(c.kubectl(append([]string{"get"}, args...)...))
	if len(words) == 0 {
		c.t.Fatalf("kubectl get %s prints nothing", strings.Join(args, " "))
	}
	return words
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := world.Kubectl(c.t.Context(), c.name, args...)
	if err != nil {
		c.t.Fatalf("kubectl %s in %s: %v\n%s", strings.Join(args, " "), c.name, err, out)
	}
	return out
}

func (c *cluster) apply(manifest string) {
	c.t.Helper()
	if err := world.Apply(c.t.Context(), c.name, manifest); err != nil {
		c.t.Fatal(err)
	}
}
