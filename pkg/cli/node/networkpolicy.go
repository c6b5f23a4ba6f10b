package node

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// policyTypes maps the documented words for kinds of policies to the beginning of a policy's source.
var policyTypes = []struct{ word, kind, source string }{
	{"K8sNP", "NetworkPolicy", "K8sNetworkPolicy"},
	{"ACNP", "AntreaClusterNetworkPolicy", "AntreaClusterNetworkPolicy"},
	{"ANNP", "AntreaNetworkPolicy", "AntreaNetworkPolicy"},
	{"CNP", "ClusterNetworkPolicy", "ClusterNetworkPolicy"},
}

const effectivePriority = "effectivePriority"

// networkPolicies is `antctl get networkpolicy`, in the documented columns.
func (n *node) networkPolicies() *cobra.Command {
	var (
		source, namespace, pod, kind, order string
		out                                 cli.Format
	)
	cmd := &cobra.Command{
		Use:     "networkpolicy [NAME]",
		Aliases: []string{"networkpolicies", "netpol"},
		Short:   "Policies of all kinds that apply to Pods of this Node, in antctl's columns",
		Long: "Show policies of all kinds that apply to Pods of this Node, in antctl's columns.\n\n" +
			"NAME and --source are the policy's name. `tombolo get policies` shows more.",
		Example: "  antctl get networkpolicy -n shop -T K8sNP\n  antctl get networkpolicy -p web-7d9f -n shop --sort-by " +
			effectivePriority,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if order != "" && order != effectivePriority {
				return fmt.Errorf("--sort-by=%s: want %s", order, effectivePriority)
			}
			if len(args) > 0 && (source != "" || kind != "" || pod != "") {
				return fmt.Errorf("NAME %s does not go with --source, --type or --pod: leave out the one or the other", args[0])
			}
			wantKind, err := kindOfType(kind)
			if err != nil {
				return err
			}
			if pod != "" && !strings.Contains(pod, "/") {
				if namespace == "" {
					return fmt.Errorf("--pod=%s: name its Namespace with --namespace", pod)
				}
				pod = namespace + "/" + pod
				namespace = "" // cluster-wide policies apply to it as well
			}
			q := question[api.PolicyList]{kind: "PolicyList", path: api.PathPolicies, rows: networkPolicyRows}
			q.keep = func(list *api.PolicyList) {
				list.Policies = slices.DeleteFunc(list.Policies, func(p api.Policy) bool {
					return len(args) > 0 && p.Name != args[0] || source != "" && p.Name != source || namespace != "" &&
						p.Namespace != namespace ||
						wantKind != "" && p.Kind != wantKind || pod != "" && !slices.Contains(p.Pods, pod)
				})
				if order == effectivePriority {
					slices.SortStableFunc(list.Policies, byEffectivePriority)
				}
			}
			q.check = func(list *api.PolicyList) error {
				if len(args) > 0 && len(list.Policies) == 0 {
					return fmt.Errorf("no policy %q applies to Pods of this Node: leave out the name to see all that do", args[0])
				}
				return nil
			}
			return q.show(cmd, n, out)
		},
	}
	cmd.Flags().StringVarP(&source, "source", "S", "", "only policies of this name")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only policies of this Namespace; with --pod the Pod's")
	cmd.Flags().StringVarP(&pod, "pod", "p", "", "only policies that apply to this Pod of this Node")
	cmd.Flags().StringVarP(&kind, "type", "T", "", "only policies of this type: K8sNP, ACNP, ANNP or CNP")
	cmd.Flags().StringVar(&order, "sort-by", "", effectivePriority+": in the order in which they are evaluated")
	out.Flag(cmd)
	if !n.agents.antctl {
		cli.HideShorthands(cmd.Flags(), "source", "pod", "type")
	}
	return cmd
}

// networkPolicyRows has the documented columns.
func networkPolicyRows(list api.PolicyList) cli.Rows {
	t := cli.Rows{{"NAME", "APPLIED-TO", "RULES", "SOURCE", "TIER-PRIORITY", "PRIORITY"}}
	for _, p := range list.Policies {
		tier, priority := "", ""
		if p.TierPriority != nil {
			tier = strconv.Itoa(int(*p.TierPriority))
		}
		if p.Priority != nil {
			priority = strconv.FormatFloat(*p.Priority, 'f', -1, 64)
		}
		t.Add(p.Name, fewPods(p.Pods), strconv.Itoa(p.Rules), sourceOf(p), tier, priority)
	}
	return t
}

func kindOfType(word string) (string, error) {
	var known []string
	for _, t := range policyTypes {
		if strings.EqualFold(word, t.word) {
			return t.kind, nil
		}
		known = append(known, t.word)
	}
	if word == "" {
		return "", nil
	}
	return "", fmt.Errorf("--type=%s is not one of %s", word, strings.Join(known, ", "))
}

// sourceOf is "K8sNetworkPolicy:default/web".
func sourceOf(p api.Policy) string {
	kind, name := p.Kind, p.Name
	for _, t := range policyTypes {
		if t.kind == p.Kind {
			kind = t.source
		}
	}
	if p.Namespace != "" {
		name = p.Namespace + "/" + name
	}
	return kind + ":" + name
}

// fewPods returns the first Pod and the number of further ones. The text has no blank, which would end the column for
// scripts.
func fewPods(pods []string) string {
	if len(pods) < 2 {
		return strings.Join(pods, "")
	}
	return fmt.Sprintf("%s+%d", pods[0], len(pods)-1)
}

// byEffectivePriority compares policies by the order of their evaluation: tiers, then priorities. Policies without a
// tier come just before the tier baseline.
func byEffectivePriority(a, b api.Policy) int {
	tier := func(p api.Policy) float64 {
		if p.TierPriority == nil {
			return lastBeforeBaseline
		}
		return float64(*p.TierPriority)
	}
	priority := func(p api.Policy) float64 {
		if p.Priority == nil {
			return 0
		}
		return *p.Priority
	}
	return cmp.Or(cmp.Compare(tier(a), tier(b)), cmp.Compare(priority(a), priority(b)))
}

// lastBeforeBaseline is the tier priority by which NetworkPolicies are sorted: after the other tiers, and before
// baseline (253).
const lastBeforeBaseline = 252.5
