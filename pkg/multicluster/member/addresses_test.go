package member

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
)

// podAt is a Pod of podNode with a label and an address.
func podAt(name, app string, ips ...string) *corev1.Pod {
	p := pod("default", name, app)
	p.Spec.NodeName = podNode("").Name
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

// podNode is the Node of podAt's Pods, or one of another name.
func podNode(name string, podCIDRs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec: corev1.NodeSpec{PodCIDRs: []string{"10.10.0.0/17", "fd00:10::/64"}}}
	if name != "" {
		n.Name, n.Spec.PodCIDRs = name, podCIDRs
	}
	return n
}

// addressImport returns the import with which the leader passes on the addresses of a cluster's Pods: "web 10.11.3.5".
func addressImport(cluster string, pods ...string) *mcv1alpha1.ResourceImport {
	p := exportcheck.PodAddresses{ClusterID: cluster, Labels: map[string][]netip.Addr{}}
	for _, text := range pods {
		app, ip, _ := strings.Cut(text, " ")
		hash, a := multicluster.LabelHash(appLabel(app)), netip.MustParseAddr(ip)
		p.Block = exportcheck.BlockOf(a)
		p.Labels[hash] = append(p.Labels[hash], a)
	}
	return &mcv1alpha1.ResourceImport{ObjectMeta: meta(area, multicluster.PodAddressesName(cluster, p.Block)),
		Spec: mcv1alpha1.ResourceImportSpec{
			Kind: multicluster.PodAddressesKind, Raw: &mcv1alpha1.RawResource{Data: p.JSON()}}}
}

func podInfoOf(id string, ranges ...string) *mcv1alpha1.ResourceImport {
	services, gateway := "10.98.0.0/16", "192.0.2.1"
	if id != "west" {
		services, gateway = "10.99.0.0/16", "192.0.2.2"
	}
	ri := clusterInfoOf(id, services, gateway)
	ri.Spec.ClusterInfo.PodCIDRs = ranges
	return ri
}

// names are the labels that hashes stand for in these tests.
var names = func() map[string]string {
	out := map[string]string{}
	for _, app := range []string{"web", "db", "new", "x"} {
		out[multicluster.LabelHash(appLabel(app))] = app
	}
	return out
}()

// exportedAddresses returns the addresses in ResourceExports: "podaddresses-10.10.3.0: db 10.10.3.6, web 10.10.3.5".
func exportedAddresses(t *testing.T, list []*mcv1alpha1.ResourceExport) string {
	t.Helper()
	var out []string
	for _, re := range list {
		if re.Spec.Kind != multicluster.PodAddressesKind {
			continue
		}
		p, err := exportcheck.ReadPodAddresses(re.Spec.Raw.Data)
		if err != nil {
			t.Fatal(err)
		}
		var pods []string
		for hash, addresses := range p.Labels {
			for _, a := range addresses {
				pods = append(pods, names[hash]+" "+a.String())
			}
		}
		slices.Sort(pods)
		out = append(out, strings.TrimPrefix(re.Name, p.ClusterID+"-")+": "+strings.Join(pods, ", "))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func importedAddresses(list []*mcv1alpha1.PodAddressImport) string {
	var out []string
	for _, a := range list {
		for _, pods := range a.Spec.Pods {
			for _, ip := range pods.Addresses {
				out = append(out, fmt.Sprintf("%s %s %s", a.Spec.ClusterID, names[pods.LabelIdentity], ip))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func publishingView() View {
	v := joinedView()
	v.Config.EnableStretchedNetworkPolicy, v.Config.PublishPodAddresses = true, true
	v.Config.PodCIDRs = []string{"10.10.0.0/16", "fd00:10::/64"}
	v.Nodes = append(v.Nodes, podNode(""), podNode("node-2", "10.10.128.0/17", "nonsense"))
	return v
}

// TestExportAddresses reads: with these Pods cluster east publishes these addresses.
func TestExportAddresses(t *testing.T) {
	onNode := podAt("b", "x", "10.10.3.7")
	onNode.Spec.HostNetwork = true
	ended := podAt("b", "x", "10.10.3.7")
	ended.Status.Phase = corev1.PodSucceeded
	later := podAt("b", "x", "10.10.3.7")
	later.Namespace = "later"
	younger := podAt("b", "db", "10.10.3.5")
	younger.CreationTimestamp = metav1.Unix(1700000000, 0)
	lying, orphan := podAt("b", "db", "10.10.3.5"), podAt("o", "db", "10.10.3.8")
	lying.CreationTimestamp, lying.Spec.NodeName, orphan.Spec.NodeName = metav1.Unix(1700000000, 0), "node-2", "node-9"
	for _, row := range []struct {
		name string
		off  bool
		pods []*corev1.Pod
		want string
	}{
		{name: "two blocks",
			pods: []*corev1.Pod{podAt("a", "web", "10.10.3.5"), podAt("b", "db", "10.10.3.6"), podAt("c", "web", "10.10.4.5")},
			want: "podaddresses-10.10.3.0: db 10.10.3.6, web 10.10.3.5; podaddresses-10.10.4.0: web 10.10.4.5"},
		{name: "both families", pods: []*corev1.Pod{podAt("a", "web", "10.10.3.5", "fd00:10::5")},
			want: "podaddresses-10.10.3.0: web 10.10.3.5; podaddresses-fd00-0010-0000-0000-0000-0000-0000-0000: web fd00:10::5"},
		{name: "in the Node's network, ended, in no known Namespace", pods: []*corev1.Pod{onNode, ended, later}},
		{name: "outside of podCIDRs", pods: []*corev1.Pod{podAt("a", "web", "10.11.3.5"), podAt("b", "web", "x")}},
		{name: "one address of different Pods",
			pods: []*corev1.Pod{podAt("a", "web", "10.10.3.5"), younger, podAt("c", "web", "10.10.3.5")},
			want: "podaddresses-10.10.3.0: db 10.10.3.5"},
		{name: "another Node's address", pods: []*corev1.Pod{podAt("a", "web", "10.10.3.5"), lying},
			want: "podaddresses-10.10.3.0: web 10.10.3.5"},
		{name: "another Node's address alone, and a Node that is gone", pods: []*corev1.Pod{lying, orphan}},
		{name: "one address of alike Pods", pods: []*corev1.Pod{podAt("a", "web", "10.10.3.5"),
			podAt("b", "web", "10.10.3.5")}, want: "podaddresses-10.10.3.0: web 10.10.3.5"},
		{name: "turned off", off: true, pods: []*corev1.Pod{podAt("a", "web", "10.10.3.5")}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := publishingView()
			v.Config.PublishPodAddresses = !row.off
			v.Pods = row.pods
			d, ps := Plan(v)
			if have := exportedAddresses(t, d.ResourceExports); have != row.want {
				t.Errorf("have %q, want %q", have, row.want)
			}
			expect(t, "problems", problems(ps), []string(nil))
			// An existing export that is not desired is deleted.
			old := &mcv1alpha1.ResourceExport{ObjectMeta: meta(area, "east-podaddresses-10.10.9.0"),
				Spec: mcv1alpha1.ResourceExportSpec{ClusterID: "east", Kind: multicluster.PodAddressesKind}}
			v.Leader.ResourceExports = append(d.ResourceExports, old)
			d, _ = Plan(v)
			if len(d.Change.Leader) != 1 || d.Change.Leader[0].String() != "delete ResourceExport "+area+"/"+old.Name {
				t.Errorf("writes %v, want the deletion of what nobody has", d.Change.Leader)
			}
		})
	}
}

// TestAddressesAreBounded publishes as many blocks as fit. Blocks that are published already have precedence.
func TestAddressesAreBounded(t *testing.T) {
	v := publishingView()
	v.Pods = []*corev1.Pod{podAt("a", "web", "10.10.3.5"), podAt("b", "web", "10.10.3.6"),
		podAt("c", "web", "10.10.4.5"), podAt("d", "web", "10.10.5.5")}
	tables := newTables(v.Namespace, v.Config)
	tables.addresses.Most = 3
	tables.load(v)
	is := func(step, want string, events ...string) {
		t.Helper()
		tables.Pass()
		expect(t, step, exportedAddresses(t, derive.Values(tables.addresses.AddressExports.All())), want)
		expect(t, step+": problems", problems(tables.Problems()), events)
	}
	const limit = "ClusterSet kube-system/set: PodAddressLimit"
	is("too many", "podaddresses-10.10.3.0: web 10.10.3.5, web 10.10.3.6; podaddresses-10.10.4.0: web 10.10.4.5", limit)
	for _, re := range derive.Values(tables.addresses.AddressExports.All()) {
		tables.OwnExports.Set(re)
	}
	early := podAt("early", "web", "10.10.2.5")
	tables.Cluster.Set(early)
	is("a newcomer", "podaddresses-10.10.3.0: web 10.10.3.5, web 10.10.3.6; podaddresses-10.10.4.0: web 10.10.4.5", limit)
	tables.Cluster.Delete(v.Pods[0])
	is("one is gone",
		"podaddresses-10.10.2.0: web 10.10.2.5; podaddresses-10.10.3.0: web 10.10.3.6; podaddresses-10.10.4.0: web 10.10.4.5",
		limit)
	tables.Cluster.Delete(v.Pods[1])
	is("few enough",
		"podaddresses-10.10.2.0: web 10.10.2.5; podaddresses-10.10.4.0: web 10.10.4.5; podaddresses-10.10.5.0: web 10.10.5.5")
}

// TestImportAddresses reads: from these ResourceImports come these PodAddressImports.
func TestImportAddresses(t *testing.T) {
	type imports = []*mcv1alpha1.ResourceImport
	west := podInfoOf("west", "10.11.0.0/16", "10.12.0.0/25")
	changed := func(change func(*mcv1alpha1.ResourceImport)) *mcv1alpha1.ResourceImport {
		ri := addressImport("west", "web 10.11.3.5")
		change(ri)
		return ri
	}
	invalid := []string{"ClusterSet kube-system/set: ResourceImportInvalid"}
	for _, row := range []struct {
		name     string
		off      bool
		imports  imports
		want     string
		problems []string
	}{
		{name: "two blocks", imports: imports{west, addressImport("west", "web 10.11.3.5", "db 10.11.3.6"),
			addressImport("west", "web 10.11.4.5")},
			want: "west db 10.11.3.6, west web 10.11.3.5, west web 10.11.4.5"},
		{name: "turned off", off: true, imports: imports{west, addressImport("west", "web 10.11.3.5")}},
		{name: "one's own", imports: imports{podInfoOf("east", "10.10.0.0/16"), addressImport("east", "web 10.10.3.5")}},
		{name: "no ClusterInfo", imports: imports{addressImport("west", "web 10.11.3.5")}, problems: invalid},
		{name: "partly outside its ranges", imports: imports{west, addressImport("west", "web 10.12.0.5", "web 10.12.0.200")},
			want: "west web 10.12.0.5", problems: invalid},
		{name: "another's range", imports: imports{west, podInfoOf("south", "10.13.0.0/16"),
			addressImport("west", "web 10.13.0.5")}, problems: invalid},
		{name: "the name of another block", imports: imports{west,
			changed(func(ri *mcv1alpha1.ResourceImport) { ri.Name = "west-podaddresses-10.11.4.0" })}, problems: invalid},
		{name: "no list", imports: imports{west, changed(func(ri *mcv1alpha1.ResourceImport) { ri.Spec.Raw = nil })},
			problems: invalid},
		{name: "garbage", imports: imports{west,
			changed(func(ri *mcv1alpha1.ResourceImport) { ri.Spec.Raw.Data = []byte("x") })}, problems: invalid},
		{name: "for another cluster",
			imports: imports{west, changed(func(ri *mcv1alpha1.ResourceImport) { ri.Spec.ClusterIDs = []string{"south"} })}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Config.EnableStretchedNetworkPolicy = !row.off
			v.Leader.ResourceImports = row.imports
			d, ps := Plan(v)
			if have := importedAddresses(d.PodAddressImports); have != row.want {
				t.Errorf("have %q, want %q", have, row.want)
			}
			expect(t, "problems", problems(ps), row.problems)
		})
	}
	// A range that this cluster has too is reported. No address in that range is imported.
	v := joinedView()
	v.Config.EnableStretchedNetworkPolicy, v.Config.PodCIDRs = true, []string{"10.11.3.0/24"}
	v.Leader.ResourceImports = imports{west, addressImport("west", "web 10.11.3.5"),
		addressImport("west", "web 10.11.4.5")}
	d, _ := Plan(v)
	expect(t, "beside its own range", importedAddresses(d.PodAddressImports), "west web 10.11.4.5")
	// Imported addresses stay while the ClusterInfo is missing, and while the leader's list has not been read.
	v.PodAddressImports = d.PodAddressImports
	v.Leader.ResourceImports = v.Leader.ResourceImports[1:]
	d, _ = Plan(v)
	expect(t, "without a ClusterInfo", importedAddresses(d.PodAddressImports), "west web 10.11.4.5")
	v.Leader.Synced, v.Leader.ResourceImports = false, nil
	d, _ = Plan(v)
	expect(t, "writes while nothing is known", writeTexts(d.Change.Local), []string(nil))
	v.Leader.Synced = true
	d, _ = Plan(v)
	expect(t, "writes when it is gone", writeTexts(d.Change.Local),
		[]string{"delete PodAddressImport kube-system/west-podaddresses-10.11.4.0"})
}

// TestAddressesAreBatched offers one write of a block for many changes of it.
func TestAddressesAreBatched(t *testing.T) {
	c := newController("kube-system", publishingView().Config, nil, slog.New(slog.DiscardHandler))
	c.tables.load(publishingView())
	for i := range 200 {
		p := podAt(fmt.Sprint("p", i), "web", fmt.Sprint("10.10.3.", i))
		c.tables.Cluster.Set(p)
		c.tables.Pass()
	}
	if n := c.pacedWrites.Len(); n != 2 {
		t.Errorf("%d writes wait, want that of the label and that of the block", n)
	}
	w, _ := c.tables.leader.Get(derive.Object{Namespace: area, Name: "east-podaddresses-10.10.3.0"})
	if o := offer(*w, target{}); o.Wait != time.Second {
		t.Errorf("a block waits %s for further changes, want a second", o.Wait)
	}
}

// TestAddressesThroughTheLeaderController publishes Pods' addresses from one member through the leader's controller. It
// also imports the addresses of a second member.
func TestAddressesThroughTheLeaderController(t *testing.T) {
	w, _ := newParallelWorld(t)
	w.config.EnableStretchedNetworkPolicy, w.config.PublishPodAddresses = true, true
	w.config.PodCIDRs = []string{"10.10.0.0/16"}
	token := w.token()
	own := clusterSet("")
	own.Namespace, own.Spec.ClusterID, own.Spec.Leaders[0].Secret = area, "north", ""
	w.create(w.leader, own)
	w.start(w.leaderConfig, area, "leader", leader.SetupWithManager)
	node := node("node-1", "192.0.2.10")
	node.Spec.PodCIDR, node.Spec.PodCIDRs = "10.10.0.0/16", []string{"10.10.0.0/16"}
	w.create(w.member, clusterSet(w.leaderConfig.Host), node,
		&corev1.Secret{ObjectMeta: meta("kube-system", "east-token"), Data: map[string][]byte{
			"ca.crt": w.leaderConfig.CAData, "token": token}},
		&corev1.ServiceAccount{ObjectMeta: meta("default", "default")})
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}
	if err := w.member.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.startMember()
	start := func(p *corev1.Pod) *corev1.Pod {
		t.Helper()
		status := p.Status
		w.create(w.member, p)
		p.Status = status
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, status.PodIPs[0].IP
		if err := w.member.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	passedOn := func(step, want string) {
		t.Helper()
		w.eventually(step+": "+want, func(ctx context.Context) error {
			l := &mcv1alpha1.ResourceImportList{}
			if err := w.leader.List(ctx, l, client.InNamespace(area)); err != nil {
				return err
			}
			var as []*mcv1alpha1.ResourceExport
			for _, ri := range l.Items {
				as = append(as, &mcv1alpha1.ResourceExport{ObjectMeta: ri.ObjectMeta,
					Spec: mcv1alpha1.ResourceExportSpec{Kind: ri.Spec.Kind, Raw: ri.Spec.Raw}})
			}
			if have := exportedAddresses(t, as); have != want {
				return fmt.Errorf("have %q", have)
			}
			return nil
		})
	}
	web := start(podAt("web", "web", "10.10.3.5"))
	start(podAt("far", "web", "10.44.3.5")) // not in podCIDRs
	passedOn("one Pod", "podaddresses-10.10.3.0: web 10.10.3.5")
	start(podAt("db", "db", "10.10.3.6"))
	start(podAt("late", "db", "10.10.4.6"))
	passedOn("three Pods", "podaddresses-10.10.3.0: db 10.10.3.6, web 10.10.3.5; podaddresses-10.10.4.0: db 10.10.4.6")
	w.update(w.member, web, func() { web.Labels["app"] = "new" })
	passedOn("other labels", "podaddresses-10.10.3.0: db 10.10.3.6, new 10.10.3.5; podaddresses-10.10.4.0: db 10.10.4.6")
	if err := w.member.Delete(t.Context(), web, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	passedOn("one is gone", "podaddresses-10.10.3.0: db 10.10.3.6; podaddresses-10.10.4.0: db 10.10.4.6")

	// Another member publishes addresses. They are imported here if they are in its ranges, and are deleted when it
	// leaves.
	announce := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: meta(area, "member-announce-from-west"),
		ClusterID: "west", ClusterSetID: "set", LeaderClusterID: "north"}
	info := &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Namespace: area,
		Name: "west-clusterinfo", Labels: map[string]string{multicluster.LabelSourceClusterID: "west"}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: "west", Kind: multicluster.ClusterInfoKind,
			ClusterInfo: podInfoOf("west", "10.11.0.0/16").Spec.ClusterInfo}}
	export := func(of *mcv1alpha1.ResourceImport) *mcv1alpha1.ResourceExport {
		return &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Namespace: area,
			Name: of.Name, Labels: map[string]string{multicluster.LabelSourceClusterID: "west"}},
			Spec: mcv1alpha1.ResourceExportSpec{ClusterID: "west", Kind: of.Spec.Kind, Raw: of.Spec.Raw}}
	}
	theirs := export(addressImport("west", "web 10.11.3.5", "db 10.11.3.6"))
	// the last one is of this cluster's range
	w.create(w.leader, announce, info, theirs, export(addressImport("west", "web 10.10.3.9")))
	imported := func(step, want string) {
		t.Helper()
		w.eventually(step+": "+want, func(ctx context.Context) error {
			l := &mcv1alpha1.PodAddressImportList{}
			if err := w.member.List(ctx, l, client.InNamespace("kube-system")); err != nil {
				return err
			}
			var list []*mcv1alpha1.PodAddressImport
			for i := range l.Items {
				list = append(list, &l.Items[i])
			}
			if have := importedAddresses(list); have != want {
				return fmt.Errorf("have %q", have)
			}
			return nil
		})
	}
	imported("of west", "west db 10.11.3.6, west web 10.11.3.5")
	passedOn("not in its ranges", "podaddresses-10.10.3.0: db 10.10.3.6; podaddresses-10.10.4.0: "+
		"db 10.10.4.6; podaddresses-10.11.3.0: db 10.11.3.6, web 10.11.3.5")
	drifted := &mcv1alpha1.PodAddressImport{ObjectMeta: meta("kube-system", theirs.Name)}
	w.update(w.member, drifted, func() { drifted.Spec.Pods[0].Addresses = []string{"10.11.3.99"} })
	imported("somebody changes it", "west db 10.11.3.6, west web 10.11.3.5")
	w.update(w.leader, theirs,
		func() { theirs.Spec.Raw = addressImport("west", "web 10.11.3.5", "db 10.11.3.7").Spec.Raw })
	imported("another Pod", "west db 10.11.3.7, west web 10.11.3.5")
	if err := w.leader.Delete(t.Context(), announce); err != nil {
		t.Fatal(err)
	}
	imported("west leaves", "")

	// When publishing is turned off, the published addresses are deleted.
	w.stop()
	w.config.PublishPodAddresses = false
	w.startMember()
	passedOn("turned off", "")
}
