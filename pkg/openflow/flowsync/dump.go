package flowsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
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
	conn, err := s.connected()
	if err != nil {
		return Dump{}, err
	}
	var d Dump
	if d.Flows, err = s.dumpFlows(ctx, conn, ofp.TableAll); err != nil {
		return Dump{}, err
	}
	if d.Groups, err = s.dumpGroups(ctx, conn); err != nil {
		return Dump{}, err
	}
	if d.Meters, err = s.dumpMeters(ctx, conn); err != nil {
		return Dump{}, err
	}
	return d, nil
}

// DumpGroups reads the switch's groups.
func (s *Syncer) DumpGroups(ctx context.Context) ([]DumpedGroup, error) {
	conn, err := s.connected()
	if err != nil {
		return nil, err
	}
	return s.dumpGroups(ctx, conn)
}

// DumpMeters reads the switch's meters. For a switch without meters the list is empty.
func (s *Syncer) DumpMeters(ctx context.Context) ([]DumpedMeter, error) {
	conn, err := s.connected()
	if err != nil {
		return nil, err
	}
	return s.dumpMeters(ctx, conn)
}

func (s *Syncer) dumpGroups(ctx context.Context, conn *ofconn.Conn) ([]DumpedGroup, error) {
	groups, err := readGroups(ctx, conn)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []DumpedGroup
	for _, g := range groups {
		out = append(out, DumpedGroup{Group: g, Owner: s.ownerOf([]byte(groupIdent(g.ID)))})
	}
	return out, nil
}

func (s *Syncer) dumpMeters(ctx context.Context, conn *ofconn.Conn) ([]DumpedMeter, error) {
	meters, err := readMeters(ctx, conn)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []DumpedMeter
	for _, m := range meters {
		dumped := DumpedMeter{Meter: m}
		if list := s.meters.claims[m.ID]; len(list) > 0 {
			dumped.Owner = list[0].owner
		}
		out = append(out, dumped)
	}
	return out, nil
}

// DumpTables reads the flows of some of the switch's tables.
func (s *Syncer) DumpTables(ctx context.Context, tables ...ofp.Table) ([]DumpedFlow, error) {
	conn, err := s.connected()
	if err != nil {
		return nil, err
	}
	var out []DumpedFlow
	for _, t := range tables {
		flows, err := s.dumpFlows(ctx, conn, t)
		if err != nil {
			return nil, err
		}
		out = append(out, flows...)
	}
	return out, nil
}

// PortStats reads the counters of the switch's ports.
func (s *Syncer) PortStats(ctx context.Context) (map[ofp.Port]ofp.PortStats, error) {
	conn, err := s.connected()
	if err != nil {
		return nil, err
	}
	parts, err := conn.Request(ctx, ofp.PortStatsRequest{Port: ofp.PortAny})
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
	conn, err := s.connected()
	if err != nil {
		return nil, err
	}
	parts, err := conn.Request(ctx, ofp.TableStatsRequest{})
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

func (s *Syncer) connected() (*ofconn.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil, errors.New("no connection to the switch: is ovs-vswitchd running?")
	}
	return s.conn, nil
}

func (s *Syncer) dumpFlows(ctx context.Context, conn *ofconn.Conn, table ofp.Table) ([]DumpedFlow, error) {
	which := allFlows
	which.Table = table
	var flows []ofp.FlowDesc
	if err := eachFlow(ctx, conn, which, func(list []ofp.FlowDesc) { flows = append(flows, list...) }); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []DumpedFlow
	for _, f := range flows {
		v := flow.FromStats(f)
		d := DumpedFlow{
			Flow: v, Packets: f.Stats.Packets, Bytes: f.Stats.Bytes,
			Duration: time.Duration(f.Stats.DurationSec)*time.Second + time.Duration(f.Stats.DurationNsec),
		}
		if s.ours(v.Cookie) {
			d.Owner = s.ownerOf(appendIdent(nil, &v))
		}
		out = append(out, d)
	}
	return out, nil
}

// OwnersOf returns the owners of flows that have one of some cookies. Of owners with one cookie, any is returned.
func (s *Syncer) OwnersOf(cookies ...uint64) map[uint64]flow.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint64]flow.Owner{}
	for o := range s.owners {
		if c := s.cookie(o); slices.Contains(cookies, c) {
			out[c] = o
		}
	}
	return out
}

// ownerOf returns the owner of an entry; s.mu is held.
func (s *Syncer) ownerOf(id []byte) flow.Owner {
	if sl := s.slots.get(id); sl != nil && sl.owner != nil {
		return sl.owner.Owner
	}
	return flow.Owner{}
}
