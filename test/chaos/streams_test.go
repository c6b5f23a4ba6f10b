package chaos

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// stream is requests that go on for the whole test, from a Pod's network namespace by a process
// of the Node: it lives on when the kubelet and the API server do not.
type stream struct {
	name string
	kept bool // on one connection

	allowed allowance // of the step before

	mu       sync.Mutex
	requests []request
	ended    error
}

// allowance is what a step's faults may do to requests that begin in it, also to those that end after it: TCP sends again what was lost later
// and later.
type allowance struct {
	lose bool
	took time.Duration
}

// request is one that has ended.
type request struct {
	start time.Time
	took  time.Duration
	err   string // "" when it was answered
}

// Bounds of a request while nothing may be lost. A SYN that is dropped costs a second, and this
// machine may be busy.
const slowest = 5 * time.Second

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
	imported, err := world.ImportedIP(ctx, "east", "antrea-mc-nginx", 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
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
	args := []string{"nsenter", "--net=" + netns, filepath.Join(repo, "bin/echo"), "watch", url}
	if !kept {
		args = append(args, "--fresh")
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
	s := &stream{name: name, kept: kept, allowed: allowance{took: slowest}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.add(lines.Text())
		}
		s.end(cmd, &stderr)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		<-done
	})
	return s
}

func (s *stream) end(cmd *exec.Cmd, stderr fmt.Stringer) {
	err := cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = fmt.Errorf("the client has ended: %w %s", err, stderr)
}

// add takes a line of `echo watch`.
func (s *stream) add(line string) {
	r := request{err: "line " + line}
	if fields := strings.SplitN(line, " ", 3); len(fields) == 3 {
		start, timeErr := time.Parse(time.RFC3339Nano, fields[0])
		took, floatErr := strconv.ParseFloat(fields[1], 64)
		if timeErr == nil && floatErr == nil {
			r = request{start: start, took: time.Duration(took * float64(time.Second)), err: fields[2]}
			if r.err == "ok" {
				r.err = ""
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
}

// since returns the requests that ended after a time.
func (s *stream) since(start time.Time) ([]request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []request
	for _, r := range s.requests {
		if r.start.Add(r.took).After(start) {
			found = append(found, r)
		}
	}
	return found, s.ended
}

// step says when a step began, was healed, and had settled, and whether it may lose packets.
type step struct {
	start, healed, settled time.Time
	mayLose                loss
}

// check waits until requests are answered again, and judges those of a step. It returns what was
// seen, in short.
func (s *stream) check(t *testing.T, step step) string {
	t.Helper()
	now, start := step.settled, step.start
	err := scenario.Eventually(t.Context(), settleLimit, func(context.Context) error {
		answered, err := s.since(now)
		if err != nil {
			return err
		}
		good := 0
		for _, r := range answered {
			if r.err == "" && r.start.After(now) {
				good++
			}
		}
		if good < 3 {
			return fmt.Errorf("%d requests were answered since the clusters have settled, want 3; the last: %+v", good, answered[max(0, len(answered)-1):])
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", s.name, err)
		return s.name + ": dead"
	}
	all, _ := s.since(start)
	allowed := allowance{lose: step.mayLose == packets, took: slowest}
	if step.mayLose != nothing {
		allowed.took = 2*step.healed.Sub(start) + 45*time.Second // TCP's time-out has doubled meanwhile
	}
	var longest time.Duration
	failed := 0
	for _, r := range all {
		longest = max(longest, r.took)
		may := allowed
		if r.start.Before(start) {
			may = s.allowed
		}
		if r.err != "" {
			failed++
		}
		switch at := r.start.Format("15:04:05.000"); {
		case r.err != "" && !may.lose:
			t.Errorf("%s: request at %s, %.1f s after the step began: %s after %s; want none lost", s.name, at, r.start.Sub(start).Seconds(), r.err, r.took)
		case r.took > may.took:
			t.Errorf("%s: request at %s, %.1f s after the step began, took %s, want at most %s", s.name, at, r.start.Sub(start).Seconds(), r.took, may.took)
		}
	}
	s.allowed = allowed
	if s.kept {
		return fmt.Sprintf("%s: %d requests, longest %.1f s", s.name, len(all), longest.Seconds())
	}
	return fmt.Sprintf("%s: %d of %d failed, longest %.1f s", s.name, failed, len(all), longest.Seconds())
}
