package externalip

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// manifest is the part of the agents' manifest that is about the controller.
func manifest(t testing.TB) []byte {
	t.Helper()
	all, err := os.ReadFile("../../../deploy/agent/tombolo.yml")
	if err != nil {
		t.Fatal(err)
	}
	var own [][]byte
	for _, document := range bytes.Split(all, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("name: "+LeaseName+"\n")) {
			own = append(own, document)
		}
	}
	return bytes.Join(own, []byte("\n---\n"))
}

// TestStatus has the controller assign addresses in a real API server, with the rights of its manifest.
func TestStatus(t *testing.T) {
	server := apiserver.New(t, apiserver.Options{
		CRDs: []string{"../../../deploy/crds"}, ServiceCIDR: "10.0.0.0/24,fd96::/112",
	})
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	own := apiserver.Access(t, server.Config, manifest(t))
	start := func() (stop func()) {
		t.Helper()
		mgr, err := ctrl.NewManager(own, ctrl.Options{
			Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
			Controller:     config.Controller{SkipNameValidation: new(true)},
			LeaderElection: true, LeaderElectionID: LeaseName, LeaderElectionNamespace: metav1.NamespaceSystem,
			LeaderElectionReleaseOnCancel: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := SetupWithManager(mgr, "test"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() { done <- mgr.Start(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the manager ended: %v", err)
			}
		}
	}
	create := func(o client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	balancer := func(name string, annotations map[string]string) *corev1.Service {
		t.Helper()
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations}}
		s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Port: 80}}
		create(s)
		return s
	}
	stateOf := func(o client.Object) string {
		switch o := o.(type) {
		case *corev1.Service:
			ip := "none"
			for i, in := range o.Status.LoadBalancer.Ingress {
				if ip = ip + "," + in.IP; i == 0 {
					ip = in.IP
				}
			}
			if c := meta.FindStatusCondition(o.Status.Conditions, ConditionAssigned); c != nil {
				ip += fmt.Sprint(" ", c.Status, " ", c.Reason)
			}
			return ip
		case *crdv1beta1.ExternalIPPool:
			text := fmt.Sprintf("%d of %d", o.Status.Usage.Used, o.Status.Usage.Total)
			if c := meta.FindStatusCondition(o.Status.Conditions, ConditionUsable); c != nil {
				text += fmt.Sprint(" ", c.Status, " ", c.Reason)
			}
			return text
		}
		return ""
	}
	expect := func(o client.Object, want string) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true,
			func(ctx context.Context) (bool, error) {
				err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
				return stateOf(o) == want, err
			})
		if err != nil {
			t.Fatalf("%s: %s, want %s: %v", o.GetName(), stateOf(o), want, err)
		}
	}
	of := map[string]string{crdv1beta1.AnnotationExternalIPPool: "edge"}
	create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	pool := &crdv1beta1.ExternalIPPool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: crdv1beta1.ExternalIPPoolSpec{
		IPRanges: []crdv1beta1.IPRange{{Start: "198.51.100.10", End: "198.51.100.11"}},
	}}
	first, plain := balancer("first", of), balancer("plain", nil)

	stop := start()
	expect(first, "none False UnknownPool")
	create(pool)
	expect(first, "198.51.100.10 True Assigned")
	expect(pool, "1 of 2 True Understood")
	second := balancer("second", of)
	expect(second, "198.51.100.11 True Assigned")
	third := balancer("third", of)
	expect(third, "none False PoolExhausted")
	expect(plain, "none")
	create(&crdv1beta1.ExternalIPPool{ObjectMeta: metav1.ObjectMeta{Name: "both"}, Spec: crdv1beta1.ExternalIPPoolSpec{
		IPRanges: []crdv1beta1.IPRange{{CIDR: "2001:db8::/64"}, {CIDR: "203.0.113.0/24"}},
	}})
	both := balancer("both", map[string]string{crdv1beta1.AnnotationExternalIPPool: "both"})
	expect(both, "203.0.113.1 True Assigned")
	both.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	if err := c.Update(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	expect(both, "203.0.113.1,2001:db8::1 True Assigned")
	both.Spec.LoadBalancerIP = "2001:db8::7,203.0.113.1"
	if err := c.Update(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	expect(both, "203.0.113.1,2001:db8::7 True Assigned")
	both.Spec.IPFamilyPolicy, both.Spec.LoadBalancerIP = new(corev1.IPFamilyPolicySingleStack), ""
	both.Spec.IPFamilies, both.Spec.ClusterIPs = both.Spec.IPFamilies[:1], both.Spec.ClusterIPs[:1]
	if err := c.Update(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	expect(both, "203.0.113.1 True Assigned")
	var list eventsv1.EventList
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			if err := c.List(ctx, &list, client.InNamespace("default")); err != nil {
				return false, err
			}
			for _, e := range list.Items {
				if e.Regarding.Name == "third" && e.Reason == "PoolExhausted" {
					return true, nil
				}
			}
			return false, nil
		})
	if err != nil {
		t.Errorf("no Event about the Service without an address: %v", err)
	}
	stop()

	// While no controller runs, a Service goes and another one loses its annotation.
	if err := c.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	remove := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, crdv1beta1.AnnotationExternalIPPool)
	if err := c.Patch(t.Context(), first, client.RawPatch(types.MergePatchType, []byte(remove))); err != nil {
		t.Fatal(err)
	}
	defer start()()
	expect(first, "none")
	expect(third, "198.51.100.10 True Assigned")
	expect(pool, "1 of 2 True Understood")

	pool.Spec.IPRanges = []crdv1beta1.IPRange{{CIDR: "198.51.100.64/29", Start: "198.51.100.65"}}
	if err := c.Update(t.Context(), pool); err == nil {
		t.Error("the definition admits a range of two kinds")
	}
}
