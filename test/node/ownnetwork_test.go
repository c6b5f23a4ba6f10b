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

// testSeparateOwn starts Pods whose own network is a separate one, in two networks with one range. Pods of a network
// reach each other by both of their addresses, and the Node's host by these of the Node, also after a restart of the
// agent. Pods of the two networks do not reach each other.
func testSeparateOwn(t *testing.T, c *cluster) {
	equal := tombolov1alpha1.SubnetLeaseSpec{CIDR: "192.168.50.0/24", Gateway: "192.168.50.1", Zone: 17}
	other := equal
	other.Zone = 18
	n := newNetworks(t, c, "ownseparate", map[string]tombolov1alpha1.SubnetLeaseSpec{"blue": equal, "red": other})
	pods := map[string]*pod{}
	byNode := map[string]string{} // addresses of the Node
	for _, network := range []string{"blue", "red"} {
		for _, name := range []string{"web-" + network, "db-" + network} {
			p := n.start(name, first, network)
			p.serve(t, 8080)
			pods[name] = p
			err := p.within(func() error {
				link, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				list, err := netlink.AddrList(link, netlink.FAMILY_V4)
				if err == nil {
					byNode[name] = list[0].IP.String()
				}
				return err
			})
			if err != nil || !strings.HasPrefix(byNode[name], "10.11.") {
				t.Fatalf("Pod %s has address %q on eth0: %v", name, byNode[name], err)
			}
		}
	}
	connects := func(when, from, address string, want bool) {
		t.Helper()
		dial := func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(address, "8080"), 500*time.Millisecond)
			if err != nil {
				return err
			}
			defer c.Close()
			text, err := ask(c, when, 500*time.Millisecond)
			if err == nil && from != "host" && !strings.HasPrefix(text, "db-"+strings.TrimPrefix(from, "web-")) {
				t.Errorf("%s, %s answers %s at %s", when, text, from, address)
			}
			return err
		}
		try := func() error { return pods[from].within(dial) }
		if from == "host" {
			try = dial
		}
		if !want {
			if try() == nil {
				t.Errorf("%s, %s reaches %s", when, from, address)
			}
			return
		}
		n.eventually(fmt.Sprintf("%s, %s reaches %s", when, from, address), try)
	}
	all := func(when string) {
		t.Helper()
		for network, another := range map[string]string{"blue": "red", "red": "blue"} {
			web, db := "web-"+network, "db-"+network
			connects(when, web, "192.168.50.3", true)
			connects(when, web, byNode[db], true)
			connects(when, "host", byNode[db], true)
			connects(when, web, byNode["db-"+another], false)
		}
		connects(when, "host", "192.168.50.3", false)
	}
	all("at first")
	n.stop()
	n.ready()
	all("after a restart of the agent")
	for _, p := range pods {
		n.del(p)
	}
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
