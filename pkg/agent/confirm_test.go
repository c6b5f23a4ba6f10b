package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
)

// TestConfirmations measures one change at a time, and no change that the switch refuses.
func TestConfirmations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		c := newConfirmations(func(ctx context.Context, owners ...flow.Owner) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond): // of the bubble's clock
			}
			if owners[0].Name == "refused" {
				return errors.New("no")
			}
			return nil
		}, func(d time.Duration) { took = append(took, d) })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.run(ctx)
		}()
		for _, name := range []string{"web", "refused", "dns"} {
			synctest.Wait()
			seen := time.Now()
			time.Sleep(time.Millisecond)
			c.declared(seen, flow.Owner{Name: name})
			synctest.Wait()
			c.declared(seen, flow.Owner{Name: "another"}) // a change in between is not measured
			time.Sleep(time.Second)
		}
		stop()
		<-ended
		if want := []time.Duration{11 * time.Millisecond, 11 * time.Millisecond}; !slices.Equal(took, want) {
			t.Errorf("measured %v, want %v", took, want)
		}
	})
}
