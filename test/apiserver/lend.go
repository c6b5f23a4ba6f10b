package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// EnvLender names the socket of a program that lends servers (test/apiserver/lender). Without it, a test program keeps
// its own.
const EnvLender = "TOMBOLO_APISERVERS"

// A borrower opens a connection for each server, and sends requests, one in a line. The lender answers each with a
// line. The server is lent until the connection ends.
type request struct {
	Do      string // take, stop, start, or return; a server that is not returned ends with the connection
	Options Options
}

type answer struct {
	Error   string `json:",omitempty"`
	URL     string `json:",omitempty"`
	CA      []byte `json:",omitempty"`
	EtcdURL string `json:",omitempty"`
}

// loan is a connection to the lender.
type loan struct {
	connection net.Conn
	lines      *bufio.Reader
}

// ask sends a request, and waits for the answer.
func (l *loan) ask(ctx context.Context, q request) (answer, error) {
	end := context.AfterFunc(ctx, func() { _ = l.connection.SetDeadline(time.Unix(1, 0)) })
	defer end()
	text, err := json.Marshal(q)
	if err != nil {
		return answer{}, err
	}
	var a answer
	_, err = l.connection.Write(append(text, '\n'))
	if err == nil {
		text, err = l.lines.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return answer{}, fmt.Errorf("%s an API server of the lender: %w", q.Do, err)
	}
	return a, nil
}

// borrow takes a server of the lender.
func borrow(ctx context.Context, socket string, o Options) (*Server, error) {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("reach the lender of API servers: %w; unset %s to start servers without it", err, EnvLender)
	}
	l := &loan{connection, bufio.NewReader(connection)}
	a, err := l.ask(ctx, request{Do: "take", Options: o})
	if err != nil {
		_ = connection.Close()
		return nil, err
	}
	return &Server{loan: l, etcdURL: a.EtcdURL, access: access(a.URL, a.CA)}, nil
}

func access(url string, ca []byte) *rest.Config {
	return &rest.Config{Host: url, BearerToken: admin, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// Lend lends servers at a socket until ctx ends, and ends them then.
func Lend(ctx context.Context, socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer os.Remove(socket)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		connection, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		go lend(ctx, connection)
	}
}

// lend serves one borrower.
func lend(ctx context.Context, connection net.Conn) {
	defer connection.Close()
	lines := bufio.NewReader(connection)
	var s *Server
	defer func() {
		if s != nil {
			s.giveBack(true)
		}
	}()
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var q request
		var a answer
		if err = json.Unmarshal(text, &q); err == nil {
			switch {
			case q.Do == "take" && s == nil:
				if s, err = take(ctx, q.Options); err == nil {
					a = answer{URL: s.url(), CA: s.access.CAData, EtcdURL: s.etcdURL}
				}
			case s == nil:
				err = errors.New("take a server first")
			case q.Do == "stop":
				s.Stop()
			case q.Do == "start":
				err = s.Start(ctx)
			case q.Do == "return":
				s.giveBack(false)
				s = nil
			default:
				err = fmt.Errorf("a lender cannot %q", q.Do)
			}
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if text, err = json.Marshal(a); err != nil {
			return
		}
		if _, err := connection.Write(append(text, '\n')); err != nil {
			return
		}
	}
}
