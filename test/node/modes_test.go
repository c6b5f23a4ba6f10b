package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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

// testModes changes the traffic mode of two Nodes, one after the other, while connections between their Pods stay open,
// of each version of IP. It reads from the wire how packets go.
func testModes(t *testing.T, c *cluster) {
	nodes := newSecureNodes(t, c, "modes",
		[2]string{"10.15.1.0/24,fd15:0:0:1::/64", "10.15.2.0/24,fd15:0:0:2::/64"}, agentSpec{})
	const port = familiesPort
	for _, n := range nodes {
		n.in(func() { // as in most distributions: packets may arrive on another link than answers leave through
			loosen := exec.Command("sh", "-ec", "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done")
			if out, err := loosen.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		})
	}
	asker, server := nodes[0].pod("mode-client"), nodes[1].pod("mode-server")
	asker.serve(t, port)
	server.serve(t, port)
	vips := []string{serveHost(t, c, server.ips[0], port),
		net.JoinHostPort(families{t, c, nodes}.service("modes-6", server.ips[1]), "80")}
	var conns []net.Conn
	for _, ip := range server.ips {
		nodes[0].eventually("Pods of two Nodes talk at "+ip, func() error {
			conn, err := asker.dial("tcp", net.JoinHostPort(ip, fmt.Sprint(port)))
			if err == nil {
				conns = append(conns, conn)
				t.Cleanup(func() { conn.Close() })
			}
			return err
		})
	}

	asked := 0
	// way returns how a request and its answer cross the wire.
	way := func(conn net.Conn) (string, error) {
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
	const tunnels, mixed, plain = "tunnel true, plain false", "tunnel true, plain true", "tunnel false, plain true"
	for _, step := range []struct {
		modes [2]string
		want  [2]string // of the frames of a request and its answer, by version of IP
	}{
		{[2]string{config.Encap, config.Encap}, [2]string{tunnels, tunnels}},
		{[2]string{config.Hybrid, config.Encap}, [2]string{tunnels, tunnels}}, // the other announces no network
		{[2]string{config.Hybrid, config.Hybrid}, [2]string{plain, plain}},
		{[2]string{config.NoEncap, config.Hybrid}, [2]string{mixed, plain}}, // this one announces IPv6 alone
		{[2]string{config.NoEncap, config.NoEncap}, [2]string{plain, plain}},
		{[2]string{config.Encap, config.NoEncap}, [2]string{mixed, mixed}},
		{[2]string{config.Encap, config.Encap}, [2]string{tunnels, tunnels}},
	} {
		for i, n := range nodes {
			if cmp.Or(n.spec.Mode, config.Encap) != step.modes[i] {
				n.kill()
				n.spec.Mode = step.modes[i]
				n.start()
			}
		}
		for i, conn := range conns {
			nodes[0].eventually(fmt.Sprintf("%s: packets to %s go as they should", step.modes, conn.RemoteAddr()), func() error {
				have, err := way(conn)
				if err == nil && have != step.want[i] {
					err = fmt.Errorf("the wire has %s, want %s", have, step.want[i])
				}
				return err
			})
			nodes[0].eventually(fmt.Sprintf("%s: new connections to %s, and back", step.modes, server.ips[i]), func() error {
				return errors.Join(asks(asker, server.ips[i], port, "there"), asks(server, asker.ips[i], port, "back"))
			})
			nodes[0].eventually(fmt.Sprintf("%s: the host reaches Service %s whose endpoint is on the other Node", step.modes,
				vips[i]), func() (err error) {
				nodes[0].in(func() {
					var host net.Conn
					if host, err = net.DialTimeout("tcp", vips[i], time.Second); err == nil {
						_, err = ask(host, "from the host", time.Second)
						host.Close()
					}
				})
				return err
			})
		}
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
