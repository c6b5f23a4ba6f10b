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
	// Steps are the flows that the packet has met. A Traced of ParseTrace has one or more.
	Steps  []TracedStep
	Groups []TracedGroup
	// Protocol is the word for the packet's protocol, such as tcp or icmp6. Fields has the packet's fields at its end, as
	// ovs-ofctl writes them, such as nw_dst and tun_dst.
	Protocol string
	Fields   map[string]string
	// Output is the port through which the packet leaves, or 0 if it does not leave. Back is set if it is the port from
	// which the packet came.
	Output uint32
	Back   bool
	// Userdata are the texts with which the packet, or copies of it, were sent to the controller. A text may be empty.
	Userdata []string
	// Dropped is set if the datapath drops the packet at the end. Unroutable is set if the host has no route to the
	// tunnel's end.
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

// Last returns the last flow that the packet has met.
func (t Traced) Last() TracedStep { return t.Steps[len(t.Steps)-1] }

// lineOf finds lines of one kind. Only lines that have one of some texts can match the expression. The search for a
// text takes a hundredth of the time.
type lineOf struct {
	expression *regexp.Regexp
	texts      []string
}

func newLineOf(expression string, texts ...string) lineOf {
	return lineOf{regexp.MustCompile(expression), texts}
}

// find returns the line's match and submatches, or nil.
func (l lineOf) find(line string) []string {
	for _, text := range l.texts {
		if strings.Contains(line, text) {
			return l.expression.FindStringSubmatch(line)
		}
	}
	return nil
}

var (
	stepLine = newLineOf(`^ *(\d+)\. (?:(.*?),? ?\bpriority (\d+)(?:, cookie 0x([0-9a-f]+))?|No match.*)$`,
		". ")
	bridgeLine = newLineOf(`^bridge\("([^"]+)"\)`, `bridge("`)
	flowLine   = newLineOf(`^Flow: (.*)$`, "Flow: ")
	finalLine  = newLineOf(`^Final flow: (.*,.*)$`, "Final flow: ")
	groupLine  = newLineOf(`^ +group:(\d+)$`, " group:")
	bucketLine = newLineOf(`-> using bucket (\d+)`, "-> using bucket ")
	outputLine = newLineOf(`-> output port is (\d+)`, "-> output port is ")
	portLine   = newLineOf(`^ +output:(\d+)$`, " output:")
	askLine    = newLineOf(`^ +(?:controller\((?:.*\buserdata=([0-9a-f.]+))?|CONTROLLER\b)`,
		" controller(", " CONTROLLER")
	remarkLine = newLineOf(`>> (.*?)(?: <<<*)?$|-> (.*skipping output.*|no live bucket.*|neighbor cache miss.*)`,
		">> ", "skipping output", "-> no live bucket", "-> neighbor cache miss")
	unsentText  = regexp.MustCompile(`skipping output|^Nonexistent output port`)
	actionsLine = newLineOf(`^Datapath actions: (.*)$`, "Datapath actions: ")
)

// ownAddress is a remark of ofproto/trace about packets that a Gateway passes on after a translation. ofproto/trace
// mistakes the new destination of the tunnel for the previous one. The datapath does not.
const ownAddress = "Not tunneling to our own address"

// protocolWords are the words for protocols in flows.
var protocolWords = []string{"tcp", "tcp6", "udp", "udp6", "sctp", "sctp6", "icmp", "icmp6", "igmp", "ip", "ipv6",
	"arp", "rarp"}

// ParseTrace reads the text of ofproto/trace. After each pass through connection tracking the trace continues with the
// same packet, and the end of the last part is the result.
func ParseTrace(text string) (Traced, error) {
	t := traceReader{Traced: Traced{Fields: map[string]string{}}}
	for line := range strings.Lines(text) {
		t.line(strings.TrimRight(line, "\n"))
	}
	if len(t.Steps) == 0 || !t.seen {
		return t.Traced, fmt.Errorf("ofproto/trace answers without a table or a flow: %q", text)
	}
	return t.Traced, nil
}

// traceReader reads the text line by line. A part begins with the packet's flow, and then names the bridge.
type traceReader struct {
	Traced
	first   string // the bridge that the packet came into
	bridge  string // of the line, empty at the beginning of a passage
	passage string // the bridge of the passage
	came    string // the packet's flow at the beginning of the passage
	seen    bool   // the flow of a passage through the first bridge
	// bucket has the changes of fields since a bucket of a group was chosen in this part of the trace. The printed final
	// flow lacks them.
	bucket   []change
	inBucket bool
}

func (t *traceReader) line(line string) {
	if m := bridgeLine.find(strings.TrimSpace(line)); m != nil {
		t.enter(m[1])
		return
	}
	if m := flowLine.find(line); m != nil {
		t.came, t.bridge, t.passage = m[1], "", ""
		return
	}
	if m := finalLine.find(line); m != nil && t.passage == t.first {
		t.read(m[1])
		for _, c := range t.bucket {
			c.apply(t.Fields)
		}
		return
	}
	if m := actionsLine.find(line); m != nil {
		t.Dropped = m[1] == "drop"
		return
	}
	if m := remarkLine.find(line); m != nil && m[1] != ownAddress {
		t.Remarks = append(t.Remarks, m[1]+m[2])
		t.Unroutable = t.Unroutable || strings.Contains(m[1], "routing failed")
	}
	if t.bridge != t.first || t.bridge == "" {
		return // the packet of a tunnel goes on through the uplink's bridge
	}
	if m := stepLine.find(line); m != nil {
		t.step(m)
		return
	}
	t.action(line)
}

// enter continues in a bridge. If a part begins in another bridge than the first part, its packet is the tunnel's
// packet.
func (t *traceReader) enter(bridge string) {
	begins := t.bridge == ""
	t.bridge = bridge
	if t.first == "" {
		t.first = bridge
	}
	if !begins {
		return
	}
	if t.passage = bridge; bridge == t.first {
		t.flow()
	}
}

// flow reads the packet as it comes, or goes on after connection tracking.
func (t *traceReader) flow() {
	key, keyed := t.Fields["tun_id"]
	clear(t.Fields)
	t.Output, t.Back, t.Unroutable, t.Remarks = 0, false, false, nil
	t.bucket, t.inBucket, t.seen = nil, false, t.came != ""
	t.read(t.came)
	// A flow does not show a key that an action has set.
	if t.Fields["tun_id"] == "" && t.Fields["recirc_id"] != "" && keyed {
		t.Fields["tun_id"] = key
	}
}

// read takes the fields of a flow. Fields that it does not have stay.
func (t *traceReader) read(flow string) {
	for f := range strings.SplitSeq(flow, ",") {
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
	if c, ok := changeOf(line); ok {
		c.apply(t.Fields)
		if t.inBucket {
			t.bucket = append(t.bucket, c)
		}
	} else if m := groupLine.find(line); m != nil {
		t.Groups = append(t.Groups, TracedGroup{ID: number(m)})
	} else if m := bucketLine.find(line); m != nil && len(t.Groups) > 0 {
		last := &t.Groups[len(t.Groups)-1]
		last.Bucket, last.Chosen, t.inBucket = number(m), true, true
	} else if m := outputLine.find(line); m != nil {
		t.Output = number(m)
	} else if m := portLine.find(line); m != nil {
		t.Output = number(m)
	} else if m := askLine.find(line); m != nil {
		user, _ := hex.DecodeString(strings.ReplaceAll(m[1], ".", ""))
		t.Userdata = append(t.Userdata, string(user))
	} else if m := remarkLine.find(line); m != nil && unsentText.MatchString(m[1]+m[2]) {
		t.Output = 0
	}
	switch strings.TrimSpace(line) {
	case "IN_PORT", "in_port":
		t.Back = true
	}
}
