package openflow

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/logtext"
	"github.com/tombolo-net/tombolo/test/ports"
)

// bridge is a real switch with the bridge br0 and the targets by which it can be reached.
type bridge struct {
	*ovstest.Switch
	unix, tcp, ssl string
	files          []string // the options for ssl
	other          string   // a CA that has signed nothing
}

// startBridge starts Open vSwitch on the dummy datapath, listening in all three ways.
func startBridge(t *testing.T) *bridge {
	t.Helper()
	b := &bridge{Switch: ovstest.Start(t, ovstest.Dummy)}
	dir := t.TempDir()
	ca, caKey := certificate(t, dir, "ca", nil, nil)
	certificate(t, dir, "switch", ca, caKey)
	certificate(t, dir, "client", ca, caKey)
	certificate(t, dir, "other", nil, nil)
	pem := func(name string) string { return filepath.Join(dir, name+".pem") }
	b.files = []string{"-p", pem("client-key"), "-c", pem("client"), "-C", pem("ca")}
	b.other = pem("other")
	b.unix = "unix:" + filepath.Join(b.RunDir(), "br0.mgmt")
	tcp, ssl := ports.Free(t), ports.Free(t)
	b.tcp, b.ssl = fmt.Sprintf("tcp:127.0.0.1:%d", tcp), fmt.Sprintf("ssl:127.0.0.1:%d", ssl)
	b.Vsctl("set-ssl", pem("switch-key"), pem("switch"), pem("ca"))
	b.Vsctl("--timeout=60", "add-br", "br0", "--", "set", "bridge", "br0", "fail-mode=secure", "--",
		"set-controller", "br0", fmt.Sprintf("ptcp:%d:127.0.0.1", tcp), fmt.Sprintf("pssl:%d:127.0.0.1", ssl))
	for i := 1; i <= 3; i++ {
		p := fmt.Sprintf("p%d", i)
		b.Vsctl("--timeout=60", "add-port", "br0", p, "--", "set", "interface", p, "type=dummy",
			fmt.Sprintf("ofport_request=%d", i))
	}
	for _, address := range []string{strings.TrimPrefix(b.tcp, "tcp:"), strings.TrimPrefix(b.ssl, "ssl:")} {
		b.Eventually("the bridge listens at "+address, func() error {
			c, err := net.Dial("tcp", address)
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	return b
}

// certificate makes name.pem and name-key.pem, signed by a CA or, without one, by itself.
func certificate(t *testing.T, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate,
	*ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if ca == nil {
		ca, caKey = like, key
	}
	der, err := x509.CreateCertificate(rand.Reader, like, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + "-key.pem": {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, path), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}

// must runs a command line that has to succeed.
func must(t *testing.T, words ...string) string {
	t.Helper()
	out, stderr, code := tombolo(t, append([]string{"tombolo", "openflow"}, words...)...)
	if code != 0 {
		t.Fatalf("tombolo openflow %s: code %d: %s", strings.Join(words, " "), code, stderr)
	}
	return out
}

// TestSwitchCommands goes through dump, diff and replace on a real switch.
func TestSwitchCommands(t *testing.T) {
	b := startBridge(t)
	path := file(t, "flows.txt", textFlows)

	// Equal to what is nothing: an empty switch differs from the file in every flow.
	out, stderr, code := tombolo(t, "tombolo", "openflow", "diff", b.unix, path)
	want := "+" + strings.Join(strings.SplitAfter(strings.TrimSuffix(canonicalFlows, "\n"), "\n"), "+") + "\n"
	if code != 2 || stderr != "" || out != want {
		t.Fatalf("diff of an empty switch: code %d: %s%s", code, stderr, cmp.Diff(want, out))
	}
	if got := must(t, "replace", "--dry-run", b.unix, path); got != want {
		t.Errorf("dry run: %s", cmp.Diff(want, got))
	}
	if got := must(t, "dump", b.unix); got != "" {
		t.Errorf("the dry run has added %s", got)
	}
	if got := must(t, "replace", b.unix, path); got != want {
		t.Errorf("replace: %s", cmp.Diff(want, got))
	}
	if got := must(t, "replace", b.unix, path); got != "" {
		t.Errorf("the second replace has changed %s", got)
	}

	t.Run("every transport sees the same", func(t *testing.T) {
		t.Setenv("OVS_RUNDIR", b.RunDir())
		for _, words := range [][]string{
			{"dump", b.unix}, {"dump", b.tcp}, append([]string{"dump", b.ssl}, b.files...), {"dump", "br0"},
			{"dump", "unix:br0.mgmt"}, {"dump", filepath.Join(b.RunDir(), "br0.mgmt")},
			{"dump", b.ssl, b.files[0], b.files[1], b.files[2], b.files[3], "-C", "none"},
		} {
			if got := must(t, words...); got != canonicalFlows {
				t.Errorf("%v: %s", words, cmp.Diff(canonicalFlows, got))
			}
		}
		if got := must(t, "diff", "br0", path); got != "" {
			t.Errorf("diff of equal flows: %s", got)
		}
		if got := must(t, append([]string{"diff", b.tcp, b.ssl}, b.files...)...); got != "" {
			t.Errorf("diff of one switch by two transports: %s", got)
		}
	})
	t.Run("as ovs-ofctl", func(t *testing.T) {
		var theirs []string
		for line := range strings.Lines(ofctl(t, "--no-stats", "dump-flows", b.unix)) {
			if f, err := flow.ParseFlow(strings.TrimSpace(line)); err == nil {
				theirs = append(theirs, f.String())
			}
		}
		ours := strings.Split(strings.TrimSuffix(must(t, "dump", b.unix), "\n"), "\n")
		slices.Sort(ours)
		slices.Sort(theirs)
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("dump (-ovs-ofctl +ours):\n%s", diff)
		}
		stats := strings.Split(strings.TrimSuffix(must(t, "dump", "--stats", "--table", "1", b.unix), "\n"), "\n")
		if len(stats) != 2 || !strings.HasPrefix(stats[0], "cookie=0x0, duration=") ||
			!strings.Contains(stats[0], "n_packets=0, n_bytes=0, idle_age=") {
			t.Errorf("dump --stats: %q", stats)
		}
	})

	other := file(t, "other.txt", `
table=0,priority=200,in_port=1,ip,nw_src=10.0.0.0/8,actions=resubmit(,1)
table=1,tcp,tp_dst=80,cookie=0x7,importance=3,send_flow_rem,actions=set_field:5/0xff->reg0,output:2
table=2,priority=9,arp,actions=NORMAL
`)
	wantDiff := `-priority=200,ip,in_port=1,nw_src=10.0.0.0/8 actions=set_field:02:00:00:00:00:01->eth_src,resubmit(,1)
+priority=200,ip,in_port=1,nw_src=10.0.0.0/8 actions=resubmit(,1)
-table=1, tcp,tp_dst=80 actions=set_field:0x5/0xff->reg0,output:2
+cookie=0x7, table=1, send_flow_rem importance=3, tcp,tp_dst=80 actions=set_field:0x5/0xff->reg0,output:2
-table=1, priority=0 actions=drop
+table=2, priority=9,arp actions=NORMAL
`
	t.Run("diff", func(t *testing.T) {
		for _, words := range [][]string{{b.unix, other}, {path, other}} {
			out, stderr, code := tombolo(t, append([]string{"tombolo", "openflow", "diff"}, words...)...)
			if code != 2 || stderr != "" || out != wantDiff {
				t.Errorf("code %d: %s%s", code, stderr, cmp.Diff(wantDiff, out))
			}
		}
	})
	t.Run("replace", func(t *testing.T) {
		// Counters of what stays, or changes in its actions alone, are kept.
		if got := must(t, "replace", b.tcp, other); got != wantDiff {
			t.Errorf("%s", cmp.Diff(wantDiff, got))
		}
		if got := must(t, "diff", b.unix, other); got != "" {
			t.Errorf("left over: %s", got)
		}
		if out := ofctl(t, "diff-flows", b.unix, other); out != "" {
			t.Errorf("ovs-ofctl diff-flows: %s", out)
		}
	})
	t.Run("a refused flow changes nothing", func(t *testing.T) {
		before := must(t, "dump", b.unix)
		bad := file(t, "bad.txt", "table=3,ip,actions=output:1\ntable=3,arp,actions=group:77\n")
		out, stderr, code := tombolo(t, "tombolo", "openflow", "replace", b.unix, bad)
		for _, want := range []string{"nothing is changed", `the flow "table=3, arp actions=group:77" is refused`,
			"OFPBAC_BAD_OUT_GROUP"} {
			if code != 1 || out != "" || !strings.Contains(stderr, want) {
				t.Errorf("code %d, stdout %q, stderr %s lacks %s", code, out, stderr, want)
			}
		}
		if after := must(t, "dump", b.unix); after != before {
			t.Errorf("it has: %s", cmp.Diff(before, after))
		}
	})
	t.Run("groups and meters", func(t *testing.T) {
		ofctl(t, "add-group", b.unix, "group_id=5,type=select,bucket=weight:3,actions=output:1,bucket=actions=output:2")
		ofctl(t, "add-group", b.unix, "group_id=2,type=all,bucket=actions=output:1")
		ofctl(t, "add-meter", b.unix, "meter=7,kbps,burst,band=type=drop,rate=100,burst_size=20")
		const groups = "group_id=2,type=all,bucket=bucket_id:0,actions=output:1\n" +
			"group_id=5,type=select,bucket=bucket_id:0,weight:3,actions=output:1,bucket=bucket_id:1,actions=output:2\n"
		const meters = "meter=7 kbps burst bands= type=drop rate=100 burst_size=20\n"
		if got := must(t, "dump", "--groups", b.unix); got != groups {
			t.Errorf("groups: %s", cmp.Diff(groups, got))
		}
		if got := must(t, "dump", "--meters", b.unix); got != meters {
			t.Errorf("meters: %s", cmp.Diff(meters, got))
		}
		if got, want := must(t, "dump", "--all", b.unix), meters+groups+must(t, "dump", b.unix); got != want {
			t.Errorf("all: %s", cmp.Diff(want, got))
		}
	})
	t.Run("everything", func(t *testing.T) { testAll(t, b) })
	t.Run("names", func(t *testing.T) { testNames(t, b) })
	t.Run("wrong ways to reach it", func(t *testing.T) {
		for _, row := range []struct {
			name  string
			words []string
			want  string
		}{
			{"ssl without files", []string{"dump", b.ssl}, "ssl needs a private key and a certificate"},
			{"ssl without a CA", []string{"dump", b.ssl, b.files[0], b.files[1], b.files[2], b.files[3]},
				"ssl needs the certificate of the CA"},
			{"ssl with another CA", []string{"dump", b.ssl, b.files[0], b.files[1], b.files[2], b.files[3], "-C", b.other},
				"is not signed by the CA"},
			{"tcp where ssl is spoken", []string{"dump", "tcp" + strings.TrimPrefix(b.ssl, "ssl"), "-t", "2s"},
				"or only with TLS: ssl: instead of tcp:"},
			{"ssl where tcp is spoken", append([]string{"dump", "ssl" + strings.TrimPrefix(b.tcp, "tcp")}, b.files...),
				"does not speak TLS: use tcp:"},
			{"the database's socket", []string{"dump", "unix:" + filepath.Join(b.RunDir(), "db.sock")},
				"that is no bridge's OpenFlow socket"},
			{"a certificate of another CA", []string{"dump", b.ssl, "-p", strings.TrimSuffix(b.other, ".pem") + "-key.pem", "-c",
				b.other, "-C", "none"}, "does not take our certificate"},
			{"no time", []string{"dump", b.unix, "-t", "0s"}, "--timeout 0s: want more than nothing"},
			{"groups of a table", []string{"dump", b.unix, "--groups", "--table", "1"}, "--stats and --table are about flows"},
		} {
			out, stderr, code := tombolo(t, append([]string{"tombolo", "openflow"}, row.words...)...)
			if code != 1 || out != "" || !strings.Contains(stderr, row.want) {
				t.Errorf("%s: code %d, stdout %q: %s", row.name, code, out, stderr)
			}
		}
	})
	t.Run("old protocols", func(t *testing.T) {
		t.Setenv("OVS_RUNDIR", b.RunDir())
		b.Vsctl("set", "bridge", "br0", "protocols=OpenFlow10,OpenFlow13")
		var stderr string
		b.Eventually("the bridge forgets OpenFlow 1.5", func() error {
			var code int
			if _, stderr, code = tombolo(t, "tombolo", "openflow", "dump", "br0"); code == 0 {
				return fmt.Errorf("it still speaks it")
			}
			return nil
		})
		for _, want := range []string{"it speaks OpenFlow wire versions [1 4]",
			"ovs-vsctl set bridge br0 protocols=OpenFlow10,OpenFlow13,OpenFlow15"} {
			if !strings.Contains(stderr, want) {
				t.Errorf("stderr lacks %q: %s", want, stderr)
			}
		}
	})
}

// testAll goes through diff and replace of groups and meters.
func testAll(t *testing.T, b *bridge) {
	const one = `meter=1 kbps burst bands= type=drop rate=100 burst_size=20
meter=2 pktps bands= type=drop rate=7
group_id=5,type=select,bucket=bucket_id:0,weight:3,actions=output:1,bucket=bucket_id:1,actions=output:2
group_id=6,type=all,bucket=bucket_id:0,actions=output:1
group_id=7,type=all,bucket=bucket_id:0,actions=group:6
ip actions=meter:1,group:5
arp actions=meter:2,group:7
`
	// The flows stay and use other meters and groups. The old meters and groups go, or become another kind.
	const two = `meter=2 pktps bands= type=drop rate=9
meter=3 pktps bands= type=drop rate=9
group_id=6,type=ff,bucket=bucket_id:0,watch_port:1,actions=output:1
group_id=8,type=all,bucket=bucket_id:0,actions=group:6
ip actions=meter:2,group:6
arp actions=meter:3,group:8
`
	must(t, "replace", "--all", b.unix, file(t, "none", "# nothing\n"))
	if got := must(t, "dump", "--all", b.unix); got != "" {
		t.Fatalf("left over: %s", got)
	}
	first, second := file(t, "one.txt", one), file(t, "two.txt", "\n  "+strings.ReplaceAll(two, "\n", "  # a comment\n"))
	added := "+" + strings.ReplaceAll(strings.TrimSuffix(one, "\n"), "\n", "\n+") + "\n"
	if out, stderr, code := tombolo(t, "tombolo", "openflow", "diff", "--all", b.unix, first); code != 2 || out != added {
		t.Errorf("diff: code %d: %s%s", code, stderr, cmp.Diff(added, out))
	}
	if got := must(t, "replace", "--all", "--dry-run", b.unix, first); got != added ||
		must(t, "dump", "--all", b.unix) != "" {
		t.Errorf("dry run: %s", cmp.Diff(added, got))
	}
	for _, step := range []struct{ file, want string }{{first, one}, {second, two}, {first, one}} {
		must(t, "replace", "--all", b.unix, step.file)
		if got := must(t, "dump", "--all", b.unix); got != step.want {
			t.Errorf("replaced: %s", cmp.Diff(step.want, got))
		}
		if got := must(t, "replace", "--all", b.unix, step.file); got != "" {
			t.Errorf("replaced again, it changes %s", got)
		}
		must(t, "diff", "--all", b.unix, step.file)
	}
	const bands = "type=drop rate=1 type=drop rate=2 type=drop rate=3 type=drop rate=4 type=drop rate=5 type=drop " +
		"rate=6 type=drop rate=7 type=drop rate=8 type=drop rate=9"
	for _, row := range []struct{ name, text, want string }{
		{"flow", "table=3,ip,actions=group:77\n", `nothing is changed: the flow "table=3, ip actions=group:77" is refused`},
		{"meter", "meter=9 pktps bands= " + bands + "\n", `nothing is changed: the meter "meter=9 pktps bands= ` +
			bands + `" is refused: `},
	} {
		out, stderr, code := tombolo(t, "tombolo", "openflow", "replace", "--all", b.unix, file(t, "bad.txt", two+row.text))
		if code != 1 || out != "" || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: code %d, stdout %q, stderr %s", row.name, code, out, stderr)
		}
		if got := must(t, "dump", "--all", b.unix); got != one {
			t.Errorf("a refused %s has changed %s", row.name, cmp.Diff(one, got))
		}
	}
	// A dump of ovs-ofctl can be compared, with its headings.
	dumped := file(t, "dumped.txt", ofctl(t, "dump-groups", b.unix)+ofctl(t, "dump-meters", b.unix)+ofctl(t, "dump-flows",
		b.unix))
	must(t, "diff", "--all", b.unix, dumped)
	// Without --all flows alone count.
	must(t, "replace", b.unix, file(t, "none", ""))
	if got, want := must(t, "dump", "--all", b.unix), one[:strings.Index(one, "ip actions")]; got != want {
		t.Errorf("flows replaced: %s", cmp.Diff(want, got))
	}
	_, stderr, code := tombolo(t, "tombolo", "openflow", "replace", b.unix, first)
	for _, want := range []string{"one.txt, line 1: ", " is a meter: --all takes groups and meters too",
		"one.txt, line 3: ", " is a group: "} {
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("code %d, stderr lacks %q: %s", code, want, stderr)
		}
	}
	_, stderr, code = tombolo(t, "tombolo", "openflow", "replace", "--all", b.unix,
		file(t, "bad.txt", "\ngroup_id=1,type=x\nmeter=1\nmeter=5 pktps bands=\ntype=drop rate=0\nmeter=6 bands="))
	for _, want := range []string{"bad.txt: parse group: line 2, column 17: type: ",
		"bad.txt: parse meter: line 3, column 1: ", "bad.txt: parse meter: line 4, column 1: meter 5: band 1 has no rate",
		"bad.txt: parse meter: line 6, column "} {
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("code %d, stderr lacks %q: %s", code, want, stderr)
		}
	}
	must(t, "replace", "--all", b.unix, file(t, "none", ""))
}

// testNames compares dump --names with ovs-ofctl's.
func testNames(t *testing.T, b *bridge) {
	b.Vsctl("--timeout=60", "add-port", "br0", "eth-x", "--", "set", "interface", "eth-x", "type=dummy",
		"ofport_request=4", "--",
		"--id=@a", "create", "flow_table", "name=Classify", "--", "--id=@b", "create", "flow_table", `name="my table"`, "--",
		"set", "bridge", "br0", "flow_tables:0=@a", "flow_tables:7=@b")
	must(t, "replace", b.unix, file(t, "named.txt", "priority=5,in_port=1,ip,actions=resubmit(,7),4,ct(table=7),"+
		"learn(table=7,in_port=2,load:2->in_port,output:in_port),clone(output:3,LOCAL,IN_PORT)\n"+
		"in_port=LOCAL,actions=bundle(eth_src,0,hrw,ofport,members:1,4),sample(probability=1,sampling_port=3),"+
		"output(port=2,max_len=100),resubmit:3,resubmit(1,7)"+`
table=7,in_port=77,actions=set_field:3->in_port,load:4->reg0[],output:88,goto_table:9
table=9,actset_output=4,actions=enqueue:2:7,controller
table=9,priority=3,udp,actions=write_actions(output:2)
`))
	ofctl(t, "add-group", b.unix, "group_id=9,type=ff,bucket=watch_port:2,actions=output:4")
	ages := regexp.MustCompile(`duration=[^,]*, |idle_age=[^,]*, `)
	for _, row := range []struct{ ours, theirs []string }{
		{[]string{"dump", "--names", b.unix}, []string{"--names", "--no-stats", "dump-flows", b.unix}},
		{[]string{"dump", "--names", "--stats", b.unix}, []string{"--names", "dump-flows", b.unix}},
		{[]string{"dump", "--names", "--groups", b.unix}, []string{"--names", "dump-groups", b.unix}},
	} {
		theirs := strings.Split(strings.TrimSpace(ages.ReplaceAllString(ofctl(t, row.theirs...), "")), "\n")
		ours := strings.Split(strings.TrimSpace(ages.ReplaceAllString(must(t, row.ours...), "")), "\n")
		for i := range theirs {
			theirs[i] = strings.TrimSpace(theirs[i])
		}
		theirs = slices.DeleteFunc(theirs, func(s string) bool { return strings.HasPrefix(s, "OFPST_") })
		slices.Sort(theirs)
		slices.Sort(ours)
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("%v (-ovs-ofctl +ours):\n%s", row.ours, diff)
		}
	}
}

// TestMonitor watches a real switch until it is interrupted.
func TestMonitor(t *testing.T) {
	b := startBridge(t)
	must(t, "replace", b.unix, file(t, "flows.txt", textFlows))
	ctx, interrupt := context.WithCancel(t.Context())
	var out, stderr logtext.Buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(ctx, program(), []string{"openflow", "monitor", b.unix, "--initial", "--table", "1"}, &out, &stderr)
	}()
	saw := func(want string) {
		t.Helper()
		b.Eventually("monitor prints "+want, func() error {
			if got := out.String(); !strings.Contains(got, want) {
				return fmt.Errorf("it has printed %q; %s", got, stderr.String())
			}
			return nil
		})
	}
	saw("event=INITIAL table=1, tcp,tp_dst=80 actions=set_field:0x5/0xff->reg0,output:2\n")
	saw("event=INITIAL table=1, priority=0 actions=drop\n")
	ofctl(t, "add-flow", b.unix, "table=1,priority=6,udp,actions=output:3")
	saw("event=ADDED table=1, priority=6,udp actions=output:3\n")
	ofctl(t, "mod-flows", b.unix, "table=1,udp,actions=output:1")
	saw("event=MODIFIED table=1, priority=6,udp actions=output:1\n")
	ofctl(t, "del-flows", b.unix, "table=1,udp")
	saw("event=DELETED reason=delete table=1, priority=6,udp actions=output:1\n")
	if strings.Contains(out.String(), "in_port=1") {
		t.Errorf("a flow of another table: %s", out.String())
	}
	interrupt()
	if code := <-done; code != 0 || stderr.String() != "" {
		t.Errorf("interrupted: code %d: %s", code, stderr.String())
	}

	// A switch that goes away is an error.
	go func() {
		done <- cli.Run(t.Context(), program(), []string{"openflow", "monitor", b.unix, "--timestamps"}, &out, &stderr)
	}()
	ofctlUntil(t, b, &out)
	b.StopDaemon()
	if code := <-done; code != 1 || !strings.Contains(stderr.String(), "the connection has ended") {
		t.Errorf("the switch is gone: code %d: %s", code, stderr.String())
	}
}

// ofctlUntil changes a flow until the monitor has reported it, that is, until it watches.
func ofctlUntil(t *testing.T, b *bridge, out *logtext.Buffer) {
	t.Helper()
	n := 0
	b.Eventually("the second monitor watches", func() error {
		n++
		ofctl(t, "add-flow", b.unix, fmt.Sprintf("table=9,priority=%d,actions=drop", n))
		if !strings.Contains(out.String(), "event=ADDED table=9") {
			return fmt.Errorf("it has printed %q", out.String())
		}
		return nil
	})
}

func TestTargetErrors(t *testing.T) {
	t.Setenv("OVS_RUNDIR", "/none")
	changes := file(t, "flows.txt", "delete ip\n")
	for _, row := range []struct {
		name  string
		words []string
		want  string
	}{
		{"bridge not there", []string{"dump", "br0"}, "bridge br0 has no socket /none/br0.mgmt: see `ovs-vsctl list-br`"},
		{"socket not there", []string{"dump", "unix:/run/none.mgmt"},
			"there is no socket /run/none.mgmt: a bridge's socket is RUNDIR/BRIDGE.mgmt, here /none/BRIDGE.mgmt"},
		{"no program listens", []string{"monitor", "tcp:127.0.0.1:1"},
			"no program listens at tcp:127.0.0.1:1: the bridge has to, as after `ovs-vsctl set-controller BRIDGE ptcp:PORT`"},
		{"no transport", []string{"dump", "udp:1.2.3.4"}, `"udp" is no transport`},
		{"no host", []string{"dump", "tcp:"}, "a host is missing"},
		{"IPv6 without brackets", []string{"dump", "tcp:fd00::1"}, "an IPv6 address stands in brackets"},
		{"no path", []string{"dump", "unix:"}, "a path is missing"},
		{"no target", []string{"dump", ""}, "the target is empty"},
		{"no words", []string{"dump"}, "dump needs TARGET; it got 0 words"},
		{"table", []string{"dump", "br0", "--table", "255"}, "want a number from 0 to 254"},
		{"diff of nothing", []string{"diff", "no-such-thing", "br0"}, "no-such-thing is neither a file nor a switch"},
		{"diff of one", []string{"diff", "br0"}, "diff needs SOURCE and SOURCE; it got 1 words"},
		{"two standard inputs", []string{"diff", "-", "-"}, "only one of the two can be standard input"},
		{"no file", []string{"replace", "br0", "/none/flows"}, "open /none/flows"},
		{"change in a file", []string{"diff", changes, changes}, `flows.txt, line 1: "delete ip" is not a flow but a change`},
		{"match", []string{"monitor", "br0", "--match", "bogus=1"}, "bogus"},
		{"unknown command", []string{"dumb"},
			`tombolo openflow does not know "dumb"; it knows diff, dump, encode, monitor, parse, print, replace`},
	} {
		t.Run(row.name, func(t *testing.T) {
			out, stderr, code := tombolo(t, append([]string{"tombolo", "openflow"}, row.words...)...)
			if code != 1 || out != "" || !strings.Contains(stderr, row.want) {
				t.Errorf("code %d, stdout %q\nstderr: %swant:   %s", code, out, stderr, row.want)
			}
		})
	}
}
