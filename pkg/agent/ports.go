package agent

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// Names and numbers of the Node's own things.
const (
	TunnelPortName = "tombolo-tun0"

	tunnelOFPort  = 32768
	firstWay      = 33024 // ports with BFD, above the numbers that Open vSwitch assigns
	lastWay       = 65279 // the largest number that a port can ask for
	gatewayOFPort = 32769

	instance = 1 // of the cookies; see docs/design/0001-cookies.md

	// Keys in a port's external_ids (contract: OVSDB record of attachments).
	externalIDType = bridge.TypeKey
	typeGateway    = "gateway"
	typeTunnel     = "tunnel"
	typeUplink     = "uplink"
	typeWay        = "bfd" // a tunnel port with BFD, to one far end
)

// serviceVIP is the host's next hop for Services and Pods of other Nodes. It is also the source address of connections
// that leave through the port they came from.
var serviceVIP = netip.MustParseAddr("169.254.0.253")

// serviceVIP6 is that for IPv6.
var serviceVIP6 = netip.MustParseAddr("fc01::aabb:ccdd:eeff")

// nextHop returns the host's next hop in the family of an address.
func nextHop(a netip.Addr) netip.Addr {
	if a.Is4() {
		return serviceVIP
	}
	return serviceVIP6
}

// virtualMAC is the MAC of both. The switch routes all packets that the host sends to it.
var virtualMAC = datapath.InClusterMAC.String()

// tunnelProtocols are the protocols of the tunnel types, with their own ports (IANA).
var tunnelProtocols = map[string]datapath.Tunnel{
	"geneve": {Protocol: 17, Port: 6081},
	"vxlan":  {Protocol: 17, Port: 4789},
	"gre":    {Protocol: 47},
}

// overhead is how many bytes each tunnel type adds to a packet over an IPv4 underlay.
var overhead = map[string]int{"geneve": 50, "vxlan": 50, "gre": 42}

// header6 is how much longer the header of IPv6 is, for tunnels over an IPv6 underlay.
const header6 = 20
