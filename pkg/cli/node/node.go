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
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/gather"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// node has the commands that ask agents.
type node struct{ agents *agents }

// agents are the sources that a command can ask: this Node's agent through its debug socket, agents of clusters, or the
// answers in a bundle.
type agents struct {
	socket  string
	timeout time.Duration
	antctl  bool         // the commands are antctl's
	local   bool         // only the agent of this Node is asked
	to      remote.Flags // name agents of clusters, or a Node of the bundle
	away    bool         // agents of clusters are asked
	bundle  string       // answers instead of agents, if a file is named
	stderr  io.Writer
	dated   bool // the time of the bundle was printed
}

// Commands returns the commands that ask agents.
func Commands() []*cobra.Command {
	n := &node{agents: &agents{}}
	get := n.get(n.flows(), n.groups(), n.ports(), n.peers(), n.status(), n.metrics(), n.policies(), n.rules(),
		n.identities(), n.networkPolicies(), n.latency())
	policy, explain, check, ask := n.policy(), n.explain(), n.check(), n.askCommand()
	for _, c := range []*cobra.Command{get, policy, explain, check} {
		n.agents.remoteFlags(c)
	}
	// explain and trace depend on the question: a bundle has no answers.
	for _, c := range []*cobra.Command{get, policy} {
		c.PersistentFlags().StringVar(&n.agents.bundle, "bundle", "",
			"answer from this file, which tombolo gather wrote; --context and --node then name a Node in it")
	}
	n.agents.flags(ask)
	return []*cobra.Command{get, explain, policy, check, ask, observer{n.agents}.command(), n.trace(), n.capture()}
}

// remoteFlags adds the flags that name agents: of this Node, or of clusters.
func (n *agents) remoteFlags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&n.socket, "socket", api.DefaultSocket, "the agent's debug socket on this Node")
	n.to.Add(c.PersistentFlags())
	c.PersistentFlags().Lookup("node").Usage = "ask the agents of these Nodes, separated by commas; elsewhere than on a " +
		"Node all when empty"
	c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		n.stderr, n.timeout = cmd.ErrOrStderr(), n.to.Timeout
		if n.bundle != "" && (len(n.to.Contexts) > 1 || len(n.to.Nodes) > 1) {
			return errors.New("a bundle answers for one Node: name one with --context and --node")
		}
		return nil
	}
}

func (n *node) get(below ...*cobra.Command) *cobra.Command {
	return cli.Group("get", "Show what Nodes have: this one, or those of a cluster", below...)
}

// flags adds the flags that name the agent of this Node.
func (n *agents) flags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&n.socket, "socket", api.DefaultSocket, "the agent's debug socket on this Node")
	c.PersistentFlags().DurationVarP(&n.timeout, "timeout", "t", 10*time.Second, "how long to wait for the agent")
}

// ask reads one path of the debug API of this Node's agent, or of the bundle, into v.
func (n *agents) ask(ctx context.Context, path string, query url.Values, v any) error {
	body, err := n.answer(ctx, path, query)
	if err != nil {
		return err
	}
	return understand(body, v, "", path)
}

// refused returns the error of an answer other than 200.
func (n *agents) refused(code int, body []byte, path string) error {
	var e api.Error
	if json.Unmarshal(body, &e) != nil || e.Error == "" {
		return n.unexpected(code, path)
	}
	return errors.New(e.Error)
}

// unexpected is the error of an answer that has no reason.
type unexpected struct {
	code int
	text string
}

func (e *unexpected) Error() string { return e.text }

func (n *agents) unexpected(code int, path string) error {
	return &unexpected{code, fmt.Sprintf("the agent's debug socket %s answered %d %s for %s: are this command and the "+
		"agent of one version?", n.socket, code, http.StatusText(code), path)}
}

// read reads one path of the agent's socket, or of the bundle.
func (n *agents) read(ctx context.Context, path string, query url.Values) (code int, body []byte, _ error) {
	if n.bundle != "" {
		b, err := gather.Open(n.bundle)
		if err != nil {
			return 0, nil, err
		}
		body, err = b.Answer(strings.Join(n.to.Contexts, ""), strings.Join(n.to.Nodes, ""), path, query)
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
func (n *agents) put(ctx context.Context, path string, query map[string]string, v any) error {
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
func (n *agents) open(ctx context.Context, path, query string) (*http.Response, error) {
	return n.request(ctx, http.MethodGet, path, query)
}

func (n *agents) request(ctx context.Context, method, path, query string) (*http.Response, error) {
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
func (n *agents) silent(err error) error {
	const elsewhere = "elsewhere, name a cluster with --context and a Node with --node"
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("the agent's debug socket %s may only be opened by root: use sudo, or run this in the "+
			"tombolo-agent Pod; %s", n.socket, elsewhere)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf(
			"the agent's debug socket %s did not answer within %s: look at the log of tombolo-agent on this Node", n.socket,
			n.timeout)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("the agent's debug socket %s does not answer: is tombolo-agent running on this Node? %s", n.socket,
			elsewhere)
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
			q := question[api.FlowList]{kind: "FlowList", path: api.PathFlows, query: query}
			q.rows = func(list api.FlowList) cli.Rows {
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
				return t
			}
			return q.show(cmd, n, out)
		},
	}
	cmd.Flags().StringVarP(&table, "table", "T", "", "only this table, by name or number")
	_ = cmd.RegisterFlagCompletionFunc("table", n.agents.completeTables)
	cmd.Flags().StringVar(&owner, "owner", "",
		"only flows of an owner, such as Pod, Service, Policy or Multicluster")
	cmd.Flags().BoolVar(&stats, "stats", false, "bytes and age as well")
	out.Flag(cmd)
	return cmd
}

// completeTables returns the names of the tables that have flows, for completion in a shell on a Node. On other
// machines the answer would be too large.
func (n *agents) completeTables(cmd *cobra.Command, _ []string, _ string) (names []string,
	_ cobra.ShellCompDirective) {
	if n.here(cmd, n.to) {
		n.timeout = completeLimit
		var list api.FlowList
		if n.ask(cmd.Context(), api.PathFlows, nil, &list) == nil {
			for _, f := range list.Flows {
				names = append(names, f.Table)
			}
		}
	}
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// completeLimit is how long a shell waits for the agent.
const completeLimit = 2 * time.Second

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
			q := question[api.GroupList]{kind: "GroupList", path: api.PathGroups}
			q.rows = func(list api.GroupList) cli.Rows {
				t := cli.Rows{{"GROUP", "TYPE", "OWNER", "BUCKET", "WEIGHT", "ACTIONS"}}
				for _, g := range list.Groups {
					id, kind, owner := strconv.FormatUint(uint64(g.ID), 10), g.Type, cli.Or(g.Owner, "-")
					if len(g.Buckets) == 0 {
						t.Add(id, kind, owner, "none")
					}
					for _, b := range g.Buckets {
						t.Add(id, kind, owner, strconv.FormatUint(uint64(b.ID), 10), strconv.Itoa(int(b.Weight)), b.Actions)
					}
				}
				return t
			}
			return q.show(cmd, n, out)
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
			q := question[api.PortList]{kind: "PortList", path: api.PathPorts}
			q.rows = func(list api.PortList) cli.Rows {
				t := cli.Rows{{"PORT", "NAME", "TYPE", "POD", "IP", "MAC", "CONTAINER", "ERROR"}}
				for _, p := range list.Ports {
					container := p.ContainerID
					if len(container) > 11 {
						container = container[:11]
					}
					t.Add(strconv.FormatInt(p.OFPort, 10), p.Name, cli.Or(p.Type, "-"), cli.Or(p.Pod, "-"),
						cli.Or(strings.Join(p.IPs, ","), "-"), cli.Or(p.MAC, "-"), cli.Or(container, "-"), p.Error)
				}
				return t
			}
			return q.show(cmd, n, out)
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
			q := question[api.PeerList]{kind: "PeerList", path: api.PathPeers}
			q.rows = func(list api.PeerList) cli.Rows {
				if out.Wide() {
					return waysTable(list)
				}
				t := cli.Rows{{"KIND", "NAME", "VIA", "CIDRS", "GATEWAYS", "ROLE"}}
				for _, p := range list.Peers {
					t.Add(p.Kind, p.Name, cli.Or(via(p), "-"), cli.Or(strings.Join(p.CIDRs, ","), "-"),
						cli.Or(strings.Join(p.Gateways, ","), "-"), cli.Or(p.Role, "-"))
				}
				return t
			}
			return q.show(cmd, n, out)
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
			return question[api.Status]{kind: "NodeStatus", path: api.PathStatus, text: printStatus}.show(cmd, n, out)
		},
	}
	out.TextFlag(cmd)
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

// metrics prints the agent's metrics. The agent has no port for metrics servers: it serves its metrics on the socket,
// which only root may open.
func (n *node) metrics() *cobra.Command {
	const path = "/metrics"
	return &cobra.Command{
		Use:   "metrics",
		Short: "The agent's metrics, in Prometheus' text format",
		Example: "  tombolo get metrics --node worker-1\n" +
			"  kubectl exec -n kube-system ds/tombolo-agent -- tombolo get metrics",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n.agents.elsewhere(cmd) && len(n.agents.to.Nodes) != 1 {
				return errors.New("metrics are of one agent: name its Node with --node")
			}
			t, err := n.agents.one(cmd)
			if err != nil {
				return err
			}
			body, err := t.ask(cmd.Context(), path, nil)
			var bare *unexpected
			if errors.As(err, &bare) && bare.code == http.StatusNotFound {
				return errors.New(
					"the agent has no metrics: remove enablePrometheusMetrics: false from antrea-agent.conf, and restart the agent")
			}
			if err != nil {
				return err
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
		Short: "Exit with 0 when this Node's network is ready (for probes), or that of the named Nodes",
		Long: "Exit with 0, and print nothing, when the network of this Node is ready.\n\nWith --context, --kubeconfig or " +
			"--node the agents of a cluster are asked, and each Node that is not ready is printed.",
		Example: "  tombolo check\n  tombolo check --context east --node worker-1,worker-2",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n.agents.local = !named(n.agents.to) // a probe asks no API server
			targets, err := n.agents.targets(cmd)
			if err != nil {
				return err
			}
			var failed []error
			for _, a := range (question[api.Status]{path: api.PathStatus}).ask(cmd.Context(), targets) {
				switch {
				case a.err != nil:
					failed = append(failed, a.err)
				case !a.got.Ready && !alive:
					failed = append(failed, fmt.Errorf("the network of Node %s is not ready: %s; see `tombolo get status`",
						a.got.Node, cli.Or(strings.Join(a.got.Waiting, "; "), "it does not say why")))
				}
			}
			return errors.Join(failed...)
		},
	}
	cmd.Flags().BoolVar(&alive, "alive", false, "only ask whether the agent answers (for liveness probes)")
	return cmd
}
