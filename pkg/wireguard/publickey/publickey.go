// Package publickey has the public keys that identify ends of WireGuard tunnels. It is pure.
package publickey

import (
	"encoding/base64"
	"errors"
	"fmt"
)

// Key is a peer's identity. The zero value is no key.
type Key [32]byte

// String is the key in base64, as `wg show` prints it.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Parse reads a key in base64.
func Parse(text string) (Key, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(Key{}) {
		return Key{}, fmt.Errorf("%.60q is not a WireGuard key: want %d bytes in base64", text, len(Key{}))
	}
	k := Key(b)
	if k == (Key{}) {
		return Key{}, errors.New("the WireGuard key is all zeros, which means none")
	}
	return k, nil
}
