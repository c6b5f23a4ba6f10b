package tenant

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// AnnotationNetwork on an isolated Namespace names the TenantNetwork of the ClusterSet that the Namespace joins. It is
// the consent of the Namespace. The TenantNetwork has to select the Namespace, too.
const AnnotationNetwork = "tombolo.io/tenant-network"

// doorClusterSet is the front door of networks of several clusters. In the order of names, its networks come before
// networks of isolated Namespaces. So a Namespace that is in both is in the network of several clusters.
const doorClusterSet = "clusterset"

// ClusterSetFacts are the part of a TenantNetworkImport that networks depend on.
type ClusterSetFacts struct {
	UID types.UID
	ID  ID
	// Selectors select its Namespaces of this cluster. One of them is enough.
	Selectors []labels.Selector
	// Namespace is in the network without its own annotation, since its cluster has consented to decisions of the central
	// cluster.
	Namespace tombolov1alpha1.NamespaceReference
	// VirtualNetwork is set if the network is this VirtualNetwork of Namespace. Then no Namespace is in the network.
	VirtualNetwork tombolov1alpha1.VirtualNetworkReference
	// Clusters are the IDs of other clusters that have Namespaces in it.
	Clusters []string
	Joins    []Join
	Problems []problem.Problem
}

// ClusterSetFactsOf returns the facts about a TenantNetworkImport.
func ClusterSetFactsOf(i *tombolov1alpha1.TenantNetworkImport) ClusterSetFacts {
	f := ClusterSetFacts{UID: i.UID, ID: shared + ID(i.Spec.Number), Clusters: i.Spec.ClusterIDs}
	var ps problem.List
	for at, s := range i.Spec.NamespaceSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			ps.Add(problem.About("TenantNetworkImport", "", i.Name), fmt.Sprintf("spec.namespaceSelectors[%d]", at),
				reasonInvalidSelector, err.Error()+", so it selects nothing: correct it in the TenantNetwork in the leader")
			continue
		}
		f.Selectors = append(f.Selectors, selector)
	}
	if i.Spec.Namespace != nil {
		f.Namespace = *i.Spec.Namespace
	}
	if i.Spec.VirtualNetwork != nil {
		f.VirtualNetwork, f.Selectors = *i.Spec.VirtualNetwork, nil
	}
	for at, j := range i.Spec.Joined {
		join := Join{ID: shared + ID(j.Number), Clusters: j.ClusterIDs, Virtual: len(j.CIDRs) > 0}
		for k, text := range j.CIDRs {
			cidr, fault := farRange(text)
			if fault != "" {
				ps.Add(problem.About("TenantNetworkImport", "", i.Name), fmt.Sprintf("spec.joined[%d].cidrs[%d]", at, k),
					reasonInvalid, problem.Quoted(text)+" of network "+j.Name+" "+fault+", so no packet goes there: create another "+
						"Subnet in that network's cluster")
				continue
			}
			join.Ranges = append(join.Ranges, cidr)
		}
		f.Joins = append(f.Joins, join)
	}
	f.Problems = ps
	return f
}

// CopyOf reports whether the network is the network of the copy of a Namespace in the central cluster. Then the copy
// has the import's name. If the import is for an earlier Namespace of the same name, CopyOf returns false.
func (f ClusterSetFacts) CopyOf(namespace string, uid types.UID) bool {
	return f.VirtualNetwork.Name == "" && f.Namespace.Name == namespace && f.Namespace.UID == uid && uid != ""
}

// Join is a network of several clusters, or of another one, that a network is joined with.
type Join struct {
	ID       ID
	Clusters []string
	// Virtual is set for a VirtualNetwork with Subnets. Ranges are the valid ones of its Pods.
	Virtual bool
	Ranges  []netip.Prefix
}

// clusterSet are the networks of several clusters.
type clusterSet struct {
	Objects
	consenting *derive.Index[derive.Name, derive.Object, NamespaceFacts] // Namespaces by the network that they name
}

// centralOf returns the index, by Namespace, of the networks of copies in the central cluster.
func centralOf(o Objects) *derive.Index[derive.Object, derive.Object, ClusterSetFacts] {
	return derive.NewIndex(o.Imports, "namespace", func(_ derive.Object, f ClusterSetFacts) []derive.Object {
		if f.Namespace.Name == "" || f.VirtualNetwork.Name != "" {
			return nil
		}
		return []derive.Object{{Name: f.Namespace.Name}}
	})
}

// newClusterSet returns the networks of several clusters, of which this cluster is one.
func newClusterSet(e *derive.Engine, o Objects) *derive.Table[Name, Network] {
	c := &clusterSet{Objects: o}
	c.consenting = derive.NewIndex(o.Namespaces, "tenant network", func(_ derive.Object, f NamespaceFacts) []derive.Name {
		if f.Network == "" {
			return nil
		}
		return []derive.Name{derive.Name(f.Network)}
	})
	byName := derive.NewIndex(o.Imports, "name", func(k derive.Object, _ ClusterSetFacts) []Name {
		return []Name{{Door: doorClusterSet, Name: k.Name}}
	})
	derive.NewTable(e, "consents", c.consent, derive.KeysOf(o.Namespaces))
	return derive.NewTable(e, "networks-of-clusterset", c.network, derive.KeysOfIndex(byName))
}

// network returns a network with its Namespaces of this cluster.
func (c *clusterSet) network(name Name, r *derive.Reader) (Network, []problem.Problem) {
	f, _ := derive.Get(r, c.Imports, derive.Object{Name: name.Name})
	if f.VirtualNetwork.Name != "" { // the front door of VirtualNetworks has the network
		return Network{Object: problem.About("TenantNetworkImport", "", name.Name), UID: f.UID, ID: f.ID}, f.Problems
	}
	out := Network{Object: problem.About("TenantNetworkImport", "", name.Name), UID: f.UID, ID: f.ID,
		Field: "spec.namespaceSelectors", Clusters: f.Clusters, Joins: f.Joins}
	for _, row := range derive.List(r, c.consenting, derive.Name(name.Name)) {
		if c.selects(f, row.Key, r) {
			out.Members = append(out.Members, Member{Namespace: row.Key.Name})
		}
	}
	if own := (derive.Object{Name: f.Namespace.Name}); own.Name != "" {
		member := Member{Namespace: own.Name}
		if network, spans := c.spans(own, r); spans && network == name.Name && !slices.Contains(out.Members, member) {
			out.Members = append(out.Members, member)
		}
	}
	return out, f.Problems
}

// spans returns the network of several clusters that a Namespace is in. The network in the Namespace's own annotation
// has precedence over the network of its copy in the central cluster.
func (o Objects) spans(namespace derive.Object, r *derive.Reader) (network string, spans bool) {
	if network, spans = o.agreed(namespace, r); spans || o.central == nil {
		return network, spans
	}
	f, _ := derive.Get(r, o.Namespaces, namespace)
	for _, row := range derive.List(r, o.central, namespace) {
		if f.Isolated && row.Value.Namespace.UID == f.UID {
			return row.Key.Name, true
		}
	}
	return "", false
}

// agreed returns the network in a Namespace's annotation, and whether the network selects the Namespace.
func (o Objects) agreed(namespace derive.Object, r *derive.Reader) (string, bool) {
	f, _ := derive.Get(r, o.Namespaces, namespace)
	imported, there := derive.Get(r, o.Imports, derive.Object{Name: f.Network})
	return f.Network, f.Network != "" && there && o.selects(imported, namespace, r)
}

// selects reports whether a network selects a Namespace.
func (o Objects) selects(f ClusterSetFacts, namespace derive.Object, r *derive.Reader) bool {
	set, _ := derive.Get(r, o.Labels, namespace)
	return slices.ContainsFunc(f.Selectors, func(s labels.Selector) bool { return s.Matches(set) })
}

// consent reports a Namespace that names a network which it does not get into.
func (c *clusterSet) consent(namespace derive.Object, r *derive.Reader) (bool, []problem.Problem) {
	f, _ := derive.Get(r, c.Namespaces, namespace)
	if f.Network == "" {
		return false, nil
	}
	object := problem.About("Namespace", "", namespace.Name)
	var ps problem.List
	in := "it is in a network of its own: "
	if network, central := c.spans(namespace, r); central {
		in = "it is in TenantNetwork " + network + " of its copy in the central cluster: "
	}
	imported, there := derive.Get(r, c.Imports, derive.Object{Name: f.Network})
	switch {
	case !there:
		ps.Add(object, networkField, reasonNetworkNotFound, in+"no TenantNetwork "+
			problem.Quoted(f.Network)+" of the ClusterSet has members in this cluster: correct the annotation "+
			AnnotationNetwork+", or add this cluster to the members of the TenantNetwork in the leader")
	case !c.selects(imported, namespace, r):
		ps.Add(object, networkField, reasonNotSelected, in+"TenantNetwork "+f.Network+
			" does not select it: change its labels, or the namespaceSelector of this cluster's member of the TenantNetwork "+
			"in the leader")
	}
	return true, ps
}
