// Package signetwork runs cases of SIG Network of Kubernetes' own end-to-end tests, unchanged, in a cluster of the lab
// whose agents have antreaProxy.proxyAll. `make sig-network` compiles them, makes the image that they ask for and runs
// them; `make test` does not. docs/testing-suites.md lists the cases that are left out.
package signetwork

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

var focus = flag.String("signetwork.focus", strings.Join([]string{
	`functioning NodePort service`, `ExternalIP when the external IP is not assigned`,
	`support externalTrafficPolicy=Local for type=NodePort`,
	`fail health check node port`,
	`session affinity work for NodePort`, `hairpin`, `HostPort validates`,
}, "|"), "run the cases that match this regular expression")

var (
	families = flag.String("signetwork.families", "4", "IP families of the cluster: 4, 46 or 6")
	skip     = flag.String("signetwork.skip", "", "leave out cases that match this regular expression as well")
	mode     = flag.String("signetwork.mode", config.Encap, "trafficEncapMode of the agents: encap, noEncap or hybrid")
	subnets  = flag.Int("signetwork.subnets", 1, "subnets that the Nodes are in: 1 or 2")

	processes = flag.Int("signetwork.processes", 1, "run so many cases at the same time")
	limit     = flag.Duration("signetwork.limit", 0, "end the run after this time")
	report    = flag.String("signetwork.report", "", "write the result of each case to this file, as JUnit does")
)

// skipped are the cases that are left out; docs/testing-suites.md has the reasons.
const skipped = `SCTP|Disruptive|TCP CLOSE_WAIT|` +
	`when ExternalTrafficPolicy changes|cleanup finalizer|DNS configMap|pod resolv.conf|` +
	`switch session affinity for LoadBalancer service with Local|target all nodes with endpoints|` +
	`large requests: udp|service endpoints using hostNetwork|kube-proxy urls`

// skippedOf adds the features that a cluster lacks. It has LoadBalancer, and IPv6DualStack if it has both families.
func skippedOf(f family.Families) string {
	features := `|Feature:[^L]`
	if f == family.Dual {
		features = `|Feature:([^IL]|I[^P])`
	}
	if *skip != "" {
		features += "|" + *skip
	}
	return skipped + features
}

// loadBalancers makes a pool of addresses, which Nodes of one subnet have. An admission policy annotates each Service
// of type LoadBalancer with it, since the cases expect a cloud.
func loadBalancers() string {
	var ranges []string
	for _, r := range world.Lab.Cluster(cluster).LoadBalancers() {
		ranges = append(ranges, fmt.Sprintf(`{start: %q, end: %q}`, r[0], r[1]))
	}
	return fmt.Sprintf(pool, strings.Join(ranges, ", "))
}

const pool = `
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: cloud}
spec: {ipRanges: [%s], nodeSelector: {matchLabels: {subnet: "0"}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: cloud}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}]
  matchConditions:
    - {name: load-balancer, expression: "object.spec.type == 'LoadBalancer' && !has(object.spec.loadBalancerClass)"}
  reinvocationPolicy: Never
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >
          Object{metadata: Object.metadata{annotations: {"service.antrea.io/external-ip-pool": "cloud"}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: cloud}
spec: {policyName: cloud}
`

const (
	cluster = "east"
	nodes   = 3
)

var world *scenario.Scenario

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	setup := scenario.Setup{Name: "signet", Clusters: []string{cluster}, Nodes: nodes, ProxyAll: true, TrafficMode: *mode,
		Subnets: *subnets, Prepare: prepare}
	if setup.Families, err = lab.ParseFamilies(*families); err != nil {
		fmt.Fprintln(os.Stderr, "-signetwork.families:", err)
		os.Exit(1)
	}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		world = s
		return m.Run()
	}))
}

var images = []string{"agnhost-network", "glibc-dns-testing", "pause-network", "busybox-network", "regression-network",
	"nginx-network"}

func prepare(ctx context.Context, l *lab.Lab) error {
	for _, image := range images {
		if err := l.LoadImage(ctx, filepath.Join(l.Repo(), "bin/conformance", image+".tar")); err != nil {
			return fmt.Errorf("run `make sig-network`: %w", err)
		}
	}
	return nil
}

func TestSIGNetwork(t *testing.T) {
	if err := world.DNS(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if err := world.Apply(t.Context(), cluster, loadBalancers()); err != nil {
		t.Fatal(err)
	}
	for _, n := range world.Lab.Cluster(cluster).Nodes() { // cases of zones need three
		if _, err := world.Kubectl(t.Context(), cluster, "label", "node", n.Name(),
			"topology.kubernetes.io/zone="+n.Name(), fmt.Sprintf("subnet=%d", n.Subnet())); err != nil {
			t.Fatal(err)
		}
	}
	cases := scenario.Cases{Focus: *focus, Skip: skippedOf(world.Lab.Cluster(cluster).Families()), Processes: *processes,
		Limit: *limit, Report: *report}
	if err := world.KubernetesTests(t.Context(), cluster, nodes, cases); err != nil {
		t.Error(err)
	}
}
