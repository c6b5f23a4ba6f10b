package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// Reach is how an API server answers.
type Reach string

// An API server answers, has not answered yet, refuses access, or no longer answers.
const (
	Live     Reach = "live"
	Starting Reach = "connecting"
	Refused  Reach = "access refused"
	Silent   Reach = "no answer"
)

// Snapshot is what one context of the kubeconfig shows.
type Snapshot struct {
	Access
	Reach   Reach
	Listed  bool      // all kinds have been listed, or are not listed for this user
	Why     string    // why it does not answer
	AsOf    time.Time // of the last answer
	Version string    // of the API server
	Missing []Problem // kinds that the API server does not list for this user
	Sets    []*mcv1alpha2.ClusterSet
	// Gateways of the cluster itself.
	Gateways []*mcv1alpha1.Gateway
	Infos    []*mcv1alpha1.ClusterInfoImport
	Exports  []*mcsv1alpha1.ServiceExport
	Imports  []*mcsv1alpha1.ServiceImport
	Nodes    []NodeFacts
	Policies map[string]int
	Agents   map[string]Agent // by Node
	Refusal  string           // of the API server, if the user may not ask agents
}

// NodeFacts are the facts of a Node.
type NodeFacts struct {
	Name      string
	Ready     string
	Addresses string // separated by blanks
	Kubelet   string
}

// Agent is the last answer of the agent of a Node.
type Agent struct {
	Status api.Status
	AsOf   time.Time // zero if the agent has never answered
	Err    string    // of the last request
	// Ways are the results of probes, of a Gateway.
	Ways []api.ProbedWay
}

const (
	// maxProblems bounds the problems of a cluster in the Model.
	maxProblems = 100
	// maxBuilt is the largest number of ways that are in the Model. Above it the Model only has their number, and the ways
	// of a link are built on request.
	maxBuilt    = 20_000
	unknownWord = "unknown"
	leftWord    = "left"
)

// Build merges the views of several contexts, and adds faults to the problems of their clusters. If several contexts
// show one cluster, the Model has it once.
func Build(snapshots []Snapshot, faults ...Fault) Model {
	total := 0
	for _, s := range snapshots {
		for _, i := range s.Infos {
			total += len(s.Gateways) * len(i.Spec.GatewayInfos)
		}
	}
	m := build(snapshots, faults, total > maxBuilt, "")
	if total > maxBuilt {
		m.waysOf = func(key string) []Way {
			for _, l := range build(snapshots, nil, false, key).Links {
				return l.Ways
			}
			return nil
		}
	}
	return m
}

// build builds a Model. If counts is set, it counts the ways and leaves them out. If only is set, it builds the ways of
// that link, and nothing else.
func build(snapshots []Snapshot, faults []Fault, counts bool, only string) Model {
	b := &builder{faults: faults, counts: counts, only: only, clusters: map[string]*Cluster{}, links: map[string]*link{},
		services: map[[2]string]*Service{}, access: map[string]Access{},
		sets: map[string]*mcv1alpha2.ClusterSet{}, names: map[[2]string]string{},
		model: Model{Nodes: map[string][]Node{}, AsOf: map[string]time.Time{}}}
	var own []*view
	for i := range snapshots {
		if v := b.own(&snapshots[i]); v != nil {
			own = append(own, v)
		}
	}
	for _, v := range own {
		b.others(v)
	}
	for _, v := range own {
		b.ways(v)
		if only == "" {
			b.exchange(v)
			b.nodes(v)
		}
	}
	return b.done()
}

// builder is a Model in the making.
type builder struct {
	faults   []Fault
	counts   bool
	only     string
	model    Model
	clusters map[string]*Cluster
	links    map[string]*link
	services map[[2]string]*Service
	access   map[string]Access                 // by cluster
	sets     map[string]*mcv1alpha2.ClusterSet // of clusters that have a context
	names    map[[2]string]string              // of Gateways, by cluster and address
}

// view is a snapshot with its cluster.
type view struct {
	*Snapshot
	cluster *Cluster
	set     *mcv1alpha2.ClusterSet // nil without one
}

// live reports whether the API server answers, so that the snapshot has the present states.
func (v *view) live() bool { return v.Reach == Live }

// is returns a state, or Unknown if the API server does not answer, since the state may be out of date.
func (v *view) is(s State) State {
	if v.live() {
		return s
	}
	return Unknown
}

// kubectl returns a kubectl command for the view's cluster.
func (v *view) kubectl(words ...string) string {
	return Command(slices.Concat([]string{"kubectl"}, v.Kubectl, words)...)
}

// Command joins words for a shell.
func Command(words ...string) string {
	for i, w := range words {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:=,@%+", r)
		}) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// setOf returns the ClusterSet that makes the cluster a member, or the leader's own.
func setOf(sets []*mcv1alpha2.ClusterSet) *mcv1alpha2.ClusterSet {
	var best *mcv1alpha2.ClusterSet
	for _, s := range sets {
		if s.Spec.ClusterID != "" && (best == nil || leads(best) && !leads(s)) {
			best = s
		}
	}
	return best
}

// leads reports whether a ClusterSet is the leader's own.
func leads(s *mcv1alpha2.ClusterSet) bool {
	return len(s.Spec.Leaders) > 0 && s.Spec.Leaders[0].ClusterID == s.Spec.ClusterID && s.Spec.Leaders[0].Server == ""
}

// own adds the cluster of a snapshot. It returns nil if another context has a better view of the same cluster.
func (b *builder) own(s *Snapshot) *view {
	v := &view{Snapshot: s, set: setOf(s.Sets)}
	c := Cluster{ID: s.Name, Key: "context/" + s.Name, Context: s.Name, Version: s.Version, Policies: s.Policies,
		Current: s.Reach == Live && s.Listed}
	if v.set != nil {
		c.ID, c.ClusterSet = v.set.Spec.ClusterID, v.set.Name
		c.Key = keyOf(v.set.Name, c.ID)
	}
	for _, set := range s.Sets {
		c.Leader = c.Leader || set.Spec.ClusterID == c.ID &&
			len(set.Spec.Leaders) > 0 && set.Spec.Leaders[0].ClusterID == set.Spec.ClusterID
	}
	observe := slices.Concat([]string{"tombolo", "observe"}, s.Tombolo)
	if s.Arg != "" {
		observe = append(observe, "--context", s.Arg)
	}
	c.Observe = Command(observe...)
	c.State, c.Word, c.Why = v.state()
	if before := b.clusters[c.Key]; before != nil {
		before.problem(Problem{Object: "context " + s.Name, Reason: reasonSameCluster.String(),
			Message: "Contexts " + before.Context + " and " + s.Name + " show the same cluster ID. The map shows " +
				before.Context + "."})
		return nil
	}
	for _, f := range b.faults { // causes come before their effects
		if slices.Contains(f.Contexts, s.Name) {
			c.problem(f.Problem)
		}
	}
	for _, m := range s.Missing {
		m.Command = v.kubectl("get", m.Object, "-A")
		c.problem(m)
	}
	if s.Refusal != "" && v.live() {
		p := Problem{Object: "agents", Reason: reasonAgentsNotAsked.String(),
			Message: "This user may not ask the agents, so Nodes are " +
				"without problems and versions. It needs list for pods, and get and create for pods/exec. " + s.Refusal}
		if strings.Contains(s.Refusal, "pods/exec") {
			p.Command = v.kubectl("auth", "can-i", "create", "pods/exec", "-n", multicluster.AgentNamespace)
		} else {
			p.Command = v.kubectl("auth", "can-i", "list", "pods", "-A")
		}
		c.problem(p)
	}
	switch v.Reach {
	case Live, Starting:
		if v.set != nil {
			c.Commands = append(c.Commands, v.kubectl("describe", "clusterset", "-n", v.set.Namespace, v.set.Name))
		}
	default:
		c.Commands = append(c.Commands, v.kubectl("get", "--raw", "/readyz"))
	}
	if !s.AsOf.IsZero() {
		b.model.AsOf[c.Key] = s.AsOf
	}
	for _, g := range s.Gateways {
		for _, a := range []string{g.GatewayIP, g.Annotations[multicluster.AnnotationInsideIP]} {
			if a != "" {
				b.names[[2]string{c.Key, a}] = g.Name
			}
		}
	}
	v.cluster = &c
	b.clusters[c.Key], b.access[c.Key] = &c, s.Access
	b.sets[c.Key] = v.set
	return v
}

func keyOf(set, id string) string { return set + "/" + id }

// state returns the state of the view's cluster.
func (v *view) state() (_ State, word, why string) {
	if !v.live() {
		return Unknown, string(v.Reach), v.Why
	}
	if v.set == nil {
		if slices.ContainsFunc(v.Missing, func(p Problem) bool { return strings.HasPrefix(p.Object, "clustersets") }) {
			return Unknown, "ClusterSet not readable", "The API server does not list ClusterSets for this user."
		}
		return Unknown, "in no ClusterSet", "The cluster has no ClusterSet with a cluster ID. Join it: tombolo mc join."
	}
	for _, c := range v.set.Status.Conditions {
		if c.Type != mcv1alpha2.ClusterSetReady {
			continue
		}
		switch c.Status {
		case "True":
			return OK, "Ready", c.Message
		case "False":
			return Bad, "not Ready", sentence(c.Reason, c.Message)
		}
		return Unknown, "readiness unknown", sentence(c.Reason, c.Message)
	}
	return Unknown, "no status", "The member's controller has written no status. Does Deployment antrea-mc-controller run?"
}

func sentence(reason, message string) string {
	return strings.TrimSuffix(cmp.Or(reason, "no reason")+": "+message, ": ")
}

func (c *Cluster) problem(p Problem) {
	if len(c.Problems) == maxProblems {
		c.LeftOut++
		return
	}
	c.Problems = append(c.Problems, p)
}

// other returns the cluster with an ID in the ClusterSet of a view. It adds a cluster that no context shows.
func (b *builder) other(v *view, id string) *Cluster {
	key := keyOf(v.cluster.ClusterSet, id)
	c := b.clusters[key]
	if c == nil {
		c = &Cluster{Key: key, ID: id, ClusterSet: v.cluster.ClusterSet, State: Unknown, Word: "no context",
			Current: true, Why: "No context shows this cluster. Start tombolo ui with its context too."}
		b.clusters[key] = c
	}
	return c
}

// others adds the reports of a view about other clusters.
func (b *builder) others(v *view) {
	if v.set == nil {
		return
	}
	if v.set.Name != "" && !slices.Contains(b.model.ClusterSets, v.set.Name) {
		b.model.ClusterSets = append(b.model.ClusterSets, v.set.Name)
	}
	for _, set := range v.Sets {
		if len(set.Spec.Leaders) > 0 && set.Spec.Leaders[0].ClusterID != "" {
			b.other(v, set.Spec.Leaders[0].ClusterID).Leader = true
		}
		for _, status := range set.Status.ClusterStatuses {
			if status.ClusterID == "" {
				continue
			}
			c := b.other(v, status.ClusterID)
			for _, k := range status.Conditions {
				b.seen(v, c, "ClusterSet", Condition{Type: string(k.Type), Status: string(k.Status), Reason: k.Reason,
					Message: k.Message, Since: sayable(k.LastTransitionTime.Time)})
			}
		}
		for _, k := range set.Status.Conditions {
			b.seen(v, v.cluster, "ClusterSet", Condition{Type: string(k.Type), Status: string(k.Status), Reason: k.Reason,
				Message: k.Message, Since: sayable(k.LastTransitionTime.Time)})
		}
	}
	for _, info := range v.Infos {
		if info.Spec.ClusterID == "" {
			continue
		}
		c := b.other(v, info.Spec.ClusterID)
		c.Services, c.Pods = info.Spec.Services(), info.Spec.PodCIDRs
		for _, k := range info.Status.Conditions {
			b.seen(v, c, "ClusterInfoImport", Condition{Type: string(k.Type), Status: string(k.Status), Reason: k.Reason,
				Message: k.Message, Since: sayable(k.LastTransitionTime.Time)})
			if k.Status == "False" {
				v.cluster.problem(Problem{Object: "ClusterInfoImport " + info.Namespace + "/" + info.Name, Reason: k.Reason,
					Message: k.Message,
					Command: v.kubectl("describe", "clusterinfoimport", "-n", info.Namespace, info.Name)})
			}
		}
		if c.Context != "" {
			continue
		}
		if at := info.Annotations[multicluster.AnnotationWithdrawn]; at != "" && v.live() {
			c.State, c.Word = Unknown, leftWord
			c.Why = "The leader withdrew the cluster at " + at + ". Nothing is sent to its Gateways. If this was not meant, " +
				"join it again: tombolo mc join."
		}
		for _, g := range info.Spec.GatewayInfos {
			c.gateway(Gateway{Address: g.GatewayIP, State: Unknown, Word: "seen by " + v.cluster.ID})
		}
		for _, g := range info.Spec.LeavingGateways {
			c.gateway(Gateway{Address: g.GatewayIP, State: Unknown, Word: "seen by " + v.cluster.ID,
				Phase: multicluster.PhaseLeaving})
		}
	}
}

func (c *Cluster) gateway(g Gateway) {
	if !slices.ContainsFunc(c.Gateways, func(h Gateway) bool { return h.Address == g.Address }) {
		c.Gateways = append(c.Gateways, g)
	}
}

// seen adds a condition that a view reports about a cluster. If the reporting cluster does not answer, its report is
// out of date and does not change the cluster's state.
func (b *builder) seen(v *view, c *Cluster, kind string, k Condition) {
	c.Seen = append(c.Seen, Seen{By: v.cluster.ID, Kind: kind, Condition: k})
	if c == v.cluster || !v.live() || kind != "ClusterSet" || k.Type == string(mcv1alpha2.ClusterIsLeader) ||
		c.Word == leftWord {
		return
	}
	word := k.Type + " is " + cmp.Or(k.Status, unknownWord) + " by " + v.cluster.ID
	switch {
	case c.Context != "" && k.Status == "False":
		p := Problem{Object: "cluster " + c.ID, Reason: cmp.Or(k.Reason, k.Type), Message: word + ": " + k.Message,
			Command: v.kubectl("describe", "clusterset", "-n", v.set.Namespace, v.set.Name)}
		if !slices.ContainsFunc(c.Problems, func(o Problem) bool { return o.Object == p.Object && o.Reason == p.Reason }) {
			c.problem(p) // one of the clusters that report it is enough
		}
		if c.State == OK {
			c.State, c.Word, c.Why = Warn, word, sentence(k.Reason, k.Message)
		}
	case c.Context != "":
	case k.Status == "False":
		c.State, c.Word, c.Why = worse(c.State, Warn), word, sentence(k.Reason, k.Message)
	case k.Status == "True" && c.Word == "no context":
		c.Word = word
	}
}

// state returns the state of several ways.
func (c Count) state() (State, string) {
	all := c.Up + c.Down + c.Unknown
	switch {
	case all == 0:
		return Unknown, "no ways"
	case c.Down == all:
		return Bad, fmt.Sprintf("%s down", ways(c.Down))
	case c.Down > 0:
		return Warn, fmt.Sprintf("%d of %s down", c.Down, ways(all))
	case c.Up == all:
		return OK, fmt.Sprintf("%s up", ways(all))
	case c.Up > 0:
		return Unknown, fmt.Sprintf("%d of %s up, others unknown", c.Up, ways(all))
	}
	return Unknown, fmt.Sprintf("%s unknown", ways(all))
}

// exchange adds the exports and imports of a view.
func (b *builder) exchange(v *view) {
	v.cluster.Exports, v.cluster.Imports = len(v.Exports), len(v.Imports)
	for _, o := range v.Exports {
		end := ServiceEnd{Cluster: v.cluster.Key, Conditions: conditions(o.Status.Conditions),
			Commands: []string{v.kubectl("describe", "serviceexport", "-n", o.Namespace, o.Name)}}
		end.State, end.Word = exportState(o.Status.Conditions)
		end.State = v.is(end.State)
		if end.State == Bad || end.State == Warn {
			for _, c := range end.Conditions {
				if c.Type == "Conflict" && c.Status == "True" || c.Type != "Conflict" && c.Status == "False" {
					v.cluster.problem(Problem{Object: "ServiceExport " + o.Namespace + "/" + o.Name, Reason: c.Reason,
						Message: c.Message, Command: end.Commands[0]})
				}
			}
		}
		s := b.service(o.Namespace, o.Name)
		s.Exports = append(s.Exports, end)
	}
	for _, o := range v.Imports {
		end := ServiceEnd{Cluster: v.cluster.Key, Conditions: conditions(o.Status.Conditions), IPs: o.Spec.IPs,
			Commands: []string{v.kubectl("describe", "serviceimport", "-n", o.Namespace, o.Name)}}
		for _, c := range o.Status.Clusters {
			end.From = append(end.From, c.Cluster)
		}
		for _, p := range o.Spec.Ports {
			end.Ports = append(end.Ports, fmt.Sprintf("%s/%d", cmp.Or(string(p.Protocol), "TCP"), p.Port))
		}
		end.State, end.Word = OK, "imported"
		for _, c := range o.Status.Conditions {
			if c.Status == metav1.ConditionFalse {
				end.State, end.Word = Warn, cmp.Or(c.Reason, c.Type+" is False")
			}
		}
		end.State = v.is(end.State)
		s := b.service(o.Namespace, o.Name)
		s.Imports = append(s.Imports, end)
	}
}

func (b *builder) service(namespace, name string) *Service {
	key := [2]string{namespace, name}
	s := b.services[key]
	if s == nil {
		s = &Service{Namespace: namespace, Name: name, Exports: []ServiceEnd{}, Imports: []ServiceEnd{}}
		b.services[key] = s
	}
	return s
}

func conditions(list []metav1.Condition) (out []Condition) {
	for _, c := range list {
		out = append(out, Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message,
			Since: sayable(c.LastTransitionTime.Time)})
	}
	return out
}

// sayable returns a time in UTC, or no time if JSON has no text for its year.
func sayable(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// exportState returns the state of an export from its conditions.
func exportState(list []metav1.Condition) (State, string) {
	if len(list) == 0 {
		return Unknown, "no status"
	}
	state, word := OK, "exported"
	for _, c := range list {
		switch {
		case c.Type == string(mcsv1alpha1.ServiceExportConditionConflict) && c.Status == metav1.ConditionTrue:
			state, word = worse(state, Warn), "conflict"
		case c.Type == string(mcsv1alpha1.ServiceExportConditionConflict):
		case c.Status == metav1.ConditionFalse && c.Reason == "Pending":
			state, word = worse(state, Unknown), "pending"
		case c.Status == metav1.ConditionFalse:
			state, word = worse(state, Bad), cmp.Or(c.Reason, "not "+c.Type)
		case c.Status == metav1.ConditionUnknown:
			state, word = worse(state, Unknown), c.Type+" unknown"
		}
	}
	return state, word
}

// nodes adds the Nodes of a view with the answers of their agents.
func (b *builder) nodes(v *view) {
	gateways := map[string]bool{}
	for _, g := range v.Gateways {
		gateways[g.Name] = true
	}
	versions := map[string]bool{}
	for _, f := range v.Nodes {
		n := Node{Name: f.Name, Ready: f.Ready, Gateway: gateways[f.Name], Addresses: strings.Fields(f.Addresses),
			Kubelet: f.Kubelet}
		n.State, n.Word = OK, "Ready"
		switch f.Ready {
		case "True":
			v.cluster.Nodes.Ready++
		case "False":
			n.State, n.Word = Bad, "not Ready"
		default:
			n.State, n.Word = Unknown, "readiness unknown"
		}
		if a, asked := v.Agents[f.Name]; asked {
			v.cluster.Nodes.Asked++
			b.agent(v, &n, a)
			if a.Err == "" {
				v.cluster.Nodes.Answered++
				versions[a.Status.Version] = true
			}
		}
		if n.State = v.is(n.State); !v.live() {
			n.Word = string(v.Reach)
		}
		if n.State != OK {
			n.Commands = []string{v.kubectl("describe", "node", f.Name)}
		}
		v.cluster.Nodes.All++
		b.model.Nodes[v.cluster.Key] = append(b.model.Nodes[v.cluster.Key], n)
	}
	v.cluster.Agents = slices.Sorted(maps.Keys(versions))
}

// agent adds the answer of a Node's agent.
func (b *builder) agent(v *view, n *Node, a Agent) {
	n.AsOf, n.Agent = a.AsOf, a.Status.Version
	agentOf := v.kubectl("get", "pods", "-n", multicluster.AgentNamespace, "-o", "wide",
		"--field-selector", "spec.nodeName="+n.Name)
	add := func(p Problem) {
		n.Problems = append(n.Problems, p)
		p.Message = "Node " + n.Name + ": " + p.Message
		v.cluster.problem(p)
	}
	switch {
	case a.Err != "":
		if n.State == OK {
			n.State, n.Word = Unknown, "agent does not answer"
		}
		add(Problem{Object: "Node " + n.Name, Reason: reasonAgentNotAnswering.String(), Message: a.Err, Command: agentOf})
		return
	case !a.Status.Ready:
		if n.State == OK {
			n.State, n.Word = Warn, "agent not ready"
		}
		add(Problem{Object: "Node " + n.Name, Reason: reasonAgentNotReady.String(), Message: strings.Join(a.Status.Waiting,
			"; "),
			Command: agentOf})
	}
	for _, p := range a.Status.Problems {
		if n.State == OK {
			n.State, n.Word = Warn, "problems"
		}
		add(Problem{Object: p.Object, Reason: p.Reason, Message: p.Message, Command: agentOf})
	}
}

// done sorts all parts and summarises them.
func (b *builder) done() Model {
	m := b.model
	slices.Sort(m.ClusterSets)
	for _, key := range slices.Sorted(maps.Keys(b.links)) {
		l := b.links[key]
		poor := 0
		for _, w := range l.ways {
			l.Ways = append(l.Ways, *w)
			if w.AB.State == Warn || w.BA.State == Warn {
				poor++
			}
			l.AB.add(w.AB)
			l.BA.add(w.BA)
		}
		slices.SortFunc(l.Ways, func(x, y Way) int {
			return cmp.Or(cmp.Compare(x.A.Name, y.A.Name), cmp.Compare(x.A.Address, y.A.Address),
				cmp.Compare(x.B.Name, y.B.Name), cmp.Compare(x.B.Address, y.B.Address))
		})
		l.State, l.Word = Count{l.AB.Up + l.BA.Up, l.AB.Down + l.BA.Down, l.AB.Unknown + l.BA.Unknown}.state()
		if l.State == OK && poor > 0 {
			l.State, l.Word = Warn, fmt.Sprintf("%s, %d between Gateways poor", l.Word, poor)
		}
		if x, y := b.clusters[l.A], b.clusters[l.B]; x.Context != "" && y.Context != "" {
			ax, ay := b.access[l.A], b.access[l.B]
			flags := ax.Tombolo
			if len(flags) == 0 {
				flags = ay.Tombolo
			}
			words := slices.Concat([]string{"tombolo", "mc", "verify"}, flags, []string{ax.Arg, ay.Arg})
			l.Commands = []string{Command(words...)}
		}
		m.Links = append(m.Links, l.Link)
	}
	for _, key := range slices.Sorted(maps.Keys(b.clusters)) {
		c := b.clusters[key]
		if c.State == OK && len(c.Problems) > 0 {
			c.State, c.Word = Warn, "Ready, with problems"
		}
		if c.Gateways == nil {
			c.Gateways = []Gateway{}
		}
		slices.SortFunc(c.Gateways, func(x, y Gateway) int {
			return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Address, y.Address))
		})
		m.Clusters = append(m.Clusters, *c)
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.services), func(x, y [2]string) int {
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]))
	}) {
		s := b.services[key]
		s.State = OK
		for _, e := range slices.Concat(s.Exports, s.Imports) {
			s.State = worse(s.State, e.State)
		}
		m.Services = append(m.Services, *s)
	}
	return m
}
