package lab

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCalls runs commands of kubectl in one process: commands that end well and badly, commands whose caller gives up,
// and commands whose process ends before they do.
func TestCalls(t *testing.T) {
	bin, err := findBinaries()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(endCalls)
	var all sync.WaitGroup
	for range 10 {
		for _, row := range []struct {
			args, input, out, errs string
			code                   int
		}{
			{"version --client", "", "Client Version: v", "", 0},
			{"label --local -f - a=b -o yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n", "a: b", "", 0},
			{"label --local -f - a=b -o yaml", "kind: [\n", "", "parsing STDIN", 1},
			{"get pods --kubeconfig= --server=http://127.0.0.1:1", "", "", "was refused", 1},
			{"get --nonsense", "", "", "unknown flag: --nonsense", 1},
			{"nonsense", "", "", `unknown command "nonsense"`, 1},
		} {
			all.Go(func() {
				r, err := callKubectl(t.Context(), bin.Kubernetes, row.input, strings.Fields(row.args))
				if err != nil || r.Code != row.code || !strings.Contains(r.Out, row.out) || !strings.Contains(r.Error, row.errs) {
					t.Errorf("kubectl %s: %+v, %v: want %+v", row.args, r, err, row)
				}
			})
		}
	}
	all.Wait()
	// More than a pipe holds, in both directions at once.
	large := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata: {text: " + strings.Repeat("x", 300<<10) +
		"}\n"
	for range 8 {
		all.Go(func() {
			r, err := callKubectl(t.Context(), bin.Kubernetes, large, strings.Fields("label --local -f - a=b -o yaml"))
			if err != nil || r.Code != 0 || len(r.Out) < 300<<10 {
				t.Errorf("a large object: %d bytes, code %d, %v: %s", len(r.Out), r.Code, err, r.Error)
			}
		})
	}
	all.Wait()

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ask := []string{"get", "--raw", "/", "--kubeconfig=", "--server=http://" + silent.Addr().String()}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if r, err := callKubectl(ctx, bin.Kubernetes, "", ask); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller who gives up: %+v, %v", r, err)
	}
	first := calls
	time.AfterFunc(100*time.Millisecond, func() { _ = first.cmd.Process.Signal(os.Kill) })
	if r, err := callKubectl(t.Context(), bin.Kubernetes, "", ask); !errors.Is(err, errCallerEnded) {
		t.Errorf("a process that was killed: %+v, %v", r, err)
	}
	if r, err := callKubectl(t.Context(), bin.Kubernetes, "", []string{"version", "--client"}); err != nil || r.Code != 0 {
		t.Errorf("the process after it: %+v, %v", r, err)
	}
	if calls == first {
		t.Error("the process is the same one")
	}
}
