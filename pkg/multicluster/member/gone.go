package member

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A cluster that is gone gets no requests, where others have the same to offer: its endpoints are not ready. The condition Reachable in
// the ClusterSet's status says so, and is what it is known by: a Gateway that takes over has never had a way to the cluster up, and
// does not know what it has lost.

// goneOf are the clusters that are gone.
func (t *reachTables) goneOf(_ derive.Name, r *derive.Reader) (map[string]bool, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	seen, _ := derive.Get(r, t.sights, here)
	was := t.wasGone(m, r)
	sights, lost := map[string]requests.Sight{}, map[string]bool{}
	for id, s := range seen {
		switch {
		case len(s.Up) > 0:
			sights[id] = requests.Reached
		case was[id] || m.Joined && s.Lost && len(s.Unknown) == 0: // until the leader has been heard others may say otherwise
			sights[id], lost[id] = requests.Lost, true
		}
	}
	for id := range was {
		if _, there := seen[id]; !there && t.watched(id, r) {
			sights[id], lost[id] = requests.Lost, true
		}
	}
	if len(lost) == 0 { // what other clusters say matters to nobody
		return nil, nil
	}
	said := t.saidReached(m, r)
	connection, _ := derive.Get(r, t.base.connection, here)
	out := map[string]bool{}
	for id := range lost {
		list := said
		if m.Area != nil && id == m.Area.LeaderID && connection.Error != "" {
			list = nil // the leader is lost with it, so nothing can be heard; that it does not answer says the same
		}
		if requests.Gone(id, sights, list) {
			out[id] = true
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// wasGone are the clusters that the ClusterSet's status says are gone.
func (t *reachTables) wasGone(m membership, r *derive.Reader) map[string]bool {
	set, ok := derive.Get(r, t.base.clusterSets, m.Set)
	if !ok {
		return nil
	}
	out := map[string]bool{}
	for _, s := range set.Status.ClusterStatuses {
		if slices.ContainsFunc(s.Conditions, func(c mcv1alpha2.ClusterCondition) bool {
			return c.Type == mcv1alpha2.ClusterReachable && c.Reason == reasonGone
		}) {
			out[s.ClusterID] = true
		}
	}
	return out
}

// watched says whether Gateways watch their ways to a cluster, and will report them if they have not yet: those to a cluster
// that says it watches them, too, unless it has one address inside WireGuard for all its Gateways.
func (t *reachTables) watched(id string, r *derive.Reader) bool {
	return slices.ContainsFunc(values(derive.All(r, t.clusters.clusterInfoImports)),
		func(cii *mcv1alpha1.ClusterInfoImport) bool {
			if _, withdrawn := cii.Annotations[multicluster.AnnotationWithdrawn]; withdrawn && cii.Spec.ClusterID == id {
				return true // it was watched, or it was not gone; and it has not come back
			}
			return cii.Spec.ClusterID == id && (cii.Spec.WireGuard == nil || cii.Spec.Inside()) &&
				slices.Contains(cii.Spec.Features, mcv1alpha1.FeatureSingleWays)
		})
}

// saidReached are the clusters that others say they reach, by the others' IDs, as the leader hands it on.
func (t *reachTables) saidReached(m membership, r *derive.Reader) map[string][]string {
	out := map[string][]string{}
	for _, ri := range values(derive.List(r, t.base.importsByKind, multicluster.ClusterInfoKind)) {
		info := ri.Spec.ClusterInfo
		if info == nil || !ri.DeletionTimestamp.IsZero() || !m.isFor(ri) {
			continue
		}
		if list, err := requests.ReadReached(ri.Annotations[multicluster.AnnotationReached]); err == nil { // else the leader refuses it
			out[info.ClusterID] = list
		}
	}
	return out
}

// reachedBy are the clusters that this one reaches, for others to read.
func (t *reachTables) reachedBy(r *derive.Reader) []string {
	sights, _ := derive.Get(r, t.sights, here)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(sights)), func(id string) bool { return len(sights[id].Up) == 0 })
}

// away says which endpoints of an import get no requests: those of clusters that are gone, as far as others are ready on the same ports.
// Where there are none it is better to try.
func (t *importTables) away(of derive.Object, sources map[string]exportcheck.Part, r *derive.Reader) func(id string,
	s subset) bool {
	gone, _ := derive.Get(r, t.in.gone, here)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(sources)), func(id string) bool { return gone[id] }) {
		return func(string, subset) bool { return false }
	}
	m, _ := derive.Get(r, t.base.membership, here)
	left := map[string]bool{}
	for id, part := range sources {
		if gone[id] || id == m.ID && countServing(values(derive.List(r, t.services.slicesByService, of))) == 0 {
			continue
		}
		for _, s := range part.Subsets {
			for _, port := range portNames(s) {
				left[port] = left[port] || len(s.Addresses) > 0
			}
		}
	}
	return func(id string, s subset) bool {
		return gone[id] && !slices.ContainsFunc(portNames(s), func(port string) bool { return !left[port] })
	}
}

// portNames are the ports of a subset, as a Service's are found in it.
func portNames(s subset) []string {
	out := []string{}
	for _, p := range s.Ports {
		out = append(out, p.Name+"/"+string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
	}
	if len(out) == 0 { // of a headless Service
		return []string{""}
	}
	return out
}
