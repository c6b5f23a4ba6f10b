package node

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// testLaterJoins joins the networks of running Pods, also with a network of another cluster, and ends the joins. The
// agent starts again in between. Pods are in the networks by eth1, and one by eth0.
func testLaterJoins(t *testing.T, c *cluster) {
	n := newNetworks(t, c, "joins", map[string]tombolov1alpha1.SubnetLeaseSpec{
		"blue": {CIDR: "10.50.0.0/24", Gateway: "10.50.0.1"}, "red": {CIDR: "10.51.0.0/24", Gateway: "10.51.0.1"}})
	r, namespace := n.rig, n.namespace
	create, remove, start := n.create, n.remove, n.start
	web, db := start("joins-web", further, "blue"), start("joins-db", further, "red")
	own := start("joins-own", first, "red")
	const toWeb, toDB, toOwn = "10.50.0.2:8080", "10.51.0.2:8080", "10.51.0.3:8080"
	for _, p := range []*pod{web, db, own} {
		p.serve(t, 8080)
	}

	// routes are over the gateway of the Pod's network.
	routes := func(p *pod) (out []string) {
		t.Helper()
		if err := p.within(func() error {
			link, err := netlink.LinkByName("eth1")
			if err != nil {
				return err
			}
			list, err := netlink.RouteList(link, netlink.FAMILY_V4)
			for _, route := range list {
				if route.Gw != nil {
					out = append(out, route.Dst.String())
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(out)
		return out
	}
	has := func(when string, p *pod, want ...string) {
		t.Helper()
		r.eventually(when+", Pod "+p.name+" has routes to "+strings.Join(want, " "), func() error {
			if have := routes(p); !slices.Equal(have, want) {
				return fmt.Errorf("they are %v", have)
			}
			return nil
		})
	}
	reach := func(when string, want bool) {
		t.Helper()
		for to, p := range map[string]*pod{toDB: web, toOwn: web, toWeb: db} {
			r.eventually(fmt.Sprintf("%s, Pod %s reaches %s: %t", when, p.name, to, want), func() error {
				if want {
					return connects(p, to)
				}
				return refuses(p, to)
			})
		}
	}
	const blue, red, far, foreign = "10.50.0.0/24", "10.51.0.0/24", "10.60.0.0/24", "10.99.0.0/24"
	has("before the join", web, blue)
	has("before the join", db, red)
	reach("before the join", false)
	if err := web.within(func() error { // as a user does
		_, to, err := net.ParseCIDR(foreign)
		return errors.Join(err, netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP("10.50.0.1")}))
	}); err != nil {
		t.Fatal(err)
	}

	router := &contrailv4.VirtualNetworkRouter{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all"}}
	router.Spec.Type, router.Spec.VirtualNetworkSelector = contrailv4.TypeMesh, &metav1.LabelSelector{}
	create(router)
	has("with the join", web, blue, red, foreign)
	has("with the join", db, blue, red)
	reach("with the join", true)
	conn, err := web.dial("tcp4", toDB)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if have := conn.LocalAddr().(*net.TCPAddr).IP.String(); have != "10.50.0.2" {
		t.Errorf("a connection of Pod web is from %s, want the address of eth1", have)
	}
	stays := func(when string) {
		t.Helper()
		answer := make([]byte, 100)
		_, err := conn.Write([]byte(when))
		n := 0
		if err == nil {
			err = conn.SetReadDeadline(time.Now().Add(time.Minute))
		}
		if err == nil {
			n, err = conn.Read(answer)
		}
		if have := string(answer[:n]); have != db.name+" "+when {
			t.Errorf("%s, the connection answers %q: %v", when, have, err)
		}
	}
	stays("with the join")
	imported := &tombolov1alpha1.TenantNetworkImport{
		ObjectMeta: metav1.ObjectMeta{Name: "kubemanager-cluster2-joins.blue"},
		Spec: tombolov1alpha1.TenantNetworkImportSpec{Number: 7,
			Namespace:      &tombolov1alpha1.NamespaceReference{Name: namespace, UID: n.space.UID},
			VirtualNetwork: &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: n.made["blue"]},
			Joined: []tombolov1alpha1.JoinedNetwork{{Name: "green", Number: 8, ClusterIDs: []string{"cluster3"},
				CIDRs: []string{far}}}}}
	create(imported)
	has("with a network of another cluster", web, blue, red, far, foreign)

	r.stop()
	remove(imported)
	has("without an agent", web, blue, red, far, foreign)
	r.ready()
	has("after a restart of the agent", web, blue, red, foreign)
	has("after a restart of the agent", db, blue, red)
	stays("after a restart of the agent")
	reach("after a restart of the agent", true)

	remove(router)
	has("without the join", web, blue, foreign)
	has("without the join", db, red)
	reach("without the join", false)
	for _, p := range []*pod{web, db, own} {
		r.del(p)
	}
}
