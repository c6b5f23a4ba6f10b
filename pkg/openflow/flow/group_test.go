package flow

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// groupForms are texts that people write.
var groupForms = []string{
	"group_id=1,type=all,bucket=actions=output:1",
	"group_id=2,type=select,selection_method=dp_hash,selection_method_param=7," +
		"bucket=weight:100,actions=output:1,bucket=bucket_id:9,weight:0,actions=set_field:1->reg0,resubmit(,3)",
	"group_id=3,type=select,selection_method=hash,fields(ip_src,ip_dst,nw_proto,tcp_src)," +
		"bucket=output:1,output:2,bucket=actions=drop",
	"group_id=4,type=select,selection_method=hash,fields=eth_dst,bucket=bucket_id=1,actions=output:1",
	"group_id=11,type=select,selection_method=hash," +
		"fields(ip_dst=255.255.255.0,eth_src=ff:ff:ff:00:00:00,nw_proto,ipv6_src=ffff::,tcp_dst=0xff)," +
		"bucket=actions=output:1",
	"group_id=12,type=select,selection_method=hash,fields=in_port,bucket=actions=output:1",
	"group_id=5,type=indirect,bucket=actions=resubmit(,5)",
	"group_id=6,type=ff,bucket=watch_port:1,actions=1,bucket=bucket_id:0,watch_group:2,actions=group:2",
	"group_id=7,type=fast_failover,bucket=watch_port:CONTROLLER,actions=output:1",
	"group_id=8,type=all",
	"group_id=0xffffff00,type=select,bucket=weight:65535,actions=ct(commit,nat(src=1.2.3.4),exec(set_field:1->ct_mark))",
	"group_id=9,type=all,bucket=bucket_id:5,actions=mod_vlan_vid:5,output:1," +
		"bucket=actions=move:reg0[0..7]->reg1[0..7],clone(output:3)",
	"group_id=10 type=select bucket=weight=3 actions=enqueue:1:2",
}

// TestGroups holds groups against ovs-ofctl: text by text, and all of their bytes at once.
func TestGroups(t *testing.T) {
	var wire bytes.Buffer
	var ours []string
	groups := append([]Group(nil), programmedGroups...)
	for _, text := range groupForms {
		g, err := ParseGroup(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		out := strings.TrimSpace(ofctl(t, "parse-group", text))
		if _, line, _ := strings.Cut(out, "\n ADD "); line != g.String() {
			t.Errorf("%s\n ours %s\n ovs  %s", text, g, line)
		}
		groups = append(groups, g)
	}
	r := newGenerator(3)
	for id := range uint32(500) {
		groups = append(groups, r.bucketGroup(100+id))
	}
	for _, g := range groups {
		b, err := ofp.AppendMessage(nil, 1, g.Mod(ofp.GroupAdd))
		if err != nil {
			t.Fatalf("%s: %v", g, err)
		}
		wire.Write(b)
		ours = append(ours, g.OVSText())
		if again, err := ParseGroup(g.String()); err != nil || !again.Equal(g) {
			t.Errorf("our own text\n read  %s\n gives %s\n %v", g, again, err)
		}
	}
	file := filepath.Join(t.TempDir(), "wire")
	if err := os.WriteFile(file, wire.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var theirs []string
	for line := range strings.Lines(ofctl(t, "ofp-parse", file)) {
		if line, ok := strings.CutPrefix(line, " ADD "); ok {
			theirs = append(theirs, strings.TrimSpace(line))
		}
	}
	differs(t, "groups through ofp-parse", ours, theirs)
}

// bucketGroup is a group at random.
func (g generator) bucketGroup(id uint32) Group {
	x := Group{ID: id, Type: pick(g, AllBuckets, Select, Indirect, FastFailover)}
	if x.Type == Select {
		x.Selection = pick(g, Selection{}, Selection{Method: "dp_hash", Param: g.Uint64()},
			Selection{Method: "hash", Param: 7, Fields: []ofp.Field{ofp.EthSrc, ofp.IPv4Src, ofp.IPProto, ofp.TCPDst}})
	}
	if x.Selection.Method == "hash" {
		x.Selection.Fields = nil
		for _, f := range ofp.Fields() {
			if g.IntN(12) == 0 && !f.Long() && known(f) {
				x.Selection.Fields = append(x.Selection.Fields, f)
				mask := ofp.Ones(f.Bits())
				if f.Maskable() && f.Format() == ofp.FormatHex && f != ofp.VLANTCI {
					mask = ofp.Ones(1 + g.IntN(f.Bits()))
				}
				x.Selection.Masks = append(x.Selection.Masks, mask)
			}
		}
	}
	n := g.IntN(4)
	if x.Type == Indirect {
		n = 1
	}
	for i := range n {
		b := Bucket{ID: uint32(i * 7), Actions: g.list()}
		for b.Actions.hasInstructions() || ofp.CheckActions(b.Actions) != nil {
			b.Actions = Do(g.action())
		}
		b.Actions = b.Actions.Canonical()
		switch x.Type {
		case Select:
			b.Weight = uint16(g.IntN(300))
		case FastFailover:
			b.WatchPort, b.WatchGroup = ofp.Port(1+g.IntN(100)), pick(g, 0, g.Uint32N(99)+1)
		}
		x.Buckets = append(x.Buckets, b)
	}
	return x
}

func (a Actions) hasInstructions() bool {
	_, err := ofp.AppendMessage(nil, 0, Group{Buckets: []Bucket{{Actions: a}}}.Mod(ofp.GroupAdd))
	return err != nil
}

var meterForms = []string{
	"meter=1 kbps bands=type=drop rate=5",
	"meter=2,pktps,burst,stats,bands=type=drop,rate=0x10,burst_size=7,type=dscp_remark,rate=100,burst_size=8,prec_level=3",
	"meter=controller pktps band=type=drop rate=9",
	"meter=slowpath,kbps,bands=\ntype=dscp_remark rate=4294967295 prec_level=255",
}

// TestMeters holds meters' bytes against ovs-ofctl; TestLive has their text.
func TestMeters(t *testing.T) {
	var wire bytes.Buffer
	var ours []string
	for _, text := range meterForms {
		m, err := ParseMeter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		b, err := ofp.AppendMessage(nil, 1, m.Mod(ofp.MeterAdd))
		if err != nil {
			t.Fatal(err)
		}
		wire.Write(b)
		ours = append(ours, m.String())
		if again, err := ParseMeter(m.String()); err != nil || !again.Equal(m) {
			t.Errorf("our own text\n read  %s\n gives %s\n %v", m, again, err)
		}
	}
	file := filepath.Join(t.TempDir(), "wire")
	if err := os.WriteFile(file, wire.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var theirs []string
	for i, part := range strings.Split(ofctl(t, "ofp-parse", file), " ADD ") {
		if text, _, _ := strings.Cut(part, "\nOFPT_"); i > 0 {
			theirs = append(theirs, strings.TrimSpace(text))
		}
	}
	differs(t, "meters through ofp-parse", ours, theirs)
}

// TestGroupErrors are texts that neither ovs-ofctl nor we take.
func TestGroupErrors(t *testing.T) {
	for _, c := range []struct {
		text   string
		column int
		word   string
	}{
		{"type=all,bucket=actions=1", 1, "group_id is missing"},
		{"group_id=1,bucket=actions=1", 1, "type is missing"},
		{"group_id=1,type=some", 17, "type"},
		{"group_id=1,type=all,color=red", 21, "color"},
		{"group_id=1,type=all,bucket=weight:x,actions=1", 35, "bucket 1: weight"},
		{"group_id=1,type=all,bucket=actions=1,bucket=weight:5", 45, "bucket 2: the bucket has no actions"},
		{"group_id=1,type=all,bucket=actions=fly", 36, "fly"},
		{"group_id=1,type=all,bucket=actions=output:1,meter:1", 45, "meter follows an action"},
		{"group_id=1,type=select,selection_method=hash,fields(reg99),bucket=actions=1", 53, "fields"},
		{"group_id=1,type=select,selection_method=hash,fields(nw_src=0.0.0.0),bucket=actions=1", 60, "fields"},
		{"group_id=1,type=select,selection_method=guess,bucket=actions=1", 41, "selection_method"},
		{"group_id=1,type=all,bucket=bucket_id:1,actions=1,bucket=bucket_id:1,actions=2", 1, "is there twice"},
	} {
		var pe *ParseError
		if _, err := ParseGroup(c.text); !errors.As(err, &pe) || pe.Column != c.column ||
			!strings.Contains(pe.Problem, c.word) || pe.Expected == "" {
			t.Errorf("%s: have %v, want column %d and %q", c.text, err, c.column, c.word)
		}
		if out, err := ofctlInput("", "parse-group", c.text); err == nil && !strings.Contains(c.text, "bucket_id:1") &&
			!strings.Contains(c.text, "guess") {
			t.Errorf("%s: ovs-ofctl takes it: %s", c.text, out)
		}
	}
	for _, c := range []struct {
		text   string
		column int
		word   string
	}{
		{"kbps bands=type=drop rate=5", 1, "no number"},
		{"meter=1 kbps", 1, "no bands"},
		{"meter=1 bands=type=drop rate=5", 1, "neither"},
		{"meter=1 kbps fast bands=type=drop rate=5", 14, "fast"},
		{"meter=1 kbps bands=type=paint rate=5", 25, "paint"},
		{"meter=1 kbps bands=rate=5", 20, "begins with its type"},
		{"meter=1 kbps bands=type=drop", 1, "no rate"},
		{"meter=1 kbps bands=type=drop rate", 30, "no value"},
		{"meter=1 kbps bands=type=drop rate=5 burst_size=6", 1, "burst"},
		{"meter=1 kbps bands=type=drop rate=5 prec_level=6", 1, "prec_level"},
		{"meter=1 kbps bands=type=drop rate=x", 35, "rate"},
	} {
		var pe *ParseError
		if _, err := ParseMeter(c.text); !errors.As(err, &pe) || pe.Column != c.column ||
			!strings.Contains(pe.Problem, c.word) || pe.Expected == "" {
			t.Errorf("%s: have %v, want column %d and %q", c.text, err, c.column, c.word)
		}
		if _, err := ofctlInput("", "add-meter", "unix:/nonexistent", c.text); err == nil ||
			strings.Contains(err.Error(), "failed to connect") {
			t.Errorf("%s: ovs-ofctl takes it: %v", c.text, err)
		}
	}
}
