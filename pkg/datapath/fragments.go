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
//
// In IPv6 a later fragment has no protocol either: Open vSwitch gives it the number of the header for fragments. So
// there fragments end before a stage with a rule that needs a protocol.

// staged are the Pods of a subject in one stage.
type staged struct {
	subject
	stage policy.Stage
}

// Compare makes a staged the key of a table.
func (s staged) Compare(o staged) int {
	return cmp.Or(s.subject.Compare(o.subject), cmp.Compare(s.stage, o.stage))
}

// stagesOf returns a function that lists the Pods and stages of a rule. The list is empty unless the rule needs a part
// of a packet that fragments lack.
func stagesOf(needs func(policy.Rule) bool) func(policy.RuleKey, policy.Rule) []staged {
	return func(k policy.RuleKey, r policy.Rule) (out []staged) {
		if !needs(r) {
			return nil
		}
		for _, s := range subjects(k, r) {
			out = append(out, staged{s, r.Stage})
		}
		return out
	}
}

// needsProtocol reports whether a rule matches the protocol of a packet, and nothing else of it except addresses.
func needsProtocol(r policy.Rule) bool { return !r.AnyPort && !needsPorts(r) }

// needsPorts reports whether a rule matches ports or ICMP messages, which fragments lack.
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
func (p *Policies) noFragments(s staged, r *derive.Reader) (flows []flow.Flow) {
	d, families := directions[s.direction], derived(r, p.base.outside).Families
	end := func(ip flow.Cond) {
		flows = append(flows, flow.Flow{
			Table: d.stages[s.stage], Priority: fragments,
			Match: flow.All(ip, d.own.Is(uint64(s.identity)), flow.Fragment()),
		})
	}
	ported := len(derive.List(r, p.ported, s)) > 0
	if families.Has4() && ported {
		end(flow.IP())
	}
	if families.Has6() && (ported || len(derive.List(r, p.protocoled, s)) > 0) {
		end(flow.IPv6())
	}
	return flows
}

// CountsFragments reports whether a flow of RuleTables counts fragments that are dropped before a stage.
func CountsFragments(f flow.Flow) bool { return f.Priority == fragments }
