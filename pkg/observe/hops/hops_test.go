package hops

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// fakeCluster has the answers of Nodes, and what they were asked.
type fakeCluster struct {
	name, id string
	nodes    map[string]api.HopEnd
	gateways map[string]string
	asked    []string
}

func (f *fakeCluster) Name() string { return f.name }
func (f *fakeCluster) ID() string   { return f.id }

func (f *fakeCluster) Ask(_ context.Context, node string, query url.Values) (api.HopList, error) {
	f.asked = append(f.asked, node+" "+query.Encode())
	end, ok := f.nodes[node]
	if !ok {
		return api.HopList{}, errors.New("no answer within 10s")
	}
	return api.HopList{Hops: []api.Hop{{Node: node, End: end}}}, nil
}

func (f *fakeCluster) GatewayNode(address string) (string, error) {
	if node := f.gateways[address]; node != "" {
		return node, nil
	}
	return "", errors.New("no Gateway of cluster " + f.id + " has the address " + address)
}

func forwarded(next api.HopNext) api.HopEnd {
	return api.HopEnd{Verdict: api.HopForwarded, Next: &next}
}

// TestFollow joins hops to paths with each end.
func TestFollow(t *testing.T) {
	toGateway := forwarded(api.HopNext{Node: "gw", Packet: "tcp,tp_dst=80", OuterSrc: "10.0.0.2", OuterDst: "10.0.0.1",
		Key: "0x5"})
	across := forwarded(api.HopNext{Cluster: "id-west", Gateway: "192.0.2.1", Packet: "tcp,tp_dst=81",
		OuterDst: "192.0.2.1"})
	for _, row := range []struct {
		name       string
		east, west map[string]api.HopEnd
		want, text string
		hops       int
	}{
		{"delivered at once", nil, nil, api.HopDelivered, "delivered to Pod shop/db at Node east/n2", 1},
		{"across", map[string]api.HopEnd{"gw": across}, map[string]api.HopEnd{"gw": {Verdict: api.HopDelivered,
			To: "Pod shop/db"}},
			api.HopDelivered, "delivered to Pod shop/db at Node west/gw", 3},
		{"dropped there", map[string]api.HopEnd{"gw": across}, map[string]api.HopEnd{"gw": {Verdict: api.HopDropped,
			Table: "Exports", Reason: "not-exported", Message: "Export it."}},
			api.HopDropped, "dropped at Node west/gw, in table Exports (not-exported): Export it.", 3},
		{"left", map[string]api.HopEnd{"gw": {Verdict: api.HopLeft, Message: "by its routes"}}, nil, api.HopLeft,
			"left the network at Node east/gw: by its routes", 2},
		{"no answer", nil, nil, Unanswered, "it is sent to Node east/gw, which does not answer: no answer within 10s", 1},
		{"loop", map[string]api.HopEnd{"gw": toGateway}, nil, Loop, "it comes to Node east/gw again", 2},
		{"no context", map[string]api.HopEnd{"gw": forwarded(api.HopNext{Cluster: "id-north", Gateway: "192.0.2.9"})}, nil,
			OutOfSight, "Gateway 192.0.2.9 of cluster id-north, which is not among the clusters that are asked: add its " +
				"context", 2},
		{"Gateway gone", map[string]api.HopEnd{"gw": forwarded(api.HopNext{Cluster: "id-west", Gateway: "192.0.2.7"})}, nil,
			OutOfSight, "no Gateway of cluster id-west has the address 192.0.2.7", 2},
		{"no end", map[string]api.HopEnd{"gw": forwarded(api.HopNext{OuterDst: "10.0.0.77"})}, nil, OutOfSight,
			"its tunnel ends at 10.0.0.77, which is no Node's and no Gateway's", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			east := &fakeCluster{name: "east", id: "id-east", nodes: row.east}
			west := &fakeCluster{name: "west", id: "id-west", nodes: row.west, gateways: map[string]string{"192.0.2.1": "gw"}}
			first := api.Hop{Node: "n2", End: toGateway}
			if row.name == "delivered at once" {
				first.End = api.HopEnd{Verdict: api.HopDelivered, To: "Pod shop/db"}
			}
			p := Follow(t.Context(), []Cluster{east, west}, east, first, "10.1.0.9")
			if p.End.Verdict != row.want || !strings.Contains(p.End.Text, row.text) || len(p.Hops) != row.hops {
				t.Errorf("%d hops, %+v: want %d, %s, %s", len(p.Hops), p.End, row.hops, row.want, row.text)
			}
			if len(east.asked) > 0 && east.asked[0] !=
				"gw endpoint=10.1.0.9&fromNode=n2&key=0x5&outerDst=10.0.0.1&outerSrc=10.0.0.2&packet=tcp%2Ctp_dst%3D80" {
				t.Error(east.asked)
			}
			if len(west.asked) > 0 && west.asked[0] !=
				"gw endpoint=10.1.0.9&fromCluster=id-east&outerDst=192.0.2.1&packet=tcp%2Ctp_dst%3D81" {
				t.Error(west.asked)
			}
		})
	}
}

// TestFollowIsBounded follows a packet whose headers change at each Node.
func TestFollowIsBounded(t *testing.T) {
	c := &changing{}
	p := Follow(t.Context(), []Cluster{c}, c, c.hop(), "")
	if p.End.Verdict != Loop || len(p.Hops) != maxHops {
		t.Errorf("%d hops, %+v", len(p.Hops), p.End)
	}
}

// changing forwards each packet to a Node of another name.
type changing struct{ n int }

func (c *changing) hop() api.Hop {
	c.n++
	name := strings.Repeat("n", c.n)
	return api.Hop{Node: name, End: forwarded(api.HopNext{Node: name + "n", Packet: name})}
}
func (*changing) Name() string                       { return "east" }
func (*changing) ID() string                         { return "" }
func (*changing) GatewayNode(string) (string, error) { return "", nil }
func (c *changing) Ask(context.Context, string, url.Values) (api.HopList, error) {
	return api.HopList{Hops: []api.Hop{c.hop()}}, nil
}
