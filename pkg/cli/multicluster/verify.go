package multicluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
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

// verifyOptions are the flags of the command verify.
type verifyOptions struct {
	verify.Options
	out    cli.Format
	asJSON bool // the older name of -o json
	junit  string
}

// verify checks members of a ClusterSet.
func (c *several) verify() *cobra.Command {
	o := verifyOptions{Options: verify.Options{Agent: agentSettings}}
	cmd := &cobra.Command{
		Use:   "verify A B [MORE...]",
		Short: "Check members of a ClusterSet: what each has received about the others, and packets both ways",
		Long: "Check members of a ClusterSet, each two of them. A, B and MORE are contexts of the kubeconfig, or paths of " +
			"kubeconfig files.\n\nEach check is a line: pass, fail, or skip with the reason, its time, and a remedy when it " +
			"failed. The exit code is 1 when one\nfailed; skipped ones do not count. --only names the checks to run: " +
			strings.Join(verify.Kinds(), ", ") + ".\nA check that these need is printed too, if it fails.\n\n" +
			"Temporary Pods in a temporary Namespace of each cluster send the packets; they are deleted again, also after an " +
			"interrupt.",
		Example: "  tombolo mc verify east west\n" +
			"  tombolo mc verify east west north --only ways,services --junit result.xml\n" +
			"  tombolo mc verify east west --disruptive\n  tombolo mc verify ./east.kubeconfig ./west.kubeconfig -o json",
		Args:              func(_ *cobra.Command, args []string) error { return c.checkVerify(o, args) },
		ValidArgsFunction: remote.ContextArgs,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.runVerify(cmd, o, args) },
	}
	namespaceFlag(cmd, &o.Namespace, deploy.MemberNamespace, "the members' controllers")
	flags := cmd.Flags()
	flags.StringVar(&o.Image, "image", "",
		"image of the probes, with the program tombolo; that of the agents when empty")
	flags.DurationVar(&o.Limit, "wait", time.Minute,
		"how long to wait for Ready members, and for each Pod, import and first answer")
	flags.BoolVar(&o.Disruptive, "disruptive", false,
		"also start Open vSwitch of one of several Gateways of each cluster again, which interrupts the Pods of that Node "+
			"for seconds, and see that the others carry on")
	flags.StringSliceVar(&o.Only, "only", nil, "names of the checks to run, separated by commas; all when empty")
	flags.StringVar(&o.junit, "junit", "", "file to write the results to as JUnit XML, with a test suite for each two")
	o.out.Flag(cmd)
	flags.BoolVar(&o.asJSON, "json", false, "the same as -o json")
	_ = flags.MarkHidden("json")
	_ = cmd.RegisterFlagCompletionFunc("only",
		cobra.FixedCompletions(verify.Kinds(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// checkVerify checks arguments and flags before any request.
func (c *several) checkVerify(o verifyOptions, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("mc verify needs A and B, which are contexts of the kubeconfig or kubeconfig files; it got %d "+
			"words", len(args))
	}
	if err := c.checkFlags(fmt.Sprintf("verify %s %s", c.flags.context, args[0])); err != nil {
		return err
	}
	for i, name := range args {
		if slices.Contains(args[:i], name) {
			return fmt.Errorf("%s is named twice, and both names are of one cluster: name each once", name)
		}
	}
	return o.CheckOnly()
}

// checkFlags refuses flags of the group mc that name one cluster, since the command has two. example is a command that
// names both.
func (c *several) checkFlags(example string) error {
	switch {
	case c.flags.server != "":
		return errors.New("--server is one cluster's: name the clusters by contexts or kubeconfig files")
	case c.flags.context != "":
		return fmt.Errorf("--context is one cluster's: name the clusters behind the command, as in `tombolo mc %s`", example)
	}
	return nil
}

// runVerify checks the named members and prints the results.
func (c *several) runVerify(cmd *cobra.Command, o verifyOptions, args []string) error {
	found, err := remote.Flags{Kubeconfig: c.flags.kubeconfig, Contexts: args}.Clusters()
	if err != nil {
		return err
	}
	clusters := make([]verify.Cluster, len(found))
	for i, f := range found {
		if clusters[i], err = c.member(f); err != nil {
			return err
		}
	}
	if o.asJSON {
		if err := o.out.Set("json"); err != nil {
			return err
		}
	}
	out := cmd.OutOrStdout()
	var report func(verify.Pair, verify.Result)
	if o.out.Table() {
		report = func(p verify.Pair, r verify.Result) {
			if len(clusters) > 2 {
				fmt.Fprintf(out, "%s, %s: ", p.A, p.B)
			}
			printResult(out, r)
		}
	}
	pairs := verify.RunAll(cmd.Context(), clusters, o.Options, report)
	all := verification{Clusters: args, Passed: true}
	var left error
	failed := 0
	for _, p := range pairs {
		for _, r := range p.Results {
			all.Checks = append(all.Checks, pairResult{p.A, p.B, r})
		}
		failed += p.Count(verify.Fail)
		left = errors.Join(left, p.Left)
	}
	interrupted := cmd.Context().Err()
	all.Passed = failed == 0 && left == nil && interrupted == nil
	if o.junit != "" {
		left = errors.Join(left, writeJUnit(o.junit, pairs))
	}
	err = o.out.Print(out, cli.Object("Verification", all), func() error {
		if len(pairs) > 1 {
			if err := o.out.Rows(out, summary(pairs)); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(out, "%d of %d checks failed\n", failed, len(all.Checks))
		return err
	})
	if err = errors.Join(err, left); err == nil && failed > 0 {
		return cli.ExitCode(1)
	}
	if err == nil && interrupted != nil {
		return fmt.Errorf("interrupted: %w", interrupted)
	}
	return err
}

// verification is the answer of verify in JSON.
type verification struct {
	Clusters []string     `json:"clusters"`
	Passed   bool         `json:"passed"`
	Checks   []pairResult `json:"checks"`
}

// pairResult is a check of two clusters.
type pairResult struct {
	A string `json:"a"`
	B string `json:"b"`
	verify.Result
}

// summary has a row for each two clusters.
func summary(pairs []verify.Pair) cli.Rows {
	t := cli.Rows{{"A", "B", "FAILED", "SKIPPED", "PASSED"}}
	for _, p := range pairs {
		count := func(status string) string { return strconv.Itoa(p.Count(status)) }
		t.Add(p.A, p.B, count(verify.Fail), count(verify.Skip), count(verify.Pass))
	}
	return t
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

// member reaches a cluster as the flags are.
func (c *several) member(found *remote.Cluster) (verify.Cluster, error) {
	c.flags.configure(found.Config)
	k, err := kubeclient.New(found.Config, kubeclient.Options{Scheme: verify.Scheme()})
	if err != nil {
		return verify.Cluster{}, fmt.Errorf("reach the API server of %s: %w", found.Name, err)
	}
	return verify.Cluster{Name: found.Name, Client: k}, nil
}

// Probes returns the hidden group probe with additional commands. The Pods of verifications and benchmarks run them.
func Probes(more ...*cobra.Command) *cobra.Command {
	var server probe.Server
	serve := &cobra.Command{
		Use: "serve", Short: "Answer until the Pod ends", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return server.Serve(cmd.Context())
		},
	}
	serve.Flags().StringVar(&server.Name, "name", "", "name to answer with")
	serve.Flags().StringVar(&server.Address, "address", net.JoinHostPort("", strconv.Itoa(probe.Port)),
		"address to listen at")
	serve.Flags().Int64Var(&server.Rate, "rate", 0, "the most bits a second of all streams together; 0 for no limit")
	serve.Flags().BoolVar(&server.NoUDP, "no-udp", false, "answer over TCP alone")
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
	group := cli.Group("probe", "The programs in the Pods of mc verify and benchmark", append(more, serve, ask)...)
	group.Hidden = true
	return group
}
