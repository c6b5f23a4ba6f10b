package agent

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
)

// TestAccess compares the ClusterRole of deploy/agent with the kinds that the agent watches. It allows exactly these.
// It allows no writes but reports, the keys of its Node and Gateway (TestReportAccess) and Leases (testLeaseAccess).
func TestAccess(t *testing.T) {
	text, err := os.ReadFile("../../deploy/agent/tombolo.yml")
	if err != nil {
		t.Fatal(err)
	}
	type resource struct{ group, name string }
	var granted []resource
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var role rbacv1.ClusterRole
		if err := documents.Decode(&role); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" && role.Kind != "Role" || role.Name != "antrea-agent" {
			continue
		}
		for _, rule := range role.Rules {
			if len(rule.NonResourceURLs) > 0 {
				if !slices.Equal(rule.NonResourceURLs, []string{"/readyz"}) || !slices.Equal(rule.Verbs, []string{"get"}) {
					t.Errorf("the agent may %v %v", rule.Verbs, rule.NonResourceURLs)
				}
				continue
			}
			if slices.Equal(rule.Resources, []string{reportsResource}) &&
				slices.Equal(rule.Verbs, []string{"get", "create", "patch"}) {
				continue
			}
			if one := rule.Resources; len(one) == 1 && (one[0] == infosResource || one[0] == nodeNetworksResource ||
				one[0] == latenciesResource) &&
				slices.Equal(rule.Verbs, []string{"create", "patch"}) {
				continue // TestReportAccess
			}
			if one := rule.Resources; len(one) == 1 && (one[0] == "gateways" || one[0] == "nodes") &&
				slices.Equal(rule.Verbs, []string{"patch"}) {
				continue // TestReportAccess
			}
			if slices.Equal(rule.Resources, []string{"pods/status"}) && slices.Equal(rule.Verbs, []string{"patch"}) {
				continue // podStatuses
			}
			if slices.Equal(rule.Resources, []string{"leases"}) && role.Kind == "Role" &&
				slices.Equal(rule.Verbs, []string{"get", "list", "create", "update", "delete"}) {
				continue // testLeaseAccess
			}
			if slices.Equal(rule.Resources, []string{capturesResource + "/status"}) &&
				slices.Equal(rule.Verbs, []string{"patch"}) {
				continue // TestPacketCaptures
			}
			if want := []string{"get", "list", "watch"}; !slices.Equal(rule.Verbs, want) {
				t.Errorf("the agent may %v %v, want %v", rule.Verbs, rule.Resources, want)
			}
			for _, group := range rule.APIGroups {
				for _, name := range rule.Resources {
					granted = append(granted, resource{group, name})
				}
			}
		}
	}
	c := config.Default()
	c.FeatureGates = map[string]bool{"Multicluster": true, "TenantNetworks": true, "PacketCapture": true,
		"NodeLatencyMonitor": true}
	c.Multicluster.EnableGateway, c.Multicluster.EnableStretchedNetworkPolicy = true, true
	var watched []resource
	for _, k := range newTables(c, "node-1").kinds.All() {
		watched = append(watched, resource{k.Resource().Group, k.Resource().Resource})
	}
	for _, r := range watched {
		if !slices.Contains(granted, r) {
			t.Errorf("the agent watches %v and may not", r)
		}
	}
	for _, r := range granted {
		if !slices.Contains(watched, r) {
			t.Errorf("the agent may read %v and does not", r)
		}
	}
}
