package agent

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// TestPublishAgain makes the first request that announces a key fail. No event follows.
func TestPublishAgain(t *testing.T) {
	for name, first := range map[string]func(context.Context) error{
		"on a connection that was cut without a word": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"at an API server that does not know the kind yet": func(context.Context) error {
			return apierrors.NewNotFound(mcv1alpha1.GroupVersion.WithResource("gateways").GroupResource(), "node-1")
		},
	} {
		t.Run(name, func(t *testing.T) { publishAgain(t, first) })
	}
}

func publishAgain(t *testing.T, first func(context.Context) error) {
	synctest.Test(t, func(t *testing.T) {
		want := mcv1alpha1.WireGuardInfo{PublicKey: "key"}
		var have mcv1alpha1.WireGuardInfo
		requests, written := 0, make(chan time.Time, 1)
		p := &publisher[mcv1alpha1.WireGuardInfo]{
			text: keyText,
			log:  slog.New(slog.DiscardHandler),
			wake: make(chan struct{}, 1),
			want: func() (mcv1alpha1.WireGuardInfo, bool) { return want, true },
			get:  func() (problem.Object, mcv1alpha1.WireGuardInfo, bool) { return problem.Object{}, have, true },
			patch: func(ctx context.Context, _ problem.Object, key mcv1alpha1.WireGuardInfo) error {
				if requests++; requests == 1 {
					return first(ctx)
				}
				have = key
				written <- time.Now()
				return nil
			},
		}
		ctx, stop := context.WithCancel(t.Context())
		begun := time.Now()
		go p.run(ctx)
		select {
		case at := <-written:
			if took, limit := at.Sub(begun), publishLimit+publishRetry; took > limit {
				t.Errorf("the key is announced after %v, want within %v", took, limit)
			}
		case <-time.After(time.Minute):
			t.Error("the key is not announced within a minute")
		}
		stop()
		synctest.Wait()
		if requests != 2 {
			t.Errorf("%d requests, want one that fails and one that is answered", requests)
		}
	})
}
