// Package schema holds the rows of the Open_vSwitch database that Tombolo reads and writes, as models for libovsdb.
//
// The models are trimmed by hand: they name only the columns that are used, so that ovsdb-server sends no statistics
// with its updates. ovs-vswitchd.conf.db(5) describes column names, types and their meaning. A column with "min": 0 and
// "max": 1 in vswitch.ovsschema is a pointer here. A set is a slice, and a map is a map.
package schema

import (
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// Database is the name of the database that ovs-vswitchd is configured by.
const Database = "Open_vSwitch"

// Table names.
const (
	OpenVSwitchTable = "Open_vSwitch"
	BridgeTable      = "Bridge"
	PortTable        = "Port"
	InterfaceTable   = "Interface"
	DatapathTable    = "Datapath"
	CTZoneTable      = "CT_Zone"
	CTTimeoutTable   = "CT_Timeout_Policy"
	QoSTable         = "QoS"
)

// OpenVSwitch is the root row; there is exactly one.
type OpenVSwitch struct {
	UUID          string            `ovsdb:"_uuid"`
	Bridges       []string          `ovsdb:"bridges"`
	CurCfg        int               `ovsdb:"cur_cfg"`
	NextCfg       int               `ovsdb:"next_cfg"`
	OtherConfig   map[string]string `ovsdb:"other_config"`
	ExternalIDs   map[string]string `ovsdb:"external_ids"`
	OVSVersion    *string           `ovsdb:"ovs_version"`
	DatapathTypes []string          `ovsdb:"datapath_types"`
	Datapaths     map[string]string `ovsdb:"datapaths"` // by type, such as "netdev"
}

// Datapath is what all bridges of one datapath type share.
type Datapath struct {
	UUID    string         `ovsdb:"_uuid"`
	CTZones map[int]string `ovsdb:"ct_zones"`
}

// CTZone is one zone of a datapath's connection tracker.
type CTZone struct {
	UUID          string  `ovsdb:"_uuid"`
	TimeoutPolicy *string `ovsdb:"timeout_policy"`
}

// CTTimeoutPolicy has the time for which a connection is remembered in each state, in seconds.
type CTTimeoutPolicy struct {
	UUID     string         `ovsdb:"_uuid"`
	Timeouts map[string]int `ovsdb:"timeouts"`
}

// Bridge is one bridge with its ports.
type Bridge struct {
	UUID            string            `ovsdb:"_uuid"`
	Name            string            `ovsdb:"name"`
	DatapathType    string            `ovsdb:"datapath_type"`
	DatapathID      *string           `ovsdb:"datapath_id"`
	DatapathVersion string            `ovsdb:"datapath_version"`
	FailMode        *string           `ovsdb:"fail_mode"`
	Protocols       []string          `ovsdb:"protocols"`
	Ports           []string          `ovsdb:"ports"`
	ExternalIDs     map[string]string `ovsdb:"external_ids"`
	OtherConfig     map[string]string `ovsdb:"other_config"`
}

// Port is one port of a bridge; a bond has several interfaces, every other port one.
type Port struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Interfaces  []string          `ovsdb:"interfaces"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
	QoS         *string           `ovsdb:"qos"`
}

// QoS is the way in which ovs-vswitchd queues what leaves through ports.
type QoS struct {
	UUID string `ovsdb:"_uuid"`
	Type string `ovsdb:"type"`
}

// Interface is the network device or tunnel behind a port.
type Interface struct {
	UUID          string            `ovsdb:"_uuid"`
	Name          string            `ovsdb:"name"`
	Type          string            `ovsdb:"type"`
	Options       map[string]string `ovsdb:"options"`
	OFPort        *int              `ovsdb:"ofport"` // -1: ovs-vswitchd could not add it
	OFPortRequest *int              `ovsdb:"ofport_request"`
	MAC           *string           `ovsdb:"mac"`
	MACInUse      *string           `ovsdb:"mac_in_use"`
	MTU           *int              `ovsdb:"mtu"`
	MTURequest    *int              `ovsdb:"mtu_request"`
	Error         *string           `ovsdb:"error"`
	IfIndex       *int              `ovsdb:"ifindex"` // 0: its device is gone
	ExternalIDs   map[string]string `ovsdb:"external_ids"`
	BFD           map[string]string `ovsdb:"bfd"`
	BFDStatus     map[string]string `ovsdb:"bfd_status"`
}

// Model returns the description of the database that a libovsdb client needs.
func Model() (model.ClientDBModel, error) {
	return model.NewClientDBModel(Database, map[string]model.Model{
		OpenVSwitchTable: &OpenVSwitch{},
		BridgeTable:      &Bridge{},
		PortTable:        &Port{},
		InterfaceTable:   &Interface{},
		DatapathTable:    &Datapath{},
		CTZoneTable:      &CTZone{},
		CTTimeoutTable:   &CTTimeoutPolicy{},
		QoSTable:         &QoS{},
	})
}

// Columns returns the columns that a client should monitor: exactly the columns of the models. Without this restriction
// a client receives every column of the tables, including statistics.
func Columns() []client.MonitorOption {
	var (
		root    OpenVSwitch
		br      Bridge
		port    Port
		iface   Interface
		dp      Datapath
		zone    CTZone
		timeout CTTimeoutPolicy
		qos     QoS
	)
	return []client.MonitorOption{
		client.WithTable(&root, &root.Bridges, &root.CurCfg, &root.NextCfg, &root.OtherConfig, &root.ExternalIDs,
			&root.OVSVersion, &root.DatapathTypes, &root.Datapaths),
		client.WithTable(&br, &br.Name, &br.DatapathType, &br.DatapathID, &br.DatapathVersion, &br.FailMode,
			&br.Protocols, &br.Ports, &br.ExternalIDs, &br.OtherConfig),
		client.WithTable(&port, &port.Name, &port.Interfaces, &port.ExternalIDs, &port.QoS),
		client.WithTable(&iface, &iface.Name, &iface.Type, &iface.Options, &iface.OFPort, &iface.OFPortRequest,
			&iface.MAC, &iface.MACInUse, &iface.MTU, &iface.MTURequest, &iface.Error, &iface.IfIndex, &iface.ExternalIDs,
			&iface.BFD, &iface.BFDStatus),
		client.WithTable(&dp, &dp.CTZones),
		client.WithTable(&zone, &zone.TimeoutPolicy),
		client.WithTable(&timeout, &timeout.Timeouts),
		client.WithTable(&qos, &qos.Type),
	}
}
