package peering

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// tunnelSources reads further sources of peers' tunnels from the annotations of ClusterSets. It reports an invalid
// value as a Problem and leaves it out.
func (p *planner) tunnelSources() {
	for _, cs := range p.view.ClusterSets {
		object := problem.Object{Kind: "ClusterSet", Namespace: cs.Namespace, Name: cs.Name}
		for _, key := range slices.Sorted(maps.Keys(cs.Annotations)) {
			id, ok := strings.CutPrefix(key, multicluster.AnnotationTunnelSources)
			if !ok {
				continue
			}
			field := "metadata.annotations[" + key + "]"
			i := slices.IndexFunc(p.peers, func(o Peer) bool { return o.ClusterID == id })
			if i < 0 {
				p.report(object, field, reasonUnknownCluster,
					"the annotation has no effect: no cluster with ID %q is connected; correct the ID after the slash, or remove "+
						"the annotation", id)
				continue
			}
			for _, text := range strings.Split(cs.Annotations[key], ",") {
				source, err := p.tunnelSource(strings.TrimSpace(text))
				if err != nil {
					p.report(object, field, reasonInvalidTunnelSource, "tunnels of cluster %s are not taken from there: %v", id, err)
					continue
				}
				p.peers[i].Sources = append(p.peers[i].Sources, source)
			}
		}
	}
	for i := range p.peers {
		slices.SortFunc(p.peers[i].Sources, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
		p.peers[i].Sources = slices.Compact(p.peers[i].Sources)
	}
}

// tunnelSource reads an address or a range. It has the version of IP of this cluster's tunnels.
func (p *planner) tunnelSource(text string) (source netip.Prefix, err error) {
	if strings.Contains(text, "/") {
		source, err = claims.Range(text)
	} else if ip, bad := claims.Address(text); bad != nil {
		err = fmt.Errorf("%w: expected addresses such as 203.0.113.7 or ranges such as 203.0.113.0/28, separated by commas",
			bad)
	} else {
		source = netip.PrefixFrom(ip, ip.BitLen())
	}
	if here := p.own[0]; err == nil && source.Addr().Is4() != here.GatewayIP.Is4() {
		err = fmt.Errorf("%s is not of the version of IP of this cluster's tunnels, which end at %s of Gateway %s: correct "+
			"or remove it", source, here.GatewayIP, here.Name)
	}
	return source, err
}
