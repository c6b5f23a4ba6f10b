package hops

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// TestConnections joins records of two clusters to paths.
func TestConnections(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	web := record.End{Namespace: "shop", Pod: "web", IP: "10.11.1.2", Port: 40112, Node: "n2"}
	import_ := record.End{IP: "10.98.0.7", Port: 5432, Cluster: "id-west"}
	gateway := record.End{IP: "192.0.2.1", Port: 40112, Cluster: "id-east"}
	db := record.End{Namespace: "shop", Pod: "db-0", IP: "10.21.1.7", Port: 5432, Node: "n3"}
	at := func(cluster, node string, from, to record.End, change func(*record.Record)) Recorded {
		r := &record.Record{Time: start, Node: node, Verdict: record.Allowed, Protocol: "TCP", From: from, To: to, Count: 1}
		if change != nil {
			change(r)
		}
		e := record.Event{Connection: r}
		switch {
		case r.Life != nil:
			e = record.Event{End: r}
		case r.Verdict != record.Allowed:
			e = record.Event{Drop: r}
		}
		return Recorded{cluster, e}
	}
	asked := func(r *record.Record) { r.Asked = "10.98.0.7:5432" }
	dropped := func(r *record.Record) {
		r.Verdict, r.Table, r.Reason, r.Message = record.Dropped, "IngressRule", record.Isolated, "isolated by x"
		r.Time = start.Add(3 * time.Second)
	}
	whole := []Recorded{
		at("west", "n3", gateway, db, nil),
		at("west", "gw", gateway, db, func(r *record.Record) { asked(r); r.Time = start.Add(-2 * time.Second) }),
		at("east", "gw", web, import_, func(r *record.Record) { r.Way = "198.51.100.1" }),
		at("east", "n2", web, import_, func(r *record.Record) {
			r.Service, r.Asked, r.Egress = "shop/antrea-mc-db", "10.97.0.10:5432", &record.Rule{Policy: "p", Name: "egress[0]"}
		}),
	}
	other := gateway
	other.Port = 50000
	for _, row := range []struct {
		name string
		list []Recorded
		want string // the Nodes of legs, and the end of each path
	}{
		{"across clusters", whole, "east n2 gw, west gw n3: allowed, to shop/db-0 at Node west/n3"},
		{"joined by the relay", append(whole[:2:2], at("east", "n2", web, import_, func(r *record.Record) {
			r.Nodes = []string{"gw"}
		})), "east n2 gw, west gw n3: allowed"},
		{"dropped at the server", append(whole[1:4:4], at("west", "n3", gateway, db, dropped)),
			"east n2 gw, west gw n3: dropped at Node west/n3, in table IngressRule (isolated): isolated by x"},
		{"another port", append(whole[2:4:4], at("west", "gw", other, db, asked), at("west", "n3", other, db, nil)),
			"east n2 gw, west gw n3: allowed"},
		{"the client's own address", append(whole[2:4:4], at("west", "n3", web, db, asked)), "east n2 gw, west n3: allowed"},
		{"no record there", whole[2:], "east n2 gw: one-sided: it goes to cluster id-west"},
		{"no record of the client", whole[:2], "west gw n3: one-sided: the client is in cluster id-east"},
		{"no record of the server's Node", append(whole[2:4:4], whole[1]),
			"east n2 gw, west gw: one-sided: Node west/n3 of the server"},
		{"no record of the client's Node", append(whole[:2:2], whole[2]),
			"east gw, west gw n3: one-sided: Node east/n2 of the client"},
		{"long before", append(whole[2:4:4], at("west", "n3", gateway, db, func(r *record.Record) {
			asked(r)
			r.Time = start.Add(-time.Hour)
		})), "west n3: one-sided: the client is in cluster id-east; east n2 gw: one-sided: it goes to cluster id-west"},
		{"ended, and the same port again", []Recorded{
			at("east", "n2", web, db, nil), at("east", "n3", web, db, nil),
			at("east", "n2", web, db, func(r *record.Record) {
				r.Time, r.Life = start.Add(time.Minute), &record.Life{Began: start, Seconds: 60}
			}),
			at("east", "n3", web, db, func(r *record.Record) {
				r.Time, r.Life = start.Add(time.Minute+time.Second), &record.Life{Began: start, Seconds: 61}
			}),
			at("east", "n2", web, db, func(r *record.Record) { r.Time = start.Add(2 * time.Minute) }),
		}, "east n2 n3: allowed; east n2: one-sided: Node east/n3 of the server"},
		{"ends that are hidden", []Recorded{at("east", "", record.End{Namespace: "x"}, db, nil)},
			"east: one-sided: Node east/n3 of the server"},
		{"no records", []Recorded{{"east", record.Event{Begin: &record.Begin{Node: "n2"}}}}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var have []string
			for _, p := range Connections(row.list) {
				var legs []string
				for _, l := range p.Legs {
					legs = append(legs, strings.Join(append([]string{l.Cluster}, l.Nodes...), " "))
				}
				text := strings.Join(legs, ", ") + ": " + p.End.Text
				if p.End.Verdict == OneSided {
					text = strings.Join(legs, ", ") + ": one-sided: " + p.End.Text
				}
				have = append(have, text)
			}
			want := strings.Split(row.want, "; ")
			if row.want == "" {
				want = nil
			}
			if !slices.EqualFunc(have, want, strings.HasPrefix) {
				t.Errorf("paths %q, want %q", have, want)
			}
		})
	}
	if p := Connections(whole)[0]; p.Legs[0].Record.Egress == nil || p.Legs[0].Record.Way != "198.51.100.1" ||
		p.Legs[0].Candidates != 1 {
		t.Errorf("the first leg is %+v", p.Legs[0])
	}
	third := record.End{IP: "192.0.2.1", Port: 50001}
	two := append(whole[2:4:4], at("west", "gw", other, db, asked), at("west", "gw", third, db, asked))
	if p := Connections(two)[0]; p.Legs[0].Candidates != 2 {
		t.Errorf("two connections could be the next leg: %+v", p.Legs[0])
	}
}

// TestConnectionsInNetworks has equal connections in two networks, whose records come from both Nodes.
func TestConnectionsInNetworks(t *testing.T) {
	var list []Recorded
	for _, node := range []string{"n2", "n3"} {
		for _, network := range []string{"shop/blue", "shop/red"} {
			list = append(list, Recorded{"east", record.Event{Connection: &record.Record{Time: time.Unix(5000, 0), Node: node,
				Verdict: record.Allowed, Protocol: "TCP", Count: 1, Network: network,
				From: record.End{IP: "10.50.0.2", Port: 40112, Node: "n2"},
				To:   record.End{IP: "10.50.0.18", Port: 80, Node: "n3"}}}})
		}
	}
	out := Connections(list)
	if len(out) != 2 {
		t.Fatalf("%d connections, want 2", len(out))
	}
	for _, p := range out {
		if len(p.Legs) != 1 || len(p.Legs[0].Nodes) != 2 {
			t.Errorf("the path is %+v", p)
		}
	}
}
