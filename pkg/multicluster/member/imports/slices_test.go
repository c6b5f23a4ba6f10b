package imports

import (
	"testing"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// TestSourceLabel makes the cluster one part of a DNS name, in EndpointSlices and in the ServiceImport's status.
func TestSourceLabel(t *testing.T) {
	for id, want := range map[string]string{
		"east": "east", "east-1": "east-1", "prod.eu": multicluster.LabelHash("prod.eu"),
		"Prod_EU": multicluster.LabelHash("Prod_EU"), "a b": multicluster.LabelHash("a b"),
	} {
		have := sourceLabel(id)
		if have != want || len(validation.IsDNS1123Label(have)) > 0 {
			t.Errorf("%q: have %q, want %q", id, have, want)
		}
		list := endpointSlices(derive.Object{Namespace: "default", Name: "db"},
			derive.Object{Namespace: "default", Name: "antrea-mc-db"},
			map[string]exportcheck.Part{id: {Subsets: []services.Subset{{Addresses: []services.Address{{IP: "10.98.0.7"}}}}}},
			func(string, services.Subset) bool { return false })
		if have := serviceImportStatus(list).Clusters; len(have) != 1 || have[0].Cluster != want {
			t.Errorf("clusters %v, want %s", have, want)
		}
	}
}

// TestSameSubsets compares addresses with their ports, however they are divided into subsets.
func TestSameSubsets(t *testing.T) {
	p80, p81 := services.Port{Name: "a", Port: 80}, services.Port{Name: "b", Port: 81, Protocol: corev1.ProtocolTCP}
	one, two := services.Address{IP: "10.0.0.1"}, services.Address{IP: "10.0.0.2"}
	a := []services.Subset{{Addresses: []services.Address{one, two}, Ports: []services.Port{p80, p81}}}
	b := []services.Subset{{Addresses: []services.Address{two}, Ports: []services.Port{p81, p80}},
		{Addresses: []services.Address{one}, Ports: []services.Port{p80, p81}}}
	if !SameSubsets(a, b) {
		t.Error("regrouped subsets differ")
	}
	if SameSubsets(a, b[:1]) {
		t.Error("an address less makes no difference")
	}
}
