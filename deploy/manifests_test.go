package deploy

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestWithImages: a program names the images of its version, unless a tag is given. A release labels objects with its
// version. The test runs again as a release.
func TestWithImages(t *testing.T) {
	want := os.Getenv("WANT_TAG")
	if want == "" {
		want = "dev"
		program := t.TempDir() + "/test"
		for _, c := range []*exec.Cmd{
			exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "-ldflags",
				"-X github.com/tombolo-net/tombolo/pkg/version.version=v1.2.3", "."),
			exec.CommandContext(t.Context(), program, "-test.run", "TestWithImages"),
		} {
			c.Env = append(os.Environ(), "WANT_TAG=v1.2.3")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	}
	for _, manifest := range []string{Leader(LeaderNamespace), Member(MemberNamespace)} {
		for _, row := range []struct{ registry, tag, want string }{
			{"", "", "image: tombolo/tombolo-controller:" + want + "\n"},
			{"registry.example/net/", "", "image: registry.example/net/tombolo-controller:" + want + "\n"},
			{"registry.example/net", "v9", "image: registry.example/net/tombolo-controller:v9\n"},
		} {
			have := WithImages(manifest, row.registry, row.tag)
			if !strings.Contains(have, row.want) || strings.Contains(have, "Policy: Never\n") != (row.registry == "") {
				t.Errorf("registry %q, tag %q: want %s", row.registry, row.tag, row.want)
			}
			label, chart := `app.kubernetes.io/version: "`+want+`", `, "helm.sh/chart: tombolo-multicluster-1.2.3"
			if n := strings.Count(have, label); n < 20 || n != strings.Count(have, "app.kubernetes.io/version: ") {
				t.Errorf("registry %q, tag %q: %d objects have the label %s", row.registry, row.tag, n, label)
			}
			if release := want != "dev"; strings.Contains(have, chart) != release {
				t.Errorf("registry %q, tag %q: a label is not as %s, in a release: %t", row.registry, row.tag, chart, release)
			}
		}
	}
}
