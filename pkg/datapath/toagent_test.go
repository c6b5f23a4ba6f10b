package datapath

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// TestLogged checks that rules with logging send the agent the packets that they decide about, and decide as they would
// without logging.
func TestLogged(t *testing.T) {
	withOthers(t)
	n := newPacketNode(t)
	n.server.serve(t, "tcp", ":8080", "server")
	n.server.serve(t, "tcp6", ":8080", "server")
	seen := make(chan ofp.PacketIn2, 100)
	n.packetsIn(t, func(in ofp.PacketIn2) {
		if KindOf(in) == PolicyLog {
			seen <- in
		}
	})
	next := func() ofp.PacketIn2 {
		t.Helper()
		select {
		case in := <-seen:
			return in
		case <-time.After(replyTimeout()):
			t.Fatal("nothing is logged")
		}
		return ofp.PacketIn2{}
	}
	n.policy.Tiers.Set(derive.Object{Name: "application"}, 251)
	logged := func(a policy.Action, service string) string {
		t.Helper()
		rule := policy.RuleFacts{Action: a, AnyPeer: true, Ports: []policy.PortRange{{Protocol: "TCP", From: 8080, To: 8080}},
			Log: true, Name: "web", LogLabel: "two words"}
		n.policy.Policies[policy.AntreaClusterNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Name: "log"}: {
			Tier: "application", Priority: 5, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=server"}},
			Ingress: &policy.DirectionFacts{Rules: []policy.RuleFacts{rule}},
		}})
		n.sync(t)
		limit := silence() // no agent refuses connections here
		if a == policy.Allow {
			limit = replyTimeout()
		}
		c, err := n.a.dialWithin(limit, over("tcp", service), service)
		if (err == nil) != (a == policy.Allow) {
			t.Errorf("%s: the client gets %v", a, err)
		}
		if err == nil {
			if _, err := n.a.ask(over("tcp", service), service); err != nil {
				t.Error(err)
			}
			next() // the first connection's
			c.Close()
		}
		in := next()
		entry, err := LogEntryOf(in.Userdata)
		h, unread := HeadersOf(in.Data)
		is4 := !strings.HasPrefix(service, "[")
		for err == nil && (entry.Action != a || h.Dst.Is4() != is4) { // an earlier attempt that the client has repeated
			in = next()
			entry, err = LogEntryOf(in.Userdata)
			h, unread = HeadersOf(in.Data)
		}
		if err := errors.Join(err, unread); err != nil {
			t.Fatal(err)
		}
		entry.Priority = 0 // any
		return fmt.Sprint(entry, " ", h.Src, " ", h.Dst, " ", h.DstPort, " ", h.ProtocolName(), " ", h.Length)
	}
	for _, a := range []policy.Action{policy.Allow, policy.Drop, policy.Reject} {
		for service, packet := range map[string]string{
			"10.97.0.11:80": "10.11.0.3 10.11.0.2 8080 TCP 60", "[fd97::11]:80": "fd11::3 fd11::2 8080 TCP 80",
		} {
			want := fmt.Sprintf("AntreaPolicyIngressRule AntreaClusterNetworkPolicy:log web 0 %d 0 two_words %s", a, packet)
			if have := logged(a, service); have != want {
				t.Errorf("logged\n%s, want\n%s", have, want)
			}
		}
	}
}

// TestShares lets a Pod send far more to the agent than its share, by logged packets and by answers of DNS. All packets
// of another Pod still arrive, and the switch has counted the packets that it dropped.
func TestShares(t *testing.T) {
	n := newPacketNode(t)
	n.Node.PacketInRate = 160
	n.node.Set(Self, n.Node)
	serveDNS(t, n.server, zone{"www.example.com.": {"192.0.2.1"}})
	var mu sync.Mutex
	came := map[string]int{} // by kind and Pod
	n.packetsIn(t, func(in ofp.PacketIn2) {
		h, err := HeadersOf(in.Data)
		if err != nil {
			return
		}
		pod := h.Src
		if KindOf(in) == DNSAnswer {
			pod = h.Dst
		}
		mu.Lock()
		defer mu.Unlock()
		came[fmt.Sprint(KindOf(in), " ", pod)]++
	})
	count := func(what string) int {
		mu.Lock()
		defer mu.Unlock()
		return came[what]
	}
	n.policy.Tiers.Set(derive.Object{Name: "application"}, 251)
	udp := func(port uint16) []policy.PortRange {
		return []policy.PortRange{{Protocol: "UDP", From: port, To: port}}
	}
	n.policy.Policies[policy.AntreaClusterNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Name: "log"}: {
		Tier: "application", Priority: 5,
		AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=a"}, {Namespace: "default", Pods: "app=b"}},
		Egress: &policy.DirectionFacts{Rules: []policy.RuleFacts{
			{Action: policy.Drop, AnyPeer: true, Ports: udp(9), Log: true, Name: "nine"},
			{Action: policy.Allow, AnyPeer: true, Ports: udp(dnsPort)},
			{Action: policy.Allow, Names: []string{"*.example.com"}, AnyPort: true},
		}},
	}})
	n.sync(t)
	send := func(from namespace, port int, payload []byte, times int) {
		t.Helper()
		c, err := from.dial("udp", fmt.Sprint("10.11.0.2:", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		for i := range times {
			if _, err := c.Write(payload); err != nil {
				t.Fatal(err)
			}
			if i%20 == 19 { // so that no socket's buffer drops packets that have to be counted
				n.ovs.appctl(t, "version")
			}
		}
	}
	const flood, others = 1200, 8
	for _, test := range []struct {
		kind          PacketKind
		port          int
		payload       []byte
		rate, atFirst int
	}{
		{PolicyLog, 9, []byte("logged"), 160 / logShare, 160 / logBurst},
		{DNSAnswer, dnsPort, queryFor("www.example.com."), 160 / dnsShare, 160 / dnsShare},
	} {
		began := time.Now()
		send(n.a, test.port, test.payload, flood)
		send(n.b, test.port, test.payload, others)
		ovstest.Eventually(t, fmt.Sprintf("all of the other Pod come as %s", test.kind), func() error {
			if have := count(string(test.kind) + " 10.11.0.4"); have != others {
				return fmt.Errorf("%d of %d came", have, others)
			}
			return nil
		})
		took := time.Since(began)
		have, most := count(string(test.kind)+" 10.11.0.3"), test.atFirst+int(float64(test.rate)*(took.Seconds()+1))
		if have == 0 || have > most || most >= flood {
			t.Errorf("%d packets of the Pod that floods came as %s in %s, want at most %d", have, test.kind, took, most)
		}
		t.Logf("%s: %d of %d, and all %d of the other Pod, in %s", test.kind, have, flood, others, took)
	}
	c, err := ofconn.Connect(t.Context(), ofconn.UnixDialer(n.ovs.dir+"/br-int.mgmt"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	parts, err := c.Request(t.Context(), ofp.MeterStatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	dropped := 0
	for _, part := range parts {
		for _, m := range part.(ofp.MeterStatsReply).Meters {
			if MetersLog(m.ID) {
				dropped += int(m.Bands[0].Packets)
			}
		}
	}
	if want := flood - count("policy-log 10.11.0.3"); dropped != want {
		t.Errorf("the meters of the log have dropped %d packets, want %d", dropped, want)
	}
}

// FuzzHeadersOf reads frames and entries that are damaged.
func FuzzHeadersOf(f *testing.F) {
	f.Add(segment(tcpSYN, 1, 0, ""),
		[]byte("policy-log AntreaPolicyIngressRule AntreaNetworkPolicy:default/log web 0 3 44900 label"))
	f.Add(datagram(protoUDP, 3)[:ethLen+ipv4Len], []byte("policy-log a b c 1 1 1"))
	f.Add(extended([]byte{extHopByHop, extFragment, extAuth}, protoUDP, portsThen(9)...), []byte("policy-log a"))
	f.Fuzz(func(t *testing.T, frame, userdata []byte) {
		if h, err := HeadersOf(frame); err == nil && (!h.Src.IsValid() || h.ProtocolName() == "") {
			t.Errorf("%x is %+v", frame, h)
		}
		if e, err := LogEntryOf(userdata); err == nil {
			if again, err := LogEntryOf([]byte(string(PolicyLog) + " " + e.String())); err != nil || again != e {
				t.Errorf("%q is %+v, and again %+v: %v", userdata, e, again, err)
			}
		}
	})
}
