package gateways

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestClock ends a phase when the Gateway has been in it for as long as it may, as this process has seen it. Joining
// begins when the leader announces the Gateway to others.
func TestClock(t *testing.T) {
	clock, begin := Clock{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		at    time.Duration
		phase string
		over  bool
	}{
		{-90 * time.Second, multicluster.PhaseJoining, false}, // the leader announces it from 0 on
		{-20 * time.Second, multicluster.PhaseJoining, true},  // it was not announced in its time
		{0, multicluster.PhaseJoining, false},
		{59 * time.Second, multicluster.PhaseJoining, false},
		{60 * time.Second, multicluster.PhaseJoining, true},
		{61 * time.Second, "", false},
		{62 * time.Second, multicluster.PhaseLeaving, false},
		{67 * time.Second, multicluster.PhaseLeaving, true},
		{68 * time.Second, multicluster.PhaseLeft, false},
		{82 * time.Second, multicluster.PhaseLeft, false},
		{83 * time.Second, multicluster.PhaseLeft, true},
		{84 * time.Second, multicluster.PhaseJoining, false},
	} {
		g := &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "node-1"}}
		if step.phase != "" {
			g.Annotations = map[string]string{multicluster.AnnotationPhase: step.phase}
		}
		var own *mcv1alpha1.ClusterInfo
		if step.at >= 0 {
			own = &mcv1alpha1.ClusterInfo{GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: g.GatewayIP}}}
		}
		if over := clock.Over(begin.Add(step.at), []*mcv1alpha1.Gateway{g},
			own); (over[derive.ObjectOf(g)] != "") != step.over {
			t.Errorf("after %s in phase %q: over %v, want %v", step.at, step.phase, over, step.over)
		}
	}
	if clock.Over(begin, nil, nil); len(clock) > 0 {
		t.Errorf("the clock remembers %v", clock)
	}
}
