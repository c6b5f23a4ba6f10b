package flowsync_test

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// scripted is a switch in memory, for tests in which time is simulated or a switch has to do
// what a real one rarely does. It keeps flows and groups, takes bundles, and reports no changes.
type scripted struct {
	t testing.TB
	// refuse decides on the messages of bundles when they are committed; nil takes all.
	refuse func(ofp.Message) *ofp.Error
	// received is called with each message. If it returns true, the connection goes silent, which leaves it open: a host
	// that is gone, not a process.
	received func(connection int, m ofp.Message) (silent bool)

	mu      sync.Mutex
	flows   map[flow.Key]flow.Flow
	groups  map[uint32]flow.Group
	commits []commit
	dials   int
}

// commit is a bundle that was taken or refused.
type commit struct {
	at    time.Time
	size  int
	taken bool
}

func newScripted(t testing.TB) *scripted {
	return &scripted{t: t, flows: map[flow.Key]flow.Flow{}, groups: map[uint32]flow.Group{}}
}

// start runs a Syncer against the switch; both end with stop.
func (w *scripted) start() (s *flowsync.Syncer, stop func()) {
	s = flowsync.New(flowsync.Options{Dial: w.dial, Instance: instance})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	return s, func() { cancel(); <-done }
}

func (w *scripted) dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	w.mu.Lock()
	w.dials++
	n := w.dials
	w.mu.Unlock()
	go w.serve(n, far)
	return near, nil
}

func (w *scripted) serve(connection int, c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	bundles := map[uint32][]ofp.BundleAdd{}
	xids := map[uint32][]uint32{}
	for {
		head, err := r.Peek(8)
		if err != nil {
			return
		}
		b := make([]byte, ofp.MessageLen(head))
		if _, err := io.ReadFull(r, b); err != nil {
			return
		}
		xid, m, err := ofp.DecodeMessage(b)
		if err != nil {
			w.t.Error(err)
			return
		}
		if w.received != nil && w.received(connection, m) {
			_, _ = io.Copy(io.Discard, c)
			return
		}
		var answers []ofp.Message
		switch m := m.(type) {
		case ofp.Hello:
			answers = []ofp.Message{ofp.Hello{Versions: []uint8{6}}}
		case ofp.EchoRequest:
			answers = []ofp.Message{ofp.EchoReply(m)}
		case ofp.BarrierRequest:
			answers = []ofp.Message{ofp.BarrierReply{}}
		case ofp.FlowMonitorRequest:
			answers = []ofp.Message{ofp.FlowMonitorReply{}}
		case ofp.GroupDescRequest:
			answers = w.dumpGroups()
		case ofp.MeterDescRequest:
			answers = []ofp.Message{ofp.MeterDescReply{}}
		case ofp.FlowDescRequest:
			answers = []ofp.Message{w.dump()}
		case ofp.BundleAdd:
			bundles[m.ID], xids[m.ID] = append(bundles[m.ID], m), append(xids[m.ID], xid)
		case ofp.BundleControl:
			if m.Ctrl == ofp.BundleCommitRequest {
				if i, refusal := w.commit(bundles[m.ID]); refusal != nil {
					if w.send(c, xids[m.ID][i], *refusal) != nil {
						return
					}
					answers = []ofp.Message{ofp.Error{ErrType: 17, Code: 15}} // OFPBFC_MSG_FAILED
					break
				}
			}
			m.Ctrl++
			answers = []ofp.Message{m}
		}
		for _, a := range answers {
			if w.send(c, xid, a) != nil {
				return
			}
		}
	}
}

func (w *scripted) send(c net.Conn, xid uint32, m ofp.Message) error {
	b, err := ofp.AppendMessage(nil, xid, m)
	if err != nil {
		w.t.Error(err)
		return err
	}
	_, err = c.Write(b)
	return err
}

// commit makes the changes of a bundle, or returns the refused one.
func (w *scripted) commit(bundle []ofp.BundleAdd) (int, *ofp.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := maps.Clone(w.groups)
	for i, add := range bundle {
		if w.refuse == nil {
			break
		}
		if refusal := w.refuse(add.Message); refusal != nil {
			w.commits = append(w.commits, commit{time.Now(), len(bundle), false})
			return i, refusal
		}
	}
	for i, add := range bundle {
		if g, ok := add.Message.(ofp.GroupMod); ok {
			if refusal := w.changeGroup(g); refusal != nil {
				w.groups = before // groups come first
				w.commits = append(w.commits, commit{time.Now(), len(bundle), false})
				return i, refusal
			}
			continue
		}
		m, ok := add.Message.(ofp.FlowMod)
		if !ok {
			w.t.Errorf("the scripted switch knows no %s", add.Message.Type())
			continue
		}
		f := flow.FromStats(ofp.FlowDesc{Table: m.Table, Priority: m.Priority, Match: m.Match, Cookie: m.Cookie,
			Actions: m.Actions})
		if m.Command == ofp.FlowDeleteStrict {
			delete(w.flows, f.Key())
		} else {
			w.flows[f.Key()] = f
		}
	}
	w.commits = append(w.commits, commit{time.Now(), len(bundle), true})
	return 0, nil
}

// changeGroup does what one message about a group says.
func (w *scripted) changeGroup(m ofp.GroupMod) *ofp.Error {
	g, there := w.groups[m.ID]
	switch at := func(id uint32) int {
		return slices.IndexFunc(g.Buckets, func(b flow.Bucket) bool { return b.ID == id })
	}; m.Command {
	case ofp.GroupDelete:
		delete(w.groups, m.ID)
		return nil
	case ofp.GroupAdd, ofp.GroupModify:
		if there != (m.Command == ofp.GroupModify) {
			return &ofp.Error{ErrType: 6, Code: 8} // OFPGMFC_UNKNOWN_GROUP, or it is there
		}
		g = flow.FromGroupDesc(ofp.GroupDesc{ID: m.ID, GroupType: m.GroupType, Selection: m.Selection, Buckets: m.Buckets})
	case ofp.GroupRemoveBucket:
		i := at(m.CommandBucket)
		if i < 0 {
			return &ofp.Error{ErrType: 6, Code: 15} // OFPGMFC_UNKNOWN_BUCKET
		}
		g.Buckets = slices.Delete(slices.Clone(g.Buckets), i, i+1)
	case ofp.GroupInsertBucket:
		i := at(m.CommandBucket)
		if m.CommandBucket != ofp.BucketFirst && i < 0 {
			return &ofp.Error{ErrType: 6, Code: 15}
		}
		add := flow.FromGroupDesc(ofp.GroupDesc{Buckets: m.Buckets}).Buckets
		for _, b := range add {
			if at(b.ID) >= 0 {
				return &ofp.Error{ErrType: 6, Code: 16} // OFPGMFC_BUCKET_EXISTS
			}
		}
		g.Buckets = slices.Insert(slices.Clone(g.Buckets), i+1, add...)
	}
	w.groups[m.ID] = g
	return nil
}

// dumpGroups answers in parts of one group each.
func (w *scripted) dumpGroups() (out []ofp.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.groups {
		m := g.Mod(ofp.GroupAdd)
		out = append(out,
			ofp.GroupDescReply{More: true,
				Groups: []ofp.GroupDesc{{ID: g.ID, GroupType: m.GroupType, Selection: g.Selection, Buckets: m.Buckets}}})
	}
	return append(out, ofp.GroupDescReply{})
}

func (w *scripted) dump() ofp.FlowDescReply {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out ofp.FlowDescReply
	for _, f := range w.flows {
		m := f.Mod(ofp.FlowAdd)
		out.Flows = append(out.Flows, ofp.FlowDesc{Table: m.Table, Priority: m.Priority, Match: m.Match, Cookie: m.Cookie,
			Actions: m.Actions})
	}
	return out
}

// differs returns the difference between the switch and a desired state.
func (w *scripted) differs(want map[flow.Owner]flow.Entries) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	desired, have := flow.NewSet(), flow.NewSet()
	for _, e := range want {
		if err := desired.AddEntries(e); err != nil {
			w.t.Error(err)
		}
	}
	for _, g := range w.groups {
		if err := have.AddGroup(g); err != nil {
			w.t.Error(err)
		}
	}
	for _, f := range w.flows {
		f.Cookie = 0
		if err := have.Add(f); err != nil {
			w.t.Error(err)
		}
	}
	return flow.Diff(have, desired).String()
}

// log is the bundles so far.
func (w *scripted) log() []commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]commit(nil), w.commits...)
}
