package member

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/exports"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 1, "seed of the random walk")
	walkSteps = flag.Int("walk.steps", 600, "steps of the random walk")
)

// put replaces or adds an object, or removes it when there is a coin for that.
func put[T metav1.Object](r *rand.Rand, list []T, o T) []T {
	list = slices.DeleteFunc(slices.Clone(list), func(x T) bool { return derive.ObjectOf(x) == derive.ObjectOf(o) })
	if r == nil || r.IntN(4) > 0 {
		list = append(list, o)
	}
	return list
}

// written is a list of objects after a write.
func written[T client.Object](list []T, w writes.Write) []T {
	o, ok := w.Object.(T)
	if !ok {
		return list
	}
	if w.Verb == writes.Delete {
		return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return derive.ObjectOf(x) == derive.ObjectOf(o) })
	}
	return put(nil, list, o)
}

// applied counts the writes. Each write makes a new version.
var applied int

// apply is a view after a write that an API server has taken.
func apply(v View, w writes.Write) View {
	applied++
	w.Object = w.Object.DeepCopyObject().(client.Object)
	w.Object.SetResourceVersion(fmt.Sprint(applied))
	if s, ok := w.Object.(*corev1.Service); ok && s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = "10.97.9.9"
	}
	v.ClusterSets, v.Gateways = written(v.ClusterSets, w), written(v.Gateways, w)
	v.ClusterInfoImports, v.Services = written(v.ClusterInfoImports, w), written(v.Services, w)
	v.Endpoints, v.ServiceImports = written(v.Endpoints, w), written(v.ServiceImports, w)
	v.EndpointSlices = written(v.EndpointSlices, w)
	v.ServiceExports, v.Leader.ResourceExports = written(v.ServiceExports, w), written(v.Leader.ResourceExports, w)
	v.LabelIdentities, v.PodAddressImports = written(v.LabelIdentities, w), written(v.PodAddressImports, w)
	v.NetworkImports = written(v.NetworkImports, w)
	v.VirtualNetworks, v.Subnets = written(v.VirtualNetworks, w), written(v.Subnets, w)
	v.ACNPs, v.CNPs, v.NetworkPolicies = written(v.ACNPs, w), written(v.CNPs, w), written(v.NetworkPolicies, w)
	return v
}

// step changes something of a view.
func step(r *rand.Rand, v View, c Change) View {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	deleted := func(o metav1.Object) {
		if r.IntN(8) == 0 {
			o.SetDeletionTimestamp(&metav1.Time{Time: now})
		}
	}
	ns, name := pick("default", "a", "a-b"), pick("web", "db", "b-c", "c")
	mark := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		if r.IntN(2) == 0 {
			m.Annotations = marked(m.Namespace, m.Name).Annotations
		}
		return m
	}
	switch r.IntN(38) {
	case 36, 37:
		v.Leader.TenantNetworks = put(r, v.Leader.TenantNetworks, copyOfNamespace(ns))
	case 31, 32:
		n := requestOf(pick("one", "two", "three"), pick("east", "east", "east", "west"), ns, pick("one", "two", "x/y"))
		n.Status.Request.V4Subnet = requestedSubnet(pick("one", "two"), pick("10.50.0.0/24", "10.50.0.0/24", "10.51.0.0/24"))
		if r.IntN(2) == 0 {
			n.Status.Request.V6Subnet = requestedSubnet("three", pick("fd50::/64", "fd51::/64", "x"))
		}
		deleted(n)
		v.Leader.TenantNetworks = put(r, v.Leader.TenantNetworks, n)
	case 33:
		vn := ownNetwork(ns, pick("one", "two", "three"), pick("one", "two"), pick("", "three"))
		vn.Labels["app.kubernetes.io/managed-by"] = pick("antrea-mc-controller", "antrea-mc-controller", "admin")
		vn.Spec.PodNetwork = r.IntN(2) == 0
		deleted(vn)
		v.VirtualNetworks = put(r, v.VirtualNetworks, vn)
	case 34, 35:
		sn := ownSubnet(ns, pick("one", "two", "three"), pick("10.50.0.0/24", "10.51.0.0/24"))
		sn.Labels["app.kubernetes.io/managed-by"] = pick("antrea-mc-controller", "antrea-mc-controller", "admin")
		deleted(sn)
		v.Subnets = put(r, v.Subnets, sn)
	case 28, 29:
		vn := subnetNetwork(ns, pick("one", "two"), r.IntN(4) > 0, map[string]string{"net": pick("x", "y")})
		deleted(vn)
		v.VirtualNetworks = put(r, v.VirtualNetworks, vn)
	case 30:
		v.SubnetLeases = put(r, v.SubnetLeases, leaseOf(pick("s1", "s2", "s3"), ns, pick("one", "two"),
			pick("10.50.0.0/24", "10.51.0.0/24", "fd50::/64", "x"), r.IntN(3) == 0))
	case 26:
		n := tenantNetwork(pick("one", "two"), int32(r.IntN(3)), pick("east", "west", "east"), pick("east", "south"))
		n.Spec.Members[0].NamespaceSelector.MatchLabels = map[string]string{pick("a", "not/a/key"): "b"}
		if r.IntN(2) == 0 {
			n.Status.Joined = []tombolov1alpha1.JoinedNetwork{{Name: "x", Number: 7, ClusterIDs: []string{"west"}}}
		}
		deleted(n)
		v.Leader.TenantNetworks = put(r, v.Leader.TenantNetworks, n)
	case 27:
		tni := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: meta("", pick("one", "two", "three"))}
		tni.Labels = map[string]string{"app.kubernetes.io/managed-by": pick("antrea-mc-controller", "admin")}
		deleted(tni)
		v.NetworkImports = put(r, v.NetworkImports, tni)
	case 24:
		ri := addressImport(pick("west", "south", "east"),
			pick("web", "db", "x")+" "+pick("10.20.0.5", "10.20.0.6", "10.21.0.5", "10.20.9.5"))
		deleted(ri)
		v.Leader.ResourceImports = put(r, v.Leader.ResourceImports, ri)
	case 25:
		a := &mcv1alpha1.PodAddressImport{ObjectMeta: meta("kube-system", pick("west-podaddresses-10.20.0.0", "x"))}
		v.PodAddressImports = put(r, v.PodAddressImports, a)
	case 21:
		ri := policyImport(pick("AntreaClusterNetworkPolicy", "NetworkPolicy", "ClusterNetworkPolicy"),
			pick("default", "a"), pick("one", "two"),
			pick(acnpSpec, acnpSpec, npSpec, cnpSpec, `{"priority":1}`))
		deleted(ri)
		v.Leader.ResourceImports = put(r, v.Leader.ResourceImports, ri)
	case 22:
		v.Tiers = put(r, v.Tiers, &crdv1beta1.Tier{ObjectMeta: meta("", "special")})
	case 23:
		m := meta("", "antrea-mc-"+pick("one", "two"))
		if r.IntN(2) == 0 {
			m.Annotations = map[string]string{"multicluster.antrea.io/imported-acnp": "true"}
		}
		v.ACNPs = put(r, v.ACNPs, &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: m, Spec: crdv1beta1.PolicySpec{Priority: 7}})
		m.Namespace = "default"
		v.NetworkPolicies = put(r, v.NetworkPolicies, &networkingv1.NetworkPolicy{ObjectMeta: m})
	case 0, 1, 2: // all desired writes are done
		if list := append(slices.Clone(c.Local), c.Leader...); len(list) > 0 {
			return apply(v, list[r.IntN(len(list))])
		}
	case 3:
		s := webService()
		s.ObjectMeta = mark(meta(ns, pick("", "antrea-mc-")+name))
		s.Spec.ClusterIP, s.Spec.ClusterIPs = pick("10.97.0.9", "None", ""), nil
		s.Spec.Type = corev1.ServiceType(pick("ClusterIP", "ClusterIP", "ExternalName"))
		deleted(s)
		v.Services = put(r, v.Services, s)
	case 4:
		e := webSlice(r.IntN(2) == 0, r.IntN(2) == 0)
		e.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: name + pick("-1", "-2"),
			Labels: map[string]string{discoveryv1.LabelServiceName: name}}
		deleted(e)
		v.EndpointSlices = put(r, v.EndpointSlices, e)
	case 5, 6:
		se := &mcsv1alpha1.ServiceExport{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Generation: int64(r.IntN(3))}}
		deleted(se)
		v.ServiceExports = put(r, v.ServiceExports, se)
	case 7:
		v.ServiceImports = put(r, v.ServiceImports, &mcsv1alpha1.ServiceImport{ObjectMeta: mark(meta(ns, name))})
	case 8:
		v.Endpoints = put(r, v.Endpoints, &services.Endpoints{ObjectMeta: mark(meta(ns, "antrea-mc-"+name))})
	case 9:
		n := &corev1.Namespace{ObjectMeta: meta("", ns)}
		n.UID = types.UID(pick("uid-", "uid-", "other-") + ns)
		n.Labels = map[string]string{"team": pick("x", "y"), "core.juniper.net/isolated-namespace": pick("true", "false")}
		v.Namespaces = put(r, v.Namespaces, n)
	case 10:
		n := node(pick("node-1", "node-2", "node-3"), pick("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"))
		if r.IntN(5) == 0 {
			n.Annotations = nil
		}
		if r.IntN(3) == 0 {
			notReady(n)
		}
		n.Spec.PodCIDRs = []string{pick("10.20.0.0/24", "10.98.3.0/24", "10.10.0.0/16", "10.10.0.0/16")}
		v.Nodes = put(r, v.Nodes, n)
	case 11:
		g := &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", pick("node-1", "node-2", "node-3"))}
		g.CreationTimestamp = metav1.Time{Time: now.Add(time.Duration(r.IntN(3)) * time.Second)}
		if key := pick("", "k", "other"); key != "" {
			g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: key}
		}
		if kept := pick("", "10.11.0.0/16", "10.30.0.0/16"); kept != "" {
			g.Annotations = map[string]string{multicluster.AnnotationKeptPods: kept}
		}
		deleted(g)
		v.Gateways = put(r, v.Gateways, g)
		report := &tombolov1alpha1.NodePolicyReport{ObjectMeta: meta("", pick("node-1", "node-2", "node-3"))}
		if r.IntN(3) > 0 {
			report.Features = map[string]string{
				pick(mcv1alpha1.FeaturePreserveClientIP, mcv1alpha1.FeatureIPv6): "", mcv1alpha1.FeatureSingleWays: ""}
		}
		for range r.IntN(3) {
			if report.Ways == nil {
				report.Ways = map[string]string{}
			}
			report.Ways[pick("west/192.0.2.1", "south/192.0.2.3", "west/192.0.2.4", "nobody", "west/x")] = pick("up",
				"down", "lost")
		}
		v.Reports = put(r, v.Reports, report)
	case 12, 13:
		ri := importOf(ns, name)
		switch r.IntN(6) {
		case 0, 1:
			ri = endpointsOf(ns, name, pick("10.98.0.7", "127.0.0.1", "10.30.0.1"))
			ri.Annotations = map[string]string{multicluster.AnnotationSources: pick("", `[{"cluster":"west","subsets":1}]`,
				`[{"cluster":"south","subsets":1}]`, `[{"cluster":"a b"}]`)}
		case 4:
			ri.Spec.ServiceImport.Spec.Type = mcsv1alpha1.Headless
			ri.Annotations = map[string]string{multicluster.AnnotationExported: pick("", `{"labels":{"a":"b"}}`, "x")}
		case 2:
			ri = clusterInfoOf(pick("west", "south", "east"), pick("10.98.0.0/16", "10.97.1.0/24", "10.99.0.0/16", "x"),
				pick("192.0.2.1", "192.0.2.2"))
			ri.CreationTimestamp = metav1.Time{Time: now.Add(time.Duration(r.IntN(3)) * time.Second)}
			ri.Annotations = map[string]string{multicluster.AnnotationReached: pick("", "east", "south,east", "west")}
			ri.Spec.ClusterInfo.PodCIDRs = []string{pick("10.20.0.0/16", "10.21.0.0/16", "10.20.0.0/24")}
			for range r.IntN(3) {
				ri.Spec.ClusterInfo.GatewayInfos = append(ri.Spec.ClusterInfo.GatewayInfos,
					mcv1alpha1.GatewayInfo{GatewayIP: pick("192.0.2.1", "192.0.2.3", "192.0.2.4")})
			}
			ri.Spec.ClusterInfo.Features = []string{
				pick(mcv1alpha1.FeatureActiveGateways, "Tomorrow", "not one", mcv1alpha1.FeaturePreserveClientIP)}
		case 3:
			ri.Spec.ClusterIDs = []string{pick("east", "west")}
		}
		deleted(ri)
		v.Leader.ResourceImports = put(r, v.Leader.ResourceImports, ri)
	case 14:
		re := exports.ResourceExport(membership.Membership{ID: "east", Common: "antrea-multicluster"},
			derive.Object{Namespace: ns, Name: name}, pick("Service", "Endpoints"))
		if r.IntN(2) == 0 {
			re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{
				{Type: mcv1alpha1.ResourceExportFailure, Status: corev1.ConditionFalse, Message: pick("x", "y")}}
		}
		deleted(re)
		v.Leader.ResourceExports = put(r, v.Leader.ResourceExports, re)
	case 15:
		joined := joinedView().Leader
		v.Leader.Area, v.Leader.Synced, v.Leader.Announcement = joined.Area, r.IntN(4) > 0, joined.Announcement
		v.Leader.Announcement.Error = pick("", "", "refused")
	case 16:
		v.Secrets = put(r, v.Secrets, joinedView().Secrets[0])
		v.ServiceCIDR = pick("10.97.0.0/16", "10.97.0.0/16", "")
		ranges := []string{"10.97.0.0/16", "10.97.0.0/16,fd00::/112", pick("10.98.0.0/16", "10.99.0.0/24")}
		v.ServiceCIDRs = serviceCIDRs(ranges[:r.IntN(4)]...)
	case 18:
		p := pod(ns, name+pick("-1", "-2"), pick("web", "db", "x"))
		p.Status.Phase = corev1.PodPhase(pick("Running", "Running", "Running", "Succeeded"))
		p.Status.PodIPs = []corev1.PodIP{{IP: pick("10.10.3.5", "10.10.3.6", "10.10.4.5", "10.10.5.5", "10.11.3.5")}}
		p.Spec.HostNetwork = r.IntN(5) == 0
		p.Spec.NodeName = pick("node-1", "node-2")
		p.CreationTimestamp = metav1.Time{Time: now.Add(time.Duration(r.IntN(3)) * time.Second)}
		v.Pods = put(r, v.Pods, p)
	case 19:
		ri := labelImport(pick("web", "db", "x", "y"), uint32(r.IntN(4)))
		ri.CreationTimestamp = metav1.Time{Time: now.Add(time.Duration(r.IntN(3)) * time.Second)}
		deleted(ri)
		v.Leader.ResourceImports = put(r, v.Leader.ResourceImports, ri)
	case 20:
		l := &mcv1alpha1.LabelIdentity{ObjectMeta: meta("", labelImport(pick("web", "db", "z"), 0).Name)}
		l.Spec.ID = uint32(r.IntN(4))
		v.LabelIdentities = put(r, v.LabelIdentities, l)
	case 17:
		cs := joinedView().ClusterSets[0].DeepCopy()
		cs.Name = pick("set", "set", "set", "other")
		if r.IntN(3) > 0 {
			cs.Annotations = map[string]string{multicluster.AnnotationCentral: "true"}
		}
		cs.CreationTimestamp = metav1.Time{Time: now.Add(time.Duration(r.IntN(2)) * time.Second)}
		deleted(cs)
		v.ClusterSets = put(r, v.ClusterSets, cs)
	}
	return v
}

// rows returns all rows that tables derive.
func (t *tables) rows() map[string]any {
	out := map[string]any{
		"membership": t.base.Membership.All(), "clusterset": t.reach.ClusterSet.All(), "gateways": t.gateways.Active.All(),
		"infos": t.clusters.Infos.All(), "imports": t.imports.Imports.All(),
		"exportable": t.exports.Exportable.All(), "holders": t.exports.Holders.All(), "exports": t.exports.Exports.All(),
		"validity": t.exports.Validity.All(), "ownInfo": t.info.Exports.All(),
		"leader": t.leader.All(), "problems": t.Problems(), "label exports": t.labels.LabelExports.All(),
		"labels":          t.labels.Labels.All(),
		"address exports": derive.Values(t.addresses.AddressExports.All()), "addresses": t.addresses.Addresses.All(),
		"networks": t.tenants.Imports.All(), "requested": t.tenants.Requested.All(),
		"replicas": t.policies.Replicas.All(), "policy report": t.policies.Report.All(),
		"gateway status": t.gateways.Status.All(), "sights": t.reach.Sights.All(), "gone": t.reach.Gone.All(),
	}
	for i, table := range t.local {
		out[fmt.Sprint("local ", i)] = table.All()
	}
	return out
}

// TestWalkMember changes a state at random. After each step it compares the tables with tables made from nothing.
//
//tombolo:unraced
func TestWalkMember(t *testing.T) {
	r := rand.New(rand.NewPCG(*walkSeed, 0))
	v := exportingView()
	v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db"),
		endpointsOf("default", "db", "10.98.0.7")}
	v.Config.EnableStretchedNetworkPolicy, v.Config.PublishPodAddresses, v.Config.PodCIDRs = true,
		true, []string{"10.10.0.0/16"}
	v.ClusterSets[0].Annotations = map[string]string{multicluster.AnnotationCentral: "true"}
	make := func() *tables {
		t := newTables(v.Namespace, v.Config)
		t.labels.Most, t.addresses.Most = 4, 2
		t.load(v)
		t.Pass()
		return t
	}
	have := make()
	wrote, requested := 0, 0
	for n := range *walkSteps {
		c := have.change()
		wrote += len(c.Local) + len(c.Leader)
		for _, w := range c.Local {
			if w.Kind == "VirtualNetwork" || w.Kind == "Subnet" {
				requested++
			}
		}
		before := v
		v = step(r, v, c)
		have.update(before, v)
		have.Pass()
		want := make()
		if diff := cmp.Diff(want.rows(), have.rows()); diff != "" {
			t.Fatalf("-walk.seed %d, step %d: tables from nothing and those that followed differ (-want +have):\n%s",
				*walkSeed, n, diff)
		}
		for _, p := range have.Problems() {
			if p.Reason.String() == "EvaluationFailed" {
				t.Fatalf("-walk.seed %d, step %d: %v", *walkSeed, n, p)
			}
		}
	}
	if wrote < *walkSteps/2 || requested == 0 {
		t.Errorf("%d writes in %d steps, %d for requests: the walk shows nothing", wrote, *walkSteps, requested)
	}
}

// TestEventsWithoutFacts evaluates nothing for heartbeats, and nothing for fields that no table reads.
func TestEventsWithoutFacts(t *testing.T) {
	v := exportingView()
	withOwnExports(&v)
	v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1")}
	v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db"),
		endpointsOf("default", "db", "10.98.0.7")}
	tables := newTables(v.Namespace, v.Config)
	tables.load(v)
	tables.Pass()
	evaluated := func() uint64 {
		sum := uint64(0)
		_, _, all := tables.Stats()
		for _, s := range all {
			sum += s.Evaluated
		}
		return sum
	}
	for _, row := range []struct {
		name   string
		change func(*View)
	}{
		{"heartbeat of a member", func(v *View) {
			v.Leader.Announcement = Announcement{Tried: now.Add(9 * time.Second), Done: now.Add(9 * time.Second), Found: true}
		}},
		{"heartbeat of a Node", func(v *View) {
			n := v.Nodes[0].DeepCopy()
			n.Status.Conditions[0].LastHeartbeatTime, n.ResourceVersion = metav1.Time{Time: now}, "9"
			v.Nodes = []*corev1.Node{n}
		}},
		{"an annotation of a Service that nobody reads", func(v *View) {
			s := v.Services[0].DeepCopy()
			s.Annotations, s.ResourceVersion = map[string]string{"x": "y"}, "9"
			v.Services = []*corev1.Service{s}
		}},
		{"another endpoint of a Service that is exported by its ClusterIP, which is not ready", func(v *View) {
			v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(true, false, false)}
		}},
		{"the leader has taken an export", func(v *View) {
			re := v.Leader.ResourceExports[0].DeepCopy()
			re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{
				{Type: mcv1alpha1.ResourceExportSucceeded, Status: corev1.ConditionTrue}}
			re.ResourceVersion = "9"
			v.Leader.ResourceExports = put(nil, v.Leader.ResourceExports, re)
		}},
		{"the leader counts exporters of an import", func(v *View) {
			ri := v.Leader.ResourceImports[0].DeepCopy()
			ri.Status.ClusterStatuses = []mcv1alpha1.ResourceImportClusterStatus{{ClusterID: "west"}}
			v.Leader.ResourceImports = put(nil, v.Leader.ResourceImports, ri)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			before, old := evaluated(), v
			row.change(&v)
			tables.update(old, v)
			tables.Pass()
			if after := evaluated(); after != before {
				t.Errorf("%d keys were evaluated", after-before)
			}
		})
	}
	old := v
	v.ClusterSets = []*mcv1alpha2.ClusterSet{}
	tables.update(old, v)
	if tables.Pass(); evaluated() == 0 {
		t.Error("evaluations are not counted")
	}
}

// TestOneExportEvaluatesItsOwnKeys counts the evaluations for one change among many exports.
func TestOneExportEvaluatesItsOwnKeys(t *testing.T) {
	v := joinedView()
	for i := range 500 {
		name := fmt.Sprintf("web-%d", i)
		s, e := webService(), webSlice(true)
		s.Name, e.Name, e.Labels = name, name+"-1", map[string]string{discoveryv1.LabelServiceName: name}
		v.Services, v.EndpointSlices = append(v.Services, s), append(v.EndpointSlices, e)
		v.ServiceExports = append(v.ServiceExports, &mcsv1alpha1.ServiceExport{ObjectMeta: meta("default", name)})
	}
	withOwnExports(&v)
	last := v.ServiceExports[499]
	v.ServiceExports = v.ServiceExports[:499]
	tables := newTables(v.Namespace, v.Config)
	tables.load(v)
	tables.Pass()
	tables.Cluster.Set(last)
	tables.Pass()
	if pass, _, _ := tables.Stats(); pass.Evaluated == 0 || pass.Evaluated > 12 {
		t.Errorf("%d keys were evaluated, want the few of one export", pass.Evaluated)
	}
}
