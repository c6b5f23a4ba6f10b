package diagnose

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// apiServers names the API servers that do not answer.
func apiServers(clusters []*Cluster, r *report) {
	for _, c := range clusters {
		r.cluster = c.Name
		if c.Fault == "" {
			r.pass("Kubernetes %s", c.Version)
			continue
		}
		r.fail(fault{detail: "the API server does not answer: " + c.Fault,
			remedy: "check the context, the network and the credentials: kubectl get --raw /version"})
	}
}

// skew is the most that clocks may differ.
const skew = 30 * time.Second

// clocks compares the clocks of API servers.
func clocks(clusters []*Cluster, r *report) {
	for i, a := range clusters {
		for _, b := range clusters[i+1:] {
			if apart := (a.Ahead - b.Ahead).Abs(); apart > skew {
				r.fail(fault{
					detail:   fmt.Sprintf("the clocks of %s and %s are %s apart", a.Name, b.Name, apart.Round(time.Second)),
					remedy:   "run NTP in both clusters, on the Nodes of the control planes",
					evidence: []string{ahead(a), ahead(b)},
				})
			}
		}
	}
}

// nodeClocks compares the clocks of Nodes with the API server's.
func nodeClocks(_ *Facts, c *Cluster, r *report) {
	for _, a := range c.Agents {
		if a.Probes == nil || a.Probes.At.IsZero() {
			continue
		}
		if apart := a.Ahead - c.Ahead; apart.Abs() > skew+a.Took {
			r.fail(fault{object: "Node " + a.Node, detail: "its clock is " + differs(apart) + " the API server's",
				remedy: "run NTP on the Node (chronyc tracking)"})
		}
	}
}

func ahead(c *Cluster) string { return c.Name + " is " + differs(c.Ahead) + " this machine" }

// differs returns words about the difference of a clock from another one.
func differs(d time.Duration) string {
	if d = d.Round(time.Second); d < 0 {
		return d.Abs().String() + " behind"
	}
	return d.String() + " ahead of"
}

// nodesReady reports Nodes that are not Ready. If the cause is the network of the Node, a check of its agent reports
// it.
func nodesReady(_ *Facts, c *Cluster, r *report) {
	for _, n := range c.Nodes {
		ok, why := ready(&n)
		a := c.agent(n.Name)
		named := a != nil && (a.Fault != "" || a.Status != nil && !a.Status.Ready)
		if ok || named && strings.Contains(why, "NetworkPluginNotReady") {
			continue // the checks of agents name the fault
		}
		if ago, recent := c.age(n.CreationTimestamp.Time, joinTime); recent {
			r.unknown("Node "+n.Name, "it is not Ready, and joined %s: %s", ago, why)
			continue
		}
		r.fail(fault{object: "Node " + n.Name, detail: "it is not Ready: " + why,
			remedy: "kubectl describe node " + n.Name + "; look at the kubelet on it"})
	}
}

// agentsRun names Nodes without a running agent.
func agentsRun(f *Facts, c *Cluster, r *report) {
	if c.AgentsFault != "" {
		r.unknown("", "%s", c.AgentsFault)
		return
	}
	running := 0
	for _, a := range c.Agents {
		switch why := stopped(a.Pod); {
		case a.Pod == nil && isYoung(c, a.Node):
			r.unknown("Node "+a.Node, "it has no Pod of tombolo-agent yet: it is a new Node")
		case why != "" && a.Pod != nil && replaced(c, a.Pod) != "":
			r.unknown("Node "+a.Node, "its agent does not run yet: Pod %s/%s: %s: %s", a.Pod.Namespace, a.Pod.Name, why,
				replaced(c, a.Pod))
		case a.Pod == nil:
			r.fail(fault{object: "Node " + a.Node, detail: "it has no Pod of tombolo-agent",
				remedy: "kubectl describe daemonset tombolo-agent -n kube-system; look at the Node's taints and labels"})
		case why != "":
			r.fail(fault{object: "Node " + a.Node, detail: fmt.Sprintf("its agent does not run: Pod %s/%s: %s",
				a.Pod.Namespace, a.Pod.Name, why), remedy: fmt.Sprintf("kubectl describe pod -n %s %s; kubectl logs -n %s %s "+
				"-c tombolo-agent --previous", a.Pod.Namespace, a.Pod.Name, a.Pod.Namespace, a.Pod.Name)})
		default:
			running++
		}
	}
	if running == len(c.Agents) {
		r.pass("%d of %d", running, len(c.Agents))
	}
}

// stopped returns why a Pod does not run, or nothing.
func stopped(p *corev1.Pod) string {
	if p == nil {
		return "there is none"
	}
	if p.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" {
			return strings.TrimSpace(fmt.Sprintf("container %s waits: %s %s", s.Name, w.Reason, w.Message))
		}
		if t := s.State.Terminated; t != nil && p.Status.Phase != corev1.PodRunning && t.ExitCode != 0 {
			return fmt.Sprintf("container %s ended with code %d: %s %s", s.Name, t.ExitCode, t.Reason, t.Message)
		}
	}
	if p.Status.Phase != corev1.PodRunning {
		return "it is " + string(p.Status.Phase)
	}
	return ""
}

// agentsAnswer names agents that run and do not answer.
func agentsAnswer(_ *Facts, c *Cluster, r *report) {
	if c.AgentsFault != "" {
		r.unknown("", "%s", c.AgentsFault)
		return
	}
	answering := 0
	for _, a := range c.Agents {
		switch {
		case stopped(a.Pod) != "":
			r.unknown("Node "+a.Node, "its agent does not run")
		case a.Fault != "" && c.starts(&a) != "":
			r.unknown("Node "+a.Node, "it does not answer, and %s: %s", c.starts(&a), a.Fault)
		case a.Fault != "":
			r.fail(fault{object: "Node " + a.Node, detail: "its agent does not answer: " + a.Fault,
				remedy: fmt.Sprintf("kubectl logs -n %s %s -c tombolo-agent", a.Pod.Namespace, a.Pod.Name)})
		default:
			answering++
		}
	}
	if answering > 0 && answering == len(c.Agents) {
		r.pass("%d of %d", answering, len(c.Agents))
	}
}

// answers calls f for each agent that answers. The others are unknown.
func (c *Cluster) answers(r *report, f func(a *Agent)) {
	for i := range c.Agents {
		if a := &c.Agents[i]; a.Status != nil {
			f(a)
		} else {
			r.unknown("Node "+a.Node, "its agent does not answer")
		}
	}
}

// agentsReady names agents that wait for something.
func agentsReady(_ *Facts, c *Cluster, r *report) {
	c.answers(r, func(a *Agent) {
		if !a.Status.Ready {
			why := "it does not name the cause"
			if len(a.Status.Waiting) > 0 {
				why = "it waits: " + strings.Join(a.Status.Waiting, "; ")
			}
			if started := c.starts(a); started != "" {
				r.unknown("Node "+a.Node, "its network is not ready, and %s: %s", started, why)
				return
			}
			r.fail(fault{object: "Node " + a.Node, detail: "its network is not ready: " + why,
				remedy: "see `tombolo get status` in Pod " + podOf(a)})
		}
	})
}

func podOf(a *Agent) string {
	if a.Pod == nil {
		return "tombolo-agent"
	}
	return a.Pod.Namespace + "/" + a.Pod.Name
}

// flowsTaken names Nodes whose switch is away, or refuses flows.
func flowsTaken(_ *Facts, c *Cluster, r *report) {
	var evidence []string
	c.answers(r, func(a *Agent) {
		of := a.Status.OpenFlow
		switch started := c.starts(a); {
		case started != "" && (!of.Connected || len(of.Refused) > 0):
			r.unknown("Node "+a.Node, "the switch does not have all flows, and %s", started)
		case !of.Connected:
			r.fail(fault{object: "Node " + a.Node, detail: "the agent has no OpenFlow connection to its switch",
				remedy: "look at the Pod of tombolo-ovs on the Node", evidence: lines("last error: ", of.LastError)})
		case len(of.Refused) > 0:
			r.fail(fault{object: "Node " + a.Node, detail: fmt.Sprintf("its switch refuses %d flows", len(of.Refused)),
				remedy: "the reason names what Open vSwitch " + a.Status.OVS + " does not support", evidence: some(of.Refused)})
		case of.Mended > 0:
			evidence = append(evidence, fmt.Sprintf("Node %s: %d foreign changes of flows since %s have been mended", a.Node,
				of.Mended, a.Status.Started.UTC().Format(time.RFC3339)))
		}
	})
	if len(evidence) > 0 {
		r.add(Pass, "", "somebody else has changed flows", "", some(evidence)...)
	}
}

// lines returns a line of evidence; none for an empty text.
func lines(prefix, text string) []string {
	if text == "" {
		return nil
	}
	return []string{prefix + text}
}

// some returns the first lines of evidence, and the number of the others.
func some(all []string) []string {
	const most = 5
	if len(all) <= most {
		return all
	}
	return append(slices.Clone(all[:most]), fmt.Sprintf("and %d more", len(all)-most))
}

// problemsOfNodes sums the problems of all agents up by reason.
func problemsOfNodes(_ *Facts, c *Cluster, r *report) {
	type sum struct{ nodes, lines []string }
	byReason := map[string]*sum{}
	c.answers(r, func(a *Agent) {
		if started := c.starts(a); started != "" && len(a.Status.Problems) > 0 {
			r.unknown("Node "+a.Node, "it has %d problems, and %s", len(a.Status.Problems), started)
			return
		}
		for _, p := range a.Status.Problems {
			if p.Reason == reasonNotStretched {
				continue // has a check of its own
			}
			s := byReason[p.Reason]
			if s == nil {
				s = &sum{}
				byReason[p.Reason] = s
			}
			if !slices.Contains(s.nodes, a.Node) {
				s.nodes = append(s.nodes, a.Node)
			}
			line := strings.TrimSpace(p.Object+" "+p.Field) + ": " + p.Message
			if !slices.Contains(s.lines, line) {
				s.lines = append(s.lines, line)
			}
		}
	})
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		s := byReason[reason]
		r.fail(fault{object: "Nodes " + problem.Few(s.nodes), detail: fmt.Sprintf("%s: %s", reason, s.lines[0]),
			remedy: "the message has it; `tombolo get status` on the Nodes lists all", evidence: some(s.lines[1:])})
	}
}

// minor is the first two numbers of a version.
var minor = regexp.MustCompile(`^v?(\d+)\.(\d+)`)

// versions compares the versions of agents.
func versions(clusters []*Cluster, r *report) {
	type at struct {
		cluster, version string
		major, minor     int
	}
	var all []at
	for _, c := range clusters {
		r.cluster = c.Name
		nodes := map[string][]string{}
		for _, a := range c.Agents {
			if a.Status != nil {
				nodes[a.Status.Version] = append(nodes[a.Status.Version], a.Node)
			}
		}
		var list []string
		for _, v := range slices.Sorted(maps.Keys(nodes)) {
			list = append(list, fmt.Sprintf("%s on %s", v, problem.Few(nodes[v])))
			if m := minor.FindStringSubmatch(v); m != nil {
				x, _ := strconv.Atoi(m[1])
				y, _ := strconv.Atoi(m[2])
				all = append(all, at{c.Name, v, x, y})
			}
		}
		if len(nodes) > 1 {
			r.fail(fault{detail: fmt.Sprintf("the agents have %d versions", len(nodes)), evidence: some(list),
				remedy: "complete the upgrade: kubectl rollout status daemonset/tombolo-agent -n kube-system"})
		} else {
			r.pass("%s", strings.Join(list, ""))
		}
	}
	r.cluster = ""
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.cluster != b.cluster && (a.major != b.major || a.minor-b.minor > 1 || b.minor-a.minor > 1) {
				r.fail(fault{detail: fmt.Sprintf("%s has version %s, and %s has %s", a.cluster, a.version, b.cluster, b.version),
					remedy: "upgrade the older cluster: clusters may differ by one minor version"})
			}
		}
	}
}

// controllerNames are the Deployments of a cluster's own controllers.
var controllerNames = []string{"tombolo-controller", "tombolo-policy-controller"}

// memberController is the Deployment of a member's and of a leader's controller, in the Namespace of the ClusterSet.
const memberController = "antrea-mc-controller"

// controllers names controllers without a ready replica.
func controllers(_ *Facts, c *Cluster, r *report) {
	type place struct{ namespace, name string }
	want := map[place]string{}
	for _, s := range c.Sets {
		if _, recent := c.age(s.CreationTimestamp.Time, startTime); !recent {
			want[place{s.Namespace, memberController}] = "its ClusterSet " + s.Name + " needs it"
		}
	}
	if len(c.Agents) > 0 {
		for _, name := range controllerNames {
			want[place{agentNamespace(c), name}] = "every cluster has one"
		}
	}
	for _, d := range c.Deployments {
		at := place{d.Namespace, d.Name}
		relay := at == place{api.RelayNamespace, api.RelayService}
		if _, ok := want[at]; !ok && (!relay || d.Spec.Replicas != nil && *d.Spec.Replicas == 0) {
			continue
		}
		delete(want, at)
		replicas := int32(1)
		if d.Spec.Replicas != nil {
			replicas = *d.Spec.Replicas
		}
		var evidence []string
		for _, x := range d.Status.Conditions {
			if x.Status == corev1.ConditionFalse {
				evidence = append(evidence, x.Reason+": "+x.Message)
			}
		}
		if why := rises(c, &d); why != "" && d.Status.ReadyReplicas == 0 {
			r.unknown(fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name), "0 of %d replicas are ready, and %s", replicas, why)
		} else if d.Status.ReadyReplicas == 0 {
			r.fail(fault{object: fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name),
				detail: fmt.Sprintf("0 of %d replicas are ready", replicas), evidence: evidence,
				remedy: fmt.Sprintf("kubectl describe deployment -n %s %s; kubectl logs -n %s deployment/%s", d.Namespace, d.Name,
					d.Namespace, d.Name)})
		}
	}
	for at, why := range want {
		r.fail(fault{object: fmt.Sprintf("Deployment %s/%s", at.namespace, at.name), detail: "it does not exist, and " + why,
			remedy: "apply the manifests again (docs/install.md)"})
	}
	slices.SortFunc(r.results, func(a, b Result) int { return strings.Compare(a.Cluster+a.Object, b.Cluster+b.Object) })
}

// agentNamespace returns the Namespace of the agents' Pods.
func agentNamespace(c *Cluster) string {
	for _, a := range c.Agents {
		if a.Pod != nil {
			return a.Pod.Namespace
		}
	}
	return "kube-system"
}

// elected names controllers whose elected replica does not renew its Lease.
func elected(_ *Facts, c *Cluster, r *report) {
	const most = time.Minute
	for _, l := range c.Leases {
		if l.Name != memberController && !slices.Contains(controllerNames, l.Name) || l.Spec.RenewTime == nil {
			continue
		}
		runs := slices.ContainsFunc(c.Deployments, func(d appsv1.Deployment) bool { // and has had time for an election
			return d.Namespace == l.Namespace && d.Name == l.Name && d.Status.ReadyReplicas > 0 && rises(c, &d) == ""
		})
		holder := "nobody"
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			holder = *l.Spec.HolderIdentity
		}
		if age := c.Now.Sub(l.Spec.RenewTime.Time); runs && age > most {
			r.fail(fault{object: fmt.Sprintf("Lease %s/%s", l.Namespace, l.Name),
				detail: fmt.Sprintf("it was renewed %s ago, by %s", age.Round(time.Second), holder),
				remedy: fmt.Sprintf("kubectl logs -n %s deployment/%s", l.Namespace, l.Name)})
		}
	}
}

// endsSoon is the time before its end at which a certificate or a token is reported.
const endsSoon = 30 * 24 * time.Hour

// ending describes an end that is near, or nothing.
func (c *Cluster) ending(at time.Time) string {
	switch left := at.Sub(c.Now); {
	case at.IsZero() || left > endsSoon:
		return ""
	case left < 0:
		return "ended on " + at.UTC().Format(time.RFC3339)
	default:
		return fmt.Sprintf("ends on %s, in %d days", at.UTC().Format(time.RFC3339), int(left/(24*time.Hour)))
	}
}

// webhookCertificates names webhooks of ours of which all certificates end soon.
func webhookCertificates(_ *Facts, c *Cluster, r *report) {
	for _, w := range c.Webhooks {
		if !strings.Contains(w.Name, "antrea-mc") && !strings.HasPrefix(w.Name, "tombolo") {
			continue
		}
		object := "ValidatingWebhookConfiguration " + w.Name
		for _, hook := range w.Webhooks {
			list, err := cert.ParseCertsPEM(hook.ClientConfig.CABundle)
			if ago, recent := c.age(w.CreationTimestamp.Time, joinTime); err != nil && recent {
				r.unknown(object, "webhook %s has no certificate yet: it was made %s", hook.Name, ago)
				break
			}
			if err != nil {
				r.fail(fault{object: object, detail: "webhook " + hook.Name + " has no certificate: " + err.Error(),
					remedy: "look at the log of its controller, which publishes the certificate"})
				break
			}
			var last time.Time
			for _, x := range list {
				if x.NotAfter.After(last) {
					last = x.NotAfter
				}
			}
			if why := c.ending(last); why != "" {
				r.fail(fault{object: object, detail: "the certificate of webhook " + hook.Name + " " + why,
					remedy: "look at the log of its controller, which renews it 90 days before its end"})
				break
			}
		}
	}
}

// kubeProxy mentions kube-proxy.
func kubeProxy(_ *Facts, c *Cluster, r *report) {
	for _, d := range c.DaemonSets {
		if d.Name == "kube-proxy" && d.Status.DesiredNumberScheduled > 0 {
			r.pass("kube-proxy runs in Namespace %s", d.Namespace)
			return
		}
	}
	r.pass("it has no DaemonSet kube-proxy")
}
