package requests

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// TestRead reads rules from annotations, and what it makes of a rule is read as the same.
func TestRead(t *testing.T) {
	const to, order, minimum = multicluster.AnnotationRequests, multicluster.AnnotationClusterOrder,
		multicluster.AnnotationMinimumReady
	for _, row := range []struct {
		name        string
		annotations map[string]string
		want        Rule
		wrong       string // the annotation that is
	}{
		{"nothing", map[string]string{"other": "x"}, Rule{}, ""},
		{"spread", map[string]string{to: "spread"}, Rule{To: Spread}, ""},
		{"local", map[string]string{to: "local"}, Rule{To: Local}, ""},
		{"local with a minimum", map[string]string{to: "local", minimum: "3"}, Rule{To: Local, Minimum: 3}, ""},
		{"order", map[string]string{to: "cluster-order", order: "west, north", minimum: "2"},
			Rule{To: ClusterOrder, Order: []string{"west", "north"}, Minimum: 2}, ""},
		{"unknown mode", map[string]string{to: "nearest"}, Rule{}, to},
		{"empty mode", map[string]string{to: "", minimum: "2"}, Rule{}, minimum},
		{"order without clusters", map[string]string{to: "cluster-order"}, Rule{}, order},
		{"an empty order", map[string]string{to: "cluster-order", order: ""}, Rule{}, order},
		{"a cluster twice", map[string]string{to: "cluster-order", order: "west,north,west"}, Rule{}, order},
		{"an empty ID", map[string]string{to: "cluster-order", order: "west,,north"}, Rule{}, order},
		{"two words", map[string]string{to: "cluster-order", order: "west north"}, Rule{}, order},
		{"too many clusters", map[string]string{to: "cluster-order", order: "a" + strings.Repeat(",a", 100)}, Rule{}, order},
		{"an order without its mode", map[string]string{order: "west"}, Rule{}, order},
		{"an order with another mode", map[string]string{to: "local", order: "west"}, Rule{}, order},
		{"a minimum of none", map[string]string{to: "local", minimum: "0"}, Rule{}, minimum},
		{"a minimum that is no number", map[string]string{to: "local", minimum: "half"}, Rule{}, minimum},
		{"a minimum of too many", map[string]string{to: "local", minimum: "1001"}, Rule{}, minimum},
		{"a minimum without a mode", map[string]string{to: "spread", minimum: "2"}, Rule{}, minimum},
	} {
		t.Run(row.name, func(t *testing.T) {
			have, err := Read(row.annotations)
			var invalid *Invalid
			if errors.As(err, &invalid); err != nil != (row.wrong != "") || invalid != nil &&
				invalid.Field != "metadata.annotations["+row.wrong+"]" {
				t.Errorf("error %v, want one about %q", err, row.wrong)
			}
			if !reflect.DeepEqual(have, row.want) {
				t.Errorf("have %+v, want %+v", have, row.want)
			}
			if again, err := Read(have.Annotations()); err != nil || !reflect.DeepEqual(again, have) {
				t.Errorf("of %v becomes %+v, %v", have.Annotations(), again, err)
			}
		})
	}
}

// TestEnough holds the choice against its definition in words: a group is used exactly when those before it have too
// few together.
func TestEnough(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 10_000 {
		ready := make([]int, 1+random.IntN(6))
		for i := range ready {
			ready[i] = max(0, random.IntN(8)-2)
		}
		minimum := random.IntN(12)
		have := Enough(ready, minimum)
		for i := range ready {
			before := 0
			for _, n := range ready[:i] {
				before += n
			}
			if used := i < have; used != (before < max(1, minimum)) {
				t.Fatalf("ready %v, minimum %d: %d groups are used, and %d ready endpoints are before group %d", ready, minimum,
					have, before, i)
			}
		}
	}
}
