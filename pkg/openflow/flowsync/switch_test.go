package flowsync_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// instance is the upper 16 bits of our cookies in these tests.
const instance = 0x7b

// ovs is a real switch without a datapath, with bridge br0.
type ovs struct {
	*ovstest.Switch
	t testing.TB
}

func startOVS(t testing.TB) *ovs {
	t.Helper()
	o := &ovs{ovstest.Start(t, ovstest.Dummy), t}
	o.Vsctl("--timeout=60", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=system", "fail_mode=secure",
		"protocols=[OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15]")
	return o
}

func (o *ovs) socket() string { return filepath.Join(o.RunDir(), "br0.mgmt") }

// ofctl runs ovs-ofctl, which has to succeed. The command may have options before it.
func (o *ovs) ofctl(command string, args ...string) string {
	o.t.Helper()
	args = slices.Concat([]string{"-O", "OpenFlow15"}, strings.Fields(command), []string{o.socket()}, args)
	out, err := exec.Command("ovs-ofctl", args...).CombinedOutput()
	if err != nil {
		o.t.Fatalf("ovs-ofctl %q: %v: %s", args, err, out)
	}
	return string(out)
}

// reader is a connection of the test's own.
func (o *ovs) connect() *ofconn.Conn {
	o.t.Helper()
	c, err := ofconn.Connect(context.Background(), ofconn.UnixDialer(o.socket()), nil, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(c.Close)
	return c
}

// holds is what the switch holds, in text without cookies; everything else stays in.
func (o *ovs) holds() *flow.Set {
	o.t.Helper()
	c, set := o.connect(), flow.NewSet()
	defer c.Close()
	ask := func(m ofp.Message) []ofp.Message {
		parts, err := c.Request(context.Background(), m)
		if err != nil {
			o.t.Fatal(err)
		}
		return parts
	}
	for _, p := range ask(ofp.GroupDescRequest{}) {
		for _, g := range p.(ofp.GroupDescReply).Groups {
			o.must(set.AddGroup(flow.FromGroupDesc(g)))
		}
	}
	for _, p := range ask(ofp.MeterDescRequest{}) {
		for _, m := range p.(ofp.MeterDescReply).Meters {
			o.must(set.AddMeter(flow.FromMeterDesc(m)))
		}
	}
	for _, p := range ask(ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll}}) {
		for _, d := range p.(ofp.FlowDescReply).Flows {
			o.must(set.Add(flow.FromStats(d)))
		}
	}
	return set
}

func (o *ovs) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// differs returns the difference between the switch and owners' desired entries. Of cookies only the owner counts.
func (o *ovs) differs(want map[flow.Owner]flow.Entries) error {
	o.t.Helper()
	desired, have := flow.NewSet(), flow.NewSet()
	for _, e := range want {
		for _, f := range e.Flows {
			f.Cookie = 0
			o.must(desired.Add(f))
		}
		for _, g := range e.Groups {
			o.must(desired.AddGroup(g))
		}
		for _, m := range e.Meters {
			o.must(desired.AddMeter(m))
		}
	}
	holds := o.holds()
	for g := range holds.Groups() {
		o.must(have.AddGroup(g))
	}
	for m := range holds.Meters() {
		o.must(have.AddMeter(m))
	}
	for f := range holds.Flows() {
		if f.Cookie>>48 == instance {
			f.Cookie = 0
		}
		o.must(have.Add(f))
	}
	if c := flow.Diff(have, desired); !c.Empty() {
		return fmt.Errorf("the switch differs from the desired state:\n%s", c)
	}
	return nil
}

// becomes waits until the switch holds exactly what owners want.
func (o *ovs) becomes(want map[flow.Owner]flow.Entries) {
	o.t.Helper()
	o.Eventually("the switch equals the desired state", func() error { return o.differs(want) })
}

// start runs a Syncer until the test ends or stop is called.
func (o *ovs) start(options flowsync.Options) (s *flowsync.Syncer, stop func()) {
	o.t.Helper()
	if options.Dial == nil {
		options.Dial = ofconn.UnixDialer(o.socket())
	}
	options.Instance = instance
	s = flowsync.New(options)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			o.must(err)
		case <-time.After(ovstest.Timeout()):
			o.t.Error("Run has not ended 10 s after its context")
		}
	}
	o.t.Cleanup(stop)
	return s, stop
}

// setAll declares what all owners want: one that is not in m wants nothing any more.
func setAll(s *flowsync.Syncer, m map[flow.Owner]flow.Entries) {
	owners := s.Owners()
	s.SetSome(func(yield func(flow.Owner, flow.Entries) bool) {
		for _, o := range owners {
			if _, ok := m[o]; !ok && !yield(o, flow.Entries{}) {
				return
			}
		}
		for o, e := range m {
			if !yield(o, e) {
				return
			}
		}
	})
}

// synced waits for the confirmation, which has to come within the tests' timeout.
func synced(t testing.TB, s *flowsync.Syncer, owners ...flow.Owner) {
	t.Helper()
	if err := trySync(s, ovstest.Timeout(), owners...); err != nil {
		t.Fatal(err)
	}
}

func trySync(s *flowsync.Syncer, within time.Duration, owners ...flow.Owner) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return s.Synced(ctx, owners...)
}

// quiet fails when anything was sent that changes the switch since before.
func quiet(t testing.TB, s *flowsync.Syncer, before flowsync.Stats) {
	t.Helper()
	after := s.Stats()
	if after.FlowMods != before.FlowMods || after.GroupMods != before.GroupMods || after.MeterMods != before.MeterMods ||
		after.Mended != before.Mended {
		t.Errorf("sent %d flow-mods, %d group-mods and %d meter-mods, mended %d, want nothing",
			after.FlowMods-before.FlowMods, after.GroupMods-before.GroupMods, after.MeterMods-before.MeterMods,
			after.Mended-before.Mended)
	}
}

// gateway is what the datapath wants for the Gateway Node of a cluster with a peer: every
// kind of flow and group that it makes.
func gateway(t testing.TB) map[flow.Owner]flow.Entries {
	t.Helper()
	addr, prefix, vip := netip.MustParseAddr, netip.MustParsePrefix, netip.MustParseAddrPort
	frontend := func(name string, p corev1.Protocol, at string, endpoints ...string) service.Frontend {
		f := service.Frontend{Namespace: "default", Service: name, Protocol: p, VIP: vip(at)}
		for i, e := range endpoints {
			f.Endpoints = append(f.Endpoints, service.Endpoint{Addr: vip(e), Weight: uint16(i + 1)})
		}
		return f
	}
	gateway := peering.GatewayNode{Name: "node-1", GatewayIP: addr("192.168.78.101"), InternalIP: addr("192.168.78.101")}
	out, problems := datapath.Plan(datapath.State{
		Node: datapath.Node{
			Name: "node-1", GatewayMAC: ofp.MAC{0x0e, 0, 0, 0, 0, 1}, GatewayIPs: []netip.Addr{addr("10.11.0.1")},
			GatewayPort: 32769, Tunnels: datapath.Tunnels{Port: 32768}, PodCIDRs: []netip.Prefix{prefix("10.11.0.0/24")},
			ServiceVIP: addr("169.254.0.253"),
		},
		Pods: []datapath.Pod{
			{Namespace: "default", Name: "pod1", Interface: "pod1-a", MAC: ofp.MAC{0x0a, 0, 0, 0, 0, 2},
				IPs: []netip.Addr{addr("10.11.0.2")}, Port: 1},
			{Namespace: "default", Name: "pod2", Interface: "pod2-b", MAC: ofp.MAC{0x0a, 0, 0, 0, 0, 3},
				IPs: []netip.Addr{addr("10.11.0.3")}, Port: 2},
		},
		RemoteNodes: []datapath.RemoteNode{{Name: "node-2", PodCIDRs: []netip.Prefix{prefix("10.11.1.0/24")},
			Address: addr("192.168.78.102")}},
		Frontends: []service.Frontend{
			frontend("web", corev1.ProtocolTCP, "10.97.0.10:80", "10.11.0.2:8080", "10.11.1.3:8080", "10.96.0.20:80"),
			frontend("dns", corev1.ProtocolUDP, "10.97.0.12:53", "10.11.0.3:5353"),
			frontend("sctp", corev1.ProtocolSCTP, "10.97.0.14:7", "10.11.0.3:7"),
			frontend("empty", corev1.ProtocolTCP, "10.97.0.13:80"),
		},
		Peering: peering.Peering{
			Part: peering.Part{
				Role: peering.Gateway, Gateway: gateway, Gateways: []peering.GatewayNode{gateway},
				End: gateway.GatewayIP,
			},
			Peers: []peering.Peer{{
				ClusterID: "west", CIDRs: []netip.Prefix{prefix("10.96.0.0/16")},
				Gateways: []peering.Way{{Outside: addr("192.168.77.101")}},
				Ends:     []peering.End{{Addr: addr("192.168.77.101")}},
			}},
		},
	})
	if len(problems) > 0 || len(out) < 6 {
		t.Fatalf("plan: %d owners, problems %v", len(out), problems)
	}
	return out
}

// entries reads flows in ovs-ofctl's text.
func entries(t testing.TB, flows ...string) flow.Entries {
	t.Helper()
	var e flow.Entries
	for _, text := range flows {
		f, err := flow.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		e.Flows = append(e.Flows, f)
	}
	return e
}

func lines(s string) []string {
	var out []string
	for l := range bytes.Lines([]byte(s)) {
		out = append(out, strings.TrimSpace(string(l)))
	}
	return out
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }
