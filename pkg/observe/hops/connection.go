package hops

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// OneSided is the verdict of a connection if a Node or a cluster on its path has no record of it.
const OneSided = "one-sided"

const (
	// clockWindow is how much the clocks of Nodes may differ.
	clockWindow = 5 * time.Second
	// retries is how long a client sends the first packet again.
	retries = 2 * time.Minute
)

// Recorded is a record of a Node in a cluster.
type Recorded struct {
	Cluster string // as the user names it
	record.Event
}

// Leg is the part of a connection in one cluster, between two Pods or Gateways. No Node in a Leg translates the
// client's address.
type Leg struct {
	Cluster string   `json:"cluster"` // as the user names it
	Nodes   []string `json:"nodes"`   // in the order that the connection meets them
	// Record is the joined record of all Nodes, with all of their rules. If a packet was dropped, it is the record of the
	// drop. If the connection has ended, it has a Life.
	Record record.Record `json:"record"`
	// Candidates is the number of connections in the next cluster that may be the continuation of this leg. It is 1 if the
	// path is certain.
	Candidates int `json:"candidates,omitempty"`

	ended []string  // the Nodes that have sent an end
	last  time.Time // of the first of these
	used  bool      // it follows on another leg
	after *Leg
}

// ConnectionPath is the path of one connection through Nodes and clusters.
type ConnectionPath struct {
	Legs []Leg `json:"legs"`
	End  End   `json:"end"`
}

// tuple is what the records of a leg have in common.
type tuple struct {
	cluster, protocol string
	from, to          netip.AddrPort
	network           string
}

func addrPort(e record.End) netip.AddrPort {
	ip, _ := netip.ParseAddr(e.IP)
	return netip.AddrPortFrom(ip, e.Port)
}

// Connections joins records of Nodes of several clusters to the paths of their connections, in the order of their time.
// At a Gateway that translates the client's address, another leg begins. It is found by the destination that was chosen
// in the previous leg, the client's port, and the time.
func Connections(list []Recorded) (out []ConnectionPath) {
	legs := legsOf(list)
	for _, l := range legs {
		l.find(legs)
	}
	for _, l := range legs {
		if l.used {
			continue
		}
		var p ConnectionPath
		last := l
		for at := l; at != nil && len(p.Legs) < maxHops; at = at.after {
			p.Legs, last = append(p.Legs, *at), at
		}
		p.End = last.end(p.Legs[0])
		out = append(out, p)
	}
	return out
}

// legsOf returns the legs that records are of, in the order of their time.
func legsOf(list []Recorded) (out []*Leg) {
	list = slices.DeleteFunc(slices.Clone(list), func(r Recorded) bool { return r.Record() == nil })
	slices.SortStableFunc(list, func(x, y Recorded) int { return x.began().Compare(y.began()) })
	newest := map[tuple]*Leg{}
	for _, r := range list {
		record := r.Record()
		key := tuple{r.Cluster, record.Protocol, addrPort(record.From), addrPort(record.To), record.Network}
		l := newest[key]
		if l == nil || !l.has(r) {
			l = &Leg{Cluster: r.Cluster, Record: *record}
			l.Record.Time = r.began()
			newest[key] = l
			out = append(out, l)
		}
		l.add(r)
	}
	for _, l := range out {
		l.order()
	}
	return out
}

// began is when the connection of a record began, if that is known.
func (r Recorded) began() time.Time {
	if e := r.End; e != nil && e.Life != nil && !e.Life.Began.IsZero() {
		return e.Life.Began
	}
	return r.Record().Time
}

// has reports whether a record belongs to the connection of a leg with the same tuple. Later connections may have the
// same tuple.
func (l *Leg) has(r Recorded) bool {
	since := r.began().Sub(l.Record.Time).Abs()
	switch {
	case r.Drop != nil:
		return since < retries
	case r.End != nil:
		known := r.End.Life != nil && !r.End.Life.Began.IsZero()
		switch {
		case slices.Contains(l.ended, r.End.Node):
			return false
		case known || len(l.ended) == 0:
			return since < clockWindow || !known
		}
		return r.End.Time.Sub(l.last).Abs() < clockWindow
	}
	return since < clockWindow && !slices.Contains(l.Nodes, r.Connection.Node)
}

// add adds what a record has.
func (l *Leg) add(r Recorded) {
	have, more := &l.Record, r.Record()
	for _, node := range append([]string{more.Node}, more.Nodes...) {
		if node != "" && !slices.Contains(l.Nodes, node) {
			l.Nodes = append(l.Nodes, node)
		}
	}
	have.Egress, have.Ingress = cmp.Or(have.Egress, more.Egress), cmp.Or(have.Ingress, more.Ingress)
	have.Way, have.Service = cmp.Or(have.Way, more.Way), cmp.Or(have.Service, more.Service)
	have.Asked = cmp.Or(have.Asked, more.Asked)
	if r.Drop != nil {
		have.Verdict, have.Node, have.Table, have.Rule = more.Verdict, more.Node, more.Table, more.Rule
		have.Reason, have.Message, have.Policies, have.Count = more.Reason, more.Message, more.Policies, more.Count
	}
	if r.End != nil {
		if len(l.ended) == 0 {
			l.last = more.Time
		}
		if l.ended = append(l.ended, more.Node); have.Life == nil || more.First {
			have.Life = more.Life
		}
	}
}

// order sorts the Nodes: the client's first, and the server's last.
func (l *Leg) order() {
	rank := func(node string) int {
		switch node {
		case l.Record.From.Node:
			return -1
		case l.Record.To.Node:
			return 1
		}
		return 0
	}
	slices.SortFunc(l.Nodes, func(x, y string) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), strings.Compare(x, y))
	})
}

// find finds the leg in another cluster that follows on a leg.
func (l *Leg) find(all []*Leg) {
	if l.Record.To.Cluster == "" || l.Record.Verdict != record.Allowed {
		return
	}
	chosen, best := addrPort(l.Record.To).String(), 0
	for _, next := range all {
		since := next.Record.Time.Sub(l.Record.Time).Abs()
		if next.used || next.Cluster == l.Cluster || next.Record.Protocol != l.Record.Protocol || since > clockWindow ||
			cmp.Or(next.Record.Asked, addrPort(next.Record.To).String()) != chosen {
			continue
		}
		score := 1
		if next.Record.From.Port == l.Record.From.Port { // a Gateway keeps it if it is free
			score++
		}
		if next.Record.From.IP == l.Record.From.IP {
			score++
		}
		switch {
		case score > best, score == best && since < l.after.Record.Time.Sub(l.Record.Time).Abs():
			if score > best {
				l.Candidates = 0
			}
			l.after, best = next, score
		}
		if score == best {
			l.Candidates++
		}
	}
	if l.after != nil {
		l.after.used = true
	}
}

// end returns the end of a path whose last leg this is.
func (l *Leg) end(first Leg) End {
	r, node := &l.Record, ""
	if len(l.Nodes) > 0 {
		node = l.Nodes[len(l.Nodes)-1]
	}
	place := func(cluster, node string) string { return strings.TrimPrefix(cluster+"/"+node, "/") }
	at := func(node string) string { return place(l.Cluster, node) }
	missing := func(format string, args ...any) End {
		return End{OneSided, l.Cluster, node, fmt.Sprintf(format, args...)}
	}
	if r.Verdict != record.Allowed {
		text := fmt.Sprintf("%s at Node %s, in table %s (%s)", r.Verdict, at(r.Node), r.Table, r.Reason)
		if r.Message != "" {
			text += ": " + r.Message
		}
		return End{r.Verdict, l.Cluster, r.Node, text}
	}
	switch server := r.To; {
	case server.Cluster != "":
		return missing("it goes to cluster %s, of which there is no record: give the context of that cluster, or the "+
			"packet has not arrived there; `tombolo trace --packet` and `tombolo diagnose` show where it ends", server.Cluster)
	case server.Pod != "" && server.Node != "" && !slices.Contains(l.Nodes, server.Node):
		return missing("Node %s of the server has no record of it: the Node does not answer, or the packet was lost before "+
			"it; `tombolo trace --packet` shows where", at(server.Node))
	case first.Record.From.Cluster != "":
		return missing("the client is in cluster %s, of which there is no record: give the context of that cluster",
			first.Record.From.Cluster)
	case first.Record.From.Pod != "" && first.Record.From.Node != "" && !slices.Contains(first.Nodes,
		first.Record.From.Node):
		return missing("Node %s of the client has no record of it: the Node does not answer", place(first.Cluster,
			first.Record.From.Node))
	}
	text := "allowed, at Node " + at(node)
	if r.To.Pod != "" {
		text = fmt.Sprintf("allowed, to %s/%s at Node %s", r.To.Namespace, r.To.Pod, at(node))
	}
	return End{r.Verdict, l.Cluster, node, text}
}
