package multicluster

import (
	"strings"
	"testing"
)

func TestVerifyErrors(t *testing.T) {
	const files = "which are contexts of the kubeconfig or kubeconfig files"
	for _, row := range []struct{ words, want string }{
		{"verify east", "tombolo: mc verify needs A and B, " + files + "; it got 1 words"},
		{"verify east east", "tombolo: both names are of one cluster: name two"},
		{"-s https://10.0.0.1 verify east west", "tombolo: --server is one cluster's"},
	} {
		t.Run(row.words, func(t *testing.T) {
			out, stderr, code := tombolo(t, append([]string{"tombolo", "mc"}, strings.Fields(row.words)...)...)
			if code != 1 || !strings.Contains(stderr, row.want) || out != "" {
				t.Errorf("code %d, stdout %q\nstderr: %swant:   %s", code, out, stderr, row.want)
			}
		})
	}
}
