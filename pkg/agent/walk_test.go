package agent

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 0, "take this one walk; 0: those that are always taken")
	walkSteps = flag.Int("walk.steps", 120, "how many steps a walk has")
)

// TestWalk takes a Node's agent through random states of its cluster, on a real switch. It changes objects of the API
// server, adds and removes Pods, changes the switch from outside, and restarts programs. After each step it checks
// three things. The switch, read on another connection, has the state that the agent's Plan returns for the true state.
// It got no more messages than the step changed. Packets go where the cluster's objects require.
//
// Clusters have several gateways, which come and go, and ways that go up and down; see walkways_test.go. In walks whose
// seed ends with 5 or more, traffic between clusters is encrypted; see walkencrypted_test.go. In some walks the traffic
// mode is noEncap, in others Pods have IPv6 too.
//
// To repeat a walk or run a longer one: go test ./pkg/agent -run TestWalk -walk.seed 3 -walk.steps 1000.
func TestWalk(t *testing.T) {
	if *walkSeed != 0 {
		takeWalks(t, nil, *walkSeed)
		return
	}
	takeWalks(t, nil, 4, 5) // with IPv6, and encrypted; TestManyWalks takes more of them
}

// TestManyWalks takes walks that together come by everything that may happen. Each goes through the same goroutines as
// TestWalk.
//
//tombolo:unraced
func TestManyWalks(t *testing.T) {
	var covered coverage
	t.Cleanup(func() { covered.check(t) }) // after all of them
	takeWalks(t, &covered, 1, 2, 3, 4, 5, 18)
}

func takeWalks(t *testing.T, covered *coverage, seeds ...uint64) {
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			serves := family.IPv4
			if seed%4 == 0 {
				serves = family.Dual
			}
			w := newWalkOf(t, seed, serves)
			if covered != nil {
				t.Cleanup(func() { covered.add(w) })
			}
			for w.number = 1; w.number <= *walkSteps; w.number++ {
				w.step()
			}
			if w.proved < *walkSteps/10 {
				t.Errorf("the switch proved %d answers in %d steps: too few", w.proved, *walkSteps)
			}
			if serves.Has6() && w.proved6 < *walkSteps/20 {
				t.Errorf("the switch proved %d answers about IPv6 in %d steps: too few", w.proved6, *walkSteps)
			}
			t.Logf("asked of other clusters: %v", w.kinds)
			t.Logf("%d steps, %d flow-mods, %d questions, %d answers proved, at most %d flows and groups", *walkSteps, w.mods,
				w.asked, w.proved, w.most)
		})
	}
}

// walk is one walk.
type walk struct {
	t      *testing.T
	seed   uint64
	r      *rand.Rand
	ovs    *ovstest.Switch
	world  *world
	log    *logTail
	config config.Config

	agent      *Agent
	stopAgent  func()
	passed     chan struct{} // signalled after each pass
	version    *derive.Source[derive.Name, int]
	seen       atomic.Int64    // the version of the world that the last complete pass saw
	gatewayMAC string          // that the first agent chose; the later ones have to keep it
	ruleKey    datapath.Secret // as well
	runDir     string          // of all agents
	other      *ofconn.Conn    // a second connection to the switch

	number   int // of the step
	marked   flowsync.Stats
	was      *flow.Set // desired when marked
	marker   *Agent    // that was counted
	account  []string
	desired  *flow.Set // after the last step
	foreign  []flow.Flow
	rebuilds bool // the next agent finds attachments that it cannot rebuild at once
	loosened bool // the last step changed the switch behind the agent's back
	mods     uint64
	asked    int
	proved   int // halves of connections that the switch proved
	proved6  int // of which so many of IPv6
	most     int
	kinds    map[string]int  // questions about other clusters that were answered
	keyed    map[string]bool // the ClusterInfoImports after the last step; true with a key
}

func newWalk(t *testing.T, seed uint64) *walk { return newWalkOf(t, seed, family.IPv4) }

func newWalkOf(t *testing.T, seed uint64, serves family.Families, change ...func(*config.Config)) *walk {
	w := &walk{
		t: t, seed: seed, runDir: t.TempDir(), r: rand.New(rand.NewPCG(seed, 0)), ovs: ovstest.Start(t, ovstest.Dummy),
		world: newWorldOf(serves), log: &logTail{}, config: config.Default(), desired: flow.NewSet(), kinds: map[string]int{},
	}
	w.config.FeatureGates = map[string]bool{"Multicluster": true}
	w.config.Multicluster.EnableGateway = true
	w.config.Multicluster.EnablePodToPodConnectivity = seed%2 == 0
	w.config.Multicluster.EnableStretchedNetworkPolicy = seed%3 != 0
	if w.world.encrypts = seed%10 >= 5; w.world.encrypts {
		w.config.Multicluster.TrafficEncryptionMode = "wireGuard"
	} else {
		w.config.Multicluster.AllowUnencryptedPeers = seed%4 == 3
	}
	if seed%4 == 2 {
		w.config.TrafficEncapMode = config.NoEncap
	}
	w.config.TransportInterface = "lo" // where the MTU comes from; no packet leaves
	for _, f := range change {
		f(&w.config)
	}
	w.startAgent()
	w.connect()
	w.account = append(w.account, "the agent starts")
	w.settle()
	w.compare()
	t.Cleanup(func() { w.stopAgent() })
	return w
}

// startAgent starts an agent without the parts outside of the switch. The agent reads the world instead of an API
// server, and leaves the host's network alone.
func (w *walk) startAgent() {
	w.t.Helper()
	a, err := newAgent(Options{
		Config: w.config, NodeName: ownName, Namespace: "kube-system", REST: &rest.Config{Host: "http://127.0.0.1:1"},
		OVSRunDir: w.ovs.RunDir(), RunDir: w.runDir, StateDir: w.t.TempDir(),
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	local := w.local()
	a.tables.this.local = func() ([]netip.Addr, error) { return local, nil }
	w.version = derive.NewSource[derive.Name, int](a.tables.engine, "walk")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.switchPorts.Run(ctx) })
	running.Go(func() { _ = a.flows.Run(ctx) })
	w.agent, w.passed = a, make(chan struct{}, 1)
	w.stopAgent = func() {
		cancel()
		running.Wait()
	}
	loading, stop := context.WithTimeout(ctx, ovstest.Timeout())
	defer stop()
	if err := a.load(loading); err != nil {
		w.fail("read the OVSDB: %v", err)
	}
	passed, version := w.passed, w.version
	a.tables.engine.WatchPasses(func(derive.PassStats) {
		seen, _ := version.Get(self)
		w.seen.Store(int64(seen))
		select {
		case passed <- struct{}{}:
		default:
		}
	})
	w.seen.Store(0) // by this agent; no other runs
	a.tables.pods.rebuilding.Set(self, w.rebuilds)
	a.tables.loaded()
	w.world.version++
	w.world.fill(a.tables, version)
	for _, run := range []func(context.Context){a.followPorts, a.follower.followUnderlay, a.tables.engine.Run} {
		running.Go(func() { run(ctx) })
	}
}

// local returns the Node's own addresses if Services are served at them. The machine's addresses may change meanwhile.
func (w *walk) local() []netip.Addr {
	if !w.config.AntreaProxy.ProxyAll {
		return nil
	}
	return []netip.Addr{netip.MustParseAddr(selfAddress), netip.MustParseAddr("fd78::101")}
}

// connect opens the second connection.
func (w *walk) connect() {
	w.t.Helper()
	w.ovs.Eventually("connect to the switch", func() (err error) {
		w.other, err = ofconn.Connect(w.t.Context(),
			ofconn.UnixDialer(filepath.Join(w.ovs.RunDir(), w.config.OVSBridge+".mgmt")), nil, nil)
		return err
	})
}

// step is a change. After a loose step the agent has to repair the switch, and may send any number of messages.
type step struct {
	weight int
	loose  bool
	take   func(*walk) string
}

var steps = []step{
	{40, false, func(w *walk) string { return w.changeWorld(1) }},
	{6, false, func(w *walk) string { return w.changeWorld(2 + w.r.IntN(6)) }},
	{10, false, (*walk).attach},
	{8, false, (*walk).detach},
	{2, false, (*walk).attachAgain},
	{6, true, (*walk).meddle},
	{4, false, (*walk).restartAgent},
	{2, false, (*walk).restartAgentBlind},
	{2, false, (*walk).loseSelf},
	{1, true, (*walk).restartSwitch},
}

func (w *walk) nextStep() step {
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	n := w.r.IntN(total)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	panic("the weights do not add up")
}

// step takes one step, and looks at the switch.
func (w *walk) step() {
	w.t.Helper()
	w.mark()
	next := w.nextStep()
	text, loose := next.take(w), next.loose
	w.account = append(w.account, text)
	w.settle()
	for deadline := time.Now().Add(ovstest.Timeout()); loose && w.differs() != nil && time.Now().Before(deadline); {
		w.settle()
	}
	w.compare()
	w.count(loose)
	w.loosened = loose
	questions := 1
	if w.number%10 == 0 {
		questions = 15
	}
	truth := newTraffic(w.world, w.agent)
	for range questions {
		w.put(truth.ask(w.r, w.gatewayMAC), w.r)
	}
	w.askPeers(truth)
	w.askWhy()
}

// put asks the switch.
func (w *walk) put(q question, r *rand.Rand) {
	w.t.Helper()
	w.asked++
	hash := 1 + r.IntN(1<<30)
	err := q.put(w.t.Context(), w.agent, hash)
	// ways go up and down a moment later
	for deadline := time.Now().Add(ovstest.Timeout()); err != nil && time.Now().Before(deadline); {
		err = q.put(w.t.Context(), w.agent, hash)
	}
	if err != nil {
		w.fail("%v", err)
	}
}

// mark begins to count the messages to the switch.
func (w *walk) mark() { w.marked, w.was, w.marker = w.agent.flows.Stats(), w.desired, w.agent }

// count fails the walk if the messages since mark are more or fewer than the change needs, and begins to count again.
// The switch was compared before.
func (w *walk) count(loose bool) {
	w.t.Helper()
	before, after := w.marked, w.agent.flows.Stats()
	if w.marker != w.agent {
		before.FlowMods, before.GroupMods = 0, 0
	}
	flows, groups := size(flow.Diff(w.was, w.desired))
	// a change of some buckets is a message for each
	if have, sent := after.FlowMods-before.FlowMods, after.GroupMods-before.GroupMods; !loose && !w.loosened &&
		(have != flows || sent < groups || sent > 4*groups) {
		w.fail("%d flow-mods and %d group-mods were sent for what takes %d and %d:\n%s", have, sent, flows, groups,
			flow.Diff(w.was, w.desired))
	}
	w.mods += after.FlowMods - before.FlowMods
	w.mark()
}

// size is how many messages a change takes.
func size(c flow.Change) (flows, groups uint64) {
	return uint64(len(c.Add) + len(c.Mod) + len(c.Del)), uint64(len(c.AddGroups) + len(c.ModGroups) + len(c.DelGroups))
}

// settle waits until the agent has seen the world as it is and the switch has confirmed.
func (w *walk) settle() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), ovstest.Timeout())
	defer cancel()
	w.world.version++
	w.agent.tables.readSwitch(w.agent.switchPorts.State)
	w.world.fill(w.agent.tables, w.version)
	for w.seen.Load() != int64(w.world.version) || !w.agent.progress.ready() {
		select {
		case <-ctx.Done():
			w.fail("the agent has not looked at the cluster, or is not ready, for %s", ovstest.Timeout())
		case <-w.passed:
		}
	}
	if w.gatewayMAC == "" {
		row, _ := w.agent.tables.this.settings.Get(self)
		w.gatewayMAC, w.ruleKey = row.GatewayMAC, row.RuleKey
	}
	if err := w.agent.flows.Synced(ctx); err != nil {
		w.fail("%v", err)
	}
	w.layWays(ctx)
}

// compare fails the walk if the switch does not have the desired state.
func (w *walk) compare() {
	w.t.Helper()
	if err := w.differs(); err != nil {
		w.fail("%v", err)
	}
	if refused := w.agent.flows.Stats().Refused; len(refused) > 0 {
		w.fail("the switch refuses %q", refused)
	}
	w.most = max(w.most, w.desired.Len())
	w.nothingInClear()
}

// differs reads the switch and compares it with the state that the agent must desire. That becomes the walk's desired
// state.
func (w *walk) differs() error {
	w.t.Helper()
	want, have := flow.NewSet(), flow.NewSet()
	view := w.world.view(w.config, w.gatewayMAC)
	view.RuleKey = w.ruleKey
	view.Underlay.Local = w.local()
	view.Switch = w.agent.switchPorts.State()
	plan, _ := Plan(view)
	for _, owner := range slices.SortedFunc(maps.Keys(plan.Flows), flow.Owner.Compare) {
		e := w.agent.packetIns.observer.entries(owner, plan.Flows[owner])
		e.Flows = slices.DeleteFunc(e.Flows, func(f flow.Flow) bool { // the first of several owners has the flow
			_, taken := want.Get(f.Key())
			return taken
		})
		for i := range e.Flows {
			e.Flows[i].Cookie = cookieOf(owner)
		}
		w.must(want.AddEntries(e))
	}
	for _, f := range w.foreign {
		w.must(want.Add(f))
	}
	for _, m := range w.request(ofp.GroupDescRequest{ID: ofp.GroupAll}) {
		for _, g := range m.(ofp.GroupDescReply).Groups {
			w.must(have.AddGroup(flow.FromGroupDesc(g)))
		}
	}
	for _, m := range w.request(ofp.MeterDescRequest{ID: ofp.MeterAll}) {
		for _, d := range m.(ofp.MeterDescReply).Meters {
			w.must(have.AddMeter(flow.FromMeterDesc(d)))
		}
	}
	for _, m := range w.request(allFlows) {
		for _, d := range m.(ofp.FlowDescReply).Flows {
			w.must(have.Add(flow.FromStats(d)))
		}
	}
	w.desired = want
	if c := flow.Diff(have, want); !c.Empty() {
		return fmt.Errorf(
			"the switch differs from what is desired (+ it lacks, ~ it has otherwise, - it has too much):\n%s", c)
	}
	return nil
}

// cookieOf returns the cookie of an owner's flows; see docs/design/0001-cookies.md.
func cookieOf(o flow.Owner) uint64 {
	h := fnv.New32a()
	h.Write([]byte(o.Name))
	return instance<<48 | uint64(o.Kind)<<40 | uint64(h.Sum32())
}

func (w *walk) must(err error) {
	w.t.Helper()
	if err != nil {
		w.fail("%v", err)
	}
}

var allFlows = ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll, OutPort: ofp.PortAny,
	OutGroup: ofp.GroupAny}}

// request asks the switch by the second connection.
func (w *walk) request(m ofp.Message) []ofp.Message {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), ovstest.Timeout())
	defer cancel()
	parts, err := w.other.Request(ctx, m)
	if err != nil {
		w.fail("read the switch: %v", err)
	}
	return parts
}

// fail ends the walk with how it came there.
func (w *walk) fail(format string, args ...any) {
	w.t.Helper()
	first := max(0, len(w.account)-12)
	var b strings.Builder
	for i, line := range w.account[first:] {
		fmt.Fprintf(&b, "%4d %s\n", first+i, line)
	}
	w.t.Fatalf("step %d of seed %d (again: -run TestWalk -walk.seed %d -walk.steps %d)\n%s\nlast steps:\n%slast words "+
		"of the agent:\n%s",
		w.number, w.seed, w.seed, w.number, fmt.Sprintf(format, args...), &b, w.log)
}

// logTail keeps the last lines of the agent's log.
type logTail struct {
	mu    sync.Mutex
	lines [][]byte
}

func (l *logTail) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, bytes.Clone(line))
	l.lines = l.lines[max(0, len(l.lines)-20):]
	return len(line), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.Join(l.lines, nil))
}

// The steps.

// changeWorld makes some changes that reach the agent together.
func (w *walk) changeWorld(n int) string {
	var texts []string
	for range n {
		texts = append(texts, w.world.change(w.r))
	}
	return strings.Join(texts, "; ")
}

// attach brings some Pods at once, and looks for their flows as soon as each is attached.
func (w *walk) attach() string {
	w.t.Helper()
	if len(w.world.pods) >= 20 {
		return w.detach()
	}
	var texts []string
	var all sync.WaitGroup
	errs := make(chan error, 8)
	for range 1 + w.r.IntN(3) {
		p := w.world.newPod()
		w.ovs.Device(p.PortName)
		texts = append(texts, fmt.Sprintf("%s %s", p.PodName, p.IPs[0].Addr()))
		all.Go(func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), ovstest.Timeout())
			defer cancel()
			err := w.agent.cniNode().Attach(ctx, p)
			if err == nil {
				err = w.holds(ctx, datapath.PodOwner(p.PortName))
			}
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		w.must(err)
	}
	return "Pods come: " + strings.Join(texts, ", ")
}

// wanted returns the desired entries of an owner.
func (w *walk) wanted(owner flow.Owner) flow.Entries {
	for o, e := range w.agent.tables.flows.All() {
		if o == owner {
			return e
		}
	}
	return flow.Entries{}
}

// holds reports whether the switch has all desired entries of an owner.
func (w *walk) holds(ctx context.Context, owner flow.Owner) error {
	wanted := w.wanted(owner)
	have := flow.NewSet()
	parts, err := w.other.Request(ctx, allFlows)
	for _, m := range parts {
		for _, d := range m.(ofp.FlowDescReply).Flows {
			err = errors.Join(err, have.Add(flow.FromStats(d)))
		}
	}
	if err != nil {
		return fmt.Errorf("read the switch: %w", err)
	}
	for _, want := range wanted.Flows {
		if f, ok := have.Get(want.Key()); !ok || !f.Actions.Equal(want.Actions) {
			return fmt.Errorf("%s is attached and the switch lacks %s", owner.Name, want)
		}
	}
	if len(wanted.Flows) == 0 {
		return fmt.Errorf("%s is attached and has no flows", owner.Name)
	}
	return nil
}

// attachAgain repeats an ADD, as it was or with another MAC.
func (w *walk) attachAgain() string {
	w.t.Helper()
	name := anyOf(w.r, w.world.pods)
	if name == "" {
		return w.attach()
	}
	p := w.world.pods[name]
	if w.r.IntN(2) == 0 {
		p.MAC = "0a:00:00:01:" + p.MAC[12:]
	}
	w.world.pods[name] = p
	ctx, cancel := context.WithTimeout(w.t.Context(), ovstest.Timeout())
	defer cancel()
	w.must(w.agent.cniNode().Attach(ctx, p))
	w.must(w.holds(ctx, datapath.PodOwner(p.PortName)))
	return fmt.Sprintf("%s is attached again with %s", p.PodName, p.MAC)
}

// detach takes some Pods away, one of them twice.
func (w *walk) detach() string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), ovstest.Timeout())
	defer cancel()
	text := "Pods go:"
	for range 1 + w.r.IntN(2) {
		name := anyOf(w.r, w.world.pods)
		if name == "" {
			break
		}
		p := w.world.pods[name]
		delete(w.world.pods, name)
		text += " " + p.PodName
		w.must(w.agent.cniNode().Detach(ctx, p.ContainerID, p.IfName))
		w.must(w.agent.cniNode().Detach(ctx, p.ContainerID, p.IfName))
		if _, still := w.agent.switchPorts.State().Bridges[w.config.OVSBridge].Ports[name]; still {
			w.fail("%s is detached and its port is still there", p.PodName)
		}
	}
	return text
}

// meddle changes the switch behind the agent's back.
func (w *walk) meddle() string {
	w.t.Helper()
	var m []ofp.Message
	text := ""
	deletion := ofp.FlowMod{Command: ofp.FlowDelete, Table: ofp.TableAll, OutPort: ofp.PortAny, OutGroup: ofp.GroupAny}
	switch w.r.IntN(6) {
	case 0:
		text, m, w.foreign = "somebody deletes all flows", append(m, deletion), nil
	case 1:
		deletion.Table = ofp.Table(w.r.IntN(len(datapath.Program)))
		text, m = fmt.Sprintf("somebody deletes table %s", datapath.Program.Name(deletion.Table)), append(m, deletion)
	case 2:
		text, m = "somebody deletes all groups", append(m, ofp.GroupMod{Command: ofp.GroupDelete, ID: ofp.GroupAll})
	case 3:
		text = "somebody makes all flows of table Route drop"
		m = append(m, ofp.FlowMod{Command: ofp.FlowModify, Table: datapath.Route, OutPort: ofp.PortAny,
			OutGroup: ofp.GroupAny})
	case 4:
		f := flow.Flow{Table: datapath.Service, Priority: 999, Match: flow.All(flow.IP()), Cookie: instance<<48 | 5}
		text, m = "somebody adds a flow under the agent's cookie", append(m, f.Mod(ofp.FlowAdd))
	default:
		f := flow.Flow{Table: 200, Priority: uint16(w.r.IntN(1000)), Match: flow.All(flow.IP()), Cookie: 0xbeef}
		text, m = "somebody adds a flow of their own", append(m, f.Mod(ofp.FlowAdd))
		w.foreign = append(w.foreign, f)
	}
	w.must(w.other.Send(m...))
	ctx, cancel := context.WithTimeout(w.t.Context(), ovstest.Timeout())
	defer cancel()
	w.must(w.other.Barrier(ctx))
	return text
}

// restartAgent restarts the agent, which finds everything as it was. It may start with another configuration.
func (w *walk) restartAgent() string {
	w.t.Helper()
	w.stopAgent()
	text := "the agent restarts"
	mc := &w.config.Multicluster
	switch n := w.r.IntN(4); {
	case n == 0:
		mc.EnablePodToPodConnectivity = !mc.EnablePodToPodConnectivity
		text = fmt.Sprintf("the agent restarts with enablePodToPodConnectivity %v", mc.EnablePodToPodConnectivity)
	case n == 1 && !w.world.encrypts:
		mc.AllowUnencryptedPeers = !mc.AllowUnencryptedPeers
		text = fmt.Sprintf("the agent restarts with allowUnencryptedPeers %v", mc.AllowUnencryptedPeers)
	}
	w.startAgent()
	return text
}

// restartAgentBlind changes the cluster while the agent is away.
func (w *walk) restartAgentBlind() string {
	w.t.Helper()
	w.stopAgent()
	text := "while the agent is away " + w.changeWorld(3)
	w.startAgent()
	return text
}

// restartSwitch kills ovs-vswitchd, whose successor has no flows.
func (w *walk) restartSwitch() string {
	w.t.Helper()
	w.other.Close()
	w.ovs.StopDaemon()
	w.ovs.StartDaemon()
	w.foreign = nil
	w.connect()
	return "ovs-vswitchd restarts"
}

// loseSelf removes the Node's own object, and some other object with it. The last known state of the Node stays, and
// everything else goes on. The messages of the two changes are counted apart, since a flow may depend on both.
func (w *walk) loseSelf() string {
	w.t.Helper()
	node := w.world.nodes[ownName]
	delete(w.world.nodes, ownName)
	text := "the Node's own object goes and comes back; meanwhile " + w.changeWorld(2)
	w.settle()
	w.world.nodes[ownName] = node
	w.settle()
	w.compare()
	w.count(false)
	delete(w.world.nodes, ownName)
	w.settle()
	text += ", " + w.detach()
	w.world.nodes[ownName] = node
	return text
}
