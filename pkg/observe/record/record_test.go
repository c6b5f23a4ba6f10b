package record

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// drop is a record that tests change.
func drop(change func(*Record)) *Record {
	r := &Record{
		Time: time.Unix(1000, 0), Node: "n1", Verdict: Dropped, Protocol: "TCP",
		From:    End{Namespace: "shop", Pod: "web-7d9f-x2", IP: "10.10.0.5", Port: 40112, Node: "n1"},
		To:      End{Namespace: "data", Pod: "db-0", IP: "10.10.1.7", Port: 5432, Node: "n2", Cluster: "west"},
		Service: "data/db", Asked: "10.96.0.9:80", Reason: ByPolicy,
		Policies: []string{"NetworkPolicy shop/default-deny"}, Rule: &Rule{"NetworkPolicy data/guard", "ingress[0]"},
	}
	if change != nil {
		change(r)
	}
	return r
}

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		query string
		takes bool
	}{
		{"", true},
		{"from=shop/", true}, {"from=data/", false}, {"from=shop/web", true}, {"from=shop/web-7d9f-x2", true},
		{"from=shop/we", false}, {"from=web", true}, {"from=10.10.0.5", true}, {"from=10.10.0.0/24", true},
		{"from=10.10.1.0/24", false}, {"to=data/db", true}, {"to=shop/db", false},
		{"pod=data/db-0", true}, {"pod=web", true}, {"pod=cache", false},
		{"namespace=shop", true}, {"namespace=data", true}, {"namespace=sho", false},
		{"service=data/db", true}, {"service=data/", true}, {"service=shop/db", false},
		{"cluster=west", true}, {"cluster=east", false}, {"node=n1", true}, {"node=n2", true}, {"node=n3", false},
		{"port=5432", true}, {"port=80", true}, {"port=543", false},
		{"protocol=tcp", true}, {"protocol=UDP", false}, {"verdict=dropped", true}, {"verdict=allowed", false},
		{"reason=policy", true}, {"reason=isolated", false}, {"reason=isolated&reason=policy", true},
		{"policy=guard", true}, {"policy=shop/default-deny", true},
		{"policy=default-deny", true}, {"policy=data/guard", true}, {"policy=uard", false},
		{"not-reason=policy", false}, {"not-reason=isolated", true}, {"not-from=shop/&to=data/", false},
		{"from=shop/&to=shop/", false}, {"from=shop/&from=data/&to=data/", true},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(query)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		if got := f.Takes(drop(nil)); got != c.takes {
			t.Errorf("%s: takes the record: %v, want %v", c.query, got, c.takes)
		}
	}
}

func TestFilterErrors(t *testing.T) {
	for query, want := range map[string]string{
		"verdikt=dropped":  `no filter is called "verdikt": the filters are cluster, from,`,
		"verdict=drop":     "give one of allowed, dropped, rejected",
		"port=0":           "give a number from 1 to 65535",
		"port=http":        "give a number from 1 to 65535",
		"reason=firewall":  "give one of policy, isolated,",
		"from=":            "filter from is empty",
		"not-verdict=none": "give one of allowed",
	} {
		values, _ := url.ParseQuery(query)
		if _, err := Parse(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", query, err, want)
		}
	}
}

// TestReasons requires a meaning and a remedy of each reason, and different words.
func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Reasons {
		if r.Word == "" || r.Meaning == "" || r.Remedy == "" || seen[r.Word] {
			t.Errorf("reason %+v: a word, a meaning and a remedy are needed, and the word once", r)
		}
		seen[r.Word] = true
	}
}

// TestDocumentedReasons compares the reasons with docs/observe.md.
func TestDocumentedReasons(t *testing.T) {
	text, err := os.ReadFile("../../../docs/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := strings.Join(strings.Fields(string(text)), " ")
	for _, r := range Reasons {
		if row := fmt.Sprintf("- `%s`: %s %s", r.Word, r.Meaning, r.Remedy); !strings.Contains(guide, row) {
			t.Errorf("docs/observe.md lacks %s", row)
		}
	}
}

func event(i int) Event {
	return Event{Drop: drop(func(r *Record) { r.Time, r.Message = time.Unix(int64(i), 0), fmt.Sprint("number ", i) })}
}

// TestHistory has a history that cannot keep all events, and readers of any speed.
func TestHistory(t *testing.T) {
	h := NewHistory(100 * sizeOf(event(100)))
	slow := h.Next()
	for i := range 1000 {
		h.Add(event(i))
	}
	list, next, lost, _ := h.Read(slow)
	if len(list) == 0 || lost+uint64(len(list)) != 1000 || next != 1000 {
		t.Fatalf("a slow reader gets %d events, lost %d, and goes on at %d", len(list), lost, next)
	}
	if n := len(list); n < 95 || n > 105 {
		t.Errorf("%d events are kept, about 100 fit", n)
	}
	for i, e := range list {
		if want := int64(lost) + int64(i); e.Drop.Time.Unix() != want {
			t.Fatalf("event %d is of time %v, want %d", i, e.Drop.Time, want)
		}
	}
	if got, want := h.From().Unix(), int64(lost)-1; got != want {
		t.Errorf("the history is complete since %d, want %d", got, want)
	}
	if got := h.Last(10, time.Time{}, Filter{}); got != 990 {
		t.Errorf("the last 10 begin at %d", got)
	}
	if got := h.Last(0, time.Time{}, Filter{}); got != 1000 {
		t.Errorf("the last 0 begin at %d", got)
	}
	if got := h.Last(-1, time.Unix(950, 0), Filter{}); got != 950 {
		t.Errorf("those since 950 begin at %d", got)
	}
	_, next, _, changed := h.Read(next)
	select {
	case <-changed:
		t.Error("a reader is woken without an event")
	default:
	}
	h.Add(event(1000))
	<-changed
	if list, _, lost, _ := h.Read(next); len(list) != 1 || lost != 0 {
		t.Errorf("after an event the reader gets %d, lost %d", len(list), lost)
	}
}

// TestMemory holds that 16 MiB keep 20,000 drops at least (Hubble keeps about 4,096 events).
func TestMemory(t *testing.T) {
	if n := 16 << 20 / sizeOf(event(1)); n < 20_000 {
		t.Errorf("16 MiB keep %d records", n)
	} else {
		t.Logf("16 MiB keep %d records", n)
	}
}

// TestMerger has a connection that two Nodes have seen, and drops that come in another order than they were.
func TestMerger(t *testing.T) {
	now := time.Unix(5000, 0)
	for _, firstComesFirst := range []bool{true, false} {
		var m Merger
		client := drop(func(r *Record) {
			r.Verdict, r.Rule, r.First, r.Egress = Allowed, nil, true, &Rule{"NetworkPolicy shop/out", "egress[0]"}
		})
		server := drop(func(r *Record) {
			r.Verdict, r.Rule, r.Node, r.Service, r.Asked = Allowed, nil, "n2", "", ""
			r.Ingress = &Rule{"NetworkPolicy data/guard", "ingress[0]"}
		})
		list := []Event{{Connection: client}, {Connection: server}}
		if !firstComesFirst {
			list[0], list[1] = list[1], list[0]
		}
		m.Add(event(2000), now)
		for _, e := range list {
			m.Add(e, now)
		}
		m.Add(event(900), now)
		if early := m.Due(now.Add(MergeWait / 2)); len(early) != 0 {
			t.Errorf("%d events are due at once", len(early))
		}
		out := m.Due(now.Add(2 * MergeWait))
		if len(out) != 3 || out[0].Drop == nil || out[1].Connection == nil || out[2].Drop.Time.Unix() != 2000 {
			t.Fatalf("the events are %+v", out)
		}
		if c := out[1].Connection; c.Node != "n1" || strings.Join(c.Nodes, " ") != "n2" || c.Egress == nil ||
			c.Ingress == nil || c.Service != "data/db" {
			t.Errorf("the connection is %+v", c)
		}
		if client.Ingress != nil || server.Egress != nil {
			t.Error("the records that came in have changed")
		}
		later := *server
		later.Time = later.Time.Add(time.Hour)
		m.Add(Event{Connection: &later}, now)
		m.Add(Event{Connection: client}, now) // of another connection with the same ports
		if out := m.All(); len(out) != 2 {
			t.Errorf("two connections with the same ports are %d events", len(out))
		}
		m.Add(Event{Connection: server}, now)
		if out := m.All(); len(out) != 1 {
			t.Errorf("a connection after that is %d events", len(out))
		}
	}
}

// TestMergerNetworks has two Nodes report equal connections in two networks at the same time. They are two connections.
func TestMergerNetworks(t *testing.T) {
	var m Merger
	for _, node := range []string{"n1", "n2"} {
		for _, network := range []string{"shop/blue", "shop/red"} {
			m.Add(Event{Connection: drop(func(r *Record) {
				r.Verdict, r.Rule, r.Node, r.Network = Allowed, nil, node, network
			})}, time.Unix(5000, 0))
		}
	}
	var have []string
	for _, e := range m.All() {
		have = append(have, e.Connection.Network+" "+e.Connection.Node+" "+strings.Join(e.Connection.Nodes, " "))
	}
	if want := "shop/blue n1 n2, shop/red n1 n2"; strings.Join(have, ", ") != want {
		t.Errorf("the connections are %q, want %s", have, want)
	}
}

// TestMergerEnds takes the end of a connection from the Node that speaks for it, if several Nodes are read.
func TestMergerEnds(t *testing.T) {
	end := func(node string, first bool, at int64) Event {
		return Event{End: &Record{Node: node, First: first, Time: time.Unix(at, 0), Life: &Life{}}}
	}
	var one, both Merger
	for _, e := range []Event{{Begin: &Begin{Node: "n2"}}, end("n2", false, 1030)} {
		one.Add(e, time.Now())
	}
	if list := one.All(); len(list) != 2 {
		t.Errorf("a reader of one Node gets %d events, want 2", len(list))
	}
	for _, e := range []Event{{Begin: &Begin{Node: "n1"}}, {Begin: &Begin{Node: "n2"}}, end("n2", false, 1030),
		end("n1", true, 1000)} {
		both.Add(e, time.Now())
	}
	list := both.All()
	if len(list) != 3 || list[2].End == nil || list[2].End.Node != "n1" {
		t.Errorf("a reader of both Nodes gets %+v, want the end of n1 alone", list)
	}
	var late Merger // has read n2 alone when its end comes
	late.Add(end("n2", false, 1030), time.Now())
	late.Add(end("n1", true, 1000), time.Now())
	if list := late.All(); len(list) != 1 || list[0].End.Node != "n1" {
		t.Errorf("a reader that gets the end of n2 first has %+v, want the end of n1 alone", list)
	}
}

// TestSums sums records by values, and holds that a filter of a word and value takes the record.
func TestSums(t *testing.T) {
	for pod, want := range map[string]string{
		"web-7d9f5c8bd4-x2x5z": "web", "agent-x2x5z": "agent", "db-0": "db", "web": "web",
		"a-b": "a-b", "web-1a": "web-1a", "-x2x5z": "-x2x5z", "x-x2x5z-x2x5z": "x-x2x5z",
	} {
		if have := (End{Namespace: "n", Pod: pod}).workload(); have[0] != "n/"+want {
			t.Errorf("%s is of %s, want %s", pod, have, want)
		}
	}
	r := drop(nil)
	for _, w := range Words() {
		for _, value := range r.Values(w[0]) {
			f, err := Parse(url.Values{w[0]: {value}})
			if err != nil || !f.Takes(r) {
				t.Errorf("%s=%s does not take the record: %v", w[0], value, err)
			}
		}
	}
	s := Sums{By: []string{"to-namespace", "policy"}}
	ended := drop(func(r *Record) {
		r.Life = &Life{Sent: &Traffic{Bytes: 5}, Received: &Traffic{Bytes: 7}}
	})
	other := drop(func(r *Record) { r.Policies, r.Count = nil, 4 })
	for _, e := range []Event{{Drop: r}, {Drop: other}, {Connection: r}, {End: ended}, {Begin: &Begin{}}} {
		s.Add(e)
	}
	const want = "[{[data NetworkPolicy data/guard] 0 0 4 0 0} " +
		"{[data NetworkPolicy shop/default-deny, NetworkPolicy data/guard] 1 1 1 5 7}]"
	if have := fmt.Sprint(s.List()); have != want {
		t.Errorf("sums %s, want %s", have, want)
	}
	if err := CheckKeys([]string{"from", "colour"}); err == nil || !strings.Contains(err.Error(), "from-namespace") {
		t.Error(err)
	}
	many := Sums{By: []string{"from", "to"}}
	for i := range maxSums + 10 {
		many.Add(Event{Connection: &Record{From: End{IP: fmt.Sprint(i)}}})
	}
	if list := many.List(); len(list) != maxSums+1 || list[0].Values[0] != Other || list[0].Began != 10 {
		t.Errorf("%d sums, first %+v", len(list), list[0])
	}
}
