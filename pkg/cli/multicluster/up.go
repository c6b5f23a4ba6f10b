package multicluster

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/multicluster/up"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// defaultClusterSet is the name of the ClusterSet that up makes.
const defaultClusterSet = "clusterset"

// upFlags are flags that are of one cluster, or of all, as [ID=]VALUE.
type upFlags struct {
	values, memberValues, gateways []string
}

// up sets up a ClusterSet.
func (c *several) up() *cobra.Command {
	o := up.Options{Version: version.String()}
	var flags upFlags
	var dryRun, noVerify bool
	cmd := &cobra.Command{
		Use:   "up LEADER,MEMBER,...",
		Short: "Set up a ClusterSet: check, install, join, choose Gateways, verify",
		Long: "Set up a ClusterSet of clusters that have no CNI plugin yet. Clusters are contexts of the kubeconfig, or\n" +
			"paths of kubeconfig files. The first one is the leader, and a member too. The cluster ID is the context's\n" +
			"name; ID=CONTEXT gives another one.\n\n" +
			"All clusters are checked before one is changed. If the set-up fails, it removes what it made. A set-up that is\n" +
			"repeated finishes an earlier one. Parts of Tombolo that were installed by other means are left as they are.",
		Example: "  tombolo mc up leader,west,east --image-registry registry.example/net --image-tag v0.1.0\n" +
			"  tombolo mc up leader,west,east --dry-run\n" +
			"  tombolo mc up hub=kind-1,west=./west.kubeconfig --values values.yaml --values west=west.yaml --gateway " +
			"west=node-1,west=node-2",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			clusters, names, err := c.sites("up", args)
			if err != nil {
				return err
			}
			if len(clusters) < 2 && !o.DedicatedLeader {
				return errors.New("a ClusterSet is of two clusters or more: name them, the leader first, as in " +
					"`tombolo mc up leader,west,east`")
			}
			if err := flags.apply(clusters, o); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if dryRun {
				plan, err := up.Plan(cmd.Context(), clusters, o)
				for _, line := range plan {
					fmt.Fprintln(out, line)
				}
				return err
			}
			start := time.Now()
			o.Report = reporter(out, start)
			if err := up.Run(cmd.Context(), clusters, o); err != nil {
				return err
			}
			if o.DedicatedLeader {
				names = names[1:]
			}
			if noVerify || len(names) < 2 {
				return nil
			}
			fmt.Fprintf(out, "%6.1fs  verifying; the set-up stays, whatever this finds\n", time.Since(start).Seconds())
			return c.runVerify(cmd, verifyOptions{Options: verify.Options{Agent: agentSettings,
				Namespace: deploy.MemberNamespace, Limit: 3 * time.Minute}}, names)
		},
	}
	cmd.Flags().StringVar(&o.ClusterSet, "clusterset", defaultClusterSet, "name of the ClusterSet")
	cmd.Flags().BoolVar(&o.DedicatedLeader, "dedicated-leader", false, "the leader is no member")
	cmd.Flags().StringVar(&o.LeaderServer, "leader-apiserver", "",
		"https URL by which members reach the leader's API server; the kubeconfig's when empty")
	cmd.Flags().BoolVar(&o.SkipLeaderCheck, "skip-leader-check", false,
		"do not ask the leader from here at that URL: where only member clusters reach it")
	cmd.Flags().StringVar(&o.Registry, "image-registry", "", "registry and path of the images (as make push REGISTRY=)")
	cmd.Flags().StringVar(&o.Tag, "image-tag", "", "tag of the images"+usualTag)
	cmd.Flags().BoolVar(&o.SkipRegistryCheck, "skip-registry-check", false,
		"do not ask the registry from here: where only Nodes reach it")
	cmd.Flags().BoolVar(&o.WithOtherCNI, "with-other-cni", false, "install although a cluster has another CNI plugin")
	cmd.Flags().StringArrayVar(&flags.values, "values", nil,
		"[ID=]FILE with values of the chart tombolo, of all clusters or of one; may be repeated")
	cmd.Flags().StringArrayVar(&flags.memberValues, "member-values", nil,
		"[ID=]FILE with values of the chart tombolo-multicluster for members; may be repeated")
	cmd.Flags().StringSliceVar(&flags.gateways, "gateway", nil,
		"ID=NODE to be a Gateway; may be repeated. Without it two Nodes of a cluster are chosen, unless "+
			"one is annotated")
	cmd.Flags().DurationVar(&o.Limit, "wait", 10*time.Minute, "how long each cluster may take until all of Tombolo runs")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave a set-up that failed as it is")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check all clusters and print the plan; change nothing")
	cmd.Flags().BoolVar(&noVerify, "no-verify", false, "do not send packets between the clusters at the end")
	return cmd
}

// down takes a ClusterSet down.
func (c *several) down() *cobra.Command {
	o := up.DownOptions{}
	var deletion cli.Deletion
	cmd := &cobra.Command{
		Use:   "down LEADER,MEMBER,...",
		Short: "Take a ClusterSet down that `mc up` has set up",
		Long: "Take a ClusterSet down: all members leave, the leader deletes it, and the objects that `mc up` has\n" +
			"installed are removed. Clusters are named as for `mc up`. Definitions of kinds stay. Agents stay too, since\n" +
			"Pods have their network from them; --agents removes them.",
		Example: "  tombolo mc down leader,west,east --dry-run\n  tombolo mc down leader,west,east --yes",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			clusters, _, err := c.sites("down", args)
			if err != nil {
				return err
			}
			sure, err := deletion.Confirmed(cmd, func() ([]string, error) { return up.Removed(cmd.Context(), clusters, o) })
			if err != nil || !sure {
				return err
			}
			o.Report = reporter(cmd.OutOrStdout(), time.Now())
			return up.Down(cmd.Context(), clusters, o)
		},
	}
	cmd.Flags().StringVar(&o.ClusterSet, "clusterset", defaultClusterSet, "name of the ClusterSet")
	cmd.Flags().BoolVar(&o.Agents, "agents", false, "remove agents and Open vSwitch too: Pods lose their network")
	deletion.Flags(cmd)
	return cmd
}

// sites opens the clusters that the arguments of a command name. It also returns the names of their contexts.
func (c *several) sites(command string, args []string) (clusters []up.Cluster, names []string, _ error) {
	if err := c.checkFlags(fmt.Sprintf("%s %s,%s", command, c.flags.context, args[0])); err != nil {
		return nil, nil, err
	}
	var faults []error
	for _, arg := range args {
		for word := range strings.SplitSeq(arg, ",") {
			id, name, given := strings.Cut(word, "=")
			if !given {
				name = word
			}
			if name == "" {
				faults = append(faults, fmt.Errorf("%q has a place without a cluster: separate clusters by one comma", arg))
				continue
			}
			found, err := remote.Open(c.flags.kubeconfig, name)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			if !given {
				id = up.IDOf(found.Name)
			}
			c.flags.configure(found.Config)
			clusters = append(clusters, up.Cluster{ID: id, Config: found.Config})
			names = append(names, name)
		}
	}
	return clusters, names, errors.Join(faults...)
}

// apply gives clusters the values and Gateways of the flags.
func (f upFlags) apply(clusters []up.Cluster, o up.Options) error {
	var faults []error
	for _, kind := range []struct {
		flag  string
		given []string
		to    func(*up.Cluster) *map[string]any
	}{
		{"--values", f.values, func(c *up.Cluster) *map[string]any { return &c.AgentValues }},
		{flagMemberValues, f.memberValues, func(c *up.Cluster) *map[string]any { return &c.MemberValues }},
	} {
		// Files of one cluster count before files of all clusters.
		ofAll := slices.DeleteFunc(slices.Clone(kind.given), func(text string) bool { return owner(clusters, text) >= 0 })
		for _, text := range slices.Concat(ofAll, slices.DeleteFunc(slices.Clone(kind.given), func(text string) bool {
			return owner(clusters, text) < 0
		})) {
			of := owner(clusters, text)
			if of == 0 && o.DedicatedLeader && kind.flag == flagMemberValues {
				faults = append(faults, noMember(kind.flag, text))
				continue
			}
			file := text
			if of >= 0 {
				_, file, _ = strings.Cut(text, "=")
			}
			content, err := os.ReadFile(file)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s %s: %w; want FILE, or ID=FILE with one of the IDs %s", kind.flag, text, err,
					idsOf(clusters)))
				continue
			}
			values := map[string]any{}
			if err := yaml.Unmarshal(content, &values); err != nil {
				faults = append(faults, fmt.Errorf("%s: read values of %s: %w", kind.flag, file, err))
				continue
			}
			for i := range clusters {
				if to := kind.to(&clusters[i]); of < 0 || of == i {
					*to = up.Merged(values, *to)
				}
			}
		}
	}
	for _, text := range f.gateways {
		i := owner(clusters, text)
		_, node, _ := strings.Cut(text, "=")
		switch {
		case i < 0, node == "":
			faults = append(faults, fmt.Errorf("--gateway %s: want ID=NODE with one of the IDs %s", text, idsOf(clusters)))
			continue
		case i == 0 && o.DedicatedLeader:
			faults = append(faults, noMember("--gateway", text))
			continue
		}
		clusters[i].Gateways = append(clusters[i].Gateways, node)
	}
	return errors.Join(faults...)
}

const flagMemberValues = "--member-values"

// noMember is the error about a flag for members that names a leader that is no member.
func noMember(flag, text string) error {
	id, _, _ := strings.Cut(text, "=")
	return fmt.Errorf("%s %s: %s is no member because of --dedicated-leader: leave one of these flags out", flag, text, id)
}

// owner returns the number of the cluster that a flag's value begins with, or -1.
func owner(clusters []up.Cluster, text string) int {
	id, _, found := strings.Cut(text, "=")
	if !found {
		return -1
	}
	return slices.IndexFunc(clusters, func(c up.Cluster) bool { return c.ID == id })
}

func idsOf(clusters []up.Cluster) string {
	var ids []string
	for _, c := range clusters {
		ids = append(ids, c.ID)
	}
	return strings.Join(ids, ", ")
}

// reporter writes lines about clusters with the time since a start.
func reporter(out io.Writer, start time.Time) func(cluster, line string) {
	var one sync.Mutex
	return func(cluster, line string) {
		one.Lock()
		defer one.Unlock()
		fmt.Fprintf(out, "%6.1fs  %-12s  %s\n", time.Since(start).Seconds(), cmp.Or(cluster, "all"), line)
	}
}
