package policy

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A newcomer is a Pod of another Node whose status has no address yet. Its Node names the sender of a packet in the
// tunnel's key, by a number made from the Pod's UID, which the API server has chosen. So this Node judges a newcomer's
// packet by the Pod's labels, in the same way as once its address is known. The number identifies one Pod and not a set
// of labels, so a tenant cannot choose it. (A mirror Pod has the UID of its static Pod in an annotation, so it has no
// number.) The number counts
//
//   - in packets of the Pod's Node, with addresses of that Node,
//   - while one newcomer of the Node has the number. If two newcomers have it, it names neither.
//
// In all other cases the address decides. If no Pod is known at it, it is an unknown Pod's.

// SenderKeyOf returns the number by which a tunnel's key names a Pod, from 1 to 1<<24-1. Without a UID it returns 0.
func SenderKeyOf(uid types.UID) uint32 {
	if uid == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid)) // it returns no error
	sum := h.Sum64()
	return max(1, uint32(sum^sum>>24^sum>>48)&(1<<24-1))
}

// SenderKey is such a number, of Pods of a Node.
type SenderKey struct {
	Node string
	Key  uint32
}

// Compare makes it the key of a table.
func (k SenderKey) Compare(o SenderKey) int {
	return cmp.Or(cmp.Compare(k.Node, o.Node), cmp.Compare(k.Key, o.Key))
}

// Newcomer is the Pod that a key names, if any ingress rule selects by labels. Otherwise it is the zero value.
type Newcomer struct {
	Pod    derive.Object
	Number uint32 // of its identity
}

// numberOn is the number of an identity of newcomers of a Node.
type numberOn struct {
	node   string
	number uint32
}

// Compare makes it the key of an index.
func (n numberOn) Compare(o numberOn) int {
	return cmp.Or(cmp.Compare(n.node, o.node), cmp.Compare(n.number, o.number))
}

// newcomerTables find Pods whose addresses are not known yet.
type newcomerTables struct {
	all         *Tables
	arriving    *derive.Index[SenderKey, derive.Object, PodFacts] // Pods of other Nodes without an address
	ownKeys     *derive.Index[SenderKey, derive.Object, PodFacts] // Pods of this Node
	newcomersOf *derive.Index[numberOn, SenderKey, Newcomer]
	asking      *derive.Table[Direction, bool] // directions in which a rule asks for labels
}

// add adds the tables that are about keys of tunnels between Nodes.
func (t *newcomerTables) add(e *derive.Engine) {
	t.arriving = derive.NewIndex(t.all.Pods, "sender-key", func(_ derive.Object, f PodFacts) []SenderKey {
		if f.UID == "" || f.Mirror || f.Node == "" || f.Node == t.all.node || len(f.IPs) > 0 {
			return nil
		}
		return []SenderKey{{f.Node, SenderKeyOf(f.UID)}}
	})
	t.ownKeys = derive.NewIndex(t.all.Pods, "own-sender-key", func(_ derive.Object, f PodFacts) []SenderKey {
		if f.UID == "" || f.Mirror || f.Node != t.all.node {
			return nil
		}
		return []SenderKey{{f.Node, SenderKeyOf(f.UID)}}
	})
	asked := func(Direction, *derive.Reader) (bool, []problem.Problem) { return true, nil }
	t.asking = derive.NewTable(e, "asking-directions", asked,
		derive.KeysOfIndex(derive.NewIndex(t.all.rules.resolved, "asking", func(k RuleKey, f ruleFacts) []Direction {
			if len(f.Peers) == 0 {
				return nil
			}
			return []Direction{k.Direction}
		})))
	t.all.Newcomers = derive.NewTable(e, "newcomers", t.newcomer, derive.KeysOfIndex(t.arriving))
	t.newcomersOf = derive.NewIndex(t.all.Newcomers, "number", func(k SenderKey, n Newcomer) []numberOn {
		if n.Number == 0 {
			return nil
		}
		return []numberOn{{k.Node, n.Number}}
	})
}

func (t *newcomerTables) newcomer(k SenderKey, r *derive.Reader) (Newcomer, []problem.Problem) {
	pods := derive.List(r, t.arriving, k)
	if len(pods) != 1 {
		return Newcomer{}, nil
	}
	identity, _ := derive.Get(r, t.all.Identities, pods[0].Key)
	if identity == "" {
		return Newcomer{}, nil
	}
	if asked, _ := derive.Get(r, t.asking, Ingress); !asked {
		return Newcomer{}, nil
	}
	number, _ := derive.Get(r, t.all.Numbers, identity)
	if number == 0 {
		return Newcomer{}, nil
	}
	return Newcomer{pods[0].Key, number}, nil
}

// SenderKeyAt returns the key of a tunnel for packets of the Pod at a port of this Node. It is 0 while the API server
// does not have the port's Pod. It is also 0 for a static Pod, and if two Pods of this Node have the same key.
func (t *Tables) SenderKeyAt(r *derive.Reader, port derive.Name) uint32 {
	attached, _ := derive.Get(r, t.Attached, port)
	key := SenderKeyOf(attached.UID)
	if !attached.Known || len(derive.List(r, t.arrivals.ownKeys, SenderKey{t.node, key})) != 1 {
		return 0
	}
	return key
}

// IsNewcomer reports whether the sender at an address may be named by a key: no Pod is known at the address, and the
// address's Node has a newcomer with a number. Call it between two passes (derive.Engine.Do).
func (t *Tables) IsNewcomer(a netip.Addr, number uint32) bool {
	if number == 0 || !t.IsUnknownPod(a) {
		return false
	}
	return len(t.arrivals.newcomersOf.Keys(numberOn{t.NodeAt(a), number})) > 0
}

// AddressesOfNewcomer returns the addresses of a Pod that was a newcomer. The result is nil while the Pod has no
// address, and after it is gone. Call it between two passes (derive.Engine.Do).
func (t *Tables) AddressesOfNewcomer(n Newcomer) []netip.Addr {
	f, _ := t.Pods.Get(n.Pod)
	return slices.Clone(f.IPs)
}
