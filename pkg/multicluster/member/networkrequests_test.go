package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// requestOf returns a TenantNetwork of the Common Area that requests a VirtualNetwork in a Namespace of a cluster.
func requestOf(by, cluster, namespace, name string) *tombolov1alpha1.TenantNetwork {
	n := tenantNetwork(by, 0)
	n.Status.Request = &tombolov1alpha1.NetworkRequest{Namespace: tombolov1alpha1.NamespaceOfCluster{ClusterID: cluster,
		NamespaceReference: tombolov1alpha1.NamespaceReference{Name: namespace, UID: types.UID("uid-" + namespace)}},
		Name: name}
	return n
}

func requestedSubnet(name, cidr string) *tombolov1alpha1.RequestedSubnet {
	return &tombolov1alpha1.RequestedSubnet{Name: name, CIDR: cidr}
}

// blueRequest requests VirtualNetwork a/blue with Subnets s4 and s6.
func blueRequest() *tombolov1alpha1.TenantNetwork {
	n := requestOf("km-a.blue", "east", "a", "blue")
	n.Status.Request.V4Subnet, n.Status.Request.V6Subnet = requestedSubnet("s4", "10.50.0.0/24"),
		requestedSubnet("s6", "fd50::/64")
	n.Status.Request.V4Subnet.DefaultGateway = "10.50.0.9"
	n.Status.Request.V4Subnet.Ranges = []tombolov1alpha1.AddressRange{{From: "10.50.0.10", To: "10.50.0.20"},
		{From: "10.50.0.30", To: "10.50.0.40"}}
	return n
}

// copyOfNamespace returns the TenantNetwork of a Namespace with a copy.
func copyOfNamespace(namespace string) *tombolov1alpha1.TenantNetwork {
	n := tenantNetwork("km-"+namespace, 7)
	n.Status.Namespace = &tombolov1alpha1.NamespaceOfCluster{ClusterID: "east",
		NamespaceReference: tombolov1alpha1.NamespaceReference{Name: namespace, UID: types.UID("uid-" + namespace)}}
	return n
}

func ownLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": multicluster.ControllerName}
}

// ownNetwork returns a VirtualNetwork that the controller made, with the names of its Subnets.
func ownNetwork(namespace, name, v4, v6 string) *contrailv4.VirtualNetwork {
	n := &contrailv4.VirtualNetwork{ObjectMeta: meta(namespace, name)}
	n.Labels = ownLabels()
	if v4 != "" {
		n.Spec.V4SubnetReference = &contrailv4.ResourceReference{Kind: "Subnet", Name: v4}
	}
	if v6 != "" {
		n.Spec.V6SubnetReference = &contrailv4.ResourceReference{Kind: "Subnet", Name: v6}
	}
	return n
}

// ownSubnet returns a Subnet that the controller made.
func ownSubnet(namespace, name, cidr string) *contrailv4.Subnet {
	s := &contrailv4.Subnet{ObjectMeta: meta(namespace, name), Spec: contrailv4.SubnetSpec{CIDR: cidr}}
	s.Labels = ownLabels()
	return s
}

// requestedText returns a VirtualNetwork or Subnet, such as "a/blue s4 s6" or "a/s4 10.50.0.0/24".
func requestedText(o client.Object) string {
	words := []string{o.GetNamespace() + "/" + o.GetName()}
	switch o := o.(type) {
	case *contrailv4.VirtualNetwork:
		for _, to := range []*contrailv4.ResourceReference{o.Spec.V4SubnetReference, o.Spec.V6SubnetReference} {
			if to != nil {
				words = append(words, strings.TrimPrefix(to.Kind, "Subnet")+to.Name)
			}
		}
		if o.Spec.PodNetwork {
			words = append(words, "podNetwork")
		}
	case *contrailv4.Subnet:
		words = append(words, o.Spec.CIDR)
		if o.Spec.DefaultGateway != "" {
			words = append(words, o.Spec.DefaultGateway)
		}
		for _, group := range o.Spec.Ranges {
			words = append(words, fmt.Sprint(group.IPRanges))
		}
		words = append(words, o.Spec.DNSNameservers...)
	}
	if o.GetLabels()["app.kubernetes.io/managed-by"] != multicluster.ControllerName {
		words = append(words, "of a user")
	}
	return strings.Join(words, " ")
}

// carriedOut returns a view after all writes of VirtualNetworks and Subnets, and these writes. It also returns the
// problems of requests.
func carriedOut(t *testing.T, v View) (_ View, wrote, ps []string) {
	t.Helper()
	for range 10 {
		d, all := Plan(v)
		ps = nil
		for _, p := range all {
			if text := p.Reason.String(); text == "NameTaken" || text == "RequestRefused" {
				ps = append(ps, text+" "+p.Message)
				expect(t, "object of the problem", p.Object.String(), "ClusterSet kube-system/set")
			}
		}
		rests := true
		for _, w := range d.Change.Local {
			if w.Kind == "VirtualNetwork" || w.Kind == "Subnet" {
				wrote = append(wrote, fmt.Sprintf("%s %s %s", w.Verb, w.Kind, requestedText(w.Object)))
				v, rests = apply(v, w), false
			}
		}
		if rests {
			return v, wrote, ps
		}
	}
	t.Fatalf("it does not rest: %q", wrote)
	return v, nil, nil
}

// Texts of the writes of blueRequest.
const (
	createS4   = "create Subnet a/s4 10.50.0.0/24 10.50.0.9 [{10.50.0.10 10.50.0.20} {10.50.0.30 10.50.0.40}]"
	createS6   = "create Subnet a/s6 fd50::/64"
	createBlue = "create VirtualNetwork a/blue s4 s6"
)

// TestNetworkRequests carries out requests of the central cluster in cluster east.
func TestNetworkRequests(t *testing.T) {
	users := func(o metav1.Object) { o.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"}) }
	request := func(v *View) *tombolov1alpha1.NetworkRequest { return v.Leader.TenantNetworks[0].Status.Request }
	agree := func(v *View, value string) {
		v.ClusterSets = []*mcv1alpha2.ClusterSet{v.ClusterSets[0].DeepCopy()}
		v.ClusterSets[0].Annotations = map[string]string{multicluster.AnnotationCentral: value}
	}
	const refused = `VirtualNetwork "blue" of Namespace a, which TenantNetwork "km-a.blue" of the leader requests, is ` +
		`not created or changed: `
	const users4 = `NameTaken ` + refused + `Subnet a/s4 is there, and this controller did not create it: delete it, or ` +
		`rename the requested object in the central cluster`
	const usersBlue = `NameTaken ` + refused + `VirtualNetwork a/blue is there, and this controller did not create it: ` +
		`delete it, or rename the requested object in the central cluster`
	for _, row := range []struct {
		name     string
		made     bool // the request was carried out before the change
		change   func(*View)
		want     []string
		problems []string
	}{
		{name: "created", change: func(*View) {}, want: []string{createS4, createS6, createBlue}},
		{name: "there already", made: true, change: func(*View) {}},
		{name: "with one Subnet", change: func(v *View) { request(v).V4Subnet = nil },
			want: []string{createS6, "create VirtualNetwork a/blue s6"}},
		{name: "a tenant changes the objects", made: true, change: func(v *View) {
			v.VirtualNetworks[0].Spec.PodNetwork, v.VirtualNetworks[0].Spec.VLANID = true, 7
			v.Subnets[0].Spec.DNSNameservers, v.Subnets[0].Spec.Ranges = []string{"10.0.0.1"}, nil
		}, want: []string{"update Subnet" + strings.TrimPrefix(createS4, "create Subnet"),
			"update VirtualNetwork a/blue s4 s6"}},
		{name: "a tenant deletes the objects", made: true,
			change: func(v *View) { v.VirtualNetworks, v.Subnets = nil, v.Subnets[1:] }, want: []string{createS4, createBlue}},
		{name: "another pool", made: true, change: func(v *View) { request(v).V4Subnet.Ranges = nil },
			want: []string{"update Subnet a/s4 10.50.0.0/24 10.50.0.9"}},
		{name: "another CIDR", made: true, change: func(v *View) { request(v).V6Subnet.CIDR = "fd51::/64" },
			want: []string{"delete Subnet a/s6 fd50::/64", "create Subnet a/s6 fd51::/64"}},
		{name: "another gateway", made: true, change: func(v *View) { request(v).V6Subnet.DefaultGateway = "fd50::9" },
			want: []string{"delete Subnet a/s6 fd50::/64", "create Subnet a/s6 fd50::/64 fd50::9"}},
		{name: "another Subnet", made: true, change: func(v *View) { request(v).V6Subnet.Name = "s7" },
			want: []string{"delete Subnet a/s6 fd50::/64", "create Subnet a/s7 fd50::/64", "delete VirtualNetwork a/blue s4 s6",
				"create VirtualNetwork a/blue s4 s7"}},
		{name: "a Subnet less", made: true, change: func(v *View) { request(v).V6Subnet = nil },
			want: []string{"delete Subnet a/s6 fd50::/64", "update VirtualNetwork a/blue s4"}},
		{name: "the leader has no copy of the Namespace any more", made: true, change: func(v *View) {
			v.Leader.TenantNetworks = nil
		}},
		{name: "the leader has a copy of a later Namespace", made: true, change: func(v *View) {
			v.Leader.TenantNetworks = v.Leader.TenantNetworks[1:]
			v.Leader.TenantNetworks[0].Status.Namespace.UID = "later"
		}},
		{name: "objects of another controller", change: func(v *View) {
			n, s := ownNetwork("a", "nad", "nad", ""), ownSubnet("a", "nad", "10.60.0.0/24")
			for _, o := range []client.Object{n, s} {
				o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "NetworkAttachmentDefinition", Name: "nad",
					Controller: new(true)}})
			}
			v.VirtualNetworks, v.Subnets = append(v.VirtualNetworks, n), append(v.Subnets, s)
		}, want: []string{createS4, createS6, createBlue}},
		{name: "the request is gone", made: true, change: func(v *View) {
			v.Leader.TenantNetworks = v.Leader.TenantNetworks[1:]
			other, s := subnetNetwork("a", "other", true, nil), ownSubnet("a", "other", "10.60.0.0/24")
			users(s)
			v.VirtualNetworks, v.Subnets = append(v.VirtualNetworks, other), append(v.Subnets, s)
		}, want: []string{"delete Subnet" + strings.TrimPrefix(createS4, "create Subnet"), "delete Subnet a/s6 fd50::/64",
			"delete VirtualNetwork a/blue s4 s6"}},
		{name: "the TenantNetwork is being deleted", made: true, change: func(v *View) {
			v.Leader.TenantNetworks[0].DeletionTimestamp = &metav1.Time{Time: now}
			v.Subnets = v.Subnets[1:]
		}, want: []string{"delete Subnet a/s6 fd50::/64", "delete VirtualNetwork a/blue s4 s6"}},
		{name: "a user has the VirtualNetwork", change: func(v *View) {
			v.VirtualNetworks = []*contrailv4.VirtualNetwork{subnetNetwork("a", "blue", true, nil)}
		}, problems: []string{usersBlue}},
		{name: "a user has a Subnet", change: func(v *View) {
			v.Subnets = []*contrailv4.Subnet{ownSubnet("a", "s4", "10.60.0.0/24")}
			users(v.Subnets[0])
		}, problems: []string{users4}},
		{name: "users have these names in another Namespace", change: func(v *View) {
			v.VirtualNetworks = []*contrailv4.VirtualNetwork{subnetNetwork("b", "blue", true, nil)}
			v.Subnets = []*contrailv4.Subnet{ownSubnet("b", "s4", "10.60.0.0/24")}
			users(v.Subnets[0])
		}, want: []string{createS4, createS6, createBlue}},
		{name: "a user takes a Subnet over", made: true, change: func(v *View) {
			users(v.Subnets[0])
			request(v).V6Subnet.CIDR = "fd51::/64"
		}, problems: []string{users4}},
		{name: "a user takes the VirtualNetwork over", made: true, change: func(v *View) { users(v.VirtualNetworks[0]) },
			problems: []string{usersBlue}},
		{name: "not isolated", change: func(v *View) { v.Namespaces[0].Labels = nil }},
		{name: "no longer isolated", made: true, change: func(v *View) {
			v.Namespaces[0].Labels, v.Leader.TenantNetworks = nil, v.Leader.TenantNetworks[1:]
		}},
		{name: "a copy", change: func(v *View) { v.Namespaces[0].Labels["tombolo.io/copy"] = "west" }},
		{name: "no such Namespace", change: func(v *View) { v.Namespaces = nil }},
		{name: "another Namespace of the name", change: func(v *View) { v.Namespaces[0].UID = "later" }},
		{name: "of another cluster", change: func(v *View) { request(v).Namespace.ClusterID = "west" }},
		{name: "of another Namespace of the leader", change: func(v *View) {
			v.Leader.TenantNetworks[0].Namespace = "elsewhere"
		}},
		{name: "without consent", change: func(v *View) { agree(v, "") }},
		{name: "consent is taken back", made: true, change: func(v *View) {
			agree(v, "false")
			v.Leader.TenantNetworks, v.VirtualNetworks[0].Spec.PodNetwork = nil, true
		}},
		{name: "the leader's objects are not read yet", made: true, change: func(v *View) {
			v.Leader.TenantNetworks, v.Leader.Synced = nil, false
		}},
		{name: "the ClusterSet is left", made: true, change: func(v *View) {
			v.Leader.TenantNetworks, v.ClusterSets = nil, nil
		}},
		{name: "the leader is away", change: func(v *View) { v.Leader.Announcement.Error = "refused" },
			want: []string{createS4, createS6, createBlue}},
		{name: "another request has the name", made: true, change: func(v *View) {
			n := requestOf("km-a.red", "east", "a", "blue")
			n.Status.Request.V4Subnet = requestedSubnet("s9", "10.59.0.0/24")
			v.Leader.TenantNetworks = append(v.Leader.TenantNetworks, n)
		}, problems: []string{strings.Replace("NameTaken "+refused, "km-a.blue", "km-a.red", 1) +
			`TenantNetwork "km-a.blue" requests VirtualNetwork blue: rename one of the two in the central cluster`}},
		{name: "a Subnet of two requests", made: true, change: func(v *View) {
			n := blueRequest()
			n.Name, n.Status.Request.Name, n.Status.Request.V6Subnet = "km-a.red", "red", nil
			v.Leader.TenantNetworks = append(v.Leader.TenantNetworks, n)
		}, want: []string{"create VirtualNetwork a/red s4"}},
		{name: "a Subnet of two requests, which differs", made: true, change: func(v *View) {
			n := blueRequest()
			n.Name, n.Status.Request.Name, n.Status.Request.V4Subnet.CIDR = "km-a.red", "red", "10.51.0.0/24"
			v.Leader.TenantNetworks = append(v.Leader.TenantNetworks, n)
		}, problems: []string{strings.NewReplacer("km-a.blue", "km-a.red", `"blue"`, `"red"`).Replace("NameTaken "+refused) +
			`TenantNetwork "km-a.blue" requests Subnet s4 with other content: rename one of the two in the central cluster`}},
		{name: "the request is not valid any more", made: true, change: func(v *View) { request(v).V4Subnet.CIDR = "x" },
			problems: []string{"RequestRefused " + refused +
				`v4Subnet.cidr: "x" is not a range of IPv4 addresses: correct it in the central cluster`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := isolatedView("a")
			v.Leader.TenantNetworks = []*tombolov1alpha1.TenantNetwork{blueRequest(), copyOfNamespace("a")}
			if row.made {
				v, _, _ = carriedOut(t, v)
				expect(t, "made", len(v.VirtualNetworks)+len(v.Subnets), 3)
			}
			row.change(&v)
			after, wrote, ps := carriedOut(t, v)
			expect(t, "writes", wrote, row.want)
			expect(t, "problems", ps, row.problems)
			for _, n := range after.VirtualNetworks {
				for _, before := range v.VirtualNetworks {
					if _, own := n.Labels["app.kubernetes.io/managed-by"]; !own && before.Name == n.Name {
						expect(t, "a user's", n, before)
					}
				}
			}
		})
	}
}

// TestHostileRequests has requests that no leader of Tombolo writes. Nothing is created for them.
func TestHostileRequests(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*tombolov1alpha1.NetworkRequest)
		want   string // in the problem
	}{
		{"no name", func(q *tombolov1alpha1.NetworkRequest) { q.Name = "" }, `name: "": `},
		{"a long name", func(q *tombolov1alpha1.NetworkRequest) { q.Name = strings.Repeat("x", 300) }, `xxx"...: must be no`},
		{"a path", func(q *tombolov1alpha1.NetworkRequest) { q.Name = "../b" }, `name: "../b": `},
		{"the network of Pods", func(q *tombolov1alpha1.NetworkRequest) { q.Name = "default-podnetwork" },
			"name: default-podnetwork is the network of the Namespace's Pods"},
		{"no Subnet", func(q *tombolov1alpha1.NetworkRequest) { q.V4Subnet, q.V6Subnet = nil, nil }, "it has no Subnet"},
		{"a Subnet twice", func(q *tombolov1alpha1.NetworkRequest) { q.V6Subnet.Name = "s4" },
			"v6Subnet.name: it is the same"},
		{"a Subnet without a name", func(q *tombolov1alpha1.NetworkRequest) { q.V4Subnet.Name = "" },
			`v4Subnet.name: "": `},
		{"a Subnet's name", func(q *tombolov1alpha1.NetworkRequest) { q.V6Subnet.Name = "a\x00b" },
			`v6Subnet.name: "a\x00b": `},
		{"no range", func(q *tombolov1alpha1.NetworkRequest) { q.V4Subnet.CIDR = "" }, `v4Subnet.cidr: "" is not`},
		{"an address", func(q *tombolov1alpha1.NetworkRequest) { q.V4Subnet.CIDR = "10.50.0.0" },
			`v4Subnet.cidr: "10.50.0.0"`},
		{"the other version", func(q *tombolov1alpha1.NetworkRequest) { q.V6Subnet.CIDR = "10.50.0.0/24" },
			`v6Subnet.cidr: "10.50.0.0/24" is not a range of IPv6 addresses`},
		{"a gateway", func(q *tombolov1alpha1.NetworkRequest) { q.V4Subnet.DefaultGateway = "fd50::1" },
			`v4Subnet.defaultGateway: "fd50::1" is not an IPv4 address`},
		{"a gateway with a zone", func(q *tombolov1alpha1.NetworkRequest) { q.V6Subnet.DefaultGateway = "fe80::1%eth0" },
			`v6Subnet.defaultGateway: "fe80::1%eth0" is not an IPv6 address`},
		{"a pool", func(q *tombolov1alpha1.NetworkRequest) { q.V4Subnet.Ranges[1].To = "10.50.0" },
			`v4Subnet.ranges[1]: from "10.50.0.30" to "10.50.0" are not IPv4 addresses`},
		{"everything", func(q *tombolov1alpha1.NetworkRequest) {
			q.Name, q.V4Subnet.Name, q.V4Subnet.CIDR, q.V6Subnet.CIDR = "/", "/", "/", "/"
		}, `name: "/": `},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := blueRequest()
			row.change(n.Status.Request)
			v := isolatedView("a")
			v.Leader.TenantNetworks = []*tombolov1alpha1.TenantNetwork{n}
			_, wrote, ps := carriedOut(t, v)
			expect(t, "writes", wrote, []string(nil))
			if len(ps) != 1 || !strings.HasPrefix(ps[0], "RequestRefused ") || !strings.Contains(ps[0], row.want) {
				t.Errorf("the problems are %q, want one with %q", ps, row.want)
			}
		})
	}
}

// TestManyRequests has more requests than a Namespace may have VirtualNetworks. Existing VirtualNetworks stay, also if
// their requests become invalid, and the objects and problems of a Namespace stay bounded.
func TestManyRequests(t *testing.T) {
	v := isolatedView("a")
	add := func(prefix string) {
		for i := range 25 {
			n := requestOf(fmt.Sprintf("%s%02d", prefix, i), "east", "a", fmt.Sprintf("%s%02d", prefix, i))
			n.Status.Request.V4Subnet = requestedSubnet(n.Name, fmt.Sprintf("10.50.%d.0/24", i))
			v.Leader.TenantNetworks = append(v.Leader.TenantNetworks, n)
		}
	}
	add("m")
	v, wrote, ps := carriedOut(t, v)
	expect(t, "writes", len(wrote), 40)
	expect(t, "problems", ps, []string{"RequestRefused 5 VirtualNetworks of the central cluster are not created in " +
		"Namespace a: it gets at most 20: delete some of them in the central cluster"})
	add("a") // their names come first
	v, wrote, ps = carriedOut(t, v)
	expect(t, "writes for further requests", wrote, []string(nil))
	expect(t, "problems of further requests", len(ps), 1)
	for _, n := range v.Leader.TenantNetworks[:25] {
		n.Status.Request.V4Subnet.CIDR = "x"
	}
	v, wrote, ps = carriedOut(t, v)
	expect(t, "writes when these that are made are invalid", wrote, []string(nil))
	expect(t, "problems when these that are made are invalid", len(ps), 21)
	v.Leader.TenantNetworks = append(v.Leader.TenantNetworks[25:], copyOfNamespace("a"))
	v, wrote, _ = carriedOut(t, v)
	expect(t, "writes when their requests are gone", len(wrote), 80)
	expect(t, "VirtualNetworks", len(v.VirtualNetworks), 20)
	expect(t, "Subnets", len(v.Subnets), 20)
}

// TestImportsOfRequests has the import of the network of a requested VirtualNetwork. While the VirtualNetwork is not
// known to the leader, its Namespace is not in the network.
func TestImportsOfRequests(t *testing.T) {
	n := blueRequest()
	n.Status.Number, n.Status.Namespace = 9, &n.Status.Request.Namespace
	n.Spec.Members = tenantNetwork("", 0, "east").Spec.Members
	v := isolatedView("a")
	v.Leader.TenantNetworks = []*tombolov1alpha1.TenantNetwork{n}
	d, _ := Plan(v)
	expect(t, "imports without a UID", len(d.NetworkImports), 0)
	n.Status.VirtualNetwork = &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: "uid-blue"}
	d, _ = Plan(v)
	if len(d.NetworkImports) != 1 {
		t.Fatalf("the imports are %v", d.NetworkImports)
	}
	expect(t, "import", d.NetworkImports[0].Spec, tombolov1alpha1.TenantNetworkImportSpec{Number: 9,
		Namespace: &n.Status.Namespace.NamespaceReference, VirtualNetwork: n.Status.VirtualNetwork})
}

// TestNetworkRequestsWithRealAPIServers carries out a request with the rights of the member's role, and within the
// admission policies of its manifest.
func TestNetworkRequestsWithRealAPIServers(t *testing.T) {
	w, _ := newParallelWorld(t)
	manifest, err := os.ReadFile("../../../deploy/multicluster/antrea-multicluster-member.yml")
	if err != nil {
		t.Fatal(err)
	}
	token := w.token()
	set := clusterSet(w.leaderConfig.Host)
	set.Annotations = map[string]string{multicluster.AnnotationCentral: "true"}
	shop := &corev1.Namespace{ObjectMeta: meta("", "shop")}
	shop.Labels = map[string]string{"core.juniper.net/isolated-namespace": "true"}
	open := &corev1.Namespace{ObjectMeta: meta("", "open")}
	users := subnetNetwork("shop", "users", true, nil)
	users.UID = ""
	w.create(w.member, set, &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"),
		Data: map[string][]byte{"ca.crt": w.leaderConfig.CAData, "token": token}}, shop, open, users)
	own, err := client.New(apiserver.Access(t, w.memberConfig, manifest), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	w.admission(manifest)
	refused := func(what, want string, write func() error) {
		t.Helper()
		w.eventually(what+" is refused", func(context.Context) error {
			if err := write(); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("want %q: %w", want, err)
			}
			return nil
		})
	}
	createdByController := func(o client.Object) func() error {
		return func() error { // until the API server knows the policy, the object is created
			err := own.Create(t.Context(), o.DeepCopyObject().(client.Object))
			if err == nil {
				w.delete(w.member, o)
			}
			return err
		}
	}
	unlabelled := ownSubnet("shop", "unlabelled", "10.50.9.0/24")
	unlabelled.Labels = nil
	refused("a Subnet without the label",
		"subnets shop/unlabelled: the multi-cluster controller may only make its own", createdByController(unlabelled))
	refused("a VirtualNetwork in a shared Namespace",
		"virtualnetworks open/blue: the multi-cluster controller may only create it in an isolated Namespace",
		createdByController(ownNetwork("open", "blue", "s4", "")))
	const notIts = "virtualnetworks shop/users: the multi-cluster controller may only change and delete its own"
	refused("the deletion of a user's", notIts, func() error {
		return own.Delete(t.Context(), users.DeepCopy(), client.DryRunAll)
	})
	refused("the label on a user's", notIts, func() error {
		return own.Patch(t.Context(), users.DeepCopy(), client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"antrea-mc-controller"}}}`)))
	})
	w.startMember()

	// are waits for these VirtualNetworks and Subnets.
	are := func(step string, want ...string) {
		t.Helper()
		w.eventually(step, func(ctx context.Context) error {
			networks, subnets := &contrailv4.VirtualNetworkList{}, &contrailv4.SubnetList{}
			if err := errors.Join(w.member.List(ctx, networks), w.member.List(ctx, subnets)); err != nil {
				return err
			}
			var have []string
			for _, n := range networks.Items {
				have = append(have, requestedText(&n))
			}
			for _, s := range subnets.Items {
				have = append(have, requestedText(&s))
			}
			if !slices.Equal(have, want) {
				return fmt.Errorf("have %q, want %q", have, want)
			}
			return nil
		})
	}
	n, copied := tenantNetwork("km-shop.blue", 0), copyOfNamespace("shop")
	ofCopy := copied.Status
	ofCopy.State, ofCopy.Namespace.UID = tombolov1alpha1.StateSuccess, shop.UID
	w.create(w.leader, n, copied)
	w.eventually("the Namespace has a copy", func(ctx context.Context) error {
		if err := w.leader.Get(ctx, client.ObjectKeyFromObject(copied), copied); err != nil {
			return err
		}
		copied.Status = ofCopy
		return w.leader.Status().Update(ctx, copied)
	})
	status := func(step string, change func(*tombolov1alpha1.TenantNetworkStatus)) {
		t.Helper()
		w.eventually(step, func(ctx context.Context) error {
			if err := w.leader.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
				return err
			}
			change(&n.Status)
			return w.leader.Status().Update(ctx, n)
		})
	}
	status("a request", func(s *tombolov1alpha1.TenantNetworkStatus) {
		s.State, s.Request = tombolov1alpha1.StateSuccess, blueRequest().Status.Request
		s.Request.Namespace.Name, s.Request.Namespace.UID = "shop", shop.UID
	})
	const s4 = "shop/s4 10.50.0.0/24 10.50.0.9 [{10.50.0.10 10.50.0.20} {10.50.0.30 10.50.0.40}]"
	const theirs = "shop/users users of a user"
	are("carried out", "shop/blue s4 s6", theirs, s4, "shop/s6 fd50::/64")
	w.eventually("the list for the central cluster", func(ctx context.Context) error {
		re := export("east" + multicluster.NamespacesSuffix)
		if err := w.leader.Get(ctx, client.ObjectKeyFromObject(re), re); err != nil {
			return err
		}
		list, err := exportcheck.ReadNamespaces(re.Spec.Raw.Data)
		have := ""
		for _, n := range list.Namespaces {
			for _, v := range n.VirtualNetworks {
				have += fmt.Sprintf("%s/%s %v ", n.Name, v.Name, v.Requested)
			}
		}
		if err != nil || have != "shop/blue true shop/users false " {
			return fmt.Errorf("have %q: %w", have, err)
		}
		return nil
	})

	blue, subnet := ownNetwork("shop", "blue", "", ""), ownSubnet("shop", "s6", "")
	w.update(w.member, blue, func() { blue.Spec.PodNetwork, blue.Labels["net"] = true, "blue" })
	w.update(w.member, subnet, func() { subnet.Spec.DNSNameservers = []string{"10.0.0.1"} })
	are("a tenant's changes are mended", "shop/blue s4 s6", theirs, s4, "shop/s6 fd50::/64")
	status("another range", func(s *tombolov1alpha1.TenantNetworkStatus) { s.Request.V6Subnet.CIDR = "fd51::/64" })
	are("the Subnet is made again", "shop/blue s4 s6", theirs, s4, "shop/s6 fd51::/64")
	before := blue.UID
	if err := w.member.Get(t.Context(), client.ObjectKeyFromObject(blue), blue); err != nil || blue.UID != before ||
		blue.Labels["net"] != "blue" {
		t.Errorf("the VirtualNetwork is another one, or lost a tenant's label: %v, %v", blue.ObjectMeta, err)
	}
	status("a user's name", func(s *tombolov1alpha1.TenantNetworkStatus) { s.Request.Name = "users" })
	are("another name, which a user has", theirs, s4, "shop/s6 fd51::/64")
	w.eventWith("ClusterSet", "kube-system", "set", "NameTaken", `VirtualNetwork "users" of Namespace shop, which `+
		`TenantNetwork "km-shop.blue" of the leader requests, is not created or changed: VirtualNetwork shop/users is `+
		`there, and this controller did not create it: delete it, or rename the requested object in the central cluster`)
	status("the first name", func(s *tombolov1alpha1.TenantNetworkStatus) { s.Request.Name = "blue" })
	are("created again", "shop/blue s4 s6", theirs, s4, "shop/s6 fd51::/64")

	w.update(w.member, set, func() { delete(set.Annotations, multicluster.AnnotationCentral) })
	w.gone(w.leader, export("east"+multicluster.NamespacesSuffix))
	w.delete(w.leader, n)
	w.eventually("the member rests", w.atRest)
	are("this cluster does not agree any more", "shop/blue s4 s6", theirs, s4, "shop/s6 fd51::/64")
	w.update(w.member, set, func() {
		set.Annotations = map[string]string{multicluster.AnnotationCentral: "true"}
	})
	are("it agrees again, and the request is gone", theirs)
	w.eventually("the member rests", w.atRest)
}
