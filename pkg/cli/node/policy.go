package node

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

func (n *node) policies() *cobra.Command {
	var (
		namespace string
		out       cli.Format
	)
	cmd := &cobra.Command{
		Use:     "policies",
		Aliases: []string{"policy"},
		Short:   "Policies that apply to Pods of this Node, and how often they were used",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := question[api.PolicyList]{kind: "PolicyList", path: api.PathPolicies}
			q.keep = func(list *api.PolicyList) {
				list.Policies = slices.DeleteFunc(list.Policies,
					func(p api.Policy) bool { return namespace != "" && p.Namespace != namespace })
			}
			q.rows = func(list api.PolicyList) cli.Rows {
				t := cli.Rows{{"KIND", "NAMESPACE", "NAME", "TIER", "PRIORITY", "PODS", "RULES", "PACKETS", "BYTES", "CONNECTIONS",
					"PROBLEMS"}}
				for _, p := range list.Policies {
					priority := "-"
					if p.Priority != nil {
						priority = strconv.FormatFloat(*p.Priority, 'f', -1, 64)
					}
					row := []string{p.Kind, cli.Or(p.Namespace, "-"), p.Name, cli.Or(p.Tier, "-"), priority, strconv.Itoa(len(p.Pods)),
						strconv.Itoa(p.Rules)}
					problems := ""
					if len(p.Problems) > 0 {
						problems = strconv.Itoa(len(p.Problems))
					}
					t.Add(append(append(row, counters(p.Counters)...), problems)...)
				}
				return t
			}
			return q.show(cmd, n, out)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only policies of this Namespace; all when empty")
	out.Flag(cmd)
	return cmd
}

func counters(c api.Counters) []string {
	return []string{strconv.FormatUint(c.Packets, 10), strconv.FormatUint(c.Bytes, 10),
		strconv.FormatUint(c.Connections, 10)}
}

func (n *node) rules() *cobra.Command {
	var (
		namespace string
		out       cli.Format
	)
	cmd := &cobra.Command{
		Use:     "rules [POLICY]",
		Aliases: []string{"rule"},
		Short:   "Rules of policies that apply to Pods of this Node, and what the switch counted at each",
		Long: "Show the rules of policies that apply to Pods of this Node, and what the switch counted at each.\n\n" +
			"POLICY is its name, or namespace/name. Policies judge the packets that open a connection, and only those are " +
			"counted: a packet is a connection, or an attempt that was repeated before it was answered.",
		Example: "  tombolo get rules default/web",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if len(args) > 0 {
				query.Set("policy", qualified(args[0], namespace))
			}
			q := question[api.RuleList]{kind: "RuleList", path: api.PathRules, query: query}
			q.keep = func(list *api.RuleList) {
				list.Rules = slices.DeleteFunc(list.Rules,
					func(r api.Rule) bool { return namespace != "" && r.Namespace != namespace })
			}
			q.rows = func(list api.RuleList) cli.Rows {
				t := cli.Rows{{"POLICY", "RULE", "ACTION", "PODS", "PEERS", "PORTS", "PACKETS", "BYTES", "CONNECTIONS"}}
				for _, r := range list.Rules {
					name := r.Policy
					if r.Namespace != "" {
						name = r.Namespace + "/" + r.Policy
					}
					rule := fmt.Sprintf("%s[%d]", r.Direction, r.Index)
					if r.Name != "" {
						rule += " " + r.Name
					}
					row := []string{r.Kind + " " + name, rule, r.Action, cli.Or(some(r.Pods, ","), "-"),
						cli.Or(some(r.Peers, " or "), "any"), cli.Or(some(r.Ports, ","), "any")}
					t.Add(append(row, counters(r.Counters)...)...)
				}
				for _, d := range list.Denied {
					t.Add("(isolation)", d.Direction, "Drop", "isolated", "any", "any", strconv.FormatUint(d.Packets, 10),
						strconv.FormatUint(d.Bytes, 10), "0")
				}
				for _, d := range list.Denied {
					if d.Fragments > 0 {
						t.Add("(fragments)", d.Direction, "Drop", "under rules with ports", "any", "any",
							strconv.FormatUint(d.Fragments, 10), "-", "0")
					}
				}
				return t
			}
			return q.show(cmd, n, out)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only rules of policies of this Namespace; all when empty")
	out.Flag(cmd)
	return cmd
}

// some joins the first few of a list.
func some(list []string, by string) string {
	const few = 3
	if len(list) > few+1 {
		return strings.Join(list[:few], by) + fmt.Sprintf(" and %d more", len(list)-few)
	}
	return strings.Join(list, by)
}

func (n *node) identities() *cobra.Command {
	var (
		here bool
		out  cli.Format
	)
	cmd := &cobra.Command{
		Use:     "identities",
		Aliases: []string{"identity"},
		Short:   "Label sets that Pods share, by which policies select them",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := question[api.IdentityList]{kind: "IdentityList", path: api.PathIdentities}
			q.keep = func(list *api.IdentityList) {
				list.Identities = slices.DeleteFunc(list.Identities, func(i api.Identity) bool { return here && i.Here == 0 })
			}
			q.rows = func(list api.IdentityList) cli.Rows {
				t := cli.Rows{{"NUMBER", "CLUSTERSET", "HERE", "ELSEWHERE", "ADDRESSES", "LABELS"}}
				for _, i := range list.Identities {
					set := "-"
					if i.ClusterSet != 0 {
						set = strconv.FormatUint(uint64(i.ClusterSet), 10)
					}
					t.Add(strconv.FormatUint(uint64(i.Number), 10), set, strconv.Itoa(i.Here), strconv.Itoa(i.Elsewhere),
						strconv.Itoa(i.Addresses), i.Labels)
				}
				return t
			}
			return q.show(cmd, n, out)
		},
	}
	cmd.Flags().BoolVar(&here, "here", false, "only policies that apply to Pods of this Node")
	out.Flag(cmd)
	return cmd
}
