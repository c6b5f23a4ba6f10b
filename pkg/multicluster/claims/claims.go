// Package claims decides which address ranges, gateway addresses and WireGuard keys belong to which cluster of a
// ClusterSet. The leader uses it for announcements that it passes on, an importing member for imports from a leader,
// and the agents for valid address ranges. It is pure: no client, no clock.
//
// The holder of a range keeps it. The ranges in effect (the leader's ResourceImport, the member's ClusterInfoImport)
// are the record of holders. So neither a cluster ID that sorts first nor an update of an old announcement takes a
// range away from another cluster. Free ranges go to the candidates in the given order: the oldest first. A range in
// which another cluster uses addresses without announcing ranges goes to no cluster, unless it is pinned. Ranges that
// are not private go only to clusters that they are pinned to.
package claims

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/family"
)

// Limits of one cluster's announcement.
const (
	maxPodRanges = 64
	// MaxServiceRanges is MaxItems of serviceCIDRs in the definitions.
	MaxServiceRanges = 16
	MaxGateways      = 16
	// These are prefix lengths of the largest allowed ranges. No cluster can have more than a /8 of IPv4, or a /32 of
	// IPv6, the size that a provider has.
	minBits, minBits6 = 8, 32
)

// Candidate is what one cluster announces.
type Candidate struct {
	ClusterID string
	// Wanted is the announcement of the cluster. It is nil if the cluster announces nothing now, but keeps its held claims
	// for a while.
	Wanted *mcv1alpha1.ClusterInfo
	// Held is what is in effect of the cluster's earlier announcements; nil for nothing.
	Held *mcv1alpha1.ClusterInfo
}

// Decision is what becomes of a Candidate.
type Decision struct {
	// Info is the ClusterInfo to put into effect. It is Wanted without the Pod ranges and gateways with faults. If the
	// Service range or all gateways have a fault, it is the part of Held that is still allowed. It is nil if nothing is
	// left.
	Info *mcv1alpha1.ClusterInfo
	// Faults are in the order of the fields; empty when all that is wanted is in Info.
	Faults []Fault
}

// Fault is what is wrong with one field of a ClusterInfo, and the remedy.
type Fault struct {
	Field   string // below the ClusterInfo, such as "podCIDRs[1]"
	Message string
}

func (f Fault) String() string { return f.Field + ": " + f.Message }

// Used looks for a cluster other than exceptBy that uses an address in a range without having announced ranges. It
// returns such an address and its cluster, or an empty ID if it finds no such cluster.
type Used func(in netip.Prefix, exceptBy string) (ip netip.Addr, cluster string)

// Decide decides about all clusters of a ClusterSet at once. The decisions are in the order of the candidates.
func Decide(candidates []Candidate, pins Pins) []Decision { return DecideUsed(candidates, pins, nil) }

// DecideUsed does the same, and asks used for ranges that are not held yet.
func DecideUsed(candidates []Candidate, pins Pins, used Used) []Decision {
	t := &table{pins: reserve(pins), keys: map[string]string{}}
	for _, c := range candidates {
		t.hold(c.ClusterID, c.Held)
	}
	t.used = used
	out := make([]Decision, len(candidates))
	for i, c := range candidates {
		out[i] = t.decide(c)
	}
	return out
}

// Kinds of claims, as messages name them.
const (
	serviceRange = "Service range"
	podRange     = "Pod range"
	subnetRange  = "Subnet range"
	gateway      = "gateway"
	insideEnd    = "address inside WireGuard"
)

// claim is a range, or an address of a gateway as a range of one address.
type claim struct {
	cluster, kind string
	prefix        netip.Prefix
}

// table has the claims that are taken.
type table struct {
	pins  *reserved
	used  Used
	taken []claim
	at    tree              // numbers of taken, by range
	keys  map[string]string // clusters, by the WireGuard keys that they have or are about to have
	// newKeys are the new keys, in the order in which they were taken.
	newKeys []string
}

// hold records the claims of an announcement in effect. If two clusters hold one range, which earlier versions allowed,
// it stays with the first.
func (t *table) hold(cluster string, info *mcv1alpha1.ClusterInfo) {
	if info == nil {
		return
	}
	_ = t.takeRange(cluster, serviceRange, info.ServiceCIDR) // what is at fault is not held
	for _, text := range info.ServiceCIDRs[:min(len(info.ServiceCIDRs), MaxServiceRanges)] {
		_ = t.takeRange(cluster, serviceRange, text)
	}
	for _, text := range info.PodCIDRs[:min(len(info.PodCIDRs), maxPodRanges)] {
		_ = t.takeRange(cluster, podRange, text)
	}
	for _, list := range [][]mcv1alpha1.GatewayInfo{info.GatewayInfos, info.LeavingGateways} {
		for _, g := range list[:min(len(list), MaxGateways)] {
			_ = t.takeGateway(cluster, g.GatewayIP)
			_ = t.takeKeys(cluster, g.WireGuard)
		}
	}
	_ = t.takeKeys(cluster, info.WireGuard)
}

func (t *table) decide(c Candidate) Decision {
	if c.Wanted == nil {
		return Decision{}
	}
	before, keys := len(t.taken), len(t.newKeys)
	info, faults, usable := t.wanted(c.ClusterID, c.Wanted)
	if usable {
		return Decision{Info: info, Faults: faults}
	}
	for i := len(t.taken) - 1; i >= before; i-- {
		t.at.remove(t.taken[i].prefix)
	}
	for _, key := range t.newKeys[keys:] {
		delete(t.keys, key)
	}
	t.taken, t.newKeys = t.taken[:before], t.newKeys[:keys]
	return Decision{Info: t.held(c.ClusterID, c.Held), Faults: faults}
}

// wanted records the claims of a new announcement. info leaves out claims with faults. usable is false if the rest
// cannot be used without them.
func (t *table) wanted(cluster string, want *mcv1alpha1.ClusterInfo) (
	info *mcv1alpha1.ClusterInfo, faults []Fault, usable bool,
) {
	fault := func(field string, err error) { faults = append(faults, Fault{Field: field, Message: err.Error()}) }
	if n := len(want.PodCIDRs); n > maxPodRanges {
		fault("podCIDRs", fmt.Errorf("has %d ranges: expected at most %d; announce fewer, larger ranges", n, maxPodRanges))
		return nil, faults, false
	}
	if n := len(want.ServiceCIDRs); n > MaxServiceRanges {
		fault("serviceCIDRs", fmt.Errorf("has %d ranges: expected at most %d; announce fewer, larger ranges", n,
			MaxServiceRanges))
		return nil, faults, false
	}
	for i, list := range [][]mcv1alpha1.GatewayInfo{want.GatewayInfos, want.LeavingGateways} {
		if n := len(list); n > MaxGateways {
			fault([]string{"gatewayInfos", "leavingGateways"}[i], fmt.Errorf("has %d gateways: expected at most %d; "+
				"remove the annotation multicluster.antrea.io/gateway from Nodes of the cluster", n, MaxGateways))
			return nil, faults, false
		}
	}
	usable = true
	if err := t.takeRange(cluster, serviceRange, want.ServiceCIDR); err != nil {
		fault("serviceCIDR", err)
		usable = false
	}
	info = want.DeepCopy()
	for i, text := range want.ServiceCIDRs {
		if err := t.takeRange(cluster, serviceRange, text); err != nil {
			if text != want.ServiceCIDR { // its fault is named already
				fault(fmt.Sprintf("serviceCIDRs[%d]", i), err)
			}
			info.ServiceCIDRs[i] = ""
		}
	}
	for i, text := range want.PodCIDRs {
		if err := t.takeRange(cluster, podRange, text); err != nil {
			fault(fmt.Sprintf("podCIDRs[%d]", i), err)
			info.PodCIDRs[i] = ""
		}
	}
	seen := map[string]string{}
	gateways := func(list string, infos []mcv1alpha1.GatewayInfo) {
		for i, g := range infos {
			err := t.takeGateway(cluster, g.GatewayIP)
			if first, twice := seen[g.GatewayIP]; twice && err == nil {
				err = fmt.Errorf("gateway %s of cluster %s is given twice, at %s too: give each gateway an address of its own",
					g.GatewayIP, cluster, first)
			}
			field := fmt.Sprintf("%s[%d]", list, i)
			if err != nil {
				fault(field+".gatewayIP", err)
				infos[i].GatewayIP = ""
				continue
			}
			seen[g.GatewayIP] = field
			if err := t.takeKeys(cluster, g.WireGuard); err != nil {
				fault(field+".wireGuard", err)
				infos[i].GatewayIP = ""
			}
		}
	}
	gateways("gatewayInfos", info.GatewayInfos)
	gateways("leavingGateways", info.LeavingGateways)
	if err := t.takeKeys(cluster, info.WireGuard); err != nil {
		fault("wireGuard", err)
		usable = false
	}
	var err error
	if info.Features, err = features(want.Features); err != nil {
		fault("features", err)
	}
	compact(info)
	return info, faults, usable && (len(want.GatewayInfos) == 0 || len(info.GatewayInfos) > 0)
}

// held is what a cluster keeps of what it holds.
func (t *table) held(cluster string, info *mcv1alpha1.ClusterInfo) *mcv1alpha1.ClusterInfo {
	if info == nil {
		return nil
	}
	owns := func(prefix netip.Prefix, err error) bool { return err == nil && t.owns(cluster, prefix) }
	if !owns(Range(info.ServiceCIDR)) {
		return nil
	}
	info = info.DeepCopy()
	for _, list := range [][]string{info.ServiceCIDRs, info.PodCIDRs} {
		for i, text := range list {
			if !owns(Range(text)) {
				list[i] = ""
			}
		}
	}
	for _, list := range [][]mcv1alpha1.GatewayInfo{info.GatewayInfos, info.LeavingGateways} {
		for i, g := range list {
			ip, err := Address(g.GatewayIP)
			lost := func(c claim) bool { return !t.owns(cluster, c.prefix) }
			if err != nil || slices.ContainsFunc(gatewayClaims(cluster, ip), lost) || t.takeKeys(cluster, g.WireGuard) != nil {
				list[i].GatewayIP = ""
			}
		}
	}
	compact(info)
	if t.takeKeys(cluster, info.WireGuard) != nil {
		return nil
	}
	return info
}

// compact removes what was emptied.
func compact(info *mcv1alpha1.ClusterInfo) {
	for _, list := range []*[]string{&info.ServiceCIDRs, &info.PodCIDRs} {
		*list = slices.DeleteFunc(*list, func(s string) bool { return s == "" })
	}
	for _, list := range []*[]mcv1alpha1.GatewayInfo{&info.GatewayInfos, &info.LeavingGateways} {
		*list = slices.DeleteFunc(*list, func(g mcv1alpha1.GatewayInfo) bool { return g.GatewayIP == "" })
	}
}

// features returns the features that an API server accepts, each once. Features of other versions need not be known
// here.
func features(want []string) (out []string, err error) {
	for i, f := range want {
		switch {
		case len(validation.IsQualifiedName(f)) > 0 || len(f) > mcv1alpha1.MaxFeatureLength:
			err = cmp.Or(err, fmt.Errorf("the entry at index %d is not the name of a feature: "+
				"expected at most %d letters, digits, '-', '_' and '.'", i, mcv1alpha1.MaxFeatureLength))
		case slices.Contains(out, f):
		case len(out) == mcv1alpha1.MaxFeatures:
			return out, cmp.Or(err, fmt.Errorf("has %d entries: expected at most %d; the others are left out",
				len(want), mcv1alpha1.MaxFeatures))
		default:
			out = append(out, f)
		}
	}
	return out, err
}

func (t *table) takeRange(cluster, kind, text string) error {
	prefix, err := Range(text)
	if err != nil {
		return err
	}
	return t.take(claim{cluster: cluster, kind: kind, prefix: prefix})
}

// takeGateway claims a gateway's address. With an IPv6 address it also claims the inside address: agents distinguish
// gateways by it, and two addresses may have the same hash.
func (t *table) takeGateway(cluster, text string) error {
	ip, err := Address(text)
	if err != nil {
		return err
	}
	claims := gatewayClaims(cluster, ip)
	for _, c := range claims {
		if err := t.check(c); err != nil && c.kind == insideEnd {
			return fmt.Errorf("gateway %s of cluster %s: %w", ip, cluster, err)
		} else if err != nil {
			return err
		}
	}
	for _, c := range claims {
		t.add(c)
	}
	return nil
}

// gatewayClaims returns the claims of a gateway.
func gatewayClaims(cluster string, ip netip.Addr) []claim {
	claims := []claim{{cluster, gateway, single(ip)}}
	if ip.Is6() {
		claims = append(claims, claim{cluster, insideEnd, single(InsideOf(ip))})
	}
	return claims
}

// InsideOf returns the inside address of the Gateway with an outside address: its last 28 bits, inverted. So it differs
// from the inside address of a Node with a private address, within a cluster. Without an outside address the result is
// not valid. For an IPv6 address it uses 28 bits of a hash.
func InsideOf(outside netip.Addr) netip.Addr {
	if !outside.IsValid() {
		return netip.Addr{}
	}
	if outside.Is6() {
		hash := fnv.New32a()
		hash.Write(outside.AsSlice()) // never fails
		outside = netip.AddrFrom4([4]byte(hash.Sum(nil)))
	}
	a := outside.As4()
	for i := range a {
		a[i] = ^a[i]
	}
	a[0] |= 0xf0
	return netip.AddrFrom4(a)
}

// takeKeys claims a Gateway's keys, unless they belong to another cluster. With equal keys, packets to one cluster's
// gateways would be accepted as the other's. Users of the keys check whether they are valid.
func (t *table) takeKeys(cluster string, info *mcv1alpha1.WireGuardInfo) error {
	if info == nil {
		return nil
	}
	for _, key := range []string{info.PublicKey, info.NextPublicKey} {
		if owner := t.keys[key]; owner != "" && owner != cluster {
			return fmt.Errorf("cluster %s has the WireGuard key %.44s already: remove the files wireguard.key and "+
				"wireguard.key.next below /var/lib/tombolo on the Gateway's Node in cluster %s, if they are copies of the "+
				"other's, and restart its agent",
				owner, key, cluster)
		}
	}
	for _, key := range []string{info.PublicKey, info.NextPublicKey} {
		if key != "" && t.keys[key] == "" {
			t.keys[key] = cluster
			t.newKeys = append(t.newKeys, key)
		}
	}
	return nil
}

// take adds a claim, unless check refuses it.
func (t *table) take(c claim) error {
	if err := t.check(c); err != nil {
		return err
	}
	t.add(c)
	return nil
}

func (t *table) add(c claim) {
	t.at.add(c.prefix, len(t.taken))
	t.taken = append(t.taken, c)
}

// check refuses a claim if a pin or a claim of another cluster is against it.
func (t *table) check(c claim) error {
	if c.kind != insideEnd { // administrators pin addresses outside
		if err := t.pins.check(c); err != nil {
			return err
		}
	}
	first := -1 // the claim that was taken first
	t.at.overlapping(c.prefix, func(i int) {
		if t.taken[i].cluster != c.cluster && (first < 0 || i < first) {
			first = i
		}
	})
	if first >= 0 {
		other := t.taken[first]
		return fmt.Errorf("%s of cluster %s overlaps the %s %s of cluster %s, which has it already: use other addresses, "+
			"or release it there first",
			c.text(), c.cluster, other.kind, other.address(), other.cluster)
	}
	if c.isRange() && !private(c.prefix) && !t.pins.reserves(c) {
		return fmt.Errorf("%s of cluster %s is not private (RFC 1918, RFC 6598, RFC 4193), and not pinned to the cluster: "+
			"use a private range, or pin this one by annotation %s of the ClusterSet, in the leader and in each member that is "+
			"to reach it",
			c.text(), c.cluster, multicluster.AnnotationRangesPrefix+c.cluster)
	}
	if t.used != nil && c.isRange() && !t.owns(c.cluster, c.prefix) && !t.pins.reserves(c) {
		if ip, user := t.used(c.prefix, c.cluster); user != "" {
			return fmt.Errorf("%s of cluster %s contains %s, which cluster %s exports as an endpoint already: use other "+
				"addresses, or pin the range to cluster %s by annotation %s of the leader's ClusterSet",
				c.text(), c.cluster, ip, user, c.cluster, multicluster.AnnotationRangesPrefix+c.cluster)
		}
	}
	return nil
}

// owns reports whether a cluster has taken a range.
func (t *table) owns(cluster string, prefix netip.Prefix) bool {
	owns := false
	t.at.containing(prefix, func(i int) { owns = owns || t.taken[i].cluster == cluster })
	return owns
}

func (c claim) text() string { return c.kind + " " + c.address() }

// isRange reports whether the claim is about a range of Services, Pods or Subnets.
func (c claim) isRange() bool {
	return c.kind == serviceRange || c.kind == podRange || c.kind == subnetRange
}

func (c claim) address() string {
	if !c.isRange() {
		return c.prefix.Addr().String()
	}
	return c.prefix.String()
}

func single(ip netip.Addr) netip.Prefix { return netip.PrefixFrom(ip, ip.BitLen()) }

// contains reports whether all addresses of inner are in outer.
func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// Ranges returns the usable ranges of a cluster: of its Services, and of its Pods.
func Ranges(info *mcv1alpha1.ClusterInfo) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range info.Ranges() {
		if p, err := Range(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Range reads a range of addresses that a cluster can have.
func Range(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, fmt.Errorf("the range is missing")
	}
	r, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%q is not a range such as 10.96.0.0/16 or fd00:10:96::/112", text)
	case r.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%s is written as an IPv6 range: write the IPv4 range itself", r)
	}
	r = r.Masked()
	for _, special := range specialRanges {
		if r.Overlaps(special) {
			return netip.Prefix{}, fmt.Errorf("%s contains addresses that are never routed (%s)", r, special)
		}
	}
	if most := largest(r.Addr()); r.Bits() < most {
		return netip.Prefix{}, fmt.Errorf("%s is too large: expected a /%d or smaller", r, most)
	}
	return r, nil
}

func largest(ip netip.Addr) int {
	if ip.Is4() {
		return minBits
	}
	return minBits6
}

// Block returns the largest range that an address can be in: all ranges with the address are parts of it. If the
// address is not valid, the result is the zero prefix.
func Block(ip netip.Addr) netip.Prefix {
	block, _ := ip.Prefix(largest(ip))
	return block
}

// specialRanges are addresses that no cluster can have (RFC 6890). Of IPv4 they are "this network", loopback,
// link-local, multicast and reserved. Of IPv6 they are ::/8 (unspecified, loopback, translated IPv4), link-local,
// multicast, and the addresses that the datapath uses inside a Node. 0.0.0.0/0 and ::/0 contain them too.
var specialRanges = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/8"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
	family.SwitchRange6,
}

// privateRanges are ranges that a cluster may announce without a pin: RFC 1918, RFC 6598 and RFC 4193. Any other
// address may belong to a machine on the Internet.
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
}

// private reports whether all addresses of a range are private.
func private(prefix netip.Prefix) bool {
	return slices.ContainsFunc(privateRanges, func(r netip.Prefix) bool { return contains(r, prefix) })
}

// Address reads an address that a tunnel between clusters can end at.
func Address(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, fmt.Errorf("the address is missing")
	}
	ip, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", text)
	case ip.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%s has a zone, which other Nodes do not know: expected an address that they reach",
			ip)
	case ip.Is4In6():
		return netip.Addr{}, fmt.Errorf("%s is written as an IPv6 address: write the IPv4 address itself", ip)
	case slices.ContainsFunc(specialRanges, func(r netip.Prefix) bool { return r.Contains(ip) }):
		return netip.Addr{}, fmt.Errorf("%s is not an address that a tunnel can end at", ip)
	}
	return ip, nil
}
