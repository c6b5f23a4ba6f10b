package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/service"
)

// connects opens a TCP connection from a Pod, in a time that a lost SYN does not allow.
func connects(p *pod, address string) error {
	return p.within(func() error {
		conn, err := net.DialTimeout("tcp4", address, 500*time.Millisecond)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// refuses is an error while a Pod connects.
func refuses(p *pod, address string) error {
	if connects(p, address) == nil {
		return errors.New("it connects")
	}
	return nil
}

// testLabels has Services that kube-proxy leaves to others by a label, and a policy that names ports of init
// containers, sidecars and containers.
func testLabels(t *testing.T, c *cluster) {
	objects := c.objects(t)
	create := func(o client.Object) {
		t.Helper()
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = objects.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
	}
	r := newRig(t, c).withOVS()
	r.ready()
	sender, server := r.startAs("labels-client", "client"), r.startAs("labels-server", "server")
	server.serve(t, 8080)
	port := []corev1.ServicePort{{Port: 80}}
	serve := func(name, vip string, labels map[string]string) *corev1.Service {
		t.Helper()
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
			Spec:       corev1.ServiceSpec{ClusterIP: vip, Ports: port},
		}
		create(s)
		create(&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{server.ip}}},
		})
		return s
	}
	serve("of-mesh", "10.97.0.61", map[string]string{service.LabelProxyName: "mesh"})
	serve("marked", "10.97.0.62", map[string]string{corev1.IsHeadlessService: ""})
	plain := serve("plain", "10.97.0.63", nil) // the agent reads it last
	r.eventually("a Service without a label is served", func() error { return connects(sender, "10.97.0.63:80") })
	for _, address := range []string{"10.97.0.61:80", "10.97.0.62:80"} {
		if err := refuses(sender, address); err != nil {
			t.Errorf("a Service with a label, %s: %v", address, err)
		}
	}
	relabel := func(labels map[string]string) {
		t.Helper()
		plain.Labels = labels
		if err := objects.Update(t.Context(), plain); err != nil {
			t.Fatal(err)
		}
	}
	relabel(map[string]string{service.LabelProxyName: "mesh"})
	r.eventually("a Service that gets the label is not served", func() error { return refuses(sender, "10.97.0.63:80") })
	relabel(map[string]string{"other": "x"})
	r.eventually("a Service that loses the label is served", func() error { return connects(sender, "10.97.0.63:80") })

	container := func(name, port string, number int32) corev1.Container {
		return corev1.Container{Name: name, Image: "none", Ports: []corev1.ContainerPort{{Name: port, ContainerPort: number}}}
	}
	sidecar := container("sidecar", "metrics", 9191)
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "labels-ports", Labels: map[string]string{"app": "ports"}},
		Spec: corev1.PodSpec{
			NodeName:       nodeName,
			InitContainers: []corev1.Container{container("migrate", "admin", 9090), sidecar},
			Containers:     []corev1.Container{container("web", "http", 8080), {Name: "console", Image: "none"}},
		},
	}
	create(o)
	r.uids.Store(o.Name, o.UID)
	ports := r.add(o.Name)
	for _, number := range []int{8080, 9090, 9191} {
		ports.serve(t, number)
	}
	if err := r.running(ports); err != nil {
		t.Fatal(err)
	}
	at := func(number int) string { return fmt.Sprint(ports.ip, ":", number) }
	r.eventually("without a policy all ports are open", func() error {
		return errors.Join(connects(sender, at(8080)), connects(sender, at(9090)), connects(sender, at(9191)))
	})
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "by-name"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: o.Labels},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{}},
		},
	}
	for _, name := range []string{"admin", "metrics", "http"} {
		policy.Spec.Ingress[0].Ports = append(policy.Spec.Ingress[0].Ports,
			networkingv1.NetworkPolicyPort{Port: new(intstr.FromString(name))})
	}
	policies := c.client.NetworkingV1().NetworkPolicies("default")
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = policies.Delete(context.Background(), policy.Name, metav1.DeleteOptions{}) })
	r.eventually("the port that an init container names is closed", func() error { return refuses(sender, at(9090)) })
	for number, of := range map[int]string{8080: "a container", 9191: "a sidecar"} {
		if err := connects(sender, at(number)); err != nil {
			t.Errorf("the port that %s names: %v", of, err)
		}
	}
}
