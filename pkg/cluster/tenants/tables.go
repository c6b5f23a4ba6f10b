// Package tenants writes the state of VirtualNetworks, VirtualNetworkRouters and Subnets, and gives blocks of Subnets
// to Nodes. It runs once in a cluster.
//
// Agents act on the objects. The controller derives the same networks from them (pkg/tenant), and writes the parts that
// agents do not act on into the objects' observations. Nodes claim addresses in NodeNetworkReports, and get blocks in
// SubnetLeases.
//
//	API server: objects of pkg/tenant, nodes, reports, configuration, other clusters ─► networks ─► steps ─► API server
package tenants

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/unserved"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// facts are the written status of an object.
type facts[S comparable] struct {
	UID  types.UID
	Have S
}

// step is the desired status of an object.
type step[S comparable] struct {
	UID  types.UID
	Want S
	Due  bool // the object has another status
}

type (
	networkStep = step[contrailv4.VirtualNetworkStatus]
	routerStep  = step[contrailv4.Status]
)

// tables are the statuses that VirtualNetworks and VirtualNetworkRouters should have.
type tables struct {
	engine  *derive.Engine
	kinds   *watch.Kinds
	member  *watch.Kinds // the member controller's ConfigMap: a kind watches objects of one name
	tenants *tenant.Tables

	agents   *derive.Source[derive.Object, bool] // whether they have the feature gate
	nodes    *derive.Source[derive.Object, versions]
	networks *derive.Source[derive.Object, facts[contrailv4.VirtualNetworkStatus]]
	routers  *derive.Source[derive.Object, facts[contrailv4.Status]]

	subnets    *subnetTables
	namespaces *derive.Source[derive.Object, tenant.NamespaceFacts]

	networkFacts    *derive.Source[derive.Object, tenant.VirtualNetworkFacts]
	definitions     *derive.Source[derive.Object, *tenant.DefinitionFacts]
	definitionSteps *derive.Table[derive.Object, definitionStep]

	cluster      *derive.Table[derive.Name, state]
	networkSteps *derive.Table[derive.Object, networkStep]
	routerSteps  *derive.Table[derive.Object, routerStep]
}

// state is the part of the cluster's state that all objects depend on.
type state struct {
	On       bool // the feature gate
	Families string
}

const self derive.Name = "self"

// memberConfig is the ConfigMap of the member controller.
const memberConfig = "antrea-mc-controller-config"

// newTables returns the tables. namespace is the Namespace of the agents.
func newTables(namespace string) *tables {
	t := &tables{engine: derive.New()}
	k := watch.NewKinds(t.engine)
	t.kinds = k
	agents := []watch.Option{watch.In(namespace), watch.Named(unserved.AgentsConfig)}
	t.agents = watch.NewSource(k, "agents-configuration", func(m *corev1.ConfigMap) bool {
		return unserved.ServedBy(m).Tenants
	}, agents...)
	t.nodes = watch.NewSource(k, "nodes", versionsOf)
	allowed := watch.IfAllowed()
	t.networks = watch.NewSource(k, "virtualnetwork-status",
		func(n *contrailv4.VirtualNetwork) facts[contrailv4.VirtualNetworkStatus] {
			return facts[contrailv4.VirtualNetworkStatus]{n.UID, n.Status}
		}, allowed)
	t.routers = watch.NewSource(k, "virtualnetworkrouter-status",
		func(v *contrailv4.VirtualNetworkRouter) facts[contrailv4.Status] {
			return facts[contrailv4.Status]{v.UID, v.Status}
		}, allowed)
	t.member = watch.NewKinds(t.engine)
	s := newSubnetSources(k, t.member, agents, []watch.Option{watch.In(namespace), watch.Named(memberConfig),
		watch.IfAllowed()})
	t.namespaces = watch.NewSource(k, "namespaces", tenant.NamespaceFactsOf)
	t.networkFacts = watch.NewSource(k, "virtualnetworks", tenant.VirtualNetworkFactsOf)
	t.definitions = watch.NewSource(k, "network-attachment-definitions", tenant.DefinitionFactsOf, allowed)
	t.tenants = tenant.NewCluster(t.engine, tenant.Objects{
		Namespaces: t.namespaces,
		Labels:     watch.NewSource(k, "namespace-labels", tenant.NamespaceLabels),
		Networks:   t.networkFacts,
		Routers:    watch.NewSource(k, "virtualnetworkrouters", tenant.RouterFactsOf),
		Imports: watch.NewSource(k, "tenantnetworkimports", tenant.ClusterSetFactsOf, watch.Optional(),
			watch.IfAllowed()),
		Subnets: s.facts, Leases: s.leases, Reserved: s.reserved, Allowed: s.allowed,
	})
	one := derive.NewSource[derive.Name, bool](t.engine, "one")
	one.Set(self, true)
	one.Loaded()
	t.cluster = derive.NewTable(t.engine, "cluster", t.state, derive.KeysOf(one))
	t.networkSteps = derive.NewTable(t.engine, "network-steps", t.networkStep, derive.KeysOf(t.networks))
	t.routerSteps = derive.NewTable(t.engine, "router-steps", t.routerStep, derive.KeysOf(t.routers))
	t.subnets = newSubnetTables(t.engine, s, t.tenants, t.cluster, t.inCopy)
	t.definitionSteps = derive.NewTable(t.engine, "definition-steps", t.definitionStep, derive.KeysOf(t.definitions))
	return t
}

// versions are the versions of IP of a Node's Pods.
type versions struct{ V4, V6 bool }

func versionsOf(n *corev1.Node) (v versions) {
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			v.V4, v.V6 = v.V4 || p.Addr().Is4(), v.V6 || p.Addr().Is6()
		}
	}
	return v
}

func (t *tables) state(_ derive.Name, r *derive.Reader) (s state, _ []problem.Problem) {
	for _, row := range derive.All(r, t.agents) {
		s.On = s.On || row.Value
	}
	var all versions
	for _, row := range derive.All(r, t.nodes) {
		all.V4, all.V6 = all.V4 || row.Value.V4, all.V6 || row.Value.V6
	}
	var names []string
	if all.V6 {
		names = append(names, "v6")
	}
	if all.V4 {
		names = append(names, "v4")
	}
	s.Families = strings.Join(names, ",")
	return s, nil
}

// inCopy reports whether an object is in the copy of a Namespace of another cluster. The leader's controller writes its
// status. An object may arrive before its Namespace, which may be a copy.
func (t *tables) inCopy(k derive.Object, r *derive.Reader) bool {
	f, known := derive.Get(r, t.namespaces, derive.Object{Name: k.Namespace})
	return !known || f.Copy
}

func (t *tables) networkStep(k derive.Object, r *derive.Reader) (networkStep, []problem.Problem) {
	if t.inCopy(k, r) {
		return networkStep{}, nil
	}
	f, _ := derive.Get(r, t.networks, k)
	cluster, _ := derive.Get(r, t.cluster, self)
	own, _ := derive.Get(r, t.tenants.VirtualNetworkProblems, k)
	if k.Name != contrailv4.DefaultPodNetwork {
		want := t.virtualNetwork(k, own, cluster.On, r)
		return networkStep{f.UID, want, want != f.Have}, nil
	}
	ps := own.List
	place, _ := derive.Get(r, t.tenants.Places, derive.Object{Name: k.Namespace})
	served := place.Isolated()
	if served && place.Closed() {
		ps = append(slices.Clone(ps), problem.Problem{Field: "metadata.namespace", Message: "its Pods have no traffic: an " +
			"older Namespace has the number of Namespace " + k.Namespace + ": create the Namespace again"})
	}
	want := contrailv4.VirtualNetworkStatus{Status: observe(cluster.On, ps)}
	if cluster.On && served {
		want.VirtualNetworkNetworkID, want.IPFamilies = int64(place.ID), cluster.Families
	}
	return networkStep{f.UID, want, want != f.Have}, nil
}

// virtualNetwork returns the status of a VirtualNetwork with Subnets.
func (t *tables) virtualNetwork(k derive.Object, own tenant.NetworkProblems, on bool, r *derive.Reader) (
	out contrailv4.VirtualNetworkStatus,
) {
	ps := append(problem.List(slices.Clone(own.List)), t.differs(k, r)...)
	id, numbered := derive.Get(r, t.tenants.IDs, tenant.VirtualName(k))
	if !own.Fails && !numbered {
		ps.Add(problem.About("VirtualNetwork", k.Namespace, k.Name), "metadata.uid", reasonNumberTaken, "its Pods have no "+
			"traffic by it: an older network has its number: create it again")
	}
	out.Status = observe(on, ps)
	if on && (own.Fails || !numbered) {
		out.State = contrailv4.StateFailure
	}
	n, _ := derive.Get(r, t.tenants.VirtualNetworks, k)
	if !on || !numbered {
		return out
	}
	out.VirtualNetworkNetworkID = int64(id)
	var families []string
	for _, l := range slices.Backward(n.Leases) { // IPv6 first
		name := "v4"
		if l.Range.CIDR.Addr().Is6() {
			name = "v6"
		}
		if !l.Ending && !slices.Contains(families, name) {
			families = append(families, name)
		}
	}
	out.IPFamilies = strings.Join(families, ",")
	return out
}

func (t *tables) routerStep(k derive.Object, r *derive.Reader) (routerStep, []problem.Problem) {
	if t.inCopy(k, r) {
		return routerStep{}, nil
	}
	f, _ := derive.Get(r, t.routers, k)
	cluster, _ := derive.Get(r, t.cluster, self)
	ps, _ := derive.Get(r, t.tenants.RouterProblems, tenant.RouterName(k))
	want := observe(cluster.On, ps)
	return routerStep{f.UID, want, want != f.Have}, nil
}

// observe returns the state of an object with these problems. on is the feature gate.
func observe(on bool, ps []problem.Problem) contrailv4.Status {
	switch {
	case !on:
		return contrailv4.Status{State: contrailv4.StateWarning, Observation: "without the agents' feature gate " +
			"TenantNetworks nothing of it is acted on: turn the gate on"}
	case len(ps) == 0:
		return contrailv4.Status{State: contrailv4.StateSuccess}
	}
	return contrailv4.Status{State: contrailv4.StateWarning, Observation: problem.List(ps).Observation()}
}
