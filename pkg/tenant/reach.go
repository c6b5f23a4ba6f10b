package tenant

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// APIServer is the Service of the API server. It is in the default network, even if its Namespace is isolated.
var APIServer = derive.Object{Namespace: "default", Name: "kubernetes"}

// EndKind is what an end of a connection is.
type EndKind uint8

// Kinds of ends.
const (
	Outside   EndKind = iota // a machine outside of the cluster, or the host of a Node
	Pod                      // a Pod of this cluster
	OwnHost                  // of clients: a process of the server's Node, with an address of the Pods' network
	Elsewhere                // a Pod of another cluster, or the cluster's Gateway
	Inside                   // of servers: an address of this cluster's ranges that no known Pod has
)

// End is an end of a connection.
type End struct {
	Kind  EndKind
	Name  string // in words, such as "Pod a/web"
	Node  string // of a Pod, and of an address inside that a Node's range has
	Place Place  // of a Pod's Namespace, or of the VirtualNetwork of its interface
	// First is set for a Pod whose first interface is in the VirtualNetwork of Place.
	First bool
	// Taken is the range of another owner that has the address of such a Pod. Then the Pod has no Services.
	Taken netip.Prefix
	// Cluster is the ID of the cluster that an end elsewhere is in, if it is known.
	Cluster string
	// Joined is set if the address is in a VirtualNetwork of another cluster that is joined with the network of the other
	// end.
	Joined bool
}

// Connection is a new connection about which the tenant networks decide. Policies are not considered.
type Connection struct {
	Client, Server End
	// Service is the place of the Service to which the connection is made, or nil. Server is then an endpoint of the
	// Service.
	Service *Place
	// Inside is set if clients whose own network is a VirtualNetwork reach, through the Service, only endpoints in that
	// network.
	Inside bool
	// Entered is the Node at which the connection arrives at the Service's address for clients outside. It is empty if the
	// client's own switch chooses the endpoint.
	Entered string
}

// Decision is the decision of the networks about a connection.
type Decision struct {
	Allowed bool
	// Reason explains the decision as text. It is empty if tenant networks do not decide about the connection.
	Reason string
	// Node decides, if it is known.
	Node string
}

// document ends reasons of refusals.
const document = " (docs/tenants.md)"

// Decide returns the decision. Table Tenant of the datapath makes the same decision for each packet.
func (c Connection) Decide() Decision {
	client, server := c.Client, c.Server
	at := client.Node
	refused := func(text string) Decision { return Decision{Reason: text + document, Node: at} }
	if client.Kind == Pod && client.Place.Closed() {
		return refused(client.closed())
	}
	if client.further() || server.further() {
		return c.inVirtual()
	}
	var network Place // that the packets are in; zero for the default network
	if client.Kind == Pod {
		network = client.Place
	}
	byHost := client.Kind == Outside || client.Kind == OwnHost
	switch {
	case c.Service == nil, byHost && c.Entered == "":
	case !c.Service.Isolated():
		network = Place{}
	case c.Entered != "":
		if at = c.Entered; server.Kind != Pod || server.Node != c.Entered {
			return refused("the Service is in " + c.Service.words() + ": an address of Node " + c.Entered + " leads to its " +
				"Pods on that Node alone: set externalTrafficPolicy: Local")
		}
		if server.Place.Closed() {
			return refused(server.closed())
		}
		if !c.Service.Meets(server.Place) {
			return refused("the Service is in " + c.Service.words() + ": it leads clients outside to Pods of that Namespace " +
				"alone")
		}
		return Decision{Allowed: true, Node: at, Reason: "clients outside reach Pods of " + c.Service.words() +
			" on Node " + at + " through its Services"}
	case client.Kind == Elsewhere:
		return refused("the Service is in " + c.Service.words() + ": other clusters do not reach it")
	case !network.Isolated():
		return refused("the Service is in " + c.Service.words() + ": Pods of other Namespaces do not reach it")
	}
	if server.Kind == Pod {
		return c.toPod(network)
	}
	switch {
	case network.reaches(server):
		return Decision{Allowed: true, Node: at, Reason: client.reachesThere(server)}
	case network.Isolated() && server.Kind != Outside:
		if server.Kind == Inside && server.Node != "" { // its packets go to each Node's range
			at = server.Node
		}
		return refused(client.words() + ": it reaches no address of the clusters' ranges but Pods of its Namespace")
	case network.Isolated() && !network.Outside:
		return refused(client.words() + ": it reaches destinations outside of the cluster only if the Namespace has the " +
			"annotation " + AnnotationForwardingMode + "=" + modeFabricSNAT)
	case network.Isolated():
		return Decision{Allowed: true, Node: at, Reason: client.words() + ", which has " + AnnotationForwardingMode + "=" +
			modeFabricSNAT + ": it reaches destinations outside"}
	}
	return c.inDefault(at)
}

// toPod returns the decision about packets of a network to a Pod. The Pod's Node decides.
func (c Connection) toPod(network Place) Decision {
	client, server := c.Client, c.Server
	refused := func(text string) Decision { return Decision{Reason: text + document, Node: server.Node} }
	switch into := server.Place; {
	case into.Closed():
		return refused(server.closed())
	case network.Meets(into) && !network.Isolated():
		if client.Kind == Pod && client.Name == server.Name && client.Place.Isolated() {
			return refused(client.words() + ": it does not reach itself through a Service of another Namespace")
		}
		return c.inDefault(server.Node)
	case network.Meets(into):
		text := "both Pods are in " + into.words()
		if network.Network != into.Network {
			text = network.words() + " and " + into.words() + " are joined"
		}
		return Decision{Allowed: true, Node: server.Node, Reason: text}
	case !into.Isolated() && c.Service != nil:
		return refused(client.words() + ", and the Service in " + c.Service.words() + ": it leads isolated Pods to " +
			"isolated Pods alone")
	case !into.Isolated():
		return refused(client.words() + ": it reaches Pods of other Namespaces through Services alone")
	case client.Kind == OwnHost:
		return Decision{Allowed: true, Node: server.Node, Reason: server.words() + ": processes of its Node reach it"}
	case client.Kind == Outside:
		return refused(server.words() + ": clients outside reach it through Services of its Namespace at addresses of its " +
			"Node, and processes of other Nodes do not reach it")
	case into.reaches(client):
		return Decision{Allowed: true, Node: server.Node, Reason: server.reachedFrom(client)}
	case client.Kind == Elsewhere:
		return refused(server.words() + ": other clusters do not reach it")
	case client.Place.Meets(into):
		return refused(server.words() + ", and the Service is not: it does not lead into that Namespace")
	}
	return refused(server.words() + ": Pods of other Namespaces do not reach it unless their networks are joined")
}

// inVirtual returns the decision about a connection of an interface in a VirtualNetwork. The Node of the client denies
// packets that would leave the network. About packets to another machine outside of these networks no Node decides.
func (c Connection) inVirtual() Decision {
	const document = " (docs/virtual-networks.md)"
	client, server := c.Client, c.Server
	refused := func(text string) Decision { return Decision{Reason: text + document, Node: client.Node} }
	switch {
	case client.First && c.leaves():
		return c.fromVirtual()
	case client.First && client.Place.Outside && server.Kind == Outside && !client.Taken.IsValid() &&
		!client.Place.Closed():
		return Decision{Allowed: true, Node: client.Node,
			Reason: client.words() + ", which has spec.fabricSNAT: it reaches destinations outside"}
	case c.Service == nil && !client.Place.Closed() && client.Place.reaches(server):
		return Decision{Allowed: true, Node: client.Node, Reason: client.reachesThere(server)}
	case c.Service == nil && !server.Place.Closed() && server.Place.reaches(client):
		return Decision{Allowed: true, Node: server.Node, Reason: server.reachedFrom(client)}
	case client.further() && c.Service != nil && !client.First:
		return refused(client.words() + ", where no Service answers: give the address of a Pod in that network, or of the " +
			"Pod's first interface")
	case !server.further() && (server.Kind != Pod || !server.Place.Isolated()) && c.Service != nil:
		return refused(client.words() + ", and the Service is of an isolated Namespace, or of one with such networks: it " +
			"leads the Pod to Pods of its network, and of networks joined with it, alone")
	case !server.further() && (server.Kind != Pod || !server.Place.Isolated()):
		return refused(client.words() + ": it reaches Pods of that network, and of networks joined with it, and nothing else")
	case server.Place.Closed():
		return refused(server.closed())
	case server.First && client.Kind == OwnHost && (c.Service == nil || !c.Service.Isolated()):
		return Decision{Allowed: true, Node: server.Node, Reason: server.words() + ": processes of its Node reach it"}
	case server.First && (client.Kind != Pod || !client.Place.Isolated()):
		d := Decision{Reason: server.words() + ": processes of its Node reach it, and no Pods of other networks, other " +
			"Nodes, other clusters or clients outside" + document}
		if client.Kind == Pod && client.Node == server.Node { // elsewhere no Node decides
			d.Node = server.Node
		}
		return d
	case client.Kind != Pod || !client.Place.Isolated():
		return Decision{Reason: server.words() + ": first interfaces of Namespaces that are not isolated, Nodes, other " +
			"clusters and clients outside do not reach it, and for them the address is outside of the cluster" + document}
	case !client.Place.Meets(server.Place):
		return refused(client.Place.words() + " and " + server.Place.words() + " are not joined")
	case client.Place.Network == server.Place.Network:
		return Decision{Allowed: true, Node: server.Node, Reason: "both Pods are in " + client.Place.words()}
	}
	return Decision{Allowed: true, Node: server.Node,
		Reason: client.Place.words() + " and " + server.Place.words() + " are joined"}
}

// leaves reports whether connections to the Service leave the client's own VirtualNetwork.
func (c Connection) leaves() bool { return c.Service != nil && !c.Service.Isolated() && !c.Inside }

// fromVirtual returns the decision about a connection to a Service of the default network, from a Pod whose own network
// is a VirtualNetwork. The Node of the server decides. For an address of another Pod in a VirtualNetwork, no Node
// decides.
func (c Connection) fromVirtual() Decision {
	const document = " (docs/virtual-networks.md)"
	client, server := c.Client, c.Server
	d := Decision{Node: server.Node}
	switch {
	case client.Taken.IsValid():
		d.Node, d.Reason = client.Node, client.words()+", whose address is in range "+client.Taken.String()+" of this or "+
			"another cluster: it reaches no Services"+document
	case server.Kind == Elsewhere:
		d.Node, d.Reason = client.Node, client.words()+": it reaches no Services of other clusters"+document
	case server.Kind == Inside && server.Node != client.Node:
		d.Reason = client.words() + ": by a Service it reaches Pods and destinations outside, and no other addresses of " +
			"Nodes' ranges" + document
	case server.Kind != Pod:
		d.Allowed, d.Node = true, client.Node
	case server.Place.Closed():
		d.Reason = server.closed() + document
	case server.Place.Isolated():
		if server.further() && server.Node != client.Node {
			d.Node = ""
		}
		d.Reason = server.words() + ", and the Service is not: it does not lead into that network" + document
	default:
		d.Allowed = true
	}
	switch {
	case d.Allowed && server.Kind == Pod:
		d.Reason = client.words() + ", and the Service in the default network: servers see the Pod, and answer it"
	case d.Allowed:
		d.Reason = client.words() + ", and the Service in the default network: servers outside of the Pods' networks see " +
			"the Pod's Node"
	}
	return d
}

// further reports whether an end is an interface of a Pod in a VirtualNetwork.
func (e End) further() bool { return e.Kind == Pod && e.Place.Network.Door == doorVirtual }

// inDefault returns the decision about packets to an end in the default network.
func (c Connection) inDefault(node string) Decision {
	d := Decision{Allowed: true, Node: node}
	if c.Client.Place.Isolated() {
		d.Reason = c.Client.words() + ", and the Service is in no isolated Namespace: all Pods reach it"
	}
	return d
}

// Meets reports whether packets of one network are delivered to Pods of another network. Neither of the two may be
// closed.
func (p Place) Meets(o Place) bool {
	return !p.Isolated() && !o.Isolated() || p.Isolated() && o.Isolated() && p.ID != 0 &&
		(p.ID == o.ID || slices.Contains(o.Joined, p.ID))
}

// reaches reports whether this cluster lets packets pass between a network and an end in another cluster.
func (p Place) reaches(e End) bool {
	return e.Kind == Elsewhere && p.Isolated() && (e.Joined || slices.Contains(p.Clusters, e.Cluster))
}

// reachesThere returns the reason why the packets of a client go to another cluster.
func (e End) reachesThere(server End) string {
	return e.words() + ": it reaches Pods of that network, and of networks joined with it, in cluster " + server.Cluster +
		", which decides"
}

// reachedFrom returns the reason why a server receives packets of another cluster.
func (e End) reachedFrom(client End) string {
	return e.words() + ": of cluster " + client.Cluster + ", Pods of that network reach it, and of networks joined with " +
		"it, and no others"
}

// words returns the network of a place in words.
func (p Place) words() string {
	switch p.Network.Door {
	case doorIsolated:
		return "the isolated Namespace " + p.Network.Name
	case doorClusterSet:
		return "TenantNetwork " + p.Network.Name
	case doorVirtual:
		return "VirtualNetwork " + p.Network.Namespace + "/" + p.Network.Name
	}
	return "network " + p.Network.String()
}

// words returns the beginning of a sentence about the network of a Pod.
func (e End) words() string { return e.Name + " is in " + e.Place.words() }

// closed returns the reason why a Pod has no traffic.
func (e End) closed() string {
	if !e.Place.Known {
		return e.Name + " has no traffic, since its Namespace is not known yet: wait until the agent has read it"
	}
	again := "the Namespace"
	if e.Place.Network.Door == doorVirtual {
		again = "the VirtualNetwork"
	}
	return e.words() + ", whose number another network has, and has no traffic: create " + again + " again"
}
