package appctl

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Traced is what ofproto/trace has found about a packet in the bridge that it came into.
type Traced struct {
	Steps  []TracedStep
	Groups []TracedGroup
	// Protocol is the word for the packet's protocol, such as tcp or icmp6. Fields are the packet's at its end, as
	// ovs-ofctl writes them, such as nw_dst and tun_dst.
	Protocol string
	Fields   map[string]string
	// Output is the port that the packet leaves by, 0 if it does not leave. Back is set if it leaves by the port that it
	// came from.
	Output uint32
	Back   bool
	// Userdata are the texts with which it was sent to the controller.
	Userdata []string
	// Dropped is set if the datapath drops it in the end. Unroutable is set if the host has no route to a tunnel's end.
	Dropped, Unroutable bool
	Remarks             []string // about what was not possible
}

// TracedStep is a flow that the packet has met.
type TracedStep struct {
	Table    uint8
	Priority uint16
	Match    string
	Cookie   uint64
}

// TracedGroup is a group that the packet has met. Chosen is not set if no bucket is alive.
type TracedGroup struct {
	ID     uint32
	Bucket uint32
	Chosen bool
}

var (
	stepLine    = regexp.MustCompile(`^ *(\d+)\. (?:(.*?),? ?\bpriority (\d+)(?:, cookie 0x([0-9a-f]+))?|No match.*)$`)
	bridgeLine  = regexp.MustCompile(`^bridge\("([^"]+)"\)`)
	flowLine    = regexp.MustCompile(`^Flow: (.*)$`)
	setLine     = regexp.MustCompile(`^ +(?:set_field|load):([^/\s]+)->([a-z0-9_]+)$`)
	keyLine     = regexp.MustCompile(`-> NXM_NX_TUN_ID\[[^]]*\] is now (0x[0-9a-f]+)`)
	groupLine   = regexp.MustCompile(`^ +group:(\d+)$`)
	bucketLine  = regexp.MustCompile(`-> using bucket (\d+)`)
	outputLine  = regexp.MustCompile(`-> output port is (\d+)`)
	portLine    = regexp.MustCompile(`^ +output:(\d+)$`)
	userLine    = regexp.MustCompile(`^ +controller\(.*userdata=([0-9a-f.]+)`)
	remarkLine  = regexp.MustCompile(`>> (.*?)(?: <<<*)?$|-> (skipping output.*|no live bucket.*|neighbor cache miss.*)`)
	actionsLine = regexp.MustCompile(`^Datapath actions: (.*)$`)
)

// ownAddress is a remark about packets that a Gateway passes on after a translation. There ofproto/trace takes the
// new destination of the tunnel for the former one. The datapath does not.
const ownAddress = "Not tunneling to our own address"

// fieldNames has the names that flows have for fields, by their names in actions.
var fieldNames = map[string]string{
	"eth_src": "dl_src", "eth_dst": "dl_dst", "ip_src": "nw_src", "ip_dst": "nw_dst", "ip_ttl": "nw_ttl",
	"tcp_src": "tp_src", "tcp_dst": "tp_dst", "udp_src": "tp_src", "udp_dst": "tp_dst",
}

// protocolWords are the words for protocols in flows.
var protocolWords = []string{"tcp", "tcp6", "udp", "udp6", "sctp", "sctp6", "icmp", "icmp6", "ip", "ipv6", "arp"}

// ParseTrace reads the text of ofproto/trace. Each passage of connection tracking goes on with the packet, and the end
// of the last one counts.
func ParseTrace(text string) (Traced, error) {
	t := traceReader{Traced: Traced{Fields: map[string]string{}}}
	for line := range strings.Lines(text) {
		t.line(strings.TrimRight(line, "\n"))
	}
	if len(t.Steps) == 0 || t.Protocol == "" {
		return t.Traced, fmt.Errorf("ofproto/trace answers without a table or a flow: %q", text)
	}
	return t.Traced, nil
}

// traceReader reads lines.
type traceReader struct {
	Traced
	first, bridge string
}

func (t *traceReader) line(line string) {
	if m := bridgeLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
		if t.bridge = m[1]; t.first == "" {
			t.first = t.bridge
		}
		return
	}
	if m := flowLine.FindStringSubmatch(line); m != nil {
		t.flow(m[1])
		return
	}
	if m := actionsLine.FindStringSubmatch(line); m != nil {
		t.Dropped = m[1] == "drop"
		return
	}
	if m := remarkLine.FindStringSubmatch(line); m != nil && m[1] != ownAddress {
		t.Remarks = append(t.Remarks, m[1]+m[2])
		t.Unroutable = t.Unroutable || strings.Contains(m[1], "routing failed")
	}
	if t.bridge != t.first || t.bridge == "" {
		return // the packet of a tunnel goes on through the uplink's bridge
	}
	if m := stepLine.FindStringSubmatch(line); m != nil {
		t.step(m)
		return
	}
	t.action(line)
}

// flow reads the packet as it comes, or goes on after connection tracking.
func (t *traceReader) flow(text string) {
	clear(t.Fields)
	t.Output, t.Back, t.Unroutable, t.Remarks = 0, false, false, nil
	for _, f := range strings.Split(text, ",") {
		k, v, ok := strings.Cut(f, "=")
		switch {
		case ok:
			t.Fields[k] = v
		case slices.Contains(protocolWords, k):
			t.Protocol = k
		}
	}
}

func (t *traceReader) step(m []string) {
	table, err := strconv.ParseUint(m[1], 10, 8)
	if err != nil {
		return
	}
	priority, _ := strconv.ParseUint(m[3], 10, 16)
	cookie, _ := strconv.ParseUint(m[4], 16, 64)
	t.Steps = append(t.Steps, TracedStep{Table: uint8(table), Priority: uint16(priority),
		Match: strings.TrimSuffix(m[2], ","), Cookie: cookie})
}

// action reads an action, or a remark about one.
func (t *traceReader) action(line string) {
	number := func(m []string) uint32 {
		n, _ := strconv.ParseUint(m[1], 10, 32)
		return uint32(n)
	}
	if m := setLine.FindStringSubmatch(line); m != nil {
		name := m[2]
		if known := fieldNames[name]; known != "" {
			name = known
		}
		t.Fields[name] = m[1]
	} else if m := keyLine.FindStringSubmatch(line); m != nil {
		t.Fields["tun_id"] = m[1]
	} else if m := groupLine.FindStringSubmatch(line); m != nil {
		t.Groups = append(t.Groups, TracedGroup{ID: number(m)})
	} else if m := bucketLine.FindStringSubmatch(line); m != nil && len(t.Groups) > 0 {
		last := &t.Groups[len(t.Groups)-1]
		last.Bucket, last.Chosen = number(m), true
	} else if m := outputLine.FindStringSubmatch(line); m != nil {
		t.Output = number(m)
	} else if m := portLine.FindStringSubmatch(line); m != nil {
		t.Output = number(m)
	} else if m := userLine.FindStringSubmatch(line); m != nil {
		if user, err := hex.DecodeString(strings.ReplaceAll(m[1], ".", "")); err == nil {
			t.Userdata = append(t.Userdata, string(user))
		}
	}
	switch strings.TrimSpace(line) {
	case "dec_ttl":
		if n, err := strconv.Atoi(t.Fields["nw_ttl"]); err == nil {
			t.Fields["nw_ttl"] = strconv.Itoa(max(0, n-1))
		}
	case "IN_PORT", "in_port":
		t.Back = true
	}
}
