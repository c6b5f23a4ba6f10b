package policy

import (
	"net/netip"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// NameOf returns the normal form of a DNS name, or of a pattern of names: lower case, without the dot at its end.
func NameOf(text string) string { return strings.ToLower(strings.TrimSuffix(text, ".")) }

// MatchesName reports whether a pattern matches a name, both in normal form. * stands for any characters. Antrea allows
// * anywhere. SIG Network allows it only as the first of several labels, for one or more labels. One rule suffices for
// both, since a name has no empty labels.
func MatchesName(pattern, name string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] {
		if _, name, ok = strings.Cut(name, part); !ok { // the leftmost place leaves most to the others
			return false
		}
	}
	return strings.HasSuffix(name, parts[len(parts)-1])
}

// learned are the addresses of the names that a pattern matches.
func (t *selectorTables) learned(pattern derive.Name, r *derive.Reader) (out []netip.Addr, _ []problem.Problem) {
	if !strings.Contains(string(pattern), "*") {
		out, _ = derive.Get(r, t.all.Learned, pattern)
		return out, nil
	}
	for _, row := range derive.All(r, t.all.Learned) {
		if MatchesName(string(pattern), string(row.Key)) {
			out = append(out, row.Value...)
		}
	}
	return sorted(out, netip.Addr.Compare), nil
}

// namesOf are the patterns of a rule.
func namesOf(_ RuleKey, f ruleFacts) []derive.Name {
	out := make([]derive.Name, len(f.Names))
	for i, name := range f.Names {
		out[i] = derive.Name(name)
	}
	return out
}

// asked are the addresses of a rule's names.
func (t *selectorTables) asked(f ruleFacts, r *derive.Reader) (out []netip.Addr) {
	for _, pattern := range f.Names {
		list, _ := derive.Get(r, t.addressesOf, derive.Name(pattern))
		out = append(out, list...)
	}
	return sorted(out, netip.Addr.Compare)
}

// blocks are the ranges of a rule, with the addresses of its names.
func (t *selectorTables) blocks(f ruleFacts, r *derive.Reader) []netip.Prefix {
	if len(f.Names) == 0 {
		return f.Blocks
	}
	out := append([]netip.Prefix(nil), f.Blocks...)
	for _, pattern := range f.Names {
		list, _ := derive.Get(r, t.addressesOf, derive.Name(pattern))
		for _, a := range list {
			if !f.inBlock(a) {
				out = append(out, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return sorted(out, netip.Prefix.Compare)
}
