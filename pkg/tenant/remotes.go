package tenant

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// The ranges of a VirtualNetwork of another cluster are chosen by that cluster, or by a tenant there. All networks
// share one zone of connection tracking, so within a network an address may have only one owner. So a network is not
// joined with a VirtualNetwork of another cluster if a range of it overlaps Subnets of this cluster that the network
// reaches. It is not joined with two VirtualNetworks whose ranges overlap either. Otherwise a tenant could take over
// addresses of another tenant. All ranges of such a VirtualNetwork are left out, since its packets have one number. The
// datapath leaves out ranges of Nodes, Services and clusters.

// Remote are the networks whose packets pass between this cluster and another one, sorted.
type Remote struct {
	// From are networks of Namespaces in the other cluster. Their packets have sources in the ranges of that cluster's
	// Pods. To are networks of this cluster whose packets go to these ranges.
	From, To []ID
	// Virtual are the ranges of VirtualNetworks there.
	Virtual []RemoteRange
}

// RemoteRange is a range of a VirtualNetwork of another cluster.
type RemoteRange struct {
	ID   ID // of the VirtualNetwork
	CIDR netip.Prefix
	To   []ID // networks of this cluster that are joined with it, sorted
}

func (a RemoteRange) compare(b RemoteRange) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), a.CIDR.Compare(b.CIDR))
}

// farRange parses a range of a VirtualNetwork of another cluster. If the range is invalid, the second result describes
// the fault.
func farRange(text string) (netip.Prefix, string) {
	cidr, err := netip.ParsePrefix(text)
	switch {
	case err != nil || cidr.Addr().Is4In6():
		return netip.Prefix{}, "is not a range of addresses"
	case cidr.Bits() < 8:
		return netip.Prefix{}, "has too many addresses"
	case slices.ContainsFunc(special, cidr.Overlaps):
		return netip.Prefix{}, "has addresses that no Pod may have"
	}
	return cidr.Masked(), ""
}

// hasPods reports whether Pods of this cluster may be in a network.
func (n Network) hasPods(name Name) bool { return len(n.Members) > 0 || name.Door == doorVirtual }

// addAcross adds the table of joins that the leader has decided. It leaves out networks without Pods of this cluster.
func (t *Tables) addAcross(e *derive.Engine) {
	t.shared = derive.NewIndex(t.Networks, "leader's number", func(name Name, n Network) []ID {
		if n.ID == 0 || !n.hasPods(name) {
			return nil
		}
		return []ID{n.ID}
	})
	numbered := derive.NewIndex(t.Networks, "numbered", func(name Name, n Network) []Name {
		if n.ID == 0 || !n.hasPods(name) {
			return nil
		}
		return []Name{name}
	})
	t.across = derive.NewTable(e, "tenant-joins-across", t.joinsAcross, derive.KeysOfIndex(numbered)).
		EqualBy(func(a, b []Join) bool { return reflect.DeepEqual(a, b) })
}

// addRemotes adds the table of other clusters, by their IDs. It leaves out networks without Pods of this cluster.
func (t *Tables) addRemotes(e *derive.Engine) {
	byCluster := derive.NewIndex(t.Networks, "cluster", func(name Name, n Network) (out []derive.Name) {
		if n.ID == 0 || !n.hasPods(name) {
			return nil
		}
		add := func(clusters []string) {
			for _, c := range clusters {
				if name := derive.Name(c); !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
		add(n.Clusters)
		for _, j := range n.Joins {
			add(j.Clusters)
		}
		return out
	})
	t.Remotes = derive.NewTable(e, "tenant-clusters", func(id derive.Name, r *derive.Reader) (Remote, []problem.Problem) {
		return t.remote(id, derive.List(r, byCluster, id), r), nil
	}, derive.KeysOfIndex(byCluster)).EqualBy(func(a, b Remote) bool { return reflect.DeepEqual(a, b) })
}

// remote returns the networks between this cluster and another one, given the networks that have a part there.
func (t *Tables) remote(id derive.Name, networks []derive.Row[Name, Network], r *derive.Reader) (out Remote) {
	for _, row := range networks {
		n := row.Value
		to := slices.Contains(n.Clusters, string(id)) && t.zoneOf(row.Key, r) == 0
		if to {
			out.From = append(out.From, n.ID)
		}
		joins, _ := derive.Get(r, t.across, row.Key)
		for _, j := range joins {
			switch {
			case !slices.Contains(j.Clusters, string(id)):
			case j.Virtual:
				for _, cidr := range j.Ranges {
					out.Virtual = append(out.Virtual, RemoteRange{j.ID, cidr, []ID{n.ID}})
				}
			default:
				to, out.From = true, append(out.From, j.ID)
			}
		}
		if to {
			out.To = append(out.To, n.ID)
		}
	}
	out.From, out.To = sorted(out.From), sorted(out.To)
	slices.SortStableFunc(out.Virtual, RemoteRange.compare)
	var merged []RemoteRange
	for _, one := range out.Virtual {
		if end := len(merged) - 1; end >= 0 && merged[end].compare(one) == 0 {
			merged[end].To = sorted(append(merged[end].To, one.To...))
			continue
		}
		merged = append(merged, one)
	}
	out.Virtual = merged
	return out
}

func sorted(ids []ID) []ID {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// joinsOf returns the joins that the leader has decided, without joins of separate networks of this cluster.
func (t *Tables) joinsOf(name Name, n Network, r *derive.Reader) (out []Join) {
	if t.zoneOf(name, r) != 0 {
		return nil
	}
	for _, j := range n.Joins {
		if !slices.ContainsFunc(derive.List(r, t.shared, j.ID), func(row derive.Row[Name, Network]) bool {
			return t.zoneOf(row.Key, r) != 0
		}) {
			out = append(out, j)
		}
	}
	return out
}

// joinedHere returns the other VirtualNetworks of this cluster that a network is joined with, by routers of this
// cluster and of the central cluster.
func (t *Tables) joinedHere(name Name, n Network, r *derive.Reader) []Name {
	joined, _ := derive.Get(r, t.Joined, name)
	out := slices.Clone(joined)
	for _, j := range t.joinsOf(name, n, r) {
		for _, row := range derive.List(r, t.shared, j.ID) {
			out = append(out, row.Key)
		}
	}
	slices.SortFunc(out, Name.Compare)
	return slices.DeleteFunc(slices.Compact(out), func(o Name) bool { return o == name || o.Door != doorVirtual })
}

// joinsAcross returns the joins of a network with networks of other clusters. If a range of a VirtualNetwork also
// belongs to another network, all ranges of the VirtualNetwork are left out, since packets from all its ranges have the
// same number.
func (t *Tables) joinsAcross(name Name, r *derive.Reader) ([]Join, []problem.Problem) {
	var out []Join
	var ps problem.List
	n, _ := derive.Get(r, t.Networks, name)
	if zone := t.zoneOf(name, r); zone != 0 && len(n.Joins)+len(n.Clusters) > 0 {
		ps.Add(n.Object, "", reasonSeparateNetwork, "the central cluster does not join it: "+separateWords(zone)+
			": create it again with a Subnet whose range no other Subnet overlaps")
	}
	var all []span
	for _, j := range t.joinsOf(name, n, r) {
		// A VirtualNetwork is of one cluster. If it is of this one, its leases have the ranges.
		if j.Virtual && (len(j.Clusters) != 1 || j.ID == n.ID || len(derive.List(r, t.shared, j.ID)) > 0) {
			j.Ranges = nil
		}
		for _, cidr := range j.Ranges {
			all = append(all, span{cidr, len(out)})
		}
		out = append(out, j)
	}
	if len(all) == 0 {
		return out, ps
	}
	for _, other := range append(t.joinedHere(name, n, r), name) {
		if t.virtual == nil || other.Door != doorVirtual {
			continue
		}
		for _, l := range t.virtual.leasesOf(derive.Object{Namespace: other.Namespace, Name: other.Name}, r) {
			all = append(all, span{l.Range.CIDR.Masked(), local})
		}
	}
	twice := overlaps(all)
	for i := range out {
		left := slices.Clone(out[i].Ranges)
		if at := slices.IndexFunc(left, func(p netip.Prefix) bool { return twice[span{p, i}] }); at >= 0 {
			ps.Add(n.Object, "", reasonJoinLeftOut, fmt.Sprintf("it is not joined with a VirtualNetwork of cluster %s: range "+
				"%s there overlaps %s: give one of the two a Subnet with another range", out[i].Clusters[0], left[at],
				otherOwner(all, span{left[at], i})))
			left = nil
		}
		slices.SortFunc(left, netip.Prefix.Compare)
		out[i].Ranges = slices.Compact(left)
	}
	return out, ps
}

// otherOwner returns words about a range of another owner that overlaps one.
func otherOwner(all []span, one span) string {
	for _, s := range all {
		switch {
		case s.owner == one.owner || !s.cidr.Overlaps(one.cidr):
		case s.owner == local:
			return "Subnet " + s.cidr.String() + " of this cluster, which it reaches"
		default:
			return "range " + s.cidr.String() + " of a third network that it is joined with"
		}
	}
	return "another range"
}

// span is a range with its owner: the index of a join, or local.
type span struct {
	cidr  netip.Prefix
	owner int
}

// local is the owner of the ranges of this cluster.
const local = -1

// overlaps returns the ranges that overlap a range of another owner. Two ranges overlap only if one contains the other.
// So the ranges are sorted by address, and each range is compared only with the ranges that contain it.
func overlaps(all []span) map[span]bool {
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(a.cidr.Addr().Compare(b.cidr.Addr()), cmp.Compare(a.cidr.Bits(), b.cidr.Bits()),
			cmp.Compare(a.owner, b.owner))
	})
	twice := make([]bool, len(all))
	var around []int
	for i, s := range all {
		around = slices.DeleteFunc(around, func(o int) bool { return !all[o].cidr.Overlaps(s.cidr) })
		for _, o := range around {
			if all[o].owner != s.owner {
				twice[o], twice[i] = true, true
			}
		}
		around = append(around, i)
	}
	out := map[span]bool{}
	for i, s := range all {
		if twice[i] {
			out[s] = true
		}
	}
	return out
}
