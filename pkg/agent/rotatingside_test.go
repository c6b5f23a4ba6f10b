package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
)

// asRotatingSide makes the test's binary the Gateway of a cluster, or a Node. It has devices, routes and rotation, but
// no switch. A socket sends the packets that a switch would send into the tunnel.
const asRotatingSide = "TOMBOLO_TEST_ROTATING_SIDE"

// sideSpec is one of several clusters, or Nodes.
type sideSpec struct {
	Dir   string
	Nodes bool
	Self  int
	Whole bool // all of an agent, and a switch: see wholeside_test.go
}

// These functions return the facts of each side.
func sideName(i int) string     { return string(rune('a' + i)) }
func sideAddress(i int) string  { return fmt.Sprintf("192.168.78.%d", 101+i) }
func sideServices(i int) string { return fmt.Sprintf("10.%d.0.0/16", 97+i) }

// inside is where tunnels to a side end.
func (s sideSpec) inside(i int) netip.Addr {
	if s.Nodes {
		return peering.InsideOfNode(netip.MustParseAddr(sideAddress(i)))
	}
	return netip.MustParsePrefix(sideServices(i)).Addr()
}

func (s sideSpec) links() (first, second insideLink) {
	if s.Nodes {
		return betweenNodes, secondBetweenNodes
	}
	return betweenClusters, secondBetweenClusters
}

// sideOrder is an order to a side, on one line.
type sideOrder struct {
	Peers     map[int]mcv1alpha1.WireGuardInfo // that the others announce, and a whole agent itself
	NotBefore string
	Restart   bool // the agent, but not the process that serves the devices
	Away      bool // it stops, until Restart
	Load      bool // begin to send, to all peers
	Stop      bool // sending
	Look      bool // report the devices

	// Of a whole agent.
	Switch   string // the run directory of its Open vSwitch; the side begins once it is set
	Ordinary bool   // its Node is no Gateway
	// Endpoints are where connections to port 7 of echoService go.
	Endpoints []string
}

// sideReport is a report of a side, on one line.
type sideReport struct {
	Info           mcv1alpha1.WireGuardInfo
	Peers          int
	Second         bool // packets go by the second device
	Sent, Answered int
	Begun, Ended   int // how often it has sent
	Problems       []string
	Kind           string // of the first device
	Devices        string // at the last order to look at them
	Ready          bool   // a whole agent is
}

// echoService is the ClusterIP of a Service of Nodes.
const echoService = "10.97.0.10"

func (s sideSpec) view(order sideOrder) View {
	conf := config.Default()
	name := sideName(s.Self)
	node := testNode(name, sideAddress(s.Self), sidePods(s.Self))
	v := View{
		NodeName: name, settings: settings{GatewayMAC: "02:00:00:00:00:01"}, Nodes: []*corev1.Node{node},
		Underlay: Underlay{MTU: 1500, Local: []netip.Addr{netip.MustParseAddr(sideAddress(s.Self))}},
	}
	if s.Whole {
		conf.OVSDatapathType = ovstest.Datapath()
	}
	if conf.OVSDatapathType == "netdev" {
		conf.TransportInterface = "wire" // the switch takes it over
	}
	if s.Nodes {
		conf.TrafficEncryptionMode = "wireGuard"
		node.Annotations = map[string]string{nodeKeyNotBefore: order.NotBefore}
		for i, info := range order.Peers {
			n := node
			if i != s.Self {
				n = testNode(sideName(i), sideAddress(i), sidePods(i))
				n.Annotations = map[string]string{}
				v.Nodes = append(v.Nodes, n)
			}
			n.Annotations[nodeKey] = info.PublicKey
			if info.NextPort != 0 {
				n.Annotations[nextNodePort] = fmt.Sprint(info.NextPort)
			}
			if info.NextPublicKey != "" {
				n.Annotations[nextNodeKey] = info.NextPublicKey
			}
		}
		v.Config = conf
		if len(order.Endpoints) > 0 {
			v.ServiceCIDRs = []*networkingv1.ServiceCIDR{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
				Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{sideServices(0)}}}}
			v.Services = []*corev1.Service{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo"},
				Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeClusterIP, ClusterIP: echoService, ClusterIPs: []string{echoService},
					Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 7}},
				},
			}}
			v.EndpointSlices = []*discoveryv1.EndpointSlice{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo-1",
					Labels: map[string]string{discoveryv1.LabelServiceName: "echo"}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(int32(7))}},
			}}
			for _, ip := range order.Endpoints {
				v.EndpointSlices[0].Endpoints = append(v.EndpointSlices[0].Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
			}
		}
		return v
	}
	conf.FeatureGates = map[string]bool{"Multicluster": true}
	conf.Multicluster.EnableGateway, conf.Multicluster.TrafficEncryptionMode = true, "wireGuard"
	node.Annotations = map[string]string{multicluster.AnnotationKeyNotBefore: order.NotBefore}
	if s.Whole {
		conf.Multicluster.EnablePodToPodConnectivity = true
		if ovstest.System() {
			conf.Multicluster.BFD.Interval = time.Second // a guest without hardware acceleration is often slow
		}
	}
	v.Config = conf
	v.ServiceCIDRs = []*networkingv1.ServiceCIDR{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{sideServices(s.Self)}}}}
	v.Gateways = []*mcv1alpha1.Gateway{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, GatewayIP: sideAddress(s.Self),
		InternalIP: sideAddress(s.Self), ServiceCIDR: sideServices(s.Self),
	}}
	if order.Ordinary {
		v.Gateways = nil
	}
	for i, info := range order.Peers {
		if i == s.Self {
			if !order.Ordinary {
				s.joined(v.Gateways[0], info)
			}
			continue
		}
		ci := &mcv1alpha1.ClusterInfoImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: sideName(i)},
			Spec: mcv1alpha1.ClusterInfo{ClusterID: sideName(i), ServiceCIDR: sideServices(i),
				GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: sideAddress(i)}}, WireGuard: &info},
		}
		if s.Whole {
			announces(&ci.Spec, i)
		}
		v.ClusterInfoImports = append(v.ClusterInfoImports, ci)
	}
	return v
}

// sidePods are the Pods of a side.
func sidePods(i int) string { return fmt.Sprintf("10.11.%d.0/24", i) }

// sideInside is where tunnels to a whole agent's Gateway end.
func sideInside(i int) string { return claims.InsideOf(netip.MustParseAddr(sideAddress(i))).String() }

// joined gives a Gateway the state that it has after its agent has announced a key.
func (s sideSpec) joined(g *mcv1alpha1.Gateway, info mcv1alpha1.WireGuardInfo) {
	g.WireGuard = &info
	g.Annotations = map[string]string{multicluster.AnnotationInsideIP: sideInside(s.Self),
		multicluster.AnnotationKeptPods: sidePods(s.Self)}
}

// announces turns a cluster with one inside address into the form that the member controller writes.
func announces(ci *mcv1alpha1.ClusterInfo, i int) {
	ci.PodCIDRs = []string{sidePods(i)}
	ci.Features = []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeaturePreserveClientIP,
		mcv1alpha1.FeatureSingleWays, mcv1alpha1.FeatureWayEcho}
	if ci.WireGuard.InsideIP != "" {
		ci.GatewayInfos[0].WireGuard = ci.WireGuard.DeepCopy()
		ci.WireGuard.InsideIP = ""
	}
}

// rotatingSide is the process of one side, until its standard input ends.
func rotatingSide(text string) error {
	var spec sideSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	const sockets = "/var/run/wireguard" // one path in both clusters
	if err := os.MkdirAll(sockets, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", sockets, "tmpfs", 0, ""); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	first, second := spec.links()
	for _, l := range []insideLink{first, second} {
		device := l.name
		if spec.Whole && !ovstest.System() {
			device = l.tap
		}
		go wireguard.Serve(ctx, device, log)
	}
	orders := make(chan sideOrder)
	go func() {
		defer close(orders)
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			var o sideOrder
			if json.Unmarshal(lines.Bytes(), &o) == nil {
				orders <- o
			}
		}
	}()
	if spec.Whole {
		return wholeSide(ctx, spec, orders, log)
	}
	host := hostnet.New(hostnet.Options{Logger: log})
	go func() { _ = host.Run(ctx) }()
	var state sideOrder
	agent := startSide(ctx, spec, state, host, log)
	load := &sideLoad{spec: spec, log: log}
	tick := time.NewTicker(100 * time.Millisecond) // a pass is a third of what a side costs
	var reports reports
	way, away, devices := "", false, ""
	for {
		select {
		case o, ok := <-orders:
			switch {
			case !ok:
				agent.stop()
				return nil
			case o.Away:
				agent.stop()
				away = true
			case o.Restart:
				agent.stop()
				agent, away = startSide(ctx, spec, state, host, log), false
			case o.Load:
				load.start(slices.Sorted(maps.Keys(state.Peers)))
			case o.Stop:
				load.stop()
			case o.Look:
				devices = agent.look()
			default:
				state = o
				agent.tables.kinds.Fill(spec.view(o).objects()...)
			}
		case <-tick.C:
		}
		row := agent.last
		if !away {
			row = agent.pass(host)
		}
		if now := fmt.Sprint(row.of(first).Unused, row.of(second).Unused); now != way {
			way = now
			log.Info("other devices are used", "notFirst", row.of(first).Unused, "notSecond", row.of(second).Unused)
		}
		if row.of(first).Base.IsValid() {
			load.echo()
		}
		report := sideReport{
			Peers: len(row.of(first).Peers), Second: len(row.of(first).Unused) > 0, Problems: texts(agent.rotation.problems()),
			Kind: agent.encryptions[0].device.State().Kind, Devices: devices,
		}
		report.Info, _ = agent.rotation.published()
		report.Sent, report.Answered, report.Begun, report.Ended = load.result()
		reports.write(report)
	}
}

// reports has the last report to the test.
type reports struct{ last string }

// write reports a change to the test.
func (r *reports) write(report sideReport) {
	if line, err := json.Marshal(report); err == nil && string(line) != r.last {
		r.last = string(line)
		fmt.Println(r.last)
	}
}

// sideTimes returns shorter times than an agent's. A guest without hardware acceleration needs longer for each step.
func sideTimes() rotationTimes {
	t := rotationTimes{
		look: 100 * time.Millisecond, settle: time.Second, follow: 2 * time.Second, sessionless: 6 * time.Second,
		report: 5 * time.Second, turn: 5 * time.Second, remain: 3 * time.Second, lost: usualTimes.lost,
	}
	if ovstest.System() {
		t.settle, t.follow, t.sessionless = 2*time.Second, 4*time.Second, 12*time.Second
	}
	return t
}

// side is the agent's part of a side, which is restarted.
type side struct {
	tables      *tables
	rotation    *rotation
	encryptions []*encryption
	link        insideLink
	last        encrypted
	stop        func()
}

// pairOf returns a link and the second link of its pair.
func pairOf(all []*encryption, first insideLink) []*encryption {
	i := slices.IndexFunc(all, func(e *encryption) bool { return e.link == first })
	return all[i : i+2]
}

func startSide(ctx context.Context, spec sideSpec, state sideOrder, host *hostnet.Manager, log *slog.Logger) *side {
	ctx, cancel := context.WithCancel(ctx)
	v := spec.view(state)
	var running sync.WaitGroup
	s := &side{tables: newTables(v.Config, v.NodeName), stop: func() { cancel(); running.Wait() }}
	s.link, _ = spec.links()
	s.encryptions = pairOf(newEncryptions(Options{Config: v.Config, StateDir: spec.Dir, Logger: log}), s.link)
	s.rotation = newRotation(s.encryptions[0], s.tables, v.NodeName, log)
	s.rotation.times = sideTimes()
	s.rotation.ready, s.rotation.announce = func() bool { return true }, func() {}
	s.tables.set(v)
	s.rotation.ready = func() bool { return false }
	s.rotation.observe()
	s.rotation.ready = func() bool { return len(s.rotation.partners()) > 0 }
	s.pass(host)
	for _, e := range s.encryptions {
		running.Go(func() { _ = e.device.Run(ctx) })
	}
	running.Go(func() { s.rotation.run(ctx) })
	return s
}

// look describes the devices, for a test that has failed.
func (s *side) look() string {
	client, err := wgctrl.New()
	if err != nil {
		return err.Error()
	}
	defer client.Close()
	var out strings.Builder
	for _, e := range s.encryptions {
		d, err := client.Device(e.deviceName)
		if err != nil {
			fmt.Fprintf(&out, " [%s: %v]", e.deviceName, err)
			continue
		}
		fmt.Fprintf(&out, " [%s: key %.6s port %d", d.Name, d.PublicKey, d.ListenPort)
		for _, p := range d.Peers {
			fmt.Fprintf(&out, "; peer %.6s at %s handshake %s sent %d received %d", p.PublicKey, p.Endpoint,
				time.Since(p.LastHandshakeTime).Round(time.Second), p.TransmitBytes, p.ReceiveBytes)
		}
		out.WriteString("]")
	}
	return time.Now().Format("15:04:05.000") + out.String()
}

// pass does the agent's work after a change.
func (s *side) pass(host *hostnet.Manager) encrypted {
	s.tables.engine.Pass()
	row, _ := s.tables.inside.encrypted.Get(self)
	if want, ok := s.tables.outputs.host.Get(self); ok && row.of(s.link).Base.IsValid() {
		host.Set(want)
		for _, e := range s.encryptions {
			e.set(row)
		}
	}
	s.last = row
	return row
}

// sideLoad sends and answers datagrams at the addresses inside.
type sideLoad struct {
	spec     sideSpec
	log      *slog.Logger // logs the lost ones
	answers  *net.UDPConn
	mu       sync.Mutex
	sent     int
	answered map[uint64]bool
	stopping chan struct{}

	begun, ended int
}

func (s sideSpec) at(i int, port uint16) *net.UDPAddr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.inside(i), port))
}

// echo answers, once the address is there.
func (l *sideLoad) echo() {
	if l.answers != nil {
		return
	}
	c, err := net.ListenUDP("udp4", l.spec.at(l.spec.Self, 7))
	if err != nil {
		return
	}
	l.answers = c
	roomy(c)
	go func() {
		b := make([]byte, 2000)
		for {
			if n, from, err := c.ReadFromUDPAddrPort(b); err == nil {
				_, _ = c.WriteToUDPAddrPort(b[:n], from)
			}
		}
	}()
}

// inFlight is how many datagrams may have no answer yet. More would fill a queue while a switch or a WireGuard device
// waits for a processor.
const inFlight = 100

// open returns how many of the first n datagrams have no answer yet.
func (l *sideLoad) open(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return n - len(l.answered)
}

// start sends a datagram every 5 ms, to some sides in turn, and counts the answers.
func (l *sideLoad) start(to []int) {
	stopping := make(chan struct{})
	l.mu.Lock()
	l.sent, l.answered, l.stopping = 0, map[uint64]bool{}, stopping
	l.begun++
	l.mu.Unlock()
	var conns []*net.UDPConn
	for _, i := range to {
		c, err := net.DialUDP("udp4", l.spec.at(l.spec.Self, 0), l.spec.at(i, 7))
		if err != nil {
			l.log.Error("send", "error", err)
			l.mu.Lock()
			l.sent++ // and lost
			l.mu.Unlock()
			continue
		}
		conns = append(conns, c)
		roomy(c)
		go func() {
			b := make([]byte, 2000)
			for {
				n, err := c.Read(b)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if n >= 8 {
					l.mu.Lock()
					l.answered[binary.BigEndian.Uint64(b)] = true
					l.mu.Unlock()
				}
			}
		}()
	}
	go func() {
		packet := make([]byte, 200)
		var times []time.Time
		for {
			select {
			case <-stopping:
				tick := time.NewTicker(10 * time.Millisecond)
				for end := time.Now().Add(5 * time.Second); l.open(len(times)) > 0 && time.Now().Before(end); {
					<-tick.C // for datagrams on the wire
				}
				tick.Stop()
				l.mu.Lock()
				for i, at := range times {
					if !l.answered[uint64(i)] {
						l.log.Info("lost", "packet", i, "sent", at)
					}
				}
				for _, c := range conns {
					c.Close()
				}
				l.ended++
				l.mu.Unlock()
				return
			case <-time.After(5 * time.Millisecond):
			}
			if len(conns) == 0 || l.open(len(times)) >= inFlight {
				continue
			}
			binary.BigEndian.PutUint64(packet, uint64(len(times)))
			to := conns[len(times)%len(conns)]
			times = append(times, time.Now())
			_, _ = to.Write(packet)
			l.mu.Lock()
			l.sent++
			l.mu.Unlock()
		}
	}()
}

// roomy enlarges a socket's buffer. So the socket loses nothing while its process waits for a processor.
func roomy(c *net.UDPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) })
	}
}

func (l *sideLoad) stop() {
	if l.stopping != nil {
		close(l.stopping)
		l.stopping = nil
	}
}

// result is final once sending has ended. Before that there is no result.
func (l *sideLoad) result() (sent, answered, begun, ended int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended < l.begun {
		return 0, 0, l.begun, l.ended
	}
	return l.sent, len(l.answered), l.begun, l.ended
}
