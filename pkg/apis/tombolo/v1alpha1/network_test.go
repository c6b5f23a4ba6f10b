package v1alpha1_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/test/apiserver"
)

// TestAdmission writes networks and connections to a real API server, which takes or refuses them.
func TestAdmission(t *testing.T) {
	client, err := dynamic.NewForConfig(apiserver.Start(t, "../../../../deploy/crds"))
	if err != nil {
		t.Fatal(err)
	}
	names := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("n%d", i))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	members := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat("{clusterID: east, namespaceSelector: {}}, ", n), ", ") + "]"
	}
	for _, row := range []struct {
		name, resource, spec string
		want                 string // in the error
	}{
		{"a network", "tenantnetworks", "{members: [{clusterID: east, namespaceSelector: {}}, {clusterID: west, " +
			"namespaceSelector: {matchExpressions: [{key: tier, operator: Exists}]}}], connections: [all]}", ""},
		{"a network without members", "tenantnetworks", "{}", ""},
		{"members as many as may be", "tenantnetworks", "{members: " + members(200) + "}", ""},
		{"too many members", "tenantnetworks", "{members: " + members(201) + "}", "spec.members: Too many"},
		{"connections as many as may be", "tenantnetworks", "{connections: " + names(50) + "}", ""},
		{"too many connections", "tenantnetworks", "{connections: " + names(51) + "}", "spec.connections: Too many"},
		{"a connection twice", "tenantnetworks", "{connections: [a, a]}", "spec.connections[1]: Duplicate value"},
		{"no selector", "tenantnetworks", "{members: [{clusterID: east}]}",
			"spec.members[0].namespaceSelector: Required value"},
		{"no cluster", "tenantnetworks", "{members: [{namespaceSelector: {}}]}", "spec.members[0].clusterID: Required value"},
		{"an operator without values", "tenantnetworks", "{members: [{clusterID: east, namespaceSelector: " +
			"{matchExpressions: [{key: a, operator: In}]}}]}", "does not go with the operator"},
		{"an operator that is not there", "tenantnetworks", "{members: [{clusterID: east, namespaceSelector: " +
			"{matchExpressions: [{key: a, operator: Near, values: [b]}]}}]}", "Unsupported value"},
		{"a mesh", "networkconnections", "{mesh: " + names(100) + "}", ""},
		{"hubs and spokes", "networkconnections", "{hubs: [a], spokes: [b, c]}", ""},
		{"neither form", "networkconnections", "{}", "write mesh, or hubs and spokes"},
		{"hubs alone", "networkconnections", "{hubs: [a]}", "write hubs and spokes"},
		{"spokes alone", "networkconnections", "{spokes: [a]}", "write mesh, or hubs and spokes"},
		{"both forms", "networkconnections", "{mesh: [a], hubs: [a], spokes: [b]}", "write mesh, or hubs and spokes"},
		{"a mesh with a hub", "networkconnections", "{mesh: [a], hubs: [b]}", "write mesh, or hubs and spokes"},
		{"a mesh with a spoke", "networkconnections", "{mesh: [a], spokes: [b]}", "write hubs and spokes"},
		{"an empty mesh", "networkconnections", "{mesh: []}", "spec.mesh"},
		{"too large a mesh", "networkconnections", "{mesh: " + names(101) + "}", "spec.mesh: Too many"},
		{"a network twice", "networkconnections", "{mesh: [a, a]}", "spec.mesh[1]: Duplicate value"},
		{"an import", "tenantnetworkimports", "{number: 16777215, namespaceSelectors: [{}], clusterIDs: [east], " +
			"joined: [{name: b, number: 1, clusterIDs: [east]}]}", ""},
		{"number 0", "tenantnetworkimports", "{number: 0}", "spec.number"},
		{"a number of more than 24 bits", "tenantnetworkimports", "{number: 16777216}", "spec.number"},
	} {
		t.Run(row.name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			text := "{apiVersion: tombolo.io/v1alpha1, metadata: {generateName: t-}, spec: " + row.spec + "}"
			if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
				t.Fatal(err)
			}
			resource := client.Resource(schema.GroupVersionResource{Group: "tombolo.io", Version: "v1alpha1",
				Resource: row.resource})
			object.SetKind(map[string]string{"tenantnetworks": "TenantNetwork", "networkconnections": "NetworkConnection",
				"tenantnetworkimports": "TenantNetworkImport"}[row.resource])
			namespace := "default"
			if row.resource == "tenantnetworkimports" {
				namespace = ""
			}
			_, err := resource.Namespace(namespace).Create(context.Background(), object, metav1.CreateOptions{})
			switch {
			case row.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case row.want != "" && err == nil:
				t.Errorf("taken, want an error with %q", row.want)
			case row.want != "" && !strings.Contains(err.Error(), row.want):
				t.Errorf("%v, want %q in it", err, row.want)
			}
		})
	}
}
