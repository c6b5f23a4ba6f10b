package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"time"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// cniNode attaches Pods to the switch, and detaches them, for CNI requests.
type cniNode struct {
	tables      *tables
	attachments *attachments
	switchPorts *bridge.Manager
	flows       *flowsync.Syncer
	host        *hostnet.Manager
	progress    *progress
	zones       *zoneFlusher
	log         *slog.Logger
}

// Network returns the network of a new Pod. It waits until the Node's network is ready.
func (n *cniNode) Network(ctx context.Context) (cni.Network, error) {
	var network cni.Network
	err := n.progress.await(ctx, func() (ok bool, err error) {
		network, ok = n.tables.outputs.network.Get(self)
		return ok && n.progress.ready(), nil
	})
	if err != nil {
		return cni.Network{}, fmt.Errorf("the Node's network is not ready: %w; see `tombolo get status`", err)
	}
	return network, nil
}

// labelsWait is how long an ADD waits for a Pod's labels. The kubelet receives the Pod at the same time as the agent,
// and makes the sandbox before it calls the plugin. So the agent usually has the labels when the ADD arrives.
const labelsWait = 2 * time.Second

// Attach gives a Pod's interface a port on the switch. It returns when the port has its number and the switch has
// confirmed the Pod's flows for it. The port and the flows are requested at the same time. The flows are for the
// requested number, and follow if the port gets another one. If policies may select the Pod, Attach also waits a short
// time for the Pod's labels. Without labels the Pod starts closed, and opens when they arrive.
func (n *cniNode) Attach(ctx context.Context, at cni.Attachment) error {
	recorded, err := n.zones.arrive(ctx, at)
	if err != nil {
		return fmt.Errorf("attach Pod %s/%s: %w", at.PodNamespace, at.PodName, err)
	}
	err = n.attachments.put(at)
	if recorded(); err != nil {
		return err
	}
	if at.PodUID != "" { // else the Pod is unknown before the kubelet reports its address
		labelled, cancel := context.WithTimeout(ctx, labelsWait)
		defer cancel()
		_ = n.progress.await(labelled, func() (bool, error) {
			served, ok := n.served(at)
			return ok && !served.Closed, nil
		})
	}
	failed := func(err error) error { return fmt.Errorf("attach Pod %s/%s: %w", at.PodNamespace, at.PodName, err) }
	for {
		var declared, number ofp.Port
		err := n.progress.await(ctx, func() (ok bool, err error) {
			if number, err = n.portOf(at); err != nil {
				return false, err
			}
			_, known := n.tables.outputs.network.Get(self)
			served, ok := n.served(at)
			declared = served.Pod.Port
			return ok && known && n.attachments.has(at) && (number == 0 || number == declared), nil
		})
		if err != nil {
			return failed(err)
		}
		if err := n.flows.Synced(ctx, datapath.PodOwner(at.PortName)); err != nil {
			return failed(fmt.Errorf("flows: %w", err))
		}
		if err := n.progress.await(ctx, func() (bool, error) {
			number, err = n.portOf(at)
			return number != 0, err
		}); err != nil {
			return failed(err)
		}
		if number == declared {
			n.translated(ctx, at)
			return n.mapped(ctx, at)
		}
	}
}

// portOf returns the number of an attachment's port; 0 while there is no number. If Open vSwitch has refused the port
// of a known attachment, it returns an error.
func (n *cniNode) portOf(at cni.Attachment) (ofp.Port, error) {
	if _, known := n.tables.outputs.network.Get(self); !known || !n.attachments.has(at) {
		return 0, nil
	}
	port := n.switchPorts.State().Bridges[n.tables.config.OVSBridge].Ports[at.PortName]
	if port.Error != "" {
		return 0, fmt.Errorf("port %s was refused by Open vSwitch: %s", at.PortName, port.Error)
	}
	return ofp.Port(port.OFPort), nil
}

// served returns how the declared flows serve an attachment. It returns false if the flows are for other addresses or
// another MAC, which a repeated ADD may bring.
func (n *cniNode) served(at cni.Attachment) (datapath.ServedPod, bool) {
	served, _ := n.progress.served(at.PortName)
	mac, err := ofp.ParseMAC(at.MAC)
	families, _ := n.tables.this.familiesRow.Get(self)
	pod := podAt(at, mac, served.Pod.Port, families)
	return served, served.Served && err == nil && reflect.DeepEqual(served.Pod, pod)
}

// Detach removes a Pod's port and flows. If there is no attachment, it returns at once.
//
// It also returns at once while this agent has not known its Node yet, since the switch stays as it is until then. The
// first plan removes the port and the flows later. No new Pod can get the address before that, since a new Pod needs
// the Node's network. If the agent restarts before the first plan, it finds the port without a Pod
// (cni.Server.Recover).
func (n *cniNode) Detach(ctx context.Context, containerID, ifName string) error {
	at, ok := n.attachments.leave(containerID, ifName)
	if !ok {
		return nil
	}
	if _, known := n.tables.node.Get(self); !known {
		n.log.Info("Pod detached while this Node is not known; its port and flows are removed later",
			"pod", at.PodNamespace+"/"+at.PodName, "port", at.PortName)
		n.attachments.left(at)
		return nil
	}
	err := n.progress.await(ctx, func() (bool, error) {
		_, flows := n.progress.served(at.PortName)
		_, still := n.switchPorts.State().Bridges[n.tables.config.OVSBridge].Ports[at.PortName]
		return !flows && !still, nil
	})
	if err != nil {
		return fmt.Errorf("detach Pod %s/%s: port %s: %w", at.PodNamespace, at.PodName, at.PortName, err)
	}
	if err := n.flows.Synced(ctx, datapath.PodOwner(at.PortName)); err != nil {
		return fmt.Errorf("detach Pod %s/%s: flows: %w", at.PodNamespace, at.PodName, err)
	}
	n.unmapped(ctx, at)
	n.attachments.left(at)
	n.zones.changed()
	return nil
}

// unmapWait is how long a DEL waits for the end of ports of the Node.
const unmapWait = 5 * time.Second

// unmapped waits a short time until no port of the Node leads to an attachment that has gone. If the host cannot remove
// the ports, DEL does not fail: the host goes on trying, since they are no longer desired. Before the first complete
// plan the host removes no ports.
func (n *cniNode) unmapped(ctx context.Context, at cni.Attachment) {
	if len(at.HostPorts) == 0 || !n.progress.ready() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, unmapWait)
	defer cancel()
	if err := n.host.PortsSynced(ctx); err != nil {
		n.log.Warn("ports of this Node may still lead to a Pod that has gone; trying again",
			"pod", at.PodNamespace+"/"+at.PodName, "error", err)
	}
}

// hostWait is how long an ADD waits for routes and rules of the host. On a busy Node nft takes seconds.
const hostWait = 10 * time.Second

// translated waits a short time until the host translates the address of a first interface in a VirtualNetwork, and has
// its routes. A connection that is opened before would keep the address, which servers outside cannot answer. The host
// translates whole blocks (podTables.addBlocks). So usually only the routes are new, and they are there before the
// flows. If the host refuses its part, ADD does not fail: problems of the Node name it.
func (n *cniNode) translated(ctx context.Context, at cni.Attachment) {
	if at.VirtualNetwork == "" || at.IfName != tenant.FirstInterface {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hostWait)
	defer cancel()
	var ips []netip.Addr
	for _, p := range at.IPs {
		ips = append(ips, p.Addr())
	}
	if err := n.host.Leads(ctx, ips); err != nil {
		n.log.Warn("the first connections of a Pod to servers outside of the Pods' networks may fail: the host may not "+
			"translate its address yet", "pod", at.PodNamespace+"/"+at.PodName, "error", err)
	}
}

// mapped waits until the host has the ports of the Node that were declared with an attachment.
func (n *cniNode) mapped(ctx context.Context, at cni.Attachment) error {
	if len(at.HostPorts) == 0 {
		return nil
	}
	if err := n.host.PortsSynced(ctx); err != nil {
		return fmt.Errorf("open ports of Pod %s/%s: %w", at.PodNamespace, at.PodName, err)
	}
	return nil
}

// Attachments lists the attachments of this Node.
func (n *cniNode) Attachments() []cni.Attachment { return n.attachments.list() }
