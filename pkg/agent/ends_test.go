package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	ipfixcollector "github.com/vmware/go-ipfix/pkg/collector"
	"github.com/vmware/go-ipfix/pkg/entities"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/ended"
	"github.com/tombolo-net/tombolo/pkg/observe/ended/endedtest"
	"github.com/tombolo-net/tombolo/pkg/observe/ipfix"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// opened is the copy of the first packet of a TCP connection of a Pod, behind the Service.
func opened(t *testing.T, client, server, asked netip.AddrPort) ofp.PacketIn2 {
	t.Helper()
	frame := append(make([]byte, 12), 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0)
	frame = append(append(frame, client.Addr().AsSlice()...), server.Addr().AsSlice()...)
	frame = binary.BigEndian.AppendUint16(frame, client.Port())
	frame = binary.BigEndian.AppendUint16(frame, server.Port())
	frame = append(frame, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0)
	match := flow.All(flow.TCP(), flow.CTState("+new+trk"), flow.Reg(0).Bits(0, 4).Is(3),
		flow.Field(ofp.CTNwProto, []byte{6}, nil), flow.CTDst(netip.PrefixFrom(asked.Addr(), 32)),
		flow.Field(ofp.CTTpDst, binary.BigEndian.AppendUint16(nil, asked.Port()), nil))
	if err := match.Err(); err != nil {
		t.Fatal(err)
	}
	return ofp.PacketIn2{Data: frame, Table: datapath.Commit, Userdata: []byte("opened"), Metadata: match.OXM()}
}

// follow reads events of the agent, as `tombolo observe --follow --connections` does.
func follow(t *testing.T, o *observer, query string) <-chan record.Event {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"?follow=true&connections=true&"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	out, done := make(chan record.Event, 100), make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			var e record.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Begin == nil {
				out <- e
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		answer.Body.Close()
		<-done
	})
	return out
}

// next is the next event of a reader.
func next(t *testing.T, events <-chan record.Event) record.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event within 20 s")
	}
	return record.Event{}
}

// TestConnectionEnds has the kernel track connections between the addresses of Pods. The records of their ends have the
// names of their beginnings, and the kernel's bytes. A connection without a recorded beginning is named at its end.
func TestConnectionEnds(t *testing.T) {
	a := newAsked(t)
	web, db := a.web.IPs[0].Addr(), a.db.IPs[0].Addr()
	a.serve("store", db.String())
	service, server := netip.MustParseAddrPort("10.97.0.10:80"), netip.AddrPortFrom(db, 5432)
	o := a.agent.packetIns.observer
	made, listening := make(chan netns.NsHandle, 1), make(chan struct{}, 1)
	var namespace atomic.Int64
	o.ends.list = func() ([]ended.Connection, error) {
		if namespace.Load() == 0 {
			return nil, nil
		}
		return ended.Tracked(allZones, int(namespace.Load()))
	}
	o.ends.count = func() error { return nil }
	o.ends.listen = func() (endReader, error) {
		ns := <-made
		namespace.Store(int64(ns))
		events, err := ended.Listen(allZones, int(ns))
		listening <- struct{}{}
		return events, err
	}
	got := collector(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 3)
	go func() { stopped <- o.export.run(ctx) }()
	go func() { stopped <- o.run(ctx) }()
	go func() { stopped <- o.ends.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 3 {
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		}
	})
	events := follow(t, o, "from=default/web")
	others := follow(t, o, "from=default/db")
	made <- endedtest.Enter(t, endedtest.Tracking{Addresses: []netip.Addr{web, db, service.Addr()}, Protocol: "tcp",
		Ports: []uint16{80, 5432}, Zone: datapath.ServiceZone, Service: service, Endpoint: server})
	<-listening
	listener, err := net.Listen("tcp4", server.String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	connect := func(port uint16) (client netip.AddrPort) {
		t.Helper()
		client = netip.AddrPortFrom(web, port)
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(client), Timeout: 10 * time.Second}
		c, err := dialer.Dial("tcp4", service.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := c.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		for left := 1000; left > 0; {
			n, err := s.Read(make([]byte, left))
			if err != nil {
				t.Fatal(err)
			}
			left -= n
		}
		return client
	}
	early, seen := connect(40001), connect(40002) // the switch has sent no copy of the first one
	if err := o.take(opened(t, seen, server, service)); err != nil {
		t.Fatal(err)
	}
	if e := next(t, events); e.Connection == nil || e.Connection.To.Pod != "db" {
		t.Fatalf("the first event is %+v, want the connection", e)
	}
	// The second one has a record of its beginning, one of its bytes, and one when it has become idle. The first one was
	// found later, and has become idle; on a loaded machine it is found while it is active.
	reasons := map[uint16]string{}
	for !strings.HasSuffix(reasons[early.Port()], "1") || reasons[seen.Port()] != "221" {
		m := nextFlow(t, o, got)
		port := m["sourceTransportPort"].(uint16)
		reasons[port] += fmt.Sprint(m["flowEndReason"])
		total, delta := m["octetTotalCount"].(uint64), m["octetDeltaCount"].(uint64)
		first := port == early.Port()
		if !first && (reasons[port] == "2" && total != 0 || reasons[port] == "22" && (total < 1000 || delta != total)) ||
			first && total < 1000 || m["flowEndReason"] == uint8(1) && (total < 1000 || delta != 0) {
			t.Errorf("the records of port %d have the reasons %s; %d bytes, %d of them new", port, reasons[port], total,
				delta)
		}
	}
	endedtest.Forget(t)
	for range 2 {
		e := next(t, events)
		r := e.End
		if r == nil || r.Life == nil || r.Life.Sent == nil || r.Life.Received == nil {
			t.Fatalf("the event is %+v, want an end with bytes", e)
		}
		late := r.From.Port == early.Port()
		if r.From.Pod != "web" || r.To.Pod != "db" || r.To.Port != 5432 || r.Service != "default/store" || !r.First ||
			r.Asked != service.String() || r.Verdict != record.Allowed || r.Life.Late != late {
			t.Errorf("the end is %+v %+v", r, r.Life)
		}
		if r.Life.Sent.Bytes < 1000 || r.Life.Sent.Packets < 3 || r.Life.Received.Bytes < 100 ||
			r.Life.Received.Bytes >= 1000 {
			t.Errorf("%+v sent, %+v received", r.Life.Sent, r.Life.Received)
		}
		if began := r.Life.Began; began.IsZero() != late || !late && (r.Life.Seconds <= 0 || began.After(r.Time)) {
			t.Errorf("began %v, ended %v after %v s", began, r.Time, r.Life.Seconds)
		}
	}
	select {
	case e := <-others:
		t.Errorf("a reader who asks for other clients gets %+v", e)
	default:
	}
	for range 2 {
		m := nextFlow(t, o, got)
		if m["flowEndReason"] != uint8(3) || m["sourcePodName"] != "web" || m["destinationPodName"] != "db" ||
			m["destinationServicePortName"] != "default/store" || m["octetTotalCount"].(uint64) < 1000 ||
			m["octetDeltaCount"] != uint64(0) {
			t.Errorf("the collector gets %v, want an end", m)
		}
	}
	if list := o.export.problems("n1"); len(list) != 0 {
		t.Errorf("the problems are %v", list)
	}
}

// nextFlow is the next record of the collector.
func nextFlow(t *testing.T, o *observer, got <-chan map[string]any) map[string]any {
	t.Helper()
	select {
	case m := <-got:
		return m
	case <-time.After(20 * time.Second):
		t.Fatalf("the collector gets nothing: %+v", o.export.Counts())
	}
	return nil
}

// collector has the observer's records sent to another program's collector.
func collector(t *testing.T, o *observer) <-chan map[string]any {
	t.Helper()
	c := config.Default()
	c.FeatureGates = map[string]bool{"FlowExporter": true}
	c.FlowExporter.Enable, c.FlowExporter.FlowCollectorAddr = true, "127.0.0.1:1:tcp"
	c.FlowExporter.ActiveFlowExportTimeout = 50 * time.Millisecond
	c.FlowExporter.IdleFlowExportTimeout = 500 * time.Millisecond
	var err error
	if o.export, err = newFlowExport(c, "n1", o); err != nil {
		t.Fatal(err)
	}
	if _, err := ipfix.NewEncoder(0, ""); err != nil { // loads the elements for both
		t.Fatal(err)
	}
	p, err := ipfixcollector.InitCollectingProcess(ipfixcollector.CollectorInput{Address: "127.0.0.1:0", Protocol: "tcp",
		MaxBufferSize: 65535})
	if err != nil {
		t.Fatal(err)
	}
	go p.Start()
	out, done := make(chan map[string]any, 100), make(chan struct{})
	go func() {
		defer close(done)
		for m := range p.GetMsgChan() {
			if set := m.GetSet(); set.GetSetType() == entities.Data {
				for _, r := range set.GetRecords() {
					out <- r.GetElementMap()
				}
			}
		}
	}()
	t.Cleanup(func() {
		p.Stop()
		<-done
	})
	for p.GetAddress() == nil {
		time.Sleep(time.Millisecond)
	}
	o.export.Collector.Port = netip.MustParseAddrPort(p.GetAddress().String()).Port()
	return out
}

// readerOf gives the ends of a test.
type readerOf struct {
	ends   chan []ended.Connection
	closed chan struct{}
}

func (r readerOf) Read() ([]ended.Connection, uint64, error) {
	select {
	case list := <-r.ends:
		return list, 0, nil
	case <-r.closed:
		return nil, 0, errors.New("closed")
	}
}

func (r readerOf) Close() error {
	close(r.closed)
	return nil
}

// TestEndsWanted reads ends only while they are wanted, and reports once that it cannot.
func TestEndsWanted(t *testing.T) {
	log := &logTail{}
	e := newConnectionEnds("system", slog.New(slog.NewTextHandler(log, nil)))
	open, refused := make(chan readerOf), make(chan error, 1)
	e.count = func() error { return errors.New("read-only") }
	e.listen = func() (endReader, error) {
		select {
		case err := <-refused:
			return nil, err
		default:
		}
		r := readerOf{make(chan []ended.Connection), make(chan struct{})}
		open <- r
		return r, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.run(ctx) }()
	for range 2 {
		e.want(true)
		r := <-open
		r.ends <- []ended.Connection{{}}
		e.want(false)
		<-r.closed
	}
	refused <- errors.New("operation not permitted")
	e.want(true)
	deadline := time.Now().Add(20 * time.Second)
	for len(e.problems("n1")) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("no problem is reported")
		}
		time.Sleep(time.Millisecond)
	}
	if p := e.problems("n1")[0]; p.Reason.String() != "ConnectionEndsNotSeen" || !strings.Contains(p.Message,
		"not permitted") {
		t.Errorf("the problem is %+v", p)
	}
	r := <-open
	r.ends <- nil // it reads, so the problem is over
	if list := e.problems("n1"); len(list) != 0 {
		t.Errorf("the problems are %+v", list)
	}
	cancel()
	<-r.closed
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "records have no bytes"); n != 1 {
		t.Errorf("the log says %d times that bytes are not counted: %s", n, log)
	}
}

// TestBirthOf joins ends with births: ports are used again, and connections without ports are alike.
func TestBirthOf(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	client, server := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for _, row := range []struct {
		name   string
		port   uint16
		births []int // their times
		ends   []int
		want   []int // the births of the ends; -1 for no birth
	}{
		{"one", 80, []int{0}, []int{50}, []int{0}},
		{"the copy comes late", 80, []int{100}, []int{50}, []int{100}},
		{"of a later connection", 80, []int{900}, []int{50}, []int{-1}},
		{"the port is used again", 80, []int{0, 900}, []int{800, 2000}, []int{0, 900}},
		{"an end is lost", 80, []int{0, 900}, []int{2000, 2001}, []int{900, -1}},
		{"without ports", 0, []int{0, 900}, []int{2000, 3000}, []int{0, 900}},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := newConnectionEnds("system", slog.New(slog.NewTextHandler(&logTail{}, nil)))
			e.want(true)
			for _, ms := range row.births {
				r := seenReport{Report: datapath.Report{Headers: datapath.Headers{Src: client, Dst: server, Protocol: 6,
					SrcPort: row.port, DstPort: row.port}}}
				e.began(r, 0, &record.Record{Time: at(ms)})
			}
			for i, ms := range row.ends {
				c := ended.Connection{Protocol: 6, Client: netip.AddrPortFrom(client, row.port),
					Server: netip.AddrPortFrom(server, row.port)}
				r, have := e.birthOf(endedAt{c, at(ms)}), -1
				if r != nil {
					have = int(r.Time.Sub(begin).Milliseconds())
				}
				if have != row.want[i] {
					t.Errorf("end at %d ms: birth at %d, want %d", ms, have, row.want[i])
				}
			}
			if left := len(e.births); left > 0 && !slices.Contains(row.want, -1) {
				t.Errorf("%d births are left", left)
			}
		})
	}
}

// TestBirthsInZones has equal connections in two separate networks and in the main zone. Each end finds its own birth.
func TestBirthsInZones(t *testing.T) {
	e := newConnectionEnds("system", slog.New(slog.NewTextHandler(&logTail{}, nil)))
	e.want(true)
	begin := time.Unix(1000, 0)
	r := seenReport{Report: datapath.Report{Headers: datapath.Headers{Src: netip.MustParseAddr("10.50.0.2"),
		Dst: netip.MustParseAddr("10.50.0.3"), Protocol: 6, SrcPort: 40000, DstPort: 80}}}
	for _, zone := range []uint16{0, 1, 2} {
		e.began(r, zone, &record.Record{Time: begin, Way: fmt.Sprint("zone ", zone)})
	}
	c := ended.Connection{Protocol: 6, Client: netip.AddrPortFrom(r.Src, 40000), Server: netip.AddrPortFrom(r.Dst, 80)}
	for _, zone := range []uint16{2, 0, 1} {
		c.Zone = zone
		if b := e.birthOf(endedAt{c, begin.Add(time.Minute)}); b == nil || b.Way != fmt.Sprint("zone ", zone) {
			t.Errorf("the end in zone %d has birth %+v", zone, b)
		}
	}
	c.Zone = 3
	if b := e.birthOf(endedAt{c, begin.Add(time.Minute)}); b != nil || len(e.births) != 0 {
		t.Errorf("an end without a birth has %+v, and %d births are left", b, len(e.births))
	}
	// Another program on the host may use the same zones. Its connections have no source in their mark.
	e.take([]ended.Connection{c}, 0, begin)
	c.Mark = 3
	e.take([]ended.Connection{c}, 0, begin)
	if list := e.due(begin.Add(time.Minute)); len(list) != 1 || list[0].Mark != 3 {
		t.Errorf("the ends are %+v", list)
	}
}

// TestBirthsBounded has more connections live than are kept. The oldest ones are forgotten.
func TestBirthsBounded(t *testing.T) {
	e := newConnectionEnds("system", slog.New(slog.NewTextHandler(&logTail{}, nil)))
	e.want(true)
	server := netip.MustParseAddr("10.0.0.2")
	report := func(i int) seenReport {
		return seenReport{Report: datapath.Report{Headers: datapath.Headers{Dst: server, Protocol: 17, SrcPort: uint16(i),
			Src: netip.AddrFrom4([4]byte{10, 1, byte(i >> 16), 1}), DstPort: 53}}}
	}
	const more = 1000
	for i := range maxBirths + more {
		e.began(report(i), 0, &record.Record{})
		if i > 0 && i < maxBirths/2 { // short ones do not shorten the memory of the others
			r := report(i)
			e.birthOf(endedAt{ended.Connection{Protocol: 17, Client: netip.AddrPortFrom(r.Src, r.SrcPort),
				Server: netip.AddrPortFrom(r.Dst, 53)}, time.Now()})
		}
	}
	if have := len(e.births); have != maxBirths/2+more+1 {
		t.Errorf("%d of %d births are kept", have, maxBirths/2+more+1)
	}
	for i := range maxBirths + more {
		e.began(report(1<<20+i), 0, &record.Record{})
	}
	if n := len(e.births); n > maxBirths || n < maxBirths-birthsRoom || len(e.order) != n {
		t.Errorf("%d births are kept, want nearly %d", n, maxBirths)
	}
	if r := report(0); e.births[keyOfPacket(r.Headers, 0)] != nil {
		t.Error("an old birth is kept")
	}
	e.take(make([]ended.Connection, maxEnds+7), 1, time.Now())
	if n := e.lost.Load(); n != 8 {
		t.Errorf("%d ends are lost, want 8", n)
	}
}

// TestAbsent ends connections that a list of the datapath does not have any more.
func TestAbsent(t *testing.T) {
	log := slog.New(slog.NewTextHandler(&logTail{}, nil))
	o := &observer{history: record.NewHistory(1 << 20), ends: newConnectionEnds("netdev", log)}
	lines := []string{
		"tcp,orig=(src=10.0.0.1,dst=10.96.0.1,sport=1,dport=80)," +
			"reply=(src=10.0.0.2,dst=10.0.0.1,sport=8080,dport=1),zone=65520",
		"udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=9,dport=53)," +
			"reply=(src=10.0.0.2,dst=10.0.0.1,sport=53,dport=9),zone=7,mark=3",
		"icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id=9,type=8,code=0)," +
			"reply=(src=10.0.0.2,dst=10.0.0.1,id=9,type=0,code=0),zone=65520",
	}
	tracked := 3
	count := func(context.Context) (int, int, error) { return tracked, 10_000, nil }
	reader := &connectionReader{list: func(_ context.Context, each func(string)) error {
		for _, line := range lines {
			each(line)
		}
		return nil
	}}
	o.ends.poll = func(ctx context.Context) (map[connectionKey]bool, error) { return pollConnections(ctx, count, reader) }
	o.ends.want(true)
	at := time.Now()
	zone := uint16(0)
	began := func(protocol uint8, from, to uint16, ago time.Duration) {
		r := datapath.Report{Headers: datapath.Headers{Src: netip.MustParseAddr("10.0.0.1"), SrcPort: from,
			Dst: netip.MustParseAddr("10.0.0.2"), DstPort: to, Protocol: protocol}}
		o.ends.began(seenReport{Report: r}, zone, &record.Record{Time: at.Add(-ago), From: record.End{Port: from}})
	}
	began(6, 1, 8080, time.Minute)          // in the list
	began(6, 2, 8080, time.Minute)          // ended
	began(17, 9, 53, time.Minute)           // of another zone in the list
	began(6, 3, 8080, 100*time.Millisecond) // too young to be in the list
	began(1, 0, 0, time.Minute)             // without ports
	zone = 7
	began(17, 9, 53, time.Minute) // in the list
	zone = 8
	began(6, 1, 8080, time.Minute) // of another zone in the list
	keys, err := o.ends.poll(t.Context())
	if err != nil || len(keys) != 2 {
		t.Fatalf("the list has %v, error %v; want two connections", keys, err)
	}
	for range 2 { // the second time nothing is new
		o.addAbsent(polledKeys{at, keys})
	}
	list, _, _, _ := o.history.Read(0)
	var ports []uint16
	for _, e := range list {
		ports = append(ports, e.End.From.Port)
		if l := e.End.Life; l.Seconds != 60 || l.Sent != nil || l.Late {
			t.Errorf("the end is %+v", l)
		}
	}
	if !slices.Equal(ports, []uint16{2, 9, 1}) {
		t.Errorf("the clients' ports of the ends are %v, want 2, 9 and 1", ports)
	}
	tracked = pollMost + 1
	if _, err := o.ends.poll(t.Context()); !errors.Is(err, errManyConnections) {
		t.Errorf("a list of %d connections is made: %v", tracked, err)
	}
}
