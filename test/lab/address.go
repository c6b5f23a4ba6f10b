package lab

import (
	"fmt"
	"net/netip"
)

// plan is the lab's address plan. Everything but mgmt lies behind the lab's own router and
// may be the same in two labs; mgmt is reachable from the host and so depends on the index.
type plan struct{ index int }

// The host outside: it knows the way back to Nodes, not to Pods.
const (
	outsideAddress = "203.0.113.10"
	outsideRouter  = "203.0.113.1"
)

func (p plan) all() netip.Prefix { return prefix("172.30.%d.0/20", 16*p.index) }

func (p plan) mgmt(cluster int) netip.Prefix       { return prefix("172.30.%d.0/24", 16*p.index+cluster) }
func (p plan) etcdNet() netip.Prefix               { return prefix("172.30.%d.0/24", 16*p.index+14) }
func (p plan) hostNet() netip.Prefix               { return prefix("172.30.%d.0/30", 16*p.index+15) }
func (plan) transport(cluster int) netip.Prefix    { return prefix("192.168.%d.0/24", 77+cluster) }
func (plan) services(cluster int) netip.Prefix     { return prefix("10.%d.0.0/16", 96+cluster) }
func (plan) pods(cluster int) netip.Prefix         { return prefix("10.%d.0.0/16", 10+cluster) }
func (p plan) controlPlane(cluster int) netip.Addr { return host(p.mgmt(cluster), 10) }
func (p plan) etcd() netip.Addr                    { return host(p.etcdNet(), 10) }

// nodeMgmt and nodeTransport are the addresses of Node n (from 1) on eth0 and eth1.
func (p plan) nodeMgmt(cluster, n int) netip.Addr      { return host(p.mgmt(cluster), 20+n) }
func (p plan) nodeTransport(cluster, n int) netip.Addr { return host(p.transport(cluster), 100+n) }

func prefix(format string, args ...any) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf(format, args...))
}

// host returns address number n of an IPv4 subnet of at least /24.
func host(p netip.Prefix, n int) netip.Addr {
	a := p.Addr().As4()
	a[3] += byte(n)
	return netip.AddrFrom4(a)
}

// on returns an address with its subnet's length.
func on(a netip.Addr, p netip.Prefix) netip.Prefix { return netip.PrefixFrom(a, p.Bits()) }
