package kubeclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

var errRefused = errors.New("refused")

func TestRedial(t *testing.T) {
	for _, row := range []struct {
		name           string
		back, cancelAt time.Duration // the server is back, the context ends; zero is never
		stopAt         time.Duration // the client is stopped
		least, most    time.Duration
		ok             bool
	}{
		{name: "at once", back: 1, ok: true, most: 2 * time.Second},
		{name: "after a minute", back: time.Minute, ok: true, least: time.Minute, most: time.Minute + 2*time.Second},
		{name: "given up by the caller", back: time.Minute, cancelAt: 10 * time.Second, least: 10 * time.Second,
			most: 10 * time.Second},
		{name: "stopped", stopAt: 10 * time.Second, least: 10 * time.Second, most: 10 * time.Second},
		{name: "never", least: redialUntil - 2*redialAfter, most: redialUntil},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				life, stop := context.WithCancel(t.Context())
				defer stop()
				if row.cancelAt > 0 {
					time.AfterFunc(row.cancelAt, cancel)
				}
				if row.stopAt > 0 {
					time.AfterFunc(row.stopAt, stop)
				}
				here, there := net.Pipe()
				defer there.Close()
				conn, err := redial(life, func(context.Context, string, string) (net.Conn, error) {
					if row.back == 0 || time.Since(start) < row.back {
						return nil, errRefused
					}
					return here, nil
				})(ctx, "tcp", "192.0.2.1:6443")
				switch took := time.Since(start); {
				case row.ok && (err != nil || conn != here), !row.ok && !errors.Is(err, errRefused):
					t.Errorf("connection %v, error %v", conn, err)
				case took < row.least || took > row.most:
					t.Errorf("took %s, want %s to %s", took, row.least, row.most)
				}
			})
		})
	}
}

// TestForWatches asks a server that is not there yet.
func TestForWatches(t *testing.T) {
	t.Parallel()
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := reserved.Addr().String()
	if err := reserved.Close(); err != nil {
		t.Fatal(err)
	}
	c, stop, err := ForWatches(&rest.Config{Host: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	first := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		close(first)
		r, err := c.Get("http://" + address)
		if err == nil {
			err = r.Body.Close()
		}
		result <- err
	}()
	<-first
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	if s.Listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.Close()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
