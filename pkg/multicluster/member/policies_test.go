package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/policies"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
)

const (
	acnpSpec = `{"tier":"special","priority":1,"appliedTo":[{"namespaceSelector":{}}],"ingress":[{"action":"Drop",` +
		`"from":[{"podSelector":{"matchLabels":{"app":"bad"}}}]}]}`
	npSpec  = `{"podSelector":{"matchLabels":{"app":"web"}},"ingress":[{"ports":[{"port":80}]}]}`
	cnpSpec = `{"tier":"Admin","priority":3,"subject":{"namespaces":{}},"ingress":[{"action":"Deny",` +
		`"from":[{"namespaces":{"matchLabels":{"team":"x"}}}]}]}`
)

func policyImport(kind, namespace, name, spec string) *mcv1alpha1.ResourceImport {
	if kind != multicluster.NetworkPolicyKind {
		namespace = ""
	}
	return &mcv1alpha1.ResourceImport{ObjectMeta: meta(area, multicluster.PolicyImportName(kind, namespace, name)),
		Spec: exportcheck.PolicyImport(kind, namespace, name, spec)}
}

// policyWrites are the writes of policies.
func policyWrites(c Change) []string {
	var out []string
	for _, w := range c.Local {
		if policies.IsKind(w.Kind) {
			out = append(out, w.String())
		}
	}
	return out
}

// reports returns the reports to the leader about each import.
func reports(t *testing.T, d Desired) []string {
	t.Helper()
	var out []string
	for _, re := range d.ResourceExports {
		if re.Spec.Kind == multicluster.PolicyReportKind {
			states, err := exportcheck.PolicyReport(re.Spec.Raw.Data)
			if err != nil {
				t.Error(err)
			}
			for name, s := range states {
				out = append(out, name+": "+s.Problem)
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestPlanPolicies has rows of imports from the leader and of objects in this cluster. Each row has the writes and
// reports that follow.
func TestPlanPolicies(t *testing.T) {
	const acnp, np, cnp = multicluster.AntreaClusterNetworkPolicyKind, multicluster.NetworkPolicyKind,
		multicluster.ClusterNetworkPolicyKind
	type imports = []*mcv1alpha1.ResourceImport
	special := func(v *View) { v.Tiers = []*crdv1beta1.Tier{{ObjectMeta: meta("", "special")}} }
	mine := func(v *View) {
		v.ACNPs = []*crdv1beta1.ClusterNetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "antrea-mc-strict",
			Annotations: map[string]string{"multicluster.antrea.io/imported-acnp": "true"}}}}
	}
	const name = "strict-antreaclusternetworkpolicy"
	for _, row := range []struct {
		name    string
		imports imports
		here    []func(*View)
		writes  []string
		reports []string
		reason  string
	}{
		{name: "of Antrea", imports: imports{policyImport(acnp, "", "strict", acnpSpec)}, here: []func(*View){special},
			writes: []string{"create ClusterNetworkPolicy.crd.antrea.io antrea-mc-strict"}, reports: []string{name + ": "}},
		{name: "of Kubernetes and of SIG Network",
			imports: imports{policyImport(np, "default", "web", npSpec), policyImport(cnp, "", "strict", cnpSpec)},
			writes: []string{"create ClusterNetworkPolicy.policy.networking.k8s.io antrea-mc-strict",
				"create NetworkPolicy default/antrea-mc-web"},
			reports: []string{"default-web-networkpolicy: ", "strict-clusternetworkpolicy: "}},
		{name: "without its Tier", imports: imports{policyImport(acnp, "", "strict", acnpSpec)}, reason: "ACNPImportFailed",
			reports: []string{name + ": ACNP Tier special does not exist in importing cluster east"}},
		{name: "its Tier has gone", imports: imports{policyImport(acnp, "", "strict", acnpSpec)},
			here: []func(*View){mine}, reason: "ACNPImportFailed",
			writes:  []string{"delete ClusterNetworkPolicy.crd.antrea.io antrea-mc-strict"},
			reports: []string{name + ": ACNP Tier special does not exist in importing cluster east"}},
		{name: "no Tier", imports: imports{policyImport(acnp, "", "strict", `{"priority":1}`)},
			writes: []string{"create ClusterNetworkPolicy.crd.antrea.io antrea-mc-strict"}, reports: []string{name + ": "}},
		{name: "an old name of a Tier",
			imports: imports{policyImport(acnp, "", "strict", `{"priority":1,"tier":"SecurityOps"}`)},
			writes:  []string{"create ClusterNetworkPolicy.crd.antrea.io antrea-mc-strict"}, reports: []string{name + ": "}},
		{name: "a user's is in the way", imports: imports{policyImport(acnp, "", "strict", acnpSpec)},
			reason: "ACNPImportFailed",
			here:   []func(*View){special, mine, func(v *View) { v.ACNPs[0].Annotations = nil }}, reports: []string{
				name + ": Unable to import policy antrea-mc-strict which conflicts with existing " +
					"one in cluster east: rename or delete that one"}},
		{name: "it has changed", imports: imports{policyImport(acnp, "", "strict", acnpSpec)},
			here:   []func(*View){special, mine},
			writes: []string{"update ClusterNetworkPolicy.crd.antrea.io antrea-mc-strict"}, reports: []string{name + ": "}},
		{name: "it is not imported any more", here: []func(*View){mine},
			writes: []string{"delete ClusterNetworkPolicy.crd.antrea.io antrea-mc-strict"}},
		{name: "a field that is not known: what is there stays", imports: imports{
			policyImport(acnp, "", "strict", `{"priority":1,"new":1}`)}, here: []func(*View){mine}, reason: "ACNPImportFailed",
			reports: []string{name +
				`: the policy cannot be read in cluster east: spec.clusterNetworkPolicy: is not the spec of the policy: unknown ` +
				`field "new"`}},
		{name: "a Namespace that is not here", imports: imports{policyImport(np, "later", "web", npSpec)},
			reason:  "PolicyImportFailed",
			reports: []string{"later-web-networkpolicy: Namespace later does not exist in cluster east"}},
		{name: "for others", imports: imports{func() *mcv1alpha1.ResourceImport {
			ri := policyImport(np, "default", "web", npSpec)
			ri.Spec.ClusterIDs = []string{"west"}
			return ri
		}()}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Leader.ResourceImports = row.imports
			for _, f := range row.here {
				f(&v)
			}
			d, ps := Plan(v)
			expect(t, "writes", policyWrites(d.Change), row.writes)
			var reason []string
			if row.reason != "" {
				reason = []string{"ClusterSet kube-system/set: " + row.reason}
			}
			expect(t, "problems", problems(ps), reason)
			for _, w := range d.Change.Local {
				v = apply(v, w)
			}
			d, _ = Plan(v)
			expect(t, "writes when these are done", policyWrites(d.Change), []string(nil))
			expect(t, "reports", reports(t, d), row.reports)
			v.Leader.Synced = false
			if d, _ = Plan(v); len(policyWrites(d.Change)) > 0 {
				t.Errorf("writes %v while the leader's list is not known", policyWrites(d.Change))
			}
			v.ClusterSets = nil
			d, _ = Plan(v)
			for _, w := range policyWrites(d.Change) {
				if !strings.HasPrefix(w, "delete ") {
					t.Errorf("%s in no ClusterSet", w)
				}
			}
		})
	}
}

// TestPoliciesThroughTheLeaderController replicates policies of all kinds. Steps: without the Tier and with it, drift,
// a user's policy of the same name, the leader stopped and back, and policies that the API server refuses.
func TestPoliciesThroughTheLeaderController(t *testing.T) {
	w, server := newWorld(t)
	token := w.token()
	own := clusterSet("")
	own.Namespace, own.Spec.ClusterID, own.Spec.Leaders[0].Secret = area, "north", ""
	w.create(w.leader, own)
	w.start(w.leaderConfig, area, "leader", leader.SetupWithManager)
	set := clusterSet(w.leaderConfig.Host)
	w.create(w.member, set, &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"),
		Data: map[string][]byte{"ca.crt": w.leaderConfig.CAData, "token": token}})
	w.startMember()
	w.clusterSetIs("True True True", "")

	exported := func(kind, name, spec string) *mcv1alpha1.ResourceExport {
		ri := policyImport(kind, "default", name, spec)
		re := &mcv1alpha1.ResourceExport{ObjectMeta: meta(area, name), Spec: mcv1alpha1.ResourceExportSpec{
			Kind: kind, Namespace: ri.Spec.Namespace, Name: name, ClusterNetworkPolicy: ri.Spec.ClusterNetworkPolicy,
			Raw: ri.Spec.Raw}}
		re.Finalizers = []string{multicluster.ResourceExportFinalizer}
		return re
	}
	// condition waits for the condition of an export.
	condition := func(name, want string) {
		t.Helper()
		w.eventually("export "+name+" "+want, func(ctx context.Context) error {
			re := export(name)
			if err := w.leader.Get(ctx, client.ObjectKeyFromObject(re), re); err != nil {
				return err
			}
			for _, c := range re.Status.Conditions {
				if have := strings.TrimSpace(string(c.Type) + " " + c.Message); strings.HasPrefix(have, want) {
					return nil
				}
			}
			return fmt.Errorf("have %v", re.Status.Conditions)
		})
	}
	// failed waits for an Event in the leader.
	failed := func(resourceImport, message string) {
		t.Helper()
		w.eventually("Event on "+resourceImport, func(ctx context.Context) error {
			events := &corev1.EventList{}
			if err := w.leader.List(ctx, events, client.InNamespace(area)); err != nil {
				return err
			}
			var have []string
			for _, e := range events.Items {
				if e.InvolvedObject.Kind == "ResourceImport" && e.InvolvedObject.Name == resourceImport &&
					strings.HasPrefix(e.Message, message) &&
					(e.Reason == "ACNPImportFailed" || e.Reason == "PolicyImportFailed") && e.Type == "Warning" &&
					strings.HasPrefix(e.Name, resourceImport+".") {
					return nil
				}
				have = append(have, e.Name+" "+e.Reason+" "+e.Message)
			}
			return fmt.Errorf("have %q", have)
		})
	}
	there := func(o client.Object, is func() bool) {
		t.Helper()
		w.eventually(fmt.Sprintf("%T %s", o, o.GetName()), func(ctx context.Context) error {
			if err := w.member.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			if !is() {
				return fmt.Errorf("have %+v", o)
			}
			return nil
		})
	}
	acnp := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: meta("", "antrea-mc-strict")}
	strict := exported(multicluster.AntreaClusterNetworkPolicyKind, "strict", acnpSpec)
	w.create(w.leader, strict)
	failed("strict-antreaclusternetworkpolicy", "ACNP Tier special does not exist in importing cluster east")
	condition("strict", "Succeeded not in cluster east (ACNP Tier special does not exist in importing cluster east)")
	if err := w.member.Get(t.Context(), client.ObjectKeyFromObject(acnp), acnp); !apierrors.IsNotFound(err) {
		t.Errorf("a policy without its Tier: %v", err)
	}
	tier := &crdv1beta1.Tier{ObjectMeta: meta("", "special"), Spec: crdv1beta1.TierSpec{Priority: 30}}
	w.create(w.member, tier)
	there(acnp, func() bool {
		return acnp.Annotations["multicluster.antrea.io/imported-acnp"] == "true" && acnp.Spec.Tier == "special" &&
			acnp.Spec.Ingress[0].Action == "Drop"
	})
	condition("strict", "Succeeded in place in cluster east")
	ri := policyImport(multicluster.AntreaClusterNetworkPolicyKind, "", "strict", "")
	w.eventually("the import has the state of each cluster", func(ctx context.Context) error {
		err := w.leader.Get(ctx, client.ObjectKeyFromObject(ri), ri)
		if s := ri.Status.ClusterStatuses; err != nil || len(s) != 1 || s[0].ClusterID != "east" ||
			s[0].Conditions[0].Status != "True" {
			return errors.Join(err, fmt.Errorf("have %v", s))
		}
		return nil
	})

	// Drift, and a change of the export.
	w.update(w.member, acnp, func() { acnp.Spec.Ingress = nil })
	there(acnp, func() bool { return len(acnp.Spec.Ingress) == 1 })
	w.update(w.leader, strict, func() {
		strict.Spec.ClusterNetworkPolicy = &runtime.RawExtension{
			Raw: []byte(strings.Replace(acnpSpec, `"priority":1`, `"priority":5`, 1))}
	})
	there(acnp, func() bool { return acnp.Spec.Priority == 5 })
	second := exported(multicluster.AntreaClusterNetworkPolicyKind, "strict", acnpSpec)
	second.Name = "second"
	w.create(w.leader, second)
	condition("second", "Failure the ResourceExport cannot be converged to a ResourceImport: "+
		"spec.clusterNetworkPolicy differs from that of ResourceExport strict")
	w.delete(w.leader, second)

	// Policies of the other two kinds.
	w.create(w.leader, exported(multicluster.NetworkPolicyKind, "web", npSpec),
		exported(multicluster.ClusterNetworkPolicyKind, "admin", cnpSpec))
	np, cnp := &networkingv1.NetworkPolicy{ObjectMeta: meta("default", "antrea-mc-web")},
		&npv1alpha2.ClusterNetworkPolicy{ObjectMeta: meta("", "antrea-mc-admin")}
	there(np, func() bool {
		return np.Spec.PodSelector.MatchLabels["app"] == "web" &&
			np.Annotations["multicluster.antrea.io/imported-policy"] == "true"
	})
	there(cnp, func() bool { return cnp.Spec.Tier == "Admin" && len(cnp.Spec.Ingress) == 1 })
	condition("web", "Succeeded in place in cluster east")
	condition("admin", "Succeeded in place in cluster east")

	// A user's policy is in the way, until it is deleted.
	users := &networkingv1.NetworkPolicy{ObjectMeta: meta("default", "antrea-mc-taken"),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"mine": "yes"}}}}
	w.create(w.member, users)
	w.create(w.leader, exported(multicluster.NetworkPolicyKind, "taken", npSpec))
	failed("default-taken-networkpolicy",
		"Unable to import policy default/antrea-mc-taken which conflicts with existing one in cluster east")
	there(users, func() bool { return users.Spec.PodSelector.MatchLabels["mine"] == "yes" })
	w.delete(w.member, users)
	there(users, func() bool { return users.Spec.PodSelector.MatchLabels["app"] == "web" })

	// One that the definition here refuses.
	bad := exported(multicluster.AntreaClusterNetworkPolicyKind, "bad",
		`{"priority":20000,"appliedTo":[{"namespaceSelector":{}}]}`)
	w.create(w.leader, bad)
	failed("bad-antreaclusternetworkpolicy",
		"Failed to write policy antrea-mc-bad in cluster east: create ClusterNetworkPolicy.crd.antrea.io antrea-mc-bad")
	condition("bad", "Succeeded not in cluster east (Failed to write policy antrea-mc-bad")
	w.update(w.leader, bad, func() {
		bad.Spec.ClusterNetworkPolicy.Raw = []byte(`{"priority":2,"appliedTo":[{"namespaceSelector":{}}]}`)
	})
	condition("bad", "Succeeded in place in cluster east")

	// Nothing is written again and again.
	before := w.writes()
	w.update(w.leader, strict, func() { strict.Annotations = map[string]string{"a": "b"} })
	if n := w.writes() - before; n != 0 {
		t.Errorf("%d writes without a change, want none", n)
	}

	// If the leader is unavailable, replicated policies stay, also while the member restarts.
	server.Stop()
	w.clusterSetIs("False True False", "")
	w.stop()
	w.startMember()
	w.update(w.member, tier, func() { tier.Labels = map[string]string{"a": "b"} })
	w.writes()
	there(acnp, func() bool { return acnp.DeletionTimestamp == nil })
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.clusterSetIs("True True True", "")
	w.delete(w.leader, export("web"))
	w.gone(w.member, np)
	there(acnp, func() bool { return acnp.Spec.Priority == 5 })

	// The Tier goes, and comes back.
	w.delete(w.member, tier)
	w.gone(w.member, acnp)
	w.create(w.member, &crdv1beta1.Tier{ObjectMeta: meta("", "special"), Spec: crdv1beta1.TierSpec{Priority: 30}})
	there(acnp, func() bool { return acnp.Spec.Priority == 5 })

	// Leaving takes all of them away.
	w.delete(w.member, set)
	w.gone(w.member, acnp, cnp, users)
}

// TestPoliciesAreWrittenOnce uses an API server with defaults that this code does not have. Each policy is created, and
// never written again. A field that the API server drops does not count as a default.
func TestPoliciesAreWrittenOnce(t *testing.T) {
	w, _ := newWorld(t)
	w.ingressRules("clusternetworkpolicies.crd.antrea.io",
		func(rule map[string]apiextensionsv1.JSONSchemaProps) { delete(rule, "logLabel") })
	w.ingressRules("clusternetworkpolicies.policy.networking.k8s.io", func(map[string]apiextensionsv1.JSONSchemaProps) {})
	const (
		acnp  = `{"priority":1,"appliedTo":[{"namespaceSelector":{}}],"ingress":[{"action":"Drop"}]}`
		lossy = `{"priority":2,"appliedTo":[{"namespaceSelector":{}}],"ingress":[{"action":"Drop","logLabel":"x"}]}`
		np    = `{"podSelector":{},"ingress":[{"ports":[{"port":80}]}],"egress":[{"ports":[{"port":53}]}]}`
	)
	// The definitions are in use once they show.
	w.eventually("defaults", func(ctx context.Context) error {
		a, p := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: meta("", "probe")},
			&npv1alpha2.ClusterNetworkPolicy{ObjectMeta: meta("", "probe")}
		err := errors.Join(json.Unmarshal([]byte(lossy), &a.Spec), json.Unmarshal([]byte(cnpSpec), &p.Spec),
			w.member.Create(ctx, a, client.DryRunAll), w.member.Create(ctx, p, client.DryRunAll))
		if err != nil || a.Spec.Ingress[0].Name != "filled-in" || p.Spec.Ingress[0].Name != "filled-in" {
			return errors.Join(err, errors.New("no default"))
		}
		return nil
	})
	token := w.token()
	w.create(w.member, clusterSet(w.leaderConfig.Host), &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"),
		Data: map[string][]byte{"ca.crt": w.leaderConfig.CAData, "token": token}})
	w.startMember()
	w.clusterSetIs("True True True", "")
	reported := func(want ...string) {
		t.Helper()
		w.eventually(fmt.Sprint("reports ", want), func(ctx context.Context) error {
			re := export("east" + multicluster.PolicyReportSuffix)
			if err := w.leader.Get(ctx, client.ObjectKeyFromObject(re), re); err != nil {
				return err
			}
			if have := reports(t, Desired{ResourceExports: []*mcv1alpha1.ResourceExport{re}}); !slices.Equal(have, want) {
				return fmt.Errorf("have %q", have)
			}
			return nil
		})
	}
	before := w.writes("cluster")
	w.create(w.leader, policyImport(multicluster.AntreaClusterNetworkPolicyKind, "", "a", acnp),
		policyImport(multicluster.NetworkPolicyKind, "default", "b", np),
		policyImport(multicluster.ClusterNetworkPolicyKind, "", "c", cnpSpec))
	inPlace := []string{"a-antreaclusternetworkpolicy: ", "c-clusternetworkpolicy: ", "default-b-networkpolicy: "}
	reported(inPlace...)
	if n := w.writes("cluster") - before; n != 3 {
		t.Errorf("%d writes of 3 policies, want 3", n)
	}
	a, b, c := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: meta("", "antrea-mc-a")}, &networkingv1.NetworkPolicy{
		ObjectMeta: meta("default", "antrea-mc-b")}, &npv1alpha2.ClusterNetworkPolicy{ObjectMeta: meta("", "antrea-mc-c")}
	versions := func() (out [3]string) {
		t.Helper()
		for i, o := range []client.Object{a, b, c} {
			if err := w.member.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			out[i] = o.GetResourceVersion()
		}
		return out
	}
	versions()
	if a.Spec.Tier != "application" || a.Spec.Ingress[0].Name != "filled-in" || c.Spec.Ingress[0].Name != "filled-in" ||
		b.Spec.Ingress[0].Ports[0].Protocol == nil || len(b.Spec.PolicyTypes) != 2 {
		t.Errorf("have %+v %+v %+v, want the defaults in them", a.Spec, b.Spec, c.Spec)
	}

	// A change of labels or status causes no write. An added field does, even if the import has no value for it.
	w.update(w.member, a, func() { a.Labels = map[string]string{"a": "b"} })
	a.Status.Phase = "Realized"
	if err := w.member.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	before = w.writes("cluster")
	version := versions()
	w.update(w.member, c, func() { c.Spec.Ingress[0].Name = "mine" })
	w.eventually("the drift is gone", func(ctx context.Context) error {
		if err := w.member.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil || c.Spec.Ingress[0].Name != "filled-in" {
			return errors.Join(err, fmt.Errorf("have %+v", c.Spec))
		}
		return nil
	})
	reported(inPlace...)
	if n := w.writes("cluster") - before; n != 1 {
		t.Errorf("%d writes for one drift, want 1", n)
	}

	// A restarted member has no record of the API server's defaults. It writes the policies again, and their versions
	// stay.
	version[2] = versions()[2]
	w.stop()
	w.delete(w.leader, export("east"+multicluster.PolicyReportSuffix))
	w.startMember()
	reported(inPlace...)
	w.writes()
	if now := versions(); now != version {
		t.Errorf("versions %v after a restart, want %v", now, version)
	}

	w.create(w.leader, policyImport(multicluster.AntreaClusterNetworkPolicyKind, "", "lossy", lossy))
	reported(append(slices.Clone(inPlace),
		"lossy-antreaclusternetworkpolicy: Policy antrea-mc-lossy is not kept in cluster east as it is sent there: "+
			"spec.ingress[0].logLabel is lost or changed; update its CustomResourceDefinition, "+
			"or exempt the policy from admission that changes it")...)
}

// ingressRules changes a definition in the member's API server. It changes the ingress rules and gives their name a
// default.
func (w *world) ingressRules(name string, change func(properties map[string]apiextensionsv1.JSONSchemaProps)) {
	w.t.Helper()
	api, err := apiextensions.NewForConfig(w.memberConfig)
	if err != nil {
		w.t.Fatal(err)
	}
	w.eventually("update definition "+name, func(ctx context.Context) error {
		d, err := api.CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, v := range d.Spec.Versions {
			rule := v.Schema.OpenAPIV3Schema.Properties["spec"].Properties["ingress"].Items.Schema.Properties
			field := rule["name"]
			field.Default = &apiextensionsv1.JSON{Raw: []byte(`"filled-in"`)}
			rule["name"] = field
			change(rule)
		}
		_, err = api.CustomResourceDefinitions().Update(ctx, d, metav1.UpdateOptions{})
		return err
	})
}

// TestWatchIsAheadOfTheAnswer lets the watch show a policy with its defaults before the write returns. After the return
// no write is left.
func TestWatchIsAheadOfTheAnswer(t *testing.T) {
	v := joinedView()
	v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{policyImport(multicluster.AntreaClusterNetworkPolicyKind,
		"", "strict", `{"priority":1,"ingress":[{"action":"Drop"}]}`)}
	c, _ := joinedController(t, v)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.tables.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	shows := func(o *crdv1beta1.ClusterNetworkPolicy) {
		c.tables.Cluster.Set(o)
		c.tables.Do(ctx, func() { c.tables.Pass() })
	}
	create := slices.DeleteFunc(c.tables.change().Local,
		func(w writes.Write) bool { return w.Kind != "ClusterNetworkPolicy.crd.antrea.io" })[0]
	have := create.Object.DeepCopyObject().(*crdv1beta1.ClusterNetworkPolicy)
	have.UID, have.Generation, have.Spec.Ingress[0].Name = "one", 1, "filled-in"
	shows(have)
	expect(t, "writes before the answer", policyWrites(c.tables.change()),
		[]string{"update ClusterNetworkPolicy.crd.antrea.io antrea-mc-strict"})
	c.wrotePolicy(ctx, create, have)
	expect(t, "writes after it", policyWrites(c.tables.change()), []string(nil))

	// An object of the same name with another UID or generation is not the written object.
	for _, change := range []func(o *crdv1beta1.ClusterNetworkPolicy){
		func(o *crdv1beta1.ClusterNetworkPolicy) { o.UID = "two" },
		func(o *crdv1beta1.ClusterNetworkPolicy) { o.Generation = 2 },
	} {
		other := have.DeepCopy()
		change(other)
		shows(other)
		expect(t, "writes of what may be drift", policyWrites(c.tables.change()),
			[]string{"update ClusterNetworkPolicy.crd.antrea.io antrea-mc-strict"})
	}
}
