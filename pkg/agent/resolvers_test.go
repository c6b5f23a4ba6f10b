package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestResolvers determines the servers whose answers are learned while Services, endpoints, the Node's files and the
// configuration change.
func TestResolvers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	const text = "# nameserver 192.0.2.9\nsearch example.com\nnameserver 192.0.2.53\nnameserver 127.0.0.53\n" +
		"nameserver\nnameserver fe80::1%eth0\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	node := readResolvers([]string{file, file + ".missing"})
	named := func(namespace, name, vip string, labels map[string]string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
			Spec: corev1.ServiceSpec{
				ClusterIP: vip, ClusterIPs: []string{vip}, Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}},
			},
		}
	}
	port, udp := int32(53), corev1.ProtocolUDP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "kube-dns-1", Labels: map[string]string{discoveryv1.LabelServiceName: "kube-dns"},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port, Protocol: &udp}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.10.0.5"}}, {Addresses: []string{"10.10.1.5"}}},
	}
	set := func(w *tables, list ...*corev1.Service) {
		v := View{Services: list, EndpointSlices: []*discoveryv1.EndpointSlice{slice}}
		w.kinds.Fill(v.objects()...)
	}
	start := func(override string) *tables {
		c := config.Default()
		c.DNSServerOverride = override
		w := newTables(c, "node-1")
		w.this.settings.Set(self, settings{Known: true})
		w.resolvers.node.Set(self, node)
		w.kinds.Loaded()
		w.loaded()
		return w
	}
	is := func(w *tables, what, want string) {
		t.Helper()
		w.engine.Pass()
		list, _ := w.resolvers.list.Get(self)
		var have []string
		for _, p := range list {
			have = append(have, strings.TrimSuffix(p.String(), "/32"))
		}
		if strings.Join(have, " ") != want {
			t.Errorf("%s: resolvers are %q, want %q", what, have, want)
		}
	}
	w := start("")
	is(w, "no Service", "192.0.2.53 fe80::1/128")
	dns := named("kube-system", "kube-dns", "10.96.0.10", nil)
	others := []*corev1.Service{
		named("default", "kube-dns", "10.96.0.66", map[string]string{"k8s-app": "kube-dns"}), // a tenant's
		named("kube-system", "metrics", "10.96.0.67", nil),
		named("kube-system", "rke2-coredns", "10.96.0.11", map[string]string{"k8s-app": "kube-dns"}),
	}
	set(w, append(others, dns)...)
	is(w, "Services", "10.10.0.5 10.10.1.5 10.96.0.10 10.96.0.11 192.0.2.53 fe80::1/128")
	slice.Endpoints = slice.Endpoints[:1]
	set(w, dns)
	is(w, "an endpoint and a Service have gone", "10.10.0.5 10.96.0.10 192.0.2.53 fe80::1/128")
	w = start("10.96.0.10:53, 169.254.20.0/24")
	set(w, dns)
	is(w, "the configuration says it", "10.96.0.10 169.254.20.0/24")
}

// TestOtherServers lists servers whose answers are not learned in `tombolo get status`, for a while and not too many.
func TestOtherServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOtherServers(slog.New(slog.DiscardHandler))
		answer := func(i byte) error {
			frame := make([]byte, 42) // Ethernet, IPv4, UDP
			frame[12], frame[13], frame[14], frame[14+3], frame[14+9] = 8, 0, 0x45, 28, 17
			copy(frame[14+12:], []byte{192, 0, 2, i})
			copy(frame[14+16:], []byte{10, 10, 0, 3})
			return o.take(ofp.PacketIn2{Data: frame, Userdata: []byte(datapath.DNSOther)})
		}
		if list := o.problems("node-1"); len(list) != 0 {
			t.Errorf("at first: %v", list)
		}
		var refused int
		for i := range byte(mostOtherServers + 1) {
			if answer(i) != nil {
				refused++
			}
		}
		if refused != 1 || len(o.seen) != mostOtherServers {
			t.Errorf("%d servers are known, %d refused", len(o.seen), refused)
		}
		time.Sleep(otherServersFor)
		if err := answer(3); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		list := o.problems("node-1")
		if len(list) != 1 || !strings.Contains(list[0].Message, " ask 192.0.2.3, ") || list[0].Field != "dnsServerOverride" {
			t.Errorf("after a while: %v", list)
		}
	})
}
