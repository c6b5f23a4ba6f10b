package exportcheck

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Limits of a list of isolated Namespaces. The member keeps to them.
const (
	MaxNamespaceBytes  = 256 << 10 // of one ResourceExport's spec.raw.data
	MaxNamespaces      = 500       // that one cluster exports
	MaxNamespaceLabels = 50        // of one of them
	// MaxLabelBytes is the largest size of a Namespace's labels as JSON, in bytes. So the list has room for all
	// Namespaces, whatever labels their tenants choose.
	MaxLabelBytes = (MaxNamespaceBytes-maxHead)/MaxNamespaces - maxIdentity
	maxHead       = 512 // bytes of the list without Namespaces
	maxIdentity   = 160 // bytes of a Namespace without labels: its name, its UID, and JSON around them
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
	seen := map[string]bool{}
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
	}
	return n, nil
}

// check returns the first fault of a Namespace.
func (n IsolatedNamespace) check() *Problem {
	if e := validation.IsDNS1123Label(n.Name); len(e) > 0 {
		return &Problem{".name", problem.Quoted(n.Name) + ": " + e[0]}
	}
	if len(n.UID) == 0 || len(n.UID) > validation.DNS1123LabelMaxLength {
		return &Problem{".uid", problem.Quoted(string(n.UID)) + " is not a UID"}
	}
	if len(n.Labels) > MaxNamespaceLabels {
		return &Problem{".labels", fmt.Sprintf("has %d labels: expected at most %d", len(n.Labels), MaxNamespaceLabels)}
	}
	for key, value := range n.Labels {
		if e := validation.IsQualifiedName(key); len(e) > 0 {
			return &Problem{".labels", problem.Quoted(key) + ": " + e[0]}
		}
		if e := validation.IsValidLabelValue(value); len(e) > 0 {
			return &Problem{".labels[" + key + "]", problem.Quoted(value) + ": " + e[0]}
		}
	}
	return nil
}

// JSON is what ReadNamespaces reads, always the same for the same list.
func (n Namespaces) JSON() []byte {
	data, err := json.Marshal(n)
	if err != nil { // texts cause no error
		return nil
	}
	return data
}

// Copied reports whether a label of a Namespace is copied to its copy in the central cluster. Labels of Kubernetes and
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
