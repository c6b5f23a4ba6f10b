package tenants

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Kinds of the objects that requests ask for.
const (
	kindNetwork = "VirtualNetwork"
	kindSubnet  = "Subnet"
)

// Requested are the objects that the central cluster requests in an isolated Namespace, by name. KeptNetworks and
// KeptSubnets are the names in requests that have a problem. Existing objects with these names stay as they are.
type Requested struct {
	// Copied is set if the Namespace has a copy. Without a copy there is no sign that a request was withdrawn, so
	// existing objects stay.
	Copied                    bool
	Networks                  map[string]*contrailv4.VirtualNetwork
	Subnets                   map[string]*contrailv4.Subnet
	KeptNetworks, KeptSubnets map[string]bool
}

// ownMeta returns the metadata facts of an object, with the label of its controller. An object with a controlling owner
// is another controller's: labels of a NetworkAttachmentDefinition are copied to it.
func ownMeta(o metav1.Object) metav1.ObjectMeta {
	m := writes.MetaFacts(o)
	if value, ok := o.GetLabels()[labelManagedBy]; ok && metav1.GetControllerOf(o) == nil {
		m.Labels = map[string]string{labelManagedBy: value}
	}
	return m
}

// isOwn reports whether this controller made an object.
func isOwn[T metav1.Object](o T) bool {
	return o.GetLabels()[labelManagedBy] == multicluster.ControllerName
}

// networkObjectFacts leaves out the spec of a user's VirtualNetwork: only its name counts.
func networkObjectFacts(o *contrailv4.VirtualNetwork) *contrailv4.VirtualNetwork {
	n := &contrailv4.VirtualNetwork{ObjectMeta: ownMeta(o)}
	if isOwn(n) {
		n.Spec = o.Spec
	}
	return n
}

// subnetFacts leaves out the spec of a user's Subnet: only its name counts.
func subnetFacts(o *contrailv4.Subnet) *contrailv4.Subnet {
	s := &contrailv4.Subnet{ObjectMeta: ownMeta(o)}
	if isOwn(s) {
		s.Spec = o.Spec
	}
	return s
}

// ownVersion returns the version of an object that this controller may write, else "".
func ownVersion[T metav1.Object](o T) string {
	if m := ownMeta(o); !isOwn(&m) {
		return ""
	}
	return o.GetResourceVersion()
}

// newRequests adds the table of the objects that the central cluster requests. The kinds are optional: without them the
// cluster has no VirtualNetworks.
func (t *Tables) newRequests(k *writes.Kinds) {
	t.networkObjects = writes.NewSource(k, k.Cluster, kindNetwork, "virtual networks of requests", networkObjectFacts,
		ownVersion, watch.IfAllowed())
	t.subnetObjects = writes.NewSource(k, k.Cluster, kindSubnet, "subnets of requests", subnetFacts, ownVersion,
		watch.IfAllowed())
	t.requests = derive.NewIndex(t.networks, "requested namespace",
		func(_ derive.Object, n *tombolov1alpha1.TenantNetwork) []derive.Object {
			if n.Status.Request == nil {
				return nil
			}
			of := n.Status.Request.Namespace
			return []derive.Object{{Namespace: of.ClusterID, Name: of.Name}}
		})
	t.copied = derive.NewIndex(t.networks, "copied namespace",
		func(_ derive.Object, n *tombolov1alpha1.TenantNetwork) []derive.Object {
			if n.Status.Namespace == nil || n.Status.VirtualNetwork != nil {
				return nil
			}
			return []derive.Object{{Namespace: n.Status.Namespace.ClusterID, Name: n.Status.Namespace.Name}}
		})
	t.Requested = derive.NewTable(k.Engine, "requested virtual networks", t.requestedOf, derive.KeysOf(t.namespaces))
	t.wantedNetworks = derive.NewIndex(t.Requested, "virtual networks",
		func(k derive.Object, q *Requested) []derive.Object { return named(k.Name, q.Networks) })
	t.wantedSubnets = derive.NewIndex(t.Requested, "subnets", func(k derive.Object, q *Requested) []derive.Object {
		return named(k.Name, q.Subnets)
	})
}

// named returns the keys of objects of a Namespace.
func named[T any](namespace string, objects map[string]T) (out []derive.Object) {
	for name := range objects {
		out = append(out, derive.Object{Namespace: namespace, Name: name})
	}
	return out
}

// request is what a TenantNetwork requests of a Namespace of this cluster.
type request struct {
	by      string // the TenantNetwork
	name    string
	subnets []*contrailv4.Subnet // IPv4 first
	network *contrailv4.VirtualNetwork
}

// agreed reports whether this cluster carries out requests. If it does not, existing objects stay as they are.
func agreed(m membership.Membership) bool { return m.Joined && m.Central }

// requestedOf decides about the requests of an isolated Namespace. The leader may be hostile, so the numbers of objects
// and of problems are bounded.
func (t *Tables) requestedOf(k derive.Object, r *derive.Reader) (*Requested, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	n, ok := derive.Get(r, t.namespaces, k)
	if !ok || !agreed(m) {
		return nil, nil
	}
	d := &decision{t: t, r: r, namespace: k.Name, set: m.ClusterSet(), networks: map[string]string{},
		subnets: map[string]claim{}, out: &Requested{
			Networks: map[string]*contrailv4.VirtualNetwork{}, Subnets: map[string]*contrailv4.Subnet{},
			KeptNetworks: map[string]bool{}, KeptSubnets: map[string]bool{},
		}}
	for _, row := range derive.List(r, t.requests, derive.Object{Namespace: m.ID, Name: k.Name}) {
		asked := row.Value.Status.Request
		if row.Key.Namespace != m.Common || !row.Value.DeletionTimestamp.IsZero() || asked.Namespace.UID != n.UID {
			continue
		}
		q, fault := requestOf(asked)
		q.by = row.Key.Name
		if fault != "" {
			d.refuse(q, reasonRequestRefused, fault+": correct it in the central cluster")
			continue
		}
		d.claim(q)
	}
	for _, row := range derive.List(r, t.copied, derive.Object{Namespace: m.ID, Name: k.Name}) {
		d.out.Copied = d.out.Copied || row.Key.Namespace == m.Common && row.Value.Status.Namespace.UID == n.UID
	}
	d.keep()
	d.choose()
	return d.out, d.problems
}

// requestOf returns the objects of a request, or its first fault.
func requestOf(asked *tombolov1alpha1.NetworkRequest) (q request, fault string) {
	q = request{name: asked.Name}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: asked.Namespace.Name, Name: name,
			Labels: map[string]string{labelManagedBy: multicluster.ControllerName}}
	}
	q.network = &contrailv4.VirtualNetwork{ObjectMeta: meta(q.name)}
	for i, s := range []*tombolov1alpha1.RequestedSubnet{asked.V4Subnet, asked.V6Subnet} {
		if s == nil {
			continue
		}
		to := &contrailv4.ResourceReference{Kind: kindSubnet, Name: s.Name}
		if i == 0 {
			q.network.Spec.V4SubnetReference = to
		} else {
			q.network.Spec.V6SubnetReference = to
		}
		subnet := &contrailv4.Subnet{ObjectMeta: meta(s.Name),
			Spec: contrailv4.SubnetSpec{CIDR: s.CIDR, DefaultGateway: s.DefaultGateway}}
		if len(s.Ranges) > 0 {
			subnet.Spec.Ranges = []contrailv4.SubnetRange{{}}
			for _, one := range s.Ranges {
				group := &subnet.Spec.Ranges[0]
				group.IPRanges = append(group.IPRanges, contrailv4.IPRange{From: one.From, To: one.To})
			}
		}
		q.subnets = append(q.subnets, subnet)
	}
	switch e := validation.IsDNS1123Subdomain(q.name); {
	case len(e) > 0:
		return q, "name: " + problem.Quoted(q.name) + ": " + e[0]
	case q.name == contrailv4.DefaultPodNetwork:
		return q, "name: " + q.name + " is the network of the Namespace's Pods"
	case len(q.subnets) == 0:
		return q, "it has no Subnet"
	case len(q.subnets) == 2 && q.subnets[0].Name == q.subnets[1].Name:
		return q, "v6Subnet.name: it is the same Subnet as v4Subnet"
	}
	for i, s := range []*tombolov1alpha1.RequestedSubnet{asked.V4Subnet, asked.V6Subnet} {
		if s == nil {
			continue
		}
		if wrong := subnetFault(s, i == 0); wrong != "" {
			return q, []string{"v4Subnet", "v6Subnet"}[i] + "." + wrong
		}
	}
	return q, ""
}

// subnetFault returns the first fault of a requested Subnet for IPv4 or IPv6.
func subnetFault(s *tombolov1alpha1.RequestedSubnet, v4 bool) string {
	if e := validation.IsDNS1123Subdomain(s.Name); len(e) > 0 {
		return "name: " + problem.Quoted(s.Name) + ": " + e[0]
	}
	version := "IPv6"
	if v4 {
		version = "IPv4"
	}
	address := func(text string) bool {
		ip, err := netip.ParseAddr(text)
		return err == nil && ip.Zone() == "" && ip.Is4() == v4
	}
	if p, err := netip.ParsePrefix(s.CIDR); err != nil || p.Addr().Is4() != v4 {
		return "cidr: " + problem.Quoted(s.CIDR) + " is not a range of " + version + " addresses"
	}
	if s.DefaultGateway != "" && !address(s.DefaultGateway) {
		return "defaultGateway: " + problem.Quoted(s.DefaultGateway) + " is not an " + version + " address"
	}
	for i, one := range s.Ranges {
		if !address(one.From) || !address(one.To) {
			return fmt.Sprintf("ranges[%d]: from %s to %s are not %s addresses", i, problem.Quoted(one.From),
				problem.Quoted(one.To), version)
		}
	}
	return ""
}

// decision is the state of one evaluation of requestedOf.
type decision struct {
	t         *Tables
	r         *derive.Reader
	namespace string
	set       problem.Object

	networks map[string]string // the TenantNetwork with the name of a VirtualNetwork
	subnets  map[string]claim
	chosen   []request // without a problem so far
	refused  []request
	problems problem.List
	out      *Requested
}

// claim is a Subnet, with the TenantNetwork that requests it first.
type claim struct {
	by   string
	spec contrailv4.SubnetSpec
}

// refuse notes a request that is not carried out. The first problems of a Namespace are reported.
func (d *decision) refuse(q request, reason reasons.Reason, message string) {
	d.refused = append(d.refused, q)
	if len(d.problems) < tenant.MaxNetworks {
		d.problems.Add(d.set, "", reason, fmt.Sprintf("VirtualNetwork %s of Namespace %s, which TenantNetwork %s of the "+
			"leader requests, is not created or changed: %s", problem.Quoted(q.name), d.namespace, problem.Quoted(q.by),
			message))
	}
}

// claim reserves the names of a request. If an earlier request or a user's object already has one of these names, it
// refuses the request.
func (d *decision) claim(q request) {
	taken, by := "", ""
	if first, ok := d.networks[q.name]; ok {
		taken, by = kindNetwork+" "+q.name, first
	}
	for _, s := range q.subnets {
		first, ok := d.subnets[s.Name]
		if ok && taken == "" && !equality.Semantic.DeepEqual(first.spec, s.Spec) {
			taken, by = kindSubnet+" "+s.Name+" with other content", first.by
		}
	}
	if taken != "" {
		d.refuse(q, reasonNameTaken, fmt.Sprintf("TenantNetwork %s requests %s: rename one of the two in the central "+
			"cluster", problem.Quoted(by), taken))
		return
	}
	d.networks[q.name] = q.by
	for _, s := range q.subnets {
		if _, shared := d.subnets[s.Name]; !shared {
			d.subnets[s.Name] = claim{q.by, s.Spec}
		}
	}
	if users := d.users(q); users != "" {
		d.refuse(q, reasonNameTaken, users+" is there, and this controller did not create it: delete it, or rename the "+
			"requested object in the central cluster")
		return
	}
	d.chosen = append(d.chosen, q)
}

// users returns the first object of a user that has a name of a request, or "".
func (d *decision) users(q request) string {
	key := derive.Object{Namespace: d.namespace, Name: q.name}
	if have, ok := derive.Get(d.r, d.t.networkObjects, key); ok && !isOwn(have) {
		return problem.About(kindNetwork, key.Namespace, key.Name).String()
	}
	for _, s := range q.subnets {
		if have, ok := derive.Get(d.r, d.t.subnetObjects, derive.ObjectOf(s)); ok && !isOwn(have) {
			return problem.About(kindSubnet, s.Namespace, s.Name).String()
		}
	}
	return ""
}

// exists reports whether this controller made a VirtualNetwork.
func (d *decision) exists(name string) bool {
	have, ok := derive.Get(d.r, d.t.networkObjects, derive.Object{Namespace: d.namespace, Name: name})
	return ok && isOwn(have)
}

// keep keeps the existing objects of refused requests as they are. So if a request becomes invalid, the traffic of
// existing Pods does not stop.
func (d *decision) keep() {
	chosen := map[string]bool{}
	for _, q := range d.chosen {
		chosen[q.name] = true
	}
	subnet := func(name string) {
		if have, ok := derive.Get(d.r, d.t.subnetObjects, derive.Object{Namespace: d.namespace, Name: name}); ok &&
			isOwn(have) && len(d.out.KeptSubnets) < 2*tenant.MaxNetworks {
			d.out.KeptSubnets[name] = true
		}
	}
	for _, q := range d.refused {
		have, _ := derive.Get(d.r, d.t.networkObjects, derive.Object{Namespace: d.namespace, Name: q.name})
		if !d.exists(q.name) || chosen[q.name] {
			continue
		}
		d.out.KeptNetworks[q.name] = true
		for _, to := range references(have) {
			subnet(to.Name)
		}
	}
	for _, q := range d.refused {
		for _, s := range q.subnets {
			subnet(s.Name)
		}
	}
}

// choose takes as many requests as the Namespace may have VirtualNetworks. Requests whose VirtualNetwork exists come
// first.
func (d *decision) choose() {
	slices.SortStableFunc(d.chosen, func(a, b request) int {
		switch here, there := d.exists(a.name), d.exists(b.name); {
		case here == there:
			return 0
		case here:
			return -1
		}
		return 1
	})
	room := max(0, tenant.MaxNetworks-len(d.out.KeptNetworks))
	for _, q := range d.chosen[:min(room, len(d.chosen))] {
		d.out.Networks[q.name] = q.network
		for _, s := range q.subnets {
			d.out.Subnets[s.Name] = s
		}
	}
	if left := len(d.chosen) - room; left > 0 {
		d.problems.Add(d.set, "", reasonRequestRefused, fmt.Sprintf("%d VirtualNetworks of the central cluster are not "+
			"created in Namespace %s: it gets at most %d: delete some of them in the central cluster", left, d.namespace,
			tenant.MaxNetworks))
	}
}

// writeNetwork returns the missing write of a VirtualNetwork. It is created when its Subnets are there, so it never has
// Subnets of a user.
func (t *Tables) writeNetwork(k derive.Object, r *derive.Reader) *writes.Write {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	have, exists := derive.Get(r, t.networkObjects, k)
	if !agreed(m) || exists && !isOwn(have) {
		return nil
	}
	q := t.requestedIn(k.Namespace, r)
	want := q.Networks[k.Name]
	if want == nil && (q.KeptNetworks[k.Name] || !q.Copied) || want != nil && !exists && !t.hasSubnets(want, r) {
		return nil
	}
	return writes.Diff[*contrailv4.VirtualNetwork]{Kind: kindNetwork, Mine: isOwn[*contrailv4.VirtualNetwork],
		Same: func(have, want *contrailv4.VirtualNetwork) bool {
			return sameReference(have.Spec.V4SubnetReference, want.Spec.V4SubnetReference) &&
				sameReference(have.Spec.V6SubnetReference, want.Spec.V6SubnetReference)
		},
		Merge: func(into, want *contrailv4.VirtualNetwork) { into.Spec, into.Labels = want.Spec, want.Labels },
	}.Between(have, want, t.base.About(m))
}

// sameReference reports whether a reference may be set to another one. It stays the same once it is set.
func sameReference(have, want *contrailv4.ResourceReference) bool {
	return have == nil || want == nil || *have == *want
}

// references returns the references of a VirtualNetwork to Subnets.
func references(n *contrailv4.VirtualNetwork) []*contrailv4.ResourceReference {
	return slices.DeleteFunc([]*contrailv4.ResourceReference{n.Spec.V4SubnetReference, n.Spec.V6SubnetReference},
		func(to *contrailv4.ResourceReference) bool { return to == nil })
}

// hasSubnets reports whether this controller has made the Subnets of a VirtualNetwork.
func (t *Tables) hasSubnets(n *contrailv4.VirtualNetwork, r *derive.Reader) bool {
	for _, to := range references(n) {
		if have, ok := derive.Get(r, t.subnetObjects, derive.Object{Namespace: n.Namespace, Name: to.Name}); !ok ||
			!isOwn(have) {
			return false
		}
	}
	return true
}

// writeSubnet returns the missing write of a Subnet.
func (t *Tables) writeSubnet(k derive.Object, r *derive.Reader) *writes.Write {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	have, exists := derive.Get(r, t.subnetObjects, k)
	if !agreed(m) || exists && !isOwn(have) {
		return nil
	}
	q := t.requestedIn(k.Namespace, r)
	want := q.Subnets[k.Name]
	if want == nil && (q.KeptSubnets[k.Name] || !q.Copied) {
		return nil
	}
	return writes.Diff[*contrailv4.Subnet]{Kind: kindSubnet, Mine: isOwn[*contrailv4.Subnet],
		Same: func(have, want *contrailv4.Subnet) bool { // both stay the same
			return have.Spec.CIDR == want.Spec.CIDR && have.Spec.DefaultGateway == want.Spec.DefaultGateway
		},
		Merge: func(into, want *contrailv4.Subnet) { into.Spec, into.Labels = want.Spec, want.Labels },
	}.Between(have, want, t.base.About(m))
}

// requestedIn returns the requested objects of a Namespace. It is empty unless the Namespace is isolated.
func (t *Tables) requestedIn(namespace string, r *derive.Reader) Requested {
	if q, _ := derive.Get(r, t.Requested, derive.Object{Name: namespace}); q != nil {
		return *q
	}
	return Requested{}
}
