package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// maxValue is how much of a row's value is shown.
const maxValue = 300

func (n *node) explain() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "explain OBJECT",
		Short: "What this Node derives from an object, and from what",
		Long: "Show the rows of the agent's tables that are called OBJECT, what each was made from and what was made from it.\n\n" +
			"OBJECT is namespace/name of a Service or EndpointSlice, the name of a port or of another Node, a cluster's ID, or self for this Node.",
		Example: "  tombolo explain default/web",
		Args:    words("explain", "an OBJECT, such as default/web"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var x api.Explanation
			if err := n.ask(cmd.Context(), api.PathExplain, url.Values{"key": {args[0]}}, &x); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), x, func() error {
				t := rows{}
				for _, row := range x.Rows {
					value := row.Value
					if len(value) > maxValue {
						value = value[:maxValue] + fmt.Sprintf("... (%d bytes)", len(row.Value))
					}
					t.add(row.Table+"["+x.Key+"]", or(value, "no value"))
					for _, from := range row.From {
						t.add("", "from "+from)
					}
					for _, to := range row.To {
						t.add("", "to   "+to)
					}
					for _, p := range row.Problems {
						t.add("", "problem: "+p)
					}
				}
				return t.write(cmd.OutOrStdout(), "  ", false)
			})
		},
	}
	out.flag(cmd)
	return cmd
}
