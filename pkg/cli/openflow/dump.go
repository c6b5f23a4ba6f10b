package openflow

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofprint"
)

func dumpSwitch() *cobra.Command {
	var (
		t              target
		table          string
		groups, meters bool
		all, stats     bool
		showNames      bool
	)
	cmd := &cobra.Command{
		Use:   "dump TARGET",
		Short: "Show a switch's flows, groups and meters in canonical form, sorted",
		Long: "Show a switch's flows in canonical form, sorted by table, falling priority and match. The\n" +
			"output is what `replace`, `diff` and `ovs-ofctl add-flows` read, unless --names is given.\n" +
			"Meters and groups are shown as `diff --all` and `replace --all` read them.\n\n" + targetHelp,
		Example: "  tombolo openflow dump br-int\n" +
			"  tombolo openflow dump br-int --table 2 --stats\n" +
			"  tombolo openflow dump br-int --names\n" +
			"  tombolo openflow dump tcp:192.0.2.7:6653 --all\n" +
			"  tombolo openflow dump ssl:192.0.2.7 -p sc-privkey.pem -c sc-cert.pem -C cacert.pem",
		Args: cli.Words("dump", "TARGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flows := all || !groups && !meters
			if !flows && (stats || table != "") {
				return errors.New("--stats and --table are about flows: leave them out with --groups and --meters")
			}
			number := ofp.TableAll
			if table != "" {
				n, err := strconv.ParseUint(table, 0, 8)
				if err != nil || n == uint64(ofp.TableAll) {
					return fmt.Errorf("--table %s: want a number from 0 to 254", table)
				}
				number = ofp.Table(n)
			}
			conn, ctx, cancel, err := t.connect(cmd.Context(), args[0], nil)
			if err != nil {
				return err
			}
			defer cancel()
			defer conn.Close()
			var names *flow.Names
			if showNames {
				if names, err = readNames(ctx, conn); err != nil {
					return err
				}
			}
			var out bytes.Buffer
			if meters || all {
				list, err := readMeters(ctx, conn)
				if err != nil {
					return err
				}
				slices.SortFunc(list, func(a, b flow.Meter) int { return cmp.Compare(a.ID, b.ID) })
				for _, m := range list {
					fmt.Fprintln(&out, meterLine(m))
				}
			}
			if groups || all {
				list, err := readGroups(ctx, conn)
				if err != nil {
					return err
				}
				slices.SortFunc(list, func(a, b flow.Group) int { return cmp.Compare(a.ID, b.ID) })
				for _, g := range list {
					fmt.Fprintln(&out, names.Group(g))
				}
			}
			if flows {
				list, err := readFlows(ctx, conn, number)
				if err != nil {
					return err
				}
				slices.SortFunc(list, func(a, b ofp.FlowDesc) int {
					return flow.CompareKeys(flow.FromStats(a).Key(), flow.FromStats(b).Key())
				})
				for _, d := range list {
					if stats {
						out.WriteString(withStats(names, d))
					} else {
						out.WriteString(names.Flow(flow.FromStats(d)))
					}
					out.WriteByte('\n')
				}
			}
			_, err = cmd.OutOrStdout().Write(out.Bytes())
			return err
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&table, "table", "", "only the flows of this table")
	f.BoolVar(&groups, "groups", false, "groups instead of flows")
	f.BoolVar(&meters, "meters", false, "meters instead of flows")
	f.BoolVar(&all, "all", false, "meters, groups and flows")
	f.BoolVar(&showNames, "names", false,
		"the switch's names of ports and tables instead of numbers: for people, not for replace and diff")
	f.BoolVar(&stats, "stats", false, "counters and ages of flows, as ovs-ofctl dump-flows shows them")
	return cmd
}

// withStats is a flow as ovs-ofctl dump-flows shows it.
func withStats(names *flow.Names, d ofp.FlowDesc) string {
	options := ofprint.Options{Verbosity: ofprint.DefaultVerbosity, Names: names}
	text := options.Append(nil, 0, ofp.FlowDescReply{Flows: []ofp.FlowDesc{d}})
	_, line, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}
