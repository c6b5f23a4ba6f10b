package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// reaches waits until a client's requests are answered, or until no request is.
func reaches(t *testing.T, cluster, client, url string, want bool) {
	t.Helper()
	eventually(t, stateLimit, func(ctx context.Context) error {
		a, err := get(ctx, cluster, client, url, 4, "--timeout", "500ms")
		switch {
		case want && (err != nil || a.ok != 4):
			return fmt.Errorf("%s/%s: %d of 4 answered: %w", cluster, client, a.ok, err)
		case !want && a.failed != 4: // a client that has not run shows nothing
			return fmt.Errorf("%s/%s: %d of 4 answered, %d failed, want none answered: %w", cluster, client, a.ok, a.failed,
				err)
		}
		return nil
	})
}

// reachesBoth waits until all requests of a client are answered, by servers on both Nodes of west. A policy or a label
// arrives at each Node at its own time.
func reachesBoth(t *testing.T, cluster, client, url string) {
	t.Helper()
	eventually(t, stateLimit, func(ctx context.Context) error {
		a, err := get(ctx, cluster, client, url, 40)
		if err != nil || a.ok != 40 {
			return fmt.Errorf("%s/%s: %d of 40 answered: %w", cluster, client, a.ok, err)
		}
		for _, node := range []string{"node-1", "node-2"} {
			if a.share("test-cluster-west/"+node) == 0 {
				return fmt.Errorf("%s/%s: 40 requests, none answered on %s: %v", cluster, client, node, a.by)
			}
		}
		return nil
	})
}

// shows waits until kubectl's answer begins with these words.
func shows(t *testing.T, want string, args ...string) {
	t.Helper()
	eventually(t, stateLimit, func(context.Context) error {
		if have := strings.Join(strings.Fields(kubectl(t, "west", args...)), " "); !strings.HasPrefix(have, want) {
			return fmt.Errorf("kubectl %s: %q, want %q", strings.Join(args, " "), have, want)
		}
		return nil
	})
}

// testPolicies applies NetworkPolicies of Kubernetes to a Deployment with a Pod on each Node, and to a client.
func testPolicies(t *testing.T) {
	ctx := testContext(t)
	url := "http://" + kubectl(t, "west", "get", "service", "nginx", "-n", "default", "-o",
		"jsonpath={.spec.clusterIP}") + "/"
	reaches(t, "west", "client-1", url, true)
	reaches(t, "west", "client-2", url, true)
	restarts := func() string {
		return kubectl(t, "west", "get", "pods", "-n", "default", "-l", "app=nginx", "-o",
			"jsonpath={.items[*].status.conditions[?(@.type=='Ready')].lastTransitionTime}")
	}
	before := restarts()

	t.Run("nobody but friends", func(t *testing.T) {
		must(t, world.Apply(ctx, "west", `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends, namespace: default}
spec:
  podSelector: {matchLabels: {app: nginx}}
  ingress:
    - from: [{podSelector: {matchLabels: {role: friend}}}]
      ports: [{port: 8080}]
`))
		reaches(t, "west", "client-1", url, false)
		reaches(t, "west", "client-2", url, false)
	})
	t.Run("a label makes a friend", func(t *testing.T) {
		kubectl(t, "west", "label", "pod", "client-1", "-n", "default", "role=friend")
		reachesBoth(t, "west", "client-1", url)
		reaches(t, "west", "client-2", url, false)
	})
	t.Run("and takes it away", func(t *testing.T) {
		kubectl(t, "west", "label", "pod", "client-1", "-n", "default", "role-")
		kubectl(t, "west", "label", "pod", "client-2", "-n", "default", "role=friend")
		reaches(t, "west", "client-2", url, true)
		reaches(t, "west", "client-1", url, false)
	})
	t.Run("egress", func(t *testing.T) {
		must(t, world.Apply(ctx, "west", `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: silent, namespace: default}
spec:
  podSelector: {matchLabels: {role: friend}}
  policyTypes: [Egress]
`))
		reaches(t, "west", "client-2", url, false)
		kubectl(t, "west", "delete", "networkpolicy", "silent", "-n", "default")
		reaches(t, "west", "client-2", url, true)
	})
	t.Run("Tiers before and after NetworkPolicies", func(t *testing.T) {
		must(t, world.Apply(ctx, "west", `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: nobody}
spec:
  tier: securityops
  priority: 5
  appliedTo:
    - podSelector: {matchLabels: {app: nginx}}
      namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
  ingress: [{name: nobody, action: Drop, from: [{podSelector: {matchLabels: {role: friend}}}]}]
`))
		reaches(t, "west", "client-2", url, false)
		must(t, world.Apply(ctx, "west", `
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: guests, namespace: default}
spec:
  tier: emergency
  priority: 5
  appliedTo: [{podSelector: {matchLabels: {app: nginx}}}]
  ingress: [{name: guests, action: Allow, from: [{podSelector: {matchLabels: {role: friend}}}]}]
`))
		reaches(t, "west", "client-2", url, true)
		reaches(t, "west", "client-1", url, false)
		kubectl(t, "west", "delete", "networkpolicies.crd.antrea.io", "guests", "-n", "default")
		reaches(t, "west", "client-2", url, false)
		kubectl(t, "west", "delete", "clusternetworkpolicies.crd.antrea.io", "nobody")
		reaches(t, "west", "client-2", url, true)
	})
	t.Run("what cannot be realized", func(t *testing.T) {
		err := world.Apply(ctx, "west", `
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: lost, namespace: default}
spec:
  tier: mine
  priority: 5
  appliedTo: [{podSelector: {}}]
`)
		if err == nil || !strings.Contains(err.Error(), "spec.tier: there is no Tier mine: create it before") {
			t.Errorf("a policy of an unknown Tier: %v", err)
		}
		must(t, world.Apply(ctx, "west", `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: nodeports}
spec:
  priority: 5
  appliedTo: [{service: {name: nginx, namespace: default}}]
  ingress: [{action: Drop}]
`))
		shows(t, "Failed False", "get", "acnp", "nodeports", "-o",
			"jsonpath={.status.phase} {.status.conditions[?(@.type=='Realizable')].status}")
		must(t, world.Apply(ctx, "west", `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: nodes}
spec:
  priority: 5
  appliedTo: [{nodeSelector: {}}]
  ingress: [{action: Drop}]
`))
		shows(t, "Warning NotServed", "get", "events", "-n", "default", "--field-selector",
			"involvedObject.kind=ClusterNetworkPolicy,involvedObject.name=nodes",
			"-o", "jsonpath={.items[*].type} {.items[*].reason}")
		kubectl(t, "west", "delete", "clusternetworkpolicies.crd.antrea.io", "nodeports", "nodes")
	})
	if after := restarts(); after != before {
		t.Errorf("the kubelet's probes of isolated Pods were not answered: Ready since %q, and now %q", before, after)
	}
	kubectl(t, "west", "delete", "networkpolicy", "friends", "-n", "default")
	kubectl(t, "west", "label", "pod", "client-2", "-n", "default", "role-")
	reaches(t, "west", "client-1", url, true)
	t.Run("rules that deny by label, from a client's first packet", testFirstPacket)
}

// testFirstPacket starts clients that send as soon as they run, two on each Node to each of two servers. Rules deny
// them by label, so no request is answered, although the cluster gets their addresses only later.
func testFirstPacket(t *testing.T) {
	servers := strings.Fields(kubectl(t, "west", "get", "pods", "-n", "default", "-l", "app=nginx", "-o",
		"jsonpath={range .items[*]}{.metadata.name}={.status.podIP} {end}"))
	if len(servers) != 2 {
		t.Fatalf("servers %q, want two", servers)
	}
	policies := `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: quarantine}
spec:
  tier: securityops
  priority: 5
  appliedTo: [{podSelector: {matchLabels: {vault: acnp}}}]
  ingress: [{action: Drop, from: [{podSelector: {matchLabels: {zone: quarantine}}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: quarantine}
spec:
  tier: Admin
  priority: 5
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {vault: cnp}}}}
  ingress:
    - action: Deny
      from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {zone: quarantine}}}}]
`
	must(t, world.Apply(testContext(t), "west", policies))
	const requests = 20
	clients, urls := "", map[string]string{}
	for i, kind := range []string{"acnp", "cnp"} {
		name, ip, _ := strings.Cut(servers[i], "=")
		reaches(t, "west", "client-1", "http://"+ip+":8080/", true)
		kubectl(t, "west", "label", "pod", name, "-n", "default", "vault="+kind)
		url := "http://" + ip + ":8080/"
		kubectl(t, "west", "label", "pod", "client-2", "-n", "default", "--overwrite", "zone=quarantine")
		reaches(t, "west", "client-2", url, false) // the policy is in force
		reaches(t, "west", "client-1", url, true)
		for _, node := range []string{"node-1", "node-2"} {
			for n := range 2 {
				pod := fmt.Sprintf("first-%s-%s-%d", kind, node, n)
				urls[pod] = url
				clients += fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, labels: {zone: quarantine, first: packet}}
spec:
  nodeName: %s
  restartPolicy: Never
  containers:
    - name: echo
      image: "tombolo/echo:dev"
      imagePullPolicy: Never
      args: [get, "%s", --count, "%d", --interval, 25ms, --timeout, 250ms]
---`, pod, node, url, requests)
			}
		}
	}
	must(t, world.Apply(testContext(t), "west", strings.TrimSuffix(clients, "---")))
	for pod, url := range urls {
		var a answers
		eventually(t, stateLimit, func(ctx context.Context) error {
			log, err := world.Kubectl(ctx, "west", "logs", "-n", "default", pod)
			if err != nil {
				return fmt.Errorf("logs of %s: %w", pod, err)
			}
			if a = parseAnswers(log); a.ok+a.failed != requests {
				return fmt.Errorf("%s has sent %d of %d requests", pod, a.ok+a.failed, requests)
			}
			return nil
		})
		if a.ok > 0 {
			t.Errorf("%d of %d requests of %s to %s are answered", a.ok, requests, pod, url)
		}
	}
	kubectl(t, "west", "delete", "pods", "-n", "default", "-l", "first=packet", "--wait=false")
	kubectl(t, "west", "label", "pod", "client-2", "-n", "default", "zone-")
	kubectl(t, "west", "label", "pods", "-n", "default", "-l", "app=nginx", "vault-")
	kubectl(t, "west", "delete", "clusternetworkpolicies.crd.antrea.io", "quarantine")
	kubectl(t, "west", "delete", "clusternetworkpolicies.policy.networking.k8s.io", "quarantine")
}
