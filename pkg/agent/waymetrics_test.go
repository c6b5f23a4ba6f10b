package agent

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

func TestWayMetrics(t *testing.T) {
	m := wayMetrics{func() map[string][]api.Way {
		return map[string][]api.Way{
			"west":  {{To: "192.168.78.101", State: "up"}, {To: "192.168.78.102", State: "down"}, {To: "192.168.78.103", State: "init"}},
			"south": {{To: "192.168.79.101"}}, // is not watched
		}
	}}
	want := `
# HELP tombolo_multicluster_way_up Whether BFD finds a way from this Node to another cluster up: 1 or 0.
# TYPE tombolo_multicluster_way_up gauge
tombolo_multicluster_way_up{cluster="west",to="192.168.78.101"} 1
tombolo_multicluster_way_up{cluster="west",to="192.168.78.102"} 0
tombolo_multicluster_way_up{cluster="west",to="192.168.78.103"} 0
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
