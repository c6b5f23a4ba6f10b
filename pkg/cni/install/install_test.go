package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
)

// TestRun installs on Nodes that have the plugin portmap, and on a Node where an earlier version has chained it.
func TestRun(t *testing.T) {
	for _, row := range []struct {
		name    string
		has     []string
		before  string
		chained []string
	}{
		{name: "no other plugin"},
		{name: "portmap", has: []string{"portmap"}},
		{"portmap chained before", []string{"portmap"}, earlier, []string{"portmap"}},
		{"portmap chained before, and gone", nil, earlier, nil},
		{"unreadable", []string{"portmap"}, "{", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			o := Options{Plugin: filepath.Join(dir, "tombolo-cni"), BinDir: filepath.Join(dir, "bin"),
				ConfDir: filepath.Join(dir, "net.d")}
			write(t, o.Plugin, "plugin")
			for _, name := range row.has {
				write(t, filepath.Join(o.BinDir, name), "other")
			}
			if row.before != "" {
				write(t, filepath.Join(o.ConfDir, "10-tombolo.conflist"), row.before)
			}
			for range 2 { // an upgrade finds its own files
				if err := Run(o); err != nil {
					t.Fatal(err)
				}
			}
			conf, err := libcni.ConfListFromFile(filepath.Join(o.ConfDir, "10-tombolo.conflist"))
			if err != nil {
				t.Fatal(err)
			}
			var types []string
			for _, p := range conf.Plugins {
				types = append(types, p.Network.Type)
			}
			if diff := cmp.Diff(append([]string{"tombolo"}, row.chained...), types); diff != "" || conf.Name != "tombolo" ||
				conf.CNIVersion != "1.0.0" {
				t.Errorf("%s %s, plugins (-want +have):\n%s", conf.Name, conf.CNIVersion, diff)
			}
			for _, capability := range []string{"bandwidth", "portMappings"} {
				if !conf.Plugins[0].Network.Capabilities[capability] {
					t.Errorf("the plugin tombolo lacks the capability %s", capability)
				}
			}
		})
	}
}

// TestOtherCNI installs on Nodes that have other configurations.
func TestOtherCNI(t *testing.T) {
	for _, row := range []struct {
		name, file, text string
		refused          bool
	}{
		{"Antrea", "10-antrea.conflist", `{"name":"antrea","plugins":[{"type":"antrea"},{"type":"portmap"}]}`, true},
		{"a later one", "90-flannel.conflist", `{"name":"cbr0","plugins":[{"type":"flannel"}]}`, true},
		{"one plugin", "05-cilium.conf", `{"name":"cilium","type":"cilium-cni"}`, true},
		{"a runtime's bridge", "87-podman-bridge.conflist", `{"name":"podman","plugins":[{"type":"bridge"}]}`, false},
		{"loopback", "99-loopback.conf", `{"type":"loopback"}`, false},
		{"disabled", "10-antrea.conflist.bak", `{"plugins":[{"type":"antrea"}]}`, false},
		{"no JSON", "10-antrea.conflist", "{", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			o := Options{Plugin: filepath.Join(dir, "tombolo-cni"), BinDir: filepath.Join(dir, "bin"),
				ConfDir: filepath.Join(dir, "net.d")}
			write(t, o.Plugin, "plugin")
			write(t, filepath.Join(o.ConfDir, row.file), row.text)
			err := Run(o)
			if !row.refused {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "/etc/cni/net.d/"+row.file) ||
				!strings.Contains(err.Error(), "--with-other-cni") {
				t.Errorf("error %v", err)
			}
			if _, err := os.Stat(filepath.Join(o.BinDir, "tombolo")); !os.IsNotExist(err) {
				t.Errorf("the plugin was installed: %v", err)
			}
			o.WithOther = true
			if err := Run(o); err != nil {
				t.Errorf("with the flag: %v", err)
			}
			o.WithOther = false // an upgrade of this plugin
			if err := Run(o); err != nil {
				t.Errorf("where it is installed: %v", err)
			}
		})
	}
}

// earlier is the configuration that a version wrote that chained portmap.
const earlier = `{"cniVersion":"1.0.0","name":"tombolo","plugins":[` +
	`{"type":"tombolo","capabilities":{"bandwidth":true}},{"type":"portmap","capabilities":{"portMappings":true}}]}`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
