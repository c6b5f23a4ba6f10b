package traceflow_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/observe/relay/relaytest"
	"github.com/tombolo-net/tombolo/pkg/observe/reverse"
	"github.com/tombolo-net/tombolo/pkg/observe/traceflow"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// world is a cluster with an API server, replicas of the relay, and agents that have fixed answers. A packet from Node
// n1 goes to Node n2, and reaches its Pod.
type world struct {
	*relaytest.Cluster
	t       *testing.T
	objects client.Client
	records map[string][]record.Event // by Node
	refuses atomic.Bool               // n2 records no connections

	mu      sync.Mutex
	sent    map[string]chan struct{} // by nonce; closed when the packet is sent
	running int                      // packets that are watched by n1
	most    int
	hold    bool // n2 does not report
	hostile bool // n2 reports as n1, hundreds of times
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: relaytest.New(t, "../../../deploy/crds"), t: t, sent: map[string]chan struct{}{}}
	w.Install()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, crdv1beta1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.objects, err = client.New(w.Admin, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for name, node := range map[string]string{"web": "n1", "db": "n2"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		p.Spec.NodeName, p.Spec.Containers = node, []corev1.Container{{Name: "c", Image: "x"}}
		w.create(p)
		ip := map[string]string{"web": "10.1.0.5", "db": "10.1.1.7"}[name]
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
		if err := w.objects.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.objects.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// start runs a replica of the relay with its controller, and connects agents to it: of both Nodes, or of some.
func (w *world) start(connected ...string) (stop func()) {
	w.t.Helper()
	replica := w.Start()
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for _, node := range []string{"n1", "n2"} {
		replica.Relay.Nodes().Add(node)
		if len(connected) > 0 && !slices.Contains(connected, node) {
			continue
		}
		conn, err := tls.Dial("tcp", replica.Address, replica.TLS())
		if err != nil {
			w.t.Fatal(err)
		}
		token, opened := w.Token("kube-system", "antrea-agent", api.RelayAudience, node), make(chan struct{})
		all.Go(func() {
			_ = reverse.Serve(ctx, conn, api.RelayHost, token, w.agent(node), func() { close(opened) })
		})
		<-opened
	}
	s := runtime.NewScheme()
	if err := crdv1beta1.AddToScheme(s); err != nil {
		w.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(w.AsRelay(), ctrl.Options{Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}})
	if err != nil {
		w.t.Fatal(err)
	}
	objects, err := client.New(w.AsRelay(), client.Options{Scheme: follow.Scheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	c := &traceflow.Controller{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Objects: objects,
		Agents: replica.Relay.Agents(), Log: slog.New(slog.DiscardHandler)}
	if err := c.AddWhenServed(ctx, mgr); err != nil {
		w.t.Fatal(err)
	}
	all.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			w.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		replica.Stop()
	})
	w.t.Cleanup(stop)
	return stop
}

// agent answers as the agent of a Node.
func (w *world) agent(node string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathHop, func(a http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Get("to") == "192.0.2.1" {
			a.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(a).Encode(api.Error{Error: "to: no way there"})
			return
		}
		_ = json.NewEncoder(a).Encode(api.HopList{Hops: []api.Hop{{Node: node, Packet: "in_port=1,tcp"}}})
	})
	mux.HandleFunc("GET "+api.PathPacketSend, func(a http.ResponseWriter, q *http.Request) {
		close(w.packet(q.URL.Query().Get("nonce")))
		_ = json.NewEncoder(a).Encode(api.PacketSent{Node: node, Packet: "in_port=1,tcp"})
	})
	mux.HandleFunc("GET "+api.PathObserve, func(a http.ResponseWriter, q *http.Request) {
		lines := json.NewEncoder(a)
		if node == "n2" && q.URL.Query().Get("connections") == "true" && w.refuses.Load() {
			a.WriteHeader(http.StatusBadRequest)
			_ = lines.Encode(api.Error{Error: "connections are not recorded"})
			return
		}
		_ = lines.Encode(record.Event{Begin: &record.Begin{Node: node}})
		for _, e := range w.records[node] {
			if e.Connection == nil || q.URL.Query().Get("connections") == "true" {
				_ = lines.Encode(e)
			}
		}
		_ = http.NewResponseController(a).Flush()
		<-q.Context().Done()
	})
	mux.HandleFunc("GET "+api.PathPacketWatch, func(a http.ResponseWriter, q *http.Request) {
		lines, flush := json.NewEncoder(a), http.NewResponseController(a).Flush
		if node == "n1" {
			w.watched(1)
			defer w.watched(-1)
		}
		_ = lines.Encode(api.PacketEvent{Ready: &api.PacketReady{Node: node}})
		_ = flush()
		select {
		case <-w.packet(q.URL.Query().Get("nonce")):
		case <-q.Context().Done():
			return
		}
		for _, s := range w.seen(node) {
			_ = lines.Encode(api.PacketEvent{Seen: &s})
			if w.hostile && node == "n2" {
				s.Node, s.Port, s.Message = "n1", "Pod "+strings.Repeat("x", 10_000), strings.Repeat("m", 10_000)
				for range 200 {
					_ = lines.Encode(api.PacketEvent{Ready: &api.PacketReady{Node: "n1"}, Seen: &s})
				}
			}
		}
		_ = flush()
		<-q.Context().Done()
	})
	return mux
}

// packet returns what is closed when a packet is sent.
func (w *world) packet(nonce string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sent[nonce] == nil {
		w.sent[nonce] = make(chan struct{})
	}
	return w.sent[nonce]
}

// watched counts packets that are watched.
func (w *world) watched(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += n
	w.most = max(w.most, w.running)
}

// seen is what a Node sees of a packet.
func (w *world) seen(node string) []api.PacketSeen {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := func(s api.PacketSeen) api.PacketSeen {
		s.Node, s.At, s.Protocol, s.Src, s.Dst = node, time.Unix(1000, 0), "TCP", "10.1.0.5:40000", "10.1.1.7:80"
		return s
	}
	if node == "n1" {
		return []api.PacketSeen{at(api.PacketSeen{Point: api.PacketIn, Port: "Pod shop/web"}),
			at(api.PacketSeen{Point: api.PacketOut, Port: "tunnel", OuterDst: "10.0.0.2", NextNode: "n2"})}
	}
	if w.hold {
		return nil
	}
	return []api.PacketSeen{at(api.PacketSeen{Point: api.PacketIn, Port: "tunnel", OuterDst: "10.0.0.2"}),
		at(api.PacketSeen{Point: api.PacketHeld, Port: "Pod shop/db"})}
}

// traceflow returns an object from web to a Pod, or to an address.
func (w *world) traceflow(name, to string) *crdv1beta1.Traceflow {
	t := &crdv1beta1.Traceflow{ObjectMeta: metav1.ObjectMeta{Name: name}}
	t.Spec.Source = crdv1beta1.TraceflowSource{Namespace: "shop", Pod: "web"}
	t.Spec.Timeout = 300 // so that a loaded machine fails no object
	if t.Spec.Destination = (crdv1beta1.TraceflowDestination{Namespace: "shop", Pod: to}); strings.Contains(to, ".") {
		t.Spec.Destination = crdv1beta1.TraceflowDestination{IP: to}
	}
	return t
}

// ended returns the status of an object when it has ended.
func (w *world) ended(name string) (s crdv1beta1.TraceflowStatus) {
	w.t.Helper()
	ovstest.Eventually(w.t, "Traceflow "+name+" ends", func() error {
		var t crdv1beta1.Traceflow
		if err := w.objects.Get(w.t.Context(), client.ObjectKey{Name: name}, &t); err != nil {
			return err
		}
		if s = t.Status; s.Phase != crdv1beta1.TraceflowSucceeded && s.Phase != crdv1beta1.TraceflowFailed {
			return fmt.Errorf("its phase is %q", s.Phase)
		}
		return nil
	})
	return s
}

// TestController has two replicas of the relay follow packets, with the rights of its manifest. Each object is followed
// once.
func TestController(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.start()
	const many = 40
	for i := range many {
		w.create(w.traceflow(fmt.Sprint("many-", i), "db"))
	}
	for i := range many {
		s := w.ended(fmt.Sprint("many-", i))
		if s.Phase != crdv1beta1.TraceflowSucceeded || s.Reason != "" || len(s.Results) != 2 || s.StartTime == nil ||
			s.DataplaneTag != api.PacketDSCP {
			t.Fatalf("%+v", s)
		}
		first, last := s.Results[0], s.Results[1]
		if first.Node != "n1" || first.Role != "Sender" || len(first.Observations) != 2 ||
			first.Observations[1].TunnelDstIP != "10.0.0.2" || last.Node != "n2" || last.Role != "Receiver" ||
			len(last.Observations) != 2 || last.Observations[1].Action != "Delivered" ||
			last.Observations[1].Pod != "shop/db" {
			t.Fatalf("%+v", s)
		}
	}
	w.mu.Lock()
	if len(w.sent) != many || w.most > 2*traceflow.AtOnce {
		t.Errorf("%d packets for %d objects, %d at once", len(w.sent), many, w.most)
	}
	w.hold = true
	w.mu.Unlock()

	w.create(w.traceflow("nobody", "dc"))
	w.create(w.traceflow("no-way", "192.0.2.1"))
	w.create(w.traceflow("lost", "db"))
	live := w.traceflow("live", "db")
	live.Spec.LiveTraffic, live.Spec.Timeout = true, 1
	w.create(live)
	for name, want := range map[string]string{
		"nobody": "spec.destination pod/shop/dc: there is no such Pod and no such Service; did you mean shop/db",
		"no-way": "Node n1: to: no way there",
		"lost":   "lost after Node local/n1, which has sent it to Node n2",
		"live":   "no packet of Pods has fitted within spec.timeout of 1s",
	} {
		if s := w.ended(name); s.Phase != crdv1beta1.TraceflowFailed || !strings.Contains(s.Reason, want) {
			t.Errorf("%s: %+v, want %q", name, s, want)
		}
	}
	changed := w.traceflow("many-0", "dc")
	if err := w.objects.Get(t.Context(), client.ObjectKeyFromObject(changed), changed); err != nil {
		t.Fatal(err)
	}
	changed.Spec.Timeout = 7
	if err := w.objects.Update(t.Context(), changed); err == nil ||
		!strings.Contains(err.Error(), "a Traceflow cannot be changed: create another one") {
		t.Errorf("a Traceflow is changed: %v", err)
	}
}

// TestUnconnected has a replica of the relay that the source's Node is not connected to. The other one follows.
func TestUnconnected(t *testing.T) {
	w := newWorld(t)
	w.start("n2")
	w.start()
	const many = 6
	for i := range many {
		w.create(w.traceflow(fmt.Sprint("many-", i), "db"))
	}
	for i := range many {
		if s := w.ended(fmt.Sprint("many-", i)); s.Phase != crdv1beta1.TraceflowSucceeded {
			t.Errorf("%+v", s)
		}
	}
}

// TestHostileNode has an agent that reports too much, and in the name of another Node.
func TestHostileNode(t *testing.T) {
	w := newWorld(t)
	w.hostile = true
	w.start()
	w.create(w.traceflow("one", "db"))
	s := w.ended("one")
	if len(s.Results) < 2 || s.Results[0].Node != "n1" || len(s.Results[0].Observations) != 2 {
		t.Fatalf("%+v", s)
	}
	points := 0
	for _, r := range s.Results[1:] {
		if r.Node != "n2" {
			t.Errorf("n2 has spoken for %s", r.Node)
		}
		for _, o := range r.Observations {
			if points++; len(o.Pod) > 300 {
				t.Errorf("a name of %d bytes", len(o.Pod))
			}
		}
	}
	if points > 64 {
		t.Errorf("%d observations", points)
	}
}

// TestStopped stops a replica that follows a packet. The next replica follows it again. An object fails if its replica
// has ended without returning it.
func TestStopped(t *testing.T) {
	w := newWorld(t)
	w.hold = true
	stop := w.start()
	w.create(w.traceflow("one", "db"))
	ovstest.Eventually(t, "the packet is sent", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.sent) != 1 {
			return fmt.Errorf("%d packets", len(w.sent))
		}
		return nil
	})
	stop()
	w.mu.Lock()
	w.hold = false
	w.mu.Unlock()
	dead := w.traceflow("dead", "db")
	w.create(dead)
	dead.Status = crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowRunning,
		StartTime: ptr.To(metav1.NewTime(time.Now().Add(-time.Hour)))}
	if err := w.objects.Status().Update(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	w.start()
	if s := w.ended("one"); s.Phase != crdv1beta1.TraceflowSucceeded || len(s.Results) != 2 {
		t.Errorf("%+v", s)
	}
	if s := w.ended("dead"); s.Phase != crdv1beta1.TraceflowFailed ||
		!strings.Contains(s.Reason, "has ended: create another Traceflow") {
		t.Errorf("%+v", s)
	}
}

// TestLive finds the first packet of Pods that fits, with the record that the other Node has of the connection, or a
// drop. No packet is sent.
func TestLive(t *testing.T) {
	w := newWorld(t)
	of := func(node, verdict, fromPod string, port uint16) record.Record {
		return record.Record{Node: node, Time: time.Unix(1000, 0), Verdict: verdict, Protocol: "TCP", Count: 1,
			From: record.End{Namespace: "shop", Pod: fromPod, IP: "10.1.0.5", Port: 40000, Node: "n1"},
			To:   record.End{Namespace: "shop", Pod: "db", IP: "10.1.1.7", Port: port, Node: "n2"}}
	}
	connection := func(r record.Record) record.Event { return record.Event{Connection: &r} }
	similar, client, server := of("n1", record.Allowed, "web-2", 80), of("n1", record.Allowed, "web", 80),
		of("n2", record.Allowed, "web", 80)
	client.Service, client.Asked = "shop/db", "10.96.0.9:8080"
	client.Egress = &record.Rule{Policy: "NetworkPolicy shop/web", Name: "egress[0]"}
	server.Ingress = &record.Rule{Policy: "NetworkPolicy shop/db", Name: "ingress[1]"}
	drop := of("n2", record.Dropped, "web", 22)
	drop.Table, drop.Policies, drop.Message = "IngressRule", []string{"NetworkPolicy shop/db"}, "isolated"
	w.records = map[string][]record.Event{
		"n1": {connection(similar), connection(client)},
		"n2": {connection(server), {Drop: &drop}},
	}
	w.start()
	any, dropped := w.traceflow("any", "db"), w.traceflow("dropped", "db")
	any.Spec.LiveTraffic = true
	any.Spec.Packet.TransportHeader.TCP = &crdv1beta1.TCPHeader{DstPort: 80}
	dropped.Spec.LiveTraffic, dropped.Spec.DroppedOnly = true, true
	dropped.Spec.Source = crdv1beta1.TraceflowSource{}
	w.create(any)
	w.create(dropped)
	text := func(s crdv1beta1.TraceflowStatus) string {
		out := fmt.Sprintf("%s %s", s.Phase, s.Reason)
		for _, r := range s.Results {
			out += fmt.Sprintf("\n%s %s", r.Node, r.Role)
			for _, o := range r.Observations {
				out += fmt.Sprint(", ", o.Component, " ", o.ComponentInfo, " ", o.Action, " ", o.NetworkPolicy, o.Pod,
					o.TranslatedDstIP)
			}
		}
		if p := s.CapturedPacket; p != nil {
			out += fmt.Sprintf("\n%s %s %d", p.SrcIP, p.DstIP, p.TransportHeader.TCP.DstPort)
		}
		return out
	}
	for name, want := range map[string]string{
		"any": `Succeeded 
n1 Sender, SpoofGuard  Forwarded , LB  Forwarded 10.1.1.7, NetworkPolicy EgressRule Forwarded NetworkPolicy shop/web ` +
			`egress[0], Forwarding Output Forwarded 
n2 Receiver, Forwarding Classification Received , NetworkPolicy IngressRule Forwarded NetworkPolicy shop/db ` +
			`ingress[1], Forwarding Output Delivered shop/db
10.1.0.5 10.96.0.9 8080`,
		"dropped": `Succeeded isolated
n2 Receiver, Forwarding Classification Received , NetworkPolicy IngressRule Dropped NetworkPolicy shop/db
10.1.0.5 10.1.1.7 22`,
	} {
		if have := text(w.ended(name)); have != want {
			t.Errorf("%s: have\n%s\nwant\n%s", name, have, want)
		}
	}
	w.refuses.Store(true)
	refused, none := w.traceflow("refused", "db"), w.traceflow("none", "db")
	for port, o := range map[int32]*crdv1beta1.Traceflow{22: refused, 23: none} {
		o.Spec.LiveTraffic = true
		if o == none {
			o.Spec.Timeout = 5
		}
		o.Spec.Packet.TransportHeader.TCP = &crdv1beta1.TCPHeader{DstPort: port}
		w.create(o)
	}
	if s := w.ended("refused"); s.Phase != crdv1beta1.TraceflowSucceeded || s.Reason != "isolated" {
		t.Errorf("of a Node that records drops alone: %+v", s)
	}
	if s := w.ended("none"); !strings.Contains(s.Reason, "; not read: Node n2: connections are not recorded") {
		t.Errorf("%+v", s)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sent) != 0 {
		t.Errorf("%d packets are sent", len(w.sent))
	}
}
