package datapath

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// routerSpec is a VirtualNetworkRouter, as in "a mesh b": in Namespace a, of a type, which imports the routers of
// Namespaces.
type routerSpec string

func (s routerSpec) router() (derive.Object, tenant.RouterFacts) {
	words := strings.Fields(string(s))
	v := &contrailv4.VirtualNetworkRouter{ObjectMeta: metav1.ObjectMeta{Namespace: words[0], Name: "router"}}
	v.Spec.Type, v.Spec.VirtualNetworkSelector = words[1], &metav1.LabelSelector{}
	for _, other := range words[2:] {
		v.Spec.Import.VirtualNetworkRouters = append(v.Spec.Import.VirtualNetworkRouters,
			contrailv4.VirtualNetworkRouterEntry{VirtualNetworkRouterSelector: &metav1.LabelSelector{},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: other}}})
	}
	return derive.ObjectOf(v), tenant.RouterFactsOf(v)
}

// placesOf returns the places of Namespace default and of isolated Namespaces a, b and c with these routers.
func placesOf(routers ...routerSpec) map[string]tenant.Place {
	e := derive.New()
	namespaces := derive.NewSource[derive.Object, tenant.NamespaceFacts](e, "namespaces")
	sets := derive.NewSource[derive.Object, labels.Set](e, "labels")
	networks := derive.NewSource[derive.Object, tenant.VirtualNetworkFacts](e, "networks")
	all := derive.NewSource[derive.Object, tenant.RouterFacts](e, "routers")
	imports := derive.NewSource[derive.Object, tenant.ClusterSetFacts](e, "imports")
	tables := tenant.NewCluster(e, tenant.Objects{Namespaces: namespaces, Labels: sets, Networks: networks, Routers: all,
		Imports: imports})
	for _, name := range []string{"default", "a", "b", "c"} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name)}}
		if name != "default" {
			n.Labels = map[string]string{tenant.LabelIsolated: "true"}
		}
		namespaces.Set(derive.ObjectOf(n), tenant.NamespaceFactsOf(n))
		sets.Set(derive.ObjectOf(n), tenant.NamespaceLabels(n))
		vn := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: name,
			Name: contrailv4.DefaultPodNetwork, UID: types.UID(name)}}
		networks.Set(derive.ObjectOf(vn), tenant.VirtualNetworkFactsOf(vn))
	}
	for _, spec := range routers {
		all.Set(spec.router())
	}
	namespaces.Loaded()
	sets.Loaded()
	networks.Loaded()
	all.Loaded()
	imports.Loaded()
	e.Pass()
	out := map[string]tenant.Place{}
	for _, row := range tables.Places.All() {
		out[row.Key.Name] = row.Value
	}
	return out
}

// TestRouterTraffic sends real connections between Pods of isolated Namespaces a, b and c on two Nodes while routers
// come, change and go.
func TestRouterTraffic(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	states := tenantNodes(placesOf())
	for name, s := range states { // pod2 is in Namespace c
		s.Pods[1].Namespace = "c"
		states[name] = s
	}
	serviceOf(states, "b", "far", "10.97.0.53:80", "10.11.1.5:8080")
	nodes := map[string]*realNode{
		"east1": newNode(t, underlay, states["east1"], "east1", eastOne, "10.97.0.0/16"),
		"east2": newNode(t, underlay, states["east2"], "east2", eastTwo, "10.97.0.0/16"),
	}
	for i, name := range []string{"east1", "east2"} {
		for j, pod := range nodes[name].pods {
			for _, network := range []string{"tcp", "tcp6"} {
				pod.serve(t, network, ":8080", fmt.Sprintf("east%d/pod%d", i+1, j+1))
			}
			pod.serve(t, "udp", ":5353", fmt.Sprintf("east%d/pod%d", i+1, j+1))
		}
	}
	one := nodes["east1"]
	plain, c, a, b := one.pods[0], one.pods[1], one.pods[2], one.pods[3]
	program := func(t *testing.T, routers ...routerSpec) {
		t.Helper()
		for name, s := range states {
			s.Places = placesOf(routers...)
			var text strings.Builder
			for f := range setOf(t, mustPlan(t, s)).Flows() {
				fmt.Fprintln(&text, f)
			}
			o := nodes[name].ovs
			o.run(t, text.String(), "ovs-ofctl", "-O", "OpenFlow15", "--bundle", "replace-flows", o.dir+"/br-int.mgmt", "-")
		}
	}
	toB := []request{
		{"a to b on its Node", a, "tcp", "10.11.0.5:8080", []string{"east1/pod4 10.11.0.4"}},
		{"a to b on another Node", a, "tcp", "10.11.1.5:8080", []string{"east2/pod4 10.11.0.4"}},
		{"a to b by IPv6", a, "tcp6", "[fd11:0:0:1::5]:8080", []string{"east2/pod4 fd11::4"}},
		{"a to b by UDP", a, "udp", "10.11.1.5:5353", []string{"east2/pod4 10.11.0.4"}},
		{"a to a Service of b", a, "tcp", "10.97.0.53:80", []string{"east2/pod4 10.11.0.4"}},
	}
	fromB := request{"b to a on another Node", b, "tcp", "10.11.1.4:8080", []string{"east2/pod3 10.11.0.5"}}
	toC := request{"a to c", a, "tcp", "10.11.1.3:8080", []string{"east2/pod2 10.11.0.4"}}
	fromC := request{"c to b", c, "tcp", "10.11.1.5:8080", []string{"east2/pod4 10.11.0.3"}}
	never := []request{
		{"the default network to a", plain, "tcp", "10.11.1.4:8080", nil},
		{"the default network to a Service of b", plain, "tcp", "10.97.0.53:80", nil},
		{"a to the default network", a, "tcp", "10.11.1.2:8080", nil},
	}
	check := func(t *testing.T, yes, no []request) {
		t.Helper()
		for _, r := range yes {
			t.Run(r.name, r.check)
		}
		var asking sync.WaitGroup // each silence takes its time
		for _, r := range no {
			asking.Go(func() {
				if answer, err := r.from.askWithin(silence(), r.network, r.to); err == nil {
					t.Errorf("%s is answered: %s", r.name, answer)
				}
			})
		}
		asking.Wait()
	}
	all := append([]request{fromB, toC, fromC}, append(never, toB...)...)
	for _, test := range []struct {
		name    string
		routers []routerSpec
		yes, no []request
	}{
		{"without routers", nil, nil, all},
		{"one-sided import", []routerSpec{"a mesh b", "b mesh"}, nil, all},
		{"mesh with hub", []routerSpec{"a mesh b", "b hub a"}, nil, all},
		{"mutual import", []routerSpec{"a mesh b", "b mesh a"}, append(toB, fromB), append(never, toC, fromC)},
		{"not transitive", []routerSpec{"a mesh b", "b mesh a c", "c mesh b"}, []request{toB[0], fromC},
			append(never, toC)},
		{"hub and spokes", []routerSpec{"b hub a c", "a spoke b c", "c spoke b a"}, []request{toB[0], fromB, fromC},
			append(never, toC)},
	} {
		t.Run(test.name, func(t *testing.T) {
			program(t, test.routers...)
			check(t, test.yes, test.no)
		})
	}
	t.Run("router removed", func(t *testing.T) {
		program(t, "a mesh b", "b mesh a")
		open := map[string]net.Conn{}
		for _, to := range []string{"10.11.0.5:8080", "10.11.1.5:8080", "10.97.0.53:80", "10.11.1.4:8080"} {
			conn, err := a.dialWithin(silence(), "tcp", to)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			open[to] = conn
		}
		answers := func(conn net.Conn) bool {
			buf := make([]byte, 100)
			if err := conn.SetDeadline(time.Now().Add(silence())); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("are you there?\n")); err != nil {
				return false
			}
			_, err := conn.Read(buf)
			return err == nil
		}
		for to, conn := range open {
			if !answers(conn) {
				t.Errorf("the connection to %s is not answered before", to)
			}
		}
		program(t, "a mesh b")
		for to, conn := range open { // the datapath's own flows follow a moment later
			ovstest.Eventually(t, "the connection to "+to+" is answered in one's own network alone", func() error {
				if own := to == "10.11.1.4:8080"; answers(conn) != own {
					return fmt.Errorf("it is answered afterwards: %t, want %t", !own, own)
				}
				return nil
			})
		}
		check(t, nil, all)
	})
}
