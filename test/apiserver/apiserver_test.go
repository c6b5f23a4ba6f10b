package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
)

func TestKubernetes(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	cached := filepath.Join(home, ".cache", "tombolo", "bin", "v1", "kubernetes")
	if err := os.MkdirAll(filepath.Dir(cached), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{filepath.Join(dir, "kubernetes"): 0o755,
		filepath.Join(dir, "text"): 0o644, cached: 0o755} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, env, home, want, err string
	}{
		{"the binary", filepath.Join(dir, "kubernetes"), home, filepath.Join(dir, "kubernetes"), ""},
		{"its folder", dir, home, filepath.Join(dir, "kubernetes"), ""},
		{"the cache", "", home, cached, ""},
		{"an empty cache", "", dir, "", "make lab-binaries"},
		{"a folder without it", home, home, "", "make lab-binaries"},
		{"not a program", filepath.Join(dir, "text"), home, "", "is not a program"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("TOMBOLO_KUBERNETES", tc.env)
			t.Setenv("HOME", tc.home)
			have, err := Kubernetes()
			if have != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("have %q, %v; want %q, %q", have, err, tc.want, tc.err)
			}
		})
	}
}

// TestStart asks a started API server for the kinds of the custom resource definitions.
func TestStart(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(Start(t, "../../deploy/crds"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.ServerResourcesForGroupVersion("multicluster.crd.antrea.io/v1alpha2")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.APIResources {
		if r.Kind == "ClusterSet" {
			return
		}
	}
	t.Errorf("no ClusterSet in %v", list.APIResources)
}

// TestStopAndStart finds after a stop the earlier objects, with the earlier access.
func TestStopAndStart(t *testing.T) {
	s := New(t, Options{})
	namespaces := kubernetes.NewForConfigOrDie(s.Config).CoreV1().Namespaces()
	kept := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := namespaces.Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if _, err := namespaces.Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
		t.Error("a stopped API server answers")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// TestPut finds objects that were written to etcd, more than one transaction has, by the API server.
func TestPut(t *testing.T) {
	s := New(t, Options{})
	var objects []Stored
	for i := range putAtOnce + 1 {
		o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("map-", i),
				Labels: map[string]string{"put": ""}}}
		objects = append(objects, Stored{"configmaps/default/" + o.Name, o})
	}
	if err := s.Put(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	list, err := kubernetes.NewForConfigOrDie(s.Config).CoreV1().ConfigMaps("default").List(t.Context(),
		metav1.ListOptions{LabelSelector: "put"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != len(objects) {
		t.Errorf("the API server has %d of %d objects", len(list.Items), len(objects))
	}
	if err := s.Put(t.Context(), []Stored{{"", make(chan int)}, {}}); err == nil {
		t.Error("an object that cannot be encoded is written without an error")
	}
}
