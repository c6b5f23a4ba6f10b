package leader

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// labelled is the result for the LabelIdentity exports with one hash.
type labelled struct {
	Label  string            // the imported label set; empty if there is no import
	Failed map[string]string // why an export is not, by its name
}

// label returns the label set that owns a hash. Hashes are short, so an attacker could make a second set with the same
// hash. The imported set keeps the hash. If no set is imported, the oldest one gets it.
func (t *tables) label(key derive.Object, r *derive.Reader) (l labelled, _ []problem.Problem) {
	fail := func(e *export, format string, args ...any) {
		if l.Failed == nil {
			l.Failed = map[string]string{}
		}
		l.Failed[e.Key.Name] = fmt.Sprintf(format, args...)
	}
	var candidates []*export
	for _, e := range t.counting(r, derive.List(r, t.index.labelsOf, key)) {
		wrong := exportcheck.Label("spec.labelIdentity.normalizedLabel", e.Label)
		switch name := e.ClusterID + "-" + key.Name; {
		case e.Missing:
			fail(e, "spec.labelIdentity is missing")
		case wrong != nil:
			fail(e, "%v", wrong)
		case e.Key.Name != name:
			fail(e, "metadata.name: the export of this label by cluster %s must be named %s", e.ClusterID, name)
		default:
			candidates = append(candidates, e)
		}
	}
	if len(candidates) == 0 {
		return l, nil
	}
	l.Label = candidates[0].Label
	if len(candidates) > 1 {
		current, _ := derive.Get(r, t.facts.imports, key)
		for _, e := range candidates {
			if numberOf(key, current) != 0 && e.Label == current.Spec.LabelIdentity.Label {
				l.Label = e.Label
				break
			}
		}
	}
	for _, e := range candidates {
		if e.Label != l.Label {
			fail(e, "spec.labelIdentity.normalizedLabel: another label set with the hash %s is imported already; change a label",
				key.Name)
		}
	}
	return l, nil
}

// number is the number of a label set. Without a row it is not decided.
type number struct {
	ID   uint32
	None bool // all are taken
}

// labelImport is the ResourceImport of a label set; nil for one without a number.
func labelImport(key derive.Object, l labelled, n number) *mcv1alpha1.ResourceImport {
	if l.Label == "" || n.ID == 0 {
		return nil
	}
	return &mcv1alpha1.ResourceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: mcv1alpha1.ResourceImportSpec{
			Kind: multicluster.LabelIdentityKind, LabelIdentity: &mcv1alpha1.LabelIdentitySpec{Label: l.Label, ID: n.ID},
		},
	}
}

// labelVerdict returns the faults of an export of a label set.
func (t *tables) labelVerdict(e *export, r *derive.Reader) (v verdict) {
	key := derive.Object{Namespace: e.Key.Namespace, Name: importName(e)}
	l, _ := derive.Get(r, t.labels, key)
	v.Failed = l.Failed
	v.Refused, _ = derive.Get(r, t.facts.refused, key)
	if n, _ := derive.Get(r, t.facts.numbers, key); n.None {
		v.Refused = fmt.Sprintf(
			"all %d numbers of label identities are in use, or were within the last %s: use fewer different sets of labels in "+
				"the ClusterSet",
			multicluster.LastLabelID, restNumbers)
	}
	return v
}

// numberOf returns the number that an import assigns to the label set of its name; 0 for no number.
func numberOf(key derive.Object, ri *mcv1alpha1.ResourceImport) uint32 {
	if ri == nil || ri.Spec.Kind != multicluster.LabelIdentityKind || ri.Spec.LabelIdentity == nil ||
		multicluster.LabelHash(ri.Spec.LabelIdentity.Label) != key.Name {
		return 0
	}
	return ri.Spec.LabelIdentity.ID
}

// restNumbers is how long a released number is not assigned to another label identity. Until then packets and slow
// members may still use it for the earlier one. If that one returns in time, it gets its number again.
const restNumbers = 10 * time.Minute

// numbering assigns numbers to label sets. It takes the lowest released number that has rested, else the next unused
// one. The numbers depend on the past, so numbering is not a table. The past is in the ResourceImports. Their numbers
// are reserved before new sets get one, so a restart changes no number. Numbers that were released before a restart are
// not recorded. So for restNumbers after the start, new numbers are above all existing ones.
type numbering struct {
	t    *tables
	last uint32

	mu      sync.Mutex
	begun   time.Time                   // when the tables were seen first
	scanned bool                        // next has passed all numbers that were unused at the start
	wanted  map[derive.Object]bool      // label sets that members export
	there   map[derive.Object]bool      // label sets that are imported
	of      map[derive.Object]uint32    // held or resting
	holder  map[uint32]derive.Object    // the other way round
	resting map[derive.Object]time.Time // released, and until when
	without map[derive.Object]bool      // wanted, and there is no number left
	free    numberHeap                  // released ones that have rested
	next    uint32                      // the first one that was never looked at
}

func newNumbering(t *tables) *numbering {
	return &numbering{t: t, last: multicluster.LastLabelID, next: multicluster.FirstLabelID,
		wanted: map[derive.Object]bool{}, there: map[derive.Object]bool{}, of: map[derive.Object]uint32{},
		holder: map[uint32]derive.Object{}, resting: map[derive.Object]time.Time{}, without: map[derive.Object]bool{}}
}

// watch numbers label sets when they appear and disappear. In one pass it sees imports before exports, because their
// table comes before the table of labels.
func (n *numbering) watch(now func() time.Time) {
	n.t.facts.imports.Watch(func(changes []derive.Change[derive.Object, *mcv1alpha1.ResourceImport]) {
		n.imported(changes,
			now())
	})
	n.t.labels.Watch(func(changes []derive.Change[derive.Object, labelled]) { n.exported(changes, now()) })
}

func (n *numbering) imported(changes []derive.Change[derive.Object, *mcv1alpha1.ResourceImport], now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	first := n.begun.IsZero()
	n.begin(now)
	var come []derive.Change[derive.Object, *mcv1alpha1.ResourceImport]
	for _, c := range changes {
		if numberOf(c.Key, c.New) != 0 {
			n.there[c.Key] = true
			come = append(come, c)
		} else {
			delete(n.there, c.Key)
		}
		n.settle(c.Key, now)
	}
	// Of two imports with one number the older one keeps it.
	slices.SortFunc(come, func(a, b derive.Change[derive.Object, *mcv1alpha1.ResourceImport]) int {
		return cmp.Or(a.New.CreationTimestamp.Compare(b.New.CreationTimestamp.Time), a.Key.Compare(b.Key))
	})
	for _, c := range come {
		n.adopt(c.Key, numberOf(c.Key, c.New))
		n.settle(c.Key, now)
	}
	if first {
		for id := range n.holder {
			n.next = max(n.next, id+1)
		}
	}
}

func (n *numbering) begin(now time.Time) {
	if n.begun.IsZero() {
		n.begun = now
	}
}

// adopt takes a number over that an import has.
func (n *numbering) adopt(key derive.Object, id uint32) {
	if n.of[key] != 0 || id < multicluster.FirstLabelID || id > n.last {
		return
	}
	if other, held := n.holder[id]; held {
		if _, rests := n.resting[other]; !rests {
			return
		}
		n.release(other)
	}
	n.give(key, id)
}

func (n *numbering) exported(changes []derive.Change[derive.Object, labelled], now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begin(now)
	for _, c := range changes {
		if c.New.Label != "" {
			n.wanted[c.Key] = true
			n.number(c.Key)
		} else {
			delete(n.wanted, c.Key)
			if n.without[c.Key] {
				delete(n.without, c.Key)
				n.t.facts.numbers.Delete(c.Key)
			}
		}
		n.settle(c.Key, now)
	}
}

// settle lets the number of a label set rest when no cluster has the set any more.
func (n *numbering) settle(key derive.Object, now time.Time) {
	_, rests := n.resting[key]
	switch used := n.wanted[key] || n.there[key]; {
	case n.of[key] == 0:
	case used:
		delete(n.resting, key)
	case !rests:
		n.resting[key] = now.Add(restNumbers)
	}
}

// number gives a label set without a number one.
func (n *numbering) number(key derive.Object) {
	if n.of[key] != 0 {
		return
	}
	if id := n.choose(); id != 0 {
		n.give(key, id)
		return
	}
	n.without[key] = true
	n.t.facts.numbers.Set(key, number{None: true})
}

func (n *numbering) give(key derive.Object, id uint32) {
	delete(n.without, key)
	n.of[key], n.holder[id] = id, key
	n.t.facts.numbers.Set(key, number{ID: id})
}

// release makes a number free.
func (n *numbering) release(key derive.Object) {
	id := n.of[key]
	delete(n.of, key)
	delete(n.holder, id)
	delete(n.resting, key)
	heap.Push(&n.free, id)
	n.t.facts.numbers.Delete(key)
}

// choose returns the lowest number that may be assigned; 0 if there is no number.
func (n *numbering) choose() uint32 {
	for {
		for taken := true; taken && n.next <= n.last; {
			if _, taken = n.holder[n.next]; taken {
				n.next++
			}
		}
		for len(n.free) > 0 {
			if _, taken := n.holder[n.free[0]]; !taken {
				break
			}
			heap.Pop(&n.free)
		}
		switch {
		case len(n.free) > 0 && (n.free[0] < n.next || n.next > n.last):
			return heap.Pop(&n.free).(uint32)
		case n.next <= n.last:
			n.next++
			return n.next - 1
		case n.scanned:
			return 0
		}
		n.scan() // a recently released number is better than no number
	}
}

// scan has choose look at the numbers again that were not in use at the start.
func (n *numbering) scan() { n.scanned, n.next = true, multicluster.FirstLabelID }

// tick frees numbers that have rested.
func (n *numbering) tick(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.scanned && !n.begun.IsZero() && now.After(n.begun.Add(restNumbers)) {
		n.scan()
	}
	for key, until := range n.resting {
		if now.After(until) {
			n.release(key)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(n.without), derive.Object.Compare) {
		if id := n.choose(); id != 0 {
			n.give(key, id)
		} else {
			break
		}
	}
}

// numberHeap has the lowest number first.
type numberHeap []uint32

func (h numberHeap) Len() int           { return len(h) }
func (h numberHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h numberHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *numberHeap) Push(x any) { *h = append(*h, x.(uint32)) }

// Pop is for container/heap.
func (h *numberHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
