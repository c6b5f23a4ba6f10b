package ofp

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

// TestDecodeCopies overwrites messages after they were decoded: the results must not change, since a caller may read
// many into one buffer.
func TestDecodeCopies(t *testing.T) {
	samples := recorded(t)
	for _, m := range every() {
		samples = append(samples, wire{b: encoded(t, 1, m)})
	}
	for _, s := range samples {
		_, want, err := DecodeMessage(bytes.Clone(s.b))
		if err != nil {
			t.Fatal(err)
		}
		buffer := bytes.Clone(s.b)
		_, have, err := DecodeMessage(buffer)
		if err != nil {
			t.Fatal(err)
		}
		for i := range buffer {
			buffer[i] ^= 0xff
		}
		if !reflect.DeepEqual(have, want) {
			t.Errorf("%s changes with the buffer that it was read from:\n have %#v\n want %#v", nameOf(s.b), have, want)
		}
	}
}

func TestAppendFlowMod(t *testing.T) {
	n := 0
	for _, m := range every() {
		m, ok := m.(FlowMod)
		if !ok {
			continue
		}
		n++
		want := encoded(t, 7, m)
		instructions, err := AppendActions(nil, m.Actions)
		if err != nil {
			t.Fatal(err)
		}
		have, err := AppendFlowMod([]byte("before"), 7, &m, string(instructions))
		if err != nil || !bytes.Equal(have, append([]byte("before"), want...)) {
			t.Errorf("%x, %v, want %x", have, err, want)
		}
		added := encoded(t, 7, BundleAdd{ID: 5, Flags: 3, Message: m})
		have, err = AppendBundleAdd([]byte("before"), 7, 5, 3,
			func(b []byte) ([]byte, error) { return AppendMessage(b, 7, m) })
		if err != nil || !bytes.Equal(have, append([]byte("before"), added...)) {
			t.Errorf("in a bundle: %x, %v, want %x", have, err, added)
		}
	}
	if n == 0 {
		t.Error("no sample is a flow-mod")
	}
	long := string(make([]byte, 0x10000))
	for name, try := range map[string]func([]byte) ([]byte, error){
		"too long":           func(b []byte) ([]byte, error) { return AppendFlowMod(b, 1, &FlowMod{}, long) },
		"an unknown command": func(b []byte) ([]byte, error) { return AppendFlowMod(b, 1, &FlowMod{Command: 9}, "") },
		"too long in a bundle": func(b []byte) ([]byte, error) {
			return AppendBundleAdd(b, 1, 1, 0, func(b []byte) ([]byte, error) { return append(b, long[:0xffff]...), nil })
		},
		"what cannot be encoded, in a bundle": func(b []byte) ([]byte, error) {
			return AppendBundleAdd(b, 1, 1, 0,
				func(b []byte) ([]byte, error) { return append(b, "half"...), errors.New("refused") })
		},
	} {
		if b, err := try([]byte("before")); err == nil || string(b) != "before" {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// TestEachFlowDesc reads replies with flows in both ways.
func TestEachFlowDesc(t *testing.T) {
	flows := 0
	samples := recorded(t)
	for _, m := range every() {
		samples = append(samples, wire{b: encoded(t, 1, m)})
	}
	for _, s := range samples {
		_, m, err := DecodeMessage(s.b)
		if err != nil {
			t.Fatal(err)
		}
		reply, ok := m.(FlowDescReply)
		var have []FlowDesc
		err = EachFlowDesc(s.b, func(d FlowDescBytes) error {
			f, err := d.Decode()
			if err != nil {
				return err
			}
			match, err := DecodeMatch(d.Match)
			if err != nil {
				return err
			}
			actions, err := DecodeActions(d.Instructions)
			if err != nil {
				return err
			}
			shallow := FlowDesc{d.Table, d.Priority, d.IdleTimeout, d.HardTimeout, d.Flags, d.Importance, d.Cookie, match,
				f.Stats, actions}
			if !reflect.DeepEqual(shallow, f) {
				t.Errorf("in part %#v, as a whole %#v", shallow, f)
			}
			have = append(have, f)
			return nil
		})
		if !ok {
			if err == nil {
				t.Errorf("%s is taken for a reply with flows", nameOf(s.b))
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(have, reply.Flows) {
			t.Errorf("have %#v, %v, want %#v", have, err, reply.Flows)
		}
		flows += len(have)
		stop := errors.New("stop")
		if err := EachFlowDesc(s.b, func(FlowDescBytes) error { return stop }); len(have) > 0 && !errors.Is(err, stop) {
			t.Errorf("ends with %v, want what it was ended with", err)
		}
	}
	if flows == 0 {
		t.Error("no sample has a flow")
	}
}

// FuzzEachFlowDesc has both ways of reading flows agree about what can be read.
func FuzzEachFlowDesc(f *testing.F) {
	for _, m := range every() {
		if m.Type() == TypeMultipartReply {
			b, err := AppendMessage(nil, 1, m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	for _, r := range recorded(f) {
		if r.b[1] == byte(TypeMultipartReply) {
			f.Add(r.b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 16 || len(b) > 0xffff {
			return
		}
		b[0], b[1], b[2], b[3] = Version, byte(TypeMultipartReply), byte(len(b)>>8), byte(len(b))
		b[8], b[9] = 0, byte(MultipartFlowDesc)
		var have []FlowDesc
		err := EachFlowDesc(b, func(d FlowDescBytes) error {
			f, err := d.Decode()
			have = append(have, f)
			return err
		})
		_, m, want := DecodeMessage(b)
		if want != nil {
			return // of what was not asked for, such as statistics, less is looked at
		}
		if err != nil || !reflect.DeepEqual(have, m.(FlowDescReply).Flows) {
			t.Fatalf("have %#v, %v, want %#v", have, err, m)
		}
	})
}
