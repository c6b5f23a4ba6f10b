package datapath

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
)

// walk is a packet and the results of connection tracking for it, look-up by look-up. After the last look-up the state
// is as before.
type walk struct {
	name string
	node int // of cluster east
	// direct is set if the Nodes have traffic mode noEncap.
	direct bool
	in     string
	from   string // source address; TCP and Pod MAC where in is a Pod
	to     string // destination address:port
	ct     []string
	mac    ofp.MAC // source MAC, if it differs from the MAC of in
	far    string  // the far end of a tunnel; empty for the other Node of east, or the peer
	want   string
}

var ports = map[string]ofp.Port{"pod1": 1, "pod2": 2, "gateway": gatewayPort, "tunnel": tunnelPort}

// text returns the packet in ovs-ofctl's words. It includes the hash, since a trace has no datapath that would compute
// it.
func (w walk) text() string {
	host, port, err := net.SplitHostPort(w.to)
	if err != nil {
		panic(err)
	}
	mac := map[string]ofp.MAC{"pod1": podMACOne, "pod2": podMACTwo, "gateway": gwMAC, "tunnel": gwMAC}[w.in]
	if w.mac != (ofp.MAC{}) {
		mac = w.mac
	}
	to, far := InClusterMAC, w.far
	if far == "" && strings.HasPrefix(w.from, "192.168.77.") {
		to, far = CrossClusterMAC, w.from
	}
	protocol, ip := "tcp", "nw"
	if strings.Contains(host, ":") {
		protocol, ip = "tcp6", "ipv6"
	}
	text := fmt.Sprintf(
		"dp_hash=1,in_port=%d,%s,dl_src=%s,dl_dst=%s,%s_src=%s,%s_dst=%s,nw_ttl=64,tp_src=40000,tp_dst=%s", ports[w.in],
		protocol, mac, to, ip, w.from, ip, host, port)
	if w.in == "tunnel" {
		ends := []string{"", eastOne.String(), eastTwo.String()}
		text += fmt.Sprintf(",tun_src=%s,tun_dst=%s,tun_id=0", cmp.Or(far, ends[3-w.node]), ends[w.node])
	}
	return text
}

// outcome returns the end of a trace in words.
func (w walk) outcome(t *testing.T, trace string) string {
	t.Helper()
	o, err := appctl.ParseTrace(trace)
	if err != nil {
		t.Fatal(err)
	}
	table := Program.Name(ofp.Table(o.Last().Table))
	out := ""
	switch _, taken := TakenAs(o.Userdata); {
	case o.Back:
		out = "back to " + w.in
	case taken:
		return "to the agent from " + table
	case o.Output != 0:
		out = "to " + portName(ofp.Port(o.Output))
	default:
		return "dropped in " + table
	}
	if strings.HasSuffix(out, "tunnel") {
		out += " " + o.Fields["tun_dst"]
	}
	if o.Fields["dl_dst"] == CrossClusterMAC.String() {
		out += " (cross-cluster)"
	}
	if six := o.Fields["ipv6_src"]; six != "" {
		return fmt.Sprintf("%s: [%s] > [%s]:%s", out, six, o.Fields["ipv6_dst"], o.Fields["tp_dst"])
	}
	return fmt.Sprintf("%s: %s > %s:%s", out, o.Fields["nw_src"], o.Fields["nw_dst"], o.Fields["tp_dst"])
}

func portName(number ofp.Port) string {
	for name, port := range ports {
		if port == number {
			return name
		}
	}
	return fmt.Sprint("port ", number)
}

// TestWalks asks a real switch where packets go. Rows read as questions about traffic.
func TestWalks(t *testing.T) {
	o := dummyBridge(t)
	programmed := walk{}
	for _, w := range []walk{
		{name: "Pod to the other Pod of its Node", node: 1, in: "pod1", from: "10.11.0.2", to: "10.11.0.3:80",
			ct: []string{"new"}, want: "to pod2: 10.11.0.2 > 10.11.0.3:80"},
		{name: "Pod using someone else's address", node: 1, in: "pod1", from: "10.11.0.3", to: "10.11.0.3:80",
			want: "dropped in Classify"},
		{name: "Pod using someone else's MAC", node: 1, in: "pod1", from: "10.11.0.2", to: "10.11.0.3:80", mac: podMACTwo,
			want: "dropped in Classify"},
		{name: "Pod to a Pod of another Node", node: 1, in: "pod1", from: "10.11.0.2", to: "10.11.1.2:80",
			ct: []string{"new"}, want: "to tunnel 192.168.78.102: 10.11.0.2 > 10.11.1.2:80"},
		{name: "Pod to the world", node: 1, in: "pod1", from: "10.11.0.2", to: "192.0.2.1:80", ct: []string{"new"},
			want: "to gateway: 10.11.0.2 > 192.0.2.1:80"},
		{name: "Pod to an address of its Node that no Pod has", node: 1, in: "pod1", from: "10.11.0.2", to: "10.11.0.77:80",
			ct: []string{"new"}, want: "dropped in Route"},
		{name: "invalid packets", node: 1, in: "pod1", from: "10.11.0.2", to: "10.11.0.3:80", ct: []string{"inv"},
			want: "dropped in ConntrackState"},
		{name: "from the tunnel to a Pod", node: 1, in: "tunnel", from: "10.11.1.2", to: "10.11.0.2:80", ct: []string{"new"},
			want: "to pod1: 10.11.1.2 > 10.11.0.2:80"},
		{name: "from the tunnel to the world", node: 1, in: "tunnel", from: "10.11.1.2", to: "192.0.2.1:80",
			ct: []string{"new"}, want: "dropped in Route"},
		{name: "host to a Pod", node: 1, in: "gateway", from: "10.11.0.1", to: "10.11.0.2:80", ct: []string{"new"},
			want: "to pod1: 10.11.0.1 > 10.11.0.2:80"},
		{name: "host to a ClusterIP that no Service has, which would go round for ever", node: 1, in: "gateway",
			from: "10.11.0.1", to: "10.97.0.99:80", ct: []string{"new"}, want: "dropped in Route"},
		{name: "Pod to a Service by UDP's port with TCP", node: 1, in: "pod1", from: "10.11.0.2", to: "10.97.0.12:53",
			ct: []string{"new"}, want: "to gateway: 10.11.0.2 > 10.97.0.12:53"},
		{name: "Pod to itself by a Service", node: 1, in: "pod1", from: "10.11.0.2", to: "10.97.0.11:80",
			ct: []string{"new", "new", "new"}, want: "back to pod1: 169.254.0.253 > 10.11.0.2:8080"},
		{name: "other Pod to the same Service", node: 1, in: "pod2", from: "10.11.0.3", to: "10.97.0.11:80",
			ct: []string{"new", "new"}, want: "to pod1: 10.11.0.3 > 10.11.0.2:8080"},
		{name: "Service without endpoints", node: 1, in: "pod1", from: "10.11.0.2", to: "10.97.0.13:80", ct: []string{"new"},
			want: "to the agent from Service"},
		{name: "Pod to the API server", node: 1, in: "pod1", from: "10.11.0.2", to: "10.97.0.1:443",
			ct: []string{"new", "new"}, want: "to gateway: 10.11.0.2 > 172.30.1.10:6443"},
		{name: "host to the API server", node: 1, in: "gateway", from: "10.11.0.1", to: "10.97.0.1:443",
			ct: []string{"new", "new", "new"}, want: "back to gateway: 169.254.0.253 > 172.30.1.10:6443"},
		{name: "Pod of a regular Node to another cluster", node: 1, in: "pod1", from: "10.11.0.2", to: "10.97.0.14:80",
			ct: []string{"new", "new"}, want: "to tunnel 192.168.78.102 (cross-cluster): 10.11.0.2 > 10.96.0.20:80"},
		{name: "on its Gateway", node: 2, in: "tunnel", from: "10.11.0.2", to: "10.96.0.20:80", ct: []string{"new", "new"},
			want: "back to tunnel 192.168.77.101 (cross-cluster): 192.168.78.102 > 10.96.0.20:80"},
		{name: "on its Gateway, later", node: 2, in: "tunnel", from: "10.11.0.2", to: "10.96.0.20:80",
			ct: []string{"est", "est"}, want: "back to tunnel 192.168.77.101 (cross-cluster): 192.168.78.102 > 10.96.0.20:80"},
		{name: "Pod of the Gateway to another cluster", node: 2, in: "pod1", from: "10.11.1.2", to: "10.97.0.14:80",
			ct: []string{"new", "new", "new"}, want: "to tunnel 192.168.77.101 (cross-cluster): 192.168.78.102 > 10.96.0.20:80"},
		{name: "host of the Gateway to another cluster", node: 2, in: "gateway", from: "10.11.1.1", to: "10.97.0.14:80",
			ct: []string{"new", "new", "new"}, want: "to tunnel 192.168.77.101 (cross-cluster): 192.168.78.102 > 10.96.0.20:80"},
		{name: "request of another cluster for a Pod of the Gateway", node: 2, in: "tunnel", from: "192.168.77.101",
			to: "10.97.0.11:80", ct: []string{"new", "new"}, want: "to pod1: 192.168.77.101 > 10.11.1.2:8080"},
		{name: "its reply", node: 2, in: "pod1", from: "10.11.1.2", to: "192.168.77.101:40000", ct: []string{"est,rpl"},
			want: "to tunnel 192.168.77.101 (cross-cluster): 10.11.1.2 > 192.168.77.101:40000"},
		{name: "request of another cluster for a Service on the host", node: 2, in: "tunnel", from: "192.168.77.101",
			to: "10.97.0.1:443", ct: []string{"new", "new", "new"}, want: "to gateway: 169.254.0.253 > 172.30.1.10:6443"},
		{name: "reply of a regular Node's Pod to another cluster", node: 1, in: "pod1", from: "10.11.0.2",
			to: "192.168.77.101:40000", ct: []string{"est,rpl"},
			want: "to tunnel 192.168.78.102 (cross-cluster): 10.11.0.2 > 192.168.77.101:40000"},
		{name: "that reply on the Gateway", node: 2, in: "tunnel", from: "10.11.0.2", to: "192.168.77.101:40000",
			ct: []string{"est,rpl"}, want: "back to tunnel 192.168.77.101 (cross-cluster): 10.11.0.2 > 192.168.77.101:40000"},
		{name: "Pod to the other cluster's gateway itself", node: 1, in: "pod1", from: "10.11.0.2", to: "192.168.77.101:22",
			ct: []string{"new"}, want: "to gateway: 10.11.0.2 > 192.168.77.101:22"},
		{name: "request of another cluster that its Service has no endpoint for", node: 2, in: "tunnel",
			from: "192.168.77.101", to: "10.97.0.13:80", ct: []string{"new"}, want: "to the agent from Service"},
		{name: "noEncap: Pod to a Pod of another Node", node: 1, direct: true, in: "pod1", from: "10.11.0.2",
			to: "10.11.1.2:80", ct: []string{"new"}, want: "to gateway: 10.11.0.2 > 10.11.1.2:80"},
		{name: "noEncap: Pod of another Node to a Pod", node: 1, direct: true, in: "gateway", from: "10.11.1.2",
			to: "10.11.0.2:80", ct: []string{"new"}, want: "to pod1: 10.11.1.2 > 10.11.0.2:80"},
		{name: "noEncap: host to a Service by another protocol", node: 2, direct: true, in: "gateway",
			from: "10.11.1.1", to: "10.97.0.12:80", ct: []string{"new"}, want: "dropped in Route"},
		{name: "noEncap: host to a Pod of another Node, which it has to route itself", node: 1, direct: true, in: "gateway",
			from: "10.11.0.1", to: "10.11.1.2:80", ct: []string{"new"}, want: "dropped in Route"},
		{name: "noEncap: a regular Node to another cluster", node: 1, direct: true, in: "pod1", from: "10.11.0.2",
			to: "10.97.0.14:80", ct: []string{"new", "new"},
			want: "to tunnel 192.168.78.102 (cross-cluster): 10.11.0.2 > 10.96.0.20:80"},
		{name: "noEncap: reply of another cluster on the Gateway, for a Pod of a regular Node", node: 2, direct: true,
			in: "tunnel", from: "192.168.77.101", to: "10.11.0.2:40000", ct: []string{"est,rpl"},
			want: "back to tunnel 192.168.78.101: 192.168.77.101 > 10.11.0.2:40000"},
	} {
		t.Run(w.name, func(t *testing.T) {
			if programmed.node != w.node || programmed.direct != w.direct {
				o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-flows", o.dir+"/br-int.mgmt")
				o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", o.dir+"/br-int.mgmt")
				s := onNode(w.node)
				if w.direct {
					s = directNode(w.node, false)
				}
				o.program(t, "br-int", setOf(t, mustPlan(t, s)))
				programmed = w
			}
			args := []string{"ofproto/trace", "br-int", w.text()}
			for _, state := range w.ct {
				args = append(args, "--ct-next", "trk,"+state)
			}
			trace := o.appctl(t, args...)
			if have := w.outcome(t, trace); have != w.want {
				t.Errorf("%s: %s, want %s\n%s", w.text(), have, w.want, trace)
			}
		})
	}
}

// TestRejectionsReturn sends the agent's answers into table Route, as its packet-out does.
func TestRejectionsReturn(t *testing.T) {
	o := dummyBridge(t)
	// A port of its own leads to Route like a packet-out does, with its register set.
	o.vsctl(t, "add-port", "br-int", "agent", "--", "set", "interface", "agent", "type="+portType(), "ofport_request=99")
	programmed := 0
	for _, test := range []struct {
		node int
		to   string
		want string
	}{
		{1, "10.11.0.2", "pod1"},
		{1, "10.11.0.1", "gateway"},
		{1, "172.30.1.21", "gateway"},
		{1, "192.168.77.101", "tunnel 192.168.78.102"},
		{2, "192.168.77.101", "tunnel 192.168.77.101"},
	} {
		t.Run(fmt.Sprint(test.node, " ", test.to), func(t *testing.T) {
			if programmed != test.node {
				o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-flows", o.dir+"/br-int.mgmt")
				o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", o.dir+"/br-int.mgmt")
				o.program(t, "br-int", setOf(t, mustPlan(t, onNode(test.node))))
				o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "add-flow", o.dir+"/br-int.mgmt",
					fmt.Sprintf("in_port=99 actions=set_field:0x40/0x40->reg0,resubmit(,%d)", Route))
				programmed = test.node
			}
			trace := o.appctl(t, "ofproto/trace", "br-int", "in_port=99,tcp,nw_src=10.97.0.13,nw_dst="+test.to+
				",nw_ttl=64,tp_src=80,tp_dst=40000")
			have := walk{in: "agent"}.outcome(t, trace)
			if !strings.HasPrefix(have, "to "+test.want) {
				t.Errorf("%s, want to %s\n%s", have, test.want, trace)
			}
		})
	}
}
