package datapath

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// TestReportDrops has flows of each kind: only flows that end packets report them.
func TestReportDrops(t *testing.T) {
	to := flow.IPDst(host(netip.MustParseAddr("10.10.0.5")))
	entry := LogEntry{Table: "IngressRule", Policy: "K8sNetworkPolicy:default/web", Rule: "r"}
	flows := []flow.Flow{
		{Table: Route, Priority: low, Match: flow.All(to)},
		{Table: IngressAdmin, Priority: 7, Match: flow.All(to), Actions: log(entry, 65)},
		{Table: IngressAdmin, Priority: 8, Match: flow.All(to), Actions: append(log(entry, 65), flow.Goto(Commit))},
		{Table: Service, Priority: 9, Match: flow.All(to), Actions: ask(ServiceReject, 100)},
		{Table: Output, Priority: normal, Match: flow.All(to), Actions: flow.Do(flow.Output(7))},
		{Table: ARP, Priority: origin, Match: flow.All(flow.ICMPv6Type(136))},
		{Table: Conntrack},
		{Table: Affinity}, // the packet goes on in table Endpoint
		{Table: ARP},
	}
	reports := []bool{true, true, false, false, false, false, true, false, false}
	before := slices.Clone(flows)
	out := ReportDrops(PodOwner("p"), flow.Entries{Flows: flows}, "n1")
	for i, f := range out.Flows {
		text := f.Actions.String()
		if got := strings.Contains(text, "userdata=64.72.6f.70.70.65.64."); got != reports[i] {
			t.Errorf("flow %d reports: %v, want %v: %s", i, got, reports[i], text)
		}
		if before[i].Actions.String() != flows[i].Actions.String() {
			t.Errorf("flow %d of the owner has changed", i)
		}
		if f.Match != flows[i].Match || f.Priority != flows[i].Priority {
			t.Errorf("flow %d has another match", i)
		}
	}
	if len(out.Meters) != 0 {
		t.Errorf("a Pod's owner has the meters %v", out.Meters)
	}
	if out := ReportDrops(NodeOwner("n1"), flow.Entries{Flows: flows}, "n1"); len(out.Meters) != 1 {
		t.Errorf("the Node's owner has the meters %v", out.Meters)
	}
	none := flow.Entries{Flows: flows[4:5]}
	if out := ReportDrops(PodOwner("p"), none, "n1"); &out.Flows[0] != &none.Flows[0] {
		t.Error("entries without such flows are copied")
	}
}

// TestDropTables requires a reason for each table that ends packets. A new table has to be added.
func TestDropTables(t *testing.T) {
	for _, table := range Program.Tables() {
		r := Report{Kind: Dropped, Table: table}
		if Program[table].Miss == flow.Drop && !goOn[table] && record.MeaningOf(r.Reason()) == "" {
			t.Errorf("table %s ends packets without a reason", Program.Name(table))
		}
	}
	for table := range RuleTables {
		if r := (Report{Kind: Dropped, Table: table, Priority: fragments}); r.Reason() != record.Fragment {
			t.Errorf("a fragment in table %s has the reason %s", Program.Name(table), r.Reason())
		}
	}
}

// TestMatchedNetwork reads the network of flows.
func TestMatchedNetwork(t *testing.T) {
	for _, row := range []struct {
		match flow.Match
		id    tenant.ID
		zone  uint16
	}{
		{flow.All(flow.TCP()), 0, 0},
		{flow.All(inTenant.Is(network(77))), 77, 0},
		{flow.All(inTenant.Is(0)), 0, 0},
		{flow.All(isTenant.Is(1)), 0, 0},
		{flow.All(isVirtual.Is(1), inTenant.Is(network(77))), 77, 0},
		{flow.All(inZone.Is(separate(5))), 0, 5},
		{flow.All(isSeparate.Is(1)), 0, 0},
		{flow.All(isSeparate.Is(0)), 0, 0},
		{flow.All(inTenant.Is(network(9)), inZone.Is(separate(32000))), 9, 32000},
	} {
		if id, zone := MatchedNetwork(row.match); id != row.id || zone != row.zone {
			t.Errorf("%s is of network %d and zone %d, want %d and %d", row.match, id, zone, row.id, row.zone)
		}
	}
}

// TestReportOf reads reports, and refuses other packets.
func TestReportOf(t *testing.T) {
	frame := []byte{
		1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1, 8, 0,
		0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 10, 0, 5, 10, 10, 1, 7,
		0x9c, 0xb0, 0x15, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0,
	}
	match := flow.All(flow.TCP(), flow.CTState("+est+trk"), source.Is(fromPod), egressRule.Is(0x2a),
		inTenant.Is(network(77)), mayLeave.Is(1),
		flow.Field(ofp.CTNwProto, []byte{6}, nil), flow.CTDst(host(netip.MustParseAddr("10.96.0.9"))),
		flow.Field(ofp.CTTpDst, []byte{0, 80}, nil))
	if err := match.Err(); err != nil {
		t.Fatal(err)
	}
	in := ofp.PacketIn2{Data: frame, Table: Commit, Userdata: []byte("dropped 190"), Metadata: match.OXM()}
	r, err := ReportOf(in)
	if err != nil {
		t.Fatal(err)
	}
	if r.Asked != netip.MustParseAddrPort("10.96.0.9:80") || !r.FromPod || r.EgressRule != 0x2a || r.DstPort != 0x1538 ||
		r.Priority != 190 || r.Network != 77 {
		t.Errorf("the report is %+v", r)
	}
	in.Userdata = []byte("opened")
	if _, err := ReportOf(in); !errors.Is(err, errJudgedAgain) {
		t.Errorf("a packet of a known connection opens one: error %v", err)
	}
	in.Metadata = flow.All(flow.TCP(), flow.CTState("+new+trk"), source.Is(fromPod), ingressRule.Is(7)).OXM()
	if r, err := ReportOf(in); err != nil || r.IngressRule != 7 || r.Asked.IsValid() || r.Network != 0 {
		t.Errorf("the report is %+v, error %v", r, err)
	}
	headers := Headers{Src: r.Src, Dst: r.Dst, Protocol: 6, SrcPort: 1, DstPort: 2}
	if r := ReportOfMark(0x703, headers, netip.MustParseAddrPort("10.96.0.9:80")); !r.FromPod || r.Way != 7 ||
		r.Kind != Opened || r.Asked.Port() != 80 {
		t.Errorf("the report is %+v", r)
	}
	if r := ReportOfMark(0x2, headers, netip.AddrPortFrom(r.Dst, 2)); r.FromPod || r.Way != 0 || r.Asked.IsValid() {
		t.Errorf("the report is %+v", r)
	}
	for name, bad := range map[string]ofp.PacketIn2{
		"no packet":   {Userdata: []byte("opened")},
		"no priority": {Userdata: []byte("dropped"), Data: frame},
		"a cut frame": {Userdata: []byte("opened"), Data: frame[:20]},
	} {
		if _, err := ReportOf(bad); err == nil {
			t.Errorf("%s is a report", name)
		}
	}
}
