package tenants

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/test/logtext"
)

// earlier returns a folder with definitions in which SubnetLeases have no zone, and the definition of this version.
func earlier(t *testing.T) (folder string, now *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	folder = t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(crds)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "tombolo.io_subnetleases.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	now = &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, now); err != nil {
		t.Fatal(err)
	}
	old := now.DeepCopy()
	fields := old.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	if _, ok := fields["zone"]; !ok {
		t.Fatal("the definition of this version has no zone")
	}
	delete(fields, "zone")
	if text, err = yaml.Marshal(old); err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder, now
}

// TestEarlierDefinition has VirtualNetworks with equal ranges in an API server whose SubnetLeases have no zone. The
// second network gets no lease, and the log names the remedy. Other networks get leases.
func TestEarlierDefinition(t *testing.T) {
	log, before := &logtext.Buffer{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	folder, now := earlier(t)
	g := newSubnetRig(t, folder)
	defer g.start()()
	g.gate("")
	g.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	g.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	blue, red, green := subnet("a", "blue", "10.0.1.0/24"), subnet("a", "red", "10.0.1.0/24"),
		subnet("a", "green", "10.0.2.0/24")
	g.create(blue)
	g.create(network("a", "blue", "blue", ""))
	g.expect("a/blue 10.0.1.0/24 10.0.1.1 false", g.leaseOf(blue))
	g.next(blue)
	g.claim("node-1", "red", "x", 1) // the first write would give it blocks
	g.create(red)
	g.create(network("a", "red", "red", ""))
	line := func(words ...string) readState {
		return func(context.Context) (string, error) {
			for line := range strings.Lines(log.String()) {
				if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
					return "found", nil
				}
			}
			return log.String(), nil
		}
	}
	name := "SubnetLease " + string(red.UID)
	g.expect("found", line("level=WARN", "create "+name, "unknown field", "spec.zone", "apply tombolo-crds.yml"))
	g.create(green)
	g.create(network("a", "green", "green", ""))
	g.expect("a/green 10.0.2.0/24 10.0.2.1 false", g.leaseOf(green))
	g.expect("none", g.leaseOf(red))
	if ok, _ := line("wrote", name)(t.Context()); ok == "found" {
		t.Errorf("the lease of a/red was written:\n%s", log.String())
	}

	// With the definition of this version the network gets its zone.
	if err := apiextensionsv1.AddToScheme(g.scheme); err != nil {
		t.Fatal(err)
	}
	have := &apiextensionsv1.CustomResourceDefinition{}
	if err := g.client.Get(t.Context(), client.ObjectKeyFromObject(now), have); err != nil {
		t.Fatal(err)
	}
	have.Spec.Versions = now.Spec.Versions
	if err := g.client.Update(t.Context(), have); err != nil {
		t.Fatal(err)
	}
	if zone := g.zoneOf(red); zone == 0 || zone > tenant.MaxZone {
		t.Errorf("a/red has zone %d", zone)
	}
}
