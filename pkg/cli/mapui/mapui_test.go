package mapui

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

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
