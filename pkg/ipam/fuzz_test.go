package ipam

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// FuzzFile opens a record of any content. Whatever is read from it, no address has two holders, and after an allocation
// the file equals the memory.
func FuzzFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"records":[{"containerID":"c1","ifName":"eth0","ips":["10.10.1.2/24"],"owner":"default/web",
		"since":"2026-01-02T03:04:05Z"}],"last":{"10.10.1.0/24":"10.10.1.2"}}`))
	f.Add([]byte(`{"version":1,"records":[{"containerID":"a","ifName":"eth0","ips":["10.10.1.2/24"]},
		{"containerID":"b","ifName":"eth0","ips":["10.10.1.2/24"]}]}`))
	f.Add([]byte(`{"version":1,"records":[{"containerID":"a","ips":["10.10.1.2/24","10.10.1.2/32","fd00::2/64",""]},
		{"containerID":"a","ips":null}],"last":{"10.10.1.7/24":"fe80::1%x","10.10.1.0/24":""}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte("\x00\x00\x00"))
	path := filepath.Join(f.TempDir(), "ipam.json")
	ranges := []Range{{Prefix: netip.MustParsePrefix("10.10.1.0/24"),
		Reserved: []netip.Addr{netip.MustParseAddr("10.10.1.1")}}}
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path)
		if err != nil {
			return
		}
		checkHolders(t, s)
		k := Key{ContainerID: "new", IfName: "eth0"}
		ips, err := s.Allocate(k, "default/new", Interface{}, ranges)
		if err != nil {
			t.Fatalf("allocate: %v", err)
		}
		if len(ips) != 1 || !ranges[0].Prefix.Contains(ips[0].Addr()) || slices.Contains(ranges[0].Reserved, ips[0].Addr()) {
			t.Errorf("allocated %v of %v", ips, ranges[0])
		}
		checkHolders(t, s)
		again, err := Open(path)
		if err != nil {
			t.Fatalf("what was stored cannot be read: %v", err)
		}
		if !slices.Equal(again.Keys(), s.Keys()) {
			t.Errorf("stored %v, in memory %v", again.Keys(), s.Keys())
		}
		for _, k := range s.Keys() {
			have, _ := again.Get(k)
			want, _ := s.Get(k)
			if !slices.Equal(have.IPs, want.IPs) {
				t.Errorf("%v: stored %v, in memory %v", k, have.IPs, want.IPs)
			}
			if _, err := s.Release(k); err != nil {
				t.Fatalf("release %v: %v", k, err)
			}
		}
		if len(s.Keys())+len(s.held) > 0 {
			t.Errorf("all is released, and yet %v, %v", s.Keys(), s.held)
		}
	})
}

func checkHolders(t *testing.T, s *Store) {
	t.Helper()
	holders := map[place]Key{}
	for _, k := range s.Keys() {
		record, _ := s.Get(k)
		for _, p := range record.IPs {
			at := record.at(p.Addr())
			if other, taken := holders[at]; taken && other != k {
				t.Errorf("%s is held by %v and by %v", p.Addr(), other, k)
			}
			if !p.IsValid() {
				t.Errorf("%v holds an invalid address: %v", k, p)
			}
			holders[at] = k
		}
	}
}
