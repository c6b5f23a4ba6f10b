package diagnose

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/cli/remote"
)

const (
	zone = "clusterset.local"
	// maxNames is how many names of imports are asked for.
	maxNames = 5
	dnsPort  = 53
)

// resolveNames asks the cluster's CoreDNS for the names of imported Services, if CoreDNS serves such names.
func resolveNames(ctx context.Context, from *remote.Cluster, k client.Client, c *Cluster) {
	var names []ResolvedName
	for _, i := range c.ServiceImports {
		if len(i.Spec.IPs) > 0 && i.DeletionTimestamp == nil && c.serves(i.Namespace, i.Name) && len(names) < maxNames {
			want := slices.Sorted(slices.Values(i.Spec.IPs))
			names = append(names, ResolvedName{Namespace: i.Namespace, Name: i.Name, Want: want, Changed: changed(i.ObjectMeta)})
		}
	}
	if len(names) == 0 {
		return
	}
	c.Resolved = &Resolved{}
	var config corev1.ConfigMap
	err := k.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, &config)
	switch {
	case apierrors.IsNotFound(err): // another DNS server
		return
	case err != nil:
		c.Unread[Names] = err.Error()
		return
	}
	if c.Resolved.Served = strings.Contains(config.Data["Corefile"], zone); !c.Resolved.Served {
		return
	}
	conn, err := dialDNS(ctx, from, k)
	if err != nil {
		c.Unread[Names] = err.Error()
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	askAll(conn, names)
	c.Resolved.Names = names
}

// serves reports whether an imported Service has a ready endpoint. CoreDNS has no answer without one.
func (c *Cluster) serves(namespace, name string) bool {
	if c.Unread[ImportedSlices] != "" {
		return true // that is not known
	}
	return slices.ContainsFunc(c.ImportedSlices, func(s discoveryv1.EndpointSlice) bool {
		return s.Namespace == namespace && s.Labels[mcsv1beta1.LabelServiceName] == name &&
			slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
				return e.Conditions.Ready == nil || *e.Conditions.Ready
			})
	})
}

// askAll asks for all names on one connection. After an error all remaining names get the same error, since the
// connection is lost.
func askAll(conn io.ReadWriter, names []ResolvedName) {
	var err error
	for i := range names {
		if err == nil {
			err = names[i].ask(conn)
		}
		if err != nil {
			names[i].Fault = err.Error()
		}
	}
}

// dialDNS connects to a Pod of CoreDNS.
func dialDNS(ctx context.Context, from *remote.Cluster, k client.Client) (net.Conn, error) {
	var pods corev1.PodList
	err := k.List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"k8s-app": "kube-dns"})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
	if i < 0 {
		return nil, errors.New("no Pod of CoreDNS (label k8s-app=kube-dns) is Ready")
	}
	pod := &pods.Items[i]
	conn, err := from.Dial(ctx, pod.Namespace, pod.Name, dnsPort)
	if err != nil {
		return nil, fmt.Errorf("reach Pod %s/%s: %w; the user needs the verb create for pods/portforward", pod.Namespace,
			pod.Name, err)
	}
	return conn, nil
}

// ask sends the questions for a name over TCP, for each version of IP that the import has.
func (n *ResolvedName) ask(conn io.ReadWriter) error {
	types := map[dnsmessage.Type]bool{}
	for _, text := range n.Want {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() {
			types[dnsmessage.TypeA] = true
		} else if err == nil {
			types[dnsmessage.TypeAAAA] = true
		}
	}
	name, err := dnsmessage.NewName(n.Name + "." + n.Namespace + ".svc." + zone + ".")
	if err != nil {
		return err
	}
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		if !types[kind] {
			continue
		}
		answer, err := exchange(conn, dnsmessage.Question{Name: name, Type: kind, Class: dnsmessage.ClassINET})
		if err != nil {
			return err
		}
		if answer.RCode != dnsmessage.RCodeSuccess {
			n.Code = strings.TrimPrefix(answer.RCode.String(), "RCode")
			return nil
		}
		for _, a := range answer.Answers {
			switch body := a.Body.(type) {
			case *dnsmessage.AResource:
				n.Have = append(n.Have, netip.AddrFrom4(body.A).String())
			case *dnsmessage.AAAAResource:
				n.Have = append(n.Have, netip.AddrFrom16(body.AAAA).String())
			}
		}
	}
	slices.Sort(n.Have)
	return nil
}

// exchange sends a question over TCP and reads the answer (RFC 1035, 4.2.2).
func exchange(conn io.ReadWriter, q dnsmessage.Question) (answer dnsmessage.Message, _ error) {
	question := dnsmessage.Message{Header: dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{q}}
	text, err := question.AppendPack(make([]byte, 2))
	if err != nil {
		return answer, err
	}
	binary.BigEndian.PutUint16(text, uint16(len(text)-2))
	if _, err := conn.Write(text); err != nil {
		return answer, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return answer, err
	}
	text = make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, text); err != nil {
		return answer, err
	}
	return answer, answer.Unpack(text)
}
