package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// testDebugCommands has the documented debug commands of antctl, in the Pod of an agent and from outside, about Pods
// that testInCluster has made.
func testDebugCommands(t *testing.T) {
	agent := kubectl(t, "west", "get", "pods", "-n", "kube-system", "-l", "app=tombolo,component=tombolo-agent",
		"--field-selector", "spec.nodeName=node-1", "-o", "jsonpath={.items[0].metadata.name}")
	inPod := func(args ...string) string {
		t.Helper()
		return kubectl(t, "west", append([]string{"exec", "-n", "kube-system", agent, "-c", "tombolo-agent", "--", "antctl"},
			args...)...)
	}
	ip := kubectl(t, "west", "get", "pod", "client-1", "-n", "default", "-o", "jsonpath={.status.podIP}")
	for command, want := range map[string]string{
		"get podinterface client-1 -n default": ip,
		"get ovsflows -p client-1 -n default":  ip,
		"get ovsflows -S nginx -n default":     "table=Service",
		"get ovsflows --table-names-only":      "IngressRule",
		"get agentinfo":                        "Healthy",
		"get featuregates":                     "AntreaPolicy ",
		"get networkpolicy":                    "APPLIED-TO",
		"version":                              "agentVersion: ",
		"log-level":                            "0",
		"query endpoint -p client-1":           "Applied Policies on Endpoint:",
		"trace-packet -S default/client-1 -D default/nginx -f tcp,tcp_dst=80":   "Classify -> UnSNAT",
		"query networkpolicyevaluation -S default/client-1 -D default/client-2": "egress",
	} {
		if out := inPod(strings.Fields(command)...); !strings.Contains(out, want) {
			t.Errorf("antctl %s has no %q:\n%s", command, want, out)
		}
	}
	// The agents' objects are there within a minute of their start, and agree with the commands from outside.
	for command, want := range map[string][]string{
		"get agentinfo":              {"node-1", "node-2", " Healthy "},
		"get controllerinfo":         {"kube-system/tombolo-policy-controller-", " Healthy "},
		"get featuregates":           {"AntreaPolicy"},
		"version":                    {"controllerVersion: "},
		"query endpoint -p client-2": {"Applied Policies on Endpoint:"},
	} {
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Lab.Tool(ctx, "west", "antctl", strings.Fields(command)...)
			if err != nil {
				return err
			}
			for _, text := range want {
				if !strings.Contains(out, text) {
					return fmt.Errorf("antctl %s has no %q:\n%s", command, text, out)
				}
			}
			return nil
		})
	}
}
