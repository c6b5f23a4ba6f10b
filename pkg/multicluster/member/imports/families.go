package imports

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
)

// setFamilies sets the versions of IP of a derived Service: the exported ones for which this cluster has ClusterIPs.
// Exports without versions of IP come from other implementations, which export IPv4. While the served versions are not
// known, the API server decides. Members of earlier versions export both versions but only IPv4 endpoints. So a version
// that the Service does not have yet is left out while all its endpoints are of the other version.
func setFamilies(spec *corev1.ServiceSpec, served, exported []corev1.IPFamily, have *corev1.Service,
	endpoints []services.Subset) {
	if len(served) == 0 {
		return
	}
	if spec.IPFamilies = common(exported, served); len(spec.IPFamilies) == 0 {
		spec.IPFamilies = served[:1]
	}
	if len(spec.IPFamilies) > 1 && len(endpoints) > 0 {
		spec.IPFamilies = slices.DeleteFunc(slices.Clone(spec.IPFamilies), func(f corev1.IPFamily) bool {
			return (have == nil || !slices.Contains(have.Spec.IPFamilies, f)) &&
				len(ofFamilies(endpoints, []corev1.IPFamily{f})) == 0
		})
	}
	if len(spec.IPFamilies) > 1 {
		spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	}
}

// common returns the families that are in both lists, in the order of the first.
func common(a, b []corev1.IPFamily) []corev1.IPFamily {
	return slices.DeleteFunc(slices.Clone(a), func(f corev1.IPFamily) bool { return !slices.Contains(b, f) })
}

// mergeFamilies adds or removes the second family of a Service. The first cannot be changed. A Service that has one of
// the wanted families as its second keeps both.
func mergeFamilies(into, want *corev1.ServiceSpec) {
	wanted := len(want.IPFamilies)
	switch both := common(into.IPFamilies, want.IPFamilies); {
	case wanted == 0 || len(into.IPFamilies) == 0 || into.ClusterIP == corev1.ClusterIPNone:
	case wanted == 2 && len(both) == 1:
		into.IPFamilies = append(both, common(want.IPFamilies, other(both[0]))...)
		into.IPFamilyPolicy = want.IPFamilyPolicy
	case wanted == 1 && len(into.IPFamilies) == 2 && into.IPFamilies[0] == want.IPFamilies[0]:
		into.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack) // the API server removes the second address
	}
}

func other(f corev1.IPFamily) []corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return []corev1.IPFamily{corev1.IPv6Protocol}
	}
	return []corev1.IPFamily{corev1.IPv4Protocol}
}

// ofFamilies returns subsets with only the addresses of served families. Without served families it returns all.
func ofFamilies(subsets []services.Subset, served []corev1.IPFamily) []services.Subset {
	if len(served) != 1 {
		return subsets
	}
	unserved := func(a services.Address) bool {
		ip, err := netip.ParseAddr(a.IP)
		return err != nil || services.FamilyOf(ip) != served[0]
	}
	if !slices.ContainsFunc(subsets, func(s services.Subset) bool {
		return slices.ContainsFunc(s.Addresses, unserved) || slices.ContainsFunc(s.NotReadyAddresses, unserved)
	}) {
		return subsets
	}
	var out []services.Subset
	for _, s := range subsets {
		s.Addresses = slices.DeleteFunc(slices.Clone(s.Addresses), unserved)
		s.NotReadyAddresses = slices.DeleteFunc(slices.Clone(s.NotReadyAddresses), unserved)
		if len(s.Addresses)+len(s.NotReadyAddresses) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// keepFamilies leaves only the addresses of served families in the endpoints of each cluster. It returns the clusters
// that have no other addresses.
func keepFamilies(sources map[string]exportcheck.Part, served []corev1.IPFamily) (left []string) {
	for _, id := range slices.Sorted(maps.Keys(sources)) {
		part := sources[id]
		before := len(part.Subsets)
		part.Subsets = ofFamilies(part.Subsets, served)
		if sources[id] = part; before > 0 && len(part.Subsets) == 0 {
			left = append(left, id)
		}
	}
	return left
}

// unserved returns a text about clusters whose endpoints this cluster cannot use; empty without such clusters. The
// exported families are about all clusters together.
func unserved(left []string, served, exported []corev1.IPFamily) string {
	const remedy = "give the exported Services and this cluster a version of IP in common"
	switch {
	case len(served) == 0:
	case len(left) > 0:
		return fmt.Sprintf("endpoints of clusters %s are left out, since ClusterIPs of this cluster are of %s alone: %s",
			strings.Join(left, ", "), served[0], remedy)
	case len(exported) > 0 && len(common(exported, served)) == 0:
		return fmt.Sprintf("the exported Services are of %s alone, ClusterIPs of this cluster of %s: %s", exported[0],
			served[0], remedy)
	}
	return ""
}
