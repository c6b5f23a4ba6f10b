package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	asking "github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/pkg/observe/hops"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/observe/ui"
)

// answering answers with the questions that it gets.
type answering struct{}

func (answering) Why(_ context.Context, cluster, node string, query url.Values) (api.Why, error) {
	if node == "gone" {
		return api.Why{}, errors.New("there is no such Node")
	}
	return api.Why{Notes: []string{cluster + " " + node + " " + query.Encode()}}, nil
}

func (answering) Trace(_ context.Context, q asking.Question) (asking.Answer, error) {
	text := fmt.Sprintf("%s in %s to %s:%s by %s %s at %s", q.From, q.FromCluster, q.To, q.Port, q.Protocol, q.Family,
		q.Node)
	hop := hops.Hop{Cluster: "east", Hop: api.Hop{Node: "n2", Output: "the text of ofproto/trace"}}
	return asking.Answer{Networks: []string{text}, Paths: []hops.Path{{Hops: []hops.Hop{hop}}}}, nil
}

// TestQuestions asks about the connections of records.
func TestQuestions(t *testing.T) {
	server, err := ui.Listen(0, ui.NewHub())
	if err != nil {
		t.Fatal(err)
	}
	server.AnswerWith(answering{})
	host, token := serving(t, server)
	c := session(t, host, token)
	post := func(about string, body string) (int, string) {
		t.Helper()
		answer := ask(t, http.MethodPost, "http://"+host+"/api/question?about="+about, body, "Origin", "http://"+host,
			"Cookie", c.Name+"="+c.Value)
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, strings.TrimSpace(string(text))
	}
	web := record.End{Namespace: "shop", Pod: "web", IP: "10.1.0.2", Port: 40112, Node: "n2"}
	db := record.End{Namespace: "shop", Pod: "db", IP: "10.1.0.3", Port: 5432, Node: "n3"}
	outside, imported := record.End{IP: "192.0.2.7", Port: 9}, record.End{IP: "10.98.0.7", Port: 5432, Cluster: "west"}
	inside6 := record.End{Namespace: "shop", Pod: "db", IP: "fd10::3"}
	for _, row := range []struct {
		name       string
		r          record.Record
		why, trace string
	}{
		{"from Pod to Pod", record.Record{Node: "n3", Protocol: "TCP", From: web, To: db},
			"set/east n3 family=ipv4&from=shop%2Fweb&port=5432&protocol=tcp&to=shop%2Fdb&trace=true",
			"shop/web in set/east to shop/db:5432 by tcp ipv4 at "},
		{"in a network with its own addresses", record.Record{Node: "n3", Protocol: "TCP", From: web, To: db,
			Network: "shop/blue"},
			"set/east n3 family=ipv4&from=shop%2Fweb%40blue&port=5432&protocol=tcp&to=shop%2Fdb%40blue&trace=true",
			"shop/web@blue in set/east to shop/db@blue:5432 by tcp ipv4 at "},
		{"behind a Service of the cluster", record.Record{Node: "n2", Protocol: "UDP", From: web, To: db,
			Service: "shop/front", Asked: "10.96.0.9:53"},
			"set/east n2 family=ipv4&from=shop%2Fweb&port=5432&protocol=udp&to=shop%2Fdb&trace=true",
			"shop/web in set/east to shop/db:5432 by udp ipv4 at "},
		{"to a Service of another cluster", record.Record{Node: "n2", Protocol: "TCP", From: web, To: imported,
			Service: "shop/antrea-mc-db", Asked: "10.96.0.10:80"},
			"set/east n2 family=ipv4&from=shop%2Fweb&port=80&protocol=tcp&to=shop%2Fantrea-mc-db&trace=true",
			"shop/web in set/east to shop/antrea-mc-db:80 by tcp ipv4 at "},
		{"to a Pod of another cluster", record.Record{Node: "n2", Protocol: "TCP", From: web, To: imported},
			"set/east n2 family=ipv4&from=shop%2Fweb&port=5432&protocol=tcp&to=10.98.0.7&trace=true",
			"shop/web in set/east to 10.98.0.7:5432 by tcp ipv4 at "},
		{"from outside", record.Record{Node: "n3", Protocol: "TCP", From: outside, To: db},
			"set/east n3 family=ipv4&from=192.0.2.7&port=5432&protocol=tcp&to=shop%2Fdb&trace=true",
			"192.0.2.7 in set/east to shop/db:5432 by tcp ipv4 at n3"},
		{"an echo request", record.Record{Node: "n2", Protocol: "ICMPv6", From: web, To: inside6},
			"set/east n2 family=ipv6&from=shop%2Fweb&protocol=icmp&to=shop%2Fdb&trace=true",
			"shop/web in set/east to shop/db: by icmp ipv6 at "},
		{"from another cluster", record.Record{Node: "n3", Protocol: "TCP", From: record.End{Namespace: "shop", Pod: "web",
			IP: "10.2.0.2", Cluster: "west"}, To: db},
			"set/east n3 family=ipv4&from=10.2.0.2&port=5432&protocol=tcp&to=shop%2Fdb&trace=true",
			"the client is in cluster west: open the record of that cluster"},
		{"of a Node that has gone", record.Record{Node: "gone", Protocol: "TCP", From: web, To: db},
			"there is no such Node", "shop/web in set/east to shop/db:5432 by tcp ipv4 at "},
	} {
		t.Run(row.name, func(t *testing.T) {
			body, err := json.Marshal(ui.Asked{Cluster: "set/east", Record: row.r})
			if err != nil {
				t.Fatal(err)
			}
			for about, want := range map[string]string{"why": row.why, "trace": row.trace} {
				status, text := post(about, string(body))
				have := fmt.Sprint(status, " ", text)
				if status == http.StatusOK {
					var out ui.Answered
					if err := json.Unmarshal([]byte(text), &out); err != nil {
						t.Fatal(err)
					}
					switch {
					case out.Why != nil:
						have = out.Why.Notes[0]
					case out.Failed != "":
						have = out.Failed
					case out.Trace != nil:
						if have = out.Trace.Networks[0]; out.Trace.Paths[0].Hops[0].Output != "" {
							t.Error("the answer has the text of ofproto/trace")
						}
					}
				}
				if !strings.HasPrefix(have, want) || strings.HasPrefix(want, "set/") && have != want {
					t.Errorf("%s: %s, want %s", about, have, want)
				}
			}
		})
	}
	for _, row := range []struct {
		about, body, want string
	}{
		{"else", "{}", `400 about="else" is no question: want why or trace`},
		{"why", "[", "400 The question is not understood"},
		{"why", `{"cluster":"` + strings.Repeat("x", 70<<10) + `"}`, "400 The question is not understood"},
	} {
		if status, text := post(row.about, row.body); !strings.HasPrefix(fmt.Sprint(status, " ", text), row.want) {
			t.Errorf("%s: %d %s, want %s", row.about, status, text, row.want)
		}
	}
}
