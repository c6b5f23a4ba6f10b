package ovstest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Outcome is where a packet ends that ofproto/trace has followed.
type Outcome struct {
	Table      uint8  // the last one it met
	Port       uint32 // it leaves by, 0 where it does not leave by a numbered one
	Back       bool   // it leaves by the port it came from
	Controller bool   // it is shown to the controller
	// Fields are the packet's at its end, as ovs-ofctl writes them: nw_dst, tun_dst.
	Fields map[string]string
}

var (
	traceTable  = regexp.MustCompile(`(?m)^ *(\d+)\. .*(?:priority \d+|No match)`)
	traceOutput = regexp.MustCompile(`output port is (\d+)`)
	traceTunnel = regexp.MustCompile(`set_field:([0-9a-f.:]+)->(tun_src|tun_dst|tun_ipv6_src|tun_ipv6_dst)`)
	traceFlow   = regexp.MustCompile(`(?m)^(?:Final flow|Flow): (.*,.*)$`)
)

// ParseTrace reads the account that ofproto/trace gives of a packet. Of a packet that goes
// through connection tracking it is the end that counts.
func ParseTrace(text string) (Outcome, error) {
	tables := traceTable.FindAllStringSubmatch(text, -1)
	flows := traceFlow.FindAllStringSubmatch(text, -1)
	if len(tables) == 0 || len(flows) == 0 {
		return Outcome{}, fmt.Errorf("no table or no flow in the trace:\n%s", text)
	}
	table, err := strconv.ParseUint(tables[len(tables)-1][1], 10, 8)
	if err != nil {
		return Outcome{}, fmt.Errorf("table of the trace's last step: %w", err)
	}
	o := Outcome{Table: uint8(table), Fields: map[string]string{}}
	for _, f := range strings.Split(flows[len(flows)-1][1], ",") {
		k, v, _ := strings.Cut(f, "=")
		o.Fields[k] = v
	}
	// what a group's bucket sets is in no flow that is shown, without recirculation
	for _, m := range traceTunnel.FindAllStringSubmatch(text, -1) {
		o.Fields[m[2]] = m[1]
	}
	switch ports := traceOutput.FindAllStringSubmatch(text, -1); {
	case strings.Contains(text, "IN_PORT"):
		o.Back = true
	case strings.Contains(text, "controller(userdata"):
		o.Controller = true
	case len(ports) > 0:
		port, err := strconv.ParseUint(ports[len(ports)-1][1], 10, 32)
		if err != nil {
			return Outcome{}, fmt.Errorf("output port of the trace: %w", err)
		}
		o.Port = uint32(port)
	}
	return o, nil
}
