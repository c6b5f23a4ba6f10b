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

// podInterface is `antctl get podinterface`, in the documented columns.
func (d *documented) podInterface() *cobra.Command {
	var namespace string
	var out cli.Format
	cmd := &cobra.Command{
		Use: "podinterface [POD]", Aliases: []string{"podinterfaces", "pi"}, Args: cobra.MaximumNArgs(1),
		Short:   "Ports of this Node's Pods",
		Example: "  antctl get podinterface web-7d9f -n shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			var list api.PortList
			if err := d.agents.ask(cmd.Context(), api.PathPorts, nil, &list); err != nil {
				return err
			}
			list.Ports = slices.DeleteFunc(list.Ports, func(p api.Port) bool {
				in, name, pod := strings.Cut(p.Pod, "/")
				return !pod || namespace != "" && in != namespace || len(args) > 0 && name != args[0]
			})
			if len(args) > 0 && len(list.Ports) == 0 {
				return fmt.Errorf("no Pod %s is on this Node: `antctl get podinterface` lists the Pods", args[0])
			}
			return out.Print(cmd.OutOrStdout(), list.Ports, func() error {
				t := cli.Rows{{"NAMESPACE", "NAME", "INTERFACE-NAME", "IP", "MAC", "PORT-UUID", "OF-PORT", "CONTAINER-ID"}}
				for _, p := range list.Ports {
					namespace, name, _ := strings.Cut(p.Pod, "/")
					t.Add(namespace, name, p.Name, cli.Or(strings.Join(p.IPs, ", "), "<NONE>"), cli.Or(p.MAC, "<NONE>"), p.UUID,
						strconv.FormatInt(p.OFPort, 10), p.ContainerID[:min(len(p.ContainerID), 11)])
				}
				return out.Narrow(cmd.OutOrStdout(), t)
			})
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only Pods of this Namespace")
	out.Flag(cmd)
	return cmd
}

// flowQuery has the flags of `antctl get ovsflows`.
type flowQuery struct {
	namespace, pod, service, policy, kind, table, groups string
	namesOnly                                            bool
}

// query returns the question of the agent.
func (q flowQuery) query() (url.Values, error) {
	query := url.Values{}
	for _, f := range []struct{ flag, name, value string }{{"pod", "pod", q.pod}, {"service", "service", q.service},
		{"networkpolicy", "policy", q.policy}} {
		switch {
		case f.value == "":
		case strings.Contains(f.value, "/"):
			query.Set(f.name, f.value)
		case q.namespace != "":
			query.Set(f.name, q.namespace+"/"+f.value)
		case f.name == "policy":
			query.Set(f.name, f.value)
		default:
			return nil, fmt.Errorf("--%s=%s: name its Namespace with --namespace", f.flag, f.value)
		}
	}
	switch kind, err := kindOfType(q.kind); {
	case err != nil:
		return nil, err
	case kind != "" && q.policy == "":
		return nil, fmt.Errorf("--type=%s: name the policy with --networkpolicy", q.kind)
	case kind != "":
		query.Set("kind", kind)
	}
	if q.table != "" {
		query.Set("table", q.table)
	}
	return query, nil
}

// ovsFlows is `antctl get ovsflows`, in the documented form: a line for each flow.
func (d *documented) ovsFlows() *cobra.Command {
	var q flowQuery
	cmd := &cobra.Command{
		Use: "ovsflows", Aliases: []string{"ovsflow", "of"}, Args: cobra.NoArgs,
		Short: "Flows of this Node's switch, or groups",
		Example: "  antctl get ovsflows\n  antctl get ovsflows -p web-7d9f -n shop\n  antctl get ovsflows -S db -n shop\n" +
			"  antctl get ovsflows -N allow-web -n shop\n  antctl get ovsflows -T IngressRule\n  antctl get ovsflows -G 10,20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := q.query()
			if err != nil {
				return err
			}
			switch {
			case q.groups != "":
				return d.groupLines(cmd, q.groups)
			case q.namesOnly:
				return d.tableNames(cmd)
			}
			var list api.FlowList
			if err := d.agents.ask(cmd.Context(), api.PathFlows, query, &list); err != nil {
				return err
			}
			t := cli.Rows{{"FLOW"}}
			for _, f := range list.Flows {
				match := strings.TrimSuffix(fmt.Sprintf("priority=%d,%s", f.Priority, f.Match), ",")
				t.Add(fmt.Sprintf("table=%s, n_packets=%d, n_bytes=%d, %s actions=%s", f.Table, f.Packets, f.Bytes, match,
					cli.Or(f.Actions, "drop")))
			}
			return t.Write(cmd.OutOrStdout(), " ")
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&q.namespace, "namespace", "n", "", "Namespace of the Pod, the Service or the policy")
	flags.StringVarP(&q.pod, "pod", "p", "", "only flows of this Pod of this Node")
	flags.StringVarP(&q.service, "service", "S", "", "only flows of this Service")
	flags.StringVarP(&q.policy, "networkpolicy", "N", "", "only flows of this policy, of whatever kind")
	flags.StringVar(&q.kind, "type", "", "type of the policy: K8sNP, ACNP, ANNP or CNP")
	flags.StringVarP(&q.table, "table", "T", "", "only flows of this table, by name or number")
	flags.BoolVar(&q.namesOnly, "table-names-only", false, "print the names of the tables")
	flags.StringVarP(&q.groups, "groups", "G", "", "groups instead of flows, by number and separated by commas, or all")
	return cmd
}

// tableNames prints the names of the tables, in the order in which packets meet them.
func (d *documented) tableNames(cmd *cobra.Command) error {
	var list api.FlowList
	if err := d.agents.ask(cmd.Context(), api.PathFlows, nil, &list); err != nil {
		return err
	}
	t := cli.Rows{{"TABLE"}}
	last := ""
	for _, f := range list.Flows {
		if f.Table != last {
			t.Add(f.Table)
		}
		last = f.Table
	}
	return t.Write(cmd.OutOrStdout(), " ")
}

// groupLines prints groups.
func (d *documented) groupLines(cmd *cobra.Command, which string) error {
	wanted := map[uint32]bool{}
	if which != "all" {
		for _, text := range strings.Split(which, ",") {
			n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
			if err != nil {
				return fmt.Errorf("--groups=%s: want numbers of groups, separated by commas, or all", which)
			}
			wanted[uint32(n)] = false
		}
	}
	var list api.GroupList
	if err := d.agents.ask(cmd.Context(), api.PathGroups, nil, &list); err != nil {
		return err
	}
	t := cli.Rows{{"GROUP"}}
	for _, g := range list.Groups {
		if _, ok := wanted[g.ID]; ok || which == "all" {
			wanted[g.ID] = true
			t.Add(g.Text)
		}
	}
	for n, found := range wanted {
		if !found {
			return fmt.Errorf("--groups=%s: the switch has no group %d: `antctl get ovsflows -G all` lists its groups", which,
				n)
		}
	}
	return t.Write(cmd.OutOrStdout(), " ")
}

// fqdnCache is `antctl get fqdncache`.
func (d *documented) fqdnCache() *cobra.Command {
	var domain string
	var out cli.Format
	cmd := &cobra.Command{
		Use: "fqdncache", Args: cobra.NoArgs, Short: "Addresses that DNS has answered to Pods under rules with names",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list api.NameList
			if err := d.agents.ask(cmd.Context(), api.PathLearnedNames, nil, &list); err != nil {
				return err
			}
			list.Names = slices.DeleteFunc(list.Names,
				func(n api.LearnedName) bool { return domain != "" && !sameDomain(n.Name, domain) })
			return out.Print(cmd.OutOrStdout(), list.Names, func() error {
				t := cli.Rows{{"FQDN", "ADDRESS", "EXPIRATION-TIME"}}
				for _, n := range list.Names {
					t.Add(n.Name, n.Address, n.Expires.UTC().Format("2006-01-02 15:04:05"))
				}
				return out.Narrow(cmd.OutOrStdout(), t)
			})
		},
	}
	cmd.Flags().StringVarP(&domain, "domain", "d", "", "only this name, or names of the form *.example.com")
	out.Flag(cmd)
	return cmd
}

// sameDomain reports whether a name is a domain, or one below it if the domain begins with *.
func sameDomain(name, domain string) bool {
	name, domain = strings.TrimSuffix(strings.ToLower(name), "."), strings.TrimSuffix(strings.ToLower(domain), ".")
	if below, ok := strings.CutPrefix(domain, "*"); ok {
		return strings.HasSuffix(name, below)
	}
	return name == domain
}

// serviceExternalIP is `antctl get serviceexternalip`, in the documented columns.
func (d *documented) serviceExternalIP() *cobra.Command {
	var out cli.Format
	cmd := &cobra.Command{
		Use: "serviceexternalip", Aliases: []string{"serviceexternalips", "seip"}, Args: cobra.NoArgs,
		Short: "Addresses from ExternalIPPools that Services have, and their Nodes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list api.ExternalIPList
			if err := d.agents.ask(cmd.Context(), api.PathExternalIPs, nil, &list); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), list.ExternalIPs, func() error {
				t := cli.Rows{{"NAMESPACE", "NAME", "EXTERNAL-IP-POOL", "EXTERNAL-IP", "ASSIGNED-NODE"}}
				for _, ip := range list.ExternalIPs {
					t.Add(ip.Namespace, ip.Name, ip.Pool, ip.Address, cli.Or(ip.Holder, "<NONE>"))
				}
				return out.Narrow(cmd.OutOrStdout(), t)
			})
		},
	}
	out.Flag(cmd)
	return cmd
}

// memberList is `antctl get memberlist`: the Nodes that may hold addresses of Services.
func (d *documented) memberList() *cobra.Command {
	var out cli.Format
	cmd := &cobra.Command{
		Use: "memberlist", Aliases: []string{"ml"}, Args: cobra.NoArgs,
		Short: "Nodes that may hold the addresses from ExternalIPPools",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list api.ExternalIPList
			if err := d.agents.ask(cmd.Context(), api.PathExternalIPs, nil, &list); err != nil {
				return err
			}
			var nodes []string
			for _, ip := range list.ExternalIPs {
				nodes = append(nodes, ip.Candidates...)
			}
			slices.Sort(nodes)
			nodes = slices.Compact(nodes)
			return out.Print(cmd.OutOrStdout(), nodes, func() error {
				t := cli.Rows{{"NODE", "STATUS"}}
				for _, n := range nodes {
					t.Add(n, "Alive")
				}
				return out.Narrow(cmd.OutOrStdout(), t)
			})
		},
	}
	out.Flag(cmd)
	return cmd
}
