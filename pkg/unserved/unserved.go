// Package unserved has the only list of features that users can request and Tombolo does not have. Events of
// tombolo-controller, Problems of the agents, and the list in docs/not-supported.md are made from it. A change that
// serves such a feature removes its row.
package unserved

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/service"
)

//go:generate go run ./unserveddoc ../../docs/not-supported.md

// Row is one thing that is not done.
type Row struct {
	Asked   string // what a user asks for, in Markdown
	Happens string // what happens instead
	// Reason is the reason of the Event or Problem of a row with finders.
	Reason reasons.Reason
	// Reported is the place of the report, for a row whose finders do not have it.
	Reported string
	// Test names the test that shows the report of a row without finders, "directory.TestName".
	Test string

	find finders
}

// Finding is one place in an object that asks for it.
type Finding struct {
	Field   string // its path
	Message string // what is wrong, and the remedy
}

// finders look for what a row is about, each in one kind.
type finders struct {
	service    func(*corev1.Service) []Finding
	outside    func(*corev1.Service) []Finding // requests that Cluster.Outside serves
	pod        func(*corev1.Pod) []Finding
	namespace  func(*corev1.Namespace) []Finding
	tenants    func(*corev1.Namespace) []Finding // requests that Cluster.Tenants serves
	definition func(*metav1.PartialObjectMetadata) []Finding
	relay      func(*metav1.PartialObjectMetadata) []Finding // of Traceflows, which the relay serves
	latency    func(*metav1.PartialObjectMetadata) []Finding // of NodeLatencyMonitors, which Cluster.Latency serves
}

// Rows returns the list.
func Rows() []Row { return slices.Clone(rows) }

// Where returns the place of a row's reports, in Markdown.
func (r Row) Where() string {
	var events []string
	for _, k := range []struct {
		kind string
		has  bool
	}{
		{"Service", r.find.service != nil || r.find.outside != nil},
		{"Namespace", r.find.namespace != nil || r.find.tenants != nil},
		{"CustomResourceDefinition", r.find.definition != nil},
		{"Traceflow", r.find.relay != nil},
		{"NodeLatencyMonitor", r.find.latency != nil},
	} {
		if k.has {
			events = append(events, k.kind)
		}
	}
	var out []string
	if len(events) > 0 {
		out = append(out, "Event `"+r.Reason.String()+"` on the "+strings.Join(events, ", "))
	}
	if r.find.pod != nil {
		out = append(out, "`"+r.Reason.String()+"` in `tombolo get status` of the Pod's Node")
	}
	if r.Reported != "" {
		out = append(out, r.Reported)
	}
	return strings.Join(out, "; ")
}

// found returns the Problems of an object, in the order of the list.
func found(o problem.Object, in func(finders) []Finding) (out []problem.Problem) {
	for _, r := range rows {
		for _, f := range in(r.find) {
			out = append(out, problem.Problem{Object: o, Field: f.Field, Reason: r.Reason, Message: f.Message})
		}
	}
	return out
}

// look calls a finder that a row may lack.
func look[T any](find func(T) []Finding, o T) []Finding {
	if find == nil {
		return nil
	}
	return find(o)
}

// Service returns the requests of a Service that no Node serves. Requests that only some Nodes cannot serve (SCTP on
// the userspace datapath) are not among them: those agents report them themselves. If only DNS or another proxy serves
// a Service, the result is empty.
func Service(s *corev1.Service, c Cluster) []problem.Problem {
	if s.Spec.Type == corev1.ServiceTypeExternalName || service.IsOthers(s) {
		return nil
	}
	return found(object("Service", s), func(f finders) []Finding {
		if c.Outside {
			return look(f.service, s)
		}
		return append(look(f.service, s), look(f.outside, s)...)
	})
}

// Pod returns what a Pod asks for that its Node does not serve.
func Pod(p *corev1.Pod) []problem.Problem {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	return found(object("Pod", p), func(f finders) []Finding { return look(f.pod, p) })
}

// Namespace returns the requests of a Namespace that no Node of any kind serves.
func Namespace(n *corev1.Namespace, c Cluster) []problem.Problem {
	return found(object("Namespace", n), func(f finders) []Finding {
		if c.Tenants {
			return look(f.namespace, n)
		}
		return append(look(f.tenants, n), look(f.namespace, n)...)
	})
}

// Definition returns what a CustomResourceDefinition lets users ask for, from its name.
func Definition(d *metav1.PartialObjectMetadata) []problem.Problem {
	return found(object("CustomResourceDefinition", d), func(f finders) []Finding { return look(f.definition, d) })
}

// NodeLatencyMonitor returns what a NodeLatencyMonitor asks for that no Node does.
func NodeLatencyMonitor(m *metav1.PartialObjectMetadata, c Cluster) []problem.Problem {
	if c.Latency {
		return nil
	}
	return found(object("NodeLatencyMonitor", m), func(f finders) []Finding { return look(f.latency, m) })
}

// Traceflow returns what a Traceflow asks for in a cluster without the relay.
func Traceflow(t *metav1.PartialObjectMetadata) []problem.Problem {
	return found(object("Traceflow", t), func(f finders) []Finding { return look(f.relay, t) })
}

func object(kind string, o metav1.Object) problem.Object {
	return problem.Object{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}
