package traceflow

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

const (
	// otherNodes is how long the record that another Node has of a connection is waited for.
	otherNodes = 2 * time.Second
	// askAgain is the time between two questions to a Node whose answer has ended.
	askAgain = time.Second
)

// find waits for the first packet of Pods that matches: the first record of a connection, or of a drop. It sends
// nothing.
func (c *Controller) find(ctx context.Context, t *crdv1beta1.Traceflow,
	q follow.Question) crdv1beta1.TraceflowStatus {
	ctx, cancel := context.WithCancel(ctx)
	nodes, err := c.Agents.Nodes(ctx)
	if err != nil {
		cancel()
		return failed("%s", err)
	}
	found := make(chan *record.Record)
	var faults sync.Map // texts by Node
	var all sync.WaitGroup
	for _, node := range nodes {
		all.Go(func() {
			c.read(ctx, node, q, t.Spec.DroppedOnly, &faults, func(r *record.Record) {
				if t.Spec.DroppedOnly && r.Verdict == record.Allowed || !fits(r, q) {
					return
				}
				select {
				case found <- r:
				case <-ctx.Done():
				}
			})
		})
	}
	first := collect(ctx, found)
	cancel()
	all.Wait()
	if len(first) == 0 {
		var texts []string
		faults.Range(func(_, text any) bool {
			texts = append(texts, text.(string))
			return true
		})
		return failed("no packet of Pods has fitted within spec.timeout of %s%s", timeoutOf(t), named("not read", texts))
	}
	return statusOf(first)
}

// read calls add with the records of a Node until ctx ends. It retries a Node that cannot be reached. A Node that
// records no connections refuses the request for them. Then read asks it for drops only.
func (c *Controller) read(ctx context.Context, node string, q follow.Question, droppedOnly bool, faults *sync.Map,
	add func(*record.Record)) {
	connections := !droppedOnly
	for {
		err := c.records(ctx, node, recordsOf(q, connections), add, func() {
			if connections || droppedOnly { // else it stays noted that connections are not recorded
				faults.Delete(node)
			}
		})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			faults.Store(node, err.Error())
		}
		if errors.Is(err, follow.ErrRefused) && connections {
			connections = false
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askAgain):
		}
	}
}

// records calls add with the records of a Node, until ctx ends or the Node's answer ends. It calls begun when the
// answer begins. It ignores records without addresses, or with longer texts than agents write: such a Node is hostile.
func (c *Controller) records(ctx context.Context, node string, query url.Values, add func(*record.Record),
	begun func()) error {
	return record.Events(ctx, func(w io.Writer) error {
		return c.Agents.Stream(ctx, node, api.PathObserve, query, w)
	}, func(e record.Event) {
		if e.Begin != nil {
			begun()
		}
		r := e.Connection
		if e.Drop != nil {
			r = e.Drop
		}
		if r == nil {
			return
		}
		_, from := netip.ParseAddr(r.From.IP)
		_, to := netip.ParseAddr(r.To.IP)
		if errors.Join(from, to) != nil {
			return
		}
		r.Node = node // a Node speaks for itself alone
		for _, text := range []*string{&r.From.Namespace, &r.From.Pod, &r.From.Node, &r.To.Namespace, &r.To.Pod, &r.To.Node,
			&r.Table, &r.Way, &r.Network, &r.ToNetwork, &r.Service, &r.Asked, &r.Protocol, &r.Verdict} {
			*text = follow.Short(*text, maxFault)
		}
		add(r)
	})
}

// collect returns the records of the first connection that comes, the client's Node first.
func collect(ctx context.Context, found <-chan *record.Record) (out []*record.Record) {
	end := make(<-chan time.Time)
	for {
		select {
		case <-ctx.Done():
			return out
		case <-end:
			return out
		case r := <-found:
			switch {
			case len(out) == 0:
				out, end = append(out, r), time.After(otherNodes)
				if r.Verdict != record.Allowed || r.From.Node == r.To.Node {
					return out // no other Node has seen it
				}
			case r.Node != out[0].Node && r.Protocol == out[0].Protocol && r.Network == out[0].Network &&
				r.From.IP == out[0].From.IP && r.From.Port == out[0].From.Port &&
				r.To.IP == out[0].To.IP && r.To.Port == out[0].To.Port:
				if out = append(out, r); r.From.Node == r.Node {
					slices.Reverse(out)
				}
				return out
			}
		}
	}
}

// recordsOf asks for records that may fit.
func recordsOf(q follow.Question, connections bool) url.Values {
	query := url.Values{"follow": {"true"}, "last": {"0"}}
	if connections {
		query.Set("connections", "true")
	}
	for word, end := range map[string]string{"from": q.From, "to": q.To} {
		if pod, ok := strings.CutPrefix(end, "pod/"); ok {
			query.Set(word, pod)
		}
	}
	return query
}

// fits reports whether a record matches the question exactly. Filters of records also accept Pods whose names only
// begin with the requested one.
func fits(r *record.Record, q follow.Question) bool {
	pod := func(e record.End) string { return "pod/" + e.Namespace + "/" + e.Pod }
	asked, err := netip.ParseAddrPort(r.Asked)
	ip := ""
	if err == nil {
		ip = asked.Addr().String()
	}
	port := func(n uint16) string { return strconv.Itoa(int(n)) }
	switch {
	case q.From != "" && q.From != pod(r.From) && q.From != r.From.IP,
		q.To != "" && q.To != pod(r.To) && q.To != r.To.IP && q.To != ip && q.To != "service/"+r.Service,
		q.Protocol != "" && !strings.EqualFold(q.Protocol, strings.TrimSuffix(r.Protocol, "v6")),
		q.SrcPort != 0 && q.SrcPort != r.From.Port,
		q.Port != "" && q.Port != port(r.To.Port) && q.Port != port(asked.Port()):
		return false
	}
	from, err := netip.ParseAddr(r.From.IP)
	return q.Family == "" || err == nil && from.Is6() == (q.Family == "ipv6")
}

// statusOf describes the records of a connection, or a drop.
func statusOf(list []*record.Record) crdv1beta1.TraceflowStatus {
	out := crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowSucceeded, CapturedPacket: captured(list[0])}
	for _, r := range list {
		out.Reason = follow.Short(r.Message, maxReason) // of a drop, which is the last one
		n := crdv1beta1.TraceflowNodeResult{Node: r.Node, Timestamp: r.Time.Unix(), Observations: observations(r)}
		switch r.Node {
		case r.From.Node:
			n.Role = crdv1beta1.RoleSender
		case r.To.Node:
			n.Role = crdv1beta1.RoleReceiver
		}
		out.Results = append(out.Results, n)
	}
	return out
}

// observations are the points of a record.
func observations(r *record.Record) (out []crdv1beta1.TraceflowObservation) {
	add := func(o crdv1beta1.TraceflowObservation) { out = append(out, o) }
	if r.From.Node == r.Node && r.From.Pod != "" {
		add(crdv1beta1.TraceflowObservation{Component: crdv1beta1.ComponentSpoofGuard,
			Action: crdv1beta1.ActionForwarded})
	} else {
		add(crdv1beta1.TraceflowObservation{Component: crdv1beta1.ComponentForwarding, ComponentInfo: "Classification",
			Action: crdv1beta1.ActionReceived})
	}
	last := crdv1beta1.TraceflowObservation{Component: crdv1beta1.ComponentForwarding, ComponentInfo: "Output"}
	if r.Verdict != record.Allowed {
		last.ComponentInfo, last.Action = r.Table, crdv1beta1.ActionDropped
		if r.Verdict == record.Rejected {
			last.Action = crdv1beta1.ActionRejected
		}
		if r.Rule != nil || len(r.Policies) > 0 {
			last.Component, last.NetworkPolicy = crdv1beta1.ComponentNetworkPolicy,
				follow.Short(strings.Join(r.Policies, ", "), maxFault)
			if r.Rule != nil {
				last.NetworkPolicy = ruleText(r.Rule)
			}
		}
		add(last)
		return out
	}
	if asked, err := netip.ParseAddrPort(r.Asked); err == nil && asked.Addr().String() != r.To.IP {
		add(crdv1beta1.TraceflowObservation{Component: crdv1beta1.ComponentLB, Action: crdv1beta1.ActionForwarded,
			TranslatedDstIP: r.To.IP})
	}
	allowed := func(table string, rule *record.Rule) {
		if rule != nil {
			add(crdv1beta1.TraceflowObservation{Component: crdv1beta1.ComponentNetworkPolicy, ComponentInfo: table,
				Action: crdv1beta1.ActionForwarded, NetworkPolicy: ruleText(rule)})
		}
	}
	allowed("EgressRule", r.Egress)
	allowed("IngressRule", r.Ingress)
	switch {
	case r.To.Node == r.Node && r.To.Pod != "":
		last.Action, last.Pod = crdv1beta1.ActionDelivered, r.To.Namespace+"/"+r.To.Pod
	case r.Way != "" || r.To.Node != "":
		last.Action, last.TunnelDstIP = crdv1beta1.ActionForwarded, r.Way
	default:
		last.Action = crdv1beta1.ActionForwardedOutOfNetwork
	}
	add(last)
	return out
}

func ruleText(r *record.Rule) string { return follow.Short(r.Policy+" "+r.Name, maxFault) }

// captured is the packet of a record, as its client has sent it.
func captured(r *record.Record) *crdv1beta1.CapturedPacket {
	to, port := r.To.IP, int32(r.To.Port)
	if asked, err := netip.ParseAddrPort(r.Asked); err == nil {
		to, port = asked.Addr().String(), int32(asked.Port())
	}
	out := &crdv1beta1.CapturedPacket{SrcIP: r.From.IP, DstIP: to}
	number := int32(0)
	switch r.Protocol {
	case "TCP":
		number = numberTCP
		out.TransportHeader.TCP = &crdv1beta1.TCPHeader{SrcPort: int32(r.From.Port), DstPort: port}
	case "UDP":
		number = numberUDP
		out.TransportHeader.UDP = &crdv1beta1.UDPHeader{SrcPort: int32(r.From.Port), DstPort: port}
	case "ICMP":
		number = numberICMP
	case "ICMPv6":
		number = numberICMPv6
	}
	if from, err := netip.ParseAddr(r.From.IP); err == nil && from.Is6() {
		out.IPv6Header = &crdv1beta1.IPv6Header{NextHeader: &number}
	} else {
		out.IPHeader = &crdv1beta1.IPHeader{Protocol: number}
	}
	return out
}
