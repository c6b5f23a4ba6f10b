package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent"
	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/test/child"
)

// asAgent is the environment variable that makes this program an agent, which can be killed.
const asAgent = "TOMBOLO_NODE_TEST_AGENT"

// agentSpec is the configuration of such an agent.
type agentSpec struct {
	Host, OVSRunDir, Dir string
	Node                 string // nodeName, if empty
	Transport            string // the interface that tunnels go by, where there are others
	Encrypted            bool   // what goes by it
	ProxyAll             bool   // serve clients outside of the Pods' network
	Mode                 string // trafficEncapMode; the default, if empty
}

func runAgent(text string) int {
	var spec agentSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	conf := config.Default()
	conf.OVSDatapathType = "netdev"
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	conf.TransportInterface = spec.Transport
	conf.AntreaProxy.ProxyAll = spec.ProxyAll
	conf.TrafficEncapMode = cmp.Or(spec.Mode, conf.TrafficEncapMode)
	if spec.Encrypted {
		if err := encryptAgent(ctx, &conf); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	registry := prometheus.NewRegistry()
	err := agent.Run(ctx, agent.Options{
		Config: conf, NodeName: cmp.Or(spec.Node, nodeName), REST: &rest.Config{Host: spec.Host, QPS: -1},
		Namespace: namespace,
		OVSRunDir: spec.OVSRunDir, RunDir: filepath.Join(spec.Dir, "run"), StateDir: filepath.Join(spec.Dir, "state"),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Registerer: registry, Gatherer: registry,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is the rig's agent as a process of its own.
type process struct {
	r   *rig
	f   *front
	cmd *exec.Cmd
}

func (p *process) start() {
	p.r.t.Helper()
	spec, err := json.Marshal(agentSpec{Host: p.f.URL, OVSRunDir: p.r.runDir, Dir: p.r.dir})
	if err != nil {
		p.r.t.Fatal(err)
	}
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.Env = append(os.Environ(), asAgent+"="+string(spec))
	p.cmd.Stdout, p.cmd.Stderr = p.r.log, p.r.log
	if err := child.Start(p.cmd); err != nil {
		p.r.t.Fatal(err)
	}
}

func (p *process) end(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal)
	_ = p.cmd.Wait() // a killed one returns an error
}

// ready waits until the agent is.
func (p *process) ready() {
	p.r.t.Helper()
	p.r.eventually("the agent is ready", func() error {
		s, err := p.r.status()
		if err == nil && !s.Ready {
			err = fmt.Errorf("it waits for %q; problems: %v", s.Waiting, s.Problems)
		}
		return err
	})
}

// guardedLoad is what goes on under policies: an allowed connection that stays, new allowed ones, and attempts of all
// that is forbidden.
type guardedLoad struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
	made atomic.Int64 // allowed connections
	// of these, which were not answered: datagrams that got lost, and connections that took too long
	lost   atomic.Int64
	first  atomic.Pointer[error] // of the lost ones
	sent   atomic.Int64          // forbidden datagrams
	broken atomic.Pointer[error]
}

func newGuardedLoad(t *testing.T, clients map[string]*pod, server *pod) *guardedLoad {
	t.Helper()
	l := &guardedLoad{}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(t.Context())
	broke := func(err error) { l.broken.CompareAndSwap(nil, &err) }
	long, err := clients[friend].dial("tcp4", fmt.Sprint(server.ip, ":", guardedPort))
	if err != nil {
		t.Fatal(err)
	}
	l.wg.Go(func() {
		defer long.Close()
		for n := 0; ctx.Err() == nil; n++ {
			if _, err := ask(long, fmt.Sprint(friend, " long ", n, "."), 60*time.Second); err != nil && ctx.Err() == nil {
				broke(fmt.Errorf("the connection that was there: %w", err))
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	for role, p := range clients {
		l.wg.Go(func() {
			for ctx.Err() == nil {
				// Long enough for a machine that stands still for a moment: a datagram that is lost stays lost.
				if err := reach(p, role, server.ip, 3*time.Second); err != nil {
					l.lost.Add(1)
					l.first.CompareAndSwap(nil, &err)
				}
				l.made.Add(1)
				time.Sleep(10 * time.Millisecond)
			}
		})
		l.wg.Go(func() {
			n, err := try(ctx, p, role, server.ip)
			if l.sent.Add(int64(n)); err != nil {
				broke(err)
			}
		})
	}
	return l
}

// testGuarded restarts the agent and ovs-vswitchd, and has the API server go away, under load: nothing that is
// forbidden gets through, and the agent breaks nothing that is allowed. While ovs-vswitchd does not run nothing passes
// the userspace datapath; connections go on after it.
func testGuarded(t *testing.T, cl *cluster) {
	f := newFront(t, cl.server)
	r := newRig(t, cl)
	c := newContainer(r)
	a := &process{r: r, f: f}
	a.start()
	t.Cleanup(func() { a.end(syscall.SIGKILL) })
	a.ready()
	server, seen := guard(r)
	clients := map[string]*pod{}
	for _, role := range []string{friend, stranger, caged, banned} {
		clients[role] = r.startAs("guarded-"+role, role)
	}
	away := func(string) int { return http.StatusServiceUnavailable }
	settled := func() {
		t.Helper()
		r.eventually("allowed connections work", func() error {
			for role, p := range clients {
				if err := reach(p, role, server.ip, 3*time.Second); err != nil {
					return err
				}
			}
			return nil
		})
	}
	settled()
	for _, row := range []struct {
		name   string
		pauses bool // new connections may be lost
		what   func(t *testing.T)
	}{
		{"agent killed", false, func(*testing.T) {
			a.end(syscall.SIGKILL)
			time.Sleep(500 * time.Millisecond)
			a.start()
			a.ready()
		}},
		{"agent stopped", false, func(*testing.T) {
			a.end(syscall.SIGTERM)
			time.Sleep(500 * time.Millisecond)
			a.start()
			a.ready()
		}},
		{"planned restart of ovs-vswitchd", true, func(*testing.T) {
			c.end(&c.daemon)
			c.startDaemon()
		}},
		{"ovs-vswitchd killed", true, func(*testing.T) {
			_ = syscall.Kill(-c.daemon.Process.Pid, syscall.SIGKILL)
			_ = c.daemon.Wait()
			c.startDaemon()
		}},
		{"ovs-vswitchd and the agent killed", true, func(*testing.T) {
			a.end(syscall.SIGKILL)
			_ = syscall.Kill(-c.daemon.Process.Pid, syscall.SIGKILL)
			_ = c.daemon.Wait()
			c.startDaemon()
			time.Sleep(500 * time.Millisecond)
			a.start()
			a.ready()
		}},
		{"API server away", false, func(t *testing.T) {
			f.answer(away)
			defer f.answer(nil)
			time.Sleep(time.Second)
			// The agent has not received this one's labels: it reaches nothing, and nothing reaches it.
			if err := r.object("unheard", friend); err != nil {
				t.Fatal(err)
			}
			unheard := r.add("unheard")
			if err := reach(unheard, friend, server.ip, 200*time.Millisecond); err == nil {
				t.Error("a Pod whose labels nobody knows reaches the server")
			}
			f.answer(nil)
			r.eventually("once the API server is back",
				func() error { return reach(unheard, friend, server.ip, time.Second) })
			r.del(unheard)
		}},
		{"API server away, and the agent killed", false, func(*testing.T) {
			f.answer(away)
			defer f.answer(nil)
			time.Sleep(200 * time.Millisecond)
			a.end(syscall.SIGKILL)
			a.start()
			time.Sleep(2 * time.Second)
			f.answer(nil)
			a.ready()
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newGuardedLoad(t, clients, server)
			r.eventually("there is load", func() error {
				if n := l.made.Load(); n < 20 {
					return fmt.Errorf("%d allowed connections", n)
				}
				return nil
			})
			time.Sleep(300 * time.Millisecond)
			row.what(t)
			settled()
			time.Sleep(300 * time.Millisecond)
			l.stop()
			l.wg.Wait()
			if err := l.broken.Load(); err != nil {
				t.Error(*err)
			}
			if lost := l.lost.Load(); lost > 0 && !row.pauses {
				t.Errorf("%d of %d allowed connections failed, the first one: %v", lost, l.made.Load(), *l.first.Load())
			}
			seen.check(t, row.name)
			if l.sent.Load() < 100 {
				t.Error("next to nothing was sent to where it is forbidden")
			}
			t.Logf("%d forbidden datagrams; %d allowed connections, %d of them lost", l.sent.Load(), l.made.Load(),
				l.lost.Load())
		})
	}
	for _, p := range clients {
		r.del(p)
	}
	r.del(server)
}
