// Command tombolo-controller has the controllers that run once in a cluster: `cluster` and `policy` in every cluster,
// and the multi-cluster controllers, `leader` in the cluster that has the Common Area and `member` in every cluster of
// the ClusterSet.
package main

import (
	"os"

	"github.com/tombolo-net/tombolo/cmd/tombolo-controller/program"
)

func main() { os.Exit(program.Run()) }
