package flow

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// ofctl runs ovs-ofctl for OpenFlow 1.5; it fails the test where ovs-ofctl is lacking.
func ofctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := ofctlInput("", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ofctlInput gives ovs-ofctl something to read.
func ofctlInput(in string, args ...string) (string, error) {
	var out, stderr bytes.Buffer
	cmd := exec.Command("ovs-ofctl", append([]string{"-O", "OpenFlow15"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("ovs-ofctl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return out.String(), nil
}

// known reports whether the installed Open vSwitch knows a field.
func known(f ofp.Field) bool { return ovstest.Since(f.Since()) }

// modText is what ovs-ofctl prints of the flow's flow_mod after "OFPT_FLOW_MOD ...: ".
func modText(f Flow) string {
	p := printer{asOVS: true}
	p.str("ADD")
	if f.Table != 0 {
		p.f(" table:%d", f.Table)
	}
	p.str(" ")
	p.priorityAndMatch(f)
	if p.b[len(p.b)-1] != ' ' {
		p.str(" ")
	}
	if f.Cookie != 0 && f.Cookie != ^uint64(0) { // it takes a cookie of all ones for none
		p.f("cookie:0x%x ", f.Cookie)
	}
	if f.IdleTimeout != 0 {
		p.f("idle:%d ", f.IdleTimeout)
	}
	if f.HardTimeout != 0 {
		p.f("hard:%d ", f.HardTimeout)
	}
	if f.Importance != 0 {
		p.f("importance:%d ", f.Importance)
	}
	p.flowFlags(f.Flags)
	p.str("actions=")
	p.actions(f.Actions.Canonical())
	return string(p.b)
}

var modHead = regexp.MustCompile(`(?m)^OFPT_FLOW_MOD \(OF1\.5\)( \(xid=0x[0-9a-f]+\))?: `)

func modLines(out string) []string {
	var lines []string
	for line := range strings.Lines(out) {
		if head := modHead.FindString(line); head != "" {
			lines = append(lines, strings.TrimSuffix(line[len(head):], "\n"))
		} else if strings.Contains(line, "decode error") {
			lines = append(lines, line)
		}
	}
	return lines
}

// corpus returns all flows for the oracles: every field and action, and flows at random.
func corpus(random int) []Flow {
	g := newGenerator(20)
	list := append(fieldFlows(g), actionFlows(g)...)
	for range random {
		list = append(list, g.flow())
	}
	return list
}

// differs reports the first few differences of two lists of lines.
func differs(t *testing.T, what string, have, want []string) {
	t.Helper()
	if len(have) != len(want) {
		t.Fatalf("%s: %d lines, want %d", what, len(want), len(have))
	}
	for i, bad := 0, 0; i < len(have) && bad < 6; i++ {
		if have[i] != want[i] {
			bad++
			t.Errorf("%s: flow %d\n ours %s\n ovs  %s", what, i, have[i], want[i])
		}
	}
}

// TestOracle holds text and bytes of the whole corpus against ovs-ofctl: none may differ.
func TestOracle(t *testing.T) {
	flows := corpus(19000)
	var text, wire bytes.Buffer
	ours := make([]string, len(flows))
	for i, f := range flows {
		if err := f.Err(); err != nil {
			t.Fatalf("generated flow: %v", err)
		}
		fmt.Fprintln(&text, f)
		b, err := ofp.AppendMessage(nil, 1, f.Mod(ofp.FlowAdd))
		if err != nil {
			t.Fatal(err)
		}
		wire.Write(b)
		ours[i] = modText(f)
		_, m, err := ofp.DecodeMessage(b)
		if err != nil {
			t.Fatalf("decode %s: %v", f, err)
		}
		if mod := m.(ofp.FlowMod); mod.Match != f.Match.oxm || !f.Actions.Equal(mod.Actions) {
			t.Errorf("decoded, %s is %s %s", f, MatchOf(mod.Match), Actions(mod.Actions))
		}
	}
	dir := t.TempDir()
	textFile, wireFile := filepath.Join(dir, "flows"), filepath.Join(dir, "wire")
	if err := os.WriteFile(textFile, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wireFile, wire.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	differs(t, "bytes through ofp-parse", ours, modLines(ofctl(t, "ofp-parse", wireFile)))
	differs(t, "text through parse-flows", ours, modLines(ofctl(t, "parse-flows", textFile)))
	if len(flows) < 30000 {
		t.Errorf("%d flows are too few", len(flows))
	}
	mods, err := ParseFlows(&text)
	if err != nil {
		t.Fatal(err)
	}
	for i, bad := 0, 0; i < len(mods) && bad < 6; i++ {
		if m := mods[i]; !m.Flow.Equal(flows[i]) || m.Flow.String() != flows[i].String() {
			bad++
			t.Errorf("our own text\n read  %s\n gives %s", flows[i], m.Flow)
		}
	}
}

// TestForms compares ovs-ofctl's reading of hand-written texts with ours.
func TestForms(t *testing.T) {
	var ours []string
	var wire bytes.Buffer
	for _, text := range forms {
		f, err := ParseFlow(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		ours = append(ours, modText(f))
		b, err := ofp.AppendMessage(nil, 1, f.Mod(ofp.FlowAdd))
		if err != nil {
			t.Fatal(err)
		}
		wire.Write(b)
		if again, err := ParseFlow(f.String()); err != nil || !again.Equal(f) {
			t.Errorf("%s\n read  %s\n gives %s\n %v", text, f, again, err)
		}
	}
	dir := t.TempDir()
	textFile, wireFile := filepath.Join(dir, "flows"), filepath.Join(dir, "wire")
	if err := os.WriteFile(textFile, []byte(strings.Join(forms, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wireFile, wire.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	differs(t, "text through parse-flows", ours, modLines(ofctl(t, "parse-flows", textFile)))
	differs(t, "bytes through ofp-parse", ours, modLines(ofctl(t, "ofp-parse", wireFile)))
}
