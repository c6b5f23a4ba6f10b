package agent

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestDamagedRecordKeepsFlows restarts the agent with a port whose record is damaged. The switch keeps the Pod's flows
// until its attachment is rebuilt. An attachment without a port is reported, and the agent is ready.
func TestDamagedRecordKeepsFlows(t *testing.T) {
	w := newWalk(t, 4)
	w.attach()
	w.settle()
	w.compare()
	name := slices.Sorted(maps.Keys(w.world.pods))[0]
	pod, wanted := w.world.pods[name], w.wanted(datapath.PodOwner(name)).Flows
	lost := func() (lost []flow.Key) {
		have := flow.NewSet()
		for _, m := range w.request(allFlows) {
			for _, d := range m.(ofp.FlowDescReply).Flows {
				w.must(have.Add(flow.FromStats(d)))
			}
		}
		for _, f := range wanted {
			if _, there := have.Get(f.Key()); !there {
				lost = append(lost, f.Key())
			}
		}
		return lost
	}
	w.stopAgent()
	w.ovs.Vsctl("remove", "Port", name, "external_ids", "attached-mac")
	w.rebuilds = true
	w.startAgent()
	for known := false; !known; { // the pass after that applies
		<-w.passed
		_, known = w.agent.tables.node.Get(self)
	}
	w.world.version++
	w.world.fill(w.agent.tables, w.version)
	for w.seen.Load() != int64(w.world.version) {
		<-w.passed
	}
	if row, _ := w.agent.tables.pods.attachments.Get(derive.Name(name)); row.MAC != "" {
		t.Fatalf("the record is not damaged: %+v", row)
	}
	w.must(w.agent.flows.Synced(t.Context()))
	if l := lost(); len(wanted) == 0 || len(l) > 0 || w.agent.progress.ready() {
		t.Errorf("before the attachment is rebuilt %d of %d flows are gone: %v", len(l), len(wanted), l)
	}
	lostPort := cni.Unrecovered{Err: "nobody holds its namespace", Attachment: cni.Attachment{
		PodNamespace: "default", PodName: "lost", ContainerID: "c1", IfName: "eth0", PortName: "lost-123456"}}
	w.agent.unrecovered([]cni.Unrecovered{{Attachment: pod, Err: "not yet"}, lostPort})
	reported := func() (names []string) {
		for _, p := range w.agent.tables.engine.Problems() {
			if p.Reason.String() == "AttachmentLost" {
				names = append(names, p.Object.String())
			}
			if p.Reason.String() == "AttachmentLost" && p.Name == "lost" &&
				!strings.Contains(p.Message, "nobody holds its namespace: delete the Pod; if it is gone already, "+
					"remove its interface on this Node: ip link del lost-123456") {
				t.Errorf("the problem's message: %s", p.Message)
			}
		}
		slices.Sort(names)
		return names
	}
	for len(reported()) < 2 {
		<-w.passed
	}
	if w.agent.progress.ready() {
		t.Error("ready before the attachment of a port is rebuilt")
	}
	w.agent.attachments.Load().restore(pod)
	w.agent.unrecovered([]cni.Unrecovered{lostPort})
	w.settle()
	w.compare()
	if have := reported(); !slices.Equal(have, []string{"Pod default/lost"}) || !w.agent.progress.ready() {
		t.Errorf("lost attachments: %q; ready %t", have, w.agent.progress.ready())
	}
	w.agent.unrecovered(nil)
	w.settle()
	if have := reported(); len(have) > 0 {
		t.Errorf("lost attachments after all are gone: %q", have)
	}
}
