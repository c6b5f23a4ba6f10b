package record

import (
	"cmp"
	"strings"
)

// View is what a reader may see of records.
type View struct {
	All bool // everything
	// Namespaces have the Pods that the reader may see, unless All is set.
	Namespaces map[string]bool
}

// Show returns a record as a reader may see it, or nil if the reader may see neither end. Of an end that the reader may
// not see, it shows only the Namespace, or the cluster. An end outside all Namespaces keeps its address. Names that
// belong to other Namespaces are left out. A filter for the reader is applied to the result, so that it finds nothing
// else.
func (v View) Show(r *Record) *Record {
	if v.All {
		return r
	}
	service, _, _ := strings.Cut(r.Service, "/")
	from, to := v.sees(r.From), v.sees(r.To)
	if !from && !to && (!v.Namespaces[service] || r.To.Namespace != "" || r.To.Cluster != "") {
		return nil // the last case is a Service of the reader's that has no Pod for the client
	}
	out := *r
	if !from && !v.Namespaces[service] {
		out.Service, out.Asked = "", ""
	}
	if !from {
		out.From, out.Egress = hidden(r.From), nil
	}
	if !to {
		out.To, out.Ingress = hidden(r.To), nil
	}
	if !from || !to {
		out.Way, out.Nodes = "", nil
	}
	for _, network := range []*string{&out.Network, &out.ToNetwork} {
		if namespace, _, _ := strings.Cut(*network, "/"); !v.Namespaces[namespace] {
			*network = ""
		}
	}
	if node := r.Node; (!from || r.From.Node != node) && (!to || r.To.Node != node) {
		out.Node = ""
	}
	v.hidePolicies(&out)
	return &out
}

// sees reports whether the reader may see an end. Rights in this cluster apply only to its own Pods.
func (v View) sees(e End) bool { return e.Cluster == "" && v.Namespaces[e.Namespace] }

// hidden is an end that the reader may not see.
func hidden(e End) End {
	if e.Namespace != "" || e.Cluster != "" {
		return End{Namespace: e.Namespace, Cluster: e.Cluster}
	}
	return End{IP: e.IP, Port: e.Port}
}

// hidePolicies leaves out the policies of other Namespaces. Policies of the cluster stay.
func (v View) hidePolicies(r *Record) {
	hides := false
	for _, rule := range []**Rule{&r.Rule, &r.Egress, &r.Ingress} {
		if *rule != nil && !v.seesPolicy((*rule).Policy) {
			*rule, hides = nil, true
		}
	}
	var policies []string
	for _, policy := range r.Policies {
		if v.seesPolicy(policy) {
			policies = append(policies, policy)
		} else {
			hides = true
		}
	}
	r.Policies = policies
	if hides && r.Message != "" {
		r.Message = cmp.Or(MeaningOf(r.Reason), r.Reason)
	}
}

// seesPolicy reports whether the reader may see the name of a policy: "NetworkPolicy shop/db".
func (v View) seesPolicy(policy string) bool {
	_, name, _ := strings.Cut(policy, " ")
	namespace, _, namespaced := strings.Cut(name, "/")
	return !namespaced || v.Namespaces[namespace]
}
