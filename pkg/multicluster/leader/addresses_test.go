package leader

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// podAddresses returns the addresses that a cluster publishes for one block, all of Pods with one label.
func podAddresses(cluster string, addresses ...string) *mcv1alpha1.ResourceExport {
	p := exportcheck.PodAddresses{ClusterID: cluster, Labels: map[string][]netip.Addr{}}
	for _, text := range addresses {
		a := netip.MustParseAddr(text)
		p.Block = exportcheck.BlockOf(a)
		hash := multicluster.LabelHash(app("web"))
		p.Labels[hash] = append(p.Labels[hash], a)
	}
	re := &mcv1alpha1.ResourceExport{Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster,
		Kind: multicluster.PodAddressesKind, Raw: &mcv1alpha1.RawResource{Data: p.JSON()}}}
	re.Name = multicluster.PodAddressesName(cluster, p.Block)
	re.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	return re
}

// withPods is a ClusterInfo with Pod ranges.
func withPods(re *mcv1alpha1.ResourceExport, ranges ...string) *mcv1alpha1.ResourceExport {
	re.Spec.ClusterInfo.PodCIDRs = ranges
	return re
}

// addressesOf are the addresses in imports: "west 10.11.3.5".
func addressesOf(imports []*mcv1alpha1.ResourceImport) string {
	var out []string
	for _, ri := range imports {
		if ri.Spec.Kind != multicluster.PodAddressesKind {
			continue
		}
		p, err := exportcheck.ReadPodAddresses(ri.Spec.Raw.Data)
		if err != nil {
			return err.Error()
		}
		for _, list := range p.Labels {
			for _, a := range list {
				out = append(out, p.ClusterID+" "+a.String())
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// TestPodAddresses has rows of exports. Each row has the addresses that the leader passes on, and the reports about the
// others.
func TestPodAddresses(t *testing.T) {
	type exports = []*mcv1alpha1.ResourceExport
	east, west := withPods(clusterInfo("east", "10.96.0.0/16"), "10.10.0.0/16"),
		withPods(clusterInfo("west", "10.97.0.0/16"), "10.11.0.0/16", "10.12.0.0/25")
	changed := func(re *mcv1alpha1.ResourceExport, old, now string) *mcv1alpha1.ResourceExport {
		re.Spec.Raw.Data = []byte(strings.ReplaceAll(string(re.Spec.Raw.Data), old, now))
		return re
	}
	for _, row := range []struct {
		name    string
		exports exports
		want    string
		failed  string
	}{
		{name: "of two clusters",
			exports: exports{east, west, podAddresses("east", "10.10.3.5"), podAddresses("west", "10.11.3.5", "10.11.3.6")},
			want:    "east 10.10.3.5, west 10.11.3.5, west 10.11.3.6"},
		{name: "another's range", exports: exports{east, west, podAddresses("west", "10.10.3.5")},
			failed: "spec.raw.data: left out are addresses that are not in the Pod ranges of cluster west: 10.10.3.5"},
		{name: "its Services' range", exports: exports{west, podAddresses("west", "10.97.0.1")},
			failed: "spec.raw.data: left out are addresses that are not in the Pod ranges of cluster west: 10.97.0.1"},
		{name: "partly outside its ranges", exports: exports{west, podAddresses("west", "10.12.0.5", "10.12.0.200")},
			want:   "west 10.12.0.5",
			failed: "spec.raw.data: left out are addresses that are not in the Pod ranges of cluster west: 10.12.0.200"},
		{name: "a range that is another's",
			exports: exports{east, withPods(clusterInfo("west", "10.97.0.0/16"), "10.10.0.0/16", "10.11.0.0/16"),
				podAddresses("west", "10.10.3.5")},
			failed: "spec.raw.data: left out are addresses that are not in the Pod ranges of cluster west: 10.10.3.5"},
		{name: "no ClusterInfo", exports: exports{east, podAddresses("west", "10.11.3.5")},
			failed: "cluster west announces no Pod ranges that its Pods' addresses could be in: it needs a Gateway, and " +
				"podCIDRs in its member controller's configuration"},
		{name: "no member", exports: exports{podAddresses("nobody", "10.11.3.5")},
			failed: "cluster nobody is not a member of the ClusterSet: it has no MemberClusterAnnounce; this ResourceExport " +
				"is deleted after 1h0m0s"},
		{name: "another's name",
			exports: exports{west, without(func(re *mcv1alpha1.ResourceExport) { re.Name = "east-podaddresses-10.11.3.0" },
				podAddresses("west", "10.11.3.5"))},
			failed: "metadata.name: the export of block 10.11.3.0/24 by cluster west must be named west-podaddresses-10.11.3.0"},
		{name: "as another", exports: exports{west, changed(podAddresses("west", "10.11.3.5"), "west", "east")},
			failed: `spec.raw.data.clusterID is "east": expected "west", as in spec.clusterID`},
		{name: "no list",
			exports: exports{west, without(func(re *mcv1alpha1.ResourceExport) { re.Spec.Raw = nil },
				podAddresses("west", "10.11.3.5"))}, failed: "spec.raw is missing"},
		{name: "a block that is none", exports: exports{west, changed(podAddresses("west", "10.11.3.5"), "0/24", "0/16")},
			failed: "spec.raw.data.block: 10.11.3.0/16 is not a block of 256 addresses, such as 10.11.3.0/24"},
		{name: "garbage", exports: exports{west, changed(podAddresses("west", "10.11.3.5"), "{", "[")},
			failed: "spec.raw.data: is not a list of Pods' addresses: invalid character ':' after array element"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWalker(1)
			w.is(View{Namespace: "area", Now: noon, Announces: announced("east", "west"), ResourceExports: row.exports})
			w.converge(t)
			var failed []string
			for _, c := range w.conditions.All() {
				if c.Value.Type == mcv1alpha1.ResourceExportFailure && strings.Contains(c.Key.Name, "podaddresses") {
					failed = append(failed,
						strings.TrimPrefix(c.Value.Message, "the ResourceExport cannot be converged to a ResourceImport: "))
				}
			}
			if have, messages := addressesOf(values(w.facts.imports.All())), strings.Join(failed, "; "); have != row.want ||
				messages != row.failed {
				t.Errorf("have %q, want %q; failed %q, want %q", have, row.want, messages, row.failed)
			}
		})
	}
}

// TestPodAddressesStay keeps addresses while a cluster's Gateway moves. It removes them with the ranges of the cluster,
// and with the cluster itself.
func TestPodAddressesStay(t *testing.T) {
	w := newWalker(1)
	info := withPods(clusterInfo("west", "10.97.0.0/16"), "10.11.0.0/16")
	v := View{Namespace: "area", Now: noon, Announces: announced("east", "west"),
		ResourceExports: []*mcv1alpha1.ResourceExport{info, podAddresses("west", "10.11.3.5")}}
	is := func(step, want string) {
		t.Helper()
		w.settle()
		w.converge(t)
		if have := addressesOf(values(w.facts.imports.All())); have != want {
			t.Errorf("%s: have %q, want %q", step, have, want)
		}
	}
	w.is(v)
	is("published", "west 10.11.3.5")
	key := derive.Object{Namespace: "area", Name: info.Name}
	e, _ := w.facts.exports.Get(key)
	w.facts.exports.Delete(key)
	is("the ClusterInfo is withdrawn", "west 10.11.3.5")
	w.now = w.now.Add(holdClaims + time.Minute)
	for _, row := range w.facts.announcements.All() { // a heartbeat
		row.Value.Touched = w.now.Format(time.RFC3339)
		w.facts.announcements.Set(row.Key, row.Value)
	}
	is("it does not come back", "")
	w.facts.exports.Set(key, e)
	is("it comes back late", "west 10.11.3.5")
	other := *e
	other.Info = withPods(clusterInfo("west", "10.97.0.0/16"), "10.12.0.0/16").Spec.ClusterInfo
	w.facts.exports.Set(key, &other)
	is("another range", "")
	w.facts.exports.Set(key, e)
	is("the same again", "west 10.11.3.5")
	w.facts.announcements.Delete(derive.Object{Namespace: "area", Name: multicluster.AnnounceName("west")})
	is("the cluster is no member any more", "")
	if fmt.Sprint(w.engine.Problems()) != "[]" {
		t.Errorf("problems %v", w.engine.Problems())
	}
}
