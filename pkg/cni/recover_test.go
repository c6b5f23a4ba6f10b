package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// TestRebuild loses records of attachments, one and several at a time. A running Pod keeps its interface and its
// address. The attachment comes back whole from the remaining records.
func TestRebuild(t *testing.T) {
	port := PortName("web-5d8f7c", "c1", "eth0")
	ovsdb := func(t *testing.T, r *rig) { clear(r.node.attached) }
	file := func(t *testing.T, r *rig) {
		if err := os.Remove(r.dir + "/ipam.json"); err != nil {
			t.Fatal(err)
		}
	}
	corrupt := func(t *testing.T, r *rig) {
		if err := os.WriteFile(r.dir+"/ipam.json", []byte(`{"version":1,"rec`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// earlier makes the address record one of a version that kept less in it.
	earlier := func(t *testing.T, r *rig) {
		if err := r.store.Describe(ipam.Key{ContainerID: "c1", IfName: "eth0"}, ipam.Interface{}); err != nil {
			t.Fatal(err)
		}
	}
	unnamed := func(t *testing.T, _ *rig) {
		link, err := netlink.LinkByName(port)
		if err == nil {
			err = netlink.LinkSetAlias(link, alias("c1", "eth0", ""))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// unidentified rewrites the ports as an earlier version wrote them.
	unidentified := func(_ *testing.T, r *rig) {
		for k, a := range r.node.attached {
			a.PodUID = ""
			r.node.attached[k] = a
		}
	}
	damaged := func(_ *testing.T, r *rig) {
		for k, a := range r.node.attached {
			a.MAC, a.IPs = "", nil
			r.node.attached[k] = a
		}
	}
	for _, row := range []struct {
		name    string
		lose    []func(*testing.T, *rig)
		unnamed bool // no record has its Pod
		noUID   bool // no record has the UID of its Pod
	}{
		{name: "OVSDB", lose: []func(*testing.T, *rig){ovsdb}},
		{name: "OVSDB, record of an earlier version", lose: []func(*testing.T, *rig){ovsdb, earlier}, noUID: true},
		{name: "UID of the OVSDB", lose: []func(*testing.T, *rig){unidentified}},
		{name: "UID", lose: []func(*testing.T, *rig){unidentified, earlier}, noUID: true},
		{name: "OVSDB damaged, without UID", lose: []func(*testing.T, *rig){damaged, unidentified}},
		{name: "OVSDB damaged, record lost", lose: []func(*testing.T, *rig){damaged, file}},
		{name: "OVSDB damaged", lose: []func(*testing.T, *rig){damaged}},
		{name: "record", lose: []func(*testing.T, *rig){file}},
		{name: "record corrupt", lose: []func(*testing.T, *rig){corrupt}},
		{name: "OVSDB and record", lose: []func(*testing.T, *rig){ovsdb, file}, noUID: true},
		{name: "OVSDB, record corrupt", lose: []func(*testing.T, *rig){ovsdb, corrupt}, noUID: true},
		{name: "OVSDB and record, alias of an earlier version", lose: []func(*testing.T, *rig){ovsdb, file, unnamed},
			unnamed: true, noUID: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.node.network.PodCIDRs = append(r.node.network.PodCIDRs, netip.MustParsePrefix("fd00:10::/64"))
			netns, _ := r.netns()
			env := environment("c1", netns)
			out := r.must("ADD", env, r.conf(nil))
			want := r.node.Attachments()
			r.stop()
			for _, lose := range row.lose {
				lose(t, r)
			}
			r.start()
			if row.unnamed {
				want[0].PodNamespace, want[0].PodName = "", ""
			}
			if row.noUID {
				want[0].PodUID = ""
			}
			if diff := cmp.Diff(want, r.node.Attachments(),
				cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("attachments (-before +after):\n%s", diff)
			}
			if record, ok := r.store.Get(ipam.Key{ContainerID: "c1", IfName: "eth0"}); !ok ||
				!slices.Equal(record.IPs, want[0].IPs) ||
				record.Interface != want[0].record().Interface {
				t.Errorf("address record: %+v %t", record, ok)
			}
			r.must("CHECK", env, r.conf(map[string]any{"prevResult": json.RawMessage(out)}))
			r.must("DEL", env, r.conf(nil))
			r.clean()
		})
	}
}

// TestRebuildAfterNamespaceGone loses the OVSDB and a Pod at once.
func TestRebuildAfterNamespaceGone(t *testing.T) {
	r := newRig(t)
	netns, remove := r.netns()
	r.must("ADD", environment("c1", netns), r.conf(nil))
	r.stop()
	clear(r.node.attached)
	remove()
	r.eventually("the kernel to take the veth pair", func() bool {
		_, err := netlink.LinkByName(PortName("web-5d8f7c", "c1", "eth0"))
		return isNotFound(err)
	})
	r.start()
	r.clean()
}

// TestRebuildLater hides a Pod's namespace at the start, when OVSDB and record are lost. The attachment comes back when
// the namespace is mounted.
func TestRebuildLater(t *testing.T) {
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprintf("address taken meanwhile %t", taken), func(t *testing.T) {
			r := newRig(t)
			netns, _ := r.netns()
			r.must("ADD", environment("c1", netns), r.conf(nil))
			want := r.node.Attachments()
			want[0].PodUID = "" // which the alias lacks
			r.stop()
			clear(r.node.attached)
			if err := os.Remove(r.dir + "/ipam.json"); err != nil {
				t.Fatal(err)
			}
			holder, err := os.Open(netns)
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Close()
			if err := unix.Unmount(netns, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			r.incomplete = true
			r.start()
			if taken {
				other, _ := r.netns()
				r.must("ADD", environment("c2", other), r.conf(nil)) // gets the address that no record has
				if a := r.node.Attachments(); len(a) != 1 || a[0].IPs[0] != want[0].IPs[0] {
					t.Fatalf("attachments: %+v", a)
				}
			}
			left := <-r.unrecovered
			port := PortName("web-5d8f7c", "c1", "eth0")
			if len(left) != 1 || left[0].pod() != "default/web-5d8f7c" || left[0].PortName != port ||
				!strings.Contains(left[0].Err, "neither mounted nor a process's here") {
				t.Errorf("not rebuilt before the namespace is there: %+v", left)
			}
			if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", holder.Fd()), netns, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			if taken {
				if record, ok := r.store.Get(ipam.Key{ContainerID: "c2", IfName: "eth0"}); !ok || record.IPs[0] != want[0].IPs[0] {
					t.Errorf("the new Pod's record: %+v %t", record, ok)
				}
				r.must("DEL", environment("c2", netns), r.conf(nil))
			}
			r.recovered()
			if diff := cmp.Diff(want, r.node.Attachments(),
				cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("attachments (-before +after):\n%s", diff)
			}
			if record, ok := r.store.Get(ipam.Key{ContainerID: "c1", IfName: "eth0"}); !ok ||
				!slices.Equal(record.IPs, want[0].IPs) {
				t.Errorf("address record: %+v %t", record, ok)
			}
			r.must("DEL", environment("c1", netns), r.conf(nil))
			r.clean()
		})
	}
}

// TestRebuildEqualRanges has two Pods with the same address, in VirtualNetworks with the same range. After a loss of
// records each comes back in its network.
func TestRebuildEqualRanges(t *testing.T) {
	ovsdb := func(r *rig) { clear(r.node.attached) }
	file := func(r *rig) {
		if err := os.Remove(r.dir + "/ipam.json"); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name string
		lose []func(*rig)
	}{
		{"nothing", nil}, {"OVSDB", []func(*rig){ovsdb}}, {"record", []func(*rig){file}},
		{"OVSDB and record", []func(*rig){ovsdb, file}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			f := r.withExtras()
			x := f.list[0]
			want := []string{"eth1 10.50.0.2/24 default/blue", "eth1 10.50.0.2/24 default/red"}
			for i, network := range []string{"default/blue", "default/red"} {
				x.VirtualNetwork, x.Ranges = network, x.Ranges[:1]
				f.list = []Extra{x}
				netns, _ := r.netns()
				r.must("ADD", environment(fmt.Sprintf("c%d", i+1), netns), r.conf(nil))
			}
			further := func() (out []string) {
				for _, a := range r.node.Attachments() {
					if a.IfName == "eth1" {
						out = append(out, fmt.Sprint(a.IfName, " ", a.IPs[0], " ", a.VirtualNetwork))
					}
				}
				slices.Sort(out)
				return out
			}
			if have := further(); !slices.Equal(have, want) {
				t.Fatalf("%q are attached, want %q", have, want)
			}
			r.stop()
			for _, lose := range row.lose {
				lose(r)
			}
			r.start()
			if have := further(); !slices.Equal(have, want) {
				t.Errorf("%q come back, want %q", have, want)
			}
			for _, record := range r.store.Records() {
				if a, ok := r.node.attached[record.Key]; !ok || a.VirtualNetwork != record.VirtualNetwork {
					t.Errorf("record %+v has attachment %+v", record, a)
				}
			}
			if n := len(r.store.Keys()); n != 4 {
				t.Errorf("%d records, want 4", n)
			}
			for _, container := range []string{"c1", "c2"} {
				netns, _ := r.netns()
				r.must("DEL", environment(container, netns), r.conf(nil))
			}
			r.clean()
		})
	}
}

// recovered waits until all attachments are rebuilt or gone.
func (r *rig) recovered() {
	r.t.Helper()
	late := time.After(recoverAtLeast + time.Minute) // one pause between attempts, and time for one
	for {
		select {
		case left := <-r.unrecovered:
			if len(left) == 0 {
				return
			}
		case <-late:
			r.t.Fatal("an attachment does not come back")
		}
	}
}

// TestRebuildNever has a namespace without a mount and a process, and no record of its Pod. The attachment is reported
// with its Pod until its interface is gone, and other Pods start in the meantime.
func TestRebuildNever(t *testing.T) {
	for _, by := range []string{"DEL", "ip link del"} {
		t.Run(by, func(t *testing.T) {
			r := newRig(t)
			netns, remove := r.netns()
			r.must("ADD", environment("c1", netns), r.conf(nil))
			r.stop()
			clear(r.node.attached)
			if err := os.Remove(r.dir + "/ipam.json"); err != nil {
				t.Fatal(err)
			}
			holder, err := os.Open(netns) // as a connection does that has not ended
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Close()
			remove()
			r.incomplete = true
			r.start()
			if left := <-r.unrecovered; len(left) != 1 || left[0].pod() != "default/web-5d8f7c" {
				t.Errorf("not rebuilt: %+v", left)
			}
			other, _ := r.netns()
			r.must("ADD", environment("c2", other), r.conf(nil))
			if by == "DEL" {
				r.must("DEL", environment("c1", netns), r.conf(nil))
			} else {
				link, err := netlink.LinkByName(PortName("web-5d8f7c", "c1", "eth0"))
				if err == nil {
					err = netlink.LinkDel(link)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			r.recovered()
			r.must("DEL", environment("c2", other), r.conf(nil))
			r.clean()
		})
	}
}

// TestRebuildForeignVeth has foreign interfaces next to ours, which are left alone.
func TestRebuildForeignVeth(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	r.must("ADD", environment("c1", netns), r.conf(nil))
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "other0"
	pair := netlink.NewVeth(attrs)
	pair.PeerName = "other1"
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netlink.LinkDel(pair); err != nil {
			t.Errorf("other0 is gone: %v", err)
		}
	}()
	if err := netlink.LinkSetAlias(pair, "tombolo is an island"); err != nil {
		t.Fatal(err)
	}
	r.stop()
	clear(r.node.attached)
	r.start()
	if got := r.node.Attachments(); len(got) != 1 || got[0].ContainerID != "c1" {
		t.Errorf("attachments: %+v", got)
	}
	r.must("DEL", environment("c1", netns), r.conf(nil))
	r.clean()
}

func TestAlias(t *testing.T) {
	for _, row := range []struct {
		text    string
		ok      bool
		id, pod string
	}{
		{alias("c1", "eth0", "default/web"), true, "c1 eth0", "default/web"},
		{alias("c1", "eth0", ""), true, "c1 eth0", ""},
		{alias("c1", "eth0", strings.Repeat("n", 63)+"/"+strings.Repeat("p", 253)), true, "c1 eth0", ""},
		{"tombolo is an island", false, " ", ""},
		{"tombolo c1", false, " ", ""},
		{"antrea c1 eth0", false, " ", ""},
		{"", false, " ", ""},
	} {
		if len(row.text) > maxAlias {
			t.Errorf("%q has %d bytes", row.text, len(row.text))
		}
		k, pod, ok := parseAlias(row.text)
		if ok != row.ok || k.ContainerID+" "+k.IfName != row.id || pod != row.pod {
			t.Errorf("parseAlias(%q) = %+v %q %t", row.text, k, pod, ok)
		}
	}
}

func TestMountedNetns(t *testing.T) {
	dir := t.TempDir()
	text := "24 30 0:22 / /proc rw shared:12 - proc proc rw\n" +
		"98 25 0:4 net:[4026532281] " + filepath.Join(dir, "cni-a") + " rw shared:1 - nsfs nsfs rw\n" +
		"99 25 0:4 mnt:[4026532282] /run/other rw - nsfs nsfs rw\n" +
		"99 25 0:4 net:[4026532283] /run/with\\040space rw - nsfs nsfs rw\n" +
		"garbage\n"
	if got, want := mountedNetns(text),
		[]string{filepath.Join(dir, "cni-a"), "/run/with space"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
