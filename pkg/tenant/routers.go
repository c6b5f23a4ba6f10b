package tenant

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// doorRouter is the front door of VirtualNetworkRouters.
const doorRouter = "vnr"

const (
	// maxRouters is the largest number of routers of a Namespace that are used. With more, a Namespace could delay the
	// agents of all Nodes.
	maxRouters = 20
	// maxImports is the largest number of routers that one router imports. With more, each of its Pods would need too many
	// flows.
	maxImports = 100
	// maxCompared is the largest number of routers with which imports of a router are compared. maxWide imports with more
	// candidates are allowed as well.
	maxCompared, maxWide = 2000, 2
	// maxKeys and maxValues bound one selector, and maxLabels the labels of a router.
	maxKeys, maxValues, maxLabels = 10, 100, 50
)

// NamespaceLabels returns the labels of a Namespace. The label kubernetes.io/metadata.name always has the Namespace's
// name.
func NamespaceLabels(n *corev1.Namespace) labels.Set {
	out := labels.Set{}
	maps.Copy(out, n.Labels)
	out[corev1.LabelMetadataName] = n.Name
	return out
}

const notServed = "it is stored and has no effect: remove it"

// RouterFacts is the part of a VirtualNetworkRouter that networks depend on.
type RouterFacts struct {
	UID     types.UID
	Created int64
	Labels  labels.Set
	Kind    Kind
	// Networks selects VirtualNetworks of the router's Namespace.
	Networks labels.Selector
	Imports  []ImportFacts
	// Problems are about its own fields.
	Problems []problem.Problem
}

// ImportFacts selects the routers that a router imports.
type ImportFacts struct {
	Field   string
	Routers labels.Selector
	// Namespaces is nil for the router's own Namespace.
	Namespaces labels.Selector
}

var kinds = map[string]Kind{contrailv4.TypeMesh: Mesh, contrailv4.TypeHub: Hub, contrailv4.TypeSpoke: Spoke}

// RouterFactsOf returns the facts about a VirtualNetworkRouter.
func RouterFactsOf(v *contrailv4.VirtualNetworkRouter) RouterFacts {
	ps, object := problem.List{}, problem.About("VirtualNetworkRouter", v.Namespace, v.Name)
	selector := func(field string, s *metav1.LabelSelector) labels.Selector {
		if keys, values := sizeOf(s); keys > maxKeys || values > maxValues {
			ps.Add(object, field, reasonInvalidSelector,
				fmt.Sprintf("it has %d keys and %d values, so it selects nothing: write "+
					"at most %d keys and %d values", keys, values, maxKeys, maxValues))
			return labels.Nothing()
		}
		out, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			ps.Add(object, field, reasonInvalidSelector, err.Error()+", so it selects nothing: correct it")
			return labels.Nothing()
		}
		return out
	}
	f := RouterFacts{UID: v.UID, Created: v.CreationTimestamp.Unix(), Labels: v.Labels, Kind: kinds[v.Spec.Type],
		Networks: selector("spec.virtualNetworkSelector", v.Spec.VirtualNetworkSelector)}
	if f.Kind == 0 {
		ps.Add(object, "spec.type", reasonInvalidType,
			"the type "+problem.Quoted(v.Spec.Type)+" joins nothing: write mesh, hub "+
				"or spoke")
	}
	if n := len(v.Labels); n > maxLabels {
		f.Kind, f.Labels = 0, nil
		ps.Add(object, "metadata.labels", reasonTooManyLabels,
			fmt.Sprintf("it joins nothing, since it has %d labels: leave at "+
				"most %d", n, maxLabels))
	}
	for i, entry := range v.Spec.Import.VirtualNetworkRouters {
		field := fmt.Sprintf("spec.import.virtualNetworkRouters[%d]", i)
		one := ImportFacts{Field: field,
			Routers: selector(field+".virtualNetworkRouterSelector", entry.VirtualNetworkRouterSelector)}
		if entry.NamespaceSelector != nil {
			one.Namespaces = selector(field+".namespaceSelector", entry.NamespaceSelector)
		}
		f.Imports = append(f.Imports, one)
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"routeTarget", v.Spec.RouteTarget != ""}, {"routingType", v.Spec.RoutingType != ""},
		{"l3vxlanNetworkIdentifier", v.Spec.L3VXLANNetworkIdentifier != 0},
	} {
		if field.set {
			ps.Add(object, "spec."+field.name, reasonNotServed, notServed)
		}
	}
	f.Problems = ps
	return f
}

// sizeOf returns how many keys and values a selector has.
func sizeOf(s *metav1.LabelSelector) (keys, values int) {
	if s == nil {
		return 0, 0
	}
	keys, values = len(s.MatchLabels)+len(s.MatchExpressions), len(s.MatchLabels)
	for _, e := range s.MatchExpressions {
		values += len(e.Values)
	}
	return keys, values
}

// Objects are the objects of a cluster that its networks of tenants depend on.
type Objects struct {
	Namespaces derive.Readable[derive.Object, NamespaceFacts]
	Labels     derive.Readable[derive.Object, labels.Set] // of Namespaces
	Networks   derive.Readable[derive.Object, VirtualNetworkFacts]
	Routers    derive.Readable[derive.Object, RouterFacts]
	Imports    derive.Readable[derive.Object, ClusterSetFacts] // TenantNetworkImports
	Leases     derive.Readable[derive.Object, LeaseFacts]      // SubnetLeases; nil for no addresses
	// Subnets, Reserved and Allowed are read where Subnets are judged; they are nil elsewhere.
	Subnets  derive.Readable[derive.Object, SubnetFacts]
	Reserved []derive.Readable[derive.Object, []Reserved]
	Allowed  derive.Readable[derive.Object, Allowed]
	// Own are Namespaces of the central cluster that have copies there; it is empty elsewhere.
	Own Own

	central *derive.Index[derive.Object, derive.Object, ClusterSetFacts] // Imports by the Namespace of a copy
}

// inCopy reports whether a Namespace is the copy of a Namespace of another cluster. That cluster serves its objects.
func (o Objects) inCopy(namespace string, r *derive.Reader) bool {
	f, _ := derive.Get(r, o.Namespaces, derive.Object{Name: namespace})
	return f.Copy
}

// NewCluster adds the tables of a cluster. Its front doors are the label of Namespaces, TenantNetworkImports,
// VirtualNetworks with Subnets, and VirtualNetworkRouters.
func NewCluster(e *derive.Engine, o Objects) *Tables {
	o.central = centralOf(o)
	v, virtual := newVirtual(e, o)
	t := NewTables(e, o.Namespaces, Doors{
		Networks: []derive.Readable[Name, Network]{Isolated(e, o.Namespaces), newClusterSet(e, o), virtual},
		Routers:  []derive.Readable[Name, Router]{newRouters(e, o, v)},
	})
	t.virtual = v
	v.addNetworks(e, t)
	t.subnets(e, o)
	t.VirtualNetworkProblems = derive.NewTable(e, "virtual-network-problems",
		func(k derive.Object, r *derive.Reader) (NetworkProblems, []problem.Problem) {
			if o.inCopy(k.Namespace, r) {
				return NetworkProblems{}, nil
			}
			if k.Name != contrailv4.DefaultPodNetwork {
				ps, fails := v.problems(k, r, t.Subnets)
				return NetworkProblems{ps, fails}, ps
			}
			ps := o.defaultNetwork(k, r)
			return NetworkProblems{List: ps}, ps
		}, derive.KeysOf(o.Networks))
	return t
}

// NetworkProblems are the problems of a VirtualNetwork.
type NetworkProblems struct {
	List []problem.Problem
	// Fails is set if it is not default-podnetwork, and no Pod gets an address in it.
	Fails bool
}

// defaultNetwork returns the problems of a VirtualNetwork default-podnetwork.
func (o Objects) defaultNetwork(k derive.Object, r *derive.Reader) []problem.Problem {
	f, _ := derive.Get(r, o.Networks, k)
	ps := problem.List(slices.Clone(f.Problems))
	if n, _ := derive.Get(r, o.Namespaces, derive.Object{Name: k.Namespace}); !n.Isolated {
		ps.Add(problem.About("VirtualNetwork", k.Namespace, k.Name), "metadata.namespace", reasonNotIsolated,
			"the Pods of Namespace "+k.Namespace+" are in the default network, which no router joins: label the Namespace "+
				LabelIsolated+"=true")
	}
	return ps
}

// routerTables select the networks and imports of VirtualNetworkRouters.
type routerTables struct {
	Objects
	virtual *virtualTables
	oldest  *derive.Table[derive.Name, []derive.Object] // routers of a Namespace that count
	// here has the routers of this cluster's Namespaces that count, and copied those in copies of the central cluster.
	here, copied routerPool
}

// routerPool has the routers that imports select from.
type routerPool struct {
	counting *derive.Table[derive.Object, RouterFacts]
	byLabel  *derive.Index[derive.Name, derive.Object, RouterFacts] // by "key=value"
	byOwn    *derive.Index[derive.Name, derive.Object, RouterFacts] // by Namespace
}

// newRouters returns the table of the VirtualNetworkRouters of this cluster.
func newRouters(e *derive.Engine, o Objects, v *virtualTables) *derive.Table[Name, Router] {
	t := &routerTables{Objects: o, virtual: v}
	all := derive.NewIndex(o.Routers, "namespace", byNamespace)
	t.oldest = derive.NewTable(e, "oldest-routers",
		func(namespace derive.Name, r *derive.Reader) ([]derive.Object, []problem.Problem) {
			return oldestOf(derive.List(r, all, namespace)), nil
		}, derive.KeysOfIndex(all))
	t.here = t.pool(e, "counting-routers", false)
	t.copied = t.pool(e, "counting-routers-of-copies", true)
	byName := derive.NewIndex(o.Routers, "name", func(k derive.Object, _ RouterFacts) []Name {
		return []Name{RouterName(k)}
	})
	return derive.NewTable(e, "virtual-network-routers", t.router, derive.KeysOfIndex(byName))
}

// pool adds the tables of the routers that count, of copies or of other Namespaces.
func (t *routerTables) pool(e *derive.Engine, name string, copies bool) (p routerPool) {
	p.counting = derive.NewTable(e, name, func(k derive.Object, r *derive.Reader) (f RouterFacts, _ []problem.Problem) {
		if t.inCopy(k.Namespace, r) == copies && t.counts(k, r) {
			f, _ = derive.Get(r, t.Routers, k)
		}
		return f, nil
	}, derive.KeysOf(t.Routers))
	p.byLabel = derive.NewIndex(p.counting, "label", func(_ derive.Object, f RouterFacts) (out []derive.Name) {
		for key, value := range f.Labels {
			out = append(out, label(key, value))
		}
		return out
	})
	p.byOwn = derive.NewIndex(p.counting, "namespace", byNamespace)
	return p
}

func byNamespace(k derive.Object, _ RouterFacts) []derive.Name {
	return []derive.Name{derive.Name(k.Namespace)}
}

// oldestOf returns the keys of the oldest routers, sorted.
func oldestOf(rows []derive.Row[derive.Object, RouterFacts]) (out []derive.Object) {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b derive.Row[derive.Object, RouterFacts]) int {
		return cmp.Compare(a.Value.Created, b.Value.Created)
	})
	for _, row := range rows[:min(len(rows), maxRouters)] {
		out = append(out, row.Key)
	}
	slices.SortFunc(out, derive.Object.Compare)
	return out
}

func (t *routerTables) counts(k derive.Object, r *derive.Reader) bool {
	oldest, _ := derive.Get(r, t.oldest, derive.Name(k.Namespace))
	_, ok := slices.BinarySearchFunc(oldest, k, derive.Object.Compare)
	return ok
}

func label(key, value string) derive.Name { return derive.Name(key + "=" + value) }

// RouterName returns the name of a VirtualNetworkRouter.
func RouterName(k derive.Object) Name {
	return Name{Door: doorRouter, Namespace: k.Namespace, Name: k.Name}
}

// router returns the networks and the imports of a router.
func (t *routerTables) router(name Name, r *derive.Reader) (Router, []problem.Problem) {
	key := derive.Object{Namespace: name.Namespace, Name: name.Name}
	f, _ := derive.Get(r, t.Routers, key)
	namespace, _ := derive.Get(r, t.Namespaces, derive.Object{Name: key.Namespace})
	at := t.siteOf(key.Namespace, r)
	out := Router{Object: problem.About("VirtualNetworkRouter", key.Namespace, key.Name),
		Quiet: namespace.Copy || at.space != at.namespace}
	ps := problem.List(slices.Clone(f.Problems))
	if !t.counts(key, r) {
		ps.Add(out.Object, "metadata.namespace", reasonTooManyRouters, fmt.Sprintf("it joins nothing: its Namespace has %d "+
			"older VirtualNetworkRouters, and more do not count: delete one of them", maxRouters))
		out.Problems = ps
		return out, nil
	}
	out.Kind = f.Kind
	first := !namespace.Copy && t.selectNetworks(key, at, f, &out, r, &ps) // the leader joins the networks of copies
	t.imports(key, f.Imports, r, &out, &ps)
	if first {
		t.apart(&out, key.Namespace, r, &ps)
	}
	out.Problems = ps
	return out, nil
}

// selectNetworks adds the networks that a router selects. It reports whether the router joins networks of first
// interfaces, in this cluster or through the leader.
func (t *routerTables) selectNetworks(key derive.Object, at site, f RouterFacts, out *Router, r *derive.Reader,
	ps *problem.List,
) (first bool) {
	oldest, _ := derive.Get(r, t.virtual.oldest, derive.Name(at.space))
	for _, k := range oldest {
		if n, there := at.network(k.Name, r); there && f.Networks.Matches(n.Labels) {
			out.Networks = append(out.Networks, VirtualName(k))
		}
	}
	return t.selectDefault(key, at, f, out, r, ps)
}

// selectDefault adds the network of the Namespace, which contains the first interfaces of its Pods, if a router selects
// it. If the Namespace has a copy in this cluster, the leader joins the network of the copy instead.
func (t *routerTables) selectDefault(key derive.Object, at site, f RouterFacts, out *Router, r *derive.Reader,
	ps *problem.List,
) (joins bool) {
	set, labelled := t.networkLabels(at, r)
	space := derive.Object{Name: at.space}
	namespace, _ := derive.Get(r, t.Namespaces, space)
	switch {
	case !f.Networks.Matches(set) && len(out.Networks) > 0:
	case !f.Networks.Matches(set):
		ps.Add(out.Object, "spec.virtualNetworkSelector", reasonSelectsNothing, "it selects no network that is served: give "+
			"VirtualNetwork "+contrailv4.DefaultPodNetwork+" of its Namespace labels that it selects, or the Namespace if "+
			"there is no such object, or a VirtualNetwork with a Subnet")
	case !namespace.Isolated && !labelled && len(out.Networks) > 0: // labels of the Namespace, and no object
	case !namespace.Isolated:
		ps.Add(out.Object, "metadata.namespace", reasonNotIsolated,
			"the Pods of Namespace "+key.Namespace+" are in the default "+
				"network, which no router joins: label the Namespace "+LabelIsolated+"=true")
	default:
		network, spans := t.spans(space, r)
		_, agreed := t.agreed(space, r)
		switch {
		case !spans:
			out.Networks = append(out.Networks, IsolatedName(at.space))
			return true
		case !agreed && t.copiedHere(space, r):
			return true
		default:
			ps.Add(out.Object, "metadata.namespace", reasonInTenantNetwork, "the Pods of Namespace "+key.Namespace+" are in "+
				"TenantNetwork "+network+", which no router of this cluster joins: "+t.elsewhere(key.Namespace, network, r))
		}
	}
	return false
}

// elsewhere returns how to join a Namespace that is in a network of several clusters.
func (o Objects) elsewhere(namespace, network string, r *derive.Reader) string {
	if _, agreed := o.agreed(derive.Object{Name: namespace}, r); !agreed {
		return "create the router in Namespace " + network + " of the central cluster"
	}
	return "use a NetworkConnection in the leader, or remove the annotation " + AnnotationNetwork
}

// IsolatedName returns the name of the network of an isolated Namespace.
func IsolatedName(namespace string) Name { return Name{Door: doorIsolated, Name: namespace} }

// networkLabels returns the labels of a Namespace's network, and whether they are labels of a VirtualNetwork. Without
// such an object they are the Namespace's labels: in CN2 the object is made automatically, and users only label
// Namespaces.
func (t *routerTables) networkLabels(at site, r *derive.Reader) (set labels.Set, object bool) {
	if n, ok := at.network(contrailv4.DefaultPodNetwork, r); ok {
		return n.Labels, true
	}
	set, _ = derive.Get(r, t.Labels, derive.Object{Name: at.namespace})
	return set, false
}

// imports adds the routers that a router imports, sorted.
func (t *routerTables) imports(own derive.Object, imports []ImportFacts, r *derive.Reader, out *Router,
	ps *problem.List,
) {
	s := newSearch(t, &t.here, own, r)
	copies := t.newCopySearch(own, r)
	for at, i := range imports {
		candidates, ok := s.candidates(i)
		if !ok {
			ps.Add(out.Object, i.Field, reasonTooManyRouters,
				fmt.Sprintf("it and the %d imports after it do not count: they would be "+
					"compared with too many routers: select Namespaces by %s", len(imports)-at-1, corev1.LabelMetadataName))
			break
		}
		selected := s.selected(i, candidates)
		inCopies, known := copies.selects(i)
		switch {
		case selected || !known || inCopies && copies.count:
		case inCopies:
			ps.Add(out.Object, i.Field, reasonNoCopy, "it selects routers in copies of Namespaces alone, and Namespace "+
				own.Namespace+" has no copy here, so nothing is joined: let this cluster be a member of its ClusterSet with the "+
				"clusterID of the leader, and create a Kubemanager for it, or correct the selectors")
		default:
			ps.Add(out.Object, i.Field, reasonSelectsNothing, "it selects no other router: correct its selectors, or create "+
				"the router")
		}
	}
	out.Imports = inTurn(s.found)
	all := slices.Clone(out.Imports)
	if copies.count && len(copies.found) > 0 { // the leader takes both in turn
		both := maps.Clone(s.found)
		maps.Copy(both, copies.found)
		all = inTurn(both)
	}
	if n := len(all); n > maxImports {
		all = all[:maxImports]
		ps.Add(out.Object, "spec.import", reasonTooManyRouters,
			fmt.Sprintf("it selects %d routers, and does not import the last "+
				"%d of them (one of each Namespace is first, the oldest ones): narrow the selectors", n, n-maxImports))
	}
	out.Imports = slices.Clone(out.Imports[:min(len(out.Imports), maxImports)])
	slices.SortFunc(out.Imports, Name.Compare)
	for _, name := range all {
		if _, copied := copies.found[derive.Object{Namespace: name.Namespace, Name: name.Name}]; copied && copies.count {
			out.InCopies = append(out.InCopies, name)
		}
	}
	slices.SortFunc(out.InCopies, Name.Compare)
}

// inTurn returns the names of routers in turns: the oldest router of each Namespace, then the second oldest of each,
// and so on. Within a turn, routers are ordered by age. So a Namespace with many routers does not displace other
// Namespaces.
func inTurn(found map[derive.Object]RouterFacts) []Name {
	byAge := slices.SortedFunc(maps.Keys(found), func(a, b derive.Object) int {
		return cmp.Or(cmp.Compare(found[a].Created, found[b].Created), a.Compare(b))
	})
	turns, of := make(map[derive.Object]int, len(found)), map[string]int{}
	for _, k := range byAge {
		turns[k] = of[k.Namespace]
		of[k.Namespace]++
	}
	slices.SortStableFunc(byAge, func(a, b derive.Object) int { return cmp.Compare(turns[a], turns[b]) })
	out := make([]Name, 0, len(byAge))
	for _, k := range byAge {
		out = append(out, RouterName(k))
	}
	return out
}

// search finds the routers that one router imports.
type search struct {
	*routerTables
	*routerPool
	own        derive.Object
	r          *derive.Reader
	left, wide int // of maxCompared and maxWide
	all        []derive.Row[derive.Object, RouterFacts]
	found      map[derive.Object]RouterFacts
}

func newSearch(t *routerTables, in *routerPool, own derive.Object, r *derive.Reader) *search {
	return &search{routerTables: t, routerPool: in, own: own, r: r, left: maxCompared, wide: maxWide,
		found: map[derive.Object]RouterFacts{}}
}

// selected adds the other routers that an import selects. It reports whether there is one.
func (s *search) selected(i ImportFacts, candidates []derive.Row[derive.Object, RouterFacts]) (one bool) {
	for _, row := range candidates {
		if row.Key == s.own || !i.Routers.Matches(row.Value.Labels) {
			continue
		}
		if i.Namespaces != nil {
			set, _ := derive.Get(s.r, s.Labels, derive.Object{Name: row.Key.Namespace})
			if !i.Namespaces.Matches(set) {
				continue
			}
		}
		s.found[row.Key], one = row.Value, true
	}
	return one
}

// candidates returns the routers that an import may select. It reads as few as possible. If there are too many, it
// returns false.
func (s *search) candidates(i ImportFacts) (out []derive.Row[derive.Object, RouterFacts], ok bool) {
	index, under, narrow := s.narrow(i)
	left := s.left
	for _, one := range under {
		if left -= 1 + derive.Count(s.r, index, one); left < 0 {
			break
		}
	}
	if narrow && left >= 0 {
		s.left = left
	} else if s.wide--; s.wide < 0 {
		return nil, false
	}
	if !narrow {
		if s.all == nil {
			s.all = derive.All(s.r, s.counting)
		}
		return s.all, true
	}
	for _, one := range under {
		out = append(out, derive.List(s.r, index, one)...)
	}
	return out, true
}

// narrow returns an index and keys. Together these keys find all routers that an import may select. If no index suits
// the import, it returns false.
func (s *search) narrow(i ImportFacts) (*derive.Index[derive.Name, derive.Object, RouterFacts], []derive.Name, bool) {
	if i.Namespaces == nil {
		return s.byOwn, []derive.Name{derive.Name(s.own.Namespace)}, true
	}
	namespaces, some := i.Namespaces.Requirements()
	routers, any := i.Routers.Requirements()
	if !some || !any {
		return s.byOwn, nil, true
	}
	for _, one := range namespaces {
		if one.Key() == corev1.LabelMetadataName && equates(one) {
			return s.byOwn, namesOf(one, func(value string) derive.Name { return derive.Name(value) }), true
		}
	}
	for _, one := range routers {
		if equates(one) {
			return s.byLabel, namesOf(one, func(value string) derive.Name { return label(one.Key(), value) }), true
		}
	}
	return nil, nil, false
}

// equates reports whether a requirement lists the values of its key.
func equates(one labels.Requirement) bool {
	return slices.Contains([]selection.Operator{selection.In, selection.Equals, selection.DoubleEquals}, one.Operator())
}

// namesOf returns a name for each value of a requirement, in order.
func namesOf(one labels.Requirement, name func(string) derive.Name) (out []derive.Name) {
	for _, value := range one.ValuesUnsorted() {
		out = append(out, name(value))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
