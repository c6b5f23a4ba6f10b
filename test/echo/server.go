package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/tombolo-net/tombolo/pkg/benchmark/load"
)

// server answers with its name: cluster, Node and Pod, from the environment.
type server struct {
	http, udp string
	commands  string // socket for commands; empty: none
}

// identity is "cluster/node/pod", with "-" for what the environment does not say.
func identity() string {
	part := func(key string) string {
		if v := os.Getenv(key); v != "" {
			return v
		}
		return "-"
	}
	return part("CLUSTER") + "/" + part("NODE_NAME") + "/" + part("POD_NAME")
}

func (s *server) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	mux := http.NewServeMux()
	mux.HandleFunc("/", hello)
	mux.HandleFunc(load.StreamPath, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Server", identity())
		load.Stream(w, r)
	})
	h := &http.Server{Addr: s.http, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	udp, err := net.ListenPacket("udp", s.udp)
	if err != nil {
		return err
	}
	errs := make(chan error, 3)
	go func() { errs <- h.ListenAndServe() }()
	go func() { errs <- answerUDP(udp) }()
	if s.commands != "" {
		go func() { errs <- serveCommands(ctx, s.commands) }()
	}
	fmt.Printf("%s serves HTTP on %s and UDP on %s\n", identity(), s.http, s.udp)
	select {
	case <-ctx.Done():
		udp.Close()
		return h.Close()
	case err := <-errs:
		return err
	}
}

// hello answers with two lines: the server's name, and the address from which the request came.
func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Server", identity())
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		w.Header().Set("X-Client", host)
	}
	fmt.Fprintf(w, "%s\nclient %s\n", identity(), r.RemoteAddr)
}

func answerUDP(conn net.PacketConn) error {
	buf := make([]byte, 2048)
	for {
		_, from, err := conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		// A client that has gone is no reason to stop.
		_, _ = conn.WriteTo([]byte(identity()+"\nclient "+from.String()+"\n"), from)
	}
}
