// Package gather makes bundles: the state of clusters in one file, for people who look for the cause of a fault. A
// bundle can also be made of clusters that are partly broken. It has no secrets: objects have only the fields that a
// list allows, and all texts are masked.
package gather

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/diagnose"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// diagnosisName is the file with the results of `tombolo diagnose`.
const diagnosisName = "diagnose.json"

// Limits of a bundle.
const (
	MaxNodes   = 200      // whose agents are asked without being named, of all clusters
	logLimit   = 10 << 20 // bytes of each log, the newest
	pageSize   = 500
	maxEvents  = 10000
	parallel   = 16 // requests to one API server
	maskers    = 2  // texts that are masked at a time
	mostLate   = 3  // questions that an agent may leave without an answer until the time is over
	logLines   = 100000
	systemName = "kube-system"
)

// Options of a bundle.
type Options struct {
	Clusters []*remote.Cluster
	Nodes    []string // whose agents are asked; all if empty
	// NodeLabels, if set, selects Nodes by their labels.
	NodeLabels string
	Since      time.Duration // of logs and Events
	// NoAgents leaves out the agents and what is on Nodes.
	NoAgents    bool
	Anonymize   bool
	Connections bool // has the entries of tracked connections in the bundle too
	File        string
	// Report receives each failure, as it happens; may be nil.
	Report func(part string, err error)
	// Now is the time; time.Now if nil.
	Now func() time.Time
}

// ErrCut means that a bundle ends early. The file has the parts up to then.
var ErrCut = errors.New("the bundle ends early")

// cluster is one cluster while its part is made.
type cluster struct {
	*remote.Cluster
	*bundle
	dynamic dynamic.Interface
	agents  []remote.Agent // that are asked
	folder  string
	dead    bool
	// nodesUnknown is set if the Nodes could not be listed. Then daemons has the Nodes with a Pod of Tombolo.
	nodesUnknown bool
	daemons      int

	kept map[string][]map[string]any // lists that were read before the others, by file
}

// bundle is a bundle while it is made.
type bundle struct {
	Options
	*archive
	words *replacer // nil unless names are replaced
	// masking is held while a text is searched for secrets. It bounds the number of simultaneous searches, which need
	// processor time and memory.
	masking chan struct{}
	// interrupted reports whether the user has ended the command. Later failures are no news.
	interrupted func() bool
}

// Run makes a bundle. It writes to File.part and renames that at the end, also after an interrupt and on a full disk:
// in these cases the error is ErrCut, and the file has the parts written until then.
func Run(ctx context.Context, o Options) (Manifest, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	b := &bundle{Options: o, archive: &archive{now: o.Now}, interrupted: func() bool { return ctx.Err() != nil },
		masking: make(chan struct{}, maskers)}
	b.manifest = Manifest{Version: version.String(), Started: o.Now().UTC(), Anonymized: o.Anonymize, Files: []File{},
		Failures: []Failure{}}
	if o.Anonymize {
		b.words = newReplacer()
	}
	var clusters []*cluster
	for _, c := range o.Clusters {
		c = withoutSecrets(c)
		clusters = append(clusters, &cluster{Cluster: c, bundle: b, folder: "clusters/" + strings.ReplaceAll(c.Name, "/",
			"_"), kept: map[string][]map[string]any{}})
	}
	each(clusters, func(c *cluster) { c.open(ctx) })
	if err := b.choose(clusters); err != nil {
		return Manifest{}, err
	}
	part := o.File + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return Manifest{}, fmt.Errorf("write the bundle: %w; name a file in another folder with --file", err)
	}
	defer f.Close()
	b.to = f
	if b.words != nil {
		// All names have to be known before the first file is written, since texts of one cluster contain names of another.
		each(clusters, func(c *cluster) { c.learnNames(ctx) })
	}
	var diagnosed sync.WaitGroup
	switch {
	case o.NoAgents:
		b.failed(diagnosisName, errors.New("agents are not asked"))
	case o.Anonymize && slices.ContainsFunc(clusters, func(c *cluster) bool { return c.dead }):
		b.failed(diagnosisName, errors.New("not made: with --anonymize all clusters must list the names to replace"))
	default:
		diagnosed.Go(func() { b.diagnose(ctx, clusters) })
	}
	each(clusters, func(c *cluster) { c.collect(ctx) })
	diagnosed.Wait()
	if ctx.Err() != nil {
		b.failed("all", errors.New("the command was interrupted: parts that are not listed in files are missing"))
	}
	m, err := b.close(ctx.Err() == nil)
	if sync := f.Sync(); err == nil && sync != nil {
		err = sync
	}
	if rename := os.Rename(part, o.File); rename != nil {
		return m, fmt.Errorf("write the bundle: %w; it is in %s", rename, part)
	}
	switch {
	case err != nil:
		return m, fmt.Errorf("%w: write %s: %w; free space, or name a file on another disk with --file", ErrCut, o.File,
			err)
	case ctx.Err() != nil:
		return m, fmt.Errorf("%w: the command was interrupted", ErrCut)
	case !slices.ContainsFunc(clusters, func(c *cluster) bool { return !c.dead }):
		return m, errors.New("no cluster answered: look at the failures, and at `kubectl config get-contexts`")
	}
	return m, nil
}

// withoutSecrets returns a cluster that refuses requests for Secrets, so no part of a bundle can come from one.
func withoutSecrets(c *remote.Cluster) *remote.Cluster {
	config := rest.CopyConfig(c.Config)
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { return refuseSecrets{to} })
	out := remote.New(c.Name, config)
	out.Timeout = c.Timeout
	return out
}

type refuseSecrets struct{ to http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport that ends requests.
func (r refuseSecrets) WrappedRoundTripper() http.RoundTripper { return r.to }

func (r refuseSecrets) RoundTrip(request *http.Request) (*http.Response, error) {
	if slices.Contains(strings.Split(request.URL.Path, "/"), "secrets") {
		return nil, errors.New("a bundle has no Secrets: they are not read")
	}
	return r.to.RoundTrip(request)
}

// diagnose adds the result of `tombolo diagnose` about the clusters.
func (b *bundle) diagnose(ctx context.Context, clusters []*cluster) {
	var all []*remote.Cluster
	for _, c := range clusters {
		if len(b.Nodes) > 0 || b.NodeLabels != "" {
			if c.nodesUnknown {
				b.failed(diagnosisName, fmt.Errorf("cluster %s is not in it: its Nodes could not be listed", c.Name))
				continue
			}
			if len(c.agents) == 0 && !c.dead {
				continue
			}
			for _, a := range c.agents {
				c.Only = append(c.Only, a.Node)
			}
		}
		all = append(all, c.Cluster)
	}
	if len(all) == 0 {
		b.failed(diagnosisName, errors.New("there is no cluster with Nodes to ask"))
		return
	}
	results := diagnose.Run(diagnose.Gather(ctx, all))
	if ctx.Err() != nil {
		b.failed(diagnosisName, errors.New("the command was interrupted"))
		return
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		b.failed(diagnosisName, err)
		return
	}
	b.write(diagnosisName, func() []byte { return b.anonymous(maskJSON(text)) })
}

// write adds a file. After an interrupt it does nothing: the search for secrets takes time.
func (b *bundle) write(name string, clean func() []byte) {
	b.masking <- struct{}{}
	defer func() { <-b.masking }()
	if !b.interrupted() {
		b.add(name, clean())
	}
}

// anonymous replaces the names in an answer, if that is requested.
func (b *bundle) anonymous(text []byte) []byte {
	if b.words == nil {
		return text
	}
	return b.words.json(text)
}

// word replaces the names in a part of a file's name, if that is requested.
func (b *bundle) word(text string) string {
	if b.words == nil {
		return text
	}
	return b.words.text(text)
}

// each calls f for all clusters at the same time.
func each(clusters []*cluster, f func(*cluster)) {
	var all sync.WaitGroup
	for _, c := range clusters {
		all.Go(func() { f(c) })
	}
	all.Wait()
}

// open asks the API server for its version, and lists the Nodes.
func (c *cluster) open(ctx context.Context) {
	contents := Contents{Name: c.Name, Folder: c.folder}
	defer func() {
		c.contents(func(m *Manifest) { m.Clusters = append(m.Clusters, contents) })
	}()
	v, err := c.Version(ctx)
	if err != nil {
		c.dead = true
		c.fail("", fmt.Errorf("ask the API server: %w; nothing of this cluster is in the bundle", err))
		return
	}
	contents.Kubernetes, contents.Clock = v.Kubernetes, v.Ahead.Round(time.Second).String()
	config := rest.CopyConfig(c.Config)
	config.Timeout = c.Timeout
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		c.dead = true
		c.fail("", err)
		return
	}
	if c.NoAgents {
		return
	}
	if c.agents, err = c.Agents(ctx); err != nil {
		c.fail("nodes", err)
		c.withoutNodes(ctx)
		return
	}
	if c.NodeLabels != "" {
		c.onlyLabelled(ctx)
	}
	if len(c.Nodes) > 0 {
		c.agents = slices.DeleteFunc(c.agents, func(a remote.Agent) bool { return !slices.Contains(c.Nodes, a.Node) })
	}
	for _, a := range c.agents {
		contents.Nodes = append(contents.Nodes, a.Node)
	}
}

// withoutNodes counts the Nodes whose logs are read while the Nodes cannot be listed.
func (c *cluster) withoutNodes(ctx context.Context) {
	c.agents, c.nodesUnknown = nil, true
	pods, err := c.ownPods(ctx, systemName)
	if err != nil {
		return // collect reports it
	}
	nodes := map[string]bool{}
	for _, pod := range pods {
		if ofDaemonSet(pod) {
			nodes[pod.Spec.NodeName] = true
		}
	}
	c.daemons = len(nodes)
}

func (c *cluster) onlyLabelled(ctx context.Context) {
	list, err := c.dynamic.Resource(gvr("", "v1", "nodes")).List(ctx, metav1.ListOptions{LabelSelector: c.NodeLabels})
	if err != nil {
		c.fail("nodes", fmt.Errorf("select Nodes with the labels %s: %w", c.NodeLabels, err))
		c.withoutNodes(ctx)
		return
	}
	c.agents = slices.DeleteFunc(c.agents, func(a remote.Agent) bool {
		return !slices.ContainsFunc(list.Items, func(n unstructured.Unstructured) bool { return n.GetName() == a.Node })
	})
}

// choose checks the number and the names of Nodes.
func (b *bundle) choose(clusters []*cluster) error {
	count := 0
	var unknown bool
	found := map[string]bool{}
	for _, c := range clusters {
		count += len(c.agents) + c.daemons
		unknown = unknown || c.dead || c.nodesUnknown
		for _, a := range c.agents {
			found[a.Node] = true
		}
	}
	if len(b.Nodes) == 0 && count > MaxNodes {
		return fmt.Errorf("the clusters have %d Nodes; a bundle has at most %d: name some of them with --nodes x,y",
			count, MaxNodes)
	}
	for _, name := range b.Nodes {
		if !found[name] && !unknown {
			return fmt.Errorf("--nodes: no cluster has a Node %s: `kubectl get nodes` lists them", name)
		}
	}
	return nil
}

// fail notes a part of the cluster that could not be read.
func (c *cluster) fail(part string, err error) {
	if c.words != nil {
		err = errors.New(c.words.text(err.Error()))
	}
	c.failed(path.Join(c.folder, part), err)
	if c.Report != nil && !c.interrupted() {
		c.Report(path.Join(c.Name, part), err)
	}
}

// put adds a text.
func (c *cluster) put(name string, content []byte) {
	c.write(path.Join(c.folder, name), func() []byte {
		content := Mask(content)
		if c.words != nil {
			content = []byte(c.words.text(string(content)))
		}
		return content
	})
}

// putJSON adds an answer.
func (c *cluster) putJSON(name string, content []byte) {
	c.write(path.Join(c.folder, name), func() []byte { return c.anonymous(maskJSON(content)) })
}

// putLines adds an answer of several lines, each of JSON.
func (c *cluster) putLines(name string, content []byte) {
	c.write(path.Join(c.folder, name), func() []byte {
		var out bytes.Buffer
		for line := range bytes.Lines(content) {
			out.Write(append(bytes.TrimRight(c.anonymous(maskJSON(line)), "\n"), '\n'))
		}
		return out.Bytes()
	})
}

// putObjects adds objects that were filtered.
func (c *cluster) putObjects(name string, list []map[string]any) {
	var out bytes.Buffer
	out.WriteString("{\"items\":[")
	for i, o := range list {
		text, err := json.Marshal(o)
		if err != nil {
			c.fail(name, err)
			return
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		out.Write(text)
	}
	out.WriteString("\n]}\n")
	c.write(path.Join(c.folder, name), func() []byte { return c.anonymous(out.Bytes()) })
}

// collect adds all parts of the cluster.
func (c *cluster) collect(ctx context.Context) {
	if c.dead {
		return
	}
	slots := make(chan struct{}, parallel)
	var all sync.WaitGroup
	begin := func(f func()) {
		all.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				f()
			case <-ctx.Done():
			}
		})
	}
	// Agents have a bound of their own.
	for _, a := range c.agents {
		all.Go(func() { c.node(ctx, a) })
	}
	namespaces := c.namespaces(ctx)
	for _, k := range kinds {
		begin(func() { c.objects(ctx, k, namespaces) })
	}
	for _, namespace := range namespaces {
		for name, keys := range configurations {
			begin(func() { c.configuration(ctx, namespace, name, keys) })
		}
		pods, err := c.ownPods(ctx, namespace)
		if err != nil {
			c.fail("logs/"+c.word(namespace), err)
		}
		for _, pod := range pods {
			for _, l := range containerLogs(pod) {
				begin(func() { c.log(ctx, pod, l) })
			}
		}
	}
	all.Wait()
}

// PathMetrics is the path of the agents' metrics.
const PathMetrics = "/metrics"
