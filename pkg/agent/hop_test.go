package agent

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// hopText is the end of a hop as a text.
func hopText(h api.Hop) string {
	text := h.End.Verdict + " " + h.End.To
	if h.End.Reason != "" {
		text += h.End.Reason + " in " + h.End.Table + " " + h.End.Rule + strings.Join(h.End.Policies, ",")
	}
	if n := h.End.Next; n != nil {
		text += fmt.Sprintf(" Node %s cluster %s %s>%s", n.Node, n.Cluster, n.OuterSrc, n.OuterDst)
	}
	return strings.TrimSpace(text)
}

// TestHop follows packets through a real switch, which has no routes to other Nodes.
func TestHop(t *testing.T) {
	a := newAskedOf(t, family.Dual, func(c *config.Config) { c.AntreaProxy.ProxyAll = true })
	db4, db6 := a.db.IPs[0].Addr().String(), a.db.IPs[1].Addr().String()
	a.serve("store", db4, "10.11.2.9", db6)
	a.settle()
	hops := func(query url.Values) ([]api.Hop, string) {
		t.Helper()
		var list api.HopList
		e := a.get(api.PathHop+"?"+query.Encode(), &list)
		return list.Hops, e
	}
	ask := func(query string) url.Values {
		t.Helper()
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	const toFar = "dropped not-sent in Output  Node node-2 cluster  192.168.78.101>192.168.78.102"
	const isolated = "dropped isolated in IngressRule NetworkPolicy default/db"
	for _, row := range []struct{ name, query, want string }{
		{"Pod of this Node", "from=default/web&to=default/db&port=5432", "delivered Pod default/db"},
		{"Pod of another Node", "from=default/db&to=default/far&port=80", toFar},
		{"isolated", "from=default/web&to=" + db4 + "&port=80", isolated},
		{"isolated for egress", "from=default/web&to=default/far&port=80",
			"dropped isolated in EgressRule NetworkPolicy default/web"},
		{"outside", "from=default/db&to=192.0.2.7&port=443", "left"},
		{"the host", "from=default/db&to=" + selfGateway + "&port=443", "delivered the host of Node node-1"},
		{"Service, this endpoint", "from=default/web&to=default/store&family=ipv4&endpoint=" + db4,
			"delivered Pod default/db"},
		{"Service, the other one", "from=default/db&to=default/store&family=ipv4&endpoint=10.11.2.9", toFar},
	} {
		t.Run(row.name, func(t *testing.T) {
			all, e := hops(ask(row.query))
			if e != "" || len(all) == 0 {
				t.Fatal(e)
			}
			for _, h := range all {
				if hopText(h) != row.want {
					t.Errorf("have %q, want %q\n%s", hopText(h), row.want, h.Output)
				}
			}
		})
	}
	all, e := hops(ask("from=default/web&to=default/store&family=ipv4&endpoint=" + db4))
	if e != "" || len(all) != 1 || len(all[0].Choices) != 1 {
		t.Fatalf("%s, %+v", e, all)
	}
	choice := all[0].Choices[0]
	var to []string
	for _, b := range choice.Buckets {
		to = append(to, b.To+" "+b.Name)
	}
	slices.Sort(to)
	if want := []string{db4 + ":5432 default/db", "10.11.2.9:5432 default/far"}; !slices.Equal(to, want) ||
		choice.Owner != "Service default/store" || choice.Chosen < 0 || choice.Buckets[choice.Chosen].Name != "default/db" {
		t.Errorf("%+v: want %v", choice, want)
	}
	rules := 0
	for _, s := range all[0].Steps {
		if s.Table == "EgressRule" && s.Rule == "NetworkPolicy default/web egress[0]" {
			rules++
		}
		if s.Table == "Classify" && s.Owner != "Pod default/web" {
			t.Errorf("%+v: want the owner Pod default/web", s)
		}
	}
	if rules != 1 {
		t.Errorf("no step has the rule that lets it out: %+v", all[0].Steps)
	}

	far := "tcp,dl_src=0a:00:00:00:00:09,dl_dst=aa:bb:cc:dd:ee:ff,nw_src=10.11.2.9,nw_dst=" + db4 +
		",nw_ttl=63,tp_src=49152,tp_dst=5432"
	for _, row := range []struct {
		name, outer, packet, want string
	}{
		{"from another Node", "outerSrc=192.168.78.102&outerDst=192.168.78.101&fromNode=node-2", far,
			"delivered Pod default/db"},
		{"whose host has chosen the source", "outerDst=192.168.78.101&fromNode=node-2&key=0x0", far,
			"delivered Pod default/db"},
		{"from a stranger", "outerSrc=192.168.78.109&outerDst=192.168.78.101", far, "dropped not-admitted in Classify"},
		{"to an address without tunnels", "outerSrc=192.168.78.102&outerDst=192.168.78.199", far,
			"dropped not-admitted in Classify"},
		{"isolated", "outerSrc=192.168.78.102&outerDst=192.168.78.101", strings.Replace(far, "5432", "80", 1), isolated},
		{"by the host", "", strings.Replace(far, "10.11.2.9", "198.51.100.9", 1), "delivered Pod default/db"},
	} {
		t.Run(row.name, func(t *testing.T) {
			query := ask(row.outer)
			query.Set("packet", row.packet)
			all, e := hops(query)
			if e != "" || len(all) != 1 || hopText(all[0]) != row.want {
				t.Fatalf("%s, %+v: want %q", e, all, row.want)
			}
		})
	}
	for query, want := range map[string]string{
		"packet=-tcp":                   "give headers in ovs-ofctl's text",
		"packet=tcp,in_port=1 --ct":     "give headers in ovs-ofctl's text",
		"packet=tcp&outerDst=x":         `outerDst="x": give the address where the tunnel ends`,
		"packet=tcp&outerDst=192.0.2.1": "outerSrc is missing",
		"packet=tcp&outerDst=192.0.2.1&outerSrc=192.0.2.2&key=k": `key="k": give the key`,
		"packet=tcp&outerDst=192.0.2.1&fromNode=node-9": "fromNode=node-9: Node node-1 does not " +
			"know a tunnel",
		"from=default/web&to=default/store&endpoint=db":                       `endpoint="db": give the address`,
		"from=default/web&to=default/nothing&port=1":                          "no Service is called default/nothing",
		"packet=tcp,nw_src=fd00::1&outerSrc=192.168.78.102&outerDst=10.0.0.1": "one version of IP",
		"packet=" + strings.Repeat("tcp,", 1000) + "ip":                       "give headers",
	} {
		if _, e := hops(ask(query)); !strings.Contains(e, want) {
			t.Errorf("%s: %q, want %q", query[:min(80, len(query))], e, want)
		}
	}
}

// TestHopToSeveralGateways follows a packet to a cluster with two Gateways, of which the switch chooses one by a hash.
// Here the ways are not up, and the first one is taken. TestDemo has both up.
func TestHopToSeveralGateways(t *testing.T) {
	a := newAsked(t)
	a.join(ownName)
	west := a.world.imports["west"].DeepCopy()
	west.Spec.Features = []string{mcv1alpha1.FeatureActiveGateways}
	west.Spec.GatewayInfos = append(west.Spec.GatewayInfos, mcv1alpha1.GatewayInfo{GatewayIP: "192.168.77.102"})
	a.world.imports["west"] = west
	a.settle()
	const headers = "tcp,nw_src=192.168.78.101,nw_dst=10.96.0.20,nw_ttl=64,tp_src=49152,tp_dst=80"
	for _, query := range []string{"from=default/db&to=10.96.0.20&port=80&family=ipv4",
		"packet=" + url.QueryEscape(headers)} {
		var list api.HopList
		if e := a.get(api.PathHop+"?"+query, &list); e != "" || len(list.Hops) != 1 {
			t.Fatalf("%s: %s, %d hops", query, e, len(list.Hops))
		}
		if next := list.Hops[0].End.Next; next == nil || !strings.HasPrefix(next.Gateway, "192.168.77.10") {
			t.Errorf("%s: %s, want one of the Gateways of west\n%s", query, hopText(list.Hops[0]), list.Hops[0].Output)
		}
		if !strings.HasPrefix(list.Hops[0].Packet, hashed) {
			t.Errorf("%s: the packet %s has no hash: ofproto/trace does not follow it where a hash is computed", query,
				list.Hops[0].Packet)
		}
	}
}

// TestHopAcrossClusters follows packets to and from another cluster, on the Gateway and on another Node.
func TestHopAcrossClusters(t *testing.T) {
	for _, gateway := range []string{"node-2", ownName} {
		t.Run("the Gateway is "+gateway, func(t *testing.T) {
			a := newAsked(t)
			a.join(gateway)
			db := a.db.IPs[0].Addr().String()
			a.world.exports["default/store"] = &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
				Name: "store"}}
			a.serve("store", db, "10.96.0.20")
			a.settle()
			ask := func(query, packet string) (api.Hop, string) {
				t.Helper()
				values, err := url.ParseQuery(query)
				if err != nil {
					t.Fatal(err)
				}
				if packet != "" {
					values.Set("packet", packet)
				}
				var list api.HopList
				if e := a.get(api.PathHop+"?"+values.Encode(), &list); e != "" || len(list.Hops) != 1 {
					t.Fatalf("%s: %s, %d hops", query, e, len(list.Hops))
				}
				return list.Hops[0], hopText(list.Hops[0])
			}
			toWest := "Node node-2 cluster  >192.168.78.102" // a route of the machine may lead there, or not
			if gateway == ownName {
				toWest = "Node  cluster west 192.168.78.101>192.168.77.101"
			}
			for _, query := range []string{"from=default/db&to=10.96.0.20&port=80&family=ipv4",
				"from=default/db&to=default/store&cluster=west&family=ipv4"} {
				h, text := ask(query, "")
				if !strings.HasSuffix(text, toWest) || gateway == ownName && h.End.Next.Gateway != "192.168.77.101" {
					t.Errorf("%s: %s, %+v: want %s", query, text, h.End.Next, toWest)
				}
				for _, c := range h.Choices {
					if c.Chosen < 0 || c.Buckets[c.Chosen].To != "10.96.0.20:5432" || c.Buckets[c.Chosen].Name != "cluster west" {
						t.Errorf("%s: choice %+v", query, c)
					}
				}
			}
			headers := "tcp,dl_src=0a:00:00:00:00:09,dl_dst=aa:bb:cc:dd:ee:f0,nw_src=192.168.77.101,nw_ttl=62,tp_src=49152"
			from, to := "fromCluster=west&outerSrc=192.168.77.101&outerDst=192.168.78.101", ",nw_dst=10.97.0.10,tp_dst=80"
			if gateway != ownName { // it has chosen the endpoint
				from, to = "fromNode=node-2&outerSrc=192.168.78.102&outerDst=192.168.78.101", ",nw_dst="+db+",tp_dst=5432"
			}
			const isolated = "dropped isolated in IngressRule NetworkPolicy default/db"
			if _, text := ask(from+"&endpoint="+db, headers+to); text != isolated {
				t.Errorf("from west: %s, want %s", text, isolated)
			}
			delete(a.world.policies, "db")
			a.settle()
			if _, text := ask(from+"&endpoint="+db, headers+to); text != "delivered Pod default/db" {
				t.Errorf("from west: %s", text)
			}
			if gateway != ownName {
				return
			}
			if _, text := ask("fromCluster=west&outerDst=192.168.78.101&endpoint="+db, headers+to); text !=
				"delivered Pod default/db" {
				t.Errorf("from west, whose host chose the source: %s", text)
			}
			if _, text := ask(from, headers+",nw_dst="+db+",tp_dst=22"); text != "dropped not-exported in Exports" {
				t.Errorf("from west, to what is not exported: %s", text)
			}
		})
	}
}
