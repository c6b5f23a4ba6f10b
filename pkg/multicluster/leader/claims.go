package leader

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// claimed is the result for all ClusterInfos together.
type claimed struct {
	Imports map[string]*mcv1alpha1.ResourceImport // by name
	Failed  map[string]string                     // by the export's name
	Ranges  map[string]ranges                     // of clusters whose ClusterInfo is passed on, by cluster ID
	// Taken has, by cluster ID, the same ranges as Ranges, and also the ranges of clusters that withdrew their ClusterInfo
	// a short while ago.
	Taken []holder
}

// holder is a cluster that has ranges.
type holder struct {
	ClusterID string
	Has       ranges
	Gateways  []netip.Addr
}

// holderOf returns the ranges and gateway addresses that a cluster holds through its ClusterInfo.
func holderOf(id string, has ranges, info *mcv1alpha1.ClusterInfo) holder {
	h := holder{ClusterID: id, Has: has}
	for _, list := range [2][]mcv1alpha1.GatewayInfo{info.GatewayInfos, info.LeavingGateways} {
		for _, g := range list {
			if ip, err := netip.ParseAddr(g.GatewayIP); err == nil {
				h.Gateways = append(h.Gateways, ip)
			}
		}
	}
	return h
}

// ranges are a cluster's part of the addresses of a ClusterSet.
type ranges struct {
	Prefixes []netip.Prefix // of its Services and Pods
	All      bool           // it has no addresses but these
}

// rangesOf reads a ClusterInfo.
func rangesOf(info *mcv1alpha1.ClusterInfo) ranges {
	return ranges{Prefixes: exportcheck.Prefixes(info.Ranges()), All: announcesAll(info)}
}

// announcesAll reports whether the announced ranges of a cluster contain all its addresses. This is so if it announces
// Pod ranges or a WireGuard key. With a key it must be so, since other clusters would send packets to further addresses
// in plain text.
func announcesAll(info *mcv1alpha1.ClusterInfo) bool {
	hasKey := func(w *mcv1alpha1.WireGuardInfo) bool { return w != nil && w.PublicKey != "" }
	return len(info.PodCIDRs) > 0 || hasKey(info.WireGuard) ||
		slices.ContainsFunc(info.GatewayInfos, func(g mcv1alpha1.GatewayInfo) bool { return hasKey(g.WireGuard) })
}

// claim passes the clusters' network information on, the oldest export first. An address range or a gateway address
// belongs to one cluster (package claims). The first cluster of this order has it:
//  1. the cluster whose ResourceImport has it, or had it a short while ago,
//  2. the cluster that has, or had, imported endpoints there,
//  3. the cluster with the oldest export.
//
// If an export claims another cluster's range, only this export fails. The ranges of other exports are passed on.
func (t *claimTables) claim(_ derive.Name, r *derive.Reader) (claimed, []problem.Problem) {
	current := map[string]*mcv1alpha1.ClusterInfo{} // by the import's name
	// has lists the clusters whose ClusterInfo is imported. The value is true if the ranges of the ClusterInfo contain all
	// endpoints of the cluster.
	has := map[string]bool{}
	for _, row := range derive.List(r, t.infoImports, one) {
		if info := row.Value.Spec.ClusterInfo; row.Value.DeletionTimestamp == nil && info != nil {
			current[row.Key.Name] = info
			has[info.ClusterID] = announcesAll(info)
		}
	}
	held := map[string]*mcv1alpha1.ClusterInfo{}
	for _, row := range derive.All(r, t.all.facts.held) {
		if m, _ := derive.Get(r, t.all.members, row.Key); m.Announced && !m.Leaving {
			held[string(row.Key)] = row.Value
			has[string(row.Key)] = announcesAll(row.Value)
		}
	}
	c := claimed{Imports: map[string]*mcv1alpha1.ResourceImport{}, Failed: map[string]string{},
		Ranges: map[string]ranges{}}
	candidates, of := c.candidates(t.all.counting(r, derive.List(r, t.all.index.infos, one)), current, held)
	pins, _ := derive.Get(r, t.pins, one)
	users := t.users(r, has)
	for i, decision := range claims.DecideUsed(candidates, pins, users)[:len(of)] {
		e := of[i]
		switch {
		case len(decision.Faults) > 0:
			c.Failed[e.Key.Name] = faultsText(decision.Faults)
		case e.Wrong != "":
			c.Failed[e.Key.Name] = e.Wrong
		}
		if decision.Info == nil {
			continue
		}
		id := e.ClusterID
		own := rangesOf(decision.Info)
		own.All = own.All || announcesAll(e.Info) // all Pod ranges may be at fault
		c.Ranges[id] = own
		c.Taken = append(c.Taken, holderOf(id, own, decision.Info))
		c.Imports[e.Key.Name] = newImport(e.Key, map[string]bool{id: true}, mcv1alpha1.ResourceImportSpec{
			Namespace: e.Key.Namespace, Name: e.Key.Name, Kind: multicluster.ClusterInfoKind, ClusterInfo: decision.Info,
		})
		if e.Reached != "" {
			c.Imports[e.Key.Name].Annotations = map[string]string{multicluster.AnnotationReached: e.Reached}
		}
	}
	for _, withdrawn := range candidates[len(of):] {
		c.Taken = append(c.Taken, holderOf(withdrawn.ClusterID, rangesOf(withdrawn.Held), withdrawn.Held))
	}
	slices.SortFunc(c.Taken, func(a, b holder) int { return cmp.Compare(a.ClusterID, b.ClusterID) })
	return c, nil
}

// candidates returns the clusters with a valid announcement, and their exports. After them it returns the clusters that
// only hold earlier claims.
func (c *claimed) candidates(exports []*export, current, held map[string]*mcv1alpha1.ClusterInfo) ([]claims.Candidate,
	[]*export) {
	var candidates []claims.Candidate
	var of []*export
	from := map[string]bool{}
	for _, e := range exports {
		id, info := e.ClusterID, e.Info
		switch {
		case info == nil:
			c.Failed[e.Key.Name] = "spec.clusterInfo is missing"
			continue
		case info.ClusterID != id:
			c.Failed[e.Key.Name] = fmt.Sprintf("spec.clusterInfo.clusterID is %q: expected %q, as in spec.clusterID",
				info.ClusterID, id)
			continue
		case from[id]:
			c.Failed[e.Key.Name] = fmt.Sprintf("another ResourceExport describes cluster %s already; delete one of them", id)
			continue
		}
		from[id] = true
		has := current[e.Key.Name]
		if has == nil || has.ClusterID != id {
			has = held[id]
		}
		candidates = append(candidates, claims.Candidate{ClusterID: id, Wanted: info, Held: has})
		of = append(of, e)
	}
	for _, id := range slices.Sorted(maps.Keys(held)) {
		if !from[id] {
			candidates = append(candidates, claims.Candidate{ClusterID: id, Held: held[id]})
		}
	}
	return candidates, of
}

// use is an endpoint that is imported from a cluster, or was until a short while ago.
type use struct {
	IP netip.Addr
	ID string // the cluster's
}

func (u use) compare(o use) int { return cmp.Or(u.IP.Compare(o.IP), cmp.Compare(u.ID, o.ID)) }

// users finds the imported endpoints in a range that belong to other clusters, if these have no ClusterInfo with Pod
// ranges in effect. Such endpoints stay when another cluster announces the range later. They also stay while their
// import is missing for a moment or cannot be written.
func (t *claimTables) users(r *derive.Reader, has map[string]bool) claims.Used {
	found := map[derive.Name][]use{} // by block
	return func(prefix netip.Prefix, cluster string) (netip.Addr, string) {
		block := blockOf(prefix.Addr())
		users, known := found[block]
		if !known {
			for _, m := range derive.All(r, t.all.members) {
				if has[string(m.Key)] || !m.Value.Announced || m.Value.Leaving {
					continue
				}
				key := derive.Object{Namespace: string(block), Name: string(m.Key)}
				for _, row := range derive.List(r, t.all.index.usesIn, key) {
					for _, u := range row.Value {
						if u.ID == string(m.Key) {
							users = append(users, u)
						}
					}
				}
			}
			found[block] = users
		}
		for _, u := range users {
			if u.ID != cluster && prefix.Contains(u.IP) {
				return u.IP, u.ID
			}
		}
		return netip.Addr{}, ""
	}
}

// exportersOf returns the owners of an import's endpoints: the clusters that export them. It leaves out endpoints in
// ranges that these clusters already own. If no endpoints are left, it returns without further reads.
func (t *claimTables) exportersOf(key derive.Object, r *derive.Reader) ([]use, []problem.Problem) {
	ri, _ := derive.Get(r, t.all.facts.imports, key)
	if ri == nil || ri.Spec.Kind != multicluster.EndpointsKind || ri.Spec.Endpoints == nil {
		return nil, nil
	}
	in := clustersOf(ri)
	var held []netip.Prefix
	for id := range in {
		if info, has := derive.Get(r, t.all.facts.held, derive.Name(id)); has {
			held = append(held, rangesOf(info).Prefixes...)
		}
	}
	imported := map[netip.Addr]bool{}
	for ip := range addresses(ri.Spec.Endpoints.Subsets) {
		if !slices.ContainsFunc(held, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			imported[ip] = true
		}
	}
	if len(imported) == 0 {
		return nil, nil
	}
	var out []use
	for _, row := range derive.List(r, t.all.index.exportsTo, key) {
		e := row.Value
		if e.Kind != multicluster.EndpointsKind || e.Deleted || !in[e.ClusterID] {
			continue
		}
		for ip := range addresses(e.Subsets) {
			if imported[ip] {
				out = append(out, use{ip, e.ClusterID})
			}
		}
	}
	slices.SortFunc(out, use.compare)
	return slices.Compact(out), nil
}

// clustersOf returns the clusters whose endpoints an import has. Its annotation lists them. If another implementation
// or an earlier version has written the import, only its status lists them.
func clustersOf(ri *mcv1alpha1.ResourceImport) map[string]bool {
	in := map[string]bool{}
	text := ri.Annotations[multicluster.AnnotationSources]
	if sources, ok := exportcheck.ReadSources(text, ri.Spec.Endpoints.Subsets); ok {
		for id := range sources {
			in[id] = true
		}
		return in
	}
	for _, c := range ri.Status.ClusterStatuses {
		in[c.ClusterID] = true
	}
	return in
}

// addresses returns the addresses of Endpoints.
func addresses(subsets []corev1.EndpointSubset) func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		for _, s := range subsets {
			for _, list := range [2][]corev1.EndpointAddress{s.Addresses, s.NotReadyAddresses} {
				for _, a := range list {
					if ip, err := netip.ParseAddr(a.IP); err == nil && !yield(ip.Unmap()) {
						return
					}
				}
			}
		}
	}
}

// blocksOf are the blocks that endpoints are in, each with the cluster's ID.
func blocksOf(uses []use) []derive.Object {
	seen := map[derive.Object]bool{}
	var out []derive.Object
	for _, u := range uses {
		if b := (derive.Object{Namespace: string(blockOf(u.IP)), Name: u.ID}); !seen[b] {
			seen[b] = true
			out = append(out, b)
		}
	}
	return out
}

// blockOf names the block that an address is in: no range is larger.
func blockOf(ip netip.Addr) derive.Name { return derive.Name(claims.Block(ip).String()) }

// ownRanges are the ranges that a cluster's endpoints may be in.
func (t *claimTables) ownRanges(id derive.Name, r *derive.Reader) (ranges, []problem.Problem) {
	c, _ := derive.Get(r, t.claims, one)
	return c.Ranges[string(id)], nil
}

// takenRanges are the addresses that clusters have.
func (t *claimTables) takenRanges(_ derive.Name, r *derive.Reader) ([]holder, []problem.Problem) {
	c, _ := derive.Get(r, t.claims, one)
	return c.Taken, nil
}

// pinned reads the pins in the ClusterSet's annotations, which the administrator writes.
func (t *claimTables) pinned(_ derive.Name, r *derive.Reader) (claims.Pins, []problem.Problem) {
	sets := inOrder(values(derive.All(r, t.all.facts.sets)))
	if len(sets) == 0 {
		return nil, nil
	}
	pins, faults := claims.ReadPins(sets[0].Annotations)
	var problems []problem.Problem
	for _, f := range faults {
		problems = append(problems,
			problem.Problem{Object: problem.Object{Kind: "ClusterSet", Namespace: sets[0].Namespace, Name: sets[0].Name},
				Field: f.Field, Reason: reasonInvalidAnnotation, Message: f.Message})
	}
	return pins, problems
}

// faultsText returns a text about the first few faults of a ClusterInfo. The text becomes a condition, so it is short.
func faultsText(faults []claims.Fault) string {
	const most = 5
	var texts []string
	for _, f := range faults[:min(len(faults), most)] {
		texts = append(texts, "spec.clusterInfo."+f.String())
	}
	if more := len(faults) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
