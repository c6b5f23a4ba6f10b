package record

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestView shows a drop to readers with different rights.
func TestView(t *testing.T) {
	const guard, deny = "NetworkPolicy data/guard", "NetworkPolicy shop/default-deny"
	local := func(r *Record) { r.To.Cluster, r.Way = "", "192.0.2.1" }
	for _, c := range []struct {
		name       string
		namespaces string
		change     func(*Record)
		want       func(*Record) // what becomes of the record; nil: it is not shown
	}{
		{"neither end", "other", local, nil},
		{"both ends", "shop,data", local, local},
		{"both ends, in a network", "shop,data", func(r *Record) { local(r); r.Network = "shop/blue" },
			func(r *Record) { local(r); r.Network = "shop/blue" }},
		{"the client's end, in a network of the server", "shop", func(r *Record) { local(r); r.Network = "data/blue" },
			func(r *Record) {
				r.To, r.Rule, r.Message = End{Namespace: "data"}, nil, MeaningOf(ByPolicy)
			}},
		{"the client's end", "shop", local, func(r *Record) {
			r.To, r.Rule, r.Message = End{Namespace: "data"}, nil, MeaningOf(ByPolicy)
		}},
		{"the server's end", "data", local, func(r *Record) {
			local(r)
			r.From, r.Node, r.Way, r.Policies = End{Namespace: "shop"}, "", "", nil
			r.Message = MeaningOf(ByPolicy)
		}},
		{"an end in another cluster", "data", func(r *Record) { r.Service, r.Asked = "", "" }, nil},
		{"an end outside", "data", func(r *Record) { local(r); r.From = End{IP: "198.51.100.7", Port: 9, Node: "n1"} },
			func(r *Record) {
				r.From, r.To.Cluster, r.Node, r.Policies = End{IP: "198.51.100.7", Port: 9}, "", "", nil
				r.Message = MeaningOf(ByPolicy)
			}},
		{"a Service without endpoints", "data", func(r *Record) { r.To = End{IP: "10.96.0.9", Port: 80} },
			func(r *Record) {
				r.From, r.To, r.Node, r.Policies = End{Namespace: "shop"}, End{IP: "10.96.0.9", Port: 80}, "", nil
				r.Message = MeaningOf(ByPolicy)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			message := func(r *Record) { r.Message = "dropped of " + guard + " and " + deny }
			v := View{Namespaces: map[string]bool{}}
			for _, name := range strings.Split(c.namespaces, ",") {
				v.Namespaces[name] = true
			}
			r := drop(func(r *Record) { message(r); c.change(r) })
			before := *r
			var want *Record
			if c.want != nil {
				want = drop(func(r *Record) { message(r); c.want(r) })
			}
			if diff := cmp.Diff(want, v.Show(r)); diff != "" {
				t.Errorf("-want +have:\n%s", diff)
			}
			if diff := cmp.Diff(&before, r); diff != "" {
				t.Errorf("the record itself has changed:\n%s", diff)
			}
			if all := (View{All: true}).Show(r); all != r {
				t.Error("a reader who may see everything gets another record")
			}
		})
	}
}

// secret marks what belongs to Namespaces that the reader of TestViewLeaksNothing may not see.
const secret = "secret"

// TestViewLeaksNothing makes random records twice, equal but for what the reader may not see. The reader gets the same
// answer for both, whatever the filter is, and no hidden word.
func TestViewLeaksNothing(t *testing.T) {
	v := View{Namespaces: map[string]bool{"mine": true, "ours": true}}
	random := rand.New(rand.NewPCG(1, 2))
	shown := 0
	for i := range 20_000 {
		seed := random.Uint64()
		one, two := twin(seed, "1"), twin(seed, "2")
		filter := randomFilter(random)
		query, err := url.ParseQuery(filter)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(query)
		if err != nil {
			t.Fatalf("%s: %v", filter, err)
		}
		texts := [2]string{}
		for j, r := range []*Record{one, two} {
			s := v.Show(r)
			if s == nil || !f.Takes(s) {
				continue
			}
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			texts[j] = string(text)
		}
		if texts[0] != texts[1] || strings.Contains(texts[0], secret) {
			t.Fatalf("record %d with filter %s: the reader learns of what is hidden:\n%s\n%s", i, filter, texts[0], texts[1])
		}
		if texts[0] != "" {
			shown++
		}
	}
	if shown < 500 {
		t.Errorf("%d records were shown: the test tests little", shown)
	}
}

// twin makes a random record. Hidden parts have the mark.
func twin(seed uint64, mark string) *Record {
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	hide := secret + mark
	end := func() End {
		switch r.IntN(6) {
		case 0, 1:
			return End{Namespace: pick("mine", "ours"), Pod: pick("web-1", "db-0"), IP: pick("10.0.0.1", "10.0.0.2"),
				Port: uint16(1 + r.IntN(3)), Node: pick("n1", "n2")}
		case 2:
			return End{IP: "198.51.100.1", Port: 7, Node: hide}
		case 3:
			return End{Namespace: "mine", Pod: hide, IP: "10.9.9." + mark, Port: 9, Node: hide, Cluster: "west"}
		}
		return End{Namespace: pick("theirs", "kube-system"), Pod: hide, IP: "10.8.8." + mark, Port: 8, Node: hide}
	}
	out := &Record{Verdict: pick(Allowed, Dropped, Rejected), Protocol: pick("TCP", "UDP"), From: end(), To: end(),
		Reason: pick(ByPolicy, Isolated, NoRoute), Table: "IngressRule", Count: uint64(r.IntN(3))}
	out.Node = pick(out.From.Node, out.To.Node)
	mine := func(e End) bool { return e.Cluster == "" && (e.Namespace == "mine" || e.Namespace == "ours") }
	policy := func(own bool) *Rule {
		if !own || r.IntN(2) == 0 {
			return &Rule{Policy: "NetworkPolicy theirs/" + hide, Name: hide}
		}
		return &Rule{Policy: "NetworkPolicy mine/p", Name: "ingress[0]"}
	}
	if r.IntN(2) == 0 {
		out.Rule = policy(true)
		out.Message = "dropped of " + out.Rule.Policy
	} else {
		out.Egress, out.Ingress = policy(mine(out.From)), policy(mine(out.To))
	}
	if out.Reason == Isolated {
		out.Policies = []string{policy(true).Policy, policy(true).Policy}
		out.Message = "isolated by " + strings.Join(out.Policies, ", ")
	}
	switch r.IntN(3) {
	case 0:
		out.Service, out.Asked = "mine/web", "10.96.0.1:80"
	case 1:
		if out.Service, out.Asked = "theirs/api", "10.96.0.2:80"; !mine(out.From) {
			out.Service, out.Asked = "theirs/"+hide, "10.96.0."+mark+":80"
		}
	}
	if !mine(out.From) || !mine(out.To) {
		out.Way = "192.0.2." + mark
	}
	return out
}

// randomFilter is a filter of one or two words, among them words about what is hidden.
func randomFilter(r *rand.Rand) string {
	var words []string
	for range 1 + r.IntN(2) {
		list := []string{
			"from=theirs/" + secret + "1", "to=theirs/" + secret + "1", "pod=" + secret + "1", "from=10.8.8.1", "to=10.8.8.0/24",
			"pod=10.9.9.1", "namespace=theirs", "namespace=mine", "service=theirs/" + secret + "1", "service=theirs/api",
			"cluster=west", "node=" + secret + "1", "node=n1", "port=8", "port=9", "port=80", "protocol=tcp", "verdict=dropped",
			"reason=policy", "policy=" + secret + "1", "policy=p", "way=192.0.2.1", "from=mine/", "to=ours/db",
		}
		not := ""
		if r.IntN(3) == 0 {
			not = NotPrefix
		}
		words = append(words, fmt.Sprint(not, list[r.IntN(len(list))]))
	}
	return strings.Join(words, "&")
}
