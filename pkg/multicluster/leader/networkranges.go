package leader

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// networkRanges are the ranges of the network of a VirtualNetwork.
type networkRanges struct {
	Virtual bool     // unset for networks of Namespaces, which have no row
	CIDRs   []string // that it has, sorted; no others overlap them
	Refused []refusedRange
}

// refusedRange is why it does not have a range that its cluster lists.
type refusedRange struct {
	Reason reasons.Reason
	Words  string // the fault and the remedy
}

// usable reports whether a network may be joined. The network of a VirtualNetwork without ranges has no Pods.
func (n networkRanges) usable() bool { return !n.Virtual || len(n.CIDRs) > 0 && len(n.Refused) == 0 }

// addRanges adds the tables of ranges of VirtualNetworks.
func (t *networks) addRanges(e *derive.Engine, claiming *claimTables) {
	t.virtual = derive.NewIndex(t.networks, "of VirtualNetworks", func(k derive.Object, n *network) []derive.Name {
		if !n.ofVirtual(k) {
			return nil
		}
		return []derive.Name{one}
	})
	all := derive.NewTable(e, "ranges of all VirtualNetworks",
		func(_ derive.Name, r *derive.Reader) (map[derive.Object]networkRanges, []problem.Problem) {
			pins, _ := derive.Get(r, claiming.pins, one)
			return t.decideRanges(r, reservedBy(derive.Values(derive.All(r, claiming.taken)), pins), pins), nil
		}, derive.KeysOfIndex(t.virtual))
	t.ranges = derive.NewTable(e, "ranges of VirtualNetworks",
		func(k derive.Object, r *derive.Reader) (networkRanges, []problem.Problem) {
			found, _ := derive.Get(r, all, one)
			n := found[k]
			n.Virtual = true
			return n, nil
		}, derive.KeysOfIndex(derive.NewIndex(t.networks, "of a VirtualNetwork",
			func(k derive.Object, n *network) []derive.Object {
				if !n.ofVirtual(k) {
					return nil
				}
				return []derive.Object{k}
			})))
}

// reservedBy returns the ranges and the Gateways of clusters. A Gateway in a range that is pinned to another cluster is
// left out. Otherwise its cluster could end joins of the other cluster.
func reservedBy(lists [][]holder, pins claims.Pins) (out []tenant.Reserved) {
	for _, list := range lists {
		for _, h := range list {
			for _, p := range h.Has.Prefixes {
				out = append(out, tenant.Reserved{CIDR: p, What: "the range " + p.String() + " of cluster " + h.ClusterID})
			}
			for _, ip := range h.Gateways {
				if pins.OfOthers(h.ClusterID, ip) {
					continue
				}
				out = append(out, tenant.Reserved{CIDR: netip.PrefixFrom(ip, ip.BitLen()),
					What: "Gateway " + ip.String() + " of cluster " + h.ClusterID})
			}
		}
	}
	return out
}

// rangeRequest is a range that a network of a VirtualNetwork has or asks for.
type rangeRequest struct {
	Network   derive.Object
	ClusterID string
	CIDR      netip.Prefix
	Held      bool // the status of the network has it
	Named     string
}

// decideRanges gives each range to one network. Ranges of clusters and of their Gateways have precedence. A network
// keeps a range that it has. Free ranges go to the oldest network. So no member takes a range by a change of its list.
func (t *networks) decideRanges(r *derive.Reader, reserved []tenant.Reserved,
	pins claims.Pins) map[derive.Object]networkRanges {
	out := map[derive.Object]networkRanges{}
	refused := pins.RefuseSubnets()
	taken := tenant.NewRanges(reserved)
	requests := t.rangeRequests(r)
	for len(requests) > 0 { // all requests of one network at once: they may overlap each other
		n := 1
		for n < len(requests) && requests[n].Network == requests[0].Network && requests[n].Held == requests[0].Held {
			n++
		}
		network := out[requests[0].Network]
		var got []netip.Prefix
		for _, one := range requests[:n] {
			if err := refused(one.ClusterID, one.CIDR); err != nil {
				network.Refused = append(network.Refused, refusedRange{reasonRangeNotAllowed, err.Error()})
			} else if other, meets := taken.MeetsOther(one.CIDR, one.what()); meets {
				network.Refused = append(network.Refused, refusedRange{reasonOverlappingRange, one.CIDR.String() +
					" overlaps " + other + ": give it a Subnet with another range in cluster " + one.ClusterID})
			} else {
				network.CIDRs = append(network.CIDRs, one.CIDR.String())
				got = append(got, one.CIDR)
			}
		}
		for _, p := range got {
			taken.Add(tenant.Reserved{CIDR: p, What: requests[0].what()})
		}
		slices.Sort(network.CIDRs)
		out[requests[0].Network] = network
		requests = requests[n:]
	}
	return out
}

// what names the network in messages.
func (q rangeRequest) what() string { return "a range of " + q.Named }

// rangeRequests returns the ranges of all networks of VirtualNetworks, in the order in which they get them.
func (t *networks) rangeRequests(r *derive.Reader) (out []rangeRequest) {
	rows := slices.Clone(derive.List(r, t.virtual, one))
	slices.SortFunc(rows, func(a, b derive.Row[derive.Object, *network]) int {
		return cmp.Or(cmp.Compare(a.Value.Created, b.Value.Created), cmp.Compare(a.Value.UID, b.Value.UID))
	})
	for _, row := range rows {
		have, _ := derive.Get(r, t.networkStatus, row.Key)
		request := rangeRequest{Network: row.Key, Named: "TenantNetwork " + row.Key.String()}
		if have.Status.Namespace != nil {
			request.ClusterID = have.Status.Namespace.ClusterID
		}
		texts := have.Status.CIDRs // while the cluster's list is not known, and until the network is deleted
		if of := t.central.ofTenantNetwork(row.Key, r); of != nil {
			request.ClusterID, request.Named = of.ClusterID, "VirtualNetwork "+of.Key.String()
			if !of.Kept {
				texts = of.Virtual.CIDRs
			}
			if of.Virtual.Requests && !of.Kept {
				wanted := t.central.requestOf(of, have.Status.Request, r)
				texts = slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !hasRange(wanted, text) })
			}
		}
		for _, text := range texts {
			var ok bool
			if request.CIDR, ok = exportcheck.NetworkRange(text); ok {
				request.Held = slices.Contains(have.Status.CIDRs, text)
				out = append(out, request)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b rangeRequest) int {
		switch {
		case a.Held == b.Held:
			return 0
		case a.Held:
			return -1
		}
		return 1
	})
	return out
}
