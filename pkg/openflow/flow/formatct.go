package flow

import "github.com/tombolo-net/tombolo/pkg/openflow/ofp"

func (p *printer) ct(a ofp.CT) {
	p.str("ct(")
	if a.Flags&ofp.CTCommit != 0 {
		p.str("commit,")
	}
	if a.Flags&ofp.CTForce != 0 {
		p.str("force,")
	}
	if a.Table != ofp.CTNoTable {
		p.str("table=" + p.table(a.Table) + ",")
	}
	if a.ZoneSrc.Width != 0 {
		p.str("zone=")
		p.sub(a.ZoneSrc)
		p.str(",")
	} else if a.Zone != 0 {
		p.f("zone=%d,", a.Zone)
	}
	if a.NAT != nil {
		p.nat(*a.NAT)
		p.str(",")
	}
	if len(a.Exec) > 0 {
		p.str("exec(")
		p.actions(a.Exec)
		p.str("),")
	}
	switch a.ALG {
	case 0:
	case 21:
		p.str("alg=ftp,")
	case 69:
		p.str("alg=tftp,")
	default:
		p.f("alg=%d,", a.ALG)
	}
	p.chomp()
	p.str(")")
}

func (p *printer) nat(a ofp.NAT) {
	p.str("nat")
	if a.Flags&(ofp.NATSrc|ofp.NATDst) == 0 {
		return
	}
	if a.Flags&ofp.NATSrc != 0 {
		p.str("(src")
	} else {
		p.str("(dst")
	}
	if a.IPMin != "" {
		p.str("=")
		p.natRange(a)
	}
	p.str(",")
	// ovs-ofctl does not print flags without an address.
	if a.IPMin != "" || !p.asOVS {
		if a.Flags&ofp.NATPersistent != 0 {
			p.str("persistent,")
		}
		if a.Flags&ofp.NATHash != 0 {
			p.str("hash,")
		}
		if a.Flags&ofp.NATRandom != 0 {
			p.str("random,")
		}
	}
	p.chomp()
	p.str(")")
}

func (p *printer) natRange(a ofp.NAT) {
	addr := func(s string) {
		t := addrText(ofp.ToValue(s), len(s))
		if len(s) == 16 && a.PortMin != 0 {
			t = "[" + t + "]"
		}
		p.str(t)
	}
	addr(a.IPMin)
	if a.IPMax != "" && a.IPMax != a.IPMin {
		p.str("-")
		addr(a.IPMax)
	}
	if a.PortMin != 0 {
		p.f(":%d", a.PortMin)
		if a.PortMax != 0 && a.PortMax != a.PortMin {
			p.f("-%d", a.PortMax)
		}
	}
}

func (p *printer) learn(a ofp.Learn) {
	p.str("learn(table=" + p.table(a.Table))
	opt := func(name string, v uint64) {
		if v != 0 {
			p.f(",%s=%d", name, v)
		}
	}
	opt("idle_timeout", uint64(a.IdleTimeout))
	opt("hard_timeout", uint64(a.HardTimeout))
	opt("fin_idle_timeout", uint64(a.FinIdle))
	opt("fin_hard_timeout", uint64(a.FinHard))
	if a.Priority != DefaultPriority {
		p.f(",priority=%d", a.Priority)
	}
	if a.Flags&ofp.LearnSendFlowRem != 0 {
		p.str(",send_flow_rem")
	}
	if a.Flags&ofp.LearnDeleteLearned != 0 {
		p.str(",delete_learned")
	}
	if a.Cookie != 0 {
		p.f(",cookie=%#x", a.Cookie)
	}
	opt("limit", uint64(a.Limit))
	if a.Flags&ofp.LearnWriteResult != 0 {
		p.str(",result_dst=")
		p.sub(a.Result)
	}
	for _, x := range a.Specs {
		p.str(",")
		p.learnSpec(x)
	}
	p.str(")")
}

func (p *printer) learnSpec(x ofp.LearnSpec) {
	switch {
	case x.Kind == ofp.LearnOutput:
		p.str("output:")
		p.sub(x.Src)
	case x.Kind == ofp.LearnLoad:
		p.str("load:")
		if x.Src.Width == 0 {
			p.str(hexString(x.Value))
		} else {
			p.sub(x.Src)
		}
		p.str("->")
		p.sub(x.Dst)
	case x.Src.Width != 0:
		p.sub(x.Dst)
		if x.Src != x.Dst {
			p.str("=")
			p.sub(x.Src)
		}
	case x.Dst.First == 0 && x.Dst.Width == x.Dst.Field.ActionBits():
		p.str(x.Dst.Field.String() + "=")
		if x.Dst.Field.Long() {
			p.str(hexString(x.Value))
		} else {
			p.value(x.Dst.Field, ofp.ToValue(x.Value), ofp.Ones(x.Dst.Field.Bits()))
		}
	default:
		p.sub(x.Dst)
		p.str("=" + hexString(x.Value))
	}
}
