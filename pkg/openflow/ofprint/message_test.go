package ofprint

import (
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestOwnTexts has the messages for which ovs-ofctl 3.1 has no text, or a wrong one.
func TestOwnTexts(t *testing.T) {
	f, err := flow.ParseFlow("table=2,priority=9,tcp,actions=drop")
	if err != nil {
		t.Fatal(err)
	}
	flags := ofp.EvictionImportance | ofp.EvictionLifetime
	for _, row := range []struct {
		name string
		m    ofp.Message
		want string
	}{
		{"flows without actions", ofp.FlowStatsRequest{FlowFilter: ofp.FlowFilter{Table: 2, Match: f.Match.OXM()}},
			"OFPST_FLOW_STATS request (OF1.5) (xid=0x7): table=2 tcp\n"},
		{"and the answer", ofp.FlowStatsReply{More: true, Flows: []ofp.FlowStats{
			{Table: 2, Priority: 9, Match: f.Match.OXM(),
				Stats: ofp.Stats{DurationSec: 3, DurationNsec: 5e6, Packets: 7, Bytes: 420}},
			{Table: 3, Priority: flow.DefaultPriority},
		}}, "OFPST_FLOW_STATS reply (OF1.5) (xid=0x7): flags=[more]\n" +
			" duration=3.005s, table=2, n_packets=7, n_bytes=420, idle_age=0, priority=9,tcp\n" +
			" duration=0s, table=3, n_packets=0, n_bytes=0, idle_age=0\n"},
		{"controllers", ofp.ControllerStatusReply{Controllers: []ofp.ControllerStatus{
			{ShortID: 4, Role: ofp.RolePrimary, Reason: ofp.ControllerRole, Channel: ofp.ChannelDown,
				URIs: []string{"tcp:192.0.2.7:6653"}},
		}}, "OFPST_CONTROLLER_STATUS reply (OF1.5) (xid=0x7):\n id=4 role=primary reason=role channel=down " +
			"uri=\"tcp:192.0.2.7:6653\"\n"},
		{"controllers wanted", ofp.ControllerStatusRequest{}, "OFPST_CONTROLLER_STATUS request (OF1.5) (xid=0x7):\n"},
		{"one controller",
			ofp.ControllerStatusMessage{Status: ofp.ControllerStatus{Role: ofp.RoleEqual, Reason: ofp.ControllerNewID}},
			"OFPT_CONTROLLER_STATUS (OF1.5) (xid=0x7):\n id=0 role=equal reason=short_id channel=up\n"},
		{"bundles' features wanted", ofp.BundleFeaturesRequest{Flags: ofp.BundleFeatureTimestamp},
			"OFPST_BUNDLE_FEATURES request (OF1.5) (xid=0x7): flags=timestamp\n"},
		{"bundles' features", ofp.BundleFeaturesReply{Capabilities: ofp.BundleAtomic | ofp.BundleOrdered | ofp.BundleTime,
			Schedule: &ofp.BundleSchedule{Accuracy: ofp.Time{Nanoseconds: 1000}, Timestamp: ofp.Time{Seconds: 5}}},
			"OFPST_BUNDLE_FEATURES reply (OF1.5) (xid=0x7): capabilities=atomic ordered time\n" +
				" accuracy=0.000001000s\n max_future=0.000000000s\n max_past=0.000000000s\n timestamp=5.000000000s\n"},
		{"eviction", ofp.TableMod{Table: 3, Config: ofp.TableEviction, EvictionFlags: &flags},
			"OFPT_TABLE_MOD (OF1.5) (xid=0x7): table_id=3, eviction=on, eviction_flags=IMPORTANCE|LIFETIME, vacancy=off\n"},
		{"fields whose common beginning gets shorter", ofp.TableFeaturesReply{Tables: []ofp.TableFeatures{{
			Hit: ofp.TableEntryFeatures{Instructions: []ofp.ActionID{{Kind: 1}}, NextTables: []ofp.Table{},
				Write: ofp.TableActionFeatures{Actions: []ofp.ActionID{}, SetField: []ofp.FieldID{}},
				Apply: ofp.TableActionFeatures{Actions: []ofp.ActionID{}, SetField: []ofp.FieldID{}}},
			Match: []ofp.FieldID{{Field: ofp.CTNwSrc}, {Field: ofp.CTNwDst}, {Field: ofp.CTIPv6Src}}, Wildcards: []ofp.FieldID{},
		}}}, "OFPST_TABLE_FEATURES reply (OF1.5) (xid=0x7):\n  table 0:\n    eviction: not supported\n    vacancy events: " +
			"not supported\n" +
			"    instructions (table miss and others):\n      instructions: goto_table\n    matching:\n      must exact " +
			"match: ct_{nw_{src,dst},ipv6_src}\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := Message(7, row.m)
			if got != row.want {
				t.Errorf("%s\nwant\n%s", got, row.want)
			}
			b, err := ofp.AppendMessage(nil, 7, row.m)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := (Options{Verbosity: DefaultVerbosity}).AppendBytes(nil, b); err != nil || string(text) != row.want {
				t.Errorf("from its bytes %v: %s", err, text)
			}
		})
	}
}

// TestVerbosity compares our text with ofp-print's lower verbosities, which ofp-parse does not have.
func TestVerbosity(t *testing.T) {
	g := newGenerator(t, 5)
	for _, like := range []ofp.Message{
		ofp.EchoRequest{}, ofp.PacketIn{}, ofp.PacketOut{}, ofp.PortStatsReply{}, ofp.QueueStatsReply{}, ofp.FlowMod{},
	} {
		b, err := ofp.AppendMessage(nil, 9, g.message(like))
		if err != nil {
			t.Fatal(err)
		}
		for verbosity := range 6 {
			got, err := Options{Verbosity: verbosity}.AppendBytes(nil, b)
			if want := ofpPrint(t, b, verbosity); err != nil || string(got) != want {
				t.Errorf("%T, verbosity %d: %v\nours: %s\novs:  %s", like, verbosity, err, got, want)
			}
		}
	}
}

// TestInvalidBytes wants an error with the field and the byte, and no text.
func TestInvalidBytes(t *testing.T) {
	for _, row := range []struct {
		name string
		wire []byte
		want string
	}{
		{"nothing", nil, "decode message at byte 0: header: a message has at least 8 bytes"},
		{"another version", []byte{1, 20, 0, 8, 0, 0, 0, 1},
			"decode barrier_request at byte 8: version: 1 is not OpenFlow 1.5's, which is 6"},
		{"cut off", []byte{6, 9, 0, 10, 0, 0, 0, 1, 0, 0}, "decode set_config at byte 10: "},
		{"too long", []byte{6, 20, 0, 9, 0, 0, 0, 1, 0}, "decode barrier_request at byte 8: end: 1 bytes are left over"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, err := Options{}.AppendBytes(nil, row.wire)
			if err == nil || !strings.HasPrefix(err.Error(), row.want) || len(text) > 0 {
				t.Errorf("%v, text %q, want %s", err, text, row.want)
			}
		})
	}
}
