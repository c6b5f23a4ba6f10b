package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tombolo-net/tombolo/deploy/charts"
)

// Install installs Tombolo in all clusters as a user would: first the images, and then the rendered manifests of
// deploy/ with kubectl, after the edits that a user would make. The first cluster gets the leader too. It returns when
// all Nodes are Ready and all of Tombolo runs.
func (l *Lab) Install(ctx context.Context) error {
	if err := l.LoadImages(ctx); err != nil {
		return err
	}
	l.report("images are on all Nodes")
	g, gctx := errgroup.WithContext(ctx)
	for _, c := range l.clusters {
		g.Go(func() error { return c.install(gctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return l.InstallLeader(ctx, "")
}

// InstallLeader installs the multi-cluster controller as leader in the first cluster. It uses the Namespace of the
// manifest or the given one, as the guide of v1.5 does.
func (l *Lab) InstallLeader(ctx context.Context, namespace string) error {
	path, placeholder := leaderManifest, "antrea-multicluster"
	if namespace == "" {
		namespace = placeholder
	} else {
		path, placeholder = leaderOf15Manifest, "changeme"
	}
	text, err := l.manifest(path)
	if err != nil {
		return err
	}
	text = strings.ReplaceAll(text, placeholder, namespace)
	c := l.clusters[0]
	// The manifest holds no Namespace: users create it first.
	if err := c.apply(ctx, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n"); err != nil {
		return err
	}
	if err := c.apply(ctx, text); err != nil {
		return err
	}
	l.report("%s: leader is installed in Namespace %s", c.name, namespace)
	return c.rolledOut(ctx, namespace)
}

// install applies what every cluster needs, and waits until it runs.
func (c *Cluster) install(ctx context.Context) error {
	parts := c.edited
	if slices.Contains(c.lab.record.Charts, c.name) {
		parts = c.charted
	}
	texts, err := parts()
	if err != nil {
		return err
	}
	for _, text := range texts {
		if err := c.apply(ctx, text); err != nil {
			return fmt.Errorf("install Tombolo in cluster %s: %w", c.name, err)
		}
	}
	_, err = c.Kubectl(ctx, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout="+bootLimit.String())
	if err != nil {
		return err
	}
	c.lab.report("%s: Nodes are Ready", c.name)
	return c.rolledOut(ctx, "kube-system")
}

// edited are the manifests that users apply, with what they edit in them.
func (c *Cluster) edited() ([]string, error) {
	var texts []string
	paths := []string{crdsManifest, agentManifest, memberManifest}
	if c.lab.record.Tenants {
		paths = append(paths, attachmentManifest)
	}
	if c.lab.record.Encrypted {
		paths = append(paths, wireGuardManifest)
	}
	for _, path := range paths {
		text, err := c.Manifest(path)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// Manifest returns a manifest of deploy/, such as "agent/tombolo.yml", as a user of this cluster would edit it.
func (c *Cluster) Manifest(path string) (string, error) {
	text, err := c.lab.manifest(path)
	if err != nil {
		return "", err
	}
	return c.settings(path, text)
}

// charted are the same objects by the charts, with the same settings as values.
func (c *Cluster) charted() ([]string, error) {
	directory := filepath.Join(c.lab.bin.Repo, "deploy", "charts")
	var texts []string
	agent, member := c.Values()
	member["role"] = "member"
	for name, values := range map[string]map[string]any{charts.Agent: agent, charts.Multicluster: member} {
		definitions, manifest, err := charts.All(directory, name, "kube-system", values)
		if err != nil {
			return nil, err
		}
		texts = append([]string{definitions}, append(texts, manifest)...)
	}
	return texts, nil
}

// Values are the values of the charts tombolo and tombolo-multicluster for this cluster.
func (c *Cluster) Values() (agent, member map[string]any) {
	given := map[string]any{"pullPolicy": "Never"}
	var pods []any
	for _, p := range c.pods() {
		pods = append(pods, p.String())
	}
	member = map[string]any{"images": given, "enableStretchedNetworkPolicy": true, "podCIDRs": pods,
		"publishPodAddresses": true}
	if n := c.lab.record.ActiveGateways; n > 0 {
		member["activeGateways"] = n
	}
	agent = map[string]any{
		"images":                given,
		"kubeAPIServerOverride": c.nodeServer(),
		"transportInterface":    "eth1",
		"ovsDatapathType":       "netdev",
		"trafficEncapMode":      c.lab.record.TrafficMode,
		"antreaProxy":           map[string]any{"proxyAll": c.lab.record.ProxyAll},
		"featureGates": map[string]any{"Multicluster": true, "NodeLatencyMonitor": true,
			"TenantNetworks": c.lab.record.Tenants},
		"tenantNetworks": map[string]any{"subnetCIDRs": []any{"10.0.0.0/8", "fc00::/7"}}, // as tenantRanges
		"multicluster": map[string]any{"enableStretchedNetworkPolicy": true, "enablePodToPodConnectivity": true,
			"trafficEncryptionMode": c.encryption(), "bfd": map[string]any{"interval": c.lab.record.BFD.Interval.String(),
				"multiplier": c.lab.record.BFD.Multiplier}},
	}
	return agent, member
}

// apply applies a manifest. It retries for a while, as users do if a CRD or a webhook of the same manifest is not
// served yet.
func (c *Cluster) apply(ctx context.Context, manifest string) error {
	return eventually(ctx, bootLimit, func(ctx context.Context) error {
		_, err := c.KubectlInput(ctx, manifest, "apply", "-f", "-")
		return err
	})
}

// rolledOut waits until the DaemonSets and Deployments of a Namespace run.
func (c *Cluster) rolledOut(ctx context.Context, namespace string) error {
	out, err := c.Kubectl(ctx, "get", "daemonsets,deployments", "-n", namespace, "-o", "name")
	if err != nil {
		return err
	}
	for _, object := range strings.Fields(out) {
		if strings.HasPrefix(object, "daemonset") {
			// rollout status refuses DaemonSets that are updated OnDelete.
			if err := c.daemonSetReady(ctx, namespace, object); err != nil {
				return err
			}
			continue
		}
		_, err := c.Kubectl(ctx, "rollout", "status", object, "-n", namespace, "--timeout="+bootLimit.String())
		if err != nil {
			return err
		}
	}
	return nil
}

// daemonSetReady waits until a DaemonSet's Pods are ready on all Nodes.
func (c *Cluster) daemonSetReady(ctx context.Context, namespace, object string) error {
	return eventually(ctx, bootLimit, func(ctx context.Context) error {
		out, err := c.Kubectl(ctx, "get", object, "-n", namespace, "-o",
			"jsonpath={.status.desiredNumberScheduled} {.status.numberReady}")
		if err != nil {
			return err
		}
		wanted, ready, _ := strings.Cut(out, " ")
		if wanted != ready || wanted == "" || wanted == "0" {
			return fmt.Errorf("%s in cluster %s: %s of %s Pods are ready", object, c.name, ready, wanted)
		}
		return nil
	})
}

// These are manifests that users apply, below deploy/. tenantRanges are the ranges in which Subnets of tenants may be.
// Without such a list, no first interface can be in a VirtualNetwork.
const tenantRanges = `10.0.0.0/8, "fc00::/7"`

const (
	crdsManifest       = "agent/tombolo-crds.yml"
	attachmentManifest = "agent/tombolo-net-attach-def.yml"
	agentManifest      = "agent/tombolo.yml"
	wireGuardManifest  = "agent/tombolo-wireguard.yml"
	memberManifest     = "multicluster/antrea-multicluster-member.yml"
	leaderManifest     = "multicluster/antrea-multicluster-leader.yml"
	leaderOf15Manifest = "multicluster/v1.5/antrea-multicluster-leader-namespaced.yml"
)

// encryption is the agents' multicluster.trafficEncryptionMode.
func (c *Cluster) encryption() string {
	if c.lab.record.Encrypted {
		return "wireGuard"
	}
	return "none"
}

// WireGuardOf edits the manifest of WireGuard for the userspace datapath, as it says.
func WireGuardOf(manifest string) string {
	return strings.NewReplacer("antrea-mc-wg0", "antrea-mc-tap0", "antrea-mc-wg1", "antrea-mc-tap1", "antrea-wg0",
		"antrea-tap0", "antrea-wg1", "antrea-tap1").Replace(manifest)
}

func (l *Lab) manifest(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(l.bin.Repo, "deploy", path))
	return string(text), err
}

// settings returns a manifest with the edits of a user of these clusters in the ConfigMaps of the agent and of the
// member controller. These are for clusters without kube-proxy on a machine whose kernel may lack the Open vSwitch
// module. Policies span clusters, and Pods of different clusters reach each other.
func (c *Cluster) settings(path, manifest string) (string, error) {
	const stretched = "enableStretchedNetworkPolicy"
	switch path {
	case wireGuardManifest:
		return WireGuardOf(manifest), nil
	case memberManifest: // its own case, since a CRD in the manifest has the key too
		const none = "podCIDRs:\n      - \"\""
		if strings.Count(manifest, none) != 1 {
			return "", fmt.Errorf("deploy/%s: want one list podCIDRs to edit", path)
		}
		edited := "podCIDRs: [" + quoted(c.pods()) + "]"
		if n := c.lab.record.ActiveGateways; n > 0 {
			edited += fmt.Sprintf("\n    activeGateways: %d", n)
		}
		manifest = strings.Replace(manifest, none, edited, 1)
	}
	for key, value := range map[string]map[string]string{
		agentManifest: {
			"kubeAPIServerOverride": c.nodeServer(),
			"transportInterface":    "eth1",
			"ovsDatapathType":       "netdev",
			"trafficEncapMode": c.lab.record.TrafficMode +
				"\n    tenantNetworks: {subnetCIDRs: [" + tenantRanges + "]}",
			"antreaProxy":                fmt.Sprintf("{proxyAll: %t}", c.lab.record.ProxyAll),
			"Multicluster":               fmt.Sprintf("true\n      TenantNetworks: %t", c.lab.record.Tenants),
			stretched:                    "true",
			"enablePodToPodConnectivity": "true",
			"trafficEncryptionMode":      c.encryption(),
			"bfd": fmt.Sprintf("{interval: %s, multiplier: %d}", c.lab.record.BFD.Interval,
				c.lab.record.BFD.Multiplier),
		},
		memberManifest: {stretched: "true", "publishPodAddresses": "true"},
	}[path] {
		line := regexp.MustCompile(`(?m)^(\s*)#?\s?` + key + `:.*$`)
		if n := len(line.FindAllString(manifest, -1)); n != 1 {
			return "", fmt.Errorf("deploy/%s: the key %s is there %d times, want one line to edit", path, key, n)
		}
		manifest = line.ReplaceAllString(manifest, "${1}"+key+": "+value)
	}
	return manifest, nil
}
