package follow

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/hops"
)

// Bounds of a packet that is sent.
const (
	mostWatched = 100 // Nodes; in larger ClusterSets the Nodes of the simulated path and all Gateways
	packetWait  = 3 * time.Second
	// packetLinger is how long reports are waited for after the end of the packet was seen.
	packetLinger = 300 * time.Millisecond
	// These bounds exist since a hostile Node must not fill the reader's memory. A packet causes two reports on a Node.
	mostSightings = 32
	maxReport     = 256 << 10 // bytes of a line
	maxWord       = 256       // bytes of a name, an address or a rule
	maxMessage    = 2 << 10
	maxPolicies   = 20
)

// PacketAnswer is the path of a packet that was sent.
type PacketAnswer struct {
	Sent api.PacketSent  `json:"sent"`
	Path hops.PacketPath `json:"path"`
	// Unwatched are Nodes that could not be watched, with the reason.
	Unwatched []string `json:"unwatched,omitempty"`
}

// SendPacket sends the first packet of a connection, and follows it through the switches of all Nodes. Without
// deliver the Pod at its end does not get it.
func SendPacket(ctx context.Context, all []Cluster, q Question, deliver bool) (PacketAnswer, error) {
	clusters, err := open(ctx, all)
	if err != nil {
		return PacketAnswer{}, err
	}
	f := follower{clusters: clusters, q: q}
	in, node, err := f.client(ctx)
	if err != nil {
		return PacketAnswer{}, err
	}
	query, err := f.query(ctx, in)
	if err != nil {
		return PacketAnswer{}, err
	}
	if query.Get("endpoint") != "" || query.Get("cluster") != "" {
		return PacketAnswer{}, errors.New("--packet: the switch chooses the endpoint of a Service: give no --endpoint and " +
			"no --to-cluster, or the endpoint's Pod as --to")
	}
	list, err := in.Ask(ctx, node, query)
	if err != nil {
		return PacketAnswer{}, err
	}
	if len(list.Hops) == 0 {
		return PacketAnswer{}, fmt.Errorf("%s %s, %s %s: the ends have no version of IP in common that Node %s serves: "+
			"see `tombolo get status` there", q.part("from"), q.From, q.part("to"), q.To, node)
	}
	first := list.Hops[0]
	packet := &sentPacket{seen: make(chan hops.Sighting, 256), watched: map[string]bool{},
		members: clusters}
	if err := packet.mark(first.Packet, q, deliver); err != nil {
		return PacketAnswer{}, err
	}
	query.Set("family", packet.query.Get("family"))
	for _, name := range []string{"nonce", "srcPort"} {
		query.Set(name, packet.query.Get(name))
	}
	if q.TTL != 0 {
		query.Set("ttl", strconv.Itoa(int(q.TTL)))
	}
	if q.TCPFlags != 0 {
		query.Set("tcpFlags", strconv.Itoa(int(q.TCPFlags)))
	}
	ctx, cancel := context.WithCancel(ctx)
	targets, err := f.toWatch(ctx, in, first)
	if err != nil {
		cancel()
		return PacketAnswer{}, err
	}
	watching := packet.watch(ctx, targets)
	defer func() {
		cancel()
		watching()
	}()
	sent, err := in.Agents.Ask(ctx, node, api.PathPacketSend, query)
	if err != nil {
		return PacketAnswer{}, err
	}
	if err := json.Unmarshal(sent, &packet.answer.Sent); err != nil {
		return PacketAnswer{}, fmt.Errorf("understand the answer of Node %s: %w", node, err)
	}
	packet.answer.Path = packet.collect(ctx, in.Cluster.Name, node)
	cancel()
	watching() // after this no Node adds to the answer
	return packet.answer, nil
}

// watchTarget is a Node to watch.
type watchTarget struct {
	*cluster
	node string
}

// toWatch returns the Nodes to watch: all Nodes, or if there are many, the Nodes that the packet should meet.
func (f *follower) toWatch(ctx context.Context, in *cluster, first api.Hop) (out []watchTarget, err error) {
	for _, c := range f.clusters {
		nodes, err := c.Agents.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		for _, node := range nodes {
			out = append(out, watchTarget{c, node})
		}
	}
	if len(out) <= mostWatched {
		return out, nil
	}
	var known []hops.Cluster
	for _, c := range f.clusters {
		known = append(known, c)
	}
	path := hops.Follow(ctx, known, in, first, "")
	return slices.DeleteFunc(out, func(t watchTarget) bool {
		met := func(h hops.Hop) bool { return h.Cluster == t.Cluster.Name && h.Node == t.node }
		for _, g := range t.gateways {
			if g.Name == t.node {
				return false
			}
		}
		return !slices.ContainsFunc(path.Hops, met)
	}), nil
}

// sentPacket is a packet that is followed.
type sentPacket struct {
	query   url.Values // of api.PathPacketWatch
	seen    chan hops.Sighting
	members []*cluster

	mu      sync.Mutex
	answer  PacketAnswer
	watched map[string]bool // by cluster ID and Node
}

// mark chooses a nonce for the packet, which it adds to the packet's text, and a source port if the question leaves it
// open.
func (p *sentPacket) mark(text string, q Question, deliver bool) error {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails
	port, err := rand.Int(rand.Reader, big.NewInt(api.PacketPortLast-api.PacketPortFirst+1))
	if err != nil {
		return err
	}
	p.query = url.Values{
		"nonce":   {fmt.Sprintf("%016x", binary.BigEndian.Uint64(nonce[:]))},
		"srcPort": {strconv.FormatInt(api.PacketPortFirst+port.Int64(), 10)},
		"family":  {"ipv4"}, "deliver": {strconv.FormatBool(deliver)},
	}
	if q.SrcPort != 0 { // the connection may be a Pod's own
		p.query.Set("srcPort", strconv.Itoa(int(q.SrcPort)))
		p.query.Set("forget", "false")
	}
	for word := range strings.SplitSeq(text, ",") {
		switch word {
		case "tcp6", "udp6", "icmp6", "sctp6":
			p.query.Set("family", "ipv6")
			p.query.Set("protocol", strings.TrimSuffix(word, "6"))
		case "tcp", "udp", "icmp", "sctp":
			p.query.Set("protocol", word)
		}
	}
	if protocol := p.query.Get("protocol"); protocol == "sctp" || protocol == "" {
		return fmt.Errorf("packets of tcp, udp and icmp can be sent: give one with %s", q.part("protocol"))
	}
	return nil
}

// watch watches Nodes until ctx ends. It returns when each is ready or has failed. The returned function waits until
// no Node is watched any more.
func (p *sentPacket) watch(ctx context.Context, targets []watchTarget) (done func()) {
	var running, ready sync.WaitGroup
	for _, t := range targets {
		running.Add(1)
		ready.Add(1)
		isReady := sync.OnceFunc(ready.Done)
		go func() {
			defer running.Done()
			count, begun := 0, false
			err := t.watchPacket(ctx, p.query, func(e api.PacketEvent) {
				if e.Ready != nil {
					begun = true
					p.mu.Lock()
					p.watched[t.id+"/"+t.node] = true
					p.mu.Unlock()
					isReady()
				}
				if e.Seen == nil || !begun || count == mostSightings {
					return
				}
				count++
				e.Seen.Node = t.node // a Node speaks for itself alone
				shorten(e.Seen)
				select {
				case p.seen <- hops.Sighting{Cluster: t.Cluster.Name, ID: t.id, PacketSeen: *e.Seen}:
				case <-ctx.Done():
				}
			})
			p.mu.Lock()
			if err != nil && ctx.Err() == nil {
				p.answer.Unwatched = append(p.answer.Unwatched, fmt.Sprintf("%s/%s: %v", t.Cluster.Name, t.node, err))
			}
			p.mu.Unlock()
			isReady()
		}()
	}
	ready.Wait()
	return running.Wait
}

// watchPacket calls add with each line of an agent. It does not wait for an agent that is not ready in time.
func (t watchTarget) watchPacket(ctx context.Context, query url.Values, add func(api.PacketEvent)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(t.Timeout, func() {
		cancel(fmt.Errorf("it was not ready within %s", t.Timeout))
	})
	defer late.Stop()
	reader, writer := io.Pipe()
	var failed, misread error
	done := make(chan struct{})
	go func() {
		defer close(done)
		failed = t.Agents.Stream(ctx, t.node, api.PathPacketWatch, query, writer)
		_ = writer.Close()
	}()
	defer context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })()
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, maxReport)
	for lines.Scan() {
		var e api.PacketEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			misread = fmt.Errorf("understand the agent's line: %w; are this command and the agent of one version?", err)
			break
		}
		if e.Ready != nil {
			late.Stop()
		}
		add(e)
	}
	cancel(nil)
	_ = reader.Close()
	<-done
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line has more than %d bytes", maxReport)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if misread != nil {
		return misread
	}
	return failed
}

// collect joins reports until the packet has ended, or none comes any more.
func (p *sentPacket) collect(ctx context.Context, cluster, node string) hops.PacketPath {
	var all []hops.Sighting
	known := false // the end of the path
	end := time.NewTimer(packetWait)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return hops.Join(cluster, node, all, p.isWatched)
		case <-end.C:
			return hops.Join(cluster, node, all, p.isWatched)
		case s := <-p.seen:
			all = append(all, s)
			if !known && ended(hops.Join(cluster, node, all, p.isWatched)) {
				known = true
				end.Reset(packetLinger)
			}
		}
	}
}

// isWatched reports whether a Node of a cluster is watched, or, without a Node, all of the cluster's Gateways.
func (p *sentPacket) isWatched(id, node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if node != "" {
		return p.watched[id+"/"+node]
	}
	for _, c := range p.members {
		if c.id == id {
			return !slices.ContainsFunc(c.gateways, func(g mcv1alpha1.Gateway) bool { return !p.watched[id+"/"+g.Name] })
		}
	}
	return false
}

// shorten bounds the texts of a report.
func shorten(s *api.PacketSeen) {
	for _, text := range []*string{&s.Point, &s.Protocol, &s.Src, &s.Dst, &s.Port, &s.OuterSrc, &s.OuterDst, &s.NextNode,
		&s.NextCluster, &s.Table, &s.Reason, &s.Rule, &s.Egress, &s.Ingress} {
		*text = Short(*text, maxWord)
	}
	s.Message = Short(s.Message, maxMessage)
	s.Policies = s.Policies[:min(len(s.Policies), maxPolicies)]
	for i := range s.Policies {
		s.Policies[i] = Short(s.Policies[i], maxWord)
	}
}

// Short returns the beginning of a text of more than most bytes.
func Short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// ended reports whether the end of a path is known.
func ended(p hops.PacketPath) bool {
	switch p.End.Verdict {
	case hops.Lost, hops.Unseen, hops.OutOfSight:
		return false
	}
	return true
}

// PrintPacket writes the path of a packet as text.
func PrintPacket(w io.Writer, a PacketAnswer) error {
	var b strings.Builder
	for i, v := range a.Path.Visits {
		fmt.Fprintf(&b, "%d. Node %s/%s\n", i+1, v.Cluster, v.Node)
		began := v.Seen[0].At
		for _, s := range v.Seen {
			fmt.Fprintf(&b, "   %-8s  %s %s -> %s", s.Point, s.Protocol, s.Src, s.Dst)
			switch s.Point {
			case api.PacketDropped, api.PacketRejected:
				fmt.Fprintf(&b, ", in table %s", s.Table)
			case api.PacketIn:
				fmt.Fprintf(&b, ", from %s", portText(s, s.OuterSrc))
			default:
				fmt.Fprintf(&b, ", to %s", portText(s, s.OuterDst))
				for _, by := range [][2]string{{"out", s.Egress}, {"in", s.Ingress}} {
					if by[1] != "" {
						fmt.Fprintf(&b, ", %s by %s", by[0], by[1])
					}
				}
			}
			if took := s.At.Sub(began); s.Point != api.PacketIn {
				fmt.Fprintf(&b, "  (%.1f ms)", float64(took)/float64(time.Millisecond))
			}
			b.WriteString("\n")
		}
	}
	fmt.Fprintf(&b, "=> %s\n", a.Path.End.Text)
	for _, text := range a.Unwatched {
		fmt.Fprintf(&b, "Not watched: %s\n", text)
	}
	_, err := io.WriteString(w, printable(b.String()))
	return err
}

// portText is a port of a switch, with the far end of a tunnel.
func portText(s api.PacketSeen, far string) string {
	if far == "" {
		return s.Port
	}
	return s.Port + " " + far
}
