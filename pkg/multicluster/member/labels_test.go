package member

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/identities"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

func pod(ns, name, app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "pause"}}}}
}

// appLabel is the normalised label of Pods of Namespace default with one label.
func appLabel(app string) string { return "ns:kubernetes.io/metadata.name=default&pod:app=" + app }

func labelImport(app string, id uint32) *mcv1alpha1.ResourceImport {
	label := appLabel(app)
	return &mcv1alpha1.ResourceImport{ObjectMeta: meta(area, multicluster.LabelHash(label)),
		Spec: mcv1alpha1.ResourceImportSpec{
			Kind: multicluster.LabelIdentityKind, LabelIdentity: &mcv1alpha1.LabelIdentitySpec{Label: label, ID: id}}}
}

// value is the value of the last label of a text.
func value(label string) string { return label[strings.LastIndex(label, "=")+1:] }

// exportedLabels are the labels of ResourceExports by their last value.
func exportedLabels(list []*mcv1alpha1.ResourceExport) string {
	var out []string
	for _, re := range list {
		if l := re.Spec.LabelIdentity; l != nil {
			out = append(out, value(l.NormalizedLabel))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func importedLabels(list []*mcv1alpha1.LabelIdentity) string {
	var out []string
	for _, l := range list {
		out = append(out, fmt.Sprintf("%s=%d", value(l.Spec.Label), l.Spec.ID))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestExportLabels reads: with these Pods cluster east exports these labels.
func TestExportLabels(t *testing.T) {
	onNode := pod("default", "b", "proxy")
	onNode.Spec.HostNetwork = true
	ended := pod("default", "b", "job")
	ended.Status.Phase = corev1.PodSucceeded
	long := pod("default", "b", "long")
	for i := range 60 {
		long.Labels[fmt.Sprint("example.org/", strings.Repeat("a", 60-i))] = strings.Repeat("b", 63)
		long.Labels[fmt.Sprint(strings.Repeat("example.", 20), "org/", strings.Repeat("a", 60-i))] = strings.Repeat("b", 63)
	}
	for _, row := range []struct {
		name     string
		off      bool
		pods     []*corev1.Pod
		want     string
		problems []string
	}{
		{name: "one label of two Pods", pods: []*corev1.Pod{pod("default", "a", "web"), pod("default", "b", "web")},
			want: "web"},
		{name: "two", pods: []*corev1.Pod{pod("default", "a", "web"), pod("default", "b", "db")}, want: "db web"},
		{name: "in the Node's network", pods: []*corev1.Pod{onNode}, want: "proxy"},
		{name: "one that has ended", pods: []*corev1.Pod{ended}, want: ""},
		{name: "in a Namespace that is not known", pods: []*corev1.Pod{pod("later", "a", "web")}, want: ""},
		{name: "turned off", off: true, pods: []*corev1.Pod{pod("default", "a", "web")}, want: ""},
		{name: "too long", pods: []*corev1.Pod{long, pod("default", "a", "web")}, want: "web",
			problems: []string{"ClusterSet kube-system/set: LabelIdentityInvalid"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Config.EnableStretchedNetworkPolicy = !row.off
			if v.Pods = row.pods; row.off {
				v.Pods = nil // they are not watched
			}
			d, ps := Plan(v)
			if have := exportedLabels(d.ResourceExports); have != row.want {
				t.Errorf("have %q, want %q", have, row.want)
			}
			expect(t, "problems", problems(ps), row.problems)
			// An existing export that is not desired is deleted, also when the feature is turned off.
			old := identities.LabelExport(membership.Membership{ID: "east", Common: area}, policy.Identity(appLabel("old")))
			v.Leader.ResourceExports = append(d.ResourceExports, old)
			d, _ = Plan(v)
			if len(d.Change.Leader) != 1 || d.Change.Leader[0].String() != "delete ResourceExport "+area+"/"+old.Name {
				t.Errorf("writes %v, want the deletion of what nobody uses", d.Change.Leader)
			}
		})
	}
}

// TestLabelsAreBounded exports a part of the label sets of a Namespace that has many. Sets that are exported already
// have precedence. The label sets of all other Namespaces are exported completely.
func TestLabelsAreBounded(t *testing.T) {
	v := joinedView()
	v.Config.EnableStretchedNetworkPolicy = true
	v.Namespaces = append(v.Namespaces, &corev1.Namespace{ObjectMeta: meta("", "few")})
	for i := range 10 {
		v.Pods = append(v.Pods, pod("default", fmt.Sprint("p", i), fmt.Sprint("many", i)))
	}
	v.Pods = append(v.Pods, pod("few", "a", "few1"), pod("few", "b", "few2"))
	tables := newTables(v.Namespace, v.Config)
	tables.labels.Most = 6
	tables.load(v)
	exported := func() string {
		tables.Pass()
		return exportedLabels(derive.Values(tables.labels.LabelExports.All()))
	}
	expect(t, "exported", exported(), "few1 few2 many0 many1 many2 many3")
	expect(t, "problems", problems(tables.Problems()), []string{"ClusterSet kube-system/set: LabelIdentityLimit"})
	for _, re := range derive.Values(tables.labels.LabelExports.All()) {
		tables.OwnExports.Set(re)
	}
	early := pod("default", "early", "aaa")
	tables.Cluster.Set(early)
	expect(t, "with a newcomer", exported(), "few1 few2 many0 many1 many2 many3")
	tables.Cluster.Delete(v.Pods[1])
	expect(t, "when one is gone", exported(), "aaa few1 few2 many0 many2 many3")
	for _, p := range v.Pods[2:7] {
		tables.Cluster.Delete(p)
	}
	tables.Cluster.Delete(early)
	expect(t, "few enough", exported(), "few1 few2 many0 many7 many8 many9")
	expect(t, "problems", len(tables.Problems()), 0)
}

// TestImportLabels reads: from these ResourceImports come these LabelIdentities.
func TestImportLabels(t *testing.T) {
	type imports = []*mcv1alpha1.ResourceImport
	changed := func(ri *mcv1alpha1.ResourceImport, change func(*mcv1alpha1.ResourceImport)) *mcv1alpha1.ResourceImport {
		change(ri)
		return ri
	}
	invalid := []string{"ClusterSet kube-system/set: ResourceImportInvalid"}
	for _, row := range []struct {
		name     string
		off      bool
		imports  imports
		want     string
		problems []string
	}{
		{name: "two", imports: imports{labelImport("web", 1), labelImport("db", multicluster.LastLabelID)},
			want: "db=16777214 web=1"},
		{name: "turned off", off: true, imports: imports{labelImport("web", 1)}, want: ""},
		{name: "no number", imports: imports{labelImport("web", 0), labelImport("db", 2)}, want: "db=2", problems: invalid},
		{name: "the number of nobody", imports: imports{labelImport("web", multicluster.UnknownLabelID)}, problems: invalid},
		{name: "the name of another label", imports: imports{
			changed(labelImport("web", 1), func(ri *mcv1alpha1.ResourceImport) { ri.Name = "x" })}, problems: invalid},
		{name: "no label", imports: imports{changed(labelImport("web", 1),
			func(ri *mcv1alpha1.ResourceImport) { ri.Spec.LabelIdentity = nil })}, problems: invalid},
		{name: "a text that is none", imports: imports{changed(labelImport("web", 1),
			func(ri *mcv1alpha1.ResourceImport) { ri.Spec.LabelIdentity.Label = "app=web" })}, problems: invalid},
		{name: "one number twice", problems: invalid, want: "db=1",
			imports: imports{labelImport("db", 1),
				changed(labelImport("web", 1), func(ri *mcv1alpha1.ResourceImport) { ri.CreationTimestamp.Time = now })}},
		{name: "for another cluster", imports: imports{
			changed(labelImport("web", 1), func(ri *mcv1alpha1.ResourceImport) { ri.Spec.ClusterIDs = []string{"west"} })}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Config.EnableStretchedNetworkPolicy = !row.off
			v.Leader.ResourceImports = row.imports
			d, ps := Plan(v)
			if have := importedLabels(d.LabelIdentities); have != row.want {
				t.Errorf("have %q, want %q", have, row.want)
			}
			expect(t, "problems", problems(ps), row.problems)
		})
	}
	// A number moves from one label to another. The first label loses it before the second one gets it.
	v := joinedView()
	v.Config.EnableStretchedNetworkPolicy = true
	old := &mcv1alpha1.LabelIdentity{ObjectMeta: meta("", labelImport("web", 1).Name),
		Spec: *labelImport("web", 1).Spec.LabelIdentity}
	v.LabelIdentities = []*mcv1alpha1.LabelIdentity{old}
	v.Leader.ResourceImports = imports{labelImport("db", 1)}
	d, _ := Plan(v)
	var have []string
	for _, w := range d.Change.Local {
		if w.Kind == "LabelIdentity" {
			have = append(have, fmt.Sprintf("%s after %q", w, w.After))
		}
	}
	expect(t, "writes", have, []string{
		fmt.Sprintf("delete LabelIdentity %s after %q", old.Name, ""),
		fmt.Sprintf("create LabelIdentity %s after %q", labelImport("db", 1).Name, "LabelIdentity "+old.Name)})
	v.Leader.Synced = false
	d, _ = Plan(v)
	for _, w := range d.Change.Local {
		if w.Kind == "LabelIdentity" {
			t.Errorf("%s while the leader's list is not known", w)
		}
	}
}

// TestLabelsThroughTheLeaderController exports the labels of a member's Pods, and imports them with numbers. The member
// restarts, the leader fails and comes back, and at the end the feature is turned off.
func TestLabelsThroughTheLeaderController(t *testing.T) {
	w, server := newParallelWorld(t)
	w.config.EnableStretchedNetworkPolicy = true
	token := w.token()
	own := clusterSet("")
	own.Namespace, own.Spec.ClusterID, own.Spec.Leaders[0].Secret = area, "north", ""
	w.create(w.leader, own)
	stopLeader := w.start(w.leaderConfig, area, "leader", leader.SetupWithManager)
	w.create(w.member, clusterSet(w.leaderConfig.Host),
		&corev1.Secret{ObjectMeta: meta("kube-system", "east-token"), Data: map[string][]byte{
			"ca.crt": w.leaderConfig.CAData, "token": token}},
		&corev1.ServiceAccount{ObjectMeta: meta("default", "default")})
	w.startMember()
	is := func(step, want string) {
		t.Helper()
		w.eventually(step+": "+want, func(ctx context.Context) error {
			l := &mcv1alpha1.LabelIdentityList{}
			if err := w.member.List(ctx, l); err != nil {
				return err
			}
			var list []*mcv1alpha1.LabelIdentity
			for i := range l.Items {
				list = append(list, &l.Items[i])
			}
			if have := importedLabels(list); have != want {
				return fmt.Errorf("have %q", have)
			}
			return nil
		})
	}
	ofPods := func(pods ...*corev1.Pod) {
		t.Helper()
		for _, p := range pods {
			w.create(w.member, p)
		}
	}
	now := func(p *corev1.Pod) {
		t.Helper()
		if err := w.member.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	web, db := pod("default", "web", "web"), pod("default", "db", "db")
	ofPods(web)
	is("a Pod", "web=1")
	ofPods(pod("default", "web2", "web"), db)
	is("two labels", "db=2 web=1")
	w.update(w.member, web, func() { web.Labels["app"] = "new" })
	is("a Pod's label changes, another still has the old one", "db=2 new=3 web=1")
	now(db)
	is("a label's last Pod is gone", "new=3 web=1")

	// Both are restarted, and the leader is away while there is something new.
	stopLeader()
	w.stop()
	w.startMember()
	ofPods(pod("default", "late", "late"))
	w.start(w.leaderConfig, area, "leader", leader.SetupWithManager)
	is("restarted", "late=4 new=3 web=1")
	server.Stop()
	ofPods(pod("default", "away", "away"))
	w.clusterSetIs("False True False", "")
	is("the leader is away", "late=4 new=3 web=1")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("the leader is back", "away=5 late=4 new=3 web=1")

	// Drift.
	drifted := &mcv1alpha1.LabelIdentity{ObjectMeta: meta("", labelImport("web", 1).Name)}
	w.update(w.member, drifted, func() { drifted.Spec.ID = 77 })
	is("somebody changes a number", "away=5 late=4 new=3 web=1")

	// Turned off: nothing is imported or exported any more, and no Pod is watched.
	w.stop()
	w.config.EnableStretchedNetworkPolicy = false
	w.startMember()
	is("turned off", "")
	w.eventually("the exports are gone", func(ctx context.Context) error {
		l := &mcv1alpha1.ResourceExportList{}
		if err := w.leader.List(ctx, l); err != nil || len(l.Items) > 0 {
			return fmt.Errorf("%d left: %w", len(l.Items), err)
		}
		return nil
	})
}

// TestLabelFloodIsPaced makes more label identities at once than the burst allows, and then an export of a Service. The
// export does not wait for the label identities.
func TestLabelFloodIsPaced(t *testing.T) {
	limiter := newLabelLimiter()
	if !limiter.AllowN(time.Now(), labelBurst) || limiter.Allow() {
		t.Errorf("the limiter allows other than %d at once", labelBurst)
	}
	v := exportingView()
	v.Config.EnableStretchedNetworkPolicy = true
	c := newController("kube-system", v.Config, nil, slog.New(slog.DiscardHandler))
	c.tables.load(v)
	c.tables.Pass()
	for i := range 3000 {
		p := pod("default", fmt.Sprint("p", i), fmt.Sprint("a", i))
		c.tables.Cluster.Set(p)
	}
	c.tables.Pass()
	if n := c.pacedWrites.Len(); n != 3000 {
		t.Errorf("%d labels wait in their queue, want 3000", n)
	}
	if n := c.leaderWrites.Len(); n != 2 {
		t.Errorf("%d writes wait in the queue of the others, want the two exports of the Service", n)
	}
	for i := range 3000 {
		c.tables.Cluster.Delete(pod("default", fmt.Sprint("p", i), ""))
	}
	c.tables.Pass()
	if n := c.pacedWrites.Len(); n != 0 {
		t.Errorf("%d labels wait although their Pods are gone", n)
	}
}
