package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// The first interface of a Pod may be in a VirtualNetwork, too: an annotation of the Pod or of its Namespace names it.
// The host has a route to each such address over the gateway port, so the kubelet reaches the Pod.

// podInterfaces are the interfaces in VirtualNetworks that a Pod of this Node requests.
type podInterfaces struct {
	UID   types.UID
	Known bool // the Pod's Namespace is known
	List  []tenant.PodNetwork
	Err   string // names the annotation and the remedy
	// Awaited is set if the error ends once the leader reports the copy of the Pod's Namespace.
	Awaited bool
}

// addInterfaces adds the table of requested interfaces, and a table that reports Pods without the requested network.
func (o *networkObjects) addInterfaces(e *derive.Engine, attachments *derive.Source[derive.Name, cni.Attachment]) {
	o.interfaces = derive.NewTable(e, "pod-interfaces",
		func(pod derive.Object, r *derive.Reader) (out podInterfaces, _ []problem.Problem) {
			q, _ := derive.Get(r, o.requests, pod)
			if q.Host {
				var ps problems
				ps.report(problem.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
					"metadata.annotations["+tenant.AnnotationPodNetwork+"]", reasonNoOwnNetwork, "the annotation has no effect: "+
						"the Pod has spec.hostNetwork, so its network is the Node's: remove one of the two")
				return out, ps
			}
			f, known := derive.Get(r, o.copies.namespaces, derive.Object{Name: pod.Namespace})
			out.UID, out.Known = q.UID, known
			own, ok, err := tenant.OwnNetwork(pod.Namespace, q.Own, f)
			if err != nil {
				out.Err = err.Error()
				return out, nil
			}
			further, err := tenant.PodNetworks(pod.Namespace, q.Text, tenant.Entries{
				Other: func(k derive.Object) bool {
					other, _ := derive.Get(r, o.others, k)
					return other
				},
				Copied: func(k derive.Object) bool {
					i, _ := derive.Get(r, o.copies.imports, derive.Object{Name: k.Namespace})
					return i.CopyOf(pod.Namespace, f.UID)
				}})
			if err != nil {
				out.Err = fmt.Sprintf("annotation %s: %v", tenant.AnnotationNetworks, err)
				var another *tenant.AnotherNamespaceError
				if errors.As(err, &another) && o.copies.read {
					out.Awaited = f.Isolated
					out.Err += ". " + noCopy(another, f.Isolated)
				}
				return out, nil
			}
			// A route to the gateway over eth1 would take the replies of eth0, which have no routing table of their own.
			if ok && slices.ContainsFunc(further, func(n tenant.PodNetwork) bool { return n.Name == own.Name }) {
				out.Err = fmt.Sprintf("annotation %s: VirtualNetwork %s/%s is the network of the Pod's first interface already "+
					"(annotation %s): remove one of the two", tenant.AnnotationNetworks, pod.Namespace, own.Name,
					tenant.AnnotationPodNetwork)
				return out, nil
			}
			if ok {
				out.List = append(out.List, own)
			}
			out.List = append(out.List, further...)
			return out, nil
		}, derive.KeysOf(o.requests)).EqualBy(func(a, b podInterfaces) bool { return reflect.DeepEqual(a, b) })
	derive.NewTable(e, "first-interfaces-elsewhere", func(port derive.Name, r *derive.Reader) (bool, []problem.Problem) {
		a, _ := derive.Get(r, attachments, port)
		return o.isElsewhere(a, r)
	}, derive.KeysOf(attachments))
}

// noCopy returns the reason why an entry's Namespace is not known as the copy of the Pod's Namespace.
func noCopy(e *tenant.AnotherNamespaceError, isolated bool) string {
	if !isolated {
		return fmt.Sprintf("Namespace %s has no copy, since it is not isolated: label it %s=true", e.Namespace,
			tenant.LabelIsolated)
	}
	return fmt.Sprintf("If %[1]s is this copy, this cluster has no TenantNetworkImport %[1]s for Namespace %[2]s with "+
		"its present UID: look at this cluster's Kubemanager in the central cluster", e.Network.Namespace, e.Namespace)
}

// isElsewhere reports whether the first interface of a Pod is in the default network, and an annotation names a
// VirtualNetwork. The Pod has started before the annotation.
func (o *networkObjects) isElsewhere(a cni.Attachment, r *derive.Reader) (bool, []problem.Problem) {
	pod := derive.Object{Namespace: a.PodNamespace, Name: a.PodName}
	wants, _ := derive.Get(r, o.interfaces, pod)
	if a.VirtualNetwork != "" || a.Inside != "" || a.PodUID != wants.UID || len(wants.List) == 0 ||
		wants.List[0].Interface != tenant.FirstInterface {
		return false, nil
	}
	var ps problems
	ps.report(problem.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
		"metadata.annotations["+tenant.AnnotationPodNetwork+"]", reasonNoOwnNetwork, "the Pod is in the default network: it "+
			"has started before the annotation, of the Pod or of its Namespace, which names VirtualNetwork %s/%s: delete the "+
			"Pod, and it is made again in this network", pod.Namespace, wants.List[0].Name)
	return true, ps
}

// ownFault returns the reason why a VirtualNetwork cannot be the own network of Pods, or nil. An address of such a
// network is a destination of its Node's host, and the API server and clients of Services use it as a Pod's address. So
// operators have to list the network's ranges. Without the list, a tenant could take the address of a name server.
// Nothing outside of a separate network uses its addresses.
func (t *tables) ownFault(v tenant.VirtualNetwork) error {
	if !v.Own {
		return errors.New("is no network of first interfaces: set spec.podNetwork to true, or name the network in the " +
			"annotation " + tenant.AnnotationNetworks)
	}
	if v.Zone != 0 {
		return nil
	}
	for _, l := range v.Leases {
		if !slices.ContainsFunc(t.config.TenantNetworks.SubnetCIDRs, func(text string) bool {
			listed, err := netip.ParsePrefix(text)
			return err == nil && listed.Contains(l.Range.CIDR.Addr()) && listed.Bits() <= l.Range.CIDR.Bits()
		}) {
			return fmt.Errorf("is no network of first interfaces: operators have not listed range %s of Subnet %s: have them "+
				"add it to tenantNetworks.subnetCIDRs in antrea-agent.conf", l.Range.CIDR, l.Subnet)
		}
	}
	return nil
}

// elsewhere returns the UIDs of attached Pods whose first interface is in no VirtualNetwork. If such a Pod has the
// annotation, the annotation was added after the Pod had started.
func (p *podNetworks) elsewhere() map[derive.Object]types.UID {
	out := map[derive.Object]types.UID{}
	for _, row := range p.tables.pods.attachments.All() {
		if a := row.Value; a.VirtualNetwork == "" && a.Inside == "" {
			out[derive.Object{Namespace: a.PodNamespace, Name: a.PodName}] = a.PodUID
		}
	}
	return out
}

// annotationOf returns the annotation that names a Pod's network.
func annotationOf(n tenant.PodNetwork) string {
	if n.Interface == tenant.FirstInterface {
		return tenant.AnnotationPodNetwork
	}
	return tenant.AnnotationNetworks
}

// addFirsts adds the table of first interfaces in VirtualNetworks.
func (t *podTables) addFirsts(e *derive.Engine) {
	ports := derive.NewIndex(t.rows, "first interface in a VirtualNetwork",
		func(port derive.Name, pod datapath.Pod) []derive.Name {
			if !pod.First {
				return nil
			}
			return []derive.Name{port}
		})
	t.firsts = derive.NewTable(e, "first-interfaces",
		func(port derive.Name, r *derive.Reader) (datapath.Pod, []problem.Problem) {
			pod, _ := derive.Get(r, t.rows, port)
			return pod, nil
		}, derive.KeysOfIndex(ports))
}

// addBlocks adds the table of blocks. The host translates the addresses of whole blocks, since a change of its rules
// takes longer than the rest of an ADD. No other machine has an address of such a block.
func (t *tables) addBlocks(e *derive.Engine) {
	if t.tenants == nil {
		return
	}
	own := func(v tenant.VirtualNetwork) (out []netip.Prefix) {
		if v.Zone != 0 || t.ownFault(v) != nil {
			return nil
		}
		for _, l := range v.Leases {
			for _, n := range l.Nodes {
				if n.Node == t.nodeName {
					out = append(out, n.Blocks...)
				}
			}
		}
		return out
	}
	here := derive.NewIndex(t.tenants.VirtualNetworks, "own blocks",
		func(k derive.Object, v tenant.VirtualNetwork) []derive.Object {
			if len(own(v)) == 0 {
				return nil
			}
			return []derive.Object{k}
		})
	t.pods.blocks = derive.NewTable(e, "own-blocks",
		func(k derive.Object, r *derive.Reader) ([]netip.Prefix, []problem.Problem) {
			v, _ := derive.Get(r, t.tenants.VirtualNetworks, k)
			return own(v), nil
		}, derive.KeysOfIndex(here)).EqualBy(slices.Equal[[]netip.Prefix])
}

// translatedFirsts returns the addresses of first interfaces in VirtualNetworks, which the host translates. An address
// is outside of the blocks if its network may have no first interfaces any more.
func (t *podTables) translatedFirsts(r *derive.Reader) (out []netip.Prefix) {
	if t.blocks != nil {
		for _, row := range derive.All(r, t.blocks) {
			out = append(out, row.Value...)
		}
	}
	for _, pod := range derive.All(r, t.firsts) {
		for _, ip := range pod.Value.IPs {
			if !slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Contains(ip) }) {
				out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	return out
}

// routesToFirsts adds the host's routes to first interfaces in VirtualNetworks. The host asks for the MACs of these
// interfaces only for its own packets. It sends packets that it forwards to the virtual MAC, and the switch drops them.
func (o *outputs) routesToFirsts(d *hostnet.Desired, r *derive.Reader, source, hop netip.Addr) {
	gw := o.from.config.HostGateway
	for _, pod := range derive.All(r, o.from.pods.firsts) {
		for _, ip := range pod.Value.IPs {
			if dst := netip.PrefixFrom(ip, ip.BitLen()); ip.Is4() == source.Is4() {
				d.Routes = append(d.Routes, hostnet.Route{Dst: dst, Link: gw, Source: source})
				d.Forwarded = append(d.Forwarded, hostnet.Route{Dst: dst, Gateway: hop, Link: gw, OnLink: true})
			}
		}
	}
}
