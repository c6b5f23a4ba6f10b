package agent

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// loggedFrame is a SYN from 10.11.0.3:40000 to 10.11.0.2:8080, as the switch sends it: 60 bytes of IP.
const loggedFrame = "0a00000000020e0000000001" + "0800" + "4500003c00004000400600000a0b00030a0b0002" +
	"9c401f900000000100000000a002ffff00000000"

func logged(t *testing.T, entry string) ofp.PacketIn2 {
	t.Helper()
	frame, err := hex.DecodeString(loggedFrame)
	if err != nil {
		t.Fatal(err)
	}
	return ofp.PacketIn2{Data: frame, Userdata: []byte("policy-log " + entry)}
}

type buffer struct {
	bytes.Buffer
	broken bool
}

func (b *buffer) Write(p []byte) (int, error) {
	if b.broken {
		return 0, errors.New("no space left on device")
	}
	return b.Buffer.Write(p)
}

func (*buffer) Close() error { return nil }

// TestPolicyLogRepeats counts repeated denials within a second in one line. Each allowed packet has its own line.
func TestPolicyLogRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		l := newPolicyLog(config.AuditLogging{}, t.TempDir(), func(a netip.Addr, _ tenant.ID) string {
			if a == netip.MustParseAddr("10.11.0.2") {
				return "default/server"
			}
			return ""
		}, slog.New(slog.DiscardHandler))
		l.out = &out
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.run(ctx) }()
		const drop, allow, egress = "AntreaPolicyIngressRule AntreaNetworkPolicy:default/log web 0 0 44900 label",
			"IngressRule K8sNetworkPolicy:default/a ingress[0] 0 3 1000",
			"EgressDefaultRule AntreaClusterNetworkPolicy:b out 1 1 999 x"
		for i, entry := range []string{drop, allow, drop, allow, egress, drop} {
			if err := l.take(logged(t, entry)); err != nil {
				t.Fatal(i, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if err := l.take(logged(t, drop)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := []string{
			"00.100000 IngressRule K8sNetworkPolicy:default/a ingress[0] Ingress Allow 1000 default/server 10.11.0.3 40000 " +
				"10.11.0.2 8080 TCP 60 <nil>",
			"00.300000 IngressRule K8sNetworkPolicy:default/a ingress[0] Ingress Allow 1000 default/server 10.11.0.3 40000 " +
				"10.11.0.2 8080 TCP 60 <nil>",
			"00.000000 AntreaPolicyIngressRule AntreaNetworkPolicy:default/log web Ingress Drop 44900 default/server " +
				"10.11.0.3 40000 10.11.0.2 8080 TCP 60 label [3 packets in 1s]",
			"00.400000 EgressDefaultRule AntreaClusterNetworkPolicy:b out Egress Reject 999 <nil> 10.11.0.3 40000 10.11.0.2 " +
				"8080 TCP 60 x",
			"02.600000 AntreaPolicyIngressRule AntreaNetworkPolicy:default/log web Ingress Drop 44900 default/server " +
				"10.11.0.3 40000 10.11.0.2 8080 TCP 60 label",
		}
		have := strings.Split(strings.TrimSpace(out.String()), "\n")
		for i, line := range have {
			have[i] = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:`).ReplaceAllString(line, "")
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("lines (-want +have):\n%s", diff)
		}
	})
}

// TestPolicyLogFile writes the file, under its name.
func TestPolicyLogFile(t *testing.T) {
	dir := t.TempDir()
	var agentLog bytes.Buffer
	l := newPolicyLog(config.Default().AuditLogging, dir, func(netip.Addr, tenant.ID) string { return "default/a" },
		slog.New(slog.NewTextHandler(&agentLog, nil)))
	if err := l.take(logged(t, "AntreaPolicyEgressRule AntreaNetworkPolicy:default/log web 1 0 44900 label")); err != nil {
		t.Fatal(err)
	}
	for l.take(logged(t, "AntreaPolicyEgressRule AntreaNetworkPolicy:default/log web 1 0 44900 label")) == nil {
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := l.run(ended); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "networkpolicy", "np.log"))
	if err != nil {
		t.Fatal(err)
	}
	if want := regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} AntreaPolicyEgressRule .* label ` +
		`\[1024 packets in .*\]\n` +
		`.* <nil> \[1 packets were not logged: there were too many\]\n$`); !want.Match(text) {
		t.Errorf("the file has\n%s", text)
	}
	l.out = &buffer{broken: true}
	l.write(time.Now(), "lost")
	l.write(time.Now(), "lost as well")
	l.out = &buffer{}
	l.write(time.Now(), "written")
	if have := agentLog.String(); strings.Count(have, "level=ERROR") != 1 || !strings.Contains(have, "no space left") ||
		!strings.Contains(have, "written again") {
		t.Errorf("the agent says\n%s", have)
	}
}

// TestPolicyLogCountsDrops counts the drops of the switch's meters in the log, from the agent's start on.
func TestPolicyLogCountsDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		unknown := func(netip.Addr, tenant.ID) string { return "" }
		l := newPolicyLog(config.AuditLogging{}, t.TempDir(), unknown, slog.New(slog.DiscardHandler))
		l.out = &out
		var mu sync.Mutex
		meters, reads, away := map[uint32]uint64{64: 1000}, 0, true // before the agent started
		l.dropped = func(context.Context) (map[uint32]uint64, error) {
			mu.Lock()
			defer mu.Unlock()
			if reads++; away {
				return nil, errors.New("no connection to the switch")
			}
			return maps.Clone(meters), nil
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, run := range []func(context.Context) error{l.run, l.watchMeters} {
			running.Go(func() { _ = run(ctx) })
		}
		step := func(what string, change func(), want string) {
			t.Helper()
			mu.Lock()
			change()
			mu.Unlock()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			var lost []string
			for _, m := range regexp.MustCompile(`\[\d+ packets were not logged`).FindAllString(out.String(), -1) {
				lost = append(lost, strings.Trim(strings.TrimSuffix(m, " packets were not logged"), "["))
			}
			out.Reset()
			if have := strings.Join(lost, " "); have != want {
				t.Errorf("%s: lost %q, want %q", what, have, want)
			}
		}
		arrives := func() {
			if err := l.take(logged(t, "IngressRule K8sNetworkPolicy:default/a ingress[0] 0 3 1000")); err != nil {
				t.Error(err)
			}
		}
		step("the switch is away", func() {}, "")
		step("it is there", func() { away = false }, "")
		step("a meter drops", func() { meters[64] += 7; arrives() }, "7")
		step("another one drops too", func() { meters[64]++; meters[66] = 2; arrives() }, "3")
		step("the switch starts again", func() { meters = map[uint32]uint64{66: 1}; arrives() }, "1")
		mu.Lock()
		reads = 0
		mu.Unlock()
		step("nothing comes", func() {}, "")
		if reads > 0 {
			t.Errorf("the meters are read %d times though nothing comes", reads)
		}
		stop()
		running.Wait()
	})
}

// TestPackets passes every kind of packet to its own handler. A packet without a handler is counted.
func TestPackets(t *testing.T) {
	var took []string
	p := newPackets(map[datapath.PacketKind]func(ofp.PacketIn2) error{
		"a": func(in ofp.PacketIn2) error { took = append(took, string(in.Userdata)); return nil },
		"b": func(ofp.PacketIn2) error { return errQueueFull },
	}, slog.New(slog.DiscardHandler))
	for _, userdata := range []string{"a", "a for whom", "ab", "b", ""} {
		p.take(ofp.PacketIn2{Userdata: []byte(userdata)})
	}
	if diff := cmp.Diff([]string{"a", "a for whom"}, took); diff != "" {
		t.Error(diff)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.counts)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	var have []string
	for _, m := range families[0].GetMetric() {
		have = append(have, fmt.Sprint(m.GetLabel()[0].GetValue(), " ", m.GetLabel()[1].GetValue(), " ",
			m.GetCounter().GetValue()))
	}
	if diff := cmp.Diff([]string{"a taken 2", "b dropped 1", "other ignored 2"}, have); diff != "" {
		t.Error(diff)
	}
}
