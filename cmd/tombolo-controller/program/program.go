// Package program is the program tombolo-controller, so that its reference can be made from its commands.
package program

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
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member"
	"github.com/tombolo-net/tombolo/pkg/multicluster/webhook"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// Run runs the program and returns its exit code.
func Run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := Command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tombolo-controller:", err)
		return 1
	}
	return 0
}

// Command returns the command of the program, with the commands below it.
func Command() *cobra.Command {
	var file string
	var verbosity int
	root := &cobra.Command{
		Use: "tombolo-controller", Short: "Join Kubernetes clusters into a ClusterSet", Version: version.String(),
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&file, "config", "", "configuration file of kind MultiClusterConfig")
	root.PersistentFlags().IntVar(&verbosity, "v", 0, "log verbosity: 0 logs changes, 1 and more also logs their reasons")
	logTo := func() {
		level := slog.LevelInfo
		if verbosity > 0 {
			level = slog.LevelDebug
		}
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
		ctrl.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))
	}
	command := func(role webhook.Role, short string,
		setup func(ctrl.Manager, config.Config, string) error) *cobra.Command {
		return &cobra.Command{Use: string(role), Short: short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				logTo()
				return control(cmd.Context(), role, file, setup)
			}}
	}
	root.AddCommand(
		command(webhook.Leader, "Run in the leader cluster, once for each Common Area", leader.SetupWithManager),
		command(webhook.Member, "Run in a member cluster", func(mgr ctrl.Manager, cfg config.Config, namespace string) error {
			return member.SetupFollowing(mgr, cfg, file, namespace)
		}),
		clusterCommand(logTo),
		policyCommand(logTo),
		observeCommand(logTo),
	)
	return root
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
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
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
		Metrics:                metricsserver.Options{BindAddress: cfg.Metrics.BindAddress},
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
