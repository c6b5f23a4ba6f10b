package program

import (
	"bytes"
	"cmp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestShortFlags: a letter has one meaning in all commands. Older meanings are still taken, and not shown. antctl has
// its documents' letters.
func TestShortFlags(t *testing.T) {
	of := map[string]string{"manifest-file": "file", "config-file": "file"} // each is a file that is read
	meaning := map[string]string{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				name := cmp.Or(of[f.Name], f.Name)
				if f.Shorthand == "" || f.ShorthandDeprecated != "" || f.Hidden {
					return
				}
				if old := meaning[f.Shorthand]; old != "" && old != name {
					t.Errorf("%s: -%s is --%s, and elsewhere --%s", c.CommandPath(), f.Shorthand, f.Name, old)
				}
				meaning[f.Shorthand] = name
			})
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(Command("tombolo"))
	for letter, want := range map[string]string{"n": "namespace", "o": "output", "k": "kubeconfig", "t": "timeout",
		"f": "file", "v": "verbose"} {
		if meaning[letter] != want {
			t.Errorf("-%s is --%s, want --%s", letter, meaning[letter], want)
		}
	}
}

// TestHelp: each command and flag has a description, and each command that prints a list the same formats.
func TestHelp(t *testing.T) {
	for _, name := range []string{"tombolo", "antctl"} {
		var walk func(*cobra.Command)
		walk = func(c *cobra.Command) {
			if c.Short == "" {
				t.Errorf("%s has no description", c.CommandPath())
			}
			c.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if f.Usage == "" {
					t.Errorf("%s: --%s has no description", c.CommandPath(), f.Name)
				}
			})
			for _, below := range c.Commands() {
				walk(below)
			}
		}
		walk(Command(name))
	}
}

// TestPrograms calls the program by each of its names.
func TestPrograms(t *testing.T) {
	for _, row := range []struct {
		name, words, want string
	}{
		{"a Node's command", "tombolo get pots", `tombolo get does not know "pots"; it knows flows, groups, `},
		{"a cluster's command", "tombolo mc verify east", "tombolo: mc verify needs A and B"},
		{"a switch's command", "tombolo openflow dump", "tombolo: dump needs TARGET; it got 0 words"},
		{"the Pods' command", "tombolo probe dig", `tombolo probe does not know "dig"; it knows ask, load, serve`},
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
