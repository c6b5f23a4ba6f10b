package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Dial returns a connection to a port of a Pod, through the API server. Close it when ctx ends.
func (c *Cluster) Dial(ctx context.Context, namespace, pod string, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return c.forward(ctx, namespace, pod, port)
}

// forward returns a connection to a port of a Pod, through the API server. No local port is opened.
func (c *Cluster) forward(ctx context.Context, namespace, pod string, port int) (net.Conn, error) {
	core, err := c.core()
	if err != nil {
		return nil, err
	}
	at := core.RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	// API servers support WebSockets since Kubernetes 1.31. SPDY is for older ones, and for proxies that do not pass
	// WebSockets.
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, c.Config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return nil, err
	}
	older := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	dialer := portforward.NewFallbackDialerForStreaming(socket, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	type dialled struct {
		conn httpstream.Connection
		err  error
	}
	done := make(chan dialled, 1)
	go func() { // it takes no context
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		done <- dialled{conn, err}
	}()
	select {
	case d := <-done:
		if d.err != nil {
			return nil, d.err
		}
		return forwarded(d.conn, port)
	case <-ctx.Done():
		go func() {
			if d := <-done; d.err == nil {
				_ = d.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// forwarded begins a stream to a port.
func forwarded(conn httpstream.Connection, port int) (_ net.Conn, err error) {
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(port))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	errs, err := conn.CreateStream(header)
	if err != nil {
		return nil, fmt.Errorf("begin the stream of errors: %w", err)
	}
	_ = errs.Close() // nothing is written to it
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(header)
	if err != nil {
		return nil, fmt.Errorf("begin the stream of data: %w", err)
	}
	p := &podConn{Stream: data, conn: conn, reported: make(chan struct{})}
	go func() {
		defer close(p.reported)
		text, _ := io.ReadAll(io.LimitReader(errs, maxError))
		p.text = string(text)
	}()
	return p, nil
}

// podConn is a connection to a port of a Pod. It has no deadlines: who waits closes it.
type podConn struct {
	httpstream.Stream
	conn     httpstream.Connection
	once     sync.Once
	reported chan struct{} // closed when text is known
	text     string        // of the error that the Node reports
}

func (p *podConn) Read(b []byte) (int, error) {
	n, err := p.Stream.Read(b)
	if n == 0 && errors.Is(err, io.EOF) { // the Node reports why before the end
		select {
		case <-p.reported:
			if p.text != "" {
				return 0, errors.New(p.text)
			}
		case <-time.After(time.Second):
		}
	}
	return n, err
}

func (p *podConn) Close() (err error) {
	p.once.Do(func() {
		_ = p.Reset()
		err = p.conn.Close()
	})
	return err
}

// LocalAddr implements net.Conn.
func (p *podConn) LocalAddr() net.Addr { return podAddr{} }

// RemoteAddr implements net.Conn.
func (p *podConn) RemoteAddr() net.Addr { return podAddr{} }

// SetDeadline implements net.Conn.
func (p *podConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (p *podConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (p *podConn) SetWriteDeadline(time.Time) error { return nil }

// podAddr is the address of a podConn.
type podAddr struct{}

func (podAddr) Network() string { return "portforward" }
func (podAddr) String() string  { return "a Pod" }
