// Package ipam allocates addresses of the Node's ranges and keeps a record of their holders that survives a crash at
// any moment.
package ipam

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Key names a holder of addresses: one interface of one container.
type Key struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// Range is where addresses come from.
type Range struct {
	Prefix netip.Prefix
	// Reserved addresses are never allocated, in addition to the network's own address and, in IPv4, its broadcast
	// address. The gateway's address has to be among them.
	Reserved []netip.Addr
	// Blocks are the parts of Prefix that addresses come from; nil for all of it.
	Blocks []netip.Prefix
	// Want is an address of the blocks that is requested. The zero value requests none.
	Want netip.Addr
}

// Record is what one Key holds.
type Record struct {
	Key
	IPs   []netip.Prefix `json:"ips"`             // in the order of the ranges asked for
	Owner string         `json:"owner,omitempty"` // "namespace/pod"
	Since time.Time      `json:"since"`
	Interface
}

// Interface holds the facts that are needed to attach a Key's interface to the switch again after the OVSDB was lost.
// Records of earlier versions lack it, and so do records of an ADD that was interrupted early.
type Interface struct {
	Netns    string `json:"netns,omitempty"`    // path of the Pod's network namespace
	PortName string `json:"portName,omitempty"` // the host's end of the veth pair
	MAC      string `json:"mac,omitempty"`      // of the Pod's end
	PodUID   string `json:"podUID,omitempty"`   // where the runtime gave it
	Network  string `json:"network,omitempty"`  // name of its network configuration, where it is not the usual one
	// Bandwidth has the limits of the interface, as package cni writes them.
	Bandwidth string `json:"bandwidth,omitempty"`
	// HostPorts are the ports of the Node that lead to the interface, as package cni writes them.
	HostPorts string `json:"hostPorts,omitempty"`
	// VirtualNetwork is the "namespace/name" of the VirtualNetwork that the interface is in.
	VirtualNetwork string `json:"virtualNetwork,omitempty"`
	// Inside is the VirtualNetwork of a first interface whose addresses are of the Node. It has no VirtualNetwork.
	Inside string `json:"inside,omitempty"`
}

// ExhaustedError reports that a range has no free address.
type ExhaustedError struct {
	Range netip.Prefix
	Held  int
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf(
		"address range %s exhausted: %d held; remove Pods from this Node or give it a larger podCIDR "+
			"(kube-controller-manager --node-cidr-mask-size)", e.Range, e.Held)
}

// HeldError reports that an address belongs to another owner.
type HeldError struct {
	IP     netip.Addr
	Holder Record
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("address %s is held by %s since %s", e.IP, e.Holder.name(), e.Holder.Since.Format(time.TimeOnly))
}

func (r Record) name() string {
	if r.Owner != "" {
		return r.Owner
	}
	return "container " + r.ContainerID + " " + r.IfName
}

// Store is the record of one Node, in one file. Any goroutine may call its methods. When a method returns, its change
// is in the file.
type Store struct {
	path    string
	corrupt *CorruptError

	mu      sync.Mutex
	records map[Key]Record
	held    map[place]Key
	last    map[lastKey]netip.Addr // given out most recently: search goes on behind it
	changed func()                 // called after each change, with mu held; may be nil
}

// place is an address in a VirtualNetwork, or in the network of first interfaces. Two VirtualNetworks may have equal
// ranges. Then the same address may have two holders.
type place struct {
	network string // "namespace/name", or ""
	ip      netip.Addr
}

// lastKey is a range of a network.
type lastKey struct {
	network string
	prefix  netip.Prefix
}

func (r Record) at(ip netip.Addr) place { return place{r.VirtualNetwork, ip} }

// Watch sets a function that is called after each change of the records. It must not call the Store.
func (s *Store) Watch(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = changed
}

// file is the content of the file. Last is kept over restarts. Otherwise the address of a deleted Pod could be given to
// the next Pod while peers still remember the earlier one.
type file struct {
	Version int                         `json:"version"`
	Records []Record                    `json:"records"`
	Last    map[netip.Prefix]netip.Addr `json:"last,omitempty"`
	// LastOf has these addresses by VirtualNetwork. Earlier versions wrote them into Last.
	LastOf map[string]map[netip.Prefix]netip.Addr `json:"lastOf,omitempty"`
}

const version = 1

// CorruptError reports that the file was not a record of addresses, and its new place.
type CorruptError struct {
	Path  string // where the record belongs
	Moved string // where the corrupt file is now
	Err   error  // what is wrong with it
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf(
		"address record %s is corrupt: %v; the file was moved to %s and the record is rebuilt from what is attached", e.Path,
		e.Err, e.Moved)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Open reads the record at path, or starts an empty one if there is no file. It makes the directory. It moves a damaged
// file aside, and Corrupt returns the reason. Then Rebuild restores the holders.
func Open(path string) (*Store, error) {
	s := &Store{path: path}
	s.clear()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open address record: %w", err)
	}
	// The files of an interrupted write.
	litter, err := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-*"))
	for _, name := range litter {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return nil, fmt.Errorf("open address record: %w", err)
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open address record: %w", err)
	}
	if err := s.decode(b); err != nil {
		s.clear()
		s.corrupt = &CorruptError{Path: path,
			Moved: path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000000000Z"), Err: err}
		if err := os.Rename(path, s.corrupt.Moved); err != nil {
			return nil, fmt.Errorf("address record %s is corrupt (%w), and moving it aside failed: %w", path, s.corrupt.Err, err)
		}
	}
	return s, nil
}

// Corrupt returns what was wrong with the file that Open found, nil when nothing was.
func (s *Store) Corrupt() *CorruptError { return s.corrupt }

func (s *Store) clear() {
	s.records, s.held, s.last = map[Key]Record{}, map[place]Key{}, map[lastKey]netip.Addr{}
}

func (s *Store) decode(b []byte) error {
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	if f.Version != version {
		return fmt.Errorf("its version is %d, this program knows %d", f.Version, version)
	}
	for i, r := range f.Records {
		if r.ContainerID == "" || r.IfName == "" {
			return fmt.Errorf("record %d names no container or no interface", i)
		}
		if slices.ContainsFunc(r.IPs, func(p netip.Prefix) bool { return !p.IsValid() }) {
			return fmt.Errorf("the record of %s has an empty address", r.name())
		}
		if err := s.put(r); err != nil {
			return err
		}
	}
	for p, a := range f.Last {
		s.last[lastKey{prefix: p}] = a
	}
	for network, last := range f.LastOf {
		for p, a := range last {
			s.last[lastKey{network, p}] = a
		}
	}
	return nil
}

// lastOf returns the address of a range that was allocated last. Earlier versions recorded it without the network.
func (s *Store) lastOf(network string, p netip.Prefix) (netip.Addr, bool) {
	if ip, ok := s.last[lastKey{network, p}]; ok {
		return ip, true
	}
	ip, ok := s.last[lastKey{prefix: p}]
	return ip, ok
}

// put adds a record in memory.
func (s *Store) put(r Record) error {
	for _, p := range r.IPs {
		if k, ok := s.held[r.at(p.Addr())]; ok && k != r.Key {
			return &HeldError{IP: p.Addr(), Holder: s.records[k]}
		}
	}
	s.drop(r.Key)
	s.records[r.Key] = r
	for _, p := range r.IPs {
		s.held[r.at(p.Addr())] = r.Key
	}
	return nil
}

// drop takes a record out of memory and returns it.
func (s *Store) drop(k Key) (Record, bool) {
	r, ok := s.records[k]
	for _, p := range r.IPs {
		delete(s.held, r.at(p.Addr()))
	}
	delete(s.records, k)
	return r, ok
}

// Allocate gives a Key one address of each range. If a Key already holds addresses of these ranges, it keeps them. If
// its addresses are of other ranges (the Node's podCIDR has changed), it gets new ones. owner is a text for people. i
// is for rebuilding lost records.
func (s *Store) Allocate(k Key, owner string, i Interface, ranges []Range) ([]netip.Prefix, error) {
	if len(ranges) == 0 {
		return nil, errors.New(
			"allocate address: no range given: the Node has no podCIDR; see --allocate-node-cidrs of kube-controller-manager")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, had := s.records[k]
	same := old.VirtualNetwork == i.VirtualNetwork || old.VirtualNetwork == ""
	if had && same && fits(old.IPs, ranges) {
		return slices.Clone(old.IPs), s.describe(old, i)
	}
	lastBefore := maps.Clone(s.last)
	s.drop(k)
	r := Record{Key: k, Owner: owner, Since: time.Now().UTC().Truncate(time.Second), Interface: i}
	err := func() error {
		for _, rg := range ranges {
			ip, err := s.next(i.VirtualNetwork, rg)
			if err != nil {
				return err
			}
			r.IPs = append(r.IPs, netip.PrefixFrom(ip, rg.Prefix.Bits()))
			s.last[lastKey{i.VirtualNetwork, rg.Prefix.Masked()}] = ip
		}
		if err := s.put(r); err != nil {
			return err
		}
		s.forget()
		return s.save()
	}()
	if err != nil {
		s.drop(k)
		s.last = lastBefore
		if had {
			return nil, errors.Join(err, s.put(old))
		}
		return nil, err
	}
	return slices.Clone(r.IPs), nil
}

// maxLast is how many ranges have the address given out last on record, at least.
const maxLast = 128

// forget drops the last addresses of ranges that no record uses, if there are many. Ranges with blocks come and go.
func (s *Store) forget() {
	if len(s.last) <= maxLast {
		return
	}
	used := map[lastKey]bool{}
	for _, r := range s.records {
		for _, p := range r.IPs {
			used[lastKey{r.VirtualNetwork, p.Masked()}] = true
		}
	}
	maps.DeleteFunc(s.last, func(k lastKey, _ netip.Addr) bool { return !used[k] })
}

// fits reports whether addresses are one of each range, in order.
func fits(ips []netip.Prefix, ranges []Range) bool {
	return slices.EqualFunc(ips, ranges, func(p netip.Prefix, r Range) bool {
		return r.Prefix.Masked() == p.Masked() && !slices.Contains(r.Reserved, p.Addr()) && r.gives(p.Addr())
	})
}

// gives reports whether a range with blocks gives an address.
func (r Range) gives(ip netip.Addr) bool {
	return (!r.Want.IsValid() || r.Want == ip) && (r.Blocks == nil ||
		slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool { return b.Contains(ip) }))
}

// next finds the free address of a network that follows the one given out last.
func (s *Store) next(network string, r Range) (netip.Addr, error) {
	p := r.Prefix.Masked()
	if !p.IsValid() {
		return netip.Addr{}, errors.New("allocate address: invalid range")
	}
	first, last := bounds(p)
	if !first.IsValid() {
		return netip.Addr{}, &ExhaustedError{Range: p}
	}
	if r.Want.IsValid() || r.Blocks != nil {
		return s.nextOfBlocks(network, r, first, last)
	}
	start := first
	if l, ok := s.lastOf(network, p); ok && l.Compare(first) >= 0 && l.Less(last) {
		start = l.Next()
	}
	// At most all held and all reserved addresses are passed over.
	for i, ip := 0, start; i <= len(s.held)+len(r.Reserved); i++ {
		if _, taken := s.held[place{network, ip}]; !taken && !slices.Contains(r.Reserved, ip) {
			return ip, nil
		}
		if ip == last {
			ip = first
		} else {
			ip = ip.Next()
		}
		if ip == start {
			break
		}
	}
	held := 0
	for at := range s.held {
		if at.network == network && p.Contains(at.ip) {
			held++
		}
	}
	return netip.Addr{}, &ExhaustedError{Range: p, Held: held}
}

// nextOfBlocks returns the requested address of a range's blocks, or else the next free one after the address that was
// allocated last.
func (s *Store) nextOfBlocks(network string, r Range, first, last netip.Addr) (netip.Addr, error) {
	free := func(ip netip.Addr) bool {
		_, taken := s.held[place{network, ip}]
		return !taken && !slices.Contains(r.Reserved, ip) && r.gives(ip) && !ip.Less(first) && !last.Less(ip)
	}
	if r.Want.IsValid() {
		if k, taken := s.held[place{network, r.Want}]; taken {
			return netip.Addr{}, &HeldError{IP: r.Want, Holder: s.records[k]}
		}
		switch {
		case free(r.Want):
			return r.Want, nil
		case r.gives(r.Want) || slices.Contains(r.Reserved, r.Want) || r.Want.Less(first) || last.Less(r.Want):
			return netip.Addr{}, fmt.Errorf("address %s is the range's gateway, broadcast or own address: request another one",
				r.Want)
		}
		return netip.Addr{}, &NotHereError{IP: r.Want}
	}
	before, _ := s.lastOf(network, r.Prefix.Masked())
	var earlier netip.Addr // the first free one before the one given out last
	for _, b := range r.Blocks {
		for ip, n := b.Masked().Addr(), 0; b.Contains(ip) && n <= len(s.held)+len(r.Reserved)+2; ip, n = ip.Next(), n+1 {
			switch {
			case !free(ip):
			case !before.IsValid() || before.Less(ip):
				return ip, nil
			case !earlier.IsValid():
				earlier = ip
			}
		}
	}
	if !earlier.IsValid() {
		return netip.Addr{}, &BlocksExhaustedError{Range: r.Prefix}
	}
	return earlier, nil
}

// BlocksExhaustedError reports that the blocks of a range have no free address.
type BlocksExhaustedError struct{ Range netip.Prefix }

func (e *BlocksExhaustedError) Error() string {
	return fmt.Sprintf("the blocks of %s that this Node has are exhausted: wait for another one, or delete Pods", e.Range)
}

// NotHereError reports that an address that is requested is in no block of this Node.
type NotHereError struct{ IP netip.Addr }

func (e *NotHereError) Error() string {
	return fmt.Sprintf("address %s is in no block of this Node: wait for it, or request another one if another Node "+
		"has it", e.IP)
}

// bounds returns the first and the last address of a range that a Pod may have: not the network's own (the subnet
// router's in IPv6) and not IPv4's broadcast. If no address remains, both are invalid.
func bounds(p netip.Prefix) (first, last netip.Addr) {
	n := new(big.Int).SetBytes(p.Addr().AsSlice())
	size := new(big.Int).Lsh(big.NewInt(1), uint(p.Addr().BitLen()-p.Bits()))
	n.Add(n, size).Sub(n, big.NewInt(1))
	last, _ = netip.AddrFromSlice(n.FillBytes(make([]byte, p.Addr().BitLen()/8)))
	first = p.Addr().Next()
	if p.Addr().Is4() {
		last = last.Prev()
	}
	if !first.IsValid() || !last.IsValid() || !p.Contains(first) || last.Less(first) {
		return netip.Addr{}, netip.Addr{}
	}
	return first, last
}

// Release frees what a Key holds, and reports whether it held something.
func (s *Store) Release(k Key) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.drop(k)
	if !ok {
		return false, nil
	}
	if err := s.save(); err != nil {
		return false, errors.Join(err, s.put(r))
	}
	return true, nil
}

// Get returns what a Key holds.
func (s *Store) Get(k Key) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[k]
	r.IPs = slices.Clone(r.IPs)
	return r, ok
}

// Keys lists the holders of addresses, in order.
func (s *Store) Keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.records), compare)
}

func compare(a, b Key) int {
	return cmp.Or(strings.Compare(a.ContainerID, b.ContainerID), strings.Compare(a.IfName, b.IfName))
}

// Rebuild makes the record agree with the given attachments. It replaces records that are missing or differ. It frees
// nothing. If two Keys claim an address, the first in the order of Keys gets it, and the error names the others.
func (s *Store) Rebuild(attached []Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	attached = slices.SortedFunc(slices.Values(attached), func(a, b Record) int { return compare(a.Key, b.Key) })
	present := map[Key]bool{}
	for _, r := range attached {
		present[r.Key] = true
	}
	var errs []error
	changed := false
	for _, r := range attached {
		have, ok := s.records[r.Key]
		if ok && slices.Equal(have.IPs, r.IPs) {
			if r.Interface == (Interface{}) || have.Interface == r.Interface {
				continue
			}
			if r.VirtualNetwork == have.VirtualNetwork {
				have.Interface = r.Interface
				s.records[r.Key] = have
				changed = true
				continue
			}
			r.Since = have.Since
		}
		// Who holds one of these addresses without being attached lost it.
		for _, p := range r.IPs {
			if k, ok := s.held[r.at(p.Addr())]; ok && !present[k] {
				s.drop(k)
				changed = true
			}
		}
		if r.Since.IsZero() {
			r.Since = time.Now().UTC().Truncate(time.Second)
		}
		if err := s.put(r); err != nil {
			errs = append(errs, fmt.Errorf("rebuild address record of %s: %w", r.name(), err))
			continue
		}
		changed = true
	}
	if changed {
		errs = append(errs, s.save())
	}
	return errors.Join(errs...)
}

// Restore records the addresses of an attachment that was found late, after others may have got addresses. If another
// Key holds one of them by now, it returns an error.
func (s *Store) Restore(r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, ok := s.records[r.Key]
	if ok && slices.Equal(have.IPs, r.IPs) && have.Interface == r.Interface {
		return nil
	}
	if r.Since = have.Since; r.Since.IsZero() {
		r.Since = time.Now().UTC().Truncate(time.Second)
	}
	if ok {
		s.drop(r.Key)
	}
	err := s.put(r)
	if err == nil {
		err = s.save()
	}
	if err != nil {
		s.drop(r.Key)
		if ok {
			err = errors.Join(err, s.put(have))
		}
		return fmt.Errorf("restore the address record of %s: %w", r.name(), err)
	}
	return nil
}

// Describe adds the facts to a Key's record that are needed to rebuild its attachment. If the Key holds no address, it
// returns an error.
func (s *Store) Describe(k Key, i Interface) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.records[k]
	if !ok {
		return fmt.Errorf("describe the interface %s of container %s: it holds no address", k.IfName, k.ContainerID)
	}
	return s.describe(old, i)
}

func (s *Store) describe(old Record, i Interface) error {
	if old.Interface == i {
		return nil
	}
	r := old
	r.Interface = i
	if err := s.put(r); err != nil {
		return err
	}
	if err := s.save(); err != nil {
		return errors.Join(err, s.put(old))
	}
	return nil
}

// Records lists all records, in the order of Keys.
func (s *Store) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Record
	for _, k := range slices.SortedFunc(maps.Keys(s.records), compare) {
		r := s.records[k]
		r.IPs = slices.Clone(r.IPs)
		out = append(out, r)
	}
	return out
}

// GC frees what Keys hold that are not kept, and returns their records.
func (s *Store) GC(keep func(Key) bool) ([]Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var freed []Record
	for _, k := range slices.SortedFunc(maps.Keys(s.records), compare) {
		if !keep(k) {
			r, _ := s.drop(k)
			freed = append(freed, r)
		}
	}
	if len(freed) == 0 {
		return nil, nil
	}
	if err := s.save(); err != nil {
		for _, r := range freed {
			err = errors.Join(err, s.put(r))
		}
		return nil, err
	}
	return freed, nil
}

// save writes the file under another name and renames it into place. So a reader gets the old record or the new one,
// even if this process ends in between. It does not wait for the disk: after a power failure no Pod is left, and a
// damaged record is rebuilt (Open).
func (s *Store) save() (err error) {
	f := file{Version: version, Last: map[netip.Prefix]netip.Addr{}, LastOf: map[string]map[netip.Prefix]netip.Addr{}}
	for k, ip := range s.last {
		to := f.Last
		if k.network != "" {
			if to = f.LastOf[k.network]; to == nil {
				to = map[netip.Prefix]netip.Addr{}
				f.LastOf[k.network] = to
			}
		}
		to[k.prefix] = ip
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.records), compare) {
		f.Records = append(f.Records, s.records[k])
	}
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("write address record: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write address record %s: %w; is the disk full or read-only?", s.path, err)
		}
	}()
	tmp, err := os.CreateTemp(filepath.Dir(s.path), "."+filepath.Base(s.path)+"-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(b, '\n'))
	if err = errors.Join(err, tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	if err := replace(tmp.Name(), s.path); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	if s.changed != nil {
		s.changed()
	}
	return nil
}

// replace renames a file over another one, which is removed. If the file system can exchange two files, replace
// exchanges them first. If a file is renamed over another, ext4 begins to write it to the disk (auto_da_alloc in
// ext4(5)), and the next writer waits for that.
func replace(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE); err != nil {
		return os.Rename(from, to) // the first record, or it cannot exchange
	}
	_ = os.Remove(from) // what stays is removed by Open
	return nil
}
