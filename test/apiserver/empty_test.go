package apiserver

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestNextTest gives a server to a second test: it has nothing that the first one has made, changed or deleted.
func TestNextTest(t *testing.T) {
	t.Setenv(EnvLender, "") // this program keeps the server
	options := Options{CRDs: []string{"../../deploy/crds"}, ServiceCIDR: "10.98.0.0/24"}
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{ClusterIP: "10.98.0.7", Ports: []corev1.ServicePort{{Port: 80}}}}
	}
	var first *Server
	t.Run("first", func(t *testing.T) {
		first = New(t, options)
		c := kubernetes.NewForConfigOrDie(first.Config)
		ctx := t.Context()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		_, err := c.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		must(t, err)
		_, err = c.CoreV1().Services("shop").Create(ctx, service("web"), metav1.CreateOptions{})
		must(t, err)
		must(t, c.RbacV1().ClusterRoles().Delete(ctx, "edit", metav1.DeleteOptions{}))
		system, err := c.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		must(t, err)
		system.Labels["changed"] = "yes"
		_, err = c.CoreV1().Namespaces().Update(ctx, system, metav1.UpdateOptions{})
		must(t, err)
	})
	t.Run("second", func(t *testing.T) {
		second := New(t, options)
		if second != first {
			t.Fatal("the second test got another server")
		}
		c := kubernetes.NewForConfigOrDie(second.Config)
		ctx := t.Context()
		for _, version := range []string{"", "0"} { // from etcd, and from the API server's cache
			list, err := c.CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: version})
			must(t, err)
			var names []string
			for _, n := range list.Items {
				names = append(names, n.Name)
				if n.Labels["changed"] != "" {
					t.Errorf("Namespace %s has the label of the first test", n.Name)
				}
			}
			if want := []string{"default", "kube-node-lease", "kube-public", "kube-system"}; !slices.Equal(names, want) {
				t.Errorf("Namespaces %v, want %v", names, want)
			}
		}
		if _, err := c.CoreV1().Services("shop").Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Service shop/web: %v, want that it is not there", err)
		}
		_, err := c.RbacV1().ClusterRoles().Get(ctx, "edit", metav1.GetOptions{})
		must(t, err)
		_, err = c.CoreV1().Services("default").Create(ctx, service("other"), metav1.CreateOptions{})
		must(t, err) // its address is free again
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLender takes a server from another program's lender, stops and starts it, and gives it to a second test.
func TestLender(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "lender")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Lend(ctx, socket) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	for { // until it listens
		if c, err := net.Dial("unix", socket); err == nil {
			must(t, c.Close())
			break
		}
		if len(ended) > 0 || t.Context().Err() != nil {
			t.Fatal("the lender does not listen")
		}
		time.Sleep(time.Millisecond)
	}
	t.Setenv(EnvLender, socket)
	options := Options{ServiceCIDR: "10.98.0.0/24"}
	var url string
	t.Run("first", func(t *testing.T) {
		s := New(t, options)
		url = s.Config.Host
		c := kubernetes.NewForConfigOrDie(s.Config).CoreV1().Namespaces()
		shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		_, err := c.Create(t.Context(), shop, metav1.CreateOptions{})
		must(t, err)
		s.Stop()
		if _, err := c.Get(t.Context(), "shop", metav1.GetOptions{}); err == nil {
			t.Error("the server answers after it was stopped")
		}
		must(t, s.Start(t.Context()))
		_, err = c.Get(t.Context(), "shop", metav1.GetOptions{})
		must(t, err)
	})
	t.Run("second", func(t *testing.T) {
		s := New(t, options)
		if s.Config.Host != url {
			t.Error("the second test got another server")
		}
		c := kubernetes.NewForConfigOrDie(s.Config).CoreV1().Namespaces()
		if _, err := c.Get(t.Context(), "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Namespace shop: %v, want that it is not there", err)
		}
	})
}
