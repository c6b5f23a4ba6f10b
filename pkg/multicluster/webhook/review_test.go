package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

const (
	create = admissionv1.Create
	update = admissionv1.Update
	remove = admissionv1.Delete

	admin      = "kubernetes-admin"
	controller = "system:serviceaccount:area:antrea-mc-controller"
	eastUser   = "system:serviceaccount:area:member-east" // bound to east
	westUser   = "system:serviceaccount:area:member-west" // not bound
	strangers  = "system:serviceaccount:elsewhere:member-east"
)

func newHandlers(t testing.TB, role Role, objects ...client.Object) *handlers {
	t.Helper()
	known := scheme(t)
	return &handlers{client: fake.NewClientBuilder().WithScheme(known).WithObjects(objects...).Build(),
		decoder: admission.NewDecoder(known), namespace: "area", role: role, limits: newLimits(time.Now)}
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(s), mcv1alpha1.AddToScheme(s), mcv1alpha2.AddToScheme(s))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request(t *testing.T, user string, op admissionv1.Operation, was, is client.Object) admission.Request {
	t.Helper()
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: op, Namespace: "area", UserInfo: authenticationv1.UserInfo{Username: user}}}
	for _, part := range []struct {
		object client.Object
		to     *runtime.RawExtension
	}{{was, &req.OldObject}, {is, &req.Object}} {
		if part.object == nil {
			continue
		}
		raw, err := json.Marshal(part.object)
		if err != nil {
			t.Fatal(err)
		}
		part.to.Raw, req.Name = raw, part.object.GetName()
	}
	return req
}

// check compares a response with a part of the wanted refusal; empty means allowed.
func check(t *testing.T, have admission.Response, want string) {
	t.Helper()
	text := ""
	if have.Result != nil {
		text = have.Result.Message
	}
	if have.Allowed != (want == "") || !strings.Contains(text, want) {
		t.Errorf("allowed %v, %q; want %q", have.Allowed, text, want)
	}
}

func account(name, id string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name}}
	if id != "" {
		a.Annotations = map[string]string{multicluster.AnnotationClusterID: id}
	}
	return a
}

func clusterSet(name string, change ...func(*mcv1alpha2.ClusterSet)) *mcv1alpha2.ClusterSet {
	set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "north", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}}}
	for _, f := range change {
		f(set)
	}
	return set
}

func announcement(id string, change ...func(*mcv1alpha1.MemberClusterAnnounce)) *mcv1alpha1.MemberClusterAnnounce {
	a := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Namespace: "area",
		Name: multicluster.AnnounceName(id)},
		ClusterID: id, ClusterSetID: "set", LeaderClusterID: "north"}
	for _, f := range change {
		f(a)
	}
	return a
}

func TestReviewClusterSet(t *testing.T) {
	for _, row := range []struct {
		name  string
		role  Role
		op    admissionv1.Operation
		was   *mcv1alpha2.ClusterSet
		is    *mcv1alpha2.ClusterSet
		world []client.Object
		want  string
	}{
		{name: "the first", op: create, is: clusterSet("set")},
		{name: "a second", op: create, is: clusterSet("more"), world: []client.Object{clusterSet("set")},
			want: "area already has set; delete that one first"},
		{name: "the server's address changes", op: update, was: clusterSet("set"),
			is: clusterSet("set", func(s *mcv1alpha2.ClusterSet) { s.Spec.Leaders[0].Server = "https://192.0.2.1:6443" })},
		{name: "the controller fills the cluster ID in", op: update,
			was: clusterSet("set", func(s *mcv1alpha2.ClusterSet) { s.Spec.ClusterID = "" }), is: clusterSet("set")},
		{name: "another cluster ID", op: update, was: clusterSet("set"),
			is:   clusterSet("set", func(s *mcv1alpha2.ClusterSet) { s.Spec.ClusterID = "south" }),
			want: "field 'clusterID' is immutable"},
		{name: "another leader", op: update, was: clusterSet("set"),
			is:   clusterSet("set", func(s *mcv1alpha2.ClusterSet) { s.Spec.Leaders[0].ClusterID = "south" }),
			want: "of the leader is immutable"},
		{name: "delete the leader's with a member", role: Leader, op: remove, was: clusterSet("set"),
			world: []client.Object{announcement("east")}, want: "still member clusters connecting"},
		{name: "delete the leader's without members", role: Leader, op: remove, was: clusterSet("set")},
		{name: "delete a member's", role: Member, op: remove, was: clusterSet("set"),
			world: []client.Object{announcement("east")}},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHandlers(t, row.role, row.world...)
			check(t, h.clusterSet(t.Context(), request(t, admin, row.op, object(row.was), object(row.is))), row.want)
		})
	}
}

// object makes a nil pointer a nil object.
func object[T any, P interface {
	*T
	client.Object
}](p P) client.Object {
	if p == nil {
		return nil
	}
	return p
}

func TestReviewClusterClaim(t *testing.T) {
	claim := func(name, value string) *mcv1alpha2.ClusterClaim {
		return &mcv1alpha2.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name}, Value: value}
	}
	old := func(name, claimName, value string) *mcv1alpha2.ClusterClaim {
		c := claim(name, value)
		c.ClaimName = claimName
		return c
	}
	set := []client.Object{clusterSet("set")}
	for _, row := range []struct {
		name    string
		op      admissionv1.Operation
		was, is *mcv1alpha2.ClusterClaim
		world   []client.Object
		want    string
	}{
		{"the cluster's ID", create, nil, claim("id.k8s.io", "east"), nil, ""},
		{"the set's ID of v1alpha1, with a capital S", create, nil, old("clusterset-id", "clusterSet.k8s.io", "set"),
			nil, ""},
		{"some other claim", create, nil, claim("color", "blue"), nil, "the name must be id.k8s.io or clusterset.k8s.io"},
		{"a label", update, claim("id.k8s.io", "east"), claim("id.k8s.io", "east"), nil, ""},
		{"another value", update, claim("id.k8s.io", "east"), claim("id.k8s.io", "west"), nil, "field 'value' is immutable"},
		{"delete the set's name", remove, claim("clusterset.k8s.io", "set"), nil, set,
			"used by ClusterSet set: delete the ClusterSet first"},
		{"delete the cluster's ID", remove, claim("id.k8s.io", "north"), nil, set, "used by ClusterSet set"},
		{"delete an unused one", remove, claim("id.k8s.io", "south"), nil, set, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHandlers(t, Member, row.world...)
			check(t, h.clusterClaim(t.Context(), request(t, admin, row.op, object(row.was), object(row.is))), row.want)
		})
	}
}

// by records an account in an announcement, as markAnnounce does.
func by(name string) func(*mcv1alpha1.MemberClusterAnnounce) {
	return func(a *mcv1alpha1.MemberClusterAnnounce) {
		a.Annotations = map[string]string{multicluster.AnnotationAnnouncedBy: name}
	}
}

// aged is an announcement of so many seconds after the first.
func aged(seconds int64) func(*mcv1alpha1.MemberClusterAnnounce) {
	return func(a *mcv1alpha1.MemberClusterAnnounce) { a.CreationTimestamp = metav1.Unix(1_000_000+seconds, 0) }
}

// TestReviewAnnounce asks as the API server does: first for the mark, then for the judgement.
func TestReviewAnnounce(t *testing.T) {
	const west, east = "member-west", "member-east"
	world := []client.Object{clusterSet("set"), account(east, "east"), account(west, ""), account("other", ""),
		account(multicluster.ControllerName, "")}
	const held = multicluster.MemberClusterAnnounceFinalizerPrefix + "east"
	change := func(f func(*mcv1alpha1.MemberClusterAnnounce)) *mcv1alpha1.MemberClusterAnnounce {
		return announcement("east", f)
	}
	finalizers := func(list ...string) func(*mcv1alpha1.MemberClusterAnnounce) {
		return func(a *mcv1alpha1.MemberClusterAnnounce) { a.Finalizers = list }
	}
	owned := func(a *mcv1alpha1.MemberClusterAnnounce) {
		a.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "x"}}
	}
	leaves := func(a *mcv1alpha1.MemberClusterAnnounce) {
		a.DeletionTimestamp = &metav1.Time{Time: time.Unix(2_000_000, 0)}
		a.Finalizers = append(a.Finalizers, "kept/for-the-fake-client")
	}
	for _, row := range []struct {
		name    string
		user    string
		op      admissionv1.Operation
		was, is *mcv1alpha1.MemberClusterAnnounce
		there   []client.Object
		want    string
		record  string // in what is admitted
	}{
		{name: "as bound", user: eastUser, op: create, is: announcement("east"), record: east},
		{name: "an administrator", user: admin, op: create, is: announcement("east"), want: "is not a ServiceAccount"},
		{name: "of another Namespace", user: strangers, op: create, is: announcement("east"),
			want: "is not in Namespace area"},
		{name: "deleted meanwhile", user: "system:serviceaccount:area:gone", op: create, is: announcement("south"),
			want: "ServiceAccount area/gone not found"},
		{name: "as another", user: eastUser, op: create, is: announcement("south"), want: `bound to cluster ID "east"`},
		{name: "the leader's controller", user: controller, op: create, is: announcement("south"), want: "the leader's own"},
		{name: "its first", user: westUser, op: create, is: announcement("west"), record: west},
		{name: "in another's name", user: westUser, op: create, is: announcement("west", by(east)), record: west},
		{name: "its second", user: westUser, op: create, is: announcement("south"),
			there: []client.Object{announcement("west", by(west))}, want: `has announced cluster ID "west"`},
		{name: "an ID that is held", user: westUser, op: create, is: announcement("east"),
			want: "held by ServiceAccount member-east"},
		{name: "an ID that continues another", user: westUser, op: create, is: announcement("east-1"),
			want: "conflicts with an existing member's ClusterID east"},
		{name: "an ID that continues one that is not bound yet", user: westUser, op: create, is: announcement("south-1"),
			there: []client.Object{announcement("south", by("other"))},
			want:  "conflicts with an existing member's ClusterID south"},
		{name: "an ID that only begins like another", user: westUser, op: create, is: announcement("eastern"), record: west},
		{name: "to another set", user: eastUser, op: create,
			is:   change(func(a *mcv1alpha1.MemberClusterAnnounce) { a.ClusterSetID = "other" }),
			want: "Unknown ClusterSet ID other"},
		{name: "to another leader", user: eastUser, op: create,
			is:   change(func(a *mcv1alpha1.MemberClusterAnnounce) { a.LeaderClusterID = "south" }),
			want: "Leader cluster ID south"},
		{name: "an ID that no label can hold", user: westUser, op: create, is: announcement(strings.Repeat("x", 64)),
			want: "must be no more than 63"},
		{name: "by another name", user: eastUser, op: create,
			is:   change(func(a *mcv1alpha1.MemberClusterAnnounce) { a.Name = "east" }),
			want: "the name must be member-announce-from-east"},
		{name: "no ID", user: westUser, op: create, is: announcement(""), want: "clusterID: is empty"},

		{name: "touch", user: eastUser, op: update, was: announcement("east", by(east)), is: announcement("east"),
			record: east},
		{name: "touch before it is bound", user: westUser, op: update, was: announcement("west", by(west)),
			is: announcement("west"), record: west},
		{name: "touch another's", user: eastUser, op: update, was: announcement("south"), is: announcement("south"),
			want: "may not announce"},
		{name: "touch another's that is not bound yet", user: westUser, op: update, was: announcement("south", by("other")),
			is: announcement("south"), want: "was made by ServiceAccount other"},
		{name: "touch its own that another has been bound to since", user: westUser, op: update,
			was: announcement("east", by(west)), is: announcement("east"), want: "held by ServiceAccount member-east"},
		{name: "touch another's, bound to its ID by hand", user: eastUser, op: update, was: announcement("east", by(west)),
			is: announcement("east"), record: west},
		{name: "touch one of an older version", user: westUser, op: update, was: announcement("west"),
			is: announcement("west"), record: west},
		{name: "touch one of an older version, bound", user: eastUser, op: update, was: announcement("east"),
			is: announcement("east"), record: east},
		{name: "touch another's of an older version", user: westUser, op: update, was: announcement("east"),
			is: announcement("east"), want: "held by ServiceAccount member-east"},
		{name: "take over the record", user: eastUser, op: update, was: announcement("east", by(west)),
			is: announcement("east", by(east)), record: west},
		{name: "the first of two that came at once", user: westUser, op: update, was: announcement("west", by(west), aged(0)),
			is:    announcement("west", aged(0)),
			there: []client.Object{announcement("south", by(west), aged(1))}, record: west},
		{name: "the second of two that came at once", user: westUser, op: update,
			was: announcement("west", by(west), aged(1)), is: announcement("west", aged(1)),
			there: []client.Object{announcement("south", by(west), aged(0))}, want: `has announced cluster ID "south"`},
		{name: "the leader's finalizer", user: controller, op: update, was: announcement("south", by(west)),
			is: announcement("south", by(west)), record: west},
		{name: "the leader's finalizer on one of an older version", user: controller, op: update, was: announcement("south"),
			is: announcement("south")},
		{name: "with a finalizer", user: eastUser, op: create, is: change(finalizers("example.org/mine")),
			want: `metadata.finalizers: members may not add "example.org/mine"`},
		{name: "with the leader's finalizer", user: eastUser, op: create, is: change(finalizers(held)),
			want: "metadata.finalizers: members may not add"},
		{name: "with an owner", user: eastUser, op: create, is: change(owned),
			want: "metadata.ownerReferences: members may not add one (Pod x)"},
		{name: "too long", user: eastUser, op: create, want: "expected at most 4096",
			is: change(func(a *mcv1alpha1.MemberClusterAnnounce) {
				a.Annotations = map[string]string{"x": strings.Repeat("x", maxAnnounceBytes)}
			})},
		{name: "touch with the leader's finalizer", user: eastUser, op: update, was: announcement("east", finalizers(held)),
			is: announcement("east", finalizers(held)), record: east},
		{name: "without the leader's finalizer", user: eastUser, op: update, was: announcement("east", finalizers(held)),
			is: announcement("east"), want: "is removed by the leader only"},
		{name: "without the leader's finalizer while it is deleted", user: eastUser, op: update,
			was: announcement("east", finalizers(held), leaves), is: announcement("east", leaves),
			want: "is removed by the leader only"},
		{name: "with a foreign finalizer, later", user: eastUser, op: update, was: announcement("east", finalizers(held)),
			is: announcement("east", finalizers(held, "example.org/mine")), want: "members may not add"},
		{name: "the leader lets it go", user: controller, op: update,
			was: announcement("east", finalizers(held), by(east), leaves), is: announcement("east", by(east), leaves),
			record: east},
		{name: "another set, later", user: eastUser, op: update, was: announcement("east"),
			is: change(func(a *mcv1alpha1.MemberClusterAnnounce) { a.ClusterSetID = "other" }), want: "immutable"},

		{name: "leave", user: eastUser, op: remove, was: announcement("east")},
		{name: "leave before it is bound", user: westUser, op: remove, was: announcement("west", by(west))},
		{name: "make another leave", user: westUser, op: remove, was: announcement("east"),
			want: "not bound to cluster ID east"},
		{name: "make another leave that is not bound yet", user: westUser, op: remove,
			was: announcement("south", by("other")), want: "not bound to cluster ID south"},
		{name: "make one leave that another has been bound to since", user: westUser, op: remove,
			was: announcement("east", by(west)), want: "not bound to cluster ID east"},
		{name: "an administrator removes it", user: admin, op: remove, was: announcement("east")},
		{name: "the leader's controller removes it", user: controller, op: remove, was: announcement("east")},
		{name: "the Namespace is deleted", user: "system:serviceaccount:kube-system:namespace-controller", op: remove,
			was: announcement("east")},
	} {
		t.Run(row.name, func(t *testing.T) {
			there := append(slices.Clone(world), row.there...)
			if row.was != nil {
				there = append(there, row.was.DeepCopy())
			}
			h := newHandlers(t, Leader, there...)
			before := bindings(t, h)
			req := request(t, row.user, row.op, object(row.was), object(row.is))
			if row.op != remove {
				req.Object.Raw = marked(t, h.markAnnounce(t.Context(), req), req.Object.Raw)
			}
			check(t, h.announce(t.Context(), req), row.want)
			if row.want == "" && row.op != remove {
				if record := recordOf(t, req.Object.Raw); record != row.record {
					t.Errorf("records %q, want %q", record, row.record)
				}
			}
			if after := bindings(t, h); after != before {
				t.Errorf("accounts were\n%s\nand are\n%s", before, after)
			}
		})
	}
	t.Run("before there is a ClusterSet", func(t *testing.T) {
		h := newHandlers(t, Leader, account(east, "east"))
		check(t, h.announce(t.Context(), request(t, eastUser, create, nil, announcement("east", by(east)))),
			"no ClusterSet found in Namespace area")
	})
}

// TestUnmarkedAnnounce asks for the judgement alone: the mark's configuration is not installed.
func TestUnmarkedAnnounce(t *testing.T) {
	const west, east = "member-west", "member-east"
	h := newHandlers(t, Leader, clusterSet("set"), account(east, "east"), account(west, ""))
	for _, row := range []struct {
		name    string
		user    string
		op      admissionv1.Operation
		was, is *mcv1alpha1.MemberClusterAnnounce
		want    string
	}{
		{"bound", eastUser, create, nil, announcement("east"), ""},
		{"not bound", westUser, create, nil, announcement("west"), "apply the leader's manifest again"},
		{"in another's name", westUser, create, nil, announcement("west", by(east)), "written by the leader only"},
		{"takes the record over", eastUser, update, announcement("east", by(west)), announcement("east", by(east)),
			"written by the leader only"},
		{"takes the record away", eastUser, update, announcement("east", by(west)), announcement("east"),
			"written by the leader only"},
		{"gives the record away", eastUser, update, announcement("east"), announcement("east", by(west)),
			"written by the leader only"},
	} {
		t.Run(row.name, func(t *testing.T) {
			check(t, h.announce(t.Context(), request(t, row.user, row.op, object(row.was), object(row.is))), row.want)
		})
	}
}

// marked is an announcement with the patches of an admitted mark.
func marked(t *testing.T, r admission.Response, raw []byte) []byte {
	t.Helper()
	return patchedBy(t, r, raw, &mcv1alpha1.MemberClusterAnnounce{})
}

// patchedBy is an object with what a mutating webhook answers, as JSON and in o.
func patchedBy(t *testing.T, r admission.Response, raw []byte, o client.Object) []byte {
	t.Helper()
	check(t, r, "")
	patches, err := json.Marshal(r.Patches)
	if err := errors.Join(err, json.Unmarshal(raw, o)); err != nil {
		t.Fatal(err)
	}
	if len(r.Patches) == 0 {
		return raw
	}
	store := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(o).Build()
	if err := store.Patch(t.Context(), o, client.RawPatch(types.JSONPatchType, patches)); err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(o); err != nil {
		t.Fatal(err)
	}
	return raw
}

func recordOf(t *testing.T, raw []byte) string {
	t.Helper()
	var a mcv1alpha1.MemberClusterAnnounce
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatal(err)
	}
	return a.Annotations[multicluster.AnnotationAnnouncedBy]
}

// bindings are all accounts as they are, a line each.
func bindings(t *testing.T, h *handlers) string {
	t.Helper()
	var accounts corev1.ServiceAccountList
	if err := h.client.List(t.Context(), &accounts); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, a := range accounts.Items {
		fmt.Fprintln(&text, a.Name, a.ResourceVersion, a.Annotations)
	}
	return text.String()
}

// exported is what cluster east rightly exports.
func exported(kind string, change ...func(*mcv1alpha1.ResourceExport)) *mcv1alpha1.ResourceExport {
	re := &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "area", Finalizers: []string{multicluster.ResourceExportFinalizer},
			Labels: map[string]string{multicluster.LabelSourceClusterID: "east", multicluster.LabelSourceKind: kind}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: "east", Kind: kind},
	}
	switch kind {
	case multicluster.ServiceKind, multicluster.EndpointsKind:
		re.Spec.Namespace, re.Spec.Name = "default", "web"
		re.Labels[multicluster.LabelSourceNamespace], re.Labels[multicluster.LabelSourceName] = "default", "web"
		re.Name, re.Spec.Service = "east-default-web-service", &mcv1alpha1.ServiceExport{}
		if kind == multicluster.EndpointsKind {
			re.Name, re.Spec.Service, re.Spec.Endpoints = "east-default-web-endpoints", nil, &mcv1alpha1.EndpointsExport{}
		}
	case multicluster.ClusterInfoKind:
		re.Name, re.Spec.ClusterInfo = "east-clusterinfo", &mcv1alpha1.ClusterInfo{ClusterID: "east"}
	case multicluster.NetworkPolicyKind:
		re.Name, re.Spec.Namespace, re.Spec.Name = "any", "default", "web"
		re.Spec.Raw = &mcv1alpha1.RawResource{Data: []byte("podSelector: {}")}
	case multicluster.PolicyReportKind:
		re.Name, re.Finalizers, re.Spec.Raw = "east-policyreport", nil, &mcv1alpha1.RawResource{Data: []byte("{}")}
	case multicluster.PodAddressesKind:
		re.Name, re.Finalizers = "east-podaddresses-10.10.3.0", nil
		re.Spec.Raw = &mcv1alpha1.RawResource{
			Data: []byte(`{"clusterID":"east","block":"10.10.3.0/24","labels":{"0123456789abcdef":["10.10.3.5"]}}`)}
	case multicluster.LabelIdentityKind:
		re.Spec.LabelIdentity = &mcv1alpha1.LabelIdentityExport{NormalizedLabel: "ns:a=b&pod:"}
		re.Name, re.Finalizers = "east-"+multicluster.LabelHash("ns:a=b&pod:"), nil
	}
	for _, f := range change {
		f(re)
	}
	return re
}

func TestReviewResourceExport(t *testing.T) {
	type re = mcv1alpha1.ResourceExport
	const service, southUser = multicluster.ServiceKind, "system:serviceaccount:area:member-south"
	exportedBy := func(id string) *re {
		return exported(service, func(r *re) {
			r.Name, r.Spec.ClusterID, r.Labels[multicluster.LabelSourceClusterID] = id+"-default-web-service", id, id
		})
	}
	world := []client.Object{account("member-east", "east"), account("member-west", ""), account("empty", "east"),
		account(multicluster.ControllerName, "")}
	world = append(world, account("member-south", ""), announcement("south", by("member-south")), account("late", ""),
		announcement("east", by("late")))
	world[2].SetAnnotations(map[string]string{multicluster.AnnotationClusterID: ""})
	terminating := func(r *re) { r.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time} }
	bare := func(r *re) { r.Finalizers = nil }
	old := func(r *re) { r.Finalizers = []string{multicluster.ResourceExportFinalizerOld} }
	moved := func(r *re) { r.Spec.Namespace = "antrea" }
	unlabelled := func(r *re) { r.Labels = nil }
	for _, row := range []struct {
		name    string
		user    string
		op      admissionv1.Operation
		was, is *re
		want    string
	}{
		{"a Service", eastUser, create, nil, exported(service), ""},
		{"Endpoints", eastUser, create, nil, exported(multicluster.EndpointsKind), ""},
		{"the cluster's network", eastUser, create, nil, exported(multicluster.ClusterInfoKind), ""},
		{"the network that Antrea's member has left, without labels", eastUser, update,
			exported(multicluster.ClusterInfoKind, unlabelled), exported(multicluster.ClusterInfoKind), ""},
		{"the cluster's network without labels, as Antrea's members", eastUser, create, nil,
			exported(multicluster.ClusterInfoKind, unlabelled), ""},
		{"the cluster's network without labels, later", eastUser, update, exported(multicluster.ClusterInfoKind, unlabelled),
			exported(multicluster.ClusterInfoKind, unlabelled), ""},
		{"another cluster's network without labels", eastUser, create, nil,
			exported(multicluster.ClusterInfoKind, unlabelled, func(r *re) { r.Spec.ClusterID = "west" }),
			`spec.clusterID is "west", want "east"`},
		{"the cluster's network with another's label", eastUser, create, nil,
			exported(multicluster.ClusterInfoKind, func(r *re) { r.Labels[multicluster.LabelSourceClusterID] = "west" }),
			`label sourceClusterID is "west", want "east"`},
		{"the cluster's network with an empty label", eastUser, create, nil,
			exported(multicluster.ClusterInfoKind, func(r *re) { r.Labels[multicluster.LabelSourceKind] = "" }),
			`label sourceKind is "", want "ClusterInfo"`},
		{"a Service without labels", eastUser, create, nil, exported(service, unlabelled),
			`label sourceClusterID is "", want "east"`},
		{"a label identity without labels", eastUser, create, nil, exported(multicluster.LabelIdentityKind, unlabelled),
			`label sourceClusterID is "", want "east"`},
		{"a label, which needs no finalizer", eastUser, create, nil, exported(multicluster.LabelIdentityKind), ""},
		{"a label that is none", eastUser, create, nil, exported(multicluster.LabelIdentityKind, func(r *re) {
			r.Spec.LabelIdentity.NormalizedLabel = "a=b"
			r.Name = "east-" + multicluster.LabelHash("a=b")
		}), "is not a normalised label"},
		{"a label under another's name", eastUser, create, nil,
			exported(multicluster.LabelIdentityKind, func(r *re) { r.Name = "west-" + r.Name[5:] }), "the name must be east-"},
		{"a label as another cluster", eastUser, create, nil,
			exported(multicluster.LabelIdentityKind, func(r *re) { r.Spec.ClusterID = "west" }), `spec.clusterID is "west"`},
		{"an administrator's", admin, create, nil, exported(service, bare, func(r *re) { r.Name = "anything" }), ""},
		{"of another Namespace", strangers, create, nil, exported(service, bare), ""},
		{"a member that has not announced itself", westUser, create, nil, exported(service), "announce the member first"},
		{"before it is bound, as it announced itself", southUser, create, nil, exportedBy("south"), ""},
		{"before it is bound, as another", southUser, create, nil, exported(service),
			`spec.clusterID is "east", want "south"`},
		{"that announced an ID which another was bound to since", "system:serviceaccount:area:late", create, nil,
			exported(service), "announce the member first"},
		{"an empty binding", "system:serviceaccount:area:empty", create, nil, exported(service), "is empty"},
		{"an account that is gone", "system:serviceaccount:area:gone", create, nil, exported(service), "not found"},
		{"an account that is gone lets go", "system:serviceaccount:area:gone", remove, exported(service, terminating),
			nil, ""},
		{"the leader lets go", controller, update, exported(service, terminating), exported(service, terminating, bare), ""},
		{"a policy", eastUser, create, nil, exported(multicluster.AntreaClusterNetworkPolicyKind), "members may not export"},
		{"a policy of Kubernetes", eastUser, create, nil, exported(multicluster.NetworkPolicyKind), "members may not export"},
		{"a report of policies, which needs no finalizer", eastUser, create, nil,
			exported(multicluster.PolicyReportKind), ""},
		{"a report under another's name", eastUser, create, nil,
			exported(multicluster.PolicyReportKind, func(r *re) { r.Name = "west-policyreport" }),
			"the name must be east-policyreport"},
		{"a report as another cluster", eastUser, create, nil,
			exported(multicluster.PolicyReportKind, func(r *re) { r.Spec.ClusterID = "west" }), `spec.clusterID is "west"`},
		{"a report that is none", eastUser, create, nil,
			exported(multicluster.PolicyReportKind, func(r *re) { r.Spec.Raw.Data = []byte("x") }),
			"is not a report of policies"},
		{"addresses, which need no finalizer", eastUser, create, nil, exported(multicluster.PodAddressesKind), ""},
		{"addresses under another's name", eastUser, create, nil,
			exported(multicluster.PodAddressesKind, func(r *re) { r.Name = "west-podaddresses-10.10.3.0" }),
			"the name must be east-podaddresses-10.10.3.0"},
		{"addresses under another block's name", eastUser, create, nil,
			exported(multicluster.PodAddressesKind, func(r *re) { r.Name = "east-podaddresses-10.10.4.0" }),
			"the name must be east-podaddresses-10.10.3.0"},
		{"addresses of another cluster", eastUser, create, nil, exported(multicluster.PodAddressesKind, func(r *re) {
			r.Spec.Raw.Data = bytes.Replace(r.Spec.Raw.Data, []byte("east"), []byte("west"), 1)
		}), `spec.raw.data.clusterID is "west", want "east"`},
		{"an address outside the block", eastUser, create, nil, exported(multicluster.PodAddressesKind, func(r *re) {
			r.Spec.Raw.Data = bytes.Replace(r.Spec.Raw.Data, []byte("3.5"), []byte("4.5"), 1)
		}), "is not in the block 10.10.3.0/24"},
		{"addresses without any", eastUser, create, nil,
			exported(multicluster.PodAddressesKind, func(r *re) { r.Spec.Raw = nil }), "has no spec for its kind"},
		{"a report without one", eastUser, create, nil,
			exported(multicluster.PolicyReportKind, func(r *re) { r.Spec.Raw = nil }), "has no spec for its kind"},
		{"an administrator's policy", admin, create, nil, exported(multicluster.NetworkPolicyKind, bare), ""},
		{"an administrator's policy without a policy", admin, create, nil,
			exported(multicluster.NetworkPolicyKind, func(r *re) { r.Spec.Raw = nil }), "spec.raw.data is missing"},
		{"an administrator's policy with a field that is none", admin, update, exported(multicluster.NetworkPolicyKind),
			exported(multicluster.NetworkPolicyKind, func(r *re) { r.Spec.Raw.Data = []byte("podselector: {}") }),
			`spec.raw.data: is not the spec of the policy: unknown field "podselector"`},
		{"an administrator's policy that goes", admin, update, exported(multicluster.NetworkPolicyKind),
			exported(multicluster.NetworkPolicyKind, terminating, func(r *re) { r.Spec.Raw = nil }), ""},
		{"no payload", eastUser, create, nil, exported(service, func(r *re) { r.Spec.Service = nil }),
			"has no spec for its kind"},
		{"a name that is none", eastUser, create, nil, exported(service, func(r *re) { r.Spec.Name = "We b" }), "spec.name"},
		{"a Namespace that is none", eastUser, create, nil, exported(service, func(r *re) { r.Spec.Namespace = "../x" }),
			"spec.namespace"},
		{"as another cluster", eastUser, create, nil, exported(service, func(r *re) { r.Spec.ClusterID = "west" }),
			`spec.clusterID is "west"`},
		{"another cluster's network", eastUser, create, nil,
			exported(multicluster.ClusterInfoKind, func(r *re) { r.Spec.ClusterInfo.ClusterID = "west" }),
			"spec.clusterInfo.clusterID"},
		{"a wrong label", eastUser, create, nil,
			exported(service, func(r *re) { r.Labels[multicluster.LabelSourceName] = "x" }), `label sourceName is "x"`},
		{"another name", eastUser, create, nil, exported(service, func(r *re) { r.Name = "east-default-other-service" }),
			"the name must be east-default-web-service"},
		{"no finalizer", eastUser, create, nil, exported(service, bare), "finalizer"},
		{"a foreign finalizer", eastUser, create, nil,
			exported(service, func(r *re) { r.Finalizers = append(r.Finalizers, "example.org/mine") }),
			`members may not add "example.org/mine"`},
		{"the finalizer of before v2.2 beside it", eastUser, create, nil,
			exported(service, func(r *re) { r.Finalizers = append(r.Finalizers, multicluster.ResourceExportFinalizerOld) }), ""},
		{"the finalizer of before v2.2 alone", eastUser, create, nil, exported(service, old), ""},
		{"the finalizer of before v2.2 alone, later", eastUser, update, exported(service, old), exported(service, old), ""},
		{"the finalizer of before v2.2 gives way to the new one", eastUser, update, exported(service, old),
			exported(service), ""},
		{"without the finalizer of before v2.2", eastUser, update, exported(service, old), exported(service, bare),
			"taken off by the leader only"},
		{"a foreign finalizer, later", eastUser, update, exported(service),
			exported(service, func(r *re) { r.Finalizers = append(r.Finalizers, "foregroundDeletion") }), "members may not add"},
		{"a foreign finalizer that is there already", eastUser, update,
			exported(service, func(r *re) { r.Finalizers = append(r.Finalizers, "example.org/mine") }),
			exported(service, func(r *re) { r.Finalizers = append(r.Finalizers, "example.org/mine") }), ""},
		{"an owner", eastUser, create, nil,
			exported(service, func(r *re) { r.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "x"}} }),
			"metadata.ownerReferences"},
		{"a port that is none", eastUser, create, nil,
			exported(service, func(r *re) { r.Spec.Service.ServiceSpec.Ports = []corev1.ServicePort{{Port: 70000}} }),
			"spec.service.serviceSpec.ports[0].port: 70000"},
		{"ports with what stays in the cluster", eastUser, create, nil,
			exported(service,
				func(r *re) { r.Spec.Service.ServiceSpec.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080}} }), ""},
		{"a loopback endpoint", eastUser, create, nil, exported(multicluster.EndpointsKind, func(r *re) {
			r.Spec.Endpoints.Subsets = []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "127.0.0.1"}}}}
		}), "spec.endpoints.subsets[0].addresses[0].ip: 127.0.0.1 is a loopback address"},
		{"a loopback endpoint, later", eastUser, update, exported(multicluster.EndpointsKind),
			exported(multicluster.EndpointsKind, func(r *re) {
				r.Spec.Endpoints.Subsets = []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.96.0.1"},
					{IP: "127.0.0.1"}}}}
			}), "addresses[1].ip: 127.0.0.1 is a loopback address"},
		{"too long", eastUser, create, nil,
			exported(service, func(r *re) { r.Annotations = map[string]string{"x": strings.Repeat("x", exportcheck.MaxBytes)} }),
			"expected at most 1310720"},
		{"new ports", eastUser, update, exported(service), exported(service), ""},
		{"of another Service", eastUser, update, exported(service), exported(service, func(r *re) { r.Spec.Name = "x" }),
			"immutable"},
		{"of a Service of another Namespace", eastUser, update, exported(service), exported(service, moved),
			"spec.namespace of kind Service is immutable"},
		{"of Endpoints of another Namespace", eastUser, update, exported(multicluster.EndpointsKind),
			exported(multicluster.EndpointsKind, moved), "spec.namespace of kind Endpoints is immutable"},
		{"the cluster's network, from another Namespace", eastUser, update, exported(multicluster.ClusterInfoKind),
			exported(multicluster.ClusterInfoKind, moved), ""},
		{"the cluster's network, as another kind", eastUser, update, exported(multicluster.ClusterInfoKind),
			exported(multicluster.ClusterInfoKind, func(r *re) { r.Spec.Kind = multicluster.LabelIdentityKind }), "immutable"},
		{"without the finalizer", eastUser, update, exported(service), exported(service, bare),
			"taken off by the leader only"},
		{"another's", eastUser, update, exported(service, func(r *re) { r.Spec.ClusterID = "west" }), exported(service),
			"not authorized"},
		{"delete", eastUser, remove, exported(service), nil, ""},
		{"delete another's", eastUser, remove, exported(service, func(r *re) { r.Spec.ClusterID = "west" }), nil,
			"not authorized"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHandlers(t, Leader, world...)
			check(t, h.resourceExport(t.Context(), request(t, row.user, row.op, object(row.was), object(row.is))), row.want)
		})
	}
}

// TestLimits counts what a member has stored and refuses more, of that member alone.
func TestLimits(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := newLimits(func() time.Time { return now })
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "area", Name: name} }
	kind := ""
	ask := func(op admissionv1.Operation, id, name string, size int) admission.Response {
		return l.admit(admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: op, Namespace: "area",
			Name:   name,
			Object: runtime.RawExtension{Raw: make([]byte, size)}}}, id, kind)
	}
	check(t, ask(create, "east", "first", 100), "")
	for i := range maxExports {
		l.put(key(fmt.Sprint("east-", i)), stored{"east", 1000, ""}, false)
	}
	check(t, ask(create, "east", "more", 100), "cluster east has 10000 ResourceExports: expected at most 10000")
	check(t, ask(update, "east", "east-7", 100), "")
	check(t, ask(create, "west", "first", 100), "")
	// Label identities are counted by themselves.
	kind = multicluster.LabelIdentityKind
	check(t, ask(create, "east", "label", 100), "")
	for i := range exportcheck.MaxLabels {
		l.put(key(fmt.Sprint("east-label-", i)), stored{"east", 100, multicluster.LabelIdentityKind}, false)
	}
	check(t, ask(create, "east", "label", 100), "cluster east has 10000 LabelIdentities: expected at most 10000")
	check(t, ask(update, "east", "east-label-7", 100), "")
	// And so are blocks of addresses.
	kind = multicluster.PodAddressesKind
	check(t, ask(create, "east", "block", 100), "")
	for i := range exportcheck.MaxAddressBlocks {
		l.put(key(fmt.Sprint("east-block-", i)), stored{"east", 100, multicluster.PodAddressesKind}, false)
	}
	check(t, ask(create, "east", "block", 100), "cluster east has 1000 blocks of Pods' addresses: expected at most 1000")
	for i := range exportcheck.MaxAddressBlocks {
		l.remove(key(fmt.Sprint("east-block-", i)))
	}
	kind = ""
	check(t, ask(create, "east", "more", 100), "cluster east has 10000 ResourceExports: expected at most 10000")
	for i := range exportcheck.MaxLabels {
		l.remove(key(fmt.Sprint("east-label-", i)))
	}
	for i := range maxExports {
		l.remove(key(fmt.Sprint("east-", i)))
	}
	check(t, ask(create, "east", "more", 100), "")

	l.put(key("big"), stored{"east", maxExportBytes - 1000, ""}, false)
	check(t, ask(create, "east", "more", 1001), "with this one")
	check(t, ask(create, "east", "more", 1000), "")
	check(t, ask(update, "east", "big", exportcheck.MaxBytes), "")
	check(t, ask(create, "west", "more", 1001), "")

	for range 3 {
		l.put(key("big"), stored{"east", maxExportBytes - 1000, ""}, true)
	}
	check(t, ask(update, "east", "big", 100), "try again later")
	check(t, ask(create, "west", "more", 100), "")
	now = now.Add(time.Minute)
	check(t, ask(update, "east", "big", 100), "")
	l.remove(key("big"))
	now = now.Add(time.Hour)
	l.put(key("west"), stored{"west", 1, ""}, false)
	l.remove(key("west"))
	if len(l.members) > 0 || len(l.exports) > 0 {
		t.Errorf("nothing is left, but %d members and %d exports are kept", len(l.members), len(l.exports))
	}
}

// TestAnnounceRate lets each announcement be written so often, and the others' go on.
func TestAnnounceRate(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := newLimits(func() time.Time { return now })
	ask := func(name string) admission.Response {
		return l.admitAnnounce(admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: update,
			Namespace: "area", Name: name}})
	}
	write := func(name string) { l.announced(types.NamespacedName{Namespace: "area", Name: name}) }
	for range maxAnnounces {
		check(t, ask("east"), "")
		write("east")
	}
	check(t, ask("east"), "was written 60 times at once: expected at most 60, and 1 a second; try again later")
	check(t, ask("west"), "")
	now = now.Add(time.Second)
	check(t, ask("east"), "")
	for range 360 { // an hour of heartbeats
		now = now.Add(10 * time.Second)
		write("east")
		check(t, ask("east"), "")
	}
	now = now.Add(time.Hour)
	write("west")
	if len(l.announces) != 1 {
		t.Errorf("%d announcements are counted, want only the one that was written lately", len(l.announces))
	}
}

func TestMarkResourceExport(t *testing.T) {
	h := newHandlers(t, Leader)
	policy := &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "strict"},
		Spec: mcv1alpha1.ResourceExportSpec{Name: "strict", Kind: multicluster.AntreaClusterNetworkPolicyKind,
			ClusterNetworkPolicy: &runtime.RawExtension{Raw: []byte(`{"priority":1}`)}}}
	r := h.markResourceExport(t.Context(), request(t, admin, create, nil, policy))
	check(t, r, "")
	var paths []string
	for _, p := range r.Patches {
		paths = append(paths, p.Path)
	}
	if text := strings.Join(paths, " "); !strings.Contains(text, "/metadata/labels") ||
		!strings.Contains(text, "/metadata/finalizers") {
		t.Errorf("patches %v", r.Patches)
	}
	r = h.markResourceExport(t.Context(), request(t, eastUser, create, nil, exported(multicluster.ServiceKind)))
	if !r.Allowed || len(r.Patches) > 0 {
		t.Errorf("a Service's export is changed: %v", r)
	}
}

// TestUnlabelledCounts counts an export as its member's by its spec, whatever labels it has.
func TestUnlabelledCounts(t *testing.T) {
	small, err := measure(exported(multicluster.ClusterInfoKind, func(r *mcv1alpha1.ResourceExport) { r.Labels = nil }))
	if err != nil {
		t.Fatal(err)
	}
	if s := sizeOf(small.(*mcv1alpha1.ResourceExport)); s.member != "east" || s.bytes == 0 {
		t.Errorf("counted as %+v, want some bytes of east", s)
	}
}

// TestMarkClusterInfo adds the labels that Antrea's members leave out, and leaves wrong ones for the validating
// webhook.
func TestMarkClusterInfo(t *testing.T) {
	type labels = map[string]string
	right := labels{multicluster.LabelSourceClusterID: "east", multicluster.LabelSourceKind: multicluster.ClusterInfoKind}
	for _, row := range []struct {
		name       string
		have, want labels
		refused    string
	}{
		{name: "none", want: right},
		{name: "one", have: labels{multicluster.LabelSourceKind: multicluster.ClusterInfoKind}, want: right},
		{name: "both", have: right, want: right},
		{name: "others", have: labels{"app": "x"},
			want: labels{"app": "x", multicluster.LabelSourceClusterID: "east",
				multicluster.LabelSourceKind: multicluster.ClusterInfoKind}},
		{name: "another cluster's", have: labels{multicluster.LabelSourceClusterID: "west"},
			want: labels{multicluster.LabelSourceClusterID: "west",
				multicluster.LabelSourceKind: multicluster.ClusterInfoKind},
			refused: `label sourceClusterID is "west"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHandlers(t, Leader, account("member-east", "east"))
			req := request(t, eastUser, create, nil,
				exported(multicluster.ClusterInfoKind, func(r *mcv1alpha1.ResourceExport) { r.Labels = row.have }))
			var is mcv1alpha1.ResourceExport
			req.Object.Raw = patchedBy(t, h.markResourceExport(t.Context(), req), req.Object.Raw, &is)
			want := exported(multicluster.ClusterInfoKind, func(r *mcv1alpha1.ResourceExport) { r.Labels = row.want })
			is.TypeMeta, is.ResourceVersion = want.TypeMeta, want.ResourceVersion
			if d := cmp.Diff(want, &is); d != "" {
				t.Errorf("want, have:\n%s", d)
			}
			check(t, h.resourceExport(t.Context(), req), row.refused)
		})
	}
}

func TestReviewGateway(t *testing.T) {
	h := newHandlers(t, Member)
	for user, want := range map[string]string{
		controller: "", "system:serviceaccount:kube-system:antrea-agent": "",
		"system:serviceaccount:area:antrea-agent":                "annotate a Node",
		"system:serviceaccount:kube-system:antrea-mc-controller": "annotate a Node",
		admin: "annotate a Node", eastUser: "annotate a Node",
		"system:serviceaccount:default:antrea-mc-controller": "annotate a Node",
	} {
		check(t, h.gateway(t.Context(), request(t, user, create, nil, &mcv1alpha1.Gateway{})), want)
	}
}
