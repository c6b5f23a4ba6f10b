package multicluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/probe"
)

// verify checks two members of a ClusterSet.
func (c *cluster) verify() *cobra.Command {
	o := verify.Options{Agent: agentSettings}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify A B",
		Short: "Check two members of a ClusterSet: what each has received about the other, and packets both ways",
		Long: "Check two members of a ClusterSet. A and B are contexts of the kubeconfig, or paths of kubeconfig files. " +
			"Each check is a line:\npass, fail, or skip with the reason, its time, and a remedy when it failed; " +
			"the exit code is 1 when one failed, and skipped\nones do not count. " +
			"Temporary Pods in a temporary Namespace of both send the packets; they are deleted again, also after an interrupt.",
		Example: "  tombolo mc verify east west\n  tombolo mc verify east west --disruptive\n" +
			"  tombolo mc verify ./east.kubeconfig ./west.kubeconfig --json",
		Args: cli.Words("mc verify", "A", "B, which are contexts of the kubeconfig or kubeconfig files"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.server != "" {
				return errors.New("--server is one cluster's: name the two by contexts or kubeconfig files")
			}
			if args[0] == args[1] {
				return errors.New("both names are of one cluster: name two")
			}
			var clusters [2]verify.Cluster
			for i, name := range args {
				var err error
				if clusters[i], err = c.member(name); err != nil {
					return err
				}
			}
			if clusters[0].Name == clusters[1].Name { // files of one name
				for i, name := range args {
					clusters[i].Name = filepath.Join(filepath.Base(filepath.Dir(name)), filepath.Base(name))
				}
			}
			out := cmd.OutOrStdout()
			if !asJSON {
				o.Report = func(r verify.Result) { printResult(out, r) }
			}
			results, err := verify.Run(cmd.Context(), clusters[0], clusters[1], o)
			failed := 0
			for _, r := range results {
				if r.Status == verify.Fail {
					failed++
				}
			}
			if asJSON {
				all := map[string]any{"a": args[0], "b": args[1], "passed": failed == 0, "checks": results}
				text, err := json.MarshalIndent(all, "", "  ")
				if err != nil {
					return err
				}
				fmt.Fprintln(out, string(text))
			} else {
				fmt.Fprintf(out, "%d of %d checks failed\n", failed, len(results))
			}
			if err != nil {
				return err
			}
			if failed > 0 {
				return cli.ExitCode(1)
			}
			return nil
		},
	}
	namespaceFlag(cmd, &o.Namespace, deploy.MemberNamespace, "the members' controllers")
	cmd.Flags().StringVar(&o.Image, "image", "",
		"image of the probes, with the program tombolo; that of the agents when empty")
	cmd.Flags().DurationVar(&o.Limit, "wait", time.Minute,
		"how long to wait for Ready members, and for each Pod, import and first answer")
	cmd.Flags().BoolVar(&o.Disruptive, "disruptive", false,
		"also start Open vSwitch of one of several Gateways of each cluster again, which interrupts the Pods of that Node "+
			"for seconds, and see that the others carry on")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object, at the end")
	return cmd
}

// agentSettings reads antrea-agent.conf for a verification.
func agentSettings(text []byte) (verify.Agent, error) {
	c, _, err := config.Parse(text)
	if err != nil {
		return verify.Agent{}, err
	}
	return verify.Agent{
		Gateways: c.MulticlusterGateway(), GatewayNamespace: c.Multicluster.Namespace,
		PodToPod: c.Multicluster.EnablePodToPodConnectivity, StretchedPolicies: c.StretchedPolicies(),
		WayDownAfter: time.Duration(c.Multicluster.BFD.Multiplier) * c.Multicluster.BFD.Interval,
	}, nil
}

func printResult(out io.Writer, r verify.Result) {
	fmt.Fprintf(out, "%s  %6.1fs  %s: %s\n", r.Status, r.Seconds, r.Check, r.Detail)
	if r.Remedy != "" {
		fmt.Fprintf(out, "               %s\n", r.Remedy)
	}
}

// member reaches a cluster by the name of a context, or by a kubeconfig file.
func (c *cluster) member(name string) (verify.Cluster, error) {
	found, err := remote.Open(c.kubeconfig, name)
	if err != nil {
		return verify.Cluster{}, err
	}
	c.configure(found.Config)
	k, err := kubeclient.New(found.Config, kubeclient.Options{Scheme: verify.Scheme()})
	if err != nil {
		return verify.Cluster{}, fmt.Errorf("reach the API server of %s: %w", name, err)
	}
	return verify.Cluster{Name: found.Name, Client: k}, nil
}

// Probes returns the hidden group probe, which the Pods of a verification run.
func Probes() *cobra.Command {
	var name string
	serve := &cobra.Command{
		Use: "serve", Short: "Answer until the Pod ends", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return probe.Serve(cmd.Context(), net.JoinHostPort("", strconv.Itoa(probe.Port)), name)
		},
	}
	serve.Flags().StringVar(&name, "name", "", "name to answer with")
	var limit time.Duration
	var to string
	ask := &cobra.Command{
		Use: "ask QUESTIONS", Short: "Ask servers, and write the answers for the Pod's status", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var questions []probe.Question
			if err := json.Unmarshal([]byte(args[0]), &questions); err != nil {
				return fmt.Errorf("read the questions: %w", err)
			}
			answers := []probe.Answer{}
			for _, q := range questions {
				answers = append(answers, probe.Ask(cmd.Context(), q, limit))
			}
			text, err := json.Marshal(answers)
			if err != nil {
				return err
			}
			return os.WriteFile(to, text, 0o644)
		},
	}
	ask.Flags().DurationVar(&limit, "limit", time.Minute, "how long to wait for the first answer to each")
	ask.Flags().StringVar(&to, "to", "/dev/termination-log", "file to write the answers to")
	group := cli.Group("probe", "The programs in the Pods of mc verify", serve, ask)
	group.Hidden = true
	return group
}
