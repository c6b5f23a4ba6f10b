package ipfix

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/vmware/go-ipfix/pkg/registry"
)

// Bounds of an exporter.
const (
	maxQueue      = 32_768 // records that wait; about 16 MiB
	backoffFrom   = time.Second
	backoffTo     = time.Minute
	steady        = time.Minute // a connection that lasts so long ends the back-off
	dialLimit     = 10 * time.Second
	writeLimit    = 10 * time.Second
	gatherFor     = 200 * time.Millisecond // records are collected for a message
	templateEvery = 600 * time.Second      // over UDP, a collector forgets templates (RFC 7011, section 8.4)
	udpMessage    = 1232                   // fits into the packets of every network
	tcpMessage    = 65535
)

// loadRegistry loads the library's elements once. They are global, so loading them again would be a data race.
var loadRegistry = sync.OnceFunc(registry.LoadRegistry)

// Options are the options of an exporter.
type Options struct {
	Collector Collector
	CA        []byte                       // PEM, for TLS; empty for the system's
	Domain    uint32                       // the observation domain
	Cluster   func(context.Context) string // the ID of this cluster
	// Service returns the address of a Service.
	Service func(ctx context.Context, namespace, name string) (netip.Addr, error)
	Log     *slog.Logger
	Backoff time.Duration // the first one; backoffFrom if it is 0
}

// Exporter sends flows to a collector. A collector that is unavailable or slow delays nothing. Flows wait in a bounded
// queue. If it is full, the oldest are dropped and counted.
type Exporter struct {
	Options
	wake chan struct{}

	mu     sync.Mutex
	queue  []Flow
	counts Counts
	failed string
}

// Counts are the flows of an exporter. Seen is the sum of the others.
type Counts struct{ Seen, Sent, Dropped, Waiting uint64 }

// New returns an Exporter.
func New(o Options) *Exporter { return &Exporter{Options: o, wake: make(chan struct{}, 1)} }

// Add has flows sent. It never waits.
func (x *Exporter) Add(flows ...Flow) {
	if len(flows) == 0 {
		return
	}
	x.mu.Lock()
	x.counts.Seen += uint64(len(flows))
	x.queue = append(x.queue, flows...)
	x.bound()
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// bound drops the oldest flows beyond the bound.
func (x *Exporter) bound() {
	if over := len(x.queue) - maxQueue; over > 0 {
		clear(x.queue[:over])
		x.queue = x.queue[over:]
		x.counts.Dropped += uint64(over)
	}
}

// Counts returns the numbers of flows.
func (x *Exporter) Counts() Counts {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.counts
	c.Waiting = c.Seen - c.Sent - c.Dropped
	return c
}

// Failed returns why the collector gets no flows, or nothing.
func (x *Exporter) Failed() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failed
}

// Run sends flows until ctx ends.
func (x *Exporter) Run(ctx context.Context) error {
	first := x.Backoff
	if first == 0 {
		first = backoffFrom
	}
	pause := first
	for ctx.Err() == nil {
		began := time.Now()
		err := x.session(ctx)
		if ctx.Err() != nil {
			break
		}
		x.report(err)
		if time.Since(began) > steady {
			pause = first
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, backoffTo)
	}
	return nil
}

// report records the state, and logs it once.
func (x *Exporter) report(err error) {
	state := ""
	if err != nil {
		state = err.Error()
	}
	x.mu.Lock()
	before := x.failed
	x.failed = state
	x.mu.Unlock()
	switch {
	case state != "" && before == "":
		x.Log.Warn("flow records do not reach the collector", "collector", x.Collector, "error", err)
	case state == "" && before != "":
		x.Log.Info("flow records reach the collector again", "collector", x.Collector)
	}
}

// dial connects to the collector.
func (x *Exporter) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	c := x.Collector
	host := c.Host
	if c.Namespace != "" {
		ip, err := x.Service(ctx, c.Namespace, c.Host)
		if err != nil {
			return nil, err
		}
		host = ip.String()
	}
	at := net.JoinHostPort(host, strconv.Itoa(int(c.Port)))
	var d net.Dialer
	if c.Protocol != TLS {
		return d.DialContext(ctx, c.Protocol, at)
	}
	config := &tls.Config{ServerName: c.serverName(), MinVersion: tls.VersionTLS12}
	if len(x.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(x.CA) {
			return nil, errors.New("flowCollectorCA has no certificate in PEM: give the certificate of the collector's CA")
		}
	}
	conn, err := (&tls.Dialer{NetDialer: &d, Config: config}).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("connect by TLS to %s: %w", at, err)
	}
	return conn, nil
}

// session sends flows on one connection until it fails or ctx ends.
func (x *Exporter) session(ctx context.Context) error {
	conn, err := x.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	encoder, err := NewEncoder(x.Domain, x.Cluster(ctx))
	if err != nil {
		return err
	}
	limit := tcpMessage
	if x.Collector.Protocol == UDP {
		limit = udpMessage
	}
	closed := make(chan error, 1)
	go func() { // a collector sends nothing; so this returns when the connection ends
		_, err := conn.Read(make([]byte, 1))
		closed <- err
	}()
	var sequence uint32
	var refreshed time.Time
	buffer := make([]byte, 0, limit)
	for {
		if refreshed.IsZero() || x.Collector.Protocol == UDP && time.Since(refreshed) >= templateEvery {
			refreshed = time.Now()
			for _, m := range encoder.Templates(refreshed, sequence) {
				if err := write(conn, m); err != nil {
					return err
				}
			}
		}
		flows := x.take()
		for len(flows) > 0 {
			message, used, bad := encoder.Message(buffer, flows, limit, time.Now(), sequence)
			if message != nil {
				if err := write(conn, message); err != nil {
					x.giveBack(flows)
					return err
				}
				buffer = message
			}
			x.sent(used-bad, bad)
			sequence += uint32(used - bad)
			flows = flows[used:]
		}
		x.report(nil)
		select {
		case <-ctx.Done():
			return nil
		case err := <-closed:
			if x.Collector.Protocol != UDP {
				return fmt.Errorf("the collector has closed the connection: %w", err)
			}
			return fmt.Errorf("the collector's host refuses the packets: %w", err)
		case <-time.After(templateEvery):
		case <-x.wake:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(gatherFor):
			}
		}
	}
}

func write(conn net.Conn, b []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	_, err := conn.Write(b)
	return err
}

// take takes all flows that wait.
func (x *Exporter) take() []Flow {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := x.queue
	x.queue = nil
	return out
}

// giveBack has flows wait for the next connection.
func (x *Exporter) giveBack(flows []Flow) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queue = append(flows[:len(flows):len(flows)], x.queue...)
	x.bound()
}

// sent counts flows.
func (x *Exporter) sent(sent, bad int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts.Sent += uint64(sent)
	x.counts.Dropped += uint64(bad)
}
