package leader

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// policyExport returns an administrator's export of a policy. A NetworkPolicy is of Namespace default.
func policyExport(export, kind, name, spec string, age time.Duration) *mcv1alpha1.ResourceExport {
	re := &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Name: export,
		CreationTimestamp: metav1.NewTime(noon.Add(-age))},
		Spec: mcv1alpha1.ResourceExportSpec{Kind: kind, Name: name}}
	re.Finalizers = []string{multicluster.ResourceExportFinalizer}
	if kind == multicluster.NetworkPolicyKind {
		re.Spec.Namespace = "default"
	}
	if kind == multicluster.AntreaClusterNetworkPolicyKind {
		re.Spec.ClusterNetworkPolicy = &runtime.RawExtension{Raw: []byte(spec)}
	} else {
		re.Spec.Raw = &mcv1alpha1.RawResource{Data: []byte(spec)}
	}
	return re
}

func policyReport(cluster, data string) *mcv1alpha1.ResourceExport {
	re := &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Name: cluster + multicluster.PolicyReportSuffix},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster, Kind: multicluster.PolicyReportKind,
			Raw: &mcv1alpha1.RawResource{Data: []byte(data)}}}
	return re
}

const (
	acnpSpec  = `{"priority":1,"tier":"securityops"}`
	acnpOther = `{"tier":"securityops","priority":2}`
	npSpec    = "podSelector: {matchLabels: {app: web}}\ningress: [{ports: [{port: 80}]}]\n"
	cnpSpec   = `{"tier":"Admin","priority":3,"subject":{"namespaces":{}}}`
)

// TestPolicies has rows of imports and exports. Each row has the content of the Common Area that follows.
func TestPolicies(t *testing.T) {
	type exports = []*mcv1alpha1.ResourceExport
	const acnp, np, cnp = multicluster.AntreaClusterNetworkPolicyKind, multicluster.NetworkPolicyKind,
		multicluster.ClusterNetworkPolicyKind
	hash := multicluster.LabelHash(acnpSpec)
	for _, row := range []struct {
		name        string
		before, now exports
		want        []string
	}{
		{name: "of Antrea", now: exports{policyExport("any", acnp, "strict", acnpSpec, 0)}, want: []string{
			`strict-antreaclusternetworkpolicy {"tier":"securityops","priority":1}`, "any succeeds"}},
		{name: "of Kubernetes", now: exports{policyExport("any", np, "web", npSpec, 0)}, want: []string{
			`default-web-networkpolicy {"podSelector":{"matchLabels":{"app":"web"}},"ingress":[{"ports":[{"protocol":"TCP",` +
				`"port":80}]}],"policyTypes":["Ingress"]}`,
			"any succeeds"}},
		{name: "of SIG Network", now: exports{policyExport("any", cnp, "strict", cnpSpec, 0)}, want: []string{
			`strict-clusternetworkpolicy {"tier":"Admin","priority":3,"subject":{"namespaces":{}}}`, "any succeeds"}},
		{name: "the same twice, written differently", now: exports{policyExport("a", acnp, "strict", acnpSpec, time.Hour),
			policyExport("b", acnp, "strict", `{"tier":"securityops", "priority":1.0}`, 0)}, want: []string{
			`strict-antreaclusternetworkpolicy {"tier":"securityops","priority":1}`, "a succeeds", "b succeeds"}},
		{name: "two that differ: the older one",
			now: exports{policyExport("a", acnp, "strict", acnpSpec, 0),
				policyExport("b", acnp, "strict", acnpOther, time.Hour)}, want: []string{
				`strict-antreaclusternetworkpolicy {"tier":"securityops","priority":2}`,
				"a fails: spec.clusterNetworkPolicy differs from that of ResourceExport b, which exports the same policy and is " +
					"imported: make them equal, or delete one of them", "b succeeds"}},
		{name: "two that differ: what is imported stays", before: exports{policyExport("a", acnp, "strict", acnpSpec, 0)},
			now: exports{policyExport("a", acnp, "strict", acnpSpec, 0),
				policyExport("b", acnp, "strict", acnpOther, time.Hour)}, want: []string{
				`strict-antreaclusternetworkpolicy {"tier":"securityops","priority":1}`, "a succeeds",
				"b fails: spec.clusterNetworkPolicy differs from that of ResourceExport a, which exports the same policy and is " +
					"imported: make them equal, or delete one of them"}},
		{name: "the only one changes", before: exports{policyExport("a", acnp, "strict", acnpSpec, 0)},
			now: exports{policyExport("a", acnp, "strict", acnpOther, 0)}, want: []string{
				`strict-antreaclusternetworkpolicy {"tier":"securityops","priority":2}`, "a succeeds"}},
		{name: "the last is deleted", before: exports{policyExport("a", acnp, "strict", acnpSpec, 0)},
			now: exports{leaving(policyExport("a", acnp, "strict", acnpSpec, 0))}, want: []string{"a is released"}},
		{name: "no policy",
			now: exports{without(func(re *mcv1alpha1.ResourceExport) { re.Spec.Raw = nil },
				policyExport("a", np, "web", "", 0))}, want: []string{
				"a fails: spec.raw.data is missing: write the policy's spec there"}},
		{name: "a field that is none", now: exports{policyExport("a", acnp, "strict", `{"priority":1,"appliedto":[]}`, 0),
			policyExport("b", acnp, "strict", acnpSpec, 0)}, want: []string{
			`strict-antreaclusternetworkpolicy {"tier":"securityops","priority":1}`,
			`a fails: spec.clusterNetworkPolicy: is not the spec of the policy: unknown field "appliedto"`, "b succeeds"}},
		{name: "the default Tier, said and not said",
			now: exports{policyExport("a", acnp, "strict", `{"priority":1}`, time.Hour),
				policyExport("b", acnp, "strict", `{"tier":"application","priority":1}`, 0)}, want: []string{
				`strict-antreaclusternetworkpolicy {"tier":"application","priority":1}`, "a succeeds", "b succeeds"}},
		{name: "a name that is none", now: exports{policyExport("a", acnp, "Strict", acnpSpec, 0)}, want: []string{
			`a fails: spec.name: "Strict" is not a policy's name: a lowercase RFC 1123 subdomain must consist of lower case ` +
				`alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', ` +
				`regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
		{name: "two Namespaces with one derived name", now: exports{policyExport("a", np, "b-web", npSpec, time.Hour),
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.Namespace = "default-b" },
				policyExport("b", np, "web", npSpec, 0))}, want: []string{
			`default-b-web-networkpolicy {"podSelector":{"matchLabels":{"app":"web"}},"ingress":[{"ports":[{"protocol":"TCP",` +
				`"port":80}]}],"policyTypes":["Ingress"]}`,
			"a succeeds",
			"b fails: NetworkPolicy default-b/web has the derived name of default/b-web, which is imported already; rename " +
				"one of the two"}},
		{name: "what members report",
			now: exports{policyExport("a", acnp, "strict", `{"tier":"securityops","priority":1}`, 0),
				policyReport("east", fmt.Sprintf(`{"strict-antreaclusternetworkpolicy":{"hash":%q}}`,
					multicluster.LabelHash(`{"tier":"securityops","priority":1}`))),
				policyReport("west", fmt.Sprintf(`{"strict-antreaclusternetworkpolicy":{"hash":%q,"problem":"no Tier"}}`,
					multicluster.LabelHash(`{"tier":"securityops","priority":1}`)))}, want: []string{
				`strict-antreaclusternetworkpolicy {"tier":"securityops","priority":1} east True the policy is in place west ` +
					`False no Tier`,
				"a succeeds: in place in cluster east; not in cluster west (no Tier)"}},
		{name: "reports of another spec, of nobody and under another's name",
			now: exports{policyExport("a", acnp, "strict", acnpSpec, 0),
				policyReport("east", fmt.Sprintf(`{"strict-antreaclusternetworkpolicy":{"hash":%q}}`, hash)),
				policyReport("nobody", "{}"),
				without(func(re *mcv1alpha1.ResourceExport) { re.Spec.ClusterID = "east" },
					policyReport("west", `{"strict-antreaclusternetworkpolicy":{}}`))}, want: []string{
				`strict-antreaclusternetworkpolicy {"tier":"securityops","priority":1}`, "a succeeds",
				"nobody-policyreport fails: cluster nobody is not a member of the ClusterSet: it has no MemberClusterAnnounce; " +
					"this ResourceExport is deleted after 1h0m0s"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			members := announced("east", "west")
			old, _ := Plan(View{Namespace: "area", Now: noon, Announces: members, ResourceExports: row.before})
			v := View{Namespace: "area", Now: noon, Announces: members, ResourceExports: row.now,
				ResourceImports: slices.Collect(maps.Values(old.Imports))}
			d, problems := Plan(v)
			if diff := cmp.Diff(row.want, policiesOf(t, d)); diff != "" || len(problems) > 0 {
				t.Errorf("problems %v; want, have:\n%s", problems, diff)
			}
			// A running leader comes to the same, and to an end.
			w := newWalker(1)
			w.is(v)
			w.converge(t)
		})
	}
}

// policiesOf returns the content of the Common Area about policies.
func policiesOf(t *testing.T, d Desired) []string {
	t.Helper()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(d.Imports)) {
		ri := d.Imports[name]
		p, _, err := exportcheck.ImportedPolicy(ri.Spec)
		if err != nil {
			t.Errorf("%s cannot be read by members: %v", name, err)
		}
		line := name + " " + p.Spec
		for _, s := range ri.Status.ClusterStatuses {
			line += fmt.Sprintf(" %s %s %s", s.ClusterID, s.Conditions[0].Status, s.Conditions[0].Message)
		}
		lines = append(lines, line)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Conditions)) {
		c := d.Conditions[name]
		line := name + " succeeds"
		if c.Type == mcv1alpha1.ResourceExportFailure {
			line = name + " fails"
		}
		if c.Message != "" {
			line += ": " + strings.TrimPrefix(c.Message, "the ResourceExport cannot be converged to a ResourceImport: ")
		}
		lines = append(lines, line)
	}
	for _, name := range d.ReleaseExports {
		lines = append(lines, name+" is released")
	}
	return lines
}
