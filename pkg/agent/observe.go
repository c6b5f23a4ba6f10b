package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// Bounds of the observer.
const (
	reportQueue  = 4096                  // reports that wait to be read
	reportBatch  = 256                   // reports that are named between two passes
	reportsWait  = 20 * time.Millisecond // until reports are named, so that they are several
	foldWithin   = time.Second           // equal drops share a record
	maxFolded    = 4096                  // drops whose repeats are counted
	maxRuleNames = 100_000               // then names of rules that are gone are forgotten
	rulesKept    = time.Second           // names of rules are read again after that
	lostEvery    = time.Second           // lost reports make one event
	ofOneSender  = 50                    // reports of one sender in a second that are named
	isolatedKept = 10 * time.Second
)

const (
	protoICMPv6 = 58
	bfdPort     = 3784 // RFC 5881
)

// observer makes records of the packets that the switch reports, and answers readers of records.
type observer struct {
	config  config.Observe
	tables  *tables
	why     *whyAnswers
	flows   *flowsync.Syncer
	log     *slog.Logger
	history *record.History
	queue   *sharedQueue[networkAddr, seenReport]
	lost    atomic.Uint64 // reports that found the queue full
	ends    *connectionEnds
	export  *flowExport            // nil if no collector gets records
	recent  atomic.Int32           // looks at the meters that are still due
	dropped *prometheus.CounterVec // packets, by reason

	mu      sync.Mutex
	readers int // of connections

	// Only run uses these.
	folded   map[foldKey]*folded
	rules    ruleNames
	senders  map[networkAddr]int // reports in this second
	isolated map[isolatedKey]isolatedPolicies
	meters   map[uint32]uint64 // packets that the meters of reports have dropped
}

// isolatedKey is a Pod in a direction.
type isolatedKey struct {
	pod       derive.Object
	direction policy.Direction
}

// isolatedPolicies are the NetworkPolicies that isolated it at a time.
type isolatedPolicies struct {
	read  time.Time
	names []string
}

// seenReport is a report with the time when it came.
type seenReport struct {
	datapath.Report
	at time.Time
}

// networkAddr is an address in a network of tenants, or in the default network.
type networkAddr struct {
	ip      netip.Addr
	network tenant.ID
}

func senderOf(r datapath.Report) networkAddr { return networkAddr{r.Src, r.Network} }

// foldKey is the part that equal drops have in common. It has no port of the client, since a client that tries again
// takes another port.
type foldKey struct {
	src, dst netip.Addr
	protocol uint8
	port     uint16
	table    ofp.Table
	cookie   uint64
	kind     datapath.PacketKind
	network  tenant.ID
}

// folded is a record whose repeats are counted.
type folded struct {
	record.Record
	until time.Time
	more  uint64
}

// ruleNames are the names of rules.
type ruleNames struct {
	tables   *tables
	cookie   func(flow.Owner) uint64
	read     time.Time
	passes   uint64 // of the engine, when they were read
	byCookie map[uint64]datapath.NamedRule
	byNumber map[uint32]datapath.NamedRule
}

func newObserver(c config.Config, t *tables, why *whyAnswers, flows *flowsync.Syncer, log *slog.Logger) *observer {
	return &observer{
		config: c.Observe, tables: t, why: why, flows: flows, log: log,
		history: record.NewHistory(c.Observe.HistoryMiB << 20),
		ends:    newConnectionEnds(c.OVSDatapathType, log),
		queue:   newSharedQueue[networkAddr, seenReport](reportQueue), folded: map[foldKey]*folded{},
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tombolo_dropped_packets_total",
			Help: "Packets that the switch has dropped or refused and that are recorded, by the reason of the record. Packets " +
				"whose copies were lost have the reason unrecorded.",
		}, []string{"reason"}),
		rules:   ruleNames{tables: t, cookie: flows.Cookie},
		senders: map[networkAddr]int{}, isolated: map[isolatedKey]isolatedPolicies{},
	}
}

// entries returns the entries of an owner, with reports of dropped packets if these are recorded.
func (o *observer) entries(owner flow.Owner, e flow.Entries) flow.Entries {
	if !o.config.Drops {
		return e
	}
	return datapath.ReportDrops(owner, e, o.tables.nodeName)
}

// take has a report recorded.
func (o *observer) take(in ofp.PacketIn2) error {
	if !o.config.Drops && datapath.KindOf(in) != datapath.Opened {
		return nil
	}
	r, err := datapath.ReportOf(in)
	if err != nil {
		return err
	}
	if r.Protocol == protoICMPv6 && (r.Dst.IsMulticast() || r.Src.IsLinkLocalUnicast()) {
		return nil // what each interface sends that comes up
	}
	if r.DstPort == bfdPort && r.Dst.IsLinkLocalUnicast() {
		return nil // BFD of a way whose port this switch does not have yet, or any more
	}
	o.recent.Store(dueLooks)
	if err := o.queue.push(senderOf(r), seenReport{r, time.Now()}); err != nil {
		o.miss(r)
		return err
	}
	return nil
}

// run makes records until ctx ends.
func (o *observer) run(ctx context.Context) error {
	tick := time.NewTicker(foldWithin / 4)
	defer tick.Stop()
	look := time.NewTicker(lostEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.queue.wake:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(reportsWait):
			}
			o.addSome(ctx)
		case now := <-tick.C:
			o.flush(now)
			o.addEnds(ctx, now)
		case p := <-o.ends.polled:
			o.addAbsent(p)
		case list := <-o.ends.living:
			o.exportLiving(ctx, list, time.Now())
		case now := <-look.C:
			o.countLost(ctx, now)
		}
	}
}

// addSome names waiting reports and adds their records.
func (o *observer) addSome(ctx context.Context) {
	var list []seenReport
	for len(list) < reportBatch {
		r, ok := o.queue.pop()
		if !ok {
			break
		}
		if f := o.folded[keyOf(r)]; f != nil && r.at.Before(f.until) {
			o.repeat(f, r)
			continue
		}
		from := senderOf(r.Report)
		if o.senders[from]++; r.Kind != datapath.Opened && o.senders[from] > ofOneSender {
			o.miss(r.Report) // a scan of all ports must not take the history of others
			continue
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return
	}
	var events []record.Event
	if err := ask(ctx, o.tables.engine, func() {
		for _, r := range list {
			if f := o.folded[keyOf(r)]; f != nil && r.at.Before(f.until) { // its like is in this list
				o.repeat(f, r)
				continue
			}
			e := o.named(r)
			if e.Connection != nil {
				separate := o.tables.objects.networks.separate
				o.ends.began(r, separate.zoneOf(separate.numbered(r.Network)), e.Connection)
			}
			events = append(events, e)
		}
	}); err != nil {
		for _, r := range list {
			o.miss(r.Report)
		}
		return
	}
	o.add(events...)
}

// add records events.
func (o *observer) add(events ...record.Event) {
	o.history.Add(events...)
	o.export.add(events)
}

func keyOf(r seenReport) foldKey {
	return foldKey{r.Src, r.Dst, r.Protocol, r.DstPort, r.Table, r.Cookie, r.Kind, r.Network}
}

// named makes the record of a report. Call it between two passes.
func (o *observer) named(r seenReport) record.Event {
	out := &record.Record{
		Time: r.at, Node: o.tables.nodeName, Verdict: record.Dropped, Protocol: r.ProtocolName(), Count: 1,
		Table: datapath.Program.Name(r.Table), Reason: r.Reason(),
	}
	from, to := o.endsOf(r)
	network := o.tables.objects.networks.separate.numbered(r.Network)
	separate := network != derive.Object{}
	if separate {
		out.Network = network.String()
		if to.network != network && to.network != (derive.Object{}) {
			out.ToNetwork = to.network.String()
		}
	}
	out.From, out.To = o.endOf(from, r.SrcPort), o.endOf(to, r.DstPort)
	var front service.Frontend
	served := false
	if !separate { // no Service answers there
		front, served = o.service(r, out)
	}
	if r.Way != 0 {
		out.Way = o.wayOf(r.Way)
	}
	if r.Kind == datapath.Opened {
		out.Verdict, out.Table = record.Allowed, ""
		out.First = r.FromPod || from.Node == ""
		out.Egress, out.Ingress = o.rules.of(r.EgressRule), o.rules.of(r.IngressRule)
		return record.Event{Connection: out}
	}
	out.First = true
	if r.Kind != datapath.Dropped {
		out.Verdict = record.Rejected
	}
	if out.Reason == record.NoLocal && served && !front.Elsewhere && len(front.Endpoints) == 0 {
		out.Reason = record.NoEndpoints
	}
	o.explain(r, out, from, to)
	o.fold(r, out)
	o.dropped.WithLabelValues(out.Reason).Inc()
	return record.Event{Drop: out}
}

// endsOf returns the ends of a packet. Both are in the zone of the packet's network if that is a separate one.
func (o *observer) endsOf(r seenReport) (from, to whyEnd) {
	network := o.tables.objects.networks.separate.numbered(r.Network)
	return o.why.addresses.endIn(network, r.Src), o.why.addresses.endIn(network, r.Dst)
}

// endOf returns one end of a record. It recognizes the host of this Node by the address of the gateway port.
func (o *observer) endOf(e whyEnd, port uint16) record.End {
	out := record.End{IP: e.Address, Port: port, Node: e.Node, Cluster: e.Cluster}
	if e.Kind == "Pod" {
		out.Namespace, out.Pod, _ = strings.Cut(e.Name, "/")
	}
	if n, _ := o.tables.node.Get(self); out.Node == "" && slices.Contains(n.GatewayIPs, e.ip) {
		out.Node = o.tables.nodeName
	}
	return out
}

// service names the Service that the client asked, by any of its addresses.
func (o *observer) service(r seenReport, out *record.Record) (service.Frontend, bool) {
	asked := r.Asked
	if !asked.IsValid() {
		asked = netip.AddrPortFrom(r.Dst, r.DstPort)
	}
	front, ok := o.tables.flows.Services.Asked(o.tables.services.Serving)(corev1.Protocol(r.ProtocolName()), asked)
	if ok {
		out.Service = front.Namespace + "/" + front.Service
		if front.VIP.Addr() != asked.Addr() && !front.VIP.Addr().IsUnspecified() {
			asked = front.VIP // the client's destination, which the host has translated
		}
	}
	if ok || r.Asked.IsValid() {
		out.Asked = asked.String()
	}
	return front, ok
}

// wayOf is the far end of a way, by the number of its port.
func (o *observer) wayOf(number uint16) string {
	watched, _ := o.tables.ways.watched.Get(self)
	for _, end := range watched {
		if n, ok := o.tables.ways.numbers.Get(end); ok && n == uint32(number) {
			return end.String()
		}
	}
	return ""
}

// explain adds the rule that has dropped a packet, or the policies that isolate its Pod.
func (o *observer) explain(r seenReport, out *record.Record, from, to whyEnd) {
	rule, ok := o.rules.at(r.Cookie)
	direction, judged := datapath.RuleTables[r.Table]
	switch {
	case ok:
		out.Reason, out.Rule = record.ByPolicy, ruleText(rule)
		out.Message = fmt.Sprintf("%s of %s %s", out.Verdict, out.Rule.Policy, out.Rule.Name)
	case judged && out.Reason == record.Isolated:
		own := from
		if direction == policy.Ingress {
			own = to
		}
		c := policy.Connection{From: from.ip, To: to.ip, Protocol: corev1.Protocol(r.ProtocolName()), Port: r.DstPort,
			Asked: r.Asked.Addr()}
		if network := o.tables.objects.networks.separate.numbered(r.Network); network != (derive.Object{}) {
			c.Networks = [2]derive.Object{policy.Ingress: cmp.Or(to.network, network), policy.Egress: network}
		}
		out.Policies = o.isolatedBy(direction, own, c)
		out.Message = fmt.Sprintf("isolated for %s by %s; no rule allows", direction,
			cmp.Or(strings.Join(out.Policies, ", "), "NetworkPolicies"))
	default:
		out.Message = record.MeaningOf(out.Reason)
	}
}

// isolatedBy names the NetworkPolicies that isolate a Pod of this Node.
func (o *observer) isolatedBy(d policy.Direction, own whyEnd, c policy.Connection) []string {
	if own.facts == nil {
		return nil
	}
	key := isolatedKey{own.pod, d}
	if known := o.isolated[key]; time.Since(known.read) < isolatedKept {
		return known.names
	}
	if len(o.isolated) >= maxFolded {
		clear(o.isolated)
	}
	var names []string
	for _, step := range o.tables.policies.Why(own.pod, d, c).Steps {
		if step.Stage == policy.NetworkPolicies {
			names = texts(step.Policies)
		}
	}
	o.isolated[key] = isolatedPolicies{time.Now(), names}
	return names
}

// at is the rule whose flows have a cookie.
func (n *ruleNames) at(cookie uint64) (datapath.NamedRule, bool) {
	rule, ok := n.byCookie[cookie]
	if !ok && flow.Kind(cookie>>40) == datapath.KindPolicy && n.readAgain() {
		rule, ok = n.byCookie[cookie]
	}
	return rule, ok
}

// of is the rule with a number, or nil.
func (n *ruleNames) of(number uint32) *record.Rule {
	rule, ok := n.byNumber[number]
	if !ok && datapath.IsRuleNumber(number) && n.readAgain() {
		rule, ok = n.byNumber[number]
	}
	if !ok {
		return nil
	}
	return ruleText(rule)
}

// ruleText is a rule in words.
func ruleText(rule datapath.NamedRule) *record.Rule {
	name := fmt.Sprintf("%s[%d]", rule.Key.Direction, rule.Key.Index)
	if rule.Name != "" {
		name = rule.Name
	}
	return &record.Rule{Policy: rule.Key.Policy.String(), Name: name}
}

// readAgain reads the names of rules again, unless it did so a moment ago. A number never gets another meaning, so
// names that were read earlier stay valid.
func (n *ruleNames) readAgain() bool {
	_, passes, _ := n.tables.engine.Stats()
	if time.Since(n.read) < rulesKept || passes == n.passes || n.tables.flows.Policies == nil {
		return false
	}
	byOwner, byNumber := n.tables.flows.Policies.RuleNames()
	if len(n.byNumber) > maxRuleNames || n.byNumber == nil {
		n.byCookie, n.byNumber = map[uint64]datapath.NamedRule{}, map[uint32]datapath.NamedRule{}
	}
	n.read, n.passes = time.Now(), passes
	maps.Copy(n.byNumber, byNumber)
	for owner, rule := range byOwner {
		n.byCookie[n.cookie(owner)] = rule
	}
	return true
}

// repeat counts a packet that is equal to the packet of a record.
func (o *observer) repeat(f *folded, r seenReport) {
	f.more++
	f.Time = r.at
	o.dropped.WithLabelValues(f.Reason).Inc()
}

// unrecorded is the reason, in the metric, of packets whose copies were lost.
const unrecorded = "unrecorded"

// miss counts a report that is lost.
func (o *observer) miss(r datapath.Report) {
	o.lost.Add(1)
	if r.Kind != datapath.Opened {
		o.dropped.WithLabelValues(unrecorded).Inc()
	}
}

// fold counts the repeats of a record from now on.
func (o *observer) fold(r seenReport, out *record.Record) {
	if len(o.folded) < maxFolded {
		o.folded[keyOf(r)] = &folded{Record: *out, until: r.at.Add(foldWithin)}
	}
}

// flush adds the repeats of records whose time has ended.
func (o *observer) flush(now time.Time) {
	var events []record.Event
	for key, f := range o.folded {
		if now.Before(f.until) {
			continue
		}
		if f.more == 0 {
			delete(o.folded, key)
			continue
		}
		again := f.Record
		again.Count = f.more
		events = append(events, record.Event{Drop: &again})
		f.more, f.until = 0, now.Add(foldWithin) // it goes on: it is not named again
	}
	slices.SortFunc(events, func(x, y record.Event) int { return x.Drop.Time.Compare(y.Drop.Time) })
	o.add(events...)
}

// countLost adds an event about the reports that were lost since the last one.
func (o *observer) countLost(ctx context.Context, at time.Time) {
	missing := func(lost uint64, why string) {
		if lost > 0 {
			o.add(record.Event{Missing: &record.Missing{Node: o.tables.nodeName, Time: at, Lost: lost, Why: why}})
		}
	}
	clear(o.senders)
	missing(o.lost.Swap(0), "there were too many, or too many of one sender")
	missing(o.ends.lost.Swap(0), "too many connections ended at once")
	if o.meters != nil && o.recent.Load() == 0 { // some reports always come when meters drop others
		return
	}
	reading, cancel := context.WithTimeout(ctx, lostEvery)
	defer cancel()
	list, err := o.flows.MeterStats(reading)
	if err != nil {
		return
	}
	o.recent.Add(-1)
	now := map[uint32]uint64{}
	for _, m := range list {
		kind, ok := datapath.MeteredReports(m.ID)
		if !ok {
			continue
		}
		for _, band := range m.Bands {
			now[m.ID] += band.Packets
		}
		if n := now[m.ID] - min(o.meters[m.ID], now[m.ID]); kind == datapath.Dropped && o.meters != nil {
			o.dropped.WithLabelValues(unrecorded).Add(float64(n))
		}
	}
	missing(grownBy(o.meters, now), "the switch limits reports")
	o.meters = now
}

// serve answers a reader of records.
func (o *observer) serve(w http.ResponseWriter, r *http.Request) {
	q, err := record.ParseQuestion(r.URL.Query())
	const off = "connections are not recorded: observe.connections is off in antrea-agent.conf; set it to auto"
	without := q.Connections && o.config.Connections == "off"
	if err == nil && without && q.Follow {
		err = errors.New(off)
	}
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(api.Error{Error: err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if q.Connections && q.Follow {
		defer o.observe()()
	}
	lines, flusher := json.NewEncoder(w), http.NewResponseController(w)
	at, end := o.history.Last(q.Last, q.Since, q.Filter), o.history.Next()
	begin := record.Begin{Node: o.tables.nodeName, From: o.history.From(), Drops: o.config.Drops,
		Connections: q.Connections && q.Follow}
	if lines.Encode(record.Event{Begin: &begin}) != nil {
		return
	}
	if without { // there are drops
		missing := record.Missing{Node: o.tables.nodeName, Time: time.Now(), Why: off}
		if lines.Encode(record.Event{Missing: &missing}) != nil {
			return
		}
	}
	for {
		list, next, lost, changed := o.history.Read(at)
		if lost > 0 {
			list = append([]record.Event{{Missing: &record.Missing{Node: o.tables.nodeName, Time: time.Now(), Lost: lost,
				Why: "the reader was too slow"}}}, list...)
		}
		for _, e := range list {
			if q.Takes(e) && lines.Encode(e) != nil {
				return
			}
		}
		switch at = next; {
		case !q.Follow && at >= end:
			return
		case len(list) > 0:
			continue
		case !q.Follow:
			return
		}
		if flusher.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// observe makes the switch report connections (seenReport). The last reader calls the returned function to end that.
func (o *observer) observe() (end func()) {
	change := func(by int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.readers += by; o.readers > 0 {
			o.tables.followed.connections.Set(self, true)
		} else {
			o.tables.followed.connections.Delete(self)
		}
		o.ends.want(o.readers > 0)
	}
	change(1)
	return func() { change(-1) }
}
