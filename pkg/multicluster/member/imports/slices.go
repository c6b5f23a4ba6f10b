package imports

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// inSlice is the least number of endpoints in an EndpointSlice if a cluster has many. The largest number is twice that.
const inSlice = 40

// unknownSource stands for the cluster of endpoints outside of all clusters' ranges. It is used if a leader of another
// implementation does not record the cluster.
const unknownSource = "unknown"

// sourceRange is a range of addresses of a cluster.
type sourceRange struct {
	Range   netip.Prefix
	Cluster string
}

// sourcesOf returns the ranges of all clusters, with which the cluster of an endpoint is found.
func (t *Tables) sourcesOf(_ derive.Name, r *derive.Reader) ([]sourceRange, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	own, _ := derive.Get(r, t.base.Own, membership.Here)
	infos, _ := derive.Get(r, t.in.Infos, membership.Here)
	var out []sourceRange
	for _, p := range slices.Concat(own.Services, own.Pods) {
		out = append(out, sourceRange{p, m.ID})
	}
	for _, cii := range infos {
		for _, p := range claims.Ranges(&cii.Spec) {
			out = append(out, sourceRange{p, cii.Spec.ClusterID})
		}
	}
	return out, nil
}

// bySource divides the joint endpoints of an import by their clusters: from the leader's record, else by the clusters'
// ranges. It omits endpoints that may not be imported. importOf reports them.
func (t *Tables) bySource(ri *mcv1alpha1.ResourceImport, foreign func(netip.Addr) string,
	r *derive.Reader) map[string]exportcheck.Part {
	out, ok := exportcheck.ReadSources(ri.Annotations[multicluster.AnnotationSources], ri.Spec.Endpoints.Subsets)
	if !ok {
		out = t.byRange(ri.Spec.Endpoints.Subsets, r)
	}
	for id, part := range out {
		part.Subsets, _ = exportcheck.Subsets("", part.Subsets, exportcheck.Allowed{Foreign: foreign},
			exportcheck.MaxImportEndpoints)
		out[id] = part
	}
	return out
}

func (t *Tables) byRange(all []services.Subset, r *derive.Reader) map[string]exportcheck.Part {
	ranges, _ := derive.Get(r, t.sources, membership.Here)
	out := map[string]exportcheck.Part{}
	for _, s := range all {
		parts := map[string][]services.Address{}
		for _, a := range s.Addresses {
			id := unknownSource
			if ip, err := netip.ParseAddr(a.IP); err == nil {
				if i := slices.IndexFunc(ranges, func(s sourceRange) bool { return s.Range.Contains(ip) }); i >= 0 {
					id = ranges[i].Cluster
				}
			}
			parts[id] = append(parts[id], a)
		}
		for id, list := range parts {
			out[id] = exportcheck.Part{Subsets: append(out[id].Subsets, services.Subset{Addresses: list, Ports: s.Ports})}
		}
	}
	return out
}

// endpointSlices returns the EndpointSlices of an imported Service. They are for the derived Service, through which the
// datapath finds them, and for multi-cluster DNS. An endpoint stays in its slice while others come and go, so that a
// change costs one slice.
//
// Endpoints of a cluster that is away are not ready.
func endpointSlices(of, service derive.Object, sources map[string]exportcheck.Part,
	away func(id string, s services.Subset) bool) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, id := range slices.Sorted(maps.Keys(sources)) {
		label := sourceLabel(id)
		var annotations map[string]string
		if n := sources[id].Ready; n > 0 {
			annotations = map[string]string{multicluster.AnnotationReady: strconv.Itoa(n)}
		}
		for i, s := range sources[id].Subsets {
			for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
				for bucket, endpoints := range buckets(s, family, !away(id, s)) {
					if len(endpoints) == 0 {
						continue
					}
					text := fmt.Sprintf("%s/%s/%d/%s/%d", of.Name, id, i, family, bucket)
					out = append(out, &discoveryv1.EndpointSlice{
						ObjectMeta: metav1.ObjectMeta{
							Namespace: service.Namespace, Name: service.Name + "-" + multicluster.LabelHash(text),
							Labels: map[string]string{
								discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: multicluster.EndpointSliceManager,
								mcsv1beta1.LabelServiceName: of.Name, mcsv1beta1.LabelSourceCluster: label,
							},
							Annotations: annotations,
						},
						AddressType: family, Ports: slicePorts(s.Ports), Endpoints: endpoints,
					})
				}
			}
		}
	}
	return out
}

// sourceLabel returns the value of the label with the cluster of an EndpointSlice. The value is a part of DNS names,
// and a dot would divide it. So if a cluster's ID is not a DNS label, a hash represents it.
func sourceLabel(id string) string {
	if len(validation.IsDNS1123Label(id)) > 0 {
		return multicluster.LabelHash(id)
	}
	return id
}

func slicePorts(list []services.Port) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, p := range list {
		out = append(out, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol),
			Port: ptr.To(p.Port), AppProtocol: p.AppProtocol})
	}
	return out
}

// buckets divides the addresses of a family by their hashes (linear hashing). If one address is added or removed, at
// most one bucket is divided or joined.
func buckets(s services.Subset, family discoveryv1.AddressType, ready bool) [][]discoveryv1.Endpoint {
	var list []services.Address
	for _, a := range s.Addresses {
		if ip, err := netip.ParseAddr(a.IP); err == nil && ip.Is4() == (family == discoveryv1.AddressTypeIPv4) {
			list = append(list, a)
		}
	}
	n := max(1, (len(list)+inSlice-1)/inSlice)
	out := make([][]discoveryv1.Endpoint, n)
	slices.SortFunc(list, func(a, b services.Address) int {
		return netip.MustParseAddr(a.IP).Compare(
			netip.MustParseAddr(b.IP))
	})
	for _, a := range list {
		h := fnv.New64a()
		h.Write([]byte(a.IP))
		b := bucket(h.Sum64(), n)
		e := discoveryv1.Endpoint{Addresses: []string{a.IP},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready), Serving: ptr.To(ready), Terminating: ptr.To(false)}}
		if a.Hostname != "" {
			e.Hostname = ptr.To(a.Hostname)
		}
		out[b] = append(out[b], e)
	}
	return out
}

// bucket is one of n.
func bucket(hash uint64, n int) int {
	width := bits.Len(uint(n - 1))
	b := int(hash & (1<<width - 1))
	if b >= n {
		b = int(hash & (1<<(width-1) - 1))
	}
	return b
}

// away returns a function that reports whether endpoints of an import get no requests because their cluster is gone. If
// no other cluster has ready endpoints on the same ports, endpoints of a cluster that is gone still get requests.
func (t *Tables) away(of derive.Object, sources map[string]exportcheck.Part, r *derive.Reader) func(id string,
	s services.Subset) bool {
	gone, _ := derive.Get(r, t.in.Gone, membership.Here)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(sources)), func(id string) bool { return gone[id] }) {
		return func(string, services.Subset) bool { return false }
	}
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	left := map[string]bool{}
	for id, part := range sources {
		if gone[id] || id == m.ID && services.CountServing(derive.Values(derive.List(r, t.services.ByService, of))) == 0 {
			continue
		}
		for _, s := range part.Subsets {
			for _, port := range portNames(s) {
				left[port] = left[port] || len(s.Addresses) > 0
			}
		}
	}
	return func(id string, s services.Subset) bool {
		return gone[id] && !slices.ContainsFunc(portNames(s), func(port string) bool { return !left[port] })
	}
}

// portNames are the ports of a subset, as a Service's are found in it.
func portNames(s services.Subset) []string {
	out := []string{}
	for _, p := range s.Ports {
		out = append(out, p.Name+"/"+string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
	}
	if len(out) == 0 { // of a headless Service
		return []string{""}
	}
	return out
}

// withoutAway moves the addresses of clusters that are away to the addresses that are not ready. The subsets have the
// endpoints of all clusters. If another cluster that is not away has an address too, it stays ready.
func withoutAway(subsets []services.Subset, sources map[string]exportcheck.Part,
	away func(id string, s services.Subset) bool) []services.Subset {
	lost := map[string]bool{}
	for id, part := range sources {
		for _, s := range part.Subsets {
			for _, a := range s.Addresses {
				key := services.PortsText(s.Ports) + " " + a.IP
				gone, known := lost[key]
				lost[key] = away(id, s) && (gone || !known)
			}
		}
	}
	out := make([]services.Subset, len(subsets))
	for i, s := range subsets {
		out[i] = services.Subset{Ports: s.Ports, NotReadyAddresses: slices.Clone(s.NotReadyAddresses)}
		for _, a := range s.Addresses {
			if lost[services.PortsText(s.Ports)+" "+a.IP] {
				out[i].NotReadyAddresses = append(out[i].NotReadyAddresses, a)
			} else {
				out[i].Addresses = append(out[i].Addresses, a)
			}
		}
	}
	return out
}
