// Package signetwork runs cases of SIG Network of Kubernetes' own end-to-end tests, unchanged, in a cluster of the lab
// whose agents have antreaProxy.proxyAll. `make sig-network` compiles them, makes the image that they ask for and runs
// them; `make test` does not. docs/testing.md lists the cases that are left out.
package signetwork

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

var focus = flag.String("signetwork.focus", strings.Join([]string{
	`functioning NodePort service`, `ExternalIP when the external IP is not assigned`,
	`support externalTrafficPolicy=Local for type=NodePort`,
	`fail health check node port`,
	`session affinity work for NodePort`, `hairpin`, `HostPort validates`,
}, "|"), "run the cases that match this regular expression")

var families = flag.String("signetwork.families", "4", "IP families of the cluster: 4, 46 or 6")

// skipped are the cases that are left out; docs/testing.md has the reasons.
const skipped = `SCTP|Disruptive|TCP CLOSE_WAIT|invalid conntrack state bug|initial unready endpoints|` +
	`when ExternalTrafficPolicy changes`

// skippedOf adds the features that a cluster lacks. One of both families has IPv6DualStack.
func skippedOf(f family.Families) string {
	if f == family.Dual {
		return skipped + `|Feature:([^I]|I[^P])`
	}
	return skipped + `|Feature:`
}

const (
	cluster = "east"
	nodes   = 3
)

var world *scenario.Scenario

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	setup := scenario.Setup{Name: "signet", Clusters: []string{cluster}, Nodes: nodes, Prepare: prepare}
	if setup.Families, err = lab.ParseFamilies(*families); err != nil {
		fmt.Fprintln(os.Stderr, "-signetwork.families:", err)
		os.Exit(1)
	}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		world = s
		return m.Run()
	}))
}

func prepare(ctx context.Context, l *lab.Lab) error {
	for _, image := range []string{"agnhost-network", "glibc-dns-testing"} {
		if err := l.LoadImage(ctx, filepath.Join(l.Repo(), "bin/conformance", image+".tar")); err != nil {
			return fmt.Errorf("run `make sig-network`: %w", err)
		}
	}
	return nil
}

func TestSIGNetwork(t *testing.T) {
	if err := world.DNS(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	const before = "    hostGateway: antrea-gw0\n"
	if err := world.ConfigureAgents(t.Context(), []string{cluster}, before,
		before+"    antreaProxy: {proxyAll: true}\n"); err != nil {
		t.Fatal(err)
	}
	for _, n := range world.Lab.Cluster(cluster).Nodes() { // cases of zones need three
		if _, err := world.Kubectl(t.Context(), cluster, "label", "node", n.Name(),
			"topology.kubernetes.io/zone="+n.Name()); err != nil {
			t.Fatal(err)
		}
	}
	if err := world.KubernetesTests(t.Context(), cluster, nodes, "--ginkgo.v", "--ginkgo.skip",
		skippedOf(world.Lab.Cluster(cluster).Families()), "--ginkgo.focus", *focus); err != nil {
		t.Error(err)
	}
}
