// Package install puts the CNI plugin and its network configuration on the Node.
package install

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
)

// Options says what is installed where.
type Options struct {
	Plugin  string // the plugin's executable
	BinDir  string // the runtime's plugin directory, "/opt/cni/bin" on the Node
	ConfDir string // the runtime's configuration directory, "/etc/cni/net.d" on the Node
}

const (
	pluginName = "tombolo"
	confName   = "10-tombolo.conflist"
	conf       = `{
    "cniVersion": "` + wire.InstalledVersion + `",
    "name": "` + wire.InstalledNetwork + `",
    "plugins": [
        {
            "type": "tombolo"
        },
        {
            "type": "portmap",
            "capabilities": {"portMappings": true}
        },
        {
            "type": "bandwidth",
            "capabilities": {"bandwidth": true}
        }
    ]
}
`
	confAlone = `{
    "cniVersion": "` + wire.InstalledVersion + `",
    "name": "` + wire.InstalledNetwork + `",
    "plugins": [
        {
            "type": "tombolo"
        }
    ]
}
`
)

// Run installs the plugin, then the configuration: the runtime must not find a
// configuration whose plugin is not there yet. Both appear by rename. The chained plugins
// portmap and bandwidth are named only where the Node has them.
func Run(o Options) error {
	if err := copyFile(o.Plugin, filepath.Join(o.BinDir, pluginName)); err != nil {
		return fmt.Errorf("install the CNI plugin: %w", err)
	}
	text := conf
	for _, chained := range []string{"portmap", "bandwidth"} {
		if _, err := os.Stat(filepath.Join(o.BinDir, chained)); errors.Is(err, os.ErrNotExist) {
			text = confAlone
		}
	}
	if err := os.MkdirAll(o.ConfDir, 0o755); err != nil {
		return fmt.Errorf("install the CNI configuration: %w", err)
	}
	if err := replace(filepath.Join(o.ConfDir, confName), 0o644, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}); err != nil {
		return fmt.Errorf("install the CNI configuration: %w", err)
	}
	return nil
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
