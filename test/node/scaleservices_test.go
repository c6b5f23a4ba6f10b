package node

import (
	"context"
	"fmt"
	"math/big"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/tombolo-net/tombolo/test/apiserver"
)

// scaleNodePorts is the range of node ports, scaleNodePort its first one.
const (
	scaleNodePorts = "1025-32767"
	scaleNodePort  = 1025
)

// nodePort returns the node port of a Service's number. It leaves out 10,000 to 29,999, the ports of the
// tests' servers. An agent does not reach an API server of its Node whose port is a node port.
func nodePort(i int) int32 {
	const low = 10_000 - scaleNodePort // number of ports below them
	if i >= low {
		return int32(30_000 + i - low)
	}
	return int32(scaleNodePort + i)
}

// fillServices makes the Services and their EndpointSlices. The API server makes the first Service, and etcd gets
// copies of it, with the ClusterIPs and node ports that the API server would have allocated.
func (s *scale) fillServices() {
	ctx, services := s.b.Context(), s.client.CoreV1().Services("default")
	slices := s.client.DiscoveryV1().EndpointSlices("default")
	must := func(err error) {
		if err != nil {
			s.b.Helper()
			s.b.Fatal(err)
		}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	if s.dual {
		service.Spec.Type = corev1.ServiceTypeNodePort
		service.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	s.number(service, 0)
	service, err := services.Create(ctx, service, metav1.CreateOptions{})
	must(err)
	service.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	var parts []*discoveryv1.EndpointSlice
	var addresses []*networkingv1.IPAddress
	for family, ip := range service.Spec.ClusterIPs {
		part := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default"},
			Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}}
		endpointsOf(part, 0, family)
		part, err := slices.Create(ctx, part, metav1.CreateOptions{})
		must(err)
		part.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
		address, err := s.client.NetworkingV1().IPAddresses().Get(ctx, ip, metav1.GetOptions{})
		must(err)
		address.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "IPAddress"}
		parts, addresses = append(parts, part), append(addresses, address)
	}

	const block = 500
	s.each((*scaleServices+block-1)/block, func(ctx context.Context, n int) error {
		var objects []apiserver.Stored
		for i := max(1, n*block); i < min((n+1)*block, *scaleServices); i++ {
			service := service.DeepCopy()
			s.number(service, i)
			objects = append(objects, stored("services/specs/default/", service))
			for family, ip := range service.Spec.ClusterIPs {
				part, address := parts[family].DeepCopy(), addresses[family].DeepCopy()
				endpointsOf(part, i, family)
				address.Name, address.Spec.ParentRef.Name = ip, service.Name
				objects = append(objects, stored("endpointslices/default/", part), stored("ipaddresses/", address))
			}
		}
		return s.rig.cluster.server.Put(ctx, objects)
	})
	if s.dual {
		must(s.rig.cluster.server.Put(ctx, []apiserver.Stored{{Key: "ranges/servicenodeports", Object: allocated()}}))
	}
	list, err := slices.List(ctx, metav1.ListOptions{}) // their versions
	must(err)
	made := map[string]*discoveryv1.EndpointSlice{}
	for i := range list.Items {
		made[list.Items[i].Name] = &list.Items[i]
	}
	for i := range s.slices {
		if s.slices[i] = made[fmt.Sprintf("service-%d", i)]; s.slices[i] == nil {
			s.b.Fatalf("the API server has no EndpointSlice of Service %d", i)
		}
	}
}

// stored prepares an object for etcd.
func stored(under string, o interface {
	metav1.Object
	runtime.Object
}) apiserver.Stored {
	o.SetUID(uuid.NewUUID())
	o.SetResourceVersion("")
	return apiserver.Stored{Key: under + o.GetName(), Object: o}
}

// number gives a Service the name, the addresses and the node port of a number.
func (s *scale) number(service *corev1.Service, i int) {
	service.Name = fmt.Sprintf("service-%d", i)
	first := netip.AddrFrom4([4]byte{10, 97, byte(16 + i/256), byte(i)}).String()
	service.Spec.ClusterIP, service.Spec.ClusterIPs = first, []string{first}
	if s.dual {
		service.Spec.ClusterIPs = append(service.Spec.ClusterIPs, fmt.Sprintf("fd97::%x", 0x1000+i))
		service.Spec.Ports[0].NodePort = nodePort(i)
	}
}

// endpointsOf gives an EndpointSlice the name and the endpoints of a Service's number. The family is 0 for IPv4, 1 for
// IPv6.
func endpointsOf(slice *discoveryv1.EndpointSlice, i, family int) {
	service := fmt.Sprintf("service-%d", i)
	slice.Name, slice.Labels = service, map[string]string{discoveryv1.LabelServiceName: service}
	slice.AddressType, slice.Endpoints = discoveryv1.AddressTypeIPv4, nil
	if family == 1 {
		slice.Name, slice.AddressType = service+"-6", discoveryv1.AddressTypeIPv6
	}
	for j := range scaleEndpoints {
		n := i*scaleEndpoints + j
		address := endpoint(n, 0)
		if family == 1 {
			address = fmt.Sprintf("fd32:%x::%x", 1+n%*scaleNodes, 2 + n / *scaleNodes)
		}
		slice.Endpoints = append(slice.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{address}, NodeName: new(fmt.Sprintf("other-%d", n%*scaleNodes))})
	}
}

// allocated are the node ports of all Services, as the API server keeps them.
func allocated() *corev1.RangeAllocation {
	ports := new(big.Int)
	for i := range *scaleServices {
		ports.SetBit(ports, int(nodePort(i))-scaleNodePort, 1)
	}
	return &corev1.RangeAllocation{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "RangeAllocation"},
		Range: scaleNodePorts, Data: ports.Bytes()}
}
