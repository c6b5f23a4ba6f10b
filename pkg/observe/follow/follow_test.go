package follow_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/kubelet"
)

// world is a cluster with agents that have fixed answers.
type world struct {
	*remote.Cluster
	t       *testing.T
	objects client.Client

	mu    sync.Mutex
	ends  map[string]api.HopEnd       // by Node
	seen  map[string][]api.PacketSeen // of a packet, by Node
	sent  chan struct{}               // closed when the packet is sent
	asked []string                    // Node and query
}

// newWorld starts a cluster with the Nodes n1 and n2, n1 of which is the Gateway.
func newWorld(t *testing.T, name, gateway string) *world {
	t.Helper()
	config := apiserver.Start(t, "../../../deploy/crds")
	w := &world{Cluster: remote.New(name, config), t: t, ends: map[string]api.HopEnd{}}
	(&kubelet.Kubelet{
		Log:  func(string, string, string, bool, io.Writer) error { return nil },
		Exec: w.exec,
	}).Start(t, config, name+"-n1", name+"-n2")
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcv1alpha1.AddToScheme, mcv1alpha2.AddToScheme} {
		utilruntime.Must(add(s))
	}
	var err error
	if w.objects, err = client.New(config, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for _, node := range []string{name + "-n1", name + "-n2"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent-of-" + node,
			Labels: map[string]string{"app": "tombolo", "component": "tombolo-agent"}}}
		pod.Spec.NodeName, pod.Spec.Containers = node, []corev1.Container{{Name: "tombolo-agent", Image: "x"}}
		w.create(pod)
	}
	set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "set"}}
	set.Spec = mcv1alpha2.ClusterSetSpec{ClusterID: "id-" + name, Namespace: "area",
		Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "id-north", Server: "https://192.0.2.9"}}}
	w.create(set)
	w.create(&mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name + "-n1"},
		GatewayIP: gateway, InternalIP: "10.0.0.1"})
	return w
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.objects.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// followed returns clusters whose agents are asked through API servers.
func followed(t *testing.T, all ...*remote.Cluster) []follow.Cluster {
	t.Helper()
	out, err := remote.Followed(all...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// pod makes a Pod with an address.
func (w *world) pod(name, node, ip string) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	p.Spec.NodeName, p.Spec.Containers = node, []corev1.Container{{Name: "c", Image: "x"}}
	p.Spec.HostNetwork = ip == "host"
	w.create(p)
	if ip == "" || ip == "host" {
		return
	}
	p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	if err := w.objects.Status().Update(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) service(name string) {
	w.t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	w.create(s)
}

// exec answers as `tombolo ask` in the Pod of an agent.
func (w *world) exec(_, pod, _ string, command []string, stdout, stderr io.Writer) int {
	node := strings.TrimPrefix(pod, "agent-of-")
	path, text, _ := strings.Cut(command[len(command)-1], "?")
	query, err := url.ParseQuery(text)
	switch path {
	case api.PathPacketWatch, api.PathPacketSend:
		return w.packet(node, path, query, stdout, stderr)
	}
	if err != nil || path != api.PathHop {
		fmt.Fprintln(stderr, "tombolo: asked for", path)
		return 1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, node+" "+query.Encode())
	end, ok := w.ends[node]
	if !ok {
		fmt.Fprintln(stderr, "tombolo: the agent's debug socket does not answer: is tombolo-agent running on this Node?")
		return 1
	}
	list := api.HopList{Hops: []api.Hop{{Node: node, Packet: "in_port=1,tcp", End: end, Output: "raw of " + node,
		Steps: []api.HopStep{{Table: "Classify", Priority: 200, Match: "ip", Owner: "Pod shop/web"},
			{Table: "Service", Priority: 200, Owner: "Service shop/db"}, {Table: "Output", Owner: "Node " + node}},
		Choices: []api.HopChoice{{Owner: "Service shop/db", Chosen: 1, Buckets: []api.HopBucket{{To: "10.1.0.9:80",
			Name: "shop/db-0"}, {Weight: 2, To: "10.97.0.1:80", Name: "cluster id-west"}}}}}}}
	if err := json.NewEncoder(stdout).Encode(list); err != nil {
		return 1
	}
	return 0
}

// TestFollow follows packets of clusters with real API servers, and names wrong ends.
func TestFollow(t *testing.T) {
	east, west := newWorld(t, "east", "192.0.2.1"), newWorld(t, "west", "192.0.2.2")
	east.pod("web", "east-n2", "10.1.0.5")
	east.pod("host", "east-n2", "host")
	east.pod("early", "", "")
	east.pod("twice", "east-n2", "10.1.0.6")
	east.service("antrea-mc-db")
	west.service("db")
	west.service("private")
	west.pod("twice", "west-n2", "10.2.0.6")
	west.pod("db-0", "west-n2", "10.2.0.9")
	forward := func(next api.HopNext) api.HopEnd { return api.HopEnd{Verdict: api.HopForwarded, Next: &next} }
	east.ends["east-n2"] = forward(api.HopNext{Node: "east-n1", Packet: "tcp", OuterDst: "10.0.0.1"})
	east.ends["east-n1"] = forward(api.HopNext{Cluster: "id-west", Gateway: "192.0.2.2", Packet: "tcp",
		OuterDst: "192.0.2.2"})
	west.ends["west-n1"] = api.HopEnd{Verdict: api.HopDropped, Table: "IngressRule", Reason: "isolated",
		Message: "isolated by shop/db\x1b[2J"}
	both := followed(t, east.Cluster, west.Cluster)

	answer, err := follow.Follow(t.Context(), both, follow.Question{From: "shop/web", To: "shop/db", ToCluster: "west",
		Endpoint: "shop/db-0"})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := follow.Print(&b, answer, false); err != nil {
		t.Fatal(err)
	}
	const want = `1. Node east/east-n2: in_port=1,tcp
   Classify  Pod shop/web
   Service   Service shop/db: chooses 10.97.0.1:80 (cluster id-west) weight 2, not 10.1.0.9:80 (shop/db-0)
   -> to Node east-n1, by the tunnel to 10.0.0.1
2. Node east/east-n1: in_port=1,tcp
   Classify  Pod shop/web
   Service   Service shop/db: chooses 10.97.0.1:80 (cluster id-west) weight 2, not 10.1.0.9:80 (shop/db-0)
   -> to cluster id-west, by the tunnel to 192.0.2.2
3. Node west/west-n1: in_port=1,tcp
   Classify  Pod shop/web
   Service   Service shop/db: chooses 10.97.0.1:80 (cluster id-west) weight 2, not 10.1.0.9:80 (shop/db-0)
=> dropped at Node west/west-n1, in table IngressRule (isolated): isolated by shop/db_[2J
`
	if b.String() != want {
		t.Errorf("have\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := follow.Print(&b, answer, true); err != nil || !strings.Contains(b.String(),
		"   Output    Node east-n1  [priority 0, ]\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
	b.Reset()
	if err := follow.PrintRaw(&b, answer); err != nil || !strings.Contains(b.String(), "\nraw of west-n1\n=> dropped") {
		t.Errorf("%v\n%s", err, b.String())
	}

	for _, row := range []struct {
		name  string
		q     follow.Question
		first string
	}{
		{"imported Service", follow.Question{From: "shop/web", To: "shop/db"},
			"east-n2 from=shop%2Fweb&to=service%2Fshop%2Fantrea-mc-db"},
		{"in a cluster by ID", follow.Question{From: "shop/web", To: "shop/db", ToCluster: "id-west"},
			"east-n2 cluster=id-west&from=shop%2Fweb&to=shop%2Fdb"},
		{"Pod of the other cluster", follow.Question{From: "shop/web", To: "shop/db-0", Port: "80"},
			"east-n2 from=shop%2Fweb&port=80&to=10.2.0.9"},
		{"by address", follow.Question{From: "10.1.0.5", To: "192.0.2.77", Port: "80"},
			"east-n2 from=10.1.0.5&port=80&to=192.0.2.77"},
		{"Node", follow.Question{From: "node/east-n1", To: "shop/web", Port: "80", Protocol: "udp", Family: "ipv4"},
			"east-n1 family=ipv4&from=node%2Feast-n1&port=80&protocol=udp&to=shop%2Fweb"},
		{"from outside", follow.Question{From: "203.0.113.7", Node: "east-n1", To: "10.1.0.5"},
			"east-n1 from=203.0.113.7&to=10.1.0.5"},
		{"node port", follow.Question{From: "203.0.113.7", To: "node/east-n1", Port: "30080"},
			"east-n1 from=203.0.113.7&port=30080&to=node%2Feast-n1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			east.asked = nil
			if _, err := follow.Follow(t.Context(), both, row.q); err != nil || len(east.asked) == 0 ||
				east.asked[0] != row.first {
				t.Errorf("%v, asked %q, want %q", err, east.asked, row.first)
			}
		})
	}
	for _, row := range []struct {
		name, want string
		q          follow.Question
	}{
		{"no Pod", "--from shop/weg: there is no such Pod; did you mean shop/web or", follow.Question{From: "shop/weg",
			To: "shop/db"}},
		{"no server", "--to shop/dc: there is no such Pod and no such Service; did you mean",
			follow.Question{From: "shop/web", To: "shop/dc"}},
		{"no Namespace", "Namespace soap of cluster east has no Pods", follow.Question{From: "soap/web", To: "shop/db"}},
		{"host's network", "give node/east-n2", follow.Question{From: "shop/host", To: "shop/db"}},
		{"not scheduled", "wait until it runs", follow.Question{From: "shop/early", To: "shop/db"}},
		{"in two clusters", "choose one with --from-cluster", follow.Question{From: "shop/twice", To: "shop/db"}},
		{"no Node", "no cluster has a Node n9", follow.Question{From: "node/n9", To: "shop/db"}},
		{"no cluster", "--to-cluster south: it is none of the clusters that are asked, which are east, id-east, west, " +
			"id-west",
			follow.Question{From: "shop/web", To: "shop/db", ToCluster: "south"}},
		{"stranger", "give the Node that its packets come to with --node",
			follow.Question{From: "203.0.113.7", To: "shop/db"}},
		{"not exported", "has no Service shop/antrea-mc-private: export the Service in west",
			follow.Question{From: "shop/web", To: "shop/private", ToCluster: "west"}},
		{"neither", `"web" is neither namespace/name nor an address`, follow.Question{From: "web", To: "shop/db"}},
		{"no endpoint", "--endpoint shop/db-7: there is no such Pod", follow.Question{From: "shop/web", To: "shop/db",
			Endpoint: "shop/db-7"}},
		{"no family", "has no address of the version of IP",
			follow.Question{From: "shop/web", To: "shop/db-0", Family: "ipv6"}},
		{"first Node is silent", "Node west-n2: ask the agent for /v1/hop: the agent's debug socket does not answer",
			follow.Question{From: "shop/twice", FromCluster: "west", To: "shop/db-0"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := follow.Follow(t.Context(), both, row.q); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v: want %q", err, row.want)
			}
		})
	}
	delete(west.ends, "west-n1")
	for _, row := range []struct {
		name, verdict, want string
		clusters            []follow.Cluster
	}{
		{"silent on the way", "unanswered", "it is sent to Node west/west-n1, which does not answer", both},
		{"without its context", "out-of-sight", "cluster id-west, which is not among the clusters that are asked", both[:1]},
	} {
		answer, err := follow.Follow(t.Context(), row.clusters,
			follow.Question{From: "shop/web", To: "192.0.2.77", Port: "80"})
		if err != nil || len(answer.Paths) != 1 || answer.Paths[0].End.Verdict != row.verdict ||
			!strings.Contains(answer.Paths[0].End.Text, row.want) {
			t.Errorf("%s: %v, %+v", row.name, err, answer)
		}
	}
}
