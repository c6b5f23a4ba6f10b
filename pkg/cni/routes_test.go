package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// routesOf describes an interface: its name, ranges with gateways, a bar, and joined ranges.
func routesOf(t *testing.T, text string) Routes {
	t.Helper()
	own, joined, _ := strings.Cut(text, " |")
	words := strings.Fields(own)
	x := Routes{IfName: words[0], PortName: "port-" + words[0]}
	for _, w := range words[1:] {
		cidr, gateway, known := strings.Cut(w, "@")
		r := ExtraRange{CIDR: netip.MustParsePrefix(cidr)}
		if known {
			r.Gateway = netip.MustParseAddr(gateway)
		}
		x.Ranges = append(x.Ranges, r)
	}
	for _, w := range strings.Fields(joined) {
		x.Joined = append(x.Joined, netip.MustParsePrefix(w))
	}
	return x
}

// podRoutesOf shares the joined ranges of interfaces out.
func podRoutesOf(t *testing.T, reached []netip.Prefix, list ...string) (p PodRoutes) {
	t.Helper()
	var shared []*Routes
	for _, text := range list {
		x := routesOf(t, text)
		shared = append(shared, &x)
	}
	Share(reached, shared...)
	for _, x := range shared {
		p.Interfaces = append(p.Interfaces, *x)
	}
	return p
}

// TestWantedRoutes has Pods with interfaces, and ranges that the network of eth0 reaches.
func TestWantedRoutes(t *testing.T) {
	const blue, red = "10.50.0.0/24@10.50.0.1", "10.51.0.0/24@10.51.0.1"
	for _, row := range []struct {
		name, reached string
		list          []string
		want          string // number of the interface, destination, and gateway
	}{
		{name: "without joins", list: []string{"eth1 " + blue}, want: "1 10.50.0.0/24 10.50.0.1"},
		{name: "two versions of IP", list: []string{"eth1 " + blue + " fd50::/64@fd50::1 | 10.60.0.0/24 fd60::/64"},
			want: "1 10.50.0.0/24 10.50.0.1, 1 10.60.0.0/24 10.50.0.1, 1 fd50::/64 fd50::1, 1 fd60::/64 fd50::1"},
		{name: "a joined range of a version that the interface lacks", list: []string{"eth1 " + blue + " | fd60::/64"},
			want: "1 10.50.0.0/24 10.50.0.1"},
		{name: "networks of the same Pod are joined", list: []string{"eth1 " + blue + " | 10.51.0.0/24",
			"eth2 " + red + " | 10.50.0.0/24"}, want: "1 10.50.0.0/24 10.50.0.1, 2 10.51.0.0/24 10.51.0.1"},
		{name: "both are joined with the same network", list: []string{"eth2 " + red + " | 10.60.0.0/24",
			"eth1 " + blue + " | 10.60.0.0/24 10.60.0.0/24"},
			want: "1 10.50.0.0/24 10.50.0.1, 1 10.60.0.0/24 10.50.0.1, 2 10.51.0.0/24 10.51.0.1"},
		{name: "the order of names", list: []string{"eth10 " + red + " | 10.60.0.0/24", "eth9 " + blue + " | 10.60.0.0/24"},
			want: "10 10.51.0.0/24 10.51.0.1, 9 10.50.0.0/24 10.50.0.1, 9 10.60.0.0/24 10.50.0.1"},
		{name: "eth0 is in a joined network, and reaches another one", reached: "10.51.0.0/24 10.61.0.0/25",
			list: []string{"eth1 " + blue + " | 10.51.0.0/24 10.60.0.0/24 10.61.0.0/24"},
			want: "1 10.50.0.0/24 10.50.0.1, 1 10.60.0.0/24 10.50.0.1"},
		{name: "an interface without a known gateway", list: []string{"eth1 10.50.0.0/24 | 10.60.0.0/24"}},
		{name: "an interface that is gone", list: []string{"gone " + blue + " | 10.60.0.0/24"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var reached []netip.Prefix
			for _, w := range strings.Fields(row.reached) {
				reached = append(reached, netip.MustParsePrefix(w))
			}
			p := podRoutesOf(t, reached, row.list...)
			var have []string
			for to, h := range p.wanted(map[string]int{"eth1": 1, "eth2": 2, "eth9": 9, "eth10": 10}) {
				have = append(have, fmt.Sprint(h.link, " ", to, " ", h.gateway))
			}
			if slices.Sort(have); strings.Join(have, ", ") != row.want {
				t.Errorf("%q, want %q", strings.Join(have, ", "), row.want)
			}
		})
	}
}

// routePod is a network namespace with veth pairs, addresses and gateways as ADD makes them.
type routePod struct {
	t     *testing.T
	netns string
}

// addressesIn are the addresses of interfaces. The gateway is the address before.
var addressesIn = map[string][]string{
	"eth1": {"10.50.0.2/24", "fd50::2/64"}, "eth2": {"10.51.0.2/24"}, "eth3": {"10.53.0.2/24"}, "eth4": {"10.54.0.2/24"},
	"mine": {"10.9.0.2/24", "fd09::2/64"},
}

func newRoutePod(t *testing.T, names ...string) *routePod {
	p := &routePod{t: t, netns: makeNetns(t, filepath.Join(t.TempDir(), "netns"))}
	pod, err := openNetns(p.netns)
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	for _, name := range names {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "port-" + name
		pair := netlink.NewVeth(attrs)
		pair.PeerName, pair.PeerNamespace = name, netlink.NsFd(pod.Fd())
		if err := netlink.LinkAdd(pair); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(pair) })
		if err := netlink.LinkSetUp(pair); err != nil {
			t.Fatal(err)
		}
		p.within(func() error {
			link := p.link(name)
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
			for _, text := range addressesIn[name] {
				a := netip.MustParsePrefix(text)
				if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(a),
					Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE}); err != nil {
					return err
				}
				gw := netip.PrefixFrom(a.Addr().Prev(), a.Addr().BitLen())
				scope := netlink.SCOPE_LINK
				if gw.Addr().Is6() {
					scope = netlink.SCOPE_UNIVERSE
				}
				if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(gw),
					Scope: scope}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return p
}

func (p *routePod) within(f func() error) {
	p.t.Helper()
	within(p.t, p.netns, func() {
		p.t.Helper()
		if err := f(); err != nil {
			p.t.Fatal(err)
		}
	})
}

// link returns a link of the present namespace.
func (p *routePod) link(name string) netlink.Link {
	p.t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return link
}

// route is "DESTINATION via GATEWAY dev LINK", with words for what differs from a user's route.
func (p *routePod) route(text string) *netlink.Route {
	p.t.Helper()
	w := strings.Fields(text)
	r := &netlink.Route{Dst: ipNet(netip.MustParsePrefix(w[0])), Gw: netip.MustParseAddr(w[2]).AsSlice(),
		LinkIndex: p.link(w[4]).Attrs().Index}
	for _, word := range w[5:] {
		switch word {
		case "onlink":
			r.Flags = int(netlink.FLAG_ONLINK)
		case "ours":
			r.Protocol = podRouteProtocol
		case "static":
			r.Protocol = unix.RTPROT_STATIC
		case "metric":
			r.Priority = 77
		}
	}
	return r
}

// put makes the Pod's processes add a route.
func (p *routePod) put(text string) {
	p.t.Helper()
	p.within(func() error { return netlink.RouteAdd(p.route(text)) })
}

func (p *routePod) drop(text string) {
	p.t.Helper()
	p.within(func() error { return netlink.RouteDel(p.route(text)) })
}

// have returns the routes with a gateway, in the words of route.
func (p *routePod) have() (out []string) {
	p.t.Helper()
	p.within(func() error {
		list, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, r := range list {
			if r.Gw == nil {
				continue
			}
			link, err := netlink.LinkByIndex(r.LinkIndex)
			if err != nil {
				return err
			}
			text := fmt.Sprint(r.Dst, " via ", r.Gw, " dev ", link.Attrs().Name)
			switch r.Protocol {
			case podRouteProtocol:
				text += " ours"
			case unix.RTPROT_STATIC:
				text += " static"
			}
			if r.Priority == 77 {
				text += " metric"
			}
			out = append(out, text)
		}
		return nil
	})
	slices.Sort(out)
	return out
}

// mend corrects the routes, and compares these with the expected ones.
func (p *routePod) mend(w PodRoutes, want ...string) (missing []string) {
	p.t.Helper()
	w.Netns = p.netns
	missing, err := w.mend()
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Sort(want)
	if have := p.have(); !slices.Equal(have, want) {
		p.t.Errorf("routes\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	return missing
}

// TestMendRoutes corrects routes in a real network namespace.
func TestMendRoutes(t *testing.T) {
	const (
		blue  = "eth1 10.50.0.0/24@10.50.0.1 fd50::/64@fd50::1"
		blue4 = "10.50.0.0/24 via 10.50.0.1 dev eth1 ours"
		blue6 = "fd50::/64 via fd50::1 dev eth1 ours"
		red   = "eth2 10.51.0.0/24@10.51.0.1"
		red4  = "10.51.0.0/24 via 10.51.0.1 dev eth2 ours"
	)
	want := func(t *testing.T, list ...string) PodRoutes {
		t.Helper()
		return podRoutesOf(t, nil, list...)
	}
	t.Run("joins come and go", func(t *testing.T) {
		p := newRoutePod(t, "eth1")
		p.mend(want(t, blue), blue4, blue6)
		joined := want(t, blue+" | 10.60.0.0/24 fd60::/64")
		to4, to6 := "10.60.0.0/24 via 10.50.0.1 dev eth1 ours", "fd60::/64 via fd50::1 dev eth1 ours"
		p.mend(joined, blue4, blue6, to4, to6)
		p.drop("10.60.0.0/24 via 10.50.0.1 dev eth1")
		p.drop("fd50::/64 via fd50::1 dev eth1")
		p.mend(joined, blue4, blue6, to4, to6)
		p.mend(want(t, blue), blue4, blue6)
	})
	t.Run("routes of others stay", func(t *testing.T) {
		p := newRoutePod(t, "eth1", "mine")
		others := []string{
			"10.60.0.0/24 via 10.9.0.1 dev mine",              // to a joined range
			"fd60::/64 via fd09::1 dev mine",                  // the same
			"10.61.0.0/24 via 10.50.0.9 dev eth1 ours onlink", // another gateway, with our number
			"10.62.0.0/24 via 10.50.0.1 dev eth1 static",      // another number, with our gateway
			"10.63.0.0/24 via 10.50.0.1 dev eth1",             // as a user adds it
			"10.64.0.0/24 via 10.9.0.1 dev mine ours",         // another interface
			"fd62::/64 via fd50::1 dev eth1 static",           // another number
			"10.65.0.0/24 via 10.50.0.1 dev eth1",             // a joined range, as a user adds it
			"10.66.0.0/24 via 10.9.0.1 dev mine metric",       // to a range that was joined
			"10.67.0.0/24 via 10.9.0.1 dev mine metric",       // to a joined range, with another metric than ours
			"fd67::/64 via fd09::1 dev mine static metric",    // the same
		}
		for i, text := range others {
			p.put(text)
			others[i] = strings.Replace(text, " onlink", "", 1)
		}
		p.put("10.66.0.0/24 via 10.50.0.1 dev eth1 ours onlink")
		joined := want(t, blue+" | 10.60.0.0/24 fd60::/64 10.65.0.0/24 10.67.0.0/24 fd67::/64")
		p.mend(joined, append(slices.Clone(others), blue4, blue6, "10.67.0.0/24 via 10.50.0.1 dev eth1 ours",
			"fd67::/64 via fd50::1 dev eth1 ours")...)
		p.mend(want(t, blue), append(slices.Clone(others), blue4, blue6)...)
	})
	t.Run("routes of earlier versions", func(t *testing.T) {
		p := newRoutePod(t, "eth1", "eth2")
		for _, text := range []string{"10.50.0.0/24 via 10.51.0.1 dev eth2 onlink", // the networks are joined
			"10.51.0.0/24 via 10.51.0.1 dev eth2 onlink", "fd50::/64 via fd50::1 dev eth1 onlink",
			"10.60.0.0/24 via 10.50.0.1 dev eth1 onlink", "fd60::/64 via fd50::1 dev eth1 onlink"} {
			p.put(text)
		}
		p.mend(want(t, blue+" | 10.51.0.0/24 10.60.0.0/24 fd60::/64", red+" | 10.50.0.0/24"), blue4, blue6, red4,
			"10.60.0.0/24 via 10.50.0.1 dev eth1 ours", "fd60::/64 via fd50::1 dev eth1 ours")
		p.mend(want(t, blue, red), blue4, blue6, red4)
	})
	t.Run("a joined range moves to another interface", func(t *testing.T) {
		p := newRoutePod(t, "eth1", "eth2")
		p.mend(want(t, blue, red+" | 10.60.0.0/24"), blue4, blue6, red4, "10.60.0.0/24 via 10.51.0.1 dev eth2 ours")
		p.mend(want(t, blue+" | 10.60.0.0/24", red+" | 10.60.0.0/24"), blue4, blue6, red4,
			"10.60.0.0/24 via 10.50.0.1 dev eth1 ours")
	})
	t.Run("another name, another metric", func(t *testing.T) {
		p := newRoutePod(t, "eth1")
		p.within(func() error {
			if err := netlink.LinkSetDown(p.link("eth1")); err != nil {
				return err
			}
			if err := netlink.LinkSetName(p.link("eth1"), "evil0"); err != nil {
				return err
			}
			return netlink.LinkSetUp(p.link("evil0"))
		})
		p.put("10.50.0.0/24 via 10.50.0.1 dev evil0 ours onlink metric")
		missing := p.mend(want(t, blue), strings.ReplaceAll(blue4, "eth1", "evil0"),
			strings.ReplaceAll(blue6, "eth1", "evil0"))
		if len(missing) > 0 {
			t.Errorf("without routes: %v", missing)
		}
	})
	t.Run("interfaces that are down, gone, or others'", func(t *testing.T) {
		p := newRoutePod(t, "eth1", "eth2", "eth3")
		elsewhere := newRoutePod(t, "eth4")
		p.within(func() error {
			if err := netlink.LinkSetDown(p.link("eth1")); err != nil {
				return err
			}
			return netlink.LinkDel(p.link("eth2"))
		})
		missing := p.mend(want(t, blue, red, "eth3 10.53.0.0/24@10.53.0.1 | 10.60.0.0/24", "eth4 10.54.0.0/24@10.54.0.1"),
			"10.53.0.0/24 via 10.53.0.1 dev eth3 ours", "10.60.0.0/24 via 10.53.0.1 dev eth3 ours")
		if want := []string{"eth1", "eth2", "eth4"}; !slices.Equal(missing, want) {
			t.Errorf("without routes: %v, want %v", missing, want)
		}
		if have := elsewhere.have(); len(have) > 0 {
			t.Errorf("another Pod has %v", have)
		}
	})
	t.Run("a pair with the indexes of another Pod's", func(t *testing.T) {
		elsewhere, p := newRoutePod(t, "eth3", "eth4"), newRoutePod(t, "eth1")
		host := p.link("port-eth4").Attrs()
		p.within(func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.Index = "forged", host.Index
			pair := netlink.NewVeth(attrs)
			pair.PeerName = "eth4"
			return netlink.LinkAdd(pair)
		})
		for _, name := range []string{"forged", "eth4"} {
			p.within(func() error { return netlink.LinkSetUp(p.link(name)) })
		}
		p.within(func() error {
			link := p.link("eth4")
			if have := link.Attrs(); have.Index != host.ParentIndex || have.ParentIndex != host.Index {
				return fmt.Errorf("the pair has the indexes %d and %d, want %d and %d", have.Index, have.ParentIndex,
					host.ParentIndex, host.Index)
			}
			return netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.54.0.2/32"))})
		})
		missing := p.mend(want(t, blue, "eth4 10.54.0.0/24@10.54.0.1"), blue4, blue6)
		if have := elsewhere.have(); len(missing) != 1 || len(have) > 0 {
			t.Errorf("without routes: %v; another Pod has %v", missing, have)
		}
	})
	t.Run("an interface of a bridge or VRF", func(t *testing.T) {
		p := newRoutePod(t, "eth1", "eth2")
		p.within(func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "br0"
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
				return err
			}
			return netlink.LinkSetMaster(p.link("eth1"), p.link("br0"))
		})
		if missing := p.mend(want(t, blue, red), red4); !slices.Equal(missing, []string{"eth1"}) {
			t.Errorf("without routes: %v, want eth1", missing)
		}
	})
	t.Run("two interfaces in one network, in any order", func(t *testing.T) {
		p := newRoutePod(t, "eth1", "eth2")
		again := "eth2 10.50.0.0/24@10.50.0.1"
		p.mend(want(t, blue, again), blue4, blue6)
		p.mend(want(t, again, blue), blue4, blue6)
	})
	t.Run("the network is deleted", func(t *testing.T) {
		p := newRoutePod(t, "eth1")
		p.mend(want(t, blue+" | 10.60.0.0/24"), blue4, blue6, "10.60.0.0/24 via 10.50.0.1 dev eth1 ours")
		p.mend(want(t, "eth1 10.50.0.0/24 fd50::/64"), blue4, blue6)
	})
	t.Run("the namespace is gone", func(t *testing.T) {
		for _, path := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
			w := want(t, blue)
			w.Netns = path
			if missing, err := w.mend(); err != nil || !slices.Equal(missing, []string{"eth1"}) {
				t.Errorf("%s: %v %v", path, missing, err)
			}
		}
	})
	t.Run("a flood of routes", func(t *testing.T) {
		p := newRoutePod(t, "eth1")
		p.within(func() error {
			for i := range 3000 {
				if err := netlink.RouteAdd(p.route(fmt.Sprintf("10.70.%d.%d/32 via 10.50.0.1 dev eth1 ours onlink", i/256,
					i%256))); err != nil {
					return err
				}
			}
			return nil
		})
		p.mend(want(t, blue+" | 10.60.0.0/24"), blue4, blue6, "10.60.0.0/24 via 10.50.0.1 dev eth1 ours")
	})
}

// TestMendRoutesOfPod corrects the routes of a Pod that ADD has made, except while a request for its container runs.
func TestMendRoutesOfPod(t *testing.T) {
	r := newRig(t)
	f := r.withExtras()
	netns, remove := r.netns()
	env := environment("c1", netns)
	r.must("ADD", env, r.conf(nil))
	p := &routePod{t, netns}
	mend := func(joined string) error {
		t.Helper()
		return r.server.MendRoutes(t.Context(), "c1", func() (w PodRoutes, _ bool) {
			w.Netns = netns
			for _, x := range f.list {
				x.PortName = r.node.attached[ipam.Key{ContainerID: "c1", IfName: x.IfName}].PortName
				x.Joined = nil
				if x.IfName == "eth1" {
					x.Joined = []netip.Prefix{netip.MustParsePrefix(joined)}
				}
				w.Interfaces = append(w.Interfaces, x.Routes)
			}
			return w, true
		})
	}
	further := func(joined ...string) {
		t.Helper()
		want := []string{"10.50.0.0/24 via 10.50.0.1 dev eth1 ours", "10.51.0.0/24 via 10.51.0.1 dev eth2 ours",
			"fd50::/64 via fd50::1 dev eth1 ours"}
		for _, to := range joined {
			gateway := "10.50.0.1"
			if strings.Contains(to, ":") {
				gateway = "fd50::1"
			}
			want = append(want, to+" via "+gateway+" dev eth1 ours")
		}
		have := slices.DeleteFunc(p.have(), func(text string) bool { return strings.HasSuffix(text, " dev eth0") })
		if slices.Sort(want); !slices.Equal(have, want) {
			t.Errorf("routes\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
		}
	}
	further("10.52.0.0/24", "fd52::/64")
	if err := mend("10.60.0.0/24"); err != nil {
		t.Fatal(err)
	}
	further("10.60.0.0/24")
	p.put("10.52.0.0/24 via 10.50.0.1 dev eth1 static")
	r.must("ADD", env, r.conf(nil)) // again
	p.drop("10.52.0.0/24 via 10.50.0.1 dev eth1 static")
	further("fd52::/64")

	unlock, err := r.server.lock(t.Context(), ipam.Key{ContainerID: "c1", IfName: defaultIfName})
	if err != nil {
		t.Fatal(err)
	}
	if err := mend("10.61.0.0/24"); !errors.Is(err, ErrBusy) {
		t.Errorf("during a request: %v", err)
	}
	further("fd52::/64")
	unlock()
	r.must("DEL", env, r.conf(nil))
	remove()
	if err := mend("10.61.0.0/24"); err != nil {
		t.Errorf("after DEL: %v", err)
	}
	r.clean()
}

// TestRoutesFail has an ADD fail at its routes, since an interface goes meanwhile. Nothing of the Pod remains.
func TestRoutesFail(t *testing.T) {
	r := newRig(t)
	f := r.withExtras()
	netns, _ := r.netns()
	f.before = func(x Extra) {
		if x.IfName != "eth2" {
			return
		}
		r.eventually("eth1 is whole", func() (whole bool) {
			within(t, netns, func() {
				rules, err := netlink.RuleList(netlink.FAMILY_V6) // its last one
				whole = err == nil && slices.ContainsFunc(rules, func(r netlink.Rule) bool {
					return r.Src != nil && r.Src.IP.String() == "fd50::2"
				})
			})
			return whole && slices.ContainsFunc(r.node.Attachments(), func(a Attachment) bool { return a.IfName == "eth1" })
		})
		link, err := netlink.LinkByName(PortName("web-5d8f7c", "c1", "eth1"))
		if err != nil || netlink.LinkDel(link) != nil {
			t.Errorf("remove eth1: %v", err)
		}
	}
	_, err := r.exec("ADD", environment("c1", netns), r.conf(nil))
	if err == nil || !strings.HasPrefix(err.Msg,
		"add Pod default/web-5d8f7c: add its routes: interfaces eth1 are not there, are down, or are in a bridge or a VRF") {
		t.Errorf("ADD: %v", err)
	}
	r.clean()
}
