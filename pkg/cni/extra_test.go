package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// fakeExtras gives each Pod the same further interfaces.
type fakeExtras struct {
	list   []Extra
	err    error
	blind  string      // VirtualNetwork without addresses
	before func(Extra) // of each allocation, or nil
}

func (f *fakeExtras) Extras(context.Context, string, string, k8stypes.UID) ([]Extra, error) {
	return f.list, f.err
}

func (f *fakeExtras) Allocate(_ context.Context, x Extra, allocate func([]ipam.Range) error) error {
	if f.before != nil {
		f.before(x)
	}
	if x.VirtualNetwork == f.blind {
		return errors.New("this Node has no addresses of its Subnets now")
	}
	var ranges []ipam.Range
	for _, r := range x.Ranges {
		g := ipam.Range{Prefix: r.CIDR, Reserved: []netip.Addr{r.Gateway},
			Blocks: []netip.Prefix{netip.PrefixFrom(r.CIDR.Addr(), r.CIDR.Addr().BitLen()-4)}}
		for _, ip := range x.Requested {
			if r.CIDR.Contains(ip) {
				g.Want = ip
			}
		}
		ranges = append(ranges, g)
	}
	return allocate(ranges)
}

// withExtras gives the Pods of a rig interfaces eth1 and eth2.
func (r *rig) withExtras() *fakeExtras {
	one := ExtraRange{netip.MustParsePrefix("10.50.0.0/24"), netip.MustParseAddr("10.50.0.1")}
	six := ExtraRange{netip.MustParsePrefix("fd50::/64"), netip.MustParseAddr("fd50::1")}
	two := ExtraRange{netip.MustParsePrefix("10.51.0.0/24"), netip.MustParseAddr("10.51.0.1")}
	f := &fakeExtras{list: []Extra{
		{Routes: Routes{IfName: "eth1", Ranges: []ExtraRange{one, six},
			Joined: []netip.Prefix{netip.MustParsePrefix("10.52.0.0/24"), netip.MustParsePrefix("fd52::/64")}},
			VirtualNetwork: "default/blue"},
		{Routes: Routes{IfName: "eth2", Ranges: []ExtraRange{two}}, VirtualNetwork: "default/red", MAC: "0a:00:00:00:be:ef",
			Requested: []netip.Addr{netip.MustParseAddr("10.51.0.7")}},
	}}
	r.server.extra = f
	return f
}

// TestExtraInterfaces makes a Pod with further interfaces, looks at them, has the agent start again, and removes the
// Pod.
func TestExtraInterfaces(t *testing.T) {
	r := newRig(t)
	r.withExtras()
	netns, _ := r.netns()
	env := environment("c1", netns)
	result := r.must("ADD", env, r.conf(nil))
	if strings.Contains(result, "10.50.0") {
		t.Errorf("the result has addresses of further interfaces, which are not the Pod's: %s", result)
	}
	want := []string{"eth1 10.50.0.2/24 fd50::2/64", "eth2 10.51.0.7/24"}
	state := func() (out []string) {
		for _, name := range []string{"eth1", "eth2"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return []string{err.Error()}
			}
			text := name
			addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range addrs {
				if !a.IP.IsLinkLocalUnicast() {
					text += " " + a.IPNet.String()
				}
			}
			out = append(out, text)
		}
		return out
	}
	within(t, netns, func() {
		if have := state(); !slices.Equal(have, want) {
			t.Errorf("interfaces %q, want %q", have, want)
		}
		link, err := netlink.LinkByName("eth2")
		if err != nil || link.Attrs().HardwareAddr.String() != "0a:00:00:00:be:ef" || link.Attrs().MTU != 1400 {
			t.Errorf("eth2 is %+v: %v", link.Attrs(), err)
		}
		for to, via := range map[string]string{
			"10.50.0.99": "eth1 10.50.0.1", "10.52.0.9": "eth1 10.50.0.1", "fd50::99": "eth1 fd50::1", "fd52::9": "eth1 fd50::1",
			"10.51.0.9": "eth2 10.51.0.1", "10.50.0.1": "eth1 <nil>", "192.0.2.1": "eth0 10.10.1.1",
		} {
			if have := routeTo(t, to, ""); have != via {
				t.Errorf("to %s: %s, want %s", to, have, via)
			}
		}
		for from, via := range map[string]string{"10.50.0.2": "eth1 10.50.0.1", "10.51.0.7": "eth2 10.51.0.1",
			"10.10.1.2": "eth0 10.10.1.1"} {
			if have := routeTo(t, "192.0.2.1", from); have != via {
				t.Errorf("from %s: %s, want %s", from, have, via)
			}
		}
		// CN2's samples replace the default route by one over the gateway of eth1.
		eth1, err := netlink.LinkByName("eth1")
		if err != nil {
			t.Fatal(err)
		}
		gw := netip.MustParseAddr("10.50.0.1")
		if err := netlink.RouteReplace(&netlink.Route{Gw: gw.AsSlice(), Dst: ipNet(anywhere(gw))}); err != nil {
			t.Errorf("a default route over the gateway: %v", err)
		}
		if have := routeTo(t, "192.0.2.1", ""); have != fmt.Sprint(eth1.Attrs().Name, " 10.50.0.1") {
			t.Errorf("with that route: %s", have)
		}
		own := netip.MustParseAddr("10.10.1.1")
		if err := netlink.RouteReplace(&netlink.Route{Gw: own.AsSlice(), Dst: ipNet(anywhere(own))}); err != nil {
			t.Fatal(err)
		}
	})
	check := r.conf(map[string]any{"prevResult": json.RawMessage(result)})
	r.must("CHECK", env, check)
	r.must("ADD", env, r.conf(nil)) // again
	within(t, netns, func() {
		if have := state(); !slices.Equal(have, want) {
			t.Errorf("after another ADD: interfaces %q, want %q", have, want)
		}
	})

	// Both records are read back, and each makes up for the other one.
	for _, lost := range []string{"none", "OVSDB", "both"} {
		r.stop()
		if lost != "none" {
			r.node.attached = map[ipam.Key]Attachment{}
		}
		if lost == "both" {
			if err := os.Remove(filepath.Join(r.dir, "ipam.json")); err != nil {
				t.Fatal(err)
			}
		}
		r.start()
		r.withExtras()
		a := r.node.attached[ipam.Key{ContainerID: "c1", IfName: "eth1"}]
		if a.VirtualNetwork != "default/blue" || fmt.Sprint(a.IPs) != "[10.50.0.2/24 fd50::2/64]" {
			t.Errorf("lost %s: the attachment is %+v", lost, a)
		}
		if again, _ := FromExternalIDs(a.PortName, ExternalIDs(a)); again.VirtualNetwork != a.VirtualNetwork {
			t.Errorf("lost %s: the OVSDB has %+v", lost, again)
		}
	}
	// The runtime knows eth0 alone.
	r.must("GC", env, r.conf(map[string]any{"cni.dev/valid-attachments": []map[string]string{
		{"containerID": "c1", "ifname": "eth0"}}}))
	r.must("CHECK", env, check)
	within(t, netns, func() {
		link, err := netlink.LinkByName("eth2")
		if err == nil {
			err = netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.51.0.7/24"))})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	const lacks = "interface eth2 in the Pod lacks the address"
	if _, err := r.exec("CHECK", env, check); err == nil || !strings.Contains(err.Msg, lacks) {
		t.Errorf("CHECK without an address of eth2: %v", err)
	}
	r.must("DEL", env, r.conf(nil))
	r.clean()
}

// TestMultus makes the requests of Multus, which calls the plugin for eth0 and for each further interface.
func TestMultus(t *testing.T) {
	r := newRig(t)
	r.withExtras()
	netns, _ := r.netns()
	env := environment("c1", netns)
	r.must("ADD", env, r.conf(nil))
	further := func(command, ifName, network string) (string, *types.Error) {
		t.Helper()
		own := maps.Clone(env)
		own["CNI_IFNAME"] = ifName
		return r.exec(command, own, r.conf(map[string]any{"type": "contrail-k8s-cni", "name": network,
			"prevResult": map[string]any{"cniVersion": "1.0.0"}}))
	}
	for _, row := range []struct{ ifName, network, want, ip string }{
		{"net1", "blue", "eth1", "fd50::2/64"}, {"net2", "contrail-k8s-cni", "eth2", "10.51.0.7/24"},
		{"net9", "red", "eth2", "10.51.0.7/24"},
	} {
		out, err := further("ADD", row.ifName, row.network)
		if err != nil || !strings.Contains(out, `"`+row.want+`"`) || !strings.Contains(out, `"`+row.ip+`"`) {
			t.Errorf("ADD %s of %s: %s %v, want %s with %s", row.ifName, row.network, out, err, row.want, row.ip)
		}
	}
	if _, err := further("ADD", "net9", "green"); err == nil || !strings.Contains(err.Msg,
		"no interface in VirtualNetwork green for net9") {
		t.Errorf("ADD of another network: %v", err)
	}
	for _, command := range []string{"CHECK", "DEL"} {
		if _, err := further(command, "net1", "blue"); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	within(t, netns, func() {
		if _, err := netlink.LinkByName("eth1"); err != nil {
			t.Errorf("after DEL of net1: %v", err)
		}
	})
	r.must("DEL", env, r.conf(nil))
	if _, err := further("DEL", "net1", "blue"); err != nil {
		t.Errorf("DEL after DEL of eth0: %v", err)
	}
	r.clean()
}

// TestExtraFails refuses further interfaces. Nothing of the Pod remains.
func TestExtraFails(t *testing.T) {
	for name, change := range map[string]func(*fakeExtras){
		"annotation k8s.v1.cni.cncf.io/networks: VirtualNetwork default/blue is not there": func(f *fakeExtras) {
			f.err = errors.New("annotation k8s.v1.cni.cncf.io/networks: VirtualNetwork default/blue is not there")
		},
		"eth2 of VirtualNetwork default/red: this Node has no addresses": func(f *fakeExtras) { f.blind = "default/red" },
		"eth2 of VirtualNetwork default/red: address 10.51.0.1 is the range's gateway": func(f *fakeExtras) {
			f.list[1].Requested = []netip.Addr{netip.MustParseAddr("10.51.0.1")}
		},
		"eth2 of VirtualNetwork default/red: address 10.51.0.77 is in no block of this Node": func(f *fakeExtras) {
			f.list[1].Requested = []netip.Addr{netip.MustParseAddr("10.51.0.77")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			change(r.withExtras())
			netns, _ := r.netns()
			_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
			if err == nil || !strings.HasPrefix(err.Msg, "add Pod default/web-5d8f7c: "+name) {
				t.Errorf("ADD: %v, want %s", err, name)
			}
			r.clean()
		})
	}
}

// TestExtraAtOnce: the switch gets the ports of all interfaces at the same time. If it refuses one of them, nothing of
// the Pod remains.
func TestExtraAtOnce(t *testing.T) {
	for _, refused := range []string{"", "eth0", "eth1", "eth2"} {
		t.Run("refused "+refused, func(t *testing.T) {
			r := newRig(t)
			r.withExtras()
			r.node.together, r.node.begun = 3, make(chan struct{})
			if refused != "" {
				r.node.refuseAll = map[string]error{refused: errors.New("no room")}
			}
			netns, _ := r.netns()
			_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
			switch {
			case refused == "":
				if err != nil || r.node.attaches != 3 {
					t.Errorf("ADD: %v after %d ports, want 3", err, r.node.attaches)
				}
				r.must("DEL", environment("c1", netns), r.conf(nil))
			case err == nil || !strings.Contains(err.Msg, "no room"):
				t.Errorf("ADD: %v, want the refusal", err)
			}
			r.clean()
		})
	}
}

// TestExtraGC removes the further interfaces of a container that is gone.
func TestExtraGC(t *testing.T) {
	r := newRig(t)
	r.withExtras()
	netns, _ := r.netns()
	env := environment("c1", netns)
	r.must("ADD", env, r.conf(nil))
	r.must("GC", env, r.conf(map[string]any{"cni.dev/valid-attachments": []map[string]string{}}))
	r.clean()
}

// routeTo returns the interface and the next hop of packets.
func routeTo(t *testing.T, to, from string) string {
	t.Helper()
	options := &netlink.RouteGetOptions{}
	if from != "" {
		options.SrcAddr = netip.MustParseAddr(from).AsSlice()
	}
	routes, err := netlink.RouteGetWithOptions(netip.MustParseAddr(to).AsSlice(), options)
	if err != nil || len(routes) == 0 {
		return fmt.Sprint(err)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(link.Attrs().Name, " ", routes[0].Gw)
}
