package peering

import (
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Tables has the peering of a Node in several rows, so that a change of one peer evaluates only the rows that read this
// peer.
type Tables struct {
	// Part has this Node's part, under the key of the whole.
	Part *derive.Table[derive.Name, Part]
	// Peers has a row for each peer, by cluster ID.
	Peers *derive.Table[derive.Name, Peer]
}

// NewTables adds the tables to an engine. The table whole has all in one row.
func NewTables(e *derive.Engine, whole derive.Readable[derive.Name, Peering]) Tables {
	part := func(key derive.Name, r *derive.Reader) (Part, []problem.Problem) {
		p, _ := derive.Get(r, whole, key)
		return p.Part, nil
	}
	byCluster := derive.NewIndex(whole, "cluster", func(_ derive.Name, p Peering) []derive.Name {
		ids := make([]derive.Name, len(p.Peers))
		for i, peer := range p.Peers {
			ids[i] = derive.Name(peer.ClusterID)
		}
		return ids
	})
	peer := func(id derive.Name, r *derive.Reader) (Peer, []problem.Problem) {
		peers := derive.List(r, byCluster, id)[0].Value.Peers
		return peers[slices.IndexFunc(peers, func(p Peer) bool { return p.ClusterID == string(id) })], nil
	}
	return Tables{
		Part:  derive.NewTable(e, "peering-part", part, derive.KeysOf(whole)),
		Peers: derive.NewTable(e, "peers", peer, derive.KeysOfIndex(byCluster)),
	}
}
