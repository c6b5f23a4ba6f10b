package diagnose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A switch that loses a few packets while it is busy for a moment is in order.
const (
	fewLost  = 10
	partLost = .01
)

// upcalls names Nodes whose switch loses packets.
func upcalls(_ *Facts, c *Cluster, r *report) {
	c.answers(r, func(a *Agent) {
		u, later := a.Upcalls, a.UpcallsLater
		if u == nil {
			r.unknown("Node "+a.Node, "its agent could not read the counters of its switch")
			return
		}
		if later == nil && u.Lost > 0 {
			r.unknown("Node "+a.Node, "the counters of its switch could not be read again: %s", cmp.Or(a.UpcallsFault,
				"its agent does not report them"))
			return
		}
		if later == nil || later.Lost < u.Lost+fewLost ||
			float64(later.Lost-u.Lost) < partLost*float64(later.Missed+later.Lost-u.Missed-u.Lost) {
			return
		}
		r.fail(fault{object: "Node " + a.Node, detail: fmt.Sprintf("its switch has lost %d packets of new connections in %s",
			later.Lost-u.Lost, again), evidence: []string{fmt.Sprintf("since its start %d of %d were lost", later.Lost,
			later.Missed+later.Lost)},
			remedy: "find out who opens so many connections: tombolo observe --follow --connections --by from,to"})
	})
}

// ports names ports that a switch cannot use.
func ports(_ *Facts, c *Cluster, r *report) {
	c.answers(r, func(a *Agent) {
		if a.PortsFault != "" {
			r.unknown("Node "+a.Node, "its ports could not be read: %s", a.PortsFault)
		}
		for _, p := range a.BadPorts {
			if started := c.starts(a); started != "" {
				r.unknown("Node "+a.Node, "Open vSwitch cannot use port %s, and %s: %s", p.Name, started, p.Error)
				continue
			}
			object, remedy := fmt.Sprintf("port %s of Node %s", p.Name, a.Node), "look at the log of tombolo-ovs on the Node"
			if p.Pod != "" {
				object += " (Pod " + p.Pod + ")"
				remedy = "delete the Pod, and it gets another port"
			}
			r.fail(fault{object: object, detail: "Open vSwitch cannot use it: " + p.Error, remedy: remedy})
		}
	})
}

// namesTime is how long CoreDNS may take until its answers follow an import. It caches answers for half of this time.
const namesTime = time.Minute

// resolved compares the answers of CoreDNS with the imports.
func resolved(_ *Facts, c *Cluster, r *report) {
	switch {
	case c.Resolved == nil:
		r.skip("it imports no Service with an address and a ready endpoint")
		return
	case !c.Resolved.Served:
		r.skip("its CoreDNS does not serve the zone clusterset.local, which is optional")
		return
	}
	for _, n := range c.Resolved.Names {
		name := fmt.Sprintf("name %s.%s.svc.clusterset.local", n.Name, n.Namespace)
		if n.Fault != "" {
			r.unknown(name, "ask CoreDNS: %s", n.Fault)
			continue
		}
		if n.Code == "" && slices.Equal(n.Want, n.Have) {
			continue
		}
		have := cmp.Or(n.Code, orNone(n.Have))
		if ago, recent := c.age(n.Changed, namesTime); recent {
			r.unknown(name, "the import changed %s, and CoreDNS answers with %s", ago, have)
			continue
		}
		r.fail(fault{object: name,
			detail: fmt.Sprintf("CoreDNS answers with %s, and the import has %s", have, orNone(n.Want)),
			remedy: "apply coredns-clusterset.yml, and look at kubectl logs -n kube-system -l k8s-app=kube-dns"})
	}
	r.passes("%d names", len(c.Resolved.Names))
}

// passes adds a pass if the check has no other result of the cluster yet.
func (r *report) passes(format string, args ...any) {
	if !slices.ContainsFunc(r.results, func(x Result) bool { return x.Cluster == r.cluster }) {
		r.pass(format, args...)
	}
}

// codeStale is the code of staleEndpoints.
const codeStale = "TD048"

// imported is the name of an imported Service.
type imported struct{ namespace, name string }

// staleEndpoints compares the EndpointSlices of members with the imports of the leader.
func staleEndpoints(clusters []*Cluster, r *report) {
	for _, leader := range clusters {
		for _, area := range leader.areas() {
			imports := map[imported]*mcv1alpha1.ResourceImport{}
			for i, x := range leader.ResourceImports {
				if x.Namespace == area.Namespace && x.Spec.Endpoints != nil {
					imports[imported{x.Spec.Namespace, x.Spec.Name}] = &leader.ResourceImports[i]
				}
			}
			for _, c := range clusters {
				s := c.set()
				if s != nil && s.Name == area.Name && s.Spec.Namespace == area.Namespace &&
					s.Spec.Leaders[0].ClusterID == area.Spec.ClusterID {
					r.cluster = c.Name
					compareEndpoints(c, leader, imports, r)
				}
			}
		}
	}
	if r.cluster = ""; !slices.ContainsFunc(clusters, func(c *Cluster) bool { return len(c.areas()) > 0 }) {
		r.skip("the leader was not asked")
	}
}

// compareEndpoints compares the EndpointSlices of a member with the imports. It leaves out slices with the member's own
// endpoints, which do not come from the leader.
func compareEndpoints(c *Cluster, leader *Cluster, imports map[imported]*mcv1alpha1.ResourceImport, r *report) {
	have := map[imported][]discoveryv1.EndpointSlice{}
	for _, s := range c.ImportedSlices {
		of := imported{s.Namespace, s.Labels[mcsv1beta1.LabelServiceName]}
		// A hash stands for an ID that is no DNS label.
		if source := s.Labels[mcsv1beta1.LabelSourceCluster]; source != c.id() && source != multicluster.LabelHash(c.id()) {
			have[of] = append(have[of], s)
		}
	}
	for of, list := range have {
		theirs := map[netip.Addr]bool{}
		var moved metav1.ObjectMeta
		if x := imports[of]; x != nil {
			moved = x.ObjectMeta
			for _, subset := range x.Spec.Endpoints.Subsets {
				for _, a := range slices.Concat(subset.Addresses, subset.NotReadyAddresses) {
					if ip, err := netip.ParseAddr(a.IP); err == nil {
						theirs[ip] = true
					}
				}
			}
		}
		old := map[string]bool{}
		recent := false
		for _, s := range list {
			_, now := c.age(changed(s.ObjectMeta), startTime)
			recent = recent || now
			for _, e := range s.Endpoints {
				for _, text := range e.Addresses {
					if ip, err := netip.ParseAddr(text); err == nil && !theirs[ip] {
						old[text] = true
					}
				}
			}
		}
		if len(old) == 0 {
			continue
		}
		object := fmt.Sprintf("ServiceImport %s/%s", of.namespace, of.name)
		detail := "its EndpointSlices have endpoints that the leader has no longer: " +
			problem.Few(slices.Sorted(maps.Keys(old)))
		// An import that is gone has no time. Gather has looked for its endpoints a second time.
		if _, now := leader.age(changed(moved), startTime); now || recent {
			r.unknown(object, "%s; they changed a moment ago", detail)
			continue
		}
		r.fail(fault{object: object, detail: detail, remedy: fmt.Sprintf("see TD022, and kubectl logs -n %s deployment/%s",
			c.set().Namespace, memberController)})
	}
}

// nearLimit is the part of a limit from which it is reported.
const nearLimit = .8

// limits names members that are near a limit of the leader, and quotas that are nearly used up.
func limits(_ *Facts, c *Cluster, r *report) {
	if len(c.areas()) == 0 {
		r.skip("it is no leader")
		return
	}
	type sum struct{ exports, labels, blocks, bytes int }
	type member struct{ area, id string }
	members := map[member]*sum{}
	for i := range c.ResourceExports {
		e := &c.ResourceExports[i]
		key := member{e.Namespace, e.Spec.ClusterID}
		s := members[key]
		if s == nil {
			s = &sum{}
			members[key] = s
		}
		switch e.Spec.Kind {
		case multicluster.LabelIdentityKind:
			s.labels++
		case multicluster.PodAddressesKind:
			s.blocks++
		default:
			s.exports++
		}
		if text, err := json.Marshal(e); err == nil {
			s.bytes += len(text)
		}
	}
	for _, m := range slices.SortedFunc(maps.Keys(members), func(a, b member) int {
		return cmp.Or(cmp.Compare(a.area, b.area), cmp.Compare(a.id, b.id))
	}) {
		s, object := members[m], "cluster "+m.id
		if len(c.areas()) > 1 {
			object += " in Common Area " + m.area
		}
		for _, limit := range []struct {
			what       string
			used, most int
		}{
			{"ResourceExports", s.exports, exportcheck.MaxExports}, {"LabelIdentities", s.labels, exportcheck.MaxLabels},
			{"blocks of Pods' addresses", s.blocks, exportcheck.MaxAddressBlocks},
			{"bytes of ResourceExports", s.bytes, exportcheck.MaxExportBytes},
		} {
			if float64(limit.used) >= nearLimit*float64(limit.most) {
				r.fail(fault{object: object, detail: fmt.Sprintf("it has %d %s, and the leader accepts %d of one member",
					limit.used, limit.what, limit.most), remedy: "remove exports that are not needed in cluster " + m.id})
			}
		}
	}
	for _, q := range c.Quotas {
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			hard, used := q.Status.Hard[name], q.Status.Used[name]
			if hard.AsApproximateFloat64() > 0 && used.AsApproximateFloat64() >= nearLimit*hard.AsApproximateFloat64() {
				r.fail(fault{object: fmt.Sprintf("ResourceQuota %s/%s", q.Namespace, q.Name),
					detail: fmt.Sprintf("%s of %s %s are used", used.String(), hard.String(),
						strings.TrimPrefix(string(name), "count/")),
					remedy: "raise the quota, or delete objects that are not needed"})
			}
		}
	}
}
