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
			From: client, To: server, Life: &record.Life{Late: true}}},
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
		"12:00:05.000 ended     TCP   shop/web-7d9f:40112 -> 10.20.1.7@west:5432, bytes not counted, named at its end " +
			"[n1]", "",
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
