package member

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
)

// TestSlowLeader announces a cluster to a leader that does not answer in time: for one request, and for longer.
func TestSlowLeader(t *testing.T) {
	for _, row := range []struct {
		name  string
		slow  int // requests that get no answer
		error bool
		takes time.Duration
	}{
		{"answers", 0, false, 0},
		{"slow once", 1, false, leaderTimeout},
		{"slow twice", 2, true, 2 * leaderTimeout},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := 0
				a := &commonArea{area: membership.Area{Namespace: "area", ClusterID: "east", LeaderID: "north"}}
				a.client = fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
						options ...client.GetOption) error {
						if slow > 0 {
							slow--
							<-ctx.Done()
							return ctx.Err()
						}
						return c.Get(ctx, key, o, options...)
					},
				}).Build()
				want := announcementTo(a.area)
				if _, after := a.announce(t.Context(), want); after.Error != "" {
					t.Fatal(after.Error)
				}
				slow = row.slow
				start := time.Now()
				_, after := a.announce(t.Context(), want)
				if took := time.Since(start); took != row.takes || (after.Error != "") != row.error {
					t.Errorf("after %s: %q, want an error %t after %s", took, after.Error, row.error, row.takes)
				}
				slow = row.slow
				if _, again := a.announce(t.Context(), want); row.error &&
					(time.Since(start) != row.takes+leaderTimeout || !strings.Contains(again.Error, "deadline")) {
					t.Errorf("a leader that is disconnected is asked for %s: %q", time.Since(start)-row.takes, again.Error)
				}
			})
		})
	}
}
