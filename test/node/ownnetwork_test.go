package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	n.del(db)
	n.del(again)
}
