package member

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// reachTables are which clusters this one reaches, and the status of its ClusterSet, which has that.
type reachTables struct {
	base     *membershipTables
	clusters *clusterTables
	gateways derive.Readable[derive.Name, []*mcv1alpha1.Gateway] // the active ones
	ways     derive.Readable[derive.Object, []mcv1alpha1.WayStatus]

	refused *derive.Source[derive.Name, string] // why the content of the configuration file is not in effect

	sights     *derive.Table[derive.Name, map[string]sight] // by cluster ID
	gone       *derive.Table[derive.Name, map[string]bool]  // cluster IDs
	clusterSet *derive.Table[derive.Object, *mcv1alpha2.ClusterSet]
}

func newReachTables(k *kinds, clusters *clusterTables, gateways derive.Readable[derive.Name, []*mcv1alpha1.Gateway],
	ways derive.Readable[derive.Object, []mcv1alpha1.WayStatus]) *reachTables {
	t := &reachTables{base: clusters.base, clusters: clusters, gateways: gateways, ways: ways}
	t.refused = derive.NewSource[derive.Name, string](k.Engine, "refused configuration")
	t.refused.Loaded()
	once := derive.KeysOf(t.base.environment)
	t.sights = derive.NewTable(k.Engine, "sights", t.sightsOf, once)
	t.gone = derive.NewTable(k.Engine, "gone", t.goneOf, once)
	t.clusterSet = derive.NewTable(k.Engine, "clusterset", t.clusterSetOf, derive.KeysOf(t.base.clusterSets))
	return t
}

func (t *reachTables) writes(k *kinds) *writeTable {
	return k.table("write-clusterset", t.writeClusterSet, derive.KeysOf(t.clusterSet))
}

// Reasons of the condition Reachable.
const (
	reasonAllWaysUp     = "AllWaysUp"
	reasonSomeWaysDown  = "SomeWaysDown"
	reasonAllWaysDown   = "AllWaysDown"
	reasonWaysUnknown   = "WaysUnknown"
	reasonGone          = "ClusterGone"
	maxWaysInConditions = 10 // that are named in a message
)

// remedyOfDown is what to look at where ways are down.
const remedyOfDown = "Check that these are addresses at which the other cluster's Gateways are reached, that their Nodes run, and that firewalls let tunnels through both ways " +
	"(by default UDP port 6081 for geneve, 4789 for vxlan, 51821 and 51822 for WireGuard; GRE is IP protocol 47); `tombolo get peers` on the Gateways' Nodes shows each way"

// wayLost is what agents report of a way that is down and was up before (pkg/agent/wayreport.go).
const wayLost = "lost"

// waysOf are the ways of a Gateway as its agent reports them: those to clusters that this one knows.
func (t *gatewayTables) waysOf(k derive.Object, r *derive.Reader) ([]mcv1alpha1.WayStatus, []problem.Problem) {
	report, _ := derive.Get(r, t.base.reports, derive.Object{Name: k.Name})
	if k.Namespace != t.base.namespace || len(report.Ways) == 0 {
		return nil, nil
	}
	known := map[string]bool{}
	for _, ci := range values(derive.All(r, t.clusterInfoImports)) {
		known[ci.Spec.ClusterID] = true
	}
	node, _ := derive.Get(r, t.base.nodes, derive.Object{Name: k.Name})
	var out []mcv1alpha1.WayStatus
	for key, state := range report.Ways {
		i := strings.LastIndexByte(key, '/')
		if i < 0 || !known[key[:i]] {
			continue
		}
		if _, err := netip.ParseAddr(key[i+1:]); err != nil {
			continue
		}
		w := mcv1alpha1.WayStatus{ClusterID: key[:i], To: key[i+1:], State: mcv1alpha1.WayDown}
		switch {
		case node == nil || !nodeReady(node):
			w.State = mcv1alpha1.WayUnknown
		case state == "up":
			w.State = mcv1alpha1.WayUp
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b mcv1alpha1.WayStatus) int {
		return cmp.Or(strings.Compare(a.ClusterID, b.ClusterID), strings.Compare(a.To, b.To))
	})
	return out, nil
}

// sight is what this cluster's Gateways find of another cluster: each of their ways to it, in words.
type sight struct {
	Up, Down, Unknown []string
	Lost              bool // one that is down was up before
}

// sightsOf are the sights of clusters to which ways are watched, by their IDs.
func (t *reachTables) sightsOf(_ derive.Name, r *derive.Reader) (map[string]sight, []problem.Problem) {
	gateways, _ := derive.Get(r, t.gateways, here)
	out := map[string]sight{}
	for _, g := range gateways {
		ways, _ := derive.Get(r, t.ways, keyOf(g))
		report, _ := derive.Get(r, t.base.reports, derive.Object{Name: g.Name})
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

// reached are the conditions of other clusters to which ways are watched, by cluster ID.
func (t *reachTables) reached(r *derive.Reader) map[string]condition {
	sights, _ := derive.Get(r, t.sights, here)
	gone, _ := derive.Get(r, t.gone, here)
	clusters := slices.Collect(maps.Keys(sights))
	for id := range gone {
		if _, seen := sights[id]; !seen {
			clusters = append(clusters, id)
		}
	}
	out := map[string]condition{}
	for _, cluster := range clusters {
		up, down, unknown := sights[cluster].Up, sights[cluster].Down, sights[cluster].Unknown
		c := condition{kind: string(mcv1alpha2.ClusterReachable), message: fmt.Sprintf("%d of %d ways are up", len(up), len(up)+len(down)+len(unknown))}
		switch {
		case gone[cluster]:
			c.status, c.reason = corev1.ConditionFalse, reasonGone
			c.message += "; requests to Services go to other clusters that have them"
		case len(down)+len(unknown) == 0:
			c.status, c.reason = corev1.ConditionTrue, reasonAllWaysUp
		case len(up) > 0:
			c.status, c.reason = corev1.ConditionTrue, reasonSomeWaysDown
		case len(unknown) > 0:
			c.status, c.reason = corev1.ConditionUnknown, reasonWaysUnknown
		default:
			c.status, c.reason = corev1.ConditionFalse, reasonAllWaysDown
		}
		c.message += named("; down: ", down) + named("; unknown, since the Node is not Ready: ", unknown)
		if len(down) > 0 {
			c.message += ". " + remedyOfDown
		}
		out[cluster] = c
	}
	return out
}

// named lists some ways after a text; nothing without any.
func named(text string, ways []string) string {
	if len(ways) == 0 {
		return ""
	}
	if more := len(ways) - maxWaysInConditions; more > 0 {
		return fmt.Sprintf("%s%s and %d more", text, strings.Join(ways[:maxWaysInConditions], ", "), more)
	}
	return text + strings.Join(ways, ", ")
}

// setReachable writes the conditions of other clusters behind those of the leader. Clusters that have none any more go.
func setReachable(cs *mcv1alpha2.ClusterSet, before []mcv1alpha2.ClusterStatus, reached map[string]condition) {
	leaderID := ""
	if len(cs.Spec.Leaders) > 0 {
		leaderID = cs.Spec.Leaders[0].ClusterID
	}
	have := map[string][]mcv1alpha2.ClusterCondition{}
	for _, s := range before {
		have[s.ClusterID] = s.Conditions
	}
	var out []mcv1alpha2.ClusterStatus
	for _, s := range cs.Status.ClusterStatuses {
		if s.ClusterID == leaderID {
			s.Conditions = slices.Clone(s.Conditions)
			if c, ok := reached[leaderID]; ok {
				s.Conditions = setClusterCondition(s.Conditions, c)
			} else {
				s.Conditions = slices.DeleteFunc(s.Conditions, func(c mcv1alpha2.ClusterCondition) bool { return c.Type == mcv1alpha2.ClusterReachable })
			}
			out = append(out, s)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(reached)) {
		if id != leaderID {
			out = append(out, mcv1alpha2.ClusterStatus{ClusterID: id, Conditions: setClusterCondition(have[id], reached[id])})
		}
	}
	cs.Status.ClusterStatuses = out
}
