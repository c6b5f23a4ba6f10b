package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/tombolo-net/tombolo/pkg/ovs/schema"
)

const (
	callTimeout = 10 * time.Second // one exchange with ovsdb-server
	echoEvery   = 5 * time.Second  // finds a server that has gone without a word
)

// session connects, loads the database, and compares after each change until the connection is lost or ctx ends. Each
// session has a new client with a new cache, so a reconnect works like a start.
func (m *Manager) session(ctx context.Context) error {
	description, err := schema.Model()
	if err != nil {
		return err
	}
	c, err := client.NewOVSDBClient(description, client.WithEndpoint(m.endpoint))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := within(ctx, c.Connect); err != nil {
		return err
	}
	defer c.Close()
	go func() {
		select {
		case <-c.DisconnectNotify():
			cancel(errors.New("ovsdb-server closed the connection"))
		case <-ctx.Done():
		}
	}()
	content := c.Cache()
	if content == nil {
		return errors.New("ovsdb-server closed the connection at once")
	}
	touched := func(string, model.Model) { signal(m.trigger) }
	content.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    touched,
		DeleteFunc: touched,
		UpdateFunc: func(string, model.Model, model.Model) { signal(m.trigger) },
	})
	monitor := c.NewMonitor(schema.Columns()...)
	// Not monitor_cond_since: a session starts without a known state anyway. With this method libovsdb also ends the
	// session if an update does not fit its cache.
	monitor.Method = ovsdb.ConditionalMonitorRPC
	if err := within(ctx, func(ctx context.Context) error {
		_, err := c.Monitor(ctx, monitor)
		return err
	}); err != nil {
		return fmt.Errorf("load the database: %w", err)
	}
	m.mu.Lock()
	m.stats.Connects++
	m.mu.Unlock()
	m.log.Info("connected to ovsdb-server", "endpoint", m.endpoint)
	return m.follow(ctx, c)
}

// follow compares whenever it is woken.
func (m *Manager) follow(ctx context.Context, c client.Client) error {
	echo := time.NewTicker(echoEvery)
	defer echo.Stop()
	var refusals, asks int
	var retry <-chan time.Time // running after a refused transaction
	var ask <-chan time.Time   // running while ovs-vswitchd has not carried out everything
	askNow := false
	for {
		again, refused, err := m.compare(ctx, c, refusals, askNow)
		askNow = false
		switch {
		case err != nil:
			return err
		case again:
			refusals = 0
			continue
		case refused != nil:
			refusals++
			pause := refusalPause(refusals)
			m.log.Warn("ovsdb-server refused a change", "error", refused, "retryIn", pause)
			retry = time.After(pause)
		default:
			refusals, retry = 0, nil
		}
		switch done := m.carriedOut(); {
		case done:
			asks, ask = 0, nil
		case ask == nil:
			asks++
			ask = time.After(askPause(asks))
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-retry:
				waiting = false
			case <-m.trigger:
				waiting = false
			case <-ask:
				askNow, ask, waiting = true, nil, false
			case <-echo.C:
				if err := within(ctx, answers(c)); err != nil {
					return fmt.Errorf("ovsdb-server does not answer: %w", err)
				}
			}
		}
	}
}

// refusalPause returns how long to wait after the nth successive refusal. After the first one the pause is very short,
// since the next update may remove the cause.
func refusalPause(n int) time.Duration {
	if n == 1 {
		return 50 * time.Millisecond
	}
	return min(time.Second<<min(n-2, 5), 30*time.Second)
}

// askPause returns the pause before ovs-vswitchd is asked for the nth time to carry out the configuration. ovs-vswitchd
// reports its work, with the numbers of ports, in a transaction that it does not repeat. If that was refused, for
// example because of a full disk, it reports nothing until the database changes again.
func askPause(n int) time.Duration { return min(time.Second<<min(n-1, 5), 30*time.Second) }

// carriedOut reports whether ovs-vswitchd had carried out all of the last configuration.
func (m *Manager) carriedOut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outcome.done || m.outcome.refused != nil
}

// compare makes one comparison and sends at most one transaction. again is set if it sent one. refused is
// ovsdb-server's reason for a refusal. err ends the session. The first refusal is not published: most likely another
// program has changed the database since it was read. With ask it makes ovs-vswitchd carry out the same configuration
// again, if ovs-vswitchd has not confirmed it.
func (m *Manager) compare(ctx context.Context, c client.Client, refusals int, ask bool) (again bool, refused,
	err error) {
	have, err := load(c)
	if err != nil {
		return false, nil, err
	}
	m.mu.Lock()
	want, round := m.want, m.round
	m.mu.Unlock()
	if have.root == nil {
		return false, nil, errors.New("the database has no Open_vSwitch row: run ovs-vsctl init")
	}

	edits, problems, last := plan(have, want, m.last)
	m.last = last
	o := outcome{round: round, ports: portOutcomes(have, want.bridges, problems)}
	if len(edits) == 0 {
		o.done = have.root.CurCfg >= have.root.NextCfg
		m.publish(stateOf(have), o)
		if o.done || !ask {
			return false, nil, nil
		}
		edits = []edit{{text: "ask ovs-vswitchd again"}}
	}
	target, refused, err := transact(ctx, c, have.root, edits)
	if err != nil {
		return false, nil, err
	}
	if refused != nil {
		m.mu.Lock()
		m.stats.Refused++
		m.mu.Unlock()
		if refusals > 0 {
			o.refused = refused
			m.publish(stateOf(have), o)
		}
		return false, refused, nil
	}
	m.mu.Lock()
	m.stats.Transactions++
	m.mu.Unlock()
	m.log.Info("configured the switch", "changes", describe(edits), "config", target)
	return true, nil, m.caughtUp(ctx, c, target)
}

// caughtUp waits until the cache has the configuration with number target. Otherwise the next comparison would see the
// database as it was before the transaction.
func (m *Manager) caughtUp(ctx context.Context, c client.Client, target int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout,
		errors.New("ovsdb-server does not report a change that it has accepted"))
	defer cancel()
	for {
		content := c.Cache()
		if content == nil {
			return errors.New("ovsdb-server closed the connection")
		}
		for _, row := range content.Table(schema.OpenVSwitchTable).RowsShallow() {
			if row.(*schema.OpenVSwitch).NextCfg >= target {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.trigger:
		}
	}
}

// transact sends the edits, and raises next_cfg in the same transaction, which asks ovs-vswitchd to report when it is
// done.
func transact(ctx context.Context, c client.Client, root *schema.OpenVSwitch, edits []edit) (target int, refused,
	err error) {
	var ops []ovsdb.Operation
	for _, e := range edits {
		if e.ops == nil {
			continue
		}
		more, err := e.ops(c)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", e.text, err), nil
		}
		ops = append(ops, more...)
	}
	row := &schema.OpenVSwitch{UUID: root.UUID}
	raise, err := c.Where(row).Mutate(row, model.Mutation{Field: &row.NextCfg, Mutator: ovsdb.MutateOperationAdd,
		Value: 1})
	if err != nil {
		return 0, nil, fmt.Errorf("raise next_cfg: %w", err)
	}
	ops = append(ops, raise...)
	ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: schema.OpenVSwitchTable,
		Columns: []string{"next_cfg"}})

	var results []ovsdb.OperationResult
	if err := within(ctx, func(ctx context.Context) (err error) {
		results, err = c.Transact(ctx, ops...)
		return err
	}); err != nil {
		return 0, nil, fmt.Errorf("send a transaction: %w", err)
	}
	if objections, err := ovsdb.CheckOperationResults(results, ops); err != nil {
		errs := []error{fmt.Errorf("ovsdb-server refused: %s", strings.Join(describe(edits), "; ")), err}
		for _, o := range objections {
			errs = append(errs, o)
		}
		return 0, errors.Join(errs...), nil
	}
	last := results[len(ops)-1]
	if len(last.Rows) != 1 {
		return 0, nil, fmt.Errorf("read next_cfg: got %d rows, want 1", len(last.Rows))
	}
	target, err = integer(last.Rows[0]["next_cfg"])
	return target, nil, err
}

func integer(v any) (int, error) {
	switch n := v.(type) {
	case float64:
		return int(n), nil
	case json.Number:
		i, err := n.Int64()
		return int(i), err
	case int:
		return n, nil
	}
	return 0, fmt.Errorf("read next_cfg: %v (%T) is not a number", v, v)
}

func describe(edits []edit) []string {
	var texts []string
	for _, e := range edits {
		if e.text != "" {
			texts = append(texts, e.text)
		}
	}
	return texts
}

// load returns the rows of the client's cache. The caller must not change them: the cache replaces a row that changes.
func load(c client.Client) (rows, error) {
	have := rows{
		bridges: map[string]*schema.Bridge{}, ports: map[string]*schema.Port{}, interfaces: map[string]*schema.Interface{},
		datapaths: map[string]*schema.Datapath{}, zones: map[string]*schema.CTZone{},
		timeouts: map[string]*schema.CTTimeoutPolicy{}, qos: map[string]*schema.QoS{},
	}
	content := c.Cache()
	if content == nil {
		return have, errors.New("ovsdb-server closed the connection")
	}
	for _, row := range content.Table(schema.OpenVSwitchTable).RowsShallow() {
		have.root = row.(*schema.OpenVSwitch)
	}
	for _, row := range content.Table(schema.BridgeTable).RowsShallow() {
		b := row.(*schema.Bridge)
		have.bridges[b.Name] = b
	}
	for uuid, row := range content.Table(schema.PortTable).RowsShallow() {
		have.ports[uuid] = row.(*schema.Port)
	}
	for uuid, row := range content.Table(schema.InterfaceTable).RowsShallow() {
		have.interfaces[uuid] = row.(*schema.Interface)
	}
	for uuid, row := range content.Table(schema.DatapathTable).RowsShallow() {
		have.datapaths[uuid] = row.(*schema.Datapath)
	}
	for uuid, row := range content.Table(schema.CTZoneTable).RowsShallow() {
		have.zones[uuid] = row.(*schema.CTZone)
	}
	for uuid, row := range content.Table(schema.CTTimeoutTable).RowsShallow() {
		have.timeouts[uuid] = row.(*schema.CTTimeoutPolicy)
	}
	for uuid, row := range content.Table(schema.QoSTable).RowsShallow() {
		have.qos[uuid] = row.(*schema.QoS)
	}
	return have, nil
}

// stateOf translates the rows.
func stateOf(have rows) State {
	s := State{
		Connected:       true,
		OVSVersion:      value(have.root.OVSVersion),
		DatapathTypes:   slices.Sorted(slices.Values(have.root.DatapathTypes)),
		FlowRestoreWait: have.root.OtherConfig[flowRestoreWait] == "true",
		CurCfg:          have.root.CurCfg,
		NextCfg:         have.root.NextCfg,
		Bridges:         map[string]Found{},
	}
	for name, b := range have.bridges {
		bs := Found{
			DatapathType:    b.DatapathType,
			DatapathVersion: b.DatapathVersion,
			DatapathID:      value(b.DatapathID),
			FailMode:        value(b.FailMode),
			Protocols:       slices.Sorted(slices.Values(b.Protocols)),
			ExternalIDs:     b.ExternalIDs,
			OtherConfig:     b.OtherConfig,
			Ports:           map[string]PortState{},
		}
		for _, uuid := range b.Ports {
			p := have.ports[uuid]
			if p == nil {
				continue
			}
			bs.Ports[p.Name] = portState(p, have.interfaces)
		}
		s.Bridges[name] = bs
	}
	return s
}

func portState(p *schema.Port, interfaces map[string]*schema.Interface) PortState {
	ps := PortState{UUID: p.UUID, ExternalIDs: p.ExternalIDs}
	for _, uuid := range p.Interfaces {
		i := interfaces[uuid]
		if i == nil || (i.Name != p.Name && len(p.Interfaces) > 1) {
			continue
		}
		ps.Type = i.Type
		ps.OFPort = uint32(max(value(i.OFPort), 0))
		ps.OFPortWanted = uint32(value(i.OFPortRequest))
		ps.Error = value(i.Error)
		ps.Gone = i.Type == "" && ps.OFPort > 0 && i.IfIndex != nil && *i.IfIndex == 0
		ps.MAC, ps.MACWanted = value(i.MACInUse), value(i.MAC)
		ps.MTU = value(i.MTU)
		ps.Options = i.Options
		if i.BFD["enable"] == "true" {
			ps.BFD = cmp.Or(i.BFDStatus["state"], "down")
			ps.BFDStatus = i.BFDStatus
			// Counted are changes between up and not up, and it begins down.
			ps.BFDWasUp = !slices.Contains([]string{"", "0"}, i.BFDStatus["flap_count"])
		}
	}
	return ps
}

// portOutcomes says for each declared port whether ovs-vswitchd has it.
func portOutcomes(have rows, bridges []Bridge, problems map[string]error) map[string]error {
	byName := map[string]*schema.Interface{}
	holder := map[int]string{}
	for _, i := range have.interfaces {
		byName[i.Name] = i
	}
	result := map[string]error{}
	for _, b := range bridges {
		clear(holder)
		if row := have.bridges[b.Name]; row != nil {
			for _, uuid := range row.Ports {
				if p := have.ports[uuid]; p != nil && byName[p.Name] != nil {
					holder[value(byName[p.Name].OFPort)] = p.Name
				}
			}
		}
		for name, port := range b.withLocal() {
			if err := problems[name]; err != nil {
				result[name] = err
				continue
			}
			err := portOutcome(byName[name], port, holder)
			if err != nil && !errors.Is(err, errPending) {
				err = fmt.Errorf("port %s of bridge %s: %w", name, b.Name, err)
			}
			result[name] = err
		}
	}
	return result
}

func portOutcome(i *schema.Interface, port Port, holder map[int]string) error {
	switch {
	case i == nil:
		return errPending
	case value(i.Error) != "":
		return fmt.Errorf("ovs-vswitchd cannot add it: %s", *i.Error)
	case i.OFPort == nil:
		return errPending
	case *i.OFPort < 0:
		return errors.New("ovs-vswitchd cannot add it; its log says why")
	case port.OFPort != 0 && *i.OFPort != int(port.OFPort):
		if other := holder[int(port.OFPort)]; other != "" {
			return fmt.Errorf("it has OpenFlow port number %d instead of %d, which port %s has: remove that port", *i.OFPort,
				port.OFPort, other)
		}
		return fmt.Errorf("it has OpenFlow port number %d instead of %d", *i.OFPort, port.OFPort)
	}
	return nil
}

// answers asks ovsdb-server for the result of a transaction without operations, which changes nothing. libovsdb's Echo
// cannot be used: after a call that ctx has ended, it reads an answer that another goroutine may be writing.
func answers(c client.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Transact(ctx)
		return err
	}
}

func within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f(ctx)
}

func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
