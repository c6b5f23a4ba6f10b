// Package config reads the agent's configuration file, antrea-agent.conf: the documented keys and defaults, strictly.
// If this version cannot follow a setting, the result is an error if traffic or its protection would differ from the
// setting. Otherwise it is a Warning.
package config

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/gates"
)

// Config is the agent's configuration. Each field's tags are its declaration: the key in the file, the default, and the
// allowed values. The field's comment is the meaning in the reference and in the schema of the chart's values.
//
//	key      name in the file
//	default  as it would be written in the file; the zero value when absent
//	oneof    allowed values, matched without regard to case and kept as spelled here
//	min,max  bounds of a number, both included
//	is       form of a string: cidr, cidrs (comma-separated), url, link (an interface's
//	         or bridge's name), ports (first-last)
//	refused  values that this version does not start with, separated by commas: check has the reason, and the chart's
//	         schema refuses them at the installation
//	effect   "none": the key has no effect in this version, other values than the default are a
//	         Warning with the text of `why`
type Config struct {
	// FeatureGates are the feature gates that differ from their defaults, each true or false.
	FeatureGates map[string]bool `key:"featureGates"`

	// OVSBridge is the name of the bridge of Open vSwitch.
	OVSBridge string `key:"ovsBridge" default:"br-int" is:"link"`
	// OVSDatapathType is the datapath of the bridge: the kernel's (system), or the userspace one (netdev), which needs
	// transportInterface.
	OVSDatapathType string `key:"ovsDatapathType" default:"system" oneof:"system,netdev"`
	// HostGateway is the name of the Node's own port at the bridge.
	HostGateway string `key:"hostGateway" default:"antrea-gw0" is:"link"`

	// TrafficEncapMode is how packets of Pods travel between Nodes: through tunnels (encap), routed by the Nodes and their
	// network (noEncap), or through tunnels only between subnets (hybrid).
	TrafficEncapMode string `key:"trafficEncapMode" default:"encap" oneof:"encap,noEncap,hybrid,networkPolicyOnly" refused:"networkPolicyOnly"`
	// TunnelType is the protocol of tunnels. All clusters of a ClusterSet need the same one.
	TunnelType string `key:"tunnelType" default:"geneve" oneof:"geneve,vxlan,gre,stt" refused:"stt"`
	// TunnelPort is the UDP port of tunnels. 0 is the protocol's own port. All clusters of a ClusterSet need the same one.
	TunnelPort int `key:"tunnelPort" min:"0" max:"65535"`
	// TunnelCsum adds UDP checksums to the packets of tunnels.
	TunnelCsum bool `key:"tunnelCsum"`
	// TrafficEncryptionMode is the encryption of packets of Pods between the Nodes of the cluster.
	TrafficEncryptionMode string `key:"trafficEncryptionMode" default:"none" oneof:"none,ipsec,wireGuard" refused:"ipsec"`

	// DefaultMTU is the MTU of Pods. 0 is the MTU of the transport interface less the headers of tunnels.
	DefaultMTU int `key:"defaultMTU" min:"0" max:"65535" refused:"1-575"`
	// TransportInterface is the Node's interface for tunnels and routed packets. Without it, it is the one with the Node's
	// InternalIP.
	TransportInterface string `key:"transportInterface" is:"link"`
	// TransportInterfaceCIDRs would choose the interface by its addresses.
	TransportInterfaceCIDRs []string `key:"transportInterfaceCIDRs" is:"cidr" refused:"any"`
	// NoSNAT leaves Pods their own address in packets to hosts outside of the Pods' network. Otherwise they get the
	// Node's.
	NoSNAT bool `key:"noSNAT"`
	// DisableTXChecksumOffload lets the kernel compute checksums of Pods' packets in software.
	DisableTXChecksumOffload bool `key:"disableTXChecksumOffload"`
	SNATFullyRandomPorts     bool `key:"snatFullyRandomPorts" effect:"none" why:"masquerading always picks ports at random"`
	// EnableBridgingMode would connect the Node's interface to the bridge.
	EnableBridgingMode bool `key:"enableBridgingMode" refused:"true"`

	// PodCIDRs are the ranges of the Pods of the cluster, separated by commas. No Subnet of a tenant may meet them. A Node
	// gives its Pods addresses of its spec.podCIDRs.
	PodCIDRs string `key:"podCIDRs" is:"cidrs"`
	// ServiceCIDR is the IPv4 range of ClusterIPs. Without it the agent reads the cluster's ServiceCIDR objects.
	ServiceCIDR string `key:"serviceCIDR" is:"cidr" refused:"IPv6"`
	// ServiceCIDRv6 is the IPv6 range of ClusterIPs. Without it the agent reads the cluster's ServiceCIDR objects.
	ServiceCIDRv6 string `key:"serviceCIDRv6" is:"cidr" refused:"IPv4"`

	// KubeAPIServerOverride is the URL of the API server for the agent. It is necessary without kube-proxy.
	KubeAPIServerOverride string `key:"kubeAPIServerOverride" is:"url"`
	// DNSServerOverride are addresses or ranges of the DNS servers from whose answers policies with names learn, separated
	// by commas. Without it they are the Services of the cluster's DNS and the Node's own servers.
	DNSServerOverride string `key:"dnsServerOverride" is:"servers"`
	// FQDNCacheMinTTL is the number of seconds for which the agent keeps addresses of names at least, for policies with
	// names.
	FQDNCacheMinTTL int `key:"fqdnCacheMinTTL" min:"0"`

	// APIPort is the port of 127.0.0.1 at which the agent answers the kubelet's probes. The agent's API is on a unix
	// socket.
	APIPort     int `key:"apiPort" default:"10350" min:"1" max:"65535"`
	ClusterPort int `key:"clusterPort" default:"10351" min:"1" max:"65535" effect:"none" why:"Nodes need no membership protocol in this version"`
	// EnablePrometheusMetrics serves metrics on the agent's socket.
	EnablePrometheusMetrics bool `key:"enablePrometheusMetrics" default:"true"`
	// PacketInRate is the number of packets a second of each kind that the switch sends to the agent at most. With 0 it
	// sends no such packets.
	PacketInRate    int    `key:"packetInRate" default:"5000" min:"0" max:"1000000"`
	TLSCipherSuites string `key:"tlsCipherSuites" effect:"none" why:"the agent serves its API on a unix socket"`
	TLSMinVersion   string `key:"tlsMinVersion" effect:"none" why:"the agent serves its API on a unix socket"`
	// HostNetworkMode names the tool for the host's rules. The agent takes both values, and always uses nftables.
	HostNetworkMode string `key:"hostNetworkMode" default:"iptables" oneof:"iptables,nftables"`

	AntreaProxy             AntreaProxy             `key:"antreaProxy"`
	Multicluster            Multicluster            `key:"multicluster"`
	WireGuard               WireGuard               `key:"wireGuard"`
	Memberlist              Memberlist              `key:"memberlist"`
	NodePortLocal           NodePortLocal           `key:"nodePortLocal"`
	Egress                  Egress                  `key:"egress"`
	FlowExporter            FlowExporter            `key:"flowExporter"`
	Multicast               Multicast               `key:"multicast"`
	AuditLogging            AuditLogging            `key:"auditLogging"`
	Observe                 Observe                 `key:"observe"`
	TenantNetworks          TenantNetworks          `key:"tenantNetworks"`
	SecondaryNetwork        SecondaryNetwork        `key:"secondaryNetwork"`
	HostNetworkAcceleration HostNetworkAcceleration `key:"hostNetworkAcceleration"`
	IPsec                   IPsec                   `key:"ipsec"`
}

// AntreaProxy configures Services. This version always serves ClusterIPs itself.
type AntreaProxy struct {
	// Enable serves ClusterIPs by the agent, in place of kube-proxy. It is always on.
	Enable bool `key:"enable" default:"true" refused:"false"`
	// ProxyAll also serves NodePorts, addresses of load balancers, and externalIPs.
	ProxyAll bool `key:"proxyAll"`
	// NodePortAddresses are ranges. Only addresses of the Node inside them serve NodePorts. Without ranges all addresses
	// do.
	NodePortAddresses []string `key:"nodePortAddresses" is:"cidr"`
	// SkipServices would leave Services to another proxy.
	SkipServices []string `key:"skipServices" refused:"any"`
	// ProxyLoadBalancerIPs serves the addresses of load balancers, if proxyAll is on.
	ProxyLoadBalancerIPs bool `key:"proxyLoadBalancerIPs" default:"true"`
	// DisableServiceHealthCheckServer closes the listeners for health checks of load balancers: healthCheckNodePort of
	// Services, and port 10256.
	DisableServiceHealthCheckServer bool `key:"disableServiceHealthCheckServer"`
	// ServiceProxyName would limit the agent to Services with this label.
	ServiceProxyName        string `key:"serviceProxyName" refused:"any"`
	DefaultLoadBalancerMode string `key:"defaultLoadBalancerMode" default:"nat" oneof:"nat,dsr" effect:"none" why:"load balancers have no DSR in this version"`
}

// Multicluster configures this cluster's part in a ClusterSet. It has an effect only with the feature gate
// Multicluster; see Config.MulticlusterGateway.
type Multicluster struct {
	// EnableGateway lets the Nodes take part in traffic between clusters. It needs the feature gate Multicluster.
	EnableGateway bool `key:"enableGateway" alias:"enable"`
	// Namespace is the Namespace of Gateways and ClusterInfoImports. Without it, it is the agent's own.
	Namespace string `key:"namespace"`
	// EnableStretchedNetworkPolicy applies policies with scope ClusterSet to the Pods of other clusters.
	EnableStretchedNetworkPolicy bool `key:"enableStretchedNetworkPolicy"`
	// EnablePodToPodConnectivity lets Pods of other clusters be reached at their own addresses.
	EnablePodToPodConnectivity bool `key:"enablePodToPodConnectivity"`
	// PreserveClientIP is the address that servers see in connections between Pods of two clusters. With auto it is the
	// client Pod's own where both clusters can keep it, else its Gateway's. With always it is the client Pod's own, and
	// Pods of clusters that cannot keep it are not reached. With never it is the Gateway's.
	PreserveClientIP string `key:"preserveClientIP" default:"auto"  oneof:"auto,always,never"`
	// TrafficEncryptionMode is the encryption of packets between clusters.
	TrafficEncryptionMode string `key:"trafficEncryptionMode" default:"none" oneof:"none,wireGuard"`
	// AllowUnencryptedPeers lets packets go in plain text to clusters that announce a WireGuard key.
	AllowUnencryptedPeers bool                  `key:"allowUnencryptedPeers"`
	WireGuard             MulticlusterWireGuard `key:"wireGuard"`
	BFD                   BFD                   `key:"bfd"`
}

// BFD configures how the ways to several Gateways are watched: a way is down if no packet has come through it for
// interval × multiplier. Values out of range are a Warning, and the default is used.
type BFD struct {
	// Interval is the time between two packets of BFD on a way, from 10ms to 10s.
	Interval time.Duration `key:"interval" default:"100ms"`
	// Multiplier is the number of intervals without a packet after which a way is down, from 2 to 50.
	Multiplier int `key:"multiplier" default:"3"`
}

// Bounds of BFD.
const (
	MinBFDInterval   = 10 * time.Millisecond
	MaxBFDInterval   = 10 * time.Second
	MinBFDMultiplier = 2
	MaxBFDMultiplier = 50
)

// MulticlusterWireGuard configures encryption between clusters.
type MulticlusterWireGuard struct {
	// Port is the UDP port of WireGuard between clusters. A second one is in use while a key changes.
	Port int `key:"port" default:"51821" min:"1" max:"65535"`
}

// WireGuard configures encryption between Nodes.
type WireGuard struct {
	// Port is the UDP port of WireGuard between Nodes. A second one is in use while a key changes.
	Port int `key:"port" default:"51820" min:"1" max:"65535"`
}

// Memberlist configures the gossip between Nodes, which this version does not have.
type Memberlist struct {
	GossipVerifyOutgoing bool `key:"gossipVerifyOutgoing" default:"true" effect:"none" why:"Nodes need no membership protocol in this version"`
	GossipVerifyIncoming bool `key:"gossipVerifyIncoming" default:"true" effect:"none" why:"Nodes need no membership protocol in this version"`
}

// NodePortLocal configures ports of the Node for single Pods.
type NodePortLocal struct {
	Enable    bool   `key:"enable" effect:"none" why:"NodePortLocal is not in this version"`
	PortRange string `key:"portRange" default:"61000-62000" is:"ports" effect:"none" why:"NodePortLocal is not in this version"`
}

// Egress configures source addresses of traffic that leaves the cluster.
type Egress struct {
	ExceptCIDRs               []string `key:"exceptCIDRs" is:"cidr" effect:"none" why:"Egress is not in this version"`
	MaxEgressIPsPerNode       int      `key:"maxEgressIPsPerNode" default:"255" min:"0" effect:"none" why:"Egress is not in this version"`
	UniqueMACForSubInterfaces bool     `key:"uniqueMACForSubInterfaces" default:"true" effect:"none" why:"Egress is not in this version"`
}

// FlowExporter configures flow records. It has an effect only with the feature gate FlowExporter.
type FlowExporter struct {
	// Enable sends flow records by IPFIX. It needs the feature gate FlowExporter.
	Enable bool `key:"enable"`
	// FlowCollectorAddr is the collector, as HOST:PORT:PROTOCOL. HOST may be NAMESPACE/SERVICE.
	FlowCollectorAddr string `key:"flowCollectorAddr" default:"flow-aggregator/flow-aggregator:14739:grpc"`
	// FlowCollectorCA is the certificate in PEM of the CA that signs the collector's certificate. Without it the system's
	// CAs count.
	FlowCollectorCA  string        `key:"flowCollectorCA"`
	FlowPollInterval time.Duration `key:"flowPollInterval" default:"5s" effect:"none" why:"the datapath reports connections to this version, which does not poll them"`
	// ActiveFlowExportTimeout is the time between two records of a connection that lasts, 1s or more.
	ActiveFlowExportTimeout time.Duration `key:"activeFlowExportTimeout" default:"5s"`
	// IdleFlowExportTimeout is the time without a packet after which the record of a connection is sent, 1s or more.
	IdleFlowExportTimeout time.Duration `key:"idleFlowExportTimeout" default:"15s"`
}

// MinFlowExportTimeout is the least value of both timeouts.
const MinFlowExportTimeout = time.Second

// Multicast configures IGMP.
type Multicast struct {
	Enable            bool          `key:"enable" effect:"none" why:"multicast is not in this version"`
	IGMPQueryInterval time.Duration `key:"igmpQueryInterval" default:"125s" effect:"none" why:"multicast is not in this version"`
	IGMPQueryVersions []int         `key:"igmpQueryVersions" default:"[1, 2, 3]" min:"1" max:"3" effect:"none" why:"multicast is not in this version"`
}

// Observe configures the records of connections and of dropped packets.
type Observe struct {
	// Drops records dropped packets at all times.
	Drops bool `key:"drops" default:"true"`
	// Connections records connections while a reader asks for them (auto), or never (off).
	Connections string `key:"connections" default:"auto" oneof:"auto,off"`
	// HistoryMiB is the memory in MiB for the newest records.
	HistoryMiB int `key:"historyMiB" default:"16" min:"1" max:"1024"`
}

// AuditLogging configures the log files of policies.
type AuditLogging struct {
	// MaxSize is the size in megabytes at which a log file of policies is rotated. 0 is 100.
	MaxSize int `key:"maxSize" default:"500" min:"0"`
	// MaxBackups is the number of older log files that stay. With 0 all stay.
	MaxBackups int `key:"maxBackups" default:"3" min:"0"`
	// MaxAge is the number of days that older log files stay. With 0 they stay for ever.
	MaxAge int `key:"maxAge" default:"28" min:"0"`
	// Compress compresses older log files with gzip.
	Compress bool `key:"compress" default:"true"`
}

// TenantNetworks configures networks of tenants. tombolo-controller reads it too.
type TenantNetworks struct {
	// SubnetCIDRs are the ranges that Subnets of tenants may be in. Without them these are 10.0.0.0/8, 172.16.0.0/12,
	// 192.168.0.0/16, 100.64.0.0/10 and fc00::/7.
	SubnetCIDRs []string `key:"subnetCIDRs" is:"cidr"`
}

// SecondaryNetwork configures bridges for further interfaces of Pods.
type SecondaryNetwork struct {
	OVSBridges []SecondaryBridge `key:"ovsBridges" effect:"none" why:"secondary networks are not in this version"`
}

// SecondaryBridge is one bridge of SecondaryNetwork.
type SecondaryBridge struct {
	// BridgeName is the name of a bridge.
	BridgeName string `key:"bridgeName" is:"link"`
	// PhysicalInterfaces are interfaces of the Node.
	PhysicalInterfaces []string `key:"physicalInterfaces" is:"link"`
	// EnableMulticastSnooping sends multicast packets only to ports that asked for them.
	EnableMulticastSnooping bool `key:"enableMulticastSnooping"`
}

// HostNetworkAcceleration configures the flowtable of the host.
type HostNetworkAcceleration struct {
	Enable bool `key:"enable" default:"true" effect:"none" why:"the host's forwarding is not accelerated by this version anyway"`
}

// IPsec configures IPsec between Nodes.
type IPsec struct {
	AuthenticationMode string `key:"authenticationMode" default:"psk" oneof:"psk,cert" effect:"none" why:"IPsec is not in this version"`
}

// MulticlusterGateway reports whether this Node takes part in traffic between clusters.
func (c Config) MulticlusterGateway() bool {
	return c.Enabled("Multicluster") && c.Multicluster.EnableGateway
}

// Values of TrafficEncapMode.
const (
	Encap   = "encap"   // packets between the Pods of two Nodes go through a tunnel
	NoEncap = "noEncap" // the hosts route them
	Hybrid  = "hybrid"  // the hosts route them between Nodes of one subnet
)

// UsesTunnels reports whether packets of Pods may leave through a tunnel. Packets to other clusters do in each traffic
// mode.
func (c Config) UsesTunnels() bool { return c.TrafficEncapMode != NoEncap || c.MulticlusterGateway() }

// EncryptsNodes reports whether traffic between the Nodes of the cluster is encrypted.
func (c Config) EncryptsNodes() bool { return c.TrafficEncryptionMode == "wireGuard" }

// EncryptsPeers reports whether traffic between clusters is encrypted.
func (c Config) EncryptsPeers() bool {
	return c.MulticlusterGateway() && c.Multicluster.TrafficEncryptionMode == "wireGuard"
}

// NextWireGuardPort returns the UDP port for sessions with other clusters while a key changes. It is the first port
// above multicluster.wireGuard.port that the Nodes do not use.
func (c Config) NextWireGuardPort() int {
	return above(c.Multicluster.WireGuard.Port, c.WireGuard.Port)
}

// NextNodeWireGuardPort returns the UDP port for sessions between the Nodes of the cluster while a key changes. It is
// the first port above wireGuard.port that is not used between clusters.
func (c Config) NextNodeWireGuardPort() int {
	return above(c.WireGuard.Port, c.Multicluster.WireGuard.Port, c.NextWireGuardPort())
}

// above is the first port above another that is not taken.
func above(port int, taken ...int) int {
	for {
		if port++; port > 65535 {
			port = 1
		}
		if !slices.Contains(taken, port) {
			return port
		}
	}
}

// StretchedPolicies reports whether policies with scope ClusterSet apply to the Pods of other clusters as well.
func (c Config) StretchedPolicies() bool {
	return c.MulticlusterGateway() && c.Multicluster.EnableStretchedNetworkPolicy
}

// Enabled reports whether this version has a feature and its gate is on, in the file or by default.
func (c Config) Enabled(gate string) bool {
	g, _ := gates.Of(gate)
	if on, ok := c.FeatureGates[gate]; ok {
		return on && g.Have
	}
	return g.On && g.Have
}

// Warning is something in the file that has no effect.
type Warning struct {
	Line    int // in the file
	Key     string
	Message string
}

func (w Warning) String() string { return fmt.Sprintf("line %d: %s: %s", w.Line, w.Key, w.Message) }

// Error is one fault in the file. Parse returns all faults, joined.
type Error struct {
	Line    int    // in the file; 0 when it is about no line
	Key     string // such as "multicluster.enableGateway"
	Message string // the fault and the remedy
}

func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.Key + ": " + e.Message
	case e.Key == "":
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Key, e.Message)
}

// Default returns the configuration of an empty file.
func Default() Config {
	c, _, err := Parse(nil)
	if err != nil {
		panic("config: a default in a tag is wrong: " + err.Error()) // TestDefaults
	}
	return c
}

// Load reads a configuration file.
func Load(path string) (Config, []Warning, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, nil, err
	}
	return Parse(b)
}
