package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/family"
)

// familyNames are the families as users write them.
var familyNames = map[string]family.Families{"4": family.IPv4, "46": family.Dual, "6": family.IPv6}

// ParseFamilies reads 4, 46 or 6 for all clusters, or one of these for each cluster, separated by commas.
func ParseFamilies(text string) ([]family.Families, error) {
	var list []family.Families
	for name := range strings.SplitSeq(text, ",") {
		f, ok := familyNames[name]
		if !ok {
			return nil, fmt.Errorf("IP families %q: want 4, 46 or 6, or one of them for each cluster with commas between", text)
		}
		list = append(list, f)
	}
	return list, nil
}

// Families returns the versions of IP that the cluster's Pods and Services have.
func (c *Cluster) Families() family.Families { return c.lab.record.families(c.index) }

func (c Config) families(cluster int) family.Families {
	switch len(c.Families) {
	case 0:
		return family.IPv4
	case 1:
		return c.Families[0]
	}
	return c.Families[cluster]
}

// has6 reports whether a cluster of the lab has IPv6.
func (l *Lab) has6() bool {
	return slices.ContainsFunc(l.clusters, func(c *Cluster) bool { return c.Families().Has6() })
}

// services are the ranges of ClusterIPs. A Service with only one ClusterIP gets it from the first range.
func (c *Cluster) services() []netip.Prefix {
	return c.served(c.lab.plan().services(c.index), c.lab.plan().services6(c.index))
}

// pods are the ranges of Pods' addresses, in the order of services.
func (c *Cluster) pods() []netip.Prefix {
	return c.served(c.lab.plan().pods(c.index), c.lab.plan().pods6(c.index))
}

func (c *Cluster) served(v4, v6 netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(c.underlay(v4, v6), func(p netip.Prefix) bool { return !c.Families().Serve(p.Addr()) })
}

// mgmt are the subnets of eth0.
func (c *Cluster) mgmt() []netip.Prefix {
	return c.underlay(c.lab.plan().mgmt(c.index), c.lab.plan().mgmt6(c.index))
}

// transport are the subnets of eth1 with a number.
func (c *Cluster) transport(subnet int) []netip.Prefix {
	return c.underlay(c.lab.plan().transport(c.index, subnet), c.lab.plan().transport6(c.index, subnet))
}

// underlay returns subnets. The first is of the family of the cluster's Services. In clusters with only IPv6, control
// planes and routers have IPv4 addresses too, since the machine itself reaches API servers by IPv4. Nodes of such
// clusters have no IPv4.
func (c *Cluster) underlay(v4, v6 netip.Prefix) []netip.Prefix {
	switch c.Families() {
	case family.IPv6:
		return []netip.Prefix{v6, v4}
	case family.Dual:
		return []netip.Prefix{v4, v6}
	}
	return []netip.Prefix{v4}
}

// nodeMgmt are the subnets of eth0 in which Nodes have addresses.
func (c *Cluster) nodeMgmt() []netip.Prefix {
	return c.served(c.lab.plan().mgmt(c.index), c.lab.plan().mgmt6(c.index))
}

// nodeTransport are the subnets of eth1 with a number in which Nodes have addresses.
func (c *Cluster) nodeTransport(subnet int) []netip.Prefix {
	return c.served(c.lab.plan().transport(c.index, subnet), c.lab.plan().transport6(c.index, subnet))
}

// LoadBalancers are the first and last addresses that Services of type LoadBalancer may have, of each version of IP.
// The host outside reaches them through Nodes of the subnet 0.
func (c *Cluster) LoadBalancers() [][2]netip.Addr {
	var ranges [][2]netip.Addr
	for _, p := range c.nodeTransport(0) {
		ranges = append(ranges, [2]netip.Addr{host(p, firstLoadBalancer), host(p, lastLoadBalancer)})
	}
	return ranges
}

// hosts returns address number n of each subnet, and hostsOn with the subnets' lengths.
func hosts(subnets []netip.Prefix, n int) []netip.Addr {
	var list []netip.Addr
	for _, p := range subnets {
		list = append(list, host(p, n))
	}
	return list
}

func hostsOn(subnets []netip.Prefix, n int) []netip.Prefix {
	var list []netip.Prefix
	for _, p := range subnets {
		list = append(list, on(host(p, n), p))
	}
	return list
}

// defaults are default routes by the router of each subnet.
func defaults(subnets []netip.Prefix) []route {
	var routes []route
	for _, p := range subnets {
		to := everywhere
		if !p.Addr().Is4() {
			to = everywhere6
		}
		routes = append(routes, route{to, host(p, routerHost)})
	}
	return routes
}

// joined writes values with commas between, as flags of Kubernetes' programs have them.
func joined[T fmt.Stringer](list []T) string {
	var texts []string
	for _, v := range list {
		texts = append(texts, v.String())
	}
	return strings.Join(texts, ",")
}

// quoted writes values as the content of a list in YAML.
func quoted[T fmt.Stringer](list []T) string {
	return `"` + strings.ReplaceAll(joined(list), ",", `", "`) + `"`
}
