package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/exports"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/imports"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
)

// TestRoundTripThroughTheLeaderController joins a member to a leader that runs the real leader controller. An export
// comes back as an import of the same cluster, and conflicts with another member are reported. Leaving removes
// everything.
func TestRoundTripThroughTheLeaderController(t *testing.T) {
	w, _ := newParallelWorld(t)
	token := w.token()
	own := clusterSet("")
	own.Namespace, own.Spec.ClusterID, own.Spec.Leaders[0].Secret = area, "north", ""
	w.create(w.leader, own)
	w.start(w.leaderConfig, area, "leader", leader.SetupWithManager)

	// The member's manifests are of the oldest version: no cluster ID but by a ClusterClaim.
	set := clusterSet(w.leaderConfig.Host)
	old := &mcv1alpha1.ClusterSet{ObjectMeta: set.ObjectMeta, Spec: mcv1alpha1.ClusterSetSpec{
		Leaders: []mcv1alpha1.MemberCluster{
			{ClusterID: "north", Server: w.leaderConfig.Host, Secret: "east-token", ServiceAccount: "x"}},
		Namespace: area}}
	claim := &mcv1alpha1.ClusterClaim{ObjectMeta: meta("kube-system", "east-membercluster-id"),
		Name: "id.k8s.io", Value: "east"}
	w.create(w.member, old, claim, &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"), Data: map[string][]byte{
		"ca.crt": w.leaderConfig.CAData, "token": token}})
	w.startMember()
	w.clusterSetIs("True True True", "")
	if err := w.member.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil || set.Spec.ClusterID != "east" {
		t.Fatalf("cluster ID written back: %q, %v", set.Spec.ClusterID, err)
	}

	objects := web("web")
	w.create(w.member, objects...)
	w.exportIs("web", "Succeed")
	w.eventually("the export comes back", func(ctx context.Context) error {
		e, si := &services.Endpoints{}, &mcsv1alpha1.ServiceImport{}
		if err := errors.Join(w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: "antrea-mc-web"}, e),
			w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, si)); err != nil {
			return err
		}
		want := []services.Subset{{Addresses: []services.Address{{IP: objects[0].(*corev1.Service).Spec.ClusterIP}},
			Ports: []services.Port{{Name: "http", Port: 80}}}}
		if !imports.SameSubsets(e.Subsets, want) {
			return fmt.Errorf("have %v", e.Subsets)
		}
		return nil
	})

	// The import itself may not be exported again.
	w.create(w.member, &mcsv1alpha1.ServiceExport{ObjectMeta: meta("default", "antrea-mc-web")})
	w.exportIs("antrea-mc-web", "ImportedService")

	// Another member exported the Service earlier, with other ports. The ports of both are imported, and the user's export
	// reports the conflict.
	other := exports.ResourceExport(membership.Membership{ID: "west", Common: area},
		derive.Object{Namespace: "default", Name: "db"}, "Service")
	other.Spec.Service = &mcv1alpha1.ServiceExport{
		ServiceSpec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "db", Port: 5432, Protocol: corev1.ProtocolTCP}}}}
	w.create(w.leader, &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: meta(area, "member-announce-from-west"),
		ClusterID: "west", ClusterSetID: "set", LeaderClusterID: "north"}, other)
	w.eventually("import of west's", func(ctx context.Context) error {
		return w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: "antrea-mc-db"}, &corev1.Service{})
	})
	w.create(w.member, web("db")...)
	w.eventually("the conflict is told", func(ctx context.Context) error {
		se := &mcsv1alpha1.ServiceExport{}
		if err := w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: "db"}, se); err != nil {
			return err
		}
		if c := apimeta.FindStatusCondition(se.Status.Conditions, "Conflict"); c == nil ||
			c.Status != metav1.ConditionTrue || c.Reason != "PortConflict" {
			return fmt.Errorf("have %v", se.Status.Conditions)
		}
		return nil
	})

	// Two Services lead to the same derived name. When the first one is no longer exported, the second one gets the name.
	collision := func(namespace, name string) []client.Object {
		var out []client.Object
		for _, o := range web(name) {
			o.SetNamespace(namespace)
			out = append(out, o)
		}
		w.create(w.member, &corev1.Namespace{ObjectMeta: meta("", namespace)})
		w.create(w.member, out...)
		return out
	}
	importedFrom := func(namespace, name string) {
		t.Helper()
		w.eventually("import of "+namespace+"/"+name, func(ctx context.Context) error {
			l := &mcsv1alpha1.ServiceImportList{}
			if err := w.member.List(ctx, l); err != nil {
				return err
			}
			var have []string
			for _, si := range l.Items {
				if si.Namespace != "default" {
					have = append(have, si.Namespace+"/"+si.Name)
				}
			}
			if !slices.Equal(have, []string{namespace + "/" + name}) {
				return fmt.Errorf("have %v", have)
			}
			return nil
		})
	}
	valid := func(se *mcsv1alpha1.ServiceExport, reason string) {
		t.Helper()
		w.eventually("ServiceExport "+se.Namespace+"/"+se.Name+" "+reason, func(ctx context.Context) error {
			if err := w.member.Get(ctx, client.ObjectKeyFromObject(se), se); err != nil {
				return err
			}
			if c := apimeta.FindStatusCondition(se.Status.Conditions, "Valid"); c == nil || c.Reason != reason {
				return fmt.Errorf("have %v", se.Status.Conditions)
			}
			return nil
		})
	}
	first := collision("a-b", "c")
	importedFrom("a-b", "c")
	second := collision("a", "b-c")
	valid(second[2].(*mcsv1alpha1.ServiceExport), "ExportNameConflict")
	w.delete(w.member, first[2])
	importedFrom("a", "b-c")
	valid(second[2].(*mcsv1alpha1.ServiceExport), "Succeed")

	// Deleting the export takes the import away.
	w.delete(w.member, objects[2])
	absent := func(from client.Client, objects ...client.Object) {
		t.Helper()
		for _, o := range objects {
			w.eventually(fmt.Sprintf("%T %s is gone", o, o.GetName()), func(ctx context.Context) error {
				if err := from.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
					return fmt.Errorf("still there: %w", err)
				}
				return nil
			})
		}
	}
	absent(w.leader, export("east-default-web-service"), export("east-default-web-endpoints"))
	absent(w.member, &corev1.Service{ObjectMeta: meta("default", "antrea-mc-web")},
		&mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "web")})

	w.delete(w.member, set)
	absent(w.leader, &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: meta(area, "member-announce-from-east")},
		export("east-default-db-service"), export("east-default-db-endpoints"), export("east-a-b-c-service"),
		export("east-a-b-c-endpoints"))
	absent(w.member, &corev1.Service{ObjectMeta: meta("default", "antrea-mc-db")})

	// The cluster exports nothing any more, and conflicts with nothing. The user's export reports that the cluster has
	// left.
	w.eventually("the export says that the cluster has left", func(ctx context.Context) error {
		se := &mcsv1alpha1.ServiceExport{}
		if err := w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: "db"}, se); err != nil {
			return err
		}
		have := fmt.Sprintf("Valid %s, Ready %s, Conflict %s", conditionText(se, "Valid"),
			conditionText(se, "Ready"), conditionText(se, "Conflict"))
		if have != "Valid Unknown NoClusterSet, Ready False Failed, Conflict False NoConflicts" {
			return fmt.Errorf("have %s", have)
		}
		return nil
	})
}
