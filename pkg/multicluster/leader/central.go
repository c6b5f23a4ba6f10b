package leader

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	configplanev1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/configplane/v1alpha1"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// central has the copies of members' isolated Namespaces in the leader's cluster, the central one. A Kubemanager names
// a member. Routers in copies join their networks, by the tables of package tenant.
//
//	kubemanagers, exports, members ─► managed ─► copies ─┬► steps of Namespaces, VirtualNetworks, TenantNetworks
//	namespaces of the central cluster ─► live ◄──────────┤
//	virtualnetworks ─► copied networks ◄─────────────────┘ (with Subnets, also these that the cluster is to create)
//	live, virtualnetworks, routers ─► tenants ─► joins of networks (networks.go), steps of statuses
//	namespaces, copies of the leader's own cluster ─► own (centralown.go) ─► tenants
type central struct {
	on        bool                                 // the leader's cluster is the central one
	members   derive.Readable[derive.Name, member] // of the ClusterSet
	exportsOf *derive.Index[derive.Name, derive.Object, *export]

	kubemanagers  *derive.Source[derive.Object, *kubemanager]
	managerStatus *derive.Source[derive.Object, writtenStatus[configplanev1alpha1.KubemanagerStatus]]
	namespaces    *derive.Source[derive.Object, *centralNamespace]
	virtual       *derive.Source[derive.Object, *centralNetwork]
	subnets       *derive.Source[derive.Object, *centralSubnet]
	routers       *derive.Source[derive.Object, tenant.RouterFacts]
	routerStatus  *derive.Source[derive.Object, writtenStatus[contrailv4.Status]]

	managed *derive.Table[derive.Object, *managed]              // by the Kubemanager
	copies  *derive.Table[derive.Object, *copied]               // by the Namespace of the copy
	live    *derive.Table[derive.Object, tenant.NamespaceFacts] // copies that are there
	// copiedNetworks are by the VirtualNetwork of the copy.
	copiedNetworks *derive.Table[derive.Object, *copiedNetwork]
	tenants        *tenant.Tables // whose Namespaces are the copies
	own            own

	byCluster *derive.Index[derive.Name, derive.Object, *kubemanager]
	byCopy    *derive.Index[derive.Object, derive.Object, *managed]
	copiesOf  *derive.Index[derive.Name, derive.Object, *centralNamespace] // by cluster ID, also these that terminate
	// networksOf are copies of VirtualNetworks by cluster ID, also these that terminate.
	networksOf *derive.Index[derive.Name, derive.Object, *centralNetwork]
	byNetwork  *derive.Index[derive.Object, derive.Object, *copiedNetwork] // by the name of the TenantNetwork
}

// kubemanager has the facts of a Kubemanager.
type kubemanager struct {
	UID     types.UID
	Created int64 // seconds
	Spec    configplanev1alpha1.KubemanagerSpec
}

func kubemanagerFacts(o *configplanev1alpha1.Kubemanager) *kubemanager {
	if !o.DeletionTimestamp.IsZero() {
		return nil
	}
	return &kubemanager{UID: o.UID, Created: o.CreationTimestamp.Unix(), Spec: o.Spec}
}

// centralNamespace has the facts of a Namespace of the central cluster. For a Namespace that is no copy it only has the
// UID, and the labels if it is isolated.
type centralNamespace struct {
	UID                 types.UID
	Copy                bool
	Isolated            bool
	Created             int64
	Deleted             bool
	Version             string // resourceVersion
	Labels, Annotations map[string]string
}

func centralNamespaceFacts(o *corev1.Namespace) *centralNamespace {
	n := &centralNamespace{UID: o.UID}
	if _, n.Copy = o.Labels[tenant.LabelCopy]; n.Copy {
		n.Created, n.Deleted = o.CreationTimestamp.Unix(), !o.DeletionTimestamp.IsZero()
		n.Version, n.Labels, n.Annotations = o.ResourceVersion, o.Labels, o.Annotations
	} else if n.Isolated = tenant.NamespaceFactsOf(o).Isolated; n.Isolated {
		n.Labels = o.Labels
	}
	return n
}

// copyOf returns the cluster ID and the name of the original Namespace of a copy. It returns empty texts for a
// Namespace that is no copy.
func (n *centralNamespace) copyOf() (cluster, namespace string) {
	cluster, namespace, _ = strings.Cut(n.Annotations[tenant.AnnotationCopyOf], "/")
	return cluster, namespace
}

// centralNetwork has the facts of a VirtualNetwork of the central cluster.
type centralNetwork struct {
	tenant.VirtualNetworkFacts
	Copy        bool
	Deleted     bool
	Specified   bool // it has a spec
	Version     string
	Annotations map[string]string
	Status      contrailv4.VirtualNetworkStatus
}

func centralNetworkFacts(o *contrailv4.VirtualNetwork) *centralNetwork {
	n := &centralNetwork{VirtualNetworkFacts: tenant.VirtualNetworkFactsOf(o), Version: o.ResourceVersion,
		Annotations: o.Annotations, Status: o.Status, Deleted: !o.DeletionTimestamp.IsZero(),
		Specified: !equality.Semantic.DeepEqual(o.Spec, contrailv4.VirtualNetworkSpec{})}
	_, n.Copy = o.Labels[tenant.LabelCopy]
	return n
}

// copyOf returns the cluster ID, the Namespace and the name of the original of a copy. It returns empty texts for an
// object that is no copy of a VirtualNetwork, such as default-podnetwork.
func (n *centralNetwork) copyOf() (cluster, namespace, name string) {
	parts := strings.Split(n.Annotations[tenant.AnnotationCopyOf], "/")
	if n.Copy && len(parts) == 3 {
		return parts[0], parts[1], parts[2]
	}
	return "", "", ""
}

// newCentral adds the tables of copies. Without rights or kinds they are empty.
func newCentral(k *watch.Kinds, t *tables, on bool) *central {
	e := t.engine
	options := []watch.Option{watch.If(on), watch.IfAllowed()}
	c := &central{
		on: on, members: t.members, exportsOf: t.index.exportsOf,
		kubemanagers: watch.NewSource(k, "Kubemanagers", kubemanagerFacts, options...),
		managerStatus: watch.NewSource(k, "status of Kubemanagers",
			func(m *configplanev1alpha1.Kubemanager) writtenStatus[configplanev1alpha1.KubemanagerStatus] {
				return writtenStatus[configplanev1alpha1.KubemanagerStatus]{m.UID, "", m.Status}
			}, options...),
		namespaces: watch.NewSource(k, "Namespaces", centralNamespaceFacts, options...),
		virtual:    watch.NewSource(k, "VirtualNetworks", centralNetworkFacts, options...),
		subnets:    watch.NewSource(k, "Subnets", centralSubnetFacts, options...),
		routers:    watch.NewSource(k, "VirtualNetworkRouters", tenant.RouterFactsOf, options...),
		routerStatus: watch.NewSource(k, "status of VirtualNetworkRouters",
			func(v *contrailv4.VirtualNetworkRouter) writtenStatus[contrailv4.Status] {
				return writtenStatus[contrailv4.Status]{v.UID, "", v.Status}
			}, options...),
	}
	c.byCluster = derive.NewIndex(c.kubemanagers, "cluster",
		func(_ derive.Object, m *kubemanager) []derive.Name {
			return []derive.Name{derive.Name(m.Spec.ClusterName)}
		})
	c.copiesOf = derive.NewIndex(c.namespaces, "cluster of a copy",
		func(_ derive.Object, n *centralNamespace) []derive.Name {
			if cluster, _ := n.copyOf(); cluster != "" {
				return []derive.Name{derive.Name(cluster)}
			}
			return nil
		})
	c.managed = derive.NewTable(e, "managed clusters", c.managedBy, derive.KeysOf(c.kubemanagers))
	c.byCopy = derive.NewIndex(c.managed, "copy", func(_ derive.Object, m *managed) (out []derive.Object) {
		for name := range m.Copies {
			out = append(out, derive.Object{Name: name})
		}
		return out
	})
	c.copies = derive.NewTable(e, "copies of namespaces", c.copyOf, derive.KeysOfIndex(c.byCopy))
	c.live = derive.NewTable(e, "live copies", c.liveCopy, derive.KeysOf(c.copies))
	c.addCopiedNetworks(e)
	c.addOwn(e, t.own)
	imports := derive.NewSource[derive.Object, tenant.ClusterSetFacts](e, "no TenantNetworkImports")
	imports.Loaded()
	c.tenants = tenant.NewCluster(e, tenant.Objects{
		Namespaces: c.live, Imports: imports,
		Labels: derive.NewTable(e, "labels of copies",
			func(k derive.Object, r *derive.Reader) (labels.Set, []problem.Problem) {
				n, _ := derive.Get(r, c.namespaces, k)
				return tenant.NamespaceLabels(&corev1.Namespace{ObjectMeta: metaNamed(k.Name, n.Labels)}), nil
			}, derive.KeysOf(c.live), derive.KeysOf(c.own.copies)),
		Networks: derive.NewTable(e, "networks of copies", c.networkFacts, derive.KeysOf(c.virtual)),
		Routers: derive.NewTable(e, "routers of copies",
			func(k derive.Object, r *derive.Reader) (f tenant.RouterFacts, _ []problem.Problem) {
				if c.isLive(k.Namespace, r) || c.isOwn(k.Namespace, r) {
					f, _ = derive.Get(r, c.routers, k)
				}
				return f, nil
			}, derive.KeysOf(c.routers)),
		Own: tenant.Own{Copies: c.own.copies, Networks: c.own.networks},
	})
	return c
}

// addCopiedNetworks adds the table of copies of VirtualNetworks.
func (c *central) addCopiedNetworks(e *derive.Engine) {
	listed := derive.NewIndex(c.copies, "VirtualNetwork of a list",
		func(k derive.Object, of *copied) (out []derive.Object) {
			for _, n := range of.VirtualNetworks {
				out = append(out, derive.Object{Namespace: k.Name, Name: n.Name})
			}
			return out
		})
	there := derive.NewIndex(c.virtual, "copy of a VirtualNetwork",
		func(k derive.Object, n *centralNetwork) []derive.Object {
			if _, _, name := n.copyOf(); name != k.Name {
				return nil
			}
			return []derive.Object{k}
		})
	c.networksOf = derive.NewIndex(c.virtual, "cluster of a copy", func(_ derive.Object, n *centralNetwork) []derive.Name {
		if cluster, _, _ := n.copyOf(); cluster != "" {
			return []derive.Name{derive.Name(cluster)}
		}
		return nil
	})
	c.copiedNetworks = derive.NewTable(e, "copies of VirtualNetworks", c.copiedNetwork, derive.KeysOfIndex(listed),
		derive.KeysOfIndex(there), derive.KeysOfIndex(requestIndex(c.virtual)))
	c.byNetwork = derive.NewIndex(c.copiedNetworks, "TenantNetwork",
		func(k derive.Object, _ *copiedNetwork) []derive.Object {
			return []derive.Object{{Name: networkName(k)}}
		})
}

// networkFacts returns the facts about a VirtualNetwork in a copy of a Namespace. The VirtualNetwork is served if it is
// the copy of a VirtualNetwork with Subnets, or a request that the member has to create.
func (c *central) networkFacts(k derive.Object, r *derive.Reader) (f tenant.VirtualNetworkFacts, _ []problem.Problem) {
	n, _ := derive.Get(r, c.virtual, k)
	if !c.isLive(k.Namespace, r) {
		return f, nil
	}
	f = n.VirtualNetworkFacts
	f.Subnets, f.Own = [2]string{}, false
	if k.Name == contrailv4.DefaultPodNetwork {
		return f, nil
	}
	of, _ := derive.Get(r, c.copiedNetworks, k)
	requested := of != nil && of.Requests
	if !requested {
		f.Problems = nil // of its spec, which nothing reads
	}
	if of != nil && (n.Copy && !n.Deleted || requested) {
		f.Subnets[0] = k.Name
	}
	return f, nil
}

// managed is the result for a Kubemanager.
type managed struct {
	// Copies are the Namespaces of the cluster, by the names of their copies.
	Copies   map[string]*copied
	Problems problem.List
	Fails    bool // the list of the cluster's Namespaces is not known, so there are no new copies
}

// copied is a Namespace of a member that has a copy.
type copied struct {
	Kubemanager derive.Object
	Area        string // the Common Area; empty if the copy is kept
	ClusterID   string
	Families    string
	// Kept is set if the cluster's list of Namespaces is not known. Then the copy and its network stay as they are.
	Kept bool
	// Out is why no network is joined with this one; nil if networks may be.
	Out reasons.Reason
	exportcheck.IsolatedNamespace
}

// tenantNetwork returns the key of the TenantNetwork of a copy.
func (c *copied) tenantNetwork(name string) derive.Object {
	return derive.Object{Namespace: c.Area, Name: name}
}

// copiedNetwork is a VirtualNetwork of a member that has a copy, or that the member is to create.
type copiedNetwork struct {
	Of *copied // its Namespace
	// Requests is set if a user created it in the copy. It has no UID until its cluster has created it.
	Requests bool
	Taken    bool // a user of the cluster has one of the name, so the requested one is not there
	exportcheck.VirtualNetwork
}

// copiedNetwork returns the VirtualNetwork of which an object is the copy. If the cluster's list is not known, existing
// copies stay.
func (c *central) copiedNetwork(k derive.Object, r *derive.Reader) (*copiedNetwork, []problem.Problem) {
	of, _ := derive.Get(r, c.copies, derive.Object{Name: k.Namespace})
	if of == nil {
		return nil, nil
	}
	have, _ := derive.Get(r, c.virtual, k)
	requests := have != nil && have.requests()
	if of.Kept {
		if have == nil || have.Deleted {
			return nil, nil
		}
		cluster, namespace, name := have.copyOf()
		if !requests && (cluster != of.ClusterID || namespace != of.Name || name != k.Name) {
			return nil, nil
		}
		return &copiedNetwork{Of: of, Requests: requests, VirtualNetwork: exportcheck.VirtualNetwork{Name: k.Name}}, nil
	}
	for _, n := range of.VirtualNetworks {
		switch {
		case n.Name != k.Name:
		case n.Requested && !requests: // the cluster is about to delete it
			return nil, nil
		case requests && !n.Requested: // also if its member controller is an earlier one
			return &copiedNetwork{Of: of, Requests: true, Taken: true,
				VirtualNetwork: exportcheck.VirtualNetwork{Name: k.Name}}, nil
		default:
			return &copiedNetwork{Of: of, Requests: n.Requested, VirtualNetwork: n}, nil
		}
	}
	if requests {
		return &copiedNetwork{Of: of, Requests: true, VirtualNetwork: exportcheck.VirtualNetwork{Name: k.Name}}, nil
	}
	return nil, nil
}

// networkName returns the name of the TenantNetwork for the copy of a VirtualNetwork. It has a dot, unlike the name
// of the TenantNetwork of a Namespace. If it is too long, a hash replaces its end.
func networkName(k derive.Object) string {
	name := k.Namespace + "." + k.Name
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	name = name[:validation.DNS1123SubdomainMaxLength-hashed-1]
	return strings.TrimRight(name, "-.") + "-" + hex.EncodeToString(sum[:])[:hashed]
}

const (
	hashed    = 10 // hexadecimal digits
	mostNamed = validation.DNS1123LabelMaxLength - hashed - 1
)

// ambiguous reports whether copies for two Kubemanagers may get the same name. Such names must be refused. Otherwise a
// member could choose the name of a Namespace so that its copy replaces the copy of another cluster.
func ambiguous(a, b derive.Row[derive.Object, *kubemanager]) bool {
	begin := func(r derive.Row[derive.Object, *kubemanager]) string {
		name := strings.ReplaceAll(r.Key.Name+"-"+r.Value.Spec.ClusterName+"-", ".", "-")
		return name[:min(len(name), mostNamed)]
	}
	return strings.HasPrefix(begin(a), begin(b)) || strings.HasPrefix(begin(b), begin(a))
}

// copyName returns the name of the copy of a Namespace, in the form of CN2. If the name is too long or has dots, a hash
// replaces its end.
func copyName(kubemanager, cluster, namespace string) string {
	full := kubemanager + "-" + cluster + "-" + namespace
	name := strings.ReplaceAll(full, ".", "-")
	if name == full && len(name) <= validation.DNS1123LabelMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(kubemanager + "/" + cluster + "/" + namespace))
	name = name[:min(len(name), mostNamed)]
	return strings.TrimRight(name, "-") + "-" + hex.EncodeToString(sum[:])[:hashed]
}

// managedBy returns the copies that a Kubemanager requests.
func (c *central) managedBy(k derive.Object, r *derive.Reader) (*managed, []problem.Problem) {
	f, _ := derive.Get(r, c.kubemanagers, k)
	out := &managed{Fails: true}
	about := problem.About("Kubemanager", k.Namespace, k.Name)
	cluster := f.Spec.ClusterName
	const field = "spec.clusterName"
	oldest := slices.MinFunc(derive.List(r, c.byCluster, derive.Name(cluster)), olderManager).Key
	var similar *derive.Object
	own := derive.Row[derive.Object, *kubemanager]{Key: k, Value: f}
	for _, row := range derive.All(r, c.kubemanagers) {
		if row.Key != k && olderManager(row, own) < 0 && ambiguous(row, own) {
			similar = &row.Key
		}
	}
	m, _ := derive.Get(r, c.members, derive.Name(cluster))
	list := c.listOf(cluster, r)
	var why reasons.Reason
	switch {
	case oldest != k:
		why = reasonManagedTwice
		out.Problems.Add(about, field, reasonManagedTwice, "Kubemanager "+oldest.String()+" is older and names cluster "+
			cluster+": delete one of the two")
	case similar != nil:
		why = reasonNameTaken
		out.Problems.Add(about, "metadata.name", reasonNameTaken, "Kubemanager "+similar.String()+" is older, and its "+
			"copies may have the same names: create this one with a name that does not begin or continue that one")
	case !m.Announced:
		why = reasonNotAMember
		out.Problems.Add(about, field, reasonNotAMember, "cluster "+cluster+" is not in the ClusterSet: let it join as a "+
			"member with this cluster ID, or create a Kubemanager with another one")
	case m.Why != "":
		why = reasonNotAMember
		out.Problems.Add(about, field, reasonNotAMember, m.Why)
	case list == nil:
		why = reasonNotCentral
		out.Problems.Add(about, field, reasonNotCentral, "cluster "+cluster+" does not export its isolated Namespaces: "+
			"annotate its ClusterSet there with "+multicluster.AnnotationCentral+"=true")
	case list.Namespaces == nil: // the cluster is there, so its joins stay
		out.Problems.Add(about, field, reasonNotCentral, "the list of Namespaces of cluster "+cluster+" is not valid: "+
			list.Wrong+": correct it in the cluster's member controller")
	default:
		out.Fails = false
		out.Copies = map[string]*copied{}
		for _, n := range list.Namespaces.Namespaces {
			name := copyName(k.Name, cluster, n.Name)
			if _, twice := out.Copies[name]; !twice {
				out.Copies[name] = &copied{Kubemanager: k, Area: list.Key.Namespace, ClusterID: cluster,
					Families: list.Namespaces.Families, IsolatedNamespace: n}
			}
		}
	}
	if out.Fails {
		out.keep(k, cluster, why, derive.List(r, c.copiesOf, derive.Name(cluster)))
	}
	c.ranges(f, about, r, &out.Problems)
	f.notServed(about, &out.Problems)
	return out, nil
}

// keep keeps the existing copies of a cluster. The cluster's list of Namespaces is not known, so there is no sign that
// a Namespace is gone.
func (m *managed) keep(k derive.Object, cluster string, out reasons.Reason,
	have []derive.Row[derive.Object, *centralNamespace]) {
	m.Copies = map[string]*copied{}
	for _, row := range have {
		_, name := row.Value.copyOf()
		if !row.Value.Deleted && copyName(k.Name, cluster, name) == row.Key.Name {
			m.Copies[row.Key.Name] = &copied{Kubemanager: k, ClusterID: cluster, Kept: true, Out: out,
				IsolatedNamespace: exportcheck.IsolatedNamespace{Name: name}}
		}
	}
}

// olderManager orders Kubemanagers by age, then UID.
func olderManager(a, b derive.Row[derive.Object, *kubemanager]) int {
	return cmp.Or(cmp.Compare(a.Value.Created, b.Value.Created), cmp.Compare(a.Value.UID, b.Value.UID))
}

// listOf returns the export of a cluster's isolated Namespaces, or nil.
func (c *central) listOf(cluster string, r *derive.Reader) *export {
	for _, row := range derive.List(r, c.exportsOf, derive.Name(cluster)) {
		if row.Value.Kind == multicluster.NamespacesKind && !row.Value.Deleted {
			return row.Value
		}
	}
	return nil
}

// ranges compares the ranges of a Kubemanager with these that the cluster announces.
func (c *central) ranges(f *kubemanager, about problem.Object, r *derive.Reader, ps *problem.List) {
	announced := map[bool][]string{} // by whether they are of Pods
	for _, row := range derive.List(r, c.exportsOf, derive.Name(f.Spec.ClusterName)) {
		if info := row.Value.Info; info != nil {
			announced[true] = append(announced[true], info.PodCIDRs...)
			announced[false] = append(append(announced[false], info.ServiceCIDR), info.ServiceCIDRs...)
		}
	}
	for _, one := range []struct {
		field, text string
		pods        bool
	}{
		{"podV4Subnet", f.Spec.PodV4Subnet, true}, {"podV6Subnet", f.Spec.PodV6Subnet, true},
		{"serviceV4Subnet", f.Spec.ServiceV4Subnet, false}, {"serviceV6Subnet", f.Spec.ServiceV6Subnet, false},
	} {
		if one.text == "" {
			continue
		}
		want, err := netip.ParsePrefix(one.text)
		if err != nil {
			ps.Add(about, "spec."+one.field, reasonOtherRange, problem.Quoted(one.text)+" is no range, and has no effect: "+
				"correct it, or remove it")
			continue
		}
		if len(announced[one.pods]) > 0 && !slices.ContainsFunc(announced[one.pods], func(text string) bool {
			p, err := netip.ParsePrefix(text)
			return err == nil && p.Masked() == want.Masked()
		}) {
			ps.Add(about, "spec."+one.field, reasonOtherRange, fmt.Sprintf("the cluster announces %s, and not %s, which "+
				"has no effect: correct it, or remove it", problem.Few(announced[one.pods]), want))
		}
	}
}

// notServed reports the fields that have no effect.
func (m *kubemanager) notServed(about problem.Object, ps *problem.List) {
	if m.Spec.KubeconfigSecretName != "" {
		ps.Add(about, "spec.kubeconfigSecretName", reasonManagerNotServed, "it is stored and has no effect: the cluster "+
			"joins the ClusterSet as a member, and no program here reads the Secret: remove it, and delete the Secret")
	}
	var without []string
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"common", m.Spec.Common != nil}, {"enableNad", m.Spec.EnableNad}, {"listenerPort", m.Spec.ListenerPort != 0},
		{"constantRouteTargetNumber", m.Spec.ConstantRouteTargetNumber != 0},
		{"externalNetworkSelectors", len(m.Spec.ExternalNetworkSelectors) > 0},
	} {
		if field.set {
			without = append(without, field.name)
		}
	}
	if len(without) > 0 {
		ps.Add(about, "spec", reasonManagerNotServed, strings.Join(without, ", ")+": stored and without effect: remove them")
	}
}

// copyOf returns the original Namespace for the name of a copy. If copies for two Kubemanagers would have this name,
// the older Kubemanager gets it.
func (c *central) copyOf(k derive.Object, r *derive.Reader) (*copied, []problem.Problem) {
	var holder *copied
	var of derive.Row[derive.Object, *kubemanager]
	for _, row := range derive.List(r, c.byCopy, k) {
		f, _ := derive.Get(r, c.kubemanagers, row.Key)
		one := derive.Row[derive.Object, *kubemanager]{Key: row.Key, Value: f}
		if f != nil && (holder == nil || olderManager(one, of) < 0) {
			holder, of = row.Value.Copies[k.Name], one
		}
	}
	return holder, nil
}

// liveCopy returns the facts of a copy as of an isolated Namespace.
func (c *central) liveCopy(k derive.Object, r *derive.Reader) (f tenant.NamespaceFacts, _ []problem.Problem) {
	if n, _ := derive.Get(r, c.namespaces, k); n != nil && n.Copy && !n.Deleted {
		f = tenant.NamespaceFacts{UID: n.UID, Created: n.Created, Isolated: true, Label: "true"}
	}
	return f, nil
}

func (c *central) isLive(namespace string, r *derive.Reader) bool {
	_, live := derive.Get(r, c.live, derive.Object{Name: namespace})
	return live
}

// networkOwner is what the TenantNetwork of a copy is for.
type networkOwner struct {
	*copied                // the Namespace
	Key     derive.Object  // of the VirtualNetwork of the copy
	Virtual *copiedNetwork // the VirtualNetwork with Subnets; nil if the network is the Namespace's
}

// network returns the owner's network in the tables of package tenant.
func (o networkOwner) network() tenant.Name {
	if o.Virtual == nil {
		return tenant.IsolatedName(o.Key.Namespace)
	}
	return tenant.VirtualName(o.Key)
}

// ofTenantNetwork returns what a TenantNetwork is for.
func (c *central) ofTenantNetwork(k derive.Object, r *derive.Reader) *networkOwner {
	var o networkOwner
	if virtual := derive.List(r, c.byNetwork, derive.Object{Name: k.Name}); len(virtual) > 0 {
		o = networkOwner{virtual[0].Value.Of, virtual[0].Key, virtual[0].Value}
	} else {
		o.copied, _ = derive.Get(r, c.copies, derive.Object{Name: k.Name})
		o.Key = derive.Object{Namespace: k.Name, Name: contrailv4.DefaultPodNetwork}
	}
	if o.copied == nil || o.Area != k.Namespace && !o.Kept {
		return nil
	}
	return &o
}

// peers returns the names of the TenantNetworks of copies that routers join with the network of a copy. area is the
// Common Area.
func (c *central) peers(own *networkOwner, area string, r *derive.Reader) (out []string) {
	joined, _ := derive.Get(r, c.tenants.Joined, own.network())
	for _, other := range joined {
		name := other.Name
		if k := (derive.Object{Namespace: other.Namespace, Name: other.Name}); other == tenant.VirtualName(k) {
			name = networkName(k)
		} else if other != tenant.IsolatedName(name) {
			continue
		}
		of := c.ofTenantNetwork(derive.Object{Namespace: area, Name: name}, r)
		if of != nil && of.network() == other && of.Out == nil {
			out = append(out, name)
		}
	}
	return out
}
