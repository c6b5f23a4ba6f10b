package agent

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
)

// ends returns where traced packets end: "source > destination at its end: to a port", or "dropped in" a table.
func (a *asked) ends(t *testing.T, list []api.Trace) (out []string) {
	t.Helper()
	var ports api.PortList
	if e := a.get(api.PathPorts, &ports); e != "" {
		t.Fatal(e)
	}
	for _, trace := range list {
		o, err := appctl.ParseTrace(trace.Output)
		if err != nil {
			t.Fatalf("%s: %v", trace.Flow, err)
		}
		text := "dropped in " + datapath.Program.Name(ofp.Table(o.Last().Table))
		switch _, taken := datapath.TakenAs(o.Userdata); {
		case o.Back:
			text = "back"
		case taken:
			text = "to the agent"
		case o.Output != 0:
			i := slices.IndexFunc(ports.Ports, func(p api.Port) bool { return p.OFPort == int64(o.Output) })
			text = "to " + cmp.Or(ports.Ports[i].Pod, ports.Ports[i].Name)
		}
		for _, field := range []string{"tun_dst", "tun_ipv6_dst"} {
			far := o.Fields[field]
			if strings.HasPrefix(text, "to tombolo-tun0") && !slices.Contains([]string{"", "0.0.0.0", "::"}, far) {
				text += " " + far
			}
		}
		out = append(out, fmt.Sprintf("%s > %s: %s", cmp.Or(o.Fields["ipv6_src"], o.Fields["nw_src"]),
			cmp.Or(o.Fields["ipv6_dst"], o.Fields["nw_dst"]), text))
	}
	return out
}

// TestTrace follows packets of both versions of IP through a real switch.
func TestTrace(t *testing.T) {
	a := newAskedOf(t, family.Dual, func(c *config.Config) {
		c.AntreaProxy.ProxyAll = true
	})
	web4, web6 := a.web.IPs[0].Addr().String(), a.web.IPs[1].Addr().String()
	db4, db6 := a.db.IPs[0].Addr().String(), a.db.IPs[1].Addr().String()
	for name, ip := range map[string]string{ownName: "fd78::101", "node-2": "fd78::102"} {
		n := a.world.nodes[name].DeepCopy()
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		a.world.nodes[name] = n
	}
	a.serve("store", db4, db6)
	store := a.world.services["default/store"].DeepCopy()
	store.Spec.Type, store.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
	a.world.services["default/store"] = store
	a.settle()
	trace := func(query string, want ...string) {
		t.Helper()
		var list api.TraceList
		if e := a.get(api.PathTraces+"?"+query, &list); e != "" {
			t.Errorf("%s: %s", query, e)
		} else if have := a.ends(t, list.Traces); !slices.Equal(have, want) {
			t.Errorf("%s: have %q, want %q\n%+v", query, have, want, list)
		}
	}
	trace("from=default/web&to=default/db&port=5432", web4+" > "+db4+": to default/db", web6+" > "+db6+": to default/db")
	trace("from=default/web&to=default/db&port=main&family=ipv6", web6+" > "+db6+": to default/db")
	trace("from=default/web&to="+db6+"&port=5432", web6+" > "+db6+": to default/db")
	trace("from=default/web&to="+db4+"&port=5432", web4+" > "+db4+": to default/db")
	trace("from=default/web&to="+db6+"&port=80", web6+" > "+db6+": dropped in IngressRule")
	trace("from=default/db&to=default/web&protocol=icmp", db4+" > "+web4+": to default/web",
		db6+" > "+web6+": to default/web")
	trace("from=default/db&to=default/web&protocol=udp&port=53&family=ipv6", db6+" > "+web6+": to default/web")
	trace("from=default/web&to=default/store", web4+" > "+db4+": to default/db", web6+" > "+db6+": to default/db")
	trace("from=default/web&to=fd97::10&port=80", web6+" > "+db6+": to default/db")
	trace("from=node/node-1&to=default/store&family=ipv6", "fd11:0:0:1::1 > "+db6+": to default/db")
	trace("from=default/db&to=2001:db8::7&port=443", db6+" > 2001:db8::7: to antrea-gw0")
	trace("from=default/db&to=default/far&port=80", db4+" > 10.11.2.9: to tombolo-tun0 192.168.78.102",
		db6+" > fd11:0:0:2::9: to tombolo-tun0 192.168.78.102")
	trace("from=default/far&to=default/db&port=5432", "10.11.2.9 > "+db4+": to default/db",
		"fd11:0:0:2::9 > "+db6+": to default/db")
	trace("from=2001:db8:5::7&to=node/node-1&port=30080", "2001:db8:5::7 > "+db6+": to default/db")
	trace("from=203.0.113.7&to=node/node-1&port=30080", "203.0.113.7 > "+db4+": dropped in IngressRule")
	trace("from=default/web&to=node/node-1&port=30080", web4+" > "+db4+": to default/db", web6+" > "+db6+": to default/db")
	trace("from=2001:db8:6::7&to=default/db&port=5432", "2001:db8:6::7 > "+db6+": dropped in IngressRule")
	trace("from=2001:db8:5::7&to=default/db&port=5432", "2001:db8:5::7 > "+db6+": to default/db")
	for name, ip := range map[string]string{ownName: "fd78::101", "node-2": "fd78::102"} {
		n := a.world.nodes[name].DeepCopy()
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
		a.world.nodes[name] = n
	}
	a.settle()
	trace("from=default/db&to=default/far&port=80", "10.11.1.3 > 10.11.2.9: to tombolo-tun0 fd78::102",
		"fd11:0:0:1::3 > fd11:0:0:2::9: to tombolo-tun0 fd78::102")
	trace("from=default/far&to=default/db&port=5432", "10.11.2.9 > "+db4+": to default/db",
		"fd11:0:0:2::9 > "+db6+": to default/db")
	for query, want := range map[string]string{
		"from=" + web6 + "&to=" + db4 + "&port=1":            "no version of IP is common to them",
		"from=default/web&to=" + db4 + "&port=1&family=ipv6": "family: not both ends have an address of IPv6",
		"from=default/web&to=default/db&port=1&family=5":     `family "5" is not one of IPv4 and IPv6`,
		"from=default/web&to=default/db":                     "port is missing",
		"from=default/far&to=2001:db8::7&port=1": "2001:db8::7 is not of this Node: ask the agent of " +
			"Node node-2",
		"from=default/far&to=default/store": "which chooses the endpoint of Service default/store: ask the agent of Node " +
			"node-2",
		"to=default/db&port=1": "from is missing",
	} {
		if e := a.get(api.PathTraces+"?"+query, &api.TraceList{}); !strings.Contains(e, want) {
			t.Errorf("%s: %q, want %q", query, e, want)
		}
	}
	const mixed = "a packet has fields of one version of IP"
	for packet, want := range map[string]string{
		"in_port=1,tcp,nw_src=10.0.0.1,ipv6_dst=fd00::1":        mixed,
		"in_port=1,tcp6,nw_dst=10.0.0.1":                        mixed,
		"in_port=1,tcp6,ipv6_dst=10.0.0.1":                      mixed,
		"in_port=1,tcp,nw_dst=fd00::1":                          mixed,
		"in_port=1,icmp6,ipv6_dst=fd00::1,icmp_type=128":        mixed,
		"in_port=1,icmp6,ipv6_dst=fd00::1,icmpv6_type=128":      "",
		"in_port=1,tcp,nw_dst=10.0.0.1,tp_dst=http-and-so-on":   "bad value for tp_dst",
		"in_port=1,tcp6,ipv6_src=fd00::2,ipv6_dst=fd00::1,x=80": "x",
	} {
		e := a.get(api.PathTrace+"?flow="+url.QueryEscape(packet), &api.Trace{})
		if (want == "") != (e == "") || !strings.Contains(e, want) || want != mixed && strings.Contains(e, mixed) {
			t.Errorf("%s: %q, want %q", packet, e, want)
		}
	}
}
