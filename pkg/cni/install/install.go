// Package install puts the CNI plugin and its network configuration on the Node.
package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
)

// Options are the files to install and their destinations.
type Options struct {
	Plugin  string // the plugin's executable
	BinDir  string // the runtime's plugin directory, "/opt/cni/bin" on the Node
	ConfDir string // the runtime's configuration directory, "/etc/cni/net.d" on the Node
	// WithOther installs on a Node that has the configuration of another CNI plugin.
	WithOther bool
}

const (
	pluginName = "tombolo"
	confName   = "10-tombolo.conflist"
)

// capabilities are the Pod's requests that the runtime passes to tombolo.
var capabilities = map[string]bool{"bandwidth": true, "portMappings": true}

// portmap is the plugin that earlier versions chained for ports of the Node.
const portmap = "portmap"

// network is a network configuration list.
type network struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	Plugins    []networkPlugin `json:"plugins"`
}

type networkPlugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// Run installs the plugin, then the configuration. So the runtime never finds a configuration without its plugin. Both
// appear through a rename.
//
// If an earlier version has chained the plugin portmap, portmap stays in the chain. It is needed to close the ports
// that it has opened for running Pods. Tombolo's rules come before its rules, so it changes nothing for new Pods.
//
// If a Node has the configuration of another network, Run leaves it alone, unless this network is installed there
// already.
func Run(o Options) error {
	if _, err := os.Stat(filepath.Join(o.ConfDir, confName)); errors.Is(err, fs.ErrNotExist) && !o.WithOther {
		if err := foreign(o.ConfDir); err != nil {
			return err
		}
	}
	if err := copyFile(o.Plugin, filepath.Join(o.BinDir, pluginName)); err != nil {
		return fmt.Errorf("install the CNI plugin: %w", err)
	}
	if err := link(o.BinDir); err != nil {
		return fmt.Errorf("install the CNI plugin as %s: %w", wire.PluginCN2, err)
	}
	conf := network{CNIVersion: wire.InstalledVersion, Name: wire.InstalledNetwork,
		Plugins: []networkPlugin{{Type: pluginName, Capabilities: capabilities}}}
	if _, err := os.Stat(filepath.Join(o.BinDir, portmap)); err == nil && slices.Contains(chained(o.ConfDir), portmap) {
		conf.Plugins = append(conf.Plugins,
			networkPlugin{Type: portmap, Capabilities: map[string]bool{"portMappings": true}})
	}
	text, err := json.MarshalIndent(conf, "", "    ")
	if err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	if err := os.MkdirAll(o.ConfDir, 0o755); err != nil {
		return fmt.Errorf("install the CNI configuration: %w", err)
	}
	if err := replace(filepath.Join(o.ConfDir, confName), 0o644, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	}); err != nil {
		return fmt.Errorf("install the CNI configuration: %w", err)
	}
	return nil
}

// link makes the second name of the plugin, which Multus uses. If another program has installed a file of that name,
// link leaves it.
func link(dir string) error {
	err := os.Symlink(pluginName, filepath.Join(dir, wire.PluginCN2))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Remove removes the configuration, then the plugin.
func Remove(o Options) error {
	second := filepath.Join(o.BinDir, wire.PluginCN2)
	if to, err := os.Readlink(second); err == nil && to == pluginName {
		if err := os.Remove(second); err != nil {
			return fmt.Errorf("remove the CNI plugin: %w", err)
		}
	}
	for _, path := range []string{filepath.Join(o.ConfDir, confName), filepath.Join(o.BinDir, pluginName)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the CNI plugin: %w", err)
		}
	}
	return nil
}

// others are the plugins of networks that have an agent of their own on each Node.
var others = []string{
	"antrea", "aws-cni", "azure-vnet", "calico", "cilium-cni", "flannel", "kindnet", "kube-router", "ovn-k8s-cni-overlay",
	"weave-net",
}

// foreign returns an error if a directory has the configuration of another network. It ignores configurations of single
// plugins, such as a bridge from a runtime's package. It also ignores unreadable files, which the runtime does not read
// either.
func foreign(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for other CNI configurations: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		var conf struct {
			Type    string          `json:"type"`
			Plugins []networkPlugin `json:"plugins"`
		}
		if err != nil || json.Unmarshal(text, &conf) != nil {
			continue
		}
		for _, p := range append(conf.Plugins, networkPlugin{Type: conf.Type}) {
			if slices.Contains(others, p.Type) {
				return fmt.Errorf("the Node has the CNI plugin %s (/etc/cni/net.d/%s), which Tombolo would take Pods from: "+
					"remove it from the cluster, then this file from the Node; or, to install all the same, "+
					"give install-cni the flag --with-other-cni (value withOtherCNI of the chart)", p.Type, e.Name())
			}
		}
	}
	return nil
}

// chained returns the plugins after tombolo in the installed configuration. If the configuration cannot be read, the
// list is empty.
func chained(confDir string) (out []string) {
	text, err := os.ReadFile(filepath.Join(confDir, confName))
	var conf network
	if err != nil || json.Unmarshal(text, &conf) != nil {
		return nil // it is written again
	}
	for _, p := range conf.Plugins {
		if p.Type != pluginName {
			out = append(out, p.Type)
		}
	}
	return out
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return replace(to, 0o755, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

// replace writes a file under another name and renames it into place.
func replace(path string, mode os.FileMode, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tombolo-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	err = write(tmp)
	if err == nil {
		err = tmp.Chmod(mode)
	}
	err = errors.Join(err, tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
