package claims

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// Pins are the ranges and gateways that an administrator has reserved for clusters, by cluster ID. A cluster with an
// entry may announce only these, and no other cluster may announce them.
type Pins map[string]Pin

// Pin is what is reserved for one cluster.
type Pin struct {
	Ranges, Gateways       []netip.Prefix
	HasRanges, HasGateways bool // false: not restricted
	// Endpoints are ranges in which the cluster may have endpoints although it does not announce them. They reserve
	// nothing.
	Endpoints []netip.Prefix
}

// ReadPins reads the annotations of the leader's ClusterSet. If an annotation has errors, only its valid parts are
// reserved. Fault.Field is "metadata.annotations[KEY]".
func ReadPins(annotations map[string]string) (Pins, []Fault) {
	pins := Pins{}
	var faults []Fault
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		fault := func(format string, args ...any) {
			faults = append(faults, Fault{Field: "metadata.annotations[" + key + "]", Message: fmt.Sprintf(format, args...)})
		}
		id, ranges := strings.CutPrefix(key, multicluster.AnnotationRangesPrefix)
		gateways, endpoints := false, false
		if !ranges {
			id, gateways = strings.CutPrefix(key, multicluster.AnnotationGatewaysPrefix)
		}
		if !ranges && !gateways {
			if id, endpoints = strings.CutPrefix(key, multicluster.AnnotationEndpointsPrefix); !endpoints {
				continue
			}
		}
		pin := pins[id]
		for _, word := range strings.FieldsFunc(annotations[key], func(r rune) bool { return r == ',' || r == ' ' }) {
			prefix, err := readPin(word)
			switch {
			case err != nil:
				fault("%v", err)
			case ranges:
				pin.Ranges = append(pin.Ranges, prefix)
			case endpoints:
				pin.Endpoints = append(pin.Endpoints, prefix)
			default:
				pin.Gateways = append(pin.Gateways, prefix)
			}
		}
		pin.HasRanges, pin.HasGateways = pin.HasRanges || ranges, pin.HasGateways || gateways
		pins[id] = pin
	}
	return pins, faults
}

func readPin(word string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(word); err == nil && ip.Zone() == "" && !ip.Is4In6() {
		return single(ip), nil
	}
	prefix, err := netip.ParsePrefix(word)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{},
			fmt.Errorf("%q is not a range or an address: expected a list such as \"10.96.0.0/16, fd00:10:96::/112\"", word)
	}
	return prefix.Masked(), nil
}

// reserved are pins, to be found by range.
type reserved struct {
	Pins
	clusters         []string // in order
	ranges, gateways tree     // numbers of clusters
}

func reserve(p Pins) *reserved {
	r := &reserved{Pins: p, clusters: slices.Sorted(maps.Keys(p))}
	for i, id := range r.clusters {
		for _, prefix := range p[id].Ranges {
			r.ranges.add(prefix, i)
		}
		for _, prefix := range p[id].Gateways {
			r.gateways.add(prefix, i)
		}
	}
	return r
}

// check says why pins forbid a claim.
func (r *reserved) check(c claim) error {
	of, at, key := Pin.ranges, &r.ranges, multicluster.AnnotationRangesPrefix
	if c.kind == gateway {
		of, at, key = Pin.gateways, &r.gateways, multicluster.AnnotationGatewaysPrefix
	}
	if own, pinned := of(r.Pins[c.cluster]); pinned {
		if slices.ContainsFunc(own, func(r netip.Prefix) bool { return contains(r, c.prefix) }) {
			return nil
		}
		return fmt.Errorf(
			"%s is not among the addresses that cluster %s may announce: correct it there, or annotation %s of the leader's "+
				"ClusterSet",
			c.text(), c.cluster, key+c.cluster)
	}
	first := -1
	at.overlapping(c.prefix, func(i int) {
		if r.clusters[i] != c.cluster && (first < 0 || i < first) {
			first = i
		}
	})
	if first < 0 {
		return nil
	}
	id := r.clusters[first]
	return fmt.Errorf(
		"%s of cluster %s is reserved for cluster %s by annotation %s of the leader's ClusterSet: use other addresses",
		c.text(), c.cluster, id, key+id)
}

// RefuseSubnets returns a function that says why a cluster may not have a Subnet whose Pods other clusters reach. It
// says nil if the cluster may. A cluster with pinned ranges has its Subnets in these. Without pins they are private.
func (p Pins) RefuseSubnets() func(cluster string, subnet netip.Prefix) error {
	r := reserve(p)
	return func(cluster string, subnet netip.Prefix) error {
		c := claim{cluster, subnetRange, subnet}
		if _, err := Range(subnet.String()); err != nil {
			return fmt.Errorf("%w: use another range for the Subnet", err)
		}
		if err := r.check(c); err != nil {
			return err
		}
		if !private(subnet) && !p.reserves(c) {
			return fmt.Errorf("%s of cluster %s is not private (RFC 1918, RFC 6598, RFC 4193), and not pinned to the cluster: "+
				"use a private range, or add this one to annotation %s of the leader's ClusterSet, next to all ranges of "+
				"Pods and Services of the cluster", c.text(), cluster,
				multicluster.AnnotationRangesPrefix+cluster)
		}
		return nil
	}
}

// OfOthers reports whether an address is in a range that is pinned to another cluster than this one.
func (p Pins) OfOthers(cluster string, ip netip.Addr) bool {
	for id, pin := range p {
		if id != cluster && slices.ContainsFunc(pin.Ranges, func(r netip.Prefix) bool { return r.Contains(ip) }) {
			return true
		}
	}
	return false
}

// reserves reports whether a range is pinned to the cluster that claims it.
func (p Pins) reserves(c claim) bool {
	own, pinned := Pin.ranges(p[c.cluster])
	return pinned && slices.ContainsFunc(own, func(r netip.Prefix) bool { return contains(r, c.prefix) })
}

func (p Pin) ranges() ([]netip.Prefix, bool)   { return p.Ranges, p.HasRanges }
func (p Pin) gateways() ([]netip.Prefix, bool) { return p.Gateways, p.HasGateways }
