package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	plumbingv1 "github.com/tombolo-net/tombolo/pkg/apis/plumbing/v1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// reportStore keeps the report of one Node as an API server does.
type reportStore struct {
	mu     sync.Mutex // where podNetworks runs
	have   *tombolov1alpha1.NodeNetworkReport
	writes int
}

// stored returns the report, nil if there is no report, and how often it was written.
func (s *reportStore) stored() (*tombolov1alpha1.NodeNetworkReport, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.have.DeepCopy(), s.writes
}

func (s *reportStore) get(context.Context) (*tombolov1alpha1.NodeNetworkReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: nodeNetworksResource}, "node-1")
	}
	return s.have.DeepCopy(), nil
}

func (s *reportStore) create(_ context.Context, r *tombolov1alpha1.NodeNetworkReport) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.have = r.DeepCopy()
	s.writes++
	return nil
}

func (s *reportStore) patch(_ context.Context, merge []byte) error {
	var p struct {
		Spec tombolov1alpha1.NodeNetworkReportSpec `json:"spec"`
	}
	err := json.Unmarshal(merge, &p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.have.Spec = p.Spec
	s.writes++
	return err
}

// networkRig is an agent's part in VirtualNetworks, with a controller that answers its claims at once.
type networkRig struct {
	t      *testing.T
	view   View
	lease  *tombolov1alpha1.SubnetLease
	stored *reportStore
	store  *ipam.Store
	path   string
	p      *podNetworks
}

func newNetworkRig(t *testing.T) *networkRig {
	r := &networkRig{t: t, view: testView(), stored: &reportStore{}}
	r.view.Config.FeatureGates["TenantNetworks"] = true
	r.view.Namespaces = []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "5e2d"}}}
	n := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "blue", UID: "b1"}}
	n.Spec.V4SubnetReference = &contrailv4.ResourceReference{Name: "v4"}
	r.lease = &tombolov1alpha1.SubnetLease{ObjectMeta: metav1.ObjectMeta{Name: "uid"}}
	r.lease.Spec = tombolov1alpha1.SubnetLeaseSpec{
		Subnet: tombolov1alpha1.ObjectName{Namespace: "a", Name: "v4"}, CIDR: "10.50.0.0/24", Gateway: "10.50.0.1",
		VirtualNetwork: tombolov1alpha1.ObjectName{Namespace: "a", Name: "blue"}}
	r.view.Others = []client.Object{n, r.lease}
	r.start(filepath.Join(t.TempDir(), "ipam.json"))
	return r
}

// start starts an agent's part with the records of an earlier one.
func (r *networkRig) start(path string) {
	r.t.Helper()
	store, err := ipam.Open(path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.store, r.path = store, path
	r.p = &podNetworks{tables: newTables(r.view.Config, r.view.NodeName), store: store, progress: newProgress(),
		api: r.stored, uid: func() types.UID { return "node's" }, log: slog.New(slog.DiscardHandler),
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
	r.p.tables.objects.networks.report.Watch(r.p.show)
	r.settle()
}

// read reads the objects.
func (r *networkRig) read() {
	r.p.tables.set(r.view)
	r.p.tables.engine.Pass()
	r.p.progress.wake()
}

// settle reads the objects, and writes the report.
func (r *networkRig) settle() {
	r.t.Helper()
	r.read()
	if err := r.p.report(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// grant answers the claims of the report as the controller does, and writes the report.
func (r *networkRig) grant() {
	r.t.Helper()
	r.answer()
	r.settle()
}

// answer gives the lease the blocks that the report claims.
func (r *networkRig) answer() {
	f := tenant.LeaseFactsOf(r.lease)
	var claims []tenant.Claim
	if have, _ := r.stored.stored(); have != nil {
		if n, ok := tenant.ReportFactsOf(have)[f.Network]; ok {
			claims = append(claims, n.ClaimOn("node-1", f.Range))
		}
	}
	nodes, _ := tenant.Grant(f.Range, []netip.Prefix{f.Range.CIDR}, f.Nodes, claims)
	r.lease.Spec.Nodes = nil
	for _, n := range nodes {
		blocks := tombolov1alpha1.NodeBlocks{Node: n.Node, Claim: n.Claim}
		for _, b := range n.Blocks {
			blocks.CIDRs = append(blocks.CIDRs, b.String())
		}
		r.lease.Spec.Nodes = append(r.lease.Spec.Nodes, blocks)
	}
}

func (r *networkRig) pod(name, annotation string) {
	r.declare(name, annotation)
	r.settle()
}

// declare adds a Pod, which the agent has not read yet.
func (r *networkRig) declare(name, annotation string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("uid-" + name),
		Annotations: map[string]string{tenant.AnnotationNetworks: annotation}}}
	p.Spec.NodeName = "node-1"
	r.view.Pods = append(r.view.Pods, p)
}

// extras returns the further interfaces of a Pod, or the reason why it gets no interface within a moment.
func (r *networkRig) extras(name string) ([]cni.Extra, string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Millisecond)
	defer cancel()
	list, err := r.p.Extras(ctx, "a", name, types.UID("uid-"+name))
	if err != nil {
		return nil, err.Error()
	}
	return list, ""
}

// add allocates the addresses of a Pod's first further interface, if it gets them within a moment.
func (r *networkRig) add(name string) string { return r.addWithin(name, 30*time.Millisecond) }

// await does the same, and waits for blocks.
func (r *networkRig) await(name string) string { return r.addWithin(name, time.Minute) }

func (r *networkRig) addWithin(name string, within time.Duration) string {
	list, why := r.extras(name)
	if why != "" || len(list) == 0 {
		return why
	}
	x := list[0]
	ctx, cancel := context.WithTimeout(r.t.Context(), within)
	defer cancel()
	var ips []netip.Prefix
	err := r.p.Allocate(ctx, x, func(ranges []ipam.Range) (err error) {
		ips, err = r.store.Allocate(ipam.Key{ContainerID: "c-" + name, IfName: x.IfName}, "a/"+name,
			ipam.Interface{VirtualNetwork: x.VirtualNetwork, PodUID: "uid-" + name}, ranges)
		return err
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(ips)
}

func (r *networkRig) report() string {
	have, _ := r.stored.stored()
	if have == nil {
		return "none"
	}
	var out []string
	for _, n := range have.Spec.Networks {
		text := fmt.Sprint(n.Namespace, "/", n.Name, " ", n.Pods, " ", n.Requested)
		for _, a := range n.Addresses {
			text += fmt.Sprint(" ", a.Address, " ", a.Pod, " ", a.UID)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func (r *networkRig) claim() string { return r.p.claims[derive.Object{Namespace: "a", Name: "blue"}] }

// TestReportGathers has several changes written together, unless an ADD waits for addresses.
func TestReportGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetworkRig(t)
		r.p.tables.objects.networks.interfaces.Watch(func([]derive.Change[derive.Object, podInterfaces]) { r.p.changed() })
		r.store.Watch(r.p.changed)
		r.p.progress.release()
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		go r.p.run(ctx)
		synctest.Wait()
		wrote := func(what string, after time.Duration, want int, report string) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			if _, writes := r.stored.stored(); writes != want || r.report() != report {
				t.Errorf("%s: %d writes, want %d: %s", what, writes, want, r.report())
			}
		}
		r.declare("web", "a/blue")
		r.read()
		wrote("a Pod has come", networksSettle-time.Millisecond, 0, "none")
		wrote("a moment later", time.Millisecond, 1, "a/blue 1 []")

		r.answer() // run alone writes the report
		r.declare("db", "a/blue")
		r.read()
		for _, name := range []string{"web", "db"} {
			if have := r.add(name); !strings.HasPrefix(have, "[10.50.0.") {
				t.Error(have)
			}
		}
		const both = "a/blue 2 [] 10.50.0.2 web uid-web 10.50.0.3 db uid-db"
		wrote("a Pod has come, and two have addresses", networksSettle/2, 1, "a/blue 1 []")
		wrote("a moment later", networksSettle/2, 2, both)
		wrote("nothing has changed", time.Second, 2, both)

		r.declare("pinned", `[{"name": "blue", "namespace": "a", "cni-args": null, "ips": ["10.50.0.200"]}]`)
		r.read()
		began := time.Now()
		if have := r.add("pinned"); !strings.Contains(have, "10.50.0.200") { // it waits for another block
			t.Error(have)
		}
		wrote("an ADD waits", 0, 3, strings.Replace(both, "2 []", "3 [10.50.0.200]", 1))
		if took := time.Since(began); took >= networksSettle {
			t.Errorf("it took %s", took)
		}
	})
}

// TestPodNetworks follows the claims of a Node and the addresses of its Pods.
func TestPodNetworks(t *testing.T) {
	r := newNetworkRig(t)
	expect := func(have, want string) {
		t.Helper()
		if !strings.HasPrefix(have, want) || want == "" && have != "" {
			t.Errorf("%s, want %s", have, want)
		}
	}
	expect(r.report(), "none")
	r.pod("plain", "")
	if list, why := r.extras("plain"); len(list) > 0 || why != "" {
		t.Errorf("a Pod without the annotation: %v %s", list, why)
	}
	const annotation = "annotation k8s.v1.cni.cncf.io/networks: "
	_, why := r.extras("later")
	expect(why, "the agent has not read the Pod yet")
	r.pod("lost", "a/green")
	_, why = r.extras("lost")
	expect(why, annotation+"VirtualNetwork a/green is not there, or has no Subnet: create it")
	r.pod("foreign", "b/blue")
	_, why = r.extras("foreign")
	expect(why, annotation+"entry 1: VirtualNetwork b/blue is of another Namespace")
	expect(r.report(), "none")

	r.pod("web", "a/blue")
	expect(r.report(), "a/blue 1 []")
	_, why = r.extras("web")
	expect(why, annotation+"VirtualNetwork a/blue has no addresses on this Node yet: look at the observation of Subnet "+
		"a/v4")
	r.grant()
	expect(r.add("web"), "[10.50.0.2/24]")
	r.settle()
	expect(r.report(), "a/blue 1 [] 10.50.0.2 web uid-web")
	if o := r.stored.have.OwnerReferences; len(o) != 1 || o[0].UID != "node's" {
		t.Errorf("the report has the owners %v", o)
	}
	r.pod("pinned", `[{"name": "blue", "ips": ["10.50.0.77"]}]`)
	expect(r.add("pinned"), "address 10.50.0.77 is in no block of this Node: wait for it")
	waited := make(chan string, 1)
	go func() { waited <- r.await("pinned") }() // until the controller answers
	r.grant()
	expect(<-waited, "[10.50.0.77/24]")
	expect(r.add("pinned"), "[10.50.0.77/24]")
	r.pod("twice", `[{"name": "blue", "ips": ["10.50.0.77"]}]`)
	expect(r.add("twice"), "address 10.50.0.77 is held by a/pinned since")
	r.pod("wrong", `[{"name": "blue", "ips": ["10.51.0.77"]}]`)
	_, why = r.extras("wrong")
	expect(why, annotation+"VirtualNetwork a/blue has no Subnet with 10.51.0.77: correct ips in the annotation")

	// Another process continues with the claim. Then all Pods and addresses go.
	before := r.claim()
	r.view.Pods = r.view.Pods[:0]
	r.start(filepath.Join(t.TempDir(), "other.json"))
	if r.claim() != "" || r.report() != "" {
		t.Errorf("without Pods the claim is %q, and the report %s", r.claim(), r.report())
	}
	stale := r.lease.DeepCopy() // the blocks of the earlier claim, in a cache
	r.pod("again", "a/blue")
	if now := r.claim(); now == "" || now == before {
		t.Errorf("the claim is %q, and was %q", now, before)
	}
	if len(stale.Spec.Nodes) != 1 || stale.Spec.Nodes[0].Claim != before {
		t.Fatalf("the lease has %+v", stale.Spec.Nodes)
	}
	expect(r.add("again"), annotation+"VirtualNetwork a/blue has no addresses on this Node yet")
	r.grant()
	expect(r.add("again"), "[10.50.0.2/24]")
	kept := r.claim()
	r.start(r.path)
	if r.claim() != kept {
		t.Errorf("another process has the claim %q, want %q", r.claim(), kept)
	}
	expect(r.add("again"), "[10.50.0.2/24]")

	// The Subnet ends. Pods keep their addresses, and no other Pod gets one.
	r.lease.Spec.Ending = true
	r.pod("late", "a/blue")
	expect(r.add("late"), annotation+"VirtualNetwork a/blue has no addresses of its Subnets")
	expect(r.report(), "a/blue 2 [] 10.50.0.2 again uid-again")
}

// TestRoutesToOtherClusters has a VirtualNetwork that is joined with one of another cluster. A Pod gets routes to its
// ranges, but for ranges that a Node, a Service or a third cluster has: packets of its first interface go there.
func TestRoutesToOtherClusters(t *testing.T) {
	r := newNetworkRig(t)
	r.pod("web", "a/blue")
	r.grant()
	objects := r.view.Others
	for _, row := range []struct {
		cidrs []string
		want  string
	}{
		{[]string{"10.60.0.0/24", "fd60::/64"}, "[10.60.0.0/24 fd60::/64]"},
		{[]string{"10.60.0.0/24", "10.11.1.128/25", "10.97.0.0/24", "10.98.1.0/24"}, "[10.60.0.0/24]"},
		{[]string{"10.0.0.0/8"}, "[]"}, {[]string{"192.168.0.0/16"}, "[]"}, {[]string{"10.50.0.128/25"}, "[]"},
		{nil, "[]"},
	} {
		i := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
		i.Spec = tombolov1alpha1.TenantNetworkImportSpec{Number: 7,
			Namespace:      &tombolov1alpha1.NamespaceReference{Name: "a", UID: "5e2d"},
			VirtualNetwork: &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: "b1"},
			Joined: []tombolov1alpha1.JoinedNetwork{{Name: "green", Number: 8, ClusterIDs: []string{"test-cluster-west"},
				CIDRs: row.cidrs}}}
		r.view.Others = append(objects[:len(objects):len(objects)], i)
		r.settle()
		list, why := r.extras("web")
		if len(list) != 1 || fmt.Sprint(list[0].Joined) != row.want {
			t.Errorf("%v: %+v %s, want routes to %s", row.cidrs, list, why, row.want)
		}
	}
	r.view.Others = objects
	r.settle()
	if list, why := r.extras("web"); len(list) != 1 || len(list[0].Joined) > 0 {
		t.Errorf("without the import: %+v %s", list, why)
	}
}

// TestCopiesOfNamespaces has Pods that name their VirtualNetwork by the copy of their Namespace in the central cluster,
// as in Contrail CN2.
func TestCopiesOfNamespaces(t *testing.T) {
	r := newNetworkRig(t)
	expect := func(have, want string) {
		t.Helper()
		if have != want {
			t.Errorf("%s, want %s", have, want)
		}
	}
	const copyOfA = "kubemanager-east-test-cluster-east-a"
	of := func(name, namespace string, uid types.UID) *tombolov1alpha1.TenantNetworkImport {
		i := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: name}}
		i.Spec.Number, i.Spec.Namespace = 7, &tombolov1alpha1.NamespaceReference{Name: namespace, UID: uid}
		return i
	}
	objects := r.view.Others
	show := func(more ...client.Object) {
		r.view.Others = append(objects[:len(objects):len(objects)], more...)
		r.settle()
	}
	why := func(pod string) string {
		t.Helper()
		_, why := r.extras(pod)
		return why
	}
	entry := func(namespace string) string {
		return "annotation k8s.v1.cni.cncf.io/networks: entry 1: VirtualNetwork " + namespace + "/blue is of another " +
			"Namespace: name one of Namespace a, or of its copy in the central cluster, and join the two by " +
			"VirtualNetworkRouters"
	}
	lacks := func(namespace string) string {
		return entry(namespace) + ". If " + namespace + " is this copy, this cluster has no TenantNetworkImport " +
			namespace + " for Namespace a with its present UID: look at this cluster's Kubemanager in the central cluster"
	}
	r.pod("web", `[{"name": "blue", "namespace": "`+copyOfA+`", "interface": "eth1"}]`)
	expect(why("web"), entry(copyOfA)+". Namespace a has no copy, since it is not isolated: label it "+
		"core.juniper.net/isolated-namespace=true")
	space := r.view.Namespaces[0].DeepCopy()
	space.Labels = map[string]string{tenant.LabelIsolated: "true"}
	r.view.Namespaces = []*corev1.Namespace{space}

	// No other import makes it the copy.
	virtual := of(copyOfA, "a", "5e2d")
	virtual.Spec.VirtualNetwork = &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: "b1"}
	selecting := of(copyOfA, "", "")
	selecting.Spec.Namespace, selecting.Spec.NamespaceSelectors = nil, []metav1.LabelSelector{{}}
	for name, list := range map[string][]client.Object{
		"no import": nil, "of another Namespace": {of(copyOfA, "b", "5e2d")},
		"of an earlier Namespace": {of(copyOfA, "a", "5e2c")}, "of a VirtualNetwork": {virtual},
		"of Namespaces that agree": {selecting}, "the copy has another name": {of(copyOfA+"b", "a", "5e2d")},
	} {
		if show(list...); why("web") != lacks(copyOfA) {
			t.Errorf("%s: %s, want %s", name, why("web"), lacks(copyOfA))
		}
	}
	r.pod("foreign", "copy-of-b/blue")
	show(of(copyOfA, "a", "5e2d"), of("copy-of-b", "b", "1"))
	expect(why("foreign"), lacks("copy-of-b"))
	r.view.Pods = r.view.Pods[:1]

	// An ADD waits for the import, as for a VirtualNetwork.
	show()
	expect(r.report(), "")
	type answer struct {
		list []cni.Extra
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		list, err := r.p.Extras(t.Context(), "a", "web", "uid-web")
		answers <- answer{list, err}
	}()
	select {
	case a := <-answers:
		t.Fatalf("ADD did not wait: %+v", a)
	case <-time.After(50 * time.Millisecond):
	}
	show(of(copyOfA, "a", "5e2d"))
	expect(r.report(), "a/blue 1 []")
	r.grant()
	if a := <-answers; a.err != nil || len(a.list) != 1 || a.list[0].VirtualNetwork != "a/blue" ||
		a.list[0].IfName != "eth1" {
		t.Fatalf("ADD has %+v", a)
	}
	expect(r.add("web"), "[10.50.0.2/24]")

	// The plugin of a NetworkAttachmentDefinition in a Namespace with the copy's name does not get the entry.
	bridge := &plumbingv1.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: copyOfA, Name: "blue"},
		Spec: plumbingv1.NetworkAttachmentDefinitionSpec{Config: `{"type": "bridge"}`}}
	show(of(copyOfA, "a", "5e2d"), bridge)
	expect(r.add("web"), "[10.50.0.2/24]")

	// The import goes. The running Pod keeps its network, and a later one waits.
	claim := r.claim()
	show()
	expect(r.report(), "a/blue 1 [] 10.50.0.2 web uid-web")
	expect(r.claim(), claim)
	if ps := podProblems(r.p.tables); len(ps) > 0 {
		t.Errorf("problems of running Pods: %q", ps)
	}
	r.pod("late", copyOfA+"/blue")
	expect(why("late"), lacks(copyOfA))
	show(of(copyOfA, "a", "5e2d"))
	expect(r.report(), "a/blue 2 [] 10.50.0.2 web uid-web")
	expect(r.claim(), claim)
	expect(r.add("late"), "[10.50.0.3/24]")

	// Without other clusters there is no copy, and no ADD waits.
	show()
	r.view.Config.Multicluster.EnableGateway = false
	r.start(filepath.Join(t.TempDir(), "ipam.json"))
	_, err := r.p.Extras(t.Context(), "a", "web", "uid-web")
	if err == nil || err.Error() != entry(copyOfA) {
		t.Errorf("without other clusters: %v, want %s", err, entry(copyOfA))
	}
}

// TestOverlappingNetworks has Pods that request networks with overlapping ranges. Each network alone serves a Pod.
func TestOverlappingNetworks(t *testing.T) {
	r := newNetworkRig(t)
	add := func(name, cidr string, zone int32) {
		prefix := netip.MustParsePrefix(cidr)
		n := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name,
			UID: types.UID("uid of " + name)}}
		n.Spec.V4SubnetReference = &contrailv4.ResourceReference{Name: name + "-v4"}
		lease := &tombolov1alpha1.SubnetLease{ObjectMeta: metav1.ObjectMeta{Name: "lease-" + name}}
		lease.Spec = tombolov1alpha1.SubnetLeaseSpec{
			Subnet: tombolov1alpha1.ObjectName{Namespace: "a", Name: name + "-v4"}, CIDR: cidr, Zone: zone,
			Gateway: prefix.Addr().Next().String(), VirtualNetwork: tombolov1alpha1.ObjectName{Namespace: "a", Name: name}}
		r.view.Others = append(r.view.Others, n, lease)
	}
	add("red", "10.50.0.0/24", 1)
	add("wide", "10.50.0.0/16", 2)
	add("other", "10.60.0.0/24", 3)
	r.pod("own", "red")
	r.pod("both", "blue, red")
	r.pod("part", "wide, blue")
	r.pod("separate", "red, wide")
	r.pod("apart", "red, other")
	r.pod("twice", "red, red")
	for _, o := range r.view.Others { // the controller gives each network a block here
		lease, ok := o.(*tombolov1alpha1.SubnetLease)
		if !ok {
			continue
		}
		claim := r.p.claims[derive.Object{Namespace: "a", Name: lease.Spec.VirtualNetwork.Name}]
		block := netip.PrefixFrom(netip.MustParsePrefix(lease.Spec.CIDR).Addr(), 28).String()
		lease.Spec.Nodes = []tombolov1alpha1.NodeBlocks{{Node: "node-1", Claim: claim, CIDRs: []string{block}}}
	}
	r.settle()
	const remedy = "and they overlap: a Pod cannot have addresses of both: remove one of the two, or give one of them " +
		"another range"
	for _, row := range []struct{ pod, want string }{
		{"own", ""}, {"apart", ""}, {"twice", ""},
		{"both", "VirtualNetwork a/blue has range 10.50.0.0/24, and VirtualNetwork a/red has range 10.50.0.0/24, "},
		{"part", "VirtualNetwork a/wide has range 10.50.0.0/16, and VirtualNetwork a/blue has range 10.50.0.0/24, "},
		{"separate", "VirtualNetwork a/red has range 10.50.0.0/24, and VirtualNetwork a/wide has range 10.50.0.0/16, "},
	} {
		want := row.want
		if want != "" {
			want = "annotation " + tenant.AnnotationNetworks + ": " + want + remedy
		}
		if list, why := r.extras(row.pod); why != want || want == "" && len(list) == 0 {
			t.Errorf("Pod %s: %d interfaces, %q, want %q", row.pod, len(list), why, want)
		}
	}
	// The first interface reaches the range.
	extra := []cni.Extra{{Routes: cni.Routes{IfName: tenant.FirstInterface, Joined: []netip.Prefix{
		netip.MustParsePrefix("10.50.0.0/25")}}, VirtualNetwork: "a/own"},
		{Routes: cni.Routes{IfName: "eth1", Ranges: []cni.ExtraRange{{CIDR: netip.MustParsePrefix("10.50.0.0/24")}}},
			VirtualNetwork: "a/red"}}
	if err := r.p.overlapping("a", extra); err == nil ||
		!strings.Contains(err.Error(), "the Pod's first interface reaches range 10.50.0.0/25, "+remedy) {
		t.Errorf("a range that the first interface reaches: %v", err)
	}
	extra[1].VirtualNetwork = "a/blue" // its range is unique, so the two networks are joined
	if err := r.p.overlapping("a", extra); err != nil {
		t.Error(err)
	}
}

// TestReportLost has the report of a Node deleted or changed by others. The Node writes it again: without it, other
// Nodes would get the blocks with addresses of its Pods.
func TestReportLost(t *testing.T) {
	r := newNetworkRig(t)
	objects := r.view.Others
	show := func() {
		r.view.Others = objects
		if r.stored.have != nil {
			r.view.Others = append(objects[:len(objects):len(objects)], r.stored.have.DeepCopy())
		}
		r.settle()
	}
	r.pod("web", "a/blue")
	r.grant()
	r.add("web")
	r.settle()
	show()
	want, claim := r.report(), r.claim()
	if want != "a/blue 1 [] 10.50.0.2 web uid-web" {
		t.Fatalf("the report has %s", want)
	}
	r.stored.have = nil
	show()
	if r.report() != want || r.claim() != claim {
		t.Errorf("after the report was deleted it has %s with claim %s, want %s with %s", r.report(), r.claim(), want, claim)
	}
	show()
	r.stored.have.Spec.Networks[0].Claim = "another"
	show()
	if have := r.stored.have.Spec.Networks[0].Claim; have != claim {
		t.Errorf("after the report was changed it has the claim %s, want %s", have, claim)
	}
	if _, err := r.store.Release(ipam.Key{ContainerID: "c-web", IfName: "eth1"}); err != nil {
		t.Fatal(err)
	}
	earlier := r.stored.have.DeepCopy()
	r.view.Pods = nil
	show()
	show()
	r.stored.have = earlier
	show()
	if r.report() != "" {
		t.Errorf("without Pods an earlier report stays: %s", r.report())
	}
}

// TestExtraPort has a Pod's further interface on the switch. The interface has its VirtualNetwork, and does not change
// what the Node serves.
func TestExtraPort(t *testing.T) {
	r := newNetworkRig(t)
	v := r.view
	before := newTables(v.Config, v.NodeName)
	before.set(v)
	before.engine.Pass()
	v.Attachments = append(v.Attachments, cni.Attachment{ContainerID: "c1", IfName: "eth1", PodNamespace: "a",
		PodName: "web", PortName: "web-further", MAC: "0a:00:00:00:00:07", VirtualNetwork: "a/blue",
		IPs: []netip.Prefix{netip.MustParsePrefix("10.50.0.2/24"), netip.MustParsePrefix("fd50::2/64")}})
	v.Switch = bridge.State{Connected: true, Bridges: map[string]bridge.Found{"br-int": {
		Ports: map[string]bridge.PortState{"web-a1b2c3": {OFPort: 1}, "web-further": {OFPort: 77}}}}}
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	tables.engine.Pass()
	served, _ := tables.flows.ServedPods.Get("web-further")
	if want := (derive.Object{Namespace: "a", Name: "blue"}); served.Pod.Network != want || !served.Served {
		t.Errorf("the port is served as %+v", served.Pod)
	}
	for _, p := range tables.engine.Problems() {
		if p.Kind == "Pod" {
			t.Errorf("problem %s", p)
		}
	}
	was, _ := before.node.Get(self)
	if now, _ := tables.node.Get(self); now.Families != was.Families || len(now.PodCIDRs) != len(was.PodCIDRs) {
		t.Errorf("the Node is %+v, was %+v", now, was)
	}
}
