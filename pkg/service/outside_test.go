package service

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
)

// outside gives a Service clients outside: a node port for its only port, load balancers' addresses, external ones.
func outside(
	s *corev1.Service, policy corev1.ServiceExternalTrafficPolicy, nodePort int32, balancers, external []string,
) *corev1.Service {
	s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, policy
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = nodePort + int32(i)
	}
	if len(balancers) > 0 {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
	}
	for _, ip := range balancers {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	s.Spec.ExternalIPs = external
	return s
}

func limited(s *corev1.Service, ranges ...string) *corev1.Service {
	s.Spec.LoadBalancerSourceRanges = ranges
	return s
}

func inMode(s *corev1.Service, mode corev1.LoadBalancerIPMode) *corev1.Service {
	for i := range s.Status.LoadBalancer.Ingress {
		s.Status.LoadBalancer.Ingress[i].IPMode = &mode
	}
	return s
}

func slicesOf(ss ...*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice { return ss }

// TestOutside has the addresses outside at which a Service is served, and their endpoints.
func TestOutside(t *testing.T) {
	const cluster, local = corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal
	web := func() *corev1.Service { return svc("web", "10.96.0.10", "/TCP/80") }
	here, there := on("node-1", ready("10.10.0.2")), on("node-2", ready("10.10.1.2"))
	both := slicesOf(slice("web", "/TCP/8080", here, there))
	drains := withConditions("10.10.0.3", false, true, true)
	for _, row := range []struct {
		name     string
		services []*corev1.Service
		slices   []*discoveryv1.EndpointSlice
		want     []string
		problems []string
	}{
		{
			"node port, load balancer and external address share the endpoints",
			[]*corev1.Service{outside(web(), cluster, 30080, []string{"192.0.2.1"}, []string{"192.0.2.9"})}, both,
			[]string{
				"web 0.0.0.0:30080/TCP NodePort -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 192.0.2.1:80/TCP LoadBalancer -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 192.0.2.9:80/TCP ExternalIP -> 10.10.0.2:8080 10.10.1.2:8080",
			}, nil,
		},
		{
			"externalTrafficPolicy Local keeps others to this Node, and no ClusterIP",
			[]*corev1.Service{outside(web(), local, 30080, []string{"192.0.2.1"}, nil)}, both,
			[]string{
				"web 0.0.0.0:30080/TCP NodePort for own clients -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 0.0.0.0:30080/TCP NodePort for other clients -> 10.10.0.2:8080",
				"web 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 192.0.2.1:80/TCP LoadBalancer for own clients -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 192.0.2.1:80/TCP LoadBalancer for other clients -> 10.10.0.2:8080",
			}, nil,
		},
		{
			"internalTrafficPolicy Local is for the ClusterIP alone",
			[]*corev1.Service{localPolicy(outside(web(), cluster, 30080, nil, nil))}, both,
			[]string{
				"web 0.0.0.0:30080/TCP NodePort -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 10.96.0.10:80/TCP -> 10.10.0.2:8080",
			}, nil,
		},
		{
			"endpoints on other Nodes alone: others are dropped, own clients served",
			[]*corev1.Service{outside(web(), local, 30080, nil, nil)}, slicesOf(slice("web", "/TCP/8080", there)),
			[]string{
				"web 0.0.0.0:30080/TCP NodePort for own clients -> 10.10.1.2:8080",
				"web 0.0.0.0:30080/TCP NodePort for other clients -> elsewhere",
				"web 10.96.0.10:80/TCP -> 10.10.1.2:8080",
			}, nil,
		},
		{
			"no endpoint anywhere: all are refused",
			[]*corev1.Service{outside(web(), local, 30080, nil, nil)}, nil,
			[]string{
				"web 0.0.0.0:30080/TCP NodePort for own clients ->", "web 0.0.0.0:30080/TCP NodePort for other clients ->",
				"web 10.96.0.10:80/TCP ->",
			}, nil,
		},
		{
			"an endpoint here that terminates serves others, while own clients have one that is ready",
			[]*corev1.Service{outside(web(), local, 30080, nil, nil)},
			slicesOf(slice("web", "/TCP/8080", on("node-1", drains), there)),
			[]string{
				"web 0.0.0.0:30080/TCP NodePort for own clients -> 10.10.1.2:8080",
				"web 0.0.0.0:30080/TCP NodePort for other clients -> 10.10.0.3:8080",
				"web 10.96.0.10:80/TCP -> 10.10.1.2:8080",
			}, nil,
		},
		{
			"ranges of clients, of load balancers alone",
			[]*corev1.Service{limited(
				outside(web(), cluster, 30080, []string{"192.0.2.1"}, []string{"192.0.2.9"}),
				" 198.51.100.7/24", "2001:db8::/32",
			)}, both,
			[]string{
				"web 0.0.0.0:30080/TCP NodePort -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 192.0.2.1:80/TCP LoadBalancer limited to [198.51.100.0/24] -> 10.10.0.2:8080 10.10.1.2:8080",
				"web 192.0.2.9:80/TCP ExternalIP -> 10.10.0.2:8080 10.10.1.2:8080",
			}, nil,
		},
		{
			"ranges of the other family, or all addresses, limit no client",
			[]*corev1.Service{
				limited(outside(web(), cluster, 0, []string{"192.0.2.1"}, nil), "2001:db8::/32"),
				limited(
					outside(svc("all", "10.96.0.11", "/TCP/80"), cluster, 0, []string{"192.0.2.2"}, nil),
					"198.51.100.0/24", "0.0.0.0/0",
				),
			}, nil,
			[]string{
				"all 10.96.0.11:80/TCP ->", "all 192.0.2.2:80/TCP LoadBalancer ->",
				"web 10.96.0.10:80/TCP ->", "web 192.0.2.1:80/TCP LoadBalancer ->",
			}, nil,
		},
		{
			"a range that is none lets no client in",
			[]*corev1.Service{limited(outside(web(), cluster, 0, []string{"192.0.2.1"}, nil), "198.51.100.0")}, nil,
			[]string{"web 10.96.0.10:80/TCP ->", "web 192.0.2.1:80/TCP LoadBalancer limited to [] ->"},
			[]string{"default/web spec.loadBalancerSourceRanges[0] InvalidSourceRange"},
		},
		{
			"too many ranges let no client in",
			[]*corev1.Service{limited(outside(web(), cluster, 0, []string{"192.0.2.1"}, nil), manyRanges(MaxSources+1)...)},
			nil,
			[]string{"web 10.96.0.10:80/TCP ->", "web 192.0.2.1:80/TCP LoadBalancer limited to [] ->"},
			[]string{"default/web spec.loadBalancerSourceRanges TooManySourceRanges"},
		},
		{
			"addresses of proxies and of other families are not served",
			[]*corev1.Service{inMode(
				outside(web(), cluster, 0, []string{"192.0.2.1", ""}, []string{"2001:db8::9"}), corev1.LoadBalancerIPModeProxy,
			)}, nil,
			[]string{"web 10.96.0.10:80/TCP ->"}, nil,
		},
		{
			"addresses that nothing is sent to",
			[]*corev1.Service{outside(web(), cluster, 0, []string{"169.254.0.252"}, []string{"127.0.0.1", "example.org"})}, nil,
			[]string{"web 10.96.0.10:80/TCP ->"},
			[]string{
				"default/web spec.externalIPs[0] InvalidExternalIP", "default/web spec.externalIPs[1] InvalidExternalIP",
				"default/web status.loadBalancer.ingress[0].ip InvalidLoadBalancerIP",
			},
		},
		{
			"addresses that the switch uses itself: another Service's node port is no port of theirs",
			[]*corev1.Service{outside(svc("web", "fd96::10", "/TCP/30080"), cluster, 0, []string{"fc01::aabb:ccdd:eefd"},
				[]string{"fc01::aabb:ccdd:eefe", "fc01::aabb:ccdd:eeff", "fc01::1"})}, nil,
			[]string{"web [fd96::10]:30080/TCP ->"},
			[]string{
				"default/web spec.externalIPs[0] InvalidExternalIP", "default/web spec.externalIPs[1] InvalidExternalIP",
				"default/web spec.externalIPs[2] InvalidExternalIP",
				"default/web status.loadBalancer.ingress[0].ip InvalidLoadBalancerIP",
			},
		},
		{
			"one external address, which the load balancer gives, too",
			[]*corev1.Service{outside(web(), cluster, 0, []string{"192.0.2.1"}, []string{"192.0.2.1"})}, nil,
			[]string{"web 10.96.0.10:80/TCP ->", "web 192.0.2.1:80/TCP LoadBalancer ->"}, nil,
		},
		{
			"an external address takes away neither a ClusterIP nor a load balancer's address",
			[]*corev1.Service{
				outside(svc("a", "10.96.0.11", "/TCP/80"), cluster, 0, nil, []string{"10.96.0.10", "192.0.2.1"}),
				outside(web(), cluster, 0, []string{"192.0.2.1"}, nil),
			}, nil,
			[]string{"a 10.96.0.11:80/TCP ->", "web 10.96.0.10:80/TCP ->", "web 192.0.2.1:80/TCP LoadBalancer ->"},
			[]string{"default/a spec.externalIPs AddressInUse", "default/a spec.externalIPs AddressInUse"},
		},
		{
			"two Services share a load balancer's address by port",
			[]*corev1.Service{
				outside(svc("a", "10.96.0.11", "/TCP/81"), cluster, 0, []string{"192.0.2.1"}, nil),
				limited(outside(web(), cluster, 0, []string{"192.0.2.1"}, nil), "198.51.100.0/24"),
			}, nil,
			[]string{
				"a 10.96.0.11:81/TCP ->", "a 192.0.2.1:81/TCP LoadBalancer ->",
				"web 10.96.0.10:80/TCP ->", "web 192.0.2.1:80/TCP LoadBalancer limited to [198.51.100.0/24] ->",
			}, nil,
		},
		{
			"a node port that another Service has",
			[]*corev1.Service{
				outside(svc("a", "10.96.0.11", "/TCP/80"), local, 30080, nil, nil),
				outside(web(), local, 30080, nil, nil),
			}, nil,
			[]string{
				"a 0.0.0.0:30080/TCP NodePort for own clients ->", "a 0.0.0.0:30080/TCP NodePort for other clients ->",
				"a 10.96.0.11:80/TCP ->", "web 10.96.0.10:80/TCP ->",
			},
			[]string{"default/web spec.ports[0].nodePort AddressInUse"},
		},
		{
			"an import has no clients outside",
			[]*corev1.Service{imported(outside(web(), cluster, 30080, nil, nil))}, nil,
			[]string{"web 10.96.0.10:80/TCP ->"}, nil,
		},
		{
			"another proxy's Service",
			[]*corev1.Service{labelled(outside(web(), cluster, 30080, nil, nil), LabelProxyName, "another")}, both, nil, nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			frontends, problems := Plan(View{Services: row.services, Slices: row.slices, NodeName: "node-1", Outside: true,
				Families: family.Dual})
			if diff := cmp.Diff(row.want, text(frontends)); diff != "" {
				t.Errorf("frontends (-want +have):\n%s", diff)
			}
			var have []string
			for _, p := range problems {
				have = append(have, strings.TrimPrefix(p.Object.String(), "Service ")+" "+p.Field+" "+p.Reason.String())
			}
			slices.Sort(have)
			if diff := cmp.Diff(row.problems, have); diff != "" {
				t.Errorf("problems (-want +have):\n%s", diff)
			}
			inside, _ := Plan(View{Services: row.services, Slices: row.slices, NodeName: "node-1"})
			for _, f := range inside {
				if f.Kind != ClusterIP {
					t.Errorf("%s %s is served although nothing outside is", f, f.Kind)
				}
			}
			same := map[Set]Frontend{}
			for _, f := range frontends {
				o, ok := same[f.Set()]
				if ok && (o.Affinity != f.Affinity || o.Elsewhere != f.Elsewhere || !slices.Equal(o.Endpoints, f.Endpoints)) {
					t.Errorf("%s has not the endpoints of its set: %v, %v", f, f.Endpoints, o.Endpoints)
				}
				same[f.Set()] = f
			}
		})
	}
}

// randomOutside gives a Service of the random walk addresses outside, which collide.
func randomOutside(random *rand.Rand, s *corev1.Service) {
	if random.IntN(2) == 0 {
		return
	}
	s.Spec.Type = []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}[random.IntN(2)]
	if random.IntN(2) == 0 {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = []int32{0, 30080, 30081}[random.IntN(3)]
	}
	address := func() string {
		return []string{"192.0.2.1", "192.0.2.2", "10.96.0.1", "none", "2001:db8::1"}[random.IntN(5)]
	}
	for range random.IntN(3) {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, address())
	}
	for range random.IntN(3) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address()})
	}
	for range random.IntN(3) {
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges,
			[]string{"198.51.100.0/24", "none", "0.0.0.0/0", "2001:db8::/32"}[random.IntN(4)])
	}
}

// TestOutsideOracle plans random Services with addresses that collide, and compares with an oracle.
func TestOutsideOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(*walkSeed, 1))
	kinds := map[string]int{}
	for step := range *walkSteps / 4 {
		v := View{NodeName: "node-1", Outside: true}
		for i := range 4 {
			name := fmt.Sprint("s", i)
			port := func(n int) string { return []string{"a/TCP/80", "b/UDP/80", "c/TCP/81"}[n%3] }
			first := random.IntN(3)
			s := svc(name, fmt.Sprintf("10.96.0.%d", 1+random.IntN(3)), port(first), port(first+1))
			if random.IntN(4) == 0 {
				localPolicy(s)
			}
			s.Spec.PublishNotReadyAddresses = random.IntN(8) == 0
			randomOutside(random, s)
			v.Services = append(v.Services, s)
			for n := range random.IntN(3) {
				l := slice(name, port(first+n))
				for range random.IntN(4) {
					e := withConditions([]string{"10.10.0.2", "10.10.0.3", "10.10.1.2", "127.0.0.1", "none"}[random.IntN(5)],
						random.IntN(2) > 0, random.IntN(2) > 0, random.IntN(2) > 0)
					l.Endpoints = append(l.Endpoints, on(fmt.Sprint("node-", 1+random.IntN(2)), e))
				}
				v.Slices = append(v.Slices, l)
			}
		}
		frontends, _ := Plan(v)
		if diff := cmp.Diff(oracle(v), text(frontends)); diff != "" {
			t.Fatalf("seed %d, step %d: frontends (-oracle +have):\n%s", *walkSeed, step, diff)
		}
		for _, f := range frontends {
			kinds[fmt.Sprint(f.Kind, " ", f.Clients, " ", f.Limited, " ", f.Elsewhere, " ", len(f.Endpoints) > 0)]++
		}
	}
	if len(kinds) < 18 {
		t.Errorf("the walk has met only %v", kinds)
	}
}

// oracle says the same as Plan in the words of Kubernetes' documents, address by address and from nothing: who has an
// address, and which endpoints each client of it may use.
func oracle(v View) []string {
	type user struct {
		service *corev1.Service
		port    corev1.ServicePort
		kind    Kind
	}
	users := map[address][]user{}
	slices.SortFunc(v.Services, func(a, b *corev1.Service) int { return strings.Compare(a.Name, b.Name) })
	for kind := ClusterIP; kind <= ExternalIP; kind++ {
		for _, s := range v.Services {
			for _, p := range s.Spec.Ports {
				var texts []string
				number := p.Port
				switch {
				case kind == ClusterIP:
					texts = []string{s.Spec.ClusterIP}
				case kind == NodePort && p.NodePort != 0:
					texts, number = []string{"0.0.0.0"}, p.NodePort
				case kind == LoadBalancer && s.Spec.Type == corev1.ServiceTypeLoadBalancer:
					for _, in := range s.Status.LoadBalancer.Ingress {
						texts = append(texts, in.IP)
					}
				case kind == ExternalIP:
					texts = s.Spec.ExternalIPs
				}
				for _, text := range texts {
					if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() && p.Protocol != corev1.ProtocolSCTP {
						a := addressOf(p.Protocol, netip.AddrPortFrom(ip, uint16(number)))
						users[a] = append(users[a], user{s, p, kind})
					}
				}
			}
		}
	}
	var out []Frontend
	for a, list := range users {
		s, p, kind := list[0].service, list[0].port, list[0].kind // the lowest kind, then the first by name
		f := Frontend{Namespace: s.Namespace, Service: s.Name, Port: p.Name, Protocol: p.Protocol, VIP: a.addrPort(),
			Kind: kind}
		if kind == LoadBalancer {
			f.Sources, f.Limited = allowed(s.Spec.LoadBalancerSourceRanges)
		}
		isLocal := kind != ClusterIP && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		inside := s.Spec.InternalTrafficPolicy
		if kind == ClusterIP && inside != nil && *inside == corev1.ServiceInternalTrafficPolicyLocal {
			f.Endpoints, f.Elsewhere = serving(v, s, p, true)
			out = append(out, f)
			continue
		}
		if isLocal {
			f.Clients = OwnClients
		}
		f.Endpoints, f.Elsewhere = serving(v, s, p, false)
		out = append(out, f)
		if isLocal {
			f.Clients = OtherClients
			f.Endpoints, f.Elsewhere = serving(v, s, p, true)
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b Frontend) int {
		if a.Service != b.Service {
			return strings.Compare(a.Service, b.Service)
		}
		return a.compare(b)
	})
	return text(out)
}

// allowed are the ranges of clients, and whether they limit any.
func allowed(texts []string) (out []netip.Prefix, limits bool) {
	others, invalid := false, false
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			invalid = true
		case p.Addr().Is6():
			others = true
		case !slices.Contains(out, p):
			out = append(out, p)
		}
	}
	if slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		return nil, false
	}
	return out, len(out) > 0 || invalid && !others
}

// serving are the endpoints of a port on all Nodes or on this one: ready endpoints, else terminating ones that serve.
func serving(v View, s *corev1.Service, p corev1.ServicePort, local bool) (out []Endpoint, elsewhere bool) {
	found := func(local, ready bool) (out []Endpoint) {
		for _, l := range v.Slices {
			port := l.Ports[0]
			if l.Labels[discoveryv1.LabelServiceName] != s.Name || *port.Name != p.Name || *port.Protocol != p.Protocol {
				continue
			}
			for _, e := range l.Endpoints {
				ip, err := netip.ParseAddr(e.Addresses[0])
				c := e.Conditions
				if err != nil || ip.IsLoopback() || local && *e.NodeName != v.NodeName {
					continue
				}
				if *c.Ready || s.Spec.PublishNotReadyAddresses || !ready && *c.Serving && *c.Terminating {
					out = append(out, Endpoint{Addr: netip.AddrPortFrom(ip, uint16(*port.Port)), Weight: 1})
				}
			}
		}
		slices.SortFunc(out, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
		return slices.Compact(out)
	}
	for _, ready := range []bool{true, false} {
		if out = found(local, ready); len(out) > 0 {
			return out, false
		}
	}
	return nil, local && len(append(found(false, true), found(false, false)...)) > 0
}

// TestOutsideFacts has the further facts about clients outside.
func TestOutsideFacts(t *testing.T) {
	const local = corev1.ServiceExternalTrafficPolicyLocal
	s := outside(svc("web", "10.96.0.10", "/TCP/80"), local, 30080, []string{"192.0.2.1"}, nil)
	s.Spec.HealthCheckNodePort = 31000
	if f := FactsOf(s); f.Outside.HealthPort != 31000 || !f.Outside.Local {
		t.Errorf("health check port: %+v", f.Outside)
	}
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	if f := FactsOf(s); f.Outside.HealthPort != 0 {
		t.Errorf("with externalTrafficPolicy Cluster no health check port is served, have %d", f.Outside.HealthPort)
	}
	s.Spec.Ports[0].NodePort = 70000
	if f := FactsOf(s); len(f.Ports) != 0 || len(f.Problems) != 1 || f.Problems[0].Field != "spec.ports[0].nodePort" {
		t.Errorf("node port 70000: %+v", f)
	}
}

// TestSharedSets counts the endpoint sets of a Service with many addresses.
func TestSharedSets(t *testing.T) {
	const local = corev1.ServiceExternalTrafficPolicyLocal
	balancers := []string{"192.0.2.1", "192.0.2.2"}
	s := outside(svc("web", "10.96.0.10", "/TCP/80"), local, 30080, balancers, []string{"192.0.2.9"})
	l := slice("web", "/TCP/8080")
	for i := range 100 {
		l.Endpoints = append(l.Endpoints, on(fmt.Sprint("node-", i%2), ready(fmt.Sprint("10.10.0.", 2+i))))
	}
	e := derive.New()
	tables := NewTables(e, "node-1", noZone, false)
	tables.Outside = true
	tables.Services.Set(derive.ObjectOf(s), FactsOf(s))
	tables.Slices.Set(derive.ObjectOf(l), SliceFactsOf(l))
	tables.Services.Loaded()
	tables.Slices.Loaded()
	e.Pass()
	lists := map[*Endpoint]int{}
	for _, f := range tables.all() {
		lists[&f.Endpoints[0]]++
	}
	if len(lists) != 2 {
		t.Errorf("%d lists of endpoints in memory for 9 frontends, want one for each scope: %v", len(lists), lists)
	}
}

// TestHealth counts what a load balancer is answered.
func TestHealth(t *testing.T) {
	s := outside(svc("web", "10.96.0.10", "a/TCP/80", "b/TCP/81"), corev1.ServiceExternalTrafficPolicyLocal, 30080,
		[]string{"192.0.2.1"}, nil)
	s.Spec.HealthCheckNodePort = 31000
	here := on("node-1", ready("10.10.0.2"))
	drains := on("node-1", withConditions("10.10.0.3", false, true, true))
	a := slice("web", "a/TCP/8080", here, drains, on("node-2", ready("10.10.1.2")))
	b := slice("web", "b/TCP/8081", here, on("node-1", ready("10.10.0.4")))
	for _, row := range []struct {
		name    string
		outside bool
		slices  []*discoveryv1.EndpointSlice
		want    Health
	}{
		{"ready endpoints here, each once", true, slicesOf(a, b), Health{31000, 2}},
		{"one that terminates does not count", true, slicesOf(a), Health{31000, 1}},
		{"no endpoints", true, nil, Health{31000, 0}},
		{"not served", false, slicesOf(a), Health{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := derive.New()
			tables := NewTables(e, "node-1", noZone, false)
			tables.Outside = row.outside
			tables.Services.Set(derive.ObjectOf(s), FactsOf(s))
			for _, l := range row.slices {
				tables.Slices.Set(derive.ObjectOf(l), SliceFactsOf(l))
			}
			tables.Services.Loaded()
			tables.Slices.Loaded()
			e.Pass()
			if have, _ := tables.Health.Get(derive.ObjectOf(s)); have != row.want {
				t.Errorf("%+v, want %+v", have, row.want)
			}
		})
	}
}

// manyRanges are separate ranges.
func manyRanges(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("10.%d.%d.0/24", i>>8, i&0xff))
	}
	return out
}

// TestSourceBound has ranges at the bound and beyond it, by their number, ports and addresses.
func TestSourceBound(t *testing.T) {
	for _, row := range []struct {
		ranges, ports int
		addresses     []string
		want          bool
	}{
		{MaxSources, 1, []string{"192.0.2.1"}, false},
		{MaxSources + 1, 1, []string{"192.0.2.1"}, true},
		{MaxSources / 2, 1, []string{"192.0.2.1", "192.0.2.2"}, false},
		{MaxSources/2 + 1, 1, []string{"192.0.2.1", "192.0.2.2"}, true},
		{MaxSources/4 + 1, 4, []string{"192.0.2.1"}, true},
		{MaxSources + 1, 1, []string{"2001:db8::1"}, false}, // they limit the other family alone
		{MaxSources + 1, 1, nil, false},
	} {
		s := svc("web", "10.96.0.10", "/TCP/80")
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.LoadBalancerSourceRanges = manyRanges(row.ranges)
		for i := 1; i < row.ports; i++ {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Port: int32(80 + i)})
		}
		for _, ip := range row.addresses {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		list, f := SourceProblems(s), FactsOf(s)
		if (len(list) == 1) != row.want || (len(f.Outside.Sources) == 0) != row.want || !f.Outside.Limited4 {
			t.Errorf("%+v: %v, %d ranges, limited %v", row, list, len(f.Outside.Sources), f.Outside.Limited4)
		}
	}
}
