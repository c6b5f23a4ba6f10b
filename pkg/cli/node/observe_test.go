package node

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// TestObserve prints the records of an agent.
func TestObserve(t *testing.T) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.Local)
	client := record.End{Namespace: "shop", Pod: "web-7d9f", IP: "10.10.0.5", Port: 40112, Node: "n1"}
	server := record.End{IP: "10.20.1.7", Port: 5432, Cluster: "west"}
	events := []record.Event{
		{Begin: &record.Begin{Node: "n1", From: at, Drops: true}},
		{Drop: &record.Record{Time: at.Add(2 * time.Second), Node: "n1", Verdict: record.Dropped, Protocol: "TCP",
			From: client, To: server, Reason: record.ByPolicy, Message: "dropped of AntreaClusterNetworkPolicy guard no\x1b[31m",
			Table: "EgressAdmin", Count: 3}},
		{Connection: &record.Record{Time: at.Add(time.Second), Node: "n1", Verdict: record.Allowed, Protocol: "TCP",
			From: client, To: server, Service: "shop/db", Way: "192.0.2.7", Count: 1,
			Egress: &record.Rule{Policy: "NetworkPolicy shop/out", Name: "egress[0]"}}},
		{Missing: &record.Missing{Node: "n1", Time: at.Add(3 * time.Second), Lost: 7, Why: "the switch limits reports"}},
		{End: &record.Record{Time: at.Add(4 * time.Second), Node: "n1", Verdict: record.Allowed, Protocol: "TCP", Count: 1,
			From: client, To: server, Service: "shop/db", Life: &record.Life{Began: at.Add(time.Second), Seconds: 3,
				Sent: &record.Traffic{Packets: 5, Bytes: 1234}, Received: &record.Traffic{Packets: 4, Bytes: 99}}}},
		{End: &record.Record{Time: at.Add(5 * time.Second), Node: "n1", Verdict: record.Allowed, Protocol: "TCP", Count: 1,
			From: client, To: server, Network: "shop/red", Life: &record.Life{Late: true}}},
	}
	var lines strings.Builder
	for _, e := range events {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(text, '\n'))
	}
	socket := agent(t, map[string]any{
		"/v1/observe?connections=true&follow=false&from=shop%2F&last=20":         lines.String(),
		"/v1/observe?connections=false&follow=false&last=20&not-reason=isolated": "no line of JSON\n",
	})
	stdout, stderr, code := tombolo(t, "tombolo", "observe", "--socket", socket, "--connections", "--from", "shop/")
	want := strings.Join([]string{
		"12:00:01.000 allowed   TCP   shop/web-7d9f:40112 -> 10.20.1.7@west:5432 by Service shop/db by way 192.0.2.7, " +
			"out by NetworkPolicy shop/out egress[0] [n1]",
		"12:00:02.000 dropped   TCP   shop/web-7d9f:40112 -> 10.20.1.7@west:5432: " +
			"dropped of AntreaClusterNetworkPolicy guard no_[31m (3 packets) [n1 EgressAdmin]",
		"12:00:03.000 missing   Node n1 lost 7 records: the switch limits reports",
		"12:00:04.000 ended     TCP   shop/web-7d9f:40112 -> 10.20.1.7@west:5432 by Service shop/db after 3s, " +
			"sent 1234 bytes (5 packets), received 99 bytes (4 packets) [n1]",
		"12:00:05.000 ended     TCP   shop/web-7d9f:40112 -> 10.20.1.7@west:5432 in VirtualNetwork shop/red, " +
			"bytes not counted, named at its end [n1]", "",
	}, "\n")
	if stdout != want || stderr != "" || code != 0 {
		t.Errorf("code %d, stderr %q, stdout:\n%s\nwant:\n%s", code, stderr, stdout, want)
	}
	stdout, _, _ = tombolo(t, "tombolo", "observe", "--socket", socket, "--connections", "--from", "shop/", "-o", "json")
	var first record.Event
	if err := json.NewDecoder(strings.NewReader(stdout)).Decode(&first); err != nil || first.Begin == nil ||
		strings.Count(stdout, "\n") != len(events) {
		t.Errorf("as JSON: %v, %s", err, stdout)
	}
	_, stderr, code = tombolo(t, "tombolo", "observe", "--socket", socket, "--not", "reason=isolated")
	if code != 1 || !strings.Contains(stderr, "this Node: understand the agent's line") {
		t.Errorf("code %d for an answer that is no JSON, stderr %q", code, stderr)
	}
	for _, bad := range [][]string{{"--verdict", "maybe"}, {"--not", "x"}, {"-o", "xml"}, {"--not", "color=red"}} {
		if _, stderr, code := tombolo(t, append([]string{"tombolo", "observe", "--socket", socket}, bad...)...); code != 1 ||
			stderr == "" {
			t.Errorf("%v: code %d, stderr %q", bad, code, stderr)
		}
	}
}

// history is what an agent has recorded: a dropped packet, a connection of two Nodes that has ended, and one to another
// cluster.
func history(t *testing.T) string {
	t.Helper()
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.Local)
	web := record.End{Namespace: "shop", Pod: "web-7d9f5c8bd4-x2x5z", IP: "10.10.0.5", Port: 40112, Node: "n1"}
	db := record.End{Namespace: "data", Pod: "db-0", IP: "10.10.1.7", Port: 5432, Node: "n2"}
	r := func(change func(*record.Record)) *record.Record {
		out := &record.Record{Time: at, Node: "n1", Verdict: record.Allowed, Protocol: "TCP", From: web, To: db, Count: 1,
			Service: "data/db", Asked: "10.96.0.9:80", First: true}
		change(out)
		return out
	}
	var lines strings.Builder
	for _, e := range []record.Event{
		{Begin: &record.Begin{Node: "n1", From: at, Drops: true}},
		{Connection: r(func(r *record.Record) {
			r.Egress = &record.Rule{Policy: "NetworkPolicy shop/out", Name: "egress[0]"}
		})},
		{Connection: r(func(r *record.Record) { r.Node, r.First, r.Service, r.Asked = "n2", false, "", "" })},
		{End: r(func(r *record.Record) {
			r.Time = at.Add(3 * time.Second)
			r.Life = &record.Life{Began: at, Seconds: 3, Sent: &record.Traffic{Packets: 5, Bytes: 1234},
				Received: &record.Traffic{Packets: 4, Bytes: 99}}
		})},
		{Connection: r(func(r *record.Record) {
			r.Time, r.From.Port, r.Service, r.Way = at.Add(time.Minute), 40113, "data/far", "192.0.2.7"
			r.To = record.End{IP: "10.98.0.7", Port: 5432, Cluster: "west"}
		})},
		{Drop: r(func(r *record.Record) {
			r.Time, r.Verdict, r.Node, r.Reason, r.Table = at.Add(2*time.Minute), record.Dropped, "n2", record.Isolated,
				"IngressRule"
			r.From.Port, r.Count, r.Policies, r.Message = 40114, 3, []string{"NetworkPolicy data/o'k"}, "isolated"
		})},
	} {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(text, '\n'))
	}
	return lines.String()
}

// TestObserveTogether shows sums, hints and paths of records.
func TestObserveTogether(t *testing.T) {
	all := history(t)
	path := "/v1/observe?connections=true&follow=false&from=shop%2Fweb&since=1h"
	socket := agent(t, map[string]any{
		"/v1/observe?connections=true&follow=false&since=1h": all, path: all,
		"/v1/observe?connections=false&follow=false&last=20":                        all,
		"/v1/observe?connections=true&follow=false&from=none&since=1h":              "",
		"/v1/observe?connections=true&follow=true&from=shop%2Fweb&last=0":           all,
		"/v1/observe?connections=true&follow=false&from=shop%2Fweb&port=1&since=1h": all,
	})
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"--since", "1h", "--connections", "--by", "from,service,rule"}, `
FROM      SERVICE   RULE                              DROPPED  BEGAN  ENDED  SENT  RECEIVED
shop/web  data/db   NetworkPolicy data/o'k            3        0      0      0     0
shop/web  data/db   NetworkPolicy shop/out egress[0]  0        1      0      0     0
shop/web  data/far  -                                 0        1      0      0     0
shop/web  data/db   -                                 0        0      1      1234  99
`},
		{[]string{"--by", "reason"}, `
REASON    DROPPED
isolated  3
-         0
`},
		{[]string{"--by", "node", "-o", "json"}, `"by":["node"],"values":["n2"],"began":0,"ended":0,"dropped":3,`},
		{[]string{"hints"}, `
--service data/db                     3
--service data/far                    1
--to data/db                          3
--to 10.98.0.7                        1
--verdict allowed                     3
--verdict dropped                     1
--way 192.0.2.7                       1

PACKETS  REASON    NEXT
3        isolated  tombolo policy why --from shop/web-7d9f5c8bd4-x2x5z --to data/db-0 --port 5432
`},
		{[]string{"hints"}, "--policy 'NetworkPolicy data/o'\\''k' "},
		{[]string{"hints", "-o", "json"}, `"next":[{"reason":"isolated","command":"tombolo policy why`},
		{[]string{"path", "shop/web:40112"}, `
12:00:00.000 TCP shop/web-7d9f5c8bd4-x2x5z:40112
1. n1, n2
   shop/web-7d9f5c8bd4-x2x5z:40112 -> 10.96.0.9:80 (Service data/db) as data/db-0:5432
   out by NetworkPolicy shop/out egress[0]
=> allowed, to data/db-0 at Node n2, ended after 3s, sent 1234 bytes (5 packets), received 99 bytes (4 packets)
`},
		{[]string{"path", "shop/web", "--last", "1"}, `
=> dropped at Node n2, in table IngressRule (isolated): isolated
`},
		{[]string{"path", "shop/web:40113", "--wait", "30s"}, `
   -> cluster west, by way 192.0.2.7
=> it goes to cluster west, of which there is no record:`},
		{[]string{"path", "shop/web:40112", "-o", "json"}, `"end":{"verdict":"allowed",`},
		{[]string{"path", "none"}, "no Node has a record of a connection of none since 1h"},
	} {
		stdout, stderr, code := tombolo(t, append([]string{"tombolo", "observe", "--socket", socket}, row.args...)...)
		if have := "\n" + stdout + stderr; !strings.Contains(have, row.want) || code != 0 {
			t.Errorf("%v: code %d, output:\n%s\nwant:\n%s", row.args, code, have, row.want)
		}
	}
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"--by", "colour"}, "sum them by some of cluster, from, from-namespace"},
		{[]string{"--by", "to", "--every", "1ms"}, "give a second or more"},
		{[]string{"path"}, "path needs CLIENT"},
		{[]string{"path", "shop/web:x"}, `"x" is no port`},
		{[]string{"path", "shop/web", "--last", "0"}, "give 1 or more"},
		{[]string{"path", "shop/web", "--port", "http"}, "from 1 to 65535"},
	} {
		_, stderr, code := tombolo(t, append([]string{"tombolo", "observe", "--socket", socket}, row.args...)...)
		if code != 1 || !strings.Contains(stderr, row.want) {
			t.Errorf("%v: code %d, stderr %q, want %q", row.args, code, stderr, row.want)
		}
	}
}

// TestNext proposes a command for each reason of a drop.
func TestNext(t *testing.T) {
	pods := record.Record{Protocol: "UDP", From: record.End{Namespace: "shop", Pod: "web", IP: "10.10.0.5"},
		To: record.End{IP: "10.10.1.7", Port: 53}, Service: "dns/dns"}
	for reason, want := range map[string]string{
		record.ByPolicy:    "tombolo policy why --from shop/web --to 10.10.1.7 --port 53 --protocol udp",
		record.NoEndpoints: "kubectl get endpointslices -n dns -l kubernetes.io/service-name=dns",
		record.NotAllowed:  "kubectl get service -n dns dns -o yaml",
		record.NotExported: "kubectl get serviceexports -A",
		record.NotAdmitted: "tombolo diagnose",
		record.NoRoute:     "tombolo trace --from shop/web --to 10.10.1.7 --port 53 --protocol udp",
	} {
		r := pods
		if r.Reason = reason; next(&r) != want {
			t.Errorf("%s: %s, want %s", reason, next(&r), want)
		}
	}
	if r := (record.Record{Reason: record.ByPolicy, From: record.End{Namespace: "x"}}); next(&r) != "tombolo diagnose" {
		t.Error(next(&r))
	}
}
