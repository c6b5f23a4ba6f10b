package agent

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// manyServices is a view with Services of five endpoints each, as the API server hands them out.
func manyServices(n int) *View {
	v := &View{NodeName: "node-1", Config: config.Default()}
	for i := range n {
		name := fmt.Sprint("web", i)
		v.Services = append(v.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1"},
			Spec:       corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250), Ports: []corev1.ServicePort{{Port: 80}}},
		})
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name + "-x", ResourceVersion: "1", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Port: new(int32(8080))}},
		}
		for j := range 5 {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i/250, i%250, 2+j)}})
		}
		v.EndpointSlices = append(v.EndpointSlices, s)
	}
	return v
}

// changed is slice i without its first endpoint, as a new version.
func changed(v *View, i, version int) {
	s := v.EndpointSlices[i].DeepCopy()
	s.ResourceVersion = strconv.Itoa(version)
	s.Endpoints = append(s.Endpoints[1:], s.Endpoints[0])
	s.Endpoints[0].Addresses = []string{fmt.Sprintf("10.200.0.%d", version%250)}
	v.EndpointSlices[i] = s
}

func TestBalance(t *testing.T) {
	v := manyServices(200)
	b := newBalance(v.Config, v.NodeName)
	for _, row := range []struct {
		name      string
		change    func()
		evaluated int
	}{
		{"everything is new", func() {}, 3 * 200},
		{"nothing happened", func() {}, 0},
		{"a heartbeat: another version of the same", func() { v.Services[3] = v.Services[3].DeepCopy(); v.Services[3].ResourceVersion = "2" }, 0},
		{"an endpoint changes", func() { changed(v, 7, 2) }, 3},
		{"a slice goes", func() { v.EndpointSlices = v.EndpointSlices[1:] }, 3},
		{"a Service goes", func() { v.Services = v.Services[:199] }, 0},
	} {
		row.change()
		b.update(v)
		if last, _, _ := b.engine.Stats(); last.Evaluated != row.evaluated {
			t.Errorf("%s: %d keys evaluated, want %d", row.name, last.Evaluated, row.evaluated)
		}
		frontends, problems := service.Plan(service.View{Services: v.Services, Slices: v.EndpointSlices, NodeName: v.NodeName, SCTP: true})
		if diff := cmp.Diff(&Balanced{frontends, problems}, v.Balanced, cmp.Comparer(func(a, b service.Frontend) bool {
			return fmt.Sprint(a, a.Endpoints) == fmt.Sprint(b, b.Endpoints)
		})); diff != "" {
			t.Errorf("%s: (-from nothing +incremental):\n%s", row.name, diff)
		}
	}
}

// BenchmarkBalance has one of 10,000 Services change its endpoints.
func BenchmarkBalance(b *testing.B) {
	v := manyServices(10000)
	balance := newBalance(v.Config, v.NodeName)
	balance.update(v)
	b.ReportAllocs()
	i := 1
	for b.Loop() {
		i++
		changed(v, 5000, i)
		balance.update(v)
	}
}
