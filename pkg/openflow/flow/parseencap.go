package flow

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// encapNames are the headers that encap puts on.
var encapNames = map[uint32]string{
	ofp.PacketEthernet: "ethernet", ofp.PacketNSH: "nsh", ofp.PacketMPLS: "mpls", ofp.PacketMPLSMcast: "mpls_mc",
}

func parseEncap(x span) (ofp.Action, error) {
	items, err := split(x)
	if err != nil {
		return nil, err
	}
	const expected = "ethernet, nsh, nsh(md_type=1), nsh(md_type=2,tlv(0xCLASS,TYPE,0xDATA)), mpls or mpls_mc"
	if len(items) != 1 {
		return nil, x.isNot(expected)
	}
	it := items[0]
	for typ, name := range encapNames {
		if name != it.key.s {
			continue
		}
		a := ofp.Encap{PacketType: typ}
		props, err := split(it.value)
		if err != nil {
			return nil, err
		}
		for _, p := range props {
			prop, err := parseEncapProp(p)
			if err != nil {
				return nil, within(name, err)
			}
			a.Props = append(a.Props, prop)
		}
		return a, nil
	}
	return nil, it.key.isNot(expected)
}

func parseEncapProp(it item) (p ofp.EncapProp, err error) {
	switch it.key.s {
	case "md_type":
		p.Kind = ofp.EncapNSHMDType
		if p.MDType, err = it.value.u8(); err != nil || p.MDType < 1 || p.MDType > 2 {
			err = it.value.isNot("1 or 2")
		}
	case "tlv":
		p.Kind = ofp.EncapNSHTLV
		class, rest, ok1 := it.value.cut(",")
		typ, data, ok2 := rest.cut(",")
		if !ok1 || !ok2 || len(data.s) < 2 || data.s[:2] != "0x" {
			return p, it.value.isNot("0xCLASS,TYPE,0xDATA")
		}
		if p.TLVClass, err = class.u16(); err != nil {
			return p, err
		}
		if p.TLVType, err = typ.u8(); err != nil {
			return p, err
		}
		digits := data.from(2)
		if len(digits.s)%2 != 0 { // ovs-ofctl leaves zeros in front out
			digits.s = "0" + digits.s
		}
		p.Data, err = digits.hexBytes()
	default:
		err = it.key.isNot("md_type=1, md_type=2 or tlv(0xCLASS,TYPE,0xDATA)")
	}
	return p, err
}

// parseDecap reads packet_type(ns=NAMESPACE,type=TYPE), the type of the packet below.
func parseDecap(x span) (ofp.Action, error) {
	a := ofp.Decap{PacketType: ofp.PacketUseNextProto}
	err := x.options(map[string]func(span) error{
		"packet_type": func(x span) error {
			var ns, typ uint16
			err := x.options(map[string]func(span) error{"ns": into16(&ns), "type": into16(&typ)}, "ns or type")
			a.PacketType = uint32(ns)<<16 | uint32(typ)
			return err
		},
	}, "packet_type(ns=NAMESPACE,type=TYPE)")
	return a, err
}
