package datapath

import (
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 1, "seed of the random walk of the tables")
	walkSteps = flag.Int("walk.steps", 1000, "steps of the random walk of the tables")
	walkParts = flag.Int("walk.parts", 8, "every which question about policies is asked with fragments, too")
)

// sources are a State whose parts change one by one.
type sources struct {
	State
	engine    *derive.Engine
	tables    *Tables
	node      *derive.Source[derive.Name, Node]
	pods      *derive.Source[derive.Name, Pod]
	remotes   *derive.Source[derive.Name, RemoteNode]
	frontends *derive.Source[derive.Object, []service.Frontend]
	peering   *derive.Source[derive.Name, peering.Peering]
	ways      *derive.Source[WayEnd, uint32]
	slices    *derive.Source[derive.Object, service.SliceFacts]
	exported  *derive.Source[derive.Object, bool]
	resolvers *derive.Source[derive.Name, []netip.Prefix]
	places    *derive.Source[derive.Object, tenant.Place]          // nil without State.Places
	networks  *derive.Source[derive.Object, tenant.VirtualNetwork] // nil without State.Networks
	clusters  *derive.Source[derive.Name, tenant.Remote]           // nil without State.Places
	policy    *policy.Tables
	uids      *derive.Source[derive.Name, types.UID] // that were recorded, by port

	held map[flow.Owner]flow.Entries // desired entries, as reported to Watch
}

func newSources(s State) *sources {
	e := derive.New()
	pods := derive.NewSource[derive.Name, Pod](e, "pods")
	c := &sources{
		State: s, engine: e, held: map[flow.Owner]flow.Entries{},
		node:      derive.NewSource[derive.Name, Node](e, "node"),
		pods:      pods,
		remotes:   derive.NewSource[derive.Name, RemoteNode](e, "remote-nodes"),
		frontends: derive.NewSource[derive.Object, []service.Frontend](e, "frontends"),
		peering:   derive.NewSource[derive.Name, peering.Peering](e, "peering"),
		ways:      derive.NewSource[WayEnd, uint32](e, "ways"),
		slices:    derive.NewSource[derive.Object, service.SliceFacts](e, "endpointslices"),
		exported:  derive.NewSource[derive.Object, bool](e, "exported"),
		resolvers: derive.NewSource[derive.Name, []netip.Prefix](e, "resolvers"),
		uids:      derive.NewSource[derive.Name, types.UID](e, "uids"),
	}
	c.policy = policy.NewTables(e, s.Node.Name, attachments(e, pods, c.uids))
	if s.Node.Tunnels.Stretched {
		c.policy.Stretched()
	}
	c.policy.Outside = s.Node.Outside
	in := Inputs{
		Node: c.node, Pods: c.pods, RemoteNodes: c.remotes, Frontends: c.frontends, Slices: service.ByService(c.slices),
		Peering: peering.NewTables(e, c.peering), Exported: c.exported, Policy: c.policy, PodToPod: s.PodToPod,
		Ways:      c.ways,
		Resolvers: c.resolvers,
	}
	if s.Places != nil {
		c.places = derive.NewSource[derive.Object, tenant.Place](e, "places")
		c.places.Loaded()
		c.clusters = derive.NewSource[derive.Name, tenant.Remote](e, "tenant-clusters")
		c.clusters.Loaded()
		in.Places, in.Remotes = c.places, c.clusters
	}
	if s.Networks != nil {
		c.networks = derive.NewSource[derive.Object, tenant.VirtualNetwork](e, "virtual-networks")
		c.networks.Loaded()
		in.Networks = c.networks
	}
	c.tables = NewTables(e, in)
	c.tables.Watch(func(o flow.Owner, entries func() flow.Entries) {
		if e := entries(); reflect.DeepEqual(e, flow.Entries{}) {
			delete(c.held, o)
		} else {
			c.held[o] = e
		}
	})
	c.fill()
	c.resolvers.Set(Self, []netip.Prefix{rangeOf("10.11.0.2/32")})
	for _, s := range []interface{ Loaded() }{
		c.node, c.pods, c.remotes, c.frontends, c.slices, c.peering, c.ways, c.exported, c.resolvers, c.policy, c.uids,
	} {
		s.Loaded()
	}
	return c
}

// attachments returns the attachments of Pods. Their status identifies the Pods, unless their UID was recorded.
func attachments(
	e *derive.Engine, pods *derive.Source[derive.Name, Pod], uids *derive.Source[derive.Name, types.UID],
) policy.Attachments {
	return derive.NewTable(e, "attachments",
		func(port derive.Name, r *derive.Reader) (policy.Attachment, []problem.Problem) {
			pod, _ := derive.Get(r, pods, port)
			uid, _ := derive.Get(r, uids, port)
			name := derive.Object{Namespace: pod.Namespace, Name: pod.Name}
			return policy.Attachment{Pod: name, UID: uid, Sandbox: string(port), IPs: pod.IPs, Network: pod.Network}, nil
		}, derive.KeysOf(pods))
}

// fill writes the State into the sources, as a list of all objects does.
func (c *sources) fill() {
	c.node.Set(Self, c.Node)
	pods, remotes, frontends := map[derive.Name]Pod{}, map[derive.Name]RemoteNode{}, map[derive.Object][]service.Frontend{}
	for _, p := range c.Pods {
		pods[derive.Name(p.Interface)] = p
	}
	for _, r := range c.RemoteNodes {
		remotes[derive.Name(r.Name)] = r
	}
	for _, f := range c.Frontends {
		key := derive.Object{Namespace: f.Namespace, Name: f.Service}
		frontends[key] = append(frontends[key], f)
	}
	c.pods.Replace(pods)
	c.remotes.Replace(remotes)
	c.frontends.Replace(frontends)
	c.slices.Replace(c.Slices)
	c.peering.Set(Self, c.Peering)
	ways := map[WayEnd]uint32{}
	for end, port := range c.Ways {
		ways[WayEnd{end}] = uint32(port)
	}
	c.ways.Replace(ways)
	c.exported.Replace(c.Exported)
	if c.places != nil {
		places := map[derive.Object]tenant.Place{}
		for namespace, p := range c.Places {
			places[derive.Object{Name: namespace}] = p
		}
		c.places.Replace(places)
		clusters := map[derive.Name]tenant.Remote{}
		for id, remote := range c.Remotes {
			clusters[derive.Name(id)] = remote
		}
		c.clusters.Replace(clusters)
	}
	if c.networks != nil {
		c.networks.Replace(c.Networks)
	}
}

// TestWalkState changes the state at random, with overlapping addresses, ranges and ports. After each step the tables
// equal a plan from nothing, and so does a record of the changes alone.
func TestWalkState(t *testing.T) {
	r := rand.New(rand.NewPCG(*walkSeed, 0))
	for _, variant := range []string{"", "Pod-to-Pod", "tenants"} {
		s := onNode(2)
		s.PodToPod = variant == "Pod-to-Pod"
		if variant == "tenants" {
			s.Places, s.Networks = placesOfTwo(), walkNetworks
		}
		c := newSources(s)
		for step := range *walkSteps / 4 {
			what := c.step(r)
			if c.Places != nil {
				what += c.stepTenants(r)
			}
			c.fill()
			c.engine.Pass()
			want, problems := Plan(c.State)
			have := maps.Collect(c.tables.All())
			for name, have := range map[string]map[flow.Owner]flow.Entries{"the tables": have, "what was heard of": c.held} {
				if !reflect.DeepEqual(want, have) {
					t.Fatalf("seed %d, %s, step %d, %s: %s differ (-from nothing +incremental):\n%s",
						*walkSeed, variant, step, what, name, cmp.Diff(wordsOf(want), wordsOf(have)))
				}
			}
			if diff := cmp.Diff(problems, c.engine.Problems()); diff != "" {
				t.Fatalf("seed %d, %s, step %d, %s: problems (-from nothing +incremental):\n%s",
					*walkSeed, variant, step, what, diff)
			}
		}
	}
}

func wordsOf(all map[flow.Owner]flow.Entries) map[string][]string {
	out := map[string][]string{}
	for o, e := range all {
		var lines []string
		for _, f := range e.Flows {
			lines = append(lines, f.String())
		}
		for _, g := range e.Groups {
			lines = append(lines, g.String())
		}
		out[o.String()] = append(lines, fmt.Sprint(e.Meters))
	}
	return out
}

// step changes one object and returns its description.
func (c *sources) step(r *rand.Rand) string {
	full := onNode(1 + r.IntN(2))
	switch r.IntN(9) {
	case 8:
		full = outsideNode(1 + r.IntN(2))
		name := full.Frontends[r.IntN(len(full.Frontends))].Service
		c.Frontends = slices.DeleteFunc(slices.Clone(c.Frontends), func(f service.Frontend) bool {
			return f.Service == name || f.Kind != service.ClusterIP && r.IntN(4) == 0
		})
		for _, f := range full.Frontends {
			taken := func(o service.Frontend) bool { return o.VIP == f.VIP && o.Service != name }
			if f.Service != name || slices.ContainsFunc(c.Frontends, taken) {
				continue
			}
			if f.Affinity = 0; r.IntN(2) == 0 {
				f.Affinity = time.Hour
			}
			c.Frontends = append(c.Frontends, f)
		}
		return fmt.Sprint("outside of ", name)
	case 0:
		name := fmt.Sprint("pod-", r.IntN(5))
		p := Pod{Namespace: "default", Name: name, Interface: name, MAC: ofp.MAC{0x0a, 0, 0, 0, 1, byte(r.IntN(3))},
			Port: ofp.Port(1 + r.IntN(6))}
		for range r.IntN(3) {
			p.IPs = append(p.IPs, netip.AddrFrom4([4]byte{10, 11, 1, byte(r.IntN(6))}))
		}
		c.Pods = replaced(c.Pods, r, p, func(p Pod) string { return p.Interface })
		return fmt.Sprint("Pod ", p)
	case 1, 2:
		n := RemoteNode{Name: fmt.Sprint("node-", 1+r.IntN(5)),
			Address: netip.AddrFrom4([4]byte{192, 168, 78, byte(101 + r.IntN(5))})}
		for range r.IntN(3) {
			n.PodCIDRs = append(n.PodCIDRs,
				rangeOf([]string{"10.11.0.0/24", "10.11.1.0/24", "10.11.3.7/23", "10.11.1.3/32", "10.96.0.0/16"}[r.IntN(5)]))
		}
		if r.IntN(3) == 0 {
			n.Sources = []netip.Addr{addrOf("172.30.1.5"), n.Address}
		}
		c.RemoteNodes = replaced(c.RemoteNodes, r, n, func(n RemoteNode) string { return n.Name })
		return fmt.Sprint("Node ", n)
	case 3, 4:
		f := full.Frontends[r.IntN(len(full.Frontends))]
		f.Protocol = []corev1.Protocol{"TCP", "UDP", "SCTP"}[r.IntN(3)]
		f.Endpoints = nil
		for range r.IntN(4) {
			f.Endpoints = append(f.Endpoints, service.Endpoint{
				Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 11, byte(r.IntN(4)), byte(r.IntN(4))}), 8080), Weight: 1})
		}
		if r.IntN(6) == 0 { // a large one, of several shards
			f.Endpoints = slices.DeleteFunc(withEndpoints(ones(250+r.IntN(600))...).Endpoints,
				func(service.Endpoint) bool { return r.IntN(20) == 0 })
		}
		c.Frontends = replaced(c.Frontends, r, f, func(f service.Frontend) string { return f.Service })
		if r.IntN(2) == 0 { // its slices change with it, or later
			facts := service.SliceFacts{Service: derive.Object{Namespace: f.Namespace, Name: f.Service},
				Ports: []service.SlicePort{{Protocol: f.Protocol, Port: 8080}}}
			for _, e := range f.Endpoints {
				facts.Endpoints = append(facts.Endpoints, service.EndpointFacts{Addr: e.Addr.Addr()})
			}
			c.Slices = maps.Clone(c.Slices)
			c.Slices[derive.Object{Namespace: f.Namespace, Name: f.Service + fmt.Sprint(r.IntN(2))}] = facts
		}
		return fmt.Sprint("frontend ", f, f.Endpoints)
	case 5:
		key := derive.Object{Namespace: "default", Name: full.Frontends[r.IntN(len(full.Frontends))].Service}
		c.Exported = map[derive.Object]bool{key: true, {Namespace: "default", Name: "web"}: r.IntN(2) == 0}
		if !c.Exported[derive.Object{Namespace: "default", Name: "web"}] {
			delete(c.Exported, derive.Object{Namespace: "default", Name: "web"})
		}
		return fmt.Sprint("exports ", c.Exported)
	case 6:
		c.Peering = full.Peering
		c.Peering.Peers = some(r, full.Peering.Peers)
		for i := range c.Peering.Peers {
			switch p := &c.Peering.Peers[i]; r.IntN(6) {
			case 0:
				p.CIDRs = []netip.Prefix{rangeOf([]string{"10.96.0.0/16", "10.11.3.0/24", "192.168.77.101/32"}[r.IntN(3)])}
			case 1:
				p.Gateways = []peering.Way{{Outside: westGW}}
			case 2:
				p.Ends = nil
			}
		}
		if r.IntN(6) == 0 {
			c.Peering = peering.Peering{}
		}
		return fmt.Sprintf("peering %+v", c.Peering)
	}
	c.Node = onNode(2).Node
	if r.IntN(2) == 0 {
		c.Node = outsideNode(2).Node
	}
	switch r.IntN(7) {
	case 4:
		c.Node.NodePortAddresses = []netip.Addr{addrOf("198.51.100.14"), addrOf("192.168.78.101")}
	case 0:
		c.Node.Tunnels.Port = 0
	case 1:
		c.Node.PacketInRate = 0
	case 2:
		c.Node.GatewayIPs = []netip.Addr{addrOf("10.11.1.4")}
	case 3:
		c.Node.PodCIDRs = append(c.Node.PodCIDRs, rangeOf("10.11.2.0/24"))
	}
	return fmt.Sprintf("this Node %+v", c.Node)
}

// stepTenants changes the network of a Namespace, or moves a Pod or a Service to another Namespace.
func (c *sources) stepTenants(r *rand.Rand) string {
	namespace := tenantSpaces[r.IntN(4)]
	switch r.IntN(6) {
	case 4:
		return c.stepNetworks(r)
	case 5:
		return c.stepRemotes(r)
	case 0:
		c.Places = maps.Clone(c.Places)
		p := isolated(tenant.ID(1+r.IntN(3)), tenant.ID(4+r.IntN(2)))
		p.Outside = r.IntN(2) == 0
		c.Places[namespace] = p
		switch r.IntN(6) {
		case 0:
			delete(c.Places, namespace)
		case 1:
			p.ID, p.Joined = 0, nil
			c.Places[namespace] = p
		case 2, 3:
			c.Places[namespace] = tenant.Place{Known: true}
		}
		return fmt.Sprintf(", network of %s %+v", namespace, c.Places[namespace])
	case 1:
		c.Frontends = slices.Clone(c.Frontends)
		if len(c.Frontends) > 0 {
			f := &c.Frontends[r.IntN(len(c.Frontends))]
			f.Namespace = namespace
			return fmt.Sprint(", moved ", *f)
		}
	case 2:
		c.Pods = slices.Clone(c.Pods)
		if len(c.Pods) > 0 {
			p := &c.Pods[r.IntN(len(c.Pods))]
			p.Namespace, p.HostPorts = namespace, r.IntN(2) == 0
			return fmt.Sprint(", moved ", *p)
		}
	}
	return ""
}

// stepRemotes changes the networks between this cluster and another one.
func (c *sources) stepRemotes(r *rand.Rand) string {
	c.Remotes = maps.Clone(c.Remotes)
	if c.Remotes == nil {
		c.Remotes = map[string]tenant.Remote{}
	}
	at := r.IntN(2)
	id := []string{"north", "west"}[at]
	ids := []tenant.ID{tenant.ID(1 + r.IntN(4)), tenant.ID(5 + r.IntN(4))}
	remote := tenant.Remote{From: ids[:r.IntN(3)], To: ids[:r.IntN(3)]}
	for _, text := range []string{fmt.Sprintf("10.6%d.0.0/24", at), "10.11.1.0/25", fmt.Sprintf("fd6%d::/64", at)} {
		if r.IntN(2) == 0 {
			remote.Virtual = append(remote.Virtual, tenant.RemoteRange{ID: tenant.ID(11 + at), CIDR: rangeOf(text), To: ids})
		}
	}
	if c.Remotes[id] = remote; r.IntN(4) == 0 {
		delete(c.Remotes, id)
	}
	return fmt.Sprintf(", networks of %s %+v", id, c.Remotes[id])
}

// walkNetworks are the VirtualNetworks of a walk. A block is of the Node node-1, or of node-2.
var walkNetworks = map[derive.Object]tenant.VirtualNetwork{}

// stepNetworks changes a VirtualNetwork, or moves the first interface of a Pod into one or out of it.
func (c *sources) stepNetworks(r *rand.Rand) string {
	k := derive.Object{Namespace: tenantSpaces[r.IntN(4)], Name: "blue"}
	if r.IntN(2) == 0 {
		c.Pods = slices.Clone(c.Pods)
		if len(c.Pods) == 0 {
			return ""
		}
		p := &c.Pods[r.IntN(len(c.Pods))]
		p.First, p.Network = r.IntN(3) > 0, derive.Object{}
		if p.First {
			p.Network = k
		}
		return fmt.Sprint(", moved ", *p)
	}
	c.Networks = maps.Clone(c.Networks)
	v := tenant.VirtualNetwork{Own: r.IntN(3) > 0, Place: isolated(tenant.ID(6+r.IntN(3)), tenant.ID(1+r.IntN(8)))}
	g := tenant.Range{CIDR: rangeOf([]string{"10.50.0.0/24", "10.11.0.0/24"}[r.IntN(2)]), Gateway: addrOf("10.50.0.1")}
	l := tenant.LeaseFacts{Range: g}
	for _, node := range []string{"node-1", "node-2"} {
		l.Nodes = append(l.Nodes, tenant.NodeBlocks{Node: node, Blocks: []netip.Prefix{netip.PrefixFrom(g.CIDR.Addr(), 28)}})
	}
	v.Leases = append(v.Leases, l)
	if c.Networks[k] = v; r.IntN(4) == 0 {
		delete(c.Networks, k)
	}
	return fmt.Sprintf(", VirtualNetwork %s %+v", k, c.Networks[k])
}

// replaced replaces the element of a list that has the same name, or only removes it.
func replaced[T any](list []T, r *rand.Rand, v T, name func(T) string) []T {
	var out []T
	for _, o := range list {
		if name(o) != name(v) {
			out = append(out, o)
		}
	}
	if r.IntN(4) > 0 {
		out = append(out, v)
	}
	return out
}

// many is a Node of a large cluster.
func many(services, endpoints, nodes, pods int) State {
	s := onNode(2)
	s.Frontends, s.RemoteNodes, s.Pods = nil, nil, nil
	at := func(i, port int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(port))
	}
	for i := range services {
		f := service.Frontend{Namespace: "default", Service: fmt.Sprint("web-", i), Protocol: corev1.ProtocolTCP,
			VIP: at(i, 80)}
		for j := range endpoints {
			f.Endpoints = append(f.Endpoints, service.Endpoint{Addr: at(1<<20+i*endpoints+j, 8080), Weight: 1})
		}
		s.Frontends = append(s.Frontends, f)
	}
	for i := range nodes {
		s.RemoteNodes = append(s.RemoteNodes, RemoteNode{
			Name: fmt.Sprint("far-", i), Address: at(2<<20+i, 0).Addr(),
			PodCIDRs: []netip.Prefix{netip.PrefixFrom(at(i<<8, 0).Addr(), 24)},
		})
	}
	for i := range pods {
		name := fmt.Sprint("pod-", i)
		s.Pods = append(s.Pods, Pod{Name: name, Interface: name, MAC: ofp.MAC{0x0a, byte(i)},
			IPs: []netip.Addr{at(3<<20+i, 0).Addr()}, Port: ofp.Port(10 + i)})
	}
	return s
}

// TestCost counts the evaluations that changes cause among many Services, Nodes and Pods.
func TestCost(t *testing.T) {
	c := newSources(many(300, 3, 50, 20))
	c.engine.Pass()
	fewer := c.Frontends[7]
	fewer.Endpoints = fewer.Endpoints[1:]
	key := derive.Object{Namespace: "default", Name: "web-7"}
	pod := c.Pods[3]
	pod.MAC[5] = 9
	for _, row := range []struct {
		name   string
		change func()
		most   int
	}{
		{"everything is written again", c.fill, 0},
		{"an endpoint goes", func() { c.frontends.Set(key, []service.Frontend{fewer}) }, 2},
		{"a Service goes", func() { c.frontends.Delete(key) }, 1},
		{"a Service comes", func() { c.frontends.Set(key, c.Frontends[7:8]) }, 2},
		{"a Service is exported", func() { c.exported.Set(key, true) }, 1},
		{"a Pod has another MAC", func() { c.pods.Set("pod-3", pod) }, 4}, // its identity is evaluated, too
		{"a Pod goes", func() { c.pods.Delete("pod-3") }, 4},
		{"a Pod comes", func() { c.pods.Set("pod-3", pod) }, 8},
		{"a Node goes", func() { c.remotes.Delete("far-4") }, 4},
	} {
		row.change()
		c.engine.Pass()
		if last, _, _ := c.engine.Stats(); last.Evaluated > row.most {
			t.Errorf("%s: %d keys evaluated, want at most %d", row.name, last.Evaluated, row.most)
		}
	}
}

// TestGroupNumbers checks that a group's number comes from the name of its endpoint set and its shard. If a later
// version changed that rule, it would replace all groups.
func TestGroupNumbers(t *testing.T) {
	f := withEndpoints(ones(300)...)
	f.Port = "http"
	for owner, text := range map[string]string{"default/web": "default/web/http/TCP",
		"default/web#3": "default/web/http/TCP#3"} {
		h := fnv.New64a()
		fmt.Fprint(h, text)
		want := 1 + uint32(h.Sum64()%0xffffff00)
		if g := declared(t, f)[flow.Owner{Kind: KindService, Name: owner}].Groups; len(g) != 1 || g[0].ID != want {
			t.Errorf("%s: groups %v, want one with number %d", owner, g, want)
		}
	}
}

// BenchmarkEndpointChanges changes one of 10,000 Services with ten endpoints each, and makes its
// entries.
func BenchmarkEndpointChanges(b *testing.B) {
	c := newSources(many(10000, 10, 1000, 100))
	c.engine.Pass()
	changed := c.Frontends[5000]
	all := changed.Endpoints
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changed.Endpoints = all[i%2:]
		c.frontends.Set(derive.Object{Namespace: "default", Name: "web-5000"}, []service.Frontend{changed})
		c.engine.Pass()
	}
}

// BenchmarkFromNothing plans 10,000 Services with ten endpoints each.
func BenchmarkFromNothing(b *testing.B) {
	s := many(10000, 10, 1000, 100)
	b.ReportAllocs()
	for b.Loop() {
		if out, _ := Plan(s); len(out) < 11000 {
			b.Fatal(len(out))
		}
	}
}
