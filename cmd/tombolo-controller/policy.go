package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/webhook"
	"github.com/tombolo-net/tombolo/pkg/policystatus"
)

// policyCommand runs what every cluster has once for its policies.
func policyCommand(logTo func()) *cobra.Command {
	var health, bind, host string
	var port int
	cmd := &cobra.Command{
		Use: "policy", Short: "Run in every cluster: write the status of policies and groups, and check what is written of them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logTo()
			return runPolicy(cmd.Context(), health, bind, host, port)
		},
	}
	cmd.Flags().StringVar(&health, "health", ":8080", "address of /healthz and /readyz; 0 for none")
	cmd.Flags().StringVar(&bind, "metrics", "0", "address of /metrics; 0 for none")
	cmd.Flags().StringVar(&host, "webhook-host", "", "address that the webhooks listen at; all of them without it")
	cmd.Flags().IntVar(&port, "webhook-port", 9443, "port of the webhooks")
	return cmd
}

func runPolicy(ctx context.Context, health, bind, host string, port int) error {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		return errors.New("the environment variable POD_NAMESPACE is not set: the controller does not know its Namespace")
	}
	kube, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	kube = kubeclient.WithWarnings(kube, slog.Default())
	kube.QPS, kube.Burst = 100, 200
	kube.UserAgent = "tombolo-controller-policy"
	scheme, err := policystatus.Scheme()
	if err != nil {
		return err
	}
	writer, err := client.New(kube, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	certificate := &webhook.Certificate{Client: writer, Namespace: namespace, Names: policystatus.CertificateNames}
	lease, renew, retry := 15*time.Second, 10*time.Second, 2*time.Second
	mgr, err := ctrl.NewManager(kube, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                true,
		LeaderElectionID:              policystatus.LeaseName,
		LeaderElectionNamespace:       namespace,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		LeaderElectionReleaseOnCancel: true, // the process ends when the manager has stopped
		WebhookServer:                 ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){certificate.TLS}}),
		HealthProbeBindAddress:        health,
		Metrics:                       metricsserver.Options{BindAddress: bind},
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	identity, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the Pod's name: %w", err)
	}
	if err := errors.Join(
		policystatus.SetupWithManager(mgr, identity),
		mgr.Add(certificate),
		mgr.AddReadyzCheck("certificate", certificate.Ready),
		mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping),
	); err != nil {
		return err
	}
	slog.Info("starting", "role", "policy", "namespace", namespace)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the policy controller: %w", err)
	}
	return nil
}
