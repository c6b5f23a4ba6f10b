package leader

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/retry"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 1, "seed of walks")
	walkSteps = flag.Int("walk.steps", 1000, "steps of TestWalkArea")
)

// area is a Common Area whose tables go from one state to the next, with a clock.
type area struct {
	described
	clock *clock
	now   time.Time
}

func newArea() *area {
	a := &area{described: newDescribed()}
	a.clock = newClock(a.tables)
	a.clock.watch(func() time.Time { return a.now })
	return a
}

// is makes a view the present state, and returns the desired state for it.
func (a *area) is(v View) Desired {
	a.now = v.Now
	a.kinds.Fill(v.objects()...)
	a.settle()
	return a.desired(v.Now)
}

// settle runs the clock and the tables in turn until nothing changes.
func (a *area) settle() {
	for range 5 {
		a.engine.Pass()
		a.clock.tick(a.now)
	}
	a.engine.Pass()
}

// copyRows fills a source with the rows of another one.
func copyRows[K derive.Key[K], V any](to, from *derive.Source[K, V]) {
	rows := map[K]V{}
	for _, row := range from.All() {
		rows[row.Key] = row.Value
	}
	to.Replace(rows)
	to.Loaded()
}

// again are new tables with the same sources.
func (t described) again() described {
	n := newDescribed()
	copyRows(n.facts.sets, t.facts.sets)
	copyRows(n.facts.clusterClaims, t.facts.clusterClaims)
	copyRows(n.facts.accounts, t.facts.accounts)
	copyRows(n.facts.announcements, t.facts.announcements)
	copyRows(n.facts.exports, t.facts.exports)
	copyRows(n.facts.written, t.facts.written)
	copyRows(n.facts.imports, t.facts.imports)
	copyRows(n.facts.liveness, t.facts.liveness)
	copyRows(n.facts.overdue, t.facts.overdue)
	copyRows(n.facts.held, t.facts.held)
	copyRows(n.facts.uses, t.facts.uses)
	copyRows(n.facts.refused, t.facts.refused)
	copyRows(n.facts.numbers, t.facts.numbers)
	copyRows(n.networks.networks, t.networks.networks)
	copyRows(n.networks.connections, t.networks.connections)
	copyRows(n.networks.networkStatus, t.networks.networkStatus)
	copyRows(n.networks.connectionsStatus, t.networks.connectionsStatus)
	n.engine.Pass()
	return n
}

// state is the content of all result tables.
type state struct {
	Imports    []derive.Row[derive.Object, importStep]
	Exports    []derive.Row[derive.Object, *exportStep]
	Announces  []derive.Row[derive.Object, announceStep]
	Accounts   []derive.Row[derive.Object, accountStep]
	Sets       []derive.Row[derive.Name, setStep]
	Conditions []derive.Row[derive.Object, mcv1alpha1.ResourceExportCondition]
	Services   []derive.Row[derive.Object, jointService]
	Endpoints  []derive.Row[derive.Object, joint]
	Claims     []derive.Row[derive.Name, claimed]
	Labels     []derive.Row[derive.Object, labelled]
	Policies   []derive.Row[derive.Object, joint]
	States     []derive.Row[derive.Object, policyState]
	Addresses  []derive.Row[derive.Object, addressed]
	Networks   []derive.Row[derive.Object, *tombolov1alpha1.TenantNetwork]
	Connected  []derive.Row[derive.Object, *tombolov1alpha1.NetworkConnection]
	Problems   string
}

func (t described) state() state {
	return state{t.steps.importSteps.All(), t.steps.exportSteps.All(), t.steps.announceSteps.All(),
		t.steps.accountSteps.All(), t.steps.setSteps.All(), t.conditions.All(),
		t.services.All(), t.endpoints.All(), t.claiming.claims.All(), t.labels.All(), t.ofPolicies.policies.All(),
		t.ofPolicies.policyStates.All(), t.addresses.All(), t.networks.networkSteps.All(),
		t.networks.connectionSteps.All(), fmt.Sprint(t.engine.Problems())}
}

var diffable = cmp.Options{cmp.AllowUnexported(object{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}

// walker changes an area at random.
type walker struct {
	*area
	rand    *rand.Rand
	version int
}

func (w *walker) pick(list ...string) string { return list[w.rand.IntN(len(list))] }

func (w *walker) meta(name string) metav1.ObjectMeta {
	w.version++
	m := metav1.ObjectMeta{Namespace: "area", Name: name, UID: types.UID(fmt.Sprint(w.version)),
		ResourceVersion:   fmt.Sprint(w.version),
		CreationTimestamp: metav1.NewTime(noon.Add(-time.Duration(w.rand.IntN(5)) * time.Minute))}
	if w.rand.IntN(6) == 0 {
		m.DeletionTimestamp = &metav1.Time{Time: w.now}
	}
	return m
}

// step changes one thing.
func (w *walker) step() {
	id := w.pick("east", "west", "south", "flat")
	key := func(name string) derive.Object { return derive.Object{Namespace: "area", Name: name} }
	switch w.rand.IntN(14) {
	case 0, 1, 2, 3:
		w.export(id)
	case 12, 13:
		w.network(id)
	case 4: // the API server does the leader's writes
		w.obey()
	case 5:
		w.obey()
	case 6:
		a := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: w.meta(multicluster.AnnounceName(id)), ClusterID: id}
		a.Annotations = map[string]string{multicluster.AnnotationAnnouncedBy: w.pick("one", "two", id)}
		if w.rand.IntN(2) == 0 {
			a.Finalizers = []string{announceFinalizer(a)}
		}
		w.facts.announcements.Set(key(a.Name), announceFacts(a))
	case 7:
		w.facts.announcements.Delete(key(multicluster.AnnounceName(id)))
	case 8: // a heartbeat
		if a, ok := w.facts.announcements.Get(key(multicluster.AnnounceName(id))); ok {
			w.version++
			a.Version, a.Touched = fmt.Sprint(w.version), fmt.Sprint(w.version)
			w.facts.announcements.Set(key(multicluster.AnnounceName(id)), a)
		}
	case 9:
		w.now = w.now.Add(time.Duration(w.rand.IntN(3)) * []time.Duration{time.Second, time.Minute, time.Hour,
			13 * time.Hour}[w.rand.IntN(4)])
		w.clock.tick(w.now)
	case 10:
		account := serviceAccount(w.pick("one", "two"), w.pick("", "", "east", "west"))
		w.facts.accounts.Set(key(account.Name), accountFacts(account))
	case 11:
		s := set("set", "north", "north")
		s.Annotations = map[string]string{multicluster.AnnotationRangesPrefix + id: w.pick("10.0.0.0/8", "10.1.0.0/16", "x")}
		w.facts.sets.Set(key("set"), s)
		w.facts.refused.Set(key("default-web-service"), w.pick("", "too many"))
	}
}

// export writes or deletes an export of a member.
func (w *walker) export(id string) {
	namespace, name := w.pick("default", "a", "a-b"), w.pick("web", "b-c", "c")
	var re *mcv1alpha1.ResourceExport
	switch w.rand.IntN(12) {
	case 10, 11:
		re = podAddresses(id, w.pick("10.1.0.1", "10.2.0.1", "10.4.0.1", "127.0.0.1"))
	case 7, 8:
		re = policyExport(w.pick("one", "two", "three"),
			w.pick(multicluster.AntreaClusterNetworkPolicyKind, multicluster.NetworkPolicyKind,
				multicluster.ClusterNetworkPolicyKind),
			w.pick("strict", "web"), w.pick(acnpSpec, acnpOther, npSpec, cnpSpec), 0)
	case 9:
		re = policyReport(id, fmt.Sprintf(`{"strict-antreaclusternetworkpolicy":{"hash":%q,"problem":%q}}`,
			multicluster.LabelHash(`{"tier":"securityops","priority":1}`), w.pick("", "no Tier")))
	case 0, 1:
		re = service(id, namespace, name, 0, int32(80+w.rand.IntN(2)))
		re.Spec.Service.ServiceSpec.Ports[0].Name = w.pick("", "http", "https")
		if f := (exportcheck.ServiceFacts{Created: int64(w.rand.IntN(3)), Headless: w.rand.IntN(6) == 0,
			IPFamilies:          []corev1.IPFamily{corev1.IPv4Protocol},
			TrafficDistribution: w.pick("", "PreferClose", "a b"),
			Metadata:            exportcheck.Metadata{Labels: map[string]string{"a": w.pick("b", "c")}}}); w.rand.IntN(3) > 0 {
			re.Annotations = map[string]string{multicluster.AnnotationService: f.String()}
		}
	case 2, 3:
		re = endpoints(id, namespace, name, w.pick("10.1.0.1", "10.2.0.1", "127.0.0.1", "10.2.0.2"))
		re.Spec.Endpoints.Subsets[0].Ports = []corev1.EndpointPort{{Name: w.pick("", "http", "https"), Port: 80}}
	case 4:
		re = clusterInfo(id, w.pick("10.1.0.0/16", "10.2.0.0/16", "10.2.0.0/24", "10.3.0.0/16"))
		if w.rand.IntN(3) > 0 { // otherwise its Pods may be anywhere
			withPods(re, w.pick("10.4.0.0/16", "10.1.0.0/16", "x"))
		}
	case 5, 6:
		re = label(id, w.pick("ns:a=b&pod:app=web", "ns:a=b&pod:app=db", "ns:a=b&pod:", "ns:a=c&pod:app=web", "x"))
	}
	key := derive.Object{Namespace: "area", Name: re.Name}
	if w.rand.IntN(4) == 0 {
		w.facts.exports.Delete(key)
		w.facts.written.Delete(key)
		return
	}
	finalizers, annotations := re.Finalizers, re.Annotations
	re.ObjectMeta = w.meta(re.Name)
	re.Finalizers, re.Annotations = finalizers, annotations
	now := writtenFacts(re)
	if old, ok := w.facts.written.Get(key); ok {
		now.Conditions = old.Conditions
	}
	w.facts.exports.Set(key, exportFacts(re))
	w.facts.written.Set(key, now)
}

// network writes or deletes a TenantNetwork or a NetworkConnection.
func (w *walker) network(id string) {
	names := []string{"a", "b", "c", "d"}
	some := func() []string {
		w.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		return slices.Clone(names[:w.rand.IntN(len(names))])
	}
	n := &tombolov1alpha1.TenantNetwork{ObjectMeta: w.meta(w.pick(names...))}
	n.UID = types.UID(w.pick("uid-14528", "uid-24229", "uid-1")) // the first two have one number
	n.Spec.Members = []tombolov1alpha1.TenantNetworkMember{{ClusterID: id}, {ClusterID: "east"}}
	n.Spec.Members[0].NamespaceSelector.MatchLabels = map[string]string{w.pick("a", "not/a/key"): "b"}
	n.Spec.Connections = some()
	c := &tombolov1alpha1.NetworkConnection{ObjectMeta: w.meta(w.pick(names...))}
	if c.Spec.Mesh = some(); w.rand.IntN(2) == 0 {
		c.Spec = tombolov1alpha1.NetworkConnectionSpec{Hubs: some(), Spokes: some()}
	}
	object := []client.Object{n, c}[w.rand.IntN(2)]
	if w.rand.IntN(5) == 0 {
		w.kinds.Delete(object)
		return
	}
	have, _ := w.networks.networkStatus.Get(keyOf(n))
	connected, _ := w.networks.connectionsStatus.Get(keyOf(c))
	n.Status, c.Status = have.Status, connected.Status
	w.kinds.Set(object)
}

// obey does some of the steps.
func (w *walker) obey() { w.obeySome(func() bool { return w.rand.IntN(2) == 0 }) }

func (w *walker) obeySome(chosen func() bool) {
	for _, row := range w.steps.importSteps.All() {
		if !chosen() {
			continue
		}
		w.version++
		switch row.Value.Verb {
		case remove, handOver:
			w.facts.imports.Delete(row.Key)
		default:
			ri := row.Value.Want.DeepCopy()
			ri.ResourceVersion = fmt.Sprint(w.version)
			switch row.Value.Verb { // an API server takes a status by itself alone
			case create:
				ri.Status = mcv1alpha1.ResourceImportStatus{}
			case update:
				ri.Status = row.Value.Have.Status
			}
			setTimes(&ri.Status, w.now)
			w.facts.imports.Set(row.Key, ri)
		}
	}
	for _, row := range w.steps.exportSteps.All() {
		if !chosen() {
			continue
		}
		w.version++
		now := row.Value.Have
		now.Version = fmt.Sprint(w.version)
		if row.Value.Waits {
			continue
		}
		switch row.Value.Verb {
		case remove, release:
			w.facts.exports.Delete(row.Key)
			w.facts.written.Delete(row.Key)
		default:
			now.Conditions = []mcv1alpha1.ResourceExportCondition{conditionAt(row.Value.Condition, now.Conditions, w.now)}
			w.facts.written.Set(row.Key, now)
		}
	}
	for _, row := range w.networks.networkSteps.All() {
		if chosen() {
			have, _ := w.networks.networkStatus.Get(row.Key)
			have.Status = row.Value.Status
			w.networks.networkStatus.Set(row.Key, have)
		}
	}
	for _, row := range w.networks.connectionSteps.All() {
		if chosen() {
			have, _ := w.networks.connectionsStatus.Get(row.Key)
			have.Status = row.Value.Status
			w.networks.connectionsStatus.Set(row.Key, have)
		}
	}
	for _, row := range w.steps.setSteps.All() {
		w.facts.sets.Set(derive.Object{Namespace: "area", Name: row.Value.Want.Name}, row.Value.at(w.now))
	}
}

// obeyAll does all steps.
func (w *walker) obeyAll() {
	for _, row := range w.steps.announceSteps.All() {
		a := row.Value.Have
		w.version++
		a.Version = fmt.Sprint(w.version)
		if row.Value.Verb == hold {
			a.Fact = a.Fact.DeepCopy()
			a.Fact.Finalizers = append(a.Fact.Finalizers, announceFinalizer(a.Fact))
			w.facts.announcements.Set(row.Key, a)
		} else {
			w.facts.announcements.Delete(row.Key)
		}
	}
	for _, row := range w.steps.accountSteps.All() {
		w.facts.accounts.Set(row.Key, accountFacts(serviceAccount(row.Key.Name, row.Value.ID)))
	}
	w.obeySome(func() bool { return true })
}

// converge obeys until nothing is left to do.
func (w *walker) converge(t *testing.T) {
	t.Helper()
	for range 20 {
		w.obeyAll()
		w.settle()
	}
	s := w.state()
	left := len(s.Imports) + len(s.Exports) + len(s.Announces) + len(s.Accounts) + len(s.Networks) + len(s.Connected)
	for _, row := range s.Sets {
		if diff := cmp.Diff(row.Value.Have, row.Value.at(w.now)); diff != "" {
			t.Errorf("the ClusterSet is still to be written:\n%s", diff)
		}
	}
	if left > 0 {
		t.Errorf("%d steps are left when everything that they ask for is done again and again:\n%+v\n%+v\n%+v\n%+v\n%v\n%v",
			left, s.Imports, s.Exports, s.Announces, s.Accounts, s.Networks, s.Connected)
	}
}

// sound fails for a function that has failed.
func (w *walker) sound(t *testing.T) {
	t.Helper()
	for _, p := range w.engine.Problems() {
		if p.Reason == derive.ReasonEvaluationFailed {
			t.Fatalf("a function failed: %s", p)
		}
	}
}

func newWalker(seed uint64) *walker {
	w := &walker{area: newArea(), rand: rand.New(rand.NewPCG(seed, 0))}
	w.now = noon
	w.kinds.Loaded()
	return w
}

// TestConverges changes a Common Area at random. Then it does all steps until no step is left.
//
//tombolo:unraced
func TestConverges(t *testing.T) {
	for seed := range uint64(150) {
		w := newWalker(*walkSeed + seed)
		for range 60 {
			w.step()
			w.engine.Pass()
		}
		if w.converge(t); t.Failed() {
			t.Fatalf("-walk.seed %d", *walkSeed+seed)
		}
		w.sound(t)
	}
}

// TestWalkArea changes a Common Area at random. After each step the tables equal an evaluation from nothing. Once all
// steps are done, no step is left.
//
//tombolo:unraced
func TestWalkArea(t *testing.T) {
	w := newWalker(*walkSeed)
	for step := range *walkSteps {
		w.step()
		w.engine.Pass()
		w.engine.Pass() // with the rows that the clock has written
		if want, have := w.again().state(), w.state(); !reflect.DeepEqual(want, have) {
			t.Fatalf("step %d of seed %d: from nothing (-), step by step (+):\n%s", step, *walkSeed,
				cmp.Diff(want, have, diffable))
		}
		w.sound(t)
	}
	w.converge(t)
}

// counted is how often each table was evaluated.
func (t *tables) counted() map[string]uint64 {
	out := map[string]uint64{}
	_, _, tables := t.engine.Stats()
	for _, s := range tables {
		out[s.Name] = s.Evaluated
	}
	return out
}

// TestHeartbeat touches an announcement in a hundred rounds. Only the table of announcements is evaluated, and nothing
// is written.
func TestHeartbeat(t *testing.T) {
	a := newArea()
	v := View{Namespace: "area", Now: noon, ClusterSets: []*mcv1alpha2.ClusterSet{set("set", "north", "north")},
		Announces: announced("east", "west"),
		ResourceExports: []*mcv1alpha1.ResourceExport{service("east", "default", "web", time.Hour, 80),
			endpoints("east", "default", "web", "10.96.0.1"), clusterInfo("east", "10.96.0.0/16")}}
	beat := func(n int) {
		for i, m := range v.Announces {
			m.ResourceVersion = fmt.Sprint(1000*i + n)
			m.Annotations = map[string]string{multicluster.AnnotationTouchTimestamp: fmt.Sprint(n)}
		}
	}
	beat(0)
	a.is(v)
	beat(1) // the first heartbeat is a fact: the members are connected
	v.Now = v.Now.Add(10 * time.Second)
	a.is(v)
	before, steps := a.counted(), a.state()
	for n := range 100 {
		v.Now = v.Now.Add(10 * time.Second)
		beat(2 + n)
		a.is(v)
	}
	after := a.counted()
	for name, n := range after {
		switch {
		case name == "announces" && n-before[name] != 200:
			t.Errorf("announces were evaluated %d times, want once for each of 200 heartbeats", n-before[name])
		case name != "announces" && n != before[name]:
			t.Errorf("table %s was evaluated %d times by heartbeats, want never", name, n-before[name])
		}
	}
	if diff := cmp.Diff(steps, a.state(), diffable); diff != "" {
		t.Errorf("heartbeats change what is to be written:\n%s", diff)
	}
	// Silence is a fact, of the ClusterSet's status alone.
	a.now = v.Now.Add(time.Minute)
	a.settle()
	row, _ := a.steps.setSteps.Get(one)
	if n := row.Want.Status.ReadyClusters; n != 0 {
		t.Errorf("%d members are ready after a minute of silence, want 0", n)
	}
	silent := a.counted()
	for _, name := range []string{"services", "endpoints", "claims", "conditions", "steps of exports",
		"steps of imports"} {
		if silent[name] != after[name] {
			t.Errorf("table %s was evaluated %d times when members fell silent, want never", name, silent[name]-after[name])
		}
	}
}

// TestCost counts the evaluations when one of 200 exports of a Service and its Endpoints changes. The import of the
// export is evaluated. While there is no fault, the other exports are not.
func TestCost(t *testing.T) {
	a := newArea()
	v := View{Namespace: "area", Now: noon, ClusterSets: []*mcv1alpha2.ClusterSet{set("set", "north", "north")}}
	for i := range 100 {
		id := fmt.Sprintf("c%02d", i)
		v.Announces = append(v.Announces, announced(id)...)
		v.ResourceExports = append(v.ResourceExports, service(id, "default", "web", time.Hour, 80),
			endpoints(id, "default", "web", fmt.Sprintf("10.%d.0.1", i)), clusterInfo(id, fmt.Sprintf("10.%d.0.0/16", i)))
	}
	w := &walker{area: a, rand: rand.New(rand.NewPCG(1, 0))}
	a.is(v)
	for len(a.steps.importSteps.All())+len(a.steps.exportSteps.All()) > 0 {
		w.obey()
		a.settle()
	}
	for _, row := range []struct {
		name   string
		change func(*mcv1alpha1.ResourceExport)
		which  int
		want   string
	}{
		{"a label", func(re *mcv1alpha1.ResourceExport) { re.Labels = map[string]string{"a": "b"} }, 0,
			"map[steps of exports:1]"},
		{"Endpoints", func(re *mcv1alpha1.ResourceExport) { re.Spec.Endpoints.Subsets[0].Addresses[0].IP = "10.7.0.2" }, 22,
			"map[endpoints:1 steps of exports:1 steps of imports:1 verdicts on Endpoints:1]"},
		// All exporters of the Service get a report.
		{"ports that others do not have",
			func(re *mcv1alpha1.ResourceExport) { re.Spec.Service.ServiceSpec.Ports[0].Port = 81 }, 21,
			"map[endpoints:1 services:1 steps of exports:100 steps of imports:2 verdicts " +
				"on Endpoints:1 verdicts on Services:1]"},
	} {
		before := a.counted()
		re := v.ResourceExports[row.which].DeepCopy()
		re.Namespace = "area"
		have, _ := a.facts.written.Get(keyOf(re))
		row.change(re)
		now := writtenFacts(re)
		now.Version, now.Conditions = "changed by "+row.name, have.Conditions
		a.facts.exports.Set(keyOf(re), exportFacts(re))
		a.facts.written.Set(keyOf(re), now)
		a.engine.Pass()
		counted := map[string]uint64{}
		for name, n := range a.counted() {
			if n > before[name] && name != "conditions" {
				counted[name] = n - before[name]
			}
		}
		if have := fmt.Sprint(counted); have != row.want {
			t.Errorf("%s evaluates %s, want %s", row.name, have, row.want)
		}
	}
}

// TestNoWriteWithoutFact sends events to a controller that change no fact. It writes nothing.
func TestNoWriteWithoutFact(t *testing.T) {
	c := newController(nil, slog.New(slog.DiscardHandler))
	conditions := describe(c.tables).conditions
	v := View{Namespace: "area", Now: time.Now(), Announces: announced("east"),
		ResourceExports: []*mcv1alpha1.ResourceExport{service("east", "default", "web", time.Hour, 80)}}
	c.tables.kinds.Fill(v.objects()...)
	c.tables.engine.Pass()
	if n := c.queue.Len(); n != 2 { // the import and the condition
		t.Fatalf("%d objects have to be written, want 2", n)
	}
	row, _ := c.tables.steps.importSteps.Get(derive.Object{Namespace: "area", Name: "default-web-service"})
	ri := row.Want.DeepCopy()
	setTimes(&ri.Status, v.Now)
	v.ResourceImports = []*mcv1alpha1.ResourceImport{ri}
	condition, _ := conditions.Get(derive.Object{Namespace: "area", Name: "east-default-web-service"})
	v.ResourceExports[0].Status.Conditions = []mcv1alpha1.ResourceExportCondition{condition}
	c.tables.kinds.Fill(v.objects()...)
	c.tables.engine.Pass()
	if n := c.queue.Len(); n != 0 {
		t.Fatalf("%d objects have to be written when all is as it should be", n)
	}
	for i := range 10 {
		v.ResourceExports[0].ResourceVersion = fmt.Sprint(i)
		v.ResourceExports[0].Labels = map[string]string{"x": fmt.Sprint(i)}
		v.ResourceExports[0].Spec.Service.ServiceSpec.ClusterIP = fmt.Sprintf("10.96.0.%d", i)
		ri = ri.DeepCopy() // the tables hold the one before
		ri.ResourceVersion = fmt.Sprint(i)
		v.ResourceImports = []*mcv1alpha1.ResourceImport{ri}
		v.Announces[0].ResourceVersion = fmt.Sprint(i)
		c.tables.kinds.Fill(v.objects()...)
		c.tables.engine.Pass()
	}
	if n := c.queue.Len(); n != 0 {
		t.Errorf("%d objects have to be written after events without a fact, want none", n)
	}
}

// forgetful accepts new objects, but no watch shows them, since they are deleted at once.
type forgetful struct {
	client.Client
	created chan string
}

func (f forgetful) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	f.created <- o.GetName()
	return nil
}

// TestUndoneBeforeSeen writes an import again that was written and is not there.
func TestUndoneBeforeSeen(t *testing.T) {
	created := make(chan string)
	c := newController(forgetful{created: created}, slog.New(slog.DiscardHandler))
	conditions := describe(c.tables).conditions
	v := View{Namespace: "area", Now: time.Now(), Announces: announced("east"),
		ResourceExports: []*mcv1alpha1.ResourceExport{service("east", "default", "web", time.Hour, 80)}}
	v.ResourceExports[0].Status.Conditions = nil
	c.tables.kinds.Fill(v.objects()...)
	c.tables.engine.Pass()
	condition, _ := conditions.Get(derive.Object{Namespace: "area", Name: "east-default-web-service"})
	// leaves the import to be written
	v.ResourceExports[0].Status.Conditions = []mcv1alpha1.ResourceExportCondition{condition}
	c.tables.kinds.Fill(v.objects()...)
	c.tables.engine.Pass()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.queue.Run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	is := func() {
		t.Helper()
		select {
		case name := <-created:
			if name != "default-web-service" {
				t.Fatalf("%s is created, want default-web-service", name)
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing is created within a minute")
		}
	}
	for range 3 {
		is()
		within(t, "the queue has forgotten it", func(context.Context) bool { return c.queue.Len() == 0 })
		c.writer.again(c.tables)
	}
	is()
}

// TestOfferedAgainBetweenPasses offers steps again while a pass runs. The offer waits for the pass, which may withdraw
// them.
func TestOfferedAgainBetweenPasses(t *testing.T) {
	c := newController(nil, slog.New(slog.DiscardHandler))
	v := View{Namespace: "area", Now: time.Now(), Announces: announced("east"),
		ResourceExports: []*mcv1alpha1.ResourceExport{service("east", "default", "web", time.Hour, 80),
			service("east", "default", "db", time.Hour, 80)}}
	c.tables.kinds.Fill(v.objects()...)
	c.tables.engine.Pass()
	for _, row := range c.tables.steps.importSteps.All() {
		c.queue.Set(retry.Offer{Key: importKey + row.Key.String()}) // the queue takes the step as done
	}
	before := c.queue.Len()
	running, withdrawn := make(chan struct{}), make(chan struct{})
	c.tables.facts.exports.Watch(func([]derive.Change[derive.Object, *export]) {
		close(running)
		<-withdrawn
	})
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { c.tables.engine.Run(ctx) })
	c.tables.facts.exports.Delete(derive.Object{Namespace: "area", Name: "east-default-db-service"})
	<-running
	offered := make(chan struct{})
	go func() {
		defer close(offered)
		c.offerAgain(ctx)
	}()
	time.Sleep(50 * time.Millisecond) // for it to be offered, if it did not wait
	if n := c.queue.Len(); n != before {
		t.Errorf("%d objects are offered in the middle of a pass, want the %d of before", n, before)
	}
	close(withdrawn)
	<-offered
	if n := len(c.tables.steps.importSteps.All()); n != 1 || c.queue.Len() == 0 {
		t.Errorf("%d imports are to be written, %d objects are offered: want one, and some", n, c.queue.Len())
	}
	stop()
	ended.Wait()
}
