package cni

import (
	"context"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// A Pod's first interface may be in a VirtualNetwork. It has addresses of this network's Subnets instead of the Node's
// podCIDRs, and its default route goes over the gateway of the Subnet. If the addresses of the network are not unique,
// the first interface has addresses of the Node, and a further interface has these of the network (Attachment.Inside).

// split returns the request for the first interface, nil without one, and the others.
func split(list []Extra) (first *Extra, further []Extra) {
	i := slices.IndexFunc(list, func(x Extra) bool { return x.IfName == defaultIfName })
	if i < 0 {
		return nil, list
	}
	return &list[i], slices.Delete(slices.Clone(list), i, i+1)
}

// first gives the first interface its addresses and gateways. They are of a VirtualNetwork if the Pod requests one, and
// of the Node otherwise.
func (e extras) first(ctx context.Context, k ipam.Key, box *sandbox, network Network) *types.Error {
	x := box.virtual
	allocate := func(ranges []ipam.Range) (err error) {
		box.ips, err = e.ipam.Allocate(k, box.pod, box.described(), ranges)
		return err
	}
	if x == nil {
		for i := range network.PodCIDRs {
			box.gateways = append(box.gateways, network.Gateway(i))
		}
		if err := allocate(network.ranges()); err != nil {
			return types.NewError(wire.CodeIPAM, fmt.Sprintf("add Pod %s: %s", box.pod, err), "")
		}
		return nil
	}
	for _, r := range x.Ranges {
		box.gateways = append(box.gateways, r.Gateway)
	}
	if err := e.extra.Allocate(ctx, *x, allocate); err != nil {
		return types.NewError(wire.CodeIPAM, fmt.Sprintf("add Pod %s: %s of VirtualNetwork %s: %s", box.pod, x.IfName,
			x.VirtualNetwork, err), "the kubelet will try again; see the observations of the VirtualNetwork and its Subnets")
	}
	return nil
}

// isFurther reports whether the interface is a further one, in a VirtualNetwork.
func (s sandbox) isFurther() bool { return s.virtual != nil && s.ifName != defaultIfName }
