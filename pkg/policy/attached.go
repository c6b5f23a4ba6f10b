package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// An interface on this Node's switch belongs to one Pod, and that Pod has a UID, which the runtime gives at CNI ADD.
// Pods that follow each other under one name, as in a StatefulSet, have different UIDs. So the API server's Pod counts
// for an interface of its name only
//
//   - if the Pod is scheduled to this Node, and
//   - if it has the interface's UID. If no UID was recorded (an earlier version made the interface, or the runtime
//     gave no UID), the Pod's status must have an address of the interface, or of another interface of the same
//     sandbox. This Node gives an address to one sandbox at a time, so the status of a later Pod of that name has
//     another one.
//
// Else the interface's Pod is not known, whatever Pod the API server has under its name.

// Attachment is an interface of a Pod on this Node's switch.
type Attachment struct {
	Pod     derive.Object
	UID     types.UID    // the recorded UID, or ""
	Sandbox string       // the container's ID
	IPs     []netip.Addr // of both families
	// Network is the VirtualNetwork of the interface. It is zero for a first interface in the network of its Namespace.
	Network derive.Object
}

// Attachments are this Node's attachments, by port.
type Attachments interface {
	derive.Readable[derive.Name, Attachment]
	Get(derive.Name) (Attachment, bool)
}

// Attached is whose an interface is.
type Attached struct {
	Pod derive.Object
	// UID is the Pod's UID: the recorded one, or else the API server's. It is "" while neither is known.
	UID types.UID
	// Known is set if the API server has the Pod. Identity is "" without a known Pod, and while the labels of its
	// Namespace are not known.
	Known    bool
	Identity Identity
	// Network is the VirtualNetwork of the address. It is zero for an address of a first interface.
	Network derive.Object
}

// Occupant is the Pod that has an address.
type Occupant struct {
	Pod  derive.Object
	Port derive.Name // of this Node's switch; "" for a Pod of another Node
	// Known and Identity are as in Attached.
	Known    bool
	Identity Identity
	// Network is the VirtualNetwork of the address. It is zero for an address of a first interface.
	Network derive.Object
}

// attachmentTables find the interfaces of this Node's Pods.
type attachmentTables struct {
	all           *Tables
	attachments   Attachments
	attachmentsAt *derive.Index[Addr, derive.Name, Attachment] // first interfaces
	furtherAt     *derive.Index[Addr, derive.Name, Attachment] // further interfaces
	furtherHere   *derive.Index[FurtherAddr, derive.Name, Attachment]
	attachmentsOf *derive.Index[derive.Object, derive.Name, Attachment]
}

// add adds the tables about this Node's interfaces.
func (t *attachmentTables) add(e *derive.Engine, attachments Attachments) {
	if attachments == nil {
		none := derive.NewSource[derive.Name, Attachment](e, "no-attachments")
		none.Loaded()
		attachments = none
	}
	t.attachments = attachments
	at := func(name string, further bool) *derive.Index[Addr, derive.Name, Attachment] {
		return derive.NewIndex(attachments, name, func(_ derive.Name, a Attachment) (out []Addr) {
			if (a.Network != derive.Object{}) != further {
				return nil
			}
			for _, ip := range a.IPs {
				out = append(out, Addr{ip})
			}
			return out
		})
	}
	t.attachmentsAt, t.furtherAt = at("pod-address", false), at("further-pod-address", true)
	t.furtherHere = derive.NewIndex(attachments, "further-pod-address of a network",
		func(_ derive.Name, a Attachment) (out []FurtherAddr) {
			if a.Network == (derive.Object{}) {
				return nil
			}
			for _, ip := range a.IPs {
				out = append(out, FurtherAddr{a.Network, ip})
			}
			return out
		})
	t.attachmentsOf = derive.NewIndex(attachments, "pod", func(_ derive.Name, a Attachment) []derive.Object {
		return []derive.Object{a.Pod}
	})
	t.all.Attached = derive.NewTable(e, "attached-pods", t.attached, derive.KeysOf(attachments))
}

func (t *attachmentTables) attached(port derive.Name, r *derive.Reader) (Attached, []problem.Problem) {
	a, _ := derive.Get(r, t.attachments, port)
	out := Attached{Pod: a.Pod, UID: a.UID}
	if f, ok := derive.Get(r, t.all.Pods, a.Pod); ok && t.isAbout(r, f, a) {
		out.UID, out.Known = f.UID, true
		out.Identity, _ = derive.Get(r, t.all.Identities, a.Pod)
	}
	return out, nil
}

// isAbout reports whether the Pod object with an attachment's name is the Pod of the attachment, and not a later Pod of
// the same name.
func (t *attachmentTables) isAbout(r *derive.Reader, f PodFacts, a Attachment) bool {
	switch {
	case f.Node != t.all.node:
		return false
	case a.UID != "":
		return a.UID == f.UID
	}
	reported := func(ip netip.Addr) bool { return slices.Contains(f.IPs, ip) }
	for _, other := range derive.List(r, t.attachmentsOf, a.Pod) {
		if other.Value.Sandbox == a.Sandbox && slices.ContainsFunc(other.Value.IPs, reported) {
			return true
		}
	}
	return false
}

// occupant returns the Pod whose first interface has an address; r is nil between two passes. Addresses in
// VirtualNetworks are in other tables (further). On this Node the interface with the address decides, not a status. On
// other Nodes, an address counts for a Pod only if it is in the podCIDRs of the Pod's Node. (Addresses from a pool
// would count as the pool specifies.) So a Node can report only addresses of its own Pods, whatever it writes, and a
// Pod of a Node that is gone has no address. If several Pods of that Node claim the address, the one created last has
// it: the Node gives it again only after the earlier Pod has lost it.
func (t *attachmentTables) occupant(r *derive.Reader, a Addr) (Occupant, bool) {
	if who, ok := t.attachedAt(r, list(r, t.attachments, t.attachmentsAt, a)); ok {
		return who, true
	}
	claims := list(r, t.all.Pods, t.all.ids.byIP, a)
	if len(claims) == 0 {
		return Occupant{}, false
	}
	node := t.all.unknown.nodeOf(r, a.Addr)
	if node == "" || node == t.all.node {
		return Occupant{}, false
	}
	elsewhere := func(row derive.Row[derive.Object, PodFacts]) bool { return row.Value.Node != node }
	claims = slices.DeleteFunc(claims, elsewhere)
	if len(claims) == 0 {
		return Occupant{}, false
	}
	last := slices.MaxFunc(claims, func(x, y derive.Row[derive.Object, PodFacts]) int {
		return cmp.Or(cmp.Compare(x.Value.Created, y.Value.Created), cmp.Compare(y.Value.UID, x.Value.UID))
	})
	identity, _ := rowOf(r, t.all.Identities, last.Key)
	return Occupant{Pod: last.Key, Known: true, Identity: identity}, true
}

// attachedAt returns the Pod of the first of these interfaces of this Node, which the datapath serves.
func (t *attachmentTables) attachedAt(r *derive.Reader, here []derive.Row[derive.Name, Attachment]) (Occupant, bool) {
	if len(here) == 0 {
		return Occupant{}, false
	}
	who, _ := rowOf(r, t.all.Attached, here[0].Key)
	return Occupant{Pod: who.Pod, Port: here[0].Key, Known: who.Known, Identity: who.Identity,
		Network: here[0].Value.Network}, true
}

// Claims returns the Pods whose status claims an address, even if the claim does not count. Call it between two passes
// (derive.Engine.Do).
func (t *Tables) Claims(a netip.Addr) []derive.Object { return t.ids.byIP.Keys(Addr{a}) }

// OccupantAt returns the Pod whose first interface has an address. It is called between two passes (derive.Engine.Do).
func (t *Tables) OccupantAt(a netip.Addr) (Occupant, bool) { return t.places.occupant(nil, Addr{a}) }

// addressesOfPod returns the addresses of a Pod's first interface; r is nil between two passes.
func (t *attachmentTables) addressesOfPod(r *derive.Reader, pod derive.Object, f PodFacts) (out []netip.Addr) {
	claims := f.IPs
	if f.Node == t.all.node {
		claims = nil
		for _, row := range list(r, t.attachments, t.attachmentsOf, pod) {
			if row.Value.Network == (derive.Object{}) {
				claims = append(claims, row.Value.IPs...)
			}
		}
	}
	for _, ip := range claims {
		if who, _ := t.occupant(r, Addr{ip}); who.Known && who.Pod == pod {
			out = append(out, ip)
		}
	}
	return sorted(out, netip.Addr.Compare)
}

// AddressesOf returns the addresses of a Pod's first interface, sorted. It is called between two passes
// (derive.Engine.Do).
func (t *Tables) AddressesOf(pod derive.Object) []netip.Addr {
	f, _ := t.Pods.Get(pod)
	return t.places.addressesOfPod(nil, pod, f)
}

// readable is a table that functions of tables read, and that can also be read between two passes.
type readable[K derive.Key[K], V any] interface {
	derive.Readable[K, V]
	Get(K) (V, bool)
}

// rowOf returns the row of a key; r is nil between two passes.
func rowOf[K derive.Key[K], V any](r *derive.Reader, t readable[K, V], k K) (V, bool) {
	if r == nil {
		return t.Get(k)
	}
	return derive.Get(r, t, k)
}

// list returns the rows of a table that an index has under a key; r is nil between two passes.
func list[I derive.Key[I], K derive.Key[K], V any](
	r *derive.Reader, t readable[K, V], x *derive.Index[I, K, V], i I,
) []derive.Row[K, V] {
	if r != nil {
		return derive.List(r, x, i)
	}
	var out []derive.Row[K, V]
	for _, k := range x.Keys(i) {
		v, _ := t.Get(k)
		out = append(out, derive.Row[K, V]{Key: k, Value: v})
	}
	return out
}
