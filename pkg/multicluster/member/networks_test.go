package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// tenantNetwork returns a network in the Common Area with a number, and with members of these clusters.
func tenantNetwork(name string, number int32, clusters ...string) *tombolov1alpha1.TenantNetwork {
	n := &tombolov1alpha1.TenantNetwork{ObjectMeta: meta(area, name)}
	for _, id := range clusters {
		n.Spec.Members = append(n.Spec.Members, tombolov1alpha1.TenantNetworkMember{ClusterID: id,
			NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"in": id}}})
	}
	n.Status.Number = number
	return n
}

// TestNamespacesForTheCentralCluster has the list of isolated Namespaces that cluster east exports, and the import of
// the network of a copy. Without consent there is neither.
func TestNamespacesForTheCentralCluster(t *testing.T) {
	namespace := func(name, isolated string, labels map[string]string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: meta("", name)}
		n.UID, n.Labels = types.UID("uid-"+name), map[string]string{"core.juniper.net/isolated-namespace": isolated,
			"kubernetes.io/metadata.name": name}
		maps.Copy(n.Labels, labels)
		return n
	}
	copied := tenantNetwork("km-a", 7)
	copied.Status.Namespace = &tombolov1alpha1.NamespaceOfCluster{ClusterID: "east",
		NamespaceReference: tombolov1alpha1.NamespaceReference{Name: "a", UID: "uid-a"}}
	elsewhere := tenantNetwork("km-b", 8)
	elsewhere.Status.Namespace = &tombolov1alpha1.NamespaceOfCluster{ClusterID: "west",
		NamespaceReference: tombolov1alpha1.NamespaceReference{Name: "a", UID: "uid-a"}}
	for _, row := range []struct{ name, consent, want, imported string }{
		{"without consent", "", "", ""},
		{"another value", "yes", "", ""},
		{"with consent", "true", `{"clusterID":"east","families":"v4","namespaces":[` +
			`{"name":"a","uid":"uid-a","labels":{"core.juniper.net/isolated-namespace":"true","ns":"east-a"}},` +
			`{"name":"b","uid":"uid-b","labels":{"core.juniper.net/isolated-namespace":"true"}}]}`, "km-a=7 a uid-a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Config.PodCIDRs = []string{"10.10.0.0/16"}
			v.ClusterSets[0].Annotations = map[string]string{multicluster.AnnotationCentral: row.consent}
			v.Namespaces = append(v.Namespaces, namespace("b", "true", nil), namespace("off", "false", nil),
				namespace("a", "true", map[string]string{"ns": "east-a"}),
				namespace("copy", "true", map[string]string{"tombolo.io/copy": "west"}))
			v.Leader.TenantNetworks = []*tombolov1alpha1.TenantNetwork{copied, elsewhere}
			d, ps := Plan(v)
			have, imported := "", ""
			for _, w := range d.Change.Leader {
				if re, ok := w.Object.(*mcv1alpha1.ResourceExport); ok && re.Spec.Kind == multicluster.NamespacesKind {
					have += string(re.Spec.Raw.Data)
				}
			}
			for _, o := range d.NetworkImports {
				imported += fmt.Sprintf("%s=%d %s %s", o.Name, o.Spec.Number, o.Spec.Namespace.Name, o.Spec.Namespace.UID)
			}
			expect(t, "list", have, row.want)
			expect(t, "imports", imported, row.imported)
			expect(t, "problems", len(ps), 0)
		})
	}
}

// TestManyNamespaces has the list of the most Namespaces, with long names and as many labels as tenants can choose. No
// Namespace is left out. A label is left out if the labels of its own Namespace are too long.
func TestManyNamespaces(t *testing.T) {
	v := joinedView()
	v.Config.PodCIDRs = []string{"10.10.0.0/16"}
	v.ClusterSets[0].Annotations = map[string]string{multicluster.AnnotationCentral: "true"}
	for i := range exportcheck.MaxNamespaces {
		n := &corev1.Namespace{ObjectMeta: meta("", fmt.Sprintf("%063d", i))}
		n.UID, n.Labels = types.UID(fmt.Sprintf("%036d", i)), map[string]string{
			"core.juniper.net/isolated-namespace": "true", "ns": n.Name}
		for label := range 150 {
			n.Labels[fmt.Sprintf("zz%061d", label)] = n.Name
		}
		v.Namespaces = append(v.Namespaces, n)
	}
	d, ps := Plan(v)
	for _, w := range d.Change.Leader {
		if re, ok := w.Object.(*mcv1alpha1.ResourceExport); ok && re.Spec.Kind == multicluster.NamespacesKind {
			list, err := exportcheck.ReadNamespaces(re.Spec.Raw.Data)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "Namespaces", len(list.Namespaces), exportcheck.MaxNamespaces)
			for _, n := range list.Namespaces {
				expect(t, "label ns", n.Labels["ns"], n.Name)
				expect(t, "labels", len(n.Labels), 3)
			}
		}
	}
	if len(ps) != 1 || ps[0].Reason.String() != "TooManyLabels" {
		t.Errorf("the problems are %v", ps)
	}
}

// subnetNetwork returns a VirtualNetwork, with a Subnet or without one.
func subnetNetwork(namespace, name string, ranged bool, labels map[string]string) *contrailv4.VirtualNetwork {
	n := &contrailv4.VirtualNetwork{ObjectMeta: meta(namespace, name)}
	n.UID, n.Labels = types.UID("uid-"+namespace+"-"+name), labels
	if ranged {
		n.Spec.V4SubnetReference = &contrailv4.ResourceReference{Name: name}
	}
	return n
}

// leaseOf returns the SubnetLease of a range of a VirtualNetwork.
func leaseOf(subnet, namespace, network, cidr string, ending bool) *tombolov1alpha1.SubnetLease {
	l := &tombolov1alpha1.SubnetLease{ObjectMeta: meta("", subnet)}
	l.Spec.CIDR, l.Spec.Gateway, l.Spec.Ending = cidr, "10.50.0.1", ending
	l.Spec.VirtualNetwork.Namespace, l.Spec.VirtualNetwork.Name = namespace, network
	return l
}

// namespaceList returns the list of isolated Namespaces that a plan exports, as JSON.
func namespaceList(d Desired) (text string) {
	for _, w := range d.Change.Leader {
		if re, ok := w.Object.(*mcv1alpha1.ResourceExport); ok && re.Spec.Kind == multicluster.NamespacesKind {
			text += string(re.Spec.Raw.Data)
		}
	}
	return text
}

// isolatedView is a joined cluster that has agreed, with isolated Namespaces.
func isolatedView(names ...string) View {
	v := joinedView()
	v.Config.PodCIDRs = []string{"10.10.0.0/16"}
	v.ClusterSets[0].Annotations = map[string]string{multicluster.AnnotationCentral: "true"}
	v.Namespaces = nil
	for _, name := range names {
		n := &corev1.Namespace{ObjectMeta: meta("", name)}
		n.UID, n.Labels = types.UID("uid-"+name), map[string]string{"core.juniper.net/isolated-namespace": "true"}
		v.Namespaces = append(v.Namespaces, n)
	}
	return v
}

// TestVirtualNetworksForTheCentralCluster has the VirtualNetworks with Subnets that cluster east exports, with ranges
// of their leases.
func TestVirtualNetworksForTheCentralCluster(t *testing.T) {
	blue := subnetNetwork("a", "blue", true, map[string]string{"net": "blue", "tombolo.io/copy": "west"})
	gone := subnetNetwork("a", "gone", true, nil)
	gone.DeletionTimestamp = &metav1.Time{Time: now}
	made := subnetNetwork("a", "made", true, ownLabels())
	apart := leaseOf("s1", "a", "blue", "10.50.0.0/24", false)
	apart.Spec.Zone = 17
	const head, tail = `{"clusterID":"east","families":"v4","namespaces":[{"name":"a","uid":"uid-a","labels":` +
		`{"core.juniper.net/isolated-namespace":"true"}`, `}]}`
	const listed = `{"name":"blue","uid":"uid-a-blue","labels":{"net":"blue"}`
	for _, row := range []struct {
		name     string
		networks []*contrailv4.VirtualNetwork
		leases   []*tombolov1alpha1.SubnetLease
		want     string
	}{
		{"none", nil, nil, ""},
		{"without a lease", []*contrailv4.VirtualNetwork{blue}, nil, `,"virtualNetworks":[` + listed + `}]`},
		{"with leases", []*contrailv4.VirtualNetwork{blue}, []*tombolov1alpha1.SubnetLease{
			leaseOf("s2", "a", "blue", "fd50::/64", false), leaseOf("s1", "a", "blue", "10.50.0.0/24", false),
			leaseOf("s3", "b", "blue", "10.51.0.0/24", false)},
			`,"virtualNetworks":[` + listed + `,"cidrs":["10.50.0.0/24","fd50::/64"]}]`},
		{"requested by the central cluster", []*contrailv4.VirtualNetwork{made}, []*tombolov1alpha1.SubnetLease{
			leaseOf("s1", "a", "made", "10.50.0.0/24", false)}, `,"virtualNetworks":[{"name":"made","uid":"uid-a-made",` +
			`"requested":true,"cidrs":["10.50.0.0/24"]}]`},
		{"more leases than ranges", []*contrailv4.VirtualNetwork{blue}, []*tombolov1alpha1.SubnetLease{
			leaseOf("s1", "a", "blue", "10.50.0.0/24", true), leaseOf("s2", "a", "blue", "10.51.0.0/24", false),
			leaseOf("s3", "a", "blue", "10.52.0.0/24", false), leaseOf("s4", "a", "blue", "10.53.0.0/24", false),
			leaseOf("s5", "a", "blue", "10.54.0.0/24", false)},
			`,"virtualNetworks":[` + listed + `,"cidrs":["10.51.0.0/24","10.52.0.0/24","10.53.0.0/24","10.54.0.0/24"]}]`},
		{"a lease that is not valid", []*contrailv4.VirtualNetwork{blue}, []*tombolov1alpha1.SubnetLease{
			leaseOf("s1", "a", "blue", "0.0.0.0/0", false), leaseOf("s2", "a", "blue", "x", false)},
			`,"virtualNetworks":[` + listed + `}]`},
		{"a separate network", []*contrailv4.VirtualNetwork{blue}, []*tombolov1alpha1.SubnetLease{apart},
			`,"virtualNetworks":[` + listed + `}]`},
		{"of no Subnet, of a shared Namespace, deleted", []*contrailv4.VirtualNetwork{subnetNetwork("a", "bare", false, nil),
			subnetNetwork("a", "default-podnetwork", true, nil), subnetNetwork("shared", "blue", true, nil), gone}, nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := isolatedView("a")
			v.VirtualNetworks, v.SubnetLeases = row.networks, row.leases
			d, ps := Plan(v)
			have := namespaceList(d)
			expect(t, "list", have, head+row.want+tail)
			if _, err := exportcheck.ReadNamespaces([]byte(have)); err != nil {
				t.Error(err)
			}
			expect(t, "problems", len(ps), 0)
		})
	}
}

// TestManyVirtualNetworks has lists with more VirtualNetworks than there is room for. The oldest ones are in the list,
// and all Namespaces.
func TestManyVirtualNetworks(t *testing.T) {
	for _, row := range []struct {
		name       string
		namespaces int
		labelled   bool // the Namespaces take all the room that they may
		most       int
		least      int
	}{
		{"by number", 60, false, exportcheck.MaxVirtualNetworks, exportcheck.MaxVirtualNetworks},
		{"by size", exportcheck.MaxNamespaces, false, exportcheck.MaxVirtualNetworks - 1, 100},
		{"little room", exportcheck.MaxNamespaces, true, 100, 0},
		{"of one Namespace", 1, false, 20, 20},
	} {
		t.Run(row.name, func(t *testing.T) {
			var names []string
			for i := range row.namespaces {
				names = append(names, fmt.Sprintf("%063d", i))
			}
			v := isolatedView(names...)
			for i, n := range v.Namespaces {
				n.UID = types.UID(fmt.Sprintf("%036d", i))
				for label := range 150 {
					if row.labelled {
						n.Labels[fmt.Sprintf("a%062d", label)] = strings.Repeat("x", 10)
					}
				}
				for j := range 25 {
					vn := subnetNetwork(n.Name, fmt.Sprintf("v%02d", j), true, map[string]string{
						"net": strings.Repeat("x", 63), "team": strings.Repeat("x", 63)})
					vn.UID = types.UID(fmt.Sprintf("%036d", i*100+j))
					vn.CreationTimestamp = metav1.Time{Time: now.Add(time.Duration(j) * time.Second)}
					v.VirtualNetworks = append(v.VirtualNetworks, vn)
				}
			}
			d, ps := Plan(v)
			list, err := exportcheck.ReadNamespaces([]byte(namespaceList(d)))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "Namespaces", len(list.Namespaces), row.namespaces)
			count, youngest, least := 0, "", 25
			for _, n := range list.Namespaces {
				count += len(n.VirtualNetworks)
				least = min(least, len(n.VirtualNetworks))
				for _, vn := range n.VirtualNetworks {
					youngest = max(youngest, vn.Name)
				}
			}
			if count > row.most || count < row.least {
				t.Errorf("the list has %d VirtualNetworks, want %d to %d", count, row.least, row.most)
			}
			if age := fmt.Sprintf("v%02d", least); count > 0 && youngest > age {
				t.Errorf("the list has %s of a Namespace, and not %s of another one", youngest, age)
			}
			reported := slices.ContainsFunc(ps, func(p problem.Problem) bool {
				return p.Reason.String() == "TooManyVirtualNetworks"
			})
			expect(t, "reported", reported, row.namespaces > 1)
		})
	}
}

// TestImportsOfVirtualNetworks has imports of networks of VirtualNetworks. No Namespace gets into such a network,
// whatever its TenantNetwork selects.
func TestImportsOfVirtualNetworks(t *testing.T) {
	of := func(cluster string) *tombolov1alpha1.TenantNetwork {
		n := tenantNetwork("km-a.blue", 9, "east", "west")
		n.Status.Namespace = &tombolov1alpha1.NamespaceOfCluster{ClusterID: cluster,
			NamespaceReference: tombolov1alpha1.NamespaceReference{Name: "a", UID: "uid-a"}}
		n.Status.VirtualNetwork = &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: "uid-a-blue"}
		n.Status.CIDRs = []string{"10.50.0.0/24"}
		n.Status.Joined = []tombolov1alpha1.JoinedNetwork{{Name: "km-b.red", Number: 8, ClusterIDs: []string{"east", "west"},
			CIDRs: []string{"10.60.0.0/24", "fd60::/64"}}}
		return n
	}
	want := tombolov1alpha1.TenantNetworkImportSpec{Number: 9,
		Namespace:      &tombolov1alpha1.NamespaceReference{Name: "a", UID: "uid-a"},
		VirtualNetwork: &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: "uid-a-blue"},
		Joined: []tombolov1alpha1.JoinedNetwork{{Name: "km-b.red", Number: 8, ClusterIDs: []string{"east", "west"},
			CIDRs: []string{"10.60.0.0/24", "fd60::/64"}}}}
	for _, row := range []struct {
		name, cluster, consent string
		imported               bool
	}{
		{"of this cluster", "east", "true", true}, {"without consent", "east", "", false},
		{"of another cluster", "west", "true", false},
	} {
		v := joinedView()
		v.ClusterSets[0].Annotations = map[string]string{multicluster.AnnotationCentral: row.consent}
		v.Leader.TenantNetworks = []*tombolov1alpha1.TenantNetwork{of(row.cluster)}
		d, _ := Plan(v)
		expect(t, row.name, len(d.NetworkImports) == 1, row.imported)
		for _, o := range d.NetworkImports {
			expect(t, row.name, o.Spec, want)
		}
	}
}

// networkImportText returns an import, such as "a=7 selectors 1 with [west], joined b=8 [west]".
func networkImportText(o *tombolov1alpha1.TenantNetworkImport) string {
	text := fmt.Sprintf("%s=%d selectors %d with %v", o.Name, o.Spec.Number, len(o.Spec.NamespaceSelectors),
		o.Spec.ClusterIDs)
	for _, j := range o.Spec.Joined {
		text += fmt.Sprintf(", joined %s=%d %v", j.Name, j.Number, j.ClusterIDs)
	}
	return text
}

// TestNetworkImports has the import of cluster east for a TenantNetwork.
func TestNetworkImports(t *testing.T) {
	with := func(n *tombolov1alpha1.TenantNetwork,
		change func(*tombolov1alpha1.TenantNetwork)) *tombolov1alpha1.TenantNetwork {
		change(n)
		return n
	}
	invalid := func(i int) func(*tombolov1alpha1.TenantNetwork) {
		return func(n *tombolov1alpha1.TenantNetwork) {
			n.Spec.Members[i].NamespaceSelector.MatchLabels = map[string]string{"not/a/key": ""}
		}
	}
	for _, row := range []struct {
		name    string
		network *tombolov1alpha1.TenantNetwork
		want    string // empty for no import
	}{
		{"of this cluster and another one", tenantNetwork("a", 7, "east", "west"), "a=7 selectors 1 with [west]"},
		{"of this cluster alone", tenantNetwork("a", 7, "east"), "a=7 selectors 1 with []"},
		{"several entries of a cluster", tenantNetwork("a", 7, "west", "east", "south", "east", "west"),
			"a=7 selectors 2 with [south west]"},
		{"of other clusters", tenantNetwork("a", 7, "west"), ""},
		{"without a number", tenantNetwork("a", 0, "east", "west"), ""},
		{"without members", tenantNetwork("a", 7), ""},
		{"an invalid selector", with(tenantNetwork("a", 7, "east", "east"), invalid(0)), "a=7 selectors 1 with []"},
		{"all selectors are invalid", with(tenantNetwork("a", 7, "east"), invalid(0)), ""},
		{"an invalid selector of another cluster", with(tenantNetwork("a", 7, "east", "west"), invalid(1)),
			"a=7 selectors 1 with []"},
		{"joined", with(tenantNetwork("a", 7, "east"), func(n *tombolov1alpha1.TenantNetwork) {
			n.Status.Joined = []tombolov1alpha1.JoinedNetwork{{Name: "b", Number: 8, ClusterIDs: []string{"west"}}}
		}), "a=7 selectors 1 with [], joined b=8 [west]"},
		{"being deleted", with(tenantNetwork("a", 7, "east"), func(n *tombolov1alpha1.TenantNetwork) {
			n.DeletionTimestamp = &metav1.Time{Time: now}
		}), ""},
		{"of another Namespace of the leader", with(tenantNetwork("a", 7, "east"), func(n *tombolov1alpha1.TenantNetwork) {
			n.Namespace = "elsewhere"
		}), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Leader.TenantNetworks = []*tombolov1alpha1.TenantNetwork{row.network}
			d, ps := Plan(v)
			have := ""
			for _, o := range d.NetworkImports {
				have += networkImportText(o)
			}
			expect(t, "imports", have, row.want)
			expect(t, "problems", len(ps), 0)
		})
	}
}

// TestNetworkImportsStay writes and removes imports. They stay while the leader's objects are not known, and objects of
// others are not deleted.
func TestNetworkImportsStay(t *testing.T) {
	own := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: meta("", "old")}
	own.Labels = map[string]string{"app.kubernetes.io/managed-by": multicluster.ControllerName}
	others := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: meta("", "others")}
	v := joinedView()
	v.NetworkImports = []*tombolov1alpha1.TenantNetworkImport{own, others}
	v.Leader.TenantNetworks = []*tombolov1alpha1.TenantNetwork{tenantNetwork("new", 7, "east")}
	are := func(step string, v View, want ...string) {
		t.Helper()
		d, _ := Plan(v)
		var have []string
		for _, w := range d.Change.Local {
			if w.Kind == "TenantNetworkImport" {
				have = append(have, w.String())
			}
		}
		expect(t, step, have, want)
	}
	are("joined", v, "delete TenantNetworkImport old", "create TenantNetworkImport new")
	unread := v
	unread.Leader.Synced = false
	are("the leader's objects are not read yet", unread)
	away := v
	away.Leader.Announcement.Error = "refused"
	are("the leader is away", away, "delete TenantNetworkImport old", "create TenantNetworkImport new")
	left := v
	left.ClusterSets = nil
	are("the ClusterSet is left", left, "delete TenantNetworkImport old")
	taken := v
	taken.Leader.TenantNetworks = []*tombolov1alpha1.TenantNetwork{tenantNetwork("others", 7, "east")}
	are("an object of another one has the name", taken, "delete TenantNetworkImport old",
		"update TenantNetworkImport others")
	d, _ := Plan(taken)
	for _, w := range d.Change.Local {
		if w.Kind == "TenantNetworkImport" {
			taken = apply(taken, w)
		}
	}
	are("after these writes", taken)
}

// networkImportsAre waits until the member has these TenantNetworkImports. A number that is the leader's reads as 1.
func (w *world) networkImportsAre(step string, want ...string) {
	w.t.Helper()
	w.eventually(step, func(ctx context.Context) error {
		l := &tombolov1alpha1.TenantNetworkImportList{}
		networks := &tombolov1alpha1.TenantNetworkList{}
		if err := errors.Join(w.member.List(ctx, l), w.leader.List(ctx, networks)); err != nil {
			return err
		}
		var have []string
		for _, o := range l.Items {
			for _, n := range networks.Items {
				if n.Name == o.Name && n.Status.Number == o.Spec.Number && o.Spec.Number != 0 {
					o.Spec.Number = 1
				}
				for i, j := range o.Spec.Joined {
					if n.Name == j.Name && n.Status.Number == j.Number {
						o.Spec.Joined[i].Number = 1
					}
				}
			}
			have = append(have, networkImportText(&o))
		}
		if !slices.Equal(have, want) {
			return fmt.Errorf("have %q, want %q", have, want)
		}
		return nil
	})
}

// TestNetworksWithRealAPIServers has the life of networks between the leader's controller and a member: made, joined,
// changed, the leader away, deleted, and the ClusterSet left.
func TestNetworksWithRealAPIServers(t *testing.T) {
	w, server := newParallelWorld(t)
	token := w.token()
	set := clusterSet("")
	set.Namespace, set.Spec.ClusterID, set.Spec.Leaders[0].Secret = area, "north", ""
	w.create(w.leader, set)
	w.start(w.leaderConfig, area, "leader", leader.SetupWithManager)
	secret := &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"), Data: map[string][]byte{
		"ca.crt": w.leaderConfig.CAData, "token": token}}
	others := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: meta("", "others"),
		Spec: tombolov1alpha1.TenantNetworkImportSpec{Number: 5}}
	w.create(w.member, clusterSet(w.leaderConfig.Host), secret, others)
	w.startMember()
	const foreign = "others=5 selectors 0 with []"

	a, b := tenantNetwork("a", 0, "east", "west"), tenantNetwork("b", 0, "east")
	w.create(w.leader, a, b, tenantNetwork("c", 0, "west"))
	w.networkImportsAre("two networks have members here", "a=1 selectors 1 with [west]", "b=1 selectors 1 with []",
		foreign)
	w.create(w.leader, &tombolov1alpha1.NetworkConnection{ObjectMeta: meta(area, "all"),
		Spec: tombolov1alpha1.NetworkConnectionSpec{Mesh: []string{"a", "b"}}})
	w.update(w.leader, a, func() { a.Spec.Connections = []string{"all"} })
	w.update(w.leader, b, func() { b.Spec.Connections = []string{"all"} })
	w.networkImportsAre("joined", "a=1 selectors 1 with [west], joined b=1 [east]",
		"b=1 selectors 1 with [], joined a=1 [east]", foreign)
	w.update(w.leader, b, func() { b.Spec.Connections = nil })
	w.networkImportsAre("the owner of b no longer agrees", "a=1 selectors 1 with [west]", "b=1 selectors 1 with []",
		foreign)

	drifted := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: meta("", "a")}
	w.update(w.member, drifted, func() { drifted.Spec.Number = 77 })
	w.networkImportsAre("somebody's change is mended", "a=1 selectors 1 with [west]", "b=1 selectors 1 with []", foreign)
	w.update(w.leader, b, func() { b.Spec.Members[0].ClusterID = "south" })
	w.networkImportsAre("b has no member here", "a=1 selectors 1 with [west]", foreign)

	before := &tombolov1alpha1.TenantNetworkImport{}
	if err := w.member.Get(t.Context(), client.ObjectKey{Name: "a"}, before); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	w.stop()
	w.startMember()
	w.clusterSetIs("False False False", "")
	w.eventually("the member rests", w.atRest)
	after := &tombolov1alpha1.TenantNetworkImport{}
	if err := w.member.Get(t.Context(), client.ObjectKey{Name: "a"}, after); err != nil ||
		after.ResourceVersion != before.ResourceVersion {
		t.Fatalf("the import of a was written while the leader was away: %v", err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.clusterSetIs("True True True", "")
	w.delete(w.leader, a)
	w.create(w.leader, tenantNetwork("d", 0, "east"))
	w.networkImportsAre("deleted, and another one made", "d=1 selectors 1 with []", foreign)
	w.delete(w.member, clusterSet(""))
	w.networkImportsAre("the ClusterSet is left", foreign)
}

// TestVirtualNetworksWithRealAPIServers exports the VirtualNetworks of an isolated Namespace, with the rights of the
// member's role, and imports the network of one.
func TestVirtualNetworksWithRealAPIServers(t *testing.T) {
	w, _ := newParallelWorld(t)
	token := w.token()
	set := clusterSet(w.leaderConfig.Host)
	set.Annotations = map[string]string{multicluster.AnnotationCentral: "true"}
	shop := &corev1.Namespace{ObjectMeta: meta("", "shop")}
	shop.Labels = map[string]string{"core.juniper.net/isolated-namespace": "true"}
	network := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "core.contrail.juniper.net/v4",
		"kind": "VirtualNetwork", "metadata": map[string]any{"namespace": "shop", "name": "blue",
			"labels": map[string]any{"net": "blue"}},
		"spec": map[string]any{"v4SubnetReference": map[string]any{"name": "blue"}}}}
	w.create(w.member, set, &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"),
		Data: map[string][]byte{"ca.crt": w.leaderConfig.CAData, "token": token}}, shop, network)
	w.startMember()
	exported := func(step, want string) {
		t.Helper()
		w.eventually(step, func(ctx context.Context) error {
			re := export("east" + multicluster.NamespacesSuffix)
			if err := w.leader.Get(ctx, client.ObjectKeyFromObject(re), re); err != nil {
				return err
			}
			list, err := exportcheck.ReadNamespaces(re.Spec.Raw.Data)
			have := ""
			for _, n := range list.Namespaces {
				for _, v := range n.VirtualNetworks {
					have += fmt.Sprintf("%s/%s %v %v", n.Name, v.Name, v.UID == network.GetUID(), v.CIDRs)
				}
			}
			if err != nil || have != want {
				return fmt.Errorf("have %q, want %q: %w", have, want, err)
			}
			return nil
		})
	}
	exported("a VirtualNetwork", "shop/blue true []")
	w.create(w.member, leaseOf("lease", "shop", "blue", "10.50.0.0/24", false))
	exported("its range", "shop/blue true [10.50.0.0/24]")

	n := tenantNetwork("km-shop.blue", 0)
	w.create(w.leader, n)
	n.Status = tombolov1alpha1.TenantNetworkStatus{Number: 7, State: tombolov1alpha1.StateSuccess,
		Namespace: &tombolov1alpha1.NamespaceOfCluster{ClusterID: "east",
			NamespaceReference: tombolov1alpha1.NamespaceReference{Name: "shop", UID: shop.UID}},
		VirtualNetwork: &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: network.GetUID()},
		CIDRs:          []string{"10.50.0.0/24"},
		Joined: []tombolov1alpha1.JoinedNetwork{{Name: "red", Number: 8, ClusterIDs: []string{"west"},
			CIDRs: []string{"10.60.0.0/24"}}}}
	if err := w.leader.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.eventually("its network", func(ctx context.Context) error {
		have := &tombolov1alpha1.TenantNetworkImport{}
		if err := w.member.Get(ctx, client.ObjectKey{Name: n.Name}, have); err != nil {
			return err
		}
		want := tombolov1alpha1.TenantNetworkImportSpec{Number: 7, Namespace: &n.Status.Namespace.NamespaceReference,
			VirtualNetwork: n.Status.VirtualNetwork, Joined: n.Status.Joined}
		if !reflect.DeepEqual(have.Spec, want) {
			return fmt.Errorf("have %+v, want %+v", have.Spec, want)
		}
		return nil
	})
	w.delete(w.member, network)
	exported("the VirtualNetwork is gone", "")
	w.eventually("the member rests", w.atRest)
}

// TestLeaderWithoutNetworks joins a leader whose Role for members does not allow the kind, like Antrea's. The member
// does its other work, and imports networks once the Role allows them.
func TestLeaderWithoutNetworks(t *testing.T) {
	w, _ := newParallelWorld(t)
	token := w.token()
	role := memberRole()
	w.update(w.leader, role, func() {
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "tenantnetworks")
		})
	})
	n := tenantNetwork("a", 0, "east")
	w.create(w.leader, importOf("default", "db"), endpointsOf("default", "db", "10.98.0.7"),
		clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101"), n)
	n.Status = tombolov1alpha1.TenantNetworkStatus{Number: 7, State: tombolov1alpha1.StateSuccess}
	if err := w.leader.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.create(w.member, clusterSet(w.leaderConfig.Host), &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"),
		Data: map[string][]byte{"ca.crt": w.leaderConfig.CAData, "token": token}})
	w.startMember()
	w.clusterSetIs("True True True", "")
	w.importIs("db", "10.98.0.7")
	w.create(w.member, web("web")...)
	w.eventually("exports", func(ctx context.Context) error {
		return w.leader.Get(ctx, client.ObjectKeyFromObject(export("east-default-web-service")), &mcv1alpha1.ResourceExport{})
	})
	w.networkImportsAre("the Role does not allow them")
	w.update(w.leader, role, func() { role.Rules = memberRole().Rules })
	w.networkImportsAre("the Role allows them", "a=1 selectors 1 with []")
}
