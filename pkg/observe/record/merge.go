package record

import (
	"cmp"
	"slices"
	"time"
)

// MergeWait is how long a Merger waits for records of the same connection from other Nodes.
const MergeWait = 500 * time.Millisecond

// Merger sorts the events of several Nodes by time, and joins the records of one connection from several Nodes into
// one. It holds each event for some time.
type Merger struct {
	Wait time.Duration // MergeWait if it is 0

	waiting []waiting
	open    map[tuple]*Record // connections among the waiting events
	first   string            // a Node that has sent an event
	several bool              // others have sent events too
}

type waiting struct {
	Event
	came time.Time
}

// tuple is the part that records of one connection have in common on all Nodes, except on Nodes that translate the
// connection.
type tuple struct {
	protocol string
	from, to address
	network  string
}

func tupleOf(r *Record) tuple {
	return tuple{r.Protocol, address{r.From.IP, r.From.Port}, address{r.To.IP, r.To.Port}, r.Network}
}

type address struct {
	ip   string
	port uint16
}

// Add accepts an event that came at a time. Nodes forget a connection at different times. So if several Nodes report
// its end, the output has only the report of the Node that is responsible for the connection.
func (m *Merger) Add(e Event, came time.Time) {
	m.from(e)
	if r := e.Connection; r != nil {
		if m.open == nil {
			m.open = map[tuple]*Record{}
		}
		key := tupleOf(r)
		if have := m.open[key]; have != nil && have.sameAs(r) {
			have.join(r)
			return
		}
		own := *r
		e.Connection = &own
		m.open[key] = &own
	}
	m.waiting = append(m.waiting, waiting{e, came})
}

// from notes the Node that an event is from.
func (m *Merger) from(e Event) {
	node := ""
	switch {
	case e.Record() != nil:
		node = e.Record().Node
	case e.Begin != nil:
		node = e.Begin.Node
	}
	if m.first == "" {
		m.first = node
	}
	m.several = m.several || node != "" && node != m.first
}

// sameAs reports whether a record with the same tuple is of the same connection: it is of another Node, and has nearly
// the same time.
func (r *Record) sameAs(o *Record) bool {
	return r.Node != o.Node && !slices.Contains(r.Nodes, o.Node) && r.Time.Sub(o.Time).Abs() < MergeWait
}

// join adds another Node that has seen the connection, and the rules that it has read.
func (r *Record) join(o *Record) {
	nodes := some(slices.Concat([]string{r.Node, o.Node}, r.Nodes, o.Nodes)...)
	if o.First && !r.First {
		other := *r
		*r = *o
		o = &other
	}
	if r.Egress == nil {
		r.Egress = o.Egress
	}
	if r.Ingress == nil {
		r.Ingress = o.Ingress
	}
	r.Nodes = slices.DeleteFunc(nodes, func(node string) bool { return node == r.Node })
	r.Way, r.Service, r.Asked = cmp.Or(r.Way, o.Way), cmp.Or(r.Service, o.Service), cmp.Or(r.Asked, o.Asked)
}

// Due returns the events that have been held for their time, in the order of their time.
func (m *Merger) Due(now time.Time) []Event { return m.before(now.Add(-cmp.Or(m.Wait, MergeWait))) }

// All returns all events that are left, in the order of their time.
func (m *Merger) All() []Event { return m.before(time.Unix(1<<40, 0)) }

func (m *Merger) before(end time.Time) (out []Event) {
	m.waiting = slices.DeleteFunc(m.waiting, func(w waiting) bool {
		if w.came.After(end) {
			return false
		}
		if r := w.Connection; r != nil {
			delete(m.open, tupleOf(r))
		}
		if w.End == nil || w.End.First || !m.several {
			out = append(out, w.Event)
		}
		return true
	})
	slices.SortStableFunc(out, func(x, y Event) int { return x.time().Compare(y.time()) })
	return out
}

// time is the time that an event is about.
func (e Event) time() time.Time {
	switch {
	case e.Record() != nil:
		return e.Record().Time
	case e.Missing != nil:
		return e.Missing.Time
	}
	return time.Time{} // the beginning comes first
}

// Len returns the number of events that wait.
func (m *Merger) Len() int { return len(m.waiting) }
