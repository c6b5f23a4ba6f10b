package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
)

// TestDemo is README's first command, `make demo`. Then its clusters encrypt what they send each other, and `tombolo mc
// verify` has to find both versions of IP in order. The lab that is taken down leaves nothing behind.
func TestDemo(t *testing.T) {
	d := &demo{name: fmt.Sprintf("demo%d", os.Getpid()), start: time.Now()}
	before, err := lab.Snapshot(d.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		l, err := lab.Open(d.name)
		if err == nil {
			err = l.Down(ctx)
		}
		if err == nil {
			err = before.Compare(ctx)
		}
		if err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	if err := d.run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.world.InstallWireGuard(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.world.ConfigureAgents(ctx, d.world.Members(), "trafficEncryptionMode: none",
		"trafficEncryptionMode: wireGuard"); err != nil {
		t.Fatal(err)
	}
	verify(ctx, t, d)
}

// verify runs `tombolo mc verify`: answers, the size of packets, and policies.
func verify(ctx context.Context, t *testing.T, d *demo) {
	t.Helper()
	out, err := d.world.Lab.Tool(ctx, "east", "tombolo", "mc", "verify", d.world.Lab.Cluster("east").Kubeconfig(),
		d.world.Lab.Cluster("west").Kubeconfig(), "--wait", "3m")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, check := range []string{"Services", "MTU", "Pods"} {
		for _, version := range []string{"", " over IPv6"} {
			if n := len(regexp.MustCompile(`(?m)^pass .* `+check+version+` \S+ to \S+: `).FindAllString(out, -1)); n != 2 {
				t.Errorf("%s%s passes %d times, want both ways:\n%s", check, version, n, out)
			}
		}
	}
}
