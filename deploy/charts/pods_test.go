package charts

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// found returns the object of a kind and name in a manifest, or nil.
func found(t *testing.T, manifest, kind, name string) map[string]any {
	t.Helper()
	for _, o := range objects(t, manifest) {
		if u := (unstructured.Unstructured{Object: o.(map[string]any)}); u.GetKind() == kind && u.GetName() == name {
			return u.Object
		}
	}
	return nil
}

// at returns what an object has at a path of keys; a number is an index of a list.
func at(t *testing.T, o any, keys ...any) any {
	t.Helper()
	for i, key := range keys {
		switch key := key.(type) {
		case string:
			m, ok := o.(map[string]any)
			if !ok {
				t.Fatalf("%v is no map at %v", o, keys[:i+1])
			}
			o = m[key]
		case int:
			l, ok := o.([]any)
			if !ok || len(l) <= key {
				t.Fatalf("%v has no element %v", o, keys[:i+1])
			}
			o = l[key]
		}
	}
	return o
}

// TestPods gives the Pods of each workload the settings of its values, and no other workload.
func TestPods(t *testing.T) {
	const settings = `{annotations: {a/b: "1"}, priorityClassName: other, nodeSelector: {zone: x},
		tolerations: [{key: k, operator: Exists}], affinity: {nodeAffinity: {}}, resources: {limits: {memory: 1Gi}}`
	for _, row := range []struct {
		chart, key, kind, name string
		container              int
		more                   string
	}{
		{Agent, "agent", "DaemonSet", "tombolo-agent", 0, ", extraArgs: [--verbose]"},
		{Agent, "ovs", "DaemonSet", "tombolo-ovs", 1, ""},
		{Agent, "wireguard", "DaemonSet", "tombolo-wireguard", 0, ""},
		{Agent, "controller", "Deployment", "tombolo-controller", 0, ", extraArgs: [--v=1]"},
		{Agent, "policyController", "Deployment", "tombolo-policy-controller", 0, ", extraArgs: [--v=1]"},
		{Agent, "relay", "Deployment", "tombolo-observe", 0, ", extraArgs: [--v=1]"},
		{Multicluster, "controller", "Deployment", "antrea-mc-controller", 0, ", extraArgs: [--v=1]"},
	} {
		others := ""
		if row.chart == Agent {
			others = "trafficEncryptionMode: wireGuard\nobserve: {enabled: true}\n"
		}
		_, plain := rendered(t, row.chart, "kube-system", readValues(t, others))
		_, changed := rendered(t, row.chart, "kube-system",
			readValues(t, others+"pods: {"+row.key+": "+settings+row.more+"}}\n"))
		before, after := objects(t, plain), objects(t, changed)
		for key, o := range before {
			if differs := !cmp.Equal(o, after[key]); differs != strings.HasSuffix(key, row.kind+" kube-system "+row.name) &&
				!strings.HasSuffix(key, row.kind+" tombolo-observe "+row.name) {
				t.Errorf("%s, pods.%s: %s differs: %t", row.chart, row.key, key, differs)
			}
		}
		pod := at(t, found(t, changed, row.kind, row.name), "spec", "template")
		spec, container := at(t, pod, "spec"), at(t, pod, "spec", "containers", row.container)
		for _, check := range []struct{ have, want any }{
			{at(t, pod, "metadata", "annotations", "a/b"), "1"},
			{at(t, spec, "priorityClassName"), "other"},
			{at(t, spec, "nodeSelector"), map[string]any{"kubernetes.io/os": "linux", "zone": "x"}},
			{at(t, spec, "tolerations"), []any{map[string]any{"key": "k", "operator": "Exists"}}},
			{at(t, spec, "affinity", "nodeAffinity"), map[string]any{}},
			{at(t, container, "resources", "limits", "memory"), "1Gi"},
		} {
			if diff := cmp.Diff(check.want, check.have); diff != "" {
				t.Errorf("%s, pods.%s: -want +have:\n%s", row.chart, row.key, diff)
			}
		}
		if at(t, container, "resources", "requests", "memory") == nil {
			t.Errorf("%s, pods.%s: a limit takes the requests away", row.chart, row.key)
		}
		args, _ := at(t, container, "args").([]any)
		if want := strings.TrimSuffix(strings.TrimPrefix(row.more, ", extraArgs: ["), "]"); want != "" &&
			!slices.Contains(args, any(want)) {
			t.Errorf("%s, pods.%s: arguments %v, want %s", row.chart, row.key, args, want)
		}
	}
	_, manifest := rendered(t, Agent, "kube-system", readValues(t, `
pods:
  agent: {updateStrategy: {rollingUpdate: {maxUnavailable: 30%}}, installResources: {limits: {memory: 64Mi}}}
  ovs: {updateStrategy: {type: RollingUpdate}, databaseResources: {limits: {memory: 2Gi}}}
cni: {hostBinPath: /home/kubernetes/bin, hostConfPath: /var/lib/rancher/k3s/agent/etc/cni/net.d}
`))
	agent := at(t, found(t, manifest, "DaemonSet", "tombolo-agent"), "spec")
	ovs := at(t, found(t, manifest, "DaemonSet", "tombolo-ovs"), "spec")
	volumes := map[any]any{}
	for _, v := range at(t, agent, "template", "spec", "volumes").([]any) {
		if path := at(t, v, "hostPath"); path != nil {
			volumes[at(t, v, "name")] = at(t, path, "path")
		}
	}
	for _, check := range []struct{ have, want any }{
		{at(t, agent, "updateStrategy"), map[string]any{"type": "RollingUpdate",
			"rollingUpdate": map[string]any{"maxUnavailable": "30%"}}},
		{at(t, agent, "template", "spec", "initContainers", 0, "resources", "limits", "memory"), "64Mi"},
		{at(t, ovs, "updateStrategy", "type"), "RollingUpdate"},
		{at(t, ovs, "template", "spec", "containers", 0, "resources", "limits", "memory"), "2Gi"},
		{volumes["opt-cni-bin"], "/home/kubernetes/bin"},
		{volumes["etc-cni-net-d"], "/var/lib/rancher/k3s/agent/etc/cni/net.d"},
	} {
		if diff := cmp.Diff(check.want, check.have); diff != "" {
			t.Errorf("-want +have:\n%s", diff)
		}
	}
	for values, want := range map[string]string{
		"pods: {agents: {}}":                             "at '/pods': additional properties 'agents' not allowed",
		"pods: {ovs: {extraArgs: [x]}}":                  "at '/pods/ovs': additional properties 'extraArgs' not allowed",
		"pods: {agent: {tolerations: {}}}":               "at '/pods/agent/tolerations': got object, want array",
		"pods: {agent: {updateStrategy: {type: Other}}}": "at '/pods/agent/updateStrategy/type': value must be one of",
		"pods: {controller: {replicas: -1}}":             "at '/pods/controller/replicas': minimum: got -1, want 0",
		"cni: {hostBinPath: bin}":                        "at '/cni/hostBinPath': 'bin' does not match pattern",
		"images: {digests: {tombolo-agent: abc}}":        "at '/images/digests/tombolo-agent': 'abc' does not match pattern",
		"images: {digests: {agent: ''}}":                 "at '/images/digests': additional properties 'agent' not allowed",
	} {
		if _, err := Render(".", Agent, "kube-system", given(readValues(t, values))); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", values, err, want)
		}
	}
}

// TestConfigurationRolls has agents replaced when their configuration changes, and not when other values change. An
// agent reads its configuration when it starts.
func TestConfigurationRolls(t *testing.T) {
	checksum := func(values string) any {
		_, manifest := rendered(t, Agent, "kube-system", readValues(t, values))
		annotations := at(t, found(t, manifest, "DaemonSet", "tombolo-agent"), "spec", "template", "metadata", "annotations")
		return at(t, annotations, "checksum/config")
	}
	before := checksum("")
	if text, ok := before.(string); !ok || len(text) != 64 {
		t.Fatalf("the checksum is %v", before)
	}
	for values, same := range map[string]bool{
		"{}": true,
		"multicluster: {trafficEncryptionMode: wireGuard}": false,
		"featureGates: {TenantNetworks: true}":             false,
		"pods: {agent: {annotations: {a/b: '1'}}}":         true,
		"observe: {enabled: true}":                         true,
	} {
		if checksum(values) == before != same {
			t.Errorf("%s: the checksum is the same: %t, want %t", values, !same, same)
		}
	}
}

// TestDigests names images by digest, by tag, and by the chart's version.
func TestDigests(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for _, row := range []struct{ version, values, want string }{
		{"", "images: {registry: r.example/net}", "r.example/net/tombolo-agent:dev"},
		{"v1.2.3", "images: {registry: r.example/net}", "r.example/net/tombolo-agent:v1.2.3"},
		{"v1.2.3", "images: {registry: r.example/net, tag: mine}", "r.example/net/tombolo-agent:mine"},
		{"v1.2.3", "images: {registry: r.example/net, digests: {tombolo-agent: '" + digest + "'}}",
			"r.example/net/tombolo-agent@" + digest},
		{"v1.2.3", "images: {registry: r.example/net, digests: {tombolo-ovs: '" + digest + "'}}",
			"r.example/net/tombolo-agent:v1.2.3"},
	} {
		files, err := RenderAs(row.version, ".", Agent, "kube-system", readValues(t, row.values))
		if err != nil {
			t.Fatal(err)
		}
		agent := found(t, Manifest(files, all), "DaemonSet", "tombolo-agent")
		if have := at(t, agent, "spec", "template", "spec", "containers", 0, "image"); have != row.want {
			t.Errorf("version %s, %s: image %s, want %s", row.version, row.values, have, row.want)
		}
	}
}

// TestLabels gives all objects the labels that tools expect. Pods, and the selectors of Pods, have only the labels app
// and component: selectors cannot change, and other labels of a template would start all Pods again.
func TestLabels(t *testing.T) {
	for _, chart := range []string{Agent, Multicluster} {
		for _, role := range []string{"leader", "member"} {
			values := given(readValues(t, "role: "+role+"\nmetrics: {bindAddress: ':8081'}\npodMonitor: true\n"))
			if chart == Agent {
				values = given(readValues(t,
					"trafficEncryptionMode: wireGuard\nobserve: {enabled: true, serviceMonitor: true, alerts: true, boards: true}\n"))
			}
			files, err := RenderAs("v1.2.3", ".", chart, "kube-system", values)
			if err != nil {
				t.Fatal(err)
			}
			for key, o := range objects(t, Manifest(files, all)) {
				u := unstructured.Unstructured{Object: o.(map[string]any)}
				labels := u.GetLabels()
				if labels["app.kubernetes.io/name"] != chart || labels["app.kubernetes.io/version"] != "v1.2.3" ||
					labels["helm.sh/chart"] != chart+"-1.2.3" || labels["app.kubernetes.io/instance"] != chart ||
					labels["app.kubernetes.io/component"] != labels["component"] && u.GetKind() != "PodDisruptionBudget" {
					t.Errorf("%s has the labels %v", key, labels)
				}
				if kind := u.GetKind(); kind != "DaemonSet" && kind != "Deployment" {
					continue
				}
				want := map[string]any{"app": labels["app"], "component": labels["component"]}
				for where, have := range map[string]any{"Pods": at(t, o, "spec", "template", "metadata", "labels"),
					"selector": at(t, o, "spec", "selector", "matchLabels")} {
					if diff := cmp.Diff(want, have); diff != "" || labels["app"] == "" || labels["component"] == "" {
						t.Errorf("%s, labels of %s: -want +have:\n%s", key, where, diff)
					}
				}
			}
		}
	}
}

// TestDisruptionBudgets makes a budget for each Deployment that has several replicas, for its Pods.
func TestDisruptionBudgets(t *testing.T) {
	for _, row := range []struct {
		chart, values string
		want          []string
	}{
		{Agent, "", nil},
		{Agent, "pods: {controller: {replicas: 2}, policyController: {replicas: 2}}\nobserve: {enabled: true}",
			[]string{"tombolo-controller", "tombolo-observe", "tombolo-policy-controller"}},
		{Agent, "observe: {enabled: true, replicas: 1}", nil},
		{Agent, "disruptionBudgets: false\nobserve: {enabled: true}", nil},
		{Multicluster, "", []string{"antrea-mc-controller"}},
		{Multicluster, "replicas: 1", nil},
		{Multicluster, "disruptionBudgets: false", nil},
	} {
		_, manifest := rendered(t, row.chart, "kube-system", readValues(t, row.values))
		var names []string
		for _, o := range objects(t, manifest) {
			u := unstructured.Unstructured{Object: o.(map[string]any)}
			if u.GetKind() != "PodDisruptionBudget" {
				continue
			}
			names = append(names, u.GetName())
			deployment := found(t, manifest, "Deployment", u.GetName())
			if diff := cmp.Diff(at(t, deployment, "spec", "selector"), at(t, o, "spec", "selector")); diff != "" ||
				at(t, deployment, "metadata", "namespace") != u.GetNamespace() {
				t.Errorf("%s: the budget selects other Pods than the Deployment: %s", u.GetName(), diff)
			}
		}
		slices.Sort(names)
		if diff := cmp.Diff(row.want, names); diff != "" {
			t.Errorf("%s, %s: -want +have:\n%s", row.chart, row.values, diff)
		}
	}
}

// TestPodMonitor is for the port that the controller serves metrics at.
func TestPodMonitor(t *testing.T) {
	_, manifest := rendered(t, Multicluster, "kube-system",
		readValues(t, "metrics: {bindAddress: '[::]:8081'}\npodMonitor: true"))
	pod := at(t, found(t, manifest, "Deployment", "antrea-mc-controller"), "spec", "template", "spec")
	ports := at(t, pod, "containers", 0, "ports")
	if diff := cmp.Diff(map[string]any{"name": "metrics", "containerPort": float64(8081)}, at(t, ports, 2)); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	monitor := found(t, manifest, "PodMonitor", "antrea-mc-controller")
	if at(t, monitor, "spec", "podMetricsEndpoints", 0, "port") != "metrics" {
		t.Error("the PodMonitor names no port of the Pods")
	}
	if _, err := Render(".", Multicluster, "kube-system", given(readValues(t, "podMonitor: true"))); err == nil ||
		!strings.Contains(err.Error(), "podMonitor: the controller has no metrics") {
		t.Errorf("without metrics: %v", err)
	}
}
