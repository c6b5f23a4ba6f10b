package peering

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

func gateway(name, gatewayIP, internalIP string, age time.Duration) *mcv1alpha1.Gateway {
	g := &mcv1alpha1.Gateway{GatewayIP: gatewayIP, InternalIP: internalIP}
	g.Namespace, g.Name = "kube-system", name
	g.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-age))
	return g
}

func imported(id, serviceCIDR string, gateways ...string) *mcv1alpha1.ClusterInfoImport {
	ci := &mcv1alpha1.ClusterInfoImport{}
	ci.Namespace, ci.Name = "kube-system", id+"-clusterinfo"
	ci.Spec.ClusterID, ci.Spec.ServiceCIDR = id, serviceCIDR
	for _, ip := range gateways {
		ci.Spec.GatewayInfos = append(ci.Spec.GatewayInfos, mcv1alpha1.GatewayInfo{GatewayIP: ip})
	}
	return ci
}

// inPhase sets the phase of a Gateway.
func inPhase(g *mcv1alpha1.Gateway, phase string) *mcv1alpha1.Gateway {
	g.Annotations = map[string]string{multicluster.AnnotationPhase: phase}
	return g
}

// leaving adds gateways that are about to go.
func leaving(ci *mcv1alpha1.ClusterInfoImport, gateways ...string) *mcv1alpha1.ClusterInfoImport {
	for _, ip := range gateways {
		ci.Spec.LeavingGateways = append(ci.Spec.LeavingGateways, mcv1alpha1.GatewayInfo{GatewayIP: ip})
	}
	return ci
}

// aged makes a ClusterInfoImport of an hour old one some time younger.
func aged(ci *mcv1alpha1.ClusterInfoImport, younger time.Duration) *mcv1alpha1.ClusterInfoImport {
	ci.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(younger))
	return ci
}

func services(ci *mcv1alpha1.ClusterInfoImport, ranges ...string) *mcv1alpha1.ClusterInfoImport {
	ci.Spec.ServiceCIDRs = ranges
	return ci
}

func keyed(ci *mcv1alpha1.ClusterInfoImport) *mcv1alpha1.ClusterInfoImport {
	ci.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: "k"}
	return ci
}

// keyedGateway gives one gateway alone a key.
func keyedGateway(ci *mcv1alpha1.ClusterInfoImport, gateway int) *mcv1alpha1.ClusterInfoImport {
	ci.Spec.GatewayInfos[gateway].WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: "k"}
	return ci
}

func pods(ci *mcv1alpha1.ClusterInfoImport, cidrs ...string) *mcv1alpha1.ClusterInfoImport {
	ci.Spec.PodCIDRs = cidrs
	return ci
}

// text lists a peering: "role gateway gatewayIP internalIP", then each peer.
func text(p Peering) []string {
	at := p.Part.Gateway
	if p.Part.Role == None {
		return []string{"none"}
	}
	out := []string{fmt.Sprintf("%s of %s %s %s", p.Part.Role, at.Name, p.Part.End, at.InternalIP)}
	for _, peer := range p.Peers {
		gateways, _ := wayAddresses(peer.Gateways)
		to, going := endAddresses(peer.Ends)
		line := fmt.Sprintf("%s %v %v via %s", peer.ClusterID, peer.CIDRs, gateways, strings.Trim(fmt.Sprint(to), "[]"))
		if len(going) > 0 {
			line += " going " + strings.Trim(fmt.Sprint(going), "[]")
		}
		out = append(out, line)
	}
	return out
}

func TestPlan(t *testing.T) {
	own := []*mcv1alpha1.Gateway{gateway("node-2", "172.30.1.22", "192.168.78.102", time.Hour)}
	west := imported("west", "10.96.0.0/16", "192.168.77.101")
	for _, test := range []struct {
		name     string
		node     string // node-1 where not given
		gateways []*mcv1alpha1.Gateway
		imports  []*mcv1alpha1.ClusterInfoImport
		podToPod bool
		families family.Families
		plain    bool // peers with a key are allowed
		want     []string
		problems []string // "object field: start of message"
	}{
		{name: "no Gateway", imports: []*mcv1alpha1.ClusterInfoImport{west}, want: []string{"none"}},
		{
			name: "a regular Node goes by the internal address", gateways: own, imports: []*mcv1alpha1.ClusterInfoImport{west},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"west [10.96.0.0/16] [192.168.77.101] via 192.168.78.102"},
		},
		{
			name: "the Gateway goes to the peer's", node: "node-2", gateways: own,
			imports: []*mcv1alpha1.ClusterInfoImport{imported("west", "10.96.0.0/16", "192.168.77.101", "192.168.77.102"),
				imported("north", "10.98.0.0/16", "192.168.79.101")},
			want: []string{
				"gateway of node-2 172.30.1.22 192.168.78.102",
				"north [10.98.0.0/16] [192.168.79.101] via 192.168.79.101",
				"west [10.96.0.0/16] [192.168.77.101 192.168.77.102] via 192.168.77.101",
			},
		},
		{
			name: "the oldest Gateway counts, then the name",
			gateways: []*mcv1alpha1.Gateway{
				gateway("node-4", "192.168.78.104", "192.168.78.104", time.Hour),
				gateway("node-3", "192.168.78.103", "192.168.78.103", 2*time.Hour),
				gateway("node-2", "192.168.78.102", "192.168.78.102", 2*time.Hour),
			},
			want: []string{"regular of node-2 192.168.78.102 192.168.78.102"},
		},
		{
			name: "a Gateway with an unusable address",
			gateways: []*mcv1alpha1.Gateway{
				gateway("node-1", "fe80::1", "192.168.78.101", 3*time.Hour),
				gateway("node-2", "nowhere", "192.168.78.102", 2*time.Hour),
				gateway("node-3", "192.168.78.103", "", time.Hour),
			},
			want: []string{"none"},
			problems: []string{
				"Gateway kube-system/node-1 gatewayIP: fe80::1 is not an address",
				"Gateway kube-system/node-2 gatewayIP: \"nowhere\" is not an IP address",
				"Gateway kube-system/node-3 internalIP: the address is missing",
			},
		},
		{
			name: "overlaps: own range, then of equally old peers the smaller ID wins", gateways: own,
			imports: []*mcv1alpha1.ClusterInfoImport{
				west, imported("bad", "10.97.128.0/17", "192.168.1.1"), imported("worse", "10.96.5.0/24", "192.168.1.2"),
				imported("podlike", "10.11.0.0/24", "192.168.1.3"),
			},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"west [10.96.0.0/16] [192.168.77.101] via 192.168.78.102"},
			problems: []string{
				"ClusterInfoImport kube-system/bad-clusterinfo spec.serviceCIDR: cluster bad ignored: its Service range " +
					"10.97.128.0/17 overlaps this cluster's Service range",
				"ClusterInfoImport kube-system/podlike-clusterinfo spec.serviceCIDR: cluster podlike ignored: its Service range " +
					"10.11.0.0/24 overlaps this cluster's Pod range",
				"ClusterInfoImport kube-system/worse-clusterinfo spec.serviceCIDR: cluster worse ignored: its Service range " +
					"10.96.5.0/24 overlaps cluster west",
			},
		},
		{
			name: "overlaps: the older peer stays, whatever the IDs", gateways: own,
			imports: []*mcv1alpha1.ClusterInfoImport{
				aged(imported("west", "10.96.0.0/16", "192.168.77.101"), 0),
				aged(imported("attacker", "10.96.0.0/17", "192.168.1.1"), time.Minute),
				aged(imported("b", "10.98.0.0/16", "192.168.77.101"), time.Minute),
				aged(imported("c", "192.168.77.0/24", "192.168.1.3"), time.Minute),
				aged(imported("d", "10.99.0.0/16", "10.96.7.7"), time.Minute),
			},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"west [10.96.0.0/16] [192.168.77.101] via 192.168.78.102"},
			problems: []string{
				"ClusterInfoImport kube-system/attacker-clusterinfo spec.serviceCIDR: cluster attacker ignored: its Service " +
					"range 10.96.0.0/17 overlaps cluster west",
				"ClusterInfoImport kube-system/b-clusterinfo spec.gatewayInfos[0].gatewayIP: gateway of cluster b ignored: " +
					"192.168.77.101 is the gateway of cluster west too",
				"ClusterInfoImport kube-system/c-clusterinfo spec.serviceCIDR: cluster c ignored: its Service range " +
					"192.168.77.0/24 overlaps the gateway of cluster west (192.168.77.101)",
				"ClusterInfoImport kube-system/d-clusterinfo spec.gatewayInfos[0].gatewayIP: gateway of cluster d ignored: " +
					"10.96.7.7 is an address of cluster west too",
			},
		},
		{
			name: "ranges and gateways of this cluster", gateways: own, podToPod: true,
			imports: []*mcv1alpha1.ClusterInfoImport{
				imported("a", "8.0.0.0/5", "192.168.1.1"), imported("b", "192.168.78.128/25", "192.168.1.1"),
				imported("c", "172.30.0.0/24", "192.168.1.1"),
				imported("d", "172.16.0.0/12", "192.168.1.1"), imported("e", "10.1.0.0/16", "192.168.78.101"),
				imported("f", "10.1.0.0/16", "172.30.0.10"),
				imported("g", "10.1.0.0/16", "10.97.0.1"), imported("h", "10.1.0.0/16", "10.11.0.1"),
				imported("i", "172.30.1.16/28", "192.168.1.1"),
				pods(imported("west", "10.96.0.0/16", "192.168.77.101"), "192.168.78.0/24", "172.30.0.8/29", "192.168.0.0/16",
					"10.10.0.0/16"),
			},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"west [10.96.0.0/16 10.10.0.0/16] [192.168.77.101] via 192.168.78.102"},
			problems: []string{
				"ClusterInfoImport kube-system/a-clusterinfo spec.serviceCIDR: cluster a ignored: 8.0.0.0/5 is too large: " +
					"expected a /8 or smaller",
				"ClusterInfoImport kube-system/b-clusterinfo spec.serviceCIDR: cluster b ignored: its Service range " +
					"192.168.78.128/25 overlaps the network of this Node (192.168.78.0/24)",
				"ClusterInfoImport kube-system/c-clusterinfo spec.serviceCIDR: cluster c ignored: its Service range " +
					"172.30.0.0/24 overlaps this cluster's API server (172.30.0.10)",
				"ClusterInfoImport kube-system/d-clusterinfo spec.serviceCIDR: cluster d ignored: its Service range " +
					"172.16.0.0/12 overlaps this cluster's gateway (172.30.1.22)",
				"ClusterInfoImport kube-system/e-clusterinfo spec.gatewayInfos[0].gatewayIP: gateway of cluster e ignored: " +
					"192.168.78.101 is a Node of this cluster too",
				"ClusterInfoImport kube-system/f-clusterinfo spec.gatewayInfos[0].gatewayIP: gateway of cluster f ignored: " +
					"172.30.0.10 is the API server of this cluster too",
				"ClusterInfoImport kube-system/g-clusterinfo spec.gatewayInfos[0].gatewayIP: gateway of cluster g ignored: " +
					"10.97.0.1 is an address of this cluster's Service range too",
				"ClusterInfoImport kube-system/h-clusterinfo spec.gatewayInfos[0].gatewayIP: gateway of cluster h ignored: " +
					"10.11.0.1 is an address of this cluster's Pod range too",
				"ClusterInfoImport kube-system/i-clusterinfo spec.serviceCIDR: cluster i ignored: its Service range " +
					"172.30.1.16/28 overlaps this cluster's gateway (172.30.1.22)",
				"ClusterInfoImport kube-system/west-clusterinfo spec.podCIDRs[0]: Pod range 192.168.78.0/24 of cluster west " +
					"ignored: it overlaps this cluster's Nodes (192.168.78.101)",
				"ClusterInfoImport kube-system/west-clusterinfo spec.podCIDRs[1]: Pod range 172.30.0.8/29 of cluster west " +
					"ignored: it overlaps this cluster's API server",
				"ClusterInfoImport kube-system/west-clusterinfo spec.podCIDRs[2]: Pod range 192.168.0.0/16 of cluster west " +
					"ignored: it overlaps this cluster's Nodes",
			},
		},
		{
			name: "a peer that expects encryption", gateways: own,
			imports: []*mcv1alpha1.ClusterInfoImport{keyed(imported("north", "10.98.0.0/16", "192.168.79.101")), west},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"west [10.96.0.0/16] [192.168.77.101] via 192.168.78.102"},
			problems: []string{
				"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard: cluster north ignored: it announces a WireGuard " +
					"key, and this cluster would send it plain text"},
		},
		{
			name: "a peer with keys of its gateways alone expects encryption", gateways: own,
			imports: []*mcv1alpha1.ClusterInfoImport{keyedGateway(imported("north", "10.98.0.0/16", "192.168.79.101",
				"192.168.79.102"), 1), west},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"west [10.96.0.0/16] [192.168.77.101] via 192.168.78.102"},
			problems: []string{
				"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard: cluster north ignored: it announces a WireGuard " +
					"key, and this cluster would send it plain text"},
		},
		{
			name: "a peer that expects encryption and is allowed without", gateways: own, plain: true,
			imports: []*mcv1alpha1.ClusterInfoImport{keyed(imported("north", "10.98.0.0/16", "192.168.79.101"))},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"north [10.98.0.0/16] [192.168.79.101] via 192.168.78.102"},
		},
		{
			name: "malformed imports leave the others alone", gateways: own,
			imports: []*mcv1alpha1.ClusterInfoImport{
				west, imported("", "10.1.0.0/16", "192.168.1.1"), imported("a", "10.1.0.0", "192.168.1.1"),
				imported("b", "", "192.168.1.1"),
				imported("c", "0.0.0.0/0", "192.168.1.1"), imported("d", "::ffff:10.1.0.0/112", "192.168.1.1"),
				imported("e", "10.2.0.0/16"),
				imported("f", "10.3.0.0/16", "fd00::1", "fd00::2"), imported("g", "10.4.0.0/16", "172.30.1.22"),
				imported("h", "10.5.0.0/16", "192.168.1.9"), imported("i", "10.6.0.0/16", "192.168.1.9"),
			},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102", "h [10.5.0.0/16] [192.168.1.9] via 192.168.78.102",
				"west [10.96.0.0/16] [192.168.77.101] via 192.168.78.102"},
			problems: []string{
				"ClusterInfoImport kube-system/-clusterinfo spec.clusterID: the cluster has no ID",
				"ClusterInfoImport kube-system/a-clusterinfo spec.serviceCIDR: cluster a ignored: \"10.1.0.0\" is not a range",
				"ClusterInfoImport kube-system/b-clusterinfo spec.serviceCIDR: cluster b ignored: the range is missing",
				"ClusterInfoImport kube-system/c-clusterinfo spec.serviceCIDR: cluster c ignored: 0.0.0.0/0 contains addresses " +
					"that are never routed",
				"ClusterInfoImport kube-system/d-clusterinfo spec.serviceCIDR: cluster d ignored: ::ffff:10.1.0.0/112 is " +
					"written as an IPv6 range",
				"ClusterInfoImport kube-system/e-clusterinfo spec.gatewayInfos: cluster e ignored: it has no gateway",
				"ClusterInfoImport kube-system/f-clusterinfo spec.gatewayInfos[1].gatewayIP: cluster f is not " +
					"reached: no gateway that it keeps has an address of the version of IP that this cluster's Gateway node-2 has, " +
					"172.30.1.22: give",
				"ClusterInfoImport kube-system/g-clusterinfo spec.gatewayInfos[0].gatewayIP: gateway of cluster g ignored: " +
					"172.30.1.22 is the gateway of this cluster too",
				"ClusterInfoImport kube-system/i-clusterinfo spec.gatewayInfos[0].gatewayIP: gateway of cluster i ignored: " +
					"192.168.1.9 is the gateway of cluster h too",
			},
		},
		{
			name: "several Service ranges", gateways: own,
			imports: []*mcv1alpha1.ClusterInfoImport{
				services(imported("west", "10.96.0.0/16", "192.168.77.101"), "10.100.0.0/16", "10.96.0.0/16", "fd00:96::/112",
					"ten"),
				services(imported("x", "10.99.0.0/16", "192.168.79.101"), "10.99.0.0/16", "10.100.8.0/24", "10.101.0.0/24"),
				services(imported("y", "10.102.0.0/28", "192.168.80.101"), "10.102.0.0/28", "10.102.0.0/24", "10.102.0.0/24")},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"west [10.96.0.0/16 10.100.0.0/16] [192.168.77.101] via 192.168.78.102",
				"x [10.99.0.0/16 10.101.0.0/24] [192.168.79.101] via 192.168.78.102",
				"y [10.102.0.0/28 10.102.0.0/24] [192.168.80.101] via 192.168.78.102"},
			problems: []string{
				"ClusterInfoImport kube-system/west-clusterinfo spec.serviceCIDRs[3]: Service range of cluster west ignored: " +
					"\"ten\" is not a range",
				"ClusterInfoImport kube-system/x-clusterinfo spec.serviceCIDRs[1]: Service range 10.100.8.0/24 of cluster x " +
					"ignored: it overlaps"},
		},
		{
			name: "both versions of IP", gateways: own, families: family.Dual, podToPod: true,
			imports: []*mcv1alpha1.ClusterInfoImport{
				pods(services(imported("west", "10.96.0.0/16", "192.168.77.101"), "10.96.0.0/16", "fd96::/112", "fd97::/120"),
					"10.10.0.0/16", "fd10::/48", "fd11:0:0:1::/64"),
				pods(imported("six", "fd98::/112", "192.168.79.101"), "fd12::/48"),
				imported("other", "fd97::/112", "192.168.80.101"), imported("again", "fd98::8000/113", "192.168.81.101"),
			},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"again [fd98::8000/113] [192.168.81.101] via 192.168.78.102",
				"west [10.96.0.0/16 fd96::/112 10.10.0.0/16 fd10::/48] [192.168.77.101] via 192.168.78.102"},
			problems: []string{
				"ClusterInfoImport kube-system/other-clusterinfo spec.serviceCIDR: cluster other ignored: its Service range " +
					"fd97::/112 overlaps this cluster's Service range",
				"ClusterInfoImport kube-system/six-clusterinfo spec.serviceCIDR: cluster six ignored: its Service range " +
					"fd98::/112 overlaps cluster again",
				"ClusterInfoImport kube-system/west-clusterinfo spec.serviceCIDRs[2]: Service range fd97::/120 of cluster west " +
					"ignored: it overlaps",
				"ClusterInfoImport kube-system/west-clusterinfo spec.podCIDRs[2]: Pod range fd11:0:0:1::/64 of cluster west " +
					"ignored: it overlaps this cluster's Pod range",
			},
		},
		{
			name: "tunnels over IPv6",
			gateways: []*mcv1alpha1.Gateway{gateway("node-2", "fd30::22", "fd78::102", time.Hour),
				gateway("node-3", "fd30::23", "fd78::103", 0)},
			imports: []*mcv1alpha1.ClusterInfoImport{
				imported("west", "10.96.0.0/16", "fd77::101", "192.168.77.102"),
				imported("f", "10.3.0.0/16", "192.168.1.1"),
			},
			want: []string{"regular of node-2 fd30::22 fd78::102", "west [10.96.0.0/16] [fd77::101] via fd78::102"},
			problems: []string{
				"ClusterInfoImport kube-system/f-clusterinfo spec.gatewayInfos[0].gatewayIP: cluster f is not " +
					"reached: no gateway that it keeps has an address of the version of IP that this cluster's Gateway node-2 " +
					"has, fd30::22",
			},
		},
		{
			name:     "a peer whose gateways change to IPv6",
			gateways: own,
			imports: []*mcv1alpha1.ClusterInfoImport{
				leaving(imported("west", "10.96.0.0/16", "fd77::101"), "192.168.77.101")},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102"},
			problems: []string{"ClusterInfoImport kube-system/west-clusterinfo spec.gatewayInfos[0].gatewayIP: cluster west " +
				"is not reached: no gateway that it keeps has"},
		},
		{
			name: "tunnels over the version of IP of the oldest Gateway",
			gateways: []*mcv1alpha1.Gateway{gateway("node-2", "fd30::22", "fd78::102", 0),
				gateway("node-3", "172.30.1.23", "192.168.78.103", time.Hour)},
			want: []string{"regular of node-3 172.30.1.23 192.168.78.103"},
			problems: []string{
				"Gateway kube-system/node-2 gatewayIP: the Gateway is not used: tunnels between clusters end at fd30::22, and at " +
					"Gateway node-3, which decides the version of IP, at 172.30.1.23: give",
			},
		},
		{
			name: "tunnels over the version of IP of the oldest Gateway that others use",
			gateways: []*mcv1alpha1.Gateway{gateway("node-2", "fd30::22", "fd78::102", 0),
				inPhase(gateway("node-3", "172.30.1.23", "192.168.78.103", time.Hour), multicluster.PhaseLeaving)},
			want: []string{"regular of node-2 fd30::22 fd78::102"},
			problems: []string{
				"Gateway kube-system/node-3 gatewayIP: the Gateway is not used: tunnels between clusters end at 172.30.1.23, and " +
					"at Gateway node-2, which decides the version of IP, at fd30::22: give",
			},
		},
		{
			name:     "two addresses of IPv6 with one source of translated requests",
			gateways: []*mcv1alpha1.Gateway{gateway("node-2", "fd30::22", "fd78::102", 0)},
			imports: []*mcv1alpha1.ClusterInfoImport{imported("one", "10.3.0.0/16", "fd31::258:c600"),
				imported("two", "10.96.0.0/16", "fd31::c9:136", "fd77::101")},
			want: []string{"regular of node-2 fd30::22 fd78::102", "one [10.3.0.0/16] [fd31::258:c600] via fd78::102",
				"two [10.96.0.0/16] [fd77::101] via fd78::102"},
			problems: []string{"ClusterInfoImport kube-system/two-clusterinfo spec.gatewayInfos[0].gatewayIP: gateway of " +
				"cluster two ignored: fd31::c9:136 is the gateway of cluster one too"},
		},
		{
			name: "versions of IP that this Node does not serve are not routed, and no fault", gateways: own,
			families: family.IPv6, podToPod: true,
			imports: []*mcv1alpha1.ClusterInfoImport{
				pods(services(imported("west", "10.96.0.0/16", "192.168.77.101"), "10.96.0.0/16", "fd96::/112"),
					"10.10.0.0/16", "fd10::/48"),
				imported("four", "10.97.0.0/16", "192.168.79.101"),
			},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102", "four [] [192.168.79.101] via 192.168.78.102",
				"west [fd96::/112 fd10::/48] [192.168.77.101] via 192.168.78.102"},
		},
		{
			name: "Pod ranges count where Pods are shared", gateways: own, podToPod: true,
			imports: []*mcv1alpha1.ClusterInfoImport{pods(imported("west", "10.96.0.0/16", "192.168.77.101"), "10.10.0.0/16",
				"10.11.3.0/24", "x")},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"west [10.96.0.0/16 10.10.0.0/16] [192.168.77.101] via 192.168.78.102"},
			problems: []string{
				"ClusterInfoImport kube-system/west-clusterinfo spec.podCIDRs[1]: Pod range 10.11.3.0/24 of cluster west " +
					"ignored: it overlaps this cluster's Pod range",
				"ClusterInfoImport kube-system/west-clusterinfo spec.podCIDRs[2]: Pod range of cluster west ignored: \"x\" is " +
					"not a range",
			},
		},
		{
			name: "Pod ranges do not matter where they are not", gateways: own,
			imports: []*mcv1alpha1.ClusterInfoImport{pods(imported("west", "10.96.0.0/16", "192.168.77.101"), "10.11.3.0/24")},
			want: []string{"regular of node-2 172.30.1.22 192.168.78.102",
				"west [10.96.0.0/16] [192.168.77.101] via 192.168.78.102"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.node == "" {
				test.node = "node-1"
			}
			for seed := range uint64(5) { // the lists' order does not matter
				r := rand.New(rand.NewPCG(seed, 1))
				r.Shuffle(len(test.imports), func(i, j int) { test.imports[i], test.imports[j] = test.imports[j], test.imports[i] })
				r.Shuffle(len(test.gateways), func(i, j int) {
					test.gateways[i], test.gateways[j] = test.gateways[j], test.gateways[i]
				})
				have, problems := Plan(View{
					NodeName: test.node, Gateways: test.gateways, ClusterInfoImports: test.imports, PodToPod: test.podToPod,
					Families:              test.families,
					AllowUnencryptedPeers: test.plain,
					Own: Own{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("fd97::/112")},
						PodCIDRs:   []netip.Prefix{netip.MustParsePrefix("10.11.0.0/16"), netip.MustParsePrefix("fd11::/48")},
						Nodes:      []netip.Addr{netip.MustParseAddr("192.168.78.101"), netip.MustParseAddr("192.168.78.102")},
						APIServers: []netip.Addr{netip.MustParseAddr("172.30.0.10")},
						Networks:   []netip.Prefix{netip.MustParsePrefix("192.168.78.0/24")}},
				})
				if diff := cmp.Diff(test.want, text(have)); diff != "" {
					t.Errorf("peering (-want +have):\n%s", diff)
				}
				if len(problems) != len(test.problems) {
					t.Fatalf("problems %q, want %q", problems, test.problems)
				}
				for i, p := range problems {
					line := p.Object.String() + " " + p.Field + ": " + p.Message
					if !strings.HasPrefix(line, test.problems[i]) {
						t.Errorf("problem %q, want %q", line, test.problems[i])
					}
				}
			}
		})
	}
}

// TestPlanOverlappingPods checks two clusters with one Pod range: the older has it, and the other's Services and other
// ranges are reached.
func TestPlanOverlappingPods(t *testing.T) {
	p, problems := Plan(View{NodeName: "node-1", PodToPod: true,
		Gateways: []*mcv1alpha1.Gateway{gateway("node-2", "172.30.1.22", "192.168.78.102", time.Hour)},
		ClusterInfoImports: []*mcv1alpha1.ClusterInfoImport{
			aged(pods(imported("north", "10.98.0.0/16", "192.168.79.101"), "10.12.0.0/16", "10.10.128.0/17"), time.Minute),
			pods(imported("west", "10.96.0.0/16", "192.168.77.101"), "10.10.0.0/16"),
		}})
	want := []string{"regular of node-2 172.30.1.22 192.168.78.102",
		"north [10.98.0.0/16 10.12.0.0/16] [192.168.79.101] via 192.168.78.102",
		"west [10.96.0.0/16 10.10.0.0/16] [192.168.77.101] via 192.168.78.102"}
	if diff := cmp.Diff(want, text(p)); diff != "" {
		t.Errorf("peering (-want +have):\n%s", diff)
	}
	if diff := cmp.Diff([]problem.Problem{{
		Object: problem.Object{Kind: "ClusterInfoImport", Namespace: "kube-system", Name: "north-clusterinfo"},
		Field:  "spec.podCIDRs[1]", Reason: reasonOverlappingPodCIDR,
		Message: "Pod range 10.10.128.0/17 of cluster north ignored: it overlaps cluster west: use Pod ranges that do not " +
			"overlap, or turn enablePodToPodConnectivity off",
	}}, problems); diff != "" {
		t.Errorf("problems (-want +have):\n%s", diff)
	}
}
