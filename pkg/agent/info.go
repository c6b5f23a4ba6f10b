package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/heartbeat"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/version"
)

const infosResource = "antreaagentinfos"

// newInfo prepares the writer of this Node's AntreaAgentInfo.
func (a *Agent) newInfo() (*heartbeat.Writer, error) {
	w := &heartbeat.Writer{
		Resource: infosResource, Name: a.options.NodeName, Owner: "tombolo-agent", Log: a.log,
		Look: func(ctx context.Context) (any, error) {
			if a.uid() == "" {
				return nil, errors.New("this Node's object is not known yet")
			}
			return a.info(ctx), nil
		},
		State: func() string {
			return fmt.Sprint(a.uid(), a.ready(), a.switchPorts.State().Connected, a.flows.Stats().Connected)
		},
	}
	return w, w.Connect(a.options.REST)
}

// serveInfo answers with the AntreaAgentInfo as it would be written now.
func (d debugAPI) serveInfo(r *http.Request) (any, error) { return d.agent.info(r.Context()), nil }

// info returns the state of this agent. Parts that do not answer are left out.
func (a *Agent) info(ctx context.Context) crdv1beta1.AntreaAgentInfo {
	node := a.options.NodeName
	out := crdv1beta1.AntreaAgentInfo{
		TypeMeta:   metav1.TypeMeta{APIVersion: crdv1beta1.GroupVersion.String(), Kind: "AntreaAgentInfo"},
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Version:    version.String(),
		PodRef:     corev1.ObjectReference{Kind: "Pod", Namespace: a.options.Namespace, Name: a.options.PodName},
		NodeRef:    corev1.ObjectReference{Kind: "Node", Name: node},
	}
	out.OwnerReferences = nodeOwner(node, a.uid())
	if this, ok := a.tables.this.now.Get(self); ok {
		out.NodeSubnets = texts(this.Node.PodCIDRs)
	}
	state := a.switchPorts.State()
	out.OVSInfo = crdv1beta1.OVSInfo{Version: state.OVSVersion, BridgeName: a.config.OVSBridge,
		FlowTable: a.answers.dump.flowTables(ctx)}
	if out.OVSInfo.Version == "" {
		out.OVSInfo.Version, _ = a.tracer.Version(ctx)
	}
	out.NetworkPolicyControllerInfo = a.answers.policies.counts(ctx)
	for name, p := range state.Bridges[a.config.OVSBridge].Ports {
		if _, pod := cni.FromExternalIDs(name, p.ExternalIDs); pod {
			out.LocalPodNum++
		}
	}
	out.AgentConditions = a.infoConditions(state.Connected)
	return out
}

// infoConditions returns the conditions of the agent.
func (a *Agent) infoConditions(ovsdb bool) []crdv1beta1.InfoCondition {
	now := metav1.Now()
	condition := func(name string, ok bool, reason reasons.Reason, message string) crdv1beta1.InfoCondition {
		c := crdv1beta1.InfoCondition{Type: name, Status: corev1.ConditionTrue, LastHeartbeatTime: now}
		if !ok {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason.String(), strings.ToValidUTF8(message, "")
		}
		return c
	}
	s := a.status()
	var unwatched []string
	for _, w := range a.watcher.Status() {
		if w.Waiting != "" {
			unwatched = append(unwatched, w.Kind+": "+w.Waiting)
		}
	}
	return []crdv1beta1.InfoCondition{
		condition(crdv1beta1.AgentHealthy, s.Ready, reasonNetworkNotReady, short(s.Waiting)),
		condition(crdv1beta1.ControllerConnectionUp, len(unwatched) == 0, reasonNotWatched, short(unwatched)),
		condition(crdv1beta1.OVSDBConnectionUp, ovsdb, reasonNotConnected,
			"no connection to the OVSDB: see the Pod tombolo-ovs"),
		condition(crdv1beta1.OpenflowConnectionUp, s.OpenFlow.Connected, reasonNotConnected,
			"no OpenFlow connection to the switch: see the Pod tombolo-ovs"),
	}
}

// short joins the first of some messages.
func short(list []string) string {
	const most = 5
	return strings.Join(list[:min(len(list), most)], "; ")
}

// flowTables returns the number of flows in each table of the program, by the table's name. It is nil if the switch
// does not answer.
func (a *switchAnswers) flowTables(ctx context.Context) map[string]int32 {
	counts, err := a.flows.TableStats(ctx)
	if err != nil {
		return nil
	}
	out := map[string]int32{}
	for _, table := range datapath.Program.Tables() {
		out[datapath.Program.Name(table)] = int32(min(counts[table].Active, math.MaxInt32))
	}
	return out
}

// counts returns the numbers of policies and identities of this Node. It returns zeros if the tables are busy.
func (a *policyAnswers) counts(ctx context.Context) crdv1beta1.PolicyCounts {
	standing, err := a.standing(ctx)
	if err != nil {
		return crdv1beta1.PolicyCounts{}
	}
	applied := map[uint32]bool{}
	for _, s := range standing {
		for _, r := range s.Rules {
			for _, n := range r.Applied {
				applied[n] = true
			}
		}
	}
	peers := 0
	_ = ask(ctx, a.tables.engine, func() {
		for _, u := range a.tables.policies.IdentityUses() {
			if u.Addresses > 0 {
				peers++
			}
		}
	})
	return crdv1beta1.PolicyCounts{NetworkPolicyNum: int32(len(standing)), AddressGroupNum: int32(peers),
		AppliedToGroupNum: int32(len(applied))}
}
