package cni

import (
	"bytes"
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
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
)

// add gives a Pod its interface in this order: the address on record, the veth pair, then the port and its flows. So
// after a crash at any point a retry continues, or DEL cleans up. It answers when the switch has confirmed the flows.
func (s *Server) add(ctx context.Context, q wire.Request, c *netConf) ([]byte, *types.Error) {
	if err := c.checkAdd(); err != nil {
		return nil, err
	}
	p := parseArgs(q.Args)
	if err := checkEnvironment(q, p); err != nil {
		return nil, err
	}
	if err := checkSecond(q, p); err != nil {
		return nil, err
	}
	k := ipam.Key{ContainerID: q.ContainerID, IfName: q.IfName}
	unlock, err := s.lock(ctx, k)
	if err != nil {
		return nil, interrupted("wait for an earlier request for the same container", err)
	}
	defer unlock()

	network, failed := s.network(ctx)
	if failed != nil {
		return nil, failed
	}
	_, recorded := s.ipam.Get(k)
	before, attached := s.find(k)
	box := sandbox{
		netns:       q.Netns,
		containerID: q.ContainerID,
		ifName:      q.IfName,
		pod:         p.String(),
		podUID:      p.uid,
		portName:    PortName(p.name, q.ContainerID, q.IfName),
		network:     recordedNetwork(q.IfName, c.Name),
		mtu:         network.MTU,
		gatewayMAC:  network.GatewayMAC,
		txChecksum:  !network.DisableTXChecksum,
	}
	if box.bandwidth, failed = c.bandwidth(); failed != nil {
		return nil, failed
	}
	if box.hostPorts, failed = c.hostPorts(); failed != nil {
		return nil, failed
	}
	if failed = c.checkMTU(network); failed != nil {
		return nil, failed
	}
	list, failed := extras{s}.of(ctx, q, p)
	if failed != nil {
		return nil, failed
	}
	var further []Extra
	if box.virtual, further = split(list); box.virtual != nil && box.virtual.Inside != "" {
		box.virtual, box.within = nil, box.virtual.Inside
	}
	if failed = (extras{s}).first(ctx, k, &box, network); failed != nil {
		return nil, failed
	}
	if c.MTU > 0 {
		box.mtu = c.MTU
	}
	a := Attachment{
		ContainerID:  q.ContainerID,
		IfName:       q.IfName,
		Netns:        q.Netns,
		PodNamespace: p.namespace,
		PodName:      p.name,
		PodUID:       k8stypes.UID(p.uid),
		PortName:     box.portName,
		Network:      box.network,
		IPs:          box.ips,
		Bandwidth:    box.bandwidth,
		HostPorts:    box.hostPorts,

		VirtualNetwork: box.virtualNetwork(),
		Inside:         box.within,
	}
	// A new veth pair must not have the name of an existing port of the switch. When the device behind a port changes,
	// ovs-vswitchd sets its flags to the values that it read last, and may send to the old device for a while.
	if recorded || attached {
		whole, err := box.whole()
		if err == nil && !whole {
			attached = false // it does not work
			err = s.node.Detach(ctx, k.ContainerID, k.IfName)
		}
		if err != nil {
			return nil, types.NewError(wire.CodeTryAgainLater, fmt.Sprintf("add Pod %s: prepare to make its interface again: %s",
				p, err), "the runtime will try again; see `tombolo get status` on this Node")
		}
	}
	var made map[ipam.Key]string
	hostMAC, failed := s.build(ctx, box, &a, func(ctx context.Context) (failed *types.Error) {
		made, failed = extras{s}.addAll(ctx, further, box, a)
		return failed
	})
	if failed != nil {
		for k, port := range made {
			if err := s.undo(k, port); err != nil {
				failed.Details = joinDetails(failed.Details, notUndone+err.Error())
			}
		}
		// If an attachment worked before this request, it stays as it was. A runtime that repeats ADD must not lose a running
		// Pod's interface.
		if recorded && attached && slices.Equal(before.IPs, box.ips) && before.VirtualNetwork == a.VirtualNetwork &&
			before.Inside == a.Inside {
			return nil, failed
		}
		if err := s.undo(k, box.portName); err != nil {
			failed.Details = joinDetails(failed.Details, notUndone+err.Error())
		}
		return nil, failed
	}
	return result(c, box, a, hostMAC)
}

const notUndone = "not all could be undone; DEL or the agent's next start will: "

// build makes the interface and attaches it to the switch. The host's end is up before the switch gets the port.
// ovs-vswitchd sets all flags of a new port to the values that it read last (netdev-linux.c, update_flags). If the end
// came up in between, ovs-vswitchd would set it down again. Then both ends are configured and the port is made at the
// same time. Other work may be done at this time too: the switch takes several new ports in little more time than one.
func (s *Server) build(ctx context.Context, box sandbox, a *Attachment, also ...func(context.Context) *types.Error,
) (hostMAC string, failed *types.Error) {
	pod := a.PodNamespace + "/" + a.PodName
	p, err := box.make()
	if err != nil {
		return "", types.NewError(wire.CodeConfigureInterface, fmt.Sprintf("add Pod %s: %s", pod, err), "")
	}
	defer p.pod.Close()
	a.MAC = p.mac
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	var once sync.Once
	var running sync.WaitGroup
	step := func(do func() *types.Error) {
		running.Go(func() {
			if e := do(); e != nil {
				once.Do(func() { failed = e })
				cancel() // the others need not continue
			}
		})
	}
	for _, do := range also {
		step(func() *types.Error { return do(ctx) })
	}
	step(func() *types.Error {
		err := s.node.Attach(ctx, *a)
		var taken *HostPortTakenError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &taken): // the other Pod may be ending: the runtime tries again
			return types.NewError(wire.CodeTryAgainLater, fmt.Sprintf("add Pod %s: %s", pod, taken), HostPortRemedy)
		case ctx.Err() != nil:
			return interrupted(fmt.Sprintf("add Pod %s: attach %s to the switch", pod, a.PortName), err)
		}
		return types.NewError(wire.CodeConfigureInterface,
			fmt.Sprintf("add Pod %s: attach %s to the switch: %s", pod, a.PortName, err),
			"see `tombolo get status` on this Node")
	})
	step(func() *types.Error {
		if err := box.configure(p); err != nil {
			return types.NewError(wire.CodeConfigureInterface, fmt.Sprintf("add Pod %s: %s", pod, err), "")
		}
		if a.MAC == box.mac().String() {
			return nil
		}
		k, whole := ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}, box.described()
		whole.MAC = a.MAC
		if err := s.ipam.Describe(k, whole); err != nil {
			return types.NewError(wire.CodeIPAM, fmt.Sprintf("add Pod %s: %s", pod, err), "")
		}
		return nil
	})
	running.Wait()
	return p.host.Attrs().HardwareAddr.String(), failed
}

// undo removes all that ADD has made. The address stays on record while the switch may still have flows for it.
func (s *Server) undo(k ipam.Key, portName string) error {
	ctx, cancel := context.WithTimeout(s.undoing, rollbackTimeout)
	defer cancel()
	detachErr := s.node.Detach(ctx, k.ContainerID, k.IfName)
	err := errors.Join(detachErr, removeLink(portName, k))
	if detachErr != nil {
		return err
	}
	_, releaseErr := s.ipam.Release(k)
	return errors.Join(err, releaseErr)
}

// network waits for the Node's network as long as documented.
func (s *Server) network(ctx context.Context) (Network, *types.Error) {
	ctx, cancel := context.WithTimeout(ctx, s.networkTimeout)
	defer cancel()
	network, err := s.node.Network(ctx)
	switch {
	case err != nil:
		return network, types.NewError(wire.CodeTryAgainLater,
			fmt.Sprintf("the Node's network was not ready within %s", s.networkTimeout), err.Error())
	case len(network.PodCIDRs) == 0:
		return network, types.NewError(wire.CodeTryAgainLater, "the Node has no podCIDR yet",
			"run kube-controller-manager with --allocate-node-cidrs, or set the Node's spec.podCIDRs")
	}
	return network, nil
}

func checkEnvironment(q wire.Request, p pod) *types.Error {
	bad := func(variable, what string) *types.Error {
		return types.NewError(wire.CodeEnvironment, variable+" "+what, "the container runtime has to set it")
	}
	switch {
	case q.ContainerID == "":
		return bad("CNI_CONTAINERID", "is missing")
	case q.IfName == "":
		return bad("CNI_IFNAME", "is missing")
	case q.Netns == "":
		return bad("CNI_NETNS", "is missing")
	case p.name == "":
		return bad("CNI_ARGS", "lacks K8S_POD_NAME")
	case p.namespace == "":
		return bad("CNI_ARGS", "lacks K8S_POD_NAMESPACE")
	case len(p.uid) > maxUID || strings.ContainsFunc(p.uid, func(r rune) bool { return r <= ' ' || r > '~' }):
		return bad("CNI_ARGS", fmt.Sprintf("has a K8S_POD_UID that is no UID: up to %d visible ASCII characters", maxUID))
	}
	n, err := openNetns(q.Netns)
	if err != nil {
		e := bad("CNI_NETNS", "cannot be used: "+err.Error())
		e.Details = "the agent has to see the Node's /var/run/netns and /proc (mountPropagation HostToContainer, hostPID)"
		return e
	}
	_ = n.Close() // opened to look at
	return nil
}

// checkSecond refuses an interface for a Pod that has a default route through another one. With a second default route
// the Pod would lose that network, and answers would leave through the wrong interface.
func checkSecond(q wire.Request, p pod) *types.Error {
	if q.IfName == defaultIfName {
		return nil // the runtime makes it first
	}
	other, err := otherDefault(q.Netns, q.IfName)
	if err != nil {
		return types.NewError(wire.CodeConfigureInterface, fmt.Sprintf("add Pod %s: %s", p, err), "")
	}
	if other == "" {
		return nil
	}
	return types.NewError(wire.CodeNetworkConfig,
		fmt.Sprintf("add Pod %s: interface %s would take its default route, which is through %s", p, q.IfName, other),
		"tombolo gives a Pod its one interface: remove this network from the Pod's k8s.v1.cni.cncf.io/networks, or make it "+
			"with another plugin")
}

// otherDefault returns the interface of the namespace's default route, or "" if there is no such route or it is through
// ifName.
func otherDefault(netns, ifName string) (name string, err error) {
	err = ns.WithNetNSPath(netns, func(ns.NetNS) error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := rtnetlink.List(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
			if err != nil {
				return fmt.Errorf("list the Pod's routes: %w", err)
			}
			for _, r := range routes {
				if r.Dst != nil && r.Dst.String() != "0.0.0.0/0" && r.Dst.String() != "::/0" {
					continue
				}
				link, err := netlink.LinkByIndex(r.LinkIndex)
				if err != nil {
					return fmt.Errorf("look at the Pod's default route: %w", err)
				}
				if link.Attrs().Name != ifName {
					name = link.Attrs().Name
				}
			}
		}
		return nil
	})
	return name, err
}

// interrupted is the answer when time ran out or the agent is stopping.
func interrupted(what string, err error) *types.Error {
	return types.NewError(wire.CodeTryAgainLater, what+": "+err.Error(),
		"the runtime will try again; see `tombolo get status` on this Node")
}

func joinDetails(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// result returns the answer of ADD, in the version that the configuration names.
func result(c *netConf, box sandbox, a Attachment, hostMAC string) ([]byte, *types.Error) {
	r := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: box.portName, Mac: hostMAC, Mtu: box.mtu},
			{Name: box.ifName, Mac: a.MAC, Mtu: box.mtu, Sandbox: box.netns},
		},
		DNS: c.dns(),
	}
	for i, p := range box.ips {
		gw := box.gateways[i]
		r.IPs = append(r.IPs, &types100.IPConfig{
			Interface: types100.Int(1),
			Address:   *ipNet(p),
			Gateway:   gw.AsSlice(),
		})
		r.Routes = append(r.Routes, &types.Route{Dst: *ipNet(anywhere(gw)), GW: gw.AsSlice()})
	}
	return c.text(r)
}

// text returns a result in the version of the configuration.
func (c *netConf) text(r *types100.Result) ([]byte, *types.Error) {
	versioned, err := r.GetAsVersion(c.CNIVersion)
	var b bytes.Buffer
	if err == nil {
		err = versioned.PrintTo(&b)
	}
	if err != nil {
		return nil, types.NewError(wire.CodeIncompatibleVersion,
			fmt.Sprintf("write the result as CNI %s: %s", c.CNIVersion, err), "")
	}
	return b.Bytes(), nil
}

// prefixOf reads an address of a CNI result.
func prefixOf(n net.IPNet) (netip.Prefix, bool) {
	ip, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(ip.Unmap(), ones), true
}
