package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// withFirst has Pods request that eth0 is in a VirtualNetwork, and eth1 in another one.
func (r *rig) withFirst() *fakeExtras {
	f := r.withExtras()
	f.list[0].IfName, f.list[1].IfName, f.list[0].Joined = defaultIfName, "eth1", nil
	return f
}

// TestFirstInterface makes a Pod whose first interface is in a VirtualNetwork. The runtime gets the addresses of its
// Subnets. The agent starts again, the records are lost, and the Pod goes.
func TestFirstInterface(t *testing.T) {
	r := newRig(t)
	r.withFirst()
	netns, _ := r.netns()
	env := environment("c1", netns)
	result := r.must("ADD", env, r.conf(nil))
	for _, want := range []string{`"address": "10.50.0.2/24"`, `"gateway": "10.50.0.1"`, `"address": "fd50::2/64"`,
		`"gateway": "fd50::1"`} {
		if !strings.Contains(result, want) {
			t.Errorf("the result lacks %s: %s", want, result)
		}
	}
	if strings.Contains(result, "10.10.1.") || strings.Contains(result, "10.51.0.") {
		t.Errorf("the result has addresses of the Node, or of another interface: %s", result)
	}
	within(t, netns, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil || len(addrs) != 1 || addrs[0].IPNet.String() != "10.50.0.2/24" {
			t.Errorf("eth0 has %v: %v", addrs, err)
		}
		for to, via := range map[string]string{"10.50.0.99": "eth0 10.50.0.1", "192.0.2.1": "eth0 10.50.0.1",
			"2001:db8::1": "eth0 fd50::1", "fd50::99": "eth0 fd50::1", "10.51.0.9": "eth1 10.51.0.1"} {
			if have := routeTo(t, to, ""); have != via {
				t.Errorf("to %s: %s, want %s", to, have, via)
			}
		}
	})
	check := r.conf(map[string]any{"prevResult": json.RawMessage(result)})
	r.must("CHECK", env, check)
	if again := r.must("ADD", env, r.conf(nil)); again != result {
		t.Errorf("another ADD returns %s, want %s", again, result)
	}
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
		r.withFirst()
		a := r.node.attached[ipam.Key{ContainerID: "c1", IfName: "eth0"}]
		if a.VirtualNetwork != "default/blue" || fmt.Sprint(a.IPs) != "[10.50.0.2/24 fd50::2/64]" {
			t.Errorf("lost %s: the attachment is %+v", lost, a)
		}
	}
	valid := func(list ...string) string {
		var out []map[string]string
		for _, name := range list {
			out = append(out, map[string]string{"containerID": name, "ifname": "eth0"})
		}
		return r.conf(map[string]any{"cni.dev/valid-attachments": out})
	}
	r.must("GC", env, valid("c1"))
	r.must("CHECK", env, check)
	r.must("DEL", env, r.conf(nil))
	r.clean()
	r.must("ADD", env, r.conf(nil))
	r.must("GC", env, valid("c2"))
	r.clean()
}

// TestFirstInside makes a Pod whose own network is a separate one. The runtime gets addresses of the Node, and a
// further interface has the addresses of the network. The agent starts again, the records are lost, and the Pod goes.
func TestFirstInside(t *testing.T) {
	r := newRig(t)
	prepare := func() {
		f := r.withExtras()
		f.list[0].IfName = "vn0"
		f.list = append([]Extra{{Routes: Routes{IfName: defaultIfName}, Inside: "default/blue"}}, f.list[:1]...)
	}
	prepare()
	netns, _ := r.netns()
	env := environment("c1", netns)
	result := r.must("ADD", env, r.conf(nil))
	if !strings.Contains(result, `"address": "10.10.1.`) || strings.Contains(result, "10.50.0.") {
		t.Errorf("the result has other addresses than these of the Node: %s", result)
	}
	within(t, netns, func() {
		for to, via := range map[string]string{"10.50.0.99": "vn0 10.50.0.1", "10.52.0.9": "vn0 10.50.0.1",
			"192.0.2.1": "eth0 10.10.1.1", "10.10.2.9": "eth0 10.10.1.1"} {
			if have := routeTo(t, to, ""); have != via {
				t.Errorf("to %s: %s, want %s", to, have, via)
			}
		}
	})
	check := r.conf(map[string]any{"prevResult": json.RawMessage(result)})
	r.must("CHECK", env, check)
	if again := r.must("ADD", env, r.conf(nil)); again != result {
		t.Errorf("another ADD returns %s, want %s", again, result)
	}
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
		prepare()
		for ifName, want := range map[string]string{"eth0": " default/blue", "vn0": "default/blue "} {
			a := r.node.attached[ipam.Key{ContainerID: "c1", IfName: ifName}]
			recorded, _ := FromExternalIDs(a.PortName, ExternalIDs(a))
			if have := a.VirtualNetwork + " " + a.Inside; have != want ||
				recorded.VirtualNetwork != a.VirtualNetwork || recorded.Inside != a.Inside {
				t.Errorf("lost %s: %s is in %q, want %q; its port has %+v", lost, ifName, have, want, recorded)
			}
		}
	}
	r.must("CHECK", env, check)
	r.must("DEL", env, r.conf(nil))
	r.clean()
}

// TestFirstInterfaceFails refuses the first interface. Nothing of the Pod remains.
func TestFirstInterfaceFails(t *testing.T) {
	for name, change := range map[string]func(*fakeExtras){
		"eth0 of VirtualNetwork default/blue: this Node has no addresses": func(f *fakeExtras) { f.blind = "default/blue" },
		"eth1 of VirtualNetwork default/red: this Node has no addresses":  func(f *fakeExtras) { f.blind = "default/red" },
		"eth0 of VirtualNetwork default/blue: address 10.50.0.1 is the range's gateway": func(f *fakeExtras) {
			f.list[0].Requested = []netip.Addr{netip.MustParseAddr("10.50.0.1")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			change(r.withFirst())
			netns, _ := r.netns()
			_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
			if err == nil || !strings.HasPrefix(err.Msg, "add Pod default/web-5d8f7c: "+name) {
				t.Errorf("ADD: %v, want %s", err, name)
			}
			r.clean()
		})
	}
}
