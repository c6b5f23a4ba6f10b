package flowsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// DumpedFlow is a flow as the switch holds it.
type DumpedFlow struct {
	Flow           flow.Flow
	Owner          flow.Owner // zero for a flow that is not ours, or not desired
	Packets, Bytes uint64
	Duration       time.Duration
}

// DumpedGroup is a group as the switch holds it.
type DumpedGroup struct {
	Group flow.Group
	Owner flow.Owner
}

// DumpedMeter is a meter as the switch holds it.
type DumpedMeter struct {
	Meter flow.Meter
	Owner flow.Owner
}

// Dump is the whole contents of the switch, of all owners.
type Dump struct {
	Flows  []DumpedFlow
	Groups []DumpedGroup
	Meters []DumpedMeter
}

// Dump reads the switch.
func (s *Syncer) Dump(ctx context.Context) (Dump, error) {
	se, err := s.connected()
	if err != nil {
		return Dump{}, err
	}
	var d Dump
	if d.Flows, err = se.dumpFlows(ctx, ofp.TableAll); err != nil {
		return Dump{}, err
	}
	if d.Groups, err = se.dumpGroups(ctx); err != nil {
		return Dump{}, err
	}
	if d.Meters, err = se.dumpMeters(ctx); err != nil {
		return Dump{}, err
	}
	return d, nil
}

// DumpGroups reads the switch's groups.
func (s *Syncer) DumpGroups(ctx context.Context) ([]DumpedGroup, error) {
	se, err := s.connected()
	if err != nil {
		return nil, err
	}
	return se.dumpGroups(ctx)
}

// DumpMeters reads the switch's meters. For a switch without meters the list is empty.
func (s *Syncer) DumpMeters(ctx context.Context) ([]DumpedMeter, error) {
	se, err := s.connected()
	if err != nil {
		return nil, err
	}
	return se.dumpMeters(ctx)
}

func (se *session) dumpGroups(ctx context.Context) ([]DumpedGroup, error) {
	groups, err := readGroups(ctx, se.conn)
	if err != nil {
		return nil, err
	}
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	var out []DumpedGroup
	for _, g := range groups {
		out = append(out, DumpedGroup{Group: g, Owner: se.syncer.owners.of([]byte(groupIdent(g.ID)))})
	}
	return out, nil
}

func (se *session) dumpMeters(ctx context.Context) ([]DumpedMeter, error) {
	meters, err := readMeters(ctx, se.conn)
	if err != nil {
		return nil, err
	}
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	var out []DumpedMeter
	for _, m := range meters {
		dumped := DumpedMeter{Meter: m}
		if list := se.syncer.meters.claims[m.ID]; len(list) > 0 {
			dumped.Owner = list[0].owner
		}
		out = append(out, dumped)
	}
	return out, nil
}

// DumpTables reads the flows of some of the switch's tables.
func (s *Syncer) DumpTables(ctx context.Context, tables ...ofp.Table) ([]DumpedFlow, error) {
	se, err := s.connected()
	if err != nil {
		return nil, err
	}
	var out []DumpedFlow
	for _, t := range tables {
		flows, err := se.dumpFlows(ctx, t)
		if err != nil {
			return nil, err
		}
		out = append(out, flows...)
	}
	return out, nil
}

// PortStats reads the counters of the switch's ports.
func (s *Syncer) PortStats(ctx context.Context) (map[ofp.Port]ofp.PortStats, error) {
	se, err := s.connected()
	if err != nil {
		return nil, err
	}
	parts, err := se.conn.Request(ctx, ofp.PortStatsRequest{Port: ofp.PortAny})
	if err != nil {
		return nil, fmt.Errorf("read the counters of ports: %w", err)
	}
	ports := map[ofp.Port]ofp.PortStats{}
	for _, part := range parts {
		reply, ok := part.(ofp.PortStatsReply)
		if !ok {
			return nil, fmt.Errorf("read the counters of ports: the switch answers with %s", part.Type())
		}
		for _, p := range reply.Ports {
			ports[p.Port] = p
		}
	}
	return ports, nil
}

// TableStats reads the counters of the switch's tables.
func (s *Syncer) TableStats(ctx context.Context) (map[ofp.Table]ofp.TableStats, error) {
	se, err := s.connected()
	if err != nil {
		return nil, err
	}
	parts, err := se.conn.Request(ctx, ofp.TableStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("read the counters of tables: %w", err)
	}
	tables := map[ofp.Table]ofp.TableStats{}
	for _, part := range parts {
		reply, ok := part.(ofp.TableStatsReply)
		if !ok {
			return nil, fmt.Errorf("read the counters of tables: the switch answers with %s", part.Type())
		}
		for _, t := range reply.Tables {
			tables[t.Table] = t
		}
	}
	return tables, nil
}

func (s *Syncer) connected() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return nil, errors.New("no connection to the switch: is ovs-vswitchd running?")
	}
	return s.session, nil
}

func (se *session) dumpFlows(ctx context.Context, table ofp.Table) ([]DumpedFlow, error) {
	which := allFlows
	which.Table = table
	var flows []ofp.FlowDesc
	if err := eachFlow(ctx, se.conn, which, func(list []ofp.FlowDesc) { flows = append(flows, list...) }); err != nil {
		return nil, err
	}
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	var out []DumpedFlow
	for _, f := range flows {
		v := flow.FromStats(f)
		d := DumpedFlow{
			Flow: v, Packets: f.Stats.Packets, Bytes: f.Stats.Bytes,
			Duration: time.Duration(f.Stats.DurationSec)*time.Second + time.Duration(f.Stats.DurationNsec),
		}
		if se.syncer.owners.ours(v.Cookie) {
			d.Owner = se.syncer.owners.of(appendIdent(nil, &v))
		}
		out = append(out, d)
	}
	return out, nil
}

// OwnersOf returns the owners of flows with some cookies. If several owners have one cookie, it returns one of them.
func (s *Syncer) OwnersOf(cookies ...uint64) map[uint64]flow.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint64]flow.Owner{}
	for o := range s.owners.all {
		if c := s.owners.cookie(o); slices.Contains(cookies, c) {
			out[c] = o
		}
	}
	return out
}
