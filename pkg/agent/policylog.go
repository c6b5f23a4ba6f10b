package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// policyLogFile is where policies log, in the directory of logs; docs/policy-status.md names it.
const policyLogFile = "networkpolicy/np.log"

// repeatsWithin is how long packets that a rule denies are counted in one line.
const repeatsWithin = time.Second

// maxRepeats is the largest number of lines that are held back to count repeats. Further lines are written at once.
const maxRepeats = 10_000

// logQueue is the largest number of packets that wait to be logged. logBatch is the number of packets that are logged
// at once.
const (
	logQueue = 1024
	logBatch = 256
)

// policyLog writes a line for each packet that a rule with enableLogging has decided about, in Antrea's format
// (antrea-network-policy.md, audit logging). Equal denied packets of one second share a line.
type policyLog struct {
	out   io.WriteCloser
	podAt func(netip.Addr, tenant.ID) (name string) // of a Pod of this Node; empty for others
	log   *slog.Logger
	queue *sharedQueue[networkAddr, loggedPacket] // by the Pod that the rule is applied to
	lost  atomic.Uint64                           // packets that were not logged, since that was written
	// dropped reads how many packets for the log each meter of the switch has dropped.
	dropped func(context.Context) (map[uint32]uint64, error)
	recent  atomic.Int32 // looks at the meters that are still due

	failing bool
	repeats map[string]*repeat // by line, without the time
}

// loggedPacket is a packet that is to be logged.
type loggedPacket struct {
	at    time.Time
	entry datapath.LogEntry
	datapath.Headers
	network tenant.ID
}

// repeat is a line that has not been written yet.
type repeat struct {
	first time.Time
	count int
}

func newPolicyLog(c config.AuditLogging, dir string, podAt func(netip.Addr, tenant.ID) string, log *slog.Logger,
) *policyLog {
	return &policyLog{
		out: &lumberjack.Logger{
			Filename: filepath.Join(dir, policyLogFile), MaxSize: c.MaxSize, MaxBackups: c.MaxBackups, MaxAge: c.MaxAge,
			Compress: c.Compress, LocalTime: true,
		},
		podAt: podAt, log: log, queue: newSharedQueue[networkAddr, loggedPacket](logQueue), repeats: map[string]*repeat{},
	}
}

// take has a packet logged.
func (l *policyLog) take(in ofp.PacketIn2) error {
	entry, err := datapath.LogEntryOf(in.Userdata)
	if err != nil {
		return err
	}
	headers, err := datapath.HeadersOf(in.Data)
	if err != nil {
		return err
	}
	p := loggedPacket{time.Now(), entry, headers, datapath.NetworkOf(in)}
	l.recent.Store(dueLooks)
	if err := l.queue.push(networkAddr{p.own(), p.network}, p); err != nil {
		l.lost.Add(1)
		return err
	}
	return nil
}

// own is the address of the Pod that the rule is applied to.
func (p loggedPacket) own() netip.Addr {
	if p.entry.Direction == policy.Egress {
		return p.Src
	}
	return p.Dst
}

// run writes lines until ctx ends, and then the remaining ones.
func (l *policyLog) run(ctx context.Context) error {
	defer l.out.Close()
	tick := time.NewTicker(repeatsWithin / 4)
	defer tick.Stop()
	for {
		select {
		case <-l.queue.wake:
			l.addSome(logBatch)
		case now := <-tick.C:
			l.flush(now.Add(-repeatsWithin))
		case <-ctx.Done():
			l.addSome(logQueue)
			l.flush(time.Now())
			return nil
		}
	}
}

// addSome records waiting packets, up to a number.
func (l *policyLog) addSome(most int) {
	for range most {
		p, ok := l.queue.pop()
		if !ok {
			return
		}
		l.add(p)
	}
}

// Looks at the meters of the switch.
const (
	meterLook = time.Second
	dueLooks  = 2 // after a packet that came, since the meters may drop further ones
)

// watchMeters counts the packets that the switch's meters drop as lost, until ctx ends. Some packets always come when
// others are dropped. So the meters are read only when packets have come.
func (l *policyLog) watchMeters(ctx context.Context) error {
	var last map[uint32]uint64 // nil until they were read
	for tick := time.NewTicker(meterLook); ; {
		if last == nil || l.recent.Load() > 0 {
			reading, cancel := context.WithTimeout(ctx, meterLook)
			now, err := l.dropped(reading)
			cancel()
			if err != nil {
				l.log.Debug("the meters of the log are not read", "error", err)
			} else {
				l.recent.Add(-1)
				l.lost.Add(grownBy(last, now))
				last = now
			}
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
	}
}

// logDrops reads how many packets each meter of the log has dropped.
func logDrops(ctx context.Context, flows *flowsync.Syncer) (map[uint32]uint64, error) {
	list, err := flows.MeterStats(ctx)
	if err != nil {
		return nil, err
	}
	out := map[uint32]uint64{}
	for _, m := range list {
		if !datapath.MetersLog(m.ID) {
			continue
		}
		for _, band := range m.Bands {
			out[m.ID] += band.Packets
		}
	}
	return out, nil
}

// watchMeters counts the packets that the switch's meters drop as lost, until ctx ends. A meter drops packets only
// while it lets others pass. So the meters are read only after packets have come.
func grownBy(before, now map[uint32]uint64) (sum uint64) {
	if before == nil {
		return 0
	}
	for id, n := range now {
		if was := before[id]; n >= was {
			n -= was
		}
		sum += n
	}
	return sum
}

// add records a packet. A line for an allowed packet is written at once.
func (l *policyLog) add(p loggedPacket) {
	line := l.line(p)
	switch known := l.repeats[line]; {
	case known != nil:
		known.count++
	case p.entry.Action == policy.Allow || p.entry.Action == policy.Pass || len(l.repeats) == maxRepeats:
		l.write(p.at, line)
	default:
		l.repeats[line] = &repeat{first: p.at, count: 1}
	}
}

// flush writes the lines that began before a time, in the order of their beginning.
func (l *policyLog) flush(before time.Time) {
	var due []string
	for line, r := range l.repeats {
		if !r.first.After(before) {
			due = append(due, line)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(l.repeats[a].first.Compare(l.repeats[b].first), strings.Compare(a, b))
	})
	for _, line := range due {
		r := l.repeats[line]
		delete(l.repeats, line)
		if r.count > 1 {
			line += fmt.Sprintf(" [%d packets in %s]", r.count, time.Since(r.first).Round(time.Millisecond))
		}
		l.write(r.first, line)
	}
	if n := l.lost.Swap(0); n > 0 {
		l.write(time.Now(), fmt.Sprintf("%s [%d packets were not logged: there were too many]", nothing, n))
	}
}

// nothing stands in columns that have no value, as in Antrea's log.
const nothing = "<nil>"

// line is a packet's line without the time.
func (l *policyLog) line(p loggedPacket) string {
	e, direction := p.entry, "Ingress"
	if e.Direction == policy.Egress {
		direction = "Egress"
	}
	from, to := nothing, nothing
	if p.HasPorts() {
		from, to = itoa(int(p.SrcPort)), itoa(int(p.DstPort))
	}
	return strings.Join([]string{
		e.Table, e.Policy, e.Rule, direction, e.Action.String(), itoa(int(e.Priority)),
		cmp.Or(l.podAt(p.own(), p.network), nothing),
		p.Src.String(), from, p.Dst.String(), to, p.ProtocolName(), itoa(p.Length), cmp.Or(e.Label, nothing),
	}, " ")
}

// write writes a line. Policies hold whether or not they can be logged.
func (l *policyLog) write(at time.Time, line string) {
	_, err := fmt.Fprintln(l.out, at.Format("2006/01/02 15:04:05.000000"), line)
	if failing := err != nil; failing != l.failing {
		l.failing = failing
		if failing {
			l.log.Error("the log of policies cannot be written: lines are lost until it can; make room in its directory",
				"error", err)
		} else {
			l.log.Info("the log of policies is written again")
		}
	}
}
