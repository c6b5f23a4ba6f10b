package identities

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// block is a block of addresses, as a key.
type block struct{ netip.Prefix }

// Compare makes it a key.
func (b block) Compare(o block) int {
	return cmp.Or(b.Addr().Compare(o.Addr()), cmp.Compare(b.Bits(), o.Bits()))
}

func blockOf(a netip.Addr) block { return block{exportcheck.BlockOf(a)} }

// Addresses has addresses of Pods. This cluster's are published with publishPodAddresses. Other clusters' are imported
// with enableStretchedNetworkPolicy.
//
//	pods, identities, exports of labels ─► blocks ─► too many ─► exports
//	resourceimports, clusterinfos ─► PodAddressImports
type Addresses struct {
	base   *membership.Tables
	labels *Labels
	infos  derive.Readable[derive.Name, []*mcv1alpha1.ClusterInfoImport]
	// carriesIPv6 reports whether the leader has this cluster's ranges of IPv6.
	carriesIPv6 func(*derive.Reader) bool
	Most        int // addresses that are exported at most

	podAddressImports *derive.Source[derive.Object, *mcv1alpha1.PodAddressImport]

	podsIn         *derive.Index[block, derive.Object, podFacts]
	blocks         *derive.Table[block, published]
	unpublished    *derive.Table[derive.Name, tooMany]
	AddressExports *derive.Table[block, *mcv1alpha1.ResourceExport]
	ByName         *derive.Index[derive.Object, block, *mcv1alpha1.ResourceExport] // exports

	Addresses *derive.Table[derive.Object, *mcv1alpha1.PodAddressImport]
}

// publishedRanges are the ranges in which Pods' addresses are published.
func publishedRanges(cfg config.Config) []netip.Prefix {
	if !cfg.PublishPodAddresses {
		return nil
	}
	return exportcheck.Prefixes(cfg.PodCIDRs)
}

// NewAddresses adds the tables of Pods' addresses.
func NewAddresses(k *writes.Kinds, base *membership.Tables, labels *Labels,
	infos derive.Readable[derive.Name, []*mcv1alpha1.ClusterInfoImport],
	carriesIPv6 func(*derive.Reader) bool) *Addresses {
	t := &Addresses{base: base, labels: labels, infos: infos, carriesIPv6: carriesIPv6, Most: exportcheck.MaxAddresses}
	t.podAddressImports = writes.NewSource(k, k.Cluster, "PodAddressImport", "podaddressimports",
		podAddressImportFacts, writes.Version, watch.In(base.Namespace), watch.Optional())
	e := k.Engine
	t.podsIn = derive.NewIndex(t.labels.pods, "block", func(_ derive.Object, f podFacts) []block {
		var out []block
		for _, ip := range f.IPs {
			out = append(out, blockOf(ip))
		}
		return out
	})
	t.blocks = derive.NewTable(e, "blocks of addresses", t.addressesIn, derive.KeysOfIndex(t.podsIn))
	t.unpublished = derive.NewTable(e, "blocks that are too many", t.tooManyBlocks, derive.KeysOf(t.base.Environment))
	t.AddressExports = derive.NewTable(e, "exports of addresses", t.addressExportOf, derive.KeysOf(t.blocks))
	t.ByName = derive.NewIndex(t.AddressExports, "name", func(_ block, re *mcv1alpha1.ResourceExport) []derive.Object {
		return []derive.Object{derive.ObjectOf(re)}
	})
	named := derive.NewIndex(t.base.ResourceImports, "PodAddressImport",
		func(k derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Object {
			if ri.Spec.Kind != multicluster.PodAddressesKind {
				return nil
			}
			return []derive.Object{{Namespace: t.base.Namespace, Name: k.Name}}
		})
	t.Addresses = derive.NewTable(e, "podaddressimports of the ClusterSet", t.addressImportOf, derive.KeysOfIndex(named))
	return t
}

func (t *Addresses) Writes(k *writes.Kinds) *writes.Table {
	return k.Table("write-podaddressimports", t.writePodAddressImport,
		derive.KeysOf(t.podAddressImports), derive.KeysOf(t.Addresses))
}

func podAddressImportFacts(o *mcv1alpha1.PodAddressImport) *mcv1alpha1.PodAddressImport {
	return &mcv1alpha1.PodAddressImport{ObjectMeta: writes.MetaFacts(o), Spec: o.Spec}
}

// published are the addresses of a block, by the hash of their Pods' labels.
type published struct {
	Labels map[string][]netip.Addr
	Count  int
}

// addressesIn returns the addresses in a block whose labels are exported. An address counts for a Pod only in the
// podCIDRs of its Node. So no Node can report addresses of Pods of other Nodes. If several Pods of the Node have an
// address, the newest Pod counts, as in the agents (policy.Tables).
func (t *Addresses) addressesIn(b block, r *derive.Reader) (p published, _ []problem.Problem) {
	type holder struct {
		hash    string // empty if the labels are not exported
		created int64
	}
	if b.Addr().Is6() && !t.carriesIPv6(r) {
		return published{}, nil
	}
	holders := map[netip.Addr]holder{}
	for _, row := range derive.List(r, t.podsIn, b) {
		hash := ""
		if id, known := derive.Get(r, t.labels.podIdentities, row.Key); known {
			if re, _ := derive.Get(r, t.labels.LabelExports, id); re != nil {
				hash = multicluster.LabelHash(string(id))
			}
		}
		node, _ := derive.Get(r, t.base.Nodes, derive.Object{Name: row.Value.Node})
		for _, ip := range row.Value.IPs {
			if !b.Contains(ip) || !hasPodAddress(node, ip) {
				continue
			}
			if other, twice := holders[ip]; !twice || other.created < row.Value.Created {
				holders[ip] = holder{hash, row.Value.Created}
			}
		}
	}
	for ip, of := range holders {
		hash := of.hash
		if hash == "" {
			continue
		}
		if p.Labels == nil {
			p.Labels = map[string][]netip.Addr{}
		}
		p.Labels[hash] = append(p.Labels[hash], ip)
		p.Count++
	}
	for _, addresses := range p.Labels {
		slices.SortFunc(addresses, netip.Addr.Compare)
	}
	return p, nil
}

// hasPodAddress reports whether a Node, nil if it is gone, has an address in its podCIDRs.
func hasPodAddress(n *corev1.Node, a netip.Addr) bool {
	return n != nil && slices.ContainsFunc(n.Spec.PodCIDRs, func(text string) bool {
		r, err := netip.ParsePrefix(text)
		return err == nil && r.Contains(a)
	})
}

// tooMany are blocks that are not published.
type tooMany struct{ Blocks map[block]bool }

// tooManyBlocks selects the blocks beyond the largest number that a cluster may publish. Blocks that are published
// already have precedence.
func (t *Addresses) tooManyBlocks(_ derive.Name, r *derive.Reader) (tooMany, []problem.Problem) {
	rows := derive.All(r, t.blocks)
	count := 0
	for _, row := range rows {
		count += row.Value.Count
	}
	if count <= t.Most && len(rows) <= exportcheck.MaxAddressBlocks {
		return tooMany{}, nil
	}
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	var have, others []derive.Row[block, published]
	for _, row := range rows {
		if _, exported := derive.Get(r, t.base.ResourceExports, addressExportKey(m, row.Key)); exported {
			have = append(have, row)
		} else {
			others = append(others, row)
		}
	}
	out := tooMany{map[block]bool{}}
	blocks, addresses := 0, 0
	for _, row := range append(have, others...) {
		if blocks == exportcheck.MaxAddressBlocks || addresses+row.Value.Count > t.Most {
			out.Blocks[row.Key] = true
			continue
		}
		blocks, addresses = blocks+1, addresses+row.Value.Count
	}
	var ps problem.List
	ps.Add(m.ClusterSet(), "", reasonAddressLimit, fmt.Sprintf(
		"Pods here have more than %d addresses, or in more than %d blocks of 256: not all of them are published, "+
			"and egress rules of other clusters with scope ClusterSet do not match the others; run fewer Pods in podCIDRs",
		t.Most, exportcheck.MaxAddressBlocks))
	return out, ps
}

// addressExportKey is the key of the ResourceExport of a block.
func addressExportKey(m membership.Membership, b block) derive.Object {
	return derive.Object{Namespace: m.Common, Name: multicluster.PodAddressesName(m.ID, b.Prefix)}
}

func (t *Addresses) addressExportOf(b block, r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	p, _ := derive.Get(r, t.blocks, b)
	if m.ID == "" || p.Count == 0 {
		return nil, nil
	}
	if left, _ := derive.Get(r, t.unpublished, membership.Here); left.Blocks[b] {
		return nil, nil
	}
	var ps problem.List
	key := addressExportKey(m, b)
	if have, _ := derive.Get(r, t.base.ResourceExports, key); have != nil {
		for _, c := range have.Status.Conditions {
			if membership.Refuses(c) { // without the name: many Problems with one cause become one
				ps.Add(m.ClusterSet(), "", membership.ReasonOf(c),
					"the leader refuses addresses of Pods of this cluster: "+c.Message)
			}
		}
	}
	data := exportcheck.PodAddresses{ClusterID: m.ID, Block: b.Prefix, Labels: p.Labels}.JSON()
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{
			multicluster.LabelSourceKind: multicluster.PodAddressesKind, multicluster.LabelSourceClusterID: m.ID,
		}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: m.ID, Kind: multicluster.PodAddressesKind,
			Raw: &mcv1alpha1.RawResource{Data: data}},
	}, ps
}

// readAddresses reads the ResourceImport of a block. It checks it, since the leader may be another implementation.
func readAddresses(ri *mcv1alpha1.ResourceImport) (exportcheck.PodAddresses, error) {
	if ri.Spec.Raw == nil {
		return exportcheck.PodAddresses{}, fmt.Errorf("spec.raw is missing")
	}
	p, err := exportcheck.ReadPodAddresses(ri.Spec.Raw.Data)
	if err != nil {
		return p, err
	}
	if name := multicluster.PodAddressesName(p.ClusterID, p.Block); name != ri.Name {
		return p, fmt.Errorf("metadata.name: it is block %s of cluster %s: expected %s as the name", p.Block,
			p.ClusterID, name)
	}
	return p, nil
}

// addressImportOf returns the PodAddressImport for a ResourceImport of Pods' addresses. It omits addresses outside of
// the Pod ranges in the cluster's ClusterInfoImport, and addresses of this cluster.
func (t *Addresses) addressImportOf(k derive.Object,
	r *derive.Reader) (*mcv1alpha1.PodAddressImport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if !m.Joined || !t.base.Config.EnableStretchedNetworkPolicy {
		return nil, nil
	}
	ri, ok := derive.Get(r, t.base.ResourceImports, derive.Object{Namespace: m.Common, Name: k.Name})
	if !ok || !ri.DeletionTimestamp.IsZero() || !m.IsFor(ri) {
		return nil, nil
	}
	var ps problem.List
	ignored := func(what string, args ...any) {
		ps.Add(m.ClusterSet(), "", membership.ReasonImportInvalid,
			fmt.Sprintf("ResourceImport %s/%s of the leader is ignored: ", ri.Namespace, ri.Name)+fmt.Sprintf(what, args...))
	}
	p, err := readAddresses(ri)
	switch {
	case err != nil:
		ignored("%v", err)
		return nil, ps
	case p.ClusterID == m.ID:
		return nil, nil
	}
	infos, _ := derive.Get(r, t.infos, membership.Here)
	i := slices.IndexFunc(infos, func(cii *mcv1alpha1.ClusterInfoImport) bool { return cii.Spec.ClusterID == p.ClusterID })
	if i < 0 { // as while its Gateway moves: existing addresses stay, since the leader still has them
		have, _ := derive.Get(r, t.podAddressImports, k)
		if have == nil {
			ignored("cluster %s announces no Pod ranges here that its addresses could be in", p.ClusterID)
			return nil, ps
		}
		return &mcv1alpha1.PodAddressImport{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name},
			Spec: have.Spec}, nil
	}
	in, out := p.Within(exportcheck.Prefixes(infos[i].Spec.PodCIDRs))
	if len(out) > 0 {
		ignored("in part: these addresses are not in the Pod ranges of cluster %s: %s", p.ClusterID,
			exportcheck.AddressesText(out))
	}
	own, _ := derive.Get(r, t.base.Own, membership.Here)
	want := &mcv1alpha1.PodAddressImport{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name},
		Spec: mcv1alpha1.PodAddressImportSpec{ClusterID: p.ClusterID, Block: p.Block.String()}}
	for _, hash := range slices.Sorted(maps.Keys(in.Labels)) {
		pods := mcv1alpha1.PodAddresses{LabelIdentity: hash}
		for _, a := range in.Labels[hash] {
			if own.Meets(netip.PrefixFrom(a, a.BitLen())) == "" { // else ranges overlap, which is reported as such
				pods.Addresses = append(pods.Addresses, a.String())
			}
		}
		if len(pods.Addresses) > 0 {
			want.Spec.Pods = append(want.Spec.Pods, pods)
		}
	}
	if len(want.Spec.Pods) == 0 {
		return nil, ps
	}
	return want, ps
}

func (t *Addresses) writePodAddressImport(k derive.Object, r *derive.Reader) *writes.Write {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.KeepsImports() {
		return nil
	}
	have, _ := derive.Get(r, t.podAddressImports, k)
	want, _ := derive.Get(r, t.Addresses, k)
	return writes.Diff[*mcv1alpha1.PodAddressImport]{Kind: "PodAddressImport",
		Merge: func(into, want *mcv1alpha1.PodAddressImport) { into.Spec = want.Spec }}.
		Between(have, want, t.base.About(m))
}
