package openflow

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
)

func diffFlows() *cobra.Command {
	var (
		t   target
		all bool
	)
	cmd := &cobra.Command{
		Use:   "diff SOURCE SOURCE",
		Short: "Compare the flows of two switches or files; exit with 2 where they differ",
		Long: "Compare the flows of two sources, as `ovs-ofctl diff-flows` does: a flow that only the first\n" +
			"has is shown after -, one that only the second has after +, and one whose cookie, timeouts,\n" +
			"flags, importance or actions differ in both ways. The exit code is 0 where they are the same,\n" +
			"2 where they differ and 1 after an error. With --all groups and meters are compared too, as\n" +
			"`dump --all` shows them.\n\n" +
			"A SOURCE is a file, - for standard input, or a TARGET. A word that names both a file\n" +
			"and a bridge is the file.\n" + targetHelp,
		Example: "  tombolo openflow diff br-int flows.txt\n" +
			"  tombolo openflow diff br-int tcp:192.0.2.7\n" +
			"  tombolo openflow dump br-int > before; ...; tombolo openflow diff before br-int",
		Args: cli.Words("diff", "SOURCE", "SOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && args[1] == "-" {
				return errors.New("only one of the two can be standard input")
			}
			a, err := t.source(cmd, args[0], all)
			if err != nil {
				return err
			}
			b, err := t.source(cmd, args[1], all)
			if err != nil {
				return err
			}
			d := compare(a, b)
			if err := d.write(cmd.OutOrStdout()); err != nil {
				return err
			}
			if !d.empty() {
				return cli.ExitCode(2)
			}
			return nil
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "meters, groups and flows")
	return cmd
}

// source reads what a file or a switch holds.
func (t *target) source(cmd *cobra.Command, name string, all bool) (contents, error) {
	if name == "-" {
		return readFile(cmd, name, all)
	}
	if !ofconn.IsTarget(name) {
		if info, err := os.Stat(name); err == nil && info.Mode().Type()&os.ModeSocket == 0 {
			return readFile(cmd, name, all)
		}
	}
	conn, ctx, cancel, err := t.connect(cmd.Context(), name, nil)
	if err != nil {
		if !ofconn.IsTarget(name) && errors.Is(err, os.ErrNotExist) {
			return contents{}, fmt.Errorf("%s is neither a file nor a switch: %w", name, err)
		}
		return contents{}, err
	}
	defer cancel()
	defer conn.Close()
	return readSwitch(ctx, conn, all)
}
