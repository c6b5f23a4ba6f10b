package policystatus

import "testing"

// TestLoaded waits only for watched kinds.
func TestLoaded(t *testing.T) {
	tables := newTables()
	tables.kinds.Loaded()
	if ok, waiting := tables.engine.Loaded(); !ok {
		t.Errorf("nobody fills %v", waiting)
	}
}
