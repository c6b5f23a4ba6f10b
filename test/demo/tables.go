package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// order is the names of the pipeline's tables, as a packet meets them.
var order = func() (names []string) {
	for _, t := range datapath.Program.Tables() {
		names = append(names, datapath.Program.Name(t))
	}
	return names
}()

// tables sums the packets that each table's flows have seen on a Node.
func (d *demo) tables(ctx context.Context, cluster, node string) (map[string]uint64, error) {
	out, err := d.world.Lab.Cluster(cluster).Node(node).Exec(ctx, "curl", "-sS", "--unix-socket", api.DefaultSocket,
		"http://agent"+api.PathFlows)
	if err != nil {
		return nil, fmt.Errorf("ask the agent of %s/%s: %w\n%s", cluster, node, err, out)
	}
	var list api.FlowList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("flows of %s/%s: %w", cluster, node, err)
	}
	sums := map[string]uint64{}
	for _, f := range list.Flows {
		sums[f.Table] += f.Packets
	}
	return sums, nil
}
