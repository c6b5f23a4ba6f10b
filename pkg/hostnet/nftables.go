package hostnet

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Names inside our nftables table.
const (
	masqueradeChain = "postrouting"
	uplinkChain     = "prerouting"
	sourceSet       = "sources"
	exceptSet       = "except"
	uplinkSet       = "uplinks"
)

// ruleset is our table as it should be, in values that can be compared with knftables'
// lists. A rule's text cannot be read back in the form it was written in, so each rule
// carries a hash of its text as its comment.
type ruleset struct {
	nft knftables.Interface
}

// nftChain is a base chain with its rules.
type nftChain struct {
	typ      knftables.BaseChainType
	hook     knftables.BaseChainHook
	priority knftables.BaseChainPriority
	rules    []string
}

// nftSet is a set with its elements in nft's notation.
type nftSet struct {
	typ      string
	flags    []knftables.SetFlag
	elements []string
}

// tableOf says what the table should hold; both nil when there should be no table.
func tableOf(d Desired) (map[string]nftChain, map[string]nftSet) {
	chains, sets := map[string]nftChain{}, map[string]nftSet{}
	if len(d.Masquerade.Sources) > 0 {
		interval := []knftables.SetFlag{knftables.IntervalFlag}
		sets[sourceSet] = nftSet{"ipv4_addr", interval, elements(d.Masquerade.Sources)}
		sets[exceptSet] = nftSet{"ipv4_addr", interval, elements(d.Masquerade.Except)}
		rule := knftables.Concat("ip saddr @"+sourceSet, "ip daddr != @"+exceptSet)
		if d.Masquerade.ExceptLink != "" {
			rule = knftables.Concat("oifname !=", strconv.Quote(d.Masquerade.ExceptLink), rule)
		}
		chains[masqueradeChain] = nftChain{knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority,
			[]string{rule + " masquerade fully-random"}}
	}
	var uplinks, rules []string
	for _, l := range d.Links {
		if l.NoAddresses {
			uplinks = append(uplinks, l.Name)
		}
	}
	if len(uplinks) > 0 {
		slices.Sort(uplinks)
		sets[uplinkSet] = nftSet{"ifname", nil, slices.Compact(uplinks)}
		// The userspace switch has read the packet before it comes here.
		rules = append(rules, "iifname @"+uplinkSet+" drop")
	}
	guards := map[netip.Addr][]string{}
	for _, l := range d.Links {
		for _, p := range l.Addresses {
			for _, name := range l.Guards {
				if p.Addr().Is4() {
					guards[p.Addr()] = append(guards[p.Addr()], strconv.Quote(name))
				}
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(guards), netip.Addr.Compare) {
		slices.Sort(guards[a])
		rules = append(rules, fmt.Sprintf("ip daddr %s iifname != { %s } drop", a, strings.Join(slices.Compact(guards[a]), ", ")))
	}
	if len(rules) > 0 {
		chains[uplinkChain] = nftChain{knftables.FilterType, knftables.PreroutingHook, knftables.RawPriority, rules}
	}
	return chains, sets
}

// elements returns the prefixes in nft's notation, sorted, without those that lie inside
// others, which an interval set refuses.
func elements(prefixes []netip.Prefix) []string {
	var kept []netip.Prefix
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int { return a.Bits() - b.Bits() })
	for _, p := range sorted {
		p = p.Masked()
		if !p.Addr().Is4() || slices.ContainsFunc(kept, func(k netip.Prefix) bool { return k.Overlaps(p) }) {
			continue
		}
		kept = append(kept, p)
	}
	texts := make([]string, len(kept))
	for i, p := range kept {
		texts[i] = p.String()
		if p.IsSingleIP() {
			texts[i] = p.Addr().String()
		}
	}
	slices.Sort(texts)
	return texts
}

// nftables compares the table when it may differ: each look at it runs the nft program
// several times.
func (a *applier) nftables() {
	object := problem.Object{Kind: "nftables table", Name: TableName}
	chains, sets := tableOf(a.want)
	if want := fmt.Sprint(chains, sets); want != a.table.want {
		a.table.dirty, a.table.want = true, want
	}
	if !a.table.dirty {
		return
	}
	if a.table.nft == nil {
		nft, err := knftables.New(knftables.IPv4Family, TableName)
		if err != nil {
			if len(chains) > 0 {
				a.change(err, object, "", "ask for nftables; the nft program has to be installed")
			}
			return
		}
		a.table.nft = &ruleset{nft: nft}
	}
	a.table.reads++
	tx, words, err := a.table.nft.difference(a.ctx, chains, sets)
	if err != nil {
		a.change(err, object, "", "read it")
		return
	}
	if len(words) > 0 {
		a.change(a.table.nft.nft.Run(a.ctx, tx), object, "", "%s", joinWords(words))
		return // the change is an event, and the next comparison looks whether it worked
	}
	a.table.dirty = false
}

// difference returns the transaction that brings the table to what it should be, and what
// it does in words; no words mean that there is nothing to do.
func (r *ruleset) difference(ctx context.Context, chains map[string]nftChain, sets map[string]nftSet) (*knftables.Transaction, []string, error) {
	tx := r.nft.NewTransaction()
	haveChains, err := r.list(ctx, "chains")
	if err != nil {
		return nil, nil, err
	}
	haveSets, err := r.list(ctx, "sets")
	if err != nil {
		return nil, nil, err
	}
	if len(chains) == 0 {
		if len(haveChains)+len(haveSets) == 0 {
			return tx, nil, nil
		}
		tx.Add(&knftables.Table{}) // so that the removal cannot fail
		tx.Delete(&knftables.Table{})
		return tx, []string{"remove it"}, nil
	}
	matches, err := r.matches(ctx, haveChains, haveSets, chains, sets)
	if err != nil || matches {
		return tx, nil, err
	}
	// The table is small and ours alone: it is replaced as a whole, atomically.
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("made by tombolo-agent, which mends changes")})
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		s := sets[name]
		tx.Add(&knftables.Set{Name: name, Type: s.typ, Flags: s.flags})
		for _, e := range s.elements {
			tx.Add(&knftables.Element{Set: name, Key: []string{quoted(s, e)}})
		}
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		c := chains[name]
		tx.Add(&knftables.Chain{Name: name, Type: &c.typ, Hook: &c.hook, Priority: &c.priority})
		for _, rule := range c.rules {
			tx.Add(&knftables.Rule{Chain: name, Rule: rule, Comment: knftables.PtrTo(mark(rule))})
			words = append(words, fmt.Sprintf("set chain %s to %q", name, rule))
		}
	}
	return tx, words, nil
}

// matches compares the table with what it should be.
func (r *ruleset) matches(ctx context.Context, haveChains, haveSets []string, chains map[string]nftChain, sets map[string]nftSet) (bool, error) {
	if !slices.Equal(haveChains, slices.Sorted(maps.Keys(chains))) || !slices.Equal(haveSets, slices.Sorted(maps.Keys(sets))) {
		return false, nil
	}
	for name, c := range chains {
		rules, err := r.nft.ListRules(ctx, name)
		if err != nil {
			return false, err
		}
		if !slices.EqualFunc(rules, c.rules, func(have *knftables.Rule, want string) bool {
			return have.Comment != nil && *have.Comment == mark(want)
		}) {
			return false, nil
		}
	}
	for name, s := range sets {
		list, err := r.nft.ListElements(ctx, "set", name)
		if err != nil {
			return false, err
		}
		var have []string
		for _, e := range list {
			have = append(have, e.Key[0])
		}
		slices.Sort(have)
		if !slices.Equal(have, s.elements) {
			return false, nil
		}
	}
	return true, nil
}

// list returns the sorted names of one kind of object; none when there is no table.
func (r *ruleset) list(ctx context.Context, kind string) ([]string, error) {
	names, err := r.nft.List(ctx, kind)
	if knftables.IsNotFound(err) {
		return nil, nil
	}
	slices.Sort(names)
	return names, err
}

func quoted(s nftSet, element string) string {
	if s.typ == "ifname" {
		return strconv.Quote(element)
	}
	return element
}

// mark is a rule's comment.
func mark(rule string) string {
	h := fnv.New64a()
	h.Write([]byte(rule))
	return fmt.Sprintf("tombolo %016x", h.Sum64())
}

func joinWords(words []string) string {
	s := ""
	for i, w := range words {
		if i > 0 {
			s += ", "
		}
		s += w
	}
	return s
}
