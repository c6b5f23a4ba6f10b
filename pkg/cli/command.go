// Package cli has the common parts of all commands of the program tombolo: running commands, refusing unknown words and
// printing answers.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// ExitCode is an error that ends the program with this code and prints nothing: the command has printed its result.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// Root returns the command of a program. It has no commands below it yet.
func Root(name, short string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, SilenceUsage: true, SilenceErrors: true}
}

// Group returns a command that only has subcommands. Without arguments it prints its help. An argument that names no
// subcommand is an error, which lists the subcommands.
func Group(name, short string, below ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: name, Short: short, Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(below...)
	return group
}

// noCommand refuses words. The error lists the commands.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return fmt.Errorf("%s does not know %q; it knows %s", cmd.CommandPath(), args[0], strings.Join(known, ", "))
}

// Words checks that a command gets as many arguments as it has names for.
func Words(name string, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return fmt.Errorf("%s needs %s; it got %d words", name, strings.Join(names, " and "), len(args))
		}
		return nil
	}
}

// Run runs a program's command with its arguments and returns the exit code. It prints errors to stderr.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	if root.Version != "" && root.Flags().Lookup("version") == nil {
		root.Flags().BoolP("version", "v", false, "print the version of this command")
		HideShorthands(root.Flags(), "version") // -v is --verbose
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code ExitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(stderr, "%s: %v\n", root.DisplayName(), err)
	return 1
}
