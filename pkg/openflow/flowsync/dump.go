package flowsync

import (
	"context"
	"errors"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// DumpedFlow is a flow as the switch holds it.
type DumpedFlow struct {
	Flow           flow.Flow
	Owner          flow.Owner // zero for a flow that is not ours, or that nobody wants
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

// Dump is what the switch holds, everybody's.
type Dump struct {
	Flows  []DumpedFlow
	Groups []DumpedGroup
	Meters []DumpedMeter
}

// Dump reads the switch.
func (s *Syncer) Dump(ctx context.Context) (Dump, error) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return Dump{}, errors.New("no connection to the switch: is ovs-vswitchd running?")
	}
	var flows []ofp.FlowDesc
	if err := eachFlow(ctx, conn, func(list []ofp.FlowDesc) { flows = append(flows, list...) }); err != nil {
		return Dump{}, err
	}
	groups, err := readGroups(ctx, conn)
	if err != nil {
		return Dump{}, err
	}
	meters, err := readMeters(ctx, conn)
	if err != nil {
		return Dump{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := func(id []byte) flow.Owner {
		if sl := s.slots.get(id); sl != nil && sl.owner != nil {
			return sl.owner.Owner
		}
		return flow.Owner{}
	}
	var d Dump
	for _, f := range flows {
		v := flow.FromStats(f)
		out := DumpedFlow{
			Flow: v, Packets: f.Stats.Packets, Bytes: f.Stats.Bytes,
			Duration: time.Duration(f.Stats.DurationSec)*time.Second + time.Duration(f.Stats.DurationNsec),
		}
		if s.ours(v.Cookie) {
			out.Owner = owner(appendIdent(nil, &v))
		}
		d.Flows = append(d.Flows, out)
	}
	for _, g := range groups {
		d.Groups = append(d.Groups, DumpedGroup{Group: g, Owner: owner([]byte(groupIdent(g.ID)))})
	}
	for _, m := range meters {
		out := DumpedMeter{Meter: m}
		if list := s.meters.claims[m.ID]; len(list) > 0 {
			out.Owner = list[0].owner
		}
		d.Meters = append(d.Meters, out)
	}
	return d, nil
}
