package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
)

// askCommand returns the hidden command ask, which commands on other machines run in the agent's container
// (pkg/cli/remote). It copies the agent's answer to stdout.
func (n *node) askCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "ask PATH", Short: "Copy the agent's answer for a path of its debug API", Hidden: true,
		Args: cli.Words("ask", "PATH, such as /v1/status or /v1/flows?table=Output"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, query, _ := strings.Cut(args[0], "?")
			if !strings.HasPrefix(path, "/") {
				return fmt.Errorf("%q is no path of the agent's debug API: it begins with /, as /v1/status does", path)
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			if follow {
				go func() {
					_, _ = io.Copy(io.Discard, cmd.InOrStdin())
					cancel()
				}()
			} else {
				ctx, cancel = context.WithTimeout(ctx, n.agents.timeout)
				defer cancel()
			}
			return n.agents.copy(ctx, path, query, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "copy until stdin ends, without a time limit")
	return cmd
}

// copy copies the agent's answer for a path to w, as it comes.
func (n *agents) copy(ctx context.Context, path, query string, w io.Writer) error {
	response, err := n.open(ctx, path, query)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return n.silent(err)
		}
		return n.refused(response.StatusCode, body, path)
	}
	if _, err := io.Copy(w, response.Body); err != nil {
		return n.silent(err)
	}
	return nil
}
