package agent

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// externalIPTables decide which Nodes may hold the ExternalIPPool addresses of Services. The controller assigns the
// addresses (pkg/cluster/externalip). A Lease for each address decides which of the Nodes holds it (ipHolder).
type externalIPTables struct {
	config   config.Config
	this     *ownNode
	services *service.Tables

	pools *derive.Source[derive.Object, poolSelector]
	nodes *derive.Source[derive.Object, holderNode]
	// held are the addresses that this Node holds.
	held *derive.Source[policy.Addr, bool]
	// keeps is set, before the sources are loaded, if an ipHolder loads held.
	keeps bool
	// candidates are the Nodes that may hold an address, the preferred one first.
	candidates *derive.Table[policy.Addr, candidates]
	// passed is true after the first pass. Before it, candidates is empty even if there are Services.
	passed atomic.Bool

	having *derive.Index[policy.Addr, derive.Object, service.Facts]
}

// poolSelector selects the Nodes of a pool, in text form.
type poolSelector struct {
	Known bool
	Text  string
}

func poolSelectorOf(p *crdv1beta1.ExternalIPPool) poolSelector {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.NodeSelector)
	if err != nil {
		return poolSelector{} // the controller reports it
	}
	return poolSelector{true, selector.String()}
}

// holderNode is the part of a Node that decides whether it may hold addresses.
type holderNode struct {
	Labels string // in normal form
	Ready  bool
	Has4   bool // it has a podCIDR of IPv4
	Has6   bool // the same of IPv6
}

func holderNodeOf(n *corev1.Node) holderNode {
	f := holderNode{Labels: labels.Set(n.Labels).String()}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			f.Has4, f.Has6 = f.Has4 || is4(p), f.Has6 || !is4(p)
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			f.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return f
}

// candidates are the Nodes that may hold an address, the preferred one first.
type candidates struct {
	Known bool // the zero value is no row
	Nodes []string
}

// add adds the tables. The sources of objects are declared before.
func (t *externalIPTables) add(e *derive.Engine) {
	t.having = derive.NewIndex(t.services.Services, "external-ip",
		func(_ derive.Object, f service.Facts) (out []policy.Addr) {
			if f.Outside.Pool == "" {
				return nil
			}
			for _, ip := range f.Outside.Balancers {
				out = append(out, policy.Addr{Addr: ip})
			}
			return out
		})
	t.candidates = derive.NewTable(e, "external-ip-candidates", t.candidatesOf, derive.KeysOfIndex(t.having))
}

// wanted returns the candidates of each address that a Service has, and false before the first pass.
func (t *externalIPTables) wanted() (map[netip.Addr][]string, bool) {
	if !t.passed.Load() {
		return nil, false
	}
	out := map[netip.Addr][]string{}
	for _, row := range t.candidates.All() {
		out[row.Key.Addr] = row.Value.Nodes
	}
	return out, true
}

// candidatesOf returns the Nodes that may hold an address. Such a Node is ready, has a podCIDR of the address's version
// of IP, and is selected by the pools of all Services with the address. For Services with externalTrafficPolicy Local
// it also has ready endpoints of that version. This Node is a candidate only if it serves the version too. If no such
// Node is ready, the Nodes that are not ready are candidates: their agents may run although their kubelets cannot
// report. Each address has an order of the Nodes of its own, which does not depend on other addresses. So a Node that
// comes or goes moves only its own addresses.
func (t *externalIPTables) candidatesOf(a policy.Addr, r *derive.Reader) (candidates, []problem.Problem) {
	out := candidates{Known: true}
	var ps problems
	list := derive.List(r, t.having, a)
	held, _ := derive.Get(r, t.held, a)
	var notReady []string
	for _, node := range derive.All(r, t.nodes) {
		serves := node.Value.Has4
		if a.Is6() {
			serves = node.Value.Has6
		}
		if node.Key.Name == t.this.name {
			serves = serves && t.serves(a, held, r)
		}
		if !serves || slices.ContainsFunc(list, func(s derive.Row[derive.Object, service.Facts]) bool {
			return !t.selects(s.Value.Outside.Pool, node.Value.Labels, r) ||
				s.Value.Outside.Local && !t.hasEndpoint(s, a, node.Key.Name, r)
		}) {
			continue
		}
		if node.Value.Ready {
			out.Nodes = append(out.Nodes, node.Key.Name)
		} else {
			notReady = append(notReady, node.Key.Name)
		}
	}
	if len(out.Nodes) == 0 {
		out.Nodes = notReady
	}
	slices.SortFunc(out.Nodes, func(x, y string) int {
		return cmp.Or(cmp.Compare(weightOf(x, a.Addr), weightOf(y, a.Addr)), cmp.Compare(x, y))
	})
	if held && len(list) > 0 {
		_, u, _ := t.this.ready(r)
		if !slices.ContainsFunc(u.Networks, func(p netip.Prefix) bool { return p.Contains(a.Addr) }) {
			ps.report(problem.Object{Kind: "Service", Namespace: list[0].Key.Namespace, Name: list[0].Key.Name},
				"status.loadBalancer", reasonAddressOfNoNetwork,
				"%s is on Node %s, and is in no network of the Node, so other machines need a route to it: add one through the "+
					"Node, or use addresses of the Nodes' network", a, t.this.name)
		}
	}
	return out, ps
}

// selects reports whether a pool selects a Node with these labels.
func (t *externalIPTables) selects(pool, nodeLabels string, r *derive.Reader) bool {
	p, _ := derive.Get(r, t.pools, derive.Object{Name: pool})
	selector, err := labels.Parse(p.Text)
	set, err2 := labels.ConvertSelectorToLabelsMap(nodeLabels)
	return p.Known && err == nil && err2 == nil && selector.Matches(set)
}

// serves reports whether this Node serves an address's version of IP. Until the agent knows that, it keeps the
// addresses that an earlier agent has held, and takes no others.
func (t *externalIPTables) serves(a policy.Addr, held bool, r *derive.Reader) bool {
	if _, _, ok := t.this.ready(r); !ok {
		return held
	}
	return t.this.families(r).Serve(a.Addr)
}

// hasEndpoint reports whether a Node has a ready endpoint of a Service, of an address's version of IP.
func (t *externalIPTables) hasEndpoint(s derive.Row[derive.Object, service.Facts], a policy.Addr, node string,
	r *derive.Reader,
) bool {
	for _, slice := range derive.List(r, t.services.ByService, s.Key) {
		for _, e := range slice.Value.Endpoints {
			if e.Node == node && e.Addr.Is4() == a.Is4() && (e.Ready || s.Value.PublishNotReady) {
				return true
			}
		}
	}
	return false
}

// weightOf orders Nodes for an address (rendezvous hashing).
func weightOf(node string, ip netip.Addr) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, ip, " ", node)
	return h.Sum64() * 0x9e3779b97f4a7c15 // the lower bits of FNV's last byte reach the upper ones
}

// host has the gateway port hold the addresses of this Node.
func (t *externalIPTables) host(gateway *hostnet.Link, r *derive.Reader) {
	for _, row := range derive.All(r, t.held) {
		gateway.Held = append(gateway.Held, row.Key.Addr)
	}
}
