package node

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// TestAsk holds the command that pkg/cli/remote runs in the agents' containers.
func TestAsk(t *testing.T) {
	socket := agent(t, map[string]any{
		"/v1/text?a=1&b=x%2Fy": "as it is\n",
		"/v1/bad":              api.Error{Error: "the switch is away: start it"},
	})
	for _, row := range []struct {
		path, stdout, stderr string
		code                 int
	}{
		{"/v1/text?a=1&b=x%2Fy", "as it is\n", "", 0},
		{"/v1/bad", "", "tombolo: the switch is away: start it\n", 1},
		{"/v1/none", "", "tombolo: the agent's debug socket " + socket +
			" answered 404 Not Found for /v1/none: are this command and the agent of one version?\n", 1},
		{"status", "", "tombolo: \"status\" is no path of the agent's debug API: it begins with /, as /v1/status does\n", 1},
	} {
		stdout, stderr, code := tombolo(t, "tombolo", "ask", "--socket", socket, row.path)
		if stdout != row.stdout || stderr != row.stderr || code != row.code {
			t.Errorf("%s: code %d, stdout %q, stderr %q", row.path, code, stdout, stderr)
		}
	}
}

// TestAskFollow holds that a followed answer comes as it is written, and that the end of stdin ends the command.
func TestAskFollow(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("first\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })

	root := cli.Root("tombolo", "")
	root.AddCommand(Commands()...)
	stdin, end := io.Pipe()
	root.SetIn(stdin)
	out, written := io.Pipe()
	code := make(chan int, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		code <- cli.Run(ctx, root, []string{"ask", "--socket", socket, "--timeout", "1ms", "--follow", "/v1/x"}, written,
			io.Discard)
		written.Close()
	}()
	first := make([]byte, 6)
	if _, err := io.ReadFull(out, first); err != nil || !bytes.Equal(first, []byte("first\n")) {
		t.Fatalf("%q, %v", first, err)
	}
	end.Close()
	<-code
	<-ended
	if ctx.Err() != nil {
		t.Error("the command did not end with its stdin")
	}
}
