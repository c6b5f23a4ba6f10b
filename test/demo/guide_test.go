package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/test/lab"
)

// guide runs the commands of docs/three-clusters.md in the demo's clusters, and compares what they print with the page.
func guide(ctx context.Context, t *testing.T, d *demo) {
	t.Helper()
	l := d.world.Lab
	if err := l.LoadImage(ctx, filepath.Join(l.Repo(), "bin", "conformance", "agnhost.tar")); err != nil {
		t.Fatalf("%v: run `make agnhost`", err)
	}
	dir := t.TempDir()
	contexts(t, d, filepath.Join(dir, "kubeconfig"))
	// The page's values name a registry. These are the values of the lab's clusters that are the same in all.
	values, _ := l.Cluster("north").Values()
	delete(values, "kubeAPIServerOverride") // the command finds it out
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "values.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(l.Repo(), "docs", "three-clusters.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps := stepsOf(string(page))
	if len(steps) < 7 {
		t.Fatalf("the page has %d steps, want one for each of its sections", len(steps))
	}
	for _, s := range steps {
		s.run(ctx, t, l, dir)
	}
}

// run runs the commands in a directory, which has the file kubeconfig, and compares what they print.
func (s step) run(ctx context.Context, t *testing.T, l *lab.Lab, dir string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", s.commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"), "PATH="+strings.Join([]string{
		filepath.Join(l.Repo(), "bin"), os.Getenv("TOMBOLO_KUBERNETES"), os.Getenv("PATH")}, ":"))
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", s.commands, out)
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, s.commands, out)
	}
	if missing := s.missing(string(out)); missing != "" {
		t.Errorf("the output has no line %q after the lines before it:\n%s\n%s", missing, s.commands, out)
	}
}

// contexts writes a kubeconfig with the contexts of the page: the leader is north.
func contexts(t *testing.T, d *demo, to string) {
	t.Helper()
	all := api.NewConfig()
	for _, c := range d.world.Lab.Clusters() {
		name := c.Name()
		if name == "north" {
			name = "leader"
		}
		one, err := clientcmd.LoadFromFile(c.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		from := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[from.Cluster], one.AuthInfos[from.AuthInfo]
		all.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	}
	if err := clientcmd.WriteToFile(*all, to); err != nil {
		t.Fatal(err)
	}
}

// step is one block of commands of a page, with the lines that it prints.
type step struct {
	commands string
	prints   []string // `...` stands for any text
}

// stepsOf returns the blocks sh of a page, each with the block text after it.
func stepsOf(page string) (steps []step) {
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		switch m[1] {
		case "sh":
			steps = append(steps, step{commands: m[2]})
		case "text":
			last := &steps[len(steps)-1]
			last.prints = strings.Split(strings.TrimSpace(m[2]), "\n")
		}
	}
	return steps
}

// missing returns the first line that is not printed after the lines before it, or "".
func (s step) missing(out string) string {
	lines := strings.Split(out, "\n")
	for _, want := range s.prints {
		var parts []string
		for word := range strings.SplitSeq(want, "...") {
			parts = append(parts, regexp.QuoteMeta(strings.Join(strings.Fields(word), " ")))
		}
		pattern := regexp.MustCompile("^ ?" + strings.Join(parts, ".*") + " ?$")
		at := 0
		for at < len(lines) && !pattern.MatchString(strings.Join(strings.Fields(lines[at]), " ")) {
			at++
		}
		if at == len(lines) {
			return want
		}
		lines = lines[at+1:]
	}
	return ""
}

// TestSteps: the output of a page's commands is compared line by line.
func TestSteps(t *testing.T) {
	steps := stepsOf("x\n\n```sh\na\n```\n\n```yaml\nb: c\n```\n\n```sh\nd\ne\n```\n\n```text\none ... three\nfour\n```\n")
	if len(steps) != 2 || steps[0].commands != "a\n" || steps[0].prints != nil || steps[1].commands != "d\ne\n" {
		t.Fatalf("steps are %+v", steps)
	}
	for out, want := range map[string]string{
		"zero\none   two three\nx\nfour\n": "", "four\none two three\n": "four", "one two\nfour": "one ... three",
		"one two three four\nfour": "one ... three", fmt.Sprintln("one  three") + "four": "",
	} {
		if missing := steps[1].missing(out); missing != want {
			t.Errorf("%q lacks %q, want %q", out, missing, want)
		}
	}
}
