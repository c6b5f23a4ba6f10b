package datapath

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// Tables in the order a packet meets them. A goto can only move down this list. A packet that went through connection
// tracking continues in the table that the ct action names.
const (
	Classify        ofp.Table = iota // what kind of port did it come from, may it use this source?
	ARP                              // answers for the addresses of this Node
	UnSNAT                           // undo the translation of a source address, for replies
	Conntrack                        // look the connection up, undo or repeat its translation
	ConntrackState                   // known connections need no choice, invalid packets end here
	Again                            // judge a known connection once more
	Exports                          // may another cluster open this connection?
	External                         // did it come from outside, to which address, and may it?
	Service                          // choose an endpoint
	Egress                           // do policies isolate the Pod that sends?
	EgressPeer                       // whose is the destination?
	EgressAdmin                      // which rule of an admin tier decides?
	EgressRule                       // which rule of NetworkPolicies allows it?
	EgressBaseline                   // which rule of a baseline tier decides?
	Route                            // choose the next hop
	Ingress                          // do policies isolate the Pod that receives?
	IngressPeer                      // whose is the source?
	IngressAdmin                     // which rule of an admin tier decides?
	IngressRule                      // which rule of NetworkPolicies allows it?
	IngressBaseline                  // which rule of a baseline tier decides?
	Commit                           // remember a new connection
	SNAT                             // translate the source address if replies must come back here
	Output                           // send it
	Affinity                         // from Service, for affinity: which endpoint did the client have last?
	Endpoint                         // then, with session affinity: go to that, or choose one
	Advertise                        // from ARP, for IPv6: finish the answer
	Tenant                           // from Route, for packets of a network of tenants: choose the next hop there
)

// Program has the name of each table, and its action for packets that match no flow.
var Program = flow.Program{
	Classify:        {Name: "Classify", Miss: flow.Drop},
	ARP:             {Name: "ARP", Miss: flow.Drop},
	UnSNAT:          {Name: "UnSNAT", Miss: flow.Next},
	Conntrack:       {Name: "Conntrack", Miss: flow.Drop},
	ConntrackState:  {Name: "ConntrackState", Miss: flow.Drop},
	Again:           {Name: "Again", Miss: flow.Drop},
	Exports:         {Name: "Exports", Miss: flow.Next},
	External:        {Name: "External", Miss: flow.Next},
	Service:         {Name: "Service", Miss: flow.Next},
	Egress:          {Name: "Egress", Miss: flow.Drop},
	EgressPeer:      {Name: "EgressPeer", Miss: flow.Next},
	EgressAdmin:     {Name: "EgressAdmin", Miss: flow.Next},
	EgressRule:      {Name: "EgressRule", Miss: flow.Drop},
	EgressBaseline:  {Name: "EgressBaseline", Miss: flow.Drop},
	Route:           {Name: "Route", Miss: flow.Drop},
	Ingress:         {Name: "Ingress", Miss: flow.Drop},
	IngressPeer:     {Name: "IngressPeer", Miss: flow.Next},
	IngressAdmin:    {Name: "IngressAdmin", Miss: flow.Next},
	IngressRule:     {Name: "IngressRule", Miss: flow.Drop},
	IngressBaseline: {Name: "IngressBaseline", Miss: flow.Drop},
	Commit:          {Name: "Commit", Miss: flow.Next},
	SNAT:            {Name: "SNAT", Miss: flow.Next},
	Output:          {Name: "Output", Miss: flow.Drop},
	Affinity:        {Name: "Affinity", Miss: flow.Drop},
	Endpoint:        {Name: "Endpoint", Miss: flow.Drop},
	Advertise:       {Name: "Advertise", Miss: flow.Drop}, // its flow is among Node.neighbors
	Tenant:          {Name: "Tenant", Miss: flow.Drop},    // its flow is among Node.tenants
}

// Priorities within a table. A table's miss flow has priority 0.
const (
	last     uint16 = 180 // where everything else goes
	closed   uint16 = 185 // for packets that do not go there
	low      uint16 = 190
	normal   uint16 = 200
	differ   uint16 = 205   // a special case of a normal flow
	same     uint16 = 206   // an exception from such a special case
	high     uint16 = 210   // a special case of all of these
	returned uint16 = 216   // for packets that the host has sent back
	apart    uint16 = 217   // for packets of networks of tenants
	shares   uint16 = 218   // for their connections to Services of the default network
	enters   uint16 = 219   // for connections from outside to their Services
	asks     uint16 = 216   // for questions that the switch answers itself
	origin   uint16 = 215   // for packets that go back to where their connection came from
	never    uint16 = 220   // for packets that are always dropped
	ruled    uint16 = 225   // for packets that rules of a Service judge first
	skip     uint16 = 65000 // in a table of rules: above all of them

	fragments uint16 = 65001 // in these: fragments, whose ports no rule sees
)

// These are the fields that a packet carries from table to table: first bit, then width. Registers survive
// recirculation. ct_state and ct_mark do not survive a ct action in the same pass. TestProgram fails if a range leaves
// its register or overlaps another one.
var (
	source       = flow.Reg(0).Bits(0, 4)  // where it came from
	snat         = flow.Reg(0).Bits(4, 2)  // which source address it gets in table SNAT
	generated    = flow.Reg(0).Bits(6, 1)  // made by the agent to refuse a connection
	committed    = flow.Reg(0).Bits(7, 1)  // its connection is known, and it is judged
	untranslated = flow.Reg(0).Bits(11, 1) // between Pods of two clusters, and no Gateway translates it
	forwarded    = flow.Reg(0).Bits(12, 1) // the host has forwarded it, and given it its own address
	named        = flow.Reg(0).Bits(13, 1) // the tunnel's key has named the sender
	// How a new connection to a Service came in, where that is not by its ClusterIP.
	entryPort     = flow.Reg(0).Bits(14, 1) // by a port of the Node
	entryExternal = flow.Reg(0).Bits(15, 1) // by an external address
	ownClient     = flow.Reg(0).Bits(16, 1) // from a process or Pod of this Node

	outPort = flow.Reg(1).Bits(0, 32) // the port it will leave by

	// The stages with policies for the judged Pod, in the judged direction.
	byAdmin           = flow.Reg(0).Bits(8, 1)
	byNetworkPolicies = flow.Reg(0).Bits(9, 1)
	byBaseline        = flow.Reg(0).Bits(10, 1)

	// The sender and the receiver as numbers of identities (pkg/policy). 0 is an identity that no rule names. An identity
	// of another cluster has the ClusterSet's number, and the highest bit (remote).
	sender   = flow.Reg(2).Bits(0, 25)
	receiver = flow.Reg(3).Bits(0, 25)

	// These are the rules that let the packet leave the sending Pod, and enter the receiving Pod (ruleNumber). 0 means no
	// rule.
	egressRule  = flow.Reg(4).Bits(0, 32)
	ingressRule = flow.Reg(5).Bits(0, 32)

	// This is the ClusterSet's number of the sender, a Pod of this cluster. It becomes the tunnel's key on the way to
	// another cluster. It is not written into the key at once: recirculation clears tunnel metadata without an address.
	clusterSetID = flow.Reg(6).Bits(0, 24)

	// The way is a path between clusters, or between a Node and one of several Gateways. A packet came through it or
	// leaves through it. Its number is the number of the port with BFD (WayEnd). 0 is a path without BFD.
	way = flow.Reg(7).Bits(0, 16)

	// The packet was reported where it came in, and where it leaves.
	tracedIn  = flow.Reg(7).Bits(16, 1)
	tracedOut = flow.Reg(7).Bits(17, 1)

	// These registers are for a new connection to a Service with session affinity that has no endpoint yet. They contain
	// the number of the group that chooses an endpoint, the number of the chosen bucket, and a value. The group chooses by
	// a hash of the value and the client's address. The value has a separate register, since a hash covers whole fields.
	affinityGroup = flow.Reg(8).Bits(0, 32)
	affinityTo    = flow.Reg(9).Bits(0, 32)
	affinitySalt  = flow.Reg(10).Bits(0, 16)
	affinityPort  = flow.Reg(12).Bits(0, 32) // by which table Affinity knows the Service's port

	// These are the Service whose policies judge a new connection from outside, and a bit for connections that one of
	// their rules has passed to the tier baseline.
	judged = flow.Reg(13).Bits(0, 31)
	passed = flow.Reg(13).Bits(31, 1)

	// This is the sender, a Pod of this Node (policy.SenderKeyOf). It becomes the tunnel's key on the way to another Node.
	// Like clusterSetID it is not written into the key at once.
	senderKey = flow.Reg(11).Bits(0, 24)

	// These are the network of tenants that the packet is in (pkg/tenant), and a bit that is set in such a network. Both
	// are 0 in the default network. mayLeave lets the packet leave for destinations outside of the cluster.
	tenantID = flow.Reg(14).Bits(0, 25)
	isTenant = flow.Reg(14).Bits(25, 1)
	mayLeave = flow.Reg(14).Bits(26, 1)
	inTenant = flow.Reg(14).Bits(0, 26) // tenantID and isTenant

	// It came from a port in a VirtualNetwork. There are no Services.
	isVirtual = flow.Reg(14).Bits(27, 1)
	// It came from the first interface of a Pod in a VirtualNetwork, which has Services.
	isFirst = flow.Reg(14).Bits(28, 1)

	// The zone of connection tracking of a separate network, and a bit that is set in such a network. Both are 0 in all
	// other networks.
	zoneID     = flow.Reg(15).Bits(0, 16)
	isSeparate = flow.Reg(15).Bits(16, 1)
	inZone     = flow.Reg(15).Bits(0, 17) // zoneID and isSeparate
)

// tunnelKey is the part of a tunnel's key that all tunnel types have.
var tunnelKey = flow.Bits{Field: ofp.TunID, First: 0, Width: 24}

// Fields that a connection carries for its whole life, in zone mainZone.
var (
	markSource       = flow.CTMarkBits(0, 4)  // source of its first packet
	markService      = flow.CTMarkBits(4, 1)  // it goes to a Service
	markPending      = flow.CTMarkBits(5, 1)  // its endpoint was chosen, and no policy has allowed it yet
	markUntranslated = flow.CTMarkBits(6, 1)  // no Gateway translates it
	markTenant       = flow.CTMarkBits(7, 1)  // it goes to a Service of a network of tenants
	markWay          = flow.CTMarkBits(8, 16) // way of its first packet, known to both of its Gateways

	// replies that have passed without a packet of the client, since it has to be judged again
	markUnanswered = flow.CTMarkBits(24, 3)

	// it goes to a Service that leads Pods in VirtualNetworks of their own to Pods there alone
	markInside = flow.CTMarkBits(27, 1)

	labelIngress = flow.CTLabelBits(0, 32) // ingressRule of the packet that was judged
	labelEgress  = flow.CTLabelBits(32, 32)

	// These are the identities of sender and receiver when the packet was judged. A Pod whose labels change gets another
	// identity.
	labelSender   = flow.CTLabelBits(76, 25)
	labelReceiver = flow.CTLabelBits(101, 25)
)

// Values of source.
const (
	fromTunnel  = 1
	fromGateway = 2
	fromPod     = 3
	fromPeer    = 4
	fromFirst   = 5
)

// Values of snat.
const (
	snatCross   = 1 // this Gateway's address: the far cluster answers to it
	snatHairpin = 2 // the Service address: a Pod that gets its own packet answers to the switch
	snatSource  = 3 // the Node's service source: the endpoint's Node answers to this one
)

// unknownIdentity is the identity of a Pod of this Node whose labels are not known yet, in a Namespace with policies.
// It is denied everything. For policies of other Pods it is an unknown Pod (policy.UnknownPod), like such a Pod of
// another Node.
const unknownIdentity = 1<<24 - 1

// remote is in sender and receiver where their number is one of the cluster set.
const remote = policy.Remote

// Zones of connection tracking. A separate network has a zone from 1 to tenant.MaxZone.
const (
	mainZone uint16 = 65520 // every connection; destination translation
	snatZone uint16 = 65521 // connections whose source is translated
)

// ZoneTimeouts returns how many seconds a closed TCP connection is remembered in each zone. Only the userspace datapath
// can be configured. Its defaults of 30 and 45 seconds are less than the 60 for which Linux keeps a closed socket
// (TCP_TIMEWAIT_LEN). With them the port of a translated source would be given to another client too early. The server
// would take that client's SYN for a stray of the earlier connection. The values are the kernel's
// (net.netfilter.nf_conntrack_tcp_timeout_time_wait).
func ZoneTimeouts(datapathType string) map[uint16]map[string]int {
	if datapathType != "netdev" {
		return nil
	}
	closed := map[string]int{"tcp_fin_wait": 120, "tcp_time_wait": 120, "tcp_close": 120}
	return map[uint16]map[string]int{mainZone: closed, snatZone: closed}
}

// These MACs stand for the switch. A packet for another Node carries InClusterMAC in the tunnel. A packet from or for
// another cluster carries CrossClusterMAC, with which gateways of this and other implementations recognize it.
var (
	InClusterMAC    = ofp.MAC{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	CrossClusterMAC = ofp.MAC{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xf0}
)

// ProbeMAC is the destination of probes of a way. The switch of the far end sends them back to EchoMAC.
var (
	ProbeMAC = ofp.MAC{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0x0e}
	EchoMAC  = ofp.MAC{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0x0d}
)

// ourMACs is a mask under which both MACs are equal. Nodes of this cluster send the Gateway packets with either MAC.
var ourMACs = ofp.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xf0}

// Kinds of owners; they stand in the cookies of their flows.
const (
	KindPod          flow.Kind = 1
	KindService      flow.Kind = 3
	KindPolicy       flow.Kind = 5
	KindMulticluster flow.Kind = 6
	KindNode         flow.Kind = 9
	KindTenant       flow.Kind = 10
)

// bitField describes a range for the documentation and for TestProgram.
type bitField struct {
	name   string
	bits   flow.Bits
	means  string
	values []string // "value name"
}

var bitFields = []bitField{
	{"source", source, "where the packet came from",
		[]string{"1 another Node, by the tunnel", "2 gateway", "3 Pod", "4 another cluster, by the tunnel",
			"5 another Node, from a Pod whose own network is a VirtualNetwork, for a Service"}},
	{"snat", snat, "which source address it gets",
		[]string{"0 its own", "1 the Gateway's", "2 the Service address (hairpin)",
			"3 the Node's service source, for clients outside of the Pods' network"}},
	{"generated", generated, "made by the agent to refuse a connection", nil},
	{"committed", committed,
		"it is judged although its connection may be known: pending, or by SCTP on the userspace datapath", nil},
	{"byAdmin", byAdmin, "rules of admin tiers are applied to the Pod that it is judged for", nil},
	{"byNetworkPolicies", byNetworkPolicies, "NetworkPolicies isolate that Pod", nil},
	{"byBaseline", byBaseline, "rules of baseline tiers are applied to that Pod", nil},
	{"untranslated", untranslated, "it is between Pods of two clusters, and no Gateway translates it", []string{"1 yes"}},
	{"forwarded", forwarded, "the host has forwarded it, and given it the address of its gateway port", []string{"1 yes"}},
	{"named", named, "the key of another Node's tunnel has named the Pod that sends", []string{"1 yes"}},
	{"entryPort", entryPort, "a new connection to a port of the Node", nil},
	{"entryExternal", entryExternal, "a new connection to an external address, with the number of that as its port", nil},
	{"ownClient", ownClient, "such a connection of a process or a Pod of this Node", nil},
	{
		"judged", judged, "the Service from outside whose policies judge it, as a number",
		[]string{"0 not looked up, or a Service without policies", "2147483647 they let it pass"},
	},
	{"passed", passed, "a rule of these policies has passed it on to the tier baseline", nil},
	{"outPort", outPort, "the port it will leave by", nil},
	{"sender", sender, "identity of the Pod that sends",
		[]string{"16777214 an unknown Pod of this cluster, where a rule denies these",
			"16777215 not known yet", "16777216 + n in another cluster, of number n in the cluster set",
			"33554431 in another cluster, which has no number yet"}},
	{"receiver", receiver, "identity of the Pod that receives", []string{"16777214 as sender",
		"16777215 not known yet", "16777216 + n in another cluster, of number n in the cluster set"}},
	{"egressRule", egressRule, "rule that let it out of the Pod that sends",
		[]string{"0 no policy was asked", "1 what is always allowed", "others the rule's meaning, hashed"}},
	{"ingressRule", ingressRule, "rule that let it into the Pod that receives", []string{"as egressRule"}},
	{"clusterSetID", clusterSetID, "number in the cluster set of the Pod that sends; the tunnel's key " +
		"on the way to other clusters, with enableStretchedNetworkPolicy", []string{"0 no Pod", "16777215 not known yet"}},
	{"way", way, "the way that it came by from another cluster, or leaves by to one: the port with BFD",
		[]string{"0 a way without BFD"}},
	{"tracedIn", tracedIn, "it is followed, and was reported where it came in", nil},
	{"tracedOut", tracedOut, "it is followed, and was reported where it leaves", nil},
	{"affinityGroup", affinityGroup, "the group that chooses an endpoint for it, with session affinity", nil},
	{
		"affinityPort", affinityPort,
		"the port of a Service that it is for, with session affinity, at any of the Service's addresses", nil,
	},
	{"affinityTo", affinityTo, "the bucket of the endpoint that it goes to, with session affinity",
		[]string{"0 none yet"}},
	{"affinitySalt", affinitySalt, "the client's port; with session affinity a choice depends on it and on the address",
		[]string{"0 it comes from another cluster"}},
	{
		"senderKey", senderKey, "the Pod of this Node that sends, by its UID; the tunnel's key on the way to other Nodes",
		[]string{"0 no Pod, or one that is not known"},
	},
	{"tenantID", tenantID, "the network of tenants that it is in; between Nodes the lower half of the destination MAC",
		[]string{"0 the default network"}},
	{"isTenant", isTenant, "it is in a network of tenants", nil},
	{"mayLeave", mayLeave, "it is in one, and may leave the cluster", nil},
	{"isVirtual", isVirtual, "it is in one, and came from a further interface of a Pod: no Service is for it", nil},
	{"isFirst", isFirst, "it came from a Pod whose own network is a VirtualNetwork", nil},
	{"zoneID", zoneID, "the zone of connection tracking of the separate network that it is in", nil},
	{"isSeparate", isSeparate, "it is in a separate network", nil},
	{"markSource", markSource, "source of the connection's first packet", []string{"as source"}},
	{"markService", markService, "the connection goes to a Service", nil},
	{"markPending", markPending, "the connection's endpoint was chosen, and policies have not allowed it", nil},
	{"markUntranslated", markUntranslated, "no Gateway translates the connection", []string{"as untranslated"}},
	{"markTenant", markTenant, "that Service is in a network of tenants", nil},
	{"markInside", markInside, "that Service leads Pods whose own network is a VirtualNetwork to Pods there alone", nil},
	{"markWay", markWay, "way of the connection's first packet, which the others take as long as it is up",
		[]string{"as way"}},
	{"markUnanswered", markUnanswered,
		"replies of TCP and SCTP that have passed without a packet of the client, since " +
			"the connection has to be judged again",
		[]string{"7 no more pass"}},
	{"labelIngress", labelIngress, "ingressRule of the packet that was judged", []string{"as ingressRule"}},
	{"labelEgress", labelEgress, "egressRule of the packet that was judged", []string{"as egressRule"}},
	{"labelSender", labelSender, "sender of the packet that was judged", nil},
	{"labelReceiver", labelReceiver, "receiver of the packet that was judged", nil},
}
