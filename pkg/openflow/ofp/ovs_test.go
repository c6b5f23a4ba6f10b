package ofp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ofpParse is what ovs-ofctl prints of a stream of messages.
func ofpParse(t *testing.T, stream []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "messages")
	if err := os.WriteFile(file, stream, 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command("ovs-ofctl", "ofp-parse", file)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ovs-ofctl ofp-parse (package openvswitch-common must be installed): %v\n%s", err, stderr.String())
	}
	return string(out)
}

type wire struct {
	name string
	same bool // comes back byte by byte
	b    []byte
}

// recorded reads testdata/ovs.txt.
func recorded(t testing.TB) []wire {
	t.Helper()
	file, err := os.ReadFile("testdata/ovs.txt")
	if err != nil {
		t.Fatal(err)
	}
	var list []wire
	for i, line := range strings.Split(strings.TrimSpace(string(file)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 3 {
			t.Fatalf("testdata/ovs.txt:%d: want a mark, a name and bytes", i+1)
		}
		b, err := hex.DecodeString(f[2])
		if err != nil {
			t.Fatalf("testdata/ovs.txt:%d: %v", i+1, err)
		}
		list = append(list, wire{f[1], f[0] == "=", b})
	}
	return list
}

// TestRecorded decodes and encodes messages that others have made: nothing may be lost.
func TestRecorded(t *testing.T) {
	var before, after []byte
	list := recorded(t)
	for _, r := range list {
		xid, m, err := DecodeMessage(r.b)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		switch m.(type) {
		case RawMessage, RawMultipart, Experimenter, ExperimenterMultipart:
			t.Errorf("%s: is kept raw, as %T", r.name, m)
		}
		again, err := AppendMessage(nil, xid, m)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		if same := bytes.Equal(again, r.b); same != r.same {
			t.Errorf("%s: comes back unchanged: %v, want %v\n have %x\n want %x", r.name, same, r.same, again, r.b)
		}
		before, after = append(before, r.b...), append(after, again...)
	}
	if len(list) < 110 {
		t.Errorf("testdata/ovs.txt has %d messages", len(list))
	}
	// The absence of a tag is one match of OpenFlow 1.5, and two of NXM, which has the priority in the same field.
	text := func(b []byte) []string {
		return strings.Split(strings.ReplaceAll(ofpParse(t, b), "vlan_tci=0x0000/0x1fff", "vlan_tci=0x0000"), "\n")
	}
	was, is := text(before), text(after)
	for i := range min(len(was), len(is)) {
		// The only text that shows bytes: what a hello has besides its elements.
		if was[i] != is[i] && !strings.Contains(was[max(0, i-4)]+was[max(0, i-3)]+was[max(0, i-2)]+was[max(0, i-1)],
			"unknown data in hello") {
			t.Fatalf("line %d differs\n have %s\n want %s", i+1, is[i], was[i])
		}
	}
	if len(was) != len(is) {
		t.Errorf("%d lines of text, want %d", len(is), len(was))
	}
}

// TestPrinted gives our bytes to ovs-ofctl: it must accept them and print the intended meaning.
func TestPrinted(t *testing.T) {
	list := accepted()
	var stream []byte
	for i, s := range list {
		var err error
		if stream, err = AppendMessage(stream, uint32(i+1), s.m); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	text := ofpParse(t, stream)
	for i, s := range list {
		mark := fmt.Sprintf("(xid=0x%x):", i+1)
		_, from, ok := strings.Cut(text, mark)
		if !ok {
			t.Errorf("%s: is not printed", s.name)
			continue
		}
		block, _, _ := strings.Cut(from, fmt.Sprintf("(xid=0x%x):", i+2))
		if at := strings.LastIndex(block, "\n"); at >= 0 && i+1 < len(list) {
			block = block[:at] // the name of the next message
		}
		if strings.Contains(block, "***decode error") {
			t.Errorf("%s: is refused:%s", s.name, block)
		}
		for _, want := range s.want {
			if !strings.Contains(block, want) {
				t.Errorf("%s: want %q in:\n%s%s", s.name, want, mark, block)
			}
		}
	}
}
