// Package requests decides about the share of requests to a Service of the ClusterSet that each cluster gets. It is
// pure. The member controllers write its inputs, and the agents make flows from its results.
package requests

import (
	"fmt"
	"strconv"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// MaxReady is how many endpoints one address stands for at most.
const MaxReady = 1000

// RoundReady returns the number of ready endpoints for other clusters. It is exact up to 16 and rounded by at most a
// sixteenth above. Otherwise every Pod that comes or goes would cause a write in each cluster.
func RoundReady(n int) int {
	step := 1
	for n > 16*step {
		step *= 2
	}
	return min((n+step/2)/step*step, MaxReady)
}

// ReadReady reads the annotation of a ResourceExport or an EndpointSlice. It returns 0 if the annotation is empty.
func ReadReady(value string) (int, error) {
	if value == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > MaxReady {
		return 0, fmt.Errorf("metadata.annotations[%s]: %s is not a number of ready endpoints: expected 1 to %d",
			multicluster.AnnotationReady, problem.Quoted(value), MaxReady)
	}
	return n, nil
}
