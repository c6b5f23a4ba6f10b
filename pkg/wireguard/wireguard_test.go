package wireguard

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

func testKey(t testing.TB) PrivateKey {
	t.Helper()
	k, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return PrivateKey{k}
}

func TestLoadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	made, err := LoadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v, want 0600", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := LoadKey(path)
	if err != nil || again != made {
		t.Errorf("the second time: error %v, same key %v", err, again == made)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v after reading, want 0600", info.Mode())
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if len(files) != 1 {
		t.Errorf("files %v, want the key alone", files)
	}
	secret, _ := os.ReadFile(path)
	bad := strings.TrimSpace(string(secret))[1:]
	if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), "remove the file") ||
		strings.Contains(err.Error(), bad) {
		t.Errorf("a file without a key: error %v", err)
	}
	if _, err := LoadKey(filepath.Join(path, "no", "directory")); err == nil {
		t.Error("no error where no key can be kept")
	}
}

// TestKeys: each step of a change is there after a crash, and nothing is left of it at the end.
func TestKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	load := func() *Keys {
		t.Helper()
		k, err := LoadKeys(path)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	step := func(f func() error) {
		t.Helper()
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	first := load()
	if first.Changing() || first.Inside != first.Current.Derive("tombolo inside") {
		t.Errorf("a new key: changing %v", first.Changing())
	}
	old := first.Made.Add(-time.Hour)
	step(func() error { return os.Chtimes(path, old, old) })
	k := load()
	now := time.Date(2026, 1, 31, 12, 0, 0, 1000, time.UTC)
	step(func() error { return k.Begin(now) })
	k = load()
	if !k.Changing() || k.Switched() || k.Current != first.Current || k.Next == first.Current || !k.Made.Equal(old) {
		t.Errorf("begun: changing %v, switched %v, made %s", k.Changing(), k.Switched(), k.Made)
	}
	next := k.Next
	step(k.Switch)
	for _, k := range []*Keys{k, load()} {
		if !k.Changing() || !k.Switched() || k.Current != next || k.Inside != first.Inside || !k.Made.Equal(now) {
			t.Errorf("switched: changing %v, switched %v, made %s", k.Changing(), k.Switched(), k.Made)
		}
	}
	step(k.End)
	for _, k := range []*Keys{k, load()} {
		if k.Changing() || k.Current != next || k.Inside != first.Inside {
			t.Errorf("over: changing %v", k.Changing())
		}
	}
	files, _ := filepath.Glob(path + "*")
	if len(files) != 2 {
		t.Errorf("files %v, want the key and what stays", files)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, error %v", f, info.Mode(), err)
		}
	}
	step(func() error { return os.WriteFile(path+".next", []byte("k"), 0o600) })
	if load().Changing() {
		t.Error("a file that is no key is a next key")
	}
	step(func() error { return os.WriteFile(path, []byte("k"), 0o600) })
	if _, err := LoadKeys(path); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("a file without a key: error %v", err)
	}
}

func TestPrivateKeyIsNotPrinted(t *testing.T) {
	k := testKey(t)
	d := Desired{PrivateKey: k}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("key", "k", k, "d", d)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("key", "k", k, "d", d)
	text := log.String() + fmt.Sprint(k, d) + fmt.Sprintf("%s %v %+v %#v %#v", k, k, d, k, d)
	if strings.Contains(text, k.key.String()) ||
		strings.Contains(text, fmt.Sprint(k.key[0])+" "+fmt.Sprint(k.key[1])+" ") {
		t.Errorf("the key is in %s", text)
	}
}

func TestDiff(t *testing.T) {
	own, a, b := testKey(t), testKey(t).Public(), testKey(t).Public()
	at := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	inside := func(s ...string) (out []netip.Prefix) {
		for _, p := range s {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	peer := func(k PublicKey, endpoint string, allowed ...string) wgtypes.Peer {
		p := wgtypes.Peer{PublicKey: wgtypes.Key(k)}
		if endpoint != "" {
			p.Endpoint = net.UDPAddrFromAddrPort(at(endpoint))
		}
		for _, s := range inside(allowed...) {
			p.AllowedIPs = append(p.AllowedIPs, net.IPNet{IP: s.Addr().AsSlice(), Mask: net.CIDRMask(s.Bits(), 32)})
		}
		return p
	}
	want := Desired{PrivateKey: own, ListenPort: 51821, Peers: []Peer{
		{a, at("192.0.2.1:51821"), inside("10.97.0.0/32")},
		{b, at("192.0.2.2:51821"), inside("10.98.0.0/32", "10.99.0.0/32")},
	}}
	as := func(peers ...wgtypes.Peer) wgtypes.Device {
		return wgtypes.Device{PrivateKey: own.key, ListenPort: 51821, Peers: peers}
	}
	peerA, peerB := peer(a, "192.0.2.1:51821", "10.97.0.0/32"), peer(b, "192.0.2.2:51821", "10.99.0.0/32", "10.98.0.0/32")
	kept := peerA
	kept.PersistentKeepaliveInterval = 5 * time.Second
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	received := func(p wgtypes.Peer, ago time.Duration) wgtypes.Peer {
		p.LastHandshakeTime = now.Add(-ago)
		return p
	}
	moved := peer(a, "203.0.113.7:4000", "10.97.0.0/32")
	resent := []string{"set peer " + a.String() + " at 192.0.2.1:51821"}
	sent := map[PublicKey]announced{a: {at: at("192.0.2.1:51821")}, b: {at: at("192.0.2.2:51821")}}
	unsent := map[PublicKey]announced{a: {at("192.0.2.1:51821"), true}, b: {at: at("192.0.2.2:51821")}}
	for _, test := range []struct {
		name string
		have wgtypes.Device
		sent map[PublicKey]announced
		kept time.Duration
		want []string
	}{
		{"new", wgtypes.Device{}, nil, 0, []string{"set the key " + own.Public().String(), "listen on port 51821, was 0",
			"set peer " + a.String() + " at 192.0.2.1:51821 with [10.97.0.0/32]", "set peer " + b.String() +
				" at 192.0.2.2:51821 with [10.98.0.0/32 10.99.0.0/32]"}},
		{"as wanted", as(peerA, peerB), nil, 0, nil},
		{"peer that has moved", as(moved, peerB), sent, 0, nil},
		{"peer that announces another address", as(received(moved, 0), peerB),
			map[PublicKey]announced{a: {at: at("192.0.2.9:51821")}}, 0, resent},
		{"peer at another address from before", as(moved, peerB), nil, 0, resent},
		{"from before, with a session", as(received(moved, 179*time.Second), peerB), nil, 0, nil},
		{"from before, with a session that has ended", as(received(moved, 180*time.Second), peerB), nil, 0, resent},
		{"from before, by a clock that was wrong", as(received(moved, -time.Minute), peerB), nil, 0, resent},
		{"from before, and the session goes on", as(received(moved, 179*time.Second), peerB), unsent, 0, nil},
		{"from before, and the session has ended", as(received(moved, 180*time.Second), peerB), unsent, 0, resent},
		{"from before, and it announces another", as(received(moved, 0), peerB),
			map[PublicKey]announced{a: {at("192.0.2.9:51821"), true}}, 0, resent},
		{"peer without address", as(peer(a, "", "10.97.0.0/32"), peerB), sent, 0, resent},
		{"other addresses inside", as(peerA, peer(b, "192.0.2.2:51821", "10.97.0.0/32")), sent, 0,
			[]string{"set peer " + b.String() + " with [10.98.0.0/32 10.99.0.0/32]"}},
		{"peer too many", as(peerA, peerB, peer(own.Public(), "192.0.2.9:1", "10.0.0.0/8")), sent, 0,
			[]string{"remove peer " + own.Public().String()}},
		{"kept alive", as(peerA, peerB), sent, 5 * time.Second,
			[]string{"set peer " + a.String() + " kept alive every 5s", "set peer " + b.String() + " kept alive every 5s"}},
		{"kept alive before", as(kept, peerB), sent, 0, []string{"set peer " + a.String() + " kept alive every 0s"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := want
			want.Keepalive = test.kept
			config, have, _ := diff(test.have, want, test.sent, now)
			if !reflect.DeepEqual(have, test.want) {
				t.Errorf("changes %q, want %q", have, test.want)
			}
			if (len(have) == 0) != reflect.DeepEqual(config, wgtypes.Config{}) {
				t.Errorf("changes %q, and sent is %+v", have, config.Peers)
			}
		})
	}
	for _, before := range []map[PublicKey]announced{nil, unsent} {
		if _, _, after := diff(as(received(moved, 0), peerB), want, before, now); !reflect.DeepEqual(after, unsent) {
			t.Errorf("after the endpoint of a session was kept: %+v", after)
		}
	}
	if _, _, after := diff(as(received(moved, time.Hour), peerB), want, unsent, now); !reflect.DeepEqual(after, sent) {
		t.Errorf("after the session has ended: %+v", after)
	}
}

// TestFrames: what a switch sends becomes packets, or is answered.
func TestFrames(t *testing.T) {
	near, _ := net.ParseMAC("0a:00:00:00:00:01")
	far := farAddr(near)
	packet := append([]byte{0x45, 0, 0, 24, 0, 0, 0, 0, 64, 17, 0, 0, 10, 97, 0, 0, 10, 98, 0, 0}, "abcd"...)
	frame := append(header(nil, far, near, typeIPv4), packet...)
	if p, ok := ipOf(append(frame, make([]byte, 22)...)); !ok || string(p) != string(packet) {
		t.Errorf("a padded packet is %x, %v", p, ok)
	}
	request := header(nil, net.HardwareAddr{255, 255, 255, 255, 255, 255}, near, typeARP)
	request = append(request, 0, 1, 8, 0, 6, 4, 0, 1)
	request = append(append(request, near...), 10, 97, 0, 0)
	request = append(request, 0, 0, 0, 0, 0, 0, 10, 98, 0, 0)
	want := header(nil, near, far, typeARP)
	want = append(want, 0, 1, 8, 0, 6, 4, 0, 2)
	want = append(append(want, far...), 10, 98, 0, 0)
	want = append(append(want, near...), 10, 97, 0, 0)
	if have := arpAnswer(request, far); string(have) != string(want) {
		t.Errorf("answer %x, want %x", have, want)
	}
	probe := append([]byte(nil), request...)
	copy(probe[ethernet+14:], []byte{10, 98, 0, 0})
	if have := arpAnswer(probe, far); have != nil {
		t.Errorf("a host that asks for its own address is answered: %x", have)
	}
}

func FuzzFrames(f *testing.F) {
	far := net.HardwareAddr{10, 0, 0, 0, 0, 0}
	f.Add([]byte{})
	f.Add(append(make([]byte, 12), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1))
	f.Add(append(make([]byte, 12), 8, 0, 0x45, 0, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if p, ok := ipOf(frame); ok && len(p) < 20 {
			t.Errorf("%x holds the packet %x", frame, p)
		}
		if a := arpAnswer(frame, far); a != nil && len(a) != ethernet+arpLength {
			t.Errorf("%x is answered by %x", frame, a)
		}
	})
}
