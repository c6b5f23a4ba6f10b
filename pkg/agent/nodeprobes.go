package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/probe"
)

// Metrics of probes of other Nodes. The label node is of the Node that is scraped.
var (
	nodeLabels = []string{"peer_node", "to"}
	nodeRTT    = prometheus.NewDesc("tombolo_node_rtt_seconds",
		"Median of the newest round-trip times of probes of another Node.", nodeLabels, nil)
	nodeProbesLost = prometheus.NewDesc("tombolo_node_probes_lost_total",
		"Probes of another Node without a reply within a second.", nodeLabels, nil)
)

// maxNodeSeries bounds the series of a metric of Nodes.
const maxNodeSeries = 1000

// Describe implements prometheus.Collector.
func (p *nodeProbes) Describe(to chan<- *prometheus.Desc) {
	to <- nodeRTT
	to <- nodeProbesLost
}

// Collect implements prometheus.Collector.
func (p *nodeProbes) Collect(to chan<- prometheus.Metric) {
	all, _ := p.Results()
	for _, n := range all[:min(len(all), maxNodeSeries)] {
		if n.P50Seconds > 0 {
			to <- prometheus.MustNewConstMetric(nodeRTT, prometheus.GaugeValue, n.P50Seconds, n.Node, n.To)
		}
		to <- prometheus.MustNewConstMetric(nodeProbesLost, prometheus.CounterValue, float64(n.Lost), n.Node, n.To)
	}
}

// pingIntervalOf returns the time between two probes of a Node, as a NodeLatencyMonitor asks for it. It is 0 for an
// object with another name than default.
func pingIntervalOf(m *crdv1alpha1.NodeLatencyMonitor) time.Duration {
	if m.Name != crdv1alpha1.NodeLatencyMonitorName || m.Spec.PingIntervalSeconds <= 0 {
		return 0
	}
	return time.Duration(m.Spec.PingIntervalSeconds) * time.Second
}

// nodeProbes probe the other Nodes of the cluster, while a NodeLatencyMonitor asks for it. They send echo requests
// between the gateway ports. So a probe takes the path of Pods' packets, and the host of the other Node answers.
type nodeProbes struct {
	*probe.Pings
	targets func(context.Context) ([]probe.Target, time.Duration, error)
	log     *slog.Logger

	sockets map[bool]*icmp.PacketConn // open ones, by whether they are of IPv6
	failed  map[bool]string
	reading sync.WaitGroup
}

func newNodeProbes(t *tables, log *slog.Logger) *nodeProbes {
	return &nodeProbes{Pings: probe.NewPings(randomNonce), log: log, sockets: map[bool]*icmp.PacketConn{},
		failed: map[bool]string{},
		targets: func(ctx context.Context) (out []probe.Target, every time.Duration, err error) {
			err = ask(ctx, t.engine, func() {
				if every, _ = t.objects.monitors.Get(derive.Object{Name: crdv1alpha1.NodeLatencyMonitorName}); every == 0 {
					return
				}
				for _, row := range t.remotes.All() {
					for _, to := range row.Value.GatewayIPs {
						out = append(out, probe.Target{Node: row.Value.Name, Addr: to})
					}
				}
			})
			return out, every, err
		}}
}

// run probes until ctx ends. Without targets it has no socket.
func (p *nodeProbes) run(ctx context.Context) error {
	defer p.close(func(bool) bool { return true })
	some := false
	probeLoop(ctx, func(now time.Time) bool {
		targets, every, err := p.targets(ctx)
		if err != nil {
			return some // the agent ends, or is busy
		}
		p.open(targets)
		p.Set(now, targets, every)
		some = len(targets) > 0
		return some
	}, func(time.Time) { p.send() })
	return nil
}

// open opens and closes sockets, so that each version of IP of the targets has one.
func (p *nodeProbes) open(targets []probe.Target) {
	wanted := func(six bool) bool {
		return slices.ContainsFunc(targets, func(t probe.Target) bool { return t.Addr.Is6() == six })
	}
	p.close(func(six bool) bool { return !wanted(six) })
	for _, six := range []bool{false, true} {
		if !wanted(six) || p.sockets[six] != nil {
			continue
		}
		conn, err := pingSocket(six)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != p.failed[six] && text != "" {
			p.log.Error("Nodes are not probed", "error", text)
		}
		if p.failed[six] = text; err != nil {
			continue
		}
		p.sockets[six] = conn
		p.reading.Go(func() { p.read(conn, six) })
	}
}

// close closes some sockets.
func (p *nodeProbes) close(which func(six bool) bool) {
	for six, conn := range p.sockets {
		if which(six) {
			_ = conn.Close()
			delete(p.sockets, six)
		}
	}
	if len(p.sockets) == 0 {
		p.reading.Wait()
	}
}

// pingSocket returns a socket that gets echo replies alone.
func pingSocket(six bool) (*icmp.PacketConn, error) {
	network, address := "ip4:icmp", "0.0.0.0"
	if six {
		network, address = "ip6:ipv6-icmp", "::"
	}
	conn, err := icmp.ListenPacket(network, address)
	if err != nil {
		return nil, fmt.Errorf("open a socket for echo requests: %w", err)
	}
	if six {
		var f ipv6.ICMPFilter
		f.SetAll(true)
		f.Accept(ipv6.ICMPTypeEchoReply)
		err = conn.IPv6PacketConn().SetICMPFilter(&f)
	} else {
		var f ipv4.ICMPFilter
		f.SetAll(true)
		f.Accept(ipv4.ICMPTypeEchoReply)
		err = conn.IPv4PacketConn().SetICMPFilter(&f)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("have a socket take echo replies alone: %w", err)
	}
	return conn, nil
}

// pingLen is the length of a probe's payload: its nonce and its number.
const pingLen = 8 + 4

// send sends the requests that are due.
func (p *nodeProbes) send() {
	for _, one := range p.Due(time.Now()) {
		payload := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, one.Nonce), one.Seq)
		m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: int(uint16(one.Nonce)), Seq: int(uint16(one.Seq)),
			Data: payload}}
		six := one.Addr.Is6()
		if six {
			m.Type = ipv6.ICMPTypeEchoRequest
		}
		err := errors.New("there is no socket")
		if conn := p.sockets[six]; conn != nil {
			var text []byte
			if text, err = m.Marshal(nil); err == nil { // the kernel writes the checksum of ICMPv6
				p.Sending(one, time.Now())
				_, err = conn.WriteTo(text, &net.IPAddr{IP: one.Addr.AsSlice()})
			}
		}
		if err != nil {
			p.Unsent(one)
			p.log.Debug("probe of a Node not sent", "to", one.Addr, "error", err)
		}
	}
}

// read takes replies until the socket is closed.
func (p *nodeProbes) read(conn *icmp.PacketConn, six bool) {
	buffer := make([]byte, 256)
	for {
		n, from, err := conn.ReadFrom(buffer)
		now := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as a report that a Node is not reached
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if one, ok := replyOf(buffer[:n], from, six); ok {
			_ = p.Take(one, now) // what is no sample is counted
		}
	}
}

// replyOf reads an echo reply. Replies to other programs are not of a probe's length.
func replyOf(packet []byte, from net.Addr, six bool) (out probe.Ping, ok bool) {
	protocol := protoICMP
	if six {
		protocol = protoICMPv6
	}
	m, err := icmp.ParseMessage(protocol, packet)
	if err != nil || m.Type != ipv4.ICMPTypeEchoReply && m.Type != ipv6.ICMPTypeEchoReply {
		return out, false
	}
	echo, isEcho := m.Body.(*icmp.Echo)
	at, isIP := from.(*net.IPAddr)
	if !isEcho || !isIP || len(echo.Data) != pingLen {
		return out, false
	}
	addr, ok := netip.AddrFromSlice(at.IP)
	return probe.Ping{Addr: addr.Unmap(), Nonce: binary.BigEndian.Uint64(echo.Data),
		Seq: binary.BigEndian.Uint32(echo.Data[8:])}, ok
}
