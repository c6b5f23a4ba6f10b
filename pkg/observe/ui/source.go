package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
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
	// pingEvery is how often an API server is asked whether it answers. A ping takes pingLimit at most.
	pingEvery = 3 * time.Second
	pingLimit = 5 * time.Second
	// agentsEvery is how often all agents of a cluster are asked, agentsAtOnce of them at the same time. Above
	// agentsARound Nodes each round asks the next ones, Gateways in each round.
	agentsEvery  = 15 * time.Second
	agentsAtOnce = 8
	agentsARound = 64
)

// AskAgent sends a request to the agent of a Node, and returns the answer.
type AskAgent func(ctx context.Context, node, path string) ([]byte, error)

// Access is how commands reach a cluster.
type Access struct {
	Name    string   // as the map shows it
	Arg     string   // a context of the kubeconfig, or a kubeconfig file
	Kubectl []string // arguments of kubectl
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

	sets     *derive.Source[derive.Object, *mcv1alpha2.ClusterSet]
	gateways *derive.Source[derive.Object, *mcv1alpha1.Gateway]
	infos    *derive.Source[derive.Object, *mcv1alpha1.ClusterInfoImport]
	exports  *derive.Source[derive.Object, *mcsv1alpha1.ServiceExport]
	imports  *derive.Source[derive.Object, *mcsv1alpha1.ServiceImport]
	nodes    *derive.Source[derive.Object, NodeFacts]
	policies map[string]*derive.Source[derive.Object, bool]

	wasListed atomic.Bool // all kinds were listed once

	mu     sync.Mutex
	reach  Reach
	why    string
	asOf   time.Time
	server string
	agents map[string]Agent
}

// NewSource prepares to watch. ask and stream may be nil: then no agent is asked. changed is called after each change.
// It must return at once.
func NewSource(access Access, config *rest.Config, ask AskAgent, stream StreamAgent,
	changed func()) (*Source, error) {
	s := &Source{access: access, ask: ask, stream: stream,
		engine: derive.New(), changed: changed, reach: Starting,
		agents: map[string]Agent{}, policies: map[string]*derive.Source[derive.Object, bool]{}}
	kinds := watch.NewKinds(s.engine)
	s.sets = kept[*mcv1alpha2.ClusterSet](kinds, "clustersets")
	s.gateways = kept[*mcv1alpha1.Gateway](kinds, "gateways")
	s.infos = kept[*mcv1alpha1.ClusterInfoImport](kinds, "infos")
	s.exports = kept[*mcsv1alpha1.ServiceExport](kinds, "exports")
	s.imports = kept[*mcsv1alpha1.ServiceImport](kinds, "imports")
	s.nodes = watch.NewSource(kinds, "nodes", nodeFacts)
	s.policies["NetworkPolicy"] = counted[*networkingv1.NetworkPolicy](kinds, "networkpolicies")
	s.policies["Antrea ClusterNetworkPolicy"] = counted[*crdv1beta1.ClusterNetworkPolicy](kinds, "antrea cluster policies")
	s.policies["Antrea NetworkPolicy"] = counted[*crdv1beta1.NetworkPolicy](kinds, "antrea policies")
	s.policies["ClusterNetworkPolicy"] = counted[*npv1alpha2.ClusterNetworkPolicy](kinds, "cluster policies")
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

// Run watches until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.engine.Run(ctx) })
	running.Go(func() { s.watcher.Run(ctx) })
	running.Go(func() { every(ctx, pingEvery, s.look) })
	if s.ask != nil {
		running.Go(func() { every(ctx, agentsEvery, s.askAgents) })
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
		Agents: maps.Clone(s.agents), Listed: true, Policies: map[string]int{}}
	s.mu.Unlock()
	s.kindStates(&out)
	out.Sets = derive.Values(s.sets.All())
	out.Gateways = derive.Values(s.gateways.All())
	out.Infos = derive.Values(s.infos.All())
	out.Exports = derive.Values(s.exports.All())
	out.Imports = derive.Values(s.imports.All())
	out.Nodes = derive.Values(s.nodes.All())
	for kind, source := range s.policies {
		if n := source.Len(); n > 0 {
			out.Policies[kind] = n
		}
	}
	return out
}

// kindStates adds the kinds that the API server does not list.
func (s *Source) kindStates(out *Snapshot) {
	states := s.watcher.Status()
	for i, status := range states {
		switch {
		case status.Listed && status.Waiting == "":
		case out.Reach == Live && refuses(status.Waiting):
			out.Missing = append(out.Missing, Problem{Object: s.kinds[i].Resource().String(), Reason: "NotListed",
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

// askAgents asks the agents of the cluster's Nodes for their state.
func (s *Source) askAgents(ctx context.Context) {
	all := s.nodes.All()
	s.mu.Lock()
	known := map[string]time.Time{}
	for name, a := range s.agents {
		known[name] = a.AsOf
	}
	gone := maps.Clone(s.agents)
	for _, row := range all {
		delete(gone, row.Value.Name)
	}
	for name := range gone {
		delete(s.agents, name)
	}
	live := s.reach == Live
	s.mu.Unlock()
	if !live {
		return
	}
	names := make([]string, 0, len(all))
	for _, row := range all {
		names = append(names, row.Value.Name)
	}
	gateways := map[string]bool{}
	for _, row := range s.gateways.All() {
		gateways[row.Value.Name] = true
	}
	// Gateways first, then the agents that answered the longest ago.
	slices.SortStableFunc(names, func(x, y string) int {
		if gateways[x] != gateways[y] {
			if gateways[x] {
				return -1
			}
			return 1
		}
		return known[x].Compare(known[y])
	})
	names = names[:min(len(names), agentsARound)]
	turn := make(chan struct{}, agentsAtOnce)
	var asked sync.WaitGroup
	for _, name := range names {
		turn <- struct{}{}
		asked.Go(func() {
			defer func() { <-turn }()
			s.askOne(ctx, name)
		})
	}
	asked.Wait()
}

func (s *Source) askOne(ctx context.Context, node string) {
	ctx, cancel := context.WithTimeout(ctx, agentsEvery)
	defer cancel()
	text, err := s.ask(ctx, node, api.PathStatus)
	var status api.Status
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	s.mu.Lock()
	a := s.agents[node]
	if err != nil {
		a.Err = err.Error()
	} else {
		a = Agent{Status: status, AsOf: time.Now()}
	}
	s.agents[node] = a
	s.mu.Unlock()
	s.changed()
}
