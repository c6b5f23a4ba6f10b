package openflow

import (
	"bytes"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/clitest"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofprint"
)

// program is the command of a program with the group openflow.
func program() *cobra.Command {
	root := cli.Root("tombolo", "")
	root.AddCommand(Command())
	return root
}

// tombolo runs a command line, whose first word is the program, and returns what it printed.
func tombolo(t *testing.T, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	return clitest.Run(t, program(), words[1:]...)
}

// withInput runs a command line with standard input.
func withInput(t *testing.T, input string, words ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	root := program()
	root.SetArgs(words)
	root.SetIn(strings.NewReader(input))
	root.SetOut(&out)
	root.SetErr(&out)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

// file writes a file of the test's own.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ofctl runs ovs-ofctl, which has to be there.
func ofctl(t *testing.T, args ...string) string {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := exec.Command("ovs-ofctl", append([]string{"-O", "OpenFlow15"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("ovs-ofctl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return out.String()
}

const (
	barrier = "0614000800000007"
	// modHead is the head and the body of a flow-mod, without its match.
	modHead  = "060e003800000001000000000000000000000000000000000000000000008000ffffffffffffffffffffffff00000000"
	flowAdd  = modHead + "0001000400000000"
	shortMod = modHead + "0001000900000000"
)

func TestPrintMessages(t *testing.T) {
	const want = "OFPT_BARRIER_REQUEST (OF1.5) (xid=0x7):\n"
	dump := "00000000  06 14 00 08 00 00 00 07-                        |........        |\n"
	for _, row := range []struct {
		name  string
		input string
		words []string
		want  string
	}{
		{"one word", "", []string{barrier}, want},
		{"blanks", "", []string{"06 14 00 08 00", "00 00 07"}, want},
		{"colons and 0x", "", []string{"06:14:00:08:0x00000007"}, want},
		{"capitals", "", []string{strings.ToUpper(flowAdd)}, "OFPT_FLOW_MOD (OF1.5) (xid=0x1): ADD actions=drop\n"},
		{"two messages on lines", barrier + "\n" + flowAdd + "\n", []string{"-"}, want +
			"OFPT_FLOW_MOD (OF1.5) (xid=0x1): ADD actions=drop\n"},
		{"hex dump", dump, []string{"-"}, want},
		{"more words", "", []string{barrier, "--verbosity", "5"}, want + dump},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := withInput(t, row.input, append([]string{"openflow", "print"}, row.words...)...)
			if err != nil || got != row.want {
				t.Errorf("%v\n%s", err, cmp.Diff(row.want, got))
			}
		})
	}
	for _, row := range []struct {
		name  string
		words []string
		out   string
		want  string
	}{
		{"no bytes", []string{" "}, "", "no bytes given"},
		{"no words", nil, "", "print needs the bytes of a message, such as 0614000800000007, or -"},
		{"no digit", []string{"06 14 xx"}, "", "line 1, column 7: 'x' is no hexadecimal digit"},
		{"half a byte", []string{"061"}, "", "line 1, column 3: a byte has two hexadecimal digits, and '1' stands alone"},
		{"too short for a header", []string{barrier + "0614"}, want,
			"message 2, at byte 8: 2 bytes are there, and a header alone has 8"},
		{"cut off", []string{"0614001000000007"}, "",
			"message 1, at byte 0: its length field says 16 bytes, and 8 are there: it is the beginning of a barrier_request"},
		{"cut off, and of another version", []string{"0114001000000007"}, "",
			"its length field says 16 bytes, and 8 are there\n"},
		{"length says nothing", []string{"0614000000000007"}, "",
			"message 1, at byte 0: its length field says 0 bytes, and a header alone has 8"},
		{"field at fault, and the next message", []string{shortMod + barrier}, want,
			"message 1, at byte 0: decode flow_mod at byte 52: match: "},
		{"another version", []string{"0114000800000007"}, "", "version: 1 is not OpenFlow 1.5's, which is 6"},
	} {
		t.Run(row.name, func(t *testing.T) {
			out, stderr, code := tombolo(t, append([]string{"tombolo", "openflow", "print"}, row.words...)...)
			if code != 1 || out != row.out || !strings.Contains(stderr, row.want) {
				t.Errorf("code %d, stdout %q\nstderr: %swant:   %s", code, out, stderr, row.want)
			}
		})
	}
}

// textFlows are flows as people write them.
const textFlows = `# the first table
table=0,priority=200,in_port=1,ip,nw_src=10.0.0.0/8,actions=mod_dl_src:02:00:00:00:00:01,resubmit(,1)

table=1, tcp, tp_dst=80, actions=load:5->NXM_NX_REG0[0..7],output:2  # the web
 table=1,priority=0 actions=drop
`

const canonicalFlows = "priority=200,ip,in_port=1,nw_src=10.0.0.0/8 " +
	`actions=set_field:02:00:00:00:00:01->eth_src,resubmit(,1)
table=1, tcp,tp_dst=80 actions=set_field:0x5/0xff->reg0,output:2
table=1, priority=0 actions=drop
`

func TestParseFlows(t *testing.T) {
	path := file(t, "flows.txt", textFlows)
	for _, row := range []struct {
		name, input string
		words       []string
	}{
		{"file", "", []string{"parse", "-f", path}},
		{"standard input", textFlows, []string{"parse", "-"}},
		{"canonical text again", canonicalFlows, []string{"parse", "-f", "-"}},
		{"words", "", []string{"parse", strings.Split(canonicalFlows, "\n")[0], strings.Split(canonicalFlows, "\n")[1],
			strings.Split(canonicalFlows, "\n")[2]}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := withInput(t, row.input, append([]string{"openflow"}, row.words...)...)
			if err != nil || got != canonicalFlows {
				t.Errorf("%v\n%s", err, cmp.Diff(canonicalFlows, got))
			}
		})
	}
	bad := file(t, "bad.txt",
		"ip,actions=drop\nip,bogus=5,actions=drop\nip,tp_dst=80,actions=output:1\nip,actions=nonsense\n")
	out, stderr, code := tombolo(t, "tombolo", "openflow", "parse", "-f", bad)
	if code != 1 || out != "ip actions=drop\n" {
		t.Errorf("code %d, stdout %q", code, out)
	}
	for _, want := range []string{bad + ": parse flow: line 2, column 4: ", "bogus", bad +
		": parse flow: line 3, column 4: tp_dst", bad + ": parse flow: line 4, column 12: ", "nonsense"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, stderr)
		}
	}
	for _, row := range []struct{ name, flow, want string }{
		{"prerequisite", "actions=set_field:10.0.0.1->ip_dst", "ip_dst"},
		{"table that does not come after", "table=5,actions=goto_table:3", "goto_table:3 is not after table 5"},
		{"no actions", "ip", "actions"},
	} {
		t.Run(row.name, func(t *testing.T) {
			out, stderr, code := tombolo(t, "tombolo", "openflow", "parse", row.flow)
			if code != 1 || out != "" || !strings.Contains(stderr, row.want) {
				t.Errorf("code %d, stdout %q, stderr %s", code, out, stderr)
			}
		})
	}
	out, stderr, code = tombolo(t, "tombolo", "openflow", "parse", "ct_state=+rpl+trk,udp,ct_tp_src=53,actions=drop")
	if code != 0 || out != "ct_state=+rpl+trk,udp actions=drop\n" ||
		!strings.Contains(stderr, "warning: the flow: ct_tp_src is left out") {
		t.Errorf("a condition that is never sent: code %d, %q, %q", code, out, stderr)
	}
	if _, stderr, code := tombolo(t, "tombolo", "openflow", "parse"); code != 1 ||
		!strings.Contains(stderr, "parse needs a flow") {
		t.Errorf("no flow: code %d: %s", code, stderr)
	}
	if _, stderr, code := tombolo(t, "tombolo", "openflow", "parse", "-f", "/none/flows"); code != 1 ||
		!strings.Contains(stderr, "/none/flows") {
		t.Errorf("no file: code %d: %s", code, stderr)
	}
}

// TestEncodeFlows has ovs-ofctl read what encode writes.
func TestEncodeFlows(t *testing.T) {
	out, stderr, code := tombolo(t, "tombolo", "openflow", "encode", "-f", file(t, "flows.txt", textFlows))
	if code != 0 {
		t.Fatal(stderr)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{
		"OFPT_FLOW_MOD (OF1.5) (xid=0x1): ADD priority=200,ip,in_port=1,nw_src=10.0.0.0/8 " +
			"actions=set_field:02:00:00:00:00:01->eth_src,resubmit(,1)\n",
		"OFPT_FLOW_MOD (OF1.5) (xid=0x2): ADD table:1 tcp,tp_dst=80 actions=set_field:0x5/0xff->reg0,output:2\n",
		"OFPT_FLOW_MOD (OF1.5) (xid=0x3): ADD table:1 priority=0 actions=drop\n",
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %s", len(lines), out)
	}
	for i, line := range lines {
		if got := ofctl(t, "ofp-print", line); got != want[i] {
			t.Errorf("ovs-ofctl reads %s, want %s", got, want[i])
		}
	}
	// And so do we.
	if got, err := withInput(t, out, "openflow", "print", "-"); err != nil || got != strings.Join(want, "") {
		t.Errorf("%v: %s", err, cmp.Diff(strings.Join(want, ""), got))
	}
	for text, want := range map[string]string{
		"delete_strict table=3,priority=7,ip":   "DEL_STRICT table:3 priority=7,ip actions=drop",
		"delete table=3,ip,out_port=4":          "DEL table:3 ip out_port:4 actions=drop",
		"delete":                                "DEL table:255 actions=drop",
		"delete cookie=0x10/0xf0":               "DEL table:255 cookie:0x10/0xf0 actions=drop",
		"modify table=2,arp,actions=output:1":   "MOD table:2 arp actions=output:1",
		"add table=2,arp,actions=output:1":      "ADD table:2 arp actions=output:1",
		"modify_strict priority=3,actions=drop": "MOD_STRICT priority=3 actions=drop",
	} {
		out, stderr, code := tombolo(t, "tombolo", "openflow", "encode", text)
		if code != 0 {
			t.Errorf("%s: %s", text, stderr)
			continue
		}
		printed := ofctl(t, "ofp-print", strings.TrimSpace(out))
		if got := strings.TrimPrefix(printed, "OFPT_FLOW_MOD (OF1.5) (xid=0x1): "); got != want+"\n" {
			t.Errorf("%s: ovs-ofctl reads %s, want %s", text, got, want)
		}
		// Canonical text means the same.
		canonical := must(t, "parse", text)
		if strings.HasSuffix(canonical, " \n") {
			t.Errorf("%q ends with a blank", canonical)
		}
		if again := must(t, "encode", strings.TrimSpace(canonical)); again != out {
			t.Errorf("%s: its canonical text %s is another message", text, canonical)
		}
	}
}

// FuzzParseHex reads whatever people may paste.
func FuzzParseHex(f *testing.F) {
	for _, text := range []string{barrier, flowAdd, "06:14:0x00 08\n00-000007",
		"00000000  06 14 00 08 00 00 00 07-  |....|\n", "0x", "0", "\xff", "00000000  "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		wire, err := parseHex(text)
		if err != nil {
			return
		}
		again, err := parseHex(hex.EncodeToString(wire))
		if err != nil || !bytes.Equal(again, wire) {
			t.Fatalf("%x is read as %x: %v", wire, again, err)
		}
		_ = printAll(io.Discard, ofprint.Options{Verbosity: 2}, wire) // does not panic
	})
}
