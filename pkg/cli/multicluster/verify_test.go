package multicluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
)

func TestVerifyErrors(t *testing.T) {
	const files = "which are contexts of the kubeconfig or kubeconfig files"
	for _, row := range []struct{ words, want string }{
		{"verify east", "tombolo: mc verify needs A and B, " + files + "; it got 1 words"},
		{"verify east east", "tombolo: both names are of one cluster: name two"},
		{"-s https://10.0.0.1 verify east west", "tombolo: --server is one cluster's"},
	} {
		t.Run(row.words, func(t *testing.T) {
			out, stderr, code := tombolo(t, append([]string{"tombolo", "mc"}, strings.Fields(row.words)...)...)
			if code != 1 || !strings.Contains(stderr, row.want) || out != "" {
				t.Errorf("code %d, stdout %q\nstderr: %swant:   %s", code, out, stderr, row.want)
			}
		})
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
