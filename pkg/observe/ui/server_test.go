package ui_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/observe/ui"
	"github.com/tombolo-net/tombolo/test/page"
)

// serve serves a Hub, and returns the address and the token of the page.
func serve(t *testing.T, hub *ui.Hub) (host, token string) {
	t.Helper()
	server, err := ui.Listen(0, hub)
	if err != nil {
		t.Fatal(err)
	}
	return serving(t, server)
}

// serving has a server serve until the test ends.
func serving(t *testing.T, server *ui.Server) (host, token string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	return u.Host, strings.TrimPrefix(u.Fragment, "token=")
}

// ask sends a request with headers.
func ask(t *testing.T, method, address, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// session returns the cookie that the token is changed into.
func session(t *testing.T, host, token string) *http.Cookie {
	t.Helper()
	answer := ask(t, http.MethodPost, "http://"+host+"/session", token, "Origin", "http://"+host)
	if answer.StatusCode != http.StatusNoContent || len(answer.Cookies()) != 1 {
		t.Fatalf("session: %s, cookies %v", answer.Status, answer.Cookies())
	}
	return answer.Cookies()[0]
}

// TestServer sends requests that other pages, other programs and other names of 127.0.0.1 could send.
func TestServer(t *testing.T) {
	host, token := serve(t, ui.NewHub())
	origin := "http://" + host
	c := session(t, host, token)
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Value == token {
		t.Errorf("cookie %v, want HttpOnly, SameSite=Strict, another value than the token", c)
	}
	port := host[strings.LastIndex(host, ":"):]
	cookie := c.Name + "=" + c.Value
	for _, row := range []struct {
		name, method, path, body string
		headers                  []string
		want                     int
	}{
		{name: "the page", path: "/", want: 200},
		{name: "its program", path: "/app.js", headers: []string{"Sec-Fetch-Site", "same-origin"}, want: 200},
		{name: "a link from another page", path: "/",
			headers: []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, want: 200},
		{name: "another name of the address", path: "/", headers: []string{"Host", "evil.example" + port}, want: 403},
		{name: "localhost", path: "/", headers: []string{"Host", "localhost" + port}, want: 403},
		{name: "another port", path: "/", headers: []string{"Host", "127.0.0.1:1"}, want: 403},
		{name: "the Model", path: "/api/link?key=x", headers: []string{"Cookie", cookie}, want: 404},
		{name: "without a cookie", path: "/api/link?key=x", want: 401},
		{name: "a question", method: "POST", path: "/api/question?about=why", body: "{}",
			headers: []string{"Cookie", cookie, "Origin", origin}, want: 501},
		{name: "a question without a cookie", method: "POST", path: "/api/question?about=why", body: "{}",
			headers: []string{"Origin", origin}, want: 401},
		{name: "a question from another origin", method: "POST", path: "/api/question?about=why", body: "{}",
			headers: []string{"Cookie", cookie, "Origin", "http://evil.example"}, want: 403},
		{name: "events without a cookie", path: "/api/events", want: 401},
		{name: "with a wrong cookie", path: "/api/events", headers: []string{"Cookie", c.Name + "=" + token}, want: 401},
		{name: "with the cookie of another port", path: "/api/events", headers: []string{"Cookie", "tombolo-1=" + c.Value},
			want: 401},
		{name: "with the cookie under another name", path: "/api/events",
			headers: []string{"Cookie", cookie, "Host", "evil.example" + port}, want: 403},
		{name: "from another origin", path: "/api/events", headers: []string{"Cookie", cookie, "Origin", "http://evil.example"},
			want: 403},
		{name: "from a file", path: "/api/events", headers: []string{"Cookie", cookie, "Origin", "null"}, want: 403},
		{name: "from another port's page", path: "/api/events",
			headers: []string{"Cookie", cookie, "Sec-Fetch-Site", "same-site"}, want: 403},
		{name: "as an image of another page", path: "/icon.svg",
			headers: []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, want: 403},
		{name: "session with a wrong token", method: "POST", path: "/session", body: token + "x",
			headers: []string{"Origin", origin}, want: 401},
		{name: "session without a token", method: "POST", path: "/session", headers: []string{"Origin", origin}, want: 401},
		{name: "session with a long body", method: "POST", path: "/session", body: strings.Repeat("x", 1<<20),
			headers: []string{"Origin", origin}, want: 401},
		{name: "session from another origin", method: "POST", path: "/session", body: token,
			headers: []string{"Origin", "http://evil.example"}, want: 403},
		{name: "session without an origin", method: "POST", path: "/session", body: token, want: 403},
		{name: "session by GET", path: "/session?" + token, want: 404},
		{name: "another method", method: "DELETE", path: "/", headers: []string{"Origin", origin}, want: 405},
	} {
		t.Run(row.name, func(t *testing.T) {
			method := row.method
			if method == "" {
				method = http.MethodGet
			}
			answer := ask(t, method, origin+row.path, row.body, row.headers...)
			if answer.StatusCode != row.want {
				text, _ := io.ReadAll(answer.Body)
				t.Errorf("%s, want %d: %s", answer.Status, row.want, text)
			}
			csp := answer.Header.Get("Content-Security-Policy")
			if !strings.Contains(csp, "default-src 'self'") || strings.Contains(csp, "unsafe") ||
				!strings.Contains(csp, "frame-ancestors 'none'") || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers %v", answer.Header)
			}
		})
	}
}

// reader reads the events of a page.
type reader struct {
	t     *testing.T
	lines *bufio.Reader
	has   map[string]json.RawMessage
}

func open(t *testing.T, host, token string) *reader {
	t.Helper()
	c := session(t, host, token)
	answer := ask(t, http.MethodGet, "http://"+host+"/api/events", "", "Cookie", c.Name+"="+c.Value)
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	return &reader{t: t, lines: bufio.NewReader(answer.Body), has: map[string]json.RawMessage{}}
}

// next reads an event, and returns the names of its sections.
func (r *reader) next() (names []string) {
	r.t.Helper()
	line, err := r.lines.ReadString('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.lines.ReadString('\n'); err != nil {
		r.t.Fatal(err)
	}
	var u ui.Update
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &u); err != nil {
		r.t.Fatalf("%v in %s", err, line)
	}
	if u.Full {
		clear(r.has)
	}
	for name, text := range u.Set {
		r.has[name] = text
		names = append(names, name)
	}
	for _, name := range u.Gone {
		delete(r.has, name)
		names = append(names, "-"+name)
	}
	slices.Sort(names)
	return names
}

// timeline returns the changes, the newest first.
func (r *reader) timeline() (out []string) {
	r.t.Helper()
	var changes []ui.Change
	if err := json.Unmarshal(r.has["timeline"], &changes); err != nil {
		r.t.Fatal(err)
	}
	for _, c := range changes {
		out = append(out, c.Cluster+": "+c.Object+": "+c.From+" > "+c.To)
	}
	return out
}

// TestTimelineStart shows clusters one by one, as their API servers answer: nothing has changed. A cluster that is no
// longer known is a change.
func TestTimelineStart(t *testing.T) {
	hub := ui.NewHub()
	host, token := serve(t, hub)
	r := open(t, host, token)
	r.next()
	three := page.Size{Clusters: 3, Gateways: 2, Nodes: 1}
	starting := func(i int, listed bool) ui.Snapshot {
		s := ui.Snapshot{Access: page.New(three)[i].Access, Reach: ui.Starting}
		if listed {
			s.Sets, s.Infos = page.New(three)[i].Sets, page.New(three)[i].Infos
		}
		return s
	}
	set := func(s ...ui.Snapshot) {
		hub.Set(time.Now(), ui.Build(s))
		r.next()
	}
	set(starting(0, false), starting(1, false), starting(2, false))
	set(page.New(three)[0], starting(1, false), starting(2, false))
	set(page.New(three)[0], starting(1, true), starting(2, false))
	set(page.New(three)[0], page.New(three)[1], starting(2, true))
	set(page.New(three)...)
	if have := r.timeline(); len(have) > 0 {
		t.Errorf("changes while clusters come:\n%s", strings.Join(have, "\n"))
	}
	s := page.New(three)[:2]
	page.SetWay(&s[0], "node-1", "10.2.0.1", mcv1alpha1.WayDown)
	for i := range s { // west, the last one, is no longer known
		s[i].Infos = s[i].Infos[:1]
		for _, g := range s[i].Gateways {
			g.Status.Ways = g.Status.Ways[:2]
		}
	}
	set(s...)
	have := r.timeline()
	for _, want := range []string{"shop/west: Cluster west: Ready > gone",
		"shop/east: Way east/node-1 → north/node-1: up > down", "shop/east: Way east/node-1 → west/node-1: up > gone"} {
		if !slices.Contains(have, want) {
			t.Errorf("the timeline lacks %s:\n%s", want, strings.Join(have, "\n"))
		}
	}
}

// TestEvents changes a ClusterSet while a page is open: an event has the changed sections only, and the timeline has
// the changes.
func TestEvents(t *testing.T) {
	hub := ui.NewHub()
	three := page.Size{Clusters: 3, Gateways: 1, Nodes: 1}
	set := func(s []ui.Snapshot) { hub.Set(time.Now(), ui.Build(s)) }
	set(page.New(three))
	host, token := serve(t, hub)
	r := open(t, host, token)
	r.next()
	if len(r.has) != 13 || len(r.timeline()) > 0 {
		t.Fatalf("%d sections, timeline %v; want 13 and an empty one", len(r.has), r.timeline())
	}
	for _, row := range []struct {
		name     string
		change   func(s []ui.Snapshot) []ui.Snapshot
		sections []string
		timeline []string
	}{
		{name: "a way goes down", change: func(s []ui.Snapshot) []ui.Snapshot {
			page.SetWay(&s[0], "node-1", "10.3.0.1", mcv1alpha1.WayDown)
			return s
		}, sections: []string{"cluster:shop/east", "link:shop/east|shop/west", "timeline"},
			timeline: []string{"shop/east: Way east/node-1 → west/node-1: up > down"}},
		{name: "the way comes back while an API server is lost", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[2].Reach = ui.Silent
			return s
		}, sections: []string{"cluster:shop/east", "cluster:shop/west", "link:shop/east|shop/west",
			"link:shop/north|shop/west", "nodes:shop/west", "services", "timeline"},
			timeline: []string{"shop/east: Way east/node-1 → west/node-1: down > up",
				"shop/west: Cluster west: Ready > no answer"}},
		{name: "the API server answers again, and its Gateway leaves", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[2].Gateways[0].Annotations = map[string]string{"multicluster.tombolo.io/phase": "leaving"}
			return s
		}, sections: []string{"cluster:shop/west", "link:shop/east|shop/west", "link:shop/north|shop/west", "nodes:shop/west",
			"services", "timeline"},
			timeline: []string{"shop/west: Gateway node-1: in use > leaving", "shop/west: Cluster west: no answer > Ready"}},
	} {
		set(row.change(page.New(three)))
		if have := r.next(); !slices.Equal(have, row.sections) {
			t.Errorf("%s: sections %v\nwant %v", row.name, have, row.sections)
		}
		if have := r.timeline(); !slices.Equal(have[:min(len(have), len(row.timeline))], row.timeline) {
			t.Errorf("%s: timeline\n%s\nwant\n%s", row.name, strings.Join(have, "\n"), strings.Join(row.timeline, "\n"))
		}
	}
	if n := len(r.timeline()); n != 5 {
		t.Errorf("%d changes in the timeline, want 5", n)
	}
	set(page.New(three)[:1]) // the others are known from this one only
	if have := r.next(); !slices.Contains(have, "-nodes:shop/north") {
		t.Errorf("sections %v do not take the Nodes of north away", have)
	}
	start := time.Now()
	for i := range 10 { // one event for several changes
		s := page.New(three)
		s[0].Version = "v1.38." + string(rune('0'+i))
		set(s)
	}
	for !strings.Contains(string(r.has["cluster:shop/east"]), "v1.38.9") {
		r.next()
	}
	events := 0
	for ; time.Since(start) < time.Second; events++ {
		set(page.New(page.Size{Clusters: 3, Gateways: 1, Nodes: 2 + events}))
		r.next()
	}
	if events > 4 {
		t.Errorf("%d events in a second, want 2 or 3", events)
	}
}
