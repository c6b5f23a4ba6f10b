package appctl

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

func TestRealSwitch(t *testing.T) {
	t.Parallel()
	s := ovstest.Start(t, ovstest.Dummy)
	other := ovstest.Start(t, ovstest.Dummy) // a second one must not be confused with it
	other.Vsctl("add-br", "br-other")
	s.Vsctl("add-br", "br-int", "--", "add-port", "br-int", "p1", "--", "set", "interface", "p1", "ofport_request=1")
	c := Client{RunDir: s.RunDir()}
	ctx, cancel := context.WithTimeout(context.Background(), ovstest.Timeout())
	defer cancel()

	version, err := c.Version(ctx)
	if err != nil || !strings.Contains(version, ".") {
		t.Errorf("version is %q, %v", version, err)
	}
	text, err := c.Trace(ctx, "br-int", "in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_dst=80")
	if err != nil || !strings.Contains(text, "Datapath actions:") {
		t.Errorf("trace is %q, %v", text, err)
	}
	if text, err = c.Trace(ctx, "br-int", "in_port=1,tcp", "--ct-next", "trk,est"); err != nil ||
		!strings.Contains(text, "Final flow:") {
		t.Errorf("trace with an option is %q, %v", text, err)
	}
	if _, err := c.Run(ctx, "dpif/dump-flows", "br-int"); err != nil {
		t.Error(err)
	}

	if u, err := c.Upcalls(ctx, "system@ovs-system"); err != nil || u.Lost != 0 {
		t.Errorf("upcalls are %+v, %v", u, err)
	}
	if _, err := c.Upcalls(ctx, "system@none"); err == nil {
		t.Error("a datapath that is missing has upcalls")
	}

	var refused *Error
	_, err = c.Trace(ctx, "br-other", "in_port=1")
	if !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), `ovs-vswitchd refuses "ofproto/trace br-other in_port=1": `) {
		t.Errorf("tracing another switch's bridge: %v", err)
	}
	if _, err := c.Run(ctx, "no/such"); !errors.As(err, &refused) ||
		!strings.Contains(refused.Text, "not a valid command") {
		t.Errorf("unknown command: %v", err)
	}

	var lines strings.Builder
	text, err = c.Run(ctx, "list-commands")
	err2 := c.Lines(ctx, func(line string) { lines.WriteString(line + "\n") }, "list-commands")
	if err != nil || err2 != nil || lines.String() != text {
		t.Errorf("list-commands by lines: %v, %v\n%s\nwant\n%s", err, err2, &lines, text)
	}
	err = c.Lines(ctx, func(line string) { t.Errorf("line of a command that is refused: %q", line) }, "no/such", "x")
	if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), `ovs-vswitchd refuses "no/such x": "no/such"`) {
		t.Errorf("unknown command by lines: %v", err)
	}

	// It is found again after a restart, under another process ID.
	s.StopDaemon()
	if _, err := c.Version(ctx); err == nil || !strings.Contains(err.Error(), "is it running?") {
		t.Errorf("without ovs-vswitchd: %v", err)
	}
	s.StartDaemon()
	if _, err := c.Version(ctx); err != nil {
		t.Error(err)
	}
	// Without a pidfile the socket itself is looked for.
	if err := os.Remove(filepath.Join(s.RunDir(), "ovs-vswitchd.pid")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(ctx); err != nil {
		t.Error(err)
	}
}

func TestNotRunning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := Client{RunDir: dir}
	if _, err := c.Version(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "ovs-vswitchd is not running, or its run directory is another") {
		t.Errorf("empty directory: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ovs-vswitchd.pid"), []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "it should hold a process ID") {
		t.Errorf("bad pidfile: %v", err)
	}
}

// TestBadAnswers talks to daemons that answer badly, or not at all.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, answer, want string }{
		{"closes", "", "read reply"},
		{"garbage", "hello", "read reply"},
		{"neither", `{"id":1,"result":null,"error":null}`, "neither result nor error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			client, server := net.Pipe()
			go func() {
				buf := make([]byte, 1000)
				server.Read(buf)
				server.Write([]byte(row.answer))
				server.Close()
			}()
			if _, err := exchange(client, "version", nil); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error is %v, want %q", err, row.want)
			}
		})
	}

	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	silent, err := net.Listen("unix", filepath.Join(dir, "ovs-vswitchd.1.ctl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := (Client{RunDir: dir}).Version(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent daemon: %v", err)
	}
}
