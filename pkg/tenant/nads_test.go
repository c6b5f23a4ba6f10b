package tenant

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plumbingv1 "github.com/tombolo-net/tombolo/pkg/apis/plumbing/v1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

func TestOtherPlugin(t *testing.T) {
	for _, row := range []struct {
		name, config string
		want         bool
	}{
		{name: "CN2's", config: `{"cniVersion": "0.3.1", "name": "blue", "type": "contrail-k8s-cni"}`},
		{name: "no configuration"},
		{name: "no type", config: `{"cniVersion": "0.3.1"}`},
		{name: "curly quotes", config: `{“type”: “bridge”}`},
		{name: "a bridge", config: `{"type": "bridge"}`, want: true},
		{name: "a list", config: `{"plugins": [{"type": "macvlan"}, {"type": "tuning"}]}`, want: true},
		{name: "a list with CN2's", config: `{"plugins": [{"type": "contrail-k8s-cni"}, {"type": "tuning"}]}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := &plumbingv1.NetworkAttachmentDefinition{}
			n.Spec.Config = row.config
			if have := OtherPlugin(n); have != row.want {
				t.Errorf("%t, want %t", have, row.want)
			}
		})
	}
}

func TestDefinition(t *testing.T) {
	for _, row := range []struct{ name, object, annotation, want, problem string }{
		{name: "none", object: "blue"},
		{name: "CN2's", object: "blue", annotation: `{"ipamV4Subnet": "10.0.0.0/24", "ipamV6Subnet": "2001:db8::/64"}`,
			want: "blue-v4 10.0.0.0/24 blue-v6 2001:db8::/64"},
		{name: "all fields", object: "blue", annotation: `{"ipamV6Subnet": "fd50::/64", "fabricSNAT": true,
			"podNetwork": true, "routeTargetList": ["target:1:1"], "importRouteTargetList": [], "exportRouteTargetList": null}`,
			want: "blue-v6 fd50::/64"},
		{name: "no Subnet", object: "blue", annotation: `{"fabricSNAT": false}`},
		{name: "another field", object: "blue", annotation: `{"ipamV4Subnet": "10.0.0.0/24", "vlan": 7}`,
			problem: `it is not read, so no VirtualNetwork is created (json: unknown field "vlan")`},
		{name: "no JSON", object: "blue", annotation: `ipamV4Subnet=10.0.0.0/24`, problem: "it is not read"},
		{name: "two objects", object: "blue", annotation: `{} {}`, problem: "it is not read"},
		{name: "the other version", object: "blue", annotation: `{"ipamV4Subnet": "fd50::/64"}`,
			problem: `ipamV4Subnet has "fd50::/64", which is not a range of IPv4 addresses: write one as in 10.0.1.0/24`},
		{name: "an address", object: "blue", annotation: `{"ipamV6Subnet": "fd50::7/64"}`,
			problem: `ipamV6Subnet has "fd50::7/64", which is not a range of IPv6 addresses`},
		{name: "the Namespace's network", object: "default-podnetwork", annotation: `{"ipamV4Subnet": "10.0.0.0/24"}`,
			problem: "VirtualNetwork default-podnetwork is the network of the Namespace"},
		{name: "a long name", object: strings.Repeat("a", 251), annotation: `{"ipamV4Subnet": "10.0.0.0/24"}`,
			problem: "the names of its Subnets would have more than 253 characters"},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := &plumbingv1.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: row.object,
				UID: "uid", Labels: map[string]string{"vn": "blue"}, Annotations: map[string]string{}}}
			if row.annotation != "" {
				n.Annotations[AnnotationDefinition] = row.annotation
			}
			ps := DefinitionProblems(&metav1.PartialObjectMetadata{ObjectMeta: n.ObjectMeta})
			switch {
			case row.problem == "" && len(ps) > 0:
				t.Errorf("problems %v", ps)
			case row.problem != "" && (len(ps) == 0 || !strings.HasPrefix(ps[0].Message, row.problem)):
				t.Errorf("problems %v, want %s", ps, row.problem)
			}
			f := DefinitionFactsOf(n)
			if (f != nil) != (row.want != "") {
				t.Fatalf("facts %+v", f)
			}
			if f == nil {
				return
			}
			k := derive.Object{Namespace: "shop", Name: row.object}
			subnets, network := f.Objects(k)
			var have []string
			for _, s := range subnets {
				have = append(have, s.Name, s.Spec.CIDR)
				if s.Namespace != "shop" || s.OwnerReferences[0].UID != "uid" {
					t.Errorf("Subnet %+v", s.ObjectMeta)
				}
			}
			if strings.Join(have, " ") != row.want {
				t.Errorf("Subnets %q, want %q", have, row.want)
			}
			if network.Name != row.object || network.Labels["vn"] != "blue" || network.OwnerReferences[0].UID != "uid" {
				t.Errorf("VirtualNetwork %+v", network.ObjectMeta)
			}
			facts := VirtualNetworkFactsOf(network)
			if ps := f.Differs(k, facts, func(derive.Object) netip.Prefix { return netip.Prefix{} }); !network.Spec.PodNetwork &&
				len(ps) > 0 {
				t.Errorf("it differs from itself: %v", ps)
			}
			other := func(derive.Object) netip.Prefix { return netip.MustParsePrefix("10.9.0.0/24") }
			if ps := f.Differs(k, facts, other); len(ps) != len(subnets) {
				t.Errorf("other ranges: %v", ps)
			}
		})
	}
}
