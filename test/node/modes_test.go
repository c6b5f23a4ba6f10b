package node

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
)

// testModes changes the traffic mode of two Nodes, one after the other, while a connection between their Pods stays
// open. It reads from the wire how packets go.
func testModes(t *testing.T, c *cluster) {
	nodes := newSecureNodes(t, c, "modes", [2]string{"10.15.1.0/24", "10.15.2.0/24"}, agentSpec{})
	const port = 8080
	for _, n := range nodes {
		n.in(func() { // as in most distributions: packets may arrive on another link than answers leave through
			loosen := exec.Command("sh", "-ec", "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done")
			if out, err := loosen.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		})
	}
	asker, server := nodes[0].pod("mode-client"), nodes[1].pod("mode-server")
	server.serve(t, port)
	at := fmt.Sprint(server.ip, ":", port)
	var conn net.Conn
	nodes[0].eventually("Pods of two Nodes talk", func() (err error) {
		conn, err = asker.dial("tcp4", at)
		return err
	})
	defer conn.Close()
	vip := serveHost(t, c, server.ip, port)

	asked := 0
	// way returns how a request and its answer cross the wire.
	way := func() (string, error) {
		asked++
		text := fmt.Sprintf("request-%d-of-modes", asked)
		var tunnel, plain atomic.Int32
		end := nodes[0].sniff(func(frame []byte) {
			switch {
			case !bytes.Contains(frame, []byte(text)):
			case isUDP(frame, 6081):
				tunnel.Add(1)
			default:
				plain.Add(1)
			}
		})
		defer end()
		_, err := ask(conn, text, 10*time.Second)
		return fmt.Sprintf("tunnel %t, plain %t", tunnel.Load() > 0, plain.Load() > 0), err
	}
	for _, step := range []struct {
		modes [2]string
		want  string // of the frames of a request and its answer
	}{
		{[2]string{config.Encap, config.Encap}, "tunnel true, plain false"},
		{[2]string{config.Hybrid, config.Encap}, "tunnel true, plain false"}, // the other announces no network
		{[2]string{config.Hybrid, config.Hybrid}, "tunnel false, plain true"},
		{[2]string{config.NoEncap, config.Hybrid}, "tunnel true, plain true"}, // this one announces none any more
		{[2]string{config.NoEncap, config.NoEncap}, "tunnel false, plain true"},
		{[2]string{config.Encap, config.NoEncap}, "tunnel true, plain true"},
		{[2]string{config.Encap, config.Encap}, "tunnel true, plain false"},
	} {
		for i, n := range nodes {
			if cmp.Or(n.spec.Mode, config.Encap) != step.modes[i] {
				n.kill()
				n.spec.Mode = step.modes[i]
				n.start()
			}
		}
		nodes[0].eventually(fmt.Sprintf("%s: packets go as they should", step.modes), func() error {
			have, err := way()
			if err == nil && have != step.want {
				err = fmt.Errorf("the wire has %s, want %s", have, step.want)
			}
			return err
		})
		nodes[0].eventually(fmt.Sprintf("%s: the host reaches a Service whose endpoint is on the other Node", step.modes),
			func() (err error) {
				nodes[0].in(func() {
					var host net.Conn
					if host, err = net.DialTimeout("tcp4", vip, time.Second); err == nil {
						_, err = ask(host, "from the host", time.Second)
						host.Close()
					}
				})
				return err
			})
	}
}

// serveHost makes a Service with one endpoint, and returns its address and port.
func serveHost(t *testing.T, c *cluster, endpoint string, port int32) string {
	t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "modes"}}
	s.Spec.Ports = []corev1.ServicePort{{Name: "web", Port: 80, Protocol: corev1.ProtocolTCP}}
	s, err := c.client.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "modes-a",
			Labels: map[string]string{discoveryv1.LabelServiceName: "modes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("web"), Port: new(port), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{endpoint}}},
	}
	slices, services := c.client.DiscoveryV1().EndpointSlices("default"), c.client.CoreV1().Services("default")
	if _, err := slices.Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := slices.Delete(ctx, slice.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := services.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return s.Spec.ClusterIP + ":80"
}
