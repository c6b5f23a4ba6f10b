package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
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
	mux.HandleFunc("/download", stream)
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

// hello answers with two lines: the server's name, and the address that the request came from.
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

// stream sends ?bytes= bytes at ?rate= bytes a second (0: as fast as it goes).
func stream(w http.ResponseWriter, r *http.Request) {
	size, err := number(r, "bytes", 1<<20)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rate, err := number(r, "rate", 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("X-Server", identity())
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	const perSecond = 20
	chunk := int64(64 << 10)
	var tick <-chan time.Time
	if rate > 0 {
		chunk = max(rate/perSecond, 1)
		t := time.NewTicker(time.Second * time.Duration(chunk) / time.Duration(rate))
		defer t.Stop()
		tick = t.C
	}
	buf := make([]byte, chunk)
	for size > 0 {
		n := min(size, chunk)
		if _, err := w.Write(buf[:n]); err != nil {
			return // the client has gone
		}
		size -= n
		if tick == nil {
			continue
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick:
		case <-r.Context().Done():
			return
		}
	}
}

func number(r *http.Request, key string, otherwise int64) (int64, error) {
	text := r.URL.Query().Get(key)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%s: want a number of bytes", key, text)
	}
	return n, nil
}
