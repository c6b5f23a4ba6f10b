package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/cni/install"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
)

// UninstallOptions are the places of what agents have made on a Node.
type UninstallOptions struct {
	OVSBridge string // the bridge of Pods, "br-int"
	OVSRunDir string // where Open vSwitch has its sockets
	RunDir    string // where the agent has its sockets
	StateDir  string // the agent's records
	CNI       install.Options
	Logger    *slog.Logger
}

// uninstallTime limits the removal of bridges and of the host's configuration. A busy Node takes seconds for nft.
const uninstallTime = 2 * time.Minute

// Uninstall removes from this Node what agents have made: the CNI configuration and plugin, the bridges with their
// ports, the Pods' interfaces, routes, rules, nftables tables, WireGuard devices, and the agent's records. An interface
// that the switch has taken over gets its addresses and routes back. While Uninstall runs, Open vSwitch has to run and
// the agent must not. It may be called again after an error. sysctls stay as they are.
func Uninstall(ctx context.Context, o UninstallOptions) error {
	if conn, err := net.Dial("unix", filepath.Join(o.RunDir, api.Socket)); err == nil {
		_ = conn.Close()
		return errors.New("an agent runs on this Node, and would make everything again: delete the DaemonSet " +
			"kube-system/tombolo-agent first")
	}
	// The runtime starts no Pod with a network that goes.
	if err := install.Remove(o.CNI); err != nil {
		return err
	}
	g, running := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(running)
	switchPorts := bridge.New(bridge.Options{Endpoint: bridge.EndpointIn(o.OVSRunDir), Logger: o.Logger})
	host := hostnet.New(hostnet.Options{Logger: o.Logger})
	g.Go(func() error { return switchPorts.Run(running) })
	g.Go(func() error { return host.Run(running) })
	err := removeFrom(ctx, switchPorts, host, o)
	stop()
	if ended := g.Wait(); err == nil {
		err = ended
	}
	if err != nil {
		return err
	}
	for _, l := range insideLinks {
		for _, name := range []string{l.name, l.tap} {
			if err := wireguard.Delete(name); err != nil {
				return err
			}
		}
	}
	if err := emptyDir(o.StateDir); err != nil {
		return err
	}
	o.Logger.Info("this Node has nothing of Tombolo any more")
	return nil
}

// removeFrom removes bridges, then Pods' interfaces, then the rest of the host's configuration.
func removeFrom(ctx context.Context, switchPorts *bridge.Manager, host *hostnet.Manager, o UninstallOptions) error {
	ctx, cancel := context.WithTimeout(ctx, uninstallTime)
	defer cancel()
	state, err := firstState(ctx, switchPorts, o.OVSRunDir)
	if err != nil {
		return err
	}
	uplinks, err := takenOver(state, filepath.Join(o.StateDir, uplinksFile))
	if err != nil {
		return err
	}
	var gone []bridge.Bridge
	for name := range state.Bridges {
		inside := slices.ContainsFunc(insideLinks[:], func(l insideLink) bool { return l.name == name })
		if uplinks[name] != nil || name == o.OVSBridge || inside {
			gone = append(gone, bridge.Bridge{Name: name, Absent: true})
		}
	}
	switchPorts.Set(gone)
	switchPorts.Release()
	if err := switchPorts.Synced(ctx); err != nil {
		return fmt.Errorf("remove bridges: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(uplinks)) {
		if err := hostnet.ReturnUplink(name, strings.TrimPrefix(name, uplinkBridge("")), uplinks[name]); err != nil {
			return fmt.Errorf("%w; configure the interface by hand as %s records, delete that file, and start again", err,
				filepath.Join(o.StateDir, uplinksFile))
		}
	}
	if err := cni.RemoveLinks(); err != nil {
		return err
	}
	host.Set(hostnet.Desired{})
	host.TranslationsLoaded()
	host.PortsLoaded()
	for _, synced := range []func(context.Context) error{host.Synced, host.TranslationsSynced, host.PortsSynced} {
		if err := synced(ctx); err != nil {
			return fmt.Errorf("remove the agent's configuration of the host: %w", err)
		}
	}
	return nil
}

// uplinksFile has the records of interfaces that are given back, in the agent's folder.
const uplinksFile = "uplinks.json"

// takenOver returns the records of interfaces that the switch has taken over, by the bridge that has each interface.
// Such a record is deleted with its bridge. So takenOver first writes the records to a file, for the next attempt.
func takenOver(state bridge.State, path string) (map[string]map[string]string, error) {
	uplinks := map[string]map[string]string{}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &uplinks)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what an earlier attempt has recorded in %s: %w; configure the interfaces by hand as it "+
			"records, and delete it", path, err)
	}
	for name, found := range state.Bridges {
		if found.ExternalIDs[hostnet.UplinkAddressesKey] != "" {
			uplinks[name] = found.ExternalIDs
		}
	}
	if len(uplinks) == 0 {
		return uplinks, nil
	}
	if text, err = json.Marshal(uplinks); err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("record the addresses of interfaces in %s: %w", path, err)
	}
	return uplinks, nil
}

// firstState returns the OVSDB's state as soon as it is read.
func firstState(ctx context.Context, m *bridge.Manager, runDir string) (bridge.State, error) {
	for {
		if s := m.State(); s.Connected {
			return s, nil
		}
		select {
		case <-m.Changed():
		case <-ctx.Done():
			return bridge.State{}, fmt.Errorf("ovsdb-server does not answer in %s: its bridges cannot be removed; the "+
				"DaemonSet kube-system/tombolo-ovs has to run: %w", runDir, context.Cause(ctx))
		}
	}
}

// emptyDir removes what is in a directory, which may be a mount.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the agent's records: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove the agent's records: %w", err)
		}
	}
	return nil
}
