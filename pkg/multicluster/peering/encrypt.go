package peering

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// With encryption the tunnels between clusters end at addresses inside WireGuard: packets to them are routed to it.
// Each Gateway has a key and an inside address of its own, which ClusterInfos carry next to the Gateway's address. A
// cluster such as Antrea's announces one key, and its inside address is the first of its Service range. Towards such a
// peer this cluster does the same: it uses only its oldest Gateway, and only one gateway of the peer. All inside
// addresses are of IPv4. Packets of both versions of IP go through the tunnels between them.

// InsideRange has the inside addresses of Gateways between clusters, and of Nodes within a cluster. It is a part of
// IPv4 that no host uses (RFC 1112, section 4), so no range of users overlaps it.
var InsideRange = netip.MustParsePrefix("240.0.0.0/4")

// InsideOfNode returns the inside address of a Node with an outside address: its last 28 bits. IPv6 addresses of Nodes
// in several subnets often have the same last bits, so for them it is 28 bits of a hash. Without an outside address it
// is the first address of the range, which no Node has.
func InsideOfNode(outside netip.Addr) netip.Addr {
	var a [4]byte
	switch {
	case outside.Is4():
		a = outside.As4()
	case outside.Is6():
		hash := sha256.Sum256(outside.WithZone("").AsSlice())
		a = [4]byte(hash[:4])
	}
	a[0] |= 0xf0
	return netip.AddrFrom4(a)
}

// inside reads an address inside.
func inside(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !InsideRange.Contains(a) || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return netip.Addr{}, fmt.Errorf("%.60q is not an address of %s", text, InsideRange)
	}
	return a, nil
}

// knownInside reports whether a Gateway that new connections use has an inside address of its own.
func (p Part) knownInside() bool {
	return slices.ContainsFunc(p.Gateways, func(g GatewayNode) bool { return g.Used() && g.InsideIP.IsValid() })
}

// withoutEnds leaves out the Gateways without an inside address: they cannot receive yet. It always leaves out such
// joining Gateways. It leaves out such Gateways in use only if another Gateway has an inside address. The member
// controller announces the same Gateways to other clusters. A Node that is left out keeps the role of a regular Node.
// Otherwise the connections of its Pods would change their ways for a moment.
func (p Part) withoutEnds() Part {
	inside := p.knownInside()
	without := func(g GatewayNode) bool { return !g.InsideIP.IsValid() && (inside || !g.Used()) }
	left := slices.DeleteFunc(slices.Clone(p.Gateways), without)
	if len(left) == 0 {
		return p
	}
	p.Gateways = left
	if p.Role == Regular || without(p.Gateway) {
		p.Role, p.Gateway = Regular, left[0]
	}
	return p
}

// ownBase is this cluster's address inside; false where it cannot be known.
func (p *planner) ownBase(gateway string) (netip.Addr, bool) {
	i := slices.IndexFunc(p.view.Gateways, func(g *mcv1alpha1.Gateway) bool { return g.Name == gateway })
	g := p.view.Gateways[i]
	services, err := claims.Range(g.ServiceCIDR)
	if err != nil {
		p.report(problem.Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}, "serviceCIDR",
			reasonInvalidServiceCIDR,
			"no cluster is reached, since encrypted tunnels end at the first address of the Service range: %v: set "+
				"serviceCIDR in the configuration of the member controller", err)
		return netip.Addr{}, false
	}
	return baseOf(services), true
}

// baseOf returns the inside address of a cluster that has only one: the first of its Service range. If the range is of
// IPv6, the address is a hash, and no peer uses it.
func baseOf(services netip.Prefix) netip.Addr {
	if first := services.Masked().Addr(); first.Is4() {
		return first
	}
	return claims.InsideOf(services.Masked().Addr())
}

// agreed decides whether both sides ask for the same.
func (p *planner) agreed(object problem.Object, ci *mcv1alpha1.ClusterInfoImport) bool {
	id := ci.Spec.ClusterID
	switch key := hasKey(ci.Spec.WireGuard); {
	case p.view.Encrypt && !key:
		p.report(object, "spec.wireGuard.publicKey", reasonPeerWithoutEncryption,
			"cluster %s ignored: it announces no WireGuard key, and nothing is sent to it in plain text: set "+
				"multicluster.trafficEncryptionMode to wireGuard in antrea-agent.conf of that cluster; its Gateway's agent "+
				"announces the key then", id)
		return false
	case !p.view.Encrypt && (key || gatewayHasKey(ci)) && !p.view.AllowUnencryptedPeers:
		p.report(object, "spec.wireGuard", reasonPeerExpectsEncryption,
			"cluster %s ignored: it announces a WireGuard key, and this cluster would send it plain text: "+
				"set multicluster.trafficEncryptionMode to wireGuard here; or turn encryption off there, and delete a Gateway "+
				"that still has the key; or set multicluster.allowUnencryptedPeers to true here, if the "+
				"network is trusted", id)
		return false
	}
	return true
}

// closed finds the clusters to which no packet may go in plain text. If this cluster encrypts, these are all other
// clusters. Otherwise they are the clusters that announce a key. closed leaves out ranges that overlap ranges of this
// cluster. Plan reports these, and decides which cluster has a range that several clusters announce.
func (p *planner) closed(imports []*mcv1alpha1.ClusterInfoImport) []Closed {
	var out []Closed
	for _, ci := range imports {
		if !p.view.Encrypt && (!hasKey(ci.Spec.WireGuard) && !gatewayHasKey(ci) || p.view.AllowUnencryptedPeers) {
			continue
		}
		services, err := claims.Range(ci.Spec.ServiceCIDR)
		if err != nil || p.serves(services) && p.overlaps(services, nil) != "" {
			continue
		}
		if since, ok := ci.Annotations[multicluster.AnnotationWithdrawn]; ok {
			object, id := problem.Object{Kind: "ClusterInfoImport", Namespace: ci.Namespace, Name: ci.Name}, ci.Spec.ClusterID
			p.report(object, "", reasonClusterWithdrawn,
				"cluster %s is not reached, and nothing goes to its ranges in plain text: the leader has had no announcement of "+
					"it since %s: see that one of its gateway Nodes is Ready and that its member controller runs; if it has left the "+
					"ClusterSet, delete this object, or wait a day", id, since)
		}
		c := Closed{ClusterID: ci.Spec.ClusterID, Base: baseOf(services)}
		ranges := ci.Spec.Services()
		if p.view.PodToPod {
			ranges = append(ranges, ci.Spec.PodCIDRs...)
		}
		for _, text := range ranges {
			if cidr, err := claims.Range(text); err == nil && p.serves(cidr) && p.overlaps(cidr, nil) == "" {
				c.CIDRs = append(c.CIDRs, cidr)
			}
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Closed) int { return a.Base.Compare(b.Base) })
	return out
}

func hasKey(w *mcv1alpha1.WireGuardInfo) bool { return w != nil && w.PublicKey != "" }

// gatewayHasKey reports whether one of a cluster's gateways announces a key.
func gatewayHasKey(ci *mcv1alpha1.ClusterInfoImport) bool {
	for _, info := range announced(ci) {
		if hasKey(info.WireGuard) {
			return true
		}
	}
	return false
}

// encryption keeps the encrypted ways of the peer, with their inside addresses and their keys. services is the peer's
// first range of ClusterIPs. It returns false if no such way is left. A peer with only one inside address keeps its
// other ways until all peers are known, since no other peer may have the addresses of these ways.
func (p *planner) encryption(object problem.Object, ci *mcv1alpha1.ClusterInfoImport, services netip.Prefix,
	peer *Peer) bool {
	if !ci.Spec.Inside() || !p.inside {
		if !services.Addr().Is4() { // an address that follows from the range could be that of another peer's gateway
			p.report(object, "spec.serviceCIDR", reasonNoInsideIP,
				"cluster %s ignored: its first Service range %s is of IPv6, and that cluster or this one announces no "+
					"wireGuard.insideIP of its gateways: agents announce it soon after their start; if they do not, apply the "+
					"manifests of this release in both clusters and in the leader's", peer.ClusterID, services)
			return false
		}
		peer.Active, peer.Base = false, p.base
		w := peer.Gateways[0]
		w.Inside = baseOf(services)
		ok := p.keys(object, "spec.wireGuard", ci.Spec.WireGuard, *peer, &w)
		peer.Gateways[0] = w
		return ok
	}
	usable := peer.Gateways
	peer.Gateways = nil
	for field, info := range announced(ci) {
		outside, err := claims.Address(info.GatewayIP)
		i := slices.IndexFunc(usable, leads(outside))
		if err != nil || i < 0 || slices.ContainsFunc(peer.Gateways, leads(outside)) {
			continue // it has been said why
		}
		if info.WireGuard == nil || info.WireGuard.InsideIP == "" {
			continue // the Gateway's agent is about to announce its key
		}
		field += ".wireGuard"
		w := usable[i]
		w.Inside, err = inside(info.WireGuard.InsideIP)
		if err != nil {
			p.report(object, field+".insideIP", reasonInvalidInsideIP,
				"gateway %s of cluster %s ignored: %v: apply the manifests of this release in that cluster and "+
					"in the leader's",
				outside, peer.ClusterID, err)
			continue
		}
		if w.Inside != claims.InsideOf(outside) { // another's, or another cluster could take the address of a Gateway to come
			p.report(object, field+".insideIP", reasonInvalidInsideIP,
				"gateway %s of cluster %s ignored: its address inside WireGuard is %s: expected %s, which follows from "+
					"its address; if that has changed, its agent announces the other one soon",
				outside, peer.ClusterID, w.Inside, claims.InsideOf(outside))
			continue
		}
		if owner := p.insideOwner(w.Inside, *peer); owner != "" {
			p.report(object, field+".insideIP", reasonDuplicateInsideIP,
				"gateway %s of cluster %s ignored: its address inside WireGuard, %s, belongs to %s: the last 28 bits of "+
					"Gateways' addresses have to differ; give one of them another address",
				outside, peer.ClusterID, w.Inside, owner)
			continue
		}
		if p.keys(object, field, info.WireGuard, *peer, &w) {
			peer.Gateways = append(peer.Gateways, w)
		}
	}
	return slices.ContainsFunc(peer.Gateways, func(w Way) bool { return !w.Leaving })
}

// keys gives a way of the peer its announced keys. It returns false if they cannot be used.
func (p *planner) keys(object problem.Object, field string, info *mcv1alpha1.WireGuardInfo, peer Peer, w *Way) bool {
	key, err := publickey.Parse(info.PublicKey)
	if err != nil {
		p.report(object, field+".publicKey", reasonInvalidWireGuardKey,
			"%s ignored: %v: delete that cluster's Gateway object: it is made again, and its agent writes its key again",
			peer.named(*w), err)
		return false
	}
	if owner := p.keyOwner(key, peer); owner != "" {
		p.report(object, field+".publicKey", reasonDuplicateWireGuardKey,
			"%s ignored: %s has the same WireGuard key: remove the file wireguard.key below /var/lib/tombolo on "+
				"that cluster's Gateway Nodes, if they are copies of others, and restart their agents",
			peer.named(*w), owner)
		return false
	}
	w.Key = key
	p.next(object, field, info, peer, w)
	return true
}

// named returns a name for the other end of a way, for people.
func (peer Peer) named(w Way) string {
	if peer.Base.IsValid() {
		return "cluster " + peer.ClusterID
	}
	return fmt.Sprintf("gateway %s of cluster %s", w.Outside, peer.ClusterID)
}

// Name returns a name for the other end of an encrypted way, for people.
func (peer Peer) Name(w Way) string {
	if len(peer.Gateways) == 1 {
		return "cluster " + peer.ClusterID
	}
	return peer.named(w)
}

// Outside returns the address by which users know a gateway, given the address where its tunnels end.
func (peer Peer) Outside(end netip.Addr) netip.Addr {
	if i := slices.IndexFunc(peer.Gateways, func(w Way) bool { return w.End() == end }); i >= 0 {
		return peer.Gateways[i].Outside
	}
	return end
}

// insideOwner returns the peer that already has an inside address, "" for a free one.
func (p *planner) insideOwner(a netip.Addr, peer Peer) string {
	if i := slices.IndexFunc(p.own, func(g GatewayNode) bool { return g.InsideIP == a }); i >= 0 {
		return "Gateway " + p.own[i].Name + " of this cluster"
	}
	if slices.ContainsFunc(p.view.Own.Nodes, func(n netip.Addr) bool { return InsideOfNode(n) == a }) {
		return "a Node of this cluster"
	}
	for _, o := range append(slices.Clone(p.peers), peer) {
		if i := slices.IndexFunc(o.Gateways, func(w Way) bool { return w.Inside == a }); i >= 0 {
			return "gateway " + o.Gateways[i].Outside.String() + " of cluster " + o.ClusterID
		}
	}
	return ""
}

// next adds a peer's announcement of its next key. If only the announcement is invalid, the peer is still reached with
// its present key.
func (p *planner) next(object problem.Object, field string, info *mcv1alpha1.WireGuardInfo, peer Peer, w *Way) {
	if info.NextPort < 0 || info.NextPort > 65535 || info.NextPort == 0 && info.NextPublicKey != "" {
		p.report(object, field+".nextPort", reasonInvalidWireGuardPort,
			"packets of %s will be lost when it changes its WireGuard key: %d is not a port: apply the manifests of this "+
				"release in that cluster and in the leader's", peer.named(*w), info.NextPort)
		return
	}
	w.NextPort = uint16(info.NextPort)
	if info.NextPublicKey == "" {
		return
	}
	key, err := publickey.Parse(info.NextPublicKey)
	if err != nil {
		p.report(object, field+".nextPublicKey", reasonInvalidWireGuardKey,
			"packets of %s will be lost when it changes its WireGuard key: %v: delete that cluster's Gateway object: it is "+
				"made again, and its agent writes its keys again", peer.named(*w), err)
		return
	}
	if owner := p.keyOwner(key, peer); owner != "" {
		p.report(object, field+".nextPublicKey", reasonDuplicateWireGuardKey,
			"%s cannot change to its next WireGuard key: %s has the same: remove the file wireguard.key.next below "+
				"/var/lib/tombolo on that cluster's Gateway Node, and restart its agent", peer.named(*w), owner)
		return
	}
	w.Next = key
}

// keyOwner returns the peer that already has a key, "" for a free one.
func (p *planner) keyOwner(key publickey.Key, peer Peer) string {
	text := key.String()
	for _, g := range p.view.Gateways {
		if g.WireGuard != nil && (g.WireGuard.PublicKey == text || g.WireGuard.NextPublicKey == text) {
			return "Gateway " + g.Name + " of this cluster"
		}
	}
	for _, o := range append(slices.Clone(p.peers), peer) {
		if i := slices.IndexFunc(o.Gateways, func(w Way) bool { return w.Key == key || w.Next == key }); i >= 0 {
			return o.named(o.Gateways[i])
		}
	}
	return ""
}

// onlyInside leaves out the ways that are not encrypted.
func (peer *Peer) onlyInside() {
	peer.Gateways = slices.DeleteFunc(peer.Gateways, func(w Way) bool { return !w.Inside.IsValid() })
}
