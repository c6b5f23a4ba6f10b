package agent

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// These are walks with encryption between clusters. Gateways and peers have keys and inside addresses, or not yet.

// insideRange has the addresses inside.
var insideRange = netip.MustParsePrefix("240.0.0.0/4")

// insideOf is the address inside of a Gateway: its last 28 bits, inverted.
func insideOf(outside string) string {
	ip, err := netip.ParseAddr(outside)
	if err != nil || !ip.Is4() {
		return "nowhere"
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0xf<<28|^binary.BigEndian.Uint32(ip.AsSlice()))
	return netip.AddrFrom4(b).String()
}

// inside reads an address inside.
func inside(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	if err != nil || !insideRange.Contains(ip) {
		return netip.Addr{}, false
	}
	return ip, true
}

// keyNamed is the key of an end.
func keyNamed(name string) string {
	var k publickey.Key
	copy(k[:], name)
	return k.String()
}

// badKey is an invalid key.
const badKey = "k"

// encryptGateway gives a Gateway of this cluster a key and an address inside.
func (w *world) encryptGateway(r *rand.Rand, g *mcv1alpha1.Gateway) string {
	if !w.encrypts {
		return ""
	}
	g.ServiceCIDR = "10.97.0.0/16"
	if r.IntN(24) == 0 {
		g.ServiceCIDR = oneOf(r, "", "x")
	}
	at := insideOf(g.GatewayIP)
	switch r.IntN(24) {
	case 0:
		at = oneOf(r, "", "here", "10.1.2.3")
	case 1, 2, 3, 4:
		if g.Annotations[multicluster.AnnotationPhase] == multicluster.PhaseJoining {
			at = ""
		}
	}
	if at != "" {
		g.Annotations[multicluster.AnnotationInsideIP] = at
		g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: keyNamed(g.Name), InsideIP: at}
	}
	return fmt.Sprintf(" inside at %q, Services %q", at, g.ServiceCIDR)
}

// goInside gives this cluster's Gateways their state with encrypted traffic. It returns false if there can be no
// Gateway.
func (t *traffic) goInside() bool {
	if len(t.gateways) == 0 {
		return false
	}
	all := t.gateways
	services, err := netip.ParsePrefix(all[0].services)
	t.base, t.gateways = services.Addr(), nil
	t.inside = slices.ContainsFunc(all, func(g ownGateway) bool { return g.phase == "" && g.inside.IsValid() })
	for _, g := range all {
		switch {
		case g.inside.IsValid():
		case t.inside || g.phase != "":
			continue // like a Node that is no Gateway
		default:
			g.inside = t.base
		}
		t.gateways = append(t.gateways, g)
	}
	return err == nil
}

// encrypted finds where the tunnels of a cluster end, and which ends are leaving. It returns false if the cluster
// cannot be reached. outside has its gateways' addresses outside of WireGuard.
func (t *traffic) encrypted(p *peer, spec mcv1alpha1.ClusterInfo, first netip.Addr, used map[netip.Addr]bool) (outside,
	going []netip.Addr, ok bool) {
	if spec.WireGuard == nil || spec.WireGuard.PublicKey == "" {
		return nil, nil, false
	}
	outside, p.gateways = p.gateways, nil
	if g := spec.GatewayInfos[0].WireGuard; !t.inside || g == nil || g.InsideIP == "" {
		p.gateways, p.own, p.active, p.oneKey = []netip.Addr{first}, t.base, false, true
		return outside, nil, spec.WireGuard.PublicKey != badKey
	}
	outside = nil
	for i, g := range slices.Concat(spec.GatewayInfos, spec.LeavingGateways) {
		ip, err := netip.ParseAddr(g.GatewayIP)
		if err != nil || !ip.Is4() || used[ip] || slices.Contains(outside, ip) || g.WireGuard == nil {
			continue
		}
		end, ok := inside(g.WireGuard.InsideIP)
		if !ok || end.String() != insideOf(g.GatewayIP) || used[end] || g.WireGuard.PublicKey == badKey {
			continue
		}
		outside, p.gateways = append(outside, ip), append(p.gateways, end)
		if i >= len(spec.GatewayInfos) {
			going = append(going, end)
		}
	}
	return outside, going, len(p.gateways) > len(going)
}
