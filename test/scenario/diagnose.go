package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/diagnose"
)

// Diagnosis is the answer of `tombolo diagnose -o json`.
type Diagnosis struct {
	Passed          bool
	Failed, Unknown int
	Seconds         float64
	Results         []diagnose.Result
}

// Kubeconfigs returns the kubeconfigs of all clusters, as --context takes them.
func (s *Scenario) Kubeconfigs() string {
	var files []string
	for _, c := range s.Lab.Clusters() {
		files = append(files, c.Kubeconfig())
	}
	return strings.Join(files, ",")
}

// Diagnose runs `tombolo diagnose` about all clusters.
func (s *Scenario) Diagnose(ctx context.Context, args ...string) (Diagnosis, error) {
	out, err := s.Lab.Tool(ctx, Leader, "tombolo",
		append([]string{"diagnose", "--context", s.Kubeconfigs(), "-o", "json"}, args...)...)
	var d Diagnosis
	if wrong := json.Unmarshal([]byte(out), &d); wrong != nil {
		return d, fmt.Errorf("%w: %w\n%s", wrong, err, out)
	}
	var exit *exec.ExitError
	if failed := errors.As(err, &exit) && exit.ExitCode() == 1; failed == d.Passed {
		return d, fmt.Errorf("%w, and it passed: %t", err, d.Passed)
	}
	return d, nil
}

// Faults returns the results that failed or are unknown, as the command prints them.
func (d Diagnosis) Faults() string {
	return Printed(slices.DeleteFunc(slices.Clone(d.Results), func(r diagnose.Result) bool {
		return r.Status != diagnose.Fail && r.Status != diagnose.Unknown
	}))
}

// First returns the first result that failed.
func (d Diagnosis) First() (diagnose.Result, bool) {
	i := slices.IndexFunc(d.Results, func(r diagnose.Result) bool { return r.Status == diagnose.Fail })
	if i < 0 {
		return diagnose.Result{}, false
	}
	return d.Results[i], true
}

// Printed returns results as the command prints them.
func Printed(results []diagnose.Result) string {
	var b strings.Builder
	diagnose.Print(&b, results)
	return b.String()
}
