package agent

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// flowsAbout returns a function that reports whether a flow is about the Pod, the Service and the policy in the query.
// If the query names no such object, the function accepts all flows.
func (a *switchAnswers) flowsAbout(r *http.Request) (func(flowsync.DumpedFlow) bool, error) {
	query := r.URL.Query()
	var all []func(flowsync.DumpedFlow) bool
	for _, f := range []struct {
		name string
		find func(*http.Request, string) (func(flowsync.DumpedFlow) bool, error)
	}{{"pod", a.aboutPod}, {"service", a.aboutService}, {"policy", a.aboutPolicy}} {
		if value := query.Get(f.name); value != "" {
			about, err := f.find(r, value)
			if err != nil {
				return nil, err
			}
			all = append(all, about)
		}
	}
	return func(d flowsync.DumpedFlow) bool {
		return !slices.ContainsFunc(all, func(about func(flowsync.DumpedFlow) bool) bool { return !about(d) })
	}, nil
}

// objectOf splits "namespace/name".
func objectOf(what, text string) (derive.Object, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return derive.Object{}, fmt.Errorf("%s=%s: want NAMESPACE/NAME", what, text)
	}
	return derive.Object{Namespace: namespace, Name: name}, nil
}

// aboutPod finds the flows of a Pod's port, and the flows that name one of its addresses in its zone.
func (a *switchAnswers) aboutPod(_ *http.Request, text string) (func(flowsync.DumpedFlow) bool, error) {
	o, err := objectOf("pod", text)
	if err != nil {
		return nil, err
	}
	owners := map[flow.Owner]bool{}
	ips := map[uint16][]netip.Addr{} // by zone; 0 stands for all networks that are not separate
	in := map[flow.Owner]uint16{}    // the zones of Pods
	separate := a.tables.objects.networks.separate
	for _, row := range a.tables.pods.rows.All() {
		p := row.Value
		zone := separate.zoneOf(p.Network)
		in[datapath.PodOwner(p.Interface)] = zone
		if p.Namespace == o.Namespace && p.Name == o.Name {
			owners[datapath.PodOwner(p.Interface)] = true
			ips[zone] = append(ips[zone], p.IPs...)
		}
	}
	if len(owners) == 0 {
		return nil, fmt.Errorf("no Pod %s is on this Node: `tombolo get ports` lists this Node's Pods", text)
	}
	names := map[uint16]func(string) bool{}
	for zone, list := range ips {
		names[zone] = naming(list)
	}
	return func(d flowsync.DumpedFlow) bool {
		id, zone := datapath.MatchedNetwork(d.Flow.Match)
		named := names[cmp.Or(zone, separate.zoneOf(separate.numbered(id)), in[d.Owner])]
		return owners[d.Owner] || named != nil && named(d.Flow.String())
	}, nil
}

// aboutService finds the flows that name one of a Service's addresses.
func (a *switchAnswers) aboutService(_ *http.Request, text string) (func(flowsync.DumpedFlow) bool, error) {
	o, err := objectOf("service", text)
	if err != nil {
		return nil, err
	}
	f, ok := a.tables.services.Services.Get(o)
	if !ok {
		return nil, fmt.Errorf("there is no Service %s with flows: Services of type ExternalName and headless ones have none",
			text)
	}
	names := naming(append(slices.Clone(f.VIPs), f.Outside.Balancers...))
	return func(d flowsync.DumpedFlow) bool { return names(d.Flow.Match.String()) }, nil
}

// aboutPolicy finds the flows of a policy's rules.
func (a *switchAnswers) aboutPolicy(r *http.Request, text string) (func(flowsync.DumpedFlow) bool, error) {
	var owners map[flow.Owner]bool
	kind := r.URL.Query().Get("kind")
	err := ask(r.Context(), a.tables.engine, func() {
		owners = a.tables.flows.Policies.OwnersOf(func(k policy.Key) bool {
			return called(k, text) && (kind == "" || k.Kind.String() == kind)
		})
	})
	if err == nil && len(owners) == 0 {
		err = fmt.Errorf("no policy %q has flows on this Node: `tombolo get policies` lists this Node's policies", text)
	}
	return func(d flowsync.DumpedFlow) bool { return owners[d.Owner] }, err
}

// naming returns whether a flow's text has one of some addresses as a whole word.
func naming(ips []netip.Addr) func(string) bool {
	if len(ips) == 0 {
		return func(string) bool { return false }
	}
	var words []string
	for _, ip := range ips {
		after := `($|[^0-9./])` // a port may follow
		if ip.Is6() {
			after = `($|[^0-9a-f:/])`
		}
		words = append(words, regexp.QuoteMeta(ip.String())+after)
	}
	word := regexp.MustCompile(`(^|[^0-9a-f.:])(` + strings.Join(words, "|") + `)`)
	return word.MatchString
}
