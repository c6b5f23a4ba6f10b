package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/cli/clitest"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// documentedAnswers are the answers of an agent to the commands of antctl.
var documentedAnswers = map[string]any{
	"/v1/status": status, "/v1/groups": api.GroupList{Groups: []api.Group{{ID: 7,
		Text: "group_id=7,type=select,bucket=bucket_id:1,actions=resubmit(,9)"}}},
	"/v1/flows": flows, "/v1/policies": policies,
	"/v1/flows?pod=shop%2Fweb": flows, "/v1/flows?policy=shop%2Fallow&service=shop%2Fdb&table=Classify": flows,
	"/v1/ports": api.PortList{Ports: []api.Port{
		{Name: "antrea-gw0", OFPort: 2, Type: "gateway", MAC: "0a:00:00:00:00:01"},
		{Name: "web-5d8f-a9993e", OFPort: 3, Type: "container", Pod: "shop/web", IPs: []string{"10.10.1.2"},
			MAC: "0a:00:00:00:00:02", ContainerID: "0123456789abcdef", UUID: "6a4c1f0e-0000-4000-8000-000000000001"},
		{Name: "new-77aa-b00001", OFPort: 4, Type: "container", Pod: "shop/new", ContainerID: "01",
			UUID: "6a4c1f0e-0000-4000-8000-000000000002"},
	}},
	"/v1/agentinfo": crdv1beta1.AntreaAgentInfo{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, NodeSubnets: []string{"10.10.1.0/24", "fd10:1::/64"},
		PodRef:  corev1.ObjectReference{Namespace: "kube-system", Name: "tombolo-agent-x"},
		NodeRef: corev1.ObjectReference{Name: "node-1"}, LocalPodNum: 2,
		NetworkPolicyControllerInfo: crdv1beta1.PolicyCounts{NetworkPolicyNum: 3, AddressGroupNum: 4},
		AgentConditions:             []crdv1beta1.InfoCondition{{Type: "AgentHealthy", Status: corev1.ConditionTrue}},
	},
	"/v1/featuregates": api.GateList{Gates: []api.Gate{{Name: "AntreaPolicy", On: true, Stage: "BETA"},
		{Name: "BGPPolicy", Stage: "ALPHA", Absent: true}, {Name: "Multicluster", Stage: "ALPHA"}}},
	"/v1/names": api.NameList{Names: []api.LearnedName{
		{Name: "api.example.com", Address: "198.51.100.7", Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		{Name: "example.org", Address: "2001:db8::1", Expires: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)}}},
	"/v1/externalips": api.ExternalIPList{ExternalIPs: []api.ExternalIP{
		{Namespace: "shop", Name: "web", Pool: "outside", Address: "192.0.2.10", Candidates: []string{"node-2", "node-1"},
			Holder: "node-1"},
		{Namespace: "shop", Name: "db", Pool: "outside", Address: "192.0.2.11"}}},
	"/v1/loglevel": api.LogLevel{}, "/v1/loglevel?level=4": api.LogLevel{Level: 1},
	"/v1/trace?flow=in_port%3D3%2Cip": api.Trace{Output: traced, Tables: map[string]string{"0": "Classify"}},
	"/v1/traces?family=ipv6&from=shop%2Fweb&port=80&protocol=tcp&to=shop%2Fdb": api.TraceList{Traces: []api.Trace{
		{Output: traced, Tables: map[string]string{"0": "Classify"}}}},
	"/v1/why?from=pod%2Fshop%2Fweb&port=80&protocol=TCP&to=pod%2Fshop%2Fdb": api.Why{Connections: []api.WhyConnection{{
		From: "10.10.1.2", To: api.WhyEnd{Address: "10.10.2.3"}, Stages: []api.WhyStage{
			{Direction: "egress", Allowed: true, Reason: "no policy applies"},
			{Direction: "ingress", Rule: "NetworkPolicy shop/db ingress[0]"}}}}},
}

func TestDocumentedCommands(t *testing.T) {
	socket := agent(t, documentedAnswers)
	for _, row := range []struct{ golden, words string }{
		{"antctl-podinterface.txt", "get podinterface"},
		{"antctl-podinterface-one.txt", "get pi web -n shop"},
		{"antctl-ovsflows.txt", "get ovsflows"},
		{"antctl-ovsflows.txt", "get of -p web -n shop"},
		{"antctl-ovsflows.txt", "get of -S db -N allow -n shop -T Classify"},
		{"antctl-ovsflows-tables.txt", "get ovsflows --table-names-only"},
		{"antctl-ovsflows-groups.txt", "get ovsflows -G all"},
		{"antctl-agentinfo.txt", "get agentinfo"},
		{"antctl-featuregates.txt", "get featuregates"},
		{"antctl-fqdncache.txt", "get fqdncache"},
		{"antctl-fqdncache-domain.txt", "get fqdncache -d *.example.com"},
		{"antctl-serviceexternalip.txt", "get serviceexternalip"},
		{"antctl-memberlist.txt", "get ml"},
		{"antctl-trace-packet.txt", "trace-packet -p 3 -f ip"},
		{"antctl-trace-packet.txt", "trace-packet -S shop/web -D shop/db -f tcp,tcp_dst=80 -F IPv6"},
		{"antctl-query-endpoint.txt", "query endpoint -p web-1"},
		{"antctl-query-endpoint-none.txt", "query endpoint -p other -n shop"},
		{"antctl-query-evaluation.txt", "query networkpolicyevaluation -S shop/web -D shop/db"},
		{"antctl-log-level.txt", "log-level 4"},
	} {
		t.Run(row.words, func(t *testing.T) {
			out, stderr, code := tombolo(t, append(append([]string{"antctl"}, strings.Fields(row.words)...), "--socket",
				socket)...)
			if code != 0 || stderr != "" {
				t.Fatalf("code %d: %s", code, stderr)
			}
			clitest.Golden(t, row.golden, out)
		})
	}
	out, stderr, code := tombolo(t, "antctl", "version", "--socket", socket)
	if code != 0 || !strings.Contains(out, "agentVersion: v0.1.0\nantctlVersion: ") {
		t.Errorf("version: code %d, %q, %q", code, out, stderr)
	}
}

// TestDocumentedErrors has commands that cannot be answered. Each error names the remedy.
func TestDocumentedErrors(t *testing.T) {
	socket := agent(t, documentedAnswers)
	nowhere := filepath.Join(t.TempDir(), "none")
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	for _, row := range []struct{ words, want string }{
		{"get podinterface none", "`antctl get podinterface` lists the Pods"},
		{"get ovsflows -p web", "name its Namespace with --namespace"},
		{"get ovsflows --type ACP", "--type=ACP is not one of K8sNP, ACNP, ANNP, CNP"},
		{"get ovsflows --type ANNP", "name the policy with --networkpolicy"},
		{"get ovsflows -G 4711", "the switch has no group 4711"},
		{"get ovsflows -G x", "want numbers of groups"},
		{"get agentinfo node-9", "no agent of a Node node-9 has written its state"},
		{"get agentinfo --socket " + nowhere, "run this in the tombolo-agent Pod"},
		{"get controllerinfo", "read the kubeconfig"},
		{"get addressgroup -o json x", "use `tombolo get rules`"},
		{"get bgppolicy", "this version has no BGP"},
		{"get flowrecords --srcip 10.10.1.2", "use `tombolo observe`"},
		{"proxy --controller", "reach the agents through the API server"},
		{"check installation", "use `tombolo diagnose`"},
		{"trace-packet -S a/b", "takes both -S and -D"},
		{"trace-packet", "trace-packet needs -S and -D, or -f with a flow"},
		{"trace-packet -S a/b -D c/d -f vlan_tci=3", "leave out vlan_tci=3"},
		{"trace-packet -S a/b -D c/d -F IPX", "want IPv4 or IPv6"},
		{"traceflow -S a/b", "takes both -S and -D"},
		{"traceflow -L", "with --live-traffic one of them"},
		{"traceflow -S a/b -D c/d -f tcp,vlan_tci=3", "leave out vlan_tci=3"},
		{"traceflow -S a/b -D c/d", "read the kubeconfig"},
		{"query endpoint", "--pod is missing"},
		{"query networkpolicyevaluation -S web -D shop/db", "each namespace/name of a Pod"},
		{"version -o table", "want yaml or json"},
	} {
		words := append([]string{"antctl"}, strings.Fields(row.words)...)
		if !strings.Contains(row.words, "--socket") {
			words = append(words, "--socket", socket)
		}
		_, stderr, code := tombolo(t, words...)
		if code == 0 || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: code %d, %q, want %q", row.words, code, stderr, row.want)
		}
	}
}
