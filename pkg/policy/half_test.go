package policy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
)

// TestElsewhere asks one Node about Pods of another, while Pods, labels and policies change at random. The answer
// equals the other Node's.
func TestElsewhere(t *testing.T) {
	w := newWorld(*walkSeed)
	w.Faithful = true
	asked, denied := 0, 0
	for step := range *walkSteps / 5 {
		what := w.Step()
		w.engine.Pass()
		e := derive.New()
		there := policytest.Cluster{Attached: map[string]policytest.Attached{}}
		for _, pod := range w.Here("node-2") {
			key := derive.ObjectOf(pod).String()
			there.Attached[key] = policytest.Attached{Pod: key, UID: pod.UID, IPs: w.Own(pod)}
		}
		other := NewTables(e, "node-2", attachmentsOf(e, there)).Stretched()
		fill(other, w.Cluster)
		e.Pass()
		for _, pod := range w.Here("node-2") {
			own := policytest.Pick(w.Walk, w.Own(pod)...)
			c := Connection{From: w.address(own), To: own,
				Protocol: policytest.Pick(w.Walk, corev1.ProtocolTCP, corev1.ProtocolUDP),
				Port:     policytest.Pick[uint16](w.Walk, 53, 80, 81, 85)}
			d := policytest.Pick(w.Walk, Ingress, Egress)
			peer := c.From
			if d == Egress {
				c.From, c.To = c.To, c.From
			}
			pods := []derive.Object{derive.ObjectOf(pod)}
			if who, ok := w.OccupantAt(peer); ok && who.Known {
				pods = append(pods, who.Pod)
			}
			have, want := w.Elsewhere(pods...).Why(derive.ObjectOf(pod), d, c), other.Why(derive.ObjectOf(pod), d, c)
			if have.Allowed != want.Allowed || have.Identity.Exchanged() != want.Identity.Exchanged() ||
				have.Peer.Exchanged() != want.Peer.Exchanged() || len(have.Steps) != len(want.Steps) ||
				(have.Rule == nil) != (want.Rule == nil) {
				t.Fatalf("seed %d, step %d, %s: %s of Pod %s, %+v: %+v, its own Node says %+v", *walkSeed, step, what, d,
					derive.ObjectOf(pod), c, have, want)
			}
			if asked++; !have.Allowed {
				denied++
			}
		}
	}
	if denied < asked/10 || denied > asked*9/10 || asked < *walkSteps/20 {
		t.Errorf("%d of %d connections were denied: the walk is too tame", denied, asked)
	}
}
