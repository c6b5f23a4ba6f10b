package charts

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/deploy"
	agentconfig "github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

func all(string) bool { return true }

// TestLint runs `helm lint` with values that install other objects: it may find nothing worse than a missing icon.
func TestLint(t *testing.T) {
	for _, row := range []struct{ name, chart, namespace, values string }{
		{"agent", Agent, "kube-system", ""},
		{"agent, encrypted between Nodes", Agent, "kube-system", "trafficEncryptionMode: wireGuard"},
		{"agent, encrypted between clusters", Agent, "kube-system", "multicluster: {trafficEncryptionMode: wireGuard}"},
		{"leader", Multicluster, "antrea-multicluster", "role: leader"},
		{"member", Multicluster, "kube-system", "role: member"},
	} {
		for _, m := range lint.All(row.chart, given(readValues(t, row.values)), row.namespace, true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", row.name, m)
			}
		}
	}
}

// given are values for Nodes that were given the images.
func given(values map[string]any) map[string]any {
	all := map[string]any{"images": map[string]any{"pullPolicy": "Never"}}
	for key, value := range values {
		if images, ok := value.(map[string]any); ok && key == "images" {
			value = map[string]any{"pullPolicy": "Never"}
			for k, v := range images {
				value.(map[string]any)[k] = v
			}
		}
		all[key] = value
	}
	return all
}

// rendered is what Helm installs of a chart: its definitions and its templates.
func rendered(t *testing.T, chart, namespace string, values map[string]any) (definitions, manifest string) {
	t.Helper()
	definitions, manifest, err := All(".", chart, namespace, given(values))
	if err != nil {
		t.Fatal(err)
	}
	return definitions, manifest
}

// objects reads a manifest, by what names an object.
func objects(t *testing.T, text string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for r := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		document, err := r.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		var o unstructured.Unstructured
		if err == nil {
			err = yaml.Unmarshal(document, &o.Object)
		}
		if err != nil {
			t.Fatal(err)
		}
		if o.Object == nil {
			continue
		}
		key := strings.Join([]string{o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()}, " ")
		if found[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		found[key] = o.Object
	}
}

func manifests(t *testing.T, paths ...string) string {
	t.Helper()
	var out strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.String()
}

// TestManifests holds the charts and the shipped manifests to the same objects.
func TestManifests(t *testing.T) {
	for _, row := range []struct {
		name, chart, namespace string
		values                 map[string]any
		files                  []string
	}{
		{"agent", Agent, "kube-system", nil, []string{"agent/tombolo-crds.yml",
			"agent/tombolo-net-attach-def.yml", "agent/tombolo.yml"}},
		{"leader", Multicluster, "antrea-multicluster", map[string]any{"role": "leader"},
			[]string{"multicluster/antrea-multicluster-leader.yml"}},
		{"member", Multicluster, "kube-system", nil, []string{"multicluster/antrea-multicluster-member.yml"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			definitions, manifest := rendered(t, row.chart, row.namespace, row.values)
			want := objects(t, manifests(t, row.files...))
			if deploy.WithImages(manifest, "", "") != manifest ||
				strings.Count(deploy.WithImages(manifest, "x", "y"), "image: x/tombolo-") != strings.Count(manifest, "image: ") {
				t.Error("package deploy expects other images in manifests than the chart has by default")
			}
			if diff := cmp.Diff(want, objects(t, manifest+withoutOthers(t, definitions, want))); diff != "" || len(want) < 10 {
				t.Errorf("%d objects; the chart has other ones (-manifest +chart):\n%s", len(want), diff)
			}
		})
	}
}

// withoutOthers leaves out definitions that a manifest lacks: the chart has the definitions of leader and member.
func withoutOthers(t *testing.T, definitions string, manifest map[string]any) string {
	var out strings.Builder
	for key, o := range objects(t, definitions) {
		if manifest[key] == nil {
			continue
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(text))
	}
	return out.String()
}

func readValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// data is a key of a ConfigMap in a manifest.
func data(t *testing.T, manifest, configMap, key string) string {
	t.Helper()
	for _, o := range objects(t, manifest) {
		u := unstructured.Unstructured{Object: o.(map[string]any)}
		if u.GetKind() == "ConfigMap" && u.GetName() == configMap {
			text, _, err := unstructured.NestedString(u.Object, "data", key)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	t.Fatalf("there is no ConfigMap %s", configMap)
	return ""
}

// TestDocumentedValues takes the values file of a walk-through that is for Antrea's chart.
func TestDocumentedValues(t *testing.T) {
	text, err := os.ReadFile("testdata/three-clusters.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := readValues(t, string(text))
	_, manifest := rendered(t, Agent, "kube-system", values)
	c, warnings, err := agentconfig.Parse([]byte(data(t, manifest, "antrea-config", "antrea-agent.conf")))
	if err != nil {
		t.Fatal(err)
	}
	if !c.MulticlusterGateway() || !c.StretchedPolicies() || !c.Multicluster.EnablePodToPodConnectivity ||
		!c.NodePortLocal.Enable || !c.FeatureGates["FlowExporter"] {
		t.Errorf("have %+v", c)
	}
	for _, w := range warnings { // of what this version has not, and of nothing that the chart wrote
		if !strings.Contains(w.Message, "version") {
			t.Errorf("unexpected: %s", w)
		}
	}
	if strings.Contains(manifest, "v1.11.1") {
		t.Error("Antrea's tag names an image")
	}
	files, err := Render(".", Agent, "kube-system", given(values))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name != Notes {
			continue
		}
		for _, want := range []string{"featureGates.TraceFlow is unknown and left out", "image names an image of Antrea",
			"multicluster.enable is the old name"} {
			if !strings.Contains(f.Text, want) {
				t.Errorf("%q is not in the notes:\n%s", want, f.Text)
			}
		}
		return
	}
	t.Error("there are no notes")
}

// workloads returns the DaemonSets and Deployments of a manifest, with the arguments of their containers.
func workloads(t *testing.T, manifest string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, o := range objects(t, manifest) {
		u := unstructured.Unstructured{Object: o.(map[string]any)}
		if kind := u.GetKind(); kind != "DaemonSet" && kind != "Deployment" {
			continue
		}
		containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		var args []string
		for _, c := range containers {
			words, _, err := unstructured.NestedStringSlice(c.(map[string]any), "args")
			if err != nil {
				t.Fatal(err)
			}
			args = append(args, strings.Join(words, " "))
		}
		found[u.GetKind()+" "+u.GetName()] = strings.Join(args, "; ")
	}
	return found
}

// TestWorkloads checks which workloads run with which values: WireGuard in userspace exactly if something is encrypted,
// with the devices of the datapath.
func TestWorkloads(t *testing.T) {
	const kernel, userspace = "wireguard --device antrea-mc-wg0,antrea-mc-wg1,antrea-wg0,antrea-wg1",
		"wireguard --device antrea-mc-tap0,antrea-mc-tap1,antrea-tap0,antrea-tap1"
	documented, err := os.ReadFile("testdata/three-clusters.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, values, wireGuard string }{
		{"by default", "", ""},
		{"the walk-through's values", string(documented), ""},
		{"the walk-through's values, encrypted", string(documented) + "trafficEncryptionMode: wireGuard\n", kernel},
		{"between Nodes", "trafficEncryptionMode: wireGuard", kernel},
		{"between clusters", "multicluster: {trafficEncryptionMode: wireGuard}", kernel},
		{"both", "trafficEncryptionMode: wireGuard\nmulticluster: {trafficEncryptionMode: wireGuard}", kernel},
		{"another spelling", "trafficEncryptionMode: WireGuard", kernel},
		{"none", "trafficEncryptionMode: none\nmulticluster: {trafficEncryptionMode: none}", ""},
		{"to uninstall", "uninstall: true", ""},
		{"userspace datapath", "ovsDatapathType: netdev\ntransportInterface: eth1", ""},
		{"userspace datapath, between Nodes",
			"ovsDatapathType: netdev\ntransportInterface: eth1\ntrafficEncryptionMode: wireGuard", userspace},
		{"userspace datapath, between clusters",
			"ovsDatapathType: netdev\ntransportInterface: eth1\nmulticluster: {trafficEncryptionMode: wireGuard}", userspace},
	} {
		want := map[string]string{
			"DaemonSet tombolo-agent":       "--config /etc/tombolo/antrea-agent.conf",
			"DaemonSet tombolo-ovs":         "ovsdb-server; ovs-vswitchd",
			"Deployment tombolo-controller": "cluster", "Deployment tombolo-policy-controller": "policy",
		}
		if row.wireGuard != "" {
			want["DaemonSet tombolo-wireguard"] = row.wireGuard
		}
		if row.name == "to uninstall" {
			delete(want, "DaemonSet tombolo-agent")
			want["DaemonSet tombolo-uninstall"] = "uninstall --done"
		}
		_, manifest := rendered(t, Agent, "kube-system", readValues(t, row.values))
		if diff := cmp.Diff(want, workloads(t, manifest)); diff != "" {
			t.Errorf("%s: -want +have:\n%s", row.name, diff)
		}
	}
	for _, role := range []string{"leader", "member"} {
		_, manifest := rendered(t, Multicluster, "kube-system", map[string]any{"role": role})
		want := map[string]string{"Deployment antrea-mc-controller": role +
			" --config=/etc/antrea-mc-controller/controller_manager_config.yaml"}
		if diff := cmp.Diff(want, workloads(t, manifest)); diff != "" {
			t.Errorf("%s: -want +have:\n%s", role, diff)
		}
	}
}

func TestValues(t *testing.T) {
	for _, row := range []struct{ name, values, want string }{
		{"any key of the file",
			"noSNAT: true\ntunnelPort: 7000\nauditLogging: {maxSize: 1}\nmulticluster: {enableGateway: true, wireGuard: " +
				"{port: 7}, enablePodToPodConnectivity: true}\ntrafficEncapMode: ENCAP\n", ""},
		{"gateway off", "multicluster: {enableGateway: false}\n", ""},
		{"unknown key", "trafficEncapmode: encap\n", "additional properties 'trafficEncapmode' not allowed"},
		{"unknown key in a section", "multicluster: {enableGatway: true}\n",
			"at '/multicluster': additional properties 'enableGatway' not allowed"},
		{"not a value", "trafficEncapMode: overlay\n", "at '/trafficEncapMode': 'overlay' does not match pattern"},
		{"port", "multicluster: {wireGuard: {port: 70000}}\n",
			"at '/multicluster/wireGuard/port': maximum: got 70,000, want 65,535"},
		{"quoted bool", "noSNAT: 'true'\n", "at '/noSNAT': got string, want boolean"},
		{"mode that is not there", "trafficEncapMode: networkPolicyOnly\n",
			"at '/trafficEncapMode': 'networkPolicyOnly' does not match pattern '^(?i:encap|noEncap|hybrid)$'"},
		{"mode without tunnels", "trafficEncapMode: noEncap\nnoSNAT: true\nmulticluster: {enableGateway: false}\n", ""},
		{"encryption without tunnels", "trafficEncapMode: noEncap\ntrafficEncryptionMode: wireGuard\n",
			"trafficEncryptionMode: wireGuard encrypts tunnels"},
		{"IPsec", "trafficEncryptionMode: ipsec\n",
			"at '/trafficEncryptionMode': 'ipsec' does not match pattern '^(?i:none|wireGuard)$'"},
		{"STT", "tunnelType: stt\n", "at '/tunnelType': 'stt' does not match pattern"},
		{"bridging mode", "enableBridgingMode: true\n", "at '/enableBridgingMode': value must be false"},
		{"no Services", "antreaProxy: {enable: false}\n", "at '/antreaProxy/enable': value must be true"},
		{"some Services", "antreaProxy: {skipServices: [a/b]}\n", "at '/antreaProxy/skipServices': maxItems: got 1, want 0"},
		{"Services of a name", "antreaProxy: {serviceProxyName: x}\n",
			"at '/antreaProxy/serviceProxyName': maxLength: got 1, want 0"},
		{"interface by address", "transportInterfaceCIDRs: [10.0.0.0/8]\n",
			"at '/transportInterfaceCIDRs': maxItems: got 1, want 0"},
		{"port of gre", "tunnelType: GRE\ntunnelPort: 5000\n", "tunnelPort: gre has no ports"},
		{"one name for two", "hostGateway: br-int\n", "hostGateway is the name of the bridge"},
		{"stretched without Gateway", "multicluster: {enableGateway: false, enableStretchedNetworkPolicy: true}\n",
			"enableStretchedNetworkPolicy needs multicluster.enableGateway"},
		{"one port for two",
			"trafficEncryptionMode: wireGuard\nmulticluster: {trafficEncryptionMode: wireguard, wireGuard: {port: 51820}}\n",
			"multicluster.wireGuard.port is that of the Nodes of this cluster"},
		{"IPv6 range", "serviceCIDR: fd00::/108\n", "at '/serviceCIDR': 'fd00::/108' does not match pattern"},
		{"small MTU", "defaultMTU: 100\n", "at '/defaultMTU': 'anyOf' failed"},
		{"tag", "images: {tag: 'a b'}\n", "at '/images/tag': 'a b' does not match pattern"},
	} {
		t.Run(row.name, func(t *testing.T) {
			files, err := Render(".", Agent, "kube-system", given(readValues(t, row.values)))
			if row.want != "" {
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Fatalf("have %v, want %q", err, row.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text := data(t, Manifest(files, all), "antrea-config", "antrea-agent.conf")
			c, warnings, err := agentconfig.Parse([]byte(text))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v %v in\n%s", err, warnings, text)
			}
			want, _, err := agentconfig.Parse([]byte("featureGates: {Multicluster: true}\n" + row.values))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, c); diff != "" {
				t.Errorf("-wanted +rendered:\n%s", diff)
			}
		})
	}
	for _, chart := range []string{Agent, Multicluster} {
		if _, err := Render(".", chart, "kube-system", nil); err == nil ||
			!strings.Contains(err.Error(), "images.registry is not set") {
			t.Errorf("%s without a registry: %v", chart, err)
		}
		files, err := Render(".", chart, "kube-system",
			map[string]any{"images": map[string]any{"registry": "registry.example/net"}})
		if text := Manifest(files, all); err != nil || strings.Contains(text, "imagePullPolicy: Never") ||
			strings.Contains(text, "image: tombolo/") {
			t.Errorf("%s with a registry: %v\n%s", chart, err, text)
		}
	}
	if _, err := Render(".", Agent, "default", given(nil)); err == nil ||
		!strings.Contains(err.Error(), "this chart's Namespace is kube-system, not default") {
		t.Errorf("another Namespace: %v", err)
	}
}

func TestControllerValues(t *testing.T) {
	_, manifest := rendered(t, Multicluster, "kube-system",
		readValues(t, "podCIDRs: [10.1.0.0/16]\nendpointIPType: PodIP\nenableStretchedNetworkPolicy: "+
			"true\npublishPodAddresses: true\nserviceCIDR: 10.2.0.0/16\n"))
	c, err := config.Parse([]byte(data(t, manifest, "antrea-mc-controller-config", "controller_manager_config.yaml")))
	if err != nil || c.EndpointIPType != "PodIP" || !c.PublishPodAddresses || c.ServiceCIDR != "10.2.0.0/16" ||
		len(c.PodCIDRs) != 1 || c.LeaderElection.LeaderElect == nil {
		t.Errorf("%v: %+v", err, c)
	}
	_, manifest = rendered(t, Multicluster, "antrea-multicluster",
		readValues(t, "role: leader\nmetrics: {bindAddress: ':8081'}\nleaderElection: {leaseDuration: 30s, renewDeadline: "+
			"20s}\n"))
	c, err = config.Parse([]byte(data(t, manifest, "antrea-mc-controller-config", "controller_manager_config.yaml")))
	if l := c.LeaderElection; err != nil || c.Metrics.BindAddress != ":8081" ||
		l.LeaseDuration.Duration != 30*time.Second || l.RenewDeadline.Duration != 20*time.Second ||
		l.RetryPeriod.Duration != 2*time.Second {
		t.Errorf("%v: %+v", err, c)
	}
	_, manifest = rendered(t, Multicluster, "kube-system", readValues(t, "activeGateways: 2\n"))
	if text := data(t, manifest, "antrea-mc-controller-config", "controller_manager_config.yaml"); strings.Count(text,
		"activeGateways") != 1 || !strings.Contains(text, "\nactiveGateways: 2") {
		t.Errorf("activeGateways is not there once:\n%s", text)
	}
	for values, want := range map[string]string{
		"leaderElection: {leaderElect: false}\n": "at '/leaderElection': additional properties 'leaderElect' not allowed",
		"metrics: {bindAddress: 0}\n":            "at '/metrics/bindAddress': got number, want string",
		"webhook: {port: 1}\n":                   "additional properties 'webhook' not allowed",
		"role: follower\n":                       "at '/role': value must be one of 'leader', 'member'",
		"endpointIPType: podip\n":                "at '/endpointIPType': value must be one of",
		"podCIDR: [x]\n":                         "additional properties 'podCIDR' not allowed",
	} {
		if _, err := Render(".", Multicluster, "kube-system", given(readValues(t, values))); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: have %v, want %q", values, err, want)
		}
	}
}

// TestApply applies the objects that Helm would install to an API server: agent, leader and member in one cluster.
func TestApply(t *testing.T) {
	restConfig := apiserver.Start(t)
	c, err := client.New(restConfig, client.Options{Scheme: setup.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	to, err := dynamic.NewForConfig(restConfig)
	if err != nil {
		t.Fatal(err)
	}
	leader := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "antrea-multicluster"}}
	if err := c.Create(t.Context(), leader); err != nil {
		t.Fatal(err)
	}
	var reported strings.Builder
	cluster := setup.Cluster{Client: c, Out: &reported}
	for _, release := range []struct {
		chart, namespace, role string
	}{{Agent, "kube-system", ""}, {Multicluster, "antrea-multicluster", "leader"},
		{Multicluster, "kube-system", "member"}} {
		values := map[string]any{"images": map[string]any{"pullSecrets": []any{map[string]any{"name": "registry"}}}}
		if release.role != "" {
			values["role"] = release.role
		}
		definitions, manifest := rendered(t, release.chart, release.namespace, values)
		for _, text := range []string{definitions, manifest} {
			if err := cluster.Deploy(t.Context(), to, text, release.namespace); err != nil {
				t.Fatalf("%s in %s: %v\n%s", release.chart, release.namespace, err, reported.String())
			}
		}
		if n, pods := strings.Count(manifest, "\n        - name: registry\n"),
			strings.Count(manifest, "priorityClassName:"); n != pods || n == 0 {
			t.Errorf("%s: %d of %d Pods have the pull secret", release.chart, n, pods)
		}
	}
	for _, want := range []string{"DaemonSet/tombolo-agent created", "Tier/baseline created",
		"ValidatingAdmissionPolicy/tombolo-policies created", "FlowSchema/antrea-multicluster-antrea-mc-members created"} {
		if !strings.Contains(reported.String(), want) {
			t.Errorf("%q is not in\n%s", want, reported.String())
		}
	}

	// The chart finds objects in the cluster: its own are not a reason to refuse it, another CNI plugin's are.
	if err := install(restConfig, nil); err != nil {
		t.Errorf("again: %v", err)
	}
	other := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "antrea-agent"}}
	other.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "antrea"}}
	other.Spec.Template.Labels = other.Spec.Selector.MatchLabels
	other.Spec.Template.Spec.Containers = []corev1.Container{{Name: "antrea-agent",
		Image: "antrea/antrea-agent-ubuntu:v2.4.0"}}
	if err := c.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := install(restConfig, nil); err == nil ||
		!strings.Contains(err.Error(), "DaemonSet kube-system/antrea-agent: remove it first") {
		t.Errorf("in a cluster with Antrea: %v", err)
	}
	if err := install(restConfig, map[string]any{"withOtherCNI": true}); err != nil {
		t.Errorf("with withOtherCNI: %v", err)
	}
}

// install renders the chart as `helm install` does, which may ask the cluster.
func install(to *rest.Config, values map[string]any) error {
	c, err := loader.Load(Agent)
	if err != nil {
		return err
	}
	all, err := chartutil.ToRenderValues(c, given(values),
		chartutil.ReleaseOptions{Name: Agent, Namespace: "kube-system"}, nil)
	if err != nil {
		return err
	}
	_, err = engine.RenderWithClient(c, all, to)
	return err
}
