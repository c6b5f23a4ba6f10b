package charts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agentconfig "github.com/tombolo-net/tombolo/pkg/agent/config"
)

// TestObserve installs the relay, or not, and gives the agents their part of the key observe.
func TestObserve(t *testing.T) {
	for _, row := range []struct {
		name, values      string
		replicas, monitor string
		agents            string
	}{
		{"by default", "", "", "", ""},
		{"keys of agents alone", "observe: {drops: false}", "", "", "observe: {drops: false}"},
		{"the relay", "observe: {enabled: true}", "replicas: 2\n", "", ""},
		{"all", "observe: {enabled: true, replicas: 3, serviceMonitor: true, historyMiB: 8}", "replicas: 3\n",
			"kind: ServiceMonitor", "observe: {historyMiB: 8}"},
		{"a monitor of nothing", "observe: {serviceMonitor: true}", "", "", ""},
	} {
		_, manifest := rendered(t, Agent, "kube-system", readValues(t, row.values))
		_, relay, found := strings.Cut(manifest, "kind: Deployment\nmetadata:\n  name: tombolo-observe\n")
		relay, _, _ = strings.Cut(relay, "\n---\n")
		if found != (row.replicas != "") || !strings.Contains(relay, row.replicas) {
			t.Errorf("%s: the relay is\n%s\nwant %q", row.name, relay, row.replicas)
		}
		if has := strings.Contains(manifest, "kind: ServiceMonitor"); has != (row.monitor != "") {
			t.Errorf("%s: a ServiceMonitor: %t", row.name, has)
		}
		have, warnings, err := agentconfig.Parse([]byte(data(t, manifest, "antrea-config", "antrea-agent.conf")))
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s: %v %v", row.name, err, warnings)
		}
		want, _, err := agentconfig.Parse([]byte(
			"featureGates: {Multicluster: true}\nmulticluster: {enableGateway: true}\n" + row.agents))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: -want +have:\n%s", row.name, diff)
		}
	}
	_, manifest := rendered(t, Agent, "kube-system", readValues(t, "observe: {alerts: true, boards: true}"))
	for _, text := range []string{"kind: PrometheusRule", "alert: TomboloNoWayToCluster", "{{ $labels.node }}",
		"name: tombolo-ways\n", `grafana_dashboard: "1"`} {
		if !strings.Contains(manifest, text) {
			t.Errorf("with alerts and boards the manifest has no %s", text)
		}
	}
	for values, want := range map[string]string{
		"observe: {replicas: 0}":  "at '/observe/replicas': minimum: got 0, want 1",
		"observe: {enable: true}": "additional properties 'enable' not allowed",
	} {
		if _, err := Render(".", Agent, "kube-system", given(readValues(t, values))); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", values, err, want)
		}
	}
}
