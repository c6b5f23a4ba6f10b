package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

const (
	// pingEvery is the interval at which an API server is checked for an answer. The check takes pingLimit at most.
	pingEvery = 3 * time.Second
	pingLimit = 5 * time.Second
	// agentsEvery is the interval at which all agents of a cluster are asked, agentsAtOnce of them at a time. With more
	// than agentsARound Nodes, each round asks the next part of the Nodes, and all Gateways.
	agentsEvery  = 15 * time.Second
	agentsLook   = time.Second // how often a Source looks whether it is time to ask
	agentsAtOnce = 8
	agentsARound = 64
	// refusedFor is how long no agent is asked after the API server has refused it.
	refusedFor = 5 * time.Minute
	// lostAfter is how long the watch of a listed kind may be interrupted before its objects count as out of date.
	lostAfter = 5 * time.Second
)

// AskAgent sends a request to the agent of a Node, and returns the answer.
type AskAgent func(ctx context.Context, node, path string, query url.Values) ([]byte, error)

// Access is how commands reach a cluster.
type Access struct {
	Name    string   // as the map shows it
	Arg     string   // a context of the kubeconfig, or a kubeconfig file; empty for the current context
	Kubectl []string // arguments of kubectl
	Tombolo []string // arguments of tombolo, besides Arg
}

// Source watches one context of the kubeconfig, with the rights of its user.
type Source struct {
	access  Access
	ask     AskAgent
	stream  StreamAgent
	engine  *derive.Engine
	watcher *watch.Watcher
	kinds   []watch.Kind
	ping    discovery.ServerVersionInterface
	changed func()

	objects objects

	wasListed atomic.Bool // all kinds were listed once

	mu     sync.Mutex
	reach  Reach
	why    string
	asOf   time.Time
	server string
	agents map[string]Agent
	lost   map[int]time.Time    // since when a listed kind has no watch
	asked  map[string]time.Time // when the agent of a Node was asked last
	round  time.Time            // when agents were asked last
	// refusal is why the user may not ask agents, since the time refused.
	refusal string
	refused time.Time

	watched func() bool // whether agents are to be asked
}

// objects are the objects that are watched.
type objects struct {
	sets     *derive.Source[derive.Object, *mcv1alpha2.ClusterSet]
	gateways *derive.Source[derive.Object, *mcv1alpha1.Gateway]
	infos    *derive.Source[derive.Object, *mcv1alpha1.ClusterInfoImport]
	exports  *derive.Source[derive.Object, *mcsv1alpha1.ServiceExport]
	imports  *derive.Source[derive.Object, *mcsv1alpha1.ServiceImport]
	nodes    *derive.Source[derive.Object, NodeFacts]
	policies map[string]*derive.Source[derive.Object, bool]
}

func newObjects(kinds *watch.Kinds) objects {
	return objects{
		sets:     kept[*mcv1alpha2.ClusterSet](kinds, "clustersets"),
		gateways: kept[*mcv1alpha1.Gateway](kinds, "gateways"),
		infos:    kept[*mcv1alpha1.ClusterInfoImport](kinds, "infos"),
		exports:  kept[*mcsv1alpha1.ServiceExport](kinds, "exports"),
		imports:  kept[*mcsv1alpha1.ServiceImport](kinds, "imports"),
		nodes:    watch.NewSource(kinds, "nodes", nodeFacts),
		policies: map[string]*derive.Source[derive.Object, bool]{
			"NetworkPolicy":               counted[*networkingv1.NetworkPolicy](kinds, "networkpolicies"),
			"Antrea ClusterNetworkPolicy": counted[*crdv1beta1.ClusterNetworkPolicy](kinds, "antrea cluster policies"),
			"Antrea NetworkPolicy":        counted[*crdv1beta1.NetworkPolicy](kinds, "antrea policies"),
			"ClusterNetworkPolicy":        counted[*npv1alpha2.ClusterNetworkPolicy](kinds, "cluster policies"),
		},
	}
}

// NewSource prepares to watch. ask and stream may be nil: then no agent is asked. changed is called after each change,
// and must return at once.
func NewSource(access Access, config *rest.Config, ask AskAgent, stream StreamAgent,
	changed func()) (*Source, error) {
	s := &Source{access: access, ask: ask, stream: stream,
		engine: derive.New(), changed: changed, reach: Starting,
		agents: map[string]Agent{}, lost: map[int]time.Time{}, asked: map[string]time.Time{},
		watched: func() bool { return true }}
	kinds := watch.NewKinds(s.engine)
	s.objects = newObjects(kinds)
	kinds.Loaded() // a kind that this user may not list stops no other
	s.engine.WatchPasses(func(derive.PassStats) { changed() })
	s.kinds = kinds.All(watch.Optional())
	var err error
	if s.watcher, err = watch.New(config, slog.New(slog.DiscardHandler), s.kinds...); err != nil {
		return nil, err
	}
	s.watcher.OnChange(changed)
	short := rest.CopyConfig(config)
	short.Timeout = pingLimit
	if s.ping, err = discovery.NewDiscoveryClientForConfig(short); err != nil {
		return nil, fmt.Errorf("prepare requests to %s: %w", config.Host, err)
	}
	return s, nil
}

// kept declares a Source that keeps whole objects.
func kept[T client.Object](k *watch.Kinds, name string) *derive.Source[derive.Object, T] {
	return watch.NewSource(k, name, func(o T) T { return o })
}

// counted declares a Source that only counts objects.
func counted[T client.Object](k *watch.Kinds, name string) *derive.Source[derive.Object, bool] {
	return watch.NewSource(k, name, func(T) bool { return true })
}

func nodeFacts(o *corev1.Node) NodeFacts {
	f := NodeFacts{Name: o.Name, Kubelet: o.Status.NodeInfo.KubeletVersion}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady {
			f.Ready = string(c.Status)
		}
	}
	var addresses []string
	for _, a := range o.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			addresses = append(addresses, a.Address)
		}
	}
	f.Addresses = strings.Join(addresses, " ")
	return f
}

// AskWhile makes the Source ask agents only while f is true. It must be called before Run.
func (s *Source) AskWhile(f func() bool) { s.watched = f }

// Run watches until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.engine.Run(ctx) })
	running.Go(func() { s.watcher.Run(ctx) })
	running.Go(func() { every(ctx, pingEvery, s.look) })
	if s.ask != nil {
		running.Go(func() { every(ctx, agentsLook, s.askAgents) })
	}
	running.Wait()
}

// every calls f at once, and again after each interval.
func every(ctx context.Context, interval time.Duration, f func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		f(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look asks the API server for its version.
func (s *Source) look(ctx context.Context) {
	v, err := s.ping.ServerVersion()
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.set(v, err)
	s.mu.Unlock()
	s.changed()
}

// set records the answer of the API server.
func (s *Source) set(v *version.Info, err error) {
	switch {
	case err == nil:
		s.reach, s.why, s.asOf, s.server = Live, "", time.Now(), v.GitVersion
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		s.reach, s.why, s.asOf = Refused, err.Error(), time.Now()
	default:
		s.reach, s.why = Silent, err.Error()
	}
}

// Snapshot returns what is known now.
func (s *Source) Snapshot() Snapshot {
	s.mu.Lock()
	out := Snapshot{Access: s.access, Reach: s.reach, Why: s.why, AsOf: s.asOf, Version: s.server,
		Agents: maps.Clone(s.agents), Refusal: s.refusal, Listed: true, Policies: map[string]int{}}
	s.mu.Unlock()
	s.kindStates(&out)
	out.Sets = derive.Values(s.objects.sets.All())
	out.Gateways = derive.Values(s.objects.gateways.All())
	out.Infos = derive.Values(s.objects.infos.All())
	out.Exports = derive.Values(s.objects.exports.All())
	out.Imports = derive.Values(s.objects.imports.All())
	out.Nodes = derive.Values(s.objects.nodes.All())
	for kind, source := range s.objects.policies {
		if n := source.Len(); n > 0 {
			out.Policies[kind] = n
		}
	}
	return out
}

// kindStates adds the kinds that the API server does not list. If the API server no longer lists a kind that it has
// listed before, it counts as not answering.
func (s *Source) kindStates(out *Snapshot) {
	states := s.watcher.Status()
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, status := range states {
		switch since, known := s.lost[i]; {
		case strings.HasSuffix(s.kinds[i].Resource().Resource, "policies"): // they are only counted
		case !status.Listed || status.Waiting == "" || refuses(status.Waiting):
			delete(s.lost, i)
		case !known:
			s.lost[i] = now
		case out.Reach == Live && now.Sub(since) > lostAfter:
			out.Reach, out.AsOf = Silent, since
			out.Why = "The API server no longer lists " + s.kinds[i].Resource().String() + ": " + status.Waiting
		}
	}
	for i, status := range states {
		switch {
		case status.Listed && status.Waiting == "":
		case out.Reach == Live && refuses(status.Waiting):
			out.Missing = append(out.Missing, Problem{Object: s.kinds[i].Resource().String(), Reason: reasonNotListed.String(),
				Message: status.Waiting})
		case !status.Listed:
			out.Listed = false
		}
	}
	if len(out.Missing) == len(states) {
		out.Reach, out.Why = Refused, "The API server refuses all kinds. For example: "+out.Missing[0].Message
	}
	if out.Reach == Live && !out.Listed && !s.wasListed.Load() {
		out.Reach, out.Why = Starting, "The API server has not listed all kinds yet."
	}
	if out.Listed {
		s.wasListed.Store(true)
	}
}

// refuses reports whether an API server refused a request for lack of rights.
func refuses(text string) bool {
	return strings.Contains(text, "is forbidden") || strings.Contains(text, "Unauthorized")
}

// askAgents asks the agents of the cluster's Nodes for their state, if it is time.
func (s *Source) askAgents(ctx context.Context) {
	names := s.turn(time.Now())
	slots := make(chan struct{}, agentsAtOnce)
	var asked sync.WaitGroup
	defer asked.Wait()
	for _, name := range names {
		slots <- struct{}{}
		s.mu.Lock()
		refused := s.refusal != "" && name != names[0] // one question shows whether the user may ask now
		if !refused {
			s.asked[name] = time.Now()
		}
		s.mu.Unlock()
		if refused || ctx.Err() != nil {
			return
		}
		asked.Go(func() {
			defer func() { <-slots }()
			s.askOne(ctx, name)
		})
	}
}

// turn returns the Nodes whose agents are to be asked now.
func (s *Source) turn(now time.Time) (names []string) {
	exists := map[string]bool{}
	for _, row := range s.objects.nodes.All() {
		names = append(names, row.Value.Name)
		exists[row.Value.Name] = true
	}
	gateways := map[string]bool{}
	for _, row := range s.objects.gateways.All() {
		gateways[row.Value.Name] = true
	}
	watched := s.watched()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.agents, func(name string, _ Agent) bool { return !exists[name] })
	maps.DeleteFunc(s.asked, func(name string, _ time.Time) bool { return !exists[name] })
	due := now.Sub(s.round) >= agentsEvery && now.Sub(s.refused) >= refusedFor
	if s.reach != Live || !watched || len(names) == 0 || !due {
		return nil
	}
	s.round = now
	// Gateways first, then the agents that were asked the longest ago.
	slices.SortStableFunc(names, func(x, y string) int {
		if gateways[x] != gateways[y] {
			if gateways[x] {
				return -1
			}
			return 1
		}
		return s.asked[x].Compare(s.asked[y])
	})
	return names[:min(len(names), agentsARound)]
}

func (s *Source) isGateway(node string) bool {
	return slices.ContainsFunc(s.objects.gateways.All(), func(r derive.Row[derive.Object, *mcv1alpha1.Gateway]) bool {
		return r.Value.Name == node
	})
}

func (s *Source) askOne(ctx context.Context, node string) {
	ctx, cancel := context.WithTimeout(ctx, agentsEvery)
	defer cancel()
	text, err := s.ask(ctx, node, api.PathStatus, nil)
	var status api.Status
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	var probes api.Probes
	if err == nil && s.isGateway(node) {
		if text, err := s.ask(ctx, node, api.PathProbes, nil); err == nil { // older versions do not know the path
			_ = json.Unmarshal(text, &probes)
		}
	}
	s.mu.Lock()
	a := s.agents[node]
	switch {
	case err == nil:
		s.agents[node] = Agent{Status: status, AsOf: time.Now(), Ways: probes.Ways}
		s.refusal, s.refused = "", time.Time{}
	case apierrors.IsForbidden(err) || refuses(err.Error()):
		s.refusal, s.refused = err.Error(), time.Now()
		clear(s.agents)
	default:
		a.Err = err.Error()
		s.agents[node] = a
	}
	s.mu.Unlock()
	s.changed()
}
