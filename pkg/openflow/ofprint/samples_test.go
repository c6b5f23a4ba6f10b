package ofprint

import (
	"encoding/hex"
	"strings"
	"testing"
)

// samples are the messages of testdata/samples.txt.
func samples(t testing.TB) [][]byte {
	t.Helper()
	var out [][]byte
	for _, line := range lines(t, "testdata/samples.txt") {
		b, err := hex.DecodeString(strings.ReplaceAll(line, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// TestSamples holds our text of Open vSwitch's own test messages against ovs-ofctl's.
func TestSamples(t *testing.T) {
	var list []sample
	for _, b := range samples(t) {
		list = append(list, sample{b, hex.EncodeToString(b)})
	}
	compare(t, list, 2)
	compare(t, list, 3, "-m")
	compare(t, list, 5, "-mmm")
}
