package cni

import (
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// These are keys of a port's external_ids. Antrea writes all except the last eight, so its tools can read this record.
// The last eight have facts that Antrea does not keep.
const (
	idType        = bridge.TypeKey
	idMAC         = "attached-mac"
	idIPs         = "ip-address"
	idContainer   = "container-id"
	idPodName     = "pod-name"
	idPodNS       = "pod-namespace"
	idNetns       = "net-ns"
	idIfName      = "if-dev" // only when it is not eth0
	idPrefixBits  = "tombolo-prefix-length"
	idNetwork     = "tombolo-network"         // only when it is not the installed one, on eth0
	idPodUID      = "tombolo-pod-uid"         // only if it is known
	idBandwidth   = "tombolo-bandwidth"       // only if it is limited
	idHostPorts   = "tombolo-host-ports"      // only if there are any
	idVirtual     = "tombolo-virtual-network" // only of interfaces in one
	idOfNode      = "tombolo-node-addresses"  // "true" if such a first interface has addresses of the Node
	typeContainer = "container"

	defaultIfName = "eth0"
)

// ExternalIDs returns the external_ids that record an attachment on its port.
func ExternalIDs(a Attachment) map[string]string {
	ips := make([]string, 0, len(a.IPs))
	bits := make([]string, 0, len(a.IPs))
	for _, p := range a.IPs {
		ips = append(ips, p.Addr().String())
		bits = append(bits, strconv.Itoa(p.Bits()))
	}
	ids := map[string]string{
		idType:       typeContainer,
		idMAC:        a.MAC,
		idIPs:        strings.Join(ips, ","),
		idPrefixBits: strings.Join(bits, ","),
		idContainer:  a.ContainerID,
		idPodName:    a.PodName,
		idPodNS:      a.PodNamespace,
		idNetns:      a.Netns,
	}
	if a.IfName != defaultIfName {
		ids[idIfName] = a.IfName
	}
	if a.PodUID != "" {
		ids[idPodUID] = string(a.PodUID)
	}
	if a.Network != "" {
		ids[idNetwork] = a.Network
	}
	if limits := a.Bandwidth.String(); limits != "" {
		ids[idBandwidth] = limits
	}
	if ports := a.HostPorts.String(); ports != "" {
		ids[idHostPorts] = ports
	}
	switch {
	case a.VirtualNetwork != "":
		ids[idVirtual] = a.VirtualNetwork
	case a.Inside != "": // an earlier version finds the network, too, and so does not take it for the default one
		ids[idVirtual], ids[idOfNode] = a.Inside, "true"
	}
	return ids
}

// FromExternalIDs reads an attachment back from the port's name and external_ids. It is
// false for ports that are not a Pod's. Addresses without a recorded prefix length, as
// Antrea writes them, come back as host prefixes.
func FromExternalIDs(name string, ids map[string]string) (Attachment, bool) {
	if ids[idType] != typeContainer || ids[idContainer] == "" {
		return Attachment{}, false
	}
	a := Attachment{
		ContainerID:  ids[idContainer],
		IfName:       ids[idIfName],
		Netns:        ids[idNetns],
		PodNamespace: ids[idPodNS],
		PodName:      ids[idPodName],
		PodUID:       types.UID(ids[idPodUID]),
		PortName:     name,
		Network:      ids[idNetwork],
		MAC:          ids[idMAC],
		Bandwidth:    parseBandwidth(ids[idBandwidth]),
		HostPorts:    parseHostPorts(ids[idHostPorts]),

		VirtualNetwork: ids[idVirtual],
	}
	if a.IfName == "" {
		a.IfName = defaultIfName
	}
	if ids[idOfNode] != "" {
		a.Inside, a.VirtualNetwork = a.VirtualNetwork, ""
	}
	bits := strings.Split(ids[idPrefixBits], ",")
	for i, text := range strings.Split(ids[idIPs], ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			continue
		}
		length := ip.BitLen()
		if i < len(bits) {
			if n, err := strconv.Atoi(bits[i]); err == nil && n >= 0 && n <= ip.BitLen() {
				length = n
			}
		}
		a.IPs = append(a.IPs, netip.PrefixFrom(ip, length))
	}
	return a, true
}
