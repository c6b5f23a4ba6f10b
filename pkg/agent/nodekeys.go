package agent

import (
	"strconv"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// Annotations of a Node.
const (
	// nodeKey is the annotation of a Node with the public WireGuard key of its agent. The agent writes it.
	nodeKey = "node.antrea.io/wireguard-public-key"
	// nextNodePort is the annotation of a Node with the UDP port for further sessions while a key changes. The agent
	// writes it.
	nextNodePort = "tombolo.io/wireguard-next-port"
	// nextNodeKey is the annotation of a Node with the next public key while a key changes. The agent writes it.
	nextNodeKey = "tombolo.io/wireguard-next-public-key"
	// nodeKeyNotBefore is the annotation of a Node with a time in the format of RFC 3339. The agent replaces a WireGuard
	// key that is older than this time. The administrator writes it.
	nodeKeyNotBefore = "tombolo.io/wireguard-key-not-before"
)

// nodeKeys judges the WireGuard keys that Nodes announce. Several Nodes may announce the same key, or have the same
// inside address.
type nodeKeys struct {
	nodeName string
	encrypts bool                                                 // traffic between Nodes
	byInside *derive.Index[derive.Name, derive.Object, nodeFacts] // Nodes by insideIDs
	// holders has the Node that owns each key and each inside address. first has the Node that had it first.
	holders *derive.Table[derive.Name, string]
	first   *derive.Source[derive.Name, string]
}

// newNodeKeys adds the tables to an engine.
func newNodeKeys(
	e *derive.Engine, nodes *derive.Source[derive.Object, nodeFacts], nodeName string, encrypts bool,
) *nodeKeys {
	k := &nodeKeys{nodeName: nodeName, encrypts: encrypts}
	k.byInside = derive.NewIndex(nodes, "inside", func(_ derive.Object, n nodeFacts) []derive.Name {
		if n.WireGuardKey == "" {
			return nil
		}
		key, address := insideIDs(n)
		out := []derive.Name{key, address}
		if n.NextKey != "" {
			out = append(out, nextID(n.NextKey))
		}
		return out
	})
	k.first = derive.NewSource[derive.Name, string](e, "first holders of keys")
	k.first.Loaded()
	k.holders = derive.NewTable(e, "inside-holders", k.holderOf, derive.KeysOfIndex(k.byInside))
	return k
}

// insideIDs returns the IDs of a Node's key and of its inside address. If traffic between Nodes is encrypted, no two
// Nodes may have a key or an inside address in common.
func insideIDs(n nodeFacts) (key, address derive.Name) {
	end, _, _ := n.tunnelEnd()
	return keyID(n.WireGuardKey), derive.Name("address " + peering.InsideOfNode(end).String())
}

func keyID(key string) derive.Name  { return derive.Name("key " + key) }
func nextID(key string) derive.Name { return derive.Name("next " + key) }

// nextOfID returns the nextID of a key from its keyID. It returns "" for an inside address, which has no second ID.
func nextOfID(id derive.Name) derive.Name {
	if key, ok := strings.CutPrefix(string(id), "key "); ok {
		return nextID(key)
	}
	return ""
}

// currentOfID returns the keyID of a key from its nextID. It returns other IDs as they are.
func currentOfID(id derive.Name) derive.Name {
	if key, ok := strings.CutPrefix(string(id), "next "); ok {
		return keyID(key)
	}
	return id
}

// holder returns the Node that owns a key or an inside address, among the Nodes that announce it. This Node wins. Next
// is the Node that was seen first with it, also as its next key. A key is public, so another Node that announces it
// takes nothing over, whatever its age.
//
// Among Nodes that were seen at the same time, the oldest with the key wins, then the oldest that changes to it. A
// newer Node may be made from a copy of the older Node's disk. If two Nodes are of the same second, the first by name
// wins.
func (k *nodeKeys) holder(id derive.Name, r *derive.Reader) (holder string) {
	first, _ := derive.Get(r, k.first, id)
	var created time.Time
	has, changes := derive.List(r, k.byInside, id), derive.List(r, k.byInside, nextOfID(id)) // by name
	for _, list := range [][]derive.Row[derive.Object, nodeFacts]{has, changes} {
		chosen := holder != ""
		for _, o := range list {
			switch name := o.Key.Name; {
			case name == k.nodeName:
				return name
			case holder != "" && holder == first:
			case name == first, !chosen && (holder == "" || o.Value.Created.Before(created)):
				holder, created = name, o.Value.Created
			}
		}
	}
	return holder
}

// holderOf is the function of the table of holders.
func (k *nodeKeys) holderOf(id derive.Name, r *derive.Reader) (string, []problem.Problem) {
	return k.holder(currentOfID(id), r), nil
}

// remember records which Node was seen first with each key and each inside address. saved has the Nodes of the previous
// process. save is called with all Nodes when one of them changes.
func (k *nodeKeys) remember(saved map[string]string, save func(map[string]string)) {
	for id, name := range saved {
		k.first.Set(derive.Name(id), name)
	}
	k.holders.Watch(func(changes []derive.Change[derive.Name, string]) {
		for _, c := range changes {
			id := currentOfID(c.Key)
			now, there := k.holders.Get(id)
			if !there {
				now, there = k.holders.Get(nextOfID(id))
			}
			if there {
				k.first.Set(id, now)
			} else {
				k.first.Delete(id)
			}
		}
		all := map[string]string{}
		for _, row := range k.holders.All() {
			all[string(currentOfID(row.Key))] = row.Value
		}
		save(all)
	})
}

// nextOf adds a Node's next key and port to a way. It reports invalid values and leaves them out. Then the current key
// of the Node stays in use.
func (k *nodeKeys) nextOf(name string, n nodeFacts, r *derive.Reader, w *peering.Way, ps *problems) {
	object := problem.Object{Kind: "Node", Name: name}
	const lost = "packets to and from its Pods will be lost when it changes its WireGuard key"
	if n.NextPort == "" && n.NextKey == "" {
		return // an older agent
	}
	port, err := strconv.ParseUint(n.NextPort, 10, 16)
	if err != nil || port == 0 {
		ps.report(object, "metadata.annotations["+nextNodePort+"]", reasonInvalidWireGuardPort,
			lost+": %.60q is not a port: "+
				"remove the annotation, and the Node's agent writes it again", n.NextPort)
		return
	}
	w.NextPort = uint16(port)
	if n.NextKey == "" {
		return
	}
	field := "metadata.annotations[" + nextNodeKey + "]"
	next, err := publickey.Parse(n.NextKey)
	if err != nil {
		ps.report(object, field, reasonInvalidWireGuardKey,
			lost+": %v: remove the annotation, and the Node's agent writes it "+
				"again", err)
		return
	}
	holder := k.holder(keyID(n.NextKey), r)
	if n.NextKey == n.WireGuardKey { // it has the key already, whatever other Nodes announce
		holder = name
	}
	if holder != name {
		ps.report(object, field, reasonDuplicateWireGuardKey,
			"it cannot change to its next WireGuard key: Node %s has the same: remove the file %s.next below /var/lib/tombolo "+
				"on Node %s, and restart its agent", holder, betweenNodes.keyFile, name)
		return
	}
	w.Next = next
}

// secured reports whether this Node and another one agree on encryption. Nothing is sent in plain text to a Node that
// announces a key. If this Node encrypts, it sends nothing in plain text to any Node.
func (k *nodeKeys) secured(name string, n nodeFacts, r *derive.Reader, ps *problems) bool {
	object, field := problem.Object{Kind: "Node", Name: name}, "metadata.annotations["+nodeKey+"]"
	if !k.encrypts {
		if n.WireGuardKey != "" {
			ps.report(object, field, reasonNodeExpectsEncryption,
				"its Pods cannot be reached: it announces a WireGuard key, and this Node would send it plain text: set "+
					"trafficEncryptionMode in antrea-agent.conf to the same for all Nodes, and restart their agents, which write "+
					"and remove the annotation; if no agent runs there any more, remove it")
			return false
		}
		return true
	}
	if n.WireGuardKey == "" {
		ps.report(object, field, reasonNodeWithoutEncryption,
			"its Pods cannot be reached: it announces no WireGuard key, and nothing is sent to it in plain text: set "+
				"trafficEncryptionMode to wireGuard in antrea-agent.conf, and restart its agent, which announces its key then")
		return false
	}
	if _, err := publickey.Parse(n.WireGuardKey); err != nil {
		ps.report(object, field, reasonInvalidWireGuardKey,
			"its Pods cannot be reached: %v: remove the annotation, and the Node's agent writes its key again", err)
		return false
	}
	end, _, _ := n.tunnelEnd()
	if why := notEncrypted(end); why != "" {
		ps.report(object, "status.addresses", reasonInvalidAddress, "its Pods cannot be reached: %s", why)
		return false
	}
	key, address := insideIDs(n)
	for _, id := range []derive.Name{key, address} {
		holder := k.holder(id, r)
		switch {
		case holder == name:
		case id == key:
			ps.report(object, field, reasonDuplicateWireGuardKey,
				"its Pods cannot be reached: Node %s has the same WireGuard key: remove the file %s below /var/lib/tombolo on "+
					"Node %s, if it is a copy of the other's, and restart its agent", holder, betweenNodes.keyFile, name)
			return false
		default:
			ps.report(object, "status.addresses", reasonDuplicateInsideAddress,
				"its Pods cannot be reached: it and Node %s have addresses with the same last 28 bits, or of IPv6 with the "+
					"same hash, which identify Nodes inside WireGuard: give one of them another address, or annotate it with %s",
				holder, transportAddresses)
			return false
		}
	}
	k.nextOf(name, n, r, new(peering.Way), ps)
	return true
}
