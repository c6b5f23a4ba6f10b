package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/pkg/gates"
)

func TestDefaults(t *testing.T) {
	for _, text := range []string{"", "---\n", "# nothing\n", "ovsBridge:\nantreaProxy:\n"} {
		c, warnings, err := Parse([]byte(text))
		if err != nil || len(warnings) != 0 {
			t.Fatalf("%q: %v %v", text, warnings, err)
		}
		if diff := cmp.Diff(Default(), c); diff != "" {
			t.Errorf("%q differs from the default (-want +got):\n%s", text, diff)
		}
	}
	c := Default()
	got := []any{
		c.OVSBridge, c.OVSDatapathType, c.HostGateway, c.TrafficEncapMode, c.TunnelType, c.TunnelPort, c.DefaultMTU, c.NoSNAT,
		c.APIPort,
		c.EnablePrometheusMetrics, c.AntreaProxy.Enable, c.AntreaProxy.ProxyLoadBalancerIPs, c.Multicluster.EnableGateway,
		c.Multicluster.WireGuard.Port,
		c.FlowExporter.FlowPollInterval, c.Multicast.IGMPQueryVersions, c.NodePortLocal.PortRange, c.Enabled("Multicluster"),
		c.Enabled("AntreaProxy"),
	}
	want := []any{
		"br-int", "system", "antrea-gw0", "encap", "geneve", 0, 0, false, 10350,
		true, true, true, false, 51821,
		5 * time.Second, []int{1, 2, 3}, "61000-62000", false, true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("documented defaults (-want +got):\n%s", diff)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "antrea-agent.conf")
	text := `featureGates:
  Multicluster: true
  L7NetworkPolicy: true
ovsDatapathType: netdev
transportInterface: eth1
tunnelType: VXLAN
kubeAPIServerOverride: "https://172.30.0.10:6443"
multicluster:
  enable: true
  namespace: kube-system
  enableStretchedNetworkPolicy: true
nodePortLocal:
  enable: true
apiPort: 10360
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, warnings, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.OVSDatapathType != "netdev" || c.TransportInterface != "eth1" || c.TunnelType != "vxlan" ||
		c.KubeAPIServerOverride != "https://172.30.0.10:6443" ||
		c.APIPort != 10360 || !c.MulticlusterGateway() || !c.StretchedPolicies() ||
		c.Multicluster.Namespace != "kube-system" {
		t.Errorf("got %+v", c)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	want := []string{
		"line 3: featureGates.L7NetworkPolicy: what asks for it is NOT enforced by this version (docs/policy.md)",
		"line 9: multicluster.enable: is the old name of multicluster.enableGateway; rename it",
		"line 13: nodePortLocal.enable: has no effect: NodePortLocal is not in this version",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if _, _, err := Load(path + ".none"); err == nil {
		t.Error("a missing file was accepted")
	}
}

func TestGateOff(t *testing.T) {
	c, warnings, err := Parse([]byte("multicluster:\n  enableGateway: true\n  trafficEncryptionMode: wireGuard\n"))
	if err != nil || c.MulticlusterGateway() || c.Multicluster.EnableGateway || len(warnings) != 1 ||
		!strings.Contains(warnings[0].String(), "the feature gate Multicluster is off") {
		t.Errorf("%+v %v %v", c.Multicluster, warnings, err)
	}
}

// TestResolvers reads the DNS servers whose answers are learned from.
func TestResolvers(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", "[]"},
		{"dnsServerOverride: \"\"\n", "[]"},
		{"dnsServerOverride: 10.96.0.10\n", "[10.96.0.10/32]"},
		{"dnsServerOverride: 10.96.0.10:53, 169.254.20.10\n", "[10.96.0.10/32 169.254.20.10/32]"},
		{"dnsServerOverride: 10.1.2.3/24,0.0.0.0/0\n", "[10.1.2.0/24 0.0.0.0/0]"},
		{"dnsServerOverride: 10.96.0.10:5353\n", "want DNS servers"},
		{"dnsServerOverride: 10.96.0.10,\n", "want DNS servers"},
		{"dnsServerOverride: dns.example.com\n", "want DNS servers"},
	} {
		c, warnings, err := Parse([]byte(row.text))
		have := fmt.Sprint(c.Resolvers())
		if err != nil {
			have = err.Error()
		}
		if !strings.Contains(have, row.want) || len(warnings) > 0 {
			t.Errorf("%q: %s, warnings %v; want %s", row.text, have, warnings, row.want)
		}
	}
}

// TestEncryptsNodes checks that encryption between Nodes has its own setting. It has rows with and without Gateways,
// and with and without encryption between clusters.
func TestEncryptsNodes(t *testing.T) {
	for _, row := range []struct {
		text         string
		nodes, peers bool
	}{
		{"trafficEncryptionMode: none\n", false, false},
		{"trafficEncryptionMode: WireGuard\n", true, false},
		{"trafficEncryptionMode: wireGuard\nfeatureGates: {Multicluster: true}\nmulticluster: {enableGateway: true}\n",
			true, false},
		{"trafficEncryptionMode: wireGuard\nfeatureGates: {Multicluster: true}\nmulticluster: {enableGateway: true, " +
			"trafficEncryptionMode: wireGuard}\n", true, true},
	} {
		c, warnings, err := Parse([]byte(row.text))
		if err != nil || len(warnings) > 0 || c.EncryptsNodes() != row.nodes || c.EncryptsPeers() != row.peers {
			t.Errorf("%q: encrypts Nodes %v, peers %v; warnings %v, error %v", row.text, c.EncryptsNodes(), c.EncryptsPeers(),
				warnings, err)
		}
	}
}

func TestEncryptsPeers(t *testing.T) {
	for _, row := range []struct {
		text    string
		want    bool
		warning string
	}{
		{"enableGateway: true, trafficEncryptionMode: wireguard", true, ""},
		{"enableGateway: true, trafficEncryptionMode: WIREGUARD, wireGuard: {port: 4000}", true, ""},
		{"enableGateway: true, trafficEncryptionMode: None", false, ""},
		{"enableGateway: true", false, ""},
		{"trafficEncryptionMode: wireGuard", false,
			"multicluster.trafficEncryptionMode: has no effect without multicluster.enableGateway"},
		{"enableGateway: true, trafficEncryptionMode: wireGuard, allowUnencryptedPeers: true", true,
			"multicluster.allowUnencryptedPeers: has no effect with multicluster.trafficEncryptionMode wireGuard"},
	} {
		c, warnings, err := Parse([]byte("featureGates: {Multicluster: true}\nmulticluster: {" + row.text + "}\n"))
		if err != nil || c.EncryptsPeers() != row.want {
			t.Errorf("%s: encrypts %v, error %v", row.text, c.EncryptsPeers(), err)
		}
		if len(warnings) > 0 != (row.warning != "") || row.warning != "" &&
			!strings.Contains(warnings[0].String(), row.warning) {
			t.Errorf("%s: warnings %v, want %q", row.text, warnings, row.warning)
		}
	}
}

func TestErrors(t *testing.T) {
	const on = "featureGates: {Multicluster: true}\n"
	for _, row := range []struct{ name, text, want string }{
		{"unknown key twice", "a: 1\na: 2\n", "line 2: a: set twice, first on line 1"},
		{"twice", "noSNAT: true\n\nnoSNAT: false\n", "line 3: noSNAT: set twice, first on line 1; remove one"},
		{"old name and new", on + "multicluster:\n  enable: true\n  enableGateway: true\n",
			"line 4: multicluster.enableGateway: set twice, first on line 3"},
		{"malformed", "multicluster:\n  a: b\n c: d\n", "line 2: malformed YAML: "},
		{"stray tab", "noSNAT: true\n\tx: y\n", "malformed YAML"},
		{"not keys", "- a\n", "has a list, want keys with values below it"},
		{"not keys in a section", "multicluster: yes\n", `line 1: multicluster: has "yes", want keys`},
		{"not a list", "transportInterfaceCIDRs: 10.0.0.0/8\n", `has "10.0.0.0/8", want a list`},
		{"not a bool", "noSNAT: maybe\n", `line 1: noSNAT: has "maybe", want true or false`},
		{"quoted bool", `noSNAT: "true"`, `noSNAT: has "true", want true or false`},
		{"not a number", "tunnelPort: many\n", `tunnelPort: has "many", want a whole number`},
		{"number too large", "tunnelPort: 65536\n", "tunnelPort: has 65536, want 0 to 65535"},
		{"number too small", "packetInRate: -1\n", "packetInRate: has -1, want 0 to 1000000"},
		{"number too small, no maximum", "auditLogging: {maxSize: -1}\n", "auditLogging.maxSize: has -1, want 0 or more"},
		{"not a duration", "flowExporter: {flowPollInterval: 5}\n",
			`flowExporter.flowPollInterval: has "5", want a duration`},
		{"list where a text belongs", "ovsBridge: [a]\n", "ovsBridge: has a list, want a text"},
		{"value not allowed", "ovsDatapathType: kernel\n", `ovsDatapathType: has "kernel", want one of system, netdev`},
		{"name too long", "ovsBridge: a-very-long-bridge\n", "at most 15 characters"},
		{"name empty", "hostGateway: ''\n", "hostGateway: is empty; remove it for the default, antrea-gw0"},
		{"same names", "hostGateway: br-int\n", `hostGateway: has "br-int", the name of the bridge`},
		{"not a range", "serviceCIDR: 10.96.0.0\n", `serviceCIDR: has "10.96.0.0", want an address range`},
		{"IPv6 range", "serviceCIDR: fd00::/108\n", "want an IPv4 range: write a range of IPv6 in serviceCIDRv6"},
		{"IPv4 range", "serviceCIDRv6: 10.96.0.0/12\n", "want an IPv6 range: write a range of IPv4 in serviceCIDR"},
		{"not a URL", "kubeAPIServerOverride: 10.0.0.1:6443\n", "want the API server's https URL such as https://"},
		{"a URL that would read the token in the clear", "kubeAPIServerOverride: http://10.0.0.1:8080\n",
			"want the API server's https URL such as https://"},
		{"MTU too small", "defaultMTU: 100\n", "defaultMTU: has 100, want 0 (discover) or at least 576"},
		{"gate not a bool", "featureGates: {Multicluster: on please}\n",
			`featureGates.Multicluster: has "on please", want true or false`},
		{"locked gate", "featureGates: {EndpointSlice: false}\n",
			"featureGates.EndpointSlice: is always true and cannot be changed"},
		{"encap mode", "trafficEncapMode: networkPolicyOnly\n",
			"line 1: trafficEncapMode: networkPolicyOnly is not in this version; set it to encap, noEncap or hybrid"},
		{"encryption without tunnels", "trafficEncapMode: noEncap\ntrafficEncryptionMode: wireGuard\n",
			"line 2: trafficEncryptionMode: wireGuard encrypts tunnels, and with trafficEncapMode noEncap packets leave " +
				"without a tunnel and in plain text; set trafficEncapMode to encap, or trafficEncryptionMode to none"},
		{"networks of tenants without tunnels", "trafficEncapMode: hybrid\nfeatureGates:\n  TenantNetworks: true\n",
			"line 3: featureGates.TenantNetworks: needs tunnels between all Nodes, and with trafficEncapMode hybrid the " +
				"network between them carries packets of Pods without the number of a tenant's network; set trafficEncapMode to " +
				"encap, or the gate to false"},
		{"encryption with few tunnels", "trafficEncapMode: hybrid\ntrafficEncryptionMode: wireGuard\n",
			"with trafficEncapMode hybrid packets leave without a tunnel"},
		{"IPsec", "trafficEncryptionMode: ipsec\n", "ipsec is not in this version: traffic would go unencrypted"},
		{"stt", "tunnelType: stt\n", "stt is not in Open vSwitch any more"},
		{"port of gre", "tunnelType: gre\ntunnelPort: 5000\n", "gre has no ports"},
		{"bridging mode", "enableBridgingMode: true\n", "bridging mode is not in this version"},
		{"no proxy", "antreaProxy: {enable: false}\n", "antreaProxy.enable: Services are always served by the agent"},
		{"skipped Services", "antreaProxy: {skipServices: [a/b]}\n", "antreaProxy.skipServices"},
		{"stretched without gateway", on + "multicluster: {enableStretchedNetworkPolicy: true}\n",
			"line 2: multicluster.enableStretchedNetworkPolicy: Multi-cluster Gateway must be enabled to enable " +
				"StretchedNetworkPolicy"},
		{"one port for two", on +
			"trafficEncryptionMode: wireGuard\nwireGuard: {port: 51821}\nmulticluster: {enableGateway: true, " +
			"trafficEncryptionMode: wireGuard}\n",
			"multicluster.wireGuard.port: has 51821, which is the port between the Nodes of this cluster too"},
		{"bad port", "multicluster: {wireGuard: {port: 0}}\n", "multicluster.wireGuard.port: has 0, want 1 to 65535"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, _, err := Parse([]byte(row.text))
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s\nerror: %v\nwant:  %s", row.text, err, row.want)
			}
		})
	}
}

// TestWarnings checks settings without effect: the agent starts and writes a warning.
func TestWarnings(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"unknown key", "a: 1\n", "line 1: a: unknown key without effect; correct or remove it"},
		{"misspelled key", "ovsBrige: br-int\n",
			"line 1: ovsBrige: unknown key without effect; did you mean ovsBridge?; correct or remove it"},
		{"wrong case", "\ndefaultMtu: 1400\n", "line 2: defaultMtu: unknown key without effect; did you mean defaultMTU?"},
		{"misspelled below a section", "multicluster:\n  enableGatway: true\n",
			"line 2: multicluster.enableGatway: unknown key without effect; did you mean enableGateway?"},
		{"section forgotten", "enablePodToPodConnectivity: true\n", "it belongs under multicluster;"},
		{"wrong section", "multicluster:\n  tunnelType: geneve\n", "it belongs at the top level of the file"},
		{"unknown section", "future:\n  key: 1\n", "line 1: future: unknown key without effect"},
		{"unknown gate", "featureGates:\n  TraceFlow: true\n",
			"line 2: featureGates.TraceFlow: unknown feature gate; did you mean Traceflow?; it has no effect"},
		{"gate of a later version", "featureGates: {Wormholes: false}\n",
			"line 1: featureGates.Wormholes: unknown feature gate; it has no effect"},
		{"iptables written out", "hostNetworkMode: iptables\n",
			"line 1: hostNetworkMode: has no effect: the host's rules are always made with nftables; set it to nftables"},
		{"node hints gate off", "featureGates: {PreferSameTrafficDistribution: false}\n",
			"featureGates.PreferSameTrafficDistribution: has no effect"},
		{"nftables gate off", "featureGates: {NFTablesHostNetworkMode: false}\n",
			"featureGates.NFTablesHostNetworkMode: has no effect"},
		{"addresses kept of Pods that are not reached",
			"featureGates: {Multicluster: true}\nmulticluster: {enableGateway: true, preserveClientIP: auto}\n",
			"multicluster.preserveClientIP: has no effect without multicluster.enablePodToPodConnectivity"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, warnings, err := Parse([]byte(row.text))
			if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), row.want) {
				t.Errorf("%s\nwarnings: %v, error: %v\nwant:     %s", row.text, warnings, err, row.want)
			}
			if c.OVSBridge == "" {
				t.Error("the configuration has no bridge")
			}
		})
	}
}

// TestMissing sets the feature gates that this version does not have. Each one is a Warning, and all stay off.
func TestMissing(t *testing.T) {
	if on := gates.Missing(true); !slices.Contains(on, "Egress") || slices.Contains(on, "Traceflow") ||
		slices.Contains(on, "AntreaProxy") {
		t.Errorf("on by default in Antrea and missing: %v", on)
	}
	for _, name := range slices.Concat(gates.Missing(true), gates.Missing(false)) {
		if Default().Enabled(name) {
			t.Errorf("%s is on by default", name)
		}
		c, warnings, err := Parse([]byte("featureGates: {" + name + ": true}\n"))
		if err != nil || len(warnings) != 1 || warnings[0].Key != "featureGates."+name || c.Enabled(name) {
			t.Errorf("%s: warnings %v, error %v, on %v", name, warnings, err, c.Enabled(name))
		}
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, _, err := Parse([]byte("ovsBridge: [a]\nnoSNAT: 7\nfeatureGates: {AntreaProxy: false}\n"))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines: %v", err)
	}
}

// FuzzParse searches for input that panics, or that is accepted without values that the agent needs.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "a: [1, {b: c}]", "&a {x: *a}", "featureGates: &g {A: true}\nmulticluster: *g",
		"ovsBridge: !!binary aGk=", "? [a]\n: b", "x: &x [*x]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, _, err := Parse(b)
		if err == nil && (c.OVSBridge == "" || c.HostGateway == "") {
			t.Errorf("accepted without a bridge: %q", b)
		}
	})
}

// TestBFD compares values of multicluster.bfd with their ranges. If a value is out of range, there is a Warning, and
// the default is used.
func TestBFD(t *testing.T) {
	for _, row := range []struct {
		text       string
		interval   time.Duration
		multiplier int
		warnings   []string // key and message
	}{
		{"interval: 10ms, multiplier: 2", 10 * time.Millisecond, 2, nil},
		{"interval: 10s, multiplier: 50", 10 * time.Second, 50, nil},
		{"interval: 5ms", 100 * time.Millisecond, 3,
			[]string{"multicluster.bfd.interval: has 5ms, want 10ms to 10s: 100ms is used; correct it, or remove it"}},
		{"interval: 11s", 100 * time.Millisecond, 3,
			[]string{"multicluster.bfd.interval: has 11s, want 10ms to 10s: 100ms is used; correct it, or remove it"}},
		{"multiplier: 1", 100 * time.Millisecond, 3,
			[]string{"multicluster.bfd.multiplier: has 1, want 2 to 50: 3 is used; correct it, or remove it"}},
		{"multiplier: 51", 100 * time.Millisecond, 3,
			[]string{"multicluster.bfd.multiplier: has 51, want 2 to 50: 3 is used; correct it, or remove it"}},
		{"interval: 5ms, multiplier: 10", 100 * time.Millisecond, 10,
			[]string{"multicluster.bfd.interval: has 5ms, want 10ms to 10s: 100ms is used; correct it, or remove it"}},
	} {
		t.Run(row.text, func(t *testing.T) {
			c, warnings, err := Parse(
				[]byte("featureGates: {Multicluster: true}\nmulticluster:\n  enableGateway: true\n  bfd: {" + row.text + "}\n"))
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, w := range warnings {
				have = append(have, w.Key+": "+w.Message)
				if w.Line != 4 {
					t.Errorf("%s is said of line %d, want 4", w.Key, w.Line)
				}
			}
			if diff := cmp.Diff(row.warnings, have); diff != "" {
				t.Errorf("warnings (-want +have):\n%s", diff)
			}
			if b := c.Multicluster.BFD; b.Interval != row.interval || b.Multiplier != row.multiplier {
				t.Errorf("used are %s and %d, want %s and %d", b.Interval, b.Multiplier, row.interval, row.multiplier)
			}
		})
	}
}

// TestFlowExporter turns flow records off that cannot be sent, and names the key.
func TestFlowExporter(t *testing.T) {
	const on = "featureGates: {FlowExporter: true}\nflowExporter:\n  enable: true\n"
	for _, row := range []struct {
		text, want string
		sends      bool
	}{
		{on + "  flowCollectorAddr: 192.0.2.7:4739:tls\n", "", true},
		{on + "  flowCollectorAddr: flows/collector:4739:udp\n", "", true},
		{on, "line 0: flowExporter.flowCollectorAddr: has \"flow-aggregator/flow-aggregator:14739:grpc\": grpc is not",
			false},
		{on + "  flowCollectorAddr: 192.0.2.7\n", "line 4: flowExporter.flowCollectorAddr: has \"192.0.2.7\": the port",
			false},
		{on + "  flowCollectorAddr: 192.0.2.7:1:tls\n  flowCollectorCA: x\n", "line 5: flowExporter.flowCollectorCA: has no",
			false},
		{on + "  flowCollectorAddr: 192.0.2.7:1:tcp\n  idleFlowExportTimeout: 1ms\n",
			"line 5: flowExporter.idleFlowExportTimeout: has 1ms, want 1s or more: 15s is used", true},
		{"flowExporter: {enable: true}\n", "line 1: flowExporter.enable: has no effect because the feature gate", false},
		{"observe: {connections: 'off'}\n" + on + "  flowCollectorAddr: 192.0.2.7:4739:tcp\n",
			"line 1: observe.connections: is off", true},
		{"featureGates: {FlowExporter: true}\n", "", false},
	} {
		c, warnings, err := Parse([]byte(row.text))
		if err != nil || c.FlowExporter.Enable != row.sends {
			t.Errorf("%q: sends %v, error %v", row.text, c.FlowExporter.Enable, err)
		}
		if len(warnings) > 1 || (len(warnings) == 0) != (row.want == "") ||
			len(warnings) == 1 && !strings.HasPrefix(warnings[0].String(), row.want) {
			t.Errorf("%q: the warnings are %v, want %s", row.text, warnings, row.want)
		}
	}
}
