package node

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// policy is the group of questions about policies.
func (n *node) policy() *cobra.Command {
	return cli.Group("policy", "Ask about policies", n.why())
}

func (n *node) why() *cobra.Command {
	var (
		from, to, port, protocol, cluster, family string
		traced                                    bool
		out                                       cli.Format
	)
	cmd := &cobra.Command{
		Use:   "why --from POD|ADDRESS --to POD|SERVICE|ADDRESS --port PORT",
		Short: "Which rules decide about a connection, and why",
		Long: "Show which rules decide about a new connection: for the client's Pod (egress) on its Node, then for the " +
			"server's (ingress) on its. If one of them is in an isolated Namespace, the answer also has the decision of the " +
			"networks.\n\n" +
			"Ends are namespace/name of a Pod or, of --to, a Service, node/name of a Node, or an address. A further interface " +
			"of a Pod is namespace/name@NETWORK, or its address. The agent of this " +
			"Node answers for both Nodes. Elsewhere the agent of the client's Node answers, or of the Node that --node names. " +
			"--trace also asks its switch, which has the flows of this Node's Pods alone: ask the other Node's agent to prove " +
			"the other half.\n\n" +
			"If both ends have IPv4 and IPv6 addresses, the answer is about both; where the decisions are the same they are " +
			"printed once. --family chooses one.\n\n" +
			"Of a connection to another cluster (--cluster) this one decides about the client's half. The answer has the " +
			"number of the client's labels in the ClusterSet, by which the server's cluster knows it: ask there with --from " +
			"identity/NUMBER; identity/unknown is a client whose labels have none yet.",
		Example: "  tombolo policy why --from shop/web-7d9f --to shop/db --port 5432 --trace\n" +
			"  tombolo policy why --from 198.51.100.7 --to shop/web-7d9f --port http\n" +
			"  tombolo policy why --from shop/web-7d9f --to shop/db --cluster west\n" +
			"  tombolo policy why --from identity/12 --cluster east --to shop/db-0 --port 5432 --trace",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needEnds("policy why", from, to); err != nil {
				return err
			}
			n.agents.qualify(cmd, n.agents.to, &from, &to)
			query := url.Values{}
			for name, value := range map[string]string{"from": from, "to": to, "port": port, "protocol": protocol,
				"cluster": cluster, "family": family} {
				if value != "" {
					query.Set(name, value)
				}
			}
			if traced {
				query.Set("trace", "true")
			}
			t, err := n.agents.one(cmd, from, to)
			if err != nil {
				return err
			}
			body, err := t.ask(cmd.Context(), api.PathWhy, query)
			if err != nil {
				return err
			}
			var w api.Why
			if err := understand(body, &w, t.node, api.PathWhy); err != nil {
				return err
			}
			// Older agents ignore the requested version of IP, and their answer names no client of a connection.
			if family != "" && slices.ContainsFunc(w.Connections, func(c api.WhyConnection) bool { return c.From == "" }) {
				return errors.New("--family: the agent of this Node is of an earlier version, which does not know it: upgrade " +
					"the agent, or leave out --family and give addresses")
			}
			err = out.Print(cmd.OutOrStdout(), cli.Object("Why", w),
				func() error { return printWhy(cmd.OutOrStdout(), w, traced) })
			if err != nil {
				return err
			}
			for _, c := range w.Connections {
				for _, s := range c.Stages {
					if s.Trace != nil && s.Trace.Judged && !s.Trace.Agrees {
						return fmt.Errorf(
							"the switch disagrees about %s: see `tombolo get status`, and report it with this answer's -o yaml", s.Direction)
					}
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "",
		"the client: namespace/name of a Pod, namespace/name@NETWORK, node/NAME, an address, or identity/NUMBER in "+
			"another cluster")
	cmd.Flags().StringVar(&to, "to", "",
		"the server: namespace/name of a Pod or Service, namespace/name@NETWORK of a Pod, node/NAME, or an address")
	cmd.Flags().StringVar(&port, "port", "",
		"the destination's port, by number or name; a Service with one port needs none")
	cmd.Flags().StringVar(&protocol, "protocol", "",
		"tcp, udp, sctp, or icmp for an echo request of ICMP or ICMPv6; without it the Service's, or tcp")
	cmd.Flags().StringVar(&family, "family", "", "ipv4 or ipv6; without it each version that both ends have")
	cmd.Flags().StringVar(&cluster, "cluster", "",
		"the server's cluster, where it is another, or that of a client given as identity: its ID")
	cmd.Flags().BoolVar(&traced, "trace", false, "have this Node's switch follow the packet, and compare")
	n.agents.to.AddNamespace(cmd.Flags(),
		"Namespace of ends whose names have no other; elsewhere than on a Node the context's when empty")
	out.TextFlag(cmd)
	return cmd
}

// needEnds returns an error that names the flags of the client and of the server, if one is missing.
func needEnds(command, from, to string) error {
	missing := "--from"
	if from != "" {
		missing = "--to"
	}
	if from != "" && to != "" {
		return nil
	}
	return fmt.Errorf("%s needs --from and --to, the client and the server, such as --from shop/web-7d9f --to shop/db "+
		"--port 5432: %s is missing", command, missing)
}

func printWhy(w io.Writer, y api.Why, traced bool) error {
	t := cli.Rows{{"client:", whyEnd(y.From)}, {"server:", whyEnd(y.To)}}
	for _, note := range y.Notes {
		t.Add("note:", note)
	}
	for _, same := range together(y.Connections) {
		t.Add("")
		for i, c := range same {
			key := "connection:"
			if i > 0 {
				key = "and:"
			}
			verdict := outcome(c.Allowed)
			if c.Allowed && c.To.Cluster != "" {
				verdict += " as far as this cluster decides"
			}
			t.Add(key, fmt.Sprintf("%s to %s/%s: %s", cli.Or(c.From, y.From.Address), target(c), c.Protocol, verdict))
			if y.To.Kind == "Service" {
				t.Add("", whyEnd(c.To))
			}
		}
		for i, s := range same[0].Stages {
			var traces []*api.WhyTrace
			for _, c := range same {
				traces = append(traces, c.Stages[i].Trace)
			}
			addStage(&t, s, traces, traced)
		}
	}
	if y.LeftOut > 0 {
		t.Add("")
		t.Add("left out:", fmt.Sprintf("%d more endpoints", y.LeftOut))
	}
	return t.Write(w, " ")
}

// target returns the address of a connection's server, with the port if there is one.
func target(c api.WhyConnection) string {
	if c.Port == 0 {
		return c.To.Address
	}
	return net.JoinHostPort(c.To.Address, strconv.Itoa(int(c.Port)))
}

// together puts the two connections of the same Pods over IPv4 and IPv6 into one group if their decisions are the same.
func together(list []api.WhyConnection) (out [][]api.WhyConnection) {
	is6 := func(c api.WhyConnection) bool { return strings.Contains(c.To.Address, ":") }
	for _, c := range list {
		i := slices.IndexFunc(out, func(group []api.WhyConnection) bool {
			return len(group) == 1 && is6(group[0]) != is6(c) && sameDecisions(group[0], c)
		})
		if i < 0 {
			out = append(out, []api.WhyConnection{c})
			continue
		}
		out[i] = append(out[i], c)
	}
	return out
}

// sameDecisions reports whether two connections lead to the same named end, and differ only in their addresses.
func sameDecisions(a, b api.WhyConnection) bool {
	return a.To.Name != "" && a.To.Kind == b.To.Kind && a.To.Name == b.To.Name && a.Protocol == b.Protocol &&
		a.Port == b.Port && a.Allowed == b.Allowed &&
		slices.EqualFunc(a.Stages, b.Stages, func(x, y api.WhyStage) bool {
			x.Trace, y.Trace = nil, nil
			return reflect.DeepEqual(x, y)
		})
}

// addStage adds a decision, with the traces of all connections that it is about.
func addStage(t *cli.Rows, s api.WhyStage, traces []*api.WhyTrace, traced bool) {
	verdict := outcome(s.Allowed)
	switch {
	case s.Here:
		verdict += " on this Node, " + s.Node
	case s.Node != "":
		verdict += " on Node " + s.Node
	}
	network := s.Direction == api.DirectionNetwork
	if s.Pod+s.Service == "" && !network {
		t.Add("  "+s.Direction+":", s.Reason)
		return
	}
	t.Add("  "+s.Direction+":", verdict+": "+s.Reason)
	identity := s.Identity
	if s.Number != 0 {
		identity = fmt.Sprintf("%d, %s", s.Number, s.Identity)
	}
	if s.Pod != "" {
		t.Add("    Pod:", s.Pod+", identity "+cli.Or(identity, "not known yet"))
	}
	switch s.Peer {
	case "":
	case api.UnknownPod:
		t.Add("    peer:", "unknown Pod")
	default:
		t.Add("    peer:", "identity "+s.Peer)
	}
	if !network {
		t.Add("    policies:", cli.Or(strings.Join(s.Policies, ", "), "none applies"))
	}
	for _, trace := range traces {
		switch {
		case trace != nil && trace.Error != "":
			t.Add("    switch:", "not traced: "+trace.Error)
		case trace != nil:
			verdict := "agrees"
			if !trace.Agrees {
				verdict = "DISAGREES: it has the packet " + outcome(trace.Allowed)
			}
			t.Add("    switch:", verdict, "")
			t.Add("", "flow "+trace.Flow)
			t.Add("", "tables "+strings.Join(trace.Tables, " "))
		case traced && s.Node != "":
			t.Add("    switch:", "not here: run this on Node "+s.Node)
			return
		}
	}
}

func outcome(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

func whyEnd(e api.WhyEnd) string {
	text := e.Address
	if len(e.Addresses) > 0 {
		text = strings.Join(e.Addresses, " and ")
	}
	if e.Kind != "" {
		text = strings.TrimSpace(e.Kind + " " + e.Name + " " + text)
	}
	if e.Network != "" {
		text += " in VirtualNetwork " + e.Network
	}
	if e.Node != "" && e.Kind != "Node" {
		text += " on Node " + e.Node
	}
	if e.Cluster != "" {
		text += " of cluster " + e.Cluster
	}
	if e.ClusterSet != 0 {
		text += ", number in the ClusterSet " + strconv.FormatUint(uint64(e.ClusterSet), 10)
	}
	return text
}
