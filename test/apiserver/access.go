package apiserver

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// accessKinds are what a manifest's program acts as, and what that may do.
var accessKinds = []string{"Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}

// Access makes the ServiceAccounts of a manifest with their roles. It returns a configuration that acts as the first
// account, the program's. So a program that does more than its manifest allows fails. It makes no other objects of the
// manifest, and keeps existing ones.
func Access(t testing.TB, admin *rest.Config, manifest []byte) *rest.Config {
	t.Helper()
	c, err := client.New(admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	as := rest.CopyConfig(admin)
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read the manifest: %v", err)
		}
		if !slices.Contains(accessKinds, o.GetKind()) {
			continue
		}
		if err := c.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if o.GetKind() == "ServiceAccount" && as.Impersonate.UserName == "" {
			as.Impersonate.UserName = "system:serviceaccount:" + o.GetNamespace() + ":" + o.GetName()
		}
	}
	if as.Impersonate.UserName == "" {
		t.Fatal("the manifest has no ServiceAccount")
	}
	return as
}
