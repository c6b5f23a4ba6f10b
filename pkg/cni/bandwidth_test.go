package cni

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// TestBandwidth limits a Pod. Both ends of its veth pair have a filter, CHECK compares them, a repeated ADD brings them
// back, and the limits are kept when the OVSDB is lost.
func TestBandwidth(t *testing.T) {
	r := newRig(t)
	netns, _ := r.netns()
	env := environment("c1", netns)
	asked := map[string]any{"runtimeConfig": map[string]any{"bandwidth": map[string]any{
		"ingressRate": 20_000_000, "ingressBurst": math.MaxInt32, "egressRate": 8_000, "egressBurst": 4_000_000}}}
	result := json.RawMessage(r.must("ADD", env, r.conf(asked)))
	port := PortName("web-5d8f7c", "c1", "eth0")
	filter := func(name string) string {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err.Error()
		}
		list, err := netlink.QdiscList(link)
		if err != nil {
			return err.Error()
		}
		for _, q := range list {
			if f, ok := q.(*netlink.Tbf); ok {
				return fmt.Sprint("tbf ", f.Rate)
			}
		}
		return "none"
	}
	limited := func(want string) {
		t.Helper()
		have := filter(port)
		within(t, netns, func() { have += ", " + filter("eth0") })
		if have != want {
			t.Errorf("filters: %s, want %s", have, want)
		}
	}
	const both = "tbf 2500000, tbf 1000"
	limited(both)
	want := Bandwidth{ToPod: Rate{20_000_000, maxBurst}, FromPod: Rate{8_000, 500_000}}
	recorded := func() {
		t.Helper()
		if list := r.node.Attachments(); len(list) != 1 || list[0].Bandwidth != want {
			t.Errorf("attachments: %+v, want the limits %v", list, want)
		}
	}
	recorded()

	check := map[string]any{"prevResult": result, "runtimeConfig": asked["runtimeConfig"]}
	r.must("CHECK", env, r.conf(check))
	for _, end := range []string{port, "eth0"} {
		remove := func() {
			link, err := netlink.LinkByName(end)
			if err == nil {
				err = netlink.QdiscDel(&netlink.GenericQdisc{QdiscType: "tbf", QdiscAttrs: netlink.QdiscAttrs{
					LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}})
			}
			if err != nil {
				t.Error(err)
			}
		}
		if end == "eth0" {
			within(t, netns, remove)
		} else {
			remove()
		}
		_, failed := r.exec("CHECK", env, r.conf(check))
		if failed == nil || failed.Code != 103 || !strings.Contains(failed.Msg, "interface "+end+" is not limited to ") {
			t.Errorf("CHECK without the filter of %s: %v", end, failed)
		}
		r.must("ADD", env, r.conf(asked))
		limited(both)
	}

	r.stop()
	r.node.attached = map[ipam.Key]Attachment{}
	r.start()
	recorded()
	r.must("DEL", env, r.conf(nil))
	r.clean()
}

// TestBandwidthOf reads what runtimes ask for, and records.
func TestBandwidthOf(t *testing.T) {
	for _, row := range []struct {
		name string
		conf string
		want Bandwidth
		err  string
	}{
		{"nothing", `{}`, Bandwidth{}, ""},
		{"no rate", `{"ingressBurst": 8000}`, Bandwidth{}, ""},
		{"one direction", `{"egressRate": 1000000, "egressBurst": 4000000}`,
			Bandwidth{FromPod: Rate{1_000_000, 500_000}}, ""},
		{"no burst: one second", `{"ingressRate": 2000000}`, Bandwidth{ToPod: Rate{2_000_000, 250_000}}, ""},
		{"a burst without a limit: half a MiB", `{"ingressRate": 1000000000000, "ingressBurst": 4294967295}`,
			Bandwidth{ToPod: Rate{1_000_000_000_000, maxBurst}}, ""},
		{"a burst below a packet", `{"ingressRate": 1000, "ingressBurst": 8}`, Bandwidth{ToPod: Rate{1000, minBurst}}, ""},
		{"too slow", `{"egressRate": 999}`, Bandwidth{},
			"network configuration: runtimeConfig.bandwidth.egressRate has 999, want 1000 or more bits a second"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, failed := parseConf([]byte(
				`{"cniVersion": "1.0.0", "name": "n", "runtimeConfig": {"bandwidth": ` + row.conf + `}}`))
			if failed != nil {
				t.Fatal(failed)
			}
			b, failed := c.bandwidth()
			if (failed != nil) != (row.err != "") || failed != nil && failed.Msg != row.err {
				t.Fatalf("error %v, want %q", failed, row.err)
			}
			if diff := cmp.Diff(row.want, b); failed == nil && diff != "" {
				t.Errorf("limits (-want +have):\n%s", diff)
			}
			if again := parseBandwidth(row.want.String()); again != row.want {
				t.Errorf("the record %q is read as %v", row.want, again)
			}
		})
	}
	if b := parseBandwidth("20/5 damaged"); b != (Bandwidth{}) {
		t.Errorf("a damaged record is read as %v", b)
	}
}
