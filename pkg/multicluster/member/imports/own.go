package imports

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// ownEndpoints finds endpoints of an import that are this cluster's own: its Services, Pods, Nodes, gateways and API
// servers. Through such an endpoint, another cluster could make clients of this one send requests that bypass this
// cluster's policies. So an own endpoint counts only if this cluster exports it for the Service. The leader records the
// cluster of each endpoint. If it does not, the exports of this cluster decide. A leader has the ranges of a cluster,
// but neither its Nodes nor its API servers.
type ownEndpoints struct {
	what     func(netip.Addr) string // the object of this cluster that has an address; empty for no object
	exported map[netip.Addr]bool
	// withdrawn is set if the leader does not record the clusters of endpoints, and this cluster exports the Service or
	// did so a moment ago. Then an own address that this cluster does not export is left out without a report, since it
	// may just have been withdrawn.
	withdrawn bool
}

// foreign returns why an address may not be imported.
func (own ownEndpoints) foreign(ip netip.Addr) string {
	if own.exported[ip] {
		return ""
	}
	return own.what(ip)
}

// reported is foreign for addresses that a report is due for.
func (own ownEndpoints) reported(ip netip.Addr) string {
	if own.withdrawn {
		return ""
	}
	return own.foreign(ip)
}

// apiServer is the Service whose endpoints are the API servers.
var apiServer = derive.Object{Namespace: "default", Name: "kubernetes"}

func (t *Tables) ownEndpoints(of derive.Object, ri *mcv1alpha1.ResourceImport, r *derive.Reader) ownEndpoints {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	own, _ := derive.Get(r, t.base.Own, membership.Here)
	var out ownEndpoints
	if sources, ok := exportcheck.ReadSources(ri.Annotations[multicluster.AnnotationSources],
		ri.Spec.Endpoints.Subsets); ok {
		out.exported = addressSet(sources[m.ID].Subsets)
	} else if subsets, ok := t.in.Exported(of, r); ok {
		out.withdrawn, out.exported = true, addressSet(subsets)
	} else {
		_, out.withdrawn = derive.Get(r, t.base.ResourceExports,
			derive.Object{Namespace: m.Common, Name: services.ExportName(m.ID, of, multicluster.EndpointsKind)})
	}
	var servers map[netip.Addr]bool
	out.what = func(ip netip.Addr) string {
		const but = " of this cluster, which does not export it"
		if servers == nil { // few imports have addresses outside of all
			servers = map[netip.Addr]bool{}
			for _, s := range derive.Values(derive.List(r, t.services.ByService, apiServer)) {
				for _, e := range s.Endpoints {
					for _, a := range e.Addresses {
						if server, err := netip.ParseAddr(a); err == nil {
							servers[server] = true
						}
					}
				}
			}
		}
		switch {
		case own.Serves(ip):
			return "in a Service range" + but
		case slices.ContainsFunc(own.Pods, func(p netip.Prefix) bool { return p.Contains(ip) }):
			return "in a Pod range" + but
		case slices.ContainsFunc(own.Nodes, func(n membership.NodeAddr) bool { return n.Addr == ip }):
			return "a Node" + but
		case servers[ip]:
			return "an API server" + but
		case len(derive.List(r, t.servicesByIP, derive.Name(ip.String()))) > 0:
			return "a Service" + but
		case slices.ContainsFunc(derive.Values(derive.All(r, t.in.Gateways)), func(g *mcv1alpha1.Gateway) bool {
			return g.GatewayIP == ip.String() || g.InternalIP == ip.String()
		}):
			return "a gateway" + but
		}
		return ""
	}
	return out
}

// addressSet returns the addresses of subsets.
func addressSet(subsets []services.Subset) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, s := range subsets {
		for _, list := range [2][]services.Address{s.Addresses, s.NotReadyAddresses} {
			for _, a := range list {
				if ip, err := netip.ParseAddr(a.IP); err == nil {
					out[ip.Unmap()] = true
				}
			}
		}
	}
	return out
}

// byClusterIP indexes Services by their addresses, also by addresses of a second Service range.
func byClusterIP(_ derive.Object, o *corev1.Service) []derive.Name {
	var out []derive.Name
	for _, text := range append([]string{o.Spec.ClusterIP}, o.Spec.ClusterIPs...) {
		if ip, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, derive.Name(ip.String())) {
			out = append(out, derive.Name(ip.String()))
		}
	}
	return out
}
