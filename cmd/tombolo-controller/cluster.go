package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tombolo-net/tombolo/pkg/cluster/externalip"
	"github.com/tombolo-net/tombolo/pkg/cluster/tenants"
	"github.com/tombolo-net/tombolo/pkg/cluster/warnings"
)

// runCluster runs the controllers that every cluster has once, in a ClusterSet or not.
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
		// Only the elected replica assigns addresses, writes states and writes Events, since two replicas would interfere.
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
