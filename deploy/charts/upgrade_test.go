package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// kubectl runs kubectl against an API server, with text as its input.
func kubectl(t *testing.T, config *rest.Config, input string, args ...string) (string, error) {
	t.Helper()
	program, err := apiserver.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, config.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program)
	c.Args = append([]string{"kubectl", "--server=" + config.Host, "--token=" + config.BearerToken, "--certificate-authority=" + ca}, args...)
	c.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG=/dev/null")
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// TestUpgradeCommands runs the commands of docs/install.md that a real API server can refuse, or understand otherwise.
func TestUpgradeCommands(t *testing.T) {
	config := apiserver.Start(t)
	run := func(input string, args ...string) string {
		t.Helper()
		out, err := kubectl(t, config, input, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	// Helm creates definitions under the name helm, so that another writer's change is a conflict.
	const old, changed = "description: Tier of the policy", "description: Tier of this policy"
	definitions, _ := rendered(t, Agent, "kube-system", nil)
	if strings.Count(definitions, old) == 0 {
		t.Fatalf("%q is in no definition", old)
	}
	run(definitions, "create", "--field-manager=helm", "-f", "-")
	next := strings.ReplaceAll(definitions, old, changed)
	if _, err := kubectl(t, config, next, "apply", "--server-side", "-f", "-"); err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Errorf("without --force-conflicts: %v", err)
	}
	run(next, "apply", "--server-side", "--force-conflicts", "-f", "-")
	if out := run("", "get", "crd", "networkpolicies.crd.antrea.io", "-o", "yaml"); !strings.Contains(out, changed) {
		t.Errorf("%q is not in\n%s", changed, out)
	}

	// Parts of the agent's manifest by their labels, each when it is its turn.
	run(manifests(t, "agent/tombolo-crds.yml", "agent/tombolo.yml"), "apply", "-f", "-")
	images := func() string {
		return run("", "get", "daemonsets", "-n", "kube-system", "-o", "jsonpath={range .items[*]}{.metadata.name} {.spec.template.spec.containers[0].image}{\"\\n\"}{end}")
	}
	manifest := deploy.WithImages(manifests(t, "agent/tombolo.yml"), "", "next")
	run(manifest, "apply", "-l", "component=tombolo-ovs", "-f", "-")
	if have, want := images(), "tombolo-agent tombolo/tombolo-agent:dev\ntombolo-ovs tombolo/tombolo-ovs:next\n"; have != want {
		t.Errorf("the switch alone:\n%swant\n%s", have, want)
	}
	run(manifest, "apply", "-f", "-")
	if have, want := images(), "tombolo-agent tombolo/tombolo-agent:next\ntombolo-ovs tombolo/tombolo-ovs:next\n"; have != want {
		t.Errorf("all:\n%swant\n%s", have, want)
	}
}
