package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
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
		if answer, err := ask(conn, fmt.Sprint("word", word), 60*time.Second); err != nil || answer != fmt.Sprint("server word", word) {
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

// records is what the OVSDB and the namespaces say about Pods.
func (r *rig) records(pods ...*pod) string {
	r.t.Helper()
	var b strings.Builder
	for _, p := range pods {
		ids := r.ovs.Vsctl("--columns=name,external_ids", "--format=csv", "--no-headings", "find", "Port", "external_ids:container-id="+p.container)
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
