package node

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/clitest"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// tombolo runs a command line and returns what it printed. The first word is the program: antctl has the documented
// commands.
func tombolo(t *testing.T, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	root := cli.Root(words[0], "")
	if words[0] == "antctl" {
		root.AddCommand(Documented()...)
	} else {
		root.AddCommand(Commands()...)
	}
	remote.Complete(root)
	return clitest.Run(t, root, words[1:]...)
}

// agent serves a debug API with fixed answers and returns its socket.
func agent(t *testing.T, answers map[string]any) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "debug.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.RequestURI()]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if e, bad := answer.(api.Error); bad {
			w.WriteHeader(http.StatusServiceUnavailable)
			answer = e
		}
		if text, raw := answer.(string); raw {
			_, _ = w.Write([]byte(text))
			return
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done })
	return socket
}

var flows = api.FlowList{Flows: []api.Flow{
	{Table: "Classify", TableID: 0, Priority: 200, Match: "in_port=3,ip,nw_src=10.10.1.2", Actions: "goto_table:Conntrack",
		Text:  "Classify: priority=200,in_port=3,ip,nw_src=10.10.1.2 actions=goto_table:Conntrack",
		Owner: "Pod web-5d8f-a9993e", Cookie: 0x1000100000000, Packets: 12, Bytes: 1176, Duration: 61.4},
	{Table: "Classify", TableID: 0, Priority: 0, Actions: "", Text: "Classify: priority=0 actions=drop", Cookie: 7,
		Duration: 1e30},
}}

var status = api.Status{
	LastPass: &api.Pass{Seconds: 0.00025, Evaluated: 4, Changed: 4, Passes: 17},
	Node:     "node-1", Version: "v0.1.0", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Ready: true,
	Datapath: "netdev", OVS: "3.1.0",
	Gateway: "node-2", Role: "Regular",
	Network: &api.Network{Mode: "encap", Tunnel: "geneve", Port: 6081, Encryption: "none", PeerEncryption: "wireGuard",
		LinkMTU: 1500, PodMTU: 1390, TunnelOverhead: 110},
	OpenFlow: api.OpenFlow{Connected: true, Connections: 1,
		MessagesSent: map[string]uint64{"HELLO": 1, "BUNDLE_ADD_MESSAGE": 40}, FlowMods: 38, GroupMods: 2, Bundles: 3,
		Flows: 38, Groups: 2, Refused: []string{"Service: priority=200 actions=bad: OFPBAC_BAD_TYPE"}},
	Problems: []api.Problem{{Object: "ClusterInfoImport kube-system/west-clusterinfo", Field: "spec.serviceCIDR",
		Reason: "Overlap", Message: "cluster west ignored: its Service range 10.97.0.0/16 overlaps cluster east"}},
}

const metrics = "# TYPE tombolo_multicluster_way_up gauge\ntombolo_multicluster_way_up{to=\"192.168.78.101\"} 1\n"

// answers are the answers of an agent, by path and query.
var answers = map[string]any{
	"/metrics":                           metrics,
	"/v1/flows":                          flows,
	"/v1/flows?owner=Pod&table=Classify": api.FlowList{Flows: flows.Flows[:1]},
	"/v1/groups": api.GroupList{Groups: []api.Group{
		{ID: 1, Type: "select", Method: "dp_hash", Owner: "Service default/web:http",
			Buckets: []api.Bucket{{ID: 0, Weight: 100, Actions: "resubmit(,Route)"},
				{ID: 1, Weight: 50, Actions: "resubmit(,Route)"}}},
		{ID: 9, Type: "all"},
	}},
	"/v1/ports": api.PortList{Ports: []api.Port{
		{Name: "web-5d8f-a9993e", OFPort: 3, Type: "container", Pod: "default/web-5d8f7c", IPs: []string{"10.10.1.2"},
			MAC: "02:00:00:00:00:02", IfName: "eth0", ContainerID: "0123456789abcdef"},
		{Name: "antrea-gw0", OFPort: 32769, Type: "gateway", MAC: "02:00:00:00:00:01"},
		{Name: "lost-000000", OFPort: -1, Type: "container",
			Error: "could not open network device lost-000000 (No such device)"},
	}},
	"/v1/peers": api.PeerList{Peers: []api.Peer{
		{Kind: "Node", Name: "node-2", CIDRs: []string{"10.10.2.0/24"}, Via: "192.168.77.102"},
		{
			Kind: "Cluster", Name: "test-cluster-north", CIDRs: []string{"10.98.0.0/16", "10.20.0.0/16"},
			Gateways: []string{"192.168.79.101", "192.168.79.102", "192.168.79.103"},
			Via:      "192.168.79.101",
			Ways: []api.Way{{To: "192.168.79.101", State: "up", Forwarding: true, Diagnostic: "No Diagnostic",
				RemoteState: "up", RemoteDiagnostic: "No Diagnostic", Flaps: 1, RxPackets: 4711, TxPackets: 4712},
				{To: "192.168.79.102", State: "down", Diagnostic: "Control Detection Time Expired", RemoteState: "down",
					RemoteDiagnostic: "No Diagnostic", Flaps: 2, RxPackets: 90, TxPackets: 120},
				{To: "192.168.79.103"}}, Role: "Gateway",
		},
		{Kind: "Cluster", Name: "test-cluster-west", CIDRs: []string{"10.97.0.0/16"}, Gateways: []string{"192.168.78.101"},
			Via: "192.168.77.102", Role: "Regular"},
	}},
	"/v1/probes": api.Probes{Node: "node-1", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Foreign: 1,
		Ways: []api.ProbedWay{
			{Peer: "west", To: "192.168.79.101", Size: 1450, MTU: 1450, ProbeResult: api.ProbeResult{Sent: 4711, Lost: 47,
				Samples: 300, Loss60: 1. / 60, Loss300: .01, LastSeconds: .0201, P50Seconds: .0202, P99Seconds: .0454321}},
			{Peer: "west", To: "192.168.79.102", Size: 1350, MTU: 1450, Paused: true, ProbeResult: api.ProbeResult{Sent: 2,
				Lost: 2, Late: 1, Samples: 2, Loss60: 1, Loss300: 1}},
			{Peer: "south", To: "192.168.80.101", MTU: 1450},
		},
		Nodes: []api.ProbedNode{{Node: "node-2", To: "10.12.2.1", ProbeResult: api.ProbeResult{Sent: 61, Lost: 3, Samples: 61,
			Loss60: .05, Loss300: 3. / 61, LastSeconds: .0004, P50Seconds: .0005, P99Seconds: .0021}}}},
	"/v1/status": status,
	"/v1/explain?key=default%2Fweb": api.Explanation{Key: "default/web", Rows: []api.Row{
		{Table: "frontends", Value: "[default/web 10.97.0.10:80/TCP]", From: []string{"services[default/web]"},
			To: []string{"service-flows[default/web]"}},
		{Table: "service-flows", Problems: []string{"Service default/web: not served"}},
	}},
	"/v1/policies":                   policies,
	"/v1/rules":                      rulesOfAll,
	"/v1/rules?policy=default%2Fweb": api.RuleList{Rules: rulesOfAll.Rules[:1], Denied: []api.Denied{}},
	"/v1/why?from=shop%2Fweb&to=shop%2Fdb&trace=true":               why,
	"/v1/why?from=shop%2Fboth&to=shop%2Fdb&trace=true":              bothVersions,
	"/v1/why?from=203.0.113.7&port=443&to=198.51.100.10&trace=true": ofService,
	"/v1/why?from=shop%2Fweb&port=80&to=a%2Fdb&trace=true":          ofNetworks,
	"/v1/why?cluster=west&from=shop%2Fweb&port=5432&protocol=tcp&to=shop%2Fdb": api.Why{From: client, To: why.To,
		Connections: why.Connections[1:]},
	"/v1/identities": api.IdentityList{Identities: []api.Identity{
		{Number: 5, ClusterSet: 17, Labels: "ns:kubernetes.io/metadata.name=default&pod:app=web", Here: 2, Elsewhere: 10,
			Addresses: 12},
		{Number: 9000001, Labels: "ns:kubernetes.io/metadata.name=shop&pod:", Elsewhere: 1},
	}},
	"/v1/trace?flow=in_port%3D3%2Cip": api.Trace{Flow: "in_port=3,ip", Output: traced,
		Tables: map[string]string{"0": "Classify", "1": "Conntrack", "2": "Service", "12": "Output"}},
	"/v1/traces?family=ipv6&from=shop%2Fweb&port=80&to=shop%2Fdb": api.TraceList{Traces: []api.Trace{
		{Flow: "in_port=3,tcp6", Output: traced, Tables: map[string]string{"0": "Classify"}},
		{Flow: "in_port=4,tcp6", Output: traced, Tables: map[string]string{"0": "Classify"}},
	}, Networks: []string{"to fd10::2:9 denied: Pod shop/db is in the isolated Namespace shop"}},
}

// commands are commands with the files that have their output.
var commands = []struct {
	golden string
	words  []string
}{
	{"flows.txt", []string{"tombolo", "get", "flows"}},
	{"flows-filtered.txt", []string{"tombolo", "get", "flows", "-T", "Classify", "--owner", "Pod", "--stats"}},
	{"flows.json", []string{"tombolo", "get", "flows", "-o", "json"}},
	{"flows-bare.txt", []string{"tombolo", "get", "flows", "--no-headers"}},
	{"ports-name.txt", []string{"tombolo", "get", "ports", "-o", "name"}},
	{"ports-path.txt", []string{"tombolo", "get", "ports", "-o", "jsonpath={.ports[*].pod}"}},
	{"groups.txt", []string{"kubectl-tombolo", "get", "groups"}},
	{"ports.txt", []string{"tombolo", "get", "ports"}},
	{"peers.txt", []string{"tombolo", "get", "peers"}},
	{"peers.yaml", []string{"tombolo", "get", "peers", "-o", "yaml"}},
	{"latency.txt", []string{"tombolo", "get", "latency"}},
	{"latency.json", []string{"tombolo", "get", "latency", "-o", "json"}},
	{"peers-wide.txt", []string{"tombolo", "get", "peers", "-o", "wide"}},
	{"status.txt", []string{"tombolo", "get", "status"}},
	{"explain.txt", []string{"tombolo", "explain", "default/web"}},
	{"explain.txt", []string{"tombolo", "explain", "Service", "default/web"}},
	{"explain.txt", []string{"tombolo", "explain", "web", "--namespace", "default"}},
	{"trace.txt", []string{"tombolo", "trace", "in_port=3,ip"}},
	{"traces.txt", []string{"tombolo", "trace", "--from", "shop/web", "--to", "shop/db", "--port", "80", "--family",
		"ipv6"}},
	{"policies.txt", []string{"tombolo", "get", "policies"}},
	{"policies.yaml", []string{"tombolo", "get", "policies", "-o", "yaml"}},
	{"policies-namespace.txt", []string{"tombolo", "get", "policies", "-n", "default"}},
	{"rules.txt", []string{"tombolo", "get", "rules"}},
	{"rules-one.json", []string{"tombolo", "get", "rules", "default/web", "-o", "json"}},
	{"rules-one.json", []string{"tombolo", "get", "rules", "web", "-n", "default", "-o", "json"}},
	{"identities.txt", []string{"tombolo", "get", "identities"}},
	{"networkpolicy.txt", []string{"antctl", "get", "networkpolicy"}},
	{"networkpolicy-sorted.txt", []string{"antctl", "get", "netpol", "--sort-by=effectivePriority"}},
	{"networkpolicy-pod.txt", []string{"tombolo", "get", "networkpolicies", "--pod", "web-1", "-n", "default"}},
	{"networkpolicy-source.txt", []string{"antctl", "get", "networkpolicy", "-S", "web", "-n", "default", "-T", "k8snp"}},
	{"networkpolicy.json", []string{"antctl", "get", "networkpolicy", "isolate", "-o", "json"}},
	{"why.txt", []string{"tombolo", "policy", "why", "--from", "shop/web", "--to", "shop/db", "--trace"}},
	{"why.txt", []string{"tombolo", "policy", "why", "-n", "shop", "--from", "web", "--to", "db", "--trace"}},
	{"whyboth.txt", []string{"tombolo", "policy", "why", "--from", "shop/both", "--to", "shop/db", "--trace"}},
	{"whyservice.txt", []string{"tombolo", "policy", "why", "--from", "203.0.113.7", "--to", "198.51.100.10", "--port",
		"443", "--trace"}},
	{"whynetworks.txt", []string{"tombolo", "policy", "why", "--from", "shop/web", "--to", "a/db", "--port", "80",
		"--trace"}},
	{"why.yaml", []string{"tombolo", "policy", "why", "--from", "shop/web", "--to", "shop/db", "--port", "5432",
		"--protocol", "tcp", "--cluster", "west", "-o", "yaml"}},
	{"identities-here.txt", []string{"tombolo", "get", "identities", "--here"}},
}

func TestNodeCommands(t *testing.T) {
	socket := agent(t, answers)
	for _, row := range commands {
		t.Run(row.golden, func(t *testing.T) {
			out, stderr, code := tombolo(t, append(row.words, "--socket", socket)...)
			if code != 0 || stderr != "" {
				t.Fatalf("code %d: %s", code, stderr)
			}
			clitest.Golden(t, row.golden, out)
		})
	}
	if out, _, code := tombolo(t, "tombolo", "trace", "in_port=3,ip", "--raw", "--socket", socket); code != 0 ||
		out != traced {
		t.Errorf("--raw changed the text, code %d:\n%s", code, out)
	}
	if out, stderr, code := tombolo(t, "tombolo", "get", "metrics", "--socket", socket); code != 0 || stderr != "" ||
		out != metrics {
		t.Errorf("metrics: code %d, %q, %q", code, stderr, out)
	}
	if out, stderr, code := tombolo(t, "tombolo", "check", "--socket", socket); code != 0 || out+stderr != "" {
		t.Errorf("check of a ready Node: code %d, %q", code, out+stderr)
	}
}

// traced is ofproto/trace's text of a packet that is recirculated and leaves by a tunnel.
const traced = `Flow: ip,in_port=3,nw_proto=0

bridge("br-int")
----------------
 0. ip,in_port=3, priority 200, cookie 0x1000100000000
    goto_table:1
 1. ip, priority 100, cookie 0x1000000000000
    ct(table=2,zone=65520,nat)
    nat
     -> A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table 2.

===============================================================================
recirc(0x1) - resume conntrack with default ct_state=trk|new (use --ct-next to customize)
===============================================================================

bridge("br-int")
----------------
    thaw
        Resuming from table 2
 2. ip, priority 100
    resubmit(,12)
12. priority 0
    output:32768
     -> output to native tunnel

bridge("br-eth1")
-----------------
 0. priority 0
    NORMAL

Datapath actions: 4
`

func TestNodeErrors(t *testing.T) {
	socket := agent(t, map[string]any{
		"/v1/status": api.Status{Node: "node-1", Waiting: []string{"no connection to the OVSDB"},
			Problems: []api.Problem{}},
		"/v1/groups":                              api.Error{Error: "read the switch's groups: no connection"},
		"/v1/peers":                               "junk",
		"/v1/policies":                            policies,
		"/v1/why?from=a%2Fb&to=a%2Fc&trace=true":  lies,
		"/v1/why?family=ipv6&from=a%2Fb&to=a%2Fc": lies, // of an agent that does not know families
	})
	for _, row := range []struct {
		name  string
		words []string
		want  string
	}{
		{"agent not there", []string{"tombolo", "get", "flows", "--socket", "/run/none.sock"},
			"tombolo: the agent's debug socket /run/none.sock does not answer: is tombolo-agent running on this Node?"},
		{"agent's own error", []string{"tombolo", "get", "groups", "--socket", socket},
			"tombolo: read the switch's groups: no connection"},
		{"junk", []string{"tombolo", "get", "peers", "--socket", socket}, "are this command and the agent of one version?"},
		{"path unknown", []string{"tombolo", "get", "ports", "--socket", socket}, "answered 404 Not Found for /v1/ports"},
		{"not ready", []string{"tombolo", "check", "--socket", socket},
			"the network of Node node-1 is not ready: no connection to the OVSDB"},
		{"unknown thing", []string{"tombolo", "get", "pots"},
			`tombolo get does not know "pots"; it knows flows, groups, identities, latency, metrics, networkpolicy, peers, ` +
				"policies, ports, rules, status"},
		{"unknown format", []string{"tombolo", "get", "flows", "-o", "xml"},
			"want table, wide, json, yaml, name or jsonpath=TEMPLATE"},
		{"why without an end", []string{"tombolo", "policy", "why", "--from", "a"},
			"tombolo: policy why needs --from and --to, the client and the server, such as --from shop/web-7d9f --to shop/db " +
				"--port 5432: --to is missing"},
		{"why of a family, by an earlier agent", []string{"tombolo", "policy", "why", "--from", "a/b", "--to", "a/c",
			"--family", "ipv6", "--socket", socket}, "tombolo: --family: the agent of this Node is of an earlier version"},
		{"trace of both kinds", []string{"tombolo", "trace", "in_port=3,ip", "--to", "a/b"},
			"tombolo: trace takes either a FLOW or --from and --to"},
		{"trace without a server", []string{"tombolo", "trace", "--from", "a/b", "--family", "ipv6"},
			"tombolo: trace needs --from and --to, the client and the server"},
		{"trace of ends, by an earlier agent", []string{"tombolo", "trace", "--from", "a/b", "--to", "a/c", "--socket",
			socket}, "answered 404 Not Found for /v1/traces: are this command and the agent of one version?"},
		{"explain prints no headings", []string{"tombolo", "explain", "a/b", "--no-headers"}, "unknown flag: --no-headers"},
		{"explain without an object", []string{"tombolo", "explain"},
			"tombolo: explain needs an OBJECT, such as default/web; it got 0 words"},
		{"metrics that are off", []string{"tombolo", "get", "metrics", "--socket", socket},
			"the agent has no metrics: remove enablePrometheusMetrics: false from antrea-agent.conf"},
		{"policy of nothing", []string{"tombolo", "policy", "how"}, `tombolo policy does not know "how"; it knows why`},
		{"order unknown", []string{"antctl", "get", "networkpolicy", "--sort-by", "name"},
			"--sort-by=name: want effectivePriority"},
		{"type unknown", []string{"antctl", "get", "networkpolicy", "-T", "ACP"},
			"--type=ACP is not one of K8sNP, ACNP, ANNP, CNP"},
		{"Pod without Namespace", []string{"antctl", "get", "networkpolicy", "-p", "web"},
			"--pod=web: name its Namespace with --namespace"},
		{"name and filter", []string{"antctl", "get", "networkpolicy", "x", "-S", "web"}, "leave out the one or the other"},
		{"no such policy", []string{"antctl", "get", "networkpolicy", "x", "--socket", socket},
			`no policy "x" applies to Pods of this Node`},
	} {
		t.Run(row.name, func(t *testing.T) {
			out, stderr, code := tombolo(t, row.words...)
			if code != 1 || !strings.Contains(stderr, row.want) || out != "" {
				t.Errorf("code %d, stdout %q\nstderr: %swant:   %s", code, out, stderr, row.want)
			}
		})
	}
	out, stderr, code := tombolo(t, "tombolo", "policy", "why", "--from", "a/b", "--to", "a/c", "--trace",
		"--socket", socket)
	if code != 1 || !strings.Contains(out, "DISAGREES: it has the packet allowed") ||
		!strings.Contains(stderr, "the switch disagrees about egress") {
		t.Errorf("an answer that the switch disagrees with: code %d, %q, stdout:\n%s", code, stderr, out)
	}
	if out, stderr, code := tombolo(t, "tombolo", "check", "--alive", "--socket", socket); code != 0 || out+stderr != "" {
		t.Errorf("an agent that answers and is not ready: code %d, %q", code, out+stderr)
	}
}
