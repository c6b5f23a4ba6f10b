package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// packetTraces follows real packets through this Node's switch, while readers watch them.
type packetTraces struct {
	tables      *tables
	observer    *observer
	hops        *hopAnswers
	flows       *flowsync.Syncer
	revalidated func(context.Context) error // returns when no cached decision is older than the flows
	log         *slog.Logger

	declaring sync.Mutex // one declaration at a time
	mu        sync.Mutex
	watchers  map[uint64]*packetWatcher // by the nonce of the packet
}

// packetWatcher watches a packet.
type packetWatcher struct {
	protocol uint8
	ipv6     bool
	srcPort  uint16
	deliver  bool
	keep     bool // the connection that the packet has made
	seen     chan sighted
}

// sighted is a report of a packet with the time when it came.
type sighted struct {
	at   time.Time
	seen *datapath.Sighting // where it comes in or leaves
	lost *datapath.Report   // or its end
}

// mostSightings is the largest number of reports of one packet that wait to be read. A packet causes two reports on a
// Node.
const mostSightings = 32

func newPacketTraces(t *tables, hops *hopAnswers, flows *flowsync.Syncer, revalidated func(context.Context) error,
	log *slog.Logger) *packetTraces {
	return &packetTraces{tables: t, observer: hops.observer, hops: hops, flows: flows, revalidated: revalidated, log: log,
		watchers: map[uint64]*packetWatcher{}}
}

// errUnwatched is the error for a packet with the DSCP that no reader follows.
var errUnwatched = errors.New("no reader follows this packet")

// take takes a report of a packet with the DSCP.
func (p *packetTraces) take(in ofp.PacketIn2) error {
	w := p.watcher(in.Data)
	if w == nil {
		return errUnwatched
	}
	s, err := datapath.SightingOf(in)
	if err != nil {
		return err
	}
	return w.push(sighted{at: time.Now(), seen: &s})
}

// end takes a packet that the switch has dropped or refused, if a reader follows it.
func (p *packetTraces) end(in ofp.PacketIn2) {
	w := p.watcher(in.Data)
	if w == nil {
		return
	}
	if r, err := datapath.ReportOf(in); err == nil {
		_ = w.push(sighted{at: time.Now(), lost: &r})
	}
}

// watcher returns who watches a packet.
func (p *packetTraces) watcher(frame []byte) *packetWatcher {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.watchers) == 0 {
		return nil
	}
	nonce, ok := datapath.NonceOf(frame)
	if !ok {
		return nil
	}
	return p.watchers[nonce]
}

func (w *packetWatcher) push(s sighted) error {
	select {
	case w.seen <- s:
		return nil
	default:
		return errQueueFull
	}
}

// watcherOf reads a question for PathPacketWatch.
func watcherOf(query url.Values) (nonce uint64, w *packetWatcher, err error) {
	w = &packetWatcher{seen: make(chan sighted, mostSightings)}
	if nonce, w.srcPort, err = markOf(query); err != nil {
		return 0, nil, err
	}
	switch family := query.Get("family"); family {
	case "ipv4":
	case "ipv6":
		w.ipv6 = true
	default:
		return 0, nil, fmt.Errorf("family=%q: give ipv4 or ipv6", family)
	}
	switch protocol := strings.ToUpper(query.Get("protocol")); {
	case protocol == string(protocolICMP) && w.ipv6:
		w.protocol = protoICMPv6
	case protocol == string(protocolICMP):
		w.protocol = protoICMP
	case protocol == "TCP", protocol == "UDP":
		w.protocol = uint8(protocolNumbers[protocol])
	default:
		return 0, nil, fmt.Errorf("protocol=%q: packets of tcp, udp and icmp can be followed", query.Get("protocol"))
	}
	if text := query.Get("deliver"); text != "" {
		if w.deliver, err = strconv.ParseBool(text); err != nil {
			return 0, nil, fmt.Errorf("deliver=%q: give true or false", text)
		}
	}
	if text := query.Get("forget"); text != "" {
		forget, err := strconv.ParseBool(text)
		if err != nil {
			return 0, nil, fmt.Errorf("forget=%q: give true or false", text)
		}
		w.keep = !forget
	}
	return nonce, w, nil
}

// protoICMP is the number of ICMP.
const protoICMP = 1

// markOf reads by what a packet is known.
func markOf(query url.Values) (nonce uint64, srcPort uint16, err error) {
	if nonce, err = strconv.ParseUint(query.Get("nonce"), 16, 64); err != nil || len(query.Get("nonce")) != 16 {
		return 0, 0, fmt.Errorf("nonce=%q: give 16 digits of hexadecimal", query.Get("nonce"))
	}
	port, err := strconv.ParseUint(query.Get("srcPort"), 10, 16)
	if err != nil || port == 0 {
		return 0, 0, fmt.Errorf("srcPort=%q: give a port from 1 to 65535", query.Get("srcPort"))
	}
	return nonce, uint16(port), nil
}

// watch answers PathPacketWatch.
func (p *packetTraces) watch(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, err error) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(api.Error{Error: err.Error()})
	}
	nonce, watcher, err := watcherOf(r.URL.Query())
	if err != nil {
		refuse(http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), api.PacketWatchLimit)
	defer cancel()
	if err := p.begin(ctx, nonce, watcher); err != nil {
		refuse(http.StatusServiceUnavailable, err)
		return
	}
	var came []datapath.Headers
	var tracked []ofp.CTFlush
	defer func() {
		p.remove(nonce)
		p.forget(tracked)
	}()
	if err := p.applied(ctx, watcher); err != nil {
		refuse(http.StatusServiceUnavailable, fmt.Errorf("have the switch report the packet: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, flusher := json.NewEncoder(w), http.NewResponseController(w)
	event := api.PacketEvent{Ready: &api.PacketReady{Node: p.tables.nodeName}}
	for {
		if lines.Encode(event) != nil || flusher.Flush() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case s := <-watcher.seen:
			switch {
			case s.seen == nil || !s.seen.HasPorts() || watcher.keep: // other connections expire soon
			case !s.seen.Out:
				came = append(came, s.seen.Headers)
			default: // what left was committed
				for _, h := range came {
					tracked = append(tracked, flushOf(h, p.zoneOf(s.seen.Network)))
				}
				came = nil
			}
			event = api.PacketEvent{Seen: &api.PacketSeen{Node: p.tables.nodeName, At: s.at.UTC()}}
			if asking := ask(ctx, p.tables.engine, func() { p.describe(s, watcher, event.Seen) }); asking != nil {
				return
			}
		}
	}
}

// begin adds a watcher.
func (p *packetTraces) begin(ctx context.Context, nonce uint64, w *packetWatcher) error {
	p.mu.Lock()
	switch {
	case p.watchers[nonce] != nil:
		p.mu.Unlock()
		return fmt.Errorf("nonce=%016x: this packet is watched already", nonce)
	case len(p.watchers) >= api.PacketWatchers:
		p.mu.Unlock()
		return fmt.Errorf("%d packets are followed on Node %s already: try again later", api.PacketWatchers,
			p.tables.nodeName)
	}
	p.watchers[nonce] = w
	p.mu.Unlock()
	if err := p.declare(ctx); err != nil {
		p.remove(nonce)
		return err
	}
	return nil
}

// remove removes a watcher.
func (p *packetTraces) remove(nonce uint64) {
	p.mu.Lock()
	delete(p.watchers, nonce)
	p.mu.Unlock()
	if err := p.declare(context.Background()); err != nil { // the next watcher mends it
		p.log.Debug("flows for a packet that was followed stay", "error", err)
	}
}

// declare declares the flows by which the switch reports packets to the watchers. It waits for a pass of the tables,
// without a lock that incoming packets need.
func (p *packetTraces) declare(ctx context.Context) error {
	p.declaring.Lock()
	defer p.declaring.Unlock()
	p.mu.Lock()
	watchers := slices.Collect(maps.Values(p.watchers))
	p.mu.Unlock()
	if len(watchers) == 0 {
		p.tables.followed.packets.Delete(self)
		return nil
	}
	var held []datapath.HeldPacket
	if err := ask(ctx, p.tables.engine, func() {
		for _, w := range watchers {
			if w.deliver {
				continue
			}
			for _, row := range p.tables.pods.rows.All() {
				held = append(held, datapath.HeldPacket{IPv6: w.ipv6, Protocol: w.protocol, SrcPort: w.srcPort, To: row.Value.Port})
			}
		}
	}); err != nil {
		return err
	}
	slices.SortFunc(held, datapath.HeldPacket.Compare)
	p.tables.followed.packets.Set(self, datapath.Tracing{On: true, Held: slices.Compact(held)})
	return nil
}

// applied waits for the pass that has taken the declaration, and then for the switch.
func (p *packetTraces) applied(ctx context.Context, w *packetWatcher) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for taken := false; !taken; {
		if err := ask(ctx, p.tables.engine, func() {
			now, _ := p.tables.followed.packets.Get(self)
			mine := func(h datapath.HeldPacket) bool {
				return h.SrcPort == w.srcPort && h.Protocol == w.protocol && h.IPv6 == w.ipv6
			}
			taken = now.On && (w.deliver || p.tables.pods.rows.Len() == 0 || slices.ContainsFunc(now.Held, mine))
		}); err != nil {
			return err
		}
		if !taken {
			if err := sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
	if err := flowsApplied(ctx, p.flows); err != nil {
		return err
	}
	return p.revalidated(ctx)
}

// flushOf returns the request to forget the connection that a packet has made.
func flushOf(h datapath.Headers, zone uint16) ofp.CTFlush {
	return ofp.CTFlush{Proto: h.Protocol, HasZone: true, Zone: zone,
		Orig: ofp.CTTuple{Src: h.Src, Dst: h.Dst, SrcPort: h.SrcPort, DstPort: h.DstPort}}
}

// zoneOf returns the zone of connection tracking of packets in a network.
func (p *packetTraces) zoneOf(network tenant.ID) uint16 {
	separate := p.tables.objects.networks.separate
	return cmp.Or(separate.zoneOf(separate.numbered(network)), datapath.ServiceZone)
}

// forget removes the connections that a followed packet has made. If the switch cannot remove them, they expire.
func (p *packetTraces) forget(tracked []ofp.CTFlush) {
	if len(tracked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := p.flows.FlushConnections(ctx, tracked); err != nil {
		p.log.Debug("connections of a packet that was followed stay until they expire", "error", err)
	}
}

// describe describes a report. Call it between two passes.
func (p *packetTraces) describe(s sighted, w *packetWatcher, out *api.PacketSeen) {
	if s.lost != nil {
		p.describeEnd(seenReport{*s.lost, s.at}, out)
		return
	}
	endsIn(out, s.seen.Headers)
	port := s.seen.InPort
	out.Point = api.PacketIn
	if s.seen.Out {
		port, out.Point = s.seen.OutPort, api.PacketOut
		out.Egress = fullText(p.observer.rules.of(s.seen.EgressRule))
		out.Ingress = fullText(p.observer.rules.of(s.seen.IngressRule))
	}
	n, _ := p.tables.node.Get(self)
	switch {
	case port == n.GatewayPort:
		out.Port = "host"
		if s.seen.Out {
			out.NextNode = p.hops.directNode(s.seen.Dst)
		}
	case port == n.Tunnels.Port, p.hops.wayPort(port):
		out.Port = "tunnel"
		out.OuterSrc, out.OuterDst = addrText(s.seen.OuterSrc), addrText(s.seen.OuterDst)
		if s.seen.Out {
			out.NextNode, out.NextCluster, _ = p.hops.farEnd(s.seen.OuterDst)
		}
	default:
		out.Port = fmt.Sprint("port ", port)
		for _, row := range p.tables.pods.rows.All() {
			if row.Value.Port != port {
				continue
			}
			out.Port = "Pod " + row.Value.Namespace + "/" + row.Value.Name
			if s.seen.Out {
				out.Point = api.PacketHeld
				if w.deliver {
					out.Point = api.PacketGiven
				}
			}
		}
	}
}

// describeEnd describes the end of a packet.
func (p *packetTraces) describeEnd(r seenReport, out *api.PacketSeen) {
	endsIn(out, r.Headers)
	end := &record.Record{Verdict: record.Dropped, Reason: r.Reason()}
	out.Point, out.Table = api.PacketDropped, datapath.Program.Name(r.Table)
	if r.Kind != datapath.Dropped {
		end.Verdict, out.Point = record.Rejected, api.PacketRejected
	}
	from, to := p.observer.endsOf(r)
	p.observer.explain(r, end, from, to)
	out.Reason, out.Message, out.Policies = end.Reason, end.Message, end.Policies
	out.Rule = fullText(end.Rule)
}

// fullText is a rule with its policy, or no text for no rule.
func fullText(r *record.Rule) string {
	if r == nil {
		return ""
	}
	return r.Policy + " " + r.Name
}

// endsIn sets the ends of a packet.
func endsIn(out *api.PacketSeen, h datapath.Headers) {
	out.Protocol, out.Src, out.Dst = h.ProtocolName(), h.Src.String(), h.Dst.String()
	if h.HasPorts() {
		out.Src, out.Dst = netip.AddrPortFrom(h.Src, h.SrcPort).String(), netip.AddrPortFrom(h.Dst, h.DstPort).String()
	}
}

// addrText returns an address as text, or no text for no address.
func addrText(ip netip.Addr) string {
	if !ip.IsValid() {
		return ""
	}
	return ip.String()
}

// send answers PathPacketSend.
func (p *packetTraces) send(r *http.Request) (any, error) {
	query := r.URL.Query()
	nonce, srcPort, err := markOf(query)
	if err != nil {
		return nil, err
	}
	var packets []string
	if asking := ask(r.Context(), p.tables.engine, func() { packets, _, err = p.hops.why.packets(query) }); asking != nil {
		return nil, asking
	}
	if err != nil {
		return nil, err
	}
	if len(packets) != 1 {
		return nil, fmt.Errorf("family is missing: both ends have addresses of %d versions of IP, and one packet is sent",
			len(packets))
	}
	text := packets[0]
	if ttl := query.Get("ttl"); ttl != "" {
		if n, err := strconv.ParseUint(ttl, 10, 8); err != nil || n == 0 {
			return nil, fmt.Errorf("ttl=%q: give a number from 1 to 255", ttl)
		}
		text = ttlWord.ReplaceAllString(text, "nw_ttl="+ttl)
	}
	packet, err := tracedPacket(text)
	if err != nil {
		return nil, err
	}
	packet.Nonce, packet.SrcPort = nonce, srcPort
	if flags := query.Get("tcpFlags"); flags != "" {
		n, err := strconv.ParseUint(flags, 10, 8)
		if err != nil || n == 0 || packet.Protocol != uint8(protocolNumbers["TCP"]) {
			return nil, fmt.Errorf("tcpFlags=%q: give a number from 1 to 255, for a packet of TCP", flags)
		}
		packet.Flags = uint8(n)
	}
	out, err := packet.PacketOut()
	if err != nil {
		return nil, err
	}
	sent := api.PacketSent{Node: p.tables.nodeName, At: time.Now().UTC(), Packet: text}
	return sent, p.flows.PacketOut(r.Context(), out)
}

// ttlWord is the TTL in ovs-ofctl's text.
var ttlWord = regexp.MustCompile(`nw_ttl=\d+`)

// tracedPacket reads a packet in ovs-ofctl's text, as whyAnswers.packets writes it.
func tracedPacket(text string) (out datapath.TracedPacket, err error) {
	number := func(value string, bits int) uint64 {
		n, failed := strconv.ParseUint(value, 10, bits)
		err = errors.Join(err, failed)
		return n
	}
	mac := func(value string) ofp.MAC {
		m, failed := ofp.ParseMAC(value)
		err = errors.Join(err, failed)
		return m
	}
	addr := func(value string) netip.Addr {
		ip, failed := netip.ParseAddr(value)
		err = errors.Join(err, failed)
		return ip
	}
	for word := range strings.SplitSeq(text, ",") {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "in_port":
			out.InPort = ofp.Port(number(value, 32))
		case "dl_src":
			out.EthSrc = mac(value)
		case "dl_dst":
			out.EthDst = mac(value)
		case "nw_src", "ipv6_src":
			out.Src = addr(value)
		case "nw_dst", "ipv6_dst":
			out.Dst = addr(value)
		case "nw_ttl":
			out.TTL = uint8(number(value, 8))
		case "tcp_dst", "udp_dst":
			out.DstPort = uint16(number(value, 16))
		case "tcp", "tcp6", "udp", "udp6":
			out.Protocol = uint8(protocolNumbers[strings.ToUpper(strings.TrimSuffix(word, "6"))])
		case "icmp":
			out.Protocol = protoICMP
		case "icmp6":
			out.Protocol = protoICMPv6
		case "sctp", "sctp6":
			return out, errors.New("protocol=sctp: packets of tcp, udp and icmp can be followed; without --packet, sctp too")
		case "tun_src", "tun_ipv6_src":
			return out, errors.New("from: the client is of another Node: ask the agent of its Node to send the packet")
		}
	}
	return out, err
}
