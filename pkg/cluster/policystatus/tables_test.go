package policystatus

import (
	"testing"

	"github.com/tombolo-net/tombolo/pkg/policy"
)

// TestLoaded waits for nothing but what is watched.
func TestLoaded(t *testing.T) {
	tables := newTables()
	s := tables.spans
	for _, watched := range []interface{ Loaded() }{
		s.Pods, s.Namespaces, s.ServiceSelectors, s.Tiers, s.ClusterGroups, s.Groups, tables.reports, tables.groups, tables.clusterGroups,
	} {
		watched.Loaded()
	}
	for kind := range policy.Kinds {
		if kind.HasStatus() {
			s.Policies[kind].Loaded()
			tables.policies[kind].Loaded()
		}
	}
	if ok, waiting := tables.engine.Loaded(); !ok {
		t.Errorf("nobody fills %v", waiting)
	}
}
