package wireguard

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// LoadKey reads the key in a file, or makes one if there is no file. Only the file's owner can read it.
func LoadKey(path string) (PrivateKey, error) {
	key, err := readKey(path)
	if errors.Is(err, os.ErrNotExist) {
		return makeKey(path, time.Time{})
	}
	return key, err
}

func readKey(path string) (PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return PrivateKey{}, fmt.Errorf("read the WireGuard key: %w", err)
	}
	key, err := wgtypes.ParseKey(strings.TrimSpace(string(text)))
	if err != nil || key == (wgtypes.Key{}) { // the library's error would have what is in the file
		return PrivateKey{},
			fmt.Errorf("%s is not a WireGuard key: remove the file, and a new key is made and announced", path)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return PrivateKey{}, fmt.Errorf("protect the WireGuard key: %w", err)
	}
	return PrivateKey{key}, nil
}

func makeKey(path string, made time.Time) (PrivateKey, error) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return PrivateKey{}, fmt.Errorf("make a WireGuard key: %w", err)
	}
	if err := keep(path, key.String(), made); err != nil {
		return PrivateKey{}, fmt.Errorf("keep the new WireGuard key: %w", err)
	}
	return PrivateKey{key}, nil
}

// keep writes a secret. After a crash the file has either the new or the old secret. made is the time that the file
// gets; zero means now.
func keep(path, secret string, made time.Time) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(secret + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if !made.IsZero() {
		if err := os.Chtimes(f.Name(), made, made); err != nil {
			return err
		}
	}
	return os.Rename(f.Name(), path)
}

// Keys has the key of an end and, during a change, the next key, each in a file. The files record how far a change has
// come: a next key exists from Begin to End, and it is the current one from Switch on.
type Keys struct {
	Current, Next PrivateKey
	// Made is when Current was made: the time of its file.
	Made time.Time
	// Inside is a secret that stays when keys change.
	Inside [sha256.Size]byte

	path string
}

// LoadKeys reads the keys, and makes a missing current key. If the next key cannot be read, it was never announced, or
// the files were changed by hand. Then there is no next key.
func LoadKeys(path string) (*Keys, error) {
	k := &Keys{path: path}
	var err error
	if k.Current, err = LoadKey(path); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the WireGuard key: %w", err)
	}
	k.Made = info.ModTime()
	k.Next, _ = readKey(k.next())
	k.Inside = k.Current.Derive("tombolo inside")
	if text, err := os.ReadFile(k.inside()); err == nil {
		if b, err := hex.DecodeString(strings.TrimSpace(string(text))); err == nil && len(b) == len(k.Inside) {
			k.Inside = [sha256.Size]byte(b)
		}
	}
	return k, nil
}

func (k *Keys) next() string   { return k.path + ".next" }
func (k *Keys) inside() string { return k.path + ".inside" }

// Changing reports whether there is a next key.
func (k *Keys) Changing() bool { return k.Next != PrivateKey{} }

// Switched reports whether the next key is the current one already.
func (k *Keys) Switched() bool { return k.Next == k.Current }

// Begin makes the next key. The caller passes the time, since the time stamp of a file comes from a coarser clock,
// which may be behind.
func (k *Keys) Begin(now time.Time) (err error) {
	k.Next, err = makeKey(k.next(), now)
	return err
}

// Switch makes the next key the current one.
func (k *Keys) Switch() error {
	info, err := os.Stat(k.next())
	if err == nil {
		err = keep(k.inside(), hex.EncodeToString(k.Inside[:]), time.Time{})
	}
	if err == nil {
		err = keep(k.path, k.Next.key.String(), info.ModTime())
	}
	if err != nil {
		return fmt.Errorf("keep the next WireGuard key: %w", err)
	}
	k.Current, k.Made = k.Next, info.ModTime()
	return nil
}

// End forgets that the key was changed.
func (k *Keys) End() error {
	if err := os.Remove(k.next()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("end the change of the WireGuard key: %w", err)
	}
	k.Next = PrivateKey{}
	return nil
}
