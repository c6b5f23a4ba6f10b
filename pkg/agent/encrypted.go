package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
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
)

// Between clusters traffic may be encrypted: tunnels end at addresses inside WireGuard then, the first ones of the clusters'
// Service ranges. docs/design/0010-encryption-between-clusters.md says more.

const (
	// InsideLink has this cluster's address inside. With the kernel's datapath it is the WireGuard device, with the userspace
	// one a bridge, of which the device is a port.
	InsideLink = "antrea-mc-wg0"
	// InsideTAP is the device with the userspace datapath.
	InsideTAP = "antrea-mc-tap0"

	keyFile = "wireguard.key" // in the state directory
)

// The userspace datapath routes to an address only if one of its own is in the same network or in that of the next hop. So
// there is a next hop, which WireGuard answers for.
var (
	insideNet = netip.MustParsePrefix("169.254.64.1/30")
	insideHop = netip.MustParseAddr("169.254.64.2")
)

// encrypted is this Node's part in encryption: that of the Gateway by which this cluster's traffic goes.
type encrypted struct {
	Base  netip.Addr       // this cluster's address inside
	Peers []wireguard.Peer // ordered by cluster ID
}

func (t *tables) encryptedOf(_ derive.Name, r *derive.Reader) (encrypted, []problem.Problem) {
	p, _ := derive.Get(r, t.peering, self)
	if !t.config.EncryptsPeers() || p.Role != peering.Gateway || p.Gateways[0].Name != p.Name {
		return encrypted{}, nil
	}
	out := encrypted{Base: p.GatewayIP}
	for _, peer := range p.Peers {
		out.Peers = append(out.Peers, wireguard.Peer{
			PublicKey:  peer.WireGuard.PublicKey,
			Endpoint:   netip.AddrPortFrom(peer.WireGuard.Endpoint, uint16(t.config.Multicluster.WireGuard.Port)),
			AllowedIPs: []netip.Prefix{netip.PrefixFrom(peer.Gateways[0], peer.Gateways[0].BitLen())},
		})
	}
	return out, nil
}

// userspace says whether the switch sends through links of its own alone.
func (t *tables) userspace() bool { return t.config.OVSDatapathType == "netdev" }

// insideMTU is what remains of the underlay's MTU for tunnels.
func (t *tables) insideMTU(u Underlay) int {
	if t.config.EncryptsPeers() {
		return u.MTU - wireguard.Overhead
	}
	return u.MTU
}

// insideBridge is the bridge by which a userspace switch reaches the WireGuard device.
func (t *tables) insideBridge(r *derive.Reader, u Underlay) (bridge.Bridge, bool) {
	e, _ := derive.Get(r, t.encrypted, self)
	s, _ := derive.Get(r, t.settings, self)
	if !e.Base.IsValid() || !t.userspace() || s.InsideMAC == "" {
		return bridge.Bridge{}, false
	}
	return bridge.Bridge{
		Name: InsideLink, DatapathType: "netdev", FailMode: "standalone", HardwareAddr: s.InsideMAC,
		Ports: []bridge.Port{
			{Name: InsideTAP, ExternalIDs: map[string]string{externalIDType: typeUplink}},
			{Name: InsideLink, MTU: t.insideMTU(u)},
		},
	}, true
}

// insideHost adds what the host needs to reach the peers inside.
func (t *tables) insideHost(d *hostnet.Desired, r *derive.Reader, u Underlay) {
	e, _ := derive.Get(r, t.encrypted, self)
	if !e.Base.IsValid() {
		return
	}
	link := hostnet.Link{Name: InsideLink, MTU: t.insideMTU(u), Up: true, Addresses: []netip.Prefix{netip.PrefixFrom(e.Base, e.Base.BitLen())}}
	hop := netip.Addr{}
	if t.userspace() {
		d.Links = append(d.Links, hostnet.Link{Name: InsideTAP, MTU: t.insideMTU(u), Up: true, NoAddresses: true})
		link.Addresses = append(link.Addresses, insideNet)
		hop = insideHop
	} else {
		link.Guarded = true
	}
	d.Links = append(d.Links, link)
	tunnels := hostnet.Tunnels{Link: InsideLink}
	for _, p := range e.Peers {
		for _, to := range p.AllowedIPs {
			// While the device is not there nothing may leave by another link: this leads to the switch, which drops it.
			wider := netip.PrefixFrom(to.Addr(), to.Bits()-1).Masked()
			d.Routes = append(d.Routes, hostnet.Route{Dst: wider, Link: t.config.HostGateway},
				hostnet.Route{Dst: to, Gateway: hop, Link: InsideLink, Source: e.Base})
			tunnels.Peers = append(tunnels.Peers, to.Addr())
		}
	}
	if t.userspace() {
		d.Tunnels = append(d.Tunnels, tunnels)
	}
}

// encryption is what the agent has of WireGuard.
type encryption struct {
	device *wireguard.Manager
	key    wireguard.PrivateKey
	err    error // why there is no key
	wanted bool  // by the configuration
	port   int
}

// newEncryption reads the key, or makes one, where traffic between clusters is encrypted.
func newEncryption(o Options) *encryption {
	c := o.Config
	if !c.MulticlusterGateway() {
		return nil
	}
	e := &encryption{wanted: c.EncryptsPeers(), port: c.Multicluster.WireGuard.Port}
	options := wireguard.Options{Name: InsideLink, Logger: o.Logger}
	if c.OVSDatapathType == "netdev" {
		options.Name = InsideTAP
	}
	if e.wanted {
		if e.key, e.err = wireguard.LoadKey(filepath.Join(o.StateDir, keyFile)); e.err != nil {
			o.Logger.Error("other clusters are not reached", "error", e.err)
		}
		if c.OVSDatapathType == "netdev" {
			options.HardwareAddr = e.insideMAC()
		}
	}
	e.device = wireguard.New(options)
	return e
}

// insideMAC is known to nobody without the key: frames of others to it cannot look decrypted.
func (e *encryption) insideMAC() net.HardwareAddr {
	sum := e.key.Derive("tombolo inside")
	sum[0] = sum[0]&^1 | 2
	return sum[:6]
}

// set hands on what the tables say.
func (e *encryption) set(row encrypted) {
	switch {
	case e == nil || e.err != nil:
	case !row.Base.IsValid():
		e.device.Set(nil)
	default:
		e.device.Set(&wireguard.Desired{PrivateKey: e.key, ListenPort: e.port, Peers: row.Peers})
	}
}

// problems are those of the device and of the key.
func (e *encryption) problems(node string) []problem.Problem {
	switch {
	case e == nil:
		return nil
	case e.err != nil:
		return []problem.Problem{{Object: problem.Object{Kind: "Node", Name: node}, Field: "multicluster.trafficEncryptionMode", Reason: "NoWireGuardKey",
			Message: "other clusters are not reached: " + e.err.Error() + "; then restart the agent"}}
	}
	return e.device.Problems()
}

// published is the key that peers should know: none where nothing is encrypted. The second result is false where it cannot be known.
func (e *encryption) published() (string, bool) {
	switch {
	case e == nil || e.err != nil:
		return "", false
	case !e.wanted:
		return "", true
	}
	return e.key.Public().String(), true
}

// publisher writes this Node's key into its Gateway object.
type publisher struct {
	key  string
	get  func() (derive.Object, *mcv1alpha1.Gateway, bool) // this Node's Gateway
	api  rest.Interface
	log  *slog.Logger
	wake chan struct{}
}

const publishRetry = 5 * time.Second

// run writes the key whenever the Gateway has another one.
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
	name, g, ok := p.get()
	have := ""
	if ok && g.WireGuard != nil {
		have = g.WireGuard.PublicKey
	}
	if !ok || have == p.key {
		return false
	}
	var info any // null removes it
	if p.key != "" {
		info = mcv1alpha1.WireGuardInfo{PublicKey: p.key}
	}
	merge, err := json.Marshal(map[string]any{"wireGuard": info})
	if err == nil {
		err = p.api.Patch(types.MergePatchType).Namespace(name.Namespace).Resource("gateways").Name(name.Name).Body(merge).Do(ctx).Error()
	}
	switch {
	case apierrors.IsNotFound(err) || ctx.Err() != nil: // an event follows, or nothing
		return false
	case err != nil:
		p.log.Error("write the WireGuard key into the Gateway; trying again", "gateway", fmt.Sprintf("%s/%s", name.Namespace, name.Name), "error", err)
		return true
	}
	p.log.Info("wrote the WireGuard key into the Gateway", "gateway", name.Name, "publicKey", p.key)
	return false
}

// newPublisher prepares encryption and the announcement of its key.
func (a *Agent) newPublisher() error {
	a.encryption = newEncryption(a.options)
	key, known := a.encryption.published()
	if !known {
		return nil
	}
	api, err := newGatewayClient(a.options.REST)
	if err != nil {
		return err
	}
	get := func() (derive.Object, *mcv1alpha1.Gateway, bool) {
		for _, row := range a.tables.gateways.All() {
			if row.Key.Name == a.options.NodeName {
				return row.Key, row.Value, true
			}
		}
		return derive.Object{}, nil, false
	}
	a.publisher = &publisher{key: key, get: get, api: api, log: a.log, wake: make(chan struct{}, 1)}
	return nil
}

func newGatewayClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := mcv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &mcv1alpha1.GroupVersion, "/apis", serializer.NewCodecFactory(scheme).WithoutConversion()
	api, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("set up the client of Gateways: %w", err)
	}
	return api, nil
}
