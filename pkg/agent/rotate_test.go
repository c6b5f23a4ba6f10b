package agent

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
	"github.com/tombolo-net/tombolo/test/logtext"
)

// rotating is a side as the test sees it.
type rotating struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.Writer

	mu    sync.Mutex
	last  sideReport
	log   logtext.Buffer
	order sideOrder
}

func (s *rotating) report() sideReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *rotating) tell(o sideOrder) {
	s.t.Helper()
	line, err := json.Marshal(o)
	if err == nil {
		_, err = s.in.Write(append(line, '\n'))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func startRotating(t *testing.T, name string, spec sideSpec) *rotating {
	t.Helper()
	s := &rotating{t: t, name: name}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command("/proc/self/exe")
	s.cmd.Env = append(os.Environ(), asRotatingSide+"="+string(text))
	s.cmd.Stderr = &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in = in
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start a process with a network of its own (root is needed): %v", err)
	}
	read := make(chan bool)
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r sideReport
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				s.mu.Lock()
				s.last = r
				s.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		in.Close()
		<-read
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("side %s: %v", name, err)
		}
		if t.Failed() {
			t.Logf("side %s: %s", name, s.log.String())
		}
	})
	return s
}

// sh runs a line of shell in a side's network.
func (s *rotating) sh(line string) {
	s.t.Helper()
	if out, err := exec.Command("nsenter", "-t", fmt.Sprint(s.cmd.Process.Pid), "-n", "sh", "-ec", line).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// until waits for a side's report.
func (s *rotating) until(what string, wait time.Duration, ok func(sideReport) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(wait); !ok(s.report()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("side %s: not within %s: %s: %+v", s.name, wait, what, s.report())
		}
	}
}

// kernels waits until there is a device, which is the kernel's where that has WireGuard.
func (s *rotating) kernels() {
	s.t.Helper()
	s.until("it has a device", long, func(r sideReport) bool { return r.Kind != "" })
	if kind := s.report().Kind; ovstest.System() && kind != wireguard.Kernel {
		s.t.Errorf("the kernel has WireGuard, and side %s's device is of kind %q", s.name, kind)
	}
}

// rotatingSides are sides that all reach one another, and what hands on what each announces, as the leader, or the API server, does.
type rotatingSides struct {
	t   *testing.T
	all []*rotating

	mu     sync.Mutex // of orders, and:
	away   bool
	old    bool         // who reads knows one key alone
	whole  bool         // they are whole agents, which hear of their own Node too
	hidden map[int]bool // sides that nobody knows, and that know nobody
}

func (s *rotatingSides) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

const long = 100 * time.Second

func startSides(t *testing.T, nodes bool, count int, hidden ...int) *rotatingSides {
	t.Helper()
	s := &rotatingSides{t: t, hidden: map[int]bool{}}
	for _, i := range hidden {
		s.hidden[i] = true
	}
	for i := range count {
		side := startRotating(t, sideName(i), sideSpec{Dir: t.TempDir(), Nodes: nodes, Self: i})
		s.all = append(s.all, side)
		if i == 0 {
			side.sh("ip link add wire type bridge")
		} else {
			s.all[0].sh(fmt.Sprintf("ip link add to%d type veth peer name wire netns %d; ip link set to%d master wire up", i, side.cmd.Process.Pid, i))
		}
		side.sh(fmt.Sprintf("ip link set lo up; ip address add %s/24 dev wire; ip link set wire up", sideAddress(i)))
	}
	s.announce()
	return s
}

// announce hands on what sides announce, until the test ends.
func (s *rotatingSides) announce() {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
			s.handOn()
		}
	}()
	s.t.Cleanup(func() { close(stop); <-done })
}

func (s *rotatingSides) handOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return
	}
	for i, to := range s.all {
		peers := map[int]mcv1alpha1.WireGuardInfo{}
		for j, from := range s.all {
			info := from.report().Info
			if s.old {
				info.NextPort, info.NextPublicKey = 0, ""
			}
			if (i != j || s.whole) && info.PublicKey != "" && !s.hidden[i] && !s.hidden[j] {
				peers[j] = info
			}
		}
		if len(peers) > 0 && !maps.Equal(peers, to.order.Peers) {
			to.order.Peers = peers
			s.deliver(to)
		}
	}
}

// deliver is called with mu held.
func (s *rotatingSides) deliver(to *rotating) {
	line, err := json.Marshal(to.order)
	if err == nil {
		_, err = to.in.Write(append(line, '\n'))
	}
	if err != nil {
		s.t.Error(err)
	}
}

func (s *rotatingSides) order(to *rotating, o sideOrder) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	to.tell(o)
}

// ask has sides change their keys.
func (s *rotatingSides) ask(sides ...*rotating) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now().Add(time.Second).UTC().Format(time.RFC3339)
	for _, side := range sides {
		side.order.NotBefore = at
		s.deliver(side)
	}
}

// shown are the sides that know others.
func (s *rotatingSides) shown() (out []*rotating) {
	for i, side := range s.all {
		if !s.hidden[i] {
			out = append(out, side)
		}
	}
	return out
}

// load sends from each side to all others during what f does.
func (s *rotatingSides) load(what string, f func()) (lost []int) {
	s.t.Helper()
	sides := s.shown()
	begun := map[*rotating]int{}
	for _, side := range sides {
		begun[side] = side.report().Begun + 1
		s.order(side, sideOrder{Load: true})
		side.until("it sends", long, func(r sideReport) bool { return r.Begun == begun[side] })
	}
	f()
	for _, side := range sides {
		s.order(side, sideOrder{Stop: true})
	}
	for _, side := range sides {
		side.until("it has sent", long, func(r sideReport) bool { return r.Ended == begun[side] })
		r := side.report()
		s.t.Logf("%s: side %s has sent %d, and %d were answered", what, side.name, r.Sent, r.Answered)
		if r.Sent == 0 {
			s.t.Errorf("%s: side %s has sent nothing", what, side.name)
		}
		lost = append(lost, r.Sent-r.Answered)
	}
	return lost
}

// pass waits until nothing is lost.
func (s *rotatingSides) pass(what string) {
	s.t.Helper()
	for i := 0; ; i++ {
		if lost := s.load(what, func() { time.Sleep(200 * time.Millisecond) }); slices.Max(lost) == 0 {
			return
		}
		if i == 50 {
			s.t.Fatal("no packets pass")
		}
	}
}

func switched(r sideReport) bool {
	return r.Info.NextPublicKey != "" && r.Info.NextPublicKey == r.Info.PublicKey
}
func over(r sideReport) bool { return r.Info.NextPublicKey == "" && !r.Beside }

// change asks sides for other keys, and waits until they have them.
func (s *rotatingSides) change(sides ...*rotating) {
	s.t.Helper()
	was := map[*rotating]string{}
	for _, side := range sides {
		was[side] = side.report().Info.PublicKey
	}
	s.ask(sides...)
	for _, side := range sides {
		side.until("its key has changed", long, func(r sideReport) bool { return over(r) && r.Info.PublicKey != was[side] })
	}
}

// begin waits until all announce, and packets pass.
func (s *rotatingSides) begin(port int32) {
	s.t.Helper()
	for _, side := range s.all {
		side.until("it announces", long, func(r sideReport) bool { return r.Info.PublicKey != "" && r.Info.NextPort == port })
	}
	for _, side := range s.shown() {
		side.until("it knows the others", long, func(r sideReport) bool { return r.Peers == len(s.shown())-1 })
		side.kernels()
	}
	s.pass("before")
}

// rotationSteps chooses steps, where all of them would take too long.
var rotationSteps = flag.String("rotation.steps", "", "only these steps of tests of rotation, by name: a regular expression")

func (s *rotatingSides) chosen(step string) bool {
	s.t.Helper()
	chosen, err := regexp.MatchString(*rotationSteps, step)
	if err != nil {
		s.t.Fatalf("-rotation.steps: %v", err)
	}
	return chosen
}

type rotationStep struct {
	name string
	do   func()
}

// walk makes steps, in which nothing is lost. There is no second device afterwards.
func (s *rotatingSides) walk(beside insideLink, steps ...rotationStep) {
	s.t.Helper()
	for _, step := range steps {
		if !s.chosen(step.name) {
			continue
		}
		if lost := s.load(step.name, step.do); slices.Max(lost) > 0 {
			s.t.Errorf("%s: %v packets were lost", step.name, lost)
		}
	}
	for _, side := range s.shown() {
		side.until("it sends by the first device", long, over)
		deadline := time.Now().Add(long)
		for exec.Command("nsenter", "-t", fmt.Sprint(side.cmd.Process.Pid), "-n", "ip", "link", "show", beside.name).Run() == nil {
			if time.Now().After(deadline) {
				s.t.Fatalf("side %s still has the second device", side.name)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// TestRotation changes the keys of two clusters while packets pass between them, both ways, and none is lost.
func TestRotation(t *testing.T) {
	s := startSides(t, false, 2)
	a, b := s.all[0], s.all[1]
	s.begin(51822)
	s.walk(besideClusters,
		rotationStep{"one changes", func() { s.change(a) }},
		rotationStep{"the other changes", func() { s.change(b) }},
		rotationStep{"again", func() { s.change(a) }},
		rotationStep{"both change", func() { s.change(a, b) }},
		rotationStep{"the agents start again in the middle, without the leader", func() {
			was := a.report().Info.PublicKey
			s.ask(a)
			b.until("it sends by the second device", long, func(r sideReport) bool { return r.Beside })
			s.set(func() { s.away = true })
			s.order(a, sideOrder{Restart: true})
			s.order(b, sideOrder{Restart: true})
			a.until("the next key is in use", long, switched)
			s.order(a, sideOrder{Restart: true})
			s.order(b, sideOrder{Restart: true})
			a.until("it says what it waits for", long, func(r sideReport) bool { return len(r.Problems) > 0 })
			if text := strings.Join(a.report().Problems, " "); !strings.Contains(text, "cluster b") || !strings.Contains(text, "51822") {
				t.Errorf("problems %s", text)
			}
			s.set(func() { s.away = false })
			// Handshakes by the old key do not count, so that it may wait for the next one.
			a.until("its key has changed", 3*time.Minute, func(r sideReport) bool { return over(r) && r.Info.PublicKey != was })
		}},
	)
	const stops = "an agent stops before it sends by the first device again"
	if s.chosen(stops) {
		lost := s.load(stops, func() {
			was := a.report().Info.PublicKey
			s.ask(a)
			b.until("it has the next key for the first device", long, func(sideReport) bool { return strings.Contains(b.log.String(), "remove peer "+was) })
			s.order(b, sideOrder{Away: true})
			a.until("its key has changed", long, func(r sideReport) bool { return over(r) && r.Info.PublicKey != was })
			time.Sleep(sideTimes().linger / 3)
		})
		if slices.Max(lost) > 0 {
			t.Errorf("%s: %v packets were lost", stops, lost)
		}
		s.order(b, sideOrder{Restart: true})
		b.until("it sends by the first device", long, over)
	}
	const old = "with an old peer" // that knows one key
	if !s.chosen(old) {
		return
	}
	s.set(func() { s.old = true })
	time.Sleep(time.Second)
	s.change(a)
	s.pass(old)
}

// TestRotationOfNodes does the same for the keys of Nodes, of which one joins in the middle.
func TestRotationOfNodes(t *testing.T) {
	s := startSides(t, true, 3, 2)
	a, b, c := s.all[0], s.all[1], s.all[2]
	s.begin(51823)
	s.walk(besideNodes,
		rotationStep{"a Node joins while another's key changes", func() {
			was := a.report().Info.PublicKey
			s.ask(a)
			b.until("it sends by the second device", long, func(r sideReport) bool { return r.Beside })
			s.set(func() { delete(s.hidden, 2) })
			a.until("its key has changed", long, func(r sideReport) bool { return over(r) && r.Info.PublicKey != was })
		}},
	)
	s.set(func() { delete(s.hidden, 2) }) // where that step was not chosen
	s.pass("three Nodes")
	s.walk(besideNodes,
		rotationStep{"one changes", func() { s.change(c) }},
		rotationStep{"all change", func() { s.change(a, b, c) }},
		rotationStep{"the agents start again at each step", func() {
			was := a.report().Info.PublicKey
			restart := func() {
				for _, side := range s.all {
					s.order(side, sideOrder{Restart: true})
				}
			}
			s.ask(a)
			a.until("it announces the next key", long, func(r sideReport) bool { return r.Info.NextPublicKey != "" })
			restart()
			b.until("it sends by the second device", long, func(r sideReport) bool { return r.Beside })
			restart()
			a.until("the next key is in use", long, switched)
			restart()
			a.until("its key has changed", 3*time.Minute, func(r sideReport) bool { return over(r) && r.Info.PublicKey != was })
			restart()
		}},
	)
}

// TestPlanRotation: packets go by the second device while there is a session by it, and not longer than needed.
func TestPlanRotation(t *testing.T) {
	old, next := publickey.Key{9}, publickey.Key{10}
	for _, test := range []struct {
		name       string
		key        publickey.Key
		next       publickey.Key
		port       int32
		have       sessions
		device     string
		peerBeside string
	}{
		{"nothing changes", old, publickey.Key{}, 51822, sessions{}, "antrea-mc-wg0", ""},
		{"no session yet", old, next, 51822, sessions{}, "antrea-mc-wg0", next.String()},
		{"a session by the first alone", old, next, 51822, sessions{First: []publickey.Key{old}}, "antrea-mc-wg0", next.String()},
		{"a session by both", old, next, 51822, sessions{First: []publickey.Key{old}, Beside: []publickey.Key{next}}, "antrea-mc-wg1", next.String()},
		{"the key has changed", next, next, 51822, sessions{Beside: []publickey.Key{next}}, "antrea-mc-wg1", next.String()},
		{"and there is a session by it", next, next, 51822, sessions{First: []publickey.Key{next}, Beside: []publickey.Key{next}}, "antrea-mc-wg0", next.String()},
		{"this cluster's changes", old, publickey.Key{}, 51822, sessions{Changing: true, First: []publickey.Key{old}, Beside: []publickey.Key{old}}, "antrea-mc-wg1", old.String()},
		{"this cluster's has changed", old, publickey.Key{}, 51822, sessions{Changing: true, Switched: true, First: []publickey.Key{old}, Beside: []publickey.Key{old}}, "antrea-mc-wg0", old.String()},
		{"and its second device stays", old, publickey.Key{}, 51822, sessions{Lingers: true, Beside: []publickey.Key{old}}, "antrea-mc-wg0", old.String()},
		{"while the peer's changes", old, next, 51822, sessions{Lingers: true, First: []publickey.Key{old}, Beside: []publickey.Key{next}}, "antrea-mc-wg1", next.String()},
		{"the peer knows one key", old, publickey.Key{}, 0, sessions{Changing: true, First: []publickey.Key{old}}, "antrea-mc-wg0", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := encryptedView()
			info := &mcv1alpha1.WireGuardInfo{PublicKey: test.key.String(), NextPort: test.port}
			if test.next != (publickey.Key{}) {
				info.NextPublicKey = test.next.String()
			}
			v.ClusterInfoImports[0].Spec.WireGuard, v.Sessions = info, test.have
			d, problems := Plan(v)
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			route := hostnet.Route{Dst: netip.MustParsePrefix("10.98.0.0/32"), Link: test.device, Source: netip.MustParseAddr("10.97.0.0")}
			if n := slices.IndexFunc(d.Host.Routes, func(r hostnet.Route) bool { return r.Dst == route.Dst }); n < 0 || d.Host.Routes[n] != route {
				t.Errorf("there is no route %+v in %+v", route, d.Host.Routes)
			}
			have := allEncryptionOf(v)
			keepalive := 25 * time.Second
			if test.have.Changing {
				keepalive = 7 * time.Second
			}
			if have.Clusters.Keepalive != keepalive || have.Clusters.Peers[0].PublicKey != test.key {
				t.Errorf("the first device has %+v", have.Clusters)
			}
			beside := ""
			if len(have.Beside.Peers) > 0 {
				beside = have.Beside.Peers[0].PublicKey.String()
				if at := have.Beside.Peers[0].Endpoint.String(); at != "192.168.79.101:51822" {
					t.Errorf("the second device sends to %s", at)
				}
			}
			if beside != test.peerBeside || have.Beside.Base.IsValid() != (beside != "") {
				t.Errorf("the second device has %+v", have.Beside)
			}
		})
	}
}

// TestPlanRotationUserspace: the second device is behind a bridge of its own, and its next hop is asked for before it is used.
func TestPlanRotationUserspace(t *testing.T) {
	v := encryptedView()
	v.Config.OVSDatapathType, v.Config.TransportInterface, v.BesideMAC = "netdev", "eth1", "02:00:00:00:00:0c"
	v.Underlay.Uplink = &hostnet.Transport{Interface: "eth1", MAC: "02:00:00:00:00:09", MTU: 1500, Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}}
	v.ClusterInfoImports[0].Spec.WireGuard.NextPublicKey, v.ClusterInfoImports[0].Spec.WireGuard.NextPort = publickey.Key{10}.String(), 51822
	d, problems := Plan(v)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if b := d.Bridges[len(d.Bridges)-1]; b.Name != besideClusters.name || b.HardwareAddr != v.BesideMAC || b.Ports[0].Name != besideClusters.tap {
		t.Errorf("bridge %+v", b)
	}
	if have := fmt.Sprint(d.Host.Tunnels); have != "[{antrea-mc-wg0 [10.98.0.0]} {antrea-mc-wg1 [169.254.64.10]} {br-eth1 [192.168.78.102 192.168.79.101]}]" {
		t.Errorf("next hops are asked for: %s", have)
	}
}

// TestRotationPort: it is one that nothing else has.
func TestRotationPort(t *testing.T) {
	for _, test := range []struct{ clusters, nodes, want, wantNodes int }{
		{51821, 51820, 51822, 51823}, {51819, 51820, 51821, 51822}, {65535, 51820, 1, 51821}, {65535, 1, 2, 3}, {51821, 65535, 51822, 1}, {51821, 40000, 51822, 40001},
	} {
		c := config.Default()
		c.Multicluster.WireGuard.Port, c.WireGuard.Port = test.clusters, test.nodes
		if have := c.NextWireGuardPort(); have != test.want {
			t.Errorf("with ports %d and %d it is %d, want %d", test.clusters, test.nodes, have, test.want)
		}
		if have := c.NextNodeWireGuardPort(); have != test.wantNodes {
			t.Errorf("with ports %d and %d it is %d between Nodes, want %d", test.clusters, test.nodes, have, test.wantNodes)
		}
	}
}

// TestPlanRotationOfNodes: what a Node announces of a change is taken, or left out alone with a reason.
func TestPlanRotationOfNodes(t *testing.T) {
	own, current, next := publickey.Key{1}, publickey.Key{2}, publickey.Key{10}
	type other struct { // a third Node
		key, next publickey.Key
		younger   bool
	}
	third := func(v View, o other) View {
		n := v.Nodes[1].DeepCopy()
		n.Name, n.Spec.PodCIDR, n.Spec.PodCIDRs = "node-0", "10.11.3.0/24", []string{"10.11.3.0/24"}
		n.Status.Addresses[0].Address = "192.168.78.103"
		n.Annotations = map[string]string{nodeKey: o.key.String(), nextNodePort: "51823", nextNodeKey: o.next.String()}
		if o.younger {
			n.CreationTimestamp = metav1.Unix(1, 0)
		}
		v.Nodes = append(slices.Clone(v.Nodes), n)
		return v
	}
	for _, test := range []struct {
		name      string
		next      string
		port      string
		have      sessions
		elsewhere *other
		device    string
		beside    string
		reason    string
	}{
		{"an agent of before", "", "", sessions{Changing: true}, nil, "antrea-wg0", "", ""},
		{"nothing changes", "", "51823", sessions{}, nil, "antrea-wg0", "", ""},
		{"no session yet", next.String(), "51823", sessions{}, nil, "antrea-wg0", next.String(), ""},
		{"a session", next.String(), "51823", sessions{Beside: []publickey.Key{next}}, nil, "antrea-wg1", next.String(), ""},
		{"this Node's changes", "", "51823", sessions{Changing: true, Beside: []publickey.Key{current}}, nil, "antrea-wg1", current.String(), ""},
		{"switched", current.String(), "51823", sessions{First: []publickey.Key{current}, Beside: []publickey.Key{current}}, nil, "antrea-wg0", current.String(), ""},
		{"another port", next.String(), "51999", sessions{}, nil, "antrea-wg0", next.String(), ""},
		{"no port", next.String(), "", sessions{}, nil, "antrea-wg0", "", "InvalidWireGuardPort"},
		{"a port that is none", "", "x", sessions{}, nil, "antrea-wg0", "", "InvalidWireGuardPort"},
		{"a key that is none", "k", "51823", sessions{}, nil, "antrea-wg0", "", "InvalidWireGuardKey"},
		{"this Node's key", own.String(), "51823", sessions{}, nil, "antrea-wg0", "", "DuplicateWireGuardKey"},
		{"another's key", next.String(), "51823", sessions{}, &other{next, publickey.Key{12}, true}, "antrea-wg0", "", "DuplicateWireGuardKey"},
		{"another's next key", next.String(), "51823", sessions{}, &other{publickey.Key{11}, next, false}, "antrea-wg0", "", "DuplicateWireGuardKey"},
		{"a younger one's next key", next.String(), "51823", sessions{}, &other{publickey.Key{11}, next, true}, "antrea-wg0", next.String(), ""},
		{"switched, with a copy", current.String(), "51823", sessions{}, &other{current, current, true}, "antrea-wg0", current.String(), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := nodesView()
			v.NodeSessions = test.have
			a := v.Nodes[1].Annotations
			if a[nextNodeKey], a[nextNodePort] = test.next, test.port; test.elsewhere != nil {
				v = third(v, *test.elsewhere)
			}
			d, problems := Plan(v)
			problems = slices.DeleteFunc(problems, func(p problem.Problem) bool { return p.Name == "node-0" })
			switch {
			case test.reason == "" && len(problems) > 0:
				t.Errorf("problems %v", problems)
			case test.reason != "" && (len(problems) != 1 || problems[0].Reason != test.reason || problems[0].Name != "node-2"):
				t.Errorf("problems %v", problems)
			}
			route := hostnet.Route{Dst: netip.MustParsePrefix("240.168.78.102/32"), Link: test.device, Source: netip.MustParseAddr("240.168.78.101")}
			if n := slices.IndexFunc(d.Host.Routes, func(r hostnet.Route) bool { return r.Dst == route.Dst }); n < 0 || d.Host.Routes[n] != route {
				t.Errorf("there is no route %+v in %+v", route, d.Host.Routes)
			}
			have := allEncryptionOf(v)
			beside := ""
			for _, p := range have.NodesBeside.Peers {
				if p.AllowedIPs[0] == route.Dst {
					beside = p.PublicKey.String()
					if at := p.Endpoint.String(); at != "192.168.78.102:"+test.port {
						t.Errorf("the second device sends to %s", at)
					}
				}
			}
			if beside != test.beside || (have.Nodes.Keepalive > 0) != test.have.Changing || have.Clusters.Base.IsValid() || have.Beside.Base.IsValid() {
				t.Errorf("the devices have %+v", have)
			}
			if n := slices.IndexFunc(have.Nodes.Peers, func(p wireguard.Peer) bool { return p.AllowedIPs[0] == route.Dst }); n < 0 || have.Nodes.Peers[n].PublicKey != current {
				t.Errorf("the first device has %+v", have.Nodes)
			}
		})
	}
}

// TestPlanRotationOfNodesUserspace: the second device between Nodes has a bridge and a next hop of its own.
func TestPlanRotationOfNodesUserspace(t *testing.T) {
	v := nodesView()
	v.Config.OVSDatapathType, v.Config.TransportInterface, v.NodesBesideMAC = "netdev", "eth1", "02:00:00:00:00:0d"
	v.Underlay.Uplink = &hostnet.Transport{Interface: "eth1", MAC: "02:00:00:00:00:09", MTU: 1500, Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}}
	v.Nodes[1].Annotations[nextNodeKey], v.Nodes[1].Annotations[nextNodePort] = publickey.Key{10}.String(), "51823"
	d, problems := Plan(v)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if b := d.Bridges[len(d.Bridges)-1]; b.Name != besideNodes.name || b.HardwareAddr != v.NodesBesideMAC || b.Ports[0].Name != besideNodes.tap {
		t.Errorf("bridge %+v", b)
	}
	if have := fmt.Sprint(d.Host.Tunnels); !strings.HasPrefix(have, "[{antrea-wg0 [240.168.78.102]} {antrea-wg1 [169.254.64.14]} {br-eth1 [192.168.78.102") {
		t.Errorf("next hops are asked for: %s", have)
	}
}

// TestRotationLingers: the second device stays for some time after a change, for partners whose agents have stopped, and does not hold up
// the next change, which begins without it.
func TestRotationLingers(t *testing.T) {
	for _, asked := range []string{"", "2000-01-01T00:00:00Z"} {
		t.Run(asked, func(t *testing.T) {
			v := nodesView()
			v.Nodes[0].Annotations[nodeKeyNotBefore], v.Nodes[1].Annotations[nextNodePort] = asked, "51823"
			dir := t.TempDir()
			path := dir + "/" + betweenNodes.keyFile
			if _, err := wireguard.LoadKey(path); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path+".next", text, 0o600) // the last step is left
			}
			if err == nil {
				made := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
				err = os.Chtimes(path, made, made)
			}
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				r, tables := testRotation(v, dir, betweenNodes)
				shaken := time.Now()
				r.look = func(device string) wireguard.Session {
					if e, _ := tables.encrypted.Get(self); device == besideNodes.name && len(e.NodesBeside.Peers) == 0 {
						return wireguard.Session{}
					}
					return wireguard.Session{Peers: []wireguard.PeerState{{PublicKey: publickey.Key{2}, LastHandshake: shaken}}}
				}
				tables.set(v)
				look := func(wait time.Duration, changing, beside bool) {
					t.Helper()
					time.Sleep(wait)
					r.observe()
					tables.engine.Pass()
					r.step()
					tables.engine.Pass()
					info, _ := r.published()
					e, _ := tables.encrypted.Get(self)
					if (info.NextPublicKey != "") != changing || (len(e.NodesBeside.Peers) > 0) != beside || !changing && len(e.Nodes.Unused) > 0 {
						t.Errorf("after %s: announced %+v, devices %+v", wait, info, e)
					}
				}
				look(0, true, true)
				shaken = time.Now().Add(1)
				look(time.Second, true, true)
				look(r.times.settle+r.times.follow, false, true)
				if asked == "" {
					look(r.times.linger-1, false, true)
					look(1, false, false)
					return
				}
				look(time.Second, false, true)
				look(time.Second, true, true)
			})
		})
	}
}

// testRotation is that of a link of a view's Node, with its keys in a directory.
func testRotation(v View, dir string, l insideLink) (*rotation, *tables) {
	pair := pairOf(newEncryptions(Options{Config: v.Config, StateDir: dir, Logger: slog.New(slog.DiscardHandler)}), l)
	tables := newTables(v.Config, v.NodeName)
	r := newRotation(pair[0], tables, v.NodeName, slog.New(slog.DiscardHandler))
	r.ready, r.announce = func() bool { return true }, func() {}
	return r, tables
}

// TestRotationTurn: a Node waits for another that changes its key, and says so, but not for one with which there is no session.
func TestRotationTurn(t *testing.T) {
	current, next := publickey.Key{2}, publickey.Key{10}
	for _, test := range []struct {
		name     string
		session  *publickey.Key
		by       insideLink
		patience time.Duration
		changes  bool
		reason   string
	}{
		{"a session by the first device", &current, betweenNodes, 0, false, "WireGuardKeyRotation"},
		{"a session by the second device", &next, besideNodes, 0, false, "WireGuardKeyRotation"},
		{"no session yet", nil, betweenNodes, time.Hour, false, "WireGuardKeyRotation"},
		{"no session", nil, betweenNodes, 0, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := nodesView()
			v.Nodes[0].Annotations[nodeKeyNotBefore] = "2000-01-01T00:00:00Z"
			v.Nodes[1].Annotations[nextNodeKey], v.Nodes[1].Annotations[nextNodePort] = next.String(), "51823"
			dir := t.TempDir()
			path := dir + "/" + betweenNodes.keyFile
			if _, err := wireguard.LoadKey(path); err != nil {
				t.Fatal(err)
			}
			made := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
			if err := os.Chtimes(path, made, made); err != nil {
				t.Fatal(err)
			}
			r, tables := testRotation(v, dir, betweenNodes)
			r.times.turn, r.times.patience = -1, test.patience-1
			r.look = func(device string) (s wireguard.Session) {
				if device == test.by.name && test.session != nil {
					s.Peers = []wireguard.PeerState{{PublicKey: *test.session, LastHandshake: time.Now()}}
				}
				return s
			}
			tables.set(v)
			tables.engine.Pass()
			r.observe()
			r.step()
			info, _ := r.published()
			if (info.NextPublicKey != "") != test.changes {
				t.Errorf("announced: %+v", info)
			}
			reason := ""
			for _, p := range r.problems() {
				if reason = p.Reason; !strings.Contains(p.Message, "Node node-2") || !strings.Contains(p.Field, nodeKeyNotBefore) {
					t.Errorf("problem %+v", p)
				}
			}
			if reason != test.reason {
				t.Errorf("problems %v", r.problems())
			}
		})
	}
}

// TestRotationAsked: a time that is none is a problem, one that has not come waits.
func TestRotationAsked(t *testing.T) {
	for _, test := range []struct {
		asked   string
		changes bool
		reason  string
	}{
		{"", false, ""}, {"soon", false, "InvalidTime"}, {"2000-01-01T00:00:00Z", false, ""},
		{time.Now().Add(time.Hour).Format(time.RFC3339), false, ""}, {time.Now().Format(time.RFC3339), true, ""},
	} {
		t.Run(test.asked, func(t *testing.T) {
			v := encryptedView()
			v.Nodes[0].Annotations = map[string]string{multicluster.AnnotationKeyNotBefore: test.asked}
			dir := t.TempDir()
			path := dir + "/" + betweenClusters.keyFile
			if _, err := wireguard.LoadKey(path); err != nil {
				t.Fatal(err)
			}
			made := time.Now().Add(-time.Minute)
			if err := os.Chtimes(path, made, made); err != nil {
				t.Fatal(err)
			}
			r, tables := testRotation(v, dir, betweenClusters)
			r.look = func(string) wireguard.Session { return wireguard.Session{} }
			tables.set(v)
			tables.engine.Pass()
			r.observe()
			r.step()
			info, _ := r.published()
			if (info.NextPublicKey != "") != test.changes {
				t.Errorf("announced: %+v", info)
			}
			reason := ""
			for _, p := range r.problems() {
				reason = p.Reason
			}
			if reason != test.reason {
				t.Errorf("problems %v", r.problems())
			}
			if p, _ := tables.peering.Get(self); p.Role != peering.Gateway {
				t.Errorf("role %v", p.Role)
			}
		})
	}
}
