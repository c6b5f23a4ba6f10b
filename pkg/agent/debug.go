package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// answers has the parts that answer the debug API.
type answers struct {
	dump     *switchAnswers
	policies *policyAnswers
	why      *whyAnswers
	hops     *hopAnswers
}

// switchAnswers answers requests about the state of the switch and the content of the tables.
type switchAnswers struct {
	tables      *tables
	switchPorts *bridge.Manager
	flows       *flowsync.Syncer
	tracer      appctl.Client
}

// debugAPI answers the requests of commands, of the relay and of Prometheus.
type debugAPI struct{ agent *Agent }

// serve serves the debug API and the metrics on a unix socket that only root may open.
func (d debugAPI) serve(ctx context.Context) error {
	path := filepath.Join(d.agent.options.RunDir, api.Socket)
	if err := os.MkdirAll(d.agent.options.RunDir, 0o755); err != nil {
		return fmt.Errorf("serve the debug API: %w", err)
	}
	// A killed agent leaves its sockets; only one agent runs on a Node.
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("serve the debug API: %w", err)
	}
	// The socket appears under its name only when its mode is right.
	listener, err := net.Listen("unix", path+".new")
	if err != nil {
		return fmt.Errorf("serve the debug API: %w", err)
	}
	if err := errors.Join(os.Chmod(path+".new", 0o600), os.Rename(path+".new", path)); err != nil {
		return fmt.Errorf("serve the debug API: %w", err)
	}
	return serveHTTP(ctx, listener, d.handler())
}

func (d debugAPI) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, f func(*http.Request) (any, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			body, err := f(r)
			d.answerJSON(w, path, body, err)
		})
	}
	answer(api.PathFlows, d.agent.answers.dump.serveFlows)
	answer(api.PathGroups, d.agent.answers.dump.serveGroups)
	answer(api.PathPorts, d.agent.answers.dump.servePorts)
	answer(api.PathPeers, d.agent.answers.dump.servePeers)
	answer(api.PathStatus, d.serveStatus)
	answer(api.PathTrace, d.agent.answers.dump.serveTrace)
	answer(api.PathTraces, d.agent.answers.serveTraces)
	answer(api.PathHop, d.agent.answers.hops.serve)
	answer(api.PathExplain, d.agent.answers.dump.serveExplain)
	answer(api.PathPolicies, d.agent.answers.policies.servePolicies)
	answer(api.PathRules, d.agent.answers.policies.serveRules)
	answer(api.PathIdentities, d.agent.answers.policies.serveIdentities)
	answer(api.PathWhy, d.agent.answers.why.serve)
	answer(api.PathProbes, d.agent.packetIns.probes.serve(d.agent.options.NodeName))
	for path, f := range d.nodeAnswers() {
		answer(path, f)
	}
	answer(api.PathAgentInfo, d.serveInfo)
	answer(api.PathFeatureGates, d.serveGates)
	answer(api.PathLearnedNames, d.agent.packetIns.names.serve)
	answer(api.PathExternalIPs, d.serveExternalIPs)
	answer(api.PathLogLevel, d.serveLogLevel)
	mux.HandleFunc("PUT "+api.PathLogLevel, d.setLogLevel)
	mux.HandleFunc("GET "+api.PathObserve, d.agent.packetIns.observer.serve)
	mux.HandleFunc("GET "+api.PathCapture, d.serveCapture)
	mux.HandleFunc("GET "+api.PathLiveCapture, d.serveLiveCapture)
	answer(api.PathPacketSend, d.agent.packetIns.traces.send)
	mux.HandleFunc("GET "+api.PathPacketWatch, d.agent.packetIns.traces.watch)
	if d.agent.options.Gatherer != nil && d.agent.config.EnablePrometheusMetrics {
		mux.Handle("GET /metrics", promhttp.HandlerFor(d.agent.options.Gatherer, promhttp.HandlerOpts{}))
	}
	return mux
}

// answerJSON writes an answer, or the error.
func (d debugAPI) answerJSON(w http.ResponseWriter, path string, body any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		body = api.Error{Error: err.Error()}
	}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		d.agent.log.Debug("debug API: write answer", "path", path, "error", err)
	}
}

// kindNames are the words for owners' kinds; see datapath.KindPod and its neighbours.
var kindNames = map[flow.Kind]string{
	datapath.KindPod:          "Pod",
	datapath.KindService:      "Service",
	datapath.KindPolicy:       "Policy",
	datapath.KindMulticluster: "Multicluster",
	datapath.KindNode:         "Node",
}

var groupTypes = map[flow.GroupType]string{
	flow.AllBuckets: "all", flow.Select: "select", flow.Indirect: "indirect", flow.FastFailover: "fast_failover",
}

// tableRef is how ovs-ofctl's text names a table: table=N, goto_table:N, resubmit(,N).
var tableRef = regexp.MustCompile(`(\btable=|\bgoto_table:|\bresubmit\(,)(\d+)`)

// named puts the tables' names into ovs-ofctl's text.
func named(text string) string {
	return tableRef.ReplaceAllStringFunc(text, func(ref string) string {
		m := tableRef.FindStringSubmatch(ref)
		n, err := strconv.ParseUint(m[2], 10, 8)
		if err != nil {
			return ref
		}
		return m[1] + datapath.Program.Name(ofp.Table(n))
	})
}

// serveFlows lists the flows of the switch.
func (a *switchAnswers) serveFlows(r *http.Request) (any, error) {
	table, owner := r.URL.Query().Get("table"), r.URL.Query().Get("owner")
	if err := knownFilters(table, owner); err != nil {
		return nil, err
	}
	about, err := a.flowsAbout(r)
	if err != nil {
		return nil, err
	}
	dump, err := a.flows.Dump(r.Context())
	if err != nil {
		return nil, fmt.Errorf("read the switch's flows: %w", err)
	}
	list := api.FlowList{Flows: []api.Flow{}}
	pods := podsByPort(a.tables)
	for _, f := range dump.Flows {
		out := api.Flow{
			Table:    datapath.Program.Name(f.Flow.Table),
			TableID:  uint8(f.Flow.Table),
			Priority: f.Flow.Priority,
			Match:    f.Flow.Match.String(),
			Actions:  named(f.Flow.Actions.String()),
			Text:     named(f.Flow.String()),
			Cookie:   f.Flow.Cookie,
			Packets:  f.Packets,
			Bytes:    f.Bytes,
			Duration: f.Duration.Seconds(),
		}
		if f.Owner != (flow.Owner{}) {
			out.Owner = ownerText(f.Owner, pods)
		}
		if table != "" && !strings.EqualFold(table, out.Table) && table != itoa(int(out.TableID)) {
			continue
		}
		if owner != "" && !strings.EqualFold(owner, kindNames[f.Owner.Kind]) || !about(f) {
			continue
		}
		list.Flows = append(list.Flows, out)
	}
	return list, nil
}

// ownerText names an owner for people: a Pod by its name, not by its port.
func ownerText(o flow.Owner, pods map[string]string) string {
	name := o.Name
	if pod := pods[name]; o.Kind == datapath.KindPod && pod != "" {
		name = pod
	}
	return strings.TrimSpace(kindNames[o.Kind] + " " + name)
}

// knownFilters refuses an unknown table or kind of owner, since an empty list of flows would look like an answer. A
// table that has no name here may still have flows of other programs, and is requested by its number.
func knownFilters(table, owner string) error {
	if _, err := strconv.ParseUint(table, 10, 8); table != "" && err != nil {
		var names []string
		for _, t := range datapath.Program.Tables() {
			names = append(names, datapath.Program.Name(t))
		}
		if !containsFold(names, table) {
			return fmt.Errorf("there is no table %q; the tables are %s, or a number to 255", table, strings.Join(names, ", "))
		}
	}
	if kinds := slices.Sorted(maps.Values(kindNames)); owner != "" && !containsFold(kinds, owner) {
		return fmt.Errorf("nothing of the kind %q owns flows; the kinds are %s", owner, strings.Join(kinds, ", "))
	}
	return nil
}

func containsFold(list []string, word string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, word) })
}

// serveGroups lists the groups of the switch.
func (a *switchAnswers) serveGroups(r *http.Request) (any, error) {
	groups, err := a.flows.DumpGroups(r.Context())
	if err != nil {
		return nil, fmt.Errorf("read the switch's groups: %w", err)
	}
	list := api.GroupList{Groups: []api.Group{}}
	for _, g := range groups {
		out := api.Group{
			ID:      g.Group.ID,
			Type:    groupTypes[g.Group.Type],
			Method:  g.Group.Selection.Method,
			Buckets: []api.Bucket{},
			Text:    g.Group.String(),
		}
		if g.Owner != (flow.Owner{}) {
			out.Owner = ownerText(g.Owner, nil)
		}
		for _, b := range g.Group.Buckets {
			out.Buckets = append(out.Buckets, api.Bucket{ID: b.ID, Weight: b.Weight, Actions: named(b.Actions.String())})
		}
		list.Groups = append(list.Groups, out)
	}
	return list, nil
}

// servePorts lists the ports of the switch.
func (a *switchAnswers) servePorts(*http.Request) (any, error) {
	state := a.switchPorts.State()
	if !state.Connected {
		return nil, errors.New("no connection to the OVSDB: is the tombolo-ovs Pod of this Node running?")
	}
	list := api.PortList{Ports: []api.Port{}}
	for name, p := range state.Bridges[a.tables.config.OVSBridge].Ports {
		out := api.Port{Name: name, OFPort: int64(p.OFPort), Type: p.ExternalIDs[externalIDType], MAC: p.MAC,
			Error: p.Error, UUID: p.UUID}
		switch {
		case p.Error != "" && p.OFPort == 0:
			out.OFPort = -1
		case p.Gone:
			out.Error = "its device is gone"
		}
		if at, ok := cni.FromExternalIDs(name, p.ExternalIDs); ok {
			out.Pod = at.PodNamespace + "/" + at.PodName
			out.MAC, out.IfName, out.ContainerID, out.PodUID = at.MAC, at.IfName, at.ContainerID, string(at.PodUID)
			for _, ip := range at.IPs {
				out.IPs = append(out.IPs, ip.Addr().String())
			}
		}
		list.Ports = append(list.Ports, out)
	}
	slices.SortFunc(list.Ports, func(x, y api.Port) int {
		return cmp.Or(cmp.Compare(uint64(x.OFPort), uint64(y.OFPort)), strings.Compare(x.Name, y.Name))
	})
	return list, nil
}

// servePeers lists the other Nodes and the other clusters.
func (a *switchAnswers) servePeers(r *http.Request) (any, error) {
	list := api.PeerList{Peers: []api.Peer{}}
	ports := portsNow(a.switchPorts, a.tables.config)
	// If the switch does not answer soon, the counters are left out.
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	counters, _ := a.flows.PortStats(ctx)
	cancel()
	for _, row := range a.tables.remotes.All() {
		n := row.Value
		peer := api.Peer{Kind: "Node", Name: n.Name, CIDRs: texts(n.PodCIDRs), Via: n.Address.String()}
		if way := wayOf(n.Address, n.Address, ports, counters); way.State != "" {
			peer.Ways = []api.Way{way}
		}
		list.Peers = append(list.Peers, peer)
	}
	nodes := len(list.Peers)
	peering, _ := a.tables.peers.peering.Get(self)
	ways := a.tables.ways.byCluster(ports, counters)
	for _, p := range peering.Peers {
		var gateways []netip.Addr // the addresses that users see, also if there are others inside WireGuard
		for _, w := range p.Gateways {
			gateways = append(gateways, w.Outside)
		}
		peer := api.Peer{
			Kind: "Cluster", Name: p.ClusterID, CIDRs: texts(p.CIDRs), Gateways: texts(gateways),
			Role: peering.Part.Role.String(), Ways: ways[p.ClusterID],
		}
		if len(p.Ends) > 0 {
			peer.Via = p.Outside(p.Ends[0].Addr).String()
		}
		list.Peers = append(list.Peers, peer)
	}
	byName := func(x, y api.Peer) int { return strings.Compare(x.Name, y.Name) }
	slices.SortFunc(list.Peers[:nodes], byName)
	slices.SortFunc(list.Peers[nodes:], byName)
	return list, nil
}

func texts[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

func (d debugAPI) serveStatus(r *http.Request) (any, error) {
	s := d.agent.status()
	if s.OVS == "" { // only ovs-ctl notes it in the OVSDB
		// If the switch does not answer, the version stays unknown. The field Waiting reports other faults of the switch.
		s.OVS, _ = d.agent.tracer.Version(r.Context())
	}
	if u, err := d.agent.tracer.Upcalls(r.Context(), conntrackDump(d.agent.config, false)[0]); err == nil {
		s.Upcalls = &api.Upcalls{Missed: u.Missed, Lost: u.Lost}
	}
	return s, nil
}

func (a *Agent) status() api.Status {
	problems := slices.Concat(a.tables.engine.Problems(), a.connections.flusher.problems(a.options.NodeName),
		a.connections.rechecks.problems(a.options.NodeName), a.connections.count.problems(a.options.NodeName),
		a.packetIns.observer.ends.problems(a.options.NodeName),
		a.packetIns.observer.export.problems(a.options.NodeName),
		a.packetIns.strangers.problems(a.options.NodeName), a.host.Problems())
	for _, e := range a.wireguard.encryptions {
		problems = append(problems, e.problems(a.options.NodeName)...)
	}
	for _, r := range a.wireguard.rotations {
		problems = append(problems, r.problems()...)
	}
	_, network := a.tables.outputs.network.Get(self)
	state, stats := a.switchPorts.State(), a.flows.Stats()
	s := api.Status{
		Node:     a.options.NodeName,
		Version:  version.String(),
		Started:  a.started,
		Datapath: a.config.OVSDatapathType,
		OVS:      state.OVSVersion,
		OpenFlow: api.OpenFlow{
			Connected:    stats.Connected,
			Connections:  stats.Connections,
			MessagesSent: stats.Sent,
			FlowMods:     stats.FlowMods,
			GroupMods:    stats.GroupMods,
			Bundles:      stats.Bundles,
			Mended:       stats.Mended,
			Flows:        stats.Flows,
			Groups:       stats.Groups,
			LastError:    stats.LastError,
			Refused:      stats.Refused,
		},
		Problems: []api.Problem{},
	}
	if p, _ := a.tables.peers.peering.Get(self); p.Part.Role != peering.None {
		s.Gateway, s.Role = p.Part.Gateway.Name, p.Part.Role.String()
	}
	if last, passes, _ := a.tables.engine.Stats(); passes > 0 {
		s.LastPass = &api.Pass{Started: last.Started, Seconds: last.Duration.Seconds(), Evaluated: last.Evaluated,
			Changed: last.Changed, Passes: passes}
	}
	if now, ok := a.tables.this.now.Get(self); ok {
		s.Network = networkStatus(a.config, now.Underlay)
	}
	for _, w := range a.watcher.Status() {
		if w.Waiting != "" {
			s.Waiting = append(s.Waiting, fmt.Sprintf("%s objects are not watched: %s", w.Kind, w.Waiting))
		}
	}
	if !state.Connected {
		s.Waiting = append(s.Waiting, "no connection to the OVSDB")
	}
	if !stats.Connected {
		s.Waiting = append(s.Waiting, "no OpenFlow connection to the switch")
	}
	if !network {
		s.Waiting = append(s.Waiting, "the Node's podCIDR or its underlay is not known yet")
	}
	for _, row := range a.tables.pods.waiting.All() {
		s.Waiting = append(s.Waiting, "port "+string(row.Key)+" has no OpenFlow number yet")
	}
	slices.Sort(s.Waiting)
	s.Ready = a.ready()
	for _, w := range a.options.Warnings {
		s.Problems = append(s.Problems, api.Problem{Object: configObject, Field: w.Key,
			Reason:  reasonConfigurationIgnored.String(),
			Message: w.Message})
	}
	s.Problems = append(s.Problems, a.file.problems()...)
	for _, p := range problems {
		s.Problems = append(s.Problems, api.Problem{Object: p.Object.String(), Field: p.Field, Reason: p.Reason.String(),
			Message: p.Message})
	}
	return s
}

// networkStatus has the settings of tunnels.
func networkStatus(c config.Config, u Underlay) *api.Network {
	n := &api.Network{
		Mode: c.TrafficEncapMode, Tunnel: c.TunnelType, Port: int(tunnelOf(c).Port), Encryption: c.TrafficEncryptionMode,
		PeerEncryption: c.Multicluster.TrafficEncryptionMode, Over6: u.NodesOver6, PeersOver6: u.PeersOver6, LinkMTU: u.MTU,
		PodMTU: podMTU(c, u),
	}
	if u.MTU > 0 {
		n.TunnelOverhead = tunnelOverhead(c, u)
	}
	return n
}

// ready reports whether the Node's network is ready.
func (a *Agent) ready() bool {
	_, network := a.tables.outputs.network.Get(self)
	return a.progress.ready() && network && a.switchPorts.State().Connected && a.flows.Stats().Connected
}

// serveExplain lists the rows that a key is in, and the rows that they are made from.
func (a *switchAnswers) serveExplain(r *http.Request) (any, error) {
	key := r.URL.Query().Get("key")
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	rows, err := a.tables.engine.Explain(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w; is the OVSDB running?", err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("nothing is called %q: give a Service or EndpointSlice as namespace/name, the name of a "+
			"port or of another Node, a cluster's ID, or self for this Node", key)
	}
	out := api.Explanation{Key: key}
	for _, x := range rows {
		out.Rows = append(out.Rows, api.Row{Table: x.Table, Value: x.Value, From: texts(x.From), To: texts(x.To),
			Problems: x.Problems})
	}
	return out, nil
}
