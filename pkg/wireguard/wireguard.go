// Package wireguard is the one writer of a WireGuard device: it makes the link, and gives it its key, port and peers.
// What the device has is compared with what it should have, and the difference is sent: a restart of the agent changes
// nothing, and sessions go on.
//
// Where the kernel has WireGuard the device is the kernel's. Else, and where a userspace switch has to send through it, it
// is a TUN or TAP device, and Serve, in a process of its own, does the rest. Both are configured in the same way.
// Addresses, MTU and routes are pkg/hostnet's.
package wireguard

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// Overhead is what WireGuard adds to a packet over an IPv4 underlay, in bytes: IPv4, UDP, its header and its tag.
const Overhead = 60

// PublicKey is a peer's identity. The zero value is none.
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

// Derive is a value that depends on the key and a purpose, and says nothing about the key.
func (k PrivateKey) Derive(purpose string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, k.key[:])
	mac.Write([]byte(purpose))
	return [sha256.Size]byte(mac.Sum(nil))
}

// LoadKey reads the key in a file, or makes one where there is no file. Nobody but the file's owner can read it.
func LoadKey(path string) (PrivateKey, error) {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return makeKey(path)
	case err != nil:
		return PrivateKey{}, fmt.Errorf("read the WireGuard key: %w", err)
	}
	key, err := wgtypes.ParseKey(strings.TrimSpace(string(text)))
	if err != nil || key == (wgtypes.Key{}) { // the library's error would have what is in the file
		return PrivateKey{}, fmt.Errorf("%s is not a WireGuard key: remove the file, and a new key is made and announced", path)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return PrivateKey{}, fmt.Errorf("protect the WireGuard key: %w", err)
	}
	return PrivateKey{key}, nil
}

// makeKey writes a new key so that a crash leaves all of it or nothing.
func makeKey(path string) (PrivateKey, error) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return PrivateKey{}, fmt.Errorf("make a WireGuard key: %w", err)
	}
	write := func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // 0600
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		_, err = f.WriteString(key.String() + "\n")
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
		return os.Rename(f.Name(), path)
	}
	if err := write(); err != nil {
		return PrivateKey{}, fmt.Errorf("keep the new WireGuard key: %w", err)
	}
	return PrivateKey{key}, nil
}

// Peer is another end.
type Peer struct {
	PublicKey PublicKey
	// Endpoint is where the peer listens. A peer whose packets come from elsewhere is answered there.
	Endpoint netip.AddrPort
	// AllowedIPs are the addresses inside that are the peer's: packets to them go to it, and from it none but theirs are taken.
	AllowedIPs []netip.Prefix
}

// Desired is what a device should have.
type Desired struct {
	PrivateKey PrivateKey
	ListenPort int
	Peers      []Peer
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

// Kinds of device.
const (
	Kernel    = "kernel"
	Userspace = "userspace"
)

// State is what a device is and has.
type State struct {
	Ready bool   // there is a device, and it has what it should have
	Kind  string // Kernel or Userspace; "" while there is none
	Peers []PeerState
}
