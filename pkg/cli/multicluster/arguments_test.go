package multicluster

import (
	"strings"
	"testing"
)

// TestGlobalFlags: flags of mc may stand before it, as documents have them.
func TestGlobalFlags(t *testing.T) {
	for _, row := range []struct{ words, want string }{
		{"-v mc get clusterset", "mc -v get clusterset"},
		{"-t 5s --kubeconfig=x -ky multicluster init -n a", "multicluster -t 5s --kubeconfig=x -ky init -n a"},
		{"--server https://x -v mc get clusterset", "mc --server https://x -v get clusterset"},
		{"--context leader mc init -n a", "mc --context leader init -n a"},
		{"-v", "-v"}, // the version
		{"-v get networkpolicy", "-v get networkpolicy"},
		{"--socket x mc get clusterset", "--socket x mc get clusterset"},
		{"-k mc", "-k mc"}, // a file of that name
		{"-- mc", "-- mc"},
		{"- mc", "- mc"},
		{"mc -v get clusterset", "mc -v get clusterset"},
		{"", ""},
	} {
		for _, name := range []string{"tombolo", "antctl"} {
			if have := strings.Join(globalsBehind(program(name), strings.Fields(row.words)), " "); have != row.want {
				t.Errorf("%s %s: have %q, want %q", name, row.words, have, row.want)
			}
		}
	}
}
