package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name      string
		rank      int
		holder    string
		unchanged time.Duration
		want      action
	}{
		{"the preferred Node, and no holder", 0, "", 0, take},
		{"the second waits for the first", 1, "", 0, look},
		{"the second, whose turn it is", 1, "", holdEvery, take},
		{"too many before it", holdCandidates, "", time.Hour, look},
		{"own", 0, "me", time.Hour, renew},
		{"own, though others are preferred now", 2, "me", 0, renew},
		{"own, and no candidate any more", -1, "me", 0, release},
		{"another's", 0, "other", holdFor - 1, look},
		{"another's, which is gone", 0, "other", holdFor, take},
		{"another's, which is gone, for the second", 1, "other", holdFor, look},
		{"no candidate", -1, "other", time.Hour, look},
	} {
		if have := decide("me", row.rank, row.holder, row.unchanged); have != row.want {
			t.Errorf("%s: %d, want %d", row.name, have, row.want)
		}
	}
}

// leases is an API server for Leases, with a fault that tests turn on.
type leases struct {
	m       map[string]coordinationv1.Lease
	version int
	down    map[string]bool // Nodes that do not reach it
}

// of is the server as a Node sees it.
type leasesOf struct {
	*leases
	node string
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l leasesOf) reach() error {
	if l.down[l.node] {
		return errors.New("no answer")
	}
	return nil
}

func (l leasesOf) list(context.Context) (out []coordinationv1.Lease, _ error) {
	for _, one := range l.m {
		out = append(out, one)
	}
	return out, l.reach()
}

func (l leasesOf) get(_ context.Context, name string) (*coordinationv1.Lease, error) {
	one, ok := l.m[name]
	if !ok && l.reach() == nil {
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	return one.DeepCopy(), l.reach()
}

func (l leasesOf) put(one *coordinationv1.Lease) error {
	l.version++
	one.ResourceVersion = strconv.Itoa(l.version)
	l.m[one.Name] = *one
	return nil
}

func (l leasesOf) create(_ context.Context, one *coordinationv1.Lease) error {
	if err := l.reach(); err != nil {
		return err
	}
	if _, ok := l.m[one.Name]; ok {
		return apierrors.NewAlreadyExists(leaseResource, one.Name)
	}
	return l.put(one)
}

func (l leasesOf) update(_ context.Context, one *coordinationv1.Lease) error {
	if err := l.reach(); err != nil {
		return err
	}
	if l.m[one.Name].ResourceVersion != one.ResourceVersion {
		return apierrors.NewConflict(leaseResource, one.Name, errors.New("changed"))
	}
	return l.put(one)
}

func (l leasesOf) delete(_ context.Context, name string) error {
	if err := l.reach(); err != nil {
		return err
	}
	delete(l.m, name)
	return nil
}

// TestIPHolders has three Nodes hold one address: it moves when its Node is gone, or may not hold it any more.
func TestIPHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ip := netip.MustParseAddr("198.51.100.10")
		server := &leases{m: map[string]coordinationv1.Lease{}, down: map[string]bool{}}
		nodes := []string{"a", "b", "c"}
		wanted := map[netip.Addr][]string{ip: nodes}
		on, announced := map[string]bool{}, map[string]int{}
		holders := map[string]*ipHolder{}
		start := func(node string) *ipHolder {
			return &ipHolder{
				node: node, api: leasesOf{server, node}, now: time.Now, log: slog.New(slog.DiscardHandler),
				wanted:   func() (map[netip.Addr][]string, bool) { return wanted, true },
				set:      func(_ netip.Addr, held bool) { on[node] = held },
				announce: func(netip.Addr) error { announced[node]++; return nil },
				loaded:   func() {},
				held:     map[netip.Addr]int{}, seen: map[netip.Addr]sight{}, reported: map[netip.Addr]string{},
			}
		}
		for _, node := range nodes {
			holders[node] = start(node)
		}
		after := func(d time.Duration, want ...string) {
			t.Helper()
			for ; d >= 0; d -= holdEvery {
				for _, node := range []string{"c", "b", "a"} {
					if h := holders[node]; h != nil {
						h.step(t.Context())
					}
				}
				time.Sleep(holdEvery) // of the test's own clock
			}
			var have []string
			for _, node := range nodes {
				if on[node] {
					have = append(have, node)
				}
			}
			if !slices.Equal(have, want) {
				t.Fatalf("the address is on %q, want %q", have, want)
			}
		}
		after(0, "a")
		after(time.Minute, "a")
		if announced["a"] != announcements {
			t.Errorf("it was announced %d times", announced["a"])
		}

		holders["a"] = nil // its agent has stopped, and the Node with it
		after(holdFor-holdEvery, "a")
		on["a"] = false
		after(2*holdEvery, "b")
		if announced["b"] == 0 {
			t.Error("it was not announced by the next Node")
		}

		holders["a"] = start("a")
		after(time.Minute, "b") // it does not move back
		wanted = map[netip.Addr][]string{ip: {"a", "c"}}
		after(holdEvery, "a")

		server.down["a"] = true
		after(holdFor-2*holdEvery, "a")
		after(4*holdEvery, "a", "c") // it stays where no API server answers
		server.down["a"] = false
		after(holdEvery, "c")

		holders["c"] = start("c")
		on["c"] = false
		if !holders["c"].resume(t.Context()) {
			t.Error("the addresses of the earlier agent are not known")
		}
		known := holders["c"].wanted
		holders["c"].wanted = func() (map[netip.Addr][]string, bool) { return nil, false } // before the first pass
		holders["c"].step(t.Context())
		if len(server.m) != 1 {
			t.Error("the Lease is gone before it is known which Services there are")
		}
		holders["c"].wanted = known
		after(0, "c")

		wanted = nil // the Service is gone
		after(holdEvery)
		if len(server.m) > 0 {
			t.Errorf("Leases are left: %v", server.m)
		}
	})
}

// testLeaseAccess has agents write Leases: of addresses, with their own Nodes as holders, and no others.
func testLeaseAccess(
	t *testing.T, as *rest.Config, refused func(what, text string, try func(context.Context) error),
) {
	t.Helper()
	config := rest.CopyConfig(as)
	config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}}
	api, err := newLeaseClient(config, metav1.NamespaceSystem)
	if err != nil {
		t.Fatal(err)
	}
	lease := func(name, holder string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		l.Labels = map[string]string{leaseOfIP: "192.0.2.7"}
		l.Spec.HolderIdentity = &holder
		return l
	}
	refused("Leases of other programs", "agents write Leases of addresses alone", func(ctx context.Context) error {
		err := api.create(ctx, lease("kube-scheduler", "node-1"))
		if err == nil {
			return api.delete(ctx, "kube-scheduler")
		}
		return err
	})
	for _, ip := range []string{"192.0.2.7", "2001:db8::7"} {
		testLeaseOf(t, api, netip.MustParseAddr(ip), lease)
	}
}

// testLeaseOf has an agent write the Lease of an address.
func testLeaseOf(t *testing.T, api leaseClient, ip netip.Addr, lease func(name, holder string) *coordinationv1.Lease) {
	t.Helper()
	name := leaseName(ip)
	if err := api.create(t.Context(), lease(name, "node-2")); err == nil ||
		!strings.Contains(err.Error(), "agents hold addresses on their own Node alone") {
		t.Errorf("an agent makes another Node the holder: %v", err)
	}
	on := map[netip.Addr]bool{}
	h := &ipHolder{
		node: "node-1", api: api, now: time.Now, log: slog.New(slog.DiscardHandler), loaded: func() {},
		wanted:   func() (map[netip.Addr][]string, bool) { return map[netip.Addr][]string{ip: {"node-1"}}, true },
		set:      func(ip netip.Addr, held bool) { on[ip] = held },
		announce: func(netip.Addr) error { return nil },
		held:     map[netip.Addr]int{}, seen: map[netip.Addr]sight{}, reported: map[netip.Addr]string{},
	}
	for i := range 3 { // it takes the Lease, sees it, and renews it
		h.now = func() time.Time { return time.Now().Add(time.Duration(i) * holdEvery) }
		h.step(t.Context())
	}
	l, err := api.get(t.Context(), name)
	if err != nil || holderOf(l) != "node-1" || len(on) != 1 || l.Spec.RenewTime.Equal(l.Spec.AcquireTime) {
		t.Errorf("the holder is %+v, %v; on this Node are %v; %v", l.Spec, err, on, h.reported)
	}
	h.held = map[netip.Addr]int{}
	if !h.resume(t.Context()) || len(h.held) != 1 {
		t.Errorf("a restarted agent holds %v", h.held)
	}
	h.wanted = func() (map[netip.Addr][]string, bool) { return nil, true }
	h.step(t.Context())
	if _, err := api.get(t.Context(), name); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease of an address without a Service: %v", err)
	}
}
