// Package scenario follows the user guide on a lab: it joins the clusters into a ClusterSet, chooses Gateways and
// exports a Service, with the user guide's manifests. The demo and the end-to-end tests consist of its steps.
package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/manifests"
)

// Names that the user guide uses.
const (
	ClusterSet      = "test-clusterset"
	LeaderNamespace = "antrea-multicluster"
	MemberNamespace = "kube-system"
	Leader          = "north"
)

// ClusterID returns the ID that the user guide gives a cluster of the lab.
func ClusterID(cluster string) string { return "test-cluster-" + cluster }

// bootLimit is how long a step waits for a state. Each takes some seconds, but the machine may be busy.
const bootLimit = 4 * time.Minute

// Scenario is a lab on its way through the guide.
type Scenario struct {
	Lab      *lab.Lab
	Progress func(format string, args ...any)
}

func (s *Scenario) report(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(format, args...)
	}
}

// Members returns the names of all clusters: each is a member, the leader too.
func (s *Scenario) Members() []string {
	var names []string
	for _, c := range s.Lab.Clusters() {
		names = append(names, c.Name())
	}
	return names
}

// Kubectl runs kubectl in a cluster and returns what it printed.
func (s *Scenario) Kubectl(ctx context.Context, cluster string, args ...string) (string, error) {
	return s.Lab.Cluster(cluster).Kubectl(ctx, args...)
}

// Apply applies a manifest in a cluster.
func (s *Scenario) Apply(ctx context.Context, cluster, manifest string) error {
	out, err := s.Lab.Cluster(cluster).KubectlInput(ctx, manifest, "apply", "-f", "-")
	if err != nil {
		return fmt.Errorf("apply in cluster %s: %w\n%s", cluster, err, out)
	}
	return nil
}

// Access follows "Set up Access to Leader Cluster" for each member: ServiceAccount, token Secret and RoleBinding in the
// leader. It gives the member the token, as the guide's shell pipeline does.
func (s *Scenario) Access(ctx context.Context) error {
	manifest, err := manifests.V114().Part("access-east")
	if err != nil {
		return err
	}
	for _, member := range s.Members() {
		if err := s.Apply(ctx, Leader, strings.ReplaceAll(manifest, "east", member)); err != nil {
			return err
		}
		name := "member-" + member + "-token"
		token, err := s.TokenSecret(ctx, LeaderNamespace, name)
		if err != nil {
			return err
		}
		if err := s.Apply(ctx, member, token); err != nil {
			return err
		}
		s.report("%s may join: Secret %s", member, name)
	}
	return nil
}

// TokenSecret returns the leader's token Secret as a manifest. It is what the guide's `kubectl get secret | grep | sed`
// prints. It waits until the token is there.
func (s *Scenario) TokenSecret(ctx context.Context, namespace, name string) (string, error) {
	var manifest string
	err := Eventually(ctx, bootLimit, func(ctx context.Context) error {
		out, err := s.Kubectl(ctx, Leader, "get", "secret", name, "-n", namespace, "-o", "yaml")
		if err != nil {
			return err
		}
		var kept []string
		token := false
		for _, line := range strings.Split(out, "\n") {
			if keepLine(line) {
				line = strings.ReplaceAll(line, "kubernetes.io/service-account-token", "Opaque")
				line = strings.ReplaceAll(line, namespace, MemberNamespace)
				kept = append(kept, line)
			}
			token = token || strings.HasPrefix(line, "  token:")
		}
		if !token {
			return fmt.Errorf("secret %s has no token yet", name)
		}
		manifest = strings.Join(kept, "\n") + "\n"
		return nil
	})
	return manifest, err
}

// keepLine matches the same lines as the guide's grep -w -e '^apiVersion' -e '^data' -e '^metadata' -e '^ *name:' -e
// '^kind' -e ' ca.crt' -e ' token:' -e '^type' -e ' namespace'.
func keepLine(line string) bool {
	for _, p := range []string{"apiVersion:", "data:", "metadata:", "kind:", "type:"} {
		if strings.HasPrefix(line, p) {
			return true
		}
	}
	trimmed := strings.TrimLeft(line, " ")
	return strings.HasPrefix(trimmed, "name:") ||
		strings.HasPrefix(line, "  ca.crt:") || strings.HasPrefix(line, "  token:") || strings.HasPrefix(line, "  namespace:")
}

// Join follows "Initialize ClusterSet" and "for a Dual-role Cluster".
func (s *Scenario) Join(ctx context.Context) error {
	guide := manifests.V114()
	leader, err := guide.Part("leader")
	if err != nil {
		return err
	}
	if err := s.Apply(ctx, Leader, leader); err != nil {
		return err
	}
	for _, member := range s.Members() {
		manifest, err := guide.Part("member-" + member)
		if err != nil {
			return err
		}
		manifest = strings.ReplaceAll(manifest, "https://172.18.0.1:6443",
			s.Lab.Cluster(Leader).ServerFor(s.Lab.Cluster(member)))
		if err := s.Apply(ctx, member, manifest); err != nil {
			return err
		}
	}
	for _, member := range s.Members() {
		if err := s.WaitJoined(ctx, member, ClusterSet, bootLimit); err != nil {
			return err
		}
		s.report("%s has joined", ClusterID(member))
	}
	return nil
}

// WaitJoined waits until a member's ClusterSet is Ready.
func (s *Scenario) WaitJoined(ctx context.Context, member, clusterSet string, limit time.Duration) error {
	return s.WaitReady(ctx, member, clusterSet, "True", limit)
}

// WaitReady waits until the Ready condition of a member's ClusterSet has a status.
func (s *Scenario) WaitReady(ctx context.Context, member, clusterSet, status string, limit time.Duration) error {
	return Eventually(ctx, limit, func(ctx context.Context) error {
		out, err := s.Kubectl(ctx, member, "get", "clusterset", clusterSet, "-n", MemberNamespace,
			"-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && out != status {
			err = fmt.Errorf("ClusterSet %s in %s: Ready is %q, want %s", clusterSet, member, out, status)
		}
		return err
	})
}

// ChooseGateway follows "Multi-cluster Gateway Configuration" with the given Nodes as candidates. It waits until every
// other member has a ClusterInfoImport of the cluster.
func (s *Scenario) ChooseGateway(ctx context.Context, cluster string, nodes ...string) error {
	for _, node := range nodes {
		if _, err := s.Kubectl(ctx, cluster, "annotate", "--overwrite", "node", node,
			"multicluster.antrea.io/gateway=true"); err != nil {
			return err
		}
	}
	return Eventually(ctx, bootLimit, func(ctx context.Context) error {
		for _, other := range s.Members() {
			if other == cluster {
				continue
			}
			if _, err := s.Kubectl(ctx, other, "get", "clusterinfoimport", "-n", MemberNamespace,
				ClusterID(cluster)+"-clusterinfo"); err != nil {
				return err
			}
		}
		return nil
	})
}

// Pauses between the looks of Eventually.
const (
	leastPause = 250 * time.Millisecond
	mostPause  = 2 * time.Second
)

// Eventually calls f until it returns nil. After limit it returns f's last error.
func Eventually(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		start := time.Now()
		err := f(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		// On a busy machine one check takes seconds. Checks without a pause would use the processor time that the awaited
		// change needs.
		pause := min(max(time.Since(start), leastPause), mostPause)
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s still: %w", limit, last)
		case <-time.After(pause):
		}
	}
}
