package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAsked requests a port of the Node in a Pod of this Node, and in a Pod of another one, and withdraws the request.
func TestAsked(t *testing.T) {
	pod := func(name, node string, port int32) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PodSpec{NodeName: node,
				Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: port}}}}},
		}
	}
	v := testView()
	v.Pods = []*corev1.Pod{pod("here", "node-1", 80), pod("there", "node-2", 80), pod("plain", "node-1", 0)}
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	reported := func() (out []string) {
		tables.engine.Pass()
		for _, p := range tables.engine.Problems() {
			if p.Kind == "Pod" {
				out = append(out, p.Object.String()+" "+p.Field+" "+p.Reason)
			}
		}
		return out
	}
	want := []string{"Pod default/here spec.containers[0].ports[0].hostPort HostPortNotSupported"}
	if diff := cmp.Diff(want, reported()); diff != "" {
		t.Errorf("Problems (-want +have):\n%s", diff)
	}
	v.Pods[0].Status.Phase = corev1.PodSucceeded
	tables.set(v)
	if have := reported(); have != nil {
		t.Errorf("of a finished Pod: %v", have)
	}
	tables.chained = []string{"portmap"}
	if have := tables.askedBy(pod("here", "node-1", 80)); len(have) > 0 {
		t.Errorf("on a Node with portmap: %v", have)
	}
}
