package leader

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// conditionRecorder records the conditions that are written to Endpoints exports, and creates nothing.
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
	if re := o.(*mcv1alpha1.ResourceExport); strings.HasSuffix(re.Name, multicluster.EndpointsSuffix) {
		s.to <- re.Status.Conditions[0]
	}
	return nil
}

// TestEndpointsFirst sees Endpoints before their Service, or before their range, as when a member writes all at once.
// The Service or the range is reported as missing if it has not come after a while.
func TestEndpointsFirst(t *testing.T) {
	type exports = []*mcv1alpha1.ResourceExport
	web, ranges := service("east", "default", "web", time.Hour, 80), clusterInfo("east", "10.96.0.0/16")
	ranges.Spec.ClusterInfo.ServiceCIDRs = []string{"10.96.0.0/16", "fd00:96::/112"}
	ours := service("east", "default", "web", time.Hour, 80)
	ours.Annotations = map[string]string{multicluster.AnnotationService: (&exportcheck.ServiceFacts{Created: 1}).String()}
	both := exports{web, clusterInfo("east", "10.96.0.0/16"), clusterInfo("west", "10.97.0.0/16")}
	for _, row := range []struct {
		name    string
		there   exports
		comes   *mcv1alpha1.ResourceExport
		least   time.Duration
		message string
		silent  bool // there is no condition
	}{
		{name: "the Service comes a moment later", comes: web},
		{name: "the Service of a Tombolo member comes a moment later", comes: ours, silent: true},
		{name: "the Service does not come", least: earlyFor,
			message: failure(nil, "its Service is not exported by cluster east").Message},
		{name: "the range of an address comes a moment later", there: both, comes: ranges},
		{name: "the range of an address does not come", there: both, least: earlyFor, message: "only the other endpoints " +
			"are imported: spec.endpoints.subsets[0].addresses[1].ip: fd00:96::10 is outside of all ranges that clusters " +
			"announce (if it is in a network that all clusters reach, list that in annotation " +
			"endpoints.multicluster.antrea.io/east of the leader's ClusterSet; else set podCIDRs in the member controller's " +
			"configuration of cluster east): expected an address of the exporting cluster"},
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
				v := View{Namespace: "area", Now: start, Announces: announced("east", "west"), ResourceExports: append(exports{
					withAddress(endpoints("east", "default", "web", "10.96.0.1"), "fd00:96::10")}, row.there...)}
				c.tables.kinds.Fill(v.objects()...)
				c.tables.engine.Pass()
				if row.comes != nil {
					time.Sleep(100 * time.Millisecond) // of the bubble's clock
					v.ResourceExports = append(v.ResourceExports, row.comes)
					c.tables.kinds.Fill(v.objects()...)
					c.tables.engine.Pass()
				}
				if row.silent {
					time.Sleep(time.Minute)
					if len(conditions) > 0 {
						t.Errorf("the first condition is %+v, want none", <-conditions)
					}
					return
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
