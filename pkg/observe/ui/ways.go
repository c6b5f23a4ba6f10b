package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// link is a Link with its ways by the addresses of their ends.
type link struct {
	Link
	ways map[[2]string]*Way
}

// ways adds the ways from the Gateways of a view.
func (b *builder) ways(v *view) {
	going := map[[2]string]bool{}
	for _, info := range v.Infos {
		for _, address := range verify.Leaving(info) {
			going[[2]string{info.Spec.ClusterID, address}] = true
		}
	}
	for _, g := range v.Gateways {
		// excuse returns why a way may be down without a fault, or nothing.
		excuse := func(id, address string) string {
			far := b.sets[keyOf(v.cluster.ClusterSet, id)]
			switch {
			case verify.ComesOrGoes(g):
				return "Gateway " + g.Name + " is " + g.Annotations[multicluster.AnnotationPhase] + ": no new connection uses it."
			case going[[2]string{id, address}]:
				return "The Gateway of " + id + " at " + address + " leaves: no new connection uses it."
			case v.set != nil && verify.BehindNAT(v.set, id) || far != nil && verify.BehindNAT(far, v.cluster.ID):
				return "Tunnels come from other addresses than are announced, so BFD may not find ways that work."
			}
			return ""
		}
		var here Count
		reported := make(map[[2]string]mcv1alpha1.WayState, len(g.Status.Ways))
		for _, w := range g.Status.Ways {
			reported[[2]string{w.ClusterID, w.To}] = w.State
		}
		for _, info := range v.Infos {
			if info.Annotations[multicluster.AnnotationWithdrawn] != "" || info.Spec.ClusterID == "" {
				continue
			}
			to := b.towards(v, info.Spec.ClusterID)
			for _, far := range info.Spec.GatewayInfos {
				if !sameFamily(g.GatewayIP, far.GatewayIP) {
					continue
				}
				key := [2]string{info.Spec.ClusterID, far.GatewayIP}
				state, found := reported[key]
				delete(reported, key)
				if far.WireGuard != nil && far.WireGuard.InsideIP != "" && !found {
					key[1] = far.WireGuard.InsideIP
					state, found = reported[key]
					delete(reported, key)
				}
				here.add(b.way(to, g, far.GatewayIP, state, found, excuse))
			}
		}
		// These are ways to Gateways that are no longer announced, and ways inside WireGuard to the first address of a
		// Service range.
		for _, key := range slices.SortedFunc(maps.Keys(reported), func(x, y [2]string) int {
			return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]))
		}) {
			if key[0] != "" {
				here.add(b.way(b.towards(v, key[0]), g, key[1], reported[key], true, excuse))
			}
		}
		gateway := Gateway{Name: g.Name, Address: g.GatewayIP, Internal: g.InternalIP,
			Phase:    g.Annotations[multicluster.AnnotationPhase],
			Commands: []string{v.kubectl("get", "gateway", "-n", g.Namespace, g.Name, "-o", "yaml")}}
		gateway.State, gateway.Word = here.state()
		v.cluster.gateway(gateway)
	}
}

// sameFamily reports whether two addresses are of one version of IP.
func sameFamily(x, y string) bool { return strings.Contains(x, ":") == strings.Contains(y, ":") }

// towards is the link between a view's cluster and another one.
type towards struct {
	view  *view
	far   *Cluster
	link  *link
	ahead bool // the view's cluster is the first of the link
	skip  bool // the link is not built
}

func (b *builder) towards(v *view, id string) towards {
	far := b.other(v, id)
	key := linkKey(v.cluster.Key, far.Key)
	to := towards{view: v, far: far, ahead: v.cluster.Key < far.Key, skip: b.only != "" && b.only != key}
	if to.skip {
		return to
	}
	to.link = b.links[key]
	if to.link == nil {
		to.link = &link{Link: Link{Key: key, A: min(v.cluster.Key, far.Key), B: max(v.cluster.Key, far.Key)},
			ways: map[[2]string]*Way{}}
		b.links[key] = to.link
	}
	return to
}

// way returns one direction of a way. If excuse returns a reason, the way may be down without a fault.
func (b *builder) way(to towards, g *mcv1alpha1.Gateway, address string, state mcv1alpha1.WayState, found bool,
	excuse func(id, address string) string) Direction {
	d := Direction{State: Unknown, Word: unknownWord}
	if to.view.live() && found {
		switch state {
		case mcv1alpha1.WayUp:
			d.State, d.Word = OK, "up"
		case mcv1alpha1.WayDown:
			d.State, d.Word = Bad, "down"
			if d.Why = excuse(to.far.ID, address); d.Why != "" {
				d.State = Unknown
			}
		}
	}
	switch {
	case to.skip:
	case b.counts:
		there, back := &to.link.AB, &to.link.BA
		if !to.ahead {
			there, back = back, there
		}
		there.add(d)
		if to.far.Context == "" {
			back.Unknown++
		}
	default:
		if d.Why == "" {
			d.Why = why(to.view, g, d, state, found)
		}
		d.probed(to.view.Agents[g.Name].Ways, to.far.ID, address)
		b.put(to, g, address, d)
	}
	return d
}

// probed adds the results of a way's probes to a direction that is up.
func (d *Direction) probed(all []api.ProbedWay, id, address string) {
	i := slices.IndexFunc(all, func(w api.ProbedWay) bool { return w.Peer == id && w.To == address && !w.Paused })
	if i < 0 || d.State != OK {
		return
	}
	w := all[i]
	d.Quality = &Quality{P50Seconds: w.P50Seconds, P99Seconds: w.P99Seconds, Loss: w.Loss300, Samples: w.Samples,
		Size: w.Size, MTU: w.MTU}
	switch { // the words stay the same while the results change, since the timeline has them
	case w.TooSmall():
		d.State, d.Word = Warn, "loses large packets"
		d.Why = fmt.Sprintf("Pods send packets of up to %d bytes, and the largest that passes there and back has %d: a link "+
			"between the Gateways has a smaller MTU.", w.MTU, w.Size)
	case w.Loses():
		d.State, d.Word = Warn, "loses packets"
		d.Why = "More than 1 % of the probes of the last minutes did not come back."
	case w.Slow():
		d.State, d.Word = Warn, "slow"
		d.Why = "Half of the probes take more than 300 ms."
	}
}

// why explains the state of a direction.
func why(v *view, g *mcv1alpha1.Gateway, d Direction, state mcv1alpha1.WayState, found bool) string {
	switch {
	case d.State == OK:
		return ""
	case d.State == Bad:
		return "BFD on Node " + g.Name + " receives nothing, or the other end reports that it receives nothing."
	case !v.live() && found:
		return "The API server of " + v.cluster.ID + " does not answer; the last report was " + string(state) + "."
	case !v.live():
		return "The API server of " + v.cluster.ID + " does not answer."
	case !found:
		return "The agent of Node " + g.Name + " reports no state. BFD may not watch the way."
	}
	return "Node " + g.Name + " is not Ready, so the last report of its agent may be old."
}

// put adds a direction to its way. The two directions of a way have the same Gateways. Inside WireGuard the two
// directions use different addresses of these Gateways.
func (b *builder) put(to towards, g *mcv1alpha1.Gateway, address string, d Direction) {
	here := End{Name: g.Name, Address: g.GatewayIP}
	there := End{Name: b.names[[2]string{to.far.Key, address}], Address: address}
	back := Direction{State: Unknown, Word: unknownWord, Why: "No context shows cluster " + to.far.ID + "."}
	if to.far.Context != "" {
		back.Why = "Cluster " + to.far.ID + " reports no such way."
	}
	end := func(e End) string { return cmp.Or(e.Name, e.Address) }
	if to.ahead {
		to.link.way([2]string{end(here), end(there)}, Way{A: here, B: there, BA: back}).AB = d
	} else {
		to.link.way([2]string{end(there), end(here)}, Way{A: there, B: here, AB: back}).BA = d
	}
}

func linkKey(a, b string) string { return min(a, b) + "|" + max(a, b) }

func (l *link) way(key [2]string, empty Way) *Way {
	w := l.ways[key]
	if w == nil {
		w = &empty
		l.ways[key] = w
	}
	return w
}

func ways(n int) string {
	if n == 1 {
		return "1 way"
	}
	return fmt.Sprintf("%d ways", n)
}
