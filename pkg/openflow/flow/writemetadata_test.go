package flow

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestWriteMetadataAction has Nicira's action write_metadata (NXAST_WRITE_METADATA, subtype 22), which Open vSwitch
// reads but does not write for OpenFlow 1.5: it becomes the instruction, or is refused, as ovs-ofctl does.
func TestWriteMetadataAction(t *testing.T) {
	const (
		apply       = "0004" // instruction types
		write       = "0003"
		action      = "ffff0020000023200016" + "000000000000" + "0000000000000005" + "0000000000000007"
		exact       = "ffff0020000023200016" + "000000000000" + "0000000000000005" + "ffffffffffffffff"
		nonzero     = "ffff0020000023200016" + "000000000001" + "0000000000000005" + "0000000000000007"
		short       = "ffff0018000023200016" + "000000000000" + "0000000000000005"
		output      = "00000010000000010000000000000000"
		gotoTable   = "0001000805000000"
		instruction = "00020018000000000000000000000001" + "0000000000000001"
	)
	instructions := func(kind string, actions ...string) string {
		body := strings.Join(actions, "")
		n := 8 + len(body)/2
		return kind + hex.EncodeToString([]byte{byte(n >> 8), byte(n), 0, 0, 0, 0}) + body
	}
	clone := func(inner string) string {
		n := 16 + len(inner)/2
		return "ffff" + hex.EncodeToString([]byte{byte(n >> 8), byte(n)}) + "00002320" + "002a" + "000000000000" + inner
	}
	for _, c := range []struct {
		name, instructions string
		want               string // actions, or an error
	}{
		{"alone", instructions(apply, action), "write_metadata:0x5/0x7"},
		{"without a mask", instructions(apply, exact), "write_metadata:0x5"},
		{"after an action", instructions(apply, output, action), "output:1,write_metadata:0x5/0x7"},
		{"before a goto", instructions(apply, action) + gotoTable, "write_metadata:0x5/0x7,goto_table:5"},
		{"before an action", instructions(apply, action, output), "output stands after write_metadata"},
		{"twice", instructions(apply, action, action), "write_metadata stands after write_metadata"},
		{"beside the instruction", instructions(apply, action) + instruction, "write_metadata stands twice"},
		{"in an action set", instructions(write, action), "may only stand in a flow"},
		{"in a clone", instructions(apply, clone(action)), "may only stand in a flow"},
		{"with bytes that must be zero", instructions(apply, nonzero), "must be zero"},
		{"cut short", instructions(apply, short), "metadata mask"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, err := hex.DecodeString(c.instructions)
			if err != nil {
				t.Fatal(err)
			}
			b, err := ofp.AppendMessage(nil, 1, Flow{Priority: DefaultPriority}.Mod(ofp.FlowAdd))
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, body...)
			b[2], b[3] = byte(len(b)>>8), byte(len(b))
			theirs, oracleErr := ofctlInput("", "ofp-print", hex.EncodeToString(b))
			_, m, err := ofp.DecodeMessage(b)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %q, want one about %q", err, c.want)
				}
				if oracleErr == nil && !strings.Contains(theirs, "decode error") {
					t.Errorf("refused with %v, but ovs-ofctl prints %s", err, theirs)
				}
				return
			}
			have := Actions(m.(ofp.FlowMod).Actions)
			if have.String() != c.want {
				t.Errorf("decoded as %s, want %s", have, c.want)
			}
			if lines := modLines(theirs); len(lines) != 1 || lines[0] != "ADD actions="+c.want {
				t.Errorf("ovs-ofctl prints %q, want %q", theirs, c.want)
			}
			if again, err := ParseActions(have.String()); err != nil || !again.Equal(have) {
				t.Errorf("its text %s is read as %s: %v", have, again, err)
			}
		})
	}
}
