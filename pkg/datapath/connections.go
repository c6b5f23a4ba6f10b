package datapath

import (
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// ServiceConnection identifies all UDP connections from one client port through one Service to one endpoint. Connection
// tracking repeats the choice of the endpoint for each datagram between the same two ports, also when the endpoint is
// gone.
type ServiceConnection struct{ VIP, Endpoint netip.AddrPort }

// Flush forgets these connections, so that a client's next datagram is a new connection.
func (c ServiceConnection) Flush() ofp.CTFlush {
	return ofp.CTFlush{
		Proto: protocolUDP, HasZone: true, Zone: mainZone,
		Orig:  ofp.CTTuple{Dst: c.VIP.Addr(), DstPort: c.VIP.Port()},
		Reply: ofp.CTTuple{Src: c.Endpoint.Addr(), SrcPort: c.Endpoint.Port()},
	}
}

const protocolUDP = 17

// ServiceZone is the zone of connection tracking that connections to Services are in.
const ServiceZone = mainZone

// Connections returns the connections of frontends. It may be called from any goroutine.
func (t *Services) Connections(frontends []service.Frontend) []ServiceConnection {
	var out []ServiceConnection
	for _, f := range frontends {
		if f.Protocol != corev1.ProtocolUDP {
			continue
		}
		for _, to := range t.Destinations(f) {
			for _, e := range f.Endpoints {
				out = append(out, ServiceConnection{to, e.Addr})
			}
		}
	}
	return out
}

// TrackedServiceConnection reads a connection that a datapath tracks from a line of dpctl/dump-conntrack. A UDP
// connection of our zone was translated if its replies come from another address than the destination of its first
// packet. Only Services translate.
func TrackedServiceConnection(line string) (ServiceConnection, bool) {
	orig, rest, ok1 := tuple(line, "orig=(")
	reply, rest, ok2 := tuple(rest, "reply=(")
	zone := ",zone=" + strconv.Itoa(int(mainZone)) + ","
	if !strings.HasPrefix(line, "udp,") || !ok1 || !ok2 || !strings.Contains(","+strings.TrimSpace(rest)+",", zone) {
		return ServiceConnection{}, false
	}
	vip, ok1 := addrPort(orig, "dst", "dport")
	endpoint, ok2 := addrPort(reply, "src", "sport")
	return ServiceConnection{vip, endpoint}, ok1 && ok2 && vip != endpoint
}

// TrackedHeaders are the headers of a tracked connection, in its zone.
type TrackedHeaders struct {
	Headers
	// Zone is the zone of the connection's network, and 0 for connections in the main zone. Equal headers may exist in
	// several zones.
	Zone uint16
}

// TrackedConnection reads a connection with ports from a line of dpctl/dump-conntrack. The connection is in the main
// zone, or in the zone of a network. The headers are of the client's packets behind the Service.
func TrackedConnection(line string) (TrackedHeaders, bool) {
	word, _, _ := strings.Cut(line, ",")
	_, rest, ok1 := tuple(line, "orig=(")
	reply, rest, ok2 := tuple(rest, "reply=(")
	if !ok1 || !ok2 {
		return TrackedHeaders{}, false
	}
	zone, ok := zoneOf(word, rest)
	if !ok {
		return TrackedHeaders{}, false
	}
	for number, name := range protocols {
		if !strings.EqualFold(string(name), word) {
			continue
		}
		client, ok1 := addrPort(reply, "dst", "dport")
		server, ok2 := addrPort(reply, "src", "sport")
		return TrackedHeaders{Headers{Src: client.Addr(), Dst: server.Addr(), Protocol: number, SrcPort: client.Port(),
			DstPort: server.Port()}, zone}, ok1 && ok2
	}
	return TrackedHeaders{}, false
}

// TrackedZone reads the zone of a network from a line of dpctl/dump-conntrack. It returns false for lines of other
// zones.
func TrackedZone(line string) (uint16, bool) {
	word, _, _ := strings.Cut(line, ",")
	_, rest, ok1 := tuple(line, "orig=(")
	_, rest, ok2 := tuple(rest, "reply=(")
	if !ok1 || !ok2 {
		return 0, false
	}
	zone, ok := zoneOf(word, rest)
	return zone, ok && zone != 0
}

// zoneOf returns the zone of a connection of our switch from its protocol and the end of its line. It returns 0 for the
// main zone. On the userspace datapath the same numbers are zones of SCTP by port, so a line of SCTP is in no network's
// zone. Other programs may use these zones, too. The mark of our connections is never 0, since it has the packet's
// source.
func zoneOf(protocol, rest string) (uint16, bool) {
	var zone, mark uint64
	for word := range strings.SplitSeq(strings.TrimSpace(rest), ",") {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "zone":
			zone, _ = strconv.ParseUint(value, 10, 16)
		case "mark":
			mark, _ = strconv.ParseUint(value, 0, 32)
		}
	}
	if zone == uint64(mainZone) {
		return 0, true
	}
	ours := HasSource(uint32(mark)) && !strings.EqualFold(protocol, "sctp")
	return uint16(zone), ours && zone > 0 && zone <= tenant.MaxZone
}

// HasSource reports whether a mark has the source of a packet, as all marks of our connections have.
func HasSource(mark uint32) bool { return mark>>markSource.First&(1<<markSource.Width-1) != 0 }

// tuple reads a tuple such as "orig=(src=10.0.0.1,...)". It returns the text in the parentheses, and the text after it.
// The caller gives the beginning of the tuple, up to the opening parenthesis.
func tuple(text, name string) (inside, rest string, ok bool) {
	_, text, ok = strings.Cut(text, name)
	if !ok {
		return "", "", false
	}
	return strings.Cut(text, ")")
}

// addrPort reads an address and a port of a tuple such as "src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2".
func addrPort(text, addrKey, portKey string) (netip.AddrPort, bool) {
	var addr netip.Addr
	var port uint64
	var err1, err2 error
	for word := range strings.SplitSeq(text, ",") {
		switch key, value, _ := strings.Cut(word, "="); key {
		case addrKey:
			addr, err1 = netip.ParseAddr(value)
		case portKey:
			port, err2 = strconv.ParseUint(value, 10, 16)
		}
	}
	return netip.AddrPortFrom(addr, uint16(port)), err1 == nil && err2 == nil && addr.IsValid() && port != 0
}
