package leader

import (
	"context"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Area is a leader whose Common Area is filled through its Kinds, without watches. Measurements use it for more objects
// than an API server on the same machine could hold. It sends its writes to the client.
type Area struct {
	*watch.Kinds
	c *controller
}

// NewArea returns a leader of an empty Common Area.
func NewArea(to client.Client) *Area {
	c := newController(to, slog.New(slog.DiscardHandler))
	return &Area{c.tables.kinds, c}
}

// Pending is how many objects have to be written.
func (a *Area) Pending() int { return a.c.queue.Len() }

// Stats returns the numbers of the tables.
func (a *Area) Stats() (derive.PassStats, uint64, []derive.TableStats) {
	return a.c.tables.engine.Stats()
}

// Run runs the leader until ctx ends.
func (a *Area) Run(ctx context.Context) error { return a.c.Start(ctx) }
