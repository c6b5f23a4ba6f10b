package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// serve adds a Service with endpoints to the world.
func (a *asked) serve(name string, endpoints ...string) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.ClusterIP = "10.97.0.10"
	s.Spec.Ports = []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-a",
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(5432)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, ip := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	a.world.services["default/"+name], a.world.slices["default/"+name+"-a"] = s, slice
	a.settle()
}

// stages has a word for each stage: egress of the client, ingress of the server.
func stages(c api.WhyConnection) string {
	var out []string
	for _, s := range c.Stages {
		text := map[bool]string{true: "allowed", false: "denied"}[s.Allowed]
		switch {
		case s.Pod == "":
			text = "nothing"
		case !s.Here:
			text += " at " + s.Node
		case s.Trace != nil && s.Trace.Agrees:
			text += ", traced"
		case s.Trace != nil && s.Trace.Error != "":
			text += ", " + s.Trace.Error
		case s.Trace != nil:
			text += ", the switch says otherwise"
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// TestWhy asks about connections, and has a real switch prove the answers.
func TestWhy(t *testing.T) {
	a := newAsked(t)
	a.serve("store", a.db.IPs[0].Addr().String(), "10.11.2.9", "198.51.100.9")
	for _, row := range []struct {
		name, query string
		want        []string // the stages of each connection
		reasons     []string // somewhere in the reasons of the first
	}{
		{
			name: "allowed by two rules", query: "from=default/web&to=default/db&port=5432",
			want: []string{"allowed, traced; allowed, traced"},
			reasons: []string{
				"Allow of NetworkPolicy default/web egress[0]: to Pods with app=db in Namespace default, every port",
				"Allow of NetworkPolicy default/db ingress[0]: from Pods with app=web in Namespace default or 198.51.100.0/24, " +
					"TCP/5432",
			},
		},
		{name: "port by name", query: "from=default/web&to=default/db&port=main",
			want: []string{"allowed, traced; allowed, traced"}},
		{
			name: "denied where it comes to", query: "from=default/web&to=default/db&port=80",
			want:    []string{"allowed, traced; denied, traced"},
			reasons: []string{"NetworkPolicies isolate the Pod for ingress, and none of their rules allows it"},
		},
		{name: "another protocol", query: "from=default/web&to=default/db&port=5432&protocol=udp",
			want: []string{"allowed, traced; denied, traced"}},
		{name: "without ports", query: "from=default/web&to=default/db&protocol=icmp",
			want: []string{"allowed, traced; denied, traced"}},
		{
			name: "denied where it comes from", query: "from=default/web&to=198.51.100.9&port=443",
			want:    []string{"denied, traced; nothing"},
			reasons: []string{"isolate the Pod for egress", "198.51.100.9 is no Pod of this cluster"},
		},
		{
			name: "nothing isolates", query: "from=default/db&to=default/web&port=80",
			want:    []string{"allowed, traced; allowed, traced"},
			reasons: []string{"no policy applies to the Pod for egress", "from everybody, every port"},
		},
		{name: "to itself", query: "from=default/web&to=default/web&port=80",
			want: []string{"allowed, traced; allowed, traced"}, reasons: []string{"a Pod always reaches itself"}},
		{name: "from another Node", query: "from=default/far&to=default/db&port=5432",
			want: []string{"allowed at node-2; allowed, traced"}, reasons: []string{"default/web egress[0]"}},
		{name: "from another Node, denied", query: "from=default/far&to=default/db&port=81",
			want: []string{"allowed at node-2; denied, traced"}},
		{name: "to another Node", query: "from=default/db&to=default/far&port=80",
			want: []string{"allowed, traced; allowed at node-2"}},
		{name: "by address",
			query: "from=" + a.web.IPs[0].Addr().String() + "&to=" + a.db.IPs[0].Addr().String() + "&port=5432",
			want:  []string{"allowed, traced; allowed, traced"}},
		{name: "from the world", query: "from=198.51.100.7&to=default/db&port=5432",
			want: []string{"nothing; allowed, traced"}},
		{name: "from a range", query: "from=203.0.113.0/24&to=default/db&port=5432",
			want: []string{"nothing; denied, traced"}},
		{
			name: "from an unknown Pod", query: "from=10.11.2.77&to=default/db&port=5432",
			want:    []string{"nothing; denied, traced"},
			reasons: []string{"10.11.2.77 is in a podCIDR of Node node-2, and no Pod with it is known"},
		},
		{name: "from the Node", query: "from=" + selfGateway + "&to=default/db&port=1",
			want: []string{"nothing; allowed, traced"}, reasons: []string{"for the kubelet's probes"}},
		{
			name: "by a Service", query: "from=default/web&to=default/store",
			want: []string{"denied, traced; allowed at node-2", "allowed, traced; allowed, traced", "denied, traced; nothing"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			var w api.Why
			if e := a.get(api.PathWhy+"?trace=true&"+row.query, &w); e != "" {
				t.Fatal(e)
			}
			var have []string
			reasons := ""
			for i, c := range w.Connections {
				have = append(have, stages(c))
				for _, s := range c.Stages {
					if i == 0 {
						reasons += s.Reason + "\n"
					}
				}
				if allowed := !strings.Contains(stages(c), "denied"); c.Allowed != allowed {
					t.Errorf("connection allowed %v, its stages say %s", c.Allowed, stages(c))
				}
			}
			// Endpoints are in the order of their addresses.
			if len(row.want) != len(have) {
				t.Fatalf("%q, want %q", have, row.want)
			}
			wanted := map[string]int{}
			for i := range have {
				wanted[row.want[i]]++
				wanted[have[i]]--
			}
			for text, n := range wanted {
				if n != 0 {
					t.Errorf("%q: have %q, want %q\n%+v", text, have, row.want, w)
				}
			}
			for _, text := range row.reasons {
				if !strings.Contains(reasons, text) {
					t.Errorf("no %q in the reasons:\n%s", text, reasons)
				}
			}
		})
	}
}

// TestWhyAcrossClusters asks about a client that connects to another cluster, and about clients in other clusters.
func TestWhyAcrossClusters(t *testing.T) {
	for _, gateway := range []string{"node-2", ownName} {
		t.Run("the Gateway is "+gateway, func(t *testing.T) {
			a := newAsked(t)
			ip := map[string]string{ownName: selfAddress, "node-2": "192.168.78.102"}[gateway]
			a.world.gateways[gateway] = &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
				Name: gateway}, GatewayIP: ip, InternalIP: ip}
			a.world.imports["west"] = &mcv1alpha1.ClusterInfoImport{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "west-clusterinfo"},
				Spec: mcv1alpha1.ClusterInfo{ClusterID: "west", ServiceCIDR: "10.96.0.0/16",
					GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.77.101"}}},
			}
			for app, id := range map[string]uint32{"web": 12, "guest": 13} {
				a.world.labels[app] = labelIdentity("app="+app, id)
			}
			p := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}
			p.Spec.Priority, p.Spec.AppliedTo = 1,
				[]crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}
			p.Spec.Ingress = []crdv1beta1.Rule{{Action: crdv1beta1.ActionAllow, From: []crdv1beta1.Peer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
					Scope: crdv1beta1.ScopeClusterSet},
			}}}
			a.world.others = []client.Object{p}
			a.settle()
			// A packet that no policy judges is not traced to its end. On the Gateway other clusters reach only exported
			// Services.
			a.world.exports["default/store"] = &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
				Name: "store"}}
			a.serve("store", a.db.IPs[0].Addr().String())
			for _, row := range []struct{ query, want, reason string }{
				{"from=identity/12&cluster=west&to=default/db&port=5432", "nothing; allowed, traced",
					"Allow of AntreaNetworkPolicy default/db ingress[0]"},
				{"from=identity/13&to=default/db&port=5432", "nothing; denied, traced",
					"NetworkPolicies isolate the Pod for ingress"},
				{"from=identity/unknown&to=default/db&port=5432", "nothing; denied, traced",
					"have no number in the ClusterSet yet"},
				{"from=192.168.77.101&to=default/db&port=5432", "nothing; denied, traced",
					"NetworkPolicies isolate the Pod for ingress"},
				{"from=default/web&to=10.96.0.20&port=80&cluster=west", "denied, traced; nothing", "with --from identity/12"},
				{"from=default/db&to=10.96.0.20&port=80&cluster=west", "allowed, traced; nothing", "with --from identity/unknown"},
			} {
				var w api.Why
				if e := a.get(api.PathWhy+"?trace=true&"+row.query, &w); e != "" {
					t.Errorf("%s: %s", row.query, e)
					continue
				}
				reasons := ""
				for _, s := range w.Connections[0].Stages {
					reasons += s.Reason + "\n"
				}
				if have := stages(w.Connections[0]); have != row.want || !strings.Contains(reasons, row.reason) {
					t.Errorf("%s: %s, want %s\n%swant %q", row.query, have, row.want, reasons, row.reason)
				}
			}
			for query, want := range map[string]string{
				"from=identity/99&to=default/db&port=1": "identity/99 is no number of a set of labels in the " +
					"ClusterSet",
				"from=identity/x&to=default/db&port=1":              "identity/x is no number",
				"from=identity/12&to=default/db&port=1&cluster=far": `this Node knows no cluster "far"; it knows west`,
			} {
				if e := a.get(api.PathWhy+"?"+query, &api.Why{}); !strings.Contains(e, want) {
					t.Errorf("%s: %q, want %q", query, e, want)
				}
			}
			var list api.IdentityList
			if e := a.get(api.PathIdentities, &list); e != "" {
				t.Fatal(e)
			}
			if i := slices.IndexFunc(list.Identities,
				func(i api.Identity) bool { return strings.HasSuffix(i.Labels, "app=web") }); i < 0 ||
				list.Identities[i].ClusterSet != 12 {
				t.Errorf("identities %+v, want number 12 in the ClusterSet for app=web", list.Identities)
			}

			keyed := a.world.imports["west"].DeepCopy()
			keyed.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: keyNamed("west")}
			a.world.imports["west"] = keyed
			a.serve("far", "10.96.0.20")
			for _, to := range []string{"10.96.0.20", "service/default/far"} {
				var w api.Why
				e := a.get(api.PathWhy+"?from=default/web&port=80&to="+to, &w)
				if want := "packets to 10.96.0.20 are dropped in table Route: it is of cluster west, which is reached " +
					"encrypted"; e != "" || !slices.ContainsFunc(w.Notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
					t.Errorf("to %s without encryption here: %s notes %q, want %q", to, e, w.Notes, want)
				}
			}
		})
	}
}

// TestWhyBadInput asks questions without an answer. The errors name the parameter and the remedy.
func TestWhyBadInput(t *testing.T) {
	a := newAsked(t)
	a.serve("db", a.db.IPs[0].Addr().String())
	a.world.objects["default/new"] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"},
		Spec: corev1.PodSpec{NodeName: "node-2"}}
	lying := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lying"},
		Spec: corev1.PodSpec{NodeName: "node-2"}}
	lying.Status.PodIPs = []corev1.PodIP{{IP: a.db.IPs[0].Addr().String()}}
	a.world.objects["default/lying"] = lying
	a.settle()
	for query, want := range map[string]string{
		"from=default/lying&to=default/web&port=1": "Node node-2 cannot have (podCIDRs)",
		"to=default/db&port=1": "from is missing: give a Pod or Service as " +
			"namespace/name, or an address",
		"from=default/web":                   "to is missing",
		"from=web&to=default/web&port=1":     `from: "web" is neither`,
		"from=default/web&to=a/b/c/d&port=1": `to: "a/b/c/d" is neither`,
		"from=default/nobody&to=default/web&port=1": "from: no Pod with a network of its own and no Service " +
			"is called default/nobody",
		"from=default/new&to=default/web&port=1": "from: Pod default/new has no address yet: wait until " +
			"it runs",
		"from=default/web&to=default/db&port=1": "there is a Pod and a Service default/db: give " +
			"pod/default/db or service/default/db",
		"from=service/default/db&to=default/web&port=1":           "is a Service, and connections come from its Pods",
		"from=default/web&to=service/default/db&port=81":          "Service default/db has no such port; it has 80/TCP",
		"from=default/web&to=service/default/db&protocol=udp":     "has no such port",
		"from=default/web&to=pod/default/db":                      "port is missing",
		"from=default/web&to=pod/default/db&port=0":               `port "0" is neither a number from 1 to 65535 nor the name`,
		"from=default/web&to=pod/default/db&port=wap":             `port "wap" is neither`,
		"from=default/web&to=pod/default/db&port=1&protocol=x":    `protocol "x" is not one of TCP, UDP, SCTP and ICMP`,
		"from=default/web&to=pod/default/db&port=1&protocol=icmp": "ICMP has no ports",
		"from=default/web&to=10.1.2.3&port=1&cluster=west":        `this Node knows no cluster "west"; it knows no other`,
		"from=default/web&to=10.1.2.3&port=1&trace=perhaps":       "give true or false",
	} {
		if e := a.get(api.PathWhy+"?"+query, &api.Why{}); !strings.Contains(e, want) {
			t.Errorf("%s: %q, want %q", query, e, want)
		}
	}
	var w api.Why
	if e := a.get(api.PathWhy+"?from=default/web&to=service/default/db", &w); e != "" ||
		fmt.Sprint(w.To) != "{Service default/db 10.97.0.10   0}" {
		t.Errorf("service/default/db: %q, %+v", e, w.To)
	}
}

// hasAddress reports whether an address of a Pod's status counts. On this Node an interface must have it. On another
// Node the Node must be able to have it.
func (w *world) hasAddress(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool {
		if p.Spec.NodeName == ownName {
			return slices.ContainsFunc(slices.Collect(maps.Values(w.pods)), func(a cni.Attachment) bool {
				return a.PodName == p.Name && a.IPs[0].Addr().String() == ip.IP
			})
		}
		n := w.nodes[p.Spec.NodeName]
		return n != nil && slices.ContainsFunc(n.Spec.PodCIDRs, func(text string) bool {
			r, err := netip.ParsePrefix(text)
			return err == nil && r.Contains(netip.MustParseAddr(ip.IP))
		})
	})
}

// askWhy asks about connections of Pods of this Node. If the switch can trace them, it has to agree.
func (w *walk) askWhy() {
	w.t.Helper()
	r := rand.New(rand.NewPCG(w.seed, uint64(w.number))) // separate, so that questions do not change the walk
	pods := w.world.podObjects()
	maps.DeleteFunc(pods, func(_ string, p *corev1.Pod) bool { return !w.world.hasAddress(p) })
	here := maps.Clone(pods)
	maps.DeleteFunc(here, func(_ string, p *corev1.Pod) bool { return p.Spec.NodeName != ownName })
	if len(here) == 0 {
		return
	}
	for range 3 {
		from, to := anyOf(r, here), anyOf(r, pods)
		if r.IntN(2) == 0 {
			from, to = to, from
		}
		query := fmt.Sprintf("?trace=true&from=pod/%s&to=pod/%s&port=%d&protocol=%s", from, to, oneOf(r, 53, 80, 8080),
			oneOf(r, "tcp", "udp"))
		var y api.Why
		a := asked{walk: w}
		if e := a.get(api.PathWhy+query, &y); e != "" {
			w.fail("why %s: %s", query, e)
		}
		for _, s := range y.Connections[0].Stages {
			if s.Trace == nil || !s.Trace.Judged {
				continue
			}
			if w.proved++; !s.Trace.Agrees {
				w.fail("why %s: %s says allowed %v since %s; the switch says %v: %s", query, s.Direction, s.Allowed, s.Reason,
					s.Trace.Allowed, s.Trace.Tables)
			}
		}
	}
}
