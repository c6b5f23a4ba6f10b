package ofp

import "fmt"

// actionName is what ovs-ofctl's text calls an action, for errors.
func actionName(a Action) string {
	switch a.(type) {
	case nil:
		return "nothing"
	case Output, OutputReg, OutputTrunc:
		return "output"
	case Controller:
		return "controller"
	case Group:
		return "group"
	case SetQueue:
		return "set_queue"
	case PopQueue:
		return "pop_queue"
	case Resubmit:
		return "resubmit"
	case Clone:
		return "clone"
	case Exit:
		return "exit"
	case Meter:
		return "meter"
	case Multipath:
		return "multipath"
	case BundlePorts:
		return "bundle"
	case Sample:
		return "sample"
	case Learn:
		return "learn"
	case Conjunction:
		return "conjunction"
	case Note:
		return "note"
	case FinTimeout:
		return "fin_timeout"
	case CT:
		return "ct"
	case NAT:
		return "nat"
	case CTClear:
		return "ct_clear"
	}
	return headerActionName(a)
}

// headerActionName is actionName of what changes packets, and of instructions.
func headerActionName(a Action) string {
	switch a := a.(type) {
	case SetField:
		return "set_field"
	case Legacy:
		return a.Kind.String()
	case RegMove:
		return "move"
	case Push:
		return "push"
	case Pop:
		return "pop"
	case CheckPacketLarger:
		return "check_pkt_larger"
	case DeleteField:
		return "delete_field"
	case PushVLAN:
		return "push_vlan"
	case PopVLAN:
		return "pop_vlan"
	case PushMPLS:
		return "push_mpls"
	case PopMPLS:
		return "pop_mpls"
	case DecMPLSTTL:
		return "dec_mpls_ttl"
	case SetMPLSTTL:
		return "set_mpls_ttl"
	case DecTTL:
		return "dec_ttl"
	case SetTTL:
		return "mod_nw_ttl"
	case Encap:
		return "encap"
	case Decap:
		return "decap"
	case DecNSHTTL:
		return "dec_nsh_ttl"
	case ClearActions:
		return "clear_actions"
	case WriteActions:
		return "write_actions"
	case WriteMetadata:
		return "write_metadata"
	case GotoTable:
		return "goto_table"
	case RawAction, RawInstruction:
		return "raw bytes"
	}
	return fmt.Sprintf("%T", a) // cannot be: TestActionNames has every type
}
