package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// testNodeLatency has Nodes probe each other through their switches.
func testNodeLatency(t *testing.T) {
	must(t, world.Apply(testContext(t), "west", `
apiVersion: crd.antrea.io/v1alpha1
kind: NodeLatencyMonitor
metadata: {name: default}
spec: {pingIntervalSeconds: 1}
`))
	probed := func(ctx context.Context) (rows []string, err error) {
		out, err := world.Lab.Tool(ctx, "west", "tombolo", "get", "latency", "--kubeconfig",
			world.Lab.Cluster("west").Kubeconfig())
		if err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, out)
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, " node/node-") {
				rows = append(rows, line)
			}
		}
		return rows, nil
	}
	eventually(t, stateLimit, func(ctx context.Context) error {
		rows, err := probed(ctx)
		if err == nil && len(rows) != 2 {
			err = fmt.Errorf("%d rows, want one of each Node: %q", len(rows), rows)
		}
		if err != nil {
			return err
		}
		for _, row := range rows {
			if cells := strings.Fields(row); len(cells) < 9 || cells[3] == "-" || cells[5] == "100.0%" {
				return fmt.Errorf("no reply: %q", row)
			}
		}
		return nil
	})
	kubectl(t, "west", "delete", "nodelatencymonitor", "default")
	eventually(t, stateLimit, func(ctx context.Context) error {
		rows, err := probed(ctx)
		if err == nil && len(rows) != 0 {
			err = fmt.Errorf("after the object is deleted: %q", rows)
		}
		return err
	})
}
