package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/test/lab"
)

// testEncryption turns encryption between clusters on, and off again: nothing goes in plain text meanwhile, and a new agent breaks nothing.
func testEncryption(t *testing.T) {
	url := serviceURL(t)
	manifest, err := os.ReadFile(filepath.Join(world.Lab.Repo(), "deploy", "agent", "tombolo-wireguard.yml"))
	must(t, err)
	for _, c := range world.Lab.Clusters() {
		must(t, world.Apply(testContext(t), c.Name(), lab.WireGuardOf(string(manifest))))
	}
	encrypt(t, "none", "wireGuard")
	answered(t, url)

	end := capture(t)
	ask(t, "east", "client", url, 50)
	encrypted, plain := end()
	t.Logf("between the clusters have passed %d packets of WireGuard and %d of tunnels", encrypted, plain)
	if encrypted < 50 || plain != 0 {
		t.Error("want those of WireGuard alone")
	}
	everyNode(func(_ string, n *lab.Node) {
		eventually(t, time.Minute, func(ctx context.Context) error {
			s, err := status(ctx, n)
			for _, p := range s.Problems {
				if strings.Contains(p.Object+p.Reason+p.Message, "WireGuard") {
					err = fmt.Errorf("%s: %+v", n, p)
				}
			}
			return err
		})
	})

	requests := background(t, "/echo", "get", url+"/", "--count", "200", "--interval", "50ms", "--timeout", "3s")
	restartAgents(t, "east", "west")
	requests()

	encrypt(t, "wireGuard", "none")
	answered(t, url)
	for _, c := range world.Lab.Clusters() {
		kubectl(t, c.Name(), "delete", "daemonset", "tombolo-wireguard", "-n", "kube-system")
	}
}

// answered waits until all requests are answered.
func answered(t *testing.T, url string) {
	t.Helper()
	eventually(t, 90*time.Second, func(ctx context.Context) error {
		if a, err := get(ctx, "east", "client", url+"/", 10, "--timeout", "2s"); err != nil || a.ok != 10 {
			return fmt.Errorf("%d of 10 answered, by %v: %w", a.ok, a.by, err)
		}
		return nil
	})
}

// encrypt edits the agents' configuration and restarts them, as a user does.
func encrypt(t *testing.T, from, to string) {
	t.Helper()
	var names []string
	for _, c := range world.Lab.Clusters() {
		text := kubectl(t, c.Name(), "get", "configmap", "antrea-config", "-n", "kube-system", "-o", "yaml")
		edited := strings.ReplaceAll(text, "trafficEncryptionMode: "+from, "trafficEncryptionMode: "+to)
		if text == edited {
			t.Fatalf("the configuration of %s has no trafficEncryptionMode: %s", c.Name(), from)
		}
		must(t, world.Apply(testContext(t), c.Name(), edited))
		names = append(names, c.Name())
	}
	restartAgents(t, names...)
}

func restartAgents(t *testing.T, clusters ...string) {
	t.Helper()
	var all sync.WaitGroup
	for _, c := range clusters {
		all.Go(func() {
			for _, args := range [][]string{{"restart"}, {"status", "--timeout=3m"}} {
				if _, err := world.Kubectl(testContext(t), c, append([]string{"rollout", args[0], "daemonset/tombolo-agent", "-n", "kube-system"}, args[1:]...)...); err != nil {
					t.Errorf("%s: %v", c, err)
				}
			}
		})
	}
	all.Wait()
}

// capture counts the packets of WireGuard and of tunnels that the router between the clusters sees.
func capture(t *testing.T) func() (encrypted, plain int) {
	t.Helper()
	opened := make(chan error)
	fd := -1
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		ns, err := netns.GetFromName(world.Lab.Name() + "-router")
		if err == nil {
			err = netns.Set(ns)
			ns.Close()
		}
		if err == nil {
			const ip = 0x0008 // ETH_P_IP in network order
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, ip)
		}
		if err == nil {
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
		}
		opened <- err
	}()
	must(t, <-opened)
	var encrypted, plain int
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 2048)
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil { // nothing came
				select {
				case <-stop:
					return
				default:
					continue
				}
			}
			header := int(b[0]&0xf) * 4
			if n < header+8 || b[9] != unix.IPPROTO_UDP {
				continue
			}
			switch int(b[header+2])<<8 | int(b[header+3]) {
			case 51821:
				encrypted++
			case 6081:
				plain++
			}
		}
	}()
	return func() (int, int) {
		close(stop)
		<-done
		unix.Close(fd)
		return encrypted, plain
	}
}
