package mapui

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/diagnose"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
	"github.com/tombolo-net/tombolo/pkg/observe/ui"
)

// TestAccess compares the arguments of the commands that the map offers with the flags of tombolo ui.
func TestAccess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "west.kubeconfig")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, kubeconfig, context string
		want                      ui.Access
	}{
		{name: "a context", context: "east", want: ui.Access{Arg: "east", Kubectl: []string{"--context", "east"}}},
		{name: "a context of a kubeconfig", kubeconfig: "k", context: "cluster/east", want: ui.Access{Arg: "cluster/east",
			Kubectl: []string{"--kubeconfig", "k", "--context", "cluster/east"}, Tombolo: []string{"--kubeconfig", "k"}}},
		{name: "a file", kubeconfig: "k", context: file, want: ui.Access{Arg: file,
			Kubectl: []string{"--kubeconfig", file}}},
		{name: "the current context", want: ui.Access{}},
		{name: "the current context of a kubeconfig", kubeconfig: "k", want: ui.Access{
			Kubectl: []string{"--kubeconfig", "k"}, Tombolo: []string{"--kubeconfig", "k"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			have := access(row.kubeconfig, row.context, "shown")
			if have.Name != "shown" || have.Arg != row.want.Arg || !slices.Equal(have.Kubectl, row.want.Kubectl) ||
				!slices.Equal(have.Tombolo, row.want.Tombolo) {
				t.Errorf("%+v, want %+v", have, row.want)
			}
		})
	}
}

// TestFaultsOf: each failed check is a problem of the clusters that it is about.
func TestFaultsOf(t *testing.T) {
	result := func(status, cluster, detail string, evidence ...string) diagnose.Result {
		return diagnose.Result{Code: "TD002", Cluster: cluster, Object: "", Evidence: evidence,
			Result: verify.Result{Check: "clocks", Status: status, Detail: detail, Remedy: "run NTP"}}
	}
	for _, row := range []struct {
		name   string
		result diagnose.Result
		want   []string
	}{
		{"passed", result(diagnose.Pass, "east", ""), nil},
		{"unknown", result(diagnose.Unknown, "east", ""), nil},
		{"of a cluster", result(diagnose.Fail, "east", "see west"), []string{"east"}},
		{"between two", result(diagnose.Fail, "", "east and north are apart"), []string{"east", "north"}},
		{"between two, by the evidence", result(diagnose.Fail, "", "they are apart", "west", "north"),
			[]string{"north", "west"}},
		{"of no name", result(diagnose.Fail, "", "they are apart"), []string{"east", "north", "west"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			have := faultsOf([]string{"east", "north", "west"}, []string{"tombolo", "diagnose", "--context", "a b"},
				[]diagnose.Result{row.result})
			if row.want == nil {
				if have != nil {
					t.Errorf("%+v, want no fault", have)
				}
				return
			}
			want := ui.Problem{Object: "clocks", Reason: "TD002", Command: "tombolo diagnose --context 'a b'",
				Message: "clocks: " + row.result.Detail + ". Remedy: run NTP."}
			if len(have) != 1 || !slices.Equal(have[0].Contexts, row.want) || have[0].Problem != want {
				t.Errorf("%+v, want %+v about %v", have, want, row.want)
			}
		})
	}
}
