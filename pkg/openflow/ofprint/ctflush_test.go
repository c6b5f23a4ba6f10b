package ofprint

import (
	"encoding/hex"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestFlushMarks has the bytes and the text of NXT_CT_FLUSH with mark and labels, which came with Open vSwitch 3.3.
// Older ones are no oracle.
func TestFlushMarks(t *testing.T) {
	const (
		head  = "00000001" + "00002320" + "00000020" + "0000000000000000"
		tuple = "'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0,ct_nw_proto=0' " +
			"'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0'\n"
	)
	for _, row := range []struct {
		name, wire, want string
		m                ofp.CTFlush
	}{
		{"mark", "06040020" + head + "0003000800000005", "mark=0x5 ", ofp.CTFlush{Mark: 5, MarkMask: 0xffffffff}},
		{"mark with a mask", "06040028" + head + "0003000800000005" + "00040008000000ff", "mark=0x5/0xff ",
			ofp.CTFlush{Mark: 5, MarkMask: 0xff}},
		{"no mark", "06040020" + head + "0003000800000000", "mark=0 ", ofp.CTFlush{MarkMask: 0xffffffff}},
		{"labels", "06040030" + head + "00050014" + "0000000000000001" + "0000000000000002" + "00000000",
			"labels=0x10000000000000002 ",
			ofp.CTFlush{Labels: ofp.Value{Hi: 1, Lo: 2}, LabelsMask: ofp.Ones(128)}},
		{"labels with a mask",
			"06040048" + head + "00050014" + "0000000000000000" + "0000000000000002" + "00000000" + "00060014" +
				"0000000000000000" + "00000000000000ff" + "00000000",
			"labels=0x2/0xff ", ofp.CTFlush{Labels: ofp.Value{Lo: 2}, LabelsMask: ofp.Value{Lo: 0xff}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, err := ofp.AppendMessage(nil, 1, row.m)
			if err != nil || hex.EncodeToString(b) != row.wire {
				t.Errorf("it is %x, want %s: %v", b, row.wire, err)
			}
			text, err := Options{Verbosity: DefaultVerbosity}.AppendBytes(nil, b)
			if want := "NXT_CT_FLUSH (OF1.5) (xid=0x1): zone=0 " + row.want + tuple; err != nil || string(text) != want {
				t.Errorf("it is printed as %swant %s%v", text, want, err)
			}
		})
	}
}
