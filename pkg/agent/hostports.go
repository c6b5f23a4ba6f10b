package agent

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// hostPortTables hold the ports of this Node that lead to its Pods.
type hostPortTables struct {
	link     string // of the gateway port
	this     *ownNode
	pods     *podTables
	services *service.Tables

	holders   *derive.Index[portOfNode, derive.Name, cni.Attachment]
	nodePorts *derive.Index[portOfNode, derive.Object, []service.Frontend] // nil if node ports are not served
	mapped    *derive.Table[derive.Name, []hostnet.HostPort]               // by the attachment's port
}

// portOfNode is a protocol and port of the Node.
type portOfNode struct {
	protocol string
	port     uint16
}

// Compare makes a port the key of an index.
func (p portOfNode) Compare(o portOfNode) int {
	return cmp.Or(cmp.Compare(p.protocol, o.protocol), cmp.Compare(p.port, o.port))
}

// add adds the table, and the indexes by port.
func (t *hostPortTables) add(e *derive.Engine, withNodePorts bool) {
	t.holders = derive.NewIndex(t.pods.attachments, "host-port", func(_ derive.Name, a cni.Attachment) (out []portOfNode) {
		for _, p := range a.HostPorts {
			if key := (portOfNode{p.Protocol, p.Port}); !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
		return out
	})
	if withNodePorts {
		t.nodePorts = derive.NewIndex(t.services.Frontends, "node-port",
			func(_ derive.Object, list []service.Frontend) (out []portOfNode) {
				for _, f := range list {
					key := portOfNode{strings.ToLower(string(f.Protocol)), f.VIP.Port()}
					if f.Kind == service.NodePort && !slices.Contains(out, key) {
						out = append(out, key)
					}
				}
				return out
			})
	}
	t.mapped = derive.NewTable(e, "host-ports", t.mappedOf, derive.KeysOf(t.pods.attachments)).
		EqualBy(slices.Equal[[]hostnet.HostPort])
}

// mappedOf returns the ports of the Node that lead to an attachment. If several attachments ask for one port, the first
// has it. Only damaged records can have that, since CNI ADD refuses the others.
func (t *hostPortTables) mappedOf(name derive.Name, r *derive.Reader) (out []hostnet.HostPort, _ []problem.Problem) {
	a, _ := derive.Get(r, t.pods.attachments, name)
	if len(a.HostPorts) == 0 {
		return nil, nil
	}
	var ps problems
	object := problem.Object{Kind: "Pod", Namespace: a.PodNamespace, Name: a.PodName}
	const portField, addressField = "spec.containers[].ports[].hostPort", "spec.containers[].ports[].hostIP"
	for _, p := range a.HostPorts {
		key := portOfNode{p.Protocol, p.Port}
		if other, taken := t.before(name, p, key, r); taken {
			ps.report(object, portField, reasonHostPortTaken,
				"port %d/%s of this Node leads to Pod %s/%s, and not to this Pod: %s", p.Port, p.Protocol, other.PodNamespace,
				other.PodName, cni.HostPortRemedy)
			continue
		}
		if why := unservedAt(p.HostIP, a); why != "" {
			ps.report(object, addressField, reasonHostIPNotServed,
				"port %d/%s of this Node is not opened at %s, since %s: give "+
					"the port another address of the Node, or no hostIP", p.Port, p.Protocol, p.HostIP, why)
			continue
		}
		if _, u, ok := t.this.ready(r); ok && p.HostIP.IsValid() && !p.HostIP.IsLoopback() &&
			!slices.Contains(u.Local, p.HostIP) {
			ps.report(object, addressField, reasonHostIPNotOnNode,
				"port %d/%s is at %s, which is no address of this Node, so no "+
					"packet reaches the Pod by it: correct hostIP, or remove it", p.Port, p.Protocol, p.HostIP)
		}
		if t.nodePorts != nil {
			for _, s := range derive.List(r, t.nodePorts, key) {
				ps.report(object, portField, reasonHostPortIsNodePort,
					"port %d/%s of this Node leads to this Pod, and not to Service "+
						"%s, which has it as its nodePort: give one of them another port", p.Port, p.Protocol, s.Key)
			}
		}
		for _, ip := range firstOfFamilies(a) {
			if !p.HostIP.IsValid() || p.HostIP.Is4() == ip.Is4() {
				out = append(out, hostnet.HostPort{Address: p.HostIP, Protocol: p.Protocol, Port: p.Port,
					To: netip.AddrPortFrom(ip, p.Container)})
			}
		}
	}
	return out, ps
}

// firstOfFamilies returns the first address of each family of an attachment.
func firstOfFamilies(a cni.Attachment) (out []netip.Addr) {
	for _, p := range a.IPs {
		ip := p.Addr()
		if !slices.ContainsFunc(out, func(o netip.Addr) bool { return o.Is4() == ip.Is4() }) {
			out = append(out, ip)
		}
	}
	return out
}

// unservedAt returns why an attachment's port cannot be opened at an address; empty if it can. The zero address stands
// for all addresses.
func unservedAt(at netip.Addr, a cni.Attachment) string {
	switch {
	case !at.IsValid():
		return ""
	case !slices.ContainsFunc(a.IPs, func(p netip.Prefix) bool { return p.Addr().Is4() == at.Is4() }):
		return "the Pod has no address of its family"
	case at.IsLinkLocalUnicast() && at.Is6():
		return "replies from an address of a link would find no way back"
	}
	return ""
}

// before returns the attachment that comes before another one and has its port.
func (t *hostPortTables) before(name derive.Name, p cni.HostPort, key portOfNode, r *derive.Reader) (cni.Attachment,
	bool) {
	for _, row := range derive.List(r, t.holders, key) {
		_, _, meets := cni.HostPorts{p}.Meets(row.Value.HostPorts)
		if meets && row.Key.Compare(name) < 0 {
			return row.Value, true
		}
	}
	return cni.Attachment{}, false
}

// host completes the desired state of the Node's network stack. It adds the table of host ports only if Pods have such
// ports.
func (t *hostPortTables) host(d *hostnet.Desired, u Underlay, r *derive.Reader) {
	d.HostPorts.Addresses = u.Local // of ports that go, too
	var ends []netip.Prefix
	for _, row := range derive.All(r, t.mapped) {
		for _, p := range row.Value {
			ends = append(ends, netip.PrefixFrom(p.To.Addr(), p.To.Addr().BitLen()))
		}
	}
	if len(ends) == 0 {
		return
	}
	d.HostPorts.Link, d.HostPorts.Families = t.link, family.Of(ends)
	if d.HostPorts.Families.Has4() {
		// Packets to 127.0.0.1 are translated before the route is chosen. The switch drops packets of Pods to 127.0.0.0/8.
		d.Sysctls[routeLocalnet(t.link)] = "1"
	}
}
