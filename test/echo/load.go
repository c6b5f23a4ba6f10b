package main

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/benchmark/load"
)

func loadCommand() *cobra.Command {
	var l load.Load
	cmd := &cobra.Command{
		Use: "load URL", Short: "Ask a URL as often as it is answered, and print how often that was, as JSON",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := l.Run(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
		},
	}
	cmd.Flags().DurationVar(&l.Lasts, "time", 5*time.Second, "how long")
	cmd.Flags().DurationVar(&l.Timeout, "timeout", 5*time.Second, "time that connecting may take")
	cmd.Flags().IntVar(&l.Parallel, "parallel", 1, "connections at a time")
	cmd.Flags().BoolVar(&l.Fresh, "fresh", false, "a new connection for each request")
	return cmd
}
