package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// encryptedView is testView with encryption, and node-1 as the Gateway.
func encryptedView() View {
	v := testView()
	v.Config.Multicluster.TrafficEncryptionMode = "wireGuard"
	v.InsideMAC = "02:00:00:00:00:0a"
	g := v.Gateways[0]
	g.Name, g.GatewayIP, g.InternalIP, g.ServiceCIDR = "node-1", "192.168.78.101", "192.168.78.101", "10.97.0.0/16"
	v.ClusterInfoImports[0].Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{9}.String()}
	return v
}

// encryptionOf is what a view has the Node's tables want of encryption.
func encryptionOf(v View) encrypted {
	t := newTables(v.Config, v.NodeName)
	t.set(v)
	t.engine.Pass()
	e, _ := t.encrypted.Get(self)
	return e
}

// outerAddresses are the addresses that flows send tunnels to and take them from.
func outerAddresses(d Desired) []string {
	var out []string
	for _, lines := range flowTexts(d.Flows) {
		for _, line := range lines {
			for _, at := range []string{"192.168.79.101", "10.98.0.0", "10.97.0.0", "192.168.78.102"} {
				for _, use := range []string{"set_field:" + at + "->tun_dst", "set_field:" + at + "->tun_src", "tun_src=" + at, "tun_dst=" + at} {
					if strings.Contains(line, use) && !slices.Contains(out, use) {
						out = append(out, use)
					}
				}
			}
		}
	}
	return out
}

func TestPlanEncrypted(t *testing.T) {
	d, problems := Plan(encryptedView())
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if d.Network == nil || d.Network.MTU != 1390 {
		t.Errorf("network of new Pods: %+v, want an MTU of 1390", d.Network)
	}
	have := encryptionOf(encryptedView())
	if len(have.Peers) != 1 || have.Base.String() != "10.97.0.0" || have.Peers[0].Endpoint.String() != "192.168.79.101:51821" ||
		fmt.Sprint(have.Peers[0].AllowedIPs) != "[10.98.0.0/32]" || have.Peers[0].PublicKey != (publickey.Key{9}) {
		t.Errorf("the device has %+v", have)
	}
	links := map[string]hostnet.Link{}
	for _, l := range d.Host.Links {
		links[l.Name] = l
	}
	if l := links[InsideLink]; l.MTU != 1440 || !l.Guarded || fmt.Sprint(l.Addresses) != "[10.97.0.0/32]" {
		t.Errorf("link %+v", l)
	}
	for _, want := range []hostnet.Route{
		{Dst: netip.MustParsePrefix("10.98.0.0/31"), Link: "antrea-gw0"},
		{Dst: netip.MustParsePrefix("10.98.0.0/32"), Link: InsideLink, Source: netip.MustParseAddr("10.97.0.0")},
	} {
		if !slices.Contains(d.Host.Routes, want) {
			t.Errorf("there is no route %+v in %+v", want, d.Host.Routes)
		}
	}
	outer := outerAddresses(d)
	for _, want := range []string{"set_field:10.98.0.0->tun_dst", "set_field:10.97.0.0->tun_src", "tun_src=10.98.0.0", "tun_dst=10.97.0.0"} {
		if !slices.Contains(outer, want) {
			t.Errorf("no flow has %s: %v", want, outer)
		}
	}
	for _, use := range outer {
		if strings.Contains(use, "192.168.79.101") {
			t.Errorf("a flow has %s, in plain text", use)
		}
	}
	for _, lines := range flowTexts(d.Flows) {
		for _, line := range lines {
			if strings.Contains(line, "tun_src=10.98.0.0") && !strings.Contains(line, "tun_dst=10.97.0.0") {
				t.Errorf("what comes from the peer is taken at another address: %s", line)
			}
		}
	}
}

// TestPlanEncryptedUserspace: the device is behind a bridge, and has a next hop that the switch can find.
func TestPlanEncryptedUserspace(t *testing.T) {
	v := encryptedView()
	v.Config.OVSDatapathType, v.Config.TransportInterface = "netdev", "eth1"
	v.Underlay.Uplink = &hostnet.Transport{Interface: "eth1", MAC: "02:00:00:00:00:09", MTU: 1500, Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}}
	d, problems := Plan(v)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	inside := d.Bridges[len(d.Bridges)-1]
	if inside.Name != InsideLink || inside.DatapathType != "netdev" || inside.HardwareAddr != v.InsideMAC || inside.Ports[0].Name != InsideTAP {
		t.Errorf("bridge %+v", inside)
	}
	if have := fmt.Sprint(d.Host.Tunnels); have != "[{antrea-mc-wg0 [10.98.0.0]} {br-eth1 [192.168.78.102 192.168.79.101]}]" {
		t.Errorf("next hops are asked for: %s", have)
	}
	route := hostnet.Route{Dst: netip.MustParsePrefix("10.98.0.0/32"), Gateway: insideHop, Link: InsideLink, Source: netip.MustParseAddr("10.97.0.0")}
	if !slices.Contains(d.Host.Routes, route) {
		t.Errorf("there is no route %+v in %+v", route, d.Host.Routes)
	}
}

// TestPlanEncryptedElsewhere: a regular Node sends to the Gateway, and has no device; without encryption nobody has.
func TestPlanEncryptedElsewhere(t *testing.T) {
	v := encryptedView()
	v.NodeName = "node-2"
	d, _ := Plan(v)
	if e := encryptionOf(v); e.Base.IsValid() || len(d.Host.Links) != 1 {
		t.Errorf("a regular Node has %+v and links %+v", e, d.Host.Links)
	}
	if d.Network == nil || d.Network.MTU != 1390 {
		t.Errorf("network of new Pods: %+v, want an MTU of 1390", d.Network)
	}
	v = encryptedView()
	v.ClusterInfoImports[0].Spec.WireGuard = nil
	d, problems := Plan(v)
	if len(d.Peering.Peers) != 0 || len(problems) != 1 || problems[0].Reason != "PeerWithoutEncryption" {
		t.Errorf("a peer without a key: %+v, %v", d.Peering.Peers, problems)
	}
	v = encryptedView()
	v.Config.Multicluster.TrafficEncryptionMode = "none"
	if e := encryptionOf(v); e.Base.IsValid() {
		t.Errorf("without encryption: %+v", e)
	}
}
