package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// testOwnNetwork starts Pods whose first interface is in a VirtualNetwork, with a slow nft. The first ADD returns once
// the host translates the addresses of the Node's block, and has its route to the Pod. Further ones do not need nft.
func testOwnNetwork(t *testing.T, c *cluster) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	slow := t.TempDir()
	stop := filepath.Join(slow, "stop")
	script := fmt.Sprintf("#!/bin/sh\nsleep 0.1\nwhile [ -e %s ]; do sleep 0.05; done\nexec %s \"$@\"\n", stop, nft)
	if err := os.WriteFile(filepath.Join(slow, "nft"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", slow+":"+os.Getenv("PATH"))
	n := newNetworks(t, c, "own", map[string]tombolov1alpha1.SubnetLeaseSpec{
		"blue": {CIDR: "10.50.0.0/24", Gateway: "10.50.0.1"}})
	// ready looks at the host, when the ADD of a Pod has returned.
	ready := func(address string) {
		t.Helper()
		for what, command := range map[string][]string{
			"10.50.0.0/28":              {nft, "list", "table", "ip", "tombolo"},
			address + " dev antrea-gw0": {"ip", "route", "show", address},
		} {
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), what) {
				t.Errorf("ADD returns while the host lacks %s: %v: %s", what, err, out)
			}
		}
	}
	web := n.start("own-web", first, "blue")
	ready("10.50.0.2")

	n.eventually("the host has nothing more to do", func() error {
		s, err := n.status()
		if err == nil && len(s.Problems) > 0 {
			err = fmt.Errorf("problems: %v", s.Problems)
		}
		return err
	})
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	db := n.start("own-db", first, "blue")
	ready("10.50.0.3")
	n.del(web)
	again := n.start("own-again", first, "blue")
	if err := os.Remove(stop); err != nil {
		t.Fatal(err)
	}
	n.reachesOutside(t, again)
	n.del(db)
	n.del(again)
}

// reachesOutside lets the Pods of network blue reach a machine outside, by spec.fabricSNAT. The machine sees the Node.
func (n *networks) reachesOutside(t *testing.T, p *pod) {
	t.Helper()
	machine := n.sandbox("machine")
	there, err := os.Open(machine.netns)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "own-out0"}, PeerName: "eth0",
		PeerNamespace: netlink.NsFd(int(there.Fd()))}
	up := func(name, address string) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(address)
		return errors.Join(err, netlink.AddrAdd(l, a), netlink.LinkSetUp(l))
	}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	if err := errors.Join(up("own-out0", "203.0.113.1/24"),
		machine.within(func() error { return up("eth0", "203.0.113.2/24") })); err != nil {
		t.Fatal(err)
	}
	machine.serveOutside(t, 80)
	ask := func(within time.Duration) (text string, err error) {
		err = p.within(func() error {
			c, err := net.DialTimeout("tcp", "203.0.113.2:80", within)
			if err != nil {
				return err
			}
			defer c.Close()
			b := make([]byte, 100)
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := c.Write([]byte("hello")); err != nil {
				return err
			}
			at, err := c.Read(b)
			text = string(b[:at])
			return err
		})
		return text, err
	}
	if text, err := ask(500 * time.Millisecond); err == nil {
		t.Errorf("without fabricSNAT the Pod reaches the machine: %s", text)
	}
	var v contrailv4.VirtualNetwork
	key := client.ObjectKey{Namespace: n.namespace, Name: "blue"}
	if err := n.objects.Get(n.t.Context(), key, &v); err != nil {
		t.Fatal(err)
	}
	v.Spec.FabricSNAT = true
	if err := n.objects.Update(n.t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	n.eventually("the Pod reaches a machine outside", func() error {
		text, err := ask(time.Second)
		if want := "machine 203.0.113.1 hello"; err == nil && text != want {
			t.Fatalf("the machine answers %q, want %q", text, want)
		}
		return err
	})
}
