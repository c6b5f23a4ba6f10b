package member

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// recorder is an API server that takes every write.
type recorder struct {
	client.Client
	mu    sync.Mutex
	wrote []string
}

func (r *recorder) note(verb string, o client.Object) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote = append(r.wrote, verb+" "+o.GetName())
	return nil
}

func (r *recorder) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return r.note("create", o)
}

func (r *recorder) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	return r.note("delete", o)
}

func (r *recorder) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return r.note("patch", o)
}

func (r *recorder) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.wrote)
}

// joinedController returns a controller that is connected to a leader, has a view in its tables, and sends its writes
// to the leader.
func joinedController(t *testing.T, v View) (*controller, *recorder) {
	t.Helper()
	to := &recorder{}
	c := newController(v.Namespace, v.Config, nil, slog.New(slog.DiscardHandler))
	c.area = &commonArea{area: v.Leader.Area, number: 1, client: to}
	c.tables.load(v)
	c.tables.Pass()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.leaderWrites.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c, to
}

func (c *controller) answers(text string) {
	c.area.mu.Lock()
	c.area.announcement.Error = text
	c.area.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holdWrites()
}

// settled waits until nothing is left to be written to the leader.
func (c *controller) settled(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(waitLimit); c.leaderWrites.Len() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d objects are still to be written", c.leaderWrites.Len())
		}
	}
}

// TestWithdrawnWhileAway removes the endpoints of a Service for a moment while the leader is unavailable. When the
// leader is back, the export of the endpoints is not deleted.
func TestWithdrawnWhileAway(t *testing.T) {
	v := exportingView()
	withOwnExports(&v)
	c, to := joinedController(t, v)
	c.answers("connection refused")
	without := v
	without.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(false)}
	c.tables.update(v, without)
	c.tables.Pass()
	if n := c.leaderWrites.Len(); n != 1 {
		t.Fatalf("%d objects are to be written, want the export of the endpoints that are gone", n)
	}
	time.Sleep(50 * time.Millisecond) // for a writer to take one, if it did
	c.tables.update(without, v)
	c.tables.Pass()
	c.answers("")
	c.settled(t)
	if wrote := to.taken(); len(wrote) > 0 {
		t.Errorf("written when the leader is back: %v, want nothing", wrote)
	}
	// Writes that are still desired are done.
	c.answers("connection refused")
	c.tables.update(v, without)
	c.tables.Pass()
	c.answers("")
	c.settled(t)
	want := []string{"delete east-default-web-endpoints"}
	if wrote := to.taken(); !slices.Equal(wrote, want) {
		t.Errorf("written: %v, want %v", wrote, want)
	}
}

// TestWriteOfAnotherConnection moves to another leader with a Namespace of the same name. A write that was decided for
// the previous leader is not sent to the new one.
func TestWriteOfAnotherConnection(t *testing.T) {
	v := exportingView()
	c, to := joinedController(t, v)
	if n := c.leaderWrites.Len(); n != 2 {
		t.Fatalf("%d objects are to be written, want two exports", n)
	}
	other := &recorder{}
	c.mu.Lock()
	c.area = &commonArea{area: v.Leader.Area, number: 2, client: other}
	c.holdWrites()
	c.mu.Unlock()
	c.settled(t)
	if wrote := append(to.taken(), other.taken()...); len(wrote) > 0 {
		t.Errorf("written: %v, want nothing", wrote)
	}
}

// TestServiceWithEndpoints exports a Service. Its two exports do not wait for each other. A leader that receives the
// Endpoints first waits for the Service before it reports the Service as missing.
func TestServiceWithEndpoints(t *testing.T) {
	c, to := joinedController(t, exportingView())
	c.answers("")
	c.settled(t)
	want := []string{"create east-default-web-endpoints", "create east-default-web-service"}
	wrote := to.taken()
	if slices.Sort(wrote); !slices.Equal(wrote, want) {
		t.Errorf("written: %v, want %v", wrote, want)
	}
}

// TestPendingWaits exports a Service with one write of its status. The condition that the leader does not have the
// export yet is held back until the leader has it. A refusal of Antrea's leader is held back until that leader has
// imported the Service.
func TestPendingWaits(t *testing.T) {
	v := exportingView()
	status := func() (out []string) {
		d, _ := Plan(v)
		for _, w := range d.Change.Local {
			if w.Kind == "ServiceExport" {
				c := conditionText(w.Object.(*mcsv1alpha1.ServiceExport), "Ready")
				out = append(out, fmt.Sprintf("%s after %s", c, offer(w, target{}).Wait))
			}
		}
		return out
	}
	expect(t, "on its way", status(), []string{"False Pending after 2s"})
	withOwnExports(&v)
	expect(t, "the leader has it", status(), []string{"True Exported after 0s"})
	v.Leader.ResourceExports[1].Status.Conditions = []mcv1alpha1.ResourceExportCondition{
		{Type: mcv1alpha1.ResourceExportFailure, Status: corev1.ConditionFalse,
			Reason: "ConvergeFailure", Message: "the Service is not imported yet"}}
	expect(t, "another leader refuses it", status(), []string{"False Failed after 2s"})
	v.Leader.ResourceExports[1].Status.Conditions[0].Message = exportcheck.Refused + "spec.endpoints is missing"
	expect(t, "our leader refuses it", status(), []string{"False Failed after 0s"})
}

// TestNewServiceImport writes the status of a new ServiceImport once. The leader writes the imports of the Service and
// of its Endpoints one after the other.
func TestNewServiceImport(t *testing.T) {
	v := joinedView()
	spec := importOf("default", "db").Spec.ServiceImport.Spec
	si := &mcsv1alpha1.ServiceImport{ObjectMeta: marked("default", "db"), Spec: spec}
	si.Spec.IPs, si.Spec.IPFamilies = []string{"10.97.0.9"}, []corev1.IPFamily{corev1.IPv4Protocol}
	v.ServiceImports = []*mcsv1alpha1.ServiceImport{si}
	v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db")}
	status := func() (out []string) {
		d, _ := Plan(v)
		for _, w := range d.Change.Local {
			if w.Kind == "ServiceImport" {
				o := w.Object.(*mcsv1alpha1.ServiceImport)
				out = append(out, fmt.Sprintf("%s: %d clusters after %s",
					w, len(o.Status.Clusters), offer(w, target{}).Wait))
				si.Status = o.Status
			}
		}
		return out
	}
	const write = "update the status of ServiceImport default/db"
	endpoints := endpointsOf("default", "db", "10.98.0.7")
	before := si.DeepCopy()
	expect(t, "the Service alone", status(), []string{write + ": 0 clusters after 2s"})
	*si = *before
	v.Leader.ResourceImports = append(v.Leader.ResourceImports, endpoints)
	expect(t, "its Endpoints too", status(), []string{write + ": 1 clusters after 0s"})
	v.Leader.ResourceImports = v.Leader.ResourceImports[:1]
	expect(t, "its Endpoints are gone", status(), []string{write + ": 0 clusters after 0s"})
}

// TestDueWritesAreOfferedAgain does the writes to the leader that are due. It does them again after half a minute,
// since no watch has shown them.
func TestDueWritesAreOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, to := joinedController(t, exportingView())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.tables.Run(ctx)
		c.answers("")
		synctest.Wait()
		want := to.taken()
		slices.Sort(want)
		expect(t, "writes", want, []string{"create east-default-web-endpoints", "create east-default-web-service"})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		again := to.taken()[len(want):]
		slices.Sort(again)
		expect(t, "writes again", again, want)
	})
}

// TestPolicyEventsOutliveAConnection creates an Event in the leader although the connection was made again meanwhile.
func TestPolicyEventsOutliveAConnection(t *testing.T) {
	v := joinedView()
	v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{policyImport(multicluster.AntreaClusterNetworkPolicyKind,
		"", "strict", `{"priority":1,"tier":"absent","ingress":[{"action":"Drop"}]}`)}
	c, _ := joinedController(t, v)
	other, area := &recorder{}, v.Leader.Area
	area.Token = "renewed"
	c.mu.Lock()
	c.area = &commonArea{area: area, number: 2, client: other}
	c.holdWrites()
	c.mu.Unlock()
	c.settled(t)
	wrote := other.taken()
	if len(wrote) != 1 || !strings.HasPrefix(wrote[0], "create "+v.Leader.ResourceImports[0].Name+".") {
		t.Errorf("written: %v, want one Event", wrote)
	}
}

// TestRefusalsThatPass writes Events at once about refusals by a leader of Tombolo. For a refusal by another leader it
// writes an Event once the refusal has lasted.
func TestRefusalsThatPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have := 0
		log := problemlog.New(slog.New(slog.DiscardHandler), "")
		warn := func(corev1.ObjectReference, problem.Problem) bool {
			have++
			return true
		}
		r := &reporter{warn: warn, log: log, active: map[problem.Problem]bool{},
			find: func(problem.Object) *corev1.ObjectReference { return &corev1.ObjectReference{} }}
		verdict := func(message string) []problem.Problem {
			v := exportingView()
			withOwnExports(&v)
			v.Leader.ResourceExports[1].Status.Conditions = []mcv1alpha1.ResourceExportCondition{
				{Type: mcv1alpha1.ResourceExportFailure, Status: corev1.ConditionFalse,
					Reason: "ConvergeFailure", Message: message}}
			_, ps := Plan(v)
			return ps
		}
		ours, others := verdict(exportcheck.Refused+"spec.endpoints is missing"), verdict("the Service is not imported yet")
		reports := func(what string, list []problem.Problem, done bool, count int) {
			t.Helper()
			have = 0
			expect(t, what+": all is reported", r.report(list), done)
			expect(t, what+": Events", have, count)
		}
		reports("our leader's", ours, true, 1)
		reports("another leader's", others, false, 0)
		time.Sleep(time.Second)
		reports("it has passed", nil, true, 0)
		time.Sleep(time.Second)
		reports("it comes again", others, false, 0)
		time.Sleep(pendingAfter - time.Millisecond)
		reports("it lasts", others, false, 0)
		time.Sleep(time.Millisecond)
		reports("it has lasted", others, true, 1)
		reports("nothing is new", others, true, 0)
	})
}

// TestGatewaysAreWrittenAtOnce writes a new Gateway without waiting for another one. There may be several Gateways, so
// traffic has a way all the time.
func TestGatewaysAreWrittenAtOnce(t *testing.T) {
	v := joinedView()
	v.Nodes = []*corev1.Node{node("node-2", "192.168.78.2"), node("node-3", "192.168.78.3")}
	old, going := &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", "node-1")},
		&mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", "node-2")}
	going.DeletionTimestamp = &metav1.Time{Time: now}
	v.Gateways = []*mcv1alpha1.Gateway{old, going}
	d, _ := Plan(v)
	var have []string
	for _, w := range d.Change.Local {
		if w.Kind == "Gateway" {
			have = append(have, fmt.Sprintf("%s after %q", w, w.After))
		}
	}
	expect(t, "writes", have,
		[]string{`delete Gateway kube-system/node-1 after ""`, `create Gateway kube-system/node-3 after ""`})
}

// TestVersionsAreRead binds a write to the version that was seen. An event without a fact evaluates only the writes.
func TestVersionsAreRead(t *testing.T) {
	v := joinedView()
	old := &corev1.Service{ObjectMeta: marked("default", "antrea-mc-old")}
	old.ResourceVersion = "5"
	v.Services = []*corev1.Service{old}
	tables := newTables(v.Namespace, v.Config)
	tables.load(v)
	tables.Pass()
	versions := func() (out []string) {
		for _, w := range tables.change().Local {
			if w.Kind == "Service" {
				out = append(out, fmt.Sprint(w.Verb, w.Version))
			}
		}
		return out
	}
	if diff := cmp.Diff([]string{"delete5"}, versions()); diff != "" {
		t.Errorf("writes (-want +have):\n%s", diff)
	}
	old = old.DeepCopy()
	old.ResourceVersion = "6"
	v.Services = []*corev1.Service{old}
	tables.update(v, v)
	tables.Pass()
	if diff := cmp.Diff([]string{"delete6"}, versions()); diff != "" {
		t.Errorf("writes after an event without a fact (-want +have):\n%s", diff)
	}
	if pass, _, _ := tables.Stats(); pass.Evaluated != 1 {
		t.Errorf("%d keys were evaluated, want the one that is to be written", pass.Evaluated)
	}
}

// TestStaleReplica lets a replica write a decision that is older than another replica's write. The API server refuses
// it.
func TestStaleReplica(t *testing.T) {
	t.Parallel()
	server := apiserver.New(t, apiserver.Options{CRDs: []string{"../../../deploy/crds"}})
	to, err := client.New(rest.CopyConfig(server.Config), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	seen := &corev1.Service{ObjectMeta: marked("default", "antrea-mc-db"),
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if err := to.Create(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	now := seen.DeepCopy()
	now.Annotations["x"] = "another replica was here"
	if err := to.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	have := seen.DeepCopy()
	have.ResourceVersion = ""
	want := have.DeepCopy()
	want.Spec.Ports[0].Port = 81
	for _, w := range []writes.Write{
		{Verb: writes.Delete, Kind: "Service", Object: have},
		{Verb: writes.Update, Kind: "Service", Have: have, Object: want},
	} {
		w.Version = seen.ResourceVersion
		if _, err := write(t.Context(), to, w); !apierrors.IsConflict(err) {
			t.Errorf("%s of an old version: %v, want a conflict", w, err)
		}
		w.Version = now.ResourceVersion
		if w.Verb == writes.Delete {
			continue
		}
		if _, err := write(t.Context(), to, w); err != nil {
			t.Errorf("%s of the present version: %v", w, err)
		}
	}
}

// TestFamiliesOnAPIServer creates derived Services on an API server with two families, and changes the families of
// Services that exist.
func TestFamiliesOnAPIServer(t *testing.T) {
	t.Parallel()
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	server := apiserver.New(t,
		apiserver.Options{CRDs: []string{"../../../deploy/crds"}, ServiceCIDR: "fd00:97::/112,10.97.0.0/16"})
	to, err := client.New(rest.CopyConfig(server.Config), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	v := joinedView()
	ranges, err := discoverServiceCIDRs(t.Context(), to, to, "kube-system")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "ranges", ranges, []string{"10.97.0.0/16", "fd00:97::/112"})
	v.ServiceCIDR, v.ServiceCIDRs = ranges[0], serviceCIDRs(ranges...)
	for _, row := range []struct {
		name                 string
		have, exported, want []corev1.IPFamily
		write                string
	}{
		{name: "new", exported: []corev1.IPFamily{v4}, want: []corev1.IPFamily{v4}, write: "create"},
		{name: "both", exported: []corev1.IPFamily{v6, v4}, want: []corev1.IPFamily{v6, v4}, write: "create"},
		{name: "grows", have: []corev1.IPFamily{v4}, exported: []corev1.IPFamily{v4, v6},
			want: []corev1.IPFamily{v4, v6}, write: "update"},
		{name: "shrinks", have: []corev1.IPFamily{v6, v4}, exported: []corev1.IPFamily{v6}, want: []corev1.IPFamily{v6},
			write: "update"},
		{name: "replaced", have: []corev1.IPFamily{v6}, exported: []corev1.IPFamily{v4}, want: []corev1.IPFamily{v4},
			write: "delete"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := v
			ri := importOf("default", row.name)
			ri.Spec.ServiceImport.Spec.IPFamilies = row.exported
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{ri}
			if row.have != nil {
				before := &corev1.Service{ObjectMeta: marked("default", "antrea-mc-"+row.name), Spec: corev1.ServiceSpec{
					IPFamilies: row.have, Ports: []corev1.ServicePort{{Name: "db", Port: 5432, Protocol: corev1.ProtocolTCP}}}}
				if len(row.have) == 2 {
					before.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
				}
				if err := to.Create(t.Context(), before); err != nil {
					t.Fatal(err)
				}
				v.Services = []*corev1.Service{before}
			}
			var did []string
			for range 3 { // until there is nothing to do
				d, _ := Plan(v)
				for _, w := range d.Change.Local {
					if w.Kind != "Service" {
						continue
					}
					answer, err := write(t.Context(), to, w)
					if err != nil {
						t.Fatalf("%s: %v", w, err)
					}
					did = append(did, string(w.Verb))
					if v.Services = nil; w.Verb != writes.Delete {
						v.Services = []*corev1.Service{answer.(*corev1.Service)}
					}
				}
			}
			want := []string{row.write}
			if row.write == "delete" {
				want = append(want, "create")
			}
			expect(t, "writes", did, want)
			have := v.Services[0].Spec
			expect(t, "ipFamilies", have.IPFamilies, row.want)
			expect(t, "clusterIPs", len(have.ClusterIPs), len(row.want))
		})
	}
}

// TestSteadyErrors keeps the text of an error as long as its kind stays.
func TestSteadyErrors(t *testing.T) {
	reset := "announce: read tcp 10.0.0.1:%d->192.0.2.1:6443: read: connection reset by peer"
	first := steady("", fmt.Sprintf(reset, 40001))
	if want := "announce: read tcp 192.0.2.1:6443: read: connection reset by peer"; first != want {
		t.Errorf("have %q, want %q", first, want)
	}
	if again := steady(first, fmt.Sprintf(reset, 40002)); again != first {
		t.Errorf("have %q, want %q", again, first)
	}
	away := "announce: http2: server sent GOAWAY and closed the connection; LastStreamID=%d, ErrCode=NO_ERROR"
	if have := steady(fmt.Sprintf(away, 7), fmt.Sprintf(away, 19)); have != fmt.Sprintf(away, 7) {
		t.Errorf("have %q", have)
	}
	if have := steady(first, "Unauthorized"); have != "Unauthorized" {
		t.Errorf("have %q, want the new error", have)
	}
}
