package flow

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestSampleBytes has the bytes of sample with fields for its observation (NXAST_SAMPLE4), which came with Open vSwitch
// 3.4. Older ones are no oracle, so the expected bytes are here.
func TestSampleBytes(t *testing.T) {
	var in strings.Builder
	var ours []string
	for _, row := range []struct{ text, wire string }{
		{"sample(probability=1,collector_set_id=2,obs_domain_id=NXM_NX_REG0[0..15],obs_point_id=7,sampling_port=3,ingress)",
			"ffff0028000023200033" +
				"0001" + "00000002" + "00010004000f0000" + "0000000000000007" + "0003" + "01" + "0000000000"},
		{"sample(probability=65535,collector_set_id=2,obs_domain_id=5,obs_point_id=OXM_OF_METADATA[3..34])",
			"ffff0028000023200033" +
				"ffff" + "00000002" + "0000000000000005" + "8000040800df0000" + "ffff" + "00" + "0000000000"},
		{"sample(probability=9,collector_set_id=0,obs_domain_id=NXM_NX_REG1[],obs_point_id=NXM_OF_TCP_SRC[],egress)",
			"ffff0028000023200033" +
				"0009" + "00000000" + "00010204001f0000" + "00001202000f0000" + "ffff" + "02" + "0000000000"},
	} {
		list, err := ParseActions(row.text)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ofp.AppendActions(nil, list)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(b); !strings.HasSuffix(got, row.wire) {
			t.Errorf("%s is %s, want %s", row.text, got, row.wire)
		}
		back, err := ofp.DecodeActions(b)
		if err != nil || Actions(back).OVSText() != row.text {
			t.Errorf("%s comes back as %s: %v", row.text, Actions(back).OVSText(), err)
		}
		fmt.Fprintln(&in, row.wire)
		ours = append(ours, "actions="+row.text)
	}
	if !ovstest.Since("3.4") {
		return
	}
	out, err := ofctlInput(in.String(), "parse-actions", "OpenFlow15")
	if err != nil {
		t.Fatal(err)
	}
	differs(t, "parse-actions", ours, strings.Split(strings.TrimSuffix(out, "\n\n"), "\n\n"))
}

// TestSampleOddBytes are kept as they came, or mean what an older form says.
func TestSampleOddBytes(t *testing.T) {
	const head = "0004003000000000" + "ffff0028000023200033" + "0001" + "00000002"
	for _, row := range []struct{ name, wire, want string }{
		{"two numbers", head + "0000000000000005" + "0000000000000006" + "ffff" + "00" + "0000000000",
			"sample(probability=1,collector_set_id=2,obs_domain_id=5,obs_point_id=6)"},
		{"a field that nobody knows", head + "0001ff04000f0000" + "0000000000000006" + "ffff" + "00" + "0000000000",
			"raw:" + strings.TrimPrefix(head,
				"0004003000000000") + "0001ff04000f0000" + "0000000000000006" + "ffff" + "00" + "0000000000"},
		{"bits that the field has not", head + "0001000400df0000" + "0000000000000006" + "ffff" + "00" + "0000000000",
			"decode actions at byte 8: action: sample: reg0: bits 3 to 34 are not within its 32 bits"},
		{"no probability",
			strings.Replace(head, "0033"+"0001", "0033"+"0000",
				1) + "0000000000000005" + "0000000000000006" + "ffff" + "00" + "0000000000",
			"decode actions at byte 8: action: sample: probability is 0, want 1 to 65535"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, err := hex.DecodeString(row.wire)
			if err != nil {
				t.Fatal(err)
			}
			list, err := ofp.DecodeActions(b)
			got := Actions(list).String()
			if err != nil {
				got = err.Error()
			}
			if got != row.want {
				t.Errorf("it is %s, want %s", got, row.want)
			}
		})
	}
}
