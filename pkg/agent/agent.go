// Package agent is the core of the daemon on each Node. It watches the cluster and the Node, and plans the Node's
// desired state. It hands the plan to the one writer of each system: flowsync for the switch's tables, bridge for the
// OVSDB, and hostnet for the host's network stack.
package agent

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/heartbeat"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/metrics"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Options are the parameters of the agent's process.
type Options struct {
	Config config.Config
	// ConfigFile is where Config is from: a change is noticed. It may be empty.
	ConfigFile string
	Warnings   []config.Warning // about the configuration, for `tombolo get status`
	NodeName   string
	REST       *rest.Config
	Namespace  string // the agent's own
	PodName    string // the agent's own; it may be empty
	OVSRunDir  string // "/var/run/openvswitch"
	RunDir     string // of the agent's own sockets, "/var/run/tombolo"
	StateDir   string // of the IPAM record, "/var/lib/tombolo"
	LogDir     string // of the log of policies, "/var/log/tombolo"
	RelayToken string // file of the token for the relay; empty for no relay
	// HealthAddress is the address where the agent answers the kubelet's probes; see the function HealthAddress. If it is
	// the zero value, the agent answers no probes.
	HealthAddress netip.AddrPort
	Logger        *slog.Logger
	// LogLevel is the level of Logger, which an operator may change. It may be nil.
	LogLevel   *slog.LevelVar
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
}

// Agent is the daemon of one Node.
type Agent struct {
	options Options
	config  config.Config
	log     *slog.Logger

	tables      *tables
	watcher     *watch.Watcher
	switchPorts *bridge.Manager
	flows       *flowsync.Syncer
	host        *hostnet.Manager
	// serviceHealth answers load balancers; nil if nothing does.
	serviceHealth *serviceHealth
	tracer        appctl.Client
	attachments   atomic.Pointer[attachments] // nil before the OVSDB's record is read
	progress      *progress
	ipam          *ipam.Store
	packetIns     packetIns
	started       time.Time
	connections   connectionWork
	confirms      *confirmations
	api           apiWriters
	answers       answers
	follower      *nodeFollower
	restore       *restoreWait
	wireguard     wireguardParts
	file          *configFile
	relays        *relays

	// These are changes of passes that have not been handed over yet. Only the engine's goroutine uses them.
	pending pending
}

// apiWriters write to the API server what this Node's agent knows.
type apiWriters struct {
	reports   *reporter
	infos     *heartbeat.Writer
	latencies *heartbeat.Writer
	networks  *publisher[string] // of transportNetworks
	addresses *ipHolder          // of ExternalIPPools; nil without the feature
	captures  *captures          // nil without the feature
	// podNetworks claims addresses of VirtualNetworks; nil without the feature.
	podNetworks *podNetworks
	statuses    *networkStatuses // of Pods with further interfaces; nil without the feature
}

// runs returns the functions that write until their contexts end.
func (w *apiWriters) runs() []func(context.Context) {
	runs := []func(context.Context){w.reports.run, w.infos.Run, w.latencies.Run, w.networks.run}
	if w.addresses != nil {
		runs = append(runs, w.addresses.run)
	}
	if w.captures != nil {
		runs = append(runs, w.captures.loop)
	}
	if w.podNetworks != nil {
		runs = append(runs, w.podNetworks.run, w.statuses.run)
	}
	return runs
}

// pending has the changes of passes that have not been handed to the writers yet.
type pending struct {
	owners        map[flow.Owner]func() flow.Entries
	translations  map[derive.Object][]hostnet.Translation
	hostPorts     map[derive.Name][]hostnet.HostPort
	pods          map[derive.Name]bool
	bridges, host bool
	encrypted     bool
	policies      bool             // connections may have to be judged again
	dropped       []hostnet.Egress // as last handed over
	rebuildTimed  bool             // rebuildFor has begun
	started       time.Time        // of the last pass
	connections   connectionChanges
}

// Run runs the agent. It returns when ctx ends, when a part has failed for good, or with ErrConfigurationChanged.
func Run(ctx context.Context, o Options) error {
	a, err := newAgent(o)
	if err != nil {
		return err
	}
	return a.run(ctx, a.watcher.Run)
}

// run runs all parts of the agent until ctx ends. follow writes the objects of the API server to the tables.
func (a *Agent) run(ctx context.Context, follow func(context.Context)) error {
	writers := []func(context.Context) error{a.switchPorts.Run, a.host.Run, a.flows.Run}
	for _, e := range a.wireguard.encryptions {
		writers = append(writers, e.device.Run)
	}
	return outlive(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error {
			follow(ctx)
			return nil
		})
		g.Go(func() error { return a.packetIns.packets.send(ctx, a.flows.PacketOut) })
		g.Go(func() error { return a.packetIns.audit.run(ctx) })
		g.Go(func() error { return a.packetIns.audit.watchMeters(ctx) })
		g.Go(func() error { return a.packetIns.names.run(ctx) })
		g.Go(func() error { return a.packetIns.observer.run(ctx) })
		g.Go(func() error { return a.packetIns.observer.ends.run(ctx) })
		g.Go(func() error { return a.packetIns.observer.export.run(ctx) })
		g.Go(func() error { return a.packetIns.probes.run(ctx) })
		g.Go(func() error { return a.packetIns.probes.nodes.run(ctx) })
		g.Go(func() error { return debugAPI{a}.serve(ctx) })
		g.Go(func() error { return healthAPI{a}.serve(ctx) })
		g.Go(func() error { return a.reconcile(ctx) })
		g.Go(func() error { return a.file.run(ctx) })
		return g.Wait()
	}, writers...)
}

// outlive runs all functions until ctx ends or one fails. The writers end only after the first function has ended. If
// the end of ctx cancels a CNI request, the writers still undo the request.
func outlive(ctx context.Context, first func(context.Context) error, writers ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	longer, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g.Go(func() error {
		defer stop()
		return ignoreEnd(ctx, first(ctx))
	})
	for _, run := range writers {
		g.Go(func() error { return ignoreEnd(longer, run(longer)) })
	}
	return g.Wait()
}

// newAgent prepares an agent that touches nothing yet.
func newAgent(o Options) (*Agent, error) {
	c := o.Config
	c.Multicluster.Namespace = cmp.Or(c.Multicluster.Namespace, o.Namespace)
	a := &Agent{
		options: o,
		config:  o.Config,
		log:     o.Logger,
		tables:  newTables(c, o.NodeName),
		pending: pending{
			owners: map[flow.Owner]func() flow.Entries{}, pods: map[derive.Name]bool{},
			translations: map[derive.Object][]hostnet.Translation{}, hostPorts: map[derive.Name][]hostnet.HostPort{},
		},
		progress: newProgress(), started: time.Now(),
		tracer: appctl.Client{RunDir: o.OVSRunDir},
	}
	a.file = &configFile{path: o.ConfigFile, have: o.Config, log: o.Logger, restart: "kubectl rollout restart -n " +
		o.Namespace + " daemonset/tombolo-agent"}
	var err error
	if a.watcher, err = watch.New(o.REST, a.log, a.tables.kinds.All()...); err != nil {
		return nil, err
	}
	a.packetIns.audit = newPolicyLog(a.config.AuditLogging, o.LogDir, a.podAt, a.log)
	file, least := filepath.Join(o.RunDir, "names.json"), time.Duration(a.config.FQDNCacheMinTTL)*time.Second
	a.packetIns.names = newLearnedNames(agentNames{a}, file, least, a.log)
	a.packetIns.names.load()
	a.packetIns.strangers = newOtherServers(a.log)
	reject := func(in ofp.PacketIn2) error { return a.packetIns.reject(a.tables, in) }
	a.packetIns.packets = newPackets(map[datapath.PacketKind]func(ofp.PacketIn2) error{
		datapath.ServiceReject: reject, datapath.PolicyReject: reject, datapath.PolicyLog: a.packetIns.audit.take,
		datapath.DNSAnswer: a.packetIns.names.take, datapath.DNSOther: a.packetIns.strangers.take,
		datapath.StaleConnection: func(in ofp.PacketIn2) error { return a.connections.flusher.take(in) },
		datapath.NeighborSolicit: a.packetIns.neighbor,
		datapath.Dropped: func(in ofp.PacketIn2) error {
			a.packetIns.traces.end(in)
			return a.packetIns.observer.take(in)
		},
		datapath.Traced:  func(in ofp.PacketIn2) error { return a.packetIns.traces.take(in) },
		datapath.Opened:  func(in ofp.PacketIn2) error { return a.packetIns.observer.take(in) },
		datapath.WayEcho: func(in ofp.PacketIn2) error { return a.packetIns.probes.take(in) },
	}, a.log)
	if a.api.networks, err = a.newNetworkPublisher(); err != nil {
		return nil, err
	}
	if err := a.newPublishers(); err != nil {
		return nil, err
	}
	if a.api.addresses, err = a.newIPHolder(); err != nil {
		return nil, err
	}
	if a.api.captures, err = a.newCaptures(); err != nil {
		return nil, err
	}
	if c := a.config.AntreaProxy; c.ProxyAll && !c.DisableServiceHealthCheckServer {
		a.serviceHealth = newServiceHealth(oncePer(healthKept, a.ready), func() bool {
			n, _ := a.tables.nodes.Get(derive.Object{Name: a.options.NodeName})
			return n.Leaving
		}, a.log)
	}
	a.watchTables()
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
		PacketIn:   a.packetIns.packets.take,
		Registerer: o.Registerer,
	})
	a.restore = &restoreWait{a.tables, a.switchPorts, a.flows, a.progress, a.log, make(chan struct{}, 1)}
	a.packetIns.audit.dropped = func(ctx context.Context) (map[uint32]uint64, error) { return logDrops(ctx, a.flows) }
	a.follower = newNodeFollower(a)
	hops := metrics.NewPropagation()
	a.confirms = newConfirmations(a.flows.Synced, func(d time.Duration) { hops.Took(metrics.EndpointsToFlows, d) })
	list := func(all func() bool) func(ctx context.Context, each func(string)) error {
		return func(ctx context.Context, each func(string)) error {
			return a.tracer.Lines(ctx, each, "dpctl/dump-conntrack", conntrackDump(a.config, all())...)
		}
	}
	separate := func() bool { return a.connections.zones.any() }
	reader := &connectionReader{list: list(separate), all: list(func() bool { return true })}
	looks := agentSwitch{a.tables, a.flows, reader, a.tracer}
	count := func(ctx context.Context) (tracked, limit int, err error) {
		return countConnections(ctx, a.tracer, a.config)
	}
	a.connections = connectionWork{
		flusher: newConntrackFlusher(looks, a.log), rechecks: newRechecker(looks, a.log),
		count: &connectionCount{read: count, log: a.log},
		zones: newZoneFlusher(looks, a.attachments.Load, a.progress.ready, a.log),
	}
	client, err := newReportClient(o.REST)
	if err != nil {
		return nil, err
	}
	look := reportLook{a.tables, a.flows, a.progress, &a.follower.seenWays.report, new(family.Families)}
	a.api.reports = newReporter(o.NodeName, client, look.policies, a.tables.nodes.Len, a.uid, a.log)
	a.api.podNetworks, a.api.statuses = a.newPodNetworks(client), a.newNetworkStatuses(client)
	if a.api.infos, err = a.newInfo(); err != nil {
		return nil, err
	}
	a.answers = answers{
		dump:     &switchAnswers{a.tables, a.switchPorts, a.flows, a.tracer},
		policies: &policyAnswers{a.tables, a.flows}, why: newWhyAnswers(a.tables, a.tracer),
	}
	a.packetIns.observer = newObserver(a.config, a.tables, a.answers.why, a.flows, a.log)
	if a.tables.tenants != nil {
		a.packetIns.observer.ends.separate = separate
	}
	if a.config.OVSDatapathType == "netdev" {
		a.packetIns.observer.ends.poll = func(ctx context.Context) (map[connectionKey]bool, error) {
			return pollConnections(ctx, count, reader)
		}
	}
	if a.packetIns.observer.export, err = newFlowExport(a.config, o.NodeName, a.packetIns.observer); err != nil {
		return nil, err
	}
	a.packetIns.probes = newWayProbes(a.tables, a.switchPorts, a.flows, a.log)
	a.answers.hops = &hopAnswers{a.answers.dump, a.answers.why, a.packetIns.observer}
	probed := func() []api.ProbedNode {
		all, _ := a.packetIns.probes.nodes.Results()
		return all
	}
	if a.api.latencies, err = newLatencies(o, probed, a.uid, a.log); err != nil {
		return nil, err
	}
	a.packetIns.traces = newPacketTraces(a.tables, a.answers.hops, a.flows, looks.revalidated, a.log)
	if a.relays, err = newRelays(o, a.tables, debugAPI{a}.handler()); err != nil {
		return nil, err
	}
	ways := func() map[string][]api.Way {
		return a.tables.ways.byCluster(portsNow(a.switchPorts, a.config), nil)
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(metrics.NewTables(a.tables.engine), hops, a.packetIns.packets.counts,
			a.packetIns.names.addresses, a.packetIns.observer.dropped, a.packetIns.observer.export, a.relays.open,
			a.packetIns.names.answers, newRuleMetrics(a.answers.policies.countRules, maxRuleSeries, a.log),
			&flowMetrics{a.answers.policies.countPolicyFlows, maxFlowSeries, a.log},
			wayMetrics{ways, a.packetIns.probes.Prober}, a.packetIns.probes.nodes, stateMetrics{a})
	}
	return a, nil
}

// podAt returns the name of the Pod of this Node that has an address in a network of tenants, or no name.
func (a *Agent) podAt(ip netip.Addr, network tenant.ID) string {
	pod, ok := a.tables.objects.networks.separate.with(a.progress, ip, network)
	if !ok {
		return ""
	}
	return pod.Namespace + "/" + pod.Name
}

// ignoreEnd drops the error of something that ended because ctx did.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// reconcile waits for the state of the OVSDB. Then the engine plans and applies until ctx ends.
func (a *Agent) reconcile(ctx context.Context) error {
	if err := a.load(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	options := cni.Options{
		Node:   a.cniNode(),
		IPAM:   a.ipam,
		Logger: a.log,
		Socket: filepath.Join(a.options.RunDir, wire.Socket),

		Unrecovered: a.unrecovered,
	}
	if a.api.podNetworks != nil {
		options.Extra = a.api.podNetworks
	}
	server := cni.NewServer(options)
	a.tables.pods.rebuilding.Set(self, true) // until unrecovered deletes it
	restored, err := server.Recover(ctx, a.attachments.Load().list())
	if err != nil {
		a.log.Error("not all attachments could be rebuilt yet; trying again", "error", err)
	}
	for _, at := range restored {
		a.attachments.Load().restore(at)
	}
	open := a.tables.outside.servedBefore(a.log, hostnet.LeadsTo)
	a.tables.external.keeps = a.api.addresses != nil
	a.tables.loaded()
	runs := []func(context.Context){
		a.connections.flusher.run, a.connections.flusher.flushStale, a.connections.rechecks.run, a.connections.count.run,
		a.connections.zones.run,
		a.confirms.run, a.trim, a.follower.followSwitch, a.follower.followUnderlay,
		a.restore.end, a.restore.freeUplink,
		a.tables.engine.Run, a.relays.run,
	}
	runs = append(runs, a.api.runs()...)
	if m := a.newRouteMender(server); m != nil {
		runs = append(runs, m.run)
	}
	if open {
		d := &drain{untranslated: a.untranslated, log: a.log, count: openThroughEntries}
		runs = append(runs, func(ctx context.Context) { d.run(ctx, a.tables.outside.open) })
	}
	if a.serviceHealth != nil {
		runs = append(runs, a.serviceHealth.run)
	}
	for _, p := range a.wireguard.publishers {
		runs = append(runs, p.run)
	}
	for _, r := range a.wireguard.rotations {
		r.observe() // before the first plan, so that packets stay on their present device
		runs = append(runs, r.run)
	}
	var others []func(context.Context) error
	for _, run := range runs {
		others = append(others, func(ctx context.Context) error {
			run(ctx)
			return nil
		})
	}
	return outlive(ctx, server.Run, others...)
}

// untranslated waits until the host has the translations of the first complete plan.
func (a *Agent) untranslated(ctx context.Context) error {
	if err := a.progress.await(ctx, func() (bool, error) { return a.progress.ready(), nil }); err != nil {
		return err
	}
	return a.host.TranslationsSynced(ctx)
}

// cniNode returns the Node's side of CNI requests.
func (a *Agent) cniNode() *cniNode {
	return &cniNode{a.tables, a.attachments.Load(), a.switchPorts, a.flows, a.host, a.progress, a.connections.zones,
		a.log}
}

// trim returns memory to the system once everything is in place. The first reading of a large cluster leaves more
// garbage than any later work.
func (a *Agent) trim(ctx context.Context) {
	if a.progress.await(ctx, func() (bool, error) { return a.progress.ready(), nil }) != nil {
		return
	}
	_ = a.flows.Synced(ctx) // what is refused is reported elsewhere
	_ = a.host.TranslationsSynced(ctx)
	if ctx.Err() == nil {
		debug.FreeOSMemory()
		a.log.Info(MemoryReturned)
	}
}

// MemoryReturned is the message about the end of trim.
const MemoryReturned = "returned the memory of the start to the system"

// load reads the OVSDB's record of attachments. While it waits, the switch forwards with its existing flows.
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
			a.attachments.Store(newAttachments(list, a.tables, func() map[string]bridge.PortState {
				return a.switchPorts.State().Bridges[a.config.OVSBridge].Ports
			}))
			gateway := br.Ports[a.config.HostGateway]
			mac := cmp.Or(gateway.MACWanted, gateway.MAC, bridge.MACOf(a.options.NodeName+" "+a.config.HostGateway))
			a.log.Info("read the switch's record", "attachments", len(list), "gatewayMAC", mac)
			key, err := ruleKey(a.options.RunDir, list)
			if err != nil {
				a.log.Warn("numbers of rules get another key", "error", err)
			}
			s := settings{Known: true, GatewayMAC: mac, RuleKey: datapath.Secret(key)}
			for _, e := range a.wireguard.encryptions {
				if e.wanted && e.err == nil { // without a key the address would be known
					s.LinkMACs[e.link.at] = e.mac.String()
				}
			}
			a.tables.this.settings.Set(self, s)
			a.tables.resolvers.node.Set(self, readResolvers(resolverFiles))
			a.tables.readSwitch(a.switchPorts.State)
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

// watchTables records the changes of passes for the writers.
func (a *Agent) watchTables() {
	t, p := a.tables, &a.pending
	if a.options.Config.EncryptsNodes() {
		path := filepath.Join(a.options.StateDir, holdersFile)
		report := func(err error) { a.log.Warn("keep holders of WireGuard keys failed", "error", err) }
		saved, err := readHolders(path)
		if err != nil {
			report(err)
		}
		t.inside.keys.remember(saved, holdersWriter(path, saved, report))
	}
	t.nodes.Watch(func(changes []derive.Change[derive.Object, nodeFacts]) {
		if slices.ContainsFunc(changes,
			func(c derive.Change[derive.Object, nodeFacts]) bool { return c.Key.Name == a.options.NodeName }) {
			a.follower.nodeChanged()
			a.wireguard.announce()
			a.api.networks.ask()
			a.api.reports.changed() // it may be another one of the same name
		}
	})
	t.services.Slices.Watch(func(changes []derive.Change[derive.Object, service.SliceFacts]) {
		p.connections.drainingBefore, p.connections.drainingNow = draining(changes)
	})
	t.services.Frontends.Watch(func(changes []derive.Change[derive.Object, []service.Frontend]) {
		p.connections.before, p.connections.now = t.connections(changes)
	})
	if a.serviceHealth != nil {
		t.services.Health.Watch(a.serviceHealth.changed)
	}
	if a.api.captures != nil {
		t.captures.rows.Watch(func([]derive.Change[derive.Object, captureRow]) { a.api.captures.changed() })
	}
	t.outside.translations.Watch(func(changes []derive.Change[derive.Object, []hostnet.Translation]) {
		for _, c := range changes {
			p.translations[c.Key] = c.New
		}
	})
	t.hostPorts.mapped.Watch(func(changes []derive.Change[derive.Name, []hostnet.HostPort]) {
		for _, c := range changes {
			p.hostPorts[c.Key] = c.New
		}
	})
	t.flows.ServedPods.Watch(func(changes []derive.Change[derive.Name, datapath.ServedPod]) {
		for _, c := range changes {
			p.pods[c.Key] = true
		}
	})
	t.outputs.bridges.Watch(func([]derive.Change[derive.Name, []bridge.Bridge]) { p.bridges = true })
	t.outputs.host.Watch(func([]derive.Change[derive.Name, hostnet.Desired]) { p.host = true })
	t.inside.encrypted.Watch(func([]derive.Change[derive.Name, encrypted]) { p.encrypted = true })
	t.outputs.announcement.Watch(func([]derive.Change[derive.Name, announcement]) { a.api.networks.ask() })
	t.objects.gateways.Watch(func([]derive.Change[derive.Object, *mcv1alpha1.Gateway]) { a.wireguard.announce() })
	// It has the address inside.
	t.peers.peering.Watch(func([]derive.Change[derive.Name, peering.Peering]) { a.wireguard.announce() })
	t.flows.Watch(func(o flow.Owner, entries func() flow.Entries) { p.owners[o] = entries })
	t.flows.Policies.Known.Watch(func() { p.policies = true })
	t.policies.Attached.Watch(func(changes []derive.Change[derive.Name, policy.Attached]) {
		for _, c := range changes {
			if at, ok := t.pods.attachments.Get(c.Key); ok && at.PodUID == "" && c.New.UID != "" {
				a.attachments.Load().adopt(at.PortName, c.New.UID)
			}
		}
	})
	t.flows.Policies.Known.WatchConcerns(func(c datapath.Concern) { a.connections.rechecks.concern(c) })
	t.policies.LocalVersions.Watch(func([]derive.Change[policy.Key, policy.Version]) { a.api.reports.changed() })
	t.this.familiesRow.Watch(func([]derive.Change[derive.Name, family.Families]) { a.api.reports.changed() })
	t.engine.WatchProblems(problemlog.New(a.log, `"tombolo get status" lists the problems`).Changed)
	t.engine.WatchPasses(func(s derive.PassStats) {
		a.pending.started = s.Started
		a.apply()
	})
}

// uid returns the UID of this Node's object; "" without an object.
func (a *Agent) uid() types.UID {
	n, _ := a.tables.nodes.Get(derive.Object{Name: a.options.NodeName})
	return n.UID
}

// apply hands the changes of passes to the writers. Before this Node's object is known, the switch and the host stay as
// they are.
func (a *Agent) apply() {
	defer a.progress.wake()
	t, p := a.tables, &a.pending
	if _, ok := t.node.Get(self); !ok {
		p.handConnections(a.connections.flusher)
		return
	}
	if p.host {
		host, _ := t.outputs.host.Get(self)
		a.host.Set(host)
		if dropsMore(p.dropped, host.Egress) {
			a.guard()
		}
		p.dropped = host.Egress
	}
	if p.bridges {
		bridges, _ := t.outputs.bridges.Get(self)
		a.switchPorts.Set(bridges)
	}
	for key, list := range p.translations {
		a.host.Translate(key.String(), list)
	}
	for key, list := range p.hostPorts {
		a.host.MapPorts(string(key), list)
	}
	if p.encrypted {
		row, _ := t.inside.encrypted.Get(self)
		for _, e := range a.wireguard.encryptions {
			e.set(row)
		}
	}
	if len(p.owners) > 0 {
		a.flows.SetSome(p.entries(a.packetIns.observer))
		for o := range p.owners {
			if o.Kind == datapath.KindService {
				a.confirms.declared(a.pending.started, o)
				break
			}
		}
	}
	p.handConnections(a.connections.flusher) // the flows are declared: they are waited for
	a.connections.flusher.start()
	a.connections.rechecks.start()
	if p.policies {
		a.connections.rechecks.changed()
		a.api.reports.changed()
	}
	a.progress.declared(p.pods, t.flows.ServedPods.Get)
	// New maps: a map that was large once stays so.
	p.owners, p.pods = map[flow.Owner]func() flow.Entries{}, map[derive.Name]bool{}
	p.translations = map[derive.Object][]hostnet.Translation{}
	p.hostPorts = map[derive.Name][]hostnet.HostPort{}
	p.bridges, p.host, p.encrypted, p.policies = false, false, false, false

	// Every source has loaded, and the plan has all of their rows. Ports that are still being made are added later. The
	// plan lacks nothing that carries traffic.
	waiting := len(t.pods.waiting.All())
	if !a.progress.ready() && waiting == 0 && !a.rebuilding() {
		a.switchPorts.Release()
		a.flows.Release()
		a.host.TranslationsLoaded()
		a.host.PortsLoaded()
		row, _ := t.inside.encrypted.Get(self)
		for _, e := range a.wireguard.encryptions {
			e.set(row) // no device may be wanted
		}
		a.progress.release()
		a.log.Info("first complete plan applied", "owners", t.flows.Len(), "attachments", len(t.pods.attachments.All()))
	}
	if waiting == 0 && a.switchPorts.State().FlowRestoreWait {
		select {
		case a.restore.declared <- struct{}{}:
		default:
		}
	}
}

// guardLimit is how long new tunnels wait until the host's nftables table is written. On a busy Node nft takes seconds.
const guardLimit = 20 * time.Second

// guard waits until the host drops packets that would leave in plain text although they have to be encrypted. A new
// port of the switch sends BFD packets at once, by any route that the switch has read until then.
func (a *Agent) guard() {
	ctx, cancel := context.WithTimeout(context.Background(), guardLimit)
	defer cancel()
	if a.host.EgressCompared(ctx); ctx.Err() != nil {
		a.log.Warn("nft has not written table netdev tombolo: the first packets of new tunnels may leave in plain text; the "+
			"problems of this Node have nft's error", "waited", guardLimit)
	}
}

// dropsMore reports whether some packets are to be dropped that were not before.
func dropsMore(before, now []hostnet.Egress) bool {
	for _, e := range now {
		i := slices.IndexFunc(before, func(b hostnet.Egress) bool { return b.Link == e.Link })
		if i < 0 || slices.ContainsFunc(e.Drop, func(p netip.Prefix) bool { return !slices.Contains(before[i].Drop, p) }) {
			return true
		}
	}
	return false
}

// unrecovered records the attachments that could not be rebuilt yet.
func (a *Agent) unrecovered(left []cni.Unrecovered) {
	rows := map[derive.Name]cni.Unrecovered{}
	for _, u := range left {
		rows[derive.Name(u.PortName)] = u
	}
	a.tables.engine.Together(func() {
		a.tables.pods.unrecovered.Replace(rows)
		have := a.tables.portsOf(a.switchPorts.State())
		if !slices.ContainsFunc(left, func(u cni.Unrecovered) bool { return have[derive.Name(u.PortName)].serves() }) {
			a.tables.pods.rebuilding.Delete(self)
		}
	})
}

// rebuildFor is how long removals wait for attachments that are being rebuilt and have a port on the switch. Their Pods
// use the existing flows of the switch. An attachment that can never be rebuilt must not delay the others without
// limit. An attachment without a port has no traffic that a removal could end, so nothing waits for it.
const rebuildFor = time.Minute

// rebuilding reports whether removals wait for attachments that are being rebuilt.
func (a *Agent) rebuilding() bool {
	if is, _ := a.tables.pods.rebuilding.Get(self); !is {
		return false
	}
	if !a.pending.rebuildTimed {
		a.pending.rebuildTimed = true
		time.AfterFunc(rebuildFor, func() { a.tables.pods.rebuilding.Delete(self) })
	}
	return true
}

// handConnections hands on which connections to Services the pass has changed.
func (p *pending) handConnections(to *conntrackFlusher) {
	if p.connections.any() {
		to.change(p.connections)
		p.connections = connectionChanges{}
	}
}

// entries yields the desired entries of each owner that has changed, with the reports of the observer.
func (p *pending) entries(observer *observer) iter.Seq2[flow.Owner, flow.Entries] {
	return func(yield func(flow.Owner, flow.Entries) bool) {
		for o, entries := range p.owners {
			if !yield(o, observer.entries(o, entries())) {
				return
			}
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
