// Command tombolo-agent is the daemon of one Node: it owns the Node's Open vSwitch bridge, serves CNI, and turns the
// cluster's state into flows, ports and routes.
package main

import (
	"os"

	"github.com/tombolo-net/tombolo/cmd/tombolo-agent/program"
)

func main() { os.Exit(program.Run()) }
