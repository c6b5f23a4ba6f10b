// Command tombolo-controller has the controllers that run once in a cluster: `cluster` and
// `policy` in every cluster, and the multi-cluster controllers, `leader` in the cluster that has the Common Area
// and `member` in every cluster of the ClusterSet.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/tombolo-net/tombolo/cmd/tombolo-controller/flags"
	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member"
	"github.com/tombolo-net/tombolo/pkg/multicluster/webhook"
	"github.com/tombolo-net/tombolo/pkg/version"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	command := flags.Command(flags.Run{
		Log: logTo, Cluster: runCluster, Policy: runPolicy, Observe: runObserve,
		Leader: func(ctx context.Context, file string) error {
			return control(ctx, webhook.Leader, file, leader.SetupWithManager)
		},
		Member: func(ctx context.Context, file string) error {
			return control(ctx, webhook.Member, file, func(mgr ctrl.Manager, cfg config.Config, namespace string) error {
				return member.SetupFollowing(mgr, cfg, file, namespace)
			})
		},
	})
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tombolo-controller:", err)
		return 1
	}
	return 0
}

// logTo makes the log of the process. Verbosity 1 and more logs reasons as well.
func logTo(verbosity int) {
	level := slog.LevelInfo
	if verbosity > 0 {
		level = slog.LevelDebug
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
	ctrl.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))
}

// control runs one controller until ctx ends.
func control(ctx context.Context, role webhook.Role, file string,
	setup func(ctrl.Manager, config.Config, string) error) error {
	namespace, kube, err := environment(string(role))
	if err != nil {
		return err
	}
	cfg := config.Default()
	if file != "" {
		if cfg, err = config.Load(file); err != nil {
			return fmt.Errorf(
				"%w; the file comes from ConfigMap %s/antrea-mc-controller-config: change it there, and the kubelet starts the "+
					"controller again within five minutes", err, namespace)
		}
	}
	if err := waitServed(ctx, kube, role); err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before there was anything to do
		}
		return err
	}
	mgr, err := manager(kube, cfg, role, namespace)
	if err != nil {
		return err
	}
	if err := setup(mgr, cfg, namespace); err != nil {
		return err
	}
	return start(ctx, mgr, string(role), namespace)
}

// environment is where a controller runs: its Namespace, and how it reaches the API server.
func environment(role string) (namespace string, kube *rest.Config, _ error) {
	namespace = os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		return "", nil, errors.New(
			"the environment variable POD_NAMESPACE is not set: the controller does not know its Namespace")
	}
	kube, err := ctrl.GetConfig()
	if err != nil {
		return "", nil, fmt.Errorf("find the API server: %w", err)
	}
	kube = kubeclient.WithWarnings(kube, slog.Default())
	kube.QPS, kube.Burst = 100, 200
	kube.UserAgent = "tombolo-controller-" + role
	return namespace, kube, nil
}

// identity is the name under which a controller writes Events: its Pod's.
func identity() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the Pod's name: %w", err)
	}
	return name, nil
}

// start runs a manager until ctx ends.
func start(ctx context.Context, mgr ctrl.Manager, role, namespace string) error {
	err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping))
	if err != nil {
		return err
	}
	slog.Info("starting", "version", version.String(), "role", role, "namespace", namespace)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the %s controller: %w", role, err)
	}
	return nil
}

// manager makes the manager with webhooks and probes.
func manager(kube *rest.Config, cfg config.Config, role webhook.Role, namespace string) (ctrl.Manager, error) {
	scheme, err := leader.Scheme()
	if err != nil {
		return nil, err
	}
	writer, err := client.New(kube, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	certificate := &certs.Certificate{Client: writer, Namespace: namespace,
		Names: webhook.CertificateNames(role, namespace)}
	options := ctrlwebhook.Options{Host: cfg.Webhook.Host, Port: cfg.Webhook.Port, CertDir: cfg.Webhook.CertDir}
	own := cfg.Webhook.CertDir == "" // otherwise the administrator provides certificate and caBundle
	if own {
		options.TLSOpts = append(options.TLSOpts, certificate.TLS)
	}
	election := cfg.LeaderElection
	if election.LeaderElect != nil && !*election.LeaderElect {
		slog.Warn("leaderElection.leaderElect: false has no effect, since several replicas would write against each other: "+
			"this replica writes when it holds the Lease; remove the key",
			"lease", election.ResourceName)
	}
	mgr, err := ctrl.NewManager(kube, ctrl.Options{
		LeaderElection:          true,
		LeaderElectionID:        election.ResourceName,
		LeaderElectionNamespace: cmp.Or(election.ResourceNamespace, namespace),
		LeaseDuration:           &election.LeaseDuration.Duration,
		RenewDeadline:           &election.RenewDeadline.Duration,
		RetryPeriod:             &election.RetryPeriod.Duration,
		// The process ends when the manager has stopped: another replica need not wait.
		LeaderElectionReleaseOnCancel: true,

		Scheme:                 scheme,
		HealthProbeBindAddress: cfg.Health.HealthProbeBindAddress,
		Metrics:                metricsAt(cfg.Metrics.BindAddress),
		WebhookServer:          ctrlwebhook.NewServer(options),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	if own {
		if err := errors.Join(mgr.Add(certificate), mgr.AddReadyzCheck("certificate", certificate.Ready)); err != nil {
			return nil, err
		}
	}
	if err := webhook.SetupWithManager(mgr, scheme, role, namespace); err != nil {
		return nil, err
	}
	return mgr, errors.Join(
		mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()),
	)
}
