package policy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// attachedNode returns the tables of node-1 (10.10.1.0/24) in a cluster with node-2 (10.10.2.0/24), whose Namespace x
// is known.
func attachedNode() (*derive.Engine, *Tables, *derive.Source[derive.Name, Attachment]) {
	e := derive.New()
	attachments := derive.NewSource[derive.Name, Attachment](e, "attachments")
	attachments.Loaded()
	tables := NewTables(e, "node-1", attachments)
	for name, text := range map[string]string{"node-1": "10.10.1.0/24", "node-2": "10.10.2.0/24"} {
		tables.Nodes.Set(derive.Object{Name: name}, NodeFacts{PodCIDRs: []netip.Prefix{netip.MustParsePrefix(text)}})
	}
	tables.Namespaces.Set(derive.Object{Name: "x"}, "kubernetes.io/metadata.name=x")
	tables.Loaded()
	return e, tables, attachments
}

// podOf is Pod x/NAME, which was created so many seconds after others.
func podOf(name, uid, node string, created int64, phase corev1.PodPhase, ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "x", Name: name, UID: types.UID(uid), CreationTimestamp: metav1.Unix(1700000000+created, 0),
		Labels: map[string]string{"app": name},
	}}
	p.Spec.NodeName, p.Status.Phase = node, phase
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func TestAttached(t *testing.T) {
	mirror := podOf("web", "mirror", "node-1", 0, corev1.PodRunning)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "of-the-file"}
	own := derive.Object{Namespace: "x", Name: "web"}
	for _, row := range []struct {
		name  string
		pod   *corev1.Pod
		other *Attachment
		at    Attachment
		known bool
		uid   types.UID
	}{
		{"its UID, before the status has an address", podOf("web", "u1", "node-1", 0, corev1.PodPending), nil,
			Attachment{UID: "u1"}, true, "u1"},
		{"no Pod", podOf("other", "u1", "node-1", 0, corev1.PodRunning), nil, Attachment{UID: "u1"}, false, "u1"},
		{"another UID", podOf("web", "u2", "node-1", 0, corev1.PodRunning), nil, Attachment{UID: "u1"}, false, "u1"},
		{"another UID, the same address", podOf("web", "u2", "node-1", 0, corev1.PodRunning, "10.10.1.7"), nil,
			Attachment{UID: "u1"}, false, "u1"},
		{"another Node", podOf("web", "u1", "node-2", 0, corev1.PodRunning), nil, Attachment{UID: "u1"}, false, "u1"},
		{"not scheduled", podOf("web", "u1", "", 0, corev1.PodPending), nil, Attachment{UID: "u1"}, false, "u1"},
		{"ended", podOf("web", "u1", "node-1", 0, corev1.PodFailed), nil, Attachment{UID: "u1"}, false, "u1"},
		{"a static Pod", mirror, nil, Attachment{UID: "of-the-file"}, true, "of-the-file"},
		{"the UID of a static Pod's mirror", mirror, nil, Attachment{UID: "mirror"}, false, "mirror"},
		{"no UID, its address", podOf("web", "u1", "node-1", 0, corev1.PodRunning, "10.10.1.7"), nil, Attachment{},
			true, "u1"},
		{"no UID, another address", podOf("web", "u1", "node-1", 0, corev1.PodRunning, "10.10.1.8"), nil, Attachment{},
			false, ""},
		{"no UID, no address yet", podOf("web", "u1", "node-1", 0, corev1.PodPending), nil, Attachment{}, false, ""},
		{"no UID, its address, another Node", podOf("web", "u1", "node-2", 0, corev1.PodRunning, "10.10.1.7"), nil,
			Attachment{}, false, ""},
		{"no UID, not scheduled", podOf("web", "u1", "", 0, corev1.PodPending), nil, Attachment{}, false, ""},
		{"no UID, the address of another interface of its sandbox",
			podOf("web", "u1", "node-1", 0, corev1.PodRunning, "10.10.1.8"),
			&Attachment{Pod: own, Sandbox: "s1", IPs: addrs("10.10.1.8")}, Attachment{}, true, "u1"},
		{"no UID, the address of another sandbox", podOf("web", "u1", "node-1", 0, corev1.PodRunning, "10.10.1.8"),
			&Attachment{Pod: own, Sandbox: "s2", IPs: addrs("10.10.1.8")}, Attachment{}, false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			e, tables, attachments := attachedNode()
			tables.Pods.Set(derive.ObjectOf(row.pod), PodFactsOf(row.pod))
			row.at.Pod, row.at.Sandbox, row.at.IPs = own, "s1", addrs("10.10.1.7")
			attachments.Set("web-1", row.at)
			if row.other != nil {
				attachments.Set("web-2", *row.other)
			}
			e.Pass()
			want := Attached{Pod: own, UID: row.uid, Known: row.known}
			if row.known {
				want.Identity = IdentityOf("kubernetes.io/metadata.name=x", "app=web")
			}
			have, _ := tables.Attached.Get("web-1")
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
			who, ok := tables.OccupantAt(netip.MustParseAddr("10.10.1.7"))
			if want := (Occupant{Pod: own, Port: "web-1", Known: row.known, Identity: want.Identity}); !ok || who != want {
				t.Errorf("10.10.1.7 is %+v, want %+v", who, want)
			}
		})
	}
}

// TestOccupants has Pods claim addresses in their status.
func TestOccupants(t *testing.T) {
	const address = "10.10.2.7"
	running := corev1.PodRunning
	for _, row := range []struct {
		name string
		pods []*corev1.Pod
		at   string
		want string // the Pod, "" for none
	}{
		{"one Pod", []*corev1.Pod{podOf("a", "a", "node-2", 0, running, address)}, address, "a"},
		{"another Node lies",
			[]*corev1.Pod{podOf("a", "a", "node-2", 0, running, address), podOf("b", "b", "node-3", 9, running, address)},
			address, "a"},
		{"this Node's status says so",
			[]*corev1.Pod{podOf("a", "a", "node-2", 0, running, address), podOf("b", "b", "node-1", 9, running, address)},
			address, "a"},
		{"only another Node says so", []*corev1.Pod{podOf("b", "b", "node-3", 0, running, address)}, address, ""},
		{"not scheduled", []*corev1.Pod{podOf("b", "b", "", 0, running, address)}, address, ""},
		{"a Pod that has ended",
			[]*corev1.Pod{podOf("a", "a", "node-2", 0, running, address),
				podOf("b", "b", "node-2", 9, corev1.PodFailed, address)}, address, "a"},
		{"two of the Node: the later one",
			[]*corev1.Pod{podOf("a", "a", "node-2", 9, running, address), podOf("b", "b", "node-2", 0, running, address)},
			address, "a"},
		{"two of one second: by UID",
			[]*corev1.Pod{podOf("a", "2", "node-2", 0, running, address), podOf("b", "1", "node-2", 0, running, address)},
			address, "b"},
		{"an address of this Node without an interface", []*corev1.Pod{podOf("a", "a", "node-1", 0, running, "10.10.1.7")},
			"10.10.1.7", ""},
		{"an address of this Node, said by another", []*corev1.Pod{podOf("a", "a", "node-2", 0, running, "10.10.1.7")},
			"10.10.1.7", ""},
		{"an address that no Node has", []*corev1.Pod{podOf("a", "a", "node-2", 0, running, "10.10.3.7")}, "10.10.3.7", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			e, tables, _ := attachedNode()
			names := map[string]bool{}
			for _, p := range row.pods {
				tables.Pods.Set(derive.ObjectOf(p), PodFactsOf(p))
				names[p.Name] = true
			}
			e.Pass()
			at := netip.MustParseAddr(row.at)
			who, ok := tables.OccupantAt(at)
			if ok != (row.want != "") || who.Pod.Name != row.want {
				t.Errorf("%s is %+v, %v, want Pod %q", at, who, ok, row.want)
			}
			for name := range names {
				list := tables.AddressesOf(derive.Object{Namespace: "x", Name: name})
				if has := slices.Contains(list, at); has != (name == row.want) {
					t.Errorf("Pod %s has %v", name, list)
				}
			}
		})
	}
}

// TestNodeGone has Pods lose their addresses with their Node, and get them back.
func TestNodeGone(t *testing.T) {
	e, tables, _ := attachedNode()
	p := podOf("a", "a", "node-2", 0, corev1.PodRunning, "10.10.2.7")
	tables.Pods.Set(derive.ObjectOf(p), PodFactsOf(p))
	for _, there := range []bool{true, false, true} {
		f := NodeFacts{}
		if there {
			f.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.10.2.0/24")}
		}
		tables.Nodes.Set(derive.Object{Name: "node-2"}, f)
		e.Pass()
		if _, ok := tables.OccupantAt(netip.MustParseAddr("10.10.2.7")); ok != there {
			t.Errorf("Node there: %v, and the address has a Pod: %v", there, ok)
		}
	}
}

// TestNamedPorts is what the names of a Pod's ports mean.
func TestNamedPorts(t *testing.T) {
	always, never := new(corev1.ContainerRestartPolicyAlways), new(corev1.ContainerRestartPolicyNever)
	port := func(name string, number int32) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number}
	}
	p := podOf("web", "u1", "node-1", 0, corev1.PodRunning)
	p.Spec.InitContainers = []corev1.Container{
		{Ports: []corev1.ContainerPort{port("admin", 9090), port("http", 9091)}},
		{RestartPolicy: never, Ports: []corev1.ContainerPort{port("never", 9092)}},
		{RestartPolicy: always, Ports: []corev1.ContainerPort{port("metrics", 9191), port("http", 9192), port("", 9193)}},
		{RestartPolicy: always,
			Ports: []corev1.ContainerPort{port("metrics", 9194),
				{Name: "metrics", ContainerPort: 9195, Protocol: corev1.ProtocolUDP}}},
	}
	p.Spec.Containers = []corev1.Container{
		{Ports: []corev1.ContainerPort{port("http", 8080), port("http", 8081), port("far", 70000)}},
		{Ports: []corev1.ContainerPort{port("http", 8181), port("far", 8182)}},
	}
	want := []NamedPort{
		{portName{"far", corev1.ProtocolTCP}, 8182},
		{portName{"http", corev1.ProtocolTCP}, 8080},
		{portName{"metrics", corev1.ProtocolTCP}, 9191},
		{portName{"metrics", corev1.ProtocolUDP}, 9195},
	}
	if diff := cmp.Diff(want, PodFactsOf(p).Ports, cmp.AllowUnexported(NamedPort{})); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}
