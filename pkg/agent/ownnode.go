package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// thisNode is the Node's object and the underlay that goes with it.
type thisNode struct {
	Known    bool
	Node     nodeFacts
	Underlay Underlay
}

// ownNode holds this Node's object and its underlay.
type ownNode struct {
	config   config.Config
	name     string
	nodes    *derive.Source[derive.Object, nodeFacts]
	gateways *derive.Source[derive.Object, *mcv1alpha1.Gateway] // of this cluster, to other clusters
	underlay *derive.Source[derive.Name, Underlay]
	now      *derive.Table[derive.Name, thisNode]
	last     *derive.Source[derive.Name, thisNode] // the last row of now, for when there is no row
	settings *derive.Source[derive.Name, settings]
	record   *derive.Source[derive.Name, uplinkRecord]
	local    func() ([]netip.Addr, error) // reads Underlay.Local

	attachments *derive.Source[derive.Name, cni.Attachment]
	familiesRow *derive.Table[derive.Name, family.Families]
}

// add adds the tables to an engine.
func (t *ownNode) add(e *derive.Engine, one derive.Keys[derive.Name]) {
	t.underlay = derive.NewSource[derive.Name, Underlay](e, "underlay")
	t.last = derive.NewSource[derive.Name, thisNode](e, "last-node")
	t.now = derive.NewTable(e, "this-node", t.nowOf, one)
	t.familiesRow = derive.NewTable(e, "families", t.familiesOf, one)
	t.now.Watch(func(changes []derive.Change[derive.Name, thisNode]) {
		for _, c := range changes {
			if c.New.Known {
				t.last.Set(self, c.New)
			}
		}
	})
}

func (t *ownNode) object() problem.Object { return problem.Object{Kind: "Node", Name: t.name} }

// self returns this Node's object. It returns false until the object is known.
func (t *ownNode) self(r *derive.Reader) (nodeFacts, bool) {
	return derive.Get(r, t.nodes, derive.Object{Name: t.name})
}

// nowOf returns the Node's object with its underlay. There is no row until both are known.
func (t *ownNode) nowOf(_ derive.Name, r *derive.Reader) (thisNode, []problem.Problem) {
	n, ok := t.self(r)
	if !ok {
		return thisNode{}, nil
	}
	u, ok := derive.Get(r, t.underlay, self)
	if ip, _ := n.internalIP(); t.config.TransportInterface == "" {
		ok = !ip.IsValid() || ok && u.Of == ip // without an InternalIP there is nothing to be read
	}
	if !ok {
		return thisNode{}, nil
	}
	end, _, _ := n.tunnelEnd()
	u.NodesOver6, u.PeersOver6 = end.Is6(), peering.Over6(values(derive.All(r, t.gateways)))
	return thisNode{Known: true, Node: n, Underlay: u}, nil
}

// ready returns this Node's object and its underlay, as they were last known together. It keeps them if the object is
// deleted, since Pods still go and Services still change. It returns false before both were known. Until then the
// switch stays as it is.
func (t *ownNode) ready(r *derive.Reader) (n nodeFacts, u Underlay, ok bool) {
	node, ok := derive.Get(r, t.now, self)
	if !ok {
		node, ok = derive.Get(r, t.last, self)
	}
	return node.Node, node.Underlay, ok
}

// readUnderlay reads the interface that carries the Node's tunnels. That is the transportInterface, else the interface
// with the Node's InternalIP, if the InternalIP is known.
func (t *ownNode) readUnderlay() (Underlay, error) {
	name := t.config.TransportInterface
	u := Underlay{Read: true}
	if name == "" {
		node, known := t.nodes.Get(derive.Object{Name: t.name})
		if !known {
			last, _ := t.last.Get(self)
			node = last.Node
		}
		ip, ok := node.internalIP()
		if !ok {
			return u, nil // the kubelet has not written it yet
		}
		found, err := hostnet.InterfaceWith(ip)
		if err != nil {
			return u, fmt.Errorf("find the interface of the Node's InternalIP %s: %w", ip, err)
		}
		name, u.Of = found, ip
	}
	var err error
	if u.Local, err = t.local(); err != nil {
		return u, err
	}
	has6, err := hostnet.HasIPv6()
	if err != nil {
		return u, err
	}
	u.NoIPv6 = !has6
	link, err := hostnet.ReadTransport(name)
	if err != nil {
		return u, fmt.Errorf("read interface %s, which carries the tunnels: %w", name, err)
	}
	u.MTU, u.Networks, u.Link = link.MTU, link.Addresses, name
	switch {
	case t.config.TransportInterface == "":
	case t.config.OVSDatapathType == "netdev":
		u.Uplink, u.Link = &link, uplinkBridge(name)
		// The addresses are with the bridge once it has taken the interface over.
		if b, err := hostnet.ReadTransport(uplinkBridge(name)); err == nil {
			u.Networks = slices.Concat(link.Addresses, b.Addresses)
		}
	default:
		u.Addresses = link.Addresses
	}
	return u, nil
}

// transportAddress returns where this Node's tunnels end on the kernel's datapath: the address of the
// transportInterface that the other Nodes send to. Without a transportInterface, or while the Node announces no address
// of it, the result is the zero address. Then tunnels end at any address of the Node.
func (t *ownNode) transportAddress(r *derive.Reader, ps *problems) netip.Addr {
	name := t.config.TransportInterface
	node, u, known := t.ready(r)
	if name == "" || t.config.OVSDatapathType != "system" || !known {
		return netip.Addr{}
	}
	end, ok, _ := node.tunnelEnd() // nodeOf reports a bad annotation
	var own []string
	for _, p := range u.Addresses {
		switch {
		case ok && p.Addr() == end:
			return end
		case carriesTunnels(p.Addr()) && p.Addr().IsGlobalUnicast():
			own = append(own, p.Addr().String())
		}
	}
	if len(own) == 0 {
		ps.report(t.object(), "transportInterface", reasonNoTransportAddress,
			"interface %s has no address that tunnels can end at, they use the Node's InternalIP: give it an address, or "+
				"name another interface in antrea-agent.conf", name)
		return netip.Addr{}
	}
	ps.report(t.object(), "transportInterface", reasonTransportAddressNotAnnounced,
		"the other Nodes send tunnel packets to %s, which is not an address of interface %s: run kubectl annotate "+
			"--overwrite node %s %s=%s, or remove transportInterface from antrea-agent.conf",
		end, name, t.name, transportAddresses, own[0])
	return netip.Addr{}
}

// tunnelSources returns the source addresses of this Node's tunnel packets. Packets to other Nodes come from the
// address that these Nodes send to. Packets from the Gateway to other clusters come from the Gateway's address. The
// receivers drop packets from other addresses, and a host with several addresses may choose another one. An address
// that the host does not have is left out: it is the public address of a Gateway behind NAT, or a mistake.
func (t *ownNode) tunnelSources(gateway netip.Addr, r *derive.Reader, ps *problems) (nodes, peers netip.Addr) {
	node, u, known := t.ready(r)
	if !known || len(u.Local) == 0 {
		return nodes, peers // not read yet
	}
	end, ok, _ := node.tunnelEnd() // nodeOf reports a bad annotation
	switch {
	case !ok:
	case slices.Contains(u.Local, end):
		nodes = end
	case t.config.TransportInterface == "" || t.config.OVSDatapathType != "system": // else transportAddress reports it
		ps.report(t.object(), "metadata.annotations", reasonTunnelEndNotLocal,
			"the other Nodes send tunnel packets to %s and take them from there, but this Node has no such address, so its "+
				"packets may be dropped: run kubectl annotate --overwrite node %s %s=ADDRESS with an address of the Node",
			end, t.name, transportAddresses)
	}
	peers = nodes
	if slices.Contains(u.Local, gateway) {
		peers = gateway
	}
	return nodes, peers
}
