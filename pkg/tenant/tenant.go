// Package tenant derives the networks of tenants: which Namespaces are in which network, the number of each network on
// the wire, and which networks are joined. It is pure.
//
// Several front doors request networks and routers. A front door is a pair of tables that follow one kind of objects,
// such as the label of isolated Namespaces (isolated.go). The number of a network is a hash of its UID. So all Nodes
// have the same numbers, and no program assigns them.
//
//	front doors ──► networks ──► holders (of a number, of a Namespace) ──► IDs ──► places, joined
//	           └──► routers ───────────────────────────────────────────────────────────┘
package tenant

import (
	"cmp"
	"hash/fnv"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// ID is the number of a network on the wire. 0 is the default network. A network of one cluster has a number from 1 to
// MaxID. The ID of a network that other clusters know is the sum of shared and the number that the leader of the
// ClusterSet assigns.
type ID uint32

const (
	// MaxID is the highest number of a network of one cluster: 24 bits.
	MaxID ID = 1<<24 - 1
	// shared is added to the number that the leader assigns, so that no network of one cluster has the same ID.
	shared = MaxID + 1
)

// Compare makes an ID the key of a table.
func (i ID) Compare(o ID) int { return cmp.Compare(i, o) }

// Requested returns the number that a network requests: 24 bits of a hash of its UID. So a network keeps its number
// while it exists, and no later object can take it. The leader of a ClusterSet assigns numbers in the same way.
func Requested(uid types.UID) ID {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid))
	return ID(h.Sum64()%uint64(MaxID)) + 1
}

// Name names a network or a router. Door is its front door.
type Name struct{ Door, Namespace, Name string }

// Compare makes a Name the key of a table.
func (n Name) Compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Door, o.Door), cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// String returns "isolated team-a", or "vn team-a/blue" for an object in a Namespace.
func (n Name) String() string {
	if n.Namespace == "" {
		return n.Door + " " + n.Name
	}
	return n.Door + " " + n.Namespace + "/" + n.Name
}

// Member is a Namespace of a cluster. Cluster is "" for this one.
type Member struct{ Cluster, Namespace string }

// Compare makes a Member the key of a table.
func (m Member) Compare(o Member) int {
	return cmp.Or(cmp.Compare(m.Cluster, o.Cluster), cmp.Compare(m.Namespace, o.Namespace))
}

// Network is a network that a front door requests.
type Network struct {
	Object  problem.Object // that problems are about
	UID     types.UID
	Created int64 // seconds
	Members []Member
	Field   string // of Object, which makes Members part of it
	// ID is the number that the leader has assigned. It is 0 for a network of this cluster alone, whose number is a hash
	// of its UID.
	ID ID
	// Clusters are the IDs of the other clusters that have Pods in it.
	Clusters []string
	// Joins are the networks of several clusters, or of other ones, that it is joined with.
	Joins []Join
}

// Kind is what a router joins.
type Kind uint8

// These are types of routers. A mesh joins its networks with each other. A hub and a spoke do not join their own
// networks. Together they join the networks of the hub with the networks of the spoke.
const (
	Mesh Kind = iota + 1
	Hub
	Spoke
)

// Router joins networks. Two routers that import each other join their networks if both are of type mesh, or one is a
// hub and the other a spoke.
type Router struct {
	Object   problem.Object
	Kind     Kind
	Networks []Name
	Imports  []Name // routers
	// InCopies are the imported routers that are in copies of the central cluster. The leader joins the networks of such
	// routers. These tables only report their problems.
	InCopies []Name
	// Quiet is set if another program reports the problems of the router.
	Quiet bool
	// Problems are the problems that the front door has found.
	Problems []problem.Problem
}

// Doors are the front doors' tables.
type Doors struct {
	Networks []derive.Readable[Name, Network]
	Routers  []derive.Readable[Name, Router]
}

// Place is the network of the Pods of a Namespace of this cluster. The zero value means that the Namespace is not
// known.
type Place struct {
	Known bool
	// Network is the network of the Pods, or zero for the default network.
	Network Name
	// ID is its number. A network without a number is closed: its Pods have no traffic.
	ID ID
	// Outside lets the Pods open connections to destinations outside of the clusters' Pods and Services. In a
	// VirtualNetwork it lets only first interfaces.
	Outside bool
	// Joined are the numbers of networks that it is joined with, sorted.
	Joined []ID
	// Clusters are the sorted IDs of other clusters with Pods of these networks in their Pod ranges. Pods in
	// VirtualNetworks of other clusters have separate ranges (Remote).
	Clusters []string
}

// Isolated reports whether the Pods are in a network of their own.
func (p Place) Isolated() bool { return p.Network != Name{} }

// Closed reports whether the Pods have no traffic at all.
func (p Place) Closed() bool { return !p.Known || p.Isolated() && p.ID == 0 }

// Tables are the networks of tenants.
type Tables struct {
	// Networks are all requested networks.
	Networks *derive.Table[Name, Network]
	// IDs are the numbers of networks. If networks or Namespaces request the same number, the oldest one has it.
	IDs *derive.Table[Name, ID]
	// Joined are the networks that a network is joined with, sorted.
	Joined *derive.Table[Name, []Name]
	// Places are the networks of the Namespaces of this cluster. The key is the Namespace's name, as a derive.Object.
	Places *derive.Table[derive.Object, Place]
	// Remotes are other clusters that have parts of networks of this cluster.
	Remotes *derive.Table[derive.Name, Remote]
	// RouterProblems are the problems of routers.
	RouterProblems *derive.Table[Name, []problem.Problem]
	// VirtualNetworkProblems are the problems of VirtualNetworks. Only NewCluster makes the table.
	VirtualNetworkProblems *derive.Table[derive.Object, NetworkProblems]
	// VirtualNetworks are the networks of further interfaces; nil without Objects.Leases.
	VirtualNetworks *derive.Table[derive.Object, VirtualNetwork]
	// Subnets are the Subnets as they are served; nil without Objects.Subnets.
	Subnets *derive.Table[derive.Object, Subnet]

	namespaces derive.Readable[derive.Object, NamespaceFacts]

	routers *derive.Table[Name, Router]
	byID    *derive.Index[ID, Name, Network]
	// namespacesByID has all Namespaces, isolated or not.
	namespacesByID *derive.Index[ID, derive.Object, NamespaceFacts]
	byMember       *derive.Index[Member, Name, Network]
	byNetwork      *derive.Index[Name, Name, Router]

	virtual *virtualTables                   // nil without VirtualNetworks
	shared  *derive.Index[ID, Name, Network] // networks that the leader has numbered
	across  *derive.Table[Name, []Join]      // the joins of these whose ranges packets go to
}

// NewTables adds the tables to an engine. namespaces has a row for each Namespace of this cluster.
func NewTables(e *derive.Engine, namespaces derive.Readable[derive.Object, NamespaceFacts], doors Doors) *Tables {
	t := &Tables{namespaces: namespaces}
	t.Networks = derive.NewTable(e, "tenant-networks", firstOf(doors.Networks), keysOf(doors.Networks)...)
	t.routers = derive.NewTable(e, "tenant-routers", firstOf(doors.Routers), keysOf(doors.Routers)...)
	t.byID = derive.NewIndex(t.Networks, "number", func(name Name, n Network) []ID {
		if n.ID != 0 && name.Door != doorVirtual {
			return nil
		}
		return []ID{Requested(n.UID)} // a VirtualNetwork keeps it for the time after its import
	})
	t.namespacesByID = derive.NewIndex(namespaces, "number",
		func(_ derive.Object, f NamespaceFacts) []ID { return []ID{Requested(f.UID)} })
	t.byMember = derive.NewIndex(t.Networks, "member", func(_ Name, n Network) []Member { return n.Members })
	t.byNetwork = derive.NewIndex(t.routers, "network", func(_ Name, r Router) []Name { return r.Networks })
	t.IDs = derive.NewTable(e, "tenant-numbers", t.id, derive.KeysOf(t.Networks))
	derive.NewTable(e, "tenant-members", t.members, derive.KeysOf(t.Networks))
	t.RouterProblems = derive.NewTable(e, "tenant-imports", t.imports, derive.KeysOf(t.routers))
	t.Joined = derive.NewTable(e, "tenant-joins", t.joined, derive.KeysOf(t.Networks)).EqualBy(slices.Equal[[]Name])
	t.addAcross(e)
	t.Places = derive.NewTable(e, "tenant-places", t.place, derive.KeysOf(namespaces))
	t.addRemotes(e)
	return t
}

// firstOf returns a function for a table that combines the rows of all front doors. A Name in the table names its door.
func firstOf[V any](doors []derive.Readable[Name, V]) func(Name, *derive.Reader) (V, []problem.Problem) {
	return func(k Name, r *derive.Reader) (v V, _ []problem.Problem) {
		for _, door := range doors {
			if v, ok := derive.Get(r, door, k); ok {
				return v, nil
			}
		}
		return v, nil
	}
}

func keysOf[V any](doors []derive.Readable[Name, V]) (out []derive.Keys[Name]) {
	for _, door := range doors {
		out = append(out, derive.KeysOf(door))
	}
	return out
}

// claim is the right of an object to a number. It does not change while the object exists.
type claim struct {
	name    Name
	object  problem.Object
	uid     types.UID
	created int64
}

// id returns the number of a network, unless an older network has it. Then the network has no number and is closed,
// since two networks with one number would be one network. A Namespace has its number even while it is not isolated. So
// an old Namespace that is isolated later does not take the number of a network in use.
func (t *Tables) id(name Name, r *derive.Reader) (ID, []problem.Problem) {
	n, _ := derive.Get(r, t.Networks, name)
	if n.ID != 0 {
		return n.ID, nil
	}
	id := Requested(n.UID)
	var claims []claim
	for _, row := range derive.List(r, t.byID, id) {
		claims = append(claims, claim{row.Key, row.Value.Object, row.Value.UID, row.Value.Created})
	}
	for _, row := range derive.List(r, t.namespacesByID, id) {
		claims = append(claims, claim{Name{Door: doorIsolated, Name: row.Key.Name},
			problem.About("Namespace", "", row.Key.Name), row.Value.UID, row.Value.Created})
	}
	holder := slices.MinFunc(claims, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.uid, b.uid), a.name.Compare(b.name))
	})
	if holder.name == name {
		return id, nil
	}
	var ps problem.List
	ps.Add(n.Object, "metadata.uid", reasonNumberTaken, "its Pods have no traffic: "+holder.object.String()+
		" is older and has the same number of a network: delete and create the object again, which gives it another number")
	return 0, ps
}

// holder returns the network that a Namespace is in: the first in the order of names.
func (t *Tables) holder(r *derive.Reader, m Member) (Name, Network, bool) {
	rows := derive.List(r, t.byMember, m)
	if len(rows) == 0 {
		return Name{}, Network{}, false
	}
	return rows[0].Key, rows[0].Value, true
}

// members reports Namespaces of a network that are in another one.
func (t *Tables) members(name Name, r *derive.Reader) (bool, []problem.Problem) {
	n, _ := derive.Get(r, t.Networks, name)
	var ps problem.List
	for _, m := range n.Members {
		if holder, other, _ := t.holder(r, m); holder != name && holder.Door != doorClusterSet {
			ps.Add(n.Object, n.Field, reasonAlreadyMember, "Namespace "+m.Namespace+" is left out: it is in the network of "+
				other.Object.String()+": remove it from one of the two")
		}
	}
	return true, ps
}

// place returns the network of a Namespace.
func (t *Tables) place(namespace derive.Object, r *derive.Reader) (Place, []problem.Problem) {
	out := Place{Known: true}
	name, n, ok := t.holder(r, Member{Namespace: namespace.Name})
	if !ok {
		return out, nil
	}
	f, _ := derive.Get(r, t.namespaces, namespace)
	out.Network, out.Outside = name, f.Mode == modeFabricSNAT
	t.join(&out, n, r)
	return out, nil
}

// join adds the numbers to a place: of its network, and of networks that it is joined with. It also adds the clusters
// with Pods in these. A VirtualNetwork of another cluster is left out if its ranges are.
func (t *Tables) join(out *Place, n Network, r *derive.Reader) {
	if t.zoneOf(out.Network, r) == 0 {
		out.Clusters = slices.Clone(n.Clusters)
	}
	joins, _ := derive.Get(r, t.across, out.Network)
	for _, j := range joins {
		if !j.Virtual || len(j.Ranges) > 0 || len(derive.List(r, t.shared, j.ID)) > 0 {
			out.Joined = append(out.Joined, j.ID)
		}
		if !j.Virtual {
			out.Clusters = append(out.Clusters, j.Clusters...)
		}
	}
	slices.Sort(out.Clusters)
	out.Clusters = slices.Compact(out.Clusters)
	out.ID, _ = derive.Get(r, t.IDs, out.Network)
	joined, _ := derive.Get(r, t.Joined, out.Network)
	for _, other := range joined {
		if id, ok := derive.Get(r, t.IDs, other); ok {
			out.Joined = append(out.Joined, id)
		}
	}
	slices.Sort(out.Joined)
	out.Joined = slices.Compact(out.Joined)
}

// meets reports whether the networks of two routers that import each other are joined.
func (k Kind) meets(o Kind) bool {
	return k == Mesh && o == Mesh || k == Hub && o == Spoke || k == Spoke && o == Hub
}

// joined returns the networks that a network is joined with: the wanted ones in its zone of connection tracking. In
// another zone, another network may have its addresses.
func (t *Tables) joined(name Name, r *derive.Reader) ([]Name, []problem.Problem) {
	zone := t.zoneOf(name, r)
	return slices.DeleteFunc(t.wanted(name, r), func(o Name) bool { return t.zoneOf(o, r) != zone }), nil
}

// wanted returns the networks that routers join a network with, in any zone, sorted.
func (t *Tables) wanted(name Name, r *derive.Reader) (out []Name) {
	for _, row := range derive.List(r, t.byNetwork, name) {
		if row.Value.Kind == Mesh {
			out = append(out, row.Value.Networks...)
		}
		for _, other := range row.Value.Imports {
			o, _ := derive.Get(r, t.routers, other)
			if other != row.Key && row.Value.Kind.meets(o.Kind) && slices.Contains(o.Imports, row.Key) {
				out = append(out, o.Networks...)
			}
		}
	}
	slices.SortFunc(out, Name.Compare)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(o Name) bool {
		_, there := derive.Get(r, t.Networks, o)
		return o == name || !there
	})
}

// imports returns the problems of a router: those from its front door, and imports without an effect.
func (t *Tables) imports(name Name, r *derive.Reader) ([]problem.Problem, []problem.Problem) {
	router, _ := derive.Get(r, t.routers, name)
	if router.Quiet {
		return nil, nil
	}
	var missing, unlike, oneSided []string
	for _, other := range slices.Concat(router.Imports, router.InCopies) {
		o, ok := derive.Get(r, t.routers, other)
		switch {
		case !ok:
			missing = append(missing, other.String())
		case !router.Kind.meets(o.Kind):
			unlike = append(unlike, o.Object.String())
		case !slices.Contains(o.Imports, name):
			oneSided = append(oneSided, o.Object.String())
		}
	}
	ps := problem.List(slices.Clone(router.Problems))
	t.apartByZone(name, router, r, &ps)
	for _, p := range []struct {
		names         []string
		reason        reasons.Reason
		before, after string
	}{
		{missing, reasonRouterNotFound, "there is no router ", ": create it, or remove the import"},
		{unlike, reasonNotJoinable, "the networks of ",
			" are not joined: only two routers of type mesh are, and a hub with a " +
				"spoke: change the type of one of the two"},
		{oneSided, reasonNotImportedBack, "the networks of ",
			" are not joined before it imports this router: add the import there"},
	} {
		if len(p.names) > 0 {
			ps.Add(router.Object, "spec.import", p.reason, p.before+problem.Few(p.names)+p.after)
		}
	}
	return ps, ps
}
