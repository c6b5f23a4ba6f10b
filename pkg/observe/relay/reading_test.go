package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// TestAskedAgain ends the answers of Nodes. A Node that does not serve the question is not asked again.
func TestAskedAgain(t *testing.T) {
	for _, row := range []struct {
		name   string
		err    error
		follow bool
		again  bool
	}{
		{"the connection is lost", errors.New("EOF"), true, true},
		{"the question is not served", fmt.Errorf("node-1: %w", unserved{errors.New("400")}), true, false},
		{"without follow", errors.New("EOF"), false, false},
		{"its end", nil, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			from := &node{name: "node-1"}
			a := &reading{relay: &Relay{log: slog.New(slog.NewTextHandler(t.Output(), nil))},
				question: record.Question{Follow: row.follow}, of: map[*node]bool{from: true}, again: map[*node]time.Time{},
				open: 1, begun: map[string]bool{"node-1": true}}
			a.receive(received{from: from, ended: true, err: row.err})
			if _, have := a.again[from]; have != row.again {
				t.Errorf("it is asked again: %v, want %v", have, row.again)
			}
			if missing := a.merger.Len() > 0; missing != (row.err != nil) || a.open != 0 {
				t.Errorf("the reader gets a line about missing records: %v; %d Nodes are read", missing, a.open)
			}
		})
	}
}
