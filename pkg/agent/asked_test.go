package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAsked requests a pool of addresses in a Pod of this Node, and in a Pod of another one, and withdraws the request.
func TestAsked(t *testing.T) {
	pod := func(name, node string, annotations map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations},
			Spec:       corev1.PodSpec{NodeName: node},
		}
	}
	pool := map[string]string{"ipam.antrea.io/ippools": "pool"}
	v := testView()
	v.Pods = []*corev1.Pod{pod("here", "node-1", pool), pod("there", "node-2", pool), pod("plain", "node-1", nil)}
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	reported := func() (out []string) {
		tables.engine.Pass()
		for _, p := range tables.engine.Problems() {
			if p.Kind == "Pod" {
				out = append(out, p.Object.String()+" "+p.Field+" "+p.Reason.String())
			}
		}
		return out
	}
	want := []string{"Pod default/here metadata.annotations[ipam.antrea.io/ippools] IPPoolNotSupported"}
	if diff := cmp.Diff(want, reported()); diff != "" {
		t.Errorf("Problems (-want +have):\n%s", diff)
	}
	v.Pods[0].Status.Phase = corev1.PodSucceeded
	tables.set(v)
	if have := reported(); have != nil {
		t.Errorf("of a finished Pod: %v", have)
	}
}
