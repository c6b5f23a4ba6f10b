package gather

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/cli/remote"
)

// ownPods lists the Pods of Tombolo in a Namespace.
func (c *cluster) ownPods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := c.dynamic.Resource(gvr("", "v1", "pods")).Namespace(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app in (tombolo,antrea)"})
	if err != nil {
		return nil, err
	}
	var all []corev1.Pod
	for _, item := range list.Items {
		if !own(item) {
			continue
		}
		text, err := item.MarshalJSON()
		if err != nil {
			return nil, err
		}
		var pod corev1.Pod
		if err := json.Unmarshal(text, &pod); err != nil {
			return nil, err
		}
		if c.wanted(pod) {
			all = append(all, pod)
		}
	}
	return all, nil
}

// ofDaemonSet reports whether a Pod belongs to a DaemonSet.
func ofDaemonSet(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
}

// wanted reports whether the logs of a Pod are read. Logs of controllers are read always, and logs of DaemonSets on the
// requested Nodes. If the labels of Nodes are unknown, the logs on all Nodes are read.
func (c *cluster) wanted(pod corev1.Pod) bool {
	switch {
	case !ofDaemonSet(pod):
		return true
	case c.NoAgents:
		return false
	case len(c.Nodes) > 0 && c.nodesUnknown:
		return slices.Contains(c.Nodes, pod.Spec.NodeName)
	case len(c.Nodes) == 0 && c.NodeLabels == "", c.nodesUnknown:
		return true
	}
	return slices.ContainsFunc(c.agents, func(a remote.Agent) bool { return a.Node == pod.Spec.NodeName })
}

// logPart is one log of a Pod.
type logPart struct {
	container string
	previous  bool
}

// containerLogs lists the logs of a Pod, with those before the last restart of a container.
func containerLogs(pod corev1.Pod) []logPart {
	var all []logPart
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all = append(all, logPart{c.Name, false})
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if s.Name == c.Name && s.RestartCount > 0 {
				all = append(all, logPart{c.Name, true})
			}
		}
	}
	return all
}

// log adds a log of a container: the newest part.
func (c *cluster) log(ctx context.Context, pod corev1.Pod, l logPart) {
	name := "logs/" + c.word(pod.Namespace) + "_" + c.word(pod.Name) + "/" + l.container + ".log"
	// LimitBytes is not set: the kubelet would count from the oldest line on, and the newest lines would be missing.
	since, lines := int64(c.Since.Seconds()), int64(logLines)
	o := corev1.PodLogOptions{Container: l.container, Timestamps: true, SinceSeconds: &since, TailLines: &lines,
		Previous: l.previous}
	if l.previous {
		name = strings.TrimSuffix(name, ".log") + ".previous.log"
	}
	ctx, cancel := context.WithTimeout(ctx, 3*c.Timeout)
	defer cancel()
	var text tail
	if err := c.Logs(ctx, pod.Namespace, pod.Name, o, &text); err != nil {
		c.fail(name, err)
	}
	if content := text.bytes(); len(content) > 0 {
		c.put(name, content)
	}
}

// tail keeps the last logLimit bytes of a text, from the beginning of a line.
type tail struct {
	text []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if len(t.text) > 2*logLimit {
		t.shorten()
	}
	return len(p), nil
}

func (t *tail) shorten() {
	if len(t.text) > logLimit {
		t.text, t.cut = append([]byte(nil), t.text[len(t.text)-logLimit:]...), true
	}
}

func (t *tail) bytes() []byte {
	t.shorten()
	if t.cut {
		t.text = t.text[bytes.IndexByte(t.text, '\n')+1:]
	}
	return t.text
}
