package flow

import (
	"net/netip"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func parseCT(x span, depth int) (ofp.Action, error) {
	a := ofp.CT{Table: ofp.CTNoTable}
	err := x.options(map[string]func(span) error{
		"commit": setFlag(&a.Flags, ofp.CTCommit),
		"force":  setFlag(&a.Flags, ofp.CTForce),
		"table": func(x span) (err error) {
			if a.Table, err = x.table(); err == nil && a.Table == ofp.CTNoTable {
				err = x.isNot("a table's number, 0 to 254")
			}
			return err
		},
		"zone": func(x span) error {
			v, err := x.u16()
			if a.Zone = v; err == nil {
				return nil
			}
			if a.ZoneSrc, err = x.bits(); err != nil {
				return x.isNot("a zone's number of up to 16 bits, or a field such as reg4[0..15]")
			}
			return nil
		},
		"nat": func(x span) error {
			n, err := parseNAT(x)
			if len(a.Exec) > 0 {
				a.Exec = append(a.Exec, n)
			} else {
				a.NAT = &n
			}
			return err
		},
		"exec": func(x span) error {
			p, err := parseActions(x, depth+1, true)
			a.Exec = append(a.Exec, p.list...)
			return err
		},
		"alg": func(x span) error {
			switch x.s {
			case "ftp":
				a.ALG = 21
			case "tftp":
				a.ALG = 69
			default: // as an unknown one is printed
				v, err := x.u16()
				if a.ALG = v; err != nil {
					return x.isNot("ftp or tftp")
				}
			}
			return nil
		},
	}, "commit, force, table, zone, nat, exec or alg")
	if len(a.Exec) > 0 && a.NAT == nil {
		if n, ok := a.Exec[0].(ofp.NAT); ok {
			a.NAT, a.Exec = &n, a.Exec[1:]
		}
	}
	return a, err
}

func parseNAT(x span) (ofp.NAT, error) {
	var a ofp.NAT
	side := func(flag uint16) func(span) error {
		return func(x span) error {
			a.Flags |= flag
			if x.empty() {
				return nil
			}
			return natRange(&a, x)
		}
	}
	err := x.options(map[string]func(span) error{
		"src": side(ofp.NATSrc), "dst": side(ofp.NATDst), "persistent": setFlag(&a.Flags, ofp.NATPersistent),
		"hash": setFlag(&a.Flags, ofp.NATHash), "random": setFlag(&a.Flags, ofp.NATRandom),
	}, "src, dst, persistent, hash or random")
	return a, err
}

// natRange reads 1.2.3.4-1.2.3.5:80-90, [fc00::1]-[fc00::2]:80 and fc00::1-fc00::2.
func natRange(a *ofp.NAT, x span) error {
	addrs, ports := x, span{}
	colon := strings.LastIndexByte(x.s, ':')
	if bracket := strings.LastIndexByte(x.s, ']'); bracket >= 0 && colon < bracket || bracket < 0 &&
		strings.Count(x.s, ":") != 1 {
		colon = -1
	}
	if colon >= 0 {
		addrs, ports = x.sub(0, colon), x.from(colon+1)
		if ports.empty() {
			return ports.isNot("a port or a range of ports, such as 80-90")
		}
	}
	one := func(s span) (string, error) {
		t := s.s
		if strings.HasPrefix(t, "[") && strings.HasSuffix(t, "]") {
			t = t[1 : len(t)-1]
		}
		ip, err := netip.ParseAddr(t)
		if err != nil || ip.Zone() != "" {
			return "", s.isNot("an address, or a range such as 10.0.0.1-10.0.0.9:80-90 or [fd00::1]-[fd00::9]:80")
		}
		return string(ip.AsSlice()), nil
	}
	lo, hi, two := addrs.cut("-")
	var err error
	if a.IPMin, err = one(lo); err != nil {
		return err
	}
	if two {
		if a.IPMax, err = one(hi); err != nil {
			return err
		}
	}
	if ofp.ToValue(a.IPMin).IsZero() && !two && ports.empty() {
		a.IPMin = "" // ovs-ofctl leaves an address of zero out
	}
	if ports.empty() {
		return nil
	}
	lo, hi, two = ports.cut("-")
	if a.PortMin, err = lo.u16(); err == nil && two {
		a.PortMax, err = hi.u16()
	}
	return err
}
