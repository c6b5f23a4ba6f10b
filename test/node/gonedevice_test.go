package node

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// testGoneDevice removes the device of a Pod's port. Open vSwitch reports no error for it. The agent's list of ports
// does, until the Pod is deleted.
func testGoneDevice(t *testing.T, c *cluster) {
	r := newRig(t, c).withOVS()
	r.ready()
	gone := r.add("gone")
	r.add("stays")
	bad := func(want ...string) {
		t.Helper()
		r.eventually(fmt.Sprintf("ports with an error: %v", want), func() error {
			var list api.PortList
			if err := r.debug(api.PathPorts, &list); err != nil {
				return err
			}
			var have []string
			for _, p := range list.Ports {
				if p.Error != "" {
					have = append(have, p.Pod+" "+p.Error)
				}
			}
			if fmt.Sprint(have) != fmt.Sprint(want) {
				return fmt.Errorf("they are %v", have)
			}
			return nil
		})
	}
	bad()
	var list api.PortList
	if err := r.debug(api.PathPorts, &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Ports {
		if p.Pod != "default/gone" {
			continue
		}
		link, err := netlink.LinkByName(p.Name)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	bad("default/gone its device is gone")
	r.del(gone)
	bad()
}
