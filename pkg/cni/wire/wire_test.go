package wire

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// TestCall asks servers that answer well, badly and not at all.
func TestCall(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer string // as it is sent; then the connection is closed
		want   string
		code   uint
		msg    string
	}{
		{name: "result", answer: "HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}", want: `{"a":1}`},
		{name: "empty result", answer: "HTTP/1.1 200 OK\r\n\r\n"},
		{name: "error of the agent",
			answer: "HTTP/1.0 422 Unprocessable Entity\r\nContent-Length: 25\r\n\r\n{\"code\":101,\"msg\":\"full\"}",
			code:   CodeIPAM, msg: "full"},
		{name: "cut off in the body", answer: "HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\n{\"a\":1}",
			code: CodeTryAgainLater, msg: "ended before"},
		{name: "cut off in the head", answer: "HTTP/1.0 200 OK\r\nContent-", code: CodeTryAgainLater, msg: "ended before"},
		{name: "cut off in the first word", answer: "HT", code: CodeTryAgainLater, msg: "ended before"},
		{name: "closed at once", code: CodeTryAgainLater, msg: "ended before"},
		{name: "another path", answer: "HTTP/1.0 404 Not Found\r\n\r\n404 page not found", code: CodeIO,
			msg: `answered "404 Not Found"`},
		{name: "another protocol", answer: "SSH-2.0-OpenSSH\r\n", code: CodeIO, msg: `answered "SSH-2.0-OpenSSH"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, socket := listen(t)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, row.answer)
				}
			}()
			got, err := Call(t.Context(), socket, PathAdd, Request{Config: []byte("{}")})
			check(t, err, row.code, row.msg)
			if string(got) != row.want {
				t.Errorf("answer %q, want %q", got, row.want)
			}
		})
	}
	t.Run("no server", func(t *testing.T) {
		_, err := Call(t.Context(), filepath.Join(t.TempDir(), "s"), PathAdd, Request{Config: []byte("{}")})
		check(t, err, CodeTryAgainLater, "does not answer")
	})
	t.Run("no answer in time", func(t *testing.T) {
		_, socket := listen(t)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := Call(ctx, socket, PathAdd, Request{Config: []byte("{}")})
		check(t, err, CodeTryAgainLater, "no answer from")
	})
}

// TestCallServer calls a server of the standard library, as the agent has, with a result that it would send in chunks.
func TestCallServer(t *testing.T) {
	l, socket := listen(t)
	long := strings.Repeat("x", 100_000)
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := Decode(r.Body)
		if err != nil || r.URL.Path != PathDel || q.ContainerID != "c1" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, long)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	got, err := Call(t.Context(), socket, PathDel, Request{ContainerID: "c1", Config: []byte("{}")})
	if err != nil || string(got) != long {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(long))
	}
}

func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") // t.TempDir's names are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, socket
}

func check(t *testing.T, err error, code uint, msg string) {
	t.Helper()
	var e *types.Error
	if errors.As(err, &e); code == 0 && err != nil || code != 0 &&
		(e == nil || e.Code != code || !strings.Contains(e.Msg, msg)) {
		t.Errorf("error %v, want code %d and %q", err, code, msg)
	}
}
