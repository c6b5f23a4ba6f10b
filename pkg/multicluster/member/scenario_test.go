package member

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// TestMemberWithRealAPIServers walks through the life of a member: it joins with a wrong and
// with the right token, exports, imports, loses the leader, restarts, and leaves. The steps
// build on each other.
func TestMemberWithRealAPIServers(t *testing.T) {
	w, leader := newWorld(t)
	token := w.token()
	secret := &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"), Data: map[string][]byte{
		"ca.crt": w.leaderConfig.CAData, "token": []byte("wrong")}}
	gatewayNode := func(name, ip string) *corev1.Node {
		n := node(name, ip)
		w.create(w.member, n.DeepCopy())
		have := n.DeepCopy()
		w.eventually("status of Node "+name, func(ctx context.Context) error {
			if err := w.member.Get(ctx, client.ObjectKeyFromObject(n), have); err != nil {
				return err
			}
			have.Status.Addresses, have.Status.Conditions = n.Status.Addresses, n.Status.Conditions
			return w.member.Status().Update(ctx, have)
		})
		return have
	}
	gatewayIs := func(name string) {
		t.Helper()
		w.eventually("Gateway "+name, func(ctx context.Context) error {
			l := &mcv1alpha1.GatewayList{}
			if err := w.member.List(ctx, l); err != nil {
				return err
			}
			if len(l.Items) != 1 || l.Items[0].Name != name || l.Items[0].ServiceCIDR == "" {
				return fmt.Errorf("have %v", l.Items)
			}
			info := export("east-clusterinfo")
			if err := w.leader.Get(ctx, client.ObjectKeyFromObject(info), info); err != nil {
				return err
			}
			if have := info.Spec.ClusterInfo.GatewayInfos[0].GatewayIP; have != l.Items[0].GatewayIP {
				return fmt.Errorf("the leader has Gateway %s", have)
			}
			return nil
		})
	}

	// Leftovers of a former life go when there is no ClusterSet; users' objects stay.
	leftover := &corev1.Service{ObjectMeta: marked("default", "antrea-mc-old"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	oldInfo := &mcv1alpha1.ClusterInfoImport{ObjectMeta: meta("kube-system", "old-clusterinfo")}
	oldImport := &mcsv1alpha1.ServiceImport{ObjectMeta: marked("default", "old"), Spec: importOf("default", "old").Spec.ServiceImport.Spec}
	userImport := &mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "users"), Spec: importOf("default", "old").Spec.ServiceImport.Spec}
	w.create(w.member, leftover, oldInfo, oldImport, userImport)
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
	mine := &corev1.Service{ObjectMeta: meta("default", "antrea-mc-mine"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
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
		if err := w.member.Get(ctx, client.ObjectKeyFromObject(imported), imported); err != nil || len(imported.Spec.Selector) != 0 {
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
	// Events without a fact cost no write: a change of an import costs the same after some of them.
	change := func(port int32) int {
		before := w.writes()
		w.update(w.leader, ri, func() { ri.Spec.ServiceImport.Spec.Ports[0].Port = port })
		w.eventually("the changed port is imported", func(ctx context.Context) error {
			service := &corev1.Service{}
			if err := w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: "antrea-mc-db"}, service); err != nil || service.Spec.Ports[0].Port != port {
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

	// An import that the API server refuses is reported, and does not stop the next one. Of one
	// that is partly invalid the rest is imported.
	long := strings.Repeat("b", 60)
	w.create(w.leader, importOf("default", long), endpointsOf("default", long, "10.98.0.9"),
		importOf("default", "good"), endpointsOf("default", "good", "127.0.0.1", "10.98.0.9"))
	w.importIs("good", "10.98.0.9")
	w.eventIs("set", "WriteFailed")
	w.eventIs("set", "ResourceImportInvalid")

	// Gateway, its failover, and an unusable address.
	first := gatewayNode("node-1", "192.168.78.101")
	gatewayIs("node-1")
	gatewayNode("node-2", "192.168.78.102")
	w.eventually("node-1 is NotReady", func(ctx context.Context) error {
		if err := w.member.Get(ctx, client.ObjectKeyFromObject(first), first); err != nil {
			return err
		}
		notReady(first)
		return w.member.Status().Update(ctx, first)
	})
	gatewayIs("node-2")
	gatewayNode("node-3", "fd00::3")
	w.eventIs("node-3", "GatewayIPUnusable")

	// The leader is away: what is imported stays, also over a restart of the controller; the
	// local Gateway still moves. When it is back, what was missed arrives.
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
	gatewayIs("node-1")
	w.delete(w.member, set, secret)
	w.gone(w.leader, &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: meta(area, "member-announce-from-east")},
		export("east-default-web-service"), export("east-default-web-endpoints"), export("east-default-late-service"),
		export("east-default-late-endpoints"), export("east-clusterinfo"))
	w.gone(w.member, &corev1.Service{ObjectMeta: meta("default", "antrea-mc-db")}, &corev1.Service{ObjectMeta: meta("later", "antrea-mc-db")},
		&Endpoints{ObjectMeta: meta("default", "antrea-mc-db")},
		&mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "db")},
		&mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", "node-1")},
		&mcv1alpha1.ClusterInfoImport{ObjectMeta: meta("kube-system", "west-clusterinfo")})
	for _, o := range []client.Object{mine, userImport} {
		if err := w.member.Get(t.Context(), client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) {
			t.Errorf("%T %s of the user is gone", o, o.GetName())
		}
	}
}
