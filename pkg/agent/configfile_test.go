package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
)

// TestConfigFile changes the configuration file, as a kubelet or an administrator does, at several times after the
// start of the agent.
func TestConfigFile(t *testing.T) {
	const before = "tunnelType: geneve\n"
	for _, row := range []struct {
		name, file string
		after      time.Duration
		again      bool   // the agent is started again
		problem    string // its Reason and a part of its message
	}{
		{"the same", before, time.Minute, false, ""},
		{"the same in other words", "# a comment\n" + before, time.Minute, false, ""},
		{"another one soon", "tunnelType: gre\n", time.Minute, true, "ConfigurationChanged: rollout restart"},
		{"another one later", "tunnelType: gre\n", takeOverFor, false, "ConfigurationChanged: rollout restart"},
		{"one with which no agent begins", "tunnelType: stone\n", time.Minute, false, "ConfigurationInvalid: tunnelType"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "antrea-agent.conf")
			write := func(text string) {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(before)
			have, _, err := config.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			f := &configFile{path: path, have: have, restart: "kubectl rollout restart daemonset/tombolo-agent",
				log: slog.New(slog.NewTextHandler(io.Discard, nil))}
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- f.run(ctx) }()
				time.Sleep(row.after)
				write(row.file)
				time.Sleep(2 * configPoll)
				var text []string
				for _, p := range f.problems() {
					text = append(text, p.Object+" "+p.Reason+": "+p.Message)
				}
				reason, part, _ := strings.Cut(row.problem, ": ")
				if have := strings.Join(text, "\n"); (have == "") != (row.problem == "") ||
					!strings.Contains(have, "antrea-agent.conf "+reason) && row.problem != "" || !strings.Contains(have, part) {
					t.Errorf("problems %q, want %q", have, row.problem)
				}
				write(before)
				time.Sleep(2 * configPoll)
				if have := f.problems(); !row.again && len(have) > 0 {
					t.Errorf("problems %v, with the file that there was", have)
				}
				stop()
				if err := <-ended; errors.Is(err, ErrConfigurationChanged) != row.again {
					t.Errorf("it ends with %v, want it to be started again: %t", err, row.again)
				}
			})
		})
	}
}

// TestNoConfigFile compares nothing, since there is no file.
func TestNoConfigFile(t *testing.T) {
	f := &configFile{}
	if err := f.run(t.Context()); err != nil || len(f.problems()) > 0 {
		t.Errorf("%v, problems %v", err, f.problems())
	}
}
