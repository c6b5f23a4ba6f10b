package leader

import (
	"context"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// Area is a leader whose Common Area is filled by hand and not by watches, to measure it at sizes
// that no API server at hand has. Its writes go to the client.
type Area struct{ c *controller }

// NewArea returns a leader of an empty Common Area.
func NewArea(to client.Client) *Area {
	return &Area{newController(to, slog.New(slog.DiscardHandler))}
}

func keyOf(o client.Object) derive.Object {
	return derive.Object{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// ClusterSet says that an object was created or has changed, as a watch would.
func (a *Area) ClusterSet(o *mcv1alpha2.ClusterSet) { a.c.tables.sets.Set(keyOf(o), o) }

// Announce says the same of an announcement.
func (a *Area) Announce(o *mcv1alpha1.MemberClusterAnnounce) {
	a.c.tables.heard.Set(keyOf(o), announceFacts(o))
}

// Export says the same of an export.
func (a *Area) Export(o *mcv1alpha1.ResourceExport) {
	t := a.c.tables
	t.engine.Together(func() {
		t.exports.Set(keyOf(o), exportFacts(o))
		t.written.Set(keyOf(o), writtenFacts(o))
	})
}

// Import says the same of an import.
func (a *Area) Import(o *mcv1alpha1.ResourceImport) { a.c.tables.imports.Set(keyOf(o), o) }

// Loaded says that all there is has been said.
func (a *Area) Loaded() { a.c.tables.loaded() }

// Pending is how many objects have to be written.
func (a *Area) Pending() int { return a.c.queue.Len() }

// Stats are those of the tables.
func (a *Area) Stats() (derive.PassStats, uint64, []derive.TableStats) {
	return a.c.tables.engine.Stats()
}

// Run runs the leader until ctx ends.
func (a *Area) Run(ctx context.Context) error { return a.c.Start(ctx) }
