package service

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/family"
)

func ptr[T any](v T) *T { return &v }

// svc makes a Service; ports are "name/protocol/number".
func svc(name, clusterIP string, ports ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.ClusterIP = clusterIP
	for _, text := range ports {
		name, protocol, number := split(text)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Protocol: protocol, Port: number})
	}
	return s
}

func split(text string) (string, corev1.Protocol, int32) {
	part := strings.Split(text, "/")
	p := netip.MustParseAddrPort("0.0.0.0:" + part[2])
	return part[0], corev1.Protocol(part[1]), int32(p.Port())
}

// slice makes an EndpointSlice of a Service with one port.
func slice(service, port string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	name, protocol, number := split(port)
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service + "-" + name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &number}},
		Endpoints:   endpoints,
	}
}

func sliceLabelled(s *discoveryv1.EndpointSlice, label string) *discoveryv1.EndpointSlice {
	s.Labels[label] = ""
	return s
}

func ofIPv6(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.AddressType = discoveryv1.AddressTypeIPv6
	return s
}

// second gives a slice the name of a Service's second one.
func second(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Name += "2"
	return s
}

func third(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Name += "3"
	return s
}

// standing has the endpoints of a slice of an imported Service stand for several each.
func standing(n string, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Labels[discoveryv1.LabelManagedBy] = multicluster.EndpointSliceManager
	s.Annotations = map[string]string{multicluster.AnnotationReady: n}
	return s
}

// of is a slice of endpoints of a cluster.
func of(cluster string, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Labels[mcsv1beta1.LabelSourceCluster] = cluster
	return s
}

// ordered is an imported Service with clusters that come first.
func ordered(clusters, minimum string, s *corev1.Service) *corev1.Service {
	s.Annotations = map[string]string{multicluster.AnnotationImportedService: "true",
		multicluster.AnnotationClusterOrder: clusters, multicluster.AnnotationMinimumReady: minimum}
	return s
}

func ready(ip string) discoveryv1.Endpoint { return discoveryv1.Endpoint{Addresses: []string{ip}} }

func on(node string, e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.NodeName = &node
	return e
}

func localPolicy(s *corev1.Service) *corev1.Service {
	s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
	return s
}

// remembering is Service web with session affinity.
func remembering(seconds int32) *corev1.Service {
	s := svc("web", "10.96.0.10", "/TCP/80")
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
		ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	return s
}

func labelled(s *corev1.Service, label, value string) *corev1.Service {
	s.Labels = map[string]string{label: value}
	return s
}

func imported(s *corev1.Service) *corev1.Service {
	s.Annotations = map[string]string{multicluster.AnnotationImportedService: "true"}
	return s
}

func withConditions(ip string, ready, serving, terminating bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}}
}

// text lists frontends: "name[:port] vip/protocol -> endpoint*weight ...".
func text(fs []Frontend) []string {
	var out []string
	for _, f := range fs {
		line := strings.TrimPrefix(f.String(), "default/")
		if f.Kind != ClusterIP {
			line += " " + f.Kind.String()
		}
		if f.Clients != AllClients {
			line += " for " + f.Clients.String()
		}
		if f.Limited {
			line += fmt.Sprint(" limited to ", f.Sources)
		}
		if f.Affinity > 0 {
			line += " by client for " + f.Affinity.String()
		}
		line += " ->"
		for _, e := range f.Endpoints {
			line += " " + e.Addr.String()
			if e.Weight != 1 {
				line += "*" + string(rune('0'+e.Weight))
			}
		}
		if f.Elsewhere {
			line += " elsewhere"
		}
		out = append(out, line)
	}
	return out
}

func TestPlan(t *testing.T) {
	local := svc("local", "10.96.0.10", "/TCP/80")
	local.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
	unready := svc("unready", "10.96.0.10", "/TCP/80")
	unready.Spec.PublishNotReadyAddresses = true
	external := svc("external", "", "/TCP/80")
	external.Spec.Type = corev1.ServiceTypeExternalName
	affinity := svc("web", "10.96.0.10", "/TCP/80")
	affinity.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	v6 := svc("web", "fd00::10", "/TCP/80")
	here, there := ready("10.10.0.2"), ready("10.10.1.2")
	here.NodeName, there.NodeName = ptr("node-1"), ptr("node-2")

	for _, test := range []struct {
		name     string
		services []*corev1.Service
		slices   []*discoveryv1.EndpointSlice
		sctp     bool
		families family.Families
		want     []string
		problems []string // "object field reason"
	}{
		{
			name:     "ready endpoints, in order, each once",
			services: []*corev1.Service{svc("web", "10.96.0.10", "/TCP/80")},
			slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/8080", ready("10.10.1.2"), ready("10.10.0.2")),
				second(slice("web", "/TCP/8080", ready("10.10.0.2")))},
			want: []string{"web 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.1.2:8080"},
		},
		{
			name:     "no endpoints",
			services: []*corev1.Service{svc("web", "10.96.0.10", "/TCP/80")},
			want:     []string{"web 10.96.0.10:80/TCP ->"},
		},
		{
			name:     "named ports and protocols find their own endpoints",
			services: []*corev1.Service{svc("dns", "10.96.0.10", "tcp/TCP/53", "udp/UDP/53", "metrics/TCP/9153")},
			slices: []*discoveryv1.EndpointSlice{slice("dns", "tcp/TCP/5353", ready("10.10.0.2")),
				slice("dns", "udp/UDP/5354", ready("10.10.0.2")), slice("dns", "metrics/UDP/1", ready("10.10.0.2"))},
			want: []string{
				"dns:tcp 10.96.0.10:53/TCP -> 10.10.0.2:5353",
				"dns:metrics 10.96.0.10:9153/TCP ->",
				"dns:udp 10.96.0.10:53/UDP -> 10.10.0.2:5354",
			},
		},
		{
			name:     "endpoints that end do not count while one is ready",
			services: []*corev1.Service{svc("web", "10.96.0.10", "/TCP/80")},
			slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/8080", withConditions("10.10.0.2", true, true, false),
				withConditions("10.10.0.3", false, true, true))},
			want: []string{"web 10.96.0.10:80/TCP -> 10.10.0.2:8080"},
		},
		{
			name:     "endpoints that end but serve are the last resort",
			services: []*corev1.Service{svc("web", "10.96.0.10", "/TCP/80")},
			slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/8080", withConditions("10.10.0.2", false, false, true),
				withConditions("10.10.0.3", false, true, true), withConditions("10.10.0.4", false, true, false))},
			want: []string{"web 10.96.0.10:80/TCP -> 10.10.0.3:8080"},
		},
		{
			name:     "publishNotReadyAddresses",
			services: []*corev1.Service{unready},
			slices: []*discoveryv1.EndpointSlice{
				slice("unready", "/TCP/8080", withConditions("10.10.0.2", false, false, false))},
			want: []string{"unready 10.96.0.10:80/TCP -> 10.10.0.2:8080"},
		},
		{
			name:     "internalTrafficPolicy Local",
			services: []*corev1.Service{local},
			slices:   []*discoveryv1.EndpointSlice{slice("local", "/TCP/8080", here, there)},
			want:     []string{"local 10.96.0.10:80/TCP -> 10.10.0.2:8080"},
		},
		{
			name:     "internalTrafficPolicy Local, endpoints on other Nodes alone",
			services: []*corev1.Service{local},
			slices:   []*discoveryv1.EndpointSlice{slice("local", "/TCP/8080", there)},
			want:     []string{"local 10.96.0.10:80/TCP -> elsewhere"},
		},
		{
			name:     "internalTrafficPolicy Local, no endpoint that is ready on any Node",
			services: []*corev1.Service{local},
			slices: []*discoveryv1.EndpointSlice{
				slice("local", "/TCP/8080", on("node-2", withConditions("10.10.1.2", false, false, false)))},
			want: []string{"local 10.96.0.10:80/TCP ->"},
		},
		{
			name: "labels that leave Services to other proxies",
			services: []*corev1.Service{
				labelled(svc("mesh", "10.96.0.11", "/TCP/80"), LabelProxyName, "mesh"),
				labelled(svc("nobody", "10.96.0.12", "/TCP/80"), LabelProxyName, ""),
				labelled(svc("marked", "10.96.0.13", "/TCP/80"), corev1.IsHeadlessService, ""),
				labelled(svc("own", "10.96.0.14", "/TCP/80"), "app", "own"),
			},
			want: []string{"own 10.96.0.14:80/TCP ->"},
		},
		{
			name:     "labels that leave EndpointSlices to other proxies",
			services: []*corev1.Service{svc("web", "10.96.0.10", "/TCP/80")},
			slices: []*discoveryv1.EndpointSlice{
				slice("web", "/TCP/8080", ready("10.10.1.2")),
				sliceLabelled(second(slice("web", "/TCP/8080", ready("10.10.1.3"))), corev1.IsHeadlessService),
				sliceLabelled(third(slice("web", "/TCP/8080", ready("10.10.1.4"))), LabelProxyName),
			},
			want: []string{"web 10.96.0.10:80/TCP -> 10.10.1.2:8080"},
		},
		{
			name:     "headless and ExternalName have no address",
			services: []*corev1.Service{svc("headless", "None", "/TCP/80"), external, svc("pending", "", "/TCP/80")},
		},
		{
			name:     "the switch's own addresses are nobody's",
			families: family.Dual,
			services: []*corev1.Service{svc("web", "fd96::10", "/TCP/80"), svc("odd", "fc01::aabb:ccdd:eeff", "/TCP/80")},
			slices: []*discoveryv1.EndpointSlice{
				ofIPv6(slice("web", "/TCP/8080", ready("fd10::2"), ready("fc01::aabb:ccdd:eefe")))},
			want: []string{"web [fd96::10]:80/TCP -> [fd10::2]:8080"},
			problems: []string{"EndpointSlice default/web- endpoints[1].addresses[0] InvalidAddress",
				"Service default/odd spec.clusterIP InvalidClusterIP"},
		},
		{
			name:     "bad addresses are left out alone",
			services: []*corev1.Service{svc("web", "10.96.0.10", "/TCP/80"), svc("odd", "10.96.0.300", "/TCP/80")},
			slices: []*discoveryv1.EndpointSlice{
				slice("web", "/TCP/8080", ready("10.10.0.2"), ready("web.example"), ready("127.0.0.1"))},
			want: []string{"web 10.96.0.10:80/TCP -> 10.10.0.2:8080"},
			problems: []string{"EndpointSlice default/web- endpoints[1].addresses[0] InvalidAddress",
				"EndpointSlice default/web- endpoints[2].addresses[0] InvalidAddress",
				"Service default/odd spec.clusterIP InvalidClusterIP"},
		},
		{
			name:     "SCTP where the datapath does not know it",
			services: []*corev1.Service{svc("sigtran", "10.96.0.10", "m3ua/SCTP/2905", "web/TCP/80")},
			slices:   []*discoveryv1.EndpointSlice{slice("sigtran", "m3ua/SCTP/2905", ready("10.10.0.2"))},
			want:     []string{"sigtran:web 10.96.0.10:80/TCP ->"},
			problems: []string{"Service default/sigtran spec.ports[0] SCTPNotSupported"},
		},
		{
			name:     "SCTP where the datapath knows it",
			services: []*corev1.Service{svc("sigtran", "10.96.0.10", "m3ua/SCTP/2905")},
			slices:   []*discoveryv1.EndpointSlice{slice("sigtran", "m3ua/SCTP/2905", ready("10.10.0.2"))},
			sctp:     true,
			want:     []string{"sigtran:m3ua 10.96.0.10:2905/SCTP -> 10.10.0.2:2905"},
		},
		{
			name:     "two Services with one address",
			services: []*corev1.Service{svc("b", "10.96.0.10", "/TCP/80"), svc("a", "10.96.0.10", "/TCP/80", "u/UDP/80")},
			want:     []string{"a 10.96.0.10:80/TCP ->", "a:u 10.96.0.10:80/UDP ->"},
			problems: []string{"Service default/b spec.ports[0] AddressInUse"},
		},
		{name: "affinity, for the API's default", services: []*corev1.Service{affinity},
			want: []string{"web 10.96.0.10:80/TCP by client for 3h0m0s ->"}},
		{name: "affinity for 10 seconds", services: []*corev1.Service{remembering(10)},
			want: []string{"web 10.96.0.10:80/TCP by client for 10s ->"}},
		{name: "affinity for longer than a switch remembers", services: []*corev1.Service{remembering(86400)},
			want: []string{"web 10.96.0.10:80/TCP by client for 18h12m15s ->"}},
		{
			name: "an imported Service with policy Local, whose own one says Cluster: the Pods of this Node",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"),
				imported(localPolicy(svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80")))},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", on("node-1", ready("10.10.0.2")), on("node-2", ready("10.10.1.2"))),
				standing("2", slice("antrea-mc-nginx", "/TCP/80", ready("10.96.0.10"))),
				second(standing("5", slice("antrea-mc-nginx", "/TCP/80", ready("10.97.0.20")))),
			},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.10.0.2:8080",
				"nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.1.2:8080"},
		},
		{
			name: "an imported Service with policy Local, by the addresses of Pods: those of this Node",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"),
				imported(localPolicy(svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80")))},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", on("node-1", ready("10.10.0.2")), on("node-2", ready("10.10.1.2"))),
				slice("antrea-mc-nginx", "/TCP/8080", ready("10.10.0.2"), ready("10.10.1.2"), ready("10.20.0.2")),
			},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.10.0.2:8080",
				"nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.1.2:8080"},
		},
		{
			name: "an imported Service with policy Local, by the addresses of Pods, that this cluster does not export",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"),
				imported(localPolicy(svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80")))},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", on("node-1", ready("10.10.0.2"))),
				slice("antrea-mc-nginx", "/TCP/8080", ready("10.20.0.2")),
			},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> elsewhere", "nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080"},
		},
		{
			name: "an imported Service with policy Local: this cluster's own export, whose policy chooses",
			services: []*corev1.Service{localPolicy(svc("nginx", "10.96.0.10", "/TCP/80")),
				imported(localPolicy(svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80")))},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", on("node-1", ready("10.10.0.2")), on("node-2", ready("10.10.0.3"))),
				slice("antrea-mc-nginx", "/TCP/80", ready("10.96.0.10"), ready("10.97.0.20")),
			},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.10.0.2:8080", "nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080"},
		},
		{
			name: "other clusters' Services count as many as they have ready endpoints; the own one's share is its Pods'",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"),
				imported(svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80"))},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", ready("10.10.0.2"), ready("10.10.0.3")),
				standing("2", slice("antrea-mc-nginx", "/TCP/80", ready("10.96.0.10"))),
				second(standing("5", slice("antrea-mc-nginx", "/TCP/80", ready("10.97.0.20")))),
				third(standing("", slice("antrea-mc-nginx", "/TCP/80", ready("10.98.0.20")))),
			},
			want: []string{
				"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080 10.97.0.20:80*5 10.98.0.20:80",
				"nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080",
			},
		},
		{
			name: "the own one has one Pod less than the others were told",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"),
				imported(svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80"))},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", ready("10.10.0.2"), ready("10.10.0.3")),
				standing("3", slice("antrea-mc-nginx", "/TCP/80", ready("10.96.0.10"))),
				second(standing("3", slice("antrea-mc-nginx", "/TCP/80", ready("10.97.0.20")))),
			},
			want: []string{
				"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080 10.97.0.20:80*2",
				"nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080",
			},
		},
		{
			name: "a number that is none, and one of a Service that is not imported",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"),
				imported(svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80"))},
			slices: []*discoveryv1.EndpointSlice{
				standing("4", slice("nginx", "/TCP/8080", ready("10.10.0.2"))),
				second(slice("nginx", "/TCP/8080", ready("10.10.0.3"))),
				standing("0", slice("antrea-mc-nginx", "/TCP/80", ready("10.97.0.20"), ready("10.98.0.20"))),
			},
			want: []string{
				"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.97.0.20:80 10.98.0.20:80",
				"nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080",
			},
			problems: []string{
				"EndpointSlice default/antrea-mc-nginx- metadata.annotations[multicluster.tombolo.io/ready-endpoints] " +
					"InvalidWeight"},
		},
		{
			name: "this cluster first, which has enough",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"),
				ordered("east", "2", svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80"))},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", ready("10.10.0.2"), ready("10.10.0.3")),
				of("east", standing("1", slice("antrea-mc-nginx", "/TCP/80", ready("10.96.0.10")))),
				second(of("west", standing("9", slice("antrea-mc-nginx", "/TCP/80", ready("10.97.0.20"))))),
			},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080",
				"nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080"},
		},
		{
			name: "this cluster first, which has one ready endpoint too few, whatever the others were told: all",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"),
				ordered("east", "2", svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80"))},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", ready("10.10.0.2"), withConditions("10.10.0.3", false, false, false)),
				of("east", standing("2", slice("antrea-mc-nginx", "/TCP/80", ready("10.96.0.10")))),
				second(of("west", standing("2", slice("antrea-mc-nginx", "/TCP/80", ready("10.97.0.20"))))),
			},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.10.0.2:8080 10.97.0.20:80",
				"nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080"},
		},
		{
			name:     "an order of clusters: the next one is used as well when the first has too few",
			services: []*corev1.Service{ordered("west,north", "3", svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80"))},
			slices: []*discoveryv1.EndpointSlice{
				of("west", standing("2", slice("antrea-mc-nginx", "/TCP/80", ready("10.97.0.20")))),
				second(of("north", standing("4", slice("antrea-mc-nginx", "/TCP/80", ready("10.98.0.20"))))),
				third(of("south", standing("9", slice("antrea-mc-nginx", "/TCP/80", ready("10.99.0.20"))))),
			},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.97.0.20:80 10.98.0.20:80*2"},
		},
		{
			name: "a cluster that is gone has no share",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"),
				imported(svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80"))},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", ready("10.10.0.2")),
				of("east", standing("1", slice("antrea-mc-nginx", "/TCP/80", ready("10.96.0.10")))),
				second(of("west",
					standing("9", slice("antrea-mc-nginx", "/TCP/80", withConditions("10.97.0.20", false, false, false))))),
				third(of("south", standing("2", slice("antrea-mc-nginx", "/TCP/80", ready("10.99.0.20"))))),
			},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.10.0.2:8080 10.99.0.20:80*2",
				"nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080"},
		},
		{
			name:     "an order of clusters, the first of which is gone: it counts as having none",
			services: []*corev1.Service{ordered("west,north", "3", svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80"))},
			slices: []*discoveryv1.EndpointSlice{
				of("west", standing("8", slice("antrea-mc-nginx", "/TCP/80", withConditions("10.97.0.20", false, false, false)))),
				second(of("north", standing("2", slice("antrea-mc-nginx", "/TCP/80", ready("10.98.0.20"))))),
				third(of("south", standing("2", slice("antrea-mc-nginx", "/TCP/80", ready("10.99.0.20"))))),
			},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.98.0.20:80 10.99.0.20:80"},
		},
		{
			name:     "clusters that nobody has: all",
			services: []*corev1.Service{ordered("up,down", "1", svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80"))},
			slices: []*discoveryv1.EndpointSlice{
				of("west", standing("", slice("antrea-mc-nginx", "/TCP/80", ready("10.97.0.20"))))},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.97.0.20:80"},
		},
		{name: "only IPv6", services: []*corev1.Service{v6}},
		{
			name:     "own export among the imported: its cluster keeps its share",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"), svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80")},
			slices: []*discoveryv1.EndpointSlice{
				slice("nginx", "/TCP/8080", ready("10.10.0.2"), ready("10.10.0.3"), ready("10.10.0.4")),
				slice("antrea-mc-nginx", "/TCP/80", ready("10.96.0.10"), ready("10.97.0.20"), ready("10.98.0.30")),
			},
			want: []string{
				"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080 10.10.0.4:8080 10.97.0.20:80*3 10.98.0.30:80*3",
				"nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080 10.10.0.4:8080",
			},
		},
		{
			name:     "own export without endpoints: the others take its share",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"), svc("antrea-mc-nginx", "10.96.0.11", "/TCP/80")},
			slices: []*discoveryv1.EndpointSlice{
				slice("antrea-mc-nginx", "/TCP/80", ready("10.96.0.10"), ready("10.97.0.20"))},
			want: []string{"antrea-mc-nginx 10.96.0.11:80/TCP -> 10.97.0.20:80", "nginx 10.96.0.10:80/TCP ->"},
		},
		{
			name:     "another port of a local Service is not its frontend",
			services: []*corev1.Service{svc("nginx", "10.96.0.10", "/TCP/80"), svc("antrea-mc-nginx", "10.96.0.11", "/TCP/81")},
			slices: []*discoveryv1.EndpointSlice{slice("nginx", "/TCP/8080", ready("10.10.0.2")),
				slice("antrea-mc-nginx", "/TCP/81", ready("10.96.0.10"))},
			want: []string{"antrea-mc-nginx 10.96.0.11:81/TCP -> 10.96.0.10:81", "nginx 10.96.0.10:80/TCP -> 10.10.0.2:8080"},
		},
		{
			name:     "a circle ends",
			services: []*corev1.Service{svc("a", "10.96.0.10", "/TCP/80"), svc("b", "10.96.0.11", "/TCP/80")},
			slices: []*discoveryv1.EndpointSlice{slice("a", "/TCP/80", ready("10.96.0.11"), ready("10.10.0.2")),
				slice("b", "/TCP/80", ready("10.96.0.10"))},
			want:     []string{"a 10.96.0.10:80/TCP -> 10.10.0.2:80", "b 10.96.0.11:80/TCP -> 10.10.0.2:80"},
			problems: []string{"Service default/a  EndpointLoop", "Service default/b  EndpointLoop"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			have, problems := Plan(View{Services: test.services, Slices: test.slices, NodeName: "node-1", SCTP: test.sctp,
				Families: test.families})
			if diff := cmp.Diff(test.want, text(have)); diff != "" {
				t.Errorf("frontends (-want +have):\n%s", diff)
			}
			var found []string
			for _, p := range problems {
				found = append(found, p.Object.String()+" "+p.Field+" "+p.Reason.String())
				if !strings.Contains(p.Message, ":") && !strings.Contains(p.Message, ";") {
					t.Errorf("problem names no remedy: %s", p)
				}
			}
			if diff := cmp.Diff(test.problems, found); diff != "" {
				t.Errorf("problems (-want +have):\n%s", diff)
			}
		})
	}
}

// TestWeigh checks shares where whole numbers cannot be exact.
func TestWeigh(t *testing.T) {
	addr := func(last byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 80)
	}
	many := []fraction{{addr(200), 1, 1}}
	for i := range byte(37) {
		many = append(many, fraction{addr(i + 1), 1, 37}) // one cluster of 37 endpoints
	}
	for i := range byte(41) {
		many = append(many, fraction{addr(i + 100), 1, 41}) // one of 41
	}
	share := map[string]float64{}
	var total float64
	for _, e := range weigh(many) {
		last := e.Addr.Addr().As4()[3]
		w := float64(e.Weight)
		total += w
		switch {
		case last == 200:
			share["alone"] += w
		case last >= 100:
			share["of 41"] += w
		default:
			share["of 37"] += w
		}
	}
	for name, w := range share {
		if part := w / total; part < 0.32 || part > 0.35 {
			t.Errorf("cluster %s gets %.3f of the connections, want a third", name, part)
		}
	}
}
