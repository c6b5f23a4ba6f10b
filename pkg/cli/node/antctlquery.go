package node

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// tracePacket is `antctl trace-packet`.
func (d *documented) tracePacket() *cobra.Command {
	var port, from, to, packet, family string
	cmd := &cobra.Command{
		Use: "trace-packet", Args: cobra.NoArgs, Short: "Follow one packet through this Node's tables; nothing is sent",
		Long: "Follow one packet through this Node's tables (ofproto/trace). Nothing is sent.\n\n" +
			"-S and -D are namespace/name of a Pod or, of -D, a Service, or an address. -f is a flow in ovs-ofctl's text, of " +
			"which the protocol and the server's port count if -S and -D are given. `tombolo trace` answers with names.",
		Example: "  antctl trace-packet -S shop/web-7d9f -D shop/db -f tcp,tcp_dst=5432\n" +
			"  antctl trace-packet -p antrea-gw0 -f ip,nw_src=192.0.2.1,nw_dst=10.10.1.2,nw_ttl=64",
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, query, err := traceQuestion(port, from, to, packet, family)
			if err != nil {
				return err
			}
			var list api.TraceList
			if path == api.PathTrace {
				list.Traces = make([]api.Trace, 1)
				err = d.agents.ask(cmd.Context(), path, query, &list.Traces[0])
			} else {
				err = d.agents.ask(cmd.Context(), path, query, &list)
			}
			if err != nil {
				return err
			}
			for _, t := range list.Traces {
				text, err := yaml.Marshal(map[string]string{"result": readable(t.Output, t.Tables)})
				if err != nil {
					return err
				}
				if _, err := cmd.OutOrStdout().Write(text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&port, "port", "p", "", "the port that the packet comes in by")
	flags.StringVarP(&from, "source", "S", "", "the client: namespace/name of a Pod, or an address")
	flags.StringVarP(&to, "destination", "D", "", "the server: namespace/name of a Pod or Service, or an address")
	flags.StringVarP(&packet, "flow", "f", "", "the packet in ovs-ofctl's text")
	flags.StringVarP(&family, "addressFamily", "F", "", "IPv4 or IPv6")
	return cmd
}

// traceQuestion returns the question of the agent: about a flow, or about two ends.
func traceQuestion(port, from, to, packet, family string) (path string, _ url.Values, _ error) {
	query := url.Values{}
	if from == "" && to == "" {
		if packet == "" {
			return "", nil, errors.New("trace-packet needs -S and -D, or -f with a flow")
		}
		if port != "" {
			packet = "in_port=" + port + "," + packet
		}
		query.Set("flow", packet)
		return api.PathTrace, query, nil
	}
	switch {
	case from == "" || to == "":
		return "", nil, errors.New("trace-packet takes both -S and -D: give the client and the server")
	case port != "":
		return "", nil, errors.New("-p does not go with -S and -D: the client's port is known")
	}
	query.Set("from", from)
	query.Set("to", to)
	if err := flowWords(packet, query); err != nil {
		return "", nil, fmt.Errorf("%w, or leave out -S and -D", err)
	}
	switch strings.ToLower(family) {
	case "":
	case "ipv4", "ipv6":
		query.Set("family", strings.ToLower(family))
	default:
		return "", nil, fmt.Errorf("-F %s: want IPv4 or IPv6", family)
	}
	return api.PathTraces, query, nil
}

// flowWords sets the protocol, the family and the server's port that a flow has.
func flowWords(packet string, query url.Values) error {
	for _, part := range strings.FieldsFunc(packet, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "tcp", "udp", "sctp", "icmp":
			query.Set("protocol", name)
		case "tcp6", "udp6", "sctp6", "icmp6":
			query.Set("protocol", strings.TrimSuffix(name, "6"))
			query.Set("family", "ipv6")
		case "tcp_dst", "udp_dst", "sctp_dst", "tp_dst":
			query.Set("port", value)
		case "ip", "":
		default:
			return fmt.Errorf("-f %s: with -S and -D only the protocol and its port, such as tcp,tcp_dst=80, count: "+
				"leave out %s", packet, part)
		}
	}
	return nil
}

// nodeOfPod returns the Node of a Pod, from the API server. In the Pod of an agent the result is empty, and the command
// asks that agent.
func (d *documented) nodeOfPod(cmd *cobra.Command, namespace, name string) (string, error) {
	if d.inPod() {
		return "", nil
	}
	c, err := d.cluster()
	if err != nil {
		return "", err
	}
	core, err := corev1client.NewForConfig(c.Config)
	if err != nil {
		return "", err
	}
	pod, err := core.Pods(namespace).Get(cmd.Context(), name, metav1.GetOptions{})
	switch {
	case err != nil:
		return "", fmt.Errorf("cluster %s: read Pod %s/%s: %w", c.Name, namespace, name, err)
	case pod.Spec.NodeName == "":
		return "", fmt.Errorf("cluster %s: Pod %s/%s is on no Node yet: see `kubectl describe pod`", c.Name, namespace, name)
	}
	return pod.Spec.NodeName, nil
}

// queryEndpoint is `antctl query endpoint`.
func (d *documented) queryEndpoint() *cobra.Command {
	var namespace, pod string
	var out cli.Format
	cmd := &cobra.Command{
		Use: "endpoint", Aliases: []string{"endpoints"}, Args: cobra.NoArgs, Short: "Policies that apply to a Pod",
		Long: "Show the policies of all kinds that apply to a Pod.\n\n" +
			"Which rule decides about a connection of it is the answer of `antctl query networkpolicyevaluation`.",
		Example: "  antctl query endpoint -p web-7d9f -n shop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pod == "" {
				return errors.New("--pod is missing: name the Pod")
			}
			node, err := d.nodeOfPod(cmd, namespace, pod)
			if err != nil {
				return err
			}
			var list api.PolicyList
			if err := d.askNode(cmd.Context(), node, api.PathPolicies, nil, &list); err != nil {
				return err
			}
			list.Policies = slices.DeleteFunc(list.Policies,
				func(p api.Policy) bool { return !slices.Contains(p.Pods, namespace+"/"+pod) })
			return out.Print(cmd.OutOrStdout(), list, func() error {
				fmt.Fprintf(cmd.OutOrStdout(), "Endpoint %s/%s\nApplied Policies on Endpoint:\n", namespace, pod)
				if len(list.Policies) == 0 {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "<NONE>")
					return err
				}
				t := cli.Rows{{"NAME", "NAMESPACE", "SOURCE", "RULES"}}
				for _, p := range list.Policies {
					t.Add(p.Name, cli.Or(p.Namespace, "<NONE>"), sourceOf(p), fmt.Sprint(p.Rules))
				}
				return out.Narrow(cmd.OutOrStdout(), t)
			})
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "Namespace of the Pod")
	cmd.Flags().StringVarP(&pod, "pod", "p", "", "the Pod")
	out.Flag(cmd)
	return cmd
}

// queryEvaluation is `antctl query networkpolicyevaluation`.
func (d *documented) queryEvaluation() *cobra.Command {
	var from, to string
	var out cli.Format
	cmd := &cobra.Command{
		Use: "networkpolicyevaluation", Aliases: []string{"networkpoliciesevaluation", "netpoleval", "netpolseval"},
		Args: cobra.NoArgs, Short: "The rules that decide about connections from one Pod to another",
		Long: "Show the rules that decide about a connection of TCP to port 80 from one Pod to another.\n\n" +
			"`tombolo policy why` answers for other ports and protocols, Services, addresses and other clusters.",
		Example: "  antctl query networkpolicyevaluation -S shop/web-7d9f -D shop/db-0",
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace, name, ok := strings.Cut(from, "/")
			if !ok || !strings.Contains(to, "/") {
				return errors.New("want -S and -D, each namespace/name of a Pod")
			}
			node, err := d.nodeOfPod(cmd, namespace, name)
			if err != nil {
				return err
			}
			query := url.Values{"from": {"pod/" + from}, "to": {"pod/" + to}, "port": {"80"}, "protocol": {"TCP"}}
			var w api.Why
			if err := d.askNode(cmd.Context(), node, api.PathWhy, query, &w); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), w, func() error {
				t := cli.Rows{{"CONNECTION", "DIRECTION", "ACTION", "RULE"}}
				for _, c := range w.Connections {
					for _, s := range c.Stages {
						action := map[bool]string{true: "Allow", false: "Drop"}[s.Allowed]
						t.Add(c.From+"->"+net.JoinHostPort(c.To.Address, "80"), s.Direction, action, cli.Or(s.Rule, s.Reason))
					}
				}
				return out.Rows(cmd.OutOrStdout(), t)
			})
		},
	}
	cmd.Flags().StringVarP(&from, "source", "S", "", "namespace/name of the client's Pod")
	cmd.Flags().StringVarP(&to, "destination", "D", "", "namespace/name of the server's Pod")
	out.Flag(cmd)
	return cmd
}
