// Package hops joins the answers of agents about a packet into its path through Nodes and clusters. It is pure: the
// caller asks the agents.
package hops

import (
	"context"
	"fmt"
	"net/url"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// maxHops is the longest path that is followed, in Nodes. Between two clusters a packet meets at most four Nodes.
const maxHops = 16

// Verdicts of a path, in addition to the verdicts of api.HopEnd.
const (
	Unanswered = "unanswered" // a Node does not answer
	OutOfSight = "out-of-sight"
	Loop       = "loop"
)

// Path is the path of a packet.
type Path struct {
	Hops []Hop `json:"hops"`
	End  End   `json:"end"`
}

// Hop is the path through one Node.
type Hop struct {
	Cluster string `json:"cluster"` // as the user names it
	api.Hop
}

// End is where the path ends, or the last that is known of the packet.
type End struct {
	Verdict string `json:"verdict"` // of api.HopEnd, or one of this package
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Text    string `json:"text"`
}

// Cluster answers about one cluster.
type Cluster interface {
	// Name is the cluster as the user names it, and ID its ID in the ClusterSet.
	Name() string
	ID() string
	// Ask asks the agent of a Node for api.PathHop.
	Ask(ctx context.Context, node string, query url.Values) (api.HopList, error)
	// GatewayNode returns the Node of the Gateway with an address that other clusters know.
	GatewayNode(address string) (node string, err error)
}

// Follow follows a packet from its first hop, which is in the first cluster, to its end.
func Follow(ctx context.Context, clusters []Cluster, in Cluster, first api.Hop, endpoint string) Path {
	var p Path
	seen := map[string]bool{}
	for hop := first; ; {
		p.Hops = append(p.Hops, Hop{in.Name(), hop})
		end := func(verdict, text string) Path {
			p.End = End{verdict, in.Name(), hop.Node, text}
			return p
		}
		next := hop.End.Next
		if hop.End.Verdict != api.HopForwarded || next == nil {
			return end(hop.End.Verdict, endText(in.Name(), hop))
		}
		to, node, err := target(clusters, in, next)
		if err != nil {
			return end(OutOfSight, fmt.Sprintf("it leaves Node %s/%s: %v", in.Name(), hop.Node, err))
		}
		query := queryOf(in, to, hop, endpoint)
		visit := to.Name() + "/" + node + "?" + query.Get("packet")
		if seen[visit] || len(p.Hops) >= maxHops {
			return end(Loop, fmt.Sprintf("it comes to Node %s/%s again, after %d Nodes: look at the routes of table Route there",
				to.Name(), node, len(p.Hops)))
		}
		seen[visit] = true
		list, err := to.Ask(ctx, node, query)
		if err == nil && len(list.Hops) != 1 {
			err = fmt.Errorf("it answers with %d hops: are this command and the agent of one version?", len(list.Hops))
		}
		if err != nil {
			p.End = End{Unanswered, to.Name(), node, fmt.Sprintf("it is sent to Node %s/%s, which does not answer: %v",
				to.Name(),
				node, err)}
			return p
		}
		in, hop = to, list.Hops[0]
	}
}

// queryOf returns the question about the packet of a hop for the next agent.
func queryOf(in, to Cluster, hop api.Hop, endpoint string) url.Values {
	query := url.Values{}
	next := hop.End.Next
	for name, value := range map[string]string{"packet": next.Packet, "outerSrc": next.OuterSrc, "outerDst": next.OuterDst,
		"key": next.Key, "endpoint": endpoint} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if to == in {
		query.Set("fromNode", hop.Node)
	} else {
		query.Set("fromCluster", in.ID())
	}
	return query
}

// target returns the Node that a packet is sent to.
func target(clusters []Cluster, in Cluster, next *api.HopNext) (Cluster, string, error) {
	switch {
	case next.Node != "":
		return in, next.Node, nil
	case next.Cluster == "":
		return nil, "", fmt.Errorf("its tunnel ends at %s, which is no Node's and no Gateway's", next.OuterDst)
	}
	for _, c := range clusters {
		if c.ID() != next.Cluster {
			continue
		}
		node, err := c.GatewayNode(next.Gateway)
		return c, node, err
	}
	return nil, "", fmt.Errorf("it goes to Gateway %s of cluster %s, which is not among the clusters that are asked: "+
		"add its "+
		"context to --context", next.Gateway, next.Cluster)
}

// endText returns the end of a packet in words.
func endText(cluster string, hop api.Hop) string {
	end, at := hop.End, cluster+"/"+hop.Node
	switch end.Verdict {
	case api.HopDelivered:
		return fmt.Sprintf("delivered to %s at Node %s", end.To, at)
	case api.HopLeft:
		return fmt.Sprintf("left the network at Node %s: %s", at, end.Message)
	}
	text := fmt.Sprintf("%s at Node %s, in table %s", end.Verdict, at, end.Table)
	if end.Reason != "" {
		text += " (" + end.Reason + ")"
	}
	if end.Message != "" {
		text += ": " + end.Message
	}
	return text
}
