package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	c.Args = append([]string{"kubectl", "--server=" + config.Host, "--token=" + config.BearerToken,
		"--certificate-authority=" + ca}, args...)
	c.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG=/dev/null")
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// runs is kubectl, a failure of which ends the test.
func runs(t *testing.T, config *rest.Config) func(input string, args ...string) string {
	return func(input string, args ...string) string {
		t.Helper()
		out, err := kubectl(t, config, input, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// TestUpgradeCommands runs the commands of docs/upgrade.md that a real API server can refuse, or interpret differently.
func TestUpgradeCommands(t *testing.T) {
	config := apiserver.Start(t)
	run := runs(t, config)

	// Helm creates definitions under the name helm, so that another writer's change is a conflict.
	const old, changed = "description: Tier of the policy", "description: Tier of this policy"
	definitions, _ := rendered(t, Agent, "kube-system", nil)
	if strings.Count(definitions, old) == 0 {
		t.Fatalf("%q is in no definition", old)
	}
	run(definitions, "create", "--field-manager=helm", "-f", "-")
	next := strings.ReplaceAll(definitions, old, changed)
	if _, err := kubectl(t, config, next, "apply", "--server-side", "-f", "-"); err == nil ||
		!strings.Contains(err.Error(), "conflict") {
		t.Errorf("without --force-conflicts: %v", err)
	}
	run(next, "apply", "--server-side", "--force-conflicts", "-f", "-")
	if out := run("", "get", "crd", "networkpolicies.crd.antrea.io", "-o", "yaml"); !strings.Contains(out, changed) {
		t.Errorf("%q is not in\n%s", changed, out)
	}

	// Parts of the agent's manifest by their labels, each when it is its turn.
	run(manifests(t, "agent/tombolo-crds.yml", "agent/tombolo.yml"), "apply", "-f", "-")
	images := func() string {
		return run("", "get", "daemonsets", "-n", "kube-system", "-o",
			"jsonpath={range .items[*]}{.metadata.name} {.spec.template.spec.containers[0].image}{\"\\n\"}{end}")
	}
	manifest := deploy.WithImages(manifests(t, "agent/tombolo.yml"), "", "next")
	run(manifest, "apply", "-l", "component=tombolo-ovs", "-f", "-")
	want := "tombolo-agent tombolo/tombolo-agent:dev\ntombolo-ovs tombolo/tombolo-ovs:next\n"
	if have := images(); have != want {
		t.Errorf("the switch alone:\n%swant\n%s", have, want)
	}
	controller := func() string {
		return run("", "get", "deployment", "-n", "kube-system", "tombolo-controller", "-o",
			"jsonpath={.spec.template.spec.containers[0].image}")
	}
	run(manifest, "apply", "-l", "component!=tombolo-controller", "-f", "-")
	if have := controller(); !strings.HasSuffix(have, ":dev") {
		t.Errorf("the controller has %s before the agents are replaced", have)
	}
	want = "tombolo-agent tombolo/tombolo-agent:next\ntombolo-ovs tombolo/tombolo-ovs:next\n"
	if have := images(); have != want {
		t.Errorf("agents:\n%swant\n%s", have, want)
	}
	run(manifest, "apply", "-f", "-")
	if have := controller(); !strings.HasSuffix(have, ":next") {
		t.Errorf("the controller has %s at the end", have)
	}
}

// TestUninstallCommands runs the commands of docs/uninstall.md that remove one role of a cluster that is leader and
// member, and then the agents. All objects of the other role stay.
func TestUninstallCommands(t *testing.T) {
	config := apiserver.Start(t)
	run := runs(t, config)
	document, err := os.ReadFile("../../docs/uninstall.md")
	if err != nil {
		t.Fatal(err)
	}
	// documented runs the commands that begin with some words, as the document has them.
	documented := func(begin string) {
		t.Helper()
		found := false
		for line := range strings.Lines(strings.ReplaceAll(string(document), "\\\n", "")) {
			if !strings.HasPrefix(line, begin) {
				continue
			}
			found = true
			command, _, _ := strings.Cut(strings.ReplaceAll(line, "deploy/", "../"), "#")
			run("", strings.Fields(command)[1:]...)
		}
		if !found {
			t.Errorf("docs/uninstall.md has no command %s", begin)
		}
	}
	run("", "create", "namespace", "antrea-multicluster")
	install := func() {
		t.Helper()
		run(manifests(t, "multicluster/antrea-multicluster-member.yml", "multicluster/antrea-multicluster-leader.yml"),
			"apply", "-f", "-")
	}
	left := func() string {
		return run("", "get",
			"crd,clusterrole,clusterrolebinding,validatingwebhookconfiguration,mutatingwebhookconfiguration,"+
				"validatingadmissionpolicy,validatingadmissionpolicybinding,flowschema", "-o", "name") +
			run("", "get", "deployment,service,secret,configmap,role,rolebinding,serviceaccount,poddisruptionbudget", "-A", "-o",
				"jsonpath={range .items[*]}{.metadata.namespace} {.kind} {.metadata.name}{\"\\n\"}{end}")
	}
	bare := left()
	install()
	documented("kubectl delete validatingwebhookconfiguration antrea-mc-")
	documented("kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy ")
	documented("kubectl delete -n kube-system --ignore-not-found deployment/antrea-mc-controller")
	documented("kubectl delete clusterrolebinding/antrea-mc-controller-rolebinding")
	withoutMember := left()
	for _, gone := range []string{"kube-system Deployment antrea-mc-", "kube-system ServiceAccount antrea-mc-",
		"kube-system Role antrea-mc-", "role.rbac.authorization.k8s.io/antrea-mc-",
		"binding.rbac.authorization.k8s.io/antrea-mc-", "configuration.admissionregistration.k8s.io/antrea-mc-",
		"admissionregistration.k8s.io/tombolo-mc-"} {
		if strings.Contains(withoutMember, gone) {
			t.Errorf("the member has gone, and %s has not:\n%s", gone, withoutMember)
		}
	}
	for _, stays := range []string{"/clustersets.", "antrea-multicluster Deployment antrea-mc-controller"} {
		if !strings.Contains(withoutMember, stays) {
			t.Errorf("the leader lacks %s:\n%s", stays, withoutMember)
		}
	}
	install()
	run("", "delete", "--ignore-not-found", "-f", "../multicluster/antrea-multicluster-leader-namespaced.yml")
	withoutLeader := left()
	if strings.Contains(withoutLeader, "antrea-multicluster Deployment") ||
		strings.Contains(withoutLeader, "/antrea-multicluster-") {
		t.Errorf("the leader has not gone:\n%s", withoutLeader)
	}
	for _, stays := range []string{"/clustersets.", "kube-system Deployment antrea-mc-controller",
		"/antrea-mc-validating-webhook-configuration"} {
		if !strings.Contains(withoutLeader, stays) {
			t.Errorf("the member lacks %s:\n%s", stays, withoutLeader)
		}
	}
	documented("kubectl delete -f deploy/multicluster/antrea-multicluster-member.yml")
	documented("kubectl delete -f deploy/multicluster/antrea-multicluster-leader.yml")

	run(manifests(t, "agent/tombolo-crds.yml"), "apply", "-f", "-")
	run(manifests(t, "agent/tombolo.yml"), "apply", "-f", "-")
	documented("kubectl delete validatingadmissionpolicybinding tombolo-tiers")
	// the document waits for some seconds
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(500 * time.Millisecond) {
		if _, err := kubectl(t, config, "", "delete", "tier", "baseline", "--dry-run=server"); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	documented("kubectl delete -f deploy/agent/")
	if now := left(); now != bare {
		t.Errorf("what was there before:\n%s\nis there now:\n%s", bare, now)
	}
}
