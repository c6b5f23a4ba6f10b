package services

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// conditionRequests is a condition of ServiceExports and ServiceImports that have annotations about where requests go.
// It shows whether the annotations are in effect.
const conditionRequests = "RequestsValid"

// RequestsOf returns the rule for requests from an object's annotations.
func RequestsOf(o metav1.Object, headless bool) (requests.Rule, error) {
	rule, err := requests.Read(o.GetAnnotations())
	if err == nil && rule.To != "" && headless {
		return requests.Rule{}, &requests.Invalid{Field: "metadata.annotations[" + multicluster.AnnotationRequests + "]",
			Message: "the Service is headless, and its clients choose among its Pods themselves: remove the " +
				"annotation, or give the Service a ClusterIP"}
	}
	return rule, err
}

// WrongRequests reports annotations that are not in effect.
func WrongRequests(ps *problem.List, kind string, k derive.Object, err error, instead string) {
	field, message := "metadata.annotations", err.Error()
	var invalid *requests.Invalid
	if errors.As(err, &invalid) {
		field, message = invalid.Field, invalid.Message
	}
	ps.Add(problem.About(kind, k.Namespace, k.Name), field, reasonRequestsInvalid, message+"; until then "+instead)
}

// RequestsCondition returns the condition about these annotations, or nil without such annotations.
func RequestsCondition(o metav1.Object, err error) []metav1.Condition {
	if !requests.Given(o.GetAnnotations()) {
		return nil
	}
	c := metav1.Condition{Type: conditionRequests, Status: metav1.ConditionTrue, Reason: reasonRequestsAccepted.String(),
		ObservedGeneration: o.GetGeneration()}
	if err != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonRequestsInvalid.String(), err.Error()
	}
	return []metav1.Condition{c}
}

// WithoutRequests removes the condition about these annotations, if the object no longer has them. It returns the
// remaining conditions.
func WithoutRequests(conditions []metav1.Condition, annotations map[string]string) []metav1.Condition {
	if requests.Given(annotations) {
		return conditions
	}
	return slices.DeleteFunc(slices.Clone(conditions),
		func(c metav1.Condition) bool { return c.Type == conditionRequests })
}

// WithConditions returns conditions with some replaced or added. If the status stays, the transition time stays.
// Otherwise Stamp sets it.
func WithConditions(have, news []metav1.Condition) []metav1.Condition {
	out := slices.Clone(have)
	for _, c := range news {
		i := slices.IndexFunc(out, func(old metav1.Condition) bool { return old.Type == c.Type })
		if i < 0 {
			out = append(out, c)
			continue
		}
		if old := out[i]; old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out[i] = c
	}
	return out
}

// Stamp gives conditions that are new their time.
func Stamp(conditions []metav1.Condition, now metav1.Time) {
	for i := range conditions {
		if conditions[i].LastTransitionTime.IsZero() {
			conditions[i].LastTransitionTime = now
		}
	}
}

// ExportName is the derived name of a Service's ResourceExport of one kind.
func ExportName(id string, service derive.Object, kind string) string {
	suffix := multicluster.ServiceSuffix
	if kind == multicluster.EndpointsKind {
		suffix = multicluster.EndpointsSuffix
	}
	return multicluster.ResourceExportName(id, service.Namespace, service.Name, suffix)
}
