package agent

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// portFacts is the part of a port in the OVSDB that decisions read.
type portFacts struct {
	There  bool
	OFPort ofp.Port
	Error  string
	MTU    int // 0 while it is unknown
}

// serves reports whether the switch has the port.
func (p portFacts) serves() bool { return p.There && p.Error == "" }

// podTables hold the Pods that are attached to this Node. The keys are names of ports.
type podTables struct {
	attachments *derive.Source[derive.Name, cni.Attachment]
	ports       *derive.Source[derive.Name, portFacts] // of the integration bridge
	numbers     *derive.Source[derive.Name, ofp.Port]  // that new ports of attachments ask for
	unrecovered *derive.Source[derive.Name, cni.Unrecovered]
	rebuilding  *derive.Source[derive.Name, bool] // removals wait for the unrecovered: self, or no row
	policies    *derive.Table[derive.Name, policy.Attachment]

	this    *ownNode
	ranges  *derive.Table[derive.Name, []netip.Prefix] // of Services
	former  *derive.Table[derive.Name, []netip.Prefix] // podCIDRs that this Node had, and has Pods of
	rows    *derive.Table[derive.Name, datapath.Pod]
	waiting *derive.Table[derive.Name, bool]         // attachments whose port has no number yet
	firsts  *derive.Table[derive.Name, datapath.Pod] // first interfaces in VirtualNetworks
	// blocks are the addresses that this Node has of VirtualNetworks of first interfaces, by VirtualNetwork; nil without
	// feature gate TenantNetworks.
	blocks *derive.Table[derive.Object, []netip.Prefix]
}

// newPodTables adds the sources to an engine, and the tables that read only them.
func newPodTables(e *derive.Engine) *podTables {
	t := &podTables{}
	t.attachments = derive.NewSource[derive.Name, cni.Attachment](e, "attachments")
	t.policies = derive.NewTable(e, "policy-attachments", t.policyAttachment, derive.KeysOf(t.attachments))
	t.ports = derive.NewSource[derive.Name, portFacts](e, "ports")
	t.numbers = derive.NewSource[derive.Name, ofp.Port](e, "port-numbers")
	t.unrecovered = derive.NewSource[derive.Name, cni.Unrecovered](e, "unrecovered")
	derive.NewTable(e, "lost-attachments", t.lostAttachment, derive.KeysOf(t.unrecovered))
	t.rebuilding = derive.NewSource[derive.Name, bool](e, "rebuilding")
	return t
}

// add adds the tables that read this Node and the ranges of Services.
func (t *podTables) add(e *derive.Engine, one derive.Keys[derive.Name]) {
	t.former = derive.NewTable(e, "former-ranges", t.formerOf, one)
	t.rows = derive.NewTable(e, "pods", t.podOf, derive.KeysOf(t.attachments))
	t.waiting = derive.NewTable(e, "waiting-ports", t.waits, derive.KeysOf(t.attachments))
	t.addFirsts(e)
}

// podOf returns a Pod of this Node whose port has a number or requests one. So its flows reach the switch at the same
// time as the port. If Open vSwitch assigns another number, the flows follow.
func (t *podTables) podOf(name derive.Name, r *derive.Reader) (datapath.Pod, []problem.Problem) {
	var ps problems
	a, _ := derive.Get(r, t.attachments, name)
	object := problem.Object{Kind: "Pod", Namespace: a.PodNamespace, Name: a.PodName}
	mac, err := ofp.ParseMAC(a.MAC)
	if _, reported := derive.Get(r, t.unrecovered, name); err != nil && reported {
		return datapath.Pod{}, nil
	}
	if err != nil {
		ps.report(object, "", reasonInvalidAttachment, "port %s: %v: delete the Pod to have it attached again", a.PortName,
			err)
		return datapath.Pod{}, ps
	}
	port, _ := derive.Get(r, t.ports, name)
	if port.Error != "" {
		// Nothing waits for it: its Pod is gone, or the CNI call that made it reports it.
		ps.report(object, "", reasonPortRefused, "Open vSwitch refused port %s: %s", a.PortName, port.Error)
		return datapath.Pod{}, ps
	}
	number := port.OFPort
	if number == 0 {
		number, _ = derive.Get(r, t.numbers, name)
	}
	if number == 0 {
		return datapath.Pod{}, nil
	}
	t.reportFormer(a, r, &ps)
	return podAt(a, mac, number, t.this.families(r)), ps
}

// formerOf returns this Node's former podCIDRs that contain addresses of running Pods. The Node was registered again
// with other podCIDRs. The former ranges stay valid for these Pods, until a range of the cluster overlaps them.
func (t *podTables) formerOf(_ derive.Name, r *derive.Reader) (former []netip.Prefix, _ []problem.Problem) {
	now, ok := derive.Get(r, t.this.now, self)
	if !ok {
		return nil, nil
	}
	families := t.this.families(r)
	for _, row := range derive.All(r, t.attachments) {
		if row.Value.VirtualNetwork != "" {
			continue // with addresses of a Subnet
		}
		for _, ip := range row.Value.IPs {
			p := ip.Masked()
			if isFormer(ip, now, families) && p.Bits() < ip.Addr().BitLen()-1 && !slices.ContainsFunc(former, p.Overlaps) {
				former = append(former, p)
			}
		}
	}
	if len(former) == 0 {
		return nil, nil
	}
	taken, _ := now.Node.podCIDRs(families)
	serviceCIDRs, _ := derive.Get(r, t.ranges, self)
	taken = slices.Concat(taken, serviceCIDRs)
	for _, n := range derive.All(r, t.this.nodes) {
		ranges, _ := n.Value.podCIDRs(families)
		if n.Key.Name != t.this.name {
			taken = append(taken, ranges...)
		}
	}
	slices.SortFunc(former, netip.Prefix.Compare)
	return slices.DeleteFunc(former, func(p netip.Prefix) bool { return slices.ContainsFunc(taken, p.Overlaps) }), nil
}

// isFormer reports whether a Pod's address is outside of the Node's podCIDRs.
func isFormer(ip netip.Prefix, now thisNode, f family.Families) bool {
	ranges, err := now.Node.podCIDRs(f)
	return err == nil && len(ranges) > 0 && f.Serve(ip.Addr()) &&
		!slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(ip.Addr()) })
}

// reportFormer reports a Pod whose address is outside of the Node's podCIDRs. The problem lists the sources that still
// reach the Pod.
func (t *podTables) reportFormer(a cni.Attachment, r *derive.Reader, ps *problems) {
	now, ok := derive.Get(r, t.this.now, self)
	if !ok || a.VirtualNetwork != "" {
		return
	}
	former, _ := derive.Get(r, t.former, self)
	for _, ip := range a.IPs {
		if !isFormer(ip, now, t.this.families(r)) {
			continue
		}
		reach := "this Node and its Pods reach it, and nobody else"
		if !slices.Contains(former, ip.Masked()) {
			reach = "Pods of this Node reach it, and nobody else, since the cluster uses that range for something else now"
		}
		ps.report(problem.Object{Kind: "Pod", Namespace: a.PodNamespace, Name: a.PodName}, "status.podIPs",
			reasonPodCIDRChanged,
			"%s is not in the podCIDRs of Node %s, which was registered again with %s: %s: "+
				"delete the Pod, so that it is made again with an address of the Node",
			ip.Addr(), t.this.name, strings.Join(texts(now.Node.PodCIDRs), ", "), reach)
	}
}

// podAt returns the Pod of an attachment: the number of its port, and its addresses of the given families.
func podAt(a cni.Attachment, mac ofp.MAC, port ofp.Port, f family.Families) datapath.Pod {
	pod := datapath.Pod{Namespace: a.PodNamespace, Name: a.PodName, Interface: a.PortName, MAC: mac, Port: port,
		Limit: datapath.Limit(a.Bandwidth.FromPod), HostPorts: len(a.HostPorts) > 0}
	if namespace, name, ok := a.VirtualKey(); ok {
		pod.Network, pod.First = derive.Object{Namespace: namespace, Name: name}, a.IfName == tenant.FirstInterface
	}
	if namespace, name, ok := a.InsideKey(); ok {
		pod.Inside = derive.Object{Namespace: namespace, Name: name}
	}
	for _, ip := range a.IPs {
		if f.Serve(ip.Addr()) {
			pod.IPs = append(pod.IPs, ip.Addr())
		}
	}
	return pod
}

// lostAttachment reports an attachment that could not be rebuilt yet.
func (t *podTables) lostAttachment(port derive.Name, r *derive.Reader) (bool, []problem.Problem) {
	u, _ := derive.Get(r, t.unrecovered, port)
	object := problem.Object{Kind: "Pod", Namespace: u.PodNamespace, Name: u.PodName}
	if u.PodName == "" {
		object = problem.Object{Kind: "interface", Name: u.PortName}
	}
	var ps problems
	ps.report(object, "", reasonAttachmentLost, "the records of its %s (container %s, port %s) are lost and cannot be "+
		"rebuilt: %s: delete the Pod; if it is gone already, remove its interface on this Node: ip link del %[3]s",
		u.IfName, u.ContainerID, u.PortName, u.Err)
	return true, ps
}

// policyAttachment returns the part of an attachment that policies read.
func (t *podTables) policyAttachment(port derive.Name, r *derive.Reader) (policy.Attachment, []problem.Problem) {
	a, _ := derive.Get(r, t.attachments, port)
	pod := derive.Object{Namespace: a.PodNamespace, Name: a.PodName}
	out := policy.Attachment{Pod: pod, UID: a.PodUID, Sandbox: a.ContainerID}
	if namespace, name, ok := a.VirtualKey(); ok {
		out.Network = derive.Object{Namespace: namespace, Name: name}
	}
	for _, ip := range a.IPs {
		out.IPs = append(out.IPs, ip.Addr())
	}
	return out, nil
}

// waits reports whether an attachment waits for the number of its port.
func (t *podTables) waits(name derive.Name, r *derive.Reader) (bool, []problem.Problem) {
	a, _ := derive.Get(r, t.attachments, name)
	port, _ := derive.Get(r, t.ports, name)
	_, err := ofp.ParseMAC(a.MAC)
	return err == nil && port.Error == "" && port.OFPort == 0, nil
}
