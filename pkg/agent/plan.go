package agent

import (
	"maps"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Names and numbers of the Node's own things.
const (
	TunnelPortName = "tombolo-tun0"

	tunnelOFPort  = 32768
	firstWay      = 33024 // ports with BFD: above those that are given to ports that ask for none
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

// serviceVIP is the next hop of the host for Services and remote Pods, and the source
// address of connections that hairpin through a port.
var serviceVIP = netip.MustParseAddr("169.254.0.253")

// virtualMAC answers for serviceVIP: whatever the host sends there is routed by the switch.
var virtualMAC = datapath.InClusterMAC.String()

// tunnelProtocols are the protocols of the tunnel types, with their own ports (IANA).
var tunnelProtocols = map[string]datapath.Tunnel{
	"geneve": {Protocol: 17, Port: 6081},
	"vxlan":  {Protocol: 17, Port: 4789},
	"gre":    {Protocol: 47},
}

// overhead is what each tunnel type adds to a packet over an IPv4 underlay, in bytes.
var overhead = map[string]int{"geneve": 50, "vxlan": 50, "gre": 42}

// Desired is everything this Node should have.
type Desired struct {
	Bridges []bridge.Bridge
	Host    hostnet.Desired
	Flows   map[flow.Owner]flow.Entries

	// What Flows were made from.
	Node        datapath.Node
	Pods        []datapath.Pod
	RemoteNodes []datapath.RemoteNode
	Frontends   []service.Frontend
	Peering     peering.Peering
	// Network is what a new Pod gets; nil while the Node has no podCIDR.
	Network *cni.Network
	// Waiting are the attachments whose port has no number yet, by port name.
	Waiting map[string]bool
}

// Plan says what this Node should have for a view: the tables' functions, evaluated for all keys. It
// uses no client, clock or cache.
func Plan(v View) (Desired, []problem.Problem) {
	t := newTables(v.Config, v.NodeName)
	t.set(v)
	t.engine.Pass()
	return t.desired(), t.engine.Problems()
}

// desired copies out what the tables hold; nothing while the Node is not known.
func (t *tables) desired() Desired {
	d := Desired{
		Pods: values(t.pods.All()), RemoteNodes: values(t.remotes.All()), Frontends: t.services.All(),
		Waiting: map[string]bool{}, Flows: map[flow.Owner]flow.Entries{},
	}
	var ok bool
	if d.Node, ok = t.node.Get(self); !ok {
		return Desired{}
	}
	d.Bridges, _ = t.bridges.Get(self)
	d.Host, _ = t.host.Get(self)
	d.Peering, _ = t.peering.Get(self)
	for _, row := range t.waiting.All() {
		d.Waiting[string(row.Key)] = true
	}
	if network, ok := t.network.Get(self); ok {
		d.Network = &network
	}
	maps.Insert(d.Flows, t.flows.All())
	return d
}
