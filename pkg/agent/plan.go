package agent

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Names and numbers of the Node's own things.
const (
	TunnelPortName = "tombolo-tun0"

	tunnelOFPort  = 32768
	gatewayOFPort = 32769

	instance = 1 // of the cookies; see docs/design/0001-cookies.md

	// Keys in a port's external_ids (contract: OVSDB record of who is attached).
	externalIDType = bridge.TypeKey
	typeGateway    = "gateway"
	typeTunnel     = "tunnel"
	typeUplink     = "uplink"
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

	// State is what Flows were made from; the debug API shows it.
	State datapath.State
	// Refusals answers packets for Services without endpoints.
	Refusals datapath.Refusals
	// Network is what a new Pod gets; nil while the Node has no podCIDR.
	Network *cni.Network
	// Waiting are the attachments whose port has no number yet, by port name.
	Waiting map[string]bool
}

// reporter adds a problem to what a plan returns.
type reporter = func(object problem.Object, field, reason, format string, args ...any)

// Plan says what this Node should have for a view. It uses no client, clock or cache.
func Plan(v View) (Desired, []problem.Problem) {
	var problems []problem.Problem
	report := func(object problem.Object, field, reason, format string, args ...any) {
		problems = append(problems, problem.Problem{Object: object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}

	node := v.self()
	if node == nil {
		report(problem.Object{Kind: "Node", Name: v.NodeName}, "", "NodeNotFound", "the API server knows no Node of this name: check the agent's NODE_NAME")
		return Desired{}, problems
	}
	ranges, err := podCIDRs(node)
	if err != nil {
		report(problem.Object{Kind: "Node", Name: v.NodeName}, "spec.podCIDRs", "InvalidPodCIDR", "%v: recreate the Node with a valid podCIDR", err)
	}
	if len(ranges) == 0 {
		report(problem.Object{Kind: "Node", Name: v.NodeName}, "spec.podCIDRs", "NoPodCIDR",
			"no IPv4 podCIDR is assigned: start kube-controller-manager with --allocate-node-cidrs and --cluster-cidr")
	}

	if _, _, err := tunnelEnd(node); err != nil {
		report(problem.Object{Kind: "Node", Name: v.NodeName}, "metadata.annotations", "InvalidTransportAddress", "%v: its InternalIP is used; correct or remove the annotation", err)
	}

	d := Desired{Waiting: map[string]bool{}}
	mtu := v.podMTU()
	serviceCIDRs := v.serviceCIDRs()
	d.Bridges = v.bridges(mtu, v.transportAddress(report))
	d.Host = v.host(ranges, serviceCIDRs, mtu)
	if v.Underlay.Uplink != nil {
		if err := d.takeOver(v); err != nil {
			report(problem.Object{Kind: "Node", Name: v.NodeName}, "transportInterface", "UplinkNotTakenOver",
				"%v: give interface %s an address, or name another in antrea-agent.conf", err, v.Config.TransportInterface)
		}
	}

	state := datapath.State{Node: datapath.Node{
		Name:         v.NodeName,
		GatewayPort:  gatewayOFPort,
		TunnelPort:   tunnelOFPort,
		PodCIDRs:     ranges,
		ServiceVIP:   serviceVIP,
		Tunnel:       v.tunnel(),
		PacketInRate: uint32(v.Config.PacketInRate),
	}}
	state.Node.Ends = tunnelEnds(node)
	if mac, err := ofp.ParseMAC(v.GatewayMAC); err == nil {
		state.Node.GatewayMAC = mac
	}
	for _, r := range ranges {
		state.Node.GatewayIPs = append(state.Node.GatewayIPs, gatewayOf(r))
	}
	d.pods(v, &state, report)
	v.remoteNodes(&state, report)

	frontends, ps := v.balanced()
	problems = append(problems, ps...)
	state.Frontends = frontends

	if v.Config.MulticlusterGateway() {
		p, ps := peering.Plan(peering.View{
			NodeName:           v.NodeName,
			Gateways:           v.Gateways,
			ClusterInfoImports: v.ClusterInfoImports,
			ClusterSets:        v.ClusterSets,
			Own:                v.own(serviceCIDRs),
			PodToPod:           v.Config.Multicluster.EnablePodToPodConnectivity,

			AllowUnencryptedPeers: v.Config.Multicluster.AllowUnencryptedPeers,
		})
		problems = append(problems, ps...)
		v.useTransportAddresses(&p, report)
		problems = append(problems, v.podEndpoints()...)
		state.Peering = p
		state.PodToPod = v.Config.Multicluster.EnablePodToPodConnectivity
		state.Exported = map[types.NamespacedName]bool{}
		for _, e := range v.ServiceExports {
			state.Exported[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}] = true
		}
	}
	if v.Underlay.Uplink != nil {
		d.Host.Tunnels = tunnels(v.Config.TransportInterface, state)
	}

	flows, ps := datapath.Plan(state)
	problems = append(problems, ps...)
	d.Flows, d.State, d.Refusals = flows, state, state.Refusals()

	if len(ranges) > 0 && mtu > 0 && v.GatewayMAC != "" {
		d.Network = &cni.Network{
			PodCIDRs:   ranges,
			Gateways:   state.Node.GatewayIPs,
			MTU:        mtu,
			GatewayMAC: v.GatewayMAC,
			// The userspace datapath forwards a packet as it was written to the veth; a
			// checksum left to hardware would never be computed.
			DisableTXChecksum: v.Config.OVSDatapathType == "netdev" || v.Config.DisableTXChecksumOffload,
		}
	}
	return d, problems
}

// podMTU is the MTU of Pods and of the gateway port: what the configuration says, else the
// underlay's less the tunnel's overhead; 0 while the underlay is not known.
func (v View) podMTU() int {
	switch {
	case v.Config.DefaultMTU > 0:
		return v.Config.DefaultMTU
	case v.Underlay.MTU == 0:
		return 0
	}
	return min(v.Underlay.MTU-overhead[v.Config.TunnelType], 65000)
}

// tunnel is what the switch's tunnels look like from outside.
func (v View) tunnel() datapath.Tunnel {
	t := tunnelProtocols[v.Config.TunnelType]
	if v.Config.TunnelPort > 0 && t.Port > 0 {
		t.Port = uint16(v.Config.TunnelPort)
	}
	return t
}

// allPodCIDRs returns the podCIDRs of every Node of the cluster.
func (v View) allPodCIDRs() []netip.Prefix {
	var out []netip.Prefix
	for _, n := range v.Nodes {
		ranges, err := podCIDRs(n)
		if err == nil {
			out = append(out, ranges...)
		}
	}
	return out
}

// pods adds the Pods attached to this Node. One whose port has no number yet has no flows.
func (d *Desired) pods(v View, state *datapath.State, report reporter) {
	ports := v.Switch.Bridges[v.Config.OVSBridge].Ports
	for _, a := range v.Attachments {
		object := problem.Object{Kind: "Pod", Namespace: a.PodNamespace, Name: a.PodName}
		mac, err := ofp.ParseMAC(a.MAC)
		if err != nil {
			report(object, "", "InvalidAttachment", "port %s: %v: delete the Pod to have it attached anew", a.PortName, err)
			continue
		}
		port, ok := ports[a.PortName]
		if ok && port.Error != "" {
			// Nothing waits for it: its Pod is gone, or the CNI call that made it tells.
			report(object, "", "PortRefused", "Open vSwitch refused port %s: %s", a.PortName, port.Error)
			continue
		}
		if !ok || port.OFPort == 0 {
			d.Waiting[a.PortName] = true
			continue
		}
		pod := datapath.Pod{
			Namespace: a.PodNamespace,
			Name:      a.PodName,
			Interface: a.PortName,
			MAC:       mac,
			Port:      ofp.Port(port.OFPort),
		}
		for _, ip := range a.IPs {
			pod.IPs = append(pod.IPs, ip.Addr())
		}
		state.Pods = append(state.Pods, pod)
	}
}

// remoteNodes adds the other Nodes of this cluster that have Pods and an address.
func (v View) remoteNodes(state *datapath.State, report reporter) {
	for _, n := range v.Nodes {
		if n.Name == v.NodeName {
			continue
		}
		ranges, err := podCIDRs(n)
		if err != nil {
			report(problem.Object{Kind: "Node", Name: n.Name}, "spec.podCIDRs", "InvalidPodCIDR", "%v: its Pods cannot be reached from here", err)
			continue
		}
		ip, ok, err := tunnelEnd(n)
		if err != nil {
			report(problem.Object{Kind: "Node", Name: n.Name}, "metadata.annotations", "InvalidTransportAddress", "%v: its InternalIP is used; correct or remove the annotation", err)
		}
		if !ok || len(ranges) == 0 {
			continue // a Node that is still being set up
		}
		remote := datapath.RemoteNode{Name: n.Name, PodCIDRs: ranges, Address: ip, Sources: tunnelEnds(n)}
		for _, r := range ranges {
			remote.GatewayIPs = append(remote.GatewayIPs, gatewayOf(r))
		}
		state.RemoteNodes = append(state.RemoteNodes, remote)
	}
}
