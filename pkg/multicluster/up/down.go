package up

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/deploy"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
)

// leaveLimit is how long a member's controller may take to withdraw what it has exported and imported.
const leaveLimit = 2 * time.Minute

// DownOptions are the options of Down.
type DownOptions struct {
	ClusterSet string
	// Agents removes agents and Open vSwitch too. Pods lose their network then.
	Agents bool
	Report func(cluster, line string)
}

// Down removes a ClusterSet. All members leave, the leader's ClusterSet is deleted, and controllers that a set-up has
// installed are removed. The first cluster is the leader. Definitions, and objects of other installations, stay.
func Down(ctx context.Context, clusters []Cluster, o DownOptions) error {
	r, err := found(ctx, clusters, o)
	if err != nil {
		return err
	}
	return r.down(ctx, o)
}

func (r *run) down(ctx context.Context, o DownOptions) error {
	if err := each(r.sites, func(s *site) error { return r.leave(ctx, s) }); err != nil {
		return err
	}
	if err := r.destroy(ctx, r.sites[0]); err != nil {
		return fmt.Errorf("cluster %s: %w", r.sites[0].ID, err)
	}
	return each(r.sites, func(s *site) error { return r.uninstall(ctx, s, o) })
}

// found opens clusters, and reads the objects of the ClusterSet in them.
func found(ctx context.Context, clusters []Cluster, o DownOptions) (*run, error) {
	r, err := open(clusters, Options{ClusterSet: o.ClusterSet, Report: o.Report})
	if err != nil {
		return nil, err
	}
	err = each(r.sites, func(s *site) error {
		if _, err := s.reach(ctx); err != nil {
			return err
		}
		return errors.Join(checkRights(ctx, s), readNodes(ctx, s), s.findSets(ctx))
	})
	if err := errors.Join(checkTwice(r), err); err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	return r, nil
}

// findSets reads the ClusterSets of a cluster by name, with any cluster ID. If a Namespace has another ClusterSet
// instead, that is an error, since its controller would be removed.
func (s *site) findSets(ctx context.Context) error {
	var faults []error
	for _, at := range s.setPlaces() {
		sets, err := s.clusterSets(ctx, at.namespace)
		if err != nil {
			return err
		}
		var others []string
		for _, set := range sets {
			if set.Name == s.o.ClusterSet {
				*at.to = &set
			} else {
				others = append(others, set.Name)
			}
		}
		if *at.to == nil && len(others) > 0 {
			faults = append(faults, fmt.Errorf("it has no ClusterSet %s in Namespace %s, but %s: give --clusterset %s, or "+
				"`tombolo %s` first", s.o.ClusterSet, at.namespace, strings.Join(others, ", "), others[0], at.remedy))
		}
	}
	if s.facts.leaderSet != nil && !s.leader {
		faults = append(faults, fmt.Errorf("it is the leader of ClusterSet %s: name it first", s.o.ClusterSet))
	}
	return errors.Join(faults...)
}

// chosen returns the Nodes that a set-up has chosen as Gateways.
func (s *site) chosen() (names []string) {
	for _, n := range s.facts.nodes {
		if n.Annotations[AnnotationChosen] == InstalledBy {
			names = append(names, n.Name)
		}
	}
	return names
}

// Removed returns a line for each thing that Down would remove. It changes nothing.
func Removed(ctx context.Context, clusters []Cluster, o DownOptions) (list []string, _ error) {
	r, err := found(ctx, clusters, o)
	if err != nil {
		return nil, err
	}
	for _, s := range r.sites {
		add := func(format string, args ...any) { list = append(list, s.ID+": "+fmt.Sprintf(format, args...)) }
		for _, name := range s.chosen() {
			add("Gateway on Node %s", name)
		}
		if s.facts.memberSet != nil {
			add("membership in ClusterSet %s", r.ClusterSet)
		}
		if s.leader && s.facts.leaderSet != nil {
			add("ClusterSet %s and its tokens", r.ClusterSet)
		}
		for _, at := range s.setPlaces() {
			if !at.wanted || *at.to != nil {
				continue
			}
			tokens, err := s.setup.Removal(ctx, at.namespace, r.ClusterSet)
			if err != nil && !meta.IsNoMatchError(err) {
				return nil, fmt.Errorf("cluster %s: %w", s.ID, err)
			}
			for _, line := range tokens {
				add("%s", line)
			}
		}
		all, err := s.installed(ctx, o.Agents)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", s.ID, err)
		}
		kinds := map[string]int{}
		for _, i := range all {
			kinds[i.object.GetKind()]++
		}
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			add("%d objects of kind %s", kinds[kind], kind)
		}
	}
	return list, nil
}

// leave takes a member out of its ClusterSet, and waits until its controller has removed all imports.
func (r *run) leave(ctx context.Context, s *site) error {
	for _, name := range s.chosen() {
		if err := s.unchoose(ctx, name); err != nil {
			return err
		}
		r.report(s.ID, "Node %s is no Gateway any more", name)
	}
	if err := r.remove(ctx, s, deploy.MemberNamespace); err != nil || s.facts.memberSet == nil {
		return err
	}
	var waits string
	err := until(ctx, r.leaveLimit, func() (bool, error) {
		left, err := s.leftOf(ctx)
		if waits = left; err != nil {
			waits = fmt.Sprintf("no answer about what is left (%v)", err)
		}
		return waits == "", nil
	})
	if errors.Is(err, errLimit) {
		return fmt.Errorf("after %s there is still %s: does Deployment %s/%s run?", r.leaveLimit, waits,
			deploy.MemberNamespace, controller)
	}
	return err
}

// leftOf returns an object of a member that has not left yet, or "".
func (s *site) leftOf(ctx context.Context) (string, error) {
	set := &mcv1alpha2.ClusterSet{}
	err := s.setup.Client.Get(ctx, client.ObjectKey{Namespace: deploy.MemberNamespace, Name: s.o.ClusterSet}, set)
	if err == nil {
		return "ClusterSet " + set.Name, nil
	}
	if !apierrors.IsNotFound(err) {
		return "", err
	}
	var imports mcv1alpha1.ClusterInfoImportList
	if err := s.setup.Client.List(ctx, &imports, client.InNamespace(deploy.MemberNamespace)); err != nil {
		return "", err
	}
	if len(imports.Items) > 0 {
		return "ClusterInfoImport " + imports.Items[0].Name, nil
	}
	return "", nil
}

// remove deletes the ClusterSet of a Namespace, and its tokens. There may be tokens without a ClusterSet if a set-up
// was interrupted. The webhook of a controller has to allow the deletion, and that controller may still be starting.
func (r *run) remove(ctx context.Context, s *site, namespace string) error {
	err := r.answered(ctx, func() error { return s.setup.Remove(ctx, namespace, r.ClusterSet) })
	if meta.IsNoMatchError(err) {
		return nil // no set-up has come so far as to make a token
	}
	return err
}

// destroy deletes the leader's ClusterSet, with the tokens of members.
func (r *run) destroy(ctx context.Context, s *site) error {
	// A member signs off after it has withdrawn all of its exports.
	start := time.Now()
	for {
		err := r.remove(ctx, s, deploy.LeaderNamespace)
		if !setup.IsMembersLeft(err) || time.Since(start) > r.leaveLimit {
			return err
		}
		if err := r.dismissAll(ctx, s); err != nil {
			return err
		}
	}
}

// dismissAll removes announcements of members that have left. If a member's controller restarts while the member
// leaves, it does not remove its own announcement.
func (r *run) dismissAll(ctx context.Context, leader *site) error {
	for _, s := range r.sites {
		if s.facts.memberSet == nil {
			continue
		}
		dismissed, err := leader.dismiss(ctx, s.facts.memberSet.Spec.ClusterID)
		if err != nil {
			return err
		}
		if dismissed {
			r.report(leader.ID, "%s has left, and its controller has not signed off: its announcement is deleted", s.ID)
		}
	}
	return nil
}

// item is an object that a set-up has installed.
type item struct {
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
}

// installed returns the objects that a set-up has installed, without definitions.
func (s *site) installed(ctx context.Context, agents bool) ([]item, error) {
	d, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return nil, fmt.Errorf("reach its API server: %w", err)
	}
	groups, err := d.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("list the kinds that it serves: %w", err)
	}
	var all []item
	for _, g := range groups {
		version, err := schema.ParseGroupVersion(g.GroupVersion)
		if err != nil {
			continue
		}
		for _, kind := range g.APIResources {
			if !slices.Contains(kind.Verbs, "list") || !slices.Contains(kind.Verbs, "delete") ||
				kind.Name == "customresourcedefinitions" || kind.Name == "events" {
				continue
			}
			list, err := s.objects.Resource(version.WithResource(kind.Name)).List(ctx,
				metav1.ListOptions{LabelSelector: LabelInstalledBy + "=" + InstalledBy})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", kind.Name, err)
			}
			for _, o := range list.Items {
				if metav1.GetControllerOf(&o) == nil && (agents || !isAgent(&o)) {
					all = append(all, item{version.WithResource(kind.Name), &o})
				}
			}
		}
	}
	// Objects that others need go last.
	slices.SortStableFunc(all, func(a, b item) int { return rank(b.object) - rank(a.object) })
	return all, nil
}

// uninstall removes what a set-up has installed in a cluster.
func (r *run) uninstall(ctx context.Context, s *site, o DownOptions) error {
	all, err := s.installed(ctx, o.Agents)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	n := 0
	for _, i := range all {
		err := s.objects.Resource(i.resource).Namespace(i.object.GetNamespace()).Delete(ctx, i.object.GetName(),
			metav1.DeleteOptions{PropagationPolicy: &background})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", i.object.GetKind(), i.object.GetName(), err)
		}
		n++
	}
	r.report(s.ID, "%d objects deleted; definitions stay", n)
	if o.Agents {
		r.report(s.ID, "each Node keeps files and interfaces until it is cleaned and restarted "+
			"(docs/uninstall.md)")
		return nil
	}
	r.report(s.ID, "agents stay, since Pods have their network from them; --agents removes them")
	return nil
}

// IDOf returns a cluster ID for the name of a context, or of a kubeconfig file, in the form that IDs need.
func IDOf(name string) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	for _, ending := range []string{".kubeconfig", ".yaml", ".yml", ".conf"} {
		id = strings.TrimSuffix(id, ending)
	}
	return strings.Trim(id, "-.")
}
