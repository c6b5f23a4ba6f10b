package tenant

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOwnNetwork reads the annotations about a Pod's first interface, of the Pod and of its Namespace.
func TestOwnNetwork(t *testing.T) {
	const own = "annotation net.juniper.contrail.podnetwork: "
	for _, row := range []struct {
		name  string
		pod   OwnRequest
		space NamespaceFacts
		want  string
		err   string
	}{
		{name: "nothing", want: "none"},
		{name: "the Pod's", pod: OwnRequest{Network: "a/blue"}, want: "blue eth0 []"},
		{name: "without a Namespace", pod: OwnRequest{Network: " blue"}, want: "blue eth0 []"},
		{name: "the Namespace's", space: NamespaceFacts{PodNetwork: "a/blue"}, want: "blue eth0 []"},
		{name: "both", pod: OwnRequest{Network: "a/red"}, space: NamespaceFacts{PodNetwork: "a/blue"}, want: "red eth0 []"},
		{name: "addresses", pod: OwnRequest{IPs: "10.0.1.7, fd00::7"}, space: NamespaceFacts{PodNetwork: "a/blue"},
			want: "blue eth0 [10.0.1.7 fd00::7]"},
		{name: "an isolated Namespace without it", space: NamespaceFacts{Isolated: true}, want: "none"},
		{name: "empty arguments", pod: OwnRequest{Network: "a/blue", Args: "{}"}, want: "blue eth0 []"},
		{name: "addresses alone", pod: OwnRequest{IPs: "10.0.1.7"},
			err: "annotation net.juniper.contrail.podnetwork.ip: the Pod is in no VirtualNetwork: name one in"},
		{name: "an isolated Namespace", pod: OwnRequest{Network: "a/blue"}, space: NamespaceFacts{Isolated: true},
			err: own + "Namespace a is isolated, and a first interface is in one network: remove the annotation, or the label " +
				"core.juniper.net/isolated-namespace"},
		{name: "another Namespace", pod: OwnRequest{Network: "b/blue"},
			err: own + "VirtualNetwork b/blue is of another Namespace: name one of Namespace a"},
		{name: "of the Namespace", space: NamespaceFacts{PodNetwork: "b/blue"},
			err: "annotation net.juniper.contrail.podnetwork of Namespace a: VirtualNetwork b/blue is of another Namespace"},
		{name: "a list", pod: OwnRequest{Network: "a/blue,a/red"},
			err: own + `"a/blue,a/red" is no network: write one as NAMESPACE/NAME`},
		{name: "JSON", pod: OwnRequest{Network: `[{"name": "blue"}]`}, err: own},
		{name: "three parts", pod: OwnRequest{Network: "c/a/blue"}, err: own + `"c/a/blue" is no network`},
		{name: "an interface", pod: OwnRequest{Network: "blue@eth1"}, err: own + `"blue@eth1" is no network`},
		{name: "no name", pod: OwnRequest{Network: "a/"}, err: own + "it names no VirtualNetwork"},
		{name: "arguments", pod: OwnRequest{Network: "a/blue", Args: `{"x": "y"}`}, err: own + "cni-args is not served"},
		{name: "no address", pod: OwnRequest{Network: "a/blue", IPs: "10.0.1"}, err: own + `ips has "10.0.1", which is no`},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, ok, err := OwnNetwork("a", row.pod, row.space)
			have := "none"
			if ok {
				have = fmt.Sprint(n.Name, " ", n.Interface, " ", n.IPs)
			}
			if (err == nil) != (row.err == "") || err != nil && !strings.HasPrefix(err.Error(), row.err) {
				t.Fatalf("error %v, want %q", err, row.err)
			}
			if err == nil && have != row.want {
				t.Errorf("%s, want %s", have, row.want)
			}
		})
	}
}

// TestOwnNetworkOfNamespaces has the problems of the annotation of Namespaces.
func TestOwnNetworkOfNamespaces(t *testing.T) {
	for value, want := range map[string]string{"": "", "a/blue": "", "blue": "",
		"b/blue": "metadata.annotations[net.juniper.contrail.podnetwork]: its Pods do not start: annotation"} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a",
			Annotations: map[string]string{AnnotationPodNetwork: value}}}
		if have := words(NamespaceProblems(n)); !strings.HasPrefix(have, want) || want == "" && have != "" {
			t.Errorf("%q: %q, want %q", value, have, want)
		}
		n.Labels = map[string]string{LabelIsolated: "true"}
		if have := words(NamespaceProblems(n)); (value != "") != strings.Contains(have, "Namespace a is isolated") {
			t.Errorf("%q, isolated: %q", value, have)
		}
	}
}

// TestFirstInVirtualNetwork has decisions about first interfaces in a VirtualNetwork.
func TestFirstInVirtualNetwork(t *testing.T) {
	in := func(name string, id ID, joined ...ID) Place {
		return Place{Known: true, Network: Name{Door: doorVirtual, Namespace: "a", Name: name}, ID: id, Joined: joined}
	}
	web := End{Kind: Pod, Name: "Pod a/web", Node: "n1", Place: in("blue", 1), First: true}
	far := End{Kind: Pod, Name: "Pod a/far", Node: "n2", Place: in("blue", 1), First: true}
	red := End{Kind: Pod, Name: "Pod a/red", Node: "n2", Place: in("red", 2), First: true}
	further := web
	further.First = false
	taken := web
	taken.Taken = netip.MustParsePrefix("10.50.0.0/24")
	leaves, furtherOut, takenOut := web, further, taken
	for _, e := range []*End{&leaves, &furtherOut, &takenOut} {
		e.Place.Outside = true
	}
	plain := End{Kind: Pod, Name: "Pod b/db", Node: "n1", Place: Place{Known: true}}
	shared := &Place{Known: true}
	for _, row := range []struct {
		name string
		c    Connection
		want string
	}{
		{"the same network", Connection{Client: web, Server: far}, "true n2 both Pods are in VirtualNetwork a/blue"},
		{"another network", Connection{Client: web, Server: red}, "false n1 VirtualNetwork a/blue and"},
		{"its host", Connection{Client: End{Kind: OwnHost}, Server: web}, "true n1 Pod a/web is in VirtualNetwork a/blue: " +
			"processes of its Node reach it"},
		{"its host by a Service", Connection{Client: End{Kind: OwnHost}, Server: web, Service: shared}, "true n1"},
		{"another host", Connection{Client: End{Kind: Outside}, Server: web}, "false  Pod a/web is in VirtualNetwork " +
			"a/blue: processes of its Node reach it, and no"},
		{"the default network on its Node", Connection{Client: plain, Server: web}, "false n1 Pod a/web is in"},
		{"the default network elsewhere", Connection{Client: plain, Server: far}, "false  Pod a/far is in"},
		{"a Service", Connection{Client: web, Server: plain, Service: shared}, "true n1 Pod a/web is in VirtualNetwork " +
			"a/blue, and the Service in the default network: servers see the Pod, and answer it"},
		{"a further interface to a Service", Connection{Client: further, Server: plain, Service: shared},
			"false n1 Pod a/web is in VirtualNetwork a/blue, where no Service answers"},
		{"a Service with an endpoint outside", Connection{Client: web, Server: End{Kind: Outside}, Service: shared},
			"true n1 Pod a/web is in VirtualNetwork a/blue, and the Service in the default network: servers outside of the " +
				"Pods' networks see the Pod's Node"},
		{"a Service of another cluster", Connection{Client: web, Server: End{Kind: Elsewhere}, Service: shared},
			"false n1 Pod a/web is in VirtualNetwork a/blue: it reaches no Services of other clusters (docs/virtual"},
		{"a Service whose endpoint is a Node's address", Connection{Client: web, Service: shared,
			Server: End{Kind: Inside, Node: "n2"}}, "false n2 "},
		{"a Service that leads to an isolated Pod", Connection{Client: web, Service: shared,
			Server: End{Kind: Pod, Name: "Pod c/db", Node: "n2", Place: Place{Known: true, Network: Name{Door: doorIsolated,
				Name: "c"}, ID: 7}}}, "false n2 Pod c/db is in the isolated Namespace c, and the Service is not"},
		{"a Service that leads into the network", Connection{Client: web, Server: far, Service: shared},
			"false  Pod a/far is in VirtualNetwork a/blue, and the Service is not"},
		{"one of such a Namespace", Connection{Client: web, Server: far, Service: shared, Inside: true},
			"true n2 both Pods are in VirtualNetwork a/blue"},
		{"one that leads to the default network", Connection{Client: web, Server: plain, Service: shared, Inside: true},
			"false n1 Pod a/web is in VirtualNetwork a/blue, and the Service is of an isolated Namespace, or of"},
		{"a Service, with an address that another Node has", Connection{Client: taken, Server: plain, Service: shared},
			"false n1 Pod a/web is in VirtualNetwork a/blue, whose address is in range 10.50.0.0/24 of this or another " +
				"cluster: it reaches no Services"},
		{"its network, with such an address", Connection{Client: taken, Server: far}, "true n2 both Pods are in"},
		{"outside", Connection{Client: web, Server: End{Kind: Outside}}, "false n1 Pod a/web is in VirtualNetwork a/blue:"},
		{"outside, with fabricSNAT", Connection{Client: leaves, Server: End{Kind: Outside}},
			"true n1 Pod a/web is in VirtualNetwork a/blue, which has spec.fabricSNAT: it reaches destinations outside"},
		{"outside by a Service of its Namespace", Connection{Client: leaves, Server: End{Kind: Outside}, Service: shared,
			Inside: true}, "true n1 Pod a/web is in VirtualNetwork a/blue, which has spec.fabricSNAT"},
		{"outside by a further interface", Connection{Client: furtherOut, Server: End{Kind: Outside}}, "false n1"},
		{"outside with an address that another Node has", Connection{Client: takenOut, Server: End{Kind: Outside}},
			"false n1"},
		{"another cluster, with fabricSNAT", Connection{Client: leaves, Server: End{Kind: Elsewhere}}, "false n1"},
		{"an address of a Node's range, with fabricSNAT", Connection{Client: leaves, Server: End{Kind: Inside}}, "false n1"},
		{"the default network, with fabricSNAT", Connection{Client: leaves, Server: plain}, "false n1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := row.c.Decide()
			if have := fmt.Sprint(d.Allowed, " ", d.Node, " ", d.Reason); !strings.HasPrefix(have, row.want) {
				t.Errorf("%s, want %s", have, row.want)
			}
		})
	}
}
