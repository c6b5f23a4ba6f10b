package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// confirmAfter is how long an API server has to go on saying that it has no such kind before
// that is believed.
const confirmAfter = 2 * time.Second

// absences notes since when the API server has said of a kind that it has none such, without a
// break; the zero time for those that are confirmed. An API server that starts answers 404 for
// the groups of custom resources until it has read their definitions, so one 404 says nothing.
type absences map[string]time.Time

func (a absences) forget(kind string) { delete(a, kind) }

// confirmed reports whether an absence was confirmed before.
func (a absences) confirmed(kind string) bool {
	since, ok := a[kind]
	return ok && since.IsZero()
}

// again notes a 404 of an API server that is ready, and reports whether it confirms the absence.
func (a absences) again(kind string, now time.Time) bool {
	since, ok := a[kind]
	switch {
	case !ok:
		a[kind] = now
	case now.Sub(since) >= confirmAfter:
		a[kind] = time.Time{}
		return true
	}
	return false
}

// confirmAbsent is called with a 404 for a kind. It returns errNotServed when that is confirmed:
// the API server is ready and has answered so twice. Otherwise it says what is waited for.
func (c *cluster) confirmAbsent(ctx context.Context, kind string, notServed error) error {
	if c.absent.confirmed(kind) {
		return notServed
	}
	if err := c.serverReady(ctx); err != nil {
		c.absent.forget(kind)
		return fmt.Errorf("the API server answers that it has no such kind, which is not believed before it is ready: %w", err)
	}
	if !c.absent.again(kind, time.Now()) {
		return errors.New("the API server answers that it has no such kind; asking again to be sure")
	}
	return notServed
}

// serverReady asks the API server whether it has started completely (/readyz).
func (c *cluster) serverReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := c.discovery.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("ask /readyz: %w", err)
	}
	return nil
}

// keep looks again at a kind whose watch may have been answered with 404. Its content is kept
// until the absence is confirmed; then the kind has no objects any more, and is watched again
// once it is served. It returns false when the kind has to be looked at again.
func (c *cluster) keep(ctx context.Context, s source) bool {
	kind := kindOf(s.object)
	err := c.isServed(s.object)
	if err == nil {
		c.absent.forget(kind)
		return true
	}
	if !errors.Is(err, errNotServed) {
		c.absent.forget(kind)
		return false
	}
	if err := c.confirmAbsent(ctx, kind, err); !errors.Is(err, errNotServed) {
		return false
	}
	c.log.Warn("the API server has this kind no more (its CustomResourceDefinition was deleted); its objects are gone", "kind", kind)
	c.mu.Lock()
	delete(c.served, kind)
	err = c.cache.RemoveInformer(ctx, s.object)
	c.mu.Unlock()
	delete(c.handled, kind)
	if err != nil {
		c.log.Error("end the watch of a kind that is gone", "kind", kind, "error", err)
	}
	c.notify()
	return false
}
