// Command mcs runs the conformance suite of SIG Multicluster for the Multi-Cluster Services API, unchanged, against a
// lab. No server has a version of its Go module, so the caller names a copy of its sources:
//
//	mcs DIR [ARGS...]
//
// DIR is the directory conformance of sigs.k8s.io/mcs-api, ARGS are the suite's own. The report is left in DIR.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr,
			"mcs: want the directory of the suite, that is conformance/ of a copy of sigs.k8s.io/mcs-api: make mcs SUITE=DIR")
		os.Exit(2)
	}
	setup := scenario.Setup{Name: "mcs", Clusters: clusters, Nodes: 2, Prepare: images}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		if err := run(context.Background(), s, os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "mcs:", err)
			return 1
		}
		return 0
	}))
}

// clusters are the clusters between which the suite runs: the leader, which is a member too, and two other members.
var clusters = []string{scenario.Leader, "east", "west"}

func images(ctx context.Context, l *lab.Lab) error {
	for _, name := range []string{"socat", "netshoot"} {
		if err := l.LoadImage(ctx, filepath.Join(l.Repo(), "bin/mcs", name+".tar")); err != nil {
			return fmt.Errorf("run `make mcs`: %w", err)
		}
	}
	return nil
}

func run(ctx context.Context, s *scenario.Scenario, dir string, args []string) error {
	if err := errors.Join(s.Access(ctx), s.Join(ctx)); err != nil {
		return err
	}
	var contexts, kubeconfigs []string
	for _, name := range clusters {
		if err := s.ChooseGateway(ctx, name, "node-1"); err != nil {
			return err
		}
		if err := s.DNS(ctx, name); err != nil {
			return err
		}
		if name != scenario.Leader {
			contexts, kubeconfigs = append(contexts, name), append(kubeconfigs, s.Lab.Cluster(name).Kubeconfig())
		}
	}
	s.Progress("the clusters have joined, with CoreDNS for clusterset.local")
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"test", ".", "-count=1", "-timeout=60m", "-v", "-args", "-contexts=" + strings.Join(contexts, ",")},
			args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "KUBECONFIG="+strings.Join(kubeconfigs, string(filepath.ListSeparator)))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
