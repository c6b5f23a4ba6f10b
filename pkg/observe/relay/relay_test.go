package relay_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/observe/reverse"
)

// TestAgents shows which connections of agents the relay takes.
func TestAgents(t *testing.T) {
	c := newCluster(t)
	r := c.start()
	for _, row := range []struct{ name, token, want string }{
		{"another ServiceAccount", c.Token("kube-system", "stranger", api.RelayAudience, "node-1"),
			"403: {\"error\":\"system:serviceaccount:kube-system:stranger is not the ServiceAccount of agents"},
		{"another audience", c.Token("kube-system", "antrea-agent", "", "node-1"), "401: "},
		{"a token of no Node", c.Token("kube-system", "antrea-agent", api.RelayAudience, ""), "the token names no Node"},
		{"no token", "", "401: "},
		{"no token of this cluster", "x.y.z", "401: "},
	} {
		err := reverse.Serve(t.Context(), r.dial(), api.RelayHost, row.token, http.NotFoundHandler(),
			func() { t.Errorf("%s: taken", row.name) })
		var refused *reverse.Refused
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
	// The token names the Node, whatever its answers state.
	history := record.NewHistory(1 << 20)
	history.Add(dropOf("node-2", "shop", "web-1", "data"))
	r.agent(c.Token("kube-system", "antrea-agent", api.RelayAudience, "node-1"), fake("node-2", history))
	all := c.Observer()
	_, text := r.Get(all, api.PathObserve, nil)
	for _, e := range events(t, text) {
		if e.Begin != nil && e.Begin.Node != "node-1" || e.Drop != nil && e.Drop.Node != "node-1" {
			t.Errorf("node-1 speaks for another Node: %s", text)
		}
	}
	r.Relay.Nodes().Add("node-1")
	r.Relay.Nodes().Delete("node-1")
	if status, text := r.Get(all, api.PathNodes+"/node-1"+api.PathStatus, nil); status != http.StatusNotFound {
		t.Errorf("a Node that is gone answers %d: %s", status, text)
	}
}

// TestReaders asks two replicas as readers with different rights.
func TestReaders(t *testing.T) {
	c := newCluster(t)
	one, two := c.start(), c.start()
	histories := map[string]*record.History{}
	stop := map[string]func(){}
	for _, name := range []string{"node-1", "node-2"} {
		histories[name] = record.NewHistory(1 << 20)
		token := c.Token("kube-system", "antrea-agent", api.RelayAudience, name)
		stop[name] = one.agent(token, fake(name, histories[name]))
		two.agent(token, fake(name, histories[name]))
	}
	for _, r := range []*replica{one, two} {
		for _, name := range []string{"node-1", "node-2", "node-3"} {
			r.Relay.Nodes().Add(name)
		}
	}
	histories["node-1"].Add(dropOf("node-1", "shop", "web-1", "data"), dropOf("node-1", "other", "hidden-1", "data"))
	histories["node-2"].Add(dropOf("node-2", "data", "hidden-2", "shop"))
	all := c.Observer()
	developer := c.Token("kube-system", "developer", "", "") // of the API server
	stranger := c.Token("kube-system", "stranger", "", "")

	t.Run("everything", func(t *testing.T) {
		for _, r := range []*replica{one, two} {
			status, text := r.Get(all, api.PathObserve, nil)
			list := events(t, text)
			if n := nodesOf(list); status != http.StatusOK || strings.Count(text, `"drop"`) != 3 || n.All != 3 ||
				n.Answering != 2 || len(n.Absent) != 1 || n.Absent[0] != "node-3" {
				t.Errorf("%d: %s", status, text)
			}
		}
	})
	t.Run("one Node", func(t *testing.T) {
		_, text := one.Get(all, api.PathObserve, url.Values{api.AskParameter: {"node-2"}})
		if n := nodesOf(events(t, text)); strings.Count(text, `"drop"`) != 1 || n.All != 1 || n.Answering != 1 {
			t.Error(text)
		}
	})
	t.Run("one Namespace", func(t *testing.T) {
		status, text := one.Get(developer, api.PathObserve, url.Values{"namespace": {"shop", "data"}})
		if status != http.StatusOK || strings.Count(text, `"drop"`) != 2 || strings.Contains(text, "hidden") ||
			strings.Contains(text, "guard") && !strings.Contains(text, "shop/guard") || !strings.Contains(text, "web-1") {
			t.Errorf("%d: %s", status, text)
		}
		if _, text := one.Get(developer, api.PathObserve, url.Values{"namespace": {"shop"}, "pod": {"hidden"}}); strings.
			Contains(text, `"drop"`) {
			t.Errorf("a filter finds a hidden Pod: %s", text)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, row := range []struct {
			name, token, path string
			query             url.Values
			status            int
			want              string
		}{
			{"no token", "", api.PathObserve, nil, 401, "kubectl create token"},
			{"a wrong token", "x", api.PathObserve, nil, 401, "does not know the token"},
			{"no Namespace named", developer, api.PathObserve, nil, 403, `"need":{"group":"observe.tombolo.io",` +
				`"resource":"flows","verb":"list"}`},
			{"another Namespace", developer, api.PathObserve, url.Values{"namespace": {"data"}}, 403, `"namespace":"data"`},
			{"no rights", stranger, api.PathObserve, url.Values{"namespace": {"shop"}}, 403, "stranger may not list flows"},
			{"a wrong filter", all, api.PathObserve, url.Values{"verdikt": {"x"}}, 400, "no filter is called"},
			{"an agent", developer, api.PathNodes + "/node-1" + api.PathStatus, nil, 403, `"resource":"nodes/proxy"`},
			{"Nodes", developer, api.PathNodes, nil, 403, `"resource":"nodes"`},
			{"metrics", developer, api.PathMetrics, nil, 403, `"resource":"metrics"`},
			{"metrics of a Node", developer, api.PathMetrics + "/nodes/node-1", nil, 403, `"resource":"metrics"`},
			{"targets", developer, api.PathTargets, nil, 403, `"resource":"metrics"`},
			{"an absent Node", all, api.PathNodes + "/node-3" + api.PathStatus, nil, 503, "is not connected to this replica"},
			{"an unknown Node", all, api.PathNodes + "/node-9" + api.PathStatus, nil, 404, "no Node node-9"},
			{"an unknown path", all, api.PathNodes + "/node-1/debug/pprof", nil, 404, "agents have no path"},
			{"an agent's connection", all, reverse.Path, nil, 426, "for agents"},
		} {
			if status, text := one.Get(row.token, row.path, row.query); status != row.status ||
				!strings.Contains(text, row.want) {
				t.Errorf("%s: %d %s, want %d and %q", row.name, status, text, row.status, row.want)
			}
		}
	})
	t.Run("agents' answers", func(t *testing.T) {
		if _, text := one.Get(all, api.PathNodes+"/node-2"+api.PathStatus, nil); text != "status of node-2, headers 0" {
			t.Error(text)
		}
		if _, text := one.Get(all, api.PathMetrics+"/nodes/node-2", nil); text != "up{node=\"node-2\"} 1\n" {
			t.Error(text)
		}
		if _, text := one.Get(all, api.PathMetrics, nil); !strings.Contains(text,
			`tombolo_observe_relay_nodes{state="connected"} 2`) {
			t.Error(text)
		}
		_, text := one.Get(all, api.PathTargets, nil)
		if !strings.Contains(text, `{"targets":["tombolo-observe.tombolo-observe.svc:8443"],"labels":{"__metrics_path__":`+
			`"/metrics/nodes/node-1","instance":"node-1","node":"node-1"}}`) {
			t.Error(text)
		}
		if _, text := one.Get(all, api.PathNodes, nil); strings.Count(text, `"connected":true`) != 2 {
			t.Error(text)
		}
	})
	t.Run("follow", func(t *testing.T) {
		answer := two.Ask(t.Context(), all, api.PathObserve, url.Values{"follow": {"true"}, "last": {"0"}})
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		next := func(want string) {
			t.Helper()
			for lines.Scan() {
				if strings.Contains(lines.Text(), want) {
					return
				}
			}
			t.Fatalf("the answer ends before %s: %v", want, lines.Err())
		}
		next(`"answering":2`)
		one.Stop() // one replica fewer
		histories["node-1"].Add(dropOf("node-1", "shop", "late-1", "data"))
		next("late-1")
		history := record.NewHistory(1 << 20)
		history.Add(dropOf("node-3", "shop", "late-3", "data"))
		end := two.agent(c.Token("kube-system", "antrea-agent", api.RelayAudience, "node-3"), fake("node-3", history))
		next(`"answering":3`)
		history.Add(dropOf("node-3", "shop", "later-3", "data"))
		next("later-3")
		end()
		next(`"absent":["node-3"]`)
		var failed atomic.Bool // the Node's first answer
		again := fake("node-3", history)
		two.agent(c.Token("kube-system", "antrea-agent", api.RelayAudience, "node-3"), http.HandlerFunc(
			func(w http.ResponseWriter, q *http.Request) {
				if failed.CompareAndSwap(false, true) {
					http.Error(w, "{}", http.StatusServiceUnavailable)
					return
				}
				again.ServeHTTP(w, q)
			}))
		next("its answer has ended")
		next(`"answering":3`)
		history.Add(dropOf("node-3", "shop", "last-3", "data"))
		for lines.Scan() && !strings.Contains(lines.Text(), "last-3") { // without what the reader has
			if strings.Contains(lines.Text(), "late") {
				t.Errorf("again: %s", lines.Text())
			}
		}
	})
}

// TestHostileFilters asks with random filters as a reader of one Namespace. No answer has a word of the others.
func TestHostileFilters(t *testing.T) {
	c := newCluster(t)
	r := c.start()
	history := record.NewHistory(4 << 20)
	for i := range 200 {
		pod := fmt.Sprintf("secret-%d", i)
		switch i % 4 {
		case 0:
			history.Add(dropOf("node-1", "shop", "web-1", "data"))
		case 1:
			history.Add(dropOf("node-1", "data", pod, "shop"))
		case 2:
			history.Add(dropOf("node-1", "data", pod, "other"))
		case 3:
			e := dropOf("node-1", "other", pod, "shop")
			history.Add(record.Event{Connection: e.Drop})
		}
	}
	r.agent(c.Token("kube-system", "antrea-agent", api.RelayAudience, "node-1"), fake("node-1", history))
	developer := c.Token("kube-system", "developer", api.RelayAudience, "")
	random := rand.New(rand.NewPCG(3, 4))
	words := []string{"from=data/secret-1", "pod=secret-1", "to=10.10.1.7", "from=10.10.0.0/16", "namespace=data",
		"not-pod=web",
		"policy=guard", "node=node-2", "node=node-1", "port=5432", "verdict=dropped", "not-namespace=shop", "since=1h",
		"last=1000", "connections=true", "service=data/", "ask=node-1", "not-policy=guard"}
	shown := 0
	for range 200 {
		query := "namespace=shop"
		for range 1 + random.IntN(3) {
			query += "&" + words[random.IntN(len(words))]
		}
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		status, text := r.Get(developer, api.PathObserve, values)
		if status != http.StatusOK || strings.Contains(text, "secret") || strings.Contains(text, "data/guard") ||
			strings.Contains(text, "other/guard") {
			t.Fatalf("%s: %d\n%s", query, status, text)
		}
		for _, e := range events(t, text) {
			if d := e.Record(); d != nil {
				if shown++; d.From.Namespace != "shop" && d.From != (record.End{Namespace: d.From.Namespace}) ||
					d.To.Namespace != "shop" && d.To != (record.End{Namespace: d.To.Namespace}) {
					t.Fatalf("%s: a hidden end is shown: %+v", query, d)
				}
			}
		}
	}
	if shown < 500 {
		t.Errorf("%d records were shown: the test tests little", shown)
	}
}
