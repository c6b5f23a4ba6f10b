package leader

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Limits of the status of a TenantNetwork, which an API server has to take.
const (
	maxJoined         = 1000
	maxJoinedClusters = 10000 // in all joined networks
)

// networks decide the numbers of TenantNetworks and which of them are joined.
//
//	networks ─► numbers ──────────┐
//	   │  ├───► clusters ◄ members┤
//	   │  └───► ranges ◄ claims ──┤
//	   └► agreed ◄ connections ───┴─► joins ─► steps
type networks struct {
	members derive.Readable[derive.Name, member] // of the ClusterSet
	central *central

	networks          *derive.Source[derive.Object, *network]
	connections       *derive.Source[derive.Object, *tombolov1alpha1.NetworkConnectionSpec]
	networkStatus     *derive.Source[derive.Object, writtenStatus[tombolov1alpha1.TenantNetworkStatus]]
	connectionsStatus *derive.Source[derive.Object, writtenStatus[tombolov1alpha1.NetworkConnectionStatus]]

	// numbers are the numbers of networks. A network without one has no row.
	numbers  *derive.Table[derive.Object, int32]
	clusters *derive.Table[derive.Object, []string] // with members of the network that are in the ClusterSet, sorted
	agreed   *derive.Table[derive.Object, *agreed]  // by the connection
	// ranges are the ranges of networks of VirtualNetworks. Other networks have no row.
	ranges *derive.Table[derive.Object, networkRanges]
	joins  *derive.Table[derive.Object, *joins]

	networkSteps    *derive.Table[derive.Object, *tombolov1alpha1.TenantNetwork]
	connectionSteps *derive.Table[derive.Object, *tombolov1alpha1.NetworkConnection]

	byNumber *derive.Index[derive.Name, derive.Object, *network]
	virtual  *derive.Index[derive.Name, derive.Object, *network] // of VirtualNetworks, all under one name
}

// newNetworks adds the tables of networks. The kinds are optional: earlier versions have neither the kinds nor the
// rights.
func newNetworks(k *watch.Kinds, e *derive.Engine, members derive.Readable[derive.Name, member],
	c *central, claiming *claimTables) *networks {
	allowed := watch.IfAllowed()
	t := &networks{
		members:     members,
		central:     c,
		networks:    watch.NewSource(k, "TenantNetworks", networkFacts, allowed),
		connections: watch.NewSource(k, "NetworkConnections", connectionFacts, allowed),
		networkStatus: watch.NewSource(k, "status of TenantNetworks",
			func(n *tombolov1alpha1.TenantNetwork) writtenStatus[tombolov1alpha1.TenantNetworkStatus] {
				return writtenStatus[tombolov1alpha1.TenantNetworkStatus]{n.UID, n.ResourceVersion, n.Status}
			}),
		connectionsStatus: watch.NewSource(k, "status of NetworkConnections",
			func(c *tombolov1alpha1.NetworkConnection) writtenStatus[tombolov1alpha1.NetworkConnectionStatus] {
				return writtenStatus[tombolov1alpha1.NetworkConnectionStatus]{c.UID, c.ResourceVersion, c.Status}
			}),
	}
	t.byNumber = derive.NewIndex(t.networks, "number",
		func(_ derive.Object, n *network) []derive.Name { return []derive.Name{numberKey(n.UID)} })
	t.numbers = derive.NewTable(e, "numbers of networks", t.number, derive.KeysOf(t.networks))
	t.clusters = derive.NewTable(e, "clusters of networks", t.clustersOf, derive.KeysOf(t.networks))
	t.agreed = derive.NewTable(e, "agreed connections", t.agreedOf, derive.KeysOf(t.connections))
	t.addRanges(e, claiming)
	t.joins = derive.NewTable(e, "joins of networks", t.joinsOf, derive.KeysOf(t.networks))
	t.networkSteps = derive.NewTable(e, "steps of TenantNetworks", t.networkStep, derive.KeysOf(t.networks))
	t.connectionSteps = derive.NewTable(e, "steps of NetworkConnections", t.connectionStep, derive.KeysOf(t.connections))
	return t
}

// network has the facts of a TenantNetwork.
type network struct {
	UID         types.UID
	Created     int64 // seconds
	Members     []networkMember
	Connections []string
	Copy        bool // it is made for a copy in the central cluster
}

// networkMember is an entry of spec.members.
type networkMember struct {
	ClusterID string
	Fault     string // why its selector selects nothing; empty if it is valid
}

func networkFacts(o *tombolov1alpha1.TenantNetwork) *network {
	n := &network{UID: o.UID, Created: o.CreationTimestamp.Unix(), Connections: o.Spec.Connections}
	_, n.Copy = o.Labels[tenant.LabelCopy]
	for _, m := range o.Spec.Members {
		member := networkMember{ClusterID: m.ClusterID}
		if _, err := metav1.LabelSelectorAsSelector(&m.NamespaceSelector); err != nil {
			member.Fault = err.Error()
		}
		n.Members = append(n.Members, member)
	}
	return n
}

func connectionFacts(o *tombolov1alpha1.NetworkConnection) *tombolov1alpha1.NetworkConnectionSpec {
	return &o.Spec
}

// writtenStatus is the existing status of an object. The version is for its write.
type writtenStatus[S any] struct {
	UID     types.UID
	Version string
	Status  S
}

func numberKey(uid types.UID) derive.Name {
	return derive.Name(strconv.Itoa(int(tenant.Requested(uid))))
}

// holder returns the network that owns the number of a network: the oldest one of those with this number.
func (t *networks) holder(n *network, r *derive.Reader) derive.Object {
	rows := derive.List(r, t.byNumber, numberKey(n.UID))
	return slices.MinFunc(rows, func(a, b derive.Row[derive.Object, *network]) int {
		return cmp.Or(cmp.Compare(a.Value.Created, b.Value.Created), cmp.Compare(a.Value.UID, b.Value.UID))
	}).Key
}

func (t *networks) number(k derive.Object, r *derive.Reader) (int32, []problem.Problem) {
	n, _ := derive.Get(r, t.networks, k)
	if t.holder(n, r) != k {
		return 0, nil
	}
	return int32(tenant.Requested(n.UID)), nil
}

// isMember reports whether a cluster is in the ClusterSet.
func (t *networks) isMember(r *derive.Reader, id string) bool {
	m, _ := derive.Get(r, t.members, derive.Name(id))
	return m.Announced && m.Why == ""
}

func (t *networks) clustersOf(k derive.Object, r *derive.Reader) (ids []string, _ []problem.Problem) {
	n, _ := derive.Get(r, t.networks, k)
	for _, m := range n.members(k) {
		if m.Fault == "" && t.isMember(r, m.ClusterID) {
			ids = append(ids, m.ClusterID)
		}
	}
	if of := t.copyOf(k, n, r); of != nil && of.Out == nil {
		ids = append(ids, of.ClusterID)
	}
	// If the leader's cluster is no longer the central cluster, networks of copies and their joins stay as they are.
	have, _ := derive.Get(r, t.networkStatus, k)
	if of := have.Status.Namespace; n.Copy && !t.central.on && of != nil && t.isMember(r, of.ClusterID) {
		ids = append(ids, of.ClusterID)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// ofVirtual reports whether a network is made for a VirtualNetwork.
func (n *network) ofVirtual(k derive.Object) bool { return n.Copy && strings.Contains(k.Name, ".") }

// members returns the members of a network that are used. The network of a VirtualNetwork has no members, since no
// Namespace is in it.
func (n *network) members(k derive.Object) []networkMember {
	if n.ofVirtual(k) {
		return nil
	}
	return n.Members
}

// clusterOf returns the ID of the cluster that a network of a copy is for, or "".
func clusterOf(s tombolov1alpha1.TenantNetworkStatus) string {
	switch {
	case s.Namespace != nil:
		return s.Namespace.ClusterID
	case s.Request != nil:
		return s.Request.Namespace.ClusterID
	}
	return ""
}

// copyOf returns what a network is made for in the central cluster, or nil.
func (t *networks) copyOf(k derive.Object, n *network, r *derive.Reader) *networkOwner {
	if !n.Copy {
		return nil
	}
	return t.central.ofTenantNetwork(k, r)
}

// agreed are the networks of a connection that exist and agree to it.
type agreed struct {
	Mesh, Hubs, Spokes []string
	Problems           problem.List
}

// peers returns the networks that the connection joins with one of its networks.
func (a *agreed) peers(name string) (out []string) {
	for _, side := range []struct{ own, others []string }{{a.Mesh, a.Mesh}, {a.Hubs, a.Spokes}, {a.Spokes, a.Hubs}} {
		if slices.Contains(side.own, name) {
			out = append(out, side.others...)
		}
	}
	return out
}

// names reports whether a connection names a network.
func names(c *tombolov1alpha1.NetworkConnectionSpec, name string) bool {
	return slices.Contains(c.Mesh, name) || slices.Contains(c.Hubs, name) || slices.Contains(c.Spokes, name)
}

// agreedOf compares a connection with the networks that it names. A network is joined only with its owner's consent.
func (t *networks) agreedOf(k derive.Object, r *derive.Reader) (*agreed, []problem.Problem) {
	c, _ := derive.Get(r, t.connections, k)
	a := &agreed{}
	about := problem.About("NetworkConnection", k.Namespace, k.Name)
	for _, side := range []struct {
		field string
		names []string
		to    *[]string
	}{{"spec.mesh", c.Mesh, &a.Mesh}, {"spec.hubs", c.Hubs, &a.Hubs}, {"spec.spokes", c.Spokes, &a.Spokes}} {
		var missing, silent []string
		for _, name := range side.names {
			n, ok := derive.Get(r, t.networks, derive.Object{Namespace: k.Namespace, Name: name})
			switch {
			case !ok:
				missing = append(missing, name)
			case !slices.Contains(n.Connections, k.Name):
				silent = append(silent, name)
			default:
				*side.to = append(*side.to, name)
			}
		}
		if len(missing) > 0 {
			a.Problems.Add(about, side.field, reasonNetworkNotFound, "there is no TenantNetwork "+problem.Few(missing)+
				" in Namespace "+k.Namespace+": create it, or remove its name here")
		}
		if len(silent) > 0 {
			a.Problems.Add(about, side.field, reasonNotAgreed, "TenantNetwork "+problem.Few(silent)+" is not joined, since "+
				"its owner has not agreed: add "+k.Name+" to its spec.connections, or remove its name here")
		}
	}
	return a, nil
}

// joins are the networks that a network is joined with.
type joins struct {
	Joined   []tombolov1alpha1.JoinedNetwork
	Problems problem.List
}

func (t *networks) joinsOf(k derive.Object, r *derive.Reader) (*joins, []problem.Problem) {
	n, _ := derive.Get(r, t.networks, k)
	j := &joins{}
	about := problem.About("TenantNetwork", k.Namespace, k.Name)
	peers := map[string]bool{}
	for i, name := range n.Connections {
		field := fmt.Sprintf("spec.connections[%d]", i)
		of := derive.Object{Namespace: k.Namespace, Name: name}
		c, ok := derive.Get(r, t.connections, of)
		switch {
		case !ok:
			j.Problems.Add(about, field, reasonConnectionNotFound, "there is no NetworkConnection "+of.String()+
				": create it, or remove its name here")
			continue
		case !names(c, k.Name):
			j.Problems.Add(about, field, reasonNotConnected, "NetworkConnection "+of.String()+" does not name this network: "+
				"add "+k.Name+" to its spec, or remove its name here")
			continue
		}
		a, _ := derive.Get(r, t.agreed, of)
		for _, peer := range a.peers(k.Name) {
			peers[peer] = true
		}
	}
	if of := t.copyOf(k, n, r); of != nil && of.Out == nil {
		for _, peer := range t.central.peers(of, k.Namespace, r) {
			other, _ := derive.Get(r, t.networks, derive.Object{Namespace: k.Namespace, Name: peer})
			if other != nil && other.Copy {
				peers[peer] = true
			}
		}
	}
	delete(peers, k.Name)
	if own, _ := derive.Get(r, t.ranges, k); !own.usable() {
		return j, nil
	}
	clusters := 0
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		of := derive.Object{Namespace: k.Namespace, Name: name}
		number, ok := derive.Get(r, t.numbers, of)
		if !ok { // its own status reports this
			continue
		}
		ranges, _ := derive.Get(r, t.ranges, of)
		if !ranges.usable() { // its VirtualNetwork reports this
			continue
		}
		ids, _ := derive.Get(r, t.clusters, of)
		if clusters += len(ids); len(j.Joined) == maxJoined || clusters > maxJoinedClusters {
			j.Problems.Add(about, "spec.connections", reasonTooManyNetworks,
				fmt.Sprintf("TenantNetwork %s and later ones are not "+
					"joined: a network may be joined with %d others, which have %d clusters in all: agree to fewer connections",
					name, maxJoined, maxJoinedClusters))
			break
		}
		j.Joined = append(j.Joined, tombolov1alpha1.JoinedNetwork{Name: name, Number: number, ClusterIDs: ids,
			CIDRs: ranges.CIDRs})
	}
	return j, nil
}

// networkStep returns a network with its desired status, or nil if it has that status.
func (t *networks) networkStep(k derive.Object, r *derive.Reader) (*tombolov1alpha1.TenantNetwork, []problem.Problem) {
	n, _ := derive.Get(r, t.networks, k)
	have, _ := derive.Get(r, t.networkStatus, k)
	if n.Copy && clusterOf(have.Status) != "" && !t.central.on {
		return nil, nil // it stays as it is while the leader's cluster is not the central one
	}
	number, numbered := derive.Get(r, t.numbers, k)
	j, _ := derive.Get(r, t.joins, k)
	about := problem.About("TenantNetwork", k.Namespace, k.Name)
	var ps problem.List
	want := tombolov1alpha1.TenantNetworkStatus{Number: number}
	if numbered {
		want.Joined = j.Joined
	} else {
		ps.Add(about, "metadata.uid", reasonNumberTaken, "its Namespaces stay in networks of their own: TenantNetwork "+
			t.holder(n, r).String()+" is older and has the same number of a network: delete and create this object again, "+
			"which gives it another number")
	}
	ranges, _ := derive.Get(r, t.ranges, k)
	want.CIDRs = ranges.CIDRs
	switch of := t.copyOf(k, n, r); {
	case of == nil && n.Copy || of != nil && of.Kept: // it stays until it is deleted
		want.Namespace, want.VirtualNetwork = have.Status.Namespace, have.Status.VirtualNetwork
		want.Request = have.Status.Request
	case of != nil && of.Virtual == nil:
		want.Namespace = of.ofCluster()
	case of != nil:
		want.Request = t.central.requestOf(of, have.Status.Request, r)
		if of.Virtual.UID != "" { // its cluster has created it
			want.Namespace = of.ofCluster()
			want.VirtualNetwork = &tombolov1alpha1.VirtualNetworkReference{Name: of.Virtual.Name, UID: of.Virtual.UID}
		}
	}
	if n.ofVirtual(k) && len(n.Members) > 0 {
		ps.Add(about, "spec.members", reasonManagerNotServed, "they are stored and have no effect, since the network is "+
			"of a VirtualNetwork: remove them")
	}
	for i, m := range n.members(k) {
		if m.Fault != "" {
			ps.Add(about, fmt.Sprintf("spec.members[%d].namespaceSelector", i), reasonInvalidSelector,
				"it selects nothing: "+m.Fault+": correct it")
		} else if !t.isMember(r, m.ClusterID) {
			ps.Add(about, fmt.Sprintf("spec.members[%d].clusterID", i), reasonNotAMember, "cluster "+m.ClusterID+
				" is not in the ClusterSet: let it join, or correct the ID")
		}
	}
	ps = append(ps, j.Problems...)
	want.State, want.Observation = observed(ps)
	if !numbered {
		want.State = tombolov1alpha1.StateFailure
	}
	if equality.Semantic.DeepEqual(have.Status, want) {
		return nil, nil
	}
	return &tombolov1alpha1.TenantNetwork{ObjectMeta: metaOf(k, have.UID, have.Version), Status: want}, nil
}

// connectionStep returns a connection with its desired status, or nil if it has that status.
func (t *networks) connectionStep(k derive.Object,
	r *derive.Reader) (*tombolov1alpha1.NetworkConnection, []problem.Problem) {
	have, _ := derive.Get(r, t.connectionsStatus, k)
	a, _ := derive.Get(r, t.agreed, k)
	var want tombolov1alpha1.NetworkConnectionStatus
	want.State, want.Observation = observed(a.Problems)
	if have.Status == want {
		return nil, nil
	}
	return &tombolov1alpha1.NetworkConnection{ObjectMeta: metaOf(k, have.UID, have.Version), Status: want}, nil
}

// observed returns the state of an object with these problems, and its observation.
func observed(ps problem.List) (state, observation string) {
	if len(ps) == 0 {
		return tombolov1alpha1.StateSuccess, ""
	}
	return tombolov1alpha1.StateWarning, ps.Observation()
}

func metaOf(k derive.Object, uid types.UID, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, UID: uid, ResourceVersion: version}
}

// networkOffer writes the status of a TenantNetwork, for which traffic waits.
func (w *writer) networkOffer(key derive.Object, want *tombolov1alpha1.TenantNetwork) retry.Offer {
	group := ""
	if want != nil {
		group = clusterOf(want.Status)
	}
	return w.offer("TenantNetwork", key, group, updateStatus, statusField, w.statusOf(want, want == nil))
}

func (w *writer) connectionOffer(key derive.Object, want *tombolov1alpha1.NetworkConnection) retry.Offer {
	o := w.offer("NetworkConnection", key, "", updateStatus, statusField, w.statusOf(want, want == nil))
	o.Late = true
	return o
}

// statusOf returns the write of a status, or nil without one. It is no update of the whole object, which has no other
// desired fields.
func (w *writer) statusOf(want client.Object, none bool) func(context.Context) error {
	if none {
		return nil
	}
	return func(ctx context.Context) error {
		return w.to.Status().Update(ctx, want.DeepCopyObject().(client.Object))
	}
}
