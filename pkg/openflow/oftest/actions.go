package oftest

import (
	"fmt"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// maxTables bounds a walk, as the switch does (MAX_RESUBMITS).
const maxTables = 4096

// walk is one packet's way.
type walk struct {
	s      *Switch
	result Result
	later  []func() // what recirculates goes on when the rest is done
	exit   bool
}

func (w *walk) fail(format string, args ...any) {
	if w.result.Err == nil {
		w.result.Err = fmt.Errorf(format, args...)
	}
}

// table looks the packet up.
func (w *walk) table(st *state, t ofp.Table) {
	if len(w.result.Tables) >= maxTables {
		w.fail("the packet goes in circles: %d tables", maxTables)
		return
	}
	w.result.Tables = append(w.result.Tables, w.s.program.Name(t))
	f, ok, err := w.s.match(st, t)
	if err != nil {
		w.fail("table %s: %w", w.s.program.Name(t), err)
	}
	if ok {
		w.do(st, f.Actions)
	}
}

// do carries out actions on the packet.
func (w *walk) do(st *state, actions []ofp.Action) {
	for _, a := range actions {
		if w.exit || w.result.Err != nil || !w.act(st, a) {
			return
		}
	}
}

// act carries out one action. It is false when the packet goes no further.
func (w *walk) act(st *state, a ofp.Action) bool {
	switch a := a.(type) {
	case ofp.Output:
		w.output(st, a.Port)
	case ofp.OutputReg:
		w.output(st, ofp.Port(st.read(a.Src).Lo))
	case ofp.Controller:
		w.result.Controller, w.result.Userdata = true, a.Userdata
	case ofp.Group:
		w.group(st, a.ID)
	case ofp.SetField:
		mask := ofp.Ones(a.Field.Bits())
		if a.Mask != "" {
			mask = ofp.ToValue(a.Mask)
		}
		st.setMasked(a.Field, ofp.ToValue(a.Value), mask)
	case ofp.RegMove:
		st.write(a.Dst, st.read(a.Src))
	case ofp.WriteMetadata:
		st.setMasked(ofp.Metadata, ofp.Value{Lo: a.Value}, ofp.Value{Lo: a.Mask})
	case ofp.DecTTL:
		ttl := st.get(ofp.IPTTL).Lo
		if ttl <= 1 {
			w.result.Controller, w.result.Userdata = true, ""
			return false
		}
		st.set(ofp.IPTTL, ofp.Value{Lo: ttl - 1})
	case ofp.SetTTL:
		st.set(ofp.IPTTL, ofp.Value{Lo: uint64(a.TTL)})
	case ofp.Push:
		st.stack = append(st.stack, st.read(a.Src))
	case ofp.Pop:
		if n := len(st.stack); n > 0 {
			st.write(a.Dst, st.stack[n-1])
			st.stack = st.stack[:n-1]
		}
	case ofp.CT:
		w.ct(st, a)
	case ofp.CTClear:
		st.untrack()
	case ofp.Resubmit:
		w.resubmit(st, a)
	case ofp.Clone:
		w.do(st.copy(), a.Actions)
	case ofp.GotoTable:
		w.table(st, a.Table)
	case ofp.Note, ofp.Meter: // no packet of a walk exceeds a rate
	case ofp.Learn: // it is the next packet's business
	case ofp.Exit:
		w.exit = true
	default:
		w.fail("action %T is not modelled", a)
	}
	return true
}

// output sends the packet. A switch does not send a packet back to its port of arrival unless the port is PortInPort.
func (w *walk) output(st *state, port ofp.Port) {
	in := ofp.Port(st.get(ofp.InPort).Lo)
	switch {
	case port == ofp.PortInPort:
		port = in
	case port == in:
		return
	case port == ofp.PortController:
		w.result.Controller, w.result.Userdata = true, ""
		return
	case port > 0xffffff00 && port != ofp.PortLocal, port == 0:
		w.fail("output to port %#x is not modelled", uint32(port))
		return
	}
	p := st.packet()
	p.InPort = 0
	w.result.Outputs = append(w.result.Outputs, Output{port, p})
}

// group hands a copy of the packet to the buckets: what they change does not come back.
func (w *walk) group(st *state, id uint32) {
	g, ok := w.s.groups[id]
	if !ok {
		w.fail("group %d is not there", id)
		return
	}
	buckets := g.Buckets
	switch g.Type {
	case flow.AllBuckets, flow.Indirect:
	case flow.Select:
		weighs := slices.ContainsFunc(buckets, func(b flow.Bucket) bool { return b.Weight > 0 })
		if !weighs {
			return
		}
		i := 0
		if w.s.Choose != nil {
			i = w.s.Choose(g, st.packet())
		}
		if i < 0 || i >= len(buckets) {
			w.fail("group %d has no bucket %d", id, i)
			return
		}
		first := i
		for !w.s.up(buckets[i], 0) {
			if i = (i + 1) % len(buckets); i == first {
				return
			}
		}
		buckets = buckets[i : i+1]
	case flow.FastFailover:
		i := slices.IndexFunc(buckets, func(b flow.Bucket) bool { return w.s.up(b, 0) })
		if i < 0 {
			return
		}
		buckets = buckets[i : i+1]
	default:
		w.fail("group %d: its type %d is not modelled", id, g.Type)
		return
	}
	for _, b := range buckets {
		w.do(st.copy(), b.Actions)
	}
}

// up reports whether a bucket can be used: it watches nothing, or the port or group that it watches is up. Groups that
// watch each other are not up.
func (s *Switch) up(b flow.Bucket, depth int) bool {
	port, group := b.WatchPort != 0 && b.WatchPort != ofp.PortAny, b.WatchGroup != 0 && b.WatchGroup != ofp.GroupAny
	if port && !s.Down[b.WatchPort] {
		return true
	}
	if group && depth < 8 {
		return slices.ContainsFunc(s.groups[b.WatchGroup].Buckets, func(b flow.Bucket) bool { return s.up(b, depth+1) })
	}
	return !port && !group
}

func (w *walk) resubmit(st *state, a ofp.Resubmit) {
	if a.Table == ofp.TableAll || a.WithCT {
		w.fail("resubmit without a table or with the original tuple is not modelled")
		return
	}
	in := st.get(ofp.InPort)
	if a.Port != ofp.PortInPort {
		st.set(ofp.InPort, ofp.Value{Lo: uint64(a.Port)})
	}
	w.table(st, a.Table)
	st.set(ofp.InPort, in)
}
