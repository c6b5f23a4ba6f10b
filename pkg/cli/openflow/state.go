package openflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// contents is the state of a switch or a file. Unlike flow.Set it accepts all entries of a switch. If two entries of a
// file have one identity, the second replaces the first, as in a switch.
type contents struct {
	flows  map[flow.Key]flow.Flow
	groups map[uint32]flow.Group
	meters map[uint32]flow.Meter
}

func newContents() contents {
	return contents{map[flow.Key]flow.Flow{}, map[uint32]flow.Group{}, map[uint32]flow.Meter{}}
}

// readSwitch reads a switch's flows and, with all, its groups and meters.
func readSwitch(ctx context.Context, conn *ofconn.Conn, all bool) (contents, error) {
	c := newContents()
	list, err := readFlows(ctx, conn, ofp.TableAll)
	if err != nil {
		return c, err
	}
	for _, d := range list {
		f := flow.FromStats(d)
		c.flows[f.Key()] = f
	}
	if !all {
		return c, nil
	}
	groups, err := readGroups(ctx, conn)
	if err != nil {
		return c, err
	}
	for _, g := range groups {
		c.groups[g.ID] = g
	}
	meters, err := readMeters(ctx, conn)
	for _, m := range meters {
		c.meters[m.ID] = m
	}
	return c, err
}

// readFile reads the flows of a file. The path - stands for standard input. If all is set, it reads groups and meters
// too.
func readFile(cmd *cobra.Command, path string, all bool) (contents, error) {
	c := newContents()
	var (
		bad   []error
		meter string // whose bands follow on lines of their own, as ovs-ofctl dump-meters prints them
		at    place
	)
	take := func(where place, text string) {
		if err := c.line(cmd, where, text, all); err != nil {
			bad = append(bad, err)
		}
	}
	end := func() {
		if meter != "" {
			take(at, meter)
			meter = ""
		}
	}
	err := eachLine(cmd, path, func(where place, text string) error {
		if meter != "" && strings.HasPrefix(text, "type=") && !strings.Contains(text, "group_id=") {
			meter += " " + text
			return nil
		}
		end()
		if strings.HasPrefix(text, "meter=") && strings.HasSuffix(text, "bands=") {
			meter, at = text, where
			return nil
		}
		take(where, text)
		return nil
	})
	end()
	return c, errors.Join(append(bad, err)...)
}

// line reads a line of a file: a flow, a group or a meter. It recognizes groups and meters by words that do not occur
// in flows.
func (c contents) line(cmd *cobra.Command, where place, text string, all bool) error {
	kind := "flow"
	switch trimmed := strings.TrimLeft(text, " \t"); {
	case strings.HasPrefix(trimmed, "meter") || strings.Contains(text, "bands=") || strings.Contains(text, "band="):
		kind = "meter"
	case strings.Contains(text, "group_id="):
		kind = "group"
	}
	switch {
	case kind == "flow":
		f, err := parseFlow(cmd, where, text)
		if err == nil {
			c.flows[f.Key()] = f
		}
		return err
	case !all:
		return fmt.Errorf("%s: %q is a %s: --all takes groups and meters too", where, strings.TrimSpace(text), kind)
	case kind == "meter":
		m, err := flow.ParseMeter(text)
		if err == nil {
			c.meters[m.ID] = m
		}
		return inFile(where, err)
	default:
		g, err := flow.ParseGroup(text)
		if err == nil {
			c.groups[g.ID] = g
		}
		return inFile(where, err)
	}
}

// inFile adds the line to an error about a line that could not be read.
func inFile(where place, err error) error {
	var bad *flow.ParseError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad) && where.line > 0: // its line is the file's
		bad.Line = where.line
		return fmt.Errorf("%s: %w", where.name, bad)
	}
	return fmt.Errorf("%s: %w", where, err)
}

// changed is one entry that differs between two sources: have is the first source's, and want the second's. An entry
// that a source lacks is "".
type changed struct {
	what       string // "flow", "group" or "meter"
	have, want string
	do, undo   ofp.Message
}

// differences are the changes from one source to another, each list in the order of dump.
type differences struct{ meters, groups, flows []changed }

func (d differences) empty() bool { return len(d.meters)+len(d.groups)+len(d.flows) == 0 }

// compare is what differs.
func compare(have, want contents) differences {
	return differences{
		meters: listChanges(have.meters, want.meters, cmp.Compare[uint32], flow.Meter.Equal, changedMeter),
		groups: listChanges(have.groups, want.groups, cmp.Compare[uint32], flow.Group.Equal, changedGroup),
		flows:  listChanges(have.flows, want.flows, flow.CompareKeys, flow.Flow.Equal, changedFlow),
	}
}

// listChanges are the changes from one map to another, in the order of keys.
func listChanges[K comparable, V any](have, want map[K]V, order func(a, b K) int, equal func(a, b V) bool,
	change func(have, want *V) changed) []changed {
	var list []changed
	flow.Compare(have, want, order, equal, func(h, w *V) { list = append(list, change(h, w)) })
	return list
}

// changedFlow makes one flow-mod. A modification in place keeps counters, but does not change cookie, timeouts and
// flags. So a flow with a change of these is added again.
func changedFlow(have, want *flow.Flow) changed {
	c := changed{what: "flow"}
	if have != nil {
		c.have = have.String()
	}
	if want != nil {
		c.want = want.String()
	}
	switch {
	case want == nil:
		c.do = have.Mod(ofp.FlowDeleteStrict)
	case have != nil && onlyActions(*have, *want):
		c.do = want.Mod(ofp.FlowModifyStrict)
	default:
		c.do = want.Mod(ofp.FlowAdd)
	}
	return c
}

func onlyActions(a, b flow.Flow) bool {
	a.Actions = b.Actions
	return a.Equal(b)
}

func changedGroup(have, want *flow.Group) changed {
	c := changed{what: "group"}
	if have != nil {
		c.have, c.do = have.String(), have.Mod(ofp.GroupDelete)
	}
	if want != nil {
		c.want, c.do = want.String(), want.Mod(ofp.GroupModify)
	}
	if have == nil {
		c.do = want.Mod(ofp.GroupAdd)
	}
	return c
}

func changedMeter(have, want *flow.Meter) changed {
	c := changed{what: "meter"}
	switch {
	case have == nil:
		c.want, c.do, c.undo = meterLine(*want), want.Mod(ofp.MeterAdd), want.Mod(ofp.MeterDelete)
	case want == nil:
		c.have, c.do, c.undo = meterLine(*have), have.Mod(ofp.MeterDelete), have.Mod(ofp.MeterAdd)
	default:
		c.have, c.want, c.do, c.undo = meterLine(*have), meterLine(*want), want.Mod(ofp.MeterModify),
			have.Mod(ofp.MeterModify)
	}
	return c
}

// meterLine is a meter on one line; bands stand on lines of their own in ovs-ofctl's text.
func meterLine(m flow.Meter) string { return strings.ReplaceAll(m.String(), "\n", " ") }

// write shows meters, groups and flows: - what the first has, + what the second has.
func (d differences) write(w io.Writer) error {
	var out strings.Builder
	for _, list := range [][]changed{d.meters, d.groups, d.flows} {
		for _, c := range list {
			if c.have != "" {
				fmt.Fprintf(&out, "-%s\n", c.have)
			}
			if c.want != "" {
				fmt.Fprintf(&out, "+%s\n", c.want)
			}
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
