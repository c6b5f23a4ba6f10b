package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// Bounds of hints.
const (
	maxHints  = 10      // values of a word, and commands
	maxValues = 100_000 // that are counted
)

// hints counts the values in records for each word of the filters. It proposes commands about dropped packets.
type hints struct {
	observeOptions
	merger     record.Merger
	values     map[hintValue]uint64
	commands   map[hintCommand]uint64
	out, notes io.Writer
}

type hintValue struct{ word, value string }

// hintCommand is a command about packets that were dropped for a reason.
type hintCommand struct{ reason, command string }

// hintList is the answer as JSON.
type hintList struct {
	Filters map[string][]hintRow `json:"filters"`
	Next    []hintRow            `json:"next"`
}

type hintRow struct {
	Value   string `json:"value,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Command string `json:"command,omitempty"`
	Records uint64 `json:"records,omitempty"`
	Packets uint64 `json:"packets,omitempty"`
}

// hints returns the command that shows possible values of filters, and proposes commands to run next.
func (n observer) hints() *cobra.Command {
	o := observeOptions{filters: map[string]*[]string{}, connections: true, since: "1h"}
	cmd := &cobra.Command{
		Use:   "hints",
		Short: "What there is to filter by, and commands about dropped packets",
		Long: "Show the most frequent values of each filter among the records that Nodes have, and a command for each\n" +
			"frequent kind of dropped packets, which shows more about it. Filters limit the records, as with observe.",
		Example: "  tombolo observe hints --from shop/\n  tombolo observe hints --context east,west --since 10m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := o.query()
			if err != nil {
				return err
			}
			sources, err := n.sources(cmd, o)
			if err != nil {
				return err
			}
			return read(cmd.Context(), sources, query, &hints{observeOptions: o, values: map[hintValue]uint64{},
				commands: map[hintCommand]uint64{}, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}, cmd.ErrOrStderr())
		},
	}
	n.filterFlags(cmd, &o)
	return cmd
}

func (h *hints) add(_ string, e record.Event) error {
	if e.Record() == nil {
		return h.print(e, h.notes, h.notes)
	}
	h.merger.Add(e, time.Now())
	if h.merger.Len() >= maxMerged {
		h.take(h.merger.All())
	}
	return nil
}

func (h *hints) tick(time.Time) error { return nil }

func (h *hints) end() error {
	h.take(h.merger.All())
	return h.show()
}

// take counts records.
func (h *hints) take(list []record.Event) {
	for _, e := range list {
		r := e.Record()
		for _, w := range record.Words() {
			for _, value := range r.Values(w[0]) {
				v := hintValue{w[0], value}
				if _, known := h.values[v]; known || len(h.values) < maxValues {
					h.values[v]++
				}
			}
		}
		if e.Drop != nil {
			c := hintCommand{r.Reason, next(r)}
			if _, known := h.commands[c]; known || len(h.commands) < maxValues {
				h.commands[c] += max(1, r.Count)
			}
		}
	}
}

// list returns the most frequent hints.
func (h *hints) list() hintList {
	out := hintList{Filters: map[string][]hintRow{}, Next: []hintRow{}}
	for v, n := range h.values {
		out.Filters[v.word] = append(out.Filters[v.word], hintRow{Value: v.value, Records: n})
	}
	for word, rows := range out.Filters {
		slices.SortFunc(rows, func(x, y hintRow) int {
			return cmp.Or(cmp.Compare(y.Records, x.Records), cmp.Compare(x.Value, y.Value))
		})
		out.Filters[word] = rows[:min(len(rows), maxHints)]
	}
	for c, n := range h.commands {
		out.Next = append(out.Next, hintRow{Reason: c.reason, Command: c.command, Packets: n})
	}
	slices.SortFunc(out.Next, func(x, y hintRow) int {
		return cmp.Or(cmp.Compare(y.Packets, x.Packets), cmp.Compare(x.Command, y.Command))
	})
	out.Next = out.Next[:min(len(out.Next), maxHints)]
	return out
}

func (h *hints) show() error {
	list := h.list()
	if h.output == "json" {
		return json.NewEncoder(h.out).Encode(list)
	}
	if len(list.Filters) == 0 {
		_, err := fmt.Fprintln(h.notes, "no records: drops are recorded at all times, and connections while a reader asks "+
			"with `tombolo observe --follow --connections`")
		return err
	}
	t := cli.Rows{{"FILTER", "RECORDS"}}
	for _, w := range record.Words() {
		for _, row := range list.Filters[w[0]] {
			t.Add("--"+w[0]+" "+shellWord(row.Value), strconv.FormatUint(row.Records, 10))
		}
	}
	if err := t.Write(h.out, "  "); err != nil || len(list.Next) == 0 {
		return err
	}
	t = cli.Rows{{"PACKETS", "REASON", "NEXT"}}
	for _, row := range list.Next {
		t.Add(strconv.FormatUint(row.Packets, 10), strings.Map(printable, row.Reason), strings.Map(printable, row.Command))
	}
	if _, err := fmt.Fprintln(h.out); err != nil {
		return err
	}
	return t.Write(h.out, "  ")
}

// shellWord returns a text as a word for a shell. Users choose names of rules.
func shellWord(text string) string {
	text = strings.Map(printable, text)
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@,") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// next returns the command that shows more about a dropped packet.
func next(r *record.Record) string {
	between := url.Values{}
	add := func(key, value string) {
		if value != "" {
			between.Set(key, value)
		}
	}
	add("from", endName(r.From))
	add("to", endName(r.To))
	if r.To.Port != 0 {
		add("port", strconv.Itoa(int(r.To.Port)))
	}
	if r.Protocol != "TCP" {
		add("protocol", strings.TrimSuffix(strings.ToLower(r.Protocol), "v6"))
	}
	words := ""
	for _, key := range []string{"from", "to", "port", "protocol"} {
		if value := between.Get(key); value != "" {
			words += " --" + key + " " + shellWord(value)
		}
	}
	namespace, name, _ := strings.Cut(r.Service, "/")
	switch {
	case !between.Has("from") || !between.Has("to"): // of ends that the reader may not see
		return "tombolo diagnose"
	case r.Reason == record.ByPolicy, r.Reason == record.Isolated, r.Reason == record.Unknown,
		r.Reason == record.JudgedAgain, r.Reason == record.OtherTenant:
		return "tombolo policy why" + words
	case r.Service != "" && (r.Reason == record.NoEndpoints || r.Reason == record.NoLocal):
		return "kubectl get endpointslices -n " + shellWord(namespace) + " -l kubernetes.io/service-name=" + shellWord(name)
	case r.Service != "" && r.Reason == record.NotAllowed:
		return "kubectl get service -n " + shellWord(namespace) + " " + shellWord(name) + " -o yaml"
	case r.Reason == record.NotExported:
		return "kubectl get serviceexports -A"
	case r.Reason == record.NotAdmitted:
		return "tombolo diagnose"
	}
	return "tombolo trace" + words
}

// endName is an end as commands take it.
func endName(e record.End) string {
	if e.Pod != "" {
		return e.Namespace + "/" + e.Pod
	}
	return e.IP
}
