package scenario

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/echo/watched"
)

// TestAnswers has west answer every second new connection until it is gone, and again later, at first one of ten.
func TestAnswers(t *testing.T) {
	start := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	var out strings.Builder
	for i := range 2000 { // 200 a second
		how := "ok test-cluster-north/node-1/nginx-a"
		switch {
		case i >= 400 && i < 800 && i%2 == 0: // until it is found gone, from 2 s to 4 s
			how = "failed: i/o timeout"
		case i < 400 && i%2 == 0 || i >= 1200 && i < 1400 && i%10 == 0 || i >= 1400 && i%2 == 0:
			how = "ok test-cluster-west/node-1/nginx-b"
		}
		fmt.Fprintf(&out, "%s 0.002 %s\n", start.Add(time.Duration(i)*5*time.Millisecond).Format(time.RFC3339Nano), how)
	}
	o := Observed{fresh: parse([]byte(out.String()))}
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

	if have := o.Away(at(2)); have != 1990*time.Millisecond {
		t.Errorf("requests go to west for %s, want 1.99 s", have)
	}
	if lost, of := o.Between(at(2), at(5)); lost != 200 || of != 600 {
		t.Errorf("from 2 s to 5 s %d of %d are lost, want 200 of 600", lost, of)
	}
	// It is plugged in after 5 s. From 6.6 s on a hundred have 8 of 80 and 10 of 20.
	first, share, ok := o.Answers("test-cluster-west/", 33, at(5))
	if !ok || first != time.Second || share < 1700*time.Millisecond || share > 2*time.Second {
		t.Errorf("west answers after %s, and has its share after %s (%t); want 1 s, 1.7 to 2 s", first, share, ok)
	}
	if first, _, ok := o.Answers("test-cluster-east/", 1, at(0)); ok || first >= 0 {
		t.Errorf("east, which does not serve, answers after %s", first)
	}
}

// TestLongest counts how long a request has waited after an event, and not before it: the first one had waited for
// three seconds already.
func TestLongest(t *testing.T) {
	start := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	var out strings.Builder
	for _, r := range []watched.Request{
		{Start: start, Took: 3200 * time.Millisecond},
		{Start: start.Add(time.Second), Took: time.Second},
		{Start: start.Add(2 * time.Second), Took: 9 * time.Second, Failed: "broken pipe"},
		{Start: start.Add(4 * time.Second), Took: 400 * time.Millisecond},
	} {
		out.WriteString(r.Line())
	}
	o := Observed{kept: parse([]byte(out.String()))}
	if have := o.Longest(start.Add(3 * time.Second)); have != 400*time.Millisecond {
		t.Errorf("the longest wait after 3 s is %s, want 400 ms", have)
	}
	if have := o.Longest(start.Add(-time.Second)); have != 3200*time.Millisecond {
		t.Errorf("the longest wait of all is %s, want 3.2 s", have)
	}
	if n := failed(o.kept); n != 1 {
		t.Errorf("%d connections are broken, want 1", n)
	}
}

// TestClient runs clients as kubectl exec does: one that answers until its input ends, and others that end early.
func TestClient(t *testing.T) {
	line := watched.Request{Start: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), Took: time.Second}.Line()
	for _, row := range []struct{ name, script, atStart, atEnd string }{
		{"until its input ends", `printf %s "$0"; cat`, "", ""},
		{"without a request", "echo refused >&2; exit 1", "refused", "refused"},
		{"broken session", `printf %s "$0"; echo "error: websocket closed" >&2; exit 1`, "", "websocket closed"},
		{"broken connection", `printf %s "$0"; echo "command terminated with exit code 1" >&2; exit 1`, "", ""},
		{"too few requests", `printf %s "$0" | head -c 5; echo; cat`, "", "0 requests of a client, want at least 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			c := start(exec.CommandContext(ctx, "sh", "-c", row.script, line), cancel)
			if have := fmt.Sprint(c.err); row.atStart == "" && c.err != nil || !strings.Contains(have, row.atStart) {
				t.Fatalf("it starts with %v, want %q", c.err, row.atStart)
			}
			if strings.Contains(row.script, "exit") && c.err == nil {
				<-c.exited
			}
			all, err := c.end(1)
			if have := fmt.Sprint(err); row.atEnd == "" && (err != nil || len(all) != 1) || !strings.Contains(have, row.atEnd) {
				t.Errorf("it ends with %d requests and %v, want %q", len(all), err, row.atEnd)
			}
		})
	}
}
