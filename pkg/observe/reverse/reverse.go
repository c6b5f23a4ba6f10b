// Package reverse reverses the roles of HTTP on a connection. A Node dials a relay, shows its token in the first
// request, and then serves HTTP/2 on this connection. So the relay can send requests to Nodes that have no listening
// port.
//
// Serve is the Node's side. Accept is the relay's side. The first request asks for an upgrade (RFC 9110, 7.8), and
// HTTP/2 begins after the answer 101.
package reverse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// Path is the path of the first request.
	Path     = "/v1/node"
	protocol = "tombolo-node/1"

	// streams is the largest number of simultaneous requests on one connection to a Node: requests of all readers of a
	// replica, and others. Until the relay has received this limit, it assumes 100.
	streams = 192
	// refusals is how often a request is repeated that the Node has refused because there were too many.
	refusals = 3
	// upgradeLimit is how long the first request and its answer may take.
	upgradeLimit = 10 * time.Second
	// writeLimit is how long the other side may take no byte of what is written.
	writeLimit = 30 * time.Second
	// receiveStream and receiveConn bound the bytes that the relay holds of an answer, and of all answers of a Node. So a
	// slow reader delays its Nodes and does not fill the relay's memory.
	receiveStream, receiveConn = 64 << 10, 1 << 20
	maxHeader                  = 64 << 10
	maxRefusal                 = 4 << 10
)

// KeepAlive finds connections whose other end is gone. Between requests such connections carry no data.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// Refused is the relay's refusal of a connection.
type Refused struct {
	Status int
	Text   string
}

func (r *Refused) Error() string { return fmt.Sprintf("the relay refuses: %d: %s", r.Status, r.Text) }

// Serve sends a token on a connection and then serves a handler, until ctx ends or the connection closes. It closes the
// connection. opened is called after the relay has accepted the connection.
func Serve(ctx context.Context, conn net.Conn, host, token string, handler http.Handler, opened func()) error {
	return serve(ctx, conn, host, token, handler, opened, streams)
}

// serve is Serve with a number of questions at a time.
func serve(ctx context.Context, conn net.Conn, host, token string, handler http.Handler, opened func(),
	streams int) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	in, err := upgrade(conn, host, token)
	if err != nil {
		return err
	}
	opened()
	server := &http.Server{Handler: handler, ErrorLog: quiet(), Protocols: onlyHTTP2(),
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: upgradeLimit, // of the preface of HTTP/2
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams, WriteByteTimeout: writeLimit},
		BaseContext:       func(net.Listener) context.Context { return ctx }}
	if err := server.Serve(newOne(&buffered{conn, in})); !errors.Is(err, io.EOF) {
		return fmt.Errorf("serve HTTP/2: %w", err)
	}
	return nil
}

// onlyHTTP2 makes both sides begin with HTTP/2 at once. net/http does not see that these connections use TLS.
func onlyHTTP2() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

// one is a listener with one connection. The next Accept returns io.EOF when this connection has ended.
type one struct {
	conns chan net.Conn
	*closing
}

func newOne(conn net.Conn) *one {
	o := &one{make(chan net.Conn, 1), &closing{Conn: conn, done: make(chan struct{})}}
	o.conns <- o.closing
	return o
}

func (o *one) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.done:
		return nil, io.EOF
	}
}

func (o *one) Addr() net.Addr { return o.LocalAddr() }

// upgrade sends the first request and reads its answer.
func upgrade(conn net.Conn, host, token string) (*bufio.Reader, error) {
	if err := conn.SetDeadline(time.Now().Add(upgradeLimit)); err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, "https://"+host+Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", protocol)
	request.Header.Set("Authorization", "Bearer "+token)
	if err := request.Write(conn); err != nil {
		return nil, fmt.Errorf("send the first request: %w", err)
	}
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, request)
	if err != nil {
		return nil, fmt.Errorf("read the answer to the first request: %w", err)
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
		return nil, &Refused{answer.StatusCode, strings.TrimSpace(string(text))}
	}
	return in, conn.SetDeadline(time.Time{})
}

// buffered is a connection of which some bytes have been read already.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// Asks reports whether a request is the first of a Node.
func Asks(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Header.Get("Upgrade") == protocol
}

// Conn is the relay's side of a connection. Any number of requests use it at a time.
type Conn struct {
	*http.ClientConn
	done chan struct{}
}

// Accept takes over the connection of a Node's first request. The caller has checked the token. If Accept returns an
// error, it has closed the connection, or written the answer to w.
func Accept(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	if !Asks(r) {
		http.Error(w, "this path is for agents: they ask for an upgrade to "+protocol, http.StatusUpgradeRequired)
		return nil, errors.New("the request asks for no upgrade to " + protocol)
	}
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "the connection cannot be taken over", http.StatusInternalServerError)
		return nil, fmt.Errorf("take the connection over: %w", err)
	}
	c, err := begin(conn, both)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// begin answers the first request and begins HTTP/2.
func begin(conn net.Conn, both *bufio.ReadWriter) (*Conn, error) {
	if both.Reader.Buffered() > 0 {
		return nil, errors.New("the Node has sent more before the answer to its first request")
	}
	if err := conn.SetDeadline(time.Now().Add(upgradeLimit)); err != nil {
		return nil, err
	}
	_, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
	if err != nil {
		return nil, fmt.Errorf("answer the first request: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	transport := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: maxHeader, Protocols: onlyHTTP2(),
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: receiveStream, MaxReceiveBufferPerConnection: receiveConn,
			WriteByteTimeout: writeLimit, StrictMaxConcurrentRequests: true},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return &closing{Conn: conn, done: done}, nil }}
	client, err := transport.NewClientConn(context.Background(), "http", "node:80") // dialing returns conn
	if err != nil {
		return nil, fmt.Errorf("begin HTTP/2: %w", err)
	}
	return &Conn{client, done}, nil
}

// RoundTrip sends a request to the Node. It repeats a request that the Node has refused because there were too many at
// a time. That happens if many requests are sent before the Node's limit has arrived.
func (c *Conn) RoundTrip(q *http.Request) (*http.Response, error) {
	for again := 0; ; again++ {
		answer, err := c.ClientConn.RoundTrip(q)
		var reset http2.StreamError
		refused := errors.As(err, &reset) && reset.Code == http2.ErrCodeRefusedStream
		if !refused || again == refusals || q.Body != nil && q.Body != http.NoBody {
			return answer, err
		}
	}
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// closing is a connection with a channel that is closed at its end. HTTP/2 closes a connection that has failed.
type closing struct {
	net.Conn
	done chan struct{}
	once sync.Once
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

func quiet() *log.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) }
