package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func diffFlows() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "diff SOURCE SOURCE",
		Short: "Compare the flows of two switches or files; exit with 2 where they differ",
		Long: "Compare the flows of two sources, as `ovs-ofctl diff-flows` does: a flow that only the first\n" +
			"has is shown after -, one that only the second has after +, and one whose cookie, timeouts,\n" +
			"flags, importance or actions differ in both ways. The exit code is 0 where they are the same,\n" +
			"2 where they differ and 1 after an error.\n\n" +
			"A SOURCE is a file of flows, - for standard input, or a TARGET. A word that names both a file\n" +
			"and a bridge is the file.\n" + targetHelp,
		Example: "  tombolo openflow diff br-int flows.txt\n" +
			"  tombolo openflow diff br-int tcp:192.0.2.7\n" +
			"  tombolo openflow dump br-int > before; ...; tombolo openflow diff before br-int",
		Args: words("diff", "SOURCE", "SOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && args[1] == "-" {
				return errors.New("only one of the two can be standard input")
			}
			a, err := t.source(cmd, args[0])
			if err != nil {
				return err
			}
			b, err := t.source(cmd, args[1])
			if err != nil {
				return err
			}
			list := compareSets(a, b)
			if err := writeChanges(cmd.OutOrStdout(), list); err != nil {
				return err
			}
			if len(list) > 0 {
				return exitCode(2)
			}
			return nil
		},
	}
	t.flags(cmd)
	return cmd
}

// source reads the flows of a file or a switch.
func (t *target) source(cmd *cobra.Command, name string) (flowSet, error) {
	if name == "-" {
		return readFile(cmd, name)
	}
	if !ofconn.IsTarget(name) {
		if info, err := os.Stat(name); err == nil && info.Mode().Type()&os.ModeSocket == 0 {
			return readFile(cmd, name)
		}
	}
	conn, ctx, cancel, err := t.connect(cmd.Context(), name, nil)
	if err != nil {
		if !ofconn.IsTarget(name) && errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s is neither a file nor a switch: %w", name, err)
		}
		return nil, err
	}
	defer cancel()
	defer conn.Close()
	return readSet(ctx, conn)
}

// changed is one flow that two sets do not have in common: had by the first, wanted by the
// second, one of them nil where there is none.
type changed struct{ have, want *flow.Flow }

func (c changed) key() flow.Key {
	if c.have != nil {
		return c.have.Key()
	}
	return c.want.Key()
}

// compareSets is what differs, by table, falling priority and match.
func compareSets(have, want flowSet) []changed {
	var list []changed
	for k, h := range have {
		w, ok := want[k]
		switch {
		case !ok:
			list = append(list, changed{have: &h})
		case !h.Equal(w):
			list = append(list, changed{&h, &w})
		}
	}
	for k, w := range want {
		if _, ok := have[k]; !ok {
			list = append(list, changed{want: &w})
		}
	}
	slices.SortFunc(list, func(a, b changed) int { return flow.CompareKeys(a.key(), b.key()) })
	return list
}

func writeChanges(w io.Writer, list []changed) error {
	var out bytes.Buffer
	for _, c := range list {
		if c.have != nil {
			fmt.Fprintf(&out, "-%s\n", c.have)
		}
		if c.want != nil {
			fmt.Fprintf(&out, "+%s\n", c.want)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

func replaceFlows() *cobra.Command {
	var (
		t      target
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "replace TARGET FILE",
		Short: "Make a switch's flows those of a file, in one atomic bundle",
		Long: "Make a switch's flows those of a file, in one atomic bundle: no packet meets some of the new\n" +
			"flows and some of the old. What changes is shown as `diff` shows it; flows that are the same\n" +
			"already are left alone and keep their counters, as do those of which only the actions change.\n" +
			"Where the switch refuses a flow it is named with the switch's reason, and nothing is changed.\n\n" +
			"FILE has one flow a line, as for `ovs-ofctl add-flows`; - is standard input.\n" + targetHelp,
		Example: "  tombolo openflow replace br-int flows.txt\n" +
			"  tombolo openflow replace --dry-run br-int flows.txt\n" +
			"  tombolo openflow dump tcp:192.0.2.7 | tombolo openflow replace br-int -",
		Args: words("replace", "TARGET", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := readFile(cmd, args[1])
			if err != nil {
				return err
			}
			conn, ctx, cancel, err := t.connect(cmd.Context(), args[0], nil)
			if err != nil {
				return err
			}
			defer cancel()
			defer conn.Close()
			have, err := readSet(ctx, conn)
			if err != nil {
				return err
			}
			list := compareSets(have, want)
			if len(list) > 0 && !dryRun {
				if err := conn.Bundle(ctx, messages(list)); err != nil {
					return refused(list, err)
				}
			}
			return writeChanges(cmd.OutOrStdout(), list)
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would change")
	return cmd
}

// messages are the flow-mods of changes, one each. A modification in place keeps counters but
// writes no cookie, timeouts and flags, so that these need the flow to be added again.
func messages(list []changed) []ofp.Message {
	out := make([]ofp.Message, len(list))
	for i, c := range list {
		switch {
		case c.want == nil:
			out[i] = c.have.Mod(ofp.FlowDeleteStrict)
		case c.have != nil && onlyActions(*c.have, *c.want):
			out[i] = c.want.Mod(ofp.FlowModifyStrict)
		default:
			out[i] = c.want.Mod(ofp.FlowAdd)
		}
	}
	return out
}

func onlyActions(a, b flow.Flow) bool {
	a.Actions = b.Actions
	return a.Equal(b)
}

// refused names the flow that the switch does not take.
func refused(list []changed, err error) error {
	var bad *ofconn.BundleError
	if !errors.As(err, &bad) {
		return fmt.Errorf("the switch may have changed or not: %w", err)
	}
	if bad.Index < 0 || bad.Index >= len(list) {
		return fmt.Errorf("nothing is changed: %w", err)
	}
	c := list[bad.Index]
	if c.want == nil {
		return fmt.Errorf("nothing is changed: the removal of the flow %q is refused: %w", c.have, bad.Err)
	}
	return fmt.Errorf("nothing is changed: the flow %q is refused: %w", c.want, bad.Err)
}
