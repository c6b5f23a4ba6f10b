package member

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// TestRequests runs two members of a ClusterSet on real API servers. They agree on the destinations of requests, from
// the number of endpoints of each and from annotations.
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
			if err := s.members["west"].member.Get(t.Context(), client.ObjectKey{Namespace: in, Name: "hello-abcde"},
				slice); err != nil {
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

	t.Run("annotations", func(t *testing.T) {
		s.t = t
		const in = "where"
		s.hello("east", in, nil)
		s.hello("west", in, nil)
		annotate := func(id string, o client.Object, annotations map[string]any) {
			t.Helper()
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.members[id].member.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
				t.Fatal(err)
			}
		}
		export := func() client.Object { return &mcsv1beta1.ServiceExport{ObjectMeta: meta(in, "hello")} }
		order := func(what string, want map[string]string) {
			t.Helper()
			s.eventually(what, func(ctx context.Context) error {
				have := map[string]string{}
				for id, m := range s.members {
					service := &corev1.Service{}
					if err := m.member.Get(ctx, client.ObjectKey{Namespace: in, Name: "antrea-mc-hello"}, service); err != nil {
						return err
					}
					have[id] = strings.TrimSpace(service.Annotations[multicluster.AnnotationClusterOrder] +
						" " + service.Annotations[multicluster.AnnotationMinimumReady])
				}
				if fmt.Sprint(have) != fmt.Sprint(want) {
					return fmt.Errorf("have %v, want %v", have, want)
				}
				return nil
			})
		}
		valid := func(id string, o client.Object, want string) {
			t.Helper()
			s.eventually(fmt.Sprintf("%T of %s: %s", o, id, want), func(ctx context.Context) error {
				if err := s.members[id].member.Get(ctx, client.ObjectKey{Namespace: in, Name: "hello"}, o); err != nil {
					return err
				}
				var conditions []metav1.Condition
				switch o := o.(type) {
				case *mcsv1beta1.ServiceExport:
					conditions = o.Status.Conditions
				case *mcsv1beta1.ServiceImport:
					conditions = o.Status.Conditions
				}
				have := ""
				if c := apimeta.FindStatusCondition(conditions, "RequestsValid"); c != nil {
					have = strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
				}
				if have != want {
					return fmt.Errorf("have %q of %v", have, conditions)
				}
				return nil
			})
		}
		event := func(id, kind, text string) {
			t.Helper()
			s.eventually("Event on the "+kind, func(ctx context.Context) error {
				l := &corev1.EventList{}
				if err := s.members[id].member.List(ctx, l, client.InNamespace(in)); err != nil {
					return err
				}
				for _, e := range l.Items {
					if e.InvolvedObject.Kind == kind && e.Reason == "RequestsInvalid" && strings.Contains(e.Message, text) {
						return nil
					}
				}
				return fmt.Errorf("%d others", len(l.Items))
			})
		}
		s.export("east", in, nil, nil)
		s.export("west", in, nil, nil)
		order("nothing is said", map[string]string{"east": "", "west": ""})
		valid("east", export(), "")

		annotate("east", export(),
			map[string]any{multicluster.AnnotationRequests: "local", multicluster.AnnotationMinimumReady: "2"})
		order("local: each its own", map[string]string{"east": "east 2", "west": "west 2"})
		valid("east", export(), "True Accepted")
		valid("west", export(), "")

		imported := &mcsv1beta1.ServiceImport{ObjectMeta: meta(in, "hello")}
		annotate("west", imported,
			map[string]any{multicluster.AnnotationRequests: "cluster-order", multicluster.AnnotationClusterOrder: "east, north"})
		order("west has its own order", map[string]string{"east": "east 2", "west": "east,north 1"})
		valid("west", imported, "True Accepted")

		const wrong = `metadata.annotations[multicluster.tombolo.io/requests]: "nearest" is not one of spread, local and ` +
			`cluster-order`
		annotate("west", imported,
			map[string]any{multicluster.AnnotationRequests: "nearest", multicluster.AnnotationClusterOrder: nil})
		valid("west", imported, "False RequestsInvalid "+wrong)
		event("west", "ServiceImport",
			`"nearest" is not one of spread, local and cluster-order; until then requests go as the exports say`)
		order("west goes by the exports again", map[string]string{"east": "east 2", "west": "west 2"})

		annotate("west", imported, map[string]any{multicluster.AnnotationRequests: "spread"})
		order("west spreads", map[string]string{"east": "east 2", "west": ""})

		annotate("east", export(),
			map[string]any{multicluster.AnnotationRequests: "nearest", multicluster.AnnotationMinimumReady: nil})
		valid("east", export(), "False RequestsInvalid "+wrong)
		event("east", "ServiceExport",
			`"nearest" is not one of spread, local and cluster-order; until then requests go as if it said nothing`)
		order("nothing is in effect", map[string]string{"east": "", "west": ""})
		s.condition("east", in, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, "Succeed")

		annotate("east", export(), map[string]any{multicluster.AnnotationRequests: nil})
		valid("east", export(), "")
		annotate("west", imported, map[string]any{multicluster.AnnotationRequests: nil})
		valid("west", imported, "")

		annotate("east", export(), map[string]any{multicluster.AnnotationRequests: "local"})
		annotate("west", export(), map[string]any{multicluster.AnnotationRequests: "spread"})
		s.conflict(in, "RequestsConflict", "east", "west")
		s.unexport("east", in)
		s.unexport("west", in)
		s.nothing(in)
	})
}
