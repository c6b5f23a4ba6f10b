package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
)

// TestDemo is README's first command: `make demo`, and all of it encrypted. Each takes its lab down and leaves nothing
// behind.
func TestDemo(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("encrypted=%t", encrypted), func(t *testing.T) {
			d := &demo{name: fmt.Sprintf("demo%d", os.Getpid()), encrypted: encrypted, start: time.Now()}
			before, err := lab.Snapshot(d.name)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx := context.Background()
				l, err := lab.Open(d.name)
				if err == nil {
					err = l.Down(ctx)
				}
				if err == nil {
					err = before.Compare(ctx)
				}
				if err != nil {
					t.Errorf("take the lab down: %v", err)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if err := d.run(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}
