package chaos

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/echo/watched"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// stream is requests that go on for the whole test, from a Pod's network namespace by a process
// of the Node: it lives on when the kubelet and the API server do not.
type stream struct {
	name string
	kept bool // on one connection
	log  watched.Log
}

// Bounds of a request while nothing may be lost. A SYN that is dropped costs a second, and this
// machine may be busy.
const slowest = 5 * time.Second

// longest is when a request on a connection of its own gives up. It is longer than the outage of any fault.
const longest = 20 * time.Second

// watch starts the streams from the Pod default/client on east/node-2 to a Pod, to a Service of
// its cluster and to one of the other cluster.
func watch(t *testing.T) []*stream {
	t.Helper()
	ctx := t.Context()
	n := world.Lab.Cluster("east").Node("node-2")
	netns := podNamespace(t, n, "client")
	ask := func(args ...string) string {
		t.Helper()
		out, err := world.Kubectl(ctx, "east", args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	pod := ask("get", "pods", "-l", "app=nginx", "-o", `jsonpath={.items[?(@.spec.nodeName=="node-1")].status.podIP}`)
	service := ask("get", "service", "nginx", "-o", "jsonpath={.spec.clusterIP}")
	imported, err := world.ImportedIP(ctx, "east", "antrea-mc-nginx", 1, settleLimit)
	if err != nil {
		t.Fatal(err)
	}
	if err := scenario.Eventually(ctx, settleLimit, func(ctx context.Context) error {
		_, err := world.Exec(ctx, "east", "client", "/echo", "get", "http://"+imported+"/", "--count", "5", "--timeout", "2s")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var all []*stream
	for _, s := range []struct {
		name, url string
		kept      bool
	}{
		{"connection to a Pod", "http://" + pod + ":8080/", true},
		{"connection to a Service", "http://" + service + "/", true},
		{"connection to the other cluster", "http://" + imported + "/", true},
		{"requests to a Service", "http://" + service + "/", false},
		{"requests to the other cluster", "http://" + imported + "/", false},
	} {
		all = append(all, startStream(t, n, netns, s.name, s.url, s.kept))
	}
	return all
}

// podNamespace finds the network namespace of a Pod of default on its Node by its address.
func podNamespace(t *testing.T, n *lab.Node, pod string) string {
	t.Helper()
	ip, err := clusterOf(n).Kubectl(t.Context(), "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
	if err != nil {
		t.Fatal(err)
	}
	out, err := n.Exec(t.Context(), "sh", "-c", `for ns in /var/run/netns/*; do
	if nsenter --net=$ns ip -4 -o address show dev eth0 | grep -q "inet $1/"; then echo $ns; fi
done`, "sh", ip)
	if err != nil {
		t.Fatal(err)
	}
	if len(strings.Fields(out)) != 1 {
		t.Fatalf("network namespaces with the address %s on %s: %q, want one", ip, n, out)
	}
	return strings.TrimSpace(out)
}

func startStream(t *testing.T, n *lab.Node, netns, name, url string, kept bool) *stream {
	t.Helper()
	repo, err := lab.Repo()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"nsenter", "--net=" + netns, filepath.Join(repo, "bin/echo"), "watch", url, "--begun"}
	if !kept {
		args = append(args, "--fresh", "--timeout", longest.String())
	}
	cmd, err := n.Command(context.Background(), args...)
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // nsenter forks: both get the signal
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &stream{name: name, kept: kept}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.log.Add(lines.Text())
		}
		s.log.End(fmt.Errorf("the client has ended: %w %s", cmd.Wait(), &stderr))
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		<-done
	})
	return s
}

// check waits until requests are answered again, and all that began before a moment have ended, and judges those: each
// in its step, of which the last one ends now. It returns what was seen, in short.
func (s *stream) check(t *testing.T, steps watched.Steps, settled time.Time) string {
	t.Helper()
	answered := func(context.Context) error { return s.log.Settled(settled) }
	if err := scenario.Eventually(t.Context(), settleLimit, answered); err != nil {
		t.Errorf("%s: since the clusters have settled: %v", s.name, err)
		return s.name + ": dead"
	}
	all := s.log.Take(settled)
	for _, wrong := range steps.Judge(all) {
		t.Errorf("%s: %s", s.name, wrong)
	}
	var slow time.Duration
	failed := 0
	for _, r := range all {
		slow = max(slow, r.Took)
		if r.Failed != "" {
			failed++
		}
	}
	if s.kept {
		return fmt.Sprintf("%s: %d requests, longest %.1f s", s.name, len(all), slow.Seconds())
	}
	return fmt.Sprintf("%s: %d of %d failed, longest %.1f s", s.name, failed, len(all), slow.Seconds())
}

// limits are what a step may do to requests that begin in it.
func limits(mayLose loss, lasted time.Duration) watched.Limits {
	l := watched.Limits{Lose: mayLose == packets, Took: slowest}
	if mayLose != nothing {
		l.Took = 2*lasted + 45*time.Second // TCP's time-out has doubled meanwhile
	}
	return l
}
