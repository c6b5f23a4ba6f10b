package ofp

import "net/netip"

// CTFlushZone forgets all connections of a zone (NXT_CT_FLUSH_ZONE).
type CTFlushZone struct{ Zone uint16 }

// CTFlush forgets the connections that a tuple, or parts of it, describes (NXT_CT_FLUSH, Open
// vSwitch 3.1 and later). Without Proto any protocol, without tuples all connections.
type CTFlush struct {
	Proto       uint8
	HasZone     bool // only in Zone
	Zone        uint16
	Orig, Reply CTTuple
}

// CTTuple is one direction of a connection. Fields that are zero do not restrict; those of ICMP
// count where the protocol is 1 or 58, the ports otherwise.
type CTTuple struct {
	Src, Dst           netip.Addr
	SrcPort, DstPort   uint16
	ICMPID             uint16
	ICMPType, ICMPCode uint8
}
