package flow

import (
	"errors"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// wellPlaced requires that an error about text has the place, and the expected text.
func wellPlaced(t *testing.T, text string, err error) {
	t.Helper()
	var pe *ParseError
	if !errors.As(err, &pe) {
		t.Fatalf("%q: error %v is no ParseError", text, err)
	}
	lines := strings.Split(text, "\n")
	if pe.Line < 1 || pe.Line > len(lines) || pe.Column < 1 || pe.Column > len(lines[pe.Line-1])+1 || pe.Problem == "" ||
		pe.Expected == "" {
		t.Fatalf("%q: error %#v names no place in it", text, pe)
	}
}

func FuzzParseFlow(f *testing.F) {
	for _, text := range append(append([]string(nil), programmed...), forms...) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ParseFlow(text)
		if err != nil {
			wellPlaced(t, text, err)
			return
		}
		y, err := ParseFlow(x.String())
		if err != nil || !y.Equal(x) {
			t.Fatalf("%q is read as %s, and that as %s: %v", text, x, y, err)
		}
		_ = x.OVSText()
	})
}

func FuzzParseMatch(f *testing.F) {
	for _, text := range forms {
		match, _, _ := strings.Cut(text, "actions")
		f.Add(match)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ParseMatch(text)
		if err != nil {
			wellPlaced(t, text, err)
			return
		}
		y, err := ParseMatch(x.String())
		if err != nil || y != x {
			t.Fatalf("%q is read as %s, and that as %s: %v", text, x, y, err)
		}
		oxm, err := ofp.DecodeMatch([]byte(x.OXM()))
		if err != nil || oxm != x.OXM() {
			t.Fatalf("%q is %x, and decoded %x: %v", text, x.OXM(), oxm, err)
		}
	})
}

func FuzzParseActions(f *testing.F) {
	for _, text := range forms {
		_, actions, _ := strings.Cut(text, "actions=")
		f.Add(actions)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ParseActions(text)
		if err != nil {
			wellPlaced(t, text, err)
			return
		}
		y, err := ParseActions(x.String())
		if err != nil || !y.Equal(x) {
			t.Fatalf("%q is read as %s, and that as %s: %v", text, x, y, err)
		}
		_ = x.OVSText()
	})
}

func FuzzParseFlows(f *testing.F) {
	f.Add("# a file\nadd table=1,ip,actions=drop\n\nmodify cookie=0x10/0xff,tcp,tp_dst=80,actions=output:2\n")
	f.Add("delete table=3,cookie=0x20/-1,out_port=LOCAL,out_group=7\ndelete\ndelete_strict priority=9,reg0=1\n")
	f.Fuzz(func(t *testing.T, text string) {
		mods, err := ParseFlows(strings.NewReader(text))
		if err != nil {
			var pe *ParseError
			if !errors.As(err, &pe) || pe.Line < 1 || pe.Line > strings.Count(text, "\n")+1 || pe.Column < 1 {
				t.Fatalf("%q: error %v names no place in it", text, err)
			}
		}
		for _, m := range mods {
			again, err := ParseMod(m.String())
			if err != nil || again.String() != m.String() {
				t.Fatalf("%s is read as %s: %v", m, again, err)
			}
		}
	})
}

func FuzzParseGroup(f *testing.F) {
	for _, text := range groupForms {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ParseGroup(text)
		if err != nil {
			wellPlaced(t, text, err)
			return
		}
		y, err := ParseGroup(x.String())
		if err != nil || !y.Equal(x) {
			t.Fatalf("%q is read as %s, and that as %s: %v", text, x, y, err)
		}
	})
}

func FuzzParseMeter(f *testing.F) {
	for _, text := range meterForms {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ParseMeter(text)
		if err != nil {
			wellPlaced(t, text, err)
			return
		}
		y, err := ParseMeter(x.String())
		if err != nil || !y.Equal(x) {
			t.Fatalf("%q is read as %s, and that as %s: %v", text, x, y, err)
		}
	})
}

// FuzzDecodeActions decodes, encodes and decodes the bytes of actions, and writes and reads their text.
func FuzzDecodeActions(f *testing.F) {
	for _, x := range actionFlows(newGenerator(9)) {
		if b, err := ofp.AppendActions(nil, x.Actions); err == nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := ofp.DecodeActions(b)
		if err != nil {
			return
		}
		x := Actions(list)
		wire, err := ofp.AppendActions(nil, x)
		if err != nil {
			return // a list that we would not send ourselves
		}
		again, err := ofp.DecodeActions(wire)
		if err != nil || !x.Equal(again) {
			t.Fatalf("% x: %s is decoded as %s: %v", b, x, Actions(again), err)
		}
		if !inText(x) {
			return
		}
		y, err := ParseActions(x.String())
		if err != nil || !y.Equal(x) {
			t.Fatalf("% x: %s is read as %s: %v", b, x, y, err)
		}
	})
}

// inText reports whether there is text for all of the actions. There is no text for the length of a packet that goes to
// a port, or to a controller whose port is in a register, for a size of a new header, and for unknown flags.
func inText(list []ofp.Action) bool {
	for _, a := range list {
		switch a := a.(type) {
		case ofp.Output:
			if a.MaxLen != 0 && a.Port != ofp.PortController {
				return false
			}
		case ofp.OutputReg:
			if a.MaxLen != 0xffff {
				return false
			}
		case ofp.Encap:
			if a.HdrSize != 0 {
				return false
			}
		case ofp.CT:
			if a.Flags&^(ofp.CTCommit|ofp.CTForce) != 0 {
				return false
			}
		case ofp.Clone:
			if !inText(a.Actions) {
				return false
			}
		case ofp.WriteActions:
			if !inText(a.Actions) {
				return false
			}
		}
	}
	return true
}

// FuzzDecodeMatch does the same with the bytes of a match.
func FuzzDecodeMatch(f *testing.F) {
	for _, x := range fieldFlows(newGenerator(9)) {
		f.Add([]byte(x.Match.OXM()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ofp.DecodeMatch(b)
		if err != nil {
			return
		}
		if again, err := ofp.DecodeMatch([]byte(m)); err != nil || again != m {
			t.Fatalf("% x: %x is decoded as %x: %v", b, m, again, err)
		}
		x, err := with(MatchOf(m))
		if err != nil || x.OXM() != m {
			return // a field that lacks what it needs, or an older view, which text does not say
		}
		y, err := ParseMatch(x.String())
		if err != nil || y != x {
			t.Fatalf("% x: %s is read as %s: %v", b, x, y, err)
		}
	})
}
