package flow

import (
	"fmt"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Actions is what happens to a packet, in order. Instructions (ofp.GotoTable and the like)
// stand in the same list; Canonical puts them where the switch reports them.
type Actions []ofp.Action

// Do is the list of its arguments. A nil action is a mistake that Set.Add reports.
func Do(a ...ofp.Action) Actions { return a }

func setMAC(f ofp.Field, m ofp.MAC) ofp.Action { return ofp.SetField{Field: f, Value: string(m[:])} }

// set writes an unsigned number into a whole field.
func set(f ofp.Field, v uint64) ofp.Action {
	return ofp.SetField{Field: f, Value: string(ofp.Value{Lo: v}.Append(nil, f.Len()))}
}

// setAddr writes an address into the field of its version of IP.
func setAddr(v4, v6 ofp.Field, a netip.Addr) ofp.Action {
	f := v4
	if a.Is6() {
		f = v6
	}
	return ofp.SetField{Field: f, Value: string(a.AsSlice())}
}

// SetEthSrc sets the source MAC.
func SetEthSrc(m ofp.MAC) ofp.Action { return setMAC(ofp.EthSrc, m) }

// SetEthDst sets the destination MAC.
func SetEthDst(m ofp.MAC) ofp.Action { return setMAC(ofp.EthDst, m) }

// SetIPSrc sets the source address.
func SetIPSrc(a netip.Addr) ofp.Action { return setAddr(ofp.IPv4Src, ofp.IPv6Src, a) }

// SetIPDst sets the destination address.
func SetIPDst(a netip.Addr) ofp.Action { return setAddr(ofp.IPv4Dst, ofp.IPv6Dst, a) }

// SetTunnelSrc sets the local address of the tunnel through which the packet will leave. It is for ports with
// options:local_ip=flow. With 0.0.0.0 the host's routes decide.
func SetTunnelSrc(a netip.Addr) ofp.Action { return setAddr(ofp.TunIPv4Src, ofp.TunIPv6Src, a) }

// SetTunnelDst sets the far end of the tunnel that the packet will leave by.
func SetTunnelDst(a netip.Addr) ofp.Action { return setAddr(ofp.TunIPv4Dst, ofp.TunIPv6Dst, a) }

// SetARPOp sets ARP's operation: 1 request, 2 reply.
func SetARPOp(op uint16) ofp.Action { return set(ofp.ARPOp, uint64(op)) }

// SetARPSPA sets ARP's sender address.
func SetARPSPA(a netip.Addr) ofp.Action { return setAddr(ofp.ARPSPA, ofp.ARPSPA, a) }

// SetARPSHA sets ARP's sender MAC.
func SetARPSHA(m ofp.MAC) ofp.Action { return setMAC(ofp.ARPSHA, m) }

// SetICMPv6Type sets the type of an ICMPv6 message. NeighborAdvertisement turns a solicitation into its answer. An
// action may set the other fields of the answer only in a later table, in a flow that matches the new type.
func SetICMPv6Type(t uint8) ofp.Action { return set(ofp.ICMPv6Type, uint64(t)) }

// Flags of a Neighbor Advertisement (RFC 4861 section 4.4), for SetNDReserved.
const (
	NDRouter    uint32 = 1 << 31
	NDSolicited uint32 = 1 << 30
	NDOverride  uint32 = 1 << 29
)

// SetNDReserved sets the word after the checksum in a message of Neighbor Discovery. The word contains the flags.
func SetNDReserved(flags uint32) ofp.Action { return set(ofp.NDReserved, uint64(flags)) }

// These are types of the option with a link-layer address in Neighbor Discovery (RFC 4861 section 4.6.1).
const (
	NDSourceOption uint8 = 1
	NDTargetOption uint8 = 2
)

// SetNDOption sets the type of the option with a link-layer address, if the message has the option.
func SetNDOption(t uint8) ofp.Action { return set(ofp.NDOptionsType, uint64(t)) }

// Load writes v into a range of bits, as a masked set_field. If the value does not fit, Set.Add refuses the action.
func Load(r Bits, v uint64) ofp.Action {
	value, mask, err := r.shifted(v)
	if err != nil {
		return ofp.SetField{Field: r.Field}
	}
	n := r.Field.Len()
	a := ofp.SetField{Field: r.Field, Value: string(value.Append(nil, n))}
	if mask != ofp.Ones(r.Field.Bits()) {
		a.Mask = string(mask.Append(nil, n))
	}
	return a
}

// Move copies the bits of src to dst.
func Move(src, dst Bits) ofp.Action { return ofp.RegMove{Src: ofp.Bits(src), Dst: ofp.Bits(dst)} }

// MoveField copies the whole of src to the lowest bits of dst.
func MoveField(src, dst ofp.Field) ofp.Action {
	return Move(Bits{src, 0, src.Bits()}, Bits{dst, 0, src.Bits()})
}

// DecTTL decrements the TTL or hop limit.
func DecTTL() ofp.Action { return ofp.DecTTL{} }

// Output sends the packet to a port.
func Output(p ofp.Port) ofp.Action {
	a := ofp.Output{Port: p}
	if p == ofp.PortController {
		a.MaxLen = 0xffff
	}
	return a
}

// OutputReg sends the packet to the port whose number the range holds.
func OutputReg(r Bits) ofp.Action { return ofp.OutputReg{Src: ofp.Bits(r), MaxLen: 0xffff} }

// ToInPort sends the packet back to where it came from.
func ToInPort() ofp.Action { return ofp.Output{Port: ofp.PortInPort} }

// Goto continues in another table.
func Goto(t ofp.Table) ofp.Action { return ofp.GotoTable{Table: t} }

// Resubmit looks the packet up in another table and comes back.
func Resubmit(t ofp.Table) ofp.Action { return ofp.Resubmit{Port: ofp.PortInPort, Table: t} }

// ToGroup hands the packet to a group.
func ToGroup(id uint32) ofp.Action { return ofp.Group{ID: id} }

// ToController sends the packet to a controller.
func ToController(c ofp.Controller) ofp.Action { return c }

// CT sends the packet through connection tracking.
func CT(c ofp.CT) ofp.Action { return c }

// CTClear forgets what connection tracking said about the packet.
func CTClear() ofp.Action { return ofp.CTClear{} }

// Note keeps bytes with the flow.
func Note(b []byte) ofp.Action { return ofp.Note{Data: string(b)} }

// Err is the first thing wrong with the actions, nil where nothing is.
func (a Actions) Err() error {
	if err := ofp.CheckActions(a); err != nil {
		return fmt.Errorf("actions: %w", err)
	}
	return nil
}

// Canonical returns the list in the form that the switch reports: full masks dropped, masked bits cleared, instructions
// at the end. a is not changed.
func (a Actions) Canonical() Actions { return ofp.CanonicalActions(a) }

// Equal reports whether two lists mean the same to the switch.
func (a Actions) Equal(b Actions) bool { return ofp.EqualActions(a, b) }
