package seeds

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestManifests finds what each document is used for, and that every piece is YAML.
func TestManifests(t *testing.T) {
	for _, tc := range []struct {
		name  string
		open  func() (Document, error)
		parts [][]string
	}{
		{"v1.5 guide", V15, [][]string{
			{"kind: ServiceAccount", "name: member-east-access-sa", "kind: RoleBinding"},
			{"kind: ClusterClaim", "value: test-cluster-east", "kind: ClusterSet", "secret: \"member-east-access-token\""},
			{"kind: ClusterClaim", "value: test-cluster-north", "serviceAccount: \"member-west-access-sa\""},
			{"kind: ClusterSet", "serviceAccount: \"member-north-access-sa\""},
			{"kind: ServiceExport", "name: nginx"},
		}},
		{"user guide", UserGuide, [][]string{
			{"kind: ServiceAccount", "name: member-east", "kind: RoleBinding"},
			{"kind: ClusterSet", "namespace: antrea-multicluster\nspec:", "clusterID: test-cluster-north"},
			{"kind: ClusterSet", "namespace: kube-system", "clusterID: test-cluster-west\n"},
			{"kind: ServiceExport", "name: nginx"},
		}},
		{"tanzuhispano", Tanzuhispano, [][]string{
			{"kind: ServiceAccount", "name: member-tanzuhispano-db", "kind: RoleBinding"},
			{"kind: ClusterSet", "namespace: antrea-multicluster\nspec:", "kind: ClusterClaim"},
			{"kind: ClusterSet", "secret: \"member-tanzuhispano-02-token\"", "value: tanzuhispano-cluster-02"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := tc.open()
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.parts {
				m, err := d.Manifest(want...)
				if err != nil {
					t.Error(err)
					continue
				}
				for _, object := range strings.Split(m, "\n---\n") {
					var o struct{ APIVersion, Kind string }
					if err := yaml.Unmarshal([]byte(object), &o); err != nil || o.APIVersion == "" || o.Kind == "" {
						t.Errorf("not an object (%v):\n%s", err, object)
					}
				}
			}
			if _, err := d.Manifest("no such thing"); err == nil {
				t.Error("a manifest that is not there was found")
			}
		})
	}
}
