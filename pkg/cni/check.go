package cni

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// check compares the result of ADD with the present state, and names the first difference.
func (s *Server) check(ctx context.Context, q wire.Request, c *netConf) ([]byte, *types.Error) {
	prev, failed := c.prevResult()
	if failed != nil {
		return nil, failed
	}
	k := ipam.Key{ContainerID: q.ContainerID, IfName: q.IfName}
	unlock, err := s.lock(ctx, k)
	if err != nil {
		return nil, interrupted("wait for an earlier request for the same container", err)
	}
	defer unlock()
	a, ok := s.find(k)
	if !ok {
		return nil, types.NewError(wire.CodeUnknownContainer,
			fmt.Sprintf("container %s has no interface %s on this network", q.ContainerID, q.IfName),
			"delete the Pod: it is not attached to the switch")
	}
	if uid := parseArgs(q.Args).uid; uid != "" && a.PodUID != "" && uid != string(a.PodUID) {
		return nil, types.NewError(wire.CodeCheckInterface,
			fmt.Sprintf("check Pod %s: CNI_ARGS has the UID %s, the switch's record %s", a.pod(), uid, a.PodUID),
			"delete the Pod: its interface is another Pod's of its name")
	}
	ports, failed := c.hostPorts()
	if failed != nil {
		return nil, failed
	}
	if !slices.Equal(ports, a.HostPorts) && len(ports) > 0 { // without any the runtime may not pass them to CHECK
		return nil, types.NewError(wire.CodeCheckInterface,
			fmt.Sprintf("check Pod %s: the runtime asks for the ports %q of the Node, the switch's record has %q", a.pod(),
				ports, a.HostPorts), "delete the Pod: it was attached with other ports")
	}
	if failed := (extras{s}).check(q); failed != nil {
		return nil, failed
	}
	if err := compare(q, a, prev); err != nil {
		return nil, types.NewError(wire.CodeCheckInterface,
			fmt.Sprintf("check Pod %s/%s: %s", a.PodNamespace, a.PodName, err),
			"delete the Pod: its interface is not what ADD made")
	}
	return nil, nil
}

// compare compares the record, the runtime's copy of the result, and the kernel's state.
func compare(q wire.Request, a Attachment, prev *types100.Result) error {
	var want []netip.Prefix
	for _, ip := range prev.IPs {
		p, ok := prefixOf(ip.Address)
		if !ok {
			return fmt.Errorf("prevResult has the address %s", ip.Address.String())
		}
		if onInterface(prev, ip, q.IfName) {
			want = append(want, p)
		}
	}
	if !slices.Equal(want, a.IPs) {
		return fmt.Errorf("prevResult has the addresses %v, the switch's record %v", want, a.IPs)
	}
	if !slices.ContainsFunc(prev.Interfaces,
		func(i *types100.Interface) bool { return i.Sandbox == "" && i.Name == a.PortName }) {
		return fmt.Errorf("prevResult lacks the host interface %s of the switch's record", a.PortName)
	}
	for _, i := range prev.Interfaces {
		if i.Sandbox != "" && i.Name == q.IfName && !strings.EqualFold(i.Mac, a.MAC) {
			return fmt.Errorf("prevResult has the MAC %s, the switch's record %s", i.Mac, a.MAC)
		}
	}
	host, err := netlink.LinkByName(a.PortName)
	if err != nil {
		return fmt.Errorf("host interface %s: %w", a.PortName, err)
	}
	if host.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("host interface %s is down", a.PortName)
	}
	if err := a.Bandwidth.ToPod.compare(host); err != nil {
		return fmt.Errorf("host interface %w", err)
	}
	pod, err := openNetns(q.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	return pod.Do(func(ns.NetNS) error { return compareInside(q.IfName, host.Attrs().Index, a, prev) })
}

// onInterface reports whether an address of a result is on the Pod's interface.
func onInterface(r *types100.Result, ip *types100.IPConfig, ifName string) bool {
	if ip.Interface == nil {
		return true
	}
	i := *ip.Interface
	return i >= 0 && i < len(r.Interfaces) && r.Interfaces[i].Name == ifName && r.Interfaces[i].Sandbox != ""
}

// compareInside runs in the Pod's namespace.
func compareInside(ifName string, hostIndex int, a Attachment, prev *types100.Result) error {
	link, err := netlink.LinkByName(ifName)
	if err != nil {
		return fmt.Errorf("interface %s in the Pod: %w", ifName, err)
	}
	switch attrs := link.Attrs(); {
	case link.Type() != "veth" || attrs.ParentIndex != hostIndex:
		return fmt.Errorf("interface %s in the Pod is a %s that is not the other end of %s", ifName, link.Type(), a.PortName)
	case attrs.Flags&net.FlagUp == 0:
		return fmt.Errorf("interface %s in the Pod is down", ifName)
	case !strings.EqualFold(attrs.HardwareAddr.String(), a.MAC):
		return fmt.Errorf("interface %s in the Pod has the MAC %s, want %s", ifName, attrs.HardwareAddr, a.MAC)
	}
	if err := a.Bandwidth.FromPod.compare(link); err != nil {
		return fmt.Errorf("interface %w", err)
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s in the Pod: %w", ifName, err)
	}
	for _, want := range a.IPs {
		if !slices.ContainsFunc(addrs, func(x netlink.Addr) bool {
			p, ok := prefixOf(*x.IPNet)
			return ok && p == want
		}) {
			return fmt.Errorf("interface %s in the Pod lacks the address %s", ifName, want)
		}
	}
	if err := compareNeighbors(link, prev); err != nil {
		return err
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list routes of %s in the Pod: %w", ifName, err)
	}
	for _, want := range prev.Routes {
		dst, ok := prefixOf(want.Dst)
		if !ok || want.GW == nil {
			continue // another plugin's, or on the link
		}
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return sameRoute(r, dst, want) }) {
			return fmt.Errorf("the Pod lacks the route to %s via %s", dst, want.GW)
		}
	}
	return nil
}

// compareNeighbors looks for the permanent entries of IPv6 gateways.
func compareNeighbors(link netlink.Link, prev *types100.Result) error {
	have, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V6)
	if err != nil {
		return fmt.Errorf("list neighbours of %s in the Pod: %w", link.Attrs().Name, err)
	}
	for _, ip := range prev.IPs {
		if ip.Gateway == nil || ip.Gateway.To4() != nil {
			continue
		}
		if !slices.ContainsFunc(have, func(n netlink.Neigh) bool {
			return n.IP.Equal(ip.Gateway) && n.State&netlink.NUD_PERMANENT != 0
		}) {
			return fmt.Errorf("interface %s in the Pod lacks the permanent neighbour %s", link.Attrs().Name, ip.Gateway)
		}
	}
	return nil
}

// sameRoute compares a route of the kernel with a route of a CNI result. The kernel may omit the destination of a
// default route.
func sameRoute(r netlink.Route, dst netip.Prefix, want *types.Route) bool {
	if !r.Gw.Equal(want.GW) {
		return false
	}
	if r.Dst == nil {
		return dst.Bits() == 0
	}
	p, ok := prefixOf(*r.Dst)
	return ok && p.Masked() == dst.Masked()
}
