package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// observeOptions are the flags of the command observe.
type observeOptions struct {
	remote.Flags
	filters             map[string]*[]string
	not                 []string
	follow, connections bool
	direct              bool
	last                int
	since, output       string
	by                  []string // of record.Keys
	every               time.Duration
}

// observer has `tombolo observe` and the commands below it.
type observer struct{ agents *agents }

// command returns the command that shows records of connections and of dropped packets.
func (n observer) command() *cobra.Command {
	o := observeOptions{filters: map[string]*[]string{}}
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "Dropped packets, each with its rule or reason, and connections",
		Long: "Show dropped packets, each with the rule or the reason, and with --connections new and ended connections\n" +
			"too. On a Node it asks the agent there. Elsewhere it asks the relay of each cluster, or all agents through\n" +
			"the API server where no relay is installed.\n" +
			"Flags of one name are alternatives. Flags of different names all have to hold.",
		Example: "  tombolo observe                                  # the last 20 drops\n" +
			"  tombolo observe --follow --to shop/db --connections    # live, with new connections\n" +
			"  tombolo observe --context east,west --since 10m --reason isolated\n" +
			"  tombolo observe --not verdict=rejected -o json\n" +
			"  tombolo observe --since 10m --by to,reason             # sums",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := o.sink(cmd)
			if err != nil {
				return err
			}
			query, err := o.query()
			if err != nil {
				return err
			}
			sources, err := n.sources(cmd, o)
			if err != nil {
				return err
			}
			return read(cmd.Context(), sources, query, to, cmd.ErrOrStderr())
		},
	}
	n.filterFlags(cmd, &o)
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on with new records until interrupted")
	cmd.Flags().BoolVar(&o.connections, "connections", false,
		"new and ended connections too; with --follow agents begin to record them")
	cmd.Flags().IntVar(&o.last, "last", 20, "begin with this number of records of each Node, without --since")
	cmd.Flags().StringSliceVar(&o.by, "by", nil, "sums in place of records, by these words: "+
		strings.Join(record.Keys(), ", "))
	cmd.Flags().DurationVar(&o.every, "every", 10*time.Second, "with --by and --follow: time between two tables of sums")
	cli.HideShorthands(cmd.Flags(), "follow")
	cmd.AddCommand(n.path(), n.hints())
	return cmd
}

// filterFlags adds the flags that choose records, and the flags of sourceFlags.
func (n observer) filterFlags(cmd *cobra.Command, o *observeOptions) {
	for _, w := range record.Words() {
		if w[0] == "node" {
			continue // --node names the agents to ask
		}
		o.filters[w[0]] = new([]string)
		cmd.Flags().StringSliceVar(o.filters[w[0]], w[0], nil, w[1])
	}
	cmd.Flags().StringArrayVar(&o.not, "not", nil, "leave out records of which this holds, such as reason=isolated")
	n.sourceFlags(cmd, o)
}

// sourceFlags adds the flags that name agents, and the time. Its default is o.since.
func (n observer) sourceFlags(cmd *cobra.Command, o *observeOptions) {
	help := "records from then on: a duration such as 10m, or a time (RFC 3339)"
	cmd.Flags().StringVar(&o.since, "since", o.since, help)
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text or json: one JSON object a line")
	cmd.Flags().BoolVar(&o.direct, "direct", false, "ask the agents through the API server, not the relay")
	cmd.Flags().StringVar(&n.agents.socket, "socket", api.DefaultSocket, "the agent's debug socket on this Node")
	o.Add(cmd.Flags())
}

// sink returns what takes the events: it prints them, or sums of them.
func (o observeOptions) sink(cmd *cobra.Command) (sink, error) {
	if len(o.by) == 0 {
		return &lines{observeOptions: o, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}, nil
	}
	if err := record.CheckKeys(o.by); err != nil {
		return nil, fmt.Errorf("--by: %w", err)
	}
	if o.every < time.Second {
		return nil, fmt.Errorf("--every %s: give a second or more", o.every)
	}
	return &sums{observeOptions: o, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(), due: time.Now().Add(o.every)}, nil
}

// query returns the query for agents.
func (o observeOptions) query() (url.Values, error) {
	if o.output != "text" && o.output != "json" {
		return nil, fmt.Errorf("--output %s: give text or json", o.output)
	}
	query := url.Values{}
	for name, values := range o.filters {
		if len(*values) > 0 {
			query[name] = *values
		}
	}
	for _, text := range o.not {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("--not %s: give FILTER=VALUE, such as reason=isolated", text)
		}
		query.Add(record.NotPrefix+name, value)
	}
	if _, err := record.Parse(query); err != nil {
		return nil, err
	}
	query.Set("follow", strconv.FormatBool(o.follow))
	query.Set("connections", strconv.FormatBool(o.connections))
	if o.since != "" {
		query.Set("since", o.since)
	} else {
		query.Set("last", strconv.Itoa(o.last))
	}
	return query, nil
}

// source is an agent whose answer is read.
type source struct {
	name    string
	cluster string // as the user names it; empty for this Node's
	copy    func(ctx context.Context, query url.Values, w io.Writer) error
}

// sources returns the agents to ask: the agent of this Node, or all agents of clusters.
func (n observer) sources(cmd *cobra.Command, o observeOptions) (out []source, err error) {
	if n.agents.here(cmd, o.Flags) {
		return []source{{"this Node", "", func(ctx context.Context, query url.Values, w io.Writer) error {
			return n.agents.copy(ctx, api.PathObserve, query.Encode(), w)
		}}}, nil
	}
	clusters, err := o.Clusters()
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, c := range clusters {
		list, err := o.of(cmd.Context(), c, cmd.ErrOrStderr())
		if err != nil { // the other clusters answer
			failed = append(failed, err)
		}
		out = append(out, list...)
	}
	if len(failed) == len(clusters) {
		return nil, errors.Join(failed...)
	}
	for _, err := range failed {
		fmt.Fprintln(cmd.ErrOrStderr(), "no answer:", err)
	}
	return out, nil
}

// of returns the sources of a cluster: its relay, or all agents.
func (o observeOptions) of(ctx context.Context, c *remote.Cluster, notes io.Writer) (out []source, err error) {
	if !o.direct {
		relay, err := c.Relay(ctx)
		var down *remote.RelayDown
		switch {
		case errors.As(err, &down):
			fmt.Fprintln(notes, err)
			fmt.Fprintln(notes, "asking the agents through the API server instead, as with --direct")
		case err != nil:
			return nil, err
		case relay != nil:
			return []source{{c.Name, c.Name, func(ctx context.Context, query url.Values, w io.Writer) error {
				query = maps.Clone(query)
				query[api.AskParameter] = o.Nodes
				if err := relay.Stream(ctx, api.PathObserve, query, w); errors.As(err, &down) {
					return fmt.Errorf("%w; --direct asks the agents without it", err)
				} else if err != nil {
					return err
				}
				return nil
			}}}, nil
		}
	}
	agents, err := c.Agents(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range agents {
		copy := func(ctx context.Context, query url.Values, w io.Writer) error {
			if o.follow {
				return a.Stream(ctx, api.PathObserve, query, w)
			}
			answer, err := a.Ask(ctx, api.PathObserve, query) // within the time limit, some at a time
			if err != nil {
				return err
			}
			_, err = w.Write(answer)
			return err
		}
		out = append(out, source{c.Name + "/" + a.Node, c.Name, copy})
	}
	return out, nil
}

// here reports whether the command asks the agent of this Node. On other machines, and if flags name clusters or Nodes,
// it asks agents through API servers.
func (n *agents) here(cmd *cobra.Command, f remote.Flags) bool {
	elsewhere := len(f.Contexts) > 0 || f.Kubeconfig != "" || len(f.Nodes) > 0
	_, err := os.Stat(n.socket)
	return cmd.Flags().Changed("socket") || err == nil && !elsewhere
}

// sink takes the events of sources.
type sink interface {
	// add takes an event of a cluster, which is called as the user names it.
	add(cluster string, e record.Event) error
	// tick is called at times while readers follow, and end after the last event.
	tick(now time.Time) error
	end() error
}

// lines prints the records of all sources, in the order of their time.
type lines struct {
	observeOptions
	merger     record.Merger
	out, notes io.Writer
}

func (l *lines) add(_ string, e record.Event) error {
	l.merger.Add(e, time.Now())
	return nil
}

func (l *lines) tick(now time.Time) error { return l.printAll(l.merger.Due(now)) }
func (l *lines) end() error               { return l.printAll(l.merger.All()) }

func (l *lines) printAll(list []record.Event) error {
	for _, e := range list {
		if err := l.print(e, l.out, l.notes); err != nil {
			return err
		}
	}
	return nil
}

// clusterEvent is an event of a cluster.
type clusterEvent struct {
	cluster string
	record.Event
}

// read passes the events of all sources to a sink. A source that fails is noted, and the other sources continue.
func read(ctx context.Context, sources []source, query url.Values, to sink, notes io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	events, failed := make(chan clusterEvent, 1024), make(chan error, len(sources))
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, s := range sources {
		all.Go(func() {
			if err := s.read(ctx, query, events); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	go func() {
		all.Wait()
		close(events)
	}()
	absent := 0
	tick := time.NewTicker(record.MergeWait / 5)
	defer tick.Stop()
	for open := true; open; {
		select {
		case e, ok := <-events:
			if open = ok; ok {
				if err := to.add(e.cluster, e.Event); err != nil {
					return err
				}
			}
		case err := <-failed: // the other Nodes go on
			if absent++; absent == len(sources) {
				return err
			}
			fmt.Fprintln(notes, "no answer:", err)
		case now := <-tick.C:
			if query.Get("follow") == "true" {
				if err := to.tick(now); err != nil {
					return err
				}
			}
		}
	}
	if err := to.end(); err != nil {
		return err
	}
	for {
		select {
		case err := <-failed:
			if absent++; absent == len(sources) {
				return err
			}
			fmt.Fprintln(notes, "no answer:", err)
		default:
			return nil
		}
	}
}

// read sends the events of a source.
func (s source) read(ctx context.Context, query url.Values, events chan<- clusterEvent) error {
	err := record.Events(ctx, func(w io.Writer) error { return s.copy(ctx, query, w) }, func(e record.Event) {
		select {
		case events <- clusterEvent{s.cluster, e}:
		case <-ctx.Done():
		}
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// print prints an event.
func (o observeOptions) print(e record.Event, out, notes io.Writer) error {
	if o.output == "json" {
		return json.NewEncoder(out).Encode(e)
	}
	var err error
	switch {
	case e.Begin != nil && !e.Begin.Drops:
		_, err = fmt.Fprintf(notes, "Node %s records no drops: observe.drops is false in its antrea-agent.conf\n",
			e.Begin.Node)
	case e.Begin != nil && o.since != "":
		_, err = fmt.Fprintf(notes, "Node %s has records since %s\n", e.Begin.Node,
			e.Begin.From.Local().Format(time.TimeOnly))
	case e.Nodes != nil && len(e.Nodes.Absent) > 0:
		_, err = fmt.Fprintf(notes, "nodes %d of %d, absent [%s]\n", e.Nodes.Answering, e.Nodes.All,
			strings.Map(printable, strings.Join(e.Nodes.Absent, " ")))
	case e.Missing != nil && e.Missing.Lost == 0:
		_, err = fmt.Fprintln(out, strings.Map(printable, fmt.Sprintf("%s missing   Node %s: %s", clock(e.Missing.Time),
			e.Missing.Node, e.Missing.Why)))
	case e.Missing != nil:
		_, err = fmt.Fprintf(out, "%s missing   Node %s lost %d records: %s\n", clock(e.Missing.Time), e.Missing.Node,
			e.Missing.Lost, e.Missing.Why)
	case e.Record() != nil:
		_, err = fmt.Fprintln(out, Line(e.Record()))
	}
	return err
}

// clock is the time of a record in the reader's zone.
func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }

// Line returns a record as a line of text.
func Line(r *record.Record) string {
	word := r.Verdict
	if r.Life != nil {
		word = "ended"
	}
	text := fmt.Sprintf("%s %-9s %-5s %s -> %s", clock(r.Time), word, r.Protocol, endText(r.From), endText(r.To))
	if r.Service != "" {
		text += " by Service " + r.Service
	}
	if r.Network != "" {
		text += " in VirtualNetwork " + r.Network
		if r.ToNetwork != "" {
			text += " to " + r.ToNetwork
		}
	}
	if r.Way != "" {
		text += " by way " + r.Way
	}
	if r.Message != "" {
		text += ": " + r.Message
	}
	for _, by := range []struct {
		word string
		rule *record.Rule
	}{{"out by", r.Egress}, {"in by", r.Ingress}} {
		if by.rule != nil {
			text += fmt.Sprintf(", %s %s %s", by.word, by.rule.Policy, by.rule.Name)
		}
	}
	if r.Life != nil {
		text += lifeText(*r.Life)
	}
	if r.Count > 1 {
		text += fmt.Sprintf(" (%d packets)", r.Count)
	}
	if where := strings.TrimSpace(r.Node + " " + r.Table); where != "" {
		text += " [" + where + "]"
	}
	return strings.Map(printable, text)
}

// lifeText is the duration and the traffic of a connection.
func lifeText(l record.Life) string {
	text := ""
	if l.Seconds > 0 {
		text = " after " + time.Duration(l.Seconds*float64(time.Second)).Round(time.Millisecond).String()
	}
	if l.Sent != nil && l.Received != nil {
		text += fmt.Sprintf(", sent %d bytes (%d packets), received %d bytes (%d packets)", l.Sent.Bytes, l.Sent.Packets,
			l.Received.Bytes, l.Received.Packets)
	} else {
		text += ", bytes not counted"
	}
	if l.Late {
		text += ", named at its end"
	}
	return text
}

// printable replaces what could change a terminal, since users choose the names of rules.
func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return '_'
	}
	return r
}

// endText is an end with its Pod, cluster and port.
func endText(e record.End) string {
	text := e.IP
	switch {
	case e.Pod != "":
		text = e.Namespace + "/" + e.Pod
	case e.Namespace != "": // of an end that the reader may not see
		text = e.Namespace + "/*"
	case text == "":
		text = "*"
	}
	if e.Cluster != "" {
		text += "@" + e.Cluster
	}
	if e.Port != 0 {
		text += ":" + strconv.Itoa(int(e.Port))
	}
	return text
}
