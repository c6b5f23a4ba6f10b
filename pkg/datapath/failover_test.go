package datapath

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// bfdInterval returns the interval of BFD in milliseconds. It is longer than the product's 100 ms. These tests ask how
// a lost way affects other ways, and a switch without processor time for a second has not lost a way. A guest without
// hardware acceleration needs an even longer interval.
func bfdInterval() int {
	if ovstest.System() {
		return 1000
	}
	return 500
}

// streamPace returns the time between two lines of a stream. If a switch gets no processor time for a second, it then
// forwards the packets in its sockets' queues, some 500 packets. 20 streams at this pace fit in. So a line without an
// answer is a line that the tables lost.
func streamPace() time.Duration {
	if ovstest.System() {
		return 200 * time.Millisecond
	}
	return 100 * time.Millisecond
}

// watch adds the ports with BFD of a Node, as the agent does.
func (n *realNode) watch(t testing.TB, s State) {
	t.Helper()
	for end, port := range s.Ways {
		n.addWay(t, fmt.Sprintf("bfd-%x", end.AsSlice()), "geneve", s.Node.Tunnels.Source, end, port)
	}
}

// addWay adds a port with BFD.
func (n *realNode) addWay(t testing.TB, name, tunnelType string, from, to netip.Addr, port ofp.Port) {
	t.Helper()
	n.ovs.vsctl(t, "add-port", "br-int", name, "--", "set", "interface", name, "type="+tunnelType,
		fmt.Sprintf("options:remote_ip=%q", to), "options:key=flow", fmt.Sprintf("options:local_ip=%q", from),
		fmt.Sprintf("ofport_request=%d", port),
		"bfd:enable=true", fmt.Sprintf("bfd:min_tx=%d", bfdInterval()), fmt.Sprintf("bfd:min_rx=%d", bfdInterval()),
		"bfd:mult=3", `bfd:bfd_local_dst_mac="aa:bb:cc:dd:ee:0f"`, `bfd:bfd_remote_dst_mac="aa:bb:cc:dd:ee:0f"`)
}

// vswitchd is the process of a Node's switch.
func (n *realNode) vswitchd(t testing.TB) *os.Process {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.ovs.dir, "ovs-vswitchd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// flood is a client's flow of lines. The server answers each with the client's address as it sees it.
type flood struct {
	conn net.Conn
	mu   sync.Mutex
	last time.Time
	gap  time.Duration // the longest between answers
	by   []string      // addresses, in the order in which they came

	held          bool // nothing is sent
	sent, answers int
}

func (s *flood) run() {
	go func() {
		for {
			s.mu.Lock()
			var err error
			if !s.held {
				_, err = s.conn.Write([]byte("?\n"))
				s.sent++
			}
			s.mu.Unlock()
			if err != nil && strings.Contains(err.Error(), "closed") {
				return
			}
			time.Sleep(streamPace())
		}
	}()
	lines := bufio.NewReader(s.conn)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if strings.Contains(err.Error(), "closed") {
				return
			}
			continue
		}
		_, by, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.mu.Lock()
		if now := time.Now(); !s.last.IsZero() {
			s.gap, s.last = max(s.gap, now.Sub(s.last)), now
		} else {
			s.last = now
		}
		s.answers++
		if !slices.Contains(s.by, by) {
			s.by = append(s.by, by)
		}
		s.mu.Unlock()
	}
}

// now returns the counts of the stream, and starts a new gap.
func (s *flood) now() (gap time.Duration, by []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gap, s.gap = s.gap, 0
	return gap, slices.Clone(s.by)
}

// unanswered holds the streams until the packets on their way have arrived. It returns how many lines of each have no
// answer, and resets the counts.
func unanswered(streams []*flood) []int {
	for _, s := range streams {
		s.mu.Lock()
		s.held = true
		s.mu.Unlock()
	}
	lost := make([]int, len(streams))
	for deadline := time.Now().Add(silence()); ; time.Sleep(50 * time.Millisecond) {
		all := 0
		for i, s := range streams {
			s.mu.Lock()
			lost[i] = s.sent - s.answers
			s.mu.Unlock()
			all += lost[i]
		}
		if all == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, s := range streams {
		s.mu.Lock()
		s.sent, s.answers, s.gap, s.last, s.held = 0, 0, 0, time.Now(), false
		s.mu.Unlock()
	}
	return lost
}

// TestFailover stops one of two Gateways under traffic, by its link and then by its switch. Streams of the other
// Gateway lose nothing. Streams of the stopped one are back when BFD has noticed, and new connections use the Gateway
// that is left.
//
//tombolo:alone
func TestFailover(t *testing.T) {
	a := activeClusters{gateways: map[string][]int{"east": {3, 4}, "west": {1}}}
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	nodes := map[string]*realNode{}
	states := map[string]State{}
	for _, name := range []string{"east1", "east3", "east4", "west1"} {
		cluster, n := name[:4], int(name[4]-'0')
		s := a.state(t, cluster, n)
		if cluster == "east" {
			s.Frontends = []service.Frontend{frontend("antrea-mc-dns", corev1.ProtocolUDP, "10.97.0.20:53", "10.96.0.24:53"),
				frontend("antrea-mc-nginx", corev1.ProtocolTCP, "10.97.0.14:80", "10.96.0.20:80")}
		} else {
			s.Frontends = []service.Frontend{frontend("dns", corev1.ProtocolUDP, "10.96.0.24:53", "10.10.0.2:5353"),
				frontend("nginx", corev1.ProtocolTCP, "10.96.0.20:80", "10.10.0.2:8080")}
			s.Exported = exported("dns", "nginx")
		}
		states[name] = s
		nodes[name] = newNode(t, underlay, s, name, activeAddr(cluster, n), activeServices(cluster).String())
		nodes[name].watch(t, s)
	}
	nodes["west1"].pods[0].serve(t, "udp", ":5353", "west1")
	nodes["west1"].pods[0].serve(t, "tcp", ":8080", "west1")
	pairs := [][2]string{{"east1", "east3"}, {"east1", "east4"}, {"east3", "west1"}, {"east4", "west1"}}
	waysUp(t, nodes, states, pairs)
	client := nodes["east1"].pods[0]
	var streams []*flood
	lost, left := activeAddr("east", 3).String(), activeAddr("east", 4).String()
	for _, loss := range []struct {
		how        string
		take, give func()
	}{
		{"link cut", func() { underlay.ip(t, "link set east3 down") }, func() { underlay.ip(t, "link set east3 up") }},
		{"switch killed", func() {
			if err := nodes["east3"].vswitchd(t).Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		for len(streams) < 20 { // fewer may all take one way
			c, err := client.dial("udp", "10.97.0.20:53")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			s := &flood{conn: c}
			streams = append(streams, s)
			go s.run()
		}
		var ofLost, ofLeft []*flood
		eventually(t, "all streams are answered", func() error {
			ofLost, ofLeft = nil, nil
			for _, s := range streams {
				switch _, by := s.now(); {
				case slices.Equal(by, []string{lost}):
					ofLost = append(ofLost, s)
				case slices.Equal(by, []string{left}):
					ofLeft = append(ofLeft, s)
				default:
					s.mu.Lock()
					s.by = nil // it may have moved while a switch was short of time
					s.mu.Unlock()
					return fmt.Errorf("a stream goes by %v", by)
				}
			}
			return nil
		})
		t.Logf("%s: %d streams by one of the Gateways, %d by the other", loss.how, len(ofLost), len(ofLeft))
		if len(ofLost) < 2 || len(ofLeft) < 2 {
			t.Errorf("%d and %d streams: they are not spread", len(ofLost), len(ofLeft))
		}
		conn, err := dialBy(client, left)
		if err != nil {
			t.Fatal(err)
		}
		unanswered(streams)
		loss.take()
		eventually(t, "the streams are back", func() error {
			for _, s := range ofLost {
				s.mu.Lock()
				by := slices.Clone(s.by)
				s.mu.Unlock()
				if !slices.Contains(by, left) {
					return fmt.Errorf("a stream goes by %v", by)
				}
			}
			return nil
		})
		var gaps, others []time.Duration
		for _, s := range ofLost {
			gap, _ := s.now()
			gaps = append(gaps, gap)
		}
		for _, s := range ofLeft {
			gap, by := s.now()
			others = append(others, gap)
			if !slices.Equal(by, []string{left}) {
				t.Errorf("%s: a stream of the other Gateway goes by %v", loss.how, by)
			}
		}
		slices.Sort(gaps)
		slices.Sort(others)
		t.Logf("%s: streams of the lost Gateway were away for %s to %s, median %s; the longest pause of the others is %s",
			loss.how, gaps[0], gaps[len(gaps)-1], gaps[len(gaps)/2], others[len(others)-1])
		if missed := unanswered(ofLeft); slices.Max(missed) > 0 {
			t.Errorf("%s: streams of the other Gateway miss %v answers", loss.how, missed)
		}
		if _, err := ping(conn); err != nil {
			t.Errorf("%s: the connection by the other Gateway: %v", loss.how, err)
		}
		conn.Close()
		for range 10 {
			newConnection(t, client, "10.97.0.14:80", "west1 "+left)
		}
		if loss.give == nil {
			continue
		}
		loss.give()
		waysUp(t, nodes, states, pairs)
		for _, s := range ofLost { // they stay on their new way, and others replace them
			s.conn.Close()
		}
		streams = ofLeft
	}
}

// newConnection waits for an answer from the wanted server, since BFD takes more ways down if switches are short of
// time.
func newConnection(t testing.TB, client namespace, to, want string) {
	t.Helper()
	eventually(t, "a new connection to "+to+" is answered", func() error {
		answer, err := client.askWithin(silence(), "tcp", to)
		if err == nil && answer != want {
			t.Errorf("a new connection is answered %q, want %q", answer, want)
		}
		return err
	})
}

// waysUp waits for BFD between pairs of Nodes: until it is up, and both ends use their interval. BFD begins with an
// interval of a second (RFC 5880, 6.8.3). If a way is lost before both have agreed on another interval, BFD finds it
// after three seconds.
func waysUp(t testing.TB, nodes map[string]*realNode, states map[string]State, pairs [][2]string) {
	t.Helper()
	for _, pair := range pairs {
		eventually(t, "BFD is up between "+pair[0]+" and "+pair[1], func() error {
			for i, node := range pair {
				end := states[pair[1-i]].Node.Tunnels.Ends[0]
				text := nodes[node].ovs.appctl(t, "bfd/show", fmt.Sprintf("bfd-%x", end.AsSlice()))
				if !strings.Contains(text, "Local Session State: up") ||
					!strings.Contains(text, fmt.Sprintf("RX Interval: Approx %dms", bfdInterval())) {
					return fmt.Errorf("%s: %s", node, text)
				}
			}
			return nil
		})
	}
}

// TestFailoverUntranslated cuts the link of a Gateway, and then stops the switch of one on either side, one after the
// other. Connections between Pods, by their addresses and through a Service, go on, and the server always sees the
// client's address.
//
//tombolo:alone
func TestFailoverUntranslated(t *testing.T) {
	a := reaching()
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	nodes := map[string]*realNode{}
	states := map[string]State{}
	for _, name := range []string{"east1", "east3", "east4", "west1", "west2", "west3"} {
		cluster, _, n := clusterOf(name)
		s := a.state(t, cluster, n)
		if cluster == "east" {
			s.Frontends = []service.Frontend{frontend("antrea-mc-nginx", corev1.ProtocolTCP, "10.97.0.14:80", "10.10.2.2:8080")}
		} else {
			s.Frontends = nil
		}
		states[name] = s
		nodes[name] = newNode(t, underlay, s, name, activeAddr(cluster, n), activeServices(cluster).String())
		nodes[name].watch(t, s)
	}
	server := nodes["west3"].pods[0]
	server.serve(t, "udp", ":5353", "west3")
	server.serve(t, "tcp", ":8080", "west3")
	pairs := [][2]string{{"east1", "east3"}, {"east1", "east4"}, {"west3", "west1"}, {"west3", "west2"},
		{"east3", "west1"}, {"east3", "west2"}, {"east4", "west1"}, {"east4", "west2"}}
	waysUp(t, nodes, states, pairs)
	client, own := nodes["east1"].pods[0], podOf("east1").String()
	var streams []*flood
	open := func(network, to string) {
		t.Helper()
		var c net.Conn
		eventually(t, network+" "+to+" answers", func() (err error) {
			c, err = client.dialWithin(silence(), network, to)
			return err
		})
		t.Cleanup(func() { c.Close() })
		s := &flood{conn: c}
		streams = append(streams, s)
		go s.run()
	}
	for range 10 {
		open("udp", "10.10.2.2:5353")
		open("tcp", "10.10.2.2:8080")
		open("tcp", "10.97.0.14:80")
	}
	answered := func(what string) {
		t.Helper()
		before := make([]int, len(streams))
		for i, s := range streams {
			s.mu.Lock()
			before[i] = s.answers
			s.mu.Unlock()
		}
		eventually(t, what, func() error {
			for i, s := range streams {
				s.mu.Lock()
				answers, by := s.answers, slices.Clone(s.by)
				s.mu.Unlock()
				if answers < before[i]+2 { // one may have been on its way
					return fmt.Errorf("%s to %s is not answered", s.conn.LocalAddr(), s.conn.RemoteAddr())
				}
				if !slices.Equal(by, []string{own}) {
					t.Fatalf("the server sees %v, want %s", by, own)
				}
			}
			return nil
		})
	}
	answered("all streams are answered")
	for _, loss := range []struct {
		gateway string
		cut     bool // its link, which is mended then; else its switch is killed
		notice  []string
	}{{"east4", true, []string{"east1", "west1", "west2"}}, {"east3", false, []string{"east1", "west1", "west2"}},
		{"west1", false, []string{"east4", "west3"}}} {
		lost := loss.gateway
		for _, s := range streams {
			s.now()
		}
		if loss.cut {
			underlay.ip(t, "link set "+lost+" down")
		} else if err := nodes[lost].vswitchd(t).Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, node := range loss.notice {
			eventually(t, node+" notices that "+lost+" is gone", func() error {
				if text := strings.TrimSpace(nodes[node].ovs.vsctl(t, "get", "interface",
					fmt.Sprintf("bfd-%x", states[lost].Node.Tunnels.Ends[0].AsSlice()), "bfd_status:state")); text != "down" {
					return fmt.Errorf("BFD is %s", text)
				}
				return nil
			})
			// The agent uses this to distinguish a way that was lost from a way that never was up.
			if text := strings.TrimSpace(nodes[node].ovs.vsctl(t, "get", "interface",
				fmt.Sprintf("bfd-%x", states[lost].Node.Tunnels.Ends[0].AsSlice()), "bfd_status:flap_count")); text == `"0"` ||
				text == "0" {
				t.Errorf("%s counts no loss of %s", node, lost)
			}
		}
		answered("all streams go on without " + lost)
		gaps := map[string][]time.Duration{}
		for _, s := range streams {
			gap, by := s.now()
			if !slices.Equal(by, []string{own}) {
				t.Errorf("the server sees %v, want %s", by, own)
			}
			network := s.conn.LocalAddr().Network()
			gaps[network] = append(gaps[network], gap)
		}
		for network, list := range gaps {
			slices.Sort(list)
			t.Logf("%s lost: the longest pauses of %d streams of %s are %s to %s, median %s", lost, len(list), network, list[0],
				list[len(list)-1], list[len(list)/2])
		}
		newConnection(t, client, "10.97.0.14:80", "west3 "+own)
		if loss.cut {
			underlay.ip(t, "link set "+lost+" up")
			waysUp(t, nodes, states, pairs)
			answered("all streams go on when " + lost + " is back")
		}
	}
	for _, gateway := range []string{"east4", "west2"} {
		if tracked := nodes[gateway].ovs.appctl(t, "dpctl/dump-conntrack"); strings.Contains(tracked, own) {
			t.Errorf("%s tracks\n%s", gateway, tracked)
		}
	}
}

// ping sends a line on a connection and returns the address that the server sees.
func ping(c net.Conn) (netip.Addr, error) {
	if err := c.SetDeadline(time.Now().Add(silence())); err != nil {
		return netip.Addr{}, err
	}
	if _, err := c.Write([]byte("?\n")); err != nil {
		return netip.Addr{}, err
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil {
		return netip.Addr{}, err
	}
	_, text, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
	return netip.ParseAddr(text)
}

// dialBy makes connections until one goes through a Gateway.
func dialBy(from namespace, gateway string) (net.Conn, error) {
	var last error
	for range 50 {
		c, err := from.dialWithin(silence(), "tcp", "10.97.0.14:80")
		if err != nil {
			last = err
			continue
		}
		by, err := ping(c)
		if err == nil && by.String() == gateway {
			return c, nil
		}
		c.Close()
		if last = err; err == nil {
			last = fmt.Errorf("the last one goes by %s", by)
		}
	}
	return nil, fmt.Errorf("of 50 connections none goes by %s: %w", gateway, last)
}

// TestBFDNeverUp takes a way that was never up. It counts no loss, and the agent recognizes it from that.
func TestBFDNeverUp(t *testing.T) {
	o := dummyBridge(t)
	o.vsctl(t, "add-port", "br-int", "bfd-nobody", "--", "set", "interface", "bfd-nobody", "type=geneve",
		"options:remote_ip=192.0.2.1", "options:key=flow",
		"bfd:enable=true", "bfd:min_tx=100", "bfd:min_rx=100", "bfd:mult=3")
	eventually(t, "BFD reports", func() error {
		if text := o.vsctl(t, "get", "interface", "bfd-nobody", "bfd_status"); !strings.Contains(text, `flap_count="0"`) ||
			!strings.Contains(text, "state=down") {
			return fmt.Errorf("BFD says %s", text)
		}
		return nil
	})
}
