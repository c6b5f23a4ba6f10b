package ipfix

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/go-ipfix/pkg/collector"
	"github.com/vmware/go-ipfix/pkg/entities"

	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// TestParseCollector reads addresses, and refuses others with the remedy.
func TestParseCollector(t *testing.T) {
	for text, want := range map[string]Collector{
		"192.0.2.7:4739:tls":             {Host: "192.0.2.7", Port: 4739, Protocol: TLS},
		"192.0.2.7:4739":                 {Host: "192.0.2.7", Port: 4739, Protocol: TLS},
		"[2001:db8::7]:4739:TCP":         {Host: "2001:db8::7", Port: 4739, Protocol: TCP},
		"flows/collector:4739:udp":       {Namespace: "flows", Host: "collector", Port: 4739, Protocol: UDP},
		"collector.example.com:4739:tcp": {Host: "collector.example.com", Port: 4739, Protocol: TCP},
	} {
		if have, err := ParseCollector(text); err != nil || have != want {
			t.Errorf("%s is %+v, %v; want %+v", text, have, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "host is missing", "192.0.2.7": "port is missing", "192.0.2.7::tls": "port is missing",
		"192.0.2.7:70000:tls": "no port", "192.0.2.7:x:tls": "no port", "192.0.2.7:4739:sctp": "not tls, tcp or udp",
		"flow-aggregator/flow-aggregator:14739:grpc": "grpc is not in this version", "a/b/c:1:tls": "NAMESPACE/NAME",
		"/b:1:tls": "NAMESPACE/NAME", "[::1:4739": "bracket", "[192.0.2.7]:1:tls": "no address of IPv6", "[::1]": "bracket",
	} {
		if c, err := ParseCollector(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %+v, %v; want an error with %q", text, c, err, want)
		} else if !strings.Contains(err.Error(), "give HOST:PORT:PROTOCOL") {
			t.Errorf("%s: the error names no remedy: %v", text, err)
		}
	}
}

// certificate makes a certificate for 127.0.0.1 and a name.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "collector"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, DNSNames: []string{"collector.flows.svc"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
}

// received are the records that a collector has got.
type received struct {
	mu   sync.Mutex
	list []map[string]any
}

func (r *received) all() []map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

// collect runs the library's collector until stop is called or the test ends.
func collect(t *testing.T, input collector.CollectorInput, into *received) (at netip.AddrPort, stop func()) {
	t.Helper()
	loadRegistry()
	if input.Address == "" {
		input.Address = "127.0.0.1:0"
	}
	input.MaxBufferSize = 65535
	c, err := collector.InitCollectingProcess(input)
	if err != nil {
		t.Fatal(err)
	}
	go c.Start()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range c.GetMsgChan() {
			set := m.GetSet()
			if set.GetSetType() != entities.Data {
				continue
			}
			into.mu.Lock()
			for _, r := range set.GetRecords() {
				into.list = append(into.list, r.GetElementMap())
			}
			into.mu.Unlock()
		}
	}()
	eventually(t, "the collector listens", func() bool { return c.GetAddress() != nil })
	stop = sync.OnceFunc(func() {
		c.Stop()
		<-done
	})
	t.Cleanup(stop)
	return netip.MustParseAddrPort(c.GetAddress().String()), stop
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// start runs an exporter until the test ends.
func start(t *testing.T, o Options) *Exporter {
	t.Helper()
	o.Log, o.Backoff, o.Domain = slog.New(slog.NewTextHandler(io.Discard, nil)), 20*time.Millisecond, 7
	if o.Cluster == nil {
		o.Cluster = func(context.Context) string { return "east" }
	}
	x := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return x
}

var (
	begin  = time.Unix(1_800_000_000, 0)
	web    = record.End{Namespace: "shop", Pod: "web", IP: "10.10.0.5", Port: 40112, Node: "n1"}
	db     = record.End{Namespace: "shop", Pod: "db-0", IP: "10.10.1.7", Port: 5432, Node: "n2"}
	events = []record.Event{
		{Connection: &record.Record{Time: begin, Node: "n1", Verdict: record.Allowed, Protocol: "TCP", From: web, To: db,
			Service: "shop/db", Asked: "10.96.0.9:80", Count: 1,
			Egress:  &record.Rule{Policy: "NetworkPolicy shop/out", Name: "egress[0]"},
			Ingress: &record.Rule{Policy: "AntreaClusterNetworkPolicy guard", Name: "letIn"}}},
		{End: &record.Record{Time: begin.Add(9 * time.Second), Node: "n1", Verdict: record.Allowed, Protocol: "TCP",
			From: web, To: record.End{IP: "10.20.1.7", Port: 443, Cluster: "west"}, Count: 1,
			Life: &record.Life{Began: begin, Seconds: 9, Sent: &record.Traffic{Packets: 5, Bytes: 1234},
				Received: &record.Traffic{Packets: 4, Bytes: 99}}}},
		{Drop: &record.Record{Time: begin, Node: "n2", Verdict: record.Rejected, Protocol: "UDP", From: web, To: db,
			Table: "EgressAdmin", Reason: record.ByPolicy, Count: 3,
			Rule: &record.Rule{Policy: "AntreaNetworkPolicy shop/no", Name: "dns"}}},
		{Drop: &record.Record{Time: begin, Node: "n2", Verdict: record.Dropped, Protocol: "ICMPv6", Count: 1,
			From: record.End{IP: "2001:db8::1"}, To: record.End{IP: "fd00::7", Pod: "db-0", Namespace: "shop", Node: "n2"},
			Table: "IngressRule", Reason: record.Isolated, Policies: []string{"NetworkPolicy shop/db"}}},
		{Missing: &record.Missing{Lost: 3}},
	}
)

func flowsOf(list []record.Event) (out []Flow) {
	for _, e := range list {
		if f, ok := FlowOf(e); ok {
			out = append(out, f)
		}
	}
	return out
}

// TestExport has another program's collector decode our records, by each protocol.
func TestExport(t *testing.T) {
	cert, key := certificate(t)
	for _, protocol := range []string{TCP, UDP, TLS} {
		t.Run(protocol, func(t *testing.T) {
			var got received
			input := collector.CollectorInput{Protocol: protocol, DecodingMode: collector.DecodingModeStrict}
			o := Options{Collector: Collector{Host: "127.0.0.1", Protocol: protocol}}
			if protocol == TLS {
				input.Protocol, input.IsEncrypted, input.ServerCert, input.ServerKey = TCP, true, cert, key
				o.CA = cert
				o.Collector.Namespace, o.Collector.Host = "flows", "collector"
				o.Service = func(_ context.Context, namespace, name string) (netip.Addr, error) {
					return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
				}
			}
			at, _ := collect(t, input, &got)
			o.Collector.Port = at.Port()
			x := start(t, o)
			x.Add(flowsOf(events)...)
			eventually(t, "all records have come", func() bool { return len(got.all()) == 4 })
			if c := x.Counts(); c != (Counts{Seen: 4, Sent: 4}) {
				t.Errorf("the counts are %+v", c)
			}
			wants := []string{
				"10.10.0.5:40112 -> 10.10.1.7:5432 6 type 2 reason 2 0+0 at shop/db:80 10.96.0.9 shop/out/egress[0] 1 1, " +
					"/guard/letIn 3 1  east 1",
				`10.10.0.5:40112 -> 10.20.1.7:443 6 type 3 reason 3 1234+99 at :0 0.0.0.0 // 0 0, // 0 0 ` +
					`{"multicluster.tombolo.io/cluster":"west"} east 1`,
				"10.10.0.5:40112 -> 10.10.1.7:5432 17 type 2 reason 3 0+0 at :0 0.0.0.0 shop/no/dns 2 3, // 0 0  east 0",
				"2001:db8::1:0 -> fd00::7:0 58 type 4 reason 3 0+0 at :0 :: // 0 0, // 0 2  east 0",
			}
			for i, m := range got.all() {
				family := "IPv4"
				if m["sourceIPv4Address"] == nil {
					family = "IPv6"
				}
				policy := func(d string) string {
					return fmt.Sprintf("%v/%v/%v %v %v", m[d+"NetworkPolicyNamespace"], m[d+"NetworkPolicyName"],
						m[d+"NetworkPolicyRuleName"], m[d+"NetworkPolicyType"], m[d+"NetworkPolicyRuleAction"])
				}
				have := fmt.Sprintf("%v:%v -> %v:%v %v type %v reason %v %v+%v at %v:%v %v %s, %s %v %v %v",
					m["source"+family+"Address"], m["sourceTransportPort"], m["destination"+family+"Address"],
					m["destinationTransportPort"], m["protocolIdentifier"], m["flowType"], m["flowEndReason"],
					m["octetTotalCount"], m["reverseOctetDeltaCount"], m["destinationServicePortName"],
					m["destinationServicePort"], m["destinationCluster"+family], policy("egress"), policy("ingress"),
					m["destinationPodLabels"], m["clusterId"], m["flowDirection"])
				if have != wants[i] {
					t.Errorf("record %d is\n%s, want\n%s", i, have, wants[i])
				}
				if m["sourcePodName"] == "web" && m["sourceNodeName"] != "n1" {
					t.Errorf("record %d has the Node %v", i, m["sourceNodeName"])
				}
			}
			if m := got.all()[1]; m["flowStartSeconds"] != uint32(begin.Unix()) ||
				m["flowEndSeconds"] != uint32(begin.Unix())+9 || m["reversePacketTotalCount"] != uint64(4) {
				t.Errorf("the end is %v", m)
			}
			if m := got.all()[2]; m["packetTotalCount"] != uint64(3) {
				t.Errorf("the drop is %v", m)
			}
		})
	}
}

// TestTemplate holds the order of elements against the order that collectors know.
func TestTemplate(t *testing.T) {
	const antrea, reverse = 56506, 29305
	want := [][2]uint32{{150, 0}, {151, 0}, {136, 0}, {7, 0}, {11, 0}, {4, 0}, {86, 0}, {85, 0}, {2, 0}, {1, 0}, {8, 0},
		{12, 0}, {86, reverse}, {85, reverse}, {2, reverse}, {1, reverse}}
	for _, id := range []uint32{101, 100, 104, 103, 102, 105, 108, 109, 110, 111, 115, 141, 139, 112, 113, 118, 142, 140,
		136, 137, 153, 154, 155, 156, 157, 106, 143, 144, 158} {
		want = append(want, [2]uint32{id, antrea})
	}
	want = append(want, [2]uint32{61, 0})
	e, err := NewEncoder(1, "")
	if err != nil {
		t.Fatal(err)
	}
	values := e.templates[0].values
	if len(values) != len(want) {
		t.Fatalf("the template has %d elements, want %d", len(values), len(want))
	}
	for i, v := range values {
		if info := v.GetInfoElement(); [2]uint32{uint32(info.ElementId), info.EnterpriseId} != want[i] {
			t.Errorf("element %d is %s %d of %d, want %v", i, info.Name, info.ElementId, info.EnterpriseId, want[i])
		}
	}
}

// TestCollectorGone stops the collector and starts it again. Each lost flow is counted, and Add never waits.
func TestCollectorGone(t *testing.T) {
	var first, second received
	at, stop := collect(t, collector.CollectorInput{Protocol: TCP}, &first)
	x := start(t, Options{Collector: Collector{Host: "127.0.0.1", Port: at.Port(), Protocol: TCP}})
	flows := flowsOf(events[:3])
	x.Add(flows...)
	eventually(t, "the first records have come", func() bool { return len(first.all()) == 3 })
	stop()
	eventually(t, "the exporter knows that it is gone", func() bool { return x.Failed() != "" })
	const batches = maxQueue/3 + 1000 // more than the queue takes
	began := time.Now()
	for range batches {
		x.Add(flows...)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("adding %d records without a collector took %v", 3*batches, took)
	}
	if c := x.Counts(); c.Dropped == 0 || c.Waiting > maxQueue || c.Sent+c.Dropped+c.Waiting != c.Seen {
		t.Errorf("without a collector the counts are %+v", c)
	}
	collect(t, collector.CollectorInput{Protocol: TCP, Address: at.String()}, &second)
	eventually(t, "nothing waits", func() bool { return x.Counts().Waiting == 0 && x.Failed() == "" })
	c := x.Counts()
	eventually(t, "what was sent has come", func() bool { return len(first.all())+len(second.all()) >= int(c.Sent) })
	if n := len(first.all()) + len(second.all()); n != int(c.Sent) || c.Sent+c.Dropped != c.Seen {
		t.Errorf("%d have come; the counts are %+v", n, c)
	}
}

// TestCollectorRefused names what is wrong with a collector.
func TestCollectorRefused(t *testing.T) {
	cert, key := certificate(t)
	at, _ := collect(t, collector.CollectorInput{Protocol: TCP, IsEncrypted: true, ServerCert: cert, ServerKey: key},
		&received{})
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	listener.Close()
	unknown := func(context.Context, string, string) (netip.Addr, error) {
		return netip.Addr{}, errors.New("there is no Service flows/none")
	}
	other := func(context.Context, string, string) (netip.Addr, error) { return at.Addr(), nil }
	secret := Collector{Host: "127.0.0.1", Port: at.Port(), Protocol: TLS}
	for name, row := range map[string]struct {
		o    Options
		want string
	}{
		"another CA":     {Options{Collector: secret}, "unknown authority"},
		"no certificate": {Options{Collector: secret, CA: []byte("x")}, "PEM"},
		"another name": {Options{Collector: Collector{Namespace: "flows", Host: "other", Port: at.Port(), Protocol: TLS},
			CA: cert, Service: other}, "other.flows.svc"},
		"nobody listens": {Options{Collector: Collector{Host: "127.0.0.1", Port: port, Protocol: TCP}}, "refused"},
		"no such Service": {Options{Collector: Collector{Namespace: "flows", Host: "none", Port: 1, Protocol: TCP},
			Service: unknown}, "no Service flows/none"},
	} {
		t.Run(name, func(t *testing.T) {
			x := start(t, row.o)
			eventually(t, "it fails", func() bool { return x.Failed() != "" })
			if have := x.Failed(); !strings.Contains(have, row.want) {
				t.Errorf("it says %q, want %q", have, row.want)
			}
		})
	}
}

// FuzzMessage has records with any texts. Each is decodable, or counted as bad.
func FuzzMessage(f *testing.F) {
	f.Add("shop", "web", "10.0.0.1", "10.0.0.2", "10.96.0.9:80", "NetworkPolicy shop/x")
	f.Add("\xff\xfe", strings.Repeat("é", 40_000), "::1", "fd00::1", "", "x")
	f.Add("", "\x00", "10.0.0.1", "fd00::1", "no", " / ")
	f.Add("", "", "::ffff:10.0.0.1", "fe80::1%eth0", "[::1]:1", "a b/c/d")
	f.Fuzz(func(t *testing.T, namespace, name, from, to, asked, policy string) {
		e, err := NewEncoder(1, namespace)
		if err != nil {
			t.Fatal(err)
		}
		r := &record.Record{Protocol: namespace, Service: name, Asked: asked, Verdict: name,
			From: record.End{Namespace: namespace, Pod: name, IP: from, Cluster: name},
			To:   record.End{Namespace: namespace, Pod: name, IP: to}, Rule: &record.Rule{Policy: policy, Name: name}}
		flow, _ := FlowOf(record.Event{Connection: r})
		const limit = tcpMessage
		m, used, bad := e.Message(nil, []Flow{flow, flow}, limit, time.Now(), 0)
		if used == 0 || len(m) > limit || (m == nil) != (bad == used) {
			t.Errorf("%d bytes, %d used, %d bad", len(m), used, bad)
		}
	})
}

// TestLimit has records beyond the size of a packet, which are counted, and others around them.
func TestLimit(t *testing.T) {
	e, err := NewEncoder(1, "")
	if err != nil {
		t.Fatal(err)
	}
	list := flowsOf(events[:3])
	long := *list[0].Record
	long.Service, long.From.Pod = strings.Repeat("é", maxText), strings.Repeat("x", maxText)
	list = append([]Flow{{Record: &long}}, list...)
	sent, lost, messages := 0, 0, 0
	for flows := list; len(flows) > 0; messages++ {
		m, used, bad := e.Message(nil, flows, udpMessage, time.Now(), 0)
		if used == 0 || len(m) > udpMessage {
			t.Fatalf("a message of %d bytes has %d records", len(m), used)
		}
		sent, lost, flows = sent+used-bad, lost+bad, flows[used:]
	}
	if sent != 3 || lost != 1 || messages == 0 {
		t.Errorf("%d are sent and %d lost in %d messages, want 3 and 1", sent, lost, messages)
	}
}

// BenchmarkMessage makes messages for TCP: the records that a core makes in a second.
func BenchmarkMessage(b *testing.B) {
	e, err := NewEncoder(1, "east")
	if err != nil {
		b.Fatal(err)
	}
	var flows []Flow
	for range 100 {
		flows = append(flows, flowsOf(events[:2])...)
	}
	buffer, left := []byte(nil), flows
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		m, used, _ := e.Message(buffer, left, tcpMessage, begin, 0)
		buffer, n = m, n+used
		if left = left[used:]; len(left) == 0 {
			left = flows
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
