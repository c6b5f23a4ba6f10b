package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// These are the bounds of learned DNS answers. docs/policy-names.md lists them.
const (
	maxLearned   = 4096            // addresses of all names; above it, the identity with the most loses some
	evicted      = 64              // so many at once
	maxOfName    = 256             // addresses of one name; above it, the first to expire are removed
	leastTTL     = 5 * time.Second // so that there is time to connect
	mostTTL      = 24 * time.Hour
	mostHeld     = 1024        // answers that wait for flows; further ones pass at once and are not learned
	heldFor      = time.Second // for flows; then an answer passes without
	namesSaved   = time.Second // at most so late are later expiries in the file
	namesExpired = time.Second // at most so late is an address forgotten
)

// learnedNames has the addresses from answers of DNS to Pods that have rules with names. Each is kept until it expires.
// A file keeps them over a restart.
type learnedNames struct {
	nodeNames
	file  string
	floor time.Duration
	log   *slog.Logger
	queue *sharedQueue[uint32, datapath.Answer] // by the identity of the Pod

	known   map[string]map[netip.Addr]time.Time // when they expire
	count   int                                 // of addresses
	holders map[heldAddress]uint32              // the identity of the Pod that has asked for it
	held    map[uint32]int                      // addresses of each identity; 0 has the previous process's
	asked   chan chan []api.LearnedName         // requests for the known addresses
	unsaved bool
	full    bool // addresses have made room, and that was reported

	addresses prometheus.Gauge
	answers   *prometheus.CounterVec
}

// heldAddress is an address of a name.
type heldAddress struct {
	name string
	ip   netip.Addr
}

// nodeNames is the part of the Node that learnedNames uses.
type nodeNames interface {
	// wanted reports whether a rule of the Pod has the name of an answer.
	wanted(datapath.Answer) bool
	// set writes the addresses of some names to the tables. An empty list removes a name.
	set(map[string][]netip.Addr)
	// applied returns once the switch has confirmed the flows for these addresses.
	applied(ctx context.Context, set map[string][]netip.Addr) error
	// release hands an answer on to the Pod.
	release(context.Context, datapath.Answer) error
}

func newLearnedNames(n nodeNames, file string, floor time.Duration, log *slog.Logger) *learnedNames {
	return &learnedNames{
		nodeNames: n, file: file, floor: max(leastTTL, floor), log: log,
		queue: newSharedQueue[uint32, datapath.Answer](mostHeld), known: map[string]map[netip.Addr]time.Time{},
		holders: map[heldAddress]uint32{}, held: map[uint32]int{}, asked: make(chan chan []api.LearnedName),
		addresses: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tombolo_dns_learned_addresses", Help: "Addresses that " +
			"are known of names in rules."}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tombolo_dns_answers_total", Help: "Answers of DNS to Pods under rules with names, by what came of them: " +
				"learned, known, foreign (no rule names it), late (released before its flows were confirmed), full (others made " +
				"room for its addresses).",
		}, []string{"result"}),
	}
}

// take is given answers by the switch, which have not reached the Pod yet.
func (l *learnedNames) take(in ofp.PacketIn2) error {
	a, err := datapath.AnswerOf(in)
	if err != nil {
		a.Addrs = nil
	}
	return l.queue.push(a.Identity, a) // a Pod whose answer is lost asks again
}

// run learns and forgets until ctx ends.
func (l *learnedNames) run(ctx context.Context) error {
	defer l.save()
	expire, save := time.NewTicker(namesExpired), time.NewTicker(namesSaved)
	defer expire.Stop()
	defer save.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.queue.wake:
			var batch []datapath.Answer
			for a, ok := l.queue.pop(); ok; a, ok = l.queue.pop() {
				if batch = append(batch, a); len(batch) == mostHeld {
					break
				}
			}
			l.learn(ctx, batch)
		case to := <-l.asked:
			to <- l.list()
		case <-expire.C:
			l.expire()
		case <-save.C:
			l.save()
		}
	}
}

// list returns the known addresses, by name and address.
func (l *learnedNames) list() []api.LearnedName {
	out := []api.LearnedName{}
	for _, name := range slices.Sorted(maps.Keys(l.known)) {
		for _, ip := range slices.SortedFunc(maps.Keys(l.known[name]), netip.Addr.Compare) {
			out = append(out, api.LearnedName{Name: name, Address: ip.String(), Expires: l.known[name][ip]})
		}
	}
	return out
}

// serve lists the known addresses.
func (l *learnedNames) serve(r *http.Request) (any, error) {
	to := make(chan []api.LearnedName, 1)
	select {
	case l.asked <- to:
		return api.NameList{Names: <-to}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(5 * time.Second):
		return nil, errors.New("the agent is busy with answers of DNS: try again")
	}
}

// learn records the addresses in answers, and releases the answers once the switch has flows for the addresses.
func (l *learnedNames) learn(ctx context.Context, batch []datapath.Answer) {
	changed := map[string]bool{}
	for _, a := range batch {
		result := "foreign"
		if len(a.Addrs) > 0 && l.wanted(a) {
			result = l.note(a, changed)
		}
		l.answers.WithLabelValues(result).Inc()
	}
	set := map[string][]netip.Addr{}
	for name := range changed {
		set[name] = slices.SortedFunc(maps.Keys(l.known[name]), netip.Addr.Compare)
	}
	if len(set) > 0 {
		l.set(set)
		l.save()
		waiting, cancel := context.WithTimeout(ctx, heldFor)
		if err := l.applied(waiting, set); err != nil {
			l.answers.WithLabelValues("late").Add(float64(len(batch)))
			l.log.Warn("answers of DNS pass before the switch has flows for them", "answers", len(batch), "names", len(set),
				"error", err)
		}
		cancel()
	}
	l.addresses.Set(float64(l.count))
	for _, a := range batch {
		sending, cancel := context.WithTimeout(ctx, heldFor)
		if err := l.release(sending, a); err != nil {
			l.log.Debug("answer of DNS not handed on", "to", a.To, "error", err)
		}
		cancel()
	}
}

// note records the addresses of one answer. The result is "learned" if one of them is new. It adds the names whose
// addresses have changed.
func (l *learnedNames) note(a datapath.Answer, changed map[string]bool) string {
	until := time.Now().Add(min(max(a.TTL, l.floor), mostTTL))
	result := "known"
	for _, ip := range a.Addrs {
		if was, ok := l.known[a.Name][ip]; ok {
			if until.After(was) {
				l.known[a.Name][ip], l.unsaved = until, true
			}
			if k := (heldAddress{a.Name, ip}); l.held[a.Identity] < l.held[l.holders[k]] {
				l.hold(k, a.Identity) // else it would displace addresses that the other identity asks for
			}
			continue
		}
		if of := l.known[a.Name]; len(of) >= maxOfName {
			l.forget(a.Name,
				slices.MinFunc(slices.Collect(maps.Keys(of)),
					func(x, y netip.Addr) int { return cmp.Or(of[x].Compare(of[y]), x.Compare(y)) }))
		}
		if l.count >= maxLearned {
			if !l.full {
				l.full = true
				l.log.Warn("too many addresses of names in rules: those of the Pods that hold most are forgotten; write narrower "+
					"names", "addresses", l.count)
			}
			l.answers.WithLabelValues("full").Inc()
			l.evict(changed)
		}
		if l.known[a.Name] == nil {
			l.known[a.Name] = map[netip.Addr]time.Time{}
		}
		l.known[a.Name][ip], result, changed[a.Name] = until, "learned", true
		l.count++
		l.hold(heldAddress{a.Name, ip}, a.Identity)
		l.unsaved = true
	}
	return result
}

// hold records the identity to which an address counts.
func (l *learnedNames) hold(k heldAddress, identity uint32) {
	if was, ok := l.holders[k]; ok {
		l.held[was]--
	}
	l.holders[k] = identity
	l.held[identity]++
}

// forget forgets one address of a name.
func (l *learnedNames) forget(name string, ip netip.Addr) {
	k := heldAddress{name, ip}
	if l.held[l.holders[k]]--; l.held[l.holders[k]] <= 0 {
		delete(l.held, l.holders[k])
	}
	delete(l.holders, k)
	delete(l.known[name], ip)
	l.count--
	l.unsaved = true
	if len(l.known[name]) == 0 {
		delete(l.known, name)
	}
}

// evict removes addresses until there is room. They are addresses of the identity with the most addresses, the earliest
// to expire first.
func (l *learnedNames) evict(changed map[string]bool) {
	most := slices.MinFunc(slices.Collect(maps.Keys(l.held)),
		func(x, y uint32) int { return cmp.Or(cmp.Compare(l.held[y], l.held[x]), cmp.Compare(x, y)) })
	var own []heldAddress
	for k, identity := range l.holders {
		if identity == most {
			own = append(own, k)
		}
	}
	slices.SortFunc(own, func(x, y heldAddress) int {
		return cmp.Or(l.known[x.name][x.ip].Compare(l.known[y.name][y.ip]), cmp.Compare(x.name, y.name), x.ip.Compare(y.ip))
	})
	for _, k := range own[:min(evicted, len(own))] {
		l.forget(k.name, k.ip)
		changed[k.name] = true
	}
}

// expire removes expired addresses. Open connections continue.
func (l *learnedNames) expire() {
	now, set := time.Now(), map[string][]netip.Addr{}
	for name, of := range l.known {
		for ip, until := range of {
			if !until.After(now) {
				l.forget(name, ip)
				set[name] = nil
			}
		}
	}
	for name := range set {
		set[name] = slices.SortedFunc(maps.Keys(l.known[name]), netip.Addr.Compare)
	}
	if len(set) == 0 {
		return
	}
	l.unsaved, l.full = true, false
	l.addresses.Set(float64(l.count))
	l.set(set)
}

// save writes the file if it is old.
func (l *learnedNames) save() {
	if !l.unsaved {
		return
	}
	text, err := json.Marshal(l.known)
	if err == nil {
		if err = os.WriteFile(l.file+".new", text, 0o600); err == nil {
			err = os.Rename(l.file+".new", l.file)
		}
	}
	if err != nil {
		l.log.Warn("the addresses of names cannot be saved: a restart of the agent would forget them", "error", err)
	}
	l.unsaved = false // if it failed, until the next change
}

// load reads the file of the process before. It is called once, before run.
func (l *learnedNames) load() {
	text, err := os.ReadFile(l.file)
	if err == nil {
		err = json.Unmarshal(text, &l.known)
	}
	if err != nil && !os.IsNotExist(err) {
		l.log.Warn("the addresses of names that were known are lost: Pods have to ask again", "error", err)
	}
	if err != nil || l.known == nil {
		l.known = map[string]map[netip.Addr]time.Time{}
	}
	now, set := time.Now(), map[string][]netip.Addr{}
	for name, of := range l.known {
		for ip, until := range of { // a clock may have been ahead, or another program may have written the file
			if until.After(now.Add(mostTTL)) {
				of[ip] = now.Add(mostTTL)
			}
			if !until.After(now) || l.count >= maxLearned {
				delete(of, ip)
				continue
			}
			l.count++
			l.hold(heldAddress{name, ip}, 0)
		}
		if len(of) == 0 {
			delete(l.known, name)
			continue
		}
		set[name] = slices.SortedFunc(maps.Keys(of), netip.Addr.Compare)
	}
	l.addresses.Set(float64(l.count))
	l.set(set)
}

// agentNames is the agent as learnedNames need it.
type agentNames struct{ agent *Agent }

func (n agentNames) wanted(a datapath.Answer) bool { return n.agent.tables.flows.Policies.Wanted(a) }

func (n agentNames) set(set map[string][]netip.Addr) {
	n.agent.tables.engine.Together(func() {
		for name, list := range set {
			n.agent.tables.policies.Learned.Set(derive.Name(name), list)
		}
	})
}

// applied waits for the pass that has taken the names, and then for the switch.
func (n agentNames) applied(ctx context.Context, set map[string][]netip.Addr) error {
	for taken := false; !taken; {
		if !n.agent.tables.engine.Do(ctx, func() {
			taken = true
			for name, list := range set {
				has, _ := n.agent.tables.policies.Learned.Get(derive.Name(name))
				taken = taken && slices.Equal(has, list)
			}
		}) {
			return fmt.Errorf("no pass has taken them: %w", ctx.Err())
		}
		if !taken {
			if err := sleep(ctx, 100*time.Microsecond); err != nil {
				return err
			}
		}
	}
	return n.agent.flows.Synced(ctx)
}

func (n agentNames) release(ctx context.Context, a datapath.Answer) error {
	node, ok := n.agent.tables.node.Get(self)
	pod, there := n.agent.tables.objects.networks.separate.with(n.agent.progress, a.To, a.Network)
	if !ok || !there {
		return fmt.Errorf("no Pod of this Node has %s", a.To)
	}
	return n.agent.flows.PacketOut(ctx, a.Release(node, pod))
}
