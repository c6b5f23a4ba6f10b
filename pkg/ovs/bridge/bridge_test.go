package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/client"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/ovs/schema"
)

// start runs a manager on a switch of the test's own.
func start(t *testing.T) (*ovstest.Switch, *Manager) {
	t.Helper()
	s := ovstest.Start(t, ovstest.Dummy)
	return s, startManager(t, s)
}

func startManager(t *testing.T, s *ovstest.Switch) *Manager {
	t.Helper()
	m := New(Options{Endpoint: s.Endpoint()})
	runManager(t, m)
	return m
}

func runManager(t *testing.T, m *Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func synced(t *testing.T, m *Manager, ports ...string) {
	t.Helper()
	if err := trySync(m, ports...); err != nil {
		t.Fatal(err)
	}
}

func trySync(m *Manager, ports ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), ovstest.Timeout())
	defer cancel()
	return m.Synced(ctx, ports...)
}

func pod(name string) Port {
	return Port{Name: name, ExternalIDs: map[string]string{TypeKey: "container", "pod-name": name}}
}

// integration is the bridge as the agent declares it.
func integration(pods ...Port) Bridge {
	return Bridge{
		Name:         "br-int",
		DatapathType: "system",
		FailMode:     "secure",
		Protocols:    []string{"OpenFlow10", "OpenFlow15"},
		HardwareAddr: "0a:00:00:00:00:01",
		ExternalIDs:  map[string]string{"roundNum": "1"},
		OtherConfig:  map[string]string{"disable-in-band": "true"},
		ZoneTimeouts: map[uint16]map[string]int{7: {"tcp_close": 120, "tcp_time_wait": 120}, 8: {"udp_first": 20}},
		Ports: append([]Port{
			{Name: "gw0", Type: "internal", OFPort: 32769, MAC: "0a:00:00:00:00:02", MTU: 1450,
				ExternalIDs: map[string]string{TypeKey: "gateway"}},
			{Name: "tun0", Type: "geneve", OFPort: 32768, Options: map[string]string{"remote_ip": "flow", "key": "flow"},
				ExternalIDs: map[string]string{TypeKey: "tunnel"}},
		}, pods...),
	}
}

func TestCreateAndKeep(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	m.Set([]Bridge{integration(pod("pod1"))})
	synced(t, m)

	for column, want := range map[string]string{
		"bridge br-int fail_mode":                    "secure",
		"bridge br-int protocols":                    "[OpenFlow10, OpenFlow15]",
		"bridge br-int other_config:hwaddr":          `"0a:00:00:00:00:01"`,
		"bridge br-int other_config:disable-in-band": `"true"`,
		"bridge br-int external_ids:roundNum":        `"1"`,
		"interface gw0 ofport":                       "32769",
		"interface gw0 mac":                          `"0a:00:00:00:00:02"`,
		"interface gw0 mtu_request":                  "1450",
		"interface tun0 ofport":                      "32768",
		"interface tun0 options:remote_ip":           "flow",
		"port pod1 external_ids:pod-name":            "pod1",
	} {
		if got := s.Vsctl(append([]string{"get"}, strings.Fields(column)...)...); got != want {
			t.Errorf("%s is %s, want %s", column, got, want)
		}
	}
	state := m.State()
	br := state.Bridges["br-int"]
	if got, want := slices.Sorted(maps.Keys(br.Ports)),
		[]string{"br-int", "gw0", "pod1", "tun0"}; !slices.Equal(got, want) {
		t.Errorf("ports are %v, want %v", got, want)
	}
	if p := br.Ports["pod1"]; p.OFPort == 0 || p.ExternalIDs[TypeKey] != "container" {
		t.Errorf("pod1 is %+v", p)
	}
	if p := br.Ports["gw0"]; p.MACWanted != "0a:00:00:00:00:02" || p.OFPort != 32769 {
		t.Errorf("gw0 is %+v", p)
	}
	if len(br.DatapathID) != 16 || !state.Connected {
		t.Errorf("state is %+v", state)
	}

	// Its number is kept over restarts of the switch.
	ovstest.Eventually(t, "pod1 asks for its number", func() error {
		if p := m.State().Bridges["br-int"].Ports["pod1"]; p.OFPort == 0 || p.OFPortWanted != p.OFPort {
			return fmt.Errorf("pod1 is %+v", p)
		}
		return nil
	})
	synced(t, m)
	before := m.Stats()
	m.Set([]Bridge{integration(pod("pod1"))})
	m.Release()
	synced(t, m)
	if after := m.Stats(); after.Transactions != before.Transactions {
		t.Errorf("the second sync sent %d transactions", after.Transactions-before.Transactions)
	}

	// A new manager sends nothing either.
	second := startManager(t, s)
	second.Set([]Bridge{integration(pod("pod1"))})
	second.Release()
	synced(t, second)
	if n := second.Stats().Transactions; n != 0 {
		t.Errorf("a new manager sent %d transactions", n)
	}
}

func TestRemovalsWaitForRelease(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	m.Set([]Bridge{integration(pod("pod1"), pod("pod2"))})
	synced(t, m)
	s.Vsctl("add-port", "br-int", "theirs")
	s.Vsctl("add-br", "br-theirs")

	m.Set([]Bridge{integration(pod("pod2"))})
	synced(t, m)
	if ports := s.Vsctl("list-ports", "br-int"); !strings.Contains(ports, "pod1") {
		t.Errorf("pod1 was removed before Release; ports are %q", ports)
	}
	m.Release()
	synced(t, m)
	if got, want := s.Vsctl("list-ports", "br-int"), "gw0\npod2\ntheirs\ntun0"; got != want {
		t.Errorf("ports are %q, want %q", got, want)
	}
	if got := s.Vsctl("list-br"); got != "br-int\nbr-theirs" {
		t.Errorf("bridges are %q", got)
	}
}

// TestAbsent has a bridge go once it may, with its ports, and come again.
func TestAbsent(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	inside := Bridge{Name: "br-inside", DatapathType: integration().DatapathType, FailMode: "standalone",
		Ports: []Port{pod("inside0")}}
	gone := Bridge{Name: inside.Name, Absent: true}
	for _, step := range []struct {
		what    string
		want    Bridge
		release bool
		bridges string
	}{
		{"one that never was", gone, false, "br-int"},
		{"it comes", inside, false, "br-inside\nbr-int"},
		{"nothing goes before Release", gone, false, "br-inside\nbr-int"},
		{"it goes", gone, true, "br-int"},
		{"it comes again", inside, false, "br-inside\nbr-int"},
	} {
		m.Set([]Bridge{integration(pod("pod1")), step.want})
		if step.release {
			m.Release()
		}
		synced(t, m)
		if got := s.Vsctl("list-br"); got != step.bridges {
			t.Errorf("%s: bridges are %q, want %q", step.what, got, step.bridges)
		}
		if got, want := s.Vsctl("list-ports", "br-int"), "gw0\npod1\ntun0"; got != want {
			t.Errorf("%s: ports are %q, want %q", step.what, got, want)
		}
	}
	if got := s.Vsctl("list-ports", inside.Name); got != "inside0" {
		t.Errorf("ports of the bridge that came again are %q", got)
	}
}

func TestForeignChanges(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	want := []Bridge{integration(pod("pod1"), pod("pod2"))}
	m.Set(want)
	m.Release()
	synced(t, m)
	synced(t, m)
	ovstest.Eventually(t, "numbers are pinned", func() error {
		if p := m.State().Bridges["br-int"].Ports["pod2"]; p.OFPortWanted == 0 {
			return fmt.Errorf("pod2 is %+v", p)
		}
		return nil
	})
	s.Vsctl("set", "bridge", "br-int", "external_ids:theirs=stays", "other_config:theirs=stays")
	ovstest.Eventually(t, "their keys are seen", func() error {
		if b := m.State().Bridges["br-int"]; b.ExternalIDs["theirs"] == "" || b.OtherConfig["theirs"] == "" {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	before := snapshot(m)

	vandalism := [][]string{
		{"del-br", "br-int"},
		{"del-port", "pod1"},
		{"del-port", "gw0"},
		{"del-port", "br-int", "tun0"},
		{"set", "bridge", "br-int", "fail_mode=standalone", "datapath_type=dummy"},
		{"clear", "bridge", "br-int", "protocols"},
		{"set", "interface", "tun0", "type=vxlan", "options:key=7"},
		{"set", "interface", "pod1", "options:x=y"},
		// Not ofport_request: when it is changed and changed back within one round of
		// ovs-vswitchd, that may record the number in between as ofport for good (it
		// writes only what differs from a copy that is one update behind).
		{"set", "interface", "gw0", "mtu_request=99"},
		{"set", "interface", "gw0", `mac="0a:00:00:00:00:99"`},
		{"remove", "port", "pod2", "external_ids", TypeKey},
		{"set", "port", "pod2", "external_ids:pod-name=other"},
		{"set", "bridge", "br-int", "external_ids:roundNum=9"},
		{"remove", "bridge", "br-int", "other_config", "disable-in-band"},
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2 {
		rnd.Shuffle(len(vandalism), func(i, j int) { vandalism[i], vandalism[j] = vandalism[j], vandalism[i] })
		for _, act := range vandalism {
			s.Vsctl(append([]string{"--no-wait"}, act...)...)
			ovstest.Eventually(t, fmt.Sprintf("%q is mended", act), func() error {
				if err := trySync(m); err != nil {
					return err // true while the switch is as the vandal wants it
				}
				have := snapshot(m)
				if have["br-int external_ids:theirs"] == "" {
					// Foreign values there went with the bridge.
					for _, state := range []map[string]string{have, before} {
						delete(state, "br-int external_ids:theirs")
						delete(state, "br-int other_config:theirs")
					}
				}
				if diff := cmp.Diff(before, have); diff != "" {
					return fmt.Errorf("-want +have:\n%s", diff)
				}
				// The manager may not have seen the change yet: ask the database too, for what the
				// next command needs.
				ports := strings.Fields(s.Vsctl("--bare", "--columns=name", "list", "port"))
				for _, name := range []string{"br-int", "gw0", "tun0", "pod1", "pod2"} {
					if !slices.Contains(ports, name) {
						return fmt.Errorf("the database has ports %v, without %s", ports, name)
					}
				}
				return nil
			})
		}
	}
}

// snapshot is what the mended switch must have again. Numbers that the switch may choose
// are left out.
func snapshot(m *Manager) map[string]string {
	result := map[string]string{}
	for name, b := range m.State().Bridges {
		result[name] = fmt.Sprint(b.DatapathType, " ", b.FailMode, " ", b.Protocols)
		for k, v := range b.ExternalIDs {
			result[name+" external_ids:"+k] = v
		}
		for k, v := range b.OtherConfig {
			result[name+" other_config:"+k] = v
		}
		for port, p := range b.Ports {
			number := p.OFPort
			if p.ExternalIDs[TypeKey] == "container" {
				number = 0
			}
			result[name+" "+port] = fmt.Sprint(p.Type, " ", number, " ", p.Error, " ", p.MACWanted, " ", p.Options, " ",
				p.ExternalIDs)
		}
	}
	return result
}

// TestZoneTimeouts: named zones get their timeouts, also if other programs made the rows. Other zones keep theirs.
func TestZoneTimeouts(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	s.Vsctl("--no-wait", "--", "--id=@d", "create", "Datapath", "datapath_version=0", "--", "set", "Open_vSwitch", ".",
		"datapaths:system=@d")
	s.Vsctl("--no-wait", "add-zone-tp", "system", "zone=9", "icmp_first=5")
	s.Vsctl("--no-wait", "add-zone-tp", "system", "zone=8", "udp_first=99")
	b := integration()
	m.Set([]Bridge{b})
	synced(t, m)
	zones := func() string { return s.Vsctl("list-zone-tp", "system") }
	const want = "Zone:7, Timeout Policies: tcp_close=120 tcp_time_wait=120\n" +
		"Zone:8, Timeout Policies: udp_first=20\n" +
		"Zone:9, Timeout Policies: icmp_first=5"
	if have := zones(); have != want {
		t.Errorf("zones are\n%s\nwant\n%s", have, want)
	}
	for _, act := range [][]string{
		{"del-zone-tp", "system", "zone=7"},
		{"clear", "Open_vSwitch", ".", "datapaths"},
	} {
		s.Vsctl(append([]string{"--no-wait"}, act...)...)
		ovstest.Eventually(t, fmt.Sprintf("%q is mended", act), func() error {
			// ovs-vsctl fails while there is no such datapath.
			if all := s.Vsctl("--bare", "--columns=datapaths", "list", "Open_vSwitch"); !strings.Contains(all, "system") {
				return fmt.Errorf("the datapaths are %q", all)
			}
			if have := zones(); !strings.HasPrefix(want, have) || !strings.Contains(have, "Zone:8") {
				return fmt.Errorf("zones are\n%s", have)
			}
			return nil
		})
	}
	b.ZoneTimeouts[7]["tcp_close"] = 60
	m.Set([]Bridge{b})
	synced(t, m)
	if have := zones(); !strings.HasPrefix(have, "Zone:7, Timeout Policies: tcp_close=60 tcp_time_wait=120\n") {
		t.Errorf("after a change zones are\n%s", have)
	}
	before := m.Stats().Transactions
	synced(t, m)
	if after := m.Stats().Transactions; after != before {
		t.Errorf("%d transactions for nothing", after-before)
	}
}

func TestRefusedPorts(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	s.Vsctl("add-br", "br-other", "--", "add-port", "br-other", "elsewhere")
	s.Vsctl("add-bond", "br-other", "bond0", "leg1", "leg2")
	m.Set([]Bridge{integration(
		Port{Name: "broken", Type: "geneve"},
		Port{Name: "weird", Type: "nosuchtype"},
		Port{Name: "big", OFPort: 70000},
		Port{Name: "elsewhere"},
		Port{Name: "leg1"},
		Port{Name: "clash", OFPort: 32769},
		pod("pod1"),
	)})
	err := trySync(m)
	if err == nil {
		t.Fatal("Synced succeeded")
	}
	for _, want := range []string{
		"port broken of bridge br-int: ovs-vswitchd cannot add it: ",
		"port weird of bridge br-int: ovs-vswitchd cannot add it: ",
		"port big of bridge br-int: OpenFlow port number 70000 cannot be asked for",
		"port elsewhere of bridge br-int: bridge br-other has a port of this name",
		"port leg1 of bridge br-int: another port, a bond, has an interface of this name",
		"instead of 32769, which port ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	// The others are not held up.
	synced(t, m, "pod1", "tun0")
	if err := trySync(m, "nobody"); err == nil || err.Error() != "port nobody is not declared" {
		t.Errorf("error is %v", err)
	}
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	want := []Bridge{integration(pod("pod1"))}
	m.Set(want)
	m.Release()
	synced(t, m)
	number := m.State().Bridges["br-int"].Ports["pod1"].OFPort

	s.StopDatabase()
	ovstest.Eventually(t, "the loss is noticed", func() error {
		if m.State().Connected {
			return fmt.Errorf("still connected")
		}
		return nil
	})
	m.Set([]Bridge{integration(pod("pod1"), pod("pod2"))})
	refused(t, m, "no session with ovsdb-server at unix:")
	s.StartDatabase()
	synced(t, m)
	if p := m.State().Bridges["br-int"].Ports["pod1"]; p.OFPort != number {
		t.Errorf("pod1 has number %d after ovsdb-server's restart, had %d", p.OFPort, number)
	}

	s.StopDaemon()
	m.Set([]Bridge{integration(pod("pod1"), pod("pod2"), pod("pod3"))})
	refused(t, m, "ovs-vswitchd has not carried out configuration")
	s.StartDaemon()
	synced(t, m)
	if p := m.State().Bridges["br-int"].Ports["pod1"]; p.OFPort != number {
		t.Errorf("pod1 has number %d after ovs-vswitchd's restart, had %d", p.OFPort, number)
	}
}

// TestAnswers: an ovsdb-server that does not answer in time is an error. Its late answer disturbs no later question.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s := ovstest.Start(t, ovstest.Dummy)
	description, err := schema.Model()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewOVSDBClient(description, client.WithEndpoint(s.Endpoint()))
	if err != nil {
		t.Fatal(err)
	}
	if err := within(t.Context(), c.Connect); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := s.Vsctl("get", "Open_vSwitch", ".", "next_cfg")
	for range 20 {
		s.SuspendDatabase()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := answers(c)(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stopped ovsdb-server: %v, want %v", err, context.DeadlineExceeded)
		}
		cancel()
		s.ResumeDatabase()
		if err := within(t.Context(), answers(c)); err != nil {
			t.Error(err)
		}
	}
	if after := s.Vsctl("get", "Open_vSwitch", ".", "next_cfg"); after != before {
		t.Errorf("next_cfg has gone from %s to %s", before, after)
	}
}

// refused waits until Synced names the reason for the wait.
func refused(t *testing.T, m *Manager, want string) {
	t.Helper()
	ovstest.Eventually(t, "Synced says "+want, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := m.Synced(ctx); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("error is %w", err)
		}
		return nil
	})
}

// TestNumbers adds ports that ask for no number: each gets a number in its one transaction, and the number of a removed
// port is not used again at once.
func TestNumbers(t *testing.T) {
	t.Parallel()
	_, m := start(t)
	m.Release()
	m.Set([]Bridge{integration(pod("pod1"))})
	synced(t, m)
	seen := map[uint32]string{}
	for _, name := range []string{"pod2", "pod3", "pod4"} {
		before := m.Stats().Transactions
		m.Set([]Bridge{integration(pod(name))})
		synced(t, m)
		if n := m.Stats().Transactions - before; n != 1 {
			t.Errorf("%s took %d transactions", name, n)
		}
		p := m.State().Bridges["br-int"].Ports[name]
		if p.OFPort == 0 || p.OFPort != p.OFPortWanted || seen[p.OFPort] != "" {
			t.Errorf("%s has number %d, asks for %d; given out were %v", name, p.OFPort, p.OFPortWanted, seen)
		}
		seen[p.OFPort] = name
	}
}

// TestGone: ovs-vswitchd keeps the number of a port whose device is gone, and reports no error. The interface has
// index 0 then (Open vSwitch 3.1, userspace datapath).
func TestGone(t *testing.T) {
	for _, row := range []struct {
		name string
		i    schema.Interface
		want bool
	}{
		{"it is there", schema.Interface{OFPort: new(7), IfIndex: new(5)}, false},
		{"it is gone", schema.Interface{OFPort: new(7), IfIndex: new(0)}, true},
		{"its index is not reported yet", schema.Interface{OFPort: new(7)}, false},
		{"it was never there", schema.Interface{OFPort: new(-1), IfIndex: new(0)}, false},
		{"a tunnel", schema.Interface{Type: "geneve", OFPort: new(7), IfIndex: new(0)}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.i.Name = "web"
			have := portState(&schema.Port{Name: "web", Interfaces: []string{"u"}},
				map[string]*schema.Interface{"u": &row.i})
			if have.Gone != row.want {
				t.Errorf("%+v, want gone %t", have, row.want)
			}
		})
	}
}

// TestAnswerLost loses ovs-vswitchd's report that it has carried out a configuration, as a full disk does. The columns
// are its own, so that it takes no notice of the change.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	m.Set([]Bridge{integration(pod("pod1"))})
	synced(t, m)
	s.Vsctl("--no-wait", "set", "Open_vSwitch", ".", "cur_cfg=0", "--", "clear", "interface", "pod1", "ofport")
	s.Eventually("ovs-vswitchd repeats its answer", func() error {
		if s.Vsctl("get", "Open_vSwitch", ".", "cur_cfg") == "0" || s.Vsctl("get", "interface", "pod1", "ofport") == "[]" {
			return errors.New("it is not there")
		}
		return nil
	})
	synced(t, m)
}

func TestFlowRestoreWait(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	s.Vsctl("set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true", "other_config:theirs=stays")
	m.Set([]Bridge{integration()})
	synced(t, m)
	ovstest.Eventually(t, "flow-restore-wait is seen", func() error {
		if !m.State().FlowRestoreWait {
			return fmt.Errorf("not seen")
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), ovstest.Timeout())
	defer cancel()
	for range 2 {
		if err := m.ClearFlowRestoreWait(ctx); err != nil {
			t.Fatal(err)
		}
		if got := s.Vsctl("get", "Open_vSwitch", ".", "other_config"); got != "{theirs=stays}" {
			t.Errorf("other_config is %s", got)
		}
	}
}

// TestFlowRestoreWaitOfTwo has one caller give up while another waits for the same.
func TestFlowRestoreWaitOfTwo(t *testing.T) {
	t.Parallel()
	s := ovstest.Start(t, ovstest.Dummy)
	s.Vsctl("set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
	m := New(Options{Endpoint: s.Endpoint()}) // not connected yet
	ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.ClearFlowRestoreWait(ctx) }()
	ovstest.Eventually(t, "the first caller waits", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.want.clearsFlowRestoreWait {
			return errors.New("not yet")
		}
		return nil
	})
	gaveUp, giveUp := context.WithCancel(t.Context())
	giveUp()
	if err := m.ClearFlowRestoreWait(gaveUp); err == nil {
		t.Error("the second caller is told that it is done")
	}
	m.disconnected(nil) // all callers look again
	runManager(t, m)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := s.Vsctl("get", "Open_vSwitch", ".", "other_config"); got != "{}" {
		t.Errorf("the first caller is told that it is done, and other_config is %s", got)
	}
}

// TestRandomWalk declares random sets of ports; after each step the switch has these.
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	m.Release()
	rnd := rand.New(rand.NewPCG(3, 4))
	for step := range 25 {
		var ports []Port
		want := []string{"gw0", "tun0"}
		for i := range 12 {
			if rnd.IntN(2) == 0 {
				p := pod(fmt.Sprintf("pod%02d", i))
				p.ExternalIDs["step"] = fmt.Sprint(rnd.IntN(3))
				ports = append(ports, p)
				want = append(want, p.Name)
			}
		}
		m.Set([]Bridge{integration(ports...)})
		synced(t, m)
		slices.Sort(want)
		if got := strings.Split(s.Vsctl("list-ports", "br-int"), "\n"); !slices.Equal(got, want) {
			t.Fatalf("step %d: ports are %v, want %v", step, got, want)
		}
		for _, p := range ports {
			if got := m.State().Bridges["br-int"].Ports[p.Name].ExternalIDs; !maps.Equal(got, p.ExternalIDs) {
				t.Fatalf("step %d: %s has external_ids %v, want %v", step, p.Name, got, p.ExternalIDs)
			}
		}
	}
}

func TestMACOf(t *testing.T) {
	seen := map[string]bool{}
	for i := range 50 {
		name := fmt.Sprint("node-", i)
		mac, err := net.ParseMAC(MACOf(name))
		if err != nil || mac[0]&3 != 2 || seen[mac.String()] || MACOf(name) != mac.String() {
			t.Errorf("MAC address of %s: %v %v", name, mac, err)
		}
		seen[mac.String()] = true
	}
}

// TestOwnQueueing keeps ovs-vswitchd away from the queueing discipline of one port. Other ports are left as they are.
func TestOwnQueueing(t *testing.T) {
	t.Parallel()
	s, m := start(t)
	limited, second := pod("pod1"), pod("pod2")
	limited.OwnQueueing = true
	want := func(bridge Bridge, types ...string) {
		t.Helper()
		m.Set([]Bridge{bridge})
		ovstest.Eventually(t, fmt.Sprintf("the ports have %q", types), func() error {
			if err := trySync(m); err != nil {
				return err
			}
			for i, want := range types {
				have := s.Vsctl("--bare", "--columns=qos", "list", "port", fmt.Sprint("pod", i+1))
				if have != "" {
					have = s.Vsctl("get", "qos", have, "type")
				}
				if have != want {
					return fmt.Errorf("pod%d has %q", i+1, have)
				}
			}
			return nil
		})
	}
	want(integration(limited, second), "linux-noop", "")
	s.Vsctl("--no-wait", "clear", "port", "pod1", "qos")
	want(integration(limited, second), "linux-noop", "")
	s.Vsctl("--no-wait", "--", "set", "port", "pod1", "qos=@new", "--", "--id=@new", "create", "qos", "type=linux-htb")
	want(integration(limited, second), "linux-noop", "")
	second.OwnQueueing = true
	want(integration(limited, second), "linux-noop", "linux-noop")
	if rows := s.Vsctl("--bare", "--columns=_uuid", "find", "qos", "type=linux-noop"); len(strings.Fields(rows)) != 1 {
		t.Errorf("rows of the type linux-noop: %q, want one", rows)
	}
}
