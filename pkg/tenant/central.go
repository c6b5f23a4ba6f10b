package tenant

import (
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Own are isolated Namespaces of the central cluster itself that have copies there. They are in the tables of the
// leader. A router in such a Namespace joins the networks of the copy. But it selects them by the labels of the
// networks in its own Namespace.
type Own struct {
	// Copies are the names of the copies, by the Namespace.
	Copies derive.Readable[derive.Object, string]
	// Networks are the VirtualNetworks in the Namespaces.
	Networks derive.Readable[derive.Object, VirtualNetworkFacts]
}

// site is where the networks are that routers of a Namespace select.
type site struct {
	namespace string // of the routers
	space     string // of the networks: the same, or its copy
	networks  derive.Readable[derive.Object, VirtualNetworkFacts]
}

// siteOf returns the site of the routers of a Namespace.
func (o Objects) siteOf(namespace string, r *derive.Reader) site {
	if o.Own.Copies != nil {
		if space, ok := derive.Get(r, o.Own.Copies, derive.Object{Name: namespace}); ok {
			return site{namespace, space, o.Own.Networks}
		}
	}
	return site{namespace, namespace, o.Networks}
}

// network returns the facts of a VirtualNetwork in the Namespace of the routers.
func (s site) network(name string, r *derive.Reader) (VirtualNetworkFacts, bool) {
	return derive.Get(r, s.networks, derive.Object{Namespace: s.namespace, Name: name})
}

// copiedHere reports whether a Namespace has a copy in this cluster, which is then the central one. The copy has the
// name of its TenantNetwork.
func (o Objects) copiedHere(namespace derive.Object, r *derive.Reader) bool {
	f, _ := derive.Get(r, o.Namespaces, namespace)
	for _, row := range derive.List(r, o.central, namespace) {
		if there, _ := derive.Get(r, o.Namespaces, row.Key); there.Copy && f.Isolated && row.Value.Namespace.UID == f.UID {
			return true
		}
	}
	return false
}

// copySearch finds the routers in copies that one router imports. Its limits are separate from the limits for routers
// of this cluster, so routers in copies displace no routers of this cluster.
type copySearch struct {
	*search
	// count is set if the Namespace of the router has a copy. Otherwise the leader ignores the router.
	count bool
}

func (t *routerTables) newCopySearch(own derive.Object, r *derive.Reader) copySearch {
	return copySearch{newSearch(t, &t.copied, own, r), t.copiedHere(derive.Object{Name: own.Namespace}, r)}
}

// selects adds the routers in copies that an import selects. It reports whether there is one. If there are too many
// candidates to compare, the second result is false.
func (s copySearch) selects(i ImportFacts) (one, known bool) {
	candidates, known := s.candidates(i)
	return known && s.selected(i, candidates), known
}

// apart reports imported routers of isolated Namespaces in this cluster that cannot be joined, since only one of the
// two Namespaces has a copy. The leader joins Namespaces with copies, and the cluster's own tables join Namespaces
// without copies. Only the first interfaces of Pods are affected.
func (t *routerTables) apart(out *Router, namespace string, r *derive.Reader, ps *problem.List) {
	own := t.copiedHere(derive.Object{Name: namespace}, r)
	var others []string
	for _, name := range out.Imports {
		k := derive.Object{Name: name.Namespace}
		if f, _ := derive.Get(r, t.Namespaces, k); f.Isolated && t.copiedHere(k, r) != own {
			others = append(others, k.Name)
		}
	}
	if others = slices.Compact(others); len(others) == 0 {
		return
	}
	words := "Namespace " + namespace + " has no copy here, and Namespace " + problem.Few(others) + " has a copy"
	if own {
		words = "Namespace " + namespace + " has a copy here, and Namespace " + problem.Few(others) + " has no copy"
	}
	ps.Add(out.Object, "spec.import", reasonNoCopy, words+", so the first interfaces of their Pods are not joined: "+
		"correct what the Kubemanager of this cluster reports, or create one")
}
