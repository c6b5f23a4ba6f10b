package diagnose

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// moment is the time of a change a moment ago.
var moment = metav1.NewTime(now.Add(-10 * time.Second))

// TestMoments has states that pass by themselves. A state that is new never fails, and each fails if it lasts.
func TestMoments(t *testing.T) {
	written := []metav1.ManagedFieldsEntry{{Time: &moment}}
	for _, row := range []struct {
		name    string
		state   func(f *Facts, c *Cluster)
		young   func(f *Facts, c *Cluster) // makes it of a moment ago
		code    string
		unknown bool // while it is young; else there is no result of it
	}{
		{"a Node joins", func(_ *Facts, c *Cluster) {
			c.Nodes[2].Status.Conditions[0].Status = corev1.ConditionFalse
		}, func(_ *Facts, c *Cluster) { c.Nodes[2].CreationTimestamp = moment }, "TD003", true},
		{"a Node has no agent yet", func(_ *Facts, c *Cluster) { *c.agent("node-3") = Agent{Node: "node-3", Fault: "none"} },
			func(_ *Facts, c *Cluster) { c.Nodes[2].CreationTimestamp = moment }, "TD010", true},
		{"the Pod of an agent is replaced", func(_ *Facts, c *Cluster) {
			a := c.agent("node-3")
			a.Fault, a.Status, a.Pod.Status.Phase = "none", nil, corev1.PodPending
			a.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
		}, func(_ *Facts, c *Cluster) { c.agent("node-3").Pod.CreationTimestamp = moment }, "TD010", true},
		{"the Pod of an agent ends", func(_ *Facts, c *Cluster) {
			a := c.agent("node-3")
			a.Fault, a.Status, a.Pod.DeletionTimestamp = "none", nil, &made
		}, func(_ *Facts, c *Cluster) { c.agent("node-3").Pod.DeletionTimestamp = &moment }, "TD010", true},
		{"an agent does not answer yet", func(_ *Facts, c *Cluster) {
			a := c.agent("node-3")
			a.Fault, a.Status = "connection refused", nil
			running(a, made)
		}, func(_ *Facts, c *Cluster) { running(c.agent("node-3"), moment) }, "TD011", true},
		{"an agent is not ready yet", func(_ *Facts, c *Cluster) { c.agent("node-3").Status.Ready = false },
			func(_ *Facts, c *Cluster) { c.agent("node-3").Status.Started = moment.Time }, "TD012", true},
		{"an agent has no switch yet", func(_ *Facts, c *Cluster) { c.agent("node-3").Status.OpenFlow.Connected = false },
			func(_ *Facts, c *Cluster) { c.agent("node-3").Status.Started = moment.Time }, "TD013", true},
		{"an agent has Problems at its start", func(_ *Facts, c *Cluster) {
			c.agent("node-3").Status.Problems = []api.Problem{{Reason: "ConfigurationChanged"}}
		}, func(_ *Facts, c *Cluster) { c.agent("node-3").Status.Started = moment.Time }, "TD052", true},
		{"a controller begins", func(_ *Facts, c *Cluster) { c.Deployments[2].Status.ReadyReplicas = 0 },
			func(_ *Facts, c *Cluster) { c.Deployments[2].CreationTimestamp = moment }, "TD015", true},
		{"a controller restarts", func(_ *Facts, c *Cluster) { c.Deployments[2].Status.ReadyReplicas = 0 },
			func(_ *Facts, c *Cluster) {
				c.Deployments[2].Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable,
					LastTransitionTime: moment}}
			}, "TD015", true},
		{"a controller is not deployed yet", func(_ *Facts, c *Cluster) { c.Deployments = c.Deployments[:2] },
			func(_ *Facts, c *Cluster) { c.Sets[0].CreationTimestamp = moment }, "TD015", false},
		{"the Lease of a controller that was away", func(_ *Facts, c *Cluster) {
			c.Leases[2].Spec.RenewTime.Time = now.Add(-time.Hour)
		}, func(_ *Facts, c *Cluster) { c.Deployments[2].CreationTimestamp = moment }, "TD016", false},
		{"a webhook has no certificate yet", func(_ *Facts, c *Cluster) {
			c.Webhooks[0].Webhooks[0].ClientConfig.CABundle = nil
		}, func(_ *Facts, c *Cluster) { c.Webhooks[0].CreationTimestamp = moment }, "TD017", true},
		{"the token comes after the ClusterSet", func(_ *Facts, c *Cluster) { c.Token.Missing = true },
			func(_ *Facts, c *Cluster) { c.Sets[0].CreationTimestamp = moment }, "TD020", true},
		{"the ClusterSet has no status yet", func(_ *Facts, c *Cluster) { c.Sets[0].Status.Conditions = nil },
			func(_ *Facts, c *Cluster) { c.Sets[0].CreationTimestamp = moment }, "TD022", true},
		{"the leader has not answered yet", func(_ *Facts, c *Cluster) {
			c.Sets[0].Status.Conditions[0].Status = corev1.ConditionUnknown
		}, func(_ *Facts, c *Cluster) { c.Sets[0].CreationTimestamp = moment }, "TD022", true},
		{"a member has no Gateway yet", func(_ *Facts, c *Cluster) { c.Gateways = nil },
			func(_ *Facts, c *Cluster) { c.Sets[0].CreationTimestamp = moment }, "TD033", true},
		{"another member is not known yet", func(_ *Facts, c *Cluster) { c.Infos = c.Infos[:1] },
			func(f *Facts, _ *Cluster) { f.Clusters[2].Sets[0].CreationTimestamp = moment }, "TD034", true},
		{"Gateways change", func(_ *Facts, c *Cluster) { c.Infos[1].Spec.GatewayInfos[0].GatewayIP = "192.168.72.9" },
			func(f *Facts, _ *Cluster) { f.Clusters[2].Gateways[0].CreationTimestamp = moment }, "TD034", false},
		{"BFD begins at a new Gateway", func(f *Facts, _ *Cluster) { cutNode(f, 1, 1) },
			func(_ *Facts, c *Cluster) { c.Gateways[0].CreationTimestamp = moment }, "TD036", true},
		{"BFD begins after a join", func(f *Facts, c *Cluster) {
			setWay(c, "node-1", "west", address(2, 2), silent)
			setWay(&f.Clusters[2], "node-2", "east", address(1, 1), silent)
		}, func(_ *Facts, c *Cluster) { c.Infos[1].ManagedFields = written }, "TD036", true},
		{"BFD begins at a Node that became Ready", func(_ *Facts, c *Cluster) {
			setWay(c, "node-3", "node-1", address(1, 1), silent)
			setWay(c, "node-1", "node-3", address(1, 3), silent)
		}, func(_ *Facts, c *Cluster) { c.Nodes[2].Status.Conditions[0].LastTransitionTime = moment }, "TD036", true},
		{"ways were down and are up again", func(_ *Facts, c *Cluster) {
			x := &c.Sets[0].Status.ClusterStatuses[1].Conditions[0]
			x.Status, x.Reason, x.LastTransitionTime = corev1.ConditionFalse, "AllWaysDown", made
		}, func(_ *Facts, c *Cluster) {
			c.Sets[0].Status.ClusterStatuses[1].Conditions[0].LastTransitionTime = moment
		}, "TD037", true},
		{"the first probes are lost", func(f *Facts, _ *Cluster) {
			p := probesOf(f)
			p.Samples, p.Loss300, p.Loss60 = 100, .1, .1
		}, func(f *Facts, _ *Cluster) { f.Clusters[1].agent("node-1").Probes.Ways[0].Samples = 59 }, "TD044", true},
		{"a Node that became Ready has not answered", func(f *Facts, _ *Cluster) {
			nodeProbesOf(f, "node-1", "node-3").LostInRow = 3
		}, func(_ *Facts, c *Cluster) { c.Nodes[2].Status.Conditions[0].LastTransitionTime = moment }, "TD045", false},
		{"an export becomes valid", func(_ *Facts, c *Cluster) {
			c.ServiceExports[0].Status.Conditions[1] = metav1.Condition{Type: "Ready", Status: "False", Reason: "Pending"}
		}, func(_ *Facts, c *Cluster) { c.ServiceExports[0].Status.Conditions[1].LastTransitionTime = moment }, "TD041",
			false},
		{"the Pods of an export are replaced", func(_ *Facts, c *Cluster) {
			c.EndpointSlices[0].Endpoints[0].Conditions.Ready = ptr.To(false)
		}, func(_ *Facts, c *Cluster) { c.EndpointSlices[0].ManagedFields = written }, "TD042", true},
		{"an import gets its address", func(_ *Facts, c *Cluster) {
			c.ServiceImports[0].Status.Conditions[0] = metav1.Condition{Type: "Ready", Status: "False", Reason: "Pending"}
		}, func(_ *Facts, c *Cluster) { c.ServiceImports[0].Status.Conditions[0].LastTransitionTime = moment }, "TD043",
			false},
		{"CoreDNS follows an import", func(_ *Facts, c *Cluster) { c.Resolved.Names[0].Have = nil },
			func(_ *Facts, c *Cluster) { c.Resolved.Names[0].Changed = moment.Time }, "TD047", true},
		{"endpoints change in the leader", func(_ *Facts, c *Cluster) {
			c.ImportedSlices[0].Endpoints[0].Addresses[0] = "10.95.0.1"
		}, func(f *Facts, _ *Cluster) { f.Clusters[0].ResourceImports[0].ManagedFields = written }, "TD048", true},
		{"a policy is changed", func(_ *Facts, c *Cluster) {
			c.Policies[0].Status.Phase = crdv1beta1.PhaseRealizing
		}, func(_ *Facts, c *Cluster) { c.Policies[0].ManagedFields = written }, "TD050", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			of := func(f Facts, status string) bool {
				return slices.ContainsFunc(Run(f), func(r Result) bool { return r.Code == row.code && r.Status == status })
			}
			f := healthy()
			row.state(&f, eastOf(&f))
			if !of(f, Fail) && row.code != "TD036" || row.code == "TD036" && !of(f, Fail) && !hasFail(f, "TD035") {
				t.Errorf("%s does not fail if it lasts", row.code)
			}
			row.young(&f, eastOf(&f))
			var b strings.Builder
			for _, r := range Run(f) {
				if r.Status == Fail {
					Print(&b, []Result{r})
				}
			}
			if b.Len() > 0 {
				t.Errorf("it fails while it is young:\n%s", b.String())
			}
			if of(f, Unknown) != row.unknown {
				t.Errorf("%s is unknown: %t, want %t", row.code, !row.unknown, row.unknown)
			}
		})
	}
}

func hasFail(f Facts, code string) bool {
	return slices.ContainsFunc(Run(f), func(r Result) bool { return r.Code == code && r.Status == Fail })
}

// running sets when the container of an agent began.
func running(a *Agent, at metav1.Time) {
	a.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "tombolo-agent", State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: at}}}}
}

// TestOldFaults holds that a Pod that crashes, a Node's clock that is wrong, and a way that stays down are no moments.
func TestOldFaults(t *testing.T) {
	for _, row := range []struct {
		name, code string
		fault      func(c *Cluster)
	}{
		{"a new Pod that crashes", "TD010", func(c *Cluster) {
			a := c.agent("node-3")
			a.Fault, a.Status, a.Pod.CreationTimestamp = "none", nil, moment
			a.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
		}},
		{"an agent that started in the future", "TD012", func(c *Cluster) {
			a := c.agent("node-3")
			a.Status.Ready, a.Status.Started = false, now.Add(time.Hour)
		}},
		{"an import of the future that is not ready", "TD043", func(c *Cluster) {
			c.ServiceImports[0].CreationTimestamp = metav1.NewTime(now.Add(time.Hour))
			c.ServiceImports[0].Status.Conditions[0].Status = metav1.ConditionFalse
		}},
		{"a condition of a moment ago, and no way is up", "TD037", func(c *Cluster) {
			x := &c.Sets[0].Status.ClusterStatuses[1].Conditions[0]
			x.Status, x.Reason, x.LastTransitionTime = corev1.ConditionFalse, "AllWaysDown", moment
			for _, node := range []string{"node-1", "node-2"} {
				for far := 1; far <= 2; far++ {
					setWay(c, node, "west", address(2, far), silent)
				}
			}
		}},
	} {
		f := healthy()
		row.fault(eastOf(&f))
		if !hasFail(f, row.code) {
			t.Errorf("%s does not fail: %s", row.code, row.name)
		}
	}
}
