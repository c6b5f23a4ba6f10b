package tenants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// isolated has the facts of an isolated Namespace. Other Namespaces have no row.
type isolated struct {
	exportcheck.IsolatedNamespace
	Created int64
	Cut     bool // it has more labels than the list may have
}

func isolatedFacts(o *corev1.Namespace) *isolated {
	f := tenant.NamespaceFactsOf(o)
	if !f.Isolated || !o.DeletionTimestamp.IsZero() {
		return nil
	}
	n := &isolated{IsolatedNamespace: exportcheck.IsolatedNamespace{Name: o.Name, UID: o.UID}, Created: f.Created}
	n.Labels, n.Cut = listedLabels(o.Labels)
	return n
}

// listedLabels returns the labels of an object that fit into the list, and whether some labels are left out.
func listedLabels(all map[string]string) (listed map[string]string, cut bool) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !exportcheck.Copied(key) {
			continue
		}
		bytes := len(key) + len(all[key]) + len(`"":"",`)
		if len(listed) == exportcheck.MaxNamespaceLabels || size+bytes > exportcheck.MaxLabelBytes {
			cut = true
			continue
		}
		if listed == nil {
			listed = map[string]string{}
		}
		listed[key] = all[key]
		size += bytes
	}
	return listed, cut
}

// virtualNetwork has the facts of a VirtualNetwork with Subnets. Others have no row.
type virtualNetwork struct {
	exportcheck.VirtualNetwork
	Created int64
	Cut     bool // as of isolated
}

func virtualNetworkFacts(o *contrailv4.VirtualNetwork) *virtualNetwork {
	f := tenant.VirtualNetworkFactsOf(o)
	if f.Subnets == [2]string{} || !o.DeletionTimestamp.IsZero() {
		return nil
	}
	m := ownMeta(o)
	n := &virtualNetwork{VirtualNetwork: exportcheck.VirtualNetwork{Name: o.Name, UID: o.UID,
		Requested: isOwn(&m)}, Created: f.Created}
	n.Labels, n.Cut = listedLabels(o.Labels)
	return n
}

// lease has the facts of a SubnetLease: a range from which Pods of a VirtualNetwork have addresses. If the range of the
// lease is not valid, the facts are zero. They are also zero for a separate network, since no router joins it. The
// leader would refuse the range to the network that has it, too.
type lease struct {
	Network derive.Object
	CIDR    string
	Ending  bool // no further Pod gets an address
}

func leaseFacts(o *tombolov1alpha1.SubnetLease) lease {
	f := tenant.LeaseFactsOf(o)
	text := f.Range.CIDR.Masked().String()
	if _, ok := exportcheck.NetworkRange(text); !ok || f.Zone != 0 {
		return lease{}
	}
	return lease{f.Network, text, f.Ending}
}

// newExport adds the table of the list of isolated Namespaces. The kinds of VirtualNetworks are optional.
func (t *Tables) newExport(k *writes.Kinds) {
	t.namespaces = watch.NewSource(k.Cluster, "isolated namespaces", isolatedFacts)
	t.virtual = watch.NewSource(k.Cluster, "virtual networks with subnets", virtualNetworkFacts, watch.IfAllowed())
	t.leases = watch.NewSource(k.Cluster, "ranges of virtual networks", leaseFacts, watch.IfAllowed())
	t.inSpace = derive.NewIndex(t.virtual, "namespace", func(k derive.Object, _ *virtualNetwork) []derive.Name {
		return []derive.Name{derive.Name(k.Namespace)}
	})
	t.leased = derive.NewIndex(t.leases, "virtual network", func(_ derive.Object, l lease) []derive.Object {
		return []derive.Object{l.Network}
	})
	t.export = derive.NewTable(k.Engine, "list of namespaces", t.exportOf, derive.KeysOf(t.base.Environment))
	t.ByName = derive.NewIndex(t.export, "name", func(_ derive.Name, re *mcv1alpha1.ResourceExport) []derive.Object {
		return []derive.Object{derive.ObjectOf(re)}
	})
}

// exportOf returns the list of isolated Namespaces for the central cluster, if this cluster has agreed. It may be
// empty. If there are too many Namespaces, it has the oldest ones.
func (t *Tables) exportOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.ID == "" || !m.Central {
		return nil, nil
	}
	list := exportcheck.Namespaces{ClusterID: m.ID, Families: t.families(r),
		Namespaces: []exportcheck.IsolatedNamespace{}}
	all := derive.Values(derive.All(r, t.namespaces))
	slices.SortStableFunc(all, func(a, b *isolated) int { return cmp.Compare(a.Created, b.Created) })
	var cut []string
	for _, n := range all[:min(len(all), exportcheck.MaxNamespaces)] {
		list.Namespaces = append(list.Namespaces, n.IsolatedNamespace)
		if n.Cut {
			cut = append(cut, "Namespace "+n.Name)
		}
	}
	slices.SortFunc(list.Namespaces, func(a, b exportcheck.IsolatedNamespace) int { return cmp.Compare(a.Name, b.Name) })
	cutNetworks, without := t.addNetworks(&list, r)
	var ps problem.List
	if cut = append(cut, cutNetworks...); len(cut) > 0 {
		slices.Sort(cut)
		ps.Add(m.ClusterSet(), "", reasonTooManyLabels, fmt.Sprintf("copies in the central cluster are without some labels "+
			"of %s: it gets at most %d labels and %d bytes of labels of each: shorten or remove labels",
			problem.Few(cut), exportcheck.MaxNamespaceLabels, exportcheck.MaxLabelBytes))
	}
	if left := len(all) - len(list.Namespaces); left > 0 {
		ps.Add(m.ClusterSet(), "", reasonTooManyNamespaces, fmt.Sprintf("%d isolated Namespaces have no copies in the "+
			"central cluster: it gets at most the %d oldest ones: delete Namespaces, or isolate fewer",
			left, exportcheck.MaxNamespaces))
	}
	if without > 0 {
		ps.Add(m.ClusterSet(), "", reasonTooManyVirtualNetworks, fmt.Sprintf("%d VirtualNetworks have no copies in the "+
			"central cluster: it gets at most the %d oldest ones, and at most %d bytes about them and their Namespaces: delete "+
			"VirtualNetworks, or shorten labels", without, exportcheck.MaxVirtualNetworks, exportcheck.MaxNamespaceBytes))
	}
	key := derive.Object{Namespace: m.Common, Name: m.ID + multicluster.NamespacesSuffix}
	if have, _ := derive.Get(r, t.base.ResourceExports, key); have != nil {
		for _, c := range have.Status.Conditions {
			if membership.Refuses(c) {
				ps.Add(m.ClusterSet(), "", membership.ReasonOf(c), "the leader refuses the list of isolated Namespaces: "+
					c.Message)
			}
		}
	}
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{
			multicluster.LabelSourceKind: multicluster.NamespacesKind, multicluster.LabelSourceClusterID: m.ID,
		}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: m.ID, Kind: multicluster.NamespacesKind,
			Raw: &mcv1alpha1.RawResource{Data: list.JSON()}},
	}, ps
}

// listed is a VirtualNetwork of a Namespace of the list.
type listed struct {
	*virtualNetwork
	at int // of the Namespace
}

// addNetworks adds VirtualNetworks to the Namespaces of a list: the oldest ones of the cluster, while there is room. It
// returns the added VirtualNetworks that lack labels, and the number of VirtualNetworks that do not fit. It ignores
// VirtualNetworks beyond the limit of their Namespace, since no Pod is in them.
func (t *Tables) addNetworks(list *exportcheck.Namespaces, r *derive.Reader) (cut []string, without int) {
	var all []listed
	older := func(a, b listed) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.UID, b.UID))
	}
	for i, n := range list.Namespaces {
		var own []listed
		for _, row := range derive.List(r, t.inSpace, derive.Name(n.Name)) {
			own = append(own, listed{row.Value, i})
		}
		slices.SortFunc(own, older)
		all = append(all, own[:min(len(own), tenant.MaxNetworks)]...)
	}
	slices.SortFunc(all, older)
	size := len(list.JSON())
	for i, one := range all {
		n := &list.Namespaces[one.at]
		entry := one.VirtualNetwork
		entry.CIDRs = t.rangesOf(derive.Object{Namespace: n.Name, Name: one.Name}, r)
		size += len(entry.JSON()) + len(",")
		if n.VirtualNetworks == nil {
			size += len(`,"virtualNetworks":[]`)
		}
		if i == exportcheck.MaxVirtualNetworks || size > exportcheck.MaxNamespaceBytes {
			without = len(all) - i
			break
		}
		n.VirtualNetworks = append(n.VirtualNetworks, entry)
		if one.Cut {
			cut = append(cut, "VirtualNetwork "+n.Name+"/"+one.Name)
		}
	}
	for _, n := range list.Namespaces {
		slices.SortFunc(n.VirtualNetworks, func(a, b exportcheck.VirtualNetwork) int { return cmp.Compare(a.Name, b.Name) })
	}
	return cut, without
}

// rangesOf returns the ranges of a VirtualNetwork, from its leases. If there are too many, it leaves out ranges of
// deleted Subnets first.
func (t *Tables) rangesOf(network derive.Object, r *derive.Reader) (out []string) {
	leases := derive.Values(derive.List(r, t.leased, network))
	slices.SortStableFunc(leases, func(a, b lease) int {
		switch {
		case a.Ending == b.Ending:
			return 0
		case a.Ending:
			return 1
		}
		return -1
	})
	for _, l := range leases {
		if len(out) < exportcheck.MaxNetworkRanges && !slices.Contains(out, l.CIDR) {
			out = append(out, l.CIDR)
		}
	}
	slices.Sort(out)
	return out
}

// families returns the versions of IP of this cluster's Pods, as in v6,v4.
func (t *Tables) families(r *derive.Reader) string {
	var v4, v6 bool
	own, _ := derive.Get(r, t.base.Own, membership.Here)
	for _, p := range own.Pods {
		v4, v6 = v4 || p.Addr().Is4(), v6 || p.Addr().Is6()
	}
	var out []string
	if v6 {
		out = append(out, "v6")
	}
	if v4 {
		out = append(out, "v4")
	}
	return strings.Join(out, ",")
}
