package requests

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Mode says to which clusters requests to a Service go.
type Mode string

// The modes.
const (
	Spread       Mode = "spread"        // to all, by their ready endpoints; the default
	Local        Mode = "local"         // to the client's own cluster, and to all when too few endpoints are ready there
	ClusterOrder Mode = "cluster-order" // to the first clusters of a list that have enough together, else to all
)

// maxOrder is how many clusters a list may have.
const maxOrder = 100

// Rule decides where requests to a Service go. The zero value is no rule.
type Rule struct {
	To      Mode     `json:"to,omitempty"`
	Order   []string `json:"order,omitempty"`   // IDs of clusters, with ClusterOrder
	Minimum int      `json:"minimum,omitempty"` // ready endpoints that are enough, with Local and ClusterOrder; 0 means 1
}

// Keys are the annotations of a rule, on ServiceExports, ServiceImports and ResourceImports.
var Keys = []string{multicluster.AnnotationRequests, multicluster.AnnotationClusterOrder,
	multicluster.AnnotationMinimumReady}

// Given reports whether there is any annotation of a rule.
func Given(annotations map[string]string) bool {
	return slices.ContainsFunc(Keys, func(key string) bool { _, ok := annotations[key]; return ok })
}

// Invalid is what is wrong with a rule.
type Invalid struct {
	Field   string // metadata.annotations[...]
	Message string // what it has, and what is expected
}

func (i *Invalid) Error() string { return i.Field + ": " + i.Message }

func invalid(key, format string, args ...any) error {
	return &Invalid{Field: "metadata.annotations[" + key + "]", Message: fmt.Sprintf(format, args...)}
}

// Read reads a rule from annotations. An error is an *Invalid, and the rule is empty then.
func Read(annotations map[string]string) (Rule, error) {
	if !Given(annotations) {
		return Rule{}, nil
	}
	rule := Rule{To: Mode(annotations[multicluster.AnnotationRequests])}
	if text, ok := annotations[multicluster.AnnotationClusterOrder]; ok {
		rule.Order = ReadOrder(text)
		if rule.To != ClusterOrder {
			return Rule{}, invalid(multicluster.AnnotationClusterOrder,
				"a list of clusters is for %s=%s alone: set that too, or remove the list", multicluster.AnnotationRequests,
				ClusterOrder)
		}
	}
	if text, ok := annotations[multicluster.AnnotationMinimumReady]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxReady {
			return Rule{}, invalid(multicluster.AnnotationMinimumReady,
				"%s is not a number of ready endpoints: expected 1 to %d", problem.Quoted(text), MaxReady)
		}
		rule.Minimum = n
	}
	if err := rule.Check(); err != nil {
		return Rule{}, err
	}
	return rule, nil
}

// ReadOrder reads a list of clusters, separated by commas.
func ReadOrder(text string) []string {
	var out []string
	for _, id := range strings.Split(text, ",") {
		out = append(out, strings.TrimSpace(id))
	}
	return out
}

// Check names the fault with a rule, as an *Invalid.
func (r Rule) Check() error {
	switch r.To {
	case "", Spread, Local, ClusterOrder:
	default:
		return invalid(multicluster.AnnotationRequests, "%s is not one of %s, %s and %s", problem.Quoted(string(r.To)),
			Spread, Local, ClusterOrder)
	}
	switch {
	case r.Minimum < 0 || r.Minimum > MaxReady:
		return invalid(multicluster.AnnotationMinimumReady, "%d is not a number of ready endpoints: expected 1 to %d",
			r.Minimum, MaxReady)
	case r.Minimum > 0 && r.To != Local && r.To != ClusterOrder:
		return invalid(multicluster.AnnotationMinimumReady,
			"a minimum is for %[1]s=%[2]s and %[1]s=%[3]s: set one of them too, or remove the minimum",
			multicluster.AnnotationRequests, Local, ClusterOrder)
	case r.To == ClusterOrder && len(r.Order) == 0:
		return invalid(multicluster.AnnotationClusterOrder,
			"is missing: with %s=%s list the IDs of clusters, separated by commas", multicluster.AnnotationRequests,
			ClusterOrder)
	case r.To != ClusterOrder && len(r.Order) > 0:
		return invalid(multicluster.AnnotationClusterOrder, "a list of clusters is for %s=%s alone",
			multicluster.AnnotationRequests, ClusterOrder)
	case len(r.Order) > maxOrder:
		return invalid(multicluster.AnnotationClusterOrder, "%d clusters: expected at most %d", len(r.Order), maxOrder)
	}
	for i, id := range r.Order {
		if id == "" || len(id) > 253 || strings.ContainsAny(id, ", \t\n") || slices.Contains(r.Order[:i], id) {
			return invalid(multicluster.AnnotationClusterOrder,
				"%s is not the ID of a cluster, or is there twice: list IDs, separated by commas, each once", problem.Quoted(id))
		}
	}
	return nil
}

// Annotations are what Read makes the rule of.
func (r Rule) Annotations() map[string]string {
	if r.To == "" {
		return nil
	}
	out := map[string]string{multicluster.AnnotationRequests: string(r.To)}
	if len(r.Order) > 0 {
		out[multicluster.AnnotationClusterOrder] = strings.Join(r.Order, ",")
	}
	if r.Minimum > 0 {
		out[multicluster.AnnotationMinimumReady] = strconv.Itoa(r.Minimum)
	}
	return out
}

// In returns the clusters that clients of a cluster use first, in order. The list is empty if requests are spread over
// all clusters.
func (r Rule) In(cluster string) []string {
	switch r.To {
	case Local:
		return []string{cluster}
	case ClusterOrder:
		return r.Order
	}
	return nil
}

// Enough returns how many groups of endpoints are used, counted from the first one: as few as have the minimum of ready
// endpoints together, or all groups if they have fewer.
func Enough(ready []int, minimum int) int {
	minimum = max(minimum, 1)
	for i, n := range ready {
		if minimum -= n; minimum <= 0 {
			return i + 1
		}
	}
	return len(ready)
}
