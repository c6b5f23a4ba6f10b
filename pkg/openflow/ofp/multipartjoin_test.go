package ofp

import (
	"reflect"
	"strings"
	"testing"
)

// withMore reports whether further parts follow m.
func withMore(t *testing.T, m Message, more bool) Message {
	t.Helper()
	v := reflect.New(reflect.TypeOf(m)).Elem()
	v.Set(reflect.ValueOf(m))
	if f := v.FieldByName("More"); f.IsValid() {
		f.SetBool(more)
	} else if raw, ok := m.(RawMultipart); ok && more {
		raw.Flags |= 1
		return raw
	}
	return v.Interface().(Message)
}

// TestJoin cuts every kind of reply that has a list into parts, over the wire, and puts it
// together again.
func TestJoin(t *testing.T) {
	kinds := map[reflect.Type]bool{}
	for _, m := range every() {
		multi, ok := m.(Multipart)
		if !ok {
			continue
		}
		v := reflect.ValueOf(m)
		list := -1
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.Slice &&
				(v.FieldByName("More").IsValid() || v.Type() == reflect.TypeFor[RawMultipart]()) {
				list = i
			}
		}
		if list < 0 {
			if multi.HasMore() {
				t.Errorf("%T has more and no list", m)
			}
			continue
		}
		kinds[v.Type()] = true
		last := withMore(t, m, false)
		var parts []Message
		for _, p := range []Message{withMore(t, last, true), withMore(t, last, true), last} {
			b, err := AppendMessage(nil, 1, p)
			if err != nil {
				t.Fatalf("%T: %v", p, err)
			}
			_, decoded, err := DecodeMessage(b)
			if err != nil {
				t.Fatalf("%T: %v", p, err)
			}
			parts = append(parts, decoded)
		}
		have, err := Join(parts)
		if err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		if have.(Multipart).HasMore() {
			t.Errorf("%T: more follow the joined message", m)
		}
		if n, want := reflect.ValueOf(have).Field(list).Len(), 3*v.Field(list).Len(); n != want {
			t.Errorf("%T: the joined list has %d elements, want %d", m, n, want)
		}
	}
	if len(kinds) < 19 {
		t.Errorf("%d kinds of messages have parts, want 19: %v", len(kinds), kinds)
	}
}

func TestJoinRefuses(t *testing.T) {
	flows, ports := FlowDescReply{More: true}, PortDescReply{}
	for _, test := range []struct {
		name  string
		parts []Message
		want  string
	}{
		{"nothing", nil, "there are no parts"},
		{"another kind", []Message{flows, ports}, "part 2 is ofp.PortDescReply, the first is ofp.FlowDescReply"},
		{"an end too early", []Message{ports, ports}, "part 1 of 2 is marked as the last"},
		{"no end", []Message{flows, flows}, "part 2, the last, announces more parts"},
		{"no parts", []Message{BarrierReply{}, BarrierReply{}}, "ofp.BarrierReply, which has no parts"},
		{"another experimenter", []Message{ExperimenterMultipart{MsgType: TypeMultipartReply, More: true, Vendor: 1},
			ExperimenterMultipart{MsgType: TypeMultipartReply, Vendor: 2}}, "does not go with"},
		{"another unknown type",
			[]Message{RawMultipart{TypeMultipartReply, 77, 1, nil}, RawMultipart{TypeMultipartReply, 78, 0, nil}},
			"multipart_type_78 does not go with multipart_type_77"},
	} {
		if _, err := Join(test.parts); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one with %q", test.name, err, test.want)
		}
	}
	if m, err := Join([]Message{BarrierReply{}}); err != nil || m != (BarrierReply{}) {
		t.Errorf("a message alone comes back as %v, %v", m, err)
	}
}
