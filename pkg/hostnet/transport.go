package hostnet

import (
	"fmt"
	"net/netip"
)

// Transport is an interface that carries the Node's traffic, as the kernel has it.
type Transport struct {
	Interface string
	Addresses []netip.Prefix // global addresses
	Routes    []Route        // of the main table, without those that come with the addresses
	MTU       int
	MAC       string
}

// ReadTransport reads an interface of the calling thread's network namespace.
func ReadTransport(iface string) (Transport, error) { return Transport{}, fmt.Errorf("read %s", iface) }

// InterfaceWith returns the name of the interface that holds an address.
func InterfaceWith(addr netip.Addr) (string, error) { return "", fmt.Errorf("find %s", addr) }

// Keys in the transport bridge's external_ids under which the uplink's configuration is
// kept while the bridge has taken it over.
const (
	UplinkAddressesKey = "tombolo-uplink-addresses"
	UplinkRoutesKey    = "tombolo-uplink-routes"
)

// Uplink says how an interface is moved onto a bridge of the userspace datapath.
type Uplink struct {
	ExternalIDs  map[string]string // the record, to be kept on the bridge
	HardwareAddr string            // the bridge takes over the interface's MAC
	MTU          int
	Links        []Link  // the interface without, the bridge with the addresses
	Routes       []Route // on the bridge
}

// PlanUplink decides what to keep and what to configure.
func PlanUplink(bridge string, recorded map[string]string, found Transport) (Uplink, error) {
	return Uplink{}, fmt.Errorf("plan %s", bridge)
}
