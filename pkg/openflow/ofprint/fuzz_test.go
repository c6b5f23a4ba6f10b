package ofprint

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// FuzzPrint prints arbitrary bytes. Nothing panics, a text ends with a newline, and the text of a decoded message is
// the same with and without its bytes.
func FuzzPrint(f *testing.F) {
	for _, b := range samples(f) {
		f.Add(uint8(2), b)
	}
	g := newGenerator(f, 1)
	for i, like := range kinds {
		b, err := ofp.AppendMessage(nil, 1, g.message(like))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i%6), b)
	}
	f.Fuzz(func(t *testing.T, verbosity uint8, wire []byte) {
		o := Options{Verbosity: int(verbosity % 6)}
		text, err := o.AppendBytes([]byte("before"), wire)
		if err != nil {
			if string(text) != "before" {
				t.Fatalf("after an error there is text: %q", text)
			}
			return
		}
		if !bytes.HasPrefix(text, []byte("before")) || !bytes.HasSuffix(text, []byte("\n")) {
			t.Fatalf("%q", text)
		}
		// Other headers' versions, flags of multipart messages that are not known, and what is not
		// encoded again as it came, show only with the bytes.
		xid, m, err := ofp.DecodeMessage(wire)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := m.(ofp.Multipart); ok && (wire[10] != 0 || wire[11] != 0) {
			return
		}
		if wire[0] == ofp.Version && o.Verbosity < 5 && !strings.Contains(string(text), "\n00000000  ") {
			if again := o.Append([]byte("before"), xid, m); string(again) != string(text) {
				t.Fatalf("from the message %q\nfrom its bytes %q", again, text)
			}
		}
	})
}
