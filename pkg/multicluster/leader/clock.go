package leader

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

const (
	// disconnectAfter is how long a member may be silent before it counts as disconnected.
	disconnectAfter = 30 * time.Second
	// expireAfter is how long a member may be silent before it and its exports are removed.
	expireAfter = 24 * time.Hour
	// listenFor is how long a leader that has just started waits for a member to touch its announcement. Before that it
	// does not trust a time stamp in the distant past, since the member's clock may be behind.
	listenFor = 5 * time.Minute
	// orphanAfter is how long exports of a cluster that has not announced itself are kept.
	orphanAfter = time.Hour
)

// Sighting records when this process has seen a MemberClusterAnnounce and its changes. The times are of its own clock,
// since members' clocks may be wrong.
type Sighting struct {
	First   time.Time // when it was seen first
	Changed time.Time // when it was last seen to change; First if it has not
	Touched time.Time // the last change of its time stamp that was seen; zero for no change
}

const (
	// tick is how often the clock looks for timeouts. A missing heartbeat causes no event.
	tick = time.Second
	// holdClaims is how long an announced member keeps addresses after it has withdrawn them, or after its endpoints are
	// no longer imported. A member that leaves loses them at once.
	holdClaims = 10 * time.Minute
)

// clock handles time for the tables, which have no clock. It writes the effects of time to the tables: members that are
// disconnected or connected again, exports without a member for too long, and claims that have ended.
type clock struct {
	t         *tables
	numbering *numbering

	mu       sync.Mutex
	seen     map[derive.Object]*sighting         // announcements
	claims   map[derive.Name]claim               // by cluster ID
	inTables map[derive.Object]live              // as the tables have it
	late     map[derive.Object]time.Time         // the same
	infoOf   map[derive.Object]derive.Name       // cluster IDs of ClusterInfo imports
	used     map[derive.Object]map[use]time.Time // endpoints by import, and the end of their use; zero while imported
	ending   map[derive.Object]bool              // imports with endpoints that are not
}

// sighting is the record of a MemberClusterAnnounce, with its last state.
type sighting struct {
	Sighting
	last announce
}

// claim is a ClusterInfo that was imported. until is zero while it is.
type claim struct {
	info  *mcv1alpha1.ClusterInfo
	until time.Time
}

func newClock(t *tables) *clock {
	return &clock{t: t, numbering: newNumbering(t), seen: map[derive.Object]*sighting{}, claims: map[derive.Name]claim{},
		inTables: map[derive.Object]live{}, late: map[derive.Object]time.Time{}, infoOf: map[derive.Object]derive.Name{},
		used: map[derive.Object]map[use]time.Time{}, ending: map[derive.Object]bool{}}
}

// watch has the clock see announcements and imports as they change.
func (c *clock) watch(now func() time.Time) {
	c.t.facts.announcements.Watch(func(changes []derive.Change[derive.Object, announce]) { c.announced(changes, now()) })
	c.t.facts.imports.Watch(func(changes []derive.Change[derive.Object, *mcv1alpha1.ResourceImport]) {
		c.imported(changes,
			now())
	})
	c.t.claiming.exporters.Watch(func(changes []derive.Change[derive.Object, []use]) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, change := range changes {
			c.use(change.Key, now())
		}
	})
	c.t.members.Watch(c.left)
	c.numbering.watch(now)
}

// see records an announcement at a time.
func (s *sighting) see(a announce, now time.Time) {
	switch {
	case s.last.UID != a.UID || s.First.IsZero():
		s.Sighting = Sighting{First: now, Changed: now}
	case s.last.Touched != a.Touched:
		s.Changed, s.Touched = now, now
	case s.last.Version != a.Version:
		s.Changed = now
	}
	s.last = a
}

func (c *clock) announced(changes []derive.Change[derive.Object, announce], now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := silencesOf(values(c.t.facts.sets.All())...)
	for _, change := range changes {
		if change.New.Fact == nil {
			delete(c.seen, change.Key)
			c.set(change.Key, live{})
			continue
		}
		s := c.seen[change.Key]
		if s == nil {
			s = &sighting{}
			c.seen[change.Key] = s
		}
		s.see(change.New, now)
		c.judge(change.Key, s, before, now)
	}
}

// judge writes the state of a member to the tables.
func (c *clock) judge(key derive.Object, s *sighting, before silences, now time.Time) {
	c.set(key, liveOf(s.Sighting, s.last, s.disconnected(before), now))
}

// disconnected returns when a member became disconnected, if only the ClusterSet's status has the time.
func (s *sighting) disconnected(before silences) time.Time {
	if t, known := before.of(s.last.Fact); known && s.Touched.IsZero() { // else this controller has seen for itself
		return t
	}
	return time.Time{}
}

// reports returns the times of the last heartbeats, by announcement.
func (c *clock) reports() map[derive.Object]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := silencesOf(values(c.t.facts.sets.All())...)
	out := map[derive.Object]time.Time{}
	for key, s := range c.seen {
		out[key] = lastReport(s.Sighting, s.last, s.disconnected(before))
	}
	return out
}

// set writes a member's last heartbeat to the tables.
func (c *clock) set(key derive.Object, l live) {
	if c.inTables[key] == l {
		return
	}
	c.t.facts.liveness.Set(key, l)
	if c.inTables[key] = l; l == (live{}) {
		delete(c.inTables, key)
	}
}

// imported records which ClusterInfos are in effect, and since when others are not.
func (c *clock) imported(changes []derive.Change[derive.Object, *mcv1alpha1.ResourceImport], now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		ri := change.New
		if c.used[change.Key] != nil {
			c.use(change.Key, now)
		}
		id, was := c.infoOf[change.Key]
		if ri != nil && ri.Spec.Kind == multicluster.ClusterInfoKind && ri.Spec.ClusterInfo != nil &&
			ri.DeletionTimestamp == nil {
			id = derive.Name(ri.Spec.ClusterInfo.ClusterID)
			c.infoOf[change.Key] = id
			c.claims[id] = claim{info: ri.Spec.ClusterInfo}
			c.t.facts.held.Set(id, ri.Spec.ClusterInfo)
			continue
		}
		delete(c.infoOf, change.Key)
		if held, ok := c.claims[id]; was && ok && held.until.IsZero() {
			c.claims[id] = claim{held.info, now.Add(holdClaims)}
		}
	}
}

// left gives the claims of members free that are no members any more.
func (c *clock) left(changes []derive.Change[derive.Name, member]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		if !change.New.Announced || change.New.Leaving {
			c.release(change.Key)
			for key, used := range c.used {
				before := len(used)
				maps.DeleteFunc(used, func(u use, _ time.Time) bool { return u.ID == string(change.Key) })
				if len(used) < before {
					c.setUsed(key)
				}
			}
		}
	}
}

// use records which endpoints of an import are in use, and when the use of other endpoints ended. If an import cannot
// be written, an endpoint that is no longer exported is still imported. Until then it still belongs to its cluster.
func (c *clock) use(key derive.Object, now time.Time) {
	used := c.used[key]
	if used == nil {
		used = map[use]time.Time{}
		c.used[key] = used
	}
	imported, exported := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	if ri, _ := c.t.facts.imports.Get(key); ri != nil && ri.DeletionTimestamp == nil && ri.Spec.Endpoints != nil {
		for ip := range addresses(ri.Spec.Endpoints.Subsets) {
			imported[ip] = true
		}
	}
	exporters, _ := c.t.claiming.exporters.Get(key)
	current := map[use]bool{}
	for _, u := range exporters {
		exported[u.IP], current[u] = true, true
		used[u] = time.Time{}
	}
	for u, until := range used {
		switch {
		case current[u]:
		case imported[u.IP] && !exported[u.IP]:
			used[u] = time.Time{}
		case until.IsZero():
			used[u] = now.Add(holdClaims)
			c.ending[key] = true
		}
	}
	c.setUsed(key)
}

// setUsed writes the used endpoints of an import to the tables.
func (c *clock) setUsed(key derive.Object) {
	used := c.used[key]
	if len(used) == 0 {
		delete(c.used, key)
		delete(c.ending, key)
	}
	c.t.facts.uses.Set(key, slices.SortedFunc(maps.Keys(used), use.compare))
}

func (c *clock) release(id derive.Name) {
	if _, ok := c.claims[id]; ok {
		delete(c.claims, id)
		c.t.facts.held.Delete(id)
	}
}

// tick looks for timeouts and writes their effects to the tables.
func (c *clock) tick(now time.Time) {
	c.numbering.tick(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	before := silencesOf(values(c.t.facts.sets.All())...)
	for key, s := range c.seen {
		c.judge(key, s, before, now)
	}
	for id, claim := range c.claims {
		if !claim.until.IsZero() && now.After(claim.until) {
			c.release(id)
		}
	}
	for key := range c.ending {
		used := c.used[key]
		before, ending := len(used), false
		maps.DeleteFunc(used, func(_ use, until time.Time) bool {
			over := !until.IsZero() && now.After(until)
			ending = ending || !until.IsZero() && !over
			return over
		})
		if !ending {
			delete(c.ending, key)
		}
		if len(used) < before {
			c.setUsed(key)
		}
	}
	late := map[derive.Object]time.Time{}
	for _, row := range c.t.orphans.All() {
		if now.Sub(row.Value) > orphanAfter {
			late[row.Key] = row.Value
		}
	}
	for key := range c.late {
		if _, still := late[key]; !still {
			c.t.facts.overdue.Delete(key)
		}
	}
	for key, since := range late {
		if !c.late[key].Equal(since) {
			c.t.facts.overdue.Set(key, since)
		}
	}
	c.late = late
}
