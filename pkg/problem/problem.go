// Package problem has the type with which pure code reports defects of objects. A Problem never stops the work for
// other objects. It becomes a condition, an Event or a log line about its object.
package problem

import (
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// Object names the object of a Problem: an API object, or a thing on the Node such as a link, whose Kind is in lower
// case.
type Object struct {
	Kind      string
	Namespace string // empty for cluster-scoped kinds and things of the Node
	Name      string
}

// String returns "Kind namespace/name", or "Kind name" without a Namespace.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Problem is something wrong with one object that a Plan went on without. It is comparable.
type Problem struct {
	Object
	Field   string // path of the field at fault, such as "spec.serviceCIDR"; may be empty
	Reason  reasons.Reason
	Message string // what is wrong, and the remedy
}

// String returns the problem as one line for logs: object, field, message.
func (p Problem) String() string {
	if p.Field == "" {
		return fmt.Sprintf("%s: %s", p.Object, p.Message)
	}
	return fmt.Sprintf("%s: %s: %s", p.Object, p.Field, p.Message)
}

// About names an object. The namespace of a cluster-scoped one is empty.
func About(kind, namespace, name string) Object {
	return Object{Kind: kind, Namespace: namespace, Name: name}
}

// List collects what a function finds wrong.
type List []Problem

// Add adds a Problem.
func (l *List) Add(object Object, field string, reason reasons.Reason, message string) {
	*l = append(*l, Problem{Object: object, Field: field, Reason: reason, Message: message})
}

// Observation returns the fields and messages of the first five problems as one text, for the status of an object.
func (l List) Observation() string {
	const most = 5
	var words []string
	for _, p := range l[:min(len(l), most)] {
		words = append(words, p.Field+": "+p.Message)
	}
	if more := len(l) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ")
}

// Quoted quotes text of another author for a message. It shortens long text, which would fill conditions and logs.
func Quoted(text string) string {
	const most = 64
	if len(text) > most {
		return fmt.Sprintf("%q...", text[:most])
	}
	return fmt.Sprintf("%q", text)
}
