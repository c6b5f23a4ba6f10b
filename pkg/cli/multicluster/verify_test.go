package multicluster

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
)

func TestVerifyErrors(t *testing.T) {
	const files = "which are contexts of the kubeconfig or kubeconfig files"
	_, config := unreachable(t)
	for _, row := range []struct{ words, want string }{
		{"verify east", "tombolo: mc verify needs A and B, " + files + "; it got 1 words"},
		{"verify east west east", "tombolo: east is named twice, and both names are of one cluster: name each once"},
		{"-s https://10.0.0.1 verify east west", "tombolo: --server is one cluster's"},
		{"--context north verify east west",
			"--context is one cluster's: name the clusters behind the command, as in `tombolo mc verify north east`"},
		{"verify east west --only ways,ping", `"ping" is not the name of a check; the names are api, member, clusterset, `},
		{"verify east west --only failover", "it needs --disruptive as well"},
		{"verify east north -k " + config, "north is neither a context of the kubeconfig nor a kubeconfig file"},
	} {
		t.Run(row.words, func(t *testing.T) {
			out, stderr, code := tombolo(t, append([]string{"tombolo", "mc"}, strings.Fields(row.words)...)...)
			if code != 1 || !strings.Contains(stderr, row.want) || out != "" {
				t.Errorf("code %d, stdout %q\nstderr: %swant:   %s", code, out, stderr, row.want)
			}
		})
	}
}

// unreachable returns names of contexts, and the kubeconfig that has them, of API servers that do not answer.
func unreachable(t *testing.T) (names []string, kubeconfig string) {
	t.Helper()
	names = []string{"east", "west", "south"}
	config := api.Config{Clusters: map[string]*api.Cluster{"c": {Server: "http://127.0.0.1:1"}},
		Contexts: map[string]*api.Context{}}
	for _, name := range names {
		config.Contexts[name] = &api.Context{Cluster: "c"}
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return names, kubeconfig
}

// TestVerifyMany has three clusters that do not answer: each two of them are checked, and reported in each form.
func TestVerifyMany(t *testing.T) {
	names, kubeconfig := unreachable(t)
	junit := filepath.Join(t.TempDir(), "result.xml")
	run := func(words ...string) (string, string, int) {
		t.Helper()
		return tombolo(t, slices.Concat([]string{"tombolo", "mc", "verify", "-k", kubeconfig}, names, words)...)
	}
	out, stderr, code := run("--junit", junit)
	const end = "A     B      FAILED  SKIPPED  PASSED\n" +
		"east  west   2       0        0\neast  south  2       0        0\nwest  south  2       0        0\n" +
		"6 of 6 checks failed\n"
	if code != 1 || stderr != "" || !strings.HasSuffix(out, end) || strings.Count(out, "west, south: fail ") != 2 {
		t.Errorf("code %d, %s%s", code, out, stderr)
	}
	out, stderr, code = run("-o", "json", "--only", "ways")
	var have verification
	if err := json.Unmarshal([]byte(out), &have); err != nil || code != 1 || stderr != "" {
		t.Fatalf("%v: code %d, %s%s", err, code, out, stderr)
	}
	if have.Passed || len(have.Checks) != 6 || have.Checks[5].A != "west" || have.Checks[5].B != "south" ||
		have.Checks[5].Check != "API server south" || !slices.Equal(have.Clusters, names) {
		t.Errorf("have %+v", have)
	}
	if !strings.HasPrefix(out, "{\n  \"apiVersion\": \"cli.tombolo.net/v1\",\n  \"kind\": \"Verification\",\n") {
		t.Errorf("the answer has no kind: %s", out)
	}
	text, err := os.ReadFile(junit)
	var suites junitSuites
	if err := errors.Join(err, xml.Unmarshal(text, &suites)); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if s := suites.Suites[2]; len(suites.Suites) != 3 || s.Name != "west, south" || s.Failures != 2 || s.Tests != 2 ||
		s.Cases[0].Name != "API server west" || !strings.Contains(s.Cases[0].Failure.Text, "is it the right kubeconfig") {
		t.Errorf("have %+v", suites)
	}
	if _, stderr, _ := run("--junit", filepath.Join(junit, "x")); !strings.Contains(stderr, "--junit: open ") {
		t.Errorf("a file that cannot be written: %s", stderr)
	}
}

// TestVerifyInterrupted: a verification that was interrupted has not passed.
func TestVerifyInterrupted(t *testing.T) {
	_, kubeconfig := unreachable(t)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	root := cli.Root("tombolo", "")
	root.AddCommand(Command())
	var stdout, stderr bytes.Buffer
	code := cli.Run(ctx, root, []string{"mc", "verify", "-k", kubeconfig, "east", "west", "-o", "json"}, &stdout, &stderr)
	var have verification
	if err := json.Unmarshal(stdout.Bytes(), &have); err != nil || code != 1 || have.Passed ||
		!strings.Contains(stderr.String(), "interrupted: context canceled") || len(have.Checks) != 1 ||
		have.Checks[0].Status != verify.Skip {
		t.Errorf("%v: code %d, %s%s", err, code, stdout.String(), stderr.String())
	}
}

// TestJUnit has a check of each status.
func TestJUnit(t *testing.T) {
	text, err := xml.MarshalIndent(junitOf([]verify.Pair{{A: "east", B: "west", Results: []verify.Result{
		{Check: "member east", Status: verify.Pass, Detail: "it is <Ready>", Seconds: 0.25},
		{Check: "Pods", Status: verify.Skip, Detail: "off in west"},
		{Check: "MTU east to west", Status: verify.Fail, Detail: "1400 of 1450", Remedy: "set defaultMTU", Seconds: 1},
	}, Left: errors.New("Namespace x of east is left")}}), "", " ")
	const want = `<testsuites name="tombolo mc verify">
 <testsuite name="east, west" tests="4" failures="1" errors="1" skipped="1" time="1.250">
  <testcase name="member east" classname="tombolo.mc.verify.east-west" time="0.250">
   <system-out>it is &lt;Ready&gt;</system-out>
  </testcase>
  <testcase name="Pods" classname="tombolo.mc.verify.east-west" time="0.000">
   <skipped message="off in west"></skipped>
  </testcase>
  <testcase name="MTU east to west" classname="tombolo.mc.verify.east-west" time="1.000">
   <failure message="1400 of 1450">set defaultMTU</failure>
  </testcase>
  <testcase name="cleanup" classname="tombolo.mc.verify.east-west" time="0.000">
   <error message="Namespace x of east is left"></error>
  </testcase>
 </testsuite>
</testsuites>`
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Errorf("%v (-want +have):\n%s", err, diff)
	}
}

func TestAgentSettings(t *testing.T) {
	const (
		down = 300 * time.Millisecond // with the default of BFD
		on   = "featureGates: {Multicluster: true}\n"
	)
	for _, row := range []struct {
		name, text string
		want       verify.Agent
	}{
		{"nothing is set", "", verify.Agent{WayDownAfter: down}},
		{"the gate is off", "multicluster: {enableGateway: true, enableStretchedNetworkPolicy: true}",
			verify.Agent{WayDownAfter: down}},
		{"all is on", on + "multicluster: {enableGateway: true, enablePodToPodConnectivity: true, " +
			"enableStretchedNetworkPolicy: true, namespace: multi, bfd: {interval: 1s, multiplier: 5}}",
			verify.Agent{
				Gateways: true, GatewayNamespace: "multi", PodToPod: true, StretchedPolicies: true, WayDownAfter: 5 * time.Second,
			}},
		{"an old name", on + "multicluster: {enable: true}", verify.Agent{Gateways: true, WayDownAfter: down}},
	} {
		t.Run(row.name, func(t *testing.T) {
			have, err := agentSettings([]byte(row.text))
			if diff := cmp.Diff(row.want, have); err != nil || diff != "" {
				t.Errorf("%v (-want +have):\n%s", err, diff)
			}
		})
	}
	if have, err := agentSettings([]byte("multicluster: [1]")); err == nil {
		t.Errorf("a file that is wrong is read as %+v", have)
	}
}
