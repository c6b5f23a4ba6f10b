package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// outsideTables hold the facts by which clients outside of the Pods' network reach Services, with antreaProxy.proxyAll.
type outsideTables struct {
	config   config.Config
	this     *ownNode
	services *service.Tables
	flows    *datapath.Tables
	rules    *derive.Table[derive.Object, []policy.ServiceRule] // of policies, by Service

	// open is set while connections exist that an earlier agent with antreaProxy.proxyAll has accepted.
	open *derive.Source[derive.Name, bool]
	// balancers finds the Services that have an address as a load balancer's.
	balancers *derive.Index[policy.Addr, derive.Object, []service.Frontend]
	// holders finds the attachments that have an address.
	holders *derive.Index[policy.Addr, derive.Name, cni.Attachment]
	// translations are what the host translates, by Service.
	translations *derive.Table[derive.Object, []hostnet.Translation]
}

// newOutsideTables adds the indexes that this Node's row reads.
func newOutsideTables(e *derive.Engine, c config.Config, this *ownNode, services *service.Tables,
	pods *podTables) *outsideTables {
	t := &outsideTables{config: c, this: this, services: services}
	t.open = derive.NewSource[derive.Name, bool](e, "open-outside")
	t.balancers = derive.NewIndex(services.Frontends, "balancer",
		func(_ derive.Object, list []service.Frontend) (out []policy.Addr) {
			for _, f := range list {
				if a := (policy.Addr{Addr: f.VIP.Addr()}); f.Kind == service.LoadBalancer && !slices.Contains(out, a) {
					out = append(out, a)
				}
			}
			return out
		})
	t.holders = derive.NewIndex(pods.attachments, "address", func(_ derive.Name, a cni.Attachment) (out []policy.Addr) {
		for _, ip := range a.IPs {
			out = append(out, policy.Addr{Addr: ip.Addr()})
		}
		return out
	})
	return t
}

// add adds the translations, which read numbers of the flows' tables, and policies.
func (t *outsideTables) add(e *derive.Engine, flows *datapath.Tables, policies *policy.Tables) {
	t.flows, t.rules = flows, policies.ServiceRules
	t.translations = derive.NewTable(e, "translations", t.translationsOf, derive.KeysOf(t.services.Frontends)).
		EqualBy(slices.Equal[[]hostnet.Translation])
}

// node completes this Node's row.
func (t *outsideTables) node(n *datapath.Node, r *derive.Reader, ps *problems) {
	if open, _ := derive.Get(r, t.open, self); !t.config.AntreaProxy.ProxyAll && !open {
		return
	}
	n.Outside = true
	if t.config.AntreaProxy.ProxyAll {
		n.NodePortAddresses = t.nodePortAddresses(*n, r)
	}
	n.ServiceSource = t.serviceSource(*n, is4, r, ps)
	n.ServiceSource6 = t.serviceSource(*n, func(p netip.Prefix) bool { return !is4(p) }, r, ps)
}

// serviceSource returns the Node's service source of a version of IP. It belongs to the first podCIDR that has room for
// one.
func (t *outsideTables) serviceSource(n datapath.Node, of func(netip.Prefix) bool, r *derive.Reader,
	ps *problems) (gateway netip.Addr) {
	for i, cidr := range n.PodCIDRs {
		if !of(cidr) {
			continue
		}
		if !gateway.IsValid() {
			gateway = n.GatewayIPs[i]
		}
		source, ok := policy.ServiceSource(cidr)
		if !ok {
			continue
		}
		held := derive.List(r, t.holders, policy.Addr{Addr: source})
		if len(held) == 0 {
			return source
		}
		// An earlier version has given it to a Pod.
		a := held[0].Value
		ps.report(problem.Object{Kind: "Pod", Namespace: a.PodNamespace, Name: a.PodName}, "status.podIP",
			reasonServiceSourceTaken, "%s is the address from which clients outside reach Pods of other Nodes by Node %s, and "+
				"those Pods see %s instead: delete the Pod, so that it is made again with another address",
			source, t.this.name, n.GatewayIPs[i])
		return n.GatewayIPs[i]
	}
	return gateway // too small a range, or none
}

// nodePortAddresses returns the addresses of this Node at which node ports are served. These are the addresses in
// nodePortAddresses of the configuration, or else all addresses of versions of IP that Pods have.
func (t *outsideTables) nodePortAddresses(n datapath.Node, r *derive.Reader) (out []netip.Addr) {
	node, u, _ := t.this.ready(r)
	for _, ip := range u.Local {
		switch {
		case !n.Families.Serve(ip) || !ip.IsGlobalUnicast() || slices.Contains(n.GatewayIPs, ip):
		case peering.InsideRange.Contains(ip):
		case !t.allowsNodePorts(ip):
		case !slices.Contains(node.Addresses, ip) && len(derive.List(r, t.balancers, policy.Addr{Addr: ip})) > 0:
			// a load balancer's address that is on this Node now
		default:
			out = append(out, ip)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func (t *outsideTables) allowsNodePorts(ip netip.Addr) bool {
	if len(t.config.AntreaProxy.NodePortAddresses) == 0 {
		return true
	}
	return slices.ContainsFunc(t.config.AntreaProxy.NodePortAddresses, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(ip)
	})
}

// host completes the desired state of the Node's network stack.
func (t *outsideTables) host(d *hostnet.Desired, n datapath.Node) {
	d.Services.Entries = datapath.EntryRanges(family.Dual) // of earlier tables, too
	if !n.Outside {
		return
	}
	gw := t.config.HostGateway
	if t.config.AntreaProxy.ProxyAll {
		d.Services.Link, d.Services.Families, d.Services.NodeAddresses = gw, n.Families, n.NodePortAddresses
	}
	for _, entries := range datapath.EntryRanges(n.Families) {
		d.Routes = append(d.Routes,
			hostnet.Route{Dst: entries, Gateway: nextHop(entries.Addr()), Link: gw, OnLink: true})
	}
	// Packets to 127.0.0.1 are translated before the route is chosen. The switch drops packets of Pods to 127.0.0.0/8.
	d.Sysctls[routeLocalnet(gw)] = "1"
	// As kube-proxy does: a server may take an hour for its half of a connection.
	d.Sysctls["net/netfilter/nf_conntrack_tcp_timeout_close_wait"] = "3600"
	d.Sysctls["net/netfilter/nf_conntrack_tcp_timeout_established"] = "86400"
}

// servedBefore reports whether an earlier agent with antreaProxy.proxyAll may have left open connections. That is so if
// its route to the entries exists, or if this cannot be found out. Their flows and routes stay until a drain has ended.
func (t *outsideTables) servedBefore(log *slog.Logger, leadsTo func(string, netip.Prefix) (bool, error)) (open bool) {
	if t.config.AntreaProxy.ProxyAll {
		return false
	}
	for _, entries := range datapath.EntryRanges(family.Dual) {
		leads, err := leadsTo(t.config.HostGateway, entries)
		if err != nil {
			log.Warn("connections from outside of the Pods' network are taken to be open", "error", err)
		}
		open = open || leads || err != nil
	}
	t.open.Set(self, open)
	return open
}

// openThroughEntries counts the connections that the host has translated to entries, and that have not ended.
func openThroughEntries() (int, error) {
	var sum int
	for _, entries := range datapath.EntryRanges(family.Dual) {
		n, err := hostnet.OpenThrough(entries)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// drainInterval is the time between two counts of connections that an earlier agent has accepted.
const drainInterval = 15 * time.Second

// drain waits until the last connection has ended that an earlier agent with antreaProxy.proxyAll has accepted. Until
// the host has removed the translation, new connections may still begin.
type drain struct {
	untranslated func(context.Context) error // waits until the host has removed the translation
	count        func() (int, error)         // counts open connections
	log          *slog.Logger
}

// run removes the flows and routes of outside when the last connection has ended.
func (d *drain) run(ctx context.Context, open *derive.Source[derive.Name, bool]) {
	d.log.Info("connections from outside of the Pods' network keep their flows until they end",
		"reason", "antreaProxy.proxyAll is off")
	for d.untranslated(ctx) != nil { // reported by the host
		if sleep(ctx, drainInterval) != nil {
			return
		}
	}
	for n := 1; n > 0; {
		if sleep(ctx, drainInterval) != nil {
			return
		}
		var err error
		if n, err = d.count(); err != nil {
			d.log.Warn("connections from outside of the Pods' network cannot be counted; trying again", "error", err)
			n = 1
		}
	}
	open.Set(self, false)
	d.log.Info("the last connection from outside of the Pods' network has ended")
}

// translationsOf returns the translations of one Service.
func (t *outsideTables) translationsOf(key derive.Object, r *derive.Reader) (out []hostnet.Translation,
	_ []problem.Problem) {
	list, _ := derive.Get(r, t.services.Frontends, key)
	for _, f := range list {
		if f.Kind == service.ClusterIP {
			continue
		}
		one := hostnet.Translation{Protocol: strings.ToLower(string(f.Protocol)), Port: f.VIP.Port()}
		if f.Clients == service.OtherClients { // the own clients' row has come before, if the address has a number
			if f.Kind != service.NodePort {
				one.Address = f.VIP.Addr()
			}
			one.To = f.VIP // of the same version of IP
			if to, ok := t.onThisHost(key, f, r); ok && len(out) > 0 && isAt(out[len(out)-1], one) {
				out[len(out)-1].To = to
			}
			continue
		}
		port := f.VIP.Port()
		if f.Kind != service.NodePort {
			number, ok := derive.Get(r, t.flows.Services.Entries, datapath.EntryID{Protocol: f.Protocol, VIP: f.VIP})
			if !ok {
				continue // the table of numbers reports it
			}
			one.Address, port = f.VIP.Addr(), uint16(number)
		}
		for _, e := range datapath.Entries {
			switch {
			case e.External != (f.Kind != service.NodePort) || e.Addr.Is4() != f.VIP.Addr().Is4():
			case e.Own:
				one.ToOwn = netip.AddrPortFrom(e.Addr, port)
			default:
				one.To = netip.AddrPortFrom(e.Addr, port)
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// isAt reports whether two translations are of one address and port, and of one version of IP.
func isAt(a, b hostnet.Translation) bool {
	return a.Address == b.Address && a.Protocol == b.Protocol && a.Port == b.Port &&
		a.To.Addr().Is4() == b.To.Addr().Is4()
}

// onThisHost returns the endpoint of a frontend if packets to it need not enter the switch. That is so if the frontend
// is for clients outside, with externalTrafficPolicy Local, and all of its endpoints are programs in the host's
// network, such as an ingress controller. Then the endpoint sees the clients' addresses.
func (t *outsideTables) onThisHost(key derive.Object, f service.Frontend, r *derive.Reader) (netip.AddrPort, bool) {
	if len(f.Endpoints) == 0 || f.Limited || f.Protocol == corev1.ProtocolSCTP {
		return netip.AddrPort{}, false
	}
	if rules, _ := derive.Get(r, t.rules, key); len(rules) > 0 {
		return netip.AddrPort{}, false // the switch judges the clients
	}
	_, u, _ := t.this.ready(r)
	for _, e := range f.Endpoints {
		if !slices.Contains(u.Local, e.Addr.Addr()) {
			return netip.AddrPort{}, false
		}
	}
	return f.Endpoints[0].Addr, true
}

// reserved are the addresses of podCIDRs that no Pod gets. Connections of clients outside come from them, now or once
// proxyAll is set.
func reserved(podCIDRs []netip.Prefix) (out []netip.Addr) {
	for _, cidr := range podCIDRs {
		if ip, ok := policy.ServiceSource(cidr); ok {
			out = append(out, ip)
		}
	}
	return out
}
