package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// The routes of a Pod's further interfaces follow the joins of their networks while the Pod runs.

// routeTables have the wanted routes of further interfaces.
type routeTables struct {
	// reached are the ranges that a network is joined with, and to which packets go. The key is a VirtualNetwork, or
	// {Name: Namespace} for the network of a Namespace. There is a row for networks of Pods that have, or request,
	// interfaces in VirtualNetworks.
	reached *derive.Table[derive.Object, []netip.Prefix]
	// pods are the wanted routes, by the container of the Pod's first interface.
	pods *derive.Table[derive.Name, cni.PodRoutes]
}

// addRoutes adds the tables of routes, which read which ranges of other clusters have flows.
func (t *tables) addRoutes(e *derive.Engine) {
	if t.tenants == nil {
		return
	}
	n := &t.objects.networks
	requested := derive.NewIndex(n.interfaces, "network", func(pod derive.Object, i podInterfaces) (out []derive.Object) {
		for _, x := range i.List {
			out = append(out, derive.Object{Name: pod.Namespace}, derive.Object{Namespace: pod.Namespace, Name: x.Name})
		}
		return unique(out)
	})
	attached := derive.NewIndex(t.pods.attachments, "network", func(_ derive.Name, a cni.Attachment) []derive.Object {
		if a.VirtualNetwork == "" {
			return nil
		}
		return []derive.Object{{Name: a.PodNamespace}, networkOf(a)}
	})
	n.routes.reached = derive.NewTable(e, "reached-ranges", t.reachedBy, derive.KeysOfIndex(requested),
		derive.KeysOfIndex(attached)).EqualBy(slices.Equal[[]netip.Prefix])
	further := derive.NewIndex(t.pods.attachments, "container with further interfaces",
		func(_ derive.Name, a cni.Attachment) []derive.Name {
			if !hasRoutes(a) {
				return nil
			}
			return []derive.Name{derive.Name(a.ContainerID)}
		})
	all := derive.NewIndex(t.pods.attachments, "container", func(_ derive.Name, a cni.Attachment) []derive.Name {
		return []derive.Name{derive.Name(a.ContainerID)}
	})
	n.routes.pods = derive.NewTable(e, "pod-routes",
		func(container derive.Name, r *derive.Reader) (cni.PodRoutes, []problem.Problem) {
			return t.routesOf(values(derive.List(r, all, container)), r), nil
		}, derive.KeysOfIndex(further))
}

// reachedBy returns the ranges that a network is joined with. A Node, a Service or another cluster may have addresses
// of a range from another cluster. Packets to such a range do not go there.
func (t *tables) reachedBy(k derive.Object, r *derive.Reader) (out []netip.Prefix, _ []problem.Problem) {
	var joined, far []netip.Prefix
	if k.Namespace != "" {
		v, _ := derive.Get(r, t.tenants.VirtualNetworks, k)
		joined, far = v.Joined, v.Far
	} else if place, _ := derive.Get(r, t.tenants.Places, k); place.Isolated() {
		joined, far = t.tenants.JoinedRanges(place.Network, r)
	}
	for _, cidr := range joined {
		if !slices.Contains(far, cidr) || t.flows.Far(r, cidr) {
			out = append(out, cidr)
		}
	}
	return out, nil
}

// routesOf returns the wanted routes of a Pod, given the attachments of its container.
func (t *tables) routesOf(list []cni.Attachment, r *derive.Reader) (out cni.PodRoutes) {
	var byFirst []netip.Prefix
	var further []*cni.Routes
	for _, a := range list {
		if !hasRoutes(a) {
			byFirst = append(byFirst, t.reachedByFirst(a, r)...)
			continue
		}
		out.Netns = a.Netns
		k := networkOf(a)
		v, _ := derive.Get(r, t.tenants.VirtualNetworks, k)
		x := &cni.Routes{IfName: a.IfName, PortName: a.PortName, Ranges: ownRanges(a, v)}
		x.Joined, _ = derive.Get(r, t.objects.networks.routes.reached, k)
		further = append(further, x)
	}
	cni.Share(byFirst, further...)
	for _, x := range further {
		out.Interfaces = append(out.Interfaces, *x)
	}
	return out
}

// reachedByFirst returns the ranges that the first interface of a Pod reaches.
func (t *tables) reachedByFirst(a cni.Attachment, r *derive.Reader) (out []netip.Prefix) {
	k := derive.Object{Name: a.PodNamespace}
	if a.Inside != "" {
		return nil
	}
	if a.VirtualNetwork != "" {
		k = networkOf(a)
		for _, ip := range a.IPs {
			out = append(out, ip.Masked())
		}
	}
	reached, _ := derive.Get(r, t.objects.networks.routes.reached, k)
	return append(out, reached...)
}

// ownRanges returns the ranges of an interface's own network. The gateway is missing once the network, or its lease, is
// gone.
func ownRanges(a cni.Attachment, v tenant.VirtualNetwork) (out []cni.ExtraRange) {
	for _, ip := range a.IPs {
		own := cni.ExtraRange{CIDR: ip.Masked()}
		for _, l := range v.Leases {
			if l.Range.CIDR.Masked() == own.CIDR {
				own.Gateway = l.Range.Gateway
			}
		}
		out = append(out, own)
	}
	return out
}

// hasRoutes reports whether an attachment is of a further interface in a VirtualNetwork.
func hasRoutes(a cni.Attachment) bool {
	return a.VirtualNetwork != "" && a.IfName != tenant.FirstInterface
}

// networkOf returns the VirtualNetwork of an attachment.
func networkOf(a cni.Attachment) derive.Object {
	namespace, name, _ := strings.Cut(a.VirtualNetwork, "/")
	return derive.Object{Namespace: namespace, Name: name}
}

// unique returns a list without repetitions.
func unique(list []derive.Object) []derive.Object {
	slices.SortFunc(list, derive.Object.Compare)
	return slices.Compact(list)
}

// routeMender has the routes of running Pods corrected.
type routeMender struct {
	mend     func(ctx context.Context, container string, wanted func() (cni.PodRoutes, bool)) error
	pods     *derive.Table[derive.Name, cni.PodRoutes]
	progress *progress
	log      *slog.Logger
	wake     chan struct{}

	mu   sync.Mutex
	due  map[derive.Name]routeTurn
	busy map[derive.Name]bool // Pods whose routes are being compared
}

// routeTurn is when the routes of a Pod are compared next.
type routeTurn struct {
	at    time.Time
	delay time.Duration // of the last failure, or 0
}

const (
	// routesAgain is the time between two comparisons of a Pod without changes of its wanted routes.
	routesAgain = 5 * time.Minute
	// mendAgain is the time until the next attempt after a failure. It doubles with each further failure, up to
	// routesAgain. So a Pod that prevents its routes costs little.
	mendAgain = 500 * time.Millisecond
	// mendAtOnce is the number of Pods whose routes are compared at the same time. A Pod with a million routes takes
	// seconds. It does not delay the others, unless there are so many of such Pods.
	mendAtOnce = 4
)

// newRouteMender returns the part that corrects routes; nil without the feature gate.
func (a *Agent) newRouteMender(server *cni.Server) *routeMender {
	if a.tables.tenants == nil {
		return nil
	}
	m := &routeMender{mend: server.MendRoutes, pods: a.tables.objects.networks.routes.pods, progress: a.progress,
		log: a.log, wake: make(chan struct{}, 1), due: map[derive.Name]routeTurn{}, busy: map[derive.Name]bool{}}
	m.pods.Watch(m.changed)
	return m
}

// changed has the routes of Pods compared at once.
func (m *routeMender) changed(changes []derive.Change[derive.Name, cni.PodRoutes]) {
	m.mu.Lock()
	for _, c := range changes {
		m.due[c.Key] = routeTurn{}
	}
	m.mu.Unlock()
	m.look()
}

// look has a pass made.
func (m *routeMender) look() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run corrects routes until ctx ends. It begins once a complete plan was applied: joins may be missing before that.
func (m *routeMender) run(ctx context.Context) {
	if m.progress.await(ctx, func() (bool, error) { return m.progress.ready(), nil }) != nil {
		return
	}
	var running errgroup.Group
	running.SetLimit(mendAtOnce)
	defer func() { _ = running.Wait() }() // one has logged errors
	for {
		next := m.pass(ctx, &running, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-time.After(time.Until(next)):
		}
	}
}

// pass begins to compare the routes of all Pods that are due, and returns when the next one is. The end of a comparison
// leads to another pass.
func (m *routeMender) pass(ctx context.Context, running *errgroup.Group, now time.Time) (next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next = now.Add(routesAgain)
	for _, k := range slices.Sorted(maps.Keys(m.due)) {
		turn := m.due[k]
		switch {
		case m.busy[k]:
		case turn.at.After(now):
			if turn.at.Before(next) {
				next = turn.at
			}
		case running.TryGo(func() error {
			m.one(ctx, k, turn)
			return nil
		}):
			m.busy[k] = true
			delete(m.due, k)
		}
	}
	return next
}

// one compares the routes of a Pod. A change while it does so has them compared once more.
func (m *routeMender) one(ctx context.Context, container derive.Name, turn routeTurn) {
	defer func() {
		m.mu.Lock()
		delete(m.busy, container)
		m.mu.Unlock()
		m.look()
	}()
	gone := false
	err := m.mend(ctx, string(container), func() (cni.PodRoutes, bool) {
		p, ok := m.pods.Get(container)
		gone = !ok
		return p, ok
	})
	if gone || ctx.Err() != nil {
		return
	}
	switch {
	case err == nil:
		turn = routeTurn{at: time.Now().Add(routesAgain)}
	case errors.Is(err, cni.ErrBusy):
		turn.at = time.Now().Add(mendAgain)
	default:
		if turn.delay == 0 {
			m.log.Warn("correct the routes of a Pod's further interfaces; trying again", "container", string(container),
				"error", err)
		}
		turn.delay = min(max(2*turn.delay, mendAgain), routesAgain)
		turn.at = time.Now().Add(turn.delay)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, again := m.due[container]; !again {
		m.due[container] = turn
	}
}
