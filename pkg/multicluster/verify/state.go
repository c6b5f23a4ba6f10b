// Package verify checks two members of a ClusterSet as a user would after joining them: the reports of their
// controllers about each other, and packets both ways between temporary Pods.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/pods"
)

// state is what a member's API server says.
type state struct {
	Name     string // as the user names the cluster
	Sets     []mcv1alpha2.ClusterSet
	Gateways []mcv1alpha1.Gateway
	Imports  []mcv1alpha1.ClusterInfoImport
	Agent    *Agent // nil where it could not be read
	Image    string // of the agent; empty without an agent
}

// Agent has the settings of a cluster's agents that checks depend on.
type Agent struct {
	Gateways          bool          // the agents serve Gateways
	GatewayNamespace  string        // the Namespace of Gateways; empty for the agents' own
	PodToPod          bool          // Pods reach Pods of other clusters by their own addresses
	StretchedPolicies bool          // policies with scope ClusterSet are in force
	WayDownAfter      time.Duration // a way that is silent for so long is down
}

// read reads the state of a member. Its controller is in a Namespace of the options, its agents in
// multicluster.AgentNamespace.
func read(ctx context.Context, c Cluster, o Options) (state, error) {
	namespace := o.Namespace
	s := state{Name: c.Name}
	var sets mcv1alpha2.ClusterSetList
	var gateways mcv1alpha1.GatewayList
	var imports mcv1alpha1.ClusterInfoImportList
	for kind, list := range map[string]client.ObjectList{"ClusterSets": &sets, "Gateways": &gateways,
		"ClusterInfoImports": &imports} {
		if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return s, fmt.Errorf("list %s of Namespace %s: %w", kind, namespace, err)
		}
	}
	s.Sets, s.Gateways, s.Imports = sets.Items, gateways.Items, imports.Items
	var settings corev1.ConfigMap
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: multicluster.AgentNamespace, Name: "antrea-config"}, &settings)
	if client.IgnoreNotFound(err) != nil {
		return s, fmt.Errorf("read ConfigMap %s/antrea-config: %w", multicluster.AgentNamespace, err)
	}
	if agent, err := o.Agent([]byte(settings.Data["antrea-agent.conf"])); err == nil {
		s.Agent = &agent
	}
	s.Image, err = pods.AgentImage(ctx, c.Client)
	return s, err
}

// id is the cluster's ID in its ClusterSet.
func (s state) id() string {
	if len(s.Sets) == 0 {
		return ""
	}
	return s.Sets[0].Spec.ClusterID
}

// addresses returns the addresses at which the other clusters reach the Gateways.
func (s state) addresses() []string {
	var all []string
	for _, g := range s.Gateways {
		if g.Annotations[multicluster.AnnotationPhase] != multicluster.PhaseLeft { // no longer announced to others
			all = append(all, g.GatewayIP)
		}
	}
	slices.Sort(all)
	return all
}

// of returns this cluster's import of another cluster's ClusterInfo, or nil.
func (s state) of(other state) *mcv1alpha1.ClusterInfoImport {
	for i := range s.Imports {
		if s.Imports[i].Spec.ClusterID == other.id() {
			return &s.Imports[i]
		}
	}
	return nil
}

// wrong is why a check fails, and what to do about it.
type wrong struct {
	what, remedy string
	passes       bool // it may pass with time, without an action
}

func (w *wrong) Error() string { return w.what }

func wrongf(remedy, format string, args ...any) error {
	return &wrong{what: fmt.Sprintf(format, args...), remedy: remedy}
}

// passingf is wrongf for what may pass with time.
func passingf(remedy, format string, args ...any) error {
	return &wrong{what: fmt.Sprintf(format, args...), remedy: remedy, passes: true}
}

// member checks that a cluster is a Ready member.
func (s state) member() (string, error) {
	switch {
	case len(s.Sets) == 0:
		return "", wrongf("join it: tombolo mc join; or name the Namespace of its ClusterSet with --namespace",
			"%s is in no ClusterSet", s.Name)
	case len(s.Sets) > 1:
		return "", wrongf("delete the wrong one", "%s has %d ClusterSets", s.Name, len(s.Sets))
	}
	set := s.Sets[0]
	why := "its controller has not looked at it: does Deployment antrea-mc-controller run?"
	for _, c := range set.Status.Conditions {
		if c.Type != mcv1alpha2.ClusterSetReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("%s is a Ready member of ClusterSet %s as %s", s.Name, set.Name, s.id()), nil
		}
		why = strings.TrimSpace(c.Reason + " " + c.Message)
	}
	for _, cluster := range set.Status.ClusterStatuses {
		for _, c := range cluster.Conditions {
			if c.Status != corev1.ConditionTrue && c.Message != "" && c.Type == mcv1alpha2.ClusterReady {
				why += "; leader: " + strings.TrimSpace(c.Reason+" "+c.Message)
			}
		}
	}
	return "", passingf("see `kubectl describe clusterset -n "+set.Namespace+" "+set.Name+"` in that cluster",
		"ClusterSet %s of %s is not Ready: %s", set.Name, s.Name, why)
}

// together checks that two members are of one ClusterSet.
func together(a, b state) (string, error) {
	if len(a.Sets) == 0 || len(b.Sets) == 0 {
		return "", wrongf("join both", "one of them is in no ClusterSet")
	}
	x, y := a.Sets[0], b.Sets[0]
	switch {
	case a.id() == b.id():
		return "", wrongf("give each member a cluster ID of its own", "%s and %s have the same cluster ID, %s", a.Name,
			b.Name, a.id())
	case x.Name != y.Name || x.Spec.Namespace != y.Spec.Namespace:
		return "", wrongf("join both to one", "%s is in ClusterSet %s (%s), %s in %s (%s)", a.Name, x.Name, x.Spec.Namespace,
			b.Name, y.Name, y.Spec.Namespace)
	}
	return "both are in ClusterSet " + x.Name, nil
}

// gateways checks that a cluster has one at least.
func (s state) gateways() (string, error) {
	if s.Agent != nil && !s.Agent.Gateways {
		return "", wrongf("set both in ConfigMap antrea-config, and restart the agents",
			"the agents of %s have featureGates.Multicluster or multicluster.enableGateway off", s.Name)
	}
	if s.Agent != nil && len(s.Sets) > 0 {
		where := s.Sets[0].Namespace
		if watched := cmp.Or(s.Agent.GatewayNamespace, multicluster.AgentNamespace); watched != where {
			return "", wrongf("set multicluster.namespace: "+where+" in antrea-agent.conf of ConfigMap "+
				multicluster.AgentNamespace+"/antrea-config, and restart the agents",
				"the agents of %s look for Gateways in Namespace %s, and its controller is in %s", s.Name, watched, where)
		}
	}
	if len(s.Gateways) == 0 {
		return "", wrongf("annotate a Ready Node: kubectl annotate node NODE multicluster.antrea.io/gateway=true",
			"%s has no Gateway", s.Name)
	}
	return fmt.Sprintf("%s has %d: %s", s.Name, len(s.Gateways), strings.Join(s.addresses(), ", ")), nil
}

// knows checks that a cluster knows the ranges and Gateways of another.
func (s state) knows(other state) (string, error) {
	const wait = "wait half a minute; then see the ResourceExports of that cluster in the leader, and the log of " +
		"antrea-mc-controller"
	info := s.of(other)
	if info == nil {
		return "", passingf(wait, "%s has no ClusterInfoImport of %s", s.Name, other.id())
	}
	for _, c := range info.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			return "", wrongf("mend what it names", "ClusterInfoImport %s of %s: %s %s", info.Name, s.Name, c.Reason, c.Message)
		}
	}
	var known []string
	for _, g := range info.Spec.GatewayInfos {
		known = append(known, g.GatewayIP)
	}
	slices.Sort(known)
	have := other.addresses()
	// A peer may know one of several gateways only: an original leader hands on one.
	for _, address := range known {
		if !slices.Contains(have, address) {
			return "", passingf(wait, "%s knows gateways %s of %s, which has %s", s.Name, strings.Join(known, ", "), other.id(),
				strings.Join(have, ", "))
		}
	}
	if len(known) == 0 {
		return "", passingf(wait, "%s knows no gateway of %s, which has %s", s.Name, other.id(), strings.Join(have, ", "))
	}
	back := other.of(s)
	if back != nil {
		if x, y, meet := claims.Meeting(ranges(info), ranges(back)); meet {
			return "", wrongf("clusters of a ClusterSet need ranges of their own", "range %s of %s meets %s of %s", x,
				other.id(), y, s.id())
		}
	}
	return fmt.Sprintf("%s knows %s: Services %s, gateways %s", s.Name, other.id(),
		strings.Join(info.Spec.Services(), ", "), strings.Join(known, ", ")), nil
}

func ranges(i *mcv1alpha1.ClusterInfoImport) (all []netip.Prefix) {
	for _, text := range i.Spec.Ranges() {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// podToPod says why Pods are not reached by their own addresses, or nothing.
func podToPod(a, b state) string {
	for _, s := range []state{a, b} {
		if s.Agent == nil {
			return "the agents' configuration of " + s.Name + " cannot be read"
		}
		if !s.Agent.PodToPod {
			return "multicluster.enablePodToPodConnectivity is off in " + s.Name
		}
	}
	for _, way := range [][2]state{{a, b}, {b, a}} {
		if info := way[0].of(way[1]); info == nil || len(info.Spec.PodCIDRs) == 0 {
			return way[1].Name + " announces no Pod ranges (podCIDRs of its controller)"
		}
	}
	return ""
}

// stretched says why no policies span the clusters, or nothing.
func stretched(a, b state) string {
	for _, s := range []state{a, b} {
		if s.Agent == nil || !s.Agent.StretchedPolicies {
			return "multicluster.enableStretchedNetworkPolicy is off in " + s.Name
		}
	}
	return ""
}

// remedyOf is what to do about an error.
func remedyOf(err error) string {
	var w *wrong
	if errors.As(err, &w) {
		return w.remedy
	}
	return ""
}
