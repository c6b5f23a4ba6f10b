package ofp

import (
	"bytes"
	"testing"
)

func TestPackActions(t *testing.T) {
	lists := map[string][]Action{
		"actions":      {SetField{Field: EthDst, Value: "\x02\x00\x00\x00\x00\x01"}, Resubmit{Port: PortInPort, Table: 20}},
		"instructions": {Output{Port: 1}, WriteMetadata{Value: 1, Mask: 3}, GotoTable{Table: 9}},
		"nested":       {Clone{Actions: []Action{Group{ID: 7}}}, CT{Flags: CTCommit, Table: CTNoTable}},
		"nothing":      nil,
	}
	for name, list := range lists {
		want, err := AppendActions(nil, list)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		packed, err := PackActions(list)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		have, err := AppendActions(nil, packed)
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s: %x, %v, want %x", name, have, err, want)
		}
		if !EqualActions(packed, list) || !EqualActions(list, packed) || !EqualActions(packed, packed) {
			t.Errorf("%s: the packed list does not equal the list", name)
		}
		back := CanonicalActions(packed)
		if len(back) != len(list) || !EqualActions(back, list) {
			t.Errorf("%s: %v comes back as %v", name, list, back)
		}
		if len(list) == 0 {
			continue
		}
		if len(packed) != 1 {
			t.Errorf("%s: %d actions, want one", name, len(packed))
		}
		for where, wrong := range map[string][]Action{"beside another": append(packed, Output{Port: 1}), "within clone": {Clone{Actions: packed}}} {
			if _, err := AppendActions(nil, wrong); err == nil {
				t.Errorf("%s: packed actions are taken %s", name, where)
			}
		}
	}
	if _, err := PackActions([]Action{NAT{}}); err == nil {
		t.Error("nat outside of ct is packed")
	}
}
