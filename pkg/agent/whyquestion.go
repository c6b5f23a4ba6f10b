package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// whyQuestion is the content of a question.
type whyQuestion struct {
	from, to whyEnds
	protocol corev1.Protocol
	port     string
	cluster  string
	families []family.Families // each is a version of IP that is asked about
}

// whyReader reads questions.
type whyReader struct {
	tables    *tables
	addresses *whyAddresses
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
	p, _ := a.tables.peers.peering.Get(self)
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
	a.inNetworks(&q)
	if err := cmp.Or(a.ambiguous("from", q.from), a.ambiguous("to", q.to)); err != nil {
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

// atService makes the destination a Service if it is an address and port of one. For a Node it looks at the addresses
// of each version of IP.
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

// atOtherNode returns an error if the destination is the node port of a Service at another Node.
func (a *whyReader) atOtherNode(protocol corev1.Protocol, at netip.AddrPort) error {
	f, ok := a.addresses.nodePort(protocol, at)
	if !ok {
		return nil
	}
	for _, row := range a.tables.nodes.All() {
		if row.Key.Name != a.tables.nodeName && slices.Contains(row.Value.Addresses, at.Addr()) {
			return fmt.Errorf("to: %s is the node port of Service %s/%s at Node %s, which judges: ask that Node's agent "+
				"(--node %s)", at, f.Namespace, f.Service, row.Key.Name, row.Key.Name)
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
	const forms = "give a Pod or Service as namespace/name, a further interface as namespace/name@network, a Node as " +
		"node/name, or an address"
	if text == "" {
		return nil, fmt.Errorf("%s is missing: %s", field, forms)
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		e := a.addresses.endAt(ip.Unmap().WithZone(""))
		e.given = true
		return whyEnds{e}, nil
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
		e.given = true
		if !r.IsSingleIP() {
			e.note = fmt.Sprintf("%s: "+judgedFor+"%s; rules about a part of %s may decide otherwise about other addresses",
				field, ip, r.Masked())
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
	name, network, further := strings.Cut(words[1], "@")
	object := derive.Object{Namespace: words[0], Name: name}
	if further {
		return a.further(field, object, network)
	}
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
	if firsts := a.firsts(object, &facts); len(addresses) == 0 && len(firsts) > 0 {
		return firsts, nil
	}
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

// firsts returns the addresses of a Pod's first interface in a VirtualNetwork.
func (a *whyReader) firsts(pod derive.Object, facts *policy.PodFacts) (out whyEnds) {
	if a.tables.tenants == nil {
		return nil
	}
	for _, f := range a.tables.policies.Virtual.Of(pod) {
		if a.addresses.isFirst(f.Network, f.IP, *facts) {
			out = append(out, whyEnd{WhyEnd: api.WhyEnd{Kind: "Pod", Name: pod.String(), Address: f.IP.String(),
				Node: facts.Node, Network: f.Network.String()}, ip: f.IP, pod: pod, facts: facts, network: f.Network, first: true})
		}
	}
	return out
}

// further returns the ends that are a further interface of a Pod. The interface is given by its VirtualNetwork or, on
// this Node, by its name inside the Pod.
func (a *whyReader) further(field string, pod derive.Object, text string) (out whyEnds, err error) {
	if a.tables.tenants == nil {
		return nil, fmt.Errorf("%s: Pods have no further interfaces, since this agent's feature gate TenantNetworks is off: "+
			"give the Pod as %s", field, pod)
	}
	facts, ok := a.tables.policies.Pods.Get(pod)
	if !ok {
		return nil, fmt.Errorf("%s: no Pod with a network of its own is called %s", field, pod)
	}
	var networks []string
	for _, f := range a.tables.policies.Virtual.Of(pod) {
		networks = append(networks, f.Network.Name)
		if text != f.Network.Name && text != f.Network.String() && text != a.interfaceOf(pod, f) {
			continue
		}
		out = append(out, whyEnd{WhyEnd: api.WhyEnd{Kind: "Pod", Name: pod.String(), Address: f.IP.String(), Node: facts.Node,
			Network: f.Network.String()}, ip: f.IP, pod: pod, facts: &facts, network: f.Network,
			first: a.addresses.isFirst(f.Network, f.IP, facts)})
	}
	slices.Sort(networks)
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: Pod %s has no interface in VirtualNetwork %s, or its Node has not reported it yet; it "+
			"is in %s", field, pod, problem.Quoted(text), cmp.Or(strings.Join(slices.Compact(networks), ", "), "none"))
	}
	return out, nil
}

// judgedFor is in the note about a range.
const judgedFor = "judged for "

// interfaceOf returns the name, inside its Pod, of the further interface of this Node that has an address.
func (a *whyReader) interfaceOf(pod derive.Object, f policy.FurtherAddress) string {
	ip := f.IP
	for _, row := range a.tables.pods.attachments.All() {
		if row.Value.PodNamespace == pod.Namespace && row.Value.PodName == pod.Name &&
			row.Value.VirtualNetwork == f.Network.String() &&
			slices.ContainsFunc(row.Value.IPs, func(p netip.Prefix) bool { return p.Addr() == ip }) {
			return row.Value.IfName
		}
	}
	return ""
}

// inNetworks reads an address once more, as one of a VirtualNetwork. It does so if the other end reaches that network
// through a further interface, since the same address may exist elsewhere, such as in another cluster.
func (a *whyReader) inNetworks(q *whyQuestion) {
	for _, ends := range [][2]*whyEnds{{&q.from, &q.to}, {&q.to, &q.from}} {
		own, other := *ends[0], *ends[1]
		if len(own) > 0 && a.addresses.isSeparate(own[0].network) {
			a.inSeparate(own[0].network, other)
			continue
		}
		if len(own) == 0 || own[0].network == (derive.Object{}) || len(other) != 1 || other[0].Kind != "" {
			continue
		}
		e, ok := a.addresses.furtherAt(own[0].network, other[0].ip)
		networks := whyNetworks{a.tables, a.addresses}
		if ok && networks.placeIn(own[0].network).Meets(networks.placeIn(e.network)) {
			*ends[1] = whyEnds{e}
		}
	}
}

// inSeparate reads addresses once more, as addresses in the zone of a separate network. Pods elsewhere with the same
// address are not the other end.
func (a *whyReader) inSeparate(network derive.Object, other whyEnds) {
	for i, e := range other {
		if !e.given {
			continue
		}
		other[i] = a.addresses.endIn(network, e.ip)
		other[i].given, other[i].separate = true, true
		if strings.Contains(e.note, judgedFor) {
			other[i].note = e.note
		}
	}
}

// maxNamed is how many Pods an error names.
const maxNamed = 3

// ambiguous returns an error for an address that only Pods in separate networks have.
func (a *whyReader) ambiguous(field string, ends whyEnds) error {
	if len(ends) != 1 {
		return nil
	}
	e := ends[0]
	if !e.given || e.separate || e.Kind+e.Node+e.Cluster != "" || e.note != "" && !strings.Contains(e.note, judgedFor) {
		return nil
	}
	var names []string
	for _, network := range a.tables.objects.networks.separate.all() {
		switch e, ok := a.addresses.furtherAt(network, e.ip); {
		case ok && e.Kind == "Pod":
			names = append(names, e.Name+"@"+e.network.Name)
		case ok:
			names = append(names, "an unknown Pod in "+e.network.String())
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names) // each network of a zone finds it
	list := strings.Join(names[:min(maxNamed, len(names))], ", ")
	if len(names) > maxNamed {
		list += " and others"
	}
	return fmt.Errorf("%s: several VirtualNetworks may have the address %s; here it is of %s: give the Pod as "+
		"namespace/name@network", field, e.ip, list)
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
	p, _ := a.tables.peers.peering.Get(self)
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
	if cluster != "" && !strings.HasPrefix(object.Name, multicluster.ImportedPrefix) {
		imported := derive.Object{Namespace: object.Namespace, Name: multicluster.ImportedPrefix + object.Name}
		if _, ok := a.tables.services.Services.Get(imported); ok {
			return imported, true
		}
	}
	_, ok := a.tables.services.Services.Get(object)
	return object, ok
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

// frontendOf returns the port of the Service that the question is about, at the Service's ClusterIP of a version of IP.
// It returns false if the Service has no such ClusterIP.
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
