package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

const (
	// maxQuestions is the number of questions that are answered at a time.
	maxQuestions = 4
	// questionLimit is the longest time that an answer may take. A packet may meet many Nodes.
	questionLimit = 45 * time.Second
	// maxRecord bounds the record of a question, in bytes.
	maxRecord = 64 << 10
)

// Questions answers questions about connections.
type Questions interface {
	// Why asks the agent of a Node of the cluster with a key which rules decide about a new connection.
	Why(ctx context.Context, cluster, node string, query url.Values) (api.Why, error)
	// Trace follows the first packet of a new connection. Question.FromCluster is the key of a cluster.
	Trace(ctx context.Context, q follow.Question) (follow.Answer, error)
}

// Asked is a question about a new connection like that of a record.
type Asked struct {
	Cluster string        `json:"cluster"` // key
	Record  record.Record `json:"record"`
}

// Answered is the answer to a question. Exactly one field is set.
type Answered struct {
	Why    *api.Why       `json:"why,omitempty"`
	Trace  *follow.Answer `json:"trace,omitempty"`
	Failed string         `json:"failed,omitempty"` // why there is no answer
}

// AnswerWith has the server answer questions of pages. It must be called before Serve.
func (s *Server) AnswerWith(q Questions) { s.answers = q }

// question answers which rules decide about a connection (about=why), or which path its first packet takes
// (about=trace). Neither sends a packet.
func (s *Server) question(w http.ResponseWriter, r *http.Request) {
	if s.answers == nil {
		http.Error(w, "The server answers no questions.", http.StatusNotImplemented)
		return
	}
	var q Asked
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRecord)).Decode(&q); err != nil {
		http.Error(w, "The question is not understood: "+err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case s.questions <- struct{}{}:
		defer func() { <-s.questions }()
	default:
		http.Error(w, fmt.Sprintf("%d questions are being answered already. Ask again.", maxQuestions),
			http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), questionLimit)
	defer cancel()
	var out Answered
	var err error
	switch about := r.URL.Query().Get("about"); about {
	case "why":
		out.Why, err = q.why(ctx, s.answers)
	case "trace":
		out.Trace, err = q.trace(ctx, s.answers)
	default:
		http.Error(w, fmt.Sprintf("about=%q is no question: want why or trace", about), http.StatusBadRequest)
		return
	}
	if err != nil {
		out.Failed = err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

func (q Asked) why(ctx context.Context, answers Questions) (*api.Why, error) {
	query := url.Values{"from": {endName(q.Record.From, q.Record.Network)}, "to": {q.server()}, "family": {q.family()},
		"trace": {"true"}}
	if name := q.protocol(); name != "" {
		query.Set("protocol", name)
	}
	if port := q.port(); port != "" {
		query.Set("port", port)
	}
	w, err := answers.Why(ctx, q.Cluster, q.Record.Node, query)
	if err != nil {
		return nil, err
	}
	return &w, nil
}

func (q Asked) trace(ctx context.Context, answers Questions) (*follow.Answer, error) {
	r := q.Record
	if r.From.Cluster != "" {
		return nil, fmt.Errorf("the client is in cluster %s: open the record of that cluster, whose Node sends the first "+
			"packet", r.From.Cluster)
	}
	question := follow.Question{From: endName(r.From, r.Network), To: q.server(), Port: q.port(), Protocol: q.protocol(),
		Family: q.family(), FromCluster: q.Cluster}
	if r.From.Pod == "" {
		question.Node = r.Node // where it comes in
	}
	a, err := answers.Trace(ctx, question)
	if err != nil {
		return nil, err
	}
	for i, p := range a.Paths {
		p.Hops = slices.Clone(p.Hops)
		for j := range p.Hops {
			p.Hops[j].Output = "" // the page shows the steps
		}
		a.Paths[i] = p
	}
	return &a, nil
}

// endName returns an end as questions name it. network is the VirtualNetwork of the record, or "".
func endName(e record.End, network string) string {
	if e.Pod != "" && e.Cluster == "" {
		name := e.Namespace + "/" + e.Pod
		if _, network, ok := strings.Cut(network, "/"); ok {
			name += "@" + network
		}
		return name
	}
	return e.IP
}

// asksService reports whether the server's end is a Service: endpoints in other clusters have no name here.
func (q Asked) asksService() bool { return q.Record.To.Cluster != "" && q.Record.Service != "" }

func (q Asked) server() string {
	if q.asksService() {
		return q.Record.Service
	}
	return endName(q.Record.To, cmp.Or(q.Record.ToNetwork, q.Record.Network))
}

// port returns the server's port, or "" for a protocol without ports.
func (q Asked) port() string {
	port := q.Record.To.Port
	if asked, err := netip.ParseAddrPort(q.Record.Asked); err == nil && q.asksService() {
		port = asked.Port()
	}
	if port == 0 || q.protocol() == "icmp" {
		return ""
	}
	return fmt.Sprint(port)
}

// protocol returns the name that questions have for the protocol.
func (q Asked) protocol() string {
	name := strings.ToLower(q.Record.Protocol)
	if name == "icmpv6" {
		return "icmp"
	}
	return name
}

func (q Asked) family() string {
	if strings.Contains(cmp.Or(q.Record.To.IP, q.Record.From.IP), ":") {
		return "ipv6"
	}
	return "ipv4"
}

// Asking answers questions through sources.
type Asking struct {
	Sources []*Source
	// Follow follows a packet. Question.FromCluster is the name of a cluster's Access.
	Follow func(ctx context.Context, q follow.Question) (follow.Answer, error)
}

var errNoCluster = errors.New("the cluster of the record is no longer among the clusters of the map: reload the page")

func (a Asking) source(key string) *Source {
	i := slices.IndexFunc(a.Sources, func(s *Source) bool { return s.key() == key })
	if i < 0 {
		return nil
	}
	return a.Sources[i]
}

// Why is for Questions.
func (a Asking) Why(ctx context.Context, cluster, node string, query url.Values) (out api.Why, _ error) {
	s := a.source(cluster)
	if s == nil || s.ask == nil {
		return out, errNoCluster
	}
	// The name becomes a part of a path. Only Nodes of the cluster are asked.
	if !slices.ContainsFunc(derive.Values(s.objects.nodes.All()), func(n NodeFacts) bool { return n.Name == node }) {
		return out, fmt.Errorf("cluster %s has no Node %q any more: open a later record", s.access.Name, node)
	}
	text, err := s.ask(ctx, node, api.PathWhy, query)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("the answer of the agent of Node %s is not understood: %w", node, err)
	}
	return out, nil
}

// Trace is for Questions.
func (a Asking) Trace(ctx context.Context, q follow.Question) (follow.Answer, error) {
	s := a.source(q.FromCluster)
	if s == nil {
		return follow.Answer{}, errNoCluster
	}
	q.FromCluster = s.access.Name
	return a.Follow(ctx, q)
}
