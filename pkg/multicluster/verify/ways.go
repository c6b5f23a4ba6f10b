package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// waysLimit is how long it may take until ways are reported as up. A way has to be up for ten seconds, and a Gateway
// reports changes at most every ten seconds.
const waysLimit = 30 * time.Second

// ways checks the ways from one of the two clusters to the other, and waits some seconds for them to come up. If a way
// is down, other ways may carry the packets, so the other checks still run.
func (r *run) ways(ctx context.Context, from int) (detail string, err error) {
	limited := *r
	limited.Limit = min(r.Limit, waysLimit)
	s := r.states[from]
	waited := limited.wait(ctx, func(ctx context.Context) (bool, error) {
		detail, err = s.ways(r.states[1-from])
		if err == nil {
			return true, nil
		}
		var failed error
		s, failed = read(ctx, r.clusters[from], r.Options)
		return false, failed
	})
	if err == nil {
		err = waited
	}
	return detail, err
}

// ways checks that BFD finds no way to another cluster down, by the status of the Gateways and of the ClusterSet.
func (s state) ways(other state) (string, error) {
	var up int
	var down, unknown, going []string
	if info := s.of(other); info != nil {
		going = Leaving(info)
	}
	for _, g := range s.Gateways {
		if ComesOrGoes(&g) {
			continue
		}
		for _, w := range g.Status.Ways {
			text := fmt.Sprintf("from Gateway %s (%s) to %s", g.Name, g.GatewayIP, w.To)
			switch {
			case w.ClusterID != other.id(), slices.Contains(going, w.To):
			case w.State == mcv1alpha1.WayUp:
				up++
			case w.State == mcv1alpha1.WayDown:
				down = append(down, text)
			default:
				unknown = append(unknown, text)
			}
		}
	}
	all := up + len(down) + len(unknown)
	sum := fmt.Sprintf("%d of %d ways from %s to %s are up", up, all, s.Name, other.Name)
	reachable := s.reachable(other)
	hidden := s.behindNAT(other) || other.behindNAT(s)
	switch {
	case all == 0 && (reachable == nil || reachable.Status == corev1.ConditionTrue):
		return fmt.Sprintf("%s does not watch its ways to %s%s: a lost one is found by requests that fail", s.Name,
			other.Name, s.unwatched(other)), nil
	case len(down) > 0 && hidden:
		return sum + "; tunnels come from other addresses than are announced (annotation " +
			multicluster.AnnotationTunnelSources + "CLUSTER-ID), so BFD may not find ways that work", nil
	case len(down) > 0:
		return "", wrongf(
			fmt.Sprintf("check that the Nodes of these Gateways run, that %s are addresses at which %s is reached, and that "+
				"firewalls let tunnels through both ways (%s); `tombolo get peers` on the Nodes shows each way",
				strings.Join(other.addresses(), ", "), other.Name, tunnelPorts), "%s; down: %s", sum, strings.Join(down, ", "))
	case len(unknown) > 0:
		return "", wrongf("see `kubectl describe node` of these Gateways' Nodes, and the Pods of tombolo-agent on them",
			"%s; unknown, since the Node is not Ready: %s", sum, strings.Join(unknown, ", "))
	case reachable != nil && reachable.Status != corev1.ConditionTrue:
		return "", wrongf("see `kubectl get clusterset -n "+s.Sets[0].Namespace+" "+s.Sets[0].Name+
			" -o yaml` in that cluster, and the log of antrea-mc-controller",
			"%s, and yet ClusterSet %s of %s has Reachable=%s of %s: %s %s", sum, s.Sets[0].Name, s.Name, reachable.Status,
			other.id(), reachable.Reason, reachable.Message)
	}
	return sum, nil
}

// reachable returns the ClusterSet's condition about another cluster, or nil.
func (s state) reachable(other state) *mcv1alpha2.ClusterCondition {
	for _, set := range s.Sets {
		for _, cluster := range set.Status.ClusterStatuses {
			for i, c := range cluster.Conditions {
				if cluster.ClusterID == other.id() && c.Type == mcv1alpha2.ClusterReachable {
					return &cluster.Conditions[i]
				}
			}
		}
	}
	return nil
}

// behindNAT reports whether the tunnels of another cluster come from other addresses than it announces.
func (s state) behindNAT(other state) bool {
	return len(s.Sets) > 0 && BehindNAT(&s.Sets[0], other.id())
}

// BehindNAT reports whether tunnels of a cluster come to a member of the ClusterSet from other addresses than the
// cluster announces. Then BFD may report working ways as down.
func BehindNAT(set *mcv1alpha2.ClusterSet, id string) bool {
	return set.Annotations[multicluster.AnnotationTunnelSources+id] != ""
}

// ComesOrGoes reports whether a Gateway has a phase: no new connection uses it, and its ways may be down.
func ComesOrGoes(g *mcv1alpha1.Gateway) bool {
	return g.Annotations[multicluster.AnnotationPhase] != ""
}

// Leaving returns the addresses of another cluster's Gateways that leave. Ways to them may be down.
func Leaving(info *mcv1alpha1.ClusterInfoImport) (out []string) {
	for _, g := range info.Spec.LeavingGateways {
		out = append(out, g.GatewayIP)
	}
	return out
}

// unwatched returns the reason why ways to another cluster are not watched, as far as its announcement shows it.
func (s state) unwatched(other state) string {
	info := s.of(other)
	switch {
	case info == nil:
		return ""
	case !slices.Contains(info.Spec.Features, mcv1alpha1.FeatureActiveGateways):
		return ", which does not announce the feature " + mcv1alpha1.FeatureActiveGateways
	case !slices.Contains(info.Spec.Features, mcv1alpha1.FeatureSingleWays) && len(s.Gateways) < 2 &&
		len(info.Spec.GatewayInfos) < 2:
		return ", which does not announce the feature " + mcv1alpha1.FeatureSingleWays +
			" and has one gateway, as this cluster has"
	}
	return ""
}
