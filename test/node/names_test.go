package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// namesPolicy lets clients ask DNS, and connect to what it answers for names that end with .example.com.
const namesPolicy = `{"apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
	"metadata": {"name": "names"}, "spec": {"tier": "application", "priority": 5,
	"appliedTo": [{"podSelector": {"matchLabels": {"app": "names-client"}}}], "egress": [
		{"action": "Allow", "name": "dns", "ports": [{"protocol": "UDP", "port": 53}]},
		{"action": "Allow", "name": "names", "to": [{"fqdn": "*.Example.com"}],
			"ports": [{"protocol": "TCP", "port": 8080}], "enableLogging": true, "logLabel": "to-names"},
		{"action": "Reject", "name": "refused", "ports": [{"protocol": "TCP", "port": 9}], "enableLogging": true},
		{"action": "Drop", "name": "rest", "enableLogging": true, "logLabel": "rest"}]}}`

const (
	namesServers = 200           // one for each name
	namesRange   = "198.18.0.%d" // addresses of them, which the host has
)

// testNames has a Pod look names up and connect at once, each time to an address that was not known before, and again
// after a restart of the agent; and reads the log that its rules write.
func testNames(t *testing.T, c *cluster) {
	host, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= namesServers+1; i++ {
		address, err := netlink.ParseAddr(fmt.Sprintf(namesRange, i) + "/32")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(host, address); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.AddrDel(host, address) })
	}
	servers, err := net.Listen("tcp4", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	go func() {
		for {
			c, err := servers.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for kind, object := range map[string]string{
		"tiers": `{"apiVersion": "crd.antrea.io/v1beta1", "kind": "Tier", "metadata": {"name": "application"},
			"spec": {"priority": 250}}`,
		"clusternetworkpolicies": namesPolicy,
	} {
		path := "/apis/crd.antrea.io/v1beta1/" + kind
		created := c.client.Discovery().RESTClient().Post().AbsPath(path).Body([]byte(object)).Do(t.Context())
		if err := created.Error(); err != nil {
			t.Fatal(err)
		}
		name := map[string]string{"tiers": "application", "clusternetworkpolicies": "names"}[kind]
		t.Cleanup(func() {
			_ = c.client.Discovery().RESTClient().Delete().AbsPath(path, name).Do(context.Background()).Error()
		})
	}
	r := newRig(t, c).withOVS()
	for _, name := range []string{"names-client", "names-dns"} {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Labels: map[string]string{"app": name}}}
		o.Spec.NodeName, o.Spec.Containers = nodeName, []corev1.Container{{Name: "c", Image: "none"}}
		o, err := c.client.CoreV1().Pods("default").Create(t.Context(), o, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.uids.Store(name, o.UID)
		t.Cleanup(func() {
			_ = c.client.CoreV1().Pods("default").Delete(context.Background(), name,
				metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		})
	}
	r.ready()
	dns, asker := r.add("names-dns"), r.add("names-client")
	serveNames(t, dns)
	r.eventually("the rules are in force", func() error {
		if flows := r.flows(); strings.Count(flows, "tp_src=53") < 2 {
			return errors.New("no flow takes answers")
		}
		return nil
	})
	connect := func(i int) error {
		conn, err := asker.dial("tcp4", fmt.Sprintf(namesRange+":8080", i))
		if err == nil {
			conn.Close()
		}
		return err
	}
	// While the server is not the cluster's DNS its answers pass, and nothing is learned from them.
	if err := lookup(asker, dns, "n201.example.com."); err != nil {
		t.Error(err)
	}
	if connect(namesServers+1) == nil {
		t.Error("an address is reached that a server has answered which is no resolver")
	}
	r.eventually("the status names the server", func() error {
		s, err := r.status()
		if err == nil && !slices.ContainsFunc(s.Problems, func(p api.Problem) bool {
			return p.Reason == "UnknownResolver" && strings.Contains(p.Message, dns.ip)
		}) {
			err = fmt.Errorf("problems are %v", s.Problems)
		}
		return err
	})
	makeClusterDNS(t, c, dns.ip)
	r.eventually("answers of the cluster's DNS are taken", func() error {
		if !strings.Contains(r.flows(), "nw_src="+dns.ip+",tp_src=53") {
			return errors.New("no flow takes them")
		}
		return nil
	})
	// The connection above was denied, and the switch has cached that decision for more addresses than that one. After a
	// change of flows the switch takes some milliseconds to check what it has cached (docs/policy-names.md).
	r.ovs.Appctl("revalidator/purge")
	slowest, late := time.Duration(0), 0
	for i := 1; i <= namesServers; i++ {
		began := time.Now()
		if err := lookup(asker, dns, fmt.Sprintf("n%d.example.com.", i)); err != nil {
			t.Fatalf("name %d: %v", i, err)
		}
		slowest = max(slowest, time.Since(began))
		began = time.Now()
		if err := connect(i); err != nil {
			t.Fatalf("name %d: the first connection after its answer: %v", i, err)
		}
		if took := time.Since(began); took > 900*time.Millisecond { // a SYN is repeated after a second
			t.Logf("name %d: the first connection after its answer took %s", i, took)
			late++
		}
	}
	// A machine that stands still for a moment delays one or two of them.
	if late > 2 {
		t.Errorf("%d of %d first connections after an answer were late", late, namesServers)
	}
	t.Logf("%d names, the slowest answer took %s", namesServers, slowest)
	if err := lookup(asker, dns, "n201.other.org."); err != nil {
		t.Error(err)
	}
	if connect(namesServers+1) == nil {
		t.Error("an address of a name that no rule has is reached")
	}
	if conn, err := asker.dial("tcp4", fmt.Sprintf(namesRange+":9", 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection that is rejected: %v, %v", conn, err)
	}
	r.stop()
	r.start()
	for i := 1; i <= namesServers; i += 20 { // while it starts, too
		if err := connect(i); err != nil {
			t.Errorf("name %d, after a restart: %v", i, err)
		}
	}
	r.eventually("the agent is ready again", func() error {
		s, err := r.status()
		if err == nil && !s.Ready {
			err = errors.New("not ready")
		}
		return err
	})
	if err := connect(7); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	own := regexp.QuoteMeta(asker.ip)
	for _, line := range []string{
		`AntreaPolicyEgressRule AntreaClusterNetworkPolicy:names names Egress Allow \d+ default/names-client ` + own +
			` \d+ 198.18.0.200 8080 TCP 60 to-names`,
		`AntreaPolicyEgressRule AntreaClusterNetworkPolicy:names refused Egress Reject \d+ default/names-client ` + own +
			` \d+ 198.18.0.1 9 TCP 60 <nil>`,
		`AntreaPolicyEgressRule AntreaClusterNetworkPolicy:names rest Egress Drop \d+ default/names-client ` + own +
			` \d+ 198.18.0.201 8080 TCP 60 rest`,
	} {
		text, err := os.ReadFile(filepath.Join(r.dir, "log", "networkpolicy", "np.log"))
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} ` + line).Match(text) {
			t.Errorf("the log has no line %s:\n%s", line, text[max(0, len(text)-2000):])
		}
	}
}

// makeClusterDNS makes a Service of the name that the cluster's DNS has, with one endpoint.
func makeClusterDNS(t *testing.T, c *cluster, endpoint string) {
	t.Helper()
	objects := c.objects(t)
	name := metav1.ObjectMeta{
		Namespace: metav1.NamespaceSystem, Name: "kube-dns",
		Labels: map[string]string{discoveryv1.LabelServiceName: "kube-dns"},
	}
	for _, o := range []client.Object{
		&corev1.Service{
			ObjectMeta: name,
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}},
		},
		&discoveryv1.EndpointSlice{
			ObjectMeta: name, AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{endpoint}}},
		},
	} {
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = objects.Delete(context.Background(), o) })
	}
}

// serveNames answers n7.anything with the seventh address.
func serveNames(t *testing.T, p *pod) {
	t.Helper()
	var c net.PacketConn
	if err := p.within(func() (err error) { c, err = net.ListenPacket("udp4", ":53"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for buf := make([]byte, 1500); ; {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			var i byte
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			if _, err := fmt.Sscanf(m.Questions[0].Name.String(), "n%d.", &i); err != nil {
				continue
			}
			m.Response = true
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 300},
				Body:   &dnsmessage.AResource{A: [4]byte{198, 18, 0, i}},
			}}
			if out, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(out, from)
			}
		}
	}()
}

// lookup asks a server for a name, once.
func lookup(from, server *pod, name string) error {
	c, err := from.dial("udp4", server.ip+":53")
	if err != nil {
		return err
	}
	defer c.Close()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA,
			Class: dnsmessage.ClassINET}}}
	out, err := m.Pack()
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(out); err != nil {
		return err
	}
	n, err := c.Read(make([]byte, 1500))
	if err == nil && n <= len(out) {
		err = errors.New("the answer has no address")
	}
	return err
}
