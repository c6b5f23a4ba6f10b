package ofprint

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// known are the fields that the installed Open vSwitch knows.
var known = slices.DeleteFunc(ofp.Fields(), func(f ofp.Field) bool { return !ovstest.Since(f.Since()) })

// generator fills messages at random from their Go types. tame has Open vSwitch's further restrictions.
type generator struct {
	*rand.Rand
	t       testing.TB
	flows   []flow.Flow
	packets [][]byte
}

func newGenerator(t testing.TB, seed uint64) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, seed)), t: t}
	for _, line := range lines(t, "testdata/flows.txt") {
		f, err := flow.ParseFlow(line)
		if err != nil {
			t.Fatal(err)
		}
		g.flows = append(g.flows, f)
	}
	for _, line := range lines(t, "testdata/packets.txt") {
		b, err := hex.DecodeString(strings.ReplaceAll(line, " ", ""))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		g.packets = append(g.packets, b)
	}
	return g
}

// lines are the lines of a file without comments and empty ones.
func lines(t testing.TB, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func (g *generator) flow() flow.Flow { return g.flows[g.IntN(len(g.flows))] }

// number is often small or at an end, for those are what is printed in other ways.
func (g *generator) number(bits int) uint64 {
	v := g.Uint64() >> (64 - bits)
	switch g.IntN(6) {
	case 0:
		return 0
	case 1:
		return 1
	case 2:
		return v % 8
	case 3:
		return ^uint64(0) >> (64 - bits)
	case 4:
		return v >> g.IntN(bits)
	}
	return v
}

func (g *generator) bytes(most int) []byte {
	b := make([]byte, g.IntN(most+1))
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

// packet is a packet of any kind, often cut off or with a wrong byte.
func (g *generator) packet() []byte {
	b := slices.Clone(g.packets[g.IntN(len(g.packets))])
	for range g.IntN(3) {
		b[g.IntN(len(b))] = byte(g.Uint32())
	}
	if g.IntN(3) == 0 {
		b = b[:1+g.IntN(len(b))]
	}
	return b
}

func (g *generator) port() ofp.Port {
	if g.IntN(4) == 0 {
		return []ofp.Port{ofp.PortLocal, ofp.PortController, ofp.PortInPort, ofp.PortNormal, ofp.PortFlood, ofp.PortAll,
			ofp.PortTable}[g.IntN(7)]
	}
	return ofp.Port(1 + g.IntN(0xfeff))
}

func (g *generator) text(most int) string {
	b := g.bytes(most)
	for i := range b {
		b[i] = 0x21 + b[i]%0x5d
	}
	return string(b)
}

// fill sets everything that v holds.
func (g *generator) fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *ofp.Match:
		*x = g.flow().Match.OXM()
		return
	case *[]ofp.Action:
		*x = slices.Clone(g.flow().Actions)
		return
	case *ofp.Port:
		*x = g.port()
		return
	case *ofp.Message:
		*x = nil // a bundle's, which tame sets
		return
	case *[]ofp.RawProperty:
		*x = nil // Open vSwitch refuses most unknown ones
		return
	case *[]ofp.FlowMonitorRequest:
		*x = nil
		for range g.IntN(3) {
			var other ofp.FlowMonitorRequest
			v := reflect.ValueOf(&other).Elem()
			for i := range v.NumField() {
				if v.Type().Field(i).Name != "Others" {
					g.fill(v.Field(i))
				}
			}
			*x = append(*x, other)
		}
		return
	case *ofp.Field:
		*x = known[g.IntN(len(known))]
		return
	case *ofp.FieldID:
		g.fill(reflect.ValueOf(&x.Field).Elem())
		x.Masked = x.Field.Maskable() && g.IntN(2) == 0
		return
	case *netip.Addr:
		*x = netip.AddrFrom4([4]byte{10, 0, byte(g.IntN(2)), byte(g.Uint32())})
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(g.IntN(2) == 0)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(g.number(v.Type().Bits()))
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(g.IntN(100)))
	case reflect.String:
		v.SetString(g.text(12))
	case reflect.Struct:
		for i := range v.NumField() {
			g.fill(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			g.fill(v.Index(i))
		}
	case reflect.Slice:
		n := g.IntN(5)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			g.fill(v.Index(i))
		}
	case reflect.Pointer:
		if g.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			g.fill(v.Elem())
		}
	default:
		g.t.Fatalf("no way to fill a %s", v.Type())
	}
}

// message fills a message like the one given.
func (g *generator) message(like ofp.Message) ofp.Message {
	v := reflect.New(reflect.TypeOf(like)).Elem()
	g.fill(v)
	return g.tame(v.Interface().(ofp.Message))
}

// kinds are all types of messages.
var kinds = []ofp.Message{
	ofp.Hello{}, ofp.Error{}, ofp.EchoRequest{}, ofp.EchoReply{}, ofp.FeaturesRequest{}, ofp.FeaturesReply{},
	ofp.GetConfigRequest{}, ofp.GetConfigReply{}, ofp.SetConfig{}, ofp.PacketIn{}, ofp.PacketIn2{}, ofp.Resume{},
	ofp.PacketOut{}, ofp.FlowMod{}, ofp.FlowRemoved{}, ofp.GroupMod{}, ofp.MeterMod{}, ofp.PortStatus{},
	ofp.BarrierRequest{}, ofp.BarrierReply{}, ofp.RoleRequest{}, ofp.RoleReply{}, ofp.GetAsyncRequest{},
	ofp.GetAsyncReply{}, ofp.SetAsync{}, ofp.BundleControl{}, ofp.BundleAdd{}, ofp.SetPacketInFormat{},
	ofp.SetControllerID{}, ofp.Experimenter{}, ofp.RawMessage{},
	ofp.DescRequest{}, ofp.DescReply{}, ofp.FlowDescRequest{}, ofp.FlowDescReply{}, ofp.AggregateRequest{},
	ofp.AggregateReply{}, ofp.TableStatsRequest{}, ofp.TableStatsReply{}, ofp.PortDescRequest{}, ofp.PortDescReply{},
	ofp.GroupDescRequest{}, ofp.GroupDescReply{}, ofp.GroupStatsRequest{}, ofp.GroupStatsReply{},
	ofp.GroupFeaturesRequest{}, ofp.GroupFeaturesReply{}, ofp.MeterDescRequest{}, ofp.MeterDescReply{},
	ofp.FlowMonitorRequest{}, ofp.FlowMonitorReply{}, ofp.RawMultipart{},
	ofp.PortMod{}, ofp.TableMod{}, ofp.TableStatus{}, ofp.RoleStatus{}, ofp.RequestForward{},
	ofp.PortStatsRequest{}, ofp.PortStatsReply{}, ofp.QueueStatsRequest{}, ofp.QueueStatsReply{},
	ofp.QueueDescRequest{}, ofp.QueueDescReply{}, ofp.MeterStatsRequest{}, ofp.MeterStatsReply{},
	ofp.MeterFeaturesRequest{}, ofp.MeterFeaturesReply{}, ofp.TableDescRequest{}, ofp.TableDescReply{},
	ofp.TableFeaturesRequest{}, ofp.TableFeaturesReply{}, ofp.TLVTableMod{}, ofp.TLVTableRequest{}, ofp.TLVTableReply{},
	ofp.CTFlushZone{}, ofp.CTFlush{}, ofp.IPFIXBridgeRequest{}, ofp.IPFIXBridgeReply{}, ofp.IPFIXFlowRequest{},
	ofp.IPFIXFlowReply{}, ofp.ExperimenterMultipart{}, ofp.NXRoleRequest{}, ofp.NXRoleReply{}, ofp.NXSetAsync{},
	ofp.NXFlowAge{}, ofp.NXFlowModTableID{}, ofp.NXPacketIn{}, ofp.NXFlowRemoved{},
}

// TestEveryKind fails when package ofp gets a message that is in no test of this package.
func TestEveryKind(t *testing.T) {
	known := map[string]bool{ // what TestOwnTexts has
		"BundleFeaturesRequest": true, "BundleFeaturesReply": true, "ControllerStatusMessage": true,
		"ControllerStatusRequest": true, "ControllerStatusReply": true, "FlowStatsRequest": true, "FlowStatsReply": true,
	}
	for _, m := range kinds {
		known[reflect.TypeOf(m).Name()] = true
	}
	files, err := filepath.Glob("../ofp/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	method := regexp.MustCompile(`(?m)^func \((?:m )?(\w+)\) Type\(\) Type`)
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range method.FindAllStringSubmatch(string(b), -1) {
			if !known[m[1]] {
				t.Errorf("%s: ofp.%s is not printed in any test: add it to kinds", path, m[1])
			}
			delete(known, m[1])
		}
	}
	for name := range known {
		t.Errorf("ofp.%s is tested here, but not found in package ofp", name)
	}
}
