package openflow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func replaceFlows() *cobra.Command {
	var (
		t           target
		all, dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "replace TARGET FILE",
		Short: "Replace a switch's flows with the flows of a file, in one atomic bundle",
		Long: "Replace a switch's flows with the flows of a file, in one atomic bundle: no packet meets some of the new\n" +
			"flows and some of the old. What changes is shown as `diff` shows it; flows that are the same\n" +
			"already are left alone and keep their counters, as do flows of which only the actions change.\n" +
			"Where the switch refuses a flow it is named with the switch's reason, and nothing is changed.\n\n" +
			"With --all groups and meters are replaced too, groups in the same bundle.\n" +
			"Open vSwitch takes no meters in bundles: new and changed ones come before it, and go back where\n" +
			"it is refused; others are removed after it.\n\n" +
			"FILE has one flow a line, as for `ovs-ofctl add-flows`, and with --all one group or meter a line,\n" +
			"as `dump --all` shows them; - is standard input.\n" + targetHelp,
		Example: "  tombolo openflow replace br-int flows.txt\n" +
			"  tombolo openflow replace --dry-run br-int flows.txt\n" +
			"  tombolo openflow dump --all tcp:192.0.2.7 | tombolo openflow replace --all br-int -",
		Args: cli.Words("replace", "TARGET", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := readFile(cmd, args[1], all)
			if err != nil {
				return err
			}
			conn, ctx, cancel, err := t.connect(cmd.Context(), args[0], nil)
			if err != nil {
				return err
			}
			defer cancel()
			defer conn.Close()
			have, err := readSwitch(ctx, conn, all)
			if err != nil {
				return err
			}
			d := compare(have, want)
			if !d.empty() && !dryRun {
				if err := d.apply(ctx, conn); err != nil {
					return err
				}
			}
			return d.write(cmd.OutOrStdout())
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would change")
	cmd.Flags().BoolVar(&all, "all", false, "meters, groups and flows")
	return cmd
}

// apply changes a switch. It adds a group before the flows that refer to it, and removes it after them. A switch that
// removes a group also removes the flows that still use it.
func (d differences) apply(ctx context.Context, conn *ofconn.Conn) error {
	var before, after []changed
	for _, c := range d.meters {
		if c.want == "" {
			after = append(after, c)
		} else {
			before = append(before, c)
		}
	}
	if err := setMeters(ctx, conn, before); err != nil {
		return err
	}
	if err := d.bundle(ctx, conn); err != nil {
		var refused *ofconn.BundleError
		if !errors.As(err, &refused) { // the switch may have changed, and flows use the meters
			return fmt.Errorf("the switch may have changed or not: %w", err)
		}
		return errors.Join(d.refused(refused), undoMeters(ctx, conn, before))
	}
	refused, err := conn.Each(ctx, todo(after))
	if err != nil {
		return fmt.Errorf("all but the removal of meters is done; whether that is, is not known: %w", err)
	}
	var bad []error
	for i, err := range refused {
		if err != nil {
			bad = append(bad, fmt.Errorf("all else is done, but the removal of the meter %q is refused: %w", after[i].have, err))
		}
	}
	return errors.Join(bad...)
}

func todo(list []changed) []ofp.Message {
	out := make([]ofp.Message, len(list))
	for i, c := range list {
		out[i] = c.do
	}
	return out
}

// setMeters adds the meters that the flows of the bundle may use. After an error it removes the meters that it has
// added.
func setMeters(ctx context.Context, conn *ofconn.Conn, list []changed) error {
	refused, err := conn.Each(ctx, todo(list))
	if err != nil {
		return fmt.Errorf("meters may have changed or not, all else has not: %w", err)
	}
	var done []changed
	var bad []error
	for i, c := range list {
		if refused[i] == nil {
			done = append(done, c)
			continue
		}
		bad = append(bad, fmt.Errorf("nothing is changed: the meter %q is refused: %w", c.want, refused[i]))
	}
	if len(bad) == 0 {
		return nil
	}
	return errors.Join(append(bad, undoMeters(ctx, conn, done))...)
}

// undoMeters brings meters back to what they were.
func undoMeters(ctx context.Context, conn *ofconn.Conn, list []changed) error {
	undo := make([]ofp.Message, len(list))
	for i, c := range list {
		undo[i] = c.undo
	}
	refused, err := conn.Each(ctx, undo)
	if err != nil {
		return fmt.Errorf("whether meters are as they were is not known: %w", err)
	}
	var bad []error
	for i, err := range refused {
		if err != nil {
			bad = append(bad, fmt.Errorf("the meter %q could not be taken back: %w", list[i].want, err))
		}
	}
	return errors.Join(bad...)
}

// bundled is what goes into the bundle, in order.
func (d differences) bundled() []changed {
	var list, gone []changed
	for _, c := range d.groups {
		if c.want == "" {
			gone = append(gone, c)
		} else {
			list = append(list, c)
		}
	}
	return slices.Concat(list, d.flows, gone)
}

// bundle changes groups and flows.
func (d differences) bundle(ctx context.Context, conn *ofconn.Conn) error {
	list := d.bundled()
	if len(list) == 0 {
		return nil
	}
	return conn.Bundle(ctx, todo(list))
}

// refused names the entry that the switch does not take.
func (d differences) refused(bad *ofconn.BundleError) error {
	list := d.bundled()
	if bad.Index < 0 || bad.Index >= len(list) {
		return fmt.Errorf("nothing is changed: %w", bad)
	}
	c := list[bad.Index]
	if c.want == "" {
		return fmt.Errorf("nothing is changed: the removal of the %s %q is refused: %w", c.what, c.have, bad.Err)
	}
	return fmt.Errorf("nothing is changed: the %s %q is refused: %w", c.what, c.want, bad.Err)
}
