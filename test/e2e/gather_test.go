package e2e

import (
	"bytes"
	"encoding/base64"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/gather"
)

// testGather makes a bundle of all clusters. All answers of all agents are in it, and no token of a member.
func testGather(t *testing.T) {
	ctx := testContext(t)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	var files []string
	for _, cluster := range []string{"north", "east", "west"} {
		files = append(files, world.Lab.Cluster(cluster).Kubeconfig())
	}
	start := time.Now()
	out, err := world.Lab.Tool(ctx, "north", "tombolo", "gather", "--context", strings.Join(files, ","), "-f", file,
		"--timeout", "2m")
	must(t, err)
	t.Logf("in %s: %s", time.Since(start), out) // the tests share processors: their time is no measure
	b, err := gather.Open(file)
	must(t, err)
	if !b.Manifest.Complete || len(b.Manifest.Clusters) != 3 {
		t.Errorf("complete %t, %d clusters", b.Manifest.Complete, len(b.Manifest.Clusters))
	}
	for _, f := range b.Manifest.Failures {
		if !strings.HasSuffix(f.Part, ".previous.log") { // the kubelet may have removed it
			t.Errorf("missing: %s: %s", f.Part, f.Error)
		}
	}
	var tokens [][]byte
	for _, cluster := range []string{"north", "east", "west"} {
		encoded := kubectl(t, cluster, "get", "secrets", "-A", "-o", "jsonpath={.items[*].data.token}")
		for _, word := range strings.Fields(encoded) {
			token, err := base64.StdEncoding.DecodeString(word)
			must(t, err)
			tokens = append(tokens, token, []byte(word))
		}
	}
	if len(tokens) == 0 {
		t.Error("no member has a token")
	}
	for _, f := range b.Manifest.Files {
		content, err := b.ReadFile(f.Name)
		must(t, err)
		for _, token := range tokens {
			if bytes.Contains(content, token) {
				t.Errorf("%s has the token of a member", f.Name)
			}
		}
		if bytes.Contains(content, []byte("PRIVATE KEY")) {
			t.Errorf("%s has a private key", f.Name)
		}
	}
	for _, c := range b.Manifest.Clusters {
		for _, node := range []string{"node-1", "node-2"} {
			for _, words := range [][]string{{"get", "flows"}, {"get", "peers"}, {"get", "metrics"}, {"get", "status"}} {
				words = append(words, "--bundle", file, "--context", c.Name, "--node", node)
				out, err := world.Lab.Tool(ctx, "north", "tombolo", words...)
				if err != nil || strings.Count(out, "\n") < 2 {
					t.Errorf("%v: %v\n%s", words, err, out)
				}
			}
		}
	}
}
