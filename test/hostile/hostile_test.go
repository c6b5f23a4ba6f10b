// Package hostile plays members that keep to no rule against a real leader and honest members.
package hostile

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var (
	seed  = flag.Uint64("hostile.seed", 1, "seed of the hostile members' steps")
	steps = flag.Int("hostile.steps", 300, "how many steps the hostile members take")
)

const (
	// batch is how many steps are taken between two looks at the clusters.
	batch = 15
	// settle is how long the clusters may need after a batch until they are as they should be.
	settle = 30 * time.Second
	// growth is how much the leader and all members, which are this process, may grow. A run of 300 steps
	// needs 3 MiB.
	growth = 64 << 20
)

// TestHostileMember lets hostile members write, update and delete anything. The honest members' objects stay as they
// are, their changes arrive, and when the hostile members are expelled no object of theirs is left.
func TestHostileMember(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	if err := w.beat(0); err != nil {
		t.Fatal(err)
	}
	r := &rules{aims: map[aim]bool{}}
	var since time.Time
	w.eventually("the honest members are settled", time.Minute, func(ctx context.Context) error {
		now, err := w.state(ctx)
		if err != nil {
			return err
		}
		if r.before == nil || len(r.violations(now)) > 0 {
			r.before, since = now, time.Now()
		}
		if time.Since(since) < 3*time.Second {
			return errors.New("their objects still change")
		}
		return w.settled(now)
	})

	g := newGenerator(*seed, w.hostile)
	var taken []string
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\nrepeat with -hostile.seed %d -hostile.steps %d; the steps were:\n%s", fmt.Sprintf(format, args...),
			*seed, *steps, strings.Join(taken, "\n"))
	}
	admitted := 0
	base := heap()
	for beat := 1; len(taken) < *steps; beat++ {
		// A third of the steps are taken while no gateway is reserved, and while one honest member announces nothing.
		w.pin(r, beat%3 != 1)
		if beat%3 == 1 {
			w.withdraw()
		}
		for range min(batch, *steps-len(taken)) {
			s := g.next()
			if s.aim != nil {
				r.aims[*s.aim] = true
			}
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			err := s.do(limited)
			unanswered := limited.Err() != nil
			cancel()
			if err == nil {
				admitted++
			}
			taken = append(taken, fmt.Sprintf("%4d %s: %s", len(taken)+1, s.text, outcome(err)))
			if unanswered {
				fail("step %d: the API server does not answer: %v", len(taken), err)
			}
		}
		if err := w.beat(beat); err != nil {
			fail("%v", err)
		}
		if err := w.check(ctx, r, beat%3 == 0); err != nil {
			fail("%v", err)
		}
		if now := heap(); now > base+growth {
			fail("the heap has grown from %d to %d MiB", base>>20, now>>20)
		}
	}
	for i, text := range taken[:min(len(taken), 4*len(w.hostile))] {
		if !strings.HasSuffix(text, ": done") {
			fail("step %d of a well-behaved member was refused", i+1)
		}
	}
	if admitted < len(taken)/10 || admitted > len(taken)*9/10 {
		fail("%d of %d steps were admitted: the steps show nothing", admitted, len(taken))
	}
	t.Logf("%d of %d steps were admitted; an honest change took at most %s; the heap went from %d to %d MiB",
		admitted, len(taken), w.slowest.Round(time.Millisecond), base>>20, heap()>>20)
	if testing.Verbose() {
		t.Log("the steps:\n" + strings.Join(taken, "\n"))
	}

	w.pin(r, true)
	w.expel()
	err := eventually(ctx, time.Minute, func(ctx context.Context) error {
		now, err := w.state(ctx)
		if err != nil {
			return err
		}
		if left := r.left(now); len(left) > 0 {
			return fmt.Errorf("%s", strings.Join(left, "\n"))
		}
		return nil
	})
	if err != nil {
		fail("after the hostile members were expelled: %v", err)
	}
}

// settled returns an error for anything that the honest members still wait for before the first step.
func (w *world) settled(s *state) error {
	for _, h := range w.honest {
		if len(s.peers[h.id+" node-1"]) != 3 {
			return fmt.Errorf("%s has peers %v", h.id, s.peers[h.id+" node-1"])
		}
		for _, name := range []string{"web", "quiet-" + h.id, "only-" + h.id} {
			for _, kind := range []string{"service", "endpoints"} {
				for _, key := range []string{"resourceexports " + area + "/" + h.id + "-default-" + name + "-" + kind,
					"resourceimports " + area + "/default-" + name + "-" + kind} {
					if s.objects["leader "+key] == nil {
						return fmt.Errorf("%s is not in the leader", key)
					}
				}
			}
		}
		conditions, _, _ := unstructured.NestedSlice(s.objects[h.id+" clustersets kube-system/"+clusterSet], "status",
			"conditions")
		if len(conditions) != 1 || conditions[0].(map[string]any)["status"] != "True" {
			return fmt.Errorf("%s has joined with conditions %v", h.id, conditions)
		}
		for key, o := range s.objects {
			if strings.HasPrefix(key, h.id+" serviceexports ") && o["status"] == nil {
				return fmt.Errorf("%s has no condition", key)
			}
		}
		others := []string{"web", "quiet-" + w.other(h).id, "only-" + w.other(h).id}
		for _, p := range w.plain {
			others = append(others, p.exports...)
		}
		for _, other := range others {
			for _, kind := range []string{"services default/antrea-mc-", "endpoints default/antrea-mc-",
				"serviceimports default/"} {
				if key := h.id + " " + kind + other; s.objects[key] == nil {
					return fmt.Errorf("%s is not there", key)
				}
			}
		}
	}
	return nil
}

func (w *world) other(h *honest) *honest {
	if w.honest[0] == h {
		return w.honest[1]
	}
	return w.honest[0]
}

// check waits until the clusters satisfy the rules. moved is set if the honest members' Gateways have moved.
func (w *world) check(ctx context.Context, r *rules, moved bool) error {
	return eventually(ctx, settle, func(ctx context.Context) error {
		now, err := w.state(ctx)
		if err != nil {
			return err
		}
		if moved {
			r.follow(now)
		}
		if violations := r.violations(now); len(violations) > 0 {
			return fmt.Errorf("%d violations:\n%s", len(violations), strings.Join(violations, "\n"))
		}
		return nil
	})
}

// expel is what an administrator does to hostile members: their access and their announcements go.
func (w *world) expel() {
	w.t.Helper()
	ctx := w.t.Context()
	for _, a := range w.hostile {
		for _, gvr := range []string{"rolebindings", "serviceaccounts"} {
			group := map[string]string{"rolebindings": "rbac.authorization.k8s.io"}[gvr]
			if err := w.leader.dynamic.Resource(resource(group, "v1", gvr)).Namespace(area).Delete(ctx, a.name,
				metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	list, err := w.leader.dynamic.Resource(announces).Namespace(area).List(ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, o := range list.Items {
		if id, _ := o.Object["clusterID"].(string); honestID(id) {
			continue
		}
		err := w.leader.dynamic.Resource(announces).Namespace(area).Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Fatal(err)
		}
	}
}

// outcome is what became of a step, in a few words.
func outcome(err error) string {
	if err == nil {
		return "done"
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	return text
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
