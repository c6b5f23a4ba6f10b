package tenant

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// These are annotations about the network of a Pod's first interface, as in Contrail CN2. They are read when the Pod
// starts.
const (
	// AnnotationPodNetwork on a Pod, or on a Namespace for all its Pods, names a VirtualNetwork with spec.podNetwork as
	// NAMESPACE/NAME: the first interface is in this network.
	AnnotationPodNetwork = "net.juniper.contrail.podnetwork"
	// AnnotationPodNetworkIP on a Pod lists the addresses that it requests in that network, separated by commas.
	AnnotationPodNetworkIP = AnnotationPodNetwork + ".ip"
	// AnnotationPodNetworkArgs on a Pod is not served.
	AnnotationPodNetworkArgs = AnnotationPodNetwork + ".cni-args"
)

// FirstInterface is the name of a Pod's first interface.
const FirstInterface = "eth0"

// OwnInterface is the name of a further interface in the Pod's own network, if this is a separate network. Then the
// first interface has addresses of the Node.
const OwnInterface = "vn0"

// OwnRequest has the annotations of a Pod about the network of its first interface.
type OwnRequest struct{ Network, IPs, Args string }

// OwnRequestOf reads the annotations of a Pod.
func OwnRequestOf(annotations map[string]string) OwnRequest {
	return OwnRequest{annotations[AnnotationPodNetwork], annotations[AnnotationPodNetworkIP],
		annotations[AnnotationPodNetworkArgs]}
}

// OwnNetwork returns the network of the first interface of a Pod in a Namespace. The Pod's annotation has precedence
// over the Namespace's. It returns false if neither names a network. An error names the annotation and the remedy.
func OwnNetwork(namespace string, q OwnRequest, f NamespaceFacts) (n PodNetwork, ok bool, err error) {
	text, where := strings.TrimSpace(q.Network), "annotation "+AnnotationPodNetwork
	if text == "" {
		text, where = strings.TrimSpace(f.PodNetwork), where+" of Namespace "+namespace
	}
	switch {
	case text == "" && q.IPs != "":
		return n, false, fmt.Errorf("annotation %s: the Pod is in no VirtualNetwork: name one in %s, or remove the "+
			"addresses", AnnotationPodNetworkIP, AnnotationPodNetwork)
	case text == "":
		return n, false, nil
	case f.Isolated:
		return n, false, fmt.Errorf("%s: Namespace %s is isolated, and a first interface is in one network: remove the "+
			"annotation, or the label %s", where, namespace, LabelIsolated)
	}
	n, err = ownEntry(namespace, text, q)
	if err != nil {
		return n, false, fmt.Errorf("%s: %w", where, err)
	}
	return n, true, nil
}

// ownEntry reads NAMESPACE/NAME.
func ownEntry(namespace, text string, q OwnRequest) (PodNetwork, error) {
	if strings.ContainsAny(text, "[{\", @") || strings.Count(text, "/") > 1 {
		return PodNetwork{}, fmt.Errorf("%s is no network: write one as NAMESPACE/NAME", problem.Quoted(text))
	}
	s := networkEntry{Name: text}
	if before, after, ok := strings.Cut(text, "/"); ok {
		s.Namespace, s.Name = before, after
	}
	if q.Args != "" {
		s.CNIArgs = json.RawMessage(q.Args)
	}
	for ip := range strings.SplitSeq(q.IPs, ",") {
		if ip = strings.TrimSpace(ip); ip != "" {
			s.IPs = append(s.IPs, ip)
		}
	}
	n, err := s.network(namespace)
	n.Interface = FirstInterface
	return n, err
}

// ownProblems returns the problems of a Namespace's annotation with which Pods of the Namespace do not start.
func ownProblems(n *corev1.Namespace) (ps problem.List) {
	_, _, err := OwnNetwork(n.Name, OwnRequest{}, NamespaceFactsOf(n))
	if err != nil {
		ps.Add(problem.About("Namespace", "", n.Name), podNetworkField, reasonPodNetworkRefused,
			"its Pods do not start: "+err.Error())
	}
	return ps
}
