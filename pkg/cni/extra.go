package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// A Pod may request further interfaces in VirtualNetworks. It may also request that its first interface is in one
// (first.go). The runtime asks only for eth0. So the ADD of eth0 makes the further interfaces too, its DEL removes
// them, CHECK examines them, and GC keeps them while eth0 is valid.

// Extra is an interface in a VirtualNetwork that a Pod requests. IfName is eth0 for the Pod's first interface.
type Extra struct {
	Routes
	VirtualNetwork string // "namespace/name"
	// Inside is set instead of VirtualNetwork for a first interface with addresses of the Node (Attachment.Inside).
	Inside    string
	MAC       string // requested, or ""
	Requested []netip.Addr
}

// ExtraRange is where an address of a further interface comes from.
type ExtraRange struct {
	CIDR    netip.Prefix
	Gateway netip.Addr
}

// ExtraNetworks has the networks of further interfaces. The agent implements it.
type ExtraNetworks interface {
	// Extras returns the interfaces in VirtualNetworks that a Pod requests. It waits a short time until this Node has
	// addresses for them. Its error names the Pod's annotation and the remedy.
	Extras(ctx context.Context, namespace, name string, uid k8stypes.UID) ([]Extra, error)
	// Allocate calls a function that allocates addresses. It passes the ranges that this Node has now, in the order of
	// x.Ranges.
	Allocate(ctx context.Context, x Extra, allocate func([]ipam.Range) error) error
}

// extras serves the further interfaces of requests.
type extras struct{ *Server }

// of returns the further interfaces of a request.
func (e extras) of(ctx context.Context, q wire.Request, p pod) ([]Extra, *types.Error) {
	if e.extra == nil || q.IfName != defaultIfName {
		return nil, nil
	}
	list, err := e.extra.Extras(ctx, p.namespace, p.name, k8stypes.UID(p.uid))
	if err != nil {
		return nil, types.NewError(wire.CodeTryAgainLater, fmt.Sprintf("add Pod %s: %s", p, err),
			"the kubelet will try again")
	}
	return list, nil
}

// addAll makes the further interfaces of a Pod at the same time, and then their routes. It returns the ports of these
// that it has begun to make, also if it fails.
func (e extras) addAll(ctx context.Context, list []Extra, first sandbox, a Attachment) (map[ipam.Key]string,
	*types.Error) {
	var mu sync.Mutex // of these two
	made := map[ipam.Key]string{}
	var failed *types.Error
	routes := PodRoutes{Netns: first.netns, Interfaces: make([]Routes, len(list))}
	var running sync.WaitGroup
	for i, x := range list {
		k := ipam.Key{ContainerID: a.ContainerID, IfName: x.IfName}
		_, recorded := e.ipam.Get(k)
		running.Go(func() {
			port, wrong := e.add(ctx, k, x, first, a)
			mu.Lock()
			defer mu.Unlock()
			if !recorded && port != "" {
				made[k] = port
			}
			if failed == nil {
				failed = wrong
			}
			routes.Interfaces[i] = x.Routes
			routes.Interfaces[i].PortName = port
		})
	}
	running.Wait()
	if failed != nil || len(list) == 0 {
		return made, failed
	}
	missing, err := routes.mend()
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("interfaces %s are not there, are down, or are in a bridge or a VRF: the Pod has changed them: "+
			"delete it, or take them out of the bridge or the VRF and set them up", strings.Join(missing, ", "))
	}
	if err != nil {
		return made, types.NewError(wire.CodeConfigureInterface, fmt.Sprintf("add Pod %s: add its routes: %s", first.pod,
			err), "")
	}
	return made, nil
}

// add makes one further interface. It returns its port once it has an address.
func (e extras) add(ctx context.Context, k ipam.Key, x Extra, first sandbox, a Attachment,
) (string, *types.Error) {
	box := sandbox{
		netns: first.netns, containerID: k.ContainerID, ifName: k.IfName, pod: first.pod, podUID: first.podUID,
		portName: PortName(a.PodName, k.ContainerID, k.IfName),
		network:  recordedNetwork(k.IfName, networkOf(first.ifName, first.network)),
		mtu:      first.mtu, gatewayMAC: first.gatewayMAC, txChecksum: first.txChecksum,
		virtual: &x,
	}
	err := e.extra.Allocate(ctx, x, func(ranges []ipam.Range) (err error) {
		box.ips, err = e.ipam.Allocate(k, box.pod, box.described(), ranges)
		return err
	})
	if err != nil {
		return "", types.NewError(wire.CodeIPAM, fmt.Sprintf("add Pod %s: %s of VirtualNetwork %s: %s", box.pod, x.IfName,
			x.VirtualNetwork, err), "the kubelet will try again; see the observations of the VirtualNetwork and its Subnets")
	}
	for _, r := range x.Ranges {
		box.gateways = append(box.gateways, r.Gateway)
	}
	if whole, err := box.whole(); err == nil && !whole {
		err := e.node.Detach(ctx, k.ContainerID, k.IfName)
		if err != nil {
			return box.portName, types.NewError(wire.CodeTryAgainLater, fmt.Sprintf("add Pod %s: prepare %s: %s", box.pod,
				x.IfName, err), "the runtime will try again; see `tombolo get status` on this Node")
		}
	}
	own := Attachment{
		ContainerID: k.ContainerID, IfName: k.IfName, Netns: a.Netns, PodNamespace: a.PodNamespace, PodName: a.PodName,
		PodUID: a.PodUID, PortName: box.portName, Network: box.network, IPs: box.ips, VirtualNetwork: x.VirtualNetwork,
	}
	_, failed := e.build(ctx, box, &own)
	return box.portName, failed
}

// keys returns the further interfaces of a container that are on record.
func (e extras) keys(container string) (out []ipam.Key) {
	add := func(k ipam.Key, network string) {
		if k.ContainerID == container && k.IfName != defaultIfName && network != "" && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	for _, r := range e.ipam.Records() {
		add(r.Key, r.VirtualNetwork)
	}
	for _, a := range e.node.Attachments() {
		add(ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}, a.VirtualNetwork)
	}
	return out
}

// check compares the further interfaces of a Pod with their records.
func (e extras) check(q wire.Request) *types.Error {
	if q.IfName != defaultIfName {
		return nil
	}
	for _, k := range e.keys(q.ContainerID) {
		a, ok := e.find(k)
		if !ok {
			return types.NewError(wire.CodeUnknownContainer, fmt.Sprintf("container %s has no interface %s", k.ContainerID,
				k.IfName), "delete the Pod: one of its further interfaces is not attached to the switch")
		}
		if err := e.checkOne(q, a); err != nil {
			return types.NewError(wire.CodeCheckInterface, fmt.Sprintf("check Pod %s: %s", a.pod(), err),
				"delete the Pod: its interface is not what ADD made")
		}
	}
	return nil
}

// checkOne compares a further interface with its record.
func (e extras) checkOne(q wire.Request, a Attachment) error {
	host, err := netlink.LinkByName(a.PortName)
	if err != nil {
		return fmt.Errorf("host interface %s: %w", a.PortName, err)
	}
	if host.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("host interface %s is down", a.PortName)
	}
	pod, err := openNetns(q.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	return pod.Do(func(ns.NetNS) error { return compareInside(a.IfName, host.Attrs().Index, a, &types100.Result{}) })
}

// Each further interface has a routing table of its own: firstRouteTable plus the index of the interface. The rules for
// these tables have the same priority.
const (
	firstRouteTable = 10000
	rulePriority    = 20000
)

// virtualRoutes sets the routes of an interface in a VirtualNetwork that do not change: the gateway is on the link, and
// packets whose source is the interface's address have a default route of their own. So a reply leaves through the
// interface through which the request came. PodRoutes has the other routes.
func (s sandbox) virtualRoutes(link netlink.Link) error {
	index := link.Attrs().Index
	for i, gw := range s.gateways {
		if err := s.neighbor(link, gw); err != nil {
			return err
		}
		for _, r := range []netlink.Route{
			{Dst: ipNet(netip.PrefixFrom(gw, gw.BitLen())), Scope: netlink.SCOPE_LINK},
			{Dst: ipNet(anywhere(gw)), Gw: gw.AsSlice(), Table: firstRouteTable + index, Flags: int(netlink.FLAG_ONLINK)},
		} {
			if r.LinkIndex = index; gw.Is6() {
				r.Scope = 0
			}
			if err := netlink.RouteReplace(&r); err != nil {
				return fmt.Errorf("add the route to %s: %w", r.Dst, err)
			}
		}
		rule := netlink.NewRule()
		rule.Src, rule.Table = ipNet(netip.PrefixFrom(s.ips[i].Addr(), gw.BitLen())), firstRouteTable+index
		rule.Priority = rulePriority
		if rule.Family = unix.AF_INET; gw.Is6() {
			rule.Family = unix.AF_INET6
		}
		if err := netlink.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add the routing rule for %s: %w", s.ips[i].Addr(), err)
		}
	}
	return nil
}

// virtualNetwork returns the VirtualNetwork of a sandbox's interface, or "".
func (s sandbox) virtualNetwork() string {
	if s.virtual == nil {
		return ""
	}
	return s.virtual.VirtualNetwork
}

// validContainers returns the containers whose first interface is valid.
func validContainers(valid map[ipam.Key]bool) map[string]bool {
	out := map[string]bool{}
	for k := range valid {
		out[k.ContainerID] = true
	}
	return out
}

// splitNetwork returns the Namespace and the name of "namespace/name".
func splitNetwork(text string) (namespace, name string) {
	namespace, name, _ = strings.Cut(text, "/")
	return namespace, name
}
