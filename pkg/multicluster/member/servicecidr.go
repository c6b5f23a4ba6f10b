package member

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// discoverServiceCIDR finds this cluster's IPv4 Service range. API servers since 1.33 have it in the ServiceCIDR object
// "kubernetes". An older API server names it when it refuses a Service with an address outside of the range. That
// request is a dry run, so it stores nothing.
func discoverServiceCIDR(ctx context.Context, reader client.Reader, writer client.Writer,
	namespace string) (string, error) {
	object := &networkingv1.ServiceCIDR{}
	err := reader.Get(ctx, client.ObjectKey{Name: "kubernetes"}, object)
	if err == nil {
		return firstIPv4CIDR(object.Spec.CIDRs)
	}
	if !apierrors.IsNotFound(err) && !apimeta.IsNoMatchError(err) {
		return "", fmt.Errorf("get ServiceCIDR kubernetes: %w", err)
	}
	probe := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "invalid-svc"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "0.0.0.0",
			Ports:     []corev1.ServicePort{{Port: 443, Protocol: corev1.ProtocolTCP}},
		},
	}
	err = writer.Create(ctx, probe, client.DryRunAll)
	if err == nil {
		return "", fmt.Errorf("discover the Service range: the API server accepts a Service with address 0.0.0.0")
	}
	return serviceCIDRFromError(err.Error())
}

var validIPs = regexp.MustCompile(`valid IPs is ([0-9a-fA-F.:/]+)`)

// serviceCIDRFromError reads the range from the message with which an API server refuses a Service: "The range of valid
// IPs is 10.96.0.0/12".
func serviceCIDRFromError(text string) (string, error) {
	m := validIPs.FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("discover the Service range: the API server does not name it: %s", text)
	}
	return firstIPv4CIDR([]string{m[1]})
}

func firstIPv4CIDR(cidrs []string) (string, error) {
	for _, text := range cidrs {
		if cidr, err := netip.ParsePrefix(text); err == nil && cidr.Addr().Is4() {
			return cidr.Masked().String(), nil
		}
	}
	return "", fmt.Errorf("discover the Service range: there is no IPv4 range in %q", cidrs)
}
