// Package netpol runs the NetworkPolicy cases of Kubernetes' own end-to-end tests, unchanged, in a cluster of the lab.
// `make netpol` compiles them, makes the image that they ask for and runs them; `make test` does not, since they take
// 15 minutes.
package netpol

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

var focus = flag.String("netpol.focus", "Netpol|NetworkPolicy", "run the cases that match this regular expression")

var families = flag.String("netpol.families", "4", "IP families of the cluster: 4, 46 or 6")

const (
	cluster = "east"
	nodes   = 2
)

var world *scenario.Scenario

func TestMain(m *testing.M) {
	flag.Parse()
	setup := scenario.Setup{Name: "netpol", Clusters: []string{cluster}, Nodes: nodes, Prepare: prepare}
	var err error
	if setup.Families, err = lab.ParseFamilies(*families); err != nil {
		fmt.Fprintln(os.Stderr, "-netpol.families:", err)
		os.Exit(1)
	}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		world = s
		return m.Run()
	}))
}

func prepare(ctx context.Context, l *lab.Lab) error {
	if err := l.LoadImage(ctx, filepath.Join(l.Repo(), "bin/conformance/agnhost-netpol.tar")); err != nil {
		return fmt.Errorf("run `make netpol`: %w", err)
	}
	return nil
}

// TestNetworkPolicy leaves out the cases over SCTP: they use Services, which only the kernel's datapath serves for SCTP
// (docs/datapaths.md), and the lab has the userspace one.
func TestNetworkPolicy(t *testing.T) {
	if err := world.KubernetesTests(t.Context(), cluster, nodes, scenario.Cases{Focus: *focus, Skip: "SCTP"}); err != nil {
		t.Error(err)
	}
}
