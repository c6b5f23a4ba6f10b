package agent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// TestPlanRotation sends packets through the second device while it has a session, and no longer than needed.
func TestPlanRotation(t *testing.T) {
	old, next := publickey.Key{9}, publickey.Key{10}
	for _, test := range []struct {
		name       string
		key        publickey.Key
		next       publickey.Key
		port       int32
		have       sessions
		device     string
		peerSecond string
	}{
		{"nothing changes", old, publickey.Key{}, 51822, sessions{}, "antrea-mc-wg0", ""},
		{"no session yet", old, next, 51822, sessions{}, "antrea-mc-wg0", next.String()},
		{"a session by the first alone", old, next, 51822, sessions{First: []publickey.Key{old}}, "antrea-mc-wg0",
			next.String()},
		{"a session by both", old, next, 51822, sessions{First: []publickey.Key{old}, Second: []publickey.Key{next}},
			"antrea-mc-wg1", next.String()},
		{"the key has changed", next, next, 51822, sessions{Second: []publickey.Key{next}}, "antrea-mc-wg1", next.String()},
		{"and there is a session by it", next, next, 51822,
			sessions{First: []publickey.Key{next}, Second: []publickey.Key{next}}, "antrea-mc-wg0", next.String()},
		{"this cluster's changes", old, publickey.Key{}, 51822,
			sessions{Changing: true, First: []publickey.Key{old}, Second: []publickey.Key{old}}, "antrea-mc-wg1", old.String()},
		{"this cluster's has changed", old, publickey.Key{}, 51822,
			sessions{Changing: true, Switched: true, First: []publickey.Key{old}, Second: []publickey.Key{old}}, "antrea-mc-wg0",
			old.String()},
		{"and its second device stays", old, publickey.Key{}, 51822, sessions{Remains: true, Second: []publickey.Key{old}},
			"antrea-mc-wg0", old.String()},
		{"while the peer's changes", old, next, 51822,
			sessions{Remains: true, First: []publickey.Key{old}, Second: []publickey.Key{next}}, "antrea-mc-wg1", next.String()},
		{"the peer knows one key", old, publickey.Key{}, 0, sessions{Changing: true, First: []publickey.Key{old}},
			"antrea-mc-wg0", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := encryptedView()
			info := &mcv1alpha1.WireGuardInfo{PublicKey: test.key.String(), NextPort: test.port}
			if test.next != (publickey.Key{}) {
				info.NextPublicKey = test.next.String()
			}
			v.ClusterInfoImports[0].Spec.WireGuard, v.Sessions = info, test.have
			d, problems := Plan(v)
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			route := hostnet.Route{Dst: netip.MustParsePrefix("10.98.0.0/32"), Link: test.device,
				Source: netip.MustParseAddr("10.97.0.0")}
			if n := slices.IndexFunc(d.Host.Routes, func(r hostnet.Route) bool { return r.Dst == route.Dst }); n < 0 ||
				d.Host.Routes[n] != route {
				t.Errorf("there is no route %+v in %+v", route, d.Host.Routes)
			}
			have := allEncryptionOf(v)
			first, second := have.of(betweenClusters), have.of(secondBetweenClusters)
			keepalive := 25 * time.Second
			if test.have.Changing {
				keepalive = 7 * time.Second
			}
			if first.Keepalive != keepalive || first.Peers[0].PublicKey != test.key {
				t.Errorf("the first device has %+v", first)
			}
			key := ""
			if len(second.Peers) > 0 {
				key = second.Peers[0].PublicKey.String()
				if at := second.Peers[0].Endpoint.String(); at != "192.168.79.101:51822" {
					t.Errorf("the second device sends to %s", at)
				}
			}
			if key != test.peerSecond || second.Base.IsValid() != (key != "") {
				t.Errorf("the second device has %+v", second)
			}
		})
	}
}

// TestPlanRotationUserspace puts the second device behind a bridge of its own. The switch resolves its next hop before
// it uses the device.
func TestPlanRotationUserspace(t *testing.T) {
	v := encryptedView()
	v.Config.OVSDatapathType, v.Config.TransportInterface = "netdev", "eth1"
	v.LinkMACs[secondBetweenClusters.at] = "02:00:00:00:00:0c"
	v.Underlay.Uplink = &hostnet.Transport{Interface: "eth1", MAC: "02:00:00:00:00:09", MTU: 1500,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}}
	v.ClusterInfoImports[0].Spec.WireGuard.NextPublicKey,
		v.ClusterInfoImports[0].Spec.WireGuard.NextPort = publickey.Key{10}.String(), 51822
	d, problems := Plan(v)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if there, _ := bridgesOf(d); len(there) == 0 {
		t.Error("no bridge")
	} else if b := there[len(there)-1]; b.Name != secondBetweenClusters.name ||
		b.HardwareAddr != v.LinkMACs[secondBetweenClusters.at] || b.Ports[0].Name != secondBetweenClusters.tap {
		t.Errorf("bridge %+v", b)
	}
	if have := fmt.Sprint(d.Host.Tunnels); have != "[{antrea-mc-wg0 [10.98.0.0]} "+
		"{antrea-mc-wg1 [169.254.64.10]} {br-eth1 [192.168.78.102 192.168.79.101]}]" {
		t.Errorf("next hops are asked for: %s", have)
	}
}

// TestRotationPort finds a port that is not in use otherwise.
func TestRotationPort(t *testing.T) {
	for _, test := range []struct{ clusters, nodes, want, wantNodes int }{
		{51821, 51820, 51822, 51823}, {51819, 51820, 51821, 51822}, {65535, 51820, 1, 51821}, {65535, 1, 2, 3},
		{51821, 65535, 51822, 1}, {51821, 40000, 51822, 40001},
	} {
		c := config.Default()
		c.Multicluster.WireGuard.Port, c.WireGuard.Port = test.clusters, test.nodes
		if have := c.NextWireGuardPort(); have != test.want {
			t.Errorf("with ports %d and %d it is %d, want %d", test.clusters, test.nodes, have, test.want)
		}
		if have := c.NextNodeWireGuardPort(); have != test.wantNodes {
			t.Errorf("with ports %d and %d it is %d between Nodes, want %d", test.clusters, test.nodes, have, test.wantNodes)
		}
	}
}

// TestPlanRotationOfNodes reads a Node's announcement of a change. If a part is invalid, it is left out alone, with a
// reason.
func TestPlanRotationOfNodes(t *testing.T) {
	own, current, next := publickey.Key{1}, publickey.Key{2}, publickey.Key{10}
	type other struct { // a third Node
		key, next publickey.Key
		younger   bool
	}
	third := func(v View, o other) View {
		n := v.Nodes[1].DeepCopy()
		n.Name, n.Spec.PodCIDR, n.Spec.PodCIDRs = "node-0", "10.11.3.0/24", []string{"10.11.3.0/24"}
		n.Status.Addresses[0].Address = "192.168.78.103"
		n.Annotations = map[string]string{nodeKey: o.key.String(), nextNodePort: "51823", nextNodeKey: o.next.String()}
		if o.younger {
			n.CreationTimestamp = metav1.Unix(1, 0)
		}
		v.Nodes = append(slices.Clone(v.Nodes), n)
		return v
	}
	for _, test := range []struct {
		name      string
		next      string
		port      string
		have      sessions
		elsewhere *other
		device    string
		second    string
		reason    string
	}{
		{"an agent of before", "", "", sessions{Changing: true}, nil, "antrea-wg0", "", ""},
		{"nothing changes", "", "51823", sessions{}, nil, "antrea-wg0", "", ""},
		{"no session yet", next.String(), "51823", sessions{}, nil, "antrea-wg0", next.String(), ""},
		{"a session", next.String(), "51823", sessions{Second: []publickey.Key{next}}, nil, "antrea-wg1", next.String(), ""},
		{"this Node's changes", "", "51823", sessions{Changing: true, Second: []publickey.Key{current}}, nil, "antrea-wg1",
			current.String(), ""},
		{"switched", current.String(), "51823", sessions{First: []publickey.Key{current}, Second: []publickey.Key{current}},
			nil, "antrea-wg0", current.String(), ""},
		{"another port", next.String(), "51999", sessions{}, nil, "antrea-wg0", next.String(), ""},
		{"no port", next.String(), "", sessions{}, nil, "antrea-wg0", "", "InvalidWireGuardPort"},
		{"a port that is none", "", "x", sessions{}, nil, "antrea-wg0", "", "InvalidWireGuardPort"},
		{"a key that is none", "k", "51823", sessions{}, nil, "antrea-wg0", "", "InvalidWireGuardKey"},
		{"this Node's key", own.String(), "51823", sessions{}, nil, "antrea-wg0", "", "DuplicateWireGuardKey"},
		{"another's key", next.String(), "51823", sessions{}, &other{next, publickey.Key{12}, true}, "antrea-wg0", "",
			"DuplicateWireGuardKey"},
		{"another's next key", next.String(), "51823", sessions{}, &other{publickey.Key{11}, next, false}, "antrea-wg0", "",
			"DuplicateWireGuardKey"},
		{"a younger one's next key", next.String(), "51823", sessions{}, &other{publickey.Key{11}, next, true}, "antrea-wg0",
			next.String(), ""},
		{"switched, with a copy", current.String(), "51823", sessions{}, &other{current, current, true}, "antrea-wg0",
			current.String(), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := nodesView()
			v.NodeSessions = test.have
			a := v.Nodes[1].Annotations
			if a[nextNodeKey], a[nextNodePort] = test.next, test.port; test.elsewhere != nil {
				v = third(v, *test.elsewhere)
			}
			d, problems := Plan(v)
			problems = slices.DeleteFunc(problems, func(p problem.Problem) bool { return p.Name == "node-0" })
			switch {
			case test.reason == "" && len(problems) > 0:
				t.Errorf("problems %v", problems)
			case test.reason != "" && (len(problems) != 1 || problems[0].Reason.String() != test.reason ||
				problems[0].Name != "node-2"):
				t.Errorf("problems %v", problems)
			}
			route := hostnet.Route{Dst: netip.MustParsePrefix("240.168.78.102/32"), Link: test.device,
				Source: netip.MustParseAddr("240.168.78.101")}
			if n := slices.IndexFunc(d.Host.Routes, func(r hostnet.Route) bool { return r.Dst == route.Dst }); n < 0 ||
				d.Host.Routes[n] != route {
				t.Errorf("there is no route %+v in %+v", route, d.Host.Routes)
			}
			have := allEncryptionOf(v)
			nodes := have.of(betweenNodes)
			key := ""
			for _, p := range have.of(secondBetweenNodes).Peers {
				if p.AllowedIPs[0] == route.Dst {
					key = p.PublicKey.String()
					if at := p.Endpoint.String(); at != "192.168.78.102:"+test.port {
						t.Errorf("the second device sends to %s", at)
					}
				}
			}
			clusters := have.of(betweenClusters).Base.IsValid() || have.of(secondBetweenClusters).Base.IsValid()
			if key != test.second || (nodes.Keepalive > 0) != test.have.Changing || clusters {
				t.Errorf("the devices have %+v", have)
			}
			n := slices.IndexFunc(nodes.Peers, func(p wireguard.Peer) bool { return p.AllowedIPs[0] == route.Dst })
			if n < 0 || nodes.Peers[n].PublicKey != current {
				t.Errorf("the first device has %+v", nodes)
			}
		})
	}
}

// TestPlanRotationOfNodesUserspace gives the second device between Nodes a bridge and a next hop of its own.
func TestPlanRotationOfNodesUserspace(t *testing.T) {
	v := nodesView()
	v.Config.OVSDatapathType, v.Config.TransportInterface = "netdev", "eth1"
	v.LinkMACs[secondBetweenNodes.at] = "02:00:00:00:00:0d"
	v.Underlay.Uplink = &hostnet.Transport{Interface: "eth1", MAC: "02:00:00:00:00:09", MTU: 1500,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}}
	v.Nodes[1].Annotations[nextNodeKey], v.Nodes[1].Annotations[nextNodePort] = publickey.Key{10}.String(), "51823"
	d, problems := Plan(v)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if there, _ := bridgesOf(d); len(there) == 0 {
		t.Error("no bridge")
	} else if b := there[len(there)-1]; b.Name != secondBetweenNodes.name ||
		b.HardwareAddr != v.LinkMACs[secondBetweenNodes.at] || b.Ports[0].Name != secondBetweenNodes.tap {
		t.Errorf("bridge %+v", b)
	}
	if have := fmt.Sprint(d.Host.Tunnels); !strings.HasPrefix(have,
		"[{antrea-wg0 [240.168.78.102]} {antrea-wg1 [169.254.64.14]} {br-eth1 [192.168.78.102") {
		t.Errorf("next hops are asked for: %s", have)
	}
}

// TestRotationRemains keeps the second device for some time after a change, for partners whose agents have stopped. It
// does not delay the next change, which begins without it.
func TestRotationRemains(t *testing.T) {
	for _, asked := range []string{"", "2000-01-01T00:00:00Z"} {
		t.Run(asked, func(t *testing.T) {
			v := nodesView()
			v.Nodes[0].Annotations[nodeKeyNotBefore], v.Nodes[1].Annotations[nextNodePort] = asked, "51823"
			dir := t.TempDir()
			path := dir + "/" + betweenNodes.keyFile
			if _, err := wireguard.LoadKey(path); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path+".next", text, 0o600) // the last step is left
			}
			if err == nil {
				made := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
				err = os.Chtimes(path, made, made)
			}
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				r, tables := testRotation(v, dir, betweenNodes)
				shaken := time.Now()
				r.look = func(device string) wireguard.Session {
					e, _ := tables.inside.encrypted.Get(self)
					if device == secondBetweenNodes.name && len(e.of(secondBetweenNodes).Peers) == 0 {
						return wireguard.Session{}
					}
					return wireguard.Session{Peers: []wireguard.PeerState{{PublicKey: publickey.Key{2}, LastHandshake: shaken}}}
				}
				tables.set(v)
				look := func(wait time.Duration, changing, second bool) {
					t.Helper()
					time.Sleep(wait)
					r.observe()
					tables.engine.Pass()
					r.step()
					tables.engine.Pass()
					info, _ := r.published()
					e, _ := tables.inside.encrypted.Get(self)
					hasSecond, unused := len(e.of(secondBetweenNodes).Peers) > 0, e.of(betweenNodes).Unused
					if (info.NextPublicKey != "") != changing || hasSecond != second || !changing && len(unused) > 0 {
						t.Errorf("after %s: announced %+v, devices %+v", wait, info, e)
					}
				}
				look(0, true, true)
				shaken = time.Now().Add(1)
				look(time.Second, true, true)
				look(r.times.settle+r.times.follow, false, true)
				if asked == "" {
					look(r.times.remain-1, false, true)
					look(1, false, false)
					return
				}
				look(time.Second, false, true)
				look(time.Second, true, true)
			})
		})
	}
}

// TestKnownSessions looks at a device that has no answer for a moment, and at one that gets another key.
func TestKnownSessions(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	key, next, peer := publickey.Key{1}, publickey.Key{2}, publickey.Key{3}
	with := func(own publickey.Key, handshake int) wireguard.Session {
		return wireguard.Session{PublicKey: own,
			Peers: []wireguard.PeerState{{PublicKey: peer, LastHandshake: at(handshake)}}}
	}
	for _, test := range []struct {
		name  string
		looks []wireguard.Session // one a second
		want  []int               // since which second there is a session; -1: no session
	}{
		{"a session", []wireguard.Session{{PublicKey: key}, with(key, 1), with(key, 1)}, []int{-1, 1, 1}},
		{"no device at first", []wireguard.Session{{}, {}, with(key, 2)}, []int{-1, -1, 2}},
		{"no answer once", []wireguard.Session{{PublicKey: key}, with(key, 1), {}, with(key, 1)}, []int{-1, 1, -1, 3}},
		{"another key", []wireguard.Session{{PublicKey: key}, with(key, 1), with(next, 1), with(next, 3)},
			[]int{-1, 1, -1, 3}},
		{"another key after no answer", []wireguard.Session{{PublicKey: key}, with(key, 1), {}, with(next, 1)},
			[]int{-1, 1, -1, -1}},
	} {
		var d knownSessions
		var have []int
		for second, look := range test.looks {
			d.observe(look, at(second), usualTimes, false)
			if since, ok := d.peers[peer]; ok {
				have = append(have, int(since.Sub(begin).Seconds()))
			} else {
				have = append(have, -1)
			}
		}
		if !slices.Equal(have, test.want) {
			t.Errorf("%s: %v, want %v", test.name, have, test.want)
		}
	}
}

// testRotation returns the rotation of a link of a view's Node, with its keys in a directory.
func testRotation(v View, dir string, l insideLink) (*rotation, *tables) {
	pair := pairOf(newEncryptions(Options{Config: v.Config, StateDir: dir, Logger: slog.New(slog.DiscardHandler)}), l)
	tables := newTables(v.Config, v.NodeName)
	r := newRotation(pair[0], tables, v.NodeName, slog.New(slog.DiscardHandler))
	r.ready, r.announce = func() bool { return true }, func() {}
	return r, tables
}

// TestRotationTurn lets a Node wait for another one that changes its key, and report that. It does not wait for a Node
// without a session.
func TestRotationTurn(t *testing.T) {
	current, next := publickey.Key{2}, publickey.Key{10}
	for _, test := range []struct {
		name        string
		session     *publickey.Key
		by          insideLink
		sessionless time.Duration
		changes     bool
		reason      string
	}{
		{"a session by the first device", &current, betweenNodes, 0, false, "WireGuardKeyRotation"},
		{"a session by the second device", &next, secondBetweenNodes, 0, false, "WireGuardKeyRotation"},
		{"no session yet", nil, betweenNodes, time.Hour, false, "WireGuardKeyRotation"},
		{"no session", nil, betweenNodes, 0, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := nodesView()
			v.Nodes[0].Annotations[nodeKeyNotBefore] = "2000-01-01T00:00:00Z"
			v.Nodes[1].Annotations[nextNodeKey], v.Nodes[1].Annotations[nextNodePort] = next.String(), "51823"
			dir := t.TempDir()
			path := dir + "/" + betweenNodes.keyFile
			if _, err := wireguard.LoadKey(path); err != nil {
				t.Fatal(err)
			}
			made := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
			if err := os.Chtimes(path, made, made); err != nil {
				t.Fatal(err)
			}
			r, tables := testRotation(v, dir, betweenNodes)
			r.times.turn, r.times.sessionless = -1, test.sessionless-1
			r.look = func(device string) (s wireguard.Session) {
				if device == test.by.name && test.session != nil {
					s.Peers = []wireguard.PeerState{{PublicKey: *test.session, LastHandshake: time.Now()}}
				}
				return s
			}
			tables.set(v)
			tables.engine.Pass()
			r.observe()
			r.step()
			info, _ := r.published()
			if (info.NextPublicKey != "") != test.changes {
				t.Errorf("announced: %+v", info)
			}
			reason := ""
			for _, p := range r.problems() {
				if reason = p.Reason.String(); !strings.Contains(p.Message, "Node node-2") || !strings.Contains(p.Field,
					nodeKeyNotBefore) {
					t.Errorf("problem %+v", p)
				}
			}
			if reason != test.reason {
				t.Errorf("problems %v", r.problems())
			}
		})
	}
}

// TestRotationAsked requests a change at a time. An invalid time is a problem. A time in the future waits.
func TestRotationAsked(t *testing.T) {
	for _, test := range []struct {
		asked   string
		changes bool
		reason  string
	}{
		{"", false, ""}, {"soon", false, "InvalidTime"}, {"2000-01-01T00:00:00Z", false, ""},
		{time.Now().Add(time.Hour).Format(time.RFC3339), false, ""}, {time.Now().Format(time.RFC3339), true, ""},
	} {
		t.Run(test.asked, func(t *testing.T) {
			v := encryptedView()
			v.Nodes[0].Annotations = map[string]string{multicluster.AnnotationKeyNotBefore: test.asked}
			dir := t.TempDir()
			path := dir + "/" + betweenClusters.keyFile
			if _, err := wireguard.LoadKey(path); err != nil {
				t.Fatal(err)
			}
			made := time.Now().Add(-time.Minute)
			if err := os.Chtimes(path, made, made); err != nil {
				t.Fatal(err)
			}
			r, tables := testRotation(v, dir, betweenClusters)
			r.look = func(string) wireguard.Session { return wireguard.Session{} }
			tables.set(v)
			tables.engine.Pass()
			r.observe()
			r.step()
			info, _ := r.published()
			if (info.NextPublicKey != "") != test.changes {
				t.Errorf("announced: %+v", info)
			}
			reason := ""
			for _, p := range r.problems() {
				reason = p.Reason.String()
			}
			if reason != test.reason {
				t.Errorf("problems %v", r.problems())
			}
			if p, _ := tables.peers.peering.Get(self); p.Part.Role != peering.Gateway {
				t.Errorf("role %v", p.Part.Role)
			}
		})
	}
}
