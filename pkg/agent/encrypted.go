package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// Between clusters, and between the Nodes of a cluster, traffic may be encrypted: tunnels end at addresses inside WireGuard
// then. docs/design/0010-encryption-between-clusters.md says more.

// insideLink is a network inside WireGuard, which has a device of its own.
type insideLink struct {
	// name is the link that has this end's address inside. With the kernel's datapath it is the WireGuard device, with the
	// userspace one a bridge, of which the device is a port. tap is the device then.
	name, tap string
	// The userspace datapath routes to an address only if one of its own is in the same network or in that of the next hop. So
	// there is a next hop, which WireGuard answers for.
	net netip.Prefix
	hop netip.Addr
	// keyFile has the private key, in the state directory.
	keyFile string
	// key is what asks for encryption in the configuration.
	key string
}

var (
	betweenClusters = insideLink{
		name: "antrea-mc-wg0", tap: "antrea-mc-tap0", net: netip.MustParsePrefix("169.254.64.1/30"), hop: netip.MustParseAddr("169.254.64.2"),
		keyFile: "wireguard.key", key: "multicluster.trafficEncryptionMode",
	}
	betweenNodes = insideLink{
		name: "antrea-wg0", tap: "antrea-tap0", net: netip.MustParsePrefix("169.254.64.5/30"), hop: netip.MustParseAddr("169.254.64.6"),
		keyFile: "wireguard-nodes.key", key: "trafficEncryptionMode",
	}
)

// WireGuardDevices are the devices that have to be served where the kernel has no WireGuard, or, with the userspace datapath,
// where it has.
func WireGuardDevices(userspace bool) []string {
	if userspace {
		return []string{betweenClusters.tap, betweenNodes.tap}
	}
	return []string{betweenClusters.name, betweenNodes.name}
}

// nodeKey is the annotation of a Node with the key that its agent has.
const nodeKey = "node.antrea.io/wireguard-public-key"

// nodesInside has the addresses inside of Nodes, which follow from those outside. It is a part of IPv4 that no host uses (RFC
// 1112, section 4), so that no range of users meets it.
var nodesInside = netip.MustParsePrefix("240.0.0.0/4")

// insideOf is where tunnels to an address of a Node end inside.
func insideOf(outside netip.Addr) netip.Addr {
	if !outside.Is4() {
		return nodesInside.Addr() // nowhere
	}
	a := outside.As4()
	a[0] |= 0xf0
	return netip.AddrFrom4(a)
}

// encrypted is this Node's part in encryption.
type encrypted struct {
	Clusters tunnelsInside // of the Gateway by which this cluster's traffic goes
	Nodes    tunnelsInside
}

// tunnelsInside are the tunnels inside of one device; without a valid Base there is none.
type tunnelsInside struct {
	Base  netip.Addr // this end's address inside
	Peers []wireguard.Peer
}

func (e encrypted) of(l insideLink) tunnelsInside {
	if l == betweenNodes {
		return e.Nodes
	}
	return e.Clusters
}

func (t *tables) encryptedOf(_ derive.Name, r *derive.Reader) (encrypted, []problem.Problem) {
	return encrypted{Clusters: t.clustersInside(r), Nodes: t.nodesInside(r)}, nil
}

func (t *tables) clustersInside(r *derive.Reader) tunnelsInside {
	p, _ := derive.Get(r, t.peering, self)
	if !t.config.EncryptsPeers() || p.Role != peering.Gateway || p.Gateways[0].Name != p.Name {
		return tunnelsInside{}
	}
	out := tunnelsInside{Base: p.GatewayIP}
	for _, peer := range p.Peers {
		out.Peers = append(out.Peers, wireguard.Peer{
			PublicKey:  peer.WireGuard.PublicKey,
			Endpoint:   netip.AddrPortFrom(peer.WireGuard.Endpoint, uint16(t.config.Multicluster.WireGuard.Port)),
			AllowedIPs: []netip.Prefix{netip.PrefixFrom(peer.Gateways[0], peer.Gateways[0].BitLen())},
		})
	}
	return out
}

func (t *tables) nodesInside(r *derive.Reader) tunnelsInside {
	node, _, known := t.ready(r)
	end, ok, _ := node.tunnelEnd()
	if !t.config.EncryptsNodes() || !known || !ok {
		return tunnelsInside{}
	}
	out := tunnelsInside{Base: insideOf(end)}
	for _, remote := range derive.All(r, t.remotes) {
		n, _ := derive.Get(r, t.nodes, derive.Object{Name: string(remote.Key)})
		key, err := publickey.Parse(n.WireGuardKey)
		to, ok, _ := n.tunnelEnd()
		if err != nil || !ok {
			continue // it has no row in remotes
		}
		out.Peers = append(out.Peers, wireguard.Peer{
			PublicKey: key, Endpoint: netip.AddrPortFrom(to, uint16(t.config.WireGuard.Port)),
			AllowedIPs: []netip.Prefix{netip.PrefixFrom(remote.Value.Address, remote.Value.Address.BitLen())},
		})
	}
	return out
}

// insideIDs are what no two Nodes may have in common where traffic between them is encrypted.
func insideIDs(n nodeFacts) (key, address derive.Name) {
	end, _, _ := n.tunnelEnd()
	return derive.Name("key " + n.WireGuardKey), derive.Name("address " + insideOf(end).String())
}

// secured decides whether a Node is reached as both sides ask for: nothing is sent in plain text to a Node that announces a key,
// nor, with encryption here, to one that does not.
func (t *tables) secured(name string, n nodeFacts, r *derive.Reader, ps *problems) bool {
	object, field := problem.Object{Kind: "Node", Name: name}, "metadata.annotations["+nodeKey+"]"
	if !t.config.EncryptsNodes() {
		if n.WireGuardKey != "" {
			ps.report(object, field, "NodeExpectsEncryption", "its Pods cannot be reached: it announces a WireGuard key, and this Node would send it plain text: set trafficEncryptionMode in antrea-agent.conf to the same for all Nodes, and restart their agents, which write and remove the annotation; if no agent runs there any more, remove it")
			return false
		}
		return true
	}
	if n.WireGuardKey == "" {
		ps.report(object, field, "NodeWithoutEncryption", "its Pods cannot be reached: it announces no WireGuard key, and nothing is sent to it in plain text: set trafficEncryptionMode to wireGuard in antrea-agent.conf, and restart its agent, which announces its key then")
		return false
	}
	if _, err := publickey.Parse(n.WireGuardKey); err != nil {
		ps.report(object, field, "InvalidWireGuardKey", "its Pods cannot be reached: %v: remove the annotation, and the Node's agent writes its key again", err)
		return false
	}
	if end, _, _ := n.tunnelEnd(); nodesInside.Contains(end) {
		ps.report(object, "status.addresses", "InvalidAddress", "its Pods cannot be reached: tunnels to %s cannot be encrypted, since the addresses inside are of %s too: give the Node another address", end, nodesInside)
		return false
	}
	key, address := insideIDs(n)
	for _, id := range []derive.Name{key, address} {
		holder := ""
		for _, o := range derive.List(r, t.byInside, id) {
			if o.Key.Name == t.nodeName || holder == "" {
				holder = o.Key.Name
			}
		}
		switch {
		case holder == name:
		case id == key:
			ps.report(object, field, "DuplicateWireGuardKey", "its Pods cannot be reached: Node %s has the same WireGuard key: remove the file %s below /var/lib/tombolo on Node %s, if it is a copy of the other's, and restart its agent", holder, betweenNodes.keyFile, name)
			return false
		default:
			ps.report(object, "status.addresses", "DuplicateInsideAddress", "its Pods cannot be reached: its address and that of Node %s have the same last 28 bits, by which Nodes are told apart inside WireGuard: give one of them another address, or annotate it with %s", holder, transportAddresses)
			return false
		}
	}
	return true
}

// userspace says whether the switch sends through links of its own alone.
func (t *tables) userspace() bool { return t.config.OVSDatapathType == "netdev" }

// insideMTU is what remains of the underlay's MTU for tunnels.
func (t *tables) insideMTU(u Underlay) int {
	if t.config.EncryptsPeers() || t.config.EncryptsNodes() {
		return u.MTU - wireguard.Overhead
	}
	return u.MTU
}

// insideBridges are those by which a userspace switch reaches the WireGuard devices.
func (t *tables) insideBridges(r *derive.Reader, u Underlay) []bridge.Bridge {
	e, _ := derive.Get(r, t.encrypted, self)
	s, _ := derive.Get(r, t.settings, self)
	var out []bridge.Bridge
	for l, mac := range map[insideLink]string{betweenClusters: s.InsideMAC, betweenNodes: s.NodesMAC} {
		if !e.of(l).Base.IsValid() || !t.userspace() || mac == "" {
			continue
		}
		out = append(out, bridge.Bridge{
			Name: l.name, DatapathType: "netdev", FailMode: "standalone", HardwareAddr: mac,
			Ports: []bridge.Port{
				{Name: l.tap, ExternalIDs: map[string]string{externalIDType: typeUplink}},
				{Name: l.name, MTU: t.insideMTU(u)},
			},
		})
	}
	slices.SortFunc(out, func(a, b bridge.Bridge) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// insideHost adds what the host needs to reach the ends inside.
func (t *tables) insideHost(d *hostnet.Desired, r *derive.Reader, u Underlay) {
	e, _ := derive.Get(r, t.encrypted, self)
	// While a device is not there nothing may leave by another link: wider routes lead to the switch, which drops it.
	drop := func(to netip.Prefix) {
		d.Routes = append(d.Routes, hostnet.Route{Dst: to, Link: t.config.HostGateway})
	}
	if t.config.EncryptsNodes() || slices.ContainsFunc(derive.All(r, t.nodes), func(n derive.Row[derive.Object, nodeFacts]) bool { return n.Value.WireGuardKey != "" }) {
		drop(nodesInside)
	}
	for _, l := range []insideLink{betweenClusters, betweenNodes} {
		tunnels := e.of(l)
		if !tunnels.Base.IsValid() {
			continue
		}
		link := hostnet.Link{Name: l.name, MTU: t.insideMTU(u), Up: true, Addresses: []netip.Prefix{netip.PrefixFrom(tunnels.Base, tunnels.Base.BitLen())}}
		hop := netip.Addr{}
		if t.userspace() {
			d.Links = append(d.Links, hostnet.Link{Name: l.tap, MTU: t.insideMTU(u), Up: true, NoAddresses: true})
			link.Addresses = append(link.Addresses, l.net)
			hop = l.hop
		} else {
			link.Guarded = true
		}
		d.Links = append(d.Links, link)
		ends := hostnet.Tunnels{Link: l.name}
		for _, p := range tunnels.Peers {
			for _, to := range p.AllowedIPs {
				if l == betweenClusters {
					drop(netip.PrefixFrom(to.Addr(), to.Bits()-1).Masked())
				}
				d.Routes = append(d.Routes, hostnet.Route{Dst: to, Gateway: hop, Link: l.name, Source: tunnels.Base})
				ends.Peers = append(ends.Peers, to.Addr())
			}
		}
		if t.userspace() {
			d.Tunnels = append(d.Tunnels, ends)
		}
	}
}

// encryption is what the agent has of one WireGuard device.
type encryption struct {
	insideLink
	device *wireguard.Manager
	secret wireguard.PrivateKey
	err    error // why there is no key
	wanted bool  // by the configuration
	port   int
	what   string // is not reached without a key
}

// newEncryptions reads the keys, or makes them, where traffic is encrypted.
func newEncryptions(o Options) []*encryption {
	c := o.Config
	nodes := &encryption{insideLink: betweenNodes, wanted: c.EncryptsNodes(), port: c.WireGuard.Port, what: "other Nodes"}
	out := []*encryption{nodes}
	if c.MulticlusterGateway() {
		out = append(out, &encryption{insideLink: betweenClusters, wanted: c.EncryptsPeers(), port: c.Multicluster.WireGuard.Port, what: "other clusters"})
	}
	for _, e := range out {
		options := wireguard.Options{Name: e.name, Logger: o.Logger}
		if c.OVSDatapathType == "netdev" {
			options.Name = e.tap
		}
		if e.wanted {
			if e.secret, e.err = wireguard.LoadKey(filepath.Join(o.StateDir, e.keyFile)); e.err != nil {
				o.Logger.Error(e.what+" are not reached", "error", e.err)
			}
			if c.OVSDatapathType == "netdev" {
				options.HardwareAddr = e.insideMAC()
			}
		}
		e.device = wireguard.New(options)
	}
	return out
}

// insideMAC is known to nobody without the key: frames of others to it cannot look decrypted.
func (e *encryption) insideMAC() net.HardwareAddr {
	sum := e.secret.Derive("tombolo inside")
	sum[0] = sum[0]&^1 | 2
	return sum[:6]
}

// set hands on what the tables say.
func (e *encryption) set(row encrypted) {
	switch tunnels := row.of(e.insideLink); {
	case e.err != nil:
	case !tunnels.Base.IsValid():
		e.device.Set(nil)
	default:
		e.device.Set(&wireguard.Desired{PrivateKey: e.secret, ListenPort: e.port, Peers: tunnels.Peers})
	}
}

// problems are those of the device and of the key.
func (e *encryption) problems(node string) []problem.Problem {
	if e.err != nil {
		return []problem.Problem{{Object: problem.Object{Kind: "Node", Name: node}, Field: e.key, Reason: "NoWireGuardKey",
			Message: e.what + " are not reached: " + e.err.Error() + "; then restart the agent"}}
	}
	return e.device.Problems()
}

// published is the key that others should know: none where nothing is encrypted. The second result is false where it cannot be known.
func (e *encryption) published() (string, bool) {
	switch {
	case e.err != nil:
		return "", false
	case !e.wanted:
		return "", true
	}
	return e.secret.Public().String(), true
}

// publisher writes this Node's key where others read it.
type publisher struct {
	key   string
	get   func() (at problem.Object, have string, ok bool)
	patch func(ctx context.Context, at problem.Object, key any) error // a key of null removes it
	log   *slog.Logger
	wake  chan struct{}
}

const publishRetry = 5 * time.Second

// run writes the key whenever another one is there.
func (p *publisher) run(ctx context.Context) {
	for {
		again := time.NewTimer(publishRetry)
		if !p.write(ctx) {
			again.Stop()
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-again.C:
		}
		again.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// write reports whether it has to be tried again.
func (p *publisher) write(ctx context.Context) bool {
	at, have, ok := p.get()
	if !ok || have == p.key {
		return false
	}
	var key any
	if p.key != "" {
		key = p.key
	}
	err := p.patch(ctx, at, key)
	switch {
	case apierrors.IsNotFound(err) || ctx.Err() != nil: // an event follows, or nothing
		return false
	case err != nil:
		p.log.Error("announce the WireGuard key; trying again", "object", at, "error", err)
		return true
	}
	p.log.Info("announced the WireGuard key", "object", at, "publicKey", p.key)
	return false
}

// newPublishers prepares encryption and the announcement of its keys.
func (a *Agent) newPublishers() error {
	a.encryptions = newEncryptions(a.options)
	for _, e := range a.encryptions {
		key, known := e.published()
		if !known {
			continue
		}
		p := &publisher{key: key, log: a.log, wake: make(chan struct{}, 1)}
		a.publishers = append(a.publishers, p)
		if e.insideLink == betweenNodes {
			api, err := newNodeClient(a.options.REST)
			if err != nil {
				return err
			}
			p.patch = patchNode(api)
			p.get = func() (problem.Object, string, bool) {
				n, ok := a.tables.nodes.Get(derive.Object{Name: a.options.NodeName})
				return problem.Object{Kind: "Node", Name: a.options.NodeName}, n.WireGuardKey, ok
			}
			continue
		}
		api, err := newGatewayClient(a.options.REST)
		if err != nil {
			return err
		}
		p.patch = patchGateway(api)
		p.get = func() (problem.Object, string, bool) {
			for _, row := range a.tables.gateways.All() {
				if row.Key.Name == a.options.NodeName {
					return gatewayKey(row.Value)
				}
			}
			return problem.Object{}, "", false
		}
	}
	return nil
}

// gatewayKey is the key in a Gateway.
func gatewayKey(g *mcv1alpha1.Gateway) (at problem.Object, have string, ok bool) {
	if g.WireGuard != nil {
		have = g.WireGuard.PublicKey
	}
	return problem.Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}, have, true
}

func patchGateway(api rest.Interface) func(context.Context, problem.Object, any) error {
	return func(ctx context.Context, at problem.Object, key any) error {
		info := map[string]any{"wireGuard": nil}
		if key != nil {
			info["wireGuard"] = map[string]any{"publicKey": key}
		}
		merge, err := json.Marshal(info)
		if err != nil {
			return err
		}
		return api.Patch(types.MergePatchType).Namespace(at.Namespace).Resource("gateways").Name(at.Name).Body(merge).Do(ctx).Error()
	}
}

func patchNode(api rest.Interface) func(context.Context, problem.Object, any) error {
	return func(ctx context.Context, at problem.Object, key any) error {
		merge, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{nodeKey: key}}})
		if err != nil {
			return err
		}
		return api.Patch(types.MergePatchType).Resource("nodes").Name(at.Name).Body(merge).Do(ctx).Error()
	}
}

func newGatewayClient(config *rest.Config) (rest.Interface, error) {
	return clientOf(config, mcv1alpha1.GroupVersion, "/apis", mcv1alpha1.AddToScheme)
}

func newNodeClient(config *rest.Config) (rest.Interface, error) {
	return clientOf(config, corev1.SchemeGroupVersion, "/api", corev1.AddToScheme)
}

// clientOf writes objects of one version.
func clientOf(config *rest.Config, version schema.GroupVersion, path string, add func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &version, path, serializer.NewCodecFactory(scheme).WithoutConversion()
	api, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("set up the client of %s: %w", version, err)
	}
	return api, nil
}
