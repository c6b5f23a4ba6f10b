package member

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// clusterTables are other clusters, as this one knows them.
type clusterTables struct {
	base *membershipTables

	clusterInfoImports *derive.Source[derive.Object, *mcv1alpha1.ClusterInfoImport]
	forgotten          *derive.Source[derive.Object, bool] // of clusters that were withdrawn long ago (forgottenAt)

	infos  *derive.Table[derive.Name, []*mcv1alpha1.ClusterInfoImport]
	byName *derive.Index[derive.Object, derive.Name, []*mcv1alpha1.ClusterInfoImport]
}

func newClusterTables(k *kinds, base *membershipTables) *clusterTables {
	t := &clusterTables{base: base}
	t.clusterInfoImports = writtenKind(k, k.cluster, "ClusterInfoImport", "clusterinfoimports",
		clusterInfoImportFacts, version, watch.In(base.namespace))
	t.forgotten = derive.NewSource[derive.Object, bool](k.Engine, "withdrawals that are over")
	t.forgotten.Loaded()
	t.infos = derive.NewTable(k.Engine, "clusterinfos", t.infosOf, derive.KeysOf(base.environment))
	t.byName = derive.NewIndex(t.infos, "name", func(_ derive.Name, l []*mcv1alpha1.ClusterInfoImport) []derive.Object {
		return keysOf(l)
	})
	return t
}

func (t *clusterTables) writes(k *kinds) *writeTable {
	return k.table("write-clusterinfoimports", t.writeClusterInfoImport,
		derive.KeysOf(t.clusterInfoImports), derive.KeysOfIndex(t.byName))
}

const (
	reasonCIDROverlap     = "ServiceCIDROverlap"
	reasonUnreachable     = "EndpointsUnreachable"
	reasonPodCIDRsMissing = "PodCIDRsMissing"
	reasonConfigInvalid   = "ConfigurationInvalid"
)

// infosOf is what the leader's ResourceImports of other clusters' ClusterInfo become
// here. Which cluster has a range is decided here too, since the leader may be another
// implementation: what a ClusterInfoImport has, no other cluster gets. Each Node's agent decides
// for itself what it can still use.
func (t *clusterTables) infosOf(_ derive.Name, r *derive.Reader) ([]*mcv1alpha1.ClusterInfoImport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	if !m.Joined {
		return nil, nil
	}
	var ps faults
	imports := slices.DeleteFunc(values(derive.List(r, t.base.importsByKind, multicluster.ClusterInfoKind)),
		func(ri *mcv1alpha1.ResourceImport) bool {
			return !ri.DeletionTimestamp.IsZero() || !m.isFor(ri)
		})
	slices.SortStableFunc(imports, func(a, b *mcv1alpha1.ResourceImport) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	var candidates []claims.Candidate
	done := map[string]bool{m.ID: true}
	for _, ri := range imports {
		info := ri.Spec.ClusterInfo
		switch {
		case info == nil || info.ClusterID == "":
			ps.add(m.set(), "", reasonImportInvalid, fmt.Sprintf(
				"ResourceImport %s/%s of the leader is ignored: it has no cluster ID in spec.clusterinfo", ri.Namespace, ri.Name))
			continue
		case done[info.ClusterID]:
			continue // the oldest wins every time
		}
		done[info.ClusterID] = true
		c := claims.Candidate{ClusterID: info.ClusterID, Wanted: info}
		if have, ok := derive.Get(r, t.clusterInfoImports,
			derive.Object{Namespace: t.base.namespace, Name: info.ClusterID + multicluster.ClusterInfoSuffix}); ok {
			c.Held = &have.Spec
		}
		candidates = append(candidates, c)
	}
	own, _ := derive.Get(r, t.base.own, here)
	var out []*mcv1alpha1.ClusterInfoImport
	for i, d := range claims.Decide(candidates, t.pinsOf(m, r)) {
		id := candidates[i].ClusterID
		cii := &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Namespace: t.base.namespace,
			Name: id + multicluster.ClusterInfoSuffix}}
		about, prefix := object("ClusterInfoImport", cii.Namespace, cii.Name), "spec."
		if d.Info == nil {
			about, prefix = m.set(), ""
		}
		for _, f := range d.Faults {
			ps.add(about, prefix+f.Field, reasonImportInvalid, fmt.Sprintf("the ClusterInfo of cluster %s is not imported completely: %s", id, f.Message))
		}
		if d.Info == nil {
			continue
		}
		cii.Spec = *d.Info
		out = append(out, cii)
		own.report(cii, &ps)
	}
	return append(out, t.withdrawn(out, m, r)...), ps
}

// pinsOf returns the ranges that this cluster's administrator has pinned to other clusters, in annotations of its own ClusterSet. The leader's
// pins are not known here. Only ranges that are not private need one; what is wrong with an annotation is reported with the range that it
// leaves out.
func (t *clusterTables) pinsOf(m membership, r *derive.Reader) claims.Pins {
	cs, _ := derive.Get(r, t.base.clusterSets, derive.Object{Namespace: t.base.namespace, Name: m.set().Name})
	if cs == nil {
		return nil
	}
	pins, _ := claims.ReadPins(cs.Annotations)
	for id, pin := range pins {
		pins[id] = claims.Pin{Ranges: pin.Ranges, HasRanges: pin.HasRanges}
	}
	return pins
}

// isFor says whether a ResourceImport is meant for this cluster: for all if it names none.
func (m membership) isFor(ri *mcv1alpha1.ResourceImport) bool {
	return len(ri.Spec.ClusterIDs) == 0 || slices.Contains(ri.Spec.ClusterIDs, m.ID)
}

// ownRanges are the addresses of this cluster.
type ownRanges struct {
	Service netip.Prefix // invalid while it is unknown
	Pods    []netip.Prefix
	Nodes   []nodeAddr
}

type nodeAddr struct {
	Node string
	Addr netip.Addr
}

func (t *membershipTables) ownOf(_ derive.Name, r *derive.Reader) (ownRanges, []problem.Problem) {
	env, _ := derive.Get(r, t.environment, here)
	var own ownRanges
	own.Service, _ = netip.ParsePrefix(env.ServiceCIDR)
	pods := slices.Clone(t.config.PodCIDRs)
	for _, node := range values(derive.All(r, t.nodes)) {
		pods = append(pods, node.Spec.PodCIDRs...)
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				own.Nodes = append(own.Nodes, nodeAddr{node.Name, ip})
			}
		}
	}
	for _, text := range pods {
		if p, err := netip.ParsePrefix(text); err == nil {
			own.Pods = append(own.Pods, p)
		}
	}
	return own, nil
}

// report reports ranges of another cluster that this one has, too. The agents ignore them.
func (own ownRanges) report(cii *mcv1alpha1.ClusterInfoImport, ps *faults) {
	about, id := object("ClusterInfoImport", cii.Namespace, cii.Name), cii.Spec.ClusterID
	for i, text := range append([]string{cii.Spec.ServiceCIDR}, cii.Spec.PodCIDRs...) {
		r, err := claims.Range(text)
		if err != nil {
			continue
		}
		ours := own.meets(r)
		switch {
		case ours == "":
		case i == 0:
			ps.add(about, "spec.serviceCIDR", reasonCIDROverlap, fmt.Sprintf(
				"cluster %s cannot be reached: its Service range %s overlaps this cluster's %s; one of the clusters needs another range", id, r, ours))
		default:
			ps.add(about, fmt.Sprintf("spec.podCIDRs[%d]", i-1), reasonCIDROverlap, fmt.Sprintf(
				"Pods of cluster %s cannot be reached: their range %s overlaps this cluster's %s; one of the clusters needs another range", id, r, ours))
		}
	}
}

// meets names what of this cluster a range meets; empty for nothing.
func (own ownRanges) meets(r netip.Prefix) string {
	if own.Service.IsValid() && own.Service.Overlaps(r) {
		return own.Service.String()
	}
	for _, p := range own.Pods {
		if p.Overlaps(r) {
			return "Pod range " + p.String()
		}
	}
	for _, n := range own.Nodes {
		if r.Contains(n.Addr) {
			return "Node " + n.Node + " (" + n.Addr.String() + ")"
		}
	}
	return ""
}

// reach is where gateways forward to: the ranges of all clusters.
type reach struct{ Ranges []netip.Prefix }

// reachableOf has no value where no cluster announces a range: the network between the clusters is taken to forward then.
func (t *importTables) reachableOf(_ derive.Name, r *derive.Reader) (*reach, []problem.Problem) {
	infos, _ := derive.Get(r, t.in.infos, here)
	if len(infos) == 0 {
		return nil, nil
	}
	own, _ := derive.Get(r, t.base.own, here)
	out := &reach{}
	if own.Service.IsValid() {
		out.Ranges = append(out.Ranges, own.Service)
	}
	out.Ranges = append(out.Ranges, own.Pods...)
	for _, cii := range infos {
		out.Ranges = append(out.Ranges, rangesOf(cii)...)
	}
	return out, nil
}

// report reports an imported Service some of whose endpoints are in no range that a cluster
// announces, so that no gateway forwards to them.
func (to *reach) report(service derive.Object, endpoints *mcv1alpha1.ResourceImport, ps *faults) {
	if to == nil {
		return
	}
	for _, s := range endpoints.Spec.Endpoints.Subsets {
		for _, a := range s.Addresses {
			ip, err := netip.ParseAddr(a.IP)
			if err == nil && !slices.ContainsFunc(to.Ranges, func(r netip.Prefix) bool { return r.Contains(ip) }) {
				ps.add(object("Service", service.Namespace, service.Name), "", reasonUnreachable, fmt.Sprintf(
					"endpoint %s is in no range that a cluster of the ClusterSet announces, so gateways do not forward to it: set podCIDRs in the member controller's configuration of the cluster that exports it, unless its Pods are in a network that all clusters reach", ip))
				return
			}
		}
	}
}

// configured reports what the configuration asks for and cannot have its effect.
func (t *reachTables) configured(m membership, r *derive.Reader) []problem.Problem {
	var ps faults
	if why, ok := derive.Get(r, t.refused, here); ok {
		ps.add(m.set(), "", reasonConfigInvalid, "the controller goes on with the configuration that it had: "+why+"; correct it in ConfigMap antrea-mc-controller-config: it is taken over without a restart")
	}
	if t.base.config.EndpointIPType == config.EndpointIPTypePodIP && len(t.base.config.PodCIDRs) == 0 {
		ps.add(m.set(), "", reasonPodCIDRsMissing,
			"endpointIPType PodIP exports Pods' addresses, which other clusters cannot reach through gateways without a Pod range: set podCIDRs in the controller's configuration, and multicluster.enablePodToPodConnectivity in every cluster's antrea-agent.conf")
	}
	return ps
}

// ownInfoVerdict passes on what the leader says against this cluster's ClusterInfo.
func (t *infoTables) ownInfoVerdict(m membership, name derive.Object, r *derive.Reader) []problem.Problem {
	var ps faults
	re, ok := derive.Get(r, t.base.resourceExports, name)
	if !ok || re.Spec.Kind != multicluster.ClusterInfoKind || !re.DeletionTimestamp.IsZero() {
		return nil
	}
	for _, c := range re.Status.Conditions {
		if refuses(c) {
			ps.add(m.set(), "", cmp.Or(c.Reason, reasonConvergeFailure), fmt.Sprintf(
				"the leader refuses ResourceExport %s/%s, by which other clusters reach this one: %s", re.Namespace, re.Name, c.Message))
		}
	}
	return ps
}
