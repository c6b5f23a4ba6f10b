package externalip

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/labels"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// view is everything that an assignment depends on, each list in the order of its keys.
type view struct {
	Services []derive.Row[derive.Object, serviceFacts]
	Pools    []derive.Row[derive.Object, poolFacts]
	Nodes    []derive.Row[derive.Object, nodeFacts]
	Ranges   []netip.Prefix // of ClusterIPs
}

// assignment is which Service has which address.
type assignment struct {
	Services map[derive.Object]assigned
	Pools    map[derive.Object]poolState
}

// assigned is the addresses of a Service, and the reason why it has no other.
type assigned struct {
	Addrs   addresses
	Problem *problem.Problem // nil if the pool has given all
}

// poolState is the state of a pool.
type poolState struct {
	Usage    crdv1beta1.IPPoolUsage
	Problems []problem.Problem
}

// pool is a pool while addresses are assigned.
type pool struct {
	name  string
	whole *netipx.IPSet // its ranges
	all   *netipx.IPSet // without addresses of other pools, Nodes, Pods and ClusterIPs
	free  *netipx.IPSet // without addresses that any Service has
	// unheld are the versions of IP of which no selected Node has a podCIDR.
	unheld []version
	state  poolState
}

// assign decides which Service has which addresses, one of each of its versions of IP. A Service keeps the address in
// its status while the address is in the Service's pool, even if a Node or another pool has the same address now. If
// two Services have one address and do not share it, the older one keeps it. Then Services without an address choose,
// the oldest first: the address that they request, else the lowest free one. A Service gets a new address only if a
// selected Node can hold it.
func assign(v view) assignment {
	pools := v.pools()
	out := assignment{Services: map[derive.Object]assigned{}, Pools: map[derive.Object]poolState{}}
	holders := map[netip.Addr][]serviceFacts{}
	take := func(key derive.Object, f serviceFacts, i int, ip netip.Addr) {
		holders[ip] = append(holders[ip], f)
		a := out.Services[key]
		a.Addrs[i] = ip
		out.Services[key] = a
	}
	rows := slices.Clone(v.Services)
	slices.SortStableFunc(rows, func(a, b derive.Row[derive.Object, serviceFacts]) int {
		return cmp.Compare(a.Value.Created, b.Value.Created)
	})
	type request struct {
		derive.Row[derive.Object, serviceFacts]
		i     int        // in serviceFacts.Versions
		asked netip.Addr // the zero address for any
	}
	var waiting []request
	for _, row := range rows {
		f := row.Value
		out.Services[row.Key] = assigned{}
		if f.Pool == "" {
			continue
		}
		p, known := pools[f.Pool]
		had := f.had()
		asked, why := f.asked()
		switch {
		case !known:
			out.Services[row.Key] = assigned{Problem: unknownPool(row.Key, f.Pool)}
		case why != "":
			wrong := serviceProblem(row.Key, "spec.loadBalancerIP", reasonInvalidAddress, "%s", why)
			out.Services[row.Key] = assigned{Problem: wrong}
			continue
		}
		for i, version := range f.Versions {
			ip := had[i]
			switch {
			case version == 0:
			case !known && ip.IsValid() && f.Reported.Status != "":
				// If a pool is deleted, its Services keep their addresses, so that they do not change if a pool of the same name is
				// created again. No other Service gets these addresses.
				take(row.Key, f, i, ip)
			case !known:
			case ip.IsValid() && p.whole.Contains(ip) && (!asked[i].IsValid() || asked[i] == ip) && f.mayHave(holders[ip]):
				take(row.Key, f, i, ip)
			default:
				waiting = append(waiting, request{row, i, asked[i]})
			}
		}
	}
	for _, p := range pools {
		p.remove(slices.Collect(maps.Keys(holders))...)
	}
	for _, w := range waiting {
		ip, wrong := pools[w.Value.Pool].choose(w.Key, w.Value, w.Value.Versions[w.i], w.asked, holders)
		if ip.IsValid() {
			take(w.Key, w.Value, w.i, ip)
			for _, p := range pools {
				p.remove(ip)
			}
		}
		if a := out.Services[w.Key]; a.Problem == nil {
			a.Problem = wrong
			out.Services[w.Key] = a
		}
	}
	for _, row := range v.Pools {
		p := pools[row.Key.Name]
		for ip := range holders {
			if slices.ContainsFunc(holders[ip], func(f serviceFacts) bool { return f.Pool == p.name }) {
				p.state.Usage.Used++
			}
		}
		out.Pools[row.Key] = p.state
	}
	return out
}

// choose returns the address of a version of IP that a Service gets from a pool. If the Service does without that
// version, it returns neither an address nor a problem.
func (p *pool) choose(key derive.Object, f serviceFacts, v version, asked netip.Addr,
	holders map[netip.Addr][]serviceFacts,
) (netip.Addr, *problem.Problem) {
	wrong := func(field string, reason reasons.Reason, format string, args ...any) (netip.Addr, *problem.Problem) {
		return netip.Addr{}, serviceProblem(key, field, reason, format, args...)
	}
	switch {
	case !asked.IsValid() && !p.gives(v):
		if f.Prefers && (p.gives(ipv4) || p.gives(ipv6)) {
			return netip.Addr{}, nil
		}
		if !p.has(v) {
			return wrong(poolField, reasonNoSuchRange,
				"ExternalIPPool %s has no range of %s: add one to it, or name another pool", p.name, v)
		}
		return wrong(poolField, reasonNoNode,
			"ExternalIPPool %s selects no Node with a podCIDR of %s, so none would hold an address: %s", p.name, v, needsNode)
	case !asked.IsValid():
		for _, r := range p.free.Ranges() {
			if versionOf(r.From()) == v {
				return r.From(), nil
			}
		}
		return wrong(poolField, reasonPoolExhausted,
			"ExternalIPPool %s has no free address of %s: add a range to it, or delete a Service that has one", p.name, v)
	case !p.all.Contains(asked):
		return wrong("spec.loadBalancerIP", reasonAddressNotInPool,
			"%s is not an address that ExternalIPPool %s can give: choose another address, or another pool", asked, p.name)
	case !p.gives(v):
		return wrong("spec.loadBalancerIP", reasonNoNode,
			"ExternalIPPool %s selects no Node with a podCIDR of %s, so no Node would hold %s: %s", p.name, v, asked, needsNode)
	case f.mayHave(holders[asked]):
		return asked, nil
	}
	return wrong("spec.loadBalancerIP", reasonAddressInUse,
		"another Service has %s: choose another address, or annotate both with %s: \"true\"", asked,
		crdv1beta1.AnnotationSharedIP)
}

const needsNode = "select such a Node in the pool's nodeSelector, or name another pool"

// gives reports whether a pool can provide addresses of a version of IP. For this, the pool needs a range of the
// version, and has to select a Node that can hold the addresses.
func (p *pool) gives(v version) bool { return p.has(v) && !slices.Contains(p.unheld, v) }

// has reports whether a pool has a range of a version of IP.
func (p *pool) has(v version) bool {
	return slices.ContainsFunc(p.whole.Ranges(), func(r netipx.IPRange) bool { return versionOf(r.From()) == v })
}

// mayHave reports whether a Service may have an address that some Services have already.
func (f serviceFacts) mayHave(holders []serviceFacts) bool {
	return len(holders) == 0 || f.Shared && !slices.ContainsFunc(holders, func(h serviceFacts) bool { return !h.Shared })
}

// remove takes addresses out of the free ones.
func (p *pool) remove(list ...netip.Addr) {
	if !slices.ContainsFunc(list, p.free.Contains) {
		return
	}
	var b netipx.IPSetBuilder
	b.AddSet(p.free)
	for _, ip := range list {
		b.Remove(ip)
	}
	p.free = setOf(&b)
}

// setOf returns the built set. Its only error is an invalid range, which no facts have.
func setOf(b *netipx.IPSetBuilder) *netipx.IPSet {
	set, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{}
	}
	return set
}

// pools are the pools by name. An address that two pools have belongs to the first one by name.
func (v view) pools() map[string]*pool {
	var taken, given netipx.IPSetBuilder
	for _, n := range v.Nodes {
		for _, p := range n.Value.Taken {
			taken.AddPrefix(p)
		}
	}
	var clusterIPs []version
	for _, p := range v.Ranges {
		taken.AddPrefix(p)
		clusterIPs = append(clusterIPs, versionOf(p.Addr()))
	}
	used, others := setOf(&taken), setOf(&given)
	out := map[string]*pool{}
	for _, row := range v.Pools {
		p := &pool{name: row.Key.Name}
		p.state.Problems = slices.Clone(row.Value.Problems)
		report := func(field string, reason reasons.Reason, format string, args ...any) {
			p.state.Problems = append(p.state.Problems, problem.Problem{
				Object: problem.Object{Kind: "ExternalIPPool", Name: row.Key.Name}, Field: field, Reason: reason,
				Message: fmt.Sprintf(format, args...),
			})
		}
		selected := v.selected(row.Value.Selector)
		for _, one := range []version{ipv4, ipv6} {
			if len(selected) > 0 && !slices.ContainsFunc(selected, func(n nodeFacts) bool {
				return slices.Contains(n.Versions, one)
			}) {
				p.unheld = append(p.unheld, one)
			}
		}
		var b netipx.IPSetBuilder
		for _, r := range row.Value.Ranges {
			if used.OverlapsRange(r) {
				report("spec.ipRanges", reasonAddressInUse,
					"%s has addresses of Nodes, Pods or ClusterIPs, which no Service gets: "+
						"choose addresses that nothing else has", r)
			}
			if others.OverlapsRange(r) {
				report("spec.ipRanges", reasonAddressInUse, "%s has addresses of another ExternalIPPool, which gives them: remove "+
					"them from one of the two", r)
			}
			switch v := versionOf(r.From()); {
			case len(clusterIPs) > 0 && !slices.Contains(clusterIPs, v):
				report("spec.ipRanges", reasonVersionNotServed,
					"%s is of %s, of which the cluster has no ClusterIPs, so no Service "+
						"gets its addresses: remove it, or convert the cluster to dual stack", r, v)
			case slices.Contains(p.unheld, v):
				report("spec.ipRanges", reasonNoNode,
					"%s is of %s, of which no Node that nodeSelector selects has a podCIDR, so no "+
						"Service gets its addresses: select such a Node, or remove the range", r, v)
			}
			b.AddRange(r)
		}
		p.whole = setOf(&b)
		b.RemoveSet(used)
		b.RemoveSet(others)
		p.all = setOf(&b)
		p.free = p.all
		given.AddSet(p.all)
		others = setOf(&given)
		if len(selected) == 0 && len(v.Nodes) > 0 {
			report("spec.nodeSelector", reasonNoNode,
				"it selects no Node, so no Node holds the addresses: correct it, or label a Node")
		}
		p.state.Usage.Total = count(p.all)
		out[p.name] = p
	}
	return out
}

// selected returns the Nodes that a selector selects.
func (v view) selected(text string) (out []nodeFacts) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil
	}
	for _, n := range v.Nodes {
		if set, err := labels.ConvertSelectorToLabelsMap(n.Value.Labels); err == nil && selector.Matches(set) {
			out = append(out, n.Value)
		}
	}
	return out
}

// count returns the number of addresses in a set, at most the largest int32.
func count(set *netipx.IPSet) int32 {
	total := uint64(0)
	for _, r := range set.Ranges() {
		from, to := r.From().As16(), r.To().As16()
		n := binary.BigEndian.Uint64(to[8:]) - binary.BigEndian.Uint64(from[8:])
		if [8]byte(from[:]) != [8]byte(to[:]) || n >= math.MaxInt32 {
			return math.MaxInt32
		}
		total += n + 1
	}
	return int32(min(total, math.MaxInt32))
}

const poolField = "metadata.annotations[" + crdv1beta1.AnnotationExternalIPPool + "]"

func unknownPool(key derive.Object, name string) *problem.Problem {
	return serviceProblem(key, poolField, reasonUnknownPool,
		"there is no ExternalIPPool %s, so no Node holds an address: create it, or name another one", name)
}

func serviceProblem(key derive.Object, field string, reason reasons.Reason, format string,
	args ...any) *problem.Problem {
	return &problem.Problem{
		Object: problem.Object{Kind: "Service", Namespace: key.Namespace, Name: key.Name}, Field: field, Reason: reason,
		Message: fmt.Sprintf(format, args...),
	}
}
