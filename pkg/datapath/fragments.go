package datapath

import (
	"cmp"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// The userspace datapath reassembles the fragments of a datagram only for connection tracking. Afterwards each fragment
// continues by itself, and a match finds 0 for its ports and its ICMP message. A rule with ports would miss the
// fragments that it denies, and a rule with port 0 would match all. So if a rule of a stage needs ports, fragments end
// before the stage. The kernel's datapath has whole datagrams here. If policies have allowed a connection, its
// fragments do not come here on either datapath.

// staged are the Pods of a subject in one stage.
type staged struct {
	subject
	stage policy.Stage
}

// Compare makes a staged the key of a table.
func (s staged) Compare(o staged) int {
	return cmp.Or(s.subject.Compare(o.subject), cmp.Compare(s.stage, o.stage))
}

// needingPorts are the Pods for which a rule cannot be judged without ports.
func needingPorts(k policy.RuleKey, r policy.Rule) (out []staged) {
	if !needsPorts(r) {
		return nil
	}
	for _, s := range subjects(k, r) {
		out = append(out, staged{s, r.Stage})
	}
	return out
}

// needsPorts reports whether a rule matches more of a packet than its addresses and its protocol.
func needsPorts(r policy.Rule) bool {
	if r.AnyPort {
		return false
	}
	for _, p := range r.Ports {
		for _, m := range masks(p) {
			if m.mask != 0 || m.sourceMask != 0 {
				return true
			}
		}
	}
	for _, i := range r.ICMP {
		if i.Type != policy.Any || i.Code != policy.Any {
			return true
		}
	}
	return len(r.Targets) > 0
}

// noFragments end fragments before a stage for the Pods of an identity.
func (p *policyFlows) noFragments(s staged, r *derive.Reader) []flow.Flow {
	if len(derive.List(r, p.ported, s)) == 0 {
		return nil
	}
	d := directions[s.direction]
	return []flow.Flow{{
		Table: d.stages[s.stage], Priority: fragments,
		Match: flow.All(d.own.Is(uint64(s.identity)), flow.Fragment()),
	}}
}

// CountsFragments reports whether a flow of RuleTables counts fragments that end before a stage.
func CountsFragments(f flow.Flow) bool { return f.Priority == fragments }
