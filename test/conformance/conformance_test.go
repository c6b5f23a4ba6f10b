// Package conformance runs the conformance suite of SIG Network for ClusterNetworkPolicy, unchanged, in a cluster of
// the lab. `make conformance` makes the image that it asks for and runs it.
package conformance

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	api "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/config"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

var experimental = flag.Bool("conformance.experimental", false, "run the experimental cases too")

var families = flag.String("conformance.families", "4", "IP families of the cluster: 4, 46 or 6")

const cluster = "east"

var world *scenario.Scenario

func TestMain(m *testing.M) {
	flag.Parse()
	setup := scenario.Setup{Name: "suite", Clusters: []string{cluster}, Nodes: 2, Prepare: prepare}
	var err error
	if setup.Families, err = lab.ParseFamilies(*families); err != nil {
		fmt.Fprintln(os.Stderr, "-conformance.families:", err)
		os.Exit(1)
	}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		world = s
		return m.Run()
	}))
}

// prepare brings the suite's image to the Nodes, and its CustomResourceDefinition to the cluster.
func prepare(ctx context.Context, l *lab.Lab) error {
	if err := l.LoadImage(ctx, filepath.Join(l.Repo(), "bin/conformance/agnhost.tar")); err != nil {
		return fmt.Errorf("run `make conformance`: %w", err)
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api")
	list.Dir = l.Repo()
	dir, err := list.Output()
	if err != nil {
		return fmt.Errorf("find the suite's module: %w", err)
	}
	channel := "standard"
	if *experimental {
		channel = "experimental"
	}
	crds := filepath.Join(strings.TrimSpace(string(dir)), "config/crd", channel,
		"policy.networking.k8s.io_clusternetworkpolicies.yaml")
	_, err = l.Cluster(cluster).Kubectl(ctx, "apply", "--server-side", "-f", crds)
	return err
}

// timeouts are shorter than the suite's where it waits for what does not come: each of its hundred connections that
// must be denied is tried twice, for three seconds.
var timeouts = config.TimeoutConfig{
	RequestTimeout: 500 * time.Millisecond,
	PokeInterval:   50 * time.Millisecond,
}

func TestClusterNetworkPolicy(t *testing.T) {
	cfg, err := world.Lab.Cluster(cluster).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 100, 100
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Install(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	features := suite.StandardFeatures
	if *experimental {
		features = suite.ExperimentalFeatures
	}
	s := suite.New(suite.Options{Client: c, ClientSet: clientset, KubeConfig: *cfg, SupportedFeatures: features,
		TimeoutConfig: timeouts})
	s.Setup(t)
	world.Progress("the suite's servers are ready")
	passed, failed := 0, 0
	for _, test := range tests.ConformanceTests {
		if !features.HasAll(test.Features...) {
			continue
		}
		start, word := time.Now(), "pass"
		if t.Run(test.ShortName, func(t *testing.T) { test.Run(t, s) }) {
			passed++
		} else {
			failed++
			word = "FAIL"
		}
		world.Progress("%s  %5.1fs  %s", word, time.Since(start).Seconds(), test.ShortName)
	}
	world.Progress("%d cases passed, %d failed", passed, failed)
	if passed+failed == 0 {
		t.Error("the suite has no case of these features")
	}
}
