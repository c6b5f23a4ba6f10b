package follow

import (
	"context"
	"net/netip"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/hops"
)

// Traceflow is the path of a packet in the words of Antrea's kind Traceflow (crd.antrea.io/v1beta1), as its antctl
// prints it.
type Traceflow struct {
	Name        string            `json:"name"`
	Phase       string            `json:"phase"`
	Reason      string            `json:"reason,omitempty"`
	Source      string            `json:"source,omitempty"`
	Destination string            `json:"destination,omitempty"`
	Results     []TraceflowResult `json:"results,omitempty"`
}

// TraceflowResult is what a Node has seen.
type TraceflowResult struct {
	Node         string                 `json:"node"`
	Cluster      string                 `json:"cluster,omitempty"`
	Timestamp    int64                  `json:"timestamp"` // seconds since 1970
	Observations []TraceflowObservation `json:"observations"`
}

// TraceflowObservation is a point of the path.
type TraceflowObservation struct {
	Component       string `json:"component"`
	ComponentInfo   string `json:"componentInfo,omitempty"`
	Action          string `json:"action"`
	Pod             string `json:"pod,omitempty"`
	NetworkPolicy   string `json:"networkPolicy,omitempty"`
	TranslatedSrcIP string `json:"translatedSrcIP,omitempty"`
	TranslatedDstIP string `json:"translatedDstIP,omitempty"`
	TunnelDstIP     string `json:"tunnelDstIP,omitempty"`
}

// Words of Antrea.
const (
	tfSucceeded, tfFailed = "Succeeded", "Failed"

	tfSpoofGuard, tfService, tfPolicy, tfForwarding = "SpoofGuard", "LB", "NetworkPolicy", "Forwarding"

	tfReceived, tfForwarded, tfOutOfNetwork = "Received", "Forwarded", "ForwardedOutOfNetwork"
	tfDelivered, tfDropped, tfRejected      = "Delivered", "Dropped", "Rejected"
)

// SendTraceflow sends a packet between two ends of a cluster, and follows it. If no protocol is given, the packet is an
// echo request, or of a Service's protocol.
func SendTraceflow(ctx context.Context, all []*remote.Cluster, q Question) (PacketAnswer, error) {
	if q.Protocol == "" && q.Port == "" {
		echo, err := pings(ctx, all, q)
		if err != nil {
			return PacketAnswer{}, err
		}
		if echo {
			q.Protocol = "icmp"
		}
	}
	return FollowPacket(ctx, all, q, false)
}

// pings reports whether the destination is no Service.
func pings(ctx context.Context, all []*remote.Cluster, q Question) (bool, error) {
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

// TraceflowOf returns the path of a packet in Antrea's words. It names clusters where the path meets several.
func TraceflowOf(a PacketAnswer, q Question) Traceflow {
	out := Traceflow{Name: nameOf(q), Phase: tfSucceeded, Source: q.From, Destination: q.To}
	switch a.Path.End.Verdict {
	case hops.Lost, hops.Unseen, hops.OutOfSight:
		out.Phase, out.Reason = tfFailed, a.Path.End.Text
	}
	several := false
	for _, v := range a.Path.Visits {
		several = several || v.Cluster != a.Path.Visits[0].Cluster
	}
	for _, v := range a.Path.Visits {
		r := TraceflowResult{Node: v.Node, Timestamp: v.Seen[0].At.Unix()}
		if several {
			r.Cluster = v.Cluster
		}
		for i, s := range v.Seen {
			r.Observations = append(r.Observations, observations(v.Seen[0], s, i == 0)...)
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
func observations(first, s api.PacketSeen, isFirst bool) (out []TraceflowObservation) {
	if isFirst && s.Point == api.PacketIn {
		if strings.HasPrefix(s.Port, podPort) {
			return []TraceflowObservation{{Component: tfSpoofGuard, Action: tfForwarded}}
		}
		return []TraceflowObservation{{Component: tfForwarding, ComponentInfo: "Classification", Action: tfReceived}}
	}
	if to, was := hostOf(s.Dst), hostOf(first.Dst); to != was {
		out = append(out, TraceflowObservation{Component: tfService, Action: tfForwarded, TranslatedDstIP: to})
	}
	o := TraceflowObservation{Component: tfForwarding, ComponentInfo: "Output"}
	if from := hostOf(s.Src); from != hostOf(first.Src) {
		o.TranslatedSrcIP = from
	}
	switch s.Point {
	case api.PacketHeld, api.PacketGiven:
		o.Action, o.Pod = tfDelivered, strings.TrimPrefix(s.Port, podPort)
	case api.PacketDropped, api.PacketRejected:
		if o.ComponentInfo, o.Action = s.Table, tfDropped; s.Point == api.PacketRejected {
			o.Action = tfRejected
		}
		if s.Rule != "" || len(s.Policies) > 0 {
			o.Component, o.NetworkPolicy = tfPolicy, s.Rule
			if s.Rule == "" {
				o.NetworkPolicy = strings.Join(s.Policies, ", ")
			}
		}
	case api.PacketOut:
		if o.Action, o.TunnelDstIP = tfForwarded, s.OuterDst; s.OuterDst == "" && s.NextNode == "" {
			o.Action = tfOutOfNetwork
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
