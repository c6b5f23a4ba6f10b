package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// testLaterJoins joins the networks of running Pods, also with a network of another cluster, and ends the joins. The
// agent starts again in between. Pods are in the networks by eth1, and one by eth0.
func testLaterJoins(t *testing.T, c *cluster) {
	const namespace = "joins"
	objects := c.objects(t)
	create := func(o client.Object) {
		t.Helper()
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = objects.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
	}
	remove := func(o client.Object) {
		t.Helper()
		if err := objects.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	create(space)
	leases := map[string]*tombolov1alpha1.SubnetLease{}
	networks := map[string]*contrailv4.VirtualNetwork{}
	for i, name := range []string{"blue", "red"} {
		n := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		n.Spec.V4SubnetReference, n.Spec.PodNetwork = &contrailv4.ResourceReference{Name: name}, true
		create(n)
		networks[name] = n
		named := tombolov1alpha1.ObjectName{Namespace: namespace, Name: name}
		leases[name] = &tombolov1alpha1.SubnetLease{ObjectMeta: metav1.ObjectMeta{Name: "uid-of-" + name},
			Spec: tombolov1alpha1.SubnetLeaseSpec{Subnet: named, VirtualNetwork: named,
				CIDR: fmt.Sprintf("10.5%d.0.0/24", i), Gateway: fmt.Sprintf("10.5%d.0.1", i)}}
		create(leases[name])
	}

	r := newRig(t, c).withOVS()
	r.edit = func(conf *config.Config) {
		conf.FeatureGates["TenantNetworks"] = true
		conf.TenantNetworks.SubnetCIDRs = []string{"10.50.0.0/15"}
	}
	r.ready()
	// start makes a Pod, and gives its Node the addresses that it claims, as the controller does.
	start := func(name, network, annotation string) *pod {
		t.Helper()
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Annotations: map[string]string{annotation: namespace + "/" + network}},
			Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
		create(o)
		r.uids.Store(name, o.UID)
		p := r.sandbox(name)
		p.namespace = namespace
		r.eventually("Pod "+name+" starts", func() error {
			var report tombolov1alpha1.NodeNetworkReport
			if err := objects.Get(t.Context(), client.ObjectKey{Name: nodeName}, &report); err != nil {
				return err
			}
			lease := leases[network]
			for _, n := range report.Spec.Networks {
				if n.Namespace == namespace && n.Name == network && len(lease.Spec.Nodes) == 0 {
					block := strings.Replace(lease.Spec.CIDR, "/24", "/28", 1)
					lease.Spec.Nodes = []tombolov1alpha1.NodeBlocks{{Node: nodeName, Claim: n.Claim, CIDRs: []string{block}}}
					if err := objects.Update(t.Context(), lease); err != nil {
						return err
					}
				}
			}
			return r.attach(p)
		})
		return p
	}
	const further, first = "k8s.v1.cni.cncf.io/networks", "net.juniper.contrail.podnetwork"
	web, db := start("joins-web", "blue", further), start("joins-db", "red", further)
	own := start("joins-own", "red", first)
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
			Namespace:      &tombolov1alpha1.NamespaceReference{Name: namespace, UID: space.UID},
			VirtualNetwork: &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: networks["blue"].UID},
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
