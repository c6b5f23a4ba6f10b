package datapath

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// RuleTables are where packets are counted that rules judge: those that open connections. What matches no rule of
// an isolated Pod is counted by the table's flow of priority 0.
var RuleTables = map[ofp.Table]policy.Direction{EgressRule: policy.Egress, IngressRule: policy.Ingress}

// RuleOwners says whose flow in RuleTables counts the packets of which rules, in their order: rules that allow the
// same identity everything are one flow.
func (t *Tables) RuleOwners() map[flow.Owner][]policy.RuleKey {
	out := map[flow.Owner][]policy.RuleKey{}
	if t.Policy == nil {
		return out
	}
	for _, row := range t.Policy.Rules.All() {
		switch list := parts(row.Key, row.Value); len(list) {
		case 0:
		case 1:
			for _, c := range list[0] {
				out[clauseOwner(c)] = append(out[clauseOwner(c)], row.Key)
			}
		default:
			out[ruleOwner(row.Key)] = append(out[ruleOwner(row.Key)], row.Key)
		}
	}
	return out
}
