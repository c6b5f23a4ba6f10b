package ofprint

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// sample is a message as it goes over the wire and what it is.
type sample struct {
	wire []byte
	what string
}

// marker is the transaction id of the echoes that stand between messages, to find out where
// the text of each ends.
const marker = 0xfeed0000

var mark = regexp.MustCompile(
	`OFPT_ECHO_REQUEST \(OF1\.5\) \(xid=0xfeed[0-9a-f]{4}\): 0 bytes of payload\n(00000000  06 02 00 08 fe ed .*\n)?`)

// ofpParse gives messages to one ovs-ofctl ofp-parse and returns the text of each. It fails
// the test where ovs-ofctl is lacking.
func ofpParse(t testing.TB, samples []sample, args ...string) []string {
	t.Helper()
	var wire bytes.Buffer
	for i, s := range samples {
		wire.Write(s.wire)
		b, err := ofp.AppendMessage(nil, marker|uint32(i&0xffff), ofp.EchoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		wire.Write(b)
	}
	path := filepath.Join(t.TempDir(), "messages")
	if err := os.WriteFile(path, wire.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	cmd := exec.Command("ovs-ofctl", append(append([]string{"-O", "OpenFlow15", "-voff"}, args...), "ofp-parse", path)...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("ovs-ofctl ofp-parse (is openvswitch-common installed?): %v: %s", err, stderr.String())
	}
	texts := mark.Split(out.String(), -1)
	if len(texts) != len(samples)+1 || strings.Trim(texts[len(samples)], "\n") != "" {
		t.Fatalf("ovs-ofctl printed %d texts for %d messages", len(texts)-1, len(samples))
	}
	return texts[:len(samples)]
}

// ofpPrint is the text of ovs-ofctl ofp-print.
func ofpPrint(t testing.TB, wire []byte, verbosity int) string {
	t.Helper()
	out, err := exec.Command("ovs-ofctl", "-voff", "ofp-print", hex.EncodeToString(wire), strconv.Itoa(verbosity)).Output()
	if err != nil {
		t.Fatalf("ovs-ofctl ofp-print (is openvswitch-common installed?): %v", err)
	}
	return string(out)
}

// compare holds our text against ovs-ofctl's.
func compare(t *testing.T, samples []sample, verbosity int, args ...string) {
	t.Helper()
	bad := 0
	for i, want := range ofpParse(t, samples, args...) {
		got, err := Options{Verbosity: verbosity}.AppendBytes(nil, samples[i].wire)
		if err != nil {
			t.Errorf("%s: %v\n% x\novs:  %s", samples[i].what, err, samples[i].wire, want)
		} else if string(got) != want {
			t.Errorf("%s\n% x\nours: %q\novs:  %q", samples[i].what, samples[i].wire, got, want)
		} else {
			continue
		}
		if bad++; bad == 10 {
			t.FailNow()
		}
	}
}

// TestOracle holds the text of generated messages of every type against ovs-ofctl's.
func TestOracle(t *testing.T) {
	for _, like := range kinds {
		t.Run(fmt.Sprintf("%T", like), func(t *testing.T) {
			g := newGenerator(t, 30)
			samples := generate(g, like, 400)
			compare(t, samples, 2)
			compare(t, samples[:40], 3, "-m")
			compare(t, samples[:40], 5, "-mmm")
		})
	}
}

func generate(g *generator, like ofp.Message, n int) []sample {
	var samples []sample
	if reflect.TypeOf(like).NumField() == 0 {
		n = 40 // all are the same
	}
	for range n {
		m := g.message(like)
		b, err := ofp.AppendMessage(nil, uint32(g.number(31)), m)
		if err != nil {
			g.t.Fatalf("%+v: %v", m, err)
		}
		samples = append(samples, sample{b, fmt.Sprintf("%T%+v", m, m)})
	}
	return samples
}
