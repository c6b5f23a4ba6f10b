package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

const (
	// leaseOfIP is the label of the Lease by which one Node holds an address of an ExternalIPPool. The agents write it.
	// The ValidatingAdmissionPolicy tombolo-external-ips lets them write no other Leases.
	leaseOfIP = "tombolo.io/external-ip"
	// leasePrefix is the beginning of the name of such a Lease.
	leasePrefix = "tombolo-ip-"

	// holdEvery is how often a Lease is read. Its holder renews it each second time.
	holdEvery = 2 * time.Second
	// holdFor is how long an unchanged Lease keeps its address on its Node. After that the first candidate takes the
	// address. Each further candidate waits holdEvery longer than the one before it.
	holdFor = 10 * time.Second
	// leaseTimeout bounds a request. So one request without an answer does not stop the renewal of all Leases.
	leaseTimeout = 3 * time.Second
	// holdCandidates is how many of the Nodes that may hold an address look at its Lease.
	holdCandidates = 3
	// announcements of an address after it came, one with each look.
	announcements = 3
)

// leaseAPI is the API server as an ipHolder sees it. Errors are errors of apierrors.
type leaseAPI interface {
	list(ctx context.Context) ([]coordinationv1.Lease, error)
	get(ctx context.Context, name string) (*coordinationv1.Lease, error)
	create(context.Context, *coordinationv1.Lease) error
	update(context.Context, *coordinationv1.Lease) error // fails if it has changed since
	delete(ctx context.Context, name string) error
}

// ipHolder holds addresses of Services on this Node. Each address has a Lease, and the Node that the Lease names holds
// it. A holder that cannot reach the API server keeps its addresses. Every Node serves the Services, so an address on
// two Nodes does less harm than an address on no Node.
type ipHolder struct {
	node string
	api  leaseAPI
	// wanted returns the candidates of each address that a Service has. It returns false before the first pass of the
	// tables. That pass waits until loaded has been called.
	wanted func() (map[netip.Addr][]string, bool)
	// set puts an address on this Node, or takes it away.
	set func(ip netip.Addr, held bool)
	// announce sends gratuitous ARP, or a Neighbor Advertisement, for an address.
	announce func(netip.Addr) error
	// loaded is called once, when all addresses that this Node has held are set.
	loaded func()
	now    func() time.Time
	log    *slog.Logger

	held     map[netip.Addr]int // how many announcements are left
	seen     map[netip.Addr]sight
	reported map[netip.Addr]string // errors
}

// sight is a Lease as it was seen, and since when it has not changed.
type sight struct {
	holder, version string
	since           time.Time
}

// action is what a Node does about the Lease of an address.
type action int

const (
	look    action = iota // nothing: another Node has the Lease, or will take it
	take                  // and hold the address
	renew                 // and hold the address
	release               // and the address goes
)

// holders returns the Node that each Lease of an address names, by the Lease's name.
func (h *ipHolder) holders(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	leases, err := h.api.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the Leases of addresses: %w", err)
	}
	out := map[string]string{}
	for i := range leases {
		out[leases[i].Name] = holderOf(&leases[i])
	}
	return out, nil
}

// decide returns the action of a Node for a Lease that has not changed for a time. rank is the Node's place among the
// candidates for the address. It is negative if the Node is no candidate.
func decide(node string, rank int, holder string, unchanged time.Duration) action {
	turn := time.Duration(rank) * holdEvery
	switch {
	case holder == node && rank < 0:
		return release
	case holder == node:
		return renew
	case rank < 0 || rank >= holdCandidates:
		return look
	case holder == "" && unchanged >= turn, unchanged >= holdFor+turn:
		return take
	}
	return look
}

// run holds addresses until ctx ends. Then it leaves them on the Node, and the next agent continues with them.
func (h *ipHolder) run(ctx context.Context) {
	if !h.resume(ctx) {
		return
	}
	tick := time.NewTicker(holdEvery)
	defer tick.Stop()
	for {
		h.step(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// resume finds the addresses that an earlier agent has held. They stay on the Node, so a restart removes no address.
func (h *ipHolder) resume(ctx context.Context) bool {
	tick := time.NewTicker(holdEvery)
	defer tick.Stop()
	for failed := ""; ; {
		list, err := h.api.list(ctx)
		if err == nil || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			if err != nil {
				h.log.Error("the agent may not read Leases, so this Node holds no addresses of ExternalIPPools: apply the "+
					"present manifest", "error", err)
			}
			for _, l := range list {
				ip, err := netip.ParseAddr(strings.ReplaceAll(l.Labels[leaseOfIP], "-", ":"))
				if err == nil && holderOf(&l) == h.node {
					h.hold(ip)
				}
			}
			h.loaded()
			return true
		}
		if err.Error() != failed && ctx.Err() == nil {
			failed = err.Error()
			h.log.Info("Leases of addresses are not read yet; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// step looks at the Leases once.
func (h *ipHolder) step(ctx context.Context) {
	wanted, known := h.wanted()
	if !known {
		return // not even that a Service is gone
	}
	for ip, nodes := range wanted {
		rank := slices.Index(nodes, h.node)
		if _, held := h.held[ip]; !held && (rank < 0 || rank >= holdCandidates) {
			delete(h.seen, ip)
			continue
		}
		h.report(ip, h.lease(ctx, ip, rank))
	}
	for ip := range h.held {
		if _, ok := wanted[ip]; !ok { // its Service is gone
			h.drop(ip)
			err := h.delete(ctx, leaseName(ip))
			if err != nil && !apierrors.IsNotFound(err) {
				h.report(ip, err)
			}
		}
	}
	for ip, left := range h.held {
		if left > 0 {
			h.held[ip] = left - 1
			if err := h.announce(ip); err != nil {
				h.report(ip, err)
			}
		}
	}
}

func (h *ipHolder) delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	return h.api.delete(ctx, name)
}

// lease looks at the Lease of one address.
func (h *ipHolder) lease(ctx context.Context, ip netip.Addr, rank int) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	l, err := h.api.get(ctx, leaseName(ip))
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("read Lease %s: %w", leaseName(ip), err)
	}
	if missing {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: leaseName(ip), Labels: map[string]string{leaseOfIP: leaseLabel(ip)},
		}}
	}
	now := sight{holder: holderOf(l), version: l.ResourceVersion, since: h.now()}
	if last, ok := h.seen[ip]; ok && last.holder == now.holder && last.version == now.version {
		now.since = last.since
	}
	h.seen[ip] = now
	unchanged := h.now().Sub(now.since)
	switch decide(h.node, rank, now.holder, unchanged) {
	case renew:
		if _, held := h.held[ip]; held && unchanged < holdEvery/2 {
			return nil // renewed a moment ago
		}
	case look:
		h.drop(ip) // another Node has it
		return nil
	case release:
		h.drop(ip)
		return h.write(ctx, l, missing, "")
	}
	if err := h.write(ctx, l, missing, h.node); err != nil {
		return err
	}
	h.hold(ip)
	return nil
}

// write makes a Node the holder of a Lease. It fails if another client has written the Lease since it was read.
func (h *ipHolder) write(ctx context.Context, l *coordinationv1.Lease, missing bool, holder string) error {
	l = l.DeepCopy()
	moment := metav1.NewMicroTime(h.now())
	if holderOf(l) != holder {
		l.Spec.AcquireTime = &moment
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime = &holder, &moment
	l.Spec.LeaseDurationSeconds = new(int32(holdFor / time.Second))
	do := h.api.update
	if missing {
		do = h.api.create
	}
	if err := do(ctx, l); err != nil {
		return fmt.Errorf("write Lease %s: %w", l.Name, err)
	}
	return nil
}

func (h *ipHolder) hold(ip netip.Addr) {
	if _, ok := h.held[ip]; ok {
		return
	}
	h.held[ip] = announcements
	h.set(ip, true)
	h.log.Info("this Node holds an address of Services", "address", ip)
}

func (h *ipHolder) drop(ip netip.Addr) {
	if _, ok := h.held[ip]; !ok {
		return
	}
	delete(h.held, ip)
	h.set(ip, false)
	h.log.Info("this Node holds an address of Services no longer", "address", ip)
}

// report logs an error once.
func (h *ipHolder) report(ip netip.Addr, err error) {
	text := ""
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another Node was faster
		text = err.Error()
	}
	if text != "" && h.reported[ip] != text {
		h.log.Info("the holder of an address may not change; trying again", "address", ip, "error", text)
	}
	h.reported[ip] = text
}

func leaseName(ip netip.Addr) string {
	return leasePrefix + strings.ReplaceAll(leaseLabel(ip), ".", "-")
}

// leaseLabel returns an address as the value of a label, which has no colons.
func leaseLabel(ip netip.Addr) string { return strings.ReplaceAll(ip.StringExpanded(), ":", "-") }

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// leaseClient writes Leases in the agent's Namespace.
type leaseClient struct {
	api       rest.Interface
	namespace string
}

func newLeaseClient(config *rest.Config, namespace string) (leaseClient, error) {
	api, err := clientOf(config, coordinationv1.SchemeGroupVersion, "/apis", coordinationv1.AddToScheme)
	return leaseClient{api, namespace}, err
}

func (c leaseClient) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	err := c.api.Get().Namespace(c.namespace).Resource("leases").Param("labelSelector", leaseOfIP).Do(ctx).Into(&list)
	return list.Items, err
}

func (c leaseClient) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	var l coordinationv1.Lease
	err := c.api.Get().Namespace(c.namespace).Resource("leases").Name(name).Do(ctx).Into(&l)
	return &l, err
}

func (c leaseClient) create(ctx context.Context, l *coordinationv1.Lease) error {
	return c.api.Post().Namespace(c.namespace).Resource("leases").Body(l).Do(ctx).Error()
}

func (c leaseClient) update(ctx context.Context, l *coordinationv1.Lease) error {
	return c.api.Put().Namespace(c.namespace).Resource("leases").Name(l.Name).Body(l).Do(ctx).Error()
}

func (c leaseClient) delete(ctx context.Context, name string) error {
	return c.api.Delete().Namespace(c.namespace).Resource("leases").Name(name).Do(ctx).Error()
}

// newIPHolder prepares the holder of this Node's addresses; nil if the feature is off.
func (a *Agent) newIPHolder() (*ipHolder, error) {
	if !a.config.Enabled("ServiceExternalIP") {
		return nil, nil
	}
	api, err := newLeaseClient(a.options.REST, a.options.Namespace)
	if err != nil {
		return nil, err
	}
	t := a.tables.external
	a.tables.engine.WatchPasses(func(derive.PassStats) { t.passed.Store(true) })
	return &ipHolder{
		node: a.options.NodeName, api: api, log: a.log, now: time.Now, loaded: t.held.Loaded,
		wanted: t.wanted,
		set: func(ip netip.Addr, held bool) {
			if held {
				t.held.Set(policy.Addr{Addr: ip}, true)
			} else {
				t.held.Delete(policy.Addr{Addr: ip})
			}
		},
		announce: hostnet.Announce,
		held:     map[netip.Addr]int{}, seen: map[netip.Addr]sight{}, reported: map[netip.Addr]string{},
	}, nil
}
