package ofp

import "testing"

// TestGroupBytes holds groups that are kept as bytes against groups as values.
func TestGroupBytes(t *testing.T) {
	groups := []GroupDesc{
		{ID: 1, GroupType: GroupTypeAll},
		{ID: 2, GroupType: GroupTypeSelect, Selection: Selection{Method: "dp_hash"}, Buckets: []Bucket{
			{ID: 5, Weight: 1, Actions: []Action{Output{Port: 1}}}, {ID: 9, Weight: 3, Actions: []Action{Output{Port: 2}}},
		}},
		{ID: 3, GroupType: GroupTypeFastFailover,
			Buckets: []Bucket{{ID: 1, WatchPort: 4, Actions: []Action{Output{Port: 4}}}}},
	}
	message, err := AppendMessage(nil, 7, GroupDescReply{Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	err = EachGroupDesc(message, func(g GroupDescBytes) error {
		want := groups[i]
		i++
		mod := GroupMod{Command: GroupAdd, GroupType: want.GroupType, ID: want.ID, Selection: want.Selection,
			Buckets: want.Buckets}
		whole, err := AppendMessage(nil, 3, mod)
		if err != nil {
			t.Fatal(err)
		}
		if have := AppendGroupMod(nil, 3, &GroupMod{GroupType: g.GroupType, ID: g.ID}, g.Buckets,
			g.Properties); string(have) != string(whole) {
			t.Errorf("group %d: %x, want %x", want.ID, have, whole)
		}
		return nil
	})
	if err != nil || i != len(groups) {
		t.Errorf("%d groups, %v", i, err)
	}
	for n := range message {
		if EachGroupDesc(message[:n], func(GroupDescBytes) error { return nil }) == nil && !ends(message[:n]) {
			t.Errorf("%d bytes of %d are no error", n, len(message))
		}
	}
}

// ends reports whether a message cut short ends with one of its groups.
func ends(b []byte) bool {
	for at := 16; at <= len(b); {
		if at == len(b) {
			return true
		}
		if at+2 > len(b) {
			return false
		}
		at += int(b[at])<<8 | int(b[at+1])
	}
	return false
}
