package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
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

// TestNodeObjectNeverKnown restarts the agent while the Node's object is gone. Its Pods can be detached. The switch has
// their ports until the agent knows the Node, and then has nothing of them.
func TestNodeObjectNeverKnown(t *testing.T) {
	w := newWalk(t, 2)
	w.attach()
	w.settle()
	node := w.world.nodes[ownName]
	w.stopAgent()
	delete(w.world.nodes, ownName)
	w.startAgent()
	ports := func() int {
		n := 0
		for name := range w.agent.switchPorts.State().Bridges[w.config.OVSBridge].Ports {
			if strings.HasPrefix(name, "pod-") {
				n++
			}
		}
		return n
	}
	before := ports()
	for range 2 { // the runtime may repeat a DEL
		for _, p := range w.world.pods {
			ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
			err := w.agent.cniNode().Detach(ctx, p.ContainerID, p.IfName)
			cancel()
			if err != nil {
				t.Fatalf("before the Node's object is known: %v", err)
			}
		}
	}
	if after := ports(); before == 0 || before != len(w.world.pods) || after != before {
		t.Errorf("%d ports of %d Pods, and %d after they were detached", before, len(w.world.pods), after)
	}
	clear(w.world.pods)
	w.world.nodes[ownName] = node
	w.settle()
	w.compare()
	w.ovs.Eventually("no port of a Pod", func() error {
		if n := ports(); n != 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
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
