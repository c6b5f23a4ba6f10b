package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

const self = datapath.Self

// tables are the desired state of this Node. They derive bridges, the host's network and flows from facts about the
// cluster and the Node. If a row changes, the rows that read it are evaluated again.
//
//	API server: nodes, services, endpointslices, servicecidrs, pods, namespaces, policies, tiers, groups,
//	            gateways, clusterinfoimports, clustersets, serviceexports, labelidentities
//	the Node:   settings, underlay, attachments, port-numbers, ports, uplink-record, sessions, node-resolvers
//	                 │
//	                 ▼
//	this-node (and last-node, while there is no this-node)
//	                 │
//	                 ▼
//	service-cidrs, peering ──► node, remote-nodes, pods ──► datapath.Tables ──► flowsync
//	                                 │
//	                                 └──► uplink, bridges, host, network ──► OVSDB, netlink, CNI
type tables struct {
	engine   *derive.Engine
	config   config.Config
	nodeName string

	// From the API server.
	kinds   *watch.Kinds
	objects clusterObjects
	nodes   *derive.Source[derive.Object, nodeFacts]

	services *service.Tables
	policies *policy.Tables
	flows    *datapath.Tables
	tenants  *tenant.Tables // nil without feature gate TenantNetworks

	resolvers *resolverTables

	this      *ownNode
	ranges    *serviceRanges
	peers     *peerTables
	ways      *wayTables
	node      *derive.Table[derive.Name, datapath.Node]
	remotes   *derive.Table[derive.Name, datapath.RemoteNode]
	pods      *podTables
	outside   *outsideTables
	hostPorts *hostPortTables
	external  *externalIPTables
	captures  *captureTables
	outputs   outputs
	inside    *insideTables
	followed  followed
}

// followed are the sources that are set while readers follow something.
type followed struct {
	connections *derive.Source[derive.Name, bool]
	packets     *derive.Source[derive.Name, datapath.Tracing]
}

// serviceRanges has the ranges that ClusterIPs come from.
type serviceRanges struct {
	config   config.Config
	this     *ownNode
	services *service.Tables
	objects  *derive.Source[derive.Object, []netip.Prefix] // ServiceCIDR objects
	rows     *derive.Table[derive.Name, []netip.Prefix]
}

// peerTables have this Node's part in traffic between clusters.
type peerTables struct {
	config   config.Config
	this     *ownNode
	nodes    *derive.Source[derive.Object, nodeFacts]
	services *service.Tables
	ranges   *serviceRanges
	objects  *clusterObjects

	peering   *derive.Table[derive.Name, peering.Peering]
	clusters  peering.Tables                             // the same, by cluster
	unreached *derive.Table[derive.Name, []clusterRange] // Pods of other clusters
}

// add adds the tables to an engine.
func (t *peerTables) add(e *derive.Engine, one derive.Keys[derive.Name]) {
	t.peering = derive.NewTable(e, "peering", t.peeringOf, one)
	t.clusters = peering.NewTables(e, t.peering)
	t.unreached = derive.NewTable(e, "peers-pods", t.peersPodsOf, one)
	derive.NewTable(e, "unreachable-endpoints", t.unreachable,
		derive.KeysOfIndex(derive.NewIndex(t.services.Slices, "imported", importedService)))
}

// outputs are the rows that writers take.
type outputs struct {
	from *tables

	uplink  *derive.Table[derive.Name, takeover] // part of bridges and host
	bridges *derive.Table[derive.Name, []bridge.Bridge]
	host    *derive.Table[derive.Name, hostnet.Desired]
	network *derive.Table[derive.Name, cni.Network] // of a new Pod

	announcement *derive.Table[derive.Name, announcement]
}

// settings are facts that are not in the agent's configuration, and do not change while the agent runs.
type settings struct {
	Known bool
	// GatewayMAC is the MAC of the host's gateway port. It is chosen once and then kept in the OVSDB.
	GatewayMAC string
	// LinkMACs are the MACs of the links inside WireGuard.
	LinkMACs linkMACs
	// RuleKey is a secret of the Node (datapath.Node.RuleKey).
	RuleKey datapath.Secret
}

// uplinkRecord is the OVSDB's record of an interface that the switch has taken over.
type uplinkRecord struct{ Addresses, Routes string }

// newTables returns the tables with empty sources.
func newTables(c config.Config, nodeName string) *tables {
	e := derive.New()
	t := &tables{engine: e, config: c, nodeName: nodeName}
	t.outputs.from = t
	t.nodes = derive.NewSource[derive.Object, nodeFacts](e, "nodes")
	t.objects.gateways = derive.NewSource[derive.Object, *mcv1alpha1.Gateway](e, "gateways")
	t.pods = newPodTables(e)
	t.policies = policy.NewTables(e, nodeName, t.pods.policies)
	if c.StretchedPolicies() {
		t.policies.Stretched()
	}
	t.this = &ownNode{config: c, name: nodeName, nodes: t.nodes, gateways: t.objects.gateways,
		attachments: t.pods.attachments, local: hostnet.Addresses,
		settings: derive.NewSource[derive.Name, settings](e, "settings"),
		record:   derive.NewSource[derive.Name, uplinkRecord](e, "uplink-record")}
	t.followed.connections = derive.NewSource[derive.Name, bool](e, "observed")
	t.followed.packets = derive.NewSource[derive.Name, datapath.Tracing](e, "traced")

	one := derive.KeysOf(t.this.settings)
	t.this.add(e, one)
	zone := derive.NewTable(e, "zone", t.this.zoneOf, one)
	t.services = service.NewTables(e, nodeName, func(r *derive.Reader) string {
		text, _ := derive.Get(r, zone, self)
		return text
	}, knowsSCTP(c))
	t.policies.Outside = c.AntreaProxy.ProxyAll
	t.services.Families = t.this.families
	t.services.Outside, t.services.NoLoadBalancers = c.AntreaProxy.ProxyAll, !c.AntreaProxy.ProxyLoadBalancerIPs
	t.outside = newOutsideTables(e, c, t.this, t.services, t.pods)
	t.hostPorts = &hostPortTables{link: c.HostGateway, this: t.this, pods: t.pods, services: t.services}
	t.hostPorts.add(e, c.AntreaProxy.ProxyAll)
	t.external = &externalIPTables{config: c, this: t.this, services: t.services}
	t.external.held = derive.NewSource[policy.Addr, bool](e, "held-addresses")
	t.captures = &captureTables{node: nodeName, nodes: t.nodes, policies: t.policies, pods: t.pods}
	t.declareKinds()
	t.external.add(e)
	t.captures.add(e)
	derive.NewTable(e, "unserved-pods", t.unserved, derive.KeysOf(t.objects.asked))
	t.ranges = &serviceRanges{config: c, this: t.this, services: t.services, objects: t.objects.serviceCIDRs}
	t.ranges.rows = derive.NewTable(e, "service-cidrs", t.ranges.rangesOf, one)
	t.resolvers = &resolverTables{config: c, services: t.services}
	t.resolvers.add(e, one)
	t.peers = &peerTables{config: c, this: t.this, nodes: t.nodes, services: t.services, ranges: t.ranges,
		objects: &t.objects}
	t.peers.add(e, one)
	t.pods.this, t.pods.ranges = t.this, t.ranges.rows
	t.pods.add(e, one)
	t.node = derive.NewTable(e, "node", t.nodeOf, one)
	t.inside = &insideTables{config: c, this: t.this, keys: newNodeKeys(e, t.nodes, nodeName, c.EncryptsNodes()),
		settings: t.this.settings, clusters: t.peers.clusters}
	t.remotes = derive.NewTable(e, "remote-nodes", t.remoteOf, derive.KeysOfIndex(derive.NewIndex(t.nodes, "name",
		func(key derive.Object, _ nodeFacts) []derive.Name { return []derive.Name{derive.Name(key.Name)} })))
	t.ways = &wayTables{config: c, nodeName: nodeName, peering: t.peers.peering, clusters: t.peers.clusters, node: t.node,
		remotes: t.remotes}
	t.ways.add(e, one)
	t.outputs.uplink = derive.NewTable(e, "uplink", t.outputs.takeoverOf, one)
	t.inside.remotes = t.remotes
	t.inside.add(e, one)
	t.outputs.bridges = derive.NewTable(e, "bridges", t.outputs.bridgesOf, one)
	t.outputs.network = derive.NewTable(e, "network", t.outputs.networkOf, one)
	t.outputs.announcement = derive.NewTable(e, "transport-networks", t.outputs.announcementOf, one)
	derive.NewTable(e, "large-pods", t.tooLarge, derive.KeysOf(t.pods.attachments))
	in := datapath.Inputs{
		Node: t.node, Pods: t.pods.rows, RemoteNodes: t.remotes, Peering: t.peers.clusters, Ways: t.ways.numbers,
		Lost:      t.ways.lost,
		Frontends: t.services.Frontends, Slices: t.services.ByService,
		Exported: t.objects.exports, Policy: t.policies, PodToPod: c.Multicluster.EnablePodToPodConnectivity,
		Resolvers: t.resolvers.list, Observed: t.followed.connections, Traced: t.followed.packets,
	}
	if t.tenants != nil {
		in.Places, in.Remotes, in.Networks = t.tenants.Places, t.tenants.Remotes, t.tenants.VirtualNetworks
	}
	t.flows = datapath.NewTables(e, in)
	t.addRoutes(e)
	t.addBlocks(e)
	t.outside.add(e, t.flows, t.policies)
	t.outputs.host = derive.NewTable(e, "host", t.outputs.hostOf, one) // it reads which ranges of Pods have flows
	return t
}

// knowsSCTP reports whether the datapath can track and translate SCTP. The kernel's connection tracking reads SCTP's
// ports. The userspace datapath's does not (OVS 3.1 lib/conntrack.c).
func knowsSCTP(c config.Config) bool { return c.OVSDatapathType == "system" }

// problems collects the problems that a function reports.
type problems []problem.Problem

func (p *problems) report(object problem.Object, field string, reason reasons.Reason, format string, args ...any) {
	*p = append(*p, problem.Problem{Object: object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// rangesOf returns the ranges of ClusterIPs of the Node's families. For each family that is the configured range, else
// the ranges of the cluster's ServiceCIDR objects (KEP-1880). If the API server has no such objects, it is the smallest
// range that covers the ClusterIPs in use.
func (t *serviceRanges) rangesOf(_ derive.Name, r *derive.Reader) ([]netip.Prefix, []problem.Problem) {
	out := t.statedRanges(r)
	for _, f := range []family.Families{family.IPv4, family.IPv6} {
		both, ok := f.And(t.this.families(r))
		if !ok || slices.ContainsFunc(out, func(p netip.Prefix) bool { return both.Serve(p.Addr()) }) {
			continue
		}
		var vips []netip.Addr
		for _, row := range derive.All(r, t.services.Services) {
			for _, vip := range row.Value.VIPs {
				if both.Serve(vip) {
					vips = append(vips, vip)
				}
			}
		}
		out = append(out, cover(vips)...)
	}
	return out, nil
}

// statedRanges returns the configured ranges of ClusterIPs for each family, or else the ranges in ServiceCIDR objects.
func (t *serviceRanges) statedRanges(r *derive.Reader) []netip.Prefix {
	var out, configured []netip.Prefix
	for _, text := range []string{t.config.ServiceCIDR, t.config.ServiceCIDRv6} {
		if p, err := netip.ParsePrefix(text); err == nil && t.this.families(r).Serve(p.Addr()) {
			configured = append(configured, p.Masked())
		}
	}
	for _, row := range derive.All(r, t.objects) {
		for _, p := range row.Value {
			if t.this.families(r).Serve(p.Addr()) &&
				!slices.ContainsFunc(configured, func(c netip.Prefix) bool { return is4(c) == is4(p) }) {
				out = append(out, p)
			}
		}
	}
	out = append(out, configured...)
	slices.SortFunc(out, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

// onlyServices returns the stated ranges of ClusterIPs that no range of Pods meets.
func (t *serviceRanges) onlyServices(r *derive.Reader, pods []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(t.statedRanges(r), func(s netip.Prefix) bool { return slices.ContainsFunc(pods, s.Overlaps) })
}

// cover returns the smallest prefix that holds every address of a list. All addresses are of one family.
func cover(addresses []netip.Addr) []netip.Prefix {
	var out netip.Prefix
	for _, ip := range addresses {
		if !out.IsValid() {
			out = netip.PrefixFrom(ip, ip.BitLen())
			continue
		}
		for !out.Contains(ip) {
			out = netip.PrefixFrom(out.Addr(), out.Bits()-1).Masked()
		}
	}
	if !out.IsValid() {
		return nil
	}
	return []netip.Prefix{out}
}

// peeringOf decides this Node's part in traffic between clusters.
func (t *peerTables) peeringOf(_ derive.Name, r *derive.Reader) (peering.Peering, []problem.Problem) {
	if !t.config.MulticlusterGateway() {
		return peering.Peering{}, nil
	}
	p, list := peering.Plan(peering.View{
		NodeName:           t.this.name,
		Families:           t.this.families(r),
		Gateways:           values(derive.All(r, t.objects.gateways)),
		ClusterInfoImports: values(derive.All(r, t.objects.imports)),
		ClusterSets:        values(derive.All(r, t.objects.sets)),
		Own:                t.own(r),
		PodToPod:           t.config.Multicluster.EnablePodToPodConnectivity,
		PreserveClientIP:   t.config.Multicluster.PreserveClientIP,
		Tunnel:             tunnelFeature(t.config),
		Pods:               t.ownPods(r),

		AllowUnencryptedPeers: t.config.Multicluster.AllowUnencryptedPeers,
		Encrypt:               t.config.EncryptsPeers(),
	})
	ps := problems(list)
	t.useTransportAddresses(&p, r, &ps)
	return p, ps
}

// zoneOf returns the zone of this Node, as it was last known.
func (t *ownNode) zoneOf(_ derive.Name, r *derive.Reader) (string, []problem.Problem) {
	n, _, _ := t.ready(r)
	return n.Zone, nil
}

// ownPods are the ranges of this Node's Pods.
func (t *peerTables) ownPods(r *derive.Reader) []netip.Prefix {
	this, _ := t.this.self(r)
	pods, _ := this.podCIDRs(t.this.families(r))
	return pods
}

func values[K derive.Key[K], V any](rows []derive.Row[K, V]) []V {
	out := make([]V, len(rows))
	for i, row := range rows {
		out[i] = row.Value
	}
	return out
}

// own returns the addresses that no other cluster can have.
func (t *peerTables) own(r *derive.Reader) peering.Own {
	ranges, _ := derive.Get(r, t.ranges.rows, self)
	own := peering.Own{ServiceCIDRs: ranges, APIServers: t.apiServers(r)}
	nodes := values(derive.All(r, t.nodes))
	this, u, _ := t.this.ready(r)
	if _, there := t.this.self(r); !there {
		nodes = append(nodes, this)
	}
	for _, n := range nodes {
		pods, _ := n.podCIDRs(t.this.families(r))
		own.PodCIDRs = append(own.PodCIDRs, pods...)
		own.Nodes = append(own.Nodes, n.Addresses...)
		if ip, ok, _ := n.tunnelEnd(); ok && !slices.Contains(own.Nodes, ip) {
			own.Nodes = append(own.Nodes, ip)
		}
	}
	for _, p := range u.Networks {
		own.Networks = append(own.Networks, p.Masked())
	}
	return own
}

// apiServers returns the addresses of the API servers. They are the endpoints that the API server itself writes
// for the Service "kubernetes", and the address in the configuration.
func (t *peerTables) apiServers(r *derive.Reader) []netip.Addr {
	var out []netip.Addr
	add := func(ip netip.Addr) {
		if !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	if u, err := url.Parse(t.config.KubeAPIServerOverride); err == nil {
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
			add(ip)
		}
	}
	for _, s := range derive.List(r, t.services.ByService, derive.Object{Namespace: "default", Name: "kubernetes"}) {
		for _, e := range s.Value.Endpoints {
			add(e.Addr)
		}
	}
	return out
}

// nodeOf returns the facts about this Node that flows depend on. There is no row before the Node is known.
func (t *tables) nodeOf(_ derive.Name, r *derive.Reader) (datapath.Node, []problem.Problem) {
	var ps problems
	if _, ok := t.this.self(r); !ok {
		ps.report(t.this.object(), "", reasonNodeNotFound,
			"the API server knows no Node of this name, and no Pod can be added: check the agent's NODE_NAME")
	}
	node, _, ok := t.this.ready(r)
	if !ok {
		return datapath.Node{}, ps // the reader of the underlay reports why
	}
	families := t.this.families(r)
	ranges, err := node.podCIDRs(families)
	if err != nil {
		ps.report(t.this.object(), "spec.podCIDRs", reasonInvalidPodCIDR, "%v: recreate the Node with a valid podCIDR", err)
	}
	if len(ranges) == 0 && len(node.PodCIDRs) == 0 { // else the families of the Node have a problem
		ps.report(t.this.object(), "spec.podCIDRs", reasonNoPodCIDR,
			"no podCIDR is assigned: start kube-controller-manager with --allocate-node-cidrs and --cluster-cidr")
	}
	if _, _, err := node.tunnelEnd(); err != nil {
		ps.report(t.this.object(), "metadata.annotations", reasonInvalidTransportAddress,
			"%v: its InternalIP is used; correct or remove the annotation", err)
	}
	former, _ := derive.Get(r, t.pods.former, self)
	ranges = slices.Concat(ranges, former)
	t.reportUnservedVIPs(node, r, &ps)
	s, _ := derive.Get(r, t.this.settings, self)
	p, _ := derive.Get(r, t.peers.clusters.Part, self)
	n := datapath.Node{
		Name:         t.nodeName,
		GatewayPort:  gatewayOFPort,
		PodCIDRs:     ranges,
		Families:     families,
		ServiceVIP:   serviceVIP,
		ServiceCIDRs: t.ranges.onlyServices(r, ranges),
		Tunnels: datapath.Tunnels{
			Port: tunnelOFPort, Ends: node.tunnelEnds(), Encrypted: t.config.EncryptsNodes(), PeerEnd: p.End,
			Outer: tunnelOf(t.config), Stretched: t.config.StretchedPolicies(),
		},
		PacketInRate: uint32(t.config.PacketInRate),
		SCTPByPort:   !knowsSCTP(t.config),
		RuleKey:      s.RuleKey,
	}
	if families.Has6() {
		n.ServiceVIP6, n.NoND = serviceVIP6, t.config.OVSDatapathType == "system"
	}
	if mac, err := ofp.ParseMAC(s.GatewayMAC); err == nil {
		n.GatewayMAC = mac
	}
	for _, cidr := range ranges {
		n.GatewayIPs = append(n.GatewayIPs, gatewayOf(cidr))
	}
	n.Tunnels.Source, n.Tunnels.PeerSource = t.this.tunnelSources(p.End, r, &ps)
	if t.config.EncryptsNodes() {
		end, _, _ := node.tunnelEnd()
		n.Tunnels.Source = peering.InsideOfNode(end) // also while the device is not there yet
		n.Tunnels.Ends = []netip.Addr{n.Tunnels.Source}
		if why := notEncrypted(end); why != "" {
			ps.report(t.this.object(), "status.addresses", reasonInvalidAddress, "no other Node is reached: %s", why)
		}
	}
	if t.config.EncryptsPeers() {
		n.Tunnels.PeerSource = p.End // inside, also while the device is not there yet
	}
	t.outside.node(&n, r, &ps)
	return n, ps
}

// reportUnservedVIPs reports ranges of ClusterIPs of a version of IP that the Node's Pods lack. Clients there resolve
// names to addresses that they cannot reach.
func (t *tables) reportUnservedVIPs(node nodeFacts, r *derive.Reader, ps *problems) {
	of := family.Of(node.PodCIDRs)
	for _, p := range slices.Concat(values(derive.All(r, t.objects.serviceCIDRs))...) {
		if len(node.PodCIDRs) > 0 && !of.Serve(p.Addr()) {
			ps.report(t.this.object(), "spec.podCIDRs", reasonClusterIPsNotServed,
				"it has no range of the version of %s, so ClusterIPs of that range lead nowhere here: give "+
					"kube-controller-manager a --cluster-cidr of both versions and register the Node again, or remove the range", p)
		}
	}
}

// gatewayOf returns the gateway address of a podCIDR: its first usable address.
func gatewayOf(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

// tunnelOf returns the protocol and port of the switch's tunnels.
func tunnelOf(c config.Config) datapath.Tunnel {
	tunnel := tunnelProtocols[c.TunnelType]
	if c.TunnelPort > 0 && tunnel.Port > 0 {
		tunnel.Port = uint16(c.TunnelPort)
	}
	return tunnel
}

// podMTU returns the MTU of Pods and of the gateway port. It is the configured MTU, else the underlay's MTU. If any
// packets of Pods go through tunnels, the tunnel's overhead is subtracted, since a Pod does not see which packets do.
// It is 0 while the underlay is unknown.
func podMTU(c config.Config, u Underlay) int {
	switch {
	case c.DefaultMTU > 0:
		return c.DefaultMTU
	case u.MTU == 0:
		return 0
	}
	return min(u.MTU-tunnelOverhead(c, u), 65000)
}

// tunnelOverhead returns the most that tunnels and encryption add to a packet of a Pod.
func tunnelOverhead(c config.Config, u Underlay) int {
	if !c.UsesTunnels() {
		return 0
	}
	// One tunnel leads to a Node, another to a cluster. No packet is in both.
	return overhead[c.TunnelType] + max(extraOverhead(c.EncryptsNodes(), u.NodesOver6),
		extraOverhead(c.EncryptsPeers(), u.PeersOver6))
}

// remoteOf is another Node of this cluster that has Pods and an address.
func (t *tables) remoteOf(name derive.Name, r *derive.Reader) (datapath.RemoteNode, []problem.Problem) {
	if string(name) == t.nodeName {
		return datapath.RemoteNode{}, nil
	}
	var ps problems
	object := problem.Object{Kind: "Node", Name: string(name)}
	n, _ := derive.Get(r, t.nodes, derive.Object{Name: string(name)})
	ranges, err := n.podCIDRs(t.this.families(r))
	if err != nil {
		ps.report(object, "spec.podCIDRs", reasonInvalidPodCIDR,
			"%v: its Pods cannot be reached from here: recreate the Node with a valid podCIDR", err)
		return datapath.RemoteNode{}, ps
	}
	ip, ok, err := n.tunnelEnd()
	if err != nil {
		ps.report(object, "metadata.annotations", reasonInvalidTransportAddress,
			"%v: its InternalIP is used; correct or remove the annotation", err)
	}
	if !ok && len(n.Internal) > 0 {
		ps.report(object, "status.addresses", reasonInvalidAddress,
			"its Pods cannot be reached: no tunnel can end at %s: give the Node an InternalIP that other Nodes reach",
			n.Internal[0])
	}
	if !ok || len(ranges) == 0 {
		return datapath.RemoteNode{}, ps // also a Node that is still being set up
	}
	this, _, _ := t.this.ready(r)
	if end, ok, _ := this.tunnelEnd(); ok && end.Is4() != ip.Is4() {
		ps.report(object, "status.addresses", reasonFamiliesDiffer,
			"its Pods cannot be reached: tunnels to it end at %s, and "+
				"tunnels to Node %s end at %s: give both Nodes an InternalIP of one family", ip, t.nodeName, end)
		return datapath.RemoteNode{}, ps
	}
	if !t.inside.keys.secured(string(name), n, r, &ps) {
		return datapath.RemoteNode{}, ps
	}
	remote := datapath.RemoteNode{Name: string(name), PodCIDRs: ranges, Address: ip, Sources: n.tunnelEnds()}
	for _, own := range n.Internal { // its host uses them too
		if own.Is4() != ip.Is4() && t.this.families(r).Serve(own) && !slices.Contains(remote.Hosts, own) {
			remote.Hosts = append(remote.Hosts, own)
		}
	}
	if len(remote.Hosts) > 0 || t.config.EncryptsNodes() {
		remote.Hosts = append(n.tunnelEnds(), remote.Hosts...)
	}
	if t.config.EncryptsNodes() {
		remote.Address, remote.Sources = peering.InsideOfNode(ip), nil
	}
	for _, cidr := range ranges {
		remote.GatewayIPs = append(remote.GatewayIPs, gatewayOf(cidr))
	}
	for _, cidr := range ranges {
		direct := &remote.Direct
		if !is4(cidr) {
			direct = &remote.Direct6
		}
		*direct = t.direct(string(name), n, !is4(cidr), r, &ps)
	}
	return remote, ps
}

// networkOf returns the network settings of a new Pod. There is no row while the Node is unknown or has no podCIDR. The
// podCIDR of a deleted Node may soon be another Node's.
func (o *outputs) networkOf(_ derive.Name, r *derive.Reader) (cni.Network, []problem.Problem) {
	now, ok := derive.Get(r, o.from.this.now, self)
	if !ok {
		return cni.Network{}, nil
	}
	n, _ := derive.Get(r, o.from.node, self)
	s, _ := derive.Get(r, o.from.this.settings, self)
	mtu := podMTU(o.from.config, now.Underlay)
	ranges, _ := now.Node.podCIDRs(o.from.this.families(r)) // which come first in n.PodCIDRs
	if len(ranges) == 0 || len(n.PodCIDRs) < len(ranges) || mtu == 0 || s.GatewayMAC == "" {
		return cni.Network{}, nil
	}
	return cni.Network{
		PodCIDRs:   ranges,
		Gateways:   n.GatewayIPs[:len(ranges)],
		MTU:        mtu,
		GatewayMAC: s.GatewayMAC,
		Reserved:   reserved(ranges),
		// The userspace datapath forwards a packet as the Pod wrote it to the veth. If the Pod left the checksum to hardware,
		// nothing would compute it.
		DisableTXChecksum: o.from.config.OVSDatapathType == "netdev" || o.from.config.DisableTXChecksumOffload,
	}, nil
}

// portsOf are the facts about the ports of the integration bridge.
func (t *tables) portsOf(s bridge.State) map[derive.Name]portFacts {
	out := map[derive.Name]portFacts{}
	for name, p := range s.Bridges[t.config.OVSBridge].Ports {
		out[derive.Name(name)] = portFacts{There: true, OFPort: ofp.Port(p.OFPort), Error: p.Error, MTU: p.MTU}
	}
	return out
}

// readSwitch writes the OVSDB's state to the tables. Several goroutines may call it. Each one reads while no other
// writes, so an older state is never written after a newer one.
func (t *tables) readSwitch(read func() bridge.State) {
	t.engine.Together(func() {
		s := read()
		ids := s.Bridges[uplinkBridge(t.config.TransportInterface)].ExternalIDs
		t.pods.ports.Replace(t.portsOf(s))
		t.this.record.Set(self, uplinkRecord{ids[hostnet.UplinkAddressesKey], ids[hostnet.UplinkRoutesKey]})
	})
}

// loaded declares that the sources which the Node fills have their content.
func (t *tables) loaded() {
	for _, s := range []interface{ Loaded() }{
		t.this.settings, t.this.underlay, t.this.last, t.pods.attachments, t.pods.numbers, t.pods.ports, t.ways.lost,
		t.this.record, t.inside.sessions, t.pods.unrecovered, t.pods.rebuilding, t.resolvers.node, t.policies.Learned,
		t.outside.open, t.followed.connections, t.followed.packets,
	} {
		s.Loaded()
	}
	if !t.external.keeps {
		t.external.held.Loaded()
	}
}

// connections are the UDP connections to Services that changed frontends had, and have.
func (t *tables) connections(changes []derive.Change[derive.Object, []service.Frontend]) (before,
	now []datapath.ServiceConnection) {
	for _, c := range changes {
		before = append(before, t.flows.Services.Connections(c.Old)...)
		now = append(now, t.flows.Services.Connections(c.New)...)
	}
	return before, now
}

// draining returns the endpoints of changed slices that terminate but still serve (KEP-1669), before and after the
// change.
func draining(changes []derive.Change[derive.Object, service.SliceFacts]) (before, now []netip.AddrPort) {
	of := func(s service.SliceFacts) []netip.AddrPort {
		out := map[netip.AddrPort]bool{}
		for _, e := range s.Endpoints {
			for _, p := range s.Ports {
				if e.Draining && p.Protocol == corev1.ProtocolUDP {
					out[netip.AddrPortFrom(e.Addr, p.Port)] = true
				}
			}
		}
		return slices.Collect(maps.Keys(out))
	}
	for _, c := range changes {
		before = append(before, of(c.Old)...)
		now = append(now, of(c.New)...)
	}
	return before, now
}
