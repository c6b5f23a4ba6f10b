package policystatus

import (
	"bytes"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// TestAccess compares the ClusterRole of the manifest with the kinds that the controller watches and writes. It allows
// exactly these. TestStatus and TestAdmission run with this role and show that it suffices.
func TestAccess(t *testing.T) {
	var granted, want []string
	for _, document := range bytes.Split(manifest(t), []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						granted = append(granted, verb+" "+resource+"."+group)
					}
				}
				for _, path := range rule.NonResourceURLs {
					granted = append(granted, verb+" "+path)
				}
			}
		}
	}
	for _, k := range newTables().kinds.All() {
		for _, verb := range []string{"get", "list", "watch"} {
			want = append(want, verb+" "+k.Resource().Resource+"."+k.Resource().Group)
		}
	}
	plural := map[string]string{"ClusterNetworkPolicy": "clusternetworkpolicies", "NetworkPolicy": "networkpolicies",
		"ClusterGroup": "clustergroups", "Group": "groups"}
	for _, target := range []target{
		policyTarget(policy.Key{Kind: policy.AntreaClusterNetworkPolicy}),
		policyTarget(policy.Key{Kind: policy.AntreaNetworkPolicy}),
		policyTarget(policy.Key{Kind: policy.ClusterNetworkPolicy}), groupTarget(derive.Object{}),
		groupTarget(derive.Object{Namespace: "default"}),
	} {
		want = append(want, "patch "+plural[target.reference.Kind]+"/status."+target.reference.GroupVersionKind().Group)
	}
	const configurations = "validatingwebhookconfigurations.admissionregistration.k8s.io"
	want = append(want, "list "+configurations, "update "+configurations, "create events.events.k8s.io",
		"patch events.events.k8s.io", "get /readyz", "create antreacontrollerinfos.crd.antrea.io",
		"patch antreacontrollerinfos.crd.antrea.io")
	slices.Sort(granted)
	slices.Sort(want)
	for _, one := range want {
		if !slices.Contains(granted, one) {
			t.Errorf("the controller needs to %s and may not", one)
		}
	}
	for _, one := range granted {
		if !slices.Contains(want, one) {
			t.Errorf("the controller may %s and does not", one)
		}
	}
}
