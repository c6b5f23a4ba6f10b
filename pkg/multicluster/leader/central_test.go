package leader

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configplanev1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/configplane/v1alpha1"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// manager returns a Kubemanager that is some minutes old.
func manager(name, cluster string, age int) *configplanev1alpha1.Kubemanager {
	return &configplanev1alpha1.Kubemanager{ObjectMeta: metav1.ObjectMeta{Namespace: "contrail", Name: name,
		UID: types.UID("uid of " + name), CreationTimestamp: metav1.NewTime(noon.Add(-time.Duration(age) * time.Minute))},
		Spec: configplanev1alpha1.KubemanagerSpec{ClusterName: cluster}}
}

// listed returns a member's list of isolated Namespaces. Each has the label ns with its name.
func listed(cluster string, namespaces ...string) *mcv1alpha1.ResourceExport {
	list := exportcheck.Namespaces{ClusterID: cluster, Families: "v6,v4"}
	for _, name := range namespaces {
		list.Namespaces = append(list.Namespaces, exportcheck.IsolatedNamespace{Name: name,
			UID: types.UID("uid-" + cluster + "-" + name), Labels: map[string]string{"ns": cluster + "-" + name}})
	}
	return listOf(cluster, list)
}

func listOf(cluster string, list exportcheck.Namespaces) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "area",
		Name: cluster + multicluster.NamespacesSuffix, Labels: map[string]string{
			multicluster.LabelSourceKind: multicluster.NamespacesKind, multicluster.LabelSourceClusterID: cluster}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster, Kind: multicluster.NamespacesKind,
			Raw: &mcv1alpha1.RawResource{Data: list.JSON()}}}
}

// info returns the ClusterInfo that a member exports.
func info(cluster, services, pods string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "area",
		Name: cluster + multicluster.ClusterInfoSuffix}, Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster,
		Kind: multicluster.ClusterInfoKind, ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: cluster, ServiceCIDR: services,
			PodCIDRs: []string{pods}}}}
}

// present returns the objects of a copy that is written: the Namespace, its network, and its TenantNetwork.
func present(name, cluster, namespace string) []client.Object {
	labels := map[string]string{"ns": cluster + "-" + namespace, tenant.LabelCopy: cluster}
	annotations := map[string]string{tenant.AnnotationCopyOf: cluster + "/" + namespace,
		tenant.AnnotationCopiedLabels: "ns"}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: labels,
			Annotations: annotations}},
		&contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: contrailv4.DefaultPodNetwork,
			Labels: labels, Annotations: annotations}},
		&tombolov1alpha1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name,
			UID: types.UID("uid of network " + name), Labels: map[string]string{tenant.LabelCopy: "true"}},
			Status: tombolov1alpha1.TenantNetworkStatus{Namespace: &tombolov1alpha1.NamespaceOfCluster{ClusterID: cluster,
				NamespaceReference: tombolov1alpha1.NamespaceReference{Name: namespace,
					UID: types.UID("uid-" + cluster + "-" + namespace)}}}},
	}
}

// withNetwork adds a VirtualNetwork with ranges to the first Namespace of a member's list. Its label net has its name.
func withNetwork(re *mcv1alpha1.ResourceExport, name string, ranges ...string) *mcv1alpha1.ResourceExport {
	list, err := exportcheck.ReadNamespaces(re.Spec.Raw.Data)
	if err != nil {
		panic(err)
	}
	n := &list.Namespaces[0]
	n.VirtualNetworks = append(n.VirtualNetworks, exportcheck.VirtualNetwork{Name: name,
		UID: types.UID("uid-" + re.Spec.ClusterID + "-" + n.Name + "-" + name), CIDRs: ranges,
		Labels: map[string]string{"net": name, "kubernetes.io/x": "y"}})
	return listOf(re.Spec.ClusterID, list)
}

// presentNetwork returns the objects of a copy of a VirtualNetwork that is written: the VirtualNetwork and its
// TenantNetwork, which has these ranges, and is some minutes old.
func presentNetwork(of, cluster, namespace, name string, age int, ranges ...string) []client.Object {
	return []client.Object{
		&contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: of, Name: name,
			UID: types.UID("uid-" + of + name), Labels: map[string]string{"net": name, tenant.LabelCopy: cluster},
			Annotations: map[string]string{tenant.AnnotationCopyOf: cluster + "/" + namespace + "/" + name,
				tenant.AnnotationCopiedLabels: "net"}}},
		&tombolov1alpha1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: of + "." + name,
			UID: types.UID("uid of network " + of + "." + name), Labels: map[string]string{tenant.LabelCopy: "true"},
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Duration(age) * time.Minute))},
			Status: tombolov1alpha1.TenantNetworkStatus{Namespace: &tombolov1alpha1.NamespaceOfCluster{ClusterID: cluster,
				NamespaceReference: tombolov1alpha1.NamespaceReference{Name: namespace,
					UID: types.UID("uid-" + cluster + "-" + namespace)}}, CIDRs: ranges,
				VirtualNetwork: &tombolov1alpha1.VirtualNetworkReference{Name: name,
					UID: types.UID("uid-" + cluster + "-" + namespace + "-" + name)}}},
	}
}

// pinned returns the leader's ClusterSet with the range of a cluster.
func pinned(cluster, text string) client.Object {
	s := set("set", "north", "north")
	s.Namespace, s.Annotations = "area", map[string]string{multicluster.AnnotationRangesPrefix + cluster: text}
	return s
}

// router returns a router in a copy, which selects the network of Namespaces, and imports a router.
func router(namespace, name, kind, imports, from string) *contrailv4.VirtualNetworkRouter {
	v := &contrailv4.VirtualNetworkRouter{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"vnr": name}}, Spec: contrailv4.VirtualNetworkRouterSpec{Type: kind,
		VirtualNetworkSelector: &metav1.LabelSelector{}}}
	if imports != "" {
		v.Spec.Import.VirtualNetworkRouters = []contrailv4.VirtualNetworkRouterEntry{{
			VirtualNetworkRouterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"vnr": imports}},
			NamespaceSelector:            &metav1.LabelSelector{MatchLabels: map[string]string{"ns": from}}}}
	}
	return v
}

// centralLines returns the due writes and the joins of a central cluster with the members east and west, sorted.
func centralLines(objects ...client.Object) []string { return centralLinesIf(true, objects...) }

func centralLinesIf(on bool, objects ...client.Object) []string {
	return centralTables(on, objects...).centralLines()
}

// centralTables returns the tables of such a cluster.
func centralTables(on bool, objects ...client.Object) *tables {
	t := newTablesOf(on)
	var area, around []client.Object
	for _, a := range announced("east", "west") {
		area = append(area, a)
	}
	for _, o := range objects {
		if isAround(o) {
			around = append(around, o)
		} else {
			area = append(area, o)
		}
	}
	t.kinds.Fill(area...)
	t.around.Fill(around...)
	t.engine.Pass()
	return t
}

// isAround reports whether an object is outside of the Common Area.
func isAround(o client.Object) bool {
	switch o.(type) {
	case *configplanev1alpha1.Kubemanager, *corev1.Namespace, *contrailv4.VirtualNetwork, *contrailv4.Subnet,
		*contrailv4.VirtualNetworkRouter:
		return true
	}
	return false
}

func (t *tables) centralLines() (out []string) {
	for kind, steps := range map[string]*derive.Table[derive.Object, *copyStep]{
		"Namespace": t.central.namespaceSteps, "VirtualNetwork": t.central.virtualSteps} {
		for _, row := range steps.All() {
			labels := ""
			for _, key := range slices.Sorted(maps.Keys(row.Value.Labels)) {
				labels += " " + key + "=" + row.Value.Labels[key]
			}
			if len(row.Value.Gone) > 0 {
				labels += " without " + strings.Join(row.Value.Gone, ",")
			}
			out = append(out, fmt.Sprintf("%s %s %s%s", row.Value.Verb, kind, keyName(row.Key), labels))
		}
	}
	for kind, steps := range map[string]*derive.Table[derive.Object, statusStep]{
		"Kubemanager": t.central.managerSteps, "router": t.central.routerSteps, "network": t.central.virtualStatus,
		"subnet": t.central.subnetSteps} {
		for _, row := range steps.All() {
			out = append(out, kind+" "+keyName(row.Key)+" "+row.Value.Status)
		}
	}
	for _, row := range t.central.tenantSteps.All() {
		out = append(out, string(row.Value.Verb)+" TenantNetwork "+row.Key.Name)
	}
	for _, row := range t.networks.networkSteps.All() {
		line := "TenantNetwork " + row.Key.Name
		if of := row.Value.Status.Namespace; of != nil {
			line += " of " + of.ClusterID + "/" + of.Name + " " + string(of.UID)
		}
		if of := row.Value.Status.VirtualNetwork; of != nil {
			line += fmt.Sprintf(" network %s %s %v", of.Name, of.UID, row.Value.Status.CIDRs)
		}
		if q := row.Value.Status.Request; q != nil {
			line += fmt.Sprintf(" requests %s/%s/%s %s", q.Namespace.ClusterID, q.Namespace.Name, q.Name, q.Namespace.UID)
			for _, subnet := range []*tombolov1alpha1.RequestedSubnet{q.V4Subnet, q.V6Subnet} {
				if subnet != nil {
					line += fmt.Sprintf(" %+v", *subnet)
				}
			}
		}
		for _, j := range row.Value.Status.Joined {
			line += fmt.Sprintf(" joined with %s in %v", j.Name, j.ClusterIDs)
			if len(j.CIDRs) > 0 {
				line += fmt.Sprintf(" at %v", j.CIDRs)
			}
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func keyName(k derive.Object) string { return strings.TrimPrefix(k.String(), "/") }

// TestCentral has the writes and joins of a central cluster.
func TestCentral(t *testing.T) {
	const east, west = "km-e-east-a", "km-w-west-b"
	both := slices.Concat(present(east, "east", "a"), present(west, "west", "b"), []client.Object{
		manager("km-e", "east", 2), manager("km-w", "west", 1), listed("east", "a"), listed("west", "b")})
	joined := slices.Concat(both, []client.Object{router(east, "r1", "mesh", "r2", "west-b"),
		router(west, "r2", "mesh", "r1", "east-a")})
	with := func(more ...client.Object) []client.Object { return slices.Concat(both, more) }
	without := func(list []client.Object, at int) []client.Object { return slices.Delete(slices.Clone(list), at, at+1) }
	changed := listOf("east", exportcheck.Namespaces{ClusterID: "east", Namespaces: []exportcheck.IsolatedNamespace{
		{Name: "a", UID: "uid-east-a", Labels: map[string]string{"team": "x", "kubernetes.io/metadata.name": "kube-system",
			"tombolo.io/copy": "west", "pod-security.kubernetes.io/enforce": "privileged"}}}})
	labelled := present(east, "east", "a")[:1]
	labelled[0].GetLabels()["team"] = "users"
	numbered := tenantNetwork("older")
	numbered.UID = both[2].GetUID()
	both[2].SetCreationTimestamp(metav1.NewTime(noon.Add(time.Minute)))
	unsigned := listOf("east", exportcheck.Namespaces{ClusterID: "west"})
	users := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "km-e-east-a", UID: "users"}}
	leavingWest := announced("west")[0]
	leavingWest.DeletionTimestamp = &metav1.Time{Time: noon}
	seed := manager("kubemanager-cluster2", "east", 1)
	seed.Spec.KubeconfigSecretName, seed.Spec.ListenerPort, seed.Spec.EnableNad = "workload-kubeconfig", 19446, true
	ranged := manager("km-r", "east", 1)
	ranged.Spec.PodV4Subnet, ranged.Spec.PodV6Subnet, ranged.Spec.ServiceV4Subnet = "10.11.0.0/16", "ten", "10.96.0.0/12"
	var many []client.Object
	for i := range maxCopies {
		one := present(fmt.Sprint("km-e-east-", i), "east", fmt.Sprint(i))[0].(*corev1.Namespace)
		one.DeletionTimestamp, one.Finalizers = &metav1.Time{Time: noon}, []string{"kubernetes"}
		many = append(many, one)
	}
	crowd := append(many, manager("km-e", "east", 2), manager("km-w", "west", 1), listed("east", "a"), listed("west", "b"))
	for _, row := range []struct {
		name    string
		objects []client.Object
		want    []string // each is in one line
		none    string   // in no line
	}{
		{"a new cluster", []client.Object{manager("km-e", "east", 1), listed("east", "a", "b")}, []string{
			"create Namespace km-e-east-a ns=east-a tombolo.io/copy=east", "create Namespace km-e-east-b ns=east-b",
			`Kubemanager contrail/km-e {"observation":"","state":"Success"}`}, "TenantNetwork"},
		{"a copy is there", slices.Concat(present(east, "east", "a")[:1], []client.Object{manager("km-e", "east", 1),
			listed("east", "a")}), []string{"create VirtualNetwork km-e-east-a/default-podnetwork ns=east-a",
			"create TenantNetwork km-e-east-a"}, "Namespace km"},
		{"nothing is joined", both, []string{"TenantNetwork km-e-east-a of east/a uid-east-a", `"virtualNetworkNetworkId"`},
			"joined"},
		{"routers that import each other", with(router(east, "r1", "mesh", "r2", "west-b"),
			router(west, "r2", "mesh", "r1", "east-a")), []string{
			"km-e-east-a of east/a uid-east-a joined with km-w-west-b in [west]",
			"km-w-west-b of west/b uid-west-b joined with km-e-east-a in [east]",
			`router km-e-east-a/r1 {"observation":"","state":"Success"}`}, "Warning"},
		{"one imports alone", with(router(east, "r1", "mesh", "r2", "west-b"), router(west, "r2", "mesh", "", "")),
			[]string{`router km-e-east-a/r1 {"observation":"spec.import: the networks of VirtualNetworkRouter km-w-west-b/r2 ` +
				"are not joined before it imports this router"}, "joined with"},
		{"a hub and a spoke", with(router(east, "r1", "hub", "r2", "west-b"), router(west, "r2", "spoke", "r1", "east-a")),
			[]string{"joined with km-w-west-b", "joined with km-e-east-a"}, "Warning"},
		{"routers outside of copies", with(router("area", "r1", "mesh", "r2", "west-b"),
			router(west, "r2", "mesh", "r1", "east-a")), []string{"it selects no other router"}, "joined"},
		{"its labels changed", without(with(changed), 8), []string{
			"update Namespace km-e-east-a team=x tombolo.io/copy=east without ns",
			"update VirtualNetwork km-e-east-a/default-podnetwork team=x tombolo.io/copy=east without ns"},
			"kubernetes.io"},
		{"a label that its user has as well", slices.Concat(labelled, both[1:8], []client.Object{changed}), []string{
			"update Namespace km-e-east-a tombolo.io/copy=east without ns",
			"update VirtualNetwork km-e-east-a/default-podnetwork team=x tombolo.io/copy=east without ns"}, "without team"},
		{"a Namespace is gone", append(without(both, 8), listed("east")), []string{"delete Namespace km-e-east-a"},
			"Failure"},
		{"the Kubemanager is gone", without(both, 6), []string{"delete Namespace km-e-east-a",
			"delete TenantNetwork km-e-east-a"}, "delete Namespace km-w"},
		{"the export is gone", without(joined, 8), []string{`network km-e-east-a/default-podnetwork {"ipFamilies":null,` +
			`"observation":"metadata.namespace: it is kept`, `router km-e-east-a/r1 {"observation":"metadata.namespace: it is`,
			"annotate its ClusterSet there with tombolo.io/central=true"}, "delete"},
		{"its joins without the export", without(joined, 8), []string{"TenantNetwork km-e-east-a of east/a uid-east-a"},
			"joined with"},
		{"a member leaves", append(slices.Clone(joined), leavingWest), []string{"cluster west is leaving"}, "delete"},
		{"its joins when it leaves", append(slices.Clone(joined), leavingWest), []string{
			"TenantNetwork km-w-west-b of west/b uid-west-b"}, "joined with"},
		{"a list that is not valid", append(without(joined, 8), unsigned),
			[]string{"km-e-east-a of east/a uid-east-a joined with km-w-west-b in [west]",
				"km-w-west-b of west/b uid-west-b joined with km-e-east-a in [east]", "spec.raw.data.clusterID"}, "delete"},
		{"a member that was silent for too long", append(present("km-s-south-a", "south", "a"), manager("km-s", "south", 1)),
			[]string{"cluster south is not in the ClusterSet", "TenantNetwork km-s-south-a of south/a uid-south-a"}, "delete"},
		{"a Kubemanager names another cluster", append(present("km-s-south-a", "south", "a"), manager("km-s", "north", 1)),
			[]string{"delete Namespace km-s-south-a", "delete TenantNetwork km-s-south-a"}, "create Namespace"},
		{"too many copies terminate", crowd, []string{"create Namespace km-w-west-b", "there is no copy km-e-east-a: " +
			"cluster east has 1000 copies or more"}, "create Namespace km-e"},
		{"fewer copies terminate", crowd[1:], []string{"create Namespace km-e-east-a"}, "or more"},
		{"a user's Namespace", []client.Object{users, manager("km-e", "east", 1), listed("east", "a")},
			[]string{"there is a Namespace km-e-east-a that is no copy, and stays as it is", `"state":"Warning"`},
			"Namespace km-e-east-a ns"},
		{"a user's TenantNetwork", slices.Concat(present(east, "east", "a")[:2], []client.Object{tenantNetwork(east),
			manager("km-e", "east", 1), listed("east", "a")}), []string{"there is a TenantNetwork km-e-east-a that is not for",
			`network km-e-east-a/default-podnetwork {"ipFamilies":null,"observation":"metadata.namespace: it has no network: ` +
				`TenantNetwork area/km-e-east-a has its name`, `"state":"Failure"`}, "of east/a"},
		{"its number is taken", with(numbered), []string{`network km-e-east-a/default-podnetwork {"ipFamilies":null,` +
			`"observation":"metadata.namespace: it has no network: TenantNetwork area/older is older and has the number`,
			`"state":"Failure"`}, `network km-e-east-a/default-podnetwork {"ipFamilies":"v6`},
		{"its TenantNetwork is not made yet", without(both, 2), []string{"create TenantNetwork km-e-east-a"},
			"network km-e-east-a/default"},
		{"no member", []client.Object{manager("km", "south", 1)}, []string{"cluster south is not in the ClusterSet",
			`"state":"Failure"`}, "create Namespace"},
		{"two of one cluster", []client.Object{manager("old", "east", 2), manager("young", "east", 1), listed("east", "a")},
			[]string{"create Namespace old-east-a", "Kubemanager contrail/old is older"}, "young-east"},
		{"two that lead to one name", []client.Object{manager("a-east", "west", 1), manager("a", "east", 2),
			listed("west", "b"), listed("east", "west-b")}, []string{"create Namespace a-east-west-b ns=east-west-b",
			"Kubemanager contrail/a is older, and its copies may have the same names", `"state":"Failure"`}, "ns=west-b"},
		{"a list that another cluster signs", []client.Object{manager("km-e", "east", 1), unsigned}, []string{
			"spec.raw.data.clusterID: is not spec.clusterID"}, "create"},
		{"fields of CN2", []client.Object{seed, listed("east", "ns1")}, []string{
			"create Namespace kubemanager-cluster2-east-ns1", "no program here reads the Secret", "enableNad, listenerPort: " +
				"stored and without effect", `"state":"Warning"`}, "Failure"},
		{"other ranges", []client.Object{ranged, listed("east", "a"), info("east", "10.96.0.0/12", "10.10.0.0/16")},
			[]string{"create Namespace km-r-east-a", `spec.podV4Subnet: the cluster announces 10.10.0.0/16, and not ` +
				`10.11.0.0/16`, `spec.podV6Subnet: \"ten\" is no range`, `"state":"Warning"`}, "serviceV4Subnet"},
		{"a VirtualNetwork with a range", with(&contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: east,
			Name: "vn2"}, Spec: contrailv4.VirtualNetworkSpec{V4SubnetReference: &contrailv4.ResourceReference{Name: "s"}}}),
			[]string{"create TenantNetwork km-e-east-a.vn2"}, "Namespace km"},
		{"a VirtualNetwork without a Subnet", with(&contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: east,
			Name: "vn2"}}), []string{`network km-e-east-a/vn2 {"ipFamilies":null,"observation":"spec.v4SubnetReference: it ` +
			`names no Subnet, so no Pod of cluster east is in it`}, "vn2 joined"},
		{"objects outside of copies", []client.Object{router("shop", "r1", "mesh", "", ""),
			&contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "blue"}}}, nil, "shop"},
	} {
		t.Run(row.name, func(t *testing.T) {
			expectLines(t, centralLines(row.objects...), row.want, row.none)
		})
	}
}

// expectLines expects lines with these texts, and none with another one.
func expectLines(t *testing.T, have, want []string, none string) {
	t.Helper()
	for _, want := range want {
		if !slices.ContainsFunc(have, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("no line has %q", want)
		}
	}
	if none != "" && slices.ContainsFunc(have, func(line string) bool { return strings.Contains(line, none) }) {
		t.Errorf("a line has %q", none)
	}
	if t.Failed() {
		t.Logf("have\n\t%s", strings.Join(have[:min(len(have), 40)], "\n\t"))
	}
}

// TestCentralVirtualNetworks has the copies of members' VirtualNetworks with Subnets, and their joins.
func TestCentralVirtualNetworks(t *testing.T) {
	const east, west = "km-e-east-a", "km-w-west-b"
	const blue, red = "10.50.0.0/24", "10.60.0.0/24"
	slice := func(list ...client.Object) []client.Object { return list }
	spaces := slices.Concat(present(east, "east", "a"), present(west, "west", "b"), slice(
		manager("km-e", "east", 2), manager("km-w", "west", 1)))
	routers := slice(router(east, "r1", "mesh", "r2", "west-b"), router(west, "r2", "mesh", "r1", "east-a"))
	of := func(list ...[]client.Object) []client.Object { return slices.Concat(append(list, spaces, routers)...) }
	lists := func(blue, red string) []client.Object {
		return slice(withNetwork(listed("east", "a"), "blue", blue), withNetwork(listed("west", "b"), "red", red))
	}
	old := presentNetwork(east, "east", "a", "blue", 9, blue)
	young := presentNetwork(west, "west", "b", "red", 1, red)
	both := of(old, young, lists(blue, red))
	users := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: east, Name: "blue",
		Labels: map[string]string{"net": "blue"}}}
	specified := presentNetwork(east, "east", "a", "blue", 9, blue)
	specified[0].(*contrailv4.VirtualNetwork).Spec.FabricSNAT = true
	selected := presentNetwork(east, "east", "a", "blue", 9, blue)
	selected[1].(*tombolov1alpha1.TenantNetwork).Spec.Members = []tombolov1alpha1.TenantNetworkMember{{ClusterID: "west"}}
	agreed := presentNetwork(east, "east", "a", "blue", 9)
	agreed[1].(*tombolov1alpha1.TenantNetwork).Spec.Connections = []string{"all"}
	mesh := &tombolov1alpha1.NetworkConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "all"},
		Spec: tombolov1alpha1.NetworkConnectionSpec{Mesh: []string{east + ".blue", "mine"}}}
	mine := tenantNetwork("mine")
	mine.Spec.Connections = []string{"all"}
	taken := tenantNetwork(east + ".blue")
	const withAll = " joined with km-e-east-a in [east] joined with km-e-east-a.blue in [east] at [10.50.0.0/24] " +
		"joined with km-w-west-b in [west]"
	for _, row := range []struct {
		name    string
		objects []client.Object
		want    []string
		none    string // no line has it
	}{
		{"listed", of(lists(blue, red)), []string{"create VirtualNetwork km-e-east-a/blue net=blue tombolo.io/copy=east",
			"create VirtualNetwork km-w-west-b/red"}, "kubernetes.io/x"},
		{"with a copy", of(old[:1], lists(blue, red)), []string{"create TenantNetwork km-e-east-a.blue"},
			"create TenantNetwork km-w"},
		{"somebody deletes the copy", of(old[1:], lists(blue, red)), []string{"create VirtualNetwork km-e-east-a/blue"},
			"TenantNetwork km-e-east-a.blue of east/a uid-east-a joined"},
		{"somebody deletes the copy: its network stays", of(old[1:], lists(blue, red)), nil,
			"delete TenantNetwork km-e-east-a.blue"},
		{"joined", both, []string{"TenantNetwork km-w-west-b.red of west/b uid-west-b network red uid-west-b-red " +
			"[10.60.0.0/24]" + withAll,
			"TenantNetwork km-w-west-b of west/b uid-west-b joined with km-e-east-a in [east] joined with km-e-east-a.blue in " +
				"[east] at [10.50.0.0/24] joined with km-w-west-b.red in [west] at [10.60.0.0/24]",
			`network km-e-east-a/blue {"ipFamilies":"v4","observation":"","state":"Success","virtualNetworkNetworkId":`},
			"Warning"},
		{"a router that selects the VirtualNetwork alone", slices.Concat(old, young, lists(blue, red), spaces,
			slice(func() client.Object {
				v := router(east, "r1", "mesh", "r2", "west-b")
				v.Spec.VirtualNetworkSelector.MatchLabels = map[string]string{"net": "blue"}
				return v
			}(), routers[1])),
			[]string{"TenantNetwork km-e-east-a of east/a uid-east-a", "km-e-east-a.blue of east/a uid-east-a network blue " +
				"uid-east-a-blue [10.50.0.0/24] joined with km-w-west-b in [west] joined with km-w-west-b.red in [west] at " +
				"[10.60.0.0/24]"}, "joined with km-e-east-a in"},
		{"without Pods", of(presentNetwork(east, "east", "a", "blue", 9), young,
			slice(withNetwork(listed("east", "a"), "blue"), withNetwork(listed("west", "b"), "red", red))), []string{
			`network km-e-east-a/blue {"ipFamilies":null,"observation":"","state":"Success","virtualNetworkNetworkId":`},
			"joined with km-e-east-a.blue"},
		{"both versions of IP", of(old, slice(withNetwork(listed("east", "a"), "blue", blue, "fd50::/64"))), []string{
			`network km-e-east-a/blue {"ipFamilies":"v6,v4"`, "uid-east-a-blue [10.50.0.0/24 fd50::/64] joined"}, "overlaps"},
		{"gone", of(old, young, slice(listed("east", "a"), withNetwork(listed("west", "b"), "red", red))),
			[]string{"delete VirtualNetwork km-e-east-a/blue", "delete TenantNetwork km-e-east-a.blue"},
			"joined with km-e-east-a.blue"},
		{"its Namespace is gone", of(old, young, slice(listed("east"), withNetwork(listed("west", "b"), "red", red))),
			[]string{"delete Namespace km-e-east-a", "delete TenantNetwork km-e-east-a.blue"}, "delete VirtualNetwork"},
		{"a list that is not known", of(old, young, slice(withNetwork(listed("west", "b"), "red", red))), []string{
			"TenantNetwork km-e-east-a.blue of east/a uid-east-a network blue uid-east-a-blue [10.50.0.0/24]",
			"network km-e-east-a/blue"}, "delete"},
		{"a list that is not known joins nothing", of(old, young, slice(withNetwork(listed("west", "b"), "red", red))), nil,
			"joined with km-e-east-a"},
		{"a list that is not valid", of(old, young, slice(func() client.Object {
			re := listed("east", "a")
			re.Spec.Raw.Data = []byte("{")
			return re
		}(), withNetwork(listed("west", "b"), "red", red))),
			[]string{"uid-west-b-red [10.60.0.0/24]" + withAll}, "delete"},
		{"a user's VirtualNetwork", of(slice(users), lists(blue, red)), []string{"network km-e-east-a/blue " +
			`{"ipFamilies":null,"observation":"metadata.name: it is no copy, so VirtualNetwork a/blue of cluster east`},
			"TenantNetwork km-e-east-a.blue"},
		{"a user's VirtualNetwork of another name", of(old, young, lists(blue, red), slice(&contrailv4.VirtualNetwork{
			ObjectMeta: metav1.ObjectMeta{Namespace: east, Name: "green"}})), []string{
			"it names no Subnet, so no Pod of cluster east is in it"}, "delete"},
		{"a user's TenantNetwork", of(old[:1], slice(taken), lists(blue, red)), []string{
			"TenantNetwork area/km-e-east-a.blue has its name"}, "of east/a uid-east-a network"},
		{"a spec in a copy", of(specified, young, lists(blue, red)), []string{"spec: it is stored and has no effect"},
			"delete"},
		{"members of its TenantNetwork", of(selected, young, lists(blue, red)), []string{
			"TenantNetwork km-w-west-b.red of west/b uid-west-b network red uid-west-b-red [10.60.0.0/24]" + withAll},
			"joined with km-e-east-a.blue in [east west]"},
		{"a connection of a network without Pods", of(agreed, slice(mesh, mine, withNetwork(listed("east", "a"), "blue"))),
			nil, "joined with km-e-east-a.blue"},
		{"the range of another cluster", of(old, young, lists(blue, red),
			slice(info("west", "10.96.0.0/12", "10.50.0.0/16"))),
			[]string{"10.50.0.0/24 overlaps the range 10.50.0.0/16 of cluster west: give it", `"state":"Warning","virtual`,
				"km-e-east-a.blue of east/a uid-east-a network blue uid-east-a-blue []"}, "joined with km-e-east-a.blue"},
		{"the range of its own cluster", of(old, young, lists(blue, red),
			slice(info("east", "10.50.0.128/25", "10.10.0.0/16"))),
			[]string{"10.50.0.0/24 overlaps the range 10.50.0.128/25 of cluster east"}, "joined with km-e-east-a.blue"},
		{"two with one range", of(presentNetwork(east, "east", "a", "blue", 9), presentNetwork(west, "west", "b", "red", 1),
			lists(blue, "10.50.0.0/16")), []string{"uid-west-b-red []", "uid-east-a-blue [10.50.0.0/24] joined with",
			"10.50.0.0/16 overlaps a range of VirtualNetwork km-e-east-a/blue: give it a Subnet with another range in cluster " +
				"west"}, "joined with km-w-west-b.red"},
		{"the older one changes its range", of(old, young, lists("10.60.0.0/16", red)), []string{
			"uid-west-b-red [10.60.0.0/24] joined with", "uid-east-a-blue []",
			"10.60.0.0/16 overlaps a range of VirtualNetwork km-w-west-b/red"}, "joined with km-e-east-a.blue"},
		{"the older one adds a range", of(old, young, slice(withNetwork(listed("east", "a"), "blue", "10.50.0.0/23", blue,
			"10.60.0.0/16"), withNetwork(listed("west", "b"), "red", red))), []string{
			"uid-west-b-red [10.60.0.0/24] joined with", "uid-east-a-blue [10.50.0.0/23 10.50.0.0/24]",
			"10.60.0.0/16 overlaps a range of VirtualNetwork km-w-west-b/red"}, "joined with km-e-east-a.blue"},
		{"a range between two others", of(presentNetwork(east, "east", "a", "blue", 9, "10.60.1.0/24"), young,
			slice(withNetwork(listed("east", "a"), "blue", "10.60.1.0/24", "10.60.0.0/16"),
				withNetwork(listed("west", "b"), "red", red))), []string{"uid-west-b-red [10.60.0.0/24] joined with",
			"10.60.0.0/16 overlaps a range of VirtualNetwork km-w-west-b/red"}, "joined with km-e-east-a.blue"},
		{"a range of a cluster that has gone silent", of(presentNetwork(east, "east", "a", "blue", 1), young,
			slice(withNetwork(listed("east", "a"), "blue", red))), []string{
			"10.60.0.0/24 overlaps a range of VirtualNetwork km-w-west-b/red"}, "joined with km"},
		{"a public range", of(presentNetwork(east, "east", "a", "blue", 9), young, lists("8.8.8.0/24", red)), []string{
			"Subnet range 8.8.8.0/24 of cluster east is not private", "ranges.multicluster.antrea.io/east"},
			"joined with km-e-east-a.blue"},
		{"a pinned public range", of(old, young, lists("8.8.8.0/24", red), slice(pinned("east", "8.8.8.0/23"))), []string{
			"uid-east-a-blue [8.8.8.0/24] joined with"}, "Warning"},
		{"a range that is pinned to another cluster", of(old, young, lists(blue, red), slice(pinned("west", "10.0.0.0/8"))),
			[]string{"Subnet range 10.50.0.0/24 of cluster east is reserved for cluster west"},
			"joined with km-e-east-a.blue"},
		{"a range with addresses of no Pod", of(old, young, lists("169.254.0.0/16", red)), []string{
			"169.254.0.0/16 contains addresses that are never routed"}, "joined with km-e-east-a.blue"},
	} {
		t.Run(row.name, func(t *testing.T) { expectLines(t, centralLines(row.objects...), row.want, row.none) })
	}
}

// requestedNetwork adds a VirtualNetwork to the first Namespace of a member's list. The member has created it for a
// request.
func requestedNetwork(re *mcv1alpha1.ResourceExport, name string, ranges ...string) *mcv1alpha1.ResourceExport {
	list, err := exportcheck.ReadNamespaces(withNetwork(re, name, ranges...).Spec.Raw.Data)
	if err != nil {
		panic(err)
	}
	for i := range list.Namespaces[0].VirtualNetworks {
		if n := &list.Namespaces[0].VirtualNetworks[i]; n.Name == name {
			n.Requested = true
		}
	}
	return listOf(re.Spec.ClusterID, list)
}

// TestCentralRequests has VirtualNetworks that users create in copies, which the clusters of the copies create.
func TestCentralRequests(t *testing.T) {
	const east, west = "km-e-east-a", "km-w-west-b"
	const v4, v6 = "10.70.0.0/24", "fd00:70::/64"
	slice := func(list ...client.Object) []client.Object { return list }
	of := func(list ...[]client.Object) []client.Object {
		return slices.Concat(append(list, present(east, "east", "a"), present(west, "west", "b"), slice(
			manager("km-e", "east", 2), manager("km-w", "west", 1), listed("west", "b"),
			router(east, "r1", "mesh", "r2", "west-b"), router(west, "r2", "mesh", "r1", "east-a")))...)
	}
	user := func(change func(*contrailv4.VirtualNetwork)) client.Object {
		n := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: east, Name: "vn2", UID: "uid of vn2",
			Labels: map[string]string{"net": "vn2"}}, Spec: contrailv4.VirtualNetworkSpec{
			V4SubnetReference: &contrailv4.ResourceReference{Kind: "Subnet", Name: "s4"}}}
		if change != nil {
			change(n)
		}
		return n
	}
	dual := func(n *contrailv4.VirtualNetwork) {
		n.Spec.V6SubnetReference = &contrailv4.ResourceReference{Name: "s6"}
	}
	subnet := func(name, cidr string, ranges ...contrailv4.IPRange) client.Object {
		s := &contrailv4.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: east, Name: name, UID: types.UID("uid of " + name)},
			Spec: contrailv4.SubnetSpec{CIDR: cidr}}
		if len(ranges) > 0 {
			s.Spec.Ranges = []contrailv4.SubnetRange{{IPRanges: ranges}}
		}
		return s
	}
	made := func(age int, cidrs ...string) []client.Object { // the TenantNetwork
		return presentNetwork(east, "east", "a", "vn2", age, cidrs...)[1:]
	}
	asked := func(cidr string) []client.Object { // the TenantNetwork with the number and the request
		out := made(1, cidr)
		n := out[0].(*tombolov1alpha1.TenantNetwork)
		n.Status.Request = &tombolov1alpha1.NetworkRequest{Name: "vn2", Namespace: *n.Status.Namespace,
			V4Subnet: &tombolov1alpha1.RequestedSubnet{Name: "s4", CIDR: cidr}}
		return out
	}
	requested := made(1)
	requested[0].(*tombolov1alpha1.TenantNetwork).Status = tombolov1alpha1.TenantNetworkStatus{}
	kept := made(1)
	kept[0].(*tombolov1alpha1.TenantNetwork).Status.Request = &tombolov1alpha1.NetworkRequest{Name: "vn2"}
	terminating := user(func(n *contrailv4.VirtualNetwork) {
		n.DeletionTimestamp, n.Finalizers = &metav1.Time{Time: noon}, []string{"x"}
	})
	created := requestedNetwork(listed("east", "a"), "vn2", v4)
	var many []contrailv4.IPRange
	for range maxRequestedRanges + 1 {
		many = append(many, contrailv4.IPRange{From: "10.70.0.8", To: "10.70.0.9"})
	}
	for _, row := range []struct {
		name    string
		objects []client.Object
		want    []string
		none    string // no line has it
	}{
		{"created in the copy", of(slice(user(nil), subnet("s4", v4), listed("east", "a"))), []string{
			"create TenantNetwork km-e-east-a.vn2", `subnet km-e-east-a/s4 {"observation":"metadata.name: cluster east gives ` +
				"no addresses of it: wait"}, "VirtualNetwork km-e-east-a/vn2"},
		{"with a TenantNetwork", of(requested, slice(user(dual), subnet("s4", v4, contrailv4.IPRange{From: "10.70.0.8",
			To: "10.70.0.9"}), subnet("s6", v6), listed("east", "a"))), []string{
			"TenantNetwork km-e-east-a.vn2 requests east/a/vn2 uid-east-a {Name:s4 CIDR:10.70.0.0/24 DefaultGateway: " +
				"Ranges:[{From:10.70.0.8 To:10.70.0.9}]} {Name:s6 CIDR:fd00:70::/64 DefaultGateway: Ranges:[]}",
			`network km-e-east-a/vn2 {"ipFamilies":null,"observation":"metadata.name: there is no VirtualNetwork a/vn2 of ` +
				`cluster east yet`, `"state":"Warning"`}, "km-e-east-a.vn2 of"},
		{"its cluster has created it", of(made(1, v4), slice(user(nil), subnet("s4", v4), created)), []string{
			"TenantNetwork km-e-east-a.vn2 of east/a uid-east-a network vn2 uid-east-a-vn2 [10.70.0.0/24] requests " +
				"east/a/vn2 uid-east-a {Name:s4", "joined with km-w-west-b in [west]",
			`network km-e-east-a/vn2 {"ipFamilies":"v4","observation":"","state":"Success","virtualNetworkNetworkId":`,
			`subnet km-e-east-a/s4 {"observation":"","state":"Success"}`}, "Failure"},
		{"the other cluster gets its range", of(made(1, v4), slice(user(nil), subnet("s4", v4), created)), []string{
			"TenantNetwork km-w-west-b of west/b uid-west-b joined with km-e-east-a in [east] joined with km-e-east-a.vn2 in " +
				"[east] at [10.70.0.0/24]"}, "delete"},
		{"routers select it by its labels here", of(made(1, v4), slice(user(func(n *contrailv4.VirtualNetwork) {
			n.Labels = map[string]string{"vn": "x"}
		}), subnet("s4", v4), created, func() client.Object {
			v := router(east, "r3", "mesh", "r2", "west-b")
			v.Spec.VirtualNetworkSelector.MatchLabels = map[string]string{"vn": "x"}
			return v
		}())), []string{"router km-e-east-a/r3"}, `r3 {"observation":"spec.virtualNetworkSelector`},
		{"without addresses", of(made(1), slice(user(nil), subnet("s4", v4), requestedNetwork(listed("east", "a"), "vn2"))),
			[]string{"VirtualNetwork a/vn2 of cluster east gives no addresses, or other networks"}, "at ["},
		{"the member has one of this name", of(made(1, v4), slice(user(nil), subnet("s4", v4),
			withNetwork(listed("east", "a"), "vn2", v4))), []string{
			"TenantNetwork km-e-east-a.vn2 requests east/a/vn2 uid-east-a {Name:s4",
			`"observation":"metadata.name: a user of the cluster has created VirtualNetwork a/vn2 of cluster east, so it is ` +
				"joined with nothing", `"state":"Failure"`}, "at ["},
		{"its Subnet is deleted later", of(asked(v4), slice(user(nil), created)), []string{
			`network km-e-east-a/vn2 {"ipFamilies":"v4","observation":"spec.v4SubnetReference: Subnet s4 is not in this`,
			"[10.70.0.0/24] requests east/a/vn2 uid-east-a {Name:s4 CIDR:10.70.0.0/24",
			"joined with km-e-east-a.vn2 in [east] at [10.70.0.0/24]"}, "delete"},
		{"its Subnet is made again with another range", of(asked(v4), slice(user(nil), subnet("s4", "10.71.0.0/24"),
			created)), []string{"requests east/a/vn2 uid-east-a {Name:s4 CIDR:10.71.0.0/24",
			"VirtualNetwork a/vn2 of cluster east has range 10.70.0.0/24, which this one does not have"}, "at ["},
		{"a tenant has replaced the Subnet", of(asked(v4), slice(user(nil), subnet("s4", v4), requestedNetwork(listed("east",
			"a"), "vn2", "10.99.0.0/24"))), []string{"VirtualNetwork a/vn2 of cluster east has range 10.99.0.0/24, which"},
			"at ["},
		{"the Kubemanager is not read", slices.Concat(asked(v4), slice(user(nil), subnet("s4", v4), created)),
			[]string{"[10.70.0.0/24] requests east/a/vn2 uid-east-a {Name:s4 CIDR:10.70.0.0/24"}, "joined"},
		{"deleted in the copy", of(made(1, v4), slice(created)), []string{"delete TenantNetwork km-e-east-a.vn2"},
			"VirtualNetwork km-e-east-a/vn2"},
		{"terminating in the copy", of(made(1, v4), slice(terminating, subnet("s4", v4), created)), []string{
			"delete TenantNetwork km-e-east-a.vn2"}, "requests"},
		{"without its Subnet", of(requested, slice(user(nil), listed("east", "a"))), []string{
			`network km-e-east-a/vn2 {"ipFamilies":null,"observation":"spec.v4SubnetReference: Subnet s4 is not in this ` +
				`Namespace: create it`, `"state":"Failure"`}, "requests"},
		{"a Subnet of the other version", of(requested, slice(user(nil), subnet("s4", v6), listed("east", "a"))), []string{
			"Subnet s4 has addresses of the other version of IP"}, "requests"},
		{"a Subnet that is not valid", of(requested, slice(user(nil), subnet("s4", "ten"), listed("east", "a"))), []string{
			"Subnet s4 gives no addresses: correct the reason", `subnet km-e-east-a/s4 {"observation":"spec.cidr:`,
			`"state":"Failure"`}, "requests"},
		{"one Subnet of two", of(requested, slice(user(dual), subnet("s6", v6), listed("east", "a"))), []string{
			"requests east/a/vn2 uid-east-a {Name:s6", "Subnet s4 is not in this Namespace"}, "{Name:s4"},
		{"a Subnet that no VirtualNetwork names", of(slice(subnet("s4", v4), listed("east", "a"))), []string{
			"no VirtualNetwork of this Namespace has it"}, "TenantNetwork km-e-east-a.vn2"},
		{"too many ranges", of(requested, slice(user(nil), subnet("s4", v4, many...), listed("east", "a"))), []string{
			"ranges after the first 50 are left out"}, strings.Repeat(" {From:10.70.0.8 To:10.70.0.9}", maxRequestedRanges)},
		{"for first interfaces", of(requested, slice(user(func(n *contrailv4.VirtualNetwork) { n.Spec.PodNetwork = true }),
			subnet("s4", v4), listed("east", "a"))), []string{"spec.podNetwork: it is stored and has no effect",
			"requests east"}, "Failure"},
		{"the list is not known, and there is no TenantNetwork", of(slice(user(nil), subnet("s4", v4))), []string{
			"the Namespaces of cluster east are not known, so it has no network yet"}, "create TenantNetwork km-e-east-a.vn2"},
		{"the list is not known", of(kept, slice(user(nil), subnet("s4", v4))), []string{
			"TenantNetwork km-e-east-a.vn2 of east/a uid-east-a network vn2 uid-east-a-vn2 [] requests //vn2",
			"it is kept, and joins nothing"}, "delete"},
		{"outside of copies", of(slice(user(func(n *contrailv4.VirtualNetwork) {
			n.Namespace = "shop"
		}), func() client.Object {
			s := subnet("s4", v4)
			s.SetNamespace("shop")
			return s
		}(), listed("east", "a"))), []string{"TenantNetwork km-e-east-a of"}, "shop"},
	} {
		t.Run(row.name, func(t *testing.T) { expectLines(t, centralLines(row.objects...), row.want, row.none) })
	}
	if have := centralLinesIf(false, of(kept, slice(user(nil), subnet("s4", v4), listed("east", "a")))...); len(have) > 0 {
		t.Errorf("a leader whose cluster is not the central one writes %q", have)
	}
}

// TestNetworkNames has names of the TenantNetworks of copies of VirtualNetworks. They have a dot.
func TestNetworkNames(t *testing.T) {
	long := strings.Repeat("n", 253)
	for _, row := range [][2]string{{"blue", "km-e-east-a.blue"}, {"blue.x", "km-e-east-a.blue.x"},
		{long, "km-e-east-a." + strings.Repeat("n", 230) + "-"}} {
		have := networkName(derive.Object{Namespace: "km-e-east-a", Name: row[0]})
		if !strings.HasPrefix(have, row[1]) || len(have) > 253 {
			t.Errorf("networkName(%q) = %q, want %q", row[0], have, row[1])
		}
	}
	if networkName(derive.Object{Namespace: "a", Name: long}) == networkName(derive.Object{Namespace: "a",
		Name: long[1:] + "m"}) {
		t.Error("two long names have one TenantNetwork")
	}
}

// TestCrammed has a cluster with as many copies of VirtualNetworks as it may have: there is no further one.
func TestCrammed(t *testing.T) {
	objects := slices.Concat(present("km-e-east-a", "east", "a"), []client.Object{manager("km-e", "east", 1),
		withNetwork(listed("east", "a"), "blue")})
	for i := range maxNetworks {
		objects = append(objects, presentNetwork("km-e-east-a", "east", "a", fmt.Sprint("old", i), 1)[0])
	}
	expectLines(t, centralLines(objects...), []string{"VirtualNetworks may have no copies in km-e-east-a",
		"delete VirtualNetwork km-e-east-a/old0"}, "create VirtualNetwork")
	expectLines(t, centralLines(objects[1:]...), []string{"create Namespace km-e-east-a"}, "delete VirtualNetwork")
	expectLines(t, centralLines(objects[:len(objects)-1]...), []string{"create VirtualNetwork km-e-east-a/blue"},
		"may have no copies")
}

// TestCentralOff has a leader whose cluster is not the central one any more. The copies and their networks stay.
func TestCentralOff(t *testing.T) {
	objects := append(present("km-e-east-a", "east", "a"), manager("km-e", "east", 1), listed("east", "a"))
	if have := centralLinesIf(false, objects...); len(have) > 0 {
		t.Errorf("it writes %q", have)
	}
	if have := centralLines(objects...); len(have) == 0 {
		t.Error("the central cluster writes nothing")
	}
	// Other networks stay joined with them.
	blue := presentNetwork("km-e-east-a", "east", "a", "blue", 9, "10.50.0.0/24")[1].(*tombolov1alpha1.TenantNetwork)
	blue.Spec.Connections = []string{"all"}
	expectLines(t, centralLinesIf(false, blue, tenantNetwork("mine", "all"), connection("all", mesh("mine", blue.Name))),
		[]string{"joined with km-e-east-a.blue in [east] at [10.50.0.0/24]"}, "TenantNetwork km-e-east-a.blue of")
}

// TestGatewayInPinnedRange has a cluster that announces a Gateway with an address of another cluster's VirtualNetwork.
// If the range is pinned to the other cluster, this takes no range.
func TestGatewayInPinnedRange(t *testing.T) {
	holders := [][]holder{{{ClusterID: "west", Gateways: []netip.Addr{netip.MustParseAddr("10.50.0.5")}}}}
	pins := claims.Pins{"east": {Ranges: []netip.Prefix{netip.MustParsePrefix("10.50.0.0/16")}, HasRanges: true}}
	if have := reservedBy(holders, pins); len(have) > 0 {
		t.Errorf("with a pin it takes %v", have)
	}
	pins = claims.Pins{"west": pins["east"]}
	if have := reservedBy(holders, pins); len(have) != 1 || have[0].CIDR != netip.MustParsePrefix("10.50.0.5/32") {
		t.Errorf("with a pin of its own it takes %v", have)
	}
}

// TestCopyNames has names of copies: as in CN2, or with a hash.
func TestCopyNames(t *testing.T) {
	long := strings.Repeat("n", 63)
	for _, row := range [][4]string{
		{"kubemanager-cluster2", "cluster2", "ns1", "kubemanager-cluster2-cluster2-ns1"},
		{"km", "east.example", "ns1", "km-east-example-ns1-"},
		{"km", "east", long, "km-east-nnnn"},
	} {
		have := copyName(row[0], row[1], row[2])
		if !strings.HasPrefix(have, row[3]) || len(have) > 63 {
			t.Errorf("copyName(%q) = %q, want %q", row[:3], have, row[3])
		}
		if len(have) == len(row[3]) != (row[3] == "kubemanager-cluster2-cluster2-ns1") {
			t.Errorf("copyName(%q) = %q", row[:3], have)
		}
	}
	if copyName("km", "east", long) == copyName("km", "east", long[1:]+"m") {
		t.Error("two long names have one copy")
	}
}

// centralManifest returns the manifest of the central cluster, with the Common Area area.
func centralManifest(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/multicluster/tombolo-central.yml")
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.ReplaceAll(string(text), "antrea-multicluster", "area"))
}

// admission creates the admission policies of a manifest.
func admission(t *testing.T, c client.Client, manifest []byte) {
	t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(manifest)), 4096)
	for {
		o := &unstructured.Unstructured{}
		if documents.Decode(&o.Object) != nil {
			return
		}
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCentralWithRealAPIServer has the life of a copy, with the rights and the admission policy of the manifest: made,
// joined, a member's label changed, a user's label kept, and deleted. The controller writes nothing else.
func TestCentralWithRealAPIServer(t *testing.T) {
	c, own := startCentral(t)
	ctx := t.Context()
	for _, id := range []string{"east", "west"} {
		inArea(t, c, &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Name: multicluster.AnnounceName(id)},
			ClusterID: id, ClusterSetID: "set", LeaderClusterID: "north"})
	}
	list := listed("east", "a")
	inArea(t, c, list)
	inArea(t, c, listed("west", "b"))
	create := func(o client.Object) {
		t.Helper()
		o.SetCreationTimestamp(metav1.Time{})
		o.SetUID("")
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "contrail"}})
	east, west := manager("km-e", "east", 0), manager("km-w", "west", 0)
	create(east)
	create(west)
	is := func(step, want string) {
		t.Helper()
		have := ""
		defer func() {
			if t.Failed() {
				t.Logf("%s: have %s", step, have)
			}
		}()
		within(t, step, func(ctx context.Context) bool {
			var networks contrailv4.VirtualNetworkList
			var tenants tombolov1alpha1.TenantNetworkList
			var routers contrailv4.VirtualNetworkRouterList
			if c.List(ctx, &networks) != nil || c.List(ctx, &tenants) != nil || c.List(ctx, &routers) != nil {
				return false
			}
			have = ""
			for i, n := range networks.Items {
				have += fmt.Sprintf("%s/%s %s %s %t; ", n.Namespace, n.Name, n.Status.State, n.Status.IPFamilies,
					i < len(tenants.Items) && n.Status.VirtualNetworkNetworkID == int64(tenants.Items[i].Status.Number))
			}
			for _, n := range tenants.Items {
				for _, j := range n.Status.Joined {
					have += fmt.Sprintf("%s with %s in %v; ", n.Name, j.Name, j.ClusterIDs)
				}
			}
			for _, v := range routers.Items {
				have += v.Name + " " + v.Status.State + "; "
			}
			return have == want
		})
	}
	const copies = "km-e-east-a/default-podnetwork Success v6,v4 true; km-w-west-b/default-podnetwork Success v6,v4 true; "
	is("copies", copies)
	create(router("km-e-east-a", "r1", "mesh", "r2", "west-b"))
	is("one router", copies+"r1 Warning; ")
	create(router("km-w-west-b", "r2", "mesh", "r1", "east-a"))
	is("joined", copies+"km-e-east-a with km-w-west-b in [west]; km-w-west-b with km-e-east-a in [east]; "+
		"r1 Success; r2 Success; ")

	change := func(step string, to *mcv1alpha1.ResourceExport) {
		t.Helper()
		within(t, step, func(ctx context.Context) bool {
			now := &mcv1alpha1.ResourceExport{}
			if c.Get(ctx, client.ObjectKey{Namespace: "area", Name: to.Name}, now) != nil {
				return false
			}
			now.Spec = to.Spec
			return c.Update(ctx, now) == nil
		})
	}
	change("a VirtualNetwork in the member", withNetwork(listed("east", "a"), "blue", "10.50.0.0/24"))
	blue, ofBlue := &contrailv4.VirtualNetwork{}, &tombolov1alpha1.TenantNetwork{}
	blueKey := client.ObjectKey{Namespace: "km-e-east-a", Name: "blue"}
	ofBlueKey := client.ObjectKey{Namespace: "area", Name: "km-e-east-a.blue"}
	within(t, "a copy of the VirtualNetwork", func(ctx context.Context) bool {
		return c.Get(ctx, blueKey, blue) == nil && c.Get(ctx, ofBlueKey, ofBlue) == nil &&
			blue.Status.State == "Success" && blue.Status.IPFamilies == "v4" && ofBlue.Status.Number != 0 &&
			blue.Status.VirtualNetworkNetworkID == int64(ofBlue.Status.Number) && len(ofBlue.Status.Joined) == 2 &&
			slices.Equal(ofBlue.Status.CIDRs, []string{"10.50.0.0/24"}) && ofBlue.Status.VirtualNetwork.Name == "blue"
	})
	within(t, "the other cluster gets its range", func(ctx context.Context) bool {
		n := &tombolov1alpha1.TenantNetwork{}
		return c.Get(ctx, client.ObjectKey{Namespace: "area", Name: "km-w-west-b"}, n) == nil && len(n.Status.Joined) == 2 &&
			n.Status.Joined[1].Name == ofBlue.Name && slices.Equal(n.Status.Joined[1].CIDRs, ofBlue.Status.CIDRs)
	})
	request := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "km-e-east-a", Name: "vn2"},
		Spec: contrailv4.VirtualNetworkSpec{V4SubnetReference: &contrailv4.ResourceReference{Kind: "Subnet", Name: "s2"}}}
	create(request)
	subnet := &contrailv4.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: "km-e-east-a", Name: "s2"},
		Spec: contrailv4.SubnetSpec{CIDR: "10.70.0.0/24"}}
	create(subnet)
	within(t, "a VirtualNetwork that is requested", func(ctx context.Context) bool {
		n := &tombolov1alpha1.TenantNetwork{}
		return c.Get(ctx, client.ObjectKey{Namespace: "area", Name: "km-e-east-a.vn2"}, n) == nil &&
			n.Status.Request != nil && n.Status.Request.V4Subnet.CIDR == "10.70.0.0/24" && n.Status.Namespace == nil &&
			c.Get(ctx, client.ObjectKeyFromObject(subnet), subnet) == nil && subnet.Status.State == "Warning" &&
			c.Get(ctx, client.ObjectKeyFromObject(request), request) == nil && request.Status.State == "Warning"
	})
	change("the member creates it", requestedNetwork(withNetwork(listed("east", "a"), "blue", "10.50.0.0/24"), "vn2",
		"10.70.0.0/24"))
	within(t, "the VirtualNetwork that was requested", func(ctx context.Context) bool {
		n := &tombolov1alpha1.TenantNetwork{}
		return c.Get(ctx, client.ObjectKey{Namespace: "area", Name: "km-e-east-a.vn2"}, n) == nil &&
			n.Status.VirtualNetwork != nil && slices.Equal(n.Status.CIDRs, []string{"10.70.0.0/24"}) &&
			c.Get(ctx, client.ObjectKeyFromObject(subnet), subnet) == nil && subnet.Status.State == "Success" &&
			c.Get(ctx, client.ObjectKeyFromObject(request), request) == nil && request.Status.State == "Success" &&
			request.Status.VirtualNetworkNetworkID == int64(n.Status.Number)
	})
	for _, o := range []client.Object{request, subnet} {
		if err := c.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "the request ends", func(ctx context.Context) bool {
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Namespace: "area", Name: "km-e-east-a.vn2"},
			&tombolov1alpha1.TenantNetwork{})) && apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(request), request))
	})

	users := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "km-e-east-a", Name: "users"}}
	create(users)
	within(t, "a user's VirtualNetwork", func(ctx context.Context) bool {
		return c.Get(ctx, client.ObjectKeyFromObject(users), users) == nil && users.Status.State == "Failure"
	})
	if err := own.Delete(ctx, users.DeepCopy()); err == nil ||
		!strings.Contains(err.Error(), "may only change and delete copies") {
		t.Errorf("the controller deletes a user's VirtualNetwork: %v", err)
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "no-copy"}})
	labelled := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "no-copy", Name: "blue",
		Labels: map[string]string{tenant.LabelCopy: "east"}}}
	create(labelled)
	if err := own.Delete(ctx, labelled); err == nil || !strings.Contains(err.Error(), "may only write in copies") {
		t.Errorf("the controller deletes a VirtualNetwork outside of copies: %v", err)
	}
	if err := c.Delete(ctx, labelled); err != nil {
		t.Fatal(err)
	}
	change("no VirtualNetwork in the member", list)
	within(t, "the copy of the VirtualNetwork is deleted", func(ctx context.Context) bool {
		return apierrors.IsNotFound(c.Get(ctx, blueKey, blue)) && apierrors.IsNotFound(c.Get(ctx, ofBlueKey, ofBlue)) &&
			c.Delete(ctx, users) == nil
	})

	namespace := &corev1.Namespace{}
	key := client.ObjectKey{Name: "km-e-east-a"}
	within(t, "a user's label", func(ctx context.Context) bool {
		if c.Get(ctx, key, namespace) != nil {
			return false
		}
		namespace.Labels["mine"] = "x"
		return c.Update(ctx, namespace) == nil
	})
	relabelled := listOf("east", exportcheck.Namespaces{ClusterID: "east", Families: "v6,v4",
		Namespaces: []exportcheck.IsolatedNamespace{{Name: "a", UID: "uid-east-a", Labels: map[string]string{"team": "x"}}}})
	change("another label in the member", relabelled)
	within(t, "the labels of both", func(ctx context.Context) bool {
		n := &corev1.Namespace{}
		return c.Get(ctx, key, n) == nil && n.Labels["team"] == "x" && n.Labels["mine"] == "x" && n.Labels["ns"] == ""
	})
	is("the import selects nothing", copies+"r1 Warning; r2 Warning; ")

	if err := c.Delete(ctx, east); err != nil {
		t.Fatal(err)
	}
	within(t, "the copy is deleted", func(ctx context.Context) bool {
		n := &corev1.Namespace{}
		err := c.Get(ctx, key, n)
		gone := c.Get(ctx, client.ObjectKey{Namespace: "area", Name: key.Name}, &tombolov1alpha1.TenantNetwork{})
		return (err == nil && !n.DeletionTimestamp.IsZero() || apierrors.IsNotFound(err)) && apierrors.IsNotFound(gone)
	})
	// RBAC alone would allow these.
	within(t, "the policy is in force", func(ctx context.Context) bool {
		err := own.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "no-copy-"}})
		return err != nil && strings.Contains(err.Error(), "may only make copies")
	})
	// Others may change the TenantNetwork of a copy, but not its label, nor give it to another TenantNetwork.
	ofCopy := &tombolov1alpha1.TenantNetwork{}
	within(t, "a user's change of the network of a copy", func(ctx context.Context) bool {
		if c.Get(ctx, client.ObjectKey{Namespace: "area", Name: "km-w-west-b"}, ofCopy) != nil {
			return false
		}
		ofCopy.Annotations = map[string]string{"mine": "x"}
		return c.Update(ctx, ofCopy) == nil
	})
	mine := tenantNetwork("mine")
	create(mine)
	refused := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "alone adds and removes label tombolo.io/copy")
	}
	within(t, "a user creates a network of a copy", func(ctx context.Context) bool {
		n := tenantNetwork("other")
		n.UID, n.CreationTimestamp, n.Labels = "", metav1.Time{}, map[string]string{tenant.LabelCopy: "true"}
		return refused(c.Create(ctx, n, client.DryRunAll))
	})
	for _, row := range []struct {
		network *tombolov1alpha1.TenantNetwork
		value   string
	}{{mine, `"true"`}, {ofCopy, "null"}} {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tombolo.io/copy":`+row.value+`}}}`))
		if err := c.Patch(ctx, row.network, patch); !refused(err) {
			t.Errorf("a user sets the label of TenantNetwork %s to %s: %v", row.network.Name, row.value, err)
		}
	}
	if err := own.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "contrail"}}); err == nil ||
		!strings.Contains(err.Error(), "may only change and delete copies") {
		t.Errorf("the controller deletes Namespace contrail: %v", err)
	}
	network := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "contrail", Name: "n",
		Labels: map[string]string{tenant.LabelCopy: "east"}}}
	if err := own.Create(ctx, network); err == nil || !strings.Contains(err.Error(), "may only write in copies") {
		t.Errorf("the controller creates a VirtualNetwork in Namespace contrail: %v", err)
	}
}

// TestCentralKeys has a key of each offer of one object, so that no offer displaces another one. Clusters take turns.
func TestCentralKeys(t *testing.T) {
	w := &writer{}
	k := derive.Object{Namespace: "a", Name: "b"}
	seen := map[string]bool{}
	network := &tombolov1alpha1.TenantNetwork{Status: tombolov1alpha1.TenantNetworkStatus{
		Namespace: &tombolov1alpha1.NamespaceOfCluster{ClusterID: "east"}}}
	for _, o := range []retry.Offer{w.virtualOffer(k, &copyStep{Group: "east"}),
		w.virtualStatusOffer(k, statusStep{Group: "east"}), w.tenantOffer(k, tenantStep{Group: "east"}),
		w.networkOffer(k, network)} {
		if o.Group != "east" {
			t.Errorf("%s does not take turns with other clusters", o.Key)
		}
		if seen[o.Key] {
			t.Errorf("two offers have the key %s", o.Key)
		}
		seen[o.Key] = true
	}
}
