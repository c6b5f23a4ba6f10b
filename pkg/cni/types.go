// Package cni is the agent's side of the container network interface. It answers the tombolo-cni plugin on a unix
// socket, gives Pods addresses and a veth pair, and lets the Node attach them to the switch.
//
// The specification is https://github.com/containernetworking/cni/blob/spec-v1.1.0/SPEC.md.
package cni

import (
	"context"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
)

// Attachment is one interface of one Pod on the switch. All of its fields are in the port's external_ids, a record that
// survives a restart of the agent.
type Attachment struct {
	ContainerID  string // of the sandbox
	IfName       string // inside the Pod, usually "eth0"
	Netns        string // path, such as "/var/run/netns/cni-..."
	PodNamespace string
	PodName      string
	PodUID       types.UID      // "" if the runtime gave no UID, or an earlier version made it
	PortName     string         // the host's end of the veth pair, and the port's name in OVSDB
	Network      string         // name of its network configuration; for "" see networkOf
	MAC          string         // the Pod's
	IPs          []netip.Prefix // the Pod's addresses with the length of their podCIDR
	Bandwidth    Bandwidth
	HostPorts    HostPorts
	// VirtualNetwork is the "namespace/name" of the VirtualNetwork that the interface is in, "" without one.
	VirtualNetwork string
	// Inside is the "namespace/name" of the VirtualNetwork that the packets of a first interface are in, if the addresses
	// of the interface are of the Node. Then VirtualNetwork is "".
	Inside string
}

// VirtualKey returns the VirtualNetwork of an interface, and false without one.
func (a Attachment) VirtualKey() (namespace, name string, ok bool) {
	namespace, name = splitNetwork(a.VirtualNetwork)
	return namespace, name, a.VirtualNetwork != ""
}

// InsideKey returns the VirtualNetwork that packets of a first interface with addresses of the Node are in, and false
// without one.
func (a Attachment) InsideKey() (namespace, name string, ok bool) {
	namespace, name = splitNetwork(a.Inside)
	return namespace, name, a.Inside != ""
}

// networkOf returns the name of the network that an interface belongs to, from its record. In the usual case, the first
// interface of a Pod in the installed network, the record has no name. Earlier versions recorded no names at all. For
// any other interface, "" means that the network is unknown.
func networkOf(ifName, recorded string) string {
	if recorded == "" && ifName == defaultIfName {
		return wire.InstalledNetwork
	}
	return recorded
}

// recordedNetwork returns the text that is recorded for an interface's network.
func recordedNetwork(ifName, network string) string {
	if network == networkOf(ifName, "") {
		return ""
	}
	return network
}

// Network has the settings of this Node for a new Pod.
type Network struct {
	PodCIDRs []netip.Prefix
	// Gateways are the Pod's next hops, one for each of PodCIDRs and in the same order. For a range without an entry, the
	// first address of the range is the gateway.
	Gateways []netip.Addr
	// Reserved are further addresses that no Pod gets.
	Reserved   []netip.Addr
	MTU        int    // 0 leaves the kernel's default
	GatewayMAC string // of the gateway port
	// DisableTXChecksum makes Pods compute the checksums of their packets. The userspace datapath forwards packets as they
	// are on the veth.
	DisableTXChecksum bool
}

// Node is the part of the Node that the CNI server uses. The agent implements it.
type Node interface {
	// Network waits until the Node's network is ready, or until ctx ends.
	Network(ctx context.Context) (Network, error)
	// Attach makes the port and returns when the switch has confirmed the Pod's flows. It
	// is called again with the same values when a runtime retries.
	Attach(ctx context.Context, a Attachment) error
	// Detach removes port and flows. It returns nil if there are no port and flows.
	Detach(ctx context.Context, containerID, ifName string) error
	// Attachments lists the present attachments.
	Attachments() []Attachment
}
