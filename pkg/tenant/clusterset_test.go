package tenant

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestDecideAcrossClusters has the decisions about connections with other clusters.
func TestDecideAcrossClusters(t *testing.T) {
	blue := Place{Known: true, Network: Name{Door: doorClusterSet, Name: "blue"}, ID: shared + 1,
		Clusters: []string{"west"}}
	alone := Place{Known: true, Network: Name{Door: doorIsolated, Name: "a"}, ID: 1}
	pod := func(p Place) End { return End{Kind: Pod, Name: "Pod a/web", Node: "node-1", Place: p} }
	in := func(cluster string) End { return End{Kind: Elsewhere, Name: "Pod elsewhere", Cluster: cluster} }
	for _, row := range []struct {
		name       string
		connection Connection
		allowed    bool
		words      string
	}{
		{"to a cluster of the network", Connection{Client: pod(blue), Server: in("west")}, true, "which decides"},
		{"to another cluster", Connection{Client: pod(blue), Server: in("north")}, false, "reaches no address"},
		{"to a cluster that is not known", Connection{Client: pod(blue), Server: in("")}, false, "reaches no address"},
		{"of an isolated Namespace", Connection{Client: pod(alone), Server: in("west")}, false, "reaches no address"},
		{"from a cluster of the network", Connection{Client: in("west"), Server: pod(blue)}, true, "TenantNetwork blue"},
		{"from another cluster", Connection{Client: in("north"), Server: pod(blue)}, false, "other clusters do not reach it"},
		{"to an isolated Namespace", Connection{Client: in("west"), Server: pod(alone)}, false, "other clusters do not"},
		{"to a Service of the network", Connection{Client: in("west"), Server: pod(blue), Service: &blue}, false,
			"other clusters do not reach it"},
	} {
		d := row.connection.Decide()
		if d.Allowed != row.allowed || !strings.Contains(d.Reason, row.words) {
			t.Errorf("%s: %+v, want allowed %t and words %q", row.name, d, row.allowed, row.words)
		}
	}
}

// TestConsents has Namespaces that name a network of several clusters, and the words if they do not get into it.
func TestConsents(t *testing.T) {
	for _, row := range []struct {
		name, network string
		isolated      bool
		selector      labels.Selector // of network blue
		problem       string          // its reason; empty for no problem
		in            string          // the network
	}{
		{"no consent", "", true, labels.Everything(), "", "isolated a"},
		{"selected", "blue", true, labels.Everything(), "", "clusterset blue"},
		{"not selected", "blue", true, labels.Nothing(), "NotSelected", "isolated a"},
		{"no such network", "green", true, labels.Everything(), "NetworkNotFound", "isolated a"},
		{"not isolated", "blue", false, labels.Everything(), "", " "},
	} {
		c, tables := newCluster(), newClusterTables()
		n := namespaceOf("a", row.isolated, nil)
		n.Annotations = map[string]string{AnnotationNetwork: row.network}
		c.namespaces["a"] = n
		c.spanned[derive.Object{Name: "blue"}] = ClusterSetFacts{ID: shared + 1, Selectors: []labels.Selector{row.selector}}
		tables.fill(c)
		if have := tables.place("a").Network.String(); have != row.in {
			t.Errorf("%s: in %q, want %q", row.name, have, row.in)
		}
		var reasons []string
		for _, p := range tables.engine.Problems() {
			reasons = append(reasons, p.Reason.String())
		}
		if have := strings.Join(reasons, " "); have != row.problem {
			t.Errorf("%s: problems %q, want %q", row.name, have, row.problem)
		}
		if own := NamespaceProblems(n); (len(own) > 0) != (row.network != "" && !row.isolated) {
			t.Errorf("%s: the Namespace alone has %v", row.name, own)
		}
	}
}
