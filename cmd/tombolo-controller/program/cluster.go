package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tombolo-net/tombolo/pkg/cluster/externalip"
	"github.com/tombolo-net/tombolo/pkg/cluster/tenants"
	"github.com/tombolo-net/tombolo/pkg/cluster/warnings"
)

// clusterCommand runs what every cluster has once, in a ClusterSet or not.
func clusterCommand(logTo func()) *cobra.Command {
	var health string
	cmd := &cobra.Command{
		Use: "cluster", Short: "Run in every cluster: report what its Nodes do not serve, give Services addresses of " +
			"ExternalIPPools, and write the state of VirtualNetworks", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logTo()
			return runCluster(cmd.Context(), health)
		},
	}
	cmd.Flags().StringVar(&health, "health", ":8080", "address of /healthz and /readyz; 0 for none")
	return cmd
}

func runCluster(ctx context.Context, health string) error {
	namespace, kube, err := environment("cluster")
	if err != nil {
		return err
	}
	scheme, err := warnings.Scheme()
	if err != nil {
		return err
	}
	lease, renew, retry := 15*time.Second, 10*time.Second, 2*time.Second
	mgr, err := ctrl.NewManager(kube, ctrl.Options{
		Scheme: scheme,
		Cache:  warnings.CacheOptions(namespace),
		// Two replicas must not assign addresses, or write the same states. Events are written by the elected replica too.
		LeaderElection:                true,
		LeaderElectionID:              externalip.LeaseName,
		LeaderElectionNamespace:       namespace,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		LeaderElectionReleaseOnCancel: true, // the process ends when the manager has stopped
		HealthProbeBindAddress:        health,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	name, err := identity()
	if err != nil {
		return err
	}
	if err := errors.Join(warnings.SetupWithManager(mgr, name), externalip.SetupWithManager(mgr, name),
		tenants.SetupWithManager(mgr, namespace)); err != nil {
		return err
	}
	return start(ctx, mgr, "cluster", namespace)
}
