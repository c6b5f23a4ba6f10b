package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// minMTU is the size of packet that every IPv4 host must accept (RFC 791 section 3.1).
const minMTU = 576

// minMTU6 is the smallest MTU of a link with IPv6 (RFC 8200 section 5). Linux removes all IPv6 addresses from an
// interface with a smaller one.
const minMTU6 = 1280

// netConf is the network configuration: the specification's keys and ours.
type netConf struct {
	CNIVersion    string          `json:"cniVersion"`
	Name          string          `json:"name"`
	Type          string          `json:"type"`
	MTU           int             `json:"mtu"` // instead of the Node's
	DNS           types.DNS       `json:"dns"` // passed on in the result
	DeviceID      string          `json:"deviceID"`
	IPAM          ipamConf        `json:"ipam"`
	PrevResult    json.RawMessage `json:"prevResult"`
	RuntimeConfig struct {
		DNS       *types.DNS     `json:"dns"` // wins over DNS
		Bandwidth *bandwidthConf `json:"bandwidth"`
		HostPorts []portMapping  `json:"portMappings"`
	} `json:"runtimeConfig"`
	// These are the interfaces that GC must keep, under two keys: the specification's, and the key of its first version,
	// which libraries still send too.
	Valid       *[]types.GCAttachment `json:"cni.dev/valid-attachments"`
	Attachments *[]types.GCAttachment `json:"cni.dev/attachments"`
}

// ipamConf has the keys below "ipam" that IPAM plugins read. All except the type are refused, since ranges come from
// the Node's podCIDR.
type ipamConf struct {
	Type      string          `json:"type"`
	Ranges    json.RawMessage `json:"ranges"`
	Routes    json.RawMessage `json:"routes"`
	Addresses json.RawMessage `json:"addresses"`
	DNS       json.RawMessage `json:"dns"`
	IPPools   json.RawMessage `json:"ippools"`
	Subnet    json.RawMessage `json:"subnet"`
}

func unset(m json.RawMessage) bool {
	switch strings.TrimSpace(string(m)) {
	case "", "null", "[]", "{}", `""`:
		return true
	}
	return false
}

// parseConf reads a network configuration. Its error names the wrong field. checkAdd checks fields that only ADD uses.
func parseConf(b []byte) (*netConf, *types.Error) {
	var c netConf
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, types.NewError(wire.CodeDecoding, "network configuration: "+jsonError(err),
			"correct the file in /etc/cni/net.d")
	}
	if c.CNIVersion == "" {
		c.CNIVersion = "0.1.0" // the version if the field is missing
	}
	if !slices.Contains(wire.SupportedVersions, c.CNIVersion) {
		return nil, types.NewError(wire.CodeIncompatibleVersion,
			fmt.Sprintf("network configuration: cniVersion %q is not supported", c.CNIVersion),
			"set cniVersion to one of "+strings.Join(wire.SupportedVersions, ", "))
	}
	if c.Name == "" {
		return nil, types.NewError(wire.CodeNetworkConfig, "network configuration: name is missing",
			"give the network a name")
	}
	return &c, nil
}

// jsonError names the field of a value that has the wrong type.
func jsonError(err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) && t.Field != "" {
		return fmt.Sprintf("%s has a %s, want a %s", t.Field, t.Value, t.Type)
	}
	return err.Error()
}

// checkAdd refuses settings that ADD cannot follow.
func (c *netConf) checkAdd() *types.Error {
	unsupported := func(field, remedy string) *types.Error {
		return types.NewError(wire.CodeUnsupportedField, "network configuration: "+field+" is not supported", remedy)
	}
	if !unset(c.PrevResult) {
		return unsupported("prevResult", "tombolo makes the Pod's interface itself: put it first in the list of plugins")
	}
	if c.DeviceID != "" {
		return unsupported("deviceID", "remove it: SR-IOV devices cannot be attached to this network")
	}
	switch c.IPAM.Type {
	case "", "tombolo", "host-local":
	default:
		return unsupported(fmt.Sprintf("ipam.type %q", c.IPAM.Type),
			"remove ipam, or set its type to host-local: addresses come from the Node's podCIDR")
	}
	for _, f := range []struct {
		name  string
		value json.RawMessage
	}{
		{"ipam.ranges", c.IPAM.Ranges}, {"ipam.subnet", c.IPAM.Subnet}, {"ipam.addresses", c.IPAM.Addresses},
		{"ipam.routes", c.IPAM.Routes}, {"ipam.ippools", c.IPAM.IPPools},
	} {
		if !unset(f.value) {
			return unsupported(f.name, "remove it: addresses and routes come from the Node's podCIDR")
		}
	}
	if !unset(c.IPAM.DNS) {
		return unsupported("ipam.dns", "move it to dns at the top level")
	}
	if c.MTU != 0 && (c.MTU < minMTU || c.MTU > 65535) {
		return types.NewError(wire.CodeNetworkConfig, fmt.Sprintf("network configuration: mtu has %d, want %d to 65535",
			c.MTU, minMTU), "correct mtu, or remove it for the Node's MTU")
	}
	if _, failed := c.hostPorts(); failed != nil {
		return failed
	}
	_, failed := c.bandwidth()
	return failed
}

// checkMTU refuses an MTU that the Node's families do not allow.
func (c *netConf) checkMTU(n Network) *types.Error {
	six := slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() })
	if !six || c.MTU == 0 || c.MTU >= minMTU6 {
		return nil
	}
	return types.NewError(wire.CodeNetworkConfig, fmt.Sprintf(
		"network configuration: mtu has %d, want %d to 65535 on a Node with IPv6", c.MTU, minMTU6),
		"correct mtu, or remove it for the Node's MTU")
}

// valid returns the interfaces of either list, which GC must keep. It returns an error if the configuration has no
// list, or if an entry names no interface. Without the error, interfaces that the list lacks would be removed, and
// their Pods would lose their network.
func (c *netConf) valid() (map[ipam.Key]bool, *types.Error) {
	const field = "cni.dev/valid-attachments"
	if c.Valid == nil && c.Attachments == nil {
		return nil, types.NewError(wire.CodeNetworkConfig, "network configuration: "+field+" is missing",
			"the runtime has to pass the list of all attachments of this network, [] if it has no attachment")
	}
	out := map[ipam.Key]bool{}
	for _, list := range []*[]types.GCAttachment{c.Valid, c.Attachments} {
		if list == nil {
			continue
		}
		for i, v := range *list {
			if v.ContainerID == "" || v.IfName == "" {
				return nil, types.NewError(wire.CodeNetworkConfig,
					fmt.Sprintf("network configuration: entry %d of %s lacks containerID or ifname", i, field),
					"the runtime has to name both of each attachment")
			}
			out[ipam.Key{ContainerID: v.ContainerID, IfName: v.IfName}] = true
		}
	}
	return out, nil
}

// dns returns the DNS settings for the result.
func (c *netConf) dns() types.DNS {
	if c.RuntimeConfig.DNS != nil {
		return *c.RuntimeConfig.DNS
	}
	return c.DNS
}

// prevResult reads the result of ADD that CHECK brings along.
func (c *netConf) prevResult() (*types100.Result, *types.Error) {
	if unset(c.PrevResult) {
		return nil, types.NewError(wire.CodeNetworkConfig, "network configuration: prevResult is missing",
			"CHECK compares with the result of ADD; the runtime has to pass it")
	}
	r, err := cniversion.NewResult(c.CNIVersion, c.PrevResult)
	if err == nil {
		var current *types100.Result
		if current, err = types100.NewResultFromResult(r); err == nil {
			return current, nil
		}
	}
	return nil, types.NewError(wire.CodeDecoding, "network configuration: prevResult: "+err.Error(),
		"the runtime has to pass the result of ADD unchanged")
}

// pod is the runtime's description of a Pod in CNI_ARGS. Runtimes other than a kubelet's may give no uid.
type pod struct{ namespace, name, uid string }

func (p pod) String() string { return p.namespace + "/" + p.name }

// maxUID is the longest K8S_POD_UID. UIDs of API servers have 36 characters, UIDs of static Pods 32.
const maxUID = 128

// parseArgs reads CNI_ARGS. It ignores unknown keys, as Kubernetes requests with IgnoreUnknown=1.
func parseArgs(args string) pod {
	var p pod
	for _, pair := range strings.Split(args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "K8S_POD_NAMESPACE":
			p.namespace = value
		case "K8S_POD_NAME":
			p.name = value
		case "K8S_POD_UID":
			p.uid = value
		}
	}
	return p
}
