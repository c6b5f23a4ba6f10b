package cli

import "github.com/spf13/cobra"

// ExitCodes returns the help topic exit-codes. The reference has it too.
func ExitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "Exit codes of all commands",
		Long: `Exit codes of all commands.

0  The command has done its task, and has found no fault.
1  The command has failed, and has printed the error. Or its answer has a fault:
   check               a Node's network is not ready
   diagnose            a check failed
   gather              the bundle is not complete, after an interrupt or on a full disk
   get, explain        of several Nodes one has not answered
   mc verify           a check failed
   policy why --trace  the switch disagrees
   status              a cluster has a fault
   version             agents have other versions than the command, or have not answered
2  openflow diff: the flows differ.

Skipped and unknown checks do not count. An interrupt ends a command with 1, except observe --follow and capture, which
end that way.`,
	}
}
