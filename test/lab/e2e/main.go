// e2e runs the cases of SIG Network of Kubernetes' own end-to-end tests, unchanged, against the cluster of a
// kubeconfig. It accepts the flags of that program, such as --kubeconfig and --ginkgo.focus.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "k8s.io/kubernetes/test/e2e/common/network"
	_ "k8s.io/kubernetes/test/e2e/feature" // the names of features in labels
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/e2e/network"
	_ "k8s.io/kubernetes/test/e2e/network/netpol"
	"k8s.io/utils/net"
)

type result struct{ failed bool }

// Fail implements ginkgo.GinkgoTestingT.
func (r *result) Fail() { r.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Duration("test.timeout", 0, "no effect: ginkgo gives it, since most suites are programs of go test")
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	if !suite.DryRun {
		if err := findFamily(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			os.Exit(1)
		}
	}
	var r result
	if !ginkgo.RunSpecs(&r, "SIG Network", suite, reporter) || r.failed {
		os.Exit(1)
	}
}

// findFamily sets the family of the cluster's Services, which decides which addresses cases use. Kubernetes' own
// program does it in a step before all cases.
func findFamily() error {
	client, err := framework.LoadClientset()
	if err != nil {
		return err
	}
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(context.Background(), "kubernetes",
		metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the Service kubernetes: %w", err)
	}
	framework.TestContext.IPFamily = "ipv4"
	if net.IsIPv6String(service.Spec.ClusterIP) {
		framework.TestContext.IPFamily = "ipv6"
	}
	return nil
}
