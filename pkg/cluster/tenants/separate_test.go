package tenants

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// next waits until objects are older than the next one. Timestamps have seconds.
func (g *subnetRig) next(o client.Object) {
	g.t.Helper()
	g.expect("older", func(context.Context) (string, error) {
		if time.Since(o.GetCreationTimestamp().Time) > time.Second {
			return "older", nil
		}
		return "of this second", nil
	})
}

// zoneOf waits for the lease of a Subnet, and returns its zone.
func (g *subnetRig) zoneOf(s *contrailv4.Subnet) int32 {
	g.t.Helper()
	g.expect("a/", g.leaseOf(s))
	l := &tombolov1alpha1.SubnetLease{}
	if err := g.client.Get(g.t.Context(), client.ObjectKey{Name: string(s.UID)}, l); err != nil {
		g.t.Fatal(err)
	}
	return l.Spec.Zone
}

// TestEqualRanges has VirtualNetworks with equal ranges in a real API server.
func TestEqualRanges(t *testing.T) {
	g := newSubnetRig(t, crds)
	stop := g.start()
	defer func() { stop() }()
	g.gate("")
	g.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		g.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	blue := subnet("a", "blue", "10.0.1.0/24")
	g.create(blue)
	g.create(network("a", "blue", "blue", ""))
	if zone := g.zoneOf(blue); zone != 0 {
		t.Fatalf("a/blue has zone %d", zone)
	}
	g.next(blue)

	// The younger network is separate, with both versions of IP.
	v4, v6 := subnet("a", "red-v4", "10.0.1.0/24"), subnet("a", "red-v6", "fd00:1::/64")
	red := network("a", "red", "red-v4", "red-v6")
	g.create(v6)
	g.create(v4)
	g.expect("0 1.17% Success: ", g.subnetState(v4)) // without a network
	g.create(red)
	zone := g.zoneOf(v4)
	if six := g.zoneOf(v6); zone == 0 || six != zone {
		t.Fatalf("a/red has the zones %d and %d", zone, six)
	}
	g.expect(`true "v6,v4" Success: `, g.networkState(red))
	g.expect("0 1.17% Success: ", g.subnetState(v4))
	if text := v4.Status.Observation + red.Status.Observation; text != "" {
		t.Errorf("a separate network has the observation %s", text)
	}
	have := columns(t, g.server.Config, "/apis/tombolo.io/v1alpha1/subnetleases")
	if !strings.Contains(have, fmt.Sprintf(" 10.0.1.0/24 %d ", zone)) {
		t.Errorf("columns %s, want zone %d", have, zone)
	}

	// A lease without blocks gets the zone if the other Subnet of its network arrives later.
	late4, late6 := subnet("a", "late-v4", "10.0.7.0/24"), subnet("a", "late-v6", "fd00:1::/64")
	g.create(network("a", "late", "late-v4", "late-v6"))
	older := subnet("a", "older", "fd00:1::/65")
	g.create(older)
	g.create(network("a", "older", "", "older"))
	g.create(late4)
	if first := g.zoneOf(late4); first != 0 {
		t.Fatalf("a/late has zone %d, although its range is unique", first)
	}
	g.zoneOf(older)
	g.next(older)
	g.create(late6)
	second := g.zoneOf(late6)
	g.expect(fmt.Sprint("a/late 10.0.7.0/24 10.0.7.1 false zone ", second), g.leaseOf(late4))
	if second == 0 || second == zone {
		t.Errorf("a/late has zone %d, and a/red zone %d", second, zone)
	}

	// Nodes have blocks of the same addresses in both networks.
	g.claim("node-1", "blue", "x1", 1)
	g.claim("node-2", "red", "x2", 1)
	lease := fmt.Sprint("a/red 10.0.1.0/24 10.0.1.1 false zone ", zone)
	g.expect("a/blue 10.0.1.0/24 10.0.1.1 false; node-1 x1 10.0.1.0/28", g.leaseOf(blue))
	g.expect(lease+"; node-2 x2 10.0.1.0/28", g.leaseOf(v4))

	// The own network of Pods becomes separate, too. Networks that cannot be separate are refused.
	own := network("a", "own", "own", "")
	own.Spec.PodNetwork = true
	ownSubnet := subnet("a", "own", "10.0.1.128/25")
	g.create(ownSubnet)
	g.create(own)
	g.next(ownSubnet)
	zoneOfOwn := g.zoneOf(ownSubnet)
	if zoneOfOwn == 0 {
		t.Error("a/own has zone 0, although its range is taken")
	}
	g.create(&contrailv4.VirtualNetworkRouter{ObjectMeta: at("a", "mesh"), Spec: contrailv4.VirtualNetworkRouterSpec{
		Type: "mesh", VirtualNetworkSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"vn": "joined"}}}})
	free, taken := subnet("a", "free", "10.0.3.0/24"), subnet("a", "taken", "10.0.1.0/25")
	for _, s := range []*contrailv4.Subnet{free, taken} {
		n := network("a", s.Name, s.Name, "")
		n.Labels = map[string]string{"vn": "joined"}
		g.create(n)
	}
	g.create(free)
	g.expect("a/free 10.0.3.0/24 10.0.3.1 false", g.leaseOf(free))
	g.claim("node-1", "free", "f1", 1)
	g.expect("a/free 10.0.3.0/24 10.0.3.1 false; node-1 f1 10.0.3.0/28", g.leaseOf(free))
	g.create(taken)
	g.expect("0 2.34% Failure: spec.cidr: 10.0.1.0/25 overlaps Subnet a/blue, so no Pod gets an address of it, since "+
		"Pods of VirtualNetwork a/free may have addresses that are unique in the cluster: delete these Pods",
		g.subnetState(taken))
	g.expect("none", g.leaseOf(taken))

	// Without Pods both networks get one zone, and the router joins them.
	g.claim("node-1", "free", "", 0)
	common := g.zoneOf(taken)
	g.expect(fmt.Sprint("a/free 10.0.3.0/24 10.0.3.1 false zone ", common), g.leaseOf(free))
	if common == 0 || common == zone {
		t.Errorf("a/taken has zone %d, and a/red zone %d", common, zone)
	}
	router := &contrailv4.VirtualNetworkRouter{}
	routerState := func(ctx context.Context) (string, error) {
		err := g.client.Get(ctx, client.ObjectKey{Namespace: "a", Name: "mesh"}, router)
		return router.Status.State + ": " + router.Status.Observation, err
	}
	g.expect("Success: ", routerState)
	if o := router.Status.Observation; o != "" {
		t.Errorf("the router has the observation %s", o)
	}

	// A join with a network whose Pods have unique addresses has no effect.
	g.claim("node-1", "taken", "t1", 1)
	g.expect(fmt.Sprint("a/taken 10.0.1.0/25 10.0.1.1 false zone ", common, "; node-1 t1 10.0.1.0/29"), g.leaseOf(taken))
	n := &contrailv4.VirtualNetwork{ObjectMeta: at("a", "taken")}
	patch := func(n *contrailv4.VirtualNetwork, text string) {
		t.Helper()
		if err := g.client.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	g.claim("node-1", "late2", "l1", 1)
	late2 := subnet("a", "late2", "10.0.9.0/24")
	g.create(late2)
	g.create(network("a", "late2", "late2", ""))
	g.expect("a/late2 10.0.9.0/24 10.0.9.1 false; node-1 l1 10.0.9.0/28", g.leaseOf(late2))
	late := &contrailv4.VirtualNetwork{ObjectMeta: at("a", "late2")}
	patch(late, `{"metadata": {"labels": {"vn": "joined"}}}`)
	g.expect(fmt.Sprintf("Warning: spec.virtualNetworkSelector: it does not join VirtualNetwork a/free (zone %d) with "+
		"VirtualNetwork a/late2 (zone 0), VirtualNetwork a/late2 (zone 0) with VirtualNetwork a/taken (zone %d), since one "+
		"of two such networks", common, common), routerState)
	patch(n, `{"spec": {"podNetwork": true}}`)
	g.expect(`true "v4" Success`, g.networkState(n))

	// The older network is deleted, and another replica runs. The younger network keeps its zone.
	g.claim("node-1", "blue", "", 0)
	g.delete(blue)
	g.expect("none", g.leaseOf(blue))
	if zone := g.zoneOf(ownSubnet); zone != zoneOfOwn {
		t.Errorf("a/own has zone %d, and had zone %d", zone, zoneOfOwn)
	}
	stop()
	g.claim("node-3", "red", "x3", 1)
	stop = g.start()
	g.expect(lease+"; node-2 x2 10.0.1.0/28; node-3 x3 10.0.1.16/28", g.leaseOf(v4))

	// Its Subnets are deleted while a Pod has an address. The lease keeps the zone, and no second Subnet gets the
	// addresses.
	g.delete(v4)
	g.delete(v6)
	g.delete(red)
	g.expect(strings.Replace(lease, "false", "true", 1)+"; node-2 x2 10.0.1.0/28", g.leaseOf(v4))
	again := subnet("a", "red-v4", "10.0.1.0/24")
	g.create(again)
	g.create(network("a", "red", "red-v4", ""))
	g.expect("0 1.17% Failure: spec.cidr: 10.0.1.0/24 overlaps Pods of VirtualNetwork a/red, whose Subnet was deleted",
		g.subnetState(again))
	g.claim("node-2", "red", "", 0)
	g.claim("node-3", "red", "", 0)
	g.expect("none", g.leaseOf(v4))
	// It is unique now, unless the lease of IPv6 was there for a moment longer.
	if have := g.zoneOf(again); have != zone && have != 0 {
		t.Errorf("the lease has zone %d, want 0, or the earlier zone %d", have, zone)
	}
}

// TestZoneOfLease has a network whose leases have different zones, since a write was late. A lease with blocks keeps
// its zone, and the controller does not write it again.
func TestZoneOfLease(t *testing.T) {
	tables := newTables(metav1.NamespaceSystem)
	tables.member.Loaded()
	n := network("a", "red", "v4", "v6")
	n.UID = "red"
	four, six := subnet("a", "v4", "10.0.1.0/24"), subnet("a", "v6", "fd00:1::/64")
	four.UID, six.UID = "four", "six"
	report := &tombolov1alpha1.NodeNetworkReport{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	report.Spec.Networks = []tombolov1alpha1.NodeNetwork{{Namespace: "a", Name: "red", Claim: "x", Pods: 1}}
	tables.kinds.Fill(gateOn(""), n, four, six, report, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}})
	tables.engine.Pass()
	zones := map[types.UID]uint16{"four": 0, "six": 9}
	for uid, zone := range zones {
		step, _ := tables.subnets.leaseSteps.Get(leaseOf(uid))
		if !step.Due || step.Want.Zone != 0 || len(step.Want.Nodes) == 0 {
			t.Fatalf("the first lease of %s is %+v", uid, step)
		}
		step.Want.Zone, step.Want.ResourceVersion = zone, "1"
		tables.kinds.Set(leaseObject(leaseOf(uid), step.Want))
	}
	tables.engine.Pass()
	for uid, zone := range zones {
		step, _ := tables.subnets.leaseSteps.Get(leaseOf(uid))
		if step.Due || step.Want.Zone != zone || step.Want.Ending {
			t.Errorf("the lease of %s is %+v, want it unchanged with zone %d", uid, step, zone)
		}
	}
}
