package leader

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// app is the normalised label of Pods with one label.
func app(name string) string {
	return "ns:kubernetes.io/metadata.name=default&pod:app=" + name
}

func label(cluster, text string) *mcv1alpha1.ResourceExport {
	re := &mcv1alpha1.ResourceExport{Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster,
		Kind:          multicluster.LabelIdentityKind,
		LabelIdentity: &mcv1alpha1.LabelIdentityExport{NormalizedLabel: text}}}
	re.Name = cluster + "-" + multicluster.LabelHash(text)
	re.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	return re
}

// numbered returns the existing import of a label set.
func numbered(text string, id uint32, age time.Duration) *mcv1alpha1.ResourceImport {
	ri := &mcv1alpha1.ResourceImport{Spec: mcv1alpha1.ResourceImportSpec{Kind: multicluster.LabelIdentityKind,
		LabelIdentity: &mcv1alpha1.LabelIdentitySpec{Label: text, ID: id}}}
	ri.Namespace, ri.Name, ri.CreationTimestamp = "area", multicluster.LabelHash(text), metav1.NewTime(noon.Add(-age))
	return ri
}

// numbers are the label sets of imports with their numbers, by the last label's value.
func numbers(imports []*mcv1alpha1.ResourceImport) string {
	var out []string
	for _, ri := range imports {
		if l := ri.Spec.LabelIdentity; l != nil {
			out = append(out, fmt.Sprintf("%s=%d", l.Label[strings.LastIndex(l.Label, "=")+1:], l.ID))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestLabels reads: with these imports and exports a leader that starts has these numbers.
func TestLabels(t *testing.T) {
	type exports = []*mcv1alpha1.ResourceExport
	type imports = []*mcv1alpha1.ResourceImport
	for _, row := range []struct {
		name    string
		before  imports
		exports exports
		want    string
		failed  []string
	}{
		{name: "one set in two clusters", exports: exports{label("east", app("web")), label("west", app("web"))},
			want: "web=1"},
		{name: "what is imported keeps its number", before: imports{numbered(app("web"), 7, time.Hour)},
			exports: exports{label("east", app("web"))}, want: "web=7"},
		{name: "after a restart new ones are above the others", before: imports{numbered(app("web"), 7, time.Hour)},
			exports: exports{label("east", app("web")), label("east", app("db"))}, want: "db=8 web=7"},
		{name: "of two with one number the older keeps it",
			before:  imports{numbered(app("web"), 7, time.Minute), numbered(app("db"), 7, time.Hour)},
			exports: exports{label("east", app("web")), label("east", app("db"))}, want: "db=7 web=8"},
		{name: "a number that is none",
			before:  imports{numbered(app("web"), 0, time.Hour), numbered(app("db"), multicluster.UnknownLabelID, time.Hour)},
			exports: exports{label("east", app("web")), label("east", app("db"))}, want: "db=1 web=2"},
		{name: "the last number is in use", before: imports{numbered(app("web"), multicluster.LastLabelID, time.Hour)},
			exports: exports{label("east", app("web")), label("east", app("db"))}, want: "db=1 web=16777214"},
		{name: "nobody exports it any more", before: imports{numbered(app("web"), 7, time.Hour)}, want: ""},
		{name: "of no member", exports: exports{label("nobody", app("web"))}, want: "",
			failed: []string{"nobody-" + multicluster.LabelHash(app("web")) +
				": cluster nobody is not a member of the ClusterSet: it has no MemberClusterAnnounce; this ResourceExport is " +
				"deleted after 1h0m0s"}},
		{name: "no label",
			exports: exports{without(func(re *mcv1alpha1.ResourceExport) { re.Spec.LabelIdentity = nil },
				label("east", app("web"))), label("east", app("db"))}, want: "db=1",
			failed: []string{"east-" + multicluster.LabelHash(app("web")) + ": spec.labelIdentity is missing"}},
		{name: "a text that is none", exports: exports{label("east", "app=web"), label("east", app("db"))}, want: "db=1",
			failed: []string{"east-" + multicluster.LabelHash("app=web") +
				`: spec.labelIdentity.normalizedLabel: "app=web" is not a normalised label: expected ns:<labels>&pod:<labels>`}},
		{name: "another's name",
			exports: exports{without(func(re *mcv1alpha1.ResourceExport) { re.Name = "x" }, label("east", app("web"))),
				label("west", app("web"))}, want: "web=1",
			failed: []string{"x: metadata.name: the export of this label by cluster east must be named east-" +
				multicluster.LabelHash(app("web"))}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := View{Namespace: "area", Now: noon, Announces: announced("east", "west"), ResourceExports: row.exports,
				ResourceImports: row.before}
			d, _ := Plan(v)
			var have imports
			for _, ri := range d.Imports {
				have = append(have, ri)
			}
			var failed []string
			for name, c := range d.Conditions {
				failed = append(failed,
					name+": "+strings.TrimPrefix(c.Message, "the ResourceExport cannot be converged to a ResourceImport: "))
			}
			if numbers(have) != row.want || !slices.Equal(failed, row.failed) {
				t.Errorf("have %q, want %q; failed %q, want %q", numbers(have), row.want, failed, row.failed)
			}
			// A running leader sees the imports and exports one after the other. At the end it has written the same.
			w := newWalker(1)
			w.is(v)
			w.converge(t)
			if have := numbers(values(w.facts.imports.All())); have != row.want && len(row.failed) == 0 {
				t.Errorf("a running leader comes to %q, want %q", have, row.want)
			}
		})
	}
}

// leaderOfLabels is a leader whose steps are done one by one.
type leaderOfLabels struct {
	*walker
	t *testing.T
}

func newLeaderOfLabels(t *testing.T, last uint32) leaderOfLabels {
	w := newWalker(1)
	w.clock.numbering.last = last
	for _, a := range announced("east", "west") {
		w.facts.announcements.Set(derive.Object{Namespace: "area", Name: a.Name}, announceFacts(a))
	}
	return leaderOfLabels{w, t}
}

// export has members export label sets, and no others: "web db" by east, "/web" by west.
func (l leaderOfLabels) export(sets ...string) {
	rows, status := map[derive.Object]*export{}, map[derive.Object]written{}
	for _, name := range sets {
		cluster := "east"
		if rest, west := strings.CutPrefix(name, "/"); west {
			cluster, name = "west", rest
		}
		re := label(cluster, app(name))
		re.Namespace = "area"
		rows[keyOf(re)], status[keyOf(re)] = exportFacts(re), writtenFacts(re)
		if old, ok := l.facts.written.Get(keyOf(re)); ok {
			status[keyOf(re)] = old
		}
	}
	l.facts.exports.Replace(rows)
	l.facts.written.Replace(status)
	l.converge(l.t)
}

func (l leaderOfLabels) is(step, want string, failed ...string) {
	l.t.Helper()
	if have := numbers(values(l.facts.imports.All())); have != want {
		l.t.Errorf("%s: %q, want %q", step, have, want)
	}
	var have []string
	for _, row := range l.conditions.All() {
		if e, _ := l.facts.exports.Get(row.Key); row.Value.Type == mcv1alpha1.ResourceExportFailure {
			have = append(have, e.Label[strings.LastIndex(e.Label, "=")+1:]+": "+row.Value.Message)
		}
	}
	slices.Sort(have)
	if diff := cmp.Diff(failed, have); diff != "" {
		l.t.Errorf("%s: failed (-want +have):\n%s", step, diff)
	}
}

func (l leaderOfLabels) later(d time.Duration) {
	l.now = l.now.Add(d)
	for _, a := range announced("east", "west") { // a heartbeat
		k := derive.Object{Namespace: "area", Name: a.Name}
		have, _ := l.facts.announcements.Get(k)
		have.Touched = l.now.String()
		l.facts.announcements.Set(k, have)
	}
	l.converge(l.t)
}

// TestNumbering gives, keeps, releases and gives again.
func TestNumbering(t *testing.T) {
	l := newLeaderOfLabels(t, multicluster.LastLabelID)
	l.export("a")
	l.is("the first", "a=1")
	l.export("a", "b")
	l.export("a", "b", "c")
	l.is("three", "a=1 b=2 c=3")
	l.export("a", "b", "/a")
	l.is("c is gone, west has a too", "a=1 b=2")
	l.export("b", "/a")
	l.is("east is without a, west is not", "a=1 b=2")
	l.export("b", "/a", "d")
	l.is("a number that was just released rests", "a=1 b=2 d=4")
	l.export("b", "/a", "d", "c")
	l.is("one that comes back has its number again", "a=1 b=2 c=3 d=4")
	l.export("d", "c")
	l.later(restNumbers + time.Second)
	l.export("d", "c", "e")
	l.is("the lowest that has rested", "c=3 d=4 e=1")
	l.export("d", "c", "e", "f")
	l.export("d", "c", "e", "f", "g")
	l.is("then the next, then new ones", "c=3 d=4 e=1 f=2 g=5")

	// A user changes a number by hand. The leader changes it back.
	wrong := numbered(app("e"), 9, 0)
	l.facts.imports.Set(keyOf(wrong), wrong)
	l.converge(t)
	if have := numbers(values(l.facts.imports.All())); !strings.Contains(have, "e=1") {
		t.Errorf("a number that was changed by hand stays: %s", have)
	}
}

// TestNumbersAreExhausted reports on exports that there is no free number. When a number is free, it assigns it.
func TestNumbersAreExhausted(t *testing.T) {
	const why = ": the ResourceExport cannot be converged to a ResourceImport: all 16777214 numbers of label identities " +
		"are in use, or were within the last 10m0s: use fewer different sets of labels in the ClusterSet"
	l := newLeaderOfLabels(t, 2)
	l.export("a", "b")
	before := numbers(values(l.facts.imports.All()))
	l.export("a", "b", "c", "/c")
	l.is("two numbers for three", before, "c"+why, "c"+why)
	l.export("b", "c")
	_, b, _ := strings.Cut(before, " ")
	l.is("a's number rests", b, "c"+why)
	l.later(restNumbers + time.Second)
	a, _, _ := strings.Cut(before, " ")
	l.is("c has it", b+" "+strings.Replace(a, "a", "c", 1))
}

// TestGapsAtTheStart starts a leader while some numbers are not in use. Only after the rest time does the leader assign
// such a number.
func TestGapsAtTheStart(t *testing.T) {
	l := newLeaderOfLabels(t, multicluster.LastLabelID)
	old := numbered(app("a"), 3, time.Hour)
	l.facts.imports.Set(keyOf(old), old)
	l.export("a", "b")
	l.is("just started", "a=3 b=4")
	l.later(restNumbers + time.Second)
	l.export("a", "b", "c")
	l.is("later", "a=3 b=4 c=1")
	l.export("a", "b", "c", "d")
	l.export("a", "b", "c", "d", "e")
	l.is("around those in use", "a=3 b=4 c=1 d=2 e=5")
}

// TestLabelsWithRealAPIServer restarts the leader. Numbers stay, also if a leader has assigned one twice.
func TestLabelsWithRealAPIServer(t *testing.T) {
	ctx := t.Context()
	c, restart := startLeaders(t)
	is := func(step, want string) {
		t.Helper()
		have := ""
		within(t, step, func(ctx context.Context) bool {
			var list mcv1alpha1.ResourceImportList
			if err := c.List(ctx, &list); err != nil {
				t.Fatal(err)
			}
			var imports []*mcv1alpha1.ResourceImport
			for i := range list.Items {
				imports = append(imports, &list.Items[i])
			}
			have = numbers(imports)
			return have == want
		})
	}
	for _, id := range []string{"east", "west"} {
		inArea(t, c, &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Name: multicluster.AnnounceName(id)},
			ClusterID: id, ClusterSetID: "set", LeaderClusterID: "north"})
	}
	inArea(t, c, label("east", app("a")))
	is("the first", "a=1")
	inArea(t, c, label("east", app("b")))
	is("the second", "a=1 b=2")
	inArea(t, c, label("west", app("b")))
	gone := label("east", app("a"))
	gone.Namespace = "area"
	if err := c.Delete(ctx, gone); err != nil {
		t.Fatal(err)
	}
	is("the first is gone", "b=2")

	restart(func() { inArea(t, c, label("west", app("c"))) })
	is("exported while the leader was away", "b=2 c=3")
	twice := numbered(app("d"), 3, 0)
	restart(func() {
		inArea(t, c, label("west", app("d")))
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // creation times are in seconds
		inArea(t, c, twice)
	})
	is("one number twice: the older one keeps it", "b=2 c=3 d=4")
	restart(func() {})
	inArea(t, c, label("west", app("e")))
	is("and they stay", "b=2 c=3 d=4 e=5")
	var exports mcv1alpha1.ResourceExportList
	if err := c.List(ctx, &exports, client.InNamespace("area")); err != nil {
		t.Fatal(err)
	}
	for _, re := range exports.Items {
		if len(re.Status.Conditions) > 0 {
			t.Errorf("ResourceExport %s has a condition that nobody reads: %v", re.Name, re.Status.Conditions)
		}
	}
}
