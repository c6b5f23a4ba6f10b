// Package service turns Services and EndpointSlices into the input of a load balancer: one Frontend for each virtual
// address and port, with its endpoints and their weights. It is pure: it has no client and no clock. Its functions are
// functions of derived tables, one Service at a time.
package service

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Endpoint is one address to which connections to a Frontend go. Its share of them is Weight divided by the sum of all
// weights.
type Endpoint struct {
	Addr   netip.AddrPort
	Weight uint16
}

// Kind is the field of a Service that a Frontend's address comes from. If two Services have one address, the lower kind
// wins. Every author of a Service may write an external address, which must not take over another Service's ClusterIP.
type Kind uint8

// The kinds of Frontends.
const (
	ClusterIP    Kind = iota
	NodePort          // at all addresses of the Node that serve node ports; the VIP has the unspecified address
	LoadBalancer      // at an address of status.loadBalancer
	ExternalIP        // at an address of spec.externalIPs
)

func (k Kind) String() string {
	return [...]string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalIP"}[k]
}

// Clients are the clients that a Frontend is for.
type Clients uint8

// The clients of Frontends.
const (
	AllClients   Clients = iota
	OwnClients           // Pods and processes of this Node
	OtherClients         // clients elsewhere
)

func (c Clients) String() string {
	return [...]string{"all clients", "own clients", "other clients"}[c]
}

// Scope is the Nodes that the endpoints of a set may be on.
type Scope uint8

// The scopes of sets.
const (
	Cluster Scope = iota // every Node
	Local                // this Node alone
)

// Set identifies a list of endpoints that several addresses of a Service's port share. Its endpoints are of one family
// and scope. All Frontends of a Set have the same Affinity, Endpoints and Elsewhere.
type Set struct {
	Namespace, Service, Port string
	Protocol                 corev1.Protocol
	IPv6                     bool
	Scope                    Scope
}

// Compare makes a set the key of a table.
func (s Set) Compare(o Set) int {
	family := func(s Set) int {
		if s.IPv6 {
			return 6
		}
		return 4
	}
	return cmp.Or(cmp.Compare(s.Namespace, o.Namespace), cmp.Compare(s.Service, o.Service), cmp.Compare(s.Port, o.Port),
		cmp.Compare(s.Protocol, o.Protocol), cmp.Compare(family(s), family(o)), cmp.Compare(s.Scope, o.Scope))
}

// String returns "default/web/http/TCP", with "/IPv6" and "/local" where that is so.
func (s Set) String() string {
	out := fmt.Sprintf("%s/%s/%s/%s", s.Namespace, s.Service, s.Port, s.Protocol)
	if s.IPv6 {
		out += "/IPv6"
	}
	if s.Scope == Local {
		out += "/local"
	}
	return out
}

// Frontend is one virtual address and port of a Service. If it has no Endpoints, connections are refused, or dropped if
// Elsewhere is set.
type Frontend struct {
	Namespace string
	Service   string
	Port      string // the port's name, empty if the only port has no name
	Protocol  corev1.Protocol
	VIP       netip.AddrPort
	Kind      Kind
	Clients   Clients
	Scope     Scope // of the Endpoints
	// Sources are the ranges of the clients that may use a load balancer's address, from the Service's
	// loadBalancerSourceRanges. Limited is set if there are such ranges. Otherwise all clients may use it.
	Sources []netip.Prefix
	Limited bool
	// Affinity sends all connections of a client address to one endpoint, as long as the endpoint exists, until no new
	// connection has come for this time. 0 turns it off.
	Affinity  time.Duration
	Endpoints []Endpoint // ordered by address
	// Elsewhere is set if the scope Local excludes all existing endpoints.
	Elsewhere bool

	hidden int // number of endpoints that hints leave out, until nesting is decided
}

// Set returns the set of the frontend's endpoints.
func (f Frontend) Set() Set {
	return Set{f.Namespace, f.Service, f.Port, f.Protocol, f.VIP.Addr().Is6(), f.Scope}
}

// String names the frontend for people: default/web:http 10.96.0.10:80/TCP.
func (f Frontend) String() string {
	name := f.Namespace + "/" + f.Service
	if f.Port != "" {
		name += ":" + f.Port
	}
	return fmt.Sprintf("%s %s/%s", name, f.VIP, f.Protocol)
}

func (f Frontend) address() address { return addressOf(f.Protocol, f.VIP) }

func (f Frontend) compare(o Frontend) int {
	return cmp.Or(cmp.Compare(f.Protocol, o.Protocol), f.VIP.Compare(o.VIP),
		cmp.Compare(f.Kind, o.Kind), cmp.Compare(f.Clients, o.Clients))
}

// sameClients reports whether two frontends are for the same packets.
func (f Frontend) sameClients(o Frontend) bool {
	return f.address() == o.address() && f.Clients == o.Clients
}

// Find returns the frontend that serves an address. If there is one for each kind of client, it returns the first. Any
// goroutine may call it. It searches all Services, so it is only for questions of users.
func (t *Tables) Find(protocol corev1.Protocol, vip netip.AddrPort) (Frontend, bool) {
	a := addressOf(protocol, vip)
	for _, row := range t.Frontends.All() {
		if i := slices.IndexFunc(row.Value, func(f Frontend) bool { return f.address() == a }); i >= 0 {
			return row.Value[i], true
		}
	}
	return Frontend{}, false
}

// Serving is like Find, but uses an index, so its time does not depend on the number of Services. Call it between two
// passes.
func (t *Tables) Serving(protocol corev1.Protocol, vip netip.AddrPort) (Frontend, bool) {
	a := addressOf(protocol, vip)
	for _, key := range t.claims.Keys(a) {
		list, _ := t.Frontends.Get(key)
		if i := slices.IndexFunc(list, func(f Frontend) bool { return f.address() == a }); i >= 0 {
			return list[i], true
		}
	}
	return Frontend{}, false
}

// address is the destination of a packet. Two frontends of one kind of client cannot have the same one. Tables and
// indexes have tens of thousands of addresses as keys. So it has no pointers, and less than half of the size of a
// protocol's name and a netip.AddrPort.
type address struct {
	protocol uint8 // its place in protocols
	version  uint8 // 4 or 6
	ip       [16]byte
	port     uint16
}

// protocols are the protocols of addresses, in the order of their names.
var protocols = [...]corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}

func addressOf(protocol corev1.Protocol, vip netip.AddrPort) address {
	version := uint8(4)
	if vip.Addr().Is6() {
		version = 6
	}
	return address{uint8(slices.Index(protocols[:], protocol)), version, vip.Addr().As16(), vip.Port()}
}

// Compare orders addresses, so that they can be keys of a table: by the protocol's name, then as netip.AddrPort does.
func (a address) Compare(b address) int {
	return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.version, b.version), bytes.Compare(a.ip[:], b.ip[:]),
		cmp.Compare(a.port, b.port))
}

// addrPort returns the address without the protocol.
func (a address) addrPort() netip.AddrPort {
	ip := netip.AddrFrom16(a.ip)
	if a.version == 4 {
		ip = ip.Unmap()
	}
	return netip.AddrPortFrom(ip, a.port)
}

// String returns "10.96.0.10:80/TCP".
func (a address) String() string { return fmt.Sprintf("%s/%s", a.addrPort(), protocols[a.protocol]) }

// block is a part of the address space. Virtual addresses are in few blocks. Only an endpoint in one of these blocks
// can be a virtual address, so most of the many endpoints need no further check.
type block struct{ netip.Addr }

// Compare makes a block the key of a table.
func (b block) Compare(o block) int { return b.Addr.Compare(o.Addr) }

// blockOf returns the block of an address: a /16 of IPv4, a /104 of IPv6.
func blockOf(ip netip.Addr) block {
	bits := 16
	if ip.Is6() {
		bits = 104
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return block{}
	}
	return block{p.Addr()}
}

// Tables are the load balancing of a Node, from Services and EndpointSlices to Frontends.
type Tables struct {
	// Services and Slices are to be filled, each object under its own key.
	Services *derive.Source[derive.Object, Facts]
	Slices   *derive.Source[derive.Object, SliceFacts]
	// ByService finds the EndpointSlices of a Service.
	ByService *derive.Index[derive.Object, derive.Object, SliceFacts]
	// Frontends are the frontends of each Service, ordered by protocol and address. A part that cannot be served becomes a
	// Problem, and does not stop other parts. Headless and ExternalName Services have no address to serve and are left
	// out. Features that no Node serves are left out without a Problem, since package unserved reports them once for the
	// cluster. So are addresses of a version of IP that this Node does not serve; its agent reports their ranges.
	Frontends *derive.Table[derive.Object, []Frontend]
	// Health are the answers to load balancers, of Services that have a port for them.
	Health *derive.Table[derive.Object, Health]

	// Families reads the versions of IP that this Node serves, from an earlier table. Without it the Node serves only
	// IPv4. Set it before the first pass.
	Families func(*derive.Reader) family.Families
	// Outside selects the Services that are also served for clients outside of the Pods' network. Set it before the first
	// pass.
	Outside bool
	// NoLoadBalancers leaves addresses of load balancers out of that.
	NoLoadBalancers bool

	node   string
	zone   func(*derive.Reader) string
	sctp   bool
	direct *derive.Table[derive.Object, []Frontend] // before conflicts and nesting are decided
	claims *derive.Index[address, derive.Object, []Frontend]
	blocks *derive.Table[block, bool] // that have a ClusterIP
}

// NewTables adds the tables to an engine. node is the name of this Node, for internalTrafficPolicy Local. zone reads
// the Node's zone (ZoneOf) from an earlier table, for hints of EndpointSlices. sctp is set if the datapath's connection
// tracker supports SCTP. The kernel's does. Open vSwitch 3.1's own does not.
func NewTables(e *derive.Engine, node string, zone func(*derive.Reader) string, sctp bool) *Tables {
	t := &Tables{node: node, zone: zone, sctp: sctp}
	t.Services = derive.NewSource[derive.Object, Facts](e, "services")
	t.Slices = derive.NewSource[derive.Object, SliceFacts](e, "endpointslices")
	t.ByService = ByService(t.Slices)
	t.direct = derive.NewTable(e, "service-endpoints", t.endpoints, derive.KeysOf(t.Services)).EqualBy(sameFrontends)
	t.claims = derive.NewIndex(t.direct, "address", func(_ derive.Object, list []Frontend) []address {
		out := make([]address, len(list))
		for i, f := range list {
			out[i] = f.address()
		}
		return out
	})
	t.blocks = derive.NewTable(e, "service-blocks",
		func(block, *derive.Reader) (bool, []problem.Problem) { return true, nil },
		derive.KeysOfIndex(derive.NewIndex(t.direct, "block", func(_ derive.Object, list []Frontend) []block {
			var out []block
			for _, f := range list {
				if b := blockOf(f.VIP.Addr()); f.Kind == ClusterIP && !slices.Contains(out, b) {
					out = append(out, b)
				}
			}
			return out
		})))
	t.Frontends = derive.NewTable(e, "frontends", t.frontends, derive.KeysOf(t.direct)).EqualBy(sameFrontends)
	t.healthTable(e)
	return t
}

// ByService is the index of EndpointSlices by the Service that they belong to.
func ByService(
	slices derive.Readable[derive.Object, SliceFacts]) *derive.Index[derive.Object, derive.Object, SliceFacts] {
	return derive.NewIndex(slices, "service", func(_ derive.Object, f SliceFacts) []derive.Object {
		return []derive.Object{f.Service}
	})
}

func sameFrontends(a, b []Frontend) bool {
	return slices.EqualFunc(a, b, func(x, y Frontend) bool {
		return x.Set() == y.Set() && x.VIP == y.VIP && x.Kind == y.Kind && x.Clients == y.Clients &&
			x.Limited == y.Limited && slices.Equal(x.Sources, y.Sources) && x.Affinity == y.Affinity &&
			x.hidden == y.hidden && x.Elsewhere == y.Elsewhere && slices.Equal(x.Endpoints, y.Endpoints)
	})
}

// endpoints returns the frontends of one Service with the endpoints that its slices name.
func (t *Tables) endpoints(key derive.Object, r *derive.Reader) ([]Frontend, []problem.Problem) {
	facts, _ := derive.Get(r, t.Services, key)
	problems := slices.Clone(facts.Problems)
	if len(facts.VIPs) == 0 {
		return nil, problems
	}
	zone := func() string { return t.zone(r) } // where hints name zones: no other Service depends on it
	candidates := candidates{facts, t.node, zone, derive.List(r, t.ByService, key)}
	outside := t.Outside && !facts.Imported
	var families family.Families
	if t.Families != nil {
		families = t.Families(r)
	}
	for _, slice := range candidates.slices {
		problems = append(problems, slice.Value.Problems...)
	}
	var out []Frontend
	for _, port := range facts.Ports {
		if port.Protocol == corev1.ProtocolSCTP && !t.sctp {
			problems = append(problems, problem.Problem{
				Object: object(key), Field: port.Field, Reason: ReasonSCTP,
				Message: fmt.Sprintf("port %d/SCTP is not served: the userspace datapath's connection "+
					"tracker does not know SCTP; set ovsDatapathType to system in antrea-agent.conf, or use TCP or UDP", port.Port),
			})
			continue
		}
		for _, vip := range facts.VIPs {
			if !families.Serve(vip) {
				continue
			}
			sets := [2]*Frontend{} // by scope: a set is chosen once
			for _, f := range facts.frontends(port, vip, outside) {
				if f.Kind == LoadBalancer && t.NoLoadBalancers {
					continue
				}
				f.Namespace, f.Service = key.Namespace, key.Name
				if set := sets[f.Scope]; set != nil {
					f.Endpoints, f.Elsewhere, f.hidden = set.Endpoints, set.Elsewhere, set.hidden
				} else {
					f.Endpoints, f.hidden = candidates.choose(port, vip, f.Scope)
					f.Elsewhere = f.Scope == Local && !facts.Imported && len(f.Endpoints) == 0 && candidates.anywhere(port, vip)
					sets[f.Scope] = &f
				}
				out = append(out, f)
			}
		}
	}
	slices.SortStableFunc(out, Frontend.compare)
	return out, problems
}

// onThisNode returns the endpoints of an imported Service that are on this Node: this cluster's endpoints whose Pods
// are on it. Other clusters list this cluster's endpoints as the address of its own Service, whose policy may differ,
// or as the addresses of its Pods.
func (t *Tables) onThisNode(key derive.Object, f Frontend, r *derive.Reader) []Endpoint {
	local := map[netip.Addr]bool{}
	own := derive.Object{Namespace: key.Namespace, Name: strings.TrimPrefix(key.Name, multicluster.ImportedPrefix)}
	for _, slice := range derive.List(r, t.ByService, own) {
		for _, e := range slice.Value.Endpoints {
			if e.Node == t.node {
				local[e.Addr] = true
			}
		}
	}
	var out []Endpoint
	for _, e := range f.Endpoints {
		holder, isService := t.holder(addressOf(f.Protocol, e.Addr), r)
		switch {
		case isService:
			out = append(out, t.podsHere(holder, f.Protocol, e.Addr, r)...)
		case local[e.Addr.Addr()]:
			out = append(out, Endpoint{Addr: e.Addr, Weight: 1})
		}
	}
	slices.SortFunc(out, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	return slices.Compact(out)
}

// podsHere are the endpoints on this Node of the Service that has an address.
func (t *Tables) podsHere(key derive.Object, protocol corev1.Protocol, vip netip.AddrPort,
	r *derive.Reader) []Endpoint {
	facts, _ := derive.Get(r, t.Services, key)
	facts.Imported = false
	i := slices.IndexFunc(facts.Ports, func(p Port) bool { return p.Protocol == protocol && p.Port == vip.Port() })
	if i < 0 {
		return nil
	}
	out, _ := candidates{service: facts, node: t.node, slices: derive.List(r, t.ByService, key)}.choose(facts.Ports[i],
		vip.Addr(), Local)
	return out
}

func object(key derive.Object) problem.Object {
	return problem.Object{Kind: "Service", Namespace: key.Namespace, Name: key.Name}
}

// holder decides which Service has an address. It is the first by Namespace and name, among the Services with the
// lowest kind of frontend at the address. It returns false if no Service has the address. The decisions are not kept in
// a table: it would have tens of thousands of rows, and few rows read a decision.
func (t *Tables) holder(a address, r *derive.Reader) (out derive.Object, ok bool) {
	lowest := ExternalIP + 1
	for _, row := range derive.List(r, t.claims, a) {
		for _, f := range row.Value {
			if f.address() == a && f.Kind < lowest {
				lowest, out = f.Kind, row.Key
			}
		}
	}
	return out, lowest <= ExternalIP
}

// field is the path of what gives a frontend its address.
func (t *Tables) field(key derive.Object, f Frontend, r *derive.Reader) string {
	facts, _ := derive.Get(r, t.Services, key)
	switch f.Kind {
	case LoadBalancer:
		return "status.loadBalancer"
	case ExternalIP:
		return "spec.externalIPs"
	}
	for _, p := range facts.Ports {
		switch {
		case p.Name != f.Port || p.Protocol != f.Protocol:
		case f.Kind == NodePort && p.NodePort == f.VIP.Port():
			return p.Field + ".nodePort"
		case f.Kind == ClusterIP && p.Port == f.VIP.Port():
			return p.Field
		}
	}
	return "spec.ports"
}

// remedies are for one of two Services with one address, by kind.
var remedies = [...]string{
	ClusterIP:    "another ClusterIP or port",
	NodePort:     "another node port",
	LoadBalancer: "another load balancer's address or port",
	ExternalIP:   "another external address or port",
}

// frontends returns the frontends of one Service. It leaves out frontends whose address another Service has, and
// replaces Services among the endpoints by their endpoints.
func (t *Tables) frontends(key derive.Object, r *derive.Reader) ([]Frontend, []problem.Problem) {
	direct, _ := derive.Get(r, t.direct, key)
	facts, _ := derive.Get(r, t.Services, key)
	var out []Frontend
	var problems []problem.Problem
	sets := map[Set]Frontend{} // as they were resolved
	lead := 0                  // the frontend of the lowest kind at the same address
	for i, f := range direct {
		holder, _ := t.holder(f.address(), r)
		twice := i > 0 && direct[i-1].sameClients(f)
		if direct[lead].address() != f.address() {
			lead = i
		}
		if direct[lead].Kind != f.Kind && holder == key {
			continue // one address in several fields of the Service
		}
		if holder != key || twice {
			if p := (problem.Problem{
				Object: object(key), Field: t.field(key, f, r), Reason: reasonAddressInUse,
				Message: fmt.Sprintf("%s is served for Service %s already: give one of the two Services %s",
					f.address(), holder, remedies[f.Kind]),
			}); !slices.Contains(problems, p) {
				problems = append(problems, p)
			}
			continue
		}
		set, done := sets[f.Set()]
		if !done {
			var found []problem.Problem
			set, found = t.resolve(key, facts, canonical(direct, f), r)
			sets[f.Set()] = set
			problems = append(problems, found...)
		}
		f.Endpoints, f.Elsewhere, f.hidden = set.Endpoints, set.Elsewhere, 0
		out = append(out, f)
	}
	if sameFrontends(out, direct) {
		out = direct // most are: they share memory
	}
	return out, problems
}

// canonical returns a frontend of the same set with the ClusterIP as its address. Nested Services are followed by
// ClusterIP, whatever address a client uses.
func canonical(direct []Frontend, f Frontend) Frontend {
	for _, o := range direct {
		if o.Kind == ClusterIP && o.Port == f.Port && o.Protocol == f.Protocol && o.VIP.Addr().Is6() == f.VIP.Addr().Is6() {
			f.VIP, f.Kind = o.VIP, ClusterIP
			break
		}
	}
	return f
}

// resolve replaces Services among the endpoints of a set by their endpoints.
func (t *Tables) resolve(key derive.Object, facts Facts, f Frontend, r *derive.Reader) (Frontend, []problem.Problem) {
	n := nesting{tables: t, reader: r, open: map[address]bool{}, left: maxShares}
	switch {
	case facts.Imported && f.Scope == Local:
		some := len(f.Endpoints) > 0
		f.Endpoints = t.onThisNode(key, f, r)
		f.Elsewhere = some && len(f.Endpoints) == 0
	case len(facts.First) > 0:
		f.Endpoints = n.first(key, f, facts)
	}
	if n.nested(f) {
		shares, _ := n.shares(f)
		f.Endpoints = weigh(shares)
	} else if slices.ContainsFunc(f.Endpoints, func(e Endpoint) bool { return e.Weight > 1 }) {
		f.Endpoints = slices.Clone(f.Endpoints)
		reduce(f.Endpoints)
	}
	return f, n.problems
}
