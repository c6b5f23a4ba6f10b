package requests

import (
	"slices"
	"strings"
	"testing"
)

func TestGone(t *testing.T) {
	for _, row := range []struct {
		name    string
		sights  map[string]Sight
		reached map[string][]string
		want    bool
	}{
		{"unseen", nil, nil, false},
		{"reached", map[string]Sight{"west": Reached}, nil, false},
		{"reached, and by nobody else", map[string]Sight{"west": Reached, "north": Reached},
			map[string][]string{"north": {"east"}}, false},
		{"lost, and there is nobody else", map[string]Sight{"west": Lost}, nil, true},
		{"lost, by others too", map[string]Sight{"west": Lost, "north": Reached},
			map[string][]string{"north": {"east", "south"}}, true},
		{"lost, and another reaches it", map[string]Sight{"west": Lost, "north": Reached, "south": Reached},
			map[string][]string{"north": {"east"}, "south": {"west"}}, false},
		{"the word of one that is lost, too", map[string]Sight{"west": Lost, "north": Lost},
			map[string][]string{"north": {"west"}}, true},
		{"the word of one that is not seen", map[string]Sight{"west": Lost}, map[string][]string{"north": {"west"}}, true},
		{"its own word", map[string]Sight{"west": Lost}, map[string][]string{"west": {"west", "east"}}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			if have := Gone("west", row.sights, row.reached); have != row.want {
				t.Errorf("gone is %v, want %v", have, row.want)
			}
		})
	}
}

func TestReached(t *testing.T) {
	for _, row := range []struct {
		ids  []string
		text string
		want []string
	}{
		{nil, "", nil},
		{[]string{"north"}, "north", []string{"north"}},
		{[]string{"north", "a,b", "", "west"}, "north,west", []string{"north", "west"}},
	} {
		text := ReachedText(row.ids)
		have, err := ReadReached(text)
		if text != row.text || err != nil || !slices.Equal(have, row.want) {
			t.Errorf("%q becomes %q, and %q, %v", row.ids, text, have, err)
		}
	}
	if list, err := ReadReached(strings.Repeat("x", maxReachedBytes+1)); err == nil || list != nil ||
		!strings.Contains(err.Error(), "16385 bytes") {
		t.Errorf("of too much %d are read, %v", len(list), err)
	}
}
