package ui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"time"
)

// dist is the built page: `make page` builds it from web/.
//
//go:embed dist
var dist embed.FS

const (
	// maxPages is the number of pages that may be open at a time.
	maxPages = 16
	// aliveEvery is the longest time between two messages to a page.
	aliveEvery = 5 * time.Second
	// writeLimit is the longest time that a page may take for a message.
	writeLimit = 10 * time.Second
)

// policy is the Content-Security-Policy of all answers. It allows no content from other origins, and no inline scripts
// or styles.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// Server serves the page and the Model of a Hub on 127.0.0.1. A page sends the token in the URL's fragment once. After
// that a cookie replaces it.
type Server struct {
	hub       *Hub
	listener  net.Listener
	token     string // in the URL
	session   string // in the cookie
	pages     chan struct{}
	readers   chan struct{}
	recorders []Recorder
	questions chan struct{}
	answers   Questions // nil if it answers none
}

// Listen opens a port of 127.0.0.1, a free one if it is 0. Pages read the records of the recorders.
func Listen(port int, hub *Hub, recorders ...Recorder) (*Server, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("serve the map: %w; --port names another port, 0 a free one", err)
	}
	return &Server{hub: hub, listener: l, token: rand.Text(), session: rand.Text(),
		pages: make(chan struct{}, maxPages), readers: make(chan struct{}, maxReaders), recorders: recorders,
		questions: make(chan struct{}, maxQuestions)}, nil
}

// URL is the address that opens the page. It has the token.
func (s *Server) URL() string { return "http://" + s.host() + "/#token=" + s.token }

// Pages is the number of pages that are open.
func (s *Server) Pages() int { return len(s.pages) }

func (s *Server) host() string { return s.listener.Addr().String() }

// cookie returns the cookie's name. It contains the port, since a browser sends the cookies of all ports of a host to
// each of them.
func (s *Server) cookie() string {
	return "tombolo-" + strconv.Itoa(s.listener.Addr().(*net.TCPAddr).Port)
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: writeLimit, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the map: %w", err)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is a constant
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("POST /session", s.open)
	mux.HandleFunc("GET /api/events", s.private(s.events))
	mux.HandleFunc("GET /api/records", s.private(s.records))
	mux.HandleFunc("GET /api/link", s.private(s.link))
	mux.HandleFunc("POST /api/question", s.private(s.question))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if why := s.foreign(r); why != "" {
			http.Error(w, why, http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// foreign returns the reason why a request does not come from the page: its host name is another one, which a site made
// resolve to 127.0.0.1, or it comes from a page of another origin.
func (s *Server) foreign(r *http.Request) string {
	if r.Host != s.host() {
		return "The map answers only at http://" + s.host() + "/."
	}
	origin := r.Header.Get("Origin")
	if origin != "" && origin != "http://"+s.host() || r.Method != http.MethodGet && origin == "" {
		return "The map answers only its own page."
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return ""
	}
	// A link on another page may open the map. Such a request has no cookie, since the cookie is SameSite=Strict.
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.URL.Path == "/" {
		return ""
	}
	return "The map answers only its own page."
}

// open changes the token into the cookie.
func (s *Server) open(w http.ResponseWriter, r *http.Request) {
	token, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil || subtle.ConstantTimeCompare(token, []byte(s.token)) != 1 {
		http.Error(w, "The token is wrong. Open the URL that tombolo ui printed.", http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.session, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	w.WriteHeader(http.StatusNoContent)
}

// private refuses requests without the cookie.
func (s *Server) private(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := r.Cookie(s.cookie())
		if err != nil || subtle.ConstantTimeCompare([]byte(c.Value), []byte(s.session)) != 1 {
			http.Error(w, "The page has no session. Open the URL that tombolo ui printed.", http.StatusUnauthorized)
			return
		}
		f(w, r)
	}
}

// events sends the Model and then its changes as server-sent events, at most two a second.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.pages <- struct{}{}:
		defer func() { <-s.pages }()
	default:
		http.Error(w, fmt.Sprintf("%d pages are open already. Close one.", maxPages), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	var version uint64
	for {
		update, now, changed := s.hub.since(version)
		version = now
		update.Now = time.Now()
		text, err := json.Marshal(update)
		if err != nil {
			return
		}
		err = errors.Join(control.SetWriteDeadline(time.Now().Add(writeLimit)), write(w, text), control.Flush())
		if err != nil {
			return
		}
		if !wait(r.Context(), passEvery, nil) || !wait(r.Context(), aliveEvery, changed) {
			return
		}
	}
}

func write(w io.Writer, text []byte) error {
	_, err := fmt.Fprintf(w, "data: %s\n\n", text)
	return err
}

// wait waits for some time, or until a channel closes. It returns false if ctx ended.
func wait(ctx context.Context, d time.Duration, c <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-c:
	}
	return true
}

// link answers with one link and all its ways.
func (s *Server) link(w http.ResponseWriter, r *http.Request) {
	l, ok := s.hub.Link(r.URL.Query().Get("key"))
	if !ok {
		http.Error(w, "There is no such link.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l)
}
