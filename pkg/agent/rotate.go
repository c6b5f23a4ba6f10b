package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// A cluster changes its WireGuard key in three steps, each of which begins once it causes no loss of packets. A Node of
// a cluster that encrypts traffic between Nodes does the same. The other clusters, or Nodes, are its partners:
//
// 1. It announces the next key. It and its partners make a second device, with sessions of the next key, and send
// through it as soon as there are sessions. They accept packets from both devices.
//
// 2. It gives the first device the next key, and announces that as its key. Partners follow, and send through the first
// device again as soon as there are sessions.
//
// 3. It no longer announces a next key. Its partners remove their second device at once. It removes its own some time
// later, since a partner whose agent has just stopped may still send through it.
//
// Partners that announce no next port support only one key. They lose packets between step 2 and the moment at which
// they have the new key.
//
// A second device has one key, so no end begins while another changes its key. Ends that began at the same time wait
// only for sessions, which every partner makes at any step. They never wait for an end that has not begun. So they
// cannot block each other for ever.

// sessions are the sessions with partners that WireGuard reports. An empty row means no session.
type sessions struct {
	// Changing is set while this end has a next key. Switched is set once the first device has the next key.
	Changing, Switched bool
	// Remains is set for some time after a change of this end's key. Then the second device still accepts packets.
	Remains bool
	// First and Second list, in order, the keys of partners with sessions through the first and through the second device.
	First, Second []publickey.Key
}

// changes reports whether the partner changes its key.
func (p partner) changes() bool { return p.Way.Next != publickey.Key{} }

// secondKey returns the key with which a partner has a session through the second device. It returns false if the
// partner needs no such session.
func (s sessions) secondKey(p partner) (publickey.Key, bool) {
	switch {
	case p.Way.NextPort == 0 || !p.changes() && !s.Changing && !s.Remains:
		return publickey.Key{}, false
	case p.changes():
		return p.Way.Next, true
	}
	return p.Way.Key, true
}

// detours reports whether packets to a partner go through the second device.
func (s sessions) detours(p partner) bool {
	key, ok := s.secondKey(p)
	// If this end's second device only remains and the partner's agent runs, the partner sends through the first device
	// already.
	if !ok || !slices.Contains(s.Second, key) || s.Remains && !p.changes() {
		return false
	}
	over := (!p.changes() || p.Way.Next == p.Way.Key) && (!s.Changing || s.Switched)
	return !over || !slices.Contains(s.First, p.Way.Key)
}

// rotationTimes are how long a rotation waits.
type rotationTimes struct {
	look        time.Duration // interval of the looks at the devices, at multiples of it by the clock
	settle      time.Duration // until a session is used; the network behind the other end's device is up then
	follow      time.Duration // until partners use it too
	sessionless time.Duration // until partners without any session are not waited for
	report      time.Duration // until it is a problem
	turn        time.Duration // until it is one that another changes its key
	remain      time.Duration // after a change until the second device goes
	lost        time.Duration // without a handshake, until there is no session (RejectAfterTime of WireGuard, 180 s)
}

var usualTimes = rotationTimes{look: time.Second, settle: 5 * time.Second, follow: 10 * time.Second,
	sessionless: 30 * time.Second, report: time.Minute, turn: 5 * time.Minute, remain: 2 * time.Minute,
	lost: 200 * time.Second}

// rotation changes a key of this Node on request, and writes the state of sessions to the tables.
type rotation struct {
	first, second *encryption
	annotation    string // that asks for it
	tables        *tables
	node          string
	log           *slog.Logger
	times         rotationTimes
	look          func(device string) wireguard.Session
	ready         func() bool // partners and devices are known and set
	announce      func()      // has published read

	// Of the goroutine that runs.
	began   time.Time // begin of the step, as seen by this process
	held    time.Time // since when it may not begin; zero if it may
	remains time.Time // until when the second device stays after a change
	devices [2]knownSessions
	met     map[string]meeting // partners, by name

	mu      sync.Mutex
	keys    *wireguard.Keys
	problem problem.Problem // with a Reason when there is one
}

// meeting is a partner with the next key that it announces, and since when it does.
type meeting struct {
	next  publickey.Key
	since time.Time
}

// knownSessions are the sessions of one device.
type knownSessions struct {
	looked bool
	last   time.Time                   // when it was looked at
	key    publickey.Key               // the device's
	since  time.Time                   // handshakes before are of another key
	peers  map[publickey.Key]time.Time // since when there are sessions
}

func newRotation(first *encryption, t *tables, node string, log *slog.Logger) *rotation {
	r := &rotation{
		first: first, second: first.second, annotation: multicluster.AnnotationKeyNotBefore, tables: t, node: node,
		log:   log.With("device", first.link.name),
		times: usualTimes, look: wireguard.Look, keys: first.keys, began: time.Now(), met: map[string]meeting{},
	}
	if first.link == betweenNodes {
		r.annotation = nodeKeyNotBefore
	}
	return r
}

// published returns the key and the next key that others should have.
func (r *rotation) published() (mcv1alpha1.WireGuardInfo, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info := mcv1alpha1.WireGuardInfo{PublicKey: r.keys.Current.Public().String(), NextPort: int32(r.second.port)}
	if r.keys.Changing() {
		info.NextPublicKey = r.keys.Next.Public().String()
	}
	return info, true
}

func (r *rotation) problems() []problem.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem == (problem.Problem{}) {
		return nil
	}
	return []problem.Problem{r.problem}
}

// run observes and takes steps at fixed times of the clock. Several ends may be allowed to begin a change. If their
// clocks agree, they begin at the same time and not one after the other.
func (r *rotation) run(ctx context.Context) {
	for {
		r.observe()
		if r.ready() {
			r.step()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(time.Now().Truncate(r.times.look).Add(r.times.look))):
		}
	}
}

// observe reads the devices, and writes their sessions to the tables. The first call counts sessions at once, since
// packets may use them already.
func (r *rotation) observe() {
	now := time.Now()
	anyone := r.meet(now)
	remains := now.Before(r.remains)
	if !r.keys.Changing() && !anyone && r.ready() { // nothing is read, and the row changes with rotations alone
		r.devices = [2]knownSessions{{looked: true}, {looked: true}}
		r.tables.inside.sessions.Set(derive.Name(r.first.link.name), sessions{Remains: remains})
		return
	}
	switched := r.keys.Changing() && r.keys.Switched()
	s := sessions{Changing: r.keys.Changing(), Switched: switched, Remains: remains}
	for i, e := range []*encryption{r.first, r.second} {
		d := &r.devices[i]
		d.observe(r.look(e.deviceName), now, r.times, i == 0 && switched)
		var keys []publickey.Key
		for key, since := range d.peers {
			if now.Sub(since) >= r.times.settle {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, func(a, b publickey.Key) int { return bytes.Compare(a[:], b[:]) })
		if i == 0 {
			s.First = keys
		} else {
			s.Second = keys
		}
	}
	r.tables.inside.sessions.Set(derive.Name(r.first.link.name), s)
}

// meet records the partners, and returns whether any of them changes its key.
func (r *rotation) meet(now time.Time) (anyone bool) {
	met := map[string]meeting{}
	for _, p := range r.partners() {
		m, known := r.met[p.Name]
		if !known || m.next != p.Way.Next {
			m = meeting{p.Way.Next, now}
		}
		met[p.Name] = m
		anyone = anyone || p.changes()
	}
	r.met = met
	return anyone
}

// observe takes over the state of a device. If rekeyed is set, handshakes before the start of this process do not
// count, since they may have used another key. A device that does not answer has no sessions at the moment. If it has
// the same key later, its earlier handshakes count. The next ones may come two minutes later.
func (d *knownSessions) observe(have wireguard.Session, now time.Time, times rotationTimes, rekeyed bool) {
	begun := now
	if !d.looked {
		begun = now.Add(-times.settle)
	}
	silent := have.PublicKey == publickey.Key{} && len(have.Peers) == 0
	switch {
	case !d.looked && rekeyed:
		d.since = now
	case d.looked && d.key != have.PublicKey && !silent:
		d.since, d.peers = d.last, nil
	}
	d.looked, d.last = true, now
	if !silent {
		d.key = have.PublicKey
	}
	before := d.peers
	d.peers = map[publickey.Key]time.Time{}
	for _, p := range have.Peers {
		if !p.LastHandshake.After(d.since) || now.Sub(p.LastHandshake) > times.lost {
			continue
		}
		since, known := before[p.PublicKey]
		if !known {
			since = begun
		}
		d.peers[p.PublicKey] = since
	}
}

// known returns for how long a partner has been announcing its present next key.
func (r *rotation) known(p partner, now time.Time) time.Duration {
	if m, ok := r.met[p.Name]; ok && m.next == p.Way.Next {
		return now.Sub(m.since)
	}
	return 0
}

func (r *rotation) partners() []partner {
	row, _ := r.tables.inside.partners.Get(self)
	return row.of(r.first.link).Partners
}

// changing returns the partners that are changing their keys. It omits partners that have had no session for long. They
// have no packets to lose, and may have disappeared in the middle of a change.
func (r *rotation) changing(now time.Time) (out []string) {
	for _, p := range r.partners() {
		_, byFirst := r.devices[0].peers[p.Way.Key]
		_, bySecond := r.devices[1].peers[p.Way.Next]
		if p.changes() && (byFirst || bySecond || r.known(p, now) <= r.times.sessionless) {
			out = append(out, p.Name)
		}
	}
	return out
}

// step does the steps that are possible now.
func (r *rotation) step() {
	now := time.Now()
	var err error
	var waits []string
	switch {
	case !r.keys.Changing():
		asked, bad := r.asked()
		if bad != nil {
			r.report(reasonInvalidTime, bad.Error())
			return
		}
		if !asked.After(r.keys.Made) || now.Before(asked) {
			r.report(nil, "")
			return
		}
		if others := r.changing(now); len(others) > 0 {
			if r.held.IsZero() {
				r.held = now
			}
			if now.Sub(r.held) > r.times.turn {
				r.report(reasonWireGuardKeyRotation, fmt.Sprintf("the change of the WireGuard key waits for the change of %s: "+
					"see `tombolo get status` there", some(others)))
			}
			return
		}
		r.held = time.Time{}
		if r.stays() { // until the next look
			r.remains = time.Time{}
			return
		}
		if err = r.change(func() error { return r.keys.Begin(now) }); err == nil {
			r.log.Info("changing the WireGuard key: announcing the next one")
			r.second.rekey(r.keys.Next)
		}
	case !r.keys.Switched():
		if waits = r.waitFor(now, 1); len(waits) > 0 {
			break
		}
		if err = r.change(r.keys.Switch); err == nil {
			r.log.Info("changing the WireGuard key: the next one is in use")
			r.switchFirst()
		}
	default:
		if waits = r.waitFor(now, 0); len(waits) > 0 {
			break
		}
		if err = r.change(r.keys.End); err == nil {
			r.log.Info("the WireGuard key has changed")
			r.remains = now.Add(r.times.remain)
		}
	}
	switch {
	case err != nil:
		r.report(reasonWireGuardKeyRotation, err.Error())
	case len(waits) == 0:
		r.report(nil, "")
		r.began = now
		r.observe()
		r.announce()
	case now.Sub(r.began) > r.times.report:
		remedy := "the Gateways of the clusters, and see that the leader is there and that the manifests there, here and " +
			"in these clusters are of this release"
		if r.first.link == betweenNodes {
			remedy = "the Nodes, and see that the agents there, and tombolo-wireguard.yml where it is in use, are of this " +
				"release"
		}
		r.report(reasonWireGuardKeyRotation, fmt.Sprintf(
			"the change of the WireGuard key waits for sessions with %s: let UDP "+
				"port %d pass between %s", some(waits), r.second.port, remedy))
	}
}

// stays reports whether the second device still has the sessions of the last change. Their handshakes used another key
// than the next one, so the device has to be made again.
func (r *rotation) stays() bool {
	have := r.look(r.second.deviceName)
	return slices.ContainsFunc(r.partners(), func(p partner) bool {
		isPartner := func(s wireguard.PeerState) bool { return s.PublicKey == p.Way.Key }
		return !p.changes() && slices.ContainsFunc(have.Peers, isPartner)
	})
}

// some are the first of many.
func some(names []string) string {
	if more := len(names) - 5; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), more)
	}
	return strings.Join(names, ", ")
}

// switchFirst gives the first device the next key, and makes sure that handshakes with the old key do not count.
func (r *rotation) switchFirst() {
	r.first.rekey(r.keys.Next)
	for range 100 {
		have := r.look(r.first.deviceName)
		if have.PublicKey == r.keys.Next.Public() || have.PublicKey == (publickey.Key{}) {
			r.devices[0] = knownSessions{looked: true, last: time.Now(), key: have.PublicKey, since: time.Now()}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// change makes a step in the files.
func (r *rotation) change(step func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return step()
}

// asked returns the time before which no key may have been made; zero without a request.
func (r *rotation) asked() (time.Time, error) {
	n, _ := r.tables.nodes.Get(derive.Object{Name: r.node})
	text := n.KeyNotBefore
	if r.first.link == betweenNodes {
		text = n.NodeKeyNotBefore
	}
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("the WireGuard key stays: %.60q is not a time: write one like %s", text,
			"2026-01-31T12:00:00Z")
	}
	return at, nil
}

// waitFor returns the partners that do not send through a device yet although they can. A partner without any session
// does not count, since it has no packets to lose.
func (r *rotation) waitFor(now time.Time, device int) (out []string) {
	s := sessions{Changing: true}
	for _, p := range r.partners() {
		key, ok := s.secondKey(p)
		if !ok {
			continue
		}
		first, byFirst := r.devices[0].peers[p.Way.Key]
		second, bySecond := r.devices[1].peers[key]
		since, there := second, bySecond
		if device == 0 {
			since, there = first, byFirst
		}
		switch {
		case there && now.Sub(since) >= r.times.settle+r.times.follow:
		case !byFirst && !bySecond && min(now.Sub(r.began), r.known(p, now)) > r.times.sessionless:
		default:
			out = append(out, p.Name)
		}
	}
	return out
}

func (r *rotation) report(reason reasons.Reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if message != "" && r.problem.Message != message {
		r.log.Warn(message, "reason", reason)
	}
	r.problem = problem.Problem{}
	if message != "" {
		r.problem = problem.Problem{Object: problem.Object{Kind: "Node", Name: r.node}, Field: "metadata.annotations[" +
			r.annotation + "]", Reason: reason, Message: message}
	}
}
