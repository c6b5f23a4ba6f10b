package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/capture"
	"github.com/tombolo-net/tombolo/pkg/capture/capturetest"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// captureOfSpec is a PacketCapture with a spec in YAML.
func captureOfSpec(t *testing.T, name, spec string) *crdv1alpha1.PacketCapture {
	t.Helper()
	p := &crdv1alpha1.PacketCapture{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	if err := yaml.Unmarshal([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func capturedTestPod(name, node, ip string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: node}}
	if ip != "" {
		p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	}
	return p
}

// TestCaptureRows decides which Node serves a capture, and what it captures.
func TestCaptureRows(t *testing.T) {
	web, db := netip.MustParseAddr("10.11.0.2"), netip.MustParseAddr("10.11.1.3")
	const file = "agent-x:/var/run/tombolo/captures/%s/u.pcapng"
	for _, row := range []struct {
		name, spec, path string
		pods             []*corev1.Pod
		want             captureRow // without facts
	}{
		{name: "a Pod of this Node", spec: "source: {pod: {name: web}}",
			want: captureRow{Node: "node-1", Link: "web-a1b2c3",
				Filter: capture.Filter{Forward: true, Source: web, Protocol: -1}}},
		{name: "to a Pod of another Node", spec: "{source: {pod: {name: web}}, destination: {pod: {name: db}}}",
			want: captureRow{Node: "node-1", Link: "web-a1b2c3",
				Filter: capture.Filter{Forward: true, Source: web, Destination: db, Protocol: -1}}},
		{name: "at the other Node", spec: "{source: {pod: {name: web}}, destination: {pod: {name: db}}, " +
			"capturePoint: Destination}", want: captureRow{Node: "node-2"}},
		{name: "from an address", spec: "{source: {ip: 192.0.2.1}, destination: {pod: {name: web}}}",
			want: captureRow{Node: "node-1", Link: "web-a1b2c3",
				Filter: capture.Filter{Forward: true, Source: netip.MustParseAddr("192.0.2.1"), Destination: web,
					Protocol: -1}}},
		{name: "no such Pod", spec: "source: {pod: {name: gone}}",
			want: captureRow{Node: "node-1", Waits: "there is no Pod default/gone that runs with a network of its " +
				"own, which Pods with hostNetwork lack"}},
		{name: "a Pod that is on no Node", spec: "source: {pod: {name: new}}",
			pods: []*corev1.Pod{capturedTestPod("new", "", "")},
			want: captureRow{Node: "node-1", Waits: "Pod default/new is on no Node yet"}},
		{name: "a Pod without an attachment", spec: "source: {pod: {name: new}}",
			pods: []*corev1.Pod{capturedTestPod("new", "node-1", "")},
			want: captureRow{Node: "node-1", Waits: "Pod default/new is not attached to the network of Node node-1 yet"}},
		{name: "the other Pod has no address", spec: "{source: {pod: {name: web}}, destination: {pod: {name: gone}}}",
			want: captureRow{Node: "node-1", Waits: "there is no Pod default/gone with an address"}},
		{name: "begun on another Node", spec: "source: {pod: {name: web}}", path: fmt.Sprintf(file, "node-2"),
			want: captureRow{Node: "node-2"}},
		{name: "begun on this Node", spec: "source: {pod: {name: db}}", path: fmt.Sprintf(file, "node-1"),
			want: captureRow{Node: "node-1", Waits: "Pod default/db is on Node node-2"}},
		{name: "begun on a Node that is gone", spec: "source: {pod: {name: web}}", path: fmt.Sprintf(file, "node-9"),
			want: captureRow{Node: "node-1", Fault: "Node node-9, which has captured, is gone, and the file with it"}},
		{name: "another version of IP", spec: "{source: {pod: {name: web}}, packet: {ipFamily: IPv6}}",
			want: captureRow{Node: "node-1", Fault: "spec.packet.ipFamily IPv6: source and destination do not both have an " +
				"address of it: the source has [10.11.0.2], the destination []"}},
		{name: "no address", spec: "{source: {pod: {name: web}}, destination: {ip: fe80::1%eth0}}",
			want: captureRow{Node: "node-1",
				Fault: `spec.destination.ip "fe80::1%eth0" is no address: write one of IPv4 or IPv6`}},
		{name: "no Pod", spec: "source: {ip: 192.0.2.1}", want: captureRow{Node: "node-1", Fault: "no Pod at whose " +
			"interface packets are captured: write spec.source.pod or spec.destination.pod, and a spec.capturePoint that " +
			"is a Pod"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := testView()
			v.Config.FeatureGates["PacketCapture"] = true
			v.Pods = append(row.pods, capturedTestPod("web", "node-1", "10.11.0.2"),
				capturedTestPod("db", "node-2", "10.11.1.3"))
			p := captureOfSpec(t, "c", row.spec)
			p.Status.FilePath = row.path
			v.Others = append(v.Others, p)
			tables := newTables(v.Config, v.NodeName)
			tables.set(v)
			tables.engine.Pass()
			have, _ := tables.captures.rows.Get(derive.Object{Name: "c"})
			have.captureFacts = captureFacts{}
			if !reflect.DeepEqual(have, row.want) {
				t.Errorf("%+v, want %+v", have, row.want)
			}
		})
	}
}

// testFrame is a packet from the Pod web to a port.
func testFrame(t *testing.T, port uint16, length int) []byte {
	t.Helper()
	out := gopacket.NewSerializeBuffer()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: []byte{10, 11, 0, 2},
		DstIP: []byte{10, 11, 1, 3}}
	header := make([]byte, 20)
	header[2], header[3], header[12] = byte(port>>8), byte(port), 5<<4
	if err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2},
			EthernetType: layers.EthernetTypeIPv4}, ip,
		gopacket.Payload(append(header, make([]byte, length)...))); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// captureTest is an agent's captures of a real API server at a real veth pair.
type captureTest struct {
	t     *testing.T
	admin client.Client
	wire  capturetest.Wire
	agent *Agent
	as    *rest.Config
	dirs  [3]string
	stop  func()
}

// start runs an agent's watches, tables and captures, with the rights of its role.
func (c *captureTest) start(pod string) {
	c.t.Helper()
	conf := config.Default()
	conf.FeatureGates = map[string]bool{"PacketCapture": true}
	a, err := newAgent(Options{Config: conf, NodeName: "node-1", REST: c.as, Namespace: "kube-system", PodName: pod,
		OVSRunDir: c.dirs[0], RunDir: c.dirs[1], StateDir: c.dirs[2], Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry()})
	if err != nil {
		c.t.Fatal(err)
	}
	ports := func() map[string]bridge.PortState { return map[string]bridge.PortState{"web-a1b2c3": {OFPort: 1}} }
	a.attachments.Store(newAttachments([]cni.Attachment{{
		ContainerID: "c1", IfName: "eth0", PodNamespace: "default", PodName: "web", PortName: "web-a1b2c3",
		MAC: "02:00:00:00:00:02", IPs: []netip.Prefix{netip.MustParsePrefix("10.11.0.2/24")},
	}}, a.tables, ports))
	a.tables.readSwitch(func() bridge.State {
		return bridge.State{Connected: true, Bridges: map[string]bridge.Found{"br-int": {Ports: ports()}}}
	})
	a.tables.loaded()
	a.tables.external.held.Loaded()
	a.api.captures.run = func(ctx context.Context, o capture.Options) (n int, err error) {
		within := c.wire.Do(func() error {
			n, err = capture.Run(ctx, o)
			return nil
		})
		return n, cmp.Or(err, within)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	var ends []chan struct{}
	for _, run := range []func(context.Context){a.watcher.Run, a.tables.engine.Run, a.api.captures.loop} {
		end := make(chan struct{})
		ends = append(ends, end)
		go func() {
			defer close(end)
			run(ctx)
		}()
	}
	c.agent = a
	c.stop = func() {
		cancel()
		for _, end := range ends {
			<-end
		}
	}
	c.t.Cleanup(c.stop)
}

// create creates a capture.
func (c *captureTest) create(name, spec string) *crdv1alpha1.PacketCapture {
	c.t.Helper()
	p := captureOfSpec(c.t, name, spec)
	p.UID = ""
	if err := c.admin.Create(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// await waits until a capture has a condition with a reason.
func (c *captureTest) await(name, condition, reason string) crdv1alpha1.PacketCaptureStatus {
	c.t.Helper()
	var p crdv1alpha1.PacketCapture
	for until := time.Now().Add(60 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		p = crdv1alpha1.PacketCapture{}
		if err := c.admin.Get(c.t.Context(), client.ObjectKey{Name: name}, &p); err != nil {
			c.t.Fatal(err)
		}
		if have := p.Status.Condition(condition); have != nil && have.Reason == reason {
			return p.Status
		}
	}
	c.t.Fatalf("capture %s has the status %+v; want %s with %s; the agent waits for %v", name, p.Status, condition, reason,
		c.agent.status().Waiting)
	return p.Status
}

// packets reads the file that a status names.
func (c *captureTest) packets(s crdv1alpha1.PacketCaptureStatus, pod string) int {
	c.t.Helper()
	path, ok := strings.CutPrefix(s.FilePath, pod+":")
	if !ok {
		c.t.Fatalf("the file is at %q, want it in Pod %s", s.FilePath, pod)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	return countPackets(c.t, text)
}

func countPackets(t *testing.T, text []byte) (n int) {
	t.Helper()
	reader, err := pcapgo.NewNgReader(bytes.NewReader(text), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for ; ; n++ {
		if _, _, err := reader.ReadPacketData(); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func (c *captureTest) send(port uint16, n int) {
	c.t.Helper()
	for range n {
		c.wire.Send(c.t, c.wire.Pod, testFrame(c.t, port, 100))
	}
}

const webTo = "{source: {pod: {name: web}}, packet: {protocol: TCP, transportHeader: {tcp: {dstPort: %d}}}, " +
	"timeout: %d, captureConfig: {firstN: {number: %d}}}"

// TestPacketCaptures has an agent with the rights of its role capture for objects of a real API server.
func TestPacketCaptures(t *testing.T) {
	admin := apiserver.Start(t, "../../deploy/crds")
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), crdv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	objects, err := client.New(admin, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node-1", "node-2"} {
		if err := objects.Create(t.Context(), testNode(name, "192.168.78.101", "10.11.0.0/24")); err != nil {
			t.Fatal(err)
		}
	}
	c := &captureTest{t: t, admin: objects, wire: capturetest.New(t, "web-a1b2c3"), as: agentAccess(t, admin),
		dirs: [3]string{t.TempDir(), t.TempDir(), t.TempDir()}}
	for _, p := range []*corev1.Pod{capturedTestPod("web", "node-1", "10.11.0.2"),
		capturedTestPod("db", "node-2", "10.11.1.3")} {
		ips := p.Status
		p.UID, p.Spec.Containers = "", []corev1.Container{{Name: "c", Image: "i"}}
		p.Spec.AutomountServiceAccountToken = new(false)
		if err := objects.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.Status = ips
		if err := objects.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	c.start("agent-1")
	for _, run := range []struct {
		name string
		f    func(*captureTest, *testing.T)
	}{
		{"two at once", (*captureTest).twoAtOnce}, {"timeout", (*captureTest).timesOut}, {"queue", (*captureTest).queue},
		{"Pod that is away", (*captureTest).away}, {"refused", (*captureTest).refused}, {"size", (*captureTest).size},
		{"live", (*captureTest).live}, {"restart", (*captureTest).restart},
	} {
		t.Run(run.name, func(t *testing.T) {
			inner := *c
			inner.t = t
			run.f(&inner, t)
			c.agent, c.stop = inner.agent, inner.stop
		})
	}
}

// twoAtOnce runs two captures at the Pod at the same time, fetches a file, and deletes an object.
func (c *captureTest) twoAtOnce(t *testing.T) {
	one := c.create("one", fmt.Sprintf(webTo, 80, 60, 2))
	c.create("two", strings.Replace(fmt.Sprintf(webTo, 443, 60, 3), "{source:",
		"{fileServer: {url: \"sftp://192.0.2.1:22/upload\"}, destination: {pod: {name: db}}, source:", 1))
	c.await("one", crdv1alpha1.PacketCaptureStarted, crdv1alpha1.ReasonStarted)
	c.await("two", crdv1alpha1.PacketCaptureStarted, crdv1alpha1.ReasonStarted)
	c.send(22, 5)
	c.send(80, 5)
	c.send(443, 5)
	first := c.await("one", crdv1alpha1.PacketCaptureComplete, crdv1alpha1.ReasonSucceed)
	second := c.await("two", crdv1alpha1.PacketCaptureComplete, crdv1alpha1.ReasonSucceed)
	if n := c.packets(first, "agent-1"); n != 2 || first.NumberCaptured != 2 {
		t.Errorf("%d packets, status %+v", n, first)
	}
	if n := c.packets(second, "agent-1"); n != 3 || second.NumberCaptured != 3 {
		t.Errorf("%d packets, status %+v", n, second)
	}
	if first.Condition(crdv1alpha1.PacketCaptureFileUploaded) != nil {
		t.Errorf("a capture without a file server has %+v", first)
	}
	if u := second.Condition(crdv1alpha1.PacketCaptureFileUploaded); u == nil || u.Status != metav1.ConditionFalse ||
		u.Reason != crdv1alpha1.ReasonNotServed || !strings.Contains(u.Message, "tombolo capture fetch two") {
		t.Errorf("a capture with a file server has %+v", second)
	}
	server := httptest.NewServer(debugAPI{c.agent}.handler())
	defer server.Close()
	for name, want := range map[string]int{"one": 2, "two": 3, "none": -1, "../one": -1} {
		answer, err := http.Get(server.URL + api.PathCapture + "?name=" + name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if want < 0 && (answer.StatusCode == http.StatusOK || !bytes.Contains(text, []byte("there is no PacketCapture"))) {
			t.Errorf("capture %s: %s %s", name, answer.Status, text)
		} else if want >= 0 && countPackets(t, text) != want {
			t.Errorf("capture %s has %d packets", name, countPackets(t, text))
		}
	}
	relayed := httptest.NewServer(reading(debugAPI{c.agent}.handler(), true))
	defer relayed.Close()
	answer, err := http.Get(relayed.URL + api.PathCapture + "?name=one")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode == http.StatusOK {
		t.Error("the relay reads packets")
	}
	if err := c.admin.Delete(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	_, path, _ := strings.Cut(first.FilePath, ":")
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			break
		} else if time.Now().After(until) {
			t.Fatalf("the file stays: %v", err)
		}
	}
}

func (c *captureTest) timesOut(t *testing.T) {
	c.create("late", fmt.Sprintf(webTo, 80, 3, 100))
	c.await("late", crdv1alpha1.PacketCaptureStarted, crdv1alpha1.ReasonStarted)
	c.send(80, 4)
	s := c.await("late", crdv1alpha1.PacketCaptureComplete, crdv1alpha1.ReasonTimeout)
	if n := c.packets(s, "agent-1"); n != 4 || s.NumberCaptured != 4 {
		t.Errorf("%d packets, status %+v", n, s)
	}
}

// queue creates more captures than may run. The others wait for their turn, and all end.
func (c *captureTest) queue(t *testing.T) {
	const more = 4
	for i := range maxCaptures + more {
		c.create(fmt.Sprintf("queue-%02d", i), fmt.Sprintf(webTo, 8080, 60, 1))
	}
	running, pending := 0, 0
	until := time.Now().Add(60 * time.Second)
	for ; running != maxCaptures || pending != more; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d captures run, %d wait", running, pending)
		}
		running, pending = 0, 0
		var list crdv1alpha1.PacketCaptureList
		if err := c.admin.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			if s := p.Status.Condition(crdv1alpha1.PacketCaptureStarted); s != nil && strings.HasPrefix(p.Name, "queue-") {
				running += map[bool]int{true: 1}[s.Reason == crdv1alpha1.ReasonStarted]
				pending += map[bool]int{true: 1}[s.Reason == crdv1alpha1.ReasonPending]
			}
		}
	}
	c.send(8080, 1)
	for i := maxCaptures; i < maxCaptures+more; i++ {
		c.await(fmt.Sprintf("queue-%02d", i), crdv1alpha1.PacketCaptureStarted, crdv1alpha1.ReasonStarted)
	}
	c.send(8080, 1)
	for i := range maxCaptures + more {
		c.await(fmt.Sprintf("queue-%02d", i), crdv1alpha1.PacketCaptureComplete, crdv1alpha1.ReasonSucceed)
	}
}

// away captures at Pods that are not there: one never comes, the other one does.
func (c *captureTest) away(t *testing.T) {
	c.create("never", `{source: {pod: {namespace: shop, name: gone}}, timeout: 3, captureConfig: {firstN: {number: 1}}}`)
	s := c.await("never", crdv1alpha1.PacketCaptureStarted, crdv1alpha1.ReasonWaiting)
	if m := s.Condition(crdv1alpha1.PacketCaptureStarted).Message; !strings.Contains(m, "there is no Pod shop/gone") {
		t.Errorf("it waits for %q", m)
	}
	s = c.await("never", crdv1alpha1.PacketCaptureComplete, crdv1alpha1.ReasonFailed)
	if m := s.Condition(crdv1alpha1.PacketCaptureComplete).Message; !strings.Contains(m, "there is no Pod shop/gone") ||
		s.FilePath != "" || s.Condition(crdv1alpha1.PacketCaptureStarted).Status != metav1.ConditionFalse {
		t.Errorf("it ends with %+v", s)
	}
	c.create("elsewhere", `{source: {pod: {name: db}}, captureConfig: {firstN: {number: 1}}}`)
	c.create("wrong", `{source: {pod: {name: web}}, destination: {ip: "fd00::1"}, captureConfig: {firstN: {number: 1}}}`)
	s = c.await("wrong", crdv1alpha1.PacketCaptureComplete, crdv1alpha1.ReasonFailed)
	if m := s.Condition(crdv1alpha1.PacketCaptureComplete).Message; !strings.Contains(m, "no version of IP in common") {
		t.Errorf("it ends with %q", m)
	}
	var p crdv1alpha1.PacketCapture
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "elsewhere"}, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Status.Conditions) > 0 {
		t.Errorf("the agent writes the capture of another Node: %+v", p.Status)
	}
}

// refused creates objects that the definition refuses, and has the agent write what it may not.
func (c *captureTest) refused(t *testing.T) {
	const number = "captureConfig: {firstN: {number: 1}}"
	const web, packet = "source: {pod: {name: web}}", "packet: {transportHeader: "
	for spec, want := range map[string]string{
		number:                               "write source or destination",
		web:                                  "captureConfig",
		"source: {ip: 192.0.2.1}, " + number: "must be a Pod",
		"source: {pod: {name: web}, ip: 192.0.2.1}, " + number:                   "pod or ip",
		web + ", destination: {}, " + number:                                     "pod or ip",
		web + ", destination: {ip: 192.0.2}, " + number:                          "destination.ip",
		web + ", capturePoint: Destination, " + number:                           "capturePoint",
		web + ", timeout: 301, " + number:                                        "timeout",
		web + ", timeout: 0, " + number:                                          "timeout",
		web + ", captureConfig: {firstN: {number: 0}}":                           "number",
		web + ", direction: Up, " + number:                                       "direction",
		web + ", packet: {protocol: http}, " + number:                            "write TCP, UDP, ICMP or a number",
		web + ", packet: {protocol: 256}, " + number:                             "write TCP, UDP, ICMP or a number",
		web + ", packet: {protocol: UDP, transportHeader: {tcp: {}}}, " + number: "goes with the protocol TCP",
		web + ", " + packet + "{udp: {}, tcp: {}}}, " + number:                   "write one of tcp, udp and icmp",
		web + ", " + packet + "{udp: {dstPort: 70000}}}, " + number:              "dstPort",
		web + ", " + packet + "{icmp: {messages: [{type: ping}]}}}, " + number:   "icmp-echo",
		web + ", " + packet + "{tcp: {flags: [{value: 256}]}}}, " + number:       "flags",
		web + ", fileServer: {url: 'http://192.0.2.1'}, " + number:               "url",
	} {
		err := c.admin.Create(t.Context(), captureOfSpec(t, "bad", "{"+spec+"}"))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	text, err := os.ReadFile("../../docs/packetcapture.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := 0
	for part := range strings.SplitSeq(string(text), "```yaml\n") {
		manifest, _, _ := strings.Cut(part, "```")
		if !strings.Contains(manifest, "kind: PacketCapture") {
			continue
		}
		p := &crdv1alpha1.PacketCapture{}
		if err := yaml.UnmarshalStrict([]byte(manifest), p); err != nil {
			t.Fatal(err)
		}
		if err := c.admin.Create(t.Context(), p); err != nil {
			t.Errorf("docs/packetcapture.md: %v", err)
		}
		if err := c.admin.Delete(t.Context(), p); err != nil {
			t.Error(err)
		}
		documented++
	}
	if documented < 2 {
		t.Errorf("docs/packetcapture.md has %d manifests", documented)
	}
	good := c.create("good", "{"+web+", destination: {ip: \"fd00::1\"}, packet: {ipFamily: IPv6, protocol: ICMP, "+
		"transportHeader: {icmp: {messages: [{type: icmp-echo}, {type: 3, code: 1}]}}}, "+number+"}")
	if good.Spec.Timeout == nil || *good.Spec.Timeout != 60 || good.Spec.Source.Pod.Namespace != "default" ||
		good.Spec.Direction != crdv1alpha1.SourceToDestination {
		t.Errorf("the defaults are %+v", good.Spec)
	}
	patch := func(by client.Client, o client.Object, text string) error {
		return by.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	if err := patch(c.admin, good.DeepCopy(), `{"spec":{"timeout":30}}`); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "cannot be changed") {
		t.Errorf("a capture is changed: %v", err)
	}
	agent, err := client.New(c.as, client.Options{Scheme: c.admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"patches": patch(agent, good.DeepCopy(), `{"metadata":{"labels":{"a":"b"}}}`),
		"deletes": agent.Delete(t.Context(), good.DeepCopy()),
		"creates": agent.Create(t.Context(), captureOfSpec(t, "own", "{source: {pod: {name: web}}, "+number+"}")),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("an agent %s a capture: %v", what, err)
		}
	}
}

// size captures more than a file may have.
func (c *captureTest) size(t *testing.T) {
	c.wire.IP(t, "link set "+c.wire.Node+" mtu 65535", "link set "+c.wire.Pod+" mtu 65535")
	c.create("large", fmt.Sprintf(webTo, 80, 300, 1<<31-1))
	c.await("large", crdv1alpha1.PacketCaptureStarted, crdv1alpha1.ReasonStarted)
	frame := testFrame(t, 80, 65000)
	for range maxCaptureFile/len(frame) + 50 {
		c.wire.Send(t, c.wire.Pod, frame)
	}
	s := c.await("large", crdv1alpha1.PacketCaptureComplete, crdv1alpha1.ReasonFailed)
	_, path, _ := strings.Cut(s.FilePath, ":")
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxCaptureFile+1024 || info.Size() < maxCaptureFile-2*int64(len(frame)) {
		t.Errorf("the file is %+v, %v", info, err)
	}
	if n := c.packets(s, "agent-1"); n != int(s.NumberCaptured) || info.Mode().Perm() != 0o600 {
		t.Errorf("%d packets, status %+v, mode %v", n, s, info.Mode())
	}
	if m := s.Condition(crdv1alpha1.PacketCaptureComplete).Message; !strings.Contains(m, "32 MiB") {
		t.Errorf("it ends with %q", m)
	}
}

// live streams packets to readers.
func (c *captureTest) live(t *testing.T) {
	server := httptest.NewServer(debugAPI{c.agent}.handler())
	defer server.Close()
	open := func(ctx context.Context, handlerAt, spec string) *http.Response {
		t.Helper()
		text, err := yaml.YAMLToJSON([]byte(spec))
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, handlerAt+api.PathLiveCapture+"?spec="+
			url.QueryEscape(string(text)), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	// A number of packets ends the stream.
	answer := open(t.Context(), server.URL, "{source: {pod: {name: web}}, direction: Both, "+
		"captureConfig: {firstN: {number: 3}}}")
	c.send(80, 5)
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if n := countPackets(t, text); n != 3 || answer.StatusCode != http.StatusOK {
		t.Errorf("%d packets, %s", n, answer.Status)
	}
	// Readers beyond the limit are refused until one leaves.
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	const all = "{source: {pod: {name: web}}}"
	for range maxLiveCaptures {
		if answer := open(ctx, server.URL, all); answer.StatusCode != http.StatusOK {
			t.Fatalf("a reader gets %s", answer.Status)
		}
	}
	refused := func(spec, want string) {
		t.Helper()
		answer := open(t.Context(), server.URL, spec)
		text, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode == http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s %s, want %q", spec, answer.Status, text, want)
		}
	}
	refused(all, "runs 4 live captures")
	leave()
	for until := time.Now().Add(30 * time.Second); len(c.agent.api.captures.live) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d live captures have no reader", len(c.agent.api.captures.live))
		}
	}
	refused("{source: {pod: {name: gone}}}", "there is no Pod default/gone")
	refused("{source: {pod: {name: db}}}", "Pod default/db is on Node node-2")
	refused("{source: {ip: 192.0.2.1}}", "no Pod at whose interface")
	refused("{source: {pod: {name: web}}, destination: {ip: x}}", "is no address")
	refused("{source: {pod: {name: web}}, packet: {protocol: http}}", "spec.packet.protocol")
	refused("[]", "read spec")
	relayed := httptest.NewServer(reading(debugAPI{c.agent}.handler(), true))
	defer relayed.Close()
	answer = open(t.Context(), relayed.URL, all)
	if answer.Body.Close(); answer.StatusCode == http.StatusOK {
		t.Error("the relay reads packets")
	}
}

// restart ends the agent during a capture. The next agent captures again, keeps the files of complete captures, and
// removes the others.
func (c *captureTest) restart(t *testing.T) {
	c.create("done", fmt.Sprintf(webTo, 80, 60, 1))
	c.await("done", crdv1alpha1.PacketCaptureStarted, crdv1alpha1.ReasonStarted)
	c.send(80, 1)
	c.await("done", crdv1alpha1.PacketCaptureComplete, crdv1alpha1.ReasonSucceed)
	c.create("again", fmt.Sprintf(webTo, 81, 60, 2))
	c.await("again", crdv1alpha1.PacketCaptureStarted, crdv1alpha1.ReasonStarted)
	c.send(81, 1)
	c.stop()
	stray := filepath.Join(c.dirs[1], "captures", "node-1", "00000000-0000-0000-0000-000000000000.pcapng")
	if err := os.WriteFile(stray, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(stray), "*"))
	if err != nil {
		t.Fatal(err)
	}
	c.start("agent-2")
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if s := c.state("done"); strings.HasPrefix(s.FilePath, "agent-2:") {
			break
		} else if time.Now().After(until) {
			t.Fatalf("the new agent keeps the path %q", s.FilePath)
		}
	}
	if n := c.packets(c.state("done"), "agent-2"); n != 1 {
		t.Errorf("the file of a complete capture has %d packets", n)
	}
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if s := c.state("again"); strings.HasPrefix(s.FilePath, "agent-2:") {
			break
		} else if time.Now().After(until) {
			t.Fatalf("the capture does not begin again: %+v", s)
		}
	}
	c.send(81, 2)
	s := c.await("again", crdv1alpha1.PacketCaptureComplete, crdv1alpha1.ReasonSucceed)
	if n := c.packets(s, "agent-2"); n != 2 {
		t.Errorf("after the restart %d packets", n)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(stray), "*"))
	if err != nil || len(left) != len(files)-1 || slices.Contains(left, stray) {
		t.Errorf("the files were %v, and are %v, %v", files, left, err)
	}
	// A Node that was restarted has lost its files.
	_, path, _ := strings.Cut(c.state("done").FilePath, ":")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	c.agent.api.captures.changed()
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if s := c.state("done"); s.FilePath == "" && strings.Contains(
			s.Condition(crdv1alpha1.PacketCaptureComplete).Message, "the file is lost") {
			break
		} else if time.Now().After(until) {
			t.Fatalf("a lost file: %+v", s)
		}
	}
}

func (c *captureTest) state(name string) crdv1alpha1.PacketCaptureStatus {
	c.t.Helper()
	var p crdv1alpha1.PacketCapture
	if err := c.admin.Get(c.t.Context(), client.ObjectKey{Name: name}, &p); err != nil {
		c.t.Fatal(err)
	}
	return p.Status
}
