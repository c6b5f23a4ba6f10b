package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/observe/probe"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestNodeProbes pings addresses of the loopback interface by both versions of IP, and then none.
func TestNodeProbes(t *testing.T) {
	var mu sync.Mutex
	targets := []probe.Target{{Node: "node-2", Addr: netip.MustParseAddr("127.0.0.2")},
		{Node: "node-3", Addr: netip.MustParseAddr("::1")}}
	p := newNodeProbes(nil, slog.New(slog.DiscardHandler))
	p.targets = func(context.Context) ([]probe.Target, time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		return targets, time.Second, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.run(ctx) }()
	ovstest.Eventually(t, "both are probed", func() error {
		all, foreign := p.Results()
		if len(all) != 2 || foreign != 0 {
			return fmt.Errorf("%+v, %d foreign", all, foreign)
		}
		for _, r := range all {
			if r.Sent < 2 || r.Lost > 0 && r.Loss60 > .5 || r.P50Seconds <= 0 {
				return fmt.Errorf("%+v", r)
			}
		}
		return nil
	})
	if n, err := testutil.GatherAndCount(gatherer(t, p), "tombolo_node_rtt_seconds",
		"tombolo_node_probes_lost_total"); err != nil || n != 4 {
		t.Errorf("%d series, %v, want 4", n, err)
	}
	mu.Lock()
	targets = nil
	mu.Unlock()
	ovstest.Eventually(t, "nothing is probed", func() error {
		if all, _ := p.Results(); len(all) != 0 {
			return errors.New("there are results")
		}
		return nil
	})
	cancel()
	if err := <-done; err != nil || len(p.sockets) != 0 {
		t.Errorf("%v, %d sockets are open", err, len(p.sockets))
	}
}

// gatherer has the metrics of a collector.
func gatherer(t *testing.T, c prometheus.Collector) prometheus.Gatherer {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPingInterval reads the objects of the kind. Only one counts.
func TestPingInterval(t *testing.T) {
	for _, row := range []struct {
		name    string
		seconds int32
		want    time.Duration
	}{{"default", 60, time.Minute}, {"default", 0, 0}, {"other", 60, 0}} {
		m := &crdv1alpha1.NodeLatencyMonitor{ObjectMeta: metav1.ObjectMeta{Name: row.name}}
		m.Spec.PingIntervalSeconds = row.seconds
		if have := pingIntervalOf(m); have != row.want {
			t.Errorf("%+v: %s", row, have)
		}
	}
}
