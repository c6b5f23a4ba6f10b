package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Cases chooses cases of Kubernetes' own end-to-end tests.
type Cases struct {
	Focus, Skip string // regular expressions
	// Processes run cases at the same time, except for [Serial] cases; 1 when zero.
	Processes int
	// Limit ends the run. Cases that are left then count as skipped. If it is zero, go test's own limit applies.
	Limit time.Duration
	// Report is a file for the result of each case, as JUnit writes it; none when empty.
	Report string
}

// KubernetesTests runs cases of Kubernetes' own end-to-end tests in a cluster with a number of Nodes. They are compiled
// as bin/e2e.test, and run on the host outside of the clusters. If no case is selected, that is an error. The output
// goes to the test's output.
func (s *Scenario) KubernetesTests(ctx context.Context, cluster string, nodes int, cases Cases) error {
	repo := s.Lab.Repo()
	limit := cases.Limit
	if limit == 0 {
		limit = 24 * time.Hour
	}
	args := []string{"--procs", strconv.Itoa(max(cases.Processes, 1)), "--no-color", "-v", "--fail-on-empty",
		"--timeout", limit.String(), "--focus", cases.Focus}
	if cases.Skip != "" {
		args = append(args, "--skip", cases.Skip)
	}
	if cases.Report != "" {
		report, err := filepath.Abs(cases.Report)
		if err != nil {
			return err
		}
		args = append(args, "--output-dir", filepath.Dir(report), "--junit-report", filepath.Base(report))
	}
	args = append(args, filepath.Join(repo, "bin/e2e.test"), "--",
		"--kubeconfig", s.Lab.Cluster(cluster).Kubeconfig(), "--provider", "local", "--num-nodes", strconv.Itoa(nodes),
		"--kubectl-path", filepath.Join(repo, "bin/kubernetes/kubectl"))
	cmd := exec.CommandContext(ctx, filepath.Join(repo, "bin/ginkgo"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its processes
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := s.Lab.OutsideRun(cmd); err != nil {
		return fmt.Errorf("run cases of Kubernetes' tests: %w", err)
	}
	return nil
}
