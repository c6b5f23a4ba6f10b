package program

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/cluster/policystatus"
)

// policyCommand runs what every cluster has once for its policies.
func policyCommand(logTo func()) *cobra.Command {
	var health, bind, host string
	var port int
	cmd := &cobra.Command{
		Use: "policy", Short: "Run in every cluster: write the status of policies and groups, and check what is written " +
			"of them", Args: cobra.NoArgs,
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
	namespace, kube, err := environment("policy")
	if err != nil {
		return err
	}
	scheme, err := policystatus.Scheme()
	if err != nil {
		return err
	}
	writer, err := client.New(kube, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	certificate := &certs.Certificate{Client: writer, Namespace: namespace, Names: policystatus.CertificateNames()}
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
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port,
			TLSOpts: []func(*tls.Config){certificate.TLS}}),
		HealthProbeBindAddress: health,
		Metrics:                metricsserver.Options{BindAddress: bind},
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	name, err := identity()
	if err != nil {
		return err
	}
	if err := errors.Join(
		policystatus.SetupWithManager(mgr,
			policystatus.Process{Namespace: namespace, Pod: name, Node: os.Getenv("NODE_NAME")}),
		mgr.Add(certificate),
		mgr.AddReadyzCheck("certificate", certificate.Ready),
		mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()),
	); err != nil {
		return err
	}
	return start(ctx, mgr, "policy", namespace)
}
