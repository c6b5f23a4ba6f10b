package member

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// TestRequests has two members of a ClusterSet on real API servers agree on where requests go: how many endpoints each has, and what
// annotations ask for.
func TestRequests(t *testing.T) {
	s := newServices(t, "east", "west")

	t.Run("ready endpoints", func(t *testing.T) {
		s.t = t
		const in = "weights"
		s.hello("east", in, nil)
		s.hello("west", in, nil)
		s.export("east", in, nil, nil)
		s.export("west", in, nil, nil)
		stand := func(what string, want map[string]string) {
			t.Helper()
			s.everywhere(what, func(ctx context.Context, c client.Client) error {
				l := &discoveryv1.EndpointSliceList{}
				if err := c.List(ctx, l, client.InNamespace(in), client.HasLabels{mcsv1beta1.LabelServiceName}); err != nil {
					return err
				}
				have := map[string]string{}
				for _, slice := range l.Items {
					have[slice.Labels[mcsv1beta1.LabelSourceCluster]] = slice.Annotations[multicluster.AnnotationReady]
				}
				if fmt.Sprint(have) != fmt.Sprint(want) {
					return fmt.Errorf("have %v, want %v", have, want)
				}
				return nil
			})
		}
		stand("both say how many", map[string]string{"east": "2", "west": "2"})
		slice := &discoveryv1.EndpointSlice{}
		update := func(change func()) {
			t.Helper()
			if err := s.members["west"].member.Get(t.Context(), client.ObjectKey{Namespace: in, Name: "hello-abcde"}, slice); err != nil {
				t.Fatal(err)
			}
			change()
			if err := s.members["west"].member.Update(t.Context(), slice); err != nil {
				t.Fatal(err)
			}
		}
		update(func() { slice.Endpoints[1].Conditions.Ready = ptr.To(false) })
		stand("one is not ready", map[string]string{"east": "2", "west": "1"})
		update(func() {
			slice.Endpoints[1].Conditions.Ready = ptr.To(true)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.12.0.9"}})
		})
		stand("one more", map[string]string{"east": "2", "west": "3"})
		s.members["east"].delete(s.members["east"].member, &corev1.Service{ObjectMeta: meta(in, "hello")})
		stand("east's is gone", map[string]string{"west": "3"})
		s.unexport("east", in)
		s.unexport("west", in)
		s.nothing(in)
	})
}
