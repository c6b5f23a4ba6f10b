package ofp

// instructions reads a flow's instructions up to the end of d.
func (d *decoder) instructions() []Action {
	var list []Action
	for d.left() > 0 {
		at := *d
		typ, n := d.u16("instruction type"), int(d.u16("instruction length"))
		if d.ok() && (n < 8 || n%8 != 0) {
			at.fail("instruction length", "%d is not a multiple of 8 of at least 8", n)
			return nil
		}
		s := d.sub("instruction", n-4)
		if !d.ok() {
			return nil
		}
		list = append(list, s.instruction(typ, at.buf[:n])...)
	}
	if d.ok() && twice(list) {
		d.fail("instructions", "write_metadata stands twice")
	}
	if !d.ok() {
		return nil
	}
	sortInstructions(list)
	return list
}

// twice reports whether a list writes the metadata twice: with the instruction, and with Nicira's action.
func twice(list []Action) bool {
	n := 0
	for _, a := range list {
		if _, ok := a.(WriteMetadata); ok {
			n++
		}
	}
	return n > 1
}

// instruction reads an instruction's body.
func (d *decoder) instruction(typ uint16, raw []byte) []Action {
	at := *d
	var a Action
	switch typ {
	case insGoto:
		a = GotoTable{Table(d.u8("table"))}
	case insWriteMetadata:
		d.skip(4)
		a = WriteMetadata{d.u64("metadata"), d.u64("metadata mask")}
	case insApplyActions:
		d.skip(4)
		d.top = true
		return d.actions()
	case insWriteActions:
		d.skip(4)
		w := WriteActions{d.actions()}
		if len(w.Actions) == 0 {
			return nil
		}
		a = w
	case insClearActions:
		a = ClearActions{}
	default:
		a = RawInstruction{string(raw)}
	}
	if d.ok() {
		if err := a.check(); err != nil {
			at.fail("instruction", "%v", err)
		}
	}
	return []Action{a}
}

// actions reads actions up to the end of d.
func (d *decoder) actions() []Action {
	var list []Action
	top := d.top
	d.top = false
	d.deep++
	if d.deep > maxDepth {
		d.fail("actions", "%v", errDepth)
	}
	for d.left() > 0 {
		at := *d
		typ, n := d.u16("action type"), int(d.u16("action length"))
		if d.ok() && (n < 8 || n%8 != 0) {
			at.fail("action length", "%d is not a multiple of 8 of at least 8", n)
			return nil
		}
		s := d.sub("action", n-4)
		if !d.ok() {
			return nil
		}
		raw := at.buf[:n]
		a := s.action(typ)
		if !d.ok() {
			return nil
		}
		if a == nil {
			a = RawAction{string(raw)}
		}
		if err := a.check(); err != nil {
			at.fail("action", "%v", err)
			return nil
		}
		if _, ok := a.(WriteMetadata); ok && !top {
			at.fail("action", "write_metadata may only stand in a flow, not in a bucket, packet-out or another action")
			return nil
		}
		if n := len(list); n > 0 && isInstruction(list[n-1]) {
			at.fail("action", "%s stands after write_metadata, which comes last", actionName(a))
			return nil
		}
		list = append(list, a)
	}
	d.deep--
	if !d.ok() {
		return nil
	}
	return list
}

// action reads an action's body; nil where it is not known.
func (d *decoder) action(typ uint16) Action {
	switch typ {
	case actOutput:
		return Output{Port(d.u32("output port")), d.u16("max_len")}
	case actDecMPLSTTL:
		return DecMPLSTTL{}
	case actSetMPLSTTL:
		return SetMPLSTTL{d.u8("mpls ttl")}
	case actPushVLAN:
		return PushVLAN{d.u16("ethertype")}
	case actPopVLAN:
		return PopVLAN{}
	case actPushMPLS:
		return PushMPLS{d.u16("ethertype")}
	case actPopMPLS:
		return PopMPLS{d.u16("ethertype")}
	case actSetQueue:
		return SetQueue{d.u32("queue")}
	case actGroup:
		return Group{d.u32("group")}
	case actSetTTL:
		return SetTTL{d.u8("ttl")}
	case actDecTTL:
		return DecTTL{}
	case actMeter:
		return Meter{d.u32("meter")}
	case actSetField:
		return d.setField()
	case actCopyField:
		return d.move(2)
	case actVendor:
		if d.u32("vendor") != nxVendor {
			return nil
		}
		return d.nicira(d.u16("subtype"))
	}
	return d.legacy(typ)
}

// nicira reads the body of an action of Nicira's; nil where it is not known.
func (d *decoder) nicira(sub uint16) Action {
	switch sub {
	case nxResubmit:
		return Resubmit{Port: port32(d.u16("in_port")), Table: TableAll}
	case nxResubmitTable, nxResubmitCT:
		return Resubmit{Port: port32(d.u16("in_port")), Table: Table(d.u8("table")), WithCT: sub == nxResubmitCT}
	case nxSetTunnel:
		d.skip(2)
		return Legacy{LegacyTunnel, uint64(d.u32("tun_id"))}
	case nxSetTunnel64:
		d.skip(6)
		return Legacy{LegacyTunnel64, d.u64("tun_id")}
	case nxPopQueue:
		return PopQueue{}
	case nxExit:
		return Exit{}
	case nxCTClear:
		return CTClear{}
	case nxRegMove:
		return d.move(0)
	case nxRegLoad:
		return d.regLoad()
	case nxRegLoad2:
		return d.setField()
	case nxNote:
		return Note{string(d.take("note", d.left()))}
	case nxMultipath:
		return d.multipath()
	case nxBundle, nxBundleLoad:
		return d.bundle(sub)
	case nxOutputReg, nxOutputReg2:
		return d.outputReg(sub)
	case nxOutputTrunc:
		return OutputTrunc{port32(d.u16("output port")), d.u32("max_len")}
	case nxLearn, nxLearn2:
		return d.learn(sub)
	case nxFinTimeout:
		return FinTimeout{d.u16("fin_idle_timeout"), d.u16("fin_hard_timeout")}
	case nxController:
		return Controller{MaxLen: d.u16("max_len"), ID: d.u16("controller id"), Reason: d.u8("reason")}.canonical()
	case nxController2:
		return d.controller2()
	case nxWriteMetadata:
		d.zeros("zero", 6)
		return WriteMetadata{d.u64("metadata"), d.u64("metadata mask")}
	case nxDecTTLIDs:
		return d.decTTLIDs()
	case nxPush, nxPop:
		return d.stack(sub)
	case nxSample, nxSample2, nxSample3:
		return d.sample(sub)
	case nxSample4:
		return d.sample4()
	case nxConjunction:
		return Conjunction{Clause: d.u8("clause") + 1, Clauses: d.u8("n_clauses"), ID: d.u32("id")}
	case nxCT:
		return d.ct()
	case nxNAT:
		return d.nat()
	case nxClone:
		d.skip(6)
		return Clone{d.actions()}
	case nxEncap:
		return d.encap()
	case nxDecap:
		return d.decap()
	case nxDecNSHTTL:
		return DecNSHTTL{}
	case nxCheckPktLarger:
		return d.checkPacketLarger()
	case nxDeleteField:
		return d.deleteField()
	}
	return nil
}
