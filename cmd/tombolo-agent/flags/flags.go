// Package flags declares the commands of tombolo-agent and their flags. The reference is made of them, without the code
// that they run.
package flags

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cni/install"
	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// Agent are the flags of the agent itself.
type Agent struct {
	Config     string
	Kubeconfig string
	Verbose    bool
	OVSRunDir  string
	RunDir     string
	StateDir   string
	LogDir     string
	RelayToken string
}

// WireGuard are the flags of the command wireguard.
type WireGuard struct {
	Devices []string // empty: the agent's devices
	Check   bool
}

// Uninstall are the flags of the command uninstall.
type Uninstall struct {
	Config    string
	OVSRunDir string
	RunDir    string
	StateDir  string
	CNI       install.Options
	Done      bool
}

// Run are the functions that the commands run.
type Run struct {
	Uninstall  func(context.Context, Uninstall) error
	Agent      func(context.Context, Agent) error
	InstallCNI func(install.Options) error
	WireGuard  func(context.Context, WireGuard) error
}

// Command returns the command of the program, with the commands below it.
func Command(run Run) *cobra.Command {
	var f Agent
	cmd := &cobra.Command{
		Use:           "tombolo-agent",
		Short:         "The daemon of one Node: Open vSwitch flows, CNI, Services and other clusters",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run.Agent(cmd.Context(), f) },
	}
	configFlag(cmd, &f.Config)
	cmd.Flags().StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig; the Pod's ServiceAccount when empty")
	cmd.Flags().BoolVarP(&f.Verbose, "verbose", "v", false, "explain decisions in the log")
	folderFlags(cmd, &f.OVSRunDir, &f.RunDir, &f.StateDir)
	cmd.Flags().StringVar(&f.LogDir, "log-dir", "/var/log/tombolo", "where policies log")
	cmd.Flags().StringVar(&f.RelayToken, "relay-token", "/var/run/secrets/tombolo-observe/token",
		"file of the token for the relay tombolo-observe; empty: never connect to it")
	cmd.AddCommand(installCNI(run), serveWireGuard(run), uninstall(run))
	return cmd
}

// installCNI puts the CNI plugin and its configuration where the container runtime looks.
func installCNI(run Run) *cobra.Command {
	o := install.Options{}
	cmd := &cobra.Command{
		Use:   "install-cni",
		Short: "Install the CNI plugin and its configuration on the Node",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return run.InstallCNI(o) },
	}
	cmd.Flags().StringVar(&o.Plugin, "plugin", "/usr/local/bin/tombolo-cni", "the plugin's executable")
	cmd.Flags().BoolVar(&o.WithOther, "with-other-cni", false,
		"install on a Node that has the configuration of another CNI plugin, too")
	runtimeFlags(cmd, &o)
	return cmd
}

// uninstall removes from the Node what agents have made, without a reboot.
func uninstall(run Run) *cobra.Command {
	var f Uninstall
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove from the Node what agents have made: the CNI plugin, bridges, interfaces, routes, nftables tables",
		Long: "Remove from the Node what agents have made: the CNI configuration and plugin, the bridges with their " +
			"ports, the Pods' interfaces, routes, rules, nftables tables, WireGuard devices and the agent's records. An " +
			"interface that the switch has taken over gets its addresses back. No agent may run on the Node, and Open " +
			"vSwitch has to run. Pods that are not in the host's network lose theirs.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run.Uninstall(cmd.Context(), f) },
	}
	configFlag(cmd, &f.Config)
	folderFlags(cmd, &f.OVSRunDir, &f.RunDir, &f.StateDir)
	runtimeFlags(cmd, &f.CNI)
	cmd.Flags().BoolVar(&f.Done, "done", false,
		"only wait for a signal, as the container of a Pod whose init container has removed everything")
	return cmd
}

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", "/etc/tombolo/antrea-agent.conf", "configuration file")
}

// folderFlags are the flags of the Node's folders.
func folderFlags(cmd *cobra.Command, ovs, sockets, state *string) {
	cmd.Flags().StringVar(ovs, "ovs-run-dir", ofconn.DefaultRunDir, "where Open vSwitch has its sockets")
	cmd.Flags().StringVar(sockets, "run-dir", wire.DefaultRunDir, "where the agent has its sockets")
	cmd.Flags().StringVar(state, "state-dir", "/var/lib/tombolo", "where the record of addresses is kept")
}

// runtimeFlags are the flags of the container runtime's folders.
func runtimeFlags(cmd *cobra.Command, o *install.Options) {
	cmd.Flags().StringVar(&o.BinDir, "bin-dir", "/host/opt/cni/bin", "the runtime's directory of plugins, as mounted here")
	cmd.Flags().StringVar(&o.ConfDir, "conf-dir", "/host/etc/cni/net.d",
		"the runtime's directory of network configurations, as mounted here")
}

// serveWireGuard serves WireGuard in userspace, if the kernel lacks it or the switch cannot use the kernel's. It is a
// process of its own, so that tunnels survive a restart of the agent.
func serveWireGuard(run Run) *cobra.Command {
	var f WireGuard
	cmd := &cobra.Command{
		Use:   "wireguard",
		Short: "Encrypt what the agent sends through TUN or TAP devices",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return run.WireGuard(cmd.Context(), f) },
	}
	cmd.Flags().BoolVar(&f.Check, "check", false, "only check that the devices are served that are there")
	cmd.Flags().StringSliceVar(&f.Devices, "device", nil, "the devices; without it the agent's TUN devices; with the "+
		"userspace datapath of Open vSwitch its TAP devices have to be named")
	return cmd
}
