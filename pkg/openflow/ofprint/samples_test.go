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
