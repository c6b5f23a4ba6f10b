package leader

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func service(cluster, namespace, name string, age time.Duration, port int32) *mcv1alpha1.ResourceExport {
	re := &mcv1alpha1.ResourceExport{Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster, Namespace: namespace,
		Name: name, Kind: multicluster.ServiceKind}}
	re.Name = multicluster.ResourceExportName(cluster, namespace, name, multicluster.ServiceSuffix)
	re.CreationTimestamp = metav1.NewTime(noon.Add(-age))
	re.Finalizers = []string{multicluster.ResourceExportFinalizerOld}
	re.Spec.Service = &mcv1alpha1.ServiceExport{
		ServiceSpec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port, Protocol: corev1.ProtocolTCP}}}}
	return re
}

func leaving(re *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceExport {
	now := metav1.NewTime(noon)
	re.DeletionTimestamp = &now
	return re
}

func TestPlanServices(t *testing.T) {
	for _, row := range []struct {
		name     string
		exports  []*mcv1alpha1.ResourceExport
		imports  int
		failed   []string
		released []string
	}{
		{"two clusters agree", []*mcv1alpha1.ResourceExport{service("east", "default", "web", time.Hour, 80),
			service("west", "default", "web", time.Minute, 80)}, 1, nil, nil},
		{"the younger disagrees about ports", []*mcv1alpha1.ResourceExport{service("east", "default", "web", time.Minute, 80),
			service("west", "default", "web", time.Hour, 81)}, 1, nil, nil},
		{"two Services with one derived name", []*mcv1alpha1.ResourceExport{service("east", "a-b", "c", time.Hour, 80),
			service("west", "a", "b-c", time.Minute, 80)}, 1, []string{"west-a-b-c-service"}, nil},
		{"the last is deleted", []*mcv1alpha1.ResourceExport{leaving(service("east", "default", "web", time.Hour, 80))}, 0,
			nil, []string{"east-default-web-service"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, _ := Plan(View{Namespace: "area", Now: noon, Announces: announced("east", "west"), ResourceExports: row.exports})
			var failed []string
			for name, c := range d.Conditions {
				if c.Type == mcv1alpha1.ResourceExportFailure {
					failed = append(failed, name)
				}
			}
			if len(d.Imports) != row.imports || !slices.Equal(failed, row.failed) ||
				!slices.Equal(d.ReleaseExports, row.released) {
				t.Errorf("imports %d, failed %v, released %v; want %d, %v, %v", len(d.Imports), failed, d.ReleaseExports,
					row.imports, row.failed, row.released)
			}
		})
	}
}

func TestPlanMembers(t *testing.T) {
	announce := func(touched time.Duration, finalizers ...string) *mcv1alpha1.MemberClusterAnnounce {
		a := &mcv1alpha1.MemberClusterAnnounce{ClusterID: "east"}
		a.Name, a.Finalizers = multicluster.AnnounceName("east"), finalizers
		a.CreationTimestamp = metav1.NewTime(noon.Add(-48 * time.Hour))
		a.Annotations = map[string]string{multicluster.AnnotationTouchTimestamp: noon.Add(-touched).Format(time.RFC3339)}
		return a
	}
	finalizer := multicluster.MemberClusterAnnounceFinalizerPrefix + "east"
	re := service("east", "default", "web", time.Hour, 80)

	d, _ := Plan(View{Now: noon, Announces: []*mcv1alpha1.MemberClusterAnnounce{announce(time.Second)}})
	if len(d.HoldAnnounces) != 1 || len(d.DeleteAnnounces) != 0 {
		t.Errorf("a new member: %+v", d)
	}
	d, _ = Plan(View{Now: noon, Announces: []*mcv1alpha1.MemberClusterAnnounce{announce(25*time.Hour, finalizer)},
		Seen: map[string]Sighting{multicluster.AnnounceName("east"): {First: noon.Add(-time.Hour),
			Changed: noon.Add(-time.Hour)}}})
	if len(d.DeleteAnnounces) != 1 {
		t.Errorf("a member that is silent for a day: %+v", d)
	}
	gone := announce(time.Second, finalizer)
	now := metav1.NewTime(noon)
	gone.DeletionTimestamp = &now
	d, _ = Plan(View{Now: noon, Announces: []*mcv1alpha1.MemberClusterAnnounce{gone},
		ResourceExports: []*mcv1alpha1.ResourceExport{re}})
	if !slices.Equal(d.DeleteExports, []string{re.Name}) || len(d.Imports) != 0 || len(d.ReleaseAnnounces) != 0 {
		t.Errorf("a member that leaves with an export: %+v", d)
	}
	d, _ = Plan(View{Now: noon, Announces: []*mcv1alpha1.MemberClusterAnnounce{gone}})
	if len(d.ReleaseAnnounces) != 1 {
		t.Errorf("a member that has left: %+v", d)
	}
}
