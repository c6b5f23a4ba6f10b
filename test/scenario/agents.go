package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tombolo-net/tombolo/test/lab"
)

// InstallWireGuard runs WireGuard in userspace on all Nodes. Clusters whose kernels lack WireGuard need it.
func (s *Scenario) InstallWireGuard(ctx context.Context) error {
	manifest, err := os.ReadFile(filepath.Join(s.Lab.Repo(), "deploy", "agent", "tombolo-wireguard.yml"))
	if err != nil {
		return err
	}
	for _, cluster := range s.Members() {
		if err := s.Apply(ctx, cluster, lab.WireGuardOf(string(manifest))); err != nil {
			return err
		}
	}
	return nil
}

// ConfigureAgents edits the agents' configuration in some clusters: it replaces each text by the following one. Then it
// restarts all agents.
func (s *Scenario) ConfigureAgents(ctx context.Context, clusters []string, texts ...string) error {
	if err := s.EditConfiguration(ctx, clusters, texts...); err != nil {
		return err
	}
	return s.restartAgents(ctx, clusters)
}

// EditConfiguration edits it, and restarts nothing.
func (s *Scenario) EditConfiguration(ctx context.Context, clusters []string, texts ...string) error {
	for _, cluster := range clusters {
		config, err := s.Kubectl(ctx, cluster, "get", "configmap", "antrea-config", "-n", "kube-system", "-o", "yaml")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, config)
		}
		for i := 0; i < len(texts); i += 2 {
			if !strings.Contains(config, texts[i]) {
				return fmt.Errorf("the configuration of %s has no %s", cluster, texts[i])
			}
			config = strings.ReplaceAll(config, texts[i], texts[i+1])
		}
		if err := s.Apply(ctx, cluster, config); err != nil {
			return err
		}
	}
	return nil
}

// restartAgents replaces the agents of all Nodes of clusters at once. Upgrades replace them one Node after the other,
// which takes twice as long.
func (s *Scenario) restartAgents(ctx context.Context, clusters []string) error {
	failed := make([]error, len(clusters))
	var all sync.WaitGroup
	for i, cluster := range clusters {
		all.Go(func() {
			for _, args := range [][]string{
				{"delete", "pods", "-l", "component=tombolo-agent", "-n", "kube-system"},
				{"rollout", "status", "daemonset/tombolo-agent", "-n", "kube-system", "--timeout=4m"},
			} {
				if out, err := s.Kubectl(ctx, cluster, args...); err != nil {
					failed[i] = fmt.Errorf("%w\n%s", err, out)
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}
