package webhook

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// fuzzUsers are who writes, and the cluster ID that each is bound to.
var fuzzUsers = []struct{ name, id string }{
	{"system:serviceaccount:area:member-east", "east"},
	{"system:serviceaccount:area:member-new", ""},
	{"system:serviceaccount:area:antrea-mc-controller", ""},
	{"system:serviceaccount:area:", ""},
	{"system:serviceaccount:other:member-east", ""},
	{"admin", ""},
}

// FuzzAdmission asks every handler about objects and old objects of any shape. It must not panic, and a member must
// never be allowed to write in another's name.
func FuzzAdmission(f *testing.F) {
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "area", Name: name} }
	account := func(name, id string) *corev1.ServiceAccount {
		a := &corev1.ServiceAccount{ObjectMeta: in(name)}
		if id != "" {
			a.Annotations = map[string]string{multicluster.AnnotationClusterID: id}
		}
		return a
	}
	announce := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: in(multicluster.AnnounceName("west")), ClusterID: "west",
		ClusterSetID: "set", LeaderClusterID: "north"}
	area := []client.Object{
		account("member-east", "east"), account("member-west", "west"), account("member-new", ""),
		account(multicluster.ControllerName, ""), announce,
		&mcv1alpha2.ClusterSet{ObjectMeta: in("set"),
			Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "north", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}}},
	}
	type served struct {
		path string
		do   admission.HandlerFunc
	}
	var handlers []served
	for _, role := range []Role{Leader, Member} {
		paths := newHandlers(f, role, area...).paths()
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			handlers = append(handlers, served{path, paths[path]})
		}
	}

	// Seeds: what a member writes in good faith, to every handler.
	service := &mcv1alpha1.ResourceExport{ObjectMeta: in("east-default-web-service"), Spec: mcv1alpha1.ResourceExportSpec{
		ClusterID: "east", Kind: multicluster.ServiceKind, Namespace: "default", Name: "web",
		Service: &mcv1alpha1.ServiceExport{ServiceSpec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
	}}
	service.Finalizers = []string{multicluster.ResourceExportFinalizer}
	service.Labels = map[string]string{
		multicluster.LabelSourceClusterID: "east", multicluster.LabelSourceKind: multicluster.ServiceKind,
		multicluster.LabelSourceNamespace: "default", multicluster.LabelSourceName: "web",
	}
	info := &mcv1alpha1.ResourceExport{ObjectMeta: in("east-clusterinfo"), Spec: mcv1alpha1.ResourceExportSpec{
		ClusterID: "east", Kind: multicluster.ClusterInfoKind, Name: "east-clusterinfo", Namespace: "area",
		ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: "east", ServiceCIDR: "10.96.0.0/16",
			PodCIDRs:     []string{"10.10.0.0/16"},
			GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.77.101"}}},
	}}
	info.Finalizers = service.Finalizers
	info.Labels = map[string]string{multicluster.LabelSourceClusterID: "east",
		multicluster.LabelSourceKind: multicluster.ClusterInfoKind}
	bareInfo := info.DeepCopy() // as Antrea's members write it
	bareInfo.Labels = nil
	addresses := &mcv1alpha1.ResourceExport{ObjectMeta: in("east-podaddresses-10.10.3.0"),
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: "east", Kind: multicluster.PodAddressesKind,
			Raw: &mcv1alpha1.RawResource{
				Data: []byte(`{"clusterID":"east","block":"10.10.3.0/24","labels":{"0123456789abcdef":["10.10.3.5"]}}`)}}}
	addresses.Labels = map[string]string{multicluster.LabelSourceClusterID: "east",
		multicluster.LabelSourceKind: multicluster.PodAddressesKind}
	ours := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: in(multicluster.AnnounceName("east")), ClusterID: "east",
		ClusterSetID: "set", LeaderClusterID: "north"}
	claim := &mcv1alpha2.ClusterClaim{ObjectMeta: in(multicluster.ClusterClaimClusterID), Value: "east"}
	for i := range handlers {
		for _, o := range []client.Object{service, info, bareInfo, addresses, ours, announce, claim} {
			b, err := json.Marshal(o)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), uint8(0), uint8(0), b, []byte(nil))
			f.Add(uint8(i), uint8(1), uint8(1), b, b)
			f.Add(uint8(i), uint8(0), uint8(2), []byte(nil), b)
		}
	}

	operations := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect}
	f.Fuzz(func(t *testing.T, handler, user, operation uint8, object, old []byte) {
		h := handlers[int(handler)%len(handlers)]
		u := fuzzUsers[int(user)%len(fuzzUsers)]
		req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Namespace: "area", Name: "name", Operation: operations[int(operation)%len(operations)],
			UserInfo: authenticationv1.UserInfo{Username: u.name},
			Object:   runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old},
		}}
		answer := h.do(t.Context(), req)
		if !answer.Allowed {
			if answer.Result == nil || answer.Result.Message == "" && answer.Result.Reason == "" {
				t.Errorf("%s refuses %s of %s without a reason", h.path, req.Operation, u.name)
			}
			return
		}
		if !strings.HasPrefix(h.path, "/validate") || !strings.Contains(u.name, ":area:member-") {
			return
		}
		written := map[admissionv1.Operation][][]byte{admissionv1.Create: {object}, admissionv1.Update: {object, old},
			admissionv1.Delete: {old}}
		for _, raw := range written[req.Operation] {
			var id string
			switch {
			case strings.HasSuffix(h.path, "-resourceexport"):
				var re mcv1alpha1.ResourceExport
				if err := json.Unmarshal(raw, &re); err != nil {
					t.Fatalf("%s allowed what is no ResourceExport: %v", h.path, err)
				}
				id = re.Spec.ClusterID
			case strings.HasSuffix(h.path, "-memberclusterannounce"):
				var a mcv1alpha1.MemberClusterAnnounce
				if err := json.Unmarshal(raw, &a); err != nil {
					t.Fatalf("%s allowed what is no MemberClusterAnnounce: %v", h.path, err)
				}
				id = a.ClusterID
			default:
				continue
			}
			if u.id != "" && id != u.id || id == "west" {
				t.Errorf("%s allows %s to %s what belongs to cluster %q:\n%s\n%s", h.path, u.name, req.Operation, id, object, old)
			}
		}
	})
}
