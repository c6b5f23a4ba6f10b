package agent

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

var tableSteps = flag.Int("walk.tables", 900, "how many steps the walk without a switch has")

// TestWalkTables changes the cluster and the Node at random. After each step the agent's tables equal tables made from
// nothing. Its writers were notified of exactly the differences.
//
//tombolo:unraced
func TestWalkTables(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		if *walkSeed != 0 {
			seed = *walkSeed
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			c := config.Default()
			c.FeatureGates = map[string]bool{"Multicluster": true}
			c.Multicluster.EnableGateway = true
			c.Multicluster.EnablePodToPodConnectivity = seed%2 == 0
			w, ports := newWorld(), map[string]bridge.PortState{}
			tables := newTables(c, ownName)
			written := map[flow.Owner]flow.Entries{}
			tables.flows.Watch(func(o flow.Owner, entries func() flow.Entries) {
				if e := entries(); len(e.Flows)+len(e.Groups) > 0 {
					written[o] = e
				} else {
					delete(written, o)
				}
			})
			for step := range *tableSteps / 3 {
				what := w.step(r, ports)
				view := w.view(c, "02:00:00:00:00:01")
				view.Switch = bridge.State{Connected: true, Bridges: map[string]bridge.Found{c.OVSBridge: {Ports: ports}}}
				tables.set(view)
				tables.engine.Pass()
				last, _ := tables.this.last.Get(self)
				want, problems := planAfter(last, view)
				have := tables.desired()
				fail := func(what, diff string) {
					t.Helper()
					t.Fatalf("seed %d, step %d, %s: %s (-from nothing +incremental):\n%s", seed, step, what, what, diff)
				}
				if diff := cmp.Diff(flowTexts(want.Flows), flowTexts(have.Flows)); diff != "" {
					fail(what+": flows", diff)
				}
				if _, known := tables.node.Get(self); known {
					if diff := cmp.Diff(flowTexts(want.Flows), flowTexts(written)); diff != "" {
						fail(what+": flows that were written", diff)
					}
				}
				if diff := cmp.Diff(want.text(), have.text()); diff != "" {
					fail(what, diff)
				}
				if diff := cmp.Diff(problems, tables.engine.Problems()); diff != "" {
					fail(what+": problems", diff)
				}
			}
		})
	}
}

// text is a plan but for its flows.
func (d Desired) text() []string {
	network := ""
	if d.Network != nil {
		network = fmt.Sprintf("%+v", *d.Network)
	}
	d.Network, d.Flows = nil, nil
	return []string{network, fmt.Sprintf("%+v", d)}
}

// step changes the cluster, or the Pods of the Node and their ports.
func (w *world) step(r *rand.Rand, ports map[string]bridge.PortState) string {
	name := anyOf(r, w.pods)
	switch n := r.IntN(10); {
	case n == 0 && len(w.pods) < 20:
		p := w.newPod()
		return p.PodName + " comes"
	case n == 1 && name != "":
		ports[name] = oneOf(r, bridge.PortState{}, bridge.PortState{OFPort: uint32(1 + r.IntN(5))},
			bridge.PortState{OFPort: uint32(1 + r.IntN(20))}, bridge.PortState{Error: "no such device"})
		return fmt.Sprintf("port %s is %+v", name, ports[name])
	case n == 2 && name != "":
		delete(w.pods, name)
		return name + " goes"
	case n == 3 && name != "":
		p := w.pods[name]
		p.MAC = oneOf(r, "0a:00:00:00:00:07", "none")
		w.pods[name] = p
		return name + " has MAC " + p.MAC
	}
	if r.IntN(40) == 0 {
		if w.nodes[ownName] != nil {
			delete(w.nodes, ownName)
			return "this Node goes"
		}
		w.nodes[ownName] = testNode(ownName, selfAddress, "10.11.1.0/24")
		return "this Node comes"
	}
	return w.change(r)
}

func flowTexts(all map[flow.Owner]flow.Entries) map[string][]string {
	out := map[string][]string{}
	for o, e := range all {
		lines := texts(e.Flows)
		for _, g := range e.Groups {
			lines = append(lines, g.String())
		}
		out[o.String()] = lines
	}
	return out
}

// manyServices is a view with Services of five endpoints each, and Nodes.
func manyServices(services, nodes int) View {
	v := testView()
	for i := range services {
		name := fmt.Sprint("web", i)
		v.Services = append(v.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.97.%d.%d", 1+i/250, 1+i%250),
				Ports: []corev1.ServicePort{{Port: 80}}},
		})
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-x",
				Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Port: new(int32(8080))}},
		}
		for j := range 5 {
			s.Endpoints = append(s.Endpoints,
				discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 100+i/250, i%250, 2+j)}})
		}
		v.EndpointSlices = append(v.EndpointSlices, s)
	}
	for i := range nodes {
		v.Nodes = append(v.Nodes, testNode(fmt.Sprint("far-", i), fmt.Sprintf("192.168.%d.%d", 100+i/250, 1+i%250),
			fmt.Sprintf("10.%d.%d.0/24", 50+i/250, i%250)))
	}
	return v
}

// TestCost counts the evaluations that events cause, and the writers that they notify.
func TestCost(t *testing.T) {
	v := manyServices(500, 50)
	tables := newTables(v.Config, v.NodeName)
	owners, others := 0, 0
	tables.flows.Watch(func(flow.Owner, func() flow.Entries) { owners++ })
	tables.outputs.bridges.Watch(func([]derive.Change[derive.Name, []bridge.Bridge]) { others++ })
	tables.set(v)
	tables.engine.Pass()
	heartbeat := v.Nodes[7].DeepCopy()
	heartbeat.ResourceVersion = "77"
	heartbeat.Annotations = map[string]string{"example.com/unread": "x"}
	heartbeat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
	managed := v.Services[9].DeepCopy()
	managed.ResourceVersion, managed.Labels = "78", map[string]string{"unread": "y"}
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	fewer := v.EndpointSlices[11].DeepCopy()
	fewer.Endpoints = fewer.Endpoints[1:]
	import11 := v.ClusterInfoImports[0].DeepCopy()
	import11.ResourceVersion, import11.Labels = "79", map[string]string{"unread": "z"}
	pod := v.Attachments[0]
	pod.PortName, pod.ContainerID, pod.IPs = "new-1", "c2", nil
	asks := pod
	asks.PortName, asks.ContainerID = "new-2", "c3"
	for _, row := range []struct {
		name   string
		event  func()
		keys   int
		owners int
		others int
	}{
		{"a Node's heartbeat", func() { tables.kinds.Set(heartbeat) }, 0, 0, 0},
		{"labels and managed fields of a Service", func() { tables.kinds.Set(managed) }, 0, 0, 0},
		{"labels of a ClusterInfoImport", func() { tables.kinds.Set(import11) }, 0, 0, 0},
		{"a port of the OVSDB that is not ours",
			func() { tables.pods.ports.Set("other0", portFacts{There: true, OFPort: 9}) }, 0, 0, 0},
		{"the underlay as it was", func() {
			u, _ := tables.this.underlay.Get(self)
			tables.this.underlay.Set(self, u)
		}, 0, 0, 0},
		{"one endpoint of one Service", func() { tables.kinds.Set(fewer) }, 50, 1, 0},
		{"a Pod is attached", func() { tables.pods.attachments.Set(derive.Name(pod.PortName), pod) }, 50, 0, 1},
		{"its port has a number",
			func() { tables.pods.ports.Set(derive.Name(pod.PortName), portFacts{There: true, OFPort: 9}) }, 50, 1, 0},
		{"a Pod is attached with a port that asks for a number", func() {
			tables.pods.attachments.Set(derive.Name(asks.PortName), asks)
			tables.pods.numbers.Set(derive.Name(asks.PortName), 10)
		}, 50, 1, 1},
		{"its port gets the number",
			func() { tables.pods.ports.Set(derive.Name(asks.PortName), portFacts{There: true, OFPort: 10}) }, 50, 0, 0},
		{"its port gets another number",
			func() { tables.pods.ports.Set(derive.Name(asks.PortName), portFacts{There: true, OFPort: 11}) }, 50, 1, 0},
	} {
		owners, others = 0, 0
		row.event()
		tables.engine.Pass()
		last, _, _ := tables.engine.Stats()
		if last.Evaluated > row.keys || owners != row.owners || others != row.others {
			t.Errorf("%s: %d keys evaluated, %d owners and %d other writers called; want at most %d, and %d, %d",
				row.name, last.Evaluated, owners, others, row.keys, row.owners, row.others)
		}
	}
}

// BenchmarkEndpointChange changes the endpoints of one of 10,000 Services, on one of 1,000 Nodes.
func BenchmarkEndpointChange(b *testing.B) {
	v := manyServices(10000, 1000)
	for i := range 100 {
		v.Attachments = append(v.Attachments, cni.Attachment{PortName: fmt.Sprint("p", i), ContainerID: fmt.Sprint(i),
			MAC: "02:00:00:00:00:03"})
	}
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	tables.engine.Pass()
	slice := v.EndpointSlices[5000]
	all := slice.Endpoints
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		slice.Endpoints = all[i%2:]
		tables.kinds.Set(slice)
		tables.engine.Pass()
	}
	last, _, _ := tables.engine.Stats()
	b.ReportMetric(float64(last.Evaluated), "keys")
}
