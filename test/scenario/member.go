package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MemberConfig sets top-level keys, of one line each, in the configuration of a cluster's member controller. It waits
// until the controller uses them, which it does without a restart. A key that is missing is added.
func (s *Scenario) MemberConfig(ctx context.Context, cluster string, keys map[string]string) error {
	before, err := s.MemberConfigText(ctx, cluster)
	if err != nil {
		return err
	}
	config := before
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		line := regexp.MustCompile(`(?m)^` + key + `:.*$`)
		if !line.MatchString(config) {
			config = strings.TrimRight(config, "\n") + "\n" + key + ":\n"
		}
		config = line.ReplaceAllLiteralString(config, key+": "+keys[key])
	}
	if config == before {
		return nil
	}
	since := time.Now().UTC()
	if err := s.Apply(ctx, cluster,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: antrea-mc-controller-config, namespace: "+MemberNamespace+
			"}\ndata:\n  controller_manager_config.yaml: |\n"+
			"    "+strings.ReplaceAll(config, "\n", "\n    ")); err != nil {
		return err
	}
	// A kubelet shows a change within a minute, and at once to a Pod that changes itself.
	pods := []string{"pods", "-n", MemberNamespace, "-l", "component=antrea-mc-controller"}
	annotate := append(append([]string{"annotate", "--overwrite"}, pods...),
		"lab/configured="+since.Format("150405.000"))
	if out, err := s.Kubectl(ctx, cluster, annotate...); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return Eventually(ctx, bootLimit, func(ctx context.Context) error {
		out, err := s.Kubectl(ctx, cluster, append([]string{"logs", "--tail=-1", "--since-time", since.Format(time.RFC3339)},
			pods[1:]...)...)
		if err == nil && !strings.Contains(out, "the configuration has changed") {
			err = errors.New("the member's controller has not taken its configuration over")
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// MemberConfigText is that configuration.
func (s *Scenario) MemberConfigText(ctx context.Context, cluster string) (string, error) {
	return s.Kubectl(ctx, cluster, "get", "configmap", "antrea-mc-controller-config", "-n", MemberNamespace, "-o",
		`jsonpath={.data.controller_manager_config\.yaml}`)
}
