package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func key(i int) Key { return Key{ContainerID: fmt.Sprintf("c%03d", i), IfName: "eth0"} }

// node is a Node's range with its gateway.
func node(cidr string) []Range {
	p := netip.MustParsePrefix(cidr)
	return []Range{{Prefix: p, Reserved: []netip.Addr{p.Masked().Addr().Next()}}}
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func allocate(t *testing.T, s *Store, k Key, ranges []Range) string {
	t.Helper()
	ips, err := s.Allocate(k, "default/"+k.ContainerID, Interface{}, ranges)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(ips)
}

func TestAllocate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "ipam.json")
	s := open(t, path)
	for i, want := range []string{"[10.10.1.2/24]", "[10.10.1.3/24]", "[10.10.1.4/24]"} {
		if got := allocate(t, s, key(i), node("10.10.1.0/24")); got != want {
			t.Errorf("allocation %d: %s, want %s", i, got, want)
		}
	}
	if got := allocate(t, s, key(1), node("10.10.1.0/24")); got != "[10.10.1.3/24]" {
		t.Errorf("second allocation for the same key: %s", got)
	}
	if freed, err := s.Release(key(1)); !freed || err != nil {
		t.Errorf("Release: %t %v", freed, err)
	}
	if freed, err := s.Release(key(1)); freed || err != nil {
		t.Errorf("second Release: %t %v", freed, err)
	}
	// A restart remembers, and goes on behind the address given out last.
	s = open(t, path)
	if got := s.Keys(); !slices.Equal(got, []Key{key(0), key(2)}) {
		t.Errorf("keys after a restart: %v", got)
	}
	if got := allocate(t, s, key(3), node("10.10.1.0/24")); got != "[10.10.1.5/24]" {
		t.Errorf("after a restart: %s, want the next one, not the freed one", got)
	}
	if got := allocate(t, s, key(0), node("10.20.0.0/24")); got != "[10.20.0.2/24]" {
		t.Errorf("after the Node's range changed: %s", got)
	}
}

func TestDualStack(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "ipam.json"))
	ranges := append(node("10.10.1.0/24"), node("fd00:10::/64")...)
	if got := allocate(t, s, key(0), ranges); got != "[10.10.1.2/24 fd00:10::2/64]" {
		t.Errorf("got %s", got)
	}
}

func TestExhausted(t *testing.T) {
	for _, row := range []struct {
		cidr string
		held int
	}{
		{"10.10.1.0/24", 253}, // less network, gateway, broadcast
		{"10.10.1.0/30", 1},
		{"10.10.1.4/31", 0},
		{"10.10.1.4/32", 0},
		{"fd00::/126", 2}, // less subnet router, gateway
	} {
		t.Run(row.cidr, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, filepath.Join(dir, "ipam.json"))
			seen := map[string]bool{}
			for i := range row.held {
				got := allocate(t, s, key(i), node(row.cidr))
				if seen[got] {
					t.Fatalf("%s given out twice", got)
				}
				seen[got] = true
			}
			_, err := s.Allocate(key(999), "", Interface{}, node(row.cidr))
			var exhausted *ExhaustedError
			if !errors.As(err, &exhausted) || exhausted.Held != row.held ||
				!strings.Contains(err.Error(), fmt.Sprintf("address range %s exhausted: %d held; ", row.cidr, row.held)) {
				t.Fatalf("error: %v", err)
			}
			if row.held == 0 {
				return
			}
			if _, err := s.Release(key(0)); err != nil {
				t.Fatal(err)
			}
			allocate(t, s, key(999), node(row.cidr))
		})
	}
}

// TestCorruptFile opens files that are no record. Each is moved aside, and the Store works.
func TestCorruptFile(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"cut off", `{"version": 1, "rec`, "unexpected end"},
		{"empty", "", "unexpected end"},
		{"of another version", `{"version": 9}`, "its version is 9, this program knows 1"},
		{"one address twice",
			`{"version":1,"records":[
				{"containerID":"a","ifName":"eth0","ips":["10.0.0.2/24"],"owner":"default/old","since":"2026-01-02T10:04:00Z"},
				{"containerID":"b","ifName":"eth0","ips":["10.0.0.2/24"]}]}`,
			"address 10.0.0.2 is held by default/old since 10:04:00"},
		{"nobody's address", `{"version":1,"records":[{"ips":["10.0.0.2/24"]}]}`, "record 0 names no container"},
		{"an empty address", `{"version":1,"records":[{"containerID":"a","ifName":"eth0","ips":[""]}]}`,
			"has an empty address"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ipam.json")
			if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, path)
			corrupt := s.Corrupt()
			if corrupt == nil || !strings.Contains(corrupt.Error(), row.want) ||
				!strings.Contains(corrupt.Error(), path+" is") || !strings.Contains(corrupt.Error(), corrupt.Moved) {
				t.Fatalf("Corrupt: %v", corrupt)
			}
			if kept, err := os.ReadFile(corrupt.Moved); err != nil || string(kept) != row.text {
				t.Errorf("the file that was moved aside: %q %v", kept, err)
			}
			if keys := s.Keys(); len(keys) != 0 {
				t.Errorf("keys of a corrupt file: %v", keys)
			}
			allocate(t, s, key(0), node("10.0.0.0/24"))
			again := open(t, path)
			if got := again.Keys(); !slices.Equal(got, []Key{key(0)}) || again.Corrupt() != nil {
				t.Errorf("after a restart: %v %v", got, again.Corrupt())
			}
		})
	}
}

// TestDescribe adds to a record the facts from which its attachment is rebuilt. A record of an earlier version has no
// such facts and can be read.
func TestDescribe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipam.json")
	earlier := `{"version":1,"records":[{"containerID":"c000","ifName":"eth0","ips":["10.0.0.2/24"],"owner":"default/web",
		"since":"2026-01-02T10:04:00Z"}]}`
	if err := os.WriteFile(path, []byte(earlier), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	if r, ok := s.Get(key(0)); !ok || r.Interface != (Interface{}) {
		t.Fatalf("record of an earlier version: %+v %t", r, ok)
	}
	want := Interface{Netns: "/var/run/netns/a", PortName: "web-123456", MAC: "02:00:00:00:00:01"}
	if err := s.Describe(key(0), want); err != nil {
		t.Fatal(err)
	}
	if err := s.Describe(key(1), want); err == nil {
		t.Error("a Key without addresses was described")
	}
	if r := open(t, path).Records(); len(r) != 1 || r[0].Interface != want || r[0].Owner != "default/web" {
		t.Errorf("records after a restart: %+v", r)
	}
}

// An interrupted write leaves the old record, and no temporary files.
func TestInterruptedWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ipam.json")
	allocate(t, open(t, path), key(0), node("10.10.1.0/24"))
	if err := os.WriteFile(filepath.Join(dir, ".ipam.json-123"), []byte(`{"vers`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := open(t, path).Keys(); len(got) != 1 {
		t.Errorf("keys: %v", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files: %v %v, want the record alone", entries, err)
	}
}

// A write that fails changes nothing, in memory either.
func TestFailedWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	s := open(t, filepath.Join(dir, "ipam.json"))
	allocate(t, s, key(0), node("10.10.1.0/24"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Allocate(key(1), "", Interface{}, node("10.10.1.0/24")); err == nil {
		t.Error("Allocate succeeded")
	}
	if _, err := s.Release(key(0)); err == nil {
		t.Error("Release succeeded")
	}
	if _, err := s.GC(func(Key) bool { return false }); err == nil {
		t.Error("GC succeeded")
	}
	if got := s.Keys(); !slices.Equal(got, []Key{key(0)}) {
		t.Errorf("keys: %v", got)
	}
}

func TestRebuildAndGC(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "ipam.json"))
	allocate(t, s, key(0), node("10.10.1.0/24")) // .2, never attached
	allocate(t, s, key(1), node("10.10.1.0/24")) // .3, attached
	ip := netip.MustParsePrefix
	err := s.Rebuild([]Record{
		{Key: key(1), IPs: []netip.Prefix{ip("10.10.1.3/24")}},
		{Key: key(2), IPs: []netip.Prefix{ip("10.10.1.2/24")}, Owner: "default/web"},
		{Key: key(3), IPs: []netip.Prefix{ip("10.10.1.3/24")}, Owner: "default/double"},
	})
	if err == nil || !strings.Contains(err.Error(), "address record of default/double: address 10.10.1.3 is held by") {
		t.Errorf("error: %v", err)
	}
	if got := s.Keys(); !slices.Equal(got, []Key{key(1), key(2)}) {
		t.Errorf("keys: %v", got)
	}
	freed, err := s.GC(func(k Key) bool { return k == key(2) })
	if err != nil || len(freed) != 1 || freed[0].Key != key(1) {
		t.Errorf("GC: %v %v", freed, err)
	}
}

func TestConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipam.json")
	s := open(t, path)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if _, err := s.Allocate(key(i), "", Interface{}, node("10.10.1.0/24")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := len(open(t, path).Keys()); got != 40 {
		t.Errorf("%d keys on disk, want 40", got)
	}
}

// TestManyRanges gives addresses of ranges with blocks that come and go. The record does not grow with all of them, and
// the range in use is not forgotten.
func TestManyRanges(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "ipam.json"))
	allocate(t, s, key(0), node("10.10.1.0/24"))
	for i := range 1000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 50, byte(i >> 4), byte(i << 4)}), 28)
		allocate(t, s, key(1), []Range{{Prefix: p, Blocks: []netip.Prefix{p}}})
		if _, err := s.Release(key(1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.last); n > maxLast+1 {
		t.Errorf("the last addresses of %d ranges are on record", n)
	}
	if _, ok := s.last[lastKey{prefix: netip.MustParsePrefix("10.10.1.0/24")}]; !ok {
		t.Error("the last address of the range in use was forgotten")
	}
}

// TestWanted requests addresses of a range with blocks.
func TestWanted(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "ipam.json"))
	for text, want := range map[string]string{
		"10.50.0.17":  "",
		"10.50.0.1":   "address 10.50.0.1 is the range's gateway",
		"10.50.0.0":   "address 10.50.0.0 is the range's gateway, broadcast or own address",
		"10.50.0.255": "address 10.50.0.255 is the range's gateway",
		"10.50.0.40":  "address 10.50.0.40 is in no block of this Node",
	} {
		p := netip.MustParsePrefix
		r := Range{Prefix: p("10.50.0.0/24"), Blocks: []netip.Prefix{p("10.50.0.16/28")}, Want: netip.MustParseAddr(text),
			Reserved: []netip.Addr{netip.MustParseAddr("10.50.0.1")}}
		_, err := s.Allocate(key(0), "", Interface{}, []Range{r})
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Two VirtualNetworks with one range give the same address to two Pods, also after a restart.
func TestEqualRanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipam.json")
	s := open(t, path)
	in := func(k Key, network string, want ...netip.Addr) string {
		t.Helper()
		ranges := node("10.50.0.0/24")
		ranges[0].Blocks = []netip.Prefix{netip.MustParsePrefix("10.50.0.0/28")}
		if len(want) > 0 {
			ranges[0].Want = want[0]
		}
		ips, err := s.Allocate(k, "shop/"+k.ContainerID, Interface{VirtualNetwork: network}, ranges)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(ips)
	}
	for _, network := range []string{"shop/blue", "shop/red"} {
		if got := in(key(len(s.Keys())), network); got != "[10.50.0.2/24]" {
			t.Errorf("the first address of %s: %s", network, got)
		}
	}
	s = open(t, path)
	if s.Corrupt() != nil || len(s.Keys()) != 2 {
		t.Fatalf("after a restart: %v, %v", s.Corrupt(), s.Keys())
	}
	if got := in(key(2), "shop/red", netip.MustParseAddr("10.50.0.2")); !strings.Contains(got, "is held by shop/c001") {
		t.Errorf("a request of an address that a Pod of the network has: %s", got)
	}
	if got := in(key(3), "shop/blue"); got != "[10.50.0.3/24]" {
		t.Errorf("the second address of shop/blue: %s", got)
	}
	if _, err := s.Release(key(3)); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got := in(key(4), "shop/blue"); got != "[10.50.0.4/24]" {
		t.Errorf("the next address of shop/blue: %s; peers may still remember the freed one", got)
	}
	if got := in(key(5), "shop/red"); got != "[10.50.0.3/24]" {
		t.Errorf("the next address of shop/red: %s", got)
	}
	// A sandbox with another network gets an address of that network.
	if got := in(key(4), "shop/red"); got != "[10.50.0.4/24]" {
		t.Errorf("in the other network: %s", got)
	}
	if got := in(key(6), "shop/blue", netip.MustParseAddr("10.50.0.4")); got != "[10.50.0.4/24]" {
		t.Errorf("the address that the sandbox had: %s", got)
	}
	checkHolders(t, s)
}

// The records follow attachments whose network they lacked.
func TestRebuildEqualRanges(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "ipam.json"))
	of := func(i int, network string) Record {
		return Record{Key: key(i), IPs: []netip.Prefix{netip.MustParsePrefix("10.50.0.2/24")},
			Interface: Interface{MAC: "02:00:00:00:00:01", VirtualNetwork: network}}
	}
	if err := s.Rebuild([]Record{of(0, ""), of(1, "shop/blue")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Rebuild([]Record{of(0, "shop/red"), of(1, "shop/blue")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(of(2, "")); err != nil {
		t.Errorf("the place of a record that moved into a network: %v", err)
	}
	if err := s.Restore(of(3, "shop/red")); err == nil {
		t.Error("two holders of an address in one network")
	}
	if err := s.Describe(key(2), Interface{VirtualNetwork: "shop/blue"}); err == nil {
		t.Error("a record moved to a place that has a holder")
	}
	checkHolders(t, s)
	if len(s.Keys()) != 3 {
		t.Errorf("records: %v", s.Records())
	}
}

// Records of earlier versions have the last addresses of all networks in one place.
func TestLastOfEarlierVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipam.json")
	text := `{"version": 1, "records": [], "last": {"10.50.0.0/24": "10.50.0.6"}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	ips, err := s.Allocate(key(0), "shop/web", Interface{VirtualNetwork: "shop/blue"}, node("10.50.0.0/24"))
	if err != nil || fmt.Sprint(ips) != "[10.50.0.7/24]" {
		t.Errorf("got %v, %v", ips, err)
	}
}
