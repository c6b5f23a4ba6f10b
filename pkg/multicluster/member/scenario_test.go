package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// TestMemberWithRealAPIServers covers the life of a member. It joins with a wrong and then with the right token,
// exports, imports, loses the leader, restarts, and leaves. Each step builds on the one before.
func TestMemberWithRealAPIServers(t *testing.T) {
	w, leader := newWorld(t)
	token := w.token()
	secret := &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"), Data: map[string][]byte{
		"ca.crt": w.leaderConfig.CAData, "token": []byte("wrong")}}
	gatewaysAre := func(names ...string) { // the oldest first
		t.Helper()
		w.eventually(fmt.Sprint("Gateways ", names), func(ctx context.Context) error {
			l := &mcv1alpha1.GatewayList{}
			if err := w.member.List(ctx, l); err != nil {
				return err
			}
			slices.SortStableFunc(l.Items, func(a, b mcv1alpha1.Gateway) int {
				return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
			})
			var have []string
			var addresses []mcv1alpha1.GatewayInfo
			for _, g := range l.Items {
				have = append(have, g.Name)
				addresses = append(addresses, mcv1alpha1.GatewayInfo{GatewayIP: g.GatewayIP})
				if g.ServiceCIDR == "" {
					return fmt.Errorf("have %v", l.Items)
				}
			}
			if !slices.Equal(have, names) {
				return fmt.Errorf("have %v", have)
			}
			info := export("east-clusterinfo")
			if err := w.leader.Get(ctx, client.ObjectKeyFromObject(info), info); err != nil {
				return err
			}
			if have := info.Spec.ClusterInfo; !slices.Equal(have.GatewayInfos, addresses) ||
				!slices.Equal(have.Features, []string{mcv1alpha1.FeatureActiveGateways}) {
				return fmt.Errorf("the leader has gateways %v and features %v", have.GatewayInfos, have.Features)
			}
			return nil
		})
	}

	// Leftovers of a former life go when there is no ClusterSet; users' objects stay.
	leftover := &corev1.Service{ObjectMeta: marked("default", "antrea-mc-old"),
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	oldInfo := &mcv1alpha1.ClusterInfoImport{ObjectMeta: meta("kube-system", "old-clusterinfo")}
	oldImport := &mcsv1alpha1.ServiceImport{ObjectMeta: marked("default", "old"),
		Spec: importOf("default", "old").Spec.ServiceImport.Spec}
	userImport := &mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "users"),
		Spec: importOf("default", "old").Spec.ServiceImport.Spec}
	w.create(w.member, leftover, oldInfo, oldImport, userImport)
	configure := mountedConfig(t)
	w.configFile = configure("activeGateways: 2\n")
	w.startMember()
	w.gone(w.member, leftover, oldInfo, oldImport)

	// A missing Secret, a wrong token, the right one: the Secret's content is watched.
	set := clusterSet(w.leaderConfig.Host)
	w.create(w.member, set)
	w.clusterSetIs("False False False", "Secret kube-system/east-token does not exist")
	w.create(w.member, secret)
	w.clusterSetIs("False False False", "Unauthorized")
	w.update(w.member, secret, func() { secret.Data["token"] = token })
	w.clusterSetIs("True True True", "This leader cluster is the leader for local cluster")
	w.eventually("heartbeat", func(ctx context.Context) error {
		a := &mcv1alpha1.MemberClusterAnnounce{}
		if err := w.leader.Get(ctx, client.ObjectKey{Namespace: area, Name: "member-announce-from-east"}, a); err != nil {
			return err
		}
		if a.Annotations["touch-ts"] == "" || a.ClusterSetID != "set" || a.LeaderClusterID != "north" {
			return fmt.Errorf("have %v", a)
		}
		return nil
	})

	// Exports.
	w.create(w.member, web("web")...)
	w.exportIs("web", "Succeed")
	w.eventually("ResourceExports", func(ctx context.Context) error {
		return errors.Join(w.leader.Get(ctx, client.ObjectKeyFromObject(export("east-default-web-service")), export("")),
			w.leader.Get(ctx, client.ObjectKeyFromObject(export("east-default-web-endpoints")), export("")))
	})
	w.create(w.member, &mcsv1alpha1.ServiceExport{ObjectMeta: meta("default", "absent")})
	w.exportIs("absent", "ServiceNotFound")
	service := &corev1.Service{ObjectMeta: meta("default", "web")}
	w.update(w.member, service, func() {
		service.Spec.Type, service.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
		service.Spec.ClusterIP, service.Spec.ClusterIPs = "", nil
	})
	w.exportIs("web", "ServiceTypeNotSupported")
	w.gone(w.leader, export("east-default-web-service"), export("east-default-web-endpoints"))
	w.update(w.member, service, func() { service.Spec.Type, service.Spec.ExternalName = corev1.ServiceTypeClusterIP, "" })
	w.exportIs("web", "Succeed")

	// Imports, and objects in their way.
	w.create(w.leader, importOf("default", "db"), endpointsOf("default", "db", "10.98.0.7"),
		clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101"))
	w.importIs("db", "10.98.0.7")
	mine := &corev1.Service{ObjectMeta: meta("default", "antrea-mc-mine"),
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
	w.create(w.member, mine)
	w.create(w.leader, importOf("default", "mine"), endpointsOf("default", "mine", "10.98.0.8"))
	w.eventIs("antrea-mc-mine", "NotImported")
	w.create(w.leader, importOf("later", "db"), endpointsOf("later", "db", "10.98.0.7"))
	w.eventIs("set", "NamespaceNotFound")
	w.create(w.member, &corev1.Namespace{ObjectMeta: meta("", "later")})
	w.eventually("import when the Namespace is there", func(ctx context.Context) error {
		return w.member.Get(ctx, client.ObjectKey{Namespace: "later", Name: "db"}, &mcsv1alpha1.ServiceImport{})
	})
	imported := &corev1.Service{ObjectMeta: meta("default", "antrea-mc-db")}
	w.update(w.member, imported, func() { imported.Spec.Selector = map[string]string{"x": "y"} })
	w.eventually("somebody's change is mended", func(ctx context.Context) error {
		if err := w.member.Get(ctx, client.ObjectKeyFromObject(imported), imported); err != nil ||
			len(imported.Spec.Selector) != 0 {
			return fmt.Errorf("selector %v: %w", imported.Spec.Selector, err)
		}
		return nil
	})
	ri := importOf("default", "db")
	w.update(w.leader, ri, func() { ri.Spec.ServiceImport.Spec.Ports[0].Port = 5433 })
	w.eventually("another port is imported", func(ctx context.Context) error {
		service, si := &corev1.Service{}, &mcsv1alpha1.ServiceImport{}
		if err := errors.Join(w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: "antrea-mc-db"}, service),
			w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: "db"}, si)); err != nil {
			return err
		}
		if service.Spec.Ports[0].Port != 5433 || si.Spec.Ports[0].Port != 5433 {
			return fmt.Errorf("have %v and %v", service.Spec.Ports, si.Spec.Ports)
		}
		return nil
	})
	// Events without a fact cost no write. After some of them, a change of an import costs the same number of writes.
	change := func(port int32) int {
		before := w.writes()
		w.update(w.leader, ri, func() { ri.Spec.ServiceImport.Spec.Ports[0].Port = port })
		w.eventually("the changed port is imported", func(ctx context.Context) error {
			service := &corev1.Service{}
			if err := w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: "antrea-mc-db"}, service); err != nil ||
				service.Spec.Ports[0].Port != port {
				return fmt.Errorf("have %v: %w", service.Spec.Ports, err)
			}
			return nil
		})
		return w.writes() - before
	}
	alone := change(5434)
	before := w.writes()
	slice := web("web")[1]
	exported := &mcsv1alpha1.ServiceExport{ObjectMeta: meta("default", "web")}
	for i := range 5 {
		for _, o := range []client.Object{service, slice, exported} {
			w.update(w.member, o, func() { o.SetAnnotations(map[string]string{"example.org/event": fmt.Sprint(i)}) })
		}
		w.update(w.leader, ri, func() { ri.Annotations = map[string]string{"example.org/event": fmt.Sprint(i)} })
	}
	if n := w.writes() - before; n != 0 {
		t.Errorf("%d writes after events without a fact, want none", n)
	}
	if n := change(5435); alone == 0 || n != alone {
		t.Errorf("a change of an import costs %d writes after events without a fact, %d before", n, alone)
	}

	// An import that the API server refuses is reported, and does not stop the next one. If an import is partly invalid,
	// its valid part is imported.
	refused := importOf("default", "b-d")
	refused.Spec.Name = "b_d"
	w.create(w.leader, refused,
		importOf("default", "good"), endpointsOf("default", "good", "127.0.0.1", "10.98.0.9"))
	w.importIs("good", "10.98.0.9")
	w.eventIs("set", "WriteFailed")
	w.eventIs("set", "ResourceImportInvalid")

	// Gateways, one that is lost, and an unusable address.
	first := w.gatewayNode("node-1", "192.168.78.101")
	gatewaysAre("node-1")
	second := w.gatewayNode("node-2", "192.168.78.102")
	gatewaysAre("node-1", "node-2")
	w.waysAreReported()
	w.eventually("node-1 is NotReady", func(ctx context.Context) error {
		if err := w.member.Get(ctx, client.ObjectKeyFromObject(first), first); err != nil {
			return err
		}
		notReady(first)
		return w.member.Status().Update(ctx, first)
	})
	gatewaysAre("node-2")
	w.gatewayNode("node-3", "fe80::3")
	w.eventIs("node-3", "GatewayIPUnusable")

	// The configuration changes, and the exports follow without a restart. An invalid configuration changes nothing and is
	// reported.
	announced := export("east-clusterinfo")
	if err := w.leader.Get(t.Context(), client.ObjectKeyFromObject(announced), announced); err != nil {
		t.Fatal(err)
	}
	exportsAre := func(step string, pods []string, ip string) {
		t.Helper()
		w.eventually(step, func(ctx context.Context) error {
			info, endpoints := export("east-clusterinfo"), export("east-default-web-endpoints")
			if err := errors.Join(w.leader.Get(ctx, client.ObjectKeyFromObject(info), info),
				w.leader.Get(ctx, client.ObjectKeyFromObject(endpoints), endpoints)); err != nil {
				return err
			}
			have := endpoints.Spec.Endpoints.Subsets[0].Addresses[0].IP
			if !slices.Equal(info.Spec.ClusterInfo.PodCIDRs, pods) || have != ip || info.UID != announced.UID {
				return fmt.Errorf("have Pod ranges %v, endpoint %s, ResourceExport %s (was %s)",
					info.Spec.ClusterInfo.PodCIDRs, have, info.UID, announced.UID)
			}
			return nil
		})
	}
	if err := w.member.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
		t.Fatal(err)
	}
	clusterIP, podIP := service.Spec.ClusterIP, "10.11.0.1"
	configure("activeGateways: 2\npodCIDRs: [10.11.0.0/16]\nendpointIPType: PodIP\n")
	exportsAre("Pod ranges and Pods' addresses", []string{"10.11.0.0/16"}, podIP)
	file := configure("endpointIPType: Pod\n")
	w.eventWith("ClusterSet", "kube-system", "set", "ConfigurationInvalid",
		"the controller goes on with the configuration that it had: configuration "+file+": "+
			`endpointIPType: "Pod" is not one of ClusterIP, PodIP; correct it in ConfigMap antrea-mc-controller-config: it is `+
			`taken over without a restart`)
	exportsAre("as before", []string{"10.11.0.0/16"}, podIP)
	configure("activeGateways: 2\n")
	exportsAre("as at first", nil, clusterIP)
	gatewaysAre("node-2")

	// The Gateway and its announcement follow too. The same objects get another address and another Service range.
	second.Status.Addresses = append(second.Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.2"})
	w.eventually("node-2 has a public address", func(ctx context.Context) error {
		have := second.DeepCopy()
		if err := w.member.Get(ctx, client.ObjectKeyFromObject(have), have); err != nil {
			return err
		}
		have.Status.Addresses = second.Status.Addresses
		return w.member.Status().Update(ctx, have)
	})
	present := &mcv1alpha1.Gateway{}
	if err := w.member.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "node-2"}, present); err != nil {
		t.Fatal(err)
	}
	gatewayIs := func(ip, services string) {
		t.Helper()
		w.eventually("the Gateway is at "+ip+", with Service range "+services, func(ctx context.Context) error {
			g, info := &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", "node-2")}, export("east-clusterinfo")
			if err := errors.Join(w.member.Get(ctx, client.ObjectKeyFromObject(g), g),
				w.leader.Get(ctx, client.ObjectKeyFromObject(info), info)); err != nil {
				return err
			}
			if g.GatewayIP != ip || g.InternalIP != "192.168.78.102" || g.ServiceCIDR != services || g.UID != present.UID {
				return fmt.Errorf("have Gateway %s (was %s) at %s and %s with %s", g.UID, present.UID,
					g.GatewayIP, g.InternalIP, g.ServiceCIDR)
			}
			have := info.Spec.ClusterInfo
			if !slices.Equal(have.GatewayInfos, []mcv1alpha1.GatewayInfo{{GatewayIP: ip}}) ||
				have.ServiceCIDR != services || info.UID != announced.UID {
				return fmt.Errorf("the leader has ResourceExport %s (was %s) with gateways %v and %s",
					info.UID, announced.UID, have.GatewayInfos, have.ServiceCIDR)
			}
			return nil
		})
	}
	gatewayIs("192.168.78.102", "10.97.0.0/16")
	configure("activeGateways: 2\ngatewayIPPrecedence: public\n")
	gatewayIs("203.0.113.2", "10.97.0.0/16")
	configure("activeGateways: 2\ngatewayIPPrecedence: public\nserviceCIDR: 10.96.0.0/15\n")
	gatewayIs("203.0.113.2", "10.96.0.0/15")
	configure("activeGateways: 2\n")
	gatewayIs("192.168.78.102", "10.97.0.0/16")

	// A range of ClusterIPs that is added to the cluster is announced, and withdrawn with its object.
	added := &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.121.0.0/24"}}}
	added.Name = "added"
	rangesAre := func(want ...string) {
		t.Helper()
		w.eventually(fmt.Sprint("the Service ranges are ", want), func(ctx context.Context) error {
			info := export("east-clusterinfo")
			if err := w.leader.Get(ctx, client.ObjectKeyFromObject(info), info); err != nil {
				return err
			}
			if have := info.Spec.ClusterInfo.ServiceCIDRs; !slices.Equal(have, want) {
				return fmt.Errorf("the leader has Service ranges %v", have)
			}
			return nil
		})
	}
	w.create(w.member, added)
	rangesAre("10.97.0.0/16", "10.121.0.0/24")
	w.delete(w.member, added)
	rangesAre()

	// If the leader is unavailable, imported objects stay, also while the controller restarts. The local Gateways still
	// change. When the leader is back, missed changes arrive.
	leader.Stop()
	w.clusterSetIs("False True False", "")
	w.create(w.member, web("late")...)
	w.stop()
	w.startMember()
	third := &corev1.Node{}
	third.Name = "node-2"
	w.delete(w.member, third)
	w.gone(w.member, &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", "node-2")})
	w.importIs("db", "10.98.0.7")
	if err := leader.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.clusterSetIs("True True True", "")
	w.exportIs("late", "Succeed")
	w.importIs("db", "10.98.0.7")
	w.gone(w.leader, export("east-clusterinfo"))
	w.delete(w.leader, importOf("default", "good"), endpointsOf("default", "good"))
	w.gone(w.member, &corev1.Service{ObjectMeta: meta("default", "antrea-mc-good")},
		&mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "good")})

	// Leaving cleans up both clusters; users' objects stay.
	w.update(w.member, first, func() { first.Labels = map[string]string{"x": "y"} })
	w.eventually("node-1 is Ready", func(ctx context.Context) error {
		if err := w.member.Get(ctx, client.ObjectKeyFromObject(first), first); err != nil {
			return err
		}
		first.Status.Conditions[0].Status = corev1.ConditionTrue
		return w.member.Status().Update(ctx, first)
	})
	gatewaysAre("node-1")
	w.delete(w.member, set, secret)
	w.gone(w.leader, &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: meta(area, "member-announce-from-east")},
		export("east-default-web-service"), export("east-default-web-endpoints"), export("east-default-late-service"),
		export("east-default-late-endpoints"), export("east-clusterinfo"))
	w.gone(w.member, &corev1.Service{ObjectMeta: meta("default", "antrea-mc-db")},
		&corev1.Service{ObjectMeta: meta("later", "antrea-mc-db")},
		&services.Endpoints{ObjectMeta: meta("default", "antrea-mc-db")},
		&mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "db")},
		&mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", "node-1")},
		&mcv1alpha1.ClusterInfoImport{ObjectMeta: meta("kube-system", "west-clusterinfo")})
	for _, o := range []client.Object{mine, userImport} {
		if err := w.member.Get(t.Context(), client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) {
			t.Errorf("%T %s of the user is gone", o, o.GetName())
		}
	}
}
