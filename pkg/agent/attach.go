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
	// leaving are those whose port and flows may still be there: a DEL that failed half way
	// is tried again by the runtime, and must not take them for gone.
	leaving map[attachmentID]cni.Attachment
}

type attachmentID struct{ container, ifName string }

func newAttachments(list []cni.Attachment) *attachments {
	a := &attachments{byID: map[attachmentID]cni.Attachment{}, leaving: map[attachmentID]cni.Attachment{}}
	for _, at := range list {
		a.byID[attachmentID{at.ContainerID, at.IfName}] = at
	}
	return a
}

func (a *attachments) put(at cni.Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := attachmentID{at.ContainerID, at.IfName}
	a.byID[id] = at
	delete(a.leaving, id)
}

// leave takes an attachment out and returns it; false when there is none, and none that is
// still leaving.
func (a *attachments) leave(container, ifName string) (cni.Attachment, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := attachmentID{container, ifName}
	if at, ok := a.byID[id]; ok {
		delete(a.byID, id)
		a.leaving[id] = at
	}
	at, ok := a.leaving[id]
	return at, ok
}

// left says that nothing of an attachment remains.
func (a *attachments) left(at cni.Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.leaving, attachmentID{at.ContainerID, at.IfName})
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
	a.runner.Trigger()
	err := a.await(ctx, func(d Desired) (bool, error) {
		if d.Network == nil || !a.has(at) {
			return false, nil
		}
		if e := a.switchPorts.State().Bridges[a.config.OVSBridge].Ports[at.PortName].Error; e != "" {
			return false, fmt.Errorf("port %s was refused by Open vSwitch: %s", at.PortName, e)
		}
		return planned(d, at), nil
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

// planned reports whether the plan holds flows for an attachment as it is now: a repeated
// ADD may come with another MAC or address.
func planned(d Desired, at cni.Attachment) bool {
	if _, ok := d.Flows[datapath.PodOwner(at.PortName)]; !ok || d.Waiting[at.PortName] {
		return false
	}
	for _, pod := range d.State.Pods {
		if pod.Interface != at.PortName {
			continue
		}
		same := pod.MAC.String() == strings.ToLower(at.MAC) && len(pod.IPs) == len(at.IPs)
		for i := range at.IPs {
			same = same && pod.IPs[i] == at.IPs[i].Addr()
		}
		return same
	}
	return false
}

func (a *Agent) has(at cni.Attachment) bool {
	a.attachments.mu.Lock()
	defer a.attachments.mu.Unlock()
	_, ok := a.attachments.byID[attachmentID{at.ContainerID, at.IfName}]
	return ok
}

// Detach takes a Pod's port and flows away. What is not there is detached already.
func (a *Agent) Detach(ctx context.Context, containerID, ifName string) error {
	at, ok := a.attachments.leave(containerID, ifName)
	if !ok {
		return nil
	}
	a.runner.Trigger()
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
	a.attachments.left(at)
	return nil
}

// Attachments lists who is attached.
func (a *Agent) Attachments() []cni.Attachment { return a.attachments.list() }

// await waits until done holds for the latest plan, or ctx ends. The switch's state may
// change without a new plan, so a change triggers the runner, which plans again.
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
