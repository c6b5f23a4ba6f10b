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
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// policyLogFile is where policies log, in the directory of logs; docs/policy.md names it.
const policyLogFile = "networkpolicy/np.log"

// repeatsWithin is how long packets that a rule denies are counted in one line.
const repeatsWithin = time.Second

// maxRepeats is how many lines wait for repeats at most; more are written at once.
const maxRepeats = 10_000

// policyLog writes a line for each packet that a rule with enableLogging has decided about, in Antrea's format
// (antrea-network-policy.md, audit logging). Equal ones that are denied within a second are one line.
type policyLog struct {
	out   io.WriteCloser
	podAt func(netip.Addr) (name string) // of a Pod of this Node; empty for others
	log   *slog.Logger
	queue chan loggedPacket
	lost  atomic.Uint64 // packets that the queue had no room for, since that was written

	failing bool
	repeats map[string]*repeat // by line, without the time
}

// loggedPacket is a packet that is to be logged.
type loggedPacket struct {
	at    time.Time
	entry datapath.LogEntry
	datapath.Headers
}

// repeat is a line that has not been written yet.
type repeat struct {
	first time.Time
	count int
}

func newPolicyLog(c config.AuditLogging, dir string, podAt func(netip.Addr) string, log *slog.Logger) *policyLog {
	return &policyLog{
		out: &lumberjack.Logger{
			Filename: filepath.Join(dir, policyLogFile), MaxSize: c.MaxSize, MaxBackups: c.MaxBackups, MaxAge: c.MaxAge, Compress: c.Compress, LocalTime: true,
		},
		podAt: podAt, log: log, queue: make(chan loggedPacket, 1024), repeats: map[string]*repeat{},
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
	select {
	case l.queue <- loggedPacket{time.Now(), entry, headers}:
		return nil
	default:
		l.lost.Add(1)
		return errQueueFull
	}
}

// run writes until ctx ends, and then what is left.
func (l *policyLog) run(ctx context.Context) error {
	defer l.out.Close()
	tick := time.NewTicker(repeatsWithin / 4)
	defer tick.Stop()
	for {
		select {
		case p := <-l.queue:
			l.add(p)
		case now := <-tick.C:
			l.flush(now.Add(-repeatsWithin))
		case <-ctx.Done():
			for len(l.queue) > 0 {
				l.add(<-l.queue)
			}
			l.flush(time.Now())
			return nil
		}
	}
}

// add notes a packet. What is allowed is written at once.
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
	e, own, direction := p.entry, p.Dst, "Ingress"
	if e.Direction == policy.Egress {
		own, direction = p.Src, "Egress"
	}
	from, to := nothing, nothing
	if p.HasPorts() {
		from, to = itoa(int(p.SrcPort)), itoa(int(p.DstPort))
	}
	return strings.Join([]string{
		e.Table, e.Policy, e.Rule, direction, e.Action.String(), itoa(int(e.Priority)), cmp.Or(l.podAt(own), nothing),
		p.Src.String(), from, p.Dst.String(), to, p.ProtocolName(), itoa(p.Length), cmp.Or(e.Label, nothing),
	}, " ")
}

// write writes a line. Policies hold whether or not they can be logged.
func (l *policyLog) write(at time.Time, line string) {
	_, err := fmt.Fprintln(l.out, at.Format("2006/01/02 15:04:05.000000"), line)
	if failing := err != nil; failing != l.failing {
		l.failing = failing
		if failing {
			l.log.Error("the log of policies cannot be written: lines are lost until it can; make room in its directory", "error", err)
		} else {
			l.log.Info("the log of policies is written again")
		}
	}
}
