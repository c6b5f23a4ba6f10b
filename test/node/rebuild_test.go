package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// testRebuild loses the records of attachments while the agent is away. The running Pods keep
// their interface, their addresses and their connection, and the ports come back with the
// external_ids that they had.
func testRebuild(t *testing.T, c *cluster) {
	r := newRig(t, c).withOVS()
	r.ready()
	client, server := r.add("client"), r.add("server")
	server.serve(t, 8080)
	conn, err := client.dial("tcp4", server.ip+":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	word := 0
	talk := func() {
		t.Helper()
		word++
		if answer, err := ask(conn, fmt.Sprint("word", word), 60*time.Second); err != nil ||
			answer != fmt.Sprint("server word", word) {
			t.Fatalf("on the connection that was there before: %q %v", answer, err)
		}
	}
	talk()
	record := filepath.Join(r.dir, "state", "ipam.json")
	before := r.records(client, server)
	delBridge := func() { r.ovs.Vsctl("del-br", "br-int") }
	loseDatabase := func() { r.ovs.LoseDatabase() }
	loseFile := func() {
		if err := os.Remove(record); err != nil {
			t.Fatal(err)
		}
	}
	corruptFile := func() {
		if err := os.WriteFile(record, []byte(`{"version":1,"records":[{`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name string
		lose []func()
		log  string
	}{
		{name: "bridge deleted", lose: []func(){delBridge}, log: "rebuilt an attachment"},
		{name: "conf.db lost", lose: []func(){loseDatabase}, log: "rebuilt an attachment"},
		{name: "ipam.json corrupt", lose: []func(){corruptFile}, log: "ipam.json.corrupt-"},
		{name: "ipam.json lost", lose: []func(){loseFile}},
		{name: "conf.db lost and ipam.json corrupt", lose: []func(){loseDatabase, corruptFile}, log: "ipam.json.corrupt-"},
		{name: "both lost", lose: []func(){loseDatabase, loseFile}, log: "rebuilt an attachment"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r.stop()
			for _, lose := range row.lose {
				lose()
			}
			logged := len(r.log.String())
			r.ready()
			if text := r.log.String()[logged:]; !strings.Contains(text, row.log) {
				t.Errorf("the agent's log lacks %q:\n%s", row.log, text)
			}
			if after := r.records(client, server); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			talk()
			third := r.add("third")
			if third.ip == client.ip || third.ip == server.ip {
				t.Errorf("a new Pod got the address %s of a running one", third.ip)
			}
			r.del(third)
		})
	}
	rebuildNever(t, r, func() { loseDatabase(); loseFile() })
	talk()
	registeredAgain(t, r, client, server)
	talk()
	r.del(client)
	r.del(server)
	r.eventually("nothing is left", func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Alias, "tombolo ") {
				return fmt.Errorf("there is %s", l.Attrs().Name)
			}
		}
		if text, err := os.ReadFile(record); err != nil || strings.Contains(string(text), "containerID") {
			return fmt.Errorf("address record: %s %w", text, err)
		}
		return nil
	})
}

// rebuildNever loses the records of a Pod whose namespace no mount and no process shows: the agent is ready all the
// same, and reports the Pod until it is gone.
func rebuildNever(t *testing.T, r *rig, lose func()) {
	t.Helper()
	lost := r.add("lost")
	holder, err := os.Open(lost.netns) // as a connection does that has not ended
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	r.stop()
	lost.unmount()
	lose()
	began := time.Now()
	r.ready()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("an attachment that cannot be rebuilt: the agent was ready after %s", took)
	}
	s, err := r.status()
	i := slices.IndexFunc(s.Problems, func(p api.Problem) bool { return p.Reason == "AttachmentLost" })
	if err != nil || i < 0 || s.Problems[i].Object != "Pod default/lost" ||
		!strings.Contains(s.Problems[i].Message, "ip link del lost-") {
		t.Errorf("problems: %+v %v", s.Problems, err)
	}
	if _, err := r.call("DEL", lost); err != nil {
		t.Error(err)
	}
}

// registeredAgain has the Node be deleted and registered with another podCIDR. Its Pods go on among themselves, with
// the host and with new Pods, and a problem names each, until the Node has the first range again.
func registeredAgain(t *testing.T, r *rig, client, server *pod) {
	t.Helper()
	nodes := r.cluster.client.CoreV1().Nodes()
	register := func(cidr string) {
		t.Helper()
		node, err := nodes.Get(t.Context(), nodeName, metav1.GetOptions{})
		if err == nil {
			err = nodes.Delete(t.Context(), nodeName, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		status := node.Status
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName},
			Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}}}
		if node, err = nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		node.Status.Addresses = status.Addresses
		if _, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// named are the Pods that a problem names.
	named := func() (names []string, _ error) {
		s, err := r.status()
		for _, p := range s.Problems {
			if p.Reason == "PodCIDRChanged" && p.Field == "status.podIPs" && strings.Contains(p.Message, ": delete the Pod") {
				names = append(names, p.Object)
			}
		}
		slices.Sort(names)
		return names, err
	}
	register("10.12.1.0/24")
	r.eventually("a problem names each Pod", func() error {
		names, err := named()
		if err == nil && !slices.Equal(names, []string{"Pod default/client", "Pod default/server"}) {
			err = fmt.Errorf("they name %q", names)
		}
		return err
	})
	later := r.add("later")
	if !strings.HasPrefix(later.ip, "10.12.1.") {
		t.Errorf("a new Pod has %s", later.ip)
	}
	later.serve(t, 8080)
	if err := forgetNeighbors(client); err != nil { // it asks for its gateway's MAC again
		t.Fatal(err)
	}
	for _, way := range []struct {
		from *pod
		to   string
	}{{client, server.ip}, {client, later.ip}, {later, server.ip}, {nil, server.ip}, {nil, later.ip}} {
		r.eventually(fmt.Sprintf("%+v to %s", way.from, way.to), func() error {
			dial := func(network, address string) (net.Conn, error) { return net.DialTimeout(network, address, time.Second) }
			if way.from != nil {
				dial = way.from.dial
			}
			conn, err := dial("tcp4", way.to+":8080")
			if err == nil {
				conn.Close()
			}
			return err
		})
	}
	r.del(later)
	register("10.11.1.0/24")
	r.eventually("no problem names a Pod", func() error {
		names, err := named()
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("they name %q", names)
		}
		return err
	})
}

// forgetNeighbors has a Pod forget its neighbors.
func forgetNeighbors(p *pod) error {
	return p.within(func() error {
		list, err := netlink.NeighList(0, netlink.FAMILY_V4)
		for _, n := range list {
			err = errors.Join(err, netlink.NeighDel(&n))
		}
		return err
	})
}

// records is what the OVSDB and the namespaces say about Pods.
func (r *rig) records(pods ...*pod) string {
	r.t.Helper()
	var b strings.Builder
	for _, p := range pods {
		ids := r.ovs.Vsctl("--columns=name,external_ids", "--format=csv", "--no-headings", "find", "Port",
			"external_ids:container-id="+p.container)
		fmt.Fprintf(&b, "%s\n", ids)
		err := p.within(func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
			fmt.Fprintf(&b, "eth0 %d %s %v\n", link.Attrs().Index, link.Attrs().HardwareAddr, addresses)
			return err
		})
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", p.name, err)
		}
	}
	return b.String()
}
