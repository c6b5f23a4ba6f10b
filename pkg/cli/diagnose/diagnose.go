// Package diagnose has the command diagnose, which finds what is wrong in clusters and between them.
package diagnose

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/diagnose"
)

// report is the answer with -o json.
type report struct {
	Clusters []string          `json:"clusters"`
	Passed   bool              `json:"passed"` // no check failed; some may be unknown
	Failed   int               `json:"failed"`
	Unknown  int               `json:"unknown"`
	Seconds  float64           `json:"seconds"`
	Results  []diagnose.Result `json:"results"`
}

// Command returns the command diagnose.
func Command() *cobra.Command {
	var (
		flags  = remote.Flags{Timeout: 5 * time.Second}
		format cli.Format
	)
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Find what is wrong in clusters and between them, with causes and remedies",
		Long: "Find what is wrong in clusters and between them. The command reads objects from the API servers and asks " +
			"the agents " +
			"of all Nodes. It changes nothing, and makes no Pods.\n\nEach check has a code, which docs/diagnose.md explains. " +
			"A check " +
			"passes, fails, is skipped if it does not apply, or is unknown if its facts\ncannot be had. The cause of a fault " +
			"comes " +
			"before its effects, so mend the first failed check first. The exit code is 1 when a check failed.",
		Example: "  tombolo diagnose\n  tombolo diagnose --context east,west,north\n  tombolo diagnose --context east,west " +
			"-o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, err := flags.Clusters()
			if err != nil {
				return err
			}
			start := time.Now()
			results := diagnose.Run(diagnose.Gather(cmd.Context(), clusters))
			if err := cmd.Context().Err(); err != nil {
				return fmt.Errorf("interrupted: %w", err)
			}
			r := report{Failed: diagnose.Count(results, diagnose.Fail), Unknown: diagnose.Count(results, diagnose.Unknown),
				Seconds: time.Since(start).Seconds(), Results: results}
			r.Passed = r.Failed == 0
			for _, c := range clusters {
				r.Clusters = append(r.Clusters, c.Name)
			}
			out := cmd.OutOrStdout()
			err = format.Print(out, cli.Object("Diagnosis", r), func() error {
				diagnose.Print(out, results)
				_, err := fmt.Fprintf(out, "%d failed, %d unknown, %d passed, %d skipped in %.1f s\n", r.Failed, r.Unknown,
					diagnose.Count(results, diagnose.Pass), diagnose.Count(results, diagnose.Skip), r.Seconds)
				return err
			})
			if err != nil {
				return err
			}
			if r.Failed > 0 {
				return cli.ExitCode(1)
			}
			return nil
		},
	}
	flags.Add(cmd.Flags())
	format.TextFlag(cmd)
	return cmd
}
