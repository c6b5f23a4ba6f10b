package ofprint

import (
	"cmp"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// anyPort returns the port that is sent: 0 stands for any port.
func anyPort(port ofp.Port) ofp.Port {
	if port == 0 {
		return ofp.PortAny
	}
	return port
}

func (p *printer) portStatus(m ofp.PortStatus) {
	switch m.Reason {
	case ofp.PortAdded:
		p.str(" ADD:")
	case ofp.PortDeleted:
		p.str(" DEL:")
	case ofp.PortModified:
		p.str(" MOD:")
	default:
		p.f(" reason=%d:", m.Reason)
	}
	p.port(m.Port)
}

// ports prints ports by number.
func (p *printer) ports(list []ofp.PortDesc) {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b ofp.PortDesc) int { return cmp.Compare(a.Number, b.Number) })
	for _, port := range sorted {
		p.port(port)
	}
}

func (p *printer) port(d ofp.PortDesc) {
	name := d.Name
	for i := range len(name) {
		if name[i] < 0x20 || name[i] > 0x7e || i == 15 {
			name = name[:i]
			break
		}
	}
	p.f(" %s(%s): addr:%s\n     config:     ", flow.PortText(d.Number), name, d.MAC)
	p.portConfig(d.Config)
	p.str("     state:      ")
	p.bitNames(d.State&7, nameByBit(portStateNames), " ")
	p.str("\n")
	for _, x := range []struct {
		label string
		bits  uint32
	}{
		{"     current:    ", d.Current}, {"     advertised: ", d.Advertised},
		{"     supported:  ", d.Supported}, {"     peer:       ", d.Peer},
	} {
		if bits := x.bits & 0xffff; bits != 0 {
			p.str(x.label)
			p.portFeatures(bits)
		}
	}
	p.f("     speed: %d Mbps now, %d Mbps max\n", d.CurrentSpeed/1000, d.MaxSpeed/1000)
}

// These are names of the bits of a port's configuration and state. They are empty for bits without a name in OpenFlow
// 1.5.
var (
	portConfigNames = []string{0: "PORT_DOWN", 2: "NO_RECV", 5: "NO_FWD", 6: "NO_PACKET_IN"}
	portStateNames  = []string{"LINK_DOWN", "BLOCKED", "LIVE"}
)

// portConfigAll are the bits of a port's configuration that OpenFlow 1.5 knows.
const portConfigAll = ofp.PortConfigDown | ofp.PortConfigNoRecv | ofp.PortConfigNoFwd | ofp.PortConfigNoPkt

func (p *printer) portConfig(bits uint32) {
	p.bitNames(bits&portConfigAll, nameByBit(portConfigNames), " ")
	p.str("\n")
}

var portFeatureNames = []string{
	"10MB-HD", "10MB-FD", "100MB-HD", "100MB-FD", "1GB-HD", "1GB-FD", "10GB-FD", "40GB-FD",
	"100GB-FD", "1TB-FD", "OTHER", "COPPER", "FIBER", "AUTO_NEG", "AUTO_PAUSE", "AUTO_PAUSE_ASYM",
}

func (p *printer) portFeatures(bits uint32) {
	p.bitNames(bits, nameByBit(portFeatureNames), " ")
	p.str("\n")
}
