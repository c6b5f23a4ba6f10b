package tenant

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestDecideAcrossClusters has the decisions about connections with other clusters.
func TestDecideAcrossClusters(t *testing.T) {
	blue := Place{Known: true, Network: Name{Door: doorClusterSet, Name: "blue"}, ID: shared + 1,
		Clusters: []string{"west"}}
	alone := Place{Known: true, Network: Name{Door: doorIsolated, Name: "a"}, ID: 1}
	pod := func(p Place) End { return End{Kind: Pod, Name: "Pod a/web", Node: "node-1", Place: p} }
	in := func(cluster string) End { return End{Kind: Elsewhere, Name: "Pod elsewhere", Cluster: cluster} }
	for _, row := range []struct {
		name       string
		connection Connection
		allowed    bool
		words      string
	}{
		{"to a cluster of the network", Connection{Client: pod(blue), Server: in("west")}, true, "which decides"},
		{"to another cluster", Connection{Client: pod(blue), Server: in("north")}, false, "reaches no address"},
		{"to a cluster that is not known", Connection{Client: pod(blue), Server: in("")}, false, "reaches no address"},
		{"of an isolated Namespace", Connection{Client: pod(alone), Server: in("west")}, false, "reaches no address"},
		{"from a cluster of the network", Connection{Client: in("west"), Server: pod(blue)}, true, "TenantNetwork blue"},
		{"from another cluster", Connection{Client: in("north"), Server: pod(blue)}, false, "other clusters do not reach it"},
		{"to an isolated Namespace", Connection{Client: in("west"), Server: pod(alone)}, false, "other clusters do not"},
		{"to a Service of the network", Connection{Client: in("west"), Server: pod(blue), Service: &blue}, false,
			"other clusters do not reach it"},
	} {
		d := row.connection.Decide()
		if d.Allowed != row.allowed || !strings.Contains(d.Reason, row.words) {
			t.Errorf("%s: %+v, want allowed %t and words %q", row.name, d, row.allowed, row.words)
		}
	}
}

// TestConsents has Namespaces that name a network of several clusters, and the words if they do not get into it.
func TestConsents(t *testing.T) {
	for _, row := range []struct {
		name, network string
		isolated      bool
		selector      labels.Selector // of network blue
		problem       string          // its reason; empty for no problem
		in            string          // the network
	}{
		{"no consent", "", true, labels.Everything(), "", "isolated a"},
		{"selected", "blue", true, labels.Everything(), "", "clusterset blue"},
		{"not selected", "blue", true, labels.Nothing(), "NotSelected", "isolated a"},
		{"no such network", "green", true, labels.Everything(), "NetworkNotFound", "isolated a"},
		{"not isolated", "blue", false, labels.Everything(), "", " "},
	} {
		c, tables := newCluster(), newClusterTables()
		n := namespaceOf("a", row.isolated, nil)
		n.Annotations = map[string]string{AnnotationNetwork: row.network}
		c.namespaces["a"] = n
		c.spanned[derive.Object{Name: "blue"}] = ClusterSetFacts{ID: shared + 1, Selectors: []labels.Selector{row.selector}}
		tables.fill(c)
		if have := tables.place("a").Network.String(); have != row.in {
			t.Errorf("%s: in %q, want %q", row.name, have, row.in)
		}
		var reasons []string
		for _, p := range tables.engine.Problems() {
			reasons = append(reasons, p.Reason.String())
		}
		if have := strings.Join(reasons, " "); have != row.problem {
			t.Errorf("%s: problems %q, want %q", row.name, have, row.problem)
		}
		if own := NamespaceProblems(n); (len(own) > 0) != (row.network != "" && !row.isolated) {
			t.Errorf("%s: the Namespace alone has %v", row.name, own)
		}
	}
}

// TestCopiesInTheCentralCluster has a Namespace that is in the network of its copy, without its own consent.
func TestCopiesInTheCentralCluster(t *testing.T) {
	own := tombolov1alpha1.NamespaceReference{Name: "a", UID: "uid of a"}
	blue := ClusterSetFacts{ID: shared + 2, Selectors: []labels.Selector{labels.Everything()}}
	for _, row := range []struct {
		name      string
		namespace *corev1.Namespace
		of        tombolov1alpha1.NamespaceReference
		consent   string
		in        string
	}{
		{"its copy", namespaceOf("a", true, nil), own, "", "clusterset km-a"},
		{"of an earlier Namespace of the name", namespaceOf("a", true, nil),
			tombolov1alpha1.NamespaceReference{Name: "a", UID: "earlier"}, "", "isolated a"},
		{"of another Namespace", namespaceOf("a", true, nil),
			tombolov1alpha1.NamespaceReference{Name: "b", UID: "uid of a"}, "", "isolated a"},
		{"not isolated", namespaceOf("a", false, nil), own, "", " "},
		{"it agrees to another network", namespaceOf("a", true, nil), own, "blue", "clusterset blue"},
		{"it agrees to no network that there is", namespaceOf("a", true, nil), own, "green", "clusterset km-a"},
		{"it is a copy itself", namespaceOf("a", true, map[string]string{LabelCopy: "east"}), own, "", " "},
	} {
		c, tables := newCluster(), newClusterTables()
		row.namespace.Annotations = map[string]string{AnnotationNetwork: row.consent}
		c.namespaces["a"] = row.namespace
		c.spanned[derive.Object{Name: "km-a"}] = ClusterSetFacts{ID: shared + 1, Namespace: row.of,
			Clusters: []string{"west"}}
		c.spanned[derive.Object{Name: "blue"}] = blue
		tables.fill(c)
		if have := tables.place("a").Network.String(); have != row.in {
			t.Errorf("%s: in %q, want %q", row.name, have, row.in)
		}
	}
}

// TestCopyOf has imports that are, or are not, about the copy of Namespace a.
func TestCopyOf(t *testing.T) {
	for name, row := range map[string]struct {
		spec tombolov1alpha1.TenantNetworkImportSpec
		uid  types.UID // of Namespace a
		want bool
	}{
		"the copy": {tombolov1alpha1.TenantNetworkImportSpec{
			Namespace: &tombolov1alpha1.NamespaceReference{Name: "a", UID: "1"}}, "1", true},
		"of another Namespace": {tombolov1alpha1.TenantNetworkImportSpec{
			Namespace: &tombolov1alpha1.NamespaceReference{Name: "b", UID: "1"}}, "1", false},
		"of an earlier Namespace": {tombolov1alpha1.TenantNetworkImportSpec{
			Namespace: &tombolov1alpha1.NamespaceReference{Name: "a", UID: "2"}}, "1", false},
		"without UIDs": {tombolov1alpha1.TenantNetworkImportSpec{
			Namespace: &tombolov1alpha1.NamespaceReference{Name: "a"}}, "", false},
		"of a VirtualNetwork": {tombolov1alpha1.TenantNetworkImportSpec{
			Namespace:      &tombolov1alpha1.NamespaceReference{Name: "a", UID: "1"},
			VirtualNetwork: &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: "3"}}, "1", false},
		"of Namespaces that agree": {tombolov1alpha1.TenantNetworkImportSpec{
			NamespaceSelectors: []metav1.LabelSelector{{}}}, "1", false},
	} {
		f := ClusterSetFactsOf(&tombolov1alpha1.TenantNetworkImport{Spec: row.spec})
		if have := f.CopyOf("a", row.uid); have != row.want {
			t.Errorf("%s: %t, want %t", name, have, row.want)
		}
	}
	if (ClusterSetFacts{}).CopyOf("", "") {
		t.Error("no import is about a copy")
	}
}

// TestRoutersAtTheMember has a router in a Namespace that is in the network of its copy. It joins nothing, and its
// observation leads to the central cluster.
func TestRoutersAtTheMember(t *testing.T) {
	c, tables := newCluster(), newClusterTables()
	c.namespaces["a"] = namespaceOf("a", true, map[string]string{"vn": "a"})
	c.spanned[derive.Object{Name: "km-a"}] = ClusterSetFacts{ID: shared + 1,
		Namespace: tombolov1alpha1.NamespaceReference{Name: "a", UID: "uid of a"}}
	k := derive.Object{Namespace: "a", Name: "r"}
	v := &contrailv4.VirtualNetworkRouter{Spec: contrailv4.VirtualNetworkRouterSpec{Type: "mesh",
		VirtualNetworkSelector: &metav1.LabelSelector{}}}
	v.Namespace, v.Name = k.Namespace, k.Name
	c.routers[k] = v
	tables.fill(c)
	ps, _ := tables.RouterProblems.Get(RouterName(k))
	if len(ps) != 1 || !strings.Contains(ps[0].Message, "create the router in Namespace km-a of the central cluster") {
		t.Errorf("problems %v", ps)
	}
}
