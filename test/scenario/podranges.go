package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// PodRanges has a member announce its Pods' range, or not any more, by which headless Services can be exported.
func (s *Scenario) PodRanges(ctx context.Context, cluster string, announce bool) error {
	cidr := `""`
	if announce {
		text, err := s.Kubectl(ctx, cluster, "get", "nodes", "-o", "jsonpath={.items[0].spec.podCIDR}")
		if err != nil {
			return err
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("the Pod range of node-1 in %s: %w", cluster, err)
		}
		p, err = p.Addr().Prefix(16)
		if err != nil {
			return err
		}
		cidr = p.String()
	}
	config, err := s.Kubectl(ctx, cluster, "get", "configmap", "antrea-mc-controller-config", "-n", MemberNamespace, "-o", "jsonpath={.data.controller_manager_config\\.yaml}")
	if err != nil {
		return err
	}
	before, after, found := strings.Cut(config, "podCIDRs:\n  - ")
	if !found {
		return fmt.Errorf("the member's configuration in %s has no podCIDRs:\n%s", cluster, config)
	}
	_, rest, _ := strings.Cut(after, "\n")
	if err := s.Apply(ctx, cluster, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: antrea-mc-controller-config, namespace: kube-system}\ndata:\n  controller_manager_config.yaml: |\n"+
		"    "+strings.ReplaceAll(before+"podCIDRs:\n  - "+cidr+"\n"+rest, "\n", "\n    ")); err != nil {
		return err
	}
	for _, args := range [][]string{{"restart"}, {"status", "--timeout=60s"}} {
		if out, err := s.Kubectl(ctx, cluster, append([]string{"rollout", args[0], "deployment/antrea-mc-controller", "-n", MemberNamespace}, args[1:]...)...); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}
