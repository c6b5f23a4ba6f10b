// Package kubeclient has how Tombolo's programs reach Kubernetes API servers.
package kubeclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

const (
	dialTimeout = 10 * time.Second
	redialAfter = time.Second // plus as much again at random, so that a returning server is not stormed
	redialUntil = 5 * time.Minute
)

// ForWatches returns an HTTP client for a cache that watches the API server of a
// configuration. While the server is away its connections are dialled again every second or
// two, up to five minutes, before a request fails.
//
// A cache retries a failed watch with a delay that grows to a minute (client-go's reflector).
// The dialer retries until the server is back, so callers resume at once: an outage of
// a minute costs a minute, not two. Requests that write must not use this client: they should
// fail at once, so that their failure can be reported.
//
// A dial continues after the end of the request that started it (net/http.Transport). stop ends such dials, and refuses
// later ones.
func ForWatches(config *rest.Config) (_ *http.Client, stop func(), _ error) {
	config = rest.CopyConfig(config)
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	life, stop := context.WithCancel(context.Background())
	config.Dial = redial(life, dial)
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("prepare the connection to %s: %w", config.Host, err)
	}
	return c, stop, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// redial dials until it succeeds, its context or life ends, or redialUntil is over.
func redial(life context.Context, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		end := time.Now().Add(redialUntil)
		for {
			conn, err := dial(ctx, network, address)
			if err == nil {
				return conn, nil
			}
			wait := redialAfter + rand.N(redialAfter)
			if time.Until(end) < wait {
				return nil, err
			}
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil, err
			case <-timer.C:
			}
		}
	}
}
