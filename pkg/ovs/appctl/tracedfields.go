package appctl

import (
	"math/big"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// change is a change of a field, or of some of its bits.
type change struct {
	field        string // by its name in flows
	value        string
	mask         string // in the same form, empty without a mask
	first, width uint   // the bits that a number in value is for; width is 0 if value is the whole field
	less         bool   // the field becomes one less, at least 0
}

var (
	setLine = newLineOf(`^ +(?:set_field|load):([^/\s]+?)(?:/([^/\s]+))?->([a-z0-9_]+)$`, " set_field:", " load:")
	// movedLine is the remark about a field into which an action has moved a value.
	movedLine = newLineOf(`^ +-> ([A-Z0-9_]+)\[(?:(\d+)(?:\.\.(\d+))?)?\] is now (\S+)$`, "] is now ")
)

// fieldNames has the names that flows have for fields, by their names in actions.
var fieldNames = map[string]string{
	"eth_src": "dl_src", "eth_dst": "dl_dst", "ip_src": "nw_src", "ip_dst": "nw_dst", "ip_ttl": "nw_ttl",
	"tcp_src": "tp_src", "tcp_dst": "tp_dst", "udp_src": "tp_src", "udp_dst": "tp_dst",
	"sctp_src": "tp_src", "sctp_dst": "tp_dst",
}

// movedNames are these names, by the fields' names in moves.
var movedNames = map[string]string{
	"NXM_OF_ETH_SRC": "dl_src", "NXM_OF_ETH_DST": "dl_dst", "NXM_OF_IP_SRC": "nw_src", "NXM_OF_IP_DST": "nw_dst",
	"NXM_NX_IPV6_SRC": "ipv6_src", "NXM_NX_IPV6_DST": "ipv6_dst", "NXM_NX_IP_TTL": "nw_ttl",
	"NXM_OF_TCP_SRC": "tp_src", "NXM_OF_TCP_DST": "tp_dst", "NXM_OF_UDP_SRC": "tp_src", "NXM_OF_UDP_DST": "tp_dst",
	"NXM_NX_TUN_ID": "tun_id", "NXM_NX_TUN_IPV4_SRC": "tun_src", "NXM_NX_TUN_IPV4_DST": "tun_dst",
	"NXM_NX_TUN_IPV6_SRC": "tun_ipv6_src", "NXM_NX_TUN_IPV6_DST": "tun_ipv6_dst",
}

// changeOf reads the change of a field, and reports whether the line is about one.
func changeOf(line string) (change, bool) {
	if m := setLine.find(line); m != nil {
		name := m[3]
		if known := fieldNames[name]; known != "" {
			name = known
		}
		return change{field: name, value: m[1], mask: m[2]}, true
	}
	if m := movedLine.find(line); m != nil && movedNames[m[1]] != "" {
		c := change{field: movedNames[m[1]], value: m[4]}
		if m[2] == "" {
			return c, true
		}
		first, err := strconv.ParseUint(m[2], 10, 7)
		last := first
		if err == nil && m[3] != "" {
			last, err = strconv.ParseUint(m[3], 10, 7)
		}
		c.first, c.width = uint(first), uint(last-first+1)
		return c, err == nil && first <= last
	}
	return change{field: "nw_ttl", less: true}, strings.TrimSpace(line) == "dec_ttl"
}

// apply changes the field. A value that is in no known form changes nothing.
func (c change) apply(fields map[string]string) {
	if c.less {
		if n, err := strconv.Atoi(fields[c.field]); err == nil {
			fields[c.field] = strconv.Itoa(max(0, n-1))
		}
		return
	}
	if c.mask == "" && c.width == 0 {
		fields[c.field] = c.value
		return
	}
	value, ok := bitsOf(c.value)
	mask := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), c.width), big.NewInt(1))
	if c.mask != "" && ok {
		mask, ok = bitsOf(c.mask)
	}
	if !ok {
		return
	}
	base, ok := bitsOf(fields[c.field])
	if !ok {
		base = new(big.Int)
	}
	value.Lsh(value.And(value, mask), c.first)
	base.Or(base.AndNot(base, mask.Lsh(mask, c.first)), value)
	if text, ok := textOf(c.field, base); ok {
		fields[c.field] = text
	}
}

// bitsOf returns the bits of a MAC, an address or a number.
func bitsOf(text string) (*big.Int, bool) {
	if mac, err := net.ParseMAC(text); err == nil {
		return new(big.Int).SetBytes(mac), true
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		return new(big.Int).SetBytes(ip.AsSlice()), true
	}
	if len(text) > 64 { // more digits than a field has bits
		return nil, false
	}
	n, ok := new(big.Int).SetString(text, 0)
	return n, ok && n.Sign() >= 0 && n.BitLen() <= 128
}

// textOf returns bits in the text form of a field, and false if the field does not have that many bits.
func textOf(field string, bits *big.Int) (string, bool) {
	octets := 0
	switch field {
	case "dl_src", "dl_dst":
		octets = 6
	case "nw_src", "nw_dst", "tun_src", "tun_dst":
		octets = 4
	case "ipv6_src", "ipv6_dst", "tun_ipv6_src", "tun_ipv6_dst":
		octets = 16
	case "nw_ttl", "tp_src", "tp_dst":
		return bits.String(), true
	default:
		return "0x" + bits.Text(16), true
	}
	if bits.BitLen() > 8*octets {
		return "", false
	}
	raw := bits.FillBytes(make([]byte, octets))
	if octets == 6 {
		return net.HardwareAddr(raw).String(), true
	}
	ip, _ := netip.AddrFromSlice(raw)
	return ip.String(), true
}
