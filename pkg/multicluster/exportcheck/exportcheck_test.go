package exportcheck_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

func subset(ips ...string) corev1.EndpointSubset {
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}}
	for _, ip := range ips {
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
	}
	return s
}

func with(change func(*corev1.EndpointSubset)) []corev1.EndpointSubset {
	s := subset("10.96.0.1")
	change(&s)
	return []corev1.EndpointSubset{s}
}

// text is subsets in a line: "10.96.0.1 10.96.0.2:http/TCP/80".
func text(subsets []corev1.EndpointSubset) string {
	var out []string
	for _, s := range subsets {
		var addresses, ports []string
		for _, a := range s.Addresses {
			addresses = append(addresses, strings.TrimPrefix(a.Hostname+"=", "=")+a.IP)
			if a.NodeName != nil || a.TargetRef != nil {
				addresses = append(addresses, "(names objects)")
			}
		}
		for _, a := range s.NotReadyAddresses {
			addresses = append(addresses, "not ready "+a.IP)
		}
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s/%s/%d", p.Name, p.Protocol, p.Port))
		}
		out = append(out, strings.Join(addresses, " ")+":"+strings.Join(ports, ","))
	}
	return strings.Join(out, "; ")
}

func TestSubsets(t *testing.T) {
	type s = corev1.EndpointSubset
	many := subset()
	for i := range 1001 {
		many.Addresses = append(many.Addresses, corev1.EndpointAddress{IP: fmt.Sprintf("10.96.%d.%d", i/250, i%250)})
	}
	dual := subset() // a thousand endpoints, each with two addresses
	for i := range 1000 {
		dual.Addresses = append(dual.Addresses, many.Addresses[i], corev1.EndpointAddress{IP: fmt.Sprintf("fd00::%x", i+1)})
	}
	ranges := exportcheck.Allowed{Own: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"),
		netip.MustParsePrefix("10.10.0.0/16")}}
	foreign := func(ip netip.Addr) string {
		if netip.MustParsePrefix("10.97.0.0/16").Contains(ip) {
			return "in a range of cluster west"
		}
		return ""
	}
	services := exportcheck.Allowed{Own: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Foreign: foreign}
	none := exportcheck.Allowed{Foreign: foreign}
	for _, row := range []struct {
		name    string
		subsets []s
		allowed exportcheck.Allowed
		want    string
		wrong   string // the first problem, or a part of it
	}{
		{name: "nothing"},
		{name: "two addresses", subsets: []s{subset("10.96.0.1", "10.96.0.2")}, want: "10.96.0.1 10.96.0.2:http/TCP/80"},
		{name: "IPv6", subsets: []s{subset("2001:db8::1")}, want: "2001:db8::1:http/TCP/80"},
		{name: "a protocol left out is TCP", subsets: with(func(s *s) { s.Ports[0].Protocol = "" }),
			want: "10.96.0.1:http/TCP/80"},
		{name: "no ports", subsets: with(func(s *s) { s.Ports = nil }), want: "10.96.0.1:"},
		{name: "not ready", subsets: with(func(s *s) { s.NotReadyAddresses, s.Addresses = s.Addresses, nil }),
			want: "not ready 10.96.0.1:http/TCP/80"},
		{name: "names of objects of the exporting cluster", subsets: with(func(s *s) {
			s.Addresses[0].NodeName, s.Addresses[0].TargetRef = ptr.To("node-1"),
				&corev1.ObjectReference{Kind: "Pod", Name: "web"}
		}), want: "10.96.0.1:http/TCP/80"},
		{name: "repeated, as the original does", subsets: []s{subset("10.96.0.1"), subset("10.96.0.1", "10.96.0.2")},
			want: "10.96.0.1 10.96.0.2:http/TCP/80"},
		{name: "loopback", subsets: []s{subset("127.0.0.1", "10.96.0.1")}, want: "10.96.0.1:http/TCP/80",
			wrong: "subsets[0].addresses[0].ip: 127.0.0.1 is a loopback address"},
		{name: "loopback as IPv6", subsets: []s{subset("::ffff:127.0.0.1")}, wrong: "is a loopback address"},
		{name: "the metadata service of clouds", subsets: []s{subset("169.254.169.254")}, wrong: "is a link-local address"},
		{name: "link-local IPv6", subsets: []s{subset("fe80::1")}, wrong: "is a link-local address"},
		{name: "with a zone", subsets: []s{subset("fe80::1%eth0")}, wrong: `"fe80::1%eth0" is not an IP address`},
		{name: "unspecified", subsets: []s{subset("0.0.0.0")}, wrong: "is the unspecified address"},
		{name: "this network", subsets: []s{subset("0.0.0.9")}, wrong: "is a reserved address"},
		{name: "multicast", subsets: []s{subset("224.0.0.1")}, wrong: "is a multicast address"},
		{name: "broadcast", subsets: []s{subset("255.255.255.255")}, wrong: "is a reserved address"},
		{name: "no address", subsets: []s{subset("web.example.org")}, wrong: `"web.example.org" is not an IP address`},
		{name: "leading zeros", subsets: []s{subset("010.96.0.1")}, wrong: "is not an IP address"},
		{name: "very long", subsets: []s{subset(strings.Repeat("1", 1<<20))}, wrong: strings.Repeat("1", 64) +
			`"... is not an IP address`},
		{name: "a host name", subsets: with(func(s *s) { s.Addresses[0].Hostname = "web-0" }),
			want: "web-0=10.96.0.1:http/TCP/80"},
		{name: "a bad host name", subsets: with(func(s *s) { s.Addresses[0].Hostname = "Web_0" }),
			wrong: `subsets[0].addresses[0].hostname: "Web_0" is not a host name`},
		{name: "port 0", subsets: with(func(s *s) { s.Ports[0].Port = 0 }),
			wrong: "subsets[0].ports[0].port: 0 is not a port number: expected 1 to 65535"},
		{name: "port 65536", subsets: with(func(s *s) { s.Ports[0].Port = 65536 }), wrong: "65536 is not a port number"},
		{name: "a protocol nobody knows", subsets: with(func(s *s) { s.Ports[0].Protocol = "ICMP" }),
			wrong: `"ICMP" is not a known protocol`},
		{name: "a port's name", subsets: with(func(s *s) { s.Ports[0].Name = "HTTP" }), wrong: `"HTTP" is not a port name`},
		{name: "two ports, one without a name",
			subsets: with(func(s *s) { s.Ports = append(s.Ports, corev1.EndpointPort{Port: 81}) }),
			want:    "10.96.0.1:http/TCP/80", wrong: "subsets[0].ports[1].name: is empty"},
		{name: "two ports of one name",
			subsets: with(func(s *s) { s.Ports = append(s.Ports, corev1.EndpointPort{Name: "http", Port: 81}) }),
			want:    "10.96.0.1:http/TCP/80", wrong: `"http" is given twice`},
		{name: "an application protocol", subsets: with(func(s *s) { s.Ports[0].AppProtocol = ptr.To("a b") }),
			wrong: `"a b" is not an application protocol`},
		{name: "a thousand and one", subsets: []s{many},
			want:  text([]s{{Addresses: many.Addresses[:1000], Ports: many.Ports}}),
			wrong: "is one endpoint too many: expected at most 1000"},
		{name: "a thousand, of both versions of IP", subsets: []s{dual}, want: text([]s{dual})},
		{name: "translated IPv4", subsets: []s{subset("64:ff9b::a60:1")}, wrong: "is a reserved address"},
		{name: "an address of switches", subsets: []s{subset("fc01::1")}, wrong: "is a reserved address"},
		{name: "in the Service range", subsets: []s{subset("10.96.0.1")}, allowed: ranges, want: "10.96.0.1:http/TCP/80"},
		{name: "in the Pod range", subsets: []s{subset("10.10.0.1")}, allowed: ranges, want: "10.10.0.1:http/TCP/80"},
		{name: "outside of the ranges", subsets: []s{subset("10.97.0.1")}, allowed: ranges,
			wrong: "10.97.0.1 is outside of the ranges that its cluster announces: expected an address of 10.96.0.0/16 or " +
				"10.10.0.0/16"},
		{name: "in another's range", subsets: []s{subset("10.97.0.1", "10.10.0.1")}, allowed: none,
			want:  "10.10.0.1:http/TCP/80",
			wrong: "10.97.0.1 is in a range of cluster west: expected an address of the exporting cluster"},
		{name: "of a cluster with a Service range alone",
			subsets: []s{subset("10.96.0.1", "10.10.0.1", "10.97.0.1", "127.0.0.1")}, allowed: services,
			want: "10.96.0.1 10.10.0.1:http/TCP/80",
			wrong: "addresses[2].ip: 10.97.0.1 is in a range of cluster west: expected an address of the exporting cluster " +
				"(and 1 more)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			have, wrong := exportcheck.Subsets("subsets", row.subsets, row.allowed, exportcheck.MaxEndpoints)
			if text(have) != row.want {
				t.Errorf("have %.200s\nwant %.200s", text(have), row.want)
			}
			checkProblem(t, wrong, row.wrong)
		})
	}
}

func checkProblem(t *testing.T, wrong []exportcheck.Problem, want string) {
	t.Helper()
	err := exportcheck.First(wrong)
	if err == nil && want == "" {
		return
	}
	if err == nil || want == "" || !strings.Contains(err.Error(), want) {
		t.Errorf("problem %v, want %q", err, want)
	}
	if err != nil && len(err.Error()) > 300 {
		t.Errorf("the problem has %d bytes", len(err.Error()))
	}
}

func TestServicePorts(t *testing.T) {
	type p = corev1.ServicePort
	many := make([]p, 101)
	for i := range many {
		many[i] = p{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1)}
	}
	for _, row := range []struct {
		name  string
		ports []p
		want  int
		wrong string
	}{
		{"one without a name", []p{{Port: 80}}, 1, ""},
		{"fields that stay in the cluster", []p{{Port: 80, NodePort: 99999, TargetPort: intstr.FromString("a b")}}, 1, ""},
		{"an application protocol", []p{{Port: 80, AppProtocol: ptr.To("kubernetes.io/h2c")}}, 1, ""},
		{"an application protocol that is none", []p{{Port: 80, AppProtocol: ptr.To("a b")}}, 0,
			`ports[0].appProtocol: "a b" is not an application protocol`},
		{"one number, two protocols",
			[]p{{Name: "a", Port: 53, Protocol: "UDP"}, {Name: "b", Port: 53, Protocol: "TCP"}}, 2, ""},
		{"one number twice", []p{{Name: "a", Port: 53}, {Name: "b", Port: 53, Protocol: "TCP"}}, 1,
			"ports[1].port: TCP/53 is given twice"},
		{"one name twice", []p{{Name: "a", Port: 53}, {Name: "a", Port: 54}}, 1, `ports[1].name: "a" is given twice`},
		{"two, one without a name", []p{{Port: 53}, {Name: "a", Port: 54}}, 1, "ports[0].name: is empty"},
		{"a negative number", []p{{Port: -1}}, 0, "-1 is not a port number"},
		{"SCTP", []p{{Port: 1, Protocol: corev1.ProtocolSCTP}}, 1, ""},
		{"an unknown protocol", []p{{Port: 1, Protocol: "tcp"}}, 0, `"tcp" is not a known protocol`},
		{"too many", many, 100, "ports[100]: is one port too many: expected at most 100"},
	} {
		t.Run(row.name, func(t *testing.T) {
			have, wrong := exportcheck.ServicePorts("ports", row.ports)
			if len(have) != row.want {
				t.Errorf("%d ports, want %d", len(have), row.want)
			}
			checkProblem(t, wrong, row.wrong)
		})
	}
}

// TestAcceptedByAPIServer makes Endpoints and Services of what is left of random exports. A real
// API server accepts them all.
func TestAcceptedByAPIServer(t *testing.T) {
	c, err := client.New(apiserver.Start(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const seed, steps = 61, 300
	random := rand.New(rand.NewPCG(seed, seed))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	number := func() int32 { return []int32{80, 81, 8080, 65535, 0, -1, 65536, 1 << 30}[random.IntN(8)] }
	name := func() string { return pick("", "http", "dns", "Dns", "a b", strings.Repeat("x", 64), "ü") }
	protocol := func() corev1.Protocol { return corev1.Protocol(pick("", "TCP", "UDP", "SCTP", "tcp", "ICMP")) }
	ip := func() string {
		return pick("10.96.0.1", "10.96.0.2", "192.0.2.9", "2001:db8::1", "127.0.0.1", "::1", "169.254.169.254", "fe80::1",
			"0.0.0.0", "224.0.0.5",
			"ff02::1", "255.255.255.255", "010.1.1.1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "fe80::1%lo", "", "web")
	}
	refused := 0
	for step := range steps {
		var subsets []corev1.EndpointSubset
		var ports []corev1.ServicePort
		for range random.IntN(4) {
			var s corev1.EndpointSubset
			for range random.IntN(4) {
				s.Addresses = append(s.Addresses,
					corev1.EndpointAddress{IP: ip(), Hostname: name(), NodeName: ptr.To(pick("node", "not a node"))})
			}
			for range random.IntN(2) {
				s.NotReadyAddresses = append(s.NotReadyAddresses,
					corev1.EndpointAddress{IP: ip(), TargetRef: &corev1.ObjectReference{Kind: "Pod"}})
			}
			for range random.IntN(3) {
				s.Ports = append(s.Ports, corev1.EndpointPort{Name: name(), Port: number(), Protocol: protocol(),
					AppProtocol: ptr.To(pick("http", "kubernetes.io/h2c", "a b"))})
			}
			subsets = append(subsets, s)
			ports = append(ports, corev1.ServicePort{Name: name(), Port: number(), Protocol: protocol(), NodePort: number(),
				AppProtocol: ptr.To("a b")})
		}
		meta := metav1.ObjectMeta{Namespace: "default", Name: "antrea-mc-web"}
		clean, wrong := exportcheck.Subsets("subsets", subsets, exportcheck.Allowed{}, exportcheck.MaxEndpoints)
		endpoints := &corev1.Endpoints{ObjectMeta: meta, Subsets: clean} //nolint:staticcheck // the documented kind
		if err := c.Create(t.Context(), endpoints, client.DryRunAll); err != nil {
			t.Fatalf("seed %d, step %d: %v\nof %+v", seed, step, err, clean)
		}
		refused += len(wrong)
		cleanPorts, _ := exportcheck.ServicePorts("ports", ports)
		service := &corev1.Service{ObjectMeta: meta}
		for _, p := range cleanPorts {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: p.Name, Port: p.Port, Protocol: p.Protocol})
		}
		if len(cleanPorts) == 0 {
			continue
		}
		if err := c.Create(t.Context(), service, client.DryRunAll); err != nil {
			t.Fatalf("seed %d, step %d: %v\nof %+v", seed, step, err, cleanPorts)
		}
	}
	if refused < steps {
		t.Errorf("only %d problems in %d steps: the exports are too tame", refused, steps)
	}
}
