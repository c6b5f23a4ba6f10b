package node

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

func (n *node) trace() *cobra.Command {
	var out cli.Format
	var raw bool
	var from, to, port, protocol, family string
	cmd := &cobra.Command{
		Use:   "trace FLOW | --from POD|ADDRESS --to POD|SERVICE|ADDRESS --port PORT",
		Short: "Follow one packet through this Node's tables",
		Long: "Follow one packet through this Node's tables (ofproto/trace), with tables by name. Nothing is sent.\n\n" +
			"FLOW is ovs-ofctl's text; ports may be named, see `tombolo get ports`.\n\n" +
			"With --from and --to it follows the first packet of a connection, as it comes into this Node's switch: from a " +
			"Pod of this Node, or from elsewhere to one. Ends are as of `tombolo policy why`. If both ends have IPv4 and IPv6 " +
			"addresses, it follows a packet of each; --family chooses one.",
		Example: "  tombolo trace in_port=web-5d8f-a9993e,tcp,nw_src=10.10.1.2,nw_dst=10.96.0.10,nw_ttl=64,tp_dst=53\n" +
			"  tombolo trace in_port=web-5d8f-a9993e,tcp6,ipv6_src=fd10::2,ipv6_dst=fd96::10,nw_ttl=64,tp_dst=53\n" +
			"  tombolo trace --from shop/web-7d9f --to shop/db --port 5432\n" +
			"  tombolo trace --from shop/web-7d9f --to shop/db-0 --protocol icmp --family ipv6",
		Args: func(_ *cobra.Command, args []string) error {
			ends := from+to+port+protocol+family != ""
			switch {
			case ends && len(args) > 0:
				return fmt.Errorf("trace takes either a FLOW or --from and --to: it got both, and the FLOW %s",
					strings.Join(args, " "))
			case ends && (from == "" || to == ""):
				return errors.New("trace takes both --from and --to: give the client and the server")
			case !ends && len(args) != 1:
				return fmt.Errorf(
					"trace takes one FLOW without blanks, such as in_port=antrea-gw0,tcp,nw_dst=10.96.0.10,tp_dst=53; it got %d words",
					len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text := func(t api.Trace) string {
				if raw {
					return t.Output
				}
				return readable(t.Output, t.Tables)
			}
			if len(args) > 0 {
				var t api.Trace
				if err := n.ask(cmd.Context(), api.PathTrace, url.Values{"flow": {args[0]}}, &t); err != nil {
					return err
				}
				return out.Print(cmd.OutOrStdout(), t, func() error {
					_, err := fmt.Fprint(cmd.OutOrStdout(), text(t))
					return err
				})
			}
			query := url.Values{}
			for name, value := range map[string]string{"from": from, "to": to, "port": port, "protocol": protocol,
				"family": family} {
				if value != "" {
					query.Set(name, value)
				}
			}
			var list api.TraceList
			if err := n.ask(cmd.Context(), api.PathTraces, query, &list); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), list, func() error {
				var all []string
				for _, text := range list.Networks {
					all = append(all, fmt.Sprintf("Network: %s\n", text))
				}
				for _, t := range list.Traces {
					all = append(all, fmt.Sprintf("Packet: %s\n%s", t.Flow, text(t)))
				}
				_, err := fmt.Fprint(cmd.OutOrStdout(), strings.Join(all, "\n"))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the client: namespace/name of a Pod, node/NAME, or an address")
	cmd.Flags().StringVar(&to, "to", "", "the server: namespace/name of a Pod or Service, node/NAME, or an address")
	cmd.Flags().StringVar(&port, "port", "", "the server's port, by number or name; a Service with one port needs none")
	cmd.Flags().StringVar(&protocol, "protocol", "",
		"tcp, udp, sctp, or icmp for an echo request of ICMP or ICMPv6; without it the Service's, or tcp")
	cmd.Flags().StringVar(&family, "family", "", "ipv4 or ipv6; without it each version that both ends have")
	cmd.Flags().BoolVar(&raw, "raw", false, "ofproto/trace's own text")
	out.Flag(cmd)
	return cmd
}

var (
	traceBridge = regexp.MustCompile(`^\s*bridge\("([^"]+)"\)`)
	traceStep   = regexp.MustCompile(`^(\s*)(\d+)\. `)
	// Tables in actions and remarks: goto_table:3, resubmit(,3), resubmit(port,3),
	// ct(...table=3...), "resumed at table 3".
	traceTable = regexp.MustCompile(`(goto_table:|resubmit\([^,()]*,|table=|(?:resumed at|Resuming from) table )(\d+)\b`)
)

// readable puts tables' names into ofproto/trace's text and ends it with the tables met.
// Only the first bridge's tables have names: a packet may go on through others.
func readable(output string, tables map[string]string) string {
	var b strings.Builder
	var first, current string
	var met []string
	for line := range strings.Lines(output) {
		if m := traceBridge.FindStringSubmatch(line); m != nil {
			current = m[1]
			if first == "" {
				first = current
			}
		}
		if current == first {
			if m := traceStep.FindStringSubmatch(line); m != nil {
				if name := tables[m[2]]; name != "" {
					// Numbers are aligned to the right, four columns a level.
					line = m[1][:len(m[1])/4*4] + name + ": " + line[len(m[0]):]
					met = append(met, name)
				} else {
					met = append(met, m[2])
				}
			} else {
				line = traceTable.ReplaceAllStringFunc(line, func(s string) string {
					m := traceTable.FindStringSubmatch(s)
					return m[1] + cli.Or(tables[m[2]], m[2])
				})
			}
		} else if m := traceStep.FindStringSubmatch(line); m != nil {
			met = append(met, current+" "+m[2])
		}
		b.WriteString(line)
	}
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	if len(met) > 0 {
		fmt.Fprintf(&b, "\nTables met: %s\n", strings.Join(met, " -> "))
	}
	return b.String()
}
