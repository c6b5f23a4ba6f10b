// Package cni is the agent's side of the container network interface: it answers the
// tombolo-cni plugin on a unix socket, gives Pods addresses and a veth pair, and asks the
// Node to attach them to the switch.
//
// The specification is https://github.com/containernetworking/cni/blob/spec-v1.1.0/SPEC.md.
package cni

import (
	"context"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
)

// Attachment is one interface of one Pod on the switch. All of it is kept in the port's
// external_ids, which are the record that outlives the agent.
type Attachment struct {
	ContainerID  string // of the sandbox
	IfName       string // inside the Pod, usually "eth0"
	Netns        string // path, such as "/var/run/netns/cni-..."
	PodNamespace string
	PodName      string
	PodUID       types.UID      // "" where the runtime gave none, and for one that an earlier version made
	PortName     string         // the host's end of the veth pair, and the port's name in OVSDB
	Network      string         // name of its network configuration; "" as networkOf says
	MAC          string         // the Pod's
	IPs          []netip.Prefix // the Pod's addresses with the length of their podCIDR
}

// networkOf returns the name of the network that an interface belongs to, from its record. Earlier versions recorded no
// name, and the usual case has no name: the first interface, of the installed network. For another interface "" means
// that its network is not known.
func networkOf(ifName, recorded string) string {
	if recorded == "" && ifName == defaultIfName {
		return wire.InstalledNetwork
	}
	return recorded
}

// recordedNetwork returns what is recorded of an interface's network.
func recordedNetwork(ifName, network string) string {
	if network == networkOf(ifName, "") {
		return ""
	}
	return network
}

// Network is what this Node gives to a new Pod.
type Network struct {
	PodCIDRs []netip.Prefix
	// Gateways are the Pod's next hops, one per PodCIDR and in its order. Where it is
	// shorter, the first address of the range is the gateway.
	Gateways   []netip.Addr
	MTU        int    // 0 leaves the kernel's default
	GatewayMAC string // of the gateway port
	// DisableTXChecksum makes Pods compute their checksums: the userspace datapath takes
	// packets off the veth as they are.
	DisableTXChecksum bool
}

// Node is what the CNI server asks of the Node it runs on. The agent implements it.
type Node interface {
	// Network waits until the Node's network is ready, or until ctx ends.
	Network(ctx context.Context) (Network, error)
	// Attach makes the port and returns when the switch has confirmed the Pod's flows. It
	// is called again with the same values when a runtime retries.
	Attach(ctx context.Context, a Attachment) error
	// Detach removes port and flows. It returns nil if there are no port and flows.
	Detach(ctx context.Context, containerID, ifName string) error
	// Attachments lists what is attached now.
	Attachments() []Attachment
}
