package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// network adds a VirtualNetwork to Namespace a, with a lease for each range. The gateway is the first address.
func (r *networkRig) network(name string, cidrs ...string) {
	n := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name),
		Labels: map[string]string{"vn": name}}}
	n.Spec.V4SubnetReference = &contrailv4.ResourceReference{Name: name}
	r.view.Others = append(r.view.Others, n)
	for i, cidr := range cidrs {
		l := &tombolov1alpha1.SubnetLease{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(name, i)}}
		l.Spec = tombolov1alpha1.SubnetLeaseSpec{CIDR: cidr,
			Subnet:         tombolov1alpha1.ObjectName{Namespace: "a", Name: name},
			Gateway:        netip.MustParsePrefix(cidr).Addr().Next().String(),
			VirtualNetwork: tombolov1alpha1.ObjectName{Namespace: "a", Name: name}}
		r.view.Others = append(r.view.Others, l)
	}
}

// router joins VirtualNetworks of Namespace a with each other.
func (r *networkRig) router(names ...string) {
	v := routerIn("a", strings.Join(names, "-"))
	v.Spec.VirtualNetworkSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "vn",
		Operator: metav1.LabelSelectorOpIn, Values: names}}}
	r.view.Others = append(r.view.Others, v)
}

// TestPodRoutes has the attachments of a Pod, and objects that join their networks.
func TestPodRoutes(t *testing.T) {
	const (
		blue = "eth1 a/blue 10.50.0.2/24"
		red  = "eth2 a/red 10.51.0.2/24 fd51::2/64"
	)
	type rig = networkRig
	for _, row := range []struct {
		name        string
		attachments []string // interface, VirtualNetwork, addresses
		change      func(*rig)
		want        string
	}{
		{name: "eth0 alone", attachments: []string{"eth0  10.11.1.9/24"}},
		{name: "eth0 alone, in a VirtualNetwork", attachments: []string{"eth0 a/blue 10.50.0.2/24"},
			change: func(r *rig) { r.router("blue", "red") }},
		{name: "no join", attachments: []string{blue}, want: "eth1 10.50.0.0/24@10.50.0.1 []"},
		{name: "a join", attachments: []string{blue}, change: func(r *rig) { r.router("blue", "red") },
			want: "eth1 10.50.0.0/24@10.50.0.1 [10.51.0.0/24 fd51::/64]"},
		{name: "two interfaces", attachments: []string{blue, red}, change: func(r *rig) {
			r.network("green", "10.52.0.0/24")
			r.router("blue", "red", "green")
		}, want: "eth1 10.50.0.0/24@10.50.0.1 [10.52.0.0/24]; eth2 10.51.0.0/24@10.51.0.1 fd51::/64@fd51::1 []"},
		{name: "eth0 is in a joined network", attachments: []string{"eth0 a/blue 10.50.0.2/24", red}, change: func(r *rig) {
			r.network("green", "10.52.0.0/24")
			r.network("grey", "10.53.0.0/24")
			r.router("blue", "red", "green")
			r.router("red", "grey")
		}, want: "eth2 10.51.0.0/24@10.51.0.1 fd51::/64@fd51::1 [10.53.0.0/24]"},
		{name: "the isolated Namespace is joined, too", attachments: []string{"eth0  10.11.1.9/24", blue},
			change: func(r *rig) {
				r.view.Namespaces[0].Labels = map[string]string{tenant.LabelIsolated: "true"}
				r.view.Others = append(r.view.Others, &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "a",
					Name: contrailv4.DefaultPodNetwork, UID: "own", Labels: map[string]string{"vn": "own"}}})
				r.network("green", "10.52.0.0/24")
				r.router("blue", "red", "green")
				r.router("own", "green")
			}, want: "eth1 10.50.0.0/24@10.50.0.1 [10.51.0.0/24 fd51::/64]"},
		{name: "another cluster", attachments: []string{blue}, change: func(r *rig) {
			i := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
			i.Spec = tombolov1alpha1.TenantNetworkImportSpec{Number: 7,
				Namespace:      &tombolov1alpha1.NamespaceReference{Name: "a", UID: "5e2d"},
				VirtualNetwork: &tombolov1alpha1.VirtualNetworkReference{Name: "blue", UID: "blue"},
				Joined: []tombolov1alpha1.JoinedNetwork{{Name: "green", Number: 8, ClusterIDs: []string{"test-cluster-west"},
					CIDRs: []string{"10.60.0.0/24", "10.97.0.0/24"}}}} // the second one has addresses of Services
			r.view.Others = append(r.view.Others, i)
		}, want: "eth1 10.50.0.0/24@10.50.0.1 [10.60.0.0/24]"},
		{name: "the Subnet is deleted", attachments: []string{blue}, change: func(r *rig) {
			for _, o := range r.view.Others {
				if l, ok := o.(*tombolov1alpha1.SubnetLease); ok {
					l.Spec.Ending = true
				}
			}
			r.router("blue", "red")
		}, want: "eth1 10.50.0.0/24@10.50.0.1 [10.51.0.0/24 fd51::/64]"},
		{name: "the VirtualNetwork is deleted", attachments: []string{"eth1 a/none 10.54.0.2/24"},
			want: "eth1 10.54.0.0/24@invalid IP []"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newNetworkRig(t)
			r.view.Others = nil
			r.network("blue", "10.50.0.0/24")
			r.network("red", "10.51.0.0/24", "fd51::/64")
			if row.change != nil {
				row.change(r)
			}
			for _, text := range row.attachments {
				w := strings.Split(text, " ")
				a := cni.Attachment{ContainerID: "c1", IfName: w[0], PodNamespace: "a", PodName: "web", PortName: "web-" + w[0],
					MAC: "0a:00:00:00:00:07", VirtualNetwork: w[1], Netns: "/run/netns/web"}
				for _, ip := range w[2:] {
					a.IPs = append(a.IPs, netip.MustParsePrefix(ip))
				}
				r.view.Attachments = append(r.view.Attachments, a)
			}
			r.settle()
			p, ok := r.p.tables.objects.networks.routes.pods.Get("c1")
			if ok && p.Netns != "/run/netns/web" {
				t.Errorf("the network namespace is %q", p.Netns)
			}
			var have []string
			for _, x := range p.Interfaces {
				text := x.IfName
				for _, own := range x.Ranges {
					text += fmt.Sprint(" ", own.CIDR, "@", own.Gateway)
				}
				have = append(have, fmt.Sprint(text, " ", x.Joined))
				if x.PortName != "web-"+x.IfName {
					t.Errorf("%s has port %s", x.IfName, x.PortName)
				}
			}
			if have := strings.Join(have, "; "); have != row.want {
				t.Errorf("%q, want %q", have, row.want)
			}
		})
	}
}

// mendRig is a routeMender over a table of Pods. It records its calls, and changes no routes.
type mendRig struct {
	*routeMender
	t      *testing.T
	engine *derive.Engine
	wanted *derive.Source[derive.Name, cni.PodRoutes]
	log    bytes.Buffer

	guard sync.Mutex
	calls []string // container, time since the beginning, and the network namespace
	errs  map[string]error
	slow  map[string]time.Duration // how long a comparison takes
}

func newMendRig(t *testing.T) *mendRig {
	r := &mendRig{t: t, engine: derive.New(), errs: map[string]error{}, slow: map[string]time.Duration{}}
	r.wanted = derive.NewSource[derive.Name, cni.PodRoutes](r.engine, "wanted")
	pods := derive.NewTable(r.engine, "pods",
		func(k derive.Name, reader *derive.Reader) (cni.PodRoutes, []problem.Problem) {
			p, _ := derive.Get(reader, r.wanted, k)
			return p, nil
		}, derive.KeysOf(r.wanted))
	began := time.Now()
	r.routeMender = &routeMender{pods: pods, progress: newProgress(), wake: make(chan struct{}, 1),
		due: map[derive.Name]routeTurn{}, busy: map[derive.Name]bool{}, log: slog.New(slog.NewTextHandler(&r.log, nil)),
		mend: func(_ context.Context, container string, wanted func() (cni.PodRoutes, bool)) error {
			r.guard.Lock()
			slow := r.slow[container]
			r.guard.Unlock()
			<-time.After(slow)
			r.guard.Lock()
			defer r.guard.Unlock()
			p, ok := wanted()
			if !ok {
				p.Netns = "gone"
			}
			r.calls = append(r.calls, fmt.Sprint(container, " ", time.Since(began), " ", p.Netns))
			return r.errs[container]
		}}
	pods.Watch(r.changed)
	r.wanted.Loaded()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

// fails has the corrections of a Pod fail from now on, unless the error is nil.
func (r *mendRig) fails(container string, err error) {
	r.guard.Lock()
	defer r.guard.Unlock()
	r.errs[container] = err
}

// set changes the wanted routes of a Pod, or ends them.
func (r *mendRig) set(container, netns string) {
	if r.wanted.Set(derive.Name(container), cni.PodRoutes{Netns: netns}); netns == "" {
		r.wanted.Delete(derive.Name(container))
	}
	r.engine.Pass()
}

// called compares the calls until a time from now with the expected ones.
func (r *mendRig) called(after time.Duration, want ...string) {
	r.t.Helper()
	<-time.After(after)
	synctest.Wait()
	r.guard.Lock()
	defer r.guard.Unlock()
	slices.Sort(r.calls) // Pods at the same time are in no order
	slices.Sort(want)
	if !slices.Equal(r.calls, want) {
		r.t.Errorf("calls %q, want %q", r.calls, want)
	}
	r.calls = nil
}

// TestRouteMender has Pods whose routes are compared: when they change, after failures, and sometimes in any case.
func TestRouteMender(t *testing.T) {
	ready := func(r *mendRig) {
		r.progress.release()
		r.progress.wake()
	}
	for _, row := range []struct {
		name string
		test func(t *testing.T, r *mendRig)
	}{
		{"only after the first plan", func(_ *testing.T, r *mendRig) {
			r.set("c1", "ns1")
			r.called(time.Minute)
			ready(r)
			r.called(time.Second, "c1 1m0s ns1")
		}},
		{"changes, and the end", func(_ *testing.T, r *mendRig) {
			ready(r)
			r.set("c1", "ns1")
			r.set("c2", "ns2")
			r.called(time.Minute, "c1 0s ns1", "c2 0s ns2")
			r.set("c1", "ns3")
			r.called(time.Minute, "c1 1m0s ns3")
			r.set("c1", "")
			r.called(time.Minute, "c1 2m0s gone")
			r.called(4*time.Minute, "c2 5m0s ns2")
			r.called(5*time.Minute, "c2 10m0s ns2")
		}},
		{"a Pod that fails", func(t *testing.T, r *mendRig) {
			ready(r)
			r.fails("c1", errors.New("invalid argument"))
			r.set("c1", "ns1")
			r.set("c2", "ns2")
			r.called(4*time.Second, "c1 0s ns1", "c2 0s ns2", "c1 500ms ns1", "c1 1.5s ns1", "c1 3.5s ns1")
			r.set("c2", "ns3") // another Pod does not wait
			r.called(time.Second, "c2 4s ns3")
			<-time.After(time.Hour)
			synctest.Wait()
			if have := len(r.calls); have < 20 || have > 32 { // every five minutes in the end, and c2
				t.Errorf("%d calls in an hour", have)
			}
			if have := strings.Count(r.log.String(), "invalid argument"); have != 1 {
				t.Errorf("the log is %s", &r.log)
			}
		}},
		{"a Pod with many routes", func(_ *testing.T, r *mendRig) {
			ready(r)
			r.slow["c1"] = 20 * time.Second
			r.set("c1", "ns1")
			r.set("c2", "ns2")
			r.called(time.Second, "c2 0s ns2")
			r.set("c1", "ns4") // once more, after the present comparison
			r.set("c2", "ns3")
			r.called(time.Second, "c2 1s ns3")
			r.called(time.Minute, "c1 20s ns4", "c1 40s ns4")
		}},
		{"more Pods than are compared at once", func(_ *testing.T, r *mendRig) {
			ready(r)
			for i := range mendAtOnce + 2 {
				name := fmt.Sprint("c", i)
				r.slow[name] = time.Second
				r.wanted.Set(derive.Name(name), cni.PodRoutes{Netns: "ns"})
			}
			r.engine.Pass()
			r.called(1500*time.Millisecond, "c0 1s ns", "c1 1s ns", "c2 1s ns", "c3 1s ns")
			r.called(time.Minute, "c4 2s ns", "c5 2s ns")
		}},
		{"a request that runs", func(t *testing.T, r *mendRig) {
			ready(r)
			r.fails("c1", fmt.Errorf("the Pod: %w", cni.ErrBusy))
			r.set("c1", "ns1")
			r.called(1600*time.Millisecond, "c1 0s ns1", "c1 500ms ns1", "c1 1s ns1", "c1 1.5s ns1")
			r.fails("c1", nil)
			r.called(time.Minute, "c1 2s ns1")
			if r.log.Len() > 0 {
				t.Errorf("the log is %s", &r.log)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { row.test(t, newMendRig(t)) })
		})
	}
}
