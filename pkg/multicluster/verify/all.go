package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Names of checks, for Options.Only, in the order of a run.
const (
	kindAPI        = "api"
	kindMember     = "member"
	kindClusterSet = "clusterset"
	kindGateways   = "gateways"
	kindImport     = "import"
	kindWays       = "ways"
	kindProbe      = "probe"
	kindServices   = "services"
	kindMTU        = "mtu"
	kindPods       = "pods"
	kindFailover   = "failover"
	kindPolicy     = "policy"
)

// Kinds returns the names of checks that Options.Only takes.
func Kinds() []string {
	return []string{kindAPI, kindMember, kindClusterSet, kindGateways, kindImport, kindWays, kindProbe, kindServices,
		kindMTU, kindPods, kindFailover, kindPolicy}
}

// packetKinds are the checks that need Pods in both clusters.
func packetKinds() []string {
	return []string{kindProbe, kindServices, kindMTU, kindPods, kindFailover, kindPolicy}
}

// kindOf returns the kind of check from the name in a Result. It is the first word in lower case: "Services over IPv6
// east to west" is of kind services.
func kindOf(check string) string {
	word, _, _ := strings.Cut(check, " ")
	return strings.ToLower(word)
}

// CheckOnly returns an error if Only has a name that is no check, or a check that these options exclude.
func (o Options) CheckOnly() error {
	for _, name := range o.Only {
		if !slices.Contains(Kinds(), name) {
			return fmt.Errorf("%q is not the name of a check; the names are %s", name, strings.Join(Kinds(), ", "))
		}
	}
	if slices.Contains(o.Only, kindFailover) && !o.Disruptive {
		return errors.New("the check failover interrupts the Pods of a Node: it needs --disruptive as well")
	}
	return nil
}

// wants reports whether one of the named checks is to be run.
func (o Options) wants(kinds ...string) bool {
	return len(o.Only) == 0 || slices.ContainsFunc(kinds, func(k string) bool { return slices.Contains(o.Only, k) })
}

// Pair has the results about two members.
type Pair struct {
	A, B    string
	Results []Result
	// Left is the error about objects that could not be taken away.
	Left error
}

// Count returns the number of results with a status.
func (p Pair) Count(status string) (n int) {
	for _, r := range p.Results {
		if r.Status == status {
			n++
		}
	}
	return n
}

// pairsAtOnce is the number of pairs that are checked at a time. Each has five Pods or fewer in each of its clusters.
const pairsAtOnce = 4

// RunAll checks each pair of the clusters, several pairs at a time, and returns the pairs in the order of the clusters.
// It calls report for each result as soon as there is one, unless report is nil. The calls do not overlap. Disruptive
// runs do not overlap either.
func RunAll(ctx context.Context, clusters []Cluster, o Options, report func(Pair, Result)) []Pair {
	var all []Pair
	var of [][2]Cluster
	for i, a := range clusters {
		for _, b := range clusters[i+1:] {
			all, of = append(all, Pair{A: a.Name, B: b.Name}), append(of, [2]Cluster{a, b})
		}
	}
	slots := make(chan struct{}, pairsAtOnce)
	if o.Disruptive {
		slots = make(chan struct{}, 1)
	}
	var reporting sync.Mutex
	var running sync.WaitGroup
	for i := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			p, own := &all[i], o
			if ctx.Err() != nil {
				p.Results = []Result{{Check: "packets", Status: Skip, Detail: "interrupted"}}
				return
			}
			own.Report = nil
			if report != nil {
				own.Report = func(r Result) {
					reporting.Lock()
					defer reporting.Unlock()
					report(Pair{A: p.A, B: p.B}, r)
				}
			}
			p.Results, p.Left = Run(ctx, of[i][0], of[i][1], own)
		})
	}
	running.Wait()
	return all
}
