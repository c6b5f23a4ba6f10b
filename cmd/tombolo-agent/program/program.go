// Package program is the program tombolo-agent, so that its reference can be made from its commands.
package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tombolo-net/tombolo/pkg/agent"
	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni/install"
	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/gates"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/version"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
)

// Run runs the program and returns its exit code.
func Run() int {
	// Most of the heap stays. With a large cluster most of the first garbage is between what stays, where its memory is
	// not returned.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := Command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tombolo-agent:", err)
		return 1
	}
	return 0
}

type flags struct {
	config     string
	kubeconfig string
	verbose    bool
	ovsRunDir  string
	runDir     string
	stateDir   string
	logDir     string
	relayToken string
}

// Command returns the command of the program, with the commands below it.
func Command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:           "tombolo-agent",
		Short:         "The daemon of one Node: Open vSwitch flows, CNI, Services and other clusters",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.config, "config", "/etc/tombolo/antrea-agent.conf", "configuration file")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig; the Pod's ServiceAccount when empty")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "explain decisions in the log")
	cmd.Flags().StringVar(&f.ovsRunDir, "ovs-run-dir", ofconn.DefaultRunDir, "where Open vSwitch has its sockets")
	cmd.Flags().StringVar(&f.runDir, "run-dir", wire.DefaultRunDir, "where the agent has its sockets")
	cmd.Flags().StringVar(&f.stateDir, "state-dir", "/var/lib/tombolo", "where the record of addresses is kept")
	cmd.Flags().StringVar(&f.logDir, "log-dir", "/var/log/tombolo", "where policies log")
	cmd.Flags().StringVar(&f.relayToken, "relay-token", "/var/run/secrets/tombolo-observe/token",
		"file of the token for the relay tombolo-observe; empty: never connect to it")
	cmd.AddCommand(installCNI(), serveWireGuard())
	return cmd
}

// installCNI puts the CNI plugin and its configuration where the container runtime looks.
func installCNI() *cobra.Command {
	o := install.Options{}
	cmd := &cobra.Command{
		Use:   "install-cni",
		Short: "Install the CNI plugin and its configuration on the Node",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return install.Run(o) },
	}
	cmd.Flags().StringVar(&o.Plugin, "plugin", "/usr/local/bin/tombolo-cni", "the plugin's executable")
	cmd.Flags().StringVar(&o.BinDir, "bin-dir", "/host/opt/cni/bin", "the runtime's directory of plugins, as mounted here")
	cmd.Flags().BoolVar(&o.WithOther, "with-other-cni", false,
		"install on a Node that has the configuration of another CNI plugin, too")
	cmd.Flags().StringVar(&o.ConfDir, "conf-dir", "/host/etc/cni/net.d",
		"the runtime's directory of network configurations, as mounted here")
	return cmd
}

// serveWireGuard serves WireGuard in userspace, if the kernel lacks it or the switch cannot use the kernel's. It is a
// process of its own so that tunnels outlive the agent.
func serveWireGuard() *cobra.Command {
	var devices []string
	var check bool
	cmd := &cobra.Command{
		Use:   "wireguard",
		Short: "Encrypt what the agent sends through TUN or TAP devices",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				var errs []error
				for _, d := range devices {
					errs = append(errs, wireguard.Check(d))
				}
				return errors.Join(errs...)
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			log.Info("waiting for the devices", "version", version.String(), "devices", devices)
			var all sync.WaitGroup
			for _, d := range devices {
				all.Go(func() { wireguard.Serve(cmd.Context(), d, log) })
			}
			all.Wait()
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only check that the devices are served that are there")
	cmd.Flags().StringSliceVar(&devices, "device", agent.WireGuardDevices(false),
		fmt.Sprintf("the devices; with the userspace datapath of Open vSwitch they are %q", agent.WireGuardDevices(true)))
	return cmd
}

func serve(ctx context.Context, f flags) error {
	var level slog.LevelVar
	if f.verbose {
		level.Set(slog.LevelDebug)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: &level}))
	klog.SetSlogLogger(log)
	ctrl.SetLogger(klog.Background())

	conf, warnings, err := config.Load(f.config)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", f.config, err)
	}
	for _, w := range warnings {
		log.Warn("configuration", "file", f.config, "warning", w.String())
	}
	log.Info("features that are on by default in Antrea and not in this version", "gates", gates.Missing(true))
	node := os.Getenv("NODE_NAME")
	if node == "" {
		return errors.New("the environment variable NODE_NAME is empty: set it from spec.nodeName in the DaemonSet")
	}
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		namespace = "kube-system"
	}
	rc, err := restConfig(f.kubeconfig, conf.KubeAPIServerOverride)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	log.Info("starting", "version", version.String(), "node", node, "datapath", conf.OVSDatapathType)
	err = agent.Run(ctx, agent.Options{
		Config:        conf,
		ConfigFile:    f.config,
		Warnings:      warnings,
		NodeName:      node,
		REST:          rc,
		Namespace:     namespace,
		PodName:       os.Getenv("POD_NAME"),
		OVSRunDir:     f.ovsRunDir,
		RunDir:        f.runDir,
		StateDir:      f.stateDir,
		LogDir:        f.logDir,
		RelayToken:    f.relayToken,
		HealthAddress: agent.HealthAddress(conf.APIPort),
		Logger:        log,
		LogLevel:      &level,
		Registerer:    registry,
		Gatherer:      registry,
	})
	if errors.Is(err, agent.ErrConfigurationChanged) { // the kubelet starts this container again
		log.Info("ending, to begin with the configuration that there is now", "file", f.config)
		return nil
	}
	return err
}

// restConfig returns the configuration for the API server. The override is for Nodes without kube-proxy, where the
// `kubernetes` Service answers only once this agent runs.
func restConfig(kubeconfig, override string) (*rest.Config, error) {
	rc, err := clientcmd.BuildConfigFromFlags(override, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	if kubeconfig == "" && override != "" {
		// BuildConfigFromFlags drops the ServiceAccount when a server is named.
		if rc, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("reach the API server %s (kubeAPIServerOverride): %w", override, err)
		}
		rc.Host = override
	}
	rc.QPS, rc.Burst = 50, 100
	rc.UserAgent = "tombolo-agent/" + version.String()
	return rc, nil
}
