package follow_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
)

// packet answers as agents do about a packet that is followed. Agents without sightings do not answer.
func (w *world) packet(node, path string, query url.Values, stdout, stderr io.Writer) int {
	w.mu.Lock()
	seen, ok := w.seen[node]
	w.asked = append(w.asked, node+" "+path+" "+query.Encode())
	w.mu.Unlock()
	lines := json.NewEncoder(stdout)
	switch {
	case !ok:
		fmt.Fprintln(stderr, "tombolo: the agent's debug socket does not answer: is tombolo-agent running on this Node?")
		return 1
	case path == api.PathPacketSend:
		close(w.sent)
		_ = lines.Encode(api.PacketSent{Node: node, Packet: "in_port=1,tcp"})
		return 0
	}
	_ = lines.Encode(api.PacketEvent{Ready: &api.PacketReady{Node: node}})
	select {
	case <-w.sent:
	case <-time.After(time.Minute):
	}
	for i, s := range seen {
		s.Node, s.At = node, time.Unix(1000, int64(i)*1_500_000)
		_ = lines.Encode(api.PacketEvent{Seen: &s})
	}
	return 0
}

// TestSendPacket sends a packet with real API servers, and follows it through Nodes of two clusters. One Node is
// silent.
func TestSendPacket(t *testing.T) {
	east, west := newWorld(t, "east", "192.0.2.1"), newWorld(t, "west", "192.0.2.2")
	east.sent = make(chan struct{})
	west.sent = east.sent
	east.pod("web", "east-n2", "10.1.0.5")
	east.service("antrea-mc-db")
	east.ends["east-n2"] = api.HopEnd{Verdict: api.HopDelivered}
	ends := func(point, port string) api.PacketSeen {
		return api.PacketSeen{Point: point, Port: port, Protocol: "TCP", Src: "10.1.0.5:40000", Dst: "10.97.0.1:80"}
	}
	toGateway, toWest := ends(api.PacketOut, "tunnel"), ends(api.PacketOut, "tunnel")
	toGateway.OuterDst, toGateway.NextNode = "10.0.0.1", "east-n1"
	toGateway.Egress = "NetworkPolicy shop/web egress[0]"
	toWest.OuterDst, toWest.NextCluster = "192.0.2.2", "id-west"
	fromEast := ends(api.PacketIn, "tunnel")
	fromEast.OuterSrc, fromEast.OuterDst = "192.0.2.1", "192.0.2.2"
	end := ends(api.PacketDropped, "")
	end.Table, end.Reason, end.Message = "IngressRule", "isolated", "isolated by shop/db\x1b[2J"
	east.seen = map[string][]api.PacketSeen{"east-n2": {ends(api.PacketIn, "Pod shop/web"), toGateway},
		"east-n1": {ends(api.PacketIn, "tunnel"), toWest}}
	west.seen = map[string][]api.PacketSeen{"west-n1": {fromEast, end}}
	answer, err := follow.SendPacket(t.Context(), followed(t, east.Cluster, west.Cluster),
		follow.Question{From: "shop/web", To: "shop/db"}, false)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := follow.PrintPacket(&b, answer); err != nil {
		t.Fatal(err)
	}
	const want = `1. Node east/east-n2
   in        TCP 10.1.0.5:40000 -> 10.97.0.1:80, from Pod shop/web
   out       TCP 10.1.0.5:40000 -> 10.97.0.1:80, to tunnel 10.0.0.1, out by NetworkPolicy shop/web egress[0]  (1.5 ms)
2. Node east/east-n1
   in        TCP 10.1.0.5:40000 -> 10.97.0.1:80, from tunnel
   out       TCP 10.1.0.5:40000 -> 10.97.0.1:80, to tunnel 192.0.2.2  (1.5 ms)
3. Node west/west-n1
   in        TCP 10.1.0.5:40000 -> 10.97.0.1:80, from tunnel 192.0.2.1
   dropped   TCP 10.1.0.5:40000 -> 10.97.0.1:80, in table IngressRule  (1.5 ms)
=> dropped at Node west/west-n1, in table IngressRule (isolated): isolated by shop/db_[2J
Not watched: west/west-n2: `
	if !strings.HasPrefix(b.String(), want) {
		t.Errorf("have\n%s\nwant\n%s", b.String(), want)
	}
	tf := follow.TraceflowOf(answer, follow.Question{From: "shop/web", To: "shop/db"})
	var points []string
	for _, r := range tf.Results {
		for _, o := range r.Observations {
			points = append(points, strings.TrimSpace(fmt.Sprint(r.Node, " ", o.Component, " ", o.ComponentInfo, " ",
				o.Action, " ", o.TunnelDstIP)))
		}
	}
	wantPoints := []string{"east/east-n2 SpoofGuard  Forwarded", "east/east-n2 NetworkPolicy EgressRule Forwarded",
		"east/east-n2 Forwarding Output Forwarded 10.0.0.1",
		"east/east-n1 Forwarding Classification Received", "east/east-n1 Forwarding Output Forwarded 192.0.2.2",
		"west/west-n1 Forwarding Classification Received", "west/west-n1 Forwarding IngressRule Dropped"}
	if !slices.Equal(points, wantPoints) || tf.Phase != "Succeeded" || tf.Source != "shop/web" {
		t.Errorf("%+v: have\n%s\nwant\n%s", tf, strings.Join(points, "\n"), strings.Join(wantPoints, "\n"))
	}
	marks := map[string]bool{}
	for _, asked := range append(east.asked, west.asked...) {
		node, text, _ := strings.Cut(asked, " ")
		path, text, _ := strings.Cut(text, " ")
		if query, err := url.ParseQuery(text); err == nil && strings.HasPrefix(path, "/v1/packet/") {
			marks[query.Get("nonce")+" "+query.Get("srcPort")+" "+query.Get("family")] = true
			if path == api.PathPacketSend && (node != "east-n2" || query.Get("to") != "service/shop/antrea-mc-db") {
				t.Errorf("sent by %s: %s", node, text)
			}
		}
	}
	if len(marks) != 1 {
		t.Errorf("the packet has the marks %v at Nodes, want one", marks)
	}
	for _, row := range []struct {
		want string
		q    follow.Question
	}{
		{"the switch chooses the endpoint", follow.Question{From: "shop/web", To: "shop/db", ToCluster: "id-west"}},
		{"there is no such Pod", follow.Question{From: "shop/nobody", To: "shop/db"}},
	} {
		if _, err := follow.SendPacket(t.Context(), followed(t, east.Cluster, west.Cluster), row.q, false); err == nil ||
			!strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v, want %q", row.q, err, row.want)
		}
	}
}
