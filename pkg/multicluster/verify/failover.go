package verify

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/probe"
)

const (
	// watchFor is how long clients ask while a switch ends and starts again.
	watchFor = 20 * time.Second
	// beforeLoss is how long they ask before.
	beforeLoss = 3 * time.Second
	// awayLeast is the least time for which lost connections are accepted. With its interval for 1,000 Nodes, BFD takes
	// that long.
	awayLeast = 3 * time.Second
)

// awayMost is how long new connections may be lost: twice what BFD takes to find it.
func (r *run) awayMost() time.Duration {
	most := awayLeast
	for _, s := range r.states {
		if s.Agent != nil {
			most = max(most, 2*s.Agent.WayDownAfter)
		}
	}
	return most
}

// failovers interrupts the switch of one Gateway of each cluster, one cluster after the other.
func (r *run) failovers(ctx context.Context, services [2][]netip.Addr) {
	for to := range r.clusters {
		from := 1 - to
		name := r.way("failover", from)
		if len(services[from]) == 0 {
			r.results.skip(name, "not tried: mend the above first")
			continue
		}
		gateway, why := r.toLose(ctx, to)
		if why != "" {
			r.results.skip(name, why)
			continue
		}
		r.results.check(name, func() (string, error) { return r.failover(ctx, from, services[from][0], gateway) })
	}
}

// toLose returns the Node of a Gateway whose loss can be tested: another Gateway can replace it, and the server is on
// another Node. Otherwise it returns the reason why there is no such Node.
func (r *run) toLose(ctx context.Context, i int) (node, why string) {
	var server corev1.Pod
	if err := r.clusters[i].Client.Get(ctx, client.ObjectKey{Namespace: r.name, Name: "server"}, &server); err != nil {
		return "", fmt.Sprintf("Pod %s/server in %s: %v", r.name, r.clusters[i].Name, err)
	}
	used := 0
	for _, g := range r.states[i].Gateways {
		if g.Annotations[multicluster.AnnotationPhase] != "" {
			continue
		}
		if used++; g.Name != server.Spec.NodeName {
			node = g.Name
		}
	}
	if used < 2 {
		return "", fmt.Sprintf("%s has no second Gateway: annotate another Ready Node with %s=true", r.clusters[i].Name,
			multicluster.AnnotationGateway)
	}
	return node, ""
}

// failover makes a client send requests while the switch of a Gateway of the other cluster restarts, and waits until
// the switch is back.
func (r *run) failover(ctx context.Context, from int, address netip.Addr, gateway string) (string, error) {
	to := 1 - from
	var pods corev1.PodList
	err := r.clusters[to].Client.List(ctx, &pods, client.InNamespace(multicluster.AgentNamespace),
		client.MatchingLabels{"component": "tombolo-ovs"}, client.MatchingFields{"spec.nodeName": gateway})
	if err != nil {
		return "", fmt.Errorf("list Pods of Namespace %s in %s: %w", multicluster.AgentNamespace, r.clusters[to].Name, err)
	}
	if len(pods.Items) != 1 {
		return "", wrongf("see the DaemonSet tombolo-ovs", "Node %s of %s has %d Pods of component tombolo-ovs, want one",
			gateway, r.clusters[to].Name, len(pods.Items))
	}
	type asked struct {
		answers []probe.Answer
		err     error
	}
	asker := fmt.Sprintf("client-failover-%d", from)
	done := make(chan asked, 1)
	go func() {
		answers, err := r.ask(ctx, from, asker,
			[]probe.Question{{Name: "failover", Address: endpoint(address), Want: service(to), Watch: watchFor}})
		done <- asked{answers, err}
	}()
	lost := r.lose(ctx, from, asker, to, &pods.Items[0])
	a := <-done
	if lost != nil {
		return "", lost
	}
	if a.err != nil {
		return "", a.err
	}
	return r.lost(gateway, a.answers[0])
}

// lost describes the requests while the switch of a Gateway did not run.
func (r *run) lost(gateway string, a probe.Answer) (string, error) {
	const remedy = "see `tombolo get peers` on the Gateways' Nodes: each way has to be up, and BFD has to be able to " +
		"pass between all of them"
	if a.Answered == 0 {
		return "", &wrong{what: "no answer: " + a.Error, remedy: remedy}
	}
	lost := fmt.Sprintf("new connections failed for %s, %d of %d", a.Away.Round(time.Millisecond), a.Failed,
		a.Failed+a.Answered)
	if most := r.awayMost(); a.Away > most {
		return "", &wrong{
			what: fmt.Sprintf("while Open vSwitch of Gateway %s did not run, %s, expected at most %s; the last: %s", gateway,
				lost, most, a.Error), remedy: remedy}
	}
	return fmt.Sprintf("Open vSwitch of Gateway %s did not run: %s", gateway, lost), nil
}

// lose deletes a Pod of Open vSwitch while a client asks, and waits until there is another.
func (r *run) lose(ctx context.Context, from int, name string, to int, ovs *corev1.Pod) error {
	asking := &corev1.Pod{}
	if err := r.wait(ctx, func(ctx context.Context) (bool, error) {
		err := r.clusters[from].Client.Get(ctx, client.ObjectKey{Namespace: r.name, Name: name}, asking)
		return err == nil && asking.Status.Phase != corev1.PodPending, client.IgnoreNotFound(err)
	}); err != nil {
		return fmt.Errorf("pod %s in %s does not run: %w", name, r.clusters[from].Name, err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(beforeLoss):
	}
	c := r.clusters[to].Client
	if err := c.Delete(ctx, ovs, &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}); err != nil {
		return fmt.Errorf("delete Pod %s/%s in %s: %w", ovs.Namespace, ovs.Name, r.clusters[to].Name, err)
	}
	err := r.wait(ctx, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(ovs.Namespace), client.MatchingLabels{"component": "tombolo-ovs"},
			client.MatchingFields{"spec.nodeName": ovs.Spec.NodeName})
		for _, p := range pods.Items {
			for _, condition := range p.Status.Conditions {
				if p.UID != ovs.UID && condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
					return true, nil
				}
			}
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("no new Pod of Open vSwitch is Ready on Node %s of %s: %w; see `kubectl get pods -n %s`",
			ovs.Spec.NodeName, r.clusters[to].Name, err, ovs.Namespace)
	}
	return nil
}
