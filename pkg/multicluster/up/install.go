package up

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/deploy/charts"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
)

// Parts of Tombolo, the values of LabelPart.
const (
	agentPart  = "agent"
	memberPart = "member"
	leaderPart = "leader"
)

// Names of the objects by which an installed part is found.
const (
	agents     = "tombolo-agent"
	controller = "antrea-mc-controller"

	controllerConfig = controller + "-config" // a ConfigMap
)

// part is one part of Tombolo in a cluster.
type part struct {
	name      string
	namespace string
	objects   []*unstructured.Unstructured
	// others is set if another installation has made the part. It is left as it is.
	others bool
	note   string // what the set-up has found out for the part's values
}

func (p part) plan() string {
	if p.others {
		return p.name + ": installed already by other means, left as it is"
	}
	text := fmt.Sprintf("%s: apply %d objects", p.name, len(p.objects))
	if p.note != "" {
		text += " (" + p.note + ")"
	}
	return text
}

// render makes the objects of the cluster's parts from the charts.
func (s *site) render(ctx context.Context) error {
	images := map[string]any{}
	if s.o.Registry != "" {
		images["registry"] = strings.TrimSuffix(s.o.Registry, "/")
	}
	if s.o.Tag != "" {
		images["tag"] = s.o.Tag
	}
	found, note := s.found()
	agent := charts.Merged(s.AgentValues, charts.Merged(found, map[string]any{"images": images,
		"withOtherCNI": s.o.WithOtherCNI}))
	controllerOf := func(role string, values map[string]any) map[string]any {
		given, _ := agent["images"].(map[string]any)
		return charts.Merged(map[string]any{"role": role}, charts.Merged(values, map[string]any{"images": given}))
	}
	type wanted struct {
		part
		chart  string
		values map[string]any
		flag   string
	}
	all := []wanted{{part{name: agentPart, namespace: metav1.NamespaceSystem, note: note}, charts.Agent, agent,
		"--values"}}
	if s.member {
		all = append(all, wanted{part{name: memberPart, namespace: deploy.MemberNamespace}, charts.Multicluster,
			controllerOf(memberPart, s.MemberValues), "--member-values"})
	}
	var faults []error
	if s.leader {
		values, note, err := s.central(ctx)
		if err != nil {
			faults = append(faults, err)
		}
		all = append(all, wanted{part{name: leaderPart, namespace: deploy.LeaderNamespace, note: note}, charts.Multicluster,
			controllerOf(leaderPart, values), "--values"})
	}
	s.parts = nil
	for _, w := range all {
		definitions, manifest, err := charts.Embedded(s.o.Version, w.chart, w.namespace, w.values)
		if err == nil {
			w.objects, err = setup.Objects(definitions + manifest)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%w; correct %s, or give --image-registry", err, w.flag))
			continue
		}
		w.objects = slices.DeleteFunc(w.objects, isHook)
		for _, o := range w.objects {
			own(o, w.name)
		}
		if w.others, err = s.madeByOthers(ctx, w.part); err != nil {
			faults = append(faults, err)
		}
		s.parts = append(s.parts, w.part)
	}
	return errors.Join(faults...)
}

// isHook reports whether an object is one that Helm makes for an action, such as a test.
func isHook(o *unstructured.Unstructured) bool { return o.GetAnnotations()["helm.sh/hook"] != "" }

// stays reports whether an object stays when a set-up is taken down: definitions, and the default Tiers, whose deletion
// is refused.
func stays(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "Tier"
}

// own labels an object as one of a set-up, unless it stays.
func own(o *unstructured.Unstructured, part string) {
	if stays(o) {
		return
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelInstalledBy], labels[LabelPart] = InstalledBy, part
	o.SetLabels(labels)
}

// isAgent reports whether an object is of agents, and labelled by own.
func isAgent(o *unstructured.Unstructured) bool { return o.GetLabels()[LabelPart] == agentPart }

// found returns the values that follow from the cluster itself.
func (s *site) found() (values map[string]any, note string) {
	// The Service kubernetes answers only once the agent runs, and the agent needs an API server before that.
	if s.facts.kubeProxy || len(s.facts.servers) == 0 || s.facts.agents != nil && !ours(s.facts.agents) {
		return map[string]any{}, ""
	}
	values = map[string]any{"kubeAPIServerOverride": s.facts.servers[0], "antreaProxy": map[string]any{"proxyAll": true}}
	if s.AgentValues["kubeAPIServerOverride"] != nil {
		return values, "" // the user has thought of it
	}
	return values, "no kube-proxy: kubeAPIServerOverride is " + s.facts.servers[0] + ", antreaProxy.proxyAll is true"
}

// central returns the leader's values for the central cluster, if it is one. Without these values an update would end
// the copies of Namespaces.
func (s *site) central(ctx context.Context) (values map[string]any, note string, _ error) {
	m := &corev1.ConfigMap{}
	err := s.setup.Client.Get(ctx, client.ObjectKey{Namespace: deploy.LeaderNamespace, Name: controllerConfig}, m)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	var have struct {
		Central bool `json:"central"`
	}
	if err == nil {
		err = yaml.Unmarshal([]byte(m.Data["controller_manager_config.yaml"]), &have)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read whether it is the central cluster, in ConfigMap %s/%s: %w", deploy.LeaderNamespace,
			controllerConfig, err)
	}
	if !have.Central {
		return nil, "", nil
	}
	return map[string]any{"central": true}, "it stays the central cluster", nil
}

// ours reports whether a set-up has made an object.
func ours(o metav1.Object) bool { return o.GetLabels()[LabelInstalledBy] == InstalledBy }

// install applies the parts of a cluster, and waits until all of them run.
func (r *run) install(ctx context.Context, s *site) error {
	if s.leader {
		if err := s.namespace(ctx, deploy.LeaderNamespace); err != nil {
			return err
		}
	}
	for i := range s.parts {
		p := s.parts[i]
		if p.others {
			r.report(s.ID, "%s", p.plan())
			continue
		}
		done, err := s.apply(ctx, p)
		if err != nil {
			return err
		}
		r.report(s.ID, "%s: %s", p.name, done)
		if p.note != "" {
			r.report(s.ID, "%s: %s", p.name, p.note)
		}
	}
	return s.running(ctx, func(line string) { r.report(s.ID, "%s", line) })
}

// madeByOthers reports whether a part is there that no set-up has made.
func (s *site) madeByOthers(ctx context.Context, p part) (bool, error) {
	var o client.Object = &appsv1.Deployment{}
	name := controller
	if p.name == agentPart {
		o, name = &appsv1.DaemonSet{}, agents
	}
	err := s.setup.Client.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s/%s: %w", p.namespace, name, err)
	}
	return !ours(o), nil
}

func (s *site) namespace(ctx context.Context, name string) error {
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{LabelInstalledBy: InstalledBy, LabelPart: leaderPart}}}
	err := setup.Write(ctx, func(ctx context.Context) error { return s.setup.Client.Create(ctx, o) })
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create Namespace %s: %w", name, err)
	}
	made := &unstructured.Unstructured{}
	made.SetAPIVersion("v1")
	made.SetKind("Namespace")
	made.SetName(name)
	s.made = append(s.made, made)
	return nil
}

// apply applies the objects of a part, definitions first. It retries objects that the API server refuses because a
// webhook does not answer yet.
func (s *site) apply(ctx context.Context, p part) (done string, _ error) {
	pending := slices.Clone(p.objects)
	slices.SortStableFunc(pending, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	count := map[string]int{}
	var last error
	err := until(ctx, s.o.Limit, func() (bool, error) {
		var again []*unstructured.Unstructured
		last = nil
		for _, o := range pending {
			done, err := s.setup.Apply(ctx, s.objects, o)
			// If a request fails, the API server may still have created the object.
			if done == setup.Created && !stays(o) && !slices.Contains(s.made, o) {
				s.made = append(s.made, o)
			}
			if err != nil && !forNow(err) {
				return false, err
			}
			if err != nil {
				last, again = err, append(again, o)
				continue
			}
			count[done]++
		}
		pending = again
		return len(pending) == 0, nil
	})
	if errors.Is(err, errLimit) {
		err = last
	}
	return fmt.Sprintf("%d objects created, %d configured, %d unchanged", count[setup.Created], count[setup.Configured],
		count[setup.Unchanged]), err
}

// rank orders objects. Objects that others need come first.
func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	case "ServiceAccount", "ConfigMap", "Secret":
		return 2
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service":
		return 3
	case "DaemonSet", "Deployment":
		return 4
	}
	return 5
}

// forNow reports whether a request may succeed a moment later.
func forNow(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsConflict(err)
}

// uninstallMade removes the objects that this run has installed. It leaves agents if one runs, or if it cannot find out
// whether one does.
func (r *run) uninstallMade(ctx context.Context, s *site) error {
	var failed error
	keep := false
	if slices.ContainsFunc(s.made, isAgent) {
		d := &appsv1.DaemonSet{}
		err := s.setup.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: agents}, d)
		switch {
		case err == nil:
			keep = ours(d) && d.Status.DesiredNumberScheduled > 0 && d.Status.NumberReady > 0
		case !apierrors.IsNotFound(err):
			keep = true
			failed = fmt.Errorf("see whether agents run: read DaemonSet %s/%s: %w", metav1.NamespaceSystem, agents, err)
		}
	}
	n := 0
	for _, o := range slices.Backward(s.made) {
		if keep && isAgent(o) {
			continue
		}
		err := s.setup.Client.Delete(ctx, o.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			failed = errors.Join(failed, fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err))
			continue
		}
		if err == nil {
			n++
		}
	}
	if n > 0 {
		r.report(s.ID, "%d objects deleted again", n)
	}
	if keep {
		r.report(s.ID, "agents stay, since Pods have their network from them; `tombolo mc down --agents` removes them")
	}
	return failed
}

// Merged returns values, and others for keys that the first do not have.
func Merged(values, others map[string]any) map[string]any { return charts.Merged(values, others) }
