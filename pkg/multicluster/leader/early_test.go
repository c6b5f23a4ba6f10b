package leader

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// conditionRecorder records the conditions that are written, and creates nothing.
type conditionRecorder struct {
	client.Client
	conditions chan mcv1alpha1.ResourceExportCondition
}

func (conditionRecorder) Create(context.Context, client.Object, ...client.CreateOption) error {
	return nil
}

func (c conditionRecorder) Status() client.SubResourceWriter { return statusRecorder{to: c.conditions} }

type statusRecorder struct {
	client.SubResourceWriter
	to chan mcv1alpha1.ResourceExportCondition
}

func (s statusRecorder) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	s.to <- o.(*mcv1alpha1.ResourceExport).Status.Conditions[0]
	return nil
}

// TestEndpointsFirst sees Endpoints before their Service, as when a member writes both at once. The Service is reported
// as missing if it has not come after a while.
func TestEndpointsFirst(t *testing.T) {
	for _, row := range []struct {
		name    string
		comes   bool
		least   time.Duration
		message string
	}{
		{name: "the Service comes a moment later", comes: true},
		{name: "the Service does not come", least: earlyFor,
			message: failure("", "its Service is not exported by cluster east").Message},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conditions := make(chan mcv1alpha1.ResourceExportCondition, 10)
				c := newController(conditionRecorder{conditions: conditions}, slog.New(slog.DiscardHandler))
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					c.queue.Run(ctx)
				}()
				defer func() {
					stop()
					<-ended
				}()
				start := time.Now()
				v := View{Namespace: "area", Now: start, Announces: announced("east"),
					ResourceExports: []*mcv1alpha1.ResourceExport{endpoints("east", "default", "web", "10.96.0.1")}}
				c.tables.kinds.Fill(v.objects()...)
				c.tables.engine.Pass()
				if row.comes {
					time.Sleep(100 * time.Millisecond) // of the bubble's clock
					v.ResourceExports = append(v.ResourceExports, service("east", "default", "web", time.Hour, 80))
					c.tables.kinds.Fill(v.objects()...)
					c.tables.engine.Pass()
				}
				first := <-conditions
				if took := time.Since(start); first.Message != row.message || took < row.least {
					t.Errorf("after %s the first condition is %+v, want the message %q after %s at least", took, first, row.message,
						row.least)
				}
			})
		})
	}
}
