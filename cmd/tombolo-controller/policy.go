package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/tombolo-net/tombolo/cmd/tombolo-controller/flags"
	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/cluster/policystatus"
)

// runPolicy runs the controller that every cluster has once for its policies.
func runPolicy(ctx context.Context, f flags.Policy) error {
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
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: f.WebhookHost, Port: f.WebhookPort,
			TLSOpts: []func(*tls.Config){certificate.TLS}}),
		HealthProbeBindAddress: f.Health,
		Metrics:                metricsAt(f.Metrics),
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
