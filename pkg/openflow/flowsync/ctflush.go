package flowsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// FlushConnections makes the switch forget tracked connections, and returns when it has done so. It uses the connection
// to the switch over which flows are written. If there is nothing to flush, it returns when the switch has answered.
// After an error the switch may have done only a part. If the error wraps an *ofconn.SwitchError, it is the switch's
// refusal (NXT_CT_FLUSH came with Open vSwitch 3.1).
func (s *Syncer) FlushConnections(ctx context.Context, list []ofp.CTFlush) error {
	return flush(ctx, s, list)
}

// FlushZones makes the switch of a Syncer forget the tracked connections of zones, as FlushConnections does.
func FlushZones(ctx context.Context, s *Syncer, zones []uint16) error {
	var list []ofp.CTFlushZone
	for _, zone := range zones {
		list = append(list, ofp.CTFlushZone{Zone: zone})
	}
	return flush(ctx, s, list)
}

func flush[M ofp.Message](ctx context.Context, s *Syncer, list []M) error {
	s.mu.Lock()
	se := s.session
	s.mu.Unlock()
	if se == nil {
		return errors.New("flush connections: no connection to the switch")
	}
	if len(list) == 0 {
		return se.conn.Barrier(ctx)
	}
	messages := make([]ofp.Message, len(list))
	for i, f := range list {
		messages[i] = f
	}
	refused, err := se.conn.Each(ctx, messages)
	if err != nil {
		return fmt.Errorf("flush connections: %w", err)
	}
	if err := errors.Join(refused...); err != nil {
		return fmt.Errorf("flush connections: %w", err)
	}
	return nil
}
