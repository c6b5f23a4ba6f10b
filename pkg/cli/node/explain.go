package node

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// maxValue is how much of a row's value is shown.
const maxValue = 300

func (n *node) explain() *cobra.Command {
	var (
		namespace string
		out       cli.Format
	)
	cmd := &cobra.Command{
		Use:   "explain [KIND] OBJECT",
		Short: "What this Node derives from an object, and from what",
		Long: "Show the rows of the agent's tables that are called OBJECT, what each was made from and what was made from " +
			"it.\n\n" +
			"OBJECT is namespace/name of a Service or EndpointSlice, the name of a port or of another Node, a cluster's ID, " +
			"or self for this Node.\n" +
			"A KIND before it selects nothing: tables are named by what they hold.",
		Example: "  tombolo explain default/web\n  tombolo explain default/web --context east --node worker-1",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 { // as kubectl names an object: the tables know no kinds
				args = args[1:]
			}
			return cli.Words("explain", "an OBJECT, such as default/web")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			args = args[len(args)-1:]
			q := question[api.Explanation]{kind: "Explanation", path: api.PathExplain, text: printExplanation,
				query: url.Values{"key": {qualified(args[0], namespace)}}}
			return q.show(cmd, n, out)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "Namespace of OBJECT, if its name has none")
	out.TextFlag(cmd)
	return cmd
}

func printExplanation(w io.Writer, x api.Explanation) error {
	t := cli.Rows{}
	for _, row := range x.Rows {
		value := row.Value
		if len(value) > maxValue {
			value = value[:maxValue] + fmt.Sprintf("... (%d bytes)", len(row.Value))
		}
		t.Add(row.Table+"["+x.Key+"]", cli.Or(value, "no value"))
		for _, from := range row.From {
			t.Add("", "from "+from)
		}
		for _, to := range row.To {
			t.Add("", "to   "+to)
		}
		for _, p := range row.Problems {
			t.Add("", "problem: "+p)
		}
	}
	return t.Write(w, "  ")
}
