package agent

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// attachments is the record of the attachments to this Node's switch. It starts with the record in the OVSDB and
// changes with CNI calls. The ports in the OVSDB follow it.
type attachments struct {
	mu   sync.Mutex
	byID map[attachmentID]cni.Attachment
	// leaving are attachments whose port and flows may still exist. If a DEL fails half way, the runtime repeats it, and
	// has to find the attachment.
	leaving map[attachmentID]cni.Attachment
	tables  *tables
	// ports returns the ports of the OVSDB. A new port gets a number here. So its flows do not wait for the number that
	// Open vSwitch would choose.
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
		a.restore(at)
	}
	return a
}

// restore records an attachment that has existed before. Its Pod keeps what it has.
func (a *attachments) restore(at cni.Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record(attachmentID{at.ContainerID, at.IfName}, at)
}

// put records an attachment. If another one has a port of the Node that it asks for, it is not recorded.
func (a *attachments) put(at cni.Attachment) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := attachmentID{at.ContainerID, at.IfName}
	for other, has := range a.byID {
		if port, _, found := at.HostPorts.Meets(has.HostPorts); found && other != id {
			return &cni.HostPortTakenError{Port: port, Other: has}
		}
	}
	a.record(id, at)
	return nil
}

// record puts an attachment into the tables. The caller holds a.mu.
func (a *attachments) record(id attachmentID, at cni.Attachment) {
	before, again := a.byID[id]
	a.byID[id] = at
	delete(a.leaving, id)
	number := a.number(at.PortName)
	a.tables.engine.Together(func() {
		if again && before.PortName != at.PortName { // nothing else would remove that
			a.remove(before)
		}
		a.tables.pods.attachments.Set(derive.Name(at.PortName), at)
		if number != 0 {
			a.tables.pods.numbers.Set(derive.Name(at.PortName), ofp.Port(number))
		}
	})
}

// number returns the number that a port requests. It returns 0 for a port that already has a number. The caller holds
// a.mu.
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

// adopt records the UID of the Pod at a port whose attachment has no UID.
func (a *attachments) adopt(port string, uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, at := range a.byID {
		if at.PortName == port && at.PodUID == "" {
			at.PodUID = uid
			a.byID[id] = at
			a.tables.pods.attachments.Set(derive.Name(port), at)
		}
	}
}

// leave removes an attachment and returns it. It also finds attachments that are leaving already. It returns false if
// there is no such attachment.
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
	a.tables.pods.attachments.Delete(derive.Name(at.PortName))
	a.tables.pods.numbers.Delete(derive.Name(at.PortName))
}

// left records that nothing of an attachment remains.
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

// networks returns the VirtualNetworks of all attachments, also of these whose port and flows may still exist. It
// returns nothing before the OVSDB's record is read.
func (a *attachments) networks() (out []string) {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, list := range []map[attachmentID]cni.Attachment{a.byID, a.leaving} {
		for _, at := range list {
			if at.VirtualNetwork != "" {
				out = append(out, at.VirtualNetwork)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// has reports whether an attachment is in the record.
func (a *attachments) has(at cni.Attachment) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.byID[attachmentID{at.ContainerID, at.IfName}]
	return ok
}
