package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
)

// namesNode is a Node whose switch takes a while to confirm flows.
type namesNode struct {
	mu       sync.Mutex
	takes    time.Duration
	known    map[string][]netip.Addr
	flows    map[string][]netip.Addr // of these names
	released []string                // names of released answers, with the addresses that had flows
}

func (n *namesNode) wanted(a datapath.Answer) bool { return strings.HasSuffix(a.Name, ".example.com") }

func (n *namesNode) set(set map[string][]netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, list := range set {
		n.known[name] = list
		if len(list) == 0 {
			delete(n.known, name)
		}
	}
}

func (n *namesNode) applied(ctx context.Context, set map[string][]netip.Addr) error {
	n.mu.Lock()
	takes := n.takes
	n.mu.Unlock()
	if err := sleep(ctx, takes); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, list := range set {
		n.flows[name] = list
	}
	return nil
}

func (n *namesNode) release(_ context.Context, a datapath.Answer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.released = append(n.released, fmt.Sprint(a.Name, " ", n.flows[a.Name]))
	return nil
}

// took returns the answers that were released since it was asked last.
func (n *namesNode) took() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.released
	n.released = nil
	return out
}

// addresses returns the addresses that are set at present.
func (n *namesNode) addresses() map[string][]netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.known)
}

func newNamesNode() *namesNode {
	return &namesNode{takes: 100 * time.Millisecond, known: map[string][]netip.Addr{}, flows: map[string][]netip.Addr{}}
}

func answerFor(name string, ttl time.Duration, addrs ...string) datapath.Answer {
	a := datapath.Answer{Name: name, TTL: ttl}
	for _, text := range addrs {
		a.Addrs = append(a.Addrs, netip.MustParseAddr(text))
	}
	return a
}

// enqueue makes an answer wait, as take does, once there is room.
func enqueue(l *learnedNames, a datapath.Answer) {
	for l.queue.push(a.Identity, a) != nil {
		time.Sleep(time.Millisecond)
	}
}

// names runs a test in a bubble with its own clock. start ends the previous process and starts one on the same file.
func names(t *testing.T, node *namesNode, f func(start func() *learnedNames)) {
	file := filepath.Join(t.TempDir(), "names.json")
	synctest.Test(t, func(t *testing.T) {
		end := func() {}
		f(func() *learnedNames {
			end()
			node.mu.Lock()
			node.known = map[string][]netip.Addr{}
			node.mu.Unlock()
			l := newLearnedNames(node, file, 0, slog.New(slog.DiscardHandler))
			l.load()
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- l.run(ctx) }()
			end = func() {
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			return l
		})
		end()
	})
}

// TestLearnedNames delays an answer until its flows are applied. Its addresses stay for their time, and over a restart.
func TestLearnedNames(t *testing.T) {
	node := newNamesNode()
	names(t, node, func(start func() *learnedNames) {
		have := func(what, want string) {
			t.Helper()
			if text := fmt.Sprint(node.addresses()); text != want {
				t.Errorf("%s: known is %s, want %s", what, text, want)
			}
		}
		pause := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		l := start()
		enqueue(l, answerFor("a.example.com", time.Minute, "192.0.2.1"))
		enqueue(l, answerFor("a.other.org", time.Minute, "192.0.2.7"))
		enqueue(l, answerFor("", 0))
		pause(50 * time.Millisecond)
		if released := node.took(); len(released) != 0 {
			t.Errorf("answers pass before their flows are there: %v", released)
		}
		pause(time.Second)
		if released, want := node.took(),
			[]string{"a.example.com [192.0.2.1]", "a.other.org []", " []"}; !slices.Equal(released, want) {
			t.Errorf("released %q, want %q", released, want)
		}
		have("an answer", "map[a.example.com:[192.0.2.1]]")

		enqueue(l, answerFor("a.example.com", time.Minute, "192.0.2.1"))
		synctest.Wait()
		if len(node.took()) != 1 {
			t.Error("an answer that says nothing new waits")
		}
		enqueue(l, answerFor("a.example.com", 20*time.Second, "192.0.2.2"))
		enqueue(l, answerFor("b.example.com", 0, "2001:db8::1"))
		pause(time.Second)
		have("more answers", "map[a.example.com:[192.0.2.1 192.0.2.2] b.example.com:[2001:db8::1]]")
		pause(leastTTL)
		have("a TTL of 0", "map[a.example.com:[192.0.2.1 192.0.2.2]]")

		start()
		synctest.Wait()
		have("a restart", "map[a.example.com:[192.0.2.1 192.0.2.2]]")
		pause(20 * time.Second)
		have("after 20 seconds", "map[a.example.com:[192.0.2.1]]")
		start()
		pause(time.Minute)
		have("after a minute", "map[]")

		node.mu.Lock()
		node.takes = time.Hour
		node.mu.Unlock()
		l = start()
		node.took()
		enqueue(l, answerFor("c.example.com", time.Minute, "192.0.2.3"))
		pause(heldFor + time.Millisecond)
		if len(node.took()) != 1 {
			t.Error("an answer is held for ever")
		}
	})
}

// TestLearnedNamesAreBounded removes the addresses of a name that expire first. Beyond all bounds it learns nothing.
func TestLearnedNamesAreBounded(t *testing.T) {
	node := newNamesNode()
	names(t, node, func(start func() *learnedNames) {
		l := start()
		address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}) }
		for i := range maxOfName + 10 {
			a := answerFor("a.example.com", time.Hour+time.Duration(i)*time.Second)
			a.Addrs = []netip.Addr{address(i)}
			enqueue(l, a)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if list := node.addresses()["a.example.com"]; len(list) != maxOfName || slices.Contains(list, address(9)) ||
			!slices.Contains(list, address(10)) {
			t.Errorf("%d addresses, the first %s", len(list), list[0])
		}
		for i := range maxLearned {
			a := answerFor(fmt.Sprint(i, ".example.com"), time.Hour)
			a.Addrs = []netip.Addr{address(1<<16 + i)}
			enqueue(l, a)
			synctest.Wait()
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		sum := 0
		for _, list := range node.addresses() {
			sum += len(list)
		}
		if sum > maxLearned || sum < maxLearned-evicted || l.count != sum || len(l.holders) != sum {
			t.Errorf("%d addresses, %d counted, %d held, want %d", sum, l.count, len(l.holders), maxLearned)
		}
		// Addresses that another identity asks for are learned. They stay when the first identity continues.
		quiet := answerFor("quiet.example.com", time.Minute)
		quiet.Identity, quiet.Addrs = 7, []netip.Addr{address(1 << 18)}
		enqueue(l, quiet)
		for i := range maxLearned {
			a := answerFor(fmt.Sprint("again-", i, ".example.com"), 20*time.Hour)
			a.Addrs = []netip.Addr{address(1<<17 + i)}
			enqueue(l, a)
			if i%500 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if len(node.addresses()["quiet.example.com"]) != 1 {
			t.Error("one identity fills the Node's share of another")
		}
	})
}

// TestLearnedNamesDamaged reads a damaged file. Only the content of the file is lost.
func TestLearnedNamesDamaged(t *testing.T) {
	node := newNamesNode()
	l := newLearnedNames(node, t.TempDir(), 0, slog.New(slog.DiscardHandler)) // a directory
	l.load()
	l.unsaved = true
	l.save()
	if len(node.addresses()) != 0 || l.unsaved {
		t.Error(errors.New("it goes on as if there were a file"))
	}
}
