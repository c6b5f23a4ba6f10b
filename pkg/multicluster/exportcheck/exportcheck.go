// Package exportcheck decides which ports and endpoints one cluster may export to others.
//
// The leader's admission webhook, the leader's plan and the importing member all use it. An address or a port that one
// API server refuses would otherwise freeze the joint Endpoints of every exporter in every cluster. A loopback or
// link-local address would lead the clients of other clusters to their own Node. The rules are the API servers' rules
// for Services and Endpoints, and a few more that only matter between clusters.
package exportcheck

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Limits of one export.
const (
	MaxEndpoints = 1000 // different addresses in an Endpoints export, of each version of IP
	MaxPorts     = 100  // ports of a Service, and of one subset of Endpoints
	// MaxBytes is the largest size of an export as JSON, in bytes. Antrea's members repeat the endpoints of an
	// EndpointSlice up to fifty times (endpointIPType PodIP), and etcd accepts 1.5 MiB.
	MaxBytes = 1280 << 10
)

// MaxExports is the largest number of ResourceExports of one member. Kinds with a separate limit are not included.
// MaxExportBytes is the largest size of all its exports as JSON, including these kinds.
const (
	MaxExports     = 10_000
	MaxExportBytes = 32 << 20
)

// MaxImportEndpoints is the largest number of endpoints in the joint Endpoints of all exporters of a Service (see
// Count). kube-controller-manager mirrors only the first 1,000 into EndpointSlices, and drops the others without a
// message. MaxImportBytes is about the largest size of the joint Endpoints as JSON: API servers refuse objects of more
// than 1.5 MiB.
const (
	MaxImportEndpoints = 1000
	MaxImportBytes     = 1 << 20
)

// Refused begins the message with which a leader refuses a ResourceExport. The reason follows. Antrea's leaders use
// another text, without a reason.
const Refused = "the ResourceExport cannot be converged to a ResourceImport: "

// Problem is what is wrong with one field.
type Problem struct {
	Field   string // such as subsets[0].addresses[1].ip
	Message string // what it has, and what is expected
}

func (p Problem) Error() string { return p.Field + ": " + p.Message }

// First makes one error of several problems. Its text has the first problem and the number of further ones. It is nil
// if there are no problems.
func First(problems []Problem) error {
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return problems[0]
	}
	return fmt.Errorf("%w (and %d more)", problems[0], len(problems)-1)
}

// problems collects faults. A million bad addresses cost no more than a few.
type problems []Problem

const mostProblems = 20

func (p *problems) add(field, format string, args ...any) {
	if len(*p) < mostProblems {
		*p = append(*p, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	}
}

// ServicePorts returns the ports of an exported Service that others may import, and the problems of its other ports.
// Only a port's name, protocol, application protocol and number leave its cluster.
func ServicePorts(field string, ports []corev1.ServicePort) ([]mcsv1alpha1.ServicePort, []Problem) {
	out := make([]mcsv1alpha1.ServicePort, len(ports))
	for i, p := range ports {
		out[i] = mcsv1alpha1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port}
	}
	return ImportPorts(field, out)
}

// ImportPorts is ServicePorts for the ports of a ServiceImport.
func ImportPorts(field string, ports []mcsv1alpha1.ServicePort) ([]mcsv1alpha1.ServicePort, []Problem) {
	var wrong problems
	var out []mcsv1alpha1.ServicePort
	c := newPorts(len(ports))
	for i, p := range ports {
		at := fmt.Sprintf("%s[%d]", field, i)
		protocol, ok := c.check(at, i, p.Name, p.Protocol, p.Port, &wrong)
		number := fmt.Sprintf("%s/%d", protocol, p.Port)
		switch {
		case !ok:
		case c.numbers[number]:
			wrong.add(at+".port", "%s is given twice: expected each protocol and number once", number)
		case p.AppProtocol != nil && len(validation.IsQualifiedName(*p.AppProtocol)) > 0:
			wrong.add(at+".appProtocol", "%s is not an application protocol: expected a name such as http or kubernetes.io/h2c",
				problem.Quoted(*p.AppProtocol))
		default:
			c.names[p.Name], c.numbers[number] = true, true
			out = append(out, mcsv1alpha1.ServicePort{Name: p.Name, Protocol: protocol, AppProtocol: p.AppProtocol,
				Port: p.Port})
		}
	}
	return out, wrong
}

// ports checks the ports of one list.
type ports struct {
	names, numbers map[string]bool
	named          bool // every port needs a name
}

func newPorts(count int) ports {
	return ports{names: map[string]bool{}, numbers: map[string]bool{}, named: count > 1}
}

// check reports whether the port at an index may be exported, and its protocol.
func (c ports) check(at string, index int, name string, protocol corev1.Protocol, number int32,
	wrong *problems) (corev1.Protocol, bool) {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	switch {
	case index >= MaxPorts:
		wrong.add(at, "is one port too many: expected at most %d", MaxPorts)
		return protocol, false
	case number < 1 || number > 65535:
		wrong.add(at+".port", "%d is not a port number: expected 1 to 65535", number)
		return protocol, false
	case protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP && protocol != corev1.ProtocolSCTP:
		wrong.add(at+".protocol", "%s is not a known protocol: expected TCP, UDP or SCTP", problem.Quoted(string(protocol)))
		return protocol, false
	case name == "" && c.named:
		wrong.add(at+".name", "is empty: expected a name, since there are several ports")
		return protocol, false
	case name == "":
	case len(validation.IsDNS1123Label(name)) > 0:
		wrong.add(at+".name", "%s is not a port name: expected a DNS label", problem.Quoted(name))
		return protocol, false
	case c.names[name]:
		wrong.add(at+".name", "%s is given twice: expected each name once", problem.Quoted(name))
		return protocol, false
	}
	return protocol, true
}

// Allowed restricts the addresses of a cluster's endpoints. The zero value allows every unicast address.
type Allowed struct {
	// Own are the ranges that the exporter announces; empty if it announces none.
	Own []netip.Prefix
	// Foreign returns for an address outside of Own why it belongs to another cluster, such as "in a range of cluster
	// west". If it returns "", the address is allowed. If Foreign is nil, only addresses in Own are allowed, or all if Own
	// is empty.
	Foreign func(netip.Addr) string
}

// Subsets returns the endpoints that others may import, and the problems of the rest. It drops the names of objects of
// the exporting cluster (nodeName, targetRef), and repeated endpoints, which Antrea's members send.
func Subsets(field string, subsets []corev1.EndpointSubset, allowed Allowed, most int) ([]corev1.EndpointSubset,
	[]Problem) {
	var wrong problems
	w := walk{allowed: allowed, most: most, seen: map[netip.Addr]bool{}, count: map[bool]int{}, wrong: &wrong}
	var out []corev1.EndpointSubset
	merged := map[string]int{} // by ports, the subset in out
	for i, s := range subsets {
		at := fmt.Sprintf("%s[%d]", field, i)
		ports := endpointPorts(at+".ports", s.Ports, &wrong)
		if len(ports) == 0 && len(s.Ports) > 0 {
			continue // no port is left: an endpoint without ports would mean something else
		}
		key := portsKey(ports)
		into, ok := merged[key]
		if !ok {
			into = len(out)
			merged[key] = into
			out = append(out, corev1.EndpointSubset{Ports: ports})
			w.there = append(w.there, map[netip.Addr]bool{})
		}
		w.subset = into
		out[into].Addresses = append(out[into].Addresses, w.addresses(at+".addresses", s.Addresses)...)
		out[into].NotReadyAddresses = append(out[into].NotReadyAddresses,
			w.addresses(at+".notReadyAddresses", s.NotReadyAddresses)...)
	}
	// The API server refuses a subset without addresses.
	out = slices.DeleteFunc(out,
		func(s corev1.EndpointSubset) bool { return len(s.Addresses)+len(s.NotReadyAddresses) == 0 })
	return out, wrong
}

// walk goes through the addresses of an export.
type walk struct {
	allowed Allowed
	most    int
	seen    map[netip.Addr]bool // in any subset
	count   map[bool]int        // of seen; the key is true for IPv4
	there   []map[netip.Addr]bool
	subset  int // the subset that addresses are put in
	wrong   *problems
}

func (w *walk) addresses(field string, list []corev1.EndpointAddress) []corev1.EndpointAddress {
	var out []corev1.EndpointAddress
	for i, a := range list {
		ip, why := w.address(a.IP)
		switch {
		case why != "":
			w.wrong.add(fmt.Sprintf("%s[%d].ip", field, i), "%s", why)
			continue
		case a.Hostname != "" && len(validation.IsDNS1123Label(a.Hostname)) > 0:
			w.wrong.add(fmt.Sprintf("%s[%d].hostname", field, i), "%s is not a host name: expected a DNS label",
				problem.Quoted(a.Hostname))
			continue
		case w.there[w.subset][ip]:
			continue
		case !w.seen[ip] && w.count[ip.Is4()] >= w.most:
			w.wrong.add(fmt.Sprintf("%s[%d]", field, i), "is one endpoint too many: expected at most %d", w.most)
			return out
		case !w.seen[ip]:
			w.count[ip.Is4()]++
		}
		w.seen[ip], w.there[w.subset][ip] = true, true
		out = append(out, corev1.EndpointAddress{IP: ip.String(), Hostname: a.Hostname})
	}
	return out
}

// reserved are addresses that no endpoint can have, in addition to netip's special addresses. In IPv6 these are ::/8,
// which contains translated IPv4 addresses, and the addresses that switches use themselves.
var reserved = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/8"), family.SwitchRange6}

// address parses an endpoint's address, or says why it cannot be one.
func (w *walk) address(text string) (netip.Addr, string) {
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.Zone() != "" {
		return ip, fmt.Sprintf("%s is not an IP address", problem.Quoted(text))
	}
	ip = ip.Unmap()
	kind := ""
	switch {
	case ip.IsUnspecified():
		kind = "the unspecified address"
	case ip.IsLoopback():
		kind = "a loopback address"
	case ip.IsLinkLocalUnicast():
		kind = "a link-local address"
	case ip.IsMulticast():
		kind = "a multicast address"
	case slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(ip) }):
		kind = "a reserved address"
	}
	if kind != "" {
		return ip, fmt.Sprintf("%s is %s: expected the unicast address of a Service or a Pod", ip, kind)
	}
	switch {
	case slices.ContainsFunc(w.allowed.Own, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return ip, ""
	case w.allowed.Foreign != nil:
		if what := w.allowed.Foreign(ip); what != "" {
			return ip, fmt.Sprintf("%s is %s: expected an address of the exporting cluster", ip, what)
		}
		return ip, ""
	case len(w.allowed.Own) == 0:
		return ip, ""
	case len(*w.wrong) >= mostProblems:
		return ip, "outside" // not read
	}
	return ip, fmt.Sprintf("%s is outside of the ranges that its cluster announces: expected an address of %s", ip,
		prefixes(w.allowed.Own))
}

func prefixes(list []netip.Prefix) string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.String()
	}
	return strings.Join(out, " or ")
}

func endpointPorts(field string, list []corev1.EndpointPort, wrong *problems) []corev1.EndpointPort {
	var out []corev1.EndpointPort
	c := newPorts(len(list))
	for i, p := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		protocol, ok := c.check(at, i, p.Name, p.Protocol, p.Port, wrong)
		switch {
		case !ok:
		case p.AppProtocol != nil && len(validation.IsQualifiedName(*p.AppProtocol)) > 0:
			wrong.add(at+".appProtocol", "%s is not an application protocol: expected a name such as http or kubernetes.io/h2c",
				problem.Quoted(*p.AppProtocol))
		default:
			c.names[p.Name] = true
			out = append(out, corev1.EndpointPort{Name: p.Name, Protocol: protocol, Port: p.Port, AppProtocol: p.AppProtocol})
		}
	}
	return out
}

func portsKey(list []corev1.EndpointPort) string {
	var key strings.Builder
	for _, p := range list {
		fmt.Fprintf(&key, "%s/%s/%d", p.Name, p.Protocol, p.Port)
		if p.AppProtocol != nil {
			key.WriteString("/" + *p.AppProtocol)
		}
		key.WriteByte(' ')
	}
	return key.String()
}

// Bytes is about how long subsets are as JSON.
func Bytes(subsets []corev1.EndpointSubset) int {
	n := 0
	for _, s := range subsets {
		n += 64
		for _, list := range [][]corev1.EndpointAddress{s.Addresses, s.NotReadyAddresses} {
			for _, a := range list {
				n += 24 + len(a.IP) + len(a.Hostname)
			}
		}
		for _, p := range s.Ports {
			n += 48 + len(p.Name)
			if p.AppProtocol != nil {
				n += 20 + len(*p.AppProtocol)
			}
		}
	}
	return n
}

// Count returns the number of endpoints in subsets: the larger one of the numbers of IPv4 and of IPv6 addresses. An
// endpoint with both versions has two addresses.
func Count(subsets []corev1.EndpointSubset) int {
	all, six := 0, 0
	for _, s := range subsets {
		for _, list := range [2][]corev1.EndpointAddress{s.Addresses, s.NotReadyAddresses} {
			all += len(list)
			for _, a := range list {
				if strings.Contains(a.IP, ":") {
					six++
				}
			}
		}
	}
	return max(six, all-six)
}
