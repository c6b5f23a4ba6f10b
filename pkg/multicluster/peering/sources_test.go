package peering

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// TestTunnelSources reads the sources of west's tunnels other than its gateway's address.
func TestTunnelSources(t *testing.T) {
	for _, test := range []struct {
		name        string
		annotations map[string]string
		want        string // TunnelSources
		problem     string // start of the only one
	}{
		{name: "no annotation", want: "[192.168.77.101/32]"},
		{name: "address and range",
			annotations: map[string]string{"tunnel-sources.multicluster.antrea.io/west": "203.0.113.7, 198.51.100.9/29"},
			want:        "[198.51.100.8/29 203.0.113.7/32 192.168.77.101/32]"},
		{name: "range around the gateway",
			annotations: map[string]string{"tunnel-sources.multicluster.antrea.io/west": "192.168.77.0/24,192.168.77.5"},
			want:        "[192.168.77.0/24]"},
		{name: "value that cannot be read",
			annotations: map[string]string{"tunnel-sources.multicluster.antrea.io/west": "nat,203.0.113.7"},
			want:        "[203.0.113.7/32 192.168.77.101/32]",
			problem: "ClusterSet kube-system/set: metadata.annotations[tunnel-sources.multicluster.antrea.io/west]: " +
				"tunnels of cluster west are not taken from there: \"nat\" is not an IP address"},
		{name: "another version of IP",
			annotations: map[string]string{"tunnel-sources.multicluster.antrea.io/west": "203.0.113.7,2001:db8::/64"},
			want:        "[203.0.113.7/32 192.168.77.101/32]",
			problem: "ClusterSet kube-system/set: metadata.annotations[tunnel-sources.multicluster.antrea.io/west]: tunnels " +
				"of cluster west are not taken from there: 2001:db8::/64 is not of the version of IP of this cluster's tunnels"},
		{name: "everywhere", annotations: map[string]string{"tunnel-sources.multicluster.antrea.io/west": "0.0.0.0/0"},
			want: "[192.168.77.101/32]",
			problem: "ClusterSet kube-system/set: metadata.annotations[tunnel-sources.multicluster.antrea.io/west]: tunnels " +
				"of cluster west are not taken from there: 0.0.0.0/0 contains"},
		{name: "cluster that is not connected",
			annotations: map[string]string{"tunnel-sources.multicluster.antrea.io/wset": "203.0.113.7"},
			want:        "[192.168.77.101/32]",
			problem: "ClusterSet kube-system/set: metadata.annotations[tunnel-sources.multicluster.antrea.io/wset]: the " +
				"annotation has no effect: no cluster with ID \"wset\""},
	} {
		t.Run(test.name, func(t *testing.T) {
			cs := &mcv1alpha2.ClusterSet{}
			cs.Namespace, cs.Name, cs.Annotations = "kube-system", "set", test.annotations
			p, problems := Plan(View{
				NodeName:           "node-2",
				Gateways:           []*mcv1alpha1.Gateway{gateway("node-2", "192.168.78.102", "192.168.78.102", time.Hour)},
				ClusterInfoImports: []*mcv1alpha1.ClusterInfoImport{imported("west", "10.96.0.0/16", "192.168.77.101")},
				ClusterSets:        []*mcv1alpha2.ClusterSet{cs},
			})
			if len(p.Peers) != 1 {
				t.Fatalf("peers %v, problems %v", p.Peers, problems)
			}
			if diff := cmp.Diff(test.want, fmt.Sprint(p.Peers[0].TunnelSources())); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
			switch {
			case test.problem == "" && len(problems) > 0, test.problem != "" && len(problems) != 1:
				t.Errorf("problems %v, want %q", problems, test.problem)
			case test.problem != "" && !strings.HasPrefix(problems[0].String(), test.problem):
				t.Errorf("problem %q, want %q", problems[0], test.problem)
			}
		})
	}
}
