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

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
)

// Bounds of an answer about a hop.
const (
	maxHopBuckets = 64  // of a group that are listed
	maxHashes     = 256 // that are tried for an endpoint
	maxHopPacket  = 2048
)

// hopAnswers answers where packets leave this Node's switch, or where they end.
type hopAnswers struct {
	dump     *switchAnswers
	why      *whyAnswers
	observer *observer
}

// serve follows packets through the switch.
func (a *hopAnswers) serve(r *http.Request) (any, error) {
	query := r.URL.Query()
	var (
		packets []string
		out     = api.HopList{Hops: []api.Hop{}}
		err     error
	)
	if asking := ask(r.Context(), a.dump.tables.engine, func() {
		if query.Get("packet") != "" {
			packets, err = a.arriving(query)
		} else {
			packets, out.Networks, err = a.why.packets(query)
		}
	}); asking != nil {
		return nil, asking
	}
	if err != nil {
		return nil, err
	}
	q := hopQuestion{cluster: query.Get("cluster")}
	if q.endpoint, err = endpointOf(query.Get("endpoint")); err != nil {
		return nil, err
	}
	for _, packet := range packets {
		hop, err := a.hop(r.Context(), packet, q)
		if err != nil {
			return nil, err
		}
		out.Hops = append(out.Hops, hop)
	}
	return out, nil
}

// hopQuestion selects the endpoints of a Service that a question is about: one address, or all endpoints of a cluster.
// If both fields are empty, it selects all endpoints.
type hopQuestion struct {
	endpoint netip.Addr
	cluster  string
}

// endpointOf reads the address of an endpoint. No text is no choice.
func endpointOf(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return ip, fmt.Errorf("endpoint=%q: give the address of an endpoint", text)
	}
	return ip, nil
}

// packetWord is a field of a packet, or a protocol, in ovs-ofctl's text.
var packetWord = regexp.MustCompile(`^[a-z0-9_]+(=[0-9a-fA-F.:x/]+)?$`)

// arriving returns a packet that another Node has sent here, as it comes into the switch.
func (a *hopAnswers) arriving(query url.Values) ([]string, error) {
	packet := query.Get("packet")
	words := strings.Split(packet, ",")
	if len(packet) > maxHopPacket ||
		slices.ContainsFunc(words, func(w string) bool { return !packetWord.MatchString(w) }) {
		return nil, fmt.Errorf("packet=%q: give headers in ovs-ofctl's text, separated by commas", packet[:min(80,
			len(packet))])
	}
	n, ok := a.dump.tables.node.Get(self)
	if !ok {
		return nil, errors.New("this Node's network is not known yet")
	}
	if query.Get("outerDst") == "" { // the host has routed it
		headers := slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "dl_") })
		return []string{fmt.Sprintf("%sin_port=%d,dl_src=%s,dl_dst=%s,%s", hashed, n.GatewayPort, n.GatewayMAC, virtualMAC,
			strings.Join(headers, ","))}, nil
	}
	to, err := netip.ParseAddr(query.Get("outerDst"))
	if err != nil {
		return nil, fmt.Errorf("outerDst=%q: give the address where the tunnel ends", query.Get("outerDst"))
	}
	from, err := a.outerSource(query)
	if err != nil {
		return nil, err
	}
	key, err := strconv.ParseUint(cmp.Or(query.Get("key"), "0"), 0, 24)
	if err != nil {
		return nil, fmt.Errorf("key=%q: give the key of the tunnel, a number below 2^24", query.Get("key"))
	}
	port := uint32(n.Tunnels.Port)
	if watched, ok := a.dump.tables.ways.numbers.Get(datapath.WayEnd{Addr: from}); ok {
		port = watched // packets of a way come in through its port
	}
	if port == 0 {
		return nil, errors.New("this Node has no tunnels")
	}
	return []string{fmt.Sprintf("%sin_port=%d,%s,tun_id=%d,%s", hashed, port, tunnelHeaders(from, to), key, packet)}, nil
}

// outerSource returns the source address of the tunnel packet in which a packet arrives here. If the sender's host
// chooses that address, this Node's tables have it. For a gateway behind NAT it is the declared address.
func (a *hopAnswers) outerSource(query url.Values) (netip.Addr, error) {
	from, err := netip.ParseAddr(query.Get("outerSrc"))
	if query.Get("outerSrc") != "" && err != nil {
		return from, fmt.Errorf("outerSrc=%q: give the address where the tunnel begins", query.Get("outerSrc"))
	}
	if node := query.Get("fromNode"); node != "" && !from.IsValid() {
		remote, ok := a.dump.tables.remotes.Get(derive.Name(node))
		if !ok {
			return from, fmt.Errorf("fromNode=%s: Node %s does not know a tunnel from it", node, a.dump.tables.nodeName)
		}
		return remote.Address, nil
	}
	p, _ := a.dump.tables.peers.peering.Get(self)
	for _, peer := range p.Peers {
		if peer.ClusterID != query.Get("fromCluster") {
			continue
		}
		sources := peer.TunnelSources()
		known := slices.ContainsFunc(sources, func(s netip.Prefix) bool { return s.Contains(from) })
		if len(sources) > 0 && (!from.IsValid() || !known && len(peer.Sources) > 0) {
			return sources[0].Addr(), nil
		}
	}
	if !from.IsValid() {
		return from, errors.New("outerSrc is missing: give the address where the tunnel begins, or fromNode or fromCluster")
	}
	return from, nil
}

// hop follows a packet. If the packet is to a Service, hop tries other hashes until the switch chooses an endpoint that
// the question is about.
func (a *hopAnswers) hop(ctx context.Context, packet string, q hopQuestion) (api.Hop, error) {
	output, traced, err := a.traced(ctx, packet)
	if err != nil {
		return api.Hop{}, err
	}
	groups, err := a.groups(ctx, traced)
	if err != nil {
		return api.Hop{}, err
	}
	var wanted []netip.Addr
	if asking := ask(ctx, a.dump.tables.engine, func() { wanted = a.wanted(traced, groups, q) }); asking != nil {
		return api.Hop{}, asking
	}
	if len(wanted) > 0 && !slices.Contains(wanted, destination(traced)) {
		if output, traced, packet, err = a.choose(ctx, packet, wanted); err != nil {
			return api.Hop{}, err
		}
		if groups, err = a.groups(ctx, traced); err != nil { // another way may have been chosen
			return api.Hop{}, err
		}
	}
	hop := api.Hop{Node: a.dump.tables.nodeName, Packet: packet, Output: output}
	asking := ask(ctx, a.dump.tables.engine, func() { a.explain(&hop, traced, groups) })
	return hop, asking
}

// groups returns the groups that a packet has met.
func (a *hopAnswers) groups(ctx context.Context, t appctl.Traced) (map[uint32]flowsync.DumpedGroup, error) {
	if len(t.Groups) == 0 {
		return nil, nil
	}
	all, err := a.dump.flows.DumpGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the switch's groups: %w", err)
	}
	groups := map[uint32]flowsync.DumpedGroup{}
	for _, g := range all {
		if slices.ContainsFunc(t.Groups, func(met appctl.TracedGroup) bool { return met.ID == g.Group.ID }) {
			groups[g.Group.ID] = g
		}
	}
	return groups, nil
}

// wanted returns the endpoints that the question is about, among the endpoints of the groups that a packet has met.
// That is the one endpoint with the address, or else all endpoints of the cluster. Call it between two passes.
func (a *hopAnswers) wanted(t appctl.Traced, groups map[uint32]flowsync.DumpedGroup, q hopQuestion) (out []netip.Addr) {
	for _, g := range t.Groups {
		for _, b := range groups[g.ID].Group.Buckets {
			ip := bucketEnd(b)
			switch {
			case !ip.IsValid():
			case ip == q.endpoint:
				return []netip.Addr{ip}
			case q.cluster != "" && a.why.addresses.endAt(ip).Cluster == q.cluster:
				out = append(out, ip)
			}
		}
	}
	return out
}

func (a *hopAnswers) traced(ctx context.Context, packet string) (string, appctl.Traced, error) {
	t, err := a.dump.trace(ctx, packet)
	if err != nil {
		return "", appctl.Traced{}, err
	}
	traced, err := appctl.ParseTrace(t.Output)
	if key := packetKey.FindStringSubmatch(packet); key != nil && err == nil && traced.Fields["tun_id"] == "" {
		traced.Fields["tun_id"] = key[1] // ofproto/trace does not show a key that stays
	}
	return t.Output, traced, err
}

// packetKey is the key of the tunnel that a packet comes by.
var packetKey = regexp.MustCompile(`\btun_id=(\w+)`)

// choose tries hashes until the switch chooses one of some endpoints.
func (a *hopAnswers) choose(ctx context.Context, packet string, wanted []netip.Addr) (
	output string, t appctl.Traced, chosen string, err error) {
	for hash := range maxHashes {
		chosen = fmt.Sprintf("dp_hash=%d,%s", hash+1, hashPrefix.ReplaceAllString(packet, ""))
		if output, t, err = a.traced(ctx, chosen); err != nil || slices.Contains(wanted, destination(t)) {
			return output, t, chosen, err
		}
	}
	return "", t, "", fmt.Errorf("endpoint %s: the switch does not choose it with any of %d hashes: the Service may have "+
		"session affinity; give the endpoint as destination", wanted[0], maxHashes)
}

var hashPrefix = regexp.MustCompile(`^dp_hash=\d+,`)

// destination returns the packet's destination at its end.
func destination(t appctl.Traced) netip.Addr {
	ip, _ := netip.ParseAddr(cmp.Or(t.Fields["ipv6_dst"], t.Fields["nw_dst"]))
	return ip
}

// bucketTarget is the endpoint, or the far end of a tunnel, in the actions of a bucket.
var bucketTarget = regexp.MustCompile(
	`nat\(dst=\[?([0-9a-f.:]+?)\]?(?::(\d+))?\)|set_field:([0-9a-f.:]+)->tun_(?:ipv6_)?dst`)

// bucketText returns the endpoint with its port, or the far end of a tunnel.
func bucketText(b flow.Bucket) string {
	out := ""
	for _, m := range bucketTarget.FindAllStringSubmatch(b.Actions.String(), -1) {
		if ip, err := netip.ParseAddr(m[1] + m[3]); err != nil || ip.IsUnspecified() {
			continue // of the other version of IP
		}
		out = m[1] + m[3]
		if m[2] != "" {
			port, _ := strconv.ParseUint(m[2], 10, 16)
			out = netip.AddrPortFrom(netip.MustParseAddr(m[1]), uint16(port)).String()
		}
	}
	return out
}

// bucketEnd returns the address of bucketText.
func bucketEnd(b flow.Bucket) netip.Addr {
	text := bucketText(b)
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr()
	}
	ip, _ := netip.ParseAddr(text)
	return ip
}

// explain adds steps, choices and the end. Call it between two passes.
func (a *hopAnswers) explain(hop *api.Hop, t appctl.Traced, groups map[uint32]flowsync.DumpedGroup) {
	var cookies []uint64
	for _, s := range t.Steps {
		cookies = append(cookies, s.Cookie)
	}
	owners, pods := a.dump.flows.OwnersOf(cookies...), podsByPort(a.dump.tables)
	hop.Steps = []api.HopStep{}
	for _, s := range t.Steps {
		step := api.HopStep{Table: datapath.Program.Name(ofp.Table(s.Table)), Priority: s.Priority, Match: s.Match}
		if o, ok := owners[s.Cookie]; ok {
			step.Owner = ownerText(o, pods)
		}
		if rule, ok := a.observer.rules.at(s.Cookie); ok {
			text := ruleText(rule)
			step.Rule = text.Policy + " " + text.Name
		}
		hop.Steps = append(hop.Steps, step)
	}
	for _, g := range t.Groups {
		if known, ok := groups[g.ID]; ok {
			hop.Choices = append(hop.Choices, a.choice(g, known))
		}
	}
	hop.End = a.end(t)
	hop.End.Table = hop.Steps[len(hop.Steps)-1].Table
}

// choice returns the choice of a group.
func (a *hopAnswers) choice(g appctl.TracedGroup, known flowsync.DumpedGroup) api.HopChoice {
	out := api.HopChoice{Group: g.ID, Owner: ownerText(known.Owner, nil), Chosen: -1, Buckets: []api.HopBucket{}}
	for i, b := range known.Group.Buckets {
		chosen := g.Chosen && b.ID == g.Bucket
		if len(out.Buckets) >= maxHopBuckets && !chosen {
			out.LeftOut++
			continue
		}
		bucket := api.HopBucket{Weight: b.Weight, To: bucketText(b)}
		if ip := bucketEnd(b); ip.IsValid() {
			end := a.why.addresses.endAt(ip)
			bucket.Name = cmp.Or(end.Name, a.nodeAt(ip))
			if end.Cluster != "" {
				bucket.Name = "cluster " + end.Cluster
			}
		}
		if out.Buckets = append(out.Buckets, bucket); chosen {
			out.Chosen = min(i, len(out.Buckets)-1)
		}
	}
	return out
}

// podsByPort returns the Pods of this Node by the names of their ports.
func podsByPort(t *tables) map[string]string {
	pods := map[string]string{}
	for _, row := range t.pods.rows.All() {
		if p := row.Value; p.Name != "" {
			pods[p.Interface] = p.Namespace + "/" + p.Name
		}
	}
	return pods
}

// nodeAt returns the Node of this cluster whose tunnels have an address.
func (a *hopAnswers) nodeAt(ip netip.Addr) string {
	for _, row := range a.dump.tables.remotes.All() {
		if r := row.Value; r.Address == ip || slices.Contains(r.Sources, ip) {
			return r.Name
		}
	}
	return ""
}
