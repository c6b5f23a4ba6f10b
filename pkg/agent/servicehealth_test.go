package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// freePort returns a port that no program has.
func freePort(t *testing.T) (net.Listener, uint16) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// TestServiceHealth asks as load balancers do.
func TestServiceHealth(t *testing.T) {
	var unhealthy, leaving atomic.Bool
	h := newServiceHealth(func() bool { return !unhealthy.Load() }, leaving.Load, slog.New(slog.DiscardHandler))
	h.retry = 10 * time.Millisecond
	taken, port := freePort(t) // another program has it at first
	free, nodePort := freePort(t)
	free.Close()
	h.nodePort = nodePort
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); h.run(ctx) }()
	defer func() { stop(); <-ended }()
	ask := func(port uint16, path string) (code int, header http.Header, body string, err error) {
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
		r, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
		if err != nil {
			return 0, nil, "", err
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		return r.StatusCode, r.Header, string(text), err
	}
	answers := func(what string, port uint16, path string, want int) {
		t.Helper()
		ovstest.Eventually(t, what, func() error {
			code, _, body, err := ask(port, path)
			if err == nil && code != want {
				err = fmt.Errorf("%d %s, want %d", code, body, want)
			}
			return err
		})
	}
	web := derive.Object{Namespace: "default", Name: "web"}
	set := func(key derive.Object, now service.Health) {
		h.changed([]derive.Change[derive.Object, service.Health]{{Key: key, New: now}})
	}
	set(web, service.Health{Port: port, Ready: 2})
	answers("the Node answers", nodePort, "/healthz", 200)
	node := func() (a nodeAnswer) {
		t.Helper()
		_, _, body, err := ask(nodePort, "/healthz")
		if err == nil {
			err = json.Unmarshal([]byte(body), &a)
		}
		if err != nil || strings.Contains(body, "0001-01-01") {
			t.Fatalf("answer %s: %v", body, err)
		}
		return a
	}
	last := node()
	if !last.LastUpdated.Equal(last.CurrentTime) || !last.Healthy || !*last.NodeEligible {
		t.Errorf("the Node's answer: %+v", last)
	}
	taken.Close()
	answers("the port is free now", port, "/anything", 200)
	_, header, body, err := ask(port, "/")
	var got healthAnswer
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if err != nil || header.Get("X-Load-Balancing-Endpoint-Weight") != "2" ||
		header.Get("Content-Type") != "application/json" || got.LocalEndpoints != 2 || !got.ServiceProxyHealthy ||
		got.Service.Namespace != "default" || got.Service.Name != "web" {
		t.Errorf("answer: %v %v %s", err, header, body)
	}
	set(web, service.Health{Port: port})
	answers("no endpoints", port, "/", 503)
	set(web, service.Health{Port: port, Ready: 1})
	answers("one again", port, "/", 200)
	unhealthy.Store(true)
	answers("the network is not ready", port, "/", 503)
	answers("the Node is not healthy", nodePort, "/livez", 503)
	if a := node(); !a.LastUpdated.Equal(last.LastUpdated) || !a.CurrentTime.After(last.CurrentTime) || a.Healthy {
		t.Errorf("the answer of a Node that is not healthy: %+v, after %+v", a, last)
	}
	unhealthy.Store(false)
	leaving.Store(true)
	answers("the Node leaves", nodePort, "/healthz", 503)
	answers("it still lives", nodePort, "/livez", 200)
	set(web, service.Health{})
	ovstest.Eventually(t, "the port is closed", func() error {
		if code, _, _, err := ask(port, "/"); err == nil {
			return fmt.Errorf("it answers %d", code)
		}
		return nil
	})
}

// TestServiceHealthBounds asks more often than an agent should answer.
func TestServiceHealthBounds(t *testing.T) {
	const clients = healthConnections + 20
	var now, most atomic.Int32
	arrived, release := make(chan struct{}, clients), make(chan struct{})
	h := newServiceHealth(func() bool {
		for n := now.Add(1); ; {
			if seen := most.Load(); n <= seen || most.CompareAndSwap(seen, n) {
				break
			}
		}
		arrived <- struct{}{}
		<-release
		now.Add(-1)
		return true
	}, func() bool { return false }, slog.New(slog.DiscardHandler))
	free, nodePort := freePort(t)
	free.Close()
	h.nodePort, h.limit = nodePort, ovstest.Timeout()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); h.run(ctx) }()
	defer func() { stop(); <-ended }()
	at := fmt.Sprintf("127.0.0.1:%d", nodePort)
	var open []net.Conn
	for i := range clients {
		ovstest.Eventually(t, "a connection", func() error {
			c, err := dialFrom(fmt.Sprint("127.0.1.", 1+i/healthPerClient), at)
			if err == nil {
				open = append(open, c)
				_, err = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n")
			}
			return err
		})
	}
	for range healthConnections {
		<-arrived
	}
	close(release)
	for _, c := range open {
		// The server ends the connection, so that an idle client leaves its place to others.
		if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 200") {
			t.Errorf("%v %s", err, text)
		}
		c.Close()
	}
	if n := most.Load(); n != healthConnections {
		t.Errorf("%d requests at one time, want %d", n, healthConnections)
	}
}

// dialFrom connects from an address of this machine.
func dialFrom(ip, at string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: ovstest.Timeout()}).Dial("tcp", at)
}

// TestServiceHealthOneClient has a client that keeps as many connections open as a port may have. Another one is
// answered meanwhile.
func TestServiceHealthOneClient(t *testing.T) {
	h := newServiceHealth(func() bool { return true }, func() bool { return false }, slog.New(slog.DiscardHandler))
	free, nodePort := freePort(t)
	free.Close()
	h.nodePort, h.limit = nodePort, time.Hour
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); h.run(ctx) }()
	defer func() { stop(); <-ended }()
	at := fmt.Sprintf("127.0.0.1:%d", nodePort)
	closed := make(chan error, 2*healthConnections)
	var idle []net.Conn
	for range healthConnections + 20 {
		ovstest.Eventually(t, "a connection", func() error {
			c, err := dialFrom("127.0.1.1", at)
			if err == nil {
				idle = append(idle, c)
				go func() {
					_, err := c.Read(make([]byte, 1))
					closed <- err
				}()
			}
			return err
		})
	}
	for range healthConnections + 20 - healthPerClient {
		<-closed // at once: the others stay for h.limit
	}
	c, err := dialFrom("127.0.1.2", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(ovstest.Timeout()))
	if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 200") {
		t.Errorf("another client gets %v %s", err, text)
	}
	for _, c := range idle {
		c.Close()
	}
	// The places of the closed connections are free again.
	ovstest.Eventually(t, "an answer", func() error {
		c, err := dialFrom("127.0.1.1", at)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(ovstest.Timeout()))
		if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
			return err
		}
		_, err = io.ReadAll(c)
		return err
	})
}

// TestHealthClient has the clients that connections are counted by.
func TestHealthClient(t *testing.T) {
	for at, want := range map[string]string{"192.0.2.7:9": "192.0.2.7/32", "[::ffff:192.0.2.7]:9": "192.0.2.7/32",
		"[2001:db8::7:8]:9": "2001:db8::/64", "[fe80::1%eth0]:9": "fe80::/64"} {
		if have := healthClient(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(at))); have.String() != want {
			t.Errorf("%s: %s, want %s", at, have, want)
		}
	}
}

// TestOncePer keeps an answer for a time.
func TestOncePer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, true
		ready := oncePer(time.Second, func() bool { asked++; return answer })
		for range 1000 {
			if !ready() {
				t.Fatal("another answer")
			}
		}
		answer = false
		if !ready() || asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		time.Sleep(time.Second)
		if ready() || asked != 2 {
			t.Errorf("after a second: asked %d times", asked)
		}
	})
}

// TestIsLeaving has Nodes that should get no new connections.
func TestIsLeaving(t *testing.T) {
	now := metav1.Now()
	for _, row := range []struct {
		name string
		node corev1.Node
		want bool
	}{
		{"plain", corev1.Node{}, false},
		{"deleted", corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, true},
		{"autoscaler", corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: taintLeaving}}}}, true},
		{"another taint", corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.org/x"}}}}, false},
	} {
		if have := isLeaving(&row.node); have != row.want {
			t.Errorf("%s: %v", row.name, have)
		}
	}
}
