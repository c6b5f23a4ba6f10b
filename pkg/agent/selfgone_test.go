package agent

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestNodeObjectGone deletes the Node's object. Its Pods can still be detached, but no Pod can be added.
func TestNodeObjectGone(t *testing.T) {
	w := newWalk(t, 2)
	w.attach()
	w.settle()
	node := w.world.nodes[ownName]
	delete(w.world.nodes, ownName)
	w.settle()
	w.ovs.Eventually("no network for new Pods", func() error {
		if _, known := w.agent.tables.outputs.network.Get(self); known {
			return errors.New("there is one")
		}
		return nil
	})
	for name, p := range w.world.pods {
		ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
		err := w.agent.cniNode().Detach(ctx, p.ContainerID, p.IfName)
		cancel()
		if err != nil {
			t.Fatalf("while the Node's object is gone: %v", err)
		}
		delete(w.world.pods, name)
	}
	w.world.nodes[ownName] = node
	w.compare() // the agent has not read yet that the object is back
	w.settle()
	w.compare()
}

// TestUnderlayStays removes the Node's object and then the result of reading the underlay. The plan stays, except for
// the network of new Pods.
func TestUnderlayStays(t *testing.T) {
	v := testView()
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	tables.engine.Pass()
	want := tables.desired()
	if want.Network == nil || len(want.Pods) != 1 {
		t.Fatalf("before: %+v", want)
	}
	want.Network = nil
	check := func(when string) {
		t.Helper()
		tables.engine.Pass()
		if have := tables.desired(); !reflect.DeepEqual(want, have) {
			t.Errorf("%s: want, have:\n%+v\n%+v", when, want, have)
		}
	}
	tables.nodes.Delete(derive.Object{Name: v.NodeName})
	check("without the object")
	tables.this.underlay.Set(self, Underlay{Read: true})
	check("without an underlay")
	tables.pods.attachments.Delete("web-a1b2c3")
	tables.engine.Pass()
	if have := tables.desired(); len(have.Pods) != 0 || len(have.Bridges[0].Ports) != len(want.Bridges[0].Ports)-1 {
		t.Errorf("the Pod that went is still wanted: %+v", have)
	}
}
