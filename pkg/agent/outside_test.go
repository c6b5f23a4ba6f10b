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
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
)

// outsideView is testView with Services for clients outside of the Pods' network.
func outsideView() View {
	v := testView()
	v.Config.AntreaProxy.ProxyAll = true
	v.Underlay.Local = nil
	for _, ip := range []string{
		"192.168.78.101", "172.18.0.5", "10.11.0.1", "127.0.0.1", "169.254.1.1", "203.0.113.9", "198.51.100.7",
	} {
		v.Underlay.Local = append(v.Underlay.Local, netip.MustParseAddr(ip))
	}
	s := v.Services[0]
	s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	s.Spec.Ports[0].NodePort = 30080
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
	s.Spec.ExternalIPs = []string{"198.51.100.7"}
	v.EndpointSlices[0].Endpoints[0].NodeName = new("node-1")
	return v
}

// planned are the tables of a view.
func planned(v View) *tables {
	t := newTables(v.Config, v.NodeName)
	t.set(v)
	t.engine.Pass()
	return t
}

// translated lists what the host translates of Service web.
func translated(t *testing.T, v View) (out []string) {
	t.Helper()
	tables := planned(v)
	list, _ := tables.outside.translations.Get(derive.Object{Namespace: "default", Name: "web"})
	for _, one := range list {
		text := fmt.Sprintf("%s %s:%d %s %s", one.Protocol, one.Address, one.Port, one.To, one.ToOwn)
		for _, row := range tables.flows.Services.Entries.All() {
			text = strings.ReplaceAll(text, fmt.Sprintf(":%d", row.Value), ":number of "+row.Key.VIP.Addr().String())
		}
		out = append(out, text)
	}
	return out
}

// TestOutside has the parts of this Node that serve clients outside.
func TestOutside(t *testing.T) {
	v := outsideView()
	d, problems := Plan(v)
	if len(problems) > 0 {
		t.Error(problems)
	}
	// Not the gateway port's, not 127.0.0.1, nothing link-local, not the load balancer's, but an external address.
	var have []string
	for _, ip := range d.Node.NodePortAddresses {
		have = append(have, ip.String())
	}
	if diff := cmp.Diff([]string{"172.18.0.5", "192.168.78.101", "198.51.100.7"}, have); diff != "" {
		t.Errorf("addresses of node ports (-want +have):\n%s", diff)
	}
	if !d.Node.Outside || d.Node.ServiceSource.String() != "10.11.0.254" {
		t.Errorf("node: %v, service source %s", d.Node.Outside, d.Node.ServiceSource)
	}
	if !slices.Equal(d.Node.NodePortAddresses, d.Host.Services.NodeAddresses) ||
		d.Host.Services.Link != "antrea-gw0" || d.Host.Sysctls["net/ipv4/conf/antrea-gw0/route_localnet"] != "1" {
		t.Errorf("host: %+v, %v", d.Host.Services, d.Host.Sysctls)
	}
	isToEntries := func(r hostnet.Route) bool { return r.Dst == datapath.EntryRange && r.Gateway == serviceVIP }
	if !slices.ContainsFunc(d.Host.Routes, isToEntries) {
		t.Errorf("no route to the entries: %v", d.Host.Routes)
	}
	want := []string{
		"tcp invalid IP:30080 169.254.0.252:30080 169.254.0.251:30080",
		"tcp 198.51.100.7:80 169.254.0.250:number of 198.51.100.7 169.254.0.249:number of 198.51.100.7",
		"tcp 203.0.113.9:80 169.254.0.250:number of 203.0.113.9 169.254.0.249:number of 203.0.113.9",
	}
	if diff := cmp.Diff(want, translated(t, v)); diff != "" {
		t.Errorf("translations (-want +have):\n%s", diff)
	}

	t.Run("the host is the endpoint", func(t *testing.T) {
		v := outsideView()
		v.EndpointSlices[0].Endpoints[0].Addresses = []string{"192.168.78.101"}
		for i, to := range []string{
			"169.254.0.252:30080", "169.254.0.250:number of 198.51.100.7", "169.254.0.250:number of 203.0.113.9",
		} {
			want[i] = strings.Replace(want[i], to, "192.168.78.101:8080", 1)
		}
		if diff := cmp.Diff(want, translated(t, v)); diff != "" {
			t.Errorf("translations (-want +have):\n%s", diff)
		}
	})
	t.Run("the host is the endpoint, with a policy", func(t *testing.T) {
		v := outsideView()
		v.EndpointSlices[0].Endpoints[0].Addresses = []string{"192.168.78.101"}
		p := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		p.Spec = crdv1beta1.PolicySpec{Priority: 5,
			AppliedTo: []crdv1beta1.AppliedTo{{Service: &crdv1beta1.ObjectReference{Namespace: "default", Name: "web"}}},
			Ingress:   []crdv1beta1.Rule{{Action: crdv1beta1.ActionDrop}}}
		v.Others = append(v.Others, p)
		for _, one := range translated(t, v) {
			if strings.Contains(one, "192.168.78.101") {
				t.Errorf("clients do not pass the switch, which judges them: %s", one)
			}
		}
	})
	t.Run("no load balancers", func(t *testing.T) {
		v := outsideView()
		v.Config.AntreaProxy.ProxyLoadBalancerIPs = false
		if have := translated(t, v); len(have) != 2 || strings.Contains(fmt.Sprint(have), "203.0.113.9") {
			t.Errorf("translations: %q", have)
		}
	})
	t.Run("some addresses", func(t *testing.T) {
		v := outsideView()
		v.Config.AntreaProxy.NodePortAddresses = []string{"192.168.0.0/16"}
		if d, _ := Plan(v); fmt.Sprint(d.Node.NodePortAddresses) != "[192.168.78.101]" {
			t.Errorf("addresses of node ports: %v", d.Node.NodePortAddresses)
		}
	})
	t.Run("the service source is a Pod's", func(t *testing.T) {
		v := outsideView()
		v.Attachments[0].IPs = []netip.Prefix{netip.MustParsePrefix("10.11.0.254/24")}
		d, problems := Plan(v)
		if d.Node.ServiceSource.String() != "10.11.0.1" || len(problems) != 1 ||
			problems[0].Reason.String() != "ServiceSourceTaken" {
			t.Errorf("service source %s, %v", d.Node.ServiceSource, problems)
		}
	})
	t.Run("off by default", func(t *testing.T) {
		v := outsideView()
		v.Config.AntreaProxy.ProxyAll = false
		d, _ := Plan(v)
		if d.Node.Outside || d.Host.Services.Link != "" || len(translated(t, v)) != 0 || len(d.Frontends) != 1 {
			t.Errorf("clients outside are served: %+v", d.Node)
		}
		if d.Network == nil || fmt.Sprint(d.Network.Reserved) != "[10.11.0.254]" {
			t.Errorf("a new Pod could get the service source: %+v", d.Network)
		}
	})
}

// TestOutsideDual has the parts of this Node that serve clients outside by both versions of IP.
func TestOutsideDual(t *testing.T) {
	v := dualView()
	four := outsideView()
	v.Config, v.Underlay = four.Config, four.Underlay
	for _, ip := range []string{"2001:db8:78::101", "fd11::1", "::1", "2001:db8:203::9", "2001:db8:198::7"} {
		v.Underlay.Local = append(v.Underlay.Local, netip.MustParseAddr(ip))
	}
	s := v.Services[0]
	four.Services[0].Spec.DeepCopyInto(&s.Spec)
	four.Services[0].Status.DeepCopyInto(&s.Status)
	s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "fd97::10")
	s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, "2001:db8:198::7")
	s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
		corev1.LoadBalancerIngress{IP: "2001:db8:203::9"})
	for i := range v.EndpointSlices {
		v.EndpointSlices[i].Endpoints[0].NodeName = new("node-1")
	}
	v.EndpointSlices[1].Endpoints[0].Addresses = []string{"2001:db8:78::101"} // the host

	d, problems := Plan(v)
	if len(problems) > 0 {
		t.Error(problems)
	}
	const nodePorts = "[172.18.0.5 192.168.78.101 198.51.100.7 2001:db8:78::101 2001:db8:198::7]"
	if have := fmt.Sprint(d.Node.NodePortAddresses); have != nodePorts {
		t.Errorf("addresses of node ports: %s, want %s", have, nodePorts)
	}
	if have := fmt.Sprint(d.Node.ServiceSource, d.Node.ServiceSource6); have != "10.11.0.254 fd11::ffff:ffff:ffff:fffe" {
		t.Errorf("service sources: %s", have)
	}
	if h := d.Host.Services; h.Families != family.Dual || len(h.Entries) != 2 || fmt.Sprint(h.NodeAddresses) != nodePorts {
		t.Errorf("host: %+v", h)
	}
	for _, want := range []hostnet.Route{
		{Dst: datapath.EntryRange, Gateway: serviceVIP, Link: "antrea-gw0", OnLink: true},
		{Dst: datapath.EntryRange6, Gateway: serviceVIP6, Link: "antrea-gw0", OnLink: true},
	} {
		if !slices.Contains(d.Host.Routes, want) {
			t.Errorf("no route %+v", want)
		}
	}
	if have := fmt.Sprint(d.Network.Reserved); have != "[10.11.0.254 fd11::ffff:ffff:ffff:fffe]" {
		t.Errorf("new Pods do not get %s", have)
	}
	want := []string{
		"tcp invalid IP:30080 169.254.0.252:30080 169.254.0.251:30080",
		"tcp 198.51.100.7:80 169.254.0.250:number of 198.51.100.7 169.254.0.249:number of 198.51.100.7",
		"tcp 203.0.113.9:80 169.254.0.250:number of 203.0.113.9 169.254.0.249:number of 203.0.113.9",
		"tcp invalid IP:30080 [2001:db8:78::101]:8080 [fc01::aabb:ccdd:eefd]:30080",
		"tcp 2001:db8:198::7:80 [2001:db8:78::101]:8080 [fc01::aabb:ccdd:eefb]:number of 2001:db8:198::7",
		"tcp 2001:db8:203::9:80 [2001:db8:78::101]:8080 [fc01::aabb:ccdd:eefb]:number of 2001:db8:203::9",
	}
	if diff := cmp.Diff(want, translated(t, v)); diff != "" {
		t.Errorf("translations (-want +have):\n%s", diff)
	}

	v.Config.AntreaProxy.NodePortAddresses = []string{"2001:db8:78::/64"}
	if d, _ := Plan(v); fmt.Sprint(d.Node.NodePortAddresses) != "[2001:db8:78::101]" {
		t.Errorf("addresses of node ports: %v", d.Node.NodePortAddresses)
	}
	v.Attachments[0].IPs[1] = netip.MustParsePrefix("fd11::ffff:ffff:ffff:fffe/64")
	d, problems = Plan(v)
	if d.Node.ServiceSource.String() != "10.11.0.254" || d.Node.ServiceSource6.String() != "fd11::1" ||
		len(problems) != 1 || problems[0].Reason.String() != "ServiceSourceTaken" {
		t.Errorf("service sources %s, %s, %v", d.Node.ServiceSource, d.Node.ServiceSource6, problems)
	}
	v.Config.DefaultMTU = 1279 // too small for IPv6
	if d, _ := Plan(v); d.Host.Services.Families != family.IPv4 || d.Node.ServiceSource6.IsValid() {
		t.Errorf("without IPv6: %+v", d.Host.Services)
	}
}

// TestDrain keeps what serves clients outside until their last connection has ended.
func TestDrain(t *testing.T) {
	leads := func(is bool, err error) func(string, netip.Prefix) (bool, error) {
		return func(link string, entries netip.Prefix) (bool, error) {
			if link != "antrea-gw0" || !slices.Contains(datapath.EntryRanges(family.Dual), entries) {
				t.Errorf("asked for a route to %s by %s", entries, link)
			}
			return is && entries == datapath.EntryRange6, err
		}
	}
	for _, row := range []struct {
		name     string
		proxyAll bool
		leads    func(string, netip.Prefix) (bool, error)
		want     bool
	}{
		{"a route is there", false, leads(true, nil), true},
		{"none", false, leads(false, nil), false},
		{"unknown", false, leads(false, errors.New("no answer")), true},
		{"still served", true, leads(true, nil), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := outsideView()
			v.Config.AntreaProxy.ProxyAll = row.proxyAll
			tables := planned(v)
			open := tables.outside.servedBefore(slog.New(slog.DiscardHandler), row.leads)
			tables.engine.Pass()
			node, _ := tables.node.Get(self)
			if open != row.want || node.Outside != (row.want || row.proxyAll) {
				t.Errorf("open %v, the Node serves clients outside: %v", open, node.Outside)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		v := outsideView()
		v.Config.AntreaProxy.ProxyAll = false
		tables := planned(v)
		tables.outside.open.Set(self, true)
		isOpen := func() bool {
			tables.engine.Pass()
			node, _ := tables.node.Get(self)
			return node.Outside
		}
		translated, counts := true, []int{2, -1, 1, 0} // -1: cannot be counted
		var log bytes.Buffer
		removed := make(chan struct{})
		d := &drain{log: slog.New(slog.NewTextHandler(&log, nil)),
			untranslated: func(ctx context.Context) error {
				if translated {
					translated = false
					return errors.New("nft is not there")
				}
				select {
				case <-removed:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
			count: func() (n int, err error) {
				if n, counts = counts[0], counts[1:]; n < 0 {
					return 0, errors.New("interrupted")
				}
				return n, nil
			}}
		go d.run(t.Context(), tables.outside.open)
		time.Sleep(time.Hour)
		if open := isOpen(); !open || len(counts) != 4 {
			t.Errorf("connections are counted while they may begin: %v left, open %v", counts, open)
		}
		close(removed)
		time.Sleep(4*drainInterval - time.Second)
		if !isOpen() {
			t.Errorf("not open although %v are left", counts)
		}
		time.Sleep(2 * time.Second)
		if open := isOpen(); open || len(counts) != 0 {
			t.Errorf("open %v, %v are left: %s", open, counts, &log)
		}
	})
}
