package member

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
)

// conditionRequests says of a ServiceExport or ServiceImport with annotations about where requests go whether they are in effect.
const conditionRequests = "RequestsValid"

// Reasons of it.
const (
	reasonRequestsAccepted = "Accepted"
	reasonRequestsInvalid  = "RequestsInvalid"
)

// requestsOf is where requests go as annotations say.
func requestsOf(o metav1.Object, headless bool) (requests.Rule, error) {
	rule, err := requests.Read(o.GetAnnotations())
	if err == nil && rule.To != "" && headless {
		return requests.Rule{}, &requests.Invalid{Field: "metadata.annotations[" + multicluster.AnnotationRequests + "]",
			Message: "the Service is headless, and its clients choose among its Pods themselves: remove the annotation, or give the Service a ClusterIP"}
	}
	return rule, err
}

// wrongRequests reports annotations that are not in effect.
func (p *faults) wrongRequests(kind string, k derive.Object, err error, instead string) {
	field, message := "metadata.annotations", err.Error()
	var invalid *requests.Invalid
	if errors.As(err, &invalid) {
		field, message = invalid.Field, invalid.Message
	}
	p.add(object(kind, k.Namespace, k.Name), field, reasonRequestsInvalid, message+"; until then "+instead)
}

// requestsCondition is what is said of annotations; nil where there are none.
func requestsCondition(o metav1.Object, err error) []metav1.Condition {
	if !requests.Given(o.GetAnnotations()) {
		return nil
	}
	c := metav1.Condition{Type: conditionRequests, Status: metav1.ConditionTrue, Reason: reasonRequestsAccepted, ObservedGeneration: o.GetGeneration()}
	if err != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonRequestsInvalid, err.Error()
	}
	return []metav1.Condition{c}
}

// withoutRequests are conditions without that of annotations, where there are none any more.
func withoutRequests(conditions []metav1.Condition, annotations map[string]string) []metav1.Condition {
	if requests.Given(annotations) {
		return conditions
	}
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == conditionRequests })
}

// requests writes on the Service of an import which clusters come first: as the ServiceImport here says, else as the exports do. It returns the
// ServiceImport's condition.
func (in *importer) requests(service *corev1.Service, ri *mcv1alpha1.ResourceImport, si *mcsv1alpha1.ServiceImport, headless bool) (told []metav1.Condition) {
	rule, err := requests.Read(ri.Annotations)
	if err != nil {
		in.add(in.m.set(), "", reasonImportInvalid, fmt.Sprintf(
			"ResourceImport %s/%s of the leader is imported without where its requests go: %v", ri.Namespace, ri.Name, err))
	}
	if si != nil && imported(si) {
		own, err := requestsOf(si, headless)
		if told = requestsCondition(si, err); err != nil {
			in.wrongRequests("ServiceImport", in.of, err, "requests go as the exports say")
		} else if own.To != "" {
			rule = own
		}
	}
	order := rule.In(in.m.ID)
	if len(order) == 0 || headless {
		return told
	}
	labels := make([]string, len(order))
	for i, id := range order {
		labels[i] = sourceLabel(id)
	}
	service.Annotations[multicluster.AnnotationClusterOrder] = strings.Join(labels, ",")
	service.Annotations[multicluster.AnnotationMinimumReady] = strconv.Itoa(max(rule.Minimum, 1))
	return told
}
