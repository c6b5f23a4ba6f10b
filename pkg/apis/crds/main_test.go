package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"
)

const written = "../../../deploy/crds"

func read(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMultiClusterServices compares the definitions made from the module's types with the module's published ones:
// versions, names, schemas, subresources and columns are equal but for the texts.
func TestMultiClusterServices(t *testing.T) {
	for name, text := range map[string][]byte{
		"multicluster.x-k8s.io_serviceexports.yaml": crd.ServiceExportCRD,
		"multicluster.x-k8s.io_serviceimports.yaml": crd.ServiceImportCRD,
	} {
		t.Run(name, func(t *testing.T) {
			have, want := ours(t, name)["spec"].(map[string]any), read(t, text)["spec"].(map[string]any)
			strip(have, nil)
			strip(want, nil)
			delete(have["names"].(map[string]any), "listKind") // the API server's default
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("want -, have +:\n%s", diff)
			}
		})
	}
}

// TestNetworkPolicyAPI does the same with the experimental channel of SIG Network's policies, annotations included.
func TestNetworkPolicyAPI(t *testing.T) {
	const name = "policy.networking.k8s.io_clusternetworkpolicies.yaml"
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"sigs.k8s.io/network-policy-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/experimental", name))
	if err != nil {
		t.Fatal(err)
	}
	have, want := ours(t, name), read(t, text)
	for _, x := range []map[string]any{have, want} {
		strip(x, nil)
		delete(x, "status")
		annotations := x["metadata"].(map[string]any)["annotations"].(map[string]any)
		delete(annotations, "controller-gen.kubebuilder.io/version")
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("want -, have +:\n%s", diff)
	}
}

func ours(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(written, name))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, text)
}

// TestDescriptions accepts only descriptions of this repository: comments of its types, and descriptions.
func TestDescriptions(t *testing.T) {
	own, err := comments([]string{"../multicluster/v1alpha1", "../multicluster/v1alpha2", "../crd/v1alpha1",
		"../crd/v1beta1", "../contrail/v4", "../tombolo/v1alpha1", "../configplane/v1alpha1", "../plumbing/v1",
		"../stats/v1alpha1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, texts := range descriptions {
		for _, text := range texts {
			own[words(text)] = true
		}
	}
	paths, err := filepath.Glob(filepath.Join(written, "*.yaml"))
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d definitions: %v", len(paths), err)
	}
	kept := 0
	var walk func(path string, node any)
	walk = func(path string, node any) {
		switch node := node.(type) {
		case map[string]any:
			text, ok := node["description"].(string)
			_, printed := node["jsonPath"] // a column of ours
			if ok && !printed && !own[words(text)] {
				t.Errorf("%s: a description that is not ours: %q", path, text)
			}
			if ok {
				kept++
			}
			for _, child := range node {
				walk(path, child)
			}
		case []any:
			for _, child := range node {
				walk(path, child)
			}
		}
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		walk(path, read(t, text))
	}
	if kept < 20 {
		t.Errorf("%d descriptions are left: ours should stay", kept)
	}
}
