package member

import (
	"fmt"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// antreaInfo returns cluster east's ClusterInfo as Antrea's member v2.4 has left it. It has no labels, and its Gateway
// no longer exists.
func antreaInfo() *mcv1alpha1.ResourceExport {
	re := export("east-clusterinfo")
	re.Finalizers = []string{multicluster.ResourceExportFinalizer}
	re.Spec = mcv1alpha1.ResourceExportSpec{ClusterID: "east", Kind: multicluster.ClusterInfoKind,
		Namespace: "kube-system", Name: "east",
		ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: "east", ServiceCIDR: "10.97.0.0/16",
			GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.99"}}}}
	return re
}

// emptyArea is a client of an API server with an empty Common Area.
func emptyArea(t *testing.T) client.Client {
	t.Helper()
	t.Parallel()
	server := apiserver.New(t, apiserver.Options{CRDs: []string{"../../../deploy/crds"}})
	to, err := client.New(rest.CopyConfig(server.Config), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, leader: to}
	w.create(to, &corev1.Namespace{ObjectMeta: meta("", area)})
	return to
}

// TestCreateOfWhatExists creates this cluster's ClusterInfo where ResourceExports exist that the watch does not show.
func TestCreateOfWhatExists(t *testing.T) {
	to := emptyArea(t)
	want := antreaInfo()
	want.Labels = map[string]string{multicluster.LabelSourceClusterID: "east",
		multicluster.LabelSourceKind: multicluster.ClusterInfoKind}
	want.Spec.ClusterInfo.GatewayInfos[0].GatewayIP = "10.0.0.1"
	for _, row := range []struct {
		name    string
		change  func(*mcv1alpha1.ResourceExport) // of Antrea's
		deleted bool                             // before the test; the leader has not removed its finalizer yet
		refusal string                           // AlreadyExists: the write is tried again
		gateway string                           // the announced gateway afterwards; empty if the export is being deleted
	}{
		{name: "Antrea's", gateway: "10.0.0.1"},
		{name: "Antrea's, without the leader's finalizer",
			change: func(re *mcv1alpha1.ResourceExport) { re.Finalizers = nil }, gateway: "10.0.0.1"},
		{name: "one that the watch will show", change: func(re *mcv1alpha1.ResourceExport) { re.Labels = want.Labels },
			refusal: "AlreadyExists", gateway: "10.0.0.99"},
		{name: "one that is being deleted", deleted: true, refusal: "AlreadyExists"},
		{name: "of a member in another Namespace",
			change: func(re *mcv1alpha1.ResourceExport) { re.Spec.Namespace = "antrea" }, refusal: "AlreadyExists"},
		{name: "an administrator's",
			change:  func(re *mcv1alpha1.ResourceExport) { re.Spec.Kind = multicluster.NetworkPolicyKind },
			refusal: "AlreadyExists", gateway: "10.0.0.99"},
		{name: "another cluster's", change: func(re *mcv1alpha1.ResourceExport) { re.Spec.ClusterID = "west" },
			refusal: `ResourceExport antrea-multicluster/east-clusterinfo exists already and is of cluster "west", ` +
				`not "east": delete it in the leader if it is out of date; if it is not, rename the object that it is of in ` +
				"one of the two clusters",
			gateway: "10.0.0.99"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := &world{t: t, leader: to}
			had := antreaInfo()
			had.Annotations = map[string]string{"example.org/note": "kept"}
			if row.change != nil {
				row.change(had)
			}
			w.create(to, had)
			if row.deleted {
				w.delete(to, had)
			}
			_, err := write(t.Context(), to, writes.Write{Verb: writes.Create, Kind: "ResourceExport", Object: want})
			refusal := ""
			switch {
			case apierrors.IsAlreadyExists(err):
				refusal = "AlreadyExists"
			case err != nil:
				refusal = err.Error()
			}
			expect(t, "refusal", refusal, row.refusal)
			have := export("east-clusterinfo")
			if err := to.Get(t.Context(), client.ObjectKeyFromObject(have), have); err != nil {
				t.Fatal(err)
			}
			gateway := ""
			if have.DeletionTimestamp.IsZero() {
				gateway = have.Spec.ClusterInfo.GatewayInfos[0].GatewayIP
			}
			expect(t, "gateway", gateway, row.gateway)
			if row.refusal == "" {
				expect(t, "labels", have.Labels, want.Labels)
				expect(t, "finalizers", have.Finalizers, want.Finalizers)
				expect(t, "annotations", have.Annotations, had.Annotations)
			}
			w.delete(to, have)
			w.gone(to, have)
		})
	}
}

// TestLeaveWithUnlabelledInfo leaves the ClusterSet while a ClusterInfo of Antrea exists, before and after a heartbeat
// has labelled it.
func TestLeaveWithUnlabelledInfo(t *testing.T) {
	to := emptyArea(t)
	a := &commonArea{area: membership.Area{ClusterID: "east", Namespace: area}, client: to}
	if err := a.labelInfo(t.Context()); err != nil {
		t.Errorf("without a ClusterInfo: %v", err)
	}
	for _, row := range []struct {
		name   string
		change func(*mcv1alpha1.ResourceExport) // of Antrea's
		kept   bool                             // neither labelled nor deleted
	}{
		{name: "Antrea's"},
		{name: "of a member in another Namespace",
			change: func(re *mcv1alpha1.ResourceExport) { re.Spec.Namespace = "antrea" }},
		{name: "another cluster's", change: func(re *mcv1alpha1.ResourceExport) { re.Spec.ClusterID = "west" }, kept: true},
		{name: "an administrator's",
			change: func(re *mcv1alpha1.ResourceExport) { re.Spec.Kind = multicluster.NetworkPolicyKind }, kept: true},
	} {
		for _, labelled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/labelled %t", row.name, labelled), func(t *testing.T) {
				w := &world{t: t, leader: to}
				re := antreaInfo()
				re.Labels = map[string]string{"example.org/note": "kept"}
				if row.change != nil {
					row.change(re)
				}
				w.create(to, re)
				want := map[string]string{"example.org/note": "kept"}
				if labelled {
					if err := a.labelInfo(t.Context()); err != nil {
						t.Fatal(err)
					}
					if !row.kept {
						want[multicluster.LabelSourceClusterID], want[multicluster.LabelSourceKind] = "east", multicluster.ClusterInfoKind
					}
				}
				if err := a.leaveOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := to.Get(t.Context(), client.ObjectKeyFromObject(re), re); err != nil {
					t.Fatal(err) // its finalizer keeps it
				}
				expect(t, "labels", re.Labels, want)
				expect(t, "kept", re.DeletionTimestamp.IsZero(), row.kept)
				w.delete(to, re)
				w.gone(to, re)
			})
		}
	}
}
