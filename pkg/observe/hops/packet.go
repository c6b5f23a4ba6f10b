package hops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// These are verdicts of the path of a real packet, in addition to the verdicts of api.HopEnd and OutOfSight.
const (
	Lost   = "lost"   // it was sent to a Node that has not seen it, or a Node has seen it come and not go
	Unseen = "unseen" // the first switch has not reported it
)

// Sighting is what a Node of a cluster has seen of a packet.
type Sighting struct {
	Cluster string `json:"cluster"` // as the user names it
	ID      string `json:"-"`       // of the cluster in its ClusterSet, empty if it is no member
	api.PacketSeen
}

// Visit is the path of a packet through a Node: where it came in, and where it left or ended.
type Visit struct {
	Cluster string           `json:"cluster"`
	Node    string           `json:"node"`
	Seen    []api.PacketSeen `json:"seen"`

	id string
}

// PacketPath is the path of a packet that was sent.
type PacketPath struct {
	Visits []Visit `json:"visits"`
	End    End     `json:"end"`
}

// Join joins the reports of Nodes about a packet into its path, which begins at the sender's Node. Clocks of Nodes may
// differ, so the order follows from the addresses of tunnels. watched reports whether a Node of a cluster was watched.
func Join(cluster, node string, seen []Sighting, watched func(id, node string) bool) PacketPath {
	rest := visits(seen)
	var out PacketPath
	at := slices.IndexFunc(rest, func(v Visit) bool { return v.Cluster == cluster && v.Node == node })
	if at < 0 {
		out.End = End{Unseen, cluster, node, fmt.Sprintf("Node %s/%s has sent it, and its switch has not reported it: look "+
			"at `tombolo get status` there", cluster, node)}
		return out
	}
	for {
		v := rest[at]
		out.Visits, rest = append(out.Visits, v), slices.Delete(rest, at, at+1)
		last := v.Seen[len(v.Seen)-1]
		if last.Point != api.PacketOut || last.NextNode == "" && last.NextCluster == "" && last.OuterDst == "" {
			out.End = v.end(last)
			return out
		}
		if at = nextVisit(rest, v, last); at < 0 {
			out.End = v.lost(last, watched)
			return out
		}
	}
}

// visits returns the visits of Nodes. A packet that comes in begins one.
func visits(seen []Sighting) (out []Visit) {
	seen = slices.Clone(seen)
	slices.SortStableFunc(seen, func(x, y Sighting) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Node, y.Node), x.At.Compare(y.At))
	})
	for i, s := range seen {
		if i == 0 || s.Point == api.PacketIn || seen[i-1].Cluster != s.Cluster || seen[i-1].Node != s.Node {
			out = append(out, Visit{Cluster: s.Cluster, Node: s.Node, id: s.ID})
		}
		v := &out[len(out)-1]
		v.Seen = append(v.Seen, s.PacketSeen)
	}
	return out
}

// nextVisit returns the visit that follows on one which has sent the packet on, or -1.
func nextVisit(rest []Visit, from Visit, last api.PacketSeen) int {
	best, most := -1, 0
	for i, v := range rest {
		first, score := v.Seen[0], 0
		switch {
		case last.NextNode != "" && v.Cluster == from.Cluster && v.Node == last.NextNode:
			score = 4
		case last.NextCluster != "" && v.id == last.NextCluster:
			score = 2
		case last.NextNode == "" && last.NextCluster == "" && first.OuterDst != "" && first.OuterDst == last.OuterDst:
			score = 2
		default:
			continue
		}
		if first.OuterDst == last.OuterDst { // a NAT may have changed it
			score++
		}
		if score > most {
			best, most = i, score
		}
	}
	return best
}

// end is the end of a path that ends in a Node.
func (v Visit) end(last api.PacketSeen) End {
	at := v.Cluster + "/" + v.Node
	switch last.Point {
	case api.PacketHeld:
		return End{api.HopDelivered, v.Cluster, v.Node, fmt.Sprintf("reached %s at Node %s, which did not get it: --deliver "+
			"gives it the packet", last.Port, at)}
	case api.PacketGiven:
		return End{api.HopDelivered, v.Cluster, v.Node, fmt.Sprintf("delivered to %s at Node %s", last.Port, at)}
	case api.PacketDropped, api.PacketRejected:
		text := fmt.Sprintf("%s at Node %s, in table %s (%s)", last.Point, at, last.Table, last.Reason)
		if last.Message != "" {
			text += ": " + last.Message
		}
		return End{last.Point, v.Cluster, v.Node, text}
	case api.PacketOut:
		return End{api.HopLeft, v.Cluster, v.Node, fmt.Sprintf("left the switch of Node %s for the host, which gets it or "+
			"routes it to %s", at, last.Dst)}
	}
	return End{Lost, v.Cluster, v.Node, fmt.Sprintf("came into the switch of Node %s and did not leave it, and no "+
		"report of a drop came: `tombolo trace` without --packet shows the flows", at)}
}

// lost is the end of a path whose next Node has not seen the packet.
func (v Visit) lost(last api.PacketSeen, watched func(id, node string) bool) End {
	to, where := "Node "+last.NextNode, v.Cluster+"/"+v.Node
	if last.NextNode == "" {
		to = "cluster " + last.NextCluster
	}
	way := "by the host's routes"
	if last.OuterDst != "" {
		way = "by the tunnel to " + last.OuterDst
	}
	switch {
	case last.NextNode == "" && last.NextCluster == "":
		return End{OutOfSight, v.Cluster, v.Node, fmt.Sprintf("left Node %s %s, which is no Node's and no Gateway's", where,
			way)}
	case !watched(cmp.Or(last.NextCluster, v.id), last.NextNode):
		return End{OutOfSight, v.Cluster, v.Node, fmt.Sprintf("left Node %s for %s, %s, which was not watched", where, to,
			way)}
	}
	return End{Lost, v.Cluster, v.Node, strings.TrimSpace(fmt.Sprintf("lost after Node %s, which has sent it to %s, %s: "+
		"no Node there has seen it; look at firewalls and the MTU between them, and at `tombolo diagnose`", where, to, way))}
}
