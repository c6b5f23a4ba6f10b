package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
)

// question asks for the A, the AAAA or the SRV records of a name. Nothing is appended to the name.
type question struct {
	srv, aaaa bool
	server    string // an IP address; empty: the Pod's servers
}

func (q question) resolve(ctx context.Context, name string) ([]string, error) {
	name = strings.TrimSuffix(name, ".") + "."
	resolver := net.DefaultResolver
	if q.server != "" {
		resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(q.server, "53"))
		}}
	}
	var out []string
	if q.srv {
		_, records, err := resolver.LookupSRV(ctx, "", "", name)
		for _, r := range records {
			out = append(out, fmt.Sprintf("%d %s", r.Port, r.Target))
		}
		slices.Sort(out)
		return out, err
	}
	network := "ip4"
	if q.aaaa {
		network = "ip6"
	}
	addresses, err := resolver.LookupNetIP(ctx, network, name)
	for _, a := range addresses {
		out = append(out, a.Unmap().String())
	}
	slices.Sort(out)
	return out, err
}
