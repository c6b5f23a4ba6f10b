package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
)

// Recover repairs the records after a start. An attachment is recorded three times: in the external_ids of the OVSDB's
// ports (attached), in the address record, and in the veth pairs with the Pods' namespaces behind them. Recover
// rebuilds lost records from the others, in this order. It returns the attachments that the OVSDB lacks or has in part.
//
// It frees an address that has neither port nor veth pair. Its Pod's namespace is gone, or its ADD never came that far.
// It never removes a veth pair. DEL and GC do that, and the kernel does if the namespace is gone.
//
// The caller calls Recover once, before Run, while there is no request. Run detaches attachments whose Pod's namespace
// is gone, since that needs a working Node. Recover continues after errors. Run retries failed attachments until it
// succeeds, and passes them to Options.Unrecovered.
func (s *Server) Recover(ctx context.Context, attached []Attachment) (restored []Attachment, err error) {
	own, err := s.waitForLinks(ctx)
	if err != nil {
		return nil, err
	}
	r := recovery{own: map[ipam.Key]ownLink{}, namespaces: namespaces{paths: netnsPaths}}
	for _, l := range own {
		r.own[l.Key] = l
	}

	var errs []error
	found := map[ipam.Key]Attachment{}
	keep := map[ipam.Key]bool{}
	var stale []Attachment
	for _, a := range attached {
		k := ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}
		keep[k] = true
		if netnsGone(a) {
			stale = append(stale, a)
		} else if a.MAC == "" || len(a.IPs) == 0 {
			record, _ := s.ipam.Get(k)
			whole, err := r.attachment(k, record)
			errs = append(errs, err)
			if err != nil {
				s.unrecovered = append(s.unrecovered, Unrecovered{Attachment: a, Err: err.Error()})
			} else {
				s.log.Warn("completed a damaged attachment of the OVSDB", "pod", whole.pod(), "container", k.ContainerID, "port",
					whole.PortName, "addresses", whole.IPs)
				whole.PodUID = cmp.Or(whole.PodUID, a.PodUID)
				a = whole
				restored = append(restored, a)
			}
		} else if record, _ := s.ipam.Get(k); a.PodUID == "" && record.PodUID != "" {
			// An earlier version wrote the port again.
			a.PodUID = types.UID(record.PodUID)
			restored = append(restored, a)
		}
		found[k] = a
	}
	s.mu.Lock()
	s.stale = stale
	s.mu.Unlock()

	records := map[ipam.Key]ipam.Record{}
	for _, record := range s.ipam.Records() {
		records[record.Key] = record
	}
	missing := map[ipam.Key]bool{}
	for k := range records {
		missing[k] = true
	}
	for k := range r.own {
		missing[k] = true
	}
	for _, k := range slices.SortedFunc(maps.Keys(missing), func(a, b ipam.Key) int {
		return strings.Compare(a.ContainerID+" "+a.IfName, b.ContainerID+" "+b.IfName)
	}) {
		if keep[k] || ctx.Err() != nil {
			continue
		}
		a, err := r.attachment(k, records[k])
		if errors.Is(err, errNoVeth) {
			continue // the address is free
		}
		keep[k] = true
		if err != nil {
			s.unrecovered = append(s.unrecovered, Unrecovered{Attachment: a, Err: err.Error()})
			errs = append(errs,
				fmt.Errorf("rebuild the attachment of interface %s of container %s (%s): %w; its address and veth pair stay "+
					"until DEL or GC", k.IfName, k.ContainerID, records[k].Owner, err))
			continue
		}
		s.log.Warn("rebuilt an attachment that the OVSDB lacks", "pod", a.pod(), "container", k.ContainerID, "port",
			a.PortName, "addresses", a.IPs)
		found[k] = a
		restored = append(restored, a)
	}
	s.report(s.unrecovered)
	if ctx.Err() != nil {
		return restored, errors.Join(append(errs, ctx.Err())...)
	}

	var all []ipam.Record
	for _, a := range found {
		if len(a.IPs) > 0 {
			all = append(all, a.record())
		}
	}
	errs = append(errs, s.ipam.Rebuild(all))
	freed, err := s.ipam.GC(func(k ipam.Key) bool { return keep[k] })
	errs = append(errs, err)
	for _, f := range freed {
		s.log.Info("freed the address of a Pod that has no interface", "pod", f.Owner, "container", f.ContainerID,
			"addresses", f.IPs)
	}
	return restored, errors.Join(errs...)
}

// These are pauses between attempts to list, and to rebuild failed attachments.
const (
	recoverAgain   = 100 * time.Millisecond
	recoverAtLeast = 30 * time.Second
)

// waitForLinks lists our veth pairs, and retries until that succeeds. Without the list no address may be freed.
func (s *Server) waitForLinks(ctx context.Context) (map[string]ownLink, error) {
	for wait := recoverAgain; ; wait = min(2*wait, recoverAtLeast) {
		own, err := ownLinks()
		if err == nil {
			return own, nil
		}
		s.log.Warn("the Pods' interfaces cannot be listed; no request is served until they are", "error", err,
			"retryIn", wait)
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// Unrecovered is an attachment that could not be rebuilt yet. Its MAC, addresses and Pod may be unknown.
type Unrecovered struct {
	Attachment
	Err string
}

// report hands on which attachments could not be rebuilt yet.
func (s *Server) report(left []Unrecovered) {
	if s.onUnrecovered != nil {
		s.onUnrecovered(left)
	}
}

// recoverRest retries the attachments that Recover could not rebuild, until all are done or ctx ends. For example, a
// namespace may not be mounted yet. If an attachment can never be rebuilt, it is done when its veth pair is gone. DEL
// or GC remove the pair, or the kernel does when it frees the namespace. The last connections of an ended Pod can hold
// the namespace for minutes.
func (s *Server) recoverRest(ctx context.Context) {
	left := s.unrecovered
	for wait := recoverAgain; len(left) > 0; wait = min(2*wait, recoverAtLeast) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		var failed []Unrecovered
		changed := false
		for _, u := range left {
			k := ipam.Key{ContainerID: u.ContainerID, IfName: u.IfName}
			err := s.recoverOne(ctx, k)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				changed = true
				continue
			}
			if u.Err != err.Error() {
				u.Err, changed = err.Error(), true
				s.log.Warn("an attachment could not be rebuilt yet", "pod", u.pod(), "container", k.ContainerID, "interface",
					k.IfName, "error", err)
			}
			failed = append(failed, u)
		}
		if left = failed; changed {
			s.report(left)
		}
	}
}

// recoverOne rebuilds one attachment that Recover could not rebuild. If the attachment is gone, it is done.
func (s *Server) recoverOne(ctx context.Context, k ipam.Key) error {
	unlock, err := s.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	if a, ok := s.find(k); ok && a.MAC != "" && len(a.IPs) > 0 {
		return nil
	}
	own, err := ownLinks()
	if err != nil {
		return err
	}
	r := recovery{own: map[ipam.Key]ownLink{}, namespaces: namespaces{paths: netnsPaths}}
	for _, l := range own {
		r.own[l.Key] = l
	}
	record, _ := s.ipam.Get(k)
	a, err := r.attachment(k, record)
	if errors.Is(err, errNoVeth) {
		_, err := s.ipam.Release(k)
		return err
	}
	if err != nil {
		return err
	}
	if err := s.ipam.Restore(a.record()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	if err := s.node.Attach(ctx, a); err != nil {
		return err
	}
	s.log.Warn("rebuilt an attachment that the OVSDB lacks", "pod", a.pod(), "container", k.ContainerID, "port",
		a.PortName, "addresses", a.IPs)
	return nil
}

// record is the address record of an attachment.
func (a Attachment) record() ipam.Record {
	return ipam.Record{
		Key: ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}, IPs: a.IPs, Owner: a.pod(),
		Interface: ipam.Interface{
			Netns: a.Netns, PortName: a.PortName, MAC: a.MAC, PodUID: string(a.PodUID), Network: a.Network,
			Bandwidth: a.Bandwidth.String(), HostPorts: a.HostPorts.String(), VirtualNetwork: a.VirtualNetwork,
			Inside: a.Inside,
		},
	}
}

// pod returns "namespace/name", "" if the Pod is unknown.
func (a Attachment) pod() string {
	if a.PodName == "" {
		return ""
	}
	return a.PodNamespace + "/" + a.PodName
}

// recovery holds the sources, in addition to the address record, from which attachments are rebuilt.
type recovery struct {
	own        map[ipam.Key]ownLink
	namespaces namespaces
}

// errNoVeth reports an interface without a veth pair. Its namespace is gone, or the pair was never made.
var errNoVeth = errors.New("there is no veth pair")

// attachment rebuilds one attachment from its address record, which may be empty, and its veth pair. Without a pair it
// returns errNoVeth.
func (r *recovery) attachment(k ipam.Key, record ipam.Record) (Attachment, error) {
	a := Attachment{
		ContainerID: k.ContainerID, IfName: k.IfName, Netns: record.Netns, PortName: recordedPort(record),
		PodUID: types.UID(record.PodUID), Network: record.Network, MAC: record.MAC, IPs: record.IPs,
		Bandwidth: parseBandwidth(record.Bandwidth), HostPorts: parseHostPorts(record.HostPorts),
		VirtualNetwork: record.VirtualNetwork, Inside: record.Inside,
	}
	l, ok := r.own[k]
	if !ok && a.PortName == "" {
		return a, errNoVeth
	}
	if !ok { // an ADD may have been interrupted before it set the alias
		link, err := netlink.LinkByName(a.PortName)
		if isNotFound(err) {
			return a, errNoVeth
		}
		if err != nil {
			return a, fmt.Errorf("look for %s: %w", a.PortName, err)
		}
		if _, _, taken := parseAlias(link.Attrs().Alias); taken || link.Type() != "veth" {
			return a, errNoVeth
		}
		l = ownLink{Key: k, link: link}
	}
	a.PortName = l.link.Attrs().Name
	pod := record.Owner
	if pod == "" {
		pod = l.pod
	}
	pod, virtual, _ := strings.Cut(pod, "@")
	a.PodNamespace, a.PodName, _ = strings.Cut(pod, "/")
	switch inside, ofNode := strings.CutSuffix(virtual, ofNodeSuffix); {
	case virtual == "" || a.VirtualNetwork+a.Inside != "":
	case ofNode:
		a.Inside = a.PodNamespace + "/" + inside
	default:
		a.VirtualNetwork = a.PodNamespace + "/" + virtual
	}

	// Without an alias only the path through it shows that it is this Pod's.
	inside, err := r.namespaces.behind(l.link, record.Netns)
	if err == nil {
		a.Netns, a.MAC = inside.path, inside.mac
		if len(a.IPs) == 0 {
			a.IPs = inside.ips
		}
	}
	switch {
	case (a.MAC == "" || !ok) && err != nil:
		return a, err
	case len(a.IPs) == 0:
		return a, fmt.Errorf("neither the address record nor %s in %s has an address", k.IfName, a.Netns)
	}
	return a, nil
}

// namespaces finds the network namespaces behind veth pairs.
type namespaces struct {
	paths func() ([]string, error) // where they may be mounted

	listed bool
	byID   map[int]string // the kernel's number for a namespace, as seen from this one
}

// podEnd is the Pod's end of a veth pair.
type podEnd struct {
	path string // of the namespace
	mac  string
	ips  []netip.Prefix
}

// behind returns the other end of a veth pair. likely is the path that its namespace had last; it may be empty or
// wrong.
func (n *namespaces) behind(host netlink.Link, likely string) (podEnd, error) {
	id := host.Attrs().NetNsID
	if id < 0 {
		return podEnd{}, fmt.Errorf("the other end of %s is in no other namespace", host.Attrs().Name)
	}
	if likely != "" && namespaceID(likely) == id {
		return lookInside(likely, host)
	}
	if !n.listed {
		paths, err := n.paths()
		if err != nil {
			return podEnd{}, err
		}
		n.listed, n.byID = true, map[int]string{}
		for _, path := range paths {
			if id := namespaceID(path); id >= 0 && n.byID[id] == "" {
				n.byID[id] = path
			}
		}
	}
	path, ok := n.byID[id]
	if !ok {
		return podEnd{},
			fmt.Errorf("the namespace behind %s is neither mounted nor a process's here: the agent has to see the Node's "+
				"/var/run/netns and /proc (mountPropagation HostToContainer, hostPID)", host.Attrs().Name)
	}
	return lookInside(path, host)
}

// namespaceID returns the number by which this network namespace refers to another one. The kernel assigns it. It is -1
// if there is no number, which means that no link connects the two.
func namespaceID(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return -1
	}
	defer f.Close()
	id, err := netlink.GetNetNsIdByFd(int(f.Fd()))
	if err != nil {
		return -1
	}
	return id
}

// lookInside reads the Pod's end of a veth pair in the namespace at path.
func lookInside(path string, host netlink.Link) (podEnd, error) {
	end := podEnd{path: path}
	err := ns.WithNetNSPath(path, func(ns.NetNS) error {
		link, err := netlink.LinkByIndex(host.Attrs().ParentIndex)
		if err != nil {
			return err
		}
		if link.Type() != "veth" || link.Attrs().ParentIndex != host.Attrs().Index {
			return fmt.Errorf("%s is not the other end of it", link.Attrs().Name)
		}
		end.mac = link.Attrs().HardwareAddr.String()
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			addresses, err := rtnetlink.List(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
			if err != nil {
				return err
			}
			for _, address := range addresses {
				if p, ok := prefixOf(*address.IPNet); ok && !p.Addr().IsLinkLocalUnicast() {
					end.ips = append(end.ips, p)
				}
			}
		}
		return nil
	})
	if err != nil {
		return podEnd{}, fmt.Errorf("look behind %s into %s: %w", host.Attrs().Name, path, err)
	}
	return end, nil
}

// netnsPaths returns paths of all visible network namespaces. Mounted ones come first, then namespaces of processes.
func netnsPaths() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounted network namespaces: %w", err)
	}
	paths := mountedNetns(string(mounts))
	processes, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, path := range processes {
		name, err := os.Readlink(path) // "net:[4026531840]"
		if err == nil && !seen[name] {
			seen[name] = true
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// mountedNetns reads /proc/PID/mountinfo (proc_pid_mountinfo(5)). The fourth field is the root of the mount, the fifth
// its path. The file system's type follows a lone dash.
func mountedNetns(mountinfo string) []string {
	var paths []string
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if len(fields) < 5 || !strings.HasPrefix(after, "nsfs ") || !strings.HasPrefix(fields[3], "net:") {
			continue
		}
		paths = append(paths, strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4]))
	}
	return paths
}
