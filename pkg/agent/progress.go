package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// progress is how far passes have been applied. Others wait for a pass with it.
type progress struct {
	mu       sync.Mutex
	pods     map[string]datapath.ServedPod // Pods whose flows were declared as they are, by port
	changed  chan struct{}                 // closed and replaced after each pass
	complete bool                          // the first complete plan was applied: removals are allowed
}

// newProgress returns the progress before the first pass.
func newProgress() *progress {
	return &progress{pods: map[string]datapath.ServedPod{}, changed: make(chan struct{})}
}

// await waits until done returns true after a pass, or ctx ends. A change of the switch's state causes a pass, too.
func (p *progress) await(ctx context.Context, done func() (bool, error)) error {
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		ok, err := done()
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// wake wakes the waiters for a pass.
func (p *progress) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// ready reports whether a complete plan was applied once.
func (p *progress) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complete
}

// release records that a complete plan was applied.
func (p *progress) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complete = true
}

// declared has the Pods at ports, as their flows were declared last. If no Pod is served at a port, get returns false.
func (p *progress) declared(ports map[derive.Name]bool, get func(derive.Name) (datapath.ServedPod, bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for port := range ports {
		if served, ok := get(port); ok {
			p.pods[string(port)] = served
		} else {
			delete(p.pods, string(port))
		}
	}
}

// served returns the Pod at a port as its flows were declared last.
func (p *progress) served(port string) (datapath.ServedPod, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	served, ok := p.pods[port]
	return served, ok
}

// podWith finds the Pod of this Node that has an address in one of some networks. If there are several, it returns the
// one whose port is the first by name.
func (p *progress) podWith(ip netip.Addr, in func(network derive.Object) bool) (pod datapath.Pod, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := ""
	for port, served := range p.pods {
		if (!found || port < first) && slices.Contains(served.Pod.IPs, ip) && in(served.Pod.Network) {
			pod, found, first = served.Pod, true, port
		}
	}
	return pod, found
}
