package diagnose

import (
	"fmt"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Results of a check. Package verify has the first three.
const (
	Pass = verify.Pass
	Fail = verify.Fail
	Skip = verify.Skip
	// Unknown is the result of a check that lacks facts that it needs. It never counts as passed.
	Unknown = "unknown"
)

// Severities of a check that fails.
const (
	Critical = "critical" // traffic is lost, or will be after the next change
	Warning  = "warning"  // something is not as it was asked for
	Info     = "info"     // never fails
)

// Result is one result of a check: of all clusters, of one, or of one object.
type Result struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	verify.Result
	Cluster  string   `json:"cluster,omitempty"` // as the user names it
	Object   string   `json:"object,omitempty"`  // "Kind namespace/name"
	Evidence []string `json:"evidence,omitempty"`
}

// Check is a row of the table of checks.
type Check struct {
	Code     string
	Name     string
	Severity string
	// Cause and Remedy are its entry in docs/diagnose.md.
	Cause, Remedy string

	// each judges one cluster. all judges all clusters that have the needed facts together. A check has one of the two.
	each func(f *Facts, c *Cluster, r *report)
	all  func(clusters []*Cluster, r *report)
	// needs are the kinds of objects that the check judges. If they could not be listed in a cluster, the result is
	// unknown.
	needs []Kind
	// agents is set if it judges the answers of agents.
	agents bool
	// faults is set if it judges clusters that do not answer, too.
	faults bool
	// member is set if it judges members of a ClusterSet alone.
	member bool
}

// limit is the time that a check may take.
const limit = 5 * time.Second

// Run runs all checks, in the order of the table. The cause of a fault comes before its effects.
func Run(f Facts) []Result {
	var all []Result
	for _, c := range checks {
		all = append(all, c.run(&f, limit)...)
	}
	return all
}

// run runs a check. A check that panics, or that takes too long, is unknown.
func (k Check) run(f *Facts, limit time.Duration) []Result {
	start := time.Now()
	done := make(chan []Result, 1)
	go func() {
		r := &report{check: k}
		defer func() {
			if p := recover(); p != nil {
				r.unknown("", "the check has a defect: %v", p)
			}
			done <- r.results
		}()
		k.judge(f, r)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var results []Result
	select {
	case results = <-done:
	case <-timer.C:
		r := &report{check: k}
		r.unknown("", "the check took longer than %s", limit)
		results = r.results
	}
	took := time.Since(start).Seconds() / float64(max(1, len(results)))
	for i := range results {
		results[i].Seconds = took
	}
	return results
}

func (k Check) judge(f *Facts, r *report) {
	var usable []*Cluster
	for i := range f.Clusters {
		c := &f.Clusters[i]
		r.cluster = c.Name
		if why := k.lacks(c); why != "" {
			r.unknown("", "%s", why)
			continue
		}
		if k.all != nil {
			usable = append(usable, c)
			continue
		}
		if k.member && c.set() == nil {
			r.skip("it is in no ClusterSet")
			continue
		}
		before := len(r.results)
		k.each(f, c, r)
		if len(r.results) == before {
			r.pass("")
		}
	}
	if r.cluster = ""; k.all != nil && len(usable) > 0 {
		before := len(r.results)
		k.all(usable, r)
		if len(r.results) == before {
			r.pass("")
		}
		k.partly(usable, r, before)
	}
}

// partly changes passed results of a check to unknown if some agents do not answer, since facts about their Nodes are
// missing.
func (k Check) partly(clusters []*Cluster, r *report, before int) {
	if !k.agents {
		return
	}
	var silent []string
	for _, c := range clusters {
		for _, a := range c.Agents {
			if a.Fault != "" {
				silent = append(silent, c.Name+"/"+a.Node)
			}
		}
	}
	for i := before; i < len(r.results) && len(silent) > 0; i++ {
		if x := &r.results[i]; x.Status == Pass {
			x.Status, x.Detail = Unknown, "agents do not answer: "+problem.Few(silent)
		}
	}
}

// lacks returns why a check cannot judge a cluster, or nothing.
func (k Check) lacks(c *Cluster) string {
	if k.faults {
		return ""
	}
	if c.Fault != "" {
		return "its API server does not answer"
	}
	needs := k.needs
	if k.member {
		needs = append([]Kind{ClusterSets}, needs...)
	}
	for _, kind := range needs {
		if why := c.Unread[kind]; why != "" {
			return fmt.Sprintf("list %s: %s", kind, why)
		}
	}
	switch {
	case k.agents && c.AgentsFault != "":
		return c.AgentsFault
	case k.agents && len(c.Agents) > 0 && !slices.ContainsFunc(c.Agents, func(a Agent) bool { return a.Fault == "" }):
		return "none of its agents answers"
	}
	return ""
}

// report collects the results of one check.
type report struct {
	check   Check
	cluster string // that is being judged
	results []Result
}

func (r *report) add(status, object, detail, remedy string, evidence ...string) {
	r.results = append(r.results, Result{
		Code: r.check.Code, Severity: r.check.Severity, Cluster: r.cluster, Object: object, Evidence: evidence,
		Result: verify.Result{Check: r.check.Name, Status: status, Detail: detail, Remedy: remedy},
	})
}

func (r *report) pass(format string, args ...any) { r.add(Pass, "", fmt.Sprintf(format, args...), "") }

func (r *report) skip(why string) { r.add(Skip, "", why, "") }

func (r *report) unknown(object, format string, args ...any) {
	r.add(Unknown, object, fmt.Sprintf(format, args...), "")
}

// fault is a failed check.
type fault struct {
	object   string
	detail   string
	remedy   string
	evidence []string
}

func (r *report) fail(f fault) { r.add(Fail, f.object, f.detail, f.remedy, f.evidence...) }
