package leader

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

func announcedBy(account, id string, age time.Duration) *mcv1alpha1.MemberClusterAnnounce {
	a := &mcv1alpha1.MemberClusterAnnounce{ClusterID: id, ClusterSetID: "set", LeaderClusterID: "north"}
	a.Namespace, a.Name, a.CreationTimestamp = "area", multicluster.AnnounceName(id), metav1.NewTime(noon.Add(-age))
	a.Annotations = map[string]string{multicluster.AnnotationAnnouncedBy: account}
	return a
}

func serviceAccount(name, id string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name}}
	if id != "" {
		a.Annotations = map[string]string{multicluster.AnnotationClusterID: id}
	}
	return a
}

// TestPlanBindings keeps a member out of the ClusterSet if it announced itself with another member's account.
func TestPlanBindings(t *testing.T) {
	leaves := announcedBy("member", "west", time.Hour)
	leaves.DeletionTimestamp = &metav1.Time{Time: noon}
	for _, row := range []struct {
		name      string
		accounts  []*corev1.ServiceAccount
		announces []*mcv1alpha1.MemberClusterAnnounce
		bind      map[string]string
		members   string
		problem   string // parts of it, in order
	}{
		{"one", []*corev1.ServiceAccount{serviceAccount("member", "")},
			[]*mcv1alpha1.MemberClusterAnnounce{announcedBy("member", "east", 0)},
			map[string]string{"member": "east"}, "east", ""},
		{"one that leaves before it is bound", []*corev1.ServiceAccount{serviceAccount("member", "")},
			[]*mcv1alpha1.MemberClusterAnnounce{leaves}, nil, "", ""},
		{"two at once with one account", []*corev1.ServiceAccount{serviceAccount("member", "")},
			[]*mcv1alpha1.MemberClusterAnnounce{announcedBy("member", "east", 0), announcedBy("member", "west", time.Second)},
			map[string]string{"member": "west"}, "west",
			"MemberClusterAnnounce area/member-announce-from-east ServiceAccount member member-announce-from-west delete this " +
				"a ServiceAccount of its own"},
		{"the same, later", []*corev1.ServiceAccount{serviceAccount("member", "west")},
			[]*mcv1alpha1.MemberClusterAnnounce{announcedBy("member", "east", 0), announcedBy("member", "west", time.Second)},
			nil, "west", "member-announce-from-east member-announce-from-west"},
		{"the loser gets an account by hand",
			[]*corev1.ServiceAccount{serviceAccount("member", "west"), serviceAccount("other", "east")},
			[]*mcv1alpha1.MemberClusterAnnounce{announcedBy("member", "east", 0), announcedBy("member", "west", time.Second)},
			nil, "east west", ""},
		{"the loser leaves", []*corev1.ServiceAccount{serviceAccount("member", "east")},
			[]*mcv1alpha1.MemberClusterAnnounce{announcedBy("member", "east", 0), leaves}, nil, "east", ""},
		{"of an older version", []*corev1.ServiceAccount{serviceAccount("member", "")},
			[]*mcv1alpha1.MemberClusterAnnounce{announcedBy("", "east", 0)}, nil, "east", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, problems := Plan(View{Namespace: "area", Now: noon, Accounts: row.accounts, Announces: row.announces,
				ClusterSets: []*mcv1alpha2.ClusterSet{set("set", "north", "north")}})
			if !maps.Equal(d.Bind, row.bind) {
				t.Errorf("binds %v, want %v", d.Bind, row.bind)
			}
			var members []string
			for _, s := range d.ClusterSet.Status.ClusterStatuses {
				members = append(members, s.ClusterID)
			}
			if have := strings.Join(members, " "); have != row.members {
				t.Errorf("members %q, want %q", have, row.members)
			}
			text := fmt.Sprint(problems)
			if (len(problems) > 0) != (row.problem != "") {
				t.Errorf("problems %s, want %q", text, row.problem)
			}
			for word := range strings.FieldsSeq(row.problem) {
				if !strings.Contains(text, word) {
					t.Errorf("problems %s, want %q in them", text, word)
				}
			}
		})
	}
}

// TestBindLosesToAnOperator plans a binding, and writes it after an operator has bound the account.
func TestBindLosesToAnOperator(t *testing.T) {
	access := apiserver.Start(t, "../../../deploy/crds")
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(access, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../../../deploy/multicluster/v1.5/antrea-multicluster-leader-namespaced.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "area"}}); err != nil {
		t.Fatal(err)
	}
	writerOf, err := client.New(apiserver.Access(t, access,
		bytes.ReplaceAll(manifest, []byte("changeme"), []byte("area"))), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	member, moved, gone := serviceAccount("member", ""), serviceAccount("moved", ""), serviceAccount("gone", "")
	for _, a := range []*corev1.ServiceAccount{member, moved} {
		if err := admin.Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	gone.ResourceVersion = moved.ResourceVersion
	planned := []accountStep{{member.DeepCopy(), "east"}, {moved.DeepCopy(), "west"}, {gone, "north"}}
	moved.Annotations = map[string]string{multicluster.AnnotationClusterID: "south"}
	if err := admin.Update(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	w := &writer{to: writerOf}
	for _, s := range planned {
		o := w.accountOffer(derive.Object{Namespace: "area", Name: s.Have.Name}, s)
		if err := o.Writes[0].Do(t.Context()); (err == nil) != (s.Have.Name == "member") || err != nil &&
			!apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", o.Writes[0].What, err)
		}
	}
	for name, want := range map[string]string{"member": "east", "moved": "south"} {
		a := serviceAccount(name, "")
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
			t.Fatal(err)
		}
		if id, _ := binding.Bound(a); id != want {
			t.Errorf("%s is bound to %q, want %q", name, id, want)
		}
	}
}
