package flow

import (
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// options reads KEY=VALUE items with a function for each key. The error about an unknown key lists the known ones.
func (x span) options(known map[string]func(span) error, expected string) error {
	items, err := split(x)
	if err != nil {
		return err
	}
	for _, it := range items {
		take := known[it.key.s]
		if take == nil {
			return it.key.isNot(expected)
		}
		if err := take(it.value); err != nil {
			return within(it.key.s, err)
		}
	}
	return nil
}

func into16(p *uint16) func(span) error {
	return func(x span) (err error) { *p, err = x.u16(); return err }
}

func into32(p *uint32) func(span) error {
	return func(x span) (err error) { *p, err = x.u32(); return err }
}

func intoPort(p *ofp.Port) func(span) error {
	return func(x span) (err error) { *p, err = x.port(); return err }
}

// setFlag is for keys without a value.
func setFlag[T ~uint8 | ~uint16](p *T, bits T) func(span) error {
	return func(x span) error {
		if !x.empty() {
			return x.bad("no value", "%q follows a word that stands alone", x.s)
		}
		*p |= bits
		return nil
	}
}

func parseOutput(x span) (ofp.Action, error) {
	if strings.Contains(x.s, "port") && strings.Contains(x.s, "max_len") {
		var a ofp.OutputTrunc
		err := x.options(map[string]func(span) error{"port": intoPort(&a.Port), "max_len": into32(&a.MaxLen)},
			"port or max_len")
		return a, err
	}
	if p, err := x.port(); err == nil {
		return Output(p), nil
	}
	r, err := x.bits()
	if err != nil {
		return nil, x.isNot(aPort + ", or a field such as reg1[0..15]")
	}
	return ofp.OutputReg{Src: r, MaxLen: 0xffff}, nil
}

// parseEnqueue reads PORT:QUEUE or PORT,QUEUE; OpenFlow 1.5 says it with three actions.
func parseEnqueue(x span) ([]ofp.Action, error) {
	i := strings.IndexAny(x.s, ":q,")
	if i < 0 {
		return nil, x.isNot("PORT:QUEUE")
	}
	p, err := x.sub(0, i).port()
	if err != nil {
		return nil, err
	}
	q, err := x.from(i + 1).trim().u32()
	return Do(ofp.SetQueue{Queue: q}, ofp.Output{Port: p}, ofp.PopQueue{}), err
}

func parseController(x span) (ofp.Action, error) {
	a := ofp.Controller{MaxLen: 0xffff, Reason: ofp.ReasonAction}
	if x.empty() || strings.Trim(x.s, "0123456789") == "" {
		var err error
		if !x.empty() {
			a.MaxLen, err = x.u16()
		}
		return ofp.Output{Port: ofp.PortController, MaxLen: a.MaxLen}, err
	}
	err := x.options(map[string]func(span) error{
		"max_len": into16(&a.MaxLen), "id": into16(&a.ID), "meter_id": into32(&a.MeterID),
		"reason": func(x span) error {
			for i, n := range reasonNames {
				if strings.EqualFold(n, x.s) {
					a.Reason = uint8(i)
					return nil
				}
			}
			v, err := x.u8()
			if a.Reason = v; err != nil {
				return x.isNot("a reason: " + strings.Join(reasonNames, ", "))
			}
			return nil
		},
		"userdata": func(x span) (err error) { a.Userdata, err = x.hexBytes(); return err },
		"pause":    func(span) error { a.Pause = true; return nil },
	}, "max_len, id, reason, userdata, pause or meter_id")
	if err != nil {
		return nil, err
	}
	return a, nil
}

func parseResubmit(x span) (ofp.Action, error) {
	a := ofp.Resubmit{Port: ofp.PortInPort, Table: ofp.TableAll}
	const expected = "PORT, (PORT,TABLE) or (PORT,TABLE,ct), where PORT or TABLE may be empty"
	port, rest, _ := x.cut(",")
	table, ct, _ := rest.cut(",")
	var err error
	if port = port.trim(); !port.empty() {
		if a.Port, err = port.port(); err != nil {
			return nil, err
		}
	}
	if table = table.trim(); !table.empty() {
		if a.Table, err = table.table(); err != nil {
			return nil, err
		}
	}
	switch ct = ct.trim(); ct.s {
	case "":
	case "ct":
		a.WithCT = true
	default:
		return nil, ct.isNot(expected)
	}
	// Such a resubmit would look up the same packet again. resubmit(,) is useless too, but switches may have it.
	if a.Port == ofp.PortInPort && a.Table == ofp.TableAll &&
		(!port.empty() || !table.empty() || strings.Trim(x.s, blanks) == "") {
		return nil, x.bad(expected, "neither a port nor a table is given")
	}
	return a, nil
}

func parseSample(x span) (ofp.Action, error) {
	a := ofp.Sample{Port: ofp.PortAny}
	direction := func(d uint8) func(span) error { return func(span) error { a.Direction = d; return nil } }
	err := x.options(map[string]func(span) error{
		"probability": into16(&a.Probability), "collector_set_id": into32(&a.CollectorSet),
		"obs_domain_id": observation(&a.ObsDomain, &a.ObsDomainSrc), "obs_point_id": observation(&a.ObsPoint, &a.ObsPointSrc),
		"sampling_port": intoPort(&a.Port),
		"ingress":       direction(ofp.SampleIngress), "egress": direction(ofp.SampleEgress),
	}, "probability, collector_set_id, obs_domain_id, obs_point_id, sampling_port, ingress or egress")
	return a, err
}

// observation reads a number, or the field that holds it.
func observation(v *uint32, src *ofp.Bits) func(span) error {
	return func(x span) (err error) {
		*src = ofp.Bits{}
		if *v, err = x.u32(); err == nil {
			return nil
		}
		if *src, err = x.bits(); err != nil || src.Width > 32 {
			return x.isNot("a number of up to 32 bits, or a field of up to 32 bits such as reg4[0..15]")
		}
		return nil
	}
}

func parseFinTimeout(x span) (ofp.Action, error) {
	var a ofp.FinTimeout
	err := x.options(map[string]func(span) error{"idle_timeout": into16(&a.Idle), "hard_timeout": into16(&a.Hard)},
		"idle_timeout or hard_timeout")
	return a, err
}

// parseNote reads bytes, padded as they come back.
func parseNote(x span) (ofp.Action, error) {
	b, err := x.hexBytes()
	if err != nil {
		return nil, err
	}
	for len(b) < 6 || (len(b)+10)%8 != 0 {
		b += "\x00"
	}
	return ofp.Note{Data: b}, nil
}

func parseConjunction(x span) (ofp.Action, error) {
	id, clause, ok := x.cut(",")
	k, n, ok2 := clause.cut("/")
	if !ok || !ok2 {
		return nil, x.isNot("ID,CLAUSE/CLAUSES")
	}
	var a ofp.Conjunction
	var err error
	if a.ID, err = id.trim().u32(); err != nil {
		return nil, err
	}
	if a.Clause, err = k.trim().u8(); err != nil {
		return nil, err
	}
	a.Clauses, err = n.trim().u8()
	return a, err
}

// Names of what multipath and bundle hash and how they choose, by number.
var (
	hashNames = []string{"eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "nw_src", "nw_dst",
		"symmetric_l3"}
	multipathNames = []string{"modulo_n", "hash_threshold", "hrw", "iter_hash"}
	bundleNames    = []string{"active_backup", "hrw"}
)

// index reads one of some names.
func (x span) index(names []string) (uint16, error) {
	for i, n := range names {
		if strings.EqualFold(n, x.s) {
			return uint16(i), nil
		}
	}
	return 0, x.isNot("one of " + strings.Join(names, ", "))
}

func parseMultipath(x span) (ofp.Action, error) {
	w := x.words()
	if len(w) != 6 {
		return nil, x.isNot("FIELDS,BASIS,ALGORITHM,LINKS,ARGUMENT,DESTINATION")
	}
	var a ofp.Multipath
	fields, err1 := w[0].index(hashNames)
	basis, err2 := w[1].u16()
	algorithm, err3 := w[2].index(multipathNames)
	links, err4 := w[3].u32()
	arg, err5 := w[4].u32()
	dst, err6 := w[5].bits()
	for _, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err != nil {
			return nil, err
		}
	}
	if links < 1 || links > 65536 {
		return nil, w[3].isNot("1 to 65536 links")
	}
	a.Fields, a.Basis, a.Algorithm = ofp.HashFields(fields), basis, ofp.MultipathAlgorithm(algorithm)
	a.MaxLink, a.Arg, a.Dst = uint16(links-1), arg, dst
	return a, nil
}

// parseBundle reads FIELDS,BASIS,ALGORITHM,ofport,members:PORTS, with a field before members if load is set.
func parseBundle(x span, load bool) (ofp.Action, error) {
	expected := "FIELDS,BASIS,ALGORITHM,ofport,members:PORT,..."
	if load {
		expected = "FIELDS,BASIS,ALGORITHM,ofport,DESTINATION,members:PORT,..."
	}
	i := strings.Index(x.s, "members")
	n := len("members")
	if i < 0 {
		i, n = strings.Index(x.s, "slaves"), len("slaves")
	}
	if i < 0 {
		return nil, x.isNot(expected)
	}
	w, want := x.sub(0, i).words(), 4
	if load {
		want = 5
	}
	if len(w) != want || !strings.EqualFold(w[3].s, "ofport") {
		return nil, x.isNot(expected)
	}
	var a ofp.BundlePorts
	fields, err1 := w[0].index(hashNames)
	basis, err2 := w[1].u16()
	algorithm, err3 := w[2].index(bundleNames)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, err
		}
	}
	a.Fields, a.Basis, a.Algorithm = ofp.HashFields(fields), basis, ofp.BundleAlgorithm(algorithm)
	if load {
		var err error
		if a.Dst, err = w[4].bits(); err != nil {
			return nil, err
		}
	}
	for _, m := range x.from(i + n).memberWords() {
		p, err := m.port()
		if err != nil {
			return nil, err
		}
		a.Members = append(a.Members, p)
	}
	return a, nil
}

// memberWords are the ports after the colon, which may stand in brackets.
func (x span) memberWords() []span {
	var list []span
	for _, w := range x.words() {
		s := strings.TrimLeft(w.s, ":[")
		w = w.from(len(w.s) - len(s))
		if w = w.sub(0, len(strings.TrimRight(w.s, "]"))); !w.empty() {
			list = append(list, w)
		}
	}
	return list
}
