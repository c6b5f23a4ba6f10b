// Package wireguard is the only writer of a WireGuard device: it makes the link, and sets its key, port and peers. It
// compares the device with the desired state and sends the difference. So a restart of the agent changes nothing, and
// sessions go on.
//
// If the kernel has WireGuard, the device is a device of the kernel. Without it, or if a userspace switch has to send
// through the device, it is a TUN or TAP device. Then Serve handles its packets in a separate process. Both are
// configured in the same way. pkg/hostnet sets addresses, MTU and routes.
package wireguard

import (
	"crypto/hmac"
	"crypto/sha256"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// Overhead is the number of bytes that WireGuard adds to a packet over an IPv4 underlay: IPv4, UDP, its header and its
// tag.
const Overhead = 60

// PublicKey is a peer's identity. The zero value is no key.
type PublicKey = publickey.Key

// PrivateKey is a secret: it is printed by nothing.
type PrivateKey struct{ key wgtypes.Key }

// String hides the key.
func (PrivateKey) String() string { return "(hidden)" }

// GoString hides the key.
func (PrivateKey) GoString() string { return "(hidden)" }

// LogValue hides the key.
func (PrivateKey) LogValue() slog.Value { return slog.StringValue("(hidden)") }

// Public is the key that peers know.
func (k PrivateKey) Public() PublicKey { return PublicKey(k.key.PublicKey()) }

// Derive returns a value that depends on the key and a purpose. The value reveals nothing about the key.
func (k PrivateKey) Derive(purpose string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, k.key[:])
	mac.Write([]byte(purpose))
	return [sha256.Size]byte(mac.Sum(nil))
}

// Peer is another end.
type Peer struct {
	PublicKey PublicKey
	// Endpoint is the address at which the peer listens. If its packets come from another address, WireGuard sends answers
	// to that one.
	Endpoint netip.AddrPort
	// AllowedIPs are the peer's inside addresses. Packets to them go to the peer, and only packets with these sources are
	// accepted from it.
	AllowedIPs []netip.Prefix
}

// Desired is what a device should have.
type Desired struct {
	PrivateKey PrivateKey
	ListenPort int
	Peers      []Peer
	// Keepalive is the interval of keepalive packets to each peer, in whole seconds. They keep a session alive. With 0,
	// packets are sent only when there is traffic.
	Keepalive time.Duration
}

func (d *Desired) clone() *Desired {
	if d == nil {
		return nil
	}
	out := *d
	out.Peers = slices.Clone(d.Peers)
	for i := range out.Peers {
		out.Peers[i].AllowedIPs = slices.Clone(out.Peers[i].AllowedIPs)
	}
	return &out
}

// PeerState is what a device knows about a peer.
type PeerState struct {
	PublicKey     PublicKey
	Endpoint      netip.AddrPort
	LastHandshake time.Time // zero before the first
	Received      int64     // bytes
	Sent          int64
}

// Session is what a device has a session by: its own key, and its peers'.
type Session struct {
	PublicKey PublicKey
	Peers     []PeerState
}

// Look reads a device. The result is empty if there is no device, or no program serves it.
func Look(name string) Session {
	client, err := wgctrl.New()
	if err != nil {
		return Session{}
	}
	defer func() { _ = client.Close() }()
	d, err := client.Device(name)
	if err != nil {
		return Session{}
	}
	return Session{PublicKey: PublicKey(d.PublicKey), Peers: peersOf(d)}
}

func peersOf(d *wgtypes.Device) (out []PeerState) {
	for _, p := range d.Peers {
		out = append(out, PeerState{
			PublicKey: PublicKey(p.PublicKey), Endpoint: endpointOf(p), LastHandshake: p.LastHandshakeTime,
			Received: p.ReceiveBytes, Sent: p.TransmitBytes,
		})
	}
	return out
}

// Kinds of device.
const (
	Kernel    = "kernel"
	Userspace = "userspace"
)

// State is what a device is and has.
type State struct {
	Ready bool   // there is a device, and it has what it should have
	Kind  string // Kernel or Userspace; "" while there is no device
	Peers []PeerState
}
