package cni

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
)

// attached answers requests of Multus for a further interface, whose NetworkAttachmentDefinition has the type
// contrail-k8s-cni. The ADD of eth0 has made the interface, and its DEL removes it. So nothing is done here, and ADD
// returns the interface. Multus names the interfaces net1, net2 and so on, although they are eth1, eth2 and so on.
func (e extras) attached(path string, q wire.Request, c *netConf) ([]byte, *types.Error) {
	if path != wire.PathAdd {
		return nil, nil
	}
	var list []Attachment
	for _, a := range e.node.Attachments() {
		if a.ContainerID == q.ContainerID && a.VirtualNetwork != "" && a.IfName != defaultIfName {
			list = append(list, a)
		}
	}
	at := slices.IndexFunc(list, func(a Attachment) bool {
		number, found := strings.CutPrefix(q.IfName, "net")
		return a.IfName == q.IfName || found && a.IfName == "eth"+number
	})
	if at < 0 {
		at = slices.IndexFunc(list, func(a Attachment) bool {
			_, name := splitNetwork(a.VirtualNetwork)
			return name == c.Name
		})
	}
	if at < 0 {
		return nil, types.NewError(wire.CodeUnknownContainer, fmt.Sprintf("container %s has no interface in VirtualNetwork "+
			"%s for %s", q.ContainerID, c.Name, q.IfName), "turn the agents' feature gate TenantNetworks on, and delete the Pod")
	}
	a := list[at]
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{{Name: a.IfName, Mac: a.MAC, Sandbox: a.Netns}}}
	for _, p := range a.IPs {
		r.IPs = append(r.IPs, &types100.IPConfig{Interface: types100.Int(0), Address: *ipNet(p)})
	}
	return c.text(r)
}
