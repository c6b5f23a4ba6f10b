package node

import (
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
	cmd := &cobra.Command{
		Use:   "trace FLOW",
		Short: "Follow one packet through this Node's tables",
		Long: "Follow one packet through this Node's tables (ofproto/trace), with tables by name.\n\n" +
			"FLOW is ovs-ofctl's text; ports may be named, see `tombolo get ports`.",
		Example: "  tombolo trace in_port=web-5d8f-a9993e,tcp,nw_src=10.10.1.2,nw_dst=10.96.0.10,nw_ttl=64,tp_dst=53",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf(
					"trace takes one FLOW without blanks, such as in_port=antrea-gw0,tcp,nw_dst=10.96.0.10,tp_dst=53; it got %d words",
					len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var t api.Trace
			if err := n.ask(cmd.Context(), api.PathTrace, url.Values{"flow": {args[0]}}, &t); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), t, func() error {
				text := t.Output
				if !raw {
					text = readable(t.Output, t.Tables)
				}
				_, err := fmt.Fprint(cmd.OutOrStdout(), text)
				return err
			})
		},
	}
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
