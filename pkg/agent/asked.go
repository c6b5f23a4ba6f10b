package agent

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/unserved"
)

// askedBy returns the requests of a Pod of this Node that are not fulfilled.
func (t *tables) askedBy(p *corev1.Pod) []problem.Problem {
	if p.Spec.NodeName != t.nodeName {
		return nil
	}
	return unserved.Pod(p)
}

// unserved reports it, once for a Pod.
func (t *tables) unserved(key derive.Object, r *derive.Reader) (bool, []problem.Problem) {
	found, _ := derive.Get(r, t.objects.asked, key)
	return len(found) > 0, found
}
