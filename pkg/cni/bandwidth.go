package cni

import (
	"fmt"
	"math"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
)

// Rate limits one direction of a Pod's traffic.
type Rate struct {
	Bits  uint64 // a second; 0 means no limit
	Burst uint32 // bytes that may pass at once after a pause
}

// Bandwidth has the limits of a Pod's interface, as the annotations kubernetes.io/ingress-bandwidth and
// egress-bandwidth request them. A running Pod keeps its limits: changes take effect only for a new Pod.
type Bandwidth struct{ ToPod, FromPod Rate }

const (
	// minRate is the smallest rate, in bits a second, as Kubernetes has it.
	minRate = 1000
	// maxBurst bounds the burst of a limit that has no burst. A burst as long as one second of a fast rate would let a
	// short download pass without a limit.
	maxBurst = 512 << 10
	// minBurst is a few large packets. With less, a limit would pass no packet.
	minBurst = 16 << 10
	// queueing is how long a packet waits at most before it is dropped, in seconds.
	queueing = 0.025
)

// bandwidthConf is the value of the capability "bandwidth". Rates are bits a second, and bursts are bits.
type bandwidthConf struct {
	IngressRate  uint64 `json:"ingressRate"`
	IngressBurst uint64 `json:"ingressBurst"`
	EgressRate   uint64 `json:"egressRate"`
	EgressBurst  uint64 `json:"egressBurst"`
}

// bandwidth returns the limits that the runtime requests. A Pod cannot request a burst, and runtimes send a burst of
// 2^31-1 bits or more. With it, the first 256 MiB would pass without a limit. So the burst becomes one second of the
// rate, within bounds.
func (c *netConf) bandwidth() (b Bandwidth, failed *types.Error) {
	conf := c.RuntimeConfig.Bandwidth
	if conf == nil {
		return Bandwidth{}, nil
	}
	rate := func(field string, bits, burst uint64) Rate {
		switch {
		case bits == 0:
			return Rate{}
		case bits < minRate || bits > math.MaxInt64:
			failed = types.NewError(wire.CodeNetworkConfig,
				fmt.Sprintf("network configuration: runtimeConfig.bandwidth.%s has %d, want %d or more bits a second", field,
					bits, minRate), "correct the Pod's bandwidth annotation")
			return Rate{}
		case burst == 0 || burst >= math.MaxInt32:
			burst = min(bits, 8*maxBurst)
		}
		return Rate{Bits: bits, Burst: uint32(max(minBurst, burst/8))}
	}
	b = Bandwidth{ToPod: rate("ingressRate", conf.IngressRate, conf.IngressBurst),
		FromPod: rate("egressRate", conf.EgressRate, conf.EgressBurst)}
	return b, failed
}

// String returns the text for records, which parseBandwidth reads: rate and burst to the Pod, then rate and burst from
// the Pod. It is "" without a limit.
func (b Bandwidth) String() string {
	if b == (Bandwidth{}) {
		return ""
	}
	return fmt.Sprintf("%d/%d %d/%d", b.ToPod.Bits, b.ToPod.Burst, b.FromPod.Bits, b.FromPod.Burst)
}

// parseBandwidth reads the text in a record. A damaged text means no limit, since the Pod must keep its network.
func parseBandwidth(text string) Bandwidth {
	var b Bandwidth
	n, err := fmt.Sscanf(text, "%d/%d %d/%d", &b.ToPod.Bits, &b.ToPod.Burst, &b.FromPod.Bits, &b.FromPod.Burst)
	if n < 4 || err != nil {
		return Bandwidth{}
	}
	return b
}

// tbf returns the token bucket filter (tc-tbf(8)) that limits what leaves through an interface.
func (r Rate) tbf(link netlink.Link) *netlink.Tbf {
	bytes := float64(r.Bits) / 8
	wait := float64(r.Burst) / bytes * netlink.TIME_UNITS_PER_SEC // until that many bytes have passed
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		},
		Rate:   r.Bits / 8,
		Buffer: uint32(min(math.MaxUint32, wait*netlink.TickInUsec())),
		Limit:  uint32(min(math.MaxUint32, bytes*queueing+float64(r.Burst))),
	}
}

// limit brings the filter of an interface to the rate. Without a rate it changes nothing.
func (r Rate) limit(link netlink.Link) error {
	if r.Bits == 0 {
		return nil
	}
	if err := netlink.QdiscReplace(r.tbf(link)); err != nil {
		return fmt.Errorf("limit %s to %d bits a second: %w; load the kernel module sch_tbf on the Node, or remove the "+
			"Pod's bandwidth annotations", link.Attrs().Name, r.Bits, err)
	}
	return nil
}

// compare returns an error if an interface's filter does not have the desired rate. Without a desired rate it ignores
// other filters, which are the operator's.
func (r Rate) compare(link netlink.Link) error {
	if r.Bits == 0 {
		return nil
	}
	list, err := rtnetlink.List(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
	if err != nil {
		return fmt.Errorf("list filters of %s: %w", link.Attrs().Name, err)
	}
	for _, q := range list {
		if have, ok := q.(*netlink.Tbf); ok && have.Rate == r.Bits/8 && have.Parent == netlink.HANDLE_ROOT {
			return nil
		}
	}
	return fmt.Errorf("%s is not limited to %d bits a second", link.Attrs().Name, r.Bits)
}
