package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
)

// attachments is the record of who is attached to this Node's switch. It starts as what
// the OVSDB says, changes with CNI calls, and the ports in the OVSDB follow it.
type attachments struct {
	mu   sync.Mutex
	byID map[attachmentID]cni.Attachment
}

type attachmentID struct{ container, ifName string }

func newAttachments(list []cni.Attachment) *attachments {
	a := &attachments{byID: map[attachmentID]cni.Attachment{}}
	for _, at := range list {
		a.byID[attachmentID{at.ContainerID, at.IfName}] = at
	}
	return a
}

func (a *attachments) put(at cni.Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byID[attachmentID{at.ContainerID, at.IfName}] = at
}

// remove takes an attachment out and returns it; false when there is none.
func (a *attachments) remove(container, ifName string) (cni.Attachment, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := attachmentID{container, ifName}
	at, ok := a.byID[id]
	delete(a.byID, id)
	return at, ok
}

// list returns all attachments, ordered by port name.
func (a *attachments) list() []cni.Attachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.byID), func(x, y cni.Attachment) int {
		return strings.Compare(x.PortName, y.PortName)
	})
}

// Network says what a new Pod gets. It waits until the Node's network is ready.
func (a *Agent) Network(ctx context.Context) (cni.Network, error) {
	var network *cni.Network
	err := a.await(ctx, func(d Desired) (bool, error) {
		network = d.Network
		return network != nil && a.ready(), nil
	})
	if err != nil {
		return cni.Network{}, fmt.Errorf("the Node's network is not ready: %w; see `tombolo get status`", err)
	}
	return *network, nil
}

// Attach gives a Pod's interface a port on the switch. It returns when the switch has
// confirmed the Pod's flows.
func (a *Agent) Attach(ctx context.Context, at cni.Attachment) error {
	a.attachments.put(at)
	a.runner.ring()
	err := a.await(ctx, func(d Desired) (bool, error) {
		if d.Network == nil || !a.has(at) {
			return false, nil
		}
		if e := a.switchPorts.State().Bridges[a.config.OVSBridge].Ports[at.PortName].Error; e != "" {
			return false, fmt.Errorf("Open vSwitch refused port %s: %s", at.PortName, e)
		}
		return planned(d, at.PortName), nil
	})
	if err != nil {
		return fmt.Errorf("attach Pod %s/%s: %w", at.PodNamespace, at.PodName, err)
	}
	owner := datapath.PodOwner(at.PortName)
	if err := a.flows.Synced(ctx, owner); err != nil {
		return fmt.Errorf("attach Pod %s/%s: flows: %w", at.PodNamespace, at.PodName, err)
	}
	return nil
}

// planned reports whether the plan holds flows for the Pod behind a port.
func planned(d Desired, port string) bool {
	_, ok := d.Flows[datapath.PodOwner(port)]
	return ok && !d.Waiting[port]
}

func (a *Agent) has(at cni.Attachment) bool {
	a.attachments.mu.Lock()
	defer a.attachments.mu.Unlock()
	_, ok := a.attachments.byID[attachmentID{at.ContainerID, at.IfName}]
	return ok
}

// Detach takes a Pod's port and flows away. What is not there is detached already.
func (a *Agent) Detach(ctx context.Context, containerID, ifName string) error {
	at, ok := a.attachments.remove(containerID, ifName)
	if !ok {
		return nil
	}
	a.runner.ring()
	err := a.await(ctx, func(d Desired) (bool, error) {
		if _, still := d.Flows[datapath.PodOwner(at.PortName)]; still {
			return false, nil
		}
		_, still := a.switchPorts.State().Bridges[a.config.OVSBridge].Ports[at.PortName]
		return !still, nil
	})
	if err != nil {
		return fmt.Errorf("detach Pod %s/%s: port %s: %w", at.PodNamespace, at.PodName, at.PortName, err)
	}
	if err := a.flows.Synced(ctx, datapath.PodOwner(at.PortName)); err != nil {
		return fmt.Errorf("detach Pod %s/%s: flows: %w", at.PodNamespace, at.PodName, err)
	}
	return nil
}

// Attachments lists who is attached.
func (a *Agent) Attachments() []cni.Attachment { return a.attachments.list() }

// await waits until done holds for the latest plan, or ctx ends. The switch's state may
// change without a new plan, so its bell rings the runner, which plans again.
func (a *Agent) await(ctx context.Context, done func(Desired) (bool, error)) error {
	for {
		desired, changed := a.current()
		ok, err := done(desired)
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
