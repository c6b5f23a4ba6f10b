package follow

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/hops"
)

// Traceflow is the path of a packet as Antrea's antctl prints it, in the words of the kind Traceflow.
type Traceflow struct {
	Name        string                           `json:"name"`
	Phase       crdv1beta1.TraceflowPhase        `json:"phase"`
	Reason      string                           `json:"reason,omitempty"`
	Source      string                           `json:"source,omitempty"`
	Destination string                           `json:"destination,omitempty"`
	Results     []crdv1beta1.TraceflowNodeResult `json:"results,omitempty"`
	// CapturedPacket is of live traffic.
	CapturedPacket *crdv1beta1.CapturedPacket `json:"capturedPacket,omitempty"`
}

// SendTraceflow sends a packet between two ends of a cluster, and follows it. Without a protocol the packet is an echo
// request, or has the protocol of the Service.
func SendTraceflow(ctx context.Context, all []Cluster, q Question) (PacketAnswer, error) {
	if q.Protocol == "" && q.Port == "" {
		echo, err := pings(ctx, all, q)
		if err != nil {
			return PacketAnswer{}, err
		}
		if echo {
			q.Protocol = "icmp"
		}
	}
	return SendPacket(ctx, all, q, false)
}

// pings reports whether the destination is no Service.
func pings(ctx context.Context, all []Cluster, q Question) (bool, error) {
	if _, err := netip.ParseAddr(q.To); err == nil || strings.HasPrefix(q.To, "node/") {
		return true, nil
	}
	clusters, err := open(ctx, all)
	if err != nil {
		return false, err
	}
	for _, c := range clusters {
		if p, err := c.pod(ctx, q.To); p != nil || err != nil {
			return p != nil, err
		}
	}
	return false, nil
}

// TraceflowOf returns the path of a packet in Antrea's words.
func TraceflowOf(a PacketAnswer, q Question) Traceflow {
	s := StatusOf(a)
	return Traceflow{Name: nameOf(q), Source: q.From, Destination: q.To, Phase: s.Phase, Reason: s.Reason,
		Results: s.Results}
}

// StatusOf returns the path of a packet as the status of a Traceflow. If the path meets several clusters, Nodes are
// named as cluster/Node.
//
// A path whose end no Node has seen is Failed. If the packet has left for another cluster, or for an address outside of
// all clusters, its path is complete too.
func StatusOf(a PacketAnswer) crdv1beta1.TraceflowStatus {
	out := crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowSucceeded, DataplaneTag: api.PacketDSCP}
	visits := a.Path.Visits
	switch end := a.Path.End; end.Verdict {
	case hops.Lost, hops.Unseen, hops.OutOfSight:
		out.Phase, out.Reason = crdv1beta1.TraceflowFailed, end.Text
	case api.HopDropped, api.HopRejected:
		out.Reason = end.Text
	}
	several := slices.ContainsFunc(visits, func(v hops.Visit) bool { return v.Cluster != visits[0].Cluster })
	for i, v := range visits {
		r := crdv1beta1.TraceflowNodeResult{Node: v.Node, Timestamp: v.Seen[0].At.Unix()}
		if several {
			r.Node = v.Cluster + "/" + v.Node
		}
		for i, s := range v.Seen {
			r.Observations = append(r.Observations, observations(v.Seen[0], s, i == 0)...)
		}
		last := &r.Observations[len(r.Observations)-1]
		switch {
		case i == 0:
			r.Role = crdv1beta1.RoleSender
		case last.Action == crdv1beta1.ActionDelivered:
			r.Role = crdv1beta1.RoleReceiver
		}
		if seen := v.Seen[len(v.Seen)-1]; i == len(visits)-1 && a.Path.End.Verdict == hops.OutOfSight &&
			(seen.NextCluster != "" || seen.NextNode == "") {
			last.Action, out.Phase = crdv1beta1.ActionForwardedOutOfNetwork, crdv1beta1.TraceflowSucceeded
		}
		out.Results = append(out.Results, r)
	}
	return out
}

// nameOf returns a name as antctl's.
func nameOf(q Question) string {
	return strings.NewReplacer("/", "-", ":", "-", ".", "-").Replace(q.From + "-to-" + q.To)
}

// observations are the points of what a Node has seen. first is where the packet came in.
func observations(first, s api.PacketSeen, isFirst bool) (out []crdv1beta1.TraceflowObservation) {
	if isFirst && s.Point == api.PacketIn {
		if strings.HasPrefix(s.Port, podPort) {
			return []crdv1beta1.TraceflowObservation{{Component: crdv1beta1.ComponentSpoofGuard,
				Action: crdv1beta1.ActionForwarded}}
		}
		return []crdv1beta1.TraceflowObservation{{Component: crdv1beta1.ComponentForwarding,
			ComponentInfo: "Classification", Action: crdv1beta1.ActionReceived}}
	}
	if to, was := hostOf(s.Dst), hostOf(first.Dst); to != was {
		out = append(out, crdv1beta1.TraceflowObservation{Component: crdv1beta1.ComponentLB,
			Action: crdv1beta1.ActionForwarded, TranslatedDstIP: to})
	}
	for _, by := range [][2]string{{"EgressRule", s.Egress}, {"IngressRule", s.Ingress}} {
		if by[1] != "" {
			out = append(out, crdv1beta1.TraceflowObservation{Component: crdv1beta1.ComponentNetworkPolicy,
				ComponentInfo: by[0], Action: crdv1beta1.ActionForwarded, NetworkPolicy: by[1]})
		}
	}
	o := crdv1beta1.TraceflowObservation{Component: crdv1beta1.ComponentForwarding, ComponentInfo: "Output"}
	if from := hostOf(s.Src); from != hostOf(first.Src) {
		o.TranslatedSrcIP = from
	}
	switch s.Point {
	case api.PacketHeld, api.PacketGiven:
		o.Action, o.Pod = crdv1beta1.ActionDelivered, strings.TrimPrefix(s.Port, podPort)
	case api.PacketDropped, api.PacketRejected:
		o.ComponentInfo, o.Action = s.Table, crdv1beta1.ActionDropped
		if s.Point == api.PacketRejected {
			o.Action = crdv1beta1.ActionRejected
		}
		if s.Rule != "" || len(s.Policies) > 0 {
			o.Component, o.NetworkPolicy = crdv1beta1.ComponentNetworkPolicy, s.Rule
			if s.Rule == "" {
				o.NetworkPolicy = strings.Join(s.Policies, ", ")
			}
		}
	case api.PacketOut:
		o.Action, o.TunnelDstIP = crdv1beta1.ActionForwarded, s.OuterDst
		if s.OuterDst == "" && s.NextNode == "" {
			o.Action = crdv1beta1.ActionForwardedOutOfNetwork
		}
	}
	return append(out, o)
}

// podPort begins the name of a Pod's port (api.PacketSeen).
const podPort = "Pod "

// hostOf returns the address of an end.
func hostOf(end string) string {
	if at, err := netip.ParseAddrPort(end); err == nil {
		return at.Addr().String()
	}
	return end
}
