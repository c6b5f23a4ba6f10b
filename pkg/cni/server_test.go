package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/go-cmp/cmp"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/sysctl"
)

// within runs f in a Pod's namespace.
func within(t *testing.T, netns string, f func()) {
	t.Helper()
	if err := ns.WithNetNSPath(netns, func(ns.NetNS) error { f(); return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestAddResult(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	env := environment("c1", netns)
	out := r.must("ADD", env, r.conf(map[string]any{"dns": map[string]any{"nameservers": []string{"10.96.0.10"}}}))
	var got types100.Result
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	port := PortName("web-5d8f7c", "c1", "eth0")
	if len(got.Interfaces) != 2 || got.Interfaces[0].Name != port || got.Interfaces[0].Sandbox != "" ||
		got.Interfaces[1].Name != "eth0" || got.Interfaces[1].Sandbox != netns {
		t.Fatalf("interfaces: %s", out)
	}
	if len(got.IPs) != 1 || *got.IPs[0].Interface != 1 || got.IPs[0].Address.String() != "10.10.1.2/24" ||
		got.IPs[0].Gateway.String() != "10.10.1.1" {
		t.Errorf("ips: %s", out)
	}
	if len(got.Routes) != 1 || got.Routes[0].Dst.String() != "0.0.0.0/0" || got.Routes[0].GW.String() != "10.10.1.1" {
		t.Errorf("routes: %s", out)
	}
	if !slices.Equal(got.DNS.Nameservers, []string{"10.96.0.10"}) {
		t.Errorf("dns: %s", out)
	}

	host, err := netlink.LinkByName(port)
	if err != nil {
		t.Fatal(err)
	}
	if host.Attrs().MTU != 1400 || host.Attrs().Flags&net.FlagUp == 0 ||
		host.Attrs().HardwareAddr.String() != got.Interfaces[0].Mac {
		t.Errorf("host's end: %+v", host.Attrs())
	}
	within(t, netns, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		if link.Attrs().MTU != 1400 || link.Attrs().HardwareAddr.String() != got.Interfaces[1].Mac ||
			link.Attrs().Flags&net.FlagUp == 0 {
			t.Errorf("eth0: %+v", link.Attrs())
		}
		if routes, err := netlink.RouteGet(net.IPv4(8, 8, 8, 8)); err != nil || routes[0].Gw.String() != "10.10.1.1" {
			t.Errorf("way to 8.8.8.8: %v %v", routes, err)
		}
		e, err := ethtool.NewEthtool()
		if err != nil {
			t.Error(err)
			return
		}
		defer e.Close()
		features, err := e.Features("eth0")
		if err != nil || features["tx-checksum-ip-generic"] || features["tx-tcp-segmentation"] {
			t.Errorf("offloads are on: %v %v", features, err)
		}
	})
	want := Attachment{
		ContainerID: "c1", IfName: "eth0", Netns: netns, PodNamespace: "default", PodName: "web-5d8f7c", PortName: port,
		PodUID: podUID,
		MAC:    got.Interfaces[1].Mac, IPs: []netip.Prefix{netip.MustParsePrefix("10.10.1.2/24")},
	}
	if diff := cmp.Diff([]Attachment{want}, r.node.Attachments(),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("attachment (-want +got):\n%s", diff)
	}
	r.must("DEL", env, r.conf(nil))
	r.clean()
}

func TestEveryVersion(t *testing.T) {
	r := newRig(t)
	for _, v := range wire.SupportedVersions {
		t.Run(v, func(t *testing.T) {
			netns, _ := r.netns()
			env := environment("v"+v, netns)
			conf := map[string]any{"cniVersion": v}
			out := r.must("ADD", env, r.conf(conf))
			if !strings.Contains(out, `"cniVersion": "`+v+`"`) {
				t.Errorf("answer: %s", out)
			}
			if v >= "0.4.0" {
				conf["prevResult"] = json.RawMessage(out)
				r.must("CHECK", env, r.conf(conf))
			}
			r.must("DEL", env, r.conf(conf))
		})
	}
	r.clean()
}

func TestAddAndDelTwice(t *testing.T) {
	r := newRig(t)
	netns, remove := r.netns()
	env := environment("c1", netns)
	first := r.must("ADD", env, r.conf(nil))
	if second := r.must("ADD", env, r.conf(nil)); second != first {
		t.Errorf("second answer differs:\n%s\n%s", first, second)
	}
	r.must("DEL", env, r.conf(nil))
	r.must("DEL", env, r.conf(nil))
	remove()
	r.must("DEL", env, r.conf(nil))
	delete(env, "CNI_NETNS")
	r.must("DEL", env, r.conf(nil))
	r.clean()
}

func TestDelAfterNamespaceGone(t *testing.T) {
	r := newRig(t)
	netns, remove := r.netns()
	env := environment("c1", netns)
	r.must("ADD", env, r.conf(nil))
	remove()
	r.must("DEL", env, r.conf(nil))
	r.clean()
}

func TestFailedAttachUndone(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	r.node.refuse = errors.New("flow refused: bad action")
	_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
	if err == nil || err.Code != 102 || !strings.Contains(err.Msg, "add Pod default/web-5d8f7c") ||
		!strings.Contains(err.Msg, "bad action") {
		t.Errorf("error: %+v", err)
	}
	r.clean()
	r.node.refuse = nil
	r.must("ADD", environment("c1", netns), r.conf(nil))
}

// A runtime that repeats ADD for a running Pod must not lose its interface when that fails.
func TestFailedRepeatKeepsPod(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	first := r.must("ADD", environment("c1", netns), r.conf(nil))
	r.node.refuse = errors.New("not now")
	if _, err := r.exec("ADD", environment("c1", netns), r.conf(nil)); err == nil {
		t.Fatal("repeated ADD succeeded")
	}
	r.must("CHECK", environment("c1", netns), r.conf(map[string]any{"prevResult": json.RawMessage(first)}))
}

// Rolling back keeps the address while the switch may still have flows for it.
func TestAddressKeptUntilFlowsGone(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	r.node.refuse, r.node.detachErr = errors.New("refused"), errors.New("the switch is away")
	_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
	if err == nil || !strings.Contains(err.Details, "the switch is away") {
		t.Errorf("error: %+v", err)
	}
	if len(r.store.Keys()) != 1 {
		t.Errorf("addresses on record: %v, want one", r.store.Keys())
	}
	if _, err := r.exec("DEL", environment("c1", netns), r.conf(nil)); err == nil {
		t.Error("DEL succeeded although the switch is away")
	}
	r.node.detachErr = nil
	r.must("DEL", environment("c1", netns), r.conf(nil))
	r.clean()
}

// TestNamespaceRemade repeats ADD for a container whose network namespace was made again. The switch gives the port up
// before its device is exchanged.
func TestNamespaceRemade(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("the old one is gone %t", gone), func(t *testing.T) {
			r := newRig(t)
			before, remove := r.netns()
			r.must("ADD", environment("c1", before), r.conf(nil))
			port := r.node.Attachments()[0].PortName
			if gone {
				remove()
				r.eventually("the kernel to remove the veth pair", func() bool {
					_, err := netlink.LinkByName(port)
					return isNotFound(err)
				})
			}
			after, _ := r.netns()
			r.must("ADD", environment("c1", after), r.conf(nil))
			r.must("CHECK", environment("c1", after),
				r.conf(map[string]any{"prevResult": json.RawMessage(r.must("ADD", environment("c1", after), r.conf(nil)))}))
			r.must("DEL", environment("c1", after), r.conf(nil))
			r.clean()
		})
	}
}

func TestInterrupted(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	r.node.hang = make(chan struct{})
	answered := make(chan uint)
	go func() {
		_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
		if err == nil {
			answered <- 0
			return
		}
		answered <- err.Code
	}()
	<-r.node.hang
	r.stop()
	if code := <-answered; code != 11 {
		t.Errorf("ADD of a stopping agent: code %d, want 11", code)
	}
	r.clean()
	if _, err := r.exec("DEL", environment("c1", netns), r.conf(nil)); err == nil || err.Code != 11 {
		t.Errorf("DEL without an agent: %+v, want code 11", err)
	}
	r.node.hang = nil
	r.start()
	r.must("ADD", environment("c1", netns), r.conf(nil))
}

// TestInterruptedInTime stops the agent while the switch does not run. The agent ends in time, also if it cannot undo
// an ADD.
func TestInterruptedInTime(t *testing.T) {
	manifest, err := os.ReadFile("../../deploy/agent/tombolo.yml")
	if err != nil {
		t.Fatal(err)
	}
	grace := regexp.MustCompile(`terminationGracePeriodSeconds: (\d+)`).FindSubmatch(manifest)
	if grace == nil {
		t.Fatal("the agent has no terminationGracePeriodSeconds")
	}
	seconds, err := strconv.Atoi(string(grace[1]))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	netns, _ := r.netns()
	r.node.hang, r.node.away = make(chan struct{}), true
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = r.exec("ADD", environment("c1", netns), r.conf(nil)) // TestInterrupted looks at the answer
	}()
	<-r.node.hang
	started := time.Now()
	r.stop()
	if took := time.Since(started); took > time.Duration(seconds)*time.Second-500*time.Millisecond {
		t.Errorf("the server ended after %s, the agent is killed after %d s", took, seconds)
	}
	<-answered
}

// TestRecoverAfterKill kills the agent in the middle of ADD, at each point. A retry continues from there. The next
// start frees an address without an interface, and leaves a veth pair to DEL or GC.
func TestRecoverAfterKill(t *testing.T) {
	k := ipam.Key{ContainerID: "c1", IfName: "eth0"}
	port := PortName("web-5d8f7c", "c1", "eth0")
	for _, row := range []struct {
		name        string
		veth, alias bool
		done        bool // the record has the interface
	}{
		{name: "after the address, of an earlier version"},
		{name: "after the address", done: true},
		{name: "after the veth pair, before its alias, of an earlier version", veth: true},
		{name: "after the veth pair, before its alias", veth: true, done: true},
		{name: "after the veth pair, of an earlier version", veth: true, alias: true},
		{name: "after the veth pair", veth: true, alias: true, done: true},
	} {
		interrupted := func(t *testing.T) (r *rig, netns string, ip string) {
			r = newRig(t)
			netns, _ = r.netns()
			network, _ := r.node.Network(t.Context())
			box := sandbox{netns: netns, containerID: "c1", ifName: "eth0", portName: port, gateways: network.Gateways,
				mtu: 1400}
			var described ipam.Interface
			if row.done {
				described = box.described()
			}
			ips, err := r.store.Allocate(k, "default/web-5d8f7c", described, network.ranges())
			if err != nil {
				t.Fatal(err)
			}
			if !row.veth {
				return r, netns, ips[0].String()
			}
			box.ips = ips
			pair, err := box.make()
			if err != nil {
				t.Fatal(err)
			}
			defer pair.pod.Close()
			err = box.configure(pair)
			if err == nil && !row.alias {
				var link netlink.Link
				if link, err = netlink.LinkByName(port); err == nil {
					err = netlink.LinkSetAlias(link, "")
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			return r, netns, ips[0].String()
		}
		t.Run(row.name+", retry", func(t *testing.T) {
			r, netns, ip := interrupted(t)
			if out := r.must("ADD", environment("c1", netns), r.conf(nil)); !strings.Contains(out, ip) {
				t.Errorf("answer %s, want %s", out, ip)
			}
			r.must("DEL", environment("c1", netns), r.conf(nil))
			r.clean()
		})
		for _, last := range []string{"DEL", "GC"} {
			t.Run(row.name+", restart, "+last, func(t *testing.T) {
				r, netns, _ := interrupted(t)
				r.stop()
				r.start()
				_, err := netlink.LinkByName(port)
				if has := err == nil; has != row.veth {
					t.Errorf("after the restart %s is there: %t, want %t", port, has, row.veth)
				}
				if held := len(r.store.Keys()) == 1; held != row.veth {
					t.Errorf("after the restart the address is held: %t, want %t", held, row.veth)
				}
				env, conf := environment("c1", netns), map[string]any{}
				if last == "GC" {
					env, conf = nil, map[string]any{"cni.dev/valid-attachments": []any{}}
				}
				r.must(last, env, r.conf(conf))
				r.clean()
			})
		}
	}
}

func TestRecover(t *testing.T) {
	r := newRig(t)
	alive, _ := r.netns()
	gone, remove := r.netns()
	first := r.must("ADD", environment("alive", alive), r.conf(nil))
	r.must("ADD", environment("gone", gone), r.conf(nil))
	r.stop()
	remove()
	r.eventually("the kernel to take the veth pair", func() bool {
		_, err := netlink.LinkByName(PortName("web-5d8f7c", "gone", "eth0"))
		return isNotFound(err)
	})
	if err := os.Remove(r.dir + "/ipam.json"); err != nil { // rebuilt from the attachments
		t.Fatal(err)
	}
	r.start()
	r.eventually("the gone Pod to be detached",
		func() bool { return len(r.node.Attachments()) == 1 && len(r.store.Keys()) == 1 })
	r.must("CHECK", environment("alive", alive), r.conf(map[string]any{"prevResult": json.RawMessage(first)}))
	if again := r.must("ADD", environment("alive", alive), r.conf(nil)); again != first {
		t.Errorf("answer after the restart differs:\n%s\n%s", first, again)
	}
}

func TestNotReady(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	r.node.mu.Lock()
	r.node.network = nil
	r.node.mu.Unlock()
	_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
	if err == nil || err.Code != 11 || !strings.Contains(err.Details, "the bridge is not there") {
		t.Errorf("ADD: %+v, want code 11", err)
	}
	if _, err := r.exec("STATUS", nil, r.conf(nil)); err == nil || err.Code != 50 {
		t.Errorf("STATUS: %+v, want code 50", err)
	}
	r.clean()
}

// TestGC calls GC as runtimes do, right and wrong. There is an interface of the installed network (c1 eth0), one of
// another network (c3 net1), and one of a container that is gone (c2).
func TestGC(t *testing.T) {
	attachment := func(container, ifName string) map[string]string {
		return map[string]string{"containerID": container, "ifname": ifName}
	}
	list := func(l ...map[string]string) []map[string]string { return append([]map[string]string{}, l...) }
	c1, net1, c2 := attachment("c1", "eth0"), attachment("c3", "net1"), attachment("c2", "eth0")
	const valid, old = "cni.dev/valid-attachments", "cni.dev/attachments"
	all := []string{"c1 eth0", "c2 eth0", "c3 net1"}
	r := newRig(t)
	n1, _ := r.netns()
	n2, _ := r.netns()
	n3, _ := r.netns()
	second := environment("c3", n3)
	second["CNI_IFNAME"] = "net1"
	interfaces := func() []string {
		var out []string
		for _, a := range r.node.Attachments() {
			out = append(out, a.ContainerID+" "+a.IfName)
		}
		slices.Sort(out)
		return out
	}
	for _, row := range []struct {
		name string
		conf map[string]any
		code uint // 0: no error
		want []string
	}{
		{"a container that is gone", map[string]any{valid: list(c1)}, 0, []string{"c1 eth0", "c3 net1"}},
		{"nothing is left", map[string]any{valid: list()}, 0, []string{"c3 net1"}},
		{"both keys, as libcni writes them", map[string]any{valid: list(c2), old: list(c2)}, 0,
			[]string{"c2 eth0", "c3 net1"}},
		{"another network without attachments", map[string]any{"name": "third", valid: list()}, 0, all},
		{"the second interface's network", map[string]any{"name": "second", valid: list()}, 0,
			[]string{"c1 eth0", "c2 eth0"}},
		{"the second interface is valid", map[string]any{"name": "second", valid: list(net1)}, 0, all},
		{"under the first text's key", map[string]any{old: list(c1, c2)}, 0, all},
		{"the lists differ", map[string]any{valid: list(c1), old: list(c2)}, 0, all},
		{"no list", nil, 7, all},
		{"null", map[string]any{valid: json.RawMessage("null"), old: json.RawMessage("null")}, 7, all},
		{"an entry without an interface", map[string]any{valid: list(c1, map[string]string{"containerID": "c2"})}, 7, all},
		{"an empty entry", map[string]any{valid: list(map[string]string{})}, 7, all},
		{"not a list", map[string]any{valid: "c1"}, 6, all},
	} {
		t.Run(row.name, func(t *testing.T) {
			r.must("ADD", environment("c1", n1), r.conf(nil))
			r.must("ADD", second, r.conf(map[string]any{"name": "second"}))
			r.must("ADD", environment("c2", n2), r.conf(nil))
			_, err := r.exec("GC", nil, r.conf(row.conf))
			if (err == nil) != (row.code == 0) || err != nil && err.Code != row.code {
				t.Errorf("GC: %+v, want code %d", err, row.code)
			}
			if diff := cmp.Diff(row.want, interfaces()); diff != "" {
				t.Errorf("after GC (-want +got):\n%s", diff)
			}
		})
	}
	// The OVSDB has lost the network's name; here the address record has it.
	r.must("ADD", second, r.conf(map[string]any{"name": "second"}))
	r.stop()
	r.node = newFakeNode("10.10.1.0/24")
	r.start()
	r.must("GC", nil, r.conf(map[string]any{valid: list()}))
	if diff := cmp.Diff([]string{"c3 net1"}, interfaces()); diff != "" {
		t.Errorf("after a loss of the OVSDB and GC (-want +got):\n%s", diff)
	}
	r.must("GC", nil, r.conf(map[string]any{"name": "second", valid: list()}))
	r.clean()
}

// TestSecondInterface adds interfaces of a second network: to a Pod whose default route is through the first, and to a
// Pod without a default route.
func TestSecondInterface(t *testing.T) {
	r := newRig(t)
	n1, _ := r.netns()
	n2, _ := r.netns()
	r.must("ADD", environment("c1", n1), r.conf(nil))
	second := environment("c1", n1)
	second["CNI_IFNAME"] = "net1"
	conf := r.conf(map[string]any{"name": "second"})
	before := r.leftovers()
	_, err := r.exec("ADD", second, conf)
	if err == nil || err.Code != 7 || !strings.Contains(err.Msg, "would take its default route, which is through eth0") ||
		!strings.Contains(err.Details, "k8s.v1.cni.cncf.io/networks") {
		t.Errorf("ADD of a second interface: %+v", err)
	}
	if diff := cmp.Diff(before, r.leftovers()); diff != "" {
		t.Errorf("the refused ADD left (-want +got):\n%s", diff)
	}
	within(t, n1, func() {
		if routes, err := netlink.RouteGet(net.IPv4(8, 8, 8, 8)); err != nil || routes[0].Gw.String() != "10.10.1.1" {
			t.Errorf("way to 8.8.8.8: %v %v", routes, err)
		}
	})
	r.must("DEL", second, conf)
	only := environment("c2", n2)
	only["CNI_IFNAME"] = "net1"
	r.must("ADD", only, conf)
	r.must("ADD", only, conf) // its own route does not count
	r.must("DEL", only, conf)
	r.must("DEL", environment("c1", n1), r.conf(nil))
	r.clean()
}

func TestCheckDifference(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(t *testing.T, r *rig, netns string)
		code  uint
		want  string
	}{
		{"host interface removed", func(t *testing.T, _ *rig, _ string) {
			if err := removeLink(PortName("web-5d8f7c", "c1", "eth0"), ipam.Key{ContainerID: "c1", IfName: "eth0"}); err != nil {
				t.Fatal(err)
			}
		}, 103, "host interface web-5d8f-"},
		{"address removed", func(t *testing.T, _ *rig, netns string) {
			within(t, netns, func() {
				link, err := netlink.LinkByName("eth0")
				if err == nil {
					err = netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.10.1.2/24"))})
				}
				if err != nil {
					t.Error(err)
				}
			})
		}, 103, "lacks the address 10.10.1.2/24"},
		{"route removed", func(t *testing.T, _ *rig, netns string) {
			within(t, netns, func() {
				if err := netlink.RouteDel(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0"))}); err != nil {
					t.Error(err)
				}
			})
		}, 103, "lacks the route to 0.0.0.0/0 via 10.10.1.1"},
		{"another Pod of the name", func(_ *testing.T, r *rig, _ string) {
			r.node.mu.Lock()
			defer r.node.mu.Unlock()
			for k, a := range r.node.attached {
				a.PodUID = "another"
				r.node.attached[k] = a
			}
		}, 103, "CNI_ARGS has the UID " + podUID},
		{"attachment gone", func(t *testing.T, r *rig, _ string) {
			r.node.mu.Lock()
			defer r.node.mu.Unlock()
			r.node.attached = map[ipam.Key]Attachment{}
		}, 3, "container c1 has no interface eth0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			netns, _ := r.netns()
			env := environment("c1", netns)
			conf := r.conf(map[string]any{"prevResult": json.RawMessage(r.must("ADD", env, r.conf(nil)))})
			r.must("CHECK", env, conf)
			row.spoil(t, r, netns)
			_, err := r.exec("CHECK", env, conf)
			if err == nil || err.Code != row.code || !strings.Contains(err.Msg, row.want) {
				t.Errorf("CHECK: %+v, want code %d and %q", err, row.code, row.want)
			}
			r.must("DEL", env, r.conf(nil))
		})
	}
}

func TestBadRequests(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	good := environment("c1", netns)
	without := func(key, value string) map[string]string {
		env := environment("c1", netns)
		env[key] = value
		return env
	}
	const named = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID="
	for _, row := range []struct {
		name    string
		command string
		env     map[string]string
		conf    string
		code    uint
		want    string // in message or details
	}{
		{"no JSON", "ADD", good, "{", 6, "network configuration"},
		{"name missing", "ADD", good, r.conf(map[string]any{"name": nil}), 7, "name"},
		{"version unknown", "ADD", good, r.conf(map[string]any{"cniVersion": "0.9.0"}), 1, `"0.3.0" "0.3.1"`},
		{"version too old", "ADD", good, r.conf(map[string]any{"cniVersion": "0.2.0"}), 1, `"0.3.0" "0.3.1"`},
		{"mtu too small", "ADD", good, r.conf(map[string]any{"mtu": 68}), 7, "mtu has 68, want 576 to 65535"},
		{"bandwidth too small", "ADD", good,
			r.conf(map[string]any{"runtimeConfig": map[string]any{"bandwidth": map[string]any{"ingressRate": 8}}}), 7,
			"runtimeConfig.bandwidth.ingressRate has 8, want 1000 or more"},
		{"protocol of a hostPort", "ADD", good, r.conf(ports(`{"hostPort":80,"containerPort":80,"protocol":"icmp"}`)), 7,
			`runtimeConfig.portMappings[0].protocol has "icmp", want tcp, udp or sctp`},
		{"hostPort too large", "ADD", good, r.conf(ports(`{"hostPort":65616,"containerPort":80}`)), 7,
			"portMappings[0].hostPort has 65616, want 1 to 65535"},
		{"containerPort missing", "ADD", good, r.conf(ports(`{"hostPort":80}`)), 7,
			"portMappings[0].containerPort has 0, want 1 to 65535"},
		{"hostIP of a hostPort", "ADD", good, r.conf(ports(`{"hostPort":80,"containerPort":80,"hostIP":"node-1"}`)), 7,
			`portMappings[0].hostIP has "node-1", want an address of the Node`},
		{"a hostPort twice", "ADD", good, r.conf(ports(`{"hostPort":80,"containerPort":80},
			{"hostPort":80,"containerPort":81,"hostIP":"127.0.0.1"}`)), 7,
			"portMappings[1].hostPort has 127.0.0.1:80/tcp, which leads to port 80 of the Pod already"},
		{"mtu of the wrong type", "ADD", good, r.conf(map[string]any{"mtu": "big"}), 6, "mtu has a string"},
		{"another IPAM", "ADD", good, r.conf(map[string]any{"ipam": map[string]any{"type": "dhcp"}}), 2, `ipam.type "dhcp"`},
		{"pools of Antrea", "ADD", good, r.conf(map[string]any{"ipam": map[string]any{"type": "antrea"}}), 2,
			"addresses come from the Node's podCIDR"},
		{"ranges of its own", "ADD", good,
			r.conf(map[string]any{"ipam": map[string]any{"type": "host-local",
				"ranges": []any{[]any{map[string]any{"subnet": "10.1.0.0/24"}}}}}), 2, "ipam.ranges"},
		{"SR-IOV", "ADD", good, r.conf(map[string]any{"deviceID": "0000:00:01.0"}), 2, "deviceID"},
		{"chained behind another plugin", "ADD", good,
			r.conf(map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0", "ips": []any{}}}), 2,
			"put it first in the list"},
		{"socket of the wrong type", "ADD", good, r.conf(map[string]any{"socket": 7}), 6, "socket"},
		{"agent not there", "ADD", good, r.conf(map[string]any{"socket": r.dir + "/none.sock"}), 11, "does not answer at " +
			r.dir + "/none.sock"},
		{"netns missing", "ADD", without("CNI_NETNS", ""), r.conf(nil), 4, "CNI_NETNS"},
		{"netns not there", "ADD", without("CNI_NETNS", "/run/nowhere"), r.conf(nil), 4, "CNI_NETNS cannot be used"},
		{"netns is a file", "ADD", without("CNI_NETNS", plugin), r.conf(nil), 4, "CNI_NETNS cannot be used"},
		{"netns is the Node's", "ADD", without("CNI_NETNS", "/proc/self/ns/net"), r.conf(nil), 4,
			"the Node's own network namespace"},
		{"no Pod named", "ADD", without("CNI_ARGS", "IgnoreUnknown=1"), r.conf(nil), 4, "K8S_POD_NAME"},
		{"UID that is none", "ADD", without("CNI_ARGS", named+"a b"), r.conf(nil), 4, "K8S_POD_UID"},
		{"UID without end", "ADD", without("CNI_ARGS", named+strings.Repeat("a", 129)), r.conf(nil), 4, "K8S_POD_UID"},
		{"no container", "DEL", without("CNI_CONTAINERID", ""), r.conf(nil), 4, "CNI_CONTAINERID"},
		{"check without the result", "CHECK", good, r.conf(nil), 7, "prevResult is missing"},
		{"check of nobody", "CHECK", good, r.conf(map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0"}}), 3,
			"container c1"},
		{"command unknown", "FROB", good, r.conf(nil), 4, "FROB"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := r.exec(row.command, row.env, row.conf)
			if err == nil {
				t.Fatal("succeeded")
			}
			if err.Code != row.code || !strings.Contains(err.Msg+"; "+err.Details, row.want) {
				t.Errorf("code %d: %s; %s\nwant code %d and %q", err.Code, err.Msg, err.Details, row.code, row.want)
			}
			if err.Details == "" && err.Code != 101 && err.Code != 102 {
				t.Errorf("no remedy: %+v", err)
			}
		})
	}
	r.clean()
}

// TestNameIsTaken has foreign interfaces under the name of a Pod's interface. The ADD is refused, and neither ADD nor
// DEL removes the foreign interface.
func TestNameIsTaken(t *testing.T) {
	for _, row := range []struct{ name, alias, want string }{
		{"by another container", alias("other", "eth0", "default/other"), "is taken by interface eth0 of container other"},
		{"by somebody else", "", "that tombolo did not make"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			netns, _ := r.netns()
			port := PortName("web-5d8f7c", "c1", "eth0")
			attrs := netlink.NewLinkAttrs()
			attrs.Name = port
			theirs := netlink.NewVeth(attrs)
			theirs.PeerName = "theirs"
			if err := netlink.LinkAdd(theirs); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = netlink.LinkDel(theirs) })
			if err := netlink.LinkSetAlias(theirs, row.alias); err != nil {
				t.Fatal(err)
			}
			_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
			if err == nil || !strings.Contains(err.Msg+"; "+err.Details, row.want) {
				t.Errorf("ADD: %+v, want %q", err, row.want)
			}
			r.must("DEL", environment("c1", netns), r.conf(nil))
			if _, err := netlink.LinkByName(port); err != nil {
				t.Errorf("the other's interface: %v", err)
			}
		})
	}
}

func TestForeignInterfaceInPod(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	within(t, netns, func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			t.Error(err)
		}
	})
	_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
	if err == nil || err.Code != 102 || !strings.Contains(err.Msg, "interface eth0 already") {
		t.Errorf("ADD: %+v", err)
	}
	r.clean()
}

func TestManyAtOnce(t *testing.T) {
	r := newRig(t)
	const n = 12
	var wg sync.WaitGroup
	answers := make([]string, n)
	paths := make([]string, n)
	for i := range n {
		paths[i], _ = r.netns()
	}
	for i := range n {
		wg.Go(func() {
			// The same container twice at once: one waits for the other.
			env := environment(fmt.Sprintf("c%d", i/2*2), paths[i/2*2])
			out, err := r.exec("ADD", env, r.conf(nil))
			if err != nil {
				t.Errorf("ADD %d: %+v", i, err)
			}
			answers[i] = out
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i := 0; i < n; i += 2 {
		if answers[i] != answers[i+1] {
			t.Errorf("two answers for one container:\n%s\n%s", answers[i], answers[i+1])
		}
		seen[answers[i]] = true
	}
	if len(seen) != n/2 || len(r.store.Keys()) != n/2 {
		t.Errorf("%d different answers and %d addresses for %d containers", len(seen), len(r.store.Keys()), n/2)
	}
}

func TestDualStack(t *testing.T) {
	r := newRig(t)
	r.node.network.PodCIDRs = append(r.node.network.PodCIDRs, netip.MustParsePrefix("fd00:10::/64"))
	netns, _ := r.netns()
	env := environment("c1", netns)
	out := r.must("ADD", env, r.conf(nil))
	for _, want := range []string{"10.10.1.2/24", "fd00:10::2/64", `"gw": "fd00:10::1"`, `"dst": "::/0"`} {
		if !strings.Contains(out, want) {
			t.Errorf("answer lacks %s: %s", want, out)
		}
	}
	var got types100.Result
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.IPs) != 2 || got.IPs[0].Address.IP.To4() == nil {
		t.Errorf("addresses in the order of podCIDRs: %v %s", err, out)
	}
	check := func() *types.Error {
		_, err := r.exec("CHECK", env, r.conf(map[string]any{"prevResult": json.RawMessage(out)}))
		return err
	}
	gateway := net.ParseIP("fd00:10::1")
	mac := r.node.network.GatewayMAC
	within(t, netns, func() {
		for key, want := range map[string]string{"disable_ipv6": "0", "accept_ra": "0"} {
			if have, err := sysctl.Get("net/ipv6/conf/eth0/" + key); err != nil || have != want {
				t.Errorf("%s of eth0 is %q: %v", key, have, err)
			}
		}
		// Everything goes to the gateway, whose MAC is known.
		for _, to := range []string{"fd00:10::3", "2001:db8::1"} {
			routes, err := netlink.RouteGet(net.ParseIP(to))
			if err != nil || !routes[0].Gw.Equal(gateway) {
				t.Errorf("way to %s: %v %v", to, routes, err)
			}
		}
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		known, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V6)
		if err != nil || !slices.ContainsFunc(known, func(n netlink.Neigh) bool {
			return n.IP.Equal(gateway) && n.HardwareAddr.String() == mac && n.State == netlink.NUD_PERMANENT
		}) {
			t.Errorf("neighbours: %v %v", known, err)
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if err != nil || !slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
			return a.String() == "fd00:10::2/64" && a.Flags&unix.IFA_F_TENTATIVE == 0
		}) {
			t.Errorf("addresses: %v %v", addrs, err)
		}
	})
	if err := check(); err != nil {
		t.Errorf("CHECK: %+v", err)
	}
	if second := r.must("ADD", env, r.conf(nil)); second != out {
		t.Errorf("a repeated ADD differs:\n%s\n%s", out, second)
	}
	within(t, netns, func() {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: gateway})
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := check(); err == nil || !strings.Contains(err.Msg, "lacks the permanent neighbour fd00:10::1") {
		t.Errorf("CHECK without the neighbour: %+v", err)
	}
	r.must("DEL", env, r.conf(nil))
	// A runtime that turns IPv6 off in new namespaces, and an MTU that IPv6 does not allow.
	off, _ := r.netns()
	within(t, off, func() {
		if err := sysctl.Set("net/ipv6/conf/default/disable_ipv6", "1"); err != nil {
			t.Error(err)
		}
	})
	env = environment("c2", off)
	if _, err := r.exec("ADD", env, r.conf(map[string]any{"mtu": 1000})); err == nil || err.Code != 7 ||
		!strings.Contains(err.Msg, "want 1280 to 65535 on a Node with IPv6") {
		t.Errorf("an MTU of 1000: %+v", err)
	}
	out = r.must("ADD", env, r.conf(nil))
	if err := check(); err != nil {
		t.Errorf("CHECK where IPv6 was off: %+v", err)
	}
	r.must("DEL", env, r.conf(nil))
	r.clean()
}

func TestExhausted(t *testing.T) {
	r := newRig(t)
	r.node.network = newFakeNode("10.20.0.0/30").network
	n1, _ := r.netns()
	n2, _ := r.netns()
	r.must("ADD", environment("c1", n1), r.conf(nil))
	_, err := r.exec("ADD", environment("c2", n2), r.conf(nil))
	if err == nil || err.Code != 101 || !strings.Contains(err.Msg, "address range 10.20.0.0/30 exhausted: 1 held") {
		t.Errorf("ADD: %+v", err)
	}
	r.must("DEL", environment("c1", n1), r.conf(nil))
	r.must("ADD", environment("c2", n2), r.conf(nil))
}

func TestPortName(t *testing.T) {
	for _, row := range []struct{ pod, container, ifName, want string }{
		{"nginx", "abc", "eth0", "nginx-a9993e"},           // SHA-1 of "abc", FIPS 180-2 A.1
		{"coredns-7d89", "abc", "eth0", "coredns--a9993e"}, // eight characters, its dash among them
		{"web", "abc", "net1", "web-5ad0c8"},
	} {
		got := PortName(row.pod, row.container, row.ifName)
		if got != row.want {
			t.Errorf("PortName(%q, %q, %q) = %q, want %q", row.pod, row.container, row.ifName, got, row.want)
		}
		if len(got) > 15 {
			t.Errorf("%q is longer than an interface's name may be", got)
		}
	}
}

func TestExternalIDsRoundTrip(t *testing.T) {
	a := Attachment{
		ContainerID: "c", IfName: "net1", Netns: "/run/netns/x", PodNamespace: "ns", PodName: "pod", PortName: "pod-123456",
		MAC: "02:00:00:00:00:01", Bandwidth: Bandwidth{FromPod: Rate{1_000_000, 20_000}},
		HostPorts: HostPorts{{Protocol: "tcp", Port: 80, Container: 8080},
			{"sctp", netip.MustParseAddr("127.0.0.1"), 9, 10}, {"udp", netip.MustParseAddr("fd00::1"), 53, 53}},
		IPs: []netip.Prefix{netip.MustParsePrefix("10.10.1.2/24"), netip.MustParsePrefix("fd00::2/64")},
	}
	got, ok := FromExternalIDs("pod-123456", ExternalIDs(a))
	if diff := cmp.Diff(a, got, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y }),
		cmp.Comparer(func(x, y HostPort) bool { return x == y })); !ok || diff != "" {
		t.Errorf("round trip %t (-want +got):\n%s", ok, diff)
	}
	if _, ok := FromExternalIDs("antrea-gw0", map[string]string{"antrea-type": "gateway"}); ok {
		t.Error("the gateway port is no attachment")
	}
	if got, ok := FromExternalIDs("p", map[string]string{"antrea-type": "container", "container-id": "c",
		"ip-address": "10.0.0.1,junk"}); !ok || got.IfName != "eth0" || len(got.IPs) != 1 || got.IPs[0].Bits() != 32 {
		t.Errorf("record without prefix lengths: %+v %t", got, ok)
	}
}
