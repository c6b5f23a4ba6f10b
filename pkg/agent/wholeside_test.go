package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// wholeSide is a side that is all of an agent but its watches: the test is its API server.
func wholeSide(ctx context.Context, spec sideSpec, orders <-chan sideOrder, log *slog.Logger) error {
	var state sideOrder
	var running *wholeAgent // nil while it is away
	var reports reports
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var err error
		select {
		case o, ok := <-orders:
			if running != nil && (!ok || o.Away || o.Restart) {
				err = running.stop()
				running = nil
			}
			switch {
			case !ok:
				return err
			case o.Away:
			case o.Restart:
				running, err = startWhole(ctx, spec, state, log)
			case state.Switch == "" && o.Switch != "":
				state = o
				running, err = startWhole(ctx, spec, state, log)
			default:
				state = o
				if running != nil {
					running.tables.kinds.Fill(spec.view(o).objects()...)
				}
			}
		case <-tick.C:
		}
		if err != nil {
			return err
		}
		if running != nil {
			reports.write(running.report(spec))
		}
	}
}

type wholeAgent struct {
	*Agent
	stop func() error

	mu        sync.Mutex
	announced mcv1alpha1.WireGuardInfo
}

func startWhole(ctx context.Context, spec sideSpec, state sideOrder, log *slog.Logger) (*wholeAgent, error) {
	v := spec.view(state)
	registry := prometheus.NewRegistry()
	a, err := newAgent(Options{
		Config: v.Config, NodeName: v.NodeName, Namespace: "kube-system", REST: &rest.Config{Host: "http://127.0.0.1:1"},
		OVSRunDir: state.Switch, RunDir: filepath.Join(spec.Dir, "run"), StateDir: filepath.Join(spec.Dir, "state"),
		LogDir: filepath.Join(spec.Dir, "log"),
		Logger: log, Registerer: registry, Gatherer: registry,
	})
	if err != nil {
		return nil, err
	}
	a.api.addresses = nil // Leases need an API server
	w := &wholeAgent{Agent: a, announced: state.Peers[spec.Self]}
	for _, r := range a.wireguard.rotations {
		r.times = sideTimes()
	}
	for _, p := range a.wireguard.publishers {
		p.patch = func(_ context.Context, _ problem.Object, info mcv1alpha1.WireGuardInfo) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.announced = info
			return nil
		}
	}
	a.tables.kinds.Fill(v.objects()...)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := a.run(ctx, func(ctx context.Context) { <-ctx.Done() })
		if err == nil && ctx.Err() == nil {
			err = errors.New("it ended by itself")
		}
		if err != nil {
			log.Error("the agent", "error", err)
		}
		ended <- err
	}()
	w.stop = func() error {
		cancel()
		if err := <-ended; err != nil {
			return fmt.Errorf("run the agent: %w", err)
		}
		return nil
	}
	return w, nil
}

func (w *wholeAgent) report(spec sideSpec) sideReport {
	first, _ := spec.links()
	row, _ := w.tables.inside.encrypted.Get(self)
	r := sideReport{Peers: len(row.of(first).Peers), Second: len(row.of(first).Unused) > 0,
		Kind: pairOf(w.wireguard.encryptions, first)[0].device.State().Kind, Ready: w.progress.ready()}
	for _, rotation := range w.wireguard.rotations {
		r.Problems = append(r.Problems, texts(rotation.problems())...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Info = w.announced
	return r
}
