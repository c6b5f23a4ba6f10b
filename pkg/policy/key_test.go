package policy

import (
	"slices"
	"testing"
)

// TestNames names rules of policies.
func TestNames(t *testing.T) {
	for _, row := range []struct {
		text string
		key  RuleKey
	}{
		{"NetworkPolicy default/web ingress[0]", RuleKey{Policy: Key{NetworkPolicy, "default", "web"}}},
		{"AntreaNetworkPolicy default/web egress[12]",
			RuleKey{Policy: Key{AntreaNetworkPolicy, "default", "web"}, Direction: Egress, Index: 12}},
		{"AntreaClusterNetworkPolicy web.v1 ingress[1] for shop",
			RuleKey{Policy: Key{AntreaClusterNetworkPolicy, "", "web.v1"}, Index: 1, For: "shop"}},
		{"ClusterNetworkPolicy egress ingress[0]", RuleKey{Policy: Key{ClusterNetworkPolicy, "", "egress"}}},
	} {
		if have := row.key.String(); have != row.text {
			t.Errorf("%q, want %q", have, row.text)
		}
	}
}

// TestRanks are in the order in which rules decide.
func TestRanks(t *testing.T) {
	want := []Rank{
		{Stage: Admin, Tier: 50, Priority: 5, Action: Allow},
		{Stage: Admin, Tier: 250, Priority: 1, Index: 1, Action: Allow},
		{Stage: Admin, Tier: 250, Priority: 1.5, Action: Drop},
		{Stage: Admin, Tier: 250, Priority: 1.5, Action: Reject},
		{Stage: Admin, Tier: 250, Priority: 1.5, Action: Pass},
		{Stage: Admin, Tier: 250, Priority: 1.5, Action: Allow},
		{Stage: Admin, Tier: tierAdmin, Action: Allow},
		NetworkPolicyRank,
		{Stage: Baseline, Tier: tierAntreaBaseline, Priority: 1000, Action: Allow},
		{Stage: Baseline, Tier: tierBaseline, Priority: 0, Action: Drop},
	}
	have := slices.Clone(want)
	slices.Reverse(have)
	slices.SortFunc(have, Rank.Compare)
	if !slices.Equal(have, want) {
		t.Errorf("%v", have)
	}
}
