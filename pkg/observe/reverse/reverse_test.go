package reverse

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// start runs a relay's side that takes the token "good", and returns how to dial it, and the connections that it takes.
func start(t *testing.T) (dial func() net.Conn, taken <-chan *Conn) {
	t.Helper()
	conns := make(chan *Conn, 8)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			http.Error(w, "the token is not good", http.StatusUnauthorized)
			return
		}
		c, err := Accept(w, r)
		if err != nil {
			return
		}
		conns <- c
	}))
	server.StartTLS()
	t.Cleanup(server.Close)
	return func() net.Conn {
		c, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true,
			NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}, conns
}

func ask(ctx context.Context, c *Conn, path string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://node"+path, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := c.RoundTrip(q)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// TestServe has a Node serve on a connection that it has dialled. Questions are answered at the same time. The end of
// one side ends the other.
func TestServe(t *testing.T) {
	dial, taken := start(t)
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "slow")
	})
	mux.HandleFunc("GET /fast", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fast") })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served, opened := make(chan error, 1), make(chan struct{})
	go func() { served <- Serve(ctx, dial(), "node", "good", mux, func() { close(opened) }) }()
	c := <-taken
	<-opened
	slow := make(chan string, 1)
	go func() {
		text, err := ask(t.Context(), c, "/slow")
		slow <- text + errorText(err)
	}()
	for range 100 {
		if text, err := ask(t.Context(), c, "/fast"); text != "fast" || err != nil {
			t.Fatalf("the Node answers %q, %v", text, err)
		}
	}
	if have := c.Available() + c.InFlight(); have != streams {
		t.Errorf("the Node takes %d questions at a time, want %d", have, streams)
	}
	close(release)
	if text := <-slow; text != "slow" {
		t.Errorf("the slow answer is %q", text)
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("the Node's side ends with %v", err)
	}
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Error("the relay's side does not see the end")
	}
}

// TestManyAtOnce asks more than a Node answers at a time, before the Node's limit is known. All are answered.
func TestManyAtOnce(t *testing.T) {
	dial, taken := start(t)
	ctx, stop := context.WithCancel(t.Context())
	served, begin := make(chan error, 1), make(chan struct{})
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Millisecond)
		_, _ = io.WriteString(w, "yes")
	})
	const atOnce, questions = 4, 90
	go func() { served <- serve(ctx, dial(), "node", "good", answer, func() { <-begin }, atOnce) }()
	c := <-taken
	answers := make(chan string, questions)
	for range questions {
		go func() {
			text, err := ask(t.Context(), c, "/")
			answers <- text + errorText(err)
		}()
	}
	for c.InFlight() < questions && c.Available() > 0 { // they are asked, and the Node has not begun to read
		time.Sleep(time.Millisecond)
	}
	close(begin)
	for range questions {
		if text := <-answers; text != "yes" {
			t.Errorf("the Node answers %q", text)
		}
	}
	if have := c.Available() + c.InFlight(); have != atOnce {
		t.Errorf("the Node takes %d questions at a time, want %d", have, atOnce)
	}
	stop()
	<-served
}

func errorText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestRelayEnds has the relay close a connection. The Node's side returns.
func TestRelayEnds(t *testing.T) {
	dial, taken := start(t)
	served := make(chan error, 1)
	go func() { served <- Serve(t.Context(), dial(), "node", "good", http.NotFoundHandler(), func() {}) }()
	if err := (<-taken).Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the Node's side does not see the end")
	}
}

// TestSilentRelay has a relay take a connection and send nothing. The Node ends the connection after the limit.
func TestSilentRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay, node := net.Pipe()
		defer relay.Close()
		go func() {
			if _, err := http.ReadRequest(bufio.NewReader(relay)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(relay, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n")
		}()
		began := time.Now()
		err := Serve(t.Context(), node, "node", "good", http.NotFoundHandler(), func() {})
		if took := time.Since(began); err != nil || took != upgradeLimit {
			t.Errorf("the Node's side ends after %s with %v, want the end after %s", took, err, upgradeLimit)
		}
	})
}

// TestRefused shows a wrong token, and asks for no upgrade.
func TestRefused(t *testing.T) {
	dial, _ := start(t)
	err := Serve(t.Context(), dial(), "node", "bad", http.NotFoundHandler(), func() { t.Error("opened") })
	var refused *Refused
	if !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized ||
		!strings.Contains(err.Error(), "not good") {
		t.Errorf("a wrong token: %v", err)
	}
	conn := dial()
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET "+Path+
		" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nConnection: close\r\n\r\n")
	text, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(text), "426 Upgrade Required") {
		t.Errorf("no upgrade asked for: %v\n%s", err, text)
	}
}

// TestSlowReader reads nothing of a large answer. The Node's handler is held up, and others are answered.
func TestSlowReader(t *testing.T) {
	dial, taken := start(t)
	written := make(chan int, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, r *http.Request) {
		n, chunk := 0, make([]byte, 16<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				break
			}
			n += len(chunk)
		}
		written <- n
	})
	mux.HandleFunc("GET /small", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "small") })
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = Serve(ctx, dial(), "node", "good", mux, func() {})
	}()
	c := <-taken
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://node/large", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if text, err := ask(t.Context(), c, "/small"); text != "small" || err != nil {
			t.Fatalf("beside a slow reader: %q, %v", text, err)
		}
	}
	_ = answer.Body.Close()
	if n := <-written; n > 4*receiveStream {
		t.Errorf("the Node could write %d bytes that nobody reads, want at most about %d", n, receiveStream)
	}
	stop()
	<-served
}
