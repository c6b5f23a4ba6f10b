package cni

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
)

// HostPort is a port of the Node that leads to a port of a Pod, as requested by a container's hostPort.
type HostPort struct {
	Protocol  string     // tcp, udp or sctp
	HostIP    netip.Addr // the zero address stands for every address of the Node
	Port      uint16     // of the Node
	Container uint16     // of the Pod
}

// HostPorts are the ports of one interface.
type HostPorts []HostPort

// portMapping is one value of the capability "portMappings".
type portMapping struct {
	HostPort      int64  `json:"hostPort"`
	ContainerPort int64  `json:"containerPort"`
	Protocol      string `json:"protocol"` // tcp if it is empty
	HostIP        string `json:"hostIP"`
}

// hostPorts returns the host ports that the runtime requests. It ignores a mapping without a hostPort: some runtimes
// pass all ports of containers.
func (c *netConf) hostPorts() (out HostPorts, failed *types.Error) {
	for i, m := range c.RuntimeConfig.HostPorts {
		bad := func(field, format string, args ...any) *types.Error {
			what := fmt.Sprintf("network configuration: runtimeConfig.portMappings[%d].%s ", i, field)
			return types.NewError(wire.CodeNetworkConfig, what+fmt.Sprintf(format, args...),
				"correct the ports of the Pod's containers")
		}
		if m.HostPort == 0 {
			continue
		}
		p := HostPort{Protocol: strings.ToLower(m.Protocol), Port: uint16(m.HostPort), Container: uint16(m.ContainerPort)}
		if p.Protocol == "" {
			p.Protocol = "tcp"
		}
		switch {
		case !slices.Contains([]string{"tcp", "udp", "sctp"}, p.Protocol):
			return nil, bad("protocol", "has %q, want tcp, udp or sctp", m.Protocol)
		case m.HostPort < 0 || m.HostPort > 65535:
			return nil, bad("hostPort", "has %d, want 1 to 65535", m.HostPort)
		case m.ContainerPort < 1 || m.ContainerPort > 65535:
			return nil, bad("containerPort", "has %d, want 1 to 65535", m.ContainerPort)
		}
		if m.HostIP != "" {
			ip, err := netip.ParseAddr(m.HostIP)
			if err != nil || ip.Zone() != "" {
				return nil, bad("hostIP", "has %q, want an address of the Node", m.HostIP)
			}
			if ip = ip.Unmap(); !ip.IsUnspecified() {
				p.HostIP = ip
			}
		}
		if other := slices.IndexFunc(out, p.meets); other < 0 {
			out = append(out, p)
		} else if out[other] != p {
			return nil, bad("hostPort", "has %s, which leads to port %d of the Pod already", p.where(), out[other].Container)
		}
	}
	return out, nil
}

// meets reports whether two host ports exclude each other on one Node, by the scheduler's rule: a port at all addresses
// excludes the same port at any address.
func (p HostPort) meets(o HostPort) bool {
	return p.Protocol == o.Protocol && p.Port == o.Port &&
		(p.HostIP == o.HostIP || !p.HostIP.IsValid() || !o.HostIP.IsValid())
}

// Meets returns the first host port that conflicts with one of others, and that other port.
func (h HostPorts) Meets(others HostPorts) (own, other HostPort, found bool) {
	for _, p := range h {
		if i := slices.IndexFunc(others, p.meets); i >= 0 {
			return p, others[i], true
		}
	}
	return HostPort{}, HostPort{}, false
}

// where returns the Node's end in words, such as "8080/tcp" and "127.0.0.1:8080/tcp".
func (p HostPort) where() string {
	if p.HostIP.IsValid() {
		return netip.AddrPortFrom(p.HostIP, p.Port).String() + "/" + p.Protocol
	}
	return strconv.Itoa(int(p.Port)) + "/" + p.Protocol
}

// HostPortTakenError reports a port of the Node that another Pod has.
type HostPortTakenError struct {
	Port  HostPort
	Other Attachment // that has it
}

// Error names the port and the Pod that has it.
func (e *HostPortTakenError) Error() string {
	return fmt.Sprintf("spec.containers[].ports[].hostPort: Pod %s has port %s of this Node", e.Other.pod(),
		e.Port.where())
}

// HostPortRemedy is the remedy for a port that two Pods of a Node ask for.
const HostPortRemedy = "delete that Pod if it ends already, or give one of them another hostPort or Node"

// String returns the text of records, which parseHostPorts reads. It is "" without a port.
func (h HostPorts) String() string {
	texts := make([]string, len(h))
	for i, p := range h {
		from := strconv.Itoa(int(p.Port))
		if p.HostIP.IsValid() {
			from = netip.AddrPortFrom(p.HostIP, p.Port).String()
		}
		texts[i] = fmt.Sprintf("%s->%d/%s", from, p.Container, p.Protocol)
	}
	return strings.Join(texts, " ")
}

// parseHostPorts reads the text in a record. It leaves out damaged parts, since the Pod must keep its network.
func parseHostPorts(text string) (out HostPorts) {
	for one := range strings.FieldsSeq(text) {
		from, rest, ok := strings.Cut(one, "->")
		to, protocol, ok2 := strings.Cut(rest, "/")
		p := HostPort{Protocol: protocol}
		if at, err := netip.ParseAddrPort(from); err == nil {
			p.HostIP, p.Port = at.Addr(), at.Port()
		} else if n, err := strconv.ParseUint(from, 10, 16); err == nil {
			p.Port = uint16(n)
		}
		n, err := strconv.ParseUint(to, 10, 16)
		if p.Container = uint16(n); !ok || !ok2 || err != nil || n == 0 || p.Port == 0 ||
			!slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
			continue
		}
		out = append(out, p)
	}
	return out
}
