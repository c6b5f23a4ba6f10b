package hostnet

import (
	"cmp"
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
	behindChain     = "behind"
	egressChain     = "egress" // with the number of the link, since a chain of this hook belongs to one
	sourceSet       = "sources"
	exceptSet       = "except"
	alwaysSet       = "always"
	masquerade      = " masquerade fully-random"
	uplinkSet       = "uplinks"
	behindSet       = "behind"
	behindToSet     = "behindto"
)

// families are the families in which we have a table, in the order of their comparison. The first one applies to all
// packets of a link, even a userspace switch's. It prevents packets that have to be encrypted from leaving in plain
// text, so it must not wait for the others. The others apply to packets that pass the host's own network stack.
var families = []knftables.Family{knftables.NetDevFamily, knftables.IPv4Family, knftables.IPv6Family}

// version is a version of IP in nft's words.
type version struct {
	family            knftables.Family
	header, addresses string // the header, and the type of its addresses
	has               func(netip.Addr) bool
	example           netip.Addr // an address
}

// versions has the versions of IP by family.
var versions = map[knftables.Family]version{
	knftables.IPv4Family: {knftables.IPv4Family, "ip", "ipv4_addr", netip.Addr.Is4, netip.IPv4Unspecified()},
	knftables.IPv6Family: {knftables.IPv6Family, "ip6", "ipv6_addr", netip.Addr.Is6, netip.IPv6Unspecified()},
}

// familyOf returns the family of an address.
func familyOf(ip netip.Addr) knftables.Family {
	if ip.Is4() {
		return knftables.IPv4Family
	}
	return knftables.IPv6Family
}

// ruleset reads and writes one of our tables. nft does not return a rule's text in the form in which it was written, so
// each rule has a hash of its text as its comment.
type ruleset struct {
	nft knftables.Interface
}

// contents are the desired contents of a table, in values that can be compared with knftables' lists. Without chains
// the table should not exist.
type contents struct {
	chains map[string]nftChain
	sets   map[string]nftSet
}

// nftChain is a base chain with its rules.
type nftChain struct {
	typ      knftables.BaseChainType
	hook     knftables.BaseChainHook
	device   string // the link of a chain of the family netdev
	priority knftables.BaseChainPriority
	rules    []string
}

// nftSet is a set with its elements in nft's notation.
type nftSet struct {
	typ      string
	flags    []knftables.SetFlag
	elements []string
}

// contentsOf returns the desired contents of our table of a family.
func contentsOf(family knftables.Family, d Desired) contents {
	if family == knftables.NetDevFamily {
		return egressOf(d)
	}
	chains, sets := map[string]nftChain{}, map[string]nftSet{}
	ip := versions[family]
	var rules []string
	add := func(set string, sources []netip.Prefix, more ...string) bool {
		elements := elements(sources, ip.has)
		if len(elements) == 0 {
			return false
		}
		sets[set] = nftSet{ip.addresses, []knftables.SetFlag{knftables.IntervalFlag}, elements}
		rule := knftables.Concat(ip.header, "saddr @"+set, more)
		if d.Masquerade.ExceptLink != "" {
			rule = knftables.Concat("oifname !=", strconv.Quote(d.Masquerade.ExceptLink), rule)
		}
		rules = append(rules, rule+masquerade)
		return true
	}
	if add(sourceSet, d.Masquerade.Sources, ip.header+" daddr != @"+exceptSet) {
		sets[exceptSet] = nftSet{ip.addresses, []knftables.SetFlag{knftables.IntervalFlag},
			elements(d.Masquerade.Except, ip.has)}
	}
	add(alwaysSet, d.Masquerade.Always)
	if len(rules) > 0 {
		chains[masqueradeChain] = nftChain{typ: knftables.NATType, hook: knftables.PostroutingHook,
			priority: knftables.SNATPriority, rules: rules}
	}
	if guards := guardsOf(family, d.Links, sets); len(guards) > 0 {
		chains[uplinkChain] = nftChain{typ: knftables.FilterType, hook: knftables.PreroutingHook,
			priority: knftables.RawPriority, rules: guards}
	}
	if rule := behindOf(ip, d.Behind, sets); rule != "" {
		// between Linux's conntrack and the translations of Services
		chains[behindChain] = nftChain{typ: knftables.FilterType, hook: knftables.PreroutingHook,
			priority: knftables.ManglePriority, rules: []string{rule}}
	}
	return contents{chains, sets}
}

// behindOf returns the rule that drops packets of some sources unless they come through the right link, and adds its
// sets. Packets through "lo" are the host's own.
func behindOf(ip version, behind Behind, sets map[string]nftSet) string {
	sources, to := elements(behind.Sources, ip.has), elements(behind.To, ip.has)
	if len(sources) == 0 {
		return ""
	}
	interval := []knftables.SetFlag{knftables.IntervalFlag}
	sets[behindSet] = nftSet{ip.addresses, interval, sources}
	rule := knftables.Concat("iifname != {", strconv.Quote(loopback)+",", strconv.Quote(behind.Link), "}",
		ip.header, "saddr @"+behindSet)
	if len(to) > 0 {
		sets[behindToSet] = nftSet{ip.addresses, interval, to}
		rule = knftables.Concat(rule, ip.header, "daddr @"+behindToSet)
	}
	return rule + " ct state invalid,new,untracked drop"
}

// guardsOf returns the rules that drop packets that come through a link that is no guard of their destination, and adds
// their set.
func guardsOf(family knftables.Family, links []Link, sets map[string]nftSet) []string {
	ip := versions[family]
	var uplinks, rules []string
	addressed := family == knftables.IPv4Family // of IPv6 the host may have nothing
	for _, l := range links {
		addressed = addressed || slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return ip.has(p.Addr()) })
		if l.NoAddresses {
			uplinks = append(uplinks, l.Name)
		}
	}
	if len(uplinks) > 0 && addressed {
		slices.Sort(uplinks)
		sets[uplinkSet] = nftSet{"ifname", nil, slices.Compact(uplinks)}
		// The userspace switch has read the packet before it comes here.
		rules = append(rules, "iifname @"+uplinkSet+" drop")
	}
	guards := map[netip.Addr][]string{}
	for _, l := range links {
		for _, p := range l.Addresses {
			for _, name := range l.Guards {
				if ip.has(p.Addr()) {
					guards[p.Addr()] = append(guards[p.Addr()], strconv.Quote(name))
				}
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(guards), netip.Addr.Compare) {
		slices.Sort(guards[a])
		rules = append(rules,
			fmt.Sprintf("%s daddr %s iifname != { %s } drop", ip.header, a, strings.Join(slices.Compact(guards[a]), ", ")))
	}
	return rules
}

// egressOf has a chain for each link that some packets must not leave by.
func egressOf(d Desired) contents {
	out := contents{map[string]nftChain{}, map[string]nftSet{}}
	for i, e := range d.Egress {
		if drop := elements(e.Drop, netip.Addr.Is4); len(drop) > 0 {
			out.chains[egressChain+strconv.Itoa(i)] = nftChain{typ: knftables.FilterType, hook: knftables.EgressHook,
				device: e.Link, priority: knftables.FilterPriority,
				rules: []string{"ip daddr { " + strings.Join(drop, ", ") + " } drop"}}
		}
	}
	return out
}

// elements returns the prefixes of one version of IP in nft's notation, sorted. It leaves out prefixes inside others,
// which an interval set refuses.
func elements(prefixes []netip.Prefix, has func(netip.Addr) bool) []string {
	var kept []netip.Prefix
	var sorted []netip.Prefix
	for _, p := range prefixes {
		if has(p.Addr()) {
			sorted = append(sorted, p.Masked())
		}
	}
	// A prefix comes after the prefixes that it is inside of, and nothing else comes between.
	slices.SortFunc(sorted, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	for _, p := range sorted {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(p) {
			kept = append(kept, p)
		}
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

// table is the state of one of our nftables tables.
type table struct {
	nft *ruleset // nil until the first use
	// dirty is set if the table may differ from the desired one: it was never compared, it was changed, or the last
	// attempt failed.
	dirty bool
	want  string // what it was last compared with
}

// nodeTables are our nftables tables without translations.
type nodeTables map[knftables.Family]*table

// apply compares our tables if they may differ, since each comparison runs the nft program several times. It calls
// compared after each table. is reports whether the kernel has the desired table.
func (ts nodeTables) apply(a *applier, compared func(_ knftables.Family, is bool)) {
	for _, family := range families {
		if ts[family] == nil {
			ts[family] = &table{dirty: true}
		}
		compared(family, ts[family].apply(a, family))
	}
}

// suspect has all tables compared.
func (ts nodeTables) suspect() {
	for _, t := range ts {
		t.dirty = true
	}
}

// apply compares the table of a family when it may differ. It reports whether the kernel has the desired table.
func (t *table) apply(a *applier, family knftables.Family) bool {
	object := problem.Object{Kind: "nftables table", Name: string(family) + " " + tableName}
	wanted := contentsOf(family, a.want)
	if want := fmt.Sprint(wanted); want != t.want {
		t.dirty, t.want = true, want
	}
	if !t.dirty {
		return true
	}
	if t.nft == nil {
		nft, err := knftables.New(family, tableName)
		if err != nil {
			if len(wanted.chains) > 0 {
				a.change(err, object, "", "ask for nftables; the nft program has to be installed")
			}
			return false
		}
		t.nft = &ruleset{nft: nft}
	}
	a.reads++
	tx, words, err := t.nft.difference(a.ctx, wanted)
	if err != nil {
		a.change(err, object, "", "read it")
		return false
	}
	if len(words) > 0 {
		err := t.nft.nft.Run(a.ctx, tx)
		a.change(err, object, "", "%s", strings.Join(words, ", "))
		return err == nil // the change is an event, and the next comparison looks whether it worked
	}
	t.dirty = false
	return true
}

// sources are the sources that the table of a family translates always.
type sources struct {
	has   []netip.Prefix // at the last comparison that succeeded
	wants []netip.Prefix // at the last comparison that has begun
}

// have reports whether an address is a source, and stays one.
func (s sources) have(ip netip.Addr) bool {
	contains := func(p netip.Prefix) bool { return p.Contains(ip) }
	return slices.ContainsFunc(s.has, contains) && slices.ContainsFunc(s.wants, contains)
}

// difference returns the transaction that makes the table equal to the desired one, and a text about the changes. An
// empty text means that no change is needed.
func (r *ruleset) difference(ctx context.Context, want contents) (*knftables.Transaction, []string, error) {
	tx := r.nft.NewTransaction()
	haveChains, err := r.list(ctx, "chains")
	if err != nil {
		return nil, nil, err
	}
	haveSets, err := r.list(ctx, "sets")
	if err != nil {
		return nil, nil, err
	}
	if len(want.chains) == 0 {
		if len(haveChains)+len(haveSets) == 0 {
			return tx, nil, nil
		}
		tx.Add(&knftables.Table{}) // so that the removal cannot fail
		tx.Delete(&knftables.Table{})
		return tx, []string{"remove it"}, nil
	}
	matches, err := r.matches(ctx, haveChains, haveSets, want)
	if err != nil || matches {
		return tx, nil, err
	}
	// The table is small and ours alone: it is replaced as a whole, atomically.
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("made by tombolo-agent, which mends changes")})
	addSets(tx, want.sets)
	return tx, addChains(tx, want.chains), nil
}

// addSets adds sets with their elements.
func addSets(tx *knftables.Transaction, sets map[string]nftSet) {
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		s := sets[name]
		tx.Add(&knftables.Set{Name: name, Type: s.typ, Flags: s.flags})
		for _, e := range s.elements {
			tx.Add(&knftables.Element{Set: name, Key: []string{quoted(s, e)}})
		}
	}
}

// addChains adds chains with their rules, and returns in words what that does.
func addChains(tx *knftables.Transaction, chains map[string]nftChain) (words []string) {
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		c := chains[name]
		chain := &knftables.Chain{Name: name, Type: &c.typ, Hook: &c.hook, Priority: &c.priority}
		where := ""
		if c.device != "" {
			chain.Device = &c.device
			where = fmt.Sprintf(" of link %s (Linux 5.16 or later has this hook)", c.device)
		}
		tx.Add(chain)
		for _, rule := range c.rules {
			tx.Add(&knftables.Rule{Chain: name, Rule: rule, Comment: knftables.PtrTo(mark(c.device + rule))})
			words = append(words, fmt.Sprintf("set chain %s%s to %q", name, where, rule))
		}
	}
	return words
}

// matches compares the table with what it should be.
func (r *ruleset) matches(ctx context.Context, haveChains, haveSets []string, want contents) (bool, error) {
	if !slices.Equal(haveChains, slices.Sorted(maps.Keys(want.chains))) ||
		!slices.Equal(haveSets, slices.Sorted(maps.Keys(want.sets))) {
		return false, nil
	}
	for name, c := range want.chains {
		rules, err := r.nft.ListRules(ctx, name)
		if err != nil {
			return false, err
		}
		if !slices.EqualFunc(rules, c.rules, func(have *knftables.Rule, want string) bool {
			return have.Comment != nil && *have.Comment == mark(c.device+want)
		}) {
			return false, nil
		}
	}
	for name, s := range want.sets {
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
