// Package bridge is the only writer of Open vSwitch's configuration database. It gets the desired bridges and ports of
// a Node, compares them with the database, and sends the difference in one transaction. A lost connection, a restarted
// ovsdb-server, a restarted ovs-vswitchd and a user's ovs-vsctl are all the same case: compare again.
//
// It changes only declared bridges. In these it creates declared ports and keeps them as declared. It removes
// undeclared ports if their external_ids have TypeKey, which makes them ours, and leaves other ports alone.
package bridge

import (
	"crypto/sha256"
	"maps"
	"net"
	"slices"
)

// TypeKey is the key in a Port row's external_ids that marks a port as ours. Its value is the kind of port, such as
// "container" or "gateway".
const TypeKey = "antrea-type"

// maxRequestedOFPort is the largest number that ofport_request takes (vswitch.ovsschema).
const maxRequestedOFPort = 65279

// Bridge is a bridge that should exist, or should not.
type Bridge struct {
	Name string
	// Absent removes the bridge with all its ports, as soon as removals are allowed. The other fields are ignored then.
	Absent       bool
	DatapathType string   // "system" or "netdev"; "" is the switch's default, system
	FailMode     string   // "secure" or "standalone"; "" is the switch's default, standalone
	Protocols    []string // such as "OpenFlow15"; empty is the switch's default
	// HardwareAddr is the MAC of the bridge's local port (other_config:hwaddr); "" lets
	// the switch choose.
	HardwareAddr string
	// ExternalIDs and OtherConfig are merged. A key that is listed here gets this value, or is removed if the value is
	// empty. Other keys stay as they are.
	ExternalIDs, OtherConfig map[string]string
	// ZoneTimeouts sets, for zones of this datapath's connection tracker, how many seconds a connection is remembered in
	// each state. Names of states are in CT_Timeout_Policy of ovs-vswitchd.conf.db(5). Zones that are not listed stay as
	// they are. The kernel's datapath needs the module nfnetlink_cttimeout.
	ZoneTimeouts map[uint16]map[string]int
	// Ports the bridge should have. The local port, which has the bridge's name, is
	// implied; it may be listed to give it an MTU or external_ids.
	Ports []Port
}

// Port is a port that should exist, with one interface of the same name.
type Port struct {
	Name string
	Type string // of the Interface: "" for a network device, "internal", "geneve", ...
	// OFPort is the requested OpenFlow port number, at most 65279. With 0 the switch chooses. Its choice is then written
	// as ofport_request, so that it stays the same.
	OFPort uint32
	MAC    string // "aa:bb:cc:dd:ee:ff"; "" leaves it as it is
	MTU    int    // mtu_request; 0 leaves it as it is
	// Options of the Interface row: exactly these.
	Options map[string]string
	// BFD configures bidirectional forwarding detection (RFC 5880) on the Interface, with exactly these keys. If it is
	// nil, detection is off.
	BFD map[string]string
	// ExternalIDs of the Port row are merged like the Bridge's.
	ExternalIDs map[string]string
	// OwnQueueing makes ovs-vswitchd leave the queueing discipline of the network device alone. Without it ovs-vswitchd
	// removes the discipline when it adds the device.
	OwnQueueing bool
}

// State is what the database says is there.
type State struct {
	// Connected is false until the database has been read, and while there is no connection. Then the other fields are
	// empty, or have the last known state.
	Connected     bool
	OVSVersion    string // as ovs-ctl has noted it; "" when it was not used
	DatapathTypes []string
	// FlowRestoreWait is other_config:flow-restore-wait: ovs-vswitchd keeps its datapath
	// flows and processes no packet in the OpenFlow tables until it is cleared.
	FlowRestoreWait bool
	// NextCfg is the number of the last requested configuration, and CurCfg the number of the last one that ovs-vswitchd
	// has carried out.
	CurCfg, NextCfg int
	Bridges         map[string]Found
}

// Found is one bridge of the database, ours or not.
type Found struct {
	DatapathType, DatapathVersion, DatapathID string
	FailMode                                  string
	Protocols                                 []string
	ExternalIDs, OtherConfig                  map[string]string
	Ports                                     map[string]PortState
}

// PortState is one port of the database.
type PortState struct {
	UUID         string // of its row
	Type         string
	OFPort       uint32 // number in use; 0 while there is no number
	OFPortWanted uint32 // ofport_request, 0 when unset
	Error        string // why ovs-vswitchd could not add the interface
	Gone         bool   // ovs-vswitchd had its device, which does not exist any more
	MAC          string // in use, "" when not known
	MACWanted    string // the mac column: survives restarts of ovs-vswitchd
	MTU          int    // in use, 0 when not known
	Options      map[string]string
	ExternalIDs  map[string]string
	// BFD is the state of bidirectional forwarding detection: "up", "down", "init" or "admin_down". It is "" without
	// detection.
	BFD string
	// BFDWasUp is set if it has been up since ovs-vswitchd made the interface.
	BFDWasUp bool
	// BFDStatus is ovs-vswitchd's report about it, by the keys of bfd_status in the OVSDB. It is nil without detection.
	BFDStatus map[string]string
}

// Stats counts what a Manager has done.
type Stats struct {
	Connects     uint64 // sessions with ovsdb-server
	Transactions uint64 // transactions that changed something
	Refused      uint64 // transactions that ovsdb-server refused
	LastError    string // why the last attempt failed, "" when it did not
}

// MACOf returns a locally administered unicast MAC address that depends only on the name. So a port that is recreated
// has the same address, which its neighbours remember.
func MACOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	sum[0] = sum[0]&^1 | 2
	return net.HardwareAddr(sum[:6]).String()
}

// withLocal returns the bridge's ports, including its local one, by name. If a name is listed twice, the last entry is
// used.
func (b Bridge) withLocal() map[string]Port {
	if b.Absent {
		return nil
	}
	ports := map[string]Port{b.Name: {Name: b.Name, Type: "internal"}}
	for _, p := range b.Ports {
		if p.Name == b.Name {
			p.Type = "internal"
		}
		ports[p.Name] = p
	}
	return ports
}

// clone copies what the caller might change later.
func (b Bridge) clone() Bridge {
	b.Protocols = slices.Clone(b.Protocols)
	b.ExternalIDs, b.OtherConfig = maps.Clone(b.ExternalIDs), maps.Clone(b.OtherConfig)
	b.ZoneTimeouts = maps.Clone(b.ZoneTimeouts)
	for zone, timeouts := range b.ZoneTimeouts {
		b.ZoneTimeouts[zone] = maps.Clone(timeouts)
	}
	b.Ports = slices.Clone(b.Ports)
	for i, p := range b.Ports {
		b.Ports[i].Options, b.Ports[i].ExternalIDs, b.Ports[i].BFD = maps.Clone(p.Options), maps.Clone(p.ExternalIDs),
			maps.Clone(p.BFD)
	}
	return b
}
