package exportcheck

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// ServiceFacts are the exported facts of a Service in addition to its ports. They are in an annotation of the
// ResourceExport and not in its Service spec. A leader of another version would drop unknown fields, and the stored
// object would never equal the written one.
type ServiceFacts struct {
	// Created is the time at which the ServiceExport was created, in seconds. If exports contradict each other, the oldest
	// one decides.
	Created               int64                               `json:"created,omitempty"`
	Headless              bool                                `json:"headless,omitempty"`
	SessionAffinity       corev1.ServiceAffinity              `json:"sessionAffinity,omitempty"`
	AffinityTimeout       *int32                              `json:"affinityTimeoutSeconds,omitempty"`
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
	TrafficDistribution   string                              `json:"trafficDistribution,omitempty"`
	IPFamilies            []corev1.IPFamily                   `json:"ipFamilies,omitempty"`
	Requests              *requests.Rule                      `json:"requests,omitempty"`
	Metadata
}

// maxServiceName is the largest length of the name of an exported Service. The imported Service has a prefix.
const maxServiceName = validation.DNS1123LabelMaxLength - len(multicluster.ImportedPrefix)

// ServiceName reports whether a name is too long for a Service that is imported.
func ServiceName(field, name string) error {
	if len(name) <= maxServiceName {
		return nil
	}
	return Problem{field,
		fmt.Sprintf("%s has %d characters: expected at most %d, since clusters import it as %s and the name; give the "+
			"Service a shorter name",
			problem.Quoted(name), len(name), maxServiceName, multicluster.ImportedPrefix)}
}

// Metadata is what a ServiceExport puts on the ServiceImports.
type Metadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// maxMetadata is about the largest size of an export's labels and annotations, in bytes: the leader keeps them all.
const maxMetadata = 16 << 10

// maxAffinity is the API's bound of the timeout of session affinity.
const maxAffinity = 86400

// String is the annotation's value: the same facts make the same text.
func (f ServiceFacts) String() string { return text(f) }

// String is the annotation's value.
func (m Metadata) String() string { return text(m) }

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "" // no such value: all of it are texts and numbers
	}
	return string(data)
}

// ReadServiceFacts reads the annotation. It returns nil if the annotation is empty, since the exporter is another
// implementation.
func ReadServiceFacts(value string) (*ServiceFacts, error) {
	at := "metadata.annotations[" + multicluster.AnnotationService + "]"
	if value == "" {
		return nil, nil
	}
	f := &ServiceFacts{}
	if err := json.Unmarshal([]byte(value), f); err != nil {
		return nil, fmt.Errorf("%s: %s cannot be read: %w", at, problem.Quoted(value), err)
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return f, nil
}

func (f *ServiceFacts) check() error {
	switch {
	case !slices.Contains([]corev1.ServiceAffinity{"", corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP},
		f.SessionAffinity):
		return fmt.Errorf("sessionAffinity: %s is not one of ClientIP and None", problem.Quoted(string(f.SessionAffinity)))
	case f.AffinityTimeout != nil && (*f.AffinityTimeout < 1 || *f.AffinityTimeout > maxAffinity):
		return fmt.Errorf("affinityTimeoutSeconds: %d: expected 1 to %d", *f.AffinityTimeout, maxAffinity)
	case f.AffinityTimeout != nil && f.SessionAffinity != corev1.ServiceAffinityClientIP:
		return fmt.Errorf("affinityTimeoutSeconds: expected only with sessionAffinity ClientIP")
	case !slices.Contains([]corev1.ServiceInternalTrafficPolicy{"", corev1.ServiceInternalTrafficPolicyCluster,
		corev1.ServiceInternalTrafficPolicyLocal}, f.InternalTrafficPolicy):
		return fmt.Errorf("internalTrafficPolicy: %s is not one of Cluster and Local",
			problem.Quoted(string(f.InternalTrafficPolicy)))
	case f.TrafficDistribution != "" && len(validation.IsQualifiedName(f.TrafficDistribution)) > 0:
		return fmt.Errorf("trafficDistribution: %s is not a name such as PreferClose", problem.Quoted(f.TrafficDistribution))
	case len(f.IPFamilies) > 2:
		return fmt.Errorf("ipFamilies: %d families: expected at most IPv4 and IPv6", len(f.IPFamilies))
	}
	for i, family := range f.IPFamilies {
		if family != corev1.IPv4Protocol && family != corev1.IPv6Protocol || slices.Contains(f.IPFamilies[:i], family) {
			return fmt.Errorf("ipFamilies[%d]: %s is not one of IPv4 and IPv6, each once", i, problem.Quoted(string(family)))
		}
	}
	if f.Requests != nil {
		if err := f.Requests.Check(); err != nil {
			return fmt.Errorf("requests: %w", err)
		}
	}
	return f.Metadata.check()
}

func (m Metadata) check() error {
	size := 0
	for _, from := range []struct {
		name string
		list map[string]string
	}{{"labels", m.Labels}, {"annotations", m.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(from.list)) {
			size += len(key) + len(from.list[key])
			if Reserved(key) {
				return fmt.Errorf("%s: %s is the ClusterSet's own: export another one", from.name, problem.Quoted(key))
			}
		}
	}
	wrong := metav1validation.ValidateLabels(m.Labels, field.NewPath("labels"))
	wrong = append(wrong, apivalidation.ValidateAnnotations(m.Annotations, field.NewPath("annotations"))...)
	switch {
	case size > maxMetadata:
		return fmt.Errorf("labels and annotations have %d bytes: expected at most %d", size, maxMetadata)
	case len(wrong) > 0:
		return fmt.Errorf("%s: %s", wrong[0].Field, wrong[0].ErrorBody())
	}
	return nil
}

// CheckMetadata names the fault with what a ServiceExport asks to be put on the imports.
func CheckMetadata(labels, annotations map[string]string) error {
	return Metadata{Labels: labels, Annotations: annotations}.check()
}

// Reserved reports whether a label or an annotation controls multi-cluster controllers. A cluster must not put such a
// key on objects of others.
func Reserved(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	for _, own := range []string{"multicluster.antrea.io", "multicluster.crd.antrea.io", "multicluster.kubernetes.io",
		"tombolo.io", "multicluster.tombolo.io"} {
		if found && (prefix == own || strings.HasSuffix(prefix, "."+own)) {
			return true
		}
	}
	return false
}

// ReadMetadata reads the annotation of a ResourceImport. It leaves out the labels or the annotations as a whole if they
// have a fault: the leader may be another implementation.
func ReadMetadata(value string) (m Metadata, err error) {
	if value == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(value), &m); err != nil {
		return Metadata{}, fmt.Errorf("metadata.annotations[%s]: %s cannot be read: %w", multicluster.AnnotationExported,
			problem.Quoted(value), err)
	}
	if err := m.check(); err != nil {
		return Metadata{}, fmt.Errorf("metadata.annotations[%s]: %w", multicluster.AnnotationExported, err)
	}
	return m, nil
}

// Source assigns so many consecutive subsets of the joint Endpoints to one cluster.
type Source struct {
	Cluster string `json:"cluster"`
	Subsets int    `json:"subsets"`
	// Ready is the number of ready endpoints behind the cluster's one address. It is 0 if the cluster does not report it.
	Ready int `json:"ready,omitempty"`
}

// Part are the endpoints of one cluster among the joint ones. Ready is as in Source.
type Part struct {
	Subsets []corev1.EndpointSubset
	Ready   int
}

// OneAddress reports whether subsets have at most one address of each version of IP. Only such an address may represent
// several endpoints.
func OneAddress(subsets []corev1.EndpointSubset) bool { return Count(subsets) == 1 }

// SourcesText is the annotation's value.
func SourcesText(list []Source) string { return text(list) }

// ReadSources splits the joint subsets by their clusters. It returns false if the annotation is missing or does not
// match the subsets.
func ReadSources(value string, subsets []corev1.EndpointSubset) (map[string]Part, bool) {
	var list []Source
	if value == "" || json.Unmarshal([]byte(value), &list) != nil {
		return nil, false
	}
	out := map[string]Part{}
	at := 0
	for _, s := range list {
		if s.Cluster == "" || s.Subsets < 0 || s.Subsets > len(subsets)-at {
			return nil, false
		}
		p := out[s.Cluster]
		p.Subsets = append(p.Subsets, subsets[at:at+s.Subsets]...)
		if p.Ready = 0; s.Ready > 0 && s.Ready <= requests.MaxReady && OneAddress(p.Subsets) {
			p.Ready = s.Ready
		}
		out[s.Cluster] = p
		at += s.Subsets
	}
	return out, at == len(subsets)
}
