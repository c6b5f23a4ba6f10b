package datapath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// remembered is a switch with one frontend that clients connect to, written by flowsync as the agent does.
type remembered struct {
	*openVSwitch
	t    *testing.T
	sync *flowsync.Syncer
	f    service.Frontend
	port int
	last time.Time // when connections were opened
}

// remembering starts such a switch. It has the flows of an earlier agent.
func remembering(t *testing.T, f service.Frontend, earlier ...string) *remembered {
	o := dummyBridge(t)
	for _, flow := range earlier {
		o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "add-flow", filepath.Join(o.dir, "br-int.mgmt"), flow)
	}
	s := flowsync.New(flowsync.Options{Dial: ofconn.UnixDialer(filepath.Join(o.dir, "br-int.mgmt")), Instance: 1})
	r := &remembered{openVSwitch: o, t: t, sync: s, port: 20000}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { defer close(done); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	s.Set(flow.Owner{Kind: KindNode, Name: "test"},
		flow.Entries{Flows: []flow.Flow{
			{Table: Classify, Match: flow.All(flow.IP()), Actions: flow.Do(flow.CT(ofp.CT{Zone: mainZone, Table: Service}))},
			{Table: Classify, Match: flow.All(flow.IPv6()), Actions: flow.Do(flow.CT(ofp.CT{Zone: mainZone, Table: Service}))},
		}})
	s.Release()
	r.set(f)
	return r
}

// set makes this the frontend that clients connect to, in addition to others.
func (r *remembered) set(f service.Frontend, others ...service.Frontend) {
	r.t.Helper()
	r.appctl(r.t, "revalidator/wait") // connections that are not counted yet would learn by the new flows
	for o, e := range declared(r.t, append(others, f)...) {
		r.sync.Set(o, e)
		if err := r.sync.Synced(r.t.Context(), o); err != nil {
			r.t.Fatal(err)
		}
	}
	r.appctl(r.t, "revalidator/wait")
	r.f = f
}

// connect opens a connection from each of some clients and returns their endpoints, as the endpoints' last byte.
func (r *remembered) connect(clients ...int) []int {
	r.t.Helper()
	out := make([]int, len(clients))
	r.last = time.Now()
	args := []string{"netdev-dummy/receive", "pod1"}
	header, network := "eth_type(0x0800),ipv4(src=%s%d,dst=%s,proto=6,tos=0,ttl=64,frag=no)", "10.20.0."
	if r.f.VIP.Addr().Is6() {
		header, network = "eth_type(0x86dd),ipv6(src=%s%d,dst=%s,label=0,proto=6,tclass=0,hlimit=64,frag=no)", "fd20::"
	}
	for _, client := range clients {
		r.port++
		args = append(args, fmt.Sprintf("in_port(1),eth(src=0a:00:00:00:00:01,dst=0a:00:00:00:00:02),"+header+
			",tcp(src=%d,dst=%d),tcp_flags(syn)", network, client, r.f.VIP.Addr(), r.port, r.f.VIP.Port()))
	}
	r.appctl(r.t, args...)
	for deadline := time.Now().Add(ovstest.Timeout()); slices.Contains(out, 0); {
		tracked := r.appctl(r.t, "dpctl/dump-conntrack")
		for i, client := range clients {
			line := regexp.MustCompile(fmt.Sprintf(
				`orig=\(src=%s%d,dst=[0-9a-f.:]+,sport=%d,dport=%d\),reply=\(src=[0-9a-f.:]+[.:]([0-9]+),`,
				regexp.QuoteMeta(network), client, r.port-len(clients)+1+i, r.f.VIP.Port()))
			if m := line.FindStringSubmatch(tracked); m != nil {
				fmt.Sscan(m[1], &out[i])
			}
		}
		if i := slices.Index(out, 0); i >= 0 && time.Now().After(deadline) {
			r.t.Fatalf("client %d has no connection:\n%s\n%s", clients[i], tracked, r.appctl(r.t, "dpctl/dump-flows"))
		}
	}
	return out
}

// learned returns the number of clients that the switch remembers.
func (r *remembered) learned() int {
	r.t.Helper()
	flows := r.flowsOf(Affinity)
	return strings.Count(flows, "nw_src=") + strings.Count(flows, "ipv6_src=")
}

func (r *remembered) flowsOf(table ofp.Table) string {
	r.t.Helper()
	return r.run(r.t, "", "ovs-ofctl", "-O", "OpenFlow15", "--no-names", "dump-flows",
		filepath.Join(r.dir, "br-int.mgmt"), fmt.Sprintf("table=%d", table))
}

// later has time pass for the switch, until so much has passed since the last connections.
func (r *remembered) later(d time.Duration) {
	r.t.Helper()
	// The switch notes these connections first.
	r.appctl(r.t, "revalidator/wait")
	for d -= time.Since(r.last); d > 0; d -= time.Second { // counters are collected in between
		r.appctl(r.t, "time/warp", "1000", "250")
	}
}

// TestAffinityOfEarlierTables starts with clients that an earlier agent's flows have learned, in tables that are others
// now: table Affinity was before Endpoint, where Output is. The clients go with the flows that have learned them.
func TestAffinityOfEarlierTables(t *testing.T) {
	withOthers(t)
	const cookie = "cookie=0x1000000000005"
	f := withEndpoints(ones(2)...)
	f.Affinity = time.Hour
	r := remembering(t, f,
		fmt.Sprintf("table=%d,%s,priority=210,tcp,reg8=7,reg9=8 actions=learn(table=%d,idle_timeout=3600,priority=200,"+
			"delete_learned,limit=4096,cookie=0x77,eth_type=0x800,nw_proto=6,NXM_OF_IP_SRC[],NXM_OF_IP_DST[],NXM_OF_TCP_DST[],"+
			"load:8->NXM_NX_REG9[])", Affinity, cookie, Output),
		fmt.Sprintf("table=%d,cookie=0x77,idle_timeout=3600,priority=200,tcp,nw_src=10.20.0.1,nw_dst=10.97.0.1,tp_dst=80 "+
			"actions=load:8->NXM_NX_REG9[]", Output),
	)
	ovstest.Eventually(t, "the switch has no flow of the earlier agent", func() error {
		if text := r.flowsOf(Output) + r.flowsOf(Affinity); strings.Contains(text, "learn(") ||
			strings.Contains(text, "nw_src=10.20.0.1") {
			return errors.New(text)
		}
		return nil
	})
	if r.connect(1); r.learned() != 1 {
		t.Errorf("%d clients are remembered, want one", r.learned())
	}
}

// TestAffinityOverIPv6 lets clients of a Service with an IPv6 address come again, also when endpoints have come.
func TestAffinityOverIPv6(t *testing.T) {
	f := withEndpoints(ones(9)...)
	f.VIP = netip.MustParseAddrPort("[fd96::99]:80")
	f.Endpoints = f.Endpoints[1:]
	for i := range f.Endpoints {
		e := &f.Endpoints[i]
		e.Addr = netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("fd10::%d", i+1)), e.Addr.Port())
	}
	f.Affinity = time.Hour
	few := f
	few.Endpoints = f.Endpoints[:4]
	r := remembering(t, few)
	clients := []int{1, 2, 3, 4, 5, 6, 7, 8}
	first := r.connect(clients...)
	for _, now := range []service.Frontend{few, f} {
		r.set(now)
		if again := r.connect(clients...); !slices.Equal(again, first) {
			t.Errorf("with %d endpoints clients land at %v, want the same as before, %v", len(now.Endpoints), again, first)
		}
	}
	if n := r.learned(); n != len(clients) {
		t.Errorf("%d clients are remembered, want %d", n, len(clients))
	}
}

// TestAffinityTimeout lets clients of a Service with session affinity of 30 seconds come again, on a real switch. Its
// clock is 20 seconds ahead from one look to the next, so a look may take ten at most.
//
//tombolo:alone
func TestAffinityTimeout(t *testing.T) {
	withOthers(t)
	f := withEndpoints(ones(9)...)
	f.Endpoints = f.Endpoints[1:] // 10.10.0.1 to 8
	f.Affinity = 30 * time.Second
	few := f
	few.Endpoints = f.Endpoints[:4]
	r := remembering(t, few)
	var clients []int
	for i := range 24 {
		clients = append(clients, i+1)
	}
	first := r.connect(clients...)
	same := func(when string) {
		t.Helper()
		if now := r.connect(clients...); !slices.Equal(now, first) {
			t.Fatalf("%s clients land at %v, want the same endpoints as before, %v", when, now, first)
		}
	}
	same("at once")
	same("again")
	if n := len(slices.Compact(slices.Sorted(slices.Values(first)))); n != 4 {
		t.Errorf("%d clients land at %d endpoints, want 4", len(clients), n)
	}
	r.set(f)
	same("when endpoints have come")
	for range 3 {
		r.later(20 * time.Second) // 60 in all: the timeout does not count from the first connection
		same("20 seconds after the last connection")
	}
	r.later(40 * time.Second)
	if n := r.learned(); n != 0 {
		t.Errorf("%d clients are remembered 40 seconds after their last connection, want none", n)
	}
	second := r.connect(clients...)
	if slices.Equal(second, first) || !slices.ContainsFunc(second, func(e int) bool { return e > 4 }) {
		t.Errorf("forgotten clients land at %v, want new choices among all endpoints, not %v", second, first)
	}
	first = second
	same("after the new choice")

	// The Service has a second address: a client has one endpoint at both. One that is for the Node's own endpoints
	// alone leads to the client's endpoint only if it is one of them.
	other := f
	other.VIP = netip.MustParseAddrPort("10.97.0.99:8000")
	r.set(other, f)
	same("at a second address")
	local := other
	local.Scope, local.Endpoints = service.Local, f.Endpoints[:4]
	r.set(local, f)
	here := r.connect(clients...)
	for i, e := range here {
		if e > 4 || first[i] <= 4 && e != first[i] {
			t.Errorf("client %d of endpoint %d lands at %d where only 1 to 4 serve", clients[i], first[i], e)
		}
	}
	r.set(f, local)
	first = here
	same("after the choice at another address")
	r.set(f)
	same("with one address again")

	// An endpoint goes: its clients are forgotten, and no others.
	gone, its := int(f.Endpoints[first[0]-1].Addr.Addr().As4()[3]), 0
	fewer := f
	fewer.Endpoints = slices.Delete(slices.Clone(f.Endpoints), first[0]-1, first[0])
	r.set(fewer)
	for _, e := range first {
		if e == gone {
			its++
		}
	}
	if n := r.learned(); n != len(clients)-its {
		t.Errorf("%d clients are remembered when an endpoint with %d of %d clients has gone", n, its, len(clients))
	}
	for i, e := range r.connect(clients...) {
		if e == gone || first[i] != gone && e != first[i] {
			t.Errorf("client %d lands at %d after %d when %d has gone", clients[i], e, first[i], gone)
		}
		first[i] = e
	}
	same("after an endpoint has gone")

	// Another timeout holds for all clients from their next connection on.
	fewer.Affinity = 15 * time.Second
	r.set(fewer)
	first = r.connect(clients...)
	same("with the new timeout")
	r.later(25 * time.Second)
	if n := r.learned(); n != 0 {
		t.Errorf("%d clients are remembered after 25 seconds with a timeout of 15", n)
	}
}
