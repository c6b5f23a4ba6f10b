package agent

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// attachments is the record of what is attached to this Node's switch. It starts as what
// the OVSDB says, changes with CNI calls, and the ports in the OVSDB follow it.
type attachments struct {
	mu   sync.Mutex
	byID map[attachmentID]cni.Attachment
	// leaving are those whose port and flows may still be there: a DEL that failed half way
	// is tried again by the runtime, and must not take them for gone.
	leaving map[attachmentID]cni.Attachment
	tables  *tables
	// ports says which ports the OVSDB has. A new one gets a number here, so that its flows need not
	// wait for the one that Open vSwitch would choose.
	ports      func() map[string]bridge.PortState
	numbers    map[string]uint32 // of new ports, by name
	lastNumber uint32
}

type attachmentID struct{ container, ifName string }

// newAttachments starts a record that is kept in the tables, too, by port.
func newAttachments(list []cni.Attachment, t *tables, ports func() map[string]bridge.PortState) *attachments {
	a := &attachments{
		byID: map[attachmentID]cni.Attachment{}, leaving: map[attachmentID]cni.Attachment{},
		tables: t, ports: ports, numbers: map[string]uint32{},
	}
	for _, at := range list {
		a.put(at)
	}
	return a
}

func (a *attachments) put(at cni.Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := attachmentID{at.ContainerID, at.IfName}
	before, again := a.byID[id]
	a.byID[id] = at
	delete(a.leaving, id)
	number := a.number(at.PortName)
	a.tables.engine.Together(func() {
		if again && before.PortName != at.PortName { // nothing else would remove that
			a.remove(before)
		}
		a.tables.attachments.Set(derive.Name(at.PortName), at)
		if number != 0 {
			a.tables.numbers.Set(derive.Name(at.PortName), ofp.Port(number))
		}
	})
}

// number returns the number that a port asks for, 0 for one that has its number from before. a.mu is
// held.
func (a *attachments) number(port string) uint32 {
	if n := a.numbers[port]; n != 0 {
		return n
	}
	have := a.ports()
	if have[port].OFPort != 0 || have[port].OFPortWanted != 0 {
		return 0
	}
	taken := map[uint32]bool{}
	for _, p := range have {
		taken[p.OFPort], taken[p.OFPortWanted] = true, true
	}
	for _, n := range a.numbers {
		taken[n] = true
	}
	n := bridge.NextNumber(a.lastNumber, func(n uint32) bool { return taken[n] })
	if n != 0 {
		a.lastNumber, a.numbers[port] = n, n
	}
	return n
}

// adopt records the UID of the Pod at a port whose attachment has none.
func (a *attachments) adopt(port string, uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, at := range a.byID {
		if at.PortName == port && at.PodUID == "" {
			at.PodUID = uid
			a.byID[id] = at
			a.tables.attachments.Set(derive.Name(port), at)
		}
	}
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
		a.tables.engine.Together(func() { a.remove(at) })
	}
	at, ok := a.leaving[id]
	return at, ok
}

// remove takes an attachment out of the tables. a.mu is held.
func (a *attachments) remove(at cni.Attachment) {
	delete(a.numbers, at.PortName)
	a.tables.attachments.Delete(derive.Name(at.PortName))
	a.tables.numbers.Delete(derive.Name(at.PortName))
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
	var network cni.Network
	err := a.await(ctx, func() (ok bool, err error) {
		network, ok = a.tables.network.Get(self)
		return ok && a.ready(), nil
	})
	if err != nil {
		return cni.Network{}, fmt.Errorf("the Node's network is not ready: %w; see `tombolo get status`", err)
	}
	return network, nil
}

// labelsWait is how long an ADD waits for a Pod's labels. The kubelet heard of the Pod as the agent does, and makes its
// sandbox before it calls the plugin: the agent has hardly ever not heard of it by then.
const labelsWait = 2 * time.Second

// Attach gives a Pod's interface a port on the switch. It returns when the port has its number and
// the switch has confirmed the Pod's flows for it. Both are asked for at the same time: the flows are for
// the number that the port asks for, and follow where it gets another one. Where policies may select the Pod it waits for the
// Pod's labels as well, but not for long: without them the Pod starts closed, and opens when they come.
func (a *Agent) Attach(ctx context.Context, at cni.Attachment) error {
	a.attachments.put(at)
	if at.PodUID != "" { // else nothing says whose labels they are before the kubelet has reported the address
		labelled, cancel := context.WithTimeout(ctx, labelsWait)
		defer cancel()
		_ = a.await(labelled, func() (bool, error) {
			served, ok := a.served(at)
			return ok && !served.Closed, nil
		})
	}
	failed := func(err error) error { return fmt.Errorf("attach Pod %s/%s: %w", at.PodNamespace, at.PodName, err) }
	for {
		var declared, number ofp.Port
		err := a.await(ctx, func() (ok bool, err error) {
			if number, err = a.portOf(at); err != nil {
				return false, err
			}
			_, known := a.tables.network.Get(self)
			served, ok := a.served(at)
			declared = served.Pod.Port
			return ok && known && a.has(at) && (number == 0 || number == declared), nil
		})
		if err != nil {
			return failed(err)
		}
		if err := a.flows.Synced(ctx, datapath.PodOwner(at.PortName)); err != nil {
			return failed(fmt.Errorf("flows: %w", err))
		}
		if err := a.await(ctx, func() (bool, error) {
			number, err = a.portOf(at)
			return number != 0, err
		}); err != nil {
			return failed(err)
		}
		if number == declared {
			return nil
		}
	}
}

// portOf returns the number of an attachment's port, 0 while it has none, or why Open vSwitch refused
// the port of a known attachment.
func (a *Agent) portOf(at cni.Attachment) (ofp.Port, error) {
	if _, known := a.tables.network.Get(self); !known || !a.has(at) {
		return 0, nil
	}
	port := a.switchPorts.State().Bridges[a.config.OVSBridge].Ports[at.PortName]
	if port.Error != "" {
		return 0, fmt.Errorf("port %s was refused by Open vSwitch: %s", at.PortName, port.Error)
	}
	return ofp.Port(port.OFPort), nil
}

// served returns how an attachment is served by the flows that were declared; false where these are not for the
// attachment as it is now: a repeated ADD may come with another MAC or address.
func (a *Agent) served(at cni.Attachment) (datapath.ServedPod, bool) {
	a.mu.Lock()
	served := a.applied[at.PortName]
	a.mu.Unlock()
	mac, err := ofp.ParseMAC(at.MAC)
	return served, served.Served && err == nil && reflect.DeepEqual(served.Pod, podAt(at, mac, served.Pod.Port))
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
	err := a.await(ctx, func() (bool, error) {
		a.mu.Lock()
		_, flows := a.applied[at.PortName]
		a.mu.Unlock()
		_, still := a.switchPorts.State().Bridges[a.config.OVSBridge].Ports[at.PortName]
		return !flows && !still, nil
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

// Attachments lists what is attached.
func (a *Agent) Attachments() []cni.Attachment { return a.attachments.list() }

// await waits until done holds after a pass, or ctx ends. A change of the switch's state makes
// a pass, too.
func (a *Agent) await(ctx context.Context, done func() (bool, error)) error {
	for {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
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
