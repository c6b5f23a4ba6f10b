package up

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pause is the time between two looks at a cluster.
const pause = time.Second

// errLimit is the error of until after its limit.
var errLimit = errors.New("the time is over")

// until calls f until f is done or fails. After the limit it does not call f again, but waits for a request that has
// begun.
func until(ctx context.Context, limit time.Duration, f func() (done bool, _ error)) error {
	start := time.Now()
	return wait.PollUntilContextCancel(ctx, pause, true, func(context.Context) (bool, error) {
		done, err := f()
		if err == nil && !done && time.Since(start) > limit {
			err = errLimit
		}
		return done, err
	})
}

// running waits until Nodes are ready, and DaemonSets and Deployments of the set-up run. It reports each change of the
// list of things that it waits for.
func (s *site) running(ctx context.Context, report func(string)) error {
	waits := ""
	err := until(ctx, s.o.Limit, func() (bool, error) {
		now, err := s.waitsFor(ctx)
		if err != nil {
			now = err.Error()
		}
		if now != waits && now != "" {
			report("waiting: " + now)
		}
		waits = now
		return waits == "", nil
	})
	switch {
	case errors.Is(err, errLimit):
		return fmt.Errorf("after %s it still waits for: %s", s.o.Limit, waits)
	case err != nil:
		return err
	}
	report(fmt.Sprintf("%d Nodes are Ready, and all of Tombolo runs", len(s.facts.nodes)))
	return nil
}

// waitsFor returns what a cluster waits for, or "".
func (s *site) waitsFor(ctx context.Context) (string, error) {
	var missing []string
	mine := client.MatchingLabels{LabelInstalledBy: InstalledBy}
	var sets appsv1.DaemonSetList
	if err := s.setup.Client.List(ctx, &sets, mine); err != nil {
		return "", fmt.Errorf("list DaemonSets: %w", err)
	}
	for _, d := range sets.Items {
		if why := lacks(&d); why != "" {
			missing = append(missing, why)
		}
	}
	var deployments appsv1.DeploymentList
	if err := s.setup.Client.List(ctx, &deployments, mine); err != nil {
		return "", fmt.Errorf("list Deployments: %w", err)
	}
	for _, d := range deployments.Items {
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas < want ||
			d.Status.AvailableReplicas < want {
			missing = append(missing, fmt.Sprintf("%s/%s", d.Namespace, d.Name))
		}
	}
	var nodes corev1.NodeList
	if err := s.setup.Client.List(ctx, &nodes); err != nil {
		return "", fmt.Errorf("list Nodes: %w", err)
	}
	isReady := 0
	for _, n := range nodes.Items {
		if ready(&n) {
			isReady++
		}
	}
	if isReady < len(nodes.Items) {
		missing = append(missing, fmt.Sprintf("%d of %d Nodes", len(nodes.Items)-isReady, len(nodes.Items)))
	}
	s.facts.nodes = nodes.Items
	if len(missing) == 0 {
		return "", nil
	}
	return strings.Join(append(missing, s.stuck(ctx)...), ", "), nil
}

// lacks returns a text with the number of Nodes on which a DaemonSet does not run yet, or "". If its Pods are replaced
// only after their deletion, Pods of an earlier version count too.
func lacks(d *appsv1.DaemonSet) string {
	want, run := d.Status.DesiredNumberScheduled, d.Status.NumberReady
	if d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		run = min(run, d.Status.UpdatedNumberScheduled)
	}
	if d.Status.ObservedGeneration == d.Generation && want > 0 && run >= want {
		return ""
	}
	return fmt.Sprintf("%s on %d of %d Nodes", d.Name, run, want)
}

// stuck returns why Pods of the set-up do not start.
func (s *site) stuck(ctx context.Context) (why []string) {
	for _, namespace := range s.namespaces() {
		var pods corev1.PodList
		if err := s.setup.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return append(why, err.Error())
		}
		for _, p := range pods.Items {
			for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
				w := c.State.Waiting
				if w == nil || w.Reason == "PodInitializing" || w.Reason == "ContainerCreating" {
					continue
				}
				why = append(why, fmt.Sprintf("Pod %s/%s: %s %s", p.Namespace, p.Name, w.Reason, c.Image))
			}
		}
	}
	slices.Sort(why)
	return why
}
