package agent

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// maxConnections is how many endpoints of a Service are judged, of each version of IP.
const maxConnections = 16

// whyEnd is an end of a connection that is asked about.
type whyEnd struct {
	api.WhyEnd
	ip       netip.Addr
	pod      derive.Object    // zero for an end that is no Pod
	facts    *policy.PodFacts // of the Pod
	network  derive.Object    // the VirtualNetwork of an interface, or zero
	first    bool             // the first interface of the Pod is in the VirtualNetwork
	service  *derive.Object
	front    *service.Frontend // of the Service, if the end is one of its addresses, with a port
	note     string
	given    bool // by the address alone
	separate bool // the address was looked up in the separate network of the other end
	foreign  bool // an interface of this Node of which only the Pod's name is known
}

// whyEnds are the addresses of one end of a connection, one for each version of IP. A Service is one end without an
// address.
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

// whyDestination is an end that a connection may come to.
type whyDestination struct {
	end      whyEnd
	protocol corev1.Protocol
	port     uint16
	asked    netip.AddrPort // of the Service
	judged   []api.WhyStage // by policies of the Service
	// client is the client as the Node judge sees it. judge is the Node that chooses the endpoint. outside is set if the
	// client comes to judge from another machine. judge is empty unless the destination is a Service at an address for
	// clients outside.
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

// destinations returns the ends where a connection over a version of IP may arrive, and the address to which the client
// opens it. That is the zero address if the destination has no address of the version.
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
		decision := a.networks.networkOf(from, q, d)
		if decision.Allowed { // elsewhere an address of a VirtualNetwork is another machine's
			c.Networks = [2]derive.Object{policy.Ingress: d.end.network, policy.Egress: from.network}
		}
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
		if decision.Reason != "" {
			w.Stages = append(w.Stages, a.networks.networkStage(decision))
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
