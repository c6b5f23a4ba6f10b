package flow

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

var portNames = map[ofp.Port]string{
	ofp.PortInPort: "IN_PORT", ofp.PortTable: "TABLE", ofp.PortNormal: "NORMAL", ofp.PortFlood: "FLOOD",
	ofp.PortAll: "ALL", ofp.PortController: "CONTROLLER", ofp.PortLocal: "LOCAL", ofp.PortAny: "ANY",
	ofp.PortUnset: "UNSET",
}

// PortText returns a port in ovs-ofctl's text, without the switch's names: reserved ports by name, others by number.
func PortText(port ofp.Port) string {
	return (*Names)(nil).Port(port)
}

// hexAlt is a number as C's %#x prints it: zero without a prefix.
func hexAlt(v uint64) string {
	if v == 0 {
		return "0"
	}
	return "0x" + strconv.FormatUint(v, 16)
}

// hexValue is 0x and digits without leading zeros, of up to 128 bits; just 0 for zero.
func hexValue(v ofp.Value) string {
	if v.Hi == 0 {
		return hexAlt(v.Lo)
	}
	return fmt.Sprintf("0x%x%016x", v.Hi, v.Lo)
}

// hexString is hexValue of bytes of any length.
func hexString(b string) string {
	b = strings.TrimLeft(b, "\x00")
	if b == "" {
		return "0"
	}
	return "0x" + strings.TrimPrefix(fmt.Sprintf("%x", b), "0")
}

// Names of flags, least significant bit first (packets.c and flow.c of Open vSwitch).
var (
	tcpFlags = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"}
	tunFlags = []string{"oam", "df", "csum", "key"}
)

// flagsText returns a text such as +a-b for the bits of the mask, the least significant first, or 0/0 for an empty
// mask.
func flagsText(v, mask uint64, names []string) string {
	if mask == 0 {
		return "0/0"
	}
	var s strings.Builder
	for i := range 64 {
		bit := uint64(1) << i
		if mask&bit == 0 {
			continue
		}
		if v&bit != 0 {
			s.WriteByte('+')
		} else {
			s.WriteByte('-')
		}
		if i < len(names) {
			s.WriteString(names[i])
		} else {
			s.WriteString("[Unknown]")
		}
	}
	return s.String()
}

// flagNamesText is the names of the set bits, for a match on all of them.
func flagNamesText(v uint64, names []string) string {
	var on []string
	for i, n := range names {
		if v&(1<<i) != 0 {
			on = append(on, n)
		}
	}
	if rest := v &^ ofp.Ones(len(names)).Lo; rest != 0 {
		on = append(on, hexAlt(rest))
	}
	if len(on) == 0 {
		return "0"
	}
	return strings.Join(on, "|")
}

// addrText prints addresses as inet_ntop does: it writes the low half of ::1.2.3.4 as an IPv4 address.
func addrText(v ofp.Value, n int) string {
	if n == 16 && v.Hi == 0 && v.Lo>>32 == 0 && v.Lo > 0xffff {
		return "::" + addrText(ofp.Value{Lo: v.Lo}, 4)
	}
	a, _ := netip.AddrFromSlice(v.Append(nil, n))
	return a.String()
}

// maskedAddr is an address with a prefix length, or a mask where it is no prefix.
func maskedAddr(v, mask ofp.Value, n int) string {
	s := addrText(v, n)
	switch l := prefixLen(mask, n); l {
	case 8 * n:
		return s
	case -1:
		return s + "/" + addrText(mask, n)
	default:
		return s + "/" + strconv.Itoa(l)
	}
}

func macText(v ofp.Value) string {
	var m ofp.MAC
	copy(m[:], v.Append(nil, 6))
	return m.String()
}

// frag prints what is asked of ip_frag. ovs-ofctl has the same word for some that differ.
func (p *printer) frag(v, mask uint64) {
	v, mask = v&mask&3, mask&3
	for i, f := range frags {
		if v == f.v && mask == f.mask && (p.asOVS || i < firstAlias || f.name == "yes" || f.name == "not_later") {
			p.str(f.name)
			return
		}
	}
	if p.asOVS {
		p.str("<error>")
		return
	}
	p.f("%d/%d", v, mask)
}

// packetTypeText is (1,0x800).
func packetTypeText(v uint64) string {
	small := func(n uint64) string {
		if n > 9 {
			return hexAlt(n)
		}
		return strconv.FormatUint(n, 10)
	}
	return "(" + small(v>>16) + "," + small(v&0xffff) + ")"
}

// value is a field's value and mask as in set_field and learn (mf_format).
func (p *printer) value(f ofp.Field, v, mask ofp.Value) {
	full := mask == ofp.Ones(f.Bits())
	if mask.IsZero() {
		p.str(p.any())
		return
	}
	switch f.Format() {
	case ofp.FormatMAC:
		p.str(macText(v))
		if !full {
			p.str("/" + macText(mask))
		}
		return
	case ofp.FormatIPv4:
		p.str(maskedAddr(v, mask, 4))
		return
	case ofp.FormatIPv6:
		p.str(maskedAddr(v, mask, 16))
		return
	case ofp.FormatPort:
		if full {
			p.str(p.port(ofp.Port(v.Lo)))
			return
		}
	case ofp.FormatPort16:
		if full {
			p.str(p.port16(v.Lo))
			return
		}
	case ofp.FormatCTState:
		p.flags(v.Lo, mask.Lo, ctStates, !p.asOVS && full)
		return
	case ofp.FormatTCPFlags:
		p.flags(v.Lo, mask.Lo, tcpFlags, full)
		return
	case ofp.FormatTunFlags:
		p.flags(v.Lo, mask.Lo, tunFlags, full)
		return
	case ofp.FormatFrag:
		p.frag(v.Lo, mask.Lo)
		return
	case ofp.FormatPacketType:
		if p.asOVS {
			p.str("packet_type=")
		}
		p.str(packetTypeText(v.Lo))
		return
	}
	if f.Format() == ofp.FormatHex {
		p.str(hexValue(v))
	} else {
		p.num(v.Lo)
	}
	if !full {
		p.str("/" + hexValue(mask))
	}
}

// any stands for no bit at all; ovs-ofctl cannot read what it prints.
func (p *printer) any() string {
	if p.asOVS {
		return "ANY"
	}
	return "*"
}

func (p *printer) flags(v, mask uint64, names []string, full bool) {
	if full {
		p.str(flagNamesText(v, names))
	} else {
		p.str(flagsText(v, mask, names))
	}
}

// port16Text is a port by OpenFlow 1.0's number.
func (p *printer) port16(v uint64) string {
	if n := portNames[ofp.Port(0xffff0000|v)]; n != "" && v >= 0xff00 {
		return n
	}
	return p.names.Port(ofp.Port(v))
}
