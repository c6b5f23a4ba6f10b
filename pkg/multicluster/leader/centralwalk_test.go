package leader

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configplanev1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/configplane/v1alpha1"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// centralWalk changes the objects of a central cluster at random.
type centralWalk struct {
	*tables
	rand    *rand.Rand
	objects map[string]client.Object
	version int
}

func newCentralWalk(seed uint64) *centralWalk {
	w := &centralWalk{tables: newTablesOf(true), rand: rand.New(rand.NewPCG(seed, 0)),
		objects: map[string]client.Object{}}
	w.kinds.Loaded()
	w.around.Loaded()
	for _, a := range announced("east", "west") {
		w.put(a)
	}
	w.put(leads("east"))
	return w
}

func (w *centralWalk) pick(list ...string) string { return list[w.rand.IntN(len(list))] }

func objectKey(o client.Object) string {
	return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
}

// put writes an object. An object that is there keeps its UID.
func (w *centralWalk) put(o client.Object) {
	if o.GetNamespace() == "" && !isAround(o) {
		o.SetNamespace("area")
	}
	w.version++
	if have := w.objects[objectKey(o)]; have != nil {
		o.SetUID(have.GetUID())
		o.SetCreationTimestamp(have.GetCreationTimestamp())
	} else if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.version)))
		o.SetCreationTimestamp(metav1.NewTime(noon))
	}
	o.SetResourceVersion(fmt.Sprint(w.version))
	w.objects[objectKey(o)] = o
	if isAround(o) {
		w.around.Set(o.DeepCopyObject().(client.Object))
	} else {
		w.kinds.Set(o.DeepCopyObject().(client.Object))
	}
}

func (w *centralWalk) drop(o client.Object) {
	if w.objects[objectKey(o)] == nil {
		return
	}
	delete(w.objects, objectKey(o))
	if isAround(o) {
		w.around.Delete(o)
	} else {
		w.kinds.Delete(o)
	}
	if n, ok := o.(*corev1.Namespace); ok {
		for _, one := range slices.Collect(maps.Values(w.objects)) {
			if one.GetNamespace() == n.Name {
				w.drop(one)
			}
		}
	}
}

var walkRanges = []string{"10.50.0.0/24", "10.50.0.0/16", "10.50.0.128/25", "10.60.0.0/24", "fd50::/64", "8.8.8.0/24"}

// list returns a random list of a member.
func (w *centralWalk) list(cluster string) *mcv1alpha1.ResourceExport {
	list := exportcheck.Namespaces{ClusterID: w.pick(cluster, cluster, cluster, cluster, "south"), Families: "v4"}
	for _, name := range []string{"a", "b"} {
		if w.rand.IntN(3) == 0 {
			continue
		}
		n := exportcheck.IsolatedNamespace{Name: name, UID: types.UID(w.pick("u", "u", "u", "v")),
			Labels: map[string]string{"ns": cluster + "-" + name}}
		for _, network := range []string{"blue", "red"} {
			if w.rand.IntN(3) == 0 {
				continue
			}
			one := exportcheck.VirtualNetwork{Name: network, UID: types.UID(w.pick("u", "v")), Requested: w.rand.IntN(6) == 0,
				Labels: map[string]string{"net": w.pick(network, "x")}}
			for range w.rand.IntN(3) {
				if text := w.pick(walkRanges...); !slices.Contains(one.CIDRs, text) {
					one.CIDRs = append(one.CIDRs, text)
				}
			}
			slices.Sort(one.CIDRs)
			n.VirtualNetworks = append(n.VirtualNetworks, one)
		}
		list.Namespaces = append(list.Namespaces, n)
	}
	return listOf(cluster, list)
}

// step changes one object, or does some of the steps.
func (w *centralWalk) step() {
	cluster := w.pick("east", "west")
	space := "km-" + cluster + "-" + cluster + "-" + w.pick("a", "b")
	object := client.Object(w.list(cluster))
	switch w.rand.IntN(14) {
	case 0, 1, 2, 3, 4:
		w.obey(func() bool { return w.rand.IntN(2) == 0 })
		return
	case 5:
		object = manager("km-"+cluster, cluster, 1)
	case 6, 10:
		from := w.pick("east-a", "west-a", "west-b")
		if w.rand.IntN(3) == 0 { // in the central cluster itself
			space, from = w.pick("a", "b"), w.pick("west-a", "west-b")
		}
		v := router(space, w.pick("r1", "r2"), "mesh", w.pick("r1", "r2"), from)
		if w.rand.IntN(2) == 0 {
			v.Spec.VirtualNetworkSelector.MatchLabels = map[string]string{"net": w.pick("blue", "red")}
		}
		object = v
	case 7:
		if object = client.Object(info(cluster, "10.96.0.0/12", w.pick("10.10.0.0/16", "10.50.0.0/16"))); cluster == "west" {
			object = info(cluster, "10.128.0.0/12", "10.11.0.0/16")
		}
	case 9:
		w.ownSpace()
		return
	case 11: // in the central cluster and in a copy, with imports of each other
		for _, v := range []*contrailv4.VirtualNetworkRouter{router("a", "r1", "mesh", "r2", "west-a"),
			router("km-west-west-a", "r2", "mesh", "r1", "east-a")} {
			if w.objects[objectKey(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v.Namespace}})] != nil {
				w.put(v)
			}
		}
		return
	case 8: // of a user
		n := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: w.pick("blue", "green"),
			Labels: map[string]string{"net": w.pick("blue", "x")}}}
		if w.rand.IntN(3) > 0 {
			n.Spec.V4SubnetReference = &contrailv4.ResourceReference{Name: w.pick("s1", "s2")}
		}
		object = n
	case 12:
		object = &contrailv4.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: w.pick("s1", "s2")},
			Spec: contrailv4.SubnetSpec{CIDR: w.pick(append(walkRanges, "ten")...)}}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: object.GetNamespace()}}
	switch {
	case w.rand.IntN(4) == 0:
		w.drop(object)
	case isAround(object) && object.GetNamespace() != "contrail" && w.objects[objectKey(namespace)] == nil:
	default:
		w.put(object)
	}
}

// ownSpace changes a Namespace of the central cluster, or its network.
func (w *centralWalk) ownSpace() {
	n := ownSpace("east", w.pick("a", "b"))
	n.UID, n.Labels[tenant.LabelIsolated] = types.UID(w.pick("u", "u", "u", "v")), w.pick("true", "true", "true", "false")
	network := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: n.Name,
		Name: w.pick(contrailv4.DefaultPodNetwork, "blue", "red"), Labels: map[string]string{"net": w.pick("blue", "red")}}}
	switch there := w.objects[objectKey(n)] != nil; {
	case there && w.rand.IntN(2) == 0:
		w.put(network)
	case there && w.rand.IntN(2) == 0:
		w.drop(network)
	case there && w.rand.IntN(4) == 0:
		w.drop(n)
	default:
		w.put(n)
	}
}

// joinsOwn reports whether networks have other joins without routers in Namespaces of the central cluster.
func (w *centralWalk) joinsOwn() bool {
	var others []client.Object
	for _, o := range w.objects {
		if _, ok := o.(*contrailv4.VirtualNetworkRouter); !ok || strings.HasPrefix(o.GetNamespace(), "km-") {
			others = append(others, o)
		}
	}
	return !reflect.DeepEqual(w.networks.joins.All(), centralTables(true, others...).networks.joins.All())
}

// meta does a step of a copy.
func (w *centralWalk) meta(o client.Object, s *copyStep) {
	switch s.Verb {
	case remove:
		w.drop(o)
		return
	case update:
		o = w.objects[objectKey(o)].DeepCopyObject().(client.Object)
	}
	labels, annotations := maps.Clone(o.GetLabels()), maps.Clone(o.GetAnnotations())
	if labels == nil {
		labels, annotations = map[string]string{}, map[string]string{}
	}
	for _, key := range s.Gone {
		delete(labels, key)
	}
	maps.Copy(labels, s.Labels)
	maps.Copy(annotations, s.Annotations)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	w.put(o)
}

// obey does chosen steps, and reports whether there were any.
func (w *centralWalk) obey(chosen func() bool) (some bool) {
	do := func(o client.Object, k derive.Object, f func(client.Object)) {
		if some = true; chosen() {
			o.SetNamespace(k.Namespace)
			o.SetName(k.Name)
			f(o)
		}
	}
	for _, row := range w.central.namespaceSteps.All() {
		do(&corev1.Namespace{}, row.Key, func(o client.Object) { w.meta(o, row.Value) })
	}
	for _, row := range w.central.virtualSteps.All() {
		do(&contrailv4.VirtualNetwork{}, row.Key, func(o client.Object) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: row.Key.Namespace}}
			if w.objects[objectKey(namespace)] != nil { // it may have been deleted a moment ago
				w.meta(o, row.Value)
			}
		})
	}
	for _, row := range w.central.tenantSteps.All() {
		do(&tombolov1alpha1.TenantNetwork{}, row.Key, func(o client.Object) {
			if row.Value.Verb == remove {
				w.drop(o)
				return
			}
			o.SetLabels(map[string]string{tenant.LabelCopy: "true"})
			w.put(o)
		})
	}
	for _, row := range w.networks.networkSteps.All() {
		do(&tombolov1alpha1.TenantNetwork{}, row.Key, func(o client.Object) {
			if have := w.objects[objectKey(o)]; have != nil {
				n := have.DeepCopyObject().(*tombolov1alpha1.TenantNetwork)
				n.Status = row.Value.Status
				w.put(n)
			}
		})
	}
	for _, row := range w.central.virtualStatus.All() {
		do(&contrailv4.VirtualNetwork{}, row.Key, func(o client.Object) {
			if have := w.objects[objectKey(o)]; have != nil {
				n := have.DeepCopyObject().(*contrailv4.VirtualNetwork)
				n.Status = contrailv4.VirtualNetworkStatus{}
				w.status(row.Value, n, &n.Status)
			}
		})
	}
	for _, row := range w.central.subnetSteps.All() {
		do(&contrailv4.Subnet{}, row.Key, func(o client.Object) {
			if have := w.objects[objectKey(o)]; have != nil {
				n := have.DeepCopyObject().(*contrailv4.Subnet)
				w.status(row.Value, n, &n.Status)
			}
		})
	}
	for _, row := range w.central.managerSteps.All() {
		do(&configplanev1alpha1.Kubemanager{}, row.Key, func(o client.Object) {
			n := w.objects[objectKey(o)].DeepCopyObject().(*configplanev1alpha1.Kubemanager)
			w.status(row.Value, n, &n.Status)
		})
	}
	for _, row := range w.central.routerSteps.All() {
		do(&contrailv4.VirtualNetworkRouter{}, row.Key, func(o client.Object) {
			if have := w.objects[objectKey(o)]; have != nil {
				n := have.DeepCopyObject().(*contrailv4.VirtualNetworkRouter)
				w.status(row.Value, n, &n.Status)
			}
		})
	}
	return some
}

func (w *centralWalk) status(s statusStep, o client.Object, to any) {
	if err := json.Unmarshal([]byte(s.Status), to); err != nil {
		panic(err)
	}
	w.put(o)
}

// keeps fails if a network loses a range that its status has and its cluster still lists, or if two networks have
// addresses of one range.
func (w *centralWalk) keeps(t *testing.T) {
	t.Helper()
	type has struct {
		network string
		p       netip.Prefix
	}
	var all []has
	for _, row := range w.networks.ranges.All() {
		for _, text := range row.Value.CIDRs {
			p := netip.MustParsePrefix(text)
			for _, other := range all {
				if other.network != row.Key.Name && other.p.Overlaps(p) {
					t.Errorf("%s has %s, and %s has %s", row.Key.Name, p, other.network, other.p)
				}
			}
			all = append(all, has{row.Key.Name, p})
		}
	}
	for _, o := range w.objects {
		n, ok := o.(*tombolov1alpha1.TenantNetwork)
		if !ok {
			continue
		}
		ranges, _ := w.networks.ranges.Get(derive.ObjectOf(n))
		for _, text := range n.Status.CIDRs {
			p := netip.MustParsePrefix(text)
			refused := slices.ContainsFunc(ranges.Refused, func(f refusedRange) bool {
				return strings.Contains(f.Words, text+" overlaps a range of VirtualNetwork")
			})
			if refused && !slices.Contains(ranges.CIDRs, p.String()) {
				t.Errorf("%s loses %s to another VirtualNetwork: %v", n.Name, p, ranges)
			}
		}
	}
}

// TestCentralWalk changes a central cluster at random. After each step the tables equal an evaluation from nothing. No
// VirtualNetwork takes a range from another one. Once all steps are done, no step is left.
//
//tombolo:unraced
func TestCentralWalk(t *testing.T) {
	joined, requested, own := 0, 0, 0
	for seed := range uint64(18) {
		w := newCentralWalk(*walkSeed + seed)
		for step := range *walkSteps / 4 {
			w.step()
			w.engine.Pass()
			want := centralLines(slices.Collect(maps.Values(w.objects))...)
			if have := w.centralLines(); !slices.Equal(have, want) {
				t.Fatalf("step %d of seed %d:\n\t%s\nfrom nothing:\n\t%s", step, *walkSeed+seed, strings.Join(have, "\n\t"),
					strings.Join(want, "\n\t"))
			}
			for _, line := range want {
				if strings.Contains(line, "joined with") && strings.Contains(line, " at [") {
					joined++
				}
				if strings.Contains(line, " requests ") {
					requested++
				}
			}
			if step%4 == 0 && w.joinsOwn() {
				own++
			}
			if w.keeps(t); t.Failed() {
				t.Fatalf("step %d of seed %d", step, *walkSeed+seed)
			}
		}
		for range 20 {
			w.obey(func() bool { return true })
			w.engine.Pass()
		}
		if lines := w.centralLines(); len(lines) > 0 {
			t.Fatalf("seed %d: steps are left:\n\t%s", *walkSeed+seed, strings.Join(lines, "\n\t"))
		}
	}
	t.Logf("%d joined, %d requested, %d states with joins of own Namespaces", joined, requested, own)
	if joined < 20 || requested < 20 || own < 5 {
		t.Error("so few networks are joined, or are requested: the walk shows nothing")
	}
}
