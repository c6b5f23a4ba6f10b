package agent

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
	"github.com/tombolo-net/tombolo/test/child"
	"github.com/tombolo-net/tombolo/test/logtext"
)

// rotating is a side as the test sees it.
type rotating struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.Writer
	all  []*rotating // with this one, where they can be looked at

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

func (s *rotating) send(o sideOrder) {
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
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Unshareflags: syscall.CLONE_NEWNS}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in = in
	if err := child.Start(s.cmd); err != nil {
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
	if out, err := exec.Command("nsenter", "-t", fmt.Sprint(s.cmd.Process.Pid), "-n",
		"sh", "-ec", line).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// until waits for a side's report.
func (s *rotating) until(what string, wait time.Duration, ok func(sideReport) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(wait); !ok(s.report()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("side %s: not within %s: %s: %+v%s", s.name, wait, what, s.report(), s.devices())
		}
	}
}

// devices describes the devices of all sides twice, 6 s apart: a handshake that fails begins again after 5 s.
func (s *rotating) devices() string {
	out := ""
	for range 2 * min(1, len(s.all)) {
		time.Sleep(6 * time.Second)
		for _, side := range s.all {
			was := side.report().Devices
			side.send(sideOrder{Look: true})
			for deadline := time.Now().Add(3 * time.Second); side.report().Devices == was && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
			out += "\n" + side.name + " " + side.report().Devices
		}
	}
	return out
}

// kernels waits until there is a device, which is the kernel's where that has WireGuard.
func (s *rotating) kernels() {
	s.t.Helper()
	s.until("it has a device", long, func(r sideReport) bool { return r.Kind != "" })
	if kind := s.report().Kind; ovstest.System() && kind != wireguard.Kernel {
		s.t.Errorf("the kernel has WireGuard, and side %s's device is of kind %q", s.name, kind)
	}
}

// rotatingSides are sides that can all reach each other. The test passes their announcements on, as the leader or the
// API server does.
type rotatingSides struct {
	t   *testing.T
	all []*rotating

	mu     sync.Mutex // of orders, and:
	away   bool
	old    bool         // the readers support one key alone
	whole  bool         // they are whole agents, which also read their own Node
	hidden map[int]bool // sides that are unknown to the others, and that have no partners
	// The other sides get an announcement without the inside address, or without the key as well.
	noInside, noKey bool
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
			s.all[0].sh(fmt.Sprintf("ip link add to%d type veth peer name wire netns %d; ip link set to%d master wire up", i,
				side.cmd.Process.Pid, i))
		}
		side.sh(fmt.Sprintf("ip link set lo up; ip address add %s/24 dev wire; ip link set wire up", sideAddress(i)))
	}
	for _, side := range s.all {
		side.all = s.all
	}
	s.announce()
	return s
}

// announce passes the announcements of the sides on, until the test ends.
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
			if s.noInside && i != j {
				info.InsideIP = ""
			}
			if s.noKey && i != j && info.PublicKey != "" {
				peers[j] = mcv1alpha1.WireGuardInfo{}
				continue
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
	to.send(o)
}

// ask requests a change of keys from sides.
func (s *rotatingSides) ask(sides ...*rotating) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now().Add(time.Second).UTC().Format(time.RFC3339)
	for _, side := range sides {
		side.order.NotBefore = at
		s.deliver(side)
	}
}

// shown returns the sides that are not hidden.
func (s *rotatingSides) shown() (out []*rotating) {
	for i, side := range s.all {
		if !s.hidden[i] {
			out = append(out, side)
		}
	}
	return out
}

// load sends from each side to all others while f runs.
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
func over(r sideReport) bool { return r.Info.NextPublicKey == "" && !r.Second }

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

// inParallel runs a test in parallel with others. Its sides have networks of their own, and it mostly waits. In a guest
// that QEMU interprets, the test does not run in parallel.
func inParallel(t *testing.T) {
	t.Helper()
	if !ovstest.System() {
		t.Parallel()
	}
}

// rotationSteps chooses steps, where all of them would take too long.
var rotationSteps = flag.String("rotation.steps", "",
	"only these steps of tests of rotation, by name: a regular expression")

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
func (s *rotatingSides) walk(second insideLink, steps ...rotationStep) {
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
		for exec.Command("nsenter", "-t", fmt.Sprint(side.cmd.Process.Pid), "-n", "ip", "link", "show",
			second.name).Run() == nil {
			if time.Now().After(deadline) {
				s.t.Fatalf("side %s still has the second device", side.name)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// TestRotation changes the keys of two clusters while packets pass between them in both directions. No packet is lost.
func TestRotation(t *testing.T) {
	inParallel(t)
	s := startSides(t, false, 2)
	a, b := s.all[0], s.all[1]
	s.begin(51822)
	s.walk(secondBetweenClusters,
		rotationStep{"one changes", func() { s.change(a) }},
		rotationStep{"the other changes", func() { s.change(b) }},
		rotationStep{"again", func() { s.change(a) }},
		rotationStep{"both change", func() { s.change(a, b) }},
		rotationStep{"the agents start again in the middle, without the leader", func() {
			was := a.report().Info.PublicKey
			s.ask(a)
			b.until("it sends by the second device", long, func(r sideReport) bool { return r.Second })
			s.set(func() { s.away = true })
			s.order(a, sideOrder{Restart: true})
			s.order(b, sideOrder{Restart: true})
			a.until("the next key is in use", long, switched)
			s.order(a, sideOrder{Restart: true})
			s.order(b, sideOrder{Restart: true})
			a.until("it says what it waits for", long, func(r sideReport) bool { return len(r.Problems) > 0 })
			if text := strings.Join(a.report().Problems, " "); !strings.Contains(text, "cluster b") ||
				!strings.Contains(text, "51822") {
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
			b.until("it has the next key for the first device", long,
				func(sideReport) bool { return strings.Contains(b.log.String(), "remove peer "+was) })
			s.order(b, sideOrder{Away: true})
			a.until("its key has changed", long, func(r sideReport) bool { return over(r) && r.Info.PublicKey != was })
			time.Sleep(sideTimes().remain / 3)
		})
		if slices.Max(lost) > 0 {
			t.Errorf("%s: %v packets were lost", stops, lost)
		}
		s.order(b, sideOrder{Restart: true})
		b.until("it sends by the first device", long, over)
	}
	const old = "with an old peer" // that supports one key
	if !s.chosen(old) {
		return
	}
	s.set(func() { s.old = true })
	time.Sleep(time.Second)
	s.change(a)
	s.pass(old)
}

// TestRotationOfNodes does the same for the keys of Nodes. One Node joins in the middle.
//
//tombolo:alone
func TestRotationOfNodes(t *testing.T) {
	inParallel(t)
	s := startSides(t, true, 3, 2)
	a, b, c := s.all[0], s.all[1], s.all[2]
	s.begin(51823)
	s.walk(secondBetweenNodes,
		rotationStep{"a Node joins while another's key changes", func() {
			was := a.report().Info.PublicKey
			s.ask(a)
			b.until("it sends by the second device", long, func(r sideReport) bool { return r.Second })
			s.set(func() { delete(s.hidden, 2) })
			a.until("its key has changed", long, func(r sideReport) bool { return over(r) && r.Info.PublicKey != was })
		}},
	)
	s.set(func() { delete(s.hidden, 2) }) // where that step was not chosen
	s.pass("three Nodes")
	s.walk(secondBetweenNodes,
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
			b.until("it sends by the second device", long, func(r sideReport) bool { return r.Second })
			restart()
			a.until("the next key is in use", long, switched)
			restart()
			a.until("its key has changed", 3*time.Minute, func(r sideReport) bool { return over(r) && r.Info.PublicKey != was })
			restart()
		}},
	)
}
