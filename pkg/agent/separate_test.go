package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/ended"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// addSeparate adds a separate VirtualNetwork with range 10.50.0.0/22, or 10.50.4.0/22 if base is "4". A Pod of this
// Node has the address 10.50.0.2 or 10.50.4.2 there. The addresses on node-2 belong to Pods that exist there.
func (a *asked) addSeparate(name, base string, zone int32, here cni.Attachment, there map[string]string) {
	a.t.Helper()
	v := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		UID: types.UID("uid of " + name), Labels: map[string]string{"zone": fmt.Sprint(zone)}}}
	v.Spec.V4SubnetReference = &contrailv4.ResourceReference{Name: name}
	lease := &tombolov1alpha1.SubnetLease{ObjectMeta: metav1.ObjectMeta{Name: "lease-" + name}}
	lease.Spec = tombolov1alpha1.SubnetLeaseSpec{Zone: zone,
		Subnet:         tombolov1alpha1.ObjectName{Namespace: "default", Name: name},
		VirtualNetwork: tombolov1alpha1.ObjectName{Namespace: "default", Name: name},
		CIDR:           "10.50." + base + ".0/22", Gateway: "10.50." + base + ".1",
		Nodes: []tombolov1alpha1.NodeBlocks{{Node: ownName, Claim: "x", CIDRs: []string{"10.50." + base + ".0/28"}},
			{Node: "node-2", Claim: "x", CIDRs: []string{"10.50." + base + ".16/28"}}}}
	if base == "0" {
		lease.Spec.Nodes[1].CIDRs = append(lease.Spec.Nodes[1].CIDRs, "10.50.2.16/28")
	}
	n := tombolov1alpha1.NodeNetwork{Namespace: "default", Name: name}
	for ip, pod := range there {
		n.Addresses = append(n.Addresses, tombolov1alpha1.PodNetworkAddress{Address: ip, Pod: pod})
	}
	for _, o := range a.world.others {
		if report, ok := o.(*tombolov1alpha1.NodeNetworkReport); ok {
			report.Spec.Networks = append(report.Spec.Networks, n)
		}
	}
	a.world.others = append(a.world.others, v, lease)
	a.settle()
	here.IfName, here.PortName, here.VirtualNetwork = "eth1", here.PodName+"-eth1-a1b2c3", "default/"+name
	here.MAC = "0a:58:0a:32:0" + base + ":0" + string(rune('2'+zone))
	here.IPs = []netip.Prefix{netip.MustParsePrefix("10.50." + base + ".2/22")}
	a.world.pods[here.PortName] = here
	a.ovs.Device(here.PortName)
	ctx, cancel := context.WithTimeout(a.t.Context(), ovstest.Timeout())
	defer cancel()
	a.must(a.agent.cniNode().Attach(ctx, here))
}

// networkQuestion is a question about a connection: the server's name, the beginning of what the networks decide, and
// the end of the packet's way if there is one.
type networkQuestion struct{ query, to, want, ends string }

// decides asks about a connection. The switch agrees with the answer, and with a trace.
func (a *asked) decides(t *testing.T, row networkQuestion) {
	t.Helper()
	t.Run(row.query, func(t *testing.T) {
		var w api.Why
		if e := a.get(api.PathWhy+"?trace=true&family=ipv4&"+row.query, &w); e != "" {
			t.Fatal(e)
		}
		have := ""
		for _, s := range w.Connections[0].Stages {
			if s.Direction == api.DirectionNetwork {
				s.Pod = "x"
				have = stages(api.WhyConnection{Stages: []api.WhyStage{s}}) + ": " + s.Reason
			} else if s.Trace != nil && s.Trace.Judged && !s.Trace.Agrees {
				t.Errorf("the switch disagrees: %+v", *s.Trace)
			}
		}
		if to := w.Connections[0].To; !strings.HasPrefix(have, row.want) || to.Name != row.to {
			t.Errorf("have %s to %+v\nwant %s to %s\n%+v", have, to, row.want, row.to, w)
		}
		if row.ends == "" {
			return
		}
		var list api.TraceList
		if e := a.get(api.PathTraces+"?family=ipv4&"+row.query, &list); e != "" {
			t.Fatal(e)
		}
		if ends := a.ends(t, list.Traces); len(ends) != 1 || !strings.HasSuffix(ends[0], ": "+row.ends) {
			t.Errorf("the packet goes %q, want %s\n%s", ends, row.ends, list.Traces[0].Output)
		}
	})
}

// TestSeparateNetworks has three Pods of a Node with one address: in a network that is not separate, and in two
// separate ones. Answers, records and logs name the Pod in the network that is meant, and a real switch agrees.
func TestSeparateNetworks(t *testing.T) {
	a := newAskedOf(t, family.IPv4, func(c *config.Config) { c.FeatureGates["TenantNetworks"] = true })
	a.world.spaces["default"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid of default"}}
	delete(a.world.policies, "db")
	delete(a.world.policies, "web")
	third := a.add("third")
	a.world.objects["default/other"] = podIn("default", "other", "node-2", "10.11.2.10", nil)
	a.addFurther() // db has 10.50.0.2 in blue, and far has 10.50.0.18
	a.addSeparate("green", "0", 1, a.web, map[string]string{"10.50.0.18": "other", "10.50.2.18": "other"})
	a.addSeparate("gold", "0", 2, third, nil)
	fourth := a.add("fourth")
	a.addSeparate("silver", "4", 1, fourth, map[string]string{"10.50.4.18": "far"})
	a.world.others = append(a.world.others, &contrailv4.VirtualNetworkRouter{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mesh"}, Spec: contrailv4.VirtualNetworkRouterSpec{
			Type: contrailv4.TypeMesh, VirtualNetworkSelector: &metav1.LabelSelector{}}})
	a.settle()
	const tunnel = "to tombolo-tun0 192.168.78.102"
	const both = "both Pods are in VirtualNetwork default/"
	const joined = "VirtualNetwork default/%s and VirtualNetwork default/%s are joined"
	for _, row := range []networkQuestion{
		{"from=10.50.0.2&to=10.50.0.18&port=80", "default/far", "allowed at node-2: " + both + "blue", tunnel},
		{"from=default/db@blue&to=10.50.0.18&port=80", "default/far", "allowed at node-2: " + both + "blue", tunnel},
		{"from=default/web@green&to=10.50.0.18&port=80", "default/other", "allowed at node-2: " + both + "green", tunnel},
		{"from=default/web@eth1&to=default/other@green&port=80", "default/other",
			"allowed at node-2: " + both + "green", tunnel},
		{"from=default/third@gold&to=10.50.0.18&port=80", "", "allowed at node-2: " + both + "gold", tunnel},
		{"from=default/other@green&to=10.50.0.2&port=80", "default/web", "allowed, traced: " + both + "green",
			"to default/web"},
		{"from=default/far@blue&to=10.50.0.2&port=80", "default/db", "allowed, traced: " + both + "blue",
			"to default/db"},
		{"from=10.50.0.18&to=default/third@gold&port=80", "default/third", "allowed, traced: " + both + "gold",
			"to default/third"},
		{"from=default/web@green&to=default/third@gold&port=80", "default/third",
			"denied, to: a packet to 10.50.0.2 in VirtualNetwork default/green does not go to default/third in " +
				"VirtualNetwork default/gold, whose range other networks may have, too: `tombolo policy why` names the reason: " +
				"VirtualNetwork default/green and VirtualNetwork default/gold are not joined", ""},
		{"from=default/web@green&to=default/fourth@silver&port=80", "default/fourth",
			"allowed, traced: " + fmt.Sprintf(joined, "green", "silver"), "to default/fourth"},
		{"from=default/web@green&to=10.50.4.18&port=80", "default/far",
			"allowed at node-2: " + fmt.Sprintf(joined, "green", "silver"), tunnel},
		{"from=10.50.4.18&to=default/web@green&port=80", "default/web",
			"allowed, traced: " + fmt.Sprintf(joined, "silver", "green"), "to default/web"},
		{"from=default/third@gold&to=10.50.4.2&port=80", "", "denied, traced: Pod default/third is in", ""},
		{"from=default/db@blue&to=default/fourth@silver&port=80", "default/fourth", "denied, to: a packet to 10.50.4.2", ""},
		{"from=default/web@green&to=10.50.3.9&port=80", "", "denied, traced: Pod default/web is in VirtualNetwork", ""},
	} {
		a.decides(t, row)
	}
	var w api.Why
	want := "to: several VirtualNetworks may have the address 10.50.2.18; here it is of an unknown Pod in default/gold, " +
		"default/other@green: give the Pod as namespace/name@network"
	if e := a.get(api.PathWhy+"?from=default/db&port=80&to=10.50.2.18", &w); !strings.Contains(e, want) {
		t.Errorf("an address of two networks: %q, want %q", e, want)
	}
	want = "to: a packet to 10.50.0.2 in VirtualNetwork default/blue does not go to default/web in VirtualNetwork " +
		"default/green"
	var list api.TraceList
	e := a.get(api.PathTraces+"?from=default/db@blue&to=default/web@green&port=80", &list)
	if !strings.Contains(e, want) {
		t.Errorf("a trace to another network: %q, want %q", e, want)
	}
	a.flowsOfSeparate(t)
	a.namesOfSeparate(t)
	a.endsInZones(t)
}

// TestInsideSeparateNetwork asks about Pods whose own network is a separate one, by their addresses of the Node. third
// is a Pod of this Node, and other one of node-2, both in green. fourth is in gold, and web in the default network.
func TestInsideSeparateNetwork(t *testing.T) {
	a := newAskedOf(t, family.IPv4, func(c *config.Config) { c.FeatureGates["TenantNetworks"] = true })
	a.world.spaces["default"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid of default"}}
	delete(a.world.policies, "db")
	delete(a.world.policies, "web")
	a.world.objects["default/other"] = podIn("default", "other", "node-2", "10.11.2.10", nil)
	a.addFurther()
	third, fourth := a.add("third"), a.add("fourth")
	a.addSeparate("green", "0", 1, third, map[string]string{"10.50.0.18": "other"})
	a.addSeparate("gold", "0", 2, fourth, nil)
	for network, p := range map[string]cni.Attachment{"green": third, "gold": fourth} {
		p.Inside = "default/" + network
		a.world.pods[p.PortName] = p
		ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
		defer cancel()
		a.must(a.agent.cniNode().Attach(ctx, p))
	}
	for _, o := range a.world.others {
		switch o := o.(type) {
		case *tombolov1alpha1.NodeNetworkReport:
			list := o.Spec.Networks[len(o.Spec.Networks)-2].Addresses
			list[0].Own = true
		case *contrailv4.VirtualNetwork:
			o.Spec.PodNetwork = o.Name != "blue"
		}
	}
	a.settle()
	const green = "Pod default/third is in VirtualNetwork default/green: it reaches Pods of that network"
	for _, row := range []networkQuestion{
		{"from=default/third&to=default/other&port=80", "default/other",
			"allowed at node-2: both Pods are in VirtualNetwork default/green", "to tombolo-tun0 192.168.78.102"},
		{"from=default/other&to=default/third&port=80", "default/third",
			"allowed, traced: both Pods are in VirtualNetwork default/green", "to default/third"},
		{"from=default/third&to=default/web&port=80", "default/web", "denied, traced: " + green, ""},
		{"from=default/web&to=default/third&port=80", "default/third",
			"denied, traced: Pod default/third is in VirtualNetwork default/green: processes of its Node reach it", ""},
		{"from=default/third&to=default/fourth&port=80", "default/fourth",
			"denied, traced: VirtualNetwork default/green and VirtualNetwork default/gold are not joined", ""},
		{"from=default/web&to=default/other&port=80", "default/other",
			"denied at : Pod default/other is in VirtualNetwork default/green: processes of its Node", ""},
	} {
		a.decides(t, row)
	}
}

// TestSeparateWithoutNumber has a separate network whose VirtualNetwork is deleted while its Pods run, and two networks
// with one zone.
func TestSeparateWithoutNumber(t *testing.T) {
	e := derive.New()
	rows := derive.NewSource[derive.Object, tenant.VirtualNetwork](e, "rows")
	s := newSeparateNetworks(derive.NewTable(e, "networks",
		func(k derive.Object, r *derive.Reader) (tenant.VirtualNetwork, []problem.Problem) {
			v, _ := derive.Get(r, rows, k)
			return v, nil
		}, derive.KeysOf(rows)))
	named := func(name string) derive.Object { return derive.Object{Namespace: "a", Name: name} }
	ip := netip.MustParseAddr("10.50.0.2")
	row := func(name string, zone uint16, id tenant.ID) {
		v := tenant.VirtualNetwork{Zone: zone, Ranges: []netip.Prefix{netip.PrefixFrom(ip, 24)}}
		if name == "gold" {
			v.Ranges[0] = netip.MustParsePrefix("10.50.1.0/24")
		}
		if id != 0 {
			v.Place = tenant.Place{Known: true, Network: tenant.VirtualName(named(name)), ID: id}
		}
		rows.Set(named(name), v)
		e.Pass()
	}
	rows.Loaded()
	p := newProgress()
	for _, name := range []string{"shared", "green", "blue"} {
		p.pods["port-"+name] = datapath.ServedPod{Served: true,
			Pod: datapath.Pod{Name: name, IPs: []netip.Addr{ip}, Network: named(name)}}
	}
	with := func(id tenant.ID) string {
		pod, _ := s.with(p, ip, id)
		return pod.Name
	}
	row("shared", 0, 3)
	row("blue", 2, 4)
	row("green", 1, 5)
	if with(5) != "green" || with(4) != "blue" || with(3) != "shared" || !s.knows(1, ip) {
		t.Errorf("the Pods are %s, %s and %s", with(5), with(4), with(3))
	}
	row("green", 1, 0) // deleted
	if s.zoneOf(named("green")) != 1 || s.holder(1, ip) != named("green") || len(s.all()) != 2 {
		t.Errorf("the deleted network has zone %d, and its address is of %v", s.zoneOf(named("green")), s.holder(1, ip))
	}
	if s.numbered(5) != (derive.Object{}) || s.numbered(0) != (derive.Object{}) || s.knows(1, ip) || !s.knows(2, ip) {
		t.Error("the deleted network has a number")
	}
	for range 20 { // in the random order of a map
		if with(0) != "shared" || with(3) != "shared" || with(4) != "blue" {
			t.Fatalf("the Pods are %s, %s and %s", with(0), with(3), with(4))
		}
	}
	row("blue", 0, 4) // the zone is gone before the Pod
	for range 20 {
		if with(3) != "blue" {
			t.Fatalf("of two Pods the second one by port is chosen: %s", with(3))
		}
	}
	row("gold", 1, 6)
	other := netip.MustParseAddr("10.50.1.2")
	if s.holder(1, ip) != named("green") || s.holder(1, other) != named("gold") || s.holder(2, other).Name != "" {
		t.Errorf("zone 1 has two networks: the addresses are of %v and %v", s.holder(1, ip), s.holder(1, other))
	}
	if !s.knows(1, other) || s.knows(1, ip) || with(6) != "green" {
		t.Errorf("a network of zone 1 has a number: %t, the other one: %t", s.knows(1, other), s.knows(1, ip))
	}
	rows.Delete(named("gold"))
	e.Pass()
	if s.holder(1, other) != (derive.Object{}) || s.numbered(6) != (derive.Object{}) || s.knows(1, other) {
		t.Errorf("the address of the deleted network is of %v", s.holder(1, other))
	}
}

// flowsOfSeparate lists the flows of each of the Pods. No flow belongs to another Pod with the same address.
func (a *asked) flowsOfSeparate(t *testing.T) {
	for _, pod := range []string{"db", "web", "third"} {
		var list api.FlowList
		if e := a.get(api.PathFlows+"?pod=default/"+pod, &list); e != "" {
			t.Fatal(e)
		}
		own := 0
		for _, f := range list.Flows {
			for _, other := range []string{"db", "web", "third"} {
				switch {
				case !strings.Contains(f.Owner, "default/"+other):
				case other == pod:
					own++
				default:
					t.Errorf("a flow of %s is about %s: %s", f.Owner, pod, f.Text)
				}
			}
		}
		if own == 0 {
			t.Errorf("%d flows are about %s, and none belongs to it", len(list.Flows), pod)
		}
	}
}

// numberOf returns the number of a VirtualNetwork.
func (a *asked) numberOf(name string) tenant.ID {
	v, _ := a.agent.tables.tenants.VirtualNetworks.Get(derive.Object{Namespace: "default", Name: name})
	return v.Place.ID
}

// namesOfSeparate makes records of packets with the same headers in three networks.
func (a *asked) namesOfSeparate(t *testing.T) {
	headers := datapath.Headers{Src: netip.MustParseAddr("10.50.0.2"), Dst: netip.MustParseAddr("10.50.0.18"), Protocol: 6,
		SrcPort: 40000, DstPort: 80}
	o := a.agent.packetIns.observer
	for network, want := range map[string][2]string{"blue": {"db", "far"}, "green": {"web", "other"},
		"gold": {"third", ""}} {
		id := a.numberOf(network)
		r := seenReport{Report: datapath.Report{Headers: headers, Kind: datapath.Opened, Network: id, FromPod: true}}
		a.must(ask(t.Context(), a.agent.tables.engine, func() {
			if e := o.named(r); [2]string{e.Connection.From.Pod, e.Connection.To.Pod} != want {
				t.Errorf("in %s the record is %+v, want %q", network, *e.Connection, want)
			} else if separate := network != "blue"; separate != (e.Connection.Network == "default/"+network) {
				t.Errorf("the record of %s has network %q", network, e.Connection.Network)
			}
			r.Kind = datapath.Dropped
			if e := o.named(r); [2]string{e.Drop.From.Pod, e.Drop.To.Pod} != want {
				t.Errorf("in %s the record of a drop is %+v, want %q", network, *e.Drop, want)
			}
			if keyOf(r).network != id {
				t.Errorf("drops in %s are counted with equal ones elsewhere", network)
			}
		}))
		if have := a.agent.podAt(headers.Src, id); have != "default/"+want[0] {
			t.Errorf("%s in %s is of %q, want %s", headers.Src, network, have, want[0])
		}
	}
	if have := a.agent.podAt(headers.Src, 0); have != "default/db" {
		t.Errorf("%s is of %q, want db", headers.Src, have)
	}
}

// endsInZones ends connections with equal ends, whose beginnings are not known.
func (a *asked) endsInZones(t *testing.T) {
	o := a.agent.packetIns.observer
	c := ended.Connection{Protocol: 6, Client: netip.MustParseAddrPort("10.50.0.2:40000"),
		Server: netip.MustParseAddrPort("10.50.0.18:80"), Mark: 3}
	c.Asked = c.Server
	var have []string
	for _, c.Zone = range []uint16{0, 1, 2, 3} {
		a.must(ask(t.Context(), a.agent.tables.engine, func() {
			if !o.tables.objects.networks.separate.knows(c.Zone, c.Client.Addr()) {
				have = append(have, "no network")
				return
			}
			have = append(have, o.namedLate(c, time.Now()).From.Pod)
		}))
	}
	c.Zone, c.Client = 1, netip.MustParseAddrPort("10.50.4.2:40000")
	a.must(ask(t.Context(), a.agent.tables.engine, func() {
		r := o.namedLate(c, time.Now())
		have = append(have, r.From.Pod+" of "+r.Network+" to "+r.To.Pod+" of "+r.ToNetwork)
	}))
	want := []string{"db", "web", "third", "no network", "fourth of default/silver to other of default/green"}
	if !slices.Equal(have, want) {
		t.Errorf("the clients are %q, want %q", have, want)
	}
	zones := a.agent.connections.zones
	if !zones.any() || len(zones.served) != 2 {
		t.Errorf("zones %v have Pods, want 1 and 2", zones.served)
	}
	// The last Pod of gold goes.
	for _, at := range a.agent.attachments.Load().list() {
		if at.VirtualNetwork == "default/gold" {
			delete(a.world.pods, at.PortName)
			ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
			defer cancel()
			a.must(a.agent.cniNode().Detach(ctx, at.ContainerID, at.IfName))
		}
	}
	zones.ready = func() bool { return true }
	seen := uint64(0)
	a.must(zones.pass(t.Context(), &seen))
	if len(zones.served[1]) != 2 || len(zones.served) != 1 || len(zones.left) > 0 || seen == 0 {
		t.Errorf("zones %v have Pods, want 1; %v are left, and the session is %d", zones.served, zones.left, seen)
	}
}
