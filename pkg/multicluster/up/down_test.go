package up

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// has reports whether a cluster has an object, and reads it.
func (w *world) has(at int, o client.Object) bool {
	w.t.Helper()
	err := w.clients[at].Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil && o.GetDeletionTimestamp() == nil
}

// wants fails unless an error has all texts.
func (w *world) wants(name string, err error, texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			w.t.Errorf("%s: error %v, want %q in it", name, err, text)
		}
	}
}

// clusterSet is a member's ClusterSet. Without leaders it is the leader's.
func clusterSet(namespace, name, id string, leaders ...mcv1alpha2.LeaderClusterInfo) *mcv1alpha2.ClusterSet {
	if len(leaders) == 0 {
		leaders = []mcv1alpha2.LeaderClusterInfo{{ClusterID: id}}
	}
	return &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: id, Leaders: leaders, Namespace: deploy.LeaderNamespace}}
}

// installed is an object as a set-up installs it.
func installed(part string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "of-" + part,
		Labels: map[string]string{LabelInstalledBy: InstalledBy, LabelPart: part}}}
}

// withoutWebhook takes the ClusterSet down while no controller answers the webhook of east, which has to allow that the
// member leaves: all controllers stay, and the error has the remedy. Then the webhook is away while Down waits for it.
func (w *world) withoutWebhook(o DownOptions) {
	w.t.Helper()
	url, none := "https://127.0.0.1:1/", admissionv1.SideEffectClassNone
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "no-answer"},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: "vclusterset.kb.io", SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"}, ClientConfig: admissionv1.WebhookClientConfig{URL: &url},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Delete},
				Rule: admissionv1.Rule{APIGroups: []string{mcv1alpha2.GroupVersion.Group}, APIVersions: []string{"*"},
					Resources: []string{"clustersets"}}}}}}}
	w.create(1, hook)
	set := clusterSet(deploy.MemberNamespace, "set", "east")
	if err := until(w.t.Context(), time.Minute, func() (bool, error) {
		return w.clients[1].Delete(w.t.Context(), set.DeepCopy(), client.DryRunAll) != nil, nil
	}); err != nil {
		w.t.Fatal(err)
	}
	r, err := found(w.t.Context(), w.clusters, o)
	if err != nil {
		w.t.Fatal(err)
	}
	r.hookLimit = time.Millisecond
	w.wants("a webhook without an answer", r.down(w.t.Context(), o), "cluster east: delete ClusterSet kube-system/set: ",
		"failed calling webhook", "does Deployment kube-system/antrea-mc-controller run?")
	if !w.has(1, set) || !w.has(0, clusterSet(deploy.LeaderNamespace, "set", "")) || !w.has(0, installed(memberPart)) ||
		!w.has(1, installed(memberPart)) {
		w.t.Error("a ClusterSet or a controller's object is deleted although a member has not left")
	}
	answers := make(chan error, 1)
	time.AfterFunc(time.Second/2, func() { answers <- w.clients[1].Delete(w.t.Context(), hook) })
	if err := errors.Join(Down(w.t.Context(), w.clusters, o), <-answers); err != nil {
		w.t.Fatal(err)
	}
}

// TestDown: if a cluster has only another ClusterSet, the name is refused. All objects of a set-up go, agents only on
// request. Nodes that prevent a set-up do not matter.
func TestDown(t *testing.T) {
	w := newWorld(t, definitions)
	leader := mcv1alpha2.LeaderClusterInfo{ClusterID: "north", Server: "https://192.0.2.1:6443", Secret: "t"}
	chosen := node("east-1", "10.20.0.0/24")
	chosen.Annotations = map[string]string{multicluster.AnnotationGateway: "true", AnnotationChosen: InstalledBy}
	w.node(0, node("without-a-range"))
	w.node(1, chosen)
	w.create(0, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deploy.LeaderNamespace}})
	w.create(0, clusterSet(deploy.LeaderNamespace, "set", "north"))
	w.create(1, clusterSet(deploy.MemberNamespace, "set", "east", leader))
	for i := range w.clients {
		w.create(i, installed(memberPart))
		w.create(i, installed(agentPart))
	}
	o := DownOptions{ClusterSet: "clusterset", Report: w.report}
	faults := []string{"nothing was changed",
		"cluster north: it has no ClusterSet clusterset in Namespace antrea-multicluster, but set: give --clusterset set",
		"cluster east: it has no ClusterSet clusterset in Namespace kube-system, but set: give --clusterset set, or " +
			"`tombolo mc leave` first"}
	_, err := Removed(t.Context(), w.clusters, o)
	w.wants("a plan with another name", err, faults...)
	w.wants("another name", Down(t.Context(), w.clusters, o), faults...)
	if !w.has(0, installed(memberPart)) || !w.has(1, installed(memberPart)) {
		t.Error("objects are deleted although the name was refused")
	}

	o.ClusterSet = "set"
	guest := w.clusters[1]
	guest.Config = rest.CopyConfig(guest.Config)
	guest.Config.Impersonate.UserName = "guest"
	w.wants("a user without rights", Down(t.Context(), []Cluster{w.clusters[0], guest}, o), "nothing was changed",
		"cluster east: this user may not do everything there", "cluster-admin")
	w.wants("the wrong order", Down(t.Context(), []Cluster{w.clusters[1], w.clusters[0]}, o),
		"cluster north: it is the leader of ClusterSet set: name it first")
	list, err := Removed(t.Context(), w.clusters, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"east: Gateway on Node east-1", "east: membership in ClusterSet set",
		"north: ClusterSet set and its tokens", "north: 1 objects of kind ConfigMap", "east: 1 objects of kind ConfigMap"} {
		if !slices.Contains(list, line) {
			t.Errorf("the list lacks %q:\n%s", line, strings.Join(list, "\n"))
		}
	}
	w.withoutWebhook(o)
	if w.has(0, clusterSet(deploy.LeaderNamespace, "set", "")) || w.has(1, clusterSet(deploy.MemberNamespace, "set", "")) {
		t.Error("a ClusterSet is left")
	}
	var n corev1.Node
	if err := w.clients[1].Get(t.Context(), client.ObjectKey{Name: "east-1"}, &n); err != nil || len(n.Annotations) > 0 {
		t.Errorf("the Gateway's annotations are %v: %v", n.Annotations, err)
	}
	for i := range w.clients {
		if w.has(i, installed(memberPart)) || !w.has(i, installed(agentPart)) {
			t.Errorf("cluster %s: the controller's object is left, or the agent's is gone", w.clusters[i].ID)
		}
	}

	// A set-up that was interrupted has left a token.
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.MemberNamespace, Name: tokenOf("east"),
		Annotations: map[string]string{multicluster.AnnotationCreatedByAntctl: "true"}}}
	w.create(1, token)
	if list, err = Removed(t.Context(), w.clusters, o); err != nil ||
		!slices.Equal(list, []string{`east: Secret "east-token" in Namespace kube-system`}) {
		t.Errorf("the list has %q: %v", list, err)
	}
	o.Agents = true
	if err := Down(t.Context(), w.clusters, o); err != nil {
		t.Fatal(err)
	}
	w.nothing("down with --agents")
	if w.has(1, token) || w.has(0, installed(agentPart)) {
		t.Error("the token of a set-up that was interrupted is left, or an object of agents")
	}
}
