package diagnose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// memberToken judges the Secret of the member.
func memberToken(_ *Facts, c *Cluster, r *report) {
	t := c.Token
	if t == nil {
		r.skip("its ClusterSet names no Secret")
		return
	}
	object := fmt.Sprintf("Secret %s/%s", t.Namespace, t.Name)
	const remedy = "make a token in the leader (tombolo mc create membertoken), and apply its Secret in this Namespace"
	failed := func(detail string) { r.fail(fault{object: object, detail: detail, remedy: remedy}) }
	switch why := c.ending(t.Expires); {
	case t.Missing && c.joins() != "":
		r.unknown(object, "it does not exist yet: %s", c.joins())
	case t.Missing:
		failed("the ClusterSet names it for the leader, and it does not exist")
	case !slices.Contains(t.Keys, "token"), !slices.Contains(t.Keys, "ca.crt"):
		failed("it needs the keys token and ca.crt, and has " + problem.Few(t.Keys))
	case t.Malformed != "":
		failed("its token is invalid: " + t.Malformed)
	case why != "":
		failed("its token " + why)
	case c.ending(t.CAEnds) != "":
		failed("the CA of the leader in it " + c.ending(t.CAEnds))
	default:
		r.pass("of %s", t.Subject)
	}
}

// oneClusterSet compares the ClusterSets of clusters.
func oneClusterSet(clusters []*Cluster, r *report) {
	members := slices.DeleteFunc(slices.Clone(clusters), func(c *Cluster) bool { return c.set() == nil })
	if len(members) == 0 {
		r.skip("no cluster is in a ClusterSet")
		return
	}
	for i, a := range members {
		x := a.set()
		for _, b := range members[i+1:] {
			y := b.set()
			same := x.Name == y.Name && x.Spec.Namespace == y.Spec.Namespace &&
				x.Spec.Leaders[0].ClusterID == y.Spec.Leaders[0].ClusterID
			switch {
			case !same:
				r.fail(fault{object: "ClusterSet " + x.Name, detail: fmt.Sprintf(
					"%s is in ClusterSet %s (leader %s, Common Area %s), and %s is in ClusterSet %s (leader %s, Common Area %s)",
					a.Name, x.Name, x.Spec.Leaders[0].ClusterID, x.Spec.Namespace, b.Name, y.Name, y.Spec.Leaders[0].ClusterID,
					y.Spec.Namespace), remedy: "join both to one, or ask about clusters of one ClusterSet"})
			case a.id() == b.id():
				r.fail(fault{object: "ClusterSet " + x.Name, detail: fmt.Sprintf("%s and %s have the same cluster ID, %s",
					a.Name, b.Name, a.id()), remedy: "give each member an ID of its own: tombolo mc leave, then join"})
			case a.Token != nil && b.Token != nil && a.Token.Subject != "" && a.Token.Subject == b.Token.Subject:
				r.fail(fault{object: "ClusterSet " + x.Name, detail: fmt.Sprintf("%s and %s use the token of one account, %s: it "+
					"is good for one member", a.Name, b.Name, a.Token.Subject),
					remedy: "make a token of its own for each: tombolo mc create membertoken"})
			}
		}
	}
}

// clusterCondition returns a condition of a ClusterSet about a cluster, or nil.
func clusterCondition(s *mcv1alpha2.ClusterSet, id string, kind mcv1alpha2.ClusterConditionType,
) *mcv1alpha2.ClusterCondition {
	for _, status := range s.Status.ClusterStatuses {
		for i, c := range status.Conditions {
			if status.ClusterID == id && c.Type == kind {
				return &status.Conditions[i]
			}
		}
	}
	return nil
}

// text returns reason and message of a condition.
func text(reason, message string) string {
	return strings.Trim(reason+": "+message, ": ")
}

// connected judges the member's report about the leader.
func connected(_ *Facts, c *Cluster, r *report) {
	s := c.set()
	object := fmt.Sprintf("ClusterSet %s/%s", s.Namespace, s.Name)
	i := slices.IndexFunc(s.Status.Conditions, func(c mcv1alpha2.ClusterSetCondition) bool {
		return c.Type == mcv1alpha2.ClusterSetReady
	})
	logs := fmt.Sprintf("kubectl logs -n %s deployment/%s", s.Namespace, memberController)
	if i < 0 {
		if why := c.joins(); why != "" {
			r.unknown(object, "the member's controller has not looked at it yet: %s", why)
			return
		}
		r.fail(fault{object: object, detail: "the member's controller has not looked at it", remedy: logs})
		return
	}
	overall := s.Status.Conditions[i]
	if why := c.joins(); why != "" && overall.Status == corev1.ConditionUnknown {
		r.unknown(object, "the leader has not answered yet: %s", why)
		return
	}
	if overall.Status == corev1.ConditionTrue {
		r.pass("%s in ClusterSet %s", c.id(), s.Name)
		return
	}
	detail := "it is not Ready: " + text(overall.Reason, overall.Message)
	if x := clusterCondition(s, s.Spec.Leaders[0].ClusterID, mcv1alpha2.ClusterReady); x != nil && x.Message != "" {
		detail += "; leader " + s.Spec.Leaders[0].ClusterID + ": " + text(x.Reason, x.Message)
	}
	r.fail(fault{object: object, detail: detail, remedy: remedyOfLeader(detail, s, logs)})
}

// remedyOfLeader returns the remedy for an error of the leader's API server.
func remedyOfLeader(why string, s *mcv1alpha2.ClusterSet, logs string) string {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(why), w) })
	}
	secret := fmt.Sprintf("Secret %s/%s", s.Namespace, s.Spec.Leaders[0].Secret)
	switch {
	case has("unauthorized", "must be logged in"):
		return "the token in " + secret + " is wrong or old: make a new one in the leader (tombolo mc create membertoken)"
	case has("x509", "certificate"):
		return "ca.crt in " + secret + " is not the CA of the leader's API server: take it from the leader again"
	case has("forbidden"):
		return "the account of " + secret + " needs a RoleBinding to the Role antrea-mc-member-cluster-role in Namespace " +
			s.Spec.Namespace + " of the leader, and is good for one member"
	case has("refused", "timeout", "deadline", "no route", "unreachable", "no such host"):
		return "check the route and the firewall from the Pods of this cluster to " + s.Spec.Leaders[0].Server
	}
	return logs
}

// otherClusters names clusters that are silent, are gone, or have left.
func otherClusters(f *Facts, c *Cluster, r *report) {
	s := c.set()
	if s == nil && len(c.areas()) == 0 {
		r.skip("it is in no ClusterSet")
		return
	}
	for _, info := range c.Infos {
		id := info.Spec.ClusterID
		if at := info.Annotations[multicluster.AnnotationWithdrawn]; at != "" {
			r.add(Pass, "cluster "+id, "it has left: the leader withdrew it at "+at, "",
				"nothing is sent to its Gateways; if this was not meant, join it again (tombolo mc join)")
			continue
		}
		if s == nil {
			continue
		}
		if x := clusterCondition(s, id, mcv1alpha2.ClusterReachable); x != nil && x.Reason == reasonGone {
			r.fail(fault{object: "cluster " + id, detail: "it is gone: no way to it is up, for other clusters too: " + x.Message,
				remedy: "look at its Gateways; requests go to other clusters meanwhile"})
		}
	}
	for _, area := range c.areas() {
		for _, status := range area.Status.ClusterStatuses {
			x := clusterCondition(area, status.ClusterID, mcv1alpha2.ClusterReady)
			if x == nil || x.Status == corev1.ConditionTrue {
				continue
			}
			r.fail(fault{object: "cluster " + status.ClusterID,
				detail: "it is silent for the leader: " + text(x.Reason, x.Message),
				remedy: "look at the condition of its ClusterSet, and at the log of its " + memberController})
		}
	}
	if len(c.areas()) == 0 && !slices.ContainsFunc(f.Clusters, func(c Cluster) bool { return len(c.areas()) > 0 }) {
		r.unknown("", "whether a cluster is silent is known in the leader %s, which was not asked: add its context",
			s.Spec.Leaders[0].ClusterID)
	}
}

// reasonGone is the reason of the condition Reachable for a cluster that no other cluster reaches (member/clusters).
const reasonGone = "ClusterGone"

// reachable judges the member's conditions about ways.
func reachable(_ *Facts, c *Cluster, r *report) {
	s := c.set()
	for _, status := range s.Status.ClusterStatuses {
		x := clusterCondition(s, status.ClusterID, mcv1alpha2.ClusterReachable)
		switch {
		case x != nil && x.Reason == reasonGone:
			r.skip("cluster " + status.ClusterID + " is gone")
		case x == nil, x.Status == corev1.ConditionTrue:
		case x.Status == corev1.ConditionUnknown:
			r.unknown("cluster "+status.ClusterID, "%s", text(x.Reason, x.Message))
		case waits(c, x, status.ClusterID) != "":
			r.unknown("cluster "+status.ClusterID, "the condition is of a moment ago, and may be over: %s",
				waits(c, x, status.ClusterID))
		default:
			r.fail(fault{object: "cluster " + status.ClusterID, detail: "no way to it is up: " + text(x.Reason, x.Message),
				remedy: "see the results of the check of ways (TD036)"})
		}
	}
}

// reportTime is how long a way has to be up until the member's controller finds it up: the agent waits for ten seconds,
// reports it with the other ways of the Node, and the controller writes the condition.
const reportTime = time.Minute

// waits returns the reason why an unreachable cluster is no fault yet: its ways are new, or they are up again now.
// Otherwise it returns "".
func waits(c *Cluster, x *mcv1alpha2.ClusterCondition, id string) string {
	if why := cmp.Or(c.joins(), c.news(id), c.moves(anyGateway)); why != "" {
		return why
	}
	if ago, recent := c.age(x.LastTransitionTime.Time, reportTime); recent && reaches(c, id) {
		return "it was written " + ago + ", and agents find a way up now"
	}
	return ""
}

// reaches reports whether an agent of a Gateway finds a way to another cluster up.
func reaches(c *Cluster, id string) bool {
	return slices.ContainsFunc(c.Agents, func(a Agent) bool {
		return a.watches() && slices.ContainsFunc(a.Peers, func(p api.Peer) bool {
			ours := p.Kind == "Cluster" && p.Name == id && p.Role == "gateway"
			return ours && slices.ContainsFunc(p.Ways, func(w api.Way) bool {
				return w.State == up || later(&a, p, w).State == up
			})
		})
	})
}

// network are the ranges of a cluster.
type network struct {
	services, pods []netip.Prefix
	announced      bool // the Pod ranges, to other clusters
}

// networkOf returns the ranges of a cluster: the announced ranges, and the ranges of its Nodes.
func networkOf(c *Cluster, clusters []*Cluster) network {
	var n network
	take := func(info *mcv1alpha1.ClusterInfo) {
		if info == nil || info.ClusterID != c.id() || info.ClusterID == "" {
			return
		}
		n.services = append(n.services, prefixes(info.Services())...)
		n.pods = append(n.pods, prefixes(info.PodCIDRs)...)
		n.announced = n.announced || len(info.PodCIDRs) > 0
	}
	for _, other := range clusters {
		for _, e := range other.ResourceExports { // refused ones too
			take(e.Spec.ClusterInfo)
		}
		for i := range other.Infos {
			take(&other.Infos[i].Spec)
		}
	}
	for _, g := range c.Gateways {
		n.services = append(n.services, prefixes([]string{g.ServiceCIDR})...)
	}
	for _, node := range c.Nodes {
		n.pods = append(n.pods, prefixes(node.Spec.PodCIDRs)...)
	}
	return n
}

func prefixes(texts []string) (all []netip.Prefix) {
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}

// meeting returns two ranges that meet. The widest are preferred.
func meeting(a, b []netip.Prefix) (x, y netip.Prefix, meet bool) {
	for _, p := range a {
		for _, q := range b {
			if p.Overlaps(q) && (!meet || p.Bits()+q.Bits() < x.Bits()+y.Bits()) {
				x, y, meet = p, q, true
			}
		}
	}
	return x, y, meet
}

// ranges compares the ranges of clusters.
func ranges(clusters []*Cluster, r *report) {
	members := slices.DeleteFunc(slices.Clone(clusters), func(c *Cluster) bool { return c.set() == nil })
	if len(members) < 2 {
		r.skip("fewer than two members were asked")
		return
	}
	for i, a := range members {
		x := networkOf(a, clusters)
		for _, b := range members[i+1:] {
			y := networkOf(b, clusters)
			for _, pair := range []struct {
				what   string
				a, b   []netip.Prefix
				allows bool
			}{
				{"the Service range %s of %s meets the Service range %s of %s", x.services, y.services, false},
				{"the Service range %s of %s meets the Pod range %s of %s", x.services, y.pods, false},
				{"the Pod range %s of %s meets the Service range %s of %s", x.pods, y.services, false},
				{"the Pod range %s of %s meets the Pod range %s of %s", x.pods, y.pods, !x.announced || !y.announced},
			} {
				if p, q, meet := meeting(pair.a, pair.b); meet && !pair.allows {
					r.fail(fault{object: "ClusterSet " + a.set().Name, detail: fmt.Sprintf(pair.what, p, a.Name, q, b.Name),
						remedy: "give one of the two clusters other ranges; Pod ranges that are not announced (podCIDRs of the " +
							"member's configuration) may meet"})
				}
			}
		}
	}
}

// gatewaysUsable judges the Gateways of a member.
func gatewaysUsable(_ *Facts, c *Cluster, r *report) {
	if len(c.Gateways) == 0 {
		others := slices.ContainsFunc(c.Infos, func(i mcv1alpha1.ClusterInfoImport) bool {
			return len(i.Spec.GatewayInfos) > 0
		})
		if !others {
			r.skip("no cluster of the ClusterSet has a Gateway")
			return
		}
		if why := c.joins(); why != "" {
			r.unknown("", "it has no Gateway yet: %s", why)
			return
		}
		r.fail(fault{detail: "it has no Gateway, and other clusters have some",
			remedy: "annotate a Ready Node: kubectl annotate node NODE " + multicluster.AnnotationGateway + "=true"})
		return
	}
	usable := 0
	for i := range c.Gateways {
		g := &c.Gateways[i]
		object := fmt.Sprintf("Gateway %s/%s", g.Namespace, g.Name)
		n := c.node(g.Name)
		if n == nil {
			r.fail(fault{object: object, detail: "its Node does not exist", remedy: "annotate another Node as a Gateway"})
			continue
		}
		if ok, why := ready(n); !ok {
			r.fail(fault{object: object, detail: "its Node is not Ready: " + why,
				remedy: "kubectl describe node " + g.Name + "; annotate a second Node as a Gateway"})
			continue
		}
		usable++
	}
	if usable == len(c.Gateways) {
		r.pass("%d", usable)
	}
}

// addresses returns the addresses at which other clusters reach the Gateways of a cluster.
func addresses(c *Cluster) []string {
	var all []string
	for _, g := range c.Gateways {
		if g.Annotations[multicluster.AnnotationPhase] != multicluster.PhaseLeft { // it is no longer announced
			all = append(all, g.GatewayIP)
		}
	}
	slices.Sort(all)
	return all
}

// known judges what each cluster has received about each other one.
func known(clusters []*Cluster, r *report) {
	const remedy = "wait half a minute; then see the condition of the ResourceExport %s-clusterinfo in the leader"
	members := slices.DeleteFunc(slices.Clone(clusters), func(c *Cluster) bool { return c.set() == nil })
	if len(members) < 2 {
		r.skip("fewer than two members were asked")
		return
	}
	for _, c := range members {
		for _, other := range members {
			if other == c || len(other.Gateways) == 0 || other.id() == c.id() {
				continue
			}
			r.cluster = c.Name
			info, remedy := c.info(other.id()), fmt.Sprintf(remedy, other.id())
			wait := cmp.Or(c.joins(), other.joins(), other.moves(anyGateway), c.news(other.id()))
			if info == nil && wait != "" {
				r.unknown("cluster "+other.id(), "this cluster has received nothing about it yet: %s", wait)
				continue
			}
			if info == nil {
				r.fail(fault{object: "cluster " + other.id(), detail: "this cluster has received nothing about it", remedy: remedy})
				continue
			}
			object := fmt.Sprintf("ClusterInfoImport %s/%s", info.Namespace, info.Name)
			for _, x := range info.Status.Conditions {
				if x.Status == corev1.ConditionFalse {
					r.fail(fault{object: object, detail: "it is not used: " + text(x.Reason, x.Message),
						remedy: "the message names what to change"})
				}
			}
			have := addresses(other)
			var old []string
			for _, g := range info.Spec.GatewayInfos {
				if !slices.Contains(have, g.GatewayIP) {
					old = append(old, g.GatewayIP)
				}
			}
			if wait != "" {
				continue // they come, or have come a moment ago
			}
			if len(old) > 0 || len(info.Spec.GatewayInfos) == 0 && len(have) > 0 {
				var got []string
				for _, g := range info.Spec.GatewayInfos {
					got = append(got, g.GatewayIP)
				}
				r.fail(fault{object: object, detail: fmt.Sprintf("it has the gateways %s, and cluster %s has %s",
					orNone(got), other.Name, orNone(have)), remedy: remedy})
			}
		}
	}
	r.cluster = ""
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return problem.Few(names)
}
