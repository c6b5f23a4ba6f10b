package leader

import (
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// own has the central cluster's own isolated Namespaces, which have copies if the cluster is a member with a
// Kubemanager. Routers in them join the networks of the copies, as in CN2. The cluster's own controller writes their
// statuses.
type own struct {
	id *derive.Table[derive.Name, derive.Name] // of the leader's cluster, one row
	// copies are the names of the copies, by the own Namespace.
	copies *derive.Table[derive.Object, string]
	// networks are the VirtualNetworks in the own Namespaces.
	networks *derive.Table[derive.Object, tenant.VirtualNetworkFacts]
	// byOriginal are copies of all clusters by the name of the original Namespace.
	byOriginal *derive.Index[derive.Object, derive.Object, *copied]
}

// addOwn adds the tables of the central cluster's own Namespaces.
func (c *central) addOwn(e *derive.Engine, id *derive.Table[derive.Name, derive.Name]) {
	c.own.id = id
	c.own.byOriginal = derive.NewIndex(c.copies, "original", func(_ derive.Object, of *copied) []derive.Object {
		return []derive.Object{{Name: of.Name}}
	})
	c.own.copies = derive.NewTable(e, "copies of own namespaces", c.ownCopy, derive.KeysOfIndex(c.own.byOriginal))
	c.own.networks = derive.NewTable(e, "own networks",
		func(k derive.Object, r *derive.Reader) (f tenant.VirtualNetworkFacts, _ []problem.Problem) {
			if n, _ := derive.Get(r, c.virtual, k); c.isOwn(k.Namespace, r) {
				f = n.VirtualNetworkFacts
			}
			return f, nil
		}, derive.KeysOf(c.virtual))
}

// ownCopy returns the name of the copy of a Namespace of the central cluster. Each member chooses the names and UIDs in
// its list, so only the list of the leader's own cluster counts. It has to list the UID of the Namespace. If the list
// is not known, the existing copy is kept, and has no UID. If two Kubemanagers have copies, a copy that may be joined
// has precedence.
func (c *central) ownCopy(k derive.Object, r *derive.Reader) (name string, _ []problem.Problem) {
	id, _ := derive.Get(r, c.own.id, one)
	n, _ := derive.Get(r, c.namespaces, k)
	if id == "" || n == nil || !n.Isolated {
		return "", nil
	}
	for _, row := range derive.List(r, c.own.byOriginal, k) {
		of := row.Value
		if of.ClusterID != string(id) || !of.Kept && of.UID != n.UID || !c.isLive(row.Key.Name, r) {
			continue
		}
		if name == "" || of.Out == nil {
			name = row.Key.Name
		}
		if of.Out == nil {
			break
		}
	}
	return name, nil
}

// isOwn reports whether a Namespace of the central cluster has a copy.
func (c *central) isOwn(namespace string, r *derive.Reader) bool {
	_, ok := derive.Get(r, c.own.copies, derive.Object{Name: namespace})
	return ok
}
