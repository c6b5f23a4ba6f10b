// Package node has the commands that ask the agent of this Node, through its debug socket.
package node

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// node has the commands that ask the agent of this Node.
type node struct{ agent agentSocket }

// Commands returns the commands that ask the agent of this Node.
func Commands() []*cobra.Command {
	n := &node{}
	policy := cli.Group("policy", "Ask about policies", n.why())
	all := []*cobra.Command{
		cli.Group("get", "Show what this Node has", n.flows(), n.groups(), n.ports(), n.peers(), n.status(), n.metrics(),
			n.policies(), n.rules(), n.identities(), n.networkPolicies(), n.latency()),
		n.explain(), policy, n.check(), n.askCommand(),
	}
	for _, c := range all {
		n.agent.flags(c)
	}
	// explain and trace depend on the question: a bundle has no answers.
	n.agent.bundleFlags(all[0])
	n.agent.bundleFlags(policy)
	return append(all, n.observe(), n.trace(), n.capture())
}

func (n *node) flows() *cobra.Command {
	var (
		table, owner string
		stats        bool
		out          cli.Format
	)
	cmd := &cobra.Command{
		Use:     "flows",
		Aliases: []string{"flow"},
		Short:   "Flows in the switch, with tables by name",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			if table != "" {
				query.Set("table", table)
			}
			if owner != "" {
				query.Set("owner", owner)
			}
			var list api.FlowList
			if err := n.agent.ask(cmd.Context(), api.PathFlows, query, &list); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), list, func() error {
				head := []string{"TABLE", "PRIORITY", "OWNER", "PACKETS", "MATCH", "ACTIONS"}
				if stats {
					head = []string{"TABLE", "PRIORITY", "OWNER", "PACKETS", "BYTES", "AGE", "MATCH", "ACTIONS"}
				}
				t := cli.Rows{head}
				for _, f := range list.Flows {
					row := []string{f.Table, strconv.Itoa(int(f.Priority)), cli.Or(f.Owner, "-"), strconv.FormatUint(f.Packets, 10)}
					if stats {
						row = append(row, strconv.FormatUint(f.Bytes, 10), seconds(f.Duration))
					}
					t.Add(append(row, cli.Or(f.Match, "any"), cli.Or(f.Actions, "drop"))...)
				}
				return t.Write(cmd.OutOrStdout(), "  ")
			})
		},
	}
	cmd.Flags().StringVarP(&table, "table", "T", "", "only this table, by name or number")
	cmd.Flags().StringVar(&owner, "owner", "",
		"only flows that this kind of thing wants, such as Pod, Service, Policy or Multicluster")
	cmd.Flags().BoolVar(&stats, "stats", false, "bytes and age as well")
	out.Flag(cmd)
	return cmd
}

// seconds shortens a duration of any size.
func seconds(s float64) string {
	if s < 0 || s > 1e9 { // no time.Duration, or the switch's own confusion
		return "-"
	}
	return time.Duration(s * float64(time.Second)).Truncate(time.Second).String()
}

func (n *node) groups() *cobra.Command {
	var out cli.Format
	cmd := &cobra.Command{
		Use:     "groups",
		Aliases: []string{"group"},
		Short:   "Groups in the switch: the choice of endpoints",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list api.GroupList
			if err := n.agent.ask(cmd.Context(), api.PathGroups, nil, &list); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), list, func() error {
				t := cli.Rows{{"GROUP", "TYPE", "OWNER", "BUCKET", "WEIGHT", "ACTIONS"}}
				for _, g := range list.Groups {
					id, kind, owner := strconv.FormatUint(uint64(g.ID), 10), g.Type, cli.Or(g.Owner, "-")
					if len(g.Buckets) == 0 {
						t.Add(id, kind, owner, "none")
					}
					for _, b := range g.Buckets {
						t.Add(id, kind, owner, strconv.FormatUint(uint64(b.ID), 10), strconv.Itoa(int(b.Weight)), b.Actions)
						id, kind, owner = "", "", ""
					}
				}
				return t.Write(cmd.OutOrStdout(), "  ")
			})
		},
	}
	out.Flag(cmd)
	return cmd
}

func (n *node) ports() *cobra.Command {
	var out cli.Format
	cmd := &cobra.Command{
		Use:     "ports",
		Aliases: []string{"port"},
		Short:   "Ports of the bridge and the Pods behind them",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list api.PortList
			if err := n.agent.ask(cmd.Context(), api.PathPorts, nil, &list); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), list, func() error {
				t := cli.Rows{{"PORT", "NAME", "TYPE", "POD", "IP", "MAC", "CONTAINER", "ERROR"}}
				for _, p := range list.Ports {
					container := p.ContainerID
					if len(container) > 11 {
						container = container[:11]
					}
					t.Add(strconv.FormatInt(p.OFPort, 10), p.Name, cli.Or(p.Type, "-"), cli.Or(p.Pod, "-"),
						cli.Or(strings.Join(p.IPs, ","), "-"), cli.Or(p.MAC, "-"), cli.Or(container, "-"), p.Error)
				}
				return t.Write(cmd.OutOrStdout(), "  ")
			})
		},
	}
	out.Flag(cmd)
	return cmd
}

func (n *node) peers() *cobra.Command {
	var out cli.Format
	cmd := &cobra.Command{
		Use:     "peers",
		Aliases: []string{"peer"},
		Short:   "Where this Node tunnels to: other Nodes and other clusters",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list api.PeerList
			if err := n.agent.ask(cmd.Context(), api.PathPeers, nil, &list); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), list, func() error {
				if out == "wide" {
					return waysTable(list).Write(cmd.OutOrStdout(), "  ")
				}
				t := cli.Rows{{"KIND", "NAME", "VIA", "CIDRS", "GATEWAYS", "ROLE"}}
				for _, p := range list.Peers {
					t.Add(p.Kind, p.Name, cli.Or(via(p), "-"), cli.Or(strings.Join(p.CIDRs, ","), "-"),
						cli.Or(strings.Join(p.Gateways, ","), "-"), cli.Or(p.Role, "-"))
				}
				return t.Write(cmd.OutOrStdout(), "  ")
			})
		},
	}
	out.Flag(cmd)
	return cmd
}

// via returns the addresses at which a peer is reached, with the state from BFD: "192.168.78.103 up,192.168.78.104
// down".
func via(p api.Peer) string {
	if len(p.Ways) == 0 {
		return p.Via
	}
	var out []string
	for _, w := range p.Ways {
		out = append(out, strings.TrimSpace(w.To+" "+w.State))
	}
	return strings.Join(out, ",")
}

// waysTable returns a row for each way, with the reports of both ends.
func waysTable(list api.PeerList) cli.Rows {
	t := cli.Rows{{"KIND", "NAME", "TO", "STATE", "FORWARDING", "DIAGNOSTIC", "REMOTE", "REMOTE-DIAGNOSTIC", "FLAPS", "RX",
		"TX"}}
	for _, p := range list.Peers {
		if len(p.Ways) == 0 {
			t.Add(p.Kind, p.Name, cli.Or(p.Via, "-"), "-", "-", "-", "-", "-", "-", "-", "-")
		}
		for _, w := range p.Ways {
			if w.State == "" {
				t.Add(p.Kind, p.Name, w.To, "-", "-", "-", "-", "-", "-", "-", "-")
				continue
			}
			t.Add(p.Kind, p.Name, w.To, w.State, strconv.FormatBool(w.Forwarding), cli.Or(w.Diagnostic, "-"),
				cli.Or(w.RemoteState, "-"), cli.Or(w.RemoteDiagnostic, "-"), strconv.FormatUint(w.Flaps, 10),
				strconv.FormatUint(w.RxPackets, 10), strconv.FormatUint(w.TxPackets, 10))
		}
	}
	return t
}

func (n *node) status() *cobra.Command {
	var out cli.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Whether this Node's network works and, when not, why",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s api.Status
			if err := n.agent.ask(cmd.Context(), api.PathStatus, nil, &s); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), s, func() error { return printStatus(cmd.OutOrStdout(), s) })
		},
	}
	out.Flag(cmd)
	return cmd
}

func printStatus(w io.Writer, s api.Status) error {
	yes := map[bool]string{true: "yes", false: "no"}
	of := s.OpenFlow
	t := cli.Rows{
		{"Node:", cli.Or(s.Node, "-")},
		{"Version:", cli.Or(s.Version, "-")},
		{"Ready:", yes[s.Ready]},
	}
	for _, what := range s.Waiting {
		t.Add("", "waiting: "+what)
	}
	t.Add("Datapath:", cli.Or(s.Datapath, "-")+", Open vSwitch "+cli.Or(s.OVS, "unknown"))
	if w := s.Network; w != nil {
		t.Add("Tunnels:", fmt.Sprintf("%s, port %d, mode %s; encryption: %s between Nodes, %s between clusters",
			w.Tunnel, w.Port, w.Mode, w.Encryption, w.PeerEncryption))
		t.Add("", fmt.Sprintf("MTU: %d of Pods, %d of the link; tunnels add up to %d bytes", w.PodMTU, w.LinkMTU,
			w.TunnelOverhead))
	}
	if s.Role != "" {
		t.Add("Multi-cluster:", fmt.Sprintf("%s; gateway is %s", s.Role, cli.Or(s.Gateway, "none")))
	}
	if p := s.LastPass; p != nil {
		t.Add("Last pass:", fmt.Sprintf("%d rows evaluated, %d changed in %.2f ms; %d passes", p.Evaluated, p.Changed,
			p.Seconds*1000, p.Passes))
	}
	t.Add("OpenFlow:", fmt.Sprintf("connected: %s; connections made: %d", yes[of.Connected], of.Connections))
	t.Add("", fmt.Sprintf("%d flows and %d groups wanted", of.Flows, of.Groups))
	t.Add("", fmt.Sprintf("%d flow-mods and %d group-mods sent in %d bundles; %d foreign changes mended", of.FlowMods,
		of.GroupMods, of.Bundles, of.Mended))
	for _, name := range slices.Sorted(maps.Keys(of.MessagesSent)) {
		t.Add("", fmt.Sprintf("sent %s: %d", name, of.MessagesSent[name]))
	}
	if of.LastError != "" {
		t.Add("", "last error: "+of.LastError)
	}
	for _, f := range of.Refused {
		t.Add("", "refused: "+f)
	}
	if err := t.Write(w, "  "); err != nil {
		return err
	}
	if len(s.Problems) == 0 {
		_, err := fmt.Fprintln(w, "Problems:  none")
		return err
	}
	p := cli.Rows{{"OBJECT", "FIELD", "REASON", "MESSAGE"}}
	for _, x := range s.Problems {
		p.Add(x.Object, cli.Or(x.Field, "-"), x.Reason, x.Message)
	}
	if _, err := fmt.Fprintln(w, "Problems:"); err != nil {
		return err
	}
	return p.Write(w, "  ")
}

// metrics prints the agent's metrics. The agent has no port for a scrape: its metrics are on the socket, which only
// root may open.
func (n *node) metrics() *cobra.Command {
	const path = "/metrics"
	return &cobra.Command{
		Use:     "metrics",
		Short:   "The agent's metrics, in Prometheus' text format",
		Example: "  kubectl exec -n kube-system ds/tombolo-agent -- tombolo get metrics",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			code, body, err := n.agent.read(cmd.Context(), path, nil)
			switch {
			case err != nil:
				return err
			case code == http.StatusNotFound:
				return errors.New(
					"the agent has no metrics: remove enablePrometheusMetrics: false from antrea-agent.conf, and restart the agent")
			case code != http.StatusOK:
				return n.agent.unexpected(code, path)
			}
			_, err = cmd.OutOrStdout().Write(body)
			return err
		},
	}
}

// check is for probes: silent and 0 when the Node's network works.
func (n *node) check() *cobra.Command {
	var alive bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Exit with 0 when this Node's network is ready (for probes)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s api.Status
			if err := n.agent.ask(cmd.Context(), api.PathStatus, nil, &s); err != nil {
				return err
			}
			if s.Ready || alive {
				return nil
			}
			return fmt.Errorf("the network of Node %s is not ready: %s; see `tombolo get status`", s.Node,
				cli.Or(strings.Join(s.Waiting, "; "), "it does not say why"))
		},
	}
	cmd.Flags().BoolVar(&alive, "alive", false, "only ask whether the agent answers (for liveness probes)")
	return cmd
}
