package openflow

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func monitorSwitch() *cobra.Command {
	var (
		t       target
		table   string
		match   string
		initial bool
		times   bool
	)
	cmd := &cobra.Command{
		Use:   "monitor TARGET",
		Short: "Show every change of a switch's flows as it happens",
		Long: "Show every change of a switch's flows as it happens, one line each, until interrupted.\n\n" +
			"A line has the event (INITIAL, ADDED, MODIFIED, DELETED with its reason) and the flow. Flags\n" +
			"and importance are not in what a switch reports. PAUSED and RESUMED enclose a time for which\n" +
			"the switch has dropped reports since they were not read fast enough.\n\n" + targetHelp,
		Example: "  tombolo openflow monitor br-int\n" +
			"  tombolo openflow monitor br-int --initial --table 3 --match tcp,tp_dst=80",
		Args: cli.Words("monitor", "TARGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := ofp.FlowMonitorRequest{
				ID: 1, Table: ofp.TableAll, OutPort: ofp.PortAny, OutGroup: ofp.GroupAny,
				Flags: ofp.MonitorAdd | ofp.MonitorRemoved | ofp.MonitorModify | ofp.MonitorActions,
			}
			if initial {
				request.Flags |= ofp.MonitorInitial
			}
			if table != "" {
				n, err := strconv.ParseUint(table, 0, 8)
				if err != nil || n == uint64(ofp.TableAll) {
					return fmt.Errorf("--table %s: want a number from 0 to 254", table)
				}
				request.Table = ofp.Table(n)
			}
			m, err := flow.ParseMatch(match)
			if err != nil {
				return fmt.Errorf("--match: %w", err)
			}
			request.Match = m.OXM()
			return t.monitor(cmd.Context(), args[0], request, &changes{w: cmd.OutOrStdout(), times: times})
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&initial, "initial", false, "begin with the flows that are there")
	f.StringVar(&table, "table", "", "only this table")
	f.StringVar(&match, "match", "", "only flows whose match is this one or narrower")
	f.BoolVar(&times, "timestamps", false, "the time before every line")
	return cmd
}

// monitor prints what the switch reports until ctx ends.
func (t *target) monitor(ctx context.Context, name string, request ofp.FlowMonitorRequest, out *changes) error {
	// Reports are queued, and printed here: the connection's reader must not wait for a slow
	// terminal.
	reports := make(chan []ofp.FlowUpdate, 1024)
	conn, within, cancel, err := t.connect(ctx, name, func(_ uint32, m ofp.Message) {
		if r, ok := m.(ofp.FlowMonitorReply); ok {
			select {
			case reports <- r.Updates:
			case <-ctx.Done():
			}
		}
	})
	if err != nil {
		return err
	}
	defer cancel()
	defer conn.Close()
	var first []ofp.FlowUpdate
	err = ask(within, conn, "changes of flows", request,
		func(r ofp.FlowMonitorReply) { first = append(first, r.Updates...) })
	if err != nil {
		return err
	}
	if err := out.print(first); err != nil {
		return err
	}
	for {
		select {
		case list := <-reports:
			if err := out.print(list); err != nil {
				return err
			}
		case <-conn.Done():
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s: the connection has ended: %w", name, conn.Err())
		case <-ctx.Done(): // interrupted, which is how this command ends
			return nil
		}
	}
}

// changes prints reports.
type changes struct {
	w     io.Writer
	times bool
}

var (
	updateNames  = []string{"INITIAL", "ADDED", "DELETED", "MODIFIED", "ABBREV", "PAUSED", "RESUMED"}
	removedNames = []string{"idle", "hard", "delete", "group_delete", "meter_delete", "eviction"}
)

func (c *changes) print(list []ofp.FlowUpdate) error {
	var out bytes.Buffer
	for _, u := range list {
		if c.times {
			out.WriteString(time.Now().Format("15:04:05.000 "))
		}
		out.WriteString(changeText(u) + "\n")
	}
	_, err := c.w.Write(out.Bytes())
	return err
}

func changeText(u ofp.FlowUpdate) string {
	text := fmt.Sprintf("event=%d", u.Event)
	if int(u.Event) < len(updateNames) {
		text = "event=" + updateNames[u.Event]
	}
	switch u.Event {
	case ofp.UpdateAbbrev:
		return fmt.Sprintf("%s xid=0x%x", text, u.XID)
	case ofp.UpdatePaused, ofp.UpdateResumed:
		return text
	case ofp.UpdateRemoved:
		if int(u.Reason) < len(removedNames) {
			text += " reason=" + removedNames[u.Reason]
		} else {
			text += fmt.Sprintf(" reason=%d", u.Reason)
		}
	}
	return text + " " + flow.FromUpdate(u).String()
}
