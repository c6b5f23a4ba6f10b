package datapath

import (
	"fmt"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// TestLogged: rules that log show the agent the packets that they decide about, and do with them what they would do
// without.
func TestLogged(t *testing.T) {
	besideOthers(t)
	n := newPacketNode(t)
	n.server.serve(t, "tcp", ":8080", "server")
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
	logged := func(a policy.Action) string {
		t.Helper()
		rule := policy.RuleFacts{Action: a, AnyPeer: true, Ports: []policy.PortRange{{Protocol: "TCP", From: 8080, To: 8080}}, Log: true, Name: "web", LogLabel: "two words"}
		n.policy.Policies[policy.AntreaClusterNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Name: "log"}: {
			Tier: "application", Priority: 5, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=server"}},
			Ingress: &policy.DirectionFacts{Rules: []policy.RuleFacts{rule}},
		}})
		n.sync(t)
		c, err := n.a.dial("tcp", "10.97.0.11:80")
		if (err == nil) != (a == policy.Allow) {
			t.Errorf("%s: the client gets %v", a, err)
		}
		if err == nil {
			if _, err := n.a.ask("tcp", "10.97.0.11:80"); err != nil {
				t.Error(err)
			}
			next() // the first connection's
			c.Close()
		}
		in := next()
		entry, err := LogEntryOf(in.Userdata)
		if err != nil {
			t.Fatal(err)
		}
		h, err := HeadersOf(in.Data)
		if err != nil {
			t.Fatal(err)
		}
		entry.Priority = 0 // any
		return fmt.Sprint(entry, " ", h.Src, " ", h.Dst, " ", h.DstPort, " ", h.ProtocolName(), " ", h.Length)
	}
	for _, a := range []policy.Action{policy.Allow, policy.Drop, policy.Reject} {
		want := fmt.Sprintf("AntreaPolicyIngressRule AntreaClusterNetworkPolicy:log web 0 %d 0 two_words 10.11.0.3 10.11.0.2 8080 TCP 60", a)
		if have := logged(a); have != want {
			t.Errorf("logged\n%s, want\n%s", have, want)
		}
		for len(seen) > 0 {
			<-seen // attempts that the client repeats
		}
	}
}

// FuzzHeadersOf reads frames and entries that are damaged.
func FuzzHeadersOf(f *testing.F) {
	f.Add(segment(tcpSYN, 1, 0, ""), []byte("policy-log AntreaPolicyIngressRule AntreaNetworkPolicy:default/log web 0 3 44900 label"))
	f.Add(datagram(protoUDP, 3)[:ethLen+ipv4Len], []byte("policy-log a b c 1 1 1"))
	f.Fuzz(func(t *testing.T, frame, userdata []byte) {
		if h, err := HeadersOf(frame); err == nil && (!h.Src.Is4() || h.ProtocolName() == "") {
			t.Errorf("%x is %+v", frame, h)
		}
		if e, err := LogEntryOf(userdata); err == nil {
			if again, err := LogEntryOf([]byte(string(PolicyLog) + " " + e.String())); err != nil || again != e {
				t.Errorf("%q is %+v, and again %+v: %v", userdata, e, again, err)
			}
		}
	})
}
