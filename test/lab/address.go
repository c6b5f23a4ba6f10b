package lab

import (
	"fmt"
	"net/netip"
)

// plan is the lab's address plan. All networks except mgmt are behind the lab's own router, so two labs may use the
// same ones. mgmt is reachable from the host, so it depends on the lab's index.
type plan struct{ index int }

// The host outside: it knows the way back to Nodes, not to Pods.
const (
	outsideAddress  = "203.0.113.10"
	outsideRouter   = "203.0.113.1"
	outsideAddress6 = "fd00:203:0:113::10"
	outsideRouter6  = "fd00:203:0:113::1"
)

func (p plan) all() netip.Prefix { return prefix("172.30.%d.0/20", 16*p.index) }

func (p plan) mgmt(cluster int) netip.Prefix   { return prefix("172.30.%d.0/24", 16*p.index+cluster) }
func (p plan) etcdNet() netip.Prefix           { return prefix("172.30.%d.0/24", 16*p.index+14) }
func (p plan) hostNet() netip.Prefix           { return prefix("172.30.%d.0/30", 16*p.index+15) }
func (plan) services(cluster int) netip.Prefix { return prefix("10.%d.0.0/16", 96+cluster) }
func (plan) pods(cluster int) netip.Prefix     { return prefix("10.%d.0.0/16", 10+cluster) }
func (p plan) etcd() netip.Addr                { return host(p.etcdNet(), 10) }

// These are numbers of hosts in their subnets. Node n (from 1) has firstMgmt+n on eth0 and firstTransport+n on eth1.
// Addresses of load balancers follow on eth1.
const (
	routerHost        = 1
	controlPlaneHost  = 10
	firstMgmt         = 20
	firstTransport    = 100
	firstLoadBalancer = firstTransport + maxNodes + 1
	lastLoadBalancer  = firstLoadBalancer + 50
)

// transport and transport6 are a cluster's subnets of eth1 with a number, from 0.
func (plan) transport(cluster, subnet int) netip.Prefix {
	return prefix("192.168.%d.0/24", transportNumber(cluster, subnet))
}

func (plan) transport6(cluster, subnet int) netip.Prefix {
	return prefix("fd00:192:168:%d::/64", transportNumber(cluster, subnet))
}

func transportNumber(cluster, subnet int) int { return 77 + 100*subnet + cluster }

// IPv6 prefixes have the same digits as the IPv4 ones. The machine has no IPv6 route to mgmt, so they do not depend on
// the index.
func (plan) all6() netip.Prefix                 { return prefix("fd00:172:30::/48") }
func (plan) mgmt6(cluster int) netip.Prefix     { return prefix("fd00:172:30:%d::/64", cluster) }
func (plan) services6(cluster int) netip.Prefix { return prefix("fd00:10:%d::/112", 96+cluster) }
func (plan) pods6(cluster int) netip.Prefix     { return prefix("fd00:10:%d::/48", 10+cluster) }

func prefix(format string, args ...any) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf(format, args...))
}

// host returns address number n of a subnet of at least 256 addresses.
func host(p netip.Prefix, n int) netip.Addr {
	a := p.Addr().AsSlice()
	a[len(a)-1] += byte(n)
	addr, _ := netip.AddrFromSlice(a)
	return addr
}

// on returns an address with its subnet's length.
func on(a netip.Addr, p netip.Prefix) netip.Prefix { return netip.PrefixFrom(a, p.Bits()) }
