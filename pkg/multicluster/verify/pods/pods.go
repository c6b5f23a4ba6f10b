// Package pods runs the programs of `tombolo probe` in temporary Pods, for verifications and benchmarks.
package pods

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// Pod is a program in a Pod.
type Pod struct {
	metav1.ObjectMeta
	Image string
	Args  []string // of `tombolo probe`
	// Node is where it runs; empty for any Node.
	Node string
	// HostNetwork has it run in the network of its Node.
	HostNetwork bool
	// Deadline ends the Pod, if its maker is killed; 0 for never.
	Deadline time.Duration
}

// Object returns the Pod without any rights.
func (p Pod) Object() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: p.ObjectMeta,
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](0), HostNetwork: p.HostNetwork,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true),
				RunAsUser:      ptr.To[int64](65532),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "probe", Image: p.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: append([]string{"tombolo", "probe"}, p.Args...),
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false),
					ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if p.Deadline > 0 {
		pod.Spec.ActiveDeadlineSeconds = ptr.To(max(1, int64(p.Deadline/time.Second)))
	}
	if p.Node != "" {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn,
					Values: []string{p.Node}}}}}}}}
	}
	return pod
}

// Serving reports whether a server's Pod runs and has an address.
func Serving(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" }

// Ended reports whether a client's Pod has ended well.
func Ended(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }

// Await waits until a Pod is as wanted, up to a limit. Its error is why it is not.
func Await(ctx context.Context, c client.Client, pod *corev1.Pod, limit time.Duration, wanted func(*corev1.Pod) bool,
) error {
	err := Until(ctx, limit, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return err == nil && (wanted(pod) || pod.Status.Phase == corev1.PodFailed), client.IgnoreNotFound(err)
	})
	if err == nil && wanted(pod) {
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	return &Failed{why(pod), err}
}

// Failed is a Pod that has not become as it was wanted.
type Failed struct {
	Why string
	Err error // of the wait; nil if the Pod has ended
}

func (f *Failed) Error() string {
	if f.Err == nil {
		return f.Why
	}
	return fmt.Sprintf("%s (%v)", f.Why, f.Err)
}

func (f *Failed) Unwrap() error { return f.Err }

// why returns the reason for the state of a Pod.
func why(pod *corev1.Pod) string {
	text := string(pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			text = c.Message
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && w.Message != "" {
			text = w.Reason + ": " + w.Message
		}
		if x := s.State.Terminated; x != nil {
			text = fmt.Sprintf("ended with code %d: %s", x.ExitCode, x.Message)
		}
	}
	return text
}

// Until waits until something is so, up to a limit. Errors that may pass do not end it.
func Until(ctx context.Context, limit time.Duration, f func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		done, err := f(ctx)
		if !MayPass(err) {
			last = nil
			return done, err
		}
		if ctx.Err() == nil { // else the limit has ended the request
			last = err
		}
		return false, nil
	})
	switch {
	case !wait.Interrupted(err):
		return err
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case last != nil:
		return fmt.Errorf("not within %s: %w", limit, last)
	}
	return fmt.Errorf("not within %s", limit)
}

// MayPass reports whether an error of an API server may be temporary: the server is busy, starting or unreachable, or a
// Namespace is still being deleted.
func MayPass(err error) bool {
	var answered apierrors.APIStatus
	var sent *url.Error
	switch {
	case err == nil:
		return false
	case errors.As(err, &answered):
		code := answered.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests ||
			apierrors.IsTimeout(err) || apierrors.IsConflict(err)
	}
	return errors.As(err, &sent) || errors.Is(err, context.DeadlineExceeded)
}

// Message returns the text that a client has written for its Pod's status.
func Message(pod *corev1.Pod) (text string) {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Terminated != nil {
			text = s.State.Terminated.Message
		}
	}
	return text
}

// AgentImage returns the image of a cluster's agents, which has the program tombolo; empty if there are no agents.
func AgentImage(ctx context.Context, c client.Client) (string, error) {
	var agents appsv1.DaemonSet
	err := c.Get(ctx, client.ObjectKey{Namespace: multicluster.AgentNamespace, Name: "tombolo-agent"}, &agents)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read DaemonSet %s/tombolo-agent: %w", multicluster.AgentNamespace, err)
	}
	if containers := agents.Spec.Template.Spec.Containers; len(containers) > 0 {
		return containers[0].Image, nil
	}
	return "", nil
}
