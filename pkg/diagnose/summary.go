package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// Summary is the state of a cluster at a glance.
type Summary struct {
	Cluster    string `json:"cluster"`
	OK         bool   `json:"ok"`
	Kubernetes string `json:"kubernetes,omitempty"`
	// Agents has the number of Nodes for each version of the agent. It leaves out Nodes whose agents do not answer.
	Agents map[string]int `json:"agents,omitempty"`
	// Nodes and Controllers count the ready and all of them.
	Nodes       Ready `json:"nodes"`
	Controllers Ready `json:"controllers"`
	// ClusterSet is the name of the cluster's ClusterSet, and ID is its ID there. Both are empty if the cluster is no
	// member. Leads lists the Namespaces of its Common Areas.
	ClusterSet string   `json:"clusterSet,omitempty"`
	ID         string   `json:"id,omitempty"`
	Leads      []string `json:"leads,omitempty"`
	// Ways has two numbers of the ways from its Gateways to other clusters: the ways that are up, and all that BFD
	// watches.
	Ways Ready `json:"ways"`
	// Faults are sentences about what is not as it should be.
	Faults []string `json:"faults,omitempty"`
}

// Ready counts what is ready, and all.
type Ready struct {
	Ready int `json:"ready"`
	All   int `json:"all"`
}

// String returns "2/3", or "-" if there is nothing to count.
func (r Ready) String() string {
	if r.All == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.Ready, r.All)
}

// add counts one.
func (r *Ready) add(ready bool) {
	r.All++
	if ready {
		r.Ready++
	}
}

// mostProblems is how many Problems of a Node a summary names.
const mostProblems = 3

// Summarize returns the state of each cluster. own is the version of this program. An agent with another version is a
// fault.
func Summarize(f Facts, own string) (out []Summary) {
	for i := range f.Clusters {
		s := summarize(&f.Clusters[i], own)
		s.OK = len(s.Faults) == 0
		out = append(out, s)
	}
	return out
}

func summarize(c *Cluster, own string) Summary {
	s := Summary{Cluster: c.Name, Kubernetes: c.Version, Agents: map[string]int{}}
	fault := func(format string, args ...any) { s.Faults = append(s.Faults, fmt.Sprintf(format, args...)) }
	if c.Fault != "" {
		fault("the API server does not answer: %s", c.Fault)
		return s
	}
	if c.AgentsFault != "" {
		fault("the agents cannot be listed: %s", c.AgentsFault)
	}
	for _, kind := range []Kind{Deployments, ClusterSets} {
		if why := c.Unread[kind]; why != "" {
			fault("%s cannot be listed: %s", kind, why)
		}
	}
	for _, a := range c.Agents {
		summarizeAgent(&s, a)
	}
	if versions := slices.Sorted(maps.Keys(s.Agents)); len(versions) > 1 {
		fault("agents have %d versions: %s: finish the upgrade", len(versions), strings.Join(versions, ", "))
	} else if len(versions) == 1 && versions[0] != own {
		fault("agents have version %s, and this command has %s: use the command of that version", versions[0], own)
	}
	for _, d := range c.Deployments {
		if d.Name != memberController && !slices.Contains(controllerNames, d.Name) {
			continue
		}
		s.Controllers.add(d.Status.ReadyReplicas > 0)
		if d.Status.ReadyReplicas == 0 {
			fault("Deployment %s/%s has no ready Pod: see `kubectl describe deployment -n %s %s`", d.Namespace, d.Name,
				d.Namespace, d.Name)
		}
	}
	if set := c.set(); set != nil {
		s.ClusterSet, s.ID = set.Name, set.Spec.ClusterID
		summarizeSet(&s, set)
	}
	for _, area := range c.areas() {
		s.Leads = append(s.Leads, area.Namespace)
		summarizeArea(&s, area)
	}
	return s
}

// summarizeAgent adds the state of a Node.
func summarizeAgent(s *Summary, a Agent) {
	fault := func(format string, args ...any) {
		s.Faults = append(s.Faults, "Node "+a.Node+": "+fmt.Sprintf(format, args...))
	}
	s.Nodes.add(a.Status != nil && a.Status.Ready)
	if a.Status == nil {
		fault("%s", cmp.Or(a.Fault, "it has no agent"))
		return
	}
	s.Agents[a.Status.Version]++
	if !a.Status.Ready {
		fault("its network is not ready: %s", cmp.Or(strings.Join(a.Status.Waiting, "; "), "see `tombolo get status` there"))
	}
	for i, p := range a.Status.Problems {
		if i == mostProblems {
			fault("%d Problems more: see `tombolo get status` there", len(a.Status.Problems)-i)
			break
		}
		fault("%s %s: %s: %s", p.Object, p.Field, p.Reason, p.Message)
	}
	for _, peer := range a.Peers {
		if peer.Kind != "Cluster" {
			continue
		}
		for _, w := range peer.Ways {
			if w.State == "" {
				continue // BFD does not watch it
			}
			s.Ways.add(w.State == "up")
			if w.State != "up" {
				fault("the way to cluster %s at %s is %s: see `tombolo diagnose`", peer.Name, w.To, w.State)
			}
		}
	}
}

// summarizeSet adds the state of a member.
func summarizeSet(s *Summary, set *mcv1alpha2.ClusterSet) {
	for _, c := range set.Status.Conditions {
		if c.Type == mcv1alpha2.ClusterSetReady && c.Status != corev1.ConditionTrue {
			s.Faults = append(s.Faults, fmt.Sprintf("ClusterSet %s/%s is not ready: %s: %s", set.Namespace, set.Name, c.Reason,
				c.Message))
		}
	}
	if len(set.Status.Conditions) == 0 {
		s.Faults = append(s.Faults, fmt.Sprintf("ClusterSet %s/%s has no status: is the multi-cluster controller running?",
			set.Namespace, set.Name))
	}
}

// summarizeArea adds the state of the members of a Common Area.
func summarizeArea(s *Summary, area *mcv1alpha2.ClusterSet) {
	for _, member := range area.Status.ClusterStatuses {
		for _, c := range member.Conditions {
			if c.Type == mcv1alpha2.ClusterReady && c.Status != corev1.ConditionTrue {
				s.Faults = append(s.Faults, fmt.Sprintf("member %s of Common Area %s is not ready: %s: %s", member.ClusterID,
					area.Namespace, c.Reason, c.Message))
			}
		}
	}
}
