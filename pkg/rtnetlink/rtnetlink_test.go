package rtnetlink

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestList(t *testing.T) {
	broken := errors.New("broken")
	for _, row := range []struct {
		name        string
		interrupted int // calls
		then        error
		calls       int
		want        error
	}{
		{name: "whole at once", calls: 1},
		{name: "interrupted twice", interrupted: 2, calls: 3},
		{name: "fails", interrupted: 1, then: broken, calls: 2, want: broken},
		{name: "never whole", interrupted: 100, calls: attempts, want: netlink.ErrDumpInterrupted},
	} {
		t.Run(row.name, func(t *testing.T) {
			calls := 0
			found, err := List(func() (int, error) {
				if calls++; calls <= row.interrupted {
					return calls, fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
				}
				return calls, row.then
			})
			if calls != row.calls || found != calls || !errors.Is(err, row.want) {
				t.Errorf("%d after %d calls: %v; want %d calls and %v", found, calls, err, row.calls, row.want)
			}
		})
	}
}
