package hops

import (
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// TestJoin joins what Nodes have seen of a packet, whose clocks differ by hours.
func TestJoin(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := map[string]time.Duration{"east/n1": 0, "east/gw": -time.Hour, "west/gw": 2 * time.Hour,
		"west/n2": -3 * time.Hour}
	step := 0
	at := func(place string, s api.PacketSeen) Sighting {
		cluster, node, _ := strings.Cut(place, "/")
		step++
		s.Node, s.At = node, start.Add(clock[place]+time.Duration(step)*time.Millisecond)
		return Sighting{Cluster: cluster, ID: "id-" + cluster, PacketSeen: s}
	}
	in := api.PacketSeen{Point: api.PacketIn, Port: "Pod shop/web", Src: "10.1.0.5:40000", Dst: "10.96.0.9:80"}
	toGateway := api.PacketSeen{Point: api.PacketOut, Port: "tunnel", OuterDst: "192.0.2.1", NextNode: "gw"}
	atGateway := api.PacketSeen{Point: api.PacketIn, Port: "tunnel", OuterDst: "192.0.2.1"}
	toWest := api.PacketSeen{Point: api.PacketOut, Port: "tunnel", OuterDst: "198.51.100.1", NextCluster: "id-west"}
	atWest := api.PacketSeen{Point: api.PacketIn, Port: "tunnel", OuterDst: "10.0.0.1"} // behind a NAT
	toPod := api.PacketSeen{Point: api.PacketOut, Port: "tunnel", OuterDst: "10.0.0.2", NextNode: "n2"}
	atPod := api.PacketSeen{Point: api.PacketIn, Port: "tunnel", OuterDst: "10.0.0.2"}
	held := api.PacketSeen{Point: api.PacketHeld, Port: "Pod shop/db-0"}
	whole := []Sighting{at("east/n1", in), at("east/n1", toGateway), at("east/gw", atGateway), at("east/gw", toWest),
		at("west/gw", atWest), at("west/gw", toPod), at("west/n2", atPod), at("west/n2", held)}
	dropped := api.PacketSeen{Point: api.PacketDropped, Table: "IngressRule", Reason: "isolated", Message: "isolated by x"}
	all := func(string, string) bool { return true }
	for _, row := range []struct {
		name    string
		seen    []Sighting
		watched func(id, node string) bool
		visits  string
		end     End
	}{
		{"whole", whole, all, "east/n1 east/gw west/gw west/n2",
			End{api.HopDelivered, "west", "n2", "reached Pod shop/db-0 at Node west/n2"}},
		{"in any order", []Sighting{whole[7], whole[3], whole[6], whole[0], whole[5], whole[2], whole[1], whole[4]}, all,
			"east/n1 east/gw west/gw west/n2", End{api.HopDelivered, "west", "n2", "reached Pod shop/db-0"}},
		{"lost between the clusters", whole[:4], all, "east/n1 east/gw",
			End{Lost, "east", "gw", "lost after Node east/gw, which has sent it to cluster id-west, by the tunnel to 198"}},
		{"lost before a Node", whole[:2], all, "east/n1",
			End{Lost, "east", "n1", "sent it to Node gw, by the tunnel to 192.0.2.1"}},
		{"into a cluster that is not watched", whole[:4], func(id, _ string) bool { return id != "id-west" },
			"east/n1 east/gw",
			End{OutOfSight, "east", "gw", "for cluster id-west, by the tunnel to 198.51.100.1, which was not watched"}},
		{"dropped", append(whole[:6:6], at("west/n2", atPod), at("west/n2", dropped)), all, "east/n1 east/gw west/gw west/n2",
			End{api.HopDropped, "west", "n2", "dropped at Node west/n2, in table IngressRule (isolated): isolated by x"}},
		{"no report of its end", whole[:1], all, "east/n1",
			End{Lost, "east", "n1", "did not leave it, and no report of a drop"}},
		{"not seen", whole[2:], all, "", End{Unseen, "east", "n1", "Node east/n1 has sent it"}},
		{"to a stranger", append(whole[:1:1], at("east/n1", api.PacketSeen{Point: api.PacketOut, OuterDst: "203.0.113.9"})),
			all, "east/n1", End{OutOfSight, "east", "n1", "by the tunnel to 203.0.113.9, which is no Node's"}},
		{"to the host", append(whole[:1:1],
			at("east/n1", api.PacketSeen{Point: api.PacketOut, Port: "host", Dst: "192.0.2.8:1"})), all, "east/n1",
			End{api.HopLeft, "east", "n1", "left the switch of Node east/n1 for the host"}},
		{"given", append(whole[:1:1], at("east/n1", api.PacketSeen{Point: api.PacketGiven, Port: "Pod shop/db"})), all,
			"east/n1", End{api.HopDelivered, "east", "n1", "delivered to Pod shop/db at Node east/n1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := Join("east", "n1", row.seen, row.watched)
			var visits []string
			for _, v := range path.Visits {
				visits = append(visits, v.Cluster+"/"+v.Node)
			}
			if have := strings.Join(visits, " "); have != row.visits {
				t.Errorf("visits %q, want %q", have, row.visits)
			}
			e := path.End
			if !strings.Contains(e.Text, row.end.Text) || e.Verdict != row.end.Verdict || e.Cluster != row.end.Cluster ||
				e.Node != row.end.Node {
				t.Errorf("end %+v, want %+v", e, row.end)
			}
		})
	}
}
