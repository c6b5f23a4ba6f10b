package externalip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// poolOf parses a pool.
func poolOf(t *testing.T, name, spec string) derive.Row[derive.Object, poolFacts] {
	t.Helper()
	p := &crdv1beta1.ExternalIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return derive.Row[derive.Object, poolFacts]{Key: derive.ObjectOf(p), Value: poolFactsOf(p)}
}

// serviceOf is a Service of a pool: its name, the addresses that it has, the addresses that it asks for, its versions
// of IP ("6", "46", "64", or "4or6" for PreferDualStack), "shared", and another pool.
func serviceOf(pool, text string) derive.Row[derive.Object, serviceFacts] {
	words := strings.Split(text, " ")
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: words[0]}}
	s.Annotations = map[string]string{crdv1beta1.AnnotationExternalIPPool: pool}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	for _, w := range words[1:] {
		kind, ip, _ := strings.Cut(w, "=")
		switch kind {
		case "has":
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
			s.Status.Conditions = []metav1.Condition{{Type: ConditionAssigned, Status: metav1.ConditionTrue}}
		case "asks":
			s.Spec.LoadBalancerIP = ip
		case "6", "46", "64", "4or6":
			for _, v := range strings.Replace(kind, "or", "", 1) {
				s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily("IPv"+string(v)))
			}
			s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
			if kind == "4or6" {
				s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
			}
		case "shared":
			s.Annotations[crdv1beta1.AnnotationSharedIP] = "true"
		case "pool":
			s.Annotations[crdv1beta1.AnnotationExternalIPPool] = ip
		case "class":
			s.Spec.LoadBalancerClass = new("example.org/metal")
		case "young":
			s.CreationTimestamp = metav1.Unix(1e9, 0)
		case "none":
			delete(s.Annotations, crdv1beta1.AnnotationExternalIPPool)
		}
	}
	return derive.Row[derive.Object, serviceFacts]{Key: derive.ObjectOf(s), Value: serviceFactsOf(s)}
}

func TestAssign(t *testing.T) {
	const byPool = "metadata.annotations[service.antrea.io/external-ip-pool]"
	const two = "{ipRanges: [{start: 198.51.100.10, end: 198.51.100.11}], nodeSelector: {}}"
	for _, row := range []struct {
		name     string
		pool     string // spec of pool "a"
		services []string
		want     []string // by Service
		problems []string // of the pool
		usage    string
	}{
		{
			name: "lowest free addresses, to older Services first", pool: two,
			services: []string{"x young", "y", "z has=198.51.100.10"},
			want: []string{
				"x PoolExhausted metadata.annotations[service.antrea.io/external-ip-pool]", "y 198.51.100.11",
				"z 198.51.100.10",
			}, usage: "2 of 2",
		},
		{
			name:     "without the ends of a CIDR, the gateway and Nodes",
			pool:     "{ipRanges: [{cidr: 192.0.2.0/29}], subnetInfo: {gateway: 192.0.2.1, prefixLength: 29}, nodeSelector: {}}",
			services: []string{"x", "y", "z asks=192.0.2.1", "zz asks=192.0.2.3"},
			want: []string{
				"x 192.0.2.4", "y 192.0.2.5", "z AddressNotInPool spec.loadBalancerIP", "zz AddressNotInPool spec.loadBalancerIP",
			},
			problems: []string{"spec.ipRanges AddressInUse"}, usage: "2 of 3",
		},
		{
			name: "shared by all that may", pool: two,
			services: []string{"x asks=198.51.100.10 shared", "y asks=198.51.100.10 shared", "z asks=198.51.100.10 young"},
			want:     []string{"x 198.51.100.10", "y 198.51.100.10", "z AddressInUse spec.loadBalancerIP"}, usage: "1 of 2",
		},
		{
			name: "two have one address", pool: two, services: []string{"x young has=198.51.100.10", "y has=198.51.100.10"},
			want: []string{"x 198.51.100.11", "y 198.51.100.10"}, usage: "2 of 2",
		},
		{
			name: "two share the address that they have", pool: two,
			services: []string{"x young has=198.51.100.10 shared", "y has=198.51.100.10 shared", "z has=198.51.100.10"},
			want:     []string{"x 198.51.100.10", "y 198.51.100.10", "z 198.51.100.11"}, usage: "2 of 2",
		},
		{
			name: "another pool, which there is not: the address stays, and no other Service gets it", pool: two,
			services: []string{"x has=198.51.100.10 pool=nope", "y", "z"},
			want:     []string{"x 198.51.100.10 UnknownPool " + byPool, "y 198.51.100.11", "z PoolExhausted " + byPool},
			usage:    "1 of 2",
		},
		{
			name: "a Node has an address that a Service has", pool: "{ipRanges: [{cidr: 192.0.2.0/29}], nodeSelector: {}}",
			services: []string{"x has=192.0.2.3", "y"}, want: []string{"x 192.0.2.3", "y 192.0.2.1"},
			problems: []string{"spec.ipRanges AddressInUse"}, usage: "2 of 4",
		},
		{
			name: "an address that the pool has no longer is replaced", pool: two,
			services: []string{"x has=198.51.100.99", "y has=198.51.100.10 asks=198.51.100.11"},
			want:     []string{"x 198.51.100.10", "y 198.51.100.11"}, usage: "2 of 2",
		},
		{
			name: "no annotation any more", pool: two, services: []string{"x none has=198.51.100.10", "y class"},
			want: []string{"x none"}, usage: "0 of 2",
		},
		{
			name: "ranges with faults",
			pool: "{ipRanges: [{cidr: x}, {start: 198.51.100.9, end: 198.51.100.1}, {cidr: 127.0.0.0/30}, " +
				"{cidr: 'fe80::/64'}, {cidr: 'fc01::/112'}, {cidr: '::ffff:198.51.100.0/120'}, {start: '::1', end: '::9'}, " +
				"{start: 198.51.100.1, end: 198.51.100.2}, {start: 198.51.100.2, end: 198.51.100.4}], " +
				"nodeSelector: {matchLabels: {rack: none}}}",
			services: []string{"x", "y asks=here"},
			want:     []string{"x 198.51.100.1", "y InvalidAddress spec.loadBalancerIP"},
			problems: []string{
				"spec.ipRanges[0] InvalidRange", "spec.ipRanges[1] InvalidRange", "spec.ipRanges[2] InvalidRange",
				"spec.ipRanges[3] InvalidRange", "spec.ipRanges[4] InvalidRange", "spec.ipRanges[5] InvalidRange",
				"spec.ipRanges[6] InvalidRange", "spec.ipRanges[8] InvalidRange", "spec.nodeSelector NoNode",
			}, usage: "1 of 2",
		},
		{
			name: "an address of each version, in the order of the Service",
			pool: "{ipRanges: [{cidr: 198.51.100.0/29}, {cidr: '2001:db8::/64'}], nodeSelector: {}}",
			services: []string{
				"t asks=198.51.100.4,2001:db8::4 46", "u has=198.51.100.2 46", "v has=2001:db8::9 has=198.51.100.3 64",
				"w asks=2001:db8::8 46", "x 46", "y 64", "z 6", "zz",
			},
			want: []string{
				"t 198.51.100.4,2001:db8::4", "u 198.51.100.2,2001:db8::1", "v 2001:db8::9,198.51.100.3",
				"w 198.51.100.1,2001:db8::8", "x 198.51.100.5,2001:db8::2", "y 2001:db8::3,198.51.100.6", "z 2001:db8::5",
				"zz PoolExhausted " + byPool,
			}, usage: "13 of 2147483647",
		},
		{
			name:     "without addresses of Nodes, Pods and ClusterIPs of IPv6, and the first one of a CIDR",
			pool:     "{ipRanges: [{cidr: 'fd10::/126'}, {cidr: 'fd00::/126'}, {cidr: 'fd96::/127'}], nodeSelector: {}}",
			services: []string{"x 6", "y 6", "z 6"}, usage: "2 of 2",
			want:     []string{"x fd00::1", "y fd00::3", "z PoolExhausted " + byPool},
			problems: []string{"spec.ipRanges AddressInUse", "spec.ipRanges AddressInUse", "spec.ipRanges AddressInUse"},
		},
		{
			name: "the pool has one version alone", pool: two,
			services: []string{"w has=198.51.100.10 6", "x 46", "y 4or6", "z asks=2001:db8::1"},
			want: []string{
				"w NoSuchRange " + byPool, "x 198.51.100.10 NoSuchRange " + byPool, "y 198.51.100.11",
				"z InvalidAddress spec.loadBalancerIP",
			}, usage: "2 of 2",
		},
		{
			name: "one version is exhausted, and two addresses of one version",
			pool: "{ipRanges: [{start: 198.51.100.1, end: 198.51.100.2}, {start: 'fd00::5', end: 'fd00::5'}], nodeSelector: {}}",
			services: []string{
				"w has=fd00::5 6", "x 4or6", "y asks=198.51.100.2,198.51.100.3 46", "z asks=fd00::5 46",
			},
			want: []string{
				"w fd00::5", "x 198.51.100.1 PoolExhausted " + byPool, "y InvalidAddress spec.loadBalancerIP",
				"z 198.51.100.2 AddressInUse spec.loadBalancerIP",
			}, usage: "3 of 3",
		},
		{
			name: "no selected Node has a podCIDR of IPv6: an address stays, and no Service gets one",
			pool: "{ipRanges: [{cidr: 198.51.100.0/29}, {cidr: '2001:db8::/64'}], nodeSelector: {matchLabels: {rack: four}}}",
			services: []string{
				"u has=198.51.100.2 has=2001:db8::2 46", "v 4or6", "w 46", "x 6", "y asks=2001:db8::8 6", "z",
			},
			want: []string{
				"u 198.51.100.2,2001:db8::2", "v 198.51.100.1", "w 198.51.100.3 NoNode " + byPool, "x NoNode " + byPool,
				"y NoNode spec.loadBalancerIP", "z 198.51.100.4",
			},
			problems: []string{"spec.ipRanges NoNode"}, usage: "5 of 2147483647",
		},
		{
			name:     "no such pool: both addresses stay",
			services: []string{"x has=198.51.100.10 has=fd00::5 46", "y 6"},
			want:     []string{"x 198.51.100.10,fd00::5 UnknownPool " + byPool, "y UnknownPool " + byPool},
		},
		{
			name: "no such pool: an address that a Service has stays", services: []string{"x has=198.51.100.10", "y"},
			want: []string{
				"x 198.51.100.10 UnknownPool metadata.annotations[service.antrea.io/external-ip-pool]",
				"y UnknownPool metadata.annotations[service.antrea.io/external-ip-pool]",
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := view{Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd96::/112")}}
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"rack": "one"}}}
			n.Spec.PodCIDRs = []string{"10.10.0.0/24", "fd10::/64"}
			n.Status.Addresses = []corev1.NodeAddress{{Address: "192.0.2.2"}, {Address: "192.0.2.3"}, {Address: "fd00::2"}}
			v.Nodes = append(v.Nodes, derive.Row[derive.Object, nodeFacts]{Key: derive.ObjectOf(n), Value: nodeFactsOf(n)})
			four := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "o", Labels: map[string]string{"rack": "four"}}}
			four.Spec.PodCIDRs = []string{"10.10.1.0/24"}
			v.Nodes = append(v.Nodes, derive.Row[derive.Object, nodeFacts]{Key: derive.ObjectOf(four), Value: nodeFactsOf(four)})
			if row.pool != "" {
				v.Pools = append(v.Pools, poolOf(t, "a", row.pool))
			}
			for _, s := range row.services {
				if one := serviceOf("a", s); one.Value != (serviceFacts{}) {
					v.Services = append(v.Services, one)
				}
			}
			out := assign(v)
			var have []string
			for key, a := range out.Services {
				text := key.Name
				switch {
				case a.Addrs != addresses{}:
					text += " " + a.Addrs.String()
				case a.Problem == nil:
					text += " none"
				}
				if a.Problem != nil {
					text += " " + a.Problem.Reason.String() + " " + a.Problem.Field
				}
				have = append(have, text)
			}
			slices.Sort(have)
			if !slices.Equal(have, row.want) {
				t.Errorf("%q, want %q", have, row.want)
			}
			state := out.Pools[derive.Object{Name: "a"}]
			var problems []string
			for _, p := range state.Problems {
				problems = append(problems, p.Field+" "+p.Reason.String())
			}
			if !slices.Equal(problems, row.problems) {
				t.Errorf("problems of the pool %q, want %q", problems, row.problems)
			}
			if usage := fmt.Sprintf("%d of %d", state.Usage.Used, state.Usage.Total); row.pool != "" && usage != row.usage {
				t.Errorf("used %s, want %s", usage, row.usage)
			}
		})
	}
}

// TestTwoPools have one range: the first by name gives its addresses.
func TestTwoPools(t *testing.T) {
	v := view{Pools: []derive.Row[derive.Object, poolFacts]{
		poolOf(t, "a", "{ipRanges: [{cidr: 198.51.100.0/30}], nodeSelector: {}}"),
		poolOf(t, "b", "{ipRanges: [{cidr: 198.51.100.0/29}], nodeSelector: {}}"),
	}, Services: []derive.Row[derive.Object, serviceFacts]{serviceOf("b", "x")}}
	out := assign(v)
	if a := out.Services[derive.Object{Namespace: "default", Name: "x"}]; a.Addrs.String() != "198.51.100.3" {
		t.Errorf("%v, %v", a.Addrs, a.Problem)
	}
	if list := out.Pools[derive.Object{Name: "b"}].Problems; len(list) != 1 || list[0].Reason.String() != "AddressInUse" {
		t.Errorf("problems of the second pool: %v", list)
	}
}

// TestNoClusterIPs has a pool with a range of IPv6 in a cluster with ClusterIPs of IPv4 alone.
func TestNoClusterIPs(t *testing.T) {
	v := view{Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}, Pools: []derive.Row[derive.Object, poolFacts]{
		poolOf(t, "a", "{ipRanges: [{cidr: 'fd00::/64'}, {cidr: 198.51.100.0/30}], nodeSelector: {}}"),
	}}
	list := assign(v).Pools[derive.Object{Name: "a"}].Problems
	if len(list) != 1 || list[0].Reason.String() != "VersionNotServed" || !strings.Contains(list[0].Message, "fd00::1-") {
		t.Errorf("problems %v", list)
	}
	v.Ranges = nil // an API server without ServiceCIDRs
	if list := assign(v).Pools[derive.Object{Name: "a"}].Problems; len(list) > 0 {
		t.Errorf("problems %v", list)
	}
}
