package datapath

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// Concern describes the known connections that a change of policies may concern. It is made only from the change,
// without reading the connections. So it names more of them than a Look does, including some that policies still allow.
type Concern struct {
	Since []Cause // to judge again from now on
	Until []Cause // to judge no longer, since policies allow them again
	Look  bool    // only a look at the connections finds them
}

// Cause is a Recheck with its origin. It ends when the origin is as before.
type Cause struct {
	Recheck
	// Of is, for RuleGone, the owner of the rule's number. Another rule with the same number does not end the recheck.
	Of string
}

func (c *Concern) number(of string, d policy.Direction, old, now uint32) {
	if old == now {
		return
	}
	if old >= firstRuleNumber && old&keepRule == 0 {
		c.Since = append(c.Since, Cause{Recheck{Why: RuleGone, Direction: d, Rule: old}, of})
	}
	c.Until = append(c.Until, Cause{Recheck{Why: RuleGone, Direction: d, Rule: now}, of})
}

func (c *Concern) since(r Recheck) { c.Since = append(c.Since, Cause{Recheck: r}) }
func (c *Concern) until(r Recheck) { c.Until = append(c.Until, Cause{Recheck: r}) }

// identity records that the address of an end of connections had another identity. A sender that the tunnel's key names
// needs no record.
func (c *Concern) identity(at zoneAddr, old, now uint32) {
	if old == now {
		return
	}
	for d := range directions {
		c.identityOf(policy.Direction(d), at, old, now)
	}
}

func (c *Concern) identityOf(d policy.Direction, at zoneAddr, old, now uint32) {
	if d == policy.Egress && (old|now)&remote != 0 {
		return
	}
	c.since(Recheck{Why: Relabelled, Direction: d, Addr: at.Addr, Zone: at.zone, Identity: old})
	c.until(Recheck{Why: Relabelled, Direction: d, Addr: at.Addr, Zone: at.zone, Identity: now})
}

// holder records that an address now belongs to another Pod, or to no Pod, if policies apply to the old or the new Pod.
// If an address has no such Pod, its packets have number 0, or the number of unknown Pods.
func (c *Concern) holder(at zoneAddr, old, now policy.Holder) {
	for d := range directions {
		d := policy.Direction(d)
		if !old.Asked[d] && !now.Asked[d] {
			continue
		}
		for _, before := range numbersAt(old, d) {
			for _, after := range numbersAt(now, d) {
				if before != after {
					c.identityOf(d, at, before, after)
				}
			}
		}
	}
}

// numbersAt returns the identity numbers that packets of an address can have. h is the Pod that is known at the
// address.
func numbersAt(h policy.Holder, d policy.Direction) []uint32 {
	if h.Asked[d] {
		return []uint32{h.Number}
	}
	return []uint32{0, policy.UnknownPod}
}

// local records the changes of a Pod of this Node.
func (c *Concern) local(old, now local) {
	for d := range directions {
		d := policy.Direction(d)
		judged := func(l local, ip netip.Addr) bool { return l.applied[d] && slices.Contains(l.ips, ip) }
		for _, ip := range old.ips {
			if old.applied[d] && !judged(now, ip) {
				c.until(Recheck{Why: NotJudged, Direction: d, Addr: ip, Zone: old.zone})
			}
		}
		for _, ip := range now.ips {
			if now.applied[d] && !judged(old, ip) {
				c.since(Recheck{Why: NotJudged, Direction: d, Addr: ip, Zone: now.zone})
			}
		}
	}
	if old.identity != 0 && old.identity != now.identity {
		for _, ip := range old.ips {
			c.identity(zoneAddr{old.zone, ip}, old.identity, now.identity)
		}
	}
}

// WatchConcerns sets a function that the evaluating goroutine calls with the changes of a pass for known connections.
func (k *KnownConnections) WatchConcerns(changed func(Concern)) {
	p := k.policies
	p.numbers.rules.Watch(func(list []derive.Change[policy.RuleKey, uint32]) {
		var c Concern
		for _, x := range list {
			c.number(x.Key.String(), x.Key.Direction, x.Old, x.New)
		}
		changed(c)
	})
	p.numbers.defaults.Watch(func(list []derive.Change[policy.Identity, [2]uint32]) {
		var c Concern
		for _, x := range list {
			for d := range directions {
				c.number("identity "+string(x.Key), policy.Direction(d), x.Old[d], x.New[d])
			}
		}
		changed(c)
	})
	k.locals.Watch(func(list []derive.Change[derive.Name, local]) {
		var c Concern
		for _, x := range list {
			c.local(x.Old, x.New)
		}
		changed(c)
	})
	p.in.Addresses.Watch(func(list []derive.Change[policy.Addr, policy.Holder]) {
		var c Concern
		for _, x := range list {
			c.holder(zoneAddr{0, x.Key.Addr}, x.Old, x.New)
		}
		changed(c)
	})
	p.in.Virtual.Addresses.Watch(func(list []derive.Change[policy.FurtherAddr, policy.Holder]) {
		var c Concern
		for _, x := range list {
			c.holder(zoneAddr{k.zoneOf(x.Key.Network), x.Key.Addr}, x.Old, x.New)
		}
		changed(c)
	})
	p.in.Newcomers.Watch(func(list []derive.Change[policy.SenderKey, policy.Newcomer]) {
		var c Concern
		for _, x := range list {
			c.newcomer(p.in, x.Old, x.New)
		}
		changed(c)
	})
	p.unknown.Watch(func([]derive.Change[policy.PodRange, flow.Entries]) { changed(Concern{Look: true}) })
	p.blocks.Watch(func([]derive.Change[policy.Block, flow.Entries]) { changed(Concern{Look: true}) })
	p.followed.Watch(func([]derive.Change[remoteNumber, flow.Entries]) { changed(Concern{Look: true}) })
}
