package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// packetWatch is a reader of PathPacketWatch.
type packetWatch struct {
	t     *testing.T
	lines *bufio.Scanner
	leave func()
}

// watchPacket begins to watch a packet, and returns once the switch reports it.
func (a *asked) watchPacket(t *testing.T, query string) *packetWatch {
	t.Helper()
	server := httptest.NewServer(debugAPI{a.agent}.handler())
	ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+api.PathPacketWatch+"?"+query, nil)
	a.must(err)
	answer, err := http.DefaultClient.Do(request)
	a.must(err)
	w := &packetWatch{t, bufio.NewScanner(answer.Body), func() {
		cancel()
		_ = answer.Body.Close()
		server.Close()
	}}
	t.Cleanup(w.leave)
	if e := w.next(); e.Ready == nil || e.Ready.Node != ownName {
		t.Fatalf("%s: %d, %q, no line says that it is ready", query, answer.StatusCode, w.lines.Text())
	}
	return w
}

func (w *packetWatch) next() (e api.PacketEvent) {
	w.t.Helper()
	if !w.lines.Scan() {
		w.t.Fatalf("the answer ends: %v", w.lines.Err())
	}
	if err := json.Unmarshal(w.lines.Bytes(), &e); err != nil {
		w.t.Fatalf("%s: %v", w.lines.Text(), err)
	}
	return e
}

// seenText is a point of a packet in words.
func seenText(s api.PacketSeen) string {
	words := []string{s.Point, s.Protocol, s.Src + ">" + s.Dst}
	for _, word := range []string{s.Port, s.OuterDst, s.NextNode, s.NextCluster, s.Egress, s.Ingress, s.Table, s.Reason,
		strings.Join(s.Policies, "+")} {
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

const tracedPort, tracedNonce = "40001", "00000000deadbeef"

// TestPacketTrace follows real packets through a real switch.
func TestPacketTrace(t *testing.T) {
	a := newAskedOf(t, family.Dual)
	web, db := a.web.IPs, a.db.IPs
	db4 := db[0].Addr().String()
	a.serve("store", db4)
	a.serve("nothing")
	nothing := a.world.services["default/nothing"]
	nothing.Spec.ClusterIP, nothing.Spec.ClusterIPs = "10.97.0.11", []string{"10.97.0.11"}
	a.settle()
	vip := func(name string) string { return a.world.services["default/"+name].Spec.ClusterIP }
	const allowed = " NetworkPolicy default/web egress[0] NetworkPolicy default/db ingress[0]"
	web4, web6, from6 := web[0].Addr().String(), web[1].Addr().String(), "["+web[1].Addr().String()+"]:"
	db6 := db[1].Addr().String()
	for _, row := range []struct {
		name, watch, send string
		want              []string
	}{
		{"TCP", "protocol=tcp&family=ipv4", "from=default/web&to=default/db&port=5432", []string{
			"in TCP " + web4 + ":40001>" + db4 + ":5432 Pod default/web", "held TCP " + web4 + ":40001>" + db4 +
				":5432 Pod default/db" + allowed}},
		{"TCP over IPv6", "protocol=tcp&family=ipv6", "from=default/web&to=default/db&port=5432", []string{
			"in TCP " + from6 + "40001>[" + db6 + "]:5432 Pod default/web",
			"held TCP " + from6 + "40001>[" + db6 + "]:5432 Pod default/db" + allowed}},
		{"ICMP from where nothing isolates", "protocol=icmp&family=ipv6",
			"from=default/web&to=default/db&protocol=icmp", []string{
				"in ICMPv6 " + web6 + ">" + db6 + " Pod default/web",
				"dropped ICMPv6 " + web6 + ">" + db6 + " IngressRule isolated NetworkPolicy default/db"}},
		{"isolated", "protocol=tcp&family=ipv4", "from=default/web&to=default/db&port=80", []string{
			"in TCP " + web4 + ":40001>" + db4 + ":80 Pod default/web",
			"dropped TCP " + web4 + ":40001>" + db4 + ":80 IngressRule isolated NetworkPolicy default/db"}},
		{"UDP to another Node", "protocol=udp&family=ipv4", "from=default/db&to=default/far&port=53&protocol=udp", []string{
			"in UDP " + db4 + ":40001>10.11.2.9:53 Pod default/db",
			"out UDP " + db4 + ":40001>10.11.2.9:53 tunnel 192.168.78.102 node-2"}},
		{"Service", "protocol=tcp&family=ipv4", "from=default/web&to=default/store", []string{
			"in TCP " + web4 + ":40001>" + vip("store") + ":80 Pod default/web",
			"held TCP " + web4 + ":40001>" + db4 + ":5432 Pod default/db" + allowed}},
		{"Service without endpoints", "protocol=tcp&family=ipv4", "from=default/db&to=default/nothing", []string{
			"in TCP " + db4 + ":40001>" + vip("nothing") + ":80 Pod default/db",
			"rejected TCP " + db4 + ":40001>" + vip("nothing") + ":80 Service no-endpoints"}},
		{"to the host", "protocol=tcp&family=ipv4", "from=default/db&to=192.0.2.7&port=443", []string{
			"in TCP " + db4 + ":40001>192.0.2.7:443 Pod default/db", "out TCP " + db4 + ":40001>192.0.2.7:443 host"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			mark := "&nonce=" + tracedNonce + "&srcPort=" + tracedPort
			w := a.watchPacket(t, row.watch+mark)
			defer w.leave()
			query, err := url.ParseQuery(row.watch)
			a.must(err)
			var have []string
			for range 2 { // reports come in order: the second packet shows that no more came of the first
				var sent api.PacketSent
				if e := a.get(api.PathPacketSend+"?family="+query.Get("family")+"&"+row.send+mark, &sent); e != "" {
					t.Fatal(e)
				}
			}
			row.want = slices.Repeat(row.want, 2)
			for range row.want {
				have = append(have, seenText(*w.next().Seen))
			}
			if diff := cmp.Diff(row.want, have); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
	a.settle()
	if text := a.tracedFlows(); len(text) != 0 {
		t.Errorf("after the last reader has left: %q", text)
	}
}

// tracedFlows are the flows that match the DSCP.
func (a *asked) tracedFlows() (out []string) {
	a.t.Helper()
	dump, err := a.agent.flows.Dump(a.t.Context())
	a.must(err)
	for _, f := range dump.Flows {
		if _, _, ok := f.Flow.Match.OXM().Get(ofp.IPDSCP); ok {
			out = append(out, f.Flow.String())
		}
	}
	return out
}

// TestPacketTraceDelivers gives a packet to its Pod on request alone, and leaves packets of others with the DSCP alone.
func TestPacketTraceDelivers(t *testing.T) {
	a := newAsked(t)
	sent := func(p cni.Attachment) uint64 {
		t.Helper()
		port := a.agent.switchPorts.State().Bridges[a.config.OVSBridge].Ports[p.PortName].OFPort
		stats, err := a.agent.flows.PortStats(t.Context())
		a.must(err)
		for _, s := range stats {
			if s.Port == ofp.Port(port) {
				return s.TxPackets
			}
		}
		t.Fatalf("no counters of %s", p.PortName)
		return 0
	}
	send := "?family=ipv4&from=default/web&to=default/db&port=5432&srcPort=" + tracedPort + "&nonce="
	var withTTL api.PacketSent
	if e := a.get(api.PathPacketSend+send+tracedNonce+"&ttl=7", &withTTL); e != "" || !strings.Contains(withTTL.Packet,
		"nw_ttl=7,") {
		t.Errorf("with a TTL of its own: %s, %+v", e, withTTL)
	}
	for _, row := range []struct {
		name, deliver, nonce, point string
		more                        uint64
	}{
		{"held", "", tracedNonce, api.PacketHeld, 0},
		{"given", "&deliver=true", tracedNonce, api.PacketGiven, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := a.watchPacket(t, "protocol=tcp&family=ipv4&srcPort="+tracedPort+"&nonce="+row.nonce+row.deliver)
			defer w.leave()
			before := sent(a.db)
			var answer api.PacketSent
			for _, nonce := range []string{"0000000000000001", row.nonce} { // the first has no reader
				if nonce != row.nonce && row.deliver == "" {
					continue // a held packet is known by its port alone
				}
				if e := a.get(api.PathPacketSend+send+nonce, &answer); e != "" {
					t.Fatal(e)
				}
			}
			in, out := w.next().Seen, w.next().Seen
			if in.Point != api.PacketIn || out.Point != row.point {
				t.Errorf("%+v, then %+v: want %s", in, out, row.point)
			}
			more := row.more
			if row.deliver != "" {
				more++ // the packet without a reader
			}
			deadline := time.Now().Add(ovstest.Timeout())
			for sent(a.db)-before < more && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			if have := sent(a.db) - before; have != more {
				t.Errorf("the Pod got %d packets, want %d", have, more)
			}
		})
	}
}

// TestPacketTraceErrors asks for what cannot be done.
func TestPacketTraceErrors(t *testing.T) {
	a := newAskedOf(t, family.Dual)
	mark := "&nonce=" + tracedNonce + "&srcPort=" + tracedPort
	for query, want := range map[string]string{
		"family=ipv4&protocol=tcp":                                     `nonce="": give 16 digits`,
		"family=ipv4&protocol=tcp&nonce=" + tracedNonce + "&srcPort=0": `srcPort="0": give a port from 1 to 65535`,
		"protocol=tcp" + mark:                                          `family="": give ipv4 or ipv6`,
		"family=ipv4&protocol=sctp" + mark:                             `protocol="sctp": packets of tcp, udp and icmp`,
		"family=ipv4&protocol=tcp&deliver=maybe" + mark:                `deliver="maybe": give true or false`,
		"family=ipv4&protocol=tcp&forget=maybe" + mark:                 `forget="maybe": give true or false`,
	} {
		if e := a.get(api.PathPacketWatch+"?"+query, nil); !strings.Contains(e, want) {
			t.Errorf("%s: %q, want %q", query, e, want)
		}
	}
	const to = "&to=default/db&port=5432&family=ipv4"
	for query, want := range map[string]string{
		"from=default/web&to=default/db&port=5432":                                   `nonce="": give 16 digits`,
		"from=default/web&to=default/db&port=5432" + mark:                            "family is missing",
		"from=default/far" + to + mark:                                               "the client is of another Node",
		"from=default/web&to=default/db&port=1&protocol=sctp&family=ipv4" + mark:     "protocol=sctp",
		"from=default/web" + to + "&ttl=256" + mark:                                  `ttl="256": give a number from 1`,
		"from=default/web" + to + "&tcpFlags=0" + mark:                               `tcpFlags="0": give a number from 1`,
		"from=default/web&to=default/db&protocol=icmp&family=ipv4&tcpFlags=1" + mark: "for a packet of TCP",
		"from=default/nobody" + to + mark:                                            "nobody",
	} {
		if e := a.get(api.PathPacketSend+"?"+query, nil); !strings.Contains(e, want) {
			t.Errorf("%s: %q, want %q", query, e, want)
		}
	}
	if datapath.TracedDSCP != api.PacketDSCP {
		t.Errorf("packets have the DSCP %d, and the API says %d", datapath.TracedDSCP, api.PacketDSCP)
	}
	var all []*packetWatch
	for i := range api.PacketWatchers {
		all = append(all, a.watchPacket(t, fmt.Sprintf("family=ipv4&protocol=tcp&srcPort=%d&nonce=%016x", 40000+i, i)))
	}
	more := "?family=ipv4&protocol=tcp" + mark
	if e := a.get(api.PathPacketWatch+more, nil); !strings.Contains(e, "are followed on Node") {
		t.Errorf("one packet too many: %q", e)
	}
	for _, w := range all {
		w.leave()
	}
}
