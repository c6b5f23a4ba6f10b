package program

import (
	"bytes"
	"strings"
	"testing"
)

// TestPrograms calls the program by each of its names.
func TestPrograms(t *testing.T) {
	for _, row := range []struct {
		name, words, want string
	}{
		{"a Node's command", "tombolo get pots", `tombolo get does not know "pots"; it knows flows, groups, `},
		{"a cluster's command", "tombolo mc verify east", "tombolo: mc verify needs A and B"},
		{"a switch's command", "tombolo openflow dump", "tombolo: dump needs TARGET; it got 0 words"},
		{"the Pods' command", "tombolo probe dig", `tombolo probe does not know "dig"; it knows ask, serve`},
		{"with a path and an extension", "/usr/local/bin/antctl.exe get flows", `antctl: antctl get does not know "flows"`},
		{"bundles", "tombolo gather --since -1s", "tombolo: --since -1s: give a time such as 30m or 2h"},
		{"bundles by their documented name", "antctl supportbundle a --controller-only",
			"antctl: --controller-only does not go with"},
		{"plugin", "kubectl-tombolo trace", "kubectl tombolo: trace takes one FLOW"},
		{"antctl has the documented commands of a Node", "antctl get flows",
			`antctl get does not know "flows"; it knows agentinfo, `},
		{"antctl has few commands of a cluster", "antctl mc verify", `antctl mc does not know "verify"; it knows create, `},
		{"flags of mc before it", "antctl -t 5s mc init -n a", "antctl: ClusterSet must be provided: --clusterset NAME"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), strings.Fields(row.words), &stdout, &stderr)
			if code != 1 || stdout.Len() > 0 || !strings.Contains(stderr.String(), row.want) {
				t.Errorf("code %d, stdout %q\nstderr: %swant:   %s", code, stdout.String(), stderr.String(), row.want)
			}
		})
	}
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"tombolo", "--version"}, &stdout, &stderr)
	if code != 0 || !strings.HasPrefix(stdout.String(), "tombolo version ") {
		t.Errorf("--version: code %d, %q, %q", code, stdout.String(), stderr.String())
	}
}
