package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// probed is a way with the results of its probes, as the end sees it that has sent them.
type probed struct {
	from, to end
	api.ProbedWay
}

func (p probed) String() string { return fmt.Sprintf("%s > %s", p.from, p.to) }

// probedWays calls f with each way that is probed and not down.
func probedWays(clusters []*Cluster, f func(probed)) {
	for _, c := range clusters {
		for _, a := range c.Agents {
			if a.Probes == nil {
				continue
			}
			for _, w := range a.Probes.Ways {
				if !w.Paused {
					f(probed{end{cluster: c, id: c.id(), node: a.Node}, gatewayAt(clusters, w), w})
				}
			}
		}
	}
}

// gatewayAt returns the far end of a probed way.
func gatewayAt(clusters []*Cluster, w api.ProbedWay) end {
	to := end{id: w.Peer, address: w.To}
	for _, c := range clusters {
		if c.id() != w.Peer {
			continue
		}
		to.cluster = c
		for _, g := range c.Gateways {
			if g.GatewayIP == w.To {
				to.node = g.Name
			}
		}
	}
	return to
}

// sizes compares the largest packet that passes each way with the packets that Pods send. Probes pass in both
// directions, so only the first of a way's two ends is reported.
func sizes(clusters []*Cluster, r *report) {
	r.cluster = ""
	reported := map[string]bool{}
	probedWays(clusters, func(p probed) {
		if !p.TooSmall() || reported[fmt.Sprint(p.to, " ", p.from)] {
			return
		}
		reported[fmt.Sprint(p.from, " ", p.to)] = true
		if p.Loses() {
			r.unknown("way "+p.String(), "the largest packet that came back has %d of %d bytes, and the way loses small "+
				"packets too: TD044", p.Size, p.MTU)
			return
		}
		r.fail(fault{object: "way " + p.String(),
			detail: fmt.Sprintf("Pods send packets of up to %d bytes, and the largest that comes back has %d: larger ones are "+
				"lost on the way there or back, without a message to their sender", p.MTU, p.Size),
			remedy: fmt.Sprintf("raise the MTU of the links between the two by %d, or set defaultMTU: %d in antrea-agent.conf "+
				"of both clusters; Pods get it when they are made again", p.MTU-p.Size, p.Size),
			evidence: p.evidence()})
	})
}

// enoughProbes is the number of probe results that are needed to judge a way. While a way, its agents or its switches
// are starting, some probes are lost.
const enoughProbes = 60

// losses finds ways that lose packets, or are slow.
func losses(clusters []*Cluster, r *report) {
	r.cluster = ""
	probedWays(clusters, func(p probed) {
		switch {
		case (p.Loses() || p.Slow()) && p.Samples < enoughProbes:
			r.unknown("way "+p.String(), "there are results of %d probes yet, and %d are needed; %d were lost", p.Samples,
				enoughProbes, p.LostOf300())
		case p.Loses():
			r.fail(fault{object: "way " + p.String(),
				detail: fmt.Sprintf("%d of the last %d probes did not come back (%.1f %%)", p.LostOf300(), p.Samples,
					100*p.Loss300),
				remedy: "look for errors and full queues of the links and routers between the two, and at the load of both " +
					"Nodes; `tombolo get latency` shows whether other ways lose packets too", evidence: p.evidence()})
		case p.Slow():
			r.fail(fault{object: "way " + p.String(),
				detail:   fmt.Sprintf("half of the probes take longer than %.0f ms", 1000*p.P50Seconds),
				remedy:   "look for full queues and detours between the two, and at the load of both Nodes",
				evidence: p.evidence()})
		}
	})
}

// evidence are the results.
func (p probed) evidence() []string {
	return []string{fmt.Sprintf("%s by %s, probes of %s: p50 %.1f ms, p99 %.1f ms; %d sent, %d lost, %d late; size %d of "+
		"%d", p, p.To, p.from, 1000*p.P50Seconds, 1000*p.P99Seconds, p.Sent, p.Lost, p.Late, p.Size, p.MTU)}
}

// noAnswers is how many probes in a row have no answer if a Node does not answer.
const noAnswers = 3

// nodeProbes finds Nodes that do not answer the probes of others, or answer slowly. A Node that is not Ready is a fault
// of another check.
func nodeProbes(_ *Facts, c *Cluster, r *report) {
	type target struct{ node, to string }
	all, silent, slow := map[target]int{}, map[target][]string{}, map[target][]string{}
	for _, a := range c.Agents {
		if a.Probes == nil {
			continue
		}
		for _, p := range a.Probes.Nodes {
			to := target{p.Node, p.To}
			if n := c.node(p.Node); n == nil || p.Samples == 0 {
				continue
			} else if ok, _ := ready(n); !ok || becomesReady(c, n) != "" {
				continue
			}
			all[to]++
			switch {
			case p.LostInRow >= noAnswers:
				silent[to] = append(silent[to], a.Node)
			case p.Slow():
				slow[to] = append(slow[to], a.Node)
			}
		}
	}
	targets := slices.SortedFunc(maps.Keys(all), func(x, y target) int {
		return cmp.Or(cmp.Compare(x.node, y.node), cmp.Compare(x.to, y.to))
	})
	for _, to := range targets {
		object := fmt.Sprintf("Node %s (%s)", to.node, to.to)
		if by := silent[to]; len(by) > 0 {
			r.fail(fault{object: object,
				detail: fmt.Sprintf("it does not answer the newest %d probes of %d of the %d Nodes that probe it: %s", noAnswers,
					len(by), all[to], strings.Join(some(by), ", ")),
				remedy: "let the tunnels' port pass between these Nodes, and look at `tombolo get status` of Node " + to.node})
		}
		if by := slow[to]; len(by) > 0 {
			r.fail(fault{object: object,
				detail: fmt.Sprintf("half of the probes of %d of the %d Nodes that probe it take longer than 300 ms: %s", len(by),
					all[to], strings.Join(some(by), ", ")),
				remedy: "look for full queues of the links between the Nodes, and at their load"})
		}
	}
}

// monitorTime is how long agents may take to begin with probes.
const monitorTime = time.Minute

// monitored finds agents that send no probes though a NodeLatencyMonitor asks for them.
func monitored(_ *Facts, c *Cluster, r *report) {
	for _, m := range c.Monitors {
		if c.Now.Sub(m.CreationTimestamp.Time) < monitorTime || len(c.Nodes) < 2 {
			continue
		}
		var idle []string
		for _, a := range c.Agents {
			if a.Fault == "" && a.Probes != nil && len(a.Probes.Nodes) == 0 && c.starts(&a) == "" {
				idle = append(idle, a.Node)
			}
		}
		if len(idle) > 0 {
			r.fail(fault{object: "NodeLatencyMonitor " + m.Name,
				detail: fmt.Sprintf("agents of %d of %d Nodes send no probes: %s", len(idle), len(c.Agents),
					strings.Join(some(idle), ", ")),
				remedy: "set featureGates: {NodeLatencyMonitor: true} in antrea-agent.conf and restart the agents; if it is set, " +
					"read their logs"})
		}
	}
}
