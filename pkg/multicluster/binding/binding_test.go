package binding

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// accounts reads "name" or "name=cluster ID".
func accounts(text string) (list []*corev1.ServiceAccount) {
	for _, word := range strings.Fields(text) {
		name, id, bound := strings.Cut(word, "=")
		a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if bound {
			a.Annotations = map[string]string{multicluster.AnnotationClusterID: id}
		}
		list = append(list, a)
	}
	return list
}

// announcements reads "cluster ID" or "cluster ID<account", the oldest first; those joined by
// a comma are of one age.
func announcements(text string) (list []*mcv1alpha1.MemberClusterAnnounce) {
	for age, word := range strings.Fields(text) {
		for one := range strings.SplitSeq(word, ",") {
			id, by, known := strings.Cut(one, "<")
			a := &mcv1alpha1.MemberClusterAnnounce{ClusterID: id,
				ObjectMeta: metav1.ObjectMeta{Name: multicluster.AnnounceName(id),
					CreationTimestamp: metav1.Unix(1_000_000+int64(age), 0)}}
			if known {
				a.Annotations = map[string]string{multicluster.AnnotationAnnouncedBy: by}
			}
			list = append(list, a)
		}
	}
	return list
}

func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name, accounts, announces string
		want                      string // "account=ID" to bind, "loser<winner" for rivals
	}{
		{"nobody", "a b=east", "", ""},
		{"one that announced itself", "a", "east<a", "a=east"},
		{"two", "a b", "east<a west<b", "a=east b=west"},
		{"one that is bound", "a=east", "east<a", ""},
		{"an announcement without a record", "a b=west", "east west", ""},
		{"an account that is gone", "b", "east<a", ""},
		{"the leader's own account", multicluster.ControllerName, "east<" + multicluster.ControllerName, ""},
		{"an ID that another is bound to", "a b=east", "east<a", ""},
		{"the older of two", "a", "west<a east<a", "a=west east<west"},
		{"of two of one age the first by name", "a", "west<a,east<a", "a=east west<east"},
		{"the younger was bound first", "a=east", "west<a east<a", "west<east"},
		{"the second of two, by hand", "a=west", "east<a west<a", "east<west"},
		{"moved by hand to another ID, not announced yet", "a=west", "east<a", ""},
		{"the loser of two has an account by hand", "a b=west", "east<a west<a", "a=east"},
		{"the winner of two has another account by hand", "a b=east", "east<a west<a", "west<east"},
		{"bound to no member", "a=", "east<a", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := Decide(accounts(row.accounts), announcements(row.announces))
			var have []string
			for _, name := range slices.Sorted(maps.Keys(d.Unbound)) {
				have = append(have, name+"="+d.Unbound[name].ClusterID)
			}
			for _, name := range slices.Sorted(maps.Keys(d.Rivals)) {
				have = append(have, strings.TrimPrefix(name, multicluster.MemberClusterAnnouncePrefix)+"<"+d.Rivals[name].ClusterID)
			}
			if text := strings.Join(have, " "); text != row.want {
				t.Errorf("have %q, want %q", text, row.want)
			}
		})
	}
}
