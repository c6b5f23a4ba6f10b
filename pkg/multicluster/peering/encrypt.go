package peering

import (
	"net/netip"
	"slices"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// With encryption a cluster has one address inside, the first of its Service range, and the tunnels between clusters end
// there: packets to it are routed to WireGuard. So a cluster uses one gateway, the oldest, and one of each peer.

// ownBase is this cluster's address inside; false where it cannot be known.
func (p *planner) ownBase(gateway string) (netip.Addr, bool) {
	i := slices.IndexFunc(p.view.Gateways, func(g *mcv1alpha1.Gateway) bool { return g.Name == gateway })
	g := p.view.Gateways[i]
	services, err := claims.Range(g.ServiceCIDR)
	if err != nil {
		p.report(problem.Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}, "serviceCIDR", "InvalidServiceCIDR",
			"no cluster is reached, since encrypted tunnels end at the first address of the Service range: %v: set serviceCIDR in the configuration of the member controller", err)
		return netip.Addr{}, false
	}
	return services.Masked().Addr(), true
}

// encryption decides whether a peer can be reached as both sides ask for: false when it cannot. The key is that of a peer to which
// traffic is encrypted.
func (p *planner) encryption(object problem.Object, ci *mcv1alpha1.ClusterInfoImport) (key publickey.Key, ok bool) {
	const field = "spec.wireGuard.publicKey"
	id, text := ci.Spec.ClusterID, ""
	if ci.Spec.WireGuard != nil {
		text = ci.Spec.WireGuard.PublicKey
	}
	if !p.view.Encrypt {
		if text != "" && !p.view.AllowUnencryptedPeers {
			p.report(object, "spec.wireGuard", "PeerExpectsEncryption", "cluster %s ignored: it announces a WireGuard key, and this cluster would send it plain text: set multicluster.trafficEncryptionMode to wireGuard in antrea-agent.conf here, or to none in that cluster, or set multicluster.allowUnencryptedPeers to true here if the network between the clusters is trusted", id)
			return key, false
		}
		return key, true
	}
	if text == "" {
		p.report(object, field, "PeerWithoutEncryption", "cluster %s ignored: it announces no WireGuard key, and nothing is sent to it in plain text: set multicluster.trafficEncryptionMode to wireGuard in antrea-agent.conf of that cluster; its Gateway's agent announces the key then", id)
		return key, false
	}
	key, err := publickey.Parse(text)
	if err != nil {
		p.report(object, field, "InvalidWireGuardKey", "cluster %s ignored: %v: remove wireGuard from that cluster's Gateway object, and its agent writes its key again", id, err)
		return key, false
	}
	if owner := p.keyOwner(key); owner != "" {
		p.report(object, field, "DuplicateWireGuardKey", "cluster %s ignored: %s has the same WireGuard key: remove the file wireguard.key below /var/lib/tombolo on that cluster's Gateway Nodes, if they are copies of others, and restart their agents", id, owner)
		return key, false
	}
	return key, true
}

// next adds what a peer says about a change of its key. Bad content is left out alone: the peer is reached by the key that it has.
func (p *planner) next(object problem.Object, ci *mcv1alpha1.ClusterInfoImport, w *WireGuard) {
	const field = "spec.wireGuard.nextPublicKey"
	id, info := ci.Spec.ClusterID, ci.Spec.WireGuard
	if info.NextPort < 0 || info.NextPort > 65535 || info.NextPort == 0 && info.NextPublicKey != "" {
		p.report(object, "spec.wireGuard.nextPort", "InvalidWireGuardPort",
			"packets of cluster %s will be lost when it changes its WireGuard key: %d is not a port: apply the manifests of this release in that cluster and in the leader's", id, info.NextPort)
		return
	}
	w.NextPort = uint16(info.NextPort)
	if info.NextPublicKey == "" {
		return
	}
	key, err := publickey.Parse(info.NextPublicKey)
	if err != nil {
		p.report(object, field, "InvalidWireGuardKey",
			"packets of cluster %s will be lost when it changes its WireGuard key: %v: remove wireGuard from that cluster's Gateway object, and its agent writes its keys again", id, err)
		return
	}
	if owner := p.keyOwner(key); owner != "" {
		p.report(object, field, "DuplicateWireGuardKey",
			"cluster %s cannot change to its next WireGuard key: %s has the same: remove the file wireguard.key.next below /var/lib/tombolo on that cluster's Gateway Node, and restart its agent", id, owner)
		return
	}
	w.Next = key
}

// keyOwner says whose a key is already, "" when nobody's.
func (p *planner) keyOwner(key publickey.Key) string {
	text := key.String()
	for _, g := range p.view.Gateways {
		if g.WireGuard != nil && (g.WireGuard.PublicKey == text || g.WireGuard.NextPublicKey == text) {
			return "Gateway " + g.Name + " of this cluster"
		}
	}
	for _, o := range p.peers {
		if o.WireGuard.PublicKey == key || o.WireGuard.Next == key {
			return "cluster " + o.ClusterID
		}
	}
	return ""
}

// inside makes the peer's tunnels end inside.
func (peer *Peer) inside() {
	peer.WireGuard.Endpoint = peer.Gateways[0]
	peer.Gateways, peer.Active = []netip.Addr{peer.CIDRs[0].Masked().Addr()}, false
}
