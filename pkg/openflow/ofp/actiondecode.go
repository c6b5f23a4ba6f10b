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
		switch typ {
		case insGoto:
			list = append(list, GotoTable{Table(s.u8("table"))})
		case insWriteMetadata:
			s.skip(4)
			m := WriteMetadata{s.u64("metadata"), s.u64("metadata mask")}
			m.Value &= m.Mask
			list = append(list, m)
		case insApplyActions:
			s.skip(4)
			list = append(list, s.actions()...)
		case insWriteActions:
			s.skip(4)
			list = append(list, WriteActions{s.actions()})
		case insClearActions:
			list = append(list, ClearActions{})
		default:
			list = append(list, RawInstruction{string(at.buf[:n])})
		}
	}
	if !d.ok() {
		return nil
	}
	sortInstructions(list)
	return list
}

// actions reads actions up to the end of d.
func (d *decoder) actions() []Action {
	var list []Action
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
		a := s.action(typ, raw)
		if !d.ok() {
			return nil
		}
		if a == nil {
			a = RawAction{string(raw)}
		}
		list = append(list, a)
	}
	d.deep--
	if !d.ok() {
		return nil
	}
	return list
}

// field reads an OXM header that names a field; 0 where the field is not known.
func (d *decoder) field(name string) Field {
	at := *d
	h := d.take(name, 4)
	if !d.ok() {
		return 0
	}
	if h[0] == 0xff && h[1] == 0xff {
		d.take(name, 4)
		if !d.ok() {
			return 0
		}
		h = at.buf[:8]
	}
	f, hasMask, length, _, err := oxmHeader(h)
	switch {
	case err != nil:
		at.fail(name, "%v", err)
	case f != 0 && (hasMask || length != f.Len()):
		at.fail(name, "%s: an OXM header without mask and with length %d was expected", f, f.Len())
	}
	return f
}

func (d *decoder) check(name string, r Bits) {
	if d.ok() && r.Field != 0 {
		if err := r.Valid(); err != nil {
			d.fail(name, "%v", err)
		}
	}
}

// ofsNbits reads the two-byte range of Nicira's actions.
func (r *Bits) ofsNbits(v uint16) { r.First, r.Width = int(v>>6), int(v&0x3f)+1 }

// action reads an action's body; nil where it is not known.
func (d *decoder) action(typ uint16, raw []byte) Action {
	switch typ {
	case actOutput:
		return Output{Port(d.u32("output port")), d.u16("max_len")}
	case actPushVLAN:
		return PushVLAN{d.u16("ethertype")}
	case actPopVLAN:
		return PopVLAN{}
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
		n, so, do := int(d.u16("n_bits")), int(d.u16("source offset")), int(d.u16("destination offset"))
		d.skip(2)
		return d.move(Bits{0, so, n}, Bits{0, do, n})
	case actVendor:
		if d.u32("vendor") != nxVendor {
			return nil
		}
		return d.nicira(d.u16("subtype"), raw)
	}
	return nil
}

func (d *decoder) move(src, dst Bits) Action {
	src.Field, dst.Field = d.field("source field"), d.field("destination field")
	if src.Field == 0 || dst.Field == 0 {
		return nil
	}
	d.check("source", src)
	d.check("destination", dst)
	return RegMove{src, dst}
}

func (d *decoder) setField() Action {
	at := *d
	m, _, err := parseOXM(d.buf)
	if err != nil {
		at.fail("set_field", "%v", err)
		return nil
	}
	if m.Field == 0 {
		return nil
	}
	if width := Ones(m.Field.Bits()); !m.Value.And(width.Not()).IsZero() {
		at.fail("set_field", "%s: the value is wider than %d bits", m.Field, m.Field.Bits())
	}
	return newSetField(m.Field, m.Value, m.Mask)
}

// newSetField is the canonical set_field: no full mask, no bits outside of the mask.
func newSetField(f Field, v, mask Value) SetField {
	n := f.Len()
	mask = mask.And(Ones(f.Bits()))
	a := SetField{Field: f, Value: string(v.And(mask).Append(nil, n))}
	if mask != Ones(f.Bits()) {
		a.Mask = string(mask.Append(nil, n))
	}
	return a
}

func (d *decoder) nicira(sub uint16, raw []byte) Action {
	switch sub {
	case nxResubmit:
		return Resubmit{Port: port32(d.u16("in_port")), Table: TableAll}
	case nxResubmitTable, nxResubmitCT:
		return Resubmit{Port: port32(d.u16("in_port")), Table: Table(d.u8("table")), WithCT: sub == nxResubmitCT}
	case nxPopQueue:
		return PopQueue{}
	case nxExit:
		return Exit{}
	case nxCTClear:
		return CTClear{}
	case nxRegMove:
		n, so, do := int(d.u16("n_bits")), int(d.u16("source offset")), int(d.u16("destination offset"))
		return d.move(Bits{0, so, n}, Bits{0, do, n})
	case nxRegLoad:
		var r Bits
		r.ofsNbits(d.u16("ofs_nbits"))
		if r.Field = d.field("destination"); r.Field == 0 {
			return nil
		}
		v := Value{Lo: d.u64("value")}
		d.check("destination", r)
		return newSetField(r.Field, v.Shl(r.First), Ones(r.Width).Shl(r.First))
	case nxNote:
		return Note{string(d.take("note", d.left()))}
	case nxOutputReg:
		var a OutputReg
		a.Src.ofsNbits(d.u16("ofs_nbits"))
		a.Src.Field = d.field("source")
		a.MaxLen = d.u16("max_len")
		return d.outputReg(a)
	case nxOutputReg2:
		var a OutputReg
		a.Src.ofsNbits(d.u16("ofs_nbits"))
		a.MaxLen = d.u16("max_len")
		a.Src.Field = d.field("source")
		return d.outputReg(a)
	case nxLearn, nxLearn2:
		return d.learn(sub)
	case nxFinTimeout:
		return FinTimeout{d.u16("fin_idle_timeout"), d.u16("fin_hard_timeout")}
	case nxController:
		return Controller{MaxLen: d.u16("max_len"), ID: d.u16("controller id"), Reason: d.u8("reason")}.canonical()
	case nxController2:
		return d.controller2()
	case nxDecTTLIDs:
		n := int(d.u16("n_controllers"))
		d.skip(4)
		ids := make([]uint16, 0, min(n, d.left()/2))
		for range n {
			if !d.ok() {
				return nil
			}
			ids = append(ids, d.u16("controller id"))
		}
		if n == 0 {
			return nil
		}
		return DecTTL{ids}
	case nxPush, nxPop:
		r := Bits{First: int(d.u16("offset"))}
		r.Field = d.field("field")
		r.Width = int(d.u16("n_bits"))
		if r.Field == 0 {
			return nil
		}
		d.check("field", r)
		if sub == nxPush {
			return Push{r}
		}
		return Pop{r}
	case nxConjunction:
		return Conjunction{Clause: d.u8("clause") + 1, Clauses: d.u8("n_clauses"), ID: d.u32("id")}.checked(d)
	case nxCT:
		return d.ct()
	case nxNAT:
		return nil // only within ct, which reads it itself
	case nxClone:
		d.skip(6)
		return Clone{d.actions()}
	case nxCheckPktLarger:
		a := CheckPacketLarger{Len: d.u16("pkt_len")}
		a.Dst.First, a.Dst.Width = int(d.u16("offset")), 1
		if a.Dst.Field = d.field("destination"); a.Dst.Field == 0 {
			return nil
		}
		d.check("destination", a.Dst)
		return a
	case nxDeleteField:
		if f := d.field("field"); f != 0 {
			return DeleteField{f}
		}
	}
	return nil
}

func (a Conjunction) checked(d *decoder) Action {
	if d.ok() && (a.Clause < 1 || a.Clause > a.Clauses || a.Clauses < 2 || a.Clauses > 64) {
		d.fail("conjunction", "clause %d of %d", a.Clause, a.Clauses)
	}
	return a
}

func (d *decoder) outputReg(a OutputReg) Action {
	if a.Src.Field == 0 {
		return nil
	}
	d.check("source", a.Src)
	return a
}

// canonical is an Output where the action says no more than that.
func (a Controller) canonical() Action {
	if a.Reason == ReasonAction && a.ID == 0 && a.Userdata == "" && !a.Pause && a.MeterID == 0 {
		return Output{PortController, a.MaxLen}
	}
	return a
}

// prop reads a property's header and returns a decoder of its value.
func (d *decoder) prop(field string) (typ uint16, value decoder) {
	at := *d
	typ = d.u16(field + " type")
	n := int(d.u16(field + " length"))
	if d.ok() && n < 4 {
		at.fail(field+" length", "%d is less than 4", n)
	}
	value = d.sub(field, n-4)
	if pad := (8 - n%8) % 8; d.ok() {
		d.skip(pad)
	}
	return typ, value
}

func (d *decoder) controller2() Action {
	a := Controller{MaxLen: 0xffff, Reason: ReasonAction}
	d.skip(6)
	known := true
	for d.left() > 0 {
		typ, p := d.prop("property")
		switch typ {
		case 0:
			a.MaxLen = p.u16("max_len")
		case 1:
			a.ID = p.u16("controller id")
		case 2:
			a.Reason = p.u8("reason")
		case 3:
			a.Userdata = string(p.take("userdata", p.left()))
		case 4:
			a.Pause = true
		case 5:
			a.MeterID = p.u32("meter id")
		default:
			known = false
		}
	}
	if !known {
		return nil
	}
	return a.canonical()
}

func (d *decoder) ct() Action {
	a := CT{Flags: d.u16("flags")}
	src := *d
	if v := d.u32("zone source"); v != 0 {
		a.ZoneSrc.Field = src.field("zone source")
		a.ZoneSrc.ofsNbits(d.u16("zone range"))
		if d.ok() && a.ZoneSrc.Field == 0 {
			return nil
		}
		d.check("zone", a.ZoneSrc)
		if d.ok() && a.ZoneSrc.Width != 16 {
			d.fail("zone", "has %d bits, want 16", a.ZoneSrc.Width)
		}
	} else {
		a.Zone = d.u16("zone")
	}
	a.Table = Table(d.u8("table"))
	d.skip(3)
	a.ALG = d.u16("alg")
	for d.left() > 0 {
		// A NAT stands among the actions; everything else is an ordinary action.
		if p := d.buf; len(p) >= 16 && ToValue(p[:2]).Lo == uint64(actVendor) &&
			ToValue(p[4:8]).Lo == uint64(nxVendor) && ToValue(p[8:10]).Lo == uint64(nxNAT) && a.NAT == nil {
			n := int(ToValue(p[2:4]).Lo)
			if n < 16 || n%8 != 0 {
				d.fail("nat length", "%d is not a multiple of 8 of at least 16", n)
				return nil
			}
			s := d.sub("nat", n)
			s.skip(12)
			a.NAT = s.nat()
			continue
		}
		n := 0
		if len(d.buf) >= 4 {
			n = int(ToValue(d.buf[2:4]).Lo)
		}
		s := d.sub("ct action", max(n, 4))
		a.Exec = append(a.Exec, s.actions()...)
	}
	return a
}

func (d *decoder) nat() *NAT {
	a := &NAT{Flags: d.u16("nat flags")}
	has := d.u16("nat range_present")
	take := func(bit uint16, n int) string {
		if has&bit == 0 {
			return ""
		}
		return string(d.take("nat range", n))
	}
	a.IPMin, a.IPMax = take(natIPv4Min, 4), take(natIPv4Max, 4)
	if has&(natIPv6Min|natIPv6Max) != 0 {
		if a.IPMin != "" || a.IPMax != "" {
			d.fail("nat range", "both IPv4 and IPv6")
		}
		a.IPMin, a.IPMax = take(natIPv6Min, 16), take(natIPv6Max, 16)
	}
	if has&natPortMin != 0 {
		a.PortMin = d.u16("nat port")
	}
	if has&natPortMax != 0 {
		a.PortMax = d.u16("nat port")
	}
	return a
}

func (d *decoder) learn(sub uint16) Action {
	var a Learn
	a.IdleTimeout, a.HardTimeout, a.Priority = d.u16("idle_timeout"), d.u16("hard_timeout"), d.u16("priority")
	a.Cookie, a.Flags, a.Table = d.u64("cookie"), d.u16("flags"), Table(d.u8("table"))
	d.skip(1)
	a.FinIdle, a.FinHard = d.u16("fin_idle_timeout"), d.u16("fin_hard_timeout")
	if sub == nxLearn2 {
		a.Limit = d.u32("limit")
		a.Result.First = int(d.u16("result offset"))
		d.skip(2)
		if a.Flags&LearnWriteResult != 0 {
			if a.Result.Field, a.Result.Width = d.field("result"), 1; a.Result.Field == 0 {
				return nil
			}
			d.check("result", a.Result)
		}
	}
	for d.left() >= 2 {
		h := d.u16("spec header")
		if h == 0 { // padding
			break
		}
		n := int(h & learnBitsMask)
		x := LearnSpec{Kind: LearnKind(h >> 11 & 3)}
		if x.Kind > LearnOutput || n == 0 {
			d.fail("spec header", "%#04x is not known", h)
			return nil
		}
		if h&learnImmediate != 0 {
			x.Value = string(d.take("spec value", (n+15)/16*2))
		} else {
			x.Src = Bits{d.field("spec source"), int(d.u16("spec source offset")), n}
			d.check("spec source", x.Src)
		}
		if x.Kind != LearnOutput {
			x.Dst = Bits{d.field("spec destination"), int(d.u16("spec destination offset")), n}
			d.check("spec destination", x.Dst)
		}
		if h&learnImmediate == 0 && x.Src.Field == 0 || x.Kind != LearnOutput && x.Dst.Field == 0 {
			return nil
		}
		if x.Kind == LearnOutput && h&learnImmediate != 0 {
			d.fail("spec header", "%#04x: an output cannot be a constant", h)
			return nil
		}
		a.Specs = append(a.Specs, x)
	}
	return a
}
