package agent

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// Traffic between clusters may be encrypted, and so may traffic between the Nodes of a cluster. Then tunnels end at
// addresses inside WireGuard. docs/design/0010-encryption-between-clusters.md has the design.

// links is the number of networks inside WireGuard.
const links = 4

// insideLink is a network inside WireGuard, which has a device of its own.
type insideLink struct {
	// at is the index of the link in insideLinks, and in every list that has one value for each link.
	at int
	// name is the link that has this end's inside address. With the kernel's datapath it is the WireGuard device. With the
	// userspace datapath it is a bridge, and the device, named tap, is a port of the bridge.
	name, tap string
	// The userspace datapath routes to an address only if one of its own addresses is in the network of that address or of
	// a next hop. So the routes have a next hop, and WireGuard answers for it.
	net netip.Prefix
	hop netip.Addr
	// keyFile has the private key, in the state directory.
	keyFile string
	// key is the setting that asks for encryption.
	key string
}

var (
	betweenClusters = insideLink{
		at: 0, name: "antrea-mc-wg0", tap: "antrea-mc-tap0",
		net: netip.MustParsePrefix("169.254.64.1/30"), hop: netip.MustParseAddr("169.254.64.2"),
		keyFile: "wireguard.key", key: "multicluster.trafficEncryptionMode",
	}
	// secondBetweenClusters is the second link between clusters. It is used while a cluster changes its key: a peer then
	// has one session on each link.
	secondBetweenClusters = insideLink{
		at: 1, name: "antrea-mc-wg1", tap: "antrea-mc-tap1",
		net: netip.MustParsePrefix("169.254.64.9/30"), hop: netip.MustParseAddr("169.254.64.10"),
		key: betweenClusters.key,
	}
	betweenNodes = insideLink{
		at: 2, name: "antrea-wg0", tap: "antrea-tap0",
		net: netip.MustParsePrefix("169.254.64.5/30"), hop: netip.MustParseAddr("169.254.64.6"),
		keyFile: "wireguard-nodes.key", key: "trafficEncryptionMode",
	}
	// secondBetweenNodes is the same between Nodes while one of them changes its key.
	secondBetweenNodes = insideLink{
		at: 3, name: "antrea-wg1", tap: "antrea-tap1",
		net: netip.MustParsePrefix("169.254.64.13/30"), hop: netip.MustParseAddr("169.254.64.14"),
		key: betweenNodes.key,
	}
)

// insideLinks lists all links by index. Links 0 and 1 are a pair, and so are 2 and 3. The second link of a pair leads
// to the same partners while a key changes.
var insideLinks = [links]insideLink{betweenClusters, secondBetweenClusters, betweenNodes, secondBetweenNodes}

// pair returns the place of the link's pair in each list that has one value for each pair.
func (l insideLink) pair() int { return l.at / 2 }

// ofPair returns the two links of a pair.
func ofPair(pair int) (first, second insideLink) { return insideLinks[2*pair], insideLinks[2*pair+1] }

// guards returns the names of both links through which packets to the link's address may come, now or while a key
// changes.
func (l insideLink) guards() []string {
	first, second := ofPair(l.pair())
	return []string{first.name, second.name}
}

// linkMACs are the secret MACs with which a userspace switch accepts packets that the links' devices have decrypted.
type linkMACs [links]string

// WireGuardDevices returns the devices that need an implementation in userspace. With the userspace datapath they need
// it even if the kernel has WireGuard.
func WireGuardDevices(userspace bool) []string {
	var out []string
	for _, l := range insideLinks {
		if userspace {
			out = append(out, l.tap)
		} else {
			out = append(out, l.name)
		}
	}
	return out
}

// encrypted is this Node's part in encryption: the tunnels of each link.
type encrypted [links]tunnelsInside

// of returns the tunnels of a link.
func (e encrypted) of(l insideLink) tunnelsInside { return e[l.at] }

const (
	// keepOpen is the interval of keepalive packets to other clusters. A firewall or NAT on the path may let only one side
	// open a connection. That side keeps it open with these packets, and the packets of the other side pass as answers.
	// Most firewalls forget UDP after 30 s or more (RFC 4787, section 4.3, has two minutes).
	keepOpen = 25 * time.Second
	// keepSession is the keepalive interval for partners while this end changes its key, so that each peer has a session.
	// WireGuard repeats a failed handshake after a random time of 5 to 5.33 s (protocol, section 6.1), so that both ends
	// do not begin together each time. A shorter keepalive interval would start handshakes at a fixed time.
	keepSession = 7 * time.Second
)

// tunnelsInside are the inside tunnels of one device. Without a valid Base there are no tunnels.
type tunnelsInside struct {
	Base  netip.Addr // this end's address inside
	Peers []wireguard.Peer
	// Unused are the addresses of peers to which packets go by another device.
	Unused []netip.Prefix
	// Bases are this end's addresses for peers that use another address than Base, by the peers' addresses.
	Bases map[netip.Prefix]netip.Addr
	// Keepalive is the interval of packets to each peer without traffic; 0 for no such packets.
	Keepalive time.Duration
}

// baseTo is this end's address to a peer.
func (t tunnelsInside) baseTo(peer netip.Prefix) netip.Addr {
	if base, ok := t.Bases[peer]; ok {
		return base
	}
	return t.Base
}

// addresses returns all addresses of this end.
func (t tunnelsInside) addresses() []netip.Addr {
	out := []netip.Addr{t.Base}
	for _, base := range t.Bases {
		if !slices.Contains(out, base) { // there is one at most: the cluster's
			out = append(out, base)
		}
	}
	return out
}

// partners are the other ends of this Node's encrypted ways, in one list for each pair of links.
type partners [links / 2]partnerGroup

// of returns the ends that a link and its pair lead to.
func (p partners) of(l insideLink) partnerGroup { return p[l.pair()] }

// partnerGroup has ends that all reach one another by one kind of link.
type partnerGroup struct {
	Base      netip.Addr // this end's inside address; if it is not valid, this end has no tunnels
	Keepalive time.Duration
	Partners  []partner
}

// partner is another end.
type partner struct {
	Name string     // with its kind
	Base netip.Addr // this end's address to it, where that is not the group's
	Way  peering.Way
}

// inside returns where tunnels to the partner end.
func (p partner) inside() netip.Prefix { return netip.PrefixFrom(p.Way.Inside, p.Way.Inside.BitLen()) }

// tunnels returns the tunnels to all partners that listen on a port. While keys change, it also returns the second
// tunnels.
func (g partnerGroup) tunnels(port int, s sessions) (first, second tunnelsInside) {
	if !g.Base.IsValid() {
		return first, second
	}
	first = tunnelsInside{Base: g.Base, Keepalive: g.Keepalive}
	if s.Changing {
		first.Keepalive = keepSession
	}
	for _, p := range g.Partners {
		if p.Base.IsValid() && p.Base != g.Base {
			if first.Bases == nil {
				first.Bases = map[netip.Prefix]netip.Addr{}
			}
			first.Bases[p.inside()] = p.Base
		}
		first.Peers = append(first.Peers, p.at(p.Way.Key, uint16(port)))
		key, ok := s.secondKey(p)
		if !ok {
			continue
		}
		second.Base, second.Keepalive, second.Bases = g.Base, first.Keepalive, first.Bases
		second.Peers = append(second.Peers, p.at(key, p.Way.NextPort))
		if s.detours(p) {
			first.Unused = append(first.Unused, p.inside())
		} else {
			second.Unused = append(second.Unused, p.inside())
		}
	}
	return first, second
}

// at returns the partner as a peer of a device: with a key, and with the port where the partner receives packets.
func (p partner) at(key publickey.Key, port uint16) wireguard.Peer {
	return wireguard.Peer{
		PublicKey: key, Endpoint: netip.AddrPortFrom(p.Way.Outside, port), AllowedIPs: []netip.Prefix{p.inside()},
	}
}

// userspace reports whether the switch sends only through links of its own.
func userspace(c config.Config) bool { return c.OVSDatapathType == "netdev" }

// notEncrypted returns why tunnels that end at an address cannot be encrypted, with the remedy. It returns "" if they
// can, or if there is no address.
func notEncrypted(end netip.Addr) string {
	if peering.InsideRange.Contains(end) {
		return fmt.Sprintf("tunnels at %s cannot be encrypted, since the addresses inside are of %s too: give the Node "+
			"another address", end, peering.InsideRange)
	}
	return ""
}

// insideMTU returns the MTU of a link's device: the underlay's MTU less the overhead of WireGuard.
func (l insideLink) insideMTU(u Underlay) int {
	over6 := u.NodesOver6
	if l.pair() == betweenClusters.pair() {
		over6 = u.PeersOver6
	}
	return u.MTU - extraOverhead(true, over6)
}

// extraOverhead returns by how many bytes encrypted tunnel packets are longer than packets of plain tunnels over IPv4.
// Tunnels inside WireGuard are over IPv4, and WireGuard is over the underlay's version of IP.
func extraOverhead(encrypted, over6 bool) (n int) {
	if encrypted {
		n += wireguard.Overhead
	}
	if over6 {
		n += header6
	}
	return n
}

// encryption is the agent's state of one WireGuard device.
type encryption struct {
	link       insideLink
	device     *wireguard.Manager
	deviceName string
	mac        net.HardwareAddr // with which a userspace switch accepts the device's packets; it is secret
	err        error            // why there is no key
	wanted     bool             // by the configuration
	port       int
	what       string // is not reached without a key
	// second is the second link of the pair, with the sessions of the next key; nil in the second link itself. keys are
	// this end's keys for both links.
	second *encryption
	keys   *wireguard.Keys

	mu     sync.Mutex
	secret wireguard.PrivateKey
	row    *encrypted // row    *encrypted // nil until it is set
}

// newEncryptions reads the keys, or makes them, where traffic is encrypted.
func newEncryptions(o Options) []*encryption {
	c := o.Config
	var out []*encryption
	pair := func(first, second *encryption) {
		first.second = second
		out = append(out, first, second)
	}
	nodes, clusters := c.EncryptsNodes(), c.EncryptsPeers()
	pair(
		&encryption{link: betweenNodes, wanted: nodes, port: c.WireGuard.Port, what: "other Nodes"},
		&encryption{link: secondBetweenNodes, wanted: nodes, port: c.NextNodeWireGuardPort(),
			what: "Nodes that change their keys"},
	)
	if c.MulticlusterGateway() {
		port, next := c.Multicluster.WireGuard.Port, c.NextWireGuardPort()
		pair(
			&encryption{link: betweenClusters, wanted: clusters, port: port, what: "other clusters"},
			&encryption{link: secondBetweenClusters, wanted: clusters, port: next, what: "clusters that change their keys"},
		)
	}
	for _, e := range out {
		if e.wanted && e.second != nil {
			e.load(o.StateDir)
			if e.err != nil {
				o.Logger.Error(e.what+" are not reached", "error", e.err)
			}
		}
		options := wireguard.Options{Name: e.link.name, Logger: o.Logger}
		if c.OVSDatapathType == "netdev" {
			options.Name = e.link.tap
			if e.wanted {
				options.HardwareAddr, options.Keep = e.mac, true
			}
		}
		e.deviceName, e.device = options.Name, wireguard.New(options)
	}
	return out
}

// load reads the keys, also for the second link.
func (e *encryption) load(dir string) {
	if e.keys, e.err = wireguard.LoadKeys(filepath.Join(dir, e.link.keyFile)); e.err != nil {
		e.mac, e.second.wanted = make(net.HardwareAddr, 6), false // the first link reports the reason
		return
	}
	e.secret, e.second.secret = e.keys.Current, e.keys.Current
	if e.keys.Changing() {
		e.second.secret = e.keys.Next
	}
	for i, l := range []*encryption{e, e.second} {
		l.mac = slices.Clone(e.keys.Inside[6*i : 6*i+6])
		l.mac[0] = l.mac[0]&^1 | 2
	}
}

// set takes over a row of the tables.
func (e *encryption) set(row encrypted) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.row = &row
	e.apply()
}

// rekey gives the device another key.
func (e *encryption) rekey(secret wireguard.PrivateKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.secret = secret
	if e.row != nil {
		e.apply()
	}
}

// apply is called with mu held.
func (e *encryption) apply() {
	switch tunnels := e.row.of(e.link); {
	case e.err != nil:
	case !tunnels.Base.IsValid():
		e.device.Set(nil)
	default:
		e.device.Set(&wireguard.Desired{PrivateKey: e.secret, ListenPort: e.port, Peers: tunnels.Peers,
			Keepalive: tunnels.Keepalive})
	}
}

// problems returns the problems of the device and of the key.
func (e *encryption) problems(node string) []problem.Problem {
	if e.err != nil {
		return []problem.Problem{{
			Object: problem.Object{Kind: "Node", Name: node}, Field: e.link.key, Reason: reasonNoWireGuardKey,
			Message: e.what + " are not reached: " + e.err.Error() + "; then restart the agent",
		}}
	}
	return e.device.Problems()
}

// published returns the key that others should have. It is empty if nothing is encrypted. The second result is false if
// the key cannot be determined.
func (e *encryption) published() (mcv1alpha1.WireGuardInfo, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		return mcv1alpha1.WireGuardInfo{}, false
	case !e.wanted:
		return mcv1alpha1.WireGuardInfo{}, true
	}
	return mcv1alpha1.WireGuardInfo{PublicKey: e.secret.Public().String()}, true
}
