package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// maxConnections is how many endpoints of a Service are judged, of each version of IP.
const maxConnections = 16

// whyEnd is an end of a connection that is asked about.
type whyEnd struct {
	api.WhyEnd
	ip      netip.Addr
	pod     derive.Object    // zero for an end that is no Pod
	facts   *policy.PodFacts // of the Pod
	service *derive.Object
	front   *service.Frontend // of the Service, if the end is one of its addresses, with a port
	note    string
	foreign bool // an interface of this Node of which only the Pod's name is known
}

// whyEnds are an end with an address of each version of IP that it has. A Service is one end without an address.
type whyEnds []whyEnd

// of returns the end with its address of a version of IP.
func (ends whyEnds) of(f family.Families) (whyEnd, bool) {
	for _, e := range ends {
		if f.Serve(e.ip) {
			return e, true
		}
	}
	return whyEnd{}, false
}

// service returns the Service that the end is, or nil.
func (ends whyEnds) service() *derive.Object { return ends[0].service }

// String returns the end with its addresses.
func (ends whyEnds) String() string {
	var list []string
	for _, e := range ends {
		list = append(list, e.Address)
	}
	return strings.TrimSpace(ends[0].Kind + " " + ends[0].Name + " " + strings.Join(list, " and "))
}

// report returns the end for the answer, with its judged addresses.
func (ends whyEnds) report(judged []netip.Addr) api.WhyEnd {
	out := ends[0].WhyEnd
	for i, ip := range judged {
		if i == 0 {
			out.Address = ip.String()
		}
		if len(judged) > 1 {
			out.Addresses = append(out.Addresses, ip.String())
		}
	}
	return out
}

// whyQuestion is the content of a question.
type whyQuestion struct {
	from, to whyEnds
	protocol corev1.Protocol
	port     string
	cluster  string
	families []family.Families // each is a version of IP that is asked about
}

// whyDestination is an end that a connection may come to.
type whyDestination struct {
	end      whyEnd
	protocol corev1.Protocol
	port     uint16
	asked    netip.AddrPort // of the Service
	judged   []api.WhyStage // by policies of the Service
	// client is the client as Node judge sees it, which chooses the endpoint. With outside the client comes to it from
	// another machine. Without a Service at an address for clients outside, judge is empty.
	client  whyEnd
	judge   string
	outside bool
}

// whyAnswers answers which rules decide about a connection.
type whyAnswers struct {
	tables    *tables
	tracer    appctl.Client
	addresses *whyAddresses
	reader    *whyReader
	networks  *whyNetworks
	texts     *whyPackets
}

func newWhyAnswers(t *tables, tracer appctl.Client) *whyAnswers {
	a := &whyAnswers{tables: t, tracer: tracer, addresses: &whyAddresses{t}}
	a.reader = &whyReader{t, a.addresses}
	a.networks = &whyNetworks{t, a.addresses}
	a.texts = &whyPackets{t, a.addresses, a.networks}
	return a
}

// whyAddresses finds the owners of addresses: Nodes, Pods, Services, other clusters.
type whyAddresses struct{ tables *tables }

// whyReader reads questions.
type whyReader struct {
	tables    *tables
	addresses *whyAddresses
}

// whyPackets makes the text of the packets of a connection.
type whyPackets struct {
	tables    *tables
	addresses *whyAddresses
	networks  *whyNetworks
}

// whyAnswer is an answer, and what the packets of its connections are made of.
type whyAnswer struct {
	api.Why
	clients []api.WhyEnd // of each connection the client, as its packets come to this Node
}

// serve reports which rules decide about a connection.
func (a *whyAnswers) serve(r *http.Request) (any, error) {
	query := r.URL.Query()
	traced, err := strconv.ParseBool(cmp.Or(query.Get("trace"), "false"))
	if err != nil {
		return nil, fmt.Errorf("trace=%q: give true or false", query.Get("trace"))
	}
	var (
		out   whyAnswer
		flows []traceOf
	)
	// No other code may change the tables in between. Otherwise the two halves would be judged by different tables.
	if asking := ask(r.Context(), a.tables.engine, func() {
		if out, err = a.why(query); err == nil && traced {
			flows = a.tracesOf(out)
		}
	}); asking != nil {
		return nil, asking
	}
	for _, t := range flows {
		a.traceStages(r.Context(), t)
	}
	return out.Why, err
}

func (a *whyAnswers) why(query url.Values) (whyAnswer, error) {
	q, err := a.reader.question(query)
	if err != nil {
		return whyAnswer{}, err
	}
	out := whyAnswer{Why: api.Why{Connections: []api.WhyConnection{}}}
	var from, to []netip.Addr // that are judged
	for _, f := range q.families {
		client, ok := q.from.of(f)
		if !ok {
			continue
		}
		all, asked, err := a.destinations(q, f, client, &out.Why)
		if err != nil {
			return whyAnswer{}, err
		}
		if !asked.IsValid() {
			continue
		}
		from, to = append(from, client.ip), append(to, asked)
		a.connect(&out, q, client, all)
	}
	if len(from) == 0 {
		return whyAnswer{}, a.reader.nothingInCommon(q)
	}
	out.From, out.To = q.from.report(from), q.to.report(to)
	out.Notes = slices.Concat(q.notes(from, to), out.Notes)
	return out, nil
}

// notes returns the notes about ends, of the addresses that were judged.
func (q whyQuestion) notes(from, to []netip.Addr) (out []string) {
	add := func(ends whyEnds, judged []netip.Addr) {
		for _, e := range ends {
			if e.note != "" && slices.Contains(judged, e.ip) {
				out = append(out, e.note)
			}
		}
	}
	add(q.from, from)
	add(q.to, to)
	return out
}

// nothingInCommon returns the error for ends without addresses of one version of IP.
func (a *whyReader) nothingInCommon(q whyQuestion) error {
	to := q.to.String()
	if q.to.service() != nil && q.cluster != "" {
		return fmt.Errorf("no endpoint of Service %s is of cluster %s: import it there, or leave out the cluster to see all "+
			"endpoints", q.to.service(), q.cluster)
	}
	if q.to.service() != nil && q.to[0].front == nil {
		var list []string
		all, _ := a.tables.services.Frontends.Get(*q.to.service())
		for _, f := range all {
			if text := f.VIP.Addr().String(); f.Kind == service.ClusterIP && !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
		to += " " + strings.Join(list, " and ")
	}
	if len(q.families) == 1 {
		return fmt.Errorf("family: not both ends have an address of %s: from is %s, to is %s", q.families[0], q.from, to)
	}
	return fmt.Errorf("to: no connection is possible: from is %s, to is %s, and no version of IP is common to them: name "+
		"an end with addresses of both", q.from, to)
}

// destinations returns the ends to which a connection over a version of IP may come, and the address that it is made
// to. Without an address of that version this is the zero address.
func (a *whyAnswers) destinations(q whyQuestion, f family.Families, client whyEnd, out *api.Why) (
	all []whyDestination, asked netip.Addr, err error) {
	if q.to.service() == nil {
		end, ok := q.to.of(f)
		if !ok {
			return nil, netip.Addr{}, nil
		}
		port, err := portOf(q, end)
		return []whyDestination{{end: end, protocol: q.protocol, port: port, client: client}}, end.ip, err
	}
	front, ok, err := a.reader.frontendOf(q, f)
	if err != nil || !ok {
		return nil, netip.Addr{}, err
	}
	d := whyDestination{protocol: front.Protocol, asked: front.VIP, client: client}
	if q.to[0].front != nil {
		to, _ := q.to.of(f)
		d.asked = netip.AddrPortFrom(to.ip, front.VIP.Port()) // a node port has no address of its own
		node := a.addresses.nodeOf(client)
		elsewhere := node != "" && node != a.tables.nodeName
		switch {
		case front.Kind == service.ClusterIP:
		case elsewhere && front.Kind == service.NodePort:
			d.outside, d.judge = true, a.tables.nodeName
			if d.client, err = a.addresses.fromOutside(client); err != nil {
				return nil, netip.Addr{}, err
			}
		case elsewhere: // its own host, or its switch, translates
			d.judge = node
		default:
			d.judge = a.tables.nodeName
		}
		front = a.addresses.forClient(front, node != "" && node == d.judge)
	}
	if d.judge != "" {
		d.judged = []api.WhyStage{a.serviceStage(front, d)}
	}
	for _, e := range front.Endpoints {
		if d.end = a.addresses.endAt(e.Addr.Addr()); q.cluster == "" || d.end.Cluster == q.cluster {
			d.port = e.Addr.Port()
			all = append(all, d)
		}
	}
	of := ""
	if len(q.families) > 1 {
		of = " over " + f.String()
	}
	switch {
	case len(all) > 0:
	case q.cluster != "":
		return nil, netip.Addr{}, nil
	case front.Elsewhere && front.Kind != service.ClusterIP:
		out.Notes = append(out.Notes, "the Service has endpoints on other Nodes alone, and externalTrafficPolicy Local: "+
			"connections to it by this Node are dropped")
	case front.Elsewhere:
		out.Notes = append(out.Notes, "the Service has endpoints on other Nodes alone, and internalTrafficPolicy Local: "+
			"connections to it"+of+" are dropped")
	default:
		out.Notes = append(out.Notes, "the Service has no endpoints: connections to it"+of+" are refused")
	}
	if len(all) > maxConnections {
		out.LeftOut += len(all) - maxConnections
		all = all[:maxConnections]
	}
	for _, d := range all {
		if d.end.note != "" {
			out.Notes = append(out.Notes, d.end.note)
		}
	}
	return all, d.asked.Addr(), nil
}

// nodeOf returns the Node of a Pod, known or not, or of a host. Of another machine it returns nothing.
func (a *whyAddresses) nodeOf(client whyEnd) string {
	switch n, _ := a.tables.node.Get(self); {
	case client.Cluster != "":
		return ""
	case client.Node != "":
		return client.Node
	case slices.Contains(n.GatewayIPs, client.ip), slices.Contains(n.NodePortAddresses, client.ip):
		return a.tables.nodeName
	}
	for _, row := range a.tables.nodes.All() {
		if slices.Contains(row.Value.Addresses, client.ip) || slices.Contains(a.gatewaysOf(row.Key.Name), client.ip) {
			return row.Key.Name
		}
	}
	return ""
}

// fromOutside returns a Pod or the host of another Node as this Node sees it at one of its own addresses: as another
// machine. The host of the Pod masquerades, and no tunnel is used.
func (a *whyAddresses) fromOutside(client whyEnd) (whyEnd, error) {
	ip := client.ip
	if isPod(client) && !a.tables.config.NoSNAT {
		node, _ := a.tables.nodes.Get(derive.Object{Name: client.Node})
		i := slices.IndexFunc(node.Internal, func(ip netip.Addr) bool { return ip.Is4() == client.ip.Is4() })
		if i < 0 {
			return whyEnd{}, fmt.Errorf("from: the Pod %s asks with an address of its Node %s, which has no InternalIP of that "+
				"version of IP: give the address instead of the Pod", client.ip, client.Node)
		}
		ip = node.Internal[i]
	}
	return whyEnd{WhyEnd: api.WhyEnd{Address: ip.String()}, ip: ip}, nil
}

// isPod reports whether a client is a Pod, known or not.
func isPod(client whyEnd) bool { return client.Node != "" && client.Kind != kindNode }

// connect adds the connections of a client to destinations.
func (a *whyAnswers) connect(out *whyAnswer, q whyQuestion, from whyEnd, all []whyDestination) {
	// Tables of their own find the decisions of other Nodes, once for all of them.
	far := []derive.Object{from.pod}
	for _, d := range all {
		far = append(far, d.end.pod)
	}
	elsewhere := a.elsewhere(far)
	for _, d := range all {
		c := policy.Connection{From: from.ip, To: d.end.ip, Protocol: d.protocol, Port: d.port, Asked: d.asked.Addr()}
		if d.protocol == protocolICMP {
			c.Port = uint16(echoRequest(d.end.ip)) << 8
		}
		if q.to.service() != nil {
			c.Service = *q.to.service()
		}
		if from.Cluster != "" {
			c.ClusterSet = from.ClusterSet
		}
		w := api.WhyConnection{From: from.Address, To: d.end.WhyEnd, Protocol: string(d.protocol), Port: d.port,
			Allowed: true}
		if d.asked.IsValid() {
			w.Asked = d.asked.String()
		}
		note := func(text string) {
			if !slices.Contains(out.Notes, text) {
				out.Notes = append(out.Notes, text)
			}
		}
		to, sent := d.end, c
		if d.outside { // where it comes from, nothing is known of the Service
			to, sent.To, sent.Port = a.addresses.endAt(d.asked.Addr()), d.asked.Addr(), d.asked.Port()
			sent.Asked, sent.Service = netip.Addr{}, derive.Object{}
		}
		w.Stages = append(slices.Clone(d.judged), a.stage(policy.Egress, from, to, sent, elsewhere))
		if n := a.networks.networkOf(from, q, d); n.Reason != "" {
			w.Stages = append(w.Stages, a.networks.networkStage(n))
		}
		client := d.client
		if client.ip != from.ip {
			note(fmt.Sprintf("Node %s sees %s, which is of Node %s, instead of the client's address", a.tables.nodeName,
				client.ip, from.Node))
		}
		arrives := client.WhyEnd // of a host by its address alone, the Node is not in it
		if d.judge != "" {
			arrives.Cluster = "" // its host has no tunnel to addresses for clients outside
		}
		if d.judge != "" && d.judge != a.tables.nodeName {
			arrives.Node = d.judge
		}
		if source := a.addresses.seenAs(d); source != client.ip {
			servers := "servers on other Nodes"
			client = a.addresses.endAt(source)
			if d.judge != a.tables.nodeName {
				servers += " than " + d.judge
				arrives.Address = client.Address
			}
			note(fmt.Sprintf("%s see %s instead of the client's address", servers, source))
		}
		c.From = client.ip
		w.Stages = append(w.Stages, a.stage(policy.Ingress, d.end, client, c, elsewhere))
		for _, s := range w.Stages {
			w.Allowed = w.Allowed && s.Allowed
		}
		out.Connections, out.clients = append(out.Connections, w), append(out.clients, arrives)
	}
}

// frontendAt returns the Service that has an address and port here: a ClusterIP, an address for clients outside, or a
// node port at an address of this Node.
func (a *whyAddresses) frontendAt(protocol corev1.Protocol, at netip.AddrPort) (service.Frontend, bool) {
	if f, ok := a.tables.services.Find(protocol, at); ok {
		return f, true
	}
	n, _ := a.tables.node.Get(self)
	if !slices.Contains(n.NodePortAddresses, at.Addr()) {
		return service.Frontend{}, false
	}
	return a.nodePort(protocol, at)
}

// nodePort returns the Service that has a port of all Nodes, of the version of IP of an address.
func (a *whyAddresses) nodePort(protocol corev1.Protocol, at netip.AddrPort) (service.Frontend, bool) {
	any := netip.IPv4Unspecified()
	if !at.Addr().Is4() {
		any = netip.IPv6Unspecified()
	}
	f, ok := a.tables.services.Find(protocol, netip.AddrPortFrom(any, at.Port()))
	return f, ok && f.Kind == service.NodePort
}

// forClient returns the frontend at the same address that is for the own clients of the Node that judges, or for
// others.
func (a *whyAddresses) forClient(f service.Frontend, own bool) service.Frontend {
	clients := service.OtherClients
	if own {
		clients = service.OwnClients
	}
	all, _ := a.tables.services.Frontends.Get(derive.Object{Namespace: f.Namespace, Name: f.Service})
	for _, g := range all {
		if g.Protocol == f.Protocol && g.VIP == f.VIP && g.Clients == clients {
			return g
		}
	}
	return f
}

// seenAs returns the source of a connection as the server sees it. For a client outside, an endpoint that is not on the
// Node that judges gets an address of that Node.
func (a *whyAddresses) seenAs(d whyDestination) netip.Addr {
	from := d.client
	// This Node has no facts about the way between two others. It is without a tunnel if the ways to both are.
	direct := func(node string) bool {
		remote, _ := a.tables.remotes.Get(derive.Name(node))
		return node == a.tables.nodeName || remote.DirectTo(from.ip)
	}
	switch {
	case d.judge == "" || isPod(from) || d.end.Node == "" || d.end.Node == d.judge:
		return from.ip
	case direct(d.judge) && direct(d.end.Node), slices.Contains(a.gatewaysOf(d.judge), from.ip):
		return from.ip
	}
	if source := a.serviceSourceOf(d.judge, from.ip.Is4()); source.IsValid() {
		return source
	}
	return from.ip
}

// serviceSourceOf returns the service source of a Node, of IPv4 or IPv6.
func (a *whyAddresses) serviceSourceOf(node string, is4 bool) netip.Addr {
	switch n, _ := a.tables.node.Get(self); {
	case node == n.Name && is4:
		return n.ServiceSource
	case node == n.Name:
		return n.ServiceSource6
	}
	remote, _ := a.tables.remotes.Get(derive.Name(node))
	for _, cidr := range remote.PodCIDRs {
		if source, ok := policy.ServiceSource(cidr); ok && source.Is4() == is4 {
			return source
		}
	}
	return netip.Addr{}
}

// serviceDirection is the direction of a stage that judges for a Service.
const serviceDirection = "service"

// serviceStage returns the decision of the policies that are applied to a Service, and of its loadBalancerSourceRanges.
func (a *whyAnswers) serviceStage(f service.Frontend, d whyDestination) api.WhyStage {
	key, client := derive.Object{Namespace: f.Namespace, Name: f.Service}, d.client
	s := api.WhyStage{Direction: serviceDirection, Service: key.String(), Node: d.judge,
		Here: d.judge == a.tables.nodeName, Allowed: true}
	seen := map[policy.Key]bool{}
	rules, _ := a.tables.policies.ServiceRules.Get(key)
	for _, rule := range rules {
		if !seen[rule.Key.Policy] {
			seen[rule.Key.Policy] = true
			s.Policies = append(s.Policies, rule.Key.Policy.String())
		}
	}
	rule, ok := a.tables.flows.Policies.OfServices.Judge(key, client.ip, f.Protocol, d.asked.Port())
	switch {
	case !ok && len(s.Policies) == 0:
		s.Reason = "no policy applies to the Service"
	case !ok:
		s.Reason = "no rule is about it"
	default:
		s.Rule, s.Allowed = rule.Key.String(), rule.Action == policy.Allow
		s.Reason = fmt.Sprintf("%s of %s", rule.Action, rule.Key)
		if rule.Beyond {
			s.Reason += ", which needs more flows than a Service has (problem TooLarge) and denies everything"
		}
	}
	// The Service's own address may use it if an address of this Node may.
	n, _ := a.tables.node.Get(self)
	if s.Allowed && f.Limited && !slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool {
		return p.Contains(client.ip) || client.ip == d.asked.Addr() && slices.ContainsFunc(n.NodePortAddresses, p.Contains)
	}) {
		s.Allowed, s.Reason = false, fmt.Sprintf("loadBalancerSourceRanges of the Service do not have %s", client.ip)
	}
	return s
}

// elsewhere has the tables of the Nodes of Pods made when they are needed.
func (a *whyAnswers) elsewhere(pods []derive.Object) func() *policy.Tables {
	var made *policy.Tables
	return func() *policy.Tables {
		if made == nil {
			all := slices.DeleteFunc(slices.Clone(pods), func(o derive.Object) bool { return o == derive.Object{} })
			made = a.tables.policies.Elsewhere(all...)
		}
		return made
	}
}

// stage returns the decision for the Pod own about its connection with other.
func (a *whyAnswers) stage(d policy.Direction, own, other whyEnd, c policy.Connection,
	elsewhere func() *policy.Tables) api.WhyStage {
	s := api.WhyStage{Direction: d.String(), Allowed: true}
	switch {
	case own.Cluster != "" && d == policy.Ingress:
		from := a.addresses.gatewayIP().String()
		if other.ClusterSet != 0 {
			from = "identity/" + numberText(other.ClusterSet)
		}
		s.Reason = fmt.Sprintf("%s is of cluster %s, whose own policies judge it: ask on the server's Node there, with "+
			"--from %s", own.ip, own.Cluster, from)
		return s
	case own.Cluster != "":
		s.Reason = fmt.Sprintf("%s is of cluster %s, whose own policies judge it: ask there", own.ip, own.Cluster)
		return s
	case own.foreign:
		s.Pod, s.Node, s.Here, s.Allowed = own.Name, own.Node, true, !a.tables.policies.MaySelect(nil, namespaceOf(own.Name))
		s.Reason = "nothing is known of its Pod: where policies could select a Pod of its Namespace nothing is allowed"
		return s
	case own.facts == nil && a.tables.policies.IsUnknownPod(own.ip):
		s.Reason = fmt.Sprintf("%s is in a podCIDR of Node %s, and no Pod with it is known: that Node judges for it", own.ip,
			own.Node)
		return s
	case own.facts == nil:
		s.Reason = fmt.Sprintf("%s is no Pod of this cluster: no policy judges for it", own.ip)
		return s
	}
	s.Pod, s.Node, s.Here = own.Name, own.Node, own.Node == a.tables.nodeName
	tables := a.tables.policies
	if !s.Here {
		tables = elsewhere()
	}
	h := tables.Why(own.pod, d, c)
	if s.Identity, s.Peer = string(h.Identity), string(h.Peer); h.UnknownPeer {
		s.Peer = api.UnknownPod
	}
	if s.Here {
		s.Number = h.Number
	}
	for _, step := range h.Steps {
		for _, p := range step.Policies {
			s.Policies = append(s.Policies, p.String())
		}
	}
	switch {
	case h.Identity == "":
		s.Allowed = false
		s.Reason = "its labels, or those of its Namespace, are not known yet: where policies could select it nothing is " +
			"allowed"
	case own.ip == other.ip:
		s.Reason = "a Pod always reaches itself"
	case d == policy.Ingress && slices.Contains(a.addresses.gatewaysOf(own.Node), other.ip):
		s.Reason = "a Pod's own Node always reaches it, for the kubelet's probes"
	default:
		s.Allowed, s.Reason = h.Allowed, reason(d, h)
		if h.Rule != nil {
			s.Rule = h.Rule.String()
		}
	}
	return s
}

// namespaceOf is the Namespace of "namespace/name".
func namespaceOf(pod string) string {
	namespace, _, _ := strings.Cut(pod, "/")
	return namespace
}

// unknownNumber stands for clients in other clusters whose labels have no number yet.
const unknownNumber = "unknown"

func numberText(clusterSet uint32) string {
	if clusterSet == policy.UnknownClusterSet {
		return unknownNumber
	}
	return strconv.FormatUint(uint64(clusterSet), 10)
}

// reason returns the reason for a verdict in words.
func reason(d policy.Direction, h policy.Half) string {
	switch {
	case h.Unknown:
		return "the client's labels have no number in the ClusterSet yet, and a rule with scope ClusterSet applies to the " +
			"Pod: nothing of it is let in"
	case h.Rule != nil:
		peers, ports := "everybody", "every port"
		if h.Text.Peers != nil {
			peers = strings.Join(h.Text.Peers, " or ")
		}
		if h.Text.Ports != nil {
			ports = strings.Join(h.Text.Ports, ", ")
		}
		word := map[policy.Direction]string{policy.Ingress: "from", policy.Egress: "to"}[d]
		if h.UnknownPeer && h.Action != policy.Allow && h.Action != policy.Pass {
			peers += ", and unknown Pods"
		}
		return fmt.Sprintf("%s of %s: %s %s, %s", h.Action, h.Rule, word, peers, ports)
	case h.Stage == policy.NetworkPolicies:
		return "NetworkPolicies isolate the Pod for " + d.String() + ", and none of their rules allows it"
	}
	for _, step := range h.Steps {
		if len(step.Policies) > 0 {
			return "no rule is about it, and no NetworkPolicy isolates the Pod for " + d.String()
		}
	}
	return "no policy applies to the Pod for " + d.String()
}

func (a *whyAddresses) gatewayIP() netip.Addr {
	p, _ := a.tables.peering.Get(self)
	return p.Part.End
}

// gatewaysOf are the addresses of a Node's gateway port.
func (a *whyAddresses) gatewaysOf(node string) []netip.Addr {
	if n, _ := a.tables.node.Get(self); n.Name == node {
		return n.GatewayIPs
	}
	n, _ := a.tables.remotes.Get(derive.Name(node))
	return n.GatewayIPs
}

// question reads a query.
func (a *whyReader) question(query url.Values) (q whyQuestion, err error) {
	q.port, q.cluster = query.Get("port"), query.Get("cluster")
	q.protocol = corev1.Protocol(strings.ToUpper(query.Get("protocol")))
	switch q.protocol {
	case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, protocolICMP:
	default:
		return q, fmt.Errorf("protocol %q is not one of TCP, UDP, SCTP and ICMP", query.Get("protocol"))
	}
	switch text := query.Get("family"); strings.ToLower(text) {
	case "":
		q.families = []family.Families{family.IPv4, family.IPv6}
	case "ipv4":
		q.families = []family.Families{family.IPv4}
	case "ipv6":
		q.families = []family.Families{family.IPv6}
	default:
		return q, fmt.Errorf("family %q is not one of IPv4 and IPv6", text)
	}
	p, _ := a.tables.peering.Get(self)
	var ids []string
	for _, peer := range p.Peers {
		ids = append(ids, peer.ClusterID)
	}
	if q.cluster != "" && !slices.Contains(ids, q.cluster) {
		return q, fmt.Errorf("this Node knows no cluster %q; it knows %s", q.cluster,
			cmp.Or(strings.Join(ids, ", "), "no other"))
	}
	to := q.cluster
	if number, ok := strings.CutPrefix(query.Get("from"), "identity/"); ok {
		client, err := a.remoteEnd(number, q.cluster)
		if err != nil {
			return q, err
		}
		q.from, q.cluster, to = whyEnds{client}, "", "" // it is the client's cluster
	} else if q.from, err = a.end("from", query.Get("from"), ""); err != nil {
		return q, err
	}
	for i := range q.from {
		if q.from[i].facts != nil && a.tables.config.StretchedPolicies() {
			identity, _ := a.tables.policies.Identities.Get(q.from[i].pod)
			q.from[i].ClusterSet = cmp.Or(a.tables.policies.ClusterSetNumber(identity), policy.UnknownClusterSet)
		}
	}
	if q.from.service() != nil {
		return q, fmt.Errorf("from: %s is a Service, and connections come from its Pods: name one", query.Get("from"))
	}
	if q.to, err = a.end("to", query.Get("to"), to); err != nil {
		return q, err
	}
	if err := a.atService(&q); err != nil {
		return q, err
	}
	if q.cluster != "" && q.to.service() == nil && q.to[0].Cluster != q.cluster {
		return q, fmt.Errorf("to: %s is not of cluster %s: give an address in its ranges, or a Service that it exports",
			query.Get("to"), q.cluster)
	}
	if q.to.service() == nil && q.protocol == "" {
		q.protocol = corev1.ProtocolTCP
	}
	return q, nil
}

// atService makes the destination a Service if it is an address and port of one. Of a Node, the addresses of each
// version of IP are looked at.
func (a *whyReader) atService(q *whyQuestion) error {
	port, err := strconv.ParseUint(q.port, 10, 16)
	if kind := q.to[0].Kind; err != nil || q.to.service() != nil || kind != "" && kind != kindNode ||
		q.protocol == protocolICMP {
		return nil
	}
	protocol := cmp.Or(q.protocol, corev1.ProtocolTCP)
	var found whyEnds
	outside := false
	for _, version := range q.families {
		to, ok := q.to.of(version)
		if !ok {
			continue
		}
		at := netip.AddrPortFrom(to.ip, uint16(port))
		f, ok := a.addresses.frontendAt(protocol, at)
		if !ok {
			if err := a.atOtherNode(protocol, at); err != nil {
				return err
			}
			continue
		}
		key := derive.Object{Namespace: f.Namespace, Name: f.Service}
		if len(found) > 0 && *found.service() != key {
			return fmt.Errorf("to: %s is a port of Service %s, and %s of Service %s: give one of the addresses",
				netip.AddrPortFrom(found[0].ip, uint16(port)), found.service(), at, key)
		}
		found = append(found, whyEnd{WhyEnd: api.WhyEnd{Kind: "Service", Name: key.String(), Address: to.Address}, ip: to.ip,
			service: &key, front: &f})
		outside = outside || f.Kind != service.ClusterIP
	}
	if len(found) == 0 {
		return nil
	}
	q.to = found
	if outside && q.from[0].Kind == kindNode { // its packets do not come from the Pods' network
		node, _ := a.tables.nodes.Get(derive.Object{Name: q.from[0].Name})
		q.from, err = nodeEnds("from", q.from[0].Name, node.Internal)
	}
	return err
}

// atOtherNode returns an error if an address and port is the node port of a Service at another Node.
func (a *whyReader) atOtherNode(protocol corev1.Protocol, at netip.AddrPort) error {
	f, ok := a.addresses.nodePort(protocol, at)
	if !ok {
		return nil
	}
	for _, row := range a.tables.nodes.All() {
		if row.Key.Name != a.tables.nodeName && slices.Contains(row.Value.Addresses, at.Addr()) {
			return fmt.Errorf("to: %s is the node port of Service %s/%s at Node %s, which judges: ask that Node's agent", at,
				f.Namespace, f.Service, row.Key.Name)
		}
	}
	return nil
}

// protocolICMP stands for packets without ports: echo requests of ICMP, or of ICMPv6 over IPv6.
const protocolICMP corev1.Protocol = "ICMP"

// echoRequest is the type of the message that asks an address for an echo, of ICMP or ICMPv6.
func echoRequest(to netip.Addr) uint8 {
	if to.Is4() {
		return 8
	}
	return 128
}

// end resolves the text for an end of a connection.
func (a *whyReader) end(field, text, cluster string) (whyEnds, error) {
	const forms = "give a Pod or Service as namespace/name, a Node as node/name, or an address"
	if text == "" {
		return nil, fmt.Errorf("%s is missing: %s", field, forms)
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		return whyEnds{a.addresses.endAt(ip.Unmap().WithZone(""))}, nil
	}
	if r, err := netip.ParsePrefix(text); err == nil {
		if ip := r.Addr().Unmap(); ip != r.Addr() && r.Bits() >= 96 {
			r = netip.PrefixFrom(ip, r.Bits()-96)
		}
		ip := r.Masked().Addr()
		if next := ip.Next(); r.Contains(next) {
			ip = next
		}
		e := a.addresses.endAt(ip)
		if !r.IsSingleIP() {
			e.note = fmt.Sprintf("%s: judged for %s; rules about a part of %s may decide otherwise about other addresses", field,
				ip, r.Masked())
		}
		return whyEnds{e}, nil
	}
	words := strings.Split(text, "/")
	kind := ""
	if len(words) == 3 {
		kind, words = words[0], words[1:]
	}
	if len(words) != 2 || words[0] == "" || words[1] == "" || !slices.Contains([]string{"", "pod", "service"}, kind) {
		return nil, fmt.Errorf("%s: %q is neither: %s", field, text, forms)
	}
	object := derive.Object{Namespace: words[0], Name: words[1]}
	facts, isPod := a.tables.policies.Pods.Get(object)
	isPod = isPod && kind != "service" && cluster == ""
	service, isService := a.serviceCalled(object, cluster)
	isService = isService && kind != "pod"
	node, isNode := a.tables.nodes.Get(derive.Object{Name: object.Name})
	isNode = isNode && kind == "" && object.Namespace == "node" && cluster == ""
	switch {
	case isNode && (isPod || isService):
		return nil, fmt.Errorf("%s: there is a Node %s, and a Pod or Service %s: give the Node's address, pod/%s or "+
			"service/%s", field, object.Name, object, object, object)
	case isNode:
		addresses := node.Internal
		if remote, _ := a.tables.remotes.Get(derive.Name(object.Name)); field == "from" {
			routed := func(ip netip.Addr) bool { return remote.DirectTo(ip) }
			addresses = slices.DeleteFunc(slices.Clone(addresses), func(ip netip.Addr) bool { return !routed(ip) })
			addresses = append(addresses, slices.DeleteFunc(slices.Clone(a.addresses.gatewaysOf(object.Name)), routed)...)
		}
		return nodeEnds(field, object.Name, addresses)
	case isPod && isService:
		return nil, fmt.Errorf("%s: there is a Pod and a Service %s: give pod/%s or service/%s", field, object,
			object, object)
	case isService:
		return whyEnds{{WhyEnd: api.WhyEnd{Kind: "Service", Name: service.String()}, service: &service}}, nil
	case !isPod:
		return nil, fmt.Errorf("%s: no Pod with a network of its own and no Service is called %s; of a Pod with "+
			"hostNetwork, or one that has ended, give the address", field, object)
	}
	addresses := a.tables.policies.AddressesOf(object)
	if len(addresses) == 0 && len(facts.IPs) > 0 {
		return nil, fmt.Errorf("%s: the status of Pod %s has %v, which Node %s cannot have (podCIDRs), or which "+
			"another Pod has: "+
			"for policies the Pod has no address", field, object, facts.IPs, facts.Node)
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("%s: Pod %s has no address yet: wait until it runs", field, object)
	}
	var out whyEnds
	for _, ip := range addresses {
		out = append(out, whyEnd{WhyEnd: api.WhyEnd{Kind: "Pod", Name: object.String(), Address: ip.String(),
			Node: facts.Node}, ip: ip, pod: object, facts: &facts})
	}
	return out, nil
}

// kindNode is the kind of an end that is a Node's host.
const kindNode = "Node"

// nodeEnds returns a Node's host. Its packets to Pods come from the addresses that it has in the Pods' network, unless
// the hosts route them without a tunnel. Connections to it go to its own addresses.
func nodeEnds(field, name string, addresses []netip.Addr) (out whyEnds, err error) {
	for _, ip := range addresses {
		out = append(out, whyEnd{WhyEnd: api.WhyEnd{Kind: kindNode, Name: name, Address: ip.String(), Node: name}, ip: ip})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: Node %s has no address that counts: see its podCIDRs and its InternalIP, or give an "+
			"address", field, name)
	}
	return out, nil
}

// kindIdentity is the kind of a client in another cluster that is given by its number in the ClusterSet.
const kindIdentity = "Identity"

// remoteEnd is a client in another cluster, by the number of its labels in the ClusterSet.
func (a *whyReader) remoteEnd(number, cluster string) (e whyEnd, err error) {
	if !a.tables.config.StretchedPolicies() {
		return e, errors.New("from: policies do not span clusters here: set multicluster.enableStretchedNetworkPolicy")
	}
	p, _ := a.tables.peering.Get(self)
	i := slices.IndexFunc(p.Peers, func(peer peering.Peer) bool {
		return peer.ClusterID == cluster || cluster == "" &&
			len(p.Peers) == 1
	})
	switch {
	case i < 0 && cluster == "":
		return e, fmt.Errorf("cluster is missing: this Node knows %d other clusters: give the client's", len(p.Peers))
	case len(p.Peers[i].Gateways) == 0:
		return e, fmt.Errorf("cluster %s has no Gateway yet", p.Peers[i].ClusterID)
	}
	e.Kind, e.Cluster, e.ip = kindIdentity, p.Peers[i].ClusterID, p.Peers[i].Gateways[0].End()
	e.Address = e.ip.String()
	if number == unknownNumber {
		e.Name, e.ClusterSet = unknownNumber, policy.UnknownClusterSet
		return e, nil
	}
	n, err := strconv.ParseUint(number, 10, 32)
	labels, ok := a.tables.policies.ClusterSetIdentity(uint32(n))
	if err != nil || !ok {
		return e, fmt.Errorf("from: identity/%s is no number of a set of labels in the ClusterSet: see `kubectl get "+
			"labelidentities`, or give identity/%s", number, unknownNumber)
	}
	e.Name, e.ClusterSet = string(labels), uint32(n)
	return e, nil
}

// serviceCalled finds a Service. Of another cluster's it is the imported one.
func (a *whyReader) serviceCalled(object derive.Object, cluster string) (derive.Object, bool) {
	if cluster != "" && !strings.HasPrefix(object.Name, importedPrefix) {
		imported := derive.Object{Namespace: object.Namespace, Name: importedPrefix + object.Name}
		if _, ok := a.tables.services.Services.Get(imported); ok {
			return imported, true
		}
	}
	_, ok := a.tables.services.Services.Get(object)
	return object, ok
}

// importedPrefix begins the names of Services that stand for Services of the ClusterSet.
const importedPrefix = "antrea-mc-"

// endAt returns the owner of an address.
func (a *whyAddresses) endAt(ip netip.Addr) whyEnd {
	e := whyEnd{WhyEnd: api.WhyEnd{Address: ip.String()}, ip: ip}
	who, occupied := a.tables.policies.OccupantAt(ip)
	switch claims := a.tables.policies.Claims(ip); {
	case occupied && who.Known:
		f, _ := a.tables.policies.Pods.Get(who.Pod)
		e.Kind, e.Name, e.Node, e.pod, e.facts = "Pod", who.Pod.String(), f.Node, who.Pod, &f
		return e
	case occupied:
		e.Kind, e.Name, e.Node, e.foreign = "Pod", who.Pod.String(), a.tables.nodeName, true
		e.note = fmt.Sprintf("%s is of interface %s here, whose Pod %s the API server does not have on this Node with its "+
			"UID: "+
			"it was deleted by force, or is not scheduled yet", ip, who.Port, who.Pod)
		return e
	case len(claims) > 0:
		e.note = fmt.Sprintf("the status of %v has %s, which the Pod's Node cannot have (podCIDRs): "+
			"for policies it is none of these Pods", claims, ip)
		return e
	case a.tables.policies.IsUnknownPod(ip):
		e.Node = a.tables.policies.NodeAt(ip)
		e.note = fmt.Sprintf("%s is that of an unknown Pod: it is in a podCIDR of Node %s, and no Pod with it is known. "+
			"Rules that deny Pods by their labels deny it, and no rule allows it by labels", ip, e.Node)
		return e
	}
	p, _ := a.tables.peering.Get(self)
	for _, peer := range p.Peers {
		isGateway := slices.ContainsFunc(peer.Gateways, func(w peering.Way) bool { return w.End() == ip })
		if isGateway || slices.ContainsFunc(peer.CIDRs, func(r netip.Prefix) bool { return r.Contains(ip) }) {
			e.Cluster = peer.ClusterID
			return e
		}
	}
	for _, c := range p.Part.Closed {
		if slices.ContainsFunc(c.CIDRs, func(r netip.Prefix) bool { return r.Contains(ip) }) {
			e.note = fmt.Sprintf("packets to %s are dropped in table Route: it is of cluster %s, which is reached encrypted "+
				"or not at all, and there is no way to it: see `tombolo get status`", ip, c.ClusterID)
		}
	}
	return e
}

// portOf is the destination's port, by number or the name that the Pod gives it.
func portOf(q whyQuestion, to whyEnd) (uint16, error) {
	if q.protocol == protocolICMP {
		if q.port != "" {
			return 0, fmt.Errorf("port %s: ICMP has no ports", q.port)
		}
		return 0, nil
	}
	if n, err := strconv.ParseUint(q.port, 10, 16); err == nil && n > 0 {
		return uint16(n), nil
	}
	if to.facts != nil {
		for _, p := range to.facts.Ports {
			if p.Name == q.port && p.Protocol == q.protocol {
				return p.Port, nil
			}
		}
	}
	if q.port == "" {
		return 0, errors.New("port is missing: give the destination's, 1 to 65535")
	}
	return 0, fmt.Errorf("port %q is neither a number from 1 to 65535 nor the name of a %s port of the destination",
		q.port, q.protocol)
}

// frontendOf returns the port of a Service that is asked about, at its ClusterIP of a version of IP. It returns false
// if the Service has no such ClusterIP.
func (a *whyReader) frontendOf(q whyQuestion, of family.Families) (service.Frontend, bool, error) {
	if q.to[0].front != nil {
		end, ok := q.to.of(of)
		if !ok {
			return service.Frontend{}, false, nil
		}
		return *end.front, true, nil
	}
	all, _ := a.tables.services.Frontends.Get(*q.to.service())
	all = slices.DeleteFunc(slices.Clone(all), func(f service.Frontend) bool { return f.Kind != service.ClusterIP })
	if len(all) == 0 {
		return service.Frontend{}, false, fmt.Errorf("to: Service %s is not served here (it is headless, of type "+
			"ExternalName, or `tombolo get status` says why): ask for one of its Pods", q.to.service())
	}
	all = slices.DeleteFunc(all, func(f service.Frontend) bool { return !of.Serve(f.VIP.Addr()) })
	var found []service.Frontend
	var names []string
	for _, f := range all {
		text := fmt.Sprintf("%d/%s", f.VIP.Port(), f.Protocol)
		if f.Port != "" {
			text += " (" + f.Port + ")"
		}
		names = append(names, text)
		if (q.protocol == "" || f.Protocol == q.protocol) &&
			(q.port == "" || f.Port == q.port || strconv.Itoa(int(f.VIP.Port())) == q.port) {
			found = append(found, f)
		}
	}
	switch {
	case len(all) == 0:
		return service.Frontend{}, false, nil
	case len(found) == 1:
		return found[0], true, nil
	case len(found) == 0:
		return service.Frontend{}, false, fmt.Errorf("port %s: Service %s has no such port; it has %s",
			cmp.Or(q.port, "of "+string(q.protocol)), q.to.service(), strings.Join(names, ", "))
	}
	return service.Frontend{}, false, fmt.Errorf("port: Service %s has several that are meant: choose one of %s with "+
		"port and protocol", q.to.service(), strings.Join(names, ", "))
}

// traceOf is a packet to be traced, and the stages that it proves.
type traceOf struct {
	flow   string
	stages []*api.WhyStage
	failed string
}

// tracesOf returns the packets that prove the decisions of this Node.
func (a *whyAnswers) tracesOf(w whyAnswer) []traceOf {
	var out []traceOf
	for i := range w.Connections {
		c, from := &w.Connections[i], w.clients[i]
		t := traceOf{}
		for j := range c.Stages {
			switch s := &c.Stages[j]; {
			case s.Here && s.Direction == serviceDirection:
				asking := traceOf{stages: []*api.WhyStage{s}}
				var err error
				if asking.flow, err = a.texts.askingPacket(from, *c); err != nil {
					asking.failed = err.Error()
				}
				out = append(out, asking)
			case s.Here:
				t.stages = append(t.stages, s)
			}
		}
		if len(t.stages) == 0 {
			continue
		}
		var err error
		if t.flow, err = a.texts.packetOf(from, *c); err != nil {
			t.failed = err.Error()
		}
		out = append(out, t)
	}
	return out
}

// packetOf is the first packet of a connection as it comes into this Node's switch.
func (a *whyPackets) packetOf(from api.WhyEnd, c api.WhyConnection) (string, error) {
	n, ok := a.tables.node.Get(self)
	if !ok {
		return "", errors.New("this Node's network is not known yet")
	}
	source, mac := "", virtualMAC
	switch {
	case from.Node == a.tables.nodeName && from.Kind != kindNode:
		for _, row := range a.tables.pods.rows.All() {
			if row.Value.Namespace+"/"+row.Value.Name == from.Name {
				source = fmt.Sprintf("in_port=%d,dl_src=%s", row.Value.Port, row.Value.MAC)
			}
		}
		if source == "" {
			return "", fmt.Errorf("there is no port of Pod %s in the switch yet", from.Name)
		}
	case from.Node != "" && from.Node != a.tables.nodeName:
		remote, ok := a.tables.remotes.Get(derive.Name(from.Node))
		if to, _ := netip.ParseAddr(c.To.Address); ok && remote.DirectTo(to) { // the host forwards it
			source = fmt.Sprintf("in_port=%d,dl_src=%s", n.GatewayPort, n.GatewayMAC)
			break
		}
		if !ok || len(n.Tunnels.Ends) == 0 {
			return "", fmt.Errorf("there is no tunnel from Node %s", from.Node)
		}
		source = fmt.Sprintf("in_port=%d,dl_src=%s,%s,tun_id=0", n.Tunnels.Port, n.GatewayMAC,
			tunnelHeaders(remote.Address, n.Tunnels.Ends[0]))
	case from.Cluster != "":
		p, _ := a.tables.peering.Get(self)
		i := slices.IndexFunc(p.Peers, func(peer peering.Peer) bool { return peer.ClusterID == from.Cluster })
		if i < 0 || len(n.Tunnels.Ends) == 0 {
			return "", fmt.Errorf("there is no tunnel from cluster %s", from.Cluster)
		}
		near, far := n.Tunnels.Ends[0], p.Part.Gateway.InternalIP // from this cluster's Gateway
		if p.Part.Role == peering.Gateway {
			mac, far = datapath.CrossClusterMAC.String(), p.Peers[i].TunnelSources()[0].Addr()
			if p.Peers[i].Encrypted() || n.Tunnels.Encrypted { // not where the tunnels of Nodes end
				near = p.Part.End
			}
			if base := p.Peers[i].Base; base.IsValid() {
				near = base
			}
		}
		source = fmt.Sprintf("in_port=%d,dl_src=%s,%s,tun_id=%d", n.Tunnels.Port, n.GatewayMAC, tunnelHeaders(far, near),
			from.ClusterSet)
	default:
		source = fmt.Sprintf("in_port=%d,dl_src=%s", n.GatewayPort, n.GatewayMAC)
		for _, row := range a.tables.pods.rows.All() {
			if slices.ContainsFunc(row.Value.IPs, func(ip netip.Addr) bool { return ip.String() == c.To.Address }) {
				mac = row.Value.MAC.String() // the host has asked for it
			}
		}
	}
	if a.tables.tenants == nil {
		packet, err := headersOf(from, c)
		return fmt.Sprintf("%s,dl_dst=%s,%s", source, mac, packet), err
	}
	mac, packet, err := a.inNetwork(from, c, mac)
	return fmt.Sprintf("%s,dl_dst=%s,%s", source, mac, packet), err
}

// protocolNumbers are the numbers of the protocols that Services have.
var protocolNumbers = map[string]uint8{"TCP": 6, "UDP": 17, "SCTP": 132}

// tunnelHeaders returns the outer addresses of a tunnel's packet, in the text of ofproto/trace.
func tunnelHeaders(from, to netip.Addr) string {
	field := "tun"
	if from.Is6() {
		field = "tun_ipv6"
	}
	return fmt.Sprintf("%s_src=%s,%s_dst=%s", field, from, field, to)
}

// askingPacket is the first packet of a connection to an address of a Service, as it comes into this Node's switch.
// Packets of clients other than Pods come by the host, which has translated an external address or a node port.
func (a *whyPackets) askingPacket(from api.WhyEnd, c api.WhyConnection) (string, error) {
	asked, err := netip.ParseAddrPort(c.Asked)
	if err != nil {
		return "", err
	}
	c.Asked, c.To, c.Port = "", api.WhyEnd{Address: asked.Addr().String()}, asked.Port()
	protocol := corev1.Protocol(c.Protocol)
	f, ok := a.addresses.frontendAt(protocol, asked)
	if from.Kind == "Pod" || ok && f.Kind == service.ClusterIP { // the host translates no ClusterIP
		return a.packetOf(from, c)
	}
	entry, err := a.entryOf(from, protocol, asked)
	if err != nil {
		return "", err
	}
	c.To.Address, c.Port = entry.Addr().String(), entry.Port()
	key := derive.Object{Namespace: f.Namespace, Name: f.Service}
	if ok && a.tables.tenants != nil && a.networks.servicePlace(key).Isolated() {
		c.Asked = entry.String() // connection tracking has it
	}
	n, _ := a.tables.node.Get(self)
	packet, err := headersOf(from, c)
	return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,%s", n.GatewayPort, n.GatewayMAC, virtualMAC, packet), err
}

// entryOf returns the address and port to which the host translates an address of a Service for clients outside.
func (a *whyPackets) entryOf(from api.WhyEnd, protocol corev1.Protocol, asked netip.AddrPort) (netip.AddrPort, error) {
	client, err := netip.ParseAddr(from.Address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	own := a.addresses.nodeOf(whyEnd{WhyEnd: from, ip: client}) == a.tables.nodeName
	want, port := datapath.Entry{Own: own}, asked.Port()
	if f, ok := a.addresses.frontendAt(protocol, asked); ok && f.Kind != service.NodePort {
		number, ok := a.tables.flows.Services.Entries.Get(datapath.EntryID{Protocol: protocol, VIP: asked})
		if !ok {
			return netip.AddrPort{}, fmt.Errorf("the switch has no number of %s yet", asked)
		}
		want.External, port = true, uint16(number)
	}
	for _, e := range datapath.Entries {
		if e.External == want.External && e.Own == want.Own && e.Addr.Is4() == asked.Addr().Is4() {
			return netip.AddrPortFrom(e.Addr, port), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("%s is not served to clients outside", asked)
}

// headersOf returns the headers of a connection's first packet, in the text of ofproto/trace.
func headersOf(from api.WhyEnd, c api.WhyConnection) (string, error) {
	to, err := netip.ParseAddr(c.To.Address)
	if err != nil {
		return "", fmt.Errorf("the destination has no address: %w", err)
	}
	protocol := strings.ToLower(c.Protocol)
	name, address, icmp := protocol, "nw", "icmp"
	if !to.Is4() {
		name, address, icmp = protocol+"6", "ipv6", "icmpv6"
	}
	text := fmt.Sprintf("%s,%s_src=%s,%s_dst=%s,nw_ttl=64", name, address, from.Address, address, to)
	switch {
	case c.Protocol == string(protocolICMP):
		text += fmt.Sprintf(",%s_type=%d,%s_code=0", icmp, echoRequest(to), icmp)
	case c.Port != 0:
		text += fmt.Sprintf(",%s_src=49152,%s_dst=%d", protocol, protocol, c.Port)
	}
	// Connection tracking remembers the Service, and gives it to rules about Services.
	if asked, err := netip.ParseAddrPort(c.Asked); err == nil {
		text += fmt.Sprintf(",ct_state=trk|new,ct_%s_src=%s,ct_%s_dst=%s,ct_nw_proto=%d,ct_tp_src=49152,ct_tp_dst=%d",
			address, from.Address, address, asked.Addr(), protocolNumbers[c.Protocol], asked.Port())
	}
	return text, nil
}

// traceStages asks the switch, and compares.
func (a *whyAnswers) traceStages(ctx context.Context, t traceOf) {
	output, failed := "", t.failed
	if failed == "" {
		// A packet goes through connection tracking several times, and each time its connection is new.
		var options []string
		for range 4 {
			options = append(options, "--ct-next", "trk,new")
		}
		var err error
		if output, err = a.tracer.Trace(ctx, a.tables.config.OVSBridge, t.flow, options...); err != nil {
			failed = err.Error()
		}
	}
	met := tablesMet(output)
	last := datapath.Classify // in the order of packets; the tables after Output are parts of others
	for _, table := range met {
		if table <= datapath.Output {
			last = max(last, table)
		}
	}
	if failed == "" && len(met) == 0 {
		failed = fmt.Sprintf("ofproto/trace answers without a table: %q", output)
	}
	for _, s := range t.stages {
		s.Trace = &api.WhyTrace{Flow: t.flow, Error: failed}
		if failed != "" {
			continue
		}
		for _, table := range met {
			s.Trace.Tables = append(s.Trace.Tables, datapath.Program.Name(table))
		}
		first, after := datapath.Egress, datapath.Route
		switch s.Direction {
		case policy.Ingress.String():
			first, after = datapath.Ingress, datapath.Commit
		case serviceDirection:
			first, after = datapath.External, datapath.Service
		case api.DirectionNetwork:
			first, after = datapath.Route, datapath.Ingress
			if strings.Contains(t.flow, toTenants) { // a Node without isolated Pods lets none in
				first = datapath.Classify
			}
		}
		// A packet only goes to later tables. One that need not be judged skips these.
		s.Trace.Judged, s.Trace.Allowed = last >= first, last >= after
		s.Trace.Agrees = s.Trace.Judged && s.Trace.Allowed == s.Allowed
		if !s.Trace.Judged {
			s.Trace.Error = "the packet does not come to this decision: it ends before, in table " +
				s.Trace.Tables[len(s.Trace.Tables)-1]
		}
	}
}

// traceStep is a line of ofproto/trace's account about a flow that was met.
var traceStep = regexp.MustCompile(`(?m)^ *(\d+)\. .*(?:priority \d+|No match)`)

// tablesMet are the tables that a traced packet met, in order.
func tablesMet(output string) []ofp.Table {
	var out []ofp.Table
	for _, m := range traceStep.FindAllStringSubmatch(output, -1) {
		if n, err := strconv.ParseUint(m[1], 10, 8); err == nil {
			out = append(out, ofp.Table(n))
		}
	}
	return out
}
