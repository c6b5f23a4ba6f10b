package main

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tombolo-net/tombolo/pkg/reviews"
)

// reviewsPerSecond bounds the questions to the API server about tokens of metrics' readers. Each program that reaches
// the port can cause them.
const reviewsPerSecond = 20

// metricsAt returns the server of /metrics at an address; "0" and an empty address are for no server. Beyond the
// machine it serves TLS with a certificate of its own. Readers then need a token of the API server, and the right to
// get the path /metrics.
func metricsAt(address string) metricsserver.Options {
	o := metricsserver.Options{BindAddress: cmp.Or(address, "0")} // the library has a port of its own for ""
	if o.BindAddress != "0" && !loopback(address) {
		o.SecureServing, o.FilterProvider = true, reviewed
	}
	return o
}

// loopback reports whether only this machine reaches a listener at an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// reviewed returns a filter that lets the API server decide who may read.
func reviewed(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = reviewsPerSecond, 2*reviewsPerSecond
	tokens, access, err := reviews.Clients(config, client)
	if err != nil {
		return nil, err
	}
	reviewer := reviews.New(tokens, access, func(string, string) {})
	return func(_ logr.Logger, next http.Handler) (http.Handler, error) { return reviewer.Guard(next), nil }, nil
}
