package webhook

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
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

func newHandlers(t *testing.T, role Role, objects ...client.Object) *handlers {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), mcv1alpha1.AddToScheme(scheme), mcv1alpha2.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return &handlers{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		decoder: admission.NewDecoder(scheme), namespace: "area", role: role}
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
	a := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: multicluster.AnnounceName(id)},
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
		{name: "a second", op: create, is: clusterSet("more"), world: []client.Object{clusterSet("set")}, want: "area already has set; delete that one first"},
		{name: "the server's address changes", op: update, was: clusterSet("set"),
			is: clusterSet("set", func(s *mcv1alpha2.ClusterSet) { s.Spec.Leaders[0].Server = "https://192.0.2.1:6443" })},
		{name: "the controller fills the cluster ID in", op: update,
			was: clusterSet("set", func(s *mcv1alpha2.ClusterSet) { s.Spec.ClusterID = "" }), is: clusterSet("set")},
		{name: "another cluster ID", op: update, was: clusterSet("set"),
			is: clusterSet("set", func(s *mcv1alpha2.ClusterSet) { s.Spec.ClusterID = "south" }), want: "field 'clusterID' is immutable"},
		{name: "another leader", op: update, was: clusterSet("set"),
			is: clusterSet("set", func(s *mcv1alpha2.ClusterSet) { s.Spec.Leaders[0].ClusterID = "south" }), want: "of the leader is immutable"},
		{name: "delete the leader's with a member", role: Leader, op: remove, was: clusterSet("set"), world: []client.Object{announcement("east")}, want: "still member clusters connecting"},
		{name: "delete the leader's without members", role: Leader, op: remove, was: clusterSet("set")},
		{name: "delete a member's", role: Member, op: remove, was: clusterSet("set"), world: []client.Object{announcement("east")}},
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
		{"the set's ID of v1alpha1, with a capital S", create, nil, old("clusterset-id", "clusterSet.k8s.io", "set"), nil, ""},
		{"some other claim", create, nil, claim("color", "blue"), nil, "the name must be id.k8s.io or clusterset.k8s.io"},
		{"a label", update, claim("id.k8s.io", "east"), claim("id.k8s.io", "east"), nil, ""},
		{"another value", update, claim("id.k8s.io", "east"), claim("id.k8s.io", "west"), nil, "field 'value' is immutable"},
		{"delete the set's name", remove, claim("clusterset.k8s.io", "set"), nil, set, "used by ClusterSet set: delete the ClusterSet first"},
		{"delete the cluster's ID", remove, claim("id.k8s.io", "north"), nil, set, "used by ClusterSet set"},
		{"delete an unused one", remove, claim("id.k8s.io", "south"), nil, set, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHandlers(t, Member, row.world...)
			check(t, h.clusterClaim(t.Context(), request(t, admin, row.op, object(row.was), object(row.is))), row.want)
		})
	}
}

func TestReviewAnnounce(t *testing.T) {
	world := []client.Object{clusterSet("set"), account("member-east", "east"), account("member-west", ""), account(multicluster.ControllerName, "")}
	change := func(f func(*mcv1alpha1.MemberClusterAnnounce)) *mcv1alpha1.MemberClusterAnnounce {
		return announcement("east", f)
	}
	for _, row := range []struct {
		name    string
		user    string
		op      admissionv1.Operation
		was, is *mcv1alpha1.MemberClusterAnnounce
		want    string
		bound   string // what member-west is bound to then
	}{
		{name: "as bound", user: eastUser, op: create, is: announcement("east")},
		{name: "an administrator", user: admin, op: create, is: announcement("east"), want: "is not a ServiceAccount"},
		{name: "of another Namespace", user: strangers, op: create, is: announcement("east"), want: "is not in Namespace area"},
		{name: "deleted meanwhile", user: "system:serviceaccount:area:gone", op: create, is: announcement("south"), want: "ServiceAccount area/gone not found"},
		{name: "as another", user: eastUser, op: create, is: announcement("south"), want: `bound to cluster ID "east"`},
		{name: "the leader's controller", user: controller, op: create, is: announcement("south"), want: "the leader's own"},
		{name: "binds", user: westUser, op: create, is: announcement("west"), bound: "west"},
		{name: "binds the announcement of an older version", user: westUser, op: update, was: announcement("west"), is: announcement("west"), bound: "west"},
		{name: "an ID that is held", user: westUser, op: create, is: announcement("east"), want: "held by ServiceAccount member-east"},
		{name: "an ID that continues another", user: westUser, op: create, is: announcement("east-1"), want: "conflicts with an existing member's ClusterID east"},
		{name: "an ID that only begins like another", user: westUser, op: create, is: announcement("eastern"), bound: "eastern"},
		{name: "to another set", user: eastUser, op: create, is: change(func(a *mcv1alpha1.MemberClusterAnnounce) { a.ClusterSetID = "other" }), want: "Unknown ClusterSet ID other"},
		{name: "to another leader", user: eastUser, op: create, is: change(func(a *mcv1alpha1.MemberClusterAnnounce) { a.LeaderClusterID = "south" }), want: "Leader cluster ID south"},
		{name: "an ID that no label can hold", user: westUser, op: create, is: announcement(strings.Repeat("x", 64)), want: "must be no more than 63"},
		{name: "by another name", user: eastUser, op: create, is: change(func(a *mcv1alpha1.MemberClusterAnnounce) { a.Name = "east" }), want: "the name must be member-announce-from-east"},
		{name: "no ID", user: westUser, op: create, is: announcement(""), want: "clusterID: is empty"},
		{name: "touch", user: eastUser, op: update, was: announcement("east"), is: announcement("east")},
		{name: "touch another's", user: eastUser, op: update, was: announcement("south"), is: announcement("south"), want: "may not announce"},
		{name: "the leader's finalizer", user: controller, op: update, was: announcement("south"), is: announcement("south")},
		{name: "another set, later", user: eastUser, op: update, was: announcement("east"), is: change(func(a *mcv1alpha1.MemberClusterAnnounce) { a.ClusterSetID = "other" }), want: "immutable"},
		{name: "leave", user: eastUser, op: remove, was: announcement("east")},
		{name: "make another leave", user: westUser, op: remove, was: announcement("east"), want: "not bound to cluster ID east"},
		{name: "an administrator removes it", user: admin, op: remove, was: announcement("east")},
		{name: "the leader's controller removes it", user: controller, op: remove, was: announcement("east")},
		{name: "the Namespace is deleted", user: "system:serviceaccount:kube-system:namespace-controller", op: remove, was: announcement("east")},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHandlers(t, Leader, world...)
			check(t, h.announce(t.Context(), request(t, row.user, row.op, object(row.was), object(row.is))), row.want)
			var west corev1.ServiceAccount
			if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "area", Name: "member-west"}, &west); err != nil {
				t.Fatal(err)
			}
			if id, _ := boundID(&west); id != row.bound {
				t.Errorf("member-west is bound to %q, want %q", id, row.bound)
			}
		})
	}
	t.Run("before there is a ClusterSet", func(t *testing.T) {
		h := newHandlers(t, Leader, account("member-east", "east"))
		check(t, h.announce(t.Context(), request(t, eastUser, create, nil, announcement("east"))), "no ClusterSet found in Namespace area")
	})
	t.Run("two at once", func(t *testing.T) {
		h := newHandlers(t, Leader, clusterSet("set"), account("member-west", ""), account("other", ""))
		answers := make([]admission.Response, 2)
		var group sync.WaitGroup
		for i, user := range []string{westUser, "system:serviceaccount:area:other"} {
			req := request(t, user, create, nil, announcement("west"))
			group.Go(func() { answers[i] = h.announce(t.Context(), req) })
		}
		group.Wait()
		if answers[0].Allowed == answers[1].Allowed {
			t.Errorf("both answers: allowed %v", answers[0].Allowed)
		}
	})
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
	const service = multicluster.ServiceKind
	world := []client.Object{account("member-east", "east"), account("member-west", ""), account("empty", "east"), account(multicluster.ControllerName, "")}
	world[2].SetAnnotations(map[string]string{multicluster.AnnotationClusterID: ""})
	terminating := func(r *re) { r.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time} }
	bare := func(r *re) { r.Finalizers = nil }
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
		{"a label, which needs no finalizer", eastUser, create, nil, exported(multicluster.LabelIdentityKind), ""},
		{"an administrator's", admin, create, nil, exported(service, bare, func(r *re) { r.Name = "anything" }), ""},
		{"of another Namespace", strangers, create, nil, exported(service, bare), ""},
		{"a member that has not announced itself", westUser, create, nil, exported(service), "announce the member first"},
		{"an empty binding", "system:serviceaccount:area:empty", create, nil, exported(service), "is empty"},
		{"an account that is gone", "system:serviceaccount:area:gone", create, nil, exported(service), "not found"},
		{"an account that is gone lets go", "system:serviceaccount:area:gone", remove, exported(service, terminating), nil, ""},
		{"the leader lets go", controller, update, exported(service, terminating), exported(service, terminating, bare), ""},
		{"a policy", eastUser, create, nil, exported(multicluster.AntreaClusterNetworkPolicyKind), "members may not export"},
		{"no payload", eastUser, create, nil, exported(service, func(r *re) { r.Spec.Service = nil }), "has no spec for its kind"},
		{"a name that is none", eastUser, create, nil, exported(service, func(r *re) { r.Spec.Name = "We b" }), "spec.name"},
		{"a Namespace that is none", eastUser, create, nil, exported(service, func(r *re) { r.Spec.Namespace = "../x" }), "spec.namespace"},
		{"as another cluster", eastUser, create, nil, exported(service, func(r *re) { r.Spec.ClusterID = "west" }), `spec.clusterID is "west"`},
		{"another cluster's network", eastUser, create, nil, exported(multicluster.ClusterInfoKind, func(r *re) { r.Spec.ClusterInfo.ClusterID = "west" }), "spec.clusterInfo.clusterID"},
		{"a wrong label", eastUser, create, nil, exported(service, func(r *re) { r.Labels[multicluster.LabelSourceName] = "x" }), `label sourceName is "x"`},
		{"another name", eastUser, create, nil, exported(service, func(r *re) { r.Name = "east-default-other-service" }), "the name must be east-default-web-service"},
		{"no finalizer", eastUser, create, nil, exported(service, bare), "finalizer"},
		{"new ports", eastUser, update, exported(service), exported(service), ""},
		{"of another Service", eastUser, update, exported(service), exported(service, func(r *re) { r.Spec.Name = "x" }), "immutable"},
		{"without the finalizer", eastUser, update, exported(service), exported(service, bare), "taken off by the leader only"},
		{"another's", eastUser, update, exported(service, func(r *re) { r.Spec.ClusterID = "west" }), exported(service), "not authorized"},
		{"delete", eastUser, remove, exported(service), nil, ""},
		{"delete another's", eastUser, remove, exported(service, func(r *re) { r.Spec.ClusterID = "west" }), nil, "not authorized"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHandlers(t, Leader, world...)
			check(t, h.resourceExport(t.Context(), request(t, row.user, row.op, object(row.was), object(row.is))), row.want)
		})
	}
}

func TestMarkResourceExport(t *testing.T) {
	h := newHandlers(t, Leader)
	policy := &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "strict"},
		Spec: mcv1alpha1.ResourceExportSpec{Name: "strict", Kind: multicluster.AntreaClusterNetworkPolicyKind, ClusterNetworkPolicy: &runtime.RawExtension{Raw: []byte(`{"priority":1}`)}}}
	r := h.markResourceExport(t.Context(), request(t, admin, create, nil, policy))
	check(t, r, "")
	var paths []string
	for _, p := range r.Patches {
		paths = append(paths, p.Path)
	}
	if text := strings.Join(paths, " "); !strings.Contains(text, "/metadata/labels") || !strings.Contains(text, "/metadata/finalizers") {
		t.Errorf("patches %v", r.Patches)
	}
	if r := h.markResourceExport(t.Context(), request(t, eastUser, create, nil, exported(multicluster.ServiceKind))); !r.Allowed || len(r.Patches) > 0 {
		t.Errorf("a Service's export is changed: %v", r)
	}
}

func TestReviewGateway(t *testing.T) {
	h := newHandlers(t, Member)
	for user, want := range map[string]string{
		controller: "", "system:serviceaccount:area:antrea-agent": "",
		admin: "annotate a Node", eastUser: "annotate a Node", "system:serviceaccount:default:antrea-mc-controller": "annotate a Node",
	} {
		check(t, h.gateway(t.Context(), request(t, user, create, nil, &mcv1alpha1.Gateway{})), want)
	}
}
