// Package node has the commands that ask the agent of this Node, through its debug socket.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/gather"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// node is the agent of this Node, behind its debug socket.
type node struct {
	socket  string
	timeout time.Duration

	// A bundle answers instead of the agent, if one is named.
	bundle, context, name string
	stderr                io.Writer
	dated                 bool // the time of the bundle was printed
}

// Commands returns the commands that ask the agent of this Node.
func Commands() []*cobra.Command {
	n := &node{}
	policy := n.policy()
	all := []*cobra.Command{
		n.get(n.flows(), n.groups(), n.ports(), n.peers(), n.status(), n.metrics(), n.policies(), n.rules(), n.identities(),
			n.networkPolicies(), n.latency()),
		n.explain(), policy, n.check(), n.askCommand(),
	}
	for _, c := range all {
		n.flags(c)
	}
	// explain and trace depend on the question: a bundle has no answers.
	n.bundleFlags(all[0])
	n.bundleFlags(policy)
	return append(all, n.observe(), n.trace(), n.capture())
}

// bundleFlags adds the flags that name a Node in a bundle.
func (n *node) bundleFlags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&n.bundle, "bundle", "",
		"answer from this file, which tombolo gather wrote, and not from the agent")
	c.PersistentFlags().StringVar(&n.context, "context", "", "the cluster in the bundle, if it has several")
	c.PersistentFlags().StringVar(&n.name, "node", "", "the Node in the bundle, if it has several")
	run := c.PersistentPreRunE
	c.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if n.bundle == "" && n.context+n.name != "" {
			return errors.New("--context and --node name a Node in a bundle: name the file with --bundle")
		}
		n.stderr = cmd.ErrOrStderr()
		if run != nil {
			return run(cmd, args)
		}
		return nil
	}
}

func (n *node) get(below ...*cobra.Command) *cobra.Command {
	return cli.Group("get", "Show what this Node has", below...)
}

// flags adds the flags that name the agent.
func (n *node) flags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&n.socket, "socket", api.DefaultSocket, "the agent's debug socket on this Node")
	c.PersistentFlags().DurationVarP(&n.timeout, "timeout", "t", 10*time.Second, "how long to wait for the agent")
}

// ask reads one path of the debug API into v.
func (n *node) ask(ctx context.Context, path string, query url.Values, v any) error {
	code, body, err := n.read(ctx, path, query)
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return n.refused(code, body, path)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("understand the agent's answer for %s: %w; are this command and the agent of one version?",
			path, err)
	}
	return nil
}

// refused returns the error of an answer other than 200.
func (n *node) refused(code int, body []byte, path string) error {
	var e api.Error
	if json.Unmarshal(body, &e) != nil || e.Error == "" {
		return n.unexpected(code, path)
	}
	return errors.New(e.Error)
}

func (n *node) unexpected(code int, path string) error {
	return fmt.Errorf("the agent's debug socket %s answered %d %s for %s: are this command and the agent of one version?",
		n.socket, code, http.StatusText(code), path)
}

// read reads one path of the agent's socket, or of the bundle.
func (n *node) read(ctx context.Context, path string, query url.Values) (code int, body []byte, _ error) {
	if n.bundle != "" {
		b, err := gather.Open(n.bundle)
		if err != nil {
			return 0, nil, err
		}
		body, err = b.Answer(n.context, n.name, path, query)
		if err == nil && !n.dated {
			n.dated = true // a command may read several answers
			fmt.Fprintf(n.stderr, "as of %s, from %s\n", b.Manifest.Started.Format("2006-01-02 15:04:05 UTC"), n.bundle)
		}
		return http.StatusOK, body, err
	}
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	response, err := n.open(ctx, path, query.Encode())
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, n.silent(err)
	}
	return response.StatusCode, body, nil
}

// put changes what one path of the debug API answers, and reads the answer into v.
func (n *node) put(ctx context.Context, path string, query map[string]string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	values := url.Values{}
	for name, value := range query {
		values.Set(name, value)
	}
	response, err := n.request(ctx, http.MethodPut, path, values.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return n.silent(err)
	}
	if response.StatusCode != http.StatusOK {
		return n.refused(response.StatusCode, body, path)
	}
	return json.Unmarshal(body, v)
}

// open requests one path of the agent's socket. The caller reads the answer and closes it.
func (n *node) open(ctx context.Context, path, query string) (*http.Response, error) {
	return n.request(ctx, http.MethodGet, path, query)
}

func (n *node) request(ctx context.Context, method, path, query string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", n.socket)
		},
	}}
	target := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, n.silent(err)
	}
	return response, nil
}

// silent explains why there was no answer.
func (n *node) silent(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf(
			"the agent's debug socket %s may only be opened by root: use sudo, or run this in the tombolo-agent Pod", n.socket)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf(
			"the agent's debug socket %s did not answer within %s: look at the log of tombolo-agent on this Node", n.socket,
			n.timeout)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("the agent's debug socket %s does not answer: is tombolo-agent running on this Node?", n.socket)
	}
	return fmt.Errorf("the agent's debug socket %s does not answer: is tombolo-agent running on this Node? (%w)",
		n.socket, err)
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
			if err := n.ask(cmd.Context(), api.PathFlows, query, &list); err != nil {
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
			if err := n.ask(cmd.Context(), api.PathGroups, nil, &list); err != nil {
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
			if err := n.ask(cmd.Context(), api.PathPorts, nil, &list); err != nil {
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
			if err := n.ask(cmd.Context(), api.PathPeers, nil, &list); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), list, func() error {
				if out.Wide() {
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
			if err := n.ask(cmd.Context(), api.PathStatus, nil, &s); err != nil {
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
			code, body, err := n.read(cmd.Context(), path, nil)
			switch {
			case err != nil:
				return err
			case code == http.StatusNotFound:
				return errors.New(
					"the agent has no metrics: remove enablePrometheusMetrics: false from antrea-agent.conf, and restart the agent")
			case code != http.StatusOK:
				return n.unexpected(code, path)
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
			if err := n.ask(cmd.Context(), api.PathStatus, nil, &s); err != nil {
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
