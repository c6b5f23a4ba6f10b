package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// hostPort is a port of the Node at every address, or at one.
func hostPort(protocol string, port, container uint16, at ...string) cni.HostPort {
	p := cni.HostPort{Protocol: protocol, Port: port, Container: container}
	for _, text := range at {
		p.HostIP = netip.MustParseAddr(text)
	}
	return p
}

// TestHostPorts has the ports of this Node that lead to its Pods, and what is wrong with some.
func TestHostPorts(t *testing.T) {
	view := func(ports ...cni.HostPort) View {
		v := outsideView()
		v.Config.AntreaProxy.ProxyAll = false
		v.Attachments[0].HostPorts = ports
		return v
	}
	second := func(v *View, ports ...cni.HostPort) {
		a := v.Attachments[0]
		a.ContainerID, a.PodName, a.PortName, a.MAC = "c2", "xray", "xray-d4e5f6", "02:00:00:00:00:03"
		a.IPs, a.HostPorts = []netip.Prefix{netip.MustParsePrefix("10.11.0.3/24")}, ports
		v.Attachments = append(v.Attachments, a)
		v.Switch.Bridges["br-int"].Ports["xray-d4e5f6"] = bridge.PortState{OFPort: 2}
	}
	for _, row := range []struct {
		name     string
		ports    []cni.HostPort
		change   func(*View)
		want     []string
		problems []string // object, field, reason, and a part of the message
	}{
		{name: "protocols and addresses", ports: []cni.HostPort{hostPort("tcp", 80, 8080), hostPort("udp", 80, 53),
			hostPort("sctp", 81, 9, "127.0.0.1"), hostPort("tcp", 82, 8080, "172.18.0.5")},
			want: []string{"80 tcp 10.11.0.2:8080", "80 udp 10.11.0.2:53", "127.0.0.1:81 sctp 10.11.0.2:9",
				"172.18.0.5:82 tcp 10.11.0.2:8080"}},
		{name: "an address of another Node", ports: []cni.HostPort{hostPort("tcp", 80, 80, "192.168.78.102")},
			want: []string{"192.168.78.102:80 tcp 10.11.0.2:80"},
			problems: []string{"Pod default/web spec.containers[].ports[].hostIP HostIPNotOnNode " +
				"port 80/tcp is at 192.168.78.102"}},
		{name: "an address of IPv6", ports: []cni.HostPort{hostPort("tcp", 80, 80, "::1"), hostPort("tcp", 81, 81)},
			want: []string{"81 tcp 10.11.0.2:81"},
			problems: []string{"Pod default/web spec.containers[].ports[].hostIP HostIPNotServed " +
				"port 80/tcp of this Node is not opened at ::1"}},
		{name: "both versions of IP", ports: []cni.HostPort{hostPort("tcp", 80, 8080),
			hostPort("udp", 53, 5353, "2001:db8:78::101"), hostPort("tcp", 82, 82, "::1"), hostPort("tcp", 83, 83, "127.0.0.1"),
			hostPort("tcp", 84, 84, "fe80::1")},
			change: func(v *View) {
				six := dualView()
				v.Nodes, v.Attachments[0].IPs = six.Nodes, six.Attachments[0].IPs
				v.Underlay.Local = append(v.Underlay.Local, netip.MustParseAddr("2001:db8:78::101"))
			},
			want: []string{"80 tcp 10.11.0.2:8080", "80 tcp [fd11::2]:8080", "[2001:db8:78::101]:53 udp [fd11::2]:5353",
				"[::1]:82 tcp [fd11::2]:82", "127.0.0.1:83 tcp 10.11.0.2:83"},
			problems: []string{"Pod default/web spec.containers[].ports[].hostIP HostIPNotServed " +
				"port 84/tcp of this Node is not opened at fe80::1, since replies"}},
		{name: "two Pods", ports: []cni.HostPort{hostPort("tcp", 80, 80), hostPort("udp", 80, 80)}, change: func(v *View) {
			second(v, hostPort("tcp", 80, 81), hostPort("tcp", 81, 81))
		}, want: []string{"80 tcp 10.11.0.2:80", "80 udp 10.11.0.2:80", "81 tcp 10.11.0.3:81"},
			problems: []string{"Pod default/xray spec.containers[].ports[].hostPort HostPortTaken " +
				"port 80/tcp of this Node leads to Pod default/web"}},
		{name: "a node port", ports: []cni.HostPort{hostPort("tcp", 30080, 80), hostPort("udp", 30080, 80)},
			change: func(v *View) { v.Config.AntreaProxy.ProxyAll = true },
			want:   []string{"30080 tcp 10.11.0.2:80", "30080 udp 10.11.0.2:80"},
			problems: []string{"Pod default/web spec.containers[].ports[].hostPort HostPortIsNodePort " +
				"port 30080/tcp of this Node leads to this Pod, and not to Service default/web"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := view(row.ports...)
			if row.change != nil {
				row.change(&v)
			}
			tables := planned(v)
			var have []string
			for _, one := range tables.hostPorts.mapped.All() {
				for _, p := range one.Value {
					at := fmt.Sprint(p.Port)
					if p.Address.IsValid() {
						at = netip.AddrPortFrom(p.Address, p.Port).String()
					}
					have = append(have, fmt.Sprintf("%s %s %s", at, p.Protocol, p.To))
				}
			}
			if diff := cmp.Diff(row.want, have); diff != "" {
				t.Errorf("ports (-want +have):\n%s", diff)
			}
			problems := tables.engine.Problems()
			if len(problems) != len(row.problems) {
				t.Fatalf("problems %v, want %q", problems, row.problems)
			}
			for i, p := range problems {
				if text := fmt.Sprintf("%s %s %s %s", p.Object, p.Field, p.Reason, p.Message); !strings.HasPrefix(text,
					row.problems[i]) {
					t.Errorf("problem %q, want %q", text, row.problems[i])
				}
			}
			host, _ := tables.outputs.host.Get(self)
			if host.HostPorts.Link != "antrea-gw0" || host.Sysctls["net/ipv4/conf/antrea-gw0/route_localnet"] != "1" {
				t.Errorf("host: %+v, %v", host.HostPorts, host.Sysctls)
			}
			if pod, _ := tables.flows.ServedPods.Get("web-a1b2c3"); !pod.Pod.HostPorts {
				t.Error("the Pod's replies would not leave by the host")
			}
		})
	}
	t.Run("IPv6 alone", func(t *testing.T) {
		v := dualView()
		v.Attachments[0].HostPorts = []cni.HostPort{hostPort("tcp", 80, 80, "2001:db8:78::101")}
		d, _ := Plan(v)
		if d.Host.HostPorts.Families != family.IPv6 || d.Host.Sysctls["net/ipv4/conf/antrea-gw0/route_localnet"] != "0" {
			t.Errorf("host: %+v, %v", d.Host.HostPorts, d.Host.Sysctls)
		}
	})
	t.Run("none", func(t *testing.T) {
		d, _ := Plan(view())
		if local := d.Host.Sysctls["net/ipv4/conf/antrea-gw0/route_localnet"]; local != "0" || d.Host.HostPorts.Link != "" {
			t.Errorf("host: %+v, %v", d.Host.HostPorts, d.Host.Sysctls)
		}
	})
}

// TestUnmapped detaches a Pod whose ports of the Node the host cannot close: DEL must not fail or hang.
func TestUnmapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var warned bytes.Buffer
		n := &cniNode{host: hostnet.New(hostnet.Options{}), progress: newProgress(),
			log: slog.New(slog.NewTextHandler(&warned, nil))}
		at := cni.Attachment{PodNamespace: "default", PodName: "web",
			HostPorts: cni.HostPorts{hostPort("udp", 53, 53)}}
		n.host.MapPorts("web-0", nil)
		n.host.MapPorts("web-1", []hostnet.HostPort{{Protocol: "udp", Port: 53,
			To: netip.MustParseAddrPort("10.11.0.2:53")}})
		begun := time.Now()
		n.unmapped(t.Context(), at)
		if took := time.Since(begun); took != 0 || warned.Len() > 0 {
			t.Errorf("before the first complete plan it took %s: %s", took, &warned)
		}
		n.progress.release()
		n.unmapped(t.Context(), at)
		if took := time.Since(begun); took != unmapWait || !strings.Contains(warned.String(), "default/web") {
			t.Errorf("it took %s, want %s: %s", took, unmapWait, &warned)
		}
	})
}

// TestTranslated attaches a Pod whose own network is a VirtualNetwork while the host has not written its rules. ADD
// waits for these, but not for ever. Other interfaces do not wait.
func TestTranslated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var warned bytes.Buffer
		n := &cniNode{host: hostnet.New(hostnet.Options{}), log: slog.New(slog.NewTextHandler(&warned, nil))}
		n.host.Set(hostnet.Desired{Masquerade: hostnet.Masquerade{
			Always: []netip.Prefix{netip.MustParsePrefix("10.50.0.2/32")}}})
		begun := time.Now()
		for _, at := range []cni.Attachment{{IfName: "eth0"}, {IfName: "net1", VirtualNetwork: "a/blue"}} {
			n.translated(t.Context(), at)
		}
		if took := time.Since(begun); took != 0 || warned.Len() > 0 {
			t.Errorf("other interfaces took %s: %s", took, &warned)
		}
		at := cni.Attachment{IfName: "eth0", PodNamespace: "a", PodName: "web", VirtualNetwork: "a/blue"}
		n.translated(t.Context(), at)
		if took := time.Since(begun); took != hostWait || !strings.Contains(warned.String(), "a/web") {
			t.Errorf("it took %s, want %s: %s", took, hostWait, &warned)
		}
	})
}

// TestHostPortTaken attaches Pods that ask for a port of the Node.
func TestHostPortTaken(t *testing.T) {
	v := testView()
	a := newAttachments(nil, newTables(v.Config, v.NodeName), func() map[string]bridge.PortState { return nil })
	pod := func(name string, ports ...cni.HostPort) cni.Attachment {
		return cni.Attachment{ContainerID: name, IfName: "eth0", PodNamespace: "default", PodName: name,
			PortName: name + "-0", HostPorts: ports}
	}
	var taken *cni.HostPortTakenError
	first := pod("first", hostPort("tcp", 80, 80))
	for _, at := range []cni.Attachment{first, first, pod("second", hostPort("udp", 80, 80))} { // ADD may be repeated
		if err := a.put(at); err != nil {
			t.Error(err)
		}
	}
	third := pod("third", hostPort("tcp", 80, 81, "127.0.0.1"))
	if err := a.put(third); !errors.As(err, &taken) ||
		err.Error() != "spec.containers[].ports[].hostPort: Pod default/first has port 127.0.0.1:80/tcp of this Node" {
		t.Errorf("a port twice: %v", err)
	}
	if a.has(third) {
		t.Error("the Pod was attached")
	}
	if _, ok := a.tables.pods.attachments.Get(derive.Name(third.PortName)); ok {
		t.Error("the Pod is in the tables")
	}
	a.leave("first", "eth0")
	if err := a.put(third); err != nil {
		t.Errorf("after the first Pod has gone: %v", err)
	}
}
