package flowsync

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func formOf(t *testing.T, f flow.Flow) (ident, form) {
	t.Helper()
	b, err := f.AppendInstructions(appendHeader(nil, f.Cookie, f.IdleTimeout, f.HardTimeout, f.Flags, f.Importance))
	if err != nil {
		t.Fatal(err)
	}
	return ident(appendIdent(nil, &f)), form(b)
}

// variants are flows of which some are the same for a switch.
func variants(t *testing.T) []flow.Flow {
	t.Helper()
	var out []flow.Flow
	for _, text := range []string{
		"table=1,priority=5,ip,actions=drop",
		"table=1,priority=5,ip,actions=output:1",
		"table=1,priority=5,ip,cookie=0x1,actions=output:1",
		"table=1,priority=5,ip,idle_timeout=3,actions=output:1",
		"table=1,priority=5,ip,hard_timeout=3,actions=output:1",
		"table=1,priority=5,ip,importance=3,actions=output:1",
		"table=1,priority=5,ip,send_flow_rem,actions=output:1",
		"table=1,priority=5,ip,check_overlap,actions=output:1", // not kept by the switch
		"table=1,priority=5,ip,actions=group:7",
		"table=1,priority=5,ip,actions=clone(group:7),output:1",
		"table=1,priority=5,ip,actions=set_field:1.2.3.4->tun_dst,set_field:0x16/0xff->reg1,goto_table:9",
		"table=1,priority=5,ip,actions=set_field:0x16->reg1,resubmit(,4)",
		"table=2,priority=5,ip,actions=drop",
		"table=1,priority=6,ip,actions=drop",
		"table=1,priority=5,ip,nw_dst=10.0.0.0/8,actions=drop",
		"table=1,priority=5,actions=drop",
		"table=1,priority=5,ip,actions=meter:7,output:1",
	} {
		f, err := flow.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

// TestFormsCompareAsFlows compares the comparison of bytes with the comparison of values.
func TestFormsCompareAsFlows(t *testing.T) {
	list := variants(t)
	same := 0
	for i, f := range list {
		id, a := formOf(t, f)
		if back := id.flow(a); !back.Equal(f) || back.Flags != f.Flags {
			t.Errorf("%s comes back as %s", f, back)
		}
		for j, g := range list {
			other, b := formOf(t, g)
			if (id == other) != (f.Key() == g.Key()) {
				t.Errorf("%s and %s: one ident is %t", f, g, id == other)
			}
			if id != other {
				continue
			}
			if id.same(a, b) != f.Equal(g) {
				t.Errorf("%s and %s: the same is %t", f, g, id.same(a, b))
			}
			if i != j && id.same(a, b) {
				same++
			}
			h := f
			h.Actions = g.Actions
			if onlyActions(a, b) != h.Equal(g) {
				t.Errorf("%s and %s: only actions differ is %t", f, g, onlyActions(a, b))
			}
			h = f
			h.Cookie = g.Cookie
			if id.sameButCookie(a, b) != h.Equal(g) {
				t.Errorf("%s and %s: the same but for the cookie is %t", f, g, id.sameButCookie(a, b))
			}
			if id.same(a, "") || id.same("", b) || onlyActions(a, "") || id.sameButCookie(a, "") {
				t.Errorf("%s is the same as nothing", f)
			}
		}
		for n := range uint32(9) {
			if want := uses(f.Actions, map[uint32]bool{n: true}); id.uses(a, map[uint32]bool{n: true}) != want {
				t.Errorf("%s uses group %d: want %t", f, n, want)
			}
			if want := usesMeter(f.Actions, map[uint32]bool{n: true}); id.usesMeter(a, map[uint32]bool{n: true}) != want {
				t.Errorf("%s uses meter %d: want %t", f, n, want)
			}
		}
	}
	if same == 0 {
		t.Error("no two flows are the same")
	}
}

// TestStepsAreMessages decodes what is sent for each flow, in each way.
func TestStepsAreMessages(t *testing.T) {
	s := New(Options{Instance: 0x7b})
	for _, f := range variants(t) {
		id, now := formOf(t, f)
		for op, want := range map[op]ofp.FlowMod{
			add:    f.Mod(ofp.FlowAdd),
			modify: f.Mod(ofp.FlowModifyStrict),
			remove: f.Mod(ofp.FlowDeleteStrict),
		} {
			if op == remove {
				want.Cookie, want.CookieMask = 0x7b<<48, 0xffff<<48 // only what is ours
			}
			st := step{slot: &slot{id: id}, op: op, after: now}
			have, err := st.append(&s.owners, nil, 9)
			if err != nil {
				t.Fatal(err)
			}
			bytes, err := ofp.AppendMessage(nil, 9, want)
			if err != nil {
				t.Fatal(err)
			}
			if string(have) != string(bytes) {
				t.Errorf("%s, %d: %x, want %x", f, op, have, bytes)
			}
		}
	}
	for _, g := range []flow.Group{
		{ID: 7, Type: flow.AllBuckets},
		{ID: 8, Type: flow.Select, Buckets: []flow.Bucket{{ID: 1, Weight: 3, Actions: flow.Do(flow.Output(1))}}},
	} {
		now, err := groupForm(g)
		if err != nil {
			t.Fatal(err)
		}
		id := groupIdent(g.ID)
		for op, command := range map[op]ofp.GroupCommand{add: ofp.GroupAdd, modify: ofp.GroupModify,
			remove: ofp.GroupDelete} {
			st := step{slot: &slot{id: id}, op: op, after: now}
			have, err := st.append(&s.owners, []byte("before"), 9)
			if err != nil {
				t.Fatal(err)
			}
			message := g.Mod(command)
			if op == remove {
				message.GroupType = 0 // the number says it all
			}
			want, err := ofp.AppendMessage([]byte("before"), 9, message)
			if err != nil {
				t.Fatal(err)
			}
			if string(have) != string(want) {
				t.Errorf("%s, %d: %x, want %x", g, op, have, want)
			}
		}
		if id.text(now) != g.String() {
			t.Errorf("%s is called %s", g, id.text(now))
		}
	}
}

func TestEncodingAllocatesNothing(t *testing.T) {
	s := New(Options{Instance: 7})
	id, now := formOf(t, address(1, 1))
	for _, op := range []op{add, modify, remove} {
		st := step{slot: &slot{id: id}, op: op, after: now}
		buf := make([]byte, 0, 1024)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := st.append(&s.owners, buf[:0], 1); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%d: %v allocations per message, want none", op, n)
		}
	}
}

// TestUnknownInstructions has a switch report a flow that we cannot write: it is not desired, and has a text.
func TestUnknownInstructions(t *testing.T) {
	f := address(1, 1)
	id, want := formOf(t, f)
	f.Actions = flow.Do(ofp.NAT{})
	reported := form(appendReported(nil, &f))
	if id.same(want, reported) || id.uses(reported, map[uint32]bool{1: true}) {
		t.Errorf("%q is what somebody wants", reported)
	}
	if text := id.text(reported); text == "" || text == fmt.Sprint(id.flow(want)) {
		t.Errorf("its text is %q", text)
	}
}

// TestReportedBeforeDeclared has the switch report groups before an owner declares them. The switch may write the same
// group with other bytes.
func TestReportedBeforeDeclared(t *testing.T) {
	g := flow.Group{ID: 7, Type: flow.Select, Buckets: []flow.Bucket{
		{ID: 1, Weight: 1, Actions: flow.Do(flow.Output(3))}, {ID: 2, Weight: 1, Actions: flow.Do(flow.Output(4))},
	}}
	other := g
	other.Buckets = g.Buckets[:1]
	message, err := g.AppendAdd(nil)
	if err != nil {
		t.Fatal(err)
	}
	const bucket, weight = 32, 8 // bytes, of which the last are the weight: 1 without them
	brief := append([]byte{}, message[groupBuckets:]...)
	for i := range 2 {
		at := i * (bucket - weight)
		brief[at+1] = bucket - weight
		brief = slices.Delete(brief, at+bucket-weight, at+bucket)
	}
	for name, row := range map[string]struct {
		buckets []byte
		want    flow.Group
		done    bool
	}{
		"the same bytes":                {message[groupBuckets:], g, true},
		"other bytes of the same group": {brief, g, true},
		"another group":                 {message[groupBuckets:], other, false},
		"other bytes of another group":  {brief, other, false},
		"what is no group":              {[]byte{0, 7, 1, 2, 3, 4, 5, 6}, g, false},
	} {
		for _, declared := range []string{"after", "during", "before"} {
			s := New(Options{})
			owner := flow.Owner{Kind: 1, Name: "a"}
			declare := func() { s.Set(owner, flow.Entries{Groups: []flow.Group{row.want}}) }
			if declared == "before" {
				declare()
			}
			sl, now := s.slots.reportedGroup(ofp.GroupDescBytes{ID: g.ID, GroupType: ofp.GroupType(g.Type),
				Buckets: row.buckets})
			if declared == "during" {
				declare()
			}
			sl.have = sl.compared(now) // as a read does at its end
			if declared == "after" {
				declare()
			}
			if sl.done() != row.done {
				t.Errorf("%s, declared %s the report: done is %t, want %t: %s, %s", name, declared, sl.done(), row.done,
					sl.id.text(sl.have), sl.id.text(sl.want))
			}
		}
	}
}
