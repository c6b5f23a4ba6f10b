package node

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
)

// traceOptions are the flags of the command trace.
type traceOptions struct {
	remote.Flags
	follow.Question
	out             cli.Format
	raw             bool
	packet, deliver bool
}

func (n *node) trace() *cobra.Command {
	var o traceOptions
	cmd := &cobra.Command{
		Use:   "trace FLOW | --from POD|ADDRESS --to POD|SERVICE|ADDRESS --port PORT",
		Short: "Follow one packet through the tables of Nodes, across clusters",
		Long: "Follow one packet through the tables of switches (ofproto/trace), with tables by name. Nothing is sent, " +
			"unless --packet sends one and shows where the switches of all Nodes have seen it.\n\n" +
			"FLOW is ovs-ofctl's text; ports may be named, see `tombolo get ports`. With --node it is of that Node's " +
			"switch.\n\n" +
			"With --from and --to it follows the first packet of a connection. Ends are as of `tombolo policy why`. If both " +
			"ends have IPv4 and IPv6 addresses, it follows a packet of each, but one to a Pod of another cluster. --family " +
			"chooses one.\n\n" +
			"On a Node it asks the agent there, about the way through this Node's switch. Elsewhere, and with --context, it " +
			"follows the packet from Node to Node, through the Gateways of all clusters that --context names.",
		Example: "  tombolo trace in_port=web-5d8f-a9993e,tcp,nw_src=10.10.1.2,nw_dst=10.96.0.10,nw_ttl=64,tp_dst=53\n" +
			"  tombolo trace in_port=web-5d8f-a9993e,tcp6,ipv6_src=fd10::2,ipv6_dst=fd96::10,nw_ttl=64,tp_dst=53\n" +
			"  tombolo trace --from shop/web-7d9f --to shop/db --port 5432\n" +
			"  tombolo trace --from shop/web-7d9f --to shop/db-0 --protocol icmp --family ipv6\n" +
			"  tombolo trace --context east,west --from shop/web-7d9f --to shop/db --to-cluster west\n" +
			"  tombolo trace --context east,west --from shop/web-7d9f --to shop/antrea-mc-db --packet",
		Args: func(_ *cobra.Command, args []string) error { return o.check(args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			n.agents.timeout, n.agents.to = o.Timeout, o.Flags
			n.agents.qualify(cmd, o.Flags, &o.From, &o.To, &o.Endpoint)
			switch here := n.agents.here(cmd, o.Flags); {
			case len(args) > 0 && !here && len(o.Nodes) == 0:
				return fmt.Errorf("trace %s: a FLOW is of one Node's switch: name the Node with --node, run this in the "+
					"tombolo-agent Pod of the Node, or give --from and --to", args[0])
			case o.packet && here:
				return errors.New("--packet follows a packet through all Nodes: name the clusters with --context")
			case len(args) > 0:
				return n.traceFlow(cmd, o, args[0])
			case here:
				return n.traceHere(cmd, o)
			}
			return o.traceElsewhere(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.From, "from", "",
		"the client: namespace/name of a Pod, namespace/name@NETWORK, node/NAME, or an address")
	flags.StringVar(&o.To, "to", "",
		"the server: namespace/name of a Pod or Service, namespace/name@NETWORK of a Pod, node/NAME, or an address")
	flags.StringVar(&o.Port, "port", "", "the server's port, by number or name; a Service with one port needs none")
	flags.StringVar(&o.Protocol, "protocol", "",
		"tcp, udp, sctp, or icmp for an echo request of ICMP or ICMPv6; without it the Service's, or tcp")
	flags.StringVar(&o.Family, "family", "", "ipv4 or ipv6; without it each version that both ends have")
	flags.StringVar(&o.FromCluster, "from-cluster", "", "the client's cluster, by context or ID, if several have such a "+
		"Pod")
	flags.StringVar(&o.ToCluster, "to-cluster", "", "the server's cluster, by context or ID; without it the client's")
	flags.StringVar(&o.Endpoint, "endpoint", "", "of a Service: the Pod, or the address, that the switch has to choose")
	flags.BoolVar(&o.raw, "raw", false, "ofproto/trace's own text")
	flags.BoolVar(&o.packet, "packet", false, "send a packet, and show where the switches of Nodes have seen it")
	flags.BoolVar(&o.deliver, "deliver", false, "with --packet: the Pod at the end gets the packet")
	flags.StringVar(&n.agents.socket, "socket", api.DefaultSocket, "the agent's debug socket on this Node")
	o.Add(flags)
	flags.Lookup("node").Usage = "the Node that packets of an address outside of the clusters come to, or of a FLOW"
	o.AddNamespace(flags, "Namespace of ends whose names have no other; elsewhere than on a Node the context's "+
		"when empty")
	o.out.TextFlag(cmd)
	return cmd
}

// check checks which arguments and flags are together.
func (o *traceOptions) check(args []string) error {
	ends := o.Question != follow.Question{}
	switch {
	case ends && len(args) > 0:
		return fmt.Errorf("trace takes either a FLOW or --from and --to: it got both, and the FLOW %s",
			strings.Join(args, " "))
	case ends && (o.From == "" || o.To == ""):
		return needEnds("trace", o.From, o.To)
	case !ends && len(args) != 1:
		return fmt.Errorf(
			"trace takes one FLOW without blanks, such as in_port=antrea-gw0,tcp,nw_dst=10.96.0.10,tp_dst=53; it got %d words",
			len(args))
	case o.packet && len(args) > 0:
		return errors.New("--packet needs --from and --to: a FLOW is not sent")
	case o.packet && o.raw:
		return errors.New("--raw is ofproto/trace's text, and a packet that is sent has none: give --packet or --raw")
	case o.deliver && !o.packet:
		return errors.New("--deliver is about the packet that --packet sends: give both")
	case len(o.Nodes) > 1:
		return fmt.Errorf("--node names %d Nodes: a packet comes to one, give that", len(o.Nodes))
	}
	return nil
}

// text returns a trace as text.
func (o *traceOptions) text(t api.Trace) string {
	if o.raw {
		return t.Output
	}
	return readable(t.Output, t.Tables)
}

// traceFlow follows a packet that is given as text.
func (n *node) traceFlow(cmd *cobra.Command, o traceOptions, flow string) error {
	q := question[api.Trace]{kind: "Trace", path: api.PathTrace, query: url.Values{"flow": {flow}}}
	q.text = func(w io.Writer, t api.Trace) error {
		_, err := fmt.Fprint(w, o.text(t))
		return err
	}
	return q.show(cmd, n, o.out)
}

// traceHere follows the first packet of a connection through this Node's switch.
func (n *node) traceHere(cmd *cobra.Command, o traceOptions) error {
	if o.FromCluster+o.ToCluster+o.Endpoint != "" {
		return errors.New("--from-cluster, --to-cluster and --endpoint are for packets that are followed across Nodes: " +
			"name " +
			"the clusters with --context")
	}
	query := url.Values{}
	for name, value := range map[string]string{"from": o.From, "to": o.To, "port": o.Port, "protocol": o.Protocol,
		"family": o.Family} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var list api.TraceList
	if err := n.agents.ask(cmd.Context(), api.PathTraces, query, &list); err != nil {
		return err
	}
	return o.out.Print(cmd.OutOrStdout(), cli.Object("TraceList", list), func() error {
		var all []string
		for _, text := range list.Networks {
			all = append(all, fmt.Sprintf("Network: %s\n", text))
		}
		for _, t := range list.Traces {
			all = append(all, fmt.Sprintf("Packet: %s\n%s", t.Flow, o.text(t)))
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), strings.Join(all, "\n"))
		return err
	})
}

// traceElsewhere follows the first packet of a connection from Node to Node.
func (o traceOptions) traceElsewhere(cmd *cobra.Command) error {
	q := o.Question
	if len(o.Nodes) > 0 {
		q.Node, o.Nodes = o.Nodes[0], nil
	}
	clusters, err := o.Clusters()
	if err != nil {
		return err
	}
	followed, err := remote.Followed(clusters...)
	if err != nil {
		return err
	}
	if o.packet {
		answer, err := follow.SendPacket(cmd.Context(), followed, q, o.deliver)
		if err != nil {
			return err
		}
		return o.out.Print(cmd.OutOrStdout(), cli.Object("PacketPath", answer),
			func() error { return follow.PrintPacket(cmd.OutOrStdout(), answer) })
	}
	answer, err := follow.Follow(cmd.Context(), followed, q)
	if err != nil {
		return err
	}
	return o.out.Print(cmd.OutOrStdout(), cli.Object("Path", answer), func() error {
		if o.raw {
			return follow.PrintRaw(cmd.OutOrStdout(), answer)
		}
		return follow.Print(cmd.OutOrStdout(), answer, o.out.Wide())
	})
}

var (
	traceBridge = regexp.MustCompile(`^\s*bridge\("([^"]+)"\)`)
	traceStep   = regexp.MustCompile(`^(\s*)(\d+)\. `)
	// tableNumber matches tables in actions and remarks: goto_table:3, resubmit(,3), resubmit(port,3), ct(...table=3...),
	// "resumed at table 3".
	traceTable = regexp.MustCompile(`(goto_table:|resubmit\([^,()]*,|table=|(?:resumed at|Resuming from) table )(\d+)\b`)
)

// readable replaces numbers of tables in ofproto/trace's text by their names, and adds the list of the tables that the
// packet met. Only the first bridge's tables have names: a packet may continue through other bridges.
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
