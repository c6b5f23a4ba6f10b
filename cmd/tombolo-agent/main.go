// Command tombolo-agent is the daemon of one Node: it owns the Node's Open vSwitch bridge, serves CNI, and turns the
// state of the cluster into flows, ports and routes.
package main

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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tombolo-net/tombolo/cmd/tombolo-agent/flags"
	"github.com/tombolo-net/tombolo/pkg/agent"
	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni/install"
	"github.com/tombolo-net/tombolo/pkg/gates"
	"github.com/tombolo-net/tombolo/pkg/version"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
)

func main() { os.Exit(run()) }

func run() int {
	// Most of the agent's heap lives as long as the agent. In a large cluster the garbage of the first reading lies
	// between live objects, so the runtime cannot return its memory. A lower GOGC keeps that garbage small.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	command := flags.Command(flags.Run{Agent: serve, InstallCNI: install.Run, WireGuard: serveWireGuard,
		Uninstall: uninstall})
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tombolo-agent:", err)
		return 1
	}
	return 0
}

// uninstall removes from this Node what agents have made.
func uninstall(ctx context.Context, f flags.Uninstall) error {
	if f.Done {
		<-ctx.Done()
		return nil
	}
	conf, _, err := config.Load(f.Config)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", f.Config, err)
	}
	return agent.Uninstall(ctx, agent.UninstallOptions{OVSBridge: conf.OVSBridge, OVSRunDir: f.OVSRunDir, RunDir: f.RunDir,
		StateDir: f.StateDir, CNI: f.CNI, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}

// serveWireGuard serves devices until ctx ends, or checks them.
func serveWireGuard(ctx context.Context, f flags.WireGuard) error {
	devices := f.Devices
	if len(devices) == 0 {
		devices = agent.WireGuardDevices(false)
	}
	if f.Check {
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
		all.Go(func() { wireguard.Serve(ctx, d, log) })
	}
	all.Wait()
	return nil
}

func serve(ctx context.Context, f flags.Agent) error {
	var level slog.LevelVar
	if f.Verbose {
		level.Set(slog.LevelDebug)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: &level}))
	klog.SetSlogLogger(log)
	ctrl.SetLogger(klog.Background())

	conf, warnings, err := config.Load(f.Config)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", f.Config, err)
	}
	for _, w := range warnings {
		log.Warn("configuration", "file", f.Config, "warning", w.String())
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
	rc, err := restConfig(f.Kubeconfig, conf.KubeAPIServerOverride)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	log.Info("starting", "version", version.String(), "node", node, "datapath", conf.OVSDatapathType)
	err = agent.Run(ctx, agent.Options{
		Config:        conf,
		ConfigFile:    f.Config,
		Warnings:      warnings,
		NodeName:      node,
		REST:          rc,
		Namespace:     namespace,
		PodName:       os.Getenv("POD_NAME"),
		OVSRunDir:     f.OVSRunDir,
		RunDir:        f.RunDir,
		StateDir:      f.StateDir,
		LogDir:        f.LogDir,
		RelayToken:    f.RelayToken,
		HealthAddress: agent.HealthAddress(conf.APIPort),
		Logger:        log,
		LogLevel:      &level,
		Registerer:    registry,
		Gatherer:      registry,
	})
	if errors.Is(err, agent.ErrConfigurationChanged) { // the kubelet starts this container again
		log.Info("ending, to begin with the configuration that there is now", "file", f.Config)
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
