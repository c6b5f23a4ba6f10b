package exportcheck

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestReadNamespaces has lists of isolated Namespaces, and the faults of refused lists.
func TestReadNamespaces(t *testing.T) {
	one := func(name string, uid types.UID, labels map[string]string) Namespaces {
		return Namespaces{ClusterID: "east", Families: "v4",
			Namespaces: []IsolatedNamespace{{Name: name, UID: uid, Labels: labels}}}
	}
	many, labels := Namespaces{}, map[string]string{}
	for i := range MaxNamespaces + 1 {
		many.Namespaces = append(many.Namespaces, IsolatedNamespace{Name: fmt.Sprint("n", i), UID: "u"})
		if i <= MaxNamespaceLabels {
			labels[fmt.Sprint("l", i)] = ""
		}
	}
	for _, row := range []struct{ name, text, want string }{
		{"a list", string(one("a", "u", map[string]string{"ns": "x"}).JSON()), ""},
		{"none", `{"clusterID":"east"}`, ""},
		{"no JSON", "{", "is not a list of Namespaces"},
		{"too long", strings.Repeat(" ", MaxNamespaceBytes+1), "expected at most 262144"},
		{"too many", string(many.JSON()), "has 501 Namespaces: expected at most 500"},
		{"a path as the name", string(one("../kube-system", "u", nil).JSON()), "namespaces[0].name"},
		{"no UID", string(one("a", "", nil).JSON()), "namespaces[0].uid"},
		{"a long UID", string(one("a", types.UID(strings.Repeat("u", 64)), nil).JSON()), "namespaces[0].uid"},
		{"a label's name", string(one("a", "u", map[string]string{"a b": ""}).JSON()), "namespaces[0].labels"},
		{"a label's value", string(one("a", "u", map[string]string{"a": "b c"}).JSON()), "namespaces[0].labels[a]"},
		{"too many labels", string(one("a", "u", labels).JSON()), "has 51 labels"},
		{"families", `{"families":"v5"}`, "families"},
		{"twice", `{"namespaces":[{"name":"a","uid":"u"},{"name":"a","uid":"v"}]}`, "a is given twice"},
	} {
		have, err := ReadNamespaces([]byte(row.text))
		switch {
		case row.want == "" && err != nil, row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: error %v, want %q", row.name, err, row.want)
		case err != nil && !reflect.DeepEqual(have, Namespaces{}):
			t.Errorf("%s: it has %v", row.name, have)
		}
	}
}

// TestCopiedLabels has labels that a copy in the central cluster has, and labels that steer programs there.
func TestCopiedLabels(t *testing.T) {
	for key, want := range map[string]bool{"ns": true, "example.com/team": true,
		"core.juniper.net/isolated-namespace": true,
		"kubernetes.io/metadata.name":         false, "pod-security.kubernetes.io/enforce": false, "tombolo.io/copy": false,
		"multicluster.tombolo.io/x": false, "notkubernetes.io/x": true, "x.k8s.io/y": false} {
		if Copied(key) != want {
			t.Errorf("label %s is copied: %t", key, !want)
		}
	}
}
