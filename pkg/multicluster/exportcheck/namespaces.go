package exportcheck

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// Limits of a list of isolated Namespaces. The member keeps to them.
const (
	MaxNamespaceBytes  = 256 << 10 // of one ResourceExport's spec.raw.data
	MaxNamespaces      = 500       // that one cluster exports
	MaxNamespaceLabels = 50        // of one of them
	// MaxLabelBytes is the largest size of a Namespace's labels as JSON, in bytes. So all Namespaces fit into the list,
	// even if tenants choose long labels.
	MaxLabelBytes = (MaxNamespaceBytes-maxHead)/MaxNamespaces - maxIdentity
	maxHead       = 512 // bytes of the list without Namespaces
	maxIdentity   = 160 // bytes of a Namespace without labels: its name, its UID, and JSON around them
	// MaxVirtualNetworks is the largest number of VirtualNetworks that one cluster exports. They have the bytes that its
	// Namespaces leave.
	MaxVirtualNetworks = 1000
	// MaxNetworkRanges is the largest number of ranges of a VirtualNetwork, as in the definition of TenantNetworks.
	MaxNetworkRanges = 4
	minNetworkBits   = 8 // of the largest range of a Subnet
)

// Namespaces are the isolated Namespaces of a cluster. Exports of the kind carry it as JSON in spec.raw.data.
type Namespaces struct {
	ClusterID string `json:"clusterID"`
	// Families are the versions of IP of the cluster's Pods, as in v6,v4.
	Families   string              `json:"families,omitempty"`
	Namespaces []IsolatedNamespace `json:"namespaces"`
}

// IsolatedNamespace is one of them.
type IsolatedNamespace struct {
	Name   string            `json:"name"`
	UID    types.UID         `json:"uid"`
	Labels map[string]string `json:"labels,omitempty"`
	// VirtualNetworks are its VirtualNetworks with Subnets. Earlier versions do not have the field, and ignore it.
	VirtualNetworks []VirtualNetwork `json:"virtualNetworks,omitempty"`
}

// VirtualNetwork is a VirtualNetwork with Subnets.
type VirtualNetwork struct {
	Name   string            `json:"name"`
	UID    types.UID         `json:"uid"`
	Labels map[string]string `json:"labels,omitempty"`
	// Requested is set if the cluster created it for a request of the central cluster. Earlier versions do not have the
	// field, and ignore it.
	Requested bool `json:"requested,omitempty"`
	// CIDRs are the ranges of its Pods, sorted. They are empty while its cluster serves no Subnet of it.
	CIDRs []string `json:"cidrs,omitempty"`
}

// ReadNamespaces reads spec.raw.data.
func ReadNamespaces(data []byte) (n Namespaces, _ error) {
	const field = "spec.raw.data"
	if len(data) > MaxNamespaceBytes {
		return n, Problem{field, fmt.Sprintf("has %d bytes: expected at most %d", len(data), MaxNamespaceBytes)}
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return Namespaces{}, Problem{field, "is not a list of Namespaces: " +
			strings.ToValidUTF8(err.Error()[:min(256, len(err.Error()))], "")}
	}
	switch n.Families {
	case "", "v4", "v6", "v6,v4":
	default:
		return Namespaces{}, Problem{field + ".families", problem.Quoted(n.Families) + " is not v4, v6 or v6,v4"}
	}
	if most := MaxNamespaces; len(n.Namespaces) > most {
		return Namespaces{}, Problem{field + ".namespaces",
			fmt.Sprintf("has %d Namespaces: expected at most %d", len(n.Namespaces), most)}
	}
	seen, networks := map[string]bool{}, 0
	for i, one := range n.Namespaces {
		at := fmt.Sprintf("%s.namespaces[%d]", field, i)
		if wrong := one.check(); wrong != nil {
			wrong.Field = at + wrong.Field
			return Namespaces{}, *wrong
		}
		if seen[one.Name] {
			return Namespaces{}, Problem{at + ".name", one.Name + " is given twice: expected it once"}
		}
		seen[one.Name] = true
		if networks += len(one.VirtualNetworks); networks > MaxVirtualNetworks {
			return Namespaces{}, Problem{at + ".virtualNetworks",
				fmt.Sprintf("is more than %d VirtualNetworks of the cluster: expected at most these", MaxVirtualNetworks)}
		}
	}
	return n, nil
}

// check returns the first fault of a Namespace.
func (n IsolatedNamespace) check() *Problem {
	if e := validation.IsDNS1123Label(n.Name); len(e) > 0 {
		return &Problem{".name", problem.Quoted(n.Name) + ": " + e[0]}
	}
	if wrong := checkIdentity(n.UID, n.Labels); wrong != nil {
		return wrong
	}
	if most := tenant.MaxNetworks; len(n.VirtualNetworks) > most {
		return &Problem{".virtualNetworks",
			fmt.Sprintf("has %d VirtualNetworks: expected at most %d", len(n.VirtualNetworks), most)}
	}
	seen := map[string]bool{}
	for i, one := range n.VirtualNetworks {
		at := fmt.Sprintf(".virtualNetworks[%d]", i)
		if wrong := one.check(); wrong != nil {
			wrong.Field = at + wrong.Field
			return wrong
		}
		if seen[one.Name] {
			return &Problem{at + ".name", one.Name + " is given twice: expected it once"}
		}
		seen[one.Name] = true
	}
	return nil
}

// checkIdentity returns the first fault of a UID and labels.
func checkIdentity(uid types.UID, labels map[string]string) *Problem {
	if len(uid) == 0 || len(uid) > validation.DNS1123LabelMaxLength {
		return &Problem{".uid", problem.Quoted(string(uid)) + " is not a UID"}
	}
	if len(labels) > MaxNamespaceLabels {
		return &Problem{".labels", fmt.Sprintf("has %d labels: expected at most %d", len(labels), MaxNamespaceLabels)}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if e := validation.IsQualifiedName(key); len(e) > 0 {
			return &Problem{".labels", problem.Quoted(key) + ": " + e[0]}
		}
		if e := validation.IsValidLabelValue(labels[key]); len(e) > 0 {
			return &Problem{".labels[" + key + "]", problem.Quoted(labels[key]) + ": " + e[0]}
		}
	}
	return nil
}

// check returns the first fault of a VirtualNetwork.
func (n VirtualNetwork) check() *Problem {
	if e := validation.IsDNS1123Subdomain(n.Name); len(e) > 0 {
		return &Problem{".name", problem.Quoted(n.Name) + ": " + e[0]}
	}
	if n.Name == contrailv4.DefaultPodNetwork {
		return &Problem{".name", n.Name + " is the network of Pods of the cluster: expected a VirtualNetwork with Subnets"}
	}
	if wrong := checkIdentity(n.UID, n.Labels); wrong != nil {
		return wrong
	}
	if len(n.CIDRs) > MaxNetworkRanges {
		return &Problem{".cidrs", fmt.Sprintf("has %d ranges: expected at most %d", len(n.CIDRs), MaxNetworkRanges)}
	}
	for i, text := range n.CIDRs {
		if _, ok := NetworkRange(text); !ok {
			return &Problem{fmt.Sprintf(".cidrs[%d]", i), problem.Quoted(text) +
				" is not the range of a Subnet, such as 10.50.0.0/24"}
		}
		if slices.Contains(n.CIDRs[:i], text) {
			return &Problem{fmt.Sprintf(".cidrs[%d]", i), text + " is given twice: expected it once"}
		}
	}
	return nil
}

// NetworkRange reads the range of a Subnet, which has one form only. It is not larger than a Subnet may be.
func NetworkRange(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	ok := err == nil && !p.Addr().Is4In6() && p == p.Masked() && p.String() == text && p.Bits() >= minNetworkBits
	return p, ok
}

// JSON is what ReadNamespaces reads, always the same for the same list.
func (n Namespaces) JSON() []byte {
	data, err := json.Marshal(n)
	if err != nil { // texts cause no error
		return nil
	}
	return data
}

// JSON is a VirtualNetwork as in the JSON of a list.
func (n VirtualNetwork) JSON() []byte {
	data, err := json.Marshal(n)
	if err != nil { // texts cause no error
		return nil
	}
	return data
}

// Copied reports whether a label is copied to a copy in the central cluster. Labels of Kubernetes and
// of this project control programs there, so a member must not choose them.
func Copied(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return true
	}
	for _, reserved := range []string{"kubernetes.io", "k8s.io", "tombolo.io", "antrea.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return false
		}
	}
	return true
}
