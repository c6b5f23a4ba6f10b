package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	poll "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/test/logtext"
)

// logged records the log lines of a test.
type logged struct{ logtext.Buffer }

// lines returns the lines that have all of these words.
func (l *logged) lines(words ...string) (found []string) {
next:
	for line := range strings.Lines(l.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

func captureLog(t *testing.T) *logged {
	t.Helper()
	l, before := &logged{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() { slog.SetDefault(before) })
	return l
}

// refuse makes the API server refuse writes of these resources to one object, as an administrator's policy may. The
// returned function removes the refusal.
func refuse(t *testing.T, c client.Client, resource, name string) (lift func()) {
	t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-" + name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule: admissionv1.Rule{APIGroups: []string{mcv1alpha1.GroupVersion.Group},
						APIVersions: []string{"*"}, Resources: []string{resource}},
				},
			}}},
			Validations: []admissionv1.Validation{
				{Expression: fmt.Sprintf("object.metadata.name != %q", name), Message: "not in this cluster"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: policy.ObjectMeta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	for _, o := range []client.Object{policy, binding} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		if err := c.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
}

func within(t *testing.T, what string, is func(context.Context) bool) {
	t.Helper()
	err := poll.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, waitLimit, true,
		func(ctx context.Context) (bool, error) { return is(ctx), nil })
	if err != nil {
		t.Fatalf("%s: not within %s: %v", what, waitLimit, err)
	}
}

// TestARefusedWriteHoldsUpNoOther makes the API server refuse one import and the status of the ClusterSet. All other
// writes arrive as usual. The import arrives when it is allowed again.
func TestARefusedWriteHoldsUpNoOther(t *testing.T) {
	log := captureLog(t)
	c := startLeader(t)
	named := func(o client.Object, name string) func(context.Context) bool {
		return func(ctx context.Context) bool {
			return c.Get(ctx, client.ObjectKey{Namespace: "area", Name: name}, o) == nil
		}
	}
	verdict := func(export string) string {
		re := &mcv1alpha1.ResourceExport{}
		if !named(re, export)(t.Context()) || len(re.Status.Conditions) != 1 {
			return ""
		}
		return string(re.Status.Conditions[0].Type) + " " + re.Status.Conditions[0].Message
	}

	allowImport := refuse(t, c, "resourceimports", "default-bad-service")
	refuse(t, c, "clustersets/status", "set")
	within(t, "the policies are in force", func(ctx context.Context) bool {
		probe := &mcv1alpha1.ResourceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "default-bad-service"}}
		probe.Spec.Kind = "Probe"
		set := &mcv1alpha2.ClusterSet{}
		return apierrors.IsInvalid(c.Create(ctx, probe, client.DryRunAll)) && named(set, "set")(ctx) &&
			apierrors.IsInvalid(c.Status().Update(ctx, set,
				&client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}}))
	})
	inArea(t, c, &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Name: "member-announce-from-east"},
		ClusterID: "east", ClusterSetID: "set", LeaderClusterID: "north"}) // for the ClusterSet's status
	inArea(t, c, service("east", "default", "bad", 0, 80))

	// One after the other. If each import waited for the back-off of the refused one, that one would be tried again each
	// time. Its back-off doubles, so ten more tries take more than a minute.
	tries := func() int { return len(log.lines("is tried again", "create ResourceImport area/default-bad-service")) }
	within(t, "the import is refused", func(context.Context) bool { return tries() > 0 })
	before := tries()
	for i := range 10 {
		name := fmt.Sprintf("web%d", i)
		start := time.Now()
		inArea(t, c, service("east", "default", name, 0, 80))
		within(t, "Service "+name+" is imported",
			named(&mcv1alpha1.ResourceImport{}, "default-"+name+"-service"))
		t.Logf("%s after %s", name, time.Since(start).Round(time.Millisecond))
	}
	if n := tries() - before; n >= 9 {
		t.Errorf("the refused import was tried %d times while ten others were imported, want less than 9", n)
	}

	const why = "Failure the ResourceExport cannot be converged to a ResourceImport: " +
		"create ResourceImport area/default-bad-service: "
	within(t, "the refused export's condition", func(context.Context) bool {
		v := verdict("east-default-bad-service")
		return strings.HasPrefix(v, why) && strings.Contains(v, "not in this cluster") && strings.HasSuffix(v, remedy)
	})
	within(t, "the condition of another",
		func(context.Context) bool { return verdict("east-default-web9-service") == "Succeeded " })
	for what, words := range map[string][]string{
		"the import":              {"level=WARN", `object="ResourceImport area/default-bad-service"`, "not in this cluster"},
		"the ClusterSet's status": {"level=WARN", `object="ClusterSet area/set" field=status`, "not in this cluster"},
	} {
		if lines := log.lines(words...); len(lines) != 1 {
			t.Errorf("%s is told of %d times, want once:\n%s", what, len(lines), strings.Join(lines, ""))
		}
	}
	if lines := log.lines("level=ERROR"); len(lines) > 0 {
		t.Errorf("errors are logged:\n%s", strings.Join(lines, ""))
	}

	// The finalizer of a deleted export is removed while other writes are refused.
	web0 := service("east", "default", "web0", 0, 80)
	web0.Namespace = "area"
	if err := c.Delete(t.Context(), web0); err != nil {
		t.Fatal(err)
	}
	within(t, "a deleted export is let go", func(ctx context.Context) bool {
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(web0), &mcv1alpha1.ResourceExport{}))
	})

	allowImport()
	within(t, "the import that is allowed again", named(&mcv1alpha1.ResourceImport{}, "default-bad-service"))
	within(t, "its export's condition",
		func(context.Context) bool { return verdict("east-default-bad-service") == "Succeeded " })
}

// refusing refuses each write, as an admission policy may.
type refusing struct{ client.Client }

func refusal(o client.Object) error {
	kind := schema.GroupResource{Resource: "objects"}
	return apierrors.NewForbidden(kind, o.GetName(), errors.New("not in this cluster"))
}

func (refusing) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return refusal(o)
}

func (refusing) Status() client.SubResourceWriter { return refusingStatus{} }

// refusingStatus refuses each write of a status.
type refusingStatus struct{ client.SubResourceWriter }

func (refusingStatus) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return refusal(o)
}

// TestLogOfAMember lets one member export 500 Services, in as many Namespaces, whose imports the API server refuses.
// They do not fill the leader's log, and another member keeps its lines. The other member exported some of the Services
// earlier.
func TestLogOfAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logged{}
		c := newController(refusing{}, slog.New(slog.NewTextHandler(log, nil)))
		v := View{Namespace: "area", Announces: announced("east", "west"), ResourceExports: []*mcv1alpha1.ResourceExport{
			service("west", "z", "last", time.Hour, 80)}}
		for i := range 500 {
			if i < 2*20 {
				v.ResourceExports = append(v.ResourceExports, service("west", fmt.Sprint("n", i), "web", time.Hour, 80))
			}
			v.ResourceExports = append(v.ResourceExports, service("east", fmt.Sprint("n", i), "web", time.Minute, 80))
		}
		c.tables.kinds.Fill(v.objects()...)
		c.tables.engine.Pass()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.queue.Run(ctx) })
		time.Sleep(30 * time.Second) // of the bubble's clock
		stop()
		running.Wait()
		if n := len(c.queue.Problems()); n < 500 {
			t.Fatalf("%d objects could not be written, want all", n)
		}
		if n := len(log.lines("level=WARN")); n > 50 {
			t.Errorf("%d lines about what one member exports, want at most 50:\n%s...", n, log.String()[:2000])
		}
		for _, words := range [][]string{{"further lines", "member=east"}, {"area/z-last-service"}} {
			if n := len(log.lines(words...)); n != 1 {
				t.Errorf("%d lines have %q, want one", n, words)
			}
		}
	})
}
