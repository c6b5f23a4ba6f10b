package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/hops"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

const (
	// pathsWait is how long the records of other Nodes are waited for.
	pathsWait = 2 * time.Second
	// maxRecorded is how many records are joined to paths.
	maxRecorded = 100_000
)

// pathOptions are the flags of the command observe path.
type pathOptions struct {
	observeOptions
	client string
	port   uint16 // of the client; 0 for any
	wait   time.Duration
}

// path returns the command that joins the records of all Nodes to paths of connections.
func (n observer) path() *cobra.Command {
	o := pathOptions{observeOptions: observeOptions{filters: map[string]*[]string{}, connections: true,
		since: "1h"}}
	var serverPorts []string
	cmd := &cobra.Command{
		Use:   "path CLIENT[:PORT]",
		Short: "The path of a client's connections over all Nodes and clusters",
		Long: "Show which Nodes and clusters the connections of a client have met, with the addresses and rules there,\n" +
			"from the records of all Nodes. The client is a Pod (namespace/name) or an address, with the client's port.\n" +
			"Agents record connections while a reader asks. So without earlier records use --wait, which has them\n" +
			"recorded until the client opens one. Dropped packets are recorded at all times.",
		Example: "  tombolo observe path shop/web-7d9f:40112 --context east,west\n" +
			"  tombolo observe path shop/web-7d9f --port 5432 --wait 1m",
		Args: cli.Words("path", "CLIENT, such as shop/web-7d9f:40112"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(args[0], serverPorts); err != nil {
				return err
			}
			sources, err := n.sources(cmd, o.observeOptions)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), sources, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringSliceVar(&serverPorts, "port", nil, "the server's port, or the Service's")
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "have connections recorded until the client opens one, at most for this "+
		"time")
	cmd.Flags().IntVar(&o.last, "last", 10, "the newest paths")
	n.sourceFlags(cmd, &o.observeOptions)
	return cmd
}

// parse reads the client, and makes filters of it.
func (o *pathOptions) parse(client string, serverPorts []string) error {
	o.client = client
	if from, err := netip.ParseAddrPort(client); err == nil {
		o.client, o.port = from.Addr().String(), from.Port()
	} else if _, err := netip.ParseAddr(client); err != nil {
		if name, port, ok := strings.Cut(client, ":"); ok {
			number, err := strconv.ParseUint(port, 10, 16)
			if err != nil || number == 0 {
				return fmt.Errorf("%q: %q is no port: give a number from 1 to 65535", client, port)
			}
			o.client, o.port = name, uint16(number)
		}
	}
	if o.last < 1 {
		return fmt.Errorf("--last %d: give 1 or more", o.last)
	}
	from := []string{o.client}
	o.filters["from"] = &from
	if len(serverPorts) > 0 {
		o.filters["port"] = &serverPorts
	}
	_, err := o.query()
	return err
}

// run asks for the records of the client. Then it asks other clusters for the records of the destinations that were
// chosen.
func (o pathOptions) run(ctx context.Context, sources []source, out, notes io.Writer) error {
	if o.wait > 0 {
		if err := o.await(ctx, sources, notes); err != nil {
			return err
		}
	}
	query, err := o.query()
	if err != nil {
		return err
	}
	own := &recorded{observeOptions: o.observeOptions, notes: notes}
	if err := read(ctx, sources, query, own, notes); err != nil {
		return err
	}
	legs := hops.Connections(own.list)
	further := &recorded{observeOptions: o.observeOptions, notes: notes}
	var ports, protocols, askers []string
	for _, p := range o.newest(legs) {
		last := p.Legs[len(p.Legs)-1]
		if r := last.Record; r.To.Cluster != "" && r.Verdict == record.Allowed {
			if r.To.Port != 0 {
				ports = append(ports, strconv.Itoa(int(r.To.Port)))
			}
			protocols, askers = append(protocols, r.Protocol), append(askers, last.Cluster)
		}
	}
	others := sources
	if askers = compact(askers); len(askers) == 1 {
		others = slices.DeleteFunc(slices.Clone(sources), func(s source) bool { return s.cluster == askers[0] })
	}
	if len(protocols) > 0 && len(others) > 0 {
		query = url.Values{"connections": {"true"}, "follow": {"false"}, "since": {o.since},
			"protocol": compact(protocols)}
		if len(ports) > 0 && !slices.Contains(protocols, "ICMP") && !slices.Contains(protocols, "ICMPv6") {
			query["port"] = compact(ports)
		}
		if err := read(ctx, others, query, further, notes); err != nil {
			return err
		}
	}
	return o.show(o.newest(hops.Connections(own.with(further))), out, notes)
}

func compact(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// newest returns the newest paths of the client.
func (o pathOptions) newest(paths []hops.ConnectionPath) []hops.ConnectionPath {
	paths = slices.DeleteFunc(slices.Clone(paths), func(p hops.ConnectionPath) bool {
		from := p.Legs[0].Record.From
		return !from.Is(o.client) || o.port != 0 && from.Port != o.port
	})
	return paths[max(0, len(paths)-o.last):]
}

// await makes agents record connections, until the client has opened one and the records of the other Nodes have
// arrived.
func (o pathOptions) await(ctx context.Context, sources []source, notes io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	query, err := o.query()
	if err != nil {
		return err
	}
	query.Del("since")
	query.Set("follow", "true")
	query.Set("last", "0")
	err = read(ctx, sources, query, &awaited{options: o}, notes)
	if err != nil && !errors.Is(err, errCame) && ctx.Err() == nil {
		return err
	}
	return nil
}

// errCame ends the wait for a connection.
var errCame = errors.New("a connection has come")

// awaited ends the reading some time after a record of the client has come.
type awaited struct {
	options pathOptions
	until   time.Time
}

func (a *awaited) add(_ string, e record.Event) error {
	r := e.Record()
	if r != nil && e.End == nil && a.until.IsZero() && (a.options.port == 0 || r.From.Port == a.options.port) {
		a.until = time.Now().Add(pathsWait)
	}
	return nil
}

func (a *awaited) tick(now time.Time) error {
	if !a.until.IsZero() && now.After(a.until) {
		return errCame
	}
	return nil
}

func (a *awaited) end() error { return nil }

// recorded keeps events for hops.Connections, the newest ones.
type recorded struct {
	observeOptions
	list  []hops.Recorded
	notes io.Writer
}

func (r *recorded) add(cluster string, e record.Event) error {
	if e.Record() == nil {
		return r.print(e, r.notes, r.notes)
	}
	if r.list = append(r.list, hops.Recorded{Cluster: cluster, Event: e}); len(r.list) > 2*maxRecorded {
		r.list = slices.Delete(r.list, 0, maxRecorded)
	}
	return nil
}

func (r *recorded) tick(time.Time) error { return nil }
func (r *recorded) end() error           { return nil }

// with returns the records of both. A record that both have is returned once.
func (r *recorded) with(o *recorded) []hops.Recorded {
	key := func(r hops.Recorded) string {
		text, _ := json.Marshal(r)
		return string(text)
	}
	all := map[string]bool{}
	for _, have := range r.list {
		all[key(have)] = true
	}
	out := slices.Clone(r.list)
	for _, more := range o.list {
		if !all[key(more)] {
			out = append(out, more)
		}
	}
	return out
}

// show prints paths.
func (o pathOptions) show(paths []hops.ConnectionPath, out, notes io.Writer) error {
	if o.output == "json" {
		lines := json.NewEncoder(out)
		for _, p := range paths {
			if err := lines.Encode(p); err != nil {
				return err
			}
		}
		return nil
	}
	if len(paths) == 0 {
		_, err := fmt.Fprintf(notes, "no Node has a record of a connection of %s since %s: have connections recorded with "+
			"--wait 1m while the client opens one\n", o.client, o.since)
		return err
	}
	for i, p := range paths {
		text := pathText(p)
		if i > 0 {
			text = "\n" + text
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	return nil
}

// pathText is a path in lines of text.
func pathText(p hops.ConnectionPath) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(strings.Map(printable, fmt.Sprintf(format, args...)) + "\n")
	}
	first := p.Legs[0].Record
	line("%s %s %s", clock(first.Time), first.Protocol, endText(first.From))
	for i, l := range p.Legs {
		r, nodes := l.Record, strings.Join(l.Nodes, ", ")
		if nodes == "" {
			nodes = "(hidden)"
		}
		cluster := ""
		if l.Cluster != "" {
			cluster = l.Cluster + ": "
		}
		line("%d. %s%s", i+1, cluster, nodes)
		asked := ""
		if r.Asked != "" {
			asked = r.Asked + " "
			if r.Service != "" {
				asked += "(Service " + r.Service + ") "
			}
			asked += "as "
		}
		line("   %s -> %s%s", endText(r.From), asked, endText(r.To))
		for _, by := range []struct {
			word string
			rule *record.Rule
		}{{"out by", r.Egress}, {"in by", r.Ingress}} {
			if by.rule != nil {
				line("   %s %s %s", by.word, by.rule.Policy, by.rule.Name)
			}
		}
		if r.To.Cluster != "" {
			way := ""
			if r.Way != "" {
				way = ", by way " + r.Way
			}
			line("   -> cluster %s%s", r.To.Cluster, way)
		}
		if l.Candidates > 1 {
			line("   %d connections could be the next one; this is the nearest in time", l.Candidates)
		}
	}
	life := ""
	for _, l := range slices.Backward(p.Legs) {
		if l.Record.Life != nil {
			life = ", ended" + lifeText(*l.Record.Life)
		}
	}
	line("=> %s%s", p.End.Text, life)
	return b.String()
}
