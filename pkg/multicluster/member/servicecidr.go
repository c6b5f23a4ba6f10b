package member

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// discoverServiceCIDRs finds the ranges of this cluster's ClusterIPs, a range of IPv4 before a range of IPv6. API
// servers since 1.33 have them in the ServiceCIDR object "kubernetes". An older API server names a range when it
// refuses a Service with an address outside of it. That request is a dry run, so it stores nothing.
func discoverServiceCIDRs(ctx context.Context, reader client.Reader, writer client.Writer,
	namespace string) ([]string, error) {
	object := &networkingv1.ServiceCIDR{}
	err := reader.Get(ctx, client.ObjectKey{Name: "kubernetes"}, object)
	if err == nil {
		return inOrder(object.Spec.CIDRs)
	}
	if !apierrors.IsNotFound(err) && !apimeta.IsNoMatchError(err) {
		return nil, fmt.Errorf("get ServiceCIDR kubernetes: %w", err)
	}
	var found, refusals []string
	for _, none := range []string{"0.0.0.0", "::"} {
		probe := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "invalid-svc"},
			Spec: corev1.ServiceSpec{
				ClusterIP: none,
				Ports:     []corev1.ServicePort{{Port: 443, Protocol: corev1.ProtocolTCP}},
			},
		}
		err := writer.Create(ctx, probe, client.DryRunAll)
		if err == nil {
			return nil, fmt.Errorf("discover the Service range: the API server accepts a Service with address %s", none)
		}
		if !apierrors.IsInvalid(err) { // such an error is likely to pass
			return nil, fmt.Errorf("discover the Service range: create Service %s/%s as a dry run: %w", namespace,
				probe.Name, err)
		}
		if m := validIPs.FindStringSubmatch(err.Error()); m != nil { // else it has no range of this version of IP
			found = append(found, m[1])
		}
		refusals = append(refusals, err.Error())
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("discover the Service range: the API server does not name it: %s", refusals[0])
	}
	return inOrder(found)
}

// validIPs finds the range in an API server's message about a Service with another address: "The range of valid IPs is
// 10.96.0.0/12".
var validIPs = regexp.MustCompile(`valid IPs is ([0-9a-fA-F.:/]+)`)

// inOrder returns ranges, IPv4 before IPv6, since clusters that support one range read the first.
func inOrder(texts []string) (out []string, _ error) {
	for _, text := range texts {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			out = append(out, cidr.Masked().String())
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("discover the Service range: there is no range in %q", texts)
	}
	slices.SortStableFunc(out, func(a, b string) int {
		return cmp.Compare(strings.Count(a, ":"), strings.Count(b, ":"))
	})
	return out, nil
}
