package clusters

import (
	"maps"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A cluster that is gone gets no requests if other clusters have ready endpoints. In the EndpointSlices its endpoints
// are then not ready. The condition Reachable in the ClusterSet's status records that it is gone. A new Gateway has
// never had a way up to the cluster, so it cannot find out that the cluster was lost.

// Reach has the clusters that this one reaches, and the status of the ClusterSet, which shows them.
type Reach struct {
	base     *membership.Tables
	clusters *Tables
	gateways derive.Readable[derive.Name, []*mcv1alpha1.Gateway] // the active ones
	ways     derive.Readable[derive.Object, []mcv1alpha1.WayStatus]

	Refused *derive.Source[derive.Name, string] // why the content of the configuration file is not in effect

	Sights     *derive.Table[derive.Name, map[string]sight] // by cluster ID
	Gone       *derive.Table[derive.Name, map[string]bool]  // cluster IDs
	ClusterSet *derive.Table[derive.Object, *mcv1alpha2.ClusterSet]
}

// NewReach adds the tables of reached clusters. Its inputs are the active Gateways and their ways.
func NewReach(k *writes.Kinds, clusters *Tables, gateways derive.Readable[derive.Name, []*mcv1alpha1.Gateway],
	ways derive.Readable[derive.Object, []mcv1alpha1.WayStatus]) *Reach {
	t := &Reach{base: clusters.base, clusters: clusters, gateways: gateways, ways: ways}
	t.Refused = derive.NewSource[derive.Name, string](k.Engine, "refused configuration")
	t.Refused.Loaded()
	once := derive.KeysOf(t.base.Environment)
	t.Sights = derive.NewTable(k.Engine, "sights", t.sightsOf, once)
	t.Gone = derive.NewTable(k.Engine, "gone", t.goneOf, once)
	t.ClusterSet = derive.NewTable(k.Engine, "clusterset", t.clusterSetOf, derive.KeysOf(t.base.ClusterSets))
	return t
}

func (t *Reach) Writes(k *writes.Kinds) *writes.Table {
	return k.Table("write-clusterset", t.writeClusterSet, derive.KeysOf(t.ClusterSet))
}

// wayLost is the agents' report of a way that is down and was up before (pkg/agent/wayreport.go).
const wayLost = "lost"

// sight is the state of another cluster as this cluster's Gateways see it: their ways to it by state, as text.
type sight struct {
	Up, Down, Unknown []string
	Lost              bool // a way that is down was up before
}

// sightsOf are the sights of clusters to which ways are watched, by their IDs.
func (t *Reach) sightsOf(_ derive.Name, r *derive.Reader) (map[string]sight, []problem.Problem) {
	gateways, _ := derive.Get(r, t.gateways, membership.Here)
	out := map[string]sight{}
	for _, g := range gateways {
		ways, _ := derive.Get(r, t.ways, derive.ObjectOf(g))
		report, _ := derive.Get(r, t.base.Reports, derive.Object{Name: g.Name})
		for _, w := range ways {
			s, text := out[w.ClusterID], "from Gateway "+g.Name+" to "+w.To
			switch w.State {
			case mcv1alpha1.WayUp:
				s.Up = append(s.Up, text)
			case mcv1alpha1.WayUnknown:
				s.Unknown = append(s.Unknown, text)
			default:
				s.Down, s.Lost = append(s.Down, text), s.Lost || report.Ways[w.ClusterID+"/"+w.To] == wayLost
			}
			out[w.ClusterID] = s
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// goneOf are the clusters that are gone.
func (t *Reach) goneOf(_ derive.Name, r *derive.Reader) (map[string]bool, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	seen, _ := derive.Get(r, t.Sights, membership.Here)
	was := t.wasGone(m, r)
	sights, lost := map[string]requests.Sight{}, map[string]bool{}
	for id, s := range seen {
		switch {
		case len(s.Up) > 0:
			sights[id] = requests.Reached
		case was[id] || m.Joined && s.Lost && len(s.Unknown) == 0: // before the leader is read, others may report otherwise
			sights[id], lost[id] = requests.Lost, true
		}
	}
	for id := range was {
		if _, there := seen[id]; !there && t.watched(id, r) {
			sights[id], lost[id] = requests.Lost, true
		}
	}
	if len(lost) == 0 { // then the reports of other clusters change nothing
		return nil, nil
	}
	reports := t.reportsOf(m, r)
	connection, _ := derive.Get(r, t.base.Connection, membership.Here)
	out := map[string]bool{}
	for id := range lost {
		list := reports
		if m.Area != nil && id == m.Area.LeaderID && connection.Error != "" {
			list = nil // the leader is lost with it, and with the leader the reports
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

// wasGone returns the clusters that are gone according to the ClusterSet's status.
func (t *Reach) wasGone(m membership.Membership, r *derive.Reader) map[string]bool {
	set, ok := derive.Get(r, t.base.ClusterSets, m.Set)
	if !ok {
		return nil
	}
	out := map[string]bool{}
	for _, s := range set.Status.ClusterStatuses {
		if slices.ContainsFunc(s.Conditions, func(c mcv1alpha2.ClusterCondition) bool {
			return c.Type == mcv1alpha2.ClusterReachable && c.Reason == reasonGone.String()
		}) {
			out[s.ClusterID] = true
		}
	}
	return out
}

// watched reports whether Gateways watch their ways to a cluster. If they have not reported the ways yet, they do so
// soon. Gateways watch them if the other cluster announces that it watches single ways. They do not if it has one
// address inside WireGuard for all its Gateways.
func (t *Reach) watched(id string, r *derive.Reader) bool {
	return slices.ContainsFunc(derive.Values(derive.All(r, t.clusters.ClusterInfoImports)),
		func(cii *mcv1alpha1.ClusterInfoImport) bool {
			if _, withdrawn := cii.Annotations[multicluster.AnnotationWithdrawn]; withdrawn && cii.Spec.ClusterID == id {
				return true // its ways were watched, or it was not gone; it has not come back
			}
			return cii.Spec.ClusterID == id && (cii.Spec.WireGuard == nil || cii.Spec.Inside()) &&
				slices.Contains(cii.Spec.Features, mcv1alpha1.FeatureSingleWays)
		})
}

// reportsOf returns, for each other cluster by its ID, the clusters that it reaches. The leader passes these reports
// on.
func (t *Reach) reportsOf(m membership.Membership, r *derive.Reader) map[string][]string {
	out := map[string][]string{}
	for _, ri := range derive.Values(derive.List(r, t.base.ImportsByKind, multicluster.ClusterInfoKind)) {
		info := ri.Spec.ClusterInfo
		if info == nil || !ri.DeletionTimestamp.IsZero() || !m.IsFor(ri) {
			continue
		}
		// else the leader refuses it
		if list, err := requests.ReadReached(ri.Annotations[multicluster.AnnotationReached]); err == nil {
			out[info.ClusterID] = list
		}
	}
	return out
}

// ReachedBy are the clusters that this one reaches, for others to read.
func (t *Reach) ReachedBy(r *derive.Reader) []string {
	sights, _ := derive.Get(r, t.Sights, membership.Here)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(sights)), func(id string) bool { return len(sights[id].Up) == 0 })
}
