package exportcheck

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// These are limits of label identities. Every cluster stores the identities of all clusters, and every Node reads them.
const (
	maxLabelBytes = 16 << 10 // of one normalised label
	MaxLabels     = 10_000   // that one cluster exports
)

// noLabels is how Antrea before v1.13 writes an empty set.
const noLabels = "<none>"

// Label returns the fault of a normalised label, "ns:k=v,k=v&pod:k=v", or nil. It does not check the order of the
// labels, since the meaning of the text does not depend on it.
func Label(field, text string) error {
	if len(text) > maxLabelBytes {
		return Problem{field, fmt.Sprintf("has %d bytes: expected at most %d; use fewer or shorter labels", len(text),
			maxLabelBytes)}
	}
	rest, begins := strings.CutPrefix(text, "ns:")
	namespace, pod, both := strings.Cut(rest, "&pod:")
	if !begins || !both {
		wrong := problem.Quoted(text) + " is not a normalised label: expected ns:<labels>&pod:<labels>"
		return Problem{field, wrong}
	}
	for _, set := range []string{namespace, pod} {
		if set == "" || set == noLabels {
			continue
		}
		keys := map[string]bool{}
		for pair := range strings.SplitSeq(set, ",") {
			key, value, ok := strings.Cut(pair, "=")
			switch {
			case !ok || len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0:
				return Problem{field, fmt.Sprintf("%s is not a label: expected key=value", problem.Quoted(pair))}
			case keys[key]:
				return Problem{field, fmt.Sprintf("label %s is given twice: expected it once", problem.Quoted(key))}
			}
			keys[key] = true
		}
	}
	return nil
}
