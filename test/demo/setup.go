package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// named are the demo's clusters as `tombolo mc up` and `down` take them.
func (d *demo) named() string {
	var words []string
	for _, c := range d.world.Lab.Clusters() {
		words = append(words, scenario.ClusterID(c.Name())+"="+c.Kubeconfig())
	}
	return strings.Join(words, ",")
}

// setUp installs Tombolo and joins the clusters with one command. A user would give the same
// values for these clusters.
func (d *demo) setUp(ctx context.Context) error {
	if err := d.world.Lab.LoadImages(ctx); err != nil {
		return err
	}
	d.progress("images are on all Nodes")
	args := []string{"mc", "up", d.named(), "--clusterset", scenario.ClusterSet, "--no-verify"}
	for _, c := range d.world.Lab.Clusters() {
		id := scenario.ClusterID(c.Name())
		agent, member := c.Values()
		for flag, values := range map[string]map[string]any{"values": agent, "member-values": member} {
			text, err := yaml.Marshal(values)
			if err != nil {
				return err
			}
			file := filepath.Join(filepath.Dir(c.Kubeconfig()), flag+".yaml")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				return err
			}
			args = append(args, "--"+flag, id+"="+file)
		}
		args = append(args, "--gateway", id+"=node-1")
	}
	d.progress("tombolo %s", strings.Join(args, " "))
	d.up = args
	return d.tool(ctx, args...)
}

// tool runs bin/tombolo and shows what it prints.
func (d *demo) tool(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(d.world.Lab.Repo(), "bin", "tombolo"), args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// As by Ctrl-C: what a command made is the command's to take away.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 90 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("tombolo %s: %w", args[0]+" "+args[1], err)
	}
	return nil
}
