package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
)

const (
	// hookLimit is how long the webhook of a controller that starts may take to answer.
	hookLimit = time.Minute
	// signOffLimit is how long a leaving member may take to remove its announcement. It is a part of undoLimit.
	signOffLimit = 10 * time.Second
	// seenLimit is how long clusters may take to receive each other's Gateways.
	seenLimit = 3 * time.Minute
	// gateways is the number of Nodes that a set-up chooses in each cluster: one, and another to replace it.
	gateways = 2
)

// join makes the ClusterSet, chooses Gateways, and waits until the members know each other.
func (r *run) join(ctx context.Context) error {
	if err := r.init(ctx, r.sites[0]); err != nil {
		return fmt.Errorf("cluster %s: %w", r.sites[0].ID, err)
	}
	for _, step := range []func(context.Context, *site) error{r.joinOne, r.choose, r.knows} {
		if err := r.together(ctx, r.members(), step); err != nil {
			return err
		}
	}
	return nil
}

// answered calls f until the webhook of a controller that has just started answers.
func (r *run) answered(ctx context.Context, f func() error) error {
	var last error
	err := until(ctx, r.hookLimit, func() (bool, error) {
		last = f()
		return last == nil || !forNow(last), nil
	})
	return cmp.Or(last, err)
}

// init makes the leader's ClusterSet.
func (r *run) init(ctx context.Context, s *site) error {
	if s.facts.leaderSet != nil {
		r.report(s.ID, "leader of ClusterSet %s already", r.ClusterSet)
		return nil
	}
	err := r.answered(ctx, func() error {
		return s.setup.Init(ctx, deploy.LeaderNamespace, r.ClusterSet, s.ID, func() error { return nil })
	})
	if err != nil {
		return err
	}
	r.done(func(ctx context.Context) error { return s.setup.Remove(ctx, deploy.LeaderNamespace, r.ClusterSet) })
	return nil
}

// tokenOf is the name of a member's token, in the leader and in the member.
func tokenOf(id string) string { return id + "-token" }

// joinOne joins a cluster, unless it has joined already.
func (r *run) joinOne(ctx context.Context, s *site) error {
	if s.facts.memberSet != nil {
		r.report(s.ID, "member of ClusterSet %s already", r.ClusterSet)
		return r.isReady(ctx, s)
	}
	leader, name := r.sites[0], tokenOf(s.ID)
	account := &corev1.ServiceAccount{}
	err := leader.setup.Client.Get(ctx, client.ObjectKey{Namespace: deploy.LeaderNamespace, Name: name}, account)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for ServiceAccount %s in the leader: %w", name, err)
	}
	had := err == nil && account.Annotations[AnnotationToken] != InstalledBy
	if err := r.undoAnnouncement(ctx, s.ID); err != nil {
		return err
	}
	var secret *corev1.Secret
	err = leader.setup.CreateToken(ctx, deploy.LeaderNamespace, name, s.ID, func(made *corev1.Secret) error {
		secret = made
		return nil
	})
	if err != nil {
		return fmt.Errorf("make its token in the leader: %w", err)
	}
	if !had {
		r.done(func(ctx context.Context) error { return leader.setup.DeleteToken(ctx, deploy.LeaderNamespace, name) })
	}
	// An interrupted run may have left the Secret, and its token may be of an account that no longer exists.
	if err := s.removeToken(ctx, name); err != nil {
		return err
	}
	return r.answered(ctx, func() error {
		// The member's ClusterSet is made as the last object, so a Join that fails has removed it.
		err := s.setup.Join(ctx, &setup.JoinConfig{ClusterSetID: r.ClusterSet, ClusterID: s.ID,
			Namespace: deploy.MemberNamespace, LeaderClusterID: leader.ID, LeaderNamespace: deploy.LeaderNamespace,
			LeaderAPIServer: r.leaderServer(), Secret: secret, SkipLeaderCheck: r.SkipLeaderCheck})
		if err == nil {
			r.done(func(ctx context.Context) error {
				if err := s.setup.Remove(ctx, deploy.MemberNamespace, r.ClusterSet); err != nil {
					return err
				}
				return leader.signedOff(ctx, s.ID)
			})
		}
		return err
	})
}

// undoAnnouncement adds the deletion of a member's announcement to the undo steps, unless the leader has the
// announcement already. The step for the member's token is added later, so it is undone earlier. Without its token a
// member cannot announce itself again.
func (r *run) undoAnnouncement(ctx context.Context, id string) error {
	leader := r.sites[0]
	if err := leader.setup.Client.Get(ctx, client.ObjectKeyFromObject(announcement(id)), announcement(id)); err == nil {
		return nil
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("look for MemberClusterAnnounce %s in the leader: %w", announcement(id).Name, err)
	}
	r.done(func(ctx context.Context) error {
		_, err := leader.dismiss(ctx, id)
		return err
	})
	return nil
}

// announcement is the object by which a member is known to the leader.
func announcement(id string) *mcv1alpha1.MemberClusterAnnounce {
	return &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.LeaderNamespace,
		Name: multicluster.AnnounceName(id)}}
}

// signedOff waits until the controller of a leaving member has withdrawn its exports and its announcement at this
// leader, for a limited time.
func (s *site) signedOff(ctx context.Context, id string) error {
	var last error
	err := until(ctx, signOffLimit, func() (bool, error) {
		last = s.setup.Client.Get(ctx, client.ObjectKeyFromObject(announcement(id)), announcement(id))
		return apierrors.IsNotFound(last), nil
	})
	if errors.Is(err, errLimit) {
		err = last // nil: it is dismissed instead
	}
	return err
}

// dismiss deletes the announcement of a member. It returns false if there is no such announcement.
func (s *site) dismiss(ctx context.Context, id string) (bool, error) {
	a := announcement(id)
	err := s.setup.Client.Delete(ctx, a)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete MemberClusterAnnounce %s/%s: %w", a.Namespace, a.Name, err)
	}
	return err == nil, nil
}

// removeToken removes a member's Secret that commands have made.
func (s *site) removeToken(ctx context.Context, name string) error {
	secret := &corev1.Secret{}
	err := s.setup.Client.Get(ctx, client.ObjectKey{Namespace: deploy.MemberNamespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if _, made := secret.Annotations[multicluster.AnnotationCreatedByAntctl]; err == nil && !made {
		return fmt.Errorf("there is a Secret %s/%s that no command has made: delete it, or give the cluster another ID",
			secret.Namespace, name)
	}
	if err == nil {
		err = client.IgnoreNotFound(s.setup.Client.Delete(ctx, secret))
	}
	if err != nil {
		return fmt.Errorf("remove Secret %s/%s: %w", deploy.MemberNamespace, name, err)
	}
	return nil
}

// isReady waits until the member's ClusterSet is ready.
func (r *run) isReady(ctx context.Context, s *site) error {
	var why string
	err := until(ctx, r.Limit, func() (bool, error) {
		set := &mcv1alpha2.ClusterSet{}
		err := s.setup.Client.Get(ctx, client.ObjectKey{Namespace: deploy.MemberNamespace, Name: r.ClusterSet}, set)
		if why = setup.Readiness(set); err != nil {
			why = err.Error()
		}
		return why == "", nil
	})
	if errors.Is(err, errLimit) {
		return fmt.Errorf("after %s its ClusterSet %q is not ready: %s", r.Limit, r.ClusterSet, why)
	}
	return err
}

// isGateway reports whether a Node is annotated as a Gateway.
func isGateway(n *corev1.Node) bool {
	_, is := n.Annotations[multicluster.AnnotationGateway]
	return is
}

// toChoose returns the Nodes that will become Gateways: the given ones, or a choice if no Node is annotated. Nodes of
// the control plane, and Nodes that take no Pods, come last.
func (s *site) toChoose() (names []string) {
	if len(s.Gateways) > 0 {
		return slices.DeleteFunc(slices.Clone(s.Gateways), func(name string) bool {
			return slices.ContainsFunc(s.facts.nodes, func(n corev1.Node) bool { return n.Name == name && isGateway(&n) })
		})
	}
	if slices.ContainsFunc(s.facts.nodes, func(n corev1.Node) bool { return isGateway(&n) }) {
		return nil
	}
	nodes := slices.Clone(s.facts.nodes)
	slices.SortFunc(nodes, func(a, b corev1.Node) int {
		if d := burden(&a) - burden(&b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, n := range nodes[:min(gateways, len(nodes))] {
		names = append(names, n.Name)
	}
	return names
}

// labelControlPlane is on Nodes of the control plane. They become Gateways last.
const labelControlPlane = "node-role.kubernetes.io/control-plane"

// burden orders Nodes: the lower it is, the better a Gateway the Node is.
func burden(n *corev1.Node) int {
	_, controls := n.Labels[labelControlPlane]
	switch {
	case n.Spec.Unschedulable:
		return 2
	case controls:
		return 1
	}
	return 0
}

// choose annotates Nodes as Gateways.
func (r *run) choose(ctx context.Context, s *site) error {
	for _, name := range s.toChoose() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true",%q:%q}}}`, multicluster.AnnotationGateway,
			AnnotationChosen, InstalledBy)
		if err := setup.Write(ctx, func(ctx context.Context) error {
			return s.setup.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(patch)))
		}); err != nil {
			return fmt.Errorf("annotate Node %s as a Gateway: %w", name, err)
		}
		r.report(s.ID, "Gateway on Node %s", name)
		r.done(func(ctx context.Context) error { return s.unchoose(ctx, name) })
	}
	return nil
}

// unchoose removes the annotations of a Gateway that a set-up has chosen.
func (s *site) unchoose(ctx context.Context, name string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null,%q:null}}}`, multicluster.AnnotationGateway,
		AnnotationChosen)
	err := s.setup.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		client.RawPatch(types.MergePatchType, []byte(patch)))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the annotations of Gateway %s: %w", name, err)
	}
	return nil
}

// knows waits until a member has received the Gateways of all others.
func (r *run) knows(ctx context.Context, s *site) error {
	var missing []string
	err := until(ctx, r.seenLimit, func() (bool, error) {
		missing = nil
		for _, other := range r.members() {
			if other == s {
				continue
			}
			info := &mcv1alpha1.ClusterInfoImport{}
			err := s.setup.Client.Get(ctx, client.ObjectKey{Namespace: deploy.MemberNamespace,
				Name: other.ID + multicluster.ClusterInfoSuffix}, info)
			switch {
			case client.IgnoreNotFound(err) != nil:
				missing = append(missing, fmt.Sprintf("%s (%v)", other.ID, err))
			case len(info.Spec.GatewayInfos) == 0:
				missing = append(missing, other.ID)
			}
		}
		return len(missing) == 0, nil
	})
	switch {
	case errors.Is(err, errLimit):
		return fmt.Errorf("after %s it has not received the Gateways of %s: `tombolo mc verify` and `tombolo diagnose` find "+
			"why", r.seenLimit, strings.Join(missing, ", "))
	case err != nil:
		return err
	}
	r.report(s.ID, "it has received the Gateways of all other members")
	return nil
}
