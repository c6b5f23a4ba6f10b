package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// stoppable puts an nft program into PATH that writes no table while a file exists. It returns the path of the file.
func stoppable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nwhile [ $1 = -f ] && [ -e %s/stop ]; do sleep 0.05; done\nexec %s \"$@\"\n", dir,
		nft)
	if err := os.WriteFile(dir+"/nft", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir + "/stop"
}

// TestLeads waits for the routes and the translation of addresses while other parts are not done.
func TestLeads(t *testing.T) {
	stop := stoppable(t)
	ns := enter(t)
	sh(t, addGateway)
	m := run(t, ns, time.Hour)
	leads := func(to string, timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return m.Leads(ctx, []netip.Addr{netip.MustParseAddr(to)})
	}
	const moment = 100 * time.Millisecond
	want, vip := node(), node().Routes[0].Gateway
	to := func(list ...string) {
		want.Routes, want.Forwarded = node().Routes, node().Forwarded
		for _, ip := range list {
			dst := netip.MustParsePrefix(ip + "/32")
			want.Routes = append(want.Routes, Route{Dst: dst, Link: "gw0", Source: netip.MustParseAddr("10.10.0.1")})
			want.Forwarded = append(want.Forwarded, Route{Dst: dst, Gateway: vip, Link: "gw0", OnLink: true})
		}
	}
	has := func(what string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if out := sh(t, line); !strings.Contains(out, what) {
				t.Errorf("%s lacks %s: %s", line, what, out)
			}
		}
	}

	want.Links = append(want.Links, Link{Name: "absent", Up: true})
	want.Masquerade.Always = []netip.Prefix{netip.MustParsePrefix("10.50.0.0/28")}
	to("10.50.0.2")
	m.Set(want)
	if err := leads("10.50.0.2", ovstest.Timeout()); err != nil {
		t.Error(err)
	}
	has("10.50.0.0/28", "nft list set ip tombolo always")
	has("10.50.0.2 ", "ip route show 10.50.0.2", "ip route show table 116")
	if err := trySync(m, moment); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("another part is not done: %v", err)
	}

	// A route does not wait for nft, which changes another rule.
	sh(t, "touch "+stop)
	want.Masquerade.Except = append(slices.Clone(want.Masquerade.Except), netip.MustParsePrefix("10.77.0.0/16"))
	to("10.50.0.2", "10.50.0.3", "10.60.0.2")
	m.Set(want)
	if err := leads("10.50.0.3", ovstest.Timeout()); err != nil {
		t.Error(err)
	}
	has("10.50.0.3 ", "ip route show 10.50.0.3", "ip route show table 116")
	if err := leads("10.60.0.2", moment); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an address without translation: %v", err)
	}

	// An address waits while nft removes the translation, also if it is desired again.
	sh(t, "rm "+stop)
	ovstest.Eventually(t, "nft has made the change", func() error {
		_, err := try("nft list set ip tombolo except | grep 10.77.0.0")
		return err
	})
	sh(t, "touch "+stop)
	without := want
	without.Masquerade.Always = nil
	m.Set(without)
	ovstest.Eventually(t, "nft is about to remove the translation", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.sources["ip"].wants) > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	m.Set(want)
	if err := leads("10.50.0.3", moment); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while nft removes the translation: %v", err)
	}
	sh(t, "rm "+stop)
	if err := leads("10.50.0.3", ovstest.Timeout()); err != nil {
		t.Error(err)
	}
	has("10.50.0.0/28", "nft list set ip tombolo always")

	// Its own routes are missing.
	want.Routes = append(want.Routes, Route{Dst: netip.MustParsePrefix("10.50.0.4/32"), Link: "absent"})
	m.Set(want)
	if err := leads("10.50.0.4", moment); err == nil ||
		!strings.Contains(err.Error(), "10.50.0.4/32: its link absent does not exist yet") {
		t.Errorf("without the link: %v", err)
	}
	sh(t, "ip route add 10.50.0.5 dev lo proto bird")
	to("10.50.0.5")
	m.Set(want)
	if err := leads("10.50.0.5", ovstest.Timeout()); err == nil || !strings.Contains(err.Error(), "another program has") {
		t.Errorf("another program has the route: %v", err)
	}
}
