// Command tombolo shows the state of Tombolo: on a Node from the agent's debug API, for a cluster from its API server.
// Called as kubectl-tombolo it is a kubectl plugin. Called as antctl it answers antctl's documented commands.
package main

import (
	"os"

	"github.com/tombolo-net/tombolo/cmd/tombolo/program"
)

func main() { os.Exit(program.Run()) }
