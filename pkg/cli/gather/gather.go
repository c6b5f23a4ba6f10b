// Package gather has the command that makes bundles.
package gather

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/gather"
)

// Command returns the command gather.
func Command() *cobra.Command {
	var clusters remote.Flags
	var o gather.Options
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Write the state of clusters into one file, for people who look for the cause of a fault",
		Long: "Write the state of clusters into one .tar.gz: objects, logs, and the answers of the agents of all " +
			"Nodes.\n\n" +
			"The bundle has no Secrets. Objects have only fields that are listed, and what looks like a token, a key or a " +
			"password " +
			"is masked in all texts. A part that cannot be read is named in manifest.json, with the reason; the others " +
			"are there.\n\n" +
			"After an interrupt and on a full disk the file has the parts up to then, and the exit code is 1.",
		Example: "  tombolo gather --context east,west\n  tombolo gather --nodes worker-1,worker-7 --since 30m -f " +
			"incident.tar.gz\n" +
			"  tombolo get flows --bundle incident.tar.gz --node worker-1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.File == "" {
				o.File = "tombolo-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			return run(cmd, clusters, o)
		},
	}
	clusters.Add(cmd.Flags())
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "nodes" {
			name = "node"
		}
		return pflag.NormalizedName(name)
	})
	cmd.Flags().StringVarP(&o.File, "file", "f", "", "file to write; tombolo-TIME.tar.gz in this folder when empty")
	cmd.Flags().DurationVar(&o.Since, "since", 2*time.Hour, "age of the oldest Events and lines of logs")
	cmd.Flags().BoolVar(&o.Anonymize, "anonymize", false, "replace names of Pods, Namespaces and Services by words")
	cmd.Flags().BoolVar(&o.Connections, "connections", false, "list the tracked connections too, not only their number")
	return cmd
}

// Documented returns the command supportbundle of antctl. It makes the same bundle as gather.
func Documented() *cobra.Command {
	var clusters remote.Flags
	var o gather.Options
	var folder, list string
	cmd := &cobra.Command{
		Use:   "supportbundle [NODE...]",
		Short: "Write the state of the cluster into one file",
		Long: "Write the state of the cluster into one .tar.gz, as `tombolo gather` does.\n\n" +
			"NODEs are those whose agents are asked; without them, and without -l and -f, all.",
		Example: "  antctl supportbundle\n  antctl supportbundle worker-1 worker-2 -d /tmp\n  antctl supportbundle " +
			"--controller-only",
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if o.NoAgents && (len(nodes) > 0 || list != "" || o.NodeLabels != "") {
				return errors.New("--controller-only does not go with Nodes: leave out the one or the other")
			}
			if list != "" {
				more, err := readNodes(list)
				if err != nil {
					return err
				}
				nodes = append(nodes, more...)
			}
			clusters.Nodes = nodes
			o.File = filepath.Join(folder, "support-bundles_"+time.Now().UTC().Format("20060102T150405Z")+".tar.gz")
			return run(cmd, clusters, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&clusters.Kubeconfig, "kubeconfig", "k", "",
		"kubeconfig file; $KUBECONFIG or ~/.kube/config when empty")
	flags.DurationVarP(&clusters.Timeout, "timeout", "t", 10*time.Second,
		"how long to wait for the API server and each agent")
	flags.StringVarP(&folder, "dir", "d", ".", "folder to write the file to")
	flags.StringVarP(&list, "node-list-file", "f", "", "file with names of Nodes, one on a line")
	flags.StringVarP(&o.NodeLabels, "label-selector", "l", "", "labels of the Nodes whose agents are asked")
	flags.BoolVar(&o.NoAgents, "controller-only", false, "leave out the agents")
	flags.DurationVar(&o.Since, "since", 2*time.Hour, "age of the oldest Events and lines of logs")
	return cmd
}

// readNodes reads a file with names of Nodes. Empty lines and lines that begin with # are left out.
func readNodes(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the list of Nodes: %w", err)
	}
	defer f.Close()
	var all []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name := strings.TrimSpace(lines.Text()); name != "" && name[0] != '#' {
			all = append(all, name)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the list of Nodes %s: %w", path, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the list of Nodes %s is empty: write a name on each line, or leave out the flag", path)
	}
	return all, nil
}

// run makes the bundle and prints what it has.
func run(cmd *cobra.Command, clusters remote.Flags, o gather.Options) error {
	if o.Since <= 0 {
		return fmt.Errorf("--since %s: give a time such as 30m or 2h", o.Since)
	}
	o.Nodes, clusters.Nodes = clusters.Nodes, nil // a Node may be in one cluster of several
	var err error
	if o.Clusters, err = clusters.Clusters(); err != nil {
		return err
	}
	var mu sync.Mutex
	o.Report = func(part string, err error) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(cmd.ErrOrStderr(), "missing: %s: %v\n", part, err)
	}
	begin := time.Now()
	m, err := gather.Run(cmd.Context(), o)
	if m.Files == nil {
		return err
	}
	size := int64(0)
	if info, statErr := os.Stat(o.File); statErr == nil {
		size = info.Size()
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d files of %d clusters, %d kB, in %.1fs; %d parts are missing\n", o.File,
		len(m.Files),
		len(m.Clusters), (size+1023)/1024, time.Since(begin).Seconds(), len(m.Failures))
	if len(m.Failures) > 0 && err == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "%s in it says why\n", gather.ManifestName)
	}
	return err
}
