package tenant

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// AnnotationNetworks on a Pod lists the networks of its further interfaces, in the format of the Network Plumbing
// Working Group: NAMESPACE/NAME, separated by commas, or JSON. It is read when the Pod starts.
const AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"

// maxInterfaces is how many further interfaces a Pod may have.
const maxInterfaces = 16

// PodNetwork is a further interface that a Pod requests.
type PodNetwork struct {
	Name      string // of a VirtualNetwork in the Pod's Namespace
	Interface string
	IPs       []netip.Addr // requested, at most one of each version of IP
	MAC       string       // requested, or ""
}

// networkEntry is an entry of the annotation in JSON.
type networkEntry struct {
	Name             string          `json:"name"`
	Namespace        string          `json:"namespace"`
	IPs              []string        `json:"ips"`
	MAC              string          `json:"mac"`
	Interface        string          `json:"interface"`
	CNIArgs          json.RawMessage `json:"cni-args"`
	DefaultRoute     json.RawMessage `json:"default-route"`
	Bandwidth        json.RawMessage `json:"bandwidth"`
	PortMappings     json.RawMessage `json:"portMappings"`
	InfinibandGUID   json.RawMessage `json:"infiniband-guid"`
	IPAMClaimRef     json.RawMessage `json:"ipam-claim-reference"`
	DeviceID         json.RawMessage `json:"deviceID"`
	GatewayRequested json.RawMessage `json:"gateway"`
}

// Entries has functions that answer questions about the object of an entry of the annotation. If the entry has no
// Namespace, the object is in the Pod's Namespace.
type Entries struct {
	// Other reports whether the object is a NetworkAttachmentDefinition that another plugin serves.
	Other func(derive.Object) bool
	// Copied reports whether the object's Namespace is the copy of the Pod's Namespace in the central cluster. It is not
	// called for objects of the Pod's Namespace.
	Copied func(derive.Object) bool
}

// AnotherNamespaceError is about an entry whose Namespace is neither the Pod's nor the copy of the Pod's.
type AnotherNamespaceError struct {
	Network   derive.Object
	Namespace string // of the Pod
}

func (e *AnotherNamespaceError) Error() string {
	return fmt.Sprintf("VirtualNetwork %s is of another Namespace: name one of Namespace %s, or of its copy in the "+
		"central cluster, and join the two by VirtualNetworkRouters", e.Network, e.Namespace)
}

// PodNetworks reads the annotation of a Pod of a Namespace. It leaves out entries whose NetworkAttachmentDefinition
// another plugin serves. As in Contrail CN2, an entry may name the copy of the Namespace in the central cluster instead
// of the Namespace. The number of an interface is the number of its entry, even if earlier entries are left out. The
// error names the entry and the remedy.
func PodNetworks(namespace, text string, entries Entries) ([]PodNetwork, error) {
	list, err := selections(text)
	if err != nil {
		return nil, err
	}
	if len(list) > maxInterfaces {
		return nil, fmt.Errorf("it has %d networks: name at most %d", len(list), maxInterfaces)
	}
	var out []PodNetwork
	names := map[string]bool{}
	for i, s := range list {
		named := derive.Object{Namespace: cmp.Or(s.Namespace, namespace), Name: s.Name}
		switch elsewhere := named.Namespace != namespace; {
		case s.Name == "": // network reports it
		case elsewhere && entries.Copied(named):
			s.Namespace = namespace
		case entries.Other(named):
			continue
		case elsewhere:
			return nil, fmt.Errorf("entry %d: %w", i+1, &AnotherNamespaceError{named, namespace})
		}
		n, err := s.network(namespace)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		if n.Interface == "" {
			n.Interface = fmt.Sprintf("eth%d", i+1)
		}
		if names[n.Interface] {
			return nil, fmt.Errorf("entry %d: another entry has the interface %s: name another one", i+1, n.Interface)
		}
		names[n.Interface] = true
		out = append(out, n)
	}
	return out, nil
}

// selections returns the entries of the annotation.
func selections(text string) (out []networkEntry, _ error) {
	text = strings.TrimSpace(text)
	if text == "" || text == "null" {
		return nil, nil
	}
	if strings.ContainsAny(text, "[{\"") {
		var list []*networkEntry
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.DisallowUnknownFields()
		err := d.Decode(&list)
		if _, more := d.Token(); err == nil && !errors.Is(more, io.EOF) {
			err = errors.New("there is text after it")
		}
		if err != nil {
			return nil, fmt.Errorf("it is no list of networks (%w): write NAMESPACE/NAME, or a JSON list with name and "+
				"namespace", err)
		}
		for _, s := range list {
			if s == nil {
				s = &networkEntry{}
			}
			out = append(out, *s)
		}
		return out, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		s := networkEntry{Name: strings.TrimSpace(one)}
		if namespace, name, ok := strings.Cut(s.Name, "/"); ok {
			s.Namespace, s.Name = namespace, name
		}
		if name, at, ok := strings.Cut(s.Name, "@"); ok {
			s.Name, s.Interface = name, at
		}
		out = append(out, s)
	}
	return out, nil
}

// network checks an entry.
func (s networkEntry) network(namespace string) (PodNetwork, error) {
	out := PodNetwork{Name: s.Name, Interface: s.Interface}
	switch {
	case s.Name == "":
		return out, fmt.Errorf("it names no VirtualNetwork: write its name")
	case s.Namespace != "" && s.Namespace != namespace:
		return out, fmt.Errorf("VirtualNetwork %s/%s is of another Namespace: name one of Namespace %s, and join the two "+
			"by VirtualNetworkRouters", s.Namespace, s.Name, namespace)
	case s.Interface == FirstInterface || s.Interface == OwnInterface || s.Interface == "lo" || len(s.Interface) > 15 ||
		strings.ContainsFunc(s.Interface, func(r rune) bool { return r <= ' ' || r > '~' }) ||
		strings.ContainsAny(s.Interface, "/:%") ||
		strings.HasPrefix(s.Interface, "."):
		return out, fmt.Errorf("interface %s is taken, or no name of an interface: write one as eth1",
			problem.Quoted(s.Interface))
	}
	for _, field := range []struct {
		name  string
		value json.RawMessage
	}{
		{"cni-args", s.CNIArgs}, {"default-route", s.DefaultRoute}, {"bandwidth", s.Bandwidth},
		{"portMappings", s.PortMappings}, {"infiniband-guid", s.InfinibandGUID},
		{"ipam-claim-reference", s.IPAMClaimRef}, {"deviceID", s.DeviceID}, {"gateway", s.GatewayRequested},
	} {
		if text := strings.TrimSpace(string(field.value)); !slices.Contains([]string{"", "null", "{}", "[]", `""`}, text) {
			return out, fmt.Errorf("%s is not served: remove it", field.name)
		}
	}
	if s.MAC != "" {
		mac, err := net.ParseMAC(s.MAC)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00" {
			return out, fmt.Errorf("mac %s is no address of an interface: correct it, or remove it", problem.Quoted(s.MAC))
		}
		out.MAC = mac.String()
	}
	for _, text := range s.IPs {
		ip, err := netip.ParseAddr(text)
		if p, prefixErr := netip.ParsePrefix(text); prefixErr == nil {
			ip, err = p.Addr(), nil
		}
		if err != nil || ip.Zone() != "" || ip.Is4In6() {
			return out, fmt.Errorf("ips has %s, which is no address: correct it, or remove it", problem.Quoted(text))
		}
		if slices.ContainsFunc(out.IPs, func(o netip.Addr) bool { return o.Is4() == ip.Is4() }) {
			return out, fmt.Errorf("ips has two addresses of one version of IP: leave one")
		}
		out.IPs = append(out.IPs, ip)
	}
	return out, nil
}
