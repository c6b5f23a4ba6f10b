package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/ended"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/sysctl"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// Bounds of the ends of connections.
const (
	maxEnds    = 8192   // that wait for their names
	endsBatch  = 2048   // that are named at a time
	maxBirths  = 32_768 // connections whose names are kept until they end
	birthsRoom = 1024   // the oldest ones that are forgotten together
	endWait    = 300 * time.Millisecond
	endRetry   = time.Second
)

// endReader reads the connections that the datapath forgets; see ended.Events.
type endReader interface {
	Read() (list []ended.Connection, lost uint64, err error)
	Close() error
}

// connectionEnds joins the ends of connections, as the datapath reports them, with the records of their beginnings
// (births). It reads ends only while a reader needs them. The copy of a connection's first packet may come later than
// the event of its end. So an end waits endWait for its birth.
type connectionEnds struct {
	listen func() (endReader, error) // nil if the datapath reports no ends
	list   func() ([]ended.Connection, error)
	poll   func(context.Context) (map[connectionKey]bool, error) // of a datapath that reports no ends: what it tracks
	count  func() error                                          // has the kernel count packets and bytes
	// separate reports whether this Node has Pods in separate networks; nil without feature gate TenantNetworks.
	separate func() bool
	log      *slog.Logger
	change   chan struct{} // has an entry if wanted has changed
	lost     atomic.Uint64
	living   chan []ended.Connection // lists of connections that live, for the exporter
	polled   chan polledKeys

	mu     sync.Mutex
	wanted bool
	came   []endedAt
	failed string // why ends are not read

	// Only the observer's run uses these.
	births map[connectionKey]*birth
	order  []*birth // in the order of their time; some are gone
}

// endedAt is a connection and when the datapath has forgotten it.
type endedAt struct {
	ended.Connection
	at time.Time
}

// connectionKey is what the birth and the end of a connection have in common.
type connectionKey struct {
	protocol       uint8
	client, server netip.AddrPort
	zone           uint16 // of a separate network, or 0
}

// keyOfEnd returns the key of a connection that the kernel tracks.
func keyOfEnd(c ended.Connection) connectionKey {
	return connectionKey{c.Protocol, c.Client, c.Server, c.Zone}
}

// keyOfPacket returns the key of the connection of a packet.
func keyOfPacket(h datapath.Headers, zone uint16) connectionKey {
	return connectionKey{h.Protocol, netip.AddrPortFrom(h.Src, h.SrcPort), netip.AddrPortFrom(h.Dst, h.DstPort), zone}
}

// birth is the record of the beginning of a connection that has not ended. If several births have one key, next is the
// later one.
type birth struct {
	*record.Record
	key  connectionKey
	next *birth
	gone bool
	late bool // it was named later
	// These are of the last flow record about the connection.
	sent, received ended.Counter
	changed        time.Time // since when the counters are as they are
	idle           bool      // a record has reported it
}

func newConnectionEnds(datapathType string, log *slog.Logger) *connectionEnds {
	e := &connectionEnds{log: log, change: make(chan struct{}, 1), births: map[connectionKey]*birth{},
		living: make(chan []ended.Connection), polled: make(chan polledKeys)}
	if datapathType == "system" {
		e.count = countBytes
		e.listen = func() (endReader, error) {
			if e.separate == nil {
				return ended.Listen(ended.Zones{Main: datapath.ServiceZone}, 0)
			}
			return ended.Listen(allZones, 0)
		}
		e.list = func() ([]ended.Connection, error) {
			if e.separate == nil || !e.separate() {
				return ended.Tracked(ended.Zones{Main: datapath.ServiceZone}, 0)
			}
			list, err := ended.Tracked(allZones, 0)
			return slices.DeleteFunc(list, foreign), err
		}
	}
	return e
}

// allZones are the zones of our connections: the main zone, and these of separate networks.
var allZones = ended.Zones{Main: datapath.ServiceZone, Last: tenant.MaxZone}

// foreign reports whether a connection is of another program that uses the zones of separate networks.
func foreign(c ended.Connection) bool { return c.Zone != 0 && !datapath.HasSource(c.Mark) }

// countBytes has the kernel count the packets and bytes of connections that begin from now on.
func countBytes() error {
	const key = "net/netfilter/nf_conntrack_acct"
	if now, err := sysctl.Get(key); err == nil && now == "1" {
		return nil
	}
	return sysctl.Set(key, "1")
}

// want has ends read, or not any more.
func (e *connectionEnds) want(wanted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wanted == wanted {
		return
	}
	e.wanted = wanted
	select {
	case e.change <- struct{}{}:
	default:
	}
}

func (e *connectionEnds) isWanted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wanted
}

// run reads ends while they are wanted, until ctx ends.
func (e *connectionEnds) run(ctx context.Context) error {
	if e.listen == nil {
		return e.runPolls(ctx)
	}
	uncounted := ""
	for ctx.Err() == nil {
		if !e.isWanted() {
			select {
			case <-ctx.Done():
			case <-e.change:
			}
			continue
		}
		if err := e.count(); err == nil {
			uncounted = ""
		} else if text := err.Error(); text != uncounted {
			uncounted = text
			e.log.Warn("the kernel does not count the bytes of connections; their records have no bytes", "error", err)
		}
		err := e.read(ctx)
		e.report(err)
		if err != nil {
			_ = sleep(ctx, endRetry)
		}
	}
	return nil
}

// polledKeys are the connections that a datapath tracks, from a list that began at a time.
type polledKeys struct {
	at   time.Time
	keys map[connectionKey]bool
}

// Bounds of lists of connections on a datapath that forwards nothing meanwhile.
const (
	pollEvery = 30 * time.Second
	pollMost  = 2000        // with more connections no list is made for records alone
	pollAfter = time.Second // a connection is tracked at the latest after its beginning was reported
)

// errManyConnections is the error for a list that would stop the datapath for too long.
var errManyConnections = fmt.Errorf("more than %d connections are tracked", pollMost)

// runPolls lists connections at intervals while ends are wanted, until ctx ends.
func (e *connectionEnds) runPolls(ctx context.Context) error {
	if e.poll == nil {
		return nil
	}
	reported := false
	for sleep(ctx, pollEvery) == nil {
		if !e.isWanted() {
			continue
		}
		at := time.Now()
		keys, err := e.poll(ctx)
		if failed := err != nil; failed != reported && ctx.Err() == nil {
			reported = failed
			e.log.Info("ends of connections by lists of the datapath", "recorded", !failed, "error", err)
		}
		if err != nil {
			continue
		}
		select {
		case <-ctx.Done():
		case e.polled <- polledKeys{at, keys}:
		}
	}
	return nil
}

// addAbsent adds the ends of connections that began before a list and are not in it.
func (o *observer) addAbsent(p polledKeys) {
	var events []record.Event
	for _, b := range o.ends.order {
		if b.gone || b.key.client.Port() == 0 || p.keys[b.key] || p.at.Sub(b.Time) < pollAfter {
			continue
		}
		e := record.Event{End: o.ended(endedAt{at: p.at}, b.Record, b.Time)}
		o.export.addEnd(e, nil)
		events = append(events, e)
		o.ends.next(b.key) // births of one key are in the order of their time
	}
	o.history.Add(events...)
}

// pollConnections lists what the datapath tracks if these are few connections.
func pollConnections(ctx context.Context, count func(context.Context) (tracked, limit int, err error),
	reader *connectionReader,
) (map[connectionKey]bool, error) {
	tracked, _, err := count(ctx)
	if err != nil {
		return nil, err
	}
	if tracked > pollMost {
		return nil, errManyConnections
	}
	keys := map[connectionKey]bool{}
	err = reader.read(ctx, func(line string) {
		if h, ok := datapath.TrackedConnection(line); ok {
			keys[keyOfPacket(h.Headers, h.Zone)] = true
		}
	})
	return keys, err
}

// read reads ends until ctx ends or they are not wanted any more.
func (e *connectionEnds) read(ctx context.Context) error {
	reader, err := e.listen()
	if err != nil {
		return err
	}
	e.report(nil)
	stop, unwanted := make(chan struct{}), atomic.Bool{}
	var closing sync.WaitGroup
	closing.Go(func() {
		defer func() { _ = reader.Close() }()
		defer unwanted.Store(true)
		for e.isWanted() {
			select {
			case <-ctx.Done():
				return
			case <-stop:
				return
			case <-e.change:
			}
		}
	})
	defer closing.Wait()
	defer close(stop)
	for {
		list, lost, err := reader.Read()
		e.take(list, lost, time.Now())
		switch {
		case unwanted.Load():
			return nil
		case err != nil:
			return err
		}
	}
}

// take has ends wait for their births.
func (e *connectionEnds) take(list []ended.Connection, lost uint64, at time.Time) {
	e.mu.Lock()
	for _, c := range list {
		if foreign(c) {
			continue
		}
		if len(e.came) == maxEnds {
			lost++
			continue
		}
		e.came = append(e.came, endedAt{c, at})
	}
	e.mu.Unlock()
	e.lost.Add(lost)
}

// report records whether ends are read.
func (e *connectionEnds) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	e.mu.Lock()
	before := e.failed
	e.failed = text
	e.mu.Unlock()
	switch {
	case text != "" && before == "":
		e.log.Warn("ends of connections are not recorded", "error", err)
	case text == "" && before != "":
		e.log.Info("ends of connections are recorded again")
	}
}

// problems reports that ends are not recorded.
func (e *connectionEnds) problems(node string) []problem.Problem {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed == "" {
		return nil
	}
	return []problem.Problem{{
		Object: problem.Object{Kind: "Node", Name: node}, Reason: reasonConnectionEndsNotSeen,
		Message: fmt.Sprintf("records of connections have no end and no bytes: %s: give the agent the capability "+
			"NET_ADMIN, and the kernel the module nf_conntrack_netlink", e.failed),
	}}
}

// due returns the ends that have waited.
func (e *connectionEnds) due(now time.Time) []endedAt {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for n < min(len(e.came), endsBatch) && now.Sub(e.came[n].at) >= endWait {
		n++
	}
	out := e.came[:n:n]
	if e.came = e.came[n:]; len(e.came) == 0 {
		e.came = nil
	}
	return out
}

// began keeps the record of a connection until it ends. The zone is 0, unless the network is a separate one.
func (e *connectionEnds) began(r seenReport, zone uint16, out *record.Record) {
	if e.listen == nil && e.poll == nil || !e.isWanted() {
		return
	}
	e.keep(&birth{Record: out, key: keyOfPacket(r.Headers, zone), changed: out.Time})
}

// keep keeps a birth. If there are too many, it forgets the oldest ones.
func (e *connectionEnds) keep(b *birth) {
	key := b.key
	if last := e.births[key]; last == nil {
		e.births[key] = b
	} else {
		for last.next != nil {
			last = last.next
		}
		last.next = b
	}
	if e.order = append(e.order, b); len(e.order) <= maxBirths {
		return
	}
	isGone := func(b *birth) bool { return b.gone }
	if e.order = slices.DeleteFunc(e.order, isGone); len(e.order) <= maxBirths-birthsRoom {
		return
	}
	for _, old := range e.order[:birthsRoom] {
		if !old.gone { // the births of one key are in the order of their time
			e.next(old.key)
		}
	}
	e.order = slices.DeleteFunc(e.order, isGone)
}

// next forgets the first birth of a key.
func (e *connectionEnds) next(key connectionKey) {
	first := e.births[key]
	first.gone = true
	if first.next != nil {
		e.births[key] = first.next
	} else {
		delete(e.births, key)
	}
}

// birthOf removes the birth of a connection that has ended, and returns it, or nil. A client may use a port again after
// a connection has ended. So of several births with ports it returns the newest one before the end. Without ports, such
// as with ICMP, several connections with one key live at the same time, and it returns the oldest birth.
func (e *connectionEnds) birthOf(c endedAt) *birth {
	key := keyOfEnd(c.Connection)
	b := e.births[key]
	if b == nil {
		return nil
	}
	for c.Client.Port() != 0 && b.next != nil && !b.next.Time.After(c.at) {
		e.next(key)
		b = b.next
	}
	if b.Time.After(c.at.Add(endWait)) {
		return nil // of a later connection
	}
	e.next(key)
	return b
}

// forget forgets all births and ends.
func (e *connectionEnds) forget() {
	clear(e.births)
	e.order = nil
	e.mu.Lock()
	defer e.mu.Unlock()
	e.came = nil
}

// addEnds adds the records of connections that have ended.
func (o *observer) addEnds(ctx context.Context, now time.Time) {
	if !o.ends.isWanted() {
		if len(o.ends.order) > 0 {
			o.ends.forget()
		}
		return
	}
	list := o.ends.due(now)
	if len(list) == 0 {
		return
	}
	events, births, unnamed := make([]record.Event, len(list)), make([]*birth, len(list)), 0
	for i, c := range list {
		if births[i] = o.ends.birthOf(c); births[i] == nil {
			unnamed++
			continue
		}
		began := births[i].Time
		if births[i].late {
			began = c.Began
		}
		events[i].End = o.ended(c, births[i].Record, began)
		events[i].End.Life.Late = births[i].late
	}
	if unnamed > 0 {
		if ask(ctx, o.tables.engine, func() {
			for i, c := range list {
				if events[i].End == nil && o.tables.objects.networks.separate.knows(c.Zone, c.Client.Addr()) {
					events[i].End = o.ended(c, o.namedLate(c.Connection, c.at), c.Began)
					events[i].End.Life.Late = true
				}
			}
		}) != nil {
			o.ends.lost.Add(uint64(unnamed))
		}
	}
	kept := events[:0]
	for i, e := range events {
		if e.End != nil {
			o.export.addEnd(e, births[i])
			kept = append(kept, e)
		}
	}
	o.history.Add(kept...)
}

// namedLate makes the record of a connection whose beginning was not recorded. Call it between two passes.
func (o *observer) namedLate(c ended.Connection, at time.Time) *record.Record {
	r := datapath.ReportOfMark(c.Mark, firstHeaders(c), c.Asked)
	if c.Zone != 0 {
		client := o.tables.objects.networks.separate.holder(c.Zone, c.Client.Addr())
		v, _ := o.tables.tenants.VirtualNetworks.Get(client)
		r.Network = v.Place.ID
	}
	return o.named(seenReport{r, at}).Connection
}

// firstHeaders are the headers of a connection's first packet behind the Service.
func firstHeaders(c ended.Connection) datapath.Headers {
	return datapath.Headers{Src: c.Client.Addr(), Dst: c.Server.Addr(), Protocol: c.Protocol, SrcPort: c.Client.Port(),
		DstPort: c.Server.Port()}
}

// ended makes the record of a connection that has ended from the record of its birth.
func (o *observer) ended(c endedAt, begun *record.Record, began time.Time) *record.Record {
	out := *begun
	out.Time, out.Count = c.at, 1
	out.First = speaksFor(begun)
	out.Life = &record.Life{Began: began}
	if !began.IsZero() {
		out.Life.Seconds = max(0, c.at.Sub(began).Seconds())
	}
	if c.Counted {
		out.Life.Sent = &record.Traffic{Packets: c.Sent.Packets, Bytes: c.Sent.Bytes}
		out.Life.Received = &record.Traffic{Packets: c.Received.Packets, Bytes: c.Received.Bytes}
	}
	return &out
}

// speaksFor reports whether the Node of a record has to export the connection. That is the client's Node. For a client
// outside of the cluster it is the server's Node, or the Node where the connection leaves the cluster.
func speaksFor(r *record.Record) bool {
	if r.From.Node != "" {
		return r.From.Node == r.Node
	}
	return r.To.Node == "" || r.To.Node == r.Node
}
