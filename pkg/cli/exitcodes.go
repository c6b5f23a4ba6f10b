package cli

import "github.com/spf13/cobra"

// ExitCodes returns the help topic exit-codes. docs/cli.md has the same table.
func ExitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "Exit codes of all commands",
		Long: `Exit codes of all commands.

0  The command has done what it is for, and has found no fault.
1  The command has failed, and has printed the error. Or it has printed its answer, and there is a fault in it:
   check        a Node's network is not ready
   diagnose     a check failed
   gather       the bundle is not complete, after an interrupt or on a full disk
   get, explain a Node has not answered, of several
   mc verify    a check failed
   policy why   the switch disagrees, with --trace
   status       a cluster has a fault
   version      a cluster's agents have other versions, or have not answered
2  openflow diff: the flows differ.

Skipped and unknown checks do not count. An interrupt ends a command with 1, except where it is the usual end, as of
observe --follow and capture.`,
	}
}
