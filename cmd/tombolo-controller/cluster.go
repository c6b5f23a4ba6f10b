package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tombolo-net/tombolo/pkg/cluster"
)

// clusterCommand runs what every cluster has once, in a ClusterSet or not.
func clusterCommand(logTo func()) *cobra.Command {
	var health string
	cmd := &cobra.Command{
		Use: "cluster", Short: "Run in every cluster: report what its Nodes do not serve", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logTo()
			return runCluster(cmd.Context(), health)
		},
	}
	cmd.Flags().StringVar(&health, "health", ":8080", "address of /healthz and /readyz; 0 for none")
	return cmd
}

func runCluster(ctx context.Context, health string) error {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		return errors.New("the environment variable POD_NAMESPACE is not set: the controller does not know its Namespace")
	}
	kube, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	kube.UserAgent = "tombolo-controller-cluster"
	scheme, err := cluster.Scheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(kube, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cluster.CacheOptions(namespace),
		HealthProbeBindAddress: health,
		Metrics:                metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	identity, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the Pod's name: %w", err)
	}
	if err := errors.Join(
		cluster.SetupWithManager(mgr, identity),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping),
	); err != nil {
		return err
	}
	slog.Info("starting", "role", "cluster", "namespace", namespace)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the cluster controller: %w", err)
	}
	return nil
}
