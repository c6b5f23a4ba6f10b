package agent

import (
	"maps"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Desired is everything that this Node should have.
type Desired struct {
	Bridges []bridge.Bridge
	Host    hostnet.Desired
	Flows   map[flow.Owner]flow.Entries

	// Rows from which the flows are made.
	Node        datapath.Node
	Pods        []datapath.Pod
	RemoteNodes []datapath.RemoteNode
	Frontends   []service.Frontend
	Peering     peering.Peering
	// Network is the network of a new Pod; nil while the Node has no podCIDR.
	Network *cni.Network
	// Waiting are the attachments whose port has no number yet, by port name.
	Waiting map[string]bool
}

// Plan evaluates the tables from nothing for a view. It returns the desired state of this Node, and the Problems.
func Plan(v View) (Desired, []problem.Problem) { return planAfter(thisNode{}, v) }

// planAfter returns the Plan for a view, given the Node's last known state.
func planAfter(last thisNode, v View) (Desired, []problem.Problem) {
	t := newTables(v.Config, v.NodeName)
	t.this.last.Set(self, last)
	t.set(v)
	t.engine.Pass()
	return t.desired(), t.engine.Problems()
}

// desired copies the rows of the tables. It returns a zero value while the Node is unknown.
func (t *tables) desired() Desired {
	d := Desired{
		Pods: values(t.pods.rows.All()), RemoteNodes: values(t.remotes.All()),
		Waiting: map[string]bool{}, Flows: map[flow.Owner]flow.Entries{},
	}
	var ok bool
	if d.Node, ok = t.node.Get(self); !ok {
		return Desired{}
	}
	d.Bridges, _ = t.outputs.bridges.Get(self)
	d.Host, _ = t.outputs.host.Get(self)
	d.Peering, _ = t.peers.peering.Get(self)
	for _, row := range t.services.Frontends.All() {
		d.Frontends = append(d.Frontends, row.Value...)
	}
	for _, row := range t.pods.waiting.All() {
		d.Waiting[string(row.Key)] = true
	}
	if network, ok := t.outputs.network.Get(self); ok {
		d.Network = &network
	}
	maps.Insert(d.Flows, t.flows.All())
	return d
}
