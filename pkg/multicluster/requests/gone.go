package requests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// maxReachedBytes bounds the list of clusters that one cluster reaches. It has room for several hundred clusters with
// names of ordinary length.
const maxReachedBytes = 16 << 10

// Sight is what the Gateways of this cluster find of another one.
type Sight int

// The sights.
const (
	Unseen  Sight = iota // nothing is known
	Reached              // by one way at least
	Lost                 // no way is up any more
)

// Gone reports whether a cluster is gone, so that requests to it would be lost. It is gone if this cluster has lost it,
// and no cluster that this one reaches reports that it reaches it. A report of an unreachable cluster does not count,
// since it may be older than the loss.
func Gone(id string, sights map[string]Sight, reached map[string][]string) bool {
	if sights[id] != Lost {
		return false
	}
	for other, list := range reached {
		if other != id && sights[other] == Reached && slices.Contains(list, id) {
			return false
		}
	}
	return true
}

// ReachedText returns the value of the annotation with the clusters that a cluster reaches. It leaves out IDs that a
// list cannot contain.
func ReachedText(ids []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(ids),
		func(id string) bool { return id == "" || strings.Contains(id, ",") }), ",")
}

// ReadReached reads the annotation; none for an empty one.
func ReadReached(text string) ([]string, error) {
	if len(text) > maxReachedBytes {
		return nil, fmt.Errorf("metadata.annotations[%s]: has %d bytes: expected at most %d", multicluster.AnnotationReached,
			len(text), maxReachedBytes)
	}
	if text == "" {
		return nil, nil
	}
	return strings.Split(text, ","), nil
}
