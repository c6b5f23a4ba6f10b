// Package agent is the per-Node daemon's core: it watches the cluster and the Node, plans
// what the Node should have, and hands that to the one writer of each system: flowsync for
// the switch's tables, bridge for the OVSDB, hostnet for the host's network stack.
package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/runner"
)

// Options is what the agent's process was started with.
type Options struct {
	Config     config.Config
	Warnings   []config.Warning // about the configuration, for `tombolo get status`
	NodeName   string
	REST       *rest.Config
	Namespace  string // the agent's own
	OVSRunDir  string // "/var/run/openvswitch"
	RunDir     string // of the agent's own sockets, "/var/run/tombolo"
	StateDir   string // of the IPAM record, "/var/lib/tombolo"
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
}

// Agent is the daemon of one Node.
type Agent struct {
	options Options
	config  config.Config
	log     *slog.Logger
	runner  *runner.Runner

	cluster     *cluster
	sources     []source
	switchPorts *bridge.Manager
	flows       *flowsync.Syncer
	host        *hostnet.Manager
	tracer      appctl.Client
	attachments *attachments
	balance     *balance // used by pass only
	ipam        *ipam.Store
	answers     chan ofp.PacketOut // to packets that the switch asks about, on their way to it
	started     time.Time
	conntrack   *conntrackFlusher
	restoring   atomic.Bool // an attempt to end flow-restore-wait is under way

	mu         sync.Mutex
	desired    Desired
	problems   []problem.Problem
	changed    chan struct{} // closed and replaced at each plan
	released   bool          // the first complete plan was applied: removals are allowed
	gatewayMAC string
	viewError  string // the last one that was logged; used by pass only
}

// Run is the agent's life. It returns when ctx ends or something failed for good.
func Run(ctx context.Context, o Options) error {
	a, err := newAgent(o)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ignoreEnd(ctx, a.switchPorts.Run(ctx)) })
	g.Go(func() error { return ignoreEnd(ctx, a.host.Run(ctx)) })
	g.Go(func() error { return ignoreEnd(ctx, a.flows.Run(ctx)) })
	g.Go(func() error { return a.cluster.run(ctx, a.sources) })
	g.Go(func() error { return a.answer(ctx) })
	g.Go(func() error { return a.serveDebug(ctx) })
	g.Go(func() error { return a.reconcile(ctx) })
	return g.Wait()
}

// newAgent prepares an agent that touches nothing yet.
func newAgent(o Options) (*Agent, error) {
	a := &Agent{
		options: o,
		config:  o.Config,
		log:     o.Logger,
		runner:  runner.New(times),
		changed: make(chan struct{}),
		answers: make(chan ofp.PacketOut, 64),
		started: time.Now(),
		balance: newBalance(o.Config, o.NodeName),
		tracer:  appctl.Client{RunDir: o.OVSRunDir},
	}
	namespace := a.config.Multicluster.Namespace
	if namespace == "" {
		namespace = o.Namespace
	}
	var err error
	if a.cluster, a.sources, err = newCluster(o.REST, namespace, a.config.MulticlusterGateway(), a.log, a.runner.Trigger); err != nil {
		return nil, err
	}
	if a.ipam, err = ipam.Open(filepath.Join(o.StateDir, "ipam.json")); err != nil {
		return nil, fmt.Errorf("open the record of addresses: %w", err)
	}
	if corrupt := a.ipam.Corrupt(); corrupt != nil {
		a.log.Error("the address record is corrupt; it is rebuilt from the OVSDB, the veth pairs and the network namespaces",
			"file", corrupt.Path, "movedTo", corrupt.Moved, "error", corrupt.Err)
	}
	a.switchPorts = bridge.New(bridge.Options{Endpoint: bridge.EndpointIn(o.OVSRunDir), Logger: a.log})
	a.host = hostnet.New(hostnet.Options{Logger: a.log})
	a.flows = flowsync.New(flowsync.Options{
		Dial:       prompt(ofconn.UnixDialer(filepath.Join(o.OVSRunDir, a.config.OVSBridge+".mgmt"))),
		Instance:   instance,
		Logger:     a.log,
		PacketIn:   a.packetIn,
		Registerer: o.Registerer,
	})
	a.conntrack = newConntrackFlusher(agentSwitch{a}, a.log, a.runner.Trigger)
	return a, nil
}

// ignoreEnd drops the error of something that ended because ctx did.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// reconcile waits for everything a plan is made from, then plans and applies for ever.
func (a *Agent) reconcile(ctx context.Context) error {
	if err := a.load(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	go a.listen(ctx)
	server := cni.NewServer(cni.Options{
		Node:   a,
		IPAM:   a.ipam,
		Logger: a.log,
		Socket: filepath.Join(a.options.RunDir, wire.Socket),
	})
	restored, err := server.Recover(ctx, a.attachments.list())
	if err != nil {
		a.log.Error("not every record of who is attached could be rebuilt; the next start tries again", "error", err)
	}
	for _, at := range restored {
		a.attachments.put(at)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ignoreEnd(ctx, server.Run(ctx)) })
	g.Go(func() error {
		a.conntrack.run(ctx)
		return nil
	})
	g.Go(func() error {
		a.runner.Run(ctx, a.pass)
		return nil
	})
	return g.Wait()
}

// listen plans again when the OVSDB or the host's network changes.
func (a *Agent) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.switchPorts.Changed():
		case <-a.host.Changed():
		}
		a.runner.Trigger()
	}
}

// load reads the OVSDB's record of who is attached. The switch keeps forwarding by the
// flows it has while this waits.
func (a *Agent) load(ctx context.Context) error {
	for {
		state := a.switchPorts.State()
		if state.Connected {
			br := state.Bridges[a.config.OVSBridge]
			var list []cni.Attachment
			for name, p := range br.Ports {
				if at, ok := cni.FromExternalIDs(name, p.ExternalIDs); ok {
					list = append(list, at)
				}
			}
			a.attachments = newAttachments(list)
			gateway := br.Ports[a.config.HostGateway]
			a.gatewayMAC = cmp.Or(gateway.MACWanted, gateway.MAC, bridge.MACOf(a.options.NodeName+" "+a.config.HostGateway))
			a.log.Info("read the switch's record", "attachments", len(list), "gatewayMAC", a.gatewayMAC)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.switchPorts.Changed():
		case <-time.After(time.Second):
		}
	}
}

// times are those of the agent's runner: a Pod waits for the plan that has its port. A pass
// does not fail, so there is no back-off.
var times = runner.Options{Settle: 5 * time.Millisecond, Resync: 30 * time.Second}

// missing is after how long the agent looks again for what it needs before it can plan. What
// brings it usually triggers an earlier look.
const missing = 500 * time.Millisecond

// pass plans once and applies the plan. It returns when to look again.
func (a *Agent) pass(ctx context.Context) (time.Time, error) {
	if !a.cluster.ready() {
		return time.Now().Add(missing), nil
	}
	view, err := a.view(ctx)
	if err != nil {
		if err.Error() != a.viewError {
			a.viewError = err.Error()
			a.log.Error("look at the cluster and the Node; what the switch has stays", "error", err)
		}
		return time.Now().Add(missing), nil
	}
	a.viewError = ""
	desired, problems := Plan(view)
	problems = append(problems, a.conntrack.problems(a.options.NodeName)...)
	a.tell(problems)
	if desired.Bridges == nil {
		a.publish(desired, problems)
		return time.Now().Add(missing), nil // the Node's own object is not there
	}
	a.switchPorts.Set(desired.Bridges)
	a.host.Set(desired.Host)
	a.flows.SetAll(desired.Flows)
	a.conntrack.update(desired.State.ServiceConnections(), view.EndpointSlices)
	a.publish(desired, problems)

	// Every source has loaded and is in the plan. Ports that are still being made are
	// added when they are there; nothing that serves traffic is missing from the plan.
	if !a.released && len(desired.Waiting) == 0 {
		a.switchPorts.Release()
		a.flows.Release()
		a.mu.Lock()
		a.released = true
		a.mu.Unlock()
		a.log.Info("first complete plan applied", "owners", len(desired.Flows), "attachments", len(view.Attachments))
		a.publish(desired, problems)
	}
	if view.Switch.FlowRestoreWait && a.ready() && len(desired.Waiting) == 0 {
		a.endRestoreWait(ctx)
		return time.Now().Add(missing), nil
	}
	return time.Time{}, nil
}

// view copies out what a plan is made from.
func (a *Agent) view(ctx context.Context) (View, error) {
	v := View{
		Config:      a.config,
		NodeName:    a.options.NodeName,
		Attachments: a.attachments.list(),
		Switch:      a.switchPorts.State(),
		GatewayMAC:  a.gatewayMAC,
	}
	if err := a.cluster.fill(ctx, &v); err != nil {
		return v, err
	}
	a.balance.update(&v)
	return v, a.underlay(&v)
}

// tell logs problems that are new and says when one is over.
func (a *Agent) tell(problems []problem.Problem) {
	a.mu.Lock()
	before := a.problems
	a.mu.Unlock()
	had := map[problem.Problem]bool{}
	for _, p := range before {
		had[p] = true
	}
	for _, p := range problems {
		if !had[p] {
			a.log.Warn(p.Message, "object", p.Object, "field", p.Field, "reason", p.Reason)
		}
		delete(had, p)
	}
	for p := range had {
		a.log.Info("no longer: "+p.Message, "object", p.Object, "field", p.Field, "reason", p.Reason)
	}
}

// publish makes a plan the current one and wakes who waits for it.
func (a *Agent) publish(d Desired, problems []problem.Problem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.desired, a.problems = d, problems
	close(a.changed)
	a.changed = make(chan struct{})
}

// current returns the latest plan, and a channel that is closed when there is a newer one.
func (a *Agent) current() (Desired, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.desired, a.changed
}

// ready reports whether a complete plan was applied once.
func (a *Agent) ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.released
}

// packetIn answers packets that the switch asks about: connections to Services without
// endpoints. A meter in the switch bounds their rate (packetInRate). It runs on the reader
// of the connection and never waits for that: what does not fit into the queue is lost, as
// packets are.
func (a *Agent) packetIn(p ofp.PacketIn2) {
	d, _ := a.current()
	out, err := datapath.Reject(p, d.Refusals)
	if err != nil {
		a.log.Debug("packet left unanswered", "error", err)
		return
	}
	select {
	case a.answers <- out:
	default:
	}
}

// answer sends what packetIn makes, until ctx ends.
func (a *Agent) answer(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case out := <-a.answers:
			sending, cancel := context.WithTimeout(ctx, time.Second)
			if err := a.flows.PacketOut(sending, out); err != nil {
				a.log.Debug("reject not sent", "error", err)
			}
			cancel()
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
