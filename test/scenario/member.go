package scenario

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MemberConfig sets top-level keys, of one line each, in the configuration of a cluster's member controller, and restarts it, since a
// kubelet takes up to a minute to show a change. A key that is not there is added.
func (s *Scenario) MemberConfig(ctx context.Context, cluster string, keys map[string]string) error {
	config, err := s.MemberConfigText(ctx, cluster)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		line := regexp.MustCompile(`(?m)^` + key + `:.*$`)
		if !line.MatchString(config) {
			config = strings.TrimRight(config, "\n") + "\n" + key + ":\n"
		}
		config = line.ReplaceAllLiteralString(config, key+": "+keys[key])
	}
	if err := s.Apply(ctx, cluster, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: antrea-mc-controller-config, namespace: "+MemberNamespace+"}\ndata:\n  controller_manager_config.yaml: |\n"+
		"    "+strings.ReplaceAll(config, "\n", "\n    ")); err != nil {
		return err
	}
	const controller = "deployment/antrea-mc-controller"
	if out, err := s.Kubectl(ctx, cluster, "rollout", "restart", controller, "-n", MemberNamespace); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := s.Kubectl(ctx, cluster, "rollout", "status", controller, "-n", MemberNamespace, "--timeout=60s")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// MemberConfigText is that configuration.
func (s *Scenario) MemberConfigText(ctx context.Context, cluster string) (string, error) {
	return s.Kubectl(ctx, cluster, "get", "configmap", "antrea-mc-controller-config", "-n", MemberNamespace, "-o", `jsonpath={.data.controller_manager_config\.yaml}`)
}
