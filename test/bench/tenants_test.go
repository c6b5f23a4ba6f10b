package bench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	plumbingv1 "github.com/tombolo-net/tombolo/pkg/apis/plumbing/v1"
	"github.com/tombolo-net/tombolo/pkg/cluster/tenants"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/unserved"
)

// The size of BenchmarkTableTenants.
const (
	tenantNetworks    = 1000 // in the cluster
	tenantsHere       = 10   // of them on this Node
	tenantPods        = 10   // of each
	tenantConnections = 1000 // whose megaflows are counted
	tenantClients     = 8
	tenantServers     = 3
	tenantAtOnce      = 4  // connections that each client makes at a time
	tenantRounds      = 21 // of each rate, of which the median counts
	tenantAdds        = 60 // of each kind of Pod
)

var tenantTime = flag.Duration("tenants.time", 500*time.Millisecond,
	"how long each rate of BenchmarkTableTenants is measured")

// BenchmarkTableTenants prints what networks of tenants cost a Node, as ratios to the default network in the same run.
// The Node is as in BenchmarkTableCNI, with few Services. Its Pods of each kind of network have the same programs.
func BenchmarkTableTenants(b *testing.B) {
	bin := onNode(b, buildPlugin, "-cni.services=10", "-cni.nodes=10", "-tenants.time="+tenantTime.String())
	if bin == "" {
		return
	}
	fmt.Printf("\nnetworks of tenants, one Node, its userspace datapath, median of %d rounds of %s\n\n", tenantRounds,
		*tenantTime)
	t := table{b}
	many, one := tenantFlows(b, tenantsHere), tenantFlows(b, 1)
	t.atMost(fmt.Sprintf("flows: %d networks, %d of them here, to one", tenantNetworks, tenantsHere), float64(many),
		float64(one), 1.2, "flows")

	conf := config.Default()
	conf.FeatureGates = map[string]bool{"TenantNetworks": true}
	conf.TenantNetworks.SubnetCIDRs = []string{"10.0.0.0/8"}
	n := newBenchNode(b, bin, conf)
	r := &tenantBench{benchNode: n, plugin: n.tombolo()}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	r.begin()
	// The first two are alike, and the reference is their mean. Pods of one kind differ in the order of their ports.
	kinds := []tenantKind{{name: "default"}, {name: "default again"}, {name: "in a network", from: "in", to: "in"},
		{name: "across networks", from: "in", to: "joined"}, {name: "virtual network", virtual: true},
		{name: "across virtual networks", virtual: true, across: true}}
	for i := range kinds {
		r.pods(&kinds[i])
	}
	flows := make([]int, len(kinds))
	rates, streams := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	for range tenantRounds {
		for _, i := range rand.Perm(len(kinds)) {
			rates[i] = append(rates[i], r.rate(kinds[i]))
			streams[i] = append(streams[i], r.stream(kinds[i]))
		}
	}
	n.ovs.Vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000") // megaflows stay until they are counted
	for i, k := range kinds {
		flows[i] = r.megaflows(k)
	}
	for i, k := range kinds[2:] {
		t.atMost(fmt.Sprintf("megaflows of %d connections, %s", tenantConnections, k.name), float64(flows[i+2]),
			float64(flows[0]), 1.1, "megaflows")
	}
	for i, k := range kinds[1:] {
		references, limit := [][]float64{means(rates[0], rates[1]), means(streams[0], streams[1])}, 0.95
		if i == 0 {
			references, limit = [][]float64{rates[0], streams[0]}, 0
		}
		t.atLeast("connections a second, "+k.name, rates[i+1], references[0], limit, "a second")
		t.atLeast("stream, bytes a second, "+k.name, streams[i+1], references[1], limit, "a second")
	}
	r.add("virtual", ownNetwork) // stays, as its Node's claim to a block of addresses does
	adds := []struct{ namespace, network string }{
		{"default", ""}, {"in", ""}, {"virtual", ownNetwork}, {"virtual", "blue"}}
	var plain, isolated, virtual, own []time.Duration
	for i := range tenantAdds + 3 {
		each := make([]time.Duration, len(adds))
		for _, k := range rand.Perm(len(adds)) { // the kernel is still removing the Pod before
			each[k] = r.timed(adds[k].namespace, adds[k].network)
		}
		if i >= 3 {
			plain, isolated = append(plain, each[0]), append(isolated, each[1])
			own, virtual = append(own, each[2]), append(virtual, each[3])
		}
	}
	t.atMost("CNI ADD in an isolated Namespace, p50", percentile(isolated, 50), percentile(plain, 50), 1.15, "ms")
	t.atMost("CNI ADD in a VirtualNetwork, p50", percentile(own, 50), percentile(plain, 50), 1.15, "ms")
	t.atMost("CNI ADD with a second interface, p50", percentile(virtual, 50), percentile(plain, 50), 2, "ms")
	fmt.Println()
}

func (t table) atMost(what string, value, reference, limit float64, unit string) {
	t.row(what, fmt.Sprintf("%.2f", value/reference), fmt.Sprintf("<= %.2f", limit), value <= limit*reference,
		fmt.Sprintf("%.4g to %.4g %s", value, reference, unit))
}

// means returns the means of figures of the same rounds.
func means(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = (a[i] + b[i]) / 2
	}
	return out
}

// atLeast compares the figures of each round with each other: other work on the machine changes from round to round.
func (t table) atLeast(what string, values, references []float64, limit float64, unit string) {
	var ratios []float64
	for i, v := range values {
		ratios = append(ratios, v/references[i])
	}
	middle := func(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }
	ratio := middle(ratios)
	t.row(what, fmt.Sprintf("%.2f", ratio), fmt.Sprintf(">= %.2f", limit), ratio >= limit,
		fmt.Sprintf("%.4g to %.4g %s", middle(values), middle(references), unit))
}

// tenantFlows returns the flows of a Node whose Pods are in so many networks of a cluster with many.
func tenantFlows(b *testing.B, networks int) int {
	b.Helper()
	node, far := netip.MustParseAddr("192.168.78.101"), netip.MustParseAddr("192.168.78.102")
	s := datapath.State{
		Node: datapath.Node{
			Name: "node-1", GatewayMAC: ofp.MAC{0x0a, 0, 0, 0, 0, 1}, GatewayPort: 2, PacketInRate: 5000,
			GatewayIPs: []netip.Addr{netip.MustParseAddr("10.11.0.1")}, ServiceVIP: netip.MustParseAddr("169.254.0.253"),
			PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.11.0.0/24")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")},
			Tunnels: datapath.Tunnels{Port: 1, Ends: []netip.Addr{node}, Source: node, PeerSource: node,
				Outer: datapath.Tunnel{Protocol: 17, Port: 6081}},
		},
		RemoteNodes: []datapath.RemoteNode{{Name: "node-2", Address: far,
			PodCIDRs:   []netip.Prefix{netip.MustParsePrefix("10.11.1.0/24")},
			GatewayIPs: []netip.Addr{netip.MustParseAddr("10.11.1.1")}}},
		Places: map[string]tenant.Place{"default": {Known: true}},
	}
	for i := range tenantNetworks {
		name := fmt.Sprint("tenant-", i)
		s.Places[name] = tenant.Place{Known: true, ID: tenant.ID(5000 + i),
			Network: tenant.Name{Door: "isolated", Namespace: name, Name: name}}
	}
	ip := s.Node.GatewayIPs[0]
	for i := range tenantsHere * tenantPods {
		ip = ip.Next()
		s.Pods = append(s.Pods, datapath.Pod{Namespace: fmt.Sprint("tenant-", i%networks), Name: fmt.Sprint("pod-", i),
			Interface: fmt.Sprint("pod-", i), MAC: ofp.MAC{0x0a, 0, 0, 1, 0, byte(i)}, IPs: []netip.Addr{ip},
			Port: ofp.Port(10 + i)})
	}
	owners, problems := datapath.Plan(s)
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	flows := 0
	for _, e := range owners {
		flows += len(e.Flows)
	}
	return flows
}

// tenantKind is a kind of network that clients and servers are in.
type tenantKind struct {
	name     string
	from, to string // Namespaces; "" for default
	virtual  bool   // their further interfaces are in a VirtualNetwork
	across   bool   // clients are in one, and servers in another that is joined with it

	clients []benchPod
	servers []netip.Addr
}

// tenantBench is a Node with networks of tenants.
type tenantBench struct {
	*benchNode
	plugin cniPlugin
	api    client.Client
}

// begin makes the networks, and runs the controller that gives addresses.
func (r *tenantBench) begin() {
	r.b.Helper()
	scheme := runtime.NewScheme()
	r.must(errors.Join(clientgoscheme.AddToScheme(scheme), contrailv4.AddToScheme(scheme), plumbingv1.AddToScheme(scheme)))
	rest := *r.rest
	rest.QPS = -1
	var err error
	r.api, err = client.New(&rest, client.Options{Scheme: scheme})
	r.must(err)
	mgr, err := ctrl.NewManager(&rest, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)}})
	r.must(err)
	r.must(tenants.SetupWithManager(mgr, metav1.NamespaceSystem))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	r.b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.b.Errorf("the controller ended with: %v", err)
		}
	})
	isolated := map[string]string{tenant.LabelIsolated: "true"}
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"vn": name}}
	}
	router := func(namespace, other string) *contrailv4.VirtualNetworkRouter {
		v := &contrailv4.VirtualNetworkRouter{ObjectMeta: at(namespace, "router"), Spec: contrailv4.VirtualNetworkRouterSpec{
			Type: contrailv4.TypeMesh, VirtualNetworkSelector: &metav1.LabelSelector{}}}
		if other != "" {
			there := map[string]string{corev1.LabelMetadataName: other}
			v.Spec.Import.VirtualNetworkRouters = []contrailv4.VirtualNetworkRouterEntry{{
				VirtualNetworkRouterSelector: &metav1.LabelSelector{MatchLabels: v.Labels},
				NamespaceSelector:            &metav1.LabelSelector{MatchLabels: there}}}
		}
		return v
	}
	definition := func(name, cidr string) *plumbingv1.NetworkAttachmentDefinition {
		d := &plumbingv1.NetworkAttachmentDefinition{ObjectMeta: at("virtual", name)}
		d.Annotations = map[string]string{tenant.AnnotationDefinition: fmt.Sprintf(`{"ipamV4Subnet": %q, "podNetwork": %t}`,
			cidr, name == ownNetwork)}
		d.Spec.Config = `{"type": "contrail-k8s-cni"}`
		return d
	}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: at(metav1.NamespaceSystem, unserved.AgentsConfig), Data: map[string]string{
			"antrea-agent.conf": "featureGates: {TenantNetworks: true}\ntenantNetworks: {subnetCIDRs: [10.0.0.0/8]}\n"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "in", Labels: isolated}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "joined", Labels: isolated}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "virtual"}},
		&contrailv4.VirtualNetwork{ObjectMeta: at("in", contrailv4.DefaultPodNetwork)},
		&contrailv4.VirtualNetwork{ObjectMeta: at("joined", contrailv4.DefaultPodNetwork)},
		router("in", "joined"), router("joined", "in"), router("virtual", ""),
		definition("blue", "10.200.0.0/16"), definition("red", "10.201.0.0/16"),
		definition(ownNetwork, "10.202.0.0/16"),
	} {
		r.must(client.IgnoreAlreadyExists(r.api.Create(r.b.Context(), o)))
	}
}

// ownNetwork is the VirtualNetwork that Pods have as their own network.
const ownNetwork = "own"

// add makes a Pod. It returns its first address, or the address of its further interface.
func (r *tenantBench) add(namespace, network string) (benchPod, netip.Addr, time.Duration) {
	r.b.Helper()
	p := r.pod()
	p.namespace = namespace
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.name}}
	switch network {
	case "":
	case ownNetwork:
		o.Annotations = map[string]string{tenant.AnnotationPodNetwork: network}
	default:
		o.Annotations = map[string]string{tenant.AnnotationNetworks: network}
	}
	o.Spec.NodeName, o.Spec.AutomountServiceAccountToken = "node-1", new(false)
	o.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	r.must(r.api.Create(r.b.Context(), o))
	p.uid = string(o.UID)
	took, out, err := r.plugin.answer("ADD", p)
	r.must(err)
	var result struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	r.must(json.Unmarshal(out, &result))
	ip := result.IPs[0].Address.Addr()
	if network != "" && network != ownNetwork {
		r.must(inNetns(p.netns, func() error {
			link, err := net.InterfaceByName("eth1")
			if err != nil {
				return err
			}
			list, err := link.Addrs()
			for _, a := range list {
				if own, err := netip.ParsePrefix(a.String()); err == nil && own.Addr().Is4() {
					ip = own.Addr()
				}
			}
			return err
		}))
	}
	return p, ip, took
}

// timed returns how long the ADD of a Pod takes, and removes the Pod.
func (r *tenantBench) timed(namespace, network string) time.Duration {
	r.b.Helper()
	p, _, took := r.add(namespace, network)
	r.plugin.must("DEL", p)
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.name}}
	r.must(r.api.Delete(r.b.Context(), o, client.GracePeriodSeconds(0)))
	p.remove()
	return took
}

const tenantPort, tenantSink = 8081, 8082

// pods makes the clients and servers of a kind, once they reach each other.
func (r *tenantBench) pods(k *tenantKind) {
	r.b.Helper()
	from, to, network, other := k.from, k.to, "", ""
	if from == "" {
		from, to = "default", "default"
	}
	if k.virtual {
		from, to, network, other = "virtual", "virtual", "blue", "blue"
	}
	if k.across {
		other = "red"
	}
	for range tenantServers {
		p, ip, _ := r.add(to, other)
		k.servers = append(k.servers, ip)
		r.must(inNetns(p.netns, func() error {
			for _, port := range []int{tenantPort, tenantSink} {
				l, err := net.Listen("tcp4", fmt.Sprint(":", port))
				if err != nil {
					return err
				}
				r.b.Cleanup(func() { l.Close() })
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						go func() {
							_, _ = io.Copy(io.Discard, c)
							c.Close()
						}()
					}
				}()
			}
			return nil
		}))
	}
	for range tenantClients {
		p, _, _ := r.add(from, network)
		k.clients = append(k.clients, p)
	}
	end := time.Now().Add(time.Minute)
	for {
		err := inNetns(k.clients[0].netns, func() error { return r.touch(k.servers[0]) })
		if err == nil {
			return
		}
		if time.Now().After(end) {
			r.b.Fatalf("%s: %v", k.name, err)
		}
	}
}

// touch makes a connection and drops it, which leaves no port behind.
func (r *tenantBench) touch(server netip.Addr) error {
	c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(server, tenantPort).String(), 5*time.Second)
	if err != nil {
		return err
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	return c.Close()
}

// alone removes the megaflows of other kinds, and makes these of a kind. The switch's main thread searches masks in the
// order in which they were made. So the first kind of a run would have a fifth more connections a second.
func (r *tenantBench) alone(k tenantKind) {
	r.b.Helper()
	r.ovs.Appctl("revalidator/purge")
	for i, p := range k.clients {
		r.must(inNetns(p.netns, func() error { return r.touch(k.servers[i%len(k.servers)]) }))
	}
}

// rate is how many connections a second the clients make, several at a time: with few, the order in which the switch
// asks its ports decides.
func (r *tenantBench) rate(k tenantKind) float64 {
	r.b.Helper()
	r.alone(k)
	var made atomic.Int64
	var running sync.WaitGroup
	errs := make([]error, tenantAtOnce*len(k.clients))
	began := time.Now()
	for i := range errs {
		p := k.clients[i%len(k.clients)]
		running.Go(func() {
			errs[i] = inNetns(p.netns, func() error {
				for time.Since(began) < *tenantTime {
					if err := r.touch(k.servers[i%len(k.servers)]); err != nil {
						return err
					}
					made.Add(1)
				}
				return nil
			})
		})
	}
	running.Wait()
	r.must(errors.Join(errs...))
	return float64(made.Load()) / time.Since(began).Seconds()
}

// stream is how many bytes a second one connection carries.
func (r *tenantBench) stream(k tenantKind) float64 {
	r.b.Helper()
	r.alone(k)
	sent, began := 0, time.Now()
	r.must(inNetns(k.clients[0].netns, func() error {
		c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(k.servers[0], tenantSink).String(), 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		data := make([]byte, 1<<16)
		for began = time.Now(); time.Since(began) < *tenantTime; {
			n, err := c.Write(data)
			if sent += n; err != nil {
				return err
			}
		}
		return nil
	}))
	return float64(sent) / time.Since(began).Seconds()
}

// megaflows counts the megaflows of IPv4 that connections of all clients to all servers make.
func (r *tenantBench) megaflows(k tenantKind) int {
	r.b.Helper()
	r.ovs.Appctl("revalidator/purge")
	for i, p := range k.clients {
		r.must(inNetns(p.netns, func() error {
			for j := range tenantConnections / len(k.clients) {
				if err := r.touch(k.servers[(i+j)%len(k.servers)]); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return strings.Count(r.ovs.Appctl("dpctl/dump-flows"), "eth_type(0x0800)")
}
