// Package up sets up a ClusterSet in clusters without Tombolo, and removes it again. It checks all clusters before it
// changes one. If it fails, it removes the objects that it has made. A repeated set-up completes an earlier one.
package up

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
)

// Labels of the objects that a set-up installs.
const (
	// LabelInstalledBy has the value mc-up. Objects without it are left as they are.
	LabelInstalledBy = "tombolo.io/installed-by"
	// LabelPart names the part of Tombolo that an object belongs to: agent, member or leader.
	LabelPart = "tombolo.io/part"
	// AnnotationChosen marks a Node that a set-up has chosen as a Gateway. It has the value mc-up.
	AnnotationChosen = "tombolo.io/gateway-chosen-by"

	// AnnotationToken marks the ServiceAccount of a member's token that a set-up has made. It has the value mc-up. A
	// set-up that fails removes such a token, even one that an earlier, interrupted set-up has made.
	AnnotationToken = "tombolo.io/token-made-by"

	// InstalledBy is the value of LabelInstalledBy, AnnotationChosen and AnnotationToken.
	InstalledBy = "mc-up"
)

// Scheme returns a scheme with the kinds that a set-up reads and writes.
func Scheme() *runtime.Scheme {
	s := setup.Scheme()
	for _, add := range []func(*runtime.Scheme) error{authorizationv1.AddToScheme, discoveryv1.AddToScheme,
		networkingv1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}

// Cluster is one cluster of a set-up.
type Cluster struct {
	ID     string // in the ClusterSet
	Config *rest.Config
	// AgentValues and MemberValues are values of the charts tombolo and tombolo-multicluster. They have precedence over
	// values that a set-up determines.
	AgentValues, MemberValues map[string]any
	// Gateways are the names of Nodes to make Gateways. If it is empty and no Node is annotated, the set-up chooses.
	Gateways []string
}

// Options are the options of a set-up.
type Options struct {
	ClusterSet string
	// DedicatedLeader keeps the first cluster from becoming a member too.
	DedicatedLeader bool
	// LeaderServer is the URL by which members reach the leader's API server. If it is empty, they use the URL in the
	// leader's kubeconfig.
	LeaderServer string
	// SkipLeaderCheck joins members without a request from here to LeaderServer.
	SkipLeaderCheck bool
	// Registry and Tag name the images. An empty Tag stands for the tag of the images of Version (version.Tag).
	Registry, Tag string
	// SkipRegistryCheck leaves out the request from here to the registry.
	SkipRegistryCheck bool
	// WithOtherCNI installs agents although a cluster has another CNI plugin.
	WithOtherCNI bool
	// Keep leaves a set-up that failed as it is.
	Keep bool
	// Limit is how long each cluster may take until all of Tombolo runs.
	Limit time.Duration
	// Version is the version of this program. Clusters that run another one are refused.
	Version string
	// Report receives a line about a cluster.
	Report func(cluster, line string)
}

// undoLimit is how long the removal of what a failed set-up made may take.
const undoLimit = 3 * time.Minute

// site is a cluster while it is set up.
type site struct {
	Cluster
	setup   setup.Cluster
	objects dynamic.Interface
	o       *Options
	leader  bool
	member  bool
	facts   facts
	parts   []part
	made    []*unstructured.Unstructured // by this run, in their order
}

// run is one set-up.
type run struct {
	Options
	sites  []*site // the leader first
	client *http.Client
	lines  sync.Mutex

	seenLimit, leaveLimit, hookLimit time.Duration

	steps  sync.Mutex
	undone []func(context.Context) error // steps that undo the changes, in the order of the changes
}

// open returns the sites of clusters.
func open(clusters []Cluster, o Options) (*run, error) {
	r := &run{Options: o, client: http.DefaultClient, seenLimit: seenLimit, leaveLimit: leaveLimit,
		hookLimit: hookLimit}
	for i, c := range clusters {
		config := rest.CopyConfig(c.Config)
		config.QPS = -1 // the API server limits clients by itself
		config.WarningHandler = rest.NoWarnings{}
		k, err := client.New(config, client.Options{Scheme: Scheme()})
		if err != nil {
			return nil, fmt.Errorf("cluster %s: reach its API server: %w", c.ID, err)
		}
		objects, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: reach its API server: %w", c.ID, err)
		}
		s := &site{Cluster: c, o: &r.Options, objects: objects, leader: i == 0,
			member: i > 0 || !o.DedicatedLeader}
		s.Config = config
		s.setup = setup.Cluster{Client: k, Out: &lines{write: func(line string) { r.report(c.ID, "%s", line) }},
			TokenAnnotations: map[string]string{AnnotationToken: InstalledBy}}
		r.sites = append(r.sites, s)
	}
	return r, nil
}

func (r *run) report(cluster, format string, args ...any) {
	r.lines.Lock()
	defer r.lines.Unlock()
	if r.Report != nil {
		r.Report(cluster, fmt.Sprintf(format, args...))
	}
}

// lines gives each line that is written to it to a function.
type lines struct {
	mu    sync.Mutex
	rest  string
	write func(string)
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest += string(text)
	for {
		line, rest, found := strings.Cut(l.rest, "\n")
		if !found {
			return len(text), nil
		}
		l.rest = rest
		l.write(line)
	}
}

// Plan checks all clusters, and returns a line for each step of Run. It changes nothing.
func Plan(ctx context.Context, clusters []Cluster, o Options) ([]string, error) {
	r, err := open(clusters, o)
	if err != nil {
		return nil, err
	}
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	var plan []string
	for i, s := range r.sites {
		for _, p := range s.parts {
			plan = append(plan, fmt.Sprintf("%s: %s", s.ID, p.plan()))
		}
		if i == 0 {
			plan = append(plan, fmt.Sprintf("%s: leader of ClusterSet %s in Namespace %s", s.ID, o.ClusterSet,
				deploy.LeaderNamespace))
		}
		if !s.member {
			continue
		}
		if s.facts.memberSet == nil {
			plan = append(plan, fmt.Sprintf("%s: join ClusterSet %s at %s", s.ID, o.ClusterSet, r.leaderServer()))
		}
		for _, node := range s.toChoose() {
			plan = append(plan, fmt.Sprintf("%s: Gateway on Node %s", s.ID, node))
		}
	}
	return plan, nil
}

// Run sets a ClusterSet up. The first cluster is its leader. If it fails, it removes the objects that it has made,
// unless Keep is set.
func Run(ctx context.Context, clusters []Cluster, o Options) error {
	r, err := open(clusters, o)
	if err != nil {
		return err
	}
	if err := r.check(ctx); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	err = r.together(ctx, r.sites, r.install)
	if err == nil {
		err = r.join(ctx)
	}
	if err == nil || o.Keep {
		return err
	}
	return r.undo(ctx, err)
}

// each calls f for sites at the same time, and returns all errors with the clusters' names.
func each(sites []*site, f func(*site) error) error {
	failed := make([]error, len(sites))
	var all sync.WaitGroup
	for i, s := range sites {
		all.Go(func() {
			if err := f(s); err != nil {
				failed[i] = fmt.Errorf("cluster %s: %w", s.ID, err)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// together calls f for all sites at the same time. If one call fails, the others are cancelled.
func (r *run) together(ctx context.Context, sites []*site, f func(context.Context, *site) error) error {
	all, giveUp := context.WithCancel(ctx)
	defer giveUp()
	return each(sites, func(s *site) error {
		err := f(all, s)
		if err != nil && all.Err() != nil && ctx.Err() == nil {
			return nil // the first failure is the cause
		}
		if err != nil {
			giveUp()
		}
		return err
	})
}

// members returns the sites that are members.
func (r *run) members() []*site {
	if r.DedicatedLeader {
		return r.sites[1:]
	}
	return r.sites
}

// done records how a change is undone.
func (r *run) done(back func(context.Context) error) {
	r.steps.Lock()
	defer r.steps.Unlock()
	r.undone = append(r.undone, back)
}

// undo undoes the changes, the latest first, even after an interrupt. Agents that run stay, since Pods have their
// network from them.
func (r *run) undo(ctx context.Context, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	r.report("", "it failed; removing what was made (--keep leaves it)")
	for _, back := range slices.Backward(r.undone) {
		failed = errors.Join(failed, back(ctx))
	}
	return errors.Join(failed, each(r.sites, func(s *site) error { return r.uninstallMade(ctx, s) }))
}
