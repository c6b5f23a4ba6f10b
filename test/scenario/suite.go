package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// KubernetesTests runs cases of Kubernetes' own end-to-end tests in a cluster with a number of Nodes. They are compiled
// as bin/e2e, and run on the host outside of the clusters. Flags choose the cases and more; a choice without any case
// is an error. The output goes to the test's.
func (s *Scenario) KubernetesTests(ctx context.Context, cluster string, nodes int, flags ...string) error {
	repo := s.Lab.Repo()
	cmd := exec.CommandContext(ctx, filepath.Join(repo, "bin/e2e"), append([]string{
		"--kubeconfig", s.Lab.Cluster(cluster).Kubeconfig(), "--provider", "local", "--num-nodes", strconv.Itoa(nodes),
		"--kubectl-path", filepath.Join(repo, "bin/kubernetes/kubectl"), "--ginkgo.no-color", "--ginkgo.fail-on-empty",
		"--ginkgo.timeout", "24h", // go test's own limit counts
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := s.Lab.OutsideRun(cmd); err != nil {
		return fmt.Errorf("run cases of Kubernetes' tests: %w", err)
	}
	return nil
}
